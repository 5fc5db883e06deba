"""A cluster as a server runs it: a thread that ticks, a directory, a clock that nobody moves; and what nodes load."""

import threading
import time

import pytest

from tests.upstream.ddl.kit import LEASE_MS, SESSION_MS, Crash, World, anomalies, insert
from tidegate.model.errors import UpstreamError
from tidegate.model.tso import physical_ms
from tidegate.schema.job import SchemaDiff
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.stored.meta import Meta
from tidegate.schema.stored.snapshot import DIFFS_MAX, load, load_all
from tidegate_upstream.change.plan import plan
from tidegate_upstream.change.session import DdlSession
from tidegate_upstream.errors import SchemaChanged
from tidegate_upstream.tidb.cluster import Cluster, Move
from tidegate_upstream.tidb.engine import SqliteEngine
from tidegate_upstream.tidb.metadata import MetaWriter
from tidegate_upstream.tidb.session import Session
from tidegate_upstream.tidb.table_rows import TableShape


def run_sql(cluster: Cluster, text: str) -> None:
    """A DDL statement on the first node."""
    for statement in parse_ddl(text, "gd"):
        for request in plan(statement, cluster.node.schema, DdlSession("gd", text)).requests:
            cluster.ddl_client.run(request)


def test_a_thread_does_the_jobs_while_sessions_write() -> None:
    """Real clock, real threads: inserts go on while indexes and columns come; every row has its entries."""
    cluster = Cluster.open(nodes=("n1", "n2"))
    cluster.start_thread()
    cluster.start_thread()
    run_sql(cluster, "create database gd")
    run_sql(cluster, "create table t (id int primary key, a int)")
    table_id = next(number for number, one in cluster.node.schema.tables.items() if one.stored.name.lower == "t")
    written: list[int] = []
    stop = threading.Event()

    def write(name: str, first: int) -> None:
        number = first
        while not stop.is_set():
            transaction = cluster.nodes[name].begin()
            try:
                insert(transaction, TableShape(transaction.schema.tables[table_id].stored), number, number)
                transaction.commit()
            except UpstreamError:
                continue
            written.append(number)
            number += 2
            time.sleep(0.001)

    threads = [threading.Thread(target=write, args=(name, at)) for at, name in enumerate(cluster.nodes)]
    for thread in threads:
        thread.start()
    for change in ("add index ia(a)", "add column c int default 3", "drop index ia", "add unique index ua(a)"):
        run_sql(cluster, f"alter table t {change}")
    stop.set()
    for thread in threads:
        thread.join()

    reader = cluster.storage.snapshot()
    entries = list(reader.scan(b"t" + (table_id + (1 << 63)).to_bytes(8, "big") + b"_i"))
    assert len(written) == len(set(written)) > 0
    assert len([key for key, _ in entries if key[19:] and key[18] == 2 and key[9:11] == b"_i"]) == len(written)
    cluster.close()


def test_a_directory_holds_the_schema_and_a_job_under_way(tmp_path) -> None:
    """The next process goes on with the job; ids, versions and the number of the job go on too."""
    world = World(engine=SqliteEngine(tmp_path), nodes=("n1",))
    world.write(world.node(), [(1, 10, 100), (2, 20, 200)])
    second = world.add_index("ib", "b")
    job_id = world.submit(world.add_index())
    world.cluster.failpoint = lambda name: (_ for _ in ()).throw(Crash(name)) if name == "ddl/before-batch" else None
    with pytest.raises(Crash):
        world.cluster.ddl_client.wait(job_id)
    world.engine.close()

    later = Cluster.open(tmp_path, now_ms=world.clock)
    job = later.ddl_client.wait(job_id)
    again = later.ddl_client.run(second)

    assert (job.row_count, again.seq_num) == (2, job.seq_num + 1)
    assert [one.idx_name.lower for one in later.node.schema.tables[world.table_id].stored.index_info] == ["ia", "ib"]
    later.close()


def test_a_wait_that_another_session_ends() -> None:
    """With a real clock `wait` goes on looking while a transaction is open elsewhere."""
    cluster = Cluster.open()
    run_sql(cluster, "create database gd")
    run_sql(cluster, "create table t (id int primary key, a int)")
    table_id = next(number for number, one in cluster.node.schema.tables.items() if one.stored.name.lower == "t")
    transaction = cluster.node.begin()
    insert(transaction, TableShape(transaction.schema.tables[table_id].stored), 1, 10)
    ended = threading.Timer(0.15, transaction.commit)
    ended.start()
    begun = time.monotonic()

    run_sql(cluster, "alter table t add index ia(a)")

    assert time.monotonic() - begun >= 0.15
    ended.join()
    cluster.close()


def test_an_idle_node_renews_its_lease_when_it_begins() -> None:
    """A server whose sessions slept longer than the lease serves the next one."""
    world = World(nodes=("n1",))
    options = world.node().options.__class__(True, LEASE_MS, SESSION_MS)
    world.cluster.add_node("n2").options = options
    world.pass_ms(10 * SESSION_MS)

    world.write(world.node("n2"), [(1, 1, 1)])

    assert set(world.rows()) == {1}


