"""The engine: one loop that brings a sink from its checkpoint to the frontier, again and again.

    1 pull      the landing appends what the source holds to the changelog (in a thread of its own)
    2 decode    in its workers, with the dead letters kept
    3 filter    tables outside the rules never land
    4 gate      the frontier: least resolved ts of all partitions, or the end of a change log
    5 cut       (checkpoint, frontier] at the DDLs, each table for itself
    6 merge     in workers, tables side by side
    7 flush     every table's commit carries its position
    8 advance   publish the snapshot: checkpoint, schema, version of every table

A crash anywhere leaves either the old checkpoint with some tables ahead of it, each knowing how far, or the new one.
Starting again is the same loop: nothing is repaired, everything is planned anew from what the lake says.

How much a round takes and how long merging rests between rounds is decided in `feed/pace.py`, where a round ends and
whether its end may be published in `feed/round.py`, how long an outage is waited out in `feed/patience.py`.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.app.config.delta_sink import DeltaSink as DeltaAddress
from tidegate.app.config.feed import FeedConfig
from tidegate.app.config.load import load
from tidegate.app.meter import Meter
from tidegate.app.outage import Outage
from tidegate.app.progress import Progress
from tidegate.app.upkeep import BUDGET_S, FAILURES, LakeUpkeep, limits_of, run_in
from tidegate.app.wiring import delta_sink, landing
from tidegate.changelog.changelog import Changelog
from tidegate.changelog.landing import BatchLoop
from tidegate.changelog.slice import ChangeSlice
from tidegate.feed.pace import BUSY_ROWS, rest_s, tasks_at_once
from tidegate.feed.patience import Patience
from tidegate.feed.plan import Round
from tidegate.feed.round import end_of_round, is_whole, plan_landed, raised
from tidegate.model.errors import TidegateError
from tidegate.model.feed_errors import RowsLackDdl
from tidegate.objectstore.failpoint import reach
from tidegate.sink.delta.sink import DeltaSink
from tidegate.sink.delta.upkeep import adopt
from tidegate.spark.session import FEED_HEAP, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Changefeed"]

IDLE_PUBLISH_S: Final = 5.0
"""With nothing to apply, how often a mere advance of the checkpoint is published."""
CALM_S: Final = 60.0
"""A landing that runs for so long without an error has a broker that answers, though nothing may come."""


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
        may be a wrong address, for some tries only. What was applied until then is published.
        """
        report, stop = on_progress or _silent, stop or threading.Event()
        until = self.config.target_ts if until is None else until
        if not isinstance(self.config.sink, DeltaAddress):  # until one engine runs every pair
            from tidegate.app.tidb_run import run_topics

            return run_topics(self.config, spark, report, stop, until=until, idle_s=idle_s)
        meter = Meter(report)
        meter.phase("starting")
        engine = _Engine(self.config, spark or session(driver_memory=FEED_HEAP), meter, stop)
        try:
            engine.start()
            engine.loop(until, idle_s)
            engine.outage.over()
        except TidegateError:
            if not engine.outage.stopped:
                raise
        finally:
            meter.phase("stopping")
            engine.stop()
        return meter.phase("stopped")


def _silent(_: Progress) -> None:
    """Nobody is watching."""


