"""Values as dates, times of day and moments of columns.

    DATE         the clock is cut off, not rounded
    DATETIME(n)  rounded half up to n digits, with carry
    TIMESTAMP    read on the session's clocks, kept in UTC; outside 1970-01-01 00:00:01 .. 2038-01-19 03:14:07 none;
                 so are clocks that the zone skips, which otherwise move to the end of the gap
    TIME(n)      text, numbers such as 101112, the clock of a date; clamped to 838:59:59

    0000-00-00   refused in strict mode under NO_ZERO_DATE, a warning under NO_ZERO_DATE alone
    2024-00-10   likewise under NO_ZERO_IN_DATE; a TIMESTAMP never is one
    2024-02-30   none, but under ALLOW_INVALID_DATES a DATE and a DATETIME as it is

Source: TiDB pkg/types/time.go, pkg/table/column.go (handleZeroDatetime).
"""

import re
from datetime import timedelta, tzinfo
from decimal import Decimal
from typing import Final

from tidegate.expr.cast.problem import Converted, Problem
from tidegate.expr.cast.text import plain_text
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.context import Context
from tidegate.mysql.convert.number import to_integer
from tidegate.mysql.convert.time import (
    SPAN_LIMIT,
    fsp_of,
    parse_moment,
    parse_moment_number,
    parse_span,
    round_moment,
    round_span,
    shift,
    span_of_moment,
    valid_timestamp,
)
from tidegate.mysql.datum import Duration, JsonDatum
from tidegate.mysql.packed_time import ZERO, Time, to_utc
from tidegate.mysql.value.kinds import SqlValue

_ONLY_ZEROS: Final = re.compile(r"[\s:.T-]*+0[0\s:.T-]*+", re.ASCII)
_MAX_FSP: Final = 6
_LARGEST_CLOCK: Final = 8385959


def to_moment(value: SqlValue, kind: ColumnType, context: Context) -> Converted:
    """Return the value as a DATE, DATETIME or TIMESTAMP column keeps it; a TIMESTAMP in UTC."""
    read = _read(value, fsp_of(kind), context)
    if read is None:
        return Converted(ZERO, Problem.NO_MOMENT)
    moment = Time(*read[:3]) if kind.code is T.DATE else round_moment(read, fsp_of(kind))
    if moment == ZERO:
        return Converted(ZERO, Problem.NO_MOMENT if "NO_ZERO_DATE" in context.sql_mode else None)
    if not (moment.month and moment.day) and "NO_ZERO_IN_DATE" in context.sql_mode:
        return Converted(ZERO, Problem.NO_MOMENT)
    if kind.code is T.TIMESTAMP:
        return _timestamp(moment, context.zone)
    return Converted(moment)


def _timestamp(moment: Time, zone: tzinfo) -> Converted:
    valid = valid_timestamp(moment, zone)
    problem = None if valid == moment else Problem.NO_MOMENT
    return Converted(ZERO if valid == ZERO else to_utc(valid, zone), problem)


def _read(value: SqlValue, fsp: int, context: Context) -> Time | None:
    """The wall clock that a value means; None for none."""
    any_day = "ALLOW_INVALID_DATES" in context.sql_mode
    match value:
        case Time():
            return value
        case Duration():
            now = context.now.astimezone(context.zone)
            return shift(Time(now.year, now.month, now.day), timedelta(microseconds=int(value) // 1000))
        case int():
            moment = parse_moment_number(int(value), any_day=any_day)
            return moment if moment != ZERO or value == 0 else None
        case Decimal() | float():
            return _parsed(f"{value:f}", fsp, context.zone, any_day=any_day)
        case JsonDatum(document=str(text)):
            return _parsed(text, fsp, context.zone, any_day=any_day)
    plain = plain_text(value)
    text = plain if isinstance(plain, str) else plain.decode("utf-8", "replace")
    return _parsed(text, fsp, context.zone, any_day=any_day)


def _parsed(text: str, fsp: int, zone: tzinfo, *, any_day: bool = False) -> Time | None:
    moment = parse_moment(text, fsp, zone, any_day=any_day)
    return moment if moment != ZERO or _ONLY_ZEROS.fullmatch(text) else None


def to_duration(value: SqlValue, kind: ColumnType, context: Context) -> Converted:
    """Return the value as a TIME column keeps it."""
    fsp = fsp_of(kind)
    if isinstance(value, Duration):
        return Converted(Duration(round_span(int(value) // 1000, fsp) * 1000))
    if isinstance(value, Time):
        return Converted(Duration(round_span(span_of_moment(value), fsp) * 1000))
    if isinstance(value, int | Decimal | float):
        number = to_integer(value)
        if number < -_LARGEST_CLOCK:
            return Converted(Duration(0), Problem.NO_MOMENT)
        if _LARGEST_CLOCK < number < 10**10:
            return Converted(Duration(SPAN_LIMIT * 1000), Problem.NO_MOMENT)
    plain = plain_text(value.document if isinstance(value, JsonDatum) and isinstance(value.document, str) else value)
    text = plain if isinstance(plain, str) else plain.decode("utf-8", "replace")
    span = parse_span(text, fsp)
    if span is not None:
        beyond = abs(span) == SPAN_LIMIT and not text.strip().lstrip("-").startswith("838")
        return Converted(Duration(span * 1000), Problem.NO_MOMENT if beyond else None)
    moment = _parsed(text, _MAX_FSP, context.zone)
    if moment is None:
        return Converted(Duration(0), Problem.NO_MOMENT)
    return Converted(Duration(round_span(span_of_moment(moment), fsp) * 1000))
