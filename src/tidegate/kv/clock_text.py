"""Times and durations as TiDB prints them, and durations as their parts.

    Time      2024-01-31               DATE
              2024-01-31 01:02:03.45   DATETIME(2), TIMESTAMP(2): as many digits as the column has
    duration  -838:59:59.500           TIME(3): hours have two digits at least, the stored unit is the nanosecond

Source: TiDB pkg/types/time.go (Time.String, Duration.String).
"""

from typing import Final

from tidegate.kv.packed_time import Time

__all__ = ["render_date", "render_duration", "render_time"]

_NS_A_SECOND: Final = 1_000_000_000


def render_date(time: Time) -> str:
    """Return the date alone."""
    return f"{time.year:04}-{time.month:02}-{time.day:02}"


def render_time(time: Time, fsp: int) -> str:
    """Date and clock with `fsp` decimals, cut off and not rounded: the column's values have no more."""
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
