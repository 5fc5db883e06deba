"""DATE, DATETIME and TIMESTAMP as one number that sorts as time does.

    packed   year * 13 + month | day | hour | minute | second | microsecond
             18 bits           | 5   | 5    | 6      | 6      | 24

    core     year | month | day | hour | minute | second | microsecond | fsp and type       (inside binary JSON)
             14   | 4     | 5   | 5    | 6      | 6      | 20          | 4

Zero parts are legal (0000-00-00, 2020-00-01), so a time is seven numbers and no `datetime`.  The packed form knows
neither the type nor the number of decimals: both come from the column.  A TIMESTAMP is stored in UTC; the zero
timestamp belongs to no zone.

As text a DATE is 2024-01-31, a DATETIME(2) 2024-01-31 01:02:03.45, a TIME(3) -838:59:59.500: as many digits as the
column has.

Source: TiDB pkg/types/time.go (ToPackedUint, FromPackedUint), core_time.go.
"""

from datetime import UTC, datetime, tzinfo
from typing import Final, NamedTuple

from tidegate.model.errors import DecodeError, EncodeError

CODEC: Final = "time"
_NS_A_SECOND: Final = 1_000_000_000
_LIMITS: Final = (9999, 12, 31, 23, 59, 59, 999_999)


class Time(NamedTuple):
    """A date and a clock; parts may be zero."""

    year: int
    month: int
    day: int
    hour: int = 0
    minute: int = 0
    second: int = 0
    microsecond: int = 0


ZERO: Final = Time(0, 0, 0)


def pack_time(time: Time) -> int:
    """Return the number of a time: 0 for the zero time. EncodeError for parts out of their range."""
    _check(time)
    date = time.year * 13 + time.month << 5 | time.day
    clock = time.hour << 12 | time.minute << 6 | time.second
    return (date << 17 | clock) << 24 | time.microsecond


def unpack_time(packed: int) -> Time:
    """Return the time of a number; DecodeError for parts out of their range."""
    seconds, microsecond = packed >> 24, packed & 0xFFFFFF
    date, clock = seconds >> 17, seconds & 0x1FFFF
    year, month = divmod(date >> 5, 13)
    return _checked(Time(year, month, date & 31, clock >> 12, clock >> 6 & 63, clock & 63, microsecond), packed)


def pack_core(time: Time, tail: int) -> int:
    """Return the core form of a time; `tail`: the four bits of fsp and type. EncodeError for parts out of range."""
    _check(time)
    if not 0 <= tail <= 15:
        raise EncodeError(f"{tail} is more than the four bits of fsp and type")
    date = (time.year << 4 | time.month) << 5 | time.day
    clock = (time.hour << 6 | time.minute) << 6 | time.second
    return (date << 17 | clock) << 24 | time.microsecond << 4 | tail


def unpack_core(core: int) -> tuple[Time, int]:
    """Return the time of a number in core form, and its four bits of fsp and type."""
    date, clock = core >> 41, core >> 24
    parts = (date >> 9, date >> 5 & 15, date & 31, clock >> 12 & 31, clock >> 6 & 63, clock & 63, core >> 4 & 0xFFFFF)
    return _checked(Time(*parts), core), core & 15


def _check(time: Time) -> None:
    if any(not 0 <= part <= limit for part, limit in zip(time, _LIMITS, strict=True)):
        raise EncodeError(f"{tuple(time)} is no time")


def _checked(time: Time, number: int) -> Time:
    if any(part > limit for part, limit in zip(time, _LIMITS, strict=True)):
        raise DecodeError(f"{number:#x} is no time", CODEC, 0)
    return time


def from_utc(time: Time, zone: tzinfo) -> Time:
    """Return a stored TIMESTAMP in the time zone `zone`; DecodeError for an invalid time."""
    if time == ZERO or zone is UTC:
        return time
    try:
        moment = datetime(*time, tzinfo=UTC).astimezone(zone)
    except (ValueError, OverflowError) as error:
        raise DecodeError(f"{tuple(time)} is no moment", CODEC, 0) from error
    return _parts(moment)


def to_utc(time: Time, zone: tzinfo) -> Time:
    """Return the stored TIMESTAMP of a local time in `zone`; an ambiguous time is the first of the two."""
    if time == ZERO or zone is UTC:
        return time
    try:
        moment = datetime(*time, tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise EncodeError(f"{tuple(time)} is no moment") from error
    return _parts(moment)


def _parts(moment: datetime) -> Time:
    return Time(moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second, moment.microsecond)


def render_date(time: Time) -> str:
    """Return the date alone."""
    return f"{time.year:04}-{time.month:02}-{time.day:02}"


def render_time(time: Time, fsp: int) -> str:
    """Return date and clock with `fsp` decimals, cut off and not rounded."""
    clock = f"{time.hour:02}:{time.minute:02}:{time.second:02}"
    return f"{render_date(time)} {clock}{_fraction(time.microsecond, fsp)}"


def render_duration(duration_ns: int, fsp: int) -> str:
    """Return a span of time with `fsp` decimals."""
    seconds, ns = divmod(abs(duration_ns), _NS_A_SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    sign = "-" if duration_ns < 0 else ""
    return f"{sign}{hour:02}:{minute:02}:{second:02}{_fraction(ns // 1000, fsp)}"


def _fraction(microsecond: int, fsp: int) -> str:
    return f".{microsecond:06}"[: fsp + 1] if fsp > 0 else ""
