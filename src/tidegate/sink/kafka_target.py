"""The target of a Kafka sink, as one value that travels into tasks.

    TopicTarget ─┬─ router(), split, selectors         where rows go, and which columns are sent
                 ├─ encoder(), columnar_encoder()      events and columns to messages
                 └─ writer(), keeper(), producer()     clients of the cluster

Printing it shows no login.  Encoders and clients are imported when they are made, so that a
configuration can be read without them.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from tidegate.codec.encoding import EncodeOptions, limited
from tidegate.engine.dispatch import DispatchRule, Router, SplitPolicy
from tidegate.engine.filter import ColumnSelectors
from tidegate.engine.kafka_brokers import SECTION, KafkaClient
from tidegate.model.option import Option
from tidegate.model.table import TableInfo

if TYPE_CHECKING:
    from tidegate.codec import BatchEncoder
    from tidegate.codec.columnar import ColumnarEncoder
    from tidegate.sink.kafka_topics import Keeper, Producer
    from tidegate.sink.kafka_writer import NewTopics, TopicWriter


class TopicTarget(KafkaClient, frozen=True, kw_only=True):
    """Topics to write, and how. `partition_num` bounds the partitions that are used, and is that of new topics."""

    topic: str
    options: EncodeOptions
    partition_num: Annotated[
        int | None,
        Option("partition-num", "partitions of a new topic, and the number used", default="3, all", low=1, key=SECTION),
    ] = None
    replication_factor: Annotated[
        int, Option("replication-factor", "copies of a new topic", low=1, high=1 << 15, key=SECTION)
    ] = 1
    auto_create_topic: Annotated[bool, Option("auto-create-topic", "create missing topics", key=SECTION)] = True
    batch_compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"],
        Option(
            "compression",
            "compression of the producer's batches: `none`, `gzip`, `snappy`, `lz4` or `zstd`",
            key=SECTION,
        ),
    ] = "none"
    raw_change_event: bool = False
    """UPDATEs of keys stay one event (output-raw-change-event)."""
    rules: tuple[DispatchRule, ...] = ()
    selectors: ColumnSelectors = ColumnSelectors()
    case_sensitive: bool = False

    def __repr__(self) -> str:
        return f"TopicTarget({self.topic!r} at {','.join(self.bootstrap)})"

    @property
    def identity(self) -> str:
        return self.topic

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset(f"{host}/{self.topic}" for host in self.bootstrap)

    def needs_types(self) -> str:
        """Return the parameter that needs the parameters of column types; empty where none does."""
        needs = self.options.content_compatible and self.options.protocol == "canal-json"
        return "content-compatible" if needs else ""

    def warnings(self) -> tuple[str, ...]:
        """Return warnings about an address that works, but perhaps not as intended."""
        if self.options.protocol == "canal-json" and not self.options.enable_tidb_extension:
            note = "canal-json without enable-tidb-extension has no watermarks and no commit_ts"
            return (note, *super().warnings())
        return super().warnings()

    def producer_config(self) -> dict[str, str]:
        """Return the connection of a producer as librdkafka's configuration keys."""
        return {**self.client_config(), "compression.type": self.batch_compression}

    @property
    def split(self) -> SplitPolicy:
        """The UPDATEs to split into a DELETE and an INSERT."""
        return SplitPolicy(unique_keys=not self.raw_change_event, newarch=self.options.newarch)

    @property
    def new_topics(self) -> "NewTopics | None":
        """The settings of missing topics; None if they may not be created."""
        from tidegate.sink.kafka_writer import NewTopics

        partitions = self.partition_num or NewTopics().partitions
        return NewTopics(partitions, self.replication_factor) if self.auto_create_topic else None

    def router(self) -> Router:
        return Router.of(self.rules, self.topic, self.options, case_sensitive=self.case_sensitive)

    def check(self, tables: Iterable[TableInfo]) -> None:
        """Raise DispatcherFailed and ColumnSelectorFailed for rules that do not fit a table."""
        from tidegate.sink.kafka_dispatch import Dispatcher

        dispatcher = Dispatcher(self.router(), self.split, {}, frozenset(), self.selectors)
        for table in tables:
            dispatcher.check(table)

    def encoder(self) -> "BatchEncoder":
        from tidegate.sink.kafka_dispatch import encoder

        return encoder(self.options)

    def columnar_encoder(self) -> "ColumnarEncoder":
        from tidegate.sink.kafka_dispatch import columnar_encoder

        return columnar_encoder(self.options)

    def writer(self) -> "TopicWriter":
        """Return a new producer, which makes topics that are missing if it may."""
        from tidegate.sink.kafka_writer import TopicWriter

        return TopicWriter(self.producer_config(), self.options.max_message_bytes, self.new_topics)

    def keeper(self) -> "Keeper":
        """Return a new producer for topics that no longer have a table; it creates none."""
        from tidegate.sink.kafka_writer import TopicWriter

        return TopicWriter(self.producer_config(), self.options.max_message_bytes, None)

    def producer(self) -> "Producer":
        return self.writer()

    def fitted(self, writer: "TopicWriter") -> "TopicTarget":
        """Return this target with messages no larger than the default topic accepts; the topic is created if
        necessary."""
        writer.partitions(self.topic)
        most = writer.max_bytes(self.topic)
        return self if most is None else msgspec.structs.replace(self, options=limited(self.options, most))
