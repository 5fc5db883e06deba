"""What runs the changefeeds of a demo; each has a FeedPanel, which has its last report.

OwnFeeds       a thread of this process for each
ServedFeeds    a server in this process (served.py), with its API and its page
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tidegate.config.changefeed import Changefeed
from tidegate.config.entry import FeedConfig
from tidegate.config.load import load
from tidegate.engine.display import FeedPanel
from tidegate.engine.stop_signals import wait_until
from tidegate.sink.sql.connection import SqlOptions, SyncPoints
from tidegate_upstream.demo.upstream import DATABASES

RULES: Final = tuple(f"{name}.*" for name in DATABASES)


class FeedAddresses(NamedTuple):
    """Source and sink of a changefeed, where it begins: at a ts, or with the rows of a database; and how far its sync
    points lie apart, 0 for none."""

    source: str
    sink: str
    start_ts: int = 0
    load_from: str = ""
    sync_ms: int = 0


def with_points(config: FeedConfig, sync_ms: int) -> FeedConfig:
    """Return a configuration with sync points, which in a demo are closer than an option allows."""
    assert isinstance(config.sink, SqlOptions), config.sink
    return replace(config, sink=replace(config.sink, sync_points=SyncPoints(sync_ms)))


class Feeds(ABC):
    """Runs changefeeds until `stop`, in a Spark session with `spark_conf`."""

    spark_conf: Mapping[str, str] = {}

    @abstractmethod
    def start(self, feed: FeedPanel, addresses: FeedAddresses) -> None:
        """Start one more changefeed, whose reports `feed` takes."""

    @abstractmethod
    def check(self) -> None:
        """Raise the error of a changefeed that ended although it was not stopped."""

    @abstractmethod
    def stop(self) -> None:
        """Stop all changefeeds and wait for them; idempotent."""


class OwnFeeds(Feeds):
    """Runs each changefeed in a thread; checkpoints that no sink keeps are in `state`."""

    def __init__(self, state: Path) -> None:
        self._state, self._stop = state, threading.Event()
        self._threads = ThreadPoolExecutor(thread_name_prefix="demo-feed")
        self._running: list[Future[object]] = []

    def start(self, feed: FeedPanel, addresses: FeedAddresses) -> None:
        config = load(
            source_uri=addresses.source,
            sink_uri=addresses.sink,
            name=feed.name,
            rules=RULES,
            start_ts=addresses.start_ts or None,
            load_from=addresses.load_from or None,
            state_dir=self._state,
        )
        if addresses.sync_ms:
            config = with_points(config, addresses.sync_ms)
        run = partial(Changefeed(config).run, on_progress=feed.show, stop=self._stop)
        self._running.append(self._threads.submit(run))

    def check(self) -> None:
        for future in self._running:
            if future.done():
                future.result(0)

    def stop(self) -> None:
        self._stop.set()
        wait_until(lambda: all(future.done() for future in self._running))
        self._threads.shutdown()
