"""Rows whose keys differ upstream are different rows of a lake, or refused by name; equal ones are one row."""

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from tests.sink.delta.lake import Rows, column, options, run, stored, table
from tidegate.codec.columnar import typed_batch
from tidegate.engine.change import Chunk, ChunkPart
from tidegate.engine.plan import Alter, Create
from tidegate.engine.plan import Rows as Apply
from tidegate.model.errors import SchemaError, SinkRefused, UnsupportedError
from tidegate.model.event import Field, Insert, Update, Value
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType, TableInfo, TableName
from tidegate.sink.delta.options import DeltaOptions

DATE = ColumnType(T.DATE)
ZERO_DATES = ("2024-00-00", "2023-00-00", "2024-05-00")
_SINGLE = struct.unpack("f", struct.pack("f", 1.1))[0]

KEYS: dict[str, tuple[ColumnType, Sequence[Value]]] = {
    "DATE": (DATE, ["2024-05-01", "0001-01-01", "9999-12-31"]),
    "zero DATE": (DATE, ["2024-05-01", "0000-01-01", *ZERO_DATES]),
    "zero DATETIME": (ColumnType(T.DATETIME), ["0000-00-00 00:00:00", "2024-00-00 00:00:00", "2024-01-02 03:04:05"]),
    "zero TIMESTAMP": (ColumnType(T.TIMESTAMP), ["0000-00-00 00:00:00", "2024-01-02 03:04:05"]),
    "DATETIME(6)": (ColumnType(T.DATETIME, decimal=6), ["2024-01-02 03:04:05.000001", "2024-01-02 03:04:05.000002"]),
    "FLOAT": (ColumnType(T.FLOAT), [0.0, _SINGLE, struct.unpack("f", b"\xcd\xcc\x8c\x3e")[0], 3.4028234663852886e38]),
    "DOUBLE": (ColumnType(T.DOUBLE), [0.1, 0.10000000000000002, 5e-324, 1.7976931348623157e308]),
    "DECIMAL(38,10)": (
        ColumnType(T.DECIMAL, 38, 10),
        [f"{'9' * 28}.9999999999", f"{'9' * 28}.9999999998", "-0.0000000001"],
    ),
    "DECIMAL(65,30)": (ColumnType(T.DECIMAL, 65, 30), [f"{'9' * 35}.{'9' * 30}", f"{'9' * 35}.{'9' * 29}8"]),
    "BIGINT UNSIGNED": (ColumnType(T.LONGLONG, unsigned=True), [0, 2**64 - 1, 2**63, 2**53 + 1]),
    "BIT(64)": (ColumnType(T.BIT, 64), [0, 2**64 - 1, 2**64 - 2]),
    "YEAR": (ColumnType(T.YEAR), [0, 1901, 2155]),
    "TIME(6)": (
        ColumnType(T.TIME, decimal=6),
        ["-838:59:59.000000", "00:00:00.000001", "-00:00:00.000001", "24:00:00.000000"],
    ),
    "ENUM": (ColumnType(T.ENUM, elems=("a", "A ", "1", "2")), [0, 1, 2, 3, 4]),
    "ENUM with ''": (ColumnType(T.ENUM, elems=("", "a")), [0, 1, 2]),
    "ENUM beyond": (ColumnType(T.ENUM, elems=("a",)), [0, 7]),
    "SET": (ColumnType(T.SET, elems=("a", "b")), [0, 1, 2, 3]),
    "SET with ''": (ColumnType(T.SET, elems=("", "a")), [0, 1, 2, 3]),
    "SET beyond": (ColumnType(T.SET, elems=("a",)), [1, 3]),
    "VARCHAR": (ColumnType(T.VARCHAR, 20), ["a", "A", "a ", "", "ä", "a\u0308", "\ufffd", "\x00"]),
    "no UTF-8": (ColumnType(T.VARCHAR, 20), [b"\xff", b"\xfe", "\ufffd"]),
    "VARBINARY": (ColumnType(T.VARCHAR, 20, charset="binary"), [b"\xff", b"\xfe", b"", b"\0", b"a ", b"a"]),
}
"""Keys and values that are different upstream, under one collation or another."""
REFUSED = {
    "zero DATE": "zero-date=string",
    "zero DATETIME": "zero-date=string",
    "zero TIMESTAMP": "zero-date=string",
    "ENUM with ''": "number 0 of an ENUM",
    "ENUM beyond": "number 7 of an ENUM",
    "SET with ''": "number 0 of a?n? ?SET",
    "SET beyond": "number 3 of a?n? ?SET",
    "no UTF-8": "UTF",
}
"""Those that a lake has no place for, each by its own, and what the error says."""


