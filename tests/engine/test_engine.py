"""The engine's loop without Spark and broker: units run in this process, the changelog is played from a recording."""

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.lakes.stages import Play, differences, truths
from tidegate.engine import retry_policy
from tidegate.engine.loop import Engine, Meter, Retrier
from tidegate.engine.progress import Progress, line
from tidegate.engine.retry_policy import RetryPolicy
from tidegate.lakes.lake import Lake
from tidegate.model.errors import HistoryLost, SinkError, SourceError
from tidegate.sink.delta.apply import run_unit


def engine_on(root: Path) -> tuple[Play, Engine]:
    """A recording and an engine whose tasks are this process; it lands what is asked for."""
    play = Play(root)
    return play, play.stage.engine


def test_rounds_bring_the_lake_to_the_frontier(tmp_path: Path) -> None:
    """A round takes all that has landed, and is followed by none where nothing has come."""
    play, engine = engine_on(tmp_path)
    play.land(truths()[1].ts)

    assert engine.round(None)
    assert differences(Lake(str(tmp_path)), truths()[1]) == []
    assert not engine.round(None)


@pytest.mark.slow
def test_a_round_shorter_than_one_cut_off_is_not_published(tmp_path: Path) -> None:
    """Where some tables are further than the round's end, it is run but not published, and the next goes there."""
    first, second = truths()[0], truths()[2]
    play, cut_off = engine_on(tmp_path)
    play.land(second.ts)
    cut_off.sink.run = stop_halfway(cut_off)
    with pytest.raises(KeyboardInterrupt):
        cut_off.round(None)

    _, engine = engine_on(tmp_path)

    assert engine.round(first.ts)
    assert engine.floor == second.ts
    assert engine.sink.snapshot.number == -1, "no one ts at which all tables are"
    assert engine.round(first.ts)
    assert engine.sink.snapshot.checkpoint.ts == second.ts
    assert differences(Lake(str(tmp_path)), second) == []


def stop_halfway(engine: Engine) -> Any:
    """A `run` that dies when half of the units are done."""

    def run(_: Any, units: Any, reader: Any) -> Any:
        for unit in units[: len(units) // 2]:
            run_unit(unit, reader, engine.sink.options)
        raise KeyboardInterrupt

    return run


def test_merging_rests_while_little_waits(tmp_path: Path) -> None:
    """After a round the next waits its time, unless the run is to end at a moment or when nothing comes."""
    play, engine = engine_on(tmp_path)
    play.land(truths()[0].ts)
    assert engine.round(None)
    play.land(truths()[1].ts)
    engine.due_s = float("inf")

    assert not engine.round(None)
    assert engine.sink.snapshot.checkpoint.ts == truths()[0].ts
    engine.loop(truths()[1].ts, None)
    assert engine.sink.snapshot.checkpoint.ts == truths()[1].ts


def test_a_run_that_ends_when_idle_does_not_rest(tmp_path: Path) -> None:
    """What waits is merged before a silence can end the run."""
    play, engine = engine_on(tmp_path)
    play.land(truths()[0].ts)
    engine.due_s = float("inf")

    engine.loop(None, 0.0)

    assert engine.sink.snapshot.checkpoint.ts == truths()[0].ts


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that are asked for, as users have them; none is made."""
    asked: list[float] = []
    monkeypatch.setattr(retry_policy, "QUICK_S", 1.0)

    def wait(_: threading.Event, timeout: float | None = None) -> bool:
        asked.append(timeout or 0.0)
        return False

    monkeypatch.setattr(threading.Event, "wait", wait)
    return asked


def failing(times: int, error: Exception) -> Any:
    """Work that fails so often, then gives 42."""
    left = [error] * times

    def work() -> int:
        if left:
            raise left.pop()
        return 42

    return work


def test_what_may_pass_is_waited_out(waited: list[float]) -> None:
    """An error that may pass is tried again, told in every report, and gone from them when the feed gets on."""
    reports: list[Progress] = []
    outage = Retrier(RetryPolicy(), Meter(reports.append), threading.Event())

    assert outage.retrying(failing(7, SourceError("broker away"))) == 42

    assert waited == [1, 2, 4, 8, 16, 10, 20]
    assert reports[-1].state == "warning"
    assert reports[-1].error is not None
    told = reports[-1].error
    assert (told.code, told.message, told.tries, told.next_try_s) == ("CDC:ErrSource", "broker away", 7, 20)
    assert "7 tries: broker away (next try in 20 s)" in line(reports[-1])
    assert reports[-1].warnings == ("CDC:ErrSource: broker away; retrying",)
    outage.recovered()
    assert reports[-1].error is None
    assert reports[-1].state == "normal"
    assert "broker away" not in line(reports[-1])


def test_what_will_not_pass_is_raised_at_once(waited: list[float]) -> None:
    """An error that only a person can mend ends the feed."""
    outage = Retrier(RetryPolicy(), Meter(lambda _: None), threading.Event())

    with pytest.raises(HistoryLost):
        outage.retrying(failing(1, HistoryLost("gone")))
    assert waited == []


def test_one_step_does_not_end_an_outage(waited: list[float]) -> None:
    """Steps that succeed between failures do not start patience anew; only getting on does."""
    outage = Retrier(RetryPolicy(quick=2, stuck_s=0), Meter(lambda _: None), threading.Event())

    assert outage.retrying(failing(1, SinkError("full"))) == 42
    assert outage.retrying(failing(1, SinkError("full"))) == 42
    with pytest.raises(SinkError):
        outage.retrying(failing(1, SinkError("full")))
    assert not outage.stopped
    outage.recovered(after_s=60)
    with pytest.raises(SinkError):
        outage.retrying(failing(1, SinkError("full")))
    outage.recovered()
    assert outage.retrying(failing(1, SinkError("full"))) == 42
    assert waited == [1, 2, 1]


def test_a_stop_ends_the_waiting() -> None:
    """Told to stop, an outage is not waited out any longer."""
    stop = threading.Event()
    stop.set()

    outage = Retrier(RetryPolicy(), Meter(lambda _: None), stop)

    with pytest.raises(SourceError):
        outage.survive(SourceError("broker away"))
    assert outage.stopped
