"""A feed that crashes at every named place and is started again at once ends as TiDB has it.

    one life:   land a little, round, tend, land a little, ...  ── crash at a place ──►  next life, same directory

In `test_one_after_the_other` every place takes its turn within one replay, at a time that the seed decides; the soak
runs a replay of its own for each place, and crashes there each of the first times.  After every crash all snapshots
that were published since the one before are compared with what they have to be.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from tests.failpoint import FEED_FAILPOINTS, armed
from tests.kill.published import PROTOCOLS, TRUTHS, WORKLOAD, Undisturbed, Witness, readable
from tests.kill.seeds import chance
from tests.replay.small_topics import SWAPPED, swapped
from tests.replay.stage import Crash, Stage, partitions_of
from tests.replay.test_workload import differences
from tests.sink.delta.iceberg.names import shown
from tests.sink.delta.tended import Tended
from tidegate.changelog import changelog
from tidegate.engine.retention import Limits
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ConfigError
from tidegate.objectstore import deltalog
from tidegate.sink.delta import merge, upkeep
from tidegate.sink.delta.iceberg_catalogs import EmbeddedCatalog, named
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import latest

LAST = TRUTHS[-1]
NUMBERS = range(1, 1 + int(os.environ.get("TIDEGATE_KILL_SEEDS", "3")))
IN_TEST = {("open", 1)}
RARE = {
    *("apply/exchange-half", "apply/before-trim", "log/before-checkpoint", "log/after-checkpoint"),
    *("compact/before-commit", "compact/after-commit", "upkeep/table-half", "upkeep/before-cut"),
}
"""Places that a replay passes a few times only; they take their first chance."""
TIMES_MAX = 3
BATCHES_MIN = 20
"""How often a replay lands at least, so that every place is passed several times."""
LOOK_EVERY = 4
"""Rounds after which the witness looks at what was published; it also does after every crash."""
SHORT = Limits(snapshot_ms=300, recover_ms=0, changelog_ms=0, reader_grace_ms=0, orphan_grace_ms=0)
"""Snapshots live for a few rounds, all else only as long as a snapshot needs it."""


@pytest.fixture(autouse=True)
def _short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs and small files are folded often, so that dying there has many chances."""
    monkeypatch.setattr(deltalog, "CHECKPOINT_EVERY", 4)
    monkeypatch.setattr(merge, "SMALL_FILES_MAX", 10**6)  # merges leave all of them to the upkeep
    monkeypatch.setattr(upkeep, "SMALL_FILES_MAX", 1)
    monkeypatch.setattr(upkeep, "COMPACTIONS_MAX", 100)
    monkeypatch.setattr(changelog, "SMALL_FILES_MAX", 2)


def live(root: Path, recording: str, messages: dict, seed: int, look: Callable[[], None]) -> None:
    """One life, from the start to the last moment or a crash."""
    catalog = EmbeddedCatalog(DeltaOptions(root=str(root), feed="f"))
    stage = Tended(root, PROTOCOLS[recording], messages, seed=seed, limits=SHORT, iceberg=True, catalogs=[catalog])
    stage.sink.upkeep(stage.engine.tasks, None, lambda: False)
    batch = max(map(len, messages.values())) // BATCHES_MIN
    more, rounds = True, count(1)
    while stage.sink.snapshot.checkpoint.ts < LAST.ts:
        if more:
            more = stage.land(batch)
        stage.round(LAST.ts)
        if next(rounds) % LOOK_EVERY == 0:
            look()
    time.sleep(SHORT.snapshot_ms / 1000)
    for _ in range(TIMES_MAX):
        stage.tend()


def crash_at(waiting: dict[str, int]) -> dict[str, Callable[[], None]]:
    """A deed for each place: crash when it was passed as often as `waiting` says, and wait no more."""

    def passing(place: str) -> None:
        if place in waiting:
            waiting[place] -= 1
            if waiting[place] <= 0:
                del waiting[place]
                raise Crash(place)

    return {place: (lambda place=place: passing(place)) for place in FEED_FAILPOINTS}