def keyed(kind: ColumnType, version: int = 10) -> TableInfo:
    """A table whose key is a column of that type, and a number."""
    return table(column(1, "k", kind), column(2, "v"), key=("k",), version=version)


class Typed(Rows):
    """Changes in typed columns, as decoders and mounters give them."""

    def batches(self, name: TableName, after: int, upto: int) -> Iterator[Chunk]:
        """The same chunks, their values typed."""
        for chunk in super().batches(name, after, upto):
            parts = tuple(ChunkPart(typed_batch(batch), numbers) for batch, numbers in chunk.parts)
            yield replace(chunk, parts=parts)


def insert(rows: Rows, ts: int, kind: ColumnType, key: Value) -> None:
    """Add an INSERT of a row with that key."""
    rows.changes.append(Insert(schema="s", table="t", commit_ts=ts, fields=fields(kind), after=(key, ts)))


def fields(kind: ColumnType) -> tuple[Field, ...]:
    """The fields of rows."""
    key = Field("k", kind.code, unsigned=kind.unsigned, binary=kind.charset == "binary")
    return key, Field("v", T.LONG)


def held(lake: DeltaOptions) -> list[dict[str, object]]:
    """The rows of the table."""
    return list(stored(lake, "t-1"))


def kept(rows: Rows, lake: DeltaOptions, kind: ColumnType, values: Sequence[Value]) -> list[object]:
    """The keys that a lake has of rows with these."""
    for at, value in enumerate(values):
        insert(rows, 20 + at, kind, value)
    run(lake, rows, Create(keyed(kind), 10, 1), Apply(keyed(kind), 10, 100))
    return [row["k"] for row in held(lake)]


@pytest.mark.parametrize("policy", ["evolve", "try_evolve"])
@pytest.mark.parametrize("rows", [Rows, Typed])
@pytest.mark.parametrize("name", KEYS)
def test_as_many_rows_as_keys(tmp_path: Path, name: str, rows: type[Rows], policy: str) -> None:
    """Every type of key: as many rows as upstream, or an error that names table and column; never fewer rows."""
    kind, values = KEYS[name]
    lake = options(tmp_path, schema_change=policy)
    if name not in REFUSED:
        found = kept(rows(), lake, kind, values)
        assert len(found) == len(set(map(repr, found))) == len(values)
        return
    with pytest.raises(SchemaError, match=rf"(?s)s\.t column k.*{REFUSED[name]}"):
        kept(rows(), lake, kind, values)


@pytest.mark.parametrize("name", [name for name in KEYS if name.startswith("zero")])
def test_the_way_out(tmp_path: Path, name: str) -> None:
    """A lake whose key is a date goes on with zero-date=string: the rows that it has and those that come are texts."""
    kind, values = KEYS[name]
    first, *others = sorted(map(str, values), reverse=True)
    rows = Rows()
    insert(rows, 20, kind, first)
    run(options(tmp_path), rows, Create(keyed(kind), 10, 1), Apply(keyed(kind), 10, 30))
    for at, value in enumerate(others):
        insert(rows, 40 + at, kind, value)
    with pytest.raises(SchemaError, match="zero-date=string"):
        run(options(tmp_path), rows, Apply(keyed(kind), 30, 100))

    run(options(tmp_path, zero_date="string"), rows, Apply(keyed(kind), 30, 100))
    assert sorted(row["k"] for row in held(options(tmp_path))) == sorted([first, *others])

    rows.delete(120, k=first, v=20)
    run(options(tmp_path, zero_date="string"), rows, Apply(keyed(kind), 100, 130))
    assert sorted(row["k"] for row in held(options(tmp_path))) == sorted(others)


