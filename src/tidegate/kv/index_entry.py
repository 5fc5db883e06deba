"""Index entries of TiDB: key and value with the typed columns in them, as bytes and back.

    key     t | table | _i | index | columns as datums in key form | handle, unless the entry is unique

An entry is unique where its index is and no column is NULL: the key then identifies the row, and the value holds its
handle.  Otherwise the handle ends the key: 03 and the number, or the common handle.

    value of   old        30                                              not unique; the handle is in the key
                          handle, 8 bytes, sign bit not flipped           unique
               version 0  tail | [7f len handle] | [7e partition] | [row v2] | zeros up to 10 bytes | [handle, 8 bytes]
               version 1  00 | 7d 01 | [7f len handle] | [7e partition] | [row v2]

    08 | 80 0001 .. 6142 | 00 00 00 00 00 00 00 01       version 0, unique, the string 'aB' restored, handle 1
    00 | 7d 01 | 7f 0013 01 61 .. 05                     version 1, unique, a common handle of 19 bytes

    tail        number of bytes at the end: padding and an int handle
    7f          a common handle of a unique entry, length u16 big endian
    7e          the partition's id as a sortable int, in global indexes
    row v2      the restored data: originals of strings whose sort key loses something.  Version 0: all columns of the
                index; version 1: those whose sort key loses something and that are no part of the primary key, then
                the primary key's own
    utf8mb4_bin ..   version 1 stores the number of trailing spaces, since the sort key has the rest: unsigned for an
                     index's own columns, signed for the primary key's

A clustered table of version 1 has values of version 1.  Other values are of version 0 where the old form cannot hold
them (a common handle of a unique entry, a partition, restored data), else old.  A value of at most 9 bytes is old,
except 00 7d 01 alone.  The `untouched` flag (31 at the end) lives in transactions alone and never in TiKV.

Source: TiDB pkg/tablecodec (GenIndexKey, genIndexValueVersion0, genIndexValueVersion1, DecodeIndexKV).
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tidegate.kv.keys import CommonHandle, Handle, IndexKey, IntHandle, decode_table_key, index_prefix
from tidegate.kv.rows import VERSION_BYTE, cut_part, decode_raw_row, encode_raw_row, handle_columns, part_datum
from tidegate.model.errors import DecodeError, EncodeError, KvDecodeError
from tidegate.mysql.column_value import KvValue, from_datum, read_uint, read_value, write_int, write_uint, write_value
from tidegate.mysql.datum import Datum, decode_datum, encode_key
from tidegate.mysql.encoding import decode_int, encode_int, take, take_byte
from tidegate.mysql.layout import TRIMMED, WHOLE, IndexLayout, IndexPart, TableLayout

VALUE_CODEC: Final = "index value"
NON_UNIQUE: Final = b"0"
_VERSION: Final = 0x7D
_PARTITION: Final = 0x7E
_COMMON_HANDLE: Final = 0x7F
_EMPTY_V1: Final = bytes([0, _VERSION, 1])
MAX_OLD_SIZE: Final = 9
_NEW_SIZE: Final = 10
_HANDLE_SIZE: Final = 8
_MAX_HANDLE: Final = 0xFFFF


class IndexValue(NamedTuple):
    """The parts of an index value; `version` is None for the old form, `restored` None without restored data."""

    version: int | None = None
    handle: Handle | None = None
    partition_id: int | None = None
    restored: Mapping[int, bytes | None] | None = None


def encode_index_value(value: IndexValue) -> bytes:
    """Return the bytes of an index value; EncodeError where the version cannot hold its parts."""
    if value.version is None:
        if value.partition_id is not None or value.restored is not None or isinstance(value.handle, CommonHandle):
            raise EncodeError("the old form of an index value holds a number at most")
        return NON_UNIQUE if value.handle is None else _plain(value.handle)
    middle = _middle(value)
    if value.version == 1:
        if isinstance(value.handle, IntHandle):
            raise EncodeError("an index value of version 1 holds no int handle")
        return _EMPTY_V1 + middle
    if value.version != 0:
        raise EncodeError(f"{value.version} is no version of an index value")
    tail = _plain(value.handle) if isinstance(value.handle, IntHandle) else b""
    tail = bytes(max(0, _NEW_SIZE - 1 - len(middle) - len(tail))) + tail
    return bytes([len(tail)]) + middle + tail


def _plain(handle: Handle) -> bytes:
    assert isinstance(handle, IntHandle)
    return handle.value.to_bytes(_HANDLE_SIZE, "big", signed=True)


def _middle(value: IndexValue) -> bytes:
    parts = []
    if isinstance(value.handle, CommonHandle):
        if len(value.handle.encoded) > _MAX_HANDLE:
            raise EncodeError("a common handle of more than 65,535 bytes")
        parts.append(bytes([_COMMON_HANDLE]) + len(value.handle.encoded).to_bytes(2, "big") + value.handle.encoded)
    if value.partition_id is not None:
        parts.append(bytes([_PARTITION]) + encode_int(value.partition_id))
    if value.restored is not None:
        parts.append(encode_raw_row(value.restored))
    return b"".join(parts)


def decode_index_value(buf: bytes) -> IndexValue:
    """Return the parts of an index value; DecodeError for any other bytes."""
    if len(buf) <= MAX_OLD_SIZE and buf != _EMPTY_V1:
        if buf == NON_UNIQUE:
            return IndexValue()
        if len(buf) != _HANDLE_SIZE:
            raise DecodeError(f"an old value of {len(buf)} bytes", VALUE_CODEC, 0)
        return IndexValue(handle=IntHandle(int.from_bytes(buf, "big", signed=True)))
    tail_size = buf[0]
    version, offset = 0, 1
    if buf[1] == _VERSION:
        version, offset = take_byte(buf, 2, VALUE_CODEC), 3
    if version > 1 or (version and tail_size) or tail_size > len(buf) - offset:
        raise DecodeError(f"version {version} with {tail_size} bytes at the end", VALUE_CODEC, 0)
    middle, tail = buf[offset : len(buf) - tail_size], buf[len(buf) - tail_size :]
    handle, partition_id, restored = _decode_middle(middle, offset)
    if tail_size >= _HANDLE_SIZE and handle is None:
        number = int.from_bytes(tail[-_HANDLE_SIZE:], "big", signed=True)
        handle, tail = IntHandle(number), tail[:-_HANDLE_SIZE]
    if any(tail):
        raise DecodeError("padding that is not zero", VALUE_CODEC, len(buf) - tail_size)
    return IndexValue(version, handle, partition_id, restored)


def _decode_middle(buf: bytes, base: int) -> tuple[Handle | None, int | None, Mapping[int, bytes | None] | None]:
    offset = 0
    handle, partition_id, restored = None, None, None
    if buf[offset : offset + 1] == bytes([_COMMON_HANDLE]):
        size = int.from_bytes(take(buf, offset + 1, 2, VALUE_CODEC), "big")
        handle = CommonHandle(take(buf, offset + 3, size, VALUE_CODEC))
        offset += 3 + size
    if buf[offset : offset + 1] == bytes([_PARTITION]):
        partition_id, offset = decode_int(buf, offset + 1)
    if buf[offset : offset + 1] == bytes([VERSION_BYTE]):
        row = decode_raw_row(buf[offset:])
        if row.tail is not None:
            raise DecodeError("restored data with a checksum", VALUE_CODEC, base + offset)
        restored, offset = row.values, len(buf)
    if offset != len(buf):
        raise DecodeError(f"{buf[offset]:#04x} begins no part of a value", VALUE_CODEC, base + offset)
    return handle, partition_id, restored


CODEC: Final = "index entry"
Columns = Mapping[int, KvValue]
_MAX_LENGTH: Final = 1 << 32
_MAX_SPACES: Final = 0xFFFF
"""Maximal length of a key part."""


class IndexEntry(NamedTuple):
    """An entry of an index.

    `columns` are the index's own, cut to their prefixes, and those of the primary key that restored data holds. To be
    written they may be a whole row's."""

    index_id: int
    columns: dict[int, KvValue]
    handle: Handle
    partition_id: int | None = None
    temporary: bool = False


