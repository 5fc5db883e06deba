"""One chain of the demo: the upstream's log, a changefeed into a topic, a changefeed into a lake, at the same time.

    log ──Changefeed──► topic (3 partitions) ──Changefeed──► lake
          thread 1                             thread 2             tasks of both in one Spark

They are the very changefeeds of `tidegate run`, wired by the same functions; only the processes are fewer.
"""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tidegate.app.changefeed import Changefeed
from tidegate.app.config.load import load
from tidegate.app.demo.recorded import create_topic
from tidegate.app.demo.workload import DATABASES
from tidegate.app.progress import Progress
from tidegate.app.stop_signals import wait_until

__all__ = ["PROTOCOLS", "Chain"]

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
