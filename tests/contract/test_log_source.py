"""The change log of a TiDB keeps the contract of sources."""

from pathlib import Path

import pytest

from tests.source.tidb.kit import recorded_log
from tidegate.app.segment_log import SegmentLog
from tidegate.feed.event_filter import EventFilter
from tidegate.feed.filter import TableFilter
from tidegate.feed.ports import Source
from tidegate.source.tidb.changes import MountOptions
from tidegate.source.tidb.source import LogSource
from tidegate.testing.contract.sources import SourceContract

pytestmark = pytest.mark.slow


class TestLog(SourceContract):
    """A recorded log in segments: partitioned tables, and DDLs on them."""

    across_ddls = False
    inclusive = False
    stream = "partition"

    def source(self, home: Path) -> Source:
        """The log of a recorded stream."""
        log = home / "log"
        if not log.exists():
            recorded_log(log, self.stream)
        return self.of(log)

    def of(self, log: Path) -> Source:
        """A log in a directory."""
        return LogSource(
            SegmentLog(log),
            "feed",
            rules=TableFilter.parse(["*.*"]),
            mount=MountOptions(force_replicate=True),
            events=EventFilter(),
            start_ts=None,
        )

    def away(self, home: Path) -> Source:
        """A log that nobody has begun to write."""
        (home / "empty").mkdir()
        return self.of(home / "empty")


class TestTypes(TestLog):
    """Rows of every type."""

    stream = "types"
