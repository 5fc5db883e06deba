"""Columnar reader of rows of version 2: many rows at once to one Arrow array per column.

    places of rows --locate--> offset and size of each column's bytes --column_reader--> Arrow array

    80 00 0200 0000 | 01 02 | 0100 0400 | 01 | 61 62 63          80 00 0200 0000 | 01 02 | 0100 0200 | 07 | 78
                      ids     ends        values

    column 2    at 13, size 3                                    at 27, size 1

    MySQL                     Arrow            how
    TINYINT .. BIGINT, YEAR   int64            eight bytes from an offset on, shifted to their size
    UNSIGNED, BIT, ENUM, SET  uint64           the same
    FLOAT, DOUBLE             float64          the sortable form turned back; what is not finite is 0
    binary strings            binary           copied together by offset
    texts                     string           the same; binary if a byte of them is no UTF-8
    DATE, DATETIME, TIMESTAMP string           parts of packed numbers to digits; TIMESTAMP in UTC alone
    DECIMAL                   string           words to digits, if all values have the form of the first
    JSON                      string           json_columns.py, all at once
    TIME, VECTOR              string           `read`, one by one, equal ones once

    if typed: DATE date32, DATETIME and TIMESTAMP timestamp[us], DECIMAL decimal128, where all values of the column are
    dates that the calendar has, or numbers of its precision and scale; the others as above

Loops that numba compiles go over the rows: no Python call is made for a value, except in the last line of the table.  A
reader returns the array and the rows that it cannot read: bytes that are no value of the type, or a form that it does
not know.  Those are null in the array and are to be read one by one (rows.py), which also reports the error.

Source: rows.py and mysql/column_value.py, whose checks, values and texts these are.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kv.json_columns import json_texts
from tidegate.kv.rows import CHECKSUM, HEAD, LARGE, VERSION_BYTE
from tidegate.kv.slices import PADDING, Slices, spans, validity, words
from tidegate.model.compiled import compiled, inlined, shared, windows
from tidegate.model.errors import DecodeError, EncodeError
from tidegate.model.mysql import DATES, FLOATS, MOMENTS, NUMBERS, STRINGS, UNSIGNED_TYPES, MysqlType
from tidegate.model.table import ColumnType
from tidegate.mysql.encoding import DecimalForm, chunk_sizes

NULL: Final = -1
MISSING: Final = -2
"""Sizes of values without bytes: NULL, and a column that the row does not have."""
_HEAD_BYTES: Final = HEAD.size
_IDS_MAX: Final = 2 * 0xFFFF
_EXTRA, _VERSION, _CRC_BYTES = 8, 7, 4
_UNWANTED, _OTHER = -1, -2
"""Lines of columns that no row may have, and of those that nobody asks for."""


class Cells(NamedTuple):
    """Cells of one column: per row the offset in the bytes of all rows, and the size, NULL or MISSING."""

    offsets: Any
    size: Any


class RowCells(NamedTuple):
    """`data` are the bytes of all rows and some padding, `cells` the offsets by column id, `fits` the rows for which
    they are right."""

    data: Any
    cells: Mapping[int, Cells]
    fits: Any


def locate(rows: Slices, columns: Sequence[int], excluded: Collection[int] = ()) -> RowCells:
    """Return the cells of `columns`; a row that holds one of `excluded` does not fit."""
    count = len(rows)
    ids = np.array([*columns, *excluded], np.int64)
    order = np.argsort(ids)
    lines = np.where(order < len(columns), order, _UNWANTED)
    offsets, size = np.zeros((len(columns), count), np.int32), np.full((len(columns), count), MISSING, np.int32)
    fits, line_of = np.zeros(count, np.bool_), np.empty(_IDS_MAX, np.int64)
    _locate(rows.data, windows(rows.data), rows.offsets, rows.size, ids[order], lines, line_of, offsets, size, fits)
    return RowCells(rows.data, {column: Cells(offsets[line], size[line]) for line, column in enumerate(columns)}, fits)


@inlined
def _number(data: Any, offset: int, width: int) -> Any:
    number: Any = np.int64(data[offset])
    if width > 1:
        number |= np.int64(data[offset + 1]) << 8
    if width > 2:
        number |= np.int64(data[offset + 2]) << 16 | np.int64(data[offset + 3]) << 24
    return number


@inlined
def _head_bytes(data: Any, begin: int, end: int) -> int:
    """Return the size of a row's head up to its last id; 0 if `decode_raw_row` does not accept it."""
    if end - begin < _HEAD_BYTES:
        return 0
    flags = _number(data, begin + 1, 1)
    if data[begin] != VERSION_BYTE or flags & ~(LARGE | CHECKSUM):
        return 0
    id_bytes = 4 if flags & LARGE else 1
    size: int = _HEAD_BYTES + (_number(data, begin + 2, 2) + _number(data, begin + 4, 2)) * id_bytes
    return size if size <= end - begin else 0


