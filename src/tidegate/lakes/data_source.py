"""Spark data sources: `tidegate-lake`, a table of a lake at one timestamp, and `tidegate`, row changes.

    spark.read.format("tidegate-lake").option("table", "shop.orders").load("/srv/lake")

    path       required   the lake (the argument of `load`)
    table      required   database.table
    at         latest     a TSO or a time: the newest snapshot at or below it
    live       false      includes what has landed and is not merged: exactly at that time
    columns    all        the columns to read, such as `id,total`

Snapshot, files and unmerged changes are fixed when the DataFrame is made.  A task reads a bin of files without the keys
that changed since, or the changed rows.  Filters `column = value` and `column IN (..)` on numbers and texts skip files
by their bounds, and rows.  Spark 4.1 does not tell a Python source which columns are needed: hence `columns`.

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

Nothing above the frontier is returned, so rows that arrived late are in their order; a stream's offset is a ts.
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
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    In,
    InputPartition,
)
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
    Tail,
    Wanted,
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
from tidegate.objectstore.deltalog import DataFile, TableSnapshot
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
    """How changes become rows: of `table` with its `columns`, or of all tables where there is none."""

    options: DeltaOptions
    form: str = IMAGES
    table: TableInfo | None = None
    columns: tuple[LakeColumn, ...] = ()

    @classmethod
    def of(cls, table: TableInfo, columns: Iterable[LakeColumn], options: DeltaOptions, form: str) -> "ChangeForm":
        """Return the form of rows of one table with some of the columns of a lake."""
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
        """Return True for a table whose changes are asked for."""
        return self.table is None or lowered(str(table.name)) == lowered(str(self.table.name))

    def columns_in(self, table: TableInfo) -> tuple[LakeColumn, ...]:
        """Return the columns with the ids of a table of the same name: another incarnation numbers them anew."""
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
    """Rows of a table with one definition, all that `changes` hold."""

    table: TableInfo
    changes: ChangeSlice
    form: ChangeForm

    def read(self) -> Iterator[pa.RecordBatch]:
        """Return the rows, each once, in commit order."""
        name, part = self.table.name, self.changes
        columns = self.form.columns_in(self.table)
        images = self.form.table is not None and self.form.form == IMAGES
        chunks = part.batches(name, part.after, part.upto)
        rows = change_rows(chunks, self.table, columns, self.form.options, numbered=not images)
        if not images:
            rows = paired(rows, self.table if self.form.table is None else None)
        yield from rows.to_batches(max_chunksize=BATCH_ROWS)


def tasks_of(step: Rows, changes: ChangeSlice, after: int, form: ChangeForm) -> Iterator[ChangeTask]:
    """Return the tasks of one step above `after`, of about TASK_ROWS each."""
    low = max(step.after, after)
    while low < step.upto:
        part = changes.narrow(step.table.name, low, step.upto)
        end = round_end(part.row_ranges(), step.upto, RoundLimit(TASK_ROWS, ROUND.size_bytes))
        if part.groups:
            yield ChangeTask(step.table, part.narrow(step.table.name, low, end), form)
        low = end


def paired(images: pa.Table, named: TableInfo | None) -> pa.Table:
    """Return one row for each change of some numbered images; with `named` sides are maps of texts, and the table's
    name stands with them."""
    comes = pc.is_in(images.column(CHANGE_TYPE), pa.array(COMES)).to_numpy()
    numbers = images.column(NUMBER).to_numpy()
    every, first = np.unique(numbers, return_index=True)
    every = every[np.argsort(first, kind="stable")]  # in the order of their first images
    places = {side: _places(every, numbers, np.flatnonzero(of)) for side, of in (("before", ~comes), ("after", comes))}
    old, new = (places[side] >= 0 for side in ("before", "after"))
    some = np.where(old, places["before"], places["after"])
    kinds = images.column(CHANGE_TYPE).take(pa.array(some))
    updates = pc.starts_with(kinds, "update").to_numpy()
    op = np.where(updates, "UPDATE", np.where(new, "INSERT", "DELETE"))
    data = images.select(images.column_names[: images.column_names.index(CHANGE_TYPE)])
    rows = {"op": pa.array(op, pa.string())}
    if named is not None:
        rows |= {name: pa.repeat(text, len(every)) for name, text in zip(("schema", "table"), named.name, strict=True)}
    rows["commit_ts"] = images.column(CHANGE_TS).take(pa.array(some))
    for side, at in places.items():
        side_rows = data.take(pa.array(at, mask=at < 0)).combine_chunks()
        if named is not None:
            rows[side] = _texts(side_rows, at < 0)
            continue
        batches = side_rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=side_rows.schema)]
        rows[side] = pa.StructArray.from_arrays(
            batches[0].columns, fields=list(side_rows.schema), mask=pa.array(at < 0)
        )
    return pa.table(rows)


def _places(every: Any, numbers: Any, places: Any) -> Any:
    """Where in the images the change of each number has its image of one side; -1 where it has none."""
    order = np.argsort(numbers[places], kind="stable")
    found = np.searchsorted(numbers[places][order], every)
    padded = np.append(order, 0)
    ours = np.append(places, -1)[np.where(found < len(order), padded[found], len(places))]
    return np.where((ours >= 0) & (np.append(numbers, -1)[ours] == every), ours, -1)


def _texts(rows: pa.Table, missing: Any) -> Any:
    """A map for each row, from the names of columns to their values as texts."""
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
"""Values that mean the same to Spark and to a lake's bounds; a time depends on the session's zone."""


@dataclass(frozen=True, slots=True)
class Files(InputPartition):  # type: ignore[misc]  # the library has no types
    """Some data files of a table; rows of the tail are in a partition of their own."""

    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class Newer(InputPartition):  # type: ignore[misc]  # the library has no types
    """The rows that the tail brings."""


@dataclass(frozen=True, slots=True)
class TableView:
    """One table at one moment, as it travels to tasks: where its files lie, and what follows them."""

    table: TableInfo
    uri: str
    files: tuple[DataFile, ...]
    stored: tuple[LakeColumn, ...]
    tail: Tail
    names: tuple[str, ...]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "TableView":
        """Return what the options of a reader ask for. ConfigError for those that are missing, unknown or wrong."""
        asked = {name.lower(): value for name, value in options.items()}
        check_options(asked, OPTIONS, required=("path", "table"))
        name = asked["table"]
        lake = Lake(asked["path"], asked.get("at", LATEST))
        if asked.get("live", "false").lower() == "true":
            with lake.live() as view:
                table, (found, tail) = view.definition(name), view.pieces(name)
                files, tail = (found.files(), tail) if not view.is_clone(found) else ((), _held(found, table))
        else:
            table, found, tail = lake.definition(name), lake.stored(name), NOTHING
            files = found.files()
        columns = tuple(stored_columns(found))
        every = [column.name for column in columns]
        return cls(table, found.uri, files, columns, tail, tuple(chosen(_names(asked), every, table) or every))

    def schema(self) -> StructType:
        """Return the columns as Spark has them."""
        by_name = {column.name: column for column in self.stored}
        return spark_schema([by_name[name] for name in self.names])

    def wanted(self, filters: Iterable[Filter]) -> Wanted:
        """Return what some filters ask for, as far as bounds can answer it."""
        found = Wanted()
        for one in filters:
            if not isinstance(one, EqualTo | In) or len(one.attribute) != 1:
                continue
            values = [one.value] if isinstance(one, EqualTo) else list(one.value)
            if not all(type(value) in PUSHED for value in values):
                continue
            try:
                more = Wanted.of({one.attribute[0]: values}, self.stored, self.table)
            except ConfigError:  # no value of this column: Spark decides
                continue
            found = Wanted((*found.columns, *more.columns), (*found.values, *more.values))
        return found

    def bins(self, wanted: Wanted) -> list[InputPartition]:
        """Return the files that can hold such rows, in bins of about BIN_BYTES, and the tail if there is one."""
        bins: list[list[DataFile]] = []
        left = 0
        for file in self.files:
            if not wanted.may_lie_in(file):
                continue
            if left <= 0:
                bins.append([])
                left = BIN_BYTES
            bins[-1].append(file)
            left -= file.size_bytes
        return [*(Files(tuple(files)) for files in bins), *([] if self.tail.empty else [Newer()])]

    def rows(self, partition: InputPartition, wanted: Wanted) -> Iterator[pa.Table]:
        """Return the rows of one partition, a table a file."""
        if isinstance(partition, Newer):
            tables: Iterable[pa.Table] = [overlaid(logical_schema(self.stored).empty_table(), self.tail)]
        else:
            assert isinstance(partition, Files)
            tables = (without_keys(read(self.uri, file, self.stored), self.tail) for file in partition.files)
        for table in tables:
            yield wanted.among(table).select(list(self.names))


def _held(clone: TableSnapshot, table: TableInfo) -> Tail:
    """The rows of a clone, which goes with its view."""
    if not is_local(clone):
        raise ConfigError(
            f"table {table.name}: a DDL came since the last snapshot, so its live rows would have to be written: read "
            "it without live, or again when the feed has merged them"
        )
    return Tail((stored_rows(clone),))


class LakeReader(DataSourceReader):  # type: ignore[misc]  # the library has no types
    """Reads a table's view; travels to tasks."""

    def __init__(self, view: TableView) -> None:
        self._view, self._wanted = view, Wanted()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Take what bounds can answer; Spark evaluates all of them again."""
        self._wanted = self._view.wanted(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return self._view.bins(self._wanted) or [Files(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for rows in self._view.rows(partition, self._wanted):
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


def check_options(asked: Mapping[str, str], known: Iterable[str], *, required: Sequence[str] = ()) -> None:
    """Raise ConfigError for options that nobody knows, and for those that are missing."""
    unknown = sorted(asked.keys() - set(known))
    if unknown:
        raise ConfigError(f"no option {unknown[0]!r}; there are: {', '.join(sorted(known))}")
    for name in required:
        if not asked.get(name):
            raise ConfigError(f"option {name!r} is missing")


def _names(asked: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in asked.get("columns", "").split(",") if name.strip()]


LOGGER: Final = logging.getLogger(__name__)
POLL_S: Final = 0.1
LANDED_AT_ONCE: Final = 200_000
"""Messages of a batch, at most: the tasks of a query read while the next batch lands, and a stop waits for one."""


class SourceChanges:
    """The changes of a source, on the driver; `close` ends what it began."""

    def __init__(self, config: "FeedConfig", name: str | None, form: str) -> None:
        from tidegate.config.entry import checkpoints_of
        from tidegate.config.registry import landed_source  # only the driver needs what it loads

        self._config, self._name, self._form = config, name, form
        self._source = landed_source(_in_small_batches(config))
        self._checkpoints = checkpoints_of(config)
        self._reading = False
        self._positions: dict[int, SinkPosition] = {}
        """Where ranges that were round_ end, those that Spark may ask for again."""
        self._outage = Outage(RetryPolicy(config.source.max_retry, config.stuck_ms / 1000))
        self._again_s = 0.0
        rules = config.table_filter()
        self._rules = Planning(rules.matches, config.events.ddls(), rules.takes_ddl)

    def close(self) -> None:
        if self._reading:
            self._source.stop()

    def oldest(self) -> int:
        """Return the ts above which every change can still be read."""
        return self._saved().checkpoint.ts

    def form(self) -> ChangeForm:
        """Return the form of rows of the table as the source has told it so far, or of all tables.

        Lands until the table is told. ConfigError for one that is not there."""
        options = DeltaOptions(root="", feed=self._config.name, time_zone=self._config.time_zone, exact_keys=False)
        if self._name is None:
            return ChangeForm(options)
        table = self._definition(self._name)
        return ChangeForm.of(table, first_schema(table, options).columns, options, self._form)

    def frontier(self) -> int:
        """Return the ts up to which everything has landed; 0 before there is one. Raises what ends the landing."""
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
        """Land up to `upto`, or all that the source has now, if it takes no longer; return the frontier."""
        end_s = time.monotonic() + within_s
        while (frontier := self.frontier()) < (upto or 1 << 63) and time.monotonic() < end_s:
            if upto is None and self._source.idle():
                return self.frontier()
            time.sleep(POLL_S)
        return frontier

    def most(self, after: int, upto: int, rows: int) -> int:
        """Return the end of a range above `after`, at most `upto`, that has about so many rows."""
        if upto <= after:
            return after
        return round_end(self._source.changes(after, upto).row_ranges(), upto, RoundLimit(rows, ROUND.size_bytes))

    def tasks(self, after: int, upto: int, form: ChangeForm) -> list[ChangeTask]:
        """Return what lies in (after, upto], cut at DDLs and into tasks. HistoryLost for what is no longer there."""
        self.frontier()
        position = self._positions.get(after) or self._saved()
        if position.checkpoint.ts > after:
            raise HistoryLost(
                f"{self._config.state_dir} keeps the changes above ts {position.checkpoint.ts}, and those above "
                f"{after} are asked for: a query has read them. Give each query a `state` of its own"
            )
        tasks: list[ChangeTask] = []
        for round_, changes in self._rounds(position, upto):
            steps = round_.row_steps
            mine = [step for step in steps if form.takes(step.table)]
            tasks += [task for step in mine for task in tasks_of(step, changes, after, form)]  # type: ignore[arg-type]
            position = SinkPosition(round_.checkpoint, round_.state)
        self._positions[upto] = position
        return tasks

    def done(self, ts: int) -> None:
        """Release the changes at or below `ts`: they are not read again."""
        position = self._positions.get(ts)
        self._positions = {at: one for at, one in self._positions.items() if at >= ts}
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
        """Plan from `position` to `upto`, without what nobody can apply if it may be left out."""
        while (at := position.checkpoint.ts) < upto:
            whole = self._source.changes(at, upto)
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
                known = ", ".join(sorted(str(one.name) for one in tables.values())) or "none"
                raise ConfigError(f"{self._config.source_uri} has told no table {name}; it has: {known}")
            self.frontier()
            idle = self._source.idle()
            self.frontier()
            time.sleep(POLL_S)

    def _surviving(self, work: Callable[[], object]) -> None:
        """Do some work whose errors may pass; raises those that do not, or that last too long."""
        try:
            work()
        except TidegateError as error:
            self._failed(error)

    def _failed(self, error: TidegateError) -> None:
        pause_s = self._outage.pause_s(error)
        LOGGER.warning("%s: %s; trying again in %.0f s", self._config.name, error, pause_s)
        self._again_s = time.monotonic() + pause_s


def _in_small_batches(config: "FeedConfig") -> "FeedConfig":
    from tidegate.config.kafka import KafkaSource

    source = config.source
    if not isinstance(source, KafkaSource):
        return config
    most = min(source.max_messages_per_batch, LANDED_AT_ONCE)
    return replace(config, source=msgspec.structs.replace(source, max_messages_per_batch=most))


CHANGE_OPTIONS: Final = frozenset({"path", "table", "form", "starting", "ending", "maxrowsperbatch", "state", "filter"})
OF_SOURCES: Final = ("state", "filter")
MOST_ROWS: Final = 1_000_000
FIRST_S: Final = 30.0
"""How long a query waits for what its source has when it begins: with `availableNow` it asks once."""


@dataclass(frozen=True)
class TableChanges:
    """The changes of one table of a lake."""

    root: str
    name: str
    options: DeltaOptions
    rows_as: str = IMAGES

    @classmethod
    def of(cls, root: str, name: str, form: str = IMAGES) -> "TableChanges":
        """Return the changes of a table. ConfigError for a lake that is not there."""
        followed = Lake(root).snapshot.options
        assert followed is not None, "a published snapshot has options"
        return cls(root, name, followed, form)

    def form(self) -> ChangeForm:
        """Return what rows are, with the columns of now. ConfigError for a table that is not there."""
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
        kept = (one.checkpoint_ts for one in Lake(self.root).history())
        return next((ts for ts in kept if ts >= self._changelog.floor()), latest(self.options).checkpoint.ts)

    def most(self, after: int, upto: int, rows: int) -> int:
        if upto <= after:
            return after
        return round_end(self._changelog.slice(after, upto).row_ranges(), upto, RoundLimit(rows, ROUND.size_bytes))

    def tasks(self, after: int, upto: int, form: ChangeForm) -> list[ChangeTask]:
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
        steps = round_.row_steps
        return [task for step in steps if form.takes(step.table) for task in tasks_of(step, changes, after, form)]

    def done(self, ts: int) -> None:
        """Do nothing: the lake's changefeed says how long changes are kept."""

    def close(self) -> None:
        """Do nothing."""


