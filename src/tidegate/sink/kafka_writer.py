"""The Kafka producer of the sink: idempotent, acknowledged by all replicas, in the order of each partition.

    send(topic, partition, key, value) ─→ the library's queue ─→ broker
    flush() ─→ all that was sent is acknowledged, or SinkError

A missing topic is created, as by TiCDC's auto-create-topic, unless `create` is None; then no broker is asked in a way
that lets it create topics by itself either.  What a broker refuses is reported by the next call.  Brokers that refuse
the client are reported soon, with their reason (engine/retry_policy.py).  Messages that were sent are never withdrawn:
after an interruption everything that was not acknowledged is sent again, so delivery is at least once.

Source: librdkafka, "Idempotent Producer".
"""

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from tidegate.engine.retry_policy import ClientErrors, awaited, file_named
from tidegate.model.errors import ConfigError, LoginRefused, SinkError, SinkRefused

LOGGER: Final = logging.getLogger("tidegate.kafka")
LOGGER.addHandler(logging.NullHandler())

OWN: Final[Mapping[str, str | bool]] = {
    "enable.idempotence": "true",
    "acks": "all",
    "linger.ms": "100",
    "queue.buffering.max.messages": "1000000",
    "delivery.report.only.error": True,
}
RECORD_MARGIN: Final = 1 << 20
"""Room above max-message-bytes, which TiCDC counts otherwise than the client; the broker has the last word."""
BATCH_BYTES: Final = 1_000_000
"""The size of a batch for a partition, which a topic's max.message.bytes limits as it limits single messages."""
IN_FLIGHT: Final = 5
"""Batches that an idempotent producer may have under way. While more are ready, the client's thread does not sleep, and
takes a core from a broker that is slow already; so the queue holds no more, and a batch waits (linger.ms) until it is
full or flushed."""
REFUSED: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_EXCEPTION,
    }
)
CAUSELESS: Final = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._MSG_TIMED_OUT})  # noqa: SLF001
"""Errors of requests whose cause the library reports through its callback instead."""
WAIT_S: Final = 30.0
FULL_S: Final = 0.003
"""Pause before a full queue is tried again: deliveries are not reported, so nothing wakes the waiting thread."""


class NewTopics(NamedTuple):
    """The settings with which a missing topic is created."""

    partitions: int = 3
    replicas: int = 1


