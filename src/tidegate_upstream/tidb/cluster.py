"""A TiDB in one process: a store, its nodes, their registry, and the owner among them, advanced in small steps.

    moves()    node n1 reloads │ node n2 campaigns │ the owner advances job 304        the possible next moves
    tick()     the first of them, or the one that a test chooses                       one transaction

    Cluster.open()                      in memory             cluster.ddl_client.run(request)    until the job is over
    Cluster.open(directory)             SQLite, one process   cluster.start_thread()   ticks in the background

Nodes without the newest version come first, then the job that has waited longest.  With a clock that only tests
advance, `ddl_client.run` raises an error that names what a job waits for if no move can advance it.

Source: TiDB pkg/domain, pkg/owner.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from threading import Condition, Event, RLock, Thread
from typing import Final, NamedTuple, TypeAlias

from tidegate.model.errors import UpstreamError
from tidegate.model.tso import LOGICAL_BITS, physical_ms
from tidegate.schema.stored.definition import StoredTable
from tidegate.schema.stored.meta import Meta
from tidegate_upstream.change import step as step_rules
from tidegate_upstream.errors import KeyLocked
from tidegate_upstream.tidb.ddl_jobs import JobEntry, Registry, read_entries, table_ids
from tidegate_upstream.tidb.ddl_owner import DdlClient, Owner, Worker
from tidegate_upstream.tidb.ddl_step import BATCH_ROWS, Backfill, StepRules, Steps, delete_ranges
from tidegate_upstream.tidb.engine import KvEngine, MemoryEngine, MetaBound, SqliteEngine
from tidegate_upstream.tidb.metadata import FIRST_JOB_NUMBER, LOCK_INFO, bootstrap
from tidegate_upstream.tidb.node import Node, NodeOptions
from tidegate_upstream.tidb.store_mvcc import Store, collect_garbage
from tidegate_upstream.tidb.transaction import Options, Oracle, Storage

_POLL_S: Final = 0.05
_Definitions: TypeAlias = dict[int, StoredTable]
_YIELD_S: Final = 0.000_2
"""Pause between two ticks of the thread: a lock that is acquired again at once would starve other threads."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Options of a cluster. `error_limit`: number of errors after which a job is rolled back, if it can be."""

    nodes: NodeOptions = field(default_factory=NodeOptions)
    batch_rows: int = BATCH_ROWS
    error_limit: int = 512


