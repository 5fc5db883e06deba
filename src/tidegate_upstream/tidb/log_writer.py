"""The change log of the store, written as segments: what `tidb:///DIR` reads.

    ChangeLog ──► SpanFeed ──► rows in commit order, complete up to a ts ──► SegmentWriter ──► DIRECTORY/00..0-00..9.seg

`begin_log` begins one on a store that was there before: its definitions, and all its rows as inserts of one ts.
"""

from pathlib import Path
from typing import Final

from tidegate.kv.table_key import table_span
from tidegate.model.errors import EnvironmentFault
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.schema.job import JOB_TABLE
from tidegate.source.tidb.segment import SegmentWriter, encode_segment, publish
from tidegate.source.tidb.segment_base import ROWS, SCHEMA, WHOLE, defines
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.span_feed import SpanFeed
from tidegate_upstream.tidb.transaction import Storage

_JOBS: Final = table_span(JOB_TABLE.id)
_RECORD: Final = slice(9, 11)
"""Where a key of a table says `_r`."""
SCAN_ROWS: Final = 4_096
"""Rows of one transaction in the scan of a store: a reader holds transactions whole."""


class LogWriter:
    """Writes what a log says of [start, end) to `directory`, from where the last writer stopped, else from `from_ts`.

    Raises HistoryLost when the store has collected what comes next, StoreUnavailable when the disk refuses.
    """

    def __init__(self, log: ChangeLog, directory: Path, from_ts: int, *, start: bytes = b"", end: bytes = b"") -> None:
        self.segments = SegmentWriter(directory, from_ts)
        self.log = log
        self._feed = SpanFeed(log, start, end, self.low)

    @property
    def low(self) -> int:
        """The ts up to which all is written."""
        return self.segments.low

    def write(self, *, empty: bool = False) -> Path | None:
        """Return the segment of all that became complete since the last one; None when there is nothing to write.

        With `empty` a stretch without rows is written too, so that readers see how far it goes.
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
        """Stop listening."""
        self._feed.close()


def begin_log(storage: Storage, directory: Path) -> int:
    """Begin a log at the present of a store: its definitions and all its rows; the ts from which a writer goes on.

    Raises KeyLocked while a transaction is being committed, EnvironmentFault while a DDL job runs."""
    ts = storage.oracle.next()
    snapshot = storage.snapshot(ts)
    if next(snapshot.scan(*_JOBS), None) is not None:
        raise EnvironmentFault("a log cannot begin while a DDL job runs; start again when it is over")
    schema = [_row(key, value, ts, 1) for key, value in snapshot.scan(*SCHEMA) if defines(key)]
    records = ((key, value) for key, value in snapshot.scan(*ROWS) if key[_RECORD] == b"_r")
    source = storage.store.source
    rows = [_row(key, value, ts, 1 + at // SCAN_ROWS, source(key, ts)) for at, (key, value) in enumerate(records)]
    publish(directory / f"{ts - 1:020d}{WHOLE}", encode_segment(ts - 1, ts - 1, schema))
    publish(directory / f"{ts - 1:020d}-{ts:020d}.seg", encode_segment(ts - 1, ts, rows))
    return ts


def _row(key: bytes, value: bytes, ts: int, number: int, source: int = 0) -> KvChange:
    return KvChange(LogType.COMMITTED, key, number, ts, KvOp.PUT, value, None, source)
