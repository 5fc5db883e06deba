"""The operators and functions of partition expressions, as a table of pure functions.

    FUNCTIONS[name] = (numbers of arguments it takes, function(arguments, time zone) -> value)

Arguments are never NULL.  Days count from year 0 as in TO_DAYS: 0001-01-01 is day 366.
Source: MySQL manual, "Date and Time Functions", "Mathematical Functions"; calc_week for YEARWEEK.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta, tzinfo
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final, TypeAlias

from tidegate.schema.convert_number import numeric_prefix, round_exact
from tidegate.schema.convert_span import parse_span
from tidegate.schema.convert_time import ZERO, Moment, parse_moment, parse_moment_number, span_of_moment

__all__ = ["FUNCTIONS", "UNITS", "Operand"]

Operand: TypeAlias = int | float | str | bytes | Decimal | None
_Number: TypeAlias = int | float | Decimal
_Function: TypeAlias = Callable[[Sequence[Operand], tzinfo | None], Operand]

DAYS_BEFORE_YEAR_1: Final = 365
SECOND: Final = 10**6
EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock


def _numbers(first: Operand, second: Operand) -> tuple[_Number, _Number]:
    """Both as float if one is, else both exact."""
    pair = tuple(numeric_prefix(value) if isinstance(value, str) else value for value in (first, second))
    left, right = (value if isinstance(value, int | float | Decimal) else 0 for value in pair)
    if isinstance(left, float) or isinstance(right, float):
        return float(left), float(right)
    return left, right


def _exact(first: Operand, second: Operand) -> tuple[Decimal, Decimal]:
    left, right = _numbers(first, second)
    return Decimal(left), Decimal(right)


def _add(values: Sequence[Operand], _zone: tzinfo | None) -> Operand:
    left, right = _exact(values[0], values[1])
    return _plain(left + right, values)


def _subtract(values: Sequence[Operand], _zone: tzinfo | None) -> Operand:
    left, right = _exact(values[0], values[1])
    return _plain(left - right, values)


def _multiply(values: Sequence[Operand], _zone: tzinfo | None) -> Operand:
    left, right = _exact(values[0], values[1])
    return _plain(left * right, values)


def _plain(result: Decimal, values: Sequence[Operand]) -> Operand:
    """The result in the kind of its operands: integers stay integers, a float makes a float."""
    if any(isinstance(value, float) for value in values):
        return float(result)
    return int(result) if all(isinstance(value, int) for value in values) else result


def _divide(values: Sequence[Operand], _zone: tzinfo | None) -> Operand:
    left, right = _exact(values[0], values[1])
    return None if right == 0 else left / right


def _integer_divide(values: Sequence[Operand], _zone: tzinfo | None) -> Operand:
    left, right = _exact(values[0], values[1])
    return None if right == 0 else int(left / right) if left % 1 or right % 1 else _truncated(int(left), int(right))


def _truncated(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) is (right < 0) else -quotient


def _modulo(values: Sequence[Operand], _zone: tzinfo | None) -> Operand:
    left, right = _exact(values[0], values[1])
    return None if right == 0 else _plain(left % right, values)


def _rounding(mode: str) -> _Function:
    def apply(values: Sequence[Operand], _zone: tzinfo | None) -> Operand:
        number = _exact(values[0], 0)[0]
        return int(number.to_integral_value(rounding=mode))

    return apply


def _absolute(values: Sequence[Operand], _zone: tzinfo | None) -> Operand:
    return abs(_numbers(values[0], 0)[0])


def moment_of(value: Operand) -> Moment:
    """The wall clock of an argument; the zero date when it is none."""
    if isinstance(value, str | bytes):
        return parse_moment(value if isinstance(value, str) else value.decode("latin-1"), 6)
    return ZERO if value is None else parse_moment_number(round_exact(Decimal(value)))


def span_of(value: Operand) -> int:
    """The time of day of an argument in microseconds: of a TIME, or of a date and time."""
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


def _on_moment(read: Callable[[Moment], int]) -> _Function:
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
    mode = int(_numbers(values[1], 0)[0]) if len(values) > 1 else 0
    return _week_of(day, monday_first=bool(mode & 1), needs_four=bool(mode & 1) is not bool(mode & 4))


def _week_of(day: date, *, monday_first: bool, needs_four: bool) -> int:
    """YYYYWW; week 1 has four days of the year (`needs_four`) or begins in it."""

    def first_week(year: int) -> date:
        start = date(year, 1, 1)
        weekday = (start.weekday() if monday_first else start.weekday() + 1) % 7
        in_year_before = weekday >= 4 if needs_four else weekday != 0
        return start + timedelta(days=7 - weekday if in_year_before else -weekday)

    year = day.year
    if day < first_week(year):
        year -= 1
    elif year < date.max.year and day >= first_week(year + 1):
        year += 1
    return year * 100 + (day - first_week(year)).days // 7 + 1


def _extract(values: Sequence[Operand], zone: tzinfo | None) -> Operand:
    return UNITS[str(values[0])](values[1:], zone)


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
    "+": ((2,), _add),
    "-": ((2,), _subtract),
    "*": ((2,), _multiply),
    "/": ((2,), _divide),
    "%": ((2,), _modulo),
    "DIV": ((2,), _integer_divide),
    "MOD": ((2,), _modulo),
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
