"""Transactions with snapshot isolation, the timestamp oracle, and snapshots that resolve the locks of dead clients.

    begin         start_ts from the oracle                            reads: buffer first, then the snapshot
    PREWRITTEN    every key is locked, batch by batch, primary first  after a crash: rolled back once the ttl is over
    CHECKED       commit_ts from the oracle, the check has passed     the same
    DECIDED       the primary is committed                            after a crash: readers roll it forward
    DONE          the other keys are committed

- Reads see start_ts; of two overlapping transactions that write one key, one fails (9007).  Two that read what the
  other writes may both commit (write skew), as in TiDB.
- The check (schema versions, lease) comes after commit_ts is known, since that decides which schema must hold.
- An error before DECIDED rolls back the prewritten keys, then goes to the caller.  After DECIDED nothing fails: readers
  that meet locks of uncommitted keys finish them.
- A commit has one phase if that is allowed and everything fits one batch: no lock is ever visible.
- `steps` yields the stages one by one, so that a test can abandon a transaction at any of them.

The oracle's timestamps increase strictly, across restarts and clocks that go back:

    clock      100      100      100       99      500
    physical   100      100      100      100      500        max(clock, last physical)
    logical      0        1        2        3        0        counts within one physical ms; 2**18 fit
    bound     3100     3100     3100     3100     3500        on disk, at least as high as any returned timestamp

Before it returns a physical part above the bound, a bound WINDOW_MS ahead becomes durable.  After a restart it begins
one millisecond above the bound.

A snapshot that meets a lock cannot read the key until the lock's transaction is decided, so it checks the state of the
primary:

    get / scan ── KeyLocked? ── state of the primary ──┬─ committed, rolled back: finish the key, read again
                                                       └─ alive: KeyLocked goes to the caller, who may retry

Source: Percolator; client-go's twoPhaseCommitter, snapshot and lock resolver; TiDB's txn-entry-size-limit,
txn-total-size-limit and oracle package; PD's tso allocator (saved upper bound, update interval 3 s).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import islice
from threading import Lock
from typing import Final, TypeAlias, TypeVar, cast

from tidegate.model.errors import StoreUnavailable, UnsupportedError, UpstreamError
from tidegate.model.tso import LOGICAL_BITS, Tso, physical_ms
from tidegate_upstream.errors import EntryTooLarge, KeyLocked, SnapshotTooOld, TransactionTooLarge
from tidegate_upstream.tidb.engine import MetaBound
from tidegate_upstream.tidb.store_mvcc import Alive, Mutation, Store, WriteKind

WINDOW_MS: Final = 3_000
"""Distance of the bound from the clock: one durable write every three seconds, and at most that leap at a start."""


class Oracle:
    """The timestamp oracle, thread-safe. `now_ms` is the clock, in ms since the Unix epoch."""

    def __init__(self, now_ms: Callable[[], int], bound: MetaBound) -> None:
        self._now_ms, self._bound, self._lock = now_ms, bound, Lock()
        self._bound_ms = bound.load()
        self._last = (self._bound_ms + 1 << LOGICAL_BITS) - 1

    def next(self) -> Tso:
        """Return a timestamp above all that this and earlier processes returned."""
        return self.batch(1)[0]

    def batch(self, count: int) -> Sequence[Tso]:
        """Return `count` consecutive timestamps, at least one."""
        assert count > 0, count
        with self._lock:
            first = max(self._last + 1, self._now_ms() << LOGICAL_BITS)
            last = first + count - 1
            if physical_ms(last) > self._bound_ms:
                bound_ms = physical_ms(last) + WINDOW_MS
                self._bound.save(bound_ms)
                self._bound_ms = bound_ms
            self._last = last
        return cast("Sequence[Tso]", range(first, last + 1))

    @property
    def newest(self) -> Tso:
        """The newest timestamp returned so far; after a start, the timestamp below the first."""
        with self._lock:
            return Tso(self._last)


SCAN_KEYS: Final = 256
"""Keys per call of the store, which is locked meanwhile (TiDB's scan batch)."""

T = TypeVar("T")


def settle(store: Store, oracle: Oracle, locked: KeyLocked) -> bool:
    """Resolve a lock that a read met; False if its transaction is still alive."""
    with store.guard:
        status = store.check_status(locked.primary, locked.lock_ts, oracle.next())
        if isinstance(status, Alive):
            return False
        store.finish(locked.key, locked.lock_ts, status)
    return True


def settle_dead(store: Store, oracle: Oracle) -> int:
    """Resolve the locks of finished and dead transactions; return their number.

    TiCDC does so if its resolved ts does not advance: a lock holds it back."""
    locks = [KeyLocked(key, lock.primary, lock.start_ts, lock.ttl_ms) for key, lock in store.locks()]
    return sum(settle(store, oracle, locked) for locked in locks)


class StoreSnapshot:
    """The store at `ts`, which must not be beyond the oracle's newest timestamp."""

    def __init__(self, store: Store, oracle: Oracle, ts: int) -> None:
        assert ts <= oracle.newest, (ts, oracle.newest)
        self.store, self.oracle, self.ts = store, oracle, ts

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key. Raises KeyLocked, HistoryCollected."""
        return self._past_locks(lambda: self.store.get(key, self.ts))

    def scan(self, start: bytes, end: bytes = b"", *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Return keys of [start, end) with values, in order or backwards; an empty `end` is no bound."""
        while True:
            read = partial(self.store.scan, start, end, self.ts, limit=SCAN_KEYS, reverse=reverse)
            page = self._past_locks(read)
            yield from page
            if len(page) < SCAN_KEYS:
                return
            last = page[-1][0]
            if reverse and not last:
                return
            start, end = (start, last) if reverse else (last + b"\0", end)

    def _past_locks(self, read: Callable[[], T]) -> T:
        while True:
            try:
                return read()
            except KeyLocked as locked:
                if not settle(self.store, self.oracle, locked):
                    raise


CommitCheck: TypeAlias = Callable[[int, int, tuple[bytes, ...]], None]
"""Called with (start_ts, commit_ts, keys); raises an UpstreamError, such as SchemaChanged, to refuse the commit."""

_Entry: TypeAlias = tuple[WriteKind, bytes | None]


class Stage(Enum):
    """The stage of a commit."""

    PREWRITTEN = "a batch of keys is locked"
    CHECKED = "all keys are locked, commit_ts is known and allowed"
    DECIDED = "the primary is committed"
    DONE = "every key is committed"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of transactions. Sizes count keys with values, in bytes; `ttl_ms` is the lifetime of a lock after it was
    written, and that of the primary after each batch."""

    ttl_ms: int = 3_000
    batch_keys: int = 256
    one_phase: bool = True
    entry_bytes_max: int = 6 << 20
    total_bytes_max: int = 100 << 20
    check: CommitCheck | None = None


DEFAULT: Final = Options()


class Storage:
    """A store and its oracle, from which transactions and snapshots are created."""

    def __init__(self, store: Store, oracle: Oracle, options: Options = DEFAULT) -> None:
        self.store, self.oracle, self.options = store, oracle, options

    def begin(self, options: Options | None = None) -> "Transaction":
        """Return a transaction that starts now."""
        return Transaction(self, options or self.options)

    def snapshot(self, ts: int | None = None) -> StoreSnapshot:
        """Return the store at `ts`, by default now. Raises SnapshotTooOld, UnsupportedError for a future ts."""
        ts = self.oracle.next() if ts is None else ts
        if ts > self.oracle.newest:
            raise UnsupportedError(f"cannot read at the future ts {ts}, the newest is {self.oracle.newest}")
        if ts < self.store.safe_point:
            raise SnapshotTooOld(ts, self.store.safe_point)
        return StoreSnapshot(self.store, self.oracle, ts)


class Transaction:
    """Writes that become visible together, or never. Not thread-safe."""

    def __init__(self, storage: Storage, options: Options) -> None:
        self._store, self._oracle, self._options = storage.store, storage.oracle, options
        self.start_ts: int = self._oracle.next()
        self.commit_ts: int | None = None
        self.source = 0
        """The write source that change capture sees: LOSSY_DDL, the number of a replication,
        or 0."""
        self._snapshot = StoreSnapshot(self._store, self._oracle, self.start_ts)
        self._buffer: dict[bytes, _Entry] = {}
        self._undo: list[tuple[bytes, _Entry | None]] = []
        self._sorted: list[bytes] | None = None
        self._bytes = 0
        self._open = True

    # --- reading ---

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key as this transaction sees it. Raises KeyLocked, HistoryCollected."""
        kind, value = self._buffer.get(key, (WriteKind.LOCK, None))
        return self._snapshot.get(key) if kind is WriteKind.LOCK else value

    def scan(self, start: bytes, end: bytes = b"", *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        mine = self._buffered(start, end, reverse=reverse)
        committed = self._snapshot.scan(start, end, reverse=reverse)
        stored = next(committed, None)
        for key, (kind, value) in mine:
            while stored and (stored[0] > key if reverse else stored[0] < key):
                yield stored
                stored = next(committed, None)
            if kind is WriteKind.LOCK:
                continue
            if stored and stored[0] == key:
                stored = next(committed, None)
            if value is not None:
                yield key, value
        if stored:
            yield stored
            yield from committed

    # --- writing ---

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key. Raises EntryTooLarge, TransactionTooLarge."""
        self._set(key, (WriteKind.PUT, value))

    def delete(self, key: bytes) -> None:
        """Remove a key, whether it exists or not."""
        self._set(key, (WriteKind.DELETE, None))

    def lock(self, key: bytes) -> None:
        """Fail at commit if another transaction commits the key meanwhile; writes nothing."""
        if key not in self._buffer:
            self._set(key, (WriteKind.LOCK, None))

    def savepoint(self) -> int:
        """Return a mark of the writes so far."""
        return len(self._undo)

    def restore(self, savepoint: int) -> None:
        """Discard the writes after a mark."""
        while len(self._undo) > savepoint:
            key, was = self._undo.pop()
            undone = self._buffer.pop(key)
            self._bytes -= _size(key, undone)
            if was is not None:
                self._buffer[key] = was
                self._bytes += _size(key, was)
        self._sorted = None

    # --- the end ---

    def rollback(self) -> None:
        """Discard all writes; nothing has reached the store."""
        assert self._open, self.start_ts
        self._open = False

    def commit(self) -> int | None:
        """Make the writes visible; return the commit_ts, None if nothing was written.

        Raises WriteConflict, KeyLocked, TransactionGone (retry), HistoryCollected, errors of the check,
        StoreUnavailable.
        """
        for _ in self.steps():
            pass
        return self.commit_ts

    def steps(self) -> Iterator[Stage]:
        """Return the commit stage by stage; abandoning it half way is a crash."""
        assert self._open, self.start_ts
        self._open = False
        mutations = [Mutation(kind, key, value) for key, (kind, value) in sorted(self._buffer.items())]
        size = self._options.batch_keys
        batches = [mutations[start : start + size] for start in range(0, len(mutations), size)]
        if not batches:
            return
        if self._options.one_phase and len(batches) == 1:
            self._past_locks(partial(self._one_phase, mutations))
            yield Stage.DONE
            return
        yield from self._two_phases(batches)

    def _one_phase(self, mutations: list[Mutation]) -> None:
        def take_commit_ts() -> int:
            commit_ts = self._oracle.next()
            self._check(commit_ts, mutations)
            return commit_ts

        self.commit_ts = self._store.one_phase(mutations, self.start_ts, take_commit_ts, self.source)

    def _two_phases(self, batches: list[list[Mutation]]) -> Iterator[Stage]:
        primary = batches[0][0].key
        touched: list[bytes] = []
        told_ms = ttl_ms = self._ttl_ms()
        try:
            for batch in batches:
                if ttl_ms > told_ms + self._options.ttl_ms // 2:
                    self._store.heartbeat(primary, self.start_ts, ttl_ms)
                    told_ms = ttl_ms
                touched += [mutation.key for mutation in batch]
                self._past_locks(partial(self._store.prewrite, batch, primary, self.start_ts, ttl_ms, self.source))
                yield Stage.PREWRITTEN
                ttl_ms = self._ttl_ms()
            commit_ts = self._oracle.next()
            self._check(commit_ts, [mutation for batch in batches for mutation in batch])
            yield Stage.CHECKED
            self._store.commit([primary], self.start_ts, commit_ts)
        except UpstreamError:
            self._store.rollback(touched, self.start_ts)
            raise
        self.commit_ts = commit_ts
        yield Stage.DECIDED
        with suppress(StoreUnavailable):
            for start in range(1, len(touched), self._options.batch_keys):
                self._store.commit(touched[start : start + self._options.batch_keys], self.start_ts, commit_ts)
        yield Stage.DONE

    def _ttl_ms(self) -> int:
        """Return the TTL counted from the transaction's start, so that locks of a late commit live as long as any."""
        return physical_ms(self._oracle.next()) - physical_ms(self.start_ts) + self._options.ttl_ms

    def _check(self, commit_ts: int, mutations: list[Mutation]) -> None:
        if self._options.check:
            self._options.check(self.start_ts, commit_ts, tuple(mutation.key for mutation in mutations))

    def _past_locks(self, write: Callable[[], None]) -> None:
        while True:
            try:
                write()
            except KeyLocked as locked:
                if not settle(self._store, self._oracle, locked):
                    raise
            else:
                return

    # --- the buffer ---

    def _set(self, key: bytes, entry: _Entry) -> None:
        assert self._open, self.start_ts
        was = self._buffer.get(key)
        size = _size(key, entry)
        total = self._bytes + size - (_size(key, was) if was else 0)
        options = self._options
        if size > options.entry_bytes_max:
            raise EntryTooLarge(f"key {key.hex()}: {size} bytes, but only {options.entry_bytes_max} are allowed")
        if total > options.total_bytes_max:
            raise TransactionTooLarge(
                f"the transaction of start_ts {self.start_ts}: {total} bytes, but only {options.total_bytes_max} are "
                "allowed; use smaller transactions"
            )
        if was is None:
            self._sorted = None
        self._undo.append((key, was))
        self._buffer[key] = entry
        self._bytes = total

    def _buffered(self, start: bytes, end: bytes, *, reverse: bool) -> list[tuple[bytes, _Entry]]:
        """Return the buffered writes of [start, end), in order or backwards."""
        if self._sorted is None:
            self._sorted = sorted(self._buffer)
        keys = self._sorted
        selected = islice(keys, bisect_left(keys, start), bisect_left(keys, end) if end else len(keys))
        entries = [(key, self._buffer[key]) for key in selected]
        return entries[::-1] if reverse else entries


def _size(key: bytes, entry: _Entry) -> int:
    return len(key) + len(entry[1] or b"")
