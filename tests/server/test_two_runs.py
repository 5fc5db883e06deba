"""Two runs of one changefeed at a time: whatever each of them has reached when the other goes on, one of them gets on.

    A ── to a place, waits ┐            ┌─ to its end ┐
    B                      └─ to a place, waits       └─ to its end

Both run in this process on a broker of it; only one of them goes at a time, so a place is where the test says.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.counts import crossed
from tests.failpoint import armed
from tests.server.kit import HereHost
from tests.source.kafka.broker import Broker
from tests.source.kit import OPEN
from tests.sources import topics_to_read
from tidegate.changelog import changelog
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.source import LandedSource
from tidegate.engine import retry_policy
from tidegate.engine.loop import Engine, Feed, Meter
from tidegate.engine.ports import Checkpoints, LocalTasks, Saved, Tasks
from tidegate.engine.progress import Progress
from tidegate.engine.retry_policy import RetryPolicy
from tidegate.lakes.lake import Lake
from tidegate.model.errors import Fenced, SinkError, TidegateError
from tidegate.objectstore.failpoint import failpoint
from tidegate.server import running
from tidegate.server.record import FeedId
from tidegate.server.running import RunEnd, RunningFeed
from tidegate.sink.callback import Callback, CallbackSink
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.sink.delta.snapshots import latest
from tidegate.source.kafka_land import Landing
from tidegate.spark.tasks import SparkEnded

pytestmark = pytest.mark.slow

FAILPOINTS = [
    "start/recovered",
    "landing/before-claim",
    "landing/after-claim",
    "landing/before-commit",
    "landing/after-commit",
    "round/planned",
    "apply/rows-written",
    "apply/rows-committed",
    "round/applied",
    "publish/before-schema",
    "publish/before-snapshot",
    "publish/after-snapshot",
]
LATE = [place for place in FAILPOINTS if place != "publish/before-schema"]
"""Those that a run reaches that finds a lake."""
CALLED = [place for place in LATE if not place.startswith("apply/")]
"""Those of a sink that calls a function."""
PART = 10
LAST_TS = 10 + 3 * PART - 1
WAIT_S = 60.0


class Inline(LandedSource):
    """Lands whenever it is looked at, in the thread of its feed."""

    def start(self, tasks: Tasks, checkpoint_ts: int | None) -> int:
        """Claim."""
        self.landing = self._make()
        self.landing._tasks = tasks
        self.landing._state = self.landing._claim()
        return checkpoint_ts or 0

    def refresh(self) -> None:
        """Land a batch, unless the landing has ended."""
        if self.landing._error is None:
            try:
                self.landing._batch()
            except TidegateError as error:
                self.landing._error = error
        super().refresh()


class Run:
    """One run, in a thread of its own."""

    def __init__(self, name: str, make: Callable[[], Feed], place: str) -> None:
        self.name, self.make, self.place = name, make, place
        self.feed = make()
        self.rests, self.goes = threading.Event(), threading.Event()
        self.ended = False
        self.error: object = None
        self.epoch, self.owns = 0, True
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        try:
            self.work()
        except TidegateError as error:
            self.error = error
        finally:
            self.epoch = self.feed.source.epoch()
            self.rests.set()

    def work(self) -> None:
        """Run to the last ts."""
        engine = Engine(self.feed, LocalTasks(pickles=False), Meter(lambda _: None), threading.Event())
        self.ended = engine.run(until=LAST_TS).state == "finished"


class ServedRun(Run):
    """One as a server runs it, which is the owner as long as `owns`."""

    def work(self) -> None:
        """Run as often as the server wants it."""
        config: Any = SimpleNamespace(stuck_ms=60_000, target_ts=LAST_TS, changefeed=self)
        served = RunningFeed(
            FeedId("default", self.name), config, HereHost(), lambda: self.owns, on_report=_nobody, on_exit=_nobody
        )
        served._run()
        end = served._outcome
        assert end is not None
        self.ended, self.error = end.state == "finished", end.error

    def run(self, tasks: Tasks, on_progress: Any, stop: threading.Event, until: int) -> Progress:
        """Stand for the changefeed."""
        self.feed = self.make()
        return Engine(self.feed, tasks, Meter(on_progress), stop).run(until=until)


def _nobody(*_: object) -> None:
    """Hear nothing."""


class Pair:
    """Two runs, of which `turn` goes."""

    def __init__(self, broker: Broker, first: Run, second: Run) -> None:
        self.broker, self.runs = broker, (first, second)
        self.turn = first

    def play(self) -> None:
        """Each to its place, with messages between; then each to its end."""
        deeds = {run.place: partial(self._reached, run.place) for run in self.runs}
        with armed(deeds):
            for run in self.runs:
                self.turn = run
                run.thread.start()
                assert run.rests.wait(WAIT_S), f"{run.name} does not come to {run.place}"
                self.broker.grow("shop", PART)
                self.handed()
            for run in self.runs:
                self.turn = run
                run.goes.set()
                run.thread.join(WAIT_S)
                assert not run.thread.is_alive(), f"{run.name} does not end"

    def handed(self) -> None:
        """One of the runs has come to its place."""

    def _reached(self, place: str) -> None:
        run = self.turn
        if place == run.place and not run.rests.is_set():
            run.rests.set()
            assert run.goes.wait(WAIT_S)


class Takeover(Pair):
    """The server of the first run loses its lease while it rests."""

    def handed(self) -> None:
        """The lease is the other one's."""
        self.runs[0].owns = False


