"""Planning for sinks with barrier ALL: a round is one segment, from a checkpoint to the next DDL, and a run. Pure.

    customers   rows ─────┤
    orders      rows ─────┤ D1 ├─ rows ──┤ D2 ├──┤ D3 ├─ rows ──►  ts      every DDL cuts every table
    visits      rows ─────┤
                ◄ segment ►              ◄── run ──►

    segment     rows of every table up to D1, whole transactions in commit order
    run         the DDL at the segment's end and those behind it, in order, including those that change no stored rows;
                a sink applies them one by one, except those that the table filter and event filters exclude

A run ends before the next row, and before a DDL of a table that an earlier DDL of the run has changed: a crash repeats
the whole run, and each of its tables is then as its own DDL left it.  DDLs of a ts stay together.  A DDL of a database,
or one that cannot be parsed, is a run of its own, as its tables are not known; one whose rows follow it ends its run
(`SourceDdl.rows_follow`).  docs/decisions/0032 has the reasons.

Input: the schema at the checkpoint, later DDLs, and the landed rows of each table.  Output: a Round, with the schema
before and after each DDL and its effects.  The schema follows every DDL, filtered or not; a DDL that cannot be parsed,
or that contradicts its known table, leaves the schema unchanged.  A DDL that arrives after its ts is resolved makes a
segment without rows at the checkpoint's own ts.

Shared with sinks that cut by table (plan.py): where a round ends and whether that end may be published
(`end_of_round`, `is_whole`), and `plan_from`, which plans a round of a source with either barrier.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import msgspec

from tidegate.engine.change import Layout, SourceDdl
from tidegate.engine.filter import previous_name
from tidegate.engine.plan import (
    Barrier,
    Checkpoint,
    Drops,
    Landed,
    PlannedDdl,
    Round,
    Segment,
    identity,
    null_warnings,
    plan_ddl,
    plan_round,
    refusal,
    replace_ts,
)
from tidegate.engine.ports import ROUND, Changes, RoundLimit, RowRange, SinkPosition, Source, refused_layout, round_end
from tidegate.model.errors import EncodeError, RowsLackDdl
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.infer import infer_table, merge_inferred, unusable
from tidegate.schema.state import SchemaState


def segment_end(checkpoint: Checkpoint, ddls: Iterable[SourceDdl], upto: int) -> int:
    """Return the ts of the first of `ddls` (ordered) that is not done at the checkpoint, at most `upto`."""
    return min((_ts(source_ddl) for source_ddl in ddls if _is_pending(source_ddl, checkpoint)), default=upto)


RUN_DDLS: Final = 1_000
"""The most timestamps of DDLs in a run: a crash repeats some seconds of work."""
RUN_TABLES: Final = 1_000_000
"""The most tables in the schemas of a run's DDLs, each of which holds all tables by name."""


def run_end(
    checkpoint: Checkpoint, ddls: Iterable[SourceDdl], upto: int, changes: Callable[[int, int], Changes]
) -> int:
    """Return the ts of the last of `ddls` (ordered) that follow the first one that is not done without a row in
    between; `upto` if there is none. `changes` is that of the source."""
    pending = [source_ddl for source_ddl in ddls if _is_pending(source_ddl, checkpoint)]
    if not pending:
        return upto
    first, end = _ts(pending[0]), next((_ts(each) for each in pending if each.rows_follow), upto)
    times = sorted({ts for source_ddl in pending if (ts := _ts(source_ddl)) <= end})[:RUN_DDLS]
    if len(times) < 2:
        return first
    ranges = changes(checkpoint.ts, times[-1]).row_ranges()
    row_ts = min((part.first_ts for part in ranges if part.last_ts > first), default=times[-1] + 1)
    return max((ts for ts in times if ts < row_ts), default=first)


