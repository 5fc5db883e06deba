"""A DDL is done once: whoever dies, whatever answer is lost, whoever else writes."""

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pymysql
import pytest
from click.testing import CliRunner

from tests.counts import crossed
from tests.failpoint import DDL_FAILPOINTS, armed
from tests.mariadb import ROOT
from tests.sink.sql.ddl.world import FEED, World, follow
from tidegate.cli.main import main
from tidegate.model.errors import Fenced, SinkError, SinkRefused
from tidegate.model.tso import compose
from tidegate.schema.state import SchemaState
from tidegate.sink.sql.connection import ServerKind

pytestmark = pytest.mark.slow

TABLES = (
    "create database d",
    "create table t (id int primary key, a int, b varchar(20), key i (a))",
    "create table u (id int primary key, a int, b varchar(20), key i (a))",
    "create table r (id int primary key, a int) partition by range (id) (partition p0 values less than (100))",
    "create table x (id int primary key, a int)",
)
LIVES = {
    "add column": "alter table t add column c int not null default 7",
    "drop column": "alter table t drop column b",
    "add index": "alter table t add index (b)",
    "truncate": "truncate table u",
    "drop": "drop table t, u",
    "rename": "rename table t to n",
    "swap": "rename table t to n, u to t, n to u",
    "exchange": "alter table r exchange partition p0 with table x",
    "modify": "alter table t modify column a bigint",
    "comment": "alter table t comment = 'x'",
    "create": "create table n (id int primary key)",
    "view": "create view v as select id from t",
    "database": "create database d2",
    "partition": "alter table r add partition (partition p1 values less than (200))",
}
UNKNOWN = {
    "add column": "alter table t add column c int",
    "drop column": "alter table t drop column b",
    "rename column": "alter table t rename column a to c",
    "rename": "rename table t to n",
    "add index": "alter table t add index (b)",
}


class Died(Exception):
    """What a failpoint raises in place of a SIGKILL."""


def die() -> None:
    """Raise it."""
    raise Died


@pytest.fixture
def filled(world: World) -> World:
    """A target with tables and rows."""
    for text in TABLES:
        world.ddl(text)
    world.ask("INSERT INTO d.t VALUES (1, 10, 'of t')")
    world.ask("INSERT INTO d.u VALUES (2, 20, 'of u')")
    world.ask("INSERT INTO d.r VALUES (3, 30)")
    world.ask("INSERT INTO d.x VALUES (4, 40)")
    return world


