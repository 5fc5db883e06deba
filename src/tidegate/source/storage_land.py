"""Landing of files: the loop of changelog/source.py for a directory in TiCDC's storage layout.

    claim    positions: per stream the first file that is not done; the frontier
    plan     1 `metadata`: a new checkpoint    2 the list of files    3 new schema files and indexes              driver
    read     rows with frontier < commit_ts <= checkpoint from the files that may have some                    executors
    commit   rows, DDLs, positions; the last batch of a checkpoint advances the frontier to it

All changes up to the frontier have landed, from any file; below a position, all changes of the files.  The checkpoint
is read before the list, so the listed files hold all changes at or below it: all rows, in complete files, and all DDLs
except those at the checkpoint itself.  A row above it waits in its file.  A later row at or below the frontier is a
repeat, and is skipped.  So the checkpoint alone decides which rows are valid: files that no index names are read, too,
since a classic writer continues if it could not write an index.  An orphan of a crashed writer has only rows that other
files have as well.

A large backlog is read in several batches.  All but the last take only files that are done, so that a file counts once,
even if the landing is killed.  An unreadable line halts the landing: nothing of its batch lands.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from tidegate.changelog.changelog import changelog_uri, claim, commit_batch
from tidegate.changelog.files import ControlFiles, Halt, State, TaskReport
from tidegate.changelog.source import BatchLoop, Message
from tidegate.codec.csv import records
from tidegate.codec.storage import METADATA, SchemaFile, parse_index, parse_metadata, parse_schema_file
from tidegate.engine.change import EventPosition, SourceDdl
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.reading import PartitionReached
from tidegate.model.errors import ConfigError, DecodeError, PoisonMessage, SchemaError, SourceBehind, TidegateError
from tidegate.model.event import Ddl
from tidegate.model.path_counts import LEFT_OUT, PathCounts
from tidegate.model.table import TableName
from tidegate.objectstore.failpoint import failpoint
from tidegate.objectstore.threads import ContextPool
from tidegate.source.kafka_messages import Accept, recorded
from tidegate.source.storage_listing import (
    DIRECTORY,
    FileDefinitions,
    FileJob,
    FileLayout,
    FileRoot,
    ListedFile,
    Listing,
    Mark,
    ReadPlan,
    RunJob,
    accepted,
    advanced,
    check_same,
    due,
    file_of,
    is_behind,
    is_next,
    noted,
    position_of,
    runs,
    table_of_stream,
)
from tidegate.source.storage_options import CanalDialect, FilesToRead
from tidegate.source.storage_read import RunRead, read_runs

LOGGER: Final = logging.getLogger(__name__)
DDLS: Final = "schema files"
"""The topic name of DDLs in positions; their offset is the version in their file."""
RUN_BYTES: Final = 64 << 20
"""Bytes of one stream's files that a task reads one after the other."""
BATCH_BYTES: Final = 512 << 20
LIST_ATTEMPTS: Final = 4
"""Attempts to list the files: a schema file may arrive after a list that already has its rows."""
SIDE_BY_SIDE: Final = 16
"""Concurrent requests of the driver."""


@dataclass(slots=True)
class _Batch:
    """Files to read up to a checkpoint: all, or an early part."""

    upto: int
    jobs: dict[str, list[FileJob]]
    early: bool


