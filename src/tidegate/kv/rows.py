"""Rows of TiDB: key and value of a record with the typed columns in them, as bytes and back, and checksums of rows.

A row's columns are those of its value (version 1 or 2), and those of the primary key that only the handle in the key
holds.  `select_stored` tells which columns a value holds: those that the handle does not hold completely, that are not
virtual, that somebody writes, and no NULL where a missing value means NULL.  `encode_row` writes all of `stored`.
Columns that the layout does not know stay as bytes in `unknown`.

    version 2   80 | flags | values u16 | NULLs u16 | ids of values | ids of NULLs | ends of values | values | tail
    flags       1 large: ids and ends are u32; otherwise ids are u8 and ends u16        2 a checksum follows
    large       when an id is above 255 or the values take more than 65,535 bytes
    ids         ascending, values and NULLs apart;  ends count from the first value;  little endian throughout
    tail        header | crc32 u32 [| crc32 u32]           header: version in bits 0..2; 8 = a second checksum follows

    {1: 01, 2: "abc", 3: NULL}    80 00 0200 0100 | 01 02 | 03 | 0100 0400 | 01 616263

    version 1   column ids and values in turn, each a datum in value form; times as their packed number, durations as
                nanoseconds, ENUM, SET and BIT as unsigned numbers; no column at all is 00.  It begins with 08 or 00

    {1: 1, 2: "abc", 3: NULL}     08 02 | 08 02    08 04 | 02 06 61 62 63    08 06 | 00

    checksum    CRC-32 of IEEE 802.3, which `[integrity]` compares between TiDB and a changefeed
    version 0   the public columns in order of id; NULL adds nothing.  Integers, YEAR, ENUM, SET, BIT: u64; FLOAT,
                DOUBLE: bits of the double, 0 for infinities and NaN; strings: u32 length and the bytes; DECIMAL, times,
                JSON: u32 length and the text that TiDB prints; VECTOR: as in a row.  Little endian
    version 1   the row's bytes up to and with the tail's header byte, then the raw key
    version 2   the same bytes, then the encoded handle                                    (what TiDB writes now)

    (1, "abc", NULL)    01 00 00 00 00 00 00 00 | 03 00 00 00 61 62 63        version 0: crc32 95a55a42

    >>> from tidegate.mysql.layout import ColumnLayout, TableLayout
    >>> from tidegate.model.mysql import MysqlType
    >>> table = TableLayout(45, (ColumnLayout(1, ColumnType(MysqlType.LONG)),), int_handle=1)
    >>> key, value = "74800000000000002d5f728000000000000001", "800000000000"
    >>> decode_row(table, bytes.fromhex(key), bytes.fromhex(value)).columns
    {1: 1}

Source: TiDB pkg/util/rowcodec (row.go, common.go), pkg/tablecodec, pkg/table/tables (CanSkip);
docs/design/2018-07-19-row-format; TiCDC's mounter.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Any, Final, NamedTuple

from tidegate.kv.keys import (
    CommonHandle,
    Handle,
    IntHandle,
    RecordKey,
    common_handle,
    decode_table_key,
    record_key,
    unsigned_handle,
)
from tidegate.model.errors import DecodeError, EncodeError, KvDecodeError, redacted_value
from tidegate.model.mysql import STRINGS
from tidegate.model.table import ColumnType
from tidegate.mysql.collation import sort_key
from tidegate.mysql.column_value import (
    KvValue,
    column_text,
    from_datum,
    old_row_datum,
    read_value,
    to_datum,
    write_value,
)
from tidegate.mysql.datum import (
    Datum,
    DecimalDatum,
    Duration,
    JsonDatum,
    Unsigned,
    Vector,
    decode_datum,
    encode_value,
    encode_vector,
)
from tidegate.mysql.encoding import at_end, take, take_byte
from tidegate.mysql.layout import WHOLE, ColumnLayout, IndexPart, TableLayout
from tidegate.mysql.packed_time import Time

_UINT: Final = struct.Struct("<Q")
_DOUBLE: Final = struct.Struct("<d")


def column_checksum(columns: Iterable[tuple[ColumnType, KvValue]]) -> int:
    """Return the checksum of version 0 of columns in the order of their ids."""
    checksum = 0
    for column_type, value in columns:
        if value is None:
            continue
        write = _FORMS.get(type(value))
        if write is None:
            raise EncodeError(f"no checksum covers a {type(value).__name__}")
        checksum = zlib.crc32(write(column_type, value), checksum)
    return checksum


def key_checksum(body: bytes, key_or_handle: bytes) -> int:
    """Return the checksum of version 1 (the raw key) and 2 (the encoded handle); `body` ends with the tail's header
    byte."""
    return zlib.crc32(key_or_handle, zlib.crc32(body))


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


def _text(column_type: ColumnType, value: KvValue) -> bytes:
    return _sized(column_text(column_type, value).encode("utf-8", "surrogateescape"))


_FORMS: Final[Mapping[type, Callable[..., bytes]]] = {
    int: lambda _type, value: _UINT.pack(value % (1 << 64)),
    Unsigned: lambda _type, value: _UINT.pack(value),
    float: lambda _type, value: _DOUBLE.pack(value if isfinite(value) else 0.0),
    bytes: lambda _type, value: _sized(value),
    Vector: lambda _type, value: encode_vector(value),
    Time: _text,
    Duration: _text,
    DecimalDatum: _text,
    Decimal: _text,
    JsonDatum: _text,
}


CODEC: Final = "row v2"
VERSION_BYTE: Final = 0x80
LARGE, CHECKSUM = 1, 2
HEAD: Final = struct.Struct("<BBHH")
"""Version, flags, and the numbers of values and NULLs."""
_MAX_SMALL_ID: Final = 0xFF
_MAX_SMALL_DATA: Final = 0xFFFF
_MAX_ID: Final = 0xFFFF_FFFF
_MAX_COLUMNS: Final = 0xFFFF
_EXTRA: Final = 8
_VERSION: Final = 7
_CRC: Final = struct.Struct("<I")


class RowChecksums(NamedTuple):
    """The checksums of a row; `extra` is that of a neighbouring schema version while a DDL runs."""

    version: int
    checksum: int
    extra: int | None = None


class RawRow(NamedTuple):
    """The bytes of each column by id; None for NULL."""

    values: dict[int, bytes | None]
    tail: RowChecksums | None = None


def encode_raw_row(values: Mapping[int, bytes | None], *, checksum: bool = False) -> bytes:
    """Return the row without its tail; `checksum` announces that one will follow."""
    present = sorted((column_id, value) for column_id, value in values.items() if value is not None)
    nulls = sorted(column_id for column_id, value in values.items() if value is None)
    ids = [column_id for column_id, _ in present] + nulls
    data = b"".join(value for _, value in present)
    if len(ids) > _MAX_COLUMNS or len(data) > _MAX_ID or not all(0 <= column_id <= _MAX_ID for column_id in ids):
        raise EncodeError("a row with too many columns, too many bytes or a column id beyond 32 bits")
    large = len(data) > _MAX_SMALL_DATA or any(column_id > _MAX_SMALL_ID for column_id in ids)
    ends, end = [], 0
    for _, value in present:
        end += len(value)
        ends.append(end)
    id_form, end_form = ("I", "I") if large else ("B", "H")
    flags = LARGE * large | CHECKSUM * checksum
    head = HEAD.pack(VERSION_BYTE, flags, len(present), len(nulls))
    return head + struct.pack(f"<{len(ids)}{id_form}", *ids) + struct.pack(f"<{len(ends)}{end_form}", *ends) + data


def decode_raw_row(buf: bytes) -> RawRow:
    """Return the columns and the checksums of a row of version 2; DecodeError for any other bytes."""
    values, end = _columns(buf)
    if not buf[1] & CHECKSUM:
        at_end(buf, end, CODEC)
        return RawRow(values)
    header = take_byte(buf, end, CODEC)
    (first,) = _CRC.unpack(take(buf, end + 1, 4, CODEC))
    end += 5
    extra = None
    if header & _EXTRA:
        (extra,) = _CRC.unpack(take(buf, end, 4, CODEC))
        end += 4
    at_end(buf, end, CODEC)
    if header & ~(_EXTRA | _VERSION):
        raise DecodeError(f"checksum header {header:#04x} has bits that mean nothing", CODEC, end)
    return RawRow(values, RowChecksums(header & _VERSION, first, extra))


def body_of(buf: bytes) -> bytes:
    """Return a row with a tail as far as the checksums of version 1 and 2 cover it: up to and with the tail's header
    byte."""
    _, end = _columns(buf)
    return take(buf, 0, end + 1, CODEC)


def render_tail(tail: RowChecksums) -> bytes:
    """Return the bytes of a tail: header and checksums."""
    if not 0 <= tail.version <= _VERSION or not all(0 <= crc <= _MAX_ID for crc in (tail.checksum, tail.extra or 0)):
        raise EncodeError(f"{tuple(tail)} is no version of a checksum and numbers of 32 bits")
    header = tail.version | (0 if tail.extra is None else _EXTRA)
    return bytes([header]) + _CRC.pack(tail.checksum) + (b"" if tail.extra is None else _CRC.pack(tail.extra))


class _Shape(NamedTuple):
    """The checked head of a row; rows of one statement share it."""

    ids: tuple[int, ...]
    nulls: tuple[int, ...]
    ends: struct.Struct


def _columns(buf: bytes) -> tuple[dict[int, bytes | None], int]:
    data, shape = _head(buf)
    offset = len(data)
    ends = shape.ends.unpack(take(buf, offset, shape.ends.size, CODEC))
    start = offset + shape.ends.size
    values: dict[int, bytes | None] = {}
    before = 0
    for column_id, end in zip(shape.ids, ends, strict=True):
        if end < before:
            raise DecodeError("values that end before they begin", CODEC, offset)
        values[column_id] = buf[start + before : start + end]
        before = end
    take(buf, start, before, CODEC)
    if shape.nulls:
        values.update(dict.fromkeys(shape.nulls))
    return values, start + before


def _head(buf: bytes) -> tuple[bytes, _Shape]:
    _, flags, count, null_count = HEAD.unpack(take(buf, 0, HEAD.size, CODEC))
    data = take(buf, 0, HEAD.size + (count + null_count) * (4 if flags & LARGE else 1), CODEC)
    return data, _shape(data)


@lru_cache(maxsize=4096)
def _shape(head: bytes) -> _Shape:
    """The ids in the head of a row, its ends not included; DecodeError for ids that do not ascend."""
    version, flags, count, null_count = HEAD.unpack_from(head)
    if version != VERSION_BYTE or flags & ~(LARGE | CHECKSUM):
        raise DecodeError(f"version {version:#04x} with flags {flags:#04x}", CODEC, 0)
    id_form, end_form = ("I", "I") if flags & LARGE else ("B", "H")
    column_ids = struct.unpack_from(f"<{count + null_count}{id_form}", head, HEAD.size)
    ids, nulls = column_ids[:count], column_ids[count:]
    for name, numbers in (("ids", ids), ("ids of NULLs", nulls)):
        if list(numbers) != sorted(set(numbers)):
            raise DecodeError(f"{name} that do not ascend", CODEC, HEAD.size)
    if not set(ids).isdisjoint(nulls):
        raise DecodeError("a column that is NULL and has a value", CODEC, HEAD.size)
    return _Shape(ids, nulls, struct.Struct(f"<{count}{end_form}"))


V1_CODEC: Final = "row v1"
_EMPTY: Final = b"\x00"


def encode_old_row(values: Mapping[int, Datum]) -> bytes:
    """Return the bytes of a row of version 1, its columns in the order of `values`."""
    return b"".join(encode_value((column_id, value)) for column_id, value in values.items()) or _EMPTY


def decode_old_row(buf: bytes) -> dict[int, Datum]:
    """Return the columns of a row of version 1 by id, in their order."""
    if buf == _EMPTY:
        return {}
    columns: dict[int, Datum] = {}
    offset = 0
    while offset < len(buf):
        start = offset
        column_id, offset = decode_datum(buf, offset)
        if type(column_id) is not int or column_id in columns:
            raise DecodeError(f"{column_id!r} where a new column id stands", V1_CODEC, start)
        columns[column_id], offset = decode_datum(buf, offset)
    return columns


_ROW_CODEC: Final = "row"
Columns = dict[int, KvValue]
Read = Callable[[ColumnType, Any], KvValue]
_VERSION_2: Final = bytes([VERSION_BYTE])
_COUNTED_IN_BYTES: Final = frozenset({"binary", "ascii"})


class ChecksumForm(NamedTuple):
    """The checksum to write for a row; `extra` is that of another schema version (version 0 alone)."""

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
    """Return the row of a key and value; KvDecodeError with key and offset for any other bytes."""
    decoded = decode_table_key(key)
    if not isinstance(decoded, RecordKey):
        raise KvDecodeError("the key of an index entry where a row's stands", _ROW_CODEC, 0, key)
    return decode_row_value(table, decoded, value)


def decode_row_value(table: TableLayout, key: RecordKey, value: bytes) -> Row:
    """Return the row of a value and a decoded key; KvDecodeError with key and offset for any other bytes."""
    data: Any
    read: Read
    values: Mapping[int, Any]
    try:
        columns = handle_columns(table, key.handle)
        if value[:1] == _VERSION_2:
            raw = decode_raw_row(value)
            version, tail, read, values = 2, raw.tail, read_value, raw.values
        else:
            version, tail, read, values = 1, None, from_datum, decode_old_row(value)
        unknown, stored, by_id = {}, [], table.by_id
        for column_id, data in values.items():
            column = by_id.get(column_id)
            if column is None:
                unknown[column_id] = data
                continue
            try:
                columns[column_id] = None if data is None else read(column.type, data)
            except DecodeError as error:
                raise DecodeError(f"column {column_id}: {error.what}", error.codec, error.offset) from error
            stored.append(column_id)
    except DecodeError as error:
        raw_key = record_key(key.table_id, key.handle)
        raise KvDecodeError(error.what, error.codec, error.offset, raw_key) from error
    return Row(key.table_id, key.handle, columns, tuple(stored), version, tail, unknown)


def encode_row(table: TableLayout, row: Row, *, checksum: ChecksumForm | None = None) -> tuple[bytes, bytes]:
    """Return key and value of `row`: its `stored` columns, in its version, with `checksum` or the one
    that the row had."""
    key = record_key(row.table_id, row.handle)
    if row.version == 1:
        datums = {i: old_row_datum(_column(table, i).type, row.columns[i]) for i in row.stored}
        return key, encode_old_row({**datums, **row.unknown})
    raw: dict[int, bytes | None] = dict(row.unknown)
    for column_id in row.stored:
        value = row.columns[column_id]
        raw[column_id] = None if value is None else write_value(_column(table, column_id).type, value)
    form = checksum or (row.tail and ChecksumForm(row.tail.version, row.tail.extra))
    if form is None:
        return key, encode_raw_row(raw)
    body = encode_raw_row(raw, checksum=True)
    return key, body + render_tail(_tail(table, row, body, key, form))


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
    """Return the ids of the `columns` that are stored in a row's value."""
    in_handle = table.whole_handle_columns
    kept = (column for column in table.columns if column.id in columns and column.id not in in_handle)
    return tuple(
        column.id
        for column in kept
        if column.writable and not column.virtual and (columns[column.id] is not None or column.keeps_null)
    )


