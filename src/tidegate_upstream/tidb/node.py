"""A node: a schema version of its own, a lease on it, and the transactions that run under it.

    reload at 1000     version 181, valid until 46000        the session lives until 61000: nobody counts on it after
    reload at 3000     version 182 by Diff:182               transactions open since before keep 181
    no reload          at 46001 nothing commits (8027)       at 61001 the owner waits for this node no more

A node reports a version without metadata locks as soon as it has it, since its older transactions cannot commit into a
changed table; with them, once no open transaction uses the job's tables under an older one.

Source: TiDB pkg/domain (schema validator, metadata lock loop), pkg/infoschema.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Final, TypeAlias
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
    """Return the id of the table or partition that a key belongs to; None for keys of no table."""
    if key[:1] != _TABLE or len(key) < PREFIX_BYTES:
        return None
    return decode_int(key, 1)[0]


def physical_ids(keys: Iterable[bytes]) -> set[int]:
    """Return the ids of tables and partitions that own some of the keys."""
    prefixes = {key[:PREFIX_BYTES] for key in keys}
    return {number for prefix in prefixes if (number := physical_id(prefix)) is not None}


def changed_tables(begun: StoredSnapshot, now: StoredSnapshot, ids: Iterable[int]) -> list[int]:
    """Return which of the ids belong to another definition, or to none any more, or only now to one."""
    if begun is now:
        return []
    return sorted(number for number in ids if _differs(begun, now, number))


def _differs(begun: StoredSnapshot, now: StoredSnapshot, number: int) -> bool:
    old, new = begun.table_of(number) or begun.tables.get(number), now.table_of(number) or now.tables.get(number)
    if old is new:
        return False
    return old is None or new is None or old.stored != new.stored


_PAST_SCHEMAS: Final = 16
"""Schemas of the past that a node keeps for tidb_snapshot reads."""


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """How nodes keep up with the schema. `session_ms` is how long after its last reload a node may count as alive; its
    lease ends no later.  `reload_on_begin`: a transaction first renews a lease that is half over."""

    metadata_lock: bool = True
    lease_ms: int = 45_000
    session_ms: int = 60_000
    reload_on_begin: bool = True
    transactions: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        assert 0 < self.lease_ms <= self.session_ms, self


_Asked: TypeAlias = tuple[int, int, frozenset[int]]
"""A job, a version, and the tables of the job."""


def _asked(row: Mapping[str, KvValue]) -> _Asked:
    job_id, version, text = row["job_id"], row["version"], row["table_ids"]
    assert isinstance(job_id, int), row
    assert isinstance(version, int), row
    assert isinstance(text, bytes), row
    return job_id, version, frozenset(int(number) for number in text.split(b",") if number)


class GuardedTransaction(Transaction):
    """A transaction of a node: `schema` holds for all its statements. Raises SchemaChanged, SchemaOutdated."""

    def __init__(self, node: "Node", storage: Storage, options: Options, loaded: LoadedSchema) -> None:
        super().__init__(storage, replace(options, check=self._admit))
        self.node, self.schema, self.schema_version = node, loaded.snapshot, loaded.version
        self.used: set[int] = set()
        self._known: set[bytes] = set()
        self.doomed = False
        """Set when its node lost its lease meanwhile: nobody waited for this transaction."""

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
        """Return the commit stage by stage; at its end, or wherever it is left, the node forgets the transaction."""
        try:
            yield from super().steps()
        finally:
            self.node.over(self)

    def rollback(self) -> None:
        """Forget everything."""
        super().rollback()
        self.node.over(self)

    def uses(self, table_ids: Iterable[int]) -> bool:
        """Return whether it touched one of the tables, itself or a partition."""
        logical = {self.schema.logical.get(number, number) for number in self.used}
        return not self.used.isdisjoint(table_ids) or not logical.isdisjoint(table_ids)

    def _use(self, key: bytes) -> None:
        prefix = key[:PREFIX_BYTES]
        if prefix in self._known:
            return
        number = physical_id(prefix)
        if number is not None:
            self._lock(number)
        self._known.add(prefix)

    def _lock(self, number: int) -> None:
        """Count as a user of a table from now on. Raises SchemaChanged with metadata locks."""
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
                    f"no lease at commit_ts {commit_ts} of start_ts {start_ts}; begin anew"
                )
            if self.node.options.metadata_lock:
                return
            if changed := changed_tables(self.schema, self.node.schema, physical_ids(keys)):
                raise self._changed(changed)

    def _changed(self, changed: list[int]) -> SchemaChanged:
        version = self.node.loaded.version
        return SchemaChanged(
            f"Information schema is changed in the transaction of start_ts {self.start_ts}: tables {changed} are of "
            f"version {version}, it began under {self.schema_version}; begin anew"
        )


class Node:
    """One SQL node; `guard` is held for moments only. `ddl_client` takes DDL jobs and knows of all of them."""

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
        found = self._past.get(ts)
        if found is None:
            found = self._past[ts] = load_all(Meta(self.storage.snapshot(ts)), ts).snapshot
            while len(self._past) > _PAST_SCHEMAS:
                self._past.popitem(last=False)
        return found

    def reload(self) -> bool:
        """Take the newest version, renew the lease, and report; whether the version is another one.

        Raises KeyLocked where a step is half committed: the lease is not renewed then.
        """
        if not self.alive:
            return False
        with self._reloading:
            ts = self.storage.oracle.next()
            reader = self.storage.snapshot(ts)
            loaded = load(Meta(reader), ts, self.loaded if self.loaded.version else None)
            rows = LOCK_INFO.rows(reader, self.registry.first_job) if self.options.metadata_lock else ()
            asked = [_asked(row) for _, row in rows]
            return self._take(loaded, physical_ms(ts), asked)

    def _take(self, loaded: LoadedSchema, now_ms: int, asked: list[_Asked]) -> bool:
        with self.guard:
            if now_ms > self.valid_until_ms:
                for transaction in self._open:
                    transaction.doomed = True
            changed = loaded.version != self.loaded.version
            self.loaded = loaded
            self.valid_until_ms = now_ms + self.options.lease_ms
            self.registry.renew(self.name, now_ms + self.options.session_ms, loaded.version)
            for job_id, version, table_ids in asked:
                older = [one for one in self._open if one.schema_version < version and one.uses(table_ids)]
                if loaded.version >= version and not older:
                    self.registry.report(job_id, self.name, version)
        return changed

    def has_lease(self, now_ms: int) -> bool:
        """Return whether transactions can commit at that time."""
        return self.alive and now_ms <= self.valid_until_ms

    # --- transactions ---

    def begin(self, options: Options | None = None) -> GuardedTransaction:
        """Return a transaction under the schema of now. Raises SchemaOutdated when the lease ran out and cannot be
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

    def over(self, transaction: GuardedTransaction) -> None:
        """A transaction ended, one way or the other."""
        with self.guard:
            self._open.discard(transaction)

    @property
    def open_transactions(self) -> list[GuardedTransaction]:
        """What has begun and not ended, oldest first."""
        with self.guard:
            return sorted(self._open, key=lambda one: one.start_ts)

    # --- the end ---

    def kill(self) -> None:
        """Stop at once: what was open is lost, and the session runs out by itself."""
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
