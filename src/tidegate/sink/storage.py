"""The storage sink: files in TiCDC's layout, csv or canal-json, with index files, schema files and `metadata`.

    open      a new feed: its checkpoint, then `metadata`, so that readers know from the start how far they may read
    run       a schema file before the first rows of a table version; rows into files that no index names, by the tasks
    ddl       its schema files wait for `advance`
    advance   1  the checkpoint, with the last file of every directory of the round and the schema files of its DDLs
              2  the index files    3  the schema files    4  `metadata`

Guarantee: exactly once, for a reader of the files that an index names.  Step 1 is one atomic write of the state, which
fences a second writer.  Steps 2 to 4 can be repeated.  A file is numbered from the index of its directory, plus one.
Files above that are left from an interrupted attempt: a run that opens a directory for the first time, or after an
error, checks its state again, deletes them and writes them anew, each put only if absent.  So no index names a file
that was written twice, and up to `metadata` a reader never sees half a round.

    a crash                     leaves                                    the next run
    before 1                    files that no index names                 deletes them, writes the round anew
    between 1 and 4             a checkpoint ahead of some of 2, 3, 4     finishes them before all else
    after 4                     nothing to do                             continues

A DDL is a barrier for all tables.  Two feeds must not share a directory: a new feed refuses one that has a `metadata`.
A file left behind in the directory of a past day stays there; no index names it.

A DDL has one schema file per table that it leaves changed, or one for its database:

    CREATE, ALTER, TRUNCATE, DROP TABLE   the table's; for DROP and TRUNCATE the columns that it had
    RENAME TABLE                          under the new name
    EXCHANGE PARTITION                    the partitioned table's with the statement, the other's without
    RENAME TABLE of several               the event's own table has the statement, the others none
    CREATE, ALTER, DROP DATABASE          the database's alone

A file without a statement has columns only, so a statement that changes several tables appears once.

Source: TiCDC's storage sink document; its order of writes is this one but for the checkpoint before the index.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from zoneinfo import ZoneInfo

from tidegate.codec.storage import (
    METADATA,
    Column,
    SchemaFile,
    data_directory,
    date_part,
    index_path,
    parse_metadata,
    parse_schema_name,
    render_metadata,
    schema_directory,
    schema_file_columns,
    version_directory,
)
from tidegate.engine.event_filter import acting
from tidegate.engine.plan import PlannedDdl, Round, Rows, Segment
from tidegate.engine.ports import (
    Changes,
    Checkpoints,
    FlushPolicy,
    RoundLimit,
    Saved,
    SegmentSink,
    SinkPosition,
    Tasks,
    WithUpkeep,
    sink_position,
)
from tidegate.model.errors import SinkRefused
from tidegate.model.event import Ddl
from tidegate.model.name import all_digits
from tidegate.model.table import TableInfo
from tidegate.model.tso import Tso, physical_ms
from tidegate.objectstore.failpoint import failpoint
from tidegate.objectstore.threads import ContextPool
from tidegate.schema import effects
from tidegate.schema.ddl_tables import subject_table
from tidegate.schema.effects import Effect
from tidegate.schema.state import SchemaState
from tidegate.sink.storage_bucket import Bucket, CronLine, sweep
from tidegate.sink.storage_options import StorageOptions
from tidegate.sink.storage_task import FilesJob, StoredRows, write_tables


def ddl_files(
    ddl: Ddl, effects: Sequence[Effect], after: SchemaState, columns: Callable[[TableInfo], tuple[Column, ...]]
) -> list[SchemaFile]:
    """Return the schema files of a DDL with its action; `after` is the schema after it."""
    version, action = ddl.commit_ts or 0, ddl.type or 0
    if not ddl.table:
        return [SchemaFile(ddl.schema, "", version, None, ddl.query, action)]
    own = subject_table(ddl, effects)
    changed = {table.name.key: table for effect in effects for table in _tables(effect, after)}
    definition = changed.pop(own.key, None) or after.table(own)
    shown = () if definition is None else columns(definition)
    name = own if definition is None else definition.name
    files = [SchemaFile(*name, version, shown, ddl.query, action)]
    return files + [SchemaFile(*table.name, version, columns(table)) for table in changed.values()]


def _tables(effect: Effect, after: SchemaState) -> Iterator[TableInfo]:
    """The tables as an effect leaves them; one that another effect has moved on is not told."""
    match effect:
        case effects.TableDropped(table):
            yield table
        case effects.PartitionExchanged():
            yield effect.new_partitioned
            yield effect.new_other
        case effects.TableCreated(table) | effects.TableRecovered(table):
            yield table
        case effects.NoEffect():
            return
        case _:
            if after.table(effect.new.name) is not None:
                yield effect.new


NUMBERS: Final = "numbers"
SCHEMAS: Final = "schemas"
"""The notes beside the checkpoint: last files by directory, and schema files by path, of the round that ended there."""
IDLE_S: Final = 2.0
"""The interval at which `metadata` is written while idle, as TiCDC does."""
SIDE_BY_SIDE: Final = 16
"""Requests of the driver at one time."""


@dataclass(frozen=True, slots=True)
class _TableDirectory:
    """The directory of a table's rows today: the directory of its version, and the last files of those below it."""

    table: TableInfo
    version: str
    date: str
    numbers: Mapping[str, int]


