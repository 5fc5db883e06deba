"""Every sink keeps the contract of tidegate.testing."""

from pathlib import Path

import pytest

from tests.contract.adapters import Journal, in_words, lake_changes, lake_tables
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.engine.ports import Sink
from tidegate.sink.callback import CallbackSink
from tidegate.sink.delta.options import DeltaOptions, Mode
from tidegate.sink.delta.sink import DeltaSink
from tidegate.testing.contract import ReadBack, SinkContract
from tidegate.testing.script import run_here

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


@pytest.mark.slow
class TestChangelog(TestReplica):
    """A lake of all changes."""

    mode = "changelog"


@pytest.mark.more
@pytest.mark.slow
class TestHistory(TestReplica):
    """A lake of all versions of rows."""

    mode = "history"
