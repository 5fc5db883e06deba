"""The owner's work on rows: filling, rewriting, copying, looking, and removing what is left."""

from datetime import timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from tests.upstream.ddl.kit import World, anomalies, images
from tidegate.kv.keys import IntHandle, index_prefix, record_prefix, table_prefix, table_span
from tidegate.kv.rows import ChecksumForm, decode_row, verify_checksum
from tidegate.model.errors import SqlRefused
from tidegate.model.kv_change import LOSSY_DDL, LogType
from tidegate.mysql.packed_time import Time
from tidegate.schema.parse_ddl import parse_ddl
from tidegate_upstream.change.plan import plan
from tidegate_upstream.change.session import DdlSession
from tidegate_upstream.errors import SnapshotTooOld
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.ddl_step import delete_ranges
from tidegate_upstream.tidb.engine import ColumnFamily
from tidegate_upstream.tidb.log_writer import SpanFeed
from tidegate_upstream.tidb.metadata import DELETE_RANGE
from tidegate_upstream.tidb.store_mvcc import (
    Lock,
    Write,
    WriteKind,
    collect_garbage,
    decode_lock,
    decode_write,
    encode_lock,
    encode_write,
)
from tidegate_upstream.tidb.table_rows import RowForm, RowImage, TableShape, index_mutation, record_mutation
from tidegate_upstream.tidb.transaction import Options, Stage

pytestmark = pytest.mark.slow


def whole(world: World, name: str) -> list[tuple[object, ...]]:
    """Public values of all rows, in order; entries of all indexes must be exactly theirs."""
    reader = world.cluster.storage.snapshot()
    shape = TableShape(world.named(name))
    rows = list(images(reader, shape))
    for index in shape.indexes:
        for physical_id in shape.physical_ids:
            expected = {index_mutation(shape, index, one)[:2] for one in rows if one.physical_id == physical_id}
            prefix = index_prefix(physical_id, index.layout.id)
            assert set(reader.scan(prefix, prefix + b"\xff")) == expected, (index.name, physical_id)
    return sorted(tuple(one.columns[column.id] for column in shape.public) for one in rows)


def seen_by_a_feed(world: World, table_id: int, action) -> list[tuple[bytes, bytes | None]]:
    """What change capture tells of a table's rows while something happens."""
    log = ChangeLog(world.cluster.storage.store, world.cluster.storage.oracle)
    feed = SpanFeed(log, *table_span(table_id), world.cluster.storage.oracle.next())
    feed.poll()
    action()
    log.advance()
    feed.poll()
    return [(row.key, row.value) for row in feed.take()[0]]


def test_reorganized_partitions_hold_each_row_once() -> None:
    """Rows and their entries lie in the new partitions; the old ones go to delete ranges."""
    world = World()
    world.sql(
        "create table p (id int primary key, v int, key iv(v)) partition by range(id) "
        "(partition p0 values less than (10), partition p1 values less than (20), partition p2 values less than (30))"
    )
    rows = [(number, number * 2) for number in range(0, 30, 2)]
    world.fill("p", *rows)
    old = world.named("p").physical_ids
    world.sql("alter table p reorganize partition p0, p1 into (partition p01 values less than (20))")

    kept = world.named("p").physical_ids
    assert whole(world, "p") == rows
    assert (len(old), len(kept)) == (3, 2)
    assert kept[1] == old[2]
    starts = [row["start_key"] for _, row in DELETE_RANGE.rows(world.cluster.storage.snapshot())]
    assert starts == [table_prefix(number).hex().encode() for number in old[:2]]


@pytest.mark.parametrize("rows", [0, 1, 3, 40])
def test_a_table_is_partitioned_and_back(rows: int) -> None:
    """PARTITION BY HASH and REMOVE PARTITIONING move every row, whatever number of batches that takes."""
    world = World()
    world.sql("create table p (id int primary key, v int, unique key uv(id, v))")
    held = [(number, -number) for number in range(rows)]
    world.fill("p", *held)
    world.sql("alter table p partition by hash(id) partitions 3")
    assert whole(world, "p") == held
    assert len(world.named("p").physical_ids) == 3

    world.sql("alter table p remove partitioning")

    assert whole(world, "p") == held
    assert world.named("p").partition is None


