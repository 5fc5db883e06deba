"""One seed, one changefeed from SQL to a lake: upstream, log, feed, real topics, validators, lake.

Story ── segments ──► Bench: the engine, real producer ──► broker ──► what arrived ──► validators ──► complaints
  └─ truth of every commit, and of every table at many moments ───────────────────────────┴──► lake ──► differences
"""

import itertools
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from confluent_kafka.admin import AdminClient

from tests.codec.there_and_back import there_and_back
from tests.sources import topics_to_read
from tests.workloads.faces import Facts
from tests.workloads.feed import BENCHES, Bench
from tests.workloads.lake import Landing
from tests.workloads.reader import Consumer, Frames, read_options
from tests.workloads.setting import CLAIM, DEFAULT, HANDLE_ONLY, PACKING, RAW, Setting, draw_setting
from tests.workloads.story import STEPS, Story
from tests.workloads.truth import handle_of
from tests.workloads.validators import complaints
from tidegate.codec import DecodeOptions, from_config
from tidegate.codec.stream import pack_frame
from tidegate.model.event import Event
from tidegate.source.kafka_fetch import messages
from tidegate.source.kafka_messages import _reader
from tidegate.testing.validators import Partition
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.listener import Upstream

NUMBERS = itertools.count()
SOME_MOMENTS = 12
"""Moments at which a lake is looked at, of all that were kept."""


@dataclass
class Workload:
    """A seed's whole way. `problems` are what is wrong in the end."""

    seed: int
    bootstrap: str
    home: Path
    steps: int = STEPS
    problems: list[str] = field(default_factory=list)
    fired: Counter[str] = field(default_factory=Counter)
    arrived: Mapping[Partition, list[Event]] = field(default_factory=dict)

    def run(self) -> "Workload":
        """Live, arrive, and be looked at."""
        setting = draw_setting(self.seed)
        name = f"w{os.getpid()}-{next(NUMBERS)}"
        bench = self.bench = Bench(setting, self.seed, name, self.bootstrap, self.home)
        self.story = Story(self.seed, self.home / "log", setting, self._carry)
        try:
            self.story.run(self.steps)
            bench.carry(calm=True)
            self._look(setting)
        finally:
            del BENCHES[name]
            self._forget(name)
        self.fired += bench.fired + self.story.seen + self.story.fired
        self.fired["owner"] = sum(count for what, count in self.fired.items() if what.startswith("crash "))
        return self

    def _carry(self) -> None:
        """The feed's turn; a late one begins in the middle of what is written by then."""
        truth, bench = self.story.truth, self.bench
        if bench.setting.late_start and bench.start_ts is None:
            if len(truth.rows) < 20:  # not much of a middle
                return
            bench.start_ts = self.story.feed_random.choice(truth.rows).ts
        bench.carry()

    def _look(self, setting: Setting) -> None:
        frames = self._held(setting)
        truth, bench = self.story.truth, self.bench
        moments = truth.moments
        facts = Facts(
            setting=setting,
            rows=[row for row in truth.rows if setting.force or handle_of(row.stored)],
            ddls=truth.ddls,
            checkpoint=bench.checkpoint,
            start=bench.start_ts or 0,
            disturbed=bench.disturbed,
            living=frozenset(truth.tables),
            partitions=self._partitions(frames),
        )
        consumer = Consumer(facts, bench.claims)
        arrived = self.arrived = consumer.read(frames)
        self.problems += consumer.problems
        self.fired["cut"] += consumer.cut
        self.fired["keyless"] += sum(not handle_of(row.stored) for row in facts.rows)
        if bench.checkpoint != self.story.writer.low:
            self.problems.append(f"the feed ends at {bench.checkpoint}, the log at {self.story.writer.low}")
        self.problems += complaints(facts, arrived)
        if setting.dated:
            self.problems += self._transcoded(frames)
        self.fired["rows"] += len(facts.rows)
        self.fired["ddls"] += len(facts.ddls)
        self.fired["arrived"] += sum(map(len, arrived.values()))
        if not self.problems and setting.dated and not setting.late_start:
            some = self.story.feed_random.sample(moments[:-1], min(len(moments) - 1, SOME_MOMENTS - 1))
            chosen = sorted([*some, moments[-1]], key=lambda moment: moment.ts)
            self.fired["moments"] += len(chosen)
            with self._reading(setting) as options:
                landing = Landing(self.home / "lake", setting, options, self.seed)
                self.problems += landing.differences(frames, truth, chosen)

    def _transcoded(self, frames: Frames) -> list[str]:
        """What is wrong with the topics as those of the other protocol, and back."""
        setting = self.bench.setting
        raw = b"".join(pack_frame(key, value) for held in frames.values() for key, value in held)
        words = [f"{word}={setting.words[word]}" for word in (PACKING, RAW) if word in setting.words]
        if setting.large != CLAIM:
            return there_and_back(raw, read_options(setting), words)
        fetched = f"claim-check-storage-uri={self.bench.claims.as_uri()}"
        whole = (event for events in self.arrived.values() for event in events)
        return there_and_back(raw, read_options(setting), [*words, fetched], whole)

    @contextmanager
    def _reading(self, setting: Setting) -> Iterator[DecodeOptions]:
        """How a lake reads the topics: claim checks are where the changefeed put them, the rest of a row whose handle
        came alone is asked of the upstream, over its port."""
        plain = read_options(setting)
        if setting.large != HANDLE_ONLY:
            claims = self.bench.claims.as_uri() if setting.large == CLAIM else ""
            yield msgspec.structs.replace(plain, claim_check_storage_uri=claims)
            return
        with Upstream(Cluster(self.story.cluster.engine, self.story.clock)) as upstream:
            (port,) = upstream.ports.values()
            try:
                yield msgspec.structs.replace(plain, upstream_uri=f"mysql://root@127.0.0.1:{port}/?enable-tls=false")
            finally:
                _reader.cache_clear()

    def _held(self, setting: Setting) -> Frames:
        """The messages of every partition; topics without the name that they have in common."""
        topics, prefix = self._topics(self.bench.name), f"{self.bench.name}-"
        found: dict[Partition, list[tuple[bytes | None, bytes]]] = {
            (topic.removeprefix(prefix), number): [] for topic, count in topics.items() for number in range(count)
        }
        source = topics_to_read(self.bootstrap, tuple(topics), from_config({"protocol": setting.protocol}))
        for key, value, where in messages(source):
            topic, number, _ = where.split("/")
            found[topic.removeprefix(prefix), int(number)].append((key, value or b""))
        return found

    def _partitions(self, frames: Frames) -> dict[str, int]:
        return dict(Counter(topic for topic, _ in frames)) or {DEFAULT: 0}

    def _topics(self, name: str) -> dict[str, int]:
        found = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=30).topics
        return {topic: len(one.partitions) for topic, one in found.items() if topic.startswith(f"{name}-")}

    def _forget(self, name: str) -> None:
        topics = list(self._topics(name))
        if topics:
            admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            for future in admin.delete_topics(topics, operation_timeout=30).values():
                future.result(30)
