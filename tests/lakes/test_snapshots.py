"""Snapshots: all tables of one ts, with the schema of that ts, found by any moment."""

import shutil
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.lakes.stages import Play, differences, truths
from tidegate.lakes.lake import Lake, LakeStates, moment_ts
from tidegate.model.errors import ConfigError
from tidegate.model.tso import compose, to_datetime
from tidegate.sink.delta.options import DeltaOptions

MERGED = (1, 3, 6, 9, 12)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a snapshot at each of the moments MERGED."""
    where = tmp_path_factory.mktemp("lake")
    play = Play(where, "open")
    for truth in truths():
        if truth.n in MERGED:
            play.land(truth.ts)
            play.merge(truth.ts)
    return where


@pytest.mark.slow
def test_every_snapshot_has_its_own_schema(root: Path) -> None:
    """At the ts of each snapshot, tables, columns and rows are those of the database at that ts."""
    lake = Lake(str(root))

    for truth in truths():
        if truth.n in MERGED:
            assert lake.at(truth.ts).checkpoint_ts == truth.ts
            assert differences(lake.at(truth.ts), truth) == [], truth.n


@pytest.mark.slow
def test_between_snapshots(root: Path) -> None:
    """A moment between two snapshots means the earlier one, and one behind the last means the last."""
    lake = Lake(str(root))
    ts = {truth.n: truth.ts for truth in truths()}

    assert lake.at(ts[3] - 1).checkpoint_ts == ts[1]
    assert lake.at(ts[5]).checkpoint_ts == ts[3]
    assert lake.at(to_datetime(ts[9]) + timedelta(days=1)).checkpoint_ts == ts[12]
    assert lake.at("latest").checkpoint_ts == lake.checkpoint_ts == ts[12]
    with pytest.raises(ConfigError, match="no published snapshot at or before"):
        _ = lake.at(ts[1] - 1).snapshot


@pytest.mark.slow
def test_history(root: Path) -> None:
    """History names each snapshot once, with the tables that it changed and those that are gone."""
    told = Lake(str(root)).history()

    assert [one.checkpoint_ts for one in told] == [truths()[n - 1].ts for n in MERGED]
    assert [one.number for one in told] == list(range(len(MERGED)))
    assert [one.tables for one in told] == [len(truths()[n - 1].tables) for n in MERGED]
    for before, after, one in zip(MERGED, MERGED[1:], told[1:], strict=False):
        old, new = (set(truths()[n - 1].tables) for n in (before, after))
        assert set(one.gone) == old - new
        assert set(one.changed) >= new - old
    assert Lake(str(root)).at(truths()[5].ts).history() == told[:3]
    assert Lake(str(root)).at(truths()[5].ts).history(2) == told[1:3]
    assert Lake(str(root)).history(2) == told[-2:]


@pytest.mark.slow
def test_a_forgotten_snapshot(root: Path, tmp_path: Path) -> None:
    """Once maintenance has forgotten a snapshot, the next one has its changes, also for who had read both."""
    control = shutil.copytree(root / "_tidegate", tmp_path / "_tidegate")
    options = DeltaOptions(root=str(tmp_path), feed="")
    states = LakeStates(options)
    before = states.changes()
    (control / "forgotten").mkdir()
    gone = control / "snapshots" / f"{2:020}.json"
    gone.rename(control / "forgotten" / gone.name)

    now = states.changes()
    assert now == LakeStates(options).changes()
    assert [one.number for one in now] == [0, 1, 3, 4]
    assert now[2] != before[3]


@pytest.mark.slow
def test_columns_and_limit(root: Path) -> None:
    """Columns are chosen without regard to case, in the order asked for; a limit bounds the rows."""
    lake = Lake(str(root))

    some = lake.arrow("bank.accounts", ["BALANCE", "id"], limit=3)

    assert some.column_names == ["balance", "id"]
    assert some.num_rows == 3
    assert lake.count("bank.accounts") == lake.arrow("bank.accounts").num_rows


@pytest.mark.parametrize(
    ("moment", "ts"),
    [
        ("latest", None),
        (470607233675427842, 470607233675427842),
        ("470607233675427842", 470607233675427842),
        (datetime(2026, 11, 21, 1, 22, 7, 485999), compose(1795224127485)),  # noqa: DTZ001  without a zone: UTC
        (datetime(2026, 11, 21, 1, 22, 7, 485000, UTC), compose(1795224127485)),
        (datetime(2026, 11, 21, 3, 22, 7, 485000, timezone(timedelta(hours=2))), compose(1795224127485)),
        ("2026-11-21T01:22:07.485Z", compose(1795224127485)),
        ("2026-11-21 01:22:07.485", compose(1795224127485)),
    ],
)
def test_moments(moment: int | str | datetime, ts: int | None) -> None:
    """A TSO, a datetime and their texts mean the same; without a zone a time is UTC, below milliseconds it is cut."""
    assert moment_ts(moment) == ts


@pytest.mark.parametrize("moment", [-1, 1 << 63, "yesterday", datetime(1969, 1, 1, tzinfo=UTC)])
def test_no_moments(moment: int | str | datetime) -> None:
    """What is no moment is refused."""
    with pytest.raises(ConfigError):
        moment_ts(moment)
