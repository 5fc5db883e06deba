"""Sums of chunks tell rows apart, and values of one meaning are made one."""

import zlib
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.verify import compare as comparison
from tidegate.verify.compare import ComparedTable, TruthColumn, Watch, agreed, compare_sides, form_of, meaning_of
from tidegate.verify.local import LakeReader, in_memory, lake_texts, lake_values
from tidegate.verify.sums import ChunkPlan, chunk_numbers, plain_column, sums_of

PLAN = ChunkPlan(("id", "a", "b"), ("id",), 1)
VALUES = st.none() | st.text(max_size=9)
ROWS = st.lists(st.tuples(st.integers(0, 3), VALUES, VALUES), max_size=4)
Rows = list[tuple[int, str, str]]


def same(ours: Rows, theirs: Rows) -> bool:
    """Sums of these rows are equal."""
    first, second = (sums_of([[plain_column(c) for c in zip(*rows, strict=True)]] if rows else [], PLAN)
                     for rows in (ours, theirs))  # fmt: skip
    return not first.different(second)


@given(ours=ROWS, theirs=ROWS)
def test_sums(ours: Rows, theirs: Rows) -> None:
    """Sums are equal exactly when the rows are, each as often, in whatever order."""
    assert same(ours, theirs) == (sorted(map(repr, ours)) == sorted(map(repr, theirs)))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([(1, "x", ""), (2, "y", "")], [(1, "y", ""), (2, "x", "")]),
        ([(1, "x", ""), (1, "x", "")], [(1, "y", ""), (1, "y", "")]),
        ([(1, "a,b", "c")], [(1, "a", "b,c")]),
        ([(1, None, "a")], [(1, "a", None)]),
        ([(1, None, None)], [(1, "", "")]),
        ([(1, "a\0", "")], [(1, "a", "")]),
    ],
)
def test_what_other_sums_miss(ours: Rows, theirs: Rows) -> None:
    """Exchanged values, twins for twins, moved commas, NULLs for empty texts and zero bytes make sums differ."""
    assert not same(ours, theirs)


@given(rows=st.lists(st.tuples(VALUES, VALUES), min_size=1), first=st.integers(0, 2), chunks=st.integers(2, 9))
def test_chunk_numbers(rows: list[tuple[str | None, str | None]], first: int, chunks: int) -> None:
    """The chunk of a row is the CRC32 of its texts, as servers compute it, also of a part of an array."""
    plan = ChunkPlan(("a", "b"), ("a", "b"), chunks)
    columns = [plain_column(values).slice(first) for values in zip(*rows, strict=True)]
    texts = (b",".join(text.encode() for text in row if text is not None) for row in rows[first:])

    assert chunk_numbers(columns, plan).tolist() == [zlib.crc32(text) % chunks for text in texts]


STORED = {
    "tiny": ("tinyint(4)", pa.array([-3, None, 5], pa.int8())),
    "big": ("bigint(20) unsigned", pa.array([Decimal(2**64 - 1), Decimal(0), None], pa.decimal128(20, 0))),
    "bits": ("bit(9)", pa.array([3, 0, 511], pa.int64())),
    "year": ("year(4)", pa.array([2000, 0, None], pa.int16())),
    "exact": ("decimal(10,2)", pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(10, 2))),
    "small": ("decimal(38,30)", pa.array([Decimal("1e-30"), Decimal(0), Decimal("-1.5")], pa.decimal128(38, 30))),
    "single": ("float", pa.array([0.1, None, 3.4e38], pa.float32())),
    "double": ("double", pa.array([1e20, 0.0, None], pa.float64())),
    "day": ("date", pa.array([0, None, 19000], pa.date32())),
    "moment": ("datetime(3)", pa.array([1_000, None, 86_400_000_000], pa.timestamp("us"))),
    "instant": ("timestamp", pa.array([1_000_000, None, 0], pa.timestamp("us", "UTC"))),
    "time": ("time(2)", pa.array(["-12:00:00.50", None, "00:00:00.00"])),
    "text": ("varchar(20)", pa.array(["é", "", None])),
    "member": ("enum('a','b,c')", pa.array(["b,c", "a", ""])),
    "octets": ("varbinary(10)", pa.array([b"\x00\xff", b"", None], pa.binary())),
    "document": ("json", pa.array(['{"a": 1}', None, "[]"])),
}
SHAPE = ComparedTable("d.t", ("id",), (TruthColumn("id", "int(11)"),
                                       *(TruthColumn(name, kind) for name, (kind, _) in STORED.items())))  # fmt: skip
TABLE = pa.table({"id": pa.array([1, 2, 3], pa.int32()), **{name: values for name, (_, values) in STORED.items()}})


class Stored(LakeReader):
    """A table, compared by the meanings of its values, or exactly."""

    def __init__(self, table: pa.Table, *, verbatim: bool) -> None:
        super().__init__("stored", None, ["d.t"], in_memory(lambda _: table), shape_of=lambda _: SHAPE)
        self.verbatim = verbatim


