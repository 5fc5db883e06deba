"""What statements ask for: refusals with MySQL's numbers, notes, no-ops, and the definitions that they make."""

from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec
import pytest

from tests.upstream.change_world import SnapshotDefinitions, World, example
from tidegate.model.errors import SqlRefused
from tidegate.schema.modify_kind import ModifyKind
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.stored.definition import PREVENT_NULL, render_stored
from tidegate_upstream.change.plan import plan
from tidegate_upstream.change.request import operation_of
from tidegate_upstream.change.restore import restore
from tidegate_upstream.change.session import DdlSession
from tidegate_upstream.change.step import step
from tidegate_upstream.f1 import Work

REFUSED = [
    (1007, "create database d"),
    (1008, "drop database nobody"),
    (1049, "create table nobody.t (a int)"),
    (1049, "alter database nobody charset utf8mb4"),
    (1115, "create database e charset klingon"),
    (1253, "create database e charset utf8mb4 collate latin1_bin"),
    (1050, "create table t (a int)"),
    (1050, "create table w (a int)"),
    (1060, "create table n (a int, A int)"),
    (1061, "create table n (a int, key i (a), key I (a))"),
    (1068, "create table n (a int primary key, b int, primary key (b))"),
    (1072, "create table n (a int, key i (b))"),
    (1171, "create table n (a int null, primary key (a))"),
    (1075, "create table n (a int auto_increment, b int)"),
    (1067, "create table n (a int not null default null)"),
    (1067, "create table n (a int default 'word')"),
    (1067, "create table n (a enum('x') default 'y')"),
    (1067, "create table n (a date default '0000-00-00')"),
    (1067, "create table n (a datetime default 'soon')"),
    (1067, "create table n (a timestamp default '2020-02-31')"),
    (1101, "create table n (a text default 'y')"),
    (1170, "create table n (a text, key (a))"),
    (1089, "create table n (a int, key (a(3)))"),
    (1391, "create table n (a varchar(9), key (a(0)))"),
    (1071, "create table n (a varchar(9000), key (a))"),
    (1074, "create table n (a char(300))"),
    (1426, "create table n (a datetime(7))"),
    (3152, "create table n (a json, key (a))"),
    (1280, "create table n (a int, key `primary` (a))"),
    (1054, "create table n (a int, b int as (c + 1))"),
    (1054, "create table n (a int) partition by hash (b) partitions 2"),
    (1503, "create table n (a int primary key, b int) partition by hash (b) partitions 2"),
    (
        1493,
        (
            "create table n (a int) partition by range (a) (partition p values less than (2), "
            "partition q values less than (1))"
        ),
    ),
    (
        1481,
        (
            "create table n (a int) partition by range (a) (partition p values less than maxvalue, "
            "partition q values less than (1))"
        ),
    ),
    (1517, "create table n (a int) partition by list (a) (partition p values in (2), partition P values in (1))"),
    (1492, "create table n (a int) partition by range (a)"),
    (1824, "create table n (a int, foreign key (a) references nobody (id))"),
    (1239, "create table n (a int, foreign key (a) references parent (id, id))"),
    (3820, "create table n (a int, check (b > 1))"),
    (8148, "create table n (a int) ttl = a + interval 1 day"),
    (8216, "create table n (a int auto_random primary key)"),
    (8200, "create table n (a int primary key) shard_row_id_bits = 2"),
    (8200, "create table n as select 1"),
    (1146, "create table n like nobody"),
    (1347, "create table n like w"),
    (1051, "drop table t, nobody"),
    (1051, "drop table w"),
    (1051, "drop view nobody"),
    (1347, "drop view t"),
    (3730, "drop table parent"),
    (1701, "truncate table parent"),
    (1146, "truncate table nobody"),
    (1146, "rename table nobody to n"),
    (1050, "rename table t to x"),
    (1049, "rename table t to nobody.t"),
    (1146, "rename table t to n, t to m"),
    (1146, "create view v as select * from nobody"),
    (1353, "create view v (a, b) as select id from t"),
    (1050, "create view w as select 1"),
    (1347, "create or replace view t as select 1"),
    (4139, "drop sequence nobody"),
    (4136, "create sequence q start 5 maxvalue 2"),
    (1105, "recover table nobody"),
    (1050, "flashback table t to x"),
    (1146, "alter table nobody add column c int"),
    (1347, "alter table w add column c int"),
    (1060, "alter table t add column A int"),
    (1054, "alter table t add column c int after nobody"),
    (8200, "alter table t add column c int unique"),
    (8200, "alter table t add column c int primary key"),
    (3106, "alter table t add column c int as (a) stored"),
    (1091, "alter table t drop column nobody"),
    (3108, "alter table t drop column a"),
    (8200, "alter table t drop column id"),
    (1090, "alter table parent drop column id"),
    (8200, "alter table r drop column id"),
    (1828, "alter table child drop column p"),
    (3959, "alter table child rename column p to q"),
    (1832, "alter table child modify column p bigint"),
    (1833, "alter table parent modify column id bigint"),
    (8200, "alter table parent rename column id to key_id"),
    (1170, "alter table t modify column b text"),
    (3152, "alter table t modify column b json"),
    (1071, "alter table t modify column b varchar(9000)"),
    (1054, "alter table t modify column nobody int"),
    (1054, "alter table t modify column a bigint after a"),
    (1060, "alter table t change column b id int"),
    (3108, "alter table t change column a z int"),
    (8200, "alter table r modify column v varchar(9)"),
    (8200, "alter table x modify column id varchar(9)"),
    (8200, "alter table x modify column v int unique"),
    (8200, "alter table x modify column v int auto_increment"),
    (3106, "alter table x modify column v int as (id)"),
    (1054, "alter table t alter column nobody set default 1"),
    (1061, "alter table t add index IA (b)"),
    (1072, "alter table t add index i (nobody)"),
    (1068, "alter table t add primary key (a)"),
    (8200, "alter table free add primary key (a) clustered"),
    (1503, "alter table r add unique index u (v)"),
    (1091, "alter table t drop index nobody"),
    (1091, "alter table free drop primary key"),
    (8200, "alter table t drop primary key"),
    (1176, "alter table t rename index nobody to i"),
    (1061, "alter table t rename index ia to ib"),
    (1176, "alter table t alter index nobody invisible"),
    (1091, "alter table t drop foreign key nobody"),
    (1826, "alter table child add constraint fk foreign key (id) references parent (id)"),
    (1822, "alter table x add foreign key (v) references r (v)"),
    (1553, "alter table child drop index fk"),
    (3940, "alter table child drop check nobody"),
    (3822, "alter table child add constraint c check (id > 0)"),
    (8150, "alter table t ttl_enable = 'OFF'"),
    (8216, "alter table t auto_random_base = 9"),
    (8200, "alter table t shard_row_id_bits = 2"),
    (8200, "alter table t convert to character set latin1"),
    (1505, "alter table t drop partition p"),
    (1507, "alter table r drop partition nobody"),
    (1508, "alter table r drop partition p0, p1"),
    (1512, "alter table h drop partition p0"),
    (1735, "alter table r truncate partition nobody"),
    (1517, "alter table r add partition (partition P1 values less than (30))"),
    (1493, "alter table r add partition (partition p2 values less than (15))"),
    (1480, "alter table h add partition (partition p3 values less than (9))"),
    (1517, "alter table h add partition (partition p2)"),
    (1509, "alter table r coalesce partition 1"),
    (1515, "alter table h coalesce partition 0"),
    (1508, "alter table h coalesce partition 3"),
    (1510, "alter table h reorganize partition p0 into (partition q values less than (1))"),
    (1520, "alter table r reorganize partition p0 into (partition q values less than (11))"),
    (1736, "alter table r exchange partition p0 with table free"),
    (1732, "alter table r exchange partition p0 with table h"),
    (8200, "alter table t modify column b varchar(30), drop column b"),
    (8200, "alter table x drop column v, add index i (v)"),
    (8200, "alter table t drop index ia, drop index ia"),
    (8200, "alter table t modify column b datetime, drop index ib"),
    (8200, "alter table t rename index ia to k, add index k (b)"),
    (8200, "alter table t drop column b, drop index ib"),
    (8200, "alter table x drop column v, add column c int after v"),
    (1072, "alter table x add column c int, add index i (c)"),
    (8200, "alter table x add column c int, rename to y"),
    (8200, "alter table h add column c int, remove partitioning"),
]