@compiled
def _read_head(data: Any, begin: int, column_ids: Any, lines: Any, line_of: Any) -> bool:
    """Store the line of each id of a head, _OTHER for one that nobody asked for; return whether `decode_raw_row`
    accepts them, and none is unwanted."""
    id_bytes = 4 if data[begin + 1] & LARGE else 1
    count, nulls, ids = _number(data, begin + 2, 2), _number(data, begin + 4, 2), begin + _HEAD_BYTES
    entry, before, beside = 0, -1, 0
    for index in range(count + nulls):
        column = _number(data, ids + index * id_bytes, id_bytes)
        if index == count:
            entry, before = 0, -1
        while index >= count and beside < count and _number(data, ids + beside * id_bytes, id_bytes) < column:
            beside += 1
        is_both = index >= count and beside < count and _number(data, ids + beside * id_bytes, id_bytes) == column
        if column <= before or is_both:
            return False
        while entry < len(column_ids) and column_ids[entry] < column:
            entry += 1
        line_of[index] = lines[entry] if entry < len(column_ids) and column_ids[entry] == column else _OTHER
        if line_of[index] == _UNWANTED:
            return False
        before = column
    return True


@inlined
def _locate_cells(
    data: Any, begin: int, end: int, head_bytes: int, end_bytes: int, line_of: Any, offsets: Any, size: Any, row: int
) -> bool:
    """Store the offsets of a row whose columns have the lines `line_of`; return whether `decode_raw_row` accepts it.
    Callers pass a constant size of ends, so that numba compiles a loop for each."""
    flags, count, nulls = data[begin + 1], _number(data, begin + 2, 2), _number(data, begin + 4, 2)
    ends = begin + head_bytes
    first = ends + count * end_bytes
    if first > end:
        return False
    done = 0
    for index in range(count):
        stop = _number(data, ends + index * end_bytes, end_bytes)
        if stop < done:
            return False
        if line_of[index] >= 0:
            offsets[line_of[index], row], size[line_of[index], row] = first + done, stop - done
        done = stop
    for index in range(count, count + nulls):
        if line_of[index] >= 0:
            size[line_of[index], row] = NULL
    tail_bytes: int = end - first - done
    if flags & CHECKSUM == 0 or tail_bytes < 1:
        return tail_bytes == 0 and flags & CHECKSUM == 0
    header: int = _number(data, first + done, 1)
    return tail_bytes == 1 + _CRC_BYTES * (2 if header & _EXTRA else 1) and header & ~(_EXTRA | _VERSION) == 0


