"""The Delta sink's driver side: hands units to workers, collects small results, publishes the new state.

units ──parallelize──► workers: Parquet in, Parquet out, one commit a step ──► (table, version, rows) ──► snapshot
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from tidegate.feed.plan import Round
from tidegate.feed.step import Unit
from tidegate.model.errors import SinkError, TidegateError
from tidegate.sink.delta.apply import ChangeReader, TableResult, run_unit
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import PublishedTable, Snapshot, latest, publish

__all__ = ["DeltaSink", "UnitFailure"]


@dataclass(frozen=True, slots=True)
class UnitFailure:
    """An error of a worker as a value: typed exceptions do not survive the way through Spark."""

    error: TidegateError


class DeltaSink:
    """A lake of Delta tables that replicate the upstream."""

    def __init__(self, options: DeltaOptions, *, workers: int | None = None) -> None:
        self.options = options
        self.workers = workers
        self.snapshot = Snapshot()

    def recover(self) -> Snapshot:
        """The lake's state as it was last published."""
        self.snapshot = latest(self.options)
        return self.snapshot

    def run(self, spark: SparkSession, units: Sequence[Unit], reader: ChangeReader) -> list[TableResult]:
        """Run every unit in a worker, the longest first; raises the first error after all have ended."""
        if not units:
            return []
        ordered = sorted(units, key=lambda unit: -unit.rows)
        work = partial(_run_partition, reader=reader, options=self.options)
        outcomes = (
            spark.sparkContext.parallelize(ordered, min(len(ordered), self.workers or len(ordered)))
            .mapPartitions(work)
            .collect()
        )
        for outcome in outcomes:
            if isinstance(outcome, UnitFailure):
                raise outcome.error
        return [result for outcome in outcomes for result in outcome]

    def advance(self, done: Round, results: Sequence[TableResult]) -> Snapshot:
        """Publish the round: its checkpoint, its schema and the version of every table."""
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
        self.snapshot = Snapshot(before.number + 1, done.checkpoint, done.state, tables, retired)
        publish(self.options, self.snapshot)
        return self.snapshot


def _run_partition(units: Iterator[Unit], *, reader: ChangeReader, options: DeltaOptions) -> Iterator[Any]:
    for unit in units:
        try:
            yield run_unit(unit, reader, options)
        except TidegateError as error:
            yield UnitFailure(error)
        except OSError as error:
            yield UnitFailure(SinkError(f"lake {options.root}: {error}"))
