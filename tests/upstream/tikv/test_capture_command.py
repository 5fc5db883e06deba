"""`tidegate capture` and changefeeds of tikv:// as processes, which get SIGKILL at every place of a capture."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig import TIDEGATE
from tests.failpoint import CAPTURE_FAILPOINTS
from tests.kill.seeds import chance
from tests.upstream.tikv.test_capture import BEFORE, WORK, Served, shop, until
from tidegate.objectstore.failpoint import DIRECTORY_VARIABLE, VARIABLE
from tidegate.source.tidb_segment import SegmentLog, safe_points, segments
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tikv.pd_service import PdService
from tidegate_upstream.tikv.peer import TikvPeer

pytestmark = pytest.mark.slow
ENDS_S = 90
PLACES = sorted(CAPTURE_FAILPOINTS)
OFTEN = {"capture/before-segment": 3, "capture/after-segment": 3}


HOLDS: list[int] = []
"""Where PD was asked to hold garbage collection."""


def watch_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let HOLDS tell what PD is asked."""
    answer = PdService.set_barrier

    def set_barrier(self: PdService, request: Any) -> Any:
        HOLDS.append(request.barrier_ts)
        return answer(self, request)

    HOLDS.clear()
    monkeypatch.setattr(PdService, "set_barrier", set_barrier)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A cluster that has tables already."""
    watch_holds(monkeypatch)
    cluster = Cluster.open()
    with TikvPeer(cluster.storage, stores=2, turn_s=0.02).in_thread() as peer:
        own = Served(peer, cluster, tmp_path)
        own.execute(*BEFORE)
        yield own


@contextmanager
def running(words: Sequence[str], deed: str, home: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of the command line; `deed` is done once among all of this home."""
    (home / "marks").mkdir(exist_ok=True)
    armed = {VARIABLE: deed, DIRECTORY_VARIABLE: str(home / "marks")} if deed else {}
    with (home / "said").open("a") as said:
        process = subprocess.Popen(
            [str(TIDEGATE), *words], env={**os.environ, **armed}, stdout=subprocess.PIPE, stderr=said, text=True
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=ENDS_S)


def capture_words(served: Served, *more: str) -> list[str]:
    """A capture of the filter of the tests; a short ttl, so that the hold moves often."""
    uri = f"tikv://{served.peer.pd}?force-version=true&gc-ttl=60"
    return ["capture", uri, "--log", str(served.log), "--filter", "test.*", "--filter", "!test.hidden", *more]


