"""What a round takes: its end, whether that end may be published, and its plan. Pure, shared by engine and readers.

    checkpoint C   where the lake was published last          frontier F   how far everything has landed
    until U        where the user wants to stop               floor L      the furthest that a table was found ahead

    C ───────────┬───────────┬──────────┬─►        without U and L a round ends at F, or where its rows would be
                 U           L          F          too many (pace.py); U ends it earlier, L never before L

A round that was cut off by a crash leaves some tables at its end and others behind.  Rounds are planned anew, and a
shorter one would find those tables ahead: what stands in the lake is then no state of one ts until all tables have
reached the furthest of them.  So nothing below the floor is published, and the next round goes there.
"""

from collections.abc import Callable, Iterable, Sequence

from tidegate.feed.change import Layout, PlacedDdl
from tidegate.feed.pace import ROUND, Most, Stretch, round_end
from tidegate.feed.plan import Barrier, Checkpoint, Drops, Landed, Round, plan_round
from tidegate.feed.ports import Changes
from tidegate.feed.segment import plan_segment
from tidegate.model.table import TableName
from tidegate.schema.state import SchemaState

__all__ = ["end_of_round", "is_whole", "plan_landed", "raised"]


def end_of_round(
    at: int,
    frontier: int,
    waiting: Iterable[Stretch],
    *,
    until: int | None = None,
    floor: int = 0,
    most: Most = ROUND,
) -> int:
    """Return where the round from the checkpoint `at` ends, given what has landed behind it."""
    upto = frontier if until is None else max(min(frontier, until), at, floor)
    return max(round_end(waiting, upto, most), floor)


def raised(floor: int, ahead: Iterable[int]) -> int:
    """Return the floor after a round whose tables were found ahead so far."""
    return max((floor, *ahead))


def is_whole(end: int, floor: int) -> bool:
    """Return True if the lake is at one state after a round that ends there, so that it may be published."""
    return end >= floor


def plan_landed(
    state: SchemaState,
    at: Checkpoint,
    ddls: Iterable[PlacedDdl],
    upto: int,
    landed: Changes,
    *,
    accept: Callable[[str, str], bool],
    drops: Drops | None = None,
    takes: Drops | None = None,
    barrier: Barrier = Barrier.TABLE,
) -> Round:
    """Return the round from `at` to `upto` over the changes between them; `drops` says which DDLs are left out, `takes`
    which of them a sink with barrier ALL is handed."""
    spans = {name: (span.rows, span.min_ts, span.max_ts) for name, span in landed.tables().items()}

    def layouts(name: TableName, end: int) -> Sequence[Layout]:
        return landed.layouts(name, at.ts, end)

    found = Landed(spans, layouts, accept, drops, takes)
    plan = plan_round if barrier is Barrier.TABLE else plan_segment
    return plan(state, at, ddls, upto, found)
