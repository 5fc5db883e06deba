"""What a changefeed into topics reports: one line a second at most, and one when it ends.

    {"state":"normal","since":…,"checkpoint_ts":…,"frontier_ts":…,"rows":…,"messages":…,"ddls":…,"watermarks":…}
    {"state":"warning","since":…,..,"error":{"code":…,"message":…,"table":…,"commit_ts":…,"since":…,"next_try_s":…}}

An error that is waited out makes the state `warning` until the checkpoint moves, one that ends the feed `failed`.
Counts are those of this run; rows that a restart sends again count again.
"""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from tidegate.app.feed_error import FeedError
from tidegate.kv.number import decode_int
from tidegate.model.errors import KvDecodeError, TidegateError
from tidegate.schema.stored_snapshot import StoredSnapshot

__all__ = ["TopicMeter", "TopicProgress", "line"]

REPORT_S: Final = 1.0


class Place(msgspec.Struct, frozen=True):
    """Where an error happened, as far as it is known."""

    table: str = ""
    commit_ts: int = 0


class TopicProgress(msgspec.Struct, kw_only=True):
    """How far a feed is; `state` is TiCDC's: normal, warning, failed, stopped, finished, since a time in UTC."""

    state: str = "normal"
    since: str = ""
    checkpoint_ts: int = 0
    frontier_ts: int = 0
    resumed: bool = False
    rows: int = 0
    messages: int = 0
    ddls: int = 0
    watermarks: int = 0
    stretches: int = 0
    corrupt: int = 0
    error: FeedError | None = None


class TopicMeter:
    """Counts, and tells `show` when it is time."""

    def __init__(self, show: Callable[[TopicProgress], None], *, every_s: float = REPORT_S) -> None:
        self.progress = TopicProgress(since=_now())
        self.keep: Callable[[TopicProgress], None] = lambda _: None
        """Takes every report as well, before it is shown: a file."""
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
        self.progress.error = None
        self._tell(now=self._enter("normal"))

    def calm(self) -> None:
        """Nothing is in the way, and there is nothing to do."""
        if self.progress.error is not None:
            self.progress.error = None
            self._tell(now=self._enter("normal"))

    def told(self) -> tuple[int, int]:
        """Rows and DDLs so far; while they stand still, nothing has come but the time of the log."""
        return self.progress.rows, self.progress.ddls

    def behind(self) -> bool:
        """Whether the log is further than the checkpoint."""
        return self.progress.checkpoint_ts < self.progress.frontier_ts

    def failing(self, error: TidegateError, place: Place, next_s: float | None) -> None:
        """An error is waited out for so long; None: it ends the feed."""
        before = self.progress.error
        self.progress.error = FeedError(
            code=error.code,
            message=str(error),
            since=before.since if before else _now(),
            table=place.table,
            commit_ts=place.commit_ts,
            tries=before.tries + 1 if before else 1,
            next_try_s=next_s,
        )
        self._enter("failed" if next_s is None else "warning")
        self._tell(now=True)

    def done(self, state: str = "stopped") -> TopicProgress:
        """The last report."""
        self._enter(state)
        self._tell(now=True)
        return self.progress

    def _enter(self, state: str) -> bool:
        """Whether the state is another one now."""
        if state == self.progress.state:
            return False
        self.progress.state, self.progress.since = state, _now()
        return True

    def _tell(self, *, now: bool = False) -> None:
        if now or time.monotonic() - self._shown_s >= self._every_s:
            self._shown_s = time.monotonic()
            self.keep(self.progress)
            self._show(self.progress)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def line(progress: TopicProgress) -> str:
    """A report as a line of text."""
    text = (
        f"{progress.state}: checkpoint {progress.checkpoint_ts} of {progress.frontier_ts}, {progress.rows:,} rows in "
    )
    text += f"{progress.messages:,} messages, {progress.ddls:,} DDLs, {progress.watermarks:,} watermarks"
    text += f", {progress.corrupt:,} rows with a wrong checksum" if progress.corrupt else ""
    return text + (f"; {progress.error}" if progress.error else "")


_AT: Final = re.compile(r"(\S+\.\S+?),? at commit_ts (\d+)")
_TS: Final = re.compile(r"commit_ts (\d+)")
_KEY: Final = re.compile(r"\bkey ([0-9a-f]{22,})\b")
_TABLE_PREFIX: Final = b"t"


def place_of(error: TidegateError, snapshot: StoredSnapshot) -> Place:
    """The table and timestamp that an error names, or whose key it shows."""
    text = str(error)
    found, ts = _AT.search(text), _TS.search(text)
    if found is not None:
        return Place(found[1].strip("'\",:"), int(found[2]))
    return Place(_table_of_key(error, text, snapshot), int(ts[1]) if ts else 0)


def _table_of_key(error: TidegateError, text: str, snapshot: StoredSnapshot) -> str:
    shown = _KEY.search(text)
    key = error.key if isinstance(error, KvDecodeError) else bytes.fromhex(shown[1]) if shown else b""
    if not key.startswith(_TABLE_PREFIX) or len(key) < 9:
        return ""
    version = snapshot.table_of(decode_int(key, 1)[0])
    return "" if version is None else f"{version.schema}.{version.stored.name.original}"