ReadableChanges: TypeAlias = SourceChanges | TableChanges


def changes_of(asked: Mapping[str, str]) -> ReadableChanges:
    """Return what the options of a reader ask for. ConfigError for those that are missing, unknown or wrong."""
    check_options(asked, CHANGE_OPTIONS, required=("path",))
    if asked.get("form", IMAGES) not in {IMAGES, CHANGES}:
        raise ConfigError(f"option 'form' is {IMAGES} or {CHANGES}, not {asked['form']!r}")
    path = asked["path"]
    if path.startswith(("kafka://", "tidb://")):
        return _source_changes(asked)
    check_options(asked, CHANGE_OPTIONS.difference(OF_SOURCES), required=("table",))
    return TableChanges.of(path, asked["table"], asked.get("form", IMAGES))


def _source_changes(asked: Mapping[str, str]) -> SourceChanges:
    from tidegate.config.changefeed import OWN
    from tidegate.config.load import load

    check_options(asked, CHANGE_OPTIONS, required=("path", "state"))
    table = asked.get("table")
    rules = asked["filter"].split() if "filter" in asked else [table] if table else []
    config = load(source_uri=asked["path"], sink_uri=OWN, rules=rules, state_dir=asked["state"], name="spark")
    return SourceChanges(config, table, asked.get("form", IMAGES))


