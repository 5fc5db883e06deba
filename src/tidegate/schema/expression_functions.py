"""The operators and functions of partition expressions, as a table of pure functions.

    FUNCTIONS[name] = (numbers of arguments it takes, function(arguments, time zone) -> value)

Arguments are never NULL.  Days count from year 0 as in TO_DAYS: 0001-01-01 is day 366.
Source: MySQL manual, "Date and Time Functions", "Mathematical Functions"; calc_week for YEARWEEK.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta, tzinfo
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation
from typing import Final, TypeAlias

from tidegate.schema.convert.number import WIDE, numeric_prefix, to_integer
from tidegate.schema.convert.span import parse_span
from tidegate.schema.convert.time import ZERO, WallClock, parse_moment, parse_moment_number, span_of_moment

__all__ = ["FUNCTIONS", "UNITS", "Operand"]

Operand: TypeAlias = int | float | str | bytes | Decimal | None
_Number: TypeAlias = int | float | Decimal
_Function: TypeAlias = Callable[[Sequence[Operand], tzinfo | None], Operand]

DAYS_BEFORE_YEAR_1: Final = 365
DAYS_OF_YEAR_0: Final = 366
SECOND: Final = 10**6
EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock


def _number(value: Operand) -> _Number:
    if isinstance(value, str):
        return numeric_prefix(value)
    return value if isinstance(value, int | float | Decimal) else 0


def _numbers(first: Operand, second: Operand) -> tuple[_Number, _Number]:
    """Both as float if one is, else both exact."""
    left, right = _number(first), _number(second)
    if isinstance(left, float) or isinstance(right, float):
        return float(left), float(right)
    return left, right


def _operator(
    on_integers: Callable[[int, int], Operand],
    on_floats: Callable[[float, float], Operand],
    on_decimals: Callable[[Decimal, Decimal], Operand],
    *,
    divides: bool = False,
) -> _Function:
    """A binary operator: floats if one operand is, else exact; dividing by zero is NULL."""

    def apply(values: Sequence[Operand], _zone: tzinfo | None) -> Operand:
        left, right = _numbers(values[0], values[1])
        if divides and right == 0:
            return None
        if isinstance(left, float) or isinstance(right, float):
            return on_floats(float(left), float(right))
        if isinstance(left, int) and isinstance(right, int):
            return on_integers(left, right)
        return on_decimals(Decimal(left), Decimal(right))

    return apply


def _whole(left: int, right: int) -> int:
    """The quotient cut towards zero."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) is (right < 0) else -quotient


def _rest(left: int, right: int) -> int:
    """The remainder, with the sign of `left`."""
    return left - right * _whole(left, right)


def _decimal_rest(left: Decimal, right: Decimal) -> Decimal | None:
    try:
        return WIDE.remainder(left, right)
    except InvalidOperation:
        return None


def _float_rest(left: float, right: float) -> float | None:
    return math.fmod(left, right) if math.isfinite(left) else None


def _rounding(mode: str) -> _Function:
    def apply(values: Sequence[Operand], _zone: tzinfo | None) -> Operand:
        number = _number(values[0])
        if isinstance(number, float) and not math.isfinite(number):
            return None
        return int(Decimal(number).to_integral_value(rounding=mode))

    return apply


def _absolute(values: Sequence[Operand], _zone: tzinfo | None) -> Operand:
    number = _number(values[0])
    return -number if number < 0 else number


def moment_of(value: Operand) -> WallClock:
    """Return the wall clock of an argument; the zero date when it is none."""
    if isinstance(value, str | bytes):
        return parse_moment(value if isinstance(value, str) else value.decode("latin-1"), 6)
    return ZERO if value is None else parse_moment_number(to_integer(value))


def span_of(value: Operand) -> int:
    """Return the time of day of an argument in microseconds: of a TIME, or of a date and time."""
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    if isinstance(value, str) and "-" in text[1:]:
        return span_of_moment(moment_of(value))
    return parse_span(text, 6) or 0


def _day_of(value: Operand) -> date | None:
    moment = moment_of(value)
    return date(*moment[:3]) if moment.year and moment.month and moment.day else None


def _days(value: Operand) -> int | None:
    day = _day_of(value)
    return None if day is None else day.toordinal() + DAYS_BEFORE_YEAR_1


def _on_moment(read: Callable[[WallClock], int]) -> _Function:
    return lambda values, _zone: read(moment_of(values[0]))


def _on_day(read: Callable[[date], int]) -> _Function:
    def apply(values: Sequence[Operand], _zone: tzinfo | None) -> Operand:
        day = _day_of(values[0])
        return None if day is None else read(day)

    return apply


def _on_span(read: Callable[[int], int]) -> _Function:
    return lambda values, _zone: read(abs(span_of(values[0])))


def _to_seconds(values: Sequence[Operand], _zone: tzinfo | None) -> Operand:
    days = _days(values[0])
    return None if days is None else days * 86400 + span_of_moment(moment_of(values[0])) // SECOND


