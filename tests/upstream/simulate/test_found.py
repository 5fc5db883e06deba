"""What the simulation has found, each as the few statements that show it."""

from collections.abc import Sequence

import pytest

from tests.upstream.ddl.kit import SESSION_MS, World
from tests.upstream.simulate.life import waiting
from tidegate.model.errors import SqlRefused
from tidegate.mysql.values import Context
from tidegate.schema.job import JobState
from tidegate.schema.parse_ddl import parse_ddl
from tidegate_upstream.change.plan import plan
from tidegate_upstream.change.session import DdlSession
from tidegate_upstream.tidb.check_table import check_table
from tidegate_upstream.tidb.ddl_owner import error_of
from tidegate_upstream.tidb.session import Session
from tidegate_upstream.tidb.table_rows import TableShape

pytestmark = pytest.mark.slow


def session(world: World) -> Session:
    """A session in database gd; whoever would sleep lets time pass."""
    made = Session(world.node())
    made.state.database = "gd"
    return made


def run(world: World, *statements: str) -> None:
    """Statements, one after the other."""
    with waiting(world.clock):
        for text in statements:
            session(world).execute(text)


def queue(world: World, *statements: str) -> list[int]:
    """DDL that is asked for before any of it is done: each is planned for the tables of now."""
    world.node().reload()
    schema = world.node().schema
    found = []
    for text in statements:
        (statement,) = parse_ddl(text, "gd")
        found += [world.submit(one) for one in plan(statement, schema, DdlSession("gd", text)).requests]
    return found


def ended(world: World, job_id: int) -> tuple[int, int]:
    """(state, error code) of a job that is over."""
    job = world.meta().job(job_id)
    assert job is not None
    error = error_of(job)
    return job.state, 0 if error is None else error.code


def rows(world: World, query: str) -> Sequence[tuple[object, ...]]:
    """What SELECT shows."""
    with waiting(world.clock):
        (answer,) = session(world).execute(query)
    return answer.rows  # type: ignore[union-attr]


def test_jobs_on_one_table_do_not_run_at_once_when_it_was_renamed_in_between() -> None:
    """A job that was queued under the old name and a DROP under the new one: they used to go on side by side, and the
    first could neither go on nor back when its table was gone."""
    world = World()
    run(world, "create table s (id int primary key, a int, key i0 (a))")
    renamed, several = queue(world, "rename table s to r", "alter table s drop index i0, add column c int")
    world.ticks(lambda: world.meta().job(renamed) is not None)
    dropped = queue(world, "drop table r")[0]

    world.finish()

    assert [ended(world, one)[0] for one in (renamed, several, dropped)] == [JobState.SYNCED] * 3


def test_a_change_of_type_that_another_has_overtaken_is_refused() -> None:
    """VARCHAR(20) to (40) keeps the bytes; behind a change to DOUBLE it would show the bytes of numbers as text."""
    world = World()
    run(world, "create table s (id int primary key, c varchar(20))", "insert into s values (1, '3')")
    _, longer, renamed = queue(
        world,
        "alter table s modify column c double",
        "alter table s modify column c varchar(40)",
        "alter table s rename column c to d",
    )

    world.finish()

    assert ended(world, longer) == ended(world, renamed) == (JobState.CANCELLED, 8200)
    assert rows(world, "select c from s") == [(3.0,)]


@pytest.mark.parametrize("kind", ["date", "varchar(20)", "bigint unsigned"])
def test_null_stops_a_lossy_change_to_not_null(kind: str) -> None:
    """It used to become zero. Rows that were written since the job began have a value already, and count as well."""
    world = World()
    run(world, "create table s (id int primary key, c int)", "insert into s values (1, null)")

    with pytest.raises(SqlRefused) as raised:
        run(world, f"alter table s modify column c {kind} not null")

    assert raised.value.mysql_code == 1265
    assert rows(world, "select * from s") == [(1, None)]


