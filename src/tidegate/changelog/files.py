"""Files of the changelog: rows as Arrow columns, the writers of a task, the state of a commit, and slices for readers.

    rows-<uuid>.parquet      | table a | table b | table b | table c | ...     one row group, one table
    control-<uuid>.parquet   DDLs and dead letters

A row group holds one table in commit_ts order, so a reader finds its rows from the footer alone.  Row groups are small,
since two rounds that share one both read it.  Rows are buffered up to a number of bytes, then written as row groups; a
file that is large enough is closed and another begun.  Files are not visible until the driver commits them.

    executor --TaskReport---------> driver --State (userMetadata of the commit)--> Changelog, a later driver

    TaskReport   one Kafka partition of one batch, or a range of a change log: its position, the files written
    State        the whole feed after a commit: positions, frontier, epoch, halts

Every commit carries a State, so the newest one is complete.

    Encoder      one row -> Encoded: the values as texts, its layout as a number
    RowColumns   Encoded ... -> one Arrow table of LANDED_SCHEMA
    landed_batch typed columns of many rows -> the same, without looking at a row
    landed_part  typed columns of a source without messages -> the same, the message columns null

Typed columns become texts by one cast each; one `take` then arranges them row by row:

    a: 1 2 3    b: x y z    ->    1 2 3 x y z    take 0 3 1 4 2 5    ->    [1 x] [2 y] [3 z]

LANDED_SCHEMA is ROWS_SCHEMA with `layout` as a dictionary: a table has few layouts, each a text of a kilobyte or more.

    footers  ->  RowGroup(path, number, table, rows, min_ts, max_ts ...)   ->  tables()    driver, no row is read
                                                              ->  batches(table) -> Chunks        any process

A ChangeSlice is a range of timestamps, a plain value: it pickles, and `narrow` leaves only what one table needs.  Names
match without case.  Chunks have whole transactions in commit order, cut at the same commit_ts for all tables; a larger
transaction is a chunk of its own, in parts of PART_BYTES.  Rows of one commit_ts are one transaction, since messages do
not have start_ts.
"""

import io
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import UNSET

from tidegate.codec.columnar import Batch, RowTexts, as_texts, row_texts, text_batch, typed_batch
from tidegate.codec.options import DecodeOptions
from tidegate.engine.change import (
    CONTROL_SCHEMA,
    ROWS_SCHEMA,
    Chunk,
    ChunkPart,
    DeadLetter,
    EventPosition,
    Layout,
    SourceDdl,
    decode_layout,
    encode_layout,
    encode_row,
)
from tidegate.engine.event_filter import acting
from tidegate.engine.frontier import Reached, larger
from tidegate.engine.ports import RowRange, TableSpan, converted
from tidegate.model.event import Field, RowChange
from tidegate.model.path_counts import PathCounts
from tidegate.model.table import TableName
from tidegate.objectstore.failpoint import failpoint
from tidegate.objectstore.stores import opened, storing, writable
from tidegate.objectstore.threads import ContextPool


class TableRows(msgspec.Struct, frozen=True):
    """The row changes of one table in a task: their number and range of commit_ts."""

    schema: str
    table: str
    rows: int
    min_ts: int
    max_ts: int


class LandedFile(msgspec.Struct, frozen=True):
    """A Parquet file of the changelog that no commit names yet."""

    path: str
    part: str
    """"rows" or "control"."""
    size_bytes: int
    rows: int
    min_ts: int | None = None
    max_ts: int | None = None


