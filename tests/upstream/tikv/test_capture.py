"""The capture of the embedded TiDB over gRPC: its log equals the one that the upstream writes itself."""

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.failpoint import CAPTURE_FAILPOINTS, armed
from tests.source.tidb.modify_recording import recorded
from tests.source.tidb.test_quadrants import Scene
from tidegate.config.changefeed import Changefeed
from tidegate.config.entry import FeedConfig
from tidegate.config.load import load
from tidegate.config.registry import feed_of, forget_at_source
from tidegate.engine.filter import TableFilter
from tidegate.engine.load_plan import LoadPlan
from tidegate.engine.loop import Engine, Meter
from tidegate.engine.ports import LocalTasks
from tidegate.engine.progress import Progress
from tidegate.engine.stop_signals import NoPauseEvent
from tidegate.kv.keys import RecordKey, decode_table_key, table_span
from tidegate.model.errors import ConfigError, EnvironmentFault, SinkError, SourceError, StateTooNew, TidegateError
from tidegate.model.kv_change import KvChange
from tidegate.objectstore.store_path import location
from tidegate.schema.job import JOB_TABLE, decode_job_row
from tidegate.source import tikv_capture
from tidegate.source.tidb_ddl import Timeline
from tidegate.source.tidb_segment import (
    ROWS,
    SCHEMA,
    SegmentLog,
    forget_safe_point,
    put_safe_point,
    read_spans,
    safe_points,
    segments,
)
from tidegate.source.tikv_capture import Capture, CaptureOptions, release
from tidegate.source.tikv_load import TikvGuard, TikvReader
from tidegate.source.tikv_options import TikvLoadOptions
from tidegate.tikv.address import ClusterAddress
from tidegate.tikv.pd import PdClient
from tidegate.tikv.snapshot import Snapshot
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.log_writer import LogWriter
from tidegate_upstream.tidb.session import Session
from tidegate_upstream.tikv.peer import TikvPeer

pytestmark = pytest.mark.slow

RULES = TableFilter.parse(("test.*", "!test.hidden"))
BEFORE = (
    "CREATE TABLE test.a (id INT PRIMARY KEY, v INT, KEY (v)); INSERT INTO test.a VALUES (1, 1), (2, 2)",
    "CREATE TABLE test.hidden (id INT PRIMARY KEY); INSERT INTO test.hidden VALUES (1)",
)
WORK = (
    "INSERT INTO test.a VALUES (3, 3); UPDATE test.a SET v = 9 WHERE id = 1",
    "CREATE TABLE test.p (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 3",
    "INSERT INTO test.p VALUES (1), (2), (3), (4); DELETE FROM test.a WHERE id = 2",
    "ALTER TABLE test.a ADD COLUMN w INT DEFAULT 7; INSERT INTO test.a VALUES (4, 4, 4)",
    "TRUNCATE TABLE test.p; INSERT INTO test.p VALUES (7)",
    "INSERT INTO test.hidden VALUES (2); CREATE TABLE test.b (id INT PRIMARY KEY); INSERT INTO test.b VALUES (1)",
    "DROP TABLE test.b; INSERT INTO test.a VALUES (5, 5, 5)",
)


