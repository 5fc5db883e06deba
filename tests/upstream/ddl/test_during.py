"""Sessions that write while a job runs: at the end every committed change is there, in rows and in all indexes."""

import random

import pytest

from tests.counts import some
from tests.upstream.ddl.kit import CONTEXT, DuplicateRow, World, images, insert
from tests.upstream.ddl.test_work import whole
from tests.upstream.worlds import seeds
from tidegate.expr.cast import assign
from tidegate.model.errors import UpstreamError
from tidegate.schema.parse_ddl import parse_ddl
from tidegate_upstream.change.plan import plan
from tidegate_upstream.change.session import DdlSession
from tidegate_upstream.tidb.table_rows import TableShape, complete, row_mutations

pytestmark = pytest.mark.slow

PLAIN = "create table w (id int primary key, a int, b int, key ia(a))"
RANGE = (
    f"{PLAIN} partition by range(id) (partition p0 values less than (5), partition p1 values less than (10), "
    "partition p2 values less than (99))"
)
CHANGES = {
    "alter table w add index ib(b)": PLAIN,
    "alter table w add unique index ub(id, b)": PLAIN,
    "alter table w modify column a varchar(10)": PLAIN,
    "alter table w drop column b": PLAIN,
    "alter table w add column c int default 7 first, add index ib(b), drop index ia": PLAIN,
    "alter table w partition by hash(id) partitions 3": PLAIN,
    "alter table w reorganize partition p0, p1 into (partition q values less than (10))": RANGE,
    "alter table w remove partitioning": RANGE,
    "alter table w truncate partition p2": RANGE,
    "alter table w drop partition p2": RANGE,
}
LIMIT = 10
"""Ids at and above it lie in partition p2, which some changes empty: the sessions stay below."""


class Writer:
    """Random statements, and the rows that their commits must leave: id -> (a, b)."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world, self.random = world, rng
        self.rows: dict[int, int] = {}
        self.refused = 0

    def write(self) -> None:
        """One transaction of one statement on some node."""
        node = self.random.choice([*self.world.cluster.nodes.values()])
        found = next((one for one in node.schema.tables.values() if one.stored.name.lower == "w"), None)
        if found is None:
            return
        number, value = self.random.randrange(LIMIT), self.random.randrange(100)
        transaction = None
        try:
            transaction = node.begin()
            table = next(one for one in transaction.schema.tables.values() if one.stored.name.lower == "w")
            after = self._change(transaction, TableShape(table.stored), number, value)
            transaction.commit()
        except (UpstreamError, DuplicateRow):
            self.refused += 1
            return
        self.rows.update({number: value} if after else {})
        if not after:
            self.rows.pop(number, None)

    def _change(self, transaction, shape: TableShape, number: int, value: int) -> bool:
        key = shape.by_name["id"].id
        old = next((one for one in images(transaction, shape) if one.columns[key] == number), None)
        if old is not None and value % 3 == 0:
            _apply(transaction, row_mutations(shape, old, None))
            return False
        target = shape.by_name["a"]
        given = {target.id: assign(value, target.target, CONTEXT)}
        if old is not None:
            columns = complete(shape, {**old.columns, **given}, old, CONTEXT)
            _apply(transaction, row_mutations(shape, old, old._replace(columns=columns)))
            return True
        named = {"id": number, "a": value, "b": number}
        insert(transaction, shape, *(named.get(one.stored.name.lower, 7) for one in shape.public))
        return True


def _apply(transaction, mutations) -> None:
    for one in mutations:
        if one.value is None:
            transaction.delete(one.key)
        else:
            transaction.put(one.key, one.value)


def run(change: str, seed: int, *, locks: bool) -> Writer:
    """One job with sessions beside it; its table at the end is what the commits say."""
    rng = random.Random(f"{seed} {change}")
    world = World(locks=locks, nodes=("n1", "n2", "n3"), batch_rows=2)
    world.sql(CHANGES[change])
    writer = Writer(world, rng)
    for _ in range(12):
        writer.write()
    (statement,) = parse_ddl(change, "gd")
    planned = plan(statement, world.node().schema, DdlSession("gd", change))
    job_id = world.submit(planned.requests[0])
    for _ in range(1_000):
        if not world.entries():
            break
        moves = world.cluster.moves()
        if moves:
            world.cluster.tick(rng.randrange(len(moves)))
        if rng.random() < 0.7:
            writer.write()
    assert world.cluster.ddl_client.wait(job_id).binlog.table is not None
    for node in world.cluster.nodes.values():
        node.reload()
    writer.write()
    names = [one.target.name for one in TableShape(world.named("w")).public]
    found = {dict(zip(names, row, strict=True))["id"]: dict(zip(names, row, strict=True)) for row in whole(world, "w")}
    assert {number: int(row["a"]) for number, row in found.items()} == writer.rows
    return writer


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("locks", [True, False])
def test_no_commit_is_lost(change: str, locks: bool) -> None:  # noqa: FBT001
    """Rows and entries are those of the commits, whatever state they met."""
    for seed in seeds(2):
        assert run(change, seed, locks=locks).rows


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_no_commit_is_lost_in_many_orders(change: str) -> None:
    """The same with more seeds."""
    for seed in seeds(some(4, 25)):
        run(change, 100 + seed, locks=seed % 2 == 0)