def plan_segment(
    state: SchemaState, checkpoint: Checkpoint, ddls: Iterable[SourceDdl], upto: int, landed: Landed
) -> Round:
    """Return the round from the checkpoint to `upto`, or to the DDL before one of the same tables. No row lies above
    the first DDL that is not done.

    `ddls` are ordered and without repeats. Raises RenameRefused for a table that a RENAME brings into the filter."""
    pending = [each for each in ddls if _ts(each) <= upto and _is_pending(each, checkpoint)]
    rows_upto = _ts(pending[0]) if pending else upto
    tables: list[TableInfo] = []
    rows = 0
    for name, (count, low, high) in landed.spans.items():
        if low > rows_upto or not checkpoint.ts < min(high, rows_upto) or not landed.accept(*name):
            continue
        table = state.table(name)
        if table is None:
            layouts = landed.layouts(name, rows_upto)
            if not layouts:  # spans are bounds: there is no row after all
                continue
            shown = [infer_table(name, layout.fields, layout.pk_names, low - 1) for layout in layouts]
            table = merge_inferred(shown)
            state = state.with_table(table)
        tables.append(table)
        rows += count
    run, stops = _Run(state, checkpoint.ts, checkpoint.done), dict[int, tuple[Checkpoint, SchemaState]]()
    for ts, of_ts in groupby(pending, key=_ts):
        longer = run.with_ddls(ts, of_ts, landed)
        if longer is None:
            upto = run.ts
            break
        run = longer
        stops[len(run.planned)] = Checkpoint(run.ts, run.done), run.state
    return Round(
        (),
        run.state,
        Checkpoint(upto, run.done if run.ts == upto else ()),
        tuple(planned.ddl for planned in run.planned),
        run.warnings,
        Segment(checkpoint.ts, rows_upto, tuple(tables), rows),
        run.planned,
        run.left_out,
        run.rests,
        stops,
    )


def run_ddls(planned: Round, execute: Callable[[PlannedDdl], None], halted: Callable[[], bool]) -> Round:
    """Execute the DDLs of a round one by one; return the round up to the last one, or to where a stop ends it."""
    for number, ddl in enumerate(planned.planned_ddls, 1):
        try:
            execute(ddl)
        except EncodeError as unsayable:
            raise refusal(unsayable, ddl.ddl, ddl.source_ddl.position) from None
        if halted() and number in planned.stops and number < len(planned.planned_ddls):
            return planned.until(number)
    return planned


@dataclass(frozen=True, slots=True)
class _Run:
    """The DDLs of a round so far: the schema behind them, and those of the last ts."""

    state: SchemaState
    ts: int
    done: tuple[str, ...]
    planned: tuple[PlannedDdl, ...] = ()
    tables: frozenset[tuple[str, str]] = frozenset()
    """The tables that they change; empty if that is unknown of one."""
    warnings: tuple[str, ...] = ()
    left_out: int = 0
    rests: bool = True

    def with_ddls(self, ts: int, ddls: Iterable[SourceDdl], landed: Landed) -> "_Run | None":
        """Return the run with the DDLs of one more ts; None if one of them needs those before it to be done, or they
        take too much memory."""
        state, left_out, rests = self.state, self.left_out, True
        done = list(self.done) if ts == self.ts else []
        planned, warnings = list[PlannedDdl](), list[str]()
        for source_ddl in ddls:
            done.append(identity(source_ddl.ddl))
            rests = rests and not source_ddl.rows_follow
            ddl = replace_ts(source_ddl.ddl, ts)
            planned_ddl = plan_ddl(state, msgspec.structs.replace(source_ddl, ddl=ddl), len(done))
            state = planned_ddl.after
            previous = source_ddl.previous or previous_name(ddl, planned_ddl.effects)
            if landed.takes is not None and not landed.takes(ddl, previous):
                left_out += 1
                continue
            drops = None if source_ddl.needed else landed.drops
            if source_ddl.left_out or (drops is not None and drops(ddl, previous)):
                left_out += 1
                reason = "by an event filter, or by bdr-mode as a DDL of a secondary"
                warnings.append(f"DDL of ts {ts} excluded {reason}: {ddl.query[:500]}")
                continue
            warnings += null_warnings(ddl, source_ddl.position, planned_ddl.effects)
            source = msgspec.structs.replace(planned_ddl.source_ddl, previous=previous)
            planned.append(replace(planned_ddl, source_ddl=source))
        every = [planned_ddl.tables for planned_ddl in planned]
        tables = frozenset[tuple[str, str]]().union(*every) if all(every) else frozenset[tuple[str, str]]()
        is_apart = tables and self.tables and tables.isdisjoint(self.tables)
        is_large = len(self.planned) * len(state.tables) >= RUN_TABLES
        if self.planned and planned and (is_large or not is_apart):
            return None
        return _Run(
            state,
            ts,
            tuple(done),
            (*self.planned, *planned),
            self.tables | tables if planned else self.tables,
            (*self.warnings, *warnings),
            left_out,
            rests,
        )


