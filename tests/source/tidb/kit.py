"""Recorded key-value streams as segments, a broker in memory, and a feed that runs in this process."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.kv.kv_recordings import lines, raw
from tidegate.codec import decode, encode_options, from_config
from tidegate.config.status import StatusFile
from tidegate.engine.checkpoints import DirectoryCheckpoints
from tidegate.engine.dispatch import SplitPolicy, dispatch_rules
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import TableFilter
from tidegate.engine.loop import Engine, Feed, Meter
from tidegate.engine.ports import LocalTasks
from tidegate.engine.progress import Progress
from tidegate.engine.retry_policy import RetryPolicy
from tidegate.engine.stop_signals import NoPauseEvent
from tidegate.model.errors import SinkError
from tidegate.model.event import Event
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.sink.kafka import KafkaSink
from tidegate.sink.kafka_target import TopicTarget
from tidegate.source.tidb_changes import MountOptions
from tidegate.source.tidb_land import LogSource
from tidegate.source.tidb_segment import SegmentLog, encode_segment, in_order

KEYS = frozenset({"record", "index", "meta", "ddl_job", "ddl_history"})
SETTINGS = {
    "open-protocol": {"uri.protocol": "open-protocol"},
    "canal-json": {"uri.protocol": "canal-json", "uri.enable-tidb-extension": "true"},
}
Messages = dict[tuple[str, int], list[tuple[bytes | None, bytes]]]


def changes(stream: str) -> list[KvChange]:
    """The committed keys of a recorded stream."""
    found = []
    for line in lines(stream):
        if line["kind"] in KEYS:
            op = KvOp.DELETE if line["op"] == "delete" else KvOp.PUT
            old = raw(line, "old_value_b64") if line.get("old_value_b64") else None
            value = raw(line, "value_b64") if line["value_b64"] is not None else None
            found.append(
                KvChange(LogType.COMMITTED, raw(line, "key_b64"), line["start_ts"], line["commit_ts"], op, value, old)
            )
    return sorted(found, key=in_order)


def write_log(directory: Path, rows: Sequence[KvChange], cuts: Iterable[int] = ()) -> Path:
    """Segments of `rows` from 0 on, divided at some timestamps and ending behind the last row."""
    directory.mkdir(parents=True, exist_ok=True)
    edges = sorted({0, *cuts, rows[-1].commit_ts + 1})
    for low, high in pairwise(edges):
        inside = [row for row in rows if low < row.commit_ts <= high]
        (directory / f"{low:020d}-{high:020d}.seg").write_bytes(encode_segment(low, high, inside))
    return directory


def recorded_log(directory: Path, stream: str, pieces: int = 5) -> Path:
    """A recorded stream in some segments of about the same size."""
    rows = changes(stream)
    return write_log(directory, rows, (rows[at * len(rows) // pieces].commit_ts for at in range(1, pieces)))


class Broker:
    """Topics in memory. `refuse` is called before each message and may raise."""

    def __init__(self, partitions: int = 3) -> None:
        self.partitions = partitions
        self.messages: Messages = defaultdict(list)
        self.refuse: Callable[[str, int], None] = lambda _topic, _partition: None
        self.flushes = 0
        self.max_bytes: int | None = None
        self.deleted: set[str] = set()
        """Topics that somebody has taken away; who asks for their partitions makes them anew."""

    def events(self, protocol: str) -> dict[tuple[str, int], list[Event]]:
        """What the partitions hold, decoded."""
        options = from_config({"protocol": protocol})
        return {
            place: [event for key, value in held for event in decode(key, value, options)]
            for place, held in sorted(self.messages.items())
        }


class Queue:
    """The half of a producer that only waits for a flush."""

    def __init__(self) -> None:
        self.queue: list[tuple[str, int, bytes | None, bytes]] = []

    def partitions(self, topic: str) -> int:
        """How many a topic has."""
        raise NotImplementedError(topic)

    def existing(self, topics: Collection[str]) -> dict[str, int]:
        """Every topic is there."""
        return {topic: self.partitions(topic) for topic in topics}

    def forget(self, topics: Collection[str]) -> None:
        """No broker is asked anything."""

    def send(self, topic: str, partition: int, key: bytes | None, value: bytes) -> None:
        """Waits for a flush."""
        self.queue.append((topic, partition, key, value))

    def send_all(self, topic: str, partition: int, messages: Iterable[tuple[bytes | None, bytes]]) -> int:
        """The same for some messages; their bytes."""
        found = [(topic, partition, key, value) for key, value in messages]
        self.queue += found
        return sum(len(key or b"") + len(value) for _, _, key, value in found)


class Writer(Queue):
    """A producer of a Broker: what is not flushed may be lost."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.broker = broker

    def partitions(self, topic: str) -> int:
        """Every topic is there, or is made."""
        self.broker.deleted.discard(topic)
        return self.broker.partitions

    def existing(self, topics: Collection[str]) -> dict[str, int]:
        """Those that nobody has deleted."""
        return {topic: self.broker.partitions for topic in topics if topic not in self.broker.deleted}

    def filled(self, topics: Collection[str]) -> set[str]:
        """Those that have messages."""
        return {topic for topic, _ in self.broker.messages if topic in topics}

    def max_bytes(self, _topic: str) -> int | None:
        """As the broker says."""
        return self.broker.max_bytes

    def flush(self) -> None:
        """Into the topic, up to the first message that is refused."""
        queue, self.queue = self.queue, []
        for topic, partition, key, value in queue:
            self.broker.refuse(topic, partition)
            self.broker.messages[topic, partition].append((key, value))
        self.broker.flushes += 1

    def abandon(self) -> None:
        """Forgotten."""
        self.queue.clear()


