"""The demo's upstream: three nodes in this process, people at work on them, and eyes on every step of every DDL.

    Watched cluster   tick ──► a move: the owner takes a step, a node loads a version ──► told, then a short rest
    job 118           delete only 86/85/85   write only 87/86/86   write reorg 88/87/87   public 89/88/88
                      └ the job's state, and the versions of n1/n2/n3 when the first node had loaded it
    notes             at such a moment, with two versions alive, a timestamp is taken: the lake must be right there too

The owner rests between moves, since a DDL on small tables is over in some 30 ms and nobody would meet it.

A DDL's event has the timestamp of the step with which its job is done, mostly the last one.  What takes a column or a
table away shows its effect to SQL with the first step already, so between the two upstream and topic tell different
times; no timestamp is taken there.  Partitions come and go with the done of their jobs.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from tidegate.engine.stop_signals import wait_until
from tidegate.model.errors import KeyLocked, Retry, SqlRefused, TidegateError
from tidegate.schema.job import Job, JobState
from tidegate_upstream.demo.workload import DDLS, STREAMS, Scripts, Stream, Transaction, setup, transactions
from tidegate_upstream.log import UpstreamLog
from tidegate_upstream.tidb.cluster import Cluster, Move
from tidegate_upstream.tidb.ddl.jobs import read_entry
from tidegate_upstream.tidb.information.job import job_row
from tidegate_upstream.tidb.sql.session.session import Session
from tidegate_upstream.tidb.store.engine import MemoryEngine

NODES: Final = ("n1", "n2", "n3")
_TAKES_AWAY: Final = frozenset(
    {"drop column", "drop table", "drop schema", "drop view", "alter table multi-schema change"}
)
"""DDLs of which SQL shows something before they are done; others show it where a job that runs on is public."""
_TRIES: Final = 20
"""How often a transaction is begun again that met another one, or a change of its tables."""
_RETRY_S: Final = 0.01


class NotedTs(NamedTuple):
    """A timestamp taken while people worked; `kind` and `state` are those of the DDL in whose middle it was, if any."""

    ts: int
    what: str
    kind: str = ""
    state: str = ""


class DdlStep(NamedTuple):
    """A schema state of a job, and the versions of the nodes when the first of them had it."""

    state: str
    versions: tuple[int, ...]


class DdlReport(NamedTuple):
    """A DDL that is over; `commits` came while it ran."""

    kind: str
    table: str
    query: str
    steps: tuple[DdlStep, ...]
    seconds: float
    commits: int


@dataclass(frozen=True, slots=True)
class WorkPace:
    """How much is done and how fast: transactions a stream, seconds for all of it, rest between two moves of DDLs."""

    transactions: int = 480
    seconds: float = 40.0
    move_s: float = 0.02

    @classmethod
    def over(cls, seconds: float) -> "WorkPace":
        """Twelve transactions a second and stream."""
        return cls(round(12 * seconds), seconds)


class WatchedCluster(Cluster):
    """A cluster that tells its moves."""

    moved: Callable[[Move], None] | None = None

    def tick(self, choice: int | None = None) -> Move | None:
        """Return a move as ever, told before the next one."""
        move = super().tick(choice)
        if move is not None and self.moved is not None:
            self.moved(move)
        return move


@dataclass(slots=True)
class _Watched:
    """A job that is not over."""

    job: Job
    began_s: float
    commits: int
    steps: list[DdlStep] = field(default_factory=list)
    fresh: str = ""
    """The state that no node has loaded yet."""


class _Watch:
    """Follows the moves of a cluster."""

    def __init__(
        self, cluster: WatchedCluster, commits: Callable[[], int], pace: WorkPace, stop: threading.Event
    ) -> None:
        self.cluster, self.commits, self.pace, self.stop = cluster, commits, pace, stop
        self.jobs: dict[int, _Watched] = {}
        self.reports: list[DdlReport] = []
        self.notes: list[NotedTs] = []
        self._ahead: list[tuple[int, int]] = []
        """Between which timestamps SQL may have seen what a job changed that was not done."""
        self._looked_ts = 0
        self._since_ts: int | None = None

    def moved(self, move: Move) -> None:
        """Look at what a move has done, and let others work."""
        if move.kind == "job":
            with suppress(KeyLocked):
                self._stepped(move.job_id)
        elif move.kind == "reload":
            self._loaded()
        self._look()
        if self.jobs:
            self.stop.wait(self.pace.move_s)

    def _look(self) -> None:
        before_ts, self._looked_ts = self._looked_ts, self.cluster.storage.oracle.next()
        if not any(map(_is_ahead, self.jobs.values())):
            if self._since_ts is not None:
                self._ahead.append((self._since_ts, self._looked_ts))
            self._since_ts = None
        elif self._since_ts is None:
            self._since_ts = before_ts

    def is_settled_at(self, ts: int) -> bool:
        """Return whether SQL at `ts` shows what was done, and no more."""
        begun = self._since_ts is not None and ts > self._since_ts
        return not begun and not any(since < ts <= until for since, until in self._ahead)

    def _stepped(self, job_id: int) -> None:
        entry = read_entry(self.cluster.storage.snapshot(), job_id)
        if entry is None:
            self._over(job_id)
            return
        watched = self.jobs.setdefault(job_id, _Watched(entry.job, time.monotonic(), self.commits()))
        before, watched.job = watched.job, entry.job
        version = entry.job.last_schema_version
        if not watched.steps or (version and version != before.last_schema_version):
            watched.fresh = str(job_row(entry.job)[4])

    def _loaded(self) -> None:
        versions = tuple(node.version for node in self.cluster.nodes.values())
        for watched in self.jobs.values():
            if watched.fresh:
                watched.steps.append(DdlStep(watched.fresh, versions))
                kind, table = _named(watched.job)
                self.note(f"{kind} {table}: {watched.fresh}", kind, watched.fresh)
                watched.fresh = ""

    def note(self, what: str, kind: str = "", state: str = "") -> NotedTs | None:
        """Take a timestamp; None where a DDL is seen that is not over."""
        if any(map(_is_ahead, self.jobs.values())):
            return None
        self.notes.append(NotedTs(self.cluster.storage.oracle.next(), what, kind, state))
        return self.notes[-1]

    def _over(self, job_id: int) -> None:
        watched = self.jobs.pop(job_id, None)
        if watched is not None:
            kind, table = _named(watched.job)
            seconds, commits = time.monotonic() - watched.began_s, self.commits() - watched.commits
            query = watched.job.query
            self.reports.append(DdlReport(kind, table, query, tuple(watched.steps), seconds, commits))


def _is_ahead(watched: _Watched) -> bool:
    """Whether SQL may see what a job changes that is not done."""
    _, _, _, kind, state, *_ = job_row(watched.job)
    return watched.job.state != JobState.DONE and (kind in _TAKES_AWAY or state == "public")


def _named(job: Job) -> tuple[str, str]:
    row = job_row(job)
    return str(row[3]), ".".join(str(word) for word in row[1:3] if word)


@dataclass(slots=True)
class _Worker:
    """One stream's session: what it did."""

    stream: Stream
    session: Session
    commits: int = 0
    statements: int = 0
    retries: int = 0
    refused: int = 0

    def work(self, todo: Iterator[Transaction], pace: WorkPace, stop: threading.Event) -> None:
        """All transactions, at even intervals."""
        began_s = time.monotonic()
        for number, one in enumerate(todo, 1):
            self._run(one)
            if stop.wait(max(0.0, began_s + pace.seconds * number / pace.transactions - time.monotonic())):
                return

    def _run(self, transaction: Transaction) -> None:
        for _ in range(_TRIES):
            try:
                self.session.execute("BEGIN")
                for statement in transaction:
                    self.session.execute(statement)
                self.session.execute("COMMIT")
            except TidegateError as error:
                self.session.execute("ROLLBACK")
                if error.retry is Retry.NEVER:
                    break
                self.retries += 1
                time.sleep(_RETRY_S)
                continue
            self.commits += 1
            self.statements += len(transaction)
            return
        self.refused += 1