def lake_feed(root: Path) -> Feed:
    topics = topics_to_read("b:1", ("shop",), OPEN)
    source = Inline(lambda: Landing(topics, str(root), "f"), changelog_uri(str(root)))
    sink = DeltaSink(DeltaOptions(root=str(root), feed="f", flush_s=0.01))
    return Feed("f", source, sink, accept=lambda *_: True, patience=RetryPolicy(5, 30.0))


class SharedCheckpoints(Checkpoints):
    """A checkpoint of which the run that began last is the owner, as in an object store."""

    kept: Saved | None = None
    owner: object = None

    def __init__(self) -> None:
        self._begun = False

    def run_lock(self) -> AbstractContextManager[None]:
        """Let the next `load` take it over."""
        self._begun = False
        return nullcontext()

    def load(self) -> Saved | None:
        """Take it over, once."""
        if not self._begun:
            SharedCheckpoints.owner, self._begun = self, True
        self._check()
        failpoint("start/recovered")
        return SharedCheckpoints.kept

    def save(self, saved: Saved) -> None:
        """Put it in place."""
        failpoint("publish/before-snapshot")
        self._check()
        SharedCheckpoints.kept = saved
        failpoint("publish/after-snapshot")

    def _check(self) -> None:
        if SharedCheckpoints.owner is not self:
            raise Fenced("another run has taken the checkpoint over")


def callback_feed(root: Path, got: set[int]) -> Feed:
    topics = topics_to_read("b:1", ("shop",), OPEN)
    source = Inline(lambda: Landing(topics, str(root), "f"), changelog_uri(str(root)))
    write = Callback(lambda batch: got.update(batch.after.column("id").to_pylist()))
    return Feed(
        "f", source, CallbackSink(write, SharedCheckpoints()), accept=lambda *_: True, patience=RetryPolicy(5, 30.0)
    )


def check(pair: Pair, root: Path) -> None:
    """One went on, and the lake has all."""
    assert any(run.ended for run in pair.runs), [str(run.error) for run in pair.runs]
    assert latest(DeltaOptions(root=str(root), feed="f")).checkpoint.ts == LAST_TS
    keys = sorted(Lake(str(root)).arrow("shop.orders").column("id").to_pylist())
    assert keys == list(range(3 * PART))


def named(places: Sequence[str]) -> dict[str, str]:
    return {place: place for place in places}