class MemoryTarget(TopicTarget, frozen=True, kw_only=True):
    """A target whose broker is in this process; `policy` stands for the one that its options make."""

    broker: Broker | None = None
    policy: SplitPolicy | None = None

    @property
    def split(self) -> SplitPolicy:
        """Which updates are split."""
        return self.policy or super().split

    def writer(self) -> Any:
        """A producer of the broker."""
        return Writer(self.broker or Broker())

    def producer(self) -> Any:
        """The same for a task."""
        return self.writer()

    def keeper(self) -> Any:
        """The same for topics without a table."""
        return self.writer()


def target(broker: Broker, protocol: str, dispatchers: Sequence[object] = (), **settings: str) -> MemoryTarget:
    """A target of topic `feed`; `max_batch_size="16"` becomes max-batch-size=16."""
    words = {f"uri.{name.replace('_', '-')}": value for name, value in settings.items()}
    options = encode_options({**SETTINGS[protocol], **words})
    rules = dispatch_rules(list(dispatchers))
    return MemoryTarget(bootstrap=("h",), topic="feed", options=options, rules=rules, broker=broker)


class Run:
    """A feed into topics that runs in this process, through an engine of its own each time."""

    def __init__(self, config: dict[str, Any], tasks: Any) -> None:
        self.given, self.tasks = config, tasks
        self.stop = NoPauseEvent()
        self.reports: list[Progress] = []
        self.show: Callable[[Progress], None] = lambda _: None
        """Is told every report as well."""
        self.engine = self._engine()

    def _engine(self) -> Engine:
        given = self.given
        rules, events, log = TableFilter.parse(given["rules"]), given["events"], given["open"](given["log"])
        topic, where = given["target"].topic, str(given["log"])
        self.checkpoints = DirectoryCheckpoints(given["state"], given["name"], source=where, target=topic)
        mount = MountOptions(force_replicate=given["force"]) if given["mount"] is None else given["mount"]
        source = LogSource(
            log,
            given["name"],
            rules=rules,
            mount=mount,
            events=events,
            start_ts=given["start_ts"],
            ticdc_texts=given["ticdc_texts"],
        )
        sink = KafkaSink(given["target"], self.checkpoints, rules=rules, force=mount.force_replicate)
        feed = Feed(
            given["name"],
            source,
            sink,
            accept=rules.matches,
            takes=rules.takes_ddl,
            drops=events.ddls(),
            patience=RetryPolicy(quick=3, stuck_s=None),
        )
        kept = StatusFile(str(given["state"]), given["name"], given["name"], source=where, sink=topic)

        def told(progress: Progress) -> None:
            kept.save(progress)
            self.reports.append(progress)
            self.show(progress)

        return Engine(feed, self.tasks, Meter(told), self.stop)

    @property
    def checkpoint(self) -> int:
        """Where the feed stands."""
        return self.engine.position.checkpoint.ts

    def run(self, *, idle_s: float | None = None) -> Progress:
        """Run to the target, a stop or a silence."""
        self.engine = self._engine()
        return self.engine.run(until=self.given["target_ts"], idle_s=idle_s)


def feed(
    log: Path, made: MemoryTarget, state: Path, *, rules: Sequence[str] = ("*.*",), tasks: int = 2, **given: Any
) -> Run:
    """A feed that is ready to run; `force` is force-replicate, `open` makes the log of its directory, `ticdc_texts`
    prints DDLs as the product does."""
    defaults = {
        "open": SegmentLog,
        "name": "feed",
        "force": True,
        "mount": None,
        "events": EventFilter(),
        "ticdc_texts": False,
        "start_ts": None,
        "target_ts": None,
    }
    return Run(
        {**defaults, "log": log, "target": made, "state": state, "rules": rules, **given},
        LocalTasks(tasks, pickles=False),
    )


def failing(times: Iterable[int]) -> Callable[[str, int], None]:
    """Refuses the messages of those numbers, counted from 0, as a broker does that is away."""
    numbers, left = iter(range(1 << 30)), set(times)

    def refuse(_topic: str, _partition: int) -> None:
        if next(numbers) in left:
            raise SinkError("the broker is away")

    return refuse
