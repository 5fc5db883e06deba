"""Logs that begin above 0: what a trim leaves, what a begun log holds, and that any death on the way is harmless."""

import errno
import os
from pathlib import Path

import pytest

from tidegate.engine.filter import TableFilter
from tidegate.model.errors import EnvironmentFault, HistoryLost, StateUnwritable, StoreUnavailable, TidegateError
from tidegate.model.tso import compose, physical_ms
from tidegate.schema.stored.snapshot import StoredSnapshot
from tidegate.source import tidb_segment
from tidegate.source.tidb_ddl import Timeline
from tidegate.source.tidb_segment import (
    SegmentLog,
    base_of,
    put_safe_point,
    safe_point,
    safe_point_name,
    safe_points,
    segments,
    trim,
)
from tidegate_upstream.serve import LogKeep, trim_log
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.log_writer import LogWriter, begin_log
from tidegate_upstream.tidb.session import Session

RULES = TableFilter.parse(("test.*",))
WORK = (
    "CREATE TABLE a (id INT PRIMARY KEY, v INT); INSERT INTO a VALUES (1, 1)",
    "ALTER TABLE a ADD COLUMN w INT DEFAULT 7; CREATE TABLE b (id INT PRIMARY KEY)",
    "INSERT INTO a VALUES (2, 2, 2); RENAME TABLE b TO c",
    "DROP TABLE c; CREATE DATABASE d",
    "INSERT INTO a VALUES (3, 3, 3); TRUNCATE TABLE a",
)


class Upstream:
    """A cluster with a session, and a segment behind each piece of work."""

    def __init__(self, directory: Path) -> None:
        self.cluster = Cluster.open()
        self.session = Session(self.cluster.nodes["n1"])
        self.session.execute("USE test")
        self.log = ChangeLog(self.cluster.storage.store, self.cluster.storage.oracle)
        self.directory = directory

    def written(self) -> list[int]:
        """The ends of the segments of all the work."""
        writer = LogWriter(self.log, self.directory, 0)
        for sql in WORK:
            self.session.execute(sql)
            writer.write()
        return [high for _, high, _ in segments(self.directory)]


def schema_at(directory: Path, ts: int) -> dict[int, tuple[str, str, list[str]]]:
    """Tables by id, as a feed has them that starts at `ts`."""
    timeline = Timeline(SegmentLog(directory), RULES)
    timeline.start(ts)
    return shown(timeline.snapshot)


def shown(snapshot: StoredSnapshot) -> dict[int, tuple[str, str, list[str]]]:
    """Names and columns of the tables that people made."""
    return {
        number: (found.schema, found.stored.name.original, [column.name.original for column in found.stored.cols or []])
        for number, found in snapshot.tables.items()
        if found.schema not in {"mysql", "sys"}
    }


def test_a_trimmed_log_has_the_same_schema(tmp_path: Path) -> None:
    """Trimmed at each segment in turn, a log gives the definitions at every later ts that the whole log gave."""
    ends = Upstream(tmp_path).written()
    whole = {ts: schema_at(tmp_path, ts) for ts in ends}
    rows = list(SegmentLog(tmp_path).rows(ends[3], ends[4], ((b"t", b"u"),)))

    for at, ts in enumerate(ends[:-1]):
        assert trim(tmp_path, ts) == ts
        assert (SegmentLog(tmp_path).begin().ts, SegmentLog(tmp_path).begin().whole) == (ts, False)
        assert {later: schema_at(tmp_path, later) for later in ends[at:]} == {
            later: whole[later] for later in ends[at:]
        }
        assert [high for _, high, _ in segments(tmp_path)] == ends[at + 1 :]
    assert trim(tmp_path, ends[-1]) is None
    assert list(SegmentLog(tmp_path).rows(ends[3], ends[4], ((b"t", b"u"),))) == rows
    with pytest.raises(HistoryLost, match="--log-keep"):
        schema_at(tmp_path, ends[0])


def test_a_feed_that_starts_reads_on_while_the_log_is_trimmed(tmp_path: Path) -> None:
    """What a trim replaces is deleted by the next one."""
    ends = Upstream(tmp_path).written()
    log = SegmentLog(tmp_path)
    begin, read = log.begin().ts, list(log.rows(0, ends[2], ((b"m", b"u"),)))
    assert trim(tmp_path, ends[2], lazily=True) == ends[2] > begin
    assert (log.begin().ts, list(log.rows(0, ends[2], ((b"m", b"u"),)))) == (ends[2], read)
    assert trim(tmp_path, ends[2], lazily=True) is None
    with pytest.raises(HistoryLost):
        list(log.rows(0, ends[2], ((b"m", b"u"),)))


