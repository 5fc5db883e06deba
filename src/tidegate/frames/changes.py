"""The data source `tidegate`: the row changes of a table of a lake, as a range or as a stream.

    spark.readStream.format("tidegate").option("table", "shop.orders").load("/srv/lake")

    option             default    what it says
    path               required   the lake (the argument of `load`)
    table              required   database.table, as it is called at the newest snapshot
    starting           see below  a TSO or a time: changes above it
    ending             frontier   a TSO or a time: changes up to it (not for streams)
    maxRowsPerBatch    1000000    about how many rows a micro-batch of a stream takes

    _change_type   insert, update_preimage, update_postimage, delete
    _commit_ts, _commit_seq, _commit_time

follow the table's columns, which are those of the newest snapshot when the DataFrame is made: a column that was dropped
before is not there, one that came later either, until the query is started again.  A table is followed by its name.

    driver   changelog, DDLs of (after, upto] ──feed/plan.py──► pieces of rows with the definition of their time
    task     a piece ──► typed images, each once, in commit order

Nothing above the frontier is given, so what came late by the topic is in its place; a stream's offset is a ts.  Without
`starting`, a range begins at the oldest snapshot whose changes are still there, a stream at the newest snapshot.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidegate.changelog.changelog import Changelog
from tidegate.changelog.slice import ChangeSlice
from tidegate.feed.pace import ROUND, Most, round_end
from tidegate.feed.step import Rows
from tidegate.frames.lake import check_options
from tidegate.lakes.lake import Lake, moment_ts
from tidegate.lakes.live import planned, reaches_back
from tidegate.lakes.local import spark_schema
from tidegate.model.errors import ConfigError, HistoryLost
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo
from tidegate.sink.delta.changelog_rows import change_columns, change_rows
from tidegate.sink.delta.columns import LakeColumn, stored_columns
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import latest, published_at

OPTIONS: Final = frozenset({"path", "table", "starting", "ending", "maxrowsperbatch"})
TASK_ROWS: Final = 200_000
MOST_ROWS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ChangeTask(InputPartition):  # type: ignore[misc]  # the library has no types
    """Rows of a table with one definition; `columns` have the ids that the columns have there."""

    table: TableInfo
    columns: tuple[LakeColumn, ...]
    slice: ChangeSlice


@dataclass(frozen=True)
class TableChanges:
    """The changes of one table of a lake; a small value that travels to Spark's processes."""

    root: str
    name: str
    table: TableInfo
    columns: tuple[LakeColumn, ...]
    options: DeltaOptions

    @classmethod
    def of(cls, root: str, name: str) -> "TableChanges":
        """Return the changes of a table with the columns of now. ConfigError for a lake or table that is not there."""
        lake = Lake(root)
        followed = lake.snapshot.options
        assert followed is not None, "a published snapshot has options"
        columns = change_columns(stored_columns(lake.stored(name)))
        return cls(root, name, lake.definition(name), columns, followed)

    def schema(self) -> StructType:
        """Return the columns as Spark has them."""
        return spark_schema(self.columns)

    @cached_property
    def _changelog(self) -> Changelog:
        return Changelog(self.options.changelog_uri)

    def frontier(self) -> int:
        """Return the ts up to which everything has landed; 0 before there is one."""
        self._changelog.refresh()
        return self._changelog.frontier() or 0

    def oldest(self) -> int:
        """Return the ts above which every change can still be given."""
        self._changelog.refresh()
        kept = (one.checkpoint_ts for one in Lake(self.root).history())
        return next((ts for ts in kept if ts >= self._changelog.floor()), latest(self.options).checkpoint.ts)

    def most(self, after: int, upto: int, rows: int) -> int:
        """Return the end of a range above `after`, at most `upto`, that has about so many rows."""
        if upto <= after:
            return after
        return round_end(self._changelog.slice(after, upto).stretches(), upto, Most(rows, ROUND.size_bytes))

    def tasks(self, after: int, upto: int) -> list[ChangeTask]:
        """Return what lies in (after, upto] of the table, cut at its DDLs and into tasks.

        HistoryLost when upkeep has removed some of it, ConfigError when it has not all landed."""
        if after >= upto:
            return []
        if upto > self.frontier():
            raise ConfigError(f"{self.root} has landed up to {self._changelog.frontier()} only, before {upto}")
        base = published_at(self.options, after)
        if not reaches_back(self._changelog, base):
            raise HistoryLost(
                f"{self.root}: the changes of table {self.name} behind ts {after} were removed "
                f"(changelog-retention); they are there from ts {self.oldest()} on"
            )
        changes, round_ = planned(base, self._changelog, upto, self.options)
        steps = [step for unit in round_.units for step in unit.steps if isinstance(step, Rows)]
        mine = [step for step in steps if lowered(str(step.table.name)) == lowered(self.name)]
        return [found for step in mine for found in self._tasks(step, changes, after)]

    def _tasks(self, step: Rows, changes: ChangeSlice, after: int) -> Iterator[ChangeTask]:
        """One step in pieces of about TASK_ROWS."""
        low = max(step.after, after)
        while low < step.upto:
            part = changes.narrow(step.table.name, low, step.upto)
            end = round_end(part.stretches(), step.upto, Most(TASK_ROWS, ROUND.size_bytes))
            if part.groups:
                yield ChangeTask(step.table, self._columns_in(step.table), part.narrow(step.table.name, low, end))
            low = end

    def _columns_in(self, table: TableInfo) -> tuple[LakeColumn, ...]:
        """The columns with the ids of a table of the same name: another incarnation numbers them anew."""
        if table.incarnation == self.table.incarnation:
            return self.columns
        ids = {lowered(column.name): column.id for column in table.columns}
        return tuple(
            column if column.upstream_id < 0 else replace(column, upstream_id=ids.get(lowered(column.name), 1 << 62))
            for column in self.columns
        )

    def read(self, task: ChangeTask) -> Iterator[pa.RecordBatch]:
        """Return the typed images of one task, each once, in commit order."""
        part = task.slice
        chunks = part.batches(task.table.name, part.after, part.upto)
        options = msgspec.structs.replace(self.options, schema_change="try_evolve")
        rows = change_rows(chunks, task.table, task.columns, options)
        yield from rows.to_batches(max_chunksize=10_000)


