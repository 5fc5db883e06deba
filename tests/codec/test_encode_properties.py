"""Whatever table and values there are, a message decodes to its event; what an option drops is what it says."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.codec import BatchEncoder, DecodeOptions, EncodeOptions, WireTable, decode
from tidegate.codec.values import INT_RANGES
from tidegate.codec.wire_table import WireColumn
from tidegate.model.event import Delete, Event, Insert, RowChange, Update, Value, Values, images
from tidegate.model.mysql import ColumnFlag, MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType

UTF8 = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TS = st.integers(0, (1 << 63) - 1)
ALWAYS_UNSIGNED = {MysqlType.YEAR, MysqlType.BIT, MysqlType.ENUM, MysqlType.SET}


def integers(code: MysqlType, *, unsigned: bool) -> st.SearchStrategy[int]:
    """All values of an integer type."""
    low, high = INT_RANGES[code]
    return st.integers(0, high) if unsigned or code in ALWAYS_UNSIGNED else st.integers(low, high // 2)


def single(value: float) -> float:
    """The nearest 32-bit float."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False).map(single)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
STRINGS = (
    MysqlType.VARCHAR,
    MysqlType.STRING,
    MysqlType.TINY_BLOB,
    MysqlType.MEDIUM_BLOB,
    MysqlType.LONG_BLOB,
    MysqlType.BLOB,
)
PRINTED = (MysqlType.DECIMAL, MysqlType.DATE, MysqlType.TIME, MysqlType.DATETIME, MysqlType.TIMESTAMP, MysqlType.JSON)


@st.composite
def columns(draw: st.DrawFn, name: str, *, handle: bool) -> tuple[WireColumn, st.SearchStrategy[Value]]:
    """A column, and what it may hold."""
    code = draw(st.sampled_from((*INT_RANGES, MysqlType.FLOAT, MysqlType.DOUBLE, *STRINGS, *PRINTED)))
    unsigned = draw(st.booleans()) and code in INT_RANGES and code not in {MysqlType.ENUM, MysqlType.SET}
    binary = draw(st.booleans()) if code in STRINGS else code not in {MysqlType.ENUM, MysqlType.SET}
    flag = ColumnFlag.BINARY if binary else ColumnFlag(0)
    if unsigned or code in {MysqlType.YEAR, MysqlType.BIT}:
        flag |= ColumnFlag.UNSIGNED
    flag |= ColumnFlag.HANDLE_KEY | ColumnFlag.PRIMARY_KEY if handle else ColumnFlag.NULLABLE
    values: st.SearchStrategy[Any] = UTF8
    if code in INT_RANGES:
        values = integers(MysqlType(code), unsigned=unsigned)
    elif code in {MysqlType.FLOAT, MysqlType.DOUBLE}:
        values = FLOATS if code == MysqlType.FLOAT else DOUBLES
    elif binary and code in STRINGS:
        values = st.binary(max_size=20)
    kind = ColumnType(MysqlType(code), unsigned=unsigned, charset="binary" if binary else "utf8mb4", elems=("a",))
    return WireColumn(name, kind, int(flag)), values if handle else st.none() | values


@st.composite
def rows(draw: st.DrawFn) -> tuple[RowChange, WireTable]:
    """A change of a row of a table with a handle."""
    names = draw(st.lists(UTF8.filter(bool), min_size=1, max_size=5, unique_by=lowered))
    drawn = [draw(columns(name, handle=index == 0)) for index, name in enumerate(names)]
    table = WireTable(tuple(column for column, _ in drawn), (names[0],))
    image = st.tuples(*[values for _, values in drawn])
    shared: dict[str, Any] = {
        "schema": draw(UTF8.filter(bool)),
        "table": draw(UTF8.filter(bool)),
        "fields": table.fields,
        "commit_ts": draw(TS),
        "row_id": draw(st.none() | st.integers(-(1 << 63), (1 << 63) - 1)),
        "partition_id": draw(st.none() | st.integers(1, (1 << 63) - 1)),
    }
    match draw(st.sampled_from(("insert", "update", "delete"))):
        case "insert":
            return Insert(after=draw(image), **shared), table
        case "update":
            return Update(before=draw(image), after=draw(image), **shared), table
        case _:
            return Delete(before=draw(image), **shared), table


