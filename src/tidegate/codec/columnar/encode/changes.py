"""Changelog rows, which are lists of texts, to batches of texts or of typed columns for the encoder.

    commit_ts  op  partition_id  before        after              before.id  before.n     after.id  after.n
    5          I                               ["1", "a"]                                 1         a
    5          U                 ["1", "a"]    ["1", null]   →    1          a            1         null
    6          D                 ["1", null]                      1          null

    int      decimal digits          FLOAT, DOUBLE   shortest digits          texts   UTF-8         bytes   themselves

Texts are slices of the lists; a typed column is one `take` and one cast.  The rows are of one table and one layout, in
send order.  A text column with a value that is not UTF-8 stays a column of bytes, which the encoder accepts.

Source: ROWS_SCHEMA of `engine/change.py`.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar.rows import Batch, RowTexts
from tidegate.codec.columnar.values import integer_kind
from tidegate.codec.values import INT_RANGES, integer_range
from tidegate.model.errors import EncodeError
from tidegate.model.event import Field
from tidegate.model.mysql import FLOATS, STRINGS


def text_batch(rows: Any, fields: tuple[Field, ...], pk_names: tuple[str, ...] | None) -> Batch:
    """Return some rows (an Arrow table of ROWS_SCHEMA, at least one row) with images as RowTexts, not copied where
    every row has one; `fields` and `pk_names` are those of their layout.

    EncodeError for an image that has not as many values as the layout has fields."""
    schema, table = rows.column("schema")[0].as_py(), rows.column("table")[0].as_py()
    op, width = _whole(rows, "op").cast(pa.string()), len(fields)
    before = _row_texts(_whole(rows, "before"), pc.not_equal(op, "I"), width)
    after = _row_texts(_whole(rows, "after"), pc.not_equal(op, "D"), width)
    positions = rows.select(["topic", "partition", "offset"])
    is_of_log = positions.column("topic").null_count == rows.num_rows
    return Batch(
        schema=schema,
        table=table,
        fields=fields,
        pk_names=pk_names,
        message=pa.array(np.arange(rows.num_rows, dtype=np.int32)),
        seq=_whole(rows, "seq"),
        commit_ts=_whole(rows, "commit_ts"),
        op=op,
        partition_id=_whole(rows, "partition_id"),
        before=before,
        after=after,
        positions=None if is_of_log else positions,
        once=is_of_log,
    )


def typed_batch(batch: Batch) -> Batch:
    """Return `batch` with typed columns instead of RowTexts. EncodeError for a text that is not a value of its
    column."""
    try:
        before, after = (
            _columns(image, batch.fields) if isinstance(image, RowTexts) else image
            for image in (batch.before, batch.after)
        )
    except pa.ArrowInvalid as error:
        where = f"rows of {batch.schema}.{batch.table}"
        raise EncodeError(f"{where} with a value that is none of its column: {error}") from error
    return replace(batch, before=before, after=after)


def _whole(rows: Any, name: str) -> Any:
    column = rows.column(name)
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _row_texts(lists: Any, present: Any, width: int) -> RowTexts:
    """The values of lists, which have `width` values if the image is `present`, and are null otherwise."""
    sizes = pc.list_value_length(lists).fill_null(0).to_numpy()
    if not np.array_equal(sizes, width * present.to_numpy(zero_copy_only=False)):
        raise EncodeError(f"images that have not as many values as their layout has columns ({width})")
    return RowTexts(lists.flatten(), width)


def _columns(image: RowTexts, fields: tuple[Field, ...]) -> Any:
    rows = np.arange(0, len(image.values), image.width)
    arrays = [_typed(image.values.take(pa.array(rows + index)), field) for index, field in enumerate(fields)]
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])


def _typed(texts: Any, field: Field) -> Any:
    if field.type in INT_RANGES:
        return texts.cast(pa.string()).cast(integer_kind(*integer_range(field.type, unsigned=field.unsigned)))
    if field.type in FLOATS:
        return texts.cast(pa.string()).cast(pa.float64())
    if field.binary and field.type in STRINGS:
        return texts
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        return texts
