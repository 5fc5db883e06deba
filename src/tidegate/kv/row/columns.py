"""Rows of version 2, many at once: where the bytes of each column stand.

    80 00 0200 0000 | 01 02 | 0100 0400 | 01 | 61 62 63          80 00 0200 0000 | 01 02 | 0100 0200 | 07 | 78
    └ the same shape ┘  ids    └─ ends ─┘                        └ the same shape ┘

    column 2    at 13, size 3                                    at 27, size 1

Rows with as many values and NULLs have their ids and their ends at the same places, so these are read as matrices;
which columns are NULL may differ from row to row.  A row that is not as `decode_raw_row` wants it is left to
`decode_row_value`, which says what it is.

Source: v2.py, whose checks these are.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.kv.row.v2 import CHECKSUM, HEAD, LARGE, VERSION_BYTE

NULL: Final = -1
MISSING: Final = -2
"""Sizes of what has no bytes: NULL, and a column that the row does not have."""
PADDING: Final = 8
"""Bytes behind the last value, so that eight may be read wherever a value begins."""
_PADDED: Final = pa.array([bytes(PADDING)], pa.binary())
_SMALL_IDS: Final = 256
_SHAPE_BYTES: Final = HEAD.size
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


def windows(data: Any, at: Any, width: int) -> Any:
    """`width` bytes from each of the places `at` on: a row of a matrix for each."""
    return np.lib.stride_tricks.sliding_window_view(data, width)[at]


def words(data: Any, at: Any) -> Any:
    """Return the eight bytes from each of the places `at` on, as numbers; the first byte is the lowest."""
    return np.ndarray((len(data) - PADDING + 1,), "<u8", data, 0, (1,))[at]


def spans(data: Any, at: Any, size: Any, absent: Any = None) -> Any:
    """Return the `size` bytes from each of the places `at` on, which ascend, as a binary array; null where `absent`."""
    count = len(at)
    bounds = np.zeros(2 * count, np.int64)
    bounds[::2] = np.maximum.accumulate(at)
    bounds[1::2] = bounds[::2] + size
    buffers = [None, pa.py_buffer(np.maximum.accumulate(bounds)), pa.py_buffer(data)]
    every = pa.Array.from_buffers(pa.large_binary(), max(2 * count - 1, 0), buffers)
    return every.take(pa.array(np.arange(0, 2 * count, 2), mask=absent)).cast(pa.binary())


def locate(values: Any, wanted: Sequence[int], unwanted: Collection[int] = ()) -> RowCells:
    """Return the places of the columns `wanted`; a row that holds one of `unwanted` does not fit. `values`: a binary
    array."""
    count = len(values)
    _, offsets, raw = pa.concat_arrays([values, _PADDED]).buffers()
    data, ends = np.frombuffer(raw, np.uint8), np.frombuffer(offsets, np.int32)[: count + 1].astype(np.int64)
    every = _Rows(data, ends[:-1], np.diff(ends))
    found = _Found(
        np.array(wanted, np.int64),
        np.array(sorted(unwanted), np.int64),
        np.zeros((len(wanted) + 1, count), np.int64),
        np.full((len(wanted) + 1, count), MISSING),
        np.zeros(count, np.bool_),
    )
    for shape, rows in _shapes(every):
        found.fits[rows] = _place(every, rows, shape, found)
    odd = ~found.fits
    if odd.any():
        found.at[:, odd], found.size[:, odd] = 0, MISSING
    cells = {column: Cells(found.at[place], found.size[place]) for place, column in enumerate(wanted)}
    return RowCells(data, cells, found.fits)


class _Shape(NamedTuple):
    """What the first six bytes of a row say: how many values and NULLs, and how wide ids and ends are."""

    values: int
    nulls: int
    id_bytes: int
    end_bytes: int
    checksum: bool

    @property
    def head(self) -> int:
        """Bytes before the ends."""
        return _SHAPE_BYTES + (self.values + self.nulls) * self.id_bytes


class _Found(NamedTuple):
    """Where the columns `wanted` are, a line of `at` and `size` for each and one for all others."""

    wanted: Any
    unwanted: Any
    at: Any
    size: Any
    fits: Any

    def lines(self, ids: Any) -> Any:
        """Return the lines of column ids."""
        others = len(self.wanted)
        if ids.itemsize == 1:
            small = np.flatnonzero(self.wanted < _SMALL_IDS)
            line = np.full(_SMALL_IDS, others)
            line[self.wanted[small]] = small
            return line[ids]
        order = np.append(np.argsort(self.wanted), others)
        known = np.append(np.sort(self.wanted), -1)
        near = np.searchsorted(known[:-1], ids)
        return np.where(known[near] == ids, order[near], others)


def _shapes(every: _Rows) -> Iterator[tuple[_Shape, Any]]:
    """Rows that begin with the same six bytes, and have at least the head and the ends of which these tell."""
    rows = np.flatnonzero(every.sizes >= _SHAPE_BYTES)
    if not len(rows):
        return
    begin = words(every.data, every.starts[rows]) & np.uint64((1 << 8 * _SHAPE_BYTES) - 1)
    for number in np.unique(begin).tolist():
        version, flags, values, nulls = HEAD.unpack(number.to_bytes(_SHAPE_BYTES, "little"))
        if version != VERSION_BYTE or flags & ~(LARGE | CHECKSUM):
            continue
        shape = _Shape(values, nulls, *((4, 4) if flags & LARGE else (1, 2)), bool(flags & CHECKSUM))
        alike = rows[begin == number]
        alike = alike[every.sizes[alike] >= shape.head + values * shape.end_bytes]
        if len(alike):
            yield shape, alike


def _place(every: _Rows, rows: Any, shape: _Shape, found: _Found) -> Any:
    """Notes the places of `rows`; says which of them are as `decode_raw_row` wants them."""
    data, starts, count = every.data, every.starts[rows], shape.values
    ids = _matrix(data, starts + _SHAPE_BYTES, count + shape.nulls, shape.id_bytes)
    ids = ids[:1] if (ids == ids[0]).all() else ids
    ends = np.zeros((len(rows), count + 1), np.int64)
    ends[:, 1:] = _matrix(data, starts + shape.head, count, shape.end_bytes)
    first = starts + shape.head + count * shape.end_bytes
    widths = np.diff(ends)
    fits = (widths >= 0).all(axis=1) & _ascends(ids[:, :count]) & _ascends(ids[:, count:])
    if shape.nulls and count:
        fits &= _ascends(np.sort(ids))
    if len(found.unwanted):
        fits &= ~np.isin(ids, found.unwanted).any(axis=1)
    tail = starts + every.sizes[rows] - first - ends[:, -1]
    fits &= _tails_fit(data, first + ends[:, -1], tail) if shape.checksum else tail == 0
    lines, row = found.lines(ids), rows[:, None]
    found.at[lines[:, :count], row] = first[:, None] + ends[:, :-1]
    found.size[lines[:, :count], row] = widths
    found.size[lines[:, count:], row] = NULL
    return fits


def _matrix(data: Any, at: Any, count: int, width: int) -> Any:
    """`count` numbers of `width` bytes from each of the places `at` on."""
    if not count:
        return np.zeros((len(at), 0), f"<u{width}")
    return windows(data, at, count * width).view(f"<u{width}")


def _ascends(numbers: Any) -> Any:
    return (numbers[:, 1:] > numbers[:, :-1]).all(axis=1)


def _tails_fit(data: Any, at: Any, size: Any) -> Any:
    """Which tails are checksums of a known form, as long as their first byte says."""
    header = data[np.minimum(at, len(data) - 1)]
    wanted = 1 + _CRC_BYTES * np.where(header & _EXTRA, 2, 1)
    return (size == wanted) & (header & ~np.uint8(_EXTRA | _VERSION) == 0)
