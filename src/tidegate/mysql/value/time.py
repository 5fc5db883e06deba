"""Values among dates and spans of time.

    moment_of   text, number, date -> Time        '2024-1-5', 20240105, '24.01.05 10:20:30.5'; a TIME is today's
    span_of     text, number, TIME -> Duration    '10:20', 102030, '-1 02:03:04.5'; of a date and time its clock

What is no date or time is None, with warning 1292.  Source: MySQL manual, "Date and Time Literals".
"""

import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Final

from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.context import Context
from tidegate.mysql.convert.time import SPAN_LIMIT, parse_moment, parse_moment_number, parse_span, round_moment
from tidegate.mysql.packed_time import ZERO, Time
from tidegate.mysql.value.kinds import Duration, JsonDatum, SqlValue
from tidegate.mysql.value.number import number_of
from tidegate.mysql.value.text import string_of

_INCORRECT: Final = 1292
_ZEROS: Final = re.compile(r"[\s:.\-/T]*+0[\s0:.\-/T]*+\Z")
_DATE_PART: Final = re.compile(
    r"\s*\d{1,4}[^\w\s:.]\d+[^\w\s:.]\d+|\s*\d{8}(?:\d{6})?(?:\.\d*)?\s*\Z|\s*\d{12}(?:\.\d*)?\s*\Z"
)
NS: Final = 1000


def wrong_value(what: str, text: object, context: Context) -> None:
    """Warning 1292 for a value that is no date or time; the same as an error where a strict statement writes."""
    message = f"Incorrect {what} value: '{text}'"
    if context.writing and context.strict:
        raise SqlRefused(_INCORRECT, message, "22007")
    context.warn(_INCORRECT, message)


@lru_cache(maxsize=4096)
def parse_time(text: str, fsp: int = 6) -> Time | None:
    """Return the date (and clock) in `text`; None when it holds none."""
    found = parse_moment(text, fsp)
    if any(found):
        return found
    return ZERO if _ZEROS.match(text) else None


def moment_of(value: SqlValue, kind: ColumnType, context: Context) -> Time | None:
    """`value` as a date with its clock."""
    if value is None or type(value) is Time:
        return value
    if isinstance(value, Duration):
        today = session_now(context)
        start = datetime(today.year, today.month, today.day)  # noqa: DTZ001 - a wall clock
        return clock(start + timedelta(microseconds=value // NS))
    if isinstance(value, str | bytes | JsonDatum):
        text = string_of(value, kind) or ""
        text = text.strip('"') if isinstance(value, JsonDatum) else text
        found = parse_time(text)
        if found is None:
            wrong_value("datetime", text, context)
        return found
    number = number_of(value, kind, context)
    assert number is not None, value
    whole = int(number)
    moment = parse_moment_number(whole)
    if not any(moment) and whole != 0:
        wrong_value("datetime", number, context)
        return None
    micros = int((Decimal(str(number)) % 1) * 10**6) if whole > 99991231 else 0
    return Time(*moment[:6], micros)


def span_of(value: SqlValue, kind: ColumnType, context: Context) -> Duration | None:
    """`value` as a span of time."""
    if value is None or type(value) is Duration:
        return value
    if isinstance(value, Time):
        return Duration(0 if kind.code is T.DATE else span_of_clock(value))
    if isinstance(value, str | bytes | JsonDatum):
        text = (string_of(value, kind) or "").strip('"')
        if _DATE_PART.match(text):
            found = parse_time(text)
            return None if found is None else Duration(span_of_clock(found))
    else:
        number = number_of(value, kind, context)
        text = format(Decimal(str(number)), "f")
    span = parse_span(text, 6)
    if span is None:
        wrong_value("time", text, context)
        return None
    if abs(span) == SPAN_LIMIT and not re.match(r"-?8385959|-?838:59:59", text):
        wrong_value("time", text, context)
    return Duration(span * NS)


def span_of_clock(time: Time) -> int:
    """Return the clock of a date and time in nanoseconds."""
    return (((time.hour * 60 + time.minute) * 60 + time.second) * 10**6 + time.microsecond) * NS


def session_now(context: Context) -> datetime:
    """Return the statement's moment on the session's clocks."""
    return context.now.astimezone(context.zone)


def clock(moment: datetime | date) -> Time:
    """Return the wall clock of a datetime."""
    if isinstance(moment, datetime):
        return Time(*moment.timetuple()[:6], moment.microsecond)
    return Time(*moment.timetuple()[:3])


def is_real(time: Time) -> bool:
    """Return whether no part of the date is zero, so that the calendar has it."""
    return bool(time.year and time.month and time.day)


def to_datetime(time: Time) -> datetime | None:
    """Return the wall clock as a datetime; None where the calendar does not have it."""
    try:
        return datetime(*time)  # noqa: DTZ001 - a wall clock
    except ValueError:
        return None


def round_time(time: Time, fsp: int) -> Time:
    """`time` with `fsp` decimals, halves up."""
    return round_moment(time, max(fsp, 0))


def round_span_ns(span: int, fsp: int) -> Duration:
    """Return a span with `fsp` decimals, halves up."""
    unit = 10 ** (9 - max(fsp, 0))
    return Duration((2 * span + unit) // (2 * unit) * unit)
