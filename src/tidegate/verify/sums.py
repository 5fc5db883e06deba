"""Sums of chunks, computed in columns: no Python object per value or row. Pure.

    row of texts ── CRC32 of its key's texts, modulo the number of chunks ──► chunk
                 ── length, bytes or NULL of each column, 64 bits ──────────► hash
    chunk        rows    sum of the hashes, modulo 2**64

Both sides are hashed here, whatever server they come from, by what their values mean as far as columns show it:

    FLOAT, DOUBLE                    the eight bytes of the number, of FLOAT the nearest of 32 bits; 1e15 is 1E+15
    dates, beside one that keeps     NULL for a date that does not exist, such as 0000-00-00
      NULL for those of no calendar
    all others                       their texts or bytes

Each step of a hash, h = (h ^ word) * odd and then h ^ h >> 32, can be undone: rows that differ in one word of eight
bytes never have one hash; any others have with a chance of 2**-64, as have sums of several.  A sum, unlike an exclusive
or, tells a row that is there twice from none.  The CRC32 is the one that servers compute, so that they can send the
rows of some chunks alone.

Source: the last steps are those of MurmurHash3's finalizer.
"""

import re
from calendar import monthrange
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.model.compiled import compiled, inlined, windows

NO_NUMBERS: Final[Mapping[str, pa.DataType]] = {}
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_SEED: Final = 0x243F6A8885A308D3
_NULL: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Takes the place of a length."""
_HALF, _THIRTY_THREE = np.uint64(32), np.uint64(33)
_MIXED, _MIXED_AGAIN = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(8)], np.uint64)
"""The bytes of a last word that belong to a text."""
_WORD_BYTES: Final = 8
_COMMA: Final = 44


_CRC: Final = np.arange(256, dtype=np.uint32)
"""The CRC32 of each byte."""
for _ in range(8):
    _CRC[:] = np.where(_CRC & 1, np.uint32(0xEDB88320) ^ (_CRC >> 1), _CRC >> 1)


class ChunkPlan(NamedTuple):
    """How both sides chunk and hash a table: the columns to compare, those that determine the chunk, and the number of
    chunks; which columns are hashed as numbers of a type, and which as NULL where their date does not exist.

    Names are in lower case."""

    columns: tuple[str, ...]
    spread: tuple[str, ...]
    chunks: int
    numbers: Mapping[str, pa.DataType] = NO_NUMBERS
    days: frozenset[str] = frozenset()


class ChunkSums:
    """The number of rows of each chunk, and the sum of their hashes."""

    def __init__(self, plan: ChunkPlan) -> None:
        self._plan = plan
        self.rows, self.totals = np.zeros(plan.chunks, np.int64), np.zeros(plan.chunks, np.uint64)

    def add(self, columns: Sequence[pa.Array]) -> None:
        """Add rows: their columns as texts, bytes or floats, null for NULL."""
        if len(columns[0]):
            numbers = chunk_numbers(columns, self._plan)
            add_hashes(row_hashes(columns, self._plan), numbers, self.rows, self.totals)

    def join(self, other: "ChunkSums") -> None:
        """Add the sums of other rows."""
        self.rows += other.rows
        self.totals += other.totals

    def different(self, other: "ChunkSums") -> list[int]:
        """Return the chunks that are not equal."""
        chunks: list[int] = np.flatnonzero((self.rows != other.rows) | (self.totals != other.totals)).tolist()
        return chunks


def row_hashes(columns: Sequence[pa.Array], plan: ChunkPlan) -> Any:
    """Return the hash of each row."""
    hashes = np.full(len(columns[0]), _SEED, np.uint64)
    for name, column in zip(plan.columns, columns, strict=True):
        texts = hashed_octets(column, plan.numbers.get(name))
        data, offsets, valid = _buffers(existing_days(texts) if name in plan.days else texts)
        mix(hashes, windows(data), offsets, valid)
    return hashes


def chunk_numbers(columns: Sequence[pa.Array], plan: ChunkPlan) -> Any:
    """Return the chunk of each row, as `CHUNK` of mysql/server_sql.py computes it."""
    rows = len(columns[0])
    if plan.chunks == 1 or not plan.spread:
        return np.zeros(rows, np.int64)
    sums, begun = np.full(rows, 0xFFFFFFFF, np.uint32), np.zeros(rows, np.bool_)
    for name in plan.spread:
        add_texts(sums, begun, *_buffers(pc.cast(columns[plan.columns.index(name)], pa.binary())))
    return (~sums).astype(np.int64) % plan.chunks


def plain_column(values: Sequence[int | float | str | bytes | None]) -> pa.Array:
    """Return plain values as a column of texts, or of floats."""
    if any(isinstance(value, float) for value in values):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    octets = (
        value if value is None or isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
        for value in values
    )
    return pa.array(list(octets), pa.binary())


_DATE: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})")


def is_date(text: str) -> bool:
    """Return True if the date exists: zero dates, zero parts and February 30 do not."""
    match = _DATE.match(text)
    if match is None:
        return False
    year, month, day = map(int, match.groups())
    return year > 0 and 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]


def hashed_octets(column: pa.Array, number: pa.DataType | None) -> pa.Array:
    """Return a column as bytes: of numbers their bits, if they are compared as such."""
    if number is not None:
        try:
            column = (
                column if pa.types.is_floating(column.type) else pc.cast(pc.cast(column, pa.string()), pa.float64())
            )
        except pa.ArrowInvalid:  # one side holds other texts: rows are compared
            return pc.cast(column, pa.binary())
        floats = pc.cast(pc.cast(column, number, safe=False), pa.float64())
        valid, rows = floats.is_valid(), len(floats)
        bits = floats.to_numpy(zero_copy_only=False).tobytes()
        ends = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * _WORD_BYTES)
        return pa.Array.from_buffers(pa.binary(), rows, [valid.buffers()[1], ends, pa.py_buffer(bits)])
    if pa.types.is_floating(column.type):
        column = pc.cast(column, pa.string())
    return pc.cast(column, pa.binary())


def existing_days(texts: pa.Array) -> pa.Array:
    """Return dates or times with NULL for those of days that do not exist."""
    days = pc.dictionary_encode(pc.binary_slice(texts, 0, 10))
    exists = pa.array([is_date(day.decode("ascii", "replace")) for day in days.dictionary.to_pylist()], pa.bool_())
    return texts if pc.all(exists).as_py() else pc.if_else(exists.take(days.indices), texts, None)


def _buffers(texts: pa.Array) -> tuple[Any, Any, Any]:
    """The bytes of an array, with room for a word behind them, where each text begins and ends, and which are no NULL
    (empty if all are)."""
    rows = len(texts)
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + rows + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + _WORD_BYTES, np.uint8)
    if last > first:
        padded[:-_WORD_BYTES] = np.frombuffer(data, np.uint8)[first:last]
    valid = texts.is_valid().to_numpy(zero_copy_only=False) if texts.null_count else np.empty(0, np.bool_)
    return padded, offsets - first, valid


@inlined
def _step(total: Any, word: Any) -> Any:
    total = (total ^ word) * _ODD
    return total ^ (total >> _HALF)


@compiled
def mix(hashes: Any, words: Any, offsets: Any, valid: Any) -> None:
    """Take a column into the hashes of its rows."""
    for row in range(len(hashes)):
        total = hashes[row]
        if len(valid) and not valid[row]:
            hashes[row] = _step(total, _NULL)
            continue
        begin, end = offsets[row], offsets[row + 1]
        total = _step(total, np.uint64(end - begin))
        while end - begin >= _WORD_BYTES:
            total = _step(total, words[begin])
            begin += _WORD_BYTES
        if begin < end:
            total = _step(total, words[begin] & _MASKS[end - begin])
        hashes[row] = total


@compiled
def add_texts(sums: Any, begun: Any, data: Any, offsets: Any, valid: Any) -> None:
    """Take a column into the CRC32 of each row's texts, which commas part; NULL has no text."""
    for row in range(len(sums)):
        if len(valid) and not valid[row]:
            continue
        total = sums[row]
        if begun[row]:
            total = _CRC[(total ^ _COMMA) & 0xFF] ^ (total >> 8)
        begun[row] = True
        for index in range(offsets[row], offsets[row + 1]):
            total = _CRC[(total ^ data[index]) & 0xFF] ^ (total >> 8)
        sums[row] = total


@compiled
def add_hashes(hashes: Any, numbers: Any, rows: Any, totals: Any) -> None:
    """Count each row in its chunk, and add its hash."""
    for row in range(len(hashes)):
        total = hashes[row]
        total = (total ^ (total >> _THIRTY_THREE)) * _MIXED
        total = (total ^ (total >> _THIRTY_THREE)) * _MIXED_AGAIN
        chunk = numbers[row]
        rows[chunk] += 1
        totals[chunk] += total ^ (total >> _THIRTY_THREE)


def sums_of(batches: Iterable[Sequence[pa.Array]], plan: ChunkPlan) -> ChunkSums:
    """Return the sums of all rows."""
    sums = ChunkSums(plan)
    for columns in batches:
        sums.add(columns)
    return sums
