"""The change log as files in a directory or an object store: segments, base files, service safe points, and a `KvLog`
over them.

    <directory>/<low>-<high>.seg                 commit_ts in (low, high], both of 20 digits: names sort by time
    <directory>/<ts>.base                        a segment whose rows are the keys of databases and tables at ts
    <directory>/<ts>.full                        the same for a log that holds every row that existed at ts
    <directory>/feeds/<changefeed>.<sink>.json   {"changefeed": "shop", "checkpoint_ts": 470606747354005504, ...}
    <directory>/writer                           locked (flock) while a writer runs; free: no new rows until one starts

    "TGSEG002" | block | block | ... | footer | footer bytes 4 | crc32 of the footer 4 | "TGSEG002"
               Arrow columns of one    msgpack: low, high, and of each block its first and last key,
               table (or meta keys)    first and last commit_ts, offset, bytes, rows, crc32

- Numbers at the end are big endian.  A row is a KvChange of type COMMITTED, a block a record batch of them
  (kv/change_columns.py).
- The low of a segment is the high of the one before it: there are no gaps.
- A segment is written to a temporary file, flushed, and renamed, so a file named .seg is complete.  After a crash the
  next writer begins at the last high and takes the rest from the store's versions, so the store must keep what is above
  (its GC safe point stays at or below `SegmentWriter.low`).
- A reader of a table reads footers, and blocks of that table only, about one block of each table at a time.  Footers
  never change, so each is read once per process.

    trimmed   30.base │ (30, 42] │ (42, 50] │        the schema keys at 30; segments below it are removed
    begun     29.full │ (29, 30] │ (30, 42] │        on a store with data: all its rows as inserts at 30

- The log begins at the newest base; older bases and segments below it are ignored, deleted or not.  `trim` writes the
  base first, then deletes, and may be killed at any point.  It removes whole segments, and never the last one.
- A base is only made at a ts where no DDL job runs: definitions are then those of finished jobs.

In an object store (objectstore/store_path.py) a segment has its low for a name, and is created only if there is none of
that name.  So a log has one segment above each ts, and one of two writers that are at its end goes on; the other one,
which may have been taken for dead, is fenced.  The first base has the name 0, for the same reason.

    000..0.base │ 42.seg ──► 57.seg ──► 60.seg      the high of a segment is the low of the next one; that of the last
       at 42    │  (42, 57]   (57, 60]   (60, ?]    one is in its footer

There are no locks: nobody learns whether a writer runs.

The safe point is the least checkpoint of changefeeds active within gc-ttl (a day, as in TiCDC); a log is not trimmed
above it.  A running changefeed replaces its file every few seconds, atomically.  `<sink>` is a digest of the sink's
address, so two changefeeds of one name into different sinks have a safe point each; a file without it counts like any
other until its ttl is over.

`create_statements` gives the tables of a snapshot as the statements of SHOW CREATE, with its ts, for a lake that begins
later than its upstream.
"""

import fcntl
import hashlib
import os
import re
import time
import weakref
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from heapq import merge
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.filter import SYSTEM_SCHEMAS
from tidegate.kv.change_columns import change_batch, changes_of, joined, numbers, packed, unpacked
from tidegate.kv.keys import table_span
from tidegate.model.errors import DecodeError, Fenced, HistoryLost, SourceError, StoreUnavailable
from tidegate.model.event import Ddl
from tidegate.model.kept_state import StateKind, check_version, decode_state, encode_state
from tidegate.model.kv_change import KvChange, KvOp
from tidegate.model.mysql import ActionType
from tidegate.model.name import lowered
from tidegate.model.tso import MAX_TS
from tidegate.mysql.encoding import decode_int
from tidegate.objectstore.local_files import PRIVATE_DIRECTORY, write_whole
from tidegate.objectstore.store_path import AT_ONCE, Location, StorePath, ahead, numbered, unlinked
from tidegate.objectstore.stores import Changed, disk_fault
from tidegate.schema.job import JOB_TABLE
from tidegate.schema.stored.create import render_create_schema, render_create_table
from tidegate.schema.stored.history import defined_by
from tidegate.schema.stored.meta import Meta
from tidegate.schema.stored.snapshot import StoredSnapshot, load_all
from tidegate.source.tidb_log import LogBegin, LogPart, Span, Stored, Tables, Window, name_of