def test_reorganized_partitions_have_names_of_their_own() -> None:
    """Two jobs that were asked for at once and make a partition of one name: the second is refused."""
    world = World()
    run(
        world,
        "create table s (id int primary key) partition by range (id) "
        "(partition p0 values less than (4), partition p1 values less than (8))",
    )
    first, second = queue(
        world,
        "alter table s reorganize partition p0 into (partition q values less than (4))",
        "alter table s reorganize partition p1 into (partition q values less than (8))",
    )

    world.finish()

    assert ended(world, first)[0] == JobState.SYNCED
    assert ended(world, second) == (JobState.CANCELLED, 1517)


def test_added_partitions_have_bounds_of_their_own() -> None:
    """Two jobs that were asked for at once and end a partition at one bound: the second is refused."""
    world = World()
    run(
        world,
        "create table s (id int primary key) partition by range (id) (partition p0 values less than (4))",
    )
    first, second = queue(
        world,
        "alter table s add partition (partition p1 values less than (8))",
        "alter table s add partition (partition p2 values less than (8))",
    )

    world.finish()

    assert ended(world, first)[0] == JobState.SYNCED
    assert ended(world, second) == (JobState.CANCELLED, 1493)


def test_a_like_takes_over_what_is_public() -> None:
    """CREATE TABLE LIKE while a column and a key are on their way: the new table has neither, and never gets them."""
    world = World()
    run(world, "create table s (id int primary key, c int)")
    (first,) = queue(world, "alter table s add column d int, add key k (c)")
    world.step(first, 2)
    (second,) = queue(world, "create table n like s")
    world.finish()

    assert ended(world, second)[0] == JobState.SYNCED
    assert [column.name.original for column in world.named("n").cols or ()] == ["id", "c"]
    assert not world.named("n").index_info
    assert len(world.named("s").cols or ()) == 3


def test_tables_that_became_different_are_not_exchanged() -> None:
    """EXCHANGE PARTITION, asked for before the other table had a column more; sessions used to fail on the pair."""
    world = World()
    run(
        world,
        "create table p (id int primary key) partition by range (id) (partition p0 values less than (4))",
        "create table x (id int primary key)",
    )
    _, exchange = queue(world, "alter table x add column c int", "alter table p exchange partition p0 with table x")

    world.finish()

    assert ended(world, exchange) == (JobState.CANCELLED, 1736)


def test_two_rows_with_one_key_are_a_fault_once_the_index_is_public() -> None:
    """While a unique index is filled they may be there, and its one entry names either."""
    world = World()
    run(world, "create table s (id int primary key, a int)", "insert into s values (1, 5), (2, 5)")
    (job_id,) = queue(world, "alter table s add unique index u (a)")
    world.step(job_id, 3)
    run(world, "update s set a = 6 where id = 1", "update s set a = 5 where id = 1")
    context = Context(session(world).state.now)

    found = check_table(world.cluster.storage.snapshot(), TableShape(world.named("s")), context)
    world.finish()

    assert found == []
    assert ended(world, job_id) == (JobState.ROLLBACK_DONE, 1062)


def test_an_old_transaction_may_use_a_table_that_has_not_changed() -> None:
    """The first step of EXCHANGE PARTITION changes one of its two tables; the cluster's own check took a use of the
    other, under the version before, for two steps at once."""
    world = World()
    run(
        world,
        "create table p (id int primary key) partition by range (id) (partition p0 values less than (4))",
        "create table x (id int primary key)",
        "insert into x values (2)",
    )
    for node in world.cluster.nodes.values():
        node.reload()
    with waiting(world.clock):
        holder = session(world)
        holder.execute("begin")
        (job_id,) = queue(world, "alter table p exchange partition p0 with table x")
        world.step(job_id, 1)
        for node in world.cluster.nodes.values():
            node.reload()
        holder.execute("insert into p values (1)")
        world.cluster.ddl_client.cancel(job_id)
        for _ in range(20):
            world.cluster.tick()
        holder.execute("rollback")
    world.pass_ms(SESSION_MS + 1)
    for node in world.cluster.nodes.values():
        node.reload()
    world.finish()

    assert ended(world, job_id)[0] == JobState.ROLLBACK_DONE


