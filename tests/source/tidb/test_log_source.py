"""A change log as a source: frontier, DDLs and changes as an engine asks for them, from any checkpoint on."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.engine.test_chain import Upstream
from tests.log_source import FORCED, log_source
from tests.source.tidb.kit import changes, recorded_log
from tests.source.tidb.mounted import transactions
from tidegate.codec.columnar.encode.encoder import rows_of
from tidegate.codec.wire_table import table_of_fields
from tidegate.config.load import load
from tidegate.config.registry import source_of
from tidegate.engine.change import EventPosition, SourceDdl
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import TableFilter
from tidegate.engine.ports import LocalTasks, Source
from tidegate.engine.reading import DdlJob, Reading
from tidegate.model.errors import HistoryLost, MadeAnew, RenameRefused, SourceBehind
from tidegate.model.event import RowChange
from tidegate.model.table import TableInfo
from tidegate.schema.stored.snapshot import table_info
from tidegate.source import tidb_land
from tidegate.source.tidb_changes import mounter_of
from tidegate.source.tidb_ddl import JOBS, Timeline
from tidegate.source.tidb_land import LogSource
from tidegate.source.tidb_log import Tables
from tidegate.source.tidb_segment import SegmentLog, safe_point_name, safe_points, trim
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.log_writer import LogWriter
from tidegate_upstream.tidb.session import Session

TASKS = LocalTasks()


class Walked(NamedTuple):
    """What an engine gets: rows and DDLs in order, checkpoints on the way, and the definitions at each."""

    rows: list[RowChange]
    ddls: list[SourceDdl]
    definitions: dict[int, list[TableInfo]]


def walked(found: Source, checkpoint_ts: int | None = None) -> Walked:
    """What rounds between DDLs give, up to the frontier or a failure; between DDLs that come together there is no
    row."""
    at = end_of_run = found.start(TASKS, checkpoint_ts)
    told = Walked([], [], {})
    while True:
        found.refresh()
        frontier = found.frontier()
        assert frontier is not None
        told.definitions[at] = list(found.definitions(at))
        ddls = found.ddls(at, frontier)
        end = min([frontier, *(placed.ddl.commit_ts or 0 for placed in ddls)])
        if end == at:
            return told
        rows = list(rows_between(found, at, end))
        assert at >= end_of_run or not rows
        end_of_run = max([end_of_run, *(placed.ddl.commit_ts or 0 for placed in ddls)])
        told.rows.extend(rows)
        told.ddls.extend(placed for placed in ddls if placed.ddl.commit_ts == end)
        at = end
        found.release(at)


def rows_between(found: Source, after: int, upto: int) -> Iterator[RowChange]:
    """The rows of all tables in commit order."""
    some = found.changes(after, upto)
    for chunk in some.in_order(list(some.tables()), after, upto):
        rows: dict[int, RowChange] = {}
        for batch, numbers in chunk.parts:
            table = table_of_fields(batch.fields, batch.pk_names)
            events = rows_of(batch, range(batch.rows), table, batch.row_ids)
            rows.update(zip(numbers.tolist(), events, strict=True))
        yield from (rows[number] for number in range(len(chunk)))


def test_jobs_that_run_upstream(tmp_path: Path) -> None:
    """At each point of the log the source tells which DDLs of its tables run there, in which state; none once they are
    done."""
    upstream = Upstream(1, tmp_path)
    for sql in ("INSERT INTO a (id, v, u) VALUES (1, 1, 1)", "ALTER TABLE a ADD INDEX i (v)", "DROP TABLE b"):
        upstream.run(sql)
    upstream.writer.write(empty=True)
    log = SegmentLog(tmp_path)
    timeline, seen = Timeline(log, TableFilter.parse(["test.a"])), dict[tuple[DdlJob, ...], int]()
    timeline.start(0)
    for row in log.rows(0, upstream.writer.low, (JOBS,)):
        timeline.read(row.commit_ts)
        seen[timeline.running] = row.commit_ts
    running = [job for jobs in seen for job in jobs if "ADD INDEX" in job.query]
    assert [job.state for job in running] == ["queueing", "delete-only", "write-only", "write-reorg"]
    assert all(job.start_ts < seen[(job,)] for job in running)
    assert not any("DROP" in job.query for jobs in seen for job in jobs)
    source = log_source(tmp_path)
    source.start(TASKS, None)
    assert timeline.running == source.reading().jobs == ()


def plainly(log: Path) -> Walked:
    """The same, stop by stop, row by row."""
    kv, timeline, at = SegmentLog(log), Timeline(SegmentLog(log), TableFilter.parse(("*.*",)), force=True), 0
    timeline.start(0)
    high = kv.parts(0)[-1].high
    timeline.read(high)
    told = Walked([], [], {})
    while at < high:
        upto = timeline.stop() or high
        tables = list(timeline.tables.replicated(timeline.snapshot))
        spans = [span for version in tables for span in Tables.spans(version)]
        for rows in transactions(kv, (at, upto), spans, mounter_of(tables, at, FORCED)):
            told.rows.extend(one.row for one in rows)
        events = timeline.walk(upto)
        told.ddls.extend(
            SourceDdl(EventPosition(seq=seq), one.ddl, False, one.previous) for seq, one in enumerate(events)
        )
        at = upto
        versions = timeline.tables.replicated(timeline.snapshot)
        told.definitions[at] = [table_info(one.stored, one.schema, one.version, every_state=True) for one in versions]
    return told


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["types", "partition", "ddl", "interleave"])
def test_an_engine_gets_everything(tmp_path: Path, stream: str) -> None:
    """Rows, DDLs with the names that tables had before, and definitions are those of the log, stop by stop; from every
    checkpoint on the rest is the same."""
    log = recorded_log(tmp_path, stream)
    found, wanted = walked(log_source(log)), plainly(log)

    assert (found.rows, found.ddls) == (wanted.rows, wanted.ddls)
    assert {ts: found.definitions[ts] for ts in found.definitions if ts} == {
        ts: wanted.definitions[ts] for ts in found.definitions if ts
    }
    times = sorted(found.definitions)
    for at in times[1 :: max(len(times) // 4, 1)]:
        again = walked(log_source(log), at)
        assert again.rows == [row for row in found.rows if (row.commit_ts or 0) > at]
        assert again.ddls == [placed for placed in found.ddls if (placed.ddl.commit_ts or 0) > at]
        assert again.definitions == {ts: tables for ts, tables in found.definitions.items() if ts >= at}


class Counted:
    """A log that counts how often rows are asked for."""

    def __init__(self, log: SegmentLog) -> None:
        self.log, self.reads = log, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def rows(self, *given: Any) -> Any:
        """Rows, counted."""
        self.reads += 1
        return self.log.rows(*given)


def test_asking_again_reads_nothing(tmp_path: Path) -> None:
    """DDLs are found ahead once; asking again, or a log without news, reads no row, and the schema stays behind."""
    log: Any = Counted(SegmentLog(recorded_log(tmp_path, "ddl")))
    found = log_source(log)
    at = found.start(TASKS, None)
    frontier = found.frontier()
    assert frontier is not None
    reads, first, tables = log.reads, found.ddls(at, frontier), found.definitions(at)
    for _ in range(3):
        found.refresh()
        assert (found.ddls(at, frontier), found.definitions(at)) == (first, tables)

    assert log.reads == reads
    assert found.ddls(at, (first[0].ddl.commit_ts or 0) - 1) == []
    assert not found.idle()
    found.release(frontier)
    assert found.idle()
    assert (found.failure(), found.reading()) == (None, Reading())


def test_where_a_feed_begins(tmp_path: Path) -> None:
    """A new feed at start-ts or with the log, another one at its checkpoint; a log that is not there yet or does not
    reach it may come."""
    log = tmp_path / "log"
    with pytest.raises(SourceBehind, match="is empty"):
        log_source(log).start(TASKS, None)
    *_, middle, high = (part.high for part in SegmentLog(recorded_log(log, "ddl")).parts(0))

    assert log_source(log).start(TASKS, None) == 0
    assert log_source(log, start_ts=middle + 7).start(TASKS, None) == middle + 7
    assert log_source(log, start_ts=5).start(TASKS, middle) == middle
    end = log_source(log)
    assert (end.start(TASKS, high), end.frontier(), end.ddls(high, high)) == (high, high, [])
    with pytest.raises(SourceBehind, match=f"goes up to {high}, below {high + 1}"):
        log_source(log).start(TASKS, high + 1)


@pytest.mark.parametrize(("tables", "runs"), [(1_000_000, [9]), (15, [3, 2, 2, 1, 1])])
def test_ddls_without_rows_come_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: int, runs: list[int]
) -> None:
    """Fewer of them where there are many tables, as the source keeps a schema for each."""
    monkeypatch.setattr(tidb_land, "RUN_TABLES", tables)
    upstream = Upstream(1, tmp_path)
    for name in "defghi":
        upstream.run(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
    upstream.writer.write()
    source = log_source(tmp_path, rules=("test.*",))
    high = source.start(TASKS, None)
    counts = []
    while ddls := source.ddls(high, source.frontier() or 0):
        counts.append(len(ddls))
        high = ddls[-1].ddl.commit_ts or 0
    assert counts == runs


def test_a_log_that_was_trimmed(tmp_path: Path) -> None:
    """A new feed begins where the log does, with the tables that are there; a checkpoint below it is lost history."""
    upstream = Upstream(1, tmp_path)
    for key in (1, 2):
        upstream.run(f"INSERT INTO a VALUES ({key}, 1, {key})")
        upstream.writer.write()
    begin = trim(tmp_path, upstream.writer.low)
    upstream.run("INSERT INTO a VALUES (3, 3, 3)")
    upstream.writer.write()
    assert begin is not None

    told = walked(log_source(tmp_path, rules=("test.*",)))
    assert min(told.definitions) == begin > 0
    assert [one.name.table for one in told.definitions[begin]] == ["a", "b", "c"]
    assert [row.after[0] for row in told.rows] == [2, 3]  # type: ignore[union-attr]
    with pytest.raises(HistoryLost, match="--log-keep"):
        log_source(tmp_path).start(TASKS, begin - 1)


@pytest.mark.parametrize("sink", ["delta", "sqlite"])
def test_a_feed_above_rows_says_so(tmp_path: Path, sink: str) -> None:
    """A new feed of a trimmed log names the tables of which its target lacks rows, a lake as other sinks do; one that
    has all of them, or goes on from a checkpoint, names none."""
    log, kept = tmp_path / "log", tmp_path / "kept"
    log.mkdir()
    upstream = Upstream(1, log)
    for key in (1, 2):
        upstream.run(f"INSERT INTO a VALUES ({key}, 1, {key})")
        upstream.writer.write()

    def told(log: Path, start_ts: int | None, checkpoint_ts: int | None = None) -> list[str]:
        uris = {"source_uri": f"tidb://{log}", "sink_uri": f"{sink}://{tmp_path / 'target' / log.name}"}
        how = {"name": log.name, "start_ts": start_ts, "state_dir": tmp_path / "state"}
        source = source_of(load(**uris, rules=["test.*"], **how))  # type: ignore[arg-type]
        source.start(LocalTasks(pickles=False), checkpoint_ts)
        try:
            return [text.partition(": the feed begins above")[0] for text in source.reading().warnings]
        finally:
            source.stop()

    shutil.copytree(log, kept)
    begin = trim(log, upstream.writer.low)
    assert begin is not None
    upstream.writer.write()
    assert told(kept, None) == []
    assert told(log, begin) == ["test.a, test.b, test.c"]
    assert told(log, begin, begin) == []


def test_a_target_that_was_emptied(tmp_path: Path) -> None:
    """A feed that has been further than a trimmed log begins stops when its target has no progress of it, at each
    start; with a start-ts, as the error says it, or from a checkpoint, it goes on; a feed of another name is new."""
    upstream = Upstream(1, tmp_path)
    for key in (1, 2, 3):
        upstream.run(f"INSERT INTO a VALUES ({key}, 1, {key})")
        upstream.writer.write()
    was_at = upstream.writer.low
    first = log_source(tmp_path)
    first.start(TASKS, None)
    assert log_source(tmp_path).start(TASKS, None) == 0, "nothing was trimmed: all of it comes again"
    log_source(tmp_path).start(TASKS, was_at)
    begin = trim(tmp_path, was_at)
    assert begin is not None
    assert begin < was_at

    for _ in range(2):
        with pytest.raises(MadeAnew, match=f"was at ts {was_at} when it last ran, .* up to ts {begin}") as stopped:
            log_source(tmp_path).start(TASKS, None)

    said = int(str(stopped.value).split("start-ts=")[1].split(",")[0])
    assert log_source(tmp_path, feed="other").start(TASKS, None) == begin
    assert log_source(tmp_path).start(TASKS, was_at) == was_at
    assert log_source(tmp_path, start_ts=said).start(TASKS, None) == begin


def test_the_log_hears_who_needs_it(tmp_path: Path) -> None:
    """The safe point is that of the feed and its sink, from the start on."""
    log = recorded_log(tmp_path, "types")
    names = [safe_point_name("shop", sink) for sink in ("kafka://a/x", "kafka://b/x")]
    for name, start_ts in zip(names, (7, 9), strict=True):
        given: dict[str, Any] = {"rules": TableFilter.parse(()), "mount": FORCED, "events": EventFilter()}
        LogSource(SegmentLog(log), name, start_ts=start_ts, **given).start(TASKS, None)

    assert sorted((hold.changefeed, hold.checkpoint_ts) for hold in safe_points(log)) == [("shop", 7), ("shop", 9)]


def test_transactions_that_are_left_out(tmp_path: Path) -> None:
    """Their DDLs are told as left out and change the schema all the same; their rows do not come."""
    log = recorded_log(tmp_path, "types")
    whole = walked(log_source(log))
    starts = {row.commit_ts: row.start_ts for row in changes("types")}
    chosen = [whole.ddls[3].ddl.commit_ts or 0, whole.rows[5].commit_ts or 0]
    left = walked(log_source(log, events=EventFilter(frozenset(starts[ts] for ts in chosen))))

    assert [placed.ddl for placed in left.ddls] == [placed.ddl for placed in whole.ddls]
    assert [placed.ddl.commit_ts for placed in left.ddls if placed.left_out] == chosen[:1]
    assert left.rows == [row for row in whole.rows if row.commit_ts not in chosen]
    assert left.definitions == whole.definitions


def test_both_directions(tmp_path: Path) -> None:
    """With bdr-mode rows that a replication wrote stay, few or many, and of the DDLs all but the primary's users' are
    left out; the schema changes all the same."""
    upstream = Session(Cluster.open().node)
    storage = upstream.node.storage
    writer = LogWriter(ChangeLog(storage.store, storage.oracle), tmp_path, 0)
    many = ", ".join(f"({number})" for number in range(100, 200))
    upstream.execute("CREATE TABLE test.t (id INT PRIMARY KEY); INSERT INTO test.t VALUES (1)")
    upstream.execute(f"SET tidb_cdc_write_source = 1; INSERT INTO test.t VALUES (2); INSERT INTO test.t VALUES {many}")
    upstream.execute("ADMIN SET BDR ROLE PRIMARY; ALTER TABLE test.t ADD COLUMN replicated INT")
    upstream.execute("SET tidb_cdc_write_source = 0; ALTER TABLE test.t ADD COLUMN own INT")
    upstream.execute("INSERT INTO test.t VALUES (3, 3, 3); UPDATE test.t SET own = 4 WHERE id = 2")
    writer.write(empty=True)
    whole, own = (
        walked(log_source(tmp_path, mount=FORCED._replace(bdr=bdr), rules=["test.*"])) for bdr in (False, True)
    )

    assert [(type(row).__name__, row.row_id) for row in own.rows] == [("Insert", 1), ("Insert", 3), ("Update", 2)]
    assert len(whole.rows) == len(own.rows) + 101
    assert own.rows == [row for row in whole.rows if row in own.rows]
    assert [placed.ddl.query for placed in own.ddls if not placed.left_out] == ["ALTER TABLE test.t ADD COLUMN own INT"]
    assert [placed.ddl for placed in own.ddls] == [placed.ddl for placed in whole.ddls]
    assert own.definitions == whole.definitions


def test_a_ddl_that_cannot_be_followed(tmp_path: Path) -> None:
    """What comes before it is read first; then the source has failed, and so it has for whoever starts again there."""
    log = recorded_log(tmp_path, "rename_swap")
    found = log_source(log, rules=("gs.s1",))
    told = walked(found)
    failure, frontier = found.failure(), found.frontier()

    assert len(told.rows) > 0
    assert isinstance(failure, RenameRefused)
    assert "rename table s1" in str(failure)
    assert frontier == max(told.definitions)
    again = log_source(log, rules=("gs.s1",))
    again.start(TASKS, frontier)
    assert isinstance(again.failure(), RenameRefused)
    early = log_source(log, rules=("gs.s1",))
    early.start(TASKS, None)
    assert early.failure() is None


@pytest.mark.slow
def test_an_exchange_with_a_table_outside_the_filter(tmp_path: Path) -> None:
    """No DDL is told, but the table's rows lie elsewhere from then on; none is missed."""
    upstream = Upstream(1, tmp_path / "log")
    upstream.run(
        "CREATE TABLE p (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10));"
        "CREATE TABLE s (id INT PRIMARY KEY, v INT); INSERT INTO s VALUES (1, 1);"
        "CREATE TABLE x (id INT PRIMARY KEY); ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE s;"
        "INSERT INTO s VALUES (2, 2); CREATE TABLE y (id INT PRIMARY KEY); INSERT INTO s VALUES (3, 3)"
    )
    upstream.writer.write(empty=True)
    told = walked(log_source(tmp_path / "log", rules=("test.s",)))

    assert [(row.table, row.after[0]) for row in told.rows] == [("s", 1), ("s", 2), ("s", 3)]  # type: ignore[union-attr]
    assert [placed.ddl.query.split()[:3] for placed in told.ddls] == [["CREATE", "TABLE", "s"]]
    assert [one.name.table for one in told.definitions[max(told.definitions)]] == ["s"]
