"""The change log written as segments, which `tidb:///DIR` reads, and the feed of complete, ordered rows that it needs.

    ChangeLog ──► SpanFeed ──► rows in commit order, complete up to a ts ──► SegmentWriter ──► DIRECTORY/00..0-00..9.seg

`SpanFeed` reads a span of keys across changes of its regions:

    [a ........... d) resolved 90            split at c: the registration ends
    [a ..... c) from 90   [c .. d) from 90   two new ones begin there; rows that they repeat are recognized
         resolved 95           resolved 93
    rows with commit_ts <= 93 are complete and in order; the rest waits

A part of the span keeps its resolved ts when its registration ends.  Rows above the resolved ts of all parts wait in
one dictionary by (commit_ts, start_ts, key), so a row that is received again after a new registration is the same row.

`begin_log` begins the log of a store that has data already: its definitions, and all its rows as inserts of one ts.

Source: TiCDC's kv client (regions to re-subscribe) and sorter (order within a commit).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidegate.kv.keys import table_span
from tidegate.kv.match import Matcher
from tidegate.model.errors import EnvironmentFault
from tidegate.model.kv_change import KvChange, KvEvent, KvOp, LogType, RegionFault, ResolvedSpan
from tidegate.objectstore.store_path import Location
from tidegate.schema.job import JOB_TABLE
from tidegate.schema.stored.history import defined_by
from tidegate.source.tidb_segment import ROWS, SCHEMA, WHOLE, SegmentWriter, encode_segment, in_order, publish
from tidegate_upstream.tidb.change_log import ChangeLog, Registration
from tidegate_upstream.tidb.transaction import Storage


@dataclass(slots=True)
class _Part:
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
        return min(part.resolved_ts for part in self._parts)

    @property
    def initialized(self) -> bool:
        return all(part.matcher.initialized for part in self._parts)

    def poll(self, scan_rows: int = 1024) -> None:
        """Poll for new changes, and register again if a registration ended. Raises HistoryLost, PrewriteNotMatch."""
        parts: list[_Part] = []
        for part in self._parts:
            ended = False
            for event in self._log.poll(part.reader, scan_rows):
                ended = self._apply(part, event)
            parts += self._subscribe(part.start, part.end, part.resolved_ts) if ended else [part]
        self._parts = parts

    def take(self) -> tuple[list[KvChange], int]:
        """Return the rows that became complete since the last call, in order, and the new resolved ts."""
        ts = self.resolved_ts
        ready = [key for key in self._waiting if key[0] <= ts]
        return sorted((self._waiting.pop(key) for key in ready), key=in_order), ts

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


_JOBS: Final = table_span(JOB_TABLE.id)
_RECORD: Final = slice(9, 11)
"""Offset of `_r` in a record key."""
SCAN_ROWS: Final = 4_096
"""Maximal rows of one transaction in the scan of a store, since a reader holds whole transactions."""


class LogWriter:
    """Writes the changes of [start, end) to `directory`, from the end of the last segment, else from `from_ts`.

    Raises HistoryLost if the store has collected the next changes, StoreUnavailable if the disk fails.
    """

    def __init__(self, log: ChangeLog, directory: Path, from_ts: int, *, start: bytes = b"", end: bytes = b"") -> None:
        self.segments = SegmentWriter(directory, from_ts)
        self.log = log
        self._feed = SpanFeed(log, start, end, self.low)

    @property
    def low(self) -> int:
        return self.segments.low

    def write(self, *, empty: bool = False) -> Location | None:
        """Write and return the segment of all that became complete since the last one; None if there is nothing to
        write.

        With `empty` a segment without rows is written too, so that readers see the resolved ts advance.
        """
        self._feed.poll()
        while not self._feed.initialized:
            self._feed.poll()
        self.log.advance()
        self._feed.poll()
        rows, high = self._feed.take()
        if not rows and not (empty and high > self.low):
            return None
        return self.segments.write(rows, high)

    def close(self) -> None:
        """Stop listening, and signal the end of the log to readers."""
        self._feed.close()
        self.segments.close()


def begin_log(storage: Storage, directory: Path) -> int:
    """Begin a change log with the current definitions and rows of a store; return the ts from which a writer continues.

    Raises KeyLocked while a transaction commits, EnvironmentFault while a DDL job runs."""
    ts = storage.oracle.next()
    snapshot = storage.snapshot(ts)
    if next(snapshot.scan(*_JOBS), None) is not None:
        raise EnvironmentFault("a change log cannot begin while a DDL job runs; retry when it has ended")
    schema = [_row(key, value, ts, 1) for key, value in snapshot.scan(*SCHEMA) if defined_by(key)]
    records = ((key, value) for key, value in snapshot.scan(*ROWS) if key[_RECORD] == b"_r")
    source = storage.store.source
    rows = [_row(key, value, ts, 1 + index // SCAN_ROWS, source(key, ts)) for index, (key, value) in enumerate(records)]
    publish(directory / f"{ts - 1:020d}{WHOLE}", encode_segment(ts - 1, ts - 1, schema))
    publish(directory / f"{ts - 1:020d}-{ts:020d}.seg", encode_segment(ts - 1, ts, rows))
    return ts


def _row(key: bytes, value: bytes, ts: int, number: int, source: int = 0) -> KvChange:
    return KvChange(LogType.COMMITTED, key, number, ts, KvOp.PUT, value, None, source)
