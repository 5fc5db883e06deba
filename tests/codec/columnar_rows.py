"""Row changes of one table as the batches that the columnar encoder takes, and what both encoders make of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa

from tidegate.codec import BatchEncoder, EncodeOptions, WireTable
from tidegate.codec.batch import ClaimStore, Message
from tidegate.codec.columnar import Batch, ColumnarEncoder
from tidegate.codec.wire_table import WireColumn
from tidegate.model.event import Delete, Insert, RowChange, Value, Values, images


def batch_of(rows: Sequence[RowChange], table: WireTable) -> tuple[Batch, Any]:
    """Rows of one table as columns, and their row ids."""
    first = rows[0]
    both = [images(row) for row in rows]
    before, after = columns_of([old for old, _ in both], [new for _, new in both], table)
    batch = Batch(
        schema=first.schema,
        table=first.table,
        fields=first.fields,
        pk_names=first.pk_names,
        message=pa.array(range(len(rows)), pa.int32()),
        seq=pa.array([0] * len(rows), pa.int32()),
        commit_ts=pa.array([row.commit_ts for row in rows], pa.int64()),
        op=pa.array(["I" if isinstance(row, Insert) else "D" if isinstance(row, Delete) else "U" for row in rows]),
        partition_id=pa.array([row.partition_id for row in rows], pa.int64()),
        before=before,
        after=after,
    )
    return batch, pa.array([row.row_id for row in rows], pa.int64())


def columns_of(before: Sequence[Values | None], after: Sequence[Values | None], table: WireTable) -> tuple[Any, Any]:
    """The images that are there, as record batches."""
    old, new = ([values for values in every if values is not None] for every in (before, after))
    arrays = [array_of([values[at] for values in (*old, *new)], column) for at, column in enumerate(table.columns)]
    both = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in table.columns])
    return both.slice(0, len(old)), both.slice(len(old))


def array_of(values: Sequence[Value], column: WireColumn) -> Any:
    """Values of a column as the decoders type them; texts that are no UTF-8 as bytes."""
    some = [value for value in values if value is not None]
    match some[0] if some else None:
        case int():
            return pa.array(values, pa.int64() if min(some) < 0 else pa.uint64())  # type: ignore[operator]
        case float():
            return pa.array(values, pa.float64())
        case bytes():
            return pa.array(values, pa.binary())
        case str():
            try:
                return pa.array(values, pa.string())
            except UnicodeEncodeError:
                raw = [
                    value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value for value in values
                ]
                return pa.array(raw, pa.binary())
    return pa.array(values, empty_type(column))


def empty_type(column: WireColumn) -> Any:
    """The type of a column without a value."""
    made = {1: pa.int64(), 2: pa.int64(), 3: pa.int64(), 8: pa.int64(), 9: pa.int64(), 13: pa.int64(), 16: pa.uint64()}
    made |= {247: pa.int64(), 248: pa.uint64(), 4: pa.float64(), 5: pa.float64()}
    strings = {15, 249, 250, 251, 252, 253, 254}
    code = int(column.type.code)
    return made.get(code, pa.binary() if code in strings and column.binary else pa.string())


class ByColumnsOnly(ColumnarEncoder):
    """Does not fall back."""

    def _by_rows(self, *_rows: Any) -> NoReturn:
        raise AssertionError("a batch that went row by row")


def by_columns(
    parts: Iterable[tuple[Sequence[RowChange], WireTable, Sequence[bytes | None]]],
    options: EncodeOptions,
    now_ms: Callable[[], int] = lambda: 7,
    claims: ClaimStore | None = None,
) -> list[Message]:
    """The messages of some runs of rows, each of one table, with their row keys; no batch is too small.

    The plain encoder may write rows only where a fault of newarch asks for it, and what is too large."""
    kind = ColumnarEncoder if options.faults & {"stale-flags", "unnamed-null"} else ByColumnsOnly
    encoder = kind(options, now_ms=now_ms, claims=claims, few_rows=0)
    made: list[Message] = []
    for rows, table, keys in parts:
        batch, row_ids = batch_of(rows, table)
        made += encoder.append(batch, table, row_ids=row_ids, row_keys=pa.array(keys, pa.binary())).messages()
    return [*made, *encoder.flush().messages()]


def by_rows(
    parts: Iterable[tuple[Sequence[RowChange], WireTable, Sequence[bytes | None]]],
    options: EncodeOptions,
    now_ms: Callable[[], int] = lambda: 7,
    claims: ClaimStore | None = None,
) -> list[Message]:
    """The same by the plain encoder."""
    encoder = BatchEncoder(options, now_ms=now_ms, claims=claims)
    made: list[Message] = []
    for rows, table, keys in parts:
        for row, key in zip(rows, keys, strict=True):
            made += encoder.append(row, table, key)
    return [*made, *encoder.flush()]


def part_of(batch: Batch, start: int, stop: int) -> Batch:
    """The rows of a batch from `start` to `stop`, whose arrays begin amid those of the batch."""
    ops, (before, after) = batch.op.to_pylist(), (batch.before, batch.after)
    olds, news = ([sum(op != absent for op in ops[:at]) for at in (start, stop)] for absent in "ID")
    columns = ("message", "seq", "commit_ts", "op", "partition_id")
    return replace(
        batch,
        **{name: getattr(batch, name).slice(start, stop - start) for name in columns},
        before=before.slice(olds[0], olds[1] - olds[0]),
        after=after.slice(news[0], news[1] - news[0]),
    )