def is_distinct(index: IndexLayout, columns: Columns) -> bool:
    """Return whether the key alone identifies the row: the index is unique and no column is NULL."""
    return index.unique and all(columns[part.column_id] is not None for part in index.parts)


def encode_index_entry(table: TableLayout, entry: IndexEntry) -> tuple[bytes, bytes]:
    """Return key and value of an index entry; its `columns` may hold a whole row."""
    index = _index(table, entry.index_id)
    datums = [part_datum(table, part, entry.columns[part.column_id]) for part in index.parts]
    distinct = is_distinct(index, entry.columns)
    key = index_prefix(table.id, index.id, temporary=entry.temporary) + encode_key(datums)
    if not distinct:
        key += encode_key([entry.handle.value]) if isinstance(entry.handle, IntHandle) else entry.handle.encoded
    return key, encode_index_value(_value(table, index, entry, distinct=distinct))


def _index(table: TableLayout, index_id: int) -> IndexLayout:
    index = table.index_by_id.get(index_id)
    if index is None:
        raise EncodeError(f"table {table.id} has no index {index_id}")
    return index


def _value(table: TableLayout, index: IndexLayout, entry: IndexEntry, *, distinct: bool) -> IndexValue:
    handle = entry.handle if distinct else None
    partition_id = entry.partition_id if index.global_index else None
    if isinstance(entry.handle, CommonHandle) and table.common_handle_version == 1:
        return IndexValue(1, handle, partition_id, _restored_v1(table, index, entry.columns))
    lossy = any(table.restored(table.by_id[part.column_id]) for part in index.parts)
    restored = None
    if lossy:
        restored = {part.column_id: _written(table, part, entry.columns[part.column_id]) for part in index.parts}
    is_new = lossy or partition_id is not None or isinstance(handle, CommonHandle)
    return IndexValue(0 if is_new else None, handle, partition_id, restored)