def _is_pending(source_ddl: SourceDdl, checkpoint: Checkpoint) -> bool:
    ts = _ts(source_ddl)
    return ts > checkpoint.ts or (ts == checkpoint.ts and identity(source_ddl.ddl) not in checkpoint.done)


def _ts(source_ddl: SourceDdl) -> int:
    return source_ddl.ddl.commit_ts or 0


def end_of_round(
    checkpoint_ts: int,
    frontier: int,
    waiting: Iterable[RowRange],
    *,
    until: int | None = None,
    floor: int = 0,
    limit: RoundLimit = ROUND,
) -> int:
    """Return where the round from `checkpoint_ts` ends, given the changes landed after it.

        checkpoint C   where the lake was published last          frontier F   how far everything has landed
        until U        where the user wants to stop               floor L      the furthest that a table was found ahead

        C ───────────┬───────────┬──────────┬─►     without U and L a round ends at F, or where its rows would exceed
                     U           L          F       `limit`; U ends it earlier, L never before L

    A round that was cut off by a crash leaves some tables at its end and others behind.  Rounds are planned anew,
    and a shorter one would find those tables ahead: the lake is then at no single ts until all tables have reached
    the furthest of them.  So nothing below the floor is published, and the next round goes there."""
    upto = frontier if until is None else max(min(frontier, until), checkpoint_ts, floor)
    return max(round_end(waiting, upto, limit), floor)


def raised(floor: int, ahead: Iterable[int]) -> int:
    """Return the floor after a round whose tables were found ahead at `ahead`."""
    return max((floor, *ahead))


def is_whole(end: int, floor: int) -> bool:
    """Return True if all tables have one position after a round with this end, so that it may be published."""
    return end >= floor


@dataclass(frozen=True, slots=True)
class Planning:
    """The rules for planning rounds: the tables to carry, the DDLs that event filters leave out (`drops`) and that the
    table filter takes (`takes`), and the scope of a DDL."""

    accept: Callable[[str, str], bool]
    drops: Drops | None = None
    takes: Drops | None = None
    barrier: Barrier = Barrier.TABLE


def plan_landed(
    state: SchemaState,
    checkpoint: Checkpoint,
    ddls: Iterable[SourceDdl],
    upto: int,
    landed: Changes,
    *,
    rules: Planning,
) -> Round:
    """Return the round from `checkpoint` to `upto` over the changes between them."""
    spans = {name: (span.rows, span.min_ts, span.max_ts) for name, span in landed.tables().items()}

    def layouts(name: TableName, end: int) -> Sequence[Layout]:
        seen = landed.layouts(name, checkpoint.ts, end)
        for layout in seen if rules.barrier is Barrier.TABLE else ():
            if what := unusable(layout.fields, layout.pk_names):
                raise refused_layout(landed, name, layout, what)
        return seen

    landed_changes = Landed(spans, layouts, rules.accept, rules.drops, rules.takes)
    plan = plan_round if rules.barrier is Barrier.TABLE else plan_segment
    return plan(state, checkpoint, ddls, upto, landed_changes)


def plan_from(
    source: Source, position: SinkPosition, whole: Changes, end: int, rules: Planning, *, floor: int = 0
) -> tuple[Round, Changes]:
    """Return the round of a source from `position` to `end`, or to the DDL that later rows lack, with its changes;
    `whole` are the changes up to `end` or further. Raises RowsLackDdl when that round is empty."""
    checkpoint = position.checkpoint
    changes = whole if end == whole.upto else source.changes(checkpoint.ts, end)
    try:
        planned = plan_landed(position.state, checkpoint, source.ddls(checkpoint.ts, end), end, changes, rules=rules)
    except RowsLackDdl as lack:
        if lack.ts <= max(checkpoint.ts, floor):
            raise
        return plan_from(source, position, whole, lack.ts, rules, floor=floor)
    return planned, changes