@pytest.mark.parametrize(("first", "second"), crossed(named(FAILPOINTS), named(LATE[-3:] + LATE[:-3])))
def test_one_of_two_runs_on_a_lake_goes_on(tmp_path: Path, monkeypatch: Any, first: str, second: str) -> None:
    """The run whose landing claimed last reaches the end, wherever both were when they met; the other is fenced, or had
    reached it before."""
    broker = Broker.instead(monkeypatch)
    broker.make("shop", PART)
    make = partial(lake_feed, tmp_path / "lake")
    pair = Pair(broker, Run("A", make, first), Run("B", make, second))

    pair.play()

    newest = changelog.newest(changelog_uri(str(tmp_path / "lake")))[1].epoch
    for run in pair.runs:
        assert run.error is None or (isinstance(run.error, Fenced) and run.epoch < newest), (run.name, run.error)
    check(pair, tmp_path / "lake")


@pytest.mark.parametrize(("first", "second"), crossed(named(FAILPOINTS), named(LATE[-3:] + LATE[:-3])))
def test_the_owners_run_goes_on_at_a_takeover(tmp_path: Path, monkeypatch: Any, first: str, second: str) -> None:
    """Two servers on one data directory: the run of the one that lost the lease wakes up at a place and does there what
    it was amid, a claim too; the run of the owner reaches the end, and has not failed."""
    broker = Broker.instead(monkeypatch)
    broker.make("shop", PART)
    monkeypatch.setattr(running, "Changefeed", lambda config: config.changefeed)
    monkeypatch.setattr(running.RetryPolicy, "pause_s", lambda *_, **__: 0.01)
    make = partial(lake_feed, tmp_path / "lake")
    pair = Takeover(broker, ServedRun("A", make, first), ServedRun("B", make, second))

    pair.play()

    assert pair.runs[1].ended, pair.runs[1].error
    assert pair.runs[0].error is None, "it stopped, and did not fail"
    check(pair, tmp_path / "lake")


@pytest.mark.parametrize(("first", "second"), crossed(named(CALLED), named(CALLED[-2:] + CALLED[:-2])))
def test_one_of_two_runs_into_a_sink_that_fences_goes_on(
    tmp_path: Path, monkeypatch: Any, first: str, second: str
) -> None:
    """Where the sink lets the last of two runs alone write, that one reaches the end, whichever landing claimed last:
    it takes the landing back."""
    broker = Broker.instead(monkeypatch)
    broker.make("shop", PART)
    monkeypatch.setattr(SharedCheckpoints, "kept", None)
    got: set[int] = set()
    make = partial(callback_feed, tmp_path / "state", got)
    pair = Pair(broker, Run("A", make, first), Run("B", make, second))

    pair.play()

    for run in pair.runs:
        owns = SharedCheckpoints.owner is run.feed.sink._checkpoints
        assert run.error is None or (isinstance(run.error, Fenced) and not owns), (run.name, run.error)
    assert any(run.ended for run in pair.runs)
    assert SharedCheckpoints.kept.position.checkpoint.ts == LAST_TS
    assert got == set(range(3 * PART))


def test_a_run_that_begins_again_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the end of Spark a run begins anew: what it meets before it goes on passes, as at the first start."""
    tries = [SparkEnded("Spark has terminated"), SinkError("no space left on device"), None]

    class Tries:
        """A changefeed whose first try comes to run."""

        def __init__(self, _: object) -> None:
            self.error = tries.pop(0)

        def run(self, on_progress: Callable[[Progress], None], **_: object) -> Progress:
            if isinstance(self.error, SparkEnded):
                on_progress(Progress("running"))
            if self.error is not None:
                raise self.error
            return Progress("running", "finished")

    monkeypatch.setattr(running, "Changefeed", Tries)
    monkeypatch.setattr(running, "RENEW_S", 0.01)
    monkeypatch.setattr(retry_policy, "SLOW_S", 0.01)
    config: Any = SimpleNamespace(stuck_ms=60_000, target_ts=None)
    served = RunningFeed(FeedId("default", "one"), config, HereHost(), lambda: True, on_report=_nobody, on_exit=_nobody)
    served._run()
    assert served._outcome == RunEnd("finished")
    assert not tries