class ChangesReader(DataSourceReader):  # type: ignore[misc]  # the library has no types
    """Reads the changes of a range; travels to tasks."""

    def __init__(self, tasks: Sequence[ChangeTask]) -> None:
        self._tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        return self._tasks or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ChangeTask):
            yield from partition.read()


class ChangesStream(DataSourceStreamReader):  # type: ignore[misc]  # the library has no types
    """Follows the frontier; an offset is {"ts": resolved ts}. What it needs on the driver begins when it is asked."""

    def __init__(self, asked: Mapping[str, str], form: ChangeForm) -> None:
        self._asked, self._form = dict(asked), form
        self._after = _ts(asked.get("starting"))
        self._most = int(asked.get("maxrowsperbatch", MOST_ROWS))
        self._given: int | None = None

    @cached_property
    def _changes(self) -> ReadableChanges:
        return changes_of(self._asked)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name
        """Return where the stream begins: of a lake at the newest snapshot, of a source with all that it keeps."""
        if self._after is None:
            changes = self._changes
            newest = latest(changes.options).checkpoint.ts if isinstance(changes, TableChanges) else None
            self._after = changes.oldest() if newest is None else newest
        return {"ts": self._after}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name
        """Return the frontier, or less where much has landed since the last answer."""
        if self._given is None:
            self._given = self._changes.landed(None, FIRST_S)
        else:
            self._given = self._changes.most(self._given, self._changes.frontier(), self._most)
        return {"ts": max(self._given, self._after or 0)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return what the tasks of a micro-batch read; of the last one once more when a query starts again."""
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
        self._asked = {name.lower(): value for name, value in options.items()}
        with closing(changes_of(self._asked)) as changes:
            self._form = changes.form()

    @classmethod
    def name(cls) -> str:
        return "tidegate"

    def schema(self) -> StructType:
        return self._form.schema()

    def reader(self, schema: StructType) -> ChangesReader:  # noqa: ARG002  ours
        with closing(changes_of(self._asked)) as changes:
            upto = _ts(self._asked.get("ending"))
            frontier = changes.landed(upto)
            after = _ts(self._asked.get("starting"))
            after = changes.oldest() if after is None else after
            return ChangesReader(changes.tasks(after, frontier if upto is None else upto, self._form))

    def streamReader(self, schema: StructType) -> ChangesStream:  # noqa: ARG002, N802  Spark's name
        """Return what follows the frontier. ConfigError for an end: a stream has none."""
        if "ending" in self._asked:
            raise ConfigError("option 'ending' is for ranges: a stream goes on")
        return ChangesStream(self._asked, self._form)


def _ts(moment: str | None) -> int | None:
    return None if moment is None else moment_ts(moment)
