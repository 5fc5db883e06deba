"""Column values as the texts that TiCDC compares and hashes: it routes rows and splits updates by them.

    NULL                                             null
    integers, YEAR, BIT, ENUM (index), SET (mask)    decimal digits
    FLOAT, DOUBLE                                    the shortest digits, never with an exponent
    CHAR, VARCHAR, TEXT family                       the bytes as stored
    BINARY, VARBINARY, BLOB family                   the bytes as stored
    TIMESTAMP                                        as TiDB prints it, in the changefeed's time zone
    DECIMAL, other times, JSON, VECTOR               as TiDB prints them

These are canal-json's texts before its escaping, except that binary columns are not turned into code points.  NULL and
the text `null` are the same here; that is TiCDC's rule, and where a row goes depends on it.

Source: tiflow, model.ColumnValueString; recordings of the dispatchers.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tidegate.codec.go.float import positional32, positional64
from tidegate.codec.values import INT_RANGES
from tidegate.codec.zone import zone_shift
from tidegate.model.mysql import MysqlType

ValueText: TypeAlias = Callable[[Any], bytes]
"""The text of a value that is not NULL; TypeError or AttributeError for a value of another type."""

NULL_TEXT: Final = b"null"


def value_text(code: int, time_zone: str = "UTC") -> ValueText:
    """Return the function that makes the texts of a column whose type is `code`."""
    if code in INT_RANGES:
        return _integer
    if code == MysqlType.TIMESTAMP and time_zone != "UTC":
        return _shifted(time_zone)
    return _FLOATS.get(code, _text)


def _integer(value: int) -> bytes:
    return int.__repr__(value).encode()


def _float(value: float) -> bytes:
    return positional32(value).encode()


def _double(value: float) -> bytes:
    return positional64(value).encode()


def _text(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def _shifted(time_zone: str) -> ValueText:
    shift = zone_shift(time_zone)

    def text(value: str) -> bytes:
        return shift(value).encode()

    return text


_FLOATS: Final[dict[int, ValueText]] = {MysqlType.FLOAT: _float, MysqlType.DOUBLE: _double}
