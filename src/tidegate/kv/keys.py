"""Keys of rows, index entries and schema metadata, as TiDB writes them and as TiKV stores them.

    record        t | table id | _r | handle
    index         t | table id | _i | index id | columns as datums in key form | handle, when not unique
                  1   8          2    8
    in TiKV       memcomparable(key) | timestamp as uint, descending: the newest version first; locks have none

    t45_r1        74  80 00 00 00 00 00 00 2d  5f 72  80 00 00 00 00 00 00 01

    handle        identifies a row within its table: IntHandle or CommonHandle
    IntHandle     8 bytes: an integer primary key, or the hidden _tidb_rowid.  BIGINT UNSIGNED keeps its bits: 2**64 - 1
                  is handle -1
    CommonHandle  the primary key's columns as datums in key form: ("abc", 5) is 01 61 62 63 .. 03 80 .. 05.  It is
                  padded with zeros to 9 bytes, so a record key of 19 bytes always has an IntHandle
    table id      of a partition: its own; index entries of a global index: the table's
    index id      or'd with 7fff 0000 0000 0000 while an index is filled aside (temporary index)
    span          [ t id _r , t id _s ): what a changefeed subscribes to; index keys lie below it

Keys of the schema:

    string   m | memcomparable name | 's' as uint                         NextGlobalID, SchemaVersionKey, Diff:57
    hash     m | memcomparable name | 'h' as uint | memcomparable field   DBs / DB:2,  DB:2 / Table:45
    list     m | memcomparable name | 'l' as uint | position as int       no longer used for DDL jobs

    hash DBs, field DB:2     6d  44 42 73 00 00 00 00 00 fa  00 .. 68  44 42 3a 32 00 00 00 00 fb

    name                field                                  value
    DBs                 DB:<schema id>                         DBInfo as JSON
    DB:<schema id>      Table:<table id>                       TableInfo as JSON
                        TID:, IID:, TARID:, SID:<table id>     counters, decimal digits
    DDLJobHistory       job id, 8 bytes big endian             Job as JSON
    Diff:<version>      -                                      SchemaDiff as JSON
    NextGlobalID, SchemaVersionKey                             decimal digits

'S', 'H' and 'L' mark the metadata of a structure that older versions kept beside it.

Source: TiDB pkg/tablecodec, pkg/kv/key.go, pkg/structure (type.go), pkg/meta/meta.go; TiKV components/txn_types.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from tidegate.model.errors import DecodeError, EncodeError, KvDecodeError
from tidegate.mysql.datum import Datum, decode_datum, encode_key
from tidegate.mysql.encoding import (
    MAX_INT,
    at_end,
    decode_bytes,
    decode_int,
    decode_uint,
    encode_bytes,
    encode_int,
    encode_uint,
    invert,
    take,
)

CODEC: Final = "handle"
MIN_SIZE: Final = 9
_UNSIGNED: Final = 1 << 64


class IntHandle(NamedTuple):
    """A row number; an unsigned key above 2**63 - 1 is negative here."""

    value: int

    @property
    def encoded(self) -> bytes:
        """The end of the row's key."""
        return encode_int(self.value)

    @property
    def unsigned(self) -> int:
        """The number of a key column without sign."""
        return self.value % _UNSIGNED


class CommonHandle(NamedTuple):
    """A primary key in the encoded form that ends the row's key."""

    encoded: bytes

    def datums(self, count: int) -> list[Datum]:
        """Return the first `count` columns of the primary key; DecodeError if they are missing or more follows."""
        datums: list[Datum] = []
        offset = 0
        for _ in range(count):
            datum, offset = decode_datum(self.encoded, offset)
            datums.append(datum)
        if any(self.encoded[offset:]) or (offset != len(self.encoded) and len(self.encoded) > MIN_SIZE):
            raise DecodeError(f"bytes behind the {count} columns of a handle", CODEC, offset)
        return datums


Handle: TypeAlias = IntHandle | CommonHandle


def common_handle(datums: Iterable[Datum]) -> CommonHandle:
    """Return the handle of a primary key's values."""
    return CommonHandle(encode_key(datums).ljust(MIN_SIZE, b"\0"))


def unsigned_handle(value: int) -> IntHandle:
    """Return the handle of a number without sign."""
    return IntHandle(value - _UNSIGNED if value > MAX_INT else value)


_TABLE_KEY_CODEC: Final = "table key"
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
    """Return the prefix of all keys of a table."""
    return PREFIX + encode_int(table_id)


def record_prefix(table_id: int) -> bytes:
    """Return the prefix of all row keys of a table."""
    return table_prefix(table_id) + RECORD


def record_key(table_id: int, handle: Handle) -> bytes:
    """Return the key of a row."""
    return record_prefix(table_id) + handle.encoded


def index_prefix(table_id: int, index_id: int, *, temporary: bool = False) -> bytes:
    """Return the prefix of all keys of an index."""
    return table_prefix(table_id) + INDEX + encode_int(index_id | _TEMPORARY if temporary else index_id)


