"""Values among numbers.

    text        the number it begins with, as a double: '12abc' -> 12.0 and warning 1292
    Bits        an unsigned integer: x'0a' -> 10
    ENUM, SET   the index, the mask
    date        20240131        date and time 20240131235959[.5]        TIME -102030[.5]
    JSON        the number in it, true is 1

    number_of     as it comes: int | Unsigned | Decimal | float
    integer_of    rounded: exact halves away from zero, doubles' halves to even
    decimal_of    exact; a double by its shortest digits
    truth_of      different from 0

None stays None.  Source: MySQL manual, "Type Conversion in Expression Evaluation"; TiDB's types package.
"""

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final, TypeAlias

from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.context import Context as Session
from tidegate.mysql.convert.number import exact_number, to_integer
from tidegate.mysql.value.kinds import Bits, Duration, JsonDatum, Named, SqlValue, Time, Unsigned, Vector

Number: TypeAlias = int | Decimal | float
MIN_INT: Final = -(1 << 63)
MAX_INT: Final = (1 << 63) - 1
MAX_UINT: Final = (1 << 64) - 1
EXACT: Final = Context(prec=400, rounding=ROUND_HALF_UP, Emax=10**6, Emin=-(10**6))
"""Room for every product of two DECIMAL(65,30)."""
_PREFIX: Final = re.compile(
    r"[ \t\n\v\f\r]*+([+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d{1,9})?)[ \t\n\v\f\r]*+", re.ASCII
)
_TRUNCATED: Final = 1292
_PLAIN: Final = frozenset({int, Unsigned, Decimal, float})


def number_of(value: SqlValue, kind: ColumnType, context: Session) -> Number | None:
    """`value` as the number that arithmetic takes."""
    if value is None or type(value) in _PLAIN:
        return value  # type: ignore[return-value]  # one of Number by the test
    match value:
        case Named():
            return value.number
        case str():
            return text_number(value, context)
        case Bits():
            return Unsigned(int.from_bytes(value[-8:], "big"))
        case bytes():
            return text_number(value.decode("latin-1"), context)
        case Time():
            return _time_number(value, kind)
        case Duration():
            return _span_number(value, kind)
        case JsonDatum():
            return _json_number(value, context)
        case Vector():
            raise SqlRefused(1105, "cannot use a vector as a number", "HY000")
        case int():
            return int(value)
    raise AssertionError(value)


def text_number(text: str, context: Session, what: str = "DOUBLE") -> float:
    """Return the double that `text` begins with; a warning when that is not all of it."""
    found = _PREFIX.match(text)
    if found is None or found.end() < len(text):
        _truncated(text, what, context)
    return clamped(float(found[1])) if found else 0.0


def clamped(value: float) -> float:
    """Finite: what is beyond the doubles becomes the largest of them."""
    return value if math.isfinite(value) else math.copysign(1.7976931348623157e308, value)


def _truncated(text: str, what: str, context: Session) -> None:
    message = f"Truncated incorrect {what} value: '{text:.128}'"
    if context.writing and context.strict:
        raise SqlRefused(_TRUNCATED, message, "22007")
    context.warn(_TRUNCATED, message)


def _time_number(value: Time, kind: ColumnType) -> Number:
    date = (value.year * 100 + value.month) * 100 + value.day
    if kind.code in {T.DATE, T.NEWDATE}:
        return date
    whole = ((date * 100 + value.hour) * 100 + value.minute) * 100 + value.second
    return _with_fraction(whole, value.microsecond, kind)


def _span_number(value: int, kind: ColumnType) -> Number:
    seconds, ns = divmod(abs(value), 10**9)
    whole = (seconds // 3600 * 100 + seconds // 60 % 60) * 100 + seconds % 60
    number = _with_fraction(whole, ns // 1000, kind)
    return -number if value < 0 else number


def _with_fraction(whole: int, micros: int, kind: ColumnType) -> Number:
    if kind.decimal <= 0:
        return whole
    return Decimal(f"{whole}.{micros:06}"[: len(str(whole)) + 1 + kind.decimal])


def _json_number(value: JsonDatum, context: Session) -> Number:
    document = value.document
    if isinstance(document, bool):
        return int(document)
    if isinstance(document, int | float):
        return document
    return text_number(document if isinstance(document, str) else "", context)


def float_of(value: SqlValue, kind: ColumnType, context: Session) -> float | None:
    """`value` as a double."""
    number = number_of(value, kind, context)
    return None if number is None else float(number)


def decimal_of(value: SqlValue, kind: ColumnType, context: Session) -> Decimal | None:
    """`value` as an exact number; text is read digit by digit."""
    if isinstance(value, str | bytes) and not isinstance(value, Named | Bits):
        text = value if isinstance(value, str) else value.decode("latin-1")
        found = _PREFIX.match(text)
        if found is None or found.end() < len(text):
            _truncated(text, "DECIMAL", context)
        return Decimal(found[1]) if found else Decimal(0)
    number = number_of(value, kind, context)
    return None if number is None else exact_number(number)


def integer_of(value: SqlValue, kind: ColumnType, context: Session) -> int | None:
    """`value` as an integer of any size, `Unsigned` where it was one."""
    if value is None or type(value) is int or type(value) is Unsigned:
        return value
    if isinstance(value, str) and not isinstance(value, Named):
        found = _PREFIX.match(value)
        if found is None or found.end() < len(value):
            _truncated(value, "INTEGER", context)
        return to_integer(exact_number(Decimal(found[1]))) if found else 0
    number = number_of(value, kind, context)
    return None if number is None else number if isinstance(number, Unsigned) else to_integer(number)


def truth_of(value: SqlValue, kind: ColumnType, context: Session) -> bool | None:
    """Return whether `value` counts as true; None when that is unknown."""
    if type(value) is int:
        return value != 0
    number = number_of(value, kind, context)
    return None if number is None else number != 0


def rounded(value: Decimal, scale: int) -> Decimal:
    """`value` with exactly `scale` decimals, halves away from zero, no negative zero."""
    made = value.quantize(Decimal(1).scaleb(-scale), context=EXACT)
    return made.copy_abs() if made.is_zero() else made


def wrapped(value: int) -> int:
    """Return the 64 bits of `value` as an unsigned number, clamped where there are more."""
    if value < 0:
        return max(value, MIN_INT) & MAX_UINT
    return min(value, MAX_UINT)
