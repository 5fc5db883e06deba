"""A lake equals the truth exactly when every table, row and value means the same."""

import base64
import datetime as dt
import gzip
import json
import re
from decimal import Decimal
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.verify.one_table import compare
from tidegate.cli.verify import print_reports
from tidegate.model.errors import ConfigError
from tidegate.verify.compare import Difference, TruthColumn
from tidegate.verify.local import Truth, TruthTable, choose_truth, compare_tables, load_truth

RECORDING = Path(__file__).parents[1] / "data" / "workload"
INTS = {"tinyint": (pa.int8(), pa.int16()), "smallint": (pa.int16(), pa.int32()), "mediumint": (pa.int32(), pa.int32()),
        "int": (pa.int32(), pa.int64()), "bigint": (pa.int64(), pa.decimal128(20, 0))}  # fmt: skip
PLAIN = {"float": pa.float32(), "double": pa.float64(), "date": pa.date32(), "year": pa.int16(),
         "datetime": pa.timestamp("us"), "timestamp": pa.timestamp("us", "UTC"),
         "binary": pa.binary(), "varbinary": pa.binary()}  # fmt: skip


def lake_type(text):
    """The lake's type for a MySQL type."""
    name, first, second, unsigned = re.match(r"(\w+)(?:\((\d+)(?:,(\d+))?)?.*?( unsigned)?$", text).groups()
    if name in INTS:
        return INTS[name][unsigned is not None]
    if name == "decimal":
        return pa.decimal128(int(first), int(second)) if int(first) <= 38 else pa.string()
    if name == "bit":
        return pa.int64() if int(first) < 64 else pa.decimal128(20, 0)
    return pa.binary() if name.endswith("blob") else PLAIN.get(name, pa.string())


def lake_value(cell, kind):
    """The lake's value for a cell of the truth; dates that no calendar has are NULL."""
    if cell is None:
        return None
    value = base64.b64decode(cell["b"]) if "b" in cell else cell.get("f32", cell.get("f64"))
    if value is None:
        value = cell["s"] if "s" in cell else cell.get("i", cell.get("u"))
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        try:
            moment = dt.datetime.fromisoformat(value)
        except ValueError:
            return None
        return moment.replace(tzinfo=dt.UTC) if getattr(kind, "tz", None) else moment
    return value


def lake_table(truth):
    """The table as a right lake holds it: columns reversed, rows reversed."""
    arrays = {}
    for place, column in reversed(list(enumerate(truth.columns))):
        if column.generated != "virtual":
            kind = lake_type(column.type)
            arrays[column.name] = pa.array([lake_value(row[place], kind) for row in reversed(truth.rows)], kind)
    return pa.table(arrays)


def one(type_, *cells, key=("k",), generated=""):
    """A truth of a key column and one other."""
    columns = (TruthColumn("k", "int(11)"), TruthColumn("V", type_, generated=generated))
    return TruthTable(key, columns, [({"i": n}, cell) for n, cell in enumerate(cells)])


def lake_of(values, kind=None):
    """A lake table of a key column and one other."""
    return pa.table({"k": pa.array(range(len(values)), pa.int32()), "v": pa.array(values, kind)})


def test_recorded_truths_equal_a_right_lake():
    """At every recorded moment a lake built from the types' rules has no difference, whatever its order of rows."""
    truths = load_truth(RECORDING)
    assert [truth.n for truth in truths] == list(range(1, len(truths) + 1))
    for truth in truths:
        reports = list(compare_tables(truth, list(truth.tables), lambda name, now=truth: lake_table(now.tables[name])))
        assert {report.name: report.differences for report in reports if not report.equal} == {}
        assert len(reports) == len(truth.tables)


def test_neighbouring_moments_differ():
    """A lake at one moment is not taken for the next one."""
    first, second = load_truth(RECORDING)[:2]
    reports = compare_tables(second, list(first.tables), lambda name: lake_table(first.tables[name]))
    assert any(not report.equal for report in reports)


