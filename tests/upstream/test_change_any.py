"""Any ALTER TABLEs, one after the other: invariants of every step, cancels anywhere, two other accounts of the same.

statements ── plan, step ──► definitions ◄── schema/stored/snapshot.py   what TiCDC makes of the finished jobs
                                 ▲
                                 └────────── schema/state.py             what change capture makes of the texts
"""

import copy
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.upstream.change_world import World
from tidegate.model.errors import SqlRefused
from tidegate.model.event import Ddl
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.job import Binlog, Job, JobState
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.schema.stored.definition import ElementState, StoredTable, table_layout
from tidegate.schema.stored.snapshot import StoredSnapshot, apply_job, table_info
from tidegate_upstream.change.request import Request, operation_of
from tidegate_upstream.f1 import rollback

pytestmark = pytest.mark.slow

CREATED = (
    "create table t (id int primary key, a int, b varchar(20) default 'x', c bigint not null, key ia (a), "
    "unique key ub (b, c))"
)
START = ("create database d", CREATED)
TYPES = (
    "int",
    "bigint",
    "smallint not null",
    "varchar(30)",
    "varchar(5) not null default 'y'",
    "decimal(8,2) default 1.5",
    "datetime(3)",
    "enum('x','y','z')",
    "bit(4) default b'101'",
)
names = st.sampled_from(["id", "a", "b", "c", "e", "f"])
keys = st.sampled_from(["ia", "ub", "k", "m"])
types = st.sampled_from(TYPES)
places = st.one_of(st.just(""), st.just(" first"), names.map(" after {}".format))
specs = st.one_of(
    st.builds("add column {} {}{}".format, names, types, places),
    st.builds("drop column {}".format, names),
    st.builds("modify column {} {}{}".format, names, types, places),
    st.builds("change column {} {} {}".format, names, names, types),
    st.builds("rename column {} to {}".format, names, names),
    st.builds("add index {} ({})".format, keys, names),
    st.builds("add unique index {} ({}, {})".format, keys, names, names),
    st.builds("drop index {}".format, keys),
    st.permutations(["ia", "ub", "k", "m"]).map(lambda order: f"rename index {order[0]} to {order[1]}"),
    st.builds("alter index {} invisible".format, keys),
    st.builds("alter column {} set default {}".format, names, st.sampled_from(["1", "'y'"])),
    st.builds("alter column {} drop default".format, names),
)
alters = st.lists(specs, min_size=1, max_size=3).map(lambda chosen: "alter table t " + ", ".join(chosen))
others = st.sampled_from(["alter table t comment = 'k'", "truncate table t", "alter table t auto_increment = 9"])
scripts = st.lists(st.tuples(st.one_of(alters, others), st.integers(0, 12)), min_size=1, max_size=8)


def check(table: StoredTable) -> None:
    """What every definition keeps to, whatever is under way."""
    columns, indexes = table.cols or [], table.index_info or []
    ids = [column.id for column in columns]
    assert [column.offset for column in columns] == list(range(len(columns)))
    assert len(set(ids)) == len(ids)
    assert max(ids) <= table.max_col_id
    assert len({column.name.lower for column in columns}) == len(columns)
    assert len({index.id for index in indexes}) == len(indexes)
    assert max([0, *(index.id for index in indexes)]) <= table.max_idx_id
    assert len({index.idx_name.lower for index in indexes}) == len(indexes)
    for index in indexes:
        assert all(columns[part.offset].name == part.name for part in index.idx_cols)
    public = [column.state == ElementState.PUBLIC for column in columns]
    assert public == sorted(public, reverse=True)
    table_layout(table)


def finish(world: World, request: Request) -> Job:
    """All steps of a request, checked, and the job as it is when it is done."""
    job = Job(1, request.action, request.schema_id, request.table_id, request.schema_name, request.table_name)
    for at in range(1, len(operation_of(request).steps)):
        outcome = world.step(request, at)
        for _, table in outcome.puts:
            check(table)
        if outcome.done:
            binlog = Binlog(1, outcome.schema, outcome.table, 0, list(outcome.tables) or None)
            job = msgspec.structs.replace(job, state=int(JobState.DONE), binlog=binlog)
    assert job.binlog is not None
    return job


def followed(world: World, sql: str, feed: StoredSnapshot, cancel: int) -> StoredSnapshot:
    """The change feed's snapshot after the statement's jobs, each of which was cancelled once before."""
    for request in world.requests(sql):
        operation = operation_of(request)
        at = cancel % (operation.revertible + 1)
        if rollback(operation, at):
            cancelled = copy.copy(world)
            cancelled.schemas, cancelled.tables = dict(world.schemas), dict(world.tables)
            cancelled.cancel(request, at)
            assert cancelled.texts() == world.texts()
        feed = apply_job(feed, finish(world, request), world.ts)
    return feed


