"""A captured log in an object store: a real S3 server, a proxy that loses answers, feeds, deaths, and two captures."""

import itertools
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kill.seeds import chance
from tests.s3 import BUCKET, environment, serving
from tests.s3_proxy import Request, running
from tests.upstream.tikv.capture_life import lived
from tests.upstream.tikv.test_capture import BEFORE, WORK, Served, shop, until
from tests.upstream.tikv.test_capture_command import PLACES, lives_and_dies, watch_holds
from tidegate.config.changefeed import Changefeed
from tidegate.config.load import load
from tidegate.config.registry import forget_at_source
from tidegate.engine.ports import LocalTasks
from tidegate.lakes.lake import Lake
from tidegate.model.errors import Fenced, HistoryLost, SourceError
from tidegate.objectstore import store_path
from tidegate.objectstore.store_path import location
from tidegate.source import tidb_log, tikv_capture
from tidegate.source.tidb_segment import (
    ROWS,
    SegmentLog,
    SegmentWriter,
    read_spans,
    safe_points,
    segments,
    trim,
)
from tidegate.source.tikv_capture import Capture, release
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tikv.peer import TikvPeer

pytestmark = pytest.mark.slow
FAULTS = ("lost", "cut", 503, "half")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """One server for these tests."""
    with serving(BUCKET) as there:
        yield there


@pytest.fixture
def asked(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Request]]:
    """The requests; every seventeenth meets a fault."""
    numbers, faults = itertools.count(1), itertools.cycle(FAULTS)
    monkeypatch.setattr(store_path, "LIST_S", 0.05)
    with running(port, lambda _: next(faults) if next(numbers) % 17 == 0 else None) as (tired, proxy):
        for name, value in environment(tired).items():
            monkeypatch.setenv(name, value)
        yield proxy.requests


