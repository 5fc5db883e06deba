"""Csv files are read back: by columns and line by line alike, in every dialect, whatever stands in the texts."""

import random
from typing import Any

import pytest

from tests.counts import some
from tidegate.codec.columnar.csv import CsvTable
from tidegate.codec.columnar.encode.encoder import events_of
from tidegate.codec.columnar.values import MISMATCHES
from tidegate.codec.csv import CsvDecoder, CsvEncoder, CsvOptions, CsvRow, records, whole_bytes
from tidegate.codec.values import float32
from tidegate.codec.wire_table import WireColumn, WireTable
from tidegate.engine.change import encode_value
from tidegate.model.errors import DecodeError
from tidegate.model.event import Delete, Insert, RowChange, Update, Values, images
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType

KINDS = {
    "tiny": ColumnType(T.TINY, charset="binary"),
    "big": ColumnType(T.LONGLONG, unsigned=True, charset="binary"),
    "year": ColumnType(T.YEAR, charset="binary"),
    "bit": ColumnType(T.BIT, flen=64, charset="binary"),
    "float": ColumnType(T.FLOAT, charset="binary"),
    "double": ColumnType(T.DOUBLE, charset="binary"),
    "decimal": ColumnType(T.DECIMAL, flen=10, decimal=2, charset="binary"),
    "text": ColumnType(T.VARCHAR),
    "blob": ColumnType(T.BLOB, charset="binary"),
    "enum": ColumnType(T.ENUM, elems=("a", "b,c", 'q"')),
    "set": ColumnType(T.SET, elems=("x", "y", "z")),
    "json": ColumnType(T.JSON, charset="binary"),
    "datetime": ColumnType(T.DATETIME, decimal=3, charset="binary"),
}
PIECES = ("", "a", '"', '""', ",", "\r\n", "\n", "\r", "\\", "\\N", "käse", "\x00", "|+", "\udcff", "NULL", "😀")
UNSIGNED = {"big", "year", "bit"}
TABLE = WireTable(
    tuple(
        WireColumn(name, kind, (kind.charset == "binary") + 128 * (name in UNSIGNED)) for name, kind in KINDS.items()
    ),
    ("tiny",),
)
DIALECTS = {
    "plain": CsvOptions(include_commit_ts=True),
    "old values": CsvOptions(include_commit_ts=True, output_old_value=True),
    "header": CsvOptions(include_commit_ts=True, output_field_header=True, terminator="\n"),
    "hex": CsvOptions(include_commit_ts=True, binary_encoding_method="hex", delimiter="|", quote="'"),
    "no quote": CsvOptions(include_commit_ts=True, quote="", output_old_value=True),
    "long": CsvOptions(include_commit_ts=True, delimiter="|+|", terminator="$\n"),
}
COLUMNAR = ("plain", "old values", "header", "hex")
"""Dialects that go by columns."""


def value(kind: ColumnType, dice: random.Random) -> Any:
    """A value of a type."""
    text = "".join(dice.choices(PIECES, k=dice.randint(0, 3)))
    known: dict[T, Any] = {
        T.TINY: dice.randint(-128, 127),
        T.LONGLONG: dice.choice([0, (1 << 64) - 1, dice.getrandbits(40)]),
        T.YEAR: dice.randint(1901, 2155),
        T.BIT: dice.getrandbits(64),
        T.FLOAT: float32(dice.choice([0.1, 1e21, 1.5e-7, -3.0]), "test"),
        T.DOUBLE: dice.choice([0.1, 1e300, 1e-5, 123456789.125, -0.0]),
        T.DECIMAL: "-12.50",
        T.BLOB: text.encode("utf-8", "surrogateescape"),
        T.ENUM: dice.randint(0, 3),
        T.SET: dice.getrandbits(3),
        T.JSON: '{"a": [1, "x\\"y"]}',
        T.DATETIME: "2026-08-20 01:02:03.000",
    }
    return None if dice.random() < 0.1 else known.get(kind.code, text)


def some_rows(seed: int, count: int) -> list[RowChange]:
    """Rows of the table in commit order."""
    dice = random.Random(seed)
    found: list[RowChange] = []
    for number in range(count):
        told: dict[str, Any] = {
            "schema": 'sh"op',
            "table": "t,1",
            "fields": TABLE.fields,
            "pk_names": TABLE.pk_names,
            "commit_ts": 100 + number // 2,
        }
        one, other = (tuple(value(kind, dice) for kind in KINDS.values()) for _ in "ab")
        kind = dice.choice([Insert, Update, Delete])
        found.append(
            Insert(after=one, **told)
            if kind is Insert
            else Delete(before=one, **told)
            if kind is Delete
            else Update(before=one, after=other, **told)
        )
    return found


def expected(row: RowChange, options: CsvOptions) -> RowChange:
    """The row that is read: an UPDATE without its old image comes as an INSERT."""
    if isinstance(row, Update) and not options.output_old_value:
        told = {name: getattr(row, name) for name in ("schema", "table", "fields", "pk_names", "commit_ts")}
        return Insert(after=row.after, **told)
    return row


