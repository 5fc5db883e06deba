"""Owners: failover at every transaction, two at once, order of jobs, cancel at every step."""

from dataclasses import replace

import pytest

from tests.upstream.ddl.kit import BIGINT, SESSION_MS, TEXT, Crash, World, anomalies, insert, quietly
from tidegate.model.errors import SqlRefused
from tidegate.schema.job import JobState
from tidegate.schema.modify_kind import ModifyKind
from tidegate.schema.stored.definition import render_stored
from tidegate_upstream.change.request import operation_of
from tidegate_upstream.f1 import rollback
from tidegate_upstream.tidb.ddl_owner import Owner
from tidegate_upstream.tidb.metadata import DELETE_RANGE, LOCK_INFO, REORG

pytestmark = pytest.mark.slow

ROWS = [(number, number * 10, number % 3) for number in range(1, 9)]
SEVERAL = "add column c int default 1, drop column b, add index ia(a)"
STATEMENTS = (
    SEVERAL,
    "modify column a int not null",
    "add constraint ck check (a >= 0)",
    "partition by hash(id) partitions 2",
    "comment 'x'",
)
OPERATIONS = {
    "add column": lambda world: world.add_column(),
    "drop column": lambda world: world.drop_column(),
    "add index": lambda world: world.add_index(),
    "add unique index": lambda world: world.add_index(unique=True),
    "modify, same bytes": lambda world: world.modify(ModifyKind.LOSSLESS, BIGINT),
    "modify, new bytes": lambda world: world.modify(ModifyKind.LOSSY, TEXT),
    "rename": lambda world: world.rename("moved"),
    "truncate": lambda world: world.truncate(),
    "drop table": lambda world: world.drop_table(),
    **{text: lambda world, text=text: next(world.asked(f"alter table t {text}")) for text in STATEMENTS},
}
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name == SEVERAL else name for name in OPERATIONS]
FAILPOINTS = ("ddl/version-taken", "ddl/before-step", "ddl/after-step", "ddl/before-batch", "ddl/before-history")


def prepared(**options) -> World:
    world = World(**options)
    world.write(world.node(), ROWS)
    return world


def outcome(world: World) -> tuple[object, ...]:
    """What a job leaves behind, without versions, revisions and timestamps."""
    tables = [(table.id, table.name.lower, _elements(table)) for table in world.tables().values()]
    ranges = [(row["job_id"], row["start_key"]) for _, row in DELETE_RANGE.rows(world.cluster.storage.snapshot())]
    last = world.meta().history()[-1]
    found = world.rows() if world.table_id in world.tables() else None
    return sorted(tables), ranges, (last.id, last.state, last.schema_state, last.row_count), found


def _elements(table) -> tuple[object, ...]:
    columns = tuple((one.id, one.name.original, one.offset, one.state, one.type.tp) for one in table.cols)
    return columns, tuple((one.id, one.idx_name.original, one.state) for one in table.index_info or ())


def crash_at(world: World, count: int) -> list[str]:
    """Let the owner die at the `count`-th place that it reaches; the places so far."""
    reached: list[str] = []

    def failpoint(name: str) -> None:
        assert name in FAILPOINTS
        reached.append(name)
        if len(reached) == count:
            raise Crash(name)

    world.cluster.failpoint = failpoint
    return reached


@pytest.mark.parametrize("name", NAMES)
def test_an_owner_may_die_anywhere(name: str) -> None:
    """Another node finishes the job with the same result, wherever the first one stopped."""
    whole = prepared()
    reached = crash_at(whole, 0)
    whole.run(OPERATIONS[name](whole))
    wanted = outcome(whole)

    for count in range(1, len(reached) + 1):
        world = prepared()
        crash_at(world, count)
        job_id = world.submit(OPERATIONS[name](world))
        with pytest.raises(Crash):
            world.cluster.ddl_client.wait(job_id)
        dead = world.cluster.registry.candidate
        world.cluster.kill(dead)
        world.pass_ms(SESSION_MS + 1)
        for node in world.cluster.nodes.values():
            node.reload()
        world.cluster.ddl_client.wait(job_id)

        assert outcome(world) == wanted, reached[count - 1]
        assert world.cluster.registry.candidate != dead
        assert anomalies(world) == []
    assert len(reached) >= 3


@pytest.mark.parametrize("name", ["add index", "modify, new bytes", "drop column"])
def test_two_owners_at_once_do_no_harm(name: str) -> None:
    """Both act on the same job in turns, each believing to be the owner: one step at a time, the same result."""
    whole = prepared()
    whole.run(OPERATIONS[name](whole))
    world = prepared()
    job_id = world.submit(OPERATIONS[name](world))
    owners: list[Owner] = [world.cluster.owner_of("n1"), world.cluster.owner_of("n2")]

    for turn in range(400):
        if not world.entries():
            break
        for node in world.cluster.nodes.values():
            node.reload()
        owners[turn % 2].act(job_id)
        world.cluster.check()

    assert outcome(world) == outcome(whole)


def test_of_two_steps_that_overlap_one_conflicts() -> None:
    """The row of the job guards it: the slower owner's step does not commit."""
    world = prepared()
    job_id = world.submit(world.add_index())
    fast, slow = world.cluster.owner_of("n1"), world.cluster.owner_of("n2")
    acted: list[bool] = []

    def overtake(name: str) -> None:
        if name == "ddl/before-step" and not acted:
            acted.append(True)
            assert fast.act(job_id)

    slow.steps.failpoint = overtake

    assert slow.act(job_id) is False
    assert [entry.progress.step for entry in world.entries()] == [1]


