"""What a changefeed writes to topics, made of its configuration (wiring.py): a value that travels into tasks.

It may hold passwords, and does not print them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidegate.app.claim_files import ClaimFiles, random_names
from tidegate.app.framed import clock
from tidegate.codec import BatchEncoder, EncodeOptions
from tidegate.codec.columnar import ColumnarEncoder
from tidegate.codec.encoding import limited
from tidegate.feed.column_selector import ColumnSelectors
from tidegate.feed.dispatch_rule import DispatchRule
from tidegate.feed.route import Router
from tidegate.feed.split import SplitPolicy
from tidegate.schema.stored_snapshot import TableVersion
from tidegate.schema.stored_table import table_info
from tidegate.sink.kafka.dispatch import Dispatcher
from tidegate.sink.kafka.known_topics import Keeper
from tidegate.sink.kafka.partitions import Producer
from tidegate.sink.kafka.writer import NewTopics, TopicWriter

__all__ = ["TopicTarget"]


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
        """The dispatchers."""
        return Router.of(self.rules, self.topic, self.options, case_sensitive=self.case_sensitive)

    def check(self, tables: Iterable[TableVersion]) -> None:
        """Raises DispatcherFailed and ColumnSelectorFailed for dispatchers and selectors that do not fit a table."""
        dispatcher = Dispatcher(self.router(), self.split, {}, frozenset(), self.selectors)
        for table in tables:
            dispatcher.check(table_info(table.stored, table.schema, table.version, every_state=True))

    def encoder(self) -> BatchEncoder:
        """A new encoder, with the clock of now and files for claim checks."""
        return BatchEncoder(self.options, now_ms=clock(None), claims=self._claims())

    def columnar_encoder(self) -> ColumnarEncoder:
        """The same for rows as columns."""
        return ColumnarEncoder(self.options, now_ms=clock(None), claims=self._claims())

    def _claims(self) -> ClaimFiles:
        return ClaimFiles(self.options.claim_check_storage_uri, random_names())

    def writer(self) -> TopicWriter:
        """A new producer, which makes topics that are missing if it may."""
        return TopicWriter(self.client, self.options.max_message_bytes, self.new_topics)

    def keeper(self) -> Keeper:
        """A producer for topics that have no table any more: it makes none."""
        return TopicWriter(self.client, self.options.max_message_bytes, None)

    def fitted(self, writer: TopicWriter) -> "TopicTarget":
        """The same with no larger messages than the default topic takes, which is made if need be."""
        writer.partitions(self.topic)
        most = writer.max_bytes(self.topic)
        return self if most is None else replace(self, options=limited(self.options, most))

    def producer(self) -> Producer:
        """A new producer for a task."""
        return self.writer()
