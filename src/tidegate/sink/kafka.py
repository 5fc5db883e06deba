"""The Kafka sink: tasks write rows to topics, the driver writes DDLs and resolved timestamps between them.

    run       rows ≤ T, by the tasks; acknowledged
    ddl       each DDL of T to its partitions; acknowledged
    advance   resolved T to every partition of every topic that was ever written to; acknowledged; then the checkpoint

Each step is flushed before the next begins, so a partition holds rows, DDL, resolved timestamp, later rows.  A DDL is a
barrier for all tables.

    DDL         open-protocol: every partition; canal-json: partition 0; of the topic of the name that the table had
                before the DDL, if it had one
    resolved    every partition of the topics of replicated tables, of the default topic, and of the other topics
                written to so far (`KnownTopics`)

A task receives a plan of some kilobytes: definitions, timestamps and the partitions it writes.  It reads the changes
in chunks of whole transactions, in commit order, so the order of a partition is the order of its chunks:

    chunk ── by batch ─► columns ─► texts ┐                          ┌► shop/0: take ─► cut ─► producer
                         columns ─► texts ┴─► one order of the chunk ┴► shop/1: take ─► cut ─► producer

Rows of one message may come from two chunks: a cutter keeps the open message.  Rows that columns cannot encode are
written row by row (`texts_of_rows`) through the same cutters; that path is the reference and reports which row is at
fault.  Updates are split and transactions ordered in engine/split_columns.py; the partition of each row is found here,
by the rules of `Dispatcher` (kafka_dispatch.py) and engine/dispatch.py.

Guarantee: at least once, in the order of each partition.  A crash leaves the old checkpoint or the new one; the next
run sends what follows the checkpoint again, in the same order.  The checkpoint and the topics written to are kept in a
`Checkpoints` store, since a broker has no place for them.  After an error the driver's producer is dropped and created
anew by the next call, so messages that waited in it cannot arrive later.

Source: TiCDC's event router; recordings of the dispatchers.
"""

import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from tidegate.codec.columnar import Batch, ColumnarEncoder, Cutter, EncodedRows, MessageArrays, typed_batch
from tidegate.codec.columnar.encode.encoder import FEW_ROWS, rows_of
from tidegate.codec.columnar.encode.images import DELETE, INSERT
from tidegate.codec.columnar.values import MISMATCHES, slow_reason
from tidegate.codec.open_encode import Pair
from tidegate.codec.wire_table import WireTable
from tidegate.engine.change import Chunk
from tidegate.engine.dispatch import PartitionDispatcher, TablePlan
from tidegate.engine.event_filter import acting
from tidegate.engine.filter import TableFilter
from tidegate.engine.plan import PlannedDdl, Round, Segment
from tidegate.engine.ports import (
    Changes,
    Checkpoints,
    FlushPolicy,
    RoundLimit,
    Saved,
    SinkPosition,
    Tasks,
    WithCheck,
    Written,
    sink_position,
)
from tidegate.engine.split_columns import TableOrder, codes_of, hashes_of, in_order, resized, split_rows
from tidegate.model.errors import DispatcherFailed, EncodeError, MessageTooLarge, SinkError
from tidegate.model.event import RowChange
from tidegate.model.path_counts import PathCounts, Reason, SlowReason, counted
from tidegate.model.table import TableInfo, TableName
from tidegate.objectstore.failpoint import failpoint
from tidegate.schema.snapshot import SchemaState
from tidegate.sink.calls import CheckpointSink
from tidegate.sink.kafka_dispatch import Dispatcher, Sent, TableDispatch
from tidegate.sink.kafka_target import TopicTarget
from tidegate.sink.kafka_topics import (
    ControlWriter,
    GroupTable,
    KnownTopics,
    Partition,
    Producer,
    groups_of,
    partition_count,
)
from tidegate.sink.kafka_writer import TopicWriter


class SentColumns(NamedTuple):
    """Rows of one table as they are sent: their columns, their row indexes, the partition of each, and their order."""

    wire: WireTable
    batch: Batch
    topic: str
    partition: Any
    order: TableOrder


