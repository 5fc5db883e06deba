r"""Values of one column, as the generated structs hold them, to one typed Arrow array.

    Form        on the wire                             Arrow
    INTEGER     number (open), digits (canal)           int64, or uint64 where the type goes beyond it
    FLOAT       number or text                          float64 that is exactly one 32-bit number
    DOUBLE      number or text                          float64
    TEXT        text                                    string
    BASE64      base64, decoded by msgspec              binary
    BASE64_TEXT the same                                string
    QUOTED      Go's quoted string (open)               binary
    LATIN1      code points U+0000 to U+00FF (canal)    binary

A function here works on a whole column, never on one value in Python, and is as strict as the plain decoder's reader
of the same type: what that refuses, or what Arrow cannot hold (a text that is no Unicode), raises `Misfit`, and the
rows are read again one by one.  Being stricter is allowed, being laxer is not.

Quoted strings are unquoted together, joined by line feeds (a bare one is an error in them).  Python's `unicode_escape`
reads Go's escapes of one byte; `\u` and `\U`, which stand for several, are replaced before.  Where a string ends then
follows from the escapes before it: each is shorter by one byte, `\x01` by three.

    [r"a\x01", r"b\\"]  →   a \ x 0 1 LF b \ \     ends 5, 9
                             a 1         LF b \       ends 2, 5

Source: `codec/open.py`, `codec/canal.py`, `codec/go.py`, whose rules these are.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.values import ColumnForm, Form
from tidegate.model.errors import TidegateError
from tidegate.model.roads import Reason, Why

WIDTH_MAX: Final = 1024
"""Columns of a layout that structs are made for; TiDB allows 1017 unless it is told to allow more."""

INT64_MAX: Final = (1 << 63) - 1
REPR_RANGE: Final = (1e-4, 1e10)
"""Numbers that Arrow and `repr` write with the same digits and without an exponent."""
MAX_DIGITS: Final = 30
MAX_NUMBER: Final = 400
_NUMBER: Final = r"^-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,4})?$"
_DIGITS: Final = b"0123456789-"
_ZEROS: Final = b"0" * 10
"""A text of more than MAX_DIGITS that fits 64 bits has more zeros than these in front."""
_PLAIN_NUMBER: Final = _DIGITS + b"."
_POINT: Final = re.compile(rb"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))")


class Misfit(ValueError):
    """Values that this path does not read; the plain decoder says what they are. `reason` is what counts tell."""

    def __init__(self, text: str, reason: Reason = Reason.VALUE) -> None:
        super().__init__(text)
        self.reason = reason


MISFITS: Final = (Misfit, TidegateError, pa.ArrowException, UnicodeError, OverflowError)
"""What work on columns raises for rows that have to go one by one, which then says what is wrong with them."""


def why_singly(error: Exception) -> Why:
    """Return why rows go one by one: what one of MISFITS says."""
    return Why(error.reason if isinstance(error, Misfit) else Reason.VALUE, str(error) or type(error).__name__)


def arrow_of(column: ColumnForm) -> Any:
    """Return the type of the column's arrays."""
    if column.form is Form.INTEGER:
        return pa.uint64() if column.low == 0 and column.high > INT64_MAX else pa.int64()
    return _ARROW[column.form]


WIRE: Final[Mapping[Form, Any]] = {
    Form.INTEGER: int,
    Form.FLOAT: float,
    Form.DOUBLE: float,
    Form.TEXT: str,
    Form.QUOTED: str,
    Form.BASE64: bytes,
    Form.BASE64_TEXT: bytes,
}
"""What msgspec makes of a value of Open Protocol; as strict as the plain decoder, base64 included."""

Values: TypeAlias = Sequence[Any]
"""Python values; where texts are meant, also an Arrow array of their bytes that begins at its buffers' beginning."""

_ARROW: Final[Mapping[Form, Any]] = {
    Form.FLOAT: pa.float64(),
    Form.DOUBLE: pa.float64(),
    Form.TEXT: pa.string(),
    Form.BASE64: pa.binary(),
    Form.BASE64_TEXT: pa.string(),
    Form.QUOTED: pa.binary(),
    Form.LATIN1: pa.binary(),
}


def from_json(column: ColumnForm, values: Values) -> Any:
    """Return the array of Open Protocol values: numbers, texts, and bytes where msgspec undid base64."""
    try:
        return _JSON[column.form](column, values)
    except (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError) as error:
        raise Misfit(str(error)) from error