MAGIC: Final = b"TGSEG%03d" % StateKind.SEGMENT.version
TABLE_BYTES: Final = 9
"""`t` and the id of a table: keys with the same nine bytes share a block; all meta keys (`m`) share one."""
BLOCK_ROWS: Final = 4_096

_TABLE_KEY: Final = b"t"
_NAME: Final = re.compile(r"(\d{20})-(\d{20})\.seg")
_STORED_NAME: Final = re.compile(r"(\d{20})\.seg")
_WRITER: Final = "writer"
CAPTURE: Final = "capture"
"""The file that a capture locks while it runs, and leaves in its log's directory."""
_ANY_MAGIC: Final = re.compile(rb"TGSEG([0-9]{3})")
_TAIL_BYTES: Final = 8 + len(MAGIC)
_CODEC: Final = "segment"


class Block(msgspec.Struct, frozen=True):
    """A block of a segment, with rows of one table."""

    first_key: bytes
    last_key: bytes
    offset: int
    size_bytes: int
    rows: int
    crc32: int
    first_ts: int = 0
    last_ts: int = MAX_TS

    def meets(self, start: bytes, end: bytes) -> bool:
        """Return whether it may have a key in [start, end)."""
        return self.last_key >= start and (not end or self.first_key < end)


class Footer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The footer of a segment, which has all rows with commit_ts in (low, high]."""

    low: int
    high: int
    blocks: tuple[Block, ...]
    writer: str = ""
    """What tells writers of a log in an object store apart."""


_FOOTER: Final = msgspec.msgpack.Decoder(Footer)


def encode_segment(low: int, high: int, rows: list[KvChange], writer: str = "") -> bytes:
    """Return the bytes of a segment; `rows` are in commit order."""
    return encode_columns(low, high, change_batch(rows), writer)


def encode_columns(low: int, high: int, rows: Any, writer: str = "") -> bytes:
    """Return the bytes of a segment; `rows` is a record batch in commit order."""
    parts, blocks, offset = [MAGIC], [], len(MAGIC)
    keys = rows.column("key")
    table_keys = pc.starts_with(keys, _TABLE_KEY)
    tables = pc.if_else(table_keys, pc.binary_slice(keys, 0, TABLE_BYTES), pc.binary_slice(keys, 0, 1))
    order = pc.sort_indices(tables)
    by_table, start = rows.take(order), 0
    for end in pc.run_end_encode(tables.take(order)).run_ends.to_pylist():
        for first in range(start, end, BLOCK_ROWS):
            chunk = by_table.slice(first, min(BLOCK_ROWS, end - first))
            data, times = packed(chunk), numbers(chunk, "commit_ts")
            low_key, high_key = (edge.as_py() for edge in pc.min_max(chunk.column("key")).values())
            bounds = int(times.min()), int(times.max())
            blocks.append(Block(low_key, high_key, offset, len(data), len(chunk), zlib.crc32(data), *bounds))
            parts.append(data)
            offset += len(data)
        start = end
    footer = msgspec.msgpack.encode(Footer(low, high, tuple(blocks), writer))
    tail = len(footer).to_bytes(4, "big") + zlib.crc32(footer).to_bytes(4, "big")
    return b"".join((*parts, footer, tail, MAGIC))


def decode_footer(segment: bytes, where: str = "a segment") -> Footer:
    """Return the footer of a segment; DecodeError for damaged bytes, StateTooNew."""
    _check_version(segment[: len(MAGIC)], segment[-len(MAGIC) :], where)
    tail = len(segment) - _TAIL_BYTES
    if tail < len(MAGIC) or segment[: len(MAGIC)] != MAGIC or segment[tail + 8 :] != MAGIC:
        raise DecodeError("no segment of version 2", _CODEC, 0)
    size = int.from_bytes(segment[tail : tail + 4], "big")
    footer = segment[max(tail - size, 0) : tail]
    if zlib.crc32(footer) != int.from_bytes(segment[tail + 4 : tail + 8], "big"):
        raise DecodeError("the checksum of the footer does not hold", _CODEC, tail)
    try:
        decoded = _FOOTER.decode(footer)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"footer: {error}", _CODEC, tail - size) from error
    if any(block.offset < len(MAGIC) or block.size_bytes < 0 or block.rows < 0 for block in decoded.blocks):
        raise DecodeError("footer: a block where none can lie", _CODEC, tail - size)
    return decoded


def _check_version(head: bytes, tail: bytes, where: str) -> None:
    """Raise StateTooNew where both ends of a segment name a version that this release does not know."""
    if head == tail and (match := _ANY_MAGIC.fullmatch(head)) is not None:
        check_version(StateKind.SEGMENT, int(match[1]), where)


def decode_segment(segment: bytes, where: str = "a segment") -> tuple[Footer, list[KvChange]]:
    """Return the footer and all rows of a small segment, table by table; DecodeError for damaged bytes, StateTooNew."""
    footer, read = decode_footer(segment, where), partial(_read_block, BytesIO(segment))
    everything = ((b"", b""),)
    rows = (changes_of(_columns_of_block(read(block), "segment", block, everything)) for block in footer.blocks)
    return footer, [row for of_block in rows for row in of_block]


def read_footer(path: Location) -> Footer:
    """Return the footer of a segment's file, without its rows; DecodeError for a damaged one, StateTooNew."""
    with path.open("rb") as file:
        return _footer_of(file, path)