class DemoUpstream:
    """The upstream of a demo, from `start` to `close`; its log is written to `log`, its DDLs are those of `scripts`."""

    def __init__(self, seed: int, pace: WorkPace, log: Path, scripts: Scripts = DDLS) -> None:
        self.seed, self.pace, self._scripts = seed, pace, scripts
        self._stop = threading.Event()
        self.cluster = WatchedCluster(MemoryEngine(), nodes=NODES)
        self._watch = _Watch(self.cluster, lambda: self.commits, pace, self._stop)
        self.workers = [_Worker(one, self.session(one.node)) for one in STREAMS]
        self.refused_ddls: list[str] = []
        self._log, self._logs = UpstreamLog(self.cluster, log, in_memory=True), False
        self._threads = ThreadPoolExecutor(len(STREAMS) + len(scripts), thread_name_prefix="demo-session")
        self._at_work: list[Future[None]] = []

    @property
    def nodes(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.cluster.nodes)

    @property
    def reports(self) -> Sequence[DdlReport]:
        """The DDLs that are over, in order."""
        return self._watch.reports

    @property
    def notes(self) -> Sequence[NotedTs]:
        """The timestamps that were taken so far."""
        return self._watch.notes

    @property
    def commits(self) -> int:
        """Transactions that were committed."""
        return sum(one.commits for one in self.workers)

    def session(self, node: int) -> Session:
        """Return a new session at a node, by its number from 0."""
        return Session(self.cluster.nodes[NODES[node]])

    def start(self) -> None:
        """Make the tables and begin to write the log."""
        self.cluster.start_thread()
        session = self.session(0)
        for statement in setup(self.seed):
            session.execute(statement)
        self._log.start()
        self._logs = True
        self.cluster.moved = self._watch.moved

    def work(self) -> None:
        """Let everybody begin."""
        for worker in self.workers:
            todo = islice(transactions(self.seed, worker.stream), self.pace.transactions)
            self._at_work.append(self._threads.submit(worker.work, todo, self.pace, self._stop))
        for number, script in enumerate(self._scripts, 1):
            self._at_work.append(self._threads.submit(self._administer, self.session(number), script))

    def note(self, what: str) -> NotedTs | None:
        """Return a timestamp of now; None where a DDL is seen that is not over."""
        with self.cluster.guard:
            return self._watch.note(what)

    def is_settled_at(self, ts: int) -> bool:
        """Return whether `ts` is one that can be compared: SQL shows no DDL there that was not done."""
        with self.cluster.guard:
            return self._watch.is_settled_at(ts)

    def settled(self) -> bool:
        """Return whether all work is done. Raises what ended a piece of it."""
        for one in self._at_work:
            if one.done():
                one.result(0)
        return all(one.done() for one in self._at_work)

    def summary(self) -> str:
        """Return what was done, in a line."""
        retries, refused = (sum(getattr(one, name) for one in self.workers) for name in ("retries", "refused"))
        done = (
            f"{self.commits:,} transactions committed, {retries:,} begun again, {refused:,} refused by the schema then"
        )
        lost = "".join(f"\n  refused: {one}" for one in self.refused_ddls)
        return f"upstream: {done}; {len(self.reports)} DDLs of {len({one.kind for one in self.reports})} kinds{lost}"

    def end_log(self) -> None:
        """Write the last segment, which ends behind everything that was done; twice is once."""
        if self._logs:
            self._logs = False
            self._log.stop()

    def close(self) -> None:
        """End what still runs."""
        self._stop.set()
        wait_until(lambda: all(one.done() for one in self._at_work))
        self._threads.shutdown()
        self.end_log()
        self.cluster.close()

    def _administer(self, session: Session, script: tuple[str, ...]) -> None:
        began_s = time.monotonic()
        for number, statement in enumerate(script):
            if self._stop.wait(max(0.0, began_s + self.pace.seconds * (number + 0.5) / len(script) - time.monotonic())):
                return
            try:
                session.execute(statement)
            except SqlRefused as refused:
                self.refused_ddls.append(f"{statement}: {refused}")
