"""Values while a statement runs, and how stored ones become them.

    column                       stored (KvValue)         running (SqlValue)
    integers, YEAR               int, Unsigned            the same
    DECIMAL                      DecimalDatum             Decimal, with the column's decimals
    FLOAT, DOUBLE                float                    float
    text                         bytes (UTF-8)            str
    binary strings               bytes                    bytes
    BIT                          Unsigned                 Bits: bytes, big endian, as wide as the column
    ENUM, SET                    Unsigned                 Named: its text, and the number behind it
    DATE, DATETIME               Time                     Time
    TIMESTAMP                    Time in UTC              Time on the session's clocks
    TIME, JSON, VECTOR           Duration, JsonDatum, Vector    the same

A value does not say everything: whether a Time is a date, how many decimals it shows, by which collation a text
compares is in the ColumnType that stands beside it (`expr.Compiled`, `relation.RelationColumn`).
Truth values are the ints 1 and 0, the unknown is None.
"""

from datetime import tzinfo
from decimal import Decimal
from typing import Final, Self, TypeAlias

from tidegate.model.mysql import STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.column_value import KvValue
from tidegate.mysql.datum import DecimalDatum, Duration, JsonDatum, Unsigned, Vector
from tidegate.mysql.packed_time import Time, from_utc

__all__ = ["Bits", "Duration", "JsonDatum", "Named", "SqlValue", "Time", "Unsigned", "Vector", "from_column"]


class Named(str):
    """A value of ENUM or SET: text among texts, its index or mask among numbers."""

    __slots__ = ("number",)
    number: int

    def __new__(cls, text: str, number: int) -> Self:
        """`number` is the index of an ENUM (from 1; 0 = none) or the mask of a SET."""
        made = super().__new__(cls, text)
        made.number = number
        return made

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        """Keeps the number through pickle and copy."""
        return Named, (str(self), self.number)


class Bits(bytes):
    """BIT, x'..' and b'..': a binary string that is a number among numbers."""

    __slots__ = ()


SqlValue: TypeAlias = int | Unsigned | Decimal | float | str | bytes | Time | Duration | JsonDatum | Vector | None
"""Named is a str, Bits are bytes."""


def from_column(kind: ColumnType, value: KvValue, zone: tzinfo) -> SqlValue:
    """Return the running value of a stored one; `zone` is the session's, for TIMESTAMP."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value if kind.charset == "binary" else value.decode("utf-8", "surrogateescape")
    if isinstance(value, DecimalDatum):
        return _scaled(value.value, kind.decimal)
    if isinstance(value, Decimal):
        return _scaled(value, kind.decimal)
    if isinstance(value, Time):
        return from_utc(value, zone) if kind.code is T.TIMESTAMP else value
    if isinstance(value, int) and kind.code in _NUMBERED:
        return _numbered(kind, value)
    assert not isinstance(value, JsonDatum) or kind.code not in STRINGS, kind
    return value  # type: ignore[return-value]  # what is left is the same in both forms


def _scaled(value: Decimal, scale: int) -> Decimal:
    exponent = value.as_tuple().exponent
    if scale < 0 or exponent == -scale:
        return value
    return Decimal(f"{value:.{scale}f}")


_NUMBERED: Final = frozenset({T.BIT, T.ENUM, T.SET})


def _numbered(kind: ColumnType, value: int) -> SqlValue:
    """BIT as bytes, ENUM and SET as their texts."""
    if kind.code is T.BIT:
        return Bits(value.to_bytes((max(kind.flen, 1) + 7) // 8, "big"))
    names = kind.elems or ()
    if kind.code is T.ENUM:
        return Named(names[value - 1] if 1 <= value <= len(names) else "", value)
    return Named(",".join(name for at, name in enumerate(names) if value >> at & 1), value)
