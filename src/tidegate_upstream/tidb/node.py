"""A node: its schema version, a lease on it, and the transactions that run under it.

    reload at 1000     version 181, valid until 46000        the session expires at 61000
    reload at 3000     version 182 by Diff:182               transactions that were open before keep 181
    no reload          at 46001 nothing commits (8027)       at 61001 the owner no longer waits for this node

A node reports a version without metadata locks as soon as it has it, since its older transactions cannot commit into a
changed table; with them, once no open transaction uses the job's tables under an older one.

Source: TiDB pkg/domain (schema validator, metadata lock loop), pkg/infoschema.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Final, Protocol, TypeAlias
from weakref import WeakSet

from tidegate.model.tso import physical_ms
from tidegate.mysql.column_value import KvValue
from tidegate.mysql.encoding import decode_int
from tidegate.schema.stored.meta import Meta
from tidegate.schema.stored.snapshot import LoadedSchema, StoredSnapshot, load, load_all
from tidegate_upstream.errors import KeyLocked, SchemaChanged, SchemaOutdated
from tidegate_upstream.tidb.ddl_jobs import Registry
from tidegate_upstream.tidb.ddl_owner import DdlClient
from tidegate_upstream.tidb.metadata import LOCK_INFO
from tidegate_upstream.tidb.store_mvcc import WriteKind
from tidegate_upstream.tidb.transaction import Options, Stage, Storage, Transaction

_TABLE: Final = b"t"
PREFIX_BYTES: Final = 9


def physical_id(key: bytes) -> int | None:
    """Return the id of a key's table or partition; None for other keys."""
    if key[:1] != _TABLE or len(key) < PREFIX_BYTES:
        return None
    return decode_int(key, 1)[0]


def physical_ids(keys: Iterable[bytes]) -> set[int]:
    """Return the ids of tables and partitions that own some of the keys."""
    prefixes = {key[:PREFIX_BYTES] for key in keys}
    return {number for prefix in prefixes if (number := physical_id(prefix)) is not None}


def changed_tables(begun: StoredSnapshot, now: StoredSnapshot, ids: Iterable[int]) -> list[int]:
    """Return the ids whose definition changed, was removed or was added."""
    if begun is now:
        return []
    return sorted(number for number in ids if _differs(begun, now, number))


def _differs(begun: StoredSnapshot, now: StoredSnapshot, number: int) -> bool:
    old, new = begun.table_of(number) or begun.tables.get(number), now.table_of(number) or now.tables.get(number)
    if old is new:
        return False
    return old is None or new is None or old.stored != new.stored


