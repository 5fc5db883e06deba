"""TIMESTAMP texts from UTC to the time zone that a sender writes them in.

    2024-01-01 00:00:00.5  --Asia/Shanghai-->  2024-01-01 08:00:00.5

The zero timestamp stays, the digits of the fraction stay, and a moment that the year 1 or 9999 cannot hold stays too.
An hour that occurs twice at the end of summer time has the same text both times, as in TiCDC: no reader can tell them
apart, so users of such a zone are warned (`hour_twice`).

Source: TiDB's types.Time.ConvertTimeZone.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo

from tidegate.codec.go import PRINTED
from tidegate.model.errors import EncodeError, redacted_value

_ZERO: Final = "0000-00-00"
_LAST_YEAR: Final = 2037
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS: Final = (datetime(_LAST_YEAR + 1, 1, 1, tzinfo=UTC) - _EPOCH).days


def zone_shift(name: str, written: str = "UTC") -> Callable[[str], str]:
    """Return the function that writes a TIMESTAMP text of the zone `written` in the zone `name`."""
    zone, before = ZoneInfo(name), ZoneInfo(written)

    def shift(text: str) -> str:
        if text.startswith(_ZERO):
            return text
        whole, dot, fraction = text.partition(".")
        try:
            moment = datetime.strptime(whole, "%Y-%m-%d %H:%M:%S").replace(tzinfo=before)
        except ValueError as error:
            raise EncodeError(f"{redacted_value(text, 40)} is not a TIMESTAMP") from error
        try:
            moved = moment.astimezone(zone).replace(tzinfo=None)
        except OverflowError:
            return text
        return f"{moved.isoformat(' ')}{dot}{fraction}"

    return shift


@cache
def repeated_hour(name: str) -> str:
    """Return when clocks of the zone `name` last go back, as they then show, in the years that a TIMESTAMP has, 1970 to
    2037; "" for never.

    Two moments around it have one text."""
    zone = ZoneInfo(name)
    days = [_EPOCH + timedelta(days=index) for index in range(_DAYS)]
    offsets = [day.astimezone(zone).utcoffset() or timedelta() for day in days]
    for index in range(len(days) - 1, 0, -1):
        if offsets[index] < offsets[index - 1]:
            early, late = days[index - 1], days[index]
            while late - early > timedelta(minutes=1):
                middle = early + (late - early) / 2
                goes_back = (middle.astimezone(zone).utcoffset() or timedelta()) == offsets[index]
                early, late = (early, middle) if goes_back else (middle, late)
            return f"{late.astimezone(zone):%Y-%m-%d %H:%M}"
    return ""


def hour_twice(name: str) -> str:
    """Return the warning about TIMESTAMPs in the zone `name`; "" if no hour occurs twice."""
    last = repeated_hour(name)
    if not last:
        return ""
    if last.startswith(f"{_LAST_YEAR}-"):
        when = f"its clocks go back (the last time until {_LAST_YEAR} on {last})"
    else:
        when = f"its clocks went back, the last time on {last} (a TIMESTAMP after that day is safe)"
    return (
        f"time-zone={name}: {when}, and two moments of an hour that comes twice are one text: such a TIMESTAMP may be "
        "an hour off, and of two rows with one in their key one is lost. UTC has no such hour: let TiCDC write with "
        "--tz=UTC, and leave time-zone out"
    )


def shifted_text(name: str) -> Callable[[str], str]:
    """Return the function that writes a UTC TIMESTAMP text in the zone `name` as a JSON string."""
    shift = zone_shift(name)
    return lambda text: PRINTED(shift(text))