def sent_columns(batch: Batch, numbers: Any, transaction: Any, plan: TableDispatch, partitions: int) -> SentColumns:
    """Return the rows of `batch` as they are sent; `numbers` and `transaction` are those of its rows in the chunk."""
    batch, order = split_rows(batch, numbers, transaction, plan.splitter)
    codes = codes_of(batch)
    if (selection := plan.selection) is not None:
        before, after = (image.select(list(selection.indexes)) for image in (batch.before, batch.after))
        names = selection.wire.pk_names
        batch = replace(batch, fields=selection.fields, pk_names=names, before=before, after=after)
    partition = _partitions(batch, codes, plan.routing, partitions)
    return SentColumns(plan.wire, batch, plan.routing.topic, partition, order)


def kept(rows: SentColumns, chosen: Any) -> SentColumns:
    """Return the rows in the mask `chosen`."""
    if chosen.all():
        return rows
    codes = codes_of(rows.batch)
    before = rows.batch.before.filter(pa.array(chosen[codes != INSERT]))
    after = rows.batch.after.filter(pa.array(chosen[codes != DELETE]))
    rows_kept = pa.array(np.flatnonzero(chosen))
    return rows._replace(
        batch=resized(rows.batch, rows_kept, codes[chosen], before, after),
        partition=rows.partition[chosen],
        order=TableOrder(*(column[chosen] for column in rows.order)),
    )


def _partitions(batch: Batch, codes: Any, plan: TablePlan, partitions: int) -> Any:
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


SentTexts: TypeAlias = list[tuple[Partition, EncodedRows]]
"""Texts of rows in the order of each partition."""
_Transaction: TypeAlias = list[tuple[TableDispatch, list[RowChange]]]
"""A transaction's rows, each with how its table is dispatched."""


