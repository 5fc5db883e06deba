"""The task of a storage landing: reads files of one stream in numeric order and writes their rows to the changelog.

    file ─► cut off? ─► rows with after < commit_ts <= upto ─► Parquet files that no commit names yet
                            └ bad lines: dead letters, or the run halts

A file is done when no row of it is above `upto`; one with such rows is read again when `upto` has passed the least of
them (`waits`).  An `early` run takes only files that are done, and stops before the first that is not.

If the last file of its stream is truncated, it waits until it is complete or has a successor.  A truncated file with a
successor is that of a crashed writer: its complete lines count, and the rest is in later files.

Rows that a restarted writer wrote again are in two files, perhaps of two days.  They have one commit_ts, so they land
in one batch; if one task reads both, and the table has a key, equal rows of one commit_ts land once.  Files that no
index names come last: of them only rows land that earlier files do not have, also for a table without a key.

`CanalFiles` reads canal-json: a line is a message without a key, decoded as those of a topic are.  `CsvFiles` reads csv
by columns; a file with anything unusual is read line by line, which finds the line and its error.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.changelog.files import (
    DEAD,
    HALT,
    ControlFiles,
    Encoder,
    Halt,
    LandedFile,
    RowColumns,
    RowFiles,
    TableRows,
    landed_batch,
)
from tidegate.codec.columnar.csv import CsvTable
from tidegate.codec.columnar.encode.encoder import events_of
from tidegate.codec.columnar.values import MISMATCHES, slow_reason
from tidegate.codec.csv import CsvDecoder, CsvRow, Record, commit_ts_of, records, terminator_of, whole_bytes
from tidegate.engine.change import DeadLetter, EventPosition
from tidegate.model.errors import DecodeError, InputError, SchemaError, SourceError
from tidegate.model.event import Delete, Insert, RowChange, Update
from tidegate.model.path_counts import PathCounts, Reason, SlowReason
from tidegate.model.tso import MAX_TS
from tidegate.objectstore.failpoint import failpoint
from tidegate.source.kafka_messages import NO_ORDER, LandPlan, TopicMessages, land_messages
from tidegate.source.storage_listing import FileJob, ReadPlan, RunJob, file_of, offset_of
from tidegate.source.storage_options import CanalDialect, CsvDialect

NO_COMMIT_TS: Final = (
    "its rows have no commit_ts, so they cannot be ordered. Set {key} on the changefeed that writes the files, and "
    "let it write into an empty directory"
)


class Text(NamedTuple):
    """A piece of a file, cut between records, with the numbers of records and lines before it."""

    body: bytes
    records: int = 0
    lines: int = 0


@dataclass(slots=True)
class FileRows:
    """Rows of a text in a range of commit_ts as LANDED_SCHEMA, with invalid lines and counts.

    `waits` is the least commit_ts above the range, None if none waits; `undated` are lines without
    commit_ts, which are set aside when the file is done; `records` counts all."""

    tables: list[pa.Table] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    undated: list[DeadLetter] = field(default_factory=list)
    waits: int | None = None
    records: int = 0
    messages: int = 0
    filtered: int = 0
    path_counts: PathCounts = field(default_factory=PathCounts)
    halt: Halt | None = None
    halted_at: DeadLetter | None = None

    def then(self, later: "FileRows") -> None:
        """Add the result of the next text, without its rows."""
        self.letters += later.letters
        self.undated += later.undated
        if later.waits is not None:
            self.wait(later.waits)
        self.records += later.records
        self.messages += later.messages
        self.filtered += later.filtered
        self.path_counts.update(later.path_counts)

    def wait(self, ts: int) -> None:
        """Note a row above the range."""
        self.waits = ts if self.waits is None else min(ts, self.waits)

    def gate(self, table: pa.Table, after: int, upto: int) -> None:
        """Add the rows of a table with after < commit_ts <= upto, and note the first later commit_ts."""
        ts = table["commit_ts"]
        later = pc.min(ts.filter(pc.greater(ts, upto))).as_py()
        if later is not None:
            self.wait(later)
        inside = table.filter(pc.and_(pc.greater(ts, after), pc.less_equal(ts, upto)))
        if inside.num_rows:
            self.tables.append(inside)


CHUNK: Final = 4_000
"""Lines that are decoded together."""


class CanalFiles:
    """Reads the files of one run."""

    def __init__(self, plan: ReadPlan, run: RunJob) -> None:
        assert isinstance(plan.dialect, CanalDialect)
        self._plan, self._end, self._encoder = plan, plan.dialect.terminator.encode(), Encoder()
        self._land = LandPlan(
            run.stream,
            0,
            plan.dialect.options,
            resolutions={
                position.offset: resolution
                for position, resolution in plan.resolutions.items()
                if position.topic == run.stream
            },
            skip_dead=plan.skip_dead,
            judge=plan.events.messages(),
        )

    def whole(self, body: bytes) -> int:
        """Return how many bytes stand before a line that was cut off."""
        end = body.rfind(self._end)
        return 0 if end < 0 else end + len(self._end)

    end = whole

    def header(self, _body: bytes) -> int:
        """Return how many bytes stand before the first record."""
        return 0

    def rows(self, job: FileJob, text: Text) -> FileRows:
        """Return the rows of a text in the range of the plan, up to a line at which the run has to halt."""
        lines, start = text.body.split(self._end)[:-1], 0
        result = FileRows(records=len(lines))
        while start < len(lines):
            some = lines[start : start + CHUNK]
            offsets = [offset_of(job.number, text.records + start + number) for number in range(1, len(some) + 1)]
            landed = land_messages(TopicMessages(offsets, [None] * len(some), list(some)), self._land, self._encoder)
            if (halt := landed.halt) is not None:
                key = "enable-tidb-extension=true"
                reason = NO_COMMIT_TS.format(key=key) if halt.code == NO_ORDER else halt.reason
                what = f"{job.stored.path} line {file_of(halt.offset)[1]}: {reason}"
                halt = Halt(halt.topic, 0, halt.offset, halt.code, what, halt.order)
                return FileRows(halt=halt, halted_at=landed.halted_at)
            for table in landed.tables.values():
                result.gate(table, self._plan.after, self._plan.upto)
            result.undated += landed.letters
            result.messages, result.filtered = result.messages + landed.messages, result.filtered + landed.filtered
            result.path_counts.update(landed.path_counts)
            start += landed.messages
        return result


SKIPPED = "CDC:ErrSkippedByResolution"


class _FileRow(NamedTuple):
    record: Record
    row: CsvRow


class CsvFiles:
    """Reads the files of one run."""

    def __init__(self, plan: ReadPlan, run: RunJob) -> None:
        assert isinstance(plan.dialect, CsvDialect)
        name, wire, fields = run.table
        self._has_header, handle_key = plan.dialect.options.output_field_header, plan.dialect.handle_key
        options = msgspec.structs.replace(plan.dialect.options, output_field_header=False)
        self._plan, self._run, self._options = plan, run, options
        self._columns = CsvTable(name.schema, name.table, wire, fields, options, handle_key=handle_key)
        self._lines = CsvDecoder(name.schema, name.table, wire, options, handle_key=handle_key)
        self._width = self._lines.head + len(fields)
        self._skipped = {position.offset for position in plan.resolutions if position.topic == run.stream}
        judge = plan.events.messages()
        self._judge = judge if judge is not None and judge.judges(*name) else None

    def whole(self, body: bytes) -> int:
        """Return how many bytes stand before a line that was cut off."""
        return whole_bytes(body, self._options)

    def end(self, body: bytes) -> int:
        """Return the number of bytes before a truncated line, and before an old image whose new one is truncated."""
        end = whole_bytes(body, self._options)
        if not self._options.output_old_value or not end:
            return end
        begin = whole_bytes(body[: end - 1], self._options)
        last = next(records(body[begin:end], self._options)).fields or ()
        is_half = len(last) > 4 and last[0].text == "D" and last[4].text == "true"
        return begin if is_half else end

    def header(self, body: bytes) -> int:
        """Return how many bytes stand before the first record."""
        end = terminator_of(self._options).encode()
        return body.find(end) + len(end) if self._has_header else 0

    def rows(self, job: FileJob, text: Text) -> FileRows:
        """Return the rows of a text in the range of the plan, up to a line at which the run has to halt."""
        if any(file_of(offset)[0] == job.number for offset in self._skipped):
            return self._line_by_line(job, text, SlowReason(Reason.RESOLUTION, "a line with a resolution"))
        try:
            return self._by_columns(job, text)
        except MISMATCHES as mismatch:
            return self._line_by_line(job, text, slow_reason(mismatch))

    def _by_columns(self, job: FileJob, text: Text) -> FileRows:
        batch, waits, lines = self._columns.lines(text.body, self._plan.after, self._plan.upto)
        result = FileRows(waits=waits, records=lines)
        if batch is None:
            return result
        first = offset_of(job.number, text.records + 1)
        last = int(pc.max(batch.message).as_py())
        rows = landed_batch(self._run.stream, 0, pa.array(range(first, first + last + 1), pa.int64()), batch)
        result.messages = rows.num_rows
        if self._judge is not None:
            kept = [not self._judge.drops(row) for row in events_of(batch)]
            rows = rows.filter(pa.array(kept, pa.bool_()))
            result.filtered = result.messages - rows.num_rows
        result.tables = [rows] if rows.num_rows else []
        result.path_counts.add("land/columns", rows.num_rows)
        return result

    def _line_by_line(self, job: FileJob, text: Text, slow: SlowReason) -> FileRows:
        result, encoder = FileRows(), Encoder()
        into, rows = RowColumns(self._run.stream, 0, self._run.table.name), 0
        for row_read, before in _paired(self._rows_in_range(result, job, text)):
            row = self._event(row_read.row, before)
            result.messages += 1
            try:
                if self._judge is not None and self._judge.drops(row):
                    result.filtered += 1
                    continue
            except (InputError, SchemaError) as error:
                self._aside(result, job, row_read.record, error.code, str(error))
                continue
            into.add(offset_of(job.number, row_read.record.number), encoder.encode(row, 0))
            rows += 1
        if rows:
            result.tables.append(into.table())
        result.path_counts.add("land/rows", rows, slow, self._run.table.name)
        return result

    def _rows_in_range(self, result: FileRows, job: FileJob, text: Text) -> Iterator[_FileRow]:
        """The rows in the range, one by one, until the run has to halt."""
        is_first = text.records == self._has_header
        for csv_record in records(text.body, self._options):
            record = csv_record._replace(number=text.records + csv_record.number, line=text.lines + csv_record.line)
            result.records += 1
            if offset_of(job.number, record.number) in self._skipped:
                self._aside(result, job, record, SKIPPED, "a resolution skips it")
                continue
            try:
                row = self._lines.row(record)
            except DecodeError as error:
                lacks = is_first and record.fields is not None and len(record.fields) == self._width - 1
                self._aside(result, job, record, NO_ORDER if lacks else error.code, error.what)
                if result.halt is not None:
                    return
                continue
            is_first = False
            if row.commit_ts > self._plan.upto:
                result.wait(row.commit_ts)
            elif row.commit_ts > self._plan.after:
                yield _FileRow(record, row)

    def _event(self, row: CsvRow, before: CsvRow | None) -> RowChange:
        name, wire, fields = self._run.table
        members: dict[str, Any] = {
            "schema": name.schema,
            "table": name.table,
            "fields": fields,
            "pk_names": wire.pk_names or None,
            "commit_ts": row.commit_ts,
        }
        if before is not None:
            return Update(before=before.values, after=row.values, **members)
        return Delete(before=row.values, **members) if row.op == "D" else Insert(after=row.values, **members)

    def _aside(self, result: FileRows, job: FileJob, record: Record, code: str, what: str) -> None:
        position = EventPosition(self._run.stream, 0, offset_of(job.number, record.number))
        text = record.fields[3].text if record.fields and len(record.fields) > 3 else "unknown"
        where = f"{job.stored.path} line {record.line}, a row of {self._run.table.name} at commit_ts {text:.20}: {what}"
        if code == NO_ORDER:
            advice = NO_COMMIT_TS.format(key="include-commit-ts = true under [sink.csv]")
            result.halt = Halt(
                position.topic, 0, position.offset, code, f"{where}. Either {advice}; or a field is missing", True
            )
            return
        ts = commit_ts_of(text)
        if ts is not None and not self._plan.after < ts <= self._plan.upto:
            if ts > self._plan.after:
                result.wait(ts)
            return
        letter = DeadLetter(position, code, where, 0, None, record.raw)
        if self._plan.skip_dead or position.offset in self._skipped:
            (result.undated if ts is None else result.letters).append(letter)
        else:
            result.halt, result.halted_at = Halt(position.topic, 0, position.offset, code, where), letter


def _paired(rows: Iterator[_FileRow]) -> Iterator[tuple[_FileRow, CsvRow | None]]:
    """Each row; the new image of an UPDATE with its old one, the row before it."""
    deleted: _FileRow | None = None
    for file_row in rows:
        is_new = file_row.row.op == "I" and file_row.row.is_update
        if deleted is not None and is_new and file_row.row.commit_ts == deleted.row.commit_ts:
            yield _FileRow(deleted.record, file_row.row), deleted.row
            deleted = None
            continue
        if deleted is not None:
            yield deleted, None
        deleted = file_row if file_row.row.op == "D" and file_row.row.is_update else None
        if deleted is None:
            yield file_row, None
    if deleted is not None:
        yield deleted, None


LOGGER: Final = logging.getLogger(__name__)
FLUSH_BYTES: Final = 64 << 20
TEXT_BYTES: Final = 16 << 20
"""Bytes of a file to decode at once: it may have 512 MiB, and decoding takes several times its size."""
SEEN_BYTES: Final = 128 << 20
"""Bytes of a table's last rows to keep for detecting repeats; a writer repeats only recent rows."""


