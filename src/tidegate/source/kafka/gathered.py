"""All partitions of some topics at once, for who needs them side by side.

    watermarks() → start of each, end of each → one consumer, all assigned → (topic, partition, message) as they come

Reading ends where the partitions ended when it began, or, with `idle_s`, once nothing has come for that long.  A reader
that compares partitions says by `hold` which of them are ahead; those rest until they are not, or until all others have
come to their ends.
"""

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tidegate.engine.change import Place
from tidegate.model.errors import SourceError
from tidegate.source.kafka.client import CONSUMER, LOGGER, KafkaTopics, watermarks
from tidegate.source.kafka.fetch import LOST, PASSING, history_lost
from tidegate.source.kafka.message import TopicMessage

CHUNK: Final = 500
POLL_S: Final = 0.1
Partition = tuple[str, int]


class Took(NamedTuple):
    """A message and its partition."""

    partition: Partition
    message: TopicMessage


class Gathered:
    """A reading of all partitions; `positions` are the offsets that come next."""

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
        """Return the messages, in the order of each partition; now and then an empty list while nothing comes.

        Raises SourceError when a broker does not answer, HistoryLost when messages were removed meanwhile."""
        client = Consumer({**CONSUMER, **dict(self._source.connection)}, logger=LOGGER)
        client.assign([TopicPartition(*place, offset) for place, offset in self.positions.items()])
        resting: set[Partition] = set()
        heard = time.monotonic()
        try:
            while not self._done(heard):
                found = self._sorted(client.consume(CHUNK, POLL_S))
                if found:
                    heard = time.monotonic()
                elif time.monotonic() - heard > self._source.timeout_s and self._idle_s is None:
                    raise SourceError(f"broker {self._source.bootstrap}: nothing came for {self._source.timeout_s} s")
                yield found
                resting = self._rested(client, resting, set(hold()))
        finally:
            client.close()

    def _done(self, heard: float) -> bool:
        if self._idle_s is not None:
            return time.monotonic() - heard > self._idle_s
        return all(map(self._ended, self._ends))

    def _ended(self, place: Partition) -> bool:
        bounded = self._idle_s is None
        return place in self._at_end or (bounded and self.positions[place] >= self._ends[place])

    def _sorted(self, got: list[Any]) -> list[Took]:
        found = []
        for one in got:
            place, error = (one.topic(), one.partition()), one.error()
            if error is None:
                if self._idle_s is None and one.offset() >= self._ends[place]:
                    self.positions[place] = self._ends[place]
                    continue
                found.append(Took(place, TopicMessage(one.offset(), one.key(), one.value())))
                self.positions[place] = one.offset() + 1
                self._at_end.discard(place)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  its public name
                self.positions[place] = max(self.positions[place], one.offset())
                self._at_end.add(place)
            elif error.code() in LOST:
                raise history_lost(self._source, Place(*place, self.positions[place]))
            elif error.code() not in PASSING:
                raise SourceError(f"broker {self._source.bootstrap}: {place[0]}/{place[1]}: {error.str()}")
        return found

    def _rested(self, client: Any, resting: set[Partition], ahead: set[Partition]) -> set[Partition]:
        """The partitions that rest now, after those that changed were paused and resumed."""
        if all(place in ahead or self._ended(place) for place in self._ends):
            ahead = set()
        if self._idle_s is None:
            ahead |= {place for place, end in self._ends.items() if self.positions[place] >= end}
        if ahead - resting:
            client.pause([TopicPartition(*place) for place in ahead - resting])
        if resting - ahead:
            client.resume([TopicPartition(*place) for place in resting - ahead])
        return ahead
