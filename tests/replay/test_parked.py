"""Tables whose DDLs are refused stand still while the others go on, and come back equal, however often they are killed.

The recorded shop is played with `schema-change=exception`, which refuses each DDL that changes columns; once the feed
runs with `evolve`, nothing is refused any more.
"""

import random
from functools import partial
from pathlib import Path

import pytest

from tests.lakes.stages import PROTOCOLS, WORKLOAD, differences, truths
from tests.replay.stage import Crash, Stage, moments, partitions_of
from tidegate.engine.ports import LocalTasks
from tidegate.engine.retention import Limits
from tidegate.lakes.lake import Lake
from tidegate.model.errors import SinkRefused, TableParked
from tidegate.sink.delta.snapshots import ask
from tidegate.sink.delta.upkeep import LakeUpkeep
from tidegate.verify.local import compare_tables

pytestmark = pytest.mark.slow


def stage_on(root: Path, *, refuses: bool, parks: bool = True, recording: str = "open", seed: int = 1) -> Stage:
    """A feed on the recorded shop."""
    policy = "exception" if refuses else "evolve"
    messages = partitions_of(WORKLOAD / recording)
    return Stage(root, PROTOCOLS[recording], messages, seed=seed, parks=parks, schema_change=policy)


def is_parked(lake: Lake, name: str) -> bool:
    """True if the table of that name stands still."""
    tables = {str(table.name): table.incarnation for table in lake.snapshot.state.tables.values()}
    return name in tables and lake.snapshot.group(tables[name]) is not None


def parked_lake(root: Path, **how: str) -> Stage:
    """A lake at the last moment of the recording, with parked tables."""
    stage = stage_on(root, refuses=True, **how)
    for _ in moments(stage, [truths()[-1]]):
        pass
    return stage


@pytest.mark.parametrize("recording", ["open", pytest.param("canal", marks=pytest.mark.soak)])
def test_the_others_go_on(tmp_path: Path, recording: str) -> None:
    """At each moment what is not parked is equal, what is parked says so; all are equal once they are back."""
    stage = stage_on(tmp_path, refuses=True, recording=recording)
    for truth in moments(stage, truths()):
        lake = Lake(str(tmp_path))
        parked = [name for name in truth.tables if is_parked(lake, name)]
        moving = [name for name in lake.tables() if name not in parked]
        reports = [report for report in compare_tables(truth, moving, lake.arrow) if report.name not in parked]
        assert [report.name for report in reports if not report.equal] == [], truth.n
        for name in parked:
            with pytest.raises(TableParked, match="tidegate table resume"):
                lake.arrow(name)
    with pytest.raises(TableParked):
        lake.live().arrow(parked[0])
    assert moving

    again = stage_on(tmp_path, refuses=False, recording=recording)
    ask(again.options, again.sink.snapshot, parked[:1])
    again.resume()
    assert 0 < len(again.sink.parked()) < len(stage.sink.parked())
    again.sink._requests._looked_s = float("-inf")
    ask(again.options, again.sink.snapshot, ())
    again.resume()

    assert again.sink.parked() == ()
    assert differences(Lake(str(tmp_path)), truths()[-1]) == []


def test_a_feed_that_halts_stops_at_the_first(tmp_path: Path) -> None:
    """Without parking the refused DDL ends the feed and names its table."""
    stage = stage_on(tmp_path, refuses=True, parks=False)

    with pytest.raises(SinkRefused) as refused:
        for _ in moments(stage, [truths()[-1]]):
            pass
    assert refused.value.where.table


def test_a_table_that_is_refused_again_stays(tmp_path: Path) -> None:
    """The request is answered by the error of now; the others are as they were."""
    before = parked_lake(tmp_path).sink.parked()

    again = stage_on(tmp_path, refuses=True)
    ask(again.options, again.sink.snapshot, ())
    again.resume()

    after = again.sink.parked()
    assert {(group.incarnations, group.checkpoint) for group in after} == {
        (group.incarnations, group.checkpoint) for group in before
    }
    assert min(group.since_ms for group in after) > max(group.since_ms for group in before)
    again.sink._requests._looked_s = float("-inf")
    assert again.sink.resuming() == []


def test_upkeep_keeps_what_parked_tables_need(tmp_path: Path) -> None:
    """However short things stay: the changes behind a parked table, its schema and its rows."""
    stage = parked_lake(tmp_path)
    limits = Limits(snapshot_ms=0, recover_ms=0, changelog_ms=0, reader_grace_ms=0, orphan_grace_ms=0)
    done = LakeUpkeep(stage.options, limits).run(
        stage.sink.snapshot, stage.log.frontier(), LocalTasks(pickles=False).run
    )
    assert done.kept.snapshots

    again = stage_on(tmp_path, refuses=False)
    ask(again.options, again.sink.snapshot, ())
    again.resume()

    assert differences(Lake(str(tmp_path)), truths()[-1]) == []


def crash(chance: random.Random, likely: float, _place: str) -> None:
    """Die here, by chance."""
    if chance.random() < likely:
        raise Crash


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))])
def test_killed_while_tables_are_parked_and_brought_back(tmp_path: Path, seed: int) -> None:
    """Killed at random places, the tables that were parked are back and equal in the end."""
    chance, last, lives = random.Random(seed), truths()[-1], 0

    for refuses, likely in ((True, 0.1), (False, 0.4)):
        while True:
            lives += 1
            try:
                stage = stage_on(tmp_path, refuses=refuses, seed=seed * 1000 + lives)
                stage.crash = partial(crash, chance, likely)
                if refuses:
                    while stage.sink.snapshot.checkpoint.ts < last.ts:
                        stage.land(chance.choice([300, 3000]))
                        stage.round(last.ts)
                    assert stage.sink.parked()
                elif stage.sink.parked():
                    ask(stage.options, stage.sink.snapshot, ())
                    stage.resume()
                break
            except Crash:
                continue

    assert lives > 4
    assert differences(Lake(str(tmp_path)), last) == []
