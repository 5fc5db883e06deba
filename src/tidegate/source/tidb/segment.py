"""The change log as files: rows of a stretch of time in commit order, found by span and timestamps.

    <directory>/<low>-<high>.seg        commit_ts in (low, high], both of 20 digits, so names sort as time does

    "TGSEG002" | block | block | ... | footer | footer bytes 4 | crc32 of the footer 4 | "TGSEG002"
               Arrow columns of one    msgpack: low, high, and of each block its first and last key,
               table (or meta keys)    first and last commit_ts, offset, bytes, rows, crc32

- Numbers at the end are big endian.  A row is a KvChange of type COMMITTED, a block a record batch of them
  (kv/change_columns.py).
- Stretches follow each other without a gap: the low of one is the high of the one before it.
- A segment is written aside, flushed, and renamed, so a name that ends in .seg has all of its bytes.  A dead writer
  leaves nothing else behind: the next one begins at the last high and takes the rest from the store's versions, so the
  store must keep what is above (its GC safe point stays at or below `SegmentWriter.low`).
- A reader of a table opens footers, and blocks of that table only, about one block of each table at a time.
"""

import os
import re
import zlib
from collections.abc import Iterator, Sequence
from heapq import merge
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from tidegate.kv.change_columns import changes_of, columns_of, joined, numbers, packed, unpacked
from tidegate.model.errors import DecodeError, HistoryLost, StoreUnavailable
from tidegate.model.kept_state import StateKind, check_version
from tidegate.model.kv_change import KvChange, KvOp
from tidegate.model.tso import MAX_TS

Span: TypeAlias = tuple[bytes, bytes]
"""Keys in [start, end); an empty end is no bound."""

MAGIC: Final = b"TGSEG%03d" % StateKind.SEGMENT.version
TABLE_BYTES: Final = 9
"""`t` and the id of a table: keys with the same nine bytes share a block; all meta keys (`m`) share one."""
BLOCK_ROWS: Final = 4_096

_NAME: Final = re.compile(r"(\d{20})-(\d{20})\.seg")
_ANY_MAGIC: Final = re.compile(rb"TGSEG([0-9]{3})")
_TAIL_BYTES: Final = 8 + len(MAGIC)
_CODEC: Final = "segment"


class Block(msgspec.Struct, frozen=True):
    """Where rows of one table lie in a segment."""

    first_key: bytes
    last_key: bytes
    offset: int
    size_bytes: int
    rows: int
    crc32: int
    first_ts: int = 0
    last_ts: int = MAX_TS

    def meets(self, start: bytes, end: bytes) -> bool:
        """Return whether a key of [start, end) may be in it."""
        return self.last_key >= start and (not end or self.first_key < end)

    def lies_in(self, low: int, high: int) -> bool:
        """Return whether a commit_ts of (low, high] may be in it."""
        return self.last_ts > low and self.first_ts <= high


class Footer(msgspec.Struct, frozen=True):
    """What a segment holds: all rows with commit_ts in (low, high]."""

    low: int
    high: int
    blocks: tuple[Block, ...]


_FOOTER: Final = msgspec.msgpack.Decoder(Footer)


def encode_segment(low: int, high: int, rows: list[KvChange]) -> bytes:
    """Return the bytes of a segment; `rows` are in commit order."""
    parts, blocks, offset = [MAGIC], [], len(MAGIC)
    by_table = sorted(rows, key=lambda row: _table(row.key))
    for _, group in groupby(by_table, key=lambda row: _table(row.key)):
        of_table = list(group)
        for at in range(0, len(of_table), BLOCK_ROWS):
            chunk = of_table[at : at + BLOCK_ROWS]
            keys, times = [row.key for row in chunk], [row.commit_ts for row in chunk]
            data = packed(columns_of(chunk))
            bounds = min(times), max(times)
            blocks.append(Block(min(keys), max(keys), offset, len(data), len(chunk), zlib.crc32(data), *bounds))
            parts.append(data)
            offset += len(data)
    footer = msgspec.msgpack.encode(Footer(low, high, tuple(blocks)))
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
        found = _FOOTER.decode(footer)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"footer: {error}", _CODEC, tail - size) from error
    if any(block.offset < len(MAGIC) or block.size_bytes < 0 or block.rows < 0 for block in found.blocks):
        raise DecodeError("footer: a block where none can lie", _CODEC, tail - size)
    return found


def _check_version(head: bytes, tail: bytes, where: str) -> None:
    """Raise StateTooNew where both ends of a segment name a version that this release does not know."""
    if head == tail and (found := _ANY_MAGIC.fullmatch(head)) is not None:
        check_version(StateKind.SEGMENT, int(found[1]), where)


def decode_segment(segment: bytes, where: str = "a segment") -> tuple[Footer, list[KvChange]]:
    """Return the footer and all rows of a small segment, table by table; DecodeError for damaged bytes, StateTooNew."""
    footer, file = decode_footer(segment, where), BytesIO(segment)
    everything = ((b"", b""),)
    rows = (changes_of(_columns_of_block(file, "segment", block, everything)) for block in footer.blocks)
    return footer, [row for of_block in rows for row in of_block]


def read_footer(path: Path) -> Footer:
    """Return the footer of a segment's file, without its rows; DecodeError for a damaged one, StateTooNew."""
    with path.open("rb") as file:
        head, size = file.read(len(MAGIC)), file.seek(0, os.SEEK_END)
        file.seek(max(size - _TAIL_BYTES, 0))
        tail = file.read()
        file.seek(max(size - _TAIL_BYTES - int.from_bytes(tail[:4], "big"), 0))
        return decode_footer(head + file.read(), str(path))


