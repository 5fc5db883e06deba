"""A topic as a plain run of messages, for commands that print or count: no changelog, no Spark."""

from collections.abc import Iterator

from tidegate.feed.change import Place
from tidegate.source.kafka.client import KafkaTopics, watermarks
from tidegate.source.kafka.fetch import fetch_range

__all__ = ["messages"]


def messages(source: KafkaTopics) -> Iterator[tuple[bytes | None, bytes | None, str]]:
    """(key, value, "topic/partition/offset") of every message up to the ends of this moment, a partition at a time."""
    for topic, partitions in watermarks(source).items():
        for partition, (low, high) in partitions.items():
            for chunk in fetch_range(source, Place(topic, partition, low), high):
                for message in chunk:
                    yield message.key, message.value, f"{topic}/{partition}/{message.offset}"