class Served:
    """A cluster with a session and a peer; captures into a directory, or a log at an address."""

    def __init__(self, peer: TikvPeer, cluster: Cluster, directory: Path, log: str = "") -> None:
        self.peer, self.cluster = peer, cluster
        self.session = Session(cluster.nodes["n1"])
        self.log: Any = location(log or str(directory / "log"))
        self.uri, self.own = f"tidb+{log}" if log else f"tidb://{self.log}", directory / "own"
        self.writer = LogWriter(ChangeLog(cluster.storage.store, cluster.storage.oracle), self.own, 0)

    def execute(self, *work: str) -> int:
        """Do work; return a ts above it."""
        for sql in work:
            self.session.execute(sql)
        return self.cluster.storage.oracle.next()

    def capture(self, start_ts: int | None = None, **options: object) -> Capture:
        """A capture, not started."""
        address = ClusterAddress((self.peer.pd,))
        fields = {"rules": ("test.*",), "write_s": 0.02, "idle_s": 0.02, "force_version": True, **options}
        chosen = CaptureOptions(address=address, directory=self.log, feed="shop", **fields)  # type: ignore[arg-type]
        return Capture(chosen, RULES.matches, start_ts)

    def high(self, *, fresh: bool = False) -> int:
        """The end of the captured log."""
        written = segments(self.log, fresh=fresh)
        return written[-1][1] if written else 0

    def captured(self, capture: Capture, ts: int) -> None:
        """Wait until the log has come to `ts`."""
        until(lambda: self.high() >= ts or capture.failure() is not None)
        if (failure := capture.failure()) is not None:
            raise failure

    def compared(self, low: int, high: int) -> tuple[list[KvChange], list[KvChange]]:
        """The rows of the tables of the filter in (low, high]: captured, and as the upstream writes them."""
        self.writer.write(empty=True)
        timeline = Timeline(SegmentLog(self.own), RULES)
        timeline.start(low)
        ids = physical_ids(timeline)
        timeline.read(high)
        while (stop := timeline.stop()) is not None:
            timeline.walk(stop)
            ids |= physical_ids(timeline)
        rows = [list(read_spans(each, low, high, (ROWS,))) for each in (self.log, self.own)]
        jobs = table_span(JOB_TABLE.id)
        captured = [row for row in rows[0] if not jobs[0] <= row.key < jobs[1]]
        return captured, [row for row in rows[1] if table_of(row.key) in ids]


def physical_ids(timeline: Timeline) -> set[int]:
    """The ids of the tables of the filter."""
    tables = timeline.tables.replicated(timeline.snapshot)
    return {number for table in tables for number in table.stored.physical_ids}


def table_of(key: bytes) -> int | None:
    """The table of a row's key."""
    decoded = decode_table_key(key)
    return decoded.table_id if isinstance(decoded, RecordKey) else None