def rows(world: World) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of all tables of d."""
    names = [name for (name,) in world.ask("SELECT table_name FROM information_schema.tables WHERE table_schema = 'd'")]
    return {name: world.ask(f"SELECT * FROM d.`{name}` ORDER BY id") for name in sorted(names)}


@pytest.mark.parametrize(("text", "place"), crossed(LIVES, {place: place for place in DDL_FAILPOINTS}))
def test_a_death_at_each_place(filled: World, text: str, place: str) -> None:
    """A runner that dies before or after the statement or a write of the ledger leaves what one run leaves."""
    placed = filled.placed(text)
    with armed({place: die}), suppress(Died):
        follow(filled.runner(), placed, filled.state)
    after_death = rows(filled)
    filled.state = follow(filled.runner(), placed, filled.state)
    assert filled.ledger()[-1] == ("done", text)
    assert filled.meant() <= filled.looks(), filled.meant() - filled.looks()
    once = rows(filled)
    if place in ("ddl/executed", "ddl/done"):
        assert once == after_death
    assert follow(filled.runner(), placed, filled.state) is not None
    assert rows(filled) == once
    if text == LIVES["swap"]:
        assert (once["t"], once["u"]) == ([(2, 20, "of u")], [(1, 10, "of t")])
    if text == LIVES["exchange"]:
        assert (once["r"], once["x"]) == ([(4, 40)], [(3, 30)])


@pytest.mark.parametrize("place", ["ddl/planned", "ddl/running"])
def test_a_text_of_an_older_release_is_made_anew(filled: World, place: str) -> None:
    """Where a statement in the ledger did nothing, the text that this release makes is run, not the one that is there:
    an exchange whose event is called by the exchanged table used to be sent for that one."""
    placed = filled.placed(LIVES["exchange"], table="x")
    with armed({place: die}), suppress(Died):
        follow(filled.runner(), placed, filled.state)
    wrong = "ALTER TABLE `d`.`x` EXCHANGE PARTITION `p0` WITH TABLE `x`"
    filled.ask(f"UPDATE tidegate.ddl_history SET executed = '{wrong}' WHERE state <> 'done'")
    follow(filled.runner(), placed, filled.state)
    found = rows(filled)
    assert (found["r"], found["x"]) == ([(4, 40)], [(3, 30)])
    assert filled.ledger()[-1] == ("done", LIVES["exchange"])


def test_a_swap_in_three_events(filled: World) -> None:
    """The new architecture sends the steps of `rename t to n, u to t, n to u` one by one, at one commit_ts, each with a
    semicolon and labelled with the name at the end; a death at each of them leaves what one run leaves."""
    steps = [("t", "n", "u"), ("u", "t", "t"), ("n", "u", "u")]
    first = filled.placed(LIVES["swap"])
    for number, (old, new, label) in enumerate(steps, start=1):
        query = f"RENAME TABLE `d`.`{old}` TO `d`.`{new}`;"
        ddl = msgspec.structs.replace(first.ddl, table=label, query=query)
        placed = msgspec.structs.replace(first, ddl=ddl)
        with armed({"ddl/executed": die}), suppress(Died):
            follow(filled.runner(), placed, filled.state, number)
        filled.state = follow(filled.runner(), placed, filled.state, number)
    found = rows(filled)
    assert (found["t"], found["u"]) == ([(2, 20, "of u")], [(1, 10, "of t")])


@pytest.mark.parametrize(("text", "place"), crossed(UNKNOWN, {"running": "ddl/running", "executed": "ddl/executed"}))
def test_tables_that_the_schema_does_not_know(filled: World, text: str, place: str) -> None:
    """Where a topic began in the middle, and tables are unknown or read off their rows, a DDL is done once as well."""
    (known,) = [table for table in filled.state.tables.values() if table.name.table == "t"]
    filled.state = SchemaState()
    for state in (SchemaState(), SchemaState().with_table(msgspec.structs.replace(known, inferred=True))):
        placed = filled.placed(text, table="n" if "rename table" in text else "t")
        with armed({place: die}), suppress(Died):
            follow(filled.runner(), placed, state)
        follow(filled.runner(), placed, state)
        shown = filled.looks()
        follow(filled.runner(), placed, state)
        assert filled.looks() == shown
        assert filled.ledger()[-1] == ("done", text)
        for name in "tn":
            filled.ask(f"DROP TABLE IF EXISTS d.{name}")
        filled.ask("CREATE TABLE d.t (id INT PRIMARY KEY, a INT, b VARCHAR(20), KEY i (a))")


def beside(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Work in a thread; what it returns or raises."""
    told: list[object] = []

    def run() -> None:
        try:
            told.append(work())
        except SinkError as error:
            told.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, told


def until(over: Callable[[], object], limit_s: float = 20) -> None:
    """Wait for it."""
    deadline = time.monotonic() + limit_s
    while not over():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def waiting(world: World) -> list[tuple[int, str]]:
    """The statements of runners that wait for the lock of a table; a TiDB's state does not say what one waits for."""
    locked = "" if world.target.kind is ServerKind.TIDB else " AND state LIKE '%lock%'"
    return world.ask(
        "SELECT id, info FROM information_schema.processlist WHERE info LIKE '%/* tidegate:%' "
        f"AND info NOT LIKE '%processlist%' AND id <> CONNECTION_ID(){locked}"
    )


@pytest.fixture
def blocked(world: World) -> World:
    """A target in which DDL on the tables waits for a transaction, which `blocked.ask("COMMIT")` ends."""
    for text in TABLES:
        world.ddl(text)
    world.ask("INSERT INTO d.r VALUES (3, 30)")
    world.ask("INSERT INTO d.x VALUES (4, 40)")
    world.ask("BEGIN")
    for name in "turx":
        world.ask(f"SELECT * FROM d.{name}")
    return world


@pytest.mark.parametrize(
    ("world", "kind"),
    [("mariadb", "swap"), ("mariadb", "exchange"), ("mariadb", "add column"), ("tidb", "exchange")],
    indirect=["world"],
)
def test_a_lost_answer(blocked: World, kind: str) -> None:
    """A statement whose client stopped to listen is waited for on the server, and not done again."""
    patience_s = [1, None, None, None]

    def connect() -> Any:
        return pymysql.connect(**ROOT, port=blocked.port, autocommit=True, read_timeout=patience_s.pop(0))

    placed = blocked.placed(LIVES[kind])
    thread, told = beside(lambda: follow(blocked.runner(connect=connect), placed, blocked.state))
    until(lambda: len(patience_s) < 3 and waiting(blocked))
    assert len(waiting(blocked)) == 1
    blocked.ask("COMMIT")
    thread.join(30)
    blocked.state = told[0]  # type: ignore[assignment]
    assert blocked.meant() <= blocked.looks()
    assert blocked.ledger()[-1] == ("done", LIVES[kind])
    if kind == "exchange":
        assert blocked.ask("SELECT * FROM d.r") == [(4, 40)]