class Halt(msgspec.Struct, frozen=True):
    """The error at which a partition is halted. `order`: its rows have no commit_ts, so the mode is wrong and there is
    no dead letter."""

    topic: str
    partition: int
    offset: int
    code: str
    reason: str
    order: bool = False

    @property
    def position(self) -> EventPosition:
        return EventPosition(self.topic, self.partition, self.offset)


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """One Kafka partition of one batch, from offset `start` to `position`. For a change log, which has no topic, both
    are timestamps."""

    topic: str = ""
    partition: int = 0
    start: int
    position: int
    high: int = 0
    """The end of the partition when the batch was planned."""
    resolved: int | None = None
    since: int | None = None
    """The first resolved ts; the partition has all changes above it."""
    messages: int = 0
    filtered: int = 0
    """Rows of tables outside the feed."""
    path_counts: PathCounts = msgspec.field(default_factory=PathCounts)
    """Rows by path."""
    ddls: int = 0
    dead: int = 0
    tables: tuple[TableRows, ...] = ()
    files: tuple[LandedFile, ...] = ()
    halt: Halt | None = None


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A changelog after one of its commits; rows, ddls, dead and messages count that commit alone."""

    feed: str = ""
    epoch: int = 0
    """Increases when a landing takes the changelog over, which fences the older one at its next commit."""
    batch: int = 0
    decode: DecodeOptions | None = None
    """Decode options of the topics, without the addresses of claim-check storage and upstream, which may carry
    secrets."""
    positions: dict[str, dict[int, Reached]] = {}
    """The durable position of each partition; empty for a change log, whose position is the frontier."""
    identities: dict[str, str] = {}
    """The id of each topic, which distinguishes it from another of the same name; "" for a broker without ids, after a
    warning."""
    frontier: int | None = None
    halted: tuple[Halt, ...] = ()
    floor: int | None = None
    """Upkeep may have removed rows at or below this ts: readers from below it miss some."""
    messages: int = 0
    rows: int = 0
    ddls: int = 0
    dead: int = 0


DDL: Final = "ddl"
LEFT_OUT: Final = "left-out"
"""A DDL of a transaction that the feed leaves out: it is not applied, but later rows may depend on it."""
DEAD: Final = "dead"
HALT: Final = "halt"
"""A message at which the feed is halted: stored for inspection, not yet a dead letter."""
REFUSED: Final = "refused"
"""A landed message that a sink refuses: stored for inspection, not yet a dead letter."""
REPLAYED: Final = "replayed"
"""The dead letter at this position was replayed; its rows are in the same commit."""

FILE_BYTES: Final = 64 << 20
ROWS_MAX: Final = 500_000
"""Rows after which a flush follows at the latest, so that one task can read a row group."""
GROUP_ROWS: Final = 32_768
BACKLOG: Final = 50_000
"""Messages in one task from which the landing counts as behind: then speed matters more than size."""
PLAIN: Final = {"compression": "zstd", "compression_level": 1}
HASTY: Final = {"compression": "zstd", "compression_level": -7}
"""The compression while behind: as small as snappy's, in 0.55 us a row of 300 bytes instead of 0.95."""
ROWS_OPTIONS: Final = {
    "use_dictionary": ["topic", "op", "schema", "table", "layout"],
    "write_statistics": ["schema", "table", "commit_ts"],
}


class RowFiles:
    """Buffers tables of LANDED_SCHEMA and writes them as files; `messages` is the number of their messages."""

    def __init__(self, uri: str, *, flush_bytes: int, messages: int = 0) -> None:
        self._uri = uri
        self._compression = HASTY if messages >= BACKLOG else PLAIN
        self._flush_bytes = flush_bytes
        self._buffered: dict[TableName, list[pa.Table]] = {}
        self._held_bytes = self._held_rows = 0
        self._open: _OpenFile | None = None
        self._files: list[LandedFile] = []
        self._counts: dict[TableName, TableRows] = {}

    def add(self, tables: Iterable[tuple[TableName, pa.Table]]) -> None:
        """Buffer rows, and flush the buffer when it is full."""
        for name, table in tables:
            self._buffered.setdefault(name, []).append(table)
            self._held_bytes += table.nbytes
            self._held_rows += table.num_rows
        if self._held_bytes >= self._flush_bytes or self._held_rows >= ROWS_MAX:
            self._flush()

    def close(self) -> tuple[LandedFile, ...]:
        """Flush the buffer; return every file."""
        self._flush()
        self._roll()
        return tuple(self._files)

    def counts(self) -> tuple[TableRows, ...]:
        """Return the row counts of each table."""
        return tuple(self._counts[name] for name in sorted(self._counts))

    def _flush(self) -> None:
        for name in sorted(self._buffered):
            table = by_time(pa.concat_tables(self._buffered[name]).unify_dictionaries())
            if self._open is None:
                self._open = _OpenFile(self._compression)
            low, high = self._open.write(table)
            counts = self._counts.get(name, TableRows(*name, 0, low, high))
            self._counts[name] = TableRows(
                *name, counts.rows + table.num_rows, min(counts.min_ts, low), max(counts.max_ts, high)
            )
        self._buffered, self._held_bytes, self._held_rows = {}, 0, 0
        if self._open is not None and self._open.size_bytes >= FILE_BYTES:
            self._roll()

    def _roll(self) -> None:
        if self._open is not None:
            self._files.append(self._open.put(self._uri))
            self._open = None