@pytest.mark.parametrize(("code", "sql"), REFUSED, ids=[f"{code} {sql[:60]}" for code, sql in REFUSED])
def test_refusals_have_mysqls_numbers(code, sql):
    """A statement that TiDB does not accept is refused before it becomes a job."""
    world = example()
    with pytest.raises(SqlRefused) as caught:
        world.plan(sql)
    assert code == caught.value.mysql_code


def test_a_statement_without_database_is_refused():
    """1046 where neither the name nor the session says which database."""
    world = World("")
    with pytest.raises(SqlRefused) as caught:
        world.plan("create table t (a int)")
    assert caught.value.mysql_code == 1046


NOTED = [
    (1007, "create database if not exists d"),
    (1008, "drop database if exists nobody"),
    (1050, "create table if not exists t (a int)"),
    (1050, "create table if not exists t like x"),
    (1051, "drop table if exists nobody"),
    (1051, "drop view if exists nobody"),
    (1060, "alter table t add column if not exists a int"),
    (1091, "alter table t drop column if exists nobody"),
    (1061, "create index if not exists ia on t (b)"),
    (1091, "drop index if exists nobody on t"),
    (1507, "alter table r drop partition if exists nobody"),
    (4139, "drop sequence if exists nobody"),
]


@pytest.mark.parametrize(("code", "sql"), NOTED)
def test_what_if_exists_passes_over_is_noted(code, sql):
    """IF [NOT] EXISTS makes a note of the refusal and no job."""
    found = example().plan(sql)
    assert found.requests == ()
    assert [("Note", code)] == [(note.level, note.code) for note in found.warnings]