@compiled
def _locate(
    data: Any, words: Any, begins: Any, sizes: Any, column_ids: Any, lines: Any, line_of: Any, offsets: Any, size: Any,
    fits: Any,
) -> None:  # fmt: skip
    """Store the offsets of all rows. The ids of a row are read where they are not those of the row before.

    begins, sizes       where the rows are in `data`
    column_ids, lines   ids of columns, ascending, and the line of each, or that no row may have it
    line_of               room for the lines of a row's ids
    offsets, size       (lines, rows): 0 and MISSING at first, and again in a row that does not fit
    fits                which rows do"""
    head = head_bytes = 0
    for row in range(len(begins)):
        begin, end = begins[row], begins[row] + sizes[row]
        if head_bytes == 0 or end - begin < head_bytes or shared(data, words, begin, head, head_bytes) < head_bytes:
            head, head_bytes = begin, _head_bytes(data, begin, end)
            if head_bytes > 0 and not _read_head(data, begin, column_ids, lines, line_of):
                head_bytes = 0
        if head_bytes == 0:
            continue
        if data[begin + 1] & LARGE:
            fits[row] = _locate_cells(data, begin, end, head_bytes, 4, line_of, offsets, size, row)
        else:
            fits[row] = _locate_cells(data, begin, end, head_bytes, 2, line_of, offsets, size, row)
        if not fits[row]:
            for line in range(len(offsets)):
                offsets[line, row], size[line, row] = 0, MISSING


Read: TypeAlias = Callable[[bytes], Any]


class ReadValues(NamedTuple):
    """The values of a column as an Arrow array, and the rows whose bytes could not be read (null in the array)."""

    array: Any
    unread: Any


ReadColumn: TypeAlias = Callable[[Any, Cells], ReadValues]
"""The bytes of all rows, and the cells of the column in them."""

_SIGN: Final = np.uint64(1 << 63)
_DATE_WIDTH, _TIME_WIDTH = 10, 19
_MAX_FSP: Final = 6
_DIGITS_MAX: Final = 18
"""Number of digits that always fit a signed 64-bit number."""
_ARROW_DIGITS_MAX: Final = 38
_DAY_MICROS: Final = 86_400_000_000
_DAYS_TO_1970: Final = 719_469
"""From the day before March 1st of the year 0 on."""


def arrow_type(kind: ColumnType) -> Any:
    """Return the Arrow type of a column; its arrays may be binary in place of string."""
    if kind.code in NUMBERS:
        return pa.uint64() if _is_unsigned(kind) else pa.int64()
    if kind.code in FLOATS:
        return pa.float64()
    return pa.binary() if kind.code in STRINGS and kind.charset == "binary" else pa.string()


def exact_type(kind: ColumnType) -> Any:
    """Return the Arrow type of a column with DECIMAL and times as what they are, where there is one."""
    if kind.code in MOMENTS:
        return pa.date32() if kind.code in DATES else pa.timestamp("us")
    if kind.code is MysqlType.DECIMAL and 0 <= max(kind.decimal, 0) <= kind.flen <= _ARROW_DIGITS_MAX:
        return pa.decimal128(kind.flen, max(kind.decimal, 0))
    return arrow_type(kind)


def column_reader(kind: ColumnType, read: Read, *, utc: bool = True, typed: bool = False) -> ReadColumn:
    """Return the reader of a column of that type; `read` returns a single value as in the array, or raises
    DecodeError. If `typed`, arrays are of `exact_type` where all values are of it."""
    if kind.code in NUMBERS:
        return partial(_whole, kind=np.uint64 if _is_unsigned(kind) else np.int64)
    if kind.code in FLOATS:
        return _floats
    if kind.code in STRINGS:
        return partial(_binary, texts=kind.charset != "binary")
    if kind.code in MOMENTS and (utc or kind.code is not MysqlType.TIMESTAMP):
        fsp = 0 if kind.code in DATES else min(max(kind.decimal, 0), _MAX_FSP)
        texts = partial(_times, fsp=fsp, kind=kind)
        return partial(_moments, fsp=fsp, exact=exact_type(kind), texts=texts) if typed else texts
    if kind.code is MysqlType.DECIMAL:
        texts = partial(_decimals, kind=kind, read=read)
        is_exact = typed and pa.types.is_decimal(exact_type(kind))
        return partial(_exact_decimals, kind=kind, texts=texts) if is_exact else texts
    return _documents if kind.code is MysqlType.JSON else partial(_one_by_one, read=read)


def _is_unsigned(kind: ColumnType) -> bool:
    return kind.code in UNSIGNED_TYPES or (kind.unsigned and kind.code is not MysqlType.YEAR)


