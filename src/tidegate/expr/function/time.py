"""Functions of dates and times.

    NOW(6) CURDATE() UTC_TIME()            the statement's moment, cut to the decimals asked for
    YEAR(d) .. MICROSECOND(t)              parts; EXTRACT(DAY_HOUR FROM d) several of them as one number
    UNIX_TIMESTAMP(d) FROM_UNIXTIME(n)     seconds since 1970, by the session's time zone
    TO_DAYS(d) LAST_DAY(d)                 days since the year 0: 0001-01-01 is day 366

Functions of the calendar give NULL for dates with zero parts.  Source: MySQL manual, "Date and Time Functions".
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

from tidegate.expr.compiled import Compiled
from tidegate.expr.form import compile_scalar
from tidegate.expr.function.form import Function, arguments, define
from tidegate.expr.function.format import DAYS, MONTHS, format_time, week, year_week
from tidegate.expr.operator.literal import constant
from tidegate.expr.relation import Row
from tidegate.expr.result_type import DATE, INT, TEXT, ValueFamily, datetime_type, decimal_type, family_of, time_type
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.syntax.words import UNITS
from tidegate.model.errors import SqlRefused
from tidegate.model.table import ColumnType
from tidegate.mysql.context import NO_CONTEXT, Context
from tidegate.mysql.convert.time import parse_span
from tidegate.mysql.packed_time import Time
from tidegate.mysql.value.kinds import Duration, SqlValue
from tidegate.mysql.value.number import Number
from tidegate.mysql.value.time import (
    clock,
    is_real,
    moment_of,
    parse_time,
    session_now,
    span_of,
    span_of_clock,
    to_datetime,
)

SECOND_NS: Final = 10**9
MAX_UNIX: Final = 32536771199
MAX_FSP: Final = 6
DAYS_BEFORE_YEAR_1: Final = 365


def _fsp(args: Sequence[Compiled]) -> int:
    """The decimals that the one argument of NOW(n) and its like asks for."""
    if not args:
        return 0
    asked = args[0].run((), NO_CONTEXT) if args[0].constant else 0
    if not isinstance(asked, int) or not 0 <= asked <= MAX_FSP:
        raise SqlRefused(1426, f"Too-big precision {asked!r} specified for 'now'. Maximum is 6.", "42000")
    return asked


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


def _ordinal(time: Time) -> int:
    return date(time.year, time.month, time.day).toordinal()


def _to_days(time: Time) -> int:
    return _ordinal(time) + DAYS_BEFORE_YEAR_1


def _parts(unit: str) -> Callable[[Time, int], int]:
    """EXTRACT's number for a unit: its parts side by side; the clock comes as nanoseconds."""
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
        found = value.run(row, context)
        if dated:
            time = moment_of(found, value.type, context)
            return None if time is None else number(time, span_of_clock(time))
        span = span_of(found, value.type, context)
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
    """DATE '..', TIME '..' and TIMESTAMP '..'; SqlRefused 1525 for what is none."""

    def build(node: Node, _scope: Scope) -> Compiled:
        text = node.expressions[0].this
        value, fsp = read(text), min(len(text.partition(".")[2]), MAX_FSP)
        if value is None:
            raise SqlRefused(1525, f"Incorrect {node.name.split()[0]} value: '{text}'", "HY000")
        return constant(value, kind(fsp))

    return build


def _read_span(text: str) -> SqlValue:
    span = parse_span(text, MAX_FSP)
    return None if span is None else Duration(span * 1000)


def _read_date(text: str) -> SqlValue:
    time = parse_time(text)
    return None if time is None or any(time[3:]) else time


def _temporal_decimals(args: Sequence[Compiled]) -> int:
    """Decimals of the first argument; of a literal text as many as it shows, of other texts none known: six."""
    first = args[0]
    if family_of(first.type) in {ValueFamily.MOMENT, ValueFamily.SPAN, ValueFamily.INT, ValueFamily.DECIMAL}:
        return min(max(first.type.decimal, 0), MAX_FSP)
    if first.constant:
        text = str(first.run((), NO_CONTEXT))
        return min(len(text.partition(".")[2]), MAX_FSP)
    return MAX_FSP


def _time_kind(args: Sequence[Compiled]) -> ColumnType:
    """TIME with the most decimals of the arguments."""
    return time_type(max(_temporal_decimals((arg,)) for arg in args) if args else 0)


