"""A feed that crashes at every named place and is started again at once ends as TiDB has it.

    one life:   land a little, round, land a little, ...  ── crash at a place ──►  next life, on the same directory

In `test_one_after_the_other` every place takes its turn within one replay, at a time that the seed decides; the soak
runs a replay of its own for each place, and crashes there each of the first times.
"""

import os
import random
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.replay.stage import Crash, Stage, partitions_of
from tests.replay.test_workload import PROTOCOLS, TRUTHS, WORKLOAD, differences
from tidegate.spark import deltalog
from tidegate.testing.failpoint import PLACES, armed

LAST = TRUTHS[-1]
SEEDS = range(1, 1 + int(os.environ.get("TIDEGATE_KILL_SEEDS", "3")))
RARE = {"apply/exchange-half", "apply/before-trim", "log/before-checkpoint", "log/after-checkpoint"}
"""Places that a replay passes a few times only; they take their first chance."""
TIMES_MAX = 3
BATCH = 300
"""Messages a partition, at most: enough rounds for every place to be passed several times."""


@pytest.fixture(autouse=True)
def _short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are folded often, so that dying there has many chances."""
    monkeypatch.setattr(deltalog, "CHECKPOINT_EVERY", 4)


def live(root: Path, recording: str, messages: dict, seed: int) -> None:
    """One life, from the start to the last moment or a crash."""
    stage = Stage(root, PROTOCOLS[recording], messages, seed=seed)
    more = True
    while stage.sink.snapshot.checkpoint.ts < LAST.ts:
        if more:
            more = stage.land(BATCH)
        stage.round(LAST.ts)


def crash_at(waiting: dict[str, int]) -> dict[str, Callable[[], None]]:
    """A deed for each place: crash when it was passed as often as `waiting` says, and wait no more."""

    def passing(place: str) -> None:
        if place in waiting:
            waiting[place] -= 1
            if waiting[place] <= 0:
                del waiting[place]
                raise Crash(place)

    return {place: (lambda place=place: passing(place)) for place in PLACES}


def lives_until_the_end(root: Path, recording: str, seed: int, waiting: dict[str, int]) -> int:
    """Start again after every crash; the number of lives."""
    messages = partitions_of(WORKLOAD / recording)
    with armed(crash_at(waiting)):
        for life in count(1):
            try:
                live(root, recording, messages, seed * 1000 + life)
            except Crash:
                continue
            return life
    raise AssertionError("count has no end")


@pytest.mark.parametrize(
    ("recording", "seed"),
    [
        *(pytest.param(kind, SEEDS[0], marks=pytest.mark.slow) for kind in ("open", "canal")),
        *(pytest.param(kind, seed, marks=pytest.mark.soak) for kind in PROTOCOLS for seed in SEEDS),
    ],
)
def test_one_after_the_other(tmp_path: Path, recording: str, seed: int) -> None:
    """Every named place is reached by the recording; a crash at each, in one replay, loses and doubles nothing."""
    chance = random.Random(seed)
    waiting = {place: 1 if place in RARE else chance.randint(1, TIMES_MAX) for place in PLACES}

    lives = lives_until_the_end(tmp_path, recording, seed, waiting)

    assert waiting == {}, "places that were not reached"
    assert lives == len(PLACES) + 1
    assert differences(tmp_path, LAST) == []


@pytest.mark.soak
@pytest.mark.parametrize("recording", ["open", "canal"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("times", range(1, 1 + TIMES_MAX))
def test_each_alone(tmp_path: Path, recording: str, place: str, times: int) -> None:
    """A crash at one place, the first times that it is reached, in a replay of its own: the same end."""
    lives_until_the_end(tmp_path, recording, times, {place: times})

    assert differences(tmp_path, LAST) == []


def test_a_shorter_round_after_a_crash(tmp_path: Path) -> None:
    """What is published is one moment of all tables, even if the next life is asked to stop before the crash was."""
    messages = partitions_of(WORKLOAD / "open")
    first = Stage(tmp_path, PROTOCOLS["open"], messages, seed=1)
    while first.land(5000):
        pass
    with armed(crash_at({"round/applied": 1})), pytest.raises(Crash):
        first.round(TRUTHS[5].ts)

    second = Stage(tmp_path, PROTOCOLS["open"], messages, seed=2)

    assert second.round(TRUTHS[3].ts) == TRUTHS[5].ts
    assert differences(tmp_path, TRUTHS[5]) == []
