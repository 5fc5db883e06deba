"""Values where they stand in the text to one typed Arrow array: a column without a Python object for each value.

    text    …"v":7}…"v":12345}…"v":null}…
    span         ^ ^     ^    ^     ^  ^         start and end of each value, quotes included
    array   7, 12345, null

Rows stand in the order of the text, so that starts and ends, one after the other, are the offsets of an Arrow array of
the same bytes: every second entry is a value, and `take` copies those together.

What is plain to see is converted at once: integers of nothing but digits, strings of nothing to undo.  Everything else
becomes one JSON array, `[7,12345,null]`, which msgspec reads with the very types that a struct of the protocol has.
Then the rules are the same, too: `from_json` and `from_texts`, and `Misfit` for what they refuse.

Who wants texts and no typed values gets them row by row with one copy (`row_texts`), where all that stands in the rows
is plain to see:

    starts and ends    of column 0, column 1, column 0, ..     ->    take    ->    7 x 12345 y
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from tidegate.codec.columnar.values import WIRE, Misfit, from_json, from_texts
from tidegate.codec.columnar.walk import TextRun, ValueSpan
from tidegate.codec.values import ColumnForm, Form

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_QUOTE, _BACKSLASH, _ZERO, _MINUS, _COMMA, _SPACE = b'"\\0-, '
_LAST_ASCII: Final = 0x7F
FEW: Final = 20
"""Digits and sign of a 64-bit number."""

_LISTS: Final[Mapping[Any, Any]] = {
    int: msgspec.json.Decoder(list[int | None]).decode,
    float: msgspec.json.Decoder(list[float | None]).decode,
    str: msgspec.json.Decoder(list[str | None]).decode,
    bytes: msgspec.json.Decoder(list[bytes | None]).decode,
}
_TEXTS: Final = _LISTS[str]
_QUOTED_TEXTS: Final = frozenset({Form.TEXT, Form.INTEGER, Form.FLOAT, Form.DOUBLE})

JSON_QUOTES: Final[Mapping[Form, int]] = {Form.INTEGER: 0, Form.TEXT: 1}
TEXT_QUOTES: Final[Mapping[Form, int]] = {Form.INTEGER: 1, Form.TEXT: 1}
"""Forms whose values may be their own texts, and the quotes at either end."""


def json_column(column: ColumnForm, text: TextRun, span: ValueSpan) -> Any:
    """Return the array of Open Protocol values."""
    if column.form is Form.INTEGER:
        digits = texts_of(text, span)
        if _plain_integers(text, span, digits):
            return from_json(column, digits)
    if column.form is Form.TEXT:
        strings = texts_of(text, span, 1)
        if _plain_string(strings):
            return from_json(column, strings)
    return from_json(column, listed(text, span, _LISTS[WIRE[column.form]]))


def text_column(column: ColumnForm, text: TextRun, span: ValueSpan) -> Any:
    """Return the array of canal-json values, which are strings."""
    if column.form is Form.INTEGER:
        digits = texts_of(text, span, 1)
        if _few_digits(span, digits):
            return from_json(column, digits)
    if column.form in _QUOTED_TEXTS:
        strings = texts_of(text, span, 1)
        if _plain_string(strings):
            return from_texts(column, strings)
    return from_texts(column, listed(text, span, _TEXTS))


def integers_of(text: TextRun, span: ValueSpan) -> Any:
    """Return the int64 array of digits that a walk has passed."""
    return texts_of(text, span).cast(pa.string()).cast(pa.int64())


def texts_of(text: TextRun, span: ValueSpan, quotes: int = 0) -> Any:
    """Return the bytes of each span without `quotes` bytes at either end; null stays null."""
    return _rowwise(text, [span], [quotes])


def row_texts(
    columns: Sequence[ColumnForm], text: TextRun, spans: Sequence[ValueSpan], quotes: Mapping[Form, int]
) -> Any:
    """Return all values of some rows, row by row, as texts of the changelog; None if one may not stand there as it is.

    What is given is what `json_column` or `text_column` give, cast to texts."""
    if not all(column.form in quotes for column in columns):
        return None
    values = _rowwise(text, spans, [quotes[column.form] for column in columns])
    if not _plain_string(values) or not _is_utf8(values):
        return None
    integers = zip(columns, spans, strict=True)
    if all(_own_digits(column, text, span, quotes) for column, span in integers if column.form is Form.INTEGER):
        return values
    return None


def _rowwise(text: TextRun, spans: Sequence[ValueSpan], quotes: Sequence[int]) -> Any:
    """The bytes of the spans of each row, one row behind the other."""
    rows, width = len(spans[0].start), len(spans)
    count = rows * width
    if not count:
        return pa.array([], pa.binary())
    bounds = np.empty((rows, width, 2), np.int32)
    for at, (span, some) in enumerate(zip(spans, quotes, strict=True)):
        np.add(span.start, some, out=bounds[:, at, 0], casting="unsafe")
        np.subtract(span.end, some, out=bounds[:, at, 1], casting="unsafe")
    every = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), text.buffer])
    if all(span.null is None for span in spans):
        return every.take(_evens(count))
    null = np.zeros((rows, width), np.bool_)
    for at, span in enumerate(spans):
        null[:, at] = False if span.null is None else span.null
    return every.take(pa.array(np.arange(0, 2 * count, 2), mask=null.ravel()))


def _own_digits(column: ColumnForm, text: TextRun, span: ValueSpan, quotes: Mapping[Form, int]) -> bool:
    """Whether all integers are of the column's type and stand there as we would write them."""
    some = quotes[column.form]
    bare = ValueSpan(span.start + some, span.end - some, span.null)
    digits = texts_of(text, bare)
    if not _plain_integers(text, bare, digits):
        return False
    from_json(column, digits)
    return True