OPTIONS = st.fixed_dictionaries(
    {
        "dialect": st.sampled_from(("classic", "newarch")),
        "only_output_updated_columns": st.booleans(),
        "output_old_value": st.booleans(),
        "delete_only_output_handle_key_columns": st.booleans(),
        "content_compatible": st.booleans(),
        "enable_tidb_extension": st.booleans(),
        "compression": st.sampled_from(("none", "snappy", "lz4")),
    }
)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(drawn=rows(), options=OPTIONS)
def test_open_protocol(drawn: tuple[RowChange, WireTable], options: dict[str, Any]) -> None:
    """Open Protocol gives back every value, flag and id that its options leave."""
    check_open_protocol(drawn, options)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(drawn=rows(), options=OPTIONS)
def test_canal_json(drawn: tuple[RowChange, WireTable], options: dict[str, Any]) -> None:
    """Canal-JSON gives back every value that its options leave, and what types and signs columns have."""
    check_canal_json(drawn, options)


@pytest.mark.soak
@settings(deadline=None, max_examples=100_000)
@given(drawn=rows(), options=OPTIONS)
def test_both_at_length(drawn: tuple[RowChange, WireTable], options: dict[str, Any]) -> None:
    """A hundred thousand events survive both protocols."""
    check_open_protocol(drawn, options)
    check_canal_json(drawn, options)


def check_open_protocol(drawn: tuple[RowChange, WireTable], options: dict[str, Any]) -> None:
    row, table = drawn
    found = there_and_back(row, table, EncodeOptions(protocol="open-protocol", **options))
    before, after = kept(row, table, options)
    classic = options["dialect"] == "classic"
    if isinstance(row, Update):
        hidden = options["only_output_updated_columns"] and classic and before == after
        if hidden or not options["output_old_value"]:
            before = None
    assert named(found) == (before, after)
    assert found.commit_ts == row.commit_ts
    assert found.partition_id == row.partition_id
    assert (found.row_id or 0) == (row.row_id or 0 if classic else 0)
    flags = {column.name: column.flag for column in table.columns}
    assert all(field.flag == flags[field.name] and field.handle == (field.flag & 2 > 0) for field in found.fields)


def check_canal_json(drawn: tuple[RowChange, WireTable], options: dict[str, Any]) -> None:
    row, table = drawn
    found = there_and_back(row, table, EncodeOptions(protocol="canal-json", **options))
    assert named(found) == kept(row, table, options)
    assert found.commit_ts == (row.commit_ts if options["enable_tidb_extension"] else None)
    assert found.es_ms == (row.commit_ts or 0) >> 18
    assert found.pk_names == table.pk_names
    kinds = {column.name: column.type for column in table.columns}
    for field in found.fields:
        kind = kinds[field.name]
        text_codes = {MysqlType.VARCHAR, MysqlType.STRING}
        assert field.type == kind.code or {field.type, kind.code} <= text_codes
        assert field.unsigned == (kind.unsigned and kind.code not in {MysqlType.YEAR, MysqlType.BIT})


def there_and_back(row: RowChange, table: WireTable, options: EncodeOptions) -> RowChange:
    """The row that the messages of `row` decode to."""
    encoder = BatchEncoder(options)
    messages = [*encoder.append(row, table), *encoder.flush()]
    reading = DecodeOptions(protocol=options.protocol, compression=options.compression)
    found: list[Event] = [event for message in messages for event in decode(message.key, message.value, reading)]
    (only,) = found
    assert isinstance(only, Insert | Update | Delete)
    assert (only.schema, only.table) == (row.schema, row.table)
    return only


Image = dict[str, Value] | None


def kept(row: RowChange, table: WireTable, options: dict[str, Any]) -> tuple[Image, Image]:
    """Both images by name, with the columns that the options leave."""
    cut = isinstance(row, Delete) and options["delete_only_output_handle_key_columns"]
    before, after = images(row)
    return by_name(table, before, cut=cut), by_name(table, after, cut=cut)


def by_name(table: WireTable, values: Values | None, *, cut: bool) -> Image:
    if values is None:
        return None
    pairs = zip(table.columns, values, strict=True)
    return {column.name: value for column, value in pairs if column.handle or not cut}


def named(row: RowChange) -> tuple[Image, Image]:
    """Both images of a decoded row by name."""
    before, after = images(row)
    names = [field.name for field in row.fields]
    pair = (None if values is None else dict(zip(names, values, strict=True)) for values in (before, after))
    return next(pair), next(pair)