def _footer_of(file: BinaryIO, path: Location) -> Footer:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _TAIL_BYTES, 0))
    tail = file.read()
    file.seek(max(size - _TAIL_BYTES - int.from_bytes(tail[:4], "big"), 0))
    end, head = file.read(), tail[8:]  # an object is whole
    if isinstance(path, Path):
        file.seek(0)
        head = file.read(len(MAGIC))
    return decode_footer(head + end, str(path))


def segments(directory: Location, *, fresh: bool = False) -> list[tuple[int, int, Location]]:
    """Return (low, high, file) of each segment in `directory`, by time; in an object store as they were a second ago,
    unless `fresh`."""
    if isinstance(directory, StorePath):
        stored = [(_STORED_NAME.fullmatch(path.name), path) for path in numbered(directory, fresh=fresh)]
        begun = [(int(name[1]), path) for name, path in stored if name]
        ends = [*(low for low, _ in begun[1:]), *(_part(path).high for _, path in begun[-1:])]
        return [(low, high, path) for (low, path), high in zip(begun, ends, strict=True)]
    if not directory.is_dir():
        return []
    named = [(_NAME.fullmatch(path.name), path) for path in directory.iterdir()]
    return sorted((int(name[1]), int(name[2]), path) for name, path in named if name)


def read_spans(directory: Location, low: int, high: int, spans: Sequence[Span]) -> Iterator[KvChange]:
    """Return rows with commit_ts in (low, high] and keys in one of `spans`, which do not overlap, in commit order.

    Raises HistoryLost when the segments do not cover (low, high], DecodeError for a damaged one."""
    for window in read_windows(directory, low, high, spans):
        yield from merge(*map(changes_of, window), key=in_order)


def read_windows(directory: Location, low: int, high: int, spans: Sequence[Span]) -> Iterator[list[Any]]:
    """Return the rows in (low, high] in windows of time: all rows of a range of timestamps, as columns, tables in key
    order. A window has about a block of each table."""
    for fresh in (False, True):
        chosen = [item for item in segments(directory, fresh=fresh) if item[1] > low and item[0] < high]
        edges = [low, *(item[1] for item in chosen)]
        gap = any(item[0] > edge for item, edge in zip(chosen, edges, strict=False)) or edges[-1] < high
        if not gap:
            break
    if gap:
        ranges = ", ".join(f"({item[0]}, {item[1]}]" for item in chosen) or "nothing of it"
        raise HistoryLost(f"changes of ({low}, {high}] are requested, but {directory} has {ranges}; start above it")
    ends = {begin: end for begin, end, _ in chosen}

    def chosen_blocks(footer: Footer) -> list[Block]:
        if footer.high < ends.get(footer.low, 0):  # a request that came late wrote a trimmed segment again
            raise HistoryLost(f"{directory} has no changes of ({footer.high}, {ends[footer.low]}]")
        within = [block for block in footer.blocks if block.last_ts > low and block.first_ts <= high]
        return [block for block in within if any(block.meets(*span) for span in spans)]

    for path, blocks, read in _opened([path for _, _, path in chosen], chosen_blocks):
        for window in _windows_of(path, blocks, read, spans):
            kept = [_within(rows, low, high) for rows in window]
            if any(kept):
                yield list(filter(len, kept))


