"""The feed of a workload: the real loop and the real producer before a real broker, and everybody who may die.

    driver      ends at a place of objectstore/failpoint.py; the next run begins at the checkpoint
    executor    ends with its rows queued; its task is tried again, as Spark does
    straggler   a task that outlives its driver, and writes its rows when the next run is under way
    broker      takes some of what is flushed and is away; the feed waits and sends the stretch again

Of what a producer had in its queue when it died a seeded part arrives, so the same seed leaves the same topic.
"""

import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

from tests.failpoint import TOPIC_FAILPOINTS, armed
from tests.source.tidb.kit import Queue, Run, feed
from tests.workloads.setting import CLAIM, DEFAULT, OPTION, PACKING, RAW, Setting
from tidegate.config.entry import Document
from tidegate.config.kafka import parse_target
from tidegate.engine.dispatch import SplitPolicy, dispatch_rules
from tidegate.model.errors import SinkError
from tidegate.sink.kafka import GroupJob
from tidegate.sink.kafka_target import TopicTarget
from tidegate.sink.kafka_writer import TopicWriter

TASK_TRIES = 4
"""Spark's spark.task.maxFailures."""
QUICK_TRIES = 3
"""After so many errors in a row the feed of kit.py gives up."""
IN_TASKS = "topic/rows-queued"
LARGE = "sink.kafka-config.large-message-handle"
IN_FILE = {
    "dialect": "",
    "delete-only-output-handle-key-columns": "sink.delete-only-output-handle-key-columns",
    "output-old-value": "sink.open.output-old-value",
    **{name: f"{LARGE}.{name}" for name in (OPTION, PACKING, RAW)},
}
"""Options that no sink address has, and their places in a changefeed's file; empty where it has none either."""
BENCHES: dict[str, "Bench"] = {}
"""By the name under which targets find theirs, since a target travels as bytes."""


class DriverDied(BaseException):
    """Ends a run as SIGKILL would: nothing in the code is there to catch it."""


class ExecutorDied(BaseException):
    """Ends a task."""


class Disturbance(NamedTuple):
    """Something went wrong between two timestamps, the first exclusive: what lies there may be sent once more."""

    low: int
    high: int
    what: str


class BenchTarget(TopicTarget, frozen=True, kw_only=True):
    """A target whose producers and whose policy are those of a bench."""

    bench: str
    policy: SplitPolicy

    @property
    def split(self) -> SplitPolicy:
        """Which updates are split."""
        return self.policy

    def writer(self) -> Any:
        """The driver's."""
        return Wire(BENCHES[self.bench])

    def producer(self) -> Any:
        """A task's."""
        return Wire(BENCHES[self.bench])

    def keeper(self) -> Any:
        """The driver's for topics without a table."""
        return Wire(BENCHES[self.bench])


class Wire(Queue):
    """A producer before the real one: whoever dies has sent a part of its queue."""

    def __init__(self, bench: "Bench") -> None:
        super().__init__()
        self.bench = bench

    def partitions(self, topic: str) -> int:
        """As the broker has it; made if need be."""
        return self.bench.real.partitions(topic)

    def max_bytes(self, topic: str) -> int | None:
        """As the broker says."""
        return self.bench.real.max_bytes(topic)

    def flush(self) -> None:
        """All of it, or a part and SinkError."""
        away = self.queue and self.bench.is_away()
        self._push(self.bench.random.randint(0, len(self.queue)) if away else len(self.queue))
        self.queue.clear()
        if away:
            raise SinkError("the broker is away")

    def abandon(self) -> None:
        """A part of it had gone out before."""
        self._push(self.bench.random.randint(0, len(self.queue)))
        self.queue.clear()

    def _push(self, count: int) -> None:
        for message in self.queue[:count]:
            self.bench.real.send(*message)
        self.bench.real.flush()


