"""Runs that end at a moment to which their source does not come."""

import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.engine.test_chain import Upstream
from tests.lakes.stages import Play, truths
from tests.source.tidb.kit import Broker, Run, feed, target
from tidegate.cli.run import run as command
from tidegate.config.changefeed import Changefeed
from tidegate.engine import loop
from tidegate.engine.progress import Progress
from tidegate.model.tso import compose
from tidegate.source.tidb_segment import SegmentLog
from tidegate_upstream.tidb.log_writer import LogWriter


def now_ts() -> int:
    """The ts of this moment."""
    return compose(time.time_ns() // 1_000_000)


def working(log: Path) -> Upstream:
    """An upstream that has written something."""
    upstream = Upstream(1, log)
    for _ in range(5):
        upstream.work()
    upstream.writer.write(empty=True)
    return upstream


def stopped_by_warning(run: Run) -> None:
    """Stop the run once it warns: nothing else would end it."""
    run.show = lambda progress: run.stop.set() if progress.warnings else None


def test_a_log_whose_writer_has_ended(tmp_path: Path) -> None:
    """All that it wrote is brought, and the run ends and says so; a run that is to stay does not."""
    upstream, broker = working(tmp_path / "log"), Broker(1)
    upstream.writer.close()
    run = feed(tmp_path / "log", target(broker, "open-protocol"), tmp_path / "state")

    done = run.engine.run(until=now_ts(), stop_when_ended=True)

    assert (done.state, run.checkpoint) == ("stopped", upstream.writer.low)
    assert [one for one in done.warnings if f"has ended at ts {upstream.writer.low} (" in one]
    assert broker.messages


@pytest.mark.parametrize("stop_when_ended", [True, False])
def test_a_log_whose_writer_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stop_when_ended: bool) -> None:
    """The run waits, and says for what, how far the log is, and what ends such a run."""
    monkeypatch.setattr(loop, "WAITS_S", 0.0)
    upstream, until = working(tmp_path / "log"), now_ts()
    run = feed(tmp_path / "log", target(Broker(1), "open-protocol"), tmp_path / "state")
    stopped_by_warning(run)

    done = run.engine.run(until=until, stop_when_ended=stop_when_ended)

    (warning,) = done.warnings
    assert f"ends at ts {until} (" in warning
    assert f"is at ts {upstream.writer.low} (" in warning
    assert "--stop-when-idle SECONDS" in warning


def test_a_topic_that_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several partitions the one is named that holds all back; a target that lies ahead is waited for silently."""
    monkeypatch.setattr(loop, "WAITS_S", 0.0)
    play = Play(tmp_path)
    play.land(truths()[0].ts)
    engine, reports = play.stage.engine, list[Progress]()

    def noted(progress: Progress) -> None:
        reports.append(progress)
        if progress.warnings:
            engine.halt.set()

    engine.meter.report = noted
    engine.loop(now_ts(), None)

    (warning,) = reports[-1].warnings
    assert f"is at ts {truths()[0].ts} (" in warning
    assert ", by topic " in warning
    engine.waits_for(now_ts() + (1 << 40))
    assert reports[-1].warnings == (warning,)


def test_marks_of_writers(tmp_path: Path) -> None:
    """A log has ended when the last of its writers has, also one that was killed; one without a mark never says so."""
    upstream, log = working(tmp_path / "log"), SegmentLog(tmp_path / "log")
    assert not log.ended()
    upstream.writer.close()
    assert log.ended()
    again = LogWriter(upstream.writer.log, log.directory, 0)
    assert not log.ended()
    again.write(empty=True)
    assert not log.ended()
    del again  # as the end of its process does
    assert log.ended()
    (log.directory / "writer").unlink()
    assert not log.ended()


@pytest.mark.parametrize(("words", "ends"), [(("--until", "now"), True), (("--until", "2020-01-01"), True),
                                             (("--until", "2100-01-01"), False), ((), False)])  # fmt: skip
def test_which_runs_end_with_their_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], *, ends: bool
) -> None:
    """Those whose end has passed: one that lies ahead may be reached by a writer that is started again."""
    given: dict[str, Any] = {}

    def noted(_: Changefeed, **words: Any) -> Progress:
        given.update(words)
        return Progress("stopped")

    monkeypatch.setattr(Changefeed, "run", noted)
    ends_at = ("--source-uri", f"tidb://{tmp_path}", "--sink-uri", "callback://tests.e2e.collected/into?home=x")
    ran = CliRunner().invoke(command, [*ends_at, "--state-dir", str(tmp_path / "state"), *words])

    assert (ran.exit_code, given["stop_when_ended"]) == (0, ends), ran.output
