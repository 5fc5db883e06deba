"""Topics of a Kafka sink: which task writes which partitions, which topics get resolved timestamps, claim checks.

**Assignment.**  Each partition has one writer at a time, which keeps its order.

    table        dispatched by   partition     rows         two tasks
    shop.orders  name            shop/1        900          {shop/1}                   reads orders
    shop.items   name            shop/0        300          {shop/0, log/0, log/1}     reads items, clicks
    web.clicks   columns         log/0, log/1  600

A task reads the tables that have rows for its partitions, all in one commit order.  A table dispatched by name is read
by one task.  A table spread over partitions is read and mounted by every task that has one of them, and mounting is
the larger part of the work; so a topic stays with one task when reading its spread tables everywhere would cost more
than the topic itself.  Partitions, or such whole topics, are assigned the largest first to the task with the least.

**Known topics.**  A consumer of several topics waits for all of their partitions, so a topic that no longer got
resolved timestamps would hold up the others.

    table created     table dropped, renamed out of the filter, dispatched elsewhere
    ────┬─────────────────────────┬──────────────────────────────────────┬──────────────────►
        │ active                  │ retired: still gets resolved ts      │ deleted by an operator: forgotten

The names are kept with the checkpoint, so the next run resolves them too.  A retired topic is never created again: the
broker is asked first which of them exist, and the producer that writes to them neither creates topics nor lets a broker
do so.  A retired topic that stays missing is forgotten, with a line in the log.

**Claim checks** are files in the storage that `claim-check-storage-uri` names:

    file:///var/claims, /var/claims      a directory of this machine, without any library
    s3://…, gs://…, azure://…            an object store, with TiCDC's parameters or the environment's keys

File names are a random UUID and `.json`, as TiCDC's, or come from a given list in order.

Source: TiCDC's "Send large messages to external storage" document.
"""

import logging
import os
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

from tidegate.codec.batch import BatchEncoder, Message
from tidegate.engine.dispatch import Router
from tidegate.model.errors import PartitionNumInvalid, SinkError, SinkRefused
from tidegate.model.event import Ddl, Resolved
from tidegate.model.table import TableName

Partition: TypeAlias = tuple[str, int]
"""A topic and one of its partitions."""
_Unit: TypeAlias = tuple[str, int | None]
"""The unit that one task writes: a partition, or (None) a topic with all of them."""


class GroupTable(NamedTuple):
    """A table by its index among those of a range, its topic, its one partition or None, and its maximum number of
    rows."""

    name: TableName
    topic: str
    partition: int | None
    rows: int


class PartitionGroup(NamedTuple):
    """The partitions that one task writes, and the indexes of the tables that it reads."""

    partitions: frozenset[Partition]
    tables: tuple[int, ...]


def groups_of(tables: Sequence[GroupTable], partitions: Mapping[str, int], tasks: int) -> list[PartitionGroup]:
    """Return at most `tasks` groups that write all rows of `tables`; `partitions` counts those of each topic."""
    rows, spread = Counter[str](), Counter[str]()
    for table in tables:
        rows[table.topic] += table.rows
        spread[table.topic] += table.rows if table.partition is None else 0
    whole = {topic for topic in rows if spread[topic] * tasks > rows[topic]}
    load: dict[_Unit, float] = defaultdict(float)
    partitions_of: dict[_Unit, set[Partition]] = defaultdict(set)
    readers: dict[_Unit, set[int]] = defaultdict(set)
    for number, table in enumerate(tables):
        numbers = range(partitions[table.topic]) if table.partition is None else (table.partition,)
        for partition in numbers:
            unit = table.topic, None if table.topic in whole else partition
            load[unit] += table.rows / len(numbers)
            partitions_of[unit].add((table.topic, partition))
            readers[unit].add(number)
    return [
        PartitionGroup(
            frozenset(partition for unit in units for partition in partitions_of[unit]),
            tuple(sorted({number for unit in units for number in readers[unit]})),
        )
        for units in _dealt(load, tasks)
    ]


def _dealt(load: Mapping[_Unit, float], tasks: int) -> list[list[_Unit]]:
    """The units of each task."""
    hands: list[tuple[float, list[_Unit]]] = [(0.0, []) for _ in range(min(tasks, len(load)))]
    for unit in sorted(load, key=lambda unit: (-load[unit], unit[0], unit[1] or 0)):
        lightest = min(range(len(hands)), key=lambda index: (hands[index][0], len(hands[index][1])))
        weight, units = hands[lightest]
        hands[lightest] = weight + load[unit], [*units, unit]
    return [units for _, units in hands]


class Producer(Protocol):
    """A queue of messages to a cluster: a TopicWriter."""

    def send(self, topic: str, partition: int, key: bytes | None, value: bytes) -> None:
        """Put a message into the queue."""

    def send_all(self, topic: str, partition: int, messages: Iterable[tuple[bytes | None, bytes]]) -> int:
        """Put messages, keys and values, into the queue; return the bytes of them all."""

    def flush(self) -> None:
        """Wait until everything sent is acknowledged. Raises SinkError."""

    def abandon(self) -> None:
        """Drop the messages that wait in the queue."""