def plain(body: bytes, options: CsvOptions) -> list[CsvRow]:
    """The rows of a file, line by line."""
    decoder = CsvDecoder('sh"op', "t,1", TABLE, options)
    found = list(records(body, options))
    assert b"".join(one.raw for one in found) == body
    return [decoder.row(one) for one in found[options.output_field_header :]]


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("seed", range(3))
def test_there_and_back(name: str, seed: int) -> None:
    """What the encoder writes is read back, value by value."""
    options = DIALECTS[name]
    encoder, rows = CsvEncoder(options), some_rows(seed, 60)
    body = encoder.header(TABLE) + b"".join(encoder.row(row, TABLE) for row in rows)
    lines = [
        (word, row.commit_ts, values)
        for row in rows
        for word, values in zip("DI", images(row), strict=True)
        if values is not None and (options.output_old_value or word == "I" or not isinstance(row, Update))
    ]
    found = [("I" if one.op == "U" else one.op, one.commit_ts, one.values) for one in plain(body, options)]
    assert found == lines
    if name in COLUMNAR:
        table = CsvTable('sh"op', "t,1", TABLE, TABLE.fields, options)
        batch, waits, _ = table.lines(body, 0, 1000)
        assert waits is None
        assert list(events_of(batch)) == [expected(row, options) for row in rows]


def texts(values: Values) -> list[bytes | None]:
    """Values as a changelog holds them."""
    return list(map(encode_value, values))


def test_a_range() -> None:
    """Rows outside of the range are left out, and the first above it is told; their numbers in the file stay."""
    options = DIALECTS["old values"]
    rows = some_rows(5, 40)
    body = b"".join(CsvEncoder(options).row(row, TABLE) for row in rows)
    batch, waits, lines = CsvTable('sh"op', "t,1", TABLE, TABLE.fields, options).lines(body, 103, 110)
    assert (waits, lines) == (111, len(plain(body, options)))
    assert list(events_of(batch)) == [row for row in rows if 103 < (row.commit_ts or 0) <= 110]
    at = [number for number, one in enumerate(plain(body, options)) if 103 < one.commit_ts <= 110]
    assert set(batch.message.to_pylist()) <= set(at)
    assert batch.message.to_pylist()[0] == at[0]


@pytest.mark.parametrize("name", DIALECTS)
def test_cut_anywhere(name: str) -> None:
    """Of a file that was cut off anywhere, what stands before the record that was cut is told."""
    options = DIALECTS[name]
    lines = [CsvEncoder(options).row(row, TABLE) for row in some_rows(9, 6) if not isinstance(row, Update)]
    body, ends = b"".join(lines), [0]
    for line in lines:
        ends.append(ends[-1] + len(line))
    for at in range(len(body) + 1):
        assert whole_bytes(body[:at], options) == max(end for end in ends if end <= at), at


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'"I","t","s",5\r\n', "a line of 4 fields, where 4 and 2 columns are told"),
        (b'"I","t","s",5,1,"a",2\r\n', "a line of 7 fields"),
        (b'"X","t","s",5,1,"a"\r\n', "a row 'X' of 's'.'t' in a file of another table"),
        (b'"I","u","s",5,1,"a"\r\n', "a file of another table"),
        (b'"I","t","s",x,1,"a"\r\n', "'x' is no commit_ts"),
        (b'"I","t","s",9223372036854775808,1,"a"\r\n', "is no commit_ts"),
        (b'"I","t","s",5,300,"a"\r\n', "column 'id': '300' is not an integer from -128 to 255"),
        (b'"I","t","s",5,1,"a"b"\r\n', "no record"),
        (b'"I","t","s",5,1,"YQ"\r\n', "column 'b': 'YQ' is not base64"),
        (b"\r\n", "a line of 1 fields"),
    ],
)
def test_what_is_no_row(line: bytes, why: str) -> None:
    """It is told what is wrong, by columns nothing is taken, and the line behind it is read."""
    options = CsvOptions(include_commit_ts=True)
    kinds = (ColumnType(T.TINY, charset="binary"), ColumnType(T.BLOB, charset="binary"))
    table = WireTable(tuple(WireColumn(name, kind, 1) for name, kind in zip(("id", "b"), kinds, strict=True)))
    good = b'"I","t","s",6,2,"YQ=="\r\n'
    decoder = CsvDecoder("s", "t", table, options)
    bad, *others = records(line + good, options)
    with pytest.raises(DecodeError, match=why.replace("(", r"\(")):
        decoder.row(bad)
    assert [decoder.row(one).values for one in others] == [(2, b"a")]
    with pytest.raises(MISMATCHES):
        CsvTable("s", "t", table, table.fields, options).lines(line + good, 0, 1 << 62)


@pytest.mark.slow
@pytest.mark.parametrize("name", COLUMNAR)
def test_hostile_bytes(name: str) -> None:
    """Of bytes that nobody wrote so, line by line comes rows or DecodeErrors; what goes by columns is what goes line by
    line."""
    options, dice = DIALECTS[name], random.Random(3)
    encoder = CsvEncoder(options)
    decoder = CsvDecoder('sh"op', "t,1", TABLE, options)
    columns = CsvTable('sh"op', "t,1", TABLE, TABLE.fields, options)
    by_columns = 0
    for seed in range(some(150, 5_000)):
        body = bytearray(encoder.header(TABLE) + b"".join(encoder.row(row, TABLE) for row in some_rows(seed, 3)))
        for _ in range(dice.randint(0, 2)):
            at = dice.randrange(len(body))
            body[at : at + dice.randint(0, 2)] = dice.choice([b"", b'"', b",", b"\r\n", b"\n", b"\x00", b"\xff", b"7"])
        text = bytes(body)
        rows: list[CsvRow] | None = []
        for one in list(records(text, options))[options.output_field_header :]:
            try:
                rows = None if rows is None else [*rows, decoder.row(one)]
            except DecodeError:
                rows = None
        try:
            batch, _, _ = columns.lines(text[: whole_bytes(text, options)], -1, 1 << 62)
        except MISMATCHES:
            continue
        if rows is not None and whole_bytes(text, options) == len(text):
            by_columns += 1
            told = [] if batch is None else [image for row in events_of(batch) for image in images(row) if image]
            assert list(map(texts, told)) == [texts(one.values) for one in rows], text
    assert by_columns > 20
