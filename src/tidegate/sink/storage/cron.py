"""A cron line of six fields, as TiCDC writes it: when is it due next? Pure.

    seconds  minutes  hours  day of month  month  day of week
       0        0       2         *          *         *          every night at two

A field is `*` or `?`, a number, a range `1-5`, a step `*/10` or `8-20/4`, or a list of these.  Sunday is 0 and 7.
Where both days are told, one of them is enough, as in cron.

Source: the format of robfig/cron with seconds, as far as it has no names and no macros.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tidegate.model.errors import SinkConfigInvalid

_BOUNDS: Final = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_PART: Final = re.compile(r"(?:[*?]|(\d+)(?:-(\d+))?)(?:/(\d+))?")
_DAYS_MAX: Final = 8 * 366
"""The 29th of February comes once within so many days."""
_ANY: Final = datetime(2024, 1, 1)  # noqa: DTZ001  a calendar, no moment


@dataclass(frozen=True, slots=True)
class CronLine:
    """The moments that a line names; `any_day` says that a day of month or of week is enough."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool

    @classmethod
    def parse(cls, text: str) -> "CronLine":
        """Return the moments of a line. SinkConfigInvalid for what is none."""
        fields = text.split()
        if len(fields) != len(_BOUNDS):
            raise SinkConfigInvalid(f"the cron line {text!r} has {len(fields)} fields; write six, seconds first")
        second, minute, hour, day, month, weekday = (
            _numbers(field, *bounds, text) for field, bounds in zip(fields, _BOUNDS, strict=True)
        )
        told = [field[0] not in "*?" for field in (fields[3], fields[5])]
        weekdays = frozenset(number % 7 for number in weekday)
        line = cls(second, minute, hour, frozenset(day), frozenset(month), weekdays, all(told))
        if not any(line._has(_ANY + timedelta(days=number)) for number in range(_DAYS_MAX)):
            raise SinkConfigInvalid(f"the cron line {text!r} names no day that there is")
        return line

    def after(self, moment: datetime) -> datetime:
        """Return the first moment behind `moment`."""
        midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        days = (midnight + timedelta(days=number) for number in range(_DAYS_MAX + 1))
        return next(one for day in days if self._has(day) for one in self._times(day) if one > moment)

    def _has(self, day: datetime) -> bool:
        both = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (any(both) if self.any_day else all(both))

    def _times(self, day: datetime) -> Iterator[datetime]:
        for hour in self.hours:
            for minute in self.minutes:
                for second in self.seconds:
                    yield day.replace(hour=hour, minute=minute, second=second)


def _numbers(field: str, low: int, high: int, text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in field.split(","):
        told = _PART.fullmatch(part)
        if told is None:
            raise SinkConfigInvalid(f"{part!r} in the cron line {text!r} is no number, range or step")
        first, last, step = told.groups()
        start = low if first is None else int(first)
        stop = high if first is None or (last is None and step) else int(last or start)
        if not low <= start <= stop <= high or step == "0":
            raise SinkConfigInvalid(f"{part!r} in the cron line {text!r} is not between {low} and {high}")
        found |= set(range(start, stop + 1, int(step or 1)))
    return tuple(sorted(found))
