"""The text form of each column type: the table of both protocols.

                          open                          canal (all between quotes)
    integers …            digits                        digits
    FLOAT, DOUBLE         digits, exponents             digits, no exponent
    CHAR, VARCHAR         "text" | "Go-quoted bytes"    text | bytes as code points
    TEXT, BLOB            "base64"                      text | bytes as code points
    DECIMAL, times …      "text"                        text
    JSON and others       "text"                        text

Source: `codec/open_encode.py`, `codec/canal_encode.py`.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tidegate.codec.columnar.encode.arrays import bytes_of, text_of
from tidegate.codec.columnar.encode.characters import LATIN1, QUOTES, go_quotes, strings
from tidegate.codec.columnar.encode.text import floats, shifted
from tidegate.codec.columnar.encode.write import BASE64, COPIED, ESCAPED, INTEGER
from tidegate.codec.columnar.values import Mismatch
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.go import EASY, PRINTED, FloatText, Quote, positional32, positional64
from tidegate.codec.open_encode import style_of
from tidegate.codec.wire_table import WireColumn
from tidegate.model.mysql import BLOBS, CHARS, FLOATS, NUMBERS, PRINTED_TYPES, STRINGS, MysqlType


class Cell(NamedTuple):
    """The writing of a column's values. `prepared` converts an array to the loop's form and returns its kind
    (write.py), and raises Mismatch for another type; `table` is the escape table of ESCAPED."""

    prepared: Callable[[Any], tuple[int, Any]]
    quoted: bool
    table: int = 0
    together: bool = False
    """True to prepare all columns of the type in one call."""


def _integers(array: Any) -> tuple[int, Any]:
    if not pa.types.is_integer(array.type):
        raise Mismatch(f"integers that come as {array.type}")
    return INTEGER, array


def _bytes(array: Any) -> tuple[int, Any]:
    return BASE64, bytes_of(array)


def _texts(array: Any) -> tuple[int, Any]:
    return BASE64, array if pa.types.is_binary(array.type) else text_of(array)


@cache
def _prepared_by(make: Callable[..., Any], **words: Any) -> Callable[[Any], tuple[int, Any]]:
    """Write many columns at once by Arrow or Python; equal functions are called once."""

    def prepared(array: Any) -> tuple[int, Any]:
        return COPIED, make(array, **words)

    return prepared


DIGITS: Final = Cell(_integers, quoted=False)
ROW_KEYS: Final = Cell(_bytes, quoted=False)


def open_cell(column: WireColumn, options: EncodeOptions) -> Cell:
    """Return the cell of a column in Open Protocol."""
    code, style = column.type.code, style_of(options)
    if code in NUMBERS:
        return DIGITS
    if code in FLOATS:
        return _float(code, style.float32, style.float64, quoted=False)
    if code in BLOBS:
        return Cell(_bytes if column.binary else _texts, quoted=True)
    if code in CHARS and column.binary:
        return Cell(_prepared_by(go_quotes, quote=style.quote), quoted=True, together=True)
    return _text(column, options, style.quote)


def canal_cell(column: WireColumn, options: EncodeOptions) -> Cell:
    """Return the cell of a column in canal-json."""
    code = column.type.code
    if code in NUMBERS:
        return DIGITS._replace(quoted=True)
    if code in FLOATS:
        return _float(code, positional32, positional64, quoted=True)
    if code in STRINGS and column.binary:
        return Cell(lambda array: (ESCAPED, bytes_of(array)), quoted=True, table=LATIN1)
    return _text(column, options, EASY)


def _float(code: int, float32: FloatText, float64: FloatText, *, quoted: bool) -> Cell:
    single = code == MysqlType.FLOAT
    return Cell(_prepared_by(floats, write=float32 if single else float64, single=single), quoted=quoted, together=True)


def _text(column: WireColumn, options: EncodeOptions, quote: Quote) -> Cell:
    """Types that TiDB prints itself are PRINTED, TIMESTAMPs in the time zone of the options."""
    code = column.type.code
    if code == MysqlType.TIMESTAMP and options.time_zone != "UTC":
        return Cell(_prepared_by(shifted, time_zone=options.time_zone), quoted=True, together=True)
    quote = PRINTED if code in PRINTED_TYPES else quote
    return Cell(partial(strings, quote=quote), quoted=True, table=QUOTES.index(quote))
