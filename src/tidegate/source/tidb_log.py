"""The change log that a TiDB source reads (`KvLog`), its safe point, and the tables of a snapshot that are replicated.

    low                                                    high
     ├── part ──┼──────── part ────────┼── part ─┤   →   the next part is still being written
      t45  3 rows   t45 900, t47 12       nothing

A log is divided at timestamps.  A part is complete or absent, so `high` of the last one is the frontier: no row at or
below it will be added.  The contents of a part (tables, rows) are known without reading its rows.  A log is pickled
into every task.

`SafePoint` tells the log which ts a changefeed still needs.  It receives every position, and passes one on every few
seconds, so the log may keep more than is needed, never less.

`Tables` selects tables by the filter rules and by eligibility, and gives the key spans of their ids or partitions.  A
table without a primary key or a unique key on NOT NULL columns is ineligible unless `force` is set (by the user) or the
sink `keeps` such tables; a sequence always is.  A view has DDLs and no rows.

    feed          ├─ begin          CREATE t (a INT)      ALTER t ADD PRIMARY KEY       TRUNCATE t      DROP, CREATE t
    ineligible                      ├──────────────────── no DDL, no row ───────────────────────────────┤ replicated

An ineligible table stays so when it gets a key, as its CREATE and its earlier rows are not downstream.  So does one
that a resumed changefeed does not have, even if its sink keeps such tables now.

Source: TiCDC's filter and table eligibility; a real TiCDC writes nothing of such tables.
"""

import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.kv.change_columns import numbers
from tidegate.kv.keys import table_span
from tidegate.model.kv_change import WRITE_SOURCE, KvChange
from tidegate.model.left_out import LATE_KEY, NO_KEY, LeftOut
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion, table_info

Span: TypeAlias = tuple[bytes, bytes]
"""Keys in [start, end)."""


Window: TypeAlias = list[Any]
"""All rows of a range of timestamps: one record batch (kv/change_columns.py) per table, in commit order, tables in key
order."""


class Stored(NamedTuple):
    """The rows and index entries of one table in a part: `table_id` as in their keys, commit_ts from `first_ts` to
    `last_ts`, and `size_bytes` in memory."""

    table_id: int
    rows: int
    first_ts: int
    last_ts: int
    size_bytes: int = 0


class LogPart(NamedTuple):
    """A part of a log, with the contents of commit_ts in (low, high]."""

    low: int
    high: int
    stored: tuple[Stored, ...]


class LogBegin(NamedTuple):
    """The ts above which a log is complete, and the definitions there; `whole` if there were no rows before, or the log
    has all of them as inserts."""

    ts: int
    snapshot: StoredSnapshot
    whole: bool


class KvLog(Protocol):
    """A log of committed keys."""

    def begin(self) -> LogBegin:
        """Return the begin of the log. Raises HistoryLost when the definitions there are unknown."""

    def set_safe_point(self, feed: str, ts: int) -> None:
        """Set the safe point of a feed to `ts`: everything above is kept. It must be renewed, since it expires after a
        day. `feed` names the feed and its sink, so that feeds of one name into different sinks have separate safe
        points."""

    def safe_point(self, feed: str) -> int | None:
        """Return the safe point of that feed; None if it never set one."""

    def ended(self) -> bool:
        """Return True if its writer has ended, so that no part follows until one is started."""

    def rests_at(self, ts: int) -> int:
        """Return `ts`, or the next one for a DDL at `ts` some of whose rows follow it there."""

    def parts(self, low: int, high: int | None = None) -> Sequence[LogPart]:
        """Return the parts that overlap (low, high], by time; without `high`, up to the last one."""

    def rows(self, low: int, high: int, spans: Sequence[Span]) -> Iterator[KvChange]:
        """Return rows with commit_ts in (low, high] and keys in one of `spans`, which do not overlap, in commit order.

        Raises HistoryLost when the log does not cover (low, high]."""

    def windows(self, low: int, high: int, spans: Sequence[Span]) -> Iterator[Window]:
        """Return the rows in (low, high] and the spans, window by window: each table's as columns; no window is
        empty."""


def without(log: KvLog, start_ts: frozenset[int], *, replicated: bool = False) -> KvLog:
    """Return the log without the rows of some transactions (ignore-txn-start-ts) and, if `replicated`, without
    replicated rows (bdr-mode)."""
    return _Without(log, start_ts, replicated) if start_ts or replicated else log