def until(met: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + 60
    while not met():
        assert time.monotonic() < deadline, "not within 60 s"
        time.sleep(0.01)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A cluster that has tables already."""
    cluster = Cluster.open()
    with TikvPeer(cluster.storage, stores=2, turn_s=0.005).in_thread() as peer:
        own = Served(peer, cluster, tmp_path)
        own.execute(*BEFORE)
        yield own


def test_a_captured_log_has_the_rows_of_the_upstreams_own(served: Served) -> None:
    """Rows, definitions and DDLs of the tables in the filter, from the begin on, across splits and cut streams."""
    capture = served.capture()
    capture.start()
    try:
        until(lambda: bool(served.high()) or capture.failure() is not None)
        low = SegmentLog(served.log).begin().ts
        for index, work in enumerate(WORK):
            ts = served.execute(work)
            served.peer.log.split(b"t\x80" + bytes(6) + bytes([index * 9]))
            if index % 3 == 1:
                served.peer.cut_streams()
        served.captured(capture, ts)
    finally:
        capture.stop()
    captured, own = served.compared(low, ts)
    assert captured == own
    assert len(own) == 11
    meta = [list(read_spans(each, low, ts, (SCHEMA,))) for each in (served.log, served.own)]
    assert meta[0] == meta[1]


@pytest.mark.parametrize(
    ("ddl", "begins_again"), [("drop table s", False), ("truncate table s", True), ("drop database gd", True)]
)
def test_rows_of_a_table_that_sql_no_longer_shows(tmp_path: Path, ddl: str, *, begins_again: bool) -> None:
    """Those that a node with the schema from before commits are captured, also by a capture that begins again."""
    scene, tables = Scene(tmp_path / "upstream"), TableFilter.parse(("gd.s",))
    number = next(number for number, table in scene.world.tables().items() if table.name.original == "s")
    with TikvPeer(scene.world.cluster.storage, turn_s=0.005).in_thread() as peer:
        served = Served(peer, scene.world.cluster, tmp_path)

        def begin() -> Capture:
            capture = Capture(served.capture(low).options, tables.matches, low)
            capture.start()
            return capture

        low = scene.now()
        capture = begin()
        scene.run("insert into s values (1, 1)")
        scene.world.step(scene.ask(ddl), 1)
        if begins_again:
            served.captured(capture, scene.now())
            capture.stop()
            capture = begin()
        scene.run("insert into s values (2, 2)", "n2")
        scene.world.finish()
        served.captured(capture, scene.now())
        capture.stop()
    captured = read_spans(served.log, low, served.high(), (table_span(number),))
    assert [row.key[-1] for row in captured if row.key[10:11] == b"r"] == [1, 2]


@pytest.mark.parametrize("place", sorted(CAPTURE_FAILPOINTS.keys() - {"capture/moved"}))
def test_a_capture_that_dies_goes_on_at_the_end_of_its_log(served: Served, place: str) -> None:
    """Nothing is lost and nothing is there twice, wherever it ends."""
    low, met = served.execute("INSERT INTO test.a VALUES (10, 10)"), Counter[str]()

    def die() -> None:
        met[place] += 1
        if met[place] == (3 if place.endswith("-segment") else 1):
            raise SinkError("it dies")

    with armed({place: die}):
        capture = served.capture(low)
        capture.start()
        served.execute(*WORK[:2])
        until(lambda: capture.failure() is not None)
        capture.stop()
    assert str(capture.failure()) == "it dies"
    ts = served.execute(*WORK[2:])
    again = served.capture(low)
    again.start()
    try:
        served.captured(again, ts)
    finally:
        again.stop()
    captured, own = served.compared(low, ts)
    assert captured == own


def test_rows_beyond_the_bound_wait_in_files(served: Served) -> None:
    """Rows above the resolved ts lie in files beyond `waiting_bytes`, and are written from there."""
    capture = served.capture(waiting_bytes=1)
    capture.start()
    try:
        served.captured(capture, served.execute())
        served.peer.advances = False
        served.execute(WORK[0])
        until(lambda: capture.progress().spilled_bytes > 0)
        assert (capture.progress().waiting_bytes, capture.progress().cluster) == (0, str(served.peer.cluster_id))
        served.peer.advances = True
        ts = served.execute()
        served.captured(capture, ts)
    finally:
        served.peer.advances = True
        capture.stop()
    captured, own = served.compared(SegmentLog(served.log).begin().ts, ts)
    assert captured == own


def test_gc_is_held_below_what_is_not_written(served: Served) -> None:
    """PD keeps what the log does not have yet, from before the first read on; a log below it cannot begin."""
    capture = served.capture(gc_ttl_ms=3000)
    capture.start()
    try:
        until(lambda: bool(served.high()))
        ts = served.execute(*WORK[:1])
        served.captured(capture, ts)
        until(lambda: held(served) > ts)
        assert held(served) < served.high()
    finally:
        capture.stop()


def test_feeds_of_one_name_hold_what_each_of_them_needs(served: Served) -> None:
    """A changefeed that is behind keeps its hold, whatever another one of its name has reached; so does its restart."""
    for log in ("log", "other", "log"):
        served.log = served.log.with_name(log)
        capture = served.capture()
        capture.start()
        served.captured(capture, served.execute())
        capture.stop()
    names = [name for name in served.peer.service.barriers if name.startswith("tidegate-shop-")]
    assert len(names) == 2


def held(served: Served) -> int:
    """Where PD holds garbage collection for the capture."""
    return min(ts for name, (ts, _) in served.peer.service.barriers.items() if name.startswith("tidegate-shop"))


def test_another_filter_is_refused(served: Served) -> None:
    """A log lacks the rows of tables that its filter left out, so that a feed of another filter does not read it."""
    capture = served.capture()
    capture.start()
    until(lambda: bool(served.high()))
    capture.stop()
    other = served.capture(rules=("*.*",))
    other.start()
    until(lambda: other.failure() is not None)
    with pytest.raises(ConfigError, match=r"filter test\.\*"):
        raise other.failure() or AssertionError


def test_a_log_of_a_newer_release_is_refused(served: Served) -> None:
    """Its origin is left as it is; one without a version is read."""
    first = served.capture()
    first.start()
    until(lambda: bool(served.high()))
    first.stop()
    path = first.options.directory / "capture.json"
    body = path.read_bytes()
    newer = body.replace(b'{"state_version":1', b'{"state_version":99', 1)
    assert newer != body
    path.write_bytes(newer)
    assert isinstance(failure(served.capture()), StateTooNew)
    assert path.read_bytes() == newer
    path.write_bytes(body.replace(b'"state_version":1,', b"", 1))
    again = served.capture()
    again.start()
    high = served.high()
    until(lambda: served.high() > high)
    assert again.failure() is None
    again.stop()


def failure(capture: Capture) -> TidegateError | None:
    """Run a capture until it fails."""
    capture.start()
    until(lambda: capture.failure() is not None)
    return capture.failure()


@pytest.mark.parametrize("error", [ValueError("a fault"), asyncio.CancelledError()])
def test_a_capture_that_ends_says_so(served: Served, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends it: without an error, its feed would wait for rows that nobody reads."""

    async def batch(*_: object) -> int:
        raise error

    monkeypatch.setattr(PdClient, "_batch", batch)
    assert isinstance(failure(served.capture()), SourceError)


def test_a_log_has_one_capture(served: Served) -> None:
    """Two of them would write each row twice; the second one may begin when the first has ended. While one runs, its
    hold is not to be released."""
    first, second = served.capture(), served.capture()
    first.start()
    until(lambda: bool(served.high()))
    assert "another capture writes into the log" in str(failure(second))
    with pytest.raises(SourceError, match="another capture writes into the log"):
        release(first.options)
    assert held(served)
    first.stop()
    with pytest.raises(SourceError):
        second.start()
    second.start()
    served.captured(second, served.execute(*WORK[:1]))
    second.stop()


def test_a_log_that_cannot_be_written_is_an_error_of_this_machine(served: Served) -> None:
    """It does not end by trying again."""
    served.log.write_text("a file")
    ended = failure(served.capture())
    assert isinstance(ended, EnvironmentFault)
    assert "cannot be written (File exists)" in str(ended)


def test_captures_that_begin_at_once_share_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a server's changefeeds do: a capture in two loops would not end, nor say that it stands still."""
    made = list[object]()

    @cache
    def slow() -> object:
        time.sleep(0.05)
        made.append(object())
        return made[-1]

    monkeypatch.setattr(tikv_capture, "_loop", slow)
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(lambda _: tikv_capture.capture_loop(), range(4))] == made * 4


