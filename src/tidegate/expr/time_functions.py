"""Functions of dates and times: parts, formats, weeks, intervals and differences.

    NOW(6) CURDATE() UTC_TIME()            the statement's moment, cut to n decimals
    YEAR(d) .. MICROSECOND(t)              parts; EXTRACT(DAY_HOUR FROM d) several of them as one number
    UNIX_TIMESTAMP(d) FROM_UNIXTIME(n)     seconds since 1970, by the session's time zone
    TO_DAYS(d) LAST_DAY(d)                 days since the year 0: 0001-01-01 is day 366

    DATE_FORMAT    %Y %y year    %m %c %M %b month    %d %e %D day    %H %k %h %I %l hour    %i minute    %s %S second
                   %f microsecond    %p AM, PM    %r %T clocks    %W %a %w weekday    %j day of the year
                   %U %u %V %v %X %x weeks
    week mode      bit 0: weeks begin on Monday    bit 1: 1..53 instead of 0..53    bit 2: which week is the first

    DATE_ADD(d, INTERVAL 1 MONTH)             the last day of a shorter month: 01-31 -> 02-29
    DATE_ADD(d, INTERVAL '1:30' HOUR_MINUTE)  units of two kinds take texts; the digits count from the right
    TIMESTAMPDIFF(MONTH, a, b)                whole units from a to b

    result of adding an interval
    first argument    unit of days or more     smaller unit
    DATE              DATE                     DATETIME
    DATETIME          DATETIME                 DATETIME
    TIME              DATETIME of today        TIME
    text, number      text in the form of what it holds

Functions of the calendar return NULL for dates with zero parts.  A result outside the years 0 to 9999 is NULL with
warning 1441.

Source: MySQL manual, "Date and Time Functions", "Temporal Intervals".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final, NamedTuple

from tidegate.expr.arithmetic import constant
from tidegate.expr.dialect import Node
from tidegate.expr.form import compile_scalar
from tidegate.expr.functions import Function, arguments, define, wrong_count
from tidegate.expr.result_type import DATE, INT, TEXT, datetime_type, decimal_type, family_of, time_type
from tidegate.expr.scope import Compiled, Row, Scope
from tidegate.expr.tokens import UNITS
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import DATES, Family
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.conversion import Number, parse_span, round_exact
from tidegate.mysql.packed_time import Time, render_date, render_time
from tidegate.mysql.values import (
    NO_CONTEXT,
    Context,
    Duration,
    SqlValue,
    clock,
    decimal_of,
    is_real,
    moment_of,
    parse_time,
    session_now,
    span_of,
    span_of_clock,
    string_of,
    to_datetime,
)

DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS: Final = tuple(
    "January February March April May June July August September October November December".split()  # noqa: SIM905
)


def _days_in(year: int) -> int:
    return 366 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 365


def _number(year: int, month: int, day: int) -> int:
    """Days since the year 0; year 0 itself has none in Python's calendar."""
    return date(year, month, day).toordinal() if year else date(4, month, day).toordinal() - 4 * 365


def year_week(year: int, month: int, day: int, mode: int) -> tuple[int, int]:
    """(year, week) of a date in a week mode."""
    monday, own_year = bool(mode & 1), bool(mode & 2)
    begins = bool(mode & 4) is monday
    number, first = _number(year, month, day), _number(year, 1, 1)
    weekday = (first - 1) % 7 if monday else first % 7
    late = weekday != 0 if begins else weekday >= 4
    if month == 1 and day <= 7 - weekday:
        if not own_year and late:
            return year, 0
        if late:
            own_year = True
            year -= 1
            first -= _days_in(year)
            weekday = (weekday + 53 * 7 - _days_in(year)) % 7
            late = weekday != 0 if begins else weekday >= 4
    days = number - (first + (7 - weekday if late else -weekday))
    if own_year and days >= 52 * 7:
        weekday = (weekday + _days_in(year)) % 7
        if weekday == 0 if begins else weekday < 4:
            return year + 1, 1
    return year, days // 7 + 1


def week(time: Time, mode: int) -> int:
    """Return WEEK(d, mode)."""
    return year_week(time.year, time.month, time.day, mode & 7)[1]


def _twelve(hour: int) -> int:
    return (hour + 11) % 12 + 1


def _half(hour: int) -> str:
    return "AM" if hour % 24 < 12 else "PM"


def _weekday(time: Time) -> int:
    return date(time.year, time.month, time.day).weekday()