@compiled
def _integers(words: Any, offsets: Any, size: Any, is_signed: bool, numbers: Any, absent: Any, unread: Any) -> None:
    """Read numbers of one, two, four or eight bytes; mark absent and invalid ones."""
    for row in range(len(offsets)):
        width = size[row]
        if width == 1 or width == 2 or width == 4 or width == 8:
            shift = 64 - 8 * width
            left = words[offsets[row]] << np.uint64(shift)
            numbers[row] = np.uint64(np.int64(left) >> np.int64(shift)) if is_signed else left >> np.uint64(shift)
        else:
            numbers[row], absent[row], unread[row] = 0, True, width >= 0


def _numbers(data: Any, cells: Cells, kind: type[np.integer]) -> tuple[Any, Any, Any]:
    """Return numbers, and which rows have none or an invalid one."""
    count = len(cells.offsets)
    numbers, absent, unread = np.empty(count, np.uint64), np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    _integers(windows(data), cells.offsets, cells.size, kind is np.int64, numbers, absent, unread)
    return numbers.view(kind), absent, unread


def _whole(data: Any, cells: Cells, kind: type[np.integer]) -> ReadValues:
    numbers, absent, unread = _numbers(data, cells, kind)
    return ReadValues(pa.array(numbers, mask=absent), unread)


def _floats(data: Any, cells: Cells) -> ReadValues:
    bits = words(data, cells.offsets).byteswap()
    values = np.where(bits & _SIGN, bits ^ _SIGN, ~bits).view(np.float64)
    unread = (cells.size >= 0) & (cells.size != PADDING)
    return ReadValues(pa.array(np.where(np.isfinite(values), values, 0.0), mask=unread | (cells.size < 0)), unread)


def _binary(data: Any, cells: Cells, *, texts: bool = False) -> ReadValues:
    """Read bytes; `texts` as strings if all of them are UTF-8."""
    absent = cells.size < 0
    array = spans(data, cells.offsets, np.where(absent, 0, cells.size), absent)
    if texts:
        with suppress(pa.ArrowInvalid):
            array = array.cast(pa.string())
    return ReadValues(array, np.zeros(len(absent), np.bool_))


def _documents(data: Any, cells: Cells) -> ReadValues:
    """Read JSON documents; equal ones are read once, since an UPDATE mostly keeps them."""
    encoded = _binary(data, cells).array.dictionary_encode()
    texts = json_texts(encoded.dictionary).take(encoded.indices)
    return ReadValues(texts, (cells.size >= 0) & texts.is_null().to_numpy(zero_copy_only=False))


def _times(data: Any, cells: Cells, fsp: int, kind: ColumnType) -> ReadValues:
    width = _DATE_WIDTH if kind.code in DATES else _TIME_WIDTH + (1 + fsp) * (fsp > 0)
    packed, absent, unread = _numbers(data, cells, np.int64)
    text = np.full((len(packed), width), ord("0"), np.uint8)
    _time_texts(packed, absent, fsp, text, unread)
    ends = np.arange(0, width * (len(packed) + 1), width, dtype=np.int32)[: len(packed) + 1]
    return ReadValues(_strings(text, ends, absent | unread), unread)


def _strings(text: Any, ends: Any, absent: Any) -> Any:
    return pa.Array.from_buffers(pa.string(), len(absent), [validity(absent), pa.py_buffer(ends), pa.py_buffer(text)])


@inlined
def _put(line: Any, offset: int, digits: int, number: Any) -> None:
    """Write a number with so many digits."""
    for index in range(offset + digits - 1, offset - 1, -1):
        line[index] = 48 + number % 10
        number //= 10


@inlined
def _parts(packed: int) -> tuple[int, int, int, int, int, int, int]:
    """Return the parts of a packed time: year * 13 + month, day, hour, minute, second, microsecond, from the high bits
    on."""
    months, clock = packed >> 46 & 0x3FFFF, packed >> 24 & 0x1FFFF
    return months // 13, months % 13, packed >> 41 & 31, clock >> 12, clock >> 6 & 63, clock & 63, packed & 0xFFFFFF