class Move(NamedTuple):
    """A possible next move: "reload" or "campaign" of a node, "job" of the owner."""

    kind: str
    node: str
    job_id: int = 0

    def __str__(self) -> str:
        """`n1 job 304`."""
        return f"{self.node} {self.kind}" + (f" {self.job_id}" if self.job_id else "")


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Cluster:
    """Nodes, owner and clock of an embedded TiDB; tests set `failpoint` to let the owner die within a step."""

    def __init__(
        self,
        engine: KvEngine,
        now_ms: Callable[[], int] = _wall_ms,
        options: ClusterOptions | None = None,
        nodes: Sequence[str] = ("n1",),
        *,
        rules: StepRules | None = None,
        worker: Worker | None = None,
    ) -> None:
        self.options = options or ClusterOptions()
        self.engine, self.now_ms = engine, now_ms
        store = Store(engine)
        self.storage = Storage(store, Oracle(now_ms, MetaBound(engine)), Options())
        self.registry = Registry()
        self.guard = RLock()
        self.changed = Condition(self.guard)
        self.rules: StepRules = rules or step_rules
        self.worker: Worker = worker or Backfill(self._now, self.options.batch_rows)
        self.failpoint: Callable[[str], None] = lambda _name: None
        self.nodes: dict[str, Node] = {}
        self.ddl_client = DdlClient(self)
        self._versions: dict[int, dict[int, _Definitions]] = {}
        self._acted: dict[int, int] = {}
        self._thread: Thread | None = None
        self._stop = Event()
        bootstrap(self.storage)
        self._numbers = count(FIRST_JOB_NUMBER + len(Meta(self.storage.snapshot()).history()))
        for name in nodes:
            self.add_node(name)

    @classmethod
    def open(
        cls,
        directory: Path | None = None,
        *,
        now_ms: Callable[[], int] = _wall_ms,
        options: ClusterOptions | None = None,
        nodes: Sequence[str] = ("n1",),
    ) -> "Cluster":
        """Return a cluster over a directory, or in memory. Raises StoreUnavailable."""
        return cls(MemoryEngine() if directory is None else SqliteEngine(directory), now_ms, options, nodes)

    def close(self) -> None:
        """Stop the thread and the nodes, and close the files."""
        self.stop_thread()
        for node in list(self.nodes.values()):
            node.leave()
        self.engine.close()

    # --- nodes ---

    def add_node(self, name: str) -> Node:
        """Return a new node, or a restarted one if it was killed."""
        with self.guard:
            node = self.nodes[name] = Node(name, self.storage, self.registry, self.options.nodes, self.ddl_client)
        return node

    def kill(self, name: str) -> None:
        """Kill a node; the others wait until its session expires."""
        with self.guard:
            self.nodes.pop(name).kill()

    @property
    def node(self) -> Node:
        return next(iter(self.nodes.values()))

    @property
    def clock_ms(self) -> int:
        return physical_ms(self.storage.oracle.next())

    def collect_garbage(self, life_ms: int) -> tuple[int, int]:
        """Remove versions older than `life_ms`, than every open transaction and than the tidb_snapshot of every session
        that is not older than tidb_gc_max_wait_time; return (versions, delete ranges) removed.

        Raises KeyLocked, before anything is removed, if an older transaction is still alive.
        """
        store, oracle = self.storage.store, self.storage.oracle
        safe_point = (self.clock_ms - life_ms) << LOGICAL_BITS
        for node in self.nodes.values():
            snapshots = [transaction.start_ts for transaction in node.open_transactions]
            with node.guard:
                sessions = list(node.sessions)
            snapshots += [ts for session in sessions if (ts := session.held_ts)]
            safe_point = min([safe_point, *(ts - 1 for ts in snapshots)])
        if safe_point <= store.safe_point:
            return 0, 0
        versions = collect_garbage(store, safe_point, oracle.next())
        return versions, delete_ranges(self.storage, safe_point)

    # --- moves ---

    def moves(self) -> list[Move]:
        """Return the possible moves, the most useful first."""
        with self.guard:
            now_ms = self.clock_ms
            moves = [Move("reload", name) for name, node in self.nodes.items() if self._is_behind(node, now_ms)]
            owner = self.registry.owner(now_ms)
            if owner is None or owner not in self.nodes:
                return [*moves, *(Move("campaign", name) for name in self._candidates(owner, now_ms))]
            ready = sorted(self.owner_of(owner).ready(), key=lambda job_id: self._acted.get(job_id, 0))
            return [*moves, *(Move("job", owner, job_id) for job_id in ready)]

    def tick(self, choice: int | None = None) -> Move | None:
        """Make one move and return it: the first, or number `choice` (modulo their count). None if there is none."""
        with self.guard:
            moves: list[Move] = []
            with suppress(KeyLocked):
                moves = self.moves()
            if not moves:
                return None
            for move in [moves[choice % len(moves)]] if choice is not None else moves:
                if self.act(move):
                    self.check()
                    self.changed.notify_all()
                    return move
            return moves[0] if choice is not None else None

    def act(self, move: Move) -> bool:
        """Make a move; return whether it had an effect."""
        node = self.nodes[move.node]
        if move.kind == "campaign":
            return self.registry.campaign(move.node, self.clock_ms)
        if move.kind == "job":
            self._acted[move.job_id] = max(self._acted.values(), default=0) + 1
            return self.owner_of(move.node).act(move.job_id)
        before = (node.version, node.valid_until_ms, str(self.registry.locks))
        with suppress(UpstreamError):
            node.reload()
        return before != (node.version, node.valid_until_ms, str(self.registry.locks))

    def owner_of(self, name: str) -> Owner:
        """Return the owner's work of a node that is the owner, or believes so."""
        steps = Steps(
            self.storage,
            name,
            self.rules,
            metadata_lock=self.options.nodes.metadata_lock,
            failpoint=self.failpoint,
        )
        return Owner(self.storage, self.registry, steps, self.worker, self._numbers.__next__, self.options.error_limit)

    def waits_for(self, entry: JobEntry) -> list[str]:
        return self.owner_of("").waits_for(entry, self.clock_ms)

    def _candidates(self, owner: str | None, now_ms: int) -> list[str]:
        return [] if owner is not None else [name for name in self.registry.alive(now_ms) if name in self.nodes]

    def _is_behind(self, node: Node, now_ms: int) -> bool:
        """Return whether a reload would change anything: version, lease, or a requested report."""
        if now_ms > node.valid_until_ms - node.options.lease_ms // 2:
            return True
        reader = self.storage.snapshot()
        meta = Meta(reader)
        newest = meta.version
        if node.version < newest - (meta.diff(newest) is None):
            return True
        requests = LOCK_INFO.rows(reader, self.registry.first_job) if node.options.metadata_lock else ()
        return any(
            self.registry.locks.get(job_id, {}).get(node.name, 0) < _number(row["version"]) for job_id, row in requests
        )

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock_ms / 1000, UTC)

    def check(self) -> None:
        """Assert that for each job all nodes that can commit are at most one step apart."""
        now_ms = self.clock_ms
        entries = list(read_entries(self.storage.snapshot(), self.registry.first_job))
        self._acted = {entry.job.id: self._acted.get(entry.job.id, 0) for entry in entries}
        self._versions = {entry.job.id: self._versions.get(entry.job.id, {}) for entry in entries}
        for entry in entries:
            versions = self._versions[entry.job.id]
            if entry.progress.version and entry.progress.version not in versions:
                versions[entry.progress.version] = self._definitions(entry)
            if len(versions) > 1:
                before = list(versions)[-2]
                for node in self.nodes.values():
                    with node.guard:
                        transactions = node.open_transactions if node.options.metadata_lock else []
                        older = any(  # may still commit into a table that is another by then
                            transaction.uses((number,)) and transaction.schema.tables[number].stored != table
                            for transaction in transactions
                            if transaction.schema_version < before and not transaction.doomed
                            for number, table in versions[before].items()
                            if number in transaction.schema.tables
                        )
                    fine = node.version >= before and not older
                    assert not node.has_lease(now_ms) or fine, (entry, list(versions), node)

    def _definitions(self, entry: JobEntry) -> _Definitions:
        meta = Meta(self.storage.snapshot())
        pairs = [(schema.id, number) for schema in meta.schemas() for number in table_ids(entry.request)]
        return {number: table for schema_id, number in pairs if (table := meta.table(schema_id, number)) is not None}

    # --- a thread of its own ---

    def has_thread(self) -> bool:
        """Return whether the background thread runs; False once it has failed."""
        return self._thread is not None and self._thread.is_alive()

    def start_thread(self) -> None:
        """Tick in a background thread until `stop_thread` or `close`."""
        if self._thread is None:
            self._stop.clear()
            self._thread = Thread(target=self._loop, name="tidb-ddl", daemon=True)
            self._thread.start()

    def stop_thread(self) -> None:
        """Stop the background thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.set()
            with self.guard:
                self.changed.notify_all()
            while thread.is_alive():  # in slices: an untimed wait may miss a signal
                thread.join(_POLL_S)

    def _loop(self) -> None:
        while not self._stop.is_set():
            with self.guard:
                if self.tick() is None and not self._stop.is_set():
                    self.changed.wait(_POLL_S)
            time.sleep(_YIELD_S)


def _number(value: object) -> int:
    assert isinstance(value, int), value
    return value
