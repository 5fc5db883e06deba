"""Columns of numbers from texts and back, and the error for values that columns cannot hold.

`from_texts` converts a whole column without Python calls per value and is at least as strict as the plain reader of
the same type: a value that the reader refuses, or Arrow cannot hold, raises `Mismatch`, and the rows are read again one
by one.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.values import INT_RANGES, ColumnForm, Form, integer_range
from tidegate.model.errors import TidegateError
from tidegate.model.mysql import FLOATS, STRINGS, MysqlType
from tidegate.model.path_counts import Reason, SlowReason

INT64_MAX: Final = (1 << 63) - 1
REPR_RANGE: Final = (1e-4, 1e10)
"""The range in which Arrow and `repr` write the same digits, without an exponent."""
MAX_DIGITS: Final = 30
MAX_NUMBER: Final = 400
_NUMBER: Final = r"^-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,4})?$"
_DIGITS: Final = b"0123456789-"
_ZEROS: Final = b"0" * 10
"""A number of more than MAX_DIGITS that fits 64 bits begins with more zeros than these."""
_PLAIN_NUMBER: Final = _DIGITS + b"."


class Mismatch(ValueError):
    """Values that columns cannot hold; the row-by-row path handles them. `reason` is counted."""

    def __init__(self, text: str, reason: Reason = Reason.VALUE) -> None:
        super().__init__(text)
        self.reason = reason


MISMATCHES: Final = (Mismatch, TidegateError, pa.ArrowException, UnicodeError, OverflowError)
"""Errors of columns for rows to handle one by one, which then raises the exact error."""


def slow_reason(error: Exception) -> SlowReason:
    """Return the reason, of one of MISMATCHES, to handle rows one by one."""
    return SlowReason(error.reason if isinstance(error, Mismatch) else Reason.VALUE, str(error) or type(error).__name__)


def integer_kind(low: int, high: int) -> Any:
    """Return the Arrow type of integers within bounds."""
    return pa.uint64() if low == 0 and high > INT64_MAX else pa.int64()


def from_texts(column: ColumnForm, texts: Any) -> Any:
    """Return the numbers of a column; `texts` is an array of bytes that begins at its buffers' beginning."""
    try:
        return (_integers if column.form is Form.INTEGER else _doubles)(column, texts.cast(pa.string()))
    except (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError) as error:
        raise Mismatch(str(error)) from error


def typed_texts(texts: Any, code: int, *, unsigned: bool, binary: bool) -> Any:
    """Return a column of the texts that a server prints, with ENUM and SET as numbers, typed; `texts` is an array of
    bytes that begins at its buffers' beginning, and bytes that are no UTF-8 stay as they came. Raises Mismatch."""
    if code in INT_RANGES:
        return from_texts(ColumnForm(Form.INTEGER, *integer_range(code, unsigned=unsigned)), texts)
    if code in FLOATS:
        return from_texts(ColumnForm(Form.FLOAT if code == MysqlType.FLOAT else Form.DOUBLE), texts)
    if binary and code in STRINGS:
        return texts
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        return texts


def as_texts(column: Any) -> Any:
    """Return the values of a typed column as a changelog's texts, in a binary array."""
    if pa.types.is_floating(column.type):
        column = _shortest(column)
    elif pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    return column.cast(pa.binary())


def _shortest(column: Any) -> Any:
    """Doubles in the digits of `repr`: Arrow's are equal, except a whole number's point, and large and small
    numbers."""
    numbers = np.abs(column.fill_null(0.0).to_numpy(zero_copy_only=False))
    texts = column.cast(pa.string())
    texts = pc.if_else(pc.match_substring(texts, "."), texts, pc.binary_join_element_wise(texts, ".0", ""))
    odd = (numbers != 0) & ~((numbers >= REPR_RANGE[0]) & (numbers < REPR_RANGE[1]))
    if not odd.any():
        return texts
    written = [repr(value) for value in column.filter(pa.array(odd)).to_pylist()]
    return pc.replace_with_mask(texts, pa.array(odd), pa.array(written, pa.string()))


def _integers(column: ColumnForm, texts: Any) -> Any:
    if _beyond(texts, _DIGITS):
        raise Mismatch("characters that no integer has")
    if _ZEROS in _bytes(texts):
        _short(texts, MAX_DIGITS)
    array = texts.cast(integer_kind(column.low, column.high))
    if column.high < INT64_MAX:
        bounds = pc.min_max(array)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None and not column.low <= low <= high <= column.high:
            raise Mismatch("an integer beyond its type")
    return array


def _doubles(column: ColumnForm, texts: Any) -> Any:
    if _beyond(texts, _PLAIN_NUMBER) or any(pc.any(pc.starts_with(texts, point)).as_py() for point in (".", "-.")):
        matches = pc.match_substring_regex(texts, _NUMBER)
        if pc.all(matches).as_py() is False:
            raise Mismatch("not a number")
    _short(texts, MAX_NUMBER)
    array = _finite(texts.cast(pa.float64()))
    if column.form is Form.DOUBLE:
        return array
    with np.errstate(over="ignore"):  # each double becomes the nearest 32-bit number
        single = _doubles_of(array).astype(np.float32).astype(np.float64)
    return _finite(pa.Array.from_buffers(pa.float64(), len(array), [array.buffers()[0], pa.py_buffer(single)]))


def _finite(array: Any) -> Any:
    if not np.isfinite(_doubles_of(array)).all():
        raise Mismatch("a number outside the range of its type")
    return array


def _doubles_of(array: Any) -> Any:
    """The numbers of an array that begins at its buffers' beginning; 0 for null."""
    data = array.buffers()[1]
    return np.frombuffer(data, np.float64, len(array)) if len(array) else np.empty(0)


def _beyond(texts: Any, allowed: bytes) -> bytes:
    return _bytes(texts).translate(None, allowed)


def _bytes(texts: Any) -> bytes:
    _, offsets, data = texts.buffers()
    return b"" if data is None else bytes(data[: np.frombuffer(offsets, np.int32, len(texts) + 1)[-1]])


def _short(texts: Any, length: int) -> None:
    longest = pc.max(pc.binary_length(texts)).as_py()
    if longest is not None and longest > length:
        raise Mismatch(f"a number of {longest} characters")
