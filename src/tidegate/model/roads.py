"""Which way rows went, and why some did not go the fast one: counts that tasks report and progress shows.

    road          stage and way, fast first          reason of a slow way      newest example
    land/template land/rows                          few-rows                  shop.orders: 12 rows in a chunk,
    mount/columns mount/rows                         other-text                templates need 24
    encode/columns encode/rows                       ...

A row has one road in each stage; a count without a reason went the fastest way.  Reasons are few and fixed, so that
they can be labels of metrics; only examples name tables, one for each road and reason.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from tidegate.model.name import printable, qualified

EXAMPLE_CHARACTERS: Final = 160


class Reason(StrEnum):
    """The reason why rows took a slower decode path."""

    FEW_ROWS = "few-rows"
    MANY_TABLES = "many-tables"
    NO_LAYOUT = "no-layout"
    OTHER_TEXT = "other-text"
    VALUE = "value"
    HANDLE_ONLY = "handle-only"
    NO_COMMIT_TS = "no-commit-ts"
    COMPRESSED = "compressed"
    BY_OFFSET = "by-offset"
    EVENT_FILTER = "event-filter"
    RESOLUTION = "resolution"
    TWO_VERSIONS = "two-versions"
    CHECKSUMS = "checksums"
    TOO_LARGE = "too-large"
    SWITCHED_OFF = "switched-off"


class Why(NamedTuple):
    """The reason of some rows, and what was met, without the table's name."""

    reason: Reason
    detail: str


def counted(rows: int) -> str:
    """Return a number of rows in words: 1 row, 2,000 rows."""
    return f"{rows:,} row{'s' if rows != 1 else ''}"


class SlowRows(msgspec.Struct, frozen=True):
    """Rows that took a slower decode path for one reason, and the newest example."""

    road: str
    reason: str
    rows: int
    example: str = ""


LEFT_OUT: Final = "filter/rows"
"""Not a road: rows that filters took out, counted where rows are."""


@dataclass(slots=True)
class RoadCounts:
    """Rows by road and reason, and an example of each reason. It grows in place; `+` makes a new one."""

    rows: Counter[tuple[str, Reason | None]] = field(default_factory=Counter)
    examples: dict[tuple[str, Reason | None], str] = field(default_factory=dict)

    def add(self, road: str, rows: int, why: Why | None = None, table: tuple[str, str] = ("", "")) -> None:
        """Count rows of a table. The first example of a reason stays."""
        if not rows:
            return
        key = road, None if why is None else why.reason
        self.rows[key] += rows
        if why is not None and key not in self.examples:
            example = printable(" ".join(f"{qualified(*table)}: {why.detail}".split()))
            self.examples[key] = example[:EXAMPLE_CHARACTERS]

    def update(self, later: "RoadCounts") -> None:
        """Add counts that were made later, whose examples are the newer ones."""
        self.rows.update(later.rows)
        self.examples |= later.examples

    def __add__(self, later: "RoadCounts") -> "RoadCounts":
        """Return both as one."""
        return RoadCounts(self.rows + later.rows, self.examples | later.examples)

    def of_stage(self, stage: str) -> "RoadCounts":
        """Return the counts as those of another stage."""

        def moved(road: str) -> str:
            return road if road == LEFT_OUT else f"{stage}/{road.rpartition('/')[2]}"

        rows = Counter({(moved(road), reason): rows for (road, reason), rows in self.rows.items()})
        return RoadCounts(rows, {(moved(road), reason): text for (road, reason), text in self.examples.items()})

    def by_road(self) -> dict[str, int]:
        """Return the rows of each road, whatever the reason."""
        found = Counter[str]()
        for (road, _), rows in self.rows.items():
            found[road] += rows
        found.pop(LEFT_OUT, None)
        return dict(found)

    @property
    def left_out(self) -> int:
        """Rows that filters took out."""
        return self.rows[LEFT_OUT, None]

    def slow(self) -> tuple[SlowRows, ...]:
        """Return what went slow ways, by road and reason, most rows first."""
        found = [
            SlowRows(road, reason.value, rows, self.examples.get((road, reason), ""))
            for (road, reason), rows in self.rows.items()
            if reason is not None
        ]
        return tuple(sorted(found, key=lambda one: (-one.rows, one.road, one.reason)))