class FileRead(NamedTuple):
    """The result for a file: its number and version; `waits` is the least commit_ts left for later, None if all rows
    have landed; `is_cut` for a truncated one."""

    number: int
    version: str
    waits: int | None
    is_cut: bool = False


@dataclass(slots=True)
class RunRead:
    """The result of a run; of a run that halts only the halt counts."""

    stream: str
    is_loose: bool = False
    read: list[FileRead] = field(default_factory=list)
    files: tuple[LandedFile, ...] = ()
    tables: tuple[TableRows, ...] = ()
    messages: int = 0
    filtered: int = 0
    path_counts: PathCounts = field(default_factory=PathCounts)
    dead: int = 0
    halt: Halt | None = None


def read_runs(plan: ReadPlan, runs: tuple[RunJob, ...]) -> list[RunRead]:
    """Read runs one after the other; repeats are detected within adjacent runs of one table.

    SourceError."""
    results: list[RunRead] = []
    for _, group in groupby(runs, key=lambda run: run.table.name):
        some = list(group)
        has_key = any(field.handle for field in some[0].table.fields)
        seen = _Seen(has_key=has_key, keeps=has_key or any(run.is_loose for run in some))
        results += [read_run(plan, run, seen) for run in some]
    return results


def read_run(plan: ReadPlan, run: RunJob, seen: "_Seen") -> RunRead:
    """Read files and write their rows into the changelog's directory; nothing is committed. SourceError."""
    done = RunRead(run.stream, run.is_loose)
    rows, controls = RowFiles(plan.changelog, flush_bytes=FLUSH_BYTES), ControlFiles(plan.changelog, FLUSH_BYTES)
    reader = CsvFiles(plan, run) if isinstance(plan.dialect, CsvDialect) else CanalFiles(plan, run)
    for job in run.files:
        path, version = job.stored.path, job.stored.version
        body = plan.root.read(path)
        if body is None:
            raise SourceError(f"{plan.root.shown}/{path} was removed while it was read")
        whole = reader.whole(body)
        if whole < len(body) or not body:
            if job.is_last:
                done.read.append(FileRead(job.number, version, MAX_TS, is_cut=True))
                break
            LOGGER.warning("%s was truncated after %d bytes: its writer crashed", path, whole)
            whole = reader.end(body)
        result = FileRows()
        for text in _texts(reader, body[:whole], result):
            piece = reader.rows(job, text)
            if piece.halt is not None:
                return _halted(plan, done, piece)
            if plan.early:
                result.tables += piece.tables
            else:
                _keep(piece.tables, run, seen, rows)
            result.then(piece)
        if plan.early and result.waits is not None:
            done.read.append(FileRead(job.number, version, plan.after))
            break
        done.read.append(FileRead(job.number, version, result.waits))
        _keep(result.tables, run, seen, rows)
        letters = [*result.letters, *(result.undated if result.waits is None else ())]
        controls.add((), [(DEAD, letter) for letter in letters])
        done.messages += result.messages
        done.filtered += result.filtered
        done.path_counts.update(result.path_counts)
        failpoint("files/read")
    done.files, done.tables, done.dead = (*rows.close(), *controls.close()), rows.counts(), controls.dead
    return done


