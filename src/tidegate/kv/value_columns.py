"""Values of one column of many rows, as bytes in rows of version 2, to one Arrow array.

    MySQL                     Arrow            how
    TINYINT .. BIGINT, YEAR   int64            eight bytes from each place on, shifted to their size
    UNSIGNED, BIT, ENUM, SET  uint64           the same
    FLOAT, DOUBLE             float64          the sortable form turned back; what is not finite is 0
    binary strings            binary           places are offsets: copied together
    texts                     string           the same; binary if a byte of them is no UTF-8
    DATE, DATETIME, TIMESTAMP string           parts of packed numbers to digits; TIMESTAMP in UTC alone
    DECIMAL                   string           words to digits, if all values have the form of the first
    JSON                      string           json/columns.py, all at once
    TIME, VECTOR              string           `read`, one by one, equal ones once

A reader gives the array and the rows that it cannot read: bytes that are no value of the type, or a form that it does
not know.  Those are null in the array, and their rows are to be read one by one.  No Python call is made for a value
above the last line.

Source: column_value.py and column_text.py, whose values and texts these are.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kv.decimal_bin import DecimalForm, chunk_sizes
from tidegate.kv.json.columns import json_texts
from tidegate.kv.row.columns import PADDING, Cells, spans, windows, words
from tidegate.model.errors import DecodeError, EncodeError
from tidegate.model.mysql import FLOATS, NUMBERS, STRINGS, MysqlType
from tidegate.model.table import ColumnType

Read: TypeAlias = Callable[[bytes], Any]


class ReadValues(NamedTuple):
    """The values of a column, null where there is none, and which rows have bytes that were not read."""

    array: Any
    unread: Any


ReadColumn: TypeAlias = Callable[[Any, Cells], ReadValues]
"""The bytes of all rows, and the places of the column's values in them."""

_SIZES: Final = (1, 2, 4, 8)
_ODD: Final = np.array([size not in _SIZES for size in range(10)])
_SIGN: Final = np.uint64(1 << 63)
_UNSIGNED: Final = frozenset({MysqlType.BIT, MysqlType.ENUM, MysqlType.SET})
_DATES: Final = frozenset({MysqlType.DATE, MysqlType.NEWDATE})
_TIMES: Final = _DATES | {MysqlType.DATETIME, MysqlType.TIMESTAMP}
_DATE_WIDTH, _TIME_WIDTH = 10, 19
_MAX_FSP: Final = 6
_SHORT_DIGITS: Final = 9
"""Digits that an unsigned 32-bit number holds whatever they are."""
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
        return _unsigned if _is_unsigned(kind) else _signed
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


def _numbers(data: Any, cells: Cells) -> tuple[Any, Any, Any]:
    """Numbers without sign, by how many bits they lie too far left, and what is no number."""
    size = cells.size
    there = size >= 0
    unread = there & _ODD[np.clip(size, 0, len(_ODD) - 1)]
    shift = (64 - 8 * np.where(there & ~unread, size, 8)).astype(np.uint64)
    return words(data, cells.at) << shift, shift, unread


def _unsigned(data: Any, cells: Cells) -> ReadValues:
    left, shift, unread = _numbers(data, cells)
    return ReadValues(pa.array(left >> shift, mask=unread | (cells.size < 0)), unread)


