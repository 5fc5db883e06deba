"""The engine: one loop that brings a sink from its checkpoint to the frontier, again and again.

    1 pull      the landing query appends what the topics hold to the changelog (its own thread of Spark)
    2 decode    in its workers, with the dead letters kept
    3 filter    tables outside the rules never land
    4 gate      the frontier: least resolved ts of all partitions
    5 cut       (checkpoint, frontier] at the DDLs, each table for itself
    6 merge     in workers, tables side by side
    7 flush     every table's commit carries its position
    8 advance   publish the snapshot: checkpoint, schema, version of every table

A crash anywhere leaves either the old checkpoint with some tables ahead of it, each knowing how far, or the new one.
Starting again is the same loop: nothing is repaired, everything is planned anew from what the lake says.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from tidegate.app.config import FeedConfig, from_uris
from tidegate.app.meter import Meter
from tidegate.app.progress import Progress
from tidegate.app.upkeep import BUDGET_S, FAILURES, LakeUpkeep, limits_of, run_in
from tidegate.app.wiring import delta_sink, kafka_landing
from tidegate.feed.change import Layout
from tidegate.feed.pace import round_end
from tidegate.feed.plan import Landed, Round, plan_round
from tidegate.model.errors import Retry, TidegateError
from tidegate.model.table import TableName
from tidegate.sink.delta.sink import DeltaSink
from tidegate.sink.delta.upkeep import adopt
from tidegate.source.kafka.changelog import Changelog
from tidegate.source.kafka.land import Landing
from tidegate.spark.failpoint import reach
from tidegate.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Changefeed"]

IDLE_PUBLISH_S: Final = 5.0
"""With nothing to apply, how often a mere advance of the checkpoint is published."""
BACKOFF_S: Final = 1.0
BACKOFF_MAX_S: Final = 30.0


T = TypeVar("T")


class Changefeed:
    """One source into one sink.

    `Changefeed("kafka://…", "delta://…").run(spark)` or `Changefeed(config).run()` with a FeedConfig.
    """

    def __init__(self, source: FeedConfig | str, sink: str | None = None, *, name: str | None = None) -> None:
        if isinstance(source, FeedConfig):
            self.config = source
        else:
            self.config = from_uris(source, sink or "", name=name)

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
        another writer. What was applied until then is published.
        """
        meter = Meter(on_progress or _silent)
        meter.phase("starting")
        engine = _Engine(self.config, spark or session(), meter)
        try:
            engine.start()
            engine.loop(stop or threading.Event(), until, idle_s)
        finally:
            meter.phase("stopping")
            engine.stop()
        return meter.phase("stopped")


def _silent(_: Progress) -> None:
    """Nobody is watching."""