def in_order(row: KvChange) -> tuple[int, int, int, bytes]:
    """Return rows by commit_ts and start_ts; of one transaction deletes first, updates before inserts, then by key."""
    rank = 0 if row.op is KvOp.DELETE else 1 if row.old_value is not None else 2
    return row.commit_ts, row.start_ts, rank, row.key


class SegmentWriter:
    """Writes segments to `directory`, starting at the end of the last one, else at `from_ts`. `low` is the high of the
    last segment, `name` tells writers in an object store apart. Raises StateTooNew if a newer release wrote that.
    """

    def __init__(self, directory: Location, from_ts: int, name: str = "") -> None:
        self.directory, self._name = directory, name
        written = segments(directory, fresh=True)
        for _, _, last in written[-1:]:
            with last.open("rb") as file:
                head = file.read(len(MAGIC))
                file.seek(max(file.seek(0, os.SEEK_END) - len(MAGIC), 0))
                _check_version(head, file.read(), str(last))
        self.low = written[-1][1] if written else from_ts
        self._lives: weakref.finalize[[int], SegmentWriter] | None = None
        if isinstance(directory, Path) and Path(directory, _WRITER).exists():
            self._lock()

    def write(self, rows: list[KvChange], high: int) -> Location:
        """Write all rows of (low, high], in commit order, and return the file.

        Raises StoreUnavailable when the disk refuses, SourceError when an object store does not answer, Fenced where
        another writer was faster."""
        return self.write_columns(change_batch(rows), high)

    def write_columns(self, rows: Any, high: int) -> Location:
        """Write a record batch as `write` does."""
        name = f"{self.low:020d}" if isinstance(self.directory, StorePath) else f"{self.low:020d}-{high:020d}"
        path = create(self.directory / f"{name}.seg", encode_columns(self.low, high, rows, self._name), self._name)
        self.low = high
        if self._lives is None:
            self._lock()
        return path

    def close(self) -> None:
        """Signal the end of the log to readers."""
        if self._lives is not None:
            self._lives()

    def _lock(self) -> None:
        """Lock the mark of a writer, until `close`, the end of this object or of the process."""
        if isinstance(self.directory, StorePath):
            return
        with suppress(OSError):  # a file system without locks: readers learn nothing of the writer
            mark = os.open(self.directory / _WRITER, os.O_RDWR | os.O_CREAT, 0o644)
            self._lives = weakref.finalize(self, os.close, mark)
            fcntl.flock(mark, fcntl.LOCK_SH)


def _table(key: bytes) -> bytes:
    return key[:TABLE_BYTES] if key[:1] == _TABLE_KEY else key[:1]


def _within(rows: Any, low: int, high: int) -> Any:
    first, last = np.searchsorted(numbers(rows, "commit_ts"), (low, high), "right").tolist()
    return rows.slice(first, last - first)


_ReadBlock = Callable[[Block], bytes]
_Choose = Callable[[Footer], list[Block]]


def _read_block(file: BinaryIO, block: Block) -> bytes:
    file.seek(block.offset)
    return file.read(block.size_bytes)


def _opened(paths: Sequence[Location], choose: _Choose) -> Iterator[tuple[Location, list[Block], _ReadBlock]]:
    """The blocks of segments that `choose` returns, and what reads them; those of an object store are read ahead."""

    def fetched(path: StorePath) -> tuple[Location, list[Block], _ReadBlock]:
        try:
            with path.open() as file:
                blocks = choose(_footer_of(file, path))
                bounds = [(block.offset, block.offset + block.size_bytes) for block in blocks]
                return path, blocks, dict(zip(blocks, file.ranges(bounds), strict=True)).pop
        except FileNotFoundError:
            raise HistoryLost(f"{path} was trimmed while it was read") from None

    stored = [path for path in paths if isinstance(path, StorePath)]
    yield from ahead(fetched, stored, lambda path: path.size_bytes)
    for path in paths[len(stored) :]:
        with path.open("rb") as file:
            yield path, choose(_footer_of(file, path)), partial(_read_block, file)