@pytest.mark.parametrize("name", NAMES)
def test_cancel_at_every_step(name: str) -> None:
    """Where the operation can be taken back, the definition is that of before; elsewhere 8226 and it goes on."""
    steps = len(operation_of(OPERATIONS[name](prepared())).steps)
    for at in range(steps):
        world = prepared()
        before = _elements(world.table())
        request = OPERATIONS[name](world)
        job_id = world.submit(request)
        world.step(job_id, at)
        if rollback(operation_of(request), at) is None:
            refused = quietly(lambda world=world, job_id=job_id: world.cluster.ddl_client.cancel(job_id))
            assert isinstance(refused, SqlRefused)
            assert refused.mysql_code in (8225, 8226)
            world.cluster.ddl_client.wait(job_id)
            continue
        world.cluster.ddl_client.cancel(job_id)
        with pytest.raises(SqlRefused) as taken_back:
            world.cluster.ddl_client.wait(job_id)

        assert taken_back.value.mysql_code == 8214
        assert _elements(world.table()) == before
        assert world.meta().job(job_id).state == (JobState.ROLLBACK_DONE if at else JobState.CANCELLED)
        assert set(world.rows()) == {row[0] for row in ROWS}
        assert anomalies(world) == []


def test_a_duplicate_rolls_a_unique_index_back() -> None:
    """1062 names the value and the index; the entries so far are left to a delete range."""
    world = prepared()

    with pytest.raises(SqlRefused, match=r"Duplicate entry '1' for key 't\.ub'") as refused:
        world.run(world.add_index("ub", "b", unique=True))

    assert refused.value.mysql_code == 1062
    assert world.table().index_info in (None, [])
    assert [row["job_id"] for _, row in DELETE_RANGE.rows(world.cluster.storage.snapshot())] == [
        world.meta().history()[-1].id
    ]
    assert anomalies(world) == []


def test_jobs_on_one_table_keep_their_order_and_others_pass() -> None:
    """The second job of t starts when the first is over; that of u does not wait."""
    world = prepared()
    world.create_table("u")
    first, second = world.submit(world.add_index("i1")), world.submit(world.add_index("i2", "b"))
    other = world.submit(world.add_column(table="u"))
    seen: list[dict[int, int]] = []
    world.ticks(lambda: seen.append({one.job.id: one.progress.step for one in world.entries()}) or not world.entries())

    assert all(at[second] == 0 for at in seen if first in at)
    assert any(at.get(first) and at.get(other) for at in seen)
    assert [one.idx_name.lower for one in world.table().index_info] == ["i1", "i2"]


def test_asking_for_a_job_that_is_not_there() -> None:
    """8224 for cancel."""
    with pytest.raises(SqlRefused) as refused:
        World().cluster.ddl_client.cancel(999)

    assert refused.value.mysql_code == 8224


def test_a_request_that_the_definitions_refuse_is_cancelled() -> None:
    """Two indexes of one name: the second job finds the first one's and gets MySQL's error."""
    world = prepared()
    request = world.add_index()
    world.submit(request)
    job_id = world.submit(request)

    with pytest.raises(SqlRefused) as refused:
        world.cluster.ddl_client.wait(job_id)

    assert refused.value.mysql_code == 1061
    assert world.meta().job(job_id).state == JobState.CANCELLED


def test_errors_are_counted_and_then_the_job_turns_back() -> None:
    """A step that fails without reason is tried again as often as the limit says."""
    world = prepared()
    world.cluster.options = replace(world.cluster.options, error_limit=4)

    def broken(*_arguments: object) -> None:
        raise SqlRefused(1105, "nobody knows why")

    world.cluster.worker.batch = broken
    job_id = world.submit(world.add_index())

    with pytest.raises(SqlRefused, match="nobody knows why"):
        world.cluster.ddl_client.wait(job_id)

    assert world.meta().job(job_id).error_count == 5
    assert world.table().index_info in (None, [])


def test_nothing_is_left_of_a_job_but_its_history() -> None:
    """Rows of tidb_mdl_info and tidb_ddl_reorg go with it, and so does what the owner noted."""
    world = prepared()
    job_id = world.run(world.add_index()).id
    reader = world.cluster.storage.snapshot()

    assert [*LOCK_INFO.rows(reader), *REORG.rows(reader), *world.entries()] == []
    assert world.meta().progress(job_id) is None
    assert world.meta().job(job_id).row_count == len(ROWS)


def test_a_backfill_goes_on_where_it_was() -> None:
    """Three batches of three rows; a new owner reads the checkpoint and does the rest only."""
    world = prepared()
    job_id = world.submit(world.add_index())
    batches: list[str] = []
    world.cluster.failpoint = lambda name: batches.append(name) if name == "ddl/before-batch" else None
    world.ticks(lambda: len(batches) == 2)
    row = REORG.get(world.cluster.storage.snapshot(), job_id)
    world.cluster.kill(world.cluster.registry.candidate)
    world.pass_ms(SESSION_MS + 1)
    world.cluster.ddl_client.wait(job_id)

    assert row["ele_type"] == b"_idx_"
    assert row["physical_id"] == world.table_id
    assert len(batches) == 3
    assert anomalies(world) == []


def test_a_row_written_between_batches_is_not_lost() -> None:
    """What comes before and behind the checkpoint has entries, whoever makes them."""
    world = prepared()
    world.submit(world.add_index())
    batches: list[str] = []
    world.cluster.failpoint = lambda name: batches.append(name) if name == "ddl/before-batch" else None
    world.ticks(lambda: len(batches) == 1)
    transaction = world.node("n2").begin()
    for number in (0, 4, 50):
        if number != 4:
            insert(transaction, world.shape(transaction), number, -number, 0)
    transaction.commit()
    world.finish()

    assert anomalies(world) == []
    assert render_stored(world.table())
