"""Landing: the loop that moves topics into the changelog, batch by batch, exactly once.

    1 claim    take the changelog over (ledger.py) and read where it stands
    2 plan     offsets up to now, at most one batch                          driver, every trigger
    3 read     consume, decode, write Parquet                                executors, a task a partition
    4 commit   files + positions + frontier, one Delta commit                driver
    5 halt     if a task stopped at a poison message, stop behind the commit

The changelog alone is the truth: a landing starts where the newest commit says.  Killed anywhere before 4, a batch
leaves files that nobody knows; killed after it, the batch is done.

The loop has a thread of its own beside the rounds of the feed, and its jobs a group of their own in Spark.
"""

import logging
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pyspark import InheritableThread

from tidegate.feed.change import Place
from tidegate.feed.frontier import Reached
from tidegate.model.errors import ConfigError, PoisonMessage, SourceError, TidegateError
from tidegate.source.kafka import ledger
from tidegate.source.kafka.changelog import changelog_uri
from tidegate.source.kafka.client import KafkaTopics, described, offsets
from tidegate.source.kafka.fetch import history_lost
from tidegate.source.kafka.messages import Accept
from tidegate.source.kafka.reader import Planner, TopicPlan, land_range, start_of
from tidegate.source.kafka.report import Halt, State, TaskReport
from tidegate.source.kafka.resolution import recorded
from tidegate.spark.tasks import SPARK_FAILURES, reason, run_tasks

__all__ = ["Landing", "LandingProgress"]

LOGGER: Final = logging.getLogger(__name__)
TRIGGER_MS: Final = 300
"""Batches begin no sooner one after the other."""
LAST_BATCH_S: Final = 20.0
"""How long a stop waits for the batch in flight; a job that is cancelled fills the log with stack traces."""


@dataclass(frozen=True, slots=True)
class LandingProgress:
    """Totals of one landing since its start; `highs` are the ends of the partitions when they were last read."""

    batches: int = 0
    messages: int = 0
    rows: int = 0
    ddls: int = 0
    dead_letters: int = 0
    highs: Mapping[tuple[str, int], int] = field(default_factory=dict)


