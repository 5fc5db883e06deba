"""Row texts from columns: the steps of a row, prepared for the compiled loop (write.py).

    Composer(…).texts([b'{"u":{', ImageStep(NEW), Chosen([b"}", b'},"p":{'], codes), ImageStep(OLD), b"}}"], 3, images)

A table's members are prepared once; a batch's buffers are appended to them, so that the loop reads one run of bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.codec.columnar.encode.arrays import BINARY, BYTES_MAX, NO_ROWS
from tidegate.codec.columnar.encode.cells import Cell
from tidegate.codec.columnar.encode.characters import TABLES
from tidegate.codec.columnar.encode.write import CELL, CHOSEN, IMAGE, INTEGER, LITERAL, SPARE, write
from tidegate.model.compiled import windows

OLD, NEW = range(2)
_NO_CODES: Final = np.zeros((0, 0), np.int64)
_NO_MASKS: Final = np.zeros((0, 0), np.bool_)
_PAD: Final = bytes(8)
_MARKS: Final = 3
"""Quotes and a comma."""
_OFFSET: Final = Struct("<i")
_WIDTHS: Final = {
    **{kind.id: kind.bit_width // 8 for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{kind.id: -kind.bit_width // 8 for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
}


class Member(NamedTuple):
    """A prepared column; `head` comes before the value, `tail` after it."""

    column: int
    head: bytes
    cell: Cell
    tail: bytes = b""


class Chosen(NamedTuple):
    """A choice of texts, by each row's code."""

    texts: Sequence[bytes]
    codes: Any


class CellStep(NamedTuple):
    """A value of each row; with a head, null writes nothing."""

    cell: Cell
    array: Any
    head: bytes = b""


class ImageStep(NamedTuple):
    """The members of the OLD or the NEW image."""

    which: int


Step: TypeAlias = bytes | Chosen | CellStep | ImageStep


@dataclass(frozen=True)
class BatchImages:
    """The images of a batch: record batches OLD and NEW, the row in them of each row (-1 for none), and the members of
    each old row, [] if all have all."""

    batches: tuple[Any, Any]
    indexes: Any
    masks: Sequence[Any]


