"""Kafka clients: connections of a feed, and the requests that planning needs.

    watermarks()  {topic: {partition: (low, high)}}, low the first offset kept, high the one after the last

Connections are kept for the life of a process, one per configuration.  Offsets end at the last stable offset
(read_committed), as for the executors' consumers.  Offsets are never committed to the broker: positions are stored
only in the changelog.
"""

import base64
import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tidegate.engine.retry_policy import ClientErrors, awaited, file_named
from tidegate.model.errors import ConfigError, SourceError
from tidegate.model.tso import compose
from tidegate.source.kafka_options import FETCH_BYTES, KafkaTopics

Marks: TypeAlias = dict[str, dict[int, tuple[int, int]]]
"""Topic -> partition -> (low, high)."""

LOGGER: Final = logging.getLogger("tidegate.kafka")
LOGGER.addHandler(logging.NullHandler())

QUEUE_KIB: Final = 32 << 10
"""The client library's buffer of unconsumed messages, beside the last fetch."""
QUEUE_PAUSE_MS: Final = 10
"""The pause after which a full queue is checked again; a task empties it in less than the library's default, a
second."""
FETCH_WAIT_MS: Final = 20
"""The time that a broker holds a fetch open at the end of a partition; the next task's first fetch waits for it."""

CONSUMER: Final[Mapping[str, str]] = {
    "group.id": "tidegate",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": str(FETCH_WAIT_MS),
    "max.partition.fetch.bytes": str(FETCH_BYTES),
    "queued.max.messages.kbytes": str(QUEUE_KIB),
    "fetch.queue.backoff.ms": str(QUEUE_PAUSE_MS),
}


@lru_cache(maxsize=8)
def consumer(connection: tuple[tuple[str, str], ...]) -> Any:
    """This process's consumer for a connection; assign and unassign it, never close it."""
    return _client(Consumer, {**CONSUMER, **dict(connection)})


class Described(NamedTuple):
    """A broker's description of a topic."""

    partitions: tuple[int, ...]
    topic_id: str
    """The topic id, as Kafka's tools print it; "" for a broker without ids (before Kafka 2.8, and some others)."""


class Admin(NamedTuple):
    """An admin client, with the errors of its callback."""

    client: Any
    words: ClientErrors


@lru_cache(maxsize=8)
def admin(connection: tuple[tuple[str, str], ...]) -> Admin:
    """This process's admin client for a connection."""
    words = ClientErrors()
    return Admin(_client(AdminClient, {**dict(connection), "error_cb": words.hear}), words)


def _client(kind: Any, config: dict[str, Any]) -> Any:
    try:
        return kind(config, logger=LOGGER)
    except (KafkaException, ValueError) as refused:
        text = f"{_text(refused)}{file_named(_text(refused), config)}"
        raise ConfigError(f"kafka client of {config['bootstrap.servers']}: {text}") from refused


def described(source: KafkaTopics) -> dict[str, Described]:
    """Return partitions and id of every topic. Raises ConfigError for a topic that does not exist, SourceError
    otherwise."""
    futures = admin(source.connection).client.describe_topics(
        TopicCollection(list(source.topics)), request_timeout=source.timeout_s
    )
    topics = {}
    for topic, future in futures.items():
        description = _answer(source, f"topic {topic}", future)
        numbers = sorted(partition.id for partition in description.partitions)
        chosen = tuple(numbers[: source.partition_num] if source.partition_num else numbers)
        uuid, raw = description.topic_id, b""
        if uuid is not None:
            words = (uuid.get_most_significant_bits(), uuid.get_least_significant_bits())
            raw = b"".join((word & (1 << 64) - 1).to_bytes(8, "big") for word in words)
        text = base64.urlsafe_b64encode(raw).decode().rstrip("=") if any(raw) else ""
        topics[topic] = Described(chosen, text)
    return {topic: topics[topic] for topic in source.topics}


def offsets(source: KafkaTopics, partitions: Iterable[tuple[str, int]], *, latest: bool) -> dict[tuple[str, int], int]:
    """Return the high (or low) mark of each (topic, partition), in one request to each broker."""
    marks = _listed(source, partitions, OffsetSpec.latest() if latest else OffsetSpec.earliest())
    return {partition: mark.offset for partition, mark in marks.items()}


def begin_of(source: KafkaTopics) -> int:
    """Return the ts up to which retention has removed messages: the time of the oldest one, of the partition where that
    is the youngest; 0 if none was removed."""
    every = [(topic, number) for topic, (numbers, _) in described(source).items() for number in numbers]
    oldest = _listed(source, every, OffsetSpec.for_timestamp(0)).values()
    return max((compose(message.timestamp) for message in oldest if message.offset > 0), default=0)


def _listed(source: KafkaTopics, partitions: Iterable[tuple[str, int]], spec: OffsetSpec) -> dict[tuple[str, int], Any]:
    request = {TopicPartition(topic, partition): spec for topic, partition in partitions}
    if not request:
        return {}
    futures = admin(source.connection).client.list_offsets(
        request, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=source.timeout_s
    )
    return {
        (topic_partition.topic, topic_partition.partition): _answer(
            source, f"topic {topic_partition.topic} partition {topic_partition.partition}", future
        )
        for topic_partition, future in futures.items()
    }


def watermarks(source: KafkaTopics) -> Marks:
    """Return the (low, high) marks of every partition of every topic."""
    partitions = [
        (topic, number) for topic, description in described(source).items() for number in description.partitions
    ]
    lows, highs = (offsets(source, partitions, latest=latest) for latest in (False, True))
    marks: Marks = {topic: {} for topic in source.topics}
    for topic, partition in partitions:
        marks[topic][partition] = lows[topic, partition], highs[topic, partition]
    return marks


def _answer(source: KafkaTopics, what: str, future: Any) -> Any:
    client, words = admin(source.connection)
    client.poll(0)
    try:
        answer = awaited(
            future,
            lambda: client.poll(0),
            words,
            lambda text: SourceError(f"broker {source.brokers} rejects the client: {text}"),
            lambda: SourceError(words.unreachable(source.brokers)),
        )
        words.forget()
        return answer  # noqa: TRY300  nothing behind it can fail
    except KafkaException as failed:
        error = failed.args[0]
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION):
            raise ConfigError(f"{what} does not exist at broker {source.brokers}: check the name") from failed
        aside = words.aside() if error.code() == KafkaError._TIMED_OUT else ""  # noqa: SLF001  its public name
        raise SourceError(f"broker {source.brokers}: {what}: {_text(failed)}{aside}") from failed


def _text(failed: BaseException) -> str:
    error = failed.args[0] if failed.args else failed
    return str(error.str()) if isinstance(error, KafkaError) else str(error)


def share(
    starts: Mapping[tuple[str, int], int], highs: Mapping[tuple[str, int], int], limit: int
) -> dict[tuple[str, int], int]:
    """Return end offsets for at most `limit` messages in all; long partitions use the unused share of short ones."""
    ends = dict(starts)
    left = limit
    backlog = sorted(starts, key=lambda partition: highs[partition] - starts[partition])
    for index, partition in enumerate(backlog):
        take = min(highs[partition] - starts[partition], left // (len(backlog) - index))
        ends[partition] += take
        left -= take
    return ends
