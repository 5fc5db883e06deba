"""Row changes of one table and one layout, as columns.

    message  seq  commit_ts  op      before.id  before.n       after.id  after.n
    0        0    5          I                                 1         a
    0        1    5          U       1          a              1         b
    3        0    6          D       1          b

Images are dense: `before` has a row for every U and D, `after` for every I and U, in the order of the batch. With
`as_texts`, images whose values are all equal to their texts are RowTexts instead: row by row in one array. `(message,
seq)` is the index of the message in the chunk, and of the row's event in the message.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.codec.values import ColumnForm
from tidegate.model.event import Field
from tidegate.model.table import TableInfo


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The columns of a table's rows, and the wire forms of their values."""

    schema: str
    table: str
    fields: tuple[Field, ...]
    pk_names: tuple[str, ...] | None
    columns: tuple[ColumnForm, ...]


class RowTexts(NamedTuple):
    """Images as texts: the `width` values of the first row, then those of the second, .. in one binary array."""

    values: Any
    width: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Row changes of one table in one layout; see the module's drawing and engine/change.py.

    `before` and `after` are record batches with a column for each of `fields`, typed as in messages; or
    RowTexts.  `commit_ts`, `partition_id`, `start_ts` and `row_ids` are int64 arrays, one value a row, `op` holds I, U
    or D.  `start_ts` is None if the source has none, 0 for rows that a DDL brings, `row_ids` (handles that are numbers)
    where there are none, `definition` (of the table at commit_ts - 1) where only `fields` are known, `positions` (an
    Arrow table: topic, partition and offset of each row's message) where rows are of no message or their positions are
    unknown. `once`: each change landed once, without its handle."""

    schema: str
    table: str
    fields: tuple[Field, ...]
    pk_names: tuple[str, ...] | None
    message: Any
    seq: Any
    commit_ts: Any
    op: Any
    partition_id: Any
    before: Any
    after: Any
    start_ts: Any = None
    row_ids: Any = None
    definition: TableInfo | None = None
    positions: Any = None
    once: bool = False

    @property
    def rows(self) -> int:
        return len(self.op)

    @property
    def repeats(self) -> bool:
        """True if equal rows of one commit_ts may be one change, sent again; else they are as many changes."""
        return self.row_ids is None and not self.once

    def part(self, start: int, stop: int) -> "Batch":
        """Return the rows from `start` to `stop` (exclusive) with their images, without copying."""

        def some(column: Any) -> Any:
            return None if column is None else column.slice(start, stop - start)

        op = self.op.to_numpy(zero_copy_only=False)
        parts = []
        for images, has in ((self.before, op != "I"), (self.after, op != "D")):
            first, rows = int(np.count_nonzero(has[:start])), int(np.count_nonzero(has[start:stop]))
            if isinstance(images, RowTexts):
                parts.append(images._replace(values=images.values.slice(first * images.width, rows * images.width)))
            else:
                parts.append(images.slice(first, rows))
        return replace(
            self,
            message=some(self.message),
            seq=some(self.seq),
            commit_ts=some(self.commit_ts),
            op=some(self.op),
            partition_id=some(self.partition_id),
            before=parts[0],
            after=parts[1],
            start_ts=some(self.start_ts),
            row_ids=some(self.row_ids),
            positions=some(self.positions),
        )


def row_texts(columns: Sequence[Any]) -> RowTexts:
    """Return columns of texts, at least one, row by row."""
    rows, width = len(columns[0]), len(columns)
    order = np.arange(rows * width, dtype=np.int32).reshape(width, rows).T.ravel()
    return RowTexts(pa.concat_arrays(columns).take(pa.array(order)), width)
