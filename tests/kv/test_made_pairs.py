"""Rows and index entries of every type and form, made up, written and read."""

import doctest
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kv.test_order import TIMES
from tests.kv.test_totality import DOCUMENTS
from tidegate.kv import (
    ColumnLayout,
    IndexEntry,
    IndexLayout,
    IndexPart,
    TableLayout,
    decode_index_entry,
    decode_row,
    decode_table_key,
    encode_index_entry,
    encode_row,
)
from tidegate.kv import rows as row_module
from tidegate.kv.index_entry import is_distinct
from tidegate.kv.keys import IntHandle
from tidegate.kv.rows import ChecksumForm, Row, cut_part, handle_of, select_stored, verify_checksum
from tidegate.model.errors import EncodeError, KvDecodeError
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.collation import sort_key
from tidegate.mysql.column_value import from_datum, old_row_datum, read_value, to_datum, write_value
from tidegate.mysql.datum import (
    DecimalDatum,
    Duration,
    JsonDatum,
    Unsigned,
    Vector,
    decode_datum,
    encode_key,
    encode_value,
)
from tidegate.mysql.encoding import DecimalForm
from tidegate.mysql.layout import WHOLE

pytestmark = pytest.mark.slow

FORM = DecimalForm(12, 3)
TEXTS = st.text(st.sampled_from("abcABCxyz 09_-éüßñ中文"), max_size=20).map(str.encode)
TYPES = {
    "int": (ColumnType(T.LONG), st.integers(-(1 << 31), (1 << 31) - 1)),
    "bigint unsigned": (ColumnType(T.LONGLONG, unsigned=True), st.integers(0, (1 << 64) - 1).map(Unsigned)),
    "year": (ColumnType(T.YEAR, unsigned=True), st.integers(1901, 2155)),
    "bit": (ColumnType(T.BIT, 64), st.integers(0, (1 << 64) - 1).map(Unsigned)),
    "enum": (ColumnType(T.ENUM), st.integers(0, 9).map(Unsigned)),
    "set": (ColumnType(T.SET), st.integers(0, (1 << 64) - 1).map(Unsigned)),
    "double": (ColumnType(T.DOUBLE), st.floats(allow_nan=False).map(lambda x: x + 0.0)),
    "decimal": (
        ColumnType(T.DECIMAL, *FORM),
        st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: DecimalDatum(Decimal(n).scaleb(-3), FORM)),
    ),
    "varchar": (ColumnType(T.VARCHAR, 20), TEXTS),
    "blob": (ColumnType(T.BLOB, charset="binary"), st.binary(max_size=300)),
    "date": (ColumnType(T.DATE), TIMES.map(lambda time: time._replace(hour=0, minute=0, second=0, microsecond=0))),
    "datetime": (ColumnType(T.DATETIME, decimal=6), TIMES),
    "time": (ColumnType(T.TIME, decimal=6), st.integers(-3020399000000000, 3020399000000000).map(Duration)),
    "json": (ColumnType(T.JSON), DOCUMENTS.map(JsonDatum)),
    "vector": (ColumnType(T.VECTOR), st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=4)),
}
KINDS = {name: (kind, values.map(Vector) if name == "vector" else values) for name, (kind, values) in TYPES.items()}
KEYED = [name for name in KINDS if name not in {"json", "vector"}]


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_values(name, data):
    """A value of each type comes back from a row and from both forms of a datum."""
    kind, values = KINDS[name]
    value = data.draw(values)

    assert read_value(kind, write_value(kind, value)) == value
    datum = to_datum(kind, value)
    assert from_datum(kind, decode_datum(encode_key([datum]))[0]) == value
    assert from_datum(kind, decode_datum(encode_value([old_row_datum(kind, value)]))[0]) == value


def table_of(names: list[str], data: st.DataObject) -> tuple[TableLayout, dict]:
    """A table with a column of each of these types, id and NULLs at random, and a row of it."""
    ids = data.draw(st.lists(st.integers(1, 400), min_size=len(names), max_size=len(names), unique=True))
    columns = tuple(
        ColumnLayout(i, KINDS[name][0], keeps_null=data.draw(st.booleans())) for i, name in zip(ids, names, strict=True)
    )
    values = {i: data.draw(st.none() | KINDS[name][1]) for i, name in zip(ids, names, strict=True)}
    return TableLayout(7, columns), values


@settings(deadline=None)
@given(names=st.lists(st.sampled_from(list(KINDS)), max_size=6), data=st.data())
def test_rows(names, data):
    """A row comes back from both versions, with every kind of checksum, and a changed byte breaks the checksum."""
    table, values = table_of(names, data)
    version = data.draw(st.sampled_from([1, 2]))
    row = Row(7, handle_of(table, values, row_id=5), values, select_stored(table, values), version)
    form = data.draw(st.none() | st.integers(0, 2).map(ChecksumForm)) if version == 2 else None

    key, value = encode_row(table, row, checksum=form)
    found = decode_row(table, key, value)

    assert found.columns == {i: values[i] for i in row.stored}
    assert encode_row(table, found) == (key, value)
    assert verify_checksum(table, found._replace(columns=values), value)
    if form is not None:
        tail = bytes([value[-1] ^ 1])
        assert not verify_checksum(table, decode_row(table, key, value[:-1] + tail)._replace(columns=values), value)