class TopicWriter:
    """Writes to the topics of one cluster. `client_config` holds librdkafka's keys and may hold secrets."""

    def __init__(self, client_config: Mapping[str, str], max_message_bytes: int, create: NewTopics | None) -> None:
        largest, batch = min(max_message_bytes + RECORD_MARGIN, 1_000_000_000), min(max_message_bytes, BATCH_BYTES)
        limits = {
            "message.max.bytes": str(largest),
            "batch.size": str(batch),
            "queue.buffering.max.kbytes": str(1 + max(largest, IN_FLIGHT * batch) // 1_024),
        }
        self._bootstrap = client_config["bootstrap.servers"]
        self._create = create
        self._counts: dict[str, int] = {}
        self._created: set[str] = set()
        """The topics whose leaders the client has."""
        self._error: SinkError | None = None
        self.messages = 0
        """The number of messages sent."""
        auto = {"allow.auto.create.topics": "false"} if create is None else {}
        self._words, self._admin_words = ClientErrors(), ClientErrors()
        self._config = {**client_config, **OWN, **limits, **auto, "error_cb": self._words.hear}
        try:
            self._producer = Producer(self._config, logger=LOGGER)
            self._admin = AdminClient({**client_config, "error_cb": self._admin_words.hear}, logger=LOGGER)
        except (KafkaException, ValueError) as refused:
            text = f"{refused}{file_named(str(refused), client_config)}"
            raise ConfigError(f"kafka client of {self._bootstrap}: {text}") from refused

    def partitions(self, topic: str) -> int:
        """Return the partition count of a topic. Raises ConfigError for a missing one that may not be created."""
        count = self._counts.get(topic)
        if count is None:
            count = self.existing([topic]).get(topic)
            if count is None:
                self._create_topic(topic)
                count = self.existing([topic]).get(topic, 0)
            self._counts[topic] = count
        return count

    def existing(self, topics: Collection[str]) -> dict[str, int]:
        """Return which of `topics` exist now, with their partition counts; none is created."""
        futures = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=WAIT_S)
        counts = {}
        for topic, future in futures.items():
            try:
                counts[topic] = len(self._answer(future).partitions)
            except KafkaException as failed:
                if failed.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._unanswered(f"topic {topic}", failed) from failed
        return counts

    def filled(self, topics: Collection[str]) -> set[str]:
        """Return which of `topics` hold messages; none is created."""
        counts = self.existing(topics)
        partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
        if not partitions:
            return set()
        marks: dict[tuple[str, int], set[int]] = {}
        try:
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
                futures = self._admin.list_offsets(dict.fromkeys(partitions, spec), request_timeout=WAIT_S)
                for part, future in futures.items():
                    marks.setdefault((part.topic, part.partition), set()).add(self._answer(future).offset)
        except KafkaException as failed:
            raise self._unanswered("the offsets of topics", failed) from failed
        return {topic for (topic, _), offsets in marks.items() if len(offsets) > 1}

    def max_bytes(self, topic: str) -> int | None:
        """Return the largest message that a topic accepts (max.message.bytes); None if the broker does not report
        it."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            entries = self._answer(self._admin.describe_configs([resource], request_timeout=WAIT_S)[resource])
        except KafkaException as failed:
            if failed.args[0].code() in REFUSED:
                return None
            raise self._unanswered(f"configuration of topic {topic}", failed) from failed
        entry = entries.get("max.message.bytes")
        return int(entry.value) if entry is not None and entry.value else None

    def send(self, topic: str, partition: int, key: bytes | None, value: bytes) -> None:
        """Put a message into the queue; waits while that is full. Raises SinkError for any message before it."""
        self._check()
        self._load_leaders(topic)
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                self._producer.produce(topic, value, key, partition, on_delivery=self._delivered)
                break
            except BufferError:
                if time.monotonic() > deadline:
                    raise self._stuck(f"accepted no messages for {WAIT_S:.0f} s") from None
                self._producer.poll(FULL_S)
            except KafkaException as failed:
                raise self._wrapped(topic, partition, failed.args[0]) from failed
        self.messages += 1
        self._producer.poll(0)

    def send_all(self, topic: str, partition: int, messages: Iterable[tuple[bytes | None, bytes]]) -> int:
        """Send messages of one partition; return how many bytes their keys and values have."""
        self._check()
        self._load_leaders(topic)
        produce, delivered = self._producer.produce, self._delivered
        count = size_bytes = 0
        for key, value in messages:
            try:
                produce(topic, value, key, partition, delivered)
                count += 1
            except (BufferError, KafkaException):
                self.send(topic, partition, key, value)
            size_bytes += len(value) + len(key or b"")
        self.messages += count
        self._producer.poll(0)
        return size_bytes

    def flush(self) -> None:
        left = self._producer.flush(WAIT_S)
        self._check()
        if left:
            raise self._stuck(f"has not acknowledged {left} messages within {WAIT_S:.0f} s")
        self._words.forget()

    def abandon(self) -> None:
        self._producer.purge()
        self._producer.poll(0)

    def forget(self, topics: Collection[str]) -> None:
        """Stop requesting these topics: a client keeps requesting metadata of known topics, and brokers with auto
        creation would create them anew. Returns when all sent messages are acknowledged."""
        if self._created.isdisjoint(topics):
            return
        self.flush()
        self._producer = Producer(self._config, logger=LOGGER)
        self._created.clear()
        for topic in topics:
            self._counts.pop(topic, None)

    def _load_leaders(self, topic: str) -> None:
        """Ask for the leaders of a topic; the client itself would ask half a second or a second later."""
        if topic in self._created:
            return
        try:
            self._producer.list_topics(topic, WAIT_S)
        except KafkaException as failed:
            self._producer.poll(0)
            raise self._wrapped(topic, 0, failed.args[0]) from failed
        self._created.add(topic)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and self._error is None:
            self._error = self._wrapped(message.topic(), message.partition(), error)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _wrapped(self, topic: str, partition: int, error: Any) -> SinkError:
        where = f"broker {self._bootstrap}: topic {topic} partition {partition}: {error.str()}"
        if error.code() in REFUSED:
            return SinkRefused(where).at(topic=topic, partition=partition)
        failure = _kind(self._words)(where + (self._words.aside() if error.code() in CAUSELESS else ""))
        return failure.at(topic=topic, partition=partition)

    def _answer(self, future: Any) -> Any:
        """The answer of the admin client. Raises KafkaException, or LoginRefused before the request's own end."""
        self._admin.poll(0)
        answer = awaited(
            future,
            lambda: self._admin.poll(0),
            self._admin_words,
            lambda text: LoginRefused(f"broker {self._bootstrap} rejects the client: {text}"),
            lambda: SinkError(self._admin_words.unreachable(self._bootstrap)),
        )
        self._admin_words.forget()
        return answer

    def _unanswered(self, what: str, failed: KafkaException) -> SinkError:
        error, words = failed.args[0], self._admin_words
        if error.code() not in CAUSELESS:
            return SinkError(f"broker {self._bootstrap}: {what}: {error.str()}")
        return _kind(words)(f"broker {self._bootstrap}: {what}: {error.str()}{words.aside()}")

    def _stuck(self, what: str) -> SinkError:
        return _kind(self._words)(f"broker {self._bootstrap} {what}{self._words.aside()}")

    def _create_topic(self, topic: str) -> None:
        if self._create is None:
            raise ConfigError(
                f"topic {topic} does not exist at broker {self._bootstrap}: create it, or set auto-create-topic=true"
            )
        try:
            new = NewTopic(topic, self._create.partitions, self._create.replicas)
            self._answer(self._admin.create_topics([new], operation_timeout=WAIT_S)[topic])
        except KafkaException as failed:
            if failed.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._unanswered(f"topic {topic} cannot be created", failed) from failed
        deadline = time.monotonic() + WAIT_S
        while not self.existing([topic]) and time.monotonic() < deadline:
            time.sleep(0.05)


def _kind(words: ClientErrors) -> type[SinkError]:
    return LoginRefused if words.refusal else SinkError