def _windows_of(path: Location, blocks: list[Block], read: _ReadBlock, spans: Sequence[Span]) -> Iterator[list[Any]]:
    """The windows of a segment, each up to the begin of a table's next block."""
    left = [list(group)[::-1] for _, group in groupby(blocks, key=lambda block: _table(block.first_key))]
    windows: list[list[Any]] = [[] for _ in left]
    while any(left):
        for table, parts in zip(left, windows, strict=True):
            while table and (not parts or table[-1].first_ts <= numbers(parts[-1], "commit_ts")[-1]):
                block = table.pop()
                parts.extend(filter(len, [_columns_of_block(read(block), path.name, block, spans)]))
        bound = min((table[-1].first_ts for table in left if table), default=MAX_TS)
        whole = [joined(parts) for parts in windows]
        yield [_within(rows, -1, bound - 1) for rows in whole]
        windows = [list(filter(len, [_within(rows, bound - 1, MAX_TS)])) for rows in whole]


def _columns_of_block(data: bytes, name: str, block: Block, spans: Sequence[Span]) -> Any:
    if zlib.crc32(data) != block.crc32:
        raise DecodeError(f"{name}: the checksum of a block does not hold", _CODEC, block.offset)
    rows = unpacked(data)
    if len(rows) != block.rows:
        raise DecodeError(
            f"{name}: a block holds {len(rows)} rows, and the footer says {block.rows}", _CODEC, block.offset
        )
    inside = [span for span in spans if block.meets(*span)]
    if any(start <= block.first_key and (not end or block.last_key < end) for start, end in inside):
        return rows
    keys = rows.column(0).to_pylist()
    kept = [any(key >= start and (not end or key < end) for start, end in inside) for key in keys]
    return rows.filter(pa.array(kept, pa.bool_()))


def is_captured(directory: Location) -> bool:
    """Return whether a capture has written into the log."""
    if isinstance(directory, Path):
        return (directory / CAPTURE).exists()
    return any(read_footer(path).writer for _, _, path in segments(directory)[-1:])


def create(path: Location, data: bytes, writer: str) -> Location:
    """Write the next file of a log, as `publish` does; return it. Raises Fenced if another writer has written it,
    SourceError if an earlier try of this one has, whose answer was lost: the log ends elsewhere."""
    if isinstance(path, Path):
        publish(path, data)
        return path
    try:
        return path.write(data, new=True)
    except Changed as faster:
        stored = faster.current
        if stored is None or (stored.body.startswith(MAGIC) and decode_footer(stored.body, str(path)).writer == writer):
            raise SourceError(f"{path} was written by a request that had no answer") from None
        raise Fenced(f"another capture writes into the log {path.uri}: it was faster with {path.name}") from None


def publish(path: Location, data: bytes) -> None:
    """Write a file atomically. Raises StoreUnavailable when the disk refuses, SourceError when an object store does not
    answer."""
    if isinstance(path, StorePath):
        path.write(data)
        return
    try:
        path.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        write_whole(path, data, sync=True)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise StoreUnavailable(f"the segment {path} cannot be written: {error}") from error


WHOLE: Final = ".full"
_BASE_NAME: Final = re.compile(r"(\d{20})\.(?:base|full)")
SCHEMA: Final[Span] = (b"m", b"n")
ROWS: Final[Span] = (b"t", b"u")
_JOBS: Final[Span] = table_span(JOB_TABLE.id)


def base_of(directory: Location, *, fresh: bool = False) -> tuple[int, Location] | None:
    """Return the newest base, as `segments` does; None for a log that begins at 0."""
    return max(_bases(directory, fresh=fresh), default=None)


def definitions(path: Location) -> StoredSnapshot:
    """Return the databases and tables of a base. Raises DecodeError for a damaged one."""
    footer, rows = decode_segment(path.read_bytes(), str(path))
    return load_all(Meta(_Keys(rows)), footer.high).snapshot


