"""Consuming Kafka: one range of one partition for a task, or all partitions of some topics for commands.

    assign at `start` -> chunk, chunk, ... -> unassign           the process's consumer stays connected

`fetch_range` reaches its end by position, not by count: compaction and transaction markers leave gaps between offsets.
Either a message at or after the last wanted offset arrives, or the partition's end is reported there.  No answer of the
broker for `timeout_s` is a SourceError, an offset that the broker no longer has is HistoryLost.

`messages` and `Gathered` read topics without a changelog and without Spark, for commands that print, count or compare:

    watermarks() → start of each, end of each → one consumer, all assigned → (topic, partition, message) as they come

Reading ends at the ends that the partitions had when it began, or, with `idle_s`, once nothing has arrived for that
long.  A reader that compares partitions names by `hold` those that are ahead; they are paused until they are not, or
until all others have reached their ends.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from tidegate.engine.change import EventPosition
from tidegate.model.errors import HistoryLost, SourceError
from tidegate.source.kafka_batch import BatchConsumer, batch_consumer
from tidegate.source.kafka_client import CONSUMER, LOGGER, consumer, offsets, watermarks
from tidegate.source.kafka_messages import TopicMessage, TopicMessages
from tidegate.source.kafka_options import KafkaTopics

CHUNK: Final = 4_000
"""Messages per call: few enough that their objects stay in the CPU's cache, enough to amortize the call."""
CHUNK_BYTES: Final = 4 << 20
"""The target size of a chunk in bytes, estimated from the last one: a message may have ten megabytes, and decoding
takes some eight times its size. A larger chunk is split."""
FIRST_CHUNK: Final = 100
POLL_S: Final = 0.1
ACQUAINT_SECONDS: Final = 5.0
LOST: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})  # noqa: SLF001  its public names
PASSING: Final = frozenset(
    {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT}  # noqa: SLF001
)
"""Errors that the client library retries, until the deadline."""
_OFFSET, _KEY, _VALUE, _ERROR = KafkaMessage.offset, KafkaMessage.key, KafkaMessage.value, KafkaMessage.error


def fetch_range(source: KafkaTopics, position: EventPosition, end: int) -> Iterator[TopicMessages]:
    """Return the messages from `position` to `end` (exclusive), in order. Raises SourceError and HistoryLost."""
    if position.offset >= end:
        return
    if (batches := batch_consumer(tuple({**CONSUMER, **dict(source.connection)}.items()))) is not None:
        batches.assign(position.topic, position.partition, position.offset)
        try:
            position = yield from _packed(batches, position, end)
        finally:
            batches.unassign()
        if position.offset >= end:
            return
    client = consumer(source.connection)
    _acquaint(source.connection, position.topic)
    client.assign([TopicPartition(position.topic, position.partition, position.offset)])
    try:
        yield from _chunks(client, source, position, end)
    finally:
        client.unassign()


def messages_at(
    source: KafkaTopics, positions: Collection[EventPosition]
) -> dict[EventPosition, tuple[bytes | None, bytes | None]]:
    """Return key and value of the messages at `positions` that the broker still has. Raises SourceError."""
    messages: dict[EventPosition, tuple[bytes | None, bytes | None]] = {}
    runs: list[list[EventPosition]] = []
    for position in sorted(positions):
        last = runs[-1][-1] if runs else None
        if (
            last is not None
            and _with_offset(last, position.offset) == position
            and position.offset - last.offset <= FIRST_CHUNK
        ):
            runs[-1].append(position)
        else:
            runs.append([position])
    for run in runs:
        with suppress(HistoryLost):
            for chunk in fetch_range(source, run[0], run[-1].offset + 1):
                read = ((_with_offset(run[0], message.offset), message) for message in chunk)
                messages |= {
                    position: (message.key, message.value) for position, message in read if position in positions
                }
    return messages


@lru_cache(maxsize=1_000)
def _acquaint(connection: tuple[tuple[str, str], ...], topic: str) -> None:
    """Request a topic's metadata once per process; a consumer would ask only half a second later."""
    with suppress(KafkaException):  # the fetch says what is wrong
        consumer(connection).list_topics(topic, ACQUAINT_SECONDS)


