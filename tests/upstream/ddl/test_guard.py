"""Transactions that span a schema change: refused, waited for, or consistent; never in between."""

import pytest

from tests.upstream.ddl.kit import LEASE_MS, SESSION_MS, World, anomalies, delete, insert
from tidegate.model.errors import UpstreamError
from tidegate_upstream.errors import SchemaChanged, SchemaOutdated
from tidegate_upstream.tidb.node import changed_tables, physical_id, physical_ids


def test_a_key_names_its_table() -> None:
    """The id behind t is that of the table or partition, whether the key is a row's or an entry's."""
    row, entry = bytes.fromhex("74800000000000002d5f728000000000000001"), bytes.fromhex("74800000000000002d5f69")

    assert physical_id(row) == physical_id(entry) == 45
    assert physical_id(b"mDBs") is None
    assert physical_ids([row, entry, b"mDBs"]) == {45}


def test_without_metadata_locks_a_commit_into_a_changed_table_is_refused() -> None:
    """8028: the table got an index since the begin; the row is not there."""
    world = World(locks=False)
    transaction = world.node().begin()
    insert(transaction, world.shape(transaction), 1, 10, 100)
    world.run(world.add_index())

    with pytest.raises(SchemaChanged, match=str(world.table_id)) as refused:
        transaction.commit()

    assert refused.value.mysql_code == 8028
    assert world.rows() == {}


def test_a_change_of_another_table_is_nobodys_business() -> None:
    """The check goes by the tables of the keys that were written."""
    world = World(locks=False)
    world.create_table("u")
    transaction = world.node().begin()
    insert(transaction, world.shape(transaction), 1, 10, 100)
    world.run(world.add_index(table="u"))

    transaction.commit()

    assert world.rows()[1]["a"] == 10


def test_a_node_without_lease_commits_nothing() -> None:
    """8027 at the commit, and at the next begin; a reload helps the node, not the old transaction."""
    world = World()
    transaction = world.node().begin()
    insert(transaction, world.shape(transaction), 1, 10, 100)
    late = world.node().begin()
    insert(late, world.shape(late), 2, 10, 100)
    world.pass_ms(LEASE_MS + 1)

    with pytest.raises(SchemaOutdated) as refused:
        transaction.commit()
    with pytest.raises(SchemaOutdated):
        world.node().begin()
    world.node().reload()
    with pytest.raises(SchemaOutdated):
        late.commit()

    assert refused.value.mysql_code == 8027
    world.write(world.node(), [(3, 1, 1)])
    assert set(world.rows()) == {3}


def test_with_metadata_locks_the_job_waits_and_the_commit_succeeds() -> None:
    """The first step is published, the second waits for the transaction that used the table before the first."""
    world = World()
    transaction = world.node().begin()
    insert(transaction, world.shape(transaction), 1, 10, 100)
    job_id = world.submit(world.add_index())

    with pytest.raises(UpstreamError, match=r"waits for: n1"):
        world.cluster.ddl_client.wait(job_id)
    waiting = world.entries()[0]
    transaction.commit()
    world.cluster.ddl_client.wait(job_id)

    assert waiting.progress.step == 1
    assert world.rows()[1]["a"] == 10
    assert anomalies(world) == []


def test_a_transaction_that_only_reads_the_table_is_waited_for_too() -> None:
    """It could still write what it read."""
    world = World()
    world.write(world.node(), [(1, 10, 100)])
    transaction = world.node().begin()
    world.rows(world.shape(transaction))
    assert transaction.used == set()
    transaction.get(bytes.fromhex("74") + (world.table_id + (1 << 63)).to_bytes(8, "big") + b"_r")
    job_id = world.submit(world.add_index())

    with pytest.raises(UpstreamError, match="n1"):
        world.cluster.ddl_client.wait(job_id)
    transaction.rollback()

    world.cluster.ddl_client.wait(job_id)


def test_a_table_that_is_newer_than_the_transaction_cannot_be_used() -> None:
    """With metadata locks: nobody waited for a transaction that had not used the table yet, so it may not begin now."""
    world = World()
    transaction = world.node().begin()
    world.run(world.add_index())

    with pytest.raises(SchemaChanged):
        insert(transaction, world.shape(transaction), 1, 10, 100)
    transaction.rollback()

    assert world.rows() == {}


def test_a_dead_node_is_waited_for_until_its_session_ends() -> None:
    """Nothing goes on while it may still commit, and everything does afterwards."""
    world = World(nodes=("n1", "n2"))
    world.ticks(lambda: world.cluster.registry.owner(world.cluster.clock_ms) == "n1")
    world.cluster.kill("n2")
    job_id = world.submit(world.add_index())

    with pytest.raises(UpstreamError, match="n2"):
        world.cluster.ddl_client.wait(job_id)
    assert world.entries()[0].progress.step == 1
    world.pass_ms(SESSION_MS + 1)
    world.node().reload()

    world.cluster.ddl_client.wait(job_id)


@pytest.mark.parametrize("locks", [True, False])
def test_a_delete_that_spans_add_index_leaves_no_entry_behind(locks: bool) -> None:  # noqa: FBT001
    """The anomaly of transactions over two versions: refused without metadata locks, waited for with them."""
    world = World(locks=locks)
    world.write(world.node(), [(1, 10, 100)])
    transaction = world.node().begin()
    delete(transaction, world.shape(transaction), 1)
    job_id = world.submit(world.add_index())
    while (entry := next(iter(world.entries()), None)) and entry.progress.step < 3 and world.cluster.tick():
        assert anomalies(world) == []

    try:
        transaction.commit()
    except SchemaChanged:
        assert not locks
    else:
        assert locks
    world.cluster.ddl_client.wait(job_id)

    assert anomalies(world) == []
    assert set(world.rows()) == (set() if locks else {1})


def test_reads_of_the_past_have_the_schema_of_then() -> None:
    """tidb_snapshot: the definition at that ts, read once."""
    world = World()
    before = world.cluster.storage.oracle.next()
    world.run(world.add_index())

    then, now = world.node().schema_at(before), world.node().schema

    assert [one.idx_name.lower for one in then.tables[world.table_id].stored.index_info or []] == []
    assert [one.idx_name.lower for one in now.tables[world.table_id].stored.index_info or []] == ["ia"]
    assert world.node().schema_at(before) is then
    assert changed_tables(then, now, (world.table_id, 1)) == [world.table_id]
