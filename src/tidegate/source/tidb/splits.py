"""What the next batch takes of a change log: pieces that tasks read side by side, and the DDLs between them.

    parts    ├───────┼───┼─────────────────┼─────┼──┤      files of the log
    DDLs               D1                    D2
    pieces   (── p1 ──](p2](───── p3 ──────](p4 ](p5]      cut at DDLs, and where a piece has its share of rows
                             ├ tables a c ┤
                             ├ tables b   ┤                one part of many rows: its tables are dealt to several

A piece has one schema, so it is mounted by definitions that travel with it.  What a piece reads depends on the log
alone, so a batch that is planned again after a crash lands the same rows.

How far to go next: up to a DDL, the target, the frontier, or as many rows as are done in one go.

    checkpoint        DDL              target                 frontier
    ────┼──────────────┼──────────────────┼──────────────────────┼───
        (── segment ───]                                              the DDL follows the rows of its own ts
                       (──── segment ─────]                           nothing above the target

A segment of many rows ends with the part of the log that brings it over `SEGMENT_ROWS`, so that a backlog has
checkpoints on the way; a part is never cut for that, a transaction neither.

What a task lands of a change log: the changes of a piece as texts, into files of the changelog.

    piece ─► LogChanges: chunks of batches ─► texts ─► row groups ─► files that the driver commits

A row has no message; `seq` is its number in its chunk.  So rows of a table keep their order: transactions one after the
other, and in each of them deletes first, updates before inserts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from tidegate.changelog.columns import landed_part
from tidegate.changelog.files import RowFiles
from tidegate.changelog.report import LandedFile, TableRows
from tidegate.model.errors import TidegateError
from tidegate.model.roads import RoadCounts
from tidegate.model.table import TableName
from tidegate.schema.stored.snapshot import TableVersion
from tidegate.source.tidb.changes import LogChanges
from tidegate.source.tidb.ddl import DdlEvent
from tidegate.source.tidb.log import LogPart
from tidegate.source.tidb.tables import name_of
from tidegate.source.tidb.timeline import Timeline

SEGMENT_ROWS: Final = 500_000
"""Some seconds of work for a core; what a crash repeats at most, beside the part that brings it over."""


def end_of_segment(
    checkpoint: int, parts: Sequence[LogPart], stop: int | None, target: int | None, *, rows: int = SEGMENT_ROWS
) -> int | None:
    """Return the end of the next stretch; None when there is nothing to go on to. `parts` are those above
    `checkpoint`."""
    if not parts:
        return None
    limits = [parts[-1].high, *(ts for ts in (stop, target) if ts is not None)]
    end, held = min(limits), 0
    for part in parts:
        held += sum(stored.rows for stored in part.stored)
        if held >= rows:
            end = min(end, part.high)
            break
    return end if end > checkpoint else None


def rows_by_table(parts: Sequence[LogPart], low: int, high: int) -> dict[int, int]:
    """Return how many rows and index entries of each table id (low, high] has at most; a table that is not named has
    none."""
    found: dict[int, int] = {}
    for part in parts:
        for stored in part.stored:
            if stored.last_ts > low and stored.first_ts <= high:
                found[stored.table_id] = found.get(stored.table_id, 0) + stored.rows
    return found


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


FLUSH_BYTES: Final = 32 << 20


class SplitReport(NamedTuple):
    """What a task wrote; `corrupt` rows landed though their checksum does not fit."""

    files: tuple[LandedFile, ...]
    tables: tuple[TableRows, ...]
    corrupt: int
    roads: RoadCounts


def land_split(changelog: str, log: LogChanges, piece: LogSplit) -> SplitReport:
    """Write the rows of a piece to files of the changelog at that URI; `log` says how rows are read, whatever its range
    and tables are. Raises what reading, mounting and writing do."""
    files, corrupt, roads = RowFiles(changelog, flush_bytes=FLUSH_BYTES, messages=piece.rows), 0, RoadCounts()
    changes = replace(log, after=piece.low, upto=piece.high, versions=piece.tables)
    for chunk in changes.in_order(list(map(name_of, piece.tables)), piece.low, piece.high):
        files.add([(TableName(part.batch.schema, part.batch.table), landed_part(part)) for part in chunk.parts])
        corrupt += chunk.corrupt
        roads.update(chunk.roads)
    return SplitReport(files.close(), files.counts(), corrupt, roads.of_stage("land"))