class _OpenFile:
    def __init__(self, compression: Mapping[str, Any]) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, LANDED_SCHEMA, **ROWS_OPTIONS, **compression)
        self._rows = 0
        self._low: int | None = None
        self._high: int | None = None

    @property
    def size_bytes(self) -> int:
        return int(self._sink.tell())

    def write(self, table: pa.Table) -> tuple[int, int]:
        """Append rows of one table; return their range of commit_ts."""
        self._writer.write_table(table, row_group_size=GROUP_ROWS)
        low, high = pc.min_max(table.column("commit_ts")).as_py().values()
        self._rows += table.num_rows
        self._low = low if self._low is None else min(low, self._low)
        self._high = larger(high, self._high)
        return int(low), int(high)

    def put(self, uri: str) -> LandedFile:
        self._writer.close()
        path, size_bytes = _put(uri, "rows", self._sink)
        return LandedFile(path, "rows", size_bytes, self._rows, self._low, self._high)


def by_time(table: pa.Table) -> pa.Table:
    """`table` in commit_ts order; rows of one commit_ts keep their order."""
    ts = table.column("commit_ts").combine_chunks()
    if len(ts) < 2 or pc.all(pc.less_equal(ts[:-1], ts[1:])).as_py():
        return table
    return table.take(pc.sort_indices(ts))


class ControlFiles:
    """Buffers DDLs and letters and writes them to separate files, which the bytes of the letters limit."""

    def __init__(self, uri: str, flush_bytes: int) -> None:
        self._uri = uri
        self._flush_bytes = flush_bytes
        self._rows: list[dict[str, Any]] = []
        self._letters: list[dict[str, Any]] = []
        self._held_bytes = 0
        self._files: list[LandedFile] = []
        self.ddls = self.dead = 0

    def add(self, ddls: Iterable[SourceDdl], letters: Iterable[tuple[str, DeadLetter]]) -> None:
        """Buffer DDLs and (kind, letter) pairs."""
        for source_ddl in ddls:
            ddl = source_ddl.ddl
            self._rows.append(
                {
                    **_position_columns(source_ddl.position),
                    "kind": LEFT_OUT if source_ddl.left_out else DDL,
                    "commit_ts": ddl.commit_ts,
                    "schema": ddl.schema,
                    "table": ddl.table,
                    "query": ddl.query,
                    "written": None if ddl.written is UNSET else ddl.written,
                    "session": None if ddl.session is UNSET else msgspec.json.encode(ddl.session).decode(),
                    "ddl_type": acting(ddl).type,
                    "rows_follow": source_ddl.rows_follow,
                }
            )
            self.ddls += 1
        for kind, letter in letters:
            self._letters.append(
                {
                    **_position_columns(letter.position),
                    "kind": kind,
                    "commit_ts": letter.commit_ts,
                    "error_code": letter.error_code,
                    "error": letter.error.encode("utf-8", "backslashreplace").decode(),
                    "error_offset": letter.error_offset,
                    "raw_key": letter.raw_key,
                    "raw_value": letter.raw_value,
                }
            )
            self.dead += kind == DEAD
            self._held_bytes += len(letter.raw_key or b"") + len(letter.raw_value or b"")
        if self._held_bytes >= self._flush_bytes:
            self._flush()

    def close(self) -> tuple[LandedFile, ...]:
        """Flush the buffer; return every file."""
        self._flush()
        return tuple(self._files)

    def _flush(self) -> None:
        for kind in (self._rows, self._letters):
            if kind:
                sink = pa.BufferOutputStream()
                pq.write_table(pa.Table.from_pylist(kind, schema=CONTROL_SCHEMA), sink, **PLAIN)
                path, size_bytes = _put(self._uri, "control", sink)
                self._files.append(LandedFile(path, "control", size_bytes, len(kind)))
        self._rows, self._letters, self._held_bytes = [], [], 0


