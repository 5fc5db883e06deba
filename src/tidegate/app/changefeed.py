"""One changefeed, from Python: `tidegate.Changefeed(source, sink).run(spark)`."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.app.config import FeedConfig, from_uris
from tidegate.app.engine import Engine
from tidegate.app.meter import Meter
from tidegate.app.progress import Progress
from tidegate.app.tidb_address import SCHEME
from tidegate.app.wiring import feed_of, status_of
from tidegate.spark.tasks import SparkTasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidegate.app.topic_feed import TopicFeedConfig

__all__ = ["Changefeed"]


class Changefeed:
    """One source into one sink.

    `Changefeed("kafka://…", "delta://…").run(spark)` or `Changefeed(config).run()` with a FeedConfig; `tidb:///LOG` is
    a source, too, and `start_ts` where a new feed of it begins. From there to `kafka://…` a directory keeps the
    checkpoint: `state_dir`.
    """

    config: "FeedConfig | TopicFeedConfig"

    def __init__(
        self,
        source: "FeedConfig | TopicFeedConfig | str",
        sink: str | None = None,
        *,
        name: str | None = None,
        start_ts: int | None = None,
        state_dir: str | Path | None = None,
    ) -> None:
        if not isinstance(source, str):
            self.config = source
        elif source.startswith(SCHEME) and (sink or "").startswith("kafka://"):
            from tidegate.app.tidb_run import RunWords, feed_config

            state = None if state_dir is None else Path(state_dir)
            self.config = feed_config(RunWords(source, sink, state, name=name, start_ts=start_ts))
        else:
            self.config = from_uris(source, sink or "", name=name, start_ts=start_ts)

    def run(
        self,
        spark: "SparkSession | None" = None,
        *,
        on_progress: Callable[[Progress], None] | None = None,
        stop: threading.Event | None = None,
        until: int | None = None,
        idle_s: float | None = None,
    ) -> Progress:
        """Run until `stop` is set, the checkpoint reaches `until`, or nothing has come for `idle_s` seconds.

        Raises the error that ends the feed: a poison message under dead-letter=halt, a DDL that cannot be followed,
        another writer. Errors that may pass, such as a broker that is away, are waited out; one at the start, where it
        may be a wrong address, for some seconds only. What was applied until then is published.
        """
        report, stop = on_progress or _silent, stop or threading.Event()
        if not isinstance(self.config, FeedConfig):
            from tidegate.app.tidb_run import run_topics

            return run_topics(self.config, spark, report, stop, until=until, idle_s=idle_s)
        kept = status_of(self.config)

        def told(progress: Progress) -> None:
            kept.save(progress)
            report(progress)

        return Engine(feed_of(self.config), SparkTasks(spark), Meter(told), stop).run(until=until, idle_s=idle_s)


def _silent(_: Progress) -> None:
    """Nobody is watching."""
