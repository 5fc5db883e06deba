"""The MVCC store: Percolator's two-phase commit over an engine, reads at a timestamp, and garbage collection.

    prewrite(k, start_ts)    LOCK[k] = P primary start_ts ttl            the value is stored, not visible
    commit(k, commit_ts)     LOCK[k] removed, WRITE[k ~commit_ts] = P    visible to reads from commit_ts on
    rollback(k, start_ts)    LOCK[k] removed, WRITE[k ~start_ts]  = R    never visible

A transaction is decided by the write of its primary key: committed there, committed everywhere.  A reader that finds a
lock checks the state of its primary (`check_status`) and resolves the lock accordingly.

    lock of the primary, within its ttl   Alive         wait
    lock of the primary, ttl expired      rolled back now
    no lock, write record of start_ts     Committed, or rolled back
    neither                               rolled back now, so that a late prewrite fails

- A read at ts stops at a put or delete lock with start_ts <= ts (KeyLocked): its commit_ts may still be below ts.
  Else it takes the first put or delete with commit_ts <= ts, skipping rollbacks and lock-only writes.
- A prewrite fails if something was committed after start_ts (WriteConflict), so no update is lost.
- A commit_ts must come from the oracle after the last prewrite.  One-phase commits take it under the store's lock.
- Calls are atomic, one batch of the engine each, and thread-safe; all but `one_phase` may be repeated.
- Observers are called with each batch after it is durable and before the next one, in order.

Records, as TiKV's:

    lock    kind 1 | primary, compact bytes | start_ts uvarint | ttl_ms uvarint | ['v' | length 1 | short] | [source]
    write   kind 1 | start_ts uvarint                                           | ['v' | length 1 | short] | [source]
    source  nothing for 0, else 's' in a lock, 'S' in a write record, and the number as uvarint
    kind    P put    D delete    L lock only: takes part in conflicts, changes nothing    R rolled back (write only)

A value of at most 255 bytes is short and is part of the record; a longer one is in DATA under (key, start_ts) from the
prewrite on.  Source 1 << 8 marks rewrites by which a DDL changes a column's type, which change capture leaves out.

`collect_garbage` raises the safe point first and resolves older locks, then keeps of each key everything above the safe
point and the put that a read at the safe point returns.

Source: Percolator; TiKV's txn_types, prewrite, commit, rollback, check_txn_status, resolve_lock (without pessimistic
locks) and GC worker; TiDB's gc_worker.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby, islice
from threading import RLock
from typing import Final, NamedTuple, TypeAlias

from tidegate.kv.keys import mvcc_key, split_mvcc_key
from tidegate.model.errors import DecodeError
from tidegate.model.kv_change import LOSSY_DDL, KvChange, KvOp, LogType
from tidegate.model.tso import physical_ms
from tidegate.mysql.encoding import (
    at_end,
    decode_bytes,
    decode_compact,
    decode_uvarint,
    encode_bytes,
    encode_compact,
    encode_uvarint,
    take,
    take_byte,
)
from tidegate_upstream.errors import HistoryCollected, KeyLocked, TransactionGone, WriteConflict
from tidegate_upstream.tidb.engine import ColumnFamily, Edit, KvEngine

SHORT_BYTES: Final = 255
"""Maximal length of a value stored in the write record, whose length field is one byte."""

_SHORT: Final = ord("v")
_LOCK_SOURCE: Final = ord("s")
_WRITE_SOURCE: Final = ord("S")
_CODEC: Final = "mvcc record"


class WriteKind(IntEnum):
    """The kind of a transaction's operation on a key."""

    PUT = ord("P")
    DELETE = ord("D")
    LOCK = ord("L")
    ROLLBACK = ord("R")


_KINDS: Final = {int(kind): kind for kind in WriteKind}


class Lock(NamedTuple):
    """A prewritten key. `short` is its value if it fits into the lock."""

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
    """Return the lock of a record. Raises DecodeError."""
    kind = _decode_kind(record)
    primary, offset = decode_compact(record, 1)
    start_ts, offset = decode_uvarint(record, offset)
    ttl_ms, offset = decode_uvarint(record, offset)
    return Lock(kind, primary, start_ts, ttl_ms, *_decode_tail(record, offset, _LOCK_SOURCE))