class ColumnPartitions:
    """Writes the partitions to which `dispatcher` assigns rows. Counts `rows`, those of each table, `messages` and the
    bytes of their keys and values."""

    def __init__(self, dispatcher: Dispatcher, encoder: ColumnarEncoder, producer: Producer) -> None:
        self._dispatcher, self._encoder, self._producer = dispatcher, encoder, producer
        self._cutters: dict[Partition, Cutter] = {}
        self.rows = self.messages = self.size_bytes = 0
        self.tables: Counter[TableName] = Counter()

    def texts(self, chunk: Chunk) -> SentTexts:
        """Encode the rows of a chunk column by column. Raises Mismatch, EncodeError and DispatcherFailed."""
        parts = (
            self._sent_columns(typed_batch(batch), numbers, chunk.transaction[numbers])
            for batch, numbers in chunk.parts
        )
        tables = [rows for rows in parts if rows.batch.rows]
        if not tables:
            return []
        texts = [self._encoder.texts(rows.batch, rows.wire, row_ids=rows.batch.row_ids) for rows in tables]
        order = in_order([rows.order for rows in tables], newarch=self._dispatcher.policy.newarch)
        for rows in tables:
            self.tables[TableName(rows.batch.schema, rows.batch.table)] += rows.batch.rows
        return self._by_partition(tables, texts, order)

    def texts_of_rows(self, chunk: Chunk) -> SentTexts:
        """Encode the rows of a chunk one by one. EncodeError and its kinds with the row's table and commit_ts."""
        pairs: dict[Partition, list[Pair]] = {}
        for rows in self._transactions(chunk):
            for partition, pair in self._encoded(rows):
                pairs.setdefault(partition, []).append(pair)
        return [(partition, self._encoder.texts_of(rows)) for partition, rows in pairs.items()]

    def write(self, sent_texts: SentTexts) -> None:
        """Send the messages that these texts complete. Raises SinkError."""
        for partition, texts in sent_texts:
            cutter = self._cutters.get(partition)
            if cutter is None:
                cutter = self._cutters[partition] = Cutter(self._encoder.options)
            self._send(partition, cutter.append(texts))
            self.rows += len(texts)

    def flush(self) -> None:
        for partition, cutter in self._cutters.items():
            self._send(partition, cutter.flush())
        self._producer.flush()

    def _send(self, partition: Partition, messages: MessageArrays) -> None:
        self.messages += len(messages)
        self.size_bytes += self._producer.send_all(*partition, messages.pairs())

    def _sent_columns(self, batch: Batch, numbers: Any, transaction: Any) -> SentColumns:
        plan = self._dispatcher.plan(batch)
        topic = plan.routing.topic
        rows = sent_columns(batch, numbers, transaction, plan, self._dispatcher.partitions[topic])
        own = [partition for name, partition in self._dispatcher.own if name == topic]
        return kept(rows, np.isin(rows.partition, own))

    @staticmethod
    def _by_partition(tables: Sequence[SentColumns], parts: Sequence[EncodedRows], order: Any) -> SentTexts:
        texts = parts[0]
        if len(parts) > 1:
            keys = None if texts.keys is None else pa.concat_arrays([part.keys for part in parts])
            texts = EncodedRows(keys, pa.concat_arrays([part.values for part in parts]))
        topics = list(dict.fromkeys(rows.topic for rows in tables))
        codes = np.concatenate([rows.partition * len(topics) + topics.index(rows.topic) for rows in tables])
        codes = codes if order is None else codes[order]
        if (codes == codes[0]).all():
            whole = texts if order is None else texts.take(pa.array(order))
            return [(_partition(topics, int(codes[0])), whole)]
        rows = np.arange(len(codes)) if order is None else order
        return [
            (_partition(topics, code), texts.take(pa.array(rows[codes == code]))) for code in np.unique(codes).tolist()
        ]

    def _transactions(self, chunk: Chunk) -> Iterator[_Transaction]:
        """The rows of a chunk one by one, transaction by transaction."""
        plans = [self._dispatcher.plan(batch) for batch, _ in chunk.parts]
        rows: list[tuple[int, int, RowChange]] = []
        for index, (batch, numbers) in enumerate(chunk.parts):
            typed = replace(typed_batch(batch), fields=plans[index].splitter.plan.fields)
            events = rows_of(typed, range(typed.rows), plans[index].whole, typed.row_ids)
            rows += [(number, index, row) for number, row in zip(numbers.tolist(), events, strict=True)]
        transaction = chunk.transaction.tolist()
        for _, group in groupby(sorted(rows, key=itemgetter(0)), key=lambda each: transaction[each[0]]):
            batches: dict[int, list[RowChange]] = {}
            for _, index, row in group:
                batches.setdefault(index, []).append(row)
            yield [(plans[index], mine) for index, mine in batches.items()]

    def _encoded(self, transaction: _Transaction) -> Iterator[tuple[Partition, Pair]]:
        commit_ts = transaction[0][1][0].commit_ts
        try:
            sent: list[Sent] = self._dispatcher.transaction(transaction)
        except EncodeError as error:
            raise _located(error, f"commit_ts {commit_ts}").at(commit_ts=commit_ts) from error
        self.tables.update(TableName(row.schema, row.table) for _, row, _ in sent)
        for partition, row, wire in sent:
            try:
                pair = self._encoder.pair(row, wire)
            except EncodeError as error:
                table = f"{row.schema}.{row.table}"
                located = _located(error, f"{table} at commit_ts {commit_ts}")
                raise located.at(
                    table=table, commit_ts=commit_ts, topic=partition[0], partition=partition[1]
                ) from error
            yield partition, pair


def _located(error: EncodeError, where: str) -> EncodeError:
    located: EncodeError
    if isinstance(error, MessageTooLarge):
        located = MessageTooLarge(f"{error.table}, {where},", error.key, error.size, error.limit, error.options)
    else:
        located = type(error)(f"{where}: {error}")
    located.where = error.where
    return located


def _partition(topics: Sequence[str], code: int) -> Partition:
    partition, index = divmod(code, len(topics))
    return topics[index], partition


_SWITCHED_OFF: Final = SlowReason(Reason.SWITCHED_OFF, "columns are switched off")


@dataclass(frozen=True, slots=True)
class GroupJob:
    """Rows of the tables `names` with after < commit_ts <= upto, of which those for the partitions `own` are written;
    `partitions` counts those of each topic."""

    changes: Changes
    after: int
    upto: int
    names: tuple[TableName, ...]
    own: frozenset[Partition]
    partitions: Mapping[str, int]
    target: TopicTarget
    tables: Mapping[tuple[str, str], TableInfo] = field(default_factory=dict)
    """Definitions by TableName.key, as the round has them; batches that bring one of their own need none."""
    columns: bool = True
    """True if rows may be encoded as columns."""