def reports(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """What it prints as JSON."""
    assert process.stdout is not None
    return map(json.loads, process.stdout)


def test_a_capture_reports_stops_and_releases(served: Served, tmp_path: Path) -> None:
    """SIGTERM ends it with status 0, its reports tell how far it is, and --release ends its hold."""
    low = served.execute()
    with running(capture_words(served, "--json", "--start-ts", str(low)), "", tmp_path) as process:
        ts = served.execute(*WORK)
        last = next(each for each in reports(process) if each["capture"].get("ts", 0) >= ts)
        assert last["state"] == "normal"
        assert last["capture"]["log_bytes"] > 0
        process.send_signal(signal.SIGTERM)
        *_, last = reports(process)
        assert last["state"] == "stopped"
        assert process.wait(ENDS_S) == 0
    captured, own = served.compared(low, ts)
    assert captured == own
    holds = [name for name in served.peer.service.barriers if name.startswith("tidegate-capture-")]
    assert len(holds) == 1
    with running(capture_words(served, "--release", "-c", "shop"), "", tmp_path) as process:
        assert process.wait(ENDS_S) == 1
    assert "PD has no hold of a capture shop of the log" in (said := (tmp_path / "said").read_text())
    assert "it has that of capture; name it with -c" in said
    assert list(served.peer.service.barriers) == holds
    with running(capture_words(served, "--release"), "", tmp_path) as process:
        assert process.wait(ENDS_S) == 0
    assert not served.peer.service.barriers


def test_a_capture_that_cannot_begin_says_why(served: Served, tmp_path: Path) -> None:
    """Status 1 and the code of the error, as JSON where that is asked for."""
    served.log.mkdir()
    served.writer.write(empty=True)
    served.log = served.own
    with running(capture_words(served, "--json"), "", tmp_path) as process:
        assert process.wait(ENDS_S) == 1
    said = json.loads((tmp_path / "said").read_text().splitlines()[-1])
    assert "of another writer" in said["error"]["message"]


def feed_words(served: Served, tmp_path: Path, low: int, ts: int) -> list[str]:
    """A changefeed of the cluster into SQLite, up to `ts`, with a log of its own."""
    return [
        *("run", "--source-uri", f"tikv://{served.peer.pd}?force-version=true&log={served.log}&gc-ttl=60"),
        *("--sink-uri", f"sqlite://{tmp_path}/shop.db", "--state-dir", str(tmp_path / "state"), "-c", "shop"),
        *("--filter", "test.*", "--filter", "!test.hidden", "--start-ts", str(low), "--target-ts", str(ts), "--json"),
    ]


def lives_and_dies(served: Served, tmp_path: Path, places: Sequence[str]) -> None:
    """A capture for a changefeed of tidb:// dies at places, and goes on; so does one beside a changefeed of tikv://.
    Nothing is lost and nothing twice; PD holds no more and no less than what is not written."""
    low = served.execute("INSERT INTO test.a VALUES (10, 10)")
    work = list(WORK)
    for place in places:
        with running(capture_words(served, "--start-ts", str(low)), deed_at(place), tmp_path) as process:
            served.execute(*work[:1])
            del work[:1]
            assert process.wait(ENDS_S) == -signal.SIGKILL
    ts = served.execute(*work)
    with running(capture_words(served, "--start-ts", str(low)), "", tmp_path):
        until(lambda: served.high() >= ts)
    captured, own = served.compared(low, ts)
    assert captured == own
    highs = [low, *(high for _, high, _ in segments(served.log))]
    assert {held + 1 for held in HOLDS} <= set(highs)
    assert len(HOLDS) > len(places)


def deed_at(place: str) -> str:
    """Die at the first chance, or in the midst of segments."""
    return f"{place}=kill@{OFTEN.get(place, 1)}"


def test_a_capture_that_is_killed_goes_on(served: Served, tmp_path: Path) -> None:
    """SIGKILL at a place that the run's seed chooses, in the soak at each."""
    lives_and_dies(served, tmp_path, [chance("a capture that is killed").choice(PLACES[:-1])])


@pytest.mark.soak
def test_a_capture_that_is_killed_at_each_place_goes_on(served: Served, tmp_path: Path) -> None:
    """The places of a new log die in their order, then those of a log that grows."""
    begin = ["capture/origin", "capture/held", "capture/base"]
    lives_and_dies(served, tmp_path, [*begin, *(place for place in PLACES if place not in begin)])


FEED_PLACES = (*PLACES, "round/planned", "round/applied")
"""A changefeed ends within the interval of holds, so that `capture/moved` is only passed by."""


@pytest.mark.soak
@pytest.mark.parametrize("place", FEED_PLACES)
def test_a_changefeed_that_is_killed_goes_on(served: Served, tmp_path: Path, place: str) -> None:
    """The changefeed and its capture die in one process; its target ends equal to the upstream, and holds nothing."""
    low = served.execute("INSERT INTO test.a VALUES (10, 10)")
    ts = served.execute(*WORK)
    with running(feed_words(served, tmp_path, low, ts), deed_at(place), tmp_path) as process:
        process.communicate(timeout=ENDS_S)
        killed = process.returncode
    assert killed == -signal.SIGKILL or place == "capture/moved", (tmp_path / "said").read_text()[-2000:]
    with running(feed_words(served, tmp_path, low, ts), "", tmp_path) as process:
        process.communicate(timeout=ENDS_S)
        assert process.returncode == 0, (tmp_path / "said").read_text()[-2000:]
    captured, own = served.compared(low, ts)
    assert captured == own
    made = shop(tmp_path / "shop.db")
    assert [row[0] for row in made["test.a"]] == [1, 3, 4, 5]
    assert made["test.p"] == [(7,)]
    assert not safe_points(served.log)
    assert not [name for name in served.peer.service.barriers if "shop" in name]
    assert SegmentLog(served.log).begin().ts == low
