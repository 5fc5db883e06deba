"""`tidegate lake upkeep`, a real process, that gets SIGKILL at every place of trimming, compacting and deleting.

A lake is prepared in which everything waits to be tidied up: snapshots, landed rows, small files, long logs, and
dropped tables that are struck off the published state but still lie there.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.failpoint import FEED_FAILPOINTS
from tests.kill.published import TRUTHS, WORKLOAD, Undisturbed, Witness, readable
from tests.kill.seeds import chance
from tests.kill.victims import armed_processes
from tests.replay.stage import Stage, partitions_of
from tests.replay.test_workload import differences
from tests.sink.delta.tended import NO_MERCY, Tended
from tidegate.objectstore import deltalog
from tidegate.sink.delta import merge
from tidegate.sink.delta.upkeep import note_limits

pytestmark = pytest.mark.slow

TIDY = (sys.executable, str(Path(__file__).with_name("tidy.py")), "lake", "upkeep")
OF_UPKEEP = tuple(place for place in FEED_FAILPOINTS if place.startswith(("trim/", "compact/", "upkeep/")))
BY_HAND = tuple(place for place in OF_UPKEEP if place != "upkeep/before-adopt")
"""All of upkeep but what the engine does with its result."""
AFTER_DROPS = 9
"""A moment behind most DDLs that drop tables."""


def untidy(lake: Path) -> Stage:
    """A lake of the whole recording; only its dropped tables are struck off."""
    stage = Tended(lake, "open-protocol", partitions_of(WORKLOAD / "open"), seed=1, limits=NO_MERCY)
    while stage.land(500):
        Stage.round(stage, TRUTHS[AFTER_DROPS].ts)
    for _ in range(2):  # the first pass notes since when tables are dropped
        stage.tend()
    for truth in TRUTHS[AFTER_DROPS:]:
        Stage.round(stage, truth.ts)
    return stage


@pytest.mark.more
def test_killed_at_every_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at each of its places, upkeep leaves a lake that reads as before, and the next one finishes its work."""
    monkeypatch.setattr(merge, "SMALL_FILES_MAX", 10**6)
    monkeypatch.setattr(deltalog, "CHECKPOINT_EVERY", 4)
    lake, marks = tmp_path / "lake", tmp_path / "marks"
    stage = untidy(lake)
    witness = Witness(lake, Undisturbed(tmp_path / "undisturbed", "open"))
    assert witness.problems() == []
    note_limits(stage.options, NO_MERCY)
    by_chance, killed = chance("upkeep by hand"), 0
    deeds = [f"{place}=kill@{by_chance.randint(1, 2) if place.endswith('/before-delete') else 1}" for place in BY_HAND]
    with armed_processes(deeds, marks):
        while run_upkeep(lake) != 0:
            killed += 1
            assert readable(lake) == [], f"after {sorted(mark.stem for mark in marks.iterdir())}"

    assert killed == len(BY_HAND), sorted(mark.stem for mark in marks.iterdir())
    assert readable(lake) == []
    assert differences(lake, TRUTHS[-1]) == []


def run_upkeep(lake: Path) -> int:
    ran = subprocess.run([*TIDY, str(lake)], capture_output=True, text=True, check=False)
    assert ran.returncode in {0, -9}, ran.stderr
    return ran.returncode
