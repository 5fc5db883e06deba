"""A directory that was emptied and rewritten is another one, whatever its files are called."""

import logging
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.source.storage.kit import Made, lines_of
from tidegate.changelog import changelog
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.files import State
from tidegate.config.storage import parse_files
from tidegate.engine.frontier import Reached
from tidegate.engine.ports import LocalTasks
from tidegate.model.errors import MadeAnew
from tidegate.source.storage_listing import DIRECTORY, ListedFile, Listing, accepted, check_same, noted

CREATE = "1 CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(20))"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A place with three files that have landed, up to ts 7."""
    made = Made(tmp_path)
    fill(made, 3, first_ts=5)
    assert made.read() == [CREATE, *(f"{5 + n} I t {n} old" for n in range(3))]
    return made


def fill(made: Made, files: int, *, first_ts: int, text: str = "old") -> None:
    made.created()
    for number in range(files):
        made.data(number + 1, f'I,{first_ts + number},{number},"{text}"')
    made.index(files)
    made.checkpoint(first_ts + files - 1)


def again(made: Made, files: int, *, first_ts: int) -> None:
    """The directory is emptied, and a changefeed that begins at another ts writes it."""
    shutil.rmtree(made.root)
    fill(made, files, first_ts=first_ts, text="new")


def way_out(stopped: pytest.ExceptionInfo[MadeAnew]) -> dict[str, Any]:
    """What the address takes, as the error says it."""
    said = str(stopped.value).split("with made-anew=")[1].split(" ")[0]
    return {"made_anew_us": parse_files(f"file:///in?protocol=csv&made-anew={said}").made_anew_us}


@pytest.mark.parametrize("files", [1, 3, 9])
@pytest.mark.parametrize("first_ts", [2, 8, 100])
def test_a_directory_made_anew_stops_the_feed(made: Made, files: int, first_ts: int) -> None:
    """With fewer files, as many, or more, before, at and behind the ts that has landed: at each start, and nothing of
    it lands; its first file on, once the address says so."""
    again(made, files, first_ts=first_ts)

    for _ in range(2):
        with pytest.raises(MadeAnew, match=r"in was emptied and rewritten.* up to ts 7 .*checkpoint-ts=7") as stopped:
            made.landed()

    made.options = way_out(stopped)
    behind = [f"{ts} I t {n} new" for n in range(files) if (ts := first_ts + n) > 7]
    for _ in range(2):
        assert made.read()[: 4 + len(behind)] == [CREATE, *(f"{5 + n} I t {n} old" for n in range(3)), *behind]


def test_a_directory_made_anew_while_its_feed_runs(made: Made) -> None:
    """The next batch stops."""
    source = made.landed()
    again(made, 9, first_ts=100)
    assert not source.landing.land()
    assert isinstance(source.failure(), MadeAnew)


def test_the_ways_out_by_what_was_there(made: Made, tmp_path: Path) -> None:
    """Put back, it goes on; into a fresh target all of the new one lands."""
    shutil.copytree(made.root, tmp_path / "kept")  # with its times
    again(made, 1, first_ts=100)
    fresh = Made(tmp_path / "fresh")
    shutil.copytree(made.root, fresh.root)
    assert fresh.read() == [CREATE, "100 I t 0 new"]
    with pytest.raises(MadeAnew):
        made.landed()

    shutil.rmtree(made.root)
    shutil.move(tmp_path / "kept", made.root)
    made.data(4, 'I,8,3,"old"')
    made.index(4)
    made.checkpoint(8)
    assert made.read()[-1] == "8 I t 3 old"


@pytest.mark.parametrize("starts_again", [True, False])
def test_a_place_without_files_is_not_one_that_was_emptied(tmp_path: Path, *, starts_again: bool) -> None:
    """A changefeed that just began writes `metadata` alone, until its first table has rows."""
    made = Made(tmp_path)
    made.checkpoint(3)
    source = made.landed()
    made.checkpoint(4)
    source.landing.land()
    fill(made, 1, first_ts=5)

    if not starts_again:
        assert source.landing.land()
        assert source.failure() is None
    assert made.read()[-1] == "5 I t 0 old"


def test_files_that_grew_old_are_taken_away(made: Made) -> None:
    """TiCDC's clean-up leaves schema files, and whatever is young: the feed goes on."""
    for number in (1, 2, 3):
        next(made.root.rglob(f"CDC{number:020d}.csv")).unlink()
    made.data(4, 'I,8,3,"old"')
    made.index(4)
    made.checkpoint(8)
    assert made.read()[-1] == "8 I t 3 old"


