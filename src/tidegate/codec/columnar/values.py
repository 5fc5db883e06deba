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

Quoted strings are unquoted together, one line each (a bare line feed is an error in them).  With `\\` written as
`\x5c` every backslash begins an escape; `\u` and `\U`, which stand for several bytes, are replaced.  What is left
is done by looking up and leaving out:

    [r"a\x01", r"b\\"]  →   a \ x 0 1 LF b \ x 5 c LF
                             a 1 - - -  - b \ - - -  -       values at the backslashes, the rest of each escape left out

Source: `codec/open/layout.py`, `codec/canal/types.py`, `codec/goquote.py`, whose rules these are.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Column", "Form", "Misfit", "from_json", "from_texts"]

INT64_MAX: Final = (1 << 63) - 1
MAX_DIGITS: Final = 30
MAX_NUMBER: Final = 400
_NUMBER: Final = r"^-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,4})?$"
_DIGITS: Final = b"0123456789-"
_ZEROS: Final = b"0" * 10
"""A text of more than MAX_DIGITS that fits 64 bits has more zeros than these in front."""
_PLAIN_NUMBER: Final = _DIGITS + b"."
_POINT: Final = re.compile(rb"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))")


class Misfit(ValueError):
    """Values that this path does not read; the plain decoder says what they are."""


class Form(Enum):
    """How the values of a column stand in the message."""

    INTEGER = auto()
    FLOAT = auto()
    DOUBLE = auto()
    TEXT = auto()
    BASE64 = auto()
    BASE64_TEXT = auto()
    QUOTED = auto()
    LATIN1 = auto()


class Column(NamedTuple):
    """A form, and the bounds of an integer."""

    form: Form
    low: int = 0
    high: int = 0

    @property
    def arrow(self) -> Any:
        """The type of the column's arrays."""
        if self.form is Form.INTEGER:
            return pa.uint64() if self.low == 0 and self.high > INT64_MAX else pa.int64()
        return _ARROW[self.form]


Values: TypeAlias = Sequence[Any]

_ARROW: Final[Mapping[Form, Any]] = {
    Form.FLOAT: pa.float64(),
    Form.DOUBLE: pa.float64(),
    Form.TEXT: pa.string(),
    Form.BASE64: pa.binary(),
    Form.BASE64_TEXT: pa.string(),
    Form.QUOTED: pa.binary(),
    Form.LATIN1: pa.binary(),
}


def from_json(column: Column, values: Values) -> Any:
    """The array of Open Protocol values: numbers, texts, and bytes where msgspec undid base64."""
    try:
        return _JSON[column.form](column, values)
    except (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError) as error:
        raise Misfit(str(error)) from error


def from_texts(column: Column, values: Values) -> Any:
    """The array of canal-json values, which are all texts."""
    try:
        return _TEXTS[column.form](column, values)
    except (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError) as error:
        raise Misfit(str(error)) from error


def _arrow(column: Column, values: Values) -> Any:
    return pa.array(values, column.arrow)


def _integers(column: Column, values: Values) -> Any:
    return _bounded(column, pa.array(values, column.arrow))


def _integer_texts(column: Column, values: Values) -> Any:
    texts = pa.array(values, pa.string())
    if _beyond(texts, _DIGITS):
        raise Misfit("characters that no integer has")
    if _ZEROS in _bytes(texts):
        _short(texts, MAX_DIGITS)
    return _bounded(column, texts.cast(column.arrow))


def _bounded(column: Column, array: Any) -> Any:
    """`array` when no value lies outside the bounds of the column's type."""
    if column.high < INT64_MAX:
        found = pc.min_max(array)
        low, high = found["min"].as_py(), found["max"].as_py()
        if low is not None and not column.low <= low <= high <= column.high:
            raise Misfit("an integer beyond its type")
    return array


def _double_texts(_column: Column, values: Values) -> Any:
    texts = pa.array(values, pa.string())
    if _beyond(texts, _PLAIN_NUMBER) or pc.any(pc.match_substring_regex(texts, r"^-?\.")).as_py():
        matches = pc.match_substring_regex(texts, _NUMBER)
        if pc.all(matches).as_py() is False:
            raise Misfit("not a number")
    _short(texts, MAX_NUMBER)
    return _finite(texts.cast(pa.float64()))