def _position_columns(position: EventPosition) -> dict[str, Any]:
    message = (position.topic, position.partition, position.offset) if position.topic else (None, None, None)
    return dict(zip(("topic", "partition", "offset", "seq"), (*message, position.seq), strict=True))


def _put(uri: str, part: str, sink: Any) -> tuple[str, int]:
    body = sink.getvalue()
    path = f"part={part}/{uuid.uuid4().hex}.parquet"
    with storing(uri):
        failpoint("landing/before-file")
        obstore.put(writable(uri), path, memoryview(body).cast("B"))
    failpoint("landing/after-file")
    return path, body.size


LAYOUT_TYPE: Final = pa.dictionary(pa.int32(), pa.string())
LANDED_SCHEMA: Final = pa.schema(
    [entry.with_type(LAYOUT_TYPE) if entry.name == "layout" else entry for entry in ROWS_SCHEMA]
)
IMAGE: Final = LANDED_SCHEMA.field("after").type
_MESSAGE: Final = ("topic", "partition", "offset")
MAX_LAYOUTS: Final = 10_000
"""The most layouts to remember by identity, since a decoder that does not share them between rows would fill memory."""

Image = list[bytes | None] | None


class Encoded(NamedTuple):
    """One row in the form of the columns."""

    name: TableName
    seq: int
    commit_ts: int
    op: str
    partition_id: int | None
    layout: str
    before: Image
    after: Image


class Encoder:
    """Encodes rows as texts and caches their layouts."""

    def __init__(self) -> None:
        self._by_identity: dict[tuple[int, tuple[str, ...] | None], tuple[tuple[Field, ...], str]] = {}
        self._texts: dict[str, str] = {}
        self._names: dict[tuple[str, str], TableName] = {}

    def encode(self, row: RowChange, seq: int) -> Encoded:
        """Return the row as texts. Raises UnicodeEncodeError for names and values that UTF-8 cannot write."""
        op, before, after = encode_row(row)
        ts = row.commit_ts
        assert ts is not None
        name = self._names.get((row.schema, row.table))
        if name is None:
            name = TableName(row.schema, row.table)
            str(name).encode()
            self._names[name] = name
        return Encoded(name, seq, ts, op, row.partition_id, self._layout(row), before, after)

    def _layout(self, row: RowChange) -> str:
        """The layout's text, the same object for equal texts."""
        key = id(row.fields), row.pk_names
        numbered = self._by_identity.get(key)
        if numbered is not None and numbered[0] is row.fields:
            return numbered[1]
        text = encode_layout(row)
        text = self._texts.setdefault(text, text)
        if len(self._by_identity) >= MAX_LAYOUTS:
            self._by_identity.clear()
        self._by_identity[key] = row.fields, text
        return text


