"""The live view is TiDB's state at its ts, however far merging lies behind, and reads no more than what is new."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.lakes.stages import Play, differences, truths
from tidegate.changelog.changelog import changelog_uri, replace
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ConfigError, HistoryLost, SinkError
from tidegate.model.tso import MAX_TS

SLOW = pytest.mark.slow
MERGED_EVERY = {"open": 3, "canal": 5, "open_table": 4, "canal_table": 2}


@pytest.mark.parametrize(
    ("recording", "merged_every"),
    [
        pytest.param(name, every, marks=SLOW if name == "open" else pytest.mark.soak)
        for name, every in MERGED_EVERY.items()
    ],
)
def test_live_equals_the_database(tmp_path: Path, recording: str, merged_every: int) -> None:
    """Landed up to a moment, the live view is the database at that moment, whatever DDLs the tail holds."""
    play = Play(tmp_path, recording)
    lake = Lake(str(tmp_path))
    for truth in truths():
        play.land(truth.ts)
        if truth.n % merged_every == 1:
            play.merge(truth.ts)
        with lake.live() as view:
            assert view.ts == truth.ts
            assert differences(view, truth) == [], truth.n


@SLOW
def test_nothing_merged_yet(tmp_path: Path) -> None:
    """Before the first snapshot the live view already shows every table, made from the changelog alone."""
    play = Play(tmp_path)
    play.land(truths()[6].ts)

    with Lake(str(tmp_path)).live() as view:
        assert differences(view, truths()[6]) == []


@SLOW
def test_any_moment_exactly(tmp_path: Path) -> None:
    """`at(ts).live()` is the state at that very ts, though the snapshot before it is older."""
    play = Play(tmp_path)
    for truth in truths():
        play.land(truth.ts)
        if truth.n % 4 == 2:
            play.merge(truth.ts)
    lake = Lake(str(tmp_path))

    for truth in truths():
        with lake.at(truth.ts).live() as view:
            assert differences(view, truth) == [], truth.n
    with pytest.raises(ConfigError, match="has landed up to"):
        lake.at(truths()[-1].ts + (1 << 40)).live()


def test_moments_whose_rows_were_dropped_are_refused(tmp_path: Path) -> None:
    """Once upkeep has dropped rows above a snapshot from the changelog, a moment behind it is refused in words."""
    play = Play(tmp_path)
    for truth in truths()[:2]:
        play.land(truth.ts)
    play.merge(truths()[1].ts)
    changelog = changelog_uri(str(tmp_path))
    assert replace(changelog, (), (), floor=truths()[1].ts)

    with pytest.raises(HistoryLost, match="does not reach back"):
        Lake(str(tmp_path)).at(truths()[0].ts).live()


@SLOW
def test_only_new_files_are_read(tmp_path: Path) -> None:
    """A view opens just the changelog files with changes above the snapshot, and none once all is merged."""
    first, second = truths()[0], truths()[1]
    play = Play(tmp_path)
    play.land(first.ts)
    play.merge(first.ts)
    before = files_above(tmp_path, 0)
    lake = Lake(str(tmp_path))

    merged = lake.live()
    play.land(second.ts)
    view = lake.live()

    assert len(view.files) < len(files_above(tmp_path, 0)), "most of what is merged is left alone"
    assert set(view.files) == files_above(tmp_path, first.ts, second.ts)
    assert set(view.files) - before
    assert lake.live(refresh=False) is view
    assert differences(view, second) == []
    assert differences(merged, first) == [], "a view stays where it was made"
    play.merge(second.ts)
    assert lake.live().files == ()


@SLOW
def test_merged_files_are_not_needed(tmp_path: Path) -> None:
    """With every changelog file at or below the snapshot's ts gone, the live view is the same."""
    first, second = truths()[3], truths()[5]
    play = Play(tmp_path)
    play.land(first.ts)
    play.merge(first.ts)
    play.land(second.ts)
    for name in files_above(tmp_path, 0) - files_above(tmp_path, first.ts):
        (tmp_path / "_tidegate" / "changelog" / name).unlink()

    with Lake(str(tmp_path)).live() as view:
        assert differences(view, second) == []


