"""One seed, one life of a cluster: three nodes, their sessions, DDL of every kind, deaths, and a clock that is told.

step    what happens next is drawn by weight: a move of the cluster, a statement, a DDL, time, a death ..
after   F1's predicates for the definitions of all living nodes (predicates.py)
end     all comes to rest; SELECT shows what the model has, and what a change feed has made of the log
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace
from unittest.mock import patch

from tests.upstream.ddl.kit import LEASE_MS, SESSION_MS, Clock, Crash
from tests.upstream.simulate.allowed import DDL_ERRORS, JOB_ERRORS, MORE_ERRORS
from tests.upstream.simulate.client import Client
from tests.upstream.simulate.ddl import MODELLED, SETUP, Draw, public
from tests.upstream.simulate.dml import Change, draw_change
from tests.upstream.simulate.model import Model
from tests.upstream.simulate.predicates import faults, unknown_entries
from tests.upstream.simulate.replica import Replica
from tidegate.model.errors import SqlError, SqlRefused, UpstreamError
from tidegate.schema.job import JobState
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.stored.definition import StoredTable
from tidegate.schema.stored.meta import Meta
from tidegate_upstream.change.plan import plan
from tidegate_upstream.change.session import DdlSession
from tidegate_upstream.errors import KeyLocked
from tidegate_upstream.tidb import ddl_owner, session_state
from tidegate_upstream.tidb.cluster import Cluster, ClusterOptions
from tidegate_upstream.tidb.ddl_jobs import read_entries, read_entry
from tidegate_upstream.tidb.ddl_owner import error_of
from tidegate_upstream.tidb.ddl_step import delete_ranges
from tidegate_upstream.tidb.engine import MemoryEngine, SqliteEngine
from tidegate_upstream.tidb.node import Node, NodeOptions
from tidegate_upstream.tidb.store_mvcc import collect_garbage
from tidegate_upstream.tidb.transaction import Options

STEPS = 300
NODES = ("n1", "n2", "n3")
TTL_MS = 20
DROP_TABLE = 4
_OVER = (JobState.SYNCED, JobState.ROLLBACK_DONE, JobState.CANCELLED)


class Life:
    """`locks`: metadata locks on; `directory`: on SQLite there."""

    def __init__(self, seed: int, directory: Path | None = None) -> None:
        self.random, self.clock, self.trace = Random(seed), Clock(), [f"seed {seed}"]
        self.locks = self.random.random() < 0.5
        transactions = Options(TTL_MS, batch_keys=self.random.choice([2, 256]), one_phase=self.random.random() < 0.5)
        nodes = NodeOptions(self.locks, LEASE_MS, SESSION_MS, reload_on_begin=False, transactions=transactions)
        engine = MemoryEngine() if directory is None else SqliteEngine(directory)
        self.cluster = Cluster(engine, self.clock, ClusterOptions(nodes, batch_rows=2), NODES)
        self.model = Model()
        self.replica = Replica(self.cluster, self.model.column)
        self.clients: dict[tuple[str, int], Client] = {}
        self.frozen: dict[str, int] = {}
        self.fired: Counter[str] = Counter()
        self.crashes = 0.0
        self.step = 0
        self._checked: dict[int, StoredTable] = {}
        self._seen: dict[str, object] = {}
        self.cluster.failpoint = self._failpoint

    # --- the whole ---

    def run(self, steps: int = STEPS) -> "Life":
        """All steps, the end, and the comparisons."""
        with waiting(self.clock):
            self._set_up()
            self.crashes = 0.01
            actions = self._actions()
            weights = [weight for weight, _ in actions]
            for self.step in range(steps):
                self.random.choices([action for _, action in actions], weights)[0]()
                self.look()
            self._settle()
            self._compare()
        self.cluster.close()
        return self

    @property
    def digest(self) -> str:
        """A hash of all that happened."""
        return hashlib.blake2b("\n".join(self.trace).encode(), digest_size=8).hexdigest()

    def _actions(self) -> list[tuple[int, Callable[[], None]]]:
        return [
            (300, self.move),
            (190, self.work),
            (60, self.ddl),
            (6, self.cancel),
            (8, self.pass_time),
            (2, self.kill),
            (14, self.revive),
            (4, self.freeze),
            (4, self.die_in_commit),
            (4, self.collect),
            (3, self.follow),
        ]

    def _set_up(self) -> None:
        first = Client(self, self.cluster.node)
        first.session.execute("create database gd; use gd")
        for text in SETUP:
            first.session.execute(text)
        for node in self.cluster.nodes.values():
            node.reload()
        for name in ("t1", "t2", "t3", "p1", "x1"):
            first.start()
            for _ in range(4):
                first.change(draw_change(self.random, self._tables(self.cluster.node)[name]))
            first.end("COMMIT")
        self.look()

    def note(self, text: object) -> None:
        """One more line of the trace."""
        self.trace.append(f"{self.step} {text}")

    # --- what may happen ---

    def move(self) -> None:
        """One move of the cluster, in which the owner may die."""
        for _ in range(self.random.choice([1, 2, 3])):
            self._move()
            self.look()

    def _move(self) -> None:
        moves = [one for one in self.cluster.moves() if one.kind != "reload" or one.node not in self.frozen]
        if not moves:
            return
        weights = [1 if one.kind == "reload" else 3 for one in moves]
        chosen = self.random.choices(moves, weights)[0]
        self.note(chosen)
        entry = read_entry(self.cluster.storage.snapshot(), chosen.job_id) if chosen.job_id else None
        try:
            self.cluster.tick(self.cluster.moves().index(chosen))
        except Crash as place:
            self.note(place)
            self.fired[f"crash {place}"] += 1
            self._kill(chosen.node)
        for one in entry.request.involves if entry else ():
            self.dirty(one.table)

    def work(self) -> None:
        """A session begins, ends, or does something to rows."""
        name = self.random.choice([*self.cluster.nodes] or [""])
        if not name:
            return
        slot = (name, self.random.randrange(2))
        client = self.clients.get(slot)
        if client is None:
            client = self.clients[slot] = Client(self, self.cluster.nodes[name])
        roll = self.random.random()
        if client.view is None and roll < 0.3:
            client.start()
        elif client.view is not None and roll < 0.25:
            client.end("COMMIT" if roll < 0.22 else "ROLLBACK")
        else:
            tables = public(self._tables(client.session.node, client))
            if tables:
                client.change(draw_change(self.random, tables[self.random.choice(sorted(tables))]))

    def ddl(self) -> None:
        """One more job, if there are few."""
        if not self.cluster.nodes or len(list(read_entries(self.cluster.storage.snapshot()))) > 3:
            return
        node = self.cluster.nodes[self.random.choice([*self.cluster.nodes])]
        if node.name not in self.frozen and self.random.random() < 0.7:
            node.reload()
        tables = public(self._tables(node))
        if not tables:
            return
        gone = [
            job.table_name
            for job in node.ddl_client.history()
            if job.type == DROP_TABLE and job.state == JobState.SYNCED
        ]
        dropped = [name for name in dict.fromkeys(gone) if name not in tables]
        kind, text = Draw(self.random, tables, dropped).statement()
        try:
            for statement in parse_ddl(text, "gd"):
                planned = plan(statement, node.schema, DdlSession("gd", text, dropped=node.ddl_client.dropped))
                for request in planned.requests:
                    self.note(f"{node.name} job {node.ddl_client.submit(request)}: {text}")
                    self.fired[f"ddl {kind}"] += 1
        except (UpstreamError, SqlError) as error:
            self._refused(f"{node.name} {text}", error, DDL_ERRORS | MORE_ERRORS.get(kind, frozenset()))

    def cancel(self) -> None:
        """Somebody takes a job back."""
        jobs = list(read_entries(self.cluster.storage.snapshot()))
        if jobs and self.cluster.nodes:
            job_id = self.random.choice(jobs).job.id
            try:
                self.cluster.ddl_client.cancel(job_id)
            except SqlRefused as error:
                self._refused(f"cancel {job_id}", error, {8224, 8225, 8226})
            else:
                self.fired["cancel"] += 1
                self.note(f"cancel {job_id}")

    def pass_time(self) -> None:
        """Time passes, perhaps more than a lease or a session."""
        self._pass(self.random.choice([10, 10, 10, LEASE_MS // 3, LEASE_MS // 2, LEASE_MS + 1, SESSION_MS + 1]))
        self.fired["time"] += 1

    def _pass(self, ms: int) -> None:
        self.clock.ms += ms
        self.note(f"{ms} ms")

    def kill(self) -> None:
        """A node dies."""
        if len(self.cluster.nodes) > 1:
            self._kill(self.random.choice([*self.cluster.nodes]))
            self.fired["kill"] += 1

    def _kill(self, name: str) -> None:
        self.note(f"{name} dies")
        self.cluster.kill(name)
        self.frozen.pop(name, None)
        for slot in [slot for slot in self.clients if slot[0] == name]:
            del self.clients[slot]

    def revive(self) -> None:
        """The dead come back, the frozen thaw."""
        for name in [name for name in NODES if name not in self.cluster.nodes]:
            self.note(f"{name} begins")
            self.cluster.add_node(name)
            self.fired["revive"] += 1
        for name in [name for name, until in self.frozen.items() if until <= self.step]:
            self._thaw(name)

    def freeze(self) -> None:
        """A node does not reload for a while; its lease may run out."""
        name = self.random.choice([*self.cluster.nodes] or [""])
        if name and name not in self.frozen:
            self.note(f"{name} freezes")
            self.frozen[name] = self.step + 40
            self.cluster.nodes[name].reload = lambda: False  # type: ignore[method-assign]
            self.fired["freeze"] += 1

    def _thaw(self, name: str) -> None:
        self.note(f"{name} thaws")
        del self.frozen[name]
        del self.cluster.nodes[name].reload  # type: ignore[method-assign]

    def die_in_commit(self) -> None:
        """A node dies in the middle of a commit; its locks outlive it for a moment."""
        held = [slot for slot, client in self.clients.items() if client.view is not None]
        if held and len(self.cluster.nodes) > 1:
            slot = self.random.choice(held)
            self.fired[f"died {self.clients[slot].half_commit(self.random.randrange(1, 4))}"] += 1
            self._kill(slot[0])
            self._pass(TTL_MS + 1)
            self._checked.clear()

    def collect(self) -> None:
        """Garbage collection up to a moment that nobody reads below, delete ranges included."""
        self.replica.catch_up()
        open_ts = [one.start_ts for node in self.cluster.nodes.values() for one in node.open_transactions]
        safe = min([self.replica.ts, *(ts - 1 for ts in open_ts)])
        if safe > self.cluster.storage.store.safe_point:
            with suppress(KeyLocked):
                collect_garbage(self.cluster.storage.store, safe, self.cluster.storage.oracle.next())
                ranges = delete_ranges(self.cluster.storage, safe)
                self.note(f"gc {ranges} ranges")
                self.fired["gc"] += 1
                self.fired["ranges"] += ranges
            self._checked.clear()

    def follow(self) -> None:
        """The change feed catches up."""
        self.replica.catch_up()

    def _failpoint(self, place: str) -> None:
        if self.random.random() < self.crashes and len(self.cluster.nodes) > 1:
            raise Crash(place)

    def _refused(self, what: str, error: Exception, allowed: frozenset[int] | set[int]) -> None:
        code = error.mysql_code if isinstance(error, UpstreamError) else 1064
        self.note(f"{what}: {code}")
        self.fired[f"refused {code}"] += 1
        assert code in allowed, f"{what}: {error}"

    # --- what has to hold ---

    def _tables(self, node: Node, client: Client | None = None) -> dict[str, StoredTable]:
        schema = client.schema if client is not None else node.schema
        return {one.stored.name.lower: one.stored for one in schema.tables.values() if one.schema.lower() == "gd"}

    def look(self) -> None:
        """F1's predicates, for every definition that a living node uses."""
        for node in self.cluster.nodes.values():
            if self._seen.get(node.name) is not node.schema:
                self._seen[node.name] = node.schema
                self.model.observe(node.schema)
            if not node.has_lease(self.clock.ms):
                continue
            for stored in self._tables(node).values():
                if self._checked.get(id(stored)) is not stored:
                    self._checked[id(stored)] = stored
                    found = list(faults(self.cluster, stored))
                    assert not found, f"{stored.name.lower} for {node.name} at {node.version}: {found}"

    def dirty(self, name: str) -> None:
        """A table's rows have changed."""
        self._checked = {key: one for key, one in self._checked.items() if one.name.lower != name}

    def _settle(self) -> None:
        self.crashes, self.step = 0.0, STEPS
        for client in self.clients.values():
            if client.view is not None:
                client.end("COMMIT")
        for name in list(self.frozen):
            self._thaw(name)
        self.revive()
        self._pass(SESSION_MS + 1)
        for node in self.cluster.nodes.values():
            node.reload()
        self._checked.clear()
        for _ in range(2_000):
            if self.cluster.tick() is None:
                break
            self._checked.clear()
            self.look()
        left = list(read_entries(self.cluster.storage.snapshot()))
        assert not left, [(entry.job.id, entry.job.query, entry.progress.step) for entry in left]
        for job in Meta(self.cluster.storage.snapshot()).history():
            self._over(job)

    def _over(self, job) -> None:
        assert job.state in _OVER, (job.id, job.query, job.state)
        self.fired[f"job {JobState(job.state).name.lower()} {job.type}"] += 1
        if job.state != JobState.SYNCED:
            error = error_of(job)
            assert error is not None
            self.fired[f"job error {error.code}"] += 1
            assert error.code in JOB_ERRORS, (job.id, job.query, error)

    def _compare(self) -> None:
        self.cluster.node.reload()
        client, definitions = Client(self, self.cluster.node), self._tables(self.cluster.node)
        found = list(unknown_entries(self.cluster, definitions.values()))
        assert not found, found
        self.replica.catch_up()
        lost = self.replica.pending.keys() & {one for stored in definitions.values() for one in stored.physical_ids}
        assert not lost, f"row events of ids that no job has named: {lost}"
        for name, stored in sorted(definitions.items()):
            held = client.read(Change("select", name), stored)
            self.note(f"{name} {sorted(held.items(), key=str)}")
            self.fired["rows"] += held.total()
            assert held == self.replica.shown(stored), (
                f"replica of {name}: {held - self.replica.shown(stored)} {self.replica.shown(stored) - held}"
            )
            if name in MODELLED:
                expected = self.model.select(self.model.begin(), stored)
                assert held == expected, f"{name} has {held - expected}, and lacks {expected - held}"
        self.fired["events"] += self.replica.events
        self.fired["late"] += self.replica.late
        self.fired["adopted"] += self.model.adopted


@contextmanager
def waiting(clock: Clock) -> Iterator[None]:
    """Who sleeps lets the clock go on instead."""

    def sleep(_seconds: float) -> None:
        clock.ms += 1

    fake = SimpleNamespace(sleep=sleep)
    with patch.object(session_state, "time", fake), patch.object(ddl_owner, "time", fake):
        yield