def write_group(job: GroupJob) -> Written:
    """Write the job's rows; return when they are acknowledged. Raises what reading, placing and writing do."""
    producer = job.target.producer()
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _written(job, producer)
    except BaseException:
        producer.abandon()
        raise
    finally:
        if collecting:
            gc.enable()


def _written(job: GroupJob, producer: Producer) -> Written:
    target, done = job.target, Written()
    dispatcher = Dispatcher(target.router(), target.split, job.partitions, job.own, target.selectors, tables=job.tables)
    encoder = target.columnar_encoder()
    partitions = ColumnPartitions(dispatcher, encoder, producer)
    for chunk in done.coming(job.changes.in_order(job.names, job.after, job.upto)):
        before = partitions.rows
        texts = _by_columns(chunk, partitions) if job.columns else _SWITCHED_OFF
        counts = encoder.take_path_counts()
        if isinstance(texts, SlowReason):
            partitions.write(partitions.texts_of_rows(chunk))
            counts, first = PathCounts(), chunk.parts[0].batch
            counts.add("encode/rows", partitions.rows - before, texts, (first.schema, first.table))
        else:
            partitions.write(texts)
        done.path_counts.update(counts)
    failpoint("topic/rows-queued")
    partitions.flush()
    done.rows, done.messages, done.size_bytes = partitions.rows, partitions.messages, partitions.size_bytes
    done.tables = partitions.tables
    return done


def _by_columns(chunk: Chunk, partitions: ColumnPartitions) -> SentTexts | SlowReason:
    """The texts of a chunk, or the reason to encode it row by row, which also reports a row that is at fault."""
    if len(chunk) < FEW_ROWS:
        return SlowReason(Reason.FEW_ROWS, f"{counted(len(chunk))} in a chunk, columns need {FEW_ROWS}")
    try:
        return partitions.texts(chunk)
    except MISMATCHES as mismatch:
        return slow_reason(mismatch)


TOPICS: Final = "topics"
"""The note beside the checkpoint: all topics that were written to since the start."""


class _Active(NamedTuple):
    """The tables that are replicated in a schema, and the topics of their rows, the default one among them."""

    state: SchemaState
    tables: Sequence[TableInfo]
    topics: Sequence[str]


