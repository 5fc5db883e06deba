"""Shapes: what schema/ says of a table and what a server says of it are the same facts."""

import pytest

from tests.sink.sql.ddl.examples import TIDB
from tests.sink.sql.ddl.world import World
from tidegate.engine.change import EventPosition, SourceDdl
from tidegate.engine.plan import plan_ddl
from tidegate.model.event import Ddl
from tidegate.model.table import TableName
from tidegate.schema.state import SchemaState
from tidegate.sink.sql.ddl_rewrite import statement_for
from tidegate.sink.sql.ddl_shape import Executed, ShapeChange, type_shown
from tidegate.sink.sql.ddl_task import DdlTask, task_of

TYPES = """tinyint, tinyint(1), smallint unsigned, mediumint, int, int(5) zerofill, bigint unsigned, float,
    float(7,2), double, double(10,3) unsigned, decimal, decimal(20), decimal(30,10) unsigned,
    numeric(5,2), bit, bit(13), bool, date, datetime, datetime(3), timestamp null, timestamp(6) null,
    time, time(2), year, char, char(20), varchar(300), binary, binary(16), varbinary(300), tinytext,
    text, mediumtext, longtext, tinyblob, blob, mediumblob, longblob, json, enum('a','b''c','d,e'),
    set('x','y'), varchar(10) character set gbk, char(5) collate utf8mb4_general_ci, int not null
    default 3, varchar(5) not null default '', text character set latin1""".replace("\n    ", " ")


def columns() -> str:
    """A definition of each type."""
    kinds, depth, start = [], 0, 0
    for at, sign in enumerate(TYPES + ","):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            kinds.append(TYPES[start:at].strip())
            start = at + 1
    return ", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds))


@pytest.mark.slow
def test_all_types(world: World) -> None:
    """Every type of column, key and partition."""
    world.ddl("create database d")
    world.ddl(f"create table t ({columns()}, primary key (c4, c5), unique key u (c27), key k (c0, c28(5)))")
    world.ddl("create table r (Id int primary key) partition by list (id) (partition P0 values in (1))")
    world.ddl("create table h (id int) partition by hash (id) partitions 3")
    assert world.looks() == world.meant()


FOREIGN = (
    "create table p (id int primary key, a int, key (a, id))",
    """create table c (id int primary key, u int unique, k int, m int, foreign key (id) references p (id), constraint x
    foreign key (m) references p (id), foreign key (u) references p (id), foreign key (K) references p (id))""",
    "alter table c add constraint y foreign key (id) references p (id)",
    "alter table c add foreign key (k, m) references p (a, id)",
    "alter table c rename index fk_4 to z",
    "alter table c drop foreign key x",
    """create table v (id varchar(9) primary key, foreign key (id) references v (id));
    create table w (a int, b int, primary key (a, b), key (b), foreign key (A, B) references w (a, b),
    foreign key (b, a) references w (a, b))""",
)


@pytest.mark.slow
def test_keys_of_foreign_keys(world: World) -> None:
    """The key that a foreign key brings along in TiDB is there in the target, by its name, and no other."""
    world.ddl("create database d")
    for text in FOREIGN:
        world.ddl(text)
        assert world.looks() == world.meant(), text


def test_a_type_as_servers_print_it() -> None:
    """Widths that mean nothing are left out, and elements are read."""
    assert type_shown("int(10) unsigned zerofill") == "int unsigned"
    assert type_shown("enum('a','b''c')") == "enum(a,b'c)"
    assert type_shown("datetime /* mariadb-5.3 */") == "datetime"
    assert type_shown("decimal(10,0)") == "decimal(10,0)"


def test_when_a_change_was_made() -> None:
    """It was where all that comes is there and nothing that goes; it was not where all is as before."""
    old, new, other = ("column", "d.t", "a"), ("column", "d.t", "b"), ("column", "d.t", "c")
    change = ShapeChange(frozenset({old}), frozenset({new}))
    before = frozenset({old, other})
    assert change.executed(before, before) is Executed.NO
    assert change.executed(before, frozenset({new, other})) is Executed.YES
    assert change.executed(before, frozenset({old, new})) is Executed.UNCLEAR
    assert change.executed(before, frozenset({other})) is Executed.UNCLEAR


def task(*queries: str, schema: str = "d", table: str = "") -> DdlTask:
    """The last of some DDLs, over what those before it left."""
    state = SchemaState()
    for number, query in enumerate(queries[:-1], start=1):
        state = task_of(
            plan_ddl(state, SourceDdl(EventPosition(), Ddl(schema="d", table="", query=query, commit_ts=number << 18)))
        ).after
    return task_of(
        plan_ddl(
            state,
            SourceDdl(EventPosition(), Ddl(schema=schema, table=table, query=queries[-1], commit_ts=99 << 18)),
        )
    )


def test_renames_are_written_in_full() -> None:
    """A RENAME whose event has the new schema names the old one, which its text leaves to the session."""
    found = task("create table a (id int)", "rename table a to e.b", schema="e", table="b")
    assert found.context(inherits=True).renames == [(TableName("d", "a"), TableName("e", "b"))]
    altered = task("create table a (id int)", "alter table a rename to e.b", schema="e", table="b")
    assert altered.schema == "d"


def test_a_table_is_called_by_its_name_of_now() -> None:
    """A DDL that waited behind a RENAME has the table's old name in its text and the new one in its event."""
    found = task("create table b (id int)", "alter table a add column c int", table="b")
    assert found.context(inherits=True).table == TableName("d", "b")
    assert task("create table b (id int)", "truncate table b", table="b").context(inherits=True).table is None
    assert task("recover table by job 7", table="b").context(inherits=True).table == TableName("d", "b")


def test_an_exchange_names_its_tables_as_its_statement_does() -> None:
    """Whichever of its two tables the event is called by; one that was renamed while it waited is named as it is now,
    and the kind of partition is that of the partitioned table."""
    ranges = "partition by range (id) (partition P0 values less than (9))"
    exchange = "alter table r exchange partition p0 with table x"
    for label, tables, text in (
        ("x", "rx", "ALTER TABLE `r` EXCHANGE PARTITION `P0` WITH TABLE `x`"),
        ("r", "rx", "ALTER TABLE `r` EXCHANGE PARTITION `P0` WITH TABLE `x`"),
        ("y", "ry", "ALTER TABLE `d`.`r` EXCHANGE PARTITION `P0` WITH TABLE `d`.`y`"),
        ("s", "sx", "ALTER TABLE `d`.`s` EXCHANGE PARTITION `P0` WITH TABLE `d`.`x`"),
    ):
        r, x = tables
        made = f"create table {r} (id int primary key) {ranges}", f"create table {x} (id int primary key)"
        found = task(*made, exchange, table=label)
        assert statement_for(TIDB, exchange, found.context(inherits=True)).text == text
        assert found.context(inherits=True).partitioned == "RANGE"


def test_what_schema_cannot_follow() -> None:
    """Such a text leaves the tables as they are."""
    found = task("create table a (id int)", "alter table a add column `open int", table="a")
    assert not found.is_followed
    assert found.after is found.before


@pytest.mark.slow
def test_a_waiting_ddl_reaches_its_table(world: World) -> None:
    """Both statements that were queued before a RENAME act on the table with the new name."""
    for text in ("create database d", "create table a (id int primary key)", "rename table a to b"):
        world.ddl(text)
    world.ddl("alter table a add column c int", table="b")
    world.ddl("create index i on a (c)", table="b")
    assert world.looks() == world.meant()