class RowColumns:
    """Builders of one table's columns, row by row."""

    def __init__(self, topic: str, partition: int, name: TableName) -> None:
        self._constants = topic, partition, name
        self._offsets: list[int] = []
        self._rows: list[Encoded] = []

    def add(self, offset: int, row: Encoded) -> None:
        """Append a row of the message at `offset`."""
        self._offsets.append(offset)
        self._rows.append(row)

    def table(self) -> pa.Table:
        """Return all rows, in the order in which they were added."""
        topic, partition, name = self._constants
        rows = len(self._offsets)
        _, seqs, ts, ops, partition_ids, layouts, befores, afters = zip(*self._rows, strict=True)
        numbers = {text: number for number, text in enumerate(dict.fromkeys(layouts))}
        columns = {
            "topic": pa.repeat(pa.scalar(topic), rows),
            "partition": pa.repeat(pa.scalar(partition, pa.int32()), rows),
            "offset": pa.array(self._offsets, pa.int64()),
            "seq": pa.array(seqs, pa.int32()),
            "commit_ts": pa.array(ts, pa.int64()),
            "op": pa.array(ops, pa.string()),
            "schema": pa.repeat(pa.scalar(name.schema), rows),
            "table": pa.repeat(pa.scalar(name.table), rows),
            "partition_id": pa.array(partition_ids, pa.int64()),
            "layout": pa.DictionaryArray.from_arrays(
                pa.array([numbers[text] for text in layouts], pa.int32()), pa.array(list(numbers), pa.string())
            ),
            "before": pa.array(befores, IMAGE),
            "after": pa.array(afters, IMAGE),
        }
        return pa.Table.from_arrays([columns[entry.name] for entry in LANDED_SCHEMA], schema=LANDED_SCHEMA)


def landed_batch(topic: str, partition: int, offsets: pa.Array, batch: Batch) -> pa.Table:
    """Return the rows of a batch as LANDED_SCHEMA; `offsets[i]` (int64) is the offset of message i of the chunk."""
    rows = batch.rows
    position = {
        "topic": pa.repeat(pa.scalar(topic), rows),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), rows),
        "offset": offsets.take(batch.message),
        "seq": batch.seq,
    }
    return _landed(position, batch)


def landed_part(part: ChunkPart) -> pa.Table:
    """Return the rows of a part of a chunk as LANDED_SCHEMA, without a message; `seq` is their number in the chunk, of
    rows that a DDL brings a negative one."""
    nulls = {name: pa.nulls(part.batch.rows, LANDED_SCHEMA.field(name).type) for name in _MESSAGE}
    of_ddl = part.batch.start_ts.to_numpy() == 0
    seq = np.where(of_ddl, part.numbers + np.iinfo(np.int32).min, part.numbers) if of_ddl.any() else part.numbers
    return _landed({**nulls, "seq": pa.array(seq, pa.int32())}, part.batch)


def _landed(position: Mapping[str, Any], batch: Batch) -> pa.Table:
    rows = batch.rows
    layout = msgspec.json.encode(Layout(batch.fields, batch.pk_names)).decode()
    columns = {
        **position,
        "commit_ts": batch.commit_ts,
        "op": batch.op,
        "schema": pa.repeat(pa.scalar(batch.schema), rows),
        "table": pa.repeat(pa.scalar(batch.table), rows),
        "partition_id": batch.partition_id,
        "layout": pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([layout])),
        "before": _image_lists(batch.before, pc.not_equal(batch.op, "I")),
        "after": _image_lists(batch.after, pc.not_equal(batch.op, "D")),
    }
    return pa.Table.from_arrays([columns[entry.name] for entry in LANDED_SCHEMA], schema=LANDED_SCHEMA)


def _image_lists(images: Any, present: Any) -> Any:
    """A list of texts for each row, null where it has no such image."""
    values, width = images if isinstance(images, RowTexts) else row_texts(list(map(as_texts, images.columns)))
    is_present = present.to_numpy(zero_copy_only=False)
    ends = np.concatenate(([0], np.cumsum(is_present, dtype=np.int32) * width)).astype(np.int32)
    offsets = pa.array(ends, pa.int32(), mask=np.append(~is_present, False))
    return pa.ListArray.from_arrays(offsets, values)