@pytest.mark.parametrize("mode", ["replica", "history", "changelog"])
def test_the_way_out_of_every_mode(tmp_path: Path, mode: str) -> None:
    """Old changes and old versions get texts, too, and Iceberg metadata tells of them."""
    kind, rows = DATE, Rows()
    insert(rows, 20, kind, "2024-05-01")
    insert(rows, 40, kind, ZERO_DATES[0])
    run(options(tmp_path, mode=mode, iceberg=True), rows, Create(keyed(kind), 10, 1), Apply(keyed(kind), 10, 30))
    with pytest.raises(SchemaError, match="zero-date=string"):
        run(options(tmp_path, mode=mode, iceberg=True), rows, Apply(keyed(kind), 30, 100))

    run(options(tmp_path, mode=mode, iceberg=True, zero_date="string"), rows, Apply(keyed(kind), 30, 100))
    assert [row["k"] for row in held(options(tmp_path))] == [ZERO_DATES[0], "2024-05-01"]
    newest = max((tmp_path / "tables" / "t-1" / "metadata").glob("v*.metadata.json"))
    fields = json.loads(newest.read_text())["schemas"][-1]["fields"]
    assert [field["type"] for field in fields if field["name"] == "k"] == ["string"]


def test_dates_that_are_no_key_stay_as_they_were(tmp_path: Path) -> None:
    """Beside the key a zero date is NULL still."""
    rows, made = Rows(), table(column(1, "id"), column(2, "d", DATE))
    rows.insert(20, id=1, d=ZERO_DATES[0])
    run(options(tmp_path), rows, Create(made, 10, 1), Apply(made, 10, 30))

    assert held(options(tmp_path)) == [{"id": 1, "d": None}]


@pytest.mark.parametrize("others", [(), (("w", ColumnType(T.LONG)),)])
def test_a_key_of_zero_dates(tmp_path: Path, others: tuple[tuple[str, ColumnType], ...]) -> None:
    """A column that becomes part of the key must not hold NULL for zero dates, whether files stay or not."""
    rows, made = Rows(), table(column(1, "id"), column(2, "d", DATE))
    rows.insert(20, id=1, d=ZERO_DATES[0])
    more = [column(3 + at, name, kind, origin_default="3") for at, (name, kind) in enumerate(others)]
    key = table(*made.columns, *more, key=("id", "d"), version=30)

    with pytest.raises(SinkRefused, match="column d of the key has NULL"):
        run(options(tmp_path), rows, Create(made, 10, 1), Apply(made, 10, 30), Alter(made, key, 30, 1))
    run(
        options(tmp_path / "text", zero_date="string"),
        rows,
        Create(made, 10, 1),
        Apply(made, 10, 30),
        Alter(made, key, 30, 1),
    )


def test_a_key_that_cannot_be_converted(tmp_path: Path) -> None:
    """The policy that puts NULL for values without a conversion does not for those of a key."""
    lake, rows = options(tmp_path, schema_change="try_evolve"), Rows()
    old, new = keyed(ColumnType(T.TIME)), keyed(ColumnType(T.BIT, 8), version=30)
    insert(rows, 20, ColumnType(T.TIME), "01:02:03")

    with pytest.raises(UnsupportedError):
        run(lake, rows, Create(old, 10, 1), Apply(old, 10, 30), Alter(old, new, 30, 1))


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        (ColumnType(T.VARCHAR, 20), "a", "A"),
        (ColumnType(T.VARCHAR, 20), "a", "a "),
        (ColumnType(T.VARCHAR, 20), "straße", "STRASSE"),
        (ColumnType(T.DOUBLE), -0.0, 0.0),
        (ColumnType(T.FLOAT), 0.0, -0.0),
    ],
)
def test_a_key_that_stays_equal(tmp_path: Path, kind: ColumnType, before: Value, after: Value) -> None:
    """An UPDATE to a key that the upstream takes for the same leaves one row, the new one, in one round or two."""
    for at, (make, cuts) in enumerate(product((Rows, Typed), ([(10, 100)], [(10, 30), (30, 100)]))):
        rows, lake, made = make(), options(tmp_path / str(at)), keyed(kind)
        insert(rows, 20, kind, before)
        both = {"before": (before, 20), "after": (after, 20)}
        rows.changes.append(Update(schema="s", table="t", commit_ts=40, fields=fields(kind), **both))
        run(lake, rows, Create(made, 10, 1), *(Apply(made, *cut) for cut in cuts))
        assert repr(held(lake)) == repr([{"k": after, "v": 20}])