class _Engine:
    """The pieces of one run, wired."""

    def __init__(self, config: FeedConfig, spark: "SparkSession", meter: Meter) -> None:
        self.config = config
        self.spark = spark
        self.meter = meter
        self.sink: DeltaSink = delta_sink(config)
        self.changelog = Changelog(self.sink.options.changelog_uri)
        self.landing: Landing = kafka_landing(config, self.sink.options)
        self.accept = config.table_filter().matches
        self.published_s = 0.0
        self.floor = 0
        """How far the tables are of a round that was cut off: nothing below it is one state of all of them."""
        self.upkeep = LakeUpkeep(
            self.sink.options, limits_of(config), interval_s=config.sink.upkeep_interval_ms / 1000, notes=True
        )

    def start(self) -> None:
        """Take up the lake where it stands and begin to land."""
        snapshot = self.sink.recover()
        self.meter.checkpoint(snapshot.checkpoint.ts or None)
        self.retrying(self.land)

    def land(self) -> None:
        """Begin to land where the changelog stands, with a query of its own."""
        self.landing.stop()
        self.landing = kafka_landing(self.config, self.sink.options)
        self.landing.start(self.spark)

    def stop(self) -> None:
        """End the landing query; what it committed stays."""
        self.landing.stop()

    def loop(self, stop: threading.Event, until: int | None, idle_s: float | None) -> None:
        """Rounds until one of the ends of `Changefeed.run`."""
        moved_s = time.monotonic()
        pause_s = self.config.sink.flush_interval_ms / 1000
        while not stop.is_set():
            self.keep_up(stop)
            failure = self.landing.exception()
            if self.round(until):
                moved_s = time.monotonic()
                continue
            if failure is not None:
                self.land_again(failure)
            if until is not None and self.sink.snapshot.checkpoint.ts >= until:
                return
            if idle_s is not None and time.monotonic() - moved_s >= idle_s and self.retrying(self.landing.idle):
                return
            stop.wait(pause_s)

    def round(self, until: int | None) -> bool:
        """One pass from checkpoint to frontier, at most to `until`; False when there was nothing to do."""
        self.changelog.refresh()
        self.meter.landed(self.landing.progress(), self.changelog)
        frontier = self.changelog.frontier()
        at = self.sink.snapshot.checkpoint
        if frontier is None or frontier < at.ts:
            return False
        frontier = frontier if until is None else max(min(frontier, until), at.ts, self.floor)
        whole = self.changelog.slice(at.ts, frontier)
        frontier = round_end(((group.max_ts, group.rows) for group in whole.groups), frontier)
        frontier = max(frontier, self.floor)
        landed = self.changelog.slice(at.ts, frontier)
        ddls = self.changelog.ddls(at.ts, frontier)
        spans = {name: (span.rows, span.min_ts, span.max_ts) for name, span in landed.tables().items()}

        def layouts(name: TableName, upto: int) -> Sequence[Layout]:
            return landed.layouts(name, at.ts, upto)

        planned = plan_round(self.sink.snapshot.state, at, ddls, frontier, Landed(spans, layouts, self.accept))
        if not planned.units and not planned.ddls:
            return self.idle_advance(planned, now=frontier == until)
        self.sink.admit(planned)
        self.meter.working(planned)
        reach("round/planned")
        results = self.retrying(lambda: self.sink.run(self.spark, planned.units, landed))
        reach("round/applied")
        self.floor = max([self.floor, *(result.ahead for result in results)])
        if self.floor > planned.checkpoint.ts:
            return True  # some tables are further: the next round goes there, and only then all can be published
        self.retrying(lambda: self.sink.advance(planned, results))
        self.published_s = time.monotonic()
        self.meter.applied(planned, results)
        return True

    def keep_up(self, stop: threading.Event) -> None:
        """Now and then, a short pass of upkeep; its failures are warnings, the next pass tries again."""
        if self.config.sink.upkeep == "off" or not self.upkeep.due():
            return
        end_s = time.monotonic() + BUDGET_S
        try:
            done = self.upkeep.run(
                self.sink.snapshot,
                self.changelog.frontier(),
                run_in(self.spark),
                enough=lambda: stop.is_set() or time.monotonic() >= end_s,
            )
        except FAILURES as failure:
            self.meter.warn(f"upkeep: {failure}; trying again later")
            return
        self.sink.snapshot = adopt(self.sink.snapshot, done.kept)

    def idle_advance(self, planned: Round, *, now: bool) -> bool:
        """Publish a checkpoint that moved without rows, now or now and then; it is no work."""
        moved = planned.checkpoint.ts > self.sink.snapshot.checkpoint.ts
        if moved and (now or time.monotonic() - self.published_s >= IDLE_PUBLISH_S):
            self.retrying(lambda: self.sink.advance(planned, []))
            self.published_s = time.monotonic()
            self.meter.applied(planned, [])
        return False

    def land_again(self, failure: TidegateError) -> None:
        """Start the landing anew after a failure that may pass; raises the others."""
        if failure.retry is Retry.NEVER:
            raise failure
        self.meter.warn(f"{failure.code}: {failure}; trying again")
        time.sleep(BACKOFF_S)
        self.retrying(self.land)

    def retrying(self, work: Callable[[], T]) -> T:
        """`work`, tried again where the error says that this can help, with growing pauses."""
        tries = self.config.source.max_retry
        for tried in range(tries + 1):
            try:
                return work()
            except TidegateError as error:
                if error.retry is Retry.NEVER or tried == tries:
                    raise
                self.meter.warn(f"{error.code}: {error}; trying again")
                time.sleep(min(BACKOFF_S * 2**tried, BACKOFF_MAX_S))
        raise AssertionError("the last try returns or raises")
