"""Dates as text: DATE_FORMAT, and the numbers of weeks.

    %Y %y year    %m %c %M %b month    %d %e %D day    %H %k %h %I %l hour    %i minute    %s %S second
    %f microsecond    %p AM, PM    %r %T clocks    %W %a %w weekday    %j day of the year    %U %u %V %v %X %x weeks

    week mode    bit 0: weeks begin on Monday    bit 1: 1..53 instead of 0..53    bit 2: which week is the first

Source: MySQL manual, DATE_FORMAT, WEEK.
"""

from collections.abc import Callable, Mapping
from datetime import date
from typing import Final

from tidegate.mysql.packed_time import Time

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