@pytest.mark.parametrize("death", [1, 2, 3])
def test_a_trim_may_die_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, death: int) -> None:
    """Killed before the base is there, or with some of the old files deleted, a log is the old one or the new one, and
    the next trim ends what was begun."""
    ends = Upstream(tmp_path).written()
    whole = schema_at(tmp_path, ends[-1])
    left, real = iter(range(death - 1, -1, -1)), Path.unlink

    def dies(path: Path, *, missing_ok: bool = False) -> None:
        if next(left) == 0:
            raise StoreUnavailable("gone")
        real(path, missing_ok=missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", dies)
        with pytest.raises(StoreUnavailable):
            trim(tmp_path, ends[2])
    assert schema_at(tmp_path, ends[-1]) == whole
    assert len(segments(tmp_path)) > 2
    trim(tmp_path, ends[2])

    assert [high for _, high, _ in segments(tmp_path)] == ends[3:]
    assert schema_at(tmp_path, ends[-1]) == whole


def test_no_log_begins_in_the_middle_of_a_ddl(tmp_path: Path) -> None:
    """A segment that ends while a job runs is no place to begin: the trim stays below it, and a new log waits."""
    upstream = Upstream(tmp_path)
    writer = LogWriter(upstream.log, tmp_path, 0)
    upstream.session.execute("CREATE TABLE a (id INT PRIMARY KEY)")
    writer.write()
    quiet, steps = writer.low, iter(range(1 << 30))

    def look(_place: str) -> None:
        if next(steps) == 2:
            writer.write(empty=True)
            with pytest.raises(EnvironmentFault, match="DDL job"):
                begin_log(upstream.cluster.storage, tmp_path / "new")

    upstream.cluster.failpoint = look
    upstream.session.execute("ALTER TABLE a ADD INDEX (id)")
    busy = writer.low
    writer.write(empty=True)

    assert busy > quiet
    assert trim(tmp_path, busy) == quiet


def test_a_log_of_a_store_that_was_there_before(tmp_path: Path) -> None:
    """It holds the definitions, each row once as an insert at its begin, and what comes then."""
    upstream = Upstream(tmp_path / "old")
    upstream.session.execute(f"{WORK[0]}; INSERT INTO a VALUES (2, 2), (3, 3); DELETE FROM a WHERE id = 1; {WORK[1]}")
    upstream.cluster.collect_garbage(0)
    ts = begin_log(upstream.cluster.storage, tmp_path / "new")
    writer = LogWriter(upstream.log, tmp_path / "new", 0)
    upstream.session.execute("UPDATE a SET v = 9 WHERE id = 2")
    writer.write()
    log = SegmentLog(tmp_path / "new")

    begin, snapshot, whole = log.begin()
    assert whole
    assert (begin, base_of(tmp_path / "new")[0]) == (ts - 1, ts - 1)  # type: ignore[index]
    assert [table[1:] for table in shown(snapshot).values()] == [("a", ["id", "v", "w"]), ("b", ["id"])]
    tables = {found.stored.name.original: found.stored.id for found in snapshot.tables.values()}
    span = tidb_segment.table_span(tables["a"])
    found = list(log.rows(begin, writer.low, (span,)))
    assert [(row.commit_ts == ts, row.old_value is None) for row in found] == [
        (True, True),
        (True, True),
        (False, False),
    ]


def test_a_log_is_kept_for_the_slowest(tmp_path: Path) -> None:
    """The least safe point of those that were heard of within gc-ttl holds the trim, then the time to keep does."""
    ends = Upstream(tmp_path).written()
    now_ms = physical_ms(ends[-1]) + 50_000
    for name, ts, ago_ms in (("quick", ends[3], 0), ("slow", ends[1], 9_000), ("dead", ends[0], 11_000)):
        put_safe_point(tmp_path, name, ts, now_ms - ago_ms)
    (tmp_path / "feeds" / "broken.json").write_text("{")

    assert [hold.changefeed for hold in safe_points(tmp_path)] == ["dead", "quick", "slow"]
    assert (safe_point(tmp_path, now_ms, 10_000), safe_point(tmp_path, now_ms + 20_000, 10_000)) == (ends[1], None)
    assert trim_log(tmp_path, LogKeep(60_000, 10_000), now_ms) is None
    assert trim_log(tmp_path, LogKeep(0, 10_000), now_ms) == ends[1]
    assert trim_log(tmp_path, LogKeep(0, 10_000), now_ms + 2_000) == ends[3]
    assert compose(now_ms) > ends[3]


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, StateUnwritable), (errno.EACCES, EnvironmentFault)])
def test_a_disk_that_refuses_a_safe_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[TidegateError]
) -> None:
    """A full disk passes, so it is tried again; a missing right does not."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tidb_segment, "write_whole", refuse)
    with pytest.raises(kind, match=os.strerror(number)):
        put_safe_point(tmp_path, "shop", 5, 100_000)


def test_changefeeds_of_one_name_hold_a_log_each_for_itself(tmp_path: Path) -> None:
    """Into different sinks they have a safe point each; a file of the time before, without a sink in its name, counts
    as long as it lives."""
    now_ms = 100_000
    names = [safe_point_name("shop", sink) for sink in ("kafka://one/shop", "kafka://two/shop", "kafka://one/shop")]
    for name, ts in zip(names, (5, 7, 6), strict=True):
        put_safe_point(tmp_path, name, ts, now_ms)
    old = b'{"changefeed":"shop","checkpoint_ts":3,"time_ms":91000}'
    (tmp_path / "feeds" / "shop.json").write_bytes(old)

    found = [(hold.changefeed, hold.checkpoint_ts) for hold in safe_points(tmp_path)]
    assert sorted(found) == [("shop", 3), ("shop", 6), ("shop", 7)]
    assert [safe_point(tmp_path, now_ms + later_ms, 10_000) for later_ms in (0, 2_000, 11_000)] == [3, 6, None]