def segments(directory: Path) -> list[tuple[int, int, Path]]:
    """(low, high, file) of each segment in `directory`, in the order of time."""
    if not directory.is_dir():
        return []
    named = [(_NAME.fullmatch(path.name), path) for path in directory.iterdir()]
    return sorted((int(name[1]), int(name[2]), path) for name, path in named if name)


def read_spans(directory: Path, low: int, high: int, spans: Sequence[Span]) -> Iterator[KvChange]:
    """Return rows with commit_ts in (low, high] and keys in one of `spans`, which do not overlap, in commit order.

    Raises HistoryLost when the segments do not cover (low, high], DecodeError for a damaged one."""
    for window in read_windows(directory, low, high, spans):
        yield from merge(*map(changes_of, window), key=in_order)


def read_windows(directory: Path, low: int, high: int, spans: Sequence[Span]) -> Iterator[list[Any]]:
    """Return rows of (low, high] in windows of time: all rows of some timestamps, each table's as columns.

    Tables are in the order of their keys. A window holds about a block of each table."""
    found = [item for item in segments(directory) if item[1] > low and item[0] < high]
    edges = [low, *(item[1] for item in found)]
    gap = any(item[0] > edge for item, edge in zip(found, edges, strict=False)) or edges[-1] < high
    if gap:
        held = ", ".join(f"({item[0]}, {item[1]}]" for item in found) or "nothing of it"
        raise HistoryLost(f"changes of ({low}, {high}] are asked for, and {directory} holds {held}; start above it")
    for _, _, path in found:
        for window in _windows_of(path, low, high, spans):
            kept = [_within(rows, low, high) for rows in window]
            if any(kept):
                yield list(filter(len, kept))


def in_order(row: KvChange) -> tuple[int, int, int, bytes]:
    """Return rows by commit_ts and start_ts; of one transaction deletes first, updates before inserts, then by key."""
    rank = 0 if row.op is KvOp.DELETE else 1 if row.old_value is not None else 2
    return row.commit_ts, row.start_ts, rank, row.key


class SegmentWriter:
    """Writes segments to `directory`, one after the other, from where the last writer stopped, else from `from_ts`.

    `low` is the high of the last one: the next begins behind it. Raises StateTooNew behind one of a newer release.
    """

    def __init__(self, directory: Path, from_ts: int) -> None:
        self.directory = directory
        written = segments(directory)
        for _, _, last in written[-1:]:
            with last.open("rb") as file:
                head = file.read(len(MAGIC))
                file.seek(max(file.seek(0, os.SEEK_END) - len(MAGIC), 0))
                _check_version(head, file.read(), str(last))
        self.low = written[-1][1] if written else from_ts

    def write(self, rows: list[KvChange], high: int) -> Path:
        """Write all rows of (low, high], in commit order, and return the file.

        Raises StoreUnavailable when the disk refuses."""
        path = self.directory / f"{self.low:020d}-{high:020d}.seg"
        publish(path, encode_segment(self.low, high, rows))
        self.low = high
        return path


def _table(key: bytes) -> bytes:
    return key[:TABLE_BYTES] if key[:1] == b"t" else key[:1]


def _within(rows: Any, low: int, high: int) -> Any:
    """The rows of (low, high]."""
    first, last = np.searchsorted(numbers(rows, "commit_ts"), (low, high), "right").tolist()
    return rows.slice(first, last - first)


def _windows_of(path: Path, low: int, high: int, spans: Sequence[Span]) -> Iterator[list[Any]]:
    """Windows of a segment: up to where the next block of some table begins.

    Blocks with rows of other times are left out, single rows are not."""
    within = [block for block in read_footer(path).blocks if block.lies_in(low, high)]
    blocks = [block for block in within if any(block.meets(*span) for span in spans)]
    with path.open("rb") as file:
        left = [list(group)[::-1] for _, group in groupby(blocks, key=lambda block: _table(block.first_key))]
        held: list[list[Any]] = [[] for _ in left]
        while any(left):
            for table, parts in zip(left, held, strict=True):
                while table and (not parts or table[-1].first_ts <= numbers(parts[-1], "commit_ts")[-1]):
                    parts.extend(filter(len, [_columns_of_block(file, path.name, table.pop(), spans)]))
            bound = min((table[-1].first_ts for table in left if table), default=MAX_TS)
            whole = [joined(parts) for parts in held]
            yield [_within(rows, -1, bound - 1) for rows in whole]
            held = [list(filter(len, [_within(rows, bound - 1, MAX_TS)])) for rows in whole]


def _columns_of_block(file: BinaryIO, name: str, block: Block, spans: Sequence[Span]) -> Any:
    file.seek(block.offset)
    data = file.read(block.size_bytes)
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
    return rows.filter(pa.array([_meets(key, inside) for key in rows.column(0).to_pylist()], pa.bool_()))


def _meets(key: bytes, spans: Sequence[Span]) -> bool:
    return any(key >= start and (not end or key < end) for start, end in spans)


def publish(path: Path, data: bytes) -> None:
    """Put a file in its place, whole or not at all. Raises StoreUnavailable when the disk refuses."""
    aside = path.with_suffix(".part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside.unlink(missing_ok=True)
        aside.touch(mode=0o600)
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise StoreUnavailable(f"the segment {path} cannot be written: {error}") from error