_PAST_SCHEMAS: Final = 16
"""Number of past schemas that a node caches for tidb_snapshot reads."""


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Schema lease of a node. `session_ms` is the time after its last reload at which a node's session expires; its
    lease ends no later.  `reload_on_begin`: a transaction first renews a lease that is half over."""

    metadata_lock: bool = True
    lease_ms: int = 45_000
    session_ms: int = 60_000
    reload_on_begin: bool = True
    transactions: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        assert 0 < self.lease_ms <= self.session_ms, self


_LockInfo: TypeAlias = tuple[int, int, frozenset[int]]
"""A job, a version, and the tables of the job."""


def _lock_info(row: Mapping[str, KvValue]) -> _LockInfo:
    job_id, version, text = row["job_id"], row["version"], row["table_ids"]
    assert isinstance(job_id, int), row
    assert isinstance(version, int), row
    assert isinstance(text, bytes), row
    return job_id, version, frozenset(int(number) for number in text.split(b",") if number)


class GuardedTransaction(Transaction):
    """A transaction of a node; all its statements use `schema`. Raises SchemaChanged, SchemaOutdated."""

    def __init__(self, node: "Node", storage: Storage, options: Options, loaded: LoadedSchema) -> None:
        super().__init__(storage, replace(options, check=self._admit))
        self.node, self.schema, self.schema_version = node, loaded.snapshot, loaded.version
        self.used: set[int] = set()
        self._seen_keys: set[bytes] = set()
        self.doomed = False
        """Set when its node lost its lease: the owner did not wait for this transaction."""

    def get(self, key: bytes) -> bytes | None:
        self._use(key)
        return super().get(key)

    def scan(self, start: bytes, end: bytes = b"", *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        self._use(start)
        return super().scan(start, end, reverse=reverse)

    def _set(self, key: bytes, entry: tuple[WriteKind, bytes | None]) -> None:
        self._use(key)
        super()._set(key, entry)

    def steps(self) -> Iterator[Stage]:
        """Return the commit stage by stage; the node forgets the transaction at its end, or when it is abandoned."""
        try:
            yield from super().steps()
        finally:
            self.node.forget(self)

    def rollback(self) -> None:
        """Discard all writes."""
        super().rollback()
        self.node.forget(self)

    def uses(self, table_ids: Iterable[int]) -> bool:
        """Return whether the transaction used one of the tables or a partition of it."""
        logical = {self.schema.logical.get(number, number) for number in self.used}
        return not self.used.isdisjoint(table_ids) or not logical.isdisjoint(table_ids)

    def _use(self, key: bytes) -> None:
        prefix = key[:PREFIX_BYTES]
        if prefix in self._seen_keys:
            return
        number = physical_id(prefix)
        if number is not None:
            self._lock(number)
        self._seen_keys.add(prefix)

    def _lock(self, number: int) -> None:
        """Register as a user of a table. Raises SchemaChanged with metadata locks."""
        with self.node.guard:
            if self.node.options.metadata_lock and (
                changed := changed_tables(self.schema, self.node.schema, (number,))
            ):
                raise self._changed(changed)
            self.used.add(number)

    def _admit(self, start_ts: int, commit_ts: int, keys: tuple[bytes, ...]) -> None:
        with self.node.guard:
            if self.doomed or physical_ms(commit_ts) > self.node.valid_until_ms:
                raise SchemaOutdated(
                    f"Information schema is out of date: node {self.node.name} has version {self.schema_version} and "
                    f"no lease at commit_ts {commit_ts} of start_ts {start_ts}; retry it"
                )
            if self.node.options.metadata_lock:
                return
            if changed := changed_tables(self.schema, self.node.schema, physical_ids(keys)):
                raise self._changed(changed)

    def _changed(self, changed: list[int]) -> SchemaChanged:
        version = self.node.loaded.version
        return SchemaChanged(
            f"Information schema is changed in the transaction of start_ts {self.start_ts}: tables {changed} are of "
            f"version {version}, it began under {self.schema_version}; retry it"
        )


class ReadsThePast(Protocol):
    """A session, as garbage collection sees it."""

    @property
    def held_ts(self) -> int:
        """The snapshot that is kept for it, idle as it may be; 0 for none."""


class Node:
    """A SQL node; `guard` is held only briefly. `ddl_client` submits DDL jobs."""

    def __init__(
        self, name: str, storage: Storage, registry: Registry, options: NodeOptions, ddl_client: DdlClient
    ) -> None:
        self.name, self.storage, self.registry, self.options = name, storage, registry, options
        self.ddl_client = ddl_client
        self.guard, self._reloading = RLock(), RLock()
        self.alive = True
        self.valid_until_ms = 0
        self.loaded = LoadedSchema(0, StoredSnapshot())
        self._open: WeakSet[GuardedTransaction] = WeakSet()
        self.sessions: WeakSet[ReadsThePast] = WeakSet()
        self._past: OrderedDict[int, StoredSnapshot] = OrderedDict()
        self.reload()

    # --- schema ---

    @property
    def schema(self) -> StoredSnapshot:
        return self.loaded.snapshot

    @property
    def version(self) -> int:
        return self.loaded.version

    def schema_at(self, ts: int) -> StoredSnapshot:
        """Return the definitions at `ts`, for reads of the past. Raises SnapshotTooOld, UnsupportedError."""
        snapshot = self._past.get(ts)
        if snapshot is None:
            snapshot = self._past[ts] = load_all(Meta(self.storage.snapshot(ts)), ts).snapshot
            while len(self._past) > _PAST_SCHEMAS:
                self._past.popitem(last=False)
        return snapshot

    def reload(self) -> bool:
        """Load the newest version, renew the lease, and report; return whether the version changed.

        Raises KeyLocked, without renewing the lease, while a step is half committed.
        """
        if not self.alive:
            return False
        with self._reloading:
            ts = self.storage.oracle.next()
            reader = self.storage.snapshot(ts)
            loaded = load(Meta(reader), ts, self.loaded if self.loaded.version else None)
            rows = LOCK_INFO.rows(reader, self.registry.first_job) if self.options.metadata_lock else ()
            requests = [_lock_info(row) for _, row in rows]
            return self._take(loaded, physical_ms(ts), requests)

    def _take(self, loaded: LoadedSchema, now_ms: int, requests: list[_LockInfo]) -> bool:
        with self.guard:
            if now_ms > self.valid_until_ms:
                for transaction in self._open:
                    transaction.doomed = True
            changed = loaded.version != self.loaded.version
            self.loaded = loaded
            self.valid_until_ms = now_ms + self.options.lease_ms
            self.registry.renew(self.name, now_ms + self.options.session_ms, loaded.version)
            for job_id, version, table_ids in requests:
                older = [begun for begun in self._open if begun.schema_version < version and begun.uses(table_ids)]
                if loaded.version >= version and not older:
                    self.registry.report(job_id, self.name, version)
        return changed

    def has_lease(self, now_ms: int) -> bool:
        """Return whether transactions can commit at that time."""
        return self.alive and now_ms <= self.valid_until_ms

    # --- transactions ---

    def begin(self, options: Options | None = None) -> GuardedTransaction:
        """Return a transaction under the current schema. Raises SchemaOutdated if the lease expired and cannot be
        renewed."""
        now_ms = physical_ms(self.storage.oracle.next())
        if self.options.reload_on_begin and now_ms > self.valid_until_ms - self.options.lease_ms // 2:
            with suppress(KeyLocked):
                self.reload()
        if not self.has_lease(now_ms):
            raise SchemaOutdated(
                f"Information schema is out of date: node {self.name} has version {self.version} and no lease since "
                f"{self.valid_until_ms} ms; it must reload first"
            )
        with self.guard:
            transaction = GuardedTransaction(self, self.storage, options or self.options.transactions, self.loaded)
            self._open.add(transaction)
        return transaction

    def forget(self, transaction: GuardedTransaction) -> None:
        """Forget a transaction that ended."""
        with self.guard:
            self._open.discard(transaction)

    @property
    def open_transactions(self) -> list[GuardedTransaction]:
        """Return the open transactions, oldest first."""
        with self.guard:
            return sorted(self._open, key=lambda transaction: transaction.start_ts)

    # --- the end ---

    def kill(self) -> None:
        """Stop at once: open transactions are lost, and the session expires by itself."""
        with self.guard:
            self.alive = False
            self.valid_until_ms = -1
            for transaction in self._open:
                transaction.doomed = True
            self._open.clear()

    def leave(self) -> None:
        """Stop in order."""
        self.kill()
        self.registry.leave(self.name)
