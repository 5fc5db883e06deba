"""A server over kept documents, whose one changefeed writes files, in this process."""

import time
from collections.abc import Callable
from pathlib import Path

from tests.server.kit import HereHost
from tidegate.server.config import server_config
from tidegate.server.record import FeedId, NewFeed
from tidegate.server.server import Server

__all__ = ["FEED", "serve", "server_of"]

FEED = FeedId("default", "served")
_SINK = "file://{}/served?protocol=canal-json&enable-tidb-extension=true&flush-interval=100ms"


def server_of(home: Path) -> Server:
    """The server of a place, not begun yet."""
    told = {"data_dir": str(home / "server"), "source_uri": f"tidb://{home / 'log'}", "addr": "127.0.0.1:0"}
    return Server(server_config(None, **told, allow_path=[str(home)]), HereHost())


def serve(home: Path, until: int) -> None:
    """Let the server make its changefeed, or go on with it, until it is behind a timestamp."""
    server = server_of(home)
    server.start()
    try:
        wait(lambda: server.changefeeds.is_owner)
        if not server.changefeeds.listed():
            server.changefeeds.create(NewFeed(FEED, _SINK.format(home), start_ts=1), "ann")
        wait(lambda: server.changefeeds.get(FEED).checkpoint_ts >= until)
    finally:
        server.stop()


def wait(true: Callable[[], object], wait_s: float = 30.0) -> None:
    """Wait until something is true."""
    end_s = time.monotonic() + wait_s
    while not true():
        assert time.monotonic() < end_s, f"not within {wait_s:.0f} s"
        time.sleep(0.02)