def table_span(table_id: int) -> tuple[bytes, bytes]:
    """Return the raw key range [start, end) of the rows of a table."""
    return record_prefix(table_id), table_prefix(table_id) + _AFTER_RECORD


def decode_table_key(key: bytes) -> TableKey:
    """Return the parts of a row or index key; KvDecodeError for any other key."""
    try:
        return _decode(key)
    except DecodeError as error:
        raise KvDecodeError(error.what, error.codec, error.offset, key) from error


def _decode(key: bytes) -> TableKey:
    if take(key, 0, 1, _TABLE_KEY_CODEC) != PREFIX:
        raise DecodeError("a key that does not begin with t", _TABLE_KEY_CODEC, 0)
    table_id, offset = decode_int(key, 1)
    kind = take(key, offset, 2, _TABLE_KEY_CODEC)
    if kind == RECORD:
        return RecordKey(table_id, _handle(key[_BODY_AT:]))
    if kind != INDEX:
        raise DecodeError(f"{kind!r} is neither _r nor _i", _TABLE_KEY_CODEC, offset)
    index_id, end = decode_int(key, _BODY_AT)
    temporary = index_id > 0 and index_id & _TEMPORARY == _TEMPORARY
    return IndexKey(table_id, index_id & _INDEX_ID if temporary else index_id, key[end:], temporary)


def _handle(encoded: bytes) -> Handle:
    if len(encoded) == 8:
        return IntHandle(decode_int(encoded)[0])
    if len(encoded) < 8:
        raise DecodeError(f"a handle of {len(encoded)} bytes", _TABLE_KEY_CODEC, _BODY_AT)
    return CommonHandle(encoded)


def mvcc_key(key: bytes, ts: int | None = None) -> bytes:
    """Return the key as TiKV stores it in its column families; without `ts`, that of a lock."""
    return encode_bytes(key) + (b"" if ts is None else invert(encode_uint(ts)))


def split_mvcc_key(stored: bytes) -> tuple[bytes, int | None]:
    """Return the raw key and the timestamp of a key stored in TiKV; KvDecodeError for any other bytes."""
    try:
        key, offset = decode_bytes(stored)
        if offset == len(stored):
            return key, None
        ts, end = decode_uint(invert(stored), offset)
        at_end(stored, end, _TABLE_KEY_CODEC)
    except DecodeError as error:
        raise KvDecodeError(error.what, error.codec, error.offset, stored) from error
    return key, ts


_META_KEY_CODEC: Final = "meta key"
_META_KEY_PREFIX: Final = b"m"
_KINDS: Final = frozenset("sShHlL")


class MetaKey(NamedTuple):
    """A key of the schema; a hash (kind h) has a `field`, a list (kind l) a `position`."""

    name: bytes
    kind: str
    field: bytes | None = None
    position: int | None = None


def string_key(name: str) -> bytes:
    """Return the metadata key of a string."""
    return encode_meta_key(MetaKey(name.encode(), "s"))


def hash_key(name: str, field: str | bytes) -> bytes:
    """Return the metadata key of a field of a hash."""
    return encode_meta_key(MetaKey(name.encode(), "h", field.encode() if isinstance(field, str) else field))


def job_field(job_id: int) -> bytes:
    """Return the field of DDLJobHistory that holds a job."""
    return encode_uint(job_id)


def encode_meta_key(key: MetaKey) -> bytes:
    """Return the bytes of a metadata key; EncodeError where kind and parts disagree."""
    parts = key.field is not None, key.position is not None
    if key.kind not in _KINDS or parts != (key.kind == "h", key.kind == "l"):
        raise EncodeError(f"a meta key of kind {key.kind!r} with field {key.field!r} and position {key.position}")
    head = _META_KEY_PREFIX + encode_bytes(key.name) + encode_uint(ord(key.kind))
    if key.field is not None:
        return head + encode_bytes(key.field)
    return head if key.position is None else head + encode_int(key.position)


def decode_meta_key(key: bytes) -> MetaKey:
    """Return the parts of a metadata key; KvDecodeError for any other bytes."""
    try:
        return _meta_key_decode(key)
    except DecodeError as error:
        raise KvDecodeError(error.what, error.codec, error.offset, key) from error


def _meta_key_decode(key: bytes) -> MetaKey:
    if take(key, 0, 1, _META_KEY_CODEC) != _META_KEY_PREFIX:
        raise DecodeError("a key that does not begin with m", _META_KEY_CODEC, 0)
    name, offset = decode_bytes(key, 1)
    number, end = decode_uint(key, offset)
    kind = chr(number) if number < 0x80 else ""
    if kind not in _KINDS:
        raise DecodeError(f"kind {number:#x} is none of s, h, l", _META_KEY_CODEC, offset)
    field, position = None, None
    if kind == "h":
        field, end = decode_bytes(key, end)
    elif kind == "l":
        position, end = decode_int(key, end)
    at_end(key, end, _META_KEY_CODEC)
    return MetaKey(name, kind, field, position)
