"""The partitions that one task writes, chunk by chunk: rows to messages, in the order of each partition.

    chunk ── by batch ─► placed ─► texts ┐                        ┌► shop/0: take ─► cut ─► producer
                         placed ─► texts ┴─► one order of all ────┴► shop/1: take ─► cut ─► producer

A chunk holds whole transactions, so the order of a partition is that of its chunks.  Rows of a message may be of two
chunks: a cutter keeps the open one.  `texts` changes nothing here, so what it refuses may be written row by row
(`texts_of_rows`), with the same cutters behind: that way is the reference, and says what is wrong with which row.

Updates are split and transactions ordered in engine/split_columns.py; the partition of each row is found here.

Source: dispatch.py, engine/dispatch.py and engine/dispatch.py, whose rules these are and which stay the reference.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.codec.columnar import Batch, ColumnarEncoder, Cutter, EncodedRows, MessageArrays, typed_batch
from tidegate.codec.columnar.encode.encoder import rows_of
from tidegate.codec.columnar.encode.images import DELETE, INSERT
from tidegate.codec.open_encode import Pair
from tidegate.codec.wire_table import WireTable
from tidegate.engine.change import Chunk
from tidegate.engine.dispatch import PartitionDispatcher, TablePlan
from tidegate.engine.filter import Selection
from tidegate.engine.split_columns import TableOrder, codes_of, hashes_of, in_order, resized, split_rows
from tidegate.model.errors import DispatcherFailed, EncodeError, MessageTooLarge
from tidegate.model.event import RowChange
from tidegate.sink.kafka.dispatch import Dispatcher, Sent, TableDispatch
from tidegate.sink.kafka.groups import Place
from tidegate.sink.kafka.producer import Producer


class PlacedColumns(NamedTuple):
    """Rows of one table as they are sent: the columns that are, the rows, where each goes, and what orders them."""

    wire: WireTable
    batch: Batch
    topic: str
    partition: Any
    order: TableOrder


def placed(batch: Batch, numbers: Any, transaction: Any, plan: TableDispatch, partitions: int) -> PlacedColumns:
    """Return the rows of `batch` as they are sent; `numbers` and `transaction` are those of its rows in the chunk."""
    batch, order = split_rows(batch, numbers, transaction, plan.splitter)
    sent = codes_of(batch)
    if plan.selection is not None:
        batch = _narrowed(batch, plan.selection)
    partition = _partitions(batch, sent, plan.places, partitions)
    return PlacedColumns(plan.wire, batch, plan.places.topic, partition, order)


def kept(rows: PlacedColumns, chosen: Any) -> PlacedColumns:
    """Return the rows of which `chosen` is true."""
    if chosen.all():
        return rows
    codes = codes_of(rows.batch)
    before = rows.batch.before.filter(pa.array(chosen[codes != INSERT]))
    after = rows.batch.after.filter(pa.array(chosen[codes != DELETE]))
    places = pa.array(np.flatnonzero(chosen))
    return rows._replace(
        batch=resized(rows.batch, places, codes[chosen], before, after),
        partition=rows.partition[chosen],
        order=TableOrder(*(column[chosen] for column in rows.order)),
    )


def _narrowed(batch: Batch, selection: Selection) -> Batch:
    """The columns of a batch that are sent."""
    images = (image.select(list(selection.places)) for image in (batch.before, batch.after))
    before, after = images
    pk_names = selection.wire.pk_names
    return replace(batch, fields=selection.fields, pk_names=pk_names, before=before, after=after)


def _partitions(batch: Batch, codes: Any, plan: TablePlan, partitions: int) -> Any:
    """The partition of each row."""
    if partitions < 1:
        raise DispatcherFailed(f"topic {plan.topic} has {partitions} partitions; at least one is needed")
    if plan.by is PartitionDispatcher.TS:
        return batch.commit_ts.to_numpy() % partitions
    if plan.by is PartitionDispatcher.TABLE:
        return np.full(len(codes), plan.hashes(lambda _: (), 1)[0] % partitions)
    hashed = np.zeros(len(codes), np.int64)
    hashed[codes == DELETE] = hashes_of(batch.before, plan)[codes[codes != INSERT] == DELETE]
    hashed[codes != DELETE] = hashes_of(batch.after, plan)
    return hashed % partitions


PlacedTexts: TypeAlias = list[tuple[Place, EncodedRows]]
"""Texts of rows in the order of each partition."""
_Transaction: TypeAlias = list[tuple[TableDispatch, list[RowChange]]]
"""A transaction's rows, each with how its table is dispatched."""


