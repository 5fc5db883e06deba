"""Every sink keeps the contract of tidegate.testing."""

from pathlib import Path
from typing import Literal

import pytest

from tests.contract.adapters import Journal, in_words, lake_changes, lake_tables
from tidegate import lake
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.engine.ports import Sink
from tidegate.sink.callback import CallbackSink
from tidegate.sink.delta.options import DeltaOptions, Mode
from tidegate.sink.delta.sink import DeltaSink
from tidegate.testing.contract import ReadBack, SinkContract, stories
from tidegate.testing.script import ScriptedSource, run_here

pytestmark = pytest.mark.slow


class TestCallback(SinkContract):
    """A Python function."""

    run = staticmethod(run_here)
    poison = ("note", "poison")

    def sink(self, home: Path) -> Sink:
        """A callback that writes a file."""
        callback = Journal(home / "journal", "poison").callback()
        return CallbackSink(callback, DirectoryCheckpoints(home, "feed"))

    def read(self, home: Path) -> ReadBack:
        """The file."""
        return ReadBack(log={"journal": Journal(home / "journal", "").read()})


class TestReplica(SinkContract):
    """A lake of tables."""

    run = staticmethod(run_here)
    guarantee = "exactly once"
    refuses = ("unreadable",)
    poison = ("taken", "0000-00-00 00:00:00")
    whole_transactions = True
    shown = staticmethod(in_words)
    mode: Mode = "replica"

    def sink(self, home: Path) -> Sink:
        """A lake whose progress lies in it."""
        lake = str(home / "lake")
        return DeltaSink(DeltaOptions(root=lake, feed="feed", mode=self.mode, zero_date="error", worker_count=1000))

    def read(self, home: Path) -> ReadBack:
        """Its newest snapshot."""
        return ReadBack(lake_tables(home / "lake"), changes=lake_changes(home / "lake", "shop.accounts"))


@pytest.mark.parametrize("publish", ["together", "each"])
def test_snapshots_at_ddls(tmp_path: Path, publish: Literal["together", "each"]) -> None:
    """With `publish=each` a lake has a snapshot as of every DDL; a lake at a moment is the last one before it."""
    story, root = stories.tenants(), str(tmp_path / "lake")
    run_here(ScriptedSource(story), DeltaSink(DeltaOptions(root=root, feed="feed", publish=publish)), until=story.ts)
    ddls = [ddl.commit_ts or 0 for ddl in story.ddls(story.ts)]

    snapshots = [*ddls, story.ts] if publish == "each" else story.marks
    assert [each.checkpoint_ts for each in lake(root).history()] == snapshots
    rename, at = ddls[-4], lake(root).at(ddls[-4])
    assert at.checkpoint_ts == (rename if publish == "each" else story.marks[0])
    assert ("shop.t3" in at.tables()) is (publish == "each")


@pytest.mark.slow
class TestChangelog(TestReplica):
    """A lake of all changes."""

    mode = "changelog"


@pytest.mark.more
@pytest.mark.slow
class TestHistory(TestReplica):
    """A lake of all versions of rows."""

    mode = "history"
