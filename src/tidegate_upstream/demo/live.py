"""The live demo: a TiDB, SQL and online DDL on it, its log, a broker, a lake, and whether the lake was right all along.

One chain: the upstream's log, a changefeed into a topic, a changefeed into a lake, at the same time.

    log ──Changefeed──► topic (3 partitions) ──Changefeed──► lake
          thread 1                             thread 2             tasks of both in one Spark

They are the very changefeeds of `tidegate run`, wired by the same functions; only the processes are fewer.  The broker
and Spark's JVM are processes of their own.  The lakes stay.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tidegate.config.changefeed import Changefeed
from tidegate.config.load import load
from tidegate.engine.progress import Progress
from tidegate.model.tso import physical_ms
from tidegate.spark.session import FEED_HEAP, session
from tidegate_upstream.broker import running_broker
from tidegate_upstream.demo.moment import MomentReport, choose, compare_at, compare_merged
from tidegate_upstream.demo.play import Chain, LiveOptions, Play
from tidegate_upstream.demo.recorded import create_topic
from tidegate_upstream.demo.words import Flow, Teller
from tidegate_upstream.demo.workload import DATABASES

PROTOCOLS: Final = {"open-protocol": "", "canal-json": "&enable-tidb-extension=true"}
"""The parameters that each needs."""
PARTITIONS: Final = 3
_QUERY: Final = "select status, count(*), sum(total) from shop.orders group by status"
RULES: Final = tuple(f"{name}.*" for name in DATABASES)


class LakeChain(Chain):
    """Both changefeeds of a protocol; `topic_progress` and `lake_progress` are their last reports."""

    def __init__(self, protocol: str, log: Path, bootstrap: str, home: Path) -> None:
        super().__init__(protocol.partition("-")[0], 2)
        self.protocol, self.log, self.bootstrap, self.home = protocol, log, bootstrap, home
        self.topic = f"demo-{self.name}"
        self.lake = home / f"lake-{self.name}"
        self.topic_progress = self.lake_progress = Progress("starting")

    def start(self) -> None:
        """Make the topic and start both. Raises SourceError when the broker does not answer."""
        create_topic(self.bootstrap, self.topic, PARTITIONS)
        address = f"kafka://{self.bootstrap}/{self.topic}?protocol={self.protocol}{PROTOCOLS[self.protocol]}"
        topic = load(
            source_uri=f"tidb://{self.log}",
            sink_uri=f"{address}&partition-num={PARTITIONS}",
            rules=RULES,
            state_dir=self.log.with_name("state"),
        )
        self.run(Changefeed(topic), self._topic_told)
        self.run(Changefeed(address, self.lake.as_uri().replace("file:", "delta:", 1)), self._lake_told)

    def _topic_told(self, progress: Progress) -> None:
        self.topic_progress = progress
        self._told()

    def _lake_told(self, progress: Progress) -> None:
        self.lake_progress = progress
        self._told()

    def _told(self) -> None:
        self.checkpoint_ts = self.lake_progress.checkpoint_ts or 0
        told = self.topic_progress.error or self.lake_progress.error
        self.error = None if told is None else str(told)


class LiveDemo(Play[LakeChain]):
    """The demo with a broker and a lake for each of `protocols`."""

    def __init__(self, options: LiveOptions, protocols: tuple[str, ...], stop: threading.Event, tell: Teller) -> None:
        super().__init__(options, stop, tell)
        self.protocols = protocols
        self._flows: dict[str, Flow] = {}

    @property
    def hints(self) -> list[str]:
        """Commands that show a lake."""
        return [f"tidegate lake sql {chain.lake} '{_QUERY}'" for chain in self.chains]

    def begin(self) -> None:
        """Start the broker, Spark and the changefeeds."""
        broker = self.stack.enter_context(running_broker(self.scratch / "broker"))
        self.tell.say(f"broker: {broker.bootstrap}")
        session(driver_memory=FEED_HEAP)
        for protocol in self.protocols:
            chain = LakeChain(protocol, self.log, broker.bootstrap, self.options.home)
            self.take(chain)
            chain.start()
            self.tell.say(f"{protocol}: topic {chain.topic} -> {chain.lake}")
        self.wait_for(lambda: all(chain.topic_progress.checkpoint_ts for chain in self.chains))

    def compare(self) -> Iterator[MomentReport]:
        """Compare each chosen timestamp, and the merged tables of the end, of each lake."""
        asking = self.upstream.session(0)
        notes = choose(self.upstream.notes, self.options.moments)
        for chain in self.chains:
            self.tell.say(f"{chain.protocol}: {chain.lake}")
            for note in notes:
                if not self.stop.is_set():
                    yield self._compared(chain, compare_at(asking, str(chain.lake), note))
            if not self.stop.is_set():
                yield self._compared(chain, compare_merged(asking, str(chain.lake)))

    def _compared(self, chain: LakeChain, report: MomentReport) -> MomentReport:
        self.tell.moment(str(chain.lake), report)
        return report

    def tell_flow(self, chain: LakeChain, at_s: float) -> None:
        """Tell how far a chain is, compared with the report before."""
        before = self._flows.get(chain.protocol)
        self._flows[chain.protocol] = flow = _flow(chain, self.upstream.commits, at_s, before)
        self.tell.flow(flow)


def _flow(chain: LakeChain, commits: int, at_s: float, before: Flow | None) -> Flow:
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
