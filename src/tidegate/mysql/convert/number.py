"""Numbers as TiDB makes them of other values: integers, BIT, YEAR, FLOAT, DOUBLE and DECIMAL.

    value --reader--> Number = int | Decimal (exact) | float (approximate) --writer--> value

    writer      exact source                          approximate source        outside the range
    integer     half away from zero (2.5 -> 3)        half to even (2.5 -> 2)   nearest bound
    BIT(n)      the same; a negative INT keeps its 64 bits                      2**n - 1
    YEAR        as integer; 1..69 -> 2001.., 70..99 -> 1970..                   1901 or 2155; 0 below 0
    DECIMAL     half away from zero at the scale      shortest text, then so    +-99..9 of the precision
    FLOAT       nearest 32-bit number; (M,D) rounds half to even at D digits    +-3.4028235e38, +-99..9 of (M,D)

UNSIGNED makes 0 of everything negative.  TiDB refuses a change that would leave the range while sql_mode is strict, so
the bounds matter only for statements that ran without it.
Source: TiDB's types package (RoundFloat = round half to even, MyDecimal.Round ModeHalfUp, TruncateFloat, AdjustYear,
getValidFloatPrefix); MySQL manual, "Rounding Behavior".
"""

import math
import re
import struct
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final, TypeAlias

from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType

Number: TypeAlias = int | float | Decimal
"""int and Decimal are exact, float is approximate: they round differently."""

INTEGER_BITS: Final = {
    MysqlType.TINY: 8,
    MysqlType.SHORT: 16,
    MysqlType.INT24: 24,
    MysqlType.LONG: 32,
    MysqlType.LONGLONG: 64,
}
MAX_FLOAT32: Final = struct.unpack("<f", bytes.fromhex("ffff7f7f"))[0]
MAX_FLOAT64: Final = math.ldexp(2.0 - 2.0**-52, 1023)
MAX_DIGITS: Final = 100
HUGE: Final = 10**100
"""More than any MySQL number; what is larger is as good as infinite and never spelled out."""
WIDE: Final = Context(prec=400, rounding=ROUND_HALF_UP)
"""Room for every digit of a double or of DECIMAL(65,30)."""

_PREFIX: Final = re.compile(r"[ \t\n\v\f\r]*+([+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d{1,9})?)", re.ASCII)


def numeric_prefix(text: str) -> Decimal:
    """Return the number that `text` starts with, garbage after it ignored; 0 when there is none."""
    found = _PREFIX.match(text)
    return Decimal(found[1]) if found else Decimal(0)


def round_exact(number: Decimal) -> int:
    """Return the nearest integer, halves away from zero; beyond 100 digits 10**100 with the number's sign."""
    if number.is_zero():
        return 0
    if number.adjusted() >= MAX_DIGITS:
        return -HUGE if number < 0 else HUGE
    if number.adjusted() < -1:
        return 0
    return int(number.quantize(Decimal(1), context=WIDE))


def to_integer(number: Number) -> int:
    """Return the integer nearest to `number`: floats round halves to even, exact numbers away from zero."""
    if isinstance(number, int):
        return number
    if isinstance(number, Decimal):
        return round_exact(number)
    if math.isfinite(number):
        return round(number)
    if math.isnan(number):
        return 0
    return -HUGE if number < 0 else HUGE


def integer_bounds(kind: ColumnType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type."""
    bits = INTEGER_BITS[kind.code]
    return (0, (1 << bits) - 1) if kind.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def full_year(year: int) -> int:
    """0..69 belongs to 2000.., 70..99 to 1970.., everything else stays."""
    if 0 <= year <= 69:
        return 2000 + year
    return 1900 + year if 70 <= year <= 99 else year


def to_float(number: Number) -> float:
    """Return the double nearest to `number`; too large becomes the largest double of that sign, NaN 0."""
    if isinstance(number, Decimal) and not number.is_zero() and number.adjusted() > 308:
        return math.copysign(MAX_FLOAT64, number)
    value = float(number)
    if math.isnan(value):
        return 0.0
    return value if math.isfinite(value) else math.copysign(MAX_FLOAT64, value)


def round_at(value: float, digits: int) -> float:
    """`value` rounded to `digits` decimals the way TiDB does it: scale in doubles, halves to even, scale back."""
    scaled = value * 10.0**digits
    return value if math.isinf(scaled) else round(scaled) / 10.0**digits


def float_writer(kind: ColumnType) -> Callable[[Number], float]:
    """Make a FLOAT or DOUBLE, with (M,D) rounding where the type has it."""
    single = kind.code is MysqlType.FLOAT
    rounds = kind.flen >= 0 and kind.decimal >= 0
    limit = MAX_FLOAT32 if single else MAX_FLOAT64
    if rounds:
        limit = min(limit, 10.0 ** (kind.flen - kind.decimal) - 10.0**-kind.decimal)

    def write(number: Number) -> float:
        value = to_float(number)
        if rounds:
            value = round_at(value, kind.decimal)
        if kind.unsigned and value < 0:
            return 0.0
        value = min(max(value, -limit), limit)
        return float(struct.unpack("<f", struct.pack("<f", value))[0]) if single else value

    return write


def decimal_writer(kind: ColumnType) -> Callable[[Number], str]:
    """Make the text of a DECIMAL: rounded and padded to its scale, clamped to its precision; zero has no sign."""
    precision = kind.flen if kind.flen >= 0 else 10
    scale = max(kind.decimal, 0)
    step = Decimal(1).scaleb(-scale)
    greatest = Decimal(10**precision - 1).scaleb(-scale, WIDE)

    def write(number: Number) -> str:
        exact = exact_number(number)
        if exact.is_zero() or (kind.unsigned and exact < 0):
            return format(Decimal(0).quantize(step), "f")
        if exact.adjusted() >= precision - scale + 1:
            rounded = greatest.copy_sign(exact)
        elif exact.adjusted() < -scale - 1:
            rounded = Decimal(0)
        else:
            rounded = exact.quantize(step, context=WIDE)
            if rounded.copy_abs() > greatest:
                rounded = greatest.copy_sign(exact)
        return format(rounded.copy_abs() if rounded.is_zero() else rounded, f".{scale}f")

    return write


def exact_number(number: Number) -> Decimal:
    """`number` as a Decimal; a float by the shortest digits that read back as it."""
    if isinstance(number, float):
        return Decimal(repr(number)) if math.isfinite(number) else Decimal(repr(to_float(number)))
    return Decimal(number)


def float_text(value: float, *, single: bool) -> str:
    """Return the shortest digits that read back as `value` (as a 32-bit float when `single`), never with an
    exponent."""
    digits = shortest_single(value) if single else repr(value)
    plain = format(Decimal(digits), "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def nearest_single(value: float) -> float:
    """Return the 32-bit float that is nearest."""
    found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return found


def shortest_single(value: float) -> str:
    """Return the fewest significant digits that name the 32-bit float `value`."""
    packed = struct.pack("<f", value)
    for digits in range(1, 9):
        text = f"{value:.{digits}g}"
        if abs(float(text)) <= MAX_FLOAT32 and struct.pack("<f", float(text)) == packed:
            return text
    return f"{value:.9g}"