def _datetime_kind(args: Sequence[Compiled]) -> ColumnType:
    return datetime_type(_temporal_decimals(args))


def _unix_kind(args: Sequence[Compiled]) -> ColumnType:
    fsp = _temporal_decimals(args) if args else 0
    return decimal_type(12 + fsp, fsp) if fsp else INT


def _unix_call(node: Node, scope: Scope) -> Compiled:
    args = arguments(node, scope, 0, 1)
    kind = _unix_kind(args)

    def seconds(context: Context, time: Time | None = None) -> SqlValue:
        if time is None:
            return int(context.now.timestamp())
        local = to_datetime(time)
        micros = 0 if local is None else _micros(local.replace(tzinfo=context.zone))
        micros = micros if 0 <= micros <= MAX_UNIX * 10**6 else 0
        if not kind.decimal:
            return micros // 10**6
        return Decimal(micros // 10 ** (MAX_FSP - kind.decimal)).scaleb(-kind.decimal)

    return define("m", kind, seconds, least=0, session=True)(node, scope)


def _micros(moment: datetime) -> int:
    return (moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _from_unix_call(node: Node, scope: Scope) -> Compiled:
    args = arguments(node, scope, 1, 2)
    fsp = min(max(args[0].type.decimal, 0), MAX_FSP) if family_of(args[0].type) is not ValueFamily.TEXT else MAX_FSP

    def moment(context: Context, seconds: Number, pattern: str | None = None) -> SqlValue:
        if not 0 <= seconds <= MAX_UNIX:
            return None
        micros = round(Decimal(str(seconds)) * 10**6)
        found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
        time = clock(found.astimezone(context.zone).replace(tzinfo=None))
        return time if pattern is None else format_time(time, pattern)

    kind = TEXT if len(args) == 2 else datetime_type(fsp)
    return define("ds", kind, moment, least=1, session=True)(node, scope)


def _timestamp_call(node: Node, scope: Scope) -> Compiled:
    """TIMESTAMP(d) and TIMESTAMP(d, t)."""

    def made(time: Time, span: int = 0) -> SqlValue:
        start = to_datetime(time)
        return time if start is None or not span else clock(start + timedelta(microseconds=span // 1000))

    return define("mp", _datetime_kind, made, least=1)(node, scope)


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
    "DATE LITERAL": _typed(_date_kind, _read_date),
    "DATEDIFF": define("mm", INT, lambda a, b: _ordinal(a) - _ordinal(b) if is_real(a) and is_real(b) else None),
    "DATE_FORMAT": define("ms", TEXT, format_time),
    "DAY": _DAY,
    "DAYNAME": define("m", TEXT, _on_real(lambda time: DAYS[(_ordinal(time) - 1) % 7])),
    "DAYOFMONTH": _DAY,
    "DAYOFWEEK": define("m", INT, _on_real(lambda time: _ordinal(time) % 7 + 1)),
    "DAYOFYEAR": define("m", INT, _on_real(lambda time: _ordinal(time) - date(time.year, 1, 1).toordinal() + 1)),
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
    "TIME": define("p", _time_kind, lambda span: span),
    "TIME LITERAL": _typed(time_type, _read_span),
    "TIMESTAMP": _timestamp_call,
    "TIMESTAMP LITERAL": _typed(datetime_type, parse_time),
    "TIME_TO_SEC": define("p", INT, _seconds),
    "TO_DAYS": define("m", INT, _on_real(_to_days)),
    "UNIX_TIMESTAMP": _unix_call,
    "TO_SECONDS": define("m", INT, _on_real(lambda t: _to_days(t) * 86400 + span_of_clock(t) // SECOND_NS)),
    "UTC_DATE": _now(_date_kind, _day_only, utc=True),
    "UTC_TIME": _now(time_type, _clock_only, utc=True),
    "UTC_TIMESTAMP": _now(datetime_type, _same, utc=True),
    "WEEK": define("mi", INT, lambda time, mode=0: week(time, mode) if is_real(time) else None, least=1),
    "WEEKDAY": define("m", INT, _on_real(lambda time: (_ordinal(time) - 1) % 7)),
    "WEEKOFYEAR": define("m", INT, _on_real(lambda time: week(time, 3))),
    "YEAR": _part("YEAR"),
    "YEARWEEK": define("mi", INT, lambda time, mode=0: _year_week(time, mode) if is_real(time) else None, least=1),
}
"""By name."""
