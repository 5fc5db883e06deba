"""A heavy topic in a real broker, and a feed of it whose memory is watched.

    Topic ──send──► broker ──► tidegate run (process group) ──► lake ──► Tally == what was sent
                                     └─ Sampler

Tables are compared by sums, which a missing, doubled or changed row would move.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer

from tests.e2e.rig import EXTENSION, PROTOCOLS, Running, feed, running
from tests.memory.messages import SCHEMA, Row, Writer, begin, ts_at
from tests.memory.sampler import Sampler
from tidegate.lakes.lake import Lake
from tidegate_upstream.broker import MESSAGE_MAX_BYTES
from tidegate_upstream.demo.recorded import Frame, create_topic

LOGGER = logging.getLogger(__name__)
PARTITIONS = 3
LAST = ts_at(1_000_000)
"""Resolved when everything has been sent."""


@dataclass(frozen=True)
class Topic:
    """A topic of PARTITIONS partitions, written by one producer."""

    bootstrap: str
    name: str
    writer: Writer
    producer: Producer

    @classmethod
    def begun(cls, bootstrap: str, name: str, kind: str, tables: Sequence[str]) -> "Topic":
        """A new topic in which the tables have been made."""
        create_topic(bootstrap, name, PARTITIONS)
        room = {"message.max.bytes": MESSAGE_MAX_BYTES, "queue.buffering.max.kbytes": 256 << 10, "linger.ms": 20}
        topic = cls(bootstrap, name, Writer(kind), Producer({"bootstrap.servers": bootstrap, "log_level": 2, **room}))
        for partition in range(PARTITIONS):
            topic.send(partition, begin(topic.writer, tables))
        return topic

    def send(self, partition: int, frames: Iterable[Frame]) -> None:
        """Append messages to a partition; returns when the broker has them."""
        for key, value in frames:
            while True:
                try:
                    self.producer.produce(self.name, value, key or None, partition)
                    break
                except BufferError:
                    self.producer.poll(0.1)
        assert self.producer.flush(120) == 0

    def resolve(self, *partitions: int, ts: int = LAST) -> None:
        """Send a watermark to some partitions."""
        for partition in partitions:
            self.send(partition, [self.writer.resolved(ts)])

    def words(self, lake: Path, *options: str, dead_letter: str = "halt") -> list[str]:
        """The command line that follows the topic until LAST."""
        protocol = PROTOCOLS[self.writer.kind] + EXTENSION[self.writer.kind]
        uri = f"kafka://{self.bootstrap}/{self.name}?protocol={protocol}&dead-letter={dead_letter}"
        return feed(uri, lake, "--until", str(LAST), *options, moment=None)


@contextmanager
def watched(words: Sequence[str], home: Path) -> Iterator[tuple[Running, Sampler]]:
    """A feed in a process group of its own, and who watches its memory."""
    with running(words, home) as feed_, Sampler(feed_.process.pid) as sampler:
        yield feed_, sampler
    LOGGER.info("%s %s", home.parent.name, sampler.peaks)


@dataclass(frozen=True)
class Tally:
    """Enough of a table to tell whether a row is missing, doubled or wrong."""

    rows: int = 0
    ids: int = 0
    amounts: int = 0
    chars: int = 0

    def plus(self, row: Row) -> "Tally":
        """With one row more."""
        return replace(
            self,
            rows=self.rows + 1,
            ids=self.ids + row.id,
            amounts=self.amounts + row.amount,
            chars=self.chars + len(row.note),
        )


def tally(rows: Iterable[Row]) -> Tally:
    """Of all rows."""
    count = ids = amounts = chars = 0
    for count, row in enumerate(rows, 1):  # noqa: B007  the last one counts
        ids, amounts, chars = ids + row.id, amounts + row.amount, chars + len(row.note)
    return Tally(count, ids, amounts, chars)


def stored(lake: Path, table: str) -> Tally:
    """Of a table of the lake; fails if an id stands there twice."""
    rows = Lake(str(lake)).arrow(f"{SCHEMA}.{table}")
    assert pc.count_distinct(rows["id"]).as_py() == rows.num_rows
    note = rows["note"].cast(pa.large_string())
    sums = [pc.sum(column).as_py() or 0 for column in (rows["id"], rows["amount"], pc.utf8_length(note))]
    return Tally(rows.num_rows, *sums)