class StorageLanding(BatchLoop):
    """Lands files into the changelog of a lake; start it once."""

    def __init__(
        self,
        options: FilesToRead,
        lake: str,
        feed: str,
        *,
        accept: Accept | None = None,
        events: EventFilter | None = None,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        super().__init__(feed, options.poll_ms)
        self.changelog = changelog_uri(lake)
        self.skips_dead = options.dead_letter == "skip"
        self._options, self._lake = options, lake
        self._root = FileRoot(str(options.uri), options.address)
        self._accept, self._events, self._batch_bytes = accept, events or EventFilter(), batch_bytes
        self._marks: dict[str, dict[int, Mark]] = {}
        self._schemas: dict[str, tuple[str, SchemaFile]] = {}
        self._indexed: dict[str, tuple[str, int]] = {}
        self._definitions = FileDefinitions()
        self._listing = Listing()
        self._warned: set[str] = set()
        """Streams with a warning about rows that no index names; `metadata` after a warning that it went back."""
        self._left = 0
        """The number of listed files that are not done."""
        self._landed_ddls: set[Ddl] = set()
        """The landed DDLs at the frontier's ts."""

    def idle(self) -> bool:
        return self._checkpoint() <= (self._state.frontier or 0)

    def reached(self) -> Sequence[PartitionReached]:
        done = sum(position_of(stands) - 1 for stands in self._state.positions.values())
        return [PartitionReached(self._root.shown, 0, done, done + self._left, self._state.frontier)]

    def bodies(self, positions: Collection[EventPosition]) -> Mapping[EventPosition, Message]:
        bodies: dict[EventPosition, Message] = {}
        for position in positions:
            if position.topic == DDLS:
                files = [
                    path for path, (_, file) in self._schemas.items() if file.query and file.version == position.offset
                ]
                body: bytes | None = b"\n".join(filter(None, map(self._root.read, files)))
            else:
                body = self._line(position)
            if body:
                bodies[position] = None, body
        return bodies

    def _claim(self) -> State:
        """Raises SourceBehind for a directory without files."""
        if self._checkpoint() < 0:
            raise SourceBehind(
                f"{self._root.shown} has no `metadata` yet, whose checkpoint limits what may be read: a running "
                f"writer creates it within seconds"
            )
        dialect = self._options.dialect
        decode = dialect.options if isinstance(dialect, CanalDialect) else None
        self._resolutions = recorded(self._lake)
        return claim(self.changelog, self._feed, decode, self._completed)

    def _completed(self, state: State) -> State:
        strangers = sorted(name for name in state.positions if "/" not in name)
        if strangers:
            raise ConfigError(
                f"{self.changelog} was landed from topic {strangers[0]!r}; start a new changefeed in a separate lake"
            )
        return accepted(state, self._options.made_anew_us)

    def _checkpoint(self) -> int:
        body = self._root.read(METADATA) if self._root.is_there() else None
        return -1 if body is None else parse_metadata(body)

    def _batch(self) -> None:
        checkpoint, frontier = self._checkpoint(), self._state.frontier or 0
        if checkpoint <= frontier:
            if 0 <= checkpoint < frontier:
                self._look()
                self._check_same()
                if METADATA not in self._warned:
                    LOGGER.warning(
                        "%s: its checkpoint went back from ts %d to %d; nothing lands until it reaches that ts again",
                        *(self._root.shown, frontier, checkpoint),
                    )
                    self._warned.add(METADATA)
            return
        for _ in range(LIST_ATTEMPTS):
            self._look()
            if all(self._definitions_of(stream) is not None for stream in self._listing.data):
                break
        failpoint("files/listed")
        self._check_same()
        for version, (name, unclear) in self._definitions.unclear.items():
            if (self._state.frontier or 0) <= version < checkpoint and (self._accept is None or self._accept(*name)):
                raise unclear
        batch = self._planned(checkpoint)
        plan = ReadPlan(
            root=self._root,
            changelog=self.changelog,
            dialect=self._options.dialect,
            after=self._state.frontier or 0,
            upto=batch.upto,
            early=batch.early,
            events=self._events,
            resolutions=self._resolutions,
            halted=frozenset(halt.position for halt in self._state.halted),
            skip_dead=self.skips_dead,
        )
        share = self._shared(batch)
        read = [run for some in self._tasks.run(partial(read_runs, plan), share) for run in some] if share else []
        if not self._late:
            self._land(batch, read)

    def _check_same(self) -> None:
        """Raise MadeAnew for a directory that is not the one of the positions; store its identity."""
        check_same(self._state, self._listing, self._root.shown, self.needed_ts)
        state = noted(self._state, self._listing)
        if state.positions and DIRECTORY in state.identities.keys() - self._state.identities.keys():
            LOGGER.warning(
                "%s: the age of its files is recorded from here on, which shows later whether the directory was "
                "recreated; whether it was recreated before is not known",
                self._root.shown,
            )
        self._state = state

    def _shared(self, batch: _Batch) -> list[tuple[RunJob, ...]]:
        """The runs of a batch by task: all of a table in one task, unless there are many."""
        tables: dict[TableName, list[RunJob]] = {}
        for is_loose in (False, True):
            for stream, files in batch.jobs.items():
                some = [file for file in files if file.is_loose == is_loose]
                layout = self._layout(stream)
                tables.setdefault(layout.name, []).extend(RunJob(stream, layout, run) for run in runs(some, RUN_BYTES))
        units = [
            unit
            for mine in tables.values()
            for unit in ([mine] if sum(run.size_bytes for run in mine) <= RUN_BYTES else [[run] for run in mine])
        ]
        workers = min(self._tasks.slots, len(units))
        return [tuple(run for unit in units[worker::workers] for run in unit) for worker in range(workers)]

    def _look(self) -> None:
        listing = Listing.of(self._root.files(), self._options.extension)
        with ContextPool(SIDE_BY_SIDE, "storage") as pool:
            new = [file for file in listing.schemas if self._schemas.get(file.path, ("",))[0] != file.version]
            for file, body in zip(new, pool.map(self._root.read, [file.path for file in new]), strict=True):
                if body is not None:
                    self._schemas[file.path] = file.version, self._schema(file, body)
            moved = [(s, file) for s, file in listing.indexes.items() if self._indexed.get(s, ("",))[0] != file.version]
            for (stream, file), body in zip(
                moved, pool.map(self._root.read, [file.path for _, file in moved]), strict=True
            ):
                number = 0 if body is None else parse_index(body)
                self._indexed[stream] = file.version, max(number, self._indexed.get(stream, ("", 0))[1])
        if new:
            self._definitions = self._definitions.after(
                {file.path: self._schemas[file.path][1] for file in new if file.path in self._schemas}
            )
        self._listing = listing

    def _warn(self, read: Sequence[RunRead]) -> None:
        """Warn, once per stream, of rows in files that no index names."""
        for stream in sorted({run.stream for run in read if run.is_loose and run.tables} - self._warned):
            LOGGER.warning(
                "%s/%s has rows up to the checkpoint in files that no index lists; they are read. The writer failed "
                "to write the index",
                *(self._root.shown, stream),
            )
            self._warned.add(stream)

    def _schema(self, stored: ListedFile, body: bytes) -> SchemaFile:
        try:
            return parse_schema_file(body)
        except DecodeError as error:
            raise SchemaError(f"{self._root.shown}/{stored.path}: {error.what}") from error

    def _planned(self, upto: int) -> _Batch:
        """All files that are due. If there are many, complete files, named by an index, of some streams: these
        positions advance, so that a landing that is killed does not read the files again."""
        jobs: dict[str, list[FileJob]] = {}
        for stream, top in sorted(self._tops().items(), key=lambda top_of: (self._version(top_of[0]), top_of[0])):
            files, marks = self._listing.data[stream], self._marks.setdefault(stream, {})
            stream_jobs = due(files, top, self._state.positions.get(stream, {}), marks, upto)
            if stream_jobs:
                jobs[stream] = stream_jobs
        early: dict[str, list[FileJob]] = {}
        size = 0
        for stream, stream_jobs in jobs.items():
            named = [job for job in stream_jobs if not job.is_loose]
            files, stands = self._listing.data[stream], self._state.positions.get(stream, {})
            first = named[0].number if named else 0
            if is_next(first, files, stands) and first not in self._marks[stream]:
                early[stream] = []
                for job in named:
                    if size < self._batch_bytes:
                        early[stream].append(job)
                    size += job.stored.size_bytes
        if size <= self._batch_bytes:
            return _Batch(upto, jobs, early=False)
        return _Batch(upto, {stream: some for stream, some in early.items() if some}, early=True)

    def _tops(self) -> dict[str, int]:
        indexed = {stream: number for stream, (_, number) in self._indexed.items()}
        tops = self._listing.tops(indexed, by_index=self._options.by_index)
        return {
            stream: top
            for stream, top in tops.items()
            if self._accept is None or self._accept(*self._layout(stream).name)
        }

    def _version(self, stream: str) -> int:
        directory_version = table_of_stream(stream, self._definitions.directories)
        return 0 if directory_version is None else directory_version[1]

    def _definitions_of(self, stream: str) -> FileLayout | None:
        directory_version = table_of_stream(stream, self._definitions.directories)
        return None if directory_version is None else self._definitions.layout(*directory_version)

    def _layout(self, stream: str) -> FileLayout:
        """The layout of a stream's files. Raises SchemaError without a schema file."""
        layout = self._definitions_of(stream)
        if layout is None:
            raise SchemaError(
                f"{self._root.shown}/{stream} has rows, but no schema file with its columns: copy the directories "
                f"`meta` as well"
            )
        return layout

    def _land(self, batch: _Batch, read: Sequence[RunRead]) -> None:
        halts = [run.halt for run in read if run.halt is not None]
        if halts:
            reports = [
                TaskReport(topic=run.stream, start=position, position=position, halt=run.halt, files=run.files)
                for run in read
                if run.halt is not None
                for position in [self._stands(run.stream)]
            ]
            self._state = commit_batch(self.changelog, self._state, reports)
            raise halted(halts, self._lake, self._root, self._state.frontier or 0)
        runs = self._deduplicated(read) if batch.early else list(read)
        self._warn(runs)
        for run in runs:
            marks = self._marks.setdefault(run.stream, {})
            marks |= {file.number: Mark(file.version, file.waits, file.is_cut) for file in run.read}
        moves = self._moves(runs)
        low = batch.upto + 1 if batch.early else self._state.frontier or 0
        new = [ddl for ddl in self._definitions.ddls if low <= (ddl.commit_ts or 0) <= batch.upto]
        unclear = self._definitions.unclear.keys() & {batch.upto}  # a file of that very moment may still come
        ddls = [ddl for ddl in new if ddl not in self._landed_ddls and ddl.commit_ts not in unclear]
        reports = self._counted(moves, self._read(runs, ddls), batch)
        if not reports:
            return
        gone = () if batch.early else self._state.positions.keys() - self._listing.data.keys()
        state = commit_batch(self.changelog, self._state, reports, gone=gone)
        for stream in gone:
            self._marks.pop(stream, None)
        if not batch.early:
            self._landed_ddls = {ddl for ddl in {*self._landed_ddls, *ddls} if ddl.commit_ts == batch.upto}
        path_counts = PathCounts()
        path_counts.add(LEFT_OUT, sum(run.filtered for run in runs))
        self._landed(state, {}, (path_counts, *(run.path_counts for run in runs)))
        self._left = sum(
            number >= self._stands(stream) for stream in self._tops() for number in self._listing.data[stream]
        )
        self._forget({run.stream for run in runs})
        LOGGER.debug("%s batch %d: %d rows, frontier %s", self._feed, state.batch, state.rows, state.frontier)

    def _counted(self, moves: list[TaskReport], read: TaskReport, batch: _Batch) -> list[TaskReport]:
        """The contents of a commit: the last batch of a checkpoint advances the frontier, an early one only
        positions."""
        if not batch.early:
            return [*moves, msgspec.structs.replace(read, start=self._state.frontier or 0, position=batch.upto)]
        if not moves:
            return []
        first = moves[0]
        named = {"topic": first.topic, "partition": first.partition, "start": first.start, "position": first.position}
        return [msgspec.structs.replace(read, **named), *moves[1:]]

    def _stands(self, stream: str) -> int:
        return position_of(self._state.positions.get(stream, {}))

    def _deduplicated(self, read: Sequence[RunRead]) -> list[RunRead]:
        """The runs of an early batch to commit: for each stream none after one that stopped early."""
        runs: list[RunRead] = []
        stopped: set[str] = set()
        for run_read in sorted(read, key=lambda run: run.read[0].number if run.read else 0):
            if run_read.stream not in stopped:
                runs.append(run_read)
            if not run_read.read or run_read.read[-1].waits is not None:
                stopped.add(run_read.stream)
        return runs

    def _forget(self, streams: Collection[str]) -> None:
        """Drop the marks of unchanged files below a position."""
        for stream in streams:
            stands, files, marks = self._state.positions[stream], self._listing.data[stream], self._marks[stream]
            self._marks[stream] = {
                number: mark
                for number, mark in marks.items()
                if number in files and not is_behind(files[number], number, stands)
            }

    def _moves(self, read: Sequence[RunRead]) -> list[TaskReport]:
        tops = self._tops()
        return [
            TaskReport(topic=stream, partition=number, start=begin, position=end)
            for stream in sorted({run.stream for run in read})
            for number, begin, end in advanced(
                self._listing.data[stream],
                tops[stream],
                self._state.positions.get(stream, {}),
                self._marks[stream],
            )
        ]

    def _read(self, read: Sequence[RunRead], ddls: Sequence[Ddl]) -> TaskReport:
        controls = ControlFiles(self.changelog, RUN_BYTES)
        controls.add(
            [SourceDdl(EventPosition(DDLS, 0, ddl.commit_ts or 0, seq), ddl) for seq, ddl in enumerate(ddls)], ()
        )
        return TaskReport(
            start=0,
            position=0,
            messages=sum(run.messages for run in read) + len(ddls),
            filtered=sum(run.filtered for run in read),
            ddls=len(ddls),
            dead=sum(run.dead for run in read),
            tables=tuple(table for run in read for table in run.tables),
            files=(*(file for run in read for file in run.files), *controls.close()),
        )

    def _line(self, position: EventPosition) -> bytes | None:
        number, record = file_of(position.offset)
        stored = self._listing.data.get(position.topic, {}).get(number)
        body = None if stored is None else self._root.read(stored.path)
        if body is None:
            return None
        dialect = self._options.dialect
        if isinstance(dialect, CanalDialect):
            lines = body.split(dialect.terminator.encode())
            return lines[record - 1] if record <= len(lines) else None
        return next((line.raw for line in records(body, dialect.options) if line.number == record), None)


def halted(halts: Sequence[Halt], lake: str, files: FileRoot, frontier: int) -> TidegateError:
    """Return the error for a feed that is halted at `halts`; everything up to `frontier` has landed."""
    first = halts[0]
    if first.order:
        return ConfigError(f"{files.shown}/{first.reason}").at(topic=first.topic, partition=0, offset=first.offset)
    position = f"{first.topic}/0/{first.offset}"
    more = f" ({len(halts) - 1} more files are halted, see `tidegate dlq list {lake}`)" if halts[1:] else ""
    return PoisonMessage(
        f"{files.shown}/{first.reason} ({first.code}). All rows up to ts {frontier} have landed{more}. To continue: "
        f"inspect it with `tidegate dlq show {lake} --at {position}`; correct the line in its file; skip it with "
        f"`tidegate dlq skip {lake} --at {position}`; or set dead-letter=skip. Then start the changefeed again"
    ).at(topic=first.topic, partition=0, offset=first.offset)
