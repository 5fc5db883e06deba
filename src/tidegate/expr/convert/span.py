"""TIME as TiDB reads, rounds and prints it: a signed count of microseconds within 838:59:59.

    "-1 02:03:04.5"  day and clock      "10:20" hours and minutes       "1112" or 1112 -> 00:11:12
    "2020-01-01 10:20:30" and 12 or 14 digits: the clock of a DATETIME

Source: TiDB's types package (matchDuration, ParseDuration, Duration.RoundFrac, Duration.ToNumber).
"""

import re
from decimal import Decimal
from typing import Final

from tidegate.kv.clock_text import render_duration

__all__ = ["SPAN_LIMIT", "parse_span", "round_span", "span_number"]

SPAN_LIMIT: Final = ((838 * 60 + 59) * 60 + 59) * 10**6
"""838:59:59, the end of TIME."""

_SPAN: Final = re.compile(
    r"(?P<sign>-?)\s*(?:(?P<day>\d+)\s+(?=\d))?"
    r"(?:(?P<hour>\d+)\s*(?P<colon>:)\s*(?P<minute>\d+)(?:\s*:\s*(?P<second>\d+))?|(?P<compact>\d+))"
    r"\s*(?:\.(?P<fraction>\d*))?",
    re.ASCII,
)

_DATED: Final = re.compile(r"(?:\d{12}|\d{14})(?!\d)|\d+[^\w\s]\d+[^\w\s]\d+[ T]", re.ASCII)


def clamp(span: int) -> int:
    """`span` within the range of TIME."""
    return min(max(span, -SPAN_LIMIT), SPAN_LIMIT)


def round_span(span: int, fsp: int) -> int:
    """`span` with `fsp` fractional digits, halves towards plus infinity."""
    unit = 10 ** (6 - fsp)
    return clamp((2 * span + unit) // (2 * unit) * unit)


def parse_span(text: str, fsp: int) -> int | None:
    """Return the TIME that MySQL reads in `text`, rounded to `fsp`; None when it reads as no time."""
    text = text.strip()
    found = _SPAN.match(text)
    if found is None or (found.end() < len(text) and len(text.lstrip("-")) >= 12):
        return None
    if found["compact"] is not None and found["day"] is None:
        number = int(found["compact"][:20])
        hour, minute, second = number // 10**4, number // 100 % 100, number % 100
    else:
        hour = int((found["hour"] or found["compact"])[:9]) + 24 * int((found["day"] or "0")[:9])
        minute, second = int((found["minute"] or "0")[:9]), int((found["second"] or "0")[:9])
    if minute > 59 or second > 59 or (hour > 838 and _DATED.match(text)):
        return None
    digits = found["fraction"] or ""
    kept = int(digits[:fsp].ljust(fsp, "0") or 0) + (1 if digits[fsp : fsp + 1] >= "5" else 0)
    span = clamp(((hour * 60 + minute) * 60 + second) * 10**6 + kept * 10 ** (6 - fsp))
    return -span if found["sign"] else span


def span_number(span: int, fsp: int) -> Decimal:
    """102030.5 of 10:20:30.5."""
    return Decimal(render_duration(span * 1000, fsp).replace(":", ""))
