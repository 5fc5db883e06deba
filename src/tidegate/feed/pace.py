"""How much one round takes: enough to be worth its commits, never more than memory holds.

    stretches of rows, by their last commit_ts     ──┤ 0.4 M ├──┤ 0.9 M ├──┤ 1.1 M ├──   limit 2 M
                                                                          ▲ the round ends here

Any timestamp at or below the frontier is a place where all tables agree, so a backlog may be cut anywhere.
A single stretch above the limit is taken whole: a transaction is never cut.
"""

from collections.abc import Iterable
from typing import Final

__all__ = ["ROUND_ROWS_MAX", "round_end"]

ROUND_ROWS_MAX: Final = 2_000_000
"""Row changes of one round; a worker holds those of one table, a few hundred bytes each."""


def round_end(stretches: Iterable[tuple[int, int]], upto: int, limit_rows: int = ROUND_ROWS_MAX) -> int:
    """The largest end at or below `upto` that takes at most `limit_rows` of the (last commit_ts, rows) stretches."""
    ordered = sorted(stretches)
    taken = 0
    for at, (_, rows) in enumerate(ordered):
        taken += rows
        if taken > limit_rows:
            end = ordered[max(at - 1, 0)][0]
            return min(end, upto)
    return upto