def test_a_recovered_table_is_as_it_was_when_its_drop_began() -> None:
    """A DROP that waited for a change of a column: RECOVER used to bring back the definition of the moment at which the
    DROP was asked for, in the middle of that change."""
    world = World()
    run(world, "create table s (id int primary key, a int)", "insert into s values (1, 7)")
    modified, dropped = queue(world, "alter table s modify column a varchar(9) not null", "drop table s")
    world.finish()

    run(world, "recover table s", "insert into s values (2, 'x')")

    assert [ended(world, one)[0] for one in (modified, dropped)] == [JobState.SYNCED] * 2
    assert sorted(rows(world, "select * from s")) == [(1, "7"), (2, "x")]
    world.node().reload()
    (stored,) = [one.stored for one in world.node().schema.tables.values() if one.stored.name.lower == "s"]
    assert [column.name.lower for column in stored.cols or []] == ["id", "a"]


def test_a_column_does_not_go_from_under_an_index_that_came_first() -> None:
    """An index over two columns that was in the queue before the DROP COLUMN: it used to be left without its column."""
    world = World()
    run(world, "create table s (id int primary key, a int, b int)")
    added, dropped = queue(world, "alter table s add index i (a, b)", "alter table s drop column b")

    world.finish()

    assert ended(world, added)[0] == JobState.SYNCED
    assert ended(world, dropped) == (JobState.CANCELLED, 8200)


def test_a_truncate_that_counted_other_partitions_is_refused() -> None:
    """Its new ids are given when it is asked for; a REORGANIZE before it in the queue changed how many are needed."""
    world = World()
    run(
        world,
        "create table s (id int primary key) partition by range (id) "
        "(partition p0 values less than (10), partition p1 values less than (20))",
        "insert into s values (5), (15)",
    )
    split, truncated = queue(
        world,
        "alter table s reorganize partition p0 into "
        "(partition q0 values less than (5), partition q1 values less than (10))",
        "truncate table s",
    )

    world.finish()

    assert ended(world, split)[0] == JobState.SYNCED
    assert ended(world, truncated) == (JobState.CANCELLED, 8200)
    assert sorted(rows(world, "select id from s")) == [(5,), (15,)]


@pytest.mark.parametrize(
    "change",
    [
        "alter table s remove partitioning",
        "alter table s reorganize partition p1 into (partition q1 values less than (30))",
    ],
)
def test_a_row_that_the_old_partitions_cannot_hold_waits_for_the_end_of_the_job(change: str) -> None:
    """A node one version ahead used to take it, and one that still reads the old partitions never saw it."""
    world = World()
    run(
        world,
        "create table s (id int primary key) partition by range (id) "
        "(partition p0 values less than (10), partition p1 values less than (20))",
    )
    (job_id,) = queue(world, change)
    for at in (3, 4, 5):
        world.step(job_id, at)
        world.node().reload()
        with waiting(world.clock), pytest.raises(SqlRefused, match="no partition"):
            session(world).execute("insert into s values (25)")
    world.finish()

    run(world, "insert into s values (25)")

    assert rows(world, "select id from s") == [(25,)]


def test_a_recover_whose_name_was_taken_meanwhile_ends() -> None:
    """It had done its first step, which changes no definition, and could then neither go on nor back."""
    world = World()
    run(world, "create table s (id int primary key)", "drop table s")
    world.node().reload()
    (request,) = world.asked("recover table s")
    created, recovered = queue(world, "create table s (id int primary key, a int)")[0], world.submit(request)

    world.finish()

    assert ended(world, created)[0] == JobState.SYNCED
    assert ended(world, recovered) == (JobState.CANCELLED, 1050)


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ("add index i ((concat(a, 'x')))", "drop column a", 3108),
        ("add index i ((concat(a, 'x')))", "rename column a to c", 3108),
        ("add index i ((concat(a, 'x')))", "modify column a int", 8200),
        ("add column g int as (length(a))", "drop column a", 3108),
        ("drop column a", "add column g int as (length(a))", 1054),
        ("drop column a", "add index i ((concat(a, 'x')))", 1054),
        ("add column b int", "rename column a to b", 1060),
        ("add column b int", "change column a b int", 1060),
        ("modify column a bigint", "alter column a set default '7'", 8200),
        ("add index k (id)", "rename index j to k", 1061),
    ],
)
def test_a_job_meets_the_table_that_the_job_before_it_left(first: str, second: str, code: int) -> None:
    """Two jobs that were asked for at once: the second is refused as if it had been asked for when it began."""
    world = World()
    run(world, "create table s (id int, a varchar(20), key j (id))", "insert into s values (1, '3')")
    _, refused = queue(world, f"alter table s {first}", f"alter table s {second}")

    world.finish()

    assert ended(world, refused) == (JobState.CANCELLED, code)
    assert rows(world, "select id from s") == [(1,)]