CHUNK_ROWS: Final = 16_384
"""Rows of a chunk: enough that its calls cost little per row, and few enough for some copies in memory."""
PART_BYTES: Final = 32 << 20
"""The bytes of a part's images, unless one row is larger; results made from them take several times as much."""

MakeBatch: TypeAlias = Callable[[pa.Table, tuple[Field, ...], tuple[str, ...] | None], Batch]


def chunks_of(tables: Sequence[pa.Table], most: int = CHUNK_ROWS) -> Iterator[Chunk]:
    """Return the rows of `tables` (LANDED_SCHEMA, each sorted by commit_ts, one upstream table each) as chunks of about
    `most` rows, images typed. EncodeError, with their messages, for rows with a text that is no value of its column."""
    return _chunks(tables, most, lambda *rows: converted(text_batch(*rows), typed_batch))


def text_chunks(rows: pa.Table) -> Iterator[Chunk]:
    """Return the rows of one upstream table (LANDED_SCHEMA, sorted by commit_ts) as chunks of about PART_BYTES, images
    as RowTexts."""
    return _chunks([rows], _rows_within(rows, PART_BYTES), text_batch)


def _rows_within(rows: pa.Table, size_bytes: int) -> int:
    """The number of rows, at least one, whose images have `size_bytes` together, on average."""
    return max(1, int(rows.num_rows * size_bytes // max(1, rows.select(["before", "after"]).nbytes)))


def _chunks(tables: Sequence[pa.Table], most: int, batch: MakeBatch) -> Iterator[Chunk]:
    tables = [table for table in tables if table.num_rows]
    times = [table.column("commit_ts").to_numpy() for table in tables]
    starts = [0] * len(tables)
    every = np.sort(np.concatenate(times)) if times else np.empty(0, np.int64)
    position = 0
    while position < len(every):
        ts = int(every[min(position + most, len(every)) - 1])  # the last of the chunk
        position = int(np.searchsorted(every, ts, "right"))
        ends = [int(np.searchsorted(time, ts, "right")) for time in times]
        pieces = [
            (table.slice(start, end - start), time[start:end])
            for table, time, start, end in zip(tables, times, starts, ends, strict=True)
            if end > start
        ]
        starts = ends
        yield _chunk(pieces, batch)


def _chunk(pieces: Sequence[tuple[pa.Table, Any]], batch: MakeBatch) -> Chunk:
    every = np.concatenate([time for _, time in pieces])
    order = np.argsort(every, kind="stable")
    numbers = np.empty(len(every), np.int64)
    numbers[order] = np.arange(len(every))
    transaction = np.zeros(len(every), np.int64)
    np.cumsum(every[order][1:] != every[order][:-1], out=transaction[1:])
    parts: list[ChunkPart] = []
    start = 0
    for rows, time in pieces:
        parts += _parts(rows, numbers[start : start + len(time)], batch)
        start += len(time)
    path_counts = PathCounts()
    path_counts.add("changelog/columns", len(every))
    return Chunk(tuple(parts), transaction, path_counts)


def _parts(rows: pa.Table, numbers: Any, batch: MakeBatch) -> Iterator[ChunkPart]:
    layouts = rows.column("layout").combine_chunks()
    codes = pc.unique(layouts.indices).to_pylist()
    for code in codes:
        some, some_numbers = rows, numbers
        if len(codes) > 1:
            mine = pc.equal(layouts.indices, code)
            some, some_numbers = rows.filter(mine), numbers[mine.to_numpy(zero_copy_only=False)]
        layout = decode_layout(layouts.dictionary[code].as_py())
        step = _rows_within(some, PART_BYTES)
        for start in range(0, len(some_numbers), step):
            new_batch = batch(some.slice(start, step), layout.fields, layout.pk_names)
            numbered = some_numbers[start : start + step]
            yield ChunkPart(replace(new_batch, message=pc.cast(pa.array(numbered), pa.int32())), numbered)


LAYOUT_COLUMNS: Final = ["commit_ts", "layout"]
GROUPS_KEPT: Final = 200_000
"""Row groups of cached footers, about 50 MB: with 200 tables, the footers of a thousand files."""
FILES_KNOWN: Final = 16
"""Files whose footers a worker caches, as it reads one table after the other from the same files."""
READS_AT_ONCE: Final = 4
"""Concurrent reads of row groups in an object store, where each is a request."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group: rows of one table."""

    path: str
    number: int
    name: TableName
    rows: int
    min_ts: int
    max_ts: int
    size_bytes: int = 0
    """Bytes in memory. Images are written plain, so a text in a thousand rows counts a thousand times, however well it
    is compressed on disk."""

    def touches(self, after: int, upto: int) -> bool:
        """Return True if it may have a row in (after, upto]."""
        return self.max_ts > after and self.min_ts <= upto


@dataclass(frozen=True, slots=True)
class ChangeSlice:
    """The row changes with after < commit_ts <= upto, by table."""

    uri: str
    after: int
    upto: int
    groups: tuple[RowGroup, ...]

    def tables(self) -> dict[TableName, TableSpan]:
        """Return the tables in the slice, each under the first spelling of its name."""
        tables: dict[tuple[str, str], tuple[TableName, TableSpan]] = {}
        for group in self.groups:
            low, high = max(group.min_ts, self.after + 1), min(group.max_ts, self.upto)
            name, span = tables.get(group.name.key, (group.name, TableSpan(0, low, high)))
            tables[group.name.key] = name, span.joined(group.rows, low, high)
        return dict(tables.values())

    def row_ranges(self) -> Iterator[RowRange]:
        for group in self.groups:
            yield RowRange(group.min_ts, group.max_ts, group.rows, group.size_bytes)

    def narrow(self, name: TableName, after: int | None = None, upto: int | None = None) -> "ChangeSlice":
        """Return the part of the slice that belongs to one table and a smaller range."""
        low = self.after if after is None else max(after, self.after)
        high = self.upto if upto is None else min(upto, self.upto)
        groups = tuple(group for group in self.groups if group.name.key == name.key and group.touches(low, high))
        return replace(self, after=low, upto=high, groups=groups)

    def read(self, name: TableName, after: int | None = None, upto: int | None = None) -> pa.Table:
        """Return the rows of one table in commit_ts order, arrival order within it.

        Columns are those of ROWS_SCHEMA, `layout` dictionary-encoded (LANDED_SCHEMA): it repeats a long text."""
        parts = self.narrow(name, after, upto).parts(LANDED_SCHEMA.names)
        rows = pa.concat_tables([LANDED_SCHEMA.empty_table(), *parts]).unify_dictionaries()
        order = [(column, "ascending") for column in ("commit_ts", "topic", "partition", "offset", "seq")]
        indexes = pc.sort_indices(rows, sort_keys=order)
        return rows if np.array_equal(indexes.to_numpy(), np.arange(len(indexes))) else rows.take(indexes)

    def layouts(self, name: TableName, after: int | None = None, upto: int | None = None) -> list[Layout]:
        mine = self.narrow(name, after, upto)
        rows = pa.concat_tables(
            [LANDED_SCHEMA.empty_table().select(LAYOUT_COLUMNS), *mine.parts(LAYOUT_COLUMNS)]
        ).unify_dictionaries()
        first = rows.group_by("layout").aggregate([("commit_ts", "min")]).sort_by("commit_ts_min")
        return [decode_layout(text) for text in first.column("layout").to_pylist()]

    def batches(self, name: TableName, after: int, upto: int) -> Iterator[Chunk]:
        return text_chunks(self.read(name, after, upto))

    def in_order(self, names: Collection[TableName], after: int, upto: int) -> Iterator[Chunk]:
        return chunks_of([self.read(name, after, upto) for name in names])

    def parts(self, columns: Sequence[str]) -> list[pa.Table]:
        """Return some columns of all rows in the range, one table per file."""
        by_path: dict[str, list[RowGroup]] = {}
        for group in self.groups:
            by_path.setdefault(group.path, []).append(group)
        range_ = self.after, self.upto
        if "://" not in self.uri:
            return [_read(self.uri, path, groups, columns, range_) for path, groups in by_path.items()]
        with ContextPool(READS_AT_ONCE) as pool:
            return list(pool.map(lambda group: _read(self.uri, group.path, [group], columns, range_), self.groups))


def _read(uri: str, path: str, groups: Sequence[RowGroup], columns: Sequence[str], range_: tuple[int, int]) -> pa.Table:
    """Read row groups of a file one by one, so that a large one with few matching rows is released before the next."""
    after, upto = range_
    schema = pa.schema([LANDED_SCHEMA.field(name) for name in columns])
    parts = []
    metadata, size = _read_footer(uri, path)
    with opened(uri, path, size) as source:
        file = pq.ParquetFile(source, metadata=metadata, read_dictionary=["layout"], pre_buffer=True)
        for group in groups:
            rows = file.read_row_groups([group.number], columns=list(columns))
            if group.min_ts <= after or group.max_ts > upto:
                ts = rows.column("commit_ts")
                rows = rows.filter(pc.and_(pc.greater(ts, after), pc.less_equal(ts, upto)))
            parts.append(rows.select(list(columns)).cast(schema))
    return pa.concat_tables(parts)


class Footers:
    """A cache of the footers used last, up to `most` row groups together; files never change."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.groups = 0
        self._kept: OrderedDict[tuple[str, str], tuple[RowGroup, ...]] = OrderedDict()
        self._turn = threading.Lock()

    def of(self, uri: str, path: str) -> tuple[RowGroup, ...]:
        """Return the row groups of one file."""
        with self._turn:
            groups = self._kept.get((uri, path))
            if groups is not None:
                self._kept.move_to_end((uri, path))
                return groups
        metadata, size = _read_footer(uri, path)
        with opened(uri, path, size) as source:
            file = pq.ParquetFile(source, metadata=metadata)
            columns = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
            groups = tuple(_group(path, number, file, columns) for number in range(metadata.num_row_groups))
        with self._turn:
            if (uri, path) not in self._kept:
                self._kept[uri, path] = groups
                self.groups += len(groups)
            while self.groups > self.most and len(self._kept) > 1:
                self.groups -= len(self._kept.popitem(last=False)[1])
        return groups


FOOTERS: Final = Footers(GROUPS_KEPT)


def groups_of(uri: str, path: str) -> tuple[RowGroup, ...]:
    """Return the row groups of one file, from its cached footer."""
    return FOOTERS.of(uri, path)


@lru_cache(FILES_KNOWN)
def _read_footer(uri: str, path: str) -> tuple[pq.FileMetaData, int]:
    with opened(uri, path) as source:
        return pq.ParquetFile(source).metadata, source.seek(0, io.SEEK_END) or source.tell()


def _group(path: str, number: int, file: pq.ParquetFile, columns: dict[str, int]) -> RowGroup:
    group = file.metadata.row_group(number)
    schema, table, ts = (group.column(columns[name]).statistics for name in ("schema", "table", "commit_ts"))
    if schema.has_min_max and table.has_min_max:
        assert (schema.min, table.min) == (schema.max, table.max), (path, number)
        name = _named(schema.min, table.min)
    else:  # Parquet keeps none of texts above 4 KiB
        first = file.read_row_group(number, columns=["schema", "table"]).slice(0, 1).to_pylist()[0]
        name = _named(first["schema"], first["table"])
    return RowGroup(path, number, name, group.num_rows, ts.min, ts.max, group.total_byte_size)


@lru_cache(maxsize=10_000)
def _named(schema: str, table: str) -> TableName:
    """One object for all row groups of a table."""
    return TableName(schema, table)