def _packed(batches: BatchConsumer, position: EventPosition, end: int) -> Generator[TopicMessages, None, EventPosition]:
    """Yield messages without objects; return the position of the first that takes the other consumer."""
    offset, size = position.offset, FIRST_CHUNK
    while offset < end:
        chunk = batches.consume(min(size, end - offset), POLL_S)
        if chunk is None:
            break
        if chunk:
            offset = chunk.offsets[-1] + 1
        offset = max(offset, batches.eof)
        chunk, size = _until(chunk, end), _next_size(chunk, size)
        if chunk:
            yield from chunk.pieces(2 * CHUNK_BYTES) if chunk.size_bytes > 2 * CHUNK_BYTES else (chunk,)
    return _with_offset(position, offset)


def _chunks(client: Any, source: KafkaTopics, start: EventPosition, end: int) -> Iterator[TopicMessages]:
    offset, size, last_error = start.offset, FIRST_CHUNK, "the broker sent nothing"
    deadline = time.monotonic() + source.timeout_s
    while offset < end:
        got = client.consume(min(size, end - offset), POLL_S)
        sent = [message for message in got if message.error() is None] if any(map(_ERROR, got)) else got
        chunk = TopicMessages(list(map(_OFFSET, sent)), list(map(_KEY, sent)), list(map(_VALUE, sent)))
        if chunk:
            offset = chunk.offsets[-1] + 1
        chunk = _until(chunk, end)
        for message in got if len(chunk) < len(got) else ():
            error = message.error()
            if error is None:
                continue
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  its public name
                offset = max(offset, message.offset())
            elif error.code() in LOST:
                raise history_lost(source, _with_offset(start, offset))
            elif error.code() in PASSING:
                last_error = str(error.str())
            else:
                raise SourceError(f"broker {source.brokers}: {_with_offset(start, offset)}: {error.str()}")
        if got and (chunk or offset >= end):
            deadline = time.monotonic() + source.timeout_s
        elif time.monotonic() > deadline:
            raise SourceError(
                f"broker {source.brokers}: {_with_offset(start, offset)}: no data for {source.timeout_s:.0f} s, "
                f"although messages up to offset {end - 1} exist; {last_error}"
            )
        size = _next_size(chunk, size)
        if chunk:
            yield from chunk.pieces(2 * CHUNK_BYTES) if chunk.size_bytes > 2 * CHUNK_BYTES else (chunk,)


def _until(chunk: TopicMessages, end: int) -> TopicMessages:
    return chunk[: bisect_left(chunk.offsets, end)] if chunk and chunk.offsets[-1] >= end else chunk


