"""Dates as text and back: DATE_FORMAT, TIME_FORMAT, STR_TO_DATE, and the numbers of weeks.

    %Y %y year    %m %c %M %b month    %d %e %D day    %H %k %h %I %l hour    %i minute    %s %S second
    %f microsecond    %p AM, PM    %r %T clocks    %W %a %w weekday    %j day of the year    %U %u %V %v %X %x weeks

    week mode    bit 0: weeks begin on Monday    bit 1: 1..53 instead of 0..53    bit 2: which week is the first

Source: MySQL manual, DATE_FORMAT, STR_TO_DATE, WEEK.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date
from functools import lru_cache
from typing import Final, NamedTuple

from tidegate.expr.convert.number import full_year
from tidegate.kv.packed_time import Time

__all__ = ["DAYS", "MONTHS", "Read", "format_time", "has_clock", "has_date", "read_time", "week", "year_week"]

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
    """WEEK(d, mode)."""
    return year_week(time.year, time.month, time.day, mode & 7)[1]


def _ordinal(day: int) -> str:
    suffix = "th" if 10 <= day % 100 <= 19 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{suffix}"


def _twelve(hour: int) -> int:
    return (hour + 11) % 12 + 1


def _half(hour: int) -> str:
    return "AM" if hour % 24 < 12 else "PM"


def _weekday(time: Time) -> int:
    return date(time.year, time.month, time.day).weekday()


_SPECS: Final[Mapping[str, Callable[[Time], str]]] = {
    "Y": lambda t: f"{t.year:04}",
    "y": lambda t: f"{t.year % 100:02}",
    "m": lambda t: f"{t.month:02}",
    "c": lambda t: str(t.month),
    "M": lambda t: MONTHS[t.month - 1],
    "b": lambda t: MONTHS[t.month - 1][:3],
    "d": lambda t: f"{t.day:02}",
    "e": lambda t: str(t.day),
    "D": lambda t: _ordinal(t.day),
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
    """`time` in a pattern; None when the pattern asks for what a date with zero parts does not have."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "%" and at + 1 < len(pattern):
            at += 1
            spec = pattern[at]
            if (spec in _CALENDAR and not (time.month and time.day)) or (spec in _NAMED_MONTH and not time.month):
                return None
            out.append(_SPECS[spec](time) if spec in _SPECS else spec)
        else:
            out.append(char)
        at += 1
    return "".join(out)


class Read(NamedTuple):
    """What STR_TO_DATE found."""

    time: Time
    dated: bool
    clocked: bool


_DATED: Final = frozenset("YymcMbdeDjWawUuVvXx")
_CLOCKED: Final = frozenset("HkhIlisSfprT")
_READ: Final[Mapping[str, str]] = {
    "Y": r"(?P<year>\d{1,4})",
    "y": r"(?P<short>\d{1,2})",
    "m": r"(?P<month>\d{1,2})",
    "c": r"(?P<month>\d{1,2})",
    "M": r"(?P<name>[A-Za-z]+)",
    "b": r"(?P<name>[A-Za-z]{3})",
    "d": r"(?P<day>\d{1,2})",
    "e": r"(?P<day>\d{1,2})",
    "D": r"(?P<day>\d{1,2})(?:st|nd|rd|th)",
    "H": r"(?P<hour>\d{1,2})",
    "k": r"(?P<hour>\d{1,2})",
    "h": r"(?P<hour12>\d{1,2})",
    "I": r"(?P<hour12>\d{1,2})",
    "l": r"(?P<hour12>\d{1,2})",
    "i": r"(?P<minute>\d{1,2})",
    "s": r"(?P<second>\d{1,2})",
    "S": r"(?P<second>\d{1,2})",
    "f": r"(?P<fraction>\d{1,6})",
    "p": r"(?P<half>[AaPp][Mm])",
    "r": r"(?P<hour12>\d{1,2}):(?P<minute>\d{1,2}):(?P<second>\d{1,2})\s*(?P<half>[AaPp][Mm])",
    "T": r"(?P<hour>\d{1,2}):(?P<minute>\d{1,2}):(?P<second>\d{1,2})",
    "j": r"(?P<ordinal>\d{1,3})",
    "W": r"[A-Za-z]+day",
    "a": r"[A-Za-z]{3}",
    "w": r"[0-6]",
    "%": "%",
}


def has_date(pattern: str) -> bool:
    """Return whether a pattern asks for a part of a date."""
    return bool(set(re.findall(r"%(.)", pattern)) & _DATED)


def has_clock(pattern: str) -> bool:
    """Return whether a pattern asks for a part of a clock."""
    return bool(set(re.findall(r"%(.)", pattern)) & _CLOCKED)


@lru_cache(maxsize=256)
def _reader(pattern: str) -> re.Pattern[str] | None:
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "%" and at + 1 < len(pattern):
            at += 1
            if pattern[at] not in _READ:
                return None
            parts.append(rf"\s*{_READ[pattern[at]]}")
        else:
            parts.append(r"\s*" if char.isspace() else re.escape(char))
        at += 1
    try:
        return re.compile("".join(parts))
    except re.error:
        return None


def read_time(text: str, pattern: str) -> Read | None:
    """Return the date and clock that `text` shows in a pattern; None when it does not fit."""
    reader = _reader(pattern)
    found = reader.match(text.strip()) if reader else None
    if found is None:
        return None
    got = {name: value for name, value in found.groupdict().items() if value is not None}
    month = int(got.get("month", 0))
    if "name" in got:
        names = [name.lower()[: len(got["name"])] for name in MONTHS]
        month = names.index(got["name"].lower()) + 1 if got["name"].lower() in names else 0
    year = full_year(int(got["short"])) if "short" in got else int(got.get("year", 0))
    hour = int(got.get("hour", 0))
    if "hour12" in got:
        hour = int(got["hour12"]) % 12 + (12 if got.get("half", "AM").upper() == "PM" else 0)
    day = int(got.get("day", 0))
    if "ordinal" in got and year:
        made = date.fromordinal(_number(year, 1, 1) + int(got["ordinal"]) - 1)
        month, day = made.month, made.day
    micros = int(got.get("fraction", "0").ljust(6, "0"))
    time = Time(year, month, day, hour, int(got.get("minute", 0)), int(got.get("second", 0)), micros)
    return Read(time, has_date(pattern), has_clock(pattern)) if _possible(time) else None


def _possible(time: Time) -> bool:
    if time.month > 12 or time.hour > 23 or time.minute > 59 or time.second > 59:
        return False
    longest = (31, _days_in(time.year) - 337, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    return time.day <= (longest[time.month - 1] if time.month else 31)
