"""Spark data sources: `tidegate-lake`, a table of a lake at one timestamp, and `tidegate`, row changes.

    spark.read.format("tidegate-lake").option("table", "shop.orders").load("/srv/lake")

    path       required   the lake (the argument of `load`)
    table      required   database.table
    at         latest     a TSO or a time: the newest snapshot at or below it
    live       false      includes what has landed and is not merged: exactly at that time
    columns    all        the columns to read, such as `id,total`

Snapshot, files and unmerged changes are fixed when the DataFrame is made.  A task reads a bin of files without the keys
that changed since, or the changed rows.  Filters `column = value` and `column IN (..)` on numbers and texts skip files
by their bounds, and rows; Spark 4.0 does not push filters.  No Spark tells a Python source which columns are needed:
hence `columns`.

    spark.readStream.format("tidegate").option("table", "shop.orders").load("/srv/lake")
    spark.readStream.format("tidegate").option("state", "/srv/query").load("kafka://127.0.0.1:9092/shop?protocol=…")

    path               required   a lake, or the address of a source (the argument of `load`)
    table              see below  database.table, as it is called at the newest snapshot; required for a lake, of a
                                  source all tables if none is named
    form               images     images or changes
    starting           see below  a TSO or a time: changes above it
    ending             frontier   a TSO or a time: changes up to it (not for streams)
    maxRowsPerBatch    1000000    approximate rows of a micro-batch of a stream
    state              none       of a source: the directory that keeps what has landed; one per query
    filter             table      of a source: table filter rules, separated by blanks; all tables if none is named

    form=images      the table's columns, _change_type, _commit_ts, _commit_seq, _commit_time       a row per image
    form=changes     op, commit_ts, before, after: structs of the table's columns, or NULL          a row per change
    all tables       op, schema, table, commit_ts, before, after: maps of texts, or NULL            a row per change

`op` is INSERT, UPDATE or DELETE; in form=images an UPDATE is update_preimage and update_postimage.  In maps bytes are
base64.  The columns are those of the table when the DataFrame is made; dropped and later ones are not there until the
query is restarted.  A table is followed by its name.

Nothing above the frontier is returned, so rows that arrived late are in commit order; a stream's offset is a ts.
Without `starting`, a range begins at the oldest change that is kept, a stream of a lake at the newest snapshot.

Of a topic or change log, a landing runs beside the query and fills the changelog of `state`.  The schema at a ts
depends on the statements and rows before it, so `state` also has the checkpoint that Spark committed last; a restarted
query continues from there.
"""

import base64
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType

from tidegate.changelog.changelog import Changelog
from tidegate.changelog.files import ChangeSlice
from tidegate.engine.plan import Checkpoint, Round, Rows
from tidegate.engine.ports import ROUND, Changes, LocalTasks, RoundLimit, Saved, SinkPosition, round_end
from tidegate.engine.retry_policy import Outage, RetryPolicy
from tidegate.engine.segment import Planning, plan_from
from tidegate.lakes.lake import LATEST, Lake, moment_ts
from tidegate.lakes.live import planned, reaches_back
from tidegate.lakes.read import (
    NOTHING,
    RowFilter,
    Tail,
    chosen,
    is_local,
    overlaid,
    spark_schema,
    stored_rows,
    without_keys,
)
from tidegate.model.errors import ConfigError, HistoryLost, TidegateError
from tidegate.model.name import lowered, table_key
from tidegate.model.table import TableInfo
from tidegate.objectstore.deltalog import DataFile
from tidegate.schema.state import SchemaState
from tidegate.sink.delta.columns import LakeColumn, first_schema, stored_columns
from tidegate.sink.delta.files import logical_schema, read
from tidegate.sink.delta.options import CHANGE_TS, CHANGE_TYPE, DeltaOptions
from tidegate.sink.delta.rows import COMES, NUMBER, change_columns, change_rows, row_columns
from tidegate.sink.delta.snapshots import latest, published_at

if TYPE_CHECKING:
    from tidegate.config.entry import FeedConfig

