"""Eight tables whose changes lie in a topic of eight partitions, and what a lake made of them must hold.

SQL ──► log ──LocalTasks──► topic, every table in every partition ──the feed under test──► lake
 └── SELECT ─────────┐       └── applied in order up to each snapshot's ts ──┐               │
                     └───────────────────────────────────────────────────────┴── complaints ◄┘
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from tests.engine import test_chain
from tests.engine.test_chain import Replica, Upstream, in_order
from tests.sources import topics_to_read
from tidegate.codec import decode, from_config
from tidegate.config.changefeed import Changefeed
from tidegate.config.load import load
from tidegate.engine.ports import LocalTasks
from tidegate.lakes.lake import Lake
from tidegate.model.event import Ddl, Event, RowChange
from tidegate.source.kafka_fetch import messages
from tidegate.testing.script import commit_time
from tidegate.testing.validators import unlike

TABLES = tuple("abcdefgh")
PARTITIONS = 8
PROTOCOL = "open-protocol"
EVERYWHERE = '[sink]\ndispatchers = [{matcher = ["test.*"], partition = "index-value"}]\n'


@dataclass
class Shop:
    """An upstream and its topic; `home` is a directory of its own."""

    bootstrap: str
    topic: str
    home: Path

    def __post_init__(self) -> None:
        with patch.object(test_chain, "TABLES", TABLES):
            self.upstream = Upstream(1, self.home / "log")
        (self.home / "feed.toml").write_text(EVERYWHERE)

    @property
    def uri(self) -> str:
        """The topic as a source of small batches."""
        return f"kafka://{self.bootstrap}/{self.topic}?protocol={PROTOCOL}&max-messages-per-batch=100"

    def burst(self, transactions: int) -> int:
        """Let the upstream work, and all of it lie in the topic; return the ts that is resolved then."""
        with patch.object(test_chain, "TABLES", TABLES):
            for _ in range(transactions):
                self.upstream.work()
        self.upstream.writer.write(empty=True)
        target = f"kafka://{self.bootstrap}/{self.topic}?protocol={PROTOCOL}&partition-num={PARTITIONS}"
        config = load(
            str(self.home / "feed.toml"),
            source_uri=f"tidb://{self.home / 'log'}",
            sink_uri=target,
            state_dir=self.home / "state",
        )
        return Changefeed(config).run(tasks=LocalTasks(), idle_s=0).checkpoint_ts

    def complaints(self, lake: Lake) -> Iterator[str]:
        """What any snapshot of a lake has otherwise than the topic told up to its ts, and the last one than SELECT."""
        partitions = self._events()
        if quiet := [number for number, events in partitions.items() if not any(map(is_row, events))]:
            yield f"partitions {quiet} have no rows"
        events = in_order(partitions)  # type: ignore[arg-type]  # a partition is a place
        replica, found = Replica(), dict[str, list[dict[str, object]]]()
        for snapshot in lake.history():
            while events and commit_time(events[0]) <= snapshot.checkpoint_ts:  # type: ignore[arg-type]
                replica.apply(events.pop(0))
            then = lake.at(snapshot.checkpoint_ts)
            found = {name: rows for name, rows in found.items() if name not in snapshot.gone}
            found |= {name: then.arrow(name).to_pylist() for name in snapshot.changed}
            wanted = {f"test.{name}": list(rows.values()) for name, rows in replica.tables.items()}
            yield from (f"at {snapshot.checkpoint_ts}: {what}" for what in unlike(wanted, found))
        yield from (f"not there: {event}" for event in events)
        for name in TABLES:
            rows = {row["id"]: row for row in found.get(f"test.{name}", ())}
            if rows != self.upstream.rows(name):
                yield f"table {name} is not what SELECT shows"

    def _events(self) -> dict[int, list[Event]]:
        options = from_config({"protocol": PROTOCOL})
        found: dict[int, list[Event]] = {number: [] for number in range(PARTITIONS)}
        for key, value, place in messages(topics_to_read(self.bootstrap, (self.topic,), options)):
            found[int(place.split("/")[1])] += decode(key, value or b"", options)
        return found


def is_row(event: Event) -> bool:
    """True for a change of a row."""
    return isinstance(event, RowChange) and not isinstance(event, Ddl)