def _texts(reader: CsvFiles | CanalFiles, body: bytes, rows_read: FileRows) -> Iterator[Text]:
    """Pieces of a file of about TEXT_BYTES, cut between two records; `rows_read` is the result of the pieces before."""
    offset = reader.header(body)
    head = lines = 1 if offset else 0
    while offset < len(body):
        size, end = TEXT_BYTES, 0
        while not end:
            part = body[offset : offset + size]
            end = len(part) if offset + size >= len(body) else reader.end(part)
            size *= 2
        yield Text(part[:end], head + rows_read.records, lines)
        lines += part.count(b"\n", 0, end)
        offset += end


def _keep(tables: Iterable[pa.Table], run: RunJob, seen: "_Seen", rows: RowFiles) -> None:
    for table in tables:
        if (kept := seen.fresh(table, is_loose=run.is_loose)).num_rows:
            rows.add([(run.table.name, kept)])


def _halted(plan: ReadPlan, done: RunRead, rows_read: FileRows) -> RunRead:
    """The result of a run that halts at a line, which is stored for inspection."""
    controls = ControlFiles(plan.changelog, FLUSH_BYTES)
    if rows_read.halted_at is not None and rows_read.halted_at.position not in plan.halted:
        controls.add((), [(HALT, rows_read.halted_at)])
    return RunRead(done.stream, done.is_loose, halt=rows_read.halt, files=controls.close())


