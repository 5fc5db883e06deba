"""One changefeed, from Python: `tidegate.Changefeed(source, sink).run(spark)`; and `tidegate run --check`.

A check connects to source, sink and load-from and changes nothing, so a running changefeed is not disturbed.  The
tables of a topic, of files and of a changelog are known only as they are read; a change log has the current tables, and
each DDL so far that could not be followed.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.config.entry import FeedConfig, checkpoints_of
from tidegate.config.full_load import look_at
from tidegate.config.load import load
from tidegate.config.registry import entries_of, feed_of, forget_at_source, home_of, sink_of, status_of
from tidegate.config.uri import mask_text
from tidegate.engine.load_plan import unloaded
from tidegate.engine.loop import Engine, Meter
from tidegate.engine.ports import Checkpoints, Sink, Tasks, WithCheck
from tidegate.engine.progress import Progress
from tidegate.model.left_out import LeftOut
from tidegate.sink.callback import Callback, CallbackSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN: str = "callback://tidegate.sinks/callback"
"""The placeholder address of a caller's own sink, which has none."""


SHOWN: Final = ("messages", "rows_landed", "rows", "messages_written", "ddls", "dead_letters", "behind", "lag_ms")
"""Fields of a Progress that Spark's metrics show."""
SHOW_S: Final = 1.0
STILL_S: Final = 30.0
"""The least time between two updates, while counts change and while they do not: each costs some calls of the JVM."""


class Changefeed:
    """One source into one sink.

    Parameters:
        source: its address, such as `kafka://…` or `tidb:///LOG`, or a FeedConfig, which names the sink, too
        sink: its address, functions (`tidegate.sinks.callback(write)`), or a factory of a Sink
        name: under which progress is kept; by default it follows from both addresses
        start_ts: where a new feed of a change log begins
        state_dir: a directory or an object store for the checkpoint of a sink that stores no progress

    >>> feed = tidegate.Changefeed("tidb:///srv/log", "delta:///srv/lake")
    >>> feed.run(spark, idle_s=0).ddls > 0
    True"""

    config: FeedConfig

    def __init__(
        self,
        source: FeedConfig | str,
        sink: "str | Callback | Callable[[Checkpoints], Sink[Any]] | None" = None,
        *,
        name: str | None = None,
        start_ts: int | None = None,
        state_dir: str | Path | None = None,
    ) -> None:
        self._own = None if sink is None or isinstance(sink, str) else sink
        if not isinstance(source, str):
            self.config = source
        else:
            uri = OWN if self._own is not None else str(sink or "")
            self.config = load(source_uri=source, sink_uri=uri, name=name, start_ts=start_ts, state_dir=state_dir)

    def run(
        self,
        spark: "SparkSession | None" = None,
        *,
        tasks: Tasks | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        stop: threading.Event | None = None,
        until: int | None = None,
        idle_s: float | None = None,
        stop_when_ended: bool = False,
    ) -> Progress:
        """Run until it is stopped, and return the last progress.

        Parameters:
            spark: the session that runs tasks; by default the active one, or a new one
            tasks: stand for those of Spark
            on_progress: called with each progress
            stop: ends the run once it is set
            until: the run ends when the checkpoint reaches this TSO; the feed may go on later, unlike at the target-ts
                of its configuration, which ends what its source keeps for it
            idle_s: the run ends when no data arrived for so many seconds
            stop_when_ended: the run ends when all is applied that the writer of a change log wrote before its end

        Raises TidegateError: what ends the feed, such as a poison message under dead-letter=halt, a DDL that cannot be
        followed, another writer. Transient errors, such as an unreachable broker, are retried; one at the start, where
        it may be a wrong address, for some seconds only. Changes applied until then are published."""
        from tidegate.spark.session import check_session
        from tidegate.spark.tasks import SparkTasks, show

        if spark is not None:
            check_session(spark)
        kept = status_of(self.config)

        shown_s, shown = 0.0, dict[str, int]()

        def report(progress: Progress) -> None:
            nonlocal shown_s, shown
            kept.save(progress)
            counts = {name: getattr(progress, name) or 0 for name in SHOWN}
            rests_s = time.monotonic() - shown_s
            moved = {**counts, "lag_ms": 0} != {**shown, "lag_ms": 0}
            if rests_s >= STILL_S or (moved and (rests_s >= SHOW_S or progress.phase == "stopped")):
                shown_s, shown = time.monotonic(), counts
                show(self.config.name, counts)
            if on_progress is not None:
                on_progress(progress)

        meter = Meter(report, mask=mask_text)
        engine = Engine(
            feed_of(self.config, self._sink()), tasks or SparkTasks(spark), meter, stop or threading.Event()
        )
        target_ts = self.config.target_ts
        until = target_ts if until is None else until
        last = engine.run(until=until, idle_s=idle_s, stop_when_ended=stop_when_ended)
        if target_ts is not None and (last.checkpoint_ts or 0) >= target_ts:
            forget_at_source(self.config)
        return last

    def _sink(self) -> "Sink[Any] | None":
        if self._own is None:
            return None
        checkpoints = checkpoints_of(self.config)
        return CallbackSink(self._own, checkpoints) if isinstance(self._own, Callback) else self._own(checkpoints)


class Checked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of a check; `taken` is None if the source's tables are unknown before it is read, `sink_met` False if only
    a run connects to the sink, `loads` are the tables of the database of `option`."""

    changefeed: str
    source: str
    sink: str
    sink_met: bool
    warnings: tuple[str, ...] = ()
    taken: tuple[str, ...] | None = None
    left_out: tuple[LeftOut, ...] = ()
    loads: tuple[str, ...] | None = None
    option: str = "load-from"

    def lines(self) -> list[str]:
        """Return it for people."""
        lines = [f"source {self.source}: is there"]
        lines += [f"sink {self.sink}: {'is there' if self.sink_met else 'is met by the run alone'}"]
        if self.taken is None:
            lines += ["tables: known once the source is read"]
        else:
            lines += [f"replicates {len(self.taken)} tables: {', '.join(self.taken) or 'none'}"]
        if self.loads is not None:
            lines += [f"{self.option}: is there, {len(self.loads)} tables: {', '.join(self.loads) or 'none'}"]
        lines += [f"skips {table}" for table in self.left_out]
        return [*lines, "nothing was written"]


def meets_sink(config: FeedConfig) -> bool:
    """Connect to the sink of a changefeed, without changing it; return False if only a run does. Raises its errors."""
    sink = sink_of(config)
    try:
        return isinstance(sink, WithCheck) and sink.check()
    finally:
        sink.close()


def check(config: FeedConfig) -> Checked:
    """Connect to the source, the sink and load-from of a changefeed. Raises the errors that a run would raise."""
    source, sink = entries_of(config)
    tables = source.check(config, sink)
    plan = look_at(config, home_of(config), source, sink)
    met = meets_sink(config)
    return Checked(
        changefeed=config.name,
        source=config.source_uri,
        sink=config.sink_uri,
        sink_met=met,
        warnings=(*config.warnings, *(plan.notes if plan else ())),
        taken=None if tables is None else tables.tables,
        left_out=tuple(dict.fromkeys([*(tables.left_out if tables else ()), *(unloaded(plan) if plan else ())])),
        loads=None if plan is None else tuple(str(table.name) for table in plan.tables),
        option="definitions-from" if config.load and config.load.definitions else "load-from",
    )
