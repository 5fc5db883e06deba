"""Rows: key and value of a record, and the typed columns in them.

    key    t | table | _r | handle           value   version 1 or 2
                            |                        |
                            v                        v
    columns   the primary key's, where the value    what the value holds, by the layout's types
              does not hold them

`select_stored` tells which columns a value holds: those that the handle does not hold completely, that are not virtual,
that somebody writes, and no NULL where a missing value means NULL.  `encode_row` writes what it is given.  Columns that
the layout does not know stay as bytes in `unknown`.

    >>> from tidegate.mysql.layout import ColumnLayout, TableLayout
    >>> from tidegate.model.mysql import MysqlType
    >>> from tidegate.model.table import ColumnType
    >>> table = TableLayout(45, (ColumnLayout(1, ColumnType(MysqlType.LONG)),), int_handle=1)
    >>> key, value = "74800000000000002d5f728000000000000001", "800000000000"
    >>> decode_row(table, bytes.fromhex(key), bytes.fromhex(value)).columns
    {1: 1}

Rows of version 1: column ids and values in turn, each a datum in value form.

    {1: 1, 2: "abc", 3: NULL}     08 02 | 08 02    08 04 | 02 06 61 62 63    08 06 | 00
                                  id 1    1        id 2    "abc"             id 3    NULL

    no column at all              00

Times stand as their packed number, durations as nanoseconds, ENUM, SET and BIT as unsigned numbers.  The first byte is
08 or 00 and never 80, which tells this version from the second.  Columns stand in the order in which they were given.

Source: TiDB pkg/tablecodec, pkg/table/tables (CanSkip); TiCDC's mounter.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tidegate.kv.checksum import column_checksum, key_checksum
from tidegate.kv.handle import CommonHandle, Handle, IntHandle, common_handle, unsigned_handle
from tidegate.kv.row.v2 import VERSION_BYTE, RowChecksums, body_of, decode_raw_row, encode_raw_row, render_tail
from tidegate.kv.table_key import RecordKey, decode_table_key, record_key
from tidegate.model.errors import DecodeError, EncodeError, KvDecodeError
from tidegate.model.mysql import STRINGS
from tidegate.model.table import ColumnType
from tidegate.mysql.collation import sort_key
from tidegate.mysql.column_value import KvValue, from_datum, old_row_datum, read_value, to_datum, write_value
from tidegate.mysql.datum import Datum, Unsigned, decode_datum, encode_value
from tidegate.mysql.layout import WHOLE, ColumnLayout, IndexPart, TableLayout

V1_CODEC: Final = "row v1"
_EMPTY: Final = b"\x00"


def encode_old_row(values: Mapping[int, Datum]) -> bytes:
    """Return the row of these columns, in their order."""
    return b"".join(encode_value((column_id, value)) for column_id, value in values.items()) or _EMPTY


def decode_old_row(buf: bytes) -> dict[int, Datum]:
    """Return the columns of a row by id, in their order."""
    if buf == _EMPTY:
        return {}
    found: dict[int, Datum] = {}
    at = 0
    while at < len(buf):
        start = at
        column_id, at = decode_datum(buf, at)
        if type(column_id) is not int or column_id in found:
            raise DecodeError(f"{column_id!r} where a new column id stands", V1_CODEC, start)
        found[column_id], at = decode_datum(buf, at)
    return found


CODEC: Final = "row"
Columns = dict[int, KvValue]
Read = Callable[[ColumnType, Any], KvValue]
_VERSION_2: Final = bytes([VERSION_BYTE])
_COUNTED_IN_BYTES: Final = frozenset({"binary", "ascii"})


class ChecksumForm(NamedTuple):
    """Which checksum a row gets; `extra` is that of another schema version (version 0 alone)."""

    version: int = 2
    extra: int | None = None


class Row(NamedTuple):
    """A row: `columns` by id, those of the handle alone first; `stored` are the ids of those in the value."""

    table_id: int
    handle: Handle
    columns: Columns
    stored: tuple[int, ...] = ()
    version: int = 2
    tail: RowChecksums | None = None
    unknown: Mapping[int, Any] = {}


def decode_row(table: TableLayout, key: bytes, value: bytes) -> Row:
    """Return the row of a record; KvDecodeError with key and place for anything else."""
    found = decode_table_key(key)
    if not isinstance(found, RecordKey):
        raise KvDecodeError("the key of an index entry where a row's stands", CODEC, 0, key)
    return decode_row_value(table, found, value)


def decode_row_value(table: TableLayout, key: RecordKey, value: bytes) -> Row:
    """Return the row in a value whose key is decoded already; KvDecodeError as above."""
    decode = _decode_v2 if value[:1] == _VERSION_2 else _decode_v1
    try:
        return decode(table, key, value, handle_columns(table, key.handle))
    except DecodeError as error:
        raw_key = record_key(key.table_id, key.handle)
        raise KvDecodeError(error.what, error.codec, error.offset, raw_key) from error


def _decode_v2(table: TableLayout, key: RecordKey, value: bytes, columns: Columns) -> Row:
    raw = decode_raw_row(value)
    unknown, stored, by_id = {}, [], table.by_id
    for column_id, data in raw.values.items():
        column = by_id.get(column_id)
        if column is None:
            unknown[column_id] = data
        else:
            columns[column_id] = None if data is None else _named(column_id, read_value, column, data)
            stored.append(column_id)
    return Row(key.table_id, key.handle, columns, tuple(stored), 2, raw.tail, unknown)


def _decode_v1(table: TableLayout, key: RecordKey, value: bytes, columns: Columns) -> Row:
    unknown, stored = {}, []
    for column_id, datum in decode_old_row(value).items():
        column = table.by_id.get(column_id)
        if column is None:
            unknown[column_id] = datum
        else:
            columns[column_id] = _named(column_id, from_datum, column, datum)
            stored.append(column_id)
    return Row(key.table_id, key.handle, columns, tuple(stored), 1, None, unknown)


def _named(column_id: int, read: Read, column: ColumnLayout, data: bytes | Datum) -> KvValue:
    try:
        return read(column.type, data)
    except DecodeError as error:
        raise DecodeError(f"column {column_id}: {error.what}", error.codec, error.offset) from error


def encode_row(table: TableLayout, row: Row, *, checksum: ChecksumForm | None = None) -> tuple[bytes, bytes]:
    """Return key and value of `row`: its `stored` columns, in its version, with a checksum of version 2 rows if
    wanted."""
    key = record_key(row.table_id, row.handle)
    if row.version == 1:
        datums = {i: old_row_datum(_column(table, i).type, row.columns[i]) for i in row.stored}
        return key, encode_old_row({**datums, **row.unknown})
    raw: dict[int, bytes | None] = dict(row.unknown)
    for column_id in row.stored:
        value = row.columns[column_id]
        raw[column_id] = None if value is None else write_value(_column(table, column_id).type, value)
    wanted = checksum or (row.tail and ChecksumForm(row.tail.version, row.tail.extra))
    if wanted is None:
        return key, encode_raw_row(raw)
    body = encode_raw_row(raw, checksum=True)
    return key, body + render_tail(_tail(table, row, body, key, wanted))


def _tail(table: TableLayout, row: Row, body: bytes, key: bytes, form: ChecksumForm) -> RowChecksums:
    header = render_tail(RowChecksums(form.version, 0, form.extra))[:1]
    return RowChecksums(form.version, _checksum(table, row, form.version, body + header, key), form.extra)


def _checksum(table: TableLayout, row: Row, version: int, body: bytes, key: bytes) -> int:
    if version == 0:
        return column_checksum((table.by_id[i].type, row.columns[i]) for i in sorted(row.columns))
    if version > 2:
        raise EncodeError(f"checksum version {version} is not known")
    return key_checksum(body, key if version == 1 else row.handle.encoded)


def verify_checksum(table: TableLayout, row: Row, value: bytes) -> bool:
    """Return whether the checksum in `value` is that of `row`; True without one. Version 0 may match the second one
    instead: it is that of the schema before or after the one that `table` shows. Unknown versions are not judged."""
    if row.tail is None or row.tail.version > 2:
        return True
    body = body_of(value) if row.tail.version else b""
    own = _checksum(table, row, row.tail.version, body, record_key(row.table_id, row.handle))
    return own == row.tail.checksum or (row.tail.version == 0 and own == row.tail.extra)


def _column(table: TableLayout, column_id: int) -> ColumnLayout:
    column = table.by_id.get(column_id)
    if column is None:
        raise EncodeError(f"table {table.id} has no column {column_id}")
    return column


def select_stored(table: TableLayout, columns: Mapping[int, KvValue]) -> tuple[int, ...]:
    """Return the ids of those `columns` that a value holds."""
    in_handle = table.whole_handle_columns
    kept = (column for column in table.columns if column.id in columns and column.id not in in_handle)
    return tuple(
        column.id
        for column in kept
        if column.writable and not column.virtual and (columns[column.id] is not None or column.keeps_null)
    )


def handle_of(table: TableLayout, columns: Mapping[int, KvValue], row_id: int | None = None) -> Handle:
    """Return the handle of a row: of its primary key, or `row_id` where rows have hidden numbers."""
    if table.int_handle is not None:
        number = columns[table.int_handle]
        if not isinstance(number, int):
            raise EncodeError(f"table {table.id}: the primary key is {number!r}")
        return unsigned_handle(number)
    if table.common_handle is not None:
        return common_handle(part_datum(table, part, columns[part.column_id]) for part in table.common_handle.parts)
    if row_id is None:
        raise EncodeError(f"table {table.id}: its rows have hidden numbers, and none was given")
    return IntHandle(row_id)


def part_datum(table: TableLayout, part: IndexPart, value: KvValue) -> Datum:
    """Return a column as it stands in a key: cut to the part's length, strings as their sort key."""
    column = _column(table, part.column_id)
    datum = to_datum(column.type, cut_part(column, part, value))
    if column.type.code in STRINGS and isinstance(datum, bytes) and table.new_collation:
        return sort_key(column.collation, datum)
    return datum


