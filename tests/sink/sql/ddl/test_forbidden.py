"""No text of a DDL says to the target what is not the feed's to say, whatever table its event is called by."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.counts import some
from tests.real_topics import ddls_of
from tests.replay.small_topics import one_by_one, row
from tests.replay.test_hostile_topic import Landed
from tests.sink.sql.ddl.examples import EXAMPLES, MARIADB, TARGETS, TIDB
from tests.sink.sql.ddl.hostile import CLUSTER, IN_FRONT, OURS, TEXTS
from tests.sink.sql.ddl.test_ways_out import command, goes_on
from tests.sink.sql.ddl.world import World, follow
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.source import LandedSource
from tidegate.codec.options import DecodeOptions
from tidegate.engine.change import EventPosition, SourceDdl
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import EventRule, TableFilter
from tidegate.engine.plan import plan_ddl
from tidegate.model.errors import DdlForbidden, InputError
from tidegate.model.event import Ddl
from tidegate.model.table import TableName
from tidegate.schema.restore_ddl import settled_ddl
from tidegate.schema.state import SchemaState
from tidegate.sink.sql.connection import SqlOptions, TargetServer, TargetSession
from tidegate.sink.sql.ddl_ledger import DdlWriter, fence_by_progress
from tidegate.sink.sql.ddl_rewrite import TAKES_ALL, DdlVerdict, StatementContext, TargetDdl, statement_for
from tidegate.sink.sql.ddl_runner import DdlRunner
from tidegate.sink.sql.ddl_task import task_of
from tidegate.sink.sql.sink import SqlSink
from tidegate.testing.script import run_here

SHOP = TableFilter.parse(("shop.*",))
PAIRS = Path(__file__).parents[3] / "data" / "ddl_restore.jsonl.gz"
TABLES = (
    "CREATE DATABASE shop",
    "CREATE DATABASE secret",
    "CREATE TABLE shop.orders (id int primary key)",
    "CREATE TABLE secret.t (id int primary key, a int)",
)
LABELS = {"of the table": "orders", "of the database": ""}


def state_of(*queries: str) -> SchemaState:
    """The schema behind some DDLs."""
    state = SchemaState()
    for number, query in enumerate(queries, start=1):
        state = task_of(
            plan_ddl(state, SourceDdl(EventPosition(), Ddl(schema="shop", table="", query=query, commit_ts=number)))
        ).after
    return state


def outcome(
    target: TargetServer, query: str, rules: TableFilter, state: SchemaState, *, schema: str = "shop", table: str = ""
) -> TargetDdl:
    """What becomes of a text."""
    task = task_of(
        plan_ddl(state, SourceDdl(EventPosition(), Ddl(schema=schema, table=table, query=query, commit_ts=9)))
    )
    return statement_for(target, query, task.context(inherits=True, rules=rules))


@pytest.mark.parametrize("label", LABELS)
def test_no_hostile_text_goes_out(label: str) -> None:
    """None of them reaches a server of any kind, called by a table that the feed takes or by its database; and each is
    an error with its reason, none is passed over. Of its own database an event of that database may speak."""
    state = state_of(*TABLES)
    honest = {"DROP DATABASE shop"} if label == "of the database" else set()
    for query in TEXTS:
        for target in TARGETS:
            found = outcome(target, query, SHOP, state, table=LABELS[label])
            assert (found.verdict is DdlVerdict.FORBIDDEN and found.why) or query in honest, (query, found)
            assert not found.text or query in honest


def test_databases_of_servers_are_nobodys() -> None:
    """Where a feed takes every table, those of the servers and its own progress are none."""
    for query in OURS:
        for target in TARGETS:
            found = outcome(target, query, TAKES_ALL, state_of(*TABLES), table="orders")
            assert (found.verdict, found.text) == (DdlVerdict.FORBIDDEN, ""), query


@pytest.mark.parametrize("front", IN_FRONT)
def test_nothing_in_front_changes_what_becomes_of_a_statement(front: str) -> None:
    """What is about a whole cluster goes out to no server, whatever stands before its first word."""
    for query in CLUSTER:
        for target in TARGETS:
            found = outcome(target, front + query, SHOP, state_of(*TABLES), table="orders")
            assert not found.text, (front, query, found)


def test_a_statement_without_a_name_is_about_the_database_of_its_event() -> None:
    """ALTER DATABASE may leave its name out; an event about a table is not one about its database."""
    query, state = "ALTER DATABASE CHARACTER SET latin1", state_of(*TABLES)
    for target in TARGETS:
        assert outcome(target, query, SHOP, state).text
        for schema, table in (("shop", "orders"), ("secret", ""), ("mysql", "")):
            found = outcome(target, query, SHOP, state, schema=schema, table=table)
            assert found.verdict is DdlVerdict.FORBIDDEN, (schema, table, found)
    assert (
        statement_for(TIDB, "RECOVER TABLE BY JOB 5", StatementContext(schema="shop")).verdict is DdlVerdict.FORBIDDEN
    )


@pytest.mark.slow
@pytest.mark.parametrize("topic", ["new/open", "classic/canal"])
def test_what_ticdc_sends_goes_out(topic: str) -> None:
    """No DDL that a real TiCDC sent is forbidden."""
    state, sent = SchemaState(), 0
    for placed in ddls_of(topic):
        task = task_of(plan_ddl(state, placed))
        for target in TARGETS:
            found = statement_for(target, placed.ddl.query, task.context(inherits=True))
            assert found.verdict is not DdlVerdict.FORBIDDEN, (placed.ddl, found)
            sent += bool(found.text)
        state = task.after
    assert sent > 250


def test_every_example_is_allowed() -> None:
    """The table of statements by target is made by the same way."""
    for group in EXAMPLES.values():
        for statement in group:
            for target in TARGETS:
                assert statement_for(target, statement).verdict is not DdlVerdict.FORBIDDEN, statement


def texts() -> Iterator[str]:
    """Texts that TiDB's parser printed, some of each kind."""
    for line in gzip.decompress(PAIRS.read_bytes()).splitlines()[:: some(40, 1)]:
        pair = json.loads(line)
        if pair.get("restored"):
            yield pair["restored"]