def test_a_killed_statement_runs_again(blocked: World) -> None:
    """A statement that somebody kills is done once: again where it was not done, and not where its job goes on."""
    placed = blocked.placed(LIVES["exchange"])
    thread, told = beside(lambda: follow(blocked.runner(), placed, blocked.state))
    until(lambda: waiting(blocked))
    blocked.ask(f"KILL {waiting(blocked)[0][0]}")
    until(lambda: waiting(blocked) or blocked.target.kind is ServerKind.TIDB)
    blocked.ask("COMMIT")
    thread.join(30)
    assert not isinstance(told[0], SinkError), told
    assert blocked.ask("SELECT * FROM d.r") == [(4, 40)]


def test_a_new_writer_waits_for_the_statement_of_the_old(blocked: World) -> None:
    """Who takes over while the server still runs the statement of a writer that is gone finds it done."""
    placed = blocked.placed(LIVES["exchange"])
    first, old = beside(lambda: follow(blocked.runner(), placed, blocked.state))
    until(lambda: waiting(blocked))
    second_connection = World.connect(blocked)
    with second_connection.cursor() as cursor:
        cursor.execute(f"UPDATE tidegate.progress SET epoch = 2 WHERE feed = '{FEED}'")
    second, new = beside(lambda: follow(blocked.runner(epoch=2), placed, blocked.state))
    time.sleep(1.5)
    assert not new
    blocked.ask("COMMIT")
    first.join(30)
    second.join(30)
    second_connection.close()
    assert isinstance(old[0], Fenced)
    assert not isinstance(new[0], SinkError), new
    assert blocked.ask("SELECT * FROM d.r") == [(4, 40)]
    assert blocked.ledger()[-1] == ("done", LIVES["exchange"])


@pytest.mark.parametrize("kind", ["exchange", "truncate"])
def test_a_zombie_runs_nothing(world: World, kind: str) -> None:
    """A writer that wakes up after another one has taken over cannot send its statement, nor write the ledger, and rows
    that came since stay."""
    for text in TABLES:
        world.ddl(text)
    world.ask("INSERT INTO d.r VALUES (3, 30)")
    placed, sleeping, wake = world.placed(LIVES[kind]), threading.Event(), threading.Event()

    def sleep() -> None:
        if not sleeping.is_set():
            sleeping.set()
            wake.wait(30)

    with armed({"ddl/running": sleep}):
        thread, told = beside(lambda: follow(world.runner(), placed, world.state))
        assert sleeping.wait(20)
        world.ask(f"UPDATE tidegate.progress SET epoch = 2 WHERE feed = '{FEED}'")
        world.state = follow(world.runner(epoch=2), placed, world.state)
        world.ask("INSERT INTO d.u VALUES (9, 90, 'newer')")
        wake.set()
        thread.join(30)
    assert isinstance(told[0], Fenced)
    assert world.looks() >= world.meant()
    assert world.ask("SELECT id FROM d.x") == ([(3,)] if kind == "exchange" else [])
    assert world.ask("SELECT id FROM d.u") == [(9,)]


CUT = {
    "batch": ("create table m (id int primary key); create table n (id int primary key)", "TABLE IF NOT EXISTS `n`"),
    "drop": ("drop table t, u", ", `u`"),
}
"""A text of two jobs, and where it is cut."""


@pytest.mark.parametrize("kind", CUT)
def test_cut_between_two_jobs(filled: World, kind: str) -> None:
    """A text of which a TiDB makes several jobs is done when all of them are, not when the newest is."""
    text, at = CUT[kind]

    def connect() -> Any:
        found = filled.connect()
        ask = found.query

        def query(sql: str, *more: Any) -> Any:
            if at not in sql or "/* tidegate:" not in sql:
                return ask(sql, *more)
            if kind == "drop":
                ask(sql.partition(at)[0], *more)
            raise Died

        found.query = query
        return found

    placed = filled.placed(text)
    with pytest.raises(Died):
        follow(filled.runner(connect=connect), placed, filled.state)
    half = set(rows(filled))
    filled.state = follow(filled.runner(), placed, filled.state)
    assert len(half ^ set(rows(filled))) == 1
    assert filled.looks() == filled.meant()