def test_a_row_outside_the_new_partitions_turns_the_job_back() -> None:
    """1526, and the table is as it was."""
    world = World()
    world.sql("create table p (id int primary key, v int)")
    world.fill("p", (5, 1), (50, 2))

    with pytest.raises(SqlRefused) as refused:
        world.sql("alter table p partition by range(id) (partition p0 values less than (10))")

    assert refused.value.mysql_code == 1526
    assert world.named("p").partition is None
    assert whole(world, "p") == [(5, 1), (50, 2)]


def test_exchange_swaps_rows_that_fit() -> None:
    """Ids change places, rows stay where they are; one row that does not fit is 1737."""
    world = World()
    world.sql("create table p (id int primary key, v int) partition by range(id) (partition p0 values less than (10))")
    world.sql("create table x (id int primary key, v int)")
    world.fill("p", (1, 1))
    world.fill("x", (2, 2), (20, 20))
    with pytest.raises(SqlRefused) as refused:
        world.sql("alter table p exchange partition p0 with table x")
    assert refused.value.mysql_code == 1737
    transaction = world.node().begin()
    shape = TableShape(world.named("x"))
    misfit = next(one for one in images(transaction, shape) if one.columns[1] == 20)
    transaction.delete(record_mutation(shape, misfit).key)
    transaction.commit()

    world.sql("alter table p exchange partition p0 with table x")

    assert (whole(world, "p"), whole(world, "x")) == ([(2, 2)], [(1, 1)])


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("alter table t modify column a int not null", 1138),
        ("alter table t modify column b tinyint", 1264),
        ("alter table t modify column c int", 1366),
        ("alter table t add constraint ck check (b < 100)", 3819),
        ("alter table t add constraint fk foreign key (b) references parent(id)", 1452),
        ("alter table t add unique index uk(d)", 1062),
        ("alter table t add primary key (id)", 1062),
    ],
)
def test_stored_rows_that_disobey_turn_the_job_back(statement: str, code: int) -> None:
    """MySQL's error, and the definition of before."""
    world = World()
    world.run(world.drop_table())
    world.sql("create table parent (id int primary key)")
    world.sql("create table t (id int, a int, b int, c varchar(10), d int)")
    world.fill("parent", (1,))
    world.fill("t", (1, None, 1, "7", 1), (1, 5, 1000, "no number", 1))
    before = world.named("t")

    with pytest.raises(SqlRefused) as refused:
        world.sql(statement)

    assert refused.value.mysql_code == code
    after = world.named("t")
    assert after.cols == before.cols
    assert [one.idx_name for one in after.index_info or []] == [one.idx_name for one in before.index_info or []]
    assert not after.constraint_info
    assert not after.fk_info


def test_stored_rows_that_obey_are_no_hindrance() -> None:
    """The same changes over rows that fit."""
    world = World()
    world.run(world.drop_table())
    world.sql("create table parent (id int primary key)")
    world.sql("create table t (id int, a int, b int, c varchar(10), d int)")
    world.fill("parent", (1,))
    world.fill("t", (1, 4, 1, "7", 1), (2, 5, 1, "8", None), (3, 5, None, "9", None))

    for change in (
        "modify column a int not null",
        "modify column b tinyint",
        "modify column c int",
        "add constraint ck check (b < 100)",
        "add constraint fk foreign key (b) references parent(id)",
        "add unique index uk(d)",
        "add primary key (id)",
    ):
        world.sql(f"alter table t {change}")

    assert whole(world, "t") == [(1, 4, 1, 7, 1), (2, 5, 1, 8, None), (3, 5, None, 9, None)]


def test_a_parent_is_found_by_its_collation() -> None:
    """ADD FOREIGN KEY looks for a row's parent as INSERT does: without case where the columns' collation has none."""
    world = World()
    world.run(world.drop_table())
    kind = "varchar(10) collate utf8mb4_general_ci"
    world.sql(f"create table parent (id {kind} primary key)")
    world.sql(f"create table t (id int, b {kind})")
    world.fill("parent", ("x",))
    world.fill("t", (1, "X"))

    world.sql("alter table t add constraint fk foreign key (b) references parent(id)")

    assert world.named("t").fk_info