def _is_utf8(strings: Any) -> bool:
    content = _content(strings)
    if not len(content) or content.max() <= _LAST_ASCII:
        return True
    try:
        strings.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


@lru_cache(maxsize=64)
def _evens(count: int) -> Any:
    return pa.array(np.arange(0, 2 * count, 2))


def _content(array: Any) -> Any:
    """All bytes of an array that begins at its buffers' beginning."""
    offsets, data = array.buffers()[1:]
    if not len(array) or data is None:
        return np.empty(0, np.uint8)
    return np.frombuffer(data, np.uint8, np.frombuffer(offsets, np.int32, len(array) + 1)[-1])


def _plain_string(strings: Any) -> bool:
    """Whether nothing has to be undone between the quotes, and nothing is forbidden there but broken UTF-8."""
    content = _content(strings)
    if not len(content):
        return True
    return bool(content.min() >= _SPACE and not (content == _BACKSLASH).any() and not (content == _QUOTE).any())


def _few_digits(span: ValueSpan, digits: Any) -> bool:
    """Whether all are of digits and signs alone, and few of them: zeros in front count for nothing."""
    content = _content(digits)
    others = content[content - np.uint8(_ZERO) > 9]
    return not (others != _MINUS).any() and bool((span.end - span.start).max(initial=0) <= FEW + 2)


def _plain_integers(text: TextRun, span: ValueSpan, digits: Any) -> bool:
    """Whether all are integers as JSON writes them, but for a sign that may stand anywhere."""
    content = _content(digits)
    others = content[content - np.uint8(_ZERO) > 9]
    if len(others) and (others != _MINUS).any():
        return False
    signed = (text.array[span.start] == _MINUS) if len(others) else np.zeros(len(span.start), np.int64)
    zeros = text.array[span.start + signed] == _ZERO
    return not (zeros & (span.end - span.start > 1)).any()


def listed(text: TextRun, span: ValueSpan, decode: Callable[[bytes], list[Any]]) -> list[Any]:
    """Return the values as `decode` reads them from one JSON array; Misfit when it refuses one.

    Behind each value stands one more byte, which becomes the comma."""
    rows = len(span.start)
    if not rows:
        return []
    values = texts_of(text, ValueSpan(span.start, span.end + 1))
    content = _content(values).copy()
    content[np.frombuffer(values.buffers()[1], np.int32, rows + 1)[1:] - 1] = _COMMA
    try:
        found: list[Any] = decode(b"[%b]" % content[:-1].tobytes())
    except UNREADABLE as error:
        raise Misfit(str(error)) from error
    if len(found) != rows:
        raise Misfit("a value that is several")
    return found
