"""Values of one column of many rows, as bytes in rows of version 2, to one Arrow array.

    MySQL                     Arrow            how
    TINYINT .. BIGINT, YEAR   int64            eight bytes from a place on, shifted to their size
    UNSIGNED, BIT, ENUM, SET  uint64           the same
    FLOAT, DOUBLE             float64          the sortable form turned back; what is not finite is 0
    binary strings            binary           places are offsets: copied together
    texts                     string           the same; binary if a byte of them is no UTF-8
    DATE, DATETIME, TIMESTAMP string           parts of packed numbers to digits; TIMESTAMP in UTC alone
    DECIMAL                   string           words to digits, if all values have the form of the first
    JSON                      string           row/json_columns.py, all at once
    TIME, VECTOR              string           `read`, one by one, equal ones once

A reader gives the array and the rows that it cannot read: bytes that are no value of the type, or a form that it does
not know.  Those are null in the array, and their rows are to be read one by one.  No Python call is made for a value
above the last line: loops that numba compiles go over the rows.

Source: column_value.py and column_text.py, whose values and texts these are.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kv.row.columns import PADDING, Cells, spans, words
from tidegate.kv.row.json_columns import json_texts
from tidegate.model.compiled import compiled, inlined, windows
from tidegate.model.errors import DecodeError, EncodeError
from tidegate.model.mysql import FLOATS, NUMBERS, STRINGS, MysqlType
from tidegate.model.table import ColumnType
from tidegate.mysql.decimal_bin import DecimalForm, chunk_sizes

Read: TypeAlias = Callable[[bytes], Any]


class ReadValues(NamedTuple):
    """The values of a column, null where there is none, and which rows have bytes that were not read."""

    array: Any
    unread: Any


ReadColumn: TypeAlias = Callable[[Any, Cells], ReadValues]
"""The bytes of all rows, and the places of the column's values in them."""

_SIGN: Final = np.uint64(1 << 63)
_UNSIGNED: Final = frozenset({MysqlType.BIT, MysqlType.ENUM, MysqlType.SET})
_DATES: Final = frozenset({MysqlType.DATE, MysqlType.NEWDATE})
_TIMES: Final = _DATES | {MysqlType.DATETIME, MysqlType.TIMESTAMP}
_DATE_WIDTH, _TIME_WIDTH = 10, 19
_MAX_FSP: Final = 6
_DIGITS_MAX: Final = 18
"""Digits that a signed 64-bit number holds whatever they are."""


def arrow_type(kind: ColumnType) -> Any:
    """Return the type of the arrays of a column; binary may come in place of string."""
    if kind.code in NUMBERS:
        return pa.uint64() if _is_unsigned(kind) else pa.int64()
    if kind.code in FLOATS:
        return pa.float64()
    return pa.binary() if kind.code in STRINGS and kind.charset == "binary" else pa.string()


def column_reader(kind: ColumnType, read: Read, *, utc: bool = True) -> ReadColumn:
    """Return how a column of that type is read; `read` gives a single value as the array has it, or raises
    DecodeError."""
    if kind.code in NUMBERS:
        return partial(_whole, kind=np.uint64 if _is_unsigned(kind) else np.int64)
    if kind.code in FLOATS:
        return _floats
    if kind.code in STRINGS:
        return _binary if kind.charset == "binary" else _texts
    if kind.code in _TIMES and (utc or kind.code is not MysqlType.TIMESTAMP):
        return partial(_times, fsp=0 if kind.code in _DATES else min(max(kind.decimal, 0), _MAX_FSP), kind=kind)
    if kind.code is MysqlType.DECIMAL:
        return partial(_decimals, kind=kind, read=read)
    return _documents if kind.code is MysqlType.JSON else partial(_one_by_one, read=read)


def _is_unsigned(kind: ColumnType) -> bool:
    return kind.code in _UNSIGNED or (kind.unsigned and kind.code is not MysqlType.YEAR)