class ChangesReader(DataSourceReader):  # type: ignore[misc]  # the library has no types
    """Reads the changes in (after, upto]; travels to tasks."""

    def __init__(self, changes: TableChanges, after: int, upto: int) -> None:
        self._changes, self._after, self._upto = changes, after, upto

    def partitions(self) -> Sequence[InputPartition]:
        """Return what tasks read."""
        return self._changes.tasks(self._after, self._upto) or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task."""
        if isinstance(partition, ChangeTask):
            yield from self._changes.read(partition)


class ChangesStream(DataSourceStreamReader):  # type: ignore[misc]  # the library has no types
    """Follows the frontier; an offset is {"ts": resolved ts}."""

    def __init__(self, changes: TableChanges, after: int, most: int) -> None:
        self._changes, self._after, self._most = changes, after, most
        self._given: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name
        """Return where the stream begins."""
        return {"ts": self._after}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name
        """Return the frontier, or less where much has landed since the last answer."""
        frontier = self._changes.frontier()
        self._given = frontier if self._given is None else self._changes.most(self._given, frontier, self._most)
        return {"ts": max(self._given, self._after)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return what the tasks of a micro-batch read."""
        self._given = end["ts"]
        return self._changes.tasks(start["ts"], end["ts"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task."""
        assert isinstance(partition, ChangeTask)
        yield from self._changes.read(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: a checkpoint of Spark's says how far the query is."""

    def stop(self) -> None:
        """Do nothing: there is no connection."""


class ChangesSource(DataSource):  # type: ignore[misc]  # the library has no types
    """`spark.read.format("tidegate")` and `spark.readStream.format("tidegate")`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._asked = {name.lower(): value for name, value in options.items()}
        check_options(self._asked, OPTIONS, required=("path", "table"))
        self._changes = TableChanges.of(self._asked["path"], self._asked["table"])

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "tidegate"

    def schema(self) -> StructType:
        """Return the table's columns and those that tell the change."""
        return self._changes.schema()

    def reader(self, schema: StructType) -> ChangesReader:  # noqa: ARG002  ours
        """Return what reads a range."""
        after, upto = self._moment("starting"), self._moment("ending")
        oldest = self._changes.oldest() if after is None else after
        return ChangesReader(self._changes, oldest, self._changes.frontier() if upto is None else upto)

    def streamReader(self, schema: StructType) -> ChangesStream:  # noqa: ARG002, N802  ours; Spark's name
        """Return what follows the frontier."""
        if "ending" in self._asked:
            raise ConfigError("a stream has no ending: option 'ending' is for spark.read")
        after = self._moment("starting")
        newest = latest(self._changes.options).checkpoint.ts if after is None else after
        return ChangesStream(self._changes, newest, int(self._asked.get("maxrowsperbatch", MOST_ROWS)))

    def _moment(self, name: str) -> int | None:
        return moment_ts(self._asked[name]) if name in self._asked else None