def _float_texts(column: Column, values: Values) -> Any:
    return _single(_double_texts(column, values))


def _doubles(_column: Column, values: Values) -> Any:
    return _finite(pa.array(values, pa.float64()))


def _floats(column: Column, values: Values) -> Any:
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


def _base64_text(_column: Column, values: Values) -> Any:
    return pa.array(values, pa.binary()).cast(pa.string())


def _latin1(_column: Column, values: Values) -> Any:
    return pa.array([None if text is None else text.encode("latin-1") for text in values], pa.binary())


def _quoted(_column: Column, values: Values) -> Any:
    """The bytes that Go's quoted strings mean; see the module's drawing."""
    joined = "\n".join(["" if text is None else text for text in values]).encode()
    if values and joined.count(b"\n") != len(values) - 1:
        raise Misfit("a bare line feed in a quoted string")
    if b"\\" not in joined and b'"' not in joined:
        return pa.array([None if text is None else text.encode() for text in values], pa.binary())
    plain = joined.replace(b"\\\\", b"\\x5c")
    if b"\\u" in plain or b"\\U" in plain:
        plain = _POINT.sub(_utf8, plain)
    text = np.frombuffer(plain + b"\n", np.uint8)
    escapes = np.flatnonzero(text == _BACKSLASH)
    if np.count_nonzero(text == _QUOTE) != np.count_nonzero(text[escapes + 1] == _QUOTE):
        raise Misfit("a bare quote in a quoted string")
    decoded, kept = text.copy(), np.ones(len(text), np.bool_)
    kinds = text[escapes + 1]
    short = _SHORT[kinds]
    if not short.all():
        raise Misfit("an escape that Go does not write")
    decoded[escapes], kept[escapes + 1] = short, False
    hexes = escapes[kinds == ord("x")]
    if len(hexes):
        kept[hexes + 2] = kept[np.minimum(hexes + 3, len(text) - 1)] = False
        digits = _HEX[text[hexes + 2]], _HEX[text[np.minimum(hexes + 3, len(text) - 1)]]
        if max(digits[0].max(), digits[1].max()) > 0xF:
            raise Misfit("an escape without two hexadecimal digits")
        decoded[hexes] = digits[0] * 16 + digits[1]
    ends = np.flatnonzero(text == _LINE_FEED)
    kept[ends] = False
    offsets = np.zeros(len(values) + 1, np.int32)
    offsets[1:] = np.cumsum(kept, dtype=np.int32)[ends]
    data = pa.py_buffer(decoded[kept].tobytes())
    array = pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets.tobytes()), data])
    if None in values:
        array = pc.if_else(pa.array([value is not None for value in values]), array, pa.scalar(None, pa.binary()))
    return array


def _utf8(escape: "re.Match[bytes]") -> bytes:
    r"""The bytes of one \u or \U; a backslash, a quote or a line feed stays an escape."""
    point = chr(int(escape[1] or escape[2], 16)).encode()
    return b"\\x%02x" % point[0] if point in (b"\\", b'"', b"\n") else point


def _table(values: Mapping[int, int], rest: int) -> Any:
    table = np.full(256, rest, np.uint8)
    for at, value in values.items():
        table[at] = value
    return table


_BACKSLASH, _QUOTE, _LINE_FEED = b'\\"\n'
_SHORT: Final = _table(dict(zip(b'abfnrtv"x', b'\a\b\f\n\r\t\v"x', strict=True)), 0)
"""What the character after a backslash means; 0 for those that Go does not write."""
_HEX: Final = _table({ord(f"{digit:{case}}"): digit for digit in range(16) for case in "xX"}, 0xFF)


def _beyond(texts: Any, allowed: bytes) -> bytes:
    """What the texts hold beside `allowed`."""
    return _bytes(texts).translate(None, allowed)


def _bytes(texts: Any) -> bytes:
    """All texts, one after the other."""
    data = texts.buffers()[2]
    return b"" if data is None else bytes(data)


def _short(texts: Any, length: int) -> None:
    longest = pc.max(pc.binary_length(texts)).as_py()
    if longest is not None and longest > length:
        raise Misfit(f"a number of {longest} characters")


Convert: TypeAlias = Callable[[Column, Values], Any]

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