@compiled
def _integers(words: Any, at: Any, size: Any, is_signed: bool, numbers: Any, absent: Any, unread: Any) -> None:
    """Read numbers of one, two, four or eight bytes; note where none is, and what is none."""
    for row in range(len(at)):
        width = size[row]
        if width == 1 or width == 2 or width == 4 or width == 8:
            shift = 64 - 8 * width
            left = words[at[row]] << np.uint64(shift)
            numbers[row] = np.uint64(np.int64(left) >> np.int64(shift)) if is_signed else left >> np.uint64(shift)
        else:
            numbers[row], absent[row], unread[row] = 0, True, width >= 0


def _numbers(data: Any, cells: Cells, kind: type[np.integer]) -> tuple[Any, Any, Any]:
    """Numbers, where none is, and what is none."""
    count = len(cells.at)
    numbers, absent, unread = np.empty(count, np.uint64), np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    _integers(windows(data), cells.at, cells.size, kind is np.int64, numbers, absent, unread)
    return numbers.view(kind), absent, unread


def _whole(data: Any, cells: Cells, kind: type[np.integer]) -> ReadValues:
    numbers, absent, unread = _numbers(data, cells, kind)
    return ReadValues(pa.array(numbers, mask=absent), unread)


def _floats(data: Any, cells: Cells) -> ReadValues:
    bits = words(data, cells.at).byteswap()
    values = np.where(bits & _SIGN, bits ^ _SIGN, ~bits).view(np.float64)
    unread = (cells.size >= 0) & (cells.size != PADDING)
    return ReadValues(pa.array(np.where(np.isfinite(values), values, 0.0), mask=unread | (cells.size < 0)), unread)


def _binary(data: Any, cells: Cells) -> ReadValues:
    absent = cells.size < 0
    found = spans(data, cells.at, np.where(absent, 0, cells.size), absent if absent.any() else None)
    return ReadValues(found, np.zeros(len(absent), np.bool_))


def _texts(data: Any, cells: Cells) -> ReadValues:
    found = _binary(data, cells)
    try:
        return ReadValues(found.array.cast(pa.string()), found.unread)
    except pa.ArrowInvalid:
        return found


def _documents(data: Any, cells: Cells) -> ReadValues:
    """Equal documents are read once: an UPDATE mostly leaves them as they are."""
    known = _binary(data, cells).array.dictionary_encode()
    found = json_texts(known.dictionary).take(known.indices)
    return ReadValues(found, (cells.size >= 0) & found.is_null().to_numpy(zero_copy_only=False))


def _times(data: Any, cells: Cells, fsp: int, kind: ColumnType) -> ReadValues:
    width = _DATE_WIDTH if kind.code in _DATES else _TIME_WIDTH + (1 + fsp) * (fsp > 0)
    packed, absent, unread = _numbers(data, cells, np.int64)
    text = np.full((len(packed), width), ord("0"), np.uint8)
    _time_texts(packed, absent, fsp, text, unread)
    ends = np.arange(0, width * (len(packed) + 1), width, dtype=np.int32)[: len(packed) + 1]
    return ReadValues(_strings(text, ends, absent | unread), unread)


def _strings(text: Any, ends: Any, absent: Any) -> Any:
    valid = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
    return pa.Array.from_buffers(pa.string(), len(absent), [valid, pa.py_buffer(ends), pa.py_buffer(text)])


@inlined
def _put(line: Any, at: int, digits: int, number: Any) -> None:
    """Write a number of so many digits."""
    for place in range(at + digits - 1, at - 1, -1):
        line[place] = 48 + number % 10
        number //= 10