class KafkaSink(CheckpointSink[Written], WithCheck):
    """Writes to the topics of `target`. `rules` choose the tables whose topics get resolved timestamps; `force` takes
    those without a key as well (force-replicate)."""

    flush_policy = FlushPolicy(limit=RoundLimit(rows=500_000, size_bytes=256 << 20))
    truncates = False
    brings_again = "events"

    def __init__(
        self, target: TopicTarget, checkpoints: Checkpoints, *, rules: TableFilter, force: bool = False
    ) -> None:
        super().__init__(checkpoints)
        self._configured = self._target = target
        self._rules, self._force = rules, force
        self._router = target.router()
        self._known_topics = KnownTopics(target.keeper, target.encoder(), partition_num=target.partition_num)
        self._writer: TopicWriter | None = None
        self._current: _Active | None = None
        self._resolved_ts = -1

    def recover(self) -> SinkPosition:
        saved = self._checkpoints.load()
        self._known_topics.note(() if saved is None else saved.notes.get(TOPICS, ()))
        return sink_position(saved)

    def check(self) -> bool:
        with self._connected() as writer:
            writer.max_bytes(self._configured.topic)  # which need not be there yet
        return True

    def open(self, position: SinkPosition) -> None:
        """Check dispatchers and selectors against the tables, connect, and fit messages to the default topic.

        Raises DispatcherFailed, ColumnSelectorFailed, ConfigError and SinkError."""
        active = self._active(position.state)
        self._configured.check(active.tables)
        self._known_topics.note(active.topics)
        with self._connected() as writer:
            self._target = self._configured.fitted(writer)

    def run(self, tasks: Tasks, segment: Segment, changes: Changes) -> Sequence[Written]:
        with self._connected() as writer:
            jobs = self._jobs(segment, changes, writer, tasks.slots) if segment.tables else []
            answers = tasks.run(write_group, jobs) if jobs else []
        failpoint("topic/rows-written")
        return answers

    def filled(self, tables: Sequence[TableInfo]) -> Mapping[TableName, str]:
        topics = {table.name: self._router.topic(*table.name) for table in tables}
        with self._connected() as writer:
            filled = writer.filled(set(topics.values()))
        return {name: f"topic {topic} has messages" for name, topic in topics.items() if topic in filled}

    def ddl(self, planned: PlannedDdl) -> None:
        """Send one DDL; return when it is acknowledged. EncodeError for one that the protocol cannot say."""
        ddl, previous = acting(planned.ddl), planned.source_ddl.previous
        self._known_topics.note([self._router.ddl_topic(ddl.schema, ddl.table, previous)])
        try:
            with self._connected() as writer:
                self._control(writer).ddl(ddl, previous)
                writer.flush()
        except EncodeError as error:
            refused = type(error)(f"DDL at ts {ddl.commit_ts}: {error}: {ddl.query[:500]}")
            table = f"{ddl.schema}.{ddl.table}" if ddl.table else ""
            raise refused.at(table=table, commit_ts=ddl.commit_ts) from error
        failpoint("topic/ddl-sent")

    def advance(self, planned: Round, results: Sequence[object]) -> SinkPosition:  # noqa: ARG002
        """Send the round's end as resolved timestamp to the active topics, and to those without a table any more; then
        save it as the checkpoint."""
        ts = planned.resolved_ts
        if ts > self._resolved_ts:
            topics = self._active(planned.state).topics
            self._known_topics.note(topics)
            with self._connected() as writer:
                self._control(writer).resolved(ts, topics)
                writer.flush()
                writer.forget(self._known_topics.retired(topics))
                self._known_topics.resolved(ts, topics)
            self._resolved_ts = ts
        failpoint("topic/resolved-sent")
        position = SinkPosition(planned.checkpoint, planned.state)
        self._checkpoints.save(Saved(position, {TOPICS: list(self._known_topics.names)}))
        failpoint("topic/advanced")
        return position

    def close(self) -> None:
        self._writer = None

    def _jobs(self, segment: Segment, changes: Changes, writer: TopicWriter, slots: int) -> list[GroupJob]:
        rows = {name.key: span.rows for name, span in changes.tables().items()}
        names = [table.name for table in segment.tables]
        topics = [self._router.topic(*name) for name in names]
        self._known_topics.note(topics)
        counts = {topic: self._partitions(writer, topic) for topic in dict.fromkeys(topics)}
        tables = [
            GroupTable(name, topic, self._router.only_partition(name, counts[topic]), rows.get(name.key, 0))
            for name, topic in zip(names, topics, strict=True)
        ]
        return [
            GroupJob(
                changes,
                segment.after,
                segment.upto,
                tuple(names[number] for number in group.tables),
                group.partitions,
                counts,
                self._target,
                {names[number].key: segment.tables[number] for number in group.tables},
            )
            for group in groups_of(tables, counts, slots)
        ]

    def _active(self, state: SchemaState) -> _Active:
        """Computed once for each schema: between two DDLs nothing of it changes."""
        if self._current is None or self._current.state is not state:
            takes = [table for table in state.tables.values() if self._rules.matches(*table.name)]
            tables = [table for table in takes if self._force or table.handle_key]
            topics = self._router.watermark_topics(table.name for table in tables)
            self._current = _Active(state, tables, topics)
        return self._current

    def _control(self, writer: TopicWriter) -> ControlWriter:
        return ControlWriter(
            self._router, self._target.encoder(), writer, lambda topic: self._partitions(writer, topic)
        )

    def _partitions(self, writer: TopicWriter, topic: str) -> int:
        return partition_count(writer.partitions(topic), self._target.partition_num, topic)

    @contextmanager
    def _connected(self) -> Iterator[TopicWriter]:
        """The driver's producer; after a SinkError the next call makes a new one."""
        if self._writer is None:
            self._writer = self._target.writer()
        try:
            yield self._writer
        except SinkError:
            self._writer.abandon()
            self._writer = None
            raise