def encode_write(write: Write) -> bytes:
    """Return the record of a write."""
    return bytes([write.kind]) + encode_uvarint(write.start_ts) + _encode_tail(write.short, write.source, _WRITE_SOURCE)


def decode_write(record: bytes) -> Write:
    """Return the write of a record. Raises DecodeError."""
    kind = _decode_kind(record)
    start_ts, offset = decode_uvarint(record, 1)
    return Write(kind, start_ts, *_decode_tail(record, offset, _WRITE_SOURCE))


def _decode_kind(record: bytes) -> WriteKind:
    kind = _KINDS.get(take_byte(record, 0, _CODEC))
    if kind is None:
        raise DecodeError(f"kind {record[0]:#x}", _CODEC, 0)
    return kind


def _encode_tail(short: bytes | None, source: int, mark: int) -> bytes:
    origin = b"" if source == 0 else bytes([mark]) + encode_uvarint(source)
    return origin if short is None else bytes([_SHORT, len(short)]) + short + origin


def _decode_tail(record: bytes, offset: int, mark: int) -> tuple[bytes | None, int]:
    short, source = None, 0
    if record[offset : offset + 1] == bytes([_SHORT]):
        size = take_byte(record, offset + 1, _CODEC)
        short = take(record, offset + 2, size, _CODEC)
        offset += 2 + size
    if record[offset : offset + 1] == bytes([mark]):
        source, offset = decode_uvarint(record, offset + 1)
    at_end(record, offset, _CODEC)
    return short, source


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
    """Return the value of a put; None for every other kind."""
    if write.kind is not WriteKind.PUT:
        return None
    if write.short is not None:
        return write.short
    value = engine.get(ColumnFamily.DATA, mvcc_key(key, write.start_ts))
    assert value is not None, (key, write)
    return value


def live_value(engine: KvEngine, key: bytes, newest_first: Iterator[Version]) -> bytes | None:
    """Return the value of the first put or delete among `newest_first`."""
    for _, write in newest_first:
        if write.kind in (WriteKind.PUT, WriteKind.DELETE):
            return value_of(engine, key, write)
    return None


def value_at(engine: KvEngine, key: bytes, ts: int) -> bytes | None:
    """Return the value of a key at `ts`, regardless of locks."""
    return live_value(engine, key, versions(engine, key, ts))


