"""What the next batch takes of a change log: pieces that tasks read side by side, and the DDLs between them.

    parts    ├───────┼───┼─────────────────┼─────┼──┤      files of the log
    DDLs               D1                    D2
    pieces   (── p1 ──](p2](───── p3 ──────](p4 ](p5]      cut at DDLs, and where a piece has its share of rows
                             ├ tables a c ┤
                             ├ tables b   ┤                one part of many rows: its tables are dealt to several

A piece has one schema, so it is mounted by definitions that travel with it.  What a piece reads depends on the log
alone, so a batch that is planned again after a crash lands the same rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from tidegate.model.errors import TidegateError
from tidegate.schema.stored.snapshot import TableVersion
from tidegate.source.tidb.ddl import DdlEvent
from tidegate.source.tidb.log import LogPart
from tidegate.source.tidb.segment import end_of_segment, rows_by_table
from tidegate.source.tidb.timeline import Timeline

__all__ = ["LogBatch", "LogSplit", "next_batch"]

SHARE_ROWS: Final = 20_000
"""Rows that are worth a task of their own."""


class LogSplit(NamedTuple):
    """Rows of `tables` with commit_ts in (low, high]; `rows` of them at most, index entries counted."""

    low: int
    high: int
    tables: tuple[TableVersion, ...]
    rows: int


class LogBatch(NamedTuple):
    """Everything above a position up to `high`, and the schema's changes in between."""

    high: int
    pieces: tuple[LogSplit, ...]
    events: tuple[DdlEvent, ...]


def next_batch(timeline: Timeline, low: int, parts: Sequence[LogPart], rows: int, tasks: int) -> LogBatch | None:
    """Return the batch behind `low`, of `rows` rows or a part more; None when there is nothing. `parts` are those
    above `low`.

    A DDL that cannot be followed ends the batch before it, and is raised when it would begin the next one."""
    end = end_of_segment(low, parts, None, None, rows=rows)
    if end is None:
        return None
    held = sum(rows_by_table(parts, low, end).values())
    share = max(SHARE_ROWS, held // max(tasks, 1))
    at, pieces, events = low, list[LogSplit](), list[DdlEvent]()
    while at < end:
        stop = timeline.stop()
        upto = end if stop is None else min(end, stop)
        tables = {version.stored.id: version for version in timeline.tables.replicated(timeline.snapshot)}
        found = partial(_pieces, parts, tables=tables, logical=timeline.snapshot.logical, share=share)
        try:
            events += timeline.walk(upto)
        except TidegateError:
            if upto - 1 == low:
                raise
            pieces += found((at, upto - 1)) if at < upto - 1 else ()
            return LogBatch(upto - 1, tuple(pieces), tuple(events))
        pieces += found((at, upto))
        at = upto
    return LogBatch(at, tuple(pieces), tuple(events))


def _pieces(
    parts: Sequence[LogPart],
    stretch: tuple[int, int],
    tables: Mapping[int, TableVersion],
    logical: Mapping[int, int],
    share: int,
) -> Iterator[LogSplit]:
    """The pieces of a stretch without DDLs."""
    for low, high in _cut(parts, stretch, share):
        counts: dict[int, int] = {}
        for physical_id, rows in rows_by_table(parts, low, high).items():
            table_id = logical.get(physical_id, 0)
            if table_id in tables:
                counts[table_id] = counts.get(table_id, 0) + rows
        for dealt in _dealt(counts, share):
            chosen = tuple(tables[table_id] for table_id in dealt)
            yield LogSplit(low, high, chosen, sum(counts[table_id] for table_id in dealt))


def _cut(parts: Sequence[LogPart], stretch: tuple[int, int], share: int) -> Iterator[tuple[int, int]]:
    """The stretch divided behind parts, each piece with a share of rows or the last one."""
    begin, high, held = *stretch, 0
    for part in parts:
        if part.high <= begin:
            continue
        if part.low >= high:
            break
        held += sum(stored.rows for stored in part.stored)
        if held >= share and part.high < high:
            yield begin, part.high
            begin, held = part.high, 0
    yield begin, high


def _dealt(counts: Mapping[int, int], share: int) -> list[list[int]]:
    """Tables in groups of about a share, the largest first."""
    hands: list[tuple[int, list[int]]] = []
    for table_id, rows in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if hands and hands[-1][0] + rows <= share:
            hands[-1] = hands[-1][0] + rows, [*hands[-1][1], table_id]
        else:
            hands.append((rows, [table_id]))
    return [dealt for _, dealt in hands]
