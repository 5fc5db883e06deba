"""The MVCC store: Percolator's two phases over an engine, and reads at a timestamp.

    prewrite(k, start_ts)    LOCK[k] = P primary start_ts ttl            the value is there, nobody sees it
    commit(k, commit_ts)     LOCK[k] gone, WRITE[k ~commit_ts] = P       everybody from commit_ts on sees it
    rollback(k, start_ts)    LOCK[k] gone, WRITE[k ~start_ts]  = R       nobody ever will

The one write that decides a transaction is that of its primary key: committed there, committed everywhere.  Whoever
finds a lock asks at its primary (`check_status`) and finishes the lock as the answer says.

    lock of the primary, still young      Alive         wait
    lock of the primary, ttl over         rolled back now
    no lock, write record of start_ts     Committed, or rolled back
    neither                               rolled back now, so that a late prewrite fails

- A read at ts stops at a put or delete lock with start_ts <= ts (KeyLocked): its commit_ts may still fall below ts.
- A prewrite fails where something was committed after start_ts (WriteConflict), so no update is lost.
- A commit_ts must come from the oracle after the last prewrite.  One-phase commits take it under the store's lock.
- Calls are atomic, one batch of the engine each, and safe between threads; each but `one_phase` may be repeated.
- Observers hear of each batch after it is durable and before the next one, in order.

Source: Percolator; TiKV's prewrite, commit, rollback, check_txn_status and resolve_lock, without pessimistic locks.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import RLock
from typing import Final, NamedTuple, TypeAlias

from tidegate.kv.table_key import mvcc_key
from tidegate.model.errors import HistoryCollected, KeyLocked, TransactionGone, WriteConflict
from tidegate.model.kv_change import LOSSY_DDL, KvChange, KvOp, LogType
from tidegate.model.tso import physical_ms
from tidegate.mysql.memcomparable import decode_bytes, encode_bytes
from tidegate_upstream.tidb.store.engine import ColumnFamily, Edit, KvEngine
from tidegate_upstream.tidb.store.read import bound, value_at, value_of, values_in, versions
from tidegate_upstream.tidb.store.record import (
    SHORT_BYTES,
    Lock,
    Write,
    WriteKind,
    decode_lock,
    encode_lock,
    encode_write,
)

Observer: TypeAlias = Callable[[Sequence[KvChange]], None]
"""Called with what a batch did, while the store is locked: it may read the store, and must not write it."""

_OPS: Final = {WriteKind.PUT: KvOp.PUT, WriteKind.DELETE: KvOp.DELETE}
_SAFE_POINT: Final = b"gc/safe_point"


class Mutation(NamedTuple):
    """What a transaction wants of one key: PUT, DELETE or LOCK. `value` is for PUT."""

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
    """The transaction may still commit; its lock lives until `until_ms`, physical time."""

    until_ms: int


Status: TypeAlias = Committed | RolledBack | Alive


class Store:
    """Versions and locks of keys, in an engine that nobody else writes."""

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
            lock = self._lock_of(key)
            if lock and lock.start_ts <= ts and lock.kind in _OPS:
                raise _locked(key, lock)
            return value_at(self.engine, key, ts)

    def scan(
        self, start: bytes, end: bytes, ts: int, *, limit: int | None = None, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """At most `limit` keys of [start, end) at `ts` with values; an empty `end` is no bound.

        Raises KeyLocked for the first lock among the keys that it would give, HistoryCollected.
        """
        with self.guard:
            self._readable(ts)
            found = list(islice(values_in(self.engine, start, end, ts, reverse=reverse), limit))
            if found and limit is not None and len(found) == limit:
                last = found[-1][0]
                start, end = (last, end) if reverse else (start, last + b"\0")
            for key, lock in self.locks(start, end, reverse=reverse):
                if lock.start_ts <= ts:
                    raise _locked(key, lock)
            return found

    def deleted(self, key: bytes, ts: int) -> int | None:
        """Return the start_ts of whoever made the newest delete of a key by `ts`; None where there is none."""
        with self.guard:
            found = (write.start_ts for _, write in versions(self.engine, key, ts) if write.kind is WriteKind.DELETE)
            return next(found, None)

    def source(self, key: bytes, ts: int) -> int:
        """Return what the write was for that gave a key its value at `ts`; a rewrite of the value by a DDL is none."""
        with self.guard:
            found = (write.source for _, write in versions(self.engine, key, ts) if write.kind is WriteKind.PUT)
            return next((source for source in found if source < LOSSY_DDL), 0)

    def locks(self, start: bytes = b"", end: bytes = b"", *, reverse: bool = False) -> list[tuple[bytes, Lock]]:
        """Return the put and delete locks of keys in [start, end)."""
        with self.guard:
            stored = self.engine.scan(ColumnFamily.LOCK, encode_bytes(start), bound(end), reverse=reverse)
            found = [(decode_bytes(key)[0], decode_lock(record)) for key, record in stored]
            return [(key, lock) for key, lock in found if lock.kind in _OPS]

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
        """Commit all keys at once, or none, at the timestamp that `take_commit_ts` gives; what it raises passes on.

        It is called once nothing can go wrong any more but itself and the engine, with the store locked: no reader
        gets a timestamp at or above it before the keys are there. Raises what `prewrite` raises.
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
        """Make prewritten keys visible; keys that are committed already stay. Raises TransactionGone."""
        assert commit_ts > start_ts, (start_ts, commit_ts)
        with self.guard:
            edits: list[Edit] = []
            changes: list[KvChange] = []
            for key in keys:
                lock = self._lock_of(key)
                if lock is None or lock.start_ts != start_ts:
                    if not isinstance(self._outcome(key, start_ts), Committed):
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
        """Undo prewrites and keep later ones of this transaction out; a committed key is an error of the caller."""
        with self.guard:
            edits: list[Edit] = []
            changes: list[KvChange] = []
            for key in keys:
                outcome = self._outcome(key, start_ts)
                assert not isinstance(outcome, Committed), (key, start_ts, outcome)
                if outcome is None:
                    edits.append(
                        (ColumnFamily.WRITE, mvcc_key(key, start_ts), encode_write(Write(WriteKind.ROLLBACK, start_ts)))
                    )
                lock = self._lock_of(key)
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
        """Return what became of a transaction, decided here and now if its lock is too old at `now_ts` or was never
        there."""
        with self.guard:
            lock = self._lock_of(primary)
            if lock and lock.start_ts == start_ts:
                until_ms = physical_ms(start_ts) + lock.ttl_ms
                if physical_ms(now_ts) < until_ms:
                    return Alive(until_ms)
            elif outcome := self._outcome(primary, start_ts):
                return outcome
            self.rollback([primary], start_ts)
            return RolledBack()

    def heartbeat(self, primary: bytes, start_ts: int, ttl_ms: int) -> None:
        """Let the lock of a primary live until `ttl_ms` after its start, if that is longer. Raises TransactionGone."""
        with self.guard:
            lock = self._lock_of(primary)
            if lock is None or lock.start_ts != start_ts:
                raise TransactionGone(start_ts, primary)
            longer = lock._replace(ttl_ms=max(lock.ttl_ms, ttl_ms))
            self._write([(ColumnFamily.LOCK, encode_bytes(primary), encode_lock(longer))], [])

    def finish(self, key: bytes, start_ts: int, status: Committed | RolledBack) -> None:
        """Do to a key what was decided at the primary of its transaction."""
        match status:
            case Committed(commit_ts):
                self.commit([key], start_ts, commit_ts)
            case RolledBack():
                self.rollback([key], start_ts)

    # --- garbage ---

    @property
    def safe_point(self) -> int:
        """Below it versions may be gone; 0 until one was set."""
        return self._safe_point

    def raise_safe_point(self, ts: int) -> None:
        """Forbid reads and prewrites below `ts`; a lower one than before changes nothing."""
        with self.guard:
            if ts > self._safe_point:
                self._write([(ColumnFamily.META, _SAFE_POINT, b"%d" % ts)], [])
                self._safe_point = ts

    def _readable(self, ts: int) -> None:
        if ts < self._safe_point:
            raise HistoryCollected(ts, self._safe_point)

    # --- inside ---

    def _lock_of(self, key: bytes) -> Lock | None:
        record = self.engine.get(ColumnFamily.LOCK, encode_bytes(key))
        return None if record is None else decode_lock(record)

    def _outcome(self, key: bytes, start_ts: int) -> Committed | RolledBack | None:
        """What WRITE knows of a transaction at a key; a commit_ts is never below the start_ts."""
        for commit_ts, write in versions(self.engine, key):
            if commit_ts < start_ts:
                return None
            if write.start_ts == start_ts:
                return RolledBack() if write.kind is WriteKind.ROLLBACK else Committed(commit_ts)
        return None

    def _prepare(self, mutations: Sequence[Mutation], start_ts: int) -> list[tuple[Mutation, bytes | None]]:
        """The mutations that are not prewritten yet, each with the value that it replaces."""
        self._readable(start_ts)
        found = [(mutation, self._check(mutation, start_ts)) for mutation in mutations]
        return [(mutation, old) for mutation, (old, new) in found if new]

    def _check(self, mutation: Mutation, start_ts: int) -> tuple[bytes | None, bool]:
        """The old value of a key, and whether the mutation is still to be done."""
        key = mutation.key
        if lock := self._lock_of(key):
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
    """The value as (short, long), one of them None."""
    value = mutation.value
    if value is None or len(value) <= SHORT_BYTES:
        return value, None
    return None, value


def _data(key: bytes, start_ts: int, long: bytes | None) -> list[Edit]:
    return [] if long is None else [(ColumnFamily.DATA, mvcc_key(key, start_ts), long)]


def _changes(
    what: LogType, prepared: list[tuple[Mutation, bytes | None]], start_ts: int, commit_ts: int = 0, source: int = 0
) -> list[KvChange]:
    """The events of puts and deletes."""
    return [
        KvChange(what, mutation.key, start_ts, commit_ts, _OPS[mutation.kind], mutation.value, old, source)
        for mutation, old in prepared
        if mutation.kind in _OPS
    ]
