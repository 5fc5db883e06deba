"""Reading a span of keys, whatever becomes of its regions: rows in commit order, and how far they are complete.

    [a ........... d) resolved 90            split at c: the registration ends
    [a ..... c) from 90   [c .. d) from 90   two new ones begin where it stood; what they repeat is known already
         resolved 95           resolved 93
    rows with commit_ts <= 93 are complete and in order; the rest waits

A part of the span keeps its resolved ts when its registration ends.  Rows above the resolved ts of all parts wait in
one dictionary by (commit_ts, start_ts, key), so a row that comes again after a new registration is the same row.

Source: TiCDC's kv client (regions to re-subscribe) and sorter (order within a commit).
"""

from dataclasses import dataclass

from tidegate.kv.match import Matcher
from tidegate.model.kv_change import KvChange, KvEvent, RegionFault, ResolvedSpan
from tidegate.source.tidb.segment import in_order
from tidegate_upstream.tidb.change_log import ChangeLog, Registration


@dataclass(slots=True)
class _Part:
    """A part [start, end) of the span with its registration."""

    start: bytes
    end: bytes
    resolved_ts: int
    reader: Registration
    matcher: Matcher


class SpanFeed:
    """The rows of [start, end) with commit_ts above `from_ts`. Raises HistoryLost below the GC safe point."""

    def __init__(self, log: ChangeLog, start: bytes, end: bytes, from_ts: int) -> None:
        self._log = log
        self._waiting: dict[tuple[int, int, bytes], KvChange] = {}
        self._parts = self._subscribe(start, end, from_ts)

    @property
    def resolved_ts(self) -> int:
        """Rows at or below it are complete."""
        return min(part.resolved_ts for part in self._parts)

    @property
    def initialized(self) -> bool:
        """Whether every part has heard what was there when it registered."""
        return all(part.matcher.initialized for part in self._parts)

    def poll(self, scan_rows: int = 1024) -> None:
        """Hear what has come, and register anew where a registration ended. Raises HistoryLost, PrewriteNotMatch."""
        parts: list[_Part] = []
        for part in self._parts:
            ended = False
            for event in self._log.poll(part.reader, scan_rows):
                ended = self._apply(part, event)
            parts += self._subscribe(part.start, part.end, part.resolved_ts) if ended else [part]
        self._parts = parts

    def take(self) -> tuple[list[KvChange], int]:
        """Return the rows that became complete since the last call, in order, and the ts up to which they are."""
        ts = self.resolved_ts
        ready = [at for at in self._waiting if at[0] <= ts]
        return sorted((self._waiting.pop(at) for at in ready), key=in_order), ts

    def close(self) -> None:
        """Stop listening."""
        for part in self._parts:
            self._log.deregister(part.reader)

    def _subscribe(self, start: bytes, end: bytes, from_ts: int) -> list[_Part]:
        spans = [(region, region.overlap(start, end)) for region in self._log.regions]
        return [
            _Part(*span, from_ts, self._log.register(region, *span, from_ts), Matcher(from_ts))
            for region, span in spans
            if span
        ]

    def _apply(self, part: _Part, event: KvEvent) -> bool:
        """Whether the registration is over."""
        match event:
            case KvChange():
                for row in part.matcher.apply(event):
                    assert row.commit_ts > part.resolved_ts, (row, part.resolved_ts)
                    self._waiting[row.commit_ts, row.start_ts, row.key] = row
            case ResolvedSpan():
                part.resolved_ts = event.ts
            case RegionFault():
                return True
        return False
