"""Files that a restarted classic writer writes over, since the index by which it numbers them lags: none of their rows
is lost, though the position of the stream has passed them."""

import os
from pathlib import Path

import pytest

from tests.source.storage.kit import DAY, Made, land, lines_of
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.source import ChangelogSource

CREATE = "1 CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(20))"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A place whose two files have been read to their ends, up to checkpoint 7."""
    place = Made(tmp_path)
    place.created()
    place.data(1, 'I,5,1,"a"')
    place.data(2, 'I,6,2,"b"', 'I,7,3,"c"')
    place.checkpoint(7)
    return place


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
def test_a_file_below_the_position_is_written_over(made: Made, indexed: bool, again: bool) -> None:  # noqa: FBT001
    """Classic: no index could be written, or a stale writer put one back; the next writer begins behind it, and writes
    over files that were read. Their new rows land, also where the reader starts anew."""
    if indexed:
        made.index(2)
    source = made.landed()
    assert lines_of(source) == [CREATE, "5 I t 1 a", "6 I t 2 b", "7 I t 3 c"]
    if indexed:
        made.index(1)
    made.data(2 if indexed else 1, 'I,7,3,"c"', 'I,8,4,"d"')
    made.checkpoint(8)
    if again:
        source = made.landed()
    else:
        land(source)
    assert lines_of(source)[4:] == ["8 I t 4 d"]


def test_rows_of_such_a_file_that_wait(made: Made) -> None:
    """They wait for their checkpoint like any others, whoever reads them then, and land once."""
    made.landed()
    made.data(1, 'I,8,4,"d"', 'I,10,5,"e"')
    for checkpoint in (8, 9, 10, 11):
        made.checkpoint(checkpoint)
        source = made.landed()
    assert lines_of(source)[4:] == ["8 I t 4 d", "10 I t 5 e"]
    made.data(3, 'I,12,6,"f"')
    made.checkpoint(12)
    land(source)
    assert lines_of(source)[4:] == ["8 I t 4 d", "10 I t 5 e", "12 I t 6 f"]


@pytest.mark.parametrize("later", [1, 2])
def test_two_such_files_of_which_one_waits(made: Made, later: int) -> None:
    """What is done of one holds nothing back of the other, whichever was written over first."""
    made.landed()
    made.data(1, 'I,8,4,"d"' if later == 1 else 'I,10,5,"e"')
    made.data(2, 'I,8,4,"d"' if later == 2 else 'I,10,5,"e"')
    now = (made.root / "metadata").stat().st_mtime + 10
    for number in (1, 2):
        os.utime(made.root / f"shop/t/1/{DAY}/CDC{number:020d}.csv", (now + (number == later),) * 2)
    for checkpoint in (9, 10):
        made.checkpoint(checkpoint)
        source = made.landed()
    assert lines_of(source)[4:] == ["8 I t 4 d", "10 I t 5 e"]


def test_such_files_in_pieces(made: Made) -> None:
    """Read in batches that end before the checkpoint, a file that is done counts though another waits."""
    made.batch_bytes = 1
    source = made.landed()
    made.data(1, 'I,8,4,"d"', 'I,10,5,"e"')
    made.data(2, 'I,8,6,"f"')
    made.data(3, 'I,8,7,"g"')
    for checkpoint in (8, 9, 10):
        made.checkpoint(checkpoint)
        land(source)
    assert lines_of(source)[4:] == ["8 I t 4 d", "8 I t 6 f", "8 I t 7 g", "10 I t 5 e"]


def test_files_that_were_read_are_not_read_again(made: Made) -> None:
    """Only what was changed since costs a look: the older files may be spoilt."""
    made.landed()
    for number in (1, 2):
        path = made.root / f"shop/t/1/{DAY}/CDC{number:020d}.csv"
        was = path.stat()
        path.write_bytes(b"spoilt")
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    made.data(3, 'I,8,4,"d"')
    made.checkpoint(8)
    assert made.read()[4:] == ["8 I t 4 d"]


def test_who_reads_the_changelog(made: Made) -> None:
    """A feed out of the changelog is told where each stream stands, and not when its files were changed."""
    made.landed()
    source = ChangelogSource(changelog_uri(made.lake))
    source.refresh()
    assert [(one.partition, one.offset) for one in source.reading().partitions] == [(0, 3)]
