"""A recording played through the engine, without broker and Spark: landed, planned and applied where a seed says.

A crash is an exception between two steps; going on is a new Stage on the same directory.
"""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from tests.recorded import RecordedLanding, partitions_of
from tidegate.changelog.source import LandedSource
from tidegate.codec.options import DecodeOptions
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import TableFilter
from tidegate.engine.loop import Engine, Feed, Meter
from tidegate.engine.ports import LocalTasks
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink, NameCatalog
from tidegate.source.kafka_messages import TopicMessage

TOPIC = "shop"


class Crash(Exception):
    """The process dies here."""


class Stage:
    """One life of a feed on a lake."""

    def __init__(
        self,
        root: Path,
        protocol: str,
        messages: dict[int, list[TopicMessage]],
        seed: int = 0,
        *,
        parks: bool = False,
        skips_dead: bool = False,
        catalogs: Sequence[NameCatalog] = (),
        **delta: Any,
    ) -> None:
        self.random = random.Random(seed)
        error: Literal["halt", "park"] = "park" if parks else "halt"
        self.options = DeltaOptions(root=str(root), feed="f", worker_count=1000, table_error=error, **delta)
        self.crash: Callable[[str], None] = lambda _: None
        uri = self.options.changelog_uri
        self.landing = RecordedLanding(
            uri,
            "f",
            DecodeOptions(protocol=protocol),
            messages,
            topic=TOPIC,
            seed=seed,
            skip_dead=skips_dead,
            pause=self._at,
        )
        source = LandedSource(lambda: self.landing, uri)
        self.sink = DeltaSink(self.options, catalogs=catalogs)
        self.log = source.changelog
        rules, events = TableFilter.parse(self.options.rules), EventFilter.of(self.options.event_rules, None)
        feed = Feed("f", source, self.sink, accept=rules.matches, takes=rules.takes_ddl, drops=events.ddls())
        self.engine = Engine(feed, Shuffled(self), Meter(lambda _: None), threading.Event())
        publish = self.sink.advance
        self.sink.advance = lambda *given: self._at("before publishing") or publish(*given)
        self.engine.begin(None)

    def land(self, at_most: int) -> bool:
        """Land a batch of up to `at_most` messages a partition; False at the end of the topic."""
        return self.landing.land(at_most)

    def round(self, limit: int | None = None) -> int:
        """Apply everything up to the frontier, at most to `limit`; give the checkpoint."""
        self.sink.flush_policy = type(self.sink.flush_policy)(rests=False)
        while self.engine.round(limit):
            pass
        return self.sink.snapshot.checkpoint.ts

    def resume(self) -> None:
        """Bring the parked tables back that were asked for."""
        for group, state in self.sink.resuming():
            self.engine.resume_parked(self.sink, group, state)

    @property
    def messages(self) -> dict[int, list[TopicMessage]]:
        """The partitions of the recording."""
        return self.landing.messages

    @messages.setter
    def messages(self, messages: dict[int, list[TopicMessage]]) -> None:
        self.landing.messages = messages

    @property
    def decode(self) -> DecodeOptions:
        """How messages are read."""
        return self.landing.decode

    @decode.setter
    def decode(self, options: DecodeOptions) -> None:
        self.landing.decode = options

    def _at(self, place: str) -> None:
        self.crash(place)


class Shuffled(LocalTasks):
    """Tasks in an order of the seed, and a chance to crash after each."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(pickles=False)
        self.stage = stage

    def run(self, work: Any, jobs: Any) -> list[Any]:
        """The answers."""
        found = {}
        for at in self.stage.random.sample(range(len(jobs)), len(jobs)):
            found[at] = work(jobs[at])
            self.stage.crash("between two steps")
        return [found[at] for at in range(len(jobs))]


def no_keys_twice(rows: list[dict], key: list[str]) -> bool:
    """True if every key stands once."""
    seen = [tuple(row[name] for name in key) for row in rows]
    return len(seen) == len(set(seen))


def moments(stage: Stage, truths: list) -> Iterator[object]:
    """Play to the end in random batches, pausing at every truth."""
    waiting = list(truths)
    more = True
    while waiting:
        if more:
            more = stage.land(1500)
        while waiting:
            checkpoint = stage.round(waiting[0].ts)
            if checkpoint < waiting[0].ts:
                break
            yield waiting.pop(0)


__all__ = ["TOPIC", "Crash", "Stage", "moments", "no_keys_twice", "partitions_of"]
