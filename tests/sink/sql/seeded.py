"""One seed: a database lives, its log goes into a replica, and whoever may die on the way dies.

Story (tests/workloads) + a bank ── segments ──► the engine ──► MariaDB or another embedded TiDB
  └─ all tables at each recorded ts ──────────────────────────────┴──► compared whenever the feed has come to rest

a life      one run of the engine, with a new sink, until nothing comes any more; the next one begins at the
            checkpoint, which lies in the replica
ends        the driver dies at a place; a task dies and is tried again; an answer is lost; the server cuts all
            connections; a task outlives its driver and writes when a later life is under way
bank        each transaction moves money between two tables, counts in both, and books the move in a third: who
            reads all three at one moment sees the same total and the same count, if transactions stay whole
queue       every now and then each row of a table takes the key of its neighbour, in one transaction
"""

import pickle
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pymysql

from tests.contract.test_sql_sink import asked, emptied
from tests.failpoint import DDL_FAILPOINTS, SQL_FAILPOINTS, armed
from tests.mariadb import Server
from tests.upstream.simulate.values import number_of
from tests.workloads.setting import Setting
from tests.workloads.story import Story
from tests.workloads.truth import Moment, TrueTable
from tidegate.engine.dispatch import SplitPolicy
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import TableFilter
from tidegate.model.errors import SinkError, TidegateError, UpstreamError
from tidegate.sink.sql.connection import Atomicity, SqlOptions
from tidegate.sink.sql.sink import SqlSink
from tidegate.source.tidb_changes import MountOptions
from tidegate.source.tidb_land import LogSource
from tidegate.source.tidb_segment import SegmentLog
from tidegate.testing.script import run_here
from tidegate_upstream.tidb.session import Session

STEPS = 300
ACCOUNTS = 5
MONEY = 100
TOTAL = 2 * ACCOUNTS * MONEY
TASK_TRIES = 4
FAILPOINTS = (*SQL_FAILPOINTS, *DDL_FAILPOINTS, "round/planned", "round/applied")
IN_TASKS = ("sql/before-statements", "sql/before-commit", "sql/after-commit")
ATOMICITIES: tuple[Atomicity, ...] = ("global", "none", "table")
BANK = (
    "CREATE DATABASE bank",
    *(f"CREATE TABLE bank.{name} (id INT PRIMARY KEY, money INT, moved INT)" for name in ("here", "there")),
    "CREATE TABLE bank.moves (id BIGINT PRIMARY KEY AUTO_INCREMENT, src INT, dst INT)",
    "CREATE TABLE bank.queue (id INT, v INT, PRIMARY KEY (id) NONCLUSTERED)",
    "INSERT INTO bank.queue VALUES (1, 1), (2, 2), (3, 3), (5, 5)",
)
QUEUE = "SELECT id, v FROM bank.queue ORDER BY id"
LOOK = (
    "SELECT SUM(money), SUM(moved) FROM bank.here",
    "SELECT SUM(money), SUM(moved) FROM bank.there",
    "SELECT COUNT(*), COUNT(*) FROM bank.moves",
)
LOOK_S = 0.001


class DriverDied(BaseException):
    """Ends a run as SIGKILL would: nothing in the code is there to catch it."""


class TaskDied(BaseException):
    """Ends a task, which is tried again."""


class Way(NamedTuple):
    """What a seed chooses of the sink."""

    tidb: bool
    atomicity: Atomicity
    force: bool
    safe_mode: bool
    slots: int
    txn_rows: int

    @classmethod
    def of(cls, seed: int) -> "Way":
        """Of six seeds, each target and each atomicity once."""
        random = Random(f"way {seed}")
        return cls(
            tidb=seed % 2 == 1,
            atomicity=ATOMICITIES[seed % 3],
            force=random.random() < 0.5,
            safe_mode=random.random() < 0.2,
            slots=random.choice([1, 2, 3]),
            txn_rows=random.choice([1, 3, 50]),
        )


LOOSE = r"drop index|drop primary key"
"""While a unique key goes away rows may share its value, which the replica's still refuses."""
PREFIX = r"\(\w+\(1\)"
"""A prefix of a column that another job makes a number."""
RECOVER = "recover table"
"""A MySQL brings no dropped rows back."""


class AnyDatabase(Setting):
    """What an upstream leaves alone whose replica is a database."""

    @property
    def forbidden(self) -> re.Pattern[str] | None:
        """Statements that no replica follows."""
        return re.compile(f"{LOOSE}|{PREFIX}")


class AnyMysql(Setting):
    """The same of a MariaDB."""

    @property
    def forbidden(self) -> re.Pattern[str] | None:
        """Statements that no replica follows."""
        return re.compile(f"{LOOSE}|{PREFIX}|{RECOVER}")


