"""What stands in the store's columns: TiKV's lock and write records.

    lock    kind 1 | primary, compact bytes | start_ts uvarint | ttl_ms uvarint | ['v' | length 1 | short] | [source]
    write   kind 1 | start_ts uvarint                                           | ['v' | length 1 | short] | [source]
    source  nothing for 0, else 's' in a lock, 'S' in a write record, and the number as uvarint

    kind    P put    D delete    L lock only: takes part in conflicts, changes nothing    R rolled back (write only)

A value of at most 255 bytes is short and travels in the record; a longer one lies in DATA under (key, start_ts) from
the prewrite on, and the record has no 'v'.  A write record of kind R stands at its own start_ts and keeps a late
prewrite of the same transaction out.  The source says what a transaction is for: 1 << 8 of the rewrites by which a DDL
changes a column's type, which change capture leaves out.

Source: TiKV's txn_types (lock and write records), the fields that optimistic transactions use.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from tidegate.model.errors import DecodeError
from tidegate.mysql.cursor import at_end, take, take_byte
from tidegate.mysql.memcomparable import decode_compact, encode_compact
from tidegate.mysql.number import decode_uvarint, encode_uvarint

SHORT_BYTES: Final = 255
"""The longest value that its record holds: its length is one byte."""

_SHORT: Final = ord("v")
_LOCK_SOURCE: Final = ord("s")
_WRITE_SOURCE: Final = ord("S")
_CODEC: Final = "mvcc record"


class WriteKind(IntEnum):
    """What a transaction does, or did, to a key."""

    PUT = ord("P")
    DELETE = ord("D")
    LOCK = ord("L")
    ROLLBACK = ord("R")


_KINDS: Final = {int(kind): kind for kind in WriteKind}


class Lock(NamedTuple):
    """A prewritten key. `short` is its value if that is short."""

    kind: WriteKind
    primary: bytes
    start_ts: int
    ttl_ms: int
    short: bytes | None = None
    source: int = 0


class Write(NamedTuple):
    """A committed or rolled back key; the commit_ts is in its own key."""

    kind: WriteKind
    start_ts: int
    short: bytes | None = None
    source: int = 0


def encode_lock(lock: Lock) -> bytes:
    """Return the record of a lock."""
    head = bytes([lock.kind]) + encode_compact(lock.primary)
    return (
        head
        + encode_uvarint(lock.start_ts)
        + encode_uvarint(lock.ttl_ms)
        + _encode_tail(lock.short, lock.source, _LOCK_SOURCE)
    )


def decode_lock(record: bytes) -> Lock:
    """Return the lock of a record; DecodeError for anything else."""
    kind = _decode_kind(record)
    primary, at = decode_compact(record, 1)
    start_ts, at = decode_uvarint(record, at)
    ttl_ms, at = decode_uvarint(record, at)
    return Lock(kind, primary, start_ts, ttl_ms, *_decode_tail(record, at, _LOCK_SOURCE))


def encode_write(write: Write) -> bytes:
    """Return the record of a write."""
    return bytes([write.kind]) + encode_uvarint(write.start_ts) + _encode_tail(write.short, write.source, _WRITE_SOURCE)


def decode_write(record: bytes) -> Write:
    """Return the write of a record; DecodeError for anything else."""
    kind = _decode_kind(record)
    start_ts, at = decode_uvarint(record, 1)
    return Write(kind, start_ts, *_decode_tail(record, at, _WRITE_SOURCE))


def _decode_kind(record: bytes) -> WriteKind:
    kind = _KINDS.get(take_byte(record, 0, _CODEC))
    if kind is None:
        raise DecodeError(f"kind {record[0]:#x}", _CODEC, 0)
    return kind


def _encode_tail(short: bytes | None, source: int, mark: int) -> bytes:
    told = b"" if source == 0 else bytes([mark]) + encode_uvarint(source)
    return told if short is None else bytes([_SHORT, len(short)]) + short + told


def _decode_tail(record: bytes, at: int, mark: int) -> tuple[bytes | None, int]:
    short, source = None, 0
    if record[at : at + 1] == bytes([_SHORT]):
        size = take_byte(record, at + 1, _CODEC)
        short = take(record, at + 2, size, _CODEC)
        at += 2 + size
    if record[at : at + 1] == bytes([mark]):
        source, at = decode_uvarint(record, at + 1)
    at_end(record, at, _CODEC)
    return short, source
