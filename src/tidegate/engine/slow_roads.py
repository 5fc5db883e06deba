"""Slow ways of rows in words, for a line of progress and for `tidegate status`.

    62% land/structs (shop.t17: 3 rows in a chunk, a template is learned from 4), 30% encode/rows (…)

Shares are of the rows of a stage, so those of several stages do not add up.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidegate.model.roads import SlowRows

SHARE_MIN: Final = 0.1
ROWS_MIN: Final = 1_000
"""A slow way is worth words where a tenth of a stage's rows go it, and so many of them: a quiet feed has few rows at a
time, and is quick enough."""


class RoadsSeen(NamedTuple):
    """The roads of a report: all rows by road, and those that went slow ways."""

    roads: Mapping[str, int] = {}
    slow: Sequence[SlowRows] = ()


NO_ROADS: Final = RoadsSeen()


def slow_words(now: RoadsSeen, before: RoadsSeen = NO_ROADS) -> str:
    """Return what share of the rows between two reports went which slow way, with the example of most of them; ""
    where that is not worth words."""
    earlier = {(one.road, one.reason): one.rows for one in before.slow}
    stages: dict[str, int] = {}
    for road, rows in now.roads.items():
        stages[_stage(road)] = stages.get(_stage(road), 0) + rows - before.roads.get(road, 0)
    found: dict[str, tuple[int, int, str]] = {}
    for one in now.slow:
        rows = one.rows - earlier.get((one.road, one.reason), 0)
        total, most, example = found.get(one.road, (0, 0, ""))
        found[one.road] = (total + rows, *((rows, one.example) if rows > most else (most, example)))
    told = []
    for road, (rows, _, example) in found.items():
        every = max(rows, stages.get(_stage(road), 0))
        if rows >= max(ROWS_MIN, SHARE_MIN * every):
            told.append(f"{rows / every:.0%} {road} ({example})")
    return ", ".join(told)


def _stage(road: str) -> str:
    return road.partition("/")[0]
