"""Landing: the streaming query that moves topics into the changelog, batch by batch, exactly once.

    1 claim    take the changelog over (ledger.py) and read where it stands
    2 plan     offsets up to now, at most one batch                          planner, every trigger
    3 read     consume, decode, write Parquet                                executors
    4 commit   files + positions + frontier, one Delta commit                driver, foreachBatch
    5 halt     if a task stopped at a poison message, stop behind the commit

The changelog alone is the truth.  Spark's own checkpoint lives in a scratch directory and is thrown away: a landing
starts where the newest commit says, whichever batch Spark had got to.  Killed anywhere before 4, a batch leaves files
that nobody knows; killed after it, the batch is done.

Errors of the planner and of tasks reach the driver as text only; `exception` turns them back into what they were.
"""

import logging
import re
import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tidegate.feed.change import Place
from tidegate.feed.frontier import Reached
from tidegate.model import errors
from tidegate.model.errors import ConfigError, PoisonMessage, SourceError, TidegateError
from tidegate.source.kafka import ledger
from tidegate.source.kafka.changelog import changelog_uri
from tidegate.source.kafka.client import KafkaTopics, described, offsets
from tidegate.source.kafka.fetch import history_lost
from tidegate.source.kafka.messages import Accept
from tidegate.source.kafka.reader import FORMAT, TopicPlan, as_offsets, bound, start_of
from tidegate.source.kafka.report import Halt, State, TaskReport
from tidegate.source.kafka.resolution import recorded

__all__ = ["Landing", "LandingProgress"]

LOGGER: Final = logging.getLogger(__name__)
TRIGGER_MS: Final = 300
LAST_BATCH_S: Final = 20.0
"""How long a stop waits for the batch in flight; a job that is cancelled fills the log with stack traces."""
ERROR_TEXT: Final = re.compile(r"tidegate\.model\.errors\.(\w+): ([^\n]+)")
REGISTERING: Final = threading.Lock()
"""A session knows one Data Source of a name; each landing loads its own before another may register."""
REPORT: Final = msgspec.json.Decoder(TaskReport)


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
        self._lake, self._feed, self._accept, self._trigger_ms = lake, feed, accept, trigger_ms
        self._query: Any = None
        self._error: TidegateError | None = None
        self._turn = threading.Lock()
        """Held while a batch is landed, and from the stop on."""
        self._state = State()
        self._progress = LandingProgress()
        self._scratch = ""

    def start(self, spark: Any) -> None:
        """Claim the changelog and begin. Raises what is wrong with brokers, topics and positions at once."""
        assert self._query is None, "a landing starts once"
        self._state = ledger.claim(self.changelog, self._feed, self.source.decode, self._completed)
        plan = TopicPlan(
            source=self.source,
            changelog=self.changelog,
            offsets=as_offsets(self._state.positions),
            accept=self._accept,
            resolutions=recorded(self._lake),
            halted=frozenset(halt.place for halt in self._state.halted),
        )
        with REGISTERING:
            spark.dataSource.register(bound(plan))
            reports = spark.readStream.format(FORMAT).load()
        self._scratch = tempfile.mkdtemp(prefix="tidegate-landing-")
        self._query = (
            reports.writeStream.queryName(f"{self._feed}/land {self._scratch.rpartition('-')[2]}")
            .option("checkpointLocation", f"file://{self._scratch}")
            .trigger(processingTime=f"{self._trigger_ms} milliseconds")
            .foreachBatch(self._commit)
            .start()
        )

    def stop(self) -> None:
        """Stop after the batch in flight; what is committed stays, what is not was never there."""
        if self._query is not None and self._query.isActive:
            self._turn.acquire(timeout=LAST_BATCH_S)
            self._query.stop()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def alive(self) -> bool:
        """True while batches are being landed."""
        return self._error is None and self._query is not None and bool(self._query.isActive)

    def exception(self) -> TidegateError | None:
        """Why the landing ended by itself; None while it runs or after `stop`."""
        if self._error is not None:
            return self._error
        failed = self._query.exception() if self._query is not None and not self._query.isActive else None
        return None if failed is None else typed(str(failed))

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

    def _commit(self, batch: Any, _batch_id: int) -> None:
        """Steps 4 and 5 for one batch; nothing more after an error, which `exception` tells, or after `stop`."""
        if self._error is not None or not self._turn.acquire(blocking=False):
            return
        try:
            self._land([REPORT.decode(row.report) for row in batch.collect()])
        except TidegateError as failed:
            self._error = failed  # raised here, Spark would print it with three stack traces and end no sooner
        finally:
            self._turn.release()

    def _land(self, reports: list[TaskReport]) -> None:
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


def typed(text: str) -> TidegateError:
    """The error of ours that a Spark error's text carries, or a SourceError with the text's first line."""
    found = ERROR_TEXT.search(text)
    kind = getattr(errors, found[1], None) if found else None
    if found and isinstance(kind, type) and issubclass(kind, TidegateError) and kind is not errors.DecodeError:
        return kind(found[2])
    reason = next((line for line in reversed(text.partition(" SQLSTATE")[0].splitlines()) if line.strip()), text)
    return SourceError(f"landing failed: {reason.strip()}")
