"""The segments of an upstream as the log that a changefeed reads (source/tidb/log.py).

    directory/00..0-00..9.seg  00..9-00..20.seg     ──► parts: footers alone     ──► rows: blocks of some spans

What a footer says never changes, so each is read once a process.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tidegate.kv.number import decode_int
from tidegate.model.kv_change import KvChange
from tidegate.source.tidb.log import LogPart, Span, Stored
from tidegate.tidb.segment import read_footer, read_spans, segments

__all__ = ["SegmentLog"]

_TABLE_KEY = b"t"


@dataclass(frozen=True, slots=True)
class SegmentLog:
    """The log in a directory."""

    directory: Path

    def parts(self, low: int, high: int | None = None) -> Sequence[LogPart]:
        """The segments that meet (low, high]."""
        return [
            _part(path) for below, top, path in segments(self.directory) if top > low and (high is None or below < high)
        ]

    def rows(self, low: int, high: int, spans: Sequence[Span]) -> Iterator[KvChange]:
        """Rows of (low, high] and of the spans, in commit order. Raises HistoryLost, DecodeError."""
        return read_spans(self.directory, low, high, spans)


@lru_cache(maxsize=1 << 16)
def _part(path: Path) -> LogPart:
    footer = read_footer(path)
    of_tables = (block for block in footer.blocks if block.first_key[:1] == _TABLE_KEY)
    stored = tuple(
        Stored(decode_int(block.first_key, 1)[0], block.rows, block.first_ts, block.last_ts) for block in of_tables
    )
    return LogPart(footer.low, footer.high, stored)
