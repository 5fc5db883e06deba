"""Counts of rows by decode or encode path, and the reasons for slow paths: tasks report them, progress shows them.

    path          stage and path, fast first         reason for a slow path    newest example
    land/template land/rows                          few-rows                  shop.orders: 12 rows in a chunk,
    mount/columns mount/rows                         other-text                templates need 24
    encode/columns encode/rows                       ...

A row takes one path per stage; a count without a reason is that of the fastest path.  Reasons are a small fixed set,
so that they can be labels of metrics; only examples name tables, one per path and reason.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from tidegate.model.name import printable, qualified

EXAMPLE_CHARACTERS: Final = 160


class Reason(StrEnum):
    """The reason why rows took a slow path."""

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


class SlowReason(NamedTuple):
    """The reason for some rows, with details but without the table's name."""

    reason: Reason
    detail: str


def counted(rows: int) -> str:
    """Return a number of rows in words: 1 row, 2,000 rows."""
    return f"{rows:,} row{'s' if rows != 1 else ''}"


class SlowRows(msgspec.Struct, frozen=True):
    """Rows that took a slow path for one reason, and the newest example."""

    path: str = msgspec.field(name="road")
    reason: str
    rows: int
    example: str = ""


LEFT_OUT: Final = "filter/rows"
"""Not a path: rows that filters removed, counted with the others."""
UNDECODABLE: Final = "undecodable/"
"""No paths either: the texts of a load that are no UTF-8, by table and column."""


@dataclass(slots=True)
class PathCounts:
    """Rows by path and reason, and an example of each reason. It grows in place; `+` makes a new one."""

    rows: Counter[tuple[str, Reason | None]] = field(default_factory=Counter)
    examples: dict[tuple[str, Reason | None], str] = field(default_factory=dict)

    def add(self, path: str, rows: int, slow: SlowReason | None = None, table: tuple[str, str] = ("", "")) -> None:
        """Count rows of a table. The first example of a reason stays."""
        if not rows:
            return
        key = path, None if slow is None else slow.reason
        self.rows[key] += rows
        if slow is not None and key not in self.examples:
            example = printable(" ".join(f"{qualified(*table)}: {slow.detail}".split()))
            self.examples[key] = example[:EXAMPLE_CHARACTERS]

    def update(self, later: "PathCounts") -> None:
        """Add later counts, whose examples are the newer ones."""
        self.rows.update(later.rows)
        self.examples |= later.examples

    def __add__(self, later: "PathCounts") -> "PathCounts":
        """Return both as one."""
        return PathCounts(self.rows + later.rows, self.examples | later.examples)

    def of_stage(self, stage: str) -> "PathCounts":
        """Return the counts as those of another stage."""

        def moved(path: str) -> str:
            return path if path.startswith((LEFT_OUT, UNDECODABLE)) else f"{stage}/{path.rpartition('/')[2]}"

        rows = Counter({(moved(path), reason): rows for (path, reason), rows in self.rows.items()})
        return PathCounts(rows, {(moved(path), reason): text for (path, reason), text in self.examples.items()})

    def by_path(self) -> dict[str, int]:
        """Return the rows of each path, whatever the reason."""
        by_path = Counter[str]()
        for (path, _), rows in self.rows.items():
            by_path[path] += rows
        by_path.pop(LEFT_OUT, None)
        return {path: rows for path, rows in by_path.items() if not path.startswith(UNDECODABLE)}

    @property
    def left_out(self) -> int:
        """Rows that filters removed."""
        return self.rows[LEFT_OUT, None]

    @property
    def undecodable(self) -> dict[str, int]:
        """Texts of a load that are not UTF-8, by the names of table and column."""
        mark = len(UNDECODABLE)
        return {path[mark:]: count for (path, _), count in self.rows.items() if path.startswith(UNDECODABLE)}

    def slow(self) -> tuple[SlowRows, ...]:
        """Return the rows on slow paths, by path and reason, most rows first."""
        slow = [
            SlowRows(path, reason.value, rows, self.examples.get((path, reason), ""))
            for (path, reason), rows in self.rows.items()
            if reason is not None
        ]
        return tuple(sorted(slow, key=lambda count: (-count.rows, count.path, count.reason)))