@pytest.mark.parametrize(
    ("type_", "cell", "value", "kind"),
    [
        ("bigint(20) unsigned", {"u": 2**64 - 1}, Decimal(2**64 - 1), pa.decimal128(20, 0)),
        ("bigint(20)", {"i": -(2**63)}, -(2**63), pa.int64()),
        ("bit(64)", {"u": 2**63}, Decimal(2**63), pa.decimal128(20, 0)),
        ("decimal(10,2)", {"s": "-1.50"}, Decimal("-1.50"), pa.decimal128(10, 2)),
        ("decimal(38,30)", {"s": "0." + "0" * 30}, Decimal(0), pa.decimal128(38, 30)),
        ("decimal(65,2)", {"s": "9" * 63 + ".10"}, "9" * 63 + ".10", pa.string()),
        ("decimal(20,0)", {"s": "12"}, Decimal(12), pa.decimal128(20, 0)),
        ("float", {"f32": 3.4028234663852886e38, "s": "3.4028235e+38"}, 3.4028234663852886e38, pa.float32()),
        ("double", {"f64": 453}, 453.0, pa.float64()),
        ("double", {"f64": 0}, -0.0, pa.float64()),
        ("datetime(3)", {"s": "1000-01-01 00:00:00.120"}, dt.datetime.fromisoformat("1000-01-01T00:00:00.12"), None),
        (
            "datetime",
            {"s": "9999-12-31 23:59:59"},
            dt.datetime.fromisoformat("9999-12-31T23:59:59"),
            pa.timestamp("us"),
        ),
        ("timestamp", {"s": "1970-01-01 00:00:01"}, 1_000_000, pa.timestamp("us", "UTC")),
        ("date", {"s": "0001-01-01"}, dt.date(1, 1, 1), pa.date32()),
        ("date", {"s": "0000-00-00"}, None, pa.date32()),
        ("datetime", {"s": "2020-00-10 00:00:00"}, None, pa.timestamp("us")),
        ("datetime", {"s": "2021-02-30 00:00:00"}, None, pa.timestamp("us")),
        ("datetime", {"s": "0000-00-00 00:00:00"}, "0000-00-00 00:00:00", pa.string()),
        ("time(3)", {"s": "-838:59:59.000"}, "-838:59:59.000", pa.string()),
        ("enum('a','b')", {"u": 2, "s": "b"}, "b", pa.string()),
        ("enum('a','b')", {"u": 0, "s": ""}, "", pa.string()),
        ("set('x','y')", {"u": 3, "s": "x,y"}, "x,y", pa.string()),
        ("year(4)", {"i": 0}, 0, pa.int16()),
        ("varbinary(8)", {"b": "AP8="}, b"\x00\xff", pa.binary()),
        ("json", {"s": '{"a": 1}'}, '{"a": 1}', pa.large_string()),
        ("int(11)", None, None, pa.int32()),
    ],
)
def test_values_by_meaning(type_, cell, value, kind):
    """A value of the lake equals the truth's when it means the same; NULL equals neither it nor the other way."""
    assert compare(one(type_, cell), lake_of([value], kind)) == []
    if value is not None:
        assert compare(one(type_, None), lake_of([value], kind))[0].kind == "value"
        assert compare(one(type_, cell), lake_of([None], kind))[0].kind == "value"


@pytest.mark.parametrize(
    ("type_", "cell", "value", "kind", "shown"),
    [
        ("int(11)", {"i": 1}, 2, pa.int32(), 2),
        ("decimal(12,1)", {"s": "1.5"}, Decimal("1.50"), pa.decimal128(12, 2), "1.50"),
        ("datetime", {"s": "2020-01-01 00:00:00"}, 1, pa.timestamp("us"), "1970-01-01 00:00:00.000001"),
        ("datetime(3)", {"s": "2020-01-01 00:00:00.000"}, 1000, pa.timestamp("us"), "1970-01-01 00:00:00.001"),
        ("datetime", {"s": "2020-01-01 00:00:00"}, 2**62, pa.timestamp("us"), f"{2**62} us from 1970"),
        ("date", {"s": "0000-00-00"}, dt.date(1970, 1, 1), pa.date32(), "1970-01-01"),
        ("float", {"f32": 0.10000000149011612, "s": "0.1"}, 0.1, pa.float64(), 0.1),
        ("set('x','y')", {"u": 3, "s": "x,y"}, "y,x", pa.string(), "y,x"),
        ("char(3)", {"s": "ab"}, "ab ", pa.string(), "ab "),
        ("json", {"s": '{"a": 1}'}, '{"a":1}', pa.string(), '{"a":1}'),
    ],
)
def test_values_that_differ(type_, cell, value, kind, shown):
    """A value that means something else is shown, as the lake has it."""
    (difference,) = compare(one(type_, cell), lake_of([value], kind))
    assert (difference.kind, difference.key, difference.column, difference.found) == ("value", (0,), "V", shown)