class ControlWriter:
    """Sends DDLs and resolved timestamps, which the caller flushes; `partitions` returns the partition count of a
    topic, which it creates if necessary."""

    def __init__(
        self, router: Router, encoder: BatchEncoder, producer: Producer, partitions: Callable[[str], int]
    ) -> None:
        self._router, self._encoder, self._producer, self._partitions = router, encoder, producer, partitions

    def ddl(self, ddl: Ddl, previous: TableName | None = None) -> str:
        """Send a DDL; return its topic. EncodeError for one that the protocol cannot say."""
        messages = self._encoder.append(ddl)
        partitions = self._partitions(self._router.ddl_topic(ddl.schema, ddl.table, previous))
        route = self._router.ddl(ddl.schema, ddl.table, partitions, previous)
        for partition in route.partitions:
            self._send(route.topic, partition, messages)
        return route.topic

    def resolved(self, ts: int, topics: Iterable[str]) -> bool:
        """Send resolved `ts` to every partition of `topics`: no event at or below it follows.

        Returns False for canal-json without the TiDB extension, which cannot express it.
        """
        messages = self._encoder.append(Resolved(ts))
        for topic in topics:
            for partition in range(self._partitions(topic)):
                self._send(topic, partition, messages)
        return bool(messages)

    def _send(self, topic: str, partition: int, messages: Sequence[Message]) -> None:
        for message in messages:
            self._producer.send(topic, partition, message.key, message.value)


def partition_count(existing: int, partition_num: int | None, topic: str) -> int:
    """Return the number of partitions of a topic that are written: all existing ones, or partition-num of them.

    PartitionNumInvalid when it has fewer."""
    if partition_num is not None and partition_num > existing:
        raise PartitionNumInvalid(
            f"partition-num is {partition_num}, but topic {topic} has {existing} partitions; add partitions or lower "
            f"partition-num"
        )
    return existing if partition_num is None else partition_num


LOG: Final = logging.getLogger(__name__)
FORGET_S: Final = 30.0
"""The time after which a missing topic is forgotten: a broker that has just started may not know all of them yet."""


class Keeper(Producer, Protocol):
    """A producer that creates no topics: a TopicWriter without `create`."""

    def existing(self, topics: Collection[str]) -> Mapping[str, int]:
        """Return the topics that exist, with their partition counts."""


class KnownTopics:
    """Remembers topics; `partition_num` bounds the partitions that are used, and `open_keeper` connects."""

    def __init__(
        self, open_keeper: Callable[[], Keeper], encoder: BatchEncoder, *, partition_num: int | None = None
    ) -> None:
        self._open, self._encoder, self._partition_num = open_keeper, encoder, partition_num
        self._names: dict[str, None] = {}
        self._missing_since_s: dict[str, float] = {}
        self._keeper: Keeper | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._names)

    def note(self, topics: Iterable[str]) -> None:
        """These are written to."""
        self._names.update(dict.fromkeys(topics))

    def retired(self, active: Collection[str]) -> list[str]:
        return [name for name in self._names if name not in active]

    def resolved(self, ts: int, active: Collection[str]) -> None:
        """Send resolved `ts` to every partition of the retired topics.

        What was sent to them is acknowledged already. Raises SinkError, never SinkRefused: a topic that is deleted at
        this moment is missing for the next try."""
        retired = self.retired(active)
        messages = self._encoder.append(Resolved(ts)) if retired else ()
        if not messages:
            return
        try:
            if self._keeper is None:
                self._keeper = self._open()
            self._send(self._keeper, retired, messages)
        except SinkError as error:
            if self._keeper is not None:
                self._keeper.abandon()
                self._keeper = None
            if isinstance(error, SinkRefused):
                raise SinkError(str(error)) from error
            raise

    def _send(self, keeper: Keeper, retired: Collection[str], messages: Iterable[Message]) -> None:
        """Send to the existing ones; forget those that are missing long enough."""
        counts, now_s = keeper.existing(retired), time.monotonic()
        missing = [topic for topic in retired if topic not in counts]
        self._missing_since_s = {topic: self._missing_since_s.get(topic, now_s) for topic in missing}
        for topic in [topic for topic, since_s in self._missing_since_s.items() if now_s - since_s >= FORGET_S]:
            LOG.warning(
                "topic %s has no tables any more and was deleted at the broker: it no longer gets resolved timestamps",
                topic,
            )
            del self._names[topic], self._missing_since_s[topic]
        for topic, count in counts.items():
            for partition in range(count if self._partition_num is None else min(count, self._partition_num)):
                for message in messages:
                    keeper.send(topic, partition, message.key, message.value)
        keeper.flush()


def random_names() -> Iterator[str]:
    """File names without end, no two alike."""
    while True:
        yield f"{uuid.uuid4()}.json"


class ClaimFiles:
    """A `codec.batch.ClaimStore` in a directory or object store."""

    def __init__(self, storage_uri: str, names: Iterator[str]) -> None:
        self._uri = storage_uri
        self._names = names

    def new_name(self) -> str:
        """Return the next name. Raises SinkError at the end of a list of names."""
        name = next(self._names, None)
        if name is None:
            raise SinkError("there are more claim checks than names for them")
        return name

    def put(self, name: str, body: bytes) -> None:
        """Write a file; SinkError when the storage refuses it. Its address is not shown: it may hold keys."""
        faults: tuple[type[Exception], ...] = (OSError, ValueError, ImportError)
        try:
            if urlsplit(self._uri).scheme in {"", "file"}:
                directory = Path(unquote(urlsplit(self._uri).path))
                directory.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(body)
            else:
                import obstore
                from obstore.exceptions import BaseError

                from tidegate.objectstore.stores import writable

                faults += (BaseError,)
                obstore.put(writable(self._uri), name, body)
        except faults as away:
            raise SinkError(f"{name} cannot be written to the claim-check storage ({type(away).__name__})") from away