def from_texts(column: ColumnForm, values: Values) -> Any:
    """Return the array of canal-json values, which are all texts."""
    try:
        return _TEXTS[column.form](column, values)
    except (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError) as error:
        raise Misfit(str(error)) from error


def as_texts(column: Any) -> Any:
    """Return the values of a typed column as the texts that a changelog holds, in a binary array."""
    if pa.types.is_floating(column.type):
        column = _shortest(column)
    elif pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    return column.cast(pa.binary())


def _shortest(column: Any) -> Any:
    """Doubles as `repr` writes them: Arrow's digits are the same, but for a whole number's point and large and small
    numbers."""
    numbers = np.abs(column.fill_null(0.0).to_numpy(zero_copy_only=False))
    texts = column.cast(pa.string())
    texts = pc.if_else(pc.match_substring(texts, "."), texts, pc.binary_join_element_wise(texts, ".0", ""))
    odd = (numbers != 0) & ~((numbers >= REPR_RANGE[0]) & (numbers < REPR_RANGE[1]))
    if not odd.any():
        return texts
    written = [repr(value) for value in column.filter(pa.array(odd)).to_pylist()]
    return pc.replace_with_mask(texts, pa.array(odd), pa.array(written, pa.string()))


def _array(values: Values, kind: Any) -> Any:
    """An array of Python values, or of texts that stand in an array of bytes already."""
    if isinstance(values, pa.Array):
        texts = values.cast(pa.string())
        return texts if kind == pa.string() else texts.cast(kind)
    return pa.array(values, kind)


def _arrow(column: ColumnForm, values: Values) -> Any:
    return _array(values, arrow_of(column))


def _integers(column: ColumnForm, values: Values) -> Any:
    return _bounded(column, _array(values, arrow_of(column)))


def _integer_texts(column: ColumnForm, values: Values) -> Any:
    texts = _array(values, pa.string())
    if _beyond(texts, _DIGITS):
        raise Misfit("characters that no integer has")
    if _ZEROS in _bytes(texts):
        _short(texts, MAX_DIGITS)
    return _bounded(column, texts.cast(arrow_of(column)))


def _bounded(column: ColumnForm, array: Any) -> Any:
    """`array` when no value lies outside the bounds of the column's type."""
    if column.high < INT64_MAX:
        found = pc.min_max(array)
        low, high = found["min"].as_py(), found["max"].as_py()
        if low is not None and not column.low <= low <= high <= column.high:
            raise Misfit("an integer beyond its type")
    return array


def _double_texts(_column: ColumnForm, values: Values) -> Any:
    texts = _array(values, pa.string())
    if _beyond(texts, _PLAIN_NUMBER) or any(pc.any(pc.starts_with(texts, point)).as_py() for point in (".", "-.")):
        matches = pc.match_substring_regex(texts, _NUMBER)
        if pc.all(matches).as_py() is False:
            raise Misfit("not a number")
    _short(texts, MAX_NUMBER)
    return _finite(texts.cast(pa.float64()))


def _float_texts(column: ColumnForm, values: Values) -> Any:
    return _single(_double_texts(column, values))


def _doubles(_column: ColumnForm, values: Values) -> Any:
    return _finite(pa.array(values, pa.float64()))


def _floats(column: ColumnForm, values: Values) -> Any:
    return _single(_doubles(column, values))


def _finite(array: Any) -> Any:
    if not np.isfinite(_doubles_of(array)).all():
        raise Misfit("a number outside the range of its type")
    return array


def _single(array: Any) -> Any:
    """Each double as the nearest 32-bit number."""
    with np.errstate(over="ignore"):
        single = _doubles_of(array).astype(np.float32).astype(np.float64)
    buffers = [array.buffers()[0], pa.py_buffer(single)]
    return _finite(pa.Array.from_buffers(pa.float64(), len(array), buffers))


def _doubles_of(array: Any) -> Any:
    """The numbers of an array that begins at its buffers' beginning; 0 for null."""
    data = array.buffers()[1]
    return np.frombuffer(data, np.float64, len(array)) if len(array) else np.empty(0)


def _base64_text(_column: ColumnForm, values: Values) -> Any:
    return pa.array(values, pa.binary()).cast(pa.string())


def _latin1(_column: ColumnForm, values: Values) -> Any:
    texts = ["" if text is None else text for text in values]
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    bounds = np.append(0, ends).astype(np.int32)
    joined = pa.py_buffer("".join(texts).encode("latin-1"))
    return _null_where(values, pa.Array.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(bounds), joined]))