def lives_until_the_end(home: Path, recording: str, seed: int, waiting: dict[str, int]) -> int:
    """Start again after every crash; the number of lives. Every snapshot ever found must be right."""
    messages, lake = partitions_of(WORKLOAD / recording), home / "lake"
    witness = Witness(lake, Undisturbed(home / "undisturbed", recording))

    def look() -> None:
        assert witness.problems() == [], f"in life {life}"

    for life in count(1):
        crashed = None
        with armed(crash_at(waiting)):
            try:
                live(lake, recording, messages, seed * 1000 + life, look)
            except Crash as crash:
                crashed = crash
        assert witness.problems() == [], f"after {crashed or 'the end'} in life {life}"
        if crashed is None:
            break
    assert readable(lake) == []
    options = DeltaOptions(root=str(lake), feed="f")
    assert shown(lake) == named(options, latest(options))
    assert differences(lake, LAST) == []
    assert witness.by_replay
    return life


@pytest.mark.parametrize(
    ("recording", "number"),
    [
        pytest.param(kind, number, marks=pytest.mark.slow if (kind, number) in IN_TEST else pytest.mark.soak)
        for kind in PROTOCOLS
        for number in NUMBERS
    ],
)
def test_one_after_the_other(tmp_path: Path, recording: str, number: int) -> None:
    """Every named place is reached by the recording; a crash at each, in one replay, loses and doubles nothing."""
    by_chance = chance("places", recording, number)
    waiting = {place: 1 if place in RARE else by_chance.randint(1, TIMES_MAX) for place in FEED_FAILPOINTS}

    lives = lives_until_the_end(tmp_path, recording, by_chance.randint(1, 10**6), waiting)

    assert waiting == {}, "places that were not reached"
    assert lives == len(FEED_FAILPOINTS) + 1


@pytest.mark.soak
@pytest.mark.parametrize("recording", ["open", "canal"])
@pytest.mark.parametrize("place", FEED_FAILPOINTS)
@pytest.mark.parametrize("times", range(1, 1 + TIMES_MAX))
def test_each_alone(tmp_path: Path, recording: str, place: str, times: int) -> None:
    """A crash at one place, the first times that it is reached, in a replay of its own: the same end."""
    lives_until_the_end(tmp_path, recording, times, {place: times})


@pytest.mark.more
@pytest.mark.parametrize(
    "protocol",
    [pytest.param("open-protocol", marks=pytest.mark.slow), pytest.param("canal-json", marks=pytest.mark.soak)],
)
def test_tables_change_places(tmp_path: Path, protocol: str) -> None:
    """A RENAME in a circle is one step: wherever the feed dies around it, each snapshot has both tables before it or
    both behind it."""
    messages = {0: swapped(protocol)}
    last = 9 + len(SWAPPED)

    def live(root: Path, at_most: int = 2) -> None:
        stage = Stage(root, protocol, messages)
        for ts in range(10, last + 1):
            stage.land(at_most)
            stage.round(ts)
        while stage.land(at_most):
            pass
        stage.round(last)

    def held(root: Path) -> dict[int, list[list[object]]]:
        """The tables of every published snapshot, by its ts."""
        shown = {}
        for ts in range(10, last + 1):
            with suppress(ConfigError):  # nothing is published so early
                lake = Lake(str(root)).at(ts)
                shown[lake.checkpoint_ts] = [[name, *lake.arrow(name).to_pylist()] for name in lake.tables()]
        return shown

    live(tmp_path / "calm", len(messages[0]))
    calm = held(tmp_path / "calm")
    assert [*calm] == [*range(10, last + 1)]
    by_chance, reached = chance("a circle", protocol), set()
    for place in FEED_FAILPOINTS:
        root, waiting = tmp_path / place, {place: by_chance.randint(1, TIMES_MAX)}
        with armed(crash_at(waiting)), suppress(Crash):
            live(root)
        if waiting:
            continue
        reached.add(place)
        crashed = held(root)
        assert crashed == {ts: calm[ts] for ts in crashed}, place
        live(root)
        ended = held(root)
        assert ended == {ts: calm[ts] for ts in {*ended, last}}, place
    assert {"round/applied", "apply/rows-committed", "publish/before-snapshot", "landing/after-commit"} <= reached


@pytest.mark.slow
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