class ColumnPartitions:
    """Writes the partitions that `dispatcher` gives rows to. Counts `rows`, `messages` and the bytes of their keys and
    values."""

    def __init__(self, dispatcher: Dispatcher, encoder: ColumnarEncoder, producer: Producer) -> None:
        self._dispatcher, self._encoder, self._producer = dispatcher, encoder, producer
        self._cutters: dict[Place, Cutter] = {}
        self.rows = self.messages = self.size_bytes = 0

    def texts(self, chunk: Chunk) -> PlacedTexts:
        """Encode the rows of a chunk column by column. Raises Misfit, EncodeError and DispatcherFailed."""
        found = [
            self._placed(typed_batch(batch), numbers, chunk.transaction[numbers]) for batch, numbers in chunk.parts
        ]
        found = [rows for rows in found if rows.batch.rows]
        if not found:
            return []
        texts = [self._encoder.texts(rows.batch, rows.wire, row_ids=rows.batch.row_ids) for rows in found]
        order = in_order([rows.order for rows in found], newarch=self._dispatcher.policy.newarch)
        return self._by_place(found, _joined(texts), order)

    def texts_of_rows(self, chunk: Chunk) -> PlacedTexts:
        """Encode the rows of a chunk one by one. EncodeError and its kinds with the row's table and commit_ts."""
        pairs: dict[Place, list[Pair]] = {}
        for rows in self._transactions(chunk):
            for place, pair in self._encoded(rows):
                pairs.setdefault(place, []).append(pair)
        return [(place, self._encoder.texts_of(rows)) for place, rows in pairs.items()]

    def write(self, found: PlacedTexts) -> None:
        """Send the messages that these texts complete. Raises SinkError."""
        for place, texts in found:
            cutter = self._cutters.get(place)
            if cutter is None:
                cutter = self._cutters[place] = Cutter(self._encoder.options)
            self._send(place, cutter.append(texts))
            self.rows += len(texts)

    def flush(self) -> None:
        """Return when the broker has all rows. Raises SinkError."""
        for place, cutter in self._cutters.items():
            self._send(place, cutter.flush())
        self._producer.flush()

    def _send(self, place: Place, messages: MessageArrays) -> None:
        self.messages += len(messages)
        self.size_bytes += self._producer.send_all(*place, messages.pairs())

    def _placed(self, batch: Batch, numbers: Any, transaction: Any) -> PlacedColumns:
        plan = self._dispatcher.plan(batch)
        topic = plan.places.topic
        rows = placed(batch, numbers, transaction, plan, self._dispatcher.partitions[topic])
        own = [partition for name, partition in self._dispatcher.own if name == topic]
        return kept(rows, np.isin(rows.partition, own))

    def _by_place(self, found: Sequence[PlacedColumns], texts: EncodedRows, order: Any) -> PlacedTexts:
        topics = list(dict.fromkeys(rows.topic for rows in found))
        codes = np.concatenate([rows.partition * len(topics) + topics.index(rows.topic) for rows in found])
        codes = codes if order is None else codes[order]
        if (codes == codes[0]).all():
            whole = texts if order is None else texts.take(pa.array(order))
            return [(_place(topics, int(codes[0])), whole)]
        rows = np.arange(len(codes)) if order is None else order
        return [(_place(topics, code), texts.take(pa.array(rows[codes == code]))) for code in np.unique(codes).tolist()]

    def _transactions(self, chunk: Chunk) -> Iterator[_Transaction]:
        """The rows of a chunk one by one, transaction by transaction."""
        plans = [self._dispatcher.plan(batch) for batch, _ in chunk.parts]
        rows = [
            (number, at, row)
            for at, (batch, numbers) in enumerate(chunk.parts)
            for number, row in zip(numbers.tolist(), _rows(typed_batch(batch), plans[at]), strict=True)
        ]
        rows.sort(key=lambda each: each[0])
        transaction = chunk.transaction.tolist()
        for _, group in groupby(rows, key=lambda each: transaction[each[0]]):
            batches: dict[int, list[RowChange]] = {}
            for _, at, row in group:
                batches.setdefault(at, []).append(row)
            yield [(plans[at], mine) for at, mine in batches.items()]

    def _encoded(self, transaction: _Transaction) -> Iterator[tuple[Place, Pair]]:
        commit_ts = transaction[0][1][0].commit_ts
        try:
            sent: list[Sent] = self._dispatcher.transaction(transaction)
        except EncodeError as error:
            raise _located(error, f"commit_ts {commit_ts}").at(commit_ts=commit_ts) from error
        for place, row, wire in sent:
            try:
                pair = self._encoder.pair(row, wire)
            except EncodeError as error:
                table = f"{row.schema}.{row.table}"
                located = _located(error, f"{table} at commit_ts {commit_ts}")
                raise located.at(table=table, commit_ts=commit_ts, topic=place[0], partition=place[1]) from error
            yield place, pair


def _rows(batch: Batch, plan: TableDispatch) -> Iterator[RowChange]:
    return rows_of(batch, range(batch.rows), plan.whole, batch.row_ids)


def _located(error: EncodeError, where: str) -> EncodeError:
    """Return the error with the words that say where it happened."""
    found: EncodeError
    if isinstance(error, MessageTooLarge):
        found = MessageTooLarge(f"{error.table}, {where},", error.key, error.size, error.limit, error.options)
    else:
        found = type(error)(f"{where}: {error}")
    found.where = error.where
    return found


def _place(topics: Sequence[str], code: int) -> Place:
    partition, at = divmod(code, len(topics))
    return topics[at], partition


def _joined(texts: Sequence[EncodedRows]) -> EncodedRows:
    if len(texts) == 1:
        return texts[0]
    keys = None if texts[0].keys is None else pa.concat_arrays([each.keys for each in texts])
    return EncodedRows(keys, pa.concat_arrays([each.values for each in texts]))
