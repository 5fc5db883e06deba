"""Split updates of keys and order the rows of a transaction, by columns.

    rows        I   U   U(key)   D          an update of a key becomes two rows; its images stay in place
    sent        I   U   D   I    D
    before          1   2        3
    after       0   1       2

    order       transaction, then
                classic    kind (D U I), the transaction's tables in order of appearance, number
                newarch    table, then the INSERTs of split updates, number

Source: engine/dispatch.py, the row-by-row reference.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar import Batch
from tidegate.codec.columnar.encode.images import DELETE, INSERT, UPDATE, differing
from tidegate.engine.dispatch import NULL_TEXT, PartitionDispatcher, Splitter, TablePlan, ValueText, split_text

_OPS: Final = pa.array(["I", "U", "D"])
_RANKS: Final = np.array([2, 1, 0])
"""The order of operations in a partition, by code: DELETE first, INSERT last."""


class TableOrder(NamedTuple):
    """Per row to send: transaction, operation, first row of its table in the transaction, number, and True for the
    INSERT of a split update."""

    transaction: Any
    rank: Any
    first: Any
    number: Any
    second: Any


class SplitRows(NamedTuple):
    """The rows of a batch to send, with the keys that order them among the rows of other batches."""

    batch: Batch
    order: TableOrder


def split_rows(batch: Batch, numbers: Any, transaction: Any, splitter: Splitter) -> SplitRows:
    """Return the rows of `batch` to send; `numbers` and `transaction` belong to its rows in the chunk."""
    codes = codes_of(batch)
    split = _splits(batch, codes, splitter)
    rows = np.repeat(np.arange(len(codes)), 1 + split)
    second = np.zeros(len(rows), np.bool_)
    second[1:] = rows[1:] == rows[:-1]
    sent = np.where(split[rows], np.where(second, INSERT, DELETE), codes[rows])
    starts = np.ones(len(codes), np.bool_)
    starts[1:] = transaction[1:] != transaction[:-1]
    first = numbers[starts][np.cumsum(starts) - 1]
    if split.any():
        batch = resized(batch, pa.array(rows), sent, batch.before, batch.after)
    return SplitRows(batch, TableOrder(transaction[rows], _RANKS[sent], first[rows], numbers[rows], second))


def in_order(orders: Sequence[TableOrder], *, newarch: bool) -> Any:
    """Return the order for sending the rows of some tables that follow each other; None if they are in order."""
    columns = [np.concatenate(parts) for parts in zip(*orders, strict=True)]
    transaction, rank, first, number, second = columns
    keys = (number, second, first, transaction) if newarch else (second, number, first, rank, transaction)
    order = np.lexsort(keys)
    return None if (order[1:] > order[:-1]).all() else order


def codes_of(batch: Batch) -> Any:
    """Return the kind of each row as a number."""
    return pc.index_in(batch.op, _OPS).to_numpy()


def resized(batch: Batch, rows: Any, codes: Any, before: Any, after: Any) -> Batch:
    """Return the rows `rows` of a batch, with other operations and images."""
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


def _splits(batch: Batch, codes: Any, splitter: Splitter) -> Any:
    splits = np.zeros(len(codes), np.bool_)
    updates = np.flatnonzero(codes == UPDATE)
    if not len(updates):
        return splits
    olds = pa.array(np.flatnonzero(codes[codes != INSERT] == UPDATE))
    news = pa.array(np.flatnonzero(codes[codes != DELETE] == UPDATE))
    changed = np.zeros(len(updates), np.bool_)
    for index, text in splitter.keys:
        changed |= _changed(batch.before.column(index).take(olds), batch.after.column(index).take(news), text)
    plan = splitter.plan
    if splitter.policy.dispatch_key and plan.by not in {PartitionDispatcher.TABLE, PartitionDispatcher.TS}:
        before, after = hashes_of(batch.before, plan), hashes_of(batch.after, plan)
        changed |= before[olds.to_numpy()] != after[news.to_numpy()]
    splits[updates] = changed
    return splits


def _changed(old: Any, new: Any, text: ValueText) -> Any:
    if pa.types.is_integer(old.type):
        return differing(old, new)
    if pa.types.is_floating(old.type):
        pairs = zip(old.to_pylist(), new.to_pylist(), strict=True)
        return np.array([split_text(text, before) != split_text(text, after) for before, after in pairs], np.bool_)
    old, new = (array.cast(pa.binary()).fill_null(NULL_TEXT) for array in (old, new))
    return pc.not_equal(old, new).to_numpy(zero_copy_only=False)


def hashes_of(images: Any, plan: TablePlan) -> Any:
    """Return the hash of each image, which chooses its partition."""
    return np.array(plan.hashes(lambda index: images.column(index).to_pylist(), images.num_rows), np.int64)