def _signed(data: Any, cells: Cells) -> ReadValues:
    left, shift, unread = _numbers(data, cells)
    return ReadValues(pa.array(left.view(np.int64) >> shift.view(np.int64), mask=unread | (cells.size < 0)), unread)


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
    left, shift, unread = _numbers(data, cells)
    packed = left >> shift
    microsecond = packed & np.uint64(0xFFFFFF)
    clock = packed >> np.uint64(24) & np.uint64(0x1FFFF)
    date = packed >> np.uint64(41)
    year, month = np.divmod(date >> np.uint64(5), np.uint64(13))
    day, hour = date & np.uint64(31), clock >> np.uint64(12)
    minute, second = clock >> np.uint64(6) & np.uint64(63), clock & np.uint64(63)
    limits = (year, 9999), (month, 12), (day, 31), (hour, 23), (minute, 59), (second, 59), (microsecond, 999_999)
    wrong = np.logical_or.reduce([part > limit for part, limit in limits]) & (cells.size >= 0)
    unread = unread | wrong
    parts = [(year, 4, b"-"), (month, 2, b"-"), (day, 2, b" ")]
    if kind.code not in _DATES:
        parts += [(hour, 2, b":"), (minute, 2, b":"), (second, 2, b".")]
        parts += [(microsecond // np.uint64(10 ** (_MAX_FSP - fsp)), fsp, b"")] if fsp else []
    return ReadValues(_fixed(parts, unread | (cells.size < 0)), unread)


def _fixed(parts: list[tuple[Any, int, bytes]], mask: Any) -> Any:
    """Texts of numbers of so many digits, each but the last with what stands behind it."""
    count = len(mask)
    width = sum(digits + len(end) for _, digits, end in parts)
    width -= len(parts[-1][2])
    text = np.empty((count, width + 1), np.uint8)
    at = 0
    for numbers, digits, end in parts:
        rest: Any = np.asarray(numbers).astype(np.uint64 if digits > _SHORT_DIGITS else np.uint32)
        for place in range(at + digits - 1, at - 1, -1):
            above = rest // 10
            text[:, place] = rest - above * 10 + ord("0")
            rest = above
        at += digits
        if end:
            text[:, at] = end[0]
            at += 1
    raw = np.ascontiguousarray(text[:, :width])
    ends = np.arange(0, width * (count + 1), width, dtype=np.int32)[: count + 1]
    valid = None if not mask.any() else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), count, [valid, pa.py_buffer(ends), pa.py_buffer(raw)])


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
    chunks = chunk_sizes(form)
    width = sum(size for _, size in chunks)
    rows = rows[cells.size[rows] == 2 + width]
    raw = windows(data, cells.at[rows], 2 + width).copy()
    same = (raw[:, 0] == form.precision) & (raw[:, 1] == scale)
    raw = raw[:, 2:]
    raw[:, 0] ^= 0x80
    negative = raw[:, 0] >= 0x80
    raw[negative] = ~raw[negative]
    parts, good = _words(raw, chunks)
    rows, parts, negative = rows[same & good], parts[same & good], negative[same & good]
    texts = _decimal_texts(parts, negative, [digits for digits, _ in chunks], scale)
    return _completed(data, cells, read, rows, texts)


def _words(raw: Any, chunks: list[tuple[int, int]]) -> tuple[Any, Any]:
    """The number in each word, and in which rows no word has too many digits."""
    parts, at = np.zeros((len(raw), len(chunks)), np.int64), 0
    for place, (_, size) in enumerate(chunks):
        for byte in range(at, at + size):
            parts[:, place] = parts[:, place] << 8 | raw[:, byte]
        at += size
    return parts, (parts < np.array([10**digits for digits, _ in chunks])).all(axis=1)


def _decimal_texts(parts: Any, negative: Any, digits: list[int], scale: int) -> Any:
    """Sign, digits without leading zeros, and `scale` decimals."""
    whole, fraction, seen = np.zeros(len(parts), np.int64), np.zeros(len(parts), np.int64), 0
    for place, size in enumerate(digits):
        if seen < sum(digits) - scale:
            whole = whole * 10**size + parts[:, place]
        else:
            fraction = fraction * 10**size + parts[:, place]
        seen += size
    signs = pa.array(["", "-"]).take(pa.array((negative & ((whole != 0) | (fraction != 0))).astype(np.int8)))
    texts = [signs, pa.array(whole).cast(pa.string())]
    if scale:
        texts += [pa.scalar("."), _fixed([(fraction, scale, b"")], np.zeros(len(parts), np.bool_))]
    return pc.binary_join_element_wise(*texts, pa.scalar(""))


def _one_by_one(data: Any, cells: Cells, read: Read) -> ReadValues:
    return _completed(data, cells, read, np.zeros(0, np.int64), pa.array([], pa.string()))


def _completed(data: Any, cells: Cells, read: Read, rows: Any, texts: Any) -> ReadValues:
    """`texts` in `rows`, and what `read` makes of the values of all others."""
    count = len(cells.at)
    left = cells.size >= 0
    left[rows] = False
    unread = np.zeros(count, np.bool_)
    places = np.flatnonzero(left)
    raw, known = data.tobytes(), dict[bytes, Any]()
    others: list[Any] = []
    for row, at, size in zip(places.tolist(), cells.at[places].tolist(), cells.size[places].tolist(), strict=True):
        value = raw[at : at + size]
        if value not in known:
            try:
                known[value] = read(value)
            except (DecodeError, EncodeError):
                known[value] = None
        others.append(known[value])
        unread[row] = known[value] is None
    found = pa.concat_arrays([texts, pa.array(others, pa.string()), pa.array([None], pa.string())])
    order = np.full(count, len(texts) + len(others))
    order[rows] = np.arange(len(texts))
    order[places] = len(texts) + np.arange(len(others))
    return ReadValues(found.take(pa.array(order)), unread)
