"""The Delta sink's driver side: hands units to workers, collects small results, publishes the new state.

units ──parallelize──► workers: Parquet in, Parquet out, one commit a step ──► (table, version, rows) ──► snapshot
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from tidegate.feed.plan import Round
from tidegate.feed.retention import PURGED
from tidegate.feed.step import Unit
from tidegate.model.errors import SinkError, SinkRefused, TidegateError
from tidegate.sink.delta.apply import ChangeReader, TableResult, run_unit
from tidegate.sink.delta.modes import check_mode
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.selection_check import check_round, check_rules
from tidegate.sink.delta.snapshots import PublishedTable, Snapshot, latest, publish
from tidegate.spark.failpoint import reach
from tidegate.spark.tasks import SPARK_FAILURES, reason, run_tasks

__all__ = ["DeltaSink", "UnitFailure", "decks"]


@dataclass(frozen=True, slots=True)
class UnitFailure:
    """An error as a value, so that the other units of its task run too."""

    error: TidegateError


ALONE_ROWS: Final = 20_000
DECKS_A_CORE: Final = 4


def decks(units: Sequence[Unit], workers: int | None, cores: int) -> list[list[Unit]]:
    """The units of each task, the longest first; a task costs tens of milliseconds, more than most units do.

    At most `workers` tasks; if that is open, each large unit has a task of its own."""
    ordered = sorted(units, key=lambda unit: -unit.rows)
    alone = 0 if workers else sum(unit.rows >= ALONE_ROWS for unit in ordered)
    count = min(workers or cores * DECKS_A_CORE, len(ordered) - alone)
    return [[unit] for unit in ordered[:alone]] + [ordered[alone + at :: count] for at in range(count)]


class DeltaSink:
    """A lake of Delta tables that replicate the upstream."""

    def __init__(self, options: DeltaOptions, *, workers: int | None = None) -> None:
        self.options = options
        self.workers = workers
        self.snapshot = Snapshot()

    def recover(self) -> Snapshot:
        """The lake's state as it was last published.

        Raises SinkRefused if that was in another mode, ColumnSelectorFailed if it was with other columns."""
        self.snapshot = latest(self.options)
        if self.snapshot.options is not None:
            check_mode(self.options.mode, self.snapshot.options.mode, f"lake {self.options.root}")
            check_rules(self.snapshot, self.options)
        reach("start/recovered")
        return self.snapshot

    def run(self, spark: SparkSession, units: Sequence[Unit], reader: ChangeReader) -> list[TableResult]:
        """Run every unit in a worker, the longest first; raises the first error after all have ended."""
        if not units:
            return []
        dealt = decks(units, self.workers, spark.sparkContext.defaultParallelism)
        work = partial(_run_deck, reader=reader, options=self.options)
        try:
            outcomes = [outcome for deck in run_tasks(spark, work, dealt) for outcome in deck]
        except SPARK_FAILURES as died:
            raise SinkError(f"lake {self.options.root}: a worker ended without an answer: {reason(died)}") from died
        for outcome in outcomes:
            if isinstance(outcome, UnitFailure):
                raise outcome.error
        return [result for outcome in outcomes for result in outcome]

    def admit(self, planned: Round) -> None:
        """Raises SinkRefused for a round that brings back a dropped table whose rows are purged, ColumnSelectorFailed
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

    def advance(self, done: Round, results: Sequence[TableResult]) -> Snapshot:
        """Publish the round: its checkpoint, its schema and the version of every table."""
        self.admit(done)
        before = self.snapshot
        versions = {incarnation: table.version for incarnation, table in before.tables.items()}
        versions |= before.retired
        versions |= {result.incarnation: result.version for result in results}
        tables = {
            table.incarnation: PublishedTable(table.name.schema, table.name.table, versions[table.incarnation])
            for table in done.state.tables.values()
            if table.incarnation in versions
        }
        retired = {incarnation: version for incarnation, version in versions.items() if incarnation not in tables}
        published = Snapshot(before.number + 1, done.checkpoint, done.state, tables, retired)
        publish(self.options, published)
        self.snapshot = published
        return self.snapshot


def _run_deck(
    dealt: Sequence[Unit], *, reader: ChangeReader, options: DeltaOptions
) -> list[list[TableResult] | UnitFailure]:
    return [_run(unit, reader, options) for unit in dealt]


def _run(unit: Unit, reader: ChangeReader, options: DeltaOptions) -> list[TableResult] | UnitFailure:
    try:
        return run_unit(unit, reader, options)
    except TidegateError as error:
        return UnitFailure(error)
    except OSError as error:
        return UnitFailure(SinkError(f"lake {options.root}: {error}"))