def test_moves_are_named_and_chosen() -> None:
    """A test can take any of them; a campaign comes before a job."""
    world = World(nodes=("n1", "n2"))
    job_id = world.submit(world.add_column())
    world.cluster.registry.candidate = None

    assert world.cluster.moves() == [Move("campaign", "n1"), Move("campaign", "n2")]
    assert world.cluster.tick(1) == Move("campaign", "n2")
    assert str(world.cluster.moves()[0]) == f"n2 job {job_id}"
    world.finish()
    assert world.cluster.tick() is None
    assert world.cluster.tick(5) is None


def test_versions_load_by_differences_and_whole_alike() -> None:
    """From any earlier version, past numbers that no step used, up to the newest that one did."""
    world = World()
    known = [world.node().loaded]
    for request in (world.add_index(), world.add_column(), world.rename("moved")):
        world.run(request)
        world.node().reload()
        known.append(world.node().loaded)
    world.sql("create database other")
    world.sql("rename table moved to other.u")
    world.sql("truncate table other.u")
    world.sql("alter database other character set utf8mb4 collate utf8mb4_general_ci")
    world.sql("drop database gd")
    ts = world.cluster.storage.oracle.next()
    meta = Meta(world.cluster.storage.snapshot(ts))
    whole = load_all(meta, ts)

    for loaded in known:
        assert load(meta, ts, loaded) == whole
    assert "gd" not in {one.name.lower for one in whole.snapshot.schemas.values()}
    assert load(meta, ts, whole).snapshot.tables == whole.snapshot.tables


def test_numbers_that_no_step_used() -> None:
    """The newest one may still come: the version is the one before; an older one was given up, and is passed over."""
    world = World()
    before = world.node().loaded

    def take() -> int:
        transaction = world.cluster.storage.begin()
        writer = MetaWriter(transaction)
        writer.set_version(writer.version + 1)
        version = writer.version
        transaction.commit()
        return version

    taken = take()
    world.node().reload()
    assert world.node().version == taken - 1 == before.version
    world.run(world.add_column())
    world.node().reload()

    assert world.meta().diff(taken) is None
    assert world.node().version == world.meta().version > taken
    assert anomalies(world) == []


def test_a_node_that_is_far_behind_reads_everything() -> None:
    """More differences than are worth reading one by one."""
    world = World()
    old = world.node().loaded
    transaction = world.cluster.storage.begin()
    writer = MetaWriter(transaction)
    newest = old.version + DIFFS_MAX + 1
    writer.set_version(newest)
    writer.put_diff(SchemaDiff(newest, 5, world.schema_id, world.table_id))
    transaction.commit()
    ts = world.cluster.storage.oracle.next()

    assert load(Meta(world.cluster.storage.snapshot(ts)), ts, old).version == newest


def test_a_killed_node_serves_nothing() -> None:
    """Its transactions end with it."""
    world = World()
    node = world.node("n2")
    transaction = node.begin()
    insert(transaction, world.shape(transaction), 1, 1, 1)
    world.cluster.kill("n2")

    with pytest.raises(UpstreamError):
        transaction.commit()
    with pytest.raises(UpstreamError):
        node.begin()
    assert node.reload() is False
    assert world.rows() == {}


def test_a_statement_that_lost_can_begin_again() -> None:
    """8028 is retriable: the next transaction has the new schema."""
    world = World(locks=False)
    transaction = world.node().begin()
    insert(transaction, world.shape(transaction), 1, 1, 1)
    world.run(world.add_column())

    with pytest.raises(SchemaChanged) as refused:
        transaction.commit()
    world.write(world.node(), [(1, 1, 1)])

    assert refused.value.retry.name == "LATER"
    assert world.rows()[1]["c"] == 7
    assert world.node().open_transactions == []


def test_garbage_is_kept_for_a_session_that_reads_the_past() -> None:
    """Idle as it is, a session with tidb_snapshot keeps its snapshot, for tidb_gc_max_wait_time; a closed one does
    not."""
    cluster = Cluster.open(None, nodes=("n1",))
    first, second = Session(cluster.node), Session(cluster.node)
    moment = cluster.storage.oracle.next()
    first.execute(f"SET tidb_snapshot = '{moment}'")
    for _ in range(2):
        cluster.collect_garbage(0)
        assert cluster.storage.store.safe_point == moment - 1
    second.execute(f"SET tidb_snapshot = '{moment}'")
    first.execute("SET tidb_snapshot = ''")
    cluster.collect_garbage(0)
    assert cluster.storage.store.safe_point == moment - 1
    assert second.held_ts == moment
    second.state.now_ms = lambda: physical_ms(moment) + 86_400_000
    assert second.held_ts == 0
    second.close()
    cluster.collect_garbage(0)
    assert cluster.storage.store.safe_point > moment


def test_garbage_of_the_cluster_is_collected_behind_everybody() -> None:
    """Old versions and dropped tables go, but nothing that an open transaction may read."""
    world = World()
    world.write(world.node(), [(1, 1, 1)])
    world.run(world.drop_table())
    world.pass_ms(LEASE_MS // 2)
    open_one = world.node().begin()
    world.pass_ms(10)
    assert world.cluster.collect_garbage(0)[1] == 1
    assert world.cluster.storage.store.safe_point == open_one.start_ts - 1

    assert world.cluster.collect_garbage(0) == (0, 0)
    open_one.rollback()
    world.cluster.collect_garbage(0)
    assert world.cluster.storage.store.safe_point > open_one.start_ts
    assert world.cluster.collect_garbage(SESSION_MS) == (0, 0)
    assert world.node().reload() is False
    world.create_table("later")