def test_a_log_of_another_writer_is_refused(served: Served) -> None:
    """It has no note of its cluster and filter, and the rows of a captured cluster do not belong to it."""
    served.writer.write(empty=True)
    served.log, before = served.own, segments(served.own)
    assert isinstance(failure(served.capture()), ConfigError)
    assert segments(served.own) == before


def test_a_start_after_the_clusters_time_is_refused(served: Served) -> None:
    """A read above PD's time would raise the timestamps of the cluster's transactions."""
    future = served.execute() + (3_600_000 << 18)
    assert "3600 s after the cluster's time" in str(failure(served.capture(future)))
    assert not served.peer.service.barriers
    capture = served.capture(served.execute() + (500 << 18))
    capture.start()
    until(lambda: bool(served.high()) or capture.failure() is not None)
    capture.stop()
    assert capture.failure() is None


def shop(target: Path) -> dict[str, list[tuple[object, ...]]]:
    """The tables of a SQLite file, with their rows."""
    with closing(sqlite3.connect(target)) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        return {
            name: sorted(database.execute(f'SELECT * FROM "{name}"')) for (name,) in names if "tidegate" not in name
        }


def test_a_feed_of_a_cluster_equals_that_of_its_log(served: Served, tmp_path: Path) -> None:
    """`tikv://` brings what `tidb://` brings, and goes on where it was."""
    start_ts = served.execute()
    options = f"?log={served.log}&force-version=true"
    made = {}
    for number, work in enumerate((WORK[:3], WORK[3:])):
        ts = served.execute(*work)
        served.writer.write(empty=True)
        for kind, source in (
            ("tikv", f"tikv://{served.peer.pd}{options}"),
            ("tidb", f"tidb://{served.own}?ddl-ts=commit"),
        ):
            target = tmp_path / f"{kind}.db"
            config = load(
                source_uri=source,
                sink_uri=f"sqlite://{target}",
                state_dir=tmp_path / kind,
                start_ts=start_ts,
                rules=("test.*", "!test.hidden"),
            )
            feed = Engine(feed_of(config), LocalTasks(pickles=False), Meter(lambda _: None), NoPauseEvent())
            done = feed.run(until=ts)
            assert done.checkpoint_ts == ts
            made[kind, number] = shop(target)
        assert made["tikv", number] == made["tidb", number]
    assert [row[0] for row in made["tikv", 1]["test.a"]] == [1, 3, 4, 5]


