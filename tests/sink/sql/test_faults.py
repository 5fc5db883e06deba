"""What goes wrong with a replica's server: what the feed says of it, and that nothing is lost when it is mended."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.contract.test_sql_sink import asked, emptied, tables_of
from tests.failpoint import armed
from tests.mariadb import Server, connected, needed
from tidegate.engine.loop import Engine, Feed, Meter
from tidegate.engine.ports import LocalTasks
from tidegate.engine.progress import FeedError, Progress
from tidegate.engine.retry_policy import RetryPolicy
from tidegate.model.errors import TidegateError
from tidegate.sink.sql import task
from tidegate.sink.sql.connection import SqlOptions, TargetSession
from tidegate.sink.sql.sink import SqlSink
from tidegate.testing import validators
from tidegate.testing.contract import stories
from tidegate.testing.script import Script, ScriptedSource, put
from tidegate_upstream.demo.replica import MariaDb

pytestmark = pytest.mark.slow

WAIT_S = 60.0
ONE_FILE = "--innodb-file-per-table=0"
FILE = "--innodb-data-file-path=ibdata1:12M:autoextend:max:{}M"
"""All tables share a file, which is full at some size, as a disk is."""
LEAST = {
    "`tidegate`.*": "SELECT, INSERT, UPDATE, DELETE, CREATE",
    "`shop`.*": "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX",
}
"""The rights that a feed of rows and DDLs needs."""


class Target:
    """A server that can die, and the account of the feed."""

    def __init__(self, home: Path, *options: str) -> None:
        needed()
        self.daemon = MariaDb(home, options)
        self.start()

    def run(self, *statements: str) -> None:
        """Executes statements."""
        self.server.run(*statements)

    def start(self, *more: str) -> None:
        """Back again."""
        self.daemon.start(*more)
        self.server = Server(self.daemon.port, connected(self.daemon.port))

    def account(self) -> None:
        """An account with the least rights."""
        self.run("DROP USER IF EXISTS feed@'127.0.0.1'", "CREATE USER feed@'127.0.0.1' IDENTIFIED BY 'secret'")
        self.run(*(f"GRANT {rights} ON {where} TO feed@'127.0.0.1'" for where, rights in LEAST.items()))

    def options(self, password: str = "secret") -> SqlOptions:
        """How the feed writes."""
        return SqlOptions("feed", "127.0.0.1", self.daemon.port, user="feed", password=password, txn_rows=3)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A MariaDB for the tests of this file."""
    target = Target(tmp_path_factory.mktemp("mariadb"))
    yield target
    target.daemon.stop()


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses are short."""
    monkeypatch.setattr(task, "PAUSE_S", 0.001)


@pytest.fixture
def target(running: Target) -> Target:
    """The server without databases."""
    running.run(WRITABLE)
    emptied(running.server)
    running.account()
    return running


class Run(threading.Thread):
    """A run of a feed, with its pauses."""

    def __init__(self, options: SqlOptions, story: Script) -> None:
        super().__init__()
        self.reports: list[Progress] = []
        feed = Feed(
            "feed", ScriptedSource(story), SqlSink(options), accept=lambda *_: True, patience=RetryPolicy(30, None)
        )
        self.engine = Engine(feed, LocalTasks(), Meter(self.reports.append), threading.Event())
        self.until, self.raised = story.ts, list[TidegateError]()

    def run(self) -> None:
        """Until the story is told."""
        try:
            self.engine.run(until=self.until)
        except TidegateError as error:
            self.raised.append(error)

    def error(self, since: int = 0) -> FeedError:
        """What it waits out, or what ended it, in reports from number `since` on."""
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            found = [report.error for report in self.reports[since:] if report.error is not None]
            if found:
                return found[0]
            time.sleep(0.01)
        raise AssertionError("no error is told")

    def end(self) -> str:
        """The state in which it ends."""
        self.join(WAIT_S)
        return self.reports[-1].state


class Fault(NamedTuple):
    """What happens at a place, how it is put right, and what the feed says of it: code, table, words. Of a fault that
    may pass it waits; another one ends it."""

    place: str
    spoil: Callable[[Target], None]
    mend: Callable[[Target], None]
    says: str
    table: str = ""
    code: str = "CDC:ErrSink"
    waits: bool = True


def sql(*statements: str) -> Callable[[Target], None]:
    """Executes statements."""
    return lambda target: target.run(*statements)


def cut(target: Target) -> None:
    """The feed's sessions end."""
    for (number,) in asked(target.server, "SELECT id FROM information_schema.processlist WHERE user = 'feed'"):
        target.run(f"KILL {number}")


