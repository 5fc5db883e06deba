"""What each live demo does: people work on a TiDB while changefeeds run, then these catch up, and all is compared.

    1 start     upstream (3 nodes), and what the demo is about
    2 work      people and administrators (workload.py) until their scripts are done; DDLs and flow are told
    3 catch up  the log ends; every chain comes to its end
    4 compare   each chosen timestamp: upstream there = what the chain made of it there, table by table
    5 verdict   one line

Upstream and changefeeds are threads of this process; whatever happens, all that was started is stopped at the end.
"""

import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, Self, TypeVar

from tidegate.config.changefeed import Changefeed
from tidegate.engine.progress import Progress
from tidegate.engine.stop_signals import wait_until
from tidegate.model.errors import SourceError
from tidegate_upstream.demo.moment import MomentReport
from tidegate_upstream.demo.upstream import DemoUpstream, WorkPace
from tidegate_upstream.demo.words import Teller, Verdict, table_lines, verdict_of
from tidegate_upstream.demo.workload import DDLS

_TELL_S: Final = 2.0
LOOK_S: Final = 0.2
STUCK_S: Final = 180.0
"""So long a chain may stand still while it catches up; first rows may wait for Spark that long on a busy machine."""


class Chain:
    """Changefeeds that run in threads of this process; everything up to `checkpoint_ts` has come to their end."""

    checkpoint_ts = 0
    error: str | None = None
    """What one of them waits out."""

    def __init__(self, name: str, feeds: int) -> None:
        self.name = name
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(feeds, thread_name_prefix=f"demo-{name}")
        self._running: list[Future[object]] = []

    def run(self, feed: Changefeed, told: Callable[[Progress], None]) -> None:
        """Run one more."""
        self._running.append(self._threads.submit(feed.run, on_progress=told, stop=self._stop))

    def check(self) -> None:
        """Raise what ended a changefeed that was not told to end."""
        for one in self._running:
            if one.done():
                one.result(0)

    def stop(self) -> None:
        """Stop all and wait. Raises what they ended with."""
        self.abandon()
        self.check()

    def abandon(self) -> None:
        """Stop all, whatever they ended with; twice is once."""
        self._stop.set()
        wait_until(lambda: all(one.done() for one in self._running))
        self._threads.shutdown()


C = TypeVar("C", bound=Chain)


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """What is shown; `moments` timestamps are compared, and what is there at the end."""

    home: Path
    seed: int = 1
    pace: WorkPace = field(default_factory=WorkPace)
    moments: int = 14


class Play(ABC, Generic[C]):
    """One run: `start`, `work`, `catch_up`, `compare`. Use it in a `with` block."""

    def __init__(self, options: LiveOptions, stop: threading.Event, tell: Teller) -> None:
        self.options, self.stop, self.tell = options, stop, tell
        self.scratch = options.home / "work"
        self.log = self.scratch / "log"
        self.stack = ExitStack()
        self._began_s = self._told_s = time.monotonic()
        self._reports = 0
        self.upstream: DemoUpstream
        self.chains: list[C] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stack.close()

    scripts = DDLS

    @property
    def hints(self) -> list[str]:
        """Commands that show what stays."""
        return []

    @abstractmethod
    def begin(self) -> None:
        """Start what the demo is about, and its chains."""

    @abstractmethod
    def compare(self) -> Iterator[MomentReport]:
        """Step 4."""

    @abstractmethod
    def tell_flow(self, chain: C, at_s: float) -> None:
        """Tell how far a chain is, some seconds after the begin."""

    def play(self) -> Verdict | None:
        """Return all of it; None when it was stopped."""
        for step in (self.start, self.work, self.catch_up):
            step()
            if self.stop.is_set():
                return None
        reports = list(self.compare())
        if self.stop.is_set():
            return None
        for line in table_lines(reports):
            self.tell.say(line)
        verdict = self.judge(reports)
        self.tell.verdict(verdict)
        return verdict

    def judge(self, reports: list[MomentReport]) -> Verdict:
        """Step 5."""
        return verdict_of(reports, len(self.chains))

    def start(self) -> None:
        """Step 1."""
        self.log.mkdir(parents=True)
        self.stack.callback(shutil.rmtree, self.scratch, ignore_errors=True)
        self.upstream = DemoUpstream(self.options.seed, self.options.pace, self.log, self.scripts)
        self.stack.callback(self.upstream.close)
        self.upstream.start()
        self.tell.say(f"upstream: nodes {', '.join(self.upstream.nodes)}, seed {self.options.seed}")
        self.begin()

    def take(self, chain: C) -> None:
        """Take a chain in, which is stopped at the end."""
        self.stack.callback(chain.abandon)
        self.chains.append(chain)

    def wait_for(self, true: Callable[[], bool]) -> None:
        """Wait until it is true, or for as long as a chain may stand still. Raises what ended a changefeed."""
        until_s = time.monotonic() + STUCK_S
        while not true() and time.monotonic() < until_s and not self.stop.wait(LOOK_S):
            self._check()

    def work(self) -> None:
        """Step 2."""
        self._began_s = time.monotonic()
        self.upstream.work()
        while not self.upstream.settled() and not self.stop.wait(LOOK_S):
            self._look(note=True)
        self._look(note=False)
        self.tell.say(self.upstream.summary())

    def catch_up(self) -> None:
        """Step 3. Raises what ends a changefeed, SourceError when one stands still."""
        end = self.upstream.note("after all work")
        assert end is not None, "a DDL is left"
        self.upstream.end_log()
        moved_s, before = time.monotonic(), [chain.checkpoint_ts for chain in self.chains]
        while any(chain.checkpoint_ts < end.ts for chain in self.chains) and not self.stop.wait(LOOK_S):
            self._look(note=False)
            now = [chain.checkpoint_ts for chain in self.chains]
            moved_s, before = (time.monotonic(), now) if now != before else (moved_s, before)
            if time.monotonic() - moved_s > STUCK_S:
                raise SourceError(f"a chain stands still before {end.ts}: {self._errors() or 'no error is told'}")
        for chain in self.chains:
            chain.stop()

    def _look(self, *, note: bool) -> None:
        """Tell what is new. Raises what ended a changefeed."""
        self._check()
        at_s = time.monotonic() - self._began_s
        for report in self.upstream.reports[self._reports :]:
            self.tell.ddl(at_s, report)
            self._reports += 1
        if time.monotonic() - self._told_s < _TELL_S:
            return
        self._told_s = time.monotonic()
        if note:
            self.upstream.note(f"between two reports, after {at_s:.0f} s")
        for chain in self.chains:
            self.tell_flow(chain, at_s)

    def _check(self) -> None:
        for chain in self.chains:
            chain.check()

    def _errors(self) -> str:
        return "; ".join(error for chain in self.chains if (error := chain.error))