def _restored_v1(table: TableLayout, index: IndexLayout, columns: Columns) -> dict[int, bytes | None] | None:
    """Own columns that need it, then the primary key's; of a column in both the longer of the two prefixes."""
    own = {part.column_id: part for part in index.parts}
    primary = {part.column_id: part for part in (table.common_handle.parts if table.common_handle else ())}
    kept = {
        column_id: _original(table, part, columns[column_id], write_uint)
        for column_id, part in own.items()
        if not table.by_id[column_id].primary and table.restored(table.by_id[column_id])
    }
    for column_id, part in primary.items():
        if table.restored(table.by_id[column_id]):
            longer = _longer(part, own.get(column_id, part))
            kept[column_id] = _original(table, longer, columns[column_id], write_int)
    return kept or None


def _longer(left: IndexPart, right: IndexPart) -> IndexPart:
    return max(left, right, key=lambda part: _MAX_LENGTH if part.length == WHOLE else part.length)


def _written(table: TableLayout, part: IndexPart, value: KvValue) -> bytes | None:
    column = table.by_id[part.column_id]
    cut = cut_part(column, part, value)
    return None if cut is None else write_value(column.type, cut)


def _original(table: TableLayout, part: IndexPart, value: KvValue, count: Callable[[int], bytes]) -> bytes | None:
    """Return the string, or its number of trailing spaces where the sort key holds the rest."""
    written = _written(table, part, value)
    if table.by_id[part.column_id].collation not in TRIMMED:
        return written
    return count(len(written or b"") - len((written or b"").rstrip(b" ")))


def decode_index_entry(table: TableLayout, key: bytes, value: bytes) -> IndexEntry:
    """Return the index entry of a key and value; KvDecodeError with key and offset for any other bytes."""
    decoded = decode_table_key(key)
    if not isinstance(decoded, IndexKey):
        raise KvDecodeError("the key of a row where an index entry's stands", CODEC, 0, key)
    try:
        return _decode(table, decoded, decode_index_value(value))
    except DecodeError as error:
        raise KvDecodeError(error.what, error.codec, error.offset, key) from error


def _decode(table: TableLayout, key: IndexKey, value: IndexValue) -> IndexEntry:
    index = table.index_by_id.get(key.index_id)
    if index is None:
        raise DecodeError(f"table {table.id} has no index {key.index_id}", CODEC, 0)
    datums: dict[int, Datum] = {}
    offset = 0
    for part in index.parts:
        datums[part.column_id], offset = decode_datum(key.rest, offset)
    handle = value.handle or _handle_at(table, key.rest, offset)
    if value.handle is not None and offset != len(key.rest):
        raise DecodeError("a handle in the key and in the value", CODEC, offset)
    columns = {column_id: from_datum(table.by_id[column_id].type, datum) for column_id, datum in datums.items()}
    if value.restored is not None:
        columns.update(_read_restored(table, value, handle, datums))
    return IndexEntry(index.id, columns, handle, value.partition_id, key.temporary)


def _handle_at(table: TableLayout, rest: bytes, offset: int) -> Handle:
    if table.common_handle is not None:
        handle = CommonHandle(rest[offset:])
        handle_columns(table, handle)
        return handle
    number, end = decode_datum(rest, offset)
    if type(number) is not int or end != len(rest):
        raise DecodeError("no handle behind the columns of an entry", CODEC, offset)
    return IntHandle(number)


def _read_restored(
    table: TableLayout, value: IndexValue, handle: Handle, datums: Mapping[int, Datum]
) -> dict[int, KvValue]:
    in_handle: dict[int, Datum] = {}
    if table.common_handle is not None and isinstance(handle, CommonHandle):
        ids = [part.column_id for part in table.common_handle.parts]
        in_handle = dict(zip(ids, handle.datums(len(ids)), strict=True))
    restored: dict[int, KvValue] = {}
    for column_id, data in (value.restored or {}).items():
        column = table.by_id.get(column_id)
        if column is None:
            raise DecodeError(f"restored data of column {column_id}, which table {table.id} does not have", CODEC, 0)
        counts_spaces = value.version == 1 and column.collation in TRIMMED
        if data is None:
            restored[column_id] = None
        elif counts_spaces:
            keys = [key for each in (in_handle, datums) if isinstance(key := each.get(column_id), bytes)]
            restored[column_id] = _with_spaces(max(keys, key=len, default=None), data)
        else:
            restored[column_id] = read_value(column.type, data)
    return restored


def _with_spaces(key: bytes | None, data: bytes) -> bytes | None:
    count = read_uint(data)
    if key is None:
        return None
    if count > _MAX_SPACES:
        raise DecodeError(f"{count} trailing spaces in a key", CODEC, 0)
    return key + b" " * count
