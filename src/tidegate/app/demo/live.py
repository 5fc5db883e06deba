"""The live demo: a TiDB, SQL and online DDL on it, its log, a broker, a lake, and whether the lake was right all along.

    1 start     upstream (3 nodes), broker, Spark, both changefeeds of each protocol
    2 work      people and administrators (workload.py) until their scripts are done; DDLs and flow are told
    3 catch up  the log ends; every chain comes to its end
    4 compare   each chosen timestamp: upstream there = lake there, table by table
    5 verdict   one line

Upstream and changefeeds are threads of this process, the broker and Spark's JVM are processes of their own; whatever
happens, everything that was started is stopped at the end.  The lakes stay.

One chain of the demo: the upstream's log, a changefeed into a topic, a changefeed into a lake, at the same time.

    log ──Changefeed──► topic (3 partitions) ──Changefeed──► lake
          thread 1                             thread 2             tasks of both in one Spark

They are the very changefeeds of `tidegate run`, wired by the same functions; only the processes are fewer.
"""

import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tidegate.app.broker import running_broker
from tidegate.app.changefeed import Changefeed
from tidegate.app.config.load import load
from tidegate.app.demo.moment import MomentReport, choose, compare_at, compare_merged
from tidegate.app.demo.recorded import create_topic
from tidegate.app.demo.upstream import DemoUpstream, WorkPace
from tidegate.app.demo.words import Flow, Teller, Verdict, table_lines, verdict_of
from tidegate.app.demo.workload import DATABASES
from tidegate.app.progress import Progress
from tidegate.app.stop_signals import wait_until
from tidegate.model.errors import SourceError
from tidegate.model.tso import physical_ms
from tidegate.spark.session import FEED_HEAP, session

PROTOCOLS: Final = {"open-protocol": "", "canal-json": "&enable-tidb-extension=true"}
"""The parameters that each needs."""
PARTITIONS: Final = 3
_RULES: Final = tuple(f"{name}.*" for name in DATABASES)


class Chain:
    """Both changefeeds of a protocol; `topic_progress` and `lake_progress` are their last reports."""

    def __init__(self, protocol: str, log: Path, bootstrap: str, home: Path) -> None:
        self.protocol, self.log, self.bootstrap, self.home = protocol, log, bootstrap, home
        self.name = protocol.partition("-")[0]
        self.topic = f"demo-{self.name}"
        self.lake = home / f"lake-{self.name}"
        self.topic_progress = Progress("starting")
        self.lake_progress = Progress("starting")
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(2, thread_name_prefix=f"demo-{self.name}")
        self._running: list[Future[object]] = []

    @property
    def checkpoint_ts(self) -> int:
        """Everything up to here is in the lake's tables."""
        return self.lake_progress.checkpoint_ts or 0

    @property
    def error(self) -> str | None:
        """What one of them waits out."""
        told = self.topic_progress.error or self.lake_progress.error
        return None if told is None else str(told)

    def start(self) -> None:
        """Make the topic and start both. Raises SourceError when the broker does not answer."""
        create_topic(self.bootstrap, self.topic, PARTITIONS)
        address = f"kafka://{self.bootstrap}/{self.topic}?protocol={self.protocol}{PROTOCOLS[self.protocol]}"
        topic = load(
            source_uri=f"tidb://{self.log}",
            sink_uri=f"{address}&partition-num={PARTITIONS}",
            rules=_RULES,
            state_dir=self.log.with_name("state"),
        )
        into_topic = Changefeed(topic)
        lake = self.lake.as_uri().replace("file:", "delta:", 1)
        into_lake = Changefeed(address, lake)
        self._running = [
            self._threads.submit(into_topic.run, on_progress=self._topic_told, stop=self._stop),
            self._threads.submit(into_lake.run, on_progress=self._lake_told, stop=self._stop),
        ]

    def check(self) -> None:
        """Raise what ended a changefeed that was not told to end."""
        for one in self._running:
            if one.done():
                one.result(0)

    def stop(self) -> None:
        """Stop both in order and wait. Raises what they ended with."""
        self.abandon()
        self.check()

    def abandon(self) -> None:
        """Stop both, whatever they ended with; twice is once."""
        self._stop.set()
        wait_until(lambda: all(one.done() for one in self._running))
        self._threads.shutdown()

    def _topic_told(self, progress: Progress) -> None:
        self.topic_progress = progress

    def _lake_told(self, progress: Progress) -> None:
        self.lake_progress = progress


_TELL_S: Final = 2.0
_LOOK_S: Final = 0.2
_STUCK_S: Final = 180.0
"""So long a chain may stand still while it catches up; first rows may wait for Spark that long on a busy machine."""


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """What is shown; `moments` timestamps are compared, and the merged tables of the end."""

    home: Path
    protocols: tuple[str, ...]
    seed: int = 1
    pace: WorkPace = field(default_factory=WorkPace)
    moments: int = 14