@pytest.fixture
def served(asked: list[Request], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A cluster that has tables already; captures into the store."""
    watch_holds(monkeypatch)
    cluster = Cluster.open()
    with TikvPeer(cluster.storage, stores=2, turn_s=0.005).in_thread() as peer:
        own = Served(peer, cluster, tmp_path, f"s3://{BUCKET}/{tmp_path.name}")
        own.execute(*BEFORE)
        yield own


def captured(served: Served, start_ts: int | None = None) -> Capture:
    """A capture that has begun."""
    capture = served.capture(start_ts, write_s=0.2, idle_s=0.2)
    capture.start()
    return capture


def stored(root: str) -> dict[str, list[tuple[object, ...]]]:
    """The tables of a lake, with their rows, as `shop` has them."""
    lake = Lake(root)
    return {name: sorted(tuple(row.values()) for row in lake.arrow(name).to_pylist()) for name in lake.tables()}


def test_two_feeds_of_a_log_in_an_object_store(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake and a database equal the upstream, whatever the store answers; the capture begins again at the log's end,
    and trims it behind both."""
    monkeypatch.setattr(tidb_log, "EVERY_S", 0.0)
    start_ts = served.execute("DELETE FROM test.a")
    for work in (WORK[:4], WORK[4:]):
        capture = captured(served, start_ts)
        served.captured(capture, served.execute(*work))
        ts = served.high()
        for name, sink in (("lake", f"delta://{tmp_path}/lake?upkeep=off"), ("shop", f"sqlite://{tmp_path}/shop.db")):
            config = load(
                source_uri=f"{served.uri}?ddl-ts=commit",
                sink_uri=sink,
                state_dir=tmp_path / name,
                name=name,
                rules=("test.*", "!test.hidden"),
                start_ts=start_ts,
            )
            assert Changefeed(config).run(tasks=LocalTasks(), until=ts).checkpoint_ts >= ts
        capture.stop()
        monkeypatch.setattr(tikv_capture, "KEEP_S", 0.3)  # both feeds have a safe point
    capture = captured(served)
    until(lambda: segments(served.log, fresh=True)[0][0] > start_ts or capture.failure() is not None)
    capture.stop()
    assert capture.failure() is None
    assert SegmentLog(served.log).begin().ts <= ts
    rows = {f"test.{name}": selected(served, f"test.{name}") for name in ("a", "p")}
    assert (stored(f"{tmp_path}/lake"), shop(tmp_path / "shop.db")) == (rows, rows)
    assert len(safe_points(served.log)) == 2
    forget_at_source(config)
    assert len(safe_points(served.log)) == 1
    assert served.peer.service.barriers
    release(capture.options)
    assert not served.peer.service.barriers


def selected(served: Served, table: str) -> list[tuple[object, ...]]:
    """The rows of a table, as SQL shows them."""
    (answer,) = served.session.execute(f"SELECT * FROM {table}")
    return sorted(map(tuple, answer.rows))


@pytest.mark.more
def test_one_of_two_captures_goes_on(served: Served) -> None:
    """Both run until they have a segment for the same ts: each row is in the log once, the slower one is fenced, and
    another one may begin at any time."""
    low = served.execute()
    first = captured(served, low)
    served.captured(first, served.execute(*WORK[:2]))
    second = captured(served, low)
    until(lambda: first.failure() is not None or second.failure() is not None)
    ended, runs = (first, second) if first.failure() is not None else (second, first)
    assert isinstance(ended.failure(), Fenced)
    assert "another capture writes into the log" in str(ended.failure())
    ts = served.execute(*WORK[2:])
    served.captured(runs, ts)
    assert runs.failure() is None
    runs.stop()
    captured_rows, own = served.compared(low, ts)
    assert captured_rows == own


def test_a_capture_knows_its_own_late_segment(served: Served) -> None:
    """The request of a segment that failed may still arrive: the capture that sent it begins again behind it. One that
    arrives when its segment was trimmed changes nothing."""
    log, rows = served.log, (ROWS,)
    begun = SegmentWriter(log, 100, "one")
    for high in (110, 120, 130):
        begun.write([], high)
    late = SegmentWriter(log, 100, "one")
    late.low = 120
    with pytest.raises(SourceError, match="had no answer") as told:
        late.write([], 125)
    assert not isinstance(told.value, Fenced)
    other = SegmentWriter(log, 100, "other")
    other.low = 120
    with pytest.raises(Fenced):
        other.write([], 125)
    assert SegmentWriter(log, 100, "other").low == 130
    assert trim(log, 120) == 120
    first = SegmentWriter(log, 100, "one")
    first.low = 100
    first.write([], 110)
    assert segments(log, fresh=True)[0][:2] == (100, 120)
    assert [part.low for part in SegmentLog(log).parts(0)] == [120]
    with pytest.raises(HistoryLost, match=r"no changes of \(110, 120\]"):
        list(read_spans(log, 105, 130, rows))
    assert trim(log, 130) is None
    assert segments(log, fresh=True)[0][:2] == (120, 130)


@pytest.mark.more
def test_an_idle_log_asks_for_little(served: Served, asked: list[Request], monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture without rows writes one object a segment; a reader lists what is new once in LIST_S, and reads the end
    of each new segment once."""
    capture = captured(served)
    until(lambda: bool(served.high()))
    monkeypatch.setattr(store_path, "LIST_S", 0.5)
    log = SegmentLog(served.log)
    low = log.parts(0)[-1].high
    asked.clear()
    begin_s = time.monotonic()
    while time.monotonic() - begin_s < 2:
        parts = log.parts(low)
        time.sleep(0.02)
    capture.stop()
    lists = [request for request in asked if "list-type" in request.path]
    names = Counter(each.path for each in asked if each.method == "GET" and each not in lists)
    assert len(lists) <= (time.monotonic() - begin_s) / 0.5 + 2
    assert len(parts) - 2 <= len(names) <= len(parts) + 2
    assert max(names.values()) <= 2
    assert {each.method for each in asked} == {"GET", "PUT"}


@pytest.mark.more
def test_a_capture_into_an_object_store_that_is_killed_goes_on(served: Served, tmp_path: Path) -> None:
    """SIGKILL at each place of a new log, then at those of a log that grows."""
    begin = ["capture/origin", "capture/held", "capture/base"]
    lives_and_dies(served, tmp_path, [*begin, *(place for place in PLACES if place not in begin)])


@pytest.mark.soak
def test_lives_in_an_object_store(asked: list[Request], tmp_path: Path) -> None:
    """Some of the lives that seeds draw: deaths, garbage collection, and a changefeed behind which it is trimmed."""
    random = chance("lives in an object store")
    for seed in random.sample(range(500), 3):
        uri = f"s3://{BUCKET}/lives-{seed}"
        assert sum(lived(seed, tmp_path / str(seed), uri).values()) >= 30


FEED = """
import json, sys
from tidegate.config.changefeed import Changefeed
from tidegate.config.load import load
from tidegate.spark.session import session

words, until = json.loads(sys.argv[1]), int(sys.argv[2])
assert Changefeed(load(**words)).run(session(), until=until).checkpoint_ts >= until
"""
"""In a process of its own, since the JVM of another test has other variables."""


@pytest.mark.more
def test_executors_read_a_log_in_an_object_store(served: Served, tmp_path: Path) -> None:
    """Tasks of Spark find the store by the driver's variables, and what they land is what the upstream has."""
    start_ts = served.execute("DELETE FROM test.a")
    capture = captured(served, start_ts)
    served.captured(capture, served.execute(*WORK))
    capture.stop()
    words = {
        "source_uri": f"{served.uri}?ddl-ts=commit",
        "sink_uri": f"delta://{tmp_path}/lake?upkeep=off",
        "rules": ["test.*", "!test.hidden"],
        "start_ts": start_ts,
    }
    subprocess.run([sys.executable, "-c", FEED, json.dumps(words), str(served.high())], check=True, timeout=300)
    assert stored(f"{tmp_path}/lake") == {f"test.{name}": selected(served, f"test.{name}") for name in ("a", "p")}


@pytest.mark.more
def test_a_feed_of_a_cluster_has_its_log_beside_its_state(served: Served, tmp_path: Path) -> None:
    """With a state directory in an object store, a changefeed of tikv:// needs no directory for its log, goes on where
    it was, and leaves nothing behind at PD when it is removed."""
    state, start_ts = f"s3://{BUCKET}/state-of-a-cluster", served.execute("DELETE FROM test.a")
    config = load(
        source_uri=f"tikv://{served.peer.pd}?force-version=true",
        sink_uri=f"sqlite://{tmp_path}/shop.db",
        state_dir=state,
        name="shop",
        rules=("test.*", "!test.hidden"),
        start_ts=start_ts,
    )
    for work in (WORK[:4], WORK[4:]):
        ts = served.execute(*work)
        assert Changefeed(config).run(tasks=LocalTasks(), until=ts).checkpoint_ts >= ts
    assert shop(tmp_path / "shop.db") == {f"test.{name}": selected(served, f"test.{name}") for name in ("a", "p")}
    log = location(f"{state}/shop/_tidegate/capture")
    assert segments(log)[-1][1] >= ts
    forget_at_source(config)
    assert not safe_points(log)
    assert not served.peer.service.barriers