_SUFFIXES: Final = {day: ("st", "nd", "rd")[day % 10 - 1] for day in (1, 2, 3, 21, 22, 23, 31)}
_SPECS: Final[Mapping[str, Callable[[Time], str]]] = {
    "Y": lambda t: f"{t.year:04}",
    "y": lambda t: f"{t.year % 100:02}",
    "m": lambda t: f"{t.month:02}",
    "c": lambda t: str(t.month),
    "M": lambda t: MONTHS[t.month - 1],
    "b": lambda t: MONTHS[t.month - 1][:3],
    "d": lambda t: f"{t.day:02}",
    "e": lambda t: str(t.day),
    "D": lambda t: f"{t.day}{_SUFFIXES.get(t.day, 'th')}",
    "H": lambda t: f"{t.hour:02}",
    "k": lambda t: str(t.hour),
    "h": lambda t: f"{_twelve(t.hour):02}",
    "I": lambda t: f"{_twelve(t.hour):02}",
    "l": lambda t: str(_twelve(t.hour)),
    "i": lambda t: f"{t.minute:02}",
    "s": lambda t: f"{t.second:02}",
    "S": lambda t: f"{t.second:02}",
    "f": lambda t: f"{t.microsecond:06}",
    "p": lambda t: _half(t.hour),
    "r": lambda t: f"{_twelve(t.hour):02}:{t.minute:02}:{t.second:02} {_half(t.hour)}",
    "T": lambda t: f"{t.hour:02}:{t.minute:02}:{t.second:02}",
    "W": lambda t: DAYS[_weekday(t)],
    "a": lambda t: DAYS[_weekday(t)][:3],
    "w": lambda t: str((_weekday(t) + 1) % 7),
    "j": lambda t: f"{_number(*t[:3]) - _number(t.year, 1, 1) + 1:03}",
    "U": lambda t: f"{week(t, 0):02}",
    "u": lambda t: f"{week(t, 1):02}",
    "V": lambda t: f"{week(t, 2):02}",
    "v": lambda t: f"{week(t, 3):02}",
    "X": lambda t: f"{year_week(*t[:3], 2)[0]:04}",
    "x": lambda t: f"{year_week(*t[:3], 3)[0]:04}",
}
_CALENDAR: Final = frozenset("WawjUuVvXx")
_NAMED_MONTH: Final = frozenset("Mb")


def format_time(time: Time, pattern: str) -> str | None:
    """Return `time` formatted by a pattern; None when the pattern needs a part that a date with zero parts lacks."""
    out: list[str] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "%" and position + 1 < len(pattern):
            position += 1
            spec = pattern[position]
            if (spec in _CALENDAR and not (time.month and time.day)) or (spec in _NAMED_MONTH and not time.month):
                return None
            out.append(_SPECS[spec](time) if spec in _SPECS else spec)
        else:
            out.append(char)
        position += 1
    return "".join(out)


SECOND_NS: Final = 10**9
MAX_UNIX: Final = 32536771199
MAX_FSP: Final = 6
DAYS_BEFORE_YEAR_1: Final = 365
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _fsp(args: Sequence[Compiled]) -> int:
    """Return the argument of NOW(n), CURTIME(n), ..: the number of fractional digits."""
    if not args:
        return 0
    fsp = args[0].run((), NO_CONTEXT) if args[0].constant else 0
    if not isinstance(fsp, int) or not 0 <= fsp <= MAX_FSP:
        raise SqlRefused(1426, f"Too-big precision {fsp!r} specified for 'now'. Maximum is 6.", "42000")
    return fsp


