"""Rows of a batch as events, for what only the plain encoder writes."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.codec.columnar.rows import Batch
from tidegate.codec.wire_table import WireColumn, WireTable
from tidegate.model.errors import EncodeError
from tidegate.model.event import Delete, Insert, RowChange, Update, Value, Values

__all__ = ["rows_of"]


def rows_of(batch: Batch, numbers: Sequence[int], table: WireTable, row_ids: Any = None) -> Iterator[RowChange]:
    """Return the rows `numbers` of a batch as events; `table` tells texts from bytes."""
    chosen = pa.array(numbers, pa.int64())
    ops = np.array(batch.op.to_pylist(), object)
    images = {
        kind: _images(rows, np.flatnonzero(ops != absent), np.asarray(numbers, np.int64), table)
        for kind, absent, rows in (("before", "I", batch.before), ("after", "D", batch.after))
    }
    singles = (batch.commit_ts, batch.partition_id, pa.nulls(batch.rows) if row_ids is None else row_ids)
    ids = zip(*(column.take(chosen).to_pylist() for column in singles), strict=True)
    found = zip(ops[numbers].tolist(), ids, images["before"], images["after"], strict=True)
    for op, (commit_ts, partition_id, row_id), before, after in found:
        shared: dict[str, Any] = {
            "schema": batch.schema,
            "table": batch.table,
            "fields": batch.fields,
            "commit_ts": commit_ts,
            "row_id": row_id,
            "partition_id": partition_id,
            "pk_names": batch.pk_names,
        }
        match op:
            case "I":
                yield Insert(after=after, **shared)
            case "U":
                yield Update(before=before, after=after, **shared)
            case "D":
                yield Delete(before=before, **shared)
            case _:
                raise EncodeError(f"a row of {batch.schema}.{batch.table} has op {op!a}, which is not I, U or D")


def _images(rows: Any, there: Any, numbers: Any, table: WireTable) -> list[Values]:
    """The image of each of the rows `numbers`, () for those that are not `there`, whose images are those of `rows`."""
    if len(there) != rows.num_rows:
        raise EncodeError(f"{rows.num_rows} images of {len(there)} rows")
    places = np.searchsorted(there, numbers)
    has = np.isin(numbers, there)
    chosen = rows.take(pa.array(places[has]))
    columns = [_values(column.to_pylist(), of) for column, of in zip(chosen.columns, table.columns, strict=True)]
    values = iter(zip(*columns, strict=True))
    return [next(values) if one else () for one in has.tolist()]


def _values(values: list[Any], column: WireColumn) -> list[Value]:
    """Values as events have them; bytes of a text column are texts, whatever they are in Arrow."""
    if column.binary:
        return values
    return [value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value for value in values]
