"""A Kafka sink as a value: what is written, to whom, and who writes it.

    TopicTarget ─┬─ router(), split, selectors         where rows go, and what is sent of them
                 ├─ encoder(), columnar_encoder()      events and columns to messages
                 └─ writer(), keeper(), producer()     clients of the cluster

A target travels into tasks by pickle; it may hold passwords, and does not print them.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidegate.codec import BatchEncoder, EncodeOptions
from tidegate.codec.columnar import ColumnarEncoder
from tidegate.codec.encoding import limited
from tidegate.engine.dispatch import DispatchRule, Router, SplitPolicy
from tidegate.engine.filter import ColumnSelectors
from tidegate.model.table import TableInfo
from tidegate.sink.kafka.claim_files import ClaimFiles, random_names
from tidegate.sink.kafka.dispatch import Dispatcher
from tidegate.sink.kafka.known_topics import Keeper
from tidegate.sink.kafka.producer import Producer
from tidegate.sink.kafka.writer import NewTopics, TopicWriter


def now_ms() -> int:
    """Return the time of now in ms, which canal-json messages carry."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class TopicTarget:
    """What is written, and to whom; `partition_num` bounds the partitions that are used."""

    topic: str
    options: EncodeOptions
    client: Mapping[str, str] = field(repr=False)
    rules: tuple[DispatchRule, ...] = ()
    case_sensitive: bool = False
    split: SplitPolicy = field(default_factory=SplitPolicy)
    new_topics: NewTopics | None = field(default_factory=NewTopics)
    partition_num: int | None = None
    selectors: ColumnSelectors = field(default_factory=ColumnSelectors)

    def router(self) -> Router:
        """Return the dispatchers."""
        return Router.of(self.rules, self.topic, self.options, case_sensitive=self.case_sensitive)

    def check(self, tables: Iterable[TableInfo]) -> None:
        """Raise DispatcherFailed and ColumnSelectorFailed for dispatchers and selectors that do not fit a table."""
        dispatcher = Dispatcher(self.router(), self.split, {}, frozenset(), self.selectors)
        for table in tables:
            dispatcher.check(table)

    def encoder(self) -> BatchEncoder:
        """Return a new encoder of single events, with the clock of now and files for claim checks."""
        return BatchEncoder(self.options, now_ms=now_ms, claims=self._claims())

    def columnar_encoder(self) -> ColumnarEncoder:
        """Return a new encoder of batches, with the clock of now and files for claim checks."""
        return ColumnarEncoder(self.options, now_ms=now_ms, claims=self._claims())

    def _claims(self) -> ClaimFiles:
        return ClaimFiles(self.options.claim_check_storage_uri, random_names())

    def writer(self) -> TopicWriter:
        """Return a new producer, which makes topics that are missing if it may."""
        return TopicWriter(self.client, self.options.max_message_bytes, self.new_topics)

    def keeper(self) -> Keeper:
        """Return a new producer for topics that have no table any more: it makes none."""
        return TopicWriter(self.client, self.options.max_message_bytes, None)

    def producer(self) -> Producer:
        """Return a new producer for a task."""
        return self.writer()

    def fitted(self, writer: TopicWriter) -> "TopicTarget":
        """Return this target with messages no larger than the default topic takes, which is made if need be."""
        writer.partitions(self.topic)
        most = writer.max_bytes(self.topic)
        return self if most is None else replace(self, options=limited(self.options, most))
