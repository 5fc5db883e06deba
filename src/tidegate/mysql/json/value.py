"""What a JSON document of TiDB can hold beyond JSON: numbers without sign, bytes, dates and durations.

    None  bool  str  float  list  dict     as in JSON
    int               a signed number of 64 bits
    Unsigned          a number stored without sign; a plain int above 2**63 - 1 is written as one, too
    Opaque            bytes of a MySQL type: CAST(x'..' AS JSON), BIT
    JsonTime          DATE, DATETIME, TIMESTAMP
    JsonDuration      TIME

Text of a document that is not UTF-8 keeps its bytes as surrogates (`surrogateescape`).
"""

from typing import NamedTuple, TypeAlias

from tidegate.mysql.packed_time import Time


class Unsigned(int):
    """A number whose type has no sign."""

    __slots__ = ()


class Opaque(NamedTuple):
    """Bytes with the code of the MySQL type that they came from."""

    type: int
    data: bytes


class JsonTime(NamedTuple):
    """A time; `type` is the type code inside binary JSON (14 date, 15 datetime, 16 timestamp), `tail` its fsp bits."""

    type: int
    time: Time
    tail: int = 0


class JsonDuration(NamedTuple):
    """A span of time in nanoseconds, and its number of decimals."""

    duration_ns: int
    fsp: int = 0


JsonValue: TypeAlias = (
    "bool | int | float | str | Opaque | JsonTime | JsonDuration | list[JsonValue] | dict[str, JsonValue] | None"
)
