"""Reading versions: what a key was at a moment.

    key a    WRITE  ~9 P start 8    ~6 D start 5    ~4 R start 4    ~3 P start 2
             at ts 9: the put of 8      at ts 8: nothing, deleted at 6      at ts 5: the put of 2

Versions of a key lie newest first.  A reader at `ts` takes the first put or delete with commit_ts <= ts, stepping over
rollbacks and lock-only writes.  These functions look at WRITE and DATA alone; locks are the store's business.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Final, TypeAlias

from tidegate.kv.table_key import mvcc_key, split_mvcc_key
from tidegate.mysql.memcomparable import encode_bytes
from tidegate_upstream.tidb.store.engine import ColumnFamily, KvEngine
from tidegate_upstream.tidb.store.record import Write, WriteKind, decode_write

END_OF_TIME: Final = (1 << 64) - 1
_PAST_OLDEST: Final = b"\xff" * 8 + b"\0"

Version: TypeAlias = tuple[int, Write]
"""The commit_ts of a write record, and the record."""


def versions(engine: KvEngine, key: bytes, ts: int = END_OF_TIME) -> Iterator[Version]:
    """Return the write records of a key with commit_ts <= ts, newest first."""
    prefix = encode_bytes(key)
    for stored, record in engine.scan(ColumnFamily.WRITE, mvcc_key(key, ts), prefix + _PAST_OLDEST):
        yield split_mvcc_key(stored)[1] or 0, decode_write(record)


def value_of(engine: KvEngine, key: bytes, write: Write) -> bytes | None:
    """Return the value that a put carried; None for every other kind."""
    if write.kind is not WriteKind.PUT:
        return None
    if write.short is not None:
        return write.short
    value = engine.get(ColumnFamily.DATA, mvcc_key(key, write.start_ts))
    assert value is not None, (key, write)
    return value


def live_value(engine: KvEngine, key: bytes, found: Iterator[Version]) -> bytes | None:
    """Return the value of the first put or delete among `found`."""
    for _, write in found:
        if write.kind in (WriteKind.PUT, WriteKind.DELETE):
            return value_of(engine, key, write)
    return None


def value_at(engine: KvEngine, key: bytes, ts: int) -> bytes | None:
    """Return the value of a key at `ts`, locks or not."""
    return live_value(engine, key, versions(engine, key, ts))


def values_in(
    engine: KvEngine, start: bytes, end: bytes, ts: int, *, reverse: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """Return keys in [start, end) that have a value at `ts`, with it; an empty `end` is no bound."""
    stored = engine.scan(ColumnFamily.WRITE, encode_bytes(start), bound(end), reverse=reverse)
    split = ((split_mvcc_key(at), record) for at, record in stored)
    for key, group in groupby(split, key=lambda item: item[0][0]):
        seen = [(commit_ts or 0, record) for (_, commit_ts), record in group if (commit_ts or 0) <= ts]
        ordered = reversed(seen) if reverse else seen
        value = live_value(engine, key, ((commit_ts, decode_write(record)) for commit_ts, record in ordered))
        if value is not None:
            yield key, value


def bound(end: bytes) -> bytes:
    """Return the end of a span of raw keys as a bound of stored ones."""
    return encode_bytes(end) if end else b""
