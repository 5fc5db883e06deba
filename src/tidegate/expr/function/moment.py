"""Functions that make dates and times of other things.

    UNIX_TIMESTAMP(d) FROM_UNIXTIME(n)     seconds since 1970, by the session's time zone
    STR_TO_DATE(text, pattern)             a DATE, DATETIME or TIME, by what the pattern asks for
    TIMESTAMP MAKEDATE MAKETIME SEC_TO_TIME ADDTIME SUBTIME TIMEDIFF PERIOD_ADD PERIOD_DIFF CONVERT_TZ

Source: MySQL manual, "Date and Time Functions".
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Final

from tidegate.expr.compiled import Compiled
from tidegate.expr.context import NO_CONTEXT, Context
from tidegate.expr.convert.span import SPAN_LIMIT
from tidegate.expr.convert.time import zone_of
from tidegate.expr.function.form import Function, arguments, define
from tidegate.expr.function.format import (
    format_time,
    has_clock,
    has_date,
    read_time,
)
from tidegate.expr.relation import Row
from tidegate.expr.result_type import DATE, INT, TEXT, ValueFamily, datetime_type, decimal_type, family_of, time_type
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.value.kinds import Duration, SqlValue
from tidegate.expr.value.number import Number
from tidegate.expr.value.text import string_of
from tidegate.expr.value.time import (
    clock,
    is_real,
    moment_of,
    parse_time,
    span_of,
    span_of_clock,
    to_datetime,
    wrong_value,
)
from tidegate.kv.packed_time import Time
from tidegate.model.errors import InputError
from tidegate.model.table import ColumnType

__all__ = ["MAX_FSP", "MOMENT_FUNCTIONS", "SECOND_NS", "temporal_decimals", "time_kind"]

SECOND_NS: Final = 10**9


MAX_UNIX: Final = 32536771199


MAX_FSP: Final = 6


def temporal_decimals(args: Sequence[Compiled]) -> int:
    """Decimals of the first argument; of a literal text as many as it shows, of other texts none known: six."""
    first = args[0]
    if family_of(first.type) in {ValueFamily.MOMENT, ValueFamily.SPAN, ValueFamily.INT, ValueFamily.DECIMAL}:
        return min(max(first.type.decimal, 0), MAX_FSP)
    if first.constant:
        text = str(first.run((), NO_CONTEXT))
        return min(len(text.partition(".")[2]), MAX_FSP)
    return MAX_FSP


def time_kind(args: Sequence[Compiled]) -> ColumnType:
    """TIME with the most decimals of the arguments."""
    return time_type(max(temporal_decimals((arg,)) for arg in args) if args else 0)


def _datetime_kind(args: Sequence[Compiled]) -> ColumnType:
    return datetime_type(temporal_decimals(args))


def _unix_kind(args: Sequence[Compiled]) -> ColumnType:
    fsp = temporal_decimals(args) if args else 0
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


def _str_to_date(node: Node, scope: Scope) -> Compiled:
    args = arguments(node, scope, 2, 2)
    pattern = str(args[1].run((), NO_CONTEXT)) if args[1].constant else "%Y %H"
    dated, clocked, fsp = has_date(pattern), has_clock(pattern), MAX_FSP if "%f" in pattern else 0

    def read(context: Context, text: str, wanted: str) -> SqlValue:
        found = read_time(text, wanted)
        if found is None or (dated and not is_real(found.time) and "NO_ZERO_IN_DATE" in context.sql_mode):
            wrong_value("datetime", text, context)
            return None
        return found.time if found.dated else Duration(span_of_clock(found.time))

    kind = datetime_type(fsp) if dated and clocked else DATE if dated else time_type(fsp)
    return define("ss", kind, read, session=True)(node, scope)


def _timestamp_call(node: Node, scope: Scope) -> Compiled:
    """TIMESTAMP(d) and TIMESTAMP(d, t)."""

    def made(time: Time, span: int = 0) -> SqlValue:
        start = to_datetime(time)
        return time if start is None or not span else clock(start + timedelta(microseconds=span // 1000))

    return define("mp", _datetime_kind, made, least=1)(node, scope)


def _add_time(sign: int) -> Function:
    def build(node: Node, scope: Scope) -> Compiled:
        args = arguments(node, scope, 2, 2)
        first, second = args
        moments = family_of(first.type) is ValueFamily.MOMENT
        kind = datetime_type(temporal_decimals(args)) if moments else time_kind(args)
        if family_of(first.type) is ValueFamily.TEXT:
            kind = TEXT

        def run(row: Row, context: Context) -> SqlValue:
            value, span = first.run(row, context), span_of(second.run(row, context), second.type, context)
            if value is None or span is None:
                return None
            return _shifted(value, first.type, sign * int(span), context, text=kind is TEXT)

        return Compiled(run, kind, "utf8mb4_bin", 4)

    return build


def _shifted(value: SqlValue, kind: ColumnType, span: int, context: Context, *, text: bool) -> SqlValue:
    dated = family_of(kind) is ValueFamily.MOMENT or (text and "-" in str(value)[1:])
    if not dated:
        start = span_of(value, kind, context)
        made = None if start is None else Duration(start + span)
        return made if made is None or not text else string_of(made, time_type(6 if made % SECOND_NS else 0))
    time = moment_of(value, kind, context)
    moment = None if time is None else to_datetime(time)
    if moment is None:
        return None
    moved = clock(moment + timedelta(microseconds=span // 1000))
    return moved if not text else string_of(moved, datetime_type(6 if moved.microsecond else 0))


def _clamped(span: int) -> Duration:
    limit = SPAN_LIMIT * 1000
    return Duration(min(max(span, -limit), limit))


def _time_diff(context: Context, first: SqlValue, second: SqlValue) -> SqlValue:
    """Both dates, or both times of day."""
    if _looks_dated(first) is not _looks_dated(second):
        return None
    if _looks_dated(first):
        start, end = (moment_of(value, datetime_type(6), context) for value in (second, first))
        left, right = (None if time is None else to_datetime(time) for time in (start, end))
        return None if left is None or right is None else _clamped((right - left) // timedelta(microseconds=1) * 1000)
    left_span, right_span = (span_of(value, TEXT, context) for value in (first, second))
    return None if left_span is None or right_span is None else _clamped(left_span - right_span)


def _looks_dated(value: SqlValue) -> bool:
    return isinstance(value, Time) or (isinstance(value, str) and "-" in value[1:] and parse_time(value) is not None)


def _sec_to_time(seconds: Decimal) -> Duration:
    return _clamped(int(seconds * SECOND_NS))


def _seconds_kind(args: Sequence[Compiled]) -> ColumnType:
    """TIME with the decimals of the seconds."""
    return time_type(temporal_decimals(args[2:]))


def _make_time(hour: int, minute: int, second: Decimal) -> Duration | None:
    if not (0 <= minute < 60 and 0 <= second < 60):
        return None
    span = int(((abs(hour) * 60 + minute) * 60 + second) * SECOND_NS)
    return _clamped(-span if hour < 0 else span)


def _make_date(year: int, day: int) -> Time | None:
    year = year + (2000 if year < 70 else 1900) if 0 <= year < 100 else year
    if day <= 0 or not 0 < year <= 9999:
        return None
    ordinal = date(year, 1, 1).toordinal() + day - 1
    return clock(date.fromordinal(ordinal)) if ordinal <= date.max.toordinal() else None


def _months(period: int) -> int:
    year, month = divmod(period, 100)
    return (year + (2000 if year < 70 else 1900 if year < 100 else 0)) * 12 + month - 1


def _period_add(period: int, months: int) -> int:
    year, month = divmod(_months(period) + months, 12)
    return year * 100 + month + 1


def _convert_tz(time: Time, source: str, target: str) -> Time | None:
    zones = _zone(source), _zone(target)
    local = to_datetime(time)
    if local is None or zones[0] is None or zones[1] is None:
        return None
    return clock(local.replace(tzinfo=zones[0]).astimezone(zones[1]).replace(tzinfo=None))


def _zone(name: str) -> tzinfo | None:
    found = re.fullmatch(r"([+-])(\d{1,2}):(\d\d)", name)
    if found is not None:
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(-offset if found[1] == "-" else offset)
    try:
        return zone_of(name)
    except InputError:
        return None


MOMENT_FUNCTIONS: Final[Mapping[str, Function]] = {
    "ADDTIME": _add_time(1),
    "CONVERT_TZ": define("mss", _datetime_kind, _convert_tz),
    "FROM_UNIXTIME": _from_unix_call,
    "MAKEDATE": define("ii", DATE, _make_date),
    "MAKETIME": define("iid", _seconds_kind, _make_time),
    "PERIOD_ADD": define("ii", INT, _period_add),
    "PERIOD_DIFF": define("ii", INT, lambda first, second: _months(first) - _months(second)),
    "SEC_TO_TIME": define("d", time_kind, _sec_to_time),
    "STR_TO_DATE": _str_to_date,
    "SUBTIME": _add_time(-1),
    "TIMEDIFF": define("vv", time_kind, _time_diff, session=True),
    "TIMESTAMP": _timestamp_call,
    "UNIX_TIMESTAMP": _unix_call,
}
"""By name."""
