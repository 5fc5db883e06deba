"""How captures begin again and end: what a dead one left, one that does not end, holds and filters by name."""

import asyncio
import json
import re
import time
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from click.testing import CliRunner

from tests.upstream.tikv.test_capture import WORK, Served, failure, run_feed, served, shop, until
from tidegate.cli.main import main
from tidegate.model.errors import ConfigError
from tidegate.model.kept_state import StateKind, encode_state
from tidegate.source import tikv_capture
from tidegate.source.tidb_segment import SegmentWriter
from tidegate.source.tikv_capture import captures_held
from tidegate.source.tikv_options import ORIGIN, CaptureOrigin, origin_of
from tidegate.tikv import rpc
from tidegate.tikv.pd import PdClient
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.session import Session
from tidegate_upstream.tikv.pd_service import PdService
from tidegate_upstream.tikv.peer import TikvPeer

pytestmark = pytest.mark.slow
_ = served


def captured_once(served: Served, *work: str, **options: object) -> int:
    """Run a capture until it has some work; a ts above it."""
    capture = served.capture(**options)
    capture.start()
    until(lambda: bool(served.high()) or capture.failure() is not None)
    ts = served.execute(*work)
    served.captured(capture, ts)
    capture.stop()
    assert capture.failure() is None
    return ts


def test_a_begin_removes_what_a_dead_capture_spilled(served: Served) -> None:
    """Files of rows that waited are of no use to the next capture of that log, which reads the rows again."""
    captured_once(served)
    left = served.log / ".spill-abc"
    left.write_bytes(b"rows")
    captured_once(served, *WORK[:1])
    assert not left.exists()


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("disk", r"in Capture\.run > .*, Capture\._write > _in_thread"),
        ("PD", r"in Capture\.run > .*close_late > sleep;"),
    ],
)
def test_a_capture_that_does_not_end_is_told(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str, said: str
) -> None:
    """Whoever stops it goes on, with an error that names where it waits."""
    monkeypatch.setattr(tikv_capture, "_ENDS_S", 0.3)
    waits, ends = Event(), Event()
    write, close = SegmentWriter.write_columns, PdClient.close

    def write_columns(self: SegmentWriter, rows: Any, high: int) -> Path:
        waits.set()
        ends.wait(60 if place == "disk" else 0)
        return write(self, rows, high)

    async def close_late(self: PdClient) -> None:
        while place == "PD" and not ends.is_set():  # noqa: ASYNC110  set in another thread
            await asyncio.sleep(0.01)
        await close(self)

    monkeypatch.setattr(SegmentWriter, "write_columns", write_columns)
    monkeypatch.setattr(PdClient, "close", close_late)
    capture = served.capture()
    capture.start()
    assert waits.wait(60)
    capture.stop()
    told = str(capture.failure())
    ends.set()
    assert f"the capture shop into {served.log} has not ended in 0.3 s" in told
    assert re.search(said, told)
    assert told in caplog.text
    until(capture._ended.is_set)


def test_what_is_complete_is_written_though_nothing_more_comes(served: Served) -> None:
    """Resolved timestamps may stop right behind a segment: what they completed does not wait for the next one."""
    capture = served.capture(write_s=1.5)
    capture.start()
    try:
        served.captured(capture, served.execute(*WORK[:1]))
        ts = served.execute("INSERT INTO test.a VALUES (30, 3)")
        assert capture._working is not None
        spans = capture._working[3]
        until(lambda: min(spans.resolved.values()) >= ts)
        served.peer.advances = False
        served.captured(capture, ts)
    finally:
        capture.stop()


@pytest.mark.parametrize(("kept", "wanted"), [((), ("*.*",)), (("*.*",), ()), (("# all", "*.* "), ("*.*",))])
def test_equal_filters_are_equal(served: Served, kept: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    """No filter is one of all tables, in the state of earlier releases, too."""
    captured_once(served, rules=("*.*",))
    origin = origin_of(served.log)
    assert origin is not None
    stored = CaptureOrigin(origin.cluster_id, kept, origin.log)
    (served.log / ORIGIN).write_bytes(encode_state(StateKind.CAPTURE, stored))
    captured_once(served, *WORK[:1], rules=wanted)
    refused = failure(served.capture(rules=("*.*", "!test.a")))
    assert isinstance(refused, ConfigError)
    assert "not of *.*, !test.a" in str(refused)


def test_a_log_that_lost_its_filter_is_refused(served: Served, tmp_path: Path) -> None:
    """Nothing tells then whether it has the tables of a changefeed."""
    ts = captured_once(served, *WORK[:1])
    body = (served.log / ORIGIN).read_bytes()
    (served.log / ORIGIN).unlink()
    source = f"tidb://{served.log}?ddl-ts=commit"
    with pytest.raises(ConfigError, match=r"is a capture's, and has lost capture\.json"):
        run_feed(tmp_path, "lost", ts, source=source)
    (served.log / ORIGIN).write_bytes(body)
    assert run_feed(tmp_path, "found", ts, source=source)


def test_the_captures_for_whose_log_pd_holds(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names that captures have, of this log alone; an older PD tells them over HTTP."""
    options = served.capture().options
    assert captures_held(options) is None
    captured_once(served)
    assert captures_held(options) == ["shop"]
    held = dict(served.peer.service.barriers)
    served.log = served.log.with_name("other")
    captured_once(served)
    assert captures_held(options) == ["shop"]

    async def report(_: PdClient, name: str) -> dict[str, Any]:
        assert name == "gc/safepoint"
        points = [{"service_id": name, "expired_at": 1 << 60, "safe_point": ts} for name, (ts, _) in held.items()]
        worker = {"service_id": "gc_worker", "expired_at": (1 << 63) - 1, "safe_point": 1}
        return dict(json.loads(json.dumps({"service_gc_safe_points": [worker, *points], "gc_safe_point": 1})))

    monkeypatch.setattr(PdClient, "report", report)
    handlers = PdService.unary

    def older(self: PdService) -> Any:
        return {method: answer for method, answer in handlers(self).items() if method is not rpc.GET_GC_STATE}

    monkeypatch.setattr(PdService, "unary", older)
    served.peer.call(served.peer.stop_store(0))
    served.peer.call(served.peer.start_store(0))
    assert captures_held(options) == ["shop"]


def test_now_of_a_run_is_that_of_pd(tmp_path: Path) -> None:
    """`--until now` brings what the cluster has, also where this machine's clock is a day behind."""
    cluster = Cluster.open(now_ms=lambda: time.time_ns() // 1_000_000 + 86_400_000)
    session = Session(cluster.nodes["n1"])
    session.execute("CREATE TABLE test.a (id INT PRIMARY KEY, v INT)")
    start_ts = cluster.storage.oracle.next()
    session.execute("INSERT INTO test.a VALUES (1, 1)")
    with TikvPeer(cluster.storage, turn_s=0.005).in_thread() as peer:
        uri = f"tikv://{peer.pd}?force-version=true&log={tmp_path}/log"
        words = ["run", "--source-uri", uri, "--sink-uri", f"sqlite://{tmp_path}/now.db", "--filter", "test.*"]
        more = ["--state-dir", str(tmp_path / "state"), "--start-ts", str(start_ts), "--until", "now"]
        ran = CliRunner().invoke(main, [*words, *more])
    assert ran.exit_code == 0, ran.output
    assert shop(tmp_path / "now.db")["test.a"] == [(1, 1)]
