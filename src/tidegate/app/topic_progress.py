"""What a changefeed into topics reports: one line a second at most, and one when it ends.

    {"state":"normal","checkpoint_ts":…,"frontier_ts":…,"rows":…,"messages":…,"ddls":…,"watermarks":…}

Counts are those of this run; rows that a restart sends again count again.
"""

import time
from collections.abc import Callable
from typing import Final

import msgspec

__all__ = ["TopicMeter", "TopicProgress", "line"]

REPORT_S: Final = 1.0


class TopicProgress(msgspec.Struct, kw_only=True):
    """How far a feed is; `state` is TiCDC's: normal, warning while an error is waited out, finished, stopped."""

    state: str = "normal"
    checkpoint_ts: int = 0
    frontier_ts: int = 0
    resumed: bool = False
    rows: int = 0
    messages: int = 0
    ddls: int = 0
    watermarks: int = 0
    stretches: int = 0
    corrupt: int = 0
    error: str | None = None


class TopicMeter:
    """Counts, and tells `show` when it is time."""

    def __init__(self, show: Callable[[TopicProgress], None], *, every_s: float = REPORT_S) -> None:
        self.progress = TopicProgress()
        self._show, self._every_s = show, every_s
        self._shown_s = 0.0

    def started(self, checkpoint: int, *, resumed: bool) -> None:
        """The feed begins behind `checkpoint`."""
        self.progress.checkpoint_ts, self.progress.resumed = checkpoint, resumed
        self._tell(now=True)

    def frontier(self, ts: int) -> None:
        """The log goes so far."""
        self.progress.frontier_ts = ts

    def wrote(self, rows: int, messages: int, corrupt: int) -> None:
        """A task has written."""
        self.progress.rows += rows
        self.progress.messages += messages
        self.progress.corrupt += corrupt

    def advanced(self, checkpoint: int, *, ddls: int, watermarks: int) -> None:
        """A stretch is done."""
        self.progress.ddls += ddls
        self.progress.watermarks += watermarks
        self.progress.checkpoint_ts = checkpoint
        self.progress.stretches += 1
        self.progress.state, self.progress.error = "normal", None
        self._tell()

    def failing(self, error: str, next_s: float) -> None:
        """An error is waited out."""
        self.progress.state, self.progress.error = "warning", f"{error} (next try in {next_s:.0f} s)"
        self._tell(now=True)

    def done(self, state: str = "stopped") -> TopicProgress:
        """The last report."""
        self.progress.state = state
        self._tell(now=True)
        return self.progress

    def _tell(self, *, now: bool = False) -> None:
        if now or time.monotonic() - self._shown_s >= self._every_s:
            self._shown_s = time.monotonic()
            self._show(self.progress)


def line(progress: TopicProgress) -> str:
    """A report as a line of text."""
    text = (
        f"{progress.state}: checkpoint {progress.checkpoint_ts} of {progress.frontier_ts}, {progress.rows:,} rows in "
    )
    text += f"{progress.messages:,} messages, {progress.ddls:,} DDLs, {progress.watermarks:,} watermarks"
    text += f", {progress.corrupt:,} rows with a wrong checksum" if progress.corrupt else ""
    return text + (f"; {progress.error}" if progress.error else "")
