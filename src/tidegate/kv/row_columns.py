"""Rows of version 2, many at once: where the bytes of each column stand.

    80 00 0200 0000 | 01 02 | 0100 0400 | 01 | 61 62 63          80 00 0200 0000 | 01 02 | 0100 0200 | 07 | 78
    └──── the same head ────┘ └─ ends ─┘                         └──── the same head ────┘

    column 2    at 13, size 3                                    at 27, size 1

Rows of one statement, and nearly all of a table, share their head: flags, ids and which columns are NULL.  Those rows
are found by one comparison of a block of bytes, and their ends are read as one matrix.  A row whose head is rare or
wrong, or whose ends or tail do not fit its length, is left to `decode_row_value`, which says what it is.

Source: row_v2.py, whose checks these are.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.kv.row_v2 import Head, read_head
from tidegate.model.errors import DecodeError

__all__ = ["MISSING", "NULL", "PADDING", "Cells", "RowCells", "locate", "spans", "windows"]

NULL: Final = -1
MISSING: Final = -2
"""Sizes of what has no bytes: NULL, and a column that the row does not have."""
PADDING: Final = 8
"""Bytes behind the last value, so that eight may be read wherever a value begins."""
_PADDED: Final = pa.array([bytes(PADDING)], pa.binary())
_COMPARED: Final = 4
"""Heads that are looked for by comparing all rows with them; the others are looked up row by row."""
_EXTRA, _VERSION, _CRC_BYTES = 8, 7, 4


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


class _Rows(NamedTuple):
    """The bytes of all rows one behind the other, and where each begins and how long it is."""

    data: Any
    starts: Any
    sizes: Any

    def bytes_of(self, row: int, width: int | None = None) -> bytes:
        """The first bytes of a row, or all of them."""
        start = int(self.starts[row])
        found: bytes = self.data[start : start + (int(self.sizes[row]) if width is None else width)].tobytes()
        return found


def windows(data: Any, at: Any, width: int) -> Any:
    """`width` bytes from each of the places `at` on: a row of a matrix for each."""
    return np.lib.stride_tricks.sliding_window_view(data, width)[at]


def spans(data: Any, at: Any, size: Any, absent: Any = None) -> Any:
    """The `size` bytes from each of the places `at` on, which ascend, as a binary array; null where `absent`."""
    count = len(at)
    bounds = np.zeros(2 * count, np.int64)
    bounds[::2] = np.maximum.accumulate(at)
    bounds[1::2] = bounds[::2] + size
    buffers = [None, pa.py_buffer(np.maximum.accumulate(bounds)), pa.py_buffer(data)]
    every = pa.Array.from_buffers(pa.large_binary(), max(2 * count - 1, 0), buffers)
    return every.take(pa.array(np.arange(0, 2 * count, 2), mask=absent)).cast(pa.binary())


def locate(values: Any, wanted: Sequence[int], unwanted: Collection[int] = ()) -> RowCells:
    """The places of the columns `wanted`; a row that holds one of `unwanted` does not fit. `values`: a binary array."""
    count = len(values)
    _, offsets, raw = pa.concat_arrays([values, _PADDED]).buffers()
    data, ends = np.frombuffer(raw, np.uint8), np.frombuffer(offsets, np.int32)[: count + 1].astype(np.int64)
    every = _Rows(data, ends[:-1], np.diff(ends))
    cells = {column: Cells(np.zeros(count, np.int64), np.full(count, MISSING)) for column in wanted}
    fits = np.zeros(count, np.bool_)
    for head, rows in _groups(every):
        if len(rows) and not set(unwanted).intersection((*head.ids, *head.nulls)):
            fits[rows] = _place(every, rows, head, cells)
    if not fits.all():
        for at, size in cells.values():
            at[~fits], size[~fits] = 0, MISSING
    return RowCells(data, cells, fits)


def _groups(every: _Rows) -> Iterator[tuple[Head, Any]]:
    """Heads, and the rows that have each and all of their ends: the first heads by comparison, the others by name."""
    left = np.arange(len(every.starts))
    for _ in range(_COMPARED):
        head = None if not len(left) else _head_of(every.bytes_of(left[0]))
        if head is None:
            break
        same = _has_head(every, left, head)
        yield head, left[same]
        left = left[~same]
    named = defaultdict[bytes, list[int]](list)
    for row, width in zip(left.tolist(), _head_sizes(every.data, every.starts[left]).tolist(), strict=True):
        named[every.bytes_of(row, width)].append(row)
    for rows in named.values():
        head = _head_of(every.bytes_of(rows[0]))
        found = np.array(rows)
        if head is not None:
            yield head, found[every.sizes[found] >= len(head.data) + head.ends_bytes]


def _head_sizes(data: Any, starts: Any) -> Any:
    """How long heads are, by what they say themselves."""
    if not len(starts):
        return starts
    raw = windows(data, starts, PADDING).astype(np.int64)
    count = raw[:, 2] + raw[:, 4] + ((raw[:, 3] + raw[:, 5]) << 8)
    return 6 + count * np.where(raw[:, 1] & 1, 4, 1)


def _head_of(value: bytes) -> Head | None:
    try:
        return read_head(value)
    except DecodeError:
        return None


def _has_head(every: _Rows, among: Any, head: Head) -> Any:
    """Which of the rows `among` begin with the same head and have all of their ends."""
    width, starts = len(head.data), every.starts[among]
    found = every.sizes[among] >= width + head.ends_bytes
    rows = np.flatnonzero(found)
    if len(rows):
        found[rows] = (windows(every.data, starts[rows], width) == np.frombuffer(head.data, np.uint8)).all(axis=1)
    return found


def _place(every: _Rows, rows: Any, head: Head, cells: Mapping[int, Cells]) -> Any:
    """Notes the places of `rows`, which share a head; says which of them are as long as their ends tell."""
    data, starts = every.data, every.starts[rows]
    count, ends_at = len(head.ids), starts + len(head.data)
    ends = np.zeros((count + 1, len(rows)), np.int64)
    if count:
        ends[1:] = windows(data, ends_at, head.ends_bytes).view(f"<u{head.ends_bytes // count}").T
    first = ends_at + head.ends_bytes
    widths = np.diff(ends, axis=0)
    fits = (widths >= 0).all(axis=0)
    tail = starts + every.sizes[rows] - first - ends[-1]
    fits &= tail == 0 if not head.checksum else _tails_fit(data, first + ends[-1], tail)
    ends += first
    for place, column in enumerate(head.ids):
        if column in cells:
            cells[column].at[rows] = ends[place]
            cells[column].size[rows] = widths[place]
    for column in head.nulls:
        if column in cells:
            cells[column].size[rows] = NULL
    return fits


def _tails_fit(data: Any, at: Any, size: Any) -> Any:
    """Which tails are checksums of a known form, as long as their first byte says."""
    header = data[np.minimum(at, len(data) - 1)]
    wanted = 1 + _CRC_BYTES * np.where(header & _EXTRA, 2, 1)
    return (size == wanted) & (header & ~np.uint8(_EXTRA | _VERSION) == 0)