@pytest.mark.slow
def test_nothing_goes_out_of_tables_that_the_filter_leaves_out() -> None:
    """Whatever TiDB's parser takes: with rules that take none of its names, no text of it goes out."""
    rules = TableFilter.parse(("elsewhere.*",))
    for text in texts():
        for target in (MARIADB, TIDB):
            found = statement_for(target, text, StatementContext(schema="d", rules=rules))
            assert not found.text, (text, found)


@pytest.mark.slow
def test_what_goes_out_names_what_was_checked() -> None:
    """Who reads what goes out finds no name in it but those that were asked for."""
    for text in texts():
        found = statement_for(TIDB, text, StatementContext(schema="d"))
        if found.text:
            assert set(settled_ddl(found.text).named) <= set(settled_ddl(text).named), (text, found)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("create view v as select a.x, f.y from t a join e.u as f on a.id = f.id", {"v", "t", "e.u"}),
        ("create table n (id int, foreign key (id) references e.p (id))", {"n", "e.p"}),
        ("create table n like e.t", {"n", "e.t"}),
        ("alter table t add index ((lower(b))), rename to e.x", {"t", "LOWER", "e.x"}),
        ("create view v as select (select 1 from e.s where exists (table e.w)) a", {"v", "e.s", "e.w"}),
        ("create table n (id int default (nextval(e.s)))", {"n", "e.s"}),
        ("drop database e", {"e"}),
    ],
)
def test_every_name_is_taken_down(query: str, named: set[str]) -> None:
    """Tables of queries, parents, sequences, databases and functions."""
    found = settled_ddl(query).named
    assert {one.name if one.schema is None else f"{one.schema}.{one.name}" for one in found} == named


def test_a_label_alone_opens_no_door() -> None:
    """A waiting ALTER or TRUNCATE is of the labelled table; the one that its text names is the feed's, too."""
    state = state_of(*TABLES)
    for query in ("TRUNCATE TABLE secret.t", "ALTER TABLE secret.t DROP COLUMN a"):
        assert outcome(TIDB, query, SHOP, state, table="orders").verdict is DdlVerdict.FORBIDDEN
    assert outcome(TIDB, "TRUNCATE TABLE o", SHOP, state, table="orders").text == "TRUNCATE TABLE `shop`.`orders`"


def test_rules_that_heed_case_are_asked_about_the_tables_own_names() -> None:
    """TiDB takes names in any case, and rules with case-sensitive=true know the tables' own."""
    rules = TableFilter.parse(("RC_Case.*",), case_sensitive=True)
    state = state_of("CREATE DATABASE RC_Case", "CREATE TABLE RC_Case.MiXed (id int primary key)")
    query = "ALTER TABLE `rc_case`.`mixed` ADD COLUMN `c` INT"
    found = outcome(TIDB, query, rules, state, schema="RC_Case", table="MiXed")
    assert found.text == "ALTER TABLE `RC_Case`.`MiXed` ADD COLUMN `c` INT"


def test_an_exchange_by_the_exchanged_table_passes_the_filter_as_by_the_partitioned_one() -> None:
    """A filter that takes only one of them lets the DDL through, so that the sink says what is wrong."""
    query = "ALTER TABLE shop.r EXCHANGE PARTITION p WITH TABLE secret.t"
    for schema, table in (("shop", "r"), ("secret", "t")):
        ddl = Ddl(schema=schema, table=table, query=query, commit_ts=9)
        assert SHOP.takes_ddl(ddl, TableName("secret", "t"))
        assert outcome(TIDB, query, SHOP, state_of(*TABLES), schema=schema, table=table).verdict is DdlVerdict.FORBIDDEN