class BankStory(Story):
    """A story with a bank beside its tables."""

    def __init__(self, seed: int, directory: Path, carry: Callable[[], None], way: Way) -> None:
        kind = AnyDatabase if way.tidb else AnyMysql
        setting = kind("open-protocol", {}, (), 1, SplitPolicy(), 1, force=way.force, late_start=False)
        super().__init__(seed, directory, setting, carry)
        self.shifted = 0
        """What each key of the queue was raised by."""

    def transfer(self) -> None:
        """Some moves of money, each a transaction."""
        if not self.cluster.nodes:
            return
        session = Session(self.cluster.nodes[self.random.choice([*self.cluster.nodes])])
        for _ in range(self.random.choice([1, 3, 6])):
            money, (src, dst) = self.random.randint(1, 9), self.random.choices(range(ACCOUNTS), k=2)
            try:
                for text in (
                    "BEGIN",
                    f"UPDATE bank.here SET money = money - {money}, moved = moved + 1 WHERE id = {src}",
                    f"INSERT INTO bank.moves (src, dst) VALUES ({src}, {dst})",
                    f"UPDATE bank.there SET money = money + {money}, moved = moved + 1 WHERE id = {dst}",
                    "COMMIT",
                ):
                    session.execute(text)
            except UpstreamError:
                session.execute("ROLLBACK")
            else:
                self.seen["moves"] += 1
        with suppress(UpstreamError):
            step, order = (1, "DESC") if self.seen["moves"] % 2 else (-1, "ASC")
            session.execute(f"UPDATE bank.queue SET id = id + ({step}) ORDER BY id {order}")
            self.shifted += step

    def _actions(self) -> list[tuple[int, Callable[[], None]]]:
        return [*super()._actions(), (120, self.transfer)]

    def _set_up(self) -> None:
        session = Session(self.cluster.node)
        for text in BANK:
            session.execute(text)
        rows = ", ".join(f"({at}, {MONEY}, 0)" for at in range(ACCOUNTS))
        session.execute(f"BEGIN; INSERT INTO bank.here VALUES {rows}; INSERT INTO bank.there VALUES {rows}; COMMIT")
        super()._set_up()