class Landing:
    """Lands topics into the changelog of a lake; start it once."""

    def __init__(
        self, source: KafkaTopics, lake: str, feed: str, *, accept: Accept | None = None, trigger_ms: int = TRIGGER_MS
    ) -> None:
        self.source = source
        self.changelog = changelog_uri(lake)
        self._lake, self._feed, self._accept, self._trigger_s = lake, feed, accept, trigger_ms / 1000
        self._thread: threading.Thread | None = None
        self._error: TidegateError | None = None
        self._halt = threading.Event()
        self._late = False
        """True once a stop has waited long enough: what is in flight now must not be committed."""
        self._state = State()
        self._progress = LandingProgress()

    def start(self, spark: Any) -> None:
        """Claim the changelog and begin. Raises what is wrong with brokers, topics and positions at once."""
        assert self._thread is None, "a landing starts once"
        self._state = ledger.claim(self.changelog, self._feed, self.source.decode, self._completed)
        plan = TopicPlan(
            source=self.source,
            changelog=self.changelog,
            accept=self._accept,
            resolutions=recorded(self._lake),
            halted=frozenset(halt.place for halt in self._state.halted),
        )
        self._spark, self._group = spark, f"{self._feed}/land {uuid.uuid4().hex[:8]}"
        self._thread = InheritableThread(target=self._run, args=(plan,), name=self._group, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the batch in flight; what is committed stays, what is not was never there."""
        self._halt.set()
        if self._thread is None or not self._thread.is_alive():
            return
        self._thread.join(LAST_BATCH_S)
        if self._thread.is_alive():
            self._late = True
            self._spark.sparkContext.cancelJobGroup(self._group)
            self._thread.join(LAST_BATCH_S)

    def alive(self) -> bool:
        """True while batches are being landed."""
        return self._error is None and self._thread is not None and self._thread.is_alive()

    def exception(self) -> TidegateError | None:
        """Why the landing ended by itself; None while it runs or after `stop`."""
        return self._error

    def progress(self) -> LandingProgress:
        """How much was landed since the start."""
        return self._progress

    def idle(self) -> bool:
        """True if everything that the broker has at this moment has landed."""
        known = {
            (topic, number): one.offset
            for topic, numbers in self._state.positions.items()
            for number, one in numbers.items()
        }
        highs = offsets(self.source, known, latest=True)
        return all(highs[place] <= offset for place, offset in known.items())

    def _completed(self, state: State) -> dict[str, dict[int, Reached]]:
        """The positions of `state` plus a beginning for every partition that it does not know."""
        positions = {topic: dict(numbers) for topic, numbers in state.positions.items()}
        strangers = sorted(set(positions) - set(self.source.topics))
        if strangers:
            raise ConfigError(
                f"{self.changelog} was landed from topic {strangers[0]!r} too, which is no longer subscribed: "
                "subscribe to it again, or start a fresh feed"
            )
        added = [
            (topic, number)
            for topic, numbers in described(self.source).items()
            for number in numbers
            if number not in positions.get(topic, {})
        ]
        for (topic, number), offset in start_of(self.source, added).items():
            positions.setdefault(topic, {})[number] = Reached(offset)
        self._check_kept(state.positions)
        return positions

    def _check_kept(self, positions: Mapping[str, Mapping[int, Reached]]) -> None:
        known = {(topic, number): one.offset for topic, numbers in positions.items() for number, one in numbers.items()}
        lows, highs = (offsets(self.source, known, latest=latest) for latest in (False, True))
        for place, offset in known.items():
            if not lows[place] <= offset <= highs[place]:
                raise history_lost(self.source, Place(*place, offset))

    def _run(self, plan: TopicPlan) -> None:
        """Steps 2 to 5 until a stop or an error, which `exception` tells."""
        try:
            self._spark.sparkContext.setJobGroup(self._group, f"{self._feed}: landing")
            planner = Planner(self.source)
            while not self._halt.is_set():
                begun_s = time.monotonic()
                self._batch(planner, plan)
                self._halt.wait(max(0.0, begun_s + self._trigger_s - time.monotonic()))
        except TidegateError as failed:
            self._error = failed
        except (*SPARK_FAILURES, OSError) as failed:
            self._error = None if self._halt.is_set() else SourceError(f"landing failed: {reason(failed)}")
        except Exception as failed:
            self._error = SourceError(f"landing failed: {failed!r}")
            raise

    def _batch(self, planner: Planner, plan: TopicPlan) -> None:
        ranges = planner.batch(self._state.positions)
        if not ranges:
            return
        reports = run_tasks(self._spark, partial(land_range, plan, self._state.frontier or 0), ranges)
        if not self._late:
            self._land(reports)

    def _land(self, reports: Sequence[TaskReport]) -> None:
        by_offset = self.source.order == "offset"
        self._state = ledger.commit_batch(self.changelog, self._state, reports, order_by_offset=by_offset)
        done, state = self._progress, self._state
        self._progress = LandingProgress(
            batches=done.batches + 1,
            messages=done.messages + state.messages,
            rows=done.rows + state.rows,
            ddls=done.ddls + state.ddls,
            dead_letters=done.dead_letters + state.dead,
            highs={**done.highs, **{(report.topic, report.partition): report.high for report in reports}},
        )
        LOGGER.debug("%s batch %d: %d rows, frontier %s", self._feed, state.batch, state.rows, state.frontier)
        halts = [report.halt for report in reports if report.halt is not None]
        if halts:
            raise halted(halts, self._lake)


def halted(halts: list[Halt], lake: str) -> TidegateError:
    """The error that stops a feed at `halts`."""
    first = halts[0]
    if first.order:
        return ConfigError(f"{first.place}: {first.reason}")
    at = f"{first.topic}/{first.partition}/{first.offset}"
    more = f" ({len(halts) - 1} more partitions stand still, see `tidegate dlq list {lake}`)" if halts[1:] else ""
    return PoisonMessage(
        f"{first.place}: {first.code}: {first.reason}. Everything before it has landed{more}. Ways out: look at it "
        f"with `tidegate dlq show {lake} --at {at}`; give the right bytes or options with `tidegate dlq replay {lake} "
        f"--at {at}`; leave it out with `tidegate dlq skip {lake} --at {at}`; or set dead-letter=skip. Then start the "
        "feed again"
    )
