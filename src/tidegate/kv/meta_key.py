"""Keys of the schema: `m`, a name, and for members of a hash a field.

    string   m | memcomparable name | 's' as uint                         NextGlobalID, SchemaVersionKey, Diff:57
    hash     m | memcomparable name | 'h' as uint | memcomparable field   DBs / DB:2,  DB:2 / Table:45
    list     m | memcomparable name | 'l' as uint | place as int          no longer used for DDL jobs

    hash DBs, field DB:2     6d  44 42 73 00 00 00 00 00 fa  00 .. 68  44 42 3a 32 00 00 00 00 fb

    name                field                                  value
    DBs                 DB:<schema id>                         DBInfo as JSON
    DB:<schema id>      Table:<table id>                       TableInfo as JSON
                        TID:, IID:, TARID:, SID:<table id>     counters, decimal digits
    DDLJobHistory       job id, 8 bytes big endian             Job as JSON
    Diff:<version>      -                                      SchemaDiff as JSON
    NextGlobalID, SchemaVersionKey                             decimal digits

'S', 'H' and 'L' mark the meta data of a structure that older versions kept beside it.

Source: TiDB pkg/structure (type.go), pkg/meta/meta.go.
"""

from typing import Final, NamedTuple

from tidegate.model.errors import DecodeError, EncodeError, KvDecodeError
from tidegate.mysql.cursor import at_end, take
from tidegate.mysql.memcomparable import decode_bytes, encode_bytes
from tidegate.mysql.number import decode_int, decode_uint, encode_int, encode_uint

CODEC: Final = "meta key"
PREFIX: Final = b"m"
_KINDS: Final = frozenset("sShHlL")


class MetaKey(NamedTuple):
    """A key of the schema; `field` belongs to kind h, `place` to kind l."""

    name: bytes
    kind: str
    field: bytes | None = None
    place: int | None = None


def string_key(name: str) -> bytes:
    """Return the key of a string."""
    return encode_meta_key(MetaKey(name.encode(), "s"))


def hash_key(name: str, field: str | bytes) -> bytes:
    """Return the key of a member of a hash."""
    return encode_meta_key(MetaKey(name.encode(), "h", field.encode() if isinstance(field, str) else field))


def job_field(job_id: int) -> bytes:
    """Return the field of DDLJobHistory that holds a job."""
    return encode_uint(job_id)


def encode_meta_key(key: MetaKey) -> bytes:
    """Return the bytes of a key; EncodeError where kind and parts disagree."""
    if key.kind not in _KINDS or (key.field is None) != (key.kind != "h") or (key.place is None) != (key.kind != "l"):
        raise EncodeError(f"a meta key of kind {key.kind!r} with field {key.field!r} and place {key.place}")
    head = PREFIX + encode_bytes(key.name) + encode_uint(ord(key.kind))
    if key.field is not None:
        return head + encode_bytes(key.field)
    return head if key.place is None else head + encode_int(key.place)


def decode_meta_key(key: bytes) -> MetaKey:
    """Return the parts of a key; KvDecodeError for anything else."""
    try:
        return _decode(key)
    except DecodeError as error:
        raise KvDecodeError(error.what, error.codec, error.offset, key) from error


def _decode(key: bytes) -> MetaKey:
    if take(key, 0, 1, CODEC) != PREFIX:
        raise DecodeError("a key that does not begin with m", CODEC, 0)
    name, at = decode_bytes(key, 1)
    number, end = decode_uint(key, at)
    kind = chr(number) if number < 0x80 else ""
    if kind not in _KINDS:
        raise DecodeError(f"kind {number:#x} is none of s, h, l", CODEC, at)
    field, place = None, None
    if kind == "h":
        field, end = decode_bytes(key, end)
    elif kind == "l":
        place, end = decode_int(key, end)
    at_end(key, end, CODEC)
    return MetaKey(name, kind, field, place)