TASK_ROWS: Final = 200_000
BATCH_ROWS: Final = 10_000
IMAGES: Final = "images"
CHANGES: Final = "changes"
TEXTS: Final = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True, slots=True)
class ChangeForm:
    """The form of change rows: of `table` with its `columns`, or of all tables if it is None."""

    options: DeltaOptions
    form: str = IMAGES
    table: TableInfo | None = None
    columns: tuple[LakeColumn, ...] = ()

    @classmethod
    def of(cls, table: TableInfo, columns: Iterable[LakeColumn], options: DeltaOptions, form: str) -> "ChangeForm":
        """Return the form of the rows of a table, with columns of a lake."""
        options = msgspec.structs.replace(options, schema_change="try_evolve")
        return cls(options, form, table, tuple(change_columns(tuple(columns))))

    def schema(self) -> StructType:
        """Return the columns as Spark has them."""
        if self.table is not None and self.form == IMAGES:
            return spark_schema(self.columns)
        image = MapType(StringType(), StringType())
        named = [StructField("schema", StringType()), StructField("table", StringType())]
        if self.table is not None:
            image, named = spark_schema(row_columns(self.columns)), []
        sides = [StructField("before", image), StructField("after", image)]
        return StructType([StructField("op", StringType()), *named, StructField("commit_ts", LongType()), *sides])

    def takes(self, table: TableInfo) -> bool:
        """Return True if the changes of a table are requested."""
        return self.table is None or lowered(str(table.name)) == lowered(str(self.table.name))

    def columns_in(self, table: TableInfo) -> tuple[LakeColumn, ...]:
        """Return the columns with the ids of a table of the same name, whose other incarnation numbers them anew."""
        if self.table is None:
            return tuple(change_columns(first_schema(table, self.options).columns))
        if table.incarnation == self.table.incarnation:
            return self.columns
        ids = {lowered(column.name): column.id for column in table.columns}
        return tuple(
            column if column.upstream_id < 0 else replace(column, upstream_id=ids.get(lowered(column.name), 1 << 62))
            for column in self.columns
        )


