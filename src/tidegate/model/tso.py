"""Timestamps of TiDB's timestamp oracle.

    63                                  18 17            0
    +-------------------------------------+---------------+
    | physical: ms since the Unix epoch   | logical count |
    +-------------------------------------+---------------+

A TSO is an unsigned 64-bit number.  Rows with ``commit_ts <= resolved_ts`` are complete; everything at or
below ``checkpoint_ts`` is in the sink; ``checkpoint_ts <= resolved_ts``.

Source: TiCDC Open Protocol and Canal-JSON documents; TiDB's oracle package (physical << 18 | logical).
"""

import re
from datetime import UTC, datetime
from typing import Final, NewType

from tidegate.model.errors import ConfigError

Tso = NewType("Tso", int)
"""Physical milliseconds << 18 | logical counter."""

LOGICAL_BITS: Final = 18
MAX_TS: Final = (1 << 63) - 1
"""The largest timestamp that the lake stores (BIGINT); its physical part lies in the year 3084."""


def physical_ms(ts: int) -> int:
    """Milliseconds since the Unix epoch held in the upper bits of `ts`."""
    return ts >> LOGICAL_BITS


def compose(ms: int, logical: int = 0) -> Tso:
    """Return the TSO of a physical time in milliseconds and a logical count below 2**18."""
    assert 0 <= logical < 1 << LOGICAL_BITS, logical
    return Tso(ms << LOGICAL_BITS | logical)


def to_datetime(ts: int) -> datetime:
    """Return the physical part of `ts` as a UTC datetime (millisecond precision)."""
    return datetime.fromtimestamp(physical_ms(ts) / 1000, UTC)


def shown_ts(ts: int | None) -> str:
    """Return a ts with its time, for people."""
    return "no ts yet" if ts is None else f"ts {ts} ({to_datetime(ts):%Y-%m-%d %H:%M:%S} UTC)"


def time_of(ts: int) -> str:
    """Return the physical part of `ts` for people: 2026-01-02 03:04:05.678 UTC."""
    return f"{to_datetime(ts):%Y-%m-%d %H:%M:%S}.{physical_ms(ts) % 1000:03d} UTC"


def parse_ts(text: str, *, now_ms: int) -> int:
    """Return the TSO that `text` names: a number, `now`, or a time such as 2026-01-02T03:04:05 (UTC unless it says
    more)."""
    if text == "now":
        return compose(now_ms)
    if re.fullmatch(r"[0-9]{1,20}", text):
        ts = int(text)
        if ts > MAX_TS:
            raise ConfigError(f"{text} is above the largest timestamp, {MAX_TS}")
        return ts
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is neither a TSO, nor `now`, nor a time such as 2026-01-02T03:04:05Z") from error
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    ms = round(when.timestamp() * 1000)
    if ms < 0:
        raise ConfigError(f"{text!r} is before 1970")
    return compose(ms)
