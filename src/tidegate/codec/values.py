"""Values in both protocols: the range of integers by column type, and the value of a FLOAT.

An integer is checked against the width of its type, signed and unsigned together: the UNSIGNED bit of a message can be
stale (the flag cache of TiCDC's new architecture), so it only ever forbids a minus sign.

    FLOAT   the wire has the shortest decimal digits that name one 32-bit float; the value is that float, exactly,
            as a double: 153.123 on the wire is 153.12300109863281

Source: TiDB's column types; MySQL reference manual, "Numeric Data Types".
"""

import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum, auto
from math import isfinite
from typing import Final, NamedTuple

from tidegate.model.errors import DecodeError, redacted_value
from tidegate.model.mysql import TYPES, Family, MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import COLUMNS_MAX

NAME_MAX: Final = 1024
"""Characters of a column's name; TiDB's have 64 at most."""


def check_columns(names: Sequence[str], codec: str) -> None:
    """Check the names of a row's columns. Raises DecodeError for more or longer ones than any table has, and for two
    that are equal in TiDB."""
    if len(names) > COLUMNS_MAX:
        raise DecodeError(f"a row of {len(names)} columns; no table has more than {COLUMNS_MAX}", codec, 0)
    if max(map(len, names), default=0) > NAME_MAX:
        raise DecodeError(f"a column's name of more than {NAME_MAX} characters", codec, 0)
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(lowered(name), name)) != name:
            raise DecodeError(f"columns {other!r} and {name!r} of one row: no table has both", codec, 0)


INT_RANGES: Final[Mapping[int, tuple[int, int]]] = {
    **{
        code: (-(1 << record.bits - 1) if record.family is Family.INT else 0, (1 << record.bits) - 1)
        for code, record in TYPES.items()
        if record.bits
    },
    MysqlType.YEAR: (0, 9999),
}
"""Smallest and largest value of each type that is an int, with and without UNSIGNED."""

MAX_ROW_TS: Final = (1 << 63) - 1
"""A row or DDL above it would lie after the year 3084, and no lake column (BIGINT) could hold its timestamp."""
MAX_RESOLVED_TS: Final = (1 << 64) - 1
"""TiCDC does send the largest unsigned number as a resolved timestamp: "nothing is to come"."""


class Form(IntEnum):
    """The encoding of a column's values in a message."""

    INTEGER = auto()
    FLOAT = auto()
    DOUBLE = auto()
    TEXT = auto()
    BASE64 = auto()
    BASE64_TEXT = auto()
    QUOTED = auto()
    LATIN1 = auto()


class ColumnForm(NamedTuple):
    """A form, and the bounds of an integer."""

    form: Form
    low: int = 0
    high: int = 0


_FLOAT32: Final = struct.Struct("<f")


def integer_range(code: int, *, unsigned: bool) -> tuple[int, int]:
    """Return the bounds of an integer type."""
    low, high = INT_RANGES[code]
    return (0 if unsigned else low), high


def float32(value: float, codec: str) -> float:
    """Return the double that equals the 32-bit float nearest to `value`."""
    try:
        nearest: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except OverflowError as error:
        raise DecodeError(f"{redacted_value(value, 40)} is outside the range of FLOAT", codec, 0) from error
    return nearest


def double(value: float, codec: str) -> float:
    """`value` as a finite double."""
    try:
        number = float(value)
    except OverflowError as error:
        raise DecodeError("a number outside the range of DOUBLE", codec, 0) from error
    if not isfinite(number):
        raise DecodeError("a number outside the range of DOUBLE", codec, 0)
    return number


def timestamp(ts: int, codec: str, offset: int, *, limit: int = MAX_ROW_TS) -> int:
    """`ts` unchanged when it is a timestamp up to `limit`."""
    if 0 <= ts <= limit:
        return ts
    raise DecodeError(f"timestamp {ts:#x} is not between 0 and {limit}", codec, offset)
