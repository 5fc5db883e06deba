"""What the catalog reads of a lake, and how often."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from tests.lakes.catalog.served import made
from tidegate.lakes.catalog import CatalogStates
from tidegate.sink.delta.snapshots import number_at, publish


def test_a_schema_is_read_once(tmp_path: Path) -> None:
    """Snapshots between two DDLs share a schema, which is read with the first of them alone."""
    feed, states = made(tmp_path), CatalogStates(str(tmp_path))
    newest = feed.sink.snapshot
    states.newest()
    shutil.rmtree(tmp_path / "_tidegate" / "schemas")
    publish(feed.options, dataclasses.replace(newest, number=newest.number + 1))

    assert states.newest().number == newest.number + 1
    with pytest.raises(FileNotFoundError):
        CatalogStates(str(tmp_path)).newest()


def test_a_lake_that_begins_anew(tmp_path: Path) -> None:
    """A lake that was deleted and begins anew has lower numbers, and is seen all the same."""
    snapshots = tmp_path / "_tidegate" / "snapshots"
    made(tmp_path)
    states = CatalogStates(str(tmp_path))
    assert states.newest().number == 2
    for number in (1, 2):
        (snapshots / f"{number:020}.json").unlink()

    assert states.newest().number == 0


def test_a_moment_between_snapshots(tmp_path: Path) -> None:
    """A moment means the newest snapshot not above it; before the first there is none."""
    made(tmp_path)
    states = CatalogStates(str(tmp_path))

    assert [number_at(states.options, ts) for ts in (19, 20, 39, 40, 59, 60, 1000)] == [-1, 0, 0, 1, 1, 2, 2]