def test_a_default_brings_nothing_else_along() -> None:
    """SET DEFAULT was asked for while the column was NOT NULL, and used to bring that back."""
    world = World()
    run(world, "create table s (id int, a int not null)")
    queue(world, "alter table s modify column a int", "alter table s alter column a set default 7")

    world.finish()
    run(world, "insert into s (id) values (1)", "insert into s values (2, null)")

    assert sorted(rows(world, "select * from s")) == [(1, 7), (2, None)]


def test_a_column_of_the_partitioning_expression_keeps_its_name() -> None:
    """The expression used to name a column that was there no more."""
    world = World()
    run(world, "create table s (id int, a int) partition by hash (id + 1) partitions 2")

    with pytest.raises(SqlRefused) as raised:
        run(world, "alter table s rename column id to b")

    assert raised.value.mysql_code == 3855


def test_a_table_on_its_way_out_gives_no_numbers_that_its_recovery_gives_again() -> None:
    """A node one version behind numbered rows after the DROP began; RECOVER brought back the counter of before."""
    world = World()
    run(world, "create table s (a int)", "insert into s values (1)")
    with waiting(world.clock):
        late = session(world)
        late.execute("begin")
        (dropped,) = queue(world, "drop table s")
        world.step(dropped, 1)
        late.tools.auto_ids.forget()  # its next number is of a batch that was taken after the DROP began
        late.execute("insert into s values (2); commit")
    world.finish()

    run(world, "recover table s", "insert into s values (3)")

    assert sorted(rows(world, "select a from s")) == [(1,), (2,), (3,)]


def test_a_table_that_is_gone_numbers_no_rows() -> None:
    """Its counter would begin anew, and rows of the old transaction that knows it would meet their own numbers."""
    world = World(locks=False)
    run(world, "create table s (a int)", "insert into s values (1)")
    with waiting(world.clock):
        late = session(world)
        late.execute("begin")
        queue(world, "drop table s")
        for _ in range(3):
            world.cluster.tick()
            for node in world.cluster.nodes.values():
                node.reload()
        world.finish()
        late.tools.auto_ids.forget()

        with pytest.raises(SqlRefused) as raised:
            late.execute("insert into s values (2)")

    assert raised.value.mysql_code == 1146


def test_a_partition_that_is_gone_is_not_truncated() -> None:
    """TRUNCATE PARTITION that waited while its partition was reorganized used to end as done, with no partition to
    empty; whoever follows the statement met a partition that is not there."""
    world = World()
    run(
        world,
        "create table s (id int primary key) partition by range (id) "
        "(partition p0 values less than (4), partition p1 values less than (8))",
    )
    _, truncated = queue(
        world,
        "alter table s reorganize partition p0 into (partition q values less than (4))",
        "alter table s truncate partition p0",
    )

    world.finish()

    assert ended(world, truncated) == (JobState.CANCELLED, 1735)


def test_a_table_that_has_lost_its_partitions_is_not_reorganized() -> None:
    """REORGANIZE of pFullTable, which a table has only while PARTITION BY runs, waited for that job; cancelled, it left
    a table without partitions, which the REORGANIZE then took for one with a single partition of no known type."""
    world = World()
    run(world, "create table s (id int primary key)")
    (partitioned,) = queue(world, "alter table s partition by hash (id) partitions 2")
    world.step(partitioned, 1)
    (reorganized,) = queue(
        world, "alter table s reorganize partition pFullTable into (partition q values less than (4))"
    )
    world.cluster.ddl_client.cancel(partitioned)

    world.finish()

    assert ended(world, partitioned)[0] == JobState.ROLLBACK_DONE
    assert ended(world, reorganized) == (JobState.CANCELLED, 1505)
