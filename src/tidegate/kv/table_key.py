"""Keys of rows and index entries, and how TiKV stores them.

    record        t | table id | _r | handle
    index         t | table id | _i | index id | columns as datums in key form | handle, when not unique
                  1   8          2    8

    t45_r1        74  80 00 00 00 00 00 00 2d  5f 72  80 00 00 00 00 00 00 01

    int handle    8 bytes: a record key of 19 bytes has one. BIGINT UNSIGNED keeps its bits: 2**64 - 1 is handle -1
    common handle the primary key's columns as datums in key form, zero-padded to 9 bytes
    table id      of a partition: its own; index entries of a global index: the table's
    index id      or'd with 7fff 0000 0000 0000 while an index is filled aside (temporary index)
    span          [ t id _r , t id _s ): what a changefeed subscribes to; index keys lie below it

    in TiKV       memcomparable(key) | timestamp as uint, descending: the newest version first; locks have none

Source: TiDB pkg/tablecodec; TiKV components/txn_types.
"""

from typing import Final, NamedTuple

from tidegate.kv.handle import CommonHandle, Handle, IntHandle
from tidegate.model.errors import DecodeError, KvDecodeError
from tidegate.mysql.cursor import at_end, take
from tidegate.mysql.memcomparable import decode_bytes, encode_bytes
from tidegate.mysql.number import decode_int, decode_uint, encode_int, encode_uint, invert

CODEC: Final = "table key"
PREFIX: Final = b"t"
RECORD: Final = b"_r"
INDEX: Final = b"_i"
_AFTER_RECORD: Final = b"_s"
_BODY_AT: Final = 11
_TEMPORARY: Final = 0x7FFF_0000_0000_0000
_INDEX_ID: Final = 0x0000_FFFF_FFFF_FFFF


class RecordKey(NamedTuple):
    """The key of a row; `table_id` is that of the partition in a partitioned table."""

    table_id: int
    handle: Handle


class IndexKey(NamedTuple):
    """The key of an index entry; `rest` holds the columns and, of an entry that is not unique, the handle."""

    table_id: int
    index_id: int
    rest: bytes
    temporary: bool = False


TableKey = RecordKey | IndexKey


def table_prefix(table_id: int) -> bytes:
    """Return what all keys of a table begin with."""
    return PREFIX + encode_int(table_id)


def record_prefix(table_id: int) -> bytes:
    """Return what all row keys of a table begin with."""
    return table_prefix(table_id) + RECORD


def record_key(table_id: int, handle: Handle) -> bytes:
    """Return the key of a row."""
    return record_prefix(table_id) + handle.encoded


def index_prefix(table_id: int, index_id: int, *, temporary: bool = False) -> bytes:
    """Return what all keys of an index begin with."""
    return table_prefix(table_id) + INDEX + encode_int(index_id | _TEMPORARY if temporary else index_id)


def table_span(table_id: int) -> tuple[bytes, bytes]:
    """Return the raw keys from which and before which the rows of a table lie."""
    return record_prefix(table_id), table_prefix(table_id) + _AFTER_RECORD


def decode_table_key(key: bytes) -> TableKey:
    """Return the parts of a key that begins with t; KvDecodeError for anything else."""
    try:
        return _decode(key)
    except DecodeError as error:
        raise KvDecodeError(error.what, error.codec, error.offset, key) from error


def _decode(key: bytes) -> TableKey:
    if take(key, 0, 1, CODEC) != PREFIX:
        raise DecodeError("a key that does not begin with t", CODEC, 0)
    table_id, at = decode_int(key, 1)
    kind = take(key, at, 2, CODEC)
    if kind == RECORD:
        return RecordKey(table_id, _handle(key[_BODY_AT:]))
    if kind != INDEX:
        raise DecodeError(f"{kind!r} is neither _r nor _i", CODEC, at)
    index_id, end = decode_int(key, _BODY_AT)
    temporary = index_id > 0 and index_id & _TEMPORARY == _TEMPORARY
    return IndexKey(table_id, index_id & _INDEX_ID if temporary else index_id, key[end:], temporary)


def _handle(encoded: bytes) -> Handle:
    if len(encoded) == 8:
        return IntHandle(decode_int(encoded)[0])
    if len(encoded) < 8:
        raise DecodeError(f"a handle of {len(encoded)} bytes", CODEC, _BODY_AT)
    return CommonHandle(encoded)


def mvcc_key(key: bytes, ts: int | None = None) -> bytes:
    """Return the key as TiKV's column families hold it; without `ts` that of a lock."""
    return encode_bytes(key) + (b"" if ts is None else invert(encode_uint(ts)))


def split_mvcc_key(stored: bytes) -> tuple[bytes, int | None]:
    """Return the raw key and the timestamp of a stored key; KvDecodeError for anything else."""
    try:
        key, at = decode_bytes(stored)
        if at == len(stored):
            return key, None
        ts, end = decode_uint(invert(stored), at)
        at_end(stored, end, CODEC)
    except DecodeError as error:
        raise KvDecodeError(error.what, error.codec, error.offset, stored) from error
    return key, ts
