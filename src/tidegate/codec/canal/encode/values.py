r"""Column values as canal-json's texts, before they are quoted.

    integers, YEAR, BIT, ENUM (index), SET (mask)   decimal digits
    FLOAT, DOUBLE                                   the shortest digits, never with an exponent (gofloat)
    BINARY, VARBINARY, BLOB family                  each byte as the code point of its number: 0xE9 is é
    CHAR, VARCHAR, TEXT family                      the text
    DECIMAL, times, JSON, VECTOR                    as TiDB prints them

Every text is then a JSON string as easyjson escapes it (gojson.EASY), so that 0x3C, `<`, arrives as \u003c.
Numbers and times have nothing to escape and skip that.

Source: Canal-JSON document, "Binary and Blob types"; recordings.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tidegate.codec.go.float import positional32, positional64
from tidegate.codec.go.json import EASY, PRINTED
from tidegate.codec.wire_table import WireColumn
from tidegate.codec.zone import zone_shift
from tidegate.model.mysql import NUMBERS, PRINTED_TYPES, STRINGS, MysqlType

__all__ = ["Write", "writer"]

Write: TypeAlias = Callable[[Any], str]
"""A value that is not NULL as a JSON string; TypeError or AttributeError for a value of another type."""


def writer(column: WireColumn, time_zone: str) -> Write:
    """Return the function that writes values of the column."""
    code = column.type.code
    if code in STRINGS:
        return _latin1 if column.binary else EASY
    if code == MysqlType.TIMESTAMP and time_zone != "UTC":
        return _shifted(time_zone)
    return _WRITERS.get(code, EASY)


def _integer(value: int) -> str:
    return f'"{int.__repr__(value)}"'


def _float(value: float) -> str:
    return f'"{positional32(value)}"'


def _double(value: float) -> str:
    return f'"{positional64(value)}"'


def _latin1(value: bytes) -> str:
    return EASY(value.decode("latin-1"))


def _shifted(time_zone: str) -> Write:
    shift = zone_shift(time_zone)

    def write(value: str) -> str:
        return PRINTED(shift(value))

    return write


_WRITERS: Final[dict[MysqlType, Write]] = {
    **dict.fromkeys(NUMBERS, _integer),
    **dict.fromkeys(PRINTED_TYPES, PRINTED),
    MysqlType.FLOAT: _float,
    MysqlType.DOUBLE: _double,
}