class _Engine:
    """The pieces of one run, wired."""

    def __init__(self, config: FeedConfig, spark: "SparkSession", meter: Meter, stop: threading.Event) -> None:
        assert isinstance(config.sink, DeltaAddress)
        self.config, self.address = config, config.sink
        self.spark = spark
        self.meter = meter
        self.halt = stop
        self.sink: DeltaSink = delta_sink(config)
        self.changelog = Changelog(self.sink.options.changelog_uri)
        self.landing: BatchLoop = landing(config, self.sink.options)
        self.accept = config.table_filter().matches
        self.drops = config.events.ddls()
        self.slots = 1
        """How many tasks Spark runs at the same time."""
        self.published_s = 0.0
        self.floor = 0
        """How far the tables are of a round that was cut off (feed/round.py)."""
        self.rests = True
        """False while somebody waits for the end of the run."""
        self.due_s = 0.0
        """When merging has rested enough."""
        self.heard = 0
        """Messages that this landing had brought when we looked last."""
        self.outage = Outage(Patience(config.source.max_retry, stuck_s=None), meter, stop)
        self.upkeep = LakeUpkeep(
            self.sink.options, limits_of(config.sink), interval_s=config.sink.upkeep_interval_ms / 1000, notes=True
        )

    def start(self) -> None:
        """Take up the lake where it stands and begin to land."""
        snapshot = self.sink.recover()
        self.slots = self.spark.sparkContext.defaultParallelism
        self.meter.checkpoint(snapshot.checkpoint.ts or None)
        self.outage.retrying(self.land)
        self.outage.over()
        self.outage.patience = Patience(self.config.source.max_retry, self.config.stuck_ms / 1000)

    def land(self) -> None:
        """Begin to land where the changelog stands, with a thread of its own."""
        self.landing.stop()
        self.landing = landing(self.config, self.sink.options)
        self.heard = 0
        self.landing.start(self.spark)

    def stop(self) -> None:
        """End the landing; what it committed stays."""
        self.landing.stop()

    def loop(self, until: int | None, idle_s: float | None) -> None:
        """Rounds until one of the ends of `Changefeed.run`."""
        self.rests = until is None and idle_s is None
        moved_s = time.monotonic()
        pause_s = self.address.flush_interval_ms / 1000
        while not self.halt.is_set():
            self.keep_up()
            failure = self.landing.exception()
            if self.round(until):
                moved_s = time.monotonic()
                continue
            if until is not None and self.sink.snapshot.checkpoint.ts >= until:
                return
            if failure is not None:
                self.land_again(failure)
            if idle_s is not None and time.monotonic() - moved_s >= idle_s and self.outage.retrying(self.landing.idle):
                return
            rest = self.due_s - time.monotonic()
            self.halt.wait(rest if 0 < rest < pause_s else pause_s)

    def round(self, until: int | None) -> bool:
        """One pass from checkpoint to frontier, at most to `until`; False when there was nothing to do."""
        self.changelog.refresh()
        self.listen()
        frontier = self.changelog.frontier()
        at = self.sink.snapshot.checkpoint
        if frontier is None or frontier < at.ts:
            return False
        whole = self.changelog.slice(at.ts, max(frontier, self.floor))
        if self.resting(whole):
            return False
        end = end_of_round(at.ts, frontier, whole.stretches(), until=until, floor=self.floor)
        planned, landed = self.plan(whole, end)
        if planned.units or planned.ddls:
            self.merge(planned, landed)
            self.outage.over()
            return True
        ends_early = planned.checkpoint.ts < end
        self.idle_advance(planned, now=ends_early or end == until)
        return ends_early

    def plan(self, whole: ChangeSlice, end: int) -> tuple[Round, ChangeSlice]:
        """The round up to `end`, or up to the DDL that rows behind it lack; raises when that is nothing."""
        at = self.sink.snapshot.checkpoint
        landed = whole if end == whole.upto else self.changelog.slice(at.ts, end)
        ddls, state = self.changelog.ddls(at.ts, end), self.sink.snapshot.state
        try:
            return plan_landed(state, at, ddls, end, landed, accept=self.accept, drops=self.drops), landed
        except RowsLackDdl as lack:
            if lack.ts <= max(at.ts, self.floor):
                raise
            return self.plan(whole, lack.ts)

    def resting(self, landed: ChangeSlice) -> bool:
        """True while merging rests and little waits."""
        rows = sum(group.rows for group in landed.groups)
        return self.rests and 0 < rows < BUSY_ROWS and time.monotonic() < self.due_s

    def merge(self, planned: Round, landed: ChangeSlice) -> None:
        """Steps 6 to 8 for one round; nothing is published while some tables are further than others."""
        begun_s = time.monotonic()
        rows = sum(unit.rows for unit in planned.units)
        asked = self.address.worker_count
        self.sink.workers = tasks_at_once(rows, self.slots, asked) if self.rests else asked
        self.sink.admit(planned)
        self.meter.working(planned)
        reach("round/planned")
        results = self.outage.retrying(lambda: self.sink.run(self.spark, planned.units, landed))
        reach("round/applied")
        self.floor = raised(self.floor, (result.ahead for result in results))
        if not is_whole(planned.checkpoint.ts, self.floor):
            return
        self.outage.retrying(lambda: self.sink.advance(planned, results))
        self.published_s = time.monotonic()
        rest = rest_s(self.published_s - begun_s, rows, self.address.flush_interval_ms / 1000)
        self.due_s = self.published_s + rest
        self.meter.applied(planned, results)

    def listen(self) -> None:
        """Tell how far the landing is; messages that land end an outage of the source."""
        landed = self.landing.progress()
        self.meter.landed(landed, self.changelog)
        if landed.messages > self.heard:
            self.heard = landed.messages
            self.outage.over()
        if self.landing.alive():
            self.outage.over(after_s=CALM_S)

    def keep_up(self) -> None:
        """Now and then, a short pass of upkeep; its failures are warnings, the next pass tries again."""
        if self.address.upkeep == "off" or not self.upkeep.due():
            return
        end_s = time.monotonic() + BUDGET_S
        try:
            done = self.upkeep.run(
                self.sink.snapshot,
                self.changelog.frontier(),
                run_in(self.spark),
                enough=lambda: self.halt.is_set() or time.monotonic() >= end_s,
            )
        except FAILURES as failure:
            self.meter.warn(f"upkeep: {failure}; trying again later")
            return
        reach("upkeep/before-adopt")
        self.sink.snapshot = adopt(self.sink.snapshot, done.kept)

    def idle_advance(self, planned: Round, *, now: bool) -> None:
        """Publish a checkpoint that moved without rows, now or now and then; it is no work."""
        moved = planned.checkpoint.ts > self.sink.snapshot.checkpoint.ts
        if moved and (now or time.monotonic() - self.published_s >= IDLE_PUBLISH_S):
            self.outage.retrying(lambda: self.sink.advance(planned, []))
            self.published_s = time.monotonic()
            self.meter.applied(planned, [])

    def land_again(self, failure: TidegateError) -> None:
        """Start the landing anew after a failure that may pass; raises the others."""
        self.outage.survive(failure)
        self.outage.retrying(self.land)
