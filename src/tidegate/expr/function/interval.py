"""Dates moved by intervals, and the spans between dates.

    DATE_ADD(d, INTERVAL 1 MONTH)             the last day of a shorter month: 01-31 -> 02-29
    DATE_ADD(d, INTERVAL '1:30' HOUR_MINUTE)  units of two kinds take texts; the digits count from the right
    TIMESTAMPDIFF(MONTH, a, b)                whole units from a to b

    first argument    unit of days or more     smaller unit
    DATE              DATE                     DATETIME
    DATETIME          DATETIME                 DATETIME
    TIME              DATETIME of today        TIME
    text, number      text in the form of what it holds

What leaves the years 0 to 9999 is NULL with warning 1441.
Source: MySQL manual, "Date and Time Functions", "Temporal Intervals".
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Final, NamedTuple

from tidegate.expr.compiled import Compiled
from tidegate.expr.form import compile_scalar
from tidegate.expr.function.form import Function, wrong_count
from tidegate.expr.relation import Row
from tidegate.expr.result_type import DATE, INT, TEXT, ValueFamily, datetime_type, family_of, time_type
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.context import Context
from tidegate.mysql.convert.number import round_exact
from tidegate.mysql.packed_time import render_date, render_time
from tidegate.mysql.value.kinds import Duration, SqlValue, Time
from tidegate.mysql.value.number import decimal_of
from tidegate.mysql.value.text import string_of
from tidegate.mysql.value.time import clock, is_real, moment_of, span_of, to_datetime

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
_PARTS: Final = ("DAY", "HOUR", "MINUTE", "SECOND", "MICROSECOND")
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
    """Return the interval that `value` counts in `unit`."""
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
    units = _PARTS[_PARTS.index(first) : _PARTS.index(last) + 1]
    if last == "MICROSECOND" and len(digits) > 1:
        digits[-1] = digits[-1].ljust(6, "0")[:6]
    pairs = zip(reversed(units), reversed(digits), strict=False)
    return IntervalSpan(0, sign * sum(int(part) * _MICROS[name] for name, part in pairs))


def moved(time: Time, span: IntervalSpan, context: Context) -> Time | None:
    """`time` + `span`; None with a warning where the calendar ends."""
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
        made = time._replace(year=year, month=month, day=day)
        if to_datetime(made) is not None:
            return made
    return time._replace(year=year, month=month)


def _add_call(node: Node, scope: Scope) -> Compiled:
    """DATE_ADD and its like; the interval stands second, a plain number of days in ADDDATE(d, 3)."""
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
        found = None if time is None else moved(time, span, context)
        if found is None or kind is not TEXT:
            return found
        return _as_text(found, string_of(value, first.type) or "", unit)

    return Compiled(run, kind, "utf8mb4_bin", 4)


def _result_kind(kind: ColumnType, amount: ColumnType, unit: str) -> ColumnType:
    fsp = 6 if unit.endswith("MICROSECOND") else max(amount.decimal, 0) if unit == "SECOND" else 0
    fsp = min(max(fsp, kind.decimal, 0), 6)
    if kind.code in {T.DATE, T.NEWDATE}:
        return DATE if unit in DAY_UNITS else datetime_type(fsp)
    if family_of(kind) is ValueFamily.MOMENT:
        return datetime_type(fsp)
    if kind.code is T.TIME:
        return datetime_type(fsp) if unit in DAY_UNITS else time_type(fsp)
    return TEXT


def _as_text(time: Time, given: str, unit: str) -> str:
    if unit in DAY_UNITS and not _HAS_CLOCK.match(given):
        return render_date(time)
    return render_time(time, 6 if time.microsecond else 0)


def span_between(first: Time, second: Time) -> timedelta | None:
    """From `first` to `second`; None where one is no date of the calendar."""
    start, end = to_datetime(first), to_datetime(second)
    return None if start is None or end is None else end - start


def months_between(first: Time, second: Time) -> int:
    """Whole months from `first` to `second`."""
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
