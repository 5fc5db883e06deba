"""Kafka messages, one and many.

    TopicMessage    offset, key, value
    TopicMessages   offsets | keys | values     a sequence of TopicMessage that is made of columns

Between the client library and the columns of a chunk nobody looks at a single message, so none is made.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, overload


class TopicMessage(NamedTuple):
    """One Kafka message."""

    offset: int
    key: bytes | None
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        """The size of key and value."""
        return len(self.key or b"") + len(self.value or b"")


class TopicMessages(Sequence[TopicMessage]):
    """Some messages of one partition, by ascending offset."""

    __slots__ = ("keys", "offsets", "size_bytes", "values")

    def __init__(self, offsets: list[int], keys: list[bytes | None], values: list[bytes | None]) -> None:
        self.offsets, self.keys, self.values = offsets, keys, values
        self.size_bytes = sum(map(len, filter(None, keys))) + sum(map(len, filter(None, values)))

    @classmethod
    def of(cls, messages: Iterable[TopicMessage]) -> "TopicMessages":
        """Return these messages as columns."""
        if isinstance(messages, TopicMessages):
            return messages
        some = list(messages)
        return cls(*map(list, zip(*some, strict=True))) if some else cls([], [], [])

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, at: int) -> TopicMessage: ...
    @overload
    def __getitem__(self, at: slice) -> "TopicMessages": ...
    def __getitem__(self, at: int | slice) -> "TopicMessage | TopicMessages":
        if isinstance(at, slice):
            return TopicMessages(self.offsets[at], self.keys[at], self.values[at])
        return TopicMessage(self.offsets[at], self.keys[at], self.values[at])

    def __iter__(self) -> Iterator[TopicMessage]:
        return map(TopicMessage, self.offsets, self.keys, self.values)

    def pieces(self, limit_bytes: int) -> Iterator["TopicMessages"]:
        """Return the messages in order, in runs of at most `limit_bytes` or of one message; nothing is left behind
        them."""
        columns = self.offsets, self.keys, self.values
        for column in columns:
            column.reverse()
        while self.offsets:
            size_bytes = count = 0
            for key, value in zip(reversed(self.keys), reversed(self.values), strict=True):
                size_bytes += len(key or b"") + len(value or b"")
                if count and size_bytes > limit_bytes:
                    break
                count += 1
            piece = TopicMessages(
                self.offsets[: -count - 1 : -1], self.keys[: -count - 1 : -1], self.values[: -count - 1 : -1]
            )
            for column in columns:
                del column[-count:]
            yield piece
