"""A TiDB in one process: a store, its nodes, their registry, and the owner among them, moved one small step at a time.

    moves()    node n1 reloads │ node n2 campaigns │ the owner does the next thing for job 304       who may act now
    tick()     the first of them, or the one that a test chooses                                     one transaction

    Cluster.open()                      in memory             cluster.ddl_client.run(request)    until the job is over
    Cluster.open(directory)             SQLite, one process   cluster.start_thread()   somebody ticks all the time

Nodes that have not the newest version come first, then the job that has waited longest.  With a clock that only tests
move, a job that waits for something else than a move makes `ddl_client.run` say for whom.

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
"""A pause between two ticks of the thread, since a lock that is taken again at once lets nobody else in."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How the parts behave. `error_limit`: errors after which a job that can be taken back is."""

    nodes: NodeOptions = field(default_factory=NodeOptions)
    batch_rows: int = BATCH_ROWS
    error_limit: int = 512


class Move(NamedTuple):
    """Something that may happen next: "reload" and "campaign" of a node, "job" by the owner."""

    kind: str
    node: str
    job_id: int = 0

    def __str__(self) -> str:
        """`n1 job 304`."""
        return f"{self.node} {self.kind}" + (f" {self.job_id}" if self.job_id else "")


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Cluster:
    """`reach` hears of places inside a step, where a test may let the owner die."""

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
        self.reach: Callable[[str], None] = lambda _place: None
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
        """Stop thread and nodes, and let go of the files."""
        self.stop_thread()
        for node in list(self.nodes.values()):
            node.leave()
        self.engine.close()

    # --- nodes ---

    def add_node(self, name: str) -> Node:
        """Return a new node, or another life of one that was killed."""
        with self.guard:
            node = self.nodes[name] = Node(name, self.storage, self.registry, self.options.nodes, self.ddl_client)
        return node

    def kill(self, name: str) -> None:
        """A node dies; the others wait until its session runs out."""
        with self.guard:
            self.nodes.pop(name).kill()

    @property
    def node(self) -> Node:
        return next(iter(self.nodes.values()))

    @property
    def clock_ms(self) -> int:
        return physical_ms(self.storage.oracle.next())

    def collect_garbage(self, life_ms: int) -> tuple[int, int]:
        """Forget what is older than `life_ms` and than every open transaction; (versions, delete ranges) that went.

        Raises KeyLocked, before anything is removed, when a transaction from before then still lives.
        """
        store, oracle = self.storage.store, self.storage.oracle
        safe_point = (self.clock_ms - life_ms) << LOGICAL_BITS
        for node in self.nodes.values():
            safe_point = min([safe_point, *(one.start_ts - 1 for one in node.open_transactions)])
        if safe_point <= store.safe_point:
            return 0, 0
        versions = collect_garbage(store, safe_point, oracle.next())
        return versions, delete_ranges(self.storage, safe_point)

    # --- moves ---

    def moves(self) -> list[Move]:
        """Return what may happen next, the most useful first."""
        with self.guard:
            now_ms = self.clock_ms
            found = [Move("reload", name) for name, node in self.nodes.items() if self._is_behind(node, now_ms)]
            owner = self.registry.owner(now_ms)
            if owner is None or owner not in self.nodes:
                return [*found, *(Move("campaign", name) for name in self._candidates(owner, now_ms))]
            ready = sorted(self.owner_of(owner).ready(), key=lambda job_id: self._acted.get(job_id, 0))
            return [*found, *(Move("job", owner, job_id) for job_id in ready)]

    def tick(self, choice: int | None = None) -> Move | None:
        """Return one move: the first, or number `choice` of them (modulo their count). None when nobody can do
        anything."""
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
        """Make a move; whether anything came of it."""
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
        """Return what a node does when it is the owner; also when it only believes so."""
        steps = Steps(
            self.storage,
            name,
            self.rules,
            metadata_lock=self.options.nodes.metadata_lock,
            reach=self.reach,
        )
        return Owner(self.storage, self.registry, steps, self.worker, self._numbers.__next__, self.options.error_limit)

    def waits_for(self, entry: JobEntry) -> list[str]:
        return self.owner_of("").waits_for(entry, self.clock_ms)

    def _candidates(self, owner: str | None, now_ms: int) -> list[str]:
        return [] if owner is not None else [name for name in self.registry.alive(now_ms) if name in self.nodes]

    def _is_behind(self, node: Node, now_ms: int) -> bool:
        """Whether a reload would change anything: version, lease, or a report that is asked for."""
        if now_ms > node.valid_until_ms - node.options.lease_ms // 2:
            return True
        reader = self.storage.snapshot()
        meta = Meta(reader)
        newest = meta.version
        if node.version < newest - (meta.diff(newest) is None):
            return True
        asked = LOCK_INFO.rows(reader, self.registry.first_job) if node.options.metadata_lock else ()
        return any(
            self.registry.locks.get(job_id, {}).get(node.name, 0) < _number(row["version"]) for job_id, row in asked
        )

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock_ms / 1000, UTC)

    def check(self) -> None:
        """Our own assertion: of each job no node that can commit is more than one step behind another."""
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
                            one.uses((number,)) and one.schema.tables[number].stored != table
                            for one in transactions
                            if one.schema_version < before and not one.doomed
                            for number, table in versions[before].items()
                            if number in one.schema.tables
                        )
                    fine = node.version >= before and not older
                    assert not node.has_lease(now_ms) or fine, (entry, list(versions), node)

    def _definitions(self, entry: JobEntry) -> _Definitions:
        meta = Meta(self.storage.snapshot())
        places = [(schema.id, number) for schema in meta.schemas() for number in table_ids(entry.request)]
        return {number: found for place, number in places if (found := meta.table(place, number)) is not None}

    # --- a thread of its own ---

    def has_thread(self) -> bool:
        """Return whether the background thread ticks; one that failed does not."""
        return self._thread is not None and self._thread.is_alive()

    def start_thread(self) -> None:
        """Tick in the background until `stop_thread` or `close`."""
        if self._thread is None:
            self._stop.clear()
            self._thread = Thread(target=self._loop, name="tidb-ddl", daemon=True)
            self._thread.start()

    def stop_thread(self) -> None:
        """End the background thread."""
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