def seen(world: World) -> list[object]:
    """What hostile texts would change on a server."""
    questions = (
        "SHOW DATABASES",
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema NOT LIKE '%schema'",
        "SELECT table_schema, table_name, column_name FROM information_schema.columns WHERE table_schema = 'shop'",
        "SELECT user, host FROM mysql.user",
        "SELECT trigger_name FROM information_schema.triggers",
        "SELECT routine_name FROM information_schema.routines WHERE routine_schema <> 'sys'",
        "SELECT @@GLOBAL.read_only",
        "SELECT COUNT(*) FROM secret.t",
    )
    return [sorted(world.ask(question)) for question in questions]


@pytest.mark.slow
def test_a_server_stays_as_it_is(maria: World) -> None:
    """Each of them, to a real server, by an account that may do everything: it changes nothing, and the error names the
    message, so that a topic's policy for messages that cannot be read decides about it, and how to go on."""
    writer = DdlWriter("shop", 1, fence_by_progress("shop", 1))
    runner = DdlRunner(maria.connect, maria.target, writer, maria.warnings.append, rules=SHOP)
    admin = DdlRunner(maria.connect, maria.target, writer, maria.warnings.append)
    for query in TABLES:
        maria.state = follow(admin, maria.placed(query, "shop"), maria.state)
    maria.ask("INSERT INTO secret.t VALUES (1, 1)")
    before: list[object] = []
    for offset, query in enumerate(TEXTS):
        ddl = maria.placed(query, "shop", "orders").ddl
        with pytest.raises(DdlForbidden, match=r"not sent to .*sink ddl .*--done .*ignore-sql") as error:
            follow(runner, SourceDdl(EventPosition("topic", 2, offset), ddl), maria.state)
        assert isinstance(error.value, InputError)
        assert error.value.messages == (("topic", 2, offset, ddl.commit_ts),)
        assert error.value.where.table == "shop.orders"
        before = before or seen(maria)
    assert seen(maria) == before
    assert {state for state, _ in maria.ledger()[len(TABLES) :]} == {"refused"}


@pytest.mark.slow
def test_what_is_forbidden_is_done_by_hand(maria: World) -> None:
    """A text that nobody reads is not sent; whoever has done it says so by the command of the error, and the feed goes
    on."""
    maria.ddl("create database d")
    placed = maria.placed("alter table t add column `open int", table="t")
    with pytest.raises(DdlForbidden, match="it cannot be parsed") as error:
        follow(maria.runner(), placed, maria.state)
    command(maria, str(error.value))
    goes_on(maria, placed)


@pytest.mark.slow
@pytest.mark.parametrize("skip", [True, False])
def test_a_topic_goes_on_without_it(maria: World, tmp_path: Path, *, skip: bool) -> None:
    """Under dead-letter=skip the message is kept among the dead letters, and what comes behind it arrives; under halt
    the error names the message and what to type."""
    events = (
        Ddl(schema="s", table="", query="CREATE DATABASE s", type=1),
        Ddl(schema="s", table="a", query="CREATE TABLE a (id INT PRIMARY KEY, v INT)", type=3),
        row("a", 1, "v"),
        Ddl(schema="s", table="a", query="GRANT ALL ON *.* TO 'eve' IDENTIFIED BY 'x'", type=3),
        row("a", 2, "v"),
    )
    topic, decode = one_by_one("open-protocol", events), DecodeOptions(protocol="open-protocol")
    uri = changelog_uri(str(tmp_path))
    source = LandedSource(lambda: Landed(uri, "feed", decode, {0: topic}, skip_dead=skip), uri)
    maria.ask("DROP DATABASE tidegate")
    sink = SqlSink(SqlOptions("feed", "127.0.0.1", maria.port))
    if skip:
        assert run_here(source, sink).dead_letters == 1
        assert maria.ask("SELECT id FROM s.a ORDER BY id") == [(1,), (2,)]
    else:
        with pytest.raises(DdlForbidden, match=r"dlq skip .* --at shop/0/\d+"):
            run_here(source, sink)
        assert maria.ask("SELECT id FROM s.a ORDER BY id") == [(1,)]
    assert maria.ask("SELECT COUNT(*) FROM mysql.user WHERE user = 'eve'") == [(0,)]


def test_what_is_forbidden_is_left_out() -> None:
    """An event filter by its text leaves it out before the sink sees it."""
    rules = EventFilter.of([EventRule(matcher=("shop.*",), ignore_sql=("^grant ",))], None)
    grant = Ddl(schema="shop", table="orders", query="GRANT ALL ON *.* TO 'eve'", commit_ts=9)
    assert rules.drops_ddl(grant, None, -1)


@pytest.mark.slow
def test_a_packet_holds_one_statement(maria: World) -> None:
    """A session of DDLs does not take two statements in one text; one of rows does where it is told so."""
    options = SqlOptions("shop", "127.0.0.1", maria.port)
    with pytest.raises(Exception, match="1064"):
        TargetSession(options).ask("DO 1; DO 2")
    assert len(list(TargetSession(options, many=True).send([b"DO 1", b"DO 2"]))) == 2