@pytest.mark.parametrize(
    "sql",
    [
        "alter table t charset utf8mb4 collate utf8mb4_bin",
        "alter table t convert to character set utf8mb4 collate utf8mb4_bin",
        "alter database d charset utf8mb4",
        "alter table t rename index ia to ia",
        "alter table t alter index ia visible",
        "alter table t remove ttl",
        "alter table t order by a",
        "set @x = 1",
        "create user u",
    ],
)
def test_what_changes_nothing_has_no_job(sql):
    """A change to what is there already is none."""
    assert example().plan(sql).requests == ()


def test_drop_of_both_ends_of_a_foreign_key_is_no_violation():
    """A parent may go together with all its children, and whenever foreign keys are not looked at."""
    world = example()
    assert len(world.plan("drop table child, parent").requests) == 2
    free = replace(world.session(""), foreign_key_checks=False)
    assert len(world.plan("drop table parent", free).requests) == 1


@pytest.mark.parametrize("sql", ["drop table t", "alter table t add column c int", "create table n (a int)"])
def test_plan_is_pure(sql):
    """Planning twice gives the same plan, and leaves the snapshot as it was."""
    world = example()
    snapshot = world.snapshot
    before = [render_stored(found.stored) for found in snapshot.tables.values()]
    (statement,) = parse_ddl(sql, "d")
    session = world.session(sql)

    assert plan(statement, snapshot, session) == plan(statement, snapshot, session)
    assert before == [render_stored(found.stored) for found in snapshot.tables.values()]


def test_defaults_of_timestamps_are_kept_in_utc():
    """A literal is of the session's zone; the definition holds UTC, of DATETIME what was written, in full."""
    world = example()
    session = replace(world.session(""), zone=ZoneInfo("Asia/Shanghai"))
    sql = "create table n (a timestamp default '2020-01-01 08:00:00.5', b datetime(3) default '2020-1-1 8:00')"
    (request,) = world.plan(sql, session).requests
    first, second = request.arguments.table_info.cols

    assert first.default == "2020-01-01 00:00:01"
    assert second.default == "2020-01-01 08:00:00.000"