def cut_part(column: ColumnLayout, part: IndexPart, value: KvValue) -> KvValue:
    """Return the prefix of a string that a part takes: characters, of the charsets binary and ascii bytes."""
    if part.length == WHOLE or not isinstance(value, bytes):
        return value
    if column.type.charset in _COUNTED_IN_BYTES:
        return value[: part.length]
    return value.decode("utf-8", "surrogateescape")[: part.length].encode("utf-8", "surrogateescape")


def handle_columns(table: TableLayout, handle: Handle) -> Columns:
    """Return the columns that a handle holds completely; none of a hidden number."""
    if table.int_handle is not None:
        if not isinstance(handle, IntHandle):
            raise DecodeError("a common handle in a table whose handle is a number", CODEC, 0)
        unsigned = table.by_id[table.int_handle].type.unsigned
        return {table.int_handle: Unsigned(handle.unsigned) if unsigned else handle.value}
    if table.common_handle is None:
        return {}
    if not isinstance(handle, CommonHandle):
        raise DecodeError("a number in a table whose handle is its primary key", CODEC, 0)
    ids = [part.column_id for part in table.common_handle.parts]
    datums = dict(zip(ids, handle.datums(len(ids)), strict=True))
    whole = [column_id for column_id in ids if column_id in table.whole_handle_columns]
    return {column_id: from_datum(table.by_id[column_id].type, datums[column_id]) for column_id in whole}