@dataclass(frozen=True, slots=True)
class ChangeTask(InputPartition):  # type: ignore[misc]  # the library has no types
    """Rows of a table under one definition: all that `changes` contain."""

    table: TableInfo
    changes: ChangeSlice
    form: ChangeForm

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, each once, in commit order."""
        name, part = self.table.name, self.changes
        columns = self.form.columns_in(self.table)
        images = self.form.table is not None and self.form.form == IMAGES
        chunks = part.batches(name, part.after, part.upto)
        rows = change_rows(chunks, self.table, columns, self.form.options, numbered=not images)
        if not images:
            rows = paired(rows, self.table if self.form.table is None else None)
        yield from rows.to_batches(max_chunksize=BATCH_ROWS)


def tasks_of(step: Rows, changes: ChangeSlice, after: int, form: ChangeForm) -> Iterator[ChangeTask]:
    """Yield the tasks of a step above `after`, of about TASK_ROWS each."""
    low = max(step.after, after)
    while low < step.upto:
        part = changes.narrow(step.table.name, low, step.upto)
        end = round_end(part.row_ranges(), step.upto, RoundLimit(TASK_ROWS, ROUND.size_bytes))
        if part.groups:
            yield ChangeTask(step.table, part.narrow(step.table.name, low, end), form)
        low = end


def paired(images: pa.Table, named: TableInfo | None) -> pa.Table:
    """Return one row per change from numbered images. With `named`, images are maps of text and the table's name is
    added."""
    comes = pc.is_in(images.column(CHANGE_TYPE), pa.array(COMES)).to_numpy()
    numbers = images.column(NUMBER).to_numpy()
    every, first = np.unique(numbers, return_index=True)
    every = every[np.argsort(first, kind="stable")]  # in the order of their first images
    indices_by_side = {
        side: _image_indices(every, numbers, np.flatnonzero(of)) for side, of in (("before", ~comes), ("after", comes))
    }
    old, new = (indices_by_side[side] >= 0 for side in ("before", "after"))
    some = np.where(old, indices_by_side["before"], indices_by_side["after"])
    kinds = images.column(CHANGE_TYPE).take(pa.array(some))
    updates = pc.starts_with(kinds, "update").to_numpy()
    op = np.where(updates, "UPDATE", np.where(new, "INSERT", "DELETE"))
    data = images.select(images.column_names[: images.column_names.index(CHANGE_TYPE)])
    rows = {"op": pa.array(op, pa.string())}
    if named is not None:
        rows |= {name: pa.repeat(text, len(every)) for name, text in zip(("schema", "table"), named.name, strict=True)}
    rows["commit_ts"] = images.column(CHANGE_TS).take(pa.array(some))
    for side, indices in indices_by_side.items():
        side_rows = data.take(pa.array(indices, mask=indices < 0)).combine_chunks()
        if named is not None:
            rows[side] = _texts(side_rows, indices < 0)
            continue
        batches = side_rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=side_rows.schema)]
        rows[side] = pa.StructArray.from_arrays(
            batches[0].columns, fields=list(side_rows.schema), mask=pa.array(indices < 0)
        )
    return pa.table(rows)


def _image_indices(every: Any, numbers: Any, side_indices: Any) -> Any:
    """Return for each number in `every` the index of its image among `side_indices`; -1 if it has none."""
    order = np.argsort(numbers[side_indices], kind="stable")
    nearest = np.searchsorted(numbers[side_indices][order], every)
    padded = np.append(order, 0)
    matches = np.append(side_indices, -1)[np.where(nearest < len(order), padded[nearest], len(side_indices))]
    return np.where((matches >= 0) & (np.append(numbers, -1)[matches] == every), matches, -1)


def _texts(rows: pa.Table, missing: Any) -> Any:
    """Return a map per row, from column names to values as text."""
    columns = [_text(column) for column in rows.columns]
    width, count = len(columns), rows.num_rows
    order = np.arange(width * count, dtype=np.int64).reshape(width, count).T[~missing].ravel()
    values = pa.concat_arrays([column.combine_chunks() for column in columns]).take(pa.array(order))
    names = pa.array(rows.column_names).take(pa.array(order // max(count, 1)))
    ends = np.concatenate(([0], np.cumsum(~missing) * width)).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(ends, mask=np.append(missing, False)), names, values)


def _text(column: Any) -> Any:
    if pa.types.is_binary(column.type):
        texts = [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    return column.cast(pa.string())


OPTIONS: Final = frozenset({"path", "table", "at", "live", "columns"})
BIN_BYTES: Final = 32 << 20
"""Stored bytes of one task."""
PUSHED: Final = (int, str, Decimal)
"""Types whose values mean the same to Spark and to a lake's bounds; a time depends on the session's zone."""


@dataclass(frozen=True, slots=True)
class Files(InputPartition):  # type: ignore[misc]  # the library has no types
    """Data files of a table; the rows of the tail are in a separate partition."""

    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class Newer(InputPartition):  # type: ignore[misc]  # the library has no types
    """The rows of the tail."""


@dataclass(frozen=True, slots=True)
class TableView:
    """A table at one moment, as sent to tasks: its files, and the tail that follows them."""

    table: TableInfo
    uri: str
    files: tuple[DataFile, ...]
    stored: tuple[LakeColumn, ...]
    tail: Tail
    names: tuple[str, ...]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "TableView":
        """Return the view for a reader's options. Raises ConfigError for missing, unknown or invalid ones."""
        requested = {name.lower(): value for name, value in options.items()}
        check_options(requested, OPTIONS, required=("path", "table"))
        name = requested["table"]
        lake = Lake(requested["path"], requested.get("at", LATEST))
        if requested.get("live", "false").lower() == "true":
            with lake.live() as view:
                table, (stored, tail) = view.definition(name), view.pieces(name)
                files = stored.files()
                if view.is_clone(stored):  # it ends with the view
                    if not is_local(stored):
                        raise ConfigError(
                            f"table {table.name}: a DDL arrived since the last snapshot, so its live rows would have "
                            f"to be written: read it without live, or retry when the changefeed has merged it"
                        )
                    files, tail = (), Tail((stored_rows(stored),))
        else:
            table, stored, tail = lake.definition(name), lake.stored(name), NOTHING
            files = stored.files()
        columns = tuple(stored_columns(stored))
        every = [column.name for column in columns]
        return cls(table, stored.uri, files, columns, tail, tuple(chosen(_names(requested), every, table) or every))

    def schema(self) -> StructType:
        """Return the columns as Spark has them."""
        by_name = {column.name: column for column in self.stored}
        return spark_schema([by_name[name] for name in self.names])

    def row_filter(self, filters: "Iterable[datasource.Filter]") -> RowFilter:
        """Return the row filter that some of Spark's filters imply, as far as bounds can be compared with it."""
        row_filter = RowFilter()
        for filter_ in filters:
            if not isinstance(filter_, datasource.EqualTo | datasource.In) or len(filter_.attribute) != 1:
                continue
            values = [filter_.value] if isinstance(filter_, datasource.EqualTo) else list(filter_.value)
            if not all(type(value) in PUSHED for value in values):
                continue
            try:
                more = RowFilter.of({filter_.attribute[0]: values}, self.stored, self.table)
            except ConfigError:  # no value of this column: Spark decides
                continue
            row_filter = RowFilter((*row_filter.columns, *more.columns), (*row_filter.values, *more.values))
        return row_filter

    def bins(self, row_filter: RowFilter) -> list[InputPartition]:
        """Return the files that may contain such rows, in bins of about BIN_BYTES, and the tail if there is one."""
        bins: list[list[DataFile]] = []
        left = 0
        for file in self.files:
            if not row_filter.may_match(file):
                continue
            if left <= 0:
                bins.append([])
                left = BIN_BYTES
            bins[-1].append(file)
            left -= file.size_bytes
        return [*(Files(tuple(files)) for files in bins), *([] if self.tail.empty else [Newer()])]

    def rows(self, partition: InputPartition, row_filter: RowFilter) -> Iterator[pa.Table]:
        """Yield the rows of a partition, a table per file."""
        if isinstance(partition, Newer):
            tables: Iterable[pa.Table] = [overlaid(logical_schema(self.stored).empty_table(), self.tail)]
        else:
            assert isinstance(partition, Files)
            tables = (without_keys(read(self.uri, file, self.stored), self.tail) for file in partition.files)
        for table in tables:
            yield row_filter.matching(table).select(list(self.names))


