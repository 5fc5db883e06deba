"""What kind of text a column becomes: the table of both protocols.

                          open                          canal (all between quotes)
    integers …            digits                        digits
    FLOAT, DOUBLE         digits, exponents             digits, no exponent
    CHAR, VARCHAR         "text" | "Go-quoted bytes"    text | bytes as code points
    TEXT, BLOB            "base64"                      text | bytes as code points
    DECIMAL, times …      "text"                        text
    JSON and others       "text"                        text

Source: `open/encode/values.py`, `canal/encode/row.py`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tidegate.codec.columnar.encode.arrays import BINARY, NO_ROWS, Piece, spread
from tidegate.codec.columnar.encode.characters import go_quotes, latin1, strings
from tidegate.codec.columnar.encode.text import base64, floats, integers, shifted
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.go.float import positional32, positional64
from tidegate.codec.go.json import EASY, PRINTED
from tidegate.codec.open.encode.values import style_of
from tidegate.codec.wire_table import WireColumn
from tidegate.model.mysql import BLOBS, CHARS, NUMBERS, PRINTED_TYPES, STRINGS, MysqlType

_QUOTE: Final = pa.scalar(b'"', BINARY)


class Cell(NamedTuple):
    """How the values of a column are written: `texts` makes an array of them, without their quotes if `quoted`."""

    texts: Callable[[Any], Any]
    quoted: bool

    def pieces(self, array: Any) -> list[Piece]:
        """Return the JSON of a column's values."""
        if not len(array):
            return [NO_ROWS]
        texts = self.texts(array)
        if not self.quoted:
            return [texts]
        if not texts.null_count:
            return [b'"', texts, b'"']
        quotes = spread(
            pa.repeat(_QUOTE, len(texts) - texts.null_count), texts.is_valid().to_numpy(zero_copy_only=False)
        )
        return [quotes, texts, quotes]


def open_cell(column: WireColumn, options: EncodeOptions) -> Cell:
    """Return how Open Protocol writes the column."""
    code, style = column.type.code, style_of(options)
    if code in NUMBERS:
        return Cell(integers, quoted=False)
    if code == MysqlType.FLOAT:
        return Cell(partial(floats, write=style.float32, single=True), quoted=False)
    if code == MysqlType.DOUBLE:
        return Cell(partial(floats, write=style.float64, single=False), quoted=False)
    if code in BLOBS:
        return Cell(partial(base64, binary=column.binary), quoted=True)
    if code in CHARS and column.binary:
        return Cell(partial(go_quotes, quote=style.quote), quoted=True)
    return Cell(_printed(column, options) or partial(strings, quote=style.quote), quoted=True)


def canal_cell(column: WireColumn, options: EncodeOptions) -> Cell:
    """Return how canal-json writes the column."""
    code = column.type.code
    if code in NUMBERS:
        return Cell(integers, quoted=True)
    if code == MysqlType.FLOAT:
        return Cell(partial(floats, write=positional32, single=True), quoted=True)
    if code == MysqlType.DOUBLE:
        return Cell(partial(floats, write=positional64, single=False), quoted=True)
    if code in STRINGS and column.binary:
        return Cell(partial(latin1, quote=EASY), quoted=True)
    return Cell(_printed(column, options) or partial(strings, quote=EASY), quoted=True)


def _printed(column: WireColumn, options: EncodeOptions) -> Callable[[Any], Any] | None:
    """What TiDB prints itself, TIMESTAMPs in the zone of the options; None for all other types."""
    if column.type.code not in PRINTED_TYPES:
        return None
    if column.type.code != MysqlType.TIMESTAMP or options.time_zone == "UTC":
        return partial(strings, quote=PRINTED, utf8=True)
    return partial(shifted, time_zone=options.time_zone)
