"""Messages that are read without a Python object each are those of confluent-kafka's consumer, from a real broker."""

import random
from pathlib import Path

import pytest

from tests.source.conftest import Topics
from tests.source.kit import OPEN
from tests.sources import topics_to_read
from tidegate.codec.columnar.sweep import PackedTexts
from tidegate.engine.change import EventPosition
from tidegate.model.errors import HistoryLost, SourceError
from tidegate.source import kafka_batch, kafka_fetch
from tidegate.source.kafka_messages import TopicMessage
from tidegate.source.kafka_options import KafkaTopics

pytestmark = pytest.mark.slow


def written(count: int, seed: int) -> list[TopicMessage]:
    """Messages of all sizes, some without a key or a value, some of no bytes."""
    chance = random.Random(seed)

    def text() -> bytes | None:
        return chance.choice((None, b"", chance.randbytes(chance.randrange(1, 2_000)), b"x" * chance.randrange(40)))

    return [TopicMessage(0, text(), text()) for _ in range(count)]


def read(source: KafkaTopics, topic: str, begin: int, end: int) -> list[TopicMessage]:
    """What is read of a topic's first partition."""
    chunks = kafka_fetch.fetch_range(source, EventPosition(topic, 0, begin), end)
    return [message for chunk in chunks for message in chunk]


@pytest.mark.parametrize("seed", [1, 2])
def test_messages_are_equal(topics: Topics, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Any range of a topic, with transactions, aborted ones among them, and messages that are gone."""
    topic = topics.new()
    topics.produce(topic, 0, written(1_500, seed))
    topics.transact(topic, written(300, seed + 10), commit=False)
    topics.transact(topic, written(300, seed + 20), commit=True)
    topics.produce(topic, 0, [TopicMessage(0, None, b"v%d" % number) for number in range(9_000)])
    topics.transact(topic, written(5, seed + 30), commit=False)
    topics.forget(topic, 20)
    source = topics_to_read(topics.bootstrap, (topic,), OPEN)
    high = kafka_fetch.watermarks(source)[topic][0][1]
    ranges = [(20, high), (20, 21), (1_499, 1_502), (1_700, 2_200), (high - 3, high), (5_000, high - 10)]
    packed = [read(source, topic, *some) for some in ranges]
    chunks = list(kafka_fetch.fetch_range(source, EventPosition(topic, 0, 5_000), high - 10))
    assert isinstance(chunks[-1].values, PackedTexts)
    monkeypatch.setattr(kafka_fetch, "batch_consumer", lambda _: None)
    assert packed == [read(source, topic, *some) for some in ranges]
    assert len(packed[0]) > 10_700


def test_what_the_other_consumer_tells(topics: Topics) -> None:
    """A position whose message is gone, an offset that no message has, a broker that is away: errors are its own."""
    topic = topics.new()
    topics.produce(topic, 0, written(50, 3))
    topics.forget(topic, 10)
    source = topics_to_read(topics.bootstrap, (topic,), OPEN, read_timeout_ms=2_000)
    with pytest.raises(HistoryLost, match="offset 5"):
        read(source, topic, 5, 50)
    with pytest.raises((SourceError, HistoryLost), match="offset"):
        read(source, topic, 10, 70)
    away = topics_to_read("127.0.0.1:1", (topic,), OPEN, read_timeout_ms=2_000)
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1"):
        read(away, topic, 10, 50)


def test_consumers_that_nobody_uses_end() -> None:
    """A process that reads topics of many connections in turns keeps the threads of the last few only."""
    threads = Path("/proc/self/task")
    kafka_batch.batch_consumer.cache_clear()
    before = len(list(threads.iterdir()))
    for number in range(20):
        connection = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "client.id": str(number)}
        assert kafka_batch.batch_consumer(tuple(connection.items())) is not None
    assert len(list(threads.iterdir())) > before
    kafka_batch.batch_consumer.cache_clear()
    assert len(list(threads.iterdir())) <= before


def test_silence_is_time_of_the_broker() -> None:
    """A second without messages hands over to the other consumer; what the reader does between two calls is none."""
    silent = kafka_batch.batch_consumer((("bootstrap.servers", "127.0.0.1:1"), ("group.id", "silent")))
    assert silent is not None
    answers = [silent.consume(1, timeout_s) is None for timeout_s in (0.0, 0.0, 0.25, 0.25, 0.25, 0.25)]
    assert answers == [False, False, False, False, False, True]


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library of another version than the module's is left alone."""
    kafka_batch._library.cache_clear()
    assert kafka_batch._library() is not None
    kafka_batch._library.cache_clear()
    monkeypatch.setattr(kafka_batch.confluent_kafka, "libversion", lambda: ("1.0", 1))
    assert kafka_batch._library() is None
    kafka_batch._library.cache_clear()
