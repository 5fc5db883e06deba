"""A file of a directory that is replaced only while it is the version that its writer knows."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidegate.objectstore.stores import Changed, Versioned, VersionedFile


def test_the_slower_of_two_writers_is_refused(tmp_path: Path) -> None:
    """It learns what is there now; the version that it writes next is that one."""
    file = VersionedFile(str(tmp_path), "a/state.json")
    assert file.read() is None
    first = file.write(b"1")

    with pytest.raises(Changed) as created:
        file.write(b"2")
    second = file.write(b"2", version=first)
    with pytest.raises(Changed, match=r"a/state\.json was replaced by another writer") as replaced:
        file.write(b"3", version=first)

    assert created.value.current == (b"1", first)
    assert replaced.value.current == Versioned(b"2", second) == file.read()


def test_a_repeated_write_is_no_conflict(tmp_path: Path) -> None:
    """A write whose answer was lost is repeated with its old version: the file has its bytes already."""
    file = VersionedFile(str(tmp_path), "state.json")
    first = file.write(b"1", b"0")
    assert file.write(b"10") == first
    second = file.write(b"2", version=first)
    assert file.write(b"2", version=first) == second


def test_a_removed_file_is_not_made_anew(tmp_path: Path) -> None:
    """Whoever replaces a version learns that there is none any more."""
    file = VersionedFile(str(tmp_path), "state.json")
    first = file.write(b"1")
    (tmp_path / "state.json").unlink()
    with pytest.raises(Changed) as removed:
        file.write(b"2", version=first)
    assert removed.value.current is None


def test_one_of_many_wins(tmp_path: Path) -> None:
    """Of writers that replace one version at the same time one succeeds."""
    file = VersionedFile(str(tmp_path), "state.json")
    first = file.write(b"begin")

    def wins(number: int) -> bool:
        try:
            file.write(b"%d" % number, version=first)
        except Changed:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(wins, range(64))) == 1
