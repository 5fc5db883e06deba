"""Keys as columns: their order, and which stored rows they touch.

    touched keys   3 7 9        stored rows   1 3 5 9 9 …       match  ->  null 0 null 2 2 …

A key of several columns is matched by numbering: the values of its first column, then the pairs of such a number and
a value of the second, and so on; what no touched key has drops out at once.  Order is Arrow's: numbers and dates by
value, texts and binaries by bytes, the first column first.
"""

from bisect import bisect_left, bisect_right
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Bound = Any
"""A value of a key's first column as the log has it: int, str, date; None where it has none."""

RADIX_MAX: Final = 1 << 31


def key_order(keys: pa.Table) -> Any:
    """Return the row numbers of `keys` in the order of the keys; None when they stand in it already."""
    if _ascending(keys, pc.less_equal):
        return None
    if keys.num_columns == 1:
        return pc.sort_indices(keys.column(0))
    return pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])


def by_key(rows: pa.Table, key: list[str]) -> pa.Table:
    """`rows` in the order of their keys."""
    order = key_order(rows.select(key)) if key else None
    return rows if order is None else rows.take(order)


def distinct(keys: pa.Table) -> bool:
    """Return True when no key stands twice."""
    if _ascending(keys, pc.less):
        return True
    if keys.num_columns == 1:
        return bool(pc.count_distinct(keys.column(0), mode="all").as_py() == keys.num_rows)
    return bool(keys.group_by(keys.column_names).aggregate([]).num_rows == keys.num_rows)


def between(first: Any, low: Bound, high: Bound) -> tuple[int, int]:
    """Return the stretch of the ascending values `first` that lies between the bounds, both included."""
    if not len(first):
        return 0, 0
    if low is None or high is None or not type(low) is type(high) is type(first[0].as_py()):
        return 0, len(first)
    return bisect_left(first, low, key=_plain), bisect_right(first, high, key=_plain)


def match(stored: pa.Table, keys: pa.Table) -> tuple[Any, Any]:
    """Return the rows of `stored` whose key is among the distinct `keys`: their numbers, and for each the key's
    number."""
    found, wanted = _numbered(stored.column(0), keys.column(0))
    for name in keys.column_names[1:]:
        more_found, more_wanted = _numbered(stored.column(name), keys.column(name))
        radix = pa.scalar(RADIX_MAX, pa.int64())
        found, wanted = _numbered(
            pc.add(pc.multiply(found, radix), more_found), pc.add(pc.multiply(wanted, radix), more_wanted)
        )
    numbers = np.empty(keys.num_rows, np.int64)
    numbers[wanted.to_numpy(zero_copy_only=False)] = np.arange(keys.num_rows)
    touched = found.is_valid().to_numpy(zero_copy_only=False).nonzero()[0]
    return touched, numbers[found.drop_null().to_numpy()]


def _numbered(stored: Any, wanted: Any) -> tuple[Any, Any]:
    """Both columns as numbers of the values that `wanted` has, null for any other value."""
    values = pc.unique(wanted)
    one, other = (_whole(pc.index_in(column, value_set=values)).cast(pa.int64()) for column in (stored, wanted))
    return one, other


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _plain(scalar: Any) -> Any:
    return scalar.as_py()


def _ascending(keys: pa.Table, compare: Any) -> bool:
    """True when each key compares so with the next."""
    if keys.num_rows < 2:
        return True
    *leading, last = [_whole(column) for column in keys.columns]
    holds = compare(last[:-1], last[1:])
    for column in reversed(leading):
        one, other = column[:-1], column[1:]
        holds = pc.or_(pc.less(one, other), pc.and_(pc.equal(one, other), holds))
    return bool(pc.all(holds, skip_nulls=False).as_py())
