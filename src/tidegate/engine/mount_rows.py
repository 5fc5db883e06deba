"""Rows that were mounted one by one as a Batch: what mount_columns.py makes of many rows at once.

    Mounted, Mounted, ...  ──►  before.id  before.v      after.id  after.v        typed as ColumnMounter types them

A text column that holds a byte which is no UTF-8 is one of bytes.  Where a value does not fit its column's type, both
images are texts (RowTexts): a row of an old form may hold what its column cannot.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.codec.columnar import Batch
from tidegate.codec.columnar.values import Misfit
from tidegate.engine.change import OPS, RowTexts, encode_value
from tidegate.engine.mount import Mounted
from tidegate.engine.mount_columns import array_of
from tidegate.kv.value_columns import arrow_type
from tidegate.model.event import Field, Values, images


def batch_of_rows(rows: Sequence[Mounted], start_ts: Sequence[int]) -> Batch:
    """Return row changes (at least one) of one version of a table, partitions of it mixed, in their order; `start_ts`
    is that of each row."""
    table, changes = rows[0].table, [mounted.row for mounted in rows]
    both = [images(row) for row in changes]
    befores = [before for before, _ in both if before is not None]
    afters = [after for _, after in both if after is not None]
    kinds = [arrow_type(column.type) for column in table.info.columns if not column.virtual]
    before: Any
    after: Any
    try:
        before, after = (_typed(values, kinds, table.fields) for values in (befores, afters))
    except Misfit:
        before, after = (_texts(values, len(kinds)) for values in (befores, afters))
    zeros = pa.array(np.zeros(len(rows), np.int32))
    ids = [row.row_id for row in changes]
    return Batch(
        schema=changes[0].schema,
        table=changes[0].table,
        fields=table.fields,
        pk_names=table.wire.pk_names,
        message=zeros,
        seq=zeros,
        commit_ts=pa.array([row.commit_ts for row in changes], pa.int64()),
        op=pa.array([OPS[type(row).__name__] for row in changes]),
        partition_id=pa.array([row.partition_id for row in changes], pa.int64()),
        before=before,
        after=after,
        start_ts=pa.array(start_ts, pa.int64()),
        row_ids=None if None in ids else pa.array(ids, pa.int64()),
        definition=table.info,
    )


def _typed(rows: Sequence[Values], kinds: Sequence[Any], fields: Sequence[Field]) -> Any:
    """The images as columns. Raises Misfit."""
    columns = zip(*rows, strict=True) if rows else [()] * len(kinds)
    arrays = [_column(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])


def _column(values: Sequence[Any], kind: Any) -> Any:
    try:
        return array_of(values, kind)
    except Misfit:
        if not pa.types.is_string(kind):
            raise
        return array_of(values, pa.binary())


def _texts(rows: Sequence[Values], width: int) -> RowTexts:
    """The images as the changelog writes them."""
    return RowTexts(pa.array([encode_value(value) for row in rows for value in row], pa.binary()), width)
