"""One changefeed, from Python: `tidegate.Changefeed(source, sink).run(spark)`."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.app.config.delta_sink import DeltaSink as DeltaAddress
from tidegate.app.config.feed import FeedConfig
from tidegate.app.config.load import load
from tidegate.app.engine import Engine
from tidegate.app.meter import Meter
from tidegate.app.progress import Progress
from tidegate.app.wiring import feed_of, status_of
from tidegate.spark.tasks import SparkTasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Changefeed"]


class Changefeed:
    """One source into one sink.

    `Changefeed("kafka://…", "delta://…").run(spark)` or `Changefeed(config).run()` with a FeedConfig; `tidb:///LOG` is
    a source, too, and `start_ts` where a new feed of it begins. Into `kafka://…` a directory keeps the checkpoint:
    `state_dir`.
    """

    config: FeedConfig

    def __init__(
        self,
        source: FeedConfig | str,
        sink: str | None = None,
        *,
        name: str | None = None,
        start_ts: int | None = None,
        state_dir: str | Path | None = None,
    ) -> None:
        if not isinstance(source, str):
            self.config = source
        else:
            self.config = load(source_uri=source, sink_uri=sink, name=name, start_ts=start_ts, state_dir=state_dir)

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
        until = self.config.target_ts if until is None else until
        if not isinstance(self.config.sink, DeltaAddress):  # until one engine runs every pair
            from tidegate.app.tidb_run import run_topics

            return run_topics(self.config, spark, report, stop, until=until, idle_s=idle_s)
        kept = status_of(self.config)

        def told(progress: Progress) -> None:
            kept.save(progress)
            report(progress)

        return Engine(feed_of(self.config), SparkTasks(spark), Meter(told), stop).run(until=until, idle_s=idle_s)


def _silent(_: Progress) -> None:
    """Nobody is watching."""
