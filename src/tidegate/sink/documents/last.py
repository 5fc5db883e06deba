"""The last change of each key in a batch of rows. Pure.

    U  (1,a) ─► (1,b)     put 1                     D  (2,a)     gone 2
    U  (1,a) ─► (2,a)     gone 1, put 2             I  (3,c)     put 3

Of several changes of a key only the last one counts; of one transaction what comes wins over what goes.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from tidegate.codec.columnar import Batch
from tidegate.model.event import Value
from tidegate.model.table import TableInfo
from tidegate.sink.documents.values import check_names, columns_of, key_places

Key = TypeVar("Key", bound=Hashable)


class LastChanges(NamedTuple, Generic[Key]):
    """Keys, the commit_ts of each (an Arrow array), and which row of `columns` each holds now; None: it is gone."""

    keys: list[Key]
    commit_ts: Any
    rows: list[int | None]
    columns: list[list[Value]]
    """The columns of all rows that come, by field of the batch."""


def last_changes(
    table: TableInfo, typed: Batch, key_of: Callable[[Sequence[Value]], Key], places: Sequence[int] | None = None
) -> LastChanges[Key]:
    """Return the last change of each key in a batch of typed columns, of the columns at `places`, else of the table's
    key. SinkRefused for rows without their key."""
    op = typed.op.to_numpy(zero_copy_only=False)
    gone, comes = np.flatnonzero(op != "I"), np.flatnonzero(op != "D")
    columns = columns_of(table, typed.fields, typed.after)
    places = key_places(table, typed.fields) if places is None else places
    for place in places:
        for image in (typed.before, typed.after):
            check_names(table, typed.fields[place], image.column(place))
    old = columns_of(table, [typed.fields[at] for at in places], typed.before.select(places))
    keys = [
        *(key_of(values) for values in zip(*old, strict=True)),
        *(key_of(values) for values in zip(*(columns[at] for at in places), strict=True)),
    ]
    row = np.concatenate([gone, comes])
    put = np.concatenate([np.zeros(len(gone), np.bool_), np.ones(len(comes), np.bool_)])
    ts = typed.commit_ts.take(pa.array(row))
    last: dict[Key, int] = {}
    for place in np.lexsort((put, ts.to_numpy())).tolist():
        last[keys[place]] = place
    chosen = list(last.values())
    return LastChanges(
        list(last),
        ts.take(pa.array(chosen, pa.int64())),
        [place - len(gone) if put[place] else None for place in chosen],
        columns,
    )