def files_above(lake: Path, after: int, upto: int = MAX_TS) -> set[str]:
    """The changelog's files of rows that hold a commit_ts in (after, upto]."""
    changelog = lake / "_tidegate" / "changelog"
    found = set()
    for path in changelog.glob("part=rows/*.parquet"):
        values = pq.read_table(path, columns=["commit_ts"]).column("commit_ts").to_pylist()
        if any(after < ts <= upto for ts in values):
            found.add(str(path.relative_to(changelog)))
    return found


@SLOW
def test_reading_leaves_the_lake_alone(tmp_path: Path) -> None:
    """A live view across DDLs copies no stored file, writes nothing into the lake and cleans up after itself."""
    play = Play(tmp_path / "lake")
    play.land(truths()[2].ts)
    play.merge(truths()[2].ts)
    play.land(truths()[5].ts)
    before = sorted(path for path in (tmp_path / "lake").rglob("*") if path.is_file())
    scratch = tmp_path / "scratch"

    with Lake(str(tmp_path / "lake")).live(scratch=str(scratch)) as view:
        assert differences(view, truths()[5]) == []
        assert list(scratch.rglob("*.parquet"))
    assert sorted(path for path in (tmp_path / "lake").rglob("*") if path.is_file()) == before
    assert not list(scratch.iterdir())


@SLOW
def test_removed_files_are_told(tmp_path: Path) -> None:
    """A stored or landed file that somebody removed is an error that says so, not a table with fewer rows."""
    play = Play(tmp_path)
    play.land(truths()[0].ts)
    play.merge(truths()[0].ts)
    play.land(truths()[1].ts)
    lake = Lake(str(tmp_path))
    view = lake.live()

    for path in Path(lake.location("bank.accounts")[0]).glob("*.parquet"):
        path.unlink()
    with pytest.raises(SinkError, match="a data file cannot be read"):
        lake.arrow("bank.accounts")
    for name in view.files:
        (tmp_path / "_tidegate" / "changelog" / name).unlink()
    with pytest.raises(HistoryLost, match="removed meanwhile"):
        view.arrow("shop.customers")
    shutil.rmtree(lake.location("bank.audit")[0])
    with pytest.raises(SinkError, match=r"bank\.audit: its stored rows at .* are missing"):
        lake.arrow("bank.audit")


def test_options_of_the_feed_are_followed(tmp_path: Path) -> None:
    """Filter rules and policies come from the snapshot: the view has no table that the feed would not make."""
    play = Play(tmp_path)
    stage = play.stage
    stage.options = type(stage.options)(
        root=str(tmp_path),
        feed="f",
        time_zone="Asia/Tokyo",
        rules=("shop.*", "bank.accounts"),
        column_mapping="never",
    )
    stage.sink.options = stage.options
    play.land(truths()[0].ts)
    play.merge(truths()[0].ts)

    view = Lake(str(tmp_path)).live()

    assert view.options == stage.options


def test_empty_directory(tmp_path: Path) -> None:
    """Where nothing has landed, a live view says so."""
    with pytest.raises(ConfigError, match="nothing has landed"):
        Lake(str(tmp_path)).live()


def test_unknown_names(tmp_path: Path) -> None:
    """An unknown table or column is answered with those that there are."""
    play = Play(tmp_path)
    play.land(truths()[0].ts)
    view = Lake(str(tmp_path)).live()

    with pytest.raises(ConfigError, match=r"no table bank\.nosuch .* bank\.accounts, bank\.audit"):
        view.arrow("bank.nosuch")
    with pytest.raises(ConfigError, match="has no column nosuch; it has: id, balance"):
        view.arrow("bank.accounts", ["nosuch"])
    assert view.arrow("BANK.Accounts", ["BALANCE", "id"], limit=2).column_names == ["balance", "id"]
    view.close()
