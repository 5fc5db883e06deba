"""TIMESTAMP texts from UTC to the time zone that a sender writes them in.

    2024-01-01 00:00:00.5  --Asia/Shanghai-->  2024-01-01 08:00:00.5

The zero timestamp stays, the digits of the fraction stay, and a moment that the year 1 or 9999 cannot hold stays too.
An hour that comes twice at the end of summer time is written the same both times, as TiCDC does: what the reader makes
of it is the reader's choice.

Source: TiDB's types.Time.ConvertTimeZone.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from tidegate.codec.go.json import PRINTED
from tidegate.model.errors import EncodeError

_ZERO: Final = "0000-00-00"


def zone_shift(name: str) -> Callable[[str], str]:
    """Return the function that writes a UTC TIMESTAMP text in the zone `name`."""
    zone = ZoneInfo(name)

    def shift(text: str) -> str:
        if text.startswith(_ZERO):
            return text
        whole, dot, fraction = text.partition(".")
        try:
            moment = datetime.strptime(whole, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        except ValueError as error:
            raise EncodeError(f"{text!a:.40} is not a TIMESTAMP") from error
        try:
            moved = moment.astimezone(zone).replace(tzinfo=None)
        except OverflowError:
            return text
        return f"{moved.isoformat(' ')}{dot}{fraction}"

    return shift


def shifted_text(name: str) -> Callable[[str], str]:
    """Return the function that writes a UTC TIMESTAMP text in the zone `name` as a JSON string."""
    shift = zone_shift(name)
    return lambda text: PRINTED(shift(text))