def seen(table: TableInfo) -> tuple[object, ...]:
    """What both accounts of a table must agree on: ids are counted differently where stored values are converted."""
    columns = [
        (column.name, column.type, column.nullable, column.default, column.default_is_expr, column.auto_increment)
        for column in table.columns
    ]
    indexes = [(index.name, index.columns, index.unique, index.primary, index.visible) for index in table.indexes]
    return columns, sorted(indexes), table.charset, table.comment


def both_accounts(script: list[tuple[str, int]]) -> int:
    """Run a script, comparing after each statement; the number of statements that TiDB takes."""
    world, feed, state = World(), StoredSnapshot(), SchemaState()
    taken = 0
    for sql, cancel in [*((sql, 0) for sql in START), *script]:
        try:
            world.plan(sql)
        except SqlRefused:
            continue
        taken += 1
        feed = followed(world, sql, feed, cancel)
        assert {i: found.stored for i, found in feed.tables.items()} == {i: t for i, (_, t) in world.tables.items()}
        state, _ = apply_ddl(state, Ddl(schema="d", table="t", query=sql, commit_ts=world.ts << 18), 0)
        if "t" in {table.name.original for _, table in world.tables.values()}:
            mine, text = world.table("t"), state.table(TableName("d", "t"))
            assert text is not None
            assert seen(table_info(mine, "d", 0)) == normal(text, mine), sql
    return taken


def normal(text: TableInfo, mine: StoredTable) -> tuple[object, ...]:
    """The text's account, whose types leave open what TiDB fills in."""
    info = table_info(mine, "d", 0)
    columns = tuple(
        msgspec.structs.replace(column, type=other.type)
        if (column.type.code, column.type.flen) == (other.type.code, other.type.flen) or column.type.flen < 0
        else column
        for column, other in zip(text.columns, info.columns, strict=True)
    )
    return seen(msgspec.structs.replace(text, columns=columns))


@given(scripts)
@settings(deadline=None, max_examples=60)
def test_any_alterations(script):
    """However a table is altered, all accounts of it agree, and a cancelled job leaves nothing behind."""
    both_accounts(script)


@pytest.mark.soak
@given(scripts)
@settings(deadline=None, max_examples=2_000)
def test_many_alterations(script):
    """The same, often."""
    both_accounts(script)


def test_scripts_are_mostly_taken():
    """The statements of the scripts are not all refused: these are not."""
    script = ["alter table t add column e int first, add index k (a)", "alter table t change column c f varchar(30)"]
    assert both_accounts([(sql, 5) for sql in script]) == 4


RANGES = "partition by range (id) (partition p0 values less than (10), partition p1 values less than (20))"
SPLIT = "(partition s values less than (5), partition z values less than (20))"
PARTITIONED = ("create database d", f"create table t (id int primary key, v varchar(9)) {RANGES}")
repartitions = st.sampled_from(
    [
        "alter table t add partition (partition p2 values less than (30))",
        "alter table t add partition (partition p3 values less than (40), partition p4 values less than maxvalue)",
        "alter table t drop partition p1",
        "alter table t truncate partition p0",
        "alter table t truncate partition all",
        "alter table t reorganize partition p0, p1 into (partition q values less than (20))",
        f"alter table t reorganize partition q into {SPLIT}",
        "alter table t partition by hash (id) partitions 3",
        "alter table t partition by key (id) partitions 2",
        f"alter table t {RANGES}",
        "alter table t add partition partitions 2",
        "alter table t add partition (partition n)",
        "alter table t coalesce partition 1",
        "alter table t remove partitioning",
        "alter table t add column c int default 5",
        "alter table t drop column c",
        "alter table t add index k (v)",
        "alter table t drop index k",
        "truncate table t",
    ]
)


def unstamped(tables: Iterable[StoredTable]) -> dict[int, StoredTable]:
    """Tables by id, without the moment of their last step: DROP PARTITION is done before it comes."""
    return {table.id: msgspec.structs.replace(table, update_timestamp=0) for table in tables}


@given(st.lists(st.tuples(repartitions, st.integers(0, 5)), min_size=1, max_size=12))
@settings(deadline=None, max_examples=60)
def test_any_repartitioning(script):
    """However a table is partitioned anew, all accounts of it agree, also on its partitions."""
    world, feed, state = World(), StoredSnapshot(), SchemaState()
    for sql, cancel in [*((sql, 0) for sql in PARTITIONED), *script]:
        try:
            world.plan(sql)
        except SqlRefused:
            continue
        feed = followed(world, sql, feed, cancel)
        assert unstamped(found.stored for found in feed.tables.values()) == unstamped(
            t for _, t in world.tables.values()
        )
        state, _ = apply_ddl(state, Ddl(schema="d", table="t", query=sql, commit_ts=world.ts << 18), 0)
        text = state.table(TableName("d", "t"))
        if text is not None:
            mine, theirs = table_info(world.table("t"), "d", 0).partition, text.partition
            assert (mine is None) == (theirs is None), sql
            if mine is not None and theirs is not None:
                assert (mine.method, mine.columns, mine.definitions) == (
                    theirs.method,
                    theirs.columns,
                    theirs.definitions,
                )