class Bench:
    """One changefeed in all its lives. `name` is before every topic; `log` has the segments."""

    def __init__(self, setting: Setting, seed: int, name: str, bootstrap: str, home: Path) -> None:
        self.setting, self.name, self.home = setting, name, home
        self.claims = home / "claims"
        self.random = Random(f"bench {seed}")
        self.disturbed: list[Disturbance] = []
        self.stragglers: list[tuple[Callable[[Any], Any], bytes]] = []
        self.fired: Counter[str] = Counter()
        self.troubled = True
        self.start_ts: int | None = None
        self.one: Run | None = None
        self.target = self._target(bootstrap)
        self.real: TopicWriter = parse_target(self._uri(bootstrap)).writer()
        BENCHES[name] = self

    @property
    def slots(self) -> int:
        """How many tasks there are at a time: a bench runs the jobs of its feed."""
        return self.setting.tasks

    @property
    def checkpoint(self) -> int:
        """What the feed has saved, as far as it knows."""
        return self.one.checkpoint if self.one else 0

    def carry(self, *, calm: bool = False) -> None:
        """Run the feed until it has nothing to do, or dies."""
        self.troubled = not calm
        if self.one is None or self.random.random() < 0.2:
            self.one = self._feed()
        roll = 1.0 if calm else self.random.random()
        place = IN_TASKS if roll < 0.3 else self.random.choice(list(TOPIC_FAILPOINTS))
        deeds = {place: self._deed(place)} if roll < 0.6 else {}
        try:
            with armed(deeds):
                self.one.run(idle_s=0)
        except DriverDied:
            self._disturb(f"driver at {place}")
            self.one = None
        if self.stragglers and (calm or self.random.random() < 0.5):
            self._straggle()

    def is_away(self) -> bool:
        """Whether the broker does not answer this time; the feed's patience with one stretch is not worn out."""
        away = self.troubled and self.random.random() < 0.05 and self._outages() < QUICK_TRIES
        if away:
            self._disturb("broker")
        return away

    def _outages(self) -> int:
        at = self.checkpoint
        return sum(one.low == at for one in self.disturbed if one.what == "broker")

    def run(self, work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        """Run jobs as tasks, in any order; one whose executor dies is tried again."""
        answers: dict[int, Any] = {}
        packed = [pickle.dumps(job) for job in jobs]
        for at in self.random.sample(range(len(jobs)), len(jobs)):
            answers[at] = self._task(work, packed[at])
        return [answers[at] for at in range(len(jobs))]

    def _task(self, work: Callable[[Any], Any], packed: bytes) -> Any:
        for _ in range(TASK_TRIES):
            try:
                return work(pickle.loads(packed))
            except ExecutorDied:
                self._disturb("executor")
            except DriverDied:
                if self.random.random() < 0.5:
                    self.stragglers.append((work, packed))
                raise
        raise AssertionError("an executor that dies each time")

    def _straggle(self) -> None:
        work, packed = self.stragglers.pop()
        job: GroupJob = pickle.loads(packed)
        self.disturbed.append(Disturbance(job.after, job.upto, "straggler"))
        self.fired["straggler"] += 1
        self.troubled = False
        work(job)

    def _deed(self, place: str) -> Callable[[], None]:
        """Dies at the nth time."""
        left = self.random.choice([1, 1, 2, 3, 5])
        kind: type[BaseException] = ExecutorDied if place == IN_TASKS and self.random.random() < 0.4 else DriverDied

        def die() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise kind

        return die

    def _disturb(self, what: str) -> None:
        assert self.one is not None
        frontier = max(report.frontier_ts or 0 for report in self.one.reports)
        self.disturbed.append(Disturbance(self.one.checkpoint, frontier, what))
        self.fired[what] += 1

    def _feed(self) -> Run:
        log = self.home / "log"
        made = feed(
            log,
            self.target,  # type: ignore[arg-type]
            self.home / "state",
            rules=("gd.*",),
            force=self.setting.force,
            start_ts=self.start_ts,
        )
        made.tasks = self
        return made

    def _uri(self, bootstrap: str) -> str:
        words = {"protocol": self.setting.protocol, "partition-num": str(self.setting.partitions), **self.setting.words}
        query = "&".join(f"{name}={value}" for name, value in words.items() if name not in IN_FILE)
        return f"kafka://{bootstrap}/{self.name}-{DEFAULT}?{query}"

    def _target(self, bootstrap: str) -> BenchTarget:
        rules = [
            {**rule, "topic": f"{self.name}-{rule['topic']}" if rule["topic"] else ""} for rule in self.setting.rules
        ]
        settings: dict[str, object] = {IN_FILE[k]: word for k, word in self.setting.words.items() if k in IN_FILE}
        if self.setting.large == CLAIM:
            settings[f"{LARGE}.claim-check-storage-uri"] = self.claims.as_uri()
        settings.pop("", None)
        sink = parse_target(self._uri(bootstrap), Document(flat=settings))
        options = msgspec.structs.replace(sink.options, dialect=self.setting.words.get("dialect", "classic"))
        plain = msgspec.structs.replace(sink, options=options, rules=dispatch_rules(rules))
        given = {name: getattr(plain, name) for name in plain.__struct_fields__}
        return BenchTarget(**given, bench=self.name, policy=self.setting.split)