def _now(kind: Callable[[int], ColumnType], of: Callable[[Time], SqlValue], *, utc: bool = False) -> Function:
    def build(node: Node, scope: Scope) -> Compiled:
        fsp = _fsp(arguments(node, scope, 0, 1))
        unit = 10 ** (MAX_FSP - fsp)

        def run(_row: Row, context: Context) -> SqlValue:
            moment = context.now.astimezone(UTC) if utc else session_now(context)
            return of(clock(moment.replace(microsecond=moment.microsecond // unit * unit)))

        return Compiled(run, kind(fsp))

    return build


def _same(time: Time) -> SqlValue:
    return time


def _day_only(time: Time) -> Time:
    return Time(*time[:3])


def _clock_only(time: Time) -> Duration:
    return Duration(span_of_clock(time))


def _date_kind(_fsp: int) -> ColumnType:
    return DATE


def _on_real(read: Callable[[Time], SqlValue]) -> Callable[[Time], SqlValue]:
    """NULL for dates that the calendar does not have."""
    return lambda time: read(time) if is_real(time) else None


def _time_ordinal(time: Time) -> int:
    return date(time.year, time.month, time.day).toordinal()


def _to_days(time: Time) -> int:
    return _time_ordinal(time) + DAYS_BEFORE_YEAR_1


def _parts(unit: str) -> Callable[[Time, int], int]:
    """Return the function of EXTRACT for a unit: its parts side by side; the time of day comes in nanoseconds."""
    first, _, last = unit.partition("_")
    if unit in _DATE_PARTS:
        return lambda time, _span: _DATE_PARTS[unit](time)
    names = _CLOCK_PARTS[_CLOCK_PARTS.index(first) : _CLOCK_PARTS.index(last or first) + 1]

    def number(time: Time, span: int) -> int:
        hours, rest = divmod(abs(span), 3600 * SECOND_NS)
        values = {
            "DAY": time.day,
            "HOUR": hours,
            "MINUTE": rest // (60 * SECOND_NS),
            "SECOND": rest // SECOND_NS % 60,
            "MICROSECOND": rest // 1000 % 10**6,
        }
        text = "".join(f"{values[name]:06}" if name == "MICROSECOND" else f"{values[name]:02}" for name in names)
        return int(text) * (-1 if span < 0 else 1)

    return number


_CLOCK_PARTS: Final = ("DAY", "HOUR", "MINUTE", "SECOND", "MICROSECOND")
_DATE_PARTS: Final[Mapping[str, Callable[[Time], int]]] = {
    "YEAR": lambda time: time.year,
    "QUARTER": lambda time: (time.month + 2) // 3,
    "MONTH": lambda time: time.month,
    "WEEK": lambda time: week(time, 0),
    "DAY": lambda time: time.day,
    "YEAR_MONTH": lambda time: time.year * 100 + time.month,
}


def _extract(node: Node, scope: Scope) -> Compiled:
    unit, value = node.expressions[0].name.removeprefix("SQL_TSI_"), compile_scalar(node.expressions[1], scope)
    if unit not in UNITS:
        raise SqlRefused(1064, f"You have an error in your SQL syntax near '{unit}': it is no unit of time", "42000")
    number = _parts(unit)
    dated = unit in _DATE_PARTS or unit.startswith("DAY")

    def run(row: Row, context: Context) -> SqlValue:
        argument = value.run(row, context)
        if dated:
            time = moment_of(argument, value.type, context)
            return None if time is None else number(time, span_of_clock(time))
        span = span_of(argument, value.type, context)
        return None if span is None else number(Time(0, 0, 0), int(span))

    return Compiled(run, INT)


def _part(unit: str) -> Function:
    number = _parts(unit)
    if unit in _DATE_PARTS:
        return define("m", INT, lambda time: number(time, 0))
    return define("p", INT, lambda span: abs(number(Time(0, 0, 0), int(span))))


def _last_day(time: Time) -> Time | None:
    if not time.month:
        return None
    following = date(time.year + time.month // 12, time.month % 12 + 1, 1) if time[:2] != (9999, 12) else None
    last = date.max if following is None else following - timedelta(days=1)
    return clock(last)


def _year_week(time: Time, mode: int = 0) -> int:
    year, number = year_week(time.year, time.month, time.day, mode & 7 | 2)
    return year * 100 + number


def _typed(kind: Callable[[int], ColumnType], read: Callable[[str], SqlValue]) -> Function:
    """DATE '..', TIME '..' and TIMESTAMP '..'; SqlRefused 1525 for an invalid text."""

    def build(node: Node, _scope: Scope) -> Compiled:
        text = node.expressions[0].this
        value, fsp = read(text), min(len(text.partition(".")[2]), MAX_FSP)
        if value is None:
            raise SqlRefused(1525, f"Incorrect {node.name.split()[0]} value: '{text}'", "HY000")
        return constant(value, kind(fsp))

    return build


def _temporal_decimals(args: Sequence[Compiled]) -> int:
    """Return the decimals of the first argument: those of a literal text are counted, other texts have six."""
    first = args[0]
    if family_of(first.type) in {Family.MOMENT, Family.SPAN, Family.INT, Family.DECIMAL}:
        return min(max(first.type.decimal, 0), MAX_FSP)
    if first.constant:
        text = str(first.run((), NO_CONTEXT))
        return min(len(text.partition(".")[2]), MAX_FSP)
    return MAX_FSP


def _unix_call(node: Node, scope: Scope) -> Compiled:
    args = arguments(node, scope, 0, 1)
    fsp = _temporal_decimals(args) if args else 0
    kind = decimal_type(12 + fsp, fsp) if fsp else INT

    def seconds(context: Context, time: Time | None = None) -> SqlValue:
        if time is None:
            return int(context.now.timestamp())
        local = to_datetime(time)
        since = timedelta(0) if local is None else local.replace(tzinfo=context.zone) - _EPOCH
        micros = since // timedelta(microseconds=1)
        micros = micros if 0 <= micros <= MAX_UNIX * 10**6 else 0
        return Decimal(micros // 10 ** (MAX_FSP - fsp)).scaleb(-fsp) if fsp else micros // 10**6

    return define("m", kind, seconds, least=0, session=True)(node, scope)


def _from_unix_call(node: Node, scope: Scope) -> Compiled:
    args = arguments(node, scope, 1, 2)
    fsp = min(max(args[0].type.decimal, 0), MAX_FSP) if family_of(args[0].type) is not Family.TEXT else MAX_FSP

    def moment(context: Context, seconds: Number, pattern: str | None = None) -> SqlValue:
        if not 0 <= seconds <= MAX_UNIX:
            return None
        micros = round(Decimal(str(seconds)) * 10**6)
        instant = _EPOCH + timedelta(microseconds=micros)
        time = clock(instant.astimezone(context.zone).replace(tzinfo=None))
        return time if pattern is None else format_time(time, pattern)

    kind = TEXT if len(args) == 2 else datetime_type(fsp)
    return define("ds", kind, moment, least=1, session=True)(node, scope)


def _seconds(span: int) -> int:
    return abs(span) // SECOND_NS * (1 if span >= 0 else -1)


_NOW: Final = _now(datetime_type, _same)
_TODAY: Final = _now(_date_kind, _day_only)
_CLOCK: Final = _now(time_type, _clock_only)
_DAY: Final = _part("DAY")

TIME_FUNCTIONS: Final[Mapping[str, Function]] = {
    "CURDATE": _TODAY,
    "CURRENT_DATE": _TODAY,
    "CURRENT_TIME": _CLOCK,
    "CURRENT_TIMESTAMP": _NOW,
    "CURTIME": _CLOCK,
    "DATE": define("m", DATE, _day_only),
    "DATE LITERAL": _typed(
        _date_kind, lambda text: None if (time := parse_time(text)) is None or any(time[3:]) else time
    ),
    "DATEDIFF": define(
        "mm", INT, lambda a, b: _time_ordinal(a) - _time_ordinal(b) if is_real(a) and is_real(b) else None
    ),
    "DATE_FORMAT": define("ms", TEXT, format_time),
    "DAY": _DAY,
    "DAYNAME": define("m", TEXT, _on_real(lambda time: DAYS[(_time_ordinal(time) - 1) % 7])),
    "DAYOFMONTH": _DAY,
    "DAYOFWEEK": define("m", INT, _on_real(lambda time: _time_ordinal(time) % 7 + 1)),
    "DAYOFYEAR": define("m", INT, _on_real(lambda time: _time_ordinal(time) - date(time.year, 1, 1).toordinal() + 1)),
    "EXTRACT": _extract,
    "FROM_UNIXTIME": _from_unix_call,
    "HOUR": _part("HOUR"),
    "LAST_DAY": define("m", DATE, _last_day),
    "LOCALTIME": _NOW,
    "LOCALTIMESTAMP": _NOW,
    "MICROSECOND": _part("MICROSECOND"),
    "MINUTE": _part("MINUTE"),
    "MONTH": _part("MONTH"),
    "MONTHNAME": define("m", TEXT, lambda time: MONTHS[time.month - 1] if time.month else None),
    "NOW": _NOW,
    "QUARTER": _part("QUARTER"),
    "SECOND": _part("SECOND"),
    "TIME": define("p", lambda args: time_type(_temporal_decimals(args)), lambda span: span),
    "TIME LITERAL": _typed(
        time_type, lambda text: None if (span := parse_span(text, MAX_FSP)) is None else Duration(span * 1000)
    ),
    "TIMESTAMP": define(
        "mp",
        lambda args: datetime_type(_temporal_decimals(args)),
        lambda time, span=0: (
            clock(start + timedelta(microseconds=span // 1000)) if span and (start := to_datetime(time)) else time
        ),
        least=1,
    ),
    "TIMESTAMP LITERAL": _typed(datetime_type, parse_time),
    "TIME_TO_SEC": define("p", INT, _seconds),
    "TO_DAYS": define("m", INT, _on_real(_to_days)),
    "UNIX_TIMESTAMP": _unix_call,
    "TO_SECONDS": define("m", INT, _on_real(lambda t: _to_days(t) * 86400 + span_of_clock(t) // SECOND_NS)),
    "UTC_DATE": _now(_date_kind, _day_only, utc=True),
    "UTC_TIME": _now(time_type, _clock_only, utc=True),
    "UTC_TIMESTAMP": _now(datetime_type, _same, utc=True),
    "WEEK": define("mi", INT, lambda time, mode=0: week(time, mode) if is_real(time) else None, least=1),
    "WEEKDAY": define("m", INT, _on_real(lambda time: (_time_ordinal(time) - 1) % 7)),
    "WEEKOFYEAR": define("m", INT, _on_real(lambda time: week(time, 3))),
    "YEAR": _part("YEAR"),
    "YEARWEEK": define("mi", INT, lambda time, mode=0: _year_week(time, mode) if is_real(time) else None, least=1),
}
"""By name."""


_OVERFLOW: Final = 1441
_MONTHS: Final[Mapping[str, int]] = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_MICROS: Final[Mapping[str, int]] = {
    "MICROSECOND": 1,
    "SECOND": 10**6,
    "MINUTE": 60 * 10**6,
    "HOUR": 3600 * 10**6,
    "DAY": 86400 * 10**6,
    "WEEK": 7 * 86400 * 10**6,
}
DAY_UNITS: Final = frozenset({"DAY", "WEEK", "MONTH", "QUARTER", "YEAR", "YEAR_MONTH"})
"""Units that leave a date a date."""
_HAS_CLOCK: Final = re.compile(r"\s*\S+[ T]\s*\d|\s*\d{12}|.*:", re.ASCII)


class IntervalSpan(NamedTuple):
    """An interval: months, whose length depends on where they begin, and microseconds."""

    months: int
    micros: int

    def __neg__(self) -> "IntervalSpan":
        return IntervalSpan(-self.months, -self.micros)


def span_of_interval(value: SqlValue, kind: ColumnType, unit: str, context: Context) -> IntervalSpan | None:
    """Return the interval of INTERVAL `value` `unit`."""
    if value is None:
        return None
    if "_" in unit:
        return _composite(string_of(value, kind) or "", unit)
    amount = decimal_of(value, kind, context) or Decimal(0)
    if isinstance(value, str) and unit != "SECOND":
        amount = Decimal(int(amount))
    if unit in _MONTHS:
        return IntervalSpan(round_exact(amount) * _MONTHS[unit], 0)
    if unit == "SECOND":
        return IntervalSpan(0, round_exact(amount * _MICROS[unit]))
    return IntervalSpan(0, round_exact(amount) * _MICROS[unit])


def _composite(text: str, unit: str) -> IntervalSpan:
    sign = -1 if text.strip().startswith("-") else 1
    digits = re.findall(r"\d+", text)
    first, last = unit.split("_")
    if unit == "YEAR_MONTH":
        years, months = ([0, 0] + [int(part) for part in digits])[-2:]
        return IntervalSpan(sign * (years * 12 + months), 0)
    units = _CLOCK_PARTS[_CLOCK_PARTS.index(first) : _CLOCK_PARTS.index(last) + 1]
    if last == "MICROSECOND" and len(digits) > 1:
        digits[-1] = digits[-1].ljust(6, "0")[:6]
    pairs = zip(reversed(units), reversed(digits), strict=False)
    return IntervalSpan(0, sign * sum(int(part) * _MICROS[name] for name, part in pairs))


def moved(time: Time, span: IntervalSpan, context: Context) -> Time | None:
    """Return `time` + `span`; None with a warning outside the years 0 to 9999."""
    start = to_datetime(_month_moved(time, span.months)) if is_real(time) else None
    if start is None:
        if is_real(time):
            context.warn(_OVERFLOW, "Datetime function: datetime field overflow")
        return None
    try:
        return clock(start + timedelta(microseconds=span.micros))
    except OverflowError:
        context.warn(_OVERFLOW, "Datetime function: datetime field overflow")
        return None


def _month_moved(time: Time, months: int) -> Time:
    if not months:
        return time
    year, month = divmod(time.year * 12 + time.month - 1 + months, 12)
    month += 1
    for day in range(time.day, time.day - 4, -1):
        result = time._replace(year=year, month=month, day=day)
        if to_datetime(result) is not None:
            return result
    return time._replace(year=year, month=month)


def _add_call(node: Node, scope: Scope) -> Compiled:
    """DATE_ADD, DATE_SUB, ADDDATE, SUBDATE: the second argument is an interval, or a number of days: ADDDATE(d, 3)."""
    if len(node.expressions) != 2:
        raise wrong_count(node.name)
    first, second = node.expressions
    interval = type(second).__name__ == "Interval"
    unit = second.args["unit"].name if interval else "DAY"
    amount = compile_scalar(second.this if interval else second, scope)
    return _added(compile_scalar(first, scope), amount, unit, minus=node.name in {"DATE_SUB", "SUBDATE"})


def _added(first: Compiled, amount: Compiled, unit: str, *, minus: bool) -> Compiled:
    kind = _result_kind(first.type, amount.type, unit)

    def run(row: Row, context: Context) -> SqlValue:
        value = first.run(row, context)
        span = span_of_interval(amount.run(row, context), amount.type, unit, context)
        if value is None or span is None:
            return None
        span = -span if minus else span
        if kind.code is T.TIME:
            start = span_of(value, first.type, context)
            return None if start is None else Duration(start + span.micros * 1000)
        time = moment_of(value, first.type, context)
        result = None if time is None else moved(time, span, context)
        if result is None or kind is not TEXT:
            return result
        if unit in DAY_UNITS and not _HAS_CLOCK.match(string_of(value, first.type) or ""):
            return render_date(result)
        return render_time(result, 6 if result.microsecond else 0)

    return Compiled(run, kind, "utf8mb4_bin", 4)


def _result_kind(kind: ColumnType, amount: ColumnType, unit: str) -> ColumnType:
    fsp = 6 if unit.endswith("MICROSECOND") else max(amount.decimal, 0) if unit == "SECOND" else 0
    fsp = min(max(fsp, kind.decimal, 0), 6)
    if kind.code in DATES:
        return DATE if unit in DAY_UNITS else datetime_type(fsp)
    if family_of(kind) is Family.MOMENT:
        return datetime_type(fsp)
    if kind.code is T.TIME:
        return datetime_type(fsp) if unit in DAY_UNITS else time_type(fsp)
    return TEXT


def span_between(first: Time, second: Time) -> timedelta | None:
    """Return the time from `first` to `second`; None if one is no valid date."""
    start, end = to_datetime(first), to_datetime(second)
    return None if start is None or end is None else end - start


def months_between(first: Time, second: Time) -> int:
    """Return the number of whole months from `first` to `second`."""
    if second < first:
        return -months_between(second, first)
    months = (second.year - first.year) * 12 + second.month - first.month
    return months - (tuple(second[2:]) < tuple(first[2:]))


def _timestampdiff(node: Node, scope: Scope) -> Compiled:
    if len(node.expressions) != 3:
        raise wrong_count(node.name)
    unit = node.expressions[0].name
    first, second = (compile_scalar(part, scope) for part in node.expressions[1:])
    if unit not in _MONTHS and unit not in _MICROS:
        raise SqlRefused(1064, f"TIMESTAMPDIFF does not take the unit {unit}", "42000")

    def run(row: Row, context: Context) -> SqlValue:
        start = moment_of(first.run(row, context), first.type, context)
        end = moment_of(second.run(row, context), second.type, context)
        span = None if start is None or end is None else span_between(start, end)
        if start is None or end is None or span is None:
            return None
        if unit in _MONTHS:
            months = months_between(start, end)
            return abs(months) // _MONTHS[unit] * (1 if months >= 0 else -1)
        micros = span // timedelta(microseconds=1)
        return abs(micros) // _MICROS[unit] * (1 if micros >= 0 else -1)

    return Compiled(run, INT)


INTERVAL_FUNCTIONS: Final[Mapping[str, Function]] = {
    "ADDDATE": _add_call,
    "DATE_ADD": _add_call,
    "DATE_SUB": _add_call,
    "SUBDATE": _add_call,
    "TIMESTAMPDIFF": _timestampdiff,
}
"""By name."""