def now_in(zone: str) -> datetime:
    """Return the current time in a zone."""
    return datetime.now(ZoneInfo(zone))


class StorageSink(SegmentSink[StoredRows], WithUpkeep):
    """Writes files exactly once; the given checkpoints store progress, and files that recovery publishes again."""

    brings_again = "tables"

    def __init__(
        self, options: StorageOptions, checkpoints: Checkpoints, *, now: Callable[[str], datetime] = now_in
    ) -> None:
        self.flush_policy = FlushPolicy(
            limit=RoundLimit(rows=500_000, size_bytes=256 << 20), flush_s=options.flush_s, idle_s=IDLE_S
        )
        self._options, self._checkpoints, self._now = options, checkpoints, now
        self._bucket, self._names = Bucket(options.uri, options.address), options.names
        self._cleanup = CronLine.parse(options.cleanup) if options.expires else None
        self._columns = partial(schema_file_columns, ids=options.column_ids)
        self._pool = ContextPool(SIDE_BY_SIDE, "storage")
        self._is_new = False
        self._waiting: dict[str, str] = {}
        """Schema files of the round's DDLs by path."""
        self._directories: dict[tuple[str, str], _TableDirectory] = {}
        """Tables whose directories hold only files that an index names."""
        self._written: dict[tuple[str, str], _TableDirectory] = {}
        """Tables that the round writes; they return to `_directories` when it is published."""
        self._checkpoint_ts = 0
        self._due: datetime | None = None
        self._sweep: Iterator[int] | None = None

    def run_lock(self) -> AbstractContextManager[None]:
        return self._checkpoints.run_lock()

    def recover(self) -> SinkPosition:
        saved = self._checkpoints.load()
        self._is_new = saved is None
        if saved is not None:
            self._publish(saved)
        return sink_position(saved)

    def open(self, position: SinkPosition) -> None:
        """Check the target directory. Raises SinkRefused for a store without conditional writes, or one with another
        feed's files."""
        self._waiting = {}
        self._directories, self._written = {}, {}
        if self._is_new:
            self._bucket.check()
            if self._bucket.read(METADATA) is not None:
                raise SinkRefused(
                    f"{self._bucket.shown} already has the files of a changefeed: `metadata` exists, but the state "
                    f"directory has no state for it. Use another directory, or the state directory of the first run"
                )
            self._checkpoints.save(Saved(position, {}))
            self._is_new = False
        self._publish(Saved(position, {METADATA: self._checkpoint_ts or position.checkpoint.ts}))

    def run(self, tasks: Tasks, segment: Segment, changes: Changes) -> Sequence[StoredRows]:
        """Write the rows of a segment into files; return when all are written.

        Raises SinkError, and what reading and encoding raise in tasks."""
        steps = segment.steps
        if not steps:
            return []
        date = date_part(self._now(self._options.time_zone).date(), self._options.date_separator)
        directories = {step.table.name.key: self._directories.pop(step.table.name.key, None) for step in steps}
        self._written = self._met(steps, directories, date)
        jobs = [
            FilesJob(changes, step, directory.version, directory.date, directory.numbers, self._options)
            for step in steps
            if (directory := self._written[step.table.name.key])
        ]
        workers = min(self._options.workers, len(jobs))
        done = tasks.run(write_tables, [jobs[worker::workers] for worker in range(workers)])
        return [each for some in done for each in some]

    def ddl(self, planned: PlannedDdl) -> None:
        """Make the schema files of a DDL; they are written when the round is published. SinkRefused for a DDL that
        cannot be parsed, or contradicts its tables: the columns after it are not known."""
        if planned.error is not None:
            refused = SinkRefused(
                f"a schema file cannot represent the DDL {planned.ddl.query[:500]!r}: {planned.error}"
            )
            raise refused.at(table=planned.table, commit_ts=planned.commit_ts) from planned.error
        try:
            for file in ddl_files(acting(planned.ddl), planned.effects, planned.after, self._columns):
                self._waiting[file.path] = file.render().decode()
        except SinkRefused as refused:
            raise refused.at(table=planned.table, commit_ts=planned.commit_ts) from None

    def advance(self, planned: Round, results: Sequence[StoredRows]) -> SinkPosition:
        numbers = {directory: number for done in results for directory, number in done.numbers.items()}
        position = SinkPosition(planned.checkpoint, planned.state)
        saved = Saved(position, {NUMBERS: numbers, SCHEMAS: self._waiting, METADATA: planned.resolved_ts})
        failpoint("storage/before-save")
        self._checkpoints.save(saved)
        failpoint("storage/saved")
        self._publish(saved)
        for key, directory in self._written.items():
            mine = {path: number for path, number in numbers.items() if path.startswith(f"{directory.version}/")}
            self._directories[key] = _TableDirectory(
                directory.table, directory.version, directory.date, {**directory.numbers, **mine}
            )
        self._waiting, self._written = {}, {}
        return position

    def upkeep(self, tasks: Tasks, frontier: int | None, enough: Callable[[], bool]) -> None:  # noqa: ARG002
        """Delete the files of days that are over, when it is time."""
        cleanup = self._cleanup
        if cleanup is None:
            return
        now = self._now(self._options.time_zone)
        self._due = self._due or cleanup.after(now)
        if self._sweep is None and now >= self._due:
            zone = ZoneInfo(self._options.time_zone)
            today = datetime.fromtimestamp(physical_ms(Tso(self._checkpoint_ts)) / 1000, zone).date()
            self._sweep = sweep(self._bucket, self._names, today - timedelta(days=self._options.expiration_days))
            self._due = cleanup.after(now)
        while self._sweep is not None and not enough():
            if next(self._sweep, None) is None:
                self._sweep = None

    def close(self) -> None:
        self._pool.shutdown()

    def _publish(self, saved: Saved) -> None:
        """Write what the notes of a checkpoint name: index files, schema files, then `metadata`."""
        for _ in self._pool.map(
            lambda entry: self._bucket.raise_(index_path(entry[0]), self._names.index(entry[1]), self._names.indexed),
            saved.notes.get(NUMBERS, {}).items(),
        ):
            failpoint("storage/index-written")
        for path, text in saved.notes.get(SCHEMAS, {}).items():
            self._bucket.write(path, text.encode())
            failpoint("storage/schema-written")
        self._checkpoint_ts = saved.notes.get(METADATA, saved.position.checkpoint.ts)
        self._bucket.raise_(METADATA, render_metadata(self._checkpoint_ts), parse_metadata)
        failpoint("storage/published")

    def _met(
        self, steps: Sequence[Rows], previous: Mapping[tuple[str, str], _TableDirectory | None], date: str
    ) -> dict[tuple[str, str], _TableDirectory]:
        """The directory of each step's rows; directories that are new to this run are listed and cleaned."""
        directories: dict[tuple[str, str], _TableDirectory] = {}
        new: list[TableInfo] = []
        for step in steps:
            directory = previous[step.table.name.key]
            if directory is not None and directory.table == step.table and directory.date == date:
                directories[step.table.name.key] = directory
            else:
                new.append(step.table)
        looked = list(self._pool.map(partial(self._look, date), new))
        if unnamed := [path for _, left in looked for path in left]:
            self._checkpoints.load()  # whoever was fenced meanwhile deletes nothing
            self._bucket.delete(unnamed)
        return {**directories, **{directory.table.name.key: directory for directory, _ in looked}}

    def _look(self, date: str, table: TableInfo) -> tuple[_TableDirectory, list[str]]:
        """The directory of a table's rows, and the files there that no index names."""
        version = version_directory(table.name, self._version(table))
        directories = [data_directory(version, date)]
        if table.partition is not None and self._options.partition_separator:
            parts = [int(name) for name in self._bucket.directories(version) if all_digits(name)]
            directories += [data_directory(version, date, part) for part in parts if str(part) != date]
        numbers, left = {}, []
        for directory in directories:
            index = self._bucket.read(index_path(directory))
            numbers[directory] = number = 0 if index is None else self._names.indexed(index.body)
            names = self._bucket.names(directory, self._names.data(number))
            left += [f"{directory}/{name}" for name in names if self._names.number(name) > number]
        return _TableDirectory(table, version, date, numbers), left

    def _version(self, table: TableInfo) -> int:
        """The version by which the directory of a table is named: its own if a schema file tells it, else that of the
        newest schema file if that has the same columns; else a schema file is written."""
        file = SchemaFile(*table.name, table.version, self._columns(table))
        directory = schema_directory(*table.name)
        schema_files = [pair for name in self._bucket.names(directory) if (pair := parse_schema_name(name))]
        if (table.version, file.checksum) in schema_files:
            return table.version
        if schema_files and max(schema_files)[1] == file.checksum:
            return max(schema_files)[0]
        self._bucket.create(file.path, file.render())
        return table.version
