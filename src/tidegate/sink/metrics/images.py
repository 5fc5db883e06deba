"""The images of a batch by row: the old and the new row of each change, null where there is none.

op   I  U  D          old   null  1  3          new   2  4  null          row   2  4  3
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar import Batch
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo
from tidegate.sink.metrics.row_text import ROW


class Images(NamedTuple):
    """The images of a batch, by row."""

    batch: Batch
    op: Any
    old_at: Any
    new_at: Any

    @classmethod
    def of(cls, batch: Batch) -> "Images":
        """Return where the images of each row stand."""
        op = batch.op.to_numpy(zero_copy_only=False)
        return cls(batch, op, np.cumsum(op != "I") - 1, np.cumsum(op != "D") - 1)

    def column(self, image: str, place: int, rows: Any) -> Any:
        """Return the values of a column in an image of some rows, null where there is none."""
        old, new = self.batch.before.column(place), self.batch.after.column(place)
        op = self.op[rows]
        if image == "old":
            return old.take(pa.array(self.old_at[rows], mask=op == "I"))
        if image == "new":
            return new.take(pa.array(self.new_at[rows], mask=op == "D"))
        if not (op == "D").any():
            return new.take(pa.array(self.new_at[rows]))
        both = pa.concat_arrays([new, old])
        return both.take(pa.array(np.where(op == "D", len(new) + self.old_at[rows], self.new_at[rows])))


class FirstRows:
    """Tells, part by part of a chunk, the rows that their transaction does not have yet.

    A large transaction is cut into parts anywhere: then the next part of its layout begins amid it."""

    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._before: dict[pa.Schema, pa.Table] = {}
        """By their columns the rows of the transaction at which the parts before ended."""

    def of(self, images: Images, *, is_last: bool) -> Any:
        """Return the numbers of the rows that come for the first time; behind a part that `is_last` none follows."""
        rows = _identities(images, self._table)
        columns = rows.schema
        before = self._before.pop(columns, rows.slice(0, 0))
        known = before.num_rows
        rows = pa.concat_tables([before, rows])
        if not is_last:
            self._before[columns] = rows.filter(pc.equal(rows["ts"], rows["ts"][-1]))
        rows = rows.append_column("row", pa.array(np.arange(-known, images.batch.rows)))
        first = rows.group_by(columns.names, use_threads=False).aggregate([("row", "min")]).column("row_min").to_numpy()
        return np.sort(first[first >= 0])


def _identities(images: Images, table: TableInfo) -> pa.Table:
    """What tells the rows of a transaction apart: the operation and the key; without a key all columns."""
    batch = images.batch
    at = {lowered(one.name): place for place, one in enumerate(batch.fields)}
    key = [at.get(lowered(name)) for name in table.handle_key]
    every = np.arange(batch.rows)
    columns = {"ts": batch.commit_ts, "op": batch.op}
    if key and None not in key:
        columns |= {f"k{place}": images.column(ROW, one, every) for place, one in enumerate(key) if one is not None}
    else:
        for image in ("old", "new"):
            columns |= {f"{image}{place}": images.column(image, place, every) for place in range(len(batch.fields))}
    return pa.table(columns)