def test_a_server_without_locks(maria: World) -> None:
    """A server that has no GET_LOCK runs no DDL, since two writers could; the error says what is missing. On one that
    has it the feed goes on."""

    def connect() -> Any:
        found = maria.connect()
        ask = found.query
        found.query = lambda sql, *more: ask(sql.replace("SELECT GET_LOCK", "SELECT d.GET_LOCK"), *more)
        return found

    placed = maria.placed("create database d")
    with pytest.raises(SinkRefused, match="has no GET_LOCK"):
        follow(maria.runner(connect=connect), placed, maria.state)
    maria.state = follow(maria.runner(), placed, maria.state)
    assert maria.ledger()[-1] == ("done", "create database d")


def test_an_object_that_is_there_already(world: World) -> None:
    """A table that somebody made is taken for the upstream's if it has its shape, and refused if not."""
    world.ask("CREATE DATABASE d")
    world.ask("CREATE TABLE d.t (id INT PRIMARY KEY, a INT)")
    world.ddl("create database d")
    world.ddl("create table t (id int primary key, a int)")
    assert sum("are in the state after it" in text for text in world.warnings) == 2
    world.ask("CREATE TABLE d.u (id INT PRIMARY KEY, b INT)")
    with pytest.raises(SinkRefused, match="1050") as error:
        world.ddl("create table u (id int primary key, a int)")
    assert (error.value.where.table, error.value.where.commit_ts) == ("d", compose(world.at_ms))


def test_what_somebody_altered_is_shown(world: World) -> None:
    """IF NOT EXISTS over another table passes no check of a server, and fails here."""
    world.ddl("create database d")
    world.ask("CREATE TABLE d.t (id INT PRIMARY KEY, b INT)")
    with pytest.raises(SinkRefused, match=r"Missing: column d\.t a int YES"):
        world.ddl("create table if not exists t (id int primary key, a int)")


@pytest.mark.parametrize("place", ["ddl/running", "ddl/executed"])
def test_an_exchange_of_strange_names(maria: World, place: str) -> None:
    """Who died amid an EXCHANGE is told by the numbers of tables, whatever signs their names have."""
    maria.ddl("create database `d-1`", "d-1")
    maria.ddl(
        "create table `t-ä` (id int primary key) partition by range (id) (partition `p-0` values less than (9))", "d-1"
    )
    maria.ddl("create table `X y` (id int primary key)", "d-1")
    maria.ask("INSERT INTO `d-1`.`X y` VALUES (4)")
    placed = maria.placed("alter table `t-ä` exchange partition `p-0` with table `X y`", "d-1")
    with armed({place: die}), suppress(Died):
        follow(maria.runner(), placed, maria.state)
    maria.state = follow(maria.runner(), placed, maria.state)
    assert maria.ask("SELECT id FROM `d-1`.`t-ä`") == [(4,)]


SPELLED = (
    "create database Shop",
    "create table Orders (id int primary key, a int, index i (a))",
    "create table Old (id int primary key) partition by range (id) (partition p0 values less than (9))",
    "create table x (id int primary key)",
    "alter table ORDERS add column b int",
    "create index j on shop.oRDERS (b)",
    "create table if not exists ORDERS (id int primary key)",
    "create table l like ORDERS",
    "create table child (o int, index i (o), constraint f foreign key (o) references oRDERs (id))",
    "alter table OLD exchange partition P0 with table X",
    "alter table old add partition (partition Pm values less than (maxvalue))",
    "alter table old exchange partition PM with table X without validation",
    "alter table old reorganize partition P0, pM into (partition p values less than maxvalue)",
    "alter table old truncate partition P",
    "alter table child add column like_b int",
    "truncate table OLD",
    "rename table oRdErS to Others, OLD to Older",
    "drop table CHILD, OTHERS",
    "alter database SHOP character set utf8mb4",
    "drop database SHOP",
)


def test_names_in_another_case(maria: World) -> None:
    """A statement names its tables, its database and the partition that it exchanges as the replica has them, however
    the upstream's user wrote them."""
    assert maria.ask("SELECT @@lower_case_table_names") == [(0,)]
    for text in SPELLED:
        maria.ddl(text, "Shop")
        found = maria.ask("SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema = 'Shop'")
        assert sorted(found) == sorted(table.name for table in maria.state.tables.values()), text
    assert not maria.ask("SHOW DATABASES LIKE 'shop'")


