"""Rows arrive once whatever breaks: a session, an answer, a task, a server's patience."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.contract.test_sql_sink import asked, emptied, tables_of
from tests.counts import crossed
from tests.failpoint import DDL_FAILPOINTS, SQL_FAILPOINTS, armed
from tests.mariadb import Server
from tests.sink.sql.upstream import Upstream
from tidegate.engine.load import LoadingSource
from tidegate.engine.load_plan import KeptPlan
from tidegate.engine.ports import LocalTasks
from tidegate.model.errors import Fenced, SinkError, SinkRefused, TidegateError
from tidegate.model.event import Delete, Insert
from tidegate.sink.sql.connection import Atomicity, SqlOptions, SyncPoints, TargetSession
from tidegate.sink.sql.progress import ShardLayout, TargetProgress
from tidegate.sink.sql.sink import SqlSink
from tidegate.testing import validators
from tidegate.testing.contract import stories
from tidegate.testing.script import Script, ScriptedLoad, ScriptedSource, put, remove, run_here

pytestmark = pytest.mark.slow

LARGE_BYTES = 5 << 20


def options(server: Server, *, atomicity: Atomicity = "none", safe_mode: bool = False) -> SqlOptions:
    """How tests write: few rows a transaction."""
    return SqlOptions("feed", "127.0.0.1", server.port, atomicity=atomicity, txn_rows=3, safe_mode=safe_mode)


def live(server: Server, story: Script, *, atomicity: Atomicity = "none", safe_mode: bool = False) -> None:
    """One life of a feed."""
    sink = SqlSink(options(server, atomicity=atomicity, safe_mode=safe_mode))
    run_here(ScriptedSource(story), sink, until=story.ts)


def same(server: Server, story: Script) -> list[str]:
    """What is wrong with the tables."""
    return list(validators.unlike(story.tables(story.ts), tables_of(server)))


def times(deed: Callable[[], None], nth: int) -> Callable[[], None]:
    """Acts at the nth time alone."""
    count = 0

    def act() -> None:
        nonlocal count
        count += 1
        if count == nth:
            deed()

    return act


def away() -> None:
    """As if the answer of the server had not come."""
    raise SinkError("the answer is lost")


@pytest.mark.parametrize("place", [*SQL_FAILPOINTS, *DDL_FAILPOINTS])
@pytest.mark.parametrize("nth", [1, 2, 5])
def test_a_lost_answer(server: Server, place: str, nth: int) -> None:
    """An error before, amid and behind a transaction is waited out, and no row is written twice; a COMMIT whose answer
    is lost is among them."""
    story = stories.shop()
    with armed({place: times(away, nth)}):
        live(server, story)
    assert not same(server, story)


def cut(server: Server) -> None:
    """The server ends all connections but the test's."""
    mine = server.connection.thread_id()
    for number, *_ in asked(server, "SHOW PROCESSLIST"):
        if number > mine:
            server.run(f"KILL {number}")


@pytest.mark.parametrize("place", ["sql/before-statements", "sql/before-commit", "sql/after-commit"])
def test_cut_connections(server: Server, place: str) -> None:
    """The server cuts all connections of the feed at a place, and all rows arrive once."""
    story = stories.shop()
    with armed({place: times(partial(cut, server), 3)}):
        live(server, story)
    assert not same(server, story)


