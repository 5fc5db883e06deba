"""How much one round takes and when the next begins: worth its commits, never more than memory holds.

    stretches of rows by commit_ts     ├── 90 MB ──┤
                                           ├── 120 MB ──┤
                                                      ├── 80 MB ──┤        at most 256 MB
                                                     ▲ the round ends here: before the first that is too much

Any timestamp at or below the frontier is a place where all tables agree, so a backlog may be cut anywhere.  What
touches the round counts whole, because a row group is read whole.  At least one stretch is finished, so that rounds
move on: a single stretch above the limits is taken whole, as a transaction is never cut.

Between rounds merging rests while little waits: a merge costs nearly the same for one row as for some thousands, and
what is not merged yet is seen live.  The longer a round took, the longer the rest, up to a bound.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple


class Stretch(NamedTuple):
    """Rows that are read together: their range of commit_ts, their number, and their bytes when read."""

    first_ts: int
    last_ts: int
    rows: int
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Most:
    """What a round takes at most."""

    rows: int
    size_bytes: int


ROUND: Final = Most(rows=2_000_000, size_bytes=256 << 20)
"""Of all tables together; the workers hold it some four times over while they merge (as read, sorted, typed, written),
about 1 GiB among them, whether rows have 100 bytes or 10 KiB."""

BUSY_ROWS: Final = 50_000
"""Where so much waits, rounds follow each other: a catch-up is quicker than any rest."""
REST: Final = 3.0
"""Merging takes a quarter of the time of a quiet feed, so that landing and readers have the rest."""
REST_MAX_S: Final = 4.0
"""Merged tables stay some seconds behind, not more."""


def round_end(stretches: Iterable[Stretch], upto: int, most: Most = ROUND) -> int:
    """Return the largest end at or below `upto` up to which the stretches stay within `most`, but for the first of
    them."""
    ordered = sorted(stretches)
    rows = size_bytes = 0
    for at, stretch in enumerate(ordered):
        rows += stretch.rows
        size_bytes += stretch.size_bytes
        if at and (rows > most.rows or size_bytes > most.size_bytes):
            nearest = min(one.last_ts for one in ordered)
            return min(max(stretch.first_ts - 1, nearest), upto)
    return upto


def tasks_at_once(rows: int, slots: int, asked: int | None = None) -> int | None:
    """Return how many tables are merged at the same time, of what was `asked` (None: all); half of the slots while
    little waits, so that a batch that lands finds one free and does not wait for all tables."""
    if rows >= BUSY_ROWS:
        return asked
    half = max(slots // 2, 1)
    return half if asked is None else min(asked, half)


def rest_s(took_s: float, rows: int, shortest_s: float) -> float:
    """Return how long merging rests after a round of `rows` that took so long, at least `shortest_s` from its begin
    on."""
    if rows >= BUSY_ROWS:
        return 0.0
    return max(min(took_s * REST, REST_MAX_S), shortest_s - took_s, 0.0)
