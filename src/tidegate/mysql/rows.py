"""Rows of MySQL's text protocol as Arrow columns of texts, without a Python object per value. Pure.

    row      length: 3 | number: 1 | text of the first column | text of the second | ..     one packet per row
    text     length, bytes          length: < 0xfb itself   fb NULL   fc and 2 bytes   fd and 3   fe and 8
    end      fe, in a packet of less than 9 bytes
    error    ff | code: 2 | '#' | SQLSTATE: 5 | message

A socket fills a buffer; a compiled loop finds the rows in it, another copies each column's texts together, so many
rows at a time that these stay in the processor's cache.  Memory is twice the buffer: BUFFER_BYTES, or more for a larger
row.  A row of 16 MiB or more arrives in several packets, which are joined in place.

A result is complete once its end packet is read: one that breaks off, whose packets are out of order or whose texts do
not fill their packet, raises ResultBroken, as does a server error in the middle of rows.

Source: MySQL Internals, "MySQL Packets", "Text Resultset", "ERR_Packet".
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidegate.model.compiled import compiled, copy, inlined, windows
from tidegate.model.errors import ProtocolError

BUFFER_BYTES: Final = 4 << 20
ROWS_MAX: Final = 65_536
"""The most rows of one batch."""
ROW_BYTES_MAX: Final = (1 << 30) + (1 << 20)
"""The longest row: max_allowed_packet of 1 GiB, and its headers."""

_HEAD_BYTES, _PADDING, _LONGEST, _END_BYTES = 4, 8, 0xFFFFFF, 9
_NULL: Final = -1
_ROWS_AT_ONCE: Final = 512
_LOST, _MALFORMED = 2013, 2027
"""The driver's numbers of a lost connection and of a malformed packet."""
_MORE, _FULL, _END, _ERROR, _DISORDER, _BROKEN = range(6)
"""How a walk ends: it needs more bytes, has its rows, met the end or an error, a wrong number, or texts that do not
fill their packet."""


class ResultBroken(ProtocolError):
    """A result without its end: (the number of the server's or the driver's error, its message)."""

    code = "CDC:ErrResultBroken"
    remedy = "Read again; check the server's log, `net_write_timeout` and the network."

    def __init__(self, number: int, message: str, /) -> None:
        super().__init__(number, message)
        self.number, self.message = number, message

    def __str__(self) -> str:
        return f"{self.message} ({self.number})"

    @classmethod
    def of(cls, payload: Any, how: int) -> "ResultBroken":
        """Return the error of how a walk ended; of an error packet it is the server's."""
        if how == _ERROR:
            said = payload.tobytes()
            text = said[9:] if said[3:4] == b"#" else said[3:]
            return cls(int.from_bytes(said[1:3], "little"), text.decode("utf-8", "replace"))
        what = "packets that are not in order" if how == _DISORDER else "a row that is none of its columns"
        return cls(_MALFORMED, f"{what}; a proxy may alter the data")


