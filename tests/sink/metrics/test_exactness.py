"""Whatever dies, and wherever: no change is counted twice, and none is left out."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from tests.contract.test_metrics_sink import RULES, shown, truth
from tests.failpoint import METRICS_FAILPOINTS, armed
from tests.sink.metrics.rules import sink_of
from tests.sink.storage.test_sink import times
from tidegate.model.errors import SinkError
from tidegate.testing.contract import stories
from tidegate.testing.contract.sinks import Died
from tidegate.testing.script import ScriptedSource, run_here

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
FAILPOINTS = [place for place in METRICS_FAILPOINTS if place != "metrics/alert-sent"]


def live(home: Path) -> None:
    """One life of a feed of the shop."""
    story = stories.shop()
    run_here(ScriptedSource(story), sink_of(home, RULES), until=story.ts)


def checkpoint(home: Path) -> int:
    """The ts up to which numbers are saved."""
    return sink_of(home, RULES).recover().checkpoint.ts


@pytest.mark.parametrize("place", FAILPOINTS)
def test_a_crash_at_each_place(tmp_path: Path, place: str) -> None:
    """Dead at each time that a place is reached: the numbers that are saved are at any moment those of the checkpoint,
    and in the end those of all that happened."""
    story = stories.shop()
    for nth in range(1, 40):
        home = tmp_path / str(nth)
        died = True
        with armed({place: times(nth)}), suppress(Died):
            live(home)
            died = False
        if not died:
            break
        assert shown(sink_of(home, RULES)) == truth(story, checkpoint(home))
        live(home)
        assert shown(sink_of(home, RULES)) == truth(story, story.ts)
    assert nth > 3


@pytest.mark.parametrize("place", FAILPOINTS)
def test_an_outage_at_each_place(tmp_path: Path, place: str) -> None:
    """An error that passes is waited out within one run, and nothing is counted twice."""
    story = stories.shop()
    calls = count()

    def away() -> None:
        if next(calls) in {0, 2}:
            raise SinkError("it is lost")

    with armed({place: away}):
        live(tmp_path)
    assert shown(sink_of(tmp_path, RULES)) == truth(story, story.ts)


def test_killed_processes(tmp_path: Path) -> None:
    """Processes that get SIGKILL at one place after the other, and the one after them, come to the numbers of what
    happened."""
    deeds = [f"{place}=kill@2" for place in ("round/planned", "round/applied", *FAILPOINTS)]
    command = [sys.executable, "-m", "tests.sink.metrics.lives", str(tmp_path), *deeds, ""]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run(command, check=True, env=environment, cwd=ROOT, timeout=120, capture_output=True, text=True)

    assert done.stdout.splitlines() == [f"{-signal.SIGKILL} False True"] * len(deeds) + ["0 True True"]
