"""Rows of a table without a key, which are told apart by all that they hold. Pure.

    log of a table     ts 10 comes (5, 1)    ts 20 comes (5, 1)    ts 25 comes (5, 2)    ts 30 leaves (5, 1)
    number             0                     1                     0                     0
                       └───────────────────────── the same image and number ─────────────┘

The first of equal rows to leave is the first that came, the second the second: which one it was upstream, nobody can
tell from outside.  So with its number an image is a key, which is what a table needs that gets its first one.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NUMBER: Final = "_tidegate_number"
_COMES: Final = "_tidegate_comes"


def numbered(log: pa.Table, image: Sequence[str], comes: Any, order: Sequence[str]) -> pa.Table:
    """Return the log with the number of each row among those with the same columns `image` that come, or that leave.

    `comes` says which rows come; `order` are the columns by which they follow each other."""
    marked = log.select([*image, *order]).append_column(_COMES, pc.cast(comes, pa.int8()))
    names = [*image, _COMES, *order]
    places = pc.sort_indices(marked, sort_keys=[(name, "ascending") for name in names])
    first = starts(marked.select([*image, _COMES]).take(places))
    every = np.arange(log.num_rows)
    numbers = np.empty(log.num_rows, np.int64)
    numbers[places.to_numpy()] = every - np.maximum.accumulate(np.where(first, every, 0))
    return log.append_column(NUMBER, pa.array(numbers))


def starts(rows: pa.Table) -> Any:
    """For each of ordered rows, whether the one before it is another; NULL is equal to NULL."""
    first = np.zeros(rows.num_rows, bool)
    first[:1] = True
    for column in rows.columns:
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        after, before = whole[1:], whole[:-1]
        other = pc.fill_null(pc.not_equal(after, before), fill_value=False)
        other = pc.or_(other, pc.xor(after.is_null(), before.is_null()))
        first[1:] |= other.to_numpy(zero_copy_only=False).astype(bool)
    return first