def values_in(
    engine: KvEngine, start: bytes, end: bytes, ts: int, *, reverse: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """Return keys in [start, end) that have a value at `ts`, with it; an empty `end` is no bound."""
    stored = engine.scan(ColumnFamily.WRITE, encode_bytes(start), bound(end), reverse=reverse)
    split = ((split_mvcc_key(stored_key), record) for stored_key, record in stored)
    for key, group in groupby(split, key=lambda item: item[0][0]):
        seen = [(commit_ts or 0, record) for (_, commit_ts), record in group if (commit_ts or 0) <= ts]
        ordered = reversed(seen) if reverse else seen
        value = live_value(engine, key, ((commit_ts, decode_write(record)) for commit_ts, record in ordered))
        if value is not None:
            yield key, value


def bound(end: bytes) -> bytes:
    """Return the end of a span of raw keys as a bound of stored keys."""
    return encode_bytes(end) if end else b""


Observer: TypeAlias = Callable[[Sequence[KvChange]], None]
"""Called with the effects of a batch while the store is locked; may read the store, must not write it."""

_OPS: Final = {WriteKind.PUT: KvOp.PUT, WriteKind.DELETE: KvOp.DELETE}
_SAFE_POINT: Final = b"gc/safe_point"


class Mutation(NamedTuple):
    """An operation of a transaction on one key: PUT, DELETE or LOCK. `value` is for PUT."""

    kind: WriteKind
    key: bytes
    value: bytes | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction's primary is committed."""

    commit_ts: int


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The transaction will never commit."""


@dataclass(frozen=True, slots=True)
class Alive:
    """The transaction may still commit; its lock expires at `until_ms`, physical time."""

    until_ms: int


Status: TypeAlias = Committed | RolledBack | Alive


class Store:
    """Versions and locks of keys, in an engine with this one writer."""

    def __init__(self, engine: KvEngine) -> None:
        self.engine = engine
        self.guard = RLock()
        self.observers: list[Observer] = []
        self._safe_point = int(engine.get(ColumnFamily.META, _SAFE_POINT) or b"0")

    # --- reading ---

    def get(self, key: bytes, ts: int) -> bytes | None:
        """Return the value of a key at `ts`. Raises KeyLocked, HistoryCollected."""
        with self.guard:
            self._readable(ts)
            lock = self.lock_of(key)
            if lock and lock.start_ts <= ts and lock.kind in _OPS:
                raise _locked(key, lock)
            return value_at(self.engine, key, ts)

    def scan(
        self, start: bytes, end: bytes, ts: int, *, limit: int | None = None, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` keys of [start, end) at `ts` with values; an empty `end` is no bound.

        Raises KeyLocked for the first lock among these keys, HistoryCollected.
        """
        with self.guard:
            self._readable(ts)
            pairs = list(islice(values_in(self.engine, start, end, ts, reverse=reverse), limit))
            if pairs and limit is not None and len(pairs) == limit:
                last = pairs[-1][0]
                start, end = (last, end) if reverse else (start, last + b"\0")
            for key, lock in self.locks(start, end, reverse=reverse):
                if lock.start_ts <= ts:
                    raise _locked(key, lock)
            return pairs

    def deleted(self, key: bytes, ts: int) -> int | None:
        """Return the start_ts of the newest delete of a key by `ts`; None if there is none."""
        with self.guard:
            deletes = (write.start_ts for _, write in versions(self.engine, key, ts) if write.kind is WriteKind.DELETE)
            return next(deletes, None)

    def source(self, key: bytes, ts: int) -> int:
        """Return the write source of a key's value at `ts`; rewrites by a DDL do not count."""
        with self.guard:
            sources = (write.source for _, write in versions(self.engine, key, ts) if write.kind is WriteKind.PUT)
            return next((source for source in sources if source < LOSSY_DDL), 0)

    def locks(self, start: bytes = b"", end: bytes = b"", *, reverse: bool = False) -> list[tuple[bytes, Lock]]:
        """Return the put and delete locks of keys in [start, end)."""
        with self.guard:
            stored = self.engine.scan(ColumnFamily.LOCK, encode_bytes(start), bound(end), reverse=reverse)
            locks = [(decode_bytes(key)[0], decode_lock(record)) for key, record in stored]
            return [(key, lock) for key, lock in locks if lock.kind in _OPS]

    # --- the two phases ---

    def prewrite(
        self, mutations: Sequence[Mutation], primary: bytes, start_ts: int, ttl_ms: int, source: int = 0
    ) -> None:
        """Lock all keys with their values, or none.

        Raises WriteConflict, KeyLocked, TransactionGone, HistoryCollected.
        """
        with self.guard:
            prepared = self._prepare(mutations, start_ts)
            edits: list[Edit] = []
            for mutation, _ in prepared:
                short, long = _split_value(mutation)
                lock = Lock(mutation.kind, primary, start_ts, ttl_ms, short, source)
                edits.append((ColumnFamily.LOCK, encode_bytes(mutation.key), encode_lock(lock)))
                edits += _data(mutation.key, start_ts, long)
            self._write(edits, _changes(LogType.PREWRITE, prepared, start_ts, source=source))

    def one_phase(
        self, mutations: Sequence[Mutation], start_ts: int, take_commit_ts: Callable[[], int], source: int = 0
    ) -> int:
        """Commit all keys at once, or none, at the timestamp that `take_commit_ts` returns. Its errors propagate.

        `take_commit_ts` is called after all checks, with the store locked: no reader gets a timestamp at or above it
        before the keys are written. Raises the errors of `prewrite`.
        """
        with self.guard:
            prepared = self._prepare(mutations, start_ts)
            assert len(prepared) == len(mutations), start_ts
            commit_ts = take_commit_ts()
            assert commit_ts > start_ts, (start_ts, commit_ts)
            edits: list[Edit] = []
            for mutation, _ in prepared:
                short, long = _split_value(mutation)
                record = encode_write(Write(mutation.kind, start_ts, short, source))
                edits.append((ColumnFamily.WRITE, mvcc_key(mutation.key, commit_ts), record))
                edits += _data(mutation.key, start_ts, long)
            self._write(edits, _changes(LogType.COMMITTED, prepared, start_ts, commit_ts, source))
        return commit_ts

    def commit(self, keys: Iterable[bytes], start_ts: int, commit_ts: int) -> None:
        """Make prewritten keys visible; committed keys stay. Raises TransactionGone."""
        assert commit_ts > start_ts, (start_ts, commit_ts)
        with self.guard:
            edits: list[Edit] = []
            changes: list[KvChange] = []
            for key in keys:
                lock = self.lock_of(key)
                if lock is None or lock.start_ts != start_ts:
                    if not isinstance(self.outcome_of(key, start_ts), Committed):
                        raise TransactionGone(start_ts, key)
                    continue
                record = encode_write(Write(lock.kind, start_ts, lock.short, lock.source))
                edits += [
                    (ColumnFamily.LOCK, encode_bytes(key), None),
                    (ColumnFamily.WRITE, mvcc_key(key, commit_ts), record),
                ]
                if op := _OPS.get(lock.kind):
                    changes.append(KvChange(LogType.COMMIT, key, start_ts, commit_ts, op, txn_source=lock.source))
            self._write(edits, changes)

    def rollback(self, keys: Iterable[bytes], start_ts: int) -> None:
        """Undo prewrites and refuse later ones of this transaction; the caller must not pass a committed key."""
        with self.guard:
            edits: list[Edit] = []
            changes: list[KvChange] = []
            for key in keys:
                outcome = self.outcome_of(key, start_ts)
                assert not isinstance(outcome, Committed), (key, start_ts, outcome)
                if outcome is None:
                    edits.append(
                        (ColumnFamily.WRITE, mvcc_key(key, start_ts), encode_write(Write(WriteKind.ROLLBACK, start_ts)))
                    )
                lock = self.lock_of(key)
                if lock and lock.start_ts == start_ts:
                    edits += [
                        (ColumnFamily.LOCK, encode_bytes(key), None),
                        (ColumnFamily.DATA, mvcc_key(key, start_ts), None),
                    ]
                    if op := _OPS.get(lock.kind):
                        changes.append(KvChange(LogType.ROLLBACK, key, start_ts, op=op, txn_source=lock.source))
            self._write(edits, changes)

    # --- the fate of others ---

    def check_status(self, primary: bytes, start_ts: int, now_ts: int) -> Status:
        """Return the status of a transaction, which is rolled back if its lock has expired at `now_ts` or was never
        there."""
        with self.guard:
            lock = self.lock_of(primary)
            if lock and lock.start_ts == start_ts:
                until_ms = physical_ms(start_ts) + lock.ttl_ms
                if physical_ms(now_ts) < until_ms:
                    return Alive(until_ms)
            elif outcome := self.outcome_of(primary, start_ts):
                return outcome
            self.rollback([primary], start_ts)
            return RolledBack()

    def heartbeat(self, primary: bytes, start_ts: int, ttl_ms: int) -> None:
        """Extend the TTL of a primary's lock to at least `ttl_ms` after its start. Raises TransactionGone."""
        with self.guard:
            lock = self.lock_of(primary)
            if lock is None or lock.start_ts != start_ts:
                raise TransactionGone(start_ts, primary)
            longer = lock._replace(ttl_ms=max(lock.ttl_ms, ttl_ms))
            self._write([(ColumnFamily.LOCK, encode_bytes(primary), encode_lock(longer))], [])

    def finish(self, key: bytes, start_ts: int, status: Committed | RolledBack) -> None:
        """Commit or roll back a key by the status of its transaction."""
        match status:
            case Committed(commit_ts):
                self.commit([key], start_ts, commit_ts)
            case RolledBack():
                self.rollback([key], start_ts)

    # --- garbage ---

    @property
    def safe_point(self) -> int:
        return self._safe_point

    def raise_safe_point(self, ts: int) -> None:
        """Forbid reads and prewrites below `ts`; the safe point never moves back."""
        with self.guard:
            if ts > self._safe_point:
                self._write([(ColumnFamily.META, _SAFE_POINT, b"%d" % ts)], [])
                self._safe_point = ts

    def _readable(self, ts: int) -> None:
        if ts < self._safe_point:
            raise HistoryCollected(ts, self._safe_point)

    # --- inside ---

    def lock_of(self, key: bytes) -> Lock | None:
        """Return the lock of a key, of any kind."""
        record = self.engine.get(ColumnFamily.LOCK, encode_bytes(key))
        return None if record is None else decode_lock(record)

    def outcome_of(self, key: bytes, start_ts: int) -> Committed | RolledBack | None:
        """Return the outcome of a transaction at a key by its WRITE column; a commit_ts is never below the start_ts."""
        for commit_ts, write in versions(self.engine, key):
            if commit_ts < start_ts:
                return None
            if write.start_ts == start_ts:
                return RolledBack() if write.kind is WriteKind.ROLLBACK else Committed(commit_ts)
        return None

    def _prepare(self, mutations: Sequence[Mutation], start_ts: int) -> list[tuple[Mutation, bytes | None]]:
        self._readable(start_ts)
        checked = [(mutation, self._check(mutation, start_ts)) for mutation in mutations]
        return [(mutation, old) for mutation, (old, new) in checked if new]

    def _check(self, mutation: Mutation, start_ts: int) -> tuple[bytes | None, bool]:
        key = mutation.key
        if lock := self.lock_of(key):
            if lock.start_ts == start_ts:
                return None, False
            raise _locked(key, lock)
        for commit_ts, write in versions(self.engine, key):
            if write.start_ts == start_ts:
                if write.kind is WriteKind.ROLLBACK:
                    raise TransactionGone(start_ts, key)
                return None, False
            if write.kind is WriteKind.ROLLBACK:
                continue
            if commit_ts > start_ts:
                raise WriteConflict(start_ts, write.start_ts, commit_ts, key)
            if write.kind is not WriteKind.LOCK:
                old = value_of(self.engine, key, write)
                break
        else:
            old = None
        return old, True

    def _write(self, edits: list[Edit], changes: list[KvChange]) -> None:
        if edits:
            self.engine.write(edits)
        if changes:
            for observer in self.observers:
                observer(changes)


def _locked(key: bytes, lock: Lock) -> KeyLocked:
    return KeyLocked(key, lock.primary, lock.start_ts, lock.ttl_ms)


def _split_value(mutation: Mutation) -> tuple[bytes | None, bytes | None]:
    value = mutation.value
    if value is None or len(value) <= SHORT_BYTES:
        return value, None
    return None, value


def _data(key: bytes, start_ts: int, long: bytes | None) -> list[Edit]:
    return [] if long is None else [(ColumnFamily.DATA, mvcc_key(key, start_ts), long)]


def _changes(
    what: LogType, prepared: list[tuple[Mutation, bytes | None]], start_ts: int, commit_ts: int = 0, source: int = 0
) -> list[KvChange]:
    return [
        KvChange(what, mutation.key, start_ts, commit_ts, _OPS[mutation.kind], mutation.value, old, source)
        for mutation, old in prepared
        if mutation.kind in _OPS
    ]


def collect_garbage(store: Store, safe_point: int, now_ts: int) -> int:
    """Raise the safe point and remove older versions; return the number of removed records.

    Raises KeyLocked, before anything is removed, if a transaction that began at or before `safe_point` is alive.
    """
    with store.guard:
        for key, lock in store.locks():
            if lock.start_ts <= safe_point:
                status = store.check_status(lock.primary, lock.start_ts, now_ts)
                if isinstance(status, Alive):
                    raise KeyLocked(key, lock.primary, lock.start_ts, lock.ttl_ms)
                store.finish(key, lock.start_ts, status)
        store.raise_safe_point(safe_point)
        edits = _garbage(store, safe_point)
        store.engine.write(edits)
    return sum(column is ColumnFamily.WRITE for column, _, _ in edits)


def _garbage(store: Store, safe_point: int) -> list[Edit]:
    edits: list[Edit] = []
    stored = (
        (stored_key, *split_mvcc_key(stored_key), record)
        for stored_key, record in store.engine.scan(ColumnFamily.WRITE, b"")
    )
    for key, group in groupby(stored, key=lambda item: item[1]):
        seen = False
        for stored_key, _, commit_ts, record in group:
            if (commit_ts or 0) > safe_point:
                continue
            write = decode_write(record)
            lives = not seen and write.kind is WriteKind.PUT
            seen = seen or write.kind in (WriteKind.PUT, WriteKind.DELETE)
            if not lives:
                edits.append((ColumnFamily.WRITE, stored_key, None))
                if write.kind is WriteKind.PUT and write.short is None:
                    edits.append((ColumnFamily.DATA, mvcc_key(key, write.start_ts), None))
    return edits
