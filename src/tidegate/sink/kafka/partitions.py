"""Rows into the partitions of one task: an encoder for each, one producer for all.

    transaction ─► Dispatcher ─► encoder of its partition ─► full? ─► producer's queue ─► broker
    end of the stretch         ─► open batches of all       ─► flush: acknowledged, or SinkError

A batch never spans two stretches, so what was acknowledged is whole.  A row that cannot be written stops the task, with
its table and timestamp: nothing behind it is sent, so nothing is lost between it and the checkpoint.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias, TypeVar

from tidegate.codec.batch import BatchEncoder, Message
from tidegate.codec.wire_table import WireTable
from tidegate.feed.mount import Mounted
from tidegate.model.errors import EncodeError
from tidegate.model.event import RowChange
from tidegate.model.feed_errors import PartitionNumInvalid
from tidegate.sink.kafka.dispatch import Dispatcher
from tidegate.sink.kafka.groups import Place

__all__ = ["Located", "Partitions", "Producer", "encoded", "partition_count"]

Located: TypeAlias = Callable[[EncodeError, str], EncodeError]
"""The same error with its place: (error, which row) -> error."""
T = TypeVar("T")


class Producer(Protocol):
    """What takes messages: a TopicWriter."""

    def send(self, topic: str, partition: int, key: bytes | None, value: bytes) -> None:
        """Puts a message into the queue."""

    def send_all(self, topic: str, partition: int, messages: Iterable[tuple[bytes | None, bytes]]) -> int:
        """Puts messages into the queue, keys and values; the bytes of them all."""

    def flush(self) -> None:
        """Returns when all that was sent is acknowledged."""

    def abandon(self) -> None:
        """Drops what waits."""


class Partitions:
    """The partitions that one task writes. Counts `rows`, `messages` and the bytes of their keys and values."""

    def __init__(self, dispatcher: Dispatcher, encoder: Callable[[], BatchEncoder], producer: Producer) -> None:
        self._dispatcher, self._encoder, self._producer = dispatcher, encoder, producer
        self._encoders: dict[Place, BatchEncoder] = {}
        self.rows = self.messages = self.size_bytes = 0

    def write(self, rows: Sequence[Mounted], located: Located) -> None:
        """Sends a transaction. Raises SinkError, DispatcherFailed, and what `located` makes of an EncodeError and of
        the words that say which row it is."""
        for place, messages in encoded(self._dispatcher, rows, located, self._append):
            self.rows += 1
            if messages:
                self._send(place, messages)

    def _append(self, place: Place, row: RowChange, wire: WireTable) -> Sequence[Message]:
        encoder = self._encoders.get(place)
        if encoder is None:
            encoder = self._encoders[place] = self._encoder()
        return encoder.append(row, wire)

    def flush(self) -> None:
        """Returns when the broker has all rows. Raises SinkError."""
        for place, encoder in self._encoders.items():
            self._send(place, encoder.flush())
        self._producer.flush()

    def _send(self, place: Place, messages: Sequence[Message]) -> None:
        for message in messages:
            self._producer.send(*place, message.key, message.value)
            self.size_bytes += len(message.key or b"") + len(message.value)
        self.messages += len(messages)


def encoded(
    dispatcher: Dispatcher,
    rows: Sequence[Mounted],
    located: Located,
    encode: Callable[[Place, RowChange, WireTable], T],
) -> Iterator[tuple[Place, T]]:
    """What `encode` makes of the rows of a transaction, with their places. Raises as Partitions.write does."""
    commit_ts = rows[0].row.commit_ts
    try:
        sent = dispatcher.transaction(rows)
    except EncodeError as error:
        raise located(error, f"commit_ts {commit_ts}") from error
    for place, row, wire in sent:
        try:
            found = encode(place, row, wire)
        except EncodeError as error:
            raise located(error, f"{row.schema}.{row.table} at commit_ts {commit_ts}") from error
        yield place, found


def partition_count(found: int, asked: int | None, topic: str) -> int:
    """How many partitions of a topic are written: all that it has, or as many as partition-num says."""
    if asked is not None and asked > found:
        raise PartitionNumInvalid(
            f"partition-num is {asked}, and topic {topic} has {found} partitions; add some or ask for less"
        )
    return found if asked is None else asked
