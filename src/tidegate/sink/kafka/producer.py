"""What takes messages, and how many partitions of a topic it writes."""

from collections.abc import Iterable
from typing import Protocol

from tidegate.model.feed_errors import PartitionNumInvalid


class Producer(Protocol):
    """What takes messages: a TopicWriter."""

    def send(self, topic: str, partition: int, key: bytes | None, value: bytes) -> None:
        """Put a message into the queue."""

    def send_all(self, topic: str, partition: int, messages: Iterable[tuple[bytes | None, bytes]]) -> int:
        """Put messages, keys and values, into the queue; return the bytes of them all."""

    def flush(self) -> None:
        """Return when all that was sent is acknowledged. Raises SinkError."""

    def abandon(self) -> None:
        """Drop what waits in the queue."""


def partition_count(found: int, asked: int | None, topic: str) -> int:
    """Return how many partitions of a topic are written: all that it has, or as many as partition-num asks for.

    PartitionNumInvalid when it has fewer."""
    if asked is not None and asked > found:
        raise PartitionNumInvalid(
            f"partition-num is {asked}, and topic {topic} has {found} partitions; add some or ask for less"
        )
    return found if asked is None else asked