class _Seen:
    """The rows of a table so far, to detect those that a restarted writer repeats. In a table without a key equal rows
    may be distinct: a loose file repeats as many as there are."""

    def __init__(self, *, has_key: bool, keeps: bool) -> None:
        self._has_key, self._keeps = has_key, keeps
        self._tables, self._high, self._size_bytes = list[pa.Table](), -1, 0

    def fresh(self, table: pa.Table, *, is_loose: bool) -> pa.Table:
        """Return the rows that no earlier file had."""
        if not self._keeps:
            return table
        low, high = pc.min_max(table["commit_ts"]).as_py().values()
        if low <= self._high and (self._has_key or is_loose):
            counts = Counter(
                row
                for table in self._tables
                for row in _values(table.filter(pc.greater_equal(table["commit_ts"], low)))
            )
            late = pc.less_equal(table["commit_ts"], self._high)
            again = []
            for row in _values(table.filter(late)):
                again.append(counts[row] > 0)
                counts[row] -= again[-1] and not self._has_key
            repeated = np.zeros(table.num_rows, bool)
            repeated[late.to_numpy()] = again
            table = table.filter(pa.array(~repeated))
        self._high = max(high, self._high)
        self._tables.append(table)
        self._size_bytes += table.nbytes
        while self._size_bytes > SEEN_BYTES and len(self._tables) > 1:
            self._size_bytes -= self._tables.pop(0).nbytes
        return table


def _values(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    for row in table.select(["commit_ts", "op", "before", "after"]).to_pylist():
        yield tuple(tuple(value) if isinstance(value, list) else value for value in row.values())
