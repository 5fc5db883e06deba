r"""Values in a text to typed Arrow arrays, by compiled loops that read each byte once.

    cells    7, "a\n", null, ..      start and end in the text, marks: null, an escape in it, bytes beyond ASCII
    fill     7 ; a\n ; null          row by row, in text order: numbers, and bytes back to back
    gather   7   a\n   null          column by column: Arrow's buffers

    Form          conversion
    INTEGER       digits and a sign to a number within the column's bounds
    FLOAT, DOUBLE the grammar of numbers is checked, Arrow makes them numbers
    TEXT          escapes are undone, UTF-8 is checked
    others        encodings within strings are undone, too (escapes.py)

A loop may be stricter than the plain decoder, which then reports the invalid value; it is never laxer.

Source: the rules of `codec/canal.py` and `codec/open.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.codec.columnar.escapes import (
    BASE64,
    BASE64_TEXT,
    LATIN1,
    QUOTED,
    TEXT,
    number,
    string,
    undo,
)
from tidegate.codec.columnar.scan import ABSENT, DELETE, ESCAPED, INSERT, NULL, UPDATE, WIDE
from tidegate.codec.columnar.values import INT64_MAX, as_texts
from tidegate.codec.values import ColumnForm, Form
from tidegate.model.compiled import compiled, copy, gather, inlined, windows

BAD: Final = 8
"""The mark of a value that only the plain decoder can read, or refuse."""

INTEGER, UNSIGNED, NUMBER = range(3)
"""Conversions of numbers; UNSIGNED is an INTEGER that may exceed 63 bits. escapes.py has those of strings."""
_WAYS: Final[Mapping[Form, int]] = {
    Form.FLOAT: NUMBER,
    Form.DOUBLE: NUMBER,
    Form.TEXT: TEXT,
    Form.BASE64: BASE64,
    Form.BASE64_TEXT: BASE64_TEXT,
    Form.QUOTED: QUOTED,
    Form.LATIN1: LATIN1,
}
_FLOAT32_MAX: Final = float(np.finfo(np.float32).max)


class Values(NamedTuple):
    """Values as `fill` writes them: numbers, or offsets of bytes in `data`, the used size of `data`, and marks."""

    numbers: Any
    start: Any
    size: Any
    marks: Any
    data: Any
    used: int

    def of(self, begun: int, stop: int) -> "Values":
        """Return a selection of the values."""
        run = slice(begun, stop)
        return Values(self.numbers[run], self.start[run], self.size[run], self.marks[run], self.data, self.used)


def way_of(form: ColumnForm) -> tuple[int, int, int]:
    """Return the conversion of a form's values, and the bounds of an integer, the upper one of UNSIGNED as a signed
    number."""
    if form.form is not Form.INTEGER:
        return _WAYS[form.form], 0, 0
    if form.high <= INT64_MAX:
        return INTEGER, form.low, form.high
    if form.low < 0:
        return INTEGER, form.low, INT64_MAX
    return UNSIGNED, 0, form.high - (1 << 64) if form.high > INT64_MAX else form.high


def array_of(form: ColumnForm, values: Values) -> Any:
    """Return the Arrow array of values of one form; values that Arrow refuses are marked BAD."""
    return _ARRAYS[form.form](form, values)


def _integers(form: ColumnForm, values: Values) -> Any:
    large = way_of(form)[0] == UNSIGNED
    return _array(pa.uint64() if large else pa.int64(), values, pa.py_buffer(values.numbers))


def _doubles(_form: ColumnForm, values: Values) -> Any:
    doubles = _bytes(pa.string())(_form, values).cast(pa.float64())
    values.marks[~np.isfinite(_numbers(doubles))] |= BAD
    return doubles


def _floats(form: ColumnForm, values: Values) -> Any:
    numbers = _numbers(_doubles(form, values))
    with np.errstate(over="ignore"):
        single = numbers.astype(np.float32).astype(np.float64)
    values.marks[~np.isfinite(single)] |= BAD
    return _array(pa.float64(), values, pa.py_buffer(single))


def _bytes(kind: Any) -> "Convert":

    def convert(_form: ColumnForm, values: Values) -> Any:
        return bytes_of(values, kind)

    return convert


def bytes_of(values: Values, kind: Any) -> Any:
    """Return the bytes of values as an array."""
    offsets = np.zeros(len(values.size) + 1, np.int32)
    np.cumsum(values.size, out=offsets[1:])
    data = np.empty(int(offsets[-1]) + 8, np.uint8)
    gather(windows(values.data), values.start, offsets, windows(data))
    return _array(kind, values, pa.py_buffer(offsets), pa.py_buffer(data))


def with_numbers_as_texts(form: ColumnForm, values: Values, indexes: Any) -> Values:
    """Return the values with those at `indexes`, of a FLOAT or DOUBLE, as the texts of a changelog; marks what
    is no such number as bad."""
    some = Values(
        values.numbers[indexes],
        values.start[indexes],
        values.size[indexes],
        values.marks[indexes],
        values.data,
        values.used,
    )
    texts = as_texts(array_of(form, some))
    values.marks[indexes] = some.marks
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    written = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    used, stop = values.used, values.used + len(written)
    data = values.data
    if stop + 8 > len(data):
        data = np.concatenate((values.data[:used], np.empty(len(written) + 8, np.uint8)))
    data[used:stop] = written
    values.start[indexes], values.size[indexes] = used + offsets[:-1] - offsets[0], np.diff(offsets)
    return values._replace(data=data, used=stop)


def _array(kind: Any, values: Values, *buffers: Any) -> Any:
    nulls = (values.marks & NULL) != 0
    valid = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None
    return pa.Array.from_buffers(kind, len(nulls), [valid, *buffers])


def _numbers(array: Any) -> Any:
    """The numbers of an array of doubles; 0 for null."""
    return array.fill_null(0.0).to_numpy(zero_copy_only=False)


@compiled
def fill(
    text: Any, words: Any, rows: Any, program: Any, ops: Any, cells: Any, start: Any, end: Any, marks: Any,
    columns: Any, first: Any, offset: Any, ways: Any, done: Any, steps: Any, quotes: int,
    numbers: Any, to_start: Any, to_size: Any, to_marks: Any, row_of: Any,
    data: Any, data_words: Any, begun: int, written: bool,
) -> int:  # fmt: skip
    """Take the values of some rows to the slots of their columns; where the next byte goes in `data`.

    text, words, rows .. marks   as `scan.scan` has left them
    columns, first, done         per program its columns, its first range, and the numbers of old and new images
    at, ways                     per range where it begins, and (way, lowest, highest)
    steps                        per program the distance between two slots of a column
    numbers .. row_of            per slot its value, an output: a number for integers, bytes for the others
    written                      integers become bytes instead"""
    to = begun
    for index in range(len(rows)):
        row = rows[index]
        of, op, cell_0 = program[row], ops[row], cells[row]
        width = columns[of]
        for image in range(2):
            if (image == 0 and op == INSERT) or (image == 1 and op == DELETE):
                continue
            segment_0, behind = first[of] + image * width, done[of, image] * steps[of]
            for column in range(width):
                cell = cell_0 + column
                if image == 0 and op == UPDATE and start[cell + width] != ABSENT:
                    cell += width
                segment = segment_0 + column
                slot = offset[segment] + behind
                mark, way, begins, ends, stop = marks[cell], ways[segment, 0], start[cell], end[cell], to
                row_of[slot] = row
                if way <= UNSIGNED and not written:
                    if mark & NULL:
                        numbers[slot] = 0
                    else:
                        numbers[slot], mark = _checked(text, begins + quotes, ends - quotes, mark, ways[segment])
                    to_marks[slot] = mark
                    continue
                if not mark & NULL:
                    if way == TEXT and not mark & (ESCAPED | WIDE):
                        stop = copy(words, begins + 1, ends - 1, data_words, to)
                    elif way <= UNSIGNED:
                        _, mark = _checked(text, begins + quotes, ends - quotes, mark, ways[segment])
                        stop = copy(words, begins + quotes, ends - quotes, data_words, to)
                    elif way == NUMBER:
                        stop = number(text, begins + quotes, ends - quotes, data, to)
                    else:
                        stop = string(text, words, begins + 1, ends - 1, mark, data, data_words, to)
                        if stop >= 0 and way > TEXT:
                            stop = undo(way, data, data_words, to, stop)
                    if stop < 0:
                        data[to], mark, stop = 48, mark | BAD, to + 1  # a number, since Arrow reads all of them
                to_start[slot], to_size[slot], to_marks[slot] = to, stop - to, mark
                to = stop
            done[of, image] += 1
    return to


@inlined
def _checked(text: Any, offset: int, stop: int, mark: int, bounds: Any) -> tuple[int, int]:
    """Parse digits with a sign; return the number and its mark."""
    number, fits = _integer(text, offset, stop, bounds[0])
    if fits and _within(number, bounds[0], bounds[1], bounds[2]):
        return number, mark
    return number, mark | BAD


@compiled
def _integer(text: Any, offset: int, stop: int, way: int) -> tuple[Any, Any]:
    """Parse digits with a sign; return the number (of UNSIGNED its 64 bits as a signed number) and whether it is
    valid."""
    value: Any = 0
    minus = offset < stop and text[offset] == 45
    if minus:
        offset += 1
    if offset >= stop or (text[offset] == 48 and (minus or stop - offset > 1)) or (minus and way == UNSIGNED):
        return 0, False
    size = stop - offset
    if size > 18:
        return _long_integer(text, offset, stop, minus, way)
    while offset < stop:
        digit = np.int64(text[offset]) - 48
        if digit < 0 or digit > 9:
            return 0, False
        value = value * 10 + digit
        offset += 1
    return -value if minus else value, True


@compiled
def _long_integer(text: Any, offset: int, stop: int, minus: Any, way: int) -> tuple[Any, Any]:
    """Parse digits that may exceed 63 bits."""
    value = np.uint64(0)
    if stop - offset > 20:
        return 0, False
    while offset < stop:
        digit = np.int64(text[offset]) - 48
        if digit < 0 or digit > 9 or value > np.uint64(1844674407370955161):
            return 0, False
        if value == np.uint64(1844674407370955161) and digit > 5:
            return 0, False
        value = value * np.uint64(10) + np.uint64(digit)
        offset += 1
    if way == UNSIGNED:
        return np.int64(value), True
    if minus:
        return -np.int64(value), value <= np.uint64(9223372036854775808)
    return np.int64(value), value <= np.uint64(9223372036854775807)


@compiled
def _within(number: int, way: int, low: int, high: int) -> Any:
    if way == UNSIGNED:
        return np.uint64(number) <= np.uint64(high)
    return low <= number <= high


Convert: TypeAlias = Callable[[ColumnForm, Values], Any]

_ARRAYS: Final[Mapping[Form, Convert]] = {
    Form.INTEGER: _integers,
    Form.FLOAT: _floats,
    Form.DOUBLE: _doubles,
    Form.TEXT: _bytes(pa.string()),
    Form.BASE64: _bytes(pa.binary()),
    Form.BASE64_TEXT: _bytes(pa.string()),
    Form.QUOTED: _bytes(pa.binary()),
    Form.LATIN1: _bytes(pa.binary()),
}
