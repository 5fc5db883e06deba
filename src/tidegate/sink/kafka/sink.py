"""Kafka topics as a sink: rows from tasks, DDLs and resolved timestamps from the driver.

    run       rows ≤ T, by the tasks; acknowledged
    ddl       each DDL of T to its partitions; acknowledged
    advance   resolved T to every partition of every topic that was ever written to; acknowledged; then the checkpoint

Guarantee: at least once, in the order of each partition.  A crash anywhere leaves the old checkpoint or the new one;
whoever starts again sends what follows the checkpoint once more, in the same order.  Progress lives in a `Checkpoints`
store, beside it the topics that were written to (known_topics.py): a broker has no place for either.

A DDL cuts all tables (barrier ALL): its message stands behind all rows that are before it and before all others.  The
driver's producer is dropped after an error and made anew by the next call, so what waited in it cannot come later.

DDLs and resolved timestamps into topics, between the rows of stretches.

    rows <= T, acknowledged  ─►  DDL of T                          ─►  resolved T
                                 open-protocol: every partition        every partition of every active topic:
                                 canal-json: partition 0               those of replicated tables, and the default one
                                 of its topic: by the name that the    (the others that were written to: KnownTopics)
                                 table had before, if it had one

Each is flushed before the next goes out, so a partition holds: rows, DDL, resolved, later rows.

Source: TiCDC's event router; recordings of the dispatchers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final, NamedTuple

from tidegate.codec.batch import BatchEncoder, Message
from tidegate.engine.change import PlacedDdl
from tidegate.engine.dispatch import Router
from tidegate.engine.event_filter import acting
from tidegate.engine.filter import TableFilter
from tidegate.engine.plan import Barrier, Checkpoint, Round, Rows, Unit, row_steps
from tidegate.engine.ports import Changes, Checkpoints, Most, Rhythm, Saved, Sink, Standing, Tasks, Written
from tidegate.model.errors import EncodeError, SinkError
from tidegate.model.event import Ddl, Resolved
from tidegate.model.table import TableInfo, TableName
from tidegate.objectstore.failpoint import reach
from tidegate.schema.snapshot import SchemaState
from tidegate.sink.kafka.groups import GroupTable, groups_of
from tidegate.sink.kafka.known_topics import KnownTopics
from tidegate.sink.kafka.producer import Producer, partition_count
from tidegate.sink.kafka.target import TopicTarget
from tidegate.sink.kafka.task import GroupJob, write_group
from tidegate.sink.kafka.writer import TopicWriter


class ControlWriter:
    """Writes what is no row; `partitions` counts those of a topic, and makes it if need be."""

    def __init__(
        self, router: Router, encoder: BatchEncoder, producer: Producer, partitions: Callable[[str], int]
    ) -> None:
        self._router, self._encoder, self._producer, self._partitions = router, encoder, producer, partitions

    def ddl(self, ddl: Ddl, previous: TableName | None = None) -> None:
        """Send a DDL; returns when it is acknowledged."""
        messages = self._encoder.append(ddl)
        partitions = self._partitions(self._router.ddl_topic(ddl.schema, ddl.table, previous))
        route = self._router.ddl(ddl.schema, ddl.table, partitions, previous)
        for partition in route.partitions:
            self._send(route.topic, partition, messages)
        self._producer.flush()

    def resolved(self, ts: int, topics: Iterable[str]) -> bool:
        """Tell every partition of `topics` that nothing at or below `ts` is still to come.

        False for canal-json without the TiDB extension, which has no words for it."""
        messages = self._encoder.append(Resolved(ts))
        for topic in topics:
            for partition in range(self._partitions(topic)):
                self._send(topic, partition, messages)
        self._producer.flush()
        return bool(messages)

    def _send(self, topic: str, partition: int, messages: Sequence[Message]) -> None:
        for message in messages:
            self._producer.send(topic, partition, message.key, message.value)


TOPICS: Final = "topics"
"""The note beside the checkpoint: all topics that were written to since the start."""


class _Active(NamedTuple):
    """The tables that are replicated in a schema, and the topics of their rows, the default one among them."""

    state: SchemaState
    tables: Sequence[TableInfo]
    topics: Sequence[str]


class KafkaSink(Sink[Written]):
    """Writes to the topics of `target`. `rules` choose the tables whose topics are told resolved timestamps, `force`
    takes those whose rows cannot be told apart as well (force-replicate)."""

    barrier = Barrier.ALL
    rhythm = Rhythm(most=Most(rows=500_000, size_bytes=256 << 20))

    def __init__(
        self, target: TopicTarget, checkpoints: Checkpoints, *, rules: TableFilter, force: bool = False
    ) -> None:
        self._asked = self._target = target
        self._checkpoints, self._rules, self._force = checkpoints, rules, force
        self._router = target.router()
        self._known = KnownTopics(target.keeper, target.encoder(), partition_num=target.partition_num)
        self._writer: TopicWriter | None = None
        self._reckoned: _Active | None = None
        self._resolved_ts = -1

    def held(self) -> AbstractContextManager[None]:
        """Keep another run of the same feed out until the block ends. EnvironmentFault when one runs."""
        return self._checkpoints.held()

    def recover(self) -> Standing:
        """Return what was saved last. ConfigError for what is another feed's."""
        saved = self._checkpoints.load()
        if saved is None:
            return Standing(Checkpoint(), SchemaState(), is_new=True)
        self._known.note(saved.notes.get(TOPICS, ()))
        return saved.standing

    def check(self) -> bool:
        """Ask the brokers about the default topic, which need not be there yet."""
        with self._connected() as writer:
            writer.max_bytes(self._asked.topic)
        return True

    def open(self, standing: Standing) -> None:
        """Check dispatchers and selectors against the tables, connect, and fit messages to the default topic.

        Raises DispatcherFailed, ColumnSelectorFailed, ConfigError and SinkError."""
        active = self._active(standing.state)
        self._asked.check(active.tables)
        self._known.note(active.topics)
        with self._connected() as writer:
            self._target = self._asked.fitted(writer)

    def run(self, tasks: Tasks, units: Sequence[Unit], changes: Changes) -> Sequence[Written]:
        """Write the rows of the units; return when all are acknowledged.

        Raises SinkError, and what reading, placing and encoding raise in tasks."""
        steps = row_steps(units)
        with self._connected() as writer:
            answers = tasks.run(write_group, self._jobs(steps, changes, writer, tasks.slots)) if steps else []
        reach("topic/rows-written")
        return answers

    def ddl(self, placed: PlacedDdl) -> None:
        """Send one DDL; return when it is acknowledged. EncodeError for one that the protocol cannot say."""
        ddl = acting(placed.ddl)
        self._known.note([self._router.ddl_topic(ddl.schema, ddl.table, placed.previous)])
        try:
            with self._connected() as writer:
                self._control(writer).ddl(ddl, placed.previous)
        except EncodeError as error:
            told = type(error)(f"DDL at ts {ddl.commit_ts}: {error}: {ddl.query[:500]}")
            table = f"{ddl.schema}.{ddl.table}" if ddl.table else ""
            raise told.at(table=table, commit_ts=ddl.commit_ts) from error
        reach("topic/ddl-sent")

    def advance(self, planned: Round, results: Sequence[object]) -> Standing:  # noqa: ARG002
        """Send the round's end as resolved timestamp, then save it as the checkpoint. Raises SinkError and
        StateUnwritable."""
        ts = planned.checkpoint.ts
        if ts > self._resolved_ts:
            self._tell(ts, self._active(planned.state).topics)
            self._resolved_ts = ts
        reach("topic/resolved-sent")
        standing = Standing(planned.checkpoint, planned.state)
        self._checkpoints.save(Saved(standing, {TOPICS: list(self._known.names)}))
        reach("topic/advanced")
        return standing

    def close(self) -> None:
        """Let go of the producer; all that was sent is acknowledged."""
        self._writer = None

    def _tell(self, ts: int, topics: Sequence[str]) -> None:
        """Tell every partition of the active topics, and of those without a table any more."""
        self._known.note(topics)
        with self._connected() as writer:
            self._control(writer).resolved(ts, topics)
            writer.forget(self._known.retired(topics))
            self._known.resolved(ts, topics)

    def _jobs(self, steps: Sequence[Rows], changes: Changes, writer: TopicWriter, slots: int) -> list[GroupJob]:
        (after, upto), *others = {(step.after, step.upto) for step in steps}
        assert not others, others
        rows = {name.key: span.rows for name, span in changes.tables().items()}
        names = [step.table.name for step in steps]
        topics = [self._router.topic(*name) for name in names]
        self._known.note(topics)
        counts = {topic: self._partitions(writer, topic) for topic in dict.fromkeys(topics)}
        tables = [
            GroupTable(name, topic, self._router.only_partition(name, counts[topic]), rows.get(name.key, 0))
            for name, topic in zip(names, topics, strict=True)
        ]
        return [
            GroupJob(
                changes,
                after,
                upto,
                tuple(names[number] for number in group.tables),
                group.places,
                counts,
                self._target,
                {names[number].key: steps[number].table for number in group.tables},
            )
            for group in groups_of(tables, counts, slots)
        ]

    def _active(self, state: SchemaState) -> _Active:
        """Reckoned once for each schema: between two DDLs nothing of it changes."""
        found = self._reckoned
        if found is None or found.state is not state:
            takes = [table for table in state.tables.values() if self._rules.matches(*table.name)]
            tables = [table for table in takes if self._force or table.handle_key]
            topics = self._router.watermark_topics(table.name for table in tables)
            found = self._reckoned = _Active(state, tables, topics)
        return found

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