@pytest.mark.parametrize("deed", [away, pytest.param("cut", marks=pytest.mark.more), "dies"])
@pytest.mark.parametrize(
    "place", ["sql/before-statements", pytest.param("sql/before-commit", marks=pytest.mark.more), "sql/after-commit"]
)
def test_a_chunk_of_a_load_in_parts(server: Server, place: str, deed: Callable[[], None] | str, tmp_path: Path) -> None:
    """A chunk of a load, which comes in several parts, is one transaction: whatever breaks at which part, each row is
    there once, those of a table without a key and values that a strict server refuses among them."""
    story = keyed("CREATE TABLE shop.t (id INT PRIMARY KEY, e ENUM('a', 'b'))")
    story.ddl("shop.k", "CREATE TABLE shop.k (v INT)")
    story.commit(*(put("shop.t", id=number, e=number % 3) for number in range(6)))
    story.commit(*(put("shop.k", v=number // 2) for number in range(5)))
    story.resolve()
    act = deed if callable(deed) else {"cut": partial(cut, server), "dies": die}[deed]
    for nth in (1, 2, 3, 5):
        emptied(server)
        stream = ScriptedSource(story)
        kept = KeptPlan(str(tmp_path / str(nth)))
        source = LoadingSource(ScriptedLoad(story, story.ts), kept, lambda *_: True, stream, ordered=True, keyless=True)
        with armed({place: times(act, nth)}):
            run_here(source, SqlSink(options(server)), until=story.ts, tasks=TwiceTasks())
        assert asked(server, "SELECT id, e + 0 FROM shop.t ORDER BY id") == [(row, row % 3) for row in range(6)], nth
        assert asked(server, "SELECT v FROM shop.k ORDER BY v") == [(0,), (0,), (1,), (1,), (2,)], nth


@pytest.mark.parametrize("atomicity", ["none", "global"])
def test_a_zombie(server: Server, atomicity: Atomicity) -> None:
    """A task that slept while another run did everything writes nothing when it wakes up, and its run is told."""
    story = stories.shop()
    for _ in range(2):
        story.commit(put("shop.visits", at=9, page="again"))
    story.resolve()
    sleep = times(lambda: live(server, story, atomicity=atomicity), 2)
    with armed({"sql/before-statements": sleep}), pytest.raises(Fenced):
        live(server, story, atomicity=atomicity)
    assert not same(server, story)


def test_a_zombie_and_a_writer_without_rows(server: Server) -> None:
    """A task that slept while another run moved on to a sync point, with no rows to write, commits nothing when it
    wakes up: the point has no rows of later transactions."""
    story = keyed("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    begin = story.resolve()
    story.commit(put("shop.t", id=0))
    story.resolve()
    live(server, story)
    quiet_ts = [story.tick() for _ in range(3)][-1]
    story.commit(put("shop.t", id=1))
    story.resolve()
    quiet = keyed("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    assert quiet.resolve() == begin
    quiet.ts = quiet_ts
    quiet.resolve()

    def overtake() -> None:
        sink = SqlSink(replace(options(server), sync_points=SyncPoints(1000, 3_600_000)))
        run_here(ScriptedSource(quiet), sink, until=quiet_ts)

    with armed({"sql/before-statements": times(overtake, 1)}), pytest.raises(Fenced):
        live(server, story)
    assert asked(server, "SELECT MAX(primary_ts) FROM tidb_cdc.syncpoint_v1") == [(str(quiet_ts),)]
    assert asked(server, "SELECT id FROM shop.t") == [(0,)]


def test_two_writers_at_once(server: Server) -> None:
    """Of runs that begin at the same moment each is a writer of its own: the last one alone is not fenced."""
    begins = threading.Barrier(4)
    taken = [TargetProgress("feed") for _ in range(begins.parties)]
    sessions = [TargetSession(options(server)) for _ in taken]
    taken[0].take(sessions[0])

    def take(progress: TargetProgress, session: TargetSession) -> None:
        begins.wait()
        progress.take(session)

    with ThreadPoolExecutor(len(taken)) as pool:
        for _ in range(20):
            list(pool.map(take, taken, sessions))
            assert len({one.epoch for one in taken}) == len(taken)
    first, *_, last = sorted(taken, key=lambda one: one.epoch)
    last.lay_out(sessions[0], ShardLayout(3))
    with pytest.raises(Fenced):
        first.lay_out(sessions[0], ShardLayout(3))


class Dies(BaseException):
    """Ends a task, as SIGKILL would its process."""


class TwiceTasks(LocalTasks):
    """Tasks of which those that die are tried again, as Spark does; `before` is called with each before it begins."""

    def __init__(self, before: Callable[[Callable[[], Any]], None] = lambda _: None) -> None:
        super().__init__()
        self._before = before

    def run(self, work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        """The answers."""
        found = []
        for job in jobs:
            self._before(partial(work, job))
            try:
                found.append(work(job))
            except Dies:
                found.append(work(job))
        return found


def die() -> None:
    """The task ends."""
    raise Dies


@pytest.mark.parametrize("atomicity", ["none", "global"])
@pytest.mark.parametrize("nth", [2, 4])
def test_a_task_that_is_tried_again(server: Server, atomicity: Atomicity, nth: int) -> None:
    """A task that dies amid its transactions goes on behind the last one that was committed when it is tried again."""
    story = stories.shop()
    with armed({"sql/before-commit": times(die, nth)}):
        sink = SqlSink(options(server, atomicity=atomicity))
        run_here(ScriptedSource(story), sink, until=story.ts, tasks=TwiceTasks())
    assert not same(server, story)


def test_two_tries_of_a_task(server: Server) -> None:
    """A task that wakes up behind another try of itself writes nothing of it again; the round is done once more."""
    story = stories.shop()
    twin: list[Callable[[], Any]] = []

    def overtake() -> None:
        twin[-1]()

    with armed({"sql/before-statements": times(overtake, 3)}):
        run_here(ScriptedSource(story), SqlSink(options(server)), until=story.ts, tasks=TwiceTasks(twin.append))
    assert not same(server, story)


def test_lock_waits(server: Server) -> None:
    """A row that somebody else holds is waited for, and written once it is free."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)")
    story.commit(put("shop.t", id=1, v=1))
    story.resolve()
    live(server, story)
    story.commit(put("shop.t", id=1, v=2))
    story.resolve()
    server.run("SET GLOBAL innodb_lock_wait_timeout = 1", "BEGIN", "SELECT * FROM shop.t FOR UPDATE")
    waited: list[int] = []

    def release() -> None:
        waited.append(1)
        if len(waited) == 2:
            server.run("ROLLBACK")

    with armed({"sql/before-statements": release}):
        live(server, story)
    assert len(waited) == 2
    assert not same(server, story)


def keyed(*ddl: str) -> Script:
    """A script of one table."""
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    for text in ddl:
        story.ddl("shop.t", text)
    return story


UNIQUE = "CREATE TABLE shop.t (id INT PRIMARY KEY, u VARCHAR(20) COLLATE utf8mb4_general_ci, UNIQUE KEY (u(3)))"


def pairs(values: Sequence[str]) -> list[tuple[int, str]]:
    """Rows by their number."""
    return list(enumerate(values))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["a", "b"], ["b", "a"]),
        (["a", "b", "c", "d"], ["b", "c", "d", "a"]),
        (["abc1", "x", "y"], ["z", "ABC2", "y"]),
        (["é", "q"], ["q", "E"]),
        (["pad", "q"], ["q", "PAD"]),
    ],
)
def test_unique_values_pass_on(server: Server, before: list[str], after: list[str]) -> None:
    """Rows of one transaction hand a unique value on, in a circle, by case, accent, prefix or blanks, and the replica
    follows."""
    story = keyed(UNIQUE)
    story.commit(*(put("shop.t", id=number, u=text) for number, text in pairs(before)))
    story.commit(*(put("shop.t", id=number, u=text) for number, text in pairs(after)))
    story.resolve()
    story.commit(remove("shop.t", id=0))
    story.commit(put("shop.t", id=7, u=after[0].upper() + "  "))
    story.resolve()
    live(server, story, atomicity="global")
    assert not same(server, story)


NUMBERS = ("INSERT INTO shop.t VALUES (1,'r1'), (2,'r2'), (3,'r3'), (5,'r5')",)
KEYS = {
    "nonclustered": "id INT, v VARCHAR(9), PRIMARY KEY (id) NONCLUSTERED",
    "unique": "id INT NOT NULL, v VARCHAR(9), UNIQUE KEY (id)",
}
TARGETS = {"mariadb": "server", "tidb": "embedded"}
MOVES = {
    "up": ("UPDATE shop.t SET id = id + 1 ORDER BY id DESC",),
    "down": ("UPDATE shop.t SET id = id - 1 ORDER BY id",),
    "swap": tuple(f"UPDATE shop.t SET id = {new} WHERE id = {old}" for old, new in ((1, 0), (2, 1), (0, 2))),
    "circle": tuple(f"UPDATE shop.t SET id = {new} WHERE id = {old}" for old, new in ((1, 9), (3, 1), (2, 3), (9, 2))),
}


@pytest.mark.parametrize(("into", "key"), crossed(TARGETS, KEYS))
def test_keys_pass_on(into: str, key: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Rows of one transaction hand their key on, in a chain up or down, in a swap or a circle, and the replica has each
    row under its new key, though the log tells them by the numbers of rows."""
    replica: Server = request.getfixturevalue(into)
    emptied(replica)
    upstream = Upstream(tmp_path)
    upstream.run("CREATE DATABASE shop")
    for name, texts in MOVES.items():
        upstream.run("DROP TABLE IF EXISTS shop.t", f"CREATE TABLE shop.t ({key})", *NUMBERS)
        run_here(upstream.source(), SqlSink(options(replica)))
        upstream.run("BEGIN", *texts, "COMMIT")
        run_here(upstream.source(), SqlSink(options(replica)))
        query = "SELECT id, v FROM shop.t ORDER BY id"
        assert asked(replica, query) == upstream.rows(query), name


def test_a_row_that_somebody_removed(server: Server) -> None:
    """A change of a row that is not there ends the feed with table and ts, and nothing of its transaction is done; safe
    mode puts it there."""
    story = stories.shop()
    first = story.marks[0]
    run_here(ScriptedSource(story), SqlSink(options(server)), until=first)
    server.run("DELETE FROM shop.accounts WHERE id = 1")
    with pytest.raises(SinkRefused) as told:
        live(server, story)
    assert told.value.where.table == "shop.accounts"
    assert told.value.where.commit_ts
    live(server, story, safe_mode=True)
    assert not same(server, story)


def test_a_row_that_somebody_put_there(server: Server) -> None:
    """An INSERT of a row that is there already ends the feed; safe mode replaces it."""
    story = stories.shop()
    run_here(ScriptedSource(story), SqlSink(options(server)), until=story.marks[0])
    server.run("INSERT INTO shop.accounts VALUES (3000, '', 1)", "DELETE FROM shop.accounts WHERE id = 3000")
    story.commit(put("shop.accounts", id=77, owner="new"))
    story.resolve()
    server.run("INSERT INTO shop.accounts VALUES (77, 'mine', 1)")
    with pytest.raises(SinkRefused, match="1062"):
        live(server, story)
    live(server, story, safe_mode=True)
    assert not same(server, story)


@pytest.mark.parametrize("change", ["ADD UNIQUE INDEX u (v)", "another of its name"])
def test_a_table_gets_another_unique_key(server: Server, change: str) -> None:
    """Rows that were written side by side, by their key, are not any more once they may meet in another one: it is
    added, or another table takes the name."""
    story = keyed("CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)")
    story.commit(*(put("shop.t", id=number, v=number) for number in range(8)))
    story.resolve()
    live(server, story)
    if change.startswith("ADD"):
        story.ddl("shop.t", f"ALTER TABLE shop.t {change}")
    else:
        story.ddl("shop.t", "DROP TABLE shop.t")
        story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT UNIQUE)")
        story.commit(*(put("shop.t", id=number, v=number) for number in range(8)))
    story.resolve()
    for number in range(8):
        story.commit(remove("shop.t", id=number))
        story.commit(put("shop.t", id=number + 9, v=number))
    story.resolve()
    live(server, story)
    assert not same(server, story)


def test_a_unique_key_that_is_going_away(server: Server) -> None:
    """Rows that share a value of a unique key, come before the DDL that drops it: the feed ends with the way out, a
    user drops the key, and the feed goes on and takes the DDL as done."""
    story = keyed("CREATE TABLE shop.t (id INT PRIMARY KEY, v INT, UNIQUE KEY u (v))")
    story.commit(put("shop.t", id=1, v=1), put("shop.t", id=2, v=1))
    story.resolve()
    story.ddl("shop.t", "ALTER TABLE shop.t DROP INDEX u")
    story.resolve()
    with pytest.raises(SinkRefused, match=r"1062.*drop the key in the replica, too, then resume"):
        live(server, story)
    server.run("ALTER TABLE shop.t DROP INDEX u")
    live(server, story)
    assert not same(server, story)


def test_updates_without_old_values(server: Server) -> None:
    """A topic that tells UPDATEs as rows that come ends the feed with a hint at its setting; safe mode takes them."""
    story = keyed("CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)")
    story.commit(put("shop.t", id=1, v=1))
    story.resolve()
    live(server, story)
    (came,) = (event for event in story.events if isinstance(event, Insert))
    ts = story.commit(put("shop.t", id=2, v=2))
    story.events.append(msgspec.structs.replace(came, commit_ts=ts, after=(1, 5)))
    story.resolve()
    with pytest.raises(SinkRefused, match=r"1062.*output-old-value=false.*safe-mode=true"):
        live(server, story)
    live(server, story, safe_mode=True)
    assert asked(server, "SELECT * FROM shop.t ORDER BY id") == [(1, 5), (2, 2)]


def leaving(row: Insert, ts: int) -> Delete:
    """The same row on its way out."""
    return Delete(schema=row.schema, table=row.table, fields=row.fields, commit_ts=ts, before=row.after)


def test_twins(server: Server) -> None:
    """Of equal rows of a table without a key so many leave as left upstream, floats and JSON among their values, and
    none that differs by case or blanks alone."""
    story = keyed("CREATE TABLE shop.t (n INT, f FLOAT, j JSON, v VARCHAR(20) COLLATE utf8mb4_general_ci)")
    values = {"f": 0.10000000149011612, "j": '{"a": 1}'}
    for text in ("a", "A", "a", "a "):
        story.commit(put("shop.t", n=1, v=text, **values))
    story.commit(put("shop.t", n=2, f=None, j=None, v=None))
    came = [event for event in story.events if isinstance(event, Insert)]
    ts = story.commit(put("shop.t", n=3, f=0.5, j="[]", v="stays"))
    story.events += [leaving(came[number], ts) for number in (0, 1, 4)]
    story.resolve()
    live(server, story)
    left = sorted(row[0] for row in asked(server, "SELECT v FROM shop.t"))
    assert left == ["a", "a ", "stays"]


@pytest.mark.parametrize("into", ["server", "embedded"])
def test_twins_but_for_a_digit(into: str, request: pytest.FixtureRequest) -> None:
    """Of rows of a table without a key that differ behind the digits of a DOUBLE, the one leaves that left upstream."""
    server: Server = request.getfixturevalue(into)
    emptied(server)
    story = keyed("CREATE TABLE shop.t (d DECIMAL(40,20))")
    kept, left = "12345678901234567890.00000000000000000001", "12345678901234567890.00000000000000000002"
    story.commit(put("shop.t", d=kept))
    story.commit(put("shop.t", d=left))
    story.resolve()
    live(server, story)
    came = [event for event in story.events if isinstance(event, Insert)]
    story.events.append(leaving(came[1], story.tick()))
    story.resolve()
    live(server, story)
    assert asked(server, "SELECT CAST(d AS CHAR) FROM shop.t") == [(kept,)]


def test_safe_mode_without_a_key(server: Server) -> None:
    """A row of a table without a key that somebody removed ends the feed when it leaves; safe mode goes on."""
    story = keyed("CREATE TABLE shop.t (n INT)")
    story.commit(put("shop.t", n=1))
    story.resolve()
    live(server, story)
    server.run("DELETE FROM shop.t")
    (came,) = (event for event in story.events if isinstance(event, Insert))
    story.events.append(leaving(came, story.tick()))
    story.commit(put("shop.t", n=2))
    story.resolve()
    with pytest.raises(SinkRefused, match="safe-mode=true"):
        live(server, story)
    live(server, story, safe_mode=True)
    assert asked(server, "SELECT n FROM shop.t") == [(2,)]


def test_a_large_row(server: Server) -> None:
    """A BLOB that takes most of a packet is updated."""
    story = keyed("CREATE TABLE shop.t (id INT PRIMARY KEY, b LONGBLOB)")
    story.commit(put("shop.t", id=1, b=b"a" * LARGE_BYTES))
    story.resolve()
    live(server, story)
    story.commit(put("shop.t", id=1, b=b"b" * LARGE_BYTES))
    story.resolve()
    server.run("SET GLOBAL max_allowed_packet = 16777216")
    live(server, story)
    assert asked(server, "SELECT id, LENGTH(b), LEFT(b, 1) FROM shop.t") == [(1, LARGE_BYTES, b"b")]


def test_wrong_password(server: Server, tmp_path: Path) -> None:
    """A refused login says what to check, and not the password."""
    wrong = SqlOptions("feed", "127.0.0.1", server.port, user="reader", password="no secret")
    with pytest.raises(TidegateError, match="check user and password") as told:
        SqlSink(wrong).recover()
    assert "no secret" not in f"{told.value} {wrong}"


def test_wrong_port() -> None:
    """A server that does not answer says where it was looked for."""
    with pytest.raises(SinkError, match="is it running"):
        SqlSink(SqlOptions("feed", "127.0.0.1", 1)).recover()
