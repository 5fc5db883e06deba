"""The partitions that one task writes, chunk by chunk: rows as columns to messages, in the order of each partition.

    chunk ── by table ─► placed ─► texts ┐                        ┌► shop/0: take ─► cut ─► producer
                         placed ─► texts ┴─► one order of all ────┴► shop/1: take ─► cut ─► producer

A chunk holds whole transactions, so the order of a partition is that of its chunks.  Rows of a message may be of two
chunks: a cutter keeps the open one.  `texts` changes nothing here, so what it refuses may be written row by row
(`texts_of_rows`), with the same cutters behind.

Source: partitions.py, whose messages these are and which stays the reference.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.codec.columnar import ColumnarEncoder, Cutter, Messages, Texts
from tidegate.codec.open.encode import Pair
from tidegate.feed.mount import Mounted
from tidegate.feed.mount_columns import MountedColumns
from tidegate.sink.kafka.column_place import PlacedColumns, in_order, kept, placed
from tidegate.sink.kafka.dispatch import Dispatcher
from tidegate.sink.kafka.groups import Place
from tidegate.sink.kafka.partitions import Located, Producer, encoded

__all__ = ["ColumnPartitions", "PlacedTexts"]

PlacedTexts: TypeAlias = list[tuple[Place, Texts]]
"""Texts of rows in the order of each partition."""


class ColumnPartitions:
    """Writes the partitions that `dispatcher` gives rows to. Counts as Partitions does."""

    def __init__(self, dispatcher: Dispatcher, encoder: ColumnarEncoder, producer: Producer) -> None:
        self._dispatcher, self._encoder, self._producer = dispatcher, encoder, producer
        self._cutters: dict[Place, Cutter] = {}
        self.rows = self.messages = self.size_bytes = 0

    def texts(self, tables: Iterable[tuple[MountedColumns, Any]], transaction: Any) -> PlacedTexts:
        """The texts of a chunk: of each table its changes and the numbers of their rows; `transaction` is by number.

        Raises Misfit, EncodeError and DispatcherFailed."""
        found = [self._placed(mounted, numbers, transaction[numbers]) for mounted, numbers in tables]
        found = [rows for rows in found if rows.batch.rows]
        if not found:
            return []
        texts = [self._encoder.texts(rows.batch, rows.wire, row_ids=rows.row_ids) for rows in found]
        order = in_order([rows.order for rows in found], newarch=self._dispatcher.policy.newarch)
        return self._by_place(found, _joined(texts), order)

    def texts_of_rows(self, transactions: Iterable[Sequence[Mounted]], located: Located) -> PlacedTexts:
        """The same of transactions that were mounted row by row. `located` is as Partitions has it."""
        pairs: dict[Place, list[Pair]] = {}
        for rows in transactions:
            for place, pair in encoded(self._dispatcher, rows, located, lambda _, *row: self._encoder.pair(*row)):
                pairs.setdefault(place, []).append(pair)
        return [(place, self._encoder.texts_of(rows)) for place, rows in pairs.items()]

    def write(self, found: PlacedTexts) -> None:
        """Sends the messages that these texts complete. Raises SinkError."""
        for place, texts in found:
            cutter = self._cutters.get(place)
            if cutter is None:
                cutter = self._cutters[place] = Cutter(self._encoder.options)
            self._send(place, cutter.append(texts))
            self.rows += len(texts)

    def flush(self) -> None:
        """Returns when the broker has all rows. Raises SinkError."""
        for place, cutter in self._cutters.items():
            self._send(place, cutter.flush())
        self._producer.flush()

    def _send(self, place: Place, messages: Messages) -> None:
        self.messages += len(messages)
        self.size_bytes += self._producer.send_all(*place, messages.pairs())

    def _placed(self, mounted: MountedColumns, numbers: Any, transaction: Any) -> PlacedColumns:
        plan = self._dispatcher.plan(mounted.table)
        topic = plan.places.topic
        rows = placed(mounted, numbers, transaction, plan, self._dispatcher.partitions[topic])
        own = [partition for name, partition in self._dispatcher.own if name == topic]
        return kept(rows, np.isin(rows.partition, own))

    def _by_place(self, found: Sequence[PlacedColumns], texts: Texts, order: Any) -> PlacedTexts:
        topics = list(dict.fromkeys(rows.topic for rows in found))
        codes = np.concatenate([rows.partition * len(topics) + topics.index(rows.topic) for rows in found])
        codes = codes if order is None else codes[order]
        if (codes == codes[0]).all():
            whole = texts if order is None else texts.take(pa.array(order))
            return [(_place(topics, int(codes[0])), whole)]
        rows = np.arange(len(codes)) if order is None else order
        return [(_place(topics, code), texts.take(pa.array(rows[codes == code]))) for code in np.unique(codes).tolist()]


def _place(topics: Sequence[str], code: int) -> Place:
    partition, at = divmod(code, len(topics))
    return topics[at], partition


def _joined(texts: Sequence[Texts]) -> Texts:
    if len(texts) == 1:
        return texts[0]
    keys = None if texts[0].keys is None else pa.concat_arrays([each.keys for each in texts])
    return Texts(keys, pa.concat_arrays([each.values for each in texts]))