@compiled
def _time_texts(every: Any, absent: Any, fsp: int, text: Any, unread: Any) -> None:
    """Write packed times: year * 13 + month, day, hour, minute, second, microsecond, from the high bits on."""
    for row in range(len(every)):
        if absent[row]:
            continue
        packed = every[row]
        microsecond, clock, date = packed & 0xFFFFFF, packed >> 24 & 0x1FFFF, packed >> 41 & 0x7FFFFF
        months, day = date >> 5, date & 31
        year, month = months // 13, months % 13
        hour, minute, second = clock >> 12, clock >> 6 & 63, clock & 63
        if year > 9999 or hour > 23 or minute > 59 or second > 59 or microsecond > 999_999:
            unread[row] = True
            continue
        line = text[row]
        _put(line, 0, 4, year)
        _put(line, 5, 2, month)
        _put(line, 8, 2, day)
        line[4] = line[7] = 45
        if len(line) == _DATE_WIDTH:
            continue
        _put(line, 11, 2, hour)
        _put(line, 14, 2, minute)
        _put(line, 17, 2, second)
        line[10], line[13], line[16] = 32, 58, 58
        if fsp > 0:
            line[19] = 46
            _put(line, 20, fsp, microsecond // 10 ** (_MAX_FSP - fsp))


def _decimals(data: Any, cells: Cells, kind: ColumnType, read: Read) -> ReadValues:
    """DECIMALs of the column's own scale; others one by one."""
    rows = np.flatnonzero(cells.size > 2)
    if not len(rows):
        return _one_by_one(data, cells, read)
    first = cells.at[rows[0]]
    form = DecimalForm(int(data[first]), int(data[first + 1]))
    whole, scale = form.precision - form.scale, form.scale
    if not (form.precision > 0 and 0 <= whole <= _DIGITS_MAX and scale <= _DIGITS_MAX and scale == kind.decimal):
        return _one_by_one(data, cells, read)
    count, chunks = len(cells.at), np.array(chunk_sizes(form), np.int64)
    text, ends = np.empty(count * (form.precision + 3), np.uint8), np.zeros(count + 1, np.int32)
    done = np.zeros(count, np.bool_)
    _decimal_texts(data, cells.at, cells.size, form.precision, scale, chunks, text, ends, done)
    return _completed(data, cells, read, _strings(text[: ends[-1]], ends, ~done), done)


@compiled
def _decimal_texts(
    data: Any, at: Any, size: Any, precision: int, scale: int, chunks: Any, text: Any, ends: Any, done: Any
) -> None:
    """Write sign, digits without leading zeros, and `scale` decimals; note which rows are of the form."""
    width = chunks[:, 1].sum()
    to = 0
    for row in range(len(at)):
        begin = at[row]
        if size[row] == 2 + width and data[begin] == precision and data[begin + 1] == scale:
            flip = 0 if data[begin + 2] & 0x80 else 0xFF
            here, digits_left, whole, fraction, good = begin + 2, precision, 0, 0, True
            for chunk in range(len(chunks)):
                digits, part = chunks[chunk, 0], np.int64(0)
                for _ in range(chunks[chunk, 1]):
                    byte = np.int64(data[here]) ^ flip
                    part = part << 8 | (byte ^ 0x80 if here == begin + 2 else byte)
                    here += 1
                good = good and part < 10**digits
                if digits_left > scale:
                    whole = whole * 10**digits + part
                else:
                    fraction = fraction * 10**digits + part
                digits_left -= digits
            if good:
                if flip and (whole or fraction):
                    text[to] = 45
                    to += 1
                places, most = 1, 10
                while places < _DIGITS_MAX and whole >= most:
                    places, most = places + 1, most * 10
                _put(text, to, places, whole)
                to += places
                if scale:
                    text[to] = 46
                    _put(text, to + 1, scale, fraction)
                    to += 1 + scale
                done[row] = True
        ends[row + 1] = to


def _one_by_one(data: Any, cells: Cells, read: Read) -> ReadValues:
    count = len(cells.at)
    return _completed(data, cells, read, pa.nulls(count, pa.string()), np.zeros(count, np.bool_))


def _completed(data: Any, cells: Cells, read: Read, texts: Any, done: Any) -> ReadValues:
    """`texts` with what `read` makes of the values that are not `done`; equal ones are read once."""
    left = (cells.size >= 0) & ~done
    unread = np.zeros(len(left), np.bool_)
    places = np.flatnonzero(left)
    if not len(places):
        return ReadValues(texts, unread)
    known = dict[bytes, Any]()
    others: list[Any] = []
    for row, at, size in zip(places.tolist(), cells.at[places].tolist(), cells.size[places].tolist(), strict=True):
        value = data[at : at + size].tobytes()
        if value not in known:
            try:
                known[value] = read(value)
            except (DecodeError, EncodeError):
                known[value] = None
        others.append(known[value])
        unread[row] = known[value] is None
    return ReadValues(pc.replace_with_mask(texts, pa.array(left), pa.array(others, pa.string())), unread)