@compiled
def _time_texts(every: Any, absent: Any, fsp: int, text: Any, unread: Any) -> None:
    """Write packed times."""
    for row in range(len(every)):
        if absent[row]:
            continue
        year, month, day, hour, minute, second, microsecond = _parts(every[row])
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


def _moments(data: Any, cells: Cells, fsp: int, exact: Any, texts: ReadColumn) -> ReadValues:
    """Times as what they are; as texts where the calendar does not have one of them."""
    packed, absent, unread = _numbers(data, cells, np.int64)
    micros = np.zeros(len(packed), np.int64)
    if unread.any() or not _read_moments(packed, absent, fsp, micros):
        return texts(data, cells)
    values = (micros // _DAY_MICROS).astype(np.int32) if pa.types.is_date(exact) else micros
    return ReadValues(pa.array(values, exact, mask=absent if absent.any() else None), unread)


@compiled
def _read_moments(every: Any, absent: Any, fsp: int, micros: Any) -> bool:
    """Store the microseconds since 1970 of packed times, cut to their decimals; return whether the calendar has all."""
    unit = 10 ** (_MAX_FSP - fsp)
    good = True
    for row in range(len(every)):
        if absent[row]:
            continue
        year, month, day, hour, minute, second, microsecond = _parts(every[row])
        month_days = 30 + ((month + (month >> 3)) & 1)
        if month == 2:
            month_days = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
        is_clock = hour <= 23 and minute <= 59 and second <= 59 and microsecond <= 999_999
        if not (is_clock and 1 <= year <= 9999 and month >= 1 and 1 <= day <= month_days):
            good = False
            break
        # Days of years that begin in March, so that a leap day is the last one of its year.
        since = year - (month < 3)
        days = 365 * since + since // 4 - since // 100 + since // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day
        seconds = (days - _DAYS_TO_1970) * 86_400 + hour * 3600 + minute * 60 + second
        micros[row] = seconds * 1_000_000 + microsecond // unit * unit
    return good


def _decimals(data: Any, cells: Cells, kind: ColumnType, read: Read) -> ReadValues:
    """DECIMALs of the column's own scale; others one by one."""
    form = _form(data, cells, kind)
    if form is None:
        return _one_by_one(data, cells, read)
    count = len(cells.offsets)
    text, ends = np.empty(count * (form.precision + 3), np.uint8), np.zeros(count + 1, np.int32)
    done = np.zeros(count, np.bool_)
    _decimal_texts(data, cells.offsets, cells.size, *form, _chunks(form), text, ends, done)
    return _completed(data, cells, read, _strings(text[: ends[-1]], ends, ~done), done)


def _exact_decimals(data: Any, cells: Cells, kind: ColumnType, texts: ReadColumn) -> ReadValues:
    """DECIMALs as what they are, if all have the form of the first; others as texts."""
    form, absent = _form(data, cells, kind), cells.size < 0
    numbers = np.zeros((len(absent), 2), np.uint64)
    if form is None or form.precision > kind.flen:
        return texts(data, cells)
    if not _read_decimals(data, cells.offsets, cells.size, *form, _chunks(form), numbers):
        return texts(data, cells)
    array = pa.Array.from_buffers(exact_type(kind), len(absent), [validity(absent), pa.py_buffer(numbers)])
    return ReadValues(array, np.zeros(len(absent), np.bool_))


def _form(data: Any, cells: Cells, kind: ColumnType) -> DecimalForm | None:
    """The form of the first value, if it has the column's scale, and both of its parts fit 64 bits."""
    rows = np.flatnonzero(cells.size > 2)
    if not len(rows):
        return None
    first = cells.offsets[rows[0]]
    form = DecimalForm(int(data[first]), int(data[first + 1]))
    whole, scale = form.precision - form.scale, form.scale
    fits = form.precision > 0 and 0 <= whole <= _DIGITS_MAX and scale <= _DIGITS_MAX and scale == kind.decimal
    return form if fits else None


def _chunks(form: DecimalForm) -> Any:
    """The digits and the bytes of each word, and the least number with more digits."""
    return np.array([(digits, size, 10**digits) for digits, size in chunk_sizes(form)], np.int64)


@inlined
def _decimal(data: Any, begin: int, precision: int, scale: int, chunks: Any) -> tuple[Any, Any, bool, bool]:
    """Return the parts of a number before and behind the point, whether it is negative, and whether all its words have
    as many digits as they may."""
    flip = 0 if data[begin] & 0x80 else 0xFF
    offset, digits_left, whole, fraction, good = begin, precision, np.int64(0), np.int64(0), True
    for chunk in range(len(chunks)):
        digits, end, part = chunks[chunk, 0], chunks[chunk, 2], np.int64(0)
        for _ in range(chunks[chunk, 1]):
            byte = np.int64(data[offset]) ^ flip
            part = part << 8 | (byte ^ 0x80 if offset == begin else byte)
            offset += 1
        good = good and part < end
        if digits_left > scale:
            whole = whole * end + part
        else:
            fraction = fraction * end + part
        digits_left -= digits
    return whole, fraction, flip != 0, good


@compiled
def _decimal_texts(
    data: Any, offsets: Any, size: Any, precision: int, scale: int, chunks: Any, text: Any, ends: Any, done: Any
) -> None:
    """Write sign, digits without leading zeros, and `scale` decimals; mark the rows of that precision and scale."""
    width = chunks[:, 1].sum()
    to = 0
    for row in range(len(offsets)):
        begin = offsets[row]
        if size[row] == 2 + width and data[begin] == precision and data[begin + 1] == scale:
            whole, fraction, is_negative, good = _decimal(data, begin + 2, precision, scale, chunks)
            if good:
                if is_negative and (whole or fraction):
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


@compiled
def _read_decimals(data: Any, offsets: Any, size: Any, precision: int, scale: int, chunks: Any, numbers: Any) -> bool:
    """Store the numbers without their point, in 128 bits each, the lower half first; return whether all have that
    precision and scale."""
    width, ten = chunks[:, 1].sum(), np.uint64(10**scale)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for row in range(len(offsets)):
        if size[row] < 0:
            continue
        begin = offsets[row]
        if size[row] != 2 + width or data[begin] != precision or data[begin + 1] != scale:
            return False
        whole, fraction, is_negative, good = _decimal(data, begin + 2, precision, scale, chunks)
        if not good:
            return False
        left, right = np.uint64(whole) >> half, np.uint64(whole) & low
        lower = right * (ten & low)
        middle = left * (ten & low) + (lower >> half)
        cross = right * (ten >> half) + (middle & low)
        upper = left * (ten >> half) + (middle >> half) + (cross >> half)
        lower = (cross << half | lower & low) + np.uint64(fraction)
        upper += np.uint64(lower < np.uint64(fraction))
        if is_negative:
            lower, upper = ~lower + np.uint64(1), ~upper + np.uint64(lower == 0)
        numbers[row, 0], numbers[row, 1] = lower, upper
    return True


def _one_by_one(data: Any, cells: Cells, read: Read) -> ReadValues:
    count = len(cells.offsets)
    return _completed(data, cells, read, pa.nulls(count, pa.string()), np.zeros(count, np.bool_))


def _completed(data: Any, cells: Cells, read: Read, texts: Any, done: Any) -> ReadValues:
    """Return `texts`, with the values that are not `done` read one by one; equal ones are read once."""
    left = (cells.size >= 0) & ~done
    unread = np.zeros(len(left), np.bool_)
    rows = np.flatnonzero(left)
    if not len(rows):
        return ReadValues(texts, unread)
    texts_by_value = dict[bytes, Any]()
    others: list[Any] = []
    for row, offset, size in zip(rows.tolist(), cells.offsets[rows].tolist(), cells.size[rows].tolist(), strict=True):
        value = data[offset : offset + size].tobytes()
        if value not in texts_by_value:
            try:
                texts_by_value[value] = read(value)
            except (DecodeError, EncodeError):
                texts_by_value[value] = None
        others.append(texts_by_value[value])
        unread[row] = texts_by_value[value] is None
    return ReadValues(pc.replace_with_mask(texts, pa.array(left), pa.array(others, pa.string())), unread)