class Reader(threading.Thread):
    """Looks at the bank of a replica, again and again, each time at one moment."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port, self.over, self.seen = port, threading.Event(), Counter[tuple[int, ...]]()

    def run(self) -> None:
        """Until it is over; the server may end a connection on the way."""
        while not self.over.is_set():
            with suppress(pymysql.MySQLError, OSError):
                connection = pymysql.connect(host="127.0.0.1", port=self.port, user="root", autocommit=True)
                with connection:
                    while not self.over.wait(LOOK_S):
                        found = bank_of(connection)
                        if found is not None:
                            self.seen[found] += 1

    @property
    def halves(self) -> list[tuple[int, ...]]:
        """What it saw of a transaction that was not whole."""
        return [one for one in self.seen if one[0] != TOTAL or len(set(one[1:])) > 1]


def bank_of(connection: Any) -> tuple[int, ...] | None:
    """The money in all, and how often some was moved as each table knows it, at one moment; None of an empty bank."""
    found: list[Any] = []
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        for text in LOOK:
            cursor.execute(text)
            found += cursor.fetchone()
        cursor.execute("COMMIT")
    if None in found:
        return None
    here, moved, there, received, moves, _ = map(int, found)
    return here + there, moved, received, moves


class Replication:
    """One seed's whole way; `problems` are what is wrong."""

    def __init__(self, seed: int, server: Server, home: Path) -> None:
        self.seed, self.server, self.home, self.way = seed, server, home, Way.of(seed)
        self.random = Random(f"replica {seed}")
        self.fired: Counter[str] = Counter()
        self.problems: list[str] = []
        self.stragglers: list[tuple[Callable[[Any], Any], bytes]] = []
        self.lives = 0
        self.story = BankStory(seed, home / "log", self.live, self.way)

    def play(self) -> "Replication":
        """Live, follow, compare."""
        emptied(self.server)
        reader = Reader(self.server.port)
        reader.start()
        try:
            self.story.run(STEPS)
            self.live(calm=True)
        finally:
            reader.over.set()
            reader.join(60)
        if self.way.atomicity == "global":
            self.problems += [f"half a transaction is seen: {one}" for one in reader.halves[:3]]
        moves = self.story.seen["moves"]
        if (found := bank_of(self.server.connection)) != (TOTAL, moves, moves, moves):
            self.problems.append(f"the bank has {found} after {moves} moves")
        if (queue := asked(self.server, QUEUE)) != [(id_ + self.story.shifted, id_) for id_ in (1, 2, 3, 5)]:
            self.problems.append(f"the queue is {queue} after it was shifted by {self.story.shifted}")
        self.fired += self.story.seen + self.story.fired
        self.fired["looks"] += reader.seen.total()
        return self

    # --- the lives of the feed ---

    @property
    def slots(self) -> int:
        """How many tasks there are at a time."""
        return self.way.slots

    def live(self, *, calm: bool = False) -> None:
        """Run the feed until it has nothing to do, or dies."""
        self.lives += 1
        roll = 1.0 if calm else self.random.random()
        place = self.random.choice(FAILPOINTS)
        deeds = {place: self._deed(place)} if roll < 0.6 else {}
        sink = SqlSink(self._options())
        try:
            with armed(deeds):
                done = run_here(self._source(), sink, tasks=self)  # type: ignore[arg-type]
        except DriverDied:
            self.fired[f"driver at {place}"] += 1
            return
        if self.stragglers and (calm or self.random.random() < 0.5):
            self._straggle()
        self._compare(done.checkpoint_ts or 0)

    def run(self, work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        """Run jobs as tasks, in any order; one that dies is tried again."""
        packed, answers = [pickle.dumps(job) for job in jobs], dict[int, Any]()
        for at in self.random.sample(range(len(jobs)), len(jobs)):
            answers[at] = self._task(work, packed[at])
        return [answers[at] for at in range(len(jobs))]

    def _task(self, work: Callable[[Any], Any], packed: bytes) -> Any:
        for _ in range(TASK_TRIES):
            try:
                return work(pickle.loads(packed))
            except TaskDied:
                self.fired["task"] += 1
            except DriverDied:
                if self.random.random() < 0.5:
                    self.stragglers.append((work, packed))
                raise
        raise AssertionError("a task that dies each time")

    def _straggle(self) -> None:
        """A task of a driver that died writes, and is refused."""
        work, packed = self.stragglers.pop()
        self.fired["straggler"] += 1
        with suppress(TidegateError):
            work(pickle.loads(packed))

    def _deed(self, place: str) -> Callable[[], None]:
        """What happens at the nth time that a place is passed, once."""
        left = self.random.choice([1, 1, 2, 3, 5])
        ends = [self._die, *([] if place.startswith("round/") else [self._lose, self._cut])]
        act = self._die_in_task if place in IN_TASKS and self.random.random() < 0.3 else self.random.choice(ends)

        def passing() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                act()

        return passing

    def _die(self) -> None:
        raise DriverDied

    def _die_in_task(self) -> None:
        raise TaskDied

    def _lose(self) -> None:
        self.fired["lost answer"] += 1
        raise SinkError("the answer is lost")

    def _cut(self) -> None:
        self.fired["cut"] += 1
        mine = self.server.connection.thread_id()
        for number, *_ in asked(self.server, "SHOW PROCESSLIST"):
            if number != mine:
                with suppress(pymysql.MySQLError):
                    self.server.run(f"KILL {number}")

    def _source(self) -> LogSource:
        return LogSource(
            SegmentLog(self.home / "log"),
            "seed",
            rules=TableFilter.parse(["gd.*", "bank.*"]),
            mount=MountOptions(force_replicate=self.way.force),
            events=EventFilter(),
            start_ts=None,
        )

    def _options(self) -> SqlOptions:
        way = self.way
        return SqlOptions(
            "seed",
            "127.0.0.1",
            self.server.port,
            atomicity=way.atomicity,
            txn_rows=way.txn_rows,
            safe_mode=way.safe_mode,
        )

    # --- what it has made ---

    def _compare(self, checkpoint_ts: int) -> None:
        moment = next((one for one in self.story.truth.moments if one.ts == checkpoint_ts), None)
        if moment is not None and not self.problems:
            self.fired["moments"] += 1
            self.problems += [f"at {moment.ts}: {what}" for what in differences(self.server, moment)]


def differences(server: Server, moment: Moment) -> Iterator[str]:
    """What the tables of gd in a server have otherwise than the upstream had at a moment."""
    server.run("SET SESSION time_zone = '+00:00'")
    found = asked(server, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'gd'")
    names = {name.lower(): name for (name,) in found}
    for name in names.keys() ^ moment.tables.keys():
        if name not in moment.late:
            yield f"table {name} is on one side only"
    for name in sorted(names.keys() & moment.tables.keys()):
        yield from (f"table {name}: {what}" for what in _unlike(server, names[name], moment.tables[name]))


def _unlike(server: Server, name: str, truth: TrueTable) -> Iterator[str]:
    columns = {row[0].lower() for row in asked(server, f"SHOW COLUMNS IN gd.`{name}`")}
    if missing := set(truth.columns) - columns:
        yield f"columns {sorted(missing)} are missing"
        return
    if extra := columns - set(truth.columns) - truth.late_columns:
        yield f"columns {sorted(extra)} are too many"
    read = asked(server, f"SELECT {', '.join(f'`{one}`' for one in truth.columns)} FROM gd.`{name}`")
    rows = Counter(tuple(map(_number, row)) for row in read)
    if rows != truth.rows:
        yield f"{truth.columns}: {dict(rows - truth.rows)} too many, {dict(truth.rows - rows)} missing"


def _number(value: Any) -> int | None:
    return value.day - 1 if isinstance(value, date) else number_of(value)