def test_a_log_is_not_at_its_end_before_its_capture_has_begun(served: Served, tmp_path: Path) -> None:
    """A run up to a past ts goes on until it is there, though no writer has the log's lock at its begin."""
    start_ts, checkpoints = served.execute(), []
    for work in (WORK[:1], WORK[1:3]):
        ts = served.execute(*work)
        config = load(
            source_uri=f"tikv://{served.peer.pd}?force-version=true&log={served.log}",
            sink_uri=f"sqlite://{tmp_path}/ends.db",
            state_dir=tmp_path / "ends",
            start_ts=start_ts,
            rules=("test.*",),
        )
        engine = Engine(feed_of(config), LocalTasks(pickles=False), Meter(lambda _: None), NoPauseEvent())
        checkpoints.append((engine.run(until=ts, stop_when_ended=True).checkpoint_ts, ts))
    assert [reached for reached, _ in checkpoints] == [ts for _, ts in checkpoints]


def test_a_load_from_the_cluster_brings_what_is_there(served: Served, tmp_path: Path) -> None:
    """Rows from TiKV at S and changes above it are what all changes from the begin are."""
    cluster = f"tikv://{served.peer.pd}"
    served.execute(
        "CREATE TABLE test.k (a VARCHAR(9), b DECIMAL(5, 2), c TIMESTAMP NULL, UNIQUE KEY (a))",
        "INSERT INTO test.k VALUES ('x', 1.5, '2024-01-02 03:04:05'), (NULL, NULL, NULL)",
        "CREATE TABLE test.p2 (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 2",
        "INSERT INTO test.p2 VALUES " + ", ".join(f"({number}, {number})" for number in range(200)),
    )
    served.peer.log.split(b"t\x80" + bytes(6) + b"\xff")
    options = {"source": f"{cluster}?log={served.log}&force-version=true", "load_from": cluster}
    run_feed(tmp_path, "tikv", served.execute(), **options)
    ts = served.execute(*WORK)
    loaded = run_feed(tmp_path, "tikv", ts, **options)
    served.writer.write(empty=True)
    assert loaded == run_feed(tmp_path, "tidb", ts, source=f"tidb://{served.own}?ddl-ts=commit")
    assert len(loaded["test.p2"]) == 200
    assert not [name for name in served.peer.service.barriers if name.startswith("tidegate-load-")]


def run_feed(home: Path, name: str, ts: int, *, source: str, load_from: str | None = None) -> dict[str, Any]:
    """Run a feed up to `ts`; its tables."""
    config = load(
        source_uri=source,
        sink_uri=f"sqlite://{home / name}.db",
        state_dir=home / name,
        rules=("test.*", "!test.hidden"),
        load_from=load_from,
    )
    Engine(feed_of(config), LocalTasks(pickles=False), Meter(lambda _: None), NoPauseEvent()).run(until=ts)
    return shop(home / f"{name}.db")