def locked_out(target: Target) -> None:
    """Another password, for sessions of now on."""
    target.run("SET PASSWORD FOR feed@'127.0.0.1' = PASSWORD('another')")
    cut(target)


def revoked(right: str) -> Callable[[Target], None]:
    """One right less."""
    return sql(f"REVOKE {right} ON `shop`.* FROM feed@'127.0.0.1'")


def granted(right: str) -> Callable[[Target], None]:
    """It again."""
    return sql(f"GRANT {right} ON `shop`.* TO feed@'127.0.0.1'")


ROWS, COMMIT, DDL = "sql/before-statements", "sql/before-commit", "ddl/planned"
READ_ONLY = sql("SET GLOBAL read_only = ON"), sql("SET GLOBAL read_only = OFF")
WRITABLE = "SET GLOBAL read_only = OFF"
ACCOUNTS = "shop.accounts"
LOGIN = "CDC:ErrMySQLConnectionError"
FAULTS = {
    "killed": Fault(ROWS, lambda target: target.daemon.kill(), Target.start, "is it running"),
    "killed amid a commit": Fault(COMMIT, lambda target: target.daemon.kill(), Target.start, "is it running"),
    "killed amid a DDL": Fault("ddl/running", lambda target: target.daemon.kill(), Target.start, ""),
    "read-only": Fault(ROWS, *READ_ONLY, WRITABLE),
    "read-only for a DDL": Fault(DDL, *READ_ONLY, WRITABLE),
    "another password": Fault(
        ROWS,
        locked_out,
        sql("SET PASSWORD FOR feed@'127.0.0.1' = PASSWORD('secret')"),
        "check user and password",
        code=LOGIN,
    ),
    "may not insert": Fault(ROWS, revoked("INSERT"), granted("INSERT"), "GRANT", ACCOUNTS, code=LOGIN),
    "may not update": Fault(ROWS, revoked("UPDATE"), granted("UPDATE"), "GRANT", ACCOUNTS, code=LOGIN),
    "may not alter": Fault(DDL, revoked("ALTER, CREATE"), granted("ALTER, CREATE"), "GRANT", "shop", code=LOGIN),
    "away": Fault(
        ROWS,
        sql("RENAME TABLE shop.accounts TO shop.hidden"),
        sql("RENAME TABLE shop.hidden TO shop.accounts"),
        "create it with its rows, then resume",
        ACCOUNTS,
        code="CDC:ErrSinkRefused",
        waits=False,
    ),
    "without a column": Fault(
        ROWS,
        sql("ALTER TABLE shop.accounts RENAME COLUMN balance TO b"),
        sql("ALTER TABLE shop.accounts RENAME COLUMN b TO balance"),
        "give it the upstream's columns, then resume",
        ACCOUNTS,
        code="CDC:ErrSinkRefused",
        waits=False,
    ),
    "with one more": Fault(
        ROWS,
        sql("ALTER TABLE shop.accounts ADD COLUMN mine INT NOT NULL"),
        sql("ALTER TABLE shop.accounts DROP COLUMN mine"),
        "give it the upstream's columns, then resume",
        ACCOUNTS,
        code="CDC:ErrSinkRefused",
        waits=False,
    ),
    "with a narrower one": Fault(
        ROWS,
        sql("ALTER TABLE shop.accounts MODIFY COLUMN owner VARCHAR(3)"),
        sql("ALTER TABLE shop.accounts MODIFY COLUMN owner VARCHAR(20)"),
        "give it the upstream's columns, then resume",
        ACCOUNTS,
        code="CDC:ErrSinkRefused",
        waits=False,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_mended(target: Target, name: str) -> None:
    """A fault is told with its code, the table and the way out; once it is mended the feed goes on, by itself where it
    waits, else when it is started again, and every row is there once."""
    fault, story, times = FAULTS[name], stories.shop(), 0

    def passing() -> None:
        nonlocal times
        times += 1
        if times == 1:
            fault.spoil(target)

    with armed({fault.place: passing}):
        run = Run(target.options(), story)
        run.start()
        told = run.error()
        assert (told.code, run.reports[-1].state) == (fault.code, "warning" if fault.waits else "failed"), str(told)
        assert fault.says in told.message, str(told)
        assert fault.table in told.table
        assert told.table or name == "another password"
        fault.mend(target)
        state = run.end()
    if not fault.waits:
        assert state == "failed"
        again = Run(target.options(), story)
        again.start()
        state = again.end()
    assert state == "finished", run.reports[-1].error
    assert not list(validators.unlike(story.tables(story.ts), tables_of(target.server)))


def stopped(pid: int) -> bool:
    """Tell whether all threads of a process are stopped: on a busy machine one may answer a while after the signal."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)


@pytest.mark.parametrize("place", ["sql/raised", "sql/before-advance"])
def test_frozen(target: Target, place: str) -> None:
    """A server that answers no more while the driver writes its progress is told after the read timeout, by its
    parameter, and the feed goes on when it answers again."""
    ((path,),) = asked(target.server, "SELECT @@pid_file")
    story, pid, frozen = stories.shop(), int(Path(path).read_text()), threading.Event()

    def freeze() -> None:
        if not frozen.is_set():
            frozen.set()
            os.kill(pid, signal.SIGSTOP)
            while not stopped(pid):
                time.sleep(0.01)

    with armed({place: freeze}):
        run = Run(replace(target.options(), read_s=1.0), story)
        try:
            run.start()
            told = run.error()
        finally:
            os.kill(pid, signal.SIGCONT)
        assert run.end() == "finished", run.reports[-1].error
    assert "no response within read-timeout=1s" in told.message
    assert not list(validators.unlike(story.tables(story.ts), tables_of(target.server)))


@pytest.mark.parametrize("kind", ["add column", pytest.param("truncate table", marks=pytest.mark.soak)])
def test_a_ddl_longer_than_the_read_timeout(target: Target, kind: str) -> None:
    """A DDL that takes longer than the read timeout is waited for, told by no error and done once."""
    story, other, done = stories.around_ddl(kind), connected(target.daemon.port), threading.Event()

    def hold() -> None:
        """A transaction that the DDL has to wait for."""
        there = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'shop' AND table_name = 'parts'"
        if not done.is_set() and asked(target.server, there):
            done.set()
            with other.cursor() as cursor:
                cursor.execute("BEGIN")
                cursor.execute("SELECT * FROM shop.t")
            threading.Timer(2.0, other.commit).start()

    with armed({"ddl/running": hold}):
        run = Run(replace(target.options(), read_s=0.5), story)
        run.start()
        assert run.end() == "finished", run.reports[-1].error
    other.close()
    assert done.is_set()
    assert not [report.error for report in run.reports if report.error]
    assert {state for (state,) in asked(target.server, "SELECT state FROM tidegate.ddl_history")} == {"done"}
    assert not list(validators.unlike(story.tables(story.ts), tables_of(target.server)))


def test_a_machine_that_is_gone(target: Target) -> None:
    """A session that waits for an answer without limit asks within minutes whether the other machine is still there."""
    session = TargetSession(target.options(), read_s=None)
    sock = session.connection._sock
    idle_s = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
    assert (bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)), idle_s) == (True, 60)
    session.close()


def test_wrong_port(tmp_path: Path) -> None:
    """A port where nobody listens is told with the way out; when the server is started there, the feed goes on."""
    story, target = stories.shop(), Target(tmp_path)
    try:
        target.account()
        target.daemon.stop()
        run = Run(target.options(), story)
        run.start()
        told = run.error()
        assert (told.code, run.reports[-1].state) == ("CDC:ErrSink", "warning"), str(told)
        assert "is the port correct" in told.message
        target.start()
        assert run.end() == "finished", run.reports[-1].error
        assert not list(validators.unlike(story.tables(story.ts), tables_of(target.server)))
    finally:
        target.daemon.stop()


MORE = {
    "create view": ("CREATE VIEW", "`shop`.*"),
    "create database": ("CREATE", "`market`.*"),
    "drop database": ("DROP", "`market`.*"),
}
"""The rights that some DDLs need besides."""


@pytest.mark.parametrize("kind", sorted(set(stories.DDLS) - {"unreadable", "recover table"}))
def test_least_rights(target: Target, kind: str) -> None:
    """Rows and DDLs of each kind need the rights of LEAST, and those of MORE."""
    if kind in MORE:
        target.run("GRANT {} ON {} TO feed@'127.0.0.1'".format(*MORE[kind]))
    story = stories.around_ddl(kind)
    run = Run(target.options(), story)
    run.start()
    assert run.end() == "finished", run.reports[-1].error
    assert not list(validators.unlike(story.tables(story.ts), tables_of(target.server)))


def test_deadlock(target: Target) -> None:
    """Of two transactions that wait for each other's rows the server ends one; the feed's is written again."""
    story, other = stories.shop(), connected(target.daemon.port)
    count = "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'"
    waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    meets = threading.Event()

    def meet() -> None:
        with other.cursor() as cursor:
            meets.wait(WAIT_S)
            while asked(target.server, waiting) != [(1,)]:
                time.sleep(0.2)  # the server renews that table only where nobody has read it for a while
            cursor.execute("DELETE FROM shop.orders WHERE id = 2")
            cursor.execute("ROLLBACK")

    def hold() -> None:
        """Many rows, so that the other transaction is the cheaper one to end, and the last that the feed comes to."""
        if not meets.is_set() and asked(target.server, "SELECT COUNT(*) FROM shop.accounts") == [(4,)]:
            with other.cursor() as cursor:
                cursor.execute("BEGIN")
                cursor.execute("INSERT INTO filler.t SELECT seq FROM filler.seq_1_to_1000")
                cursor.execute("UPDATE shop.accounts SET balance = 9 WHERE id = 2")
            meets.set()

    target.run("CREATE DATABASE filler", "CREATE TABLE filler.t (id INT PRIMARY KEY)")
    ((_, before),) = asked(target.server, count)
    thread = threading.Thread(target=meet)
    thread.start()
    with armed({ROWS: hold}):
        run = Run(target.options(), story)
        run.start()
        assert run.end() == "finished", run.reports[-1].error
    thread.join(WAIT_S)
    other.close()
    target.run("DROP DATABASE filler")
    assert asked(target.server, count) != [("Innodb_deadlocks", before)]
    assert not list(validators.unlike(story.tables(story.ts), tables_of(target.server)))


def test_full(tmp_path: Path) -> None:
    """A server without room for rows, or for a DDL that writes a table anew, is told with the table and the way out,
    and the feed goes on when it has got some."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    story.ddl("shop.photos", "CREATE TABLE shop.photos (id INT PRIMARY KEY, v LONGTEXT)")
    for number in range(40):
        story.commit(put("shop.photos", id=number, v=str(number) * 300_000))
    story.resolve()
    story.ddl("shop.photos", "ALTER TABLE shop.photos MODIFY COLUMN id BIGINT")
    story.commit(put("shop.photos", id=1 << 40, v="last"))
    story.resolve()
    target = Target(tmp_path, ONE_FILE, FILE.format(20))
    try:
        target.account()
        run = Run(target.options(), story)
        run.start()
        since = 0
        for size_mb, is_ddl in ((44, False), (200, True)):
            told = run.error(since)
            while "is full" not in told.message:  # it is told as well that the server was away
                since += 1
                told = run.error(since)
            assert (told.code, told.table, run.reports[-1].state) == ("CDC:ErrSink", "shop.photos", "warning"), str(
                told
            )
            assert "free space" in told.message
            assert ("DDL of ts" in told.message) is is_ddl
            target.daemon.stop()
            since = len(run.reports)
            target.start(FILE.format(size_mb))
        assert run.end() == "finished"
        assert not list(validators.unlike(story.tables(story.ts), tables_of(target.server)))
    finally:
        target.daemon.stop()