def test_refused_and_done_by_hand(maria: World) -> None:
    """A DDL that the target cannot do ends with its way out, by which the feed goes on."""
    maria.ddl("create database d")
    maria.ddl("create table t (id int primary key, a int)")
    maria.ddl("drop table t")
    placed = maria.placed("recover table t")
    with pytest.raises(SinkRefused, match="keeps no rows of dropped") as error:
        follow(maria.runner(), placed, maria.state)
    maria.ask("CREATE TABLE d.t (id INT PRIMARY KEY, a INT)")
    uri = f"mysql://root@127.0.0.1:{maria.port}/"
    words = re.findall(r"`tidegate (sink ddl [^`]*)`", str(error.value))[0].replace("SINK-URI", uri).split()
    listed = CliRunner().invoke(main, words[:5])
    assert all(text in listed.output for text in ("refused", "recover table t", "keeps no rows of dropped", words[-1]))
    assert CliRunner().invoke(main, words).exit_code == 0
    assert "no DDL is waiting" in CliRunner().invoke(main, words[:5]).output
    assert "is waiting in" in CliRunner().invoke(main, words).output
    maria.state = follow(maria.runner(), placed, maria.state)
    assert maria.meant() == maria.looks()


@pytest.mark.parametrize("text", ["create sequence s", "recover table t"])
def test_a_death_behind_a_note(maria: World, text: str) -> None:
    """Who dies when the ledger has a DDL as skipped or refused finds it so, and says the same."""
    placed = maria.placed(text)
    with armed({"ddl/noted": die}), pytest.raises(Died):
        follow(maria.runner(), placed, maria.state)
    noted = maria.ledger()
    if "sequence" in text:
        follow(maria.runner(), placed, maria.state)
    else:
        with pytest.raises(SinkRefused, match="keeps no rows of dropped"):
            follow(maria.runner(), placed, maria.state)
    assert maria.ledger() == noted


def test_what_is_left_out_is_said_once(maria: World) -> None:
    """A statement that is skipped is kept in the ledger, and said by a run once."""
    runner = maria.runner()
    for name in "ab":
        follow(runner, maria.placed(f"create sequence {name}"), maria.state)
    assert len(maria.warnings) == 1
    assert [state for state, _ in maria.ledger()] == ["skipped", "skipped"]


def test_a_default_of_the_time(world: World) -> None:
    """Rows of before get the time of the DDL, not that of the replica's clock."""
    world.ddl("create database d")
    world.ddl("create table t (id int primary key)")
    world.ask("INSERT INTO d.t VALUES (1)")
    world.ddl("alter table t add column c datetime(3) not null default current_timestamp(3)")
    ((found,),) = world.ask("SELECT c FROM d.t")
    assert str(found).startswith(time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(world.at_ms / 1000)))


def test_collations_of_tables(maria: World) -> None:
    """Tables compare texts as TiDB does, also in a database of the target's own collation."""
    maria.ask("CREATE DATABASE d COLLATE utf8mb4_general_ci")
    maria.ddl("create table t (a varchar(9) unique)")
    maria.ask("INSERT INTO d.t VALUES ('a'), ('A')")
    maria.ddl("create database d2 collate utf8mb4_general_ci", "d2")
    maria.ddl("create table t (a varchar(9) unique)", "d2")
    with pytest.raises(pymysql.err.IntegrityError):
        maria.ask("INSERT INTO d2.t VALUES ('a'), ('A')")


def test_without_the_privilege_to_see_numbers(maria: World) -> None:
    """An EXCHANGE that was cut off is not guessed at where the numbers of tables are hidden; others are told apart."""
    for text in TABLES:
        maria.ddl(text)
    maria.ask("CREATE OR REPLACE USER writer@'127.0.0.1'")
    for grant in ("ON d.*", "ON tidegate.*"):
        maria.ask(f"GRANT ALL {grant} TO writer@'127.0.0.1'")

    def connect() -> Any:
        return pymysql.connect(host="127.0.0.1", port=maria.port, user="writer", autocommit=True)

    for kind in ("add column", "exchange"):
        placed = maria.placed(LIVES[kind])
        with armed({"ddl/executed": die}), suppress(Died):
            follow(maria.runner(connect=connect), placed, maria.state)
        if kind == "exchange":
            with pytest.raises(SinkRefused, match="GRANT PROCESS"):
                follow(maria.runner(connect=connect), placed, maria.state)
        else:
            maria.state = follow(maria.runner(connect=connect), placed, maria.state)
