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
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from tidegate.engine.change import Place
from tidegate.model.errors import HistoryLost, SourceError
from tidegate.source.kafka_client import CONSUMER, LOGGER, KafkaTopics, consumer, offsets, watermarks
from tidegate.source.kafka_messages import TopicMessage, TopicMessages

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


def fetch_range(source: KafkaTopics, place: Place, end: int) -> Iterator[TopicMessages]:
    """Return the messages from `place` to `end` (exclusive), in order. Raises SourceError and HistoryLost."""
    if place.offset >= end:
        return
    client = consumer(source.connection)
    _acquaint(source.connection, place.topic)
    client.assign([TopicPartition(place.topic, place.partition, place.offset)])
    try:
        yield from _chunks(client, source, place, end)
    finally:
        client.unassign()


def messages_at(source: KafkaTopics, places: Collection[Place]) -> dict[Place, tuple[bytes | None, bytes | None]]:
    """Return key and value of the messages at `places` that the broker still has. Raises SourceError."""
    messages: dict[Place, tuple[bytes | None, bytes | None]] = {}
    runs: list[list[Place]] = []
    for place in sorted(places):
        last = runs[-1][-1] if runs else None
        if last is not None and _at(last, place.offset) == place and place.offset - last.offset <= FIRST_CHUNK:
            runs[-1].append(place)
        else:
            runs.append([place])
    for run in runs:
        with suppress(HistoryLost):
            for chunk in fetch_range(source, run[0], run[-1].offset + 1):
                read = ((_at(run[0], one.offset), one) for one in chunk)
                messages |= {place: (one.key, one.value) for place, one in read if place in places}
    return messages


@lru_cache(maxsize=1_000)
def _acquaint(connection: tuple[tuple[str, str], ...], topic: str) -> None:
    """Request a topic's metadata once per process; a consumer would ask only half a second later."""
    with suppress(KafkaException):  # the fetch says what is wrong
        consumer(connection).list_topics(topic, ACQUAINT_SECONDS)


