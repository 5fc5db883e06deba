"""A real feed on a real broker, whose driver, JVM, workers or whole group get SIGKILL at named places: those of a round
here, those around it in test_landing_processes.py, so that two processes of tests share them.

One lake, many lives (lives.py): all places are armed, each once; whichever is reached first pauses, somebody dies, and
the next life begins at once, beside what the signal left over.  Who dies where and at which time follows from the seed.
"""

import json
import os
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.rig import Topic, differences, feed, running
from tests.kill.conftest import MOMENT
from tests.kill.lives import AT_START, IN_A_FEED, OF_A_ROUND, OFTEN, Death, Lives, Paced, each_once
from tests.kill.seeds import SEED, chance
from tests.kill.victims import VICTIMS, Victim, armed_processes, worker

pytestmark = pytest.mark.slow


def test_every_place_of_a_round(bootstrap: str, tmp_path: Path) -> None:
    """Somebody dies at places of planning, applying and publishing, in the soak at each."""
    each_once(bootstrap, tmp_path, chance("every place of a round"), OF_A_ROUND, MOMENT)


DONE = os.environ.get("TIDEGATE_SOAK_LOG", "")
"""A file that remembers what was killed; what it names is not killed again."""
UNTIL_S = time.monotonic() + 60 * float(os.environ.get("TIDEGATE_SOAK_MINUTES", "inf"))
AT_ONCE = 10


class Part(NamedTuple):
    """Some places, whom to kill there, at which time, and the protocol."""

    kind: str
    victim: Victim
    nth: int
    places: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}-{self.victim.__name__}-{self.nth}-{self.places[0].replace('/', '-')}"


PARTS = [
    Part(kind, victim, nth, IN_A_FEED[at : at + AT_ONCE])
    for at in range(0, len(IN_A_FEED), AT_ONCE)
    for nth in (1, 2)
    for kind in ("open", "canal")
    for victim in VICTIMS
]


@pytest.mark.soak
@pytest.mark.parametrize("part", PARTS, ids=str)
def test_every_place_every_victim(bootstrap: str, tmp_path: Path, told: list[str], part: Part) -> None:
    """Every combination of a place, a victim, the first two times and a protocol ends equal to TiDB."""
    done = read_log()
    if str(part) in {one["name"] for one in done}:
        pytest.skip("done before")
    if time.monotonic() > UNTIL_S:
        pytest.skip("the time is over")
    places = [place for place in part.places if not (part.victim is worker and place in AT_START)]
    plan = {place: Death(part.victim, part.nth if place in OFTEN else 1) for place in places}
    lives = Lives(tmp_path, Paced(bootstrap, str(part), part.kind, tmp_path / "lake", last=MOMENT), plan)

    lives.until_the_end()

    assert differences(tmp_path / "lake") == {}
    record = {"name": str(part), "seed": SEED, "deaths": lives.deaths, "left": lives.left(), "lives": lives.lives}
    if DONE:
        with Path(DONE).open("a") as log:
            log.write(json.dumps(record) + "\n")
    told[:] = [summary([*done, record])]


def read_log() -> list[dict]:
    """What earlier sessions did."""
    return [json.loads(line) for line in Path(DONE).read_text().splitlines()] if DONE and Path(DONE).exists() else []


def summary(done: list[dict]) -> str:
    """One line about the soak so far."""
    deaths, lives = (sum(one) for one in zip(*((len(one["deaths"]), one["lives"]) for one in done), strict=True))
    seeds = ", ".join(sorted({str(one["seed"]) for one in done}))
    return f"kill: {len(done)} of {len(PARTS)} parts, {deaths} deaths in {lives} lives, seeds {seeds}"


FULL = (
    "landing/before-file=error:ENOSPC",
    "apply/rows-written=error:SinkError",
    "publish/before-snapshot=error:EACCES",
)


@pytest.mark.more
def test_disk_full_for_a_while(topics: dict[str, Topic], tmp_path: Path) -> None:
    """Writes that fail for want of space or permission are told and tried again; the feed goes on when they can."""
    words = feed(topics["open"].uri(), tmp_path / "lake", moment=MOMENT)
    with armed_processes(FULL, tmp_path / "marks"), running(words, tmp_path / "life") as run:
        reports = list(run.reports())
        status = run.process.wait()

    assert status == 0, run.stderr.read_text()[-2000:]
    warnings = [warning for warning in reports[-1]["warnings"] if "online-schema-change" not in warning]
    assert len(warnings) == len(FULL)
    assert all("retrying" in warning for warning in warnings)
    for reason in ("No space left", "Permission denied", "apply/rows-written"):
        assert [warning for warning in warnings if reason in warning], warnings
    assert differences(tmp_path / "lake") == {}
