"""Column values as Open Protocol's JSON.

    t                        v
    1 2 3 8 9 13 16 247 248  the number
    4, 5                     the shortest digits of a 32- or 64-bit float (gofloat)
    246 7 10 11 12 14 245    a string, as TiDB prints it
    225
    15 253 254               a string; of a binary column the Go quoting of its bytes (goquote), escaped once more
    249 250 251 252          base64, TEXT too

How strings are escaped, and the exponents of small floats, differ between the emitters: `Style`.

Source: Open Protocol document, "Column Type Code"; recordings of both emitters.
"""

from binascii import b2a_base64
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.go.float import FloatText, json32, json64, newarch_json32, newarch_json64
from tidegate.codec.go.json import PRINTED, RAW, REPAIRED, STANDARD, Quote
from tidegate.codec.go.quote import quote
from tidegate.codec.wire_table import WireColumn
from tidegate.codec.zone import shifted_text
from tidegate.model.mysql import BLOBS, CHARS, NUMBERS, PRINTED_TYPES, MysqlType

Write: TypeAlias = Callable[[Any], str]
"""A value that is not NULL as JSON; TypeError or AttributeError for a value of another type."""


class Style(NamedTuple):
    """What differs between the emitters' values."""

    quote: Quote
    float32: FloatText
    float64: FloatText


def style_of(options: EncodeOptions) -> Style:
    """Return the style of a dialect."""
    if options.newarch:
        return Style(RAW if "raw-bytes" in options.faults else REPAIRED, newarch_json32, newarch_json64)
    return Style(STANDARD, json32, json64)


def writer(column: WireColumn, style: Style, time_zone: str) -> Write:
    """Return the function that writes values of the column."""
    code = column.type.code
    if code in NUMBERS:
        return int.__repr__
    if code in CHARS:
        return _quoted(style.quote) if column.binary else style.quote
    if code in BLOBS:
        return _bytes_base64 if column.binary else _text_base64
    if code == MysqlType.TIMESTAMP and time_zone != "UTC":
        return shifted_text(time_zone)
    if code in PRINTED_TYPES:
        return PRINTED
    return {MysqlType.FLOAT: style.float32, MysqlType.DOUBLE: style.float64}.get(code, style.quote)


def _quoted(outer: Quote) -> Write:
    def write(value: bytes) -> str:
        return outer(quote(value))

    return write


def _bytes_base64(value: bytes) -> str:
    return f'"{b2a_base64(value, newline=False).decode()}"'


def _text_base64(value: str) -> str:
    return _bytes_base64(value.encode("utf-8", "surrogateescape"))