def _time_to_sec(values: Sequence[Operand], _zone: tzinfo | None) -> Operand:
    span = span_of(values[0])
    return -(-span // SECOND) if span < 0 else span // SECOND


def _datediff(values: Sequence[Operand], _zone: tzinfo | None) -> Operand:
    first, second = _days(values[0]), _days(values[1])
    return None if first is None or second is None else first - second


def _unix_timestamp(values: Sequence[Operand], zone: tzinfo | None) -> Operand:
    """Seconds since 1970; 0 for the zero date and what lies before, microseconds as a fraction."""
    moment = moment_of(values[0])
    if not (moment.year and moment.month and moment.day):
        return 0
    instant = datetime(*moment, tzinfo=zone)
    offset = instant.utcoffset() or timedelta(0)
    micros = (instant.replace(tzinfo=None) - offset - EPOCH) // timedelta(microseconds=1)
    if micros < 0:
        return 0
    return micros // SECOND if micros % SECOND == 0 else Decimal(micros) / SECOND


def _yearweek(values: Sequence[Operand], _zone: tzinfo | None) -> Operand:
    day = _day_of(values[0])
    if day is None:
        return None
    mode = to_integer(_number(values[1])) if len(values) > 1 else 0
    return _week_of(day, monday_first=bool(mode & 1), needs_four=bool(mode & 1) is not bool(mode & 4))


def _week_of(day: date, *, monday_first: bool, needs_four: bool) -> int:
    """YYYYWW; week 1 has four days of the year (`needs_four`) or begins in it."""

    def first_week(year: int) -> int:
        start = date(year, 1, 1).toordinal() if year else date.min.toordinal() - DAYS_OF_YEAR_0
        weekday = (start + 6 if monday_first else start) % 7
        in_year_before = weekday >= 4 if needs_four else weekday != 0
        return start + (7 - weekday if in_year_before else -weekday)

    year, ordinal = day.year, day.toordinal()
    if ordinal < first_week(year):
        year -= 1
    elif year < date.max.year and ordinal >= first_week(year + 1):
        year += 1
    return year * 100 + (ordinal - first_week(year)) // 7 + 1


def _extract(values: Sequence[Operand], zone: tzinfo | None) -> Operand:
    return UNITS[str(values[0])](values[1:], zone)


_DIVIDED: Final = _operator(
    lambda left, right: WIDE.divide(Decimal(left), Decimal(right)), operator.truediv, WIDE.divide, divides=True
)
_QUOTIENT: Final = _operator(
    _whole,
    lambda left, right: to_integer(math.trunc(left / right)) if math.isfinite(left / right) else None,
    lambda left, right: int(WIDE.divide(left, right)),
    divides=True,
)
_MODULO: Final = _operator(_rest, _float_rest, _decimal_rest, divides=True)
_YEAR: Final = _on_moment(lambda moment: moment.year)
_MONTH: Final = _on_moment(lambda moment: moment.month)
_DAY: Final = _on_moment(lambda moment: moment.day)
_QUARTER: Final = _on_moment(lambda moment: (moment.month + 2) // 3)
_HOUR: Final = _on_span(lambda span: span // (3600 * SECOND))
_MINUTE: Final = _on_span(lambda span: span // (60 * SECOND) % 60)
_SECOND: Final = _on_span(lambda span: span // SECOND % 60)
_MICROSECOND: Final = _on_span(lambda span: span % SECOND)

UNITS: Final[Mapping[str, _Function]] = {
    "YEAR": _YEAR,
    "QUARTER": _QUARTER,
    "MONTH": _MONTH,
    "DAY": _DAY,
    "HOUR": _HOUR,
    "MINUTE": _MINUTE,
    "SECOND": _SECOND,
    "MICROSECOND": _MICROSECOND,
    "YEAR_MONTH": _on_moment(lambda moment: moment.year * 100 + moment.month),
    "DAY_HOUR": _on_moment(lambda moment: moment.day * 100 + moment.hour),
    "HOUR_MINUTE": _on_span(lambda span: span // (3600 * SECOND) * 100 + span // (60 * SECOND) % 60),
}
"""Units of EXTRACT."""

FUNCTIONS: Final[Mapping[str, tuple[Sequence[int], _Function]]] = {
    "+": ((2,), _operator(operator.add, operator.add, WIDE.add)),
    "-": ((2,), _operator(operator.sub, operator.sub, WIDE.subtract)),
    "*": ((2,), _operator(operator.mul, operator.mul, WIDE.multiply)),
    "/": ((2,), _DIVIDED),
    "%": ((2,), _MODULO),
    "DIV": ((2,), _QUOTIENT),
    "MOD": ((2,), _MODULO),
    "ABS": ((1,), _absolute),
    "CEIL": ((1,), _rounding(ROUND_CEILING)),
    "CEILING": ((1,), _rounding(ROUND_CEILING)),
    "FLOOR": ((1,), _rounding(ROUND_FLOOR)),
    "YEAR": ((1,), _YEAR),
    "QUARTER": ((1,), _QUARTER),
    "MONTH": ((1,), _MONTH),
    "DAY": ((1,), _DAY),
    "DAYOFMONTH": ((1,), _DAY),
    "DAYOFWEEK": ((1,), _on_day(lambda day: day.isoweekday() % 7 + 1)),
    "DAYOFYEAR": ((1,), _on_day(lambda day: day.timetuple().tm_yday)),
    "WEEKDAY": ((1,), _on_day(lambda day: day.weekday())),
    "HOUR": ((1,), _HOUR),
    "MINUTE": ((1,), _MINUTE),
    "SECOND": ((1,), _SECOND),
    "MICROSECOND": ((1,), _MICROSECOND),
    "TO_DAYS": ((1,), lambda values, _zone: _days(values[0])),
    "TO_SECONDS": ((1,), _to_seconds),
    "TIME_TO_SEC": ((1,), _time_to_sec),
    "DATEDIFF": ((2,), _datediff),
    "UNIX_TIMESTAMP": ((1,), _unix_timestamp),
    "YEARWEEK": ((1, 2), _yearweek),
    "EXTRACT": ((2,), _extract),
}
