"""Cancelled jobs: from every step that can be cancelled, the way back restores the definitions; steps are pure."""

import msgspec
import pytest

from tests.upstream.change_world import SnapshotDefinitions, World, example
from tidegate.model.errors import SchemaError
from tidegate_upstream.change.request import operation_of
from tidegate_upstream.change.step import step, step_back
from tidegate_upstream.f1 import rollback

pytestmark = pytest.mark.slow

CHANGES = [
    "alter table t add column c int not null default 5 first",
    "alter table t add column (c int, d int as (a + 2))",
    "alter table t drop column b",
    "alter table t add index i (a, b(5))",
    "alter table t add unique index e ((lower(b)), a)",
    "alter table free add primary key (a, b) nonclustered",
    "alter table t drop index ia",
    "alter table t modify column b varchar(30)",
    "alter table free modify column b int not null",
    "alter table t modify column b varchar(2)",
    "alter table free modify column a varchar(10)",
    "alter table free change column a z datetime after b",
    "alter table x add foreign key (v) references parent (id)",
    "alter table child drop foreign key fk",
    "alter table child add constraint c2 check (p < 9)",
    "alter table child drop constraint c",
    "alter table r add partition (partition p2 values less than (30))",
    "alter table r drop partition p1",
    "alter table r truncate partition p0",
    "alter table r reorganize partition p0, p1 into (partition q values less than (20))",
    "alter table h coalesce partition 1",
    "alter table h add partition partitions 2",
    "alter table x partition by hash (id) partitions 2",
    "alter table r partition by key (id) partitions 2",
    "alter table h remove partitioning",
    "alter table r exchange partition p0 with table x",
    "alter table t add column c int, add index i (b), drop index ia, rename index ib to ic",
    "alter table t add column c int, modify column b datetime, add index i (a)",
    "alter table t modify column b varchar(9) not null, add unique index i (a), rename index ia to k",
    "truncate table r",
    "rename table t to t2, x to t",
    "drop table x",
    "drop database d",
    "create table n (id int)",
]


@pytest.mark.parametrize("sql", CHANGES)
def test_the_way_back_restores_the_definitions(sql):
    """However far a job got, its way back leaves what it began with."""
    start = example()
    before, schemas = start.texts(), dict(start.schemas)
    (request,) = start.requests(sql)
    operation = operation_of(request)
    for at in range(operation.revertible + 1):
        world = World()
        world.schemas, world.tables, world.last_id = dict(schemas), dict(start.tables), start.last_id
        if rollback(operation, at) is not None:
            world.cancel(request, at)

            assert world.texts() == before, (sql, at)
            assert world.schemas == schemas


@pytest.mark.parametrize("sql", CHANGES)
def test_steps_are_pure(sql):
    """The same step of the same definitions gives the same outcome, and changes none of its arguments."""
    world = example()
    (request,) = world.requests(sql)
    for at in range(1, len(operation_of(request).steps)):
        snapshot = world.snapshot
        encoded = msgspec.json.encode(
            [*snapshot.schemas.values(), *(found.stored for found in snapshot.tables.values())]
        )
        outcomes = [step(request, at, SnapshotDefinitions(snapshot), 7) for _ in range(2)]

        assert outcomes[0] == outcomes[1]
        assert encoded == msgspec.json.encode(
            [*snapshot.schemas.values(), *(found.stored for found in snapshot.tables.values())]
        )
        world.step(request, at)


@pytest.mark.parametrize("sql", CHANGES)
def test_what_goes_for_good_is_to_be_deleted(sql):
    """Every table, partition and index that a finished job has taken away has a range to delete; nothing that stays
    has one."""
    world = example()
    before = _stores(world)
    (request,) = world.requests(sql)
    ranges = set()
    for at in range(1, len(operation_of(request).steps)):
        for one in world.step(request, at).ranges:
            ranges.add((one.physical_id, one.index_id))
            first, end = one.bounds
            assert first < end
    after = _stores(world)

    gone = before - after
    assert all(one in ranges or (one[0], None) in ranges for one in gone)
    assert not ranges & after


def _stores(world):
    """(physical id, index id; None for the rows) of all that has keys."""
    found = set()
    for _, table in world.tables.values():
        if table.is_view or table.is_sequence:
            continue
        for physical in table.physical_ids:
            found.add((physical, None))
            found |= {(physical, index.id) for index in table.index_info or ()}
    return found


def test_steps_that_an_operation_does_not_have_are_refused():
    """A step outside the operation, or a way back where it can only go on, is an error of the caller."""
    world = example()
    (request,) = world.requests("drop table x")
    with pytest.raises(SchemaError, match="steps 1 to 3, not 4"):
        step(request, 4, world.definitions, 1)
    with pytest.raises(SchemaError, match="no step 1 back"):
        step_back(request, 1, 1, world.definitions, 1)
