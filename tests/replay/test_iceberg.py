"""The recorded shop as Iceberg tables: each published version, however often the feed is killed."""

import random
from pathlib import Path

import pytest

from tests.readers import Readers
from tests.replay.iceberg import different, rows_of, shown, versions
from tests.replay.stage import Crash, Stage, moments, partitions_of
from tests.sink.delta.tended import Tended
from tidegate.engine.retention import Limits
from tidegate.lakes.lake import Lake
from tidegate.sink.delta.iceberg_projection import metadata_uri, versions_of
from tidegate.verify.local import load_truth

pytestmark = pytest.mark.slow
WORKLOAD = Path(__file__).parents[1] / "data" / "workload"
TRUTHS = load_truth(WORKLOAD)
SOAK = pytest.mark.soak


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake of the whole recording."""
    root = tmp_path_factory.mktemp("lake")
    stage = Stage(root, "open-protocol", partitions_of(WORKLOAD / "open"), seed=1, iceberg=True)
    for _ in moments(stage, TRUTHS):
        pass
    return root


@pytest.mark.parametrize(
    ("recording", "mode"),
    [
        ("open", "replica"),
        *(
            pytest.param(recording, mode, marks=SOAK)
            for recording in ("open", "canal")
            for mode in ("replica", "changelog", "history")
            if (recording, mode) != ("open", "replica")
        ),
    ],
)
def test_every_published_version(tmp_path: Path, readers: Readers, recording: str, mode: str) -> None:
    """PyIceberg sees each published version of each table as the lake does, through all DDLs."""
    protocol = {"open": "open-protocol", "canal": "canal-json"}[recording]
    stage = Stage(tmp_path, protocol, partitions_of(WORKLOAD / recording), seed=1, iceberg=True, mode=mode)

    for _ in moments(stage, TRUTHS):
        pass

    assert len(list(versions(tmp_path))) > 150
    assert different(tmp_path, readers) == []


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=SOAK) for seed in range(2, 52))])
def test_killed_again_and_again(tmp_path: Path, readers: Readers, seed: int) -> None:
    """Killed at random places, with upkeep that has no mercy, the tables are right, and no file is there too many."""
    chance, messages, lives = random.Random(seed), partitions_of(WORKLOAD / "open"), 0

    def crash(_place: str) -> None:
        if chance.random() < 0.06:
            raise Crash

    while True:
        lives += 1
        stage = Tended(tmp_path, "open-protocol", messages, seed=seed * 1000 + lives, iceberg=True)
        stage.crash = crash
        try:
            more = True
            while stage.sink.snapshot.checkpoint.ts < TRUTHS[-1].ts:
                if more:
                    more = stage.land(chance.choice([300, 3000]))
                stage.round(TRUTHS[-1].ts)
            break
        except Crash:
            continue
    stage.crash = lambda _: None
    stage.tend()

    assert lives > 1
    assert different(tmp_path, readers) == []
    for name in Lake(str(tmp_path)).tables():
        uri, version = Lake(str(tmp_path)).location(name)
        paths = {f"metadata/{path.name}" for path in (Path(uri) / "metadata").iterdir()}
        assert min(versions_of(paths)) == version, name
        assert len(paths) <= 3 * len(versions_of(paths)), (name, paths)


@pytest.mark.parametrize(
    "reader", ["duckdb", *(pytest.param(name, marks=pytest.mark.more) for name in ("polars", "spark"))]
)
def test_other_readers(recorded: Path, readers: Readers, reader: str) -> None:
    """Polars, DuckDB and Spark see the newest version of each table as the lake does; Polars and Delta's reader of
    DuckDB see plain tables as Delta has them, too."""
    lake = Lake(str(recorded))
    for name in lake.tables():
        told = rows_of(shown(lake.arrow(name)))
        assert rows_of(shown(readers.table(reader, metadata_uri(*lake.location(name))))) == told, name
        if reader == "duckdb":
            assert rows_of(shown(readers.table("duckdb-delta", lake.location(name)[0]))) == told, name


@pytest.mark.more
def test_what_is_kept_stays_readable(tmp_path: Path, readers: Readers) -> None:
    """Upkeep that keeps some snapshots keeps their Iceberg metadata, and those of no others."""
    limits = Limits(snapshot_ms=10**12, recover_ms=0, changelog_ms=0, reader_grace_ms=0, orphan_grace_ms=0)
    stage = Tended(tmp_path, "open-protocol", partitions_of(WORKLOAD / "open"), seed=3, iceberg=True, limits=limits)
    for _ in moments(stage, TRUTHS):
        pass

    assert len(list(versions(tmp_path))) > 100
    assert different(tmp_path, readers) == []