class ResultRows:
    """The rows of one result of `width` columns; `read_into` fills some of a buffer and returns how many bytes (0: the
    connection has ended), and `number` is that of the next packet.

    `rows_max` and `buffer_bytes` bound a batch; a row that is larger than the buffer is a batch alone."""

    def __init__(
        self,
        width: int,
        read_into: Callable[[memoryview], int],
        number: int = 0,
        *,
        rows_max: int = ROWS_MAX,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self._read_into, self._number = read_into, number
        self._bytes = np.zeros(buffer_bytes + _PADDING, np.uint8)
        rows_max = min(rows_max, buffer_bytes // width + 1)  # a text takes a byte at least
        self._starts = np.zeros((width, rows_max), np.int64)
        self._sizes = np.zeros((width, rows_max), np.int32)
        self._filled = 0

    def batches(self) -> Iterator[list[Any]]:
        """Yield the columns of groups of rows, as binary arrays, null for NULL; no batch is empty. Raises
        ResultBroken, and errors of the socket."""
        offset = rows = 0
        while True:
            offset, rows, self._number, how = _walk(
                self._bytes, offset, self._filled, self._number, self._starts, self._sizes, rows
            )
            if how == _MORE and self._filled < len(self._bytes) - _PADDING:
                read = self._read_into(self._bytes[self._filled : -_PADDING].data)
                if not read:
                    raise ResultBroken(_LOST, "the connection ended in the middle of a result")
                self._filled += read
                continue
            if rows:
                yield self._columns(rows)
            if how >= _END:
                if how > _END:
                    raise ResultBroken.of(self._bytes[offset + _HEAD_BYTES : self._filled], how)
                return
            self._move(offset, grow=not rows)
            offset = rows = 0

    def _columns(self, rows: int) -> list[Any]:
        """The texts of the rows, as an array a column."""
        width = len(self._sizes)
        ends, valid = np.empty((width, rows + 1), np.int32), np.zeros((width, -(-rows // 8)), np.uint8)
        nulls, begins = np.zeros(width, np.int64), np.zeros(width + 1, np.int64)
        data = np.empty(self._filled + width * _PADDING, np.uint8)
        _gather(windows(self._bytes), self._starts, self._sizes, ends, valid, nulls, begins, windows(data))
        columns = []
        for column in range(width):
            begin, stop = begins[column], begins[column] + ends[column, rows]
            validity = pa.py_buffer(valid[column]) if nulls[column] else None
            buffers: Sequence[Any] = [validity, pa.py_buffer(ends[column]), pa.py_buffer(data[begin:stop])]
            columns.append(pa.Array.from_buffers(pa.binary(), rows, buffers, int(nulls[column])))
        return columns

    def _move(self, offset: int, *, grow: bool) -> None:
        """Put what is left to the beginning, of a buffer twice as large where not one row fits."""
        left = self._bytes[offset : self._filled]
        if grow:
            if len(self._bytes) > ROW_BYTES_MAX:
                raise ResultBroken(_MALFORMED, "a row larger than a packet can be")
            self._bytes = np.zeros(2 * (len(self._bytes) - _PADDING) + _PADDING, np.uint8)
        self._bytes[: len(left)] = left.copy()
        self._filled = len(left)


@compiled
def _gather(
    words: Any, starts: Any, sizes: Any, ends: Any, valid: Any, nulls: Any, begins: Any, data_words: Any
) -> None:
    """Copy the texts of each column; set where each ends in its column, which are none, and where columns begin."""
    width = len(ends)
    rows = ends.shape[1] - 1
    for column in range(width):
        end: Any = 0
        ends[column, 0] = 0
        for row in range(rows):
            size = np.int64(sizes[column, row])
            if size >= 0:
                end += size
                valid[column, row >> 3] |= np.uint8(1 << (row & 7))
            else:
                nulls[column] += 1
            ends[column, row + 1] = end
        begins[column + 1] = begins[column] + end + _PADDING  # a copy writes bytes behind its end
    for first in range(0, rows, _ROWS_AT_ONCE):
        for column in range(width):
            begin = begins[column]
            for row in range(first, min(first + _ROWS_AT_ONCE, rows)):
                start, to = starts[column, row], np.int64(ends[column, row])
                copy(words, start, start + ends[column, row + 1] - to, data_words, begin + to)


@inlined
def _length(data: Any, offset: int) -> Any:
    return np.int64(data[offset]) | np.int64(data[offset + 1]) << 8 | np.int64(data[offset + 2]) << 16


@inlined
def _joined(data: Any, offset: int, end: int, number: int) -> Any:
    """Put a row of several packets together; return (its end, the end of its last packet, the next number): (-1, 0, 0)
    if it is not whole yet, -2 if a number is wrong."""
    stop, cursor = offset + _HEAD_BYTES, offset
    while True:  # first look: nothing moves before all is there
        if cursor + _HEAD_BYTES > end:
            return -1, 0, 0
        length = _length(data, cursor)
        cursor += _HEAD_BYTES + length
        if cursor > end:
            return -1, 0, 0
        if length < _LONGEST:
            break
    cursor = offset
    while True:
        length = _length(data, cursor)
        if np.int64(data[cursor + 3]) != number:
            return -2, 0, 0
        number = (number + 1) & 0xFF
        begin = cursor + _HEAD_BYTES
        if begin != stop:
            for index in range(length):
                data[stop + index] = data[begin + index]
        stop, cursor = stop + length, begin + length
        if length < _LONGEST:
            return stop, cursor, number


@compiled
def _walk(data: Any, offset: int, end: int, number: int, starts: Any, sizes: Any, row: int) -> Any:
    """Find rows from `offset` on; return (the place behind the last, rows, the next packet's number, how it ended)."""
    width, most = starts.shape
    while row < most:
        if offset + _HEAD_BYTES > end:
            return offset, row, number, _MORE
        length = _length(data, offset)
        cursor: Any = offset + _HEAD_BYTES
        stop, behind, following = cursor + length, cursor + length, (number + 1) & 0xFF
        if length == _LONGEST:
            stop, behind, following = _joined(data, offset, end, number)
            if stop < 0:
                return offset, row, number, _MORE if stop == -1 else _DISORDER
        elif stop > end:
            return offset, row, number, _MORE
        elif np.int64(data[offset + 3]) != number:
            return offset, row, number, _DISORDER
        first = data[cursor] if stop > cursor else 0
        if first == 0xFF:
            return offset, row, number, _ERROR
        if first == 0xFE and length < _END_BYTES:
            return behind, row, following, _END
        for column in range(width):
            if cursor >= stop:
                return offset, row, number, _BROKEN
            size = np.int64(data[cursor])
            cursor += 1
            if size >= 0xFB:
                if size == 0xFB:
                    sizes[column, row] = _NULL
                    starts[column, row] = 0
                    continue
                wide = 8 if size == 0xFE else size - 0xFA
                if size == 0xFF or cursor + wide > stop:
                    return offset, row, number, _BROKEN
                size = np.int64(0)
                for index in range(wide):
                    size |= np.int64(data[cursor + index]) << (8 * index)
                cursor += wide
            if size < 0 or size > stop - cursor:
                return offset, row, number, _BROKEN
            starts[column, row], sizes[column, row] = cursor, size
            cursor += size
        if cursor != stop:
            return offset, row, number, _BROKEN
        offset, number, row = behind, following, row + 1
    return offset, row, number, _FULL