def test_rewrites_of_a_lossy_change_are_no_row_changes() -> None:
    """A feed hears of the writes of sessions only; both kinds are in the store."""
    world = World()
    world.write(world.node(), [(number, number, 0) for number in range(5)])

    def change() -> None:
        world.sql("alter table t modify column a varchar(10)")
        world.write(world.node(), [(9, "9", 0)])

    told = seen_by_a_feed(world, world.table_id, change)

    assert [key[-1] for key, _ in told] == [9]
    assert whole(world, "t")[:2] == [(0, b"0", 0), (1, b"1", 0)]
    assert anomalies(world) == []


def test_the_source_survives_in_the_store() -> None:
    """A feed that registers later finds the committed rewrite, or its lock, and leaves it out as well."""
    world = World()
    storage, key = world.cluster.storage, record_prefix(world.table_id) + b"\x80" + b"\0" * 7
    begun = storage.oracle.next()
    for source, value in ((LOSSY_DDL, b"rewritten"), (0, b"written")):
        transaction = storage.begin()
        transaction.source = source
        transaction.put(key, value)
        transaction.commit()
    log = ChangeLog(storage.store, storage.oracle)
    reader = log.register(next(iter(log.regions)), *table_span(world.table_id), begun)

    assert [(event.value, event.old_value) for event in log.poll(reader)[:-1]] == [(b"written", b"rewritten")]


def test_a_feed_that_listens_hears_nothing_of_both_phases() -> None:
    """Prewrite, commit and rollback of a rewrite; nor does one that registers while its locks are there."""
    world = World()
    storage = world.cluster.storage
    start = record_prefix(world.table_id)
    log = ChangeLog(storage.store, storage.oracle)
    early = log.register(next(iter(log.regions)), start, b"u", storage.oracle.next())
    assert len(log.poll(early)) == 1
    options = Options(batch_keys=1, ttl_ms=50)
    for commits in (True, False):
        transaction = storage.begin(options)
        transaction.source = LOSSY_DDL
        transaction.put(start + b"a", b"1")
        transaction.put(start + b"b", b"1")
        for stage in transaction.steps():
            if stage is Stage.CHECKED:
                late = log.register(next(iter(log.regions)), start, b"u", storage.oracle.next())
                assert [event.type for event in log.poll(late)] == [LogType.INITIALIZED]
                if not commits:
                    break
        if not commits:
            storage.store.rollback([start + b"a", start + b"b"], transaction.start_ts)

    assert log.poll(early) == []


@pytest.mark.parametrize("source", [0, 1, LOSSY_DDL, (1 << 64) - 1])
@pytest.mark.parametrize("short", [None, b"", b"sS", b"v" * 255])
def test_records_carry_the_source(source: int, short: bytes | None) -> None:
    """Lock and write record come back as they were; without a source not a byte is added."""
    lock, write = Lock(WriteKind.PUT, b"k", 7, 50, short, source), Write(WriteKind.PUT, 7, short, source)

    assert decode_lock(encode_lock(lock)) == lock
    assert decode_write(encode_write(write)) == write
    assert (len(encode_write(write)) > len(encode_write(write._replace(source=0)))) == bool(source)


def test_dropped_tables_lie_there_until_gc_and_are_gone_then() -> None:
    """No delete of a row is ever told; what is left of the range is nothing."""
    world = World()
    world.write(world.node(), [(1, 1, 1), (2, 2, 2)])
    told = seen_by_a_feed(world, world.table_id, lambda: world.run(world.drop_table()))
    storage = world.cluster.storage
    assert told == []
    assert len(list(storage.snapshot().scan(*table_span(world.table_id)))) == 2

    world.pass_ms(1)
    safe_point = storage.oracle.next()
    collect_garbage(storage.store, safe_point, storage.oracle.next())

    assert delete_ranges(storage, safe_point) == 1
    assert list(storage.snapshot().scan(*table_span(world.table_id))) == []
    assert list(DELETE_RANGE.rows(storage.snapshot())) == []
    assert delete_ranges(storage, safe_point) == 0
    assert not any(
        table_prefix(world.table_id) in key.replace(b"\xf7", b"")
        for key, _ in storage.store.engine.scan(ColumnFamily.DATA, b"")
    )


