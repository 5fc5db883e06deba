"""Rows of version 2, many at once: where the bytes of each column stand.

    80 00 0200 0000 | 01 02 | 0100 0400 | 01 | 61 62 63          80 00 0200 0000 | 01 02 | 0100 0200 | 07 | 78
                      ids     ends        values

    column 2    at 13, size 3                                    at 27, size 1

A compiled loop walks through the ids and ends of each row.  A row that is not as `decode_raw_row` wants it is left to
`decode_row_value`, which says what it is.

Source: v2.py, whose checks these are.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.kv.row.v2 import CHECKSUM, HEAD, LARGE, VERSION_BYTE
from tidegate.model.compiled import compiled, gather, inlined, windows

NULL: Final = -1
MISSING: Final = -2
"""Sizes of what has no bytes: NULL, and a column that the row does not have."""
PADDING: Final = 8
"""Bytes behind the last value, so that eight may be read wherever a value begins."""
_PADDED: Final = pa.array([bytes(PADDING)], pa.binary())
_HEAD_BYTES: Final = HEAD.size
_EXTRA, _VERSION, _CRC_BYTES = 8, 7, 4
_UNWANTED: Final = -1


class Cells(NamedTuple):
    """One column: where its values begin in the bytes of all rows, and how long they are, or NULL or MISSING."""

    at: Any
    size: Any


class RowCells(NamedTuple):
    """`data` are the bytes of all rows and some padding, `cells` the places by column id, `fits` says of which rows
    they are right."""

    data: Any
    cells: Mapping[int, Cells]
    fits: Any


def words(data: Any, at: Any) -> Any:
    """Return the eight bytes from each of the places `at` on, as numbers; the first byte is the lowest."""
    return windows(data, "<u8")[at]


def spans(data: Any, at: Any, size: Any, absent: Any = None) -> Any:
    """Return the `size` bytes from each of the places `at` on as a binary array; null where `absent`."""
    ends = np.zeros(len(at) + 1, np.int64)
    np.cumsum(size, out=ends[1:])
    text = np.empty(ends[-1] + PADDING, np.uint8)
    gather(windows(data), at, ends, windows(text))
    valid = None if absent is None else pa.py_buffer(np.packbits(~absent, bitorder="little"))
    buffers = [valid, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(text[: ends[-1]])]
    return pa.Array.from_buffers(pa.binary(), len(at), buffers)


def locate(values: Any, wanted: Sequence[int], unwanted: Collection[int] = ()) -> RowCells:
    """Return the places of the columns `wanted`; a row that holds one of `unwanted` does not fit. `values`: a binary
    array."""
    count = len(values)
    _, offsets, raw = pa.concat_arrays([values, _PADDED]).buffers()
    data, ends = np.frombuffer(raw, np.uint8), np.frombuffer(offsets, np.int32)[: count + 1].astype(np.int64)
    known = np.array([*wanted, *unwanted], np.int64)
    order = np.argsort(known)
    lines = np.where(order < len(wanted), order, _UNWANTED)
    at, size = np.zeros((len(wanted), count), np.int32), np.full((len(wanted), count), MISSING, np.int32)
    fits = np.zeros(count, np.bool_)
    _place(data, ends, known[order], lines, at, size, fits)
    return RowCells(data, {column: Cells(at[line], size[line]) for line, column in enumerate(wanted)}, fits)


@inlined
def _number(data: Any, at: int, width: int) -> Any:
    """The number of one, two or four bytes."""
    found: Any = np.int64(data[at])
    if width > 1:
        found |= np.int64(data[at + 1]) << 8
    if width > 2:
        found |= np.int64(data[at + 2]) << 16 | np.int64(data[at + 3]) << 24
    return found


@inlined
def _seek(known: Any, here: int, column: int) -> int:
    """The first place from `here` on whose id is not below that of a column."""
    while here < len(known) and known[here] < column:
        here += 1
    return here


@compiled
def _tail_fits(data: Any, at: int, size: int, checksum: bool) -> bool:
    """Whether a tail is a checksum of a known form, as long as its first byte says, or nothing where there is none."""
    if not checksum or size < 1:
        return size == 0 and not checksum
    header = _number(data, at, 1)
    return size == 1 + _CRC_BYTES * (2 if header & _EXTRA else 1) and header & ~(_EXTRA | _VERSION) == 0


@compiled
def _place_row(data: Any, begin: int, end: int, known: Any, lines: Any, at: Any, size: Any, row: int) -> bool:
    """Note the places of a row; say whether it is as `decode_raw_row` wants it."""
    if end - begin < _HEAD_BYTES:
        return False
    flags = _number(data, begin + 1, 1)
    if data[begin] != VERSION_BYTE or flags & ~(LARGE | CHECKSUM):
        return False
    if flags & LARGE:
        return _place_cells(data, begin, end, flags, 4, 4, known, lines, at, size, row)
    return _place_cells(data, begin, end, flags, 1, 2, known, lines, at, size, row)


@inlined
def _place_cells(
    data: Any, begin: int, end: int, flags: int, id_bytes: int, end_bytes: int, known: Any, lines: Any, at: Any,
    size: Any, row: int,
) -> bool:  # fmt: skip
    """Note the places of a row whose ids and ends take so many bytes each, which are constants where this is called."""
    count, nulls = _number(data, begin + 2, 2), _number(data, begin + 4, 2)
    ids = begin + _HEAD_BYTES
    ends = ids + (count + nulls) * id_bytes
    first = ends + count * end_bytes
    if first > end:
        return False
    here, before, done = 0, -1, 0
    for place in range(count):
        column = _number(data, ids + place * id_bytes, id_bytes)
        stop = _number(data, ends + place * end_bytes, end_bytes)
        if column <= before or stop < done:
            return False
        here = _seek(known, here, column)
        if here < len(known) and known[here] == column:
            line = lines[here]
            if line == _UNWANTED:
                return False
            at[line, row], size[line, row] = first + done, stop - done
        before, done = column, stop
    here, before, beside = 0, -1, 0
    for place in range(count, count + nulls):
        column = _number(data, ids + place * id_bytes, id_bytes)
        while beside < count and _number(data, ids + beside * id_bytes, id_bytes) < column:
            beside += 1
        if column <= before or (beside < count and _number(data, ids + beside * id_bytes, id_bytes) == column):
            return False
        here = _seek(known, here, column)
        if here < len(known) and known[here] == column:
            if lines[here] == _UNWANTED:
                return False
            size[lines[here], row] = NULL
        before = column
    return _tail_fits(data, first + done, end - first - done, flags & CHECKSUM != 0)


@compiled
def _place(data: Any, ends: Any, known: Any, lines: Any, at: Any, size: Any, fits: Any) -> None:
    """Note the places of all rows.

    data, ends      bytes of all rows, with padding, and where each ends, behind a 0
    known, lines    ids of columns, ascending, and the line of each, or that no row may have it
    at, size        (lines, rows): 0 and MISSING at first, and again in a row that does not fit
    fits            which rows do"""
    for row in range(len(ends) - 1):
        fits[row] = _place_row(data, ends[row], ends[row + 1], known, lines, at, size, row)
        if not fits[row]:
            for line in range(len(at)):
                at[line, row], size[line, row] = 0, MISSING