COLLATIONS = st.sampled_from(["utf8mb4_bin", "utf8mb4_general_ci", "utf8mb4_0900_bin"])


def indexed_table(names: list[str], data: st.DataObject) -> TableLayout:
    """A table with an index over these columns and a handle of any kind."""
    collation = data.draw(COLLATIONS)
    kind = data.draw(st.sampled_from(["int", "common 0", "common 1", "hidden"]))
    own = tuple(ColumnLayout(i, KINDS[name][0], collation_of(name, collation)) for i, name in enumerate(names, 1))
    keys = (
        ColumnLayout(90, ColumnType(T.LONG), primary=True),
        ColumnLayout(91, KINDS["varchar"][0], collation, primary=True),
    )
    length = data.draw(st.sampled_from([WHOLE, 3]))
    parts = tuple(IndexPart(i, length if name in {"varchar", "blob"} else WHOLE) for i, name in enumerate(names, 1))
    index = IndexLayout(3, parts, data.draw(st.booleans()), data.draw(st.booleans()))
    primary = IndexLayout(1, (IndexPart(90), IndexPart(91)), unique=True)
    return TableLayout(
        7,
        own + keys,
        (index,),
        90 if kind == "int" else None,
        primary if kind.startswith("common") else None,
        int(kind == "common 1"),
        new_collation=data.draw(st.booleans()),
    )


def collation_of(name: str, collation: str) -> str:
    return collation if name == "varchar" else "binary"


@settings(deadline=None, max_examples=60)
@given(names=st.lists(st.sampled_from(KEYED), min_size=1, max_size=3), data=st.data())
def test_index_entries(names, data):
    """An entry of any index, handle and version comes back; its columns are the row's, cut to their prefixes."""
    table = indexed_table(names, data)
    values = {i: data.draw(st.none() | KINDS[name][1]) for i, name in enumerate(names, 1)}
    values |= {90: data.draw(KINDS["int"][1]), 91: data.draw(TEXTS)}
    index = table.indexes[0]
    partition_id = data.draw(st.none() | st.integers(1, 1000)) if index.global_index else None
    entry = IndexEntry(3, values, handle_of(table, values, row_id=-5), partition_id, data.draw(st.booleans()))

    key, value = encode_index_entry(table, entry)
    found = decode_index_entry(table, key, value)

    assert encode_index_entry(table, found) == (key, value)
    assert found._replace(columns={}) == entry._replace(columns={})
    for part in index.parts:
        assert found.columns[part.column_id] == cut_part(table.by_id[part.column_id], part, values[part.column_id])
    assert is_distinct(index, values) == (index.unique and None not in [values[part.column_id] for part in index.parts])
    assert decode_table_key(key).temporary == entry.temporary


def test_prefixes_never_override_the_row():
    """A column that a handle holds in part, or as a sort key, stands in the row, and the row's value is the one."""
    text = ColumnType(T.VARCHAR, 20)
    columns = (ColumnLayout(1, text, "utf8mb4_bin"), ColumnLayout(2, ColumnType(T.BLOB, charset="binary"), "binary"))
    table = TableLayout(7, columns, (), None, IndexLayout(1, (IndexPart(1), IndexPart(2, 2)), unique=True))
    values = {1: b"end  ", 2: b"long"}

    key, value = encode_row(table, Row(7, handle_of(table, values), values, select_stored(table, values)))

    assert decode_row(table, key, value).columns == values
    assert decode_row(table, key, bytes.fromhex("800000000000")).columns == {}


def test_unsigned_handles_in_rows():
    """An unsigned primary key comes from the key of its row."""
    table = TableLayout(7, (ColumnLayout(1, ColumnType(T.LONGLONG, unsigned=True)),), int_handle=1)
    values = {1: Unsigned((1 << 64) - 1)}

    key, value = encode_row(table, Row(7, handle_of(table, values), values, select_stored(table, values)))

    assert key.hex().endswith("7fffffffffffffff")
    assert decode_row(table, key, value).columns == values


@pytest.mark.parametrize(
    ("collation", "left", "right"),
    [
        ("utf8mb4_general_ci", "Straße é \u0391\u0393", "strase E \u03b1\u03b3 "),
        ("utf8mb4_general_ci", "й", "Й"),
        ("utf8mb4_unicode_ci", "Crème  ", "creme"),
        ("utf8mb4_unicode_ci", "Straße", "STRASSE"),
        ("utf8mb4_0900_ai_ci", "Ångström", "angstrom"),
        ("utf8mb4_bin", "a ", "a"),
        ("gbk_bin", "中 ", "中"),
    ],
)
def test_what_collations_take_for_the_same(collation, left, right):
    """Texts that differ in case, marks or trailing spaces alone have one sort key where the collation says so."""
    assert sort_key(collation, left.encode()) == sort_key(collation, right.encode())