class Composer:
    """The prepared members of a table."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        pool = _Pool(_escapes()[0])
        self._literals = np.array(
            [[*pool.text(member.head), *pool.text(member.tail)] for member in members], np.int64
        ).reshape(-1, 4)
        self._blob = pool.joined()
        self._together = [index for index, member in enumerate([*members, *members]) if member.cell.together]
        self._likely = sum(len(member.head) + len(member.tail) + _MARKS for member in members)
        self._row_limit = self._likely + SPARE * len(members)

    def texts(self, steps: Sequence[Step], rows: int, images: BatchImages | None = None) -> Any:
        """Return the text of each row. Mismatch for values that only the plain encoder writes."""
        if not rows:
            return NO_ROWS
        pool = _Pool(self._blob)
        cells, room = list[tuple[int, ...]](), 0
        if images is not None:
            cells += self._cells(images, pool)
            room = sum(batch.num_rows for batch in images.batches) * self._likely
        lines, codes, literals, each = _lines(steps, pool, cells)
        indexes = _NO_CODES if images is None else np.ascontiguousarray(images.indexes)
        masks = images.masks if images is not None else []
        mask = np.ascontiguousarray(masks) if len(masks) and not all(map(np.all, masks)) else _NO_MASKS
        most = each + 2 * self._row_limit
        arrays = (
            np.array(lines, np.int64),
            np.array(codes, np.int64) if codes else _NO_CODES,
            np.array(literals, np.int64).reshape(-1, 2),
            self._literals,
            np.array(cells, np.int64).reshape(-1, 7),
            indexes,
            mask,
        )
        text = pool.joined()
        return _written(rows, most, rows * each + room + (len(text) - len(self._blob)) * 9 // 8, arrays, text)

    def _cells(self, images: BatchImages, pool: "_Pool") -> list[tuple[int, ...]]:
        columns = [batch.columns for batch in images.batches]
        pairs = [(member.cell, each[member.column]) for each in columns for member in self._members]
        alike: dict[tuple[Any, Any], list[int]] = {}
        for index in self._together:
            cell, array = pairs[index]
            alike.setdefault((cell.prepared, array.type), []).append(index)
        ready: dict[int, tuple[int, Any]] = {}
        for (prepared, _), numbers in alike.items():
            begun = 0
            way, whole = prepared(pa.concat_arrays([pairs[index][1] for index in numbers]))
            for index in numbers:
                rows = len(pairs[index][1])
                ready[index] = way, whole.slice(begun, rows)
                begun += rows
        return [
            pool.cell(cell, *(ready.get(index) or cell.prepared(array))) for index, (cell, array) in enumerate(pairs)
        ]


def _lines(steps: Sequence[Step], pool: "_Pool", cells: list[tuple[int, ...]]) -> tuple[Any, list[Any], list[Any], int]:
    """Steps in the loop's form, their codes and literals, and the bytes of a row without values; cells are added to
    `cells`."""
    lines: list[tuple[int, int, int]] = []
    codes, literals, room = list[Any](), list[tuple[int, int]](), 0
    for step in steps:
        if isinstance(step, bytes):
            lines.append((LITERAL, *pool.text(step)))
            room += len(step)
        elif isinstance(step, Chosen):
            lines.append((CHOSEN, len(codes), len(literals)))
            codes.append(step.codes)
            literals += map(pool.text, step.texts)
            room += max(map(len, step.texts))
        elif isinstance(step, CellStep):
            lines.append((CELL, len(cells), len(literals) if step.head else -1))
            literals += [pool.text(step.head)] * bool(step.head)
            cells.append(pool.cell(step.cell, *step.cell.prepared(step.array)))
            room += len(step.head) + SPARE
        else:
            lines.append((IMAGE, step.which, 0))
    return lines, codes, literals, room


def _written(rows: int, most: int, room: int, arrays: tuple[Any, ...], text: bytes) -> Any:
    """The texts as an array; its buffer grows until all rows fit. A row takes at most `most` bytes without its
    values."""
    run, (_, escapes, plain) = np.frombuffer(text, np.uint8), _escapes()
    ends, row, to = np.zeros(rows + 1, np.int32), 0, 0
    out = np.empty(0, np.uint8)
    while row < rows:
        if len(out) == BYTES_MAX:
            raise pa.lib.ArrowCapacityError(f"{rows} rows take more than {BYTES_MAX} bytes")
        size = min(max(room + most + SPARE, 2 * len(out)), BYTES_MAX)
        grown = np.frombuffer(pa.allocate_buffer(size), np.uint8)  # Arrow's pool has memory that was used before
        grown[:to] = out[:to]
        out = grown
        limit = len(out) - most - SPARE
        memory: tuple[Any, ...] = (*arrays, run, windows(run), escapes, plain, out, windows(out), ends)
        row, to = write(row, rows, to, limit, *memory)
    return pa.Array.from_buffers(BINARY, rows, [None, pa.py_buffer(ends), pa.py_buffer(out)])


@cache
def _escapes() -> tuple[bytes, Any, Any]:
    """The texts of all escape tables, the start and end of each, and a mask of unchanged bytes."""
    pool = _Pool(b"")
    spans = [pool.text(text) for table in TABLES for text in table]
    plain = np.array([[table[byte] == bytes([byte]) for byte in range(256)] for table in TABLES])
    return pool.joined(), np.array(spans, np.int64), plain


class _Pool:
    def __init__(self, blob: bytes) -> None:
        self._parts: list[Any] = [blob]
        self._size = len(blob)

    def text(self, part: Any) -> tuple[int, int]:
        """Append bytes; return their start and end."""
        begun = self._size
        self._parts.append(part)
        self._size += len(part)
        return begun, self._size

    def cell(self, cell: Cell, way: int, array: Any) -> tuple[int, ...]:
        """Append the prepared values of a column; return the loop's description of them."""
        if not len(array):
            return (0,) * 7
        first, rows, buffers, valid = array.offset, len(array), array.buffers(), -1
        if buffers[0] is not None and array.null_count:
            begun = first >> 3
            valid = 8 * self.text(buffers[0].slice(begun, ((first + rows + 7) >> 3) - begun))[0] + (first & 7)
        if way == INTEGER:
            width = _WIDTHS[array.type.id]
            data, _ = self.text(buffers[1].slice(first * abs(width), rows * abs(width)))
            return (way, width, valid, data, 0, cell.table, cell.quoted)
        offsets = buffers[1].slice(4 * first, 4 * rows + 4)
        ends, _ = self.text(offsets)
        (low,), (high,) = _OFFSET.unpack_from(offsets), _OFFSET.unpack_from(offsets, 4 * rows)
        data = self.text(buffers[2].slice(low, high - low))[0] - low if high > low else 0
        return (way, 0, valid, data, ends, cell.table, cell.quoted)

    def joined(self) -> bytes:
        return b"".join([*self._parts, _PAD])
