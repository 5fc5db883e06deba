"""The segments of an upstream as the log that a changefeed reads (source/tidb/log.py).

    directory/00..9.base  00..9-00..20.seg  ...     ──► parts: footers alone     ──► rows: blocks of some spans
              feeds/shop.1f0c….json                 who needs it, and from where (safe_points.py)

What a footer says never changes, so each is read once a process.

The tables of a moment as the DDLs that make them: what a lake is told that begins later than its upstream.

    snapshot ──► CREATE DATABASE `shop` ..., CREATE TABLE `orders` (...)        all with the ts of that moment

The statements are those of SHOW CREATE; they read back as the same definitions.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tidegate.engine.filter import SYSTEM_SCHEMAS
from tidegate.model.errors import HistoryLost
from tidegate.model.event import Ddl
from tidegate.model.kv_change import KvChange
from tidegate.model.mysql import ActionType
from tidegate.model.name import lowered
from tidegate.mysql.encoding import decode_int
from tidegate.schema.stored.create import render_create_schema, render_create_table
from tidegate.schema.stored.snapshot import StoredSnapshot
from tidegate.source.tidb.log import LogBegin, LogPart, Span, Stored, Window
from tidegate.source.tidb.safe_points import kept_safe_point, put_safe_point
from tidegate.source.tidb.segment import read_footer, read_spans, read_windows, segments
from tidegate.source.tidb.segment_base import WHOLE, base_of, definitions
from tidegate.source.tidb.tables import Tables, name_of

_TABLE_KEY = b"t"


@dataclass(frozen=True, slots=True)
class SegmentLog:
    """The log in a directory."""

    directory: Path

    def begin(self) -> LogBegin:
        """Return where the log begins, and its definitions. Raises HistoryLost for segments without their beginning."""
        if (base := base_of(self.directory)) is not None:
            return LogBegin(base[0], definitions(base[1]), base[1].suffix == WHOLE)
        found = segments(self.directory)
        if found and found[0][0] > 0:
            raise HistoryLost(
                f"the log {self.directory} goes back to {found[0][0]} without the definitions of that moment, so "
                "tables made before it are not known; let its upstream write it from 0 on, or trim it with --log-keep"
            )
        return LogBegin(0, StoredSnapshot(), whole=True)

    def hold(self, feed: str, ts: int) -> None:
        """Put the feed's safe point down."""
        put_safe_point(self.directory, feed, ts, time.time_ns() // 1_000_000)

    def held(self, feed: str) -> int | None:
        """Return the feed's safe point."""
        return kept_safe_point(self.directory, feed)

    def parts(self, low: int, high: int | None = None) -> Sequence[LogPart]:
        """Return the segments that meet (low, high]; those below the begin are gone, though they may still lie
        there."""
        base = base_of(self.directory)
        low = low if base is None else max(low, base[0])
        return [
            _part(path) for below, top, path in segments(self.directory) if top > low and (high is None or below < high)
        ]

    def rows(self, low: int, high: int, spans: Sequence[Span]) -> Iterator[KvChange]:
        """Return rows of (low, high] and of the spans, in commit order. Raises HistoryLost, DecodeError."""
        return read_spans(self.directory, low, high, spans)

    def windows(self, low: int, high: int, spans: Sequence[Span]) -> Iterator[Window]:
        """Return the rows of (low, high] and of the spans window by window: each table's as columns."""
        return read_windows(self.directory, low, high, spans)


@lru_cache(maxsize=1 << 16)
def _part(path: Path) -> LogPart:
    footer = read_footer(path)
    of_tables = (block for block in footer.blocks if block.first_key[:1] == _TABLE_KEY)
    stored = tuple(
        Stored(decode_int(block.first_key, 1)[0], block.rows, block.first_ts, block.last_ts, block.size_bytes)
        for block in of_tables
    )
    return LogPart(footer.low, footer.high, stored)


def create_statements(snapshot: StoredSnapshot, tables: Tables, ts: int) -> list[Ddl]:
    """Statements for all databases and for the tables that are replicated, databases first."""
    found = []
    for database in snapshot.schemas.values():
        name = database.name.original
        if lowered(name) not in SYSTEM_SCHEMAS:
            query = render_create_schema(database)
            found.append(Ddl(schema=name, table="", query=query, commit_ts=ts, type=int(ActionType.CREATE_SCHEMA)))
    for version in tables.replicated(snapshot):
        query = render_create_table(version.stored, schema=version.schema)
        schema, table = name_of(version)
        found.append(Ddl(schema=schema, table=table, query=query, commit_ts=ts, type=int(ActionType.CREATE_TABLE)))
    return found
