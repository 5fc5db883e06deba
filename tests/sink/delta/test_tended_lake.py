"""The recorded shop, tended after every round: everything promised stays readable, everything else goes."""

import json
import random
from pathlib import Path

import pytest

from tests.replay.stage import Crash, moments, partitions_of
from tests.sink.delta.tended import Tended, data_files, differences, published
from tidegate.engine.retention import Limits
from tidegate.lakes.lake import Lake
from tidegate.objectstore import stores
from tidegate.objectstore.deltalog import load
from tidegate.verify.local import load_truth

WORKLOAD = Path(__file__).parents[2] / "data" / "workload"
TRUTHS = load_truth(WORKLOAD)
FOREVER = 10**12


def readable(root: Path) -> dict[int, int]:
    """Checkpoint -> rows of every published snapshot, each table of it read whole."""
    found = {}
    for number in published(root):
        ts = json.loads((root / "_tidegate" / "snapshots" / f"{number:020d}.json").read_text())["checkpoint_ts"]
        lake = Lake(str(root), ts)
        found[ts] = sum(lake.arrow(name).num_rows for name in lake.tables())
    return found


SLOW = pytest.mark.slow


@pytest.mark.more
@pytest.mark.parametrize(
    "snapshot_ms",
    [pytest.param(0, marks=SLOW), *(pytest.param(kept_ms, marks=pytest.mark.soak) for kept_ms in (1_500, FOREVER))],
)
def test_equal_at_every_moment(tmp_path, snapshot_ms):
    """Whatever is forgotten on the way, the newest state is right at every moment and all that is kept is readable."""
    limits = Limits(snapshot_ms, recover_ms=FOREVER, changelog_ms=0, reader_grace_ms=0, orphan_grace_ms=0)
    stage = Tended(tmp_path, "open-protocol", partitions_of(WORKLOAD / "open"), seed=1, limits=limits)
    right = set()

    for truth in moments(stage, TRUTHS):
        assert differences(tmp_path, truth) == [], truth.n
        right.add(truth.ts)

    kept = readable(tmp_path)
    for truth in TRUTHS:
        if truth.ts in kept:
            assert differences(tmp_path, truth, truth.ts) == []
    assert len(kept) == 1 or snapshot_ms
    assert right <= kept.keys() or snapshot_ms < FOREVER


@SLOW
def test_nothing_superfluous_stays(tmp_path):
    """With no mercy, what lies in the lake at the end is the newest version of each published table and nothing else:
    a dropped table goes once a snapshot without it is published."""
    stage = Tended(tmp_path, "open-protocol", partitions_of(WORKLOAD / "open"), seed=2)
    for _ in moments(stage, TRUTHS):
        pass
    stage.round(TRUTHS[-1].ts)
    for _ in range(3):
        stage.tend()
    stage.sink.recover()

    wanted = {
        f"tables/{incarnation}/{file.path}"
        for incarnation, version in {
            **{one: table.version for one, table in stage.sink.snapshot.tables.items()},
            **stage.sink.snapshot.retired,
        }.items()
        if version >= 0
        for file in load(stage.options.table_uri(incarnation), version).files()
    }
    tables = {path for path in data_files(tmp_path) if path.startswith("tables/")}
    assert tables == wanted
    stage.log.refresh()
    assert all(file.max_ts > TRUTHS[-1].ts for file in stage.log.files() if file.part == "rows")
    assert len({path for path in data_files(tmp_path) if "changelog" in path}) == len(stage.log.files())


@SLOW
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3))])
def test_killed_while_deleting(tmp_path, seed, monkeypatch):
    """Killed before any deletion, again and again, the lake stays whole, and tending goes on where it stopped."""
    messages = partitions_of(WORKLOAD / "open")
    chance = random.Random(seed)
    delete = stores.obstore.delete

    def mortal(store, paths) -> None:
        if chance.random() < 0.1:
            raise Crash
        delete(store, paths)

    monkeypatch.setattr(stores.obstore, "delete", mortal)
    limits = Limits(1_000, recover_ms=FOREVER, changelog_ms=0, reader_grace_ms=0, orphan_grace_ms=0)
    last, lives, more = TRUTHS[-1], 0, True
    while True:
        lives += 1
        stage = Tended(tmp_path, "open-protocol", messages, seed=seed * 1000 + lives, limits=limits)
        try:
            while stage.sink.snapshot.checkpoint.ts < last.ts:
                if more:
                    more = stage.land(3000)
                stage.round(last.ts)
            break
        except Crash:
            readable(tmp_path)

    assert lives > 2
    assert differences(tmp_path, last) == []
    readable(tmp_path)
