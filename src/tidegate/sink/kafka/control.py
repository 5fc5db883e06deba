"""DDLs and resolved timestamps into topics, between the rows of stretches.

    rows <= T, acknowledged  ─►  DDL of T                          ─►  resolved T
                                 open-protocol: every partition        every partition of every active topic:
                                 canal-json: partition 0               those of replicated tables, and the default one
                                 of its topic: by the name that the    (the others that were written to: KnownTopics)
                                 table had before, if it had one

Each is flushed before the next goes out, so a partition holds: rows, DDL, resolved, later rows.

Source: TiCDC's event router; recordings of the dispatchers.
"""

from collections.abc import Callable, Iterable, Sequence

from tidegate.codec.batch import BatchEncoder, Message
from tidegate.feed.route import Router
from tidegate.model.event import Ddl, Resolved
from tidegate.model.table import TableName
from tidegate.sink.kafka.producer import Producer

__all__ = ["ControlWriter"]


class ControlWriter:
    """Writes what is no row; `partitions` counts those of a topic, and makes it if need be."""

    def __init__(
        self, router: Router, encoder: BatchEncoder, producer: Producer, partitions: Callable[[str], int]
    ) -> None:
        self._router, self._encoder, self._producer, self._partitions = router, encoder, producer, partitions

    def ddl(self, ddl: Ddl, previous: TableName | None = None) -> None:
        """Send a DDL; returns when it is acknowledged."""
        messages = self._encoder.append(ddl)
        partitions = self._partitions(self._router.ddl_topic(ddl.schema, ddl.table, previous))
        route = self._router.ddl(ddl.schema, ddl.table, partitions, previous)
        for partition in route.partitions:
            self._send(route.topic, partition, messages)
        self._producer.flush()

    def resolved(self, ts: int, topics: Iterable[str]) -> bool:
        """Tell every partition of `topics` that nothing at or below `ts` is still to come.

        False for canal-json without the TiDB extension, which has no words for it."""
        messages = self._encoder.append(Resolved(ts))
        for topic in topics:
            for partition in range(self._partitions(topic)):
                self._send(topic, partition, messages)
        self._producer.flush()
        return bool(messages)

    def _send(self, topic: str, partition: int, messages: Sequence[Message]) -> None:
        for message in messages:
            self._producer.send(topic, partition, message.key, message.value)