def _chunks(client: Any, source: KafkaTopics, start: Place, end: int) -> Iterator[TopicMessages]:
    at, size, last_error = start.offset, FIRST_CHUNK, "the broker sent nothing"
    deadline = time.monotonic() + source.timeout_s
    while at < end:
        got = client.consume(min(size, end - at), POLL_S)
        sent = [one for one in got if one.error() is None] if any(map(_ERROR, got)) else got
        chunk = TopicMessages(list(map(_OFFSET, sent)), list(map(_KEY, sent)), list(map(_VALUE, sent)))
        if chunk:
            at = chunk.offsets[-1] + 1
        if at > end:
            chunk = chunk[: bisect_left(chunk.offsets, end)]
        for message in got if len(chunk) < len(got) else ():
            error = message.error()
            if error is None:
                continue
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  its public name
                at = max(at, message.offset())
            elif error.code() in LOST:
                raise history_lost(source, _at(start, at))
            elif error.code() in PASSING:
                last_error = str(error.str())
            else:
                raise SourceError(f"broker {source.bootstrap}: {_at(start, at)}: {error.str()}")
        if got and (chunk or at >= end):
            deadline = time.monotonic() + source.timeout_s
        elif time.monotonic() > deadline:
            raise SourceError(
                f"broker {source.bootstrap}: {_at(start, at)}: nothing came for {source.timeout_s:.0f} s "
                f"though messages up to offset {end - 1} were promised; {last_error}"
            )
        if chunk:
            size = max(1, min(CHUNK, CHUNK_BYTES * len(chunk) // max(1, chunk.size_bytes)))
            yield from chunk.pieces(2 * CHUNK_BYTES) if chunk.size_bytes > 2 * CHUNK_BYTES else (chunk,)


def _at(place: Place, offset: int) -> Place:
    return Place(place.topic, place.partition, offset)


def history_lost(source: KafkaTopics, place: Place) -> SourceError:
    """Return the error for a position whose message is gone, with the broker's offsets and the ways out. If the broker
    has the position when asked again, it was only behind: the error is then retryable."""
    try:
        low = offsets(source, [(place.topic, place.partition)], latest=False)[place.topic, place.partition]
        high = offsets(source, [(place.topic, place.partition)], latest=True)[place.topic, place.partition]
    except (SourceError, KafkaException) as unknown:
        kept = str(unknown)
    else:
        if low <= place.offset <= high:
            return SourceError(
                f"broker {source.bootstrap}: {place} was out of range, and within {low} to {high} when asked again"
            ).at(topic=place.topic, partition=place.partition, offset=place.offset)
        kept = f"the broker has offsets {low} to {high}" if low < high else f"the broker has none below {high}"
    return HistoryLost(
        f"{place} is gone: {kept}. Retention removed messages before they were read, or the topic was made anew. "
        "Start a fresh feed into a fresh lake from a new snapshot, or restore the topic; raise retention.ms above the "
        "longest time that the feed may stand still"
    ).at(topic=place.topic, partition=place.partition, offset=place.offset)


def messages(source: KafkaTopics) -> Iterator[tuple[bytes | None, bytes | None, str]]:
    """Yield (key, value, "topic/partition/offset") of every message up to the current end offsets, partition by
    partition."""
    for topic, partitions in watermarks(source).items():
        for partition, (low, high) in partitions.items():
            for chunk in fetch_range(source, Place(topic, partition, low), high):
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
        self.positions = {place: chosen.get(place, low) for place, (low, _) in marks.items()}
        self._ends = {place: high for place, (_, high) in marks.items()}
        self._at_end: set[Partition] = set()
        for place, offset in self.positions.items():
            if not marks[place][0] <= offset <= marks[place][1]:
                raise history_lost(source, Place(*place, offset))

    def chunks(self, hold: Callable[[], Collection[Partition]] = tuple) -> Iterator[list[Took]]:
        """Yield lists of messages, in order within each partition; empty ones from time to time while no data comes.

        Raises SourceError when a broker does not answer, HistoryLost when messages were removed meanwhile."""
        client = Consumer({**CONSUMER, **dict(self._source.connection)}, logger=LOGGER)
        client.assign([TopicPartition(*place, offset) for place, offset in self.positions.items()])
        resting: set[Partition] = set()
        last_s = time.monotonic()
        try:
            while not self._done(last_s):
                chunk = self._sorted(client.consume(CONSUMED, POLL_S))
                if chunk:
                    last_s = time.monotonic()
                elif time.monotonic() - last_s > self._source.timeout_s and self._idle_s is None:
                    raise SourceError(f"broker {self._source.bootstrap}: nothing came for {self._source.timeout_s} s")
                yield chunk
                resting = self._rested(client, resting, set(hold()))
        finally:
            client.close()

    def _done(self, last_s: float) -> bool:
        if self._idle_s is not None:
            return time.monotonic() - last_s > self._idle_s
        return all(map(self._ended, self._ends))

    def _ended(self, place: Partition) -> bool:
        bounded = self._idle_s is None
        return place in self._at_end or (bounded and self.positions[place] >= self._ends[place])

    def _sorted(self, got: list[Any]) -> list[Took]:
        messages = []
        for one in got:
            place, error = (one.topic(), one.partition()), one.error()
            if error is None:
                if self._idle_s is None and one.offset() >= self._ends[place]:
                    self.positions[place] = self._ends[place]
                    continue
                messages.append(Took(place, TopicMessage(one.offset(), one.key(), one.value())))
                self.positions[place] = one.offset() + 1
                self._at_end.discard(place)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  its public name
                self.positions[place] = max(self.positions[place], one.offset())
                self._at_end.add(place)
            elif error.code() in LOST:
                raise history_lost(self._source, Place(*place, self.positions[place]))
            elif error.code() not in PASSING:
                raise SourceError(f"broker {self._source.bootstrap}: {place[0]}/{place[1]}: {error.str()}")
        return messages

    def _rested(self, client: Any, resting: set[Partition], ahead: set[Partition]) -> set[Partition]:
        if all(place in ahead or self._ended(place) for place in self._ends):
            ahead = set()
        if self._idle_s is None:
            ahead |= {place for place, end in self._ends.items() if self.positions[place] >= end}
        if ahead - resting:
            client.pause([TopicPartition(*place) for place in ahead - resting])
        if resting - ahead:
            client.resume([TopicPartition(*place) for place in resting - ahead])
        return ahead
