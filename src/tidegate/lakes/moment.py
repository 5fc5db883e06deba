"""Which moment a reader means: a timestamp, a time, a text of either, or the newest.

470607233675427842             that TSO
datetime(2026, 1, 2, 3, 4, 5)  the first TSO of that millisecond; without a zone it is UTC
"2026-01-02T03:04:05Z"         the same
"now"                          this moment
"latest"                       None
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from tidegate.model.errors import ConfigError
from tidegate.model.tso import MAX_TS, compose, parse_ts

__all__ = ["LATEST", "Moment", "moment_ts"]

LATEST: Final = "latest"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Moment: TypeAlias = int | str | datetime


def moment_ts(moment: Moment) -> int | None:
    """Return the TSO that a moment means; None for the newest."""
    match moment:
        case str():
            return None if moment == LATEST else parse_ts(moment, now_ms=time.time_ns() // 1_000_000)
        case datetime():
            when = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            ms = (when - EPOCH) // timedelta(milliseconds=1)
            if ms < 0:
                raise ConfigError(f"{moment.isoformat()} is before 1970")
            return compose(ms)
        case _:
            if not 0 <= moment <= MAX_TS:
                raise ConfigError(f"{moment} is no TSO: it must lie between 0 and {MAX_TS}")
            return moment
