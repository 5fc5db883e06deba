"""The ranges of a span: which registration reads each, and up to which ts it is complete.

    span     [a ........................................ z)
    ranges   [a ..... f) region 5     [f ... m) free     [m ...... z) region 9        resolved_ts 85
             version 3   ts 90        ts 85              version 2    ts 91

The ranges of a span never overlap and leave no gap.  A registration holds the range that its region and the span have
in common, and ends with it:

    take       free ranges below become one range with the least ts of them; holders of an older version are displaced,
               and what they held beyond the range becomes free; a holder of the same or a newer version keeps its
               range, because what is known of the region is out of date
    release    the range becomes free and keeps its ts, from which the next registration begins
    advance    raises the ts; a lower one is ignored, since TiKV sends the least ts of a group of regions

The resolved ts of the span is the least ts of all ranges.  It never falls, because no operation lowers a ts but `take`,
which takes the least one of ranges that the span has anyway.

Keys are those of regions, which are memcomparable; an empty end is `INFINITE` within this module.
Source: tiflow cdc/kv/regionlock, ticdc logservice/logpuller/regionlock.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

INFINITE: Final = b"\xff" * 32
"""Above every key of a region: those of TiDB begin with `m` or `t`."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0


@dataclass(slots=True, eq=False)
class Range:
    """A part of a span. `attempts` counts the registrations that ended since a resolved ts came, `reason` tells why the
    last one did."""

    start: bytes
    end: bytes
    ts: int
    attempts: int = 0
    version: int = 0
    holder: Any = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Grant:
    """The range of a holder, None if what it knows of the region is out of date; the holders that were displaced; the
    ranges that need a region."""

    range: Range | None
    displaced: list[Any] = field(default_factory=list)
    free: list[Range] = field(default_factory=list)


class SpanRanges:
    """The ranges of [start, end), all free and complete up to `ts`."""

    def __init__(self, start: bytes, end: bytes, ts: int) -> None:
        self.start, self.end = start, end or INFINITE
        assert self.start < self.end, (start, end)
        self.ranges = [Range(self.start, self.end, ts)]
        self._resolved_ts: int | None = ts

    @property
    def resolved_ts(self) -> int:
        """The ts up to which the whole span is complete."""
        if self._resolved_ts is None:
            self._resolved_ts = min(part.ts for part in self.ranges)
        return self._resolved_ts

    def take(self, start: bytes, end: bytes, version: int, holder: Any) -> Grant:
        """Give a holder what [start, end) and the span have in common, as far as nobody knows better."""
        start, end = max(start, self.start), min(end or INFINITE, self.end)
        assert start < end, (start, end)
        first, stop = self._between(start, end)
        below = self.ranges[first:stop]
        if any(part.holder is not None and part.version >= version for part in below):
            free = [part for part in below if part.holder is None]
            for part in free:
                part.attempts += 1
            return Grant(None, free=free)
        displaced = [part.holder for part in below if part.holder is not None]
        least_ts, worst = min(part.ts for part in below), max(below, key=lambda part: part.attempts)
        own = Range(start, end, least_ts, worst.attempts, version, holder, worst.reason)
        before, behind = below[0], below[-1]
        left = [Range(before.start, start, before.ts, before.attempts)] if before.start < start else []
        right = [Range(end, behind.end, behind.ts, behind.attempts)] if end < behind.end else []
        self.ranges[first:stop] = [*left, own, *right]
        lost = [part for part, old in ((left, before), (right, behind)) if part and old.holder is not None]
        return Grant(own, displaced, [part for parts in lost for part in parts])

    def release(self, part: Range, reason: str = "") -> None:
        """End the registration of a range."""
        part.holder, part.reason = None, reason
        part.attempts += 1

    def advance(self, part: Range, ts: int) -> None:
        """Raise the ts of a range."""
        if ts > part.ts:
            if part.ts == self._resolved_ts:
                self._resolved_ts = None
            part.ts = ts

    def _between(self, start: bytes, end: bytes) -> tuple[int, int]:
        first = bisect_right(self.ranges, start, key=lambda part: part.start) - 1
        stop = first + 1
        while stop < len(self.ranges) and self.ranges[stop].start < end:
            stop += 1
        return first, stop


def backoff_s(attempts: int, random: Random) -> float:
    """Return how long a range waits before its next registration: doubled each time, half of it by chance."""
    longest = min(_FIRST_WAIT_S * 2.0 ** min(attempts - 1, 10), _LONGEST_WAIT_S)
    return longest * (1 + random.random()) / 2