def _null_where(values: Values, array: Any) -> Any:
    """`array` with null where `values` has None."""
    if None in values:
        return pc.if_else(pa.array([value is not None for value in values]), array, pa.scalar(None, array.type))
    return array


def _quoted(_column: ColumnForm, values: Values) -> Any:
    """The bytes that Go's quoted strings mean; see the module's drawing."""
    quoted = "\n".join(["" if text is None else text for text in values]).encode()
    if values and quoted.count(b"\n") != len(values) - 1:
        raise Misfit("a bare line feed in a quoted string")
    if b"\\" not in quoted and b'"' not in quoted:
        return pa.array([None if text is None else text.encode() for text in values], pa.binary())
    escapes, kinds = _escapes(quoted)
    points = escapes[np.isin(kinds, _POINTS)]
    if len(points):
        quoted = _with_utf8(quoted, points.tolist())
        escapes, kinds = _escapes(quoted)
    if not _SHORT[kinds].all():
        raise Misfit("an escape that Go does not write")
    if quoted.count(b'"') != np.count_nonzero(kinds == _QUOTE):
        raise Misfit("a bare quote in a quoted string")
    plain = pa.py_buffer(quoted.decode("unicode_escape").encode("latin-1"))
    ends = np.append(np.flatnonzero(np.frombuffer(quoted, np.uint8) == _LINE_FEED), len(quoted))
    shorter = np.append(0, np.cumsum(np.where(kinds == ord("x"), 3, 1)))
    ends -= shorter[np.searchsorted(escapes, ends)]
    bounds = np.zeros(2 * len(values), np.int32)
    bounds[1::2], bounds[2::2] = ends, ends[:-1] + 1
    parts = pa.Array.from_buffers(pa.binary(), 2 * len(values) - 1, [None, pa.py_buffer(bounds), plain])
    return _null_where(values, parts.take(pa.array(np.arange(0, 2 * len(values), 2))))


def _escapes(quoted: bytes) -> tuple[Any, Any]:
    """Where escapes begin, and the character that follows each backslash."""
    text = np.frombuffer(quoted + b"\n", np.uint8)
    slashes = np.flatnonzero(text == _BACKSLASH)
    joins = np.append(False, slashes[1:] == slashes[:-1] + 1)
    if joins.any():
        numbers = np.arange(len(slashes))
        slashes = slashes[(numbers - np.maximum.accumulate(np.where(joins, 0, numbers))) % 2 == 0]
    return slashes, text[slashes + 1]


def _with_utf8(quoted: bytes, points: list[int]) -> bytes:
    r"""`quoted` with the bytes of each \u and \U; what one byte stands for becomes an \x."""
    plain, at = bytearray(), 0
    for point in points:
        found = _POINT.match(quoted, point)
        if found is None:
            raise Misfit("an escape without its hexadecimal digits")
        code = int(found[1] or found[2], 16)
        plain += quoted[at:point]
        plain += b"\\x%02x" % code if code < 0x80 else chr(code).encode()
        at = found.end()
    return bytes(plain + quoted[at:])


_BACKSLASH, _QUOTE, _LINE_FEED = b'\\"\n'
_POINTS: Final = tuple(b"uU")
_SHORT: Final = np.isin(np.arange(256), tuple(b'abfnrtvx"\\'))
"""Which characters may follow a backslash."""


def _beyond(texts: Any, allowed: bytes) -> bytes:
    """What the texts hold beside `allowed`."""
    return _bytes(texts).translate(None, allowed)


def _bytes(texts: Any) -> bytes:
    """All texts, one after the other."""
    _, offsets, data = texts.buffers()
    return b"" if data is None else bytes(data[: np.frombuffer(offsets, np.int32, len(texts) + 1)[-1]])


def _short(texts: Any, length: int) -> None:
    longest = pc.max(pc.binary_length(texts)).as_py()
    if longest is not None and longest > length:
        raise Misfit(f"a number of {longest} characters")


Convert: TypeAlias = Callable[[ColumnForm, Values], Any]

_JSON: Final[Mapping[Form, Convert]] = {
    Form.INTEGER: _integers,
    Form.FLOAT: _floats,
    Form.DOUBLE: _doubles,
    Form.TEXT: _arrow,
    Form.BASE64: _arrow,
    Form.BASE64_TEXT: _base64_text,
    Form.QUOTED: _quoted,
}
_TEXTS: Final[Mapping[Form, Convert]] = {
    Form.INTEGER: _integer_texts,
    Form.FLOAT: _float_texts,
    Form.DOUBLE: _double_texts,
    Form.TEXT: _arrow,
    Form.LATIN1: _latin1,
}