def test_a_new_columns_current_timestamp_is_the_moment_of_the_statement():
    """Rows from before the column show when it came."""
    world = example()
    now = datetime(2024, 2, 3, 4, 5, 6, 789000, tzinfo=UTC)
    session = replace(world.session(""), zone=ZoneInfo("Asia/Shanghai"), now=now)
    sql = "alter table x add column m timestamp(3) default current_timestamp(3), add column d datetime default now()"
    (request,) = world.plan(sql, session).requests
    moments = [part.arguments.column_info.origin_default for part in request.parts]

    assert moments == ["2024-02-03 04:05:06.789", "2024-02-03 12:05:06"]


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("a+1", "`a` + 1"),
        ("t.a", "`a`"),
        ("-a * -1", "-`a` * -1"),
        ("(a+b)*2", "(`a` + `b`) * 2"),
        ("CONCAT( 'v' ,a)", "concat(_utf8mb4'v', `a`)"),
        ("j->'$.x'", "json_extract(`j`, _utf8mb4'$.x')"),
        ("j->>'$.x' = 'it''s'", "json_unquote(json_extract(`j`, _utf8mb4'$.x')) = _utf8mb4'it''s'"),
        ("CAST(a AS CHAR(10))", "cast(`a` as char(10))"),
        ("a IS NOT NULL AND b IN (1,2)", "`a` is not null and `b` in (1, 2)"),
        ("case when a>0 then 1 else 0 end", "case when `a` > 0 then 1 else 0 end"),
        ("`select`", "`select`"),
    ],
)
def test_expressions_are_restored(written, stored):
    """Expressions stand in definitions in TiDB's one form, which is its own restoration."""
    assert stored == restore(written).text
    assert stored == restore(stored).text


def test_a_prefix_as_long_as_its_column_is_no_prefix():
    """KEY (a(9)) on nine characters is the whole column."""
    world = example().run("create table n (a varchar(9), b varchar(9), key k (a(9), b(3)))")
    (index,) = world.table("n").index_info
    assert [part.length for part in index.idx_cols] == [-1, 3]


def test_row_keys():
    """One integer is the handle itself; other primary keys are indexes that are the row key, unless NONCLUSTERED."""
    world = example().run(
        "create table i (a bigint primary key)",
        "create table v (a varchar(9) primary key)",
        "create table n (a int primary key nonclustered)",
    )
    shape = [
        (table.pk_is_handle, table.is_common_handle, len(table.index_info or ())) for table in map(world.table, "ivn")
    ]
    assert shape == [(True, False, 0), (False, True, 1), (False, False, 1)]


def test_modify_with_a_look_at_the_values():
    """INT to SMALLINT NOT NULL keeps the bytes: new values must fit at once, stored ones are looked at."""
    world = example()
    (request,) = world.requests("alter table x modify column v smallint not null")
    outcome = world.step(request, 1)
    (task,) = outcome.tasks
    column = world.table("x").cols[1]

    assert (task.work, task.not_null, task.fit) == (Work.VALIDATE, (2,), (2,))
    assert column.type.flag & PREVENT_NULL
    assert (column.type.tp, column.changing_type.tp) == (3, 2)
    world.step(request, 2)
    column = world.table("x").cols[1]
    assert (column.type.tp, column.changing_type) == (2, msgspec.UNSET)
    assert not column.type.flag & PREVENT_NULL


def test_work_names_its_elements():
    """What the owner has to do says on which elements: ids as the step just gave them."""
    world = example()
    (request,) = world.requests("alter table t modify column b varbinary(9)")
    for at in (1, 2, 3):
        tasks = world.step(request, at).tasks
    table = world.table("t")
    copies = [index.id for index in table.index_info if index.idx_name.original.startswith("_Idx$_ib")]
    (task,) = tasks

    assert task.columns == {5: 3}
    assert copies == list(task.indexes)


def test_a_job_meets_what_came_before_it():
    """Planned side by side, the second of two jobs that clash fails at its first step."""
    world = example()
    first, second = (next(world.requests("alter table x add column c int")) for _ in range(2))
    for at in range(1, len(operation_of(first).steps)):
        world.step(first, at)

    with pytest.raises(SqlRefused, match="Duplicate column name 'c'"):
        step(second, 1, world.definitions, 9)
    gone = next(world.requests("truncate table x"))
    world.run("drop table x")
    with pytest.raises(SqlRefused, match="doesn't exist"):
        step(gone, 1, SnapshotDefinitions(world.snapshot), 9)


