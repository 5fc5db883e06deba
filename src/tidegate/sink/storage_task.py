"""The task of a storage sink: the rows of one table to numbered files that no index names yet.

    chunk ─► updates split ─► lines by columns ─► in order, once ─► by partition ─► cut ─► PUT if absent

A file ends after the transaction that fills it, so no transaction is in two files of a directory.  Rows that columns
cannot encode are written row by row, which also reports which row is at fault.

A source without start_ts may repeat rows: a line that its transaction already has is left out.

    canal-json    the value of a Kafka message and a terminator; a terminator in a text is escaped
    csv           one line per row, two for an UPDATE with old values; a header, if requested
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.codec.columnar import Batch, ColumnarEncoder, typed_batch
from tidegate.codec.columnar.encode.arrays import BINARY, joined, seen_content
from tidegate.codec.columnar.encode.csv import FEW_ROWS, CsvColumns
from tidegate.codec.columnar.encode.encoder import rows_of
from tidegate.codec.columnar.values import MISMATCHES, slow_reason
from tidegate.codec.csv import CsvEncoder, CsvOptions
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.storage import data_directory
from tidegate.codec.wire_table import WireTable, wire_table
from tidegate.engine.change import Chunk
from tidegate.engine.dispatch import Router, Splitter
from tidegate.engine.plan import Rows
from tidegate.engine.ports import Changes, Written
from tidegate.engine.split_columns import in_order, split_rows
from tidegate.model.errors import EncodeError, SinkRefused
from tidegate.model.event import RowChange
from tidegate.model.name import lowered
from tidegate.objectstore.failpoint import failpoint
from tidegate.sink.storage_bucket import Bucket
from tidegate.sink.storage_options import StorageOptions


class CanalLines:
    """Lines of canal-json."""

    def __init__(self, options: EncodeOptions, now_ms: int) -> None:
        self._columns = ColumnarEncoder(options, now_ms=lambda: now_ms)
        self._terminator = options.terminator.encode()

    def header(self, _table: WireTable) -> bytes:
        """Return the beginning of a file: empty for canal-json."""
        return b""

    def lines(self, batch: Batch, table: WireTable) -> Any:
        """Return the line of each row of a batch in a binary array. EncodeError."""
        return joined([self._columns.texts(batch, table).values, self._terminator], batch.rows)

    def line(self, row: RowChange, table: WireTable) -> bytes:
        """Return the line of one row. EncodeError."""
        return self._columns.pair(row, table).value + self._terminator


class CsvLines:
    """Lines of csv."""

    def __init__(self, options: CsvOptions) -> None:
        self._options, self._rows = options, CsvEncoder(options)
        self._ready: dict[tuple[int, str, str], tuple[WireTable, CsvColumns]] = {}

    def header(self, table: WireTable) -> bytes:
        """Return the beginning of a file: the names of its columns, or nothing."""
        return self._rows.header(table)

    def lines(self, batch: Batch, table: WireTable) -> Any:
        """Return the line of each row of a batch in a binary array. EncodeError; Mismatch for row-by-row writing."""
        if batch.rows < FEW_ROWS:
            rows = rows_of(batch, range(batch.rows), table)
            return pa.array([self._rows.row(row, table) for row in rows], BINARY)
        key = id(table), batch.schema, batch.table
        if key not in self._ready:
            self._ready[key] = table, CsvColumns(batch.schema, batch.table, table, self._options)
        return self._ready[key][1].lines(batch)

    def line(self, row: RowChange, table: WireTable) -> bytes:
        """Return the line of one row. EncodeError."""
        return self._rows.row(row, table)


Lines: TypeAlias = CanalLines | CsvLines


def lines_of(protocol: CsvOptions | EncodeOptions, now_ms: int) -> Lines:
    """Return a new encoder of a protocol; canal-json carries the time at which it was written."""
    return CsvLines(protocol) if isinstance(protocol, CsvOptions) else CanalLines(protocol, now_ms)


@dataclass(frozen=True, slots=True)
class FilesJob:
    """The rows of a step, which go below the directory `version`; `numbers` are the last files of directories that
    have any."""

    changes: Changes
    step: Rows
    version: str
    date: str
    numbers: Mapping[str, int]
    options: StorageOptions


@dataclass(slots=True)
class StoredRows(Written):
    """The result of a task for a table; `numbers` are the last files of the directories that it wrote to."""

    numbers: dict[str, int] = field(default_factory=dict)


class _Lines(NamedTuple):
    lines: Any
    transaction: Any
    partition: Any


def _once(lines: _Lines) -> _Lines:
    codes = lines.lines.dictionary_encode().indices.to_numpy().astype(np.int64)
    _, first = np.unique(lines.transaction * len(codes) + codes, return_index=True)
    if len(first) == len(codes):
        return lines
    rows = np.sort(first)
    return _Lines(lines.lines.take(pa.array(rows)), lines.transaction[rows], lines.partition[rows])


def write_tables(jobs: Sequence[FilesJob]) -> list[StoredRows]:
    """Write the rows of some tables into files, one table after the other.

    Raises EncodeError with table and commit_ts of a row that cannot be written."""
    return [_write_files(job) for job in jobs]


def _write_files(job: FilesJob) -> StoredRows:
    step, options = job.step, job.options
    name = step.table.name
    done = StoredRows(name)
    table, encoder = _TableLines(job), lines_of(options.encoder, time.time_ns() // 1_000_000)
    writers: dict[str, _DirectoryWriter] = {}
    for chunk in done.coming(job.changes.batches(step.table.name, step.after, step.upto)):
        try:
            encoded = table.by_columns(chunk, encoder)
            done.path_counts.add("encode/columns", len(chunk))
        except MISMATCHES as mismatch:
            encoded = table.by_rows(chunk, encoder)
            done.path_counts.add("encode/rows", len(chunk), slow_reason(mismatch), name)
        if any(batch.start_ts is None for batch, _ in chunk.parts):
            encoded = _once(encoded)
        done.rows, done.messages = done.rows + len(chunk), done.messages + len(encoded.lines)
        for partition in np.unique(encoded.partition).tolist():
            chosen = np.flatnonzero(encoded.partition == partition)
            directory = data_directory(job.version, job.date, None if partition < 0 else partition)
            if directory not in writers:
                writers[directory] = _DirectoryWriter(job, directory, encoder.header(table.wire), done)
            whole = len(chosen) == len(encoded.lines)
            lines = encoded.lines if whole else encoded.lines.take(pa.array(chosen))
            writers[directory].append(lines, encoded.transaction[chosen])
    for writer in writers.values():
        writer.flush()
    return done


class _DirectoryWriter:
    def __init__(self, job: FilesJob, directory: str, header: bytes, done: StoredRows) -> None:
        self._options, self._directory, self._header, self._done = job.options, directory, header, done
        self._bucket = Bucket(job.options.uri, job.options.address)
        self._number = job.numbers.get(directory, 0)
        self._waiting: list[memoryview] = []
        self._size = 0

    def append(self, lines: Any, transaction: Any) -> None:
        ends, text = seen_content(lines)
        last = np.flatnonzero(np.append(transaction[1:] != transaction[:-1], True))
        stops = ends[1:][last]
        begin = 0
        while begin < len(text):
            room = self._options.file_bytes - self._size
            index = min(int(np.searchsorted(stops, begin + room)), len(stops) - 1)
            end = int(stops[index])
            self._waiting.append(text[begin:end])
            self._size += end - begin
            begin = end
            if self._size >= self._options.file_bytes:
                self.flush()

    def flush(self) -> None:
        if not self._waiting:
            return
        self._number += 1
        body: list[bytes | memoryview] = [*filter(None, [self._header]), *self._waiting]
        self._bucket.create(f"{self._directory}/{self._options.names.data(self._number)}", *body)
        failpoint("storage/file-written")
        self._waiting, self._size = [], 0
        self._done.numbers[self._directory] = self._number
        self._done.size_bytes += sum(map(len, body))


class _TableLines:
    def __init__(self, job: FilesJob) -> None:
        info, options = job.step.table, job.options
        self.wire: WireTable = wire_table(info)
        self._info, self._name, self._options = info, str(info.name), options
        self._parted = options.partition_separator and info.partition is not None
        self._columns = [lowered(column.name) for column in self.wire.columns]
        self._router = Router.of((), "", EncodeOptions(protocol="canal-json"))

    def by_columns(self, chunk: Chunk, encoder: Lines) -> _Lines:
        splits = []
        for batch, numbers in chunk.parts:
            typed = self._typed(batch)
            splits.append(split_rows(typed, numbers, chunk.transaction[numbers], self._splitter(typed)))
        lines = pa.concat_arrays([encoder.lines(rows.batch, self.wire) for rows in splits])
        transaction = np.concatenate([rows.order.transaction for rows in splits])
        partition = np.concatenate([self._partitions(rows.batch) for rows in splits])
        order = in_order([rows.order for rows in splits], newarch=self._options.split.newarch)
        if order is None:
            return _Lines(lines, transaction, partition)
        return _Lines(lines.take(pa.array(order)), transaction[order], partition[order])

    def by_rows(self, chunk: Chunk, encoder: Lines) -> _Lines:
        lines: list[bytes] = []
        owners: list[tuple[int, int]] = []
        for transaction, rows in self._transactions(chunk):
            for row in rows:
                lines.append(self._located(row, partial(encoder.line, row, self.wire)))
                partition = row.partition_id if self._parted else None
                owners.append((transaction, -1 if partition is None else partition))
        transactions, partitions = np.array(owners, np.int64).reshape(-1, 2).T
        return _Lines(pa.array(lines, BINARY), transactions, partitions)

    def _transactions(self, chunk: Chunk) -> Iterator[tuple[int, tuple[RowChange, ...]]]:
        rows = []
        for index, (batch, numbers) in enumerate(chunk.parts):
            typed = self._typed(batch)
            splitter = self._splitter(typed)
            events = rows_of(typed, range(typed.rows), self.wire)
            rows += [(number, index, splitter, row) for number, row in zip(numbers.tolist(), events, strict=True)]
        rows.sort(key=lambda each: each[0])
        transaction = chunk.transaction.tolist()
        for number, group in groupby(rows, key=lambda each: transaction[each[0]]):
            for _, part in groupby(group, key=lambda each: each[1]):
                _, _, splitters, mine = zip(*part, strict=True)
                yield number, self._located(mine[0], partial(splitters[0].transaction, mine))

    def _located(self, row: RowChange, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except EncodeError as error:
            located = type(error)(f"{self._name} at commit_ts {row.commit_ts}: {error}")
            raise located.at(table=self._name, commit_ts=row.commit_ts or 0) from error

    def _typed(self, batch: Batch) -> Batch:
        """The rows with typed columns in the order of the table; messages may have them in another, such as by name."""
        typed = typed_batch(batch)
        names = [lowered(field.name) for field in typed.fields]
        if names == self._columns:
            return typed
        if sorted(names) != sorted(self._columns):
            raise SinkRefused(
                f"rows of {self._name} have the columns {', '.join(names)}, but its schema file has "
                f"{', '.join(self._columns)}"
            )
        indexes = [names.index(name) for name in self._columns]
        before, after = (image.select(indexes) for image in (typed.before, typed.after))
        return replace(typed, fields=tuple(typed.fields[index] for index in indexes), before=before, after=after)

    def _splitter(self, batch: Batch) -> Splitter:
        return Splitter.of(self._options.split, self._router.plan(self._info.name, batch.fields, self._info))

    def _partitions(self, batch: Batch) -> Any:
        if not self._parted:
            return np.full(batch.rows, -1)
        return batch.partition_id.fill_null(-1).to_numpy()
