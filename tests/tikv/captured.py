"""A recording that is captured once into a log, which changefeeds of any sink read, as from `tidegate capture`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.tikv.replayed import RecordedCluster, Recording
from tidegate.config.entry import Document
from tidegate.config.load import load
from tidegate.config.registry import feed_of
from tidegate.config.tikv import capture_options, parse_tikv
from tidegate.engine.filter import DEFAULT_RULES, TableFilter
from tidegate.engine.loop import Engine, Meter
from tidegate.engine.ports import LocalTasks
from tidegate.engine.stop_signals import NoPauseEvent
from tidegate.source.tikv_capture import Capture
from tidegate.tikv import registrations

_ALL_MS = 1 << 42
"""A log keeps what is younger, if no changefeed needs it: all of a recording, whenever it was made."""


@dataclass(frozen=True)
class Captured:
    """The log of a recording, and its cluster, from which rows of the begin are loaded."""

    cluster: RecordedCluster
    log: Path

    @property
    def recording(self) -> Recording:
        return self.cluster.recording

    @property
    def begin(self) -> int:
        """A timestamp before the first change."""
        return self.cluster.world.bounds[0] - 10_000

    def run(self, sink_uri: str, until: int, state: Path, **more: Any) -> None:
        """Run a changefeed up to a timestamp; a new one begins with the rows that were there at the begin."""
        begins = {"start_ts": self.recording.ts0}
        if any(key[:1] == b"t" for key in self.recording.base):
            begins = {"load_from": f"tikv://{self.cluster.pd}", "load_ts": self.recording.ts0}
        source_uri = f"tidb://{self.log}?ddl-ts=commit"
        config = load(source_uri=source_uri, sink_uri=sink_uri, state_dir=state, name="feed", **begins, **more)
        engine = Engine(feed_of(config), LocalTasks(pickles=False), Meter(lambda _: None), NoPauseEvent())
        assert engine.run(until=until).checkpoint_ts == until


@contextmanager
def captured(recording: Recording, seed: int, log: Path) -> Iterator[Captured]:
    """The whole recording, with its splits and errors, in a log; recorded time passes faster than ours."""
    every = TableFilter.parse(DEFAULT_RULES)
    with RecordedCluster(recording, seed).running() as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr(registrations, "RECONNECT_S", 0.01)
        patch.setattr(registrations, "_AHEAD_MS", 1 << 50)
        source = parse_tikv(f"tikv://{cluster.pd}", Document())
        options = capture_options(source, log, "all", rules=every.rules)
        soon = msgspec.structs.replace(options, write_s=0.05, idle_s=0.05, gc_ttl_ms=_ALL_MS)
        found, capture = Captured(cluster, log), Capture(soon, every.matches, recording.ts0)
        for ts in (found.begin, recording.end):
            cluster.play_to(ts)
            while capture.progress().ts < ts:
                capture.start()  # raises what has ended it
                time.sleep(0.01)
        capture.stop()
        assert not cluster.world.faults
        assert cluster.world.position == len(cluster.world.played.log)
        yield found