def _next_size(chunk: TopicMessages, size: int) -> int:
    """The number of messages to ask for next, by the sizes of the last ones; `size` again behind none."""
    return max(1, min(CHUNK, CHUNK_BYTES * len(chunk) // max(1, chunk.size_bytes))) if chunk else size


def _with_offset(position: EventPosition, offset: int) -> EventPosition:
    return EventPosition(position.topic, position.partition, offset)


def history_lost(source: KafkaTopics, position: EventPosition) -> SourceError:
    """Return the error for a position whose message is gone, with the broker's offsets and the remedies. If a second
    query finds the position, the broker only lagged: the error is then retryable."""
    try:
        low = offsets(source, [(position.topic, position.partition)], latest=False)[position.topic, position.partition]
        high = offsets(source, [(position.topic, position.partition)], latest=True)[position.topic, position.partition]
    except (SourceError, KafkaException) as unknown:
        kept = str(unknown)
    else:
        if low <= position.offset <= high:
            return SourceError(
                f"broker {source.brokers}: {position} was out of range, but within {low} to {high} on retry"
            ).at(topic=position.topic, partition=position.partition, offset=position.offset)
        kept = f"the broker has offsets {low} to {high}" if low < high else f"the broker has none below {high}"
    return HistoryLost(
        f"{position} is gone: {kept}. Retention removed messages before they were read, or the topic was "
        f"recreated. Start a new changefeed into a new lake from a new snapshot, or restore the topic; raise "
        f"retention.ms above the longest pause of the changefeed"
    ).at(topic=position.topic, partition=position.partition, offset=position.offset)


def messages(source: KafkaTopics) -> Iterator[tuple[bytes | None, bytes | None, str]]:
    """Yield (key, value, "topic/partition/offset") of every message up to the current end offsets, partition by
    partition."""
    for topic, partitions in watermarks(source).items():
        for partition, (low, high) in partitions.items():
            for chunk in fetch_range(source, EventPosition(topic, partition, low), high):
                for message in chunk:
                    yield message.key, message.value, f"{topic}/{partition}/{message.offset}"


CONSUMED: Final = 500
Partition = tuple[str, int]


class Took(NamedTuple):
    """A message and its partition."""

    partition: Partition
    message: TopicMessage


class Gathered:
    """A reading of all partitions; `positions` are the next offsets."""

    def __init__(self, source: KafkaTopics, *, idle_s: float | None = None) -> None:
        self._source, self._idle_s = source, idle_s
        chosen = {(topic, partition): offset for topic, partition, offset in source.start}
        marks = {(t, p): mark for t, numbers in watermarks(source).items() for p, mark in numbers.items()}
        self.positions = {partition: chosen.get(partition, low) for partition, (low, _) in marks.items()}
        self._ends = {partition: high for partition, (_, high) in marks.items()}
        self._at_end: set[Partition] = set()
        for partition, offset in self.positions.items():
            if not marks[partition][0] <= offset <= marks[partition][1]:
                raise history_lost(source, EventPosition(*partition, offset))

    def chunks(self, held_back: Callable[[], Collection[Partition]] = tuple) -> Iterator[list[Took]]:
        """Yield lists of messages, in order within each partition; empty ones at intervals while no data comes.

        Raises SourceError when a broker does not answer, HistoryLost when messages were removed meanwhile."""
        client = Consumer({**CONSUMER, **dict(self._source.connection)}, logger=LOGGER)
        client.assign([TopicPartition(*partition, offset) for partition, offset in self.positions.items()])
        resting: set[Partition] = set()
        last_s = time.monotonic()
        try:
            while not self._done(last_s):
                chunk = self._sorted(client.consume(CONSUMED, POLL_S))
                if chunk:
                    last_s = time.monotonic()
                elif time.monotonic() - last_s > self._source.timeout_s and self._idle_s is None:
                    raise SourceError(f"broker {self._source.brokers}: no data for {self._source.timeout_s} s")
                yield chunk
                resting = self._rested(client, resting, set(held_back()))
        finally:
            client.close()

    def _done(self, last_s: float) -> bool:
        if self._idle_s is not None:
            return time.monotonic() - last_s > self._idle_s
        return all(map(self._ended, self._ends))

    def _ended(self, partition: Partition) -> bool:
        bounded = self._idle_s is None
        return partition in self._at_end or (bounded and self.positions[partition] >= self._ends[partition])

    def _sorted(self, got: list[Any]) -> list[Took]:
        messages = []
        for message in got:
            partition, error = (message.topic(), message.partition()), message.error()
            if error is None:
                if self._idle_s is None and message.offset() >= self._ends[partition]:
                    self.positions[partition] = self._ends[partition]
                    continue
                messages.append(Took(partition, TopicMessage(message.offset(), message.key(), message.value())))
                self.positions[partition] = message.offset() + 1
                self._at_end.discard(partition)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  its public name
                self.positions[partition] = max(self.positions[partition], message.offset())
                self._at_end.add(partition)
            elif error.code() in LOST:
                raise history_lost(self._source, EventPosition(*partition, self.positions[partition]))
            elif error.code() not in PASSING:
                raise SourceError(f"broker {self._source.brokers}: {partition[0]}/{partition[1]}: {error.str()}")
        return messages

    def _rested(self, client: Any, resting: set[Partition], ahead: set[Partition]) -> set[Partition]:
        if all(partition in ahead or self._ended(partition) for partition in self._ends):
            ahead = set()
        if self._idle_s is None:
            ahead |= {partition for partition, end in self._ends.items() if self.positions[partition] >= end}
        if ahead - resting:
            client.pause([TopicPartition(*partition) for partition in ahead - resting])
        if resting - ahead:
            client.resume([TopicPartition(*partition) for partition in resting - ahead])
        return ahead
