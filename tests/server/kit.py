"""Servers whose changefeeds run in this process: from the log of an embedded TiDB into files of a function."""

import time
from collections.abc import Callable
from pathlib import Path

from tests.e2e.collected import messages
from tests.engine.test_chain import Upstream
from tidegate.engine.ports import LocalTasks, Tasks
from tidegate.server.config import ServerConfig, server_config
from tidegate.server.record import FeedId, NewFeed
from tidegate.server.running import SparkHost
from tidegate.server.server import Server

WAIT_S = 60.0


class HereHost(SparkHost):
    """Tasks of this process in place of Spark's."""

    def __init__(self) -> None:
        super().__init__(lambda: None)  # type: ignore[arg-type,return-value]

    def tasks(self, pool: str) -> Tasks:  # type: ignore[override]  # noqa: ARG002
        """Run jobs here."""
        return LocalTasks()


def until(
    true: Callable[[], object], what: str | Callable[[], str] = "", wait_s: float = WAIT_S, pause_s: float = 0.02
) -> None:
    """Wait until something is true; `what` tells what is not."""
    end_s = time.monotonic() + wait_s
    while not true():
        assert time.monotonic() < end_s, f"not within {wait_s:.0f} s: {(what() if callable(what) else what) or true}"
        time.sleep(pause_s)


class ServerHome:
    """A directory with an upstream's log, a server's data and what sinks have."""

    def __init__(self, home: Path, seed: int = 1) -> None:
        self.home = home
        self.upstream = Upstream(seed, home / "log")
        self.work()

    def work(self, times: int = 4) -> int:
        """Let the upstream do something; return the ts up to which its log goes."""
        for _ in range(times):
            self.upstream.work()
        self.upstream.writer.write(empty=True)
        return self.upstream.writer.low

    def config(self, **flags: object) -> ServerConfig:
        """What a server of this place is told."""
        told = {
            "data_dir": str(self.home / "data"),
            "source_uri": f"tidb://{self.home / 'log'}",
            "addr": "127.0.0.1:0",
            "allow_path": [str(self.home.parent)],
            "callback_modules": ["tests.e2e.collected", "tests.server.http_kit/guarded", "tests.server.sinks"],
        }
        return server_config(None, **(told | flags))

    def server(self, **flags: object) -> Server:
        """A server that has begun, and owns if nobody else does."""
        server = Server(self.config(**flags), HereHost())
        server.start()
        return server

    def sink(self, name: str) -> str:
        """The address of a function that keeps what it is given."""
        return f"callback://tests.e2e.collected/into?home={self.home / 'sinks' / name}"

    def wish(self, name: str, **more: object) -> NewFeed:
        """A changefeed from the beginning of the log."""
        return NewFeed(FeedId("default", name), self.sink(name), **({"start_ts": 1} | more))  # type: ignore[arg-type]

    def got(self, name: str) -> int:
        """How many messages a sink has."""
        place = self.home / "sinks" / name
        return len(messages(str(place))) if place.exists() else 0
