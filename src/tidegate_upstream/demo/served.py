"""The changefeeds of a demo in a server of this process, with TiCDC's API and the page.

http://127.0.0.1:PORT/#token=..    the page, for as long as the demo runs; port and token are new each time
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Final

from msgspec.structs import replace

from tidegate.config.entry import FeedConfig
from tidegate.config.option import duration_ns
from tidegate.engine.display import FeedPanel
from tidegate.engine.stop_signals import StopEvent, wait_until
from tidegate.model.errors import SourceError
from tidegate.server.changefeeds import Changefeeds
from tidegate.server.config import announced, server_config
from tidegate.server.record import FeedId, FeedRecord, NewFeed
from tidegate.server.running import FAIR, SparkHost
from tidegate.server.server import Server
from tidegate.server.web_server import address_of, listening, serve, web_server
from tidegate.spark.tasks import feed_session
from tidegate_upstream.demo.feeds import RULES, FeedAddresses, Feeds, with_points

_WHO: Final = "tidegate demo"
INTERVAL: Final = "sync-point-interval"


class ServedFeeds(Feeds):
    """Runs changefeeds in a server."""

    spark_conf = FAIR

    def __init__(self, server: Server) -> None:
        self._feeds = server.changefeeds
        self._panels: dict[FeedId, FeedPanel] = {}

    def start(self, feed: FeedPanel, addresses: FeedAddresses) -> None:
        feed_id = FeedId("default", feed.name)
        config: dict[str, Any] = {"filter": {"rules": [*RULES]}}
        if addresses.load_from:
            config["source"] = {"load-from": addresses.load_from}
        if addresses.sync_ms:
            config |= {"enable-sync-point": True, INTERVAL: f"{addresses.sync_ms}ms"}
        new = NewFeed(feed_id, addresses.sink, addresses.source, addresses.start_ts, config=config)
        self._feeds.create(new, _WHO)
        self._panels[feed_id] = feed

    def check(self) -> None:
        for feed_id, panel in self._panels.items():
            view = self._feeds.get(feed_id)
            if view.progress is not None and view.progress is not panel.progress:
                panel.show(view.progress)
            if view.state == "failed":
                raise SourceError(f"{feed_id.name}: {view.error}")

    def stop(self) -> None:
        for feed_id in self._panels:
            self._feeds.pause(feed_id, _WHO)


class DemoChangefeeds(Changefeeds):
    """Changefeeds whose sync points may be closer than an option allows."""

    def config_of(self, record: FeedRecord) -> FeedConfig:
        options = {name: value for name, value in record.config.items() if name != INTERVAL}
        config = super().config_of(replace(record, config=options))
        interval = record.config.get(INTERVAL)
        return config if interval is None else with_points(config, (duration_ns(interval) or 0) // 1_000_000)


@contextmanager
def served_feeds(application: Callable[[Server], Any], home: Path) -> Iterator[tuple[Feeds, str]]:
    """Run a server, as an application for its port, with its state in `home`; yield its changefeeds and the address of
    its page. Who has the token runs the demo, and may name any file. Raises EnvironmentFault if it cannot listen."""
    own = server_config(None, addr="127.0.0.1:0", data_dir=str(home / "server"), allow_path=["/"])
    with listening(own.host, own.port, "--no-server") as listener, ThreadPoolExecutor(1) as thread:
        addr = address_of(listener)
        spark = SparkHost(partial(feed_session, FAIR))
        server = Server(replace(own, addr=addr, advertise_addr=addr), spark, DemoChangefeeds)
        begun, stop = Event(), StopEvent()
        server.start()
        web = web_server(application(server), own.tls)
        ended = thread.submit(serve, web, listener, stop, begun=begun.set, ending=server.stop)
        try:
            wait_until(lambda: (begun.is_set() and server.changefeeds.is_owner) or ended.done())
            with announced(listener.getsockname()[1], server.token):
                yield ServedFeeds(server), f"{own.scheme}://{addr}/#token={server.token}"
        finally:
            stop.set()
            ended.result()