class LakeReader(DataSourceReader):  # type: ignore[misc]  # the library has no types
    """Reads a table's view; is sent to tasks."""

    def __init__(self, view: TableView) -> None:
        self._view, self._row_filter = view, RowFilter()

    def pushFilters(self, filters: "list[datasource.Filter]") -> "Iterable[datasource.Filter]":  # noqa: N802  Spark's name
        """Use the filters that bounds can be compared with; Spark evaluates all of them again."""
        self._row_filter = self._view.row_filter(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return self._view.bins(self._row_filter) or [Files(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for rows in self._view.rows(partition, self._row_filter):
            yield from rows.to_batches(max_chunksize=10_000)


class LakeSource(DataSource):  # type: ignore[misc]  # the library has no types
    """`spark.read.format("tidegate-lake")`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._view = TableView.of(options)

    @classmethod
    def name(cls) -> str:
        return "tidegate-lake"

    def schema(self) -> StructType:
        return self._view.schema()

    def reader(self, schema: StructType) -> LakeReader:  # noqa: ARG002  ours
        return LakeReader(self._view)


def check_options(options: Mapping[str, str], names: Iterable[str], *, required: Sequence[str] = ()) -> None:
    """Raise ConfigError for unknown and for missing options."""
    unknown = sorted(options.keys() - set(names))
    if unknown:
        raise ConfigError(f"unknown option {unknown[0]!r}; known options: {', '.join(sorted(names))}")
    for name in required:
        if not options.get(name):
            raise ConfigError(f"option {name!r} is missing")


def _names(options: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in options.get("columns", "").split(",") if name.strip()]


LOGGER: Final = logging.getLogger(__name__)
POLL_S: Final = 0.1
LANDED_AT_ONCE: Final = 200_000
"""Most messages of a batch: the tasks of a query read while the next batch lands, and a stop waits for one."""


class SourceChanges:
    """The changes of a source, on the driver; `close` stops it."""

    def __init__(self, config: "FeedConfig", name: str | None, form: str) -> None:
        from tidegate.config.entry import checkpoints_of
        from tidegate.config.registry import landed_source  # only the driver needs what it loads

        self._config, self._name, self._form = config, name, form
        self._source = landed_source(_in_small_batches(config))
        self._checkpoints = checkpoints_of(config)
        self._reading = False
        self._positions: dict[int, SinkPosition] = {}
        """Positions at the end of planned ranges, which Spark may request again."""
        self._outage = Outage(RetryPolicy(config.source.max_retry, config.stuck_ms / 1000))
        self._again_s = 0.0
        rules = config.table_filter()
        self._rules = Planning(rules.matches, config.events.ddls(), rules.takes_ddl)

    def close(self) -> None:
        if self._reading:
            self._source.stop()

    def oldest(self) -> int:
        """Return the timestamp above which every change can still be read."""
        return self._saved().checkpoint.ts

    def form(self) -> ChangeForm:
        """Return the form of the rows of the table as far as the source has defined it, or of all tables.

        Lands until the table is defined. Raises ConfigError if it does not exist."""
        options = DeltaOptions(root="", feed=self._config.name, time_zone=self._config.time_zone, exact_keys=False)
        if self._name is None:
            return ChangeForm(options)
        table = self._definition(self._name)
        return ChangeForm.of(table, first_schema(table, options).columns, options, self._form)

    def frontier(self) -> int:
        """Return the timestamp up to which everything has landed; 0 if nothing has. Raises the error that ends the
        landing."""
        if not self._reading:
            self._start()
            self._reading = True
        self._surviving(self._source.refresh)
        failure = self._source.failure()
        if failure is None:
            self._outage.recovered()
        elif time.monotonic() >= self._again_s:
            self._failed(failure)
            self._surviving(self._start)
        return self._source.frontier() or 0

    def landed(self, upto: int | None, within_s: float = math.inf) -> int:
        """Land up to `upto`, or all that the source has now, for at most `within_s`; return the frontier."""
        end_s = time.monotonic() + within_s
        while (frontier := self.frontier()) < (upto or 1 << 63) and time.monotonic() < end_s:
            if upto is None and self._source.idle():
                return self.frontier()
            time.sleep(POLL_S)
        return frontier

    def most(self, after: int, upto: int, rows: int) -> int:
        """Return the end of a range above `after`, at most `upto`, of about `rows` rows."""
        if upto <= after:
            return after
        return round_end(self._source.changes(after, upto).row_ranges(), upto, RoundLimit(rows, ROUND.size_bytes))

    def tasks(self, after: int, upto: int, form: ChangeForm) -> list[ChangeTask]:
        """Return the tasks of (after, upto], cut at DDLs. Raises HistoryLost if its changes are no longer there."""
        self.frontier()
        after, upto = map(self._source.rests_at, (after, upto))
        position = self._positions.get(after) or self._saved()
        if position.checkpoint.ts > after:
            raise HistoryLost(
                f"{self._config.state_dir} keeps changes above ts {position.checkpoint.ts}, but those above {after} "
                f"are requested: another query has released them. Use a separate `state` for each query"
            )
        tasks: list[ChangeTask] = []
        for round_, changes in self._rounds(position, upto):
            steps = round_.row_steps
            own_steps = [step for step in steps if form.takes(step.table)]
            tasks += [task for step in own_steps for task in tasks_of(step, changes, after, form)]  # type: ignore[arg-type]
            position = SinkPosition(round_.checkpoint, round_.state)
        self._positions[upto] = position
        return tasks

    def done(self, ts: int) -> None:
        """Release the changes at or below `ts`, which are not read again."""
        position = self._positions.get(ts)
        self._positions = {end_ts: end for end_ts, end in self._positions.items() if end_ts >= ts}
        if position is not None:
            self._checkpoints.save(Saved(position, {}))
            self._source.release(ts)

    def _start(self) -> None:
        self._checkpoints.prepare()
        self._source.start(LocalTasks(pickles=False), self._saved().checkpoint.ts)

    def _saved(self) -> SinkPosition:
        saved = self._checkpoints.load()
        return SinkPosition(Checkpoint(), SchemaState(), is_new=True) if saved is None else saved.position

    def _rounds(self, position: SinkPosition, upto: int) -> Iterator[tuple[Round, Changes]]:
        """Plan from `position` to `upto`, leaving out what cannot be applied if that is allowed."""
        while (after := position.checkpoint.ts) < upto:
            whole = self._source.changes(after, upto)
            try:
                round_, changes = plan_from(self._source, position, whole, upto, self._rules)
            except TidegateError as error:
                if not self._source.refused(error):
                    raise
                self._source.refresh()
                continue
            yield round_, changes
            position = SinkPosition(round_.checkpoint, round_.state)

    def _definition(self, name: str) -> TableInfo:
        self._source.refresh()
        idle = False
        while True:
            position = self._saved()
            for round_, _ in self._rounds(position, self._source.frontier() or 0):
                position = SinkPosition(round_.checkpoint, round_.state)
            tables = {lowered(str(table.name)): table for table in position.state.tables.values()}
            if (table := tables.get(table_key(name))) is not None:
                return table
            if idle:
                names = ", ".join(sorted(str(table.name) for table in tables.values())) or "none"
                raise ConfigError(f"{self._config.source_uri} has told no table {name}; it has: {names}")
            self.frontier()
            idle = self._source.idle()
            self.frontier()
            time.sleep(POLL_S)

    def _surviving(self, work: Callable[[], object]) -> None:
        """Call `work`; errors that may pass delay the next try, others are raised."""
        try:
            work()
        except TidegateError as error:
            self._failed(error)

    def _failed(self, error: TidegateError) -> None:
        pause_s = self._outage.pause_s(error)
        LOGGER.warning("%s: %s; retrying in %.0f s", self._config.name, error, pause_s)
        self._again_s = time.monotonic() + pause_s


def _in_small_batches(config: "FeedConfig") -> "FeedConfig":
    from tidegate.source.kafka_options import KafkaTopics

    source = config.source
    if not isinstance(source, KafkaTopics):
        return config
    most = min(source.max_messages_per_batch, LANDED_AT_ONCE)
    return replace(config, source=msgspec.structs.replace(source, max_messages_per_batch=most))


CHANGE_OPTIONS: Final = frozenset({"path", "table", "form", "starting", "ending", "maxrowsperbatch", "state", "filter"})
OF_SOURCES: Final = ("state", "filter")
MOST_ROWS: Final = 1_000_000
FIRST_S: Final = 30.0
"""Time that a new query waits for what its source has: with `availableNow` it requests that once."""


@dataclass(frozen=True)
class TableChanges:
    """The changes of a table of a lake."""

    root: str
    name: str
    options: DeltaOptions
    rows_as: str = IMAGES

    @classmethod
    def of(cls, root: str, name: str, form: str = IMAGES) -> "TableChanges":
        """Return the changes of a table. Raises ConfigError if there is no lake."""
        followed = Lake(root).snapshot.options
        assert followed is not None, "a published snapshot has options"
        return cls(root, name, followed, form)

    def form(self) -> ChangeForm:
        """Return the form of the rows, with the current columns. Raises ConfigError if there is no such table."""
        lake = Lake(self.root)
        return ChangeForm.of(
            lake.definition(self.name), stored_columns(lake.stored(self.name)), self.options, self.rows_as
        )

    @cached_property
    def _changelog(self) -> Changelog:
        return Changelog(self.options.changelog_uri)

    def frontier(self) -> int:
        self._changelog.refresh()
        return self._changelog.frontier() or 0

    def landed(self, upto: int | None, within_s: float = 0.0) -> int:  # noqa: ARG002  its changefeed feeds a lake
        return self.frontier()

    def oldest(self) -> int:
        self._changelog.refresh()
        checkpoints = (snapshot.checkpoint_ts for snapshot in Lake(self.root).history())
        return next((ts for ts in checkpoints if ts >= self._changelog.floor()), latest(self.options).checkpoint.ts)

    def most(self, after: int, upto: int, rows: int) -> int:
        if upto <= after:
            return after
        return round_end(self._changelog.slice(after, upto).row_ranges(), upto, RoundLimit(rows, ROUND.size_bytes))

    def tasks(self, after: int, upto: int, form: ChangeForm) -> list[ChangeTask]:
        """Return the tasks of (after, upto] of the table, cut at its DDLs.

        Raises HistoryLost if upkeep has removed a part of it, ConfigError if not all of it has landed."""
        frontier = self.frontier()
        after, upto = map(self._changelog.rests_at, (after, upto))
        if after >= upto:
            return []
        if upto > frontier:
            raise ConfigError(f"{self.root} has landed up to {frontier} only, before {upto}")
        base = published_at(self.options, after)
        if not reaches_back(self._changelog, base):
            raise HistoryLost(
                f"{self.root}: the changes of table {self.name} behind ts {after} were removed (changelog-retention); "
                f"changes are kept above ts {self.oldest()}"
            )
        changes, round_ = planned(base, self._changelog, upto, self.options)
        steps = round_.row_steps
        return [task for step in steps if form.takes(step.table) for task in tasks_of(step, changes, after, form)]

    def done(self, ts: int) -> None:
        """Do nothing: the lake's changefeed decides how long changes are kept."""

    def close(self) -> None:
        """Do nothing."""


ReadableChanges: TypeAlias = SourceChanges | TableChanges


def changes_of(options: Mapping[str, str]) -> ReadableChanges:
    """Return the changes for a reader's options. Raises ConfigError for missing, unknown or invalid ones."""
    check_options(options, CHANGE_OPTIONS, required=("path",))
    if options.get("form", IMAGES) not in {IMAGES, CHANGES}:
        raise ConfigError(f"option 'form' is {IMAGES} or {CHANGES}, not {options['form']!r}")
    path = options["path"]
    if path.startswith(("kafka://", "tidb://")):
        return _source_changes(options)
    check_options(options, CHANGE_OPTIONS.difference(OF_SOURCES), required=("table",))
    return TableChanges.of(path, options["table"], options.get("form", IMAGES))


def _source_changes(options: Mapping[str, str]) -> SourceChanges:
    from tidegate.config.changefeed import OWN
    from tidegate.config.load import load

    check_options(options, CHANGE_OPTIONS, required=("path", "state"))
    table = options.get("table")
    rules = options["filter"].split() if "filter" in options else [table] if table else []
    config = load(source_uri=options["path"], sink_uri=OWN, rules=rules, state_dir=options["state"], name="spark")
    return SourceChanges(config, table, options.get("form", IMAGES))


class ChangesReader(DataSourceReader):  # type: ignore[misc]  # the library has no types
    """Reads the changes of a range; is sent to tasks."""

    def __init__(self, tasks: Sequence[ChangeTask]) -> None:
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        return self._tasks or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ChangeTask):
            yield from partition.read()


class ChangesStream(DataSourceStreamReader):  # type: ignore[misc]  # the library has no types
    """Follows the frontier; an offset is {"ts": resolved ts}. The driver opens the source when Spark first calls it."""

    def __init__(self, options: Mapping[str, str], form: ChangeForm) -> None:
        self._options, self._form = dict(options), form
        self._after = _ts(options.get("starting"))
        self._rows_max = int(options.get("maxrowsperbatch", MOST_ROWS))
        self._latest: int | None = None

    @cached_property
    def _changes(self) -> ReadableChanges:
        return changes_of(self._options)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name
        """Return the start of the stream: of a lake its newest snapshot, of a source the oldest change that is kept."""
        if self._after is None:
            changes = self._changes
            newest = latest(changes.options).checkpoint.ts if isinstance(changes, TableChanges) else None
            self._after = changes.oldest() if newest is None else newest
        return {"ts": self._after}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name
        """Return the frontier, or less if much has landed since the last call."""
        if self._latest is None:
            self._latest = self._changes.landed(None, FIRST_S)
        else:
            self._latest = self._changes.most(self._latest, self._changes.frontier(), self._rows_max)
        return {"ts": max(self._latest, self._after or 0)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch; those of the last one again after a restart."""
        return self._changes.tasks(start["ts"], end["ts"], self._form)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ChangeTask)
        yield from partition.read()

    def commit(self, end: dict[str, int]) -> None:
        self._changes.done(end["ts"])

    def stop(self) -> None:
        if "_changes" in self.__dict__:
            self._changes.close()


class ChangesSource(DataSource):  # type: ignore[misc]  # the library has no types
    """`spark.read.format("tidegate")` and `spark.readStream.format("tidegate")`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._options = {name.lower(): value for name, value in options.items()}
        with closing(changes_of(self._options)) as changes:
            self._form = changes.form()

    @classmethod
    def name(cls) -> str:
        return "tidegate"

    def schema(self) -> StructType:
        return self._form.schema()

    def reader(self, schema: StructType) -> ChangesReader:  # noqa: ARG002  ours
        with closing(changes_of(self._options)) as changes:
            upto = _ts(self._options.get("ending"))
            frontier = changes.landed(upto)
            after = _ts(self._options.get("starting"))
            after = changes.oldest() if after is None else after
            return ChangesReader(changes.tasks(after, frontier if upto is None else upto, self._form))

    def streamReader(self, schema: StructType) -> ChangesStream:  # noqa: ARG002, N802  Spark's name
        """Return a reader that follows the frontier. Raises ConfigError for `ending`: a stream has none."""
        if "ending" in self._options:
            raise ConfigError("option 'ending' is for ranges: a stream has no end")
        return ChangesStream(self._options, self._form)


def _ts(moment: str | None) -> int | None:
    return None if moment is None else moment_ts(moment)