def test_recover_takes_a_table_back_with_its_rows() -> None:
    """The delete range goes, the rows belong to the table again; after GC it is too late (8055)."""
    world = World()
    world.write(world.node(), [(1, 1, 1)])
    world.run(world.drop_table())
    world.sql("recover table t")

    assert whole(world, "t") == [(1, 1, 1)]
    assert list(DELETE_RANGE.rows(world.cluster.storage.snapshot())) == []

    world.run(world.drop_table())
    storage = world.cluster.storage
    collect_garbage(storage.store, storage.oracle.next(), storage.oracle.next())
    with pytest.raises(SnapshotTooOld):
        world.sql("recover table t")


def test_several_changes_at_once_are_one_job() -> None:
    """Two columns, one less, an index over a new one; a duplicate takes all of it back."""
    world = World()
    world.write(world.node(), [(1, 10, 1), (2, 20, 2)])
    (job,) = world.sql("alter table t add column c int default 5, drop column b, add unique index ua(a)")

    assert job.type == 61
    assert whole(world, "t") == [(1, 10, 5), (2, 20, 5)]
    before = world.table()
    with pytest.raises(SqlRefused) as refused:
        world.sql("alter table t add column d int default 5, drop index ua, add unique index uc(c)")
    assert refused.value.mysql_code == 1062
    assert world.table().cols == before.cols
    assert anomalies(world) == []


def test_an_index_of_a_generated_column_is_filled() -> None:
    """Backfill computes what no row holds."""
    world = World()
    world.sql("create table g (id int primary key, a int, v int as (a * 2) virtual)")
    world.fill("g", (1, 10), (2, 20))
    world.sql("alter table g add index iv(v)")
    world.sql("alter table g add index ie((a + 1))")

    assert [row[:3] for row in whole(world, "g")] == [(1, 10, 20), (2, 20, 40)]


@pytest.mark.parametrize("form", [RowForm(1), RowForm(2, ChecksumForm())])
def test_a_rewrite_keeps_the_form_of_the_row(form: RowForm) -> None:
    """Version and checksum stay when a column's bytes change."""
    world = World()
    transaction = world.node().begin()
    shape = world.shape(transaction)
    image = RowImage(IntHandle(1), world.table_id, {1: 1, 2: 10, 3: 100})
    written = record_mutation(shape, image, form)
    transaction.put(written.key, written.value)
    transaction.commit()
    world.sql("alter table t modify column a varchar(10)")

    row = decode_row(TableShape(world.table()).layout, written.key, world.cluster.storage.snapshot().get(written.key))
    assert (row.version, row.tail is None) == (form.version, form.checksum is None)
    assert verify_checksum(TableShape(world.table()).layout, row, world.cluster.storage.snapshot().get(written.key))
    assert whole(world, "t") == [(1, b"10", 100)]


def test_stored_values_are_cast_by_the_settings_of_the_session() -> None:
    """A TIMESTAMP shows the session's clocks; without strict mode a value that does not fit is bent."""
    world = World()
    world.sql("create table m (id int primary key, at timestamp null, v varchar(10))")
    world.fill("m", (1, "2024-01-31 12:00:00", "7x"))
    for text, settings in (
        ("alter table m modify column at datetime", {"zone": ZoneInfo("Asia/Tokyo")}),
        ("alter table m modify column v int", {"sql_mode": 0, "zone": timezone(timedelta(hours=-2))}),
    ):
        (statement,) = parse_ddl(text, "gd")
        world.node().reload()
        (request,) = plan(statement, world.node().schema, DdlSession("gd", text)).requests
        world.cluster.ddl_client.run(request, **settings)

    assert whole(world, "m") == [(1, Time(2024, 1, 31, 21), 7)]
