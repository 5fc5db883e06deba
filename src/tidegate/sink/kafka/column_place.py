"""Changes of many rows as they are sent: updates split, partition and place in the order, by columns.

    rows        I   U   U(key)   D          an update of a key becomes two rows; its images stay where they are
    sent        I   U   D   I    D
    before          1   2        3
    after       0   1       2

    order       transaction, then as dispatch.py has it:
                classic    kind (D U I), the transaction's tables in the order in which they appear, number
                newarch    table, then the INSERTs of split updates, number

Source: dispatch.py, feed/split.py and feed/route.py, whose rules these are and which stay the reference.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar import Batch
from tidegate.codec.columnar.encode.images import DELETE, INSERT, UPDATE, differing
from tidegate.codec.wire_table import WireTable
from tidegate.feed.column_selector import Selection
from tidegate.feed.dispatch_rule import PartitionDispatcher
from tidegate.feed.route import TablePlan
from tidegate.feed.split import Splitter
from tidegate.feed.value_text import NULL_TEXT, ValueText
from tidegate.model.errors import DispatcherFailed
from tidegate.model.event import Value
from tidegate.sink.kafka.dispatch import TableDispatch

__all__ = ["PlacedColumns", "TableOrder", "in_order", "kept", "placed"]

_OPS: Final = pa.array(["I", "U", "D"])
_RANKS: Final = np.array([2, 1, 0])
"""Kinds as a partition has them, by their codes: INSERT last, DELETE first."""


class TableOrder(NamedTuple):
    """Of each row that is sent: its transaction, kind, the first row of its table in the transaction, its own number,
    and whether it is the INSERT of a split update."""

    transaction: Any
    rank: Any
    first: Any
    number: Any
    second: Any


class PlacedColumns(NamedTuple):
    """Rows of one table as they are sent: the columns that are, the rows, where each goes, and what orders them."""

    wire: WireTable
    batch: Batch
    topic: str
    partition: Any
    order: TableOrder


def placed(batch: Batch, numbers: Any, transaction: Any, plan: TableDispatch, partitions: int) -> PlacedColumns:
    """Return the rows of `batch` as they are sent; `numbers` and `transaction` are those of its rows in the chunk."""
    codes = _codes(batch)
    split = _splits(batch, codes, plan.splitter)
    rows = np.repeat(np.arange(len(codes)), 1 + split)
    second = np.zeros(len(rows), np.bool_)
    second[1:] = rows[1:] == rows[:-1]
    sent = np.where(split[rows], np.where(second, INSERT, DELETE), codes[rows])
    starts = np.ones(len(codes), np.bool_)
    starts[1:] = transaction[1:] != transaction[:-1]
    first = numbers[starts][np.cumsum(starts) - 1]
    if split.any():
        batch = _resized(batch, pa.array(rows), sent, batch.before, batch.after)
    if plan.selection is not None:
        batch = _narrowed(batch, plan.selection)
    order = TableOrder(transaction[rows], _RANKS[sent], first[rows], numbers[rows], second)
    partition = _partitions(batch, sent, plan.places, partitions)
    return PlacedColumns(plan.wire, batch, plan.places.topic, partition, order)


def kept(rows: PlacedColumns, chosen: Any) -> PlacedColumns:
    """Return the rows of which `chosen` is true."""
    if chosen.all():
        return rows
    codes = _codes(rows.batch)
    before = rows.batch.before.filter(pa.array(chosen[codes != INSERT]))
    after = rows.batch.after.filter(pa.array(chosen[codes != DELETE]))
    places = pa.array(np.flatnonzero(chosen))
    return rows._replace(
        batch=_resized(rows.batch, places, codes[chosen], before, after),
        partition=rows.partition[chosen],
        order=TableOrder(*(column[chosen] for column in rows.order)),
    )


def in_order(orders: Sequence[TableOrder], *, newarch: bool) -> Any:
    """Return the rows of some tables, one table behind the other, by number as they are sent; None if they stand so."""
    columns = [np.concatenate(parts) for parts in zip(*orders, strict=True)]
    transaction, rank, first, number, second = columns
    keys = (number, second, first, transaction) if newarch else (second, number, first, rank, transaction)
    found = np.lexsort(keys)
    return None if (found[1:] > found[:-1]).all() else found


def _codes(batch: Batch) -> Any:
    return pc.index_in(batch.op, _OPS).to_numpy()


def _resized(batch: Batch, rows: Any, codes: Any, before: Any, after: Any) -> Batch:
    zeros = pa.array(np.zeros(len(codes), np.int32))
    return replace(
        batch,
        message=zeros,
        seq=zeros,
        commit_ts=batch.commit_ts.take(rows),
        op=_OPS.take(pa.array(codes)),
        partition_id=batch.partition_id.take(rows),
        row_ids=None if batch.row_ids is None else batch.row_ids.take(rows),
        before=before,
        after=after,
    )


def _narrowed(batch: Batch, selection: Selection) -> Batch:
    """The columns of a batch that are sent."""
    images = (image.select(list(selection.places)) for image in (batch.before, batch.after))
    before, after = images
    pk_names = selection.wire.pk_names
    return replace(batch, fields=selection.fields, pk_names=pk_names, before=before, after=after)


def _splits(batch: Batch, codes: Any, splitter: Splitter) -> Any:
    """Which rows are updates that have to be split."""
    found = np.zeros(len(codes), np.bool_)
    updates = np.flatnonzero(codes == UPDATE)
    if not len(updates):
        return found
    olds = pa.array(np.flatnonzero(codes[codes != INSERT] == UPDATE))
    news = pa.array(np.flatnonzero(codes[codes != DELETE] == UPDATE))
    changed = np.zeros(len(updates), np.bool_)
    for at, text in splitter.keys:
        changed |= _changed(batch.before.column(at).take(olds), batch.after.column(at).take(news), text)
    plan = splitter.plan
    if splitter.policy.dispatch_key and plan.by not in {PartitionDispatcher.TABLE, PartitionDispatcher.TS}:
        before, after = _hashes(batch.before, plan), _hashes(batch.after, plan)
        changed |= before[olds.to_numpy()] != after[news.to_numpy()]
    found[updates] = changed
    return found


def _changed(old: Any, new: Any, text: ValueText) -> Any:
    """Which values have another text."""
    if pa.types.is_integer(old.type):
        return differing(old, new)
    if pa.types.is_floating(old.type):
        pairs = zip(old.to_pylist(), new.to_pylist(), strict=True)
        return np.array([_text(text, before) != _text(text, after) for before, after in pairs], np.bool_)
    old, new = (array.cast(pa.binary()).fill_null(NULL_TEXT) for array in (old, new))
    return pc.not_equal(old, new).to_numpy(zero_copy_only=False)


def _text(text: ValueText, value: Any) -> bytes:
    return NULL_TEXT if value is None else text(value)


def _hashes(images: Any, plan: TablePlan) -> Any:
    def values(at: int) -> list[Value]:
        found: list[Value] = images.column(at).to_pylist()
        return found

    return np.array(plan.hashes(values, images.num_rows), np.int64)


def _partitions(batch: Batch, codes: Any, plan: TablePlan, partitions: int) -> Any:
    """The partition of each row."""
    if partitions < 1:
        raise DispatcherFailed(f"topic {plan.topic} has {partitions} partitions; at least one is needed")
    if plan.by is PartitionDispatcher.TS:
        return batch.commit_ts.to_numpy() % partitions
    if plan.by is PartitionDispatcher.TABLE:
        return np.full(len(codes), plan.hashes(lambda _: (), 1)[0] % partitions)
    hashed = np.zeros(len(codes), np.int64)
    hashed[codes == DELETE] = _hashes(batch.before, plan)[codes[codes != INSERT] == DELETE]
    hashed[codes != DELETE] = _hashes(batch.after, plan)
    return hashed % partitions