def handle_of(table: TableLayout, columns: Mapping[int, KvValue], row_id: int | None = None) -> Handle:
    """Return the handle of a row: its primary key, or `row_id` where the table has a hidden _tidb_rowid."""
    if table.int_handle is not None:
        number = columns[table.int_handle]
        if not isinstance(number, int):
            raise EncodeError(f"table {table.id}: the primary key is {redacted_value(number)}")
        return unsigned_handle(number)
    if table.common_handle is not None:
        return common_handle(part_datum(table, part, columns[part.column_id]) for part in table.common_handle.parts)
    if row_id is None:
        raise EncodeError(f"table {table.id}: its rows have hidden row ids, and there is none")
    return IntHandle(row_id)


def part_datum(table: TableLayout, part: IndexPart, value: KvValue) -> Datum:
    """Return a column's datum in a key: cut to the part's length, strings as their sort key."""
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
    """Return the columns that a handle holds completely; none for a hidden _tidb_rowid."""
    if table.int_handle is not None:
        if not isinstance(handle, IntHandle):
            raise DecodeError("a common handle in a table whose handle is a number", _ROW_CODEC, 0)
        unsigned = table.by_id[table.int_handle].type.unsigned
        return {table.int_handle: Unsigned(handle.unsigned) if unsigned else handle.value}
    if table.common_handle is None:
        return {}
    if not isinstance(handle, CommonHandle):
        raise DecodeError("a number in a table whose handle is its primary key", _ROW_CODEC, 0)
    ids = [part.column_id for part in table.common_handle.parts]
    datums = dict(zip(ids, handle.datums(len(ids)), strict=True))
    whole = [column_id for column_id in ids if column_id in table.whole_handle_columns]
    return {column_id: from_datum(table.by_id[column_id].type, datums[column_id]) for column_id in whole}
