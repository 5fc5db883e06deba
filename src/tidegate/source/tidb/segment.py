"""How far to go next: up to a DDL, the target, the frontier, or as many rows as are done in one go.

    checkpoint        DDL              target                 frontier
    ────┼──────────────┼──────────────────┼──────────────────────┼───
        (── segment ───]                                              the DDL follows the rows of its own ts
                       (──── segment ─────]                           nothing above the target

A segment of many rows ends with the part of the log that brings it over `SEGMENT_ROWS`, so that a backlog has
checkpoints on the way; a part is never cut for that, a transaction neither.
"""

from collections.abc import Sequence
from typing import Final

from tidegate.source.tidb.log import LogPart

__all__ = ["SEGMENT_ROWS", "end_of_segment", "rows_by_table"]

SEGMENT_ROWS: Final = 500_000
"""Some seconds of work for a core; what a crash repeats at most, beside the part that brings it over."""


def end_of_segment(
    checkpoint: int, parts: Sequence[LogPart], stop: int | None, target: int | None, *, rows: int = SEGMENT_ROWS
) -> int | None:
    """Return the end of the next stretch; None when there is nothing to go on to. `parts` are those above
    `checkpoint`."""
    if not parts:
        return None
    limits = [parts[-1].high, *(ts for ts in (stop, target) if ts is not None)]
    end, held = min(limits), 0
    for part in parts:
        held += sum(stored.rows for stored in part.stored)
        if held >= rows:
            end = min(end, part.high)
            break
    return end if end > checkpoint else None


def rows_by_table(parts: Sequence[LogPart], low: int, high: int) -> dict[int, int]:
    """Return how many rows and index entries of each table id (low, high] has at most; a table that is not named has
    none."""
    found: dict[int, int] = {}
    for part in parts:
        for stored in part.stored:
            if stored.last_ts > low and stored.first_ts <= high:
                found[stored.table_id] = found.get(stored.table_id, 0) + stored.rows
    return found