def trim(directory: Location, bound: int, *, lazily: bool = False) -> int | None:
    """Cut the log at a segment's end at or below `bound`, with a new base there; return the new begin, None if nothing
    was cut. With `lazily` the next call deletes what this one replaces, so that a feed which starts meanwhile finds the
    files that it has begun to read.

    Raises HistoryLost for a log with a gap, StoreUnavailable when the disk refuses."""
    base = base_of(directory, fresh=True)
    begin, keys = 0, dict[bytes, KvChange]()
    if base is not None:
        begin, path = base
        keys = {row.key: row for row in decode_segment(path.read_bytes(), str(path))[1]}
    former, chosen = begin, dict[bytes, KvChange]()
    within = [(low, high) for low, high, _ in segments(directory)[:-1] if begin < high <= bound]
    first, last = (max(within[0][0], begin), within[-1][1]) if within else (begin, begin)
    rows = read_spans(directory, first, last, (SCHEMA, _JOBS))
    row, jobs = next(rows, None), set[bytes]()
    for _, high in within:
        while row is not None and row.commit_ts <= high:
            if row.key[:1] == b"t":
                (jobs.add if row.op is KvOp.PUT else jobs.discard)(row.key)
            elif defined_by(row.key) is not None:
                if row.op is KvOp.PUT:
                    keys[row.key] = row
                else:
                    keys.pop(row.key, None)
            row = next(rows, None)
        if not jobs:
            begin, chosen = high, dict(keys)
    if begin > former:
        publish(directory / f"{begin:020d}.base", encode_segment(begin, begin, [chosen[key] for key in sorted(chosen)]))
    unused = former if lazily else begin
    below = [path for _, high, path in segments(directory) if high <= unused]
    unlinked([*below, *(path for ts, path in sorted(_bases(directory)) if ts < unused)])
    return begin if begin > former else None


def _bases(directory: Location, *, fresh: bool = False) -> Iterator[tuple[int, Location]]:
    if isinstance(directory, StorePath):
        files: Iterable[Location] = numbered(directory, fresh=fresh)
    else:
        files = directory.iterdir() if directory.is_dir() else ()
    for path in files:
        if match := _BASE_NAME.fullmatch(path.name):
            yield int(match[1]) or _part(path).high, path


