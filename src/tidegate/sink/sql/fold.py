"""What some transactions make of each row, together. Pure.

    entry       key   put  existed          rows of a stretch, in order; an UPDATE that changes its key is two
    INSERT 1    1     yes  no    ─┐
    UPDATE 1    1     yes  yes   ─┴─► row 1: INSERT of the last image
    DELETE 2    2     no   yes   ─┐
    INSERT 2    2     yes  no    ─┴─► row 2: UPDATE to the last image
    INSERT 3    3     yes  no    ─┐
    DELETE 3    3     no   yes   ─┴─► nothing

The first entry tells whether the row was there before, the last one whether it is there afterwards; within a
transaction all that goes comes first (entries.py).  Both states are states of the upstream, in which every unique key
held.  So once all rows that go, or that change and share another unique key, are deleted, the others can be inserted in
any order: nothing that one of them meets is left, whatever the collation, the prefix or the padding of an index takes
for equal.  Keys are compared by their bytes, since 'a' that becomes 'A' is a row that goes and one that comes, and that
is right in every collation.

Rows of a table without a key are counted: so many more or fewer of each.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

DELETE: Final = 0
UPDATE: Final = 1
INSERT: Final = 2


class Net(NamedTuple):
    """One net change a row: what it is, the group that it belongs to, and the entry that tells its values."""

    group: Any
    op: Any
    entry: Any
    times: Any
    """How often, in tables without a key; else 1."""


def fold_keyed(group: Any, code: Any, put: Any, existed: Any) -> Net:
    """Return the net change of every (group, code), ordered by them. Arrays have one value an entry, in order."""
    both = group * (int(code.max(initial=0)) + 1) + code
    _, first = np.unique(both, return_index=True)
    _, back = np.unique(both[::-1], return_index=True)
    last = len(both) - 1 - back
    was, stays = existed[first], put[last]
    op = np.where(stays, np.where(was, UPDATE, INSERT), DELETE)
    kept = was | stays
    return Net(group[last][kept], op[kept], last[kept], np.ones(int(kept.sum()), np.int64))


def fold_counted(group: Any, code: Any, put: Any) -> Net:
    """Return how many more or fewer equal rows there are afterwards, for every (group, code) where that differs."""
    both = group * (int(code.max(initial=0)) + 1) + code
    _, first, inverse = np.unique(both, return_index=True, return_inverse=True)
    more = np.zeros(len(first), np.int64)
    np.add.at(more, inverse, np.where(put, 1, -1))
    kept = more != 0
    op = np.where(more > 0, INSERT, DELETE)
    return Net(group[first][kept], op[kept], first[kept], np.abs(more[kept]))


def groups_of(commit_ts: Any, most: int) -> tuple[Any, Sequence[int]]:
    """Return the group of each row and the last commit_ts of every group: whole transactions of at most `most` rows
    together, or a single one. `commit_ts` is ascending."""
    times, counts = np.unique(commit_ts, return_counts=True)
    numbers = np.empty(len(times), np.int64)
    ends: list[int] = []
    rows = most
    for at, count in enumerate(counts.tolist()):
        if rows + count > most and (rows or not ends):
            rows = 0
            ends.append(0)
        rows += count
        numbers[at] = len(ends) - 1
        ends[-1] = int(times[at])
    return numbers[np.searchsorted(times, commit_ts)], ends