def test_a_lake_begins_once_its_capture_has_written(tmp_path: Path) -> None:
    """The engine asks a source that is behind again and again; the capture goes on meanwhile."""
    cluster = Cluster.open()
    with TikvPeer(cluster.storage, turn_s=0.5).in_thread() as peer:
        served = Served(peer, cluster, tmp_path)
        start_ts, ts = served.execute(*BEFORE), served.execute("INSERT INTO test.a VALUES (3, 3)")
        config = load(
            source_uri=f"tikv://{peer.pd}?force-version=true&log={served.log}",
            sink_uri=f"delta://{tmp_path}/lake",
            start_ts=start_ts,
            rules=("test.*",),
        )
        engine = Engine(feed_of(config), LocalTasks(pickles=False), Meter(lambda _: None), NoPauseEvent())
        assert engine.run(until=ts, idle_s=20).checkpoint_ts == ts


def test_a_load_that_is_stopped_keeps_what_it_reads(served: Served) -> None:
    """PD holds garbage collection at S until the load is done."""
    plan = LoadPlan(served.execute())
    service, name = served.peer.service, f"tidegate-load-{plan.ts}"
    options = TikvLoadOptions(pd=served.peer.pd)
    with TikvGuard(options, plan):
        assert service.barriers[name][0] == plan.ts
    assert service.barriers[name][0] == plan.ts
    with TikvGuard(options, plan):
        TikvGuard(options, plan).restore()
    assert name not in service.barriers


def lost(served: Served, **options: object) -> TidegateError:
    """The error of a capture whose hold is taken away, and whose rows are collected, before it reads them again."""
    capture = served.capture(**options)
    capture.start()
    served.captured(capture, served.execute())
    served.peer.advances = False
    time.sleep(0.2)  # what was resolved is written
    high, ts = served.high(), served.execute("UPDATE test.a SET v = 7 WHERE id = 1", "DELETE FROM test.a WHERE id = 1")
    served.peer.service.barriers.clear()
    assert served.peer.collect_garbage(ts) == ts
    if (working := capture._working) is not None:
        streams = working[0].registrations.streams
        former = list(streams.values())
        served.peer.cut_streams()
        until(lambda: not any(stream in former for stream in list(streams.values())))
    served.peer.advances = True
    until(lambda: capture.failure() is not None)
    capture.stop()
    assert served.high() == high
    failure = capture.failure()
    assert failure is not None
    return failure


def test_rows_that_were_collected_are_an_error_before_any_is_missing(served: Served) -> None:
    """TiKV leaves collected versions out of a scan: the capture asks PD first, and writes nothing of such a scan."""
    assert lost(served).code == "CDC:ErrSnapshotLostByGC"
    served.log = served.log.with_name("other")
    assert lost(served, gc_ttl_ms=100).code == "CDC:ErrGCTTLExceeded"


def test_a_feed_that_ends_for_good_holds_nothing(served: Served, tmp_path: Path) -> None:
    """At its target-ts, and when it is removed, PD's hold and the log's safe point go; a run that ends keeps both."""
    start_ts, ts = served.execute(), served.execute(*WORK[:1])
    uri = f"tikv://{served.peer.pd}?log={served.log}&force-version=true"

    def config(target_ts: int | None) -> FeedConfig:
        sink = f"sqlite://{tmp_path}/ends.db"
        return load(
            source_uri=uri,
            sink_uri=sink,
            state_dir=tmp_path / "ends",
            start_ts=start_ts,
            rules=("test.*",),
            target_ts=target_ts,
            name="shop",
        )

    def holds() -> tuple[int, int]:
        return len([name for name in served.peer.service.barriers if "shop" in name]), len(safe_points(served.log))

    Changefeed(config(None)).run(tasks=LocalTasks(), until=ts)
    assert holds() == (1, 1)
    ts = served.execute(*WORK[1:2])
    assert Changefeed(config(ts)).run(tasks=LocalTasks()).state == "finished"
    assert holds() == (0, 0)
    Changefeed(config(None)).run(tasks=LocalTasks(), until=served.execute())
    assert holds() == (1, 1)
    forget_at_source(config(None))
    assert holds() == (0, 0)