class _Keys:
    """Keys and values in the form that the reader of the schema takes."""

    def __init__(self, rows: Iterable[KvChange]) -> None:
        self._values = {row.key: row.value or b"" for row in rows}
        self._order = sorted(self._values)

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def scan(self, start: bytes, end: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for index in range(bisect_left(self._order, start), len(self._order)):
            key = self._order[index]
            if end and key >= end:
                return
            yield key, self._values[key]


GC_TTL_MS: Final = 86_400_000
FINISH: Final = "finish"
COMMIT: Final = "commit"
"""Values of ddl-ts."""
_FEEDS: Final = "feeds"
_DIGEST_CHARS: Final = 12


class LogSafePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A changefeed that needs everything above `checkpoint_ts`, with the time of its last renewal."""

    changefeed: str
    checkpoint_ts: int
    time_ms: int
    ddl_ts: str = ""
    """The option ddl-ts of the changefeed; empty from releases without it, which know "finish" alone."""

    def lives(self, now_ms: int, ttl_ms: int) -> bool:
        """Return whether it has not expired."""
        return now_ms - self.time_ms < ttl_ms


def safe_point_name(changefeed: str, sink: str) -> str:
    """Return the name of the safe point of a changefeed into `sink` (its address, without passwords)."""
    return f"{changefeed}.{hashlib.sha256(sink.encode()).hexdigest()[:_DIGEST_CHARS]}"


def put_safe_point(log: Location, name: str, checkpoint_ts: int, time_ms: int, ddl_ts: str = "") -> None:
    """Replace the safe point `name` (`safe_point_name`) of a changefeed. Raises `disk_fault`, and
    StateTooNew if a newer release wrote the last one."""
    kept_safe_point(log, name)
    changefeed = name.partition(".")[0]
    safe_point = LogSafePoint(changefeed=changefeed, checkpoint_ts=checkpoint_ts, time_ms=time_ms, ddl_ts=ddl_ts)
    directory, body = log / _FEEDS, encode_state(StateKind.SAFE_POINT, safe_point)
    if isinstance(directory, StorePath):
        (directory / f"{name}.json").write(body)
        return
    try:
        directory.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        write_whole(directory / f"{name}.json", body)
    except OSError as fault:
        reason = (
            f"cannot write the changefeed's safe point into {directory} ({fault.strerror}): without it, the upstream "
        )
        raise disk_fault(f"{reason}would trim the log too early", fault) from fault


def kept_safe_point(log: Location, name: str) -> LogSafePoint | None:
    """Return the safe point `name` of a changefeed; None if it has none. Raises StateTooNew."""
    return _read_safe_point(log / _FEEDS / f"{name}.json")


def forget_safe_point(log: Location, name: str) -> None:
    """Remove the safe point `name` of a changefeed that does not go on. Raises `disk_fault`."""
    try:
        unlinked([log / _FEEDS / f"{name}.json"])
    except OSError as fault:
        raise disk_fault(f"{log / _FEEDS}: {fault.strerror}", fault) from fault


def safe_points(log: Location) -> list[LogSafePoint]:
    """Return all safe points by name; other files are ignored. Raises StateTooNew."""
    paths: Iterable[Location] = (log / _FEEDS).glob("*.json")
    kept = map(_read_safe_point, sorted(paths, key=str))
    return [safe_point for safe_point in kept if safe_point is not None]


def _read_safe_point(path: Location) -> LogSafePoint | None:
    try:
        return decode_state(StateKind.SAFE_POINT, path.read_bytes(), LogSafePoint, str(path))
    except (OSError, msgspec.DecodeError):
        return None


def safe_point(log: Location, now_ms: int, ttl_ms: int = GC_TTL_MS) -> int | None:
    """Return the least safe point, above which the log is needed; None without one."""
    return min(
        (safe_point.checkpoint_ts for safe_point in safe_points(log) if safe_point.lives(now_ms, ttl_ms)), default=None
    )


@dataclass(frozen=True, slots=True)
class SegmentLog:
    """The log in a directory or an object store, for a changefeed with that `ddl_ts`."""

    directory: Location
    ddl_ts: str = ""

    def begin(self) -> LogBegin:
        if (base := base_of(self.directory, fresh=True)) is not None:
            return LogBegin(base[0], definitions(base[1]), base[1].name.endswith(WHOLE))
        parts = segments(self.directory)
        if parts and parts[0][0] > 0:
            raise HistoryLost(
                f"the log {self.directory} goes back to {parts[0][0]} without the definitions of that time, so "
                f"earlier tables are unknown; let its upstream write it from 0, or trim it with --log-keep"
            )
        return LogBegin(0, StoredSnapshot(), whole=True)

    def set_safe_point(self, feed: str, ts: int) -> None:
        put_safe_point(self.directory, feed, ts, time.time_ns() // 1_000_000, self.ddl_ts)

    def safe_point(self, feed: str) -> int | None:
        kept = kept_safe_point(self.directory, feed)
        return None if kept is None else kept.checkpoint_ts

    def ended(self) -> bool:
        if isinstance(self.directory, StorePath):
            return False
        try:
            with (self.directory / _WRITER).open("rb") as mark:
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its writer has it, or it was written by one that leaves no mark
            return False
        return True

    def rests_at(self, ts: int) -> int:
        return ts

    def parts(self, low: int, high: int | None = None) -> Sequence[LogPart]:
        base = base_of(self.directory, fresh=not low)
        low = low if base is None else max(low, base[0])
        paths = [path for below, top, path in segments(self.directory) if top > low and (high is None or below < high)]
        if isinstance(self.directory, StorePath) and len(paths) > 1:
            list(ahead(lambda share: [*map(_part, share)], [paths[first::AT_ONCE] for first in range(AT_ONCE)]))
        return [*map(_part, paths)]

    def rows(self, low: int, high: int, spans: Sequence[Span]) -> Iterator[KvChange]:
        return read_spans(self.directory, low, high, spans)

    def windows(self, low: int, high: int, spans: Sequence[Span]) -> Iterator[Window]:
        return read_windows(self.directory, low, high, spans)


@lru_cache(maxsize=1 << 16)
def _part(path: Location) -> LogPart:
    footer = read_footer(path)
    of_tables = (block for block in footer.blocks if block.first_key[:1] == _TABLE_KEY)
    stored = tuple(
        Stored(decode_int(block.first_key, 1)[0], block.rows, block.first_ts, block.last_ts, block.size_bytes)
        for block in of_tables
    )
    return LogPart(footer.low, footer.high, stored)


def create_statements(snapshot: StoredSnapshot, tables: Tables, ts: int) -> list[Ddl]:
    """Statements for all databases and for the tables that are replicated, databases first."""
    statements = []
    for database in snapshot.schemas.values():
        name = database.name.original
        if lowered(name) not in SYSTEM_SCHEMAS:
            query = render_create_schema(database)
            statements.append(Ddl(schema=name, table="", query=query, commit_ts=ts, type=int(ActionType.CREATE_SCHEMA)))
    for version in tables.replicated(snapshot):
        query = render_create_table(version.stored, schema=version.schema)
        schema, table = name_of(version)
        statements.append(Ddl(schema=schema, table=table, query=query, commit_ts=ts, type=int(ActionType.CREATE_TABLE)))
    return statements
