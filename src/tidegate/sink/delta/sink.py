"""The Delta sink: a lake of tables that replicate the upstream, or keep its changes, or every version of its rows.

units ──in tasks──► Parquet in, Parquet out, one commit a step ──► (table, version, rows) ──► snapshot

Guarantee: exactly once.  Each table's commit carries its position, a snapshot names the version of every table at one
ts, and both are written where only one writer can.  A DDL is a step of its table's unit: feed/plan.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tidegate.feed.pace import tasks_at_once
from tidegate.feed.plan import Barrier, Round
from tidegate.feed.ports import Changes, Rhythm, Sink, Standing, Tasks
from tidegate.feed.retention import PURGED
from tidegate.feed.step import Unit
from tidegate.model.errors import SinkError, SinkRefused, TidegateError
from tidegate.objectstore.failpoint import reach
from tidegate.sink.delta.apply import TableResult, run_unit
from tidegate.sink.delta.lake_upkeep import FAILURES, LakeUpkeep, storing_errors
from tidegate.sink.delta.modes import check_mode
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.selection_check import check_round, check_rules
from tidegate.sink.delta.snapshots import PublishedTable, Snapshot, latest, publish
from tidegate.sink.delta.upkeep import adopt

IDLE_PUBLISH_S: Final = 5.0
"""With nothing to apply, how often a mere advance of the checkpoint is published."""


@dataclass(frozen=True, slots=True)
class UnitFailure:
    """An error as a value, so that the other units of its task run too."""

    error: TidegateError


ALONE_ROWS: Final = 20_000
DECKS_A_CORE: Final = 4


def bins(units: Sequence[Unit], workers: int | None, cores: int) -> list[list[Unit]]:
    """Return the units of each task, the longest first; a task costs tens of milliseconds, more than most units do.

    At most `workers` tasks; if that is open, each large unit has a task of its own."""
    ordered = sorted(units, key=lambda unit: -unit.rows)
    alone = 0 if workers else sum(unit.rows >= ALONE_ROWS for unit in ordered)
    count = min(workers or cores * DECKS_A_CORE, len(ordered) - alone)
    return [[unit] for unit in ordered[:alone]] + [ordered[alone + at :: count] for at in range(count)]


class DeltaSink(Sink[TableResult]):
    """A lake; `workers` is how many tables are merged at the same time (None: all). Without `upkeep` it keeps all.

    Nothing holds off a second writer: it finds its version taken and stops (Fenced)."""

    barrier = Barrier.TABLE

    def __init__(
        self,
        options: DeltaOptions,
        *,
        workers: int | None = None,
        flush_s: float = 1.0,
        upkeep: LakeUpkeep | None = None,
    ) -> None:
        self.options = options
        self.workers = workers
        self.rhythm = Rhythm(idle_s=IDLE_PUBLISH_S, flush_s=flush_s, rests=True)
        self.snapshot = Snapshot()
        self._upkeep = upkeep

    def recover(self) -> Standing:
        """Return the lake's state as it was last published.

        Raises SinkRefused if that was in another mode, ColumnSelectorFailed if it was with other columns."""
        self.snapshot = latest(self.options)
        if self.snapshot.options is not None:
            check_mode(self.options.mode, self.snapshot.options.mode, f"lake {self.options.root}")
            check_rules(self.snapshot, self.options)
        reach("start/recovered")
        return Standing(self.snapshot.checkpoint, self.snapshot.state, self.snapshot.number < 0)

    def run(self, tasks: Tasks, units: Sequence[Unit], changes: Changes) -> list[TableResult]:
        """Run every unit in a task, the longest first; raises the first error after all have ended."""
        if not units:
            return []
        workers = self.workers
        if self.rhythm.rests:
            workers = tasks_at_once(sum(unit.rows for unit in units), tasks.slots, workers)
        work = partial(_run_bin, changes=changes, options=self.options)
        outcomes = [outcome for one_bin in tasks.run(work, bins(units, workers, tasks.slots)) for outcome in one_bin]
        results: list[TableResult] = []
        for outcome in outcomes:
            if isinstance(outcome, UnitFailure):
                raise outcome.error
            results += outcome
        return results

    def admit(self, planned: Round) -> None:
        """Raise SinkRefused for a round that brings back a dropped table whose rows are purged, ColumnSelectorFailed
        for one that the column selectors do not fit."""
        check_round(self.snapshot, planned, self.options)
        for table in planned.state.tables.values():
            if self.snapshot.retired.get(table.incarnation) == PURGED:
                raise SinkRefused(
                    f"table {table.name} comes back at ts {table.version} (RECOVER or FLASHBACK TABLE), but "
                    "its rows were deleted from the lake: it had been dropped for longer than recover-retention. Leave "
                    "the table out with [filter] rules, or start the feed anew in an empty lake; a larger "
                    "recover-retention keeps the rows of dropped tables longer"
                )

    def advance(self, planned: Round, results: Sequence[TableResult]) -> Standing:
        """Publish the round: its checkpoint, its schema and the version of every table."""
        self.admit(planned)
        before = self.snapshot
        versions = {incarnation: table.version for incarnation, table in before.tables.items()}
        versions |= before.retired
        versions |= {result.incarnation: result.version for result in results}
        tables = {
            table.incarnation: PublishedTable(table.name.schema, table.name.table, versions[table.incarnation])
            for table in planned.state.tables.values()
            if table.incarnation in versions
        }
        retired = {incarnation: version for incarnation, version in versions.items() if incarnation not in tables}
        published = Snapshot(before.number + 1, planned.checkpoint, planned.state, tables, retired)
        publish(self.options, published)
        self.snapshot = published
        return Standing(planned.checkpoint, planned.state)

    def upkeep(self, tasks: Tasks, frontier: int | None, enough: Callable[[], bool]) -> None:
        """Forget, delete and fold what the lake's limits allow, if it is time. SinkError for what a store says."""
        if self._upkeep is None or not self._upkeep.due():
            return
        try:
            done = self._upkeep.run(self.snapshot, frontier, storing_errors(tasks.run), enough=enough)
        except TidegateError:
            raise
        except FAILURES as failure:
            raise SinkError(f"lake {self.options.root}: {failure}") from failure
        reach("upkeep/before-adopt")
        self.snapshot = adopt(self.snapshot, done.kept)


def _run_bin(
    dealt: Sequence[Unit], *, changes: Changes, options: DeltaOptions
) -> list[list[TableResult] | UnitFailure]:
    return [_run(unit, changes, options) for unit in dealt]


def _run(unit: Unit, changes: Changes, options: DeltaOptions) -> list[TableResult] | UnitFailure:
    try:
        return run_unit(unit, changes, options)
    except TidegateError as error:
        return UnitFailure(error)
    except OSError as error:
        return UnitFailure(SinkError(f"lake {options.root}: {error}"))