@dataclass(frozen=True, slots=True)
class _Without:
    log: KvLog
    start_ts: frozenset[int]
    replicated: bool

    def begin(self) -> LogBegin:
        return self.log.begin()

    def set_safe_point(self, feed: str, ts: int) -> None:
        self.log.set_safe_point(feed, ts)

    def safe_point(self, feed: str) -> int | None:
        return self.log.safe_point(feed)

    def ended(self) -> bool:
        return self.log.ended()

    def rests_at(self, ts: int) -> int:
        return self.log.rests_at(ts)

    def parts(self, low: int, high: int | None = None) -> Sequence[LogPart]:
        """Return the parts of the whole log; their contents are upper bounds."""
        return self.log.parts(low, high)

    def rows(self, low: int, high: int, spans: Sequence[Span]) -> Iterator[KvChange]:
        sources = WRITE_SOURCE if self.replicated else 0
        rows = self.log.rows(low, high, spans)
        return (row for row in rows if not row.txn_source & sources and row.start_ts not in self.start_ts)

    def windows(self, low: int, high: int, spans: Sequence[Span]) -> Iterator[Window]:
        left_out = np.array(sorted(self.start_ts), np.int64)
        sources = WRITE_SOURCE if self.replicated else 0
        for window in self.log.windows(low, high, spans):
            kept = []
            for rows in window:
                gone = np.isin(numbers(rows, "start_ts"), left_out) | (numbers(rows, "txn_source") & sources != 0)
                kept.append(rows.filter(pa.array(~gone)) if gone.any() else rows)
            if any(kept):
                yield list(filter(len, kept))


EVERY_S: Final = 5.0


class SafePoint:
    """Keeps the log above the position of a feed; `feed` names the feed and its sink."""

    def __init__(self, log: KvLog, feed: str) -> None:
        self._log, self._feed = log, feed
        self._told_s: float | None = None

    def last(self) -> int | None:
        """Return the last safe point of the feed; None if it never ran."""
        return self._log.safe_point(self._feed)

    def at(self, ts: int) -> None:
        """Move the safe point to `ts`, up to which the feed is done."""
        now_s = time.monotonic()
        if self._told_s is None or now_s - self._told_s >= EVERY_S:
            self._log.set_safe_point(self._feed, ts)
            self._told_s = now_s


Matches = Callable[[str, str], bool]


def name_of(version: TableVersion) -> TableName:
    """Return the name of a table."""
    return TableName(version.schema, version.stored.name.original)


class Tables:
    """The choice of tables; decisions are cached by id and version."""

    def __init__(self, matches: Matches, *, force: bool = False, keeps: bool = False) -> None:
        self.matches, self.force, self.keeps = matches, force, keeps
        self._verdicts: dict[tuple[int, int], bool] = {}
        self._bare: set[int] = set()
        self._out: set[int] = set()

    def eligible(self, version: TableVersion) -> bool:
        """Return whether the table has a handle key, or the sink takes tables without one."""
        stored = version.stored
        if stored.is_sequence:
            return False
        if self.force or stored.is_view:
            return True
        return stored.id not in self._out and (self.keeps or self.has_key(version))

    def has_key(self, version: TableVersion) -> bool:
        """Return whether the table has a handle key."""
        cache_key = version.stored.id, version.version
        if cache_key not in self._verdicts:
            self._verdicts[cache_key] = bool(definition_of(version).handle_key)
        return self._verdicts[cache_key]

    def note(self, versions: Iterable[TableVersion], *, instead_of: int = 0, begun: bool = True) -> None:
        """Note the current tables: `instead_of` one that was truncated, or those from before a feed has `begun`."""
        for version in versions:
            stored = version.stored
            if stored.is_view or stored.is_sequence or not self.matches(*name_of(version)):
                continue
            if instead_of in self._out:
                self._out.add(stored.id)
            if not self.has_key(version):
                self._bare.add(stored.id)
                self._out |= {stored.id} if begun and not self.keeps else set()

    def carry(self, carried: Container[tuple[str, str]], snapshot: StoredSnapshot) -> None:
        """Note the tables of a resuming feed: other tables that once had no key stay left out."""
        for version in snapshot.tables.values():
            if version.stored.id in self._bare and name_of(version).key not in carried:
                self._out.add(version.stored.id)

    def left_out(self, snapshot: StoredSnapshot) -> tuple[LeftOut, ...]:
        """Return the tables of the filter that are not replicated."""
        keyless = (
            LeftOut(str(name_of(version)), LATE_KEY if self.has_key(version) else NO_KEY)
            for version in snapshot.tables.values()
            if self.matches(*name_of(version)) and not version.stored.is_sequence and not self.eligible(version)
        )
        return tuple(sorted(keyless, key=str))

    def replicated(self, snapshot: StoredSnapshot) -> Iterator[TableVersion]:
        """Return the replicated tables."""
        return filter(self.replicates, snapshot.tables.values())

    def replicates(self, version: TableVersion) -> bool:
        """Return True if rows of the table are replicated: neither a view has some, nor a temporary table."""
        has_rows = not (version.stored.is_view or version.stored.temp_table_type)
        return has_rows and self.matches(*name_of(version)) and self.eligible(version)

    @staticmethod
    def spans(version: TableVersion) -> list[Span]:
        """Return the key spans of a table's rows."""
        return [table_span(physical_id) for physical_id in version.stored.physical_ids]


def definition_of(version: TableVersion) -> TableInfo:
    """Return the definition for mounting rows of the table."""
    return table_info(version.stored, version.schema, version.version, every_state=True)