class LiveDemo:
    """One run: `start`, `work`, `catch_up`, `compare`, and `close` in any case. Use it in a `with` block."""

    def __init__(self, options: LiveOptions, stop: threading.Event, tell: Teller) -> None:
        self.options, self.stop, self.tell = options, stop, tell
        self.scratch = options.home / "work"
        self.log = self.scratch / "log"
        self._stack = ExitStack()
        self._began_s = self._told_s = time.monotonic()
        self._told: dict[str, Flow] = {}
        self._reports = 0
        self.upstream: DemoUpstream
        self.chains: list[Chain] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    @property
    def lakes(self) -> list[Path]:
        """Where the lakes lie."""
        return [chain.lake for chain in self.chains]

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
        verdict = verdict_of(reports, len(self.chains))
        self.tell.verdict(verdict)
        return verdict

    def start(self) -> None:
        """Step 1."""
        self.log.mkdir(parents=True)
        self._stack.callback(shutil.rmtree, self.scratch, ignore_errors=True)
        self.upstream = DemoUpstream(self.options.seed, self.options.pace, self.log)
        self._stack.callback(self.upstream.close)
        self.upstream.start()
        self.tell.say(f"upstream: nodes {', '.join(self.upstream.nodes)}, seed {self.options.seed}")
        broker = self._stack.enter_context(running_broker(self.scratch / "broker"))
        self.tell.say(f"broker: {broker.bootstrap}")
        session(driver_memory=FEED_HEAP)
        for protocol in self.options.protocols:
            chain = Chain(protocol, self.log, broker.bootstrap, self.options.home)
            self._stack.callback(chain.abandon)
            chain.start()
            self.chains.append(chain)
            self.tell.say(f"{protocol}: topic {chain.topic} -> {chain.lake}")
        until_s = time.monotonic() + _STUCK_S
        while not all(chain.topic_progress.checkpoint_ts for chain in self.chains) and time.monotonic() < until_s:
            if self.stop.wait(_LOOK_S):
                return
            self._check()

    def work(self) -> None:
        """Step 2."""
        self._began_s = time.monotonic()
        self.upstream.work()
        while not self.upstream.settled() and not self.stop.wait(_LOOK_S):
            self._look(note=True)
        self._look(note=False)
        self.tell.say(self.upstream.summary())

    def catch_up(self) -> None:
        """Step 3. Raises what ends a changefeed, SourceError when one stands still."""
        end = self.upstream.note("after all work")
        assert end is not None, "a DDL is left"
        self.upstream.end_log()
        moved_s, before = time.monotonic(), [chain.checkpoint_ts for chain in self.chains]
        while any(chain.checkpoint_ts < end.ts for chain in self.chains) and not self.stop.wait(_LOOK_S):
            self._look(note=False)
            now = [chain.checkpoint_ts for chain in self.chains]
            moved_s, before = (time.monotonic(), now) if now != before else (moved_s, before)
            if time.monotonic() - moved_s > _STUCK_S:
                raise SourceError(f"a chain stands still before {end.ts}: {self._errors() or 'no error is told'}")
        for chain in self.chains:
            chain.stop()

    def compare(self) -> Iterator[MomentReport]:
        """Step 4."""
        asking = self.upstream.session(0)
        notes = choose(self.upstream.notes, self.options.moments)
        for chain in self.chains:
            self.tell.say(f"{chain.protocol}: {chain.lake}")
            for note in notes:
                if not self.stop.is_set():
                    yield self._compared(chain, compare_at(asking, str(chain.lake), note))
            if not self.stop.is_set():
                yield self._compared(chain, compare_merged(asking, str(chain.lake)))

    def _compared(self, chain: Chain, report: MomentReport) -> MomentReport:
        self.tell.moment(str(chain.lake), report)
        return report

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
            before = self._told.get(chain.protocol)
            self._told[chain.protocol] = flow = _flow(chain, self.upstream.commits, at_s, before)
            self.tell.flow(flow)

    def _check(self) -> None:
        for chain in self.chains:
            chain.check()

    def _errors(self) -> str:
        return "; ".join(error for chain in self.chains if (error := chain.error))


def _flow(chain: Chain, commits: int, at_s: float, before: Flow | None) -> Flow:
    """How far a chain is, compared with the report before."""
    topic, lake, now_ms = chain.topic_progress, chain.lake_progress, time.time_ns() // 1_000_000

    def age(ts: int | None) -> int | None:
        return now_ms - physical_ms(ts) if ts else None

    passed_s = at_s - before.elapsed_s if before is not None else at_s
    counts = (commits, topic.rows, lake.rows_landed, lake.rows)
    earlier: Sequence[int] = (0, 0, 0, 0)
    if before is not None:
        earlier = (before.commits, before.topic_rows, before.landed_rows, before.lake_rows)
    rates = [(now - then) / max(passed_s, 0.1) for now, then in zip(counts, earlier, strict=True)]
    return Flow(
        protocol=chain.protocol,
        elapsed_s=round(at_s, 1),
        commits=commits,
        commit_rate=rates[0],
        topic_rows=topic.rows,
        topic_rate=rates[1],
        topic_ddls=topic.ddls,
        resolved_age_ms=age(topic.checkpoint_ts),
        landed_rows=lake.rows_landed,
        landed_rate=rates[2],
        frontier_age_ms=age(lake.frontier_ts),
        lake_rows=lake.rows,
        lake_rate=rates[3],
        lake_ddls=lake.ddls,
        checkpoint_age_ms=age(lake.checkpoint_ts),
        error=chain.error,
    )
