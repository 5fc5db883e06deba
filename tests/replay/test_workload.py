"""The recorded shop, in every recording, equals TiDB at every recorded moment, however it is cut and killed."""

import random
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.replay.stage import Crash, Stage, moments, partitions_of
from tidegate.lakes.lake import Lake
from tidegate.sink.delta.columns import stored_schema
from tidegate.verify.local import compare_tables, load_truth

WORKLOAD = Path(__file__).parents[1] / "data" / "workload"
PROTOCOLS = {"open": "open-protocol", "open_table": "open-protocol", "canal": "canal-json", "canal_table": "canal-json"}
TRUTHS = load_truth(WORKLOAD)


def differences(root: Path, truth) -> list[str]:
    lake = Lake(str(root))
    reports = list(compare_tables(truth, lake.tables(), lake.arrow))
    return [f"{report.name}: {report.differences[:2]}" for report in reports if not report.equal]


SLOW, SOAK = pytest.mark.slow, pytest.mark.soak


@pytest.mark.parametrize(
    ("recording", "mapping"),
    [
        pytest.param("open", "auto", marks=SLOW),
        pytest.param("open", "never", marks=SOAK),
        pytest.param("canal", "always", marks=SOAK),
        *(pytest.param(name, "auto", marks=SOAK) for name in ("canal", "open_table", "canal_table")),
    ],
)
def test_equal_at_every_moment(tmp_path, recording, mapping):
    """All tables equal TiDB's at all twelve moments, with replays, repeats and re-sent DDLs in the topic; those without
    column mapping hold as many rows for a reader who knows nothing of it."""
    messages = partitions_of(WORKLOAD / recording)
    stage = Stage(tmp_path, PROTOCOLS[recording], messages, seed=1, column_mapping=mapping)

    for truth in moments(stage, TRUTHS):
        assert differences(tmp_path, truth) == [], truth.n
        lake = Lake(str(tmp_path))
        plain = [name for name in lake.tables() if not stored_schema(lake.stored(name)).mapped]
        assert {"never": plain == lake.tables(), "always": not plain, "auto": bool(plain)}[mapping]
        for name in plain:
            uri, version = lake.location(name)
            assert DeltaTable(uri, version=version).to_pyarrow_table().num_rows == lake.count(name), name


@pytest.mark.parametrize(
    ("recording", "seed"),
    [
        pytest.param("open", 1, marks=SLOW),
        *(pytest.param(name, seed, marks=SOAK) for name, seed in (("canal", 1), ("open", 2), ("open", 3))),
    ],
)
def test_killed_again_and_again(tmp_path, recording, seed):
    """Killed at random places of landing, applying and publishing, the end is the same and nothing is lost."""
    messages = partitions_of(WORKLOAD / recording)
    chance = random.Random(seed)
    lives = 0

    def crash(_place: str) -> None:
        if chance.random() < 0.06:
            raise Crash

    last = TRUTHS[-1]
    while True:
        lives += 1
        stage = Stage(tmp_path, PROTOCOLS[recording], messages, seed=seed * 1000 + lives)
        stage.crash = crash
        try:
            more = True
            while stage.sink.snapshot.checkpoint.ts < last.ts:
                if more:
                    more = stage.land(chance.choice([300, 3000]))
                stage.round(last.ts)
            break
        except Crash:
            continue

    assert lives > 2
    assert differences(tmp_path, last) == []