def test_rows():
    """Rows that are missing, extra or repeated are told by their key."""
    truth = one("int(11)", {"i": 10}, {"i": 11}, {"i": 12})
    lake = pa.table({"k": [2, 0, 7, 0], "v": [12, 10, 17, 10]})
    assert {(item.kind, item.key) for item in compare(truth, lake)} == {
        ("repeated row", (0,)), ("missing row", (1,)), ("extra row", (7,))
    }  # fmt: skip


def test_rows_without_key():
    """Rows of a table without a key are counted: as often here as there."""
    truth = one("int(11)", {"i": 1}, key=())
    assert compare(truth, lake_of([1])) == []
    twice = pa.table({"k": [0, 0], "v": [1, 1]})
    assert compare(truth, twice) == [Difference("extra row", (0, 1))]
    assert compare(truth, lake_of([2])) == [Difference("missing row", (0, 1)), Difference("extra row", (0, 2))]


def test_columns():
    """Columns that are missing or too many are told, names compare without case, virtual columns do not count."""
    truth = one("int(11)", {"i": 1})
    assert compare(truth, pa.table({"k": [0]})) == [Difference("missing column", column="V")]
    assert compare(truth, pa.table({"K": [0], "V": [1], "w": [1]})) == [Difference("extra column", column="w")]
    virtual = one("int(11)", {"i": 1}, generated="virtual")
    assert compare(virtual, pa.table({"k": [0]})) == []
    assert compare(virtual, pa.table({"k": [0], "v": [5]})) == []
    assert compare(truth, pa.table({"v": [1]})) == [Difference("missing column", column="k")]


def test_tables():
    """Tables that only one side has are told."""
    truth = Truth(1, 5, {"a.X": one("int(11)"), "a.y": one("int(11)")})
    reports = list(compare_tables(truth, ["A.x", "a.z"], lambda _: lake_of([], pa.int32())))
    assert [(report.name, [str(item) for item in report.differences]) for report in reports] == [
        ("a.X", []), ("a.y", ["missing table"]), ("a.z", ["extra table"])
    ]  # fmt: skip


def test_choice_of_the_moment():
    """Latest is the last moment that the lake has reached; others are named by number or ts."""
    truths = [Truth(n, n * 100, {}) for n in (1, 2, 3)]
    assert [choose_truth(truths, "latest", ts).n for ts in (100, 199, 200, 5000)] == [1, 1, 2, 3]
    assert choose_truth(truths, "2", 500).n == choose_truth(truths, "200", 500).n == 2
    for at, reached, words in (("latest", 99, "before"), ("4", 500, "knows no moment"), ("3", 299, "only")):
        with pytest.raises(ConfigError, match=words):
            choose_truth(truths, at, reached)


def test_broken_recordings(tmp_path):
    """A directory without truths, and a truth that is no gzip, no JSON or of another form, are named."""
    with pytest.raises(ConfigError, match="not a recording"):
        load_truth(tmp_path)
    path = tmp_path / "1.json.gz"
    for data in (b"no gzip", gzip.compress(b"{"), gzip.compress(b'{"n": 1}'), gzip.compress(b"{}")[:-9]):
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=r"1\.json\.gz"):
            load_truth(tmp_path)
    path.write_bytes(gzip.compress(msgspec.json.encode(Truth(1, 5, {"a.b": one("int(11)", {"odd": 1})}))))
    (truth,) = load_truth(tmp_path)
    with pytest.raises(ConfigError, match="unknown form"):
        compare(truth.tables["a.b"], lake_of([1]))
    assert json.loads(gzip.decompress(path.read_bytes()))["ts"] == 5


@pytest.mark.parametrize("key", [("k",), ()])
@pytest.mark.parametrize("rows", [0, 2])
def test_a_table_that_the_target_lacks(key, rows, capsys):
    """A table is missing; but one without a key and without rows is left out by a changefeed, and nothing is lost."""
    truth = Truth(1, 1, {"s.t": one("int(11)", *({"i": 1},) * rows, key=key)})
    reports = list(compare_tables(truth, [], lake_table))

    total, wrong = print_reports(reports)

    left_out = not key and not rows
    assert (reports[0].left_out, total, wrong) == ((True, 0, 0) if left_out else (False, 1, 1))
    told = capsys.readouterr().out
    assert told.startswith("s.t: skipped, as it has no key (0 rows)" if left_out else "s.t: 1 difference")