def test_state_of_an_earlier_release(made: Made, caplog: pytest.LogCaptureFixture) -> None:
    """A changelog without a note goes on, is told once, and knows its place from then on."""
    uri = changelog_uri(made.lake)
    changelog._commit_over(uri, lambda state: msgspec.structs.replace(state, identities={}), (), "OLD RELEASE")
    with caplog.at_level(logging.WARNING):
        for number in (4, 5):
            made.data(number, f'I,{number + 4},{number - 1},"old"')
            made.index(number)
            made.checkpoint(number + 4)
            made.landed()
    assert len([one for one in caplog.records if "from here on" in one.getMessage()]) == 1
    again(made, 9, first_ts=100)
    with pytest.raises(MadeAnew):
        made.landed()


def test_a_checkpoint_that_went_back(made: Made, caplog: pytest.LogCaptureFixture) -> None:
    """The same directory with an older checkpoint is waited for, and that is told once."""
    made.checkpoint(6)
    with caplog.at_level(logging.WARNING):
        source = made.landed()
        source.landing.land()
    assert [one.getMessage() for one in caplog.records] == [
        "in: its checkpoint went back from ts 7 to 6; nothing lands until it reaches that ts again"
    ]
    made.data(4, 'I,8,3,"old"')
    made.index(4)
    made.checkpoint(8)
    source.landing.land()
    source.refresh()
    assert lines_of(source)[-1] == "8 I t 3 old"


def test_a_changelog_that_is_gone(made: Made) -> None:
    """A target that has progress and a new changelog: a place that has files of that time lands anew, one that has not
    stops, until the address says that it is to be read all the same."""
    shutil.rmtree(changelog_uri(made.lake))
    future_ts = 4_000_000_000_000 << 18
    source = made.source()
    source.start(LocalTasks(), future_ts)
    assert source.landing.land()

    shutil.rmtree(changelog_uri(made.lake))
    for _ in range(2):
        source = made.source()
        source.start(LocalTasks(), 6)
        source.landing.land()
        with pytest.raises(MadeAnew, match="the target is at ts 6, but its changelog") as stopped:
            raise source.failure() or AssertionError

    made.options = way_out(stopped)
    source = made.source()
    source.start(LocalTasks(), 6)
    while source.landing.land():
        pass
    source.refresh()
    assert source.failure() is None
    assert lines_of(source)[-1] == "7 I t 2 old"


TIMES = st.lists(st.integers(1, 50), min_size=1, max_size=5)


@given(before=TIMES, now=TIMES)
def test_one_file_that_was_there_is_enough(before: list[int], now: list[int]) -> None:
    """Whatever else changed: a place is another one if, and only if, nothing in it is as old as the newest that was
    read; once it is accepted it is known, and its positions are those of nobody."""
    state = noted(State(positions={"a/b": {0: Reached(4)}}, frontier=9), listing(before))
    anew = min(now) > max(before)
    if not anew:
        check_same(state, listing(now), "in", 0)
        assert accepted(state, max(before)) is state
        return
    with pytest.raises(MadeAnew, match=f"made-anew={min(now)} "):
        check_same(state, listing(now), "in", 0)
    taken = accepted(state, min(now))
    check_same(taken, listing(now), "in", 0)
    assert (taken.positions, taken.frontier) == ({}, 9)
    assert int(noted(taken, listing(now)).identities[DIRECTORY]) == max(now)


def listing(times: list[int]) -> Listing:
    return Listing({"a/b": {n: ListedFile(f"f{n}", 1, "v", us) for n, us in enumerate(times, 1)}})
