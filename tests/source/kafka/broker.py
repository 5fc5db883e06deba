"""Topics of one partition in this process, which landings read instead of a broker's."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.source.kit import insert, open_message, resolved
from tidegate.engine.change import EventPosition
from tidegate.model.errors import HistoryLost
from tidegate.source import kafka_fetch, kafka_land
from tidegate.source.kafka_client import Described
from tidegate.source.kafka_messages import TopicMessage, TopicMessages
from tidegate.source.kafka_options import KafkaTopics


class Broker:
    """The topics, with their ids; `amid` is called while messages are on their way."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[str, list[TopicMessage]]] = {}
        self.amid: Callable[[], None] = lambda: None
        self._ids = count(1)

    @classmethod
    def instead(cls, monkeypatch: pytest.MonkeyPatch) -> "Broker":
        """Return one that landings read instead of a real one."""
        made = cls()
        for module in (kafka_land, kafka_fetch):
            for name in ("begin_of", "described", "offsets", "fetch_range"):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, getattr(made, name))
        return made

    def make(self, topic: str, messages: int, *, known: bool = True) -> None:
        """Make a topic, or make it again: a row and a resolved ts in each message."""
        topic_id = f"{next(self._ids):022}" if known else ""
        self.topics[topic] = topic_id, [row(number) for number in range(messages)]

    def grow(self, topic: str, messages: int) -> None:
        """Add messages to a topic."""
        known = self.topics[topic][1]
        known += [row(number) for number in range(len(known), len(known) + messages)]

    def described(self, source: KafkaTopics) -> dict[str, Described]:
        """One partition, and the id."""
        return {topic: Described((0,), self.topics[topic][0]) for topic in source.topics}

    def offsets(self, _source: KafkaTopics, wanted, *, latest: bool) -> dict[tuple[str, int], int]:
        """Ends, or begins."""
        return {place: len(self.topics[place[0]][1]) if latest else 0 for place in wanted}

    def begin_of(self, _source: KafkaTopics) -> int:
        """Nothing was removed."""
        return 0

    def fetch_range(self, _source: KafkaTopics, place: EventPosition, end: int) -> Iterator[TopicMessages]:
        """The messages, once `amid` was called."""
        self.amid()
        messages = self.topics[place.topic][1]
        if len(messages) < end:
            raise HistoryLost(f"{place} is gone")
        yield TopicMessages(
            *map(list, zip(*((m.offset, m.key, m.value) for m in messages[place.offset : end]), strict=True))
        )


def row(number: int) -> TopicMessage:
    return open_message(number, insert(10 + number, number), resolved(10 + number))
