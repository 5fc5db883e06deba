"""A change log as a source, of everything that it has unless a test says otherwise."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import TableFilter
from tidegate.source.tidb_changes import MountOptions
from tidegate.source.tidb_land import LogSource
from tidegate.source.tidb_log import KvLog
from tidegate.source.tidb_segment import SegmentLog

__all__ = ["FORCED", "log_source"]

FORCED = MountOptions(force_replicate=True)


def log_source(
    log: Path | KvLog, *, feed: str = "feed", rules: Sequence[str] = ("*.*",), start_ts: int | None = None, **given: Any
) -> LogSource:
    """A source of some tables of a log."""
    events, mount = given.pop("events", EventFilter()), given.pop("mount", FORCED)
    log = SegmentLog(log) if isinstance(log, Path) else log
    return LogSource(log, feed, rules=TableFilter.parse(rules), mount=mount, events=events, start_ts=start_ts, **given)
