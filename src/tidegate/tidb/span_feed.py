"""Reading a span of keys: rows in commit order, and how far they are complete.

    rows with commit_ts <= resolved ts     complete and in order
    rows above it                          wait, by (commit_ts, start_ts, key)

A registration that ends, since the reader was too slow, is followed by one that begins at the resolved ts.  What it
repeats is known already: a row that comes again is the same row.

Source: TiCDC's kv client and sorter (order within a commit).
"""

from typing import TypeAlias

from tidegate.kv.match import Matcher
from tidegate.model.kv_change import Congested, KvChange, KvOp, ResolvedSpan
from tidegate.tidb.change_log import ChangeLog

_Order: TypeAlias = tuple[int, int, int, bytes]


def in_order(row: KvChange) -> _Order:
    """Return rows by commit_ts and start_ts; of one transaction deletes first, updates before inserts, then by key."""
    rank = 0 if row.op is KvOp.DELETE else 1 if row.old_value is not None else 2
    return row.commit_ts, row.start_ts, rank, row.key


class SpanFeed:
    """The rows of [start, end) with commit_ts above `from_ts`. Raises HistoryLost below the GC safe point."""

    def __init__(self, log: ChangeLog, start: bytes, end: bytes, from_ts: int) -> None:
        self._log, self._span = log, (start, end)
        self._waiting: dict[tuple[int, int, bytes], KvChange] = {}
        self.resolved_ts = from_ts
        """Rows at or below it are complete."""
        self._register()

    def _register(self) -> None:
        self._reader = self._log.register(*self._span, self.resolved_ts)
        self._matcher = Matcher(self.resolved_ts)

    @property
    def initialized(self) -> bool:
        """Whether the feed has heard what was there when it registered."""
        return self._matcher.initialized

    def poll(self, scan_rows: int = 1024) -> None:
        """Hear what has come, and register anew where the registration ended. Raises HistoryLost, PrewriteNotMatch."""
        for event in self._log.poll(self._reader, scan_rows):
            match event:
                case KvChange():
                    for row in self._matcher.apply(event):
                        assert row.commit_ts > self.resolved_ts, (row, self.resolved_ts)
                        self._waiting[row.commit_ts, row.start_ts, row.key] = row
                case ResolvedSpan():
                    self.resolved_ts = event.ts
                case Congested():
                    self._register()

    def take(self) -> tuple[list[KvChange], int]:
        """Return the rows that became complete since the last call, in order, and the ts up to which they are."""
        ready = [at for at in self._waiting if at[0] <= self.resolved_ts]
        return sorted((self._waiting.pop(at) for at in ready), key=in_order), self.resolved_ts

    def close(self) -> None:
        """Stop listening."""
        self._log.deregister(self._reader)