def test_exchange_swaps_ids_and_keeps_rows_that_fit_only_until_all_know():
    """The table takes the partition's id and the partition the table's; the restriction goes last."""
    world = example()
    table_id, partition_id = world.table("x").id, world.table("r").partition.definitions[0].id
    (request,) = world.requests("alter table r exchange partition p0 with table x")
    restricted = []
    for at in range(1, len(operation_of(request).steps)):
        world.step(request, at)
        restricted.append(bytes(world.table("x").exchange_partition_info) != b"null")

    assert restricted == [True, True, False]
    assert partition_id == world.table("x").id
    assert table_id == world.table("r").partition.definitions[0].id


def test_sessions_defaults_are_tidbs():
    """A session without settings has TiDB's charset and looks at foreign keys and checks."""
    session = DdlSession()
    assert (
        session.charset,
        session.collate,
        session.foreign_key_checks,
        session.check_constraints,
    ) == ("utf8mb4", "utf8mb4_bin", True, True)


@pytest.mark.parametrize(
    "first",
    ["reorganize partition p0, p1 into (partition q values less than (20))", "truncate partition p0"],
)
def test_an_exchange_of_a_partition_that_is_gone_is_refused(first):
    """An EXCHANGE that was queued behind what took its partition away is refused at its first step."""
    world = example()
    (request,) = world.requests("alter table r exchange partition p0 with table x")
    world.run(f"alter table r {first}")
    with pytest.raises(SqlRefused, match="Unknown partition") as caught:
        world.step(request, 1)
    assert caught.value.mysql_code == 1735


def test_foreign_keys_follow_renames():
    """A renamed table is referred to by its new name, a renamed column of a foreign key keeps its key."""
    world = example().run("create database e", "alter table child drop check c", "rename table parent to e.elders")
    (key,) = world.table("child").fk_info or ()
    assert (key.ref_schema.original, key.ref_table.original) == ("e", "elders")

    world.run("alter table child rename column p to q")
    (key,) = world.table("child").fk_info or ()
    assert [name.original for name in key.cols] == ["q"]

    world.run(
        "create table tree (id int primary key, up int, foreign key (up) references tree (id))",
        "rename table tree to d.wood",
    )
    (key,) = world.table("wood").fk_info or ()
    assert key.ref_table.original == "wood"


def test_children_of_a_renamed_table_are_part_of_the_difference():
    """Nodes load what the difference names: the tables that refer to the renamed one, too."""
    world = example()
    (request,) = world.requests("rename table parent to elders")
    diff = world.step(request, 1).diff
    assert [option.table_id for option in diff.affected_options] == [world.table("child").id]


KINDS = [
    ("int", "bigint", ModifyKind.LOSSLESS),
    ("int", "smallint", ModifyKind.CHECKED),
    ("int", "int not null", ModifyKind.CHECKED),
    ("int", "int unsigned", ModifyKind.LOSSY),
    ("int", "varchar(9)", ModifyKind.LOSSY),
    ("varchar(9)", "varchar(10)", ModifyKind.LOSSLESS),
    ("varchar(9)", "varchar(8)", ModifyKind.CHECKED),
    ("varchar(9)", "text", ModifyKind.LOSSLESS),
    ("varchar(9)", "char(9)", ModifyKind.LOSSY),
    ("varchar(9)", "varbinary(9)", ModifyKind.LOSSY),
    ("varchar(9)", "varchar(9) character set latin1", ModifyKind.LOSSY),
    ("varchar(9) character set latin1", "varchar(9)", ModifyKind.LOSSLESS),
    ("binary(3)", "binary(4)", ModifyKind.LOSSY),
    ("text", "longtext", ModifyKind.LOSSLESS),
    ("enum('a')", "enum('a','b')", ModifyKind.LOSSLESS),
    ("enum('a','b')", "enum('b','a')", ModifyKind.LOSSY),
    ("decimal(5,2)", "decimal(6,2)", ModifyKind.LOSSY),
    ("datetime", "datetime(3)", ModifyKind.LOSSY),
    ("bit(3)", "bit(9)", ModifyKind.LOSSLESS),
    ("json", "json", ModifyKind.LOSSLESS),
]


@pytest.mark.parametrize(("old", "new", "kind"), KINDS)
def test_how_columns_change(old, new, kind):
    """Only where the stored bytes mean the same under both types do they stay."""
    world = example().run(f"create table n (id int primary key, m {old})")
    (request,) = world.plan(f"alter table n modify column m {new}").requests
    assert request.arguments.kind == kind
