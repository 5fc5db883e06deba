"""A real feed on a real broker, whose driver, JVM, workers or whole group get SIGKILL at the named places.

One lake, many lives: all places are armed, each once; whichever is reached first pauses, somebody dies, and the next
life begins at once, beside what the signal left over.  Each life has a scratch directory of its own, so each but the
first has lost Spark's checkpoint: the lake alone says where to go on.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

import pytest

from tests.e2e.rig import Topic, differences, feed, running
from tests.kill.conftest import MOMENT
from tests.kill.victims import VICTIMS, Victim, armed_processes, live
from tidegate.testing.failpoint import PLACES

pytestmark = pytest.mark.slow

ONE_OF_EACH_FLOOR = (
    "landing/after-file",
    "landing/after-commit",
    "apply/rows-written",
    "apply/ddl-committed",
    "publish/before-snapshot",
)
BATCH = 1500


def lives(topic: Topic, home: Path, places: Sequence[str], victims: Sequence[Victim], nth: int = 1) -> list[str]:
    """Live and die until the recording is in the lake and equal; who died where."""
    lake, shared = home / "lake", home / "marks"
    words = feed(topic.uri(max_messages_per_batch=BATCH), lake, moment=MOMENT)
    deaths: list[str] = []
    next_victim = cycle(victims)
    with ExitStack() as left_over:
        for life in range(2 * len(places) + 2):
            with armed_processes([f"{place}=pause@{nth}" for place in places], shared):
                run = left_over.enter_context(running([*words], home / f"life-{life}"))
            status, died = live(run, shared, next_victim)
            deaths += died
            if status == 0:
                break
            assert died, run.stderr.read_text()[-2000:]
        else:
            pytest.fail(f"no life came to its end: {deaths}")
    assert differences(lake) == {}
    return deaths


@pytest.mark.parametrize("kind", ["open", pytest.param("canal", marks=pytest.mark.soak)])
def test_one_place_of_each_floor(topics: dict[str, Topic], tmp_path: Path, kind: str) -> None:
    """Whoever dies while landing, applying, changing a schema or publishing, the next life ends equal to TiDB."""
    deaths = lives(topics[kind], tmp_path, ONE_OF_EACH_FLOOR, VICTIMS)

    assert len(deaths) == len(ONE_OF_EACH_FLOOR), deaths


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["open", "canal"])
@pytest.mark.parametrize("victim", VICTIMS, ids=lambda victim: victim.__name__)
@pytest.mark.parametrize("nth", [1, 2])
def test_every_place_every_victim(
    topics: dict[str, Topic], tmp_path: Path, kind: str, victim: Victim, nth: int
) -> None:
    """Every combination of a place and a victim ends equal to TiDB."""
    assert lives(topics[kind], tmp_path, list(PLACES), [victim], nth)


FULL = (
    "landing/before-file=error:ENOSPC",
    "apply/rows-written=error:SinkError",
    "publish/before-snapshot=error:EACCES",
)


def test_disk_full_for_a_while(topics: dict[str, Topic], tmp_path: Path) -> None:
    """Writes that fail for want of space or permission are told and tried again; the feed goes on when they can."""
    words = feed(topics["open"].uri(), tmp_path / "lake", moment=MOMENT)
    with armed_processes(FULL, tmp_path / "marks"), running(words, tmp_path / "life") as run:
        reports = list(run.reports())
        status = run.process.wait()

    assert status == 0, run.stderr.read_text()[-2000:]
    warnings = reports[-1]["warnings"]
    assert len(warnings) == len(FULL)
    assert all("trying again" in warning for warning in warnings)
    for reason in ("No space left", "Permission denied", "apply/rows-written"):
        assert [warning for warning in warnings if reason in warning], warnings
    assert differences(tmp_path / "lake") == {}
