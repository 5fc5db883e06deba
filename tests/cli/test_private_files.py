"""What a feed and an upstream keep is for their account alone."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.config.status import LAKE_FILE, StatusFile
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.engine.plan import Checkpoint
from tidegate.engine.ports import Saved, SinkPosition
from tidegate.engine.progress import Progress
from tidegate.schema.state import SchemaState
from tidegate.source.tidb_segment import publish, put_safe_point
from tidegate_upstream.tidb.engine import ColumnFamily, SqliteEngine


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """What is not asked for is readable by everybody."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(home: Path) -> dict[str, int]:
    """The modes of a directory and of all that lies in it."""
    return {str(path.relative_to(home.parent)): stat.S_IMODE(path.stat().st_mode) for path in (home, *home.rglob("*"))}


def is_private(home: Path) -> bool:
    """Whether nobody else can look into it or at its files."""
    found = modes(home)
    files = {name: mode for name, mode in found.items() if (home.parent / name).is_file()}
    return bool(files) and found[home.name] == 0o700 and set(files.values()) == {0o600}


def test_checkpoints_and_status(tmp_path: Path) -> None:
    """A state directory, its lock, checkpoint, schema and status."""
    home = tmp_path / "state"
    kept = DirectoryCheckpoints(home, "feed")
    with kept.run_lock():
        kept.save(Saved(SinkPosition(Checkpoint(7), SchemaState()), {}))
        StatusFile(str(home), "feed", "feed", source="s", sink="t").save(Progress(phase="running"))
        put_safe_point(home, "feed.x", 7, 1)
    assert len(modes(home)) >= 5
    assert is_private(home)
    assert modes(home)["state/feeds"] == 0o700


def test_the_state_of_a_lake_is_read_by_its_readers(tmp_path: Path) -> None:
    """Who may read a lake may see how far its feed is."""
    home = tmp_path / "_tidegate"
    StatusFile(str(home), LAKE_FILE, "feed", source="s", sink="t").save(Progress(phase="running"))
    assert sorted(modes(home).values()) == [0o644, 0o755]


def test_the_store_and_the_change_log(tmp_path: Path) -> None:
    """An upstream's rows, in its store and in its change log."""
    engine = SqliteEngine(tmp_path / "store")
    engine.write([(next(iter(ColumnFamily)), b"k", b"v")])
    assert len(modes(tmp_path / "store")) >= 3
    assert is_private(tmp_path / "store")
    engine.close()
    publish(tmp_path / "log" / "a.seg", b"rows")
    assert is_private(tmp_path / "log")