def flipped(values: pa.Array, bit: int, *, null: bool) -> pa.Array:
    """The values with one bit inverted: of what they are, or of which are NULL."""
    _, *others = values.buffers()
    text = pa.types.is_string(values.type) or pa.types.is_binary(values.type)
    size = int(np.frombuffer(others[0], np.int32)[len(values)]) if text else len(values) * values.type.bit_width // 8
    data = np.frombuffer(others.pop(), np.uint8)[:size].copy()
    bitmap = np.packbits(values.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    if null:
        bitmap[0] ^= 1 << bit % len(values)
    else:
        data[bit // 8 % size] ^= 1 << bit % 8
    return pa.Array.from_buffers(values.type, len(values), [pa.py_buffer(bitmap), *others, pa.py_buffer(data)])


@pytest.mark.parametrize("verbatim", [False, True])
@given(name=st.sampled_from(sorted(STORED)), bit=st.integers(0, 1 << 12), null=st.booleans())
def test_one_bit(name: str, bit: int, *, null: bool, verbatim: bool) -> None:
    """One bit that is flipped in any column of any type is found, in its row and column, and nothing else; except where
    the values mean the same: under a NULL, in zero's sign, in a document's blanks."""
    _, values = STORED[name]
    changed = flipped(values, bit, null=null)
    try:
        changed.validate(full=True)
    except pa.ArrowInvalid:
        return  # no such value: bytes that are no UTF-8, digits beyond the type
    column = next(column for column in SHAPE.columns if column.name == name)
    form = form_of(column.type)
    mean = meaning_of(form, calendar=name in {"day", "moment", "instant"}, verbatim=verbatim)
    expected, found = ([mean(value) for value in lake_values(column, side)] for side in (values, changed))
    other = TABLE.set_column(TABLE.column_names.index(name), name, changed)
    (report,) = compare_sides(Stored(TABLE, verbatim=verbatim), Stored(other, verbatim=verbatim))

    assert [(found.key, found.column) for found in report.differences] == [
        ((number,), name) for number, (a, b) in enumerate(zip(expected, found, strict=True), 1) if a != b
    ]
    assert report.is_whole


def test_both_passes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that are read for the sums, and those that are read again where sums differ, are counted and limited on
    each side."""
    limits: list[list[float]] = []

    def counted(rows_per_s: float) -> Watch:
        limits.append(counts := [rows_per_s])
        return counts.append

    monkeypatch.setattr(comparison, "RateLimit", counted)
    other = TABLE.set_column(0, "id", pa.array([1, 2, 4], pa.int32()))
    sides = Stored(TABLE, verbatim=True), Stored(other, verbatim=True)
    (report,) = compare_sides(*sides, rows_per_s=10_000)

    assert [str(difference) for difference in report.differences] == ["missing row (3)", "extra row (4)"]
    assert limits == [[10_000, 3]] * 4


@pytest.mark.parametrize("name", STORED)
def test_texts_of_columns(name: str) -> None:
    """Texts that are made in columns are those of the values one by one."""
    kind, values = STORED[name]
    column = TruthColumn(name, kind)
    texts = plain_column(lake_values(column, values))

    assert pa.compute.cast(lake_texts(column, values), texts.type) == texts


@pytest.mark.parametrize(
    ("types", "ours", "theirs", "equal"),
    [
        (("json", "longtext"), '{"b": [1.0], "a": 1e2}', '{"a":100,"b":[1]}', True),
        (("longtext", "json"), '{"a": 1}', '{"a":1}', True),
        (("longtext", "longtext"), '{"a": 1}', '{"a":1}', False),
        (("json", "json"), "[1, 2]", "[2, 1]", False),
        (("json", "json"), "18446744073709551615", "18446744073709551614", False),
        (("json", "json"), '"1"', "1", False),
        (("float", "float"), 0.1, 0.10000000149011612, True),
        (("double", "double"), 0.1, 0.10000000149011612, False),
        (("decimal(5,2) zerofill", "decimal(5,2)"), "001.50", "1.50", True),
        (("decimal(5,2)", "decimal(5,2)"), "1.50", "1.51", False),
        (("vector(2)", "longtext"), "[1,2.5]", "[1.0, 2.5]", True),
    ],
)
def test_meaning(types: tuple[str, str], ours: str, theirs: str, *, equal: bool) -> None:
    """Texts of one meaning are equal by the types of both columns, and no others."""
    meaning = meaning_of(agreed(*map(form_of, types)), calendar=False)

    assert (meaning(ours) == meaning(theirs)) is equal


def test_days() -> None:
    """A day that no calendar has is NULL where the other side cannot hold it, and itself elsewhere."""
    form = form_of("date")

    assert meaning_of(form, calendar=True)("2024-02-30") is None
    assert meaning_of(form, calendar=True)("2024-02-29") == "2024-02-29"
    assert meaning_of(form, calendar=False)("2024-02-30") == "2024-02-30"
