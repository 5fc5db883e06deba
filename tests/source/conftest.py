"""A broker and a Spark session, once for all slow tests of this folder."""

import time
from collections.abc import Iterable
from uuid import uuid4

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tidegate.source.kafka_messages import TopicMessage
from tidegate.spark.session import session


class Topics:
    """Topics of a real broker, and what can happen to them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.producer = self.ordered_producer()

    def ordered_producer(self) -> Producer:
        """One whose retries keep the order, also while a new topic has no leader yet."""
        return Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )

    def new(self, partitions: int = 1) -> str:
        """Make a topic with a name of its own."""
        name = f"t-{uuid4().hex[:8]}"
        self.admin.create_topics([NewTopic(name, partitions)])[name].result()
        return name

    def again(self, topic: str) -> None:
        """Delete a topic and make it again."""
        self.admin.delete_topics([topic])[topic].result()
        while topic in self.admin.list_topics().topics:
            time.sleep(0.05)
        self.admin.create_topics([NewTopic(topic, 1)])[topic].result()
        self.producer = self.ordered_producer()  # the old one counts on from the topic before

    def produce(self, topic: str, partition: int, messages: Iterable[TopicMessage], *, from_ms: int = 0) -> None:
        """Write messages to one partition, in order; of now, or each a millisecond behind the one before it."""
        for number, message in enumerate(messages):
            at_ms = from_ms and from_ms + number
            self.producer.produce(topic, message.value, message.key, partition=partition, timestamp=at_ms)
            self.producer.poll(0)
        assert self.producer.flush(30) == 0

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
        self.producer = self.ordered_producer()  # the old one learns of them minutes later

    def transact(self, topic: str, messages: Iterable[TopicMessage], *, commit: bool) -> None:
        """Write messages to partition 0 in one transaction, and commit or abort it."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": uuid4().hex})
        producer.init_transactions(30)
        producer.begin_transaction()
        for message in messages:
            producer.produce(topic, message.value, message.key, partition=0)
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)

    def forget(self, topic: str, below: int) -> None:
        """Remove the messages of partition 0 below an offset, as retention does."""
        for future in self.admin.delete_records([TopicPartition(topic, 0, below)]).values():
            future.result()


@pytest.fixture(scope="session")
def topics(bootstrap: str) -> Topics:
    """A real broker."""
    return Topics(bootstrap)


@pytest.fixture(scope="session")
def spark():
    """A session with two cores."""
    return session(cores=2)