@pytest.mark.parametrize(
    ("collation", "left", "right"),
    [
        ("utf8mb4_general_ci", "й", "и"),
        ("utf8mb4_0900_ai_ci", "a ", "a"),
        ("utf8mb4_0900_bin", "a ", "a"),
        ("utf8mb4_unicode_ci", "中", "文"),
        ("utf8mb4_bin", "a", "A"),
    ],
)
def test_what_collations_tell_apart(collation, left, right):
    """And others have two."""
    assert sort_key(collation, left.encode()) != sort_key(collation, right.encode())


def test_sort_keys_that_are_not_known():
    """A collation or character without known weights is an error, never a wrong key."""
    for collation, text in (("utf8mb4_turkish_ci", "a"), ("utf8mb4_unicode_ci", "Ж"), ("gbk_bin", "\U0001f600")):
        with pytest.raises(EncodeError):
            sort_key(collation, text.encode())


def test_errors_name_column_and_key():
    """The error of a bad value says which column, what, and of which key."""
    table = TableLayout(45, (ColumnLayout(2, ColumnType(T.LONG)),))
    key = bytes.fromhex("74800000000000002d5f728000000000000001")

    with pytest.raises(KvDecodeError) as caught:
        decode_row(table, key, bytes.fromhex("80000100000002030001ffff"))

    assert "column 2: a number of 3 bytes" in str(caught.value)
    assert key.hex() in str(caught.value)
    assert caught.value.code == "CDC:ErrDecodeRowToDatum"


def test_examples():
    """The example in the header of kv/rows.py is true."""
    assert doctest.testmod(row_module).failed == 0
    assert doctest.testmod(row_module).attempted > 3


def test_hidden_numbers():
    """Rows without a primary key have a number of their own, which somebody has to give."""
    table = TableLayout(7, (ColumnLayout(1, ColumnType(T.LONG)),))

    assert handle_of(table, {1: 1}, row_id=9) == IntHandle(9)
    with pytest.raises(EncodeError):
        handle_of(table, {1: 1})


def test_a_second_checksum_speaks_for_the_schema_before():
    """While a DDL runs, a row of version 0 may match its extra checksum instead; later versions have none."""
    table = TableLayout(7, (ColumnLayout(1, ColumnType(T.LONG)),))
    before = encode_row(table, Row(7, IntHandle(1), {1: 5}, (1,)), checksum=ChecksumForm(0))[1][-4:]
    row = Row(7, IntHandle(1), {1: 6}, (1,))

    key, value = encode_row(table, row, checksum=ChecksumForm(0, int.from_bytes(before, "little")))
    found = decode_row(table, key, value)

    assert verify_checksum(table, found, value)
    assert verify_checksum(table, found._replace(columns={1: 5}), value)
    assert not verify_checksum(table, found._replace(columns={1: 4}), value)
    assert encode_row(table, found) == (key, value)


@pytest.mark.parametrize(
    ("own", "primary", "kept"), [(WHOLE, 8, b"0123456789  "), (9, 8, b"012345678"), (7, 8, b"01234567")]
)
def test_the_longer_prefix_is_restored(own, primary, kept):
    """Of a column in index and primary key the longer prefix comes back; the key itself holds the index's."""
    kind = ColumnType(T.VARCHAR, 20)
    table = TableLayout(
        7,
        (ColumnLayout(1, kind, "utf8mb4_general_ci", primary=True),),
        (IndexLayout(2, (IndexPart(1, own),)),),
        None,
        IndexLayout(1, (IndexPart(1, primary),), unique=True),
    )
    values = {1: b"0123456789  "}
    entry = IndexEntry(2, values, handle_of(table, values))

    key, value = encode_index_entry(table, entry)
    found = decode_index_entry(table, key, value)

    assert found.columns == {1: kept}
    assert encode_index_entry(table, found) == (key, value)


def test_trailing_spaces_are_counted():
    """128 spaces of a primary key's column take two bytes, being signed; of an index's own column one."""
    kind = ColumnType(T.VARCHAR, 200)
    columns = (ColumnLayout(1, kind, primary=True), ColumnLayout(2, kind))
    indexes = (IndexLayout(2, (IndexPart(2),)),)
    table = TableLayout(7, columns, indexes, None, IndexLayout(1, (IndexPart(1),), unique=True))
    values = {1: b"a" + b" " * 128, 2: b"b" + b" " * 128}

    key, value = encode_index_entry(table, IndexEntry(2, values, handle_of(table, values)))

    assert value.hex() == "007d01" + "800002000000" + "0102" + "0200" + "0300" + "8000" + "80"
    assert decode_index_entry(table, key, value).columns == values


def test_prefixes_count_characters():
    """A prefix counts characters, also of latin1; of the charsets ascii and binary it counts bytes."""
    for charset, expected in (("utf8mb4", "éé"), ("latin1", "éé"), ("ascii", "é"), ("binary", "é")):
        column = ColumnLayout(1, ColumnType(T.VARCHAR, 20, charset=charset))
        assert cut_part(column, IndexPart(1, 2), "ééé".encode()) == expected.encode()