def test_a_log_is_kept_for_its_slowest_feed(served: Served) -> None:
    """It is trimmed behind it; one that has ended for good, or has not run for gc-ttl, holds nothing."""
    capture = served.capture(gc_ttl_ms=3000)
    capture.start()
    served.captured(capture, served.execute(*WORK[:2]))
    slow_ts = served.high()
    put_safe_point(served.log, "slow.1", slow_ts, time.time_ns() // 1_000_000 + 600_000)
    served.captured(capture, served.execute(*WORK[2:4]))
    put_safe_point(served.log, "fast.1", served.high(), time.time_ns() // 1_000_000)
    served.captured(capture, served.execute(*WORK[4:]))
    until(lambda: segments(served.log)[0][0] > 0 and SegmentLog(served.log).begin().ts == slow_ts)
    forget_safe_point(served.log, "slow.1")
    until(lambda: SegmentLog(served.log).begin().ts > slow_ts)
    capture.stop()


def test_feeds_read_the_log_of_a_capture(served: Served, tmp_path: Path) -> None:
    """Each has its own part of the capture's tables; one that wants others is refused, where it meets the first."""
    capture = served.capture()
    capture.start()
    served.captured(capture, served.execute())
    log_ts = SegmentLog(served.log).begin().ts

    def run(name: str, ts: int, *rules: str) -> dict[str, Any]:
        feed = load(
            source_uri=f"tidb://{served.log}?ddl-ts=commit",
            sink_uri=f"sqlite://{tmp_path}/{name}.db",
            state_dir=tmp_path / name,
            rules=rules,
            start_ts=log_ts,
        )
        Engine(feed_of(feed), LocalTasks(pickles=False), Meter(lambda _: None), Pause()).run(until=ts)
        return shop(tmp_path / f"{name}.db")

    ts = served.execute(*WORK[:4])
    served.captured(capture, ts)
    assert {*run("one", ts, "test.a")} == {"test.a"}
    assert {*run("two", ts, "test.p", "other.*")} == {"test.p"}
    ts = served.execute("CREATE DATABASE other; CREATE TABLE other.t (id INT PRIMARY KEY)")
    served.captured(capture, ts)
    with pytest.raises(ConfigError, match=r"other\.t is in the filter of the changefeed, and not in that of its log"):
        run("two", ts, "test.p", "other.*")
    run("one", ts, "test.a")
    capture.stop()


def test_a_feed_that_waits_for_a_log_learns_its_tables(served: Served, tmp_path: Path) -> None:
    """A feed that is there before its log is refused as one that comes later, for tables that the log lacks."""
    served.log.mkdir()
    low = served.execute()
    feed = load(
        source_uri=f"tidb://{served.log}?ddl-ts=commit",
        sink_uri=f"sqlite://{tmp_path}/waits.db",
        state_dir=tmp_path / "waits",
        start_ts=low,
    )
    waiting = Engine(feed_of(feed), LocalTasks(), Meter(lambda _: None), Pause())
    capture = served.capture(low, rules=RULES.rules)
    capture.start()
    ts = served.execute(*WORK[:1])
    served.captured(capture, ts)
    capture.stop()
    with pytest.raises(ConfigError, match=r"test\.hidden is in the filter of the changefeed"):
        waiting.run(until=ts)


JOB = next(row for row in recorded("rows") if table_span(JOB_TABLE.id)[0] <= row.key < table_span(JOB_TABLE.id)[1])


@pytest.mark.parametrize("mode", ["never", "initial"])
def test_a_begin_that_waits_for_a_ddl_job_says_so(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """A new log cannot begin amid a job, such as one that is paused, nor can a load take its timestamp: the feed names
    it in its reports, and goes on. A timestamp that a user gave is refused there."""
    runs, pages = True, Snapshot.pages

    def with_job(self: Snapshot, start: bytes, end: bytes) -> Any:
        async def job() -> Any:
            yield [(JOB.key, JOB.value)]

        return job() if runs and (start, end) == table_span(JOB_TABLE.id) else pages(self, start, end)

    monkeypatch.setattr(Snapshot, "pages", with_job)
    reports: list[Progress] = []

    def report(progress: Progress) -> None:
        nonlocal runs
        reports.append(progress)
        runs = runs and not any("begins when these DDL jobs have ended" in text for text in progress.warnings)

    def run(name: str, **options: Any) -> Progress:
        config = load(
            source_uri=f"tikv://{served.peer.pd}?log={served.log}-{name}&force-version=true",
            sink_uri=f"sqlite://{tmp_path}/{name}.db",
            state_dir=tmp_path / name,
            rules=("test.*",),
            **options,
        )
        return Engine(feed_of(config), LocalTasks(pickles=False), Meter(report), Pause()).run(idle_s=2)

    given = {"start_ts": served.execute()} if mode == "never" else {"load_ts": served.execute()}
    with pytest.raises(EnvironmentFault, match="take another start-ts, or load-ts"):
        run("given", load_mode=mode, **given)
    last = run("waits", load_mode=mode)
    assert last.capture is not None
    assert last.capture.ts > 0
    assert last.capture.log_bytes > 0
    job = decode_job_row(JOB.key, JOB.value or b"")
    waits = f"begins when these DDL jobs have ended: {job.id} ("
    assert any(waits in text for progress in reports for text in progress.warnings)
    assert not any(waits in text for text in last.warnings), "the wait is over"
    if mode == "initial":
        assert shop(tmp_path / "waits.db")["test.a"] == [(1, 1), (2, 2)]


@pytest.mark.parametrize("step", [1, 2, 3, pytest.param(4, marks=pytest.mark.more)])
def test_a_load_amid_a_ddl_job(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """S falls behind each step of a job that rewrites rows, with rows that the job's columns were written for before
    and behind it: the target has what SQL shows."""
    plan, reached, goes_on = TikvReader.plan, Event(), Event()
    steps = count(1)

    def amid(name: str) -> None:
        if name == "ddl/after-step" and next(steps) == step:
            reached.set()
            assert goes_on.wait(60)

    def planned(self: TikvReader, *arguments: Any) -> LoadPlan:
        ddl = pool.submit(Session(served.cluster.nodes["n1"]).execute, "ALTER TABLE test.a MODIFY v VARCHAR(9)")
        until(lambda: reached.is_set() or ddl.done())
        served.execute("INSERT INTO test.a VALUES (6, 6)")
        made = plan(self, *arguments)
        assert any(each.name.table == "a" for each in made.tables)
        served.execute("INSERT INTO test.a VALUES (7, 7); UPDATE test.a SET v = 8 WHERE id = 1")
        goes_on.set()
        ddl.result(60)
        return made

    monkeypatch.setattr(TikvReader, "plan", planned)
    served.cluster.failpoint = amid
    config = load(
        source_uri=f"tikv://{served.peer.pd}?log={served.log}&force-version=true",
        sink_uri=f"sqlite://{tmp_path}/shop.db",
        state_dir=tmp_path / "home",
        rules=("test.a",),
        load_mode="initial",
    )
    with ThreadPoolExecutor(1) as pool:
        for ts in (1, None):  # the load, and what comes behind it
            end = ts or served.execute()
            Engine(feed_of(config), LocalTasks(pickles=False), Meter(lambda _: None), Pause()).run(until=end)
    assert reached.is_set()
    assert shop(tmp_path / "shop.db") == {"test.a": [(1, "8"), (2, "2"), (6, "6"), (7, "7")]}


class Pause(NoPauseEvent):
    """Waits a moment."""

    def wait(self, timeout: float | None = None) -> bool:
        time.sleep(min(timeout or 0.01, 0.01))
        return self.is_set()
