"""The engine: the one loop that brings a sink from its checkpoint to the frontier, whatever source and sink are.

Theory of operation.  What comes in are changes of an upstream database: rows with the commit timestamp of their
transaction, DDLs, and resolved timestamps, which promise that nothing older is still to come.  A source reads them
from a topic, a directory or a change log and shows them by ranges of commit_ts; the least resolved timestamp of all
its partitions is the frontier.  Up to there a range can be read any number of times and always holds the same
transactions.

What is kept is one position per feed: the checkpoint, with the schema at that timestamp.  The sink keeps it where
its data is, or in a file beside it (engine/checkpoints.py), and replaces it in one atomic write.  Everything at or
below the checkpoint is in the target, durably.  The engine itself keeps nothing that outlives the process.

What goes out are rounds.  A round is one turn of the loop: it takes (checkpoint, end] with the end at or below the
frontier, cut at the DDLs as the sink's barrier asks.  The pure planner (engine/plan.py, engine/segment.py) turns the
range into units of work and the schema after them; the sink's tasks read the rows they need, decode, filter, encode
or merge, and write; with barrier ALL the DDLs at the round's end follow one by one; at last the checkpoint advances
to the end, and the source may forget what lies behind it.

    1 poll      the source for new data (one that lands does so in a thread of its own)
    2 decode    or mount: in tasks, whenever rows are read
    3 filter    tables and rows outside the rules, in those tasks; DDLs where they are planned
    4 gate      the frontier: nothing at or below it is still to come; earlier where the sink wants to be read
    5 cut       (checkpoint, end] at the DDLs
    6 route     and encode, or merge: in tasks of the sink
    7 write     and flush; then, with barrier ALL, the DDLs at the round's end
    8 advance   the checkpoint, and the source's safe point behind it

A crash needs no repair because there is nothing half-valid to find.  It leaves the old checkpoint or the new one,
and what was written above the old one is written again: planning depends on its arguments alone, so the next run
cuts the same steps, and a sink's writes can be repeated (it skips a position that a table has reached, overwrites by
key, or sends the message again, as its class says).  Starting after a crash, after a stop and for the first time are
the same code.

An error's `retry` decides what happens: with LATER the engine waits and tries again (engine/retry_policy.py), and
reports the error until the feed makes progress; NEVER ends the run with the checkpoint where it was.  Parked tables
are resumed before a round, if a user asks for it (`resume_parked`).

Where the API of OpenTelemetry is set up, each round, and in it its read, each write, DDL and advance, is a span.
The Meter turns what happens into Progress reports, whose state is:

    pending ──started──► normal ◄──recovered── warning       (an error is waited out)
                           │  └────error──────► ▲ │
                           └─ end: finished, stopped ─┴─ failed
"""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count
from typing import Any, Final, TypeVar, cast

import msgspec

from tidegate.engine.change import rest_of
from tidegate.engine.load_plan import begins_above
from tidegate.engine.log_fields import context, fields
from tidegate.engine.plan import Barrier, Checkpoint, Drops, PlannedDdl, Round
from tidegate.engine.ports import (
    BUSY_ROWS,
    Changes,
    Parked,
    Result,
    RoundLimit,
    RowRange,
    SegmentSink,
    Sink,
    SinkPosition,
    Source,
    Tasks,
    WithAdmission,
    WithGate,
    WithOmissions,
    WithParking,
    WithReload,
    WithStart,
    WithUpkeep,
    blamed,
    parks,
    rest_s,
    touched,
)
from tidegate.engine.progress import FeedError, PartitionProgress, Progress, TableProgress, now
from tidegate.engine.reading import LoadProgress, Reading, ReloadProgress
from tidegate.engine.reload import Reloads
from tidegate.engine.retry_policy import Outage, RetryPolicy, retry
from tidegate.engine.segment import Planning, end_of_round, is_whole, plan_from, raised, run_ddls, run_end, segment_end
from tidegate.model.errors import Fenced, Overtaken, SinkRefused, SourceBehind, TidegateError
from tidegate.model.left_out import LeftOut
from tidegate.model.path_counts import PathCounts
from tidegate.model.tso import physical_ms, shown_ts, to_datetime
from tidegate.objectstore.failpoint import failpoint
from tidegate.objectstore.stores import STORE_ERRORS, first_line, store_error
from tidegate.schema.state import SchemaState

NAME: Final = "tidegate"
LOG: Final = logging.getLogger(__name__)
LOG.addHandler(logging.NullHandler())  # without a log, a program has the same words in its Progress

Span = AbstractContextManager[Any]


def span(name: str, begun_ns: int | None = None, **attributes: str | int) -> Span:
    """Return a tracing span for a block, or from a time before it, in ns of Unix time; its name and attributes, the
    log's fields among them, begin with `tidegate.`."""
    about = {f"{NAME}.{key}": value for key, value in {**context(), **attributes}.items()}
    return _opener()(f"{NAME}.{name}", about, begun_ns)


@cache
def _opener() -> Callable[[str, dict[str, str | int], int | None], Span]:
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        return lambda *_: nullcontext()
    tracer = trace.get_tracer(NAME)
    return lambda name, about, begun_ns: tracer.start_as_current_span(name, attributes=about, start_time=begun_ns)


SPANS: Final = frozenset({"write", "ddl", "publish"})
WINDOW_S: Final = 10.0
"""The window over which rates are averaged."""
SILENT_AFTER_S: Final = 60.0
"""A changefeed resolves about every second; a partition that has not resolved for this long is reported, since it holds
all tables back."""


class Meter:
    """Keeps the last report and sends each new one to `report`."""

    def __init__(
        self,
        report: Callable[[Progress], None],
        *,
        silent_after_s: float = SILENT_AFTER_S,
        mask: Callable[[str], str] = str,
    ) -> None:
        self.report = report
        self.silent_after_s = silent_after_s
        self._mask = mask
        """Hides the secrets of a text that is logged."""
        self.moved: dict[tuple[str, int], tuple[int | None, float]] = {}
        """Partition -> its resolved ts, and the time at which that was first seen."""
        self.begun_s = time.monotonic()
        self.now = Progress("starting", since=now())
        self.lock = threading.RLock()
        """Guards `now`, since the thread that needs Spark reports its start."""
        self.tables: dict[str, TableProgress] = {}
        self.landed, self.written = PathCounts(), PathCounts()
        """Rows by path, as the source and the results reported them."""
        self.load_begun: dict[int, tuple[float, int]] = {}
        """S of a load -> the time and the bytes at which this run's part of it began."""
        self.corrupt = 0
        self.history: deque[tuple[float, tuple[int, ...]]] = deque()
        self.spent_s: Counter[str] = Counter()

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time of a block to a phase of the rounds; phases that change something are tracing spans, too."""
        begun_s = time.monotonic()
        try:
            with span(phase) if phase in SPANS else nullcontext():
                yield
        finally:
            self.spent_s[phase] += time.monotonic() - begun_s  # type: ignore[assignment]

    def _log(self, level: int, text: str, error: TidegateError | None = None) -> None:
        LOG.log(level, "%s", self._mask(text), extra={"error": error})

    def send(self, **changes: object) -> Progress:
        """Report what changed."""
        with self.lock:
            changed = replace(self.now, elapsed_s=time.monotonic() - self.begun_s, **changes)  # type: ignore[arg-type]
            self.now = changed.at(int(time.time() * 1000))
            self.report(self.now)
            return self.now

    def waiting(self, what: str) -> None:
        """Report what the run is waiting for; "" if it no longer waits."""
        self.send(waits_for=what)

    def enter(self, state: str, **changes: object) -> Progress:
        """Report a state; its time starts now if it differs from the last one."""
        since = self.now.since if state == self.now.state else now()
        return self.send(state=state, since=since, **changes)

    def ended(self, state: str) -> Progress:
        """Report the end of the run: stopped or finished."""
        return self.enter(state, phase="stopped", ddl=None)

    def warn(self, text: str) -> None:
        """Report a warning to the user; each text once."""
        if text not in self.now.warnings:
            self._log(logging.WARNING, text)
            self._warned(text)

    def _warned(self, text: str) -> None:
        if text not in self.now.warnings:
            self.send(warnings=(*self.now.warnings, text))

    def withdraw(self, text: str) -> None:
        """Remove a warning that no longer holds; it stays in the log."""
        self.send(warnings=tuple(each for each in self.now.warnings if each != text))

    def failing(self, error: TidegateError, *, tries: int, next_s: float, reported: bool) -> None:
        """Report an error that is retried: the `tries`th of an outage, the next try after `next_s`. It is a warning,
        too, unless the error was `reported` before."""
        shown = self._shown(error, tries, next_s)
        self.enter("warning", error=shown)
        self._log(logging.WARNING, f"try {tries} failed, the next is in {next_s:.1f} s: {error}", error)
        if not reported:
            self._warned(f"{error.code}: {error}; retrying")

    def failed(self, error: TidegateError, *, tries: int) -> Progress:
        """Report the error that ended the feed."""
        self._log(logging.ERROR, f"the changefeed has failed: {error}", error)
        return self.enter("failed", error=self._shown(error, tries, None), phase="stopped", ddl=None)

    def _shown(self, error: TidegateError, tries: int, next_s: float | None) -> FeedError:
        before = self.now.error
        since = before.since if before is not None and tries > 1 else now()
        return FeedError.of(error, since=since, tries=tries, next_try_s=next_s)

    def recovered(self) -> None:
        """Report that an outage is over."""
        LOG.info("the outage is over")
        self.enter("normal", error=None)

    def started(self, ts: int, *, resumed: bool) -> None:
        """Report the start position of the feed."""
        LOG.info("the changefeed %s at ts %d", "goes on" if resumed else "begins", ts)
        self.enter("normal", checkpoint_ts=ts or None, resumed=resumed, phase="running")

    def read(self, reading: Reading, frontier: int | None, reload: ReloadProgress | None = None) -> None:
        """Report the progress of the source, and of a reload."""
        if reload is not None:
            before = None if self.now.reload is None else self.now.reload.load
            reload = msgspec.structs.replace(reload, load=self.measured(reload.load, before))
        self.landed = reading.path_counts
        partitions = tuple(PartitionProgress(*fields) for fields in reading.partitions)
        self.send(
            lands=reading.lands,
            load=self.measured(reading.load, self.now.load),
            reload=reload,
            capture=reading.capture,
            rows_landed=reading.rows,
            messages=reading.messages,
            dead_letters=reading.dead_letters,
            frontier_ts=frontier,
            begin_ts=reading.begin_ts,
            jobs=reading.jobs,
            partitions=partitions,
            table_ids=reading.table_ids,
            corrupt=self.corrupt + reading.corrupt,
            **self._rows_by_path(),
            spent_s=dict(self.spent_s),
        )
        self.listen(partitions)

    def measured(self, load: LoadProgress | None, before: LoadProgress | None = None) -> LoadProgress | None:
        """Return the progress of a load with its duration, its rate, and the time that it still takes; `before` is its
        last."""
        if load is None or (load.is_done and (before is None or before.is_done)):
            return load and msgspec.structs.replace(load, duration_s=before.duration_s if before else 0.0)
        now_s = time.monotonic()
        begun_s, begun = self.load_begun.setdefault(load.ts, (now_s, load.bytes_done))
        took_s = now_s - begun_s
        rate = (load.bytes_done - begun) / took_s if took_s and not load.is_done else 0.0
        left_s = (load.size_bytes - load.bytes_done) / rate if rate else 0.0
        return msgspec.structs.replace(load, bytes_per_s=rate, left_s=left_s, duration_s=took_s)

    def listen(self, partitions: Sequence[PartitionProgress]) -> None:
        """Warn of partitions that are read to their end and have not resolved for long."""
        now_s = time.monotonic()
        silent = []
        for partition in partitions:
            key = partition.topic, partition.partition
            if key not in self.moved or self.moved[key][0] != partition.resolved_ts:
                self.moved[key] = partition.resolved_ts, now_s
            read = partition.high is not None and partition.offset >= partition.high
            if read and now_s - self.moved[key][1] >= self.silent_after_s:
                silent.append(partition)
        if silent and len(silent) == len(partitions):
            self.warn(f"no partition has received a resolved ts for {self.silent_after_s:.0f} s. Is TiCDC running?")
            return
        for partition in silent:
            ts = partition.resolved_ts
            since = "at all" if ts is None else f"since {to_datetime(ts):%Y-%m-%d %H:%M:%S}"
            name = f"topic {partition.topic} partition {partition.partition}"
            self.warn(f"{name}: no resolved ts {since}; all tables wait for it")

    def working(self, planned: Round) -> None:
        """Report that a round with DDLs or rows is about to run."""
        if planned.ddls:
            self.send(ddl=planned.ddls[0].query)

    def advanced(self, planned: Round, results: Sequence[Result]) -> None:
        """Report a round that is done and published."""
        ts = planned.resolved_ts
        for ddl in planned.ddls:
            self._log(logging.INFO, f"DDL at ts {ddl.commit_ts}: {ddl.query[:1000]}")
        LOG.debug("%d rows, %d DDLs up to ts %d", planned.rows, len(planned.ddls), ts)
        self._count_tables(planned, results, ts)
        for result in results:
            self.written.update(result.path_counts)
            self.corrupt += result.corrupt
        written, load = sum(result.rows for result in results), self.now.load
        size_bytes = self.now.bytes_written + sum(result.size_bytes for result in results)
        rows, loads = self.now.rows + written, load is not None and load.ts - load.chunks < ts <= load.ts
        rows_per_s, bytes_per_s = self.rates(rows, size_bytes)
        self.send(
            rows=rows,
            rows_loaded=self.now.rows_loaded + (written if loads else 0),
            rows_per_s=rows_per_s,
            bytes_written=size_bytes,
            bytes_per_s=bytes_per_s,
            messages_written=self.now.messages_written + sum(result.messages for result in results),
            checkpoint_ts=ts,
            tables=tuple(sorted(self.tables.values(), key=lambda table: table.name)),
            ddl=None,
            ddls=self.now.ddls + len(planned.ddls),
            ddls_left_out=self.now.ddls_left_out + planned.left_out,
            watermarks=self.now.watermarks + 1,
            **self._rows_by_path(),
            corrupt=self.corrupt,
        )
        for name in self.now.undecodable:
            self.warn(f"column {name} has texts that are no UTF-8: they are loaded as they are, messages replace them")
        for warning in planned.warnings:
            self.warn(warning)

    def _rows_by_path(self) -> dict[str, object]:
        every = self.landed + self.written
        return {
            "roads": every.by_path(),
            "slow_roads": every.slow(),
            "rows_left_out": every.left_out,
            "undecodable": every.undecodable,
        }

    def leave_out(self, tables: Iterable[LeftOut]) -> None:
        """Report the tables left out, and warn of the new ones."""
        now = tuple(dict.fromkeys(tables))
        if now == self.now.left_out:
            return
        new = [str(table) for table in now if table not in self.now.left_out]
        self.send(left_out=now)
        if new:
            self.warn(f"not replicated: {'; '.join(new)}")

    def park(self, groups: Sequence[Parked]) -> None:
        """Report the parked tables, and warn of new ones and of those with another error."""
        before = set(self.now.parked)
        parked = tuple(FeedError.of_parked(group, name) for group in groups for name in group.names)
        if before == set(parked):
            return
        self.send(parked=parked)
        for table in parked:
            if table not in before:
                self.warn(f"table {table.table} is parked, the others continue: {table.code}: {table.message}")

    def _count_tables(self, planned: Round, results: Sequence[Result], ts: int) -> None:
        for result in results:
            for table, rows in result.by_table.items():
                name = str(table)
                before = self.tables.get(name)
                self.tables[name] = TableProgress(name, rows + (before.rows if before else 0), ts)
        alive = {str(table.name) for table in planned.state.tables.values()}
        self.tables = {name: table for name, table in self.tables.items() if name in alive}

    def rates(self, *totals: int) -> list[float]:
        """Return the growth of totals per second over the last window."""
        now_s = time.monotonic()
        self.history.append((now_s, totals))
        while self.history[0][0] < now_s - WINDOW_S and len(self.history) > 1:
            self.history.popleft()
        begun_s, begun = self.history[0]
        took_s = now_s - begun_s
        return [(total - before) / took_s if took_s else 0.0 for total, before in zip(totals, begun, strict=True)]


T = TypeVar("T")


class Retrier(Outage):
    """The retries of a feed: an outage is waited out until a stop, and reported."""

    def __init__(self, policy: RetryPolicy, meter: Meter, stop: threading.Event) -> None:
        super().__init__(policy)
        self._meter, self._stop = meter, stop
        self._beside = False
        self.stopped = False
        """True once a stop has ended the waiting."""

    def retrying(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, which is retried as long as its errors are retryable and the policy allows."""
        tries = count()

        def stored() -> T:
            try:
                return work()
            except STORE_ERRORS as away:
                raise store_error(away) from away

        return retry(stored, lambda error: self.survive(error, reported=next(tries) > 0))

    def survive(self, error: TidegateError, *, beside: bool = False, reported: bool = False) -> None:
        """Wait until the next try is due; raise `error` when it is not retryable, or a stop is requested. `beside`: the
        error came from an activity beside the rounds, which notice it only from time to time. `reported`: the same work
        has failed before, so that users were warned."""
        pause_s = self.pause_s(error)
        self._beside = self._beside or beside
        reported = reported or (beside and self.errors > 1)
        self._meter.failing(error, tries=self.errors, next_s=pause_s, reported=reported)
        self.stopped = self._stop.wait(pause_s)
        if self.stopped:
            raise error

    def recovered(self, *, after_s: float = 0.0) -> bool:
        """Report the end of an outage."""
        ends = super().recovered(after_s=after_s)
        if ends:
            self._beside = False
            self._meter.recovered()
        return ends

    def idle(self, after_s: float) -> None:
        """Note a round without work or errors; `after_s` without errors end an outage beside the rounds, too."""
        self.recovered(after_s=after_s if self._beside else 0.0)


START_S: Final = 5.0
"""Time after the start for which a failing first connection is retried: an address that does not answer may be wrong.
With a last try that takes its time limit of 10 s, that is 15 s in all."""
CALM_S: Final = 60.0
"""After this long without an error an outage of the source is over, even if no data came."""
WAITS_S: Final = 10.0
"""Time without a new frontier after which a run with an end reports what it waits for; resolved ts come each second."""
POLL_S: Final = 0.2
"""The pause between polls of a source without new data."""
UPKEEP_S: Final = 2.0
"""Time limit of one pass of upkeep, which holds up the rounds."""


@dataclass(frozen=True, slots=True)
class Feed:
    """One changefeed, ready to run: `accept` selects its tables, `takes` and `drops` its DDLs."""

    name: str
    source: Source
    sink: Sink[Any]
    accept: Callable[[str, str], bool]
    takes: Drops | None = None
    drops: Drops | None = None
    patience: RetryPolicy = field(default_factory=RetryPolicy)

    def planning(self, barrier: Barrier) -> Planning:
        return Planning(self.accept, self.drops, self.takes, barrier)


class Engine:
    """One run of a feed; use it once."""

    def __init__(self, feed: Feed, tasks: Tasks, meter: Meter, stop: threading.Event) -> None:
        self.feed, self.source, self.sink = feed, feed.source, feed.sink
        self.tasks, self.meter, self.halt = tasks, meter, stop
        if isinstance(tasks, WithStart):
            tasks.on_start(meter.waiting)
        self.position = SinkPosition(Checkpoint(), SchemaState(), is_new=True)
        self.outage = Retrier(replace(feed.patience, stuck_s=None, most_s=START_S), meter, stop)
        self.reloads: Reloads | None = None
        self.floor = 0
        """The furthest position of the tables in a round that was cut off (engine/segment.py)."""
        self.messages_seen = 0
        """The source's count of messages at the last poll."""
        self.stands_since: tuple[tuple[int | None, int], float] = (None, 0), time.monotonic()
        """The last frontier and count of messages, and when the source reached them."""
        self.published_s = 0.0
        self.due_s = 0.0
        """The time at which merging may continue."""

    def run(self, *, until: int | None = None, idle_s: float | None = None, stop_when_ended: bool = False) -> Progress:
        """Run until the stop is set, the checkpoint reaches `until` or the end of the source, no data arrived for
        `idle_s` seconds, or, with `stop_when_ended`, the source's writer has ended and everything that it wrote is
        applied.

        Raises the error that ends the feed. Retryable errors are retried; at the start, where the address may be
        wrong, for some seconds only. Work that was done before the error is published."""
        with fields(**{"changefeed": self.feed.name, **context()}):
            return self._run(until, idle_s, stop_when_ended=stop_when_ended)

    def _run(self, until: int | None, idle_s: float | None, *, stop_when_ended: bool) -> Progress:
        self.meter.enter("pending")
        try:
            with self.sink.run_lock():
                try:
                    if self.begin(idle_s):
                        until = self.source.ends_at() or (until and max(until, self.source.whole_from()))
                        self.loop(until, idle_s, stop_when_ended=stop_when_ended)
                finally:
                    self.meter.send(phase="stopping")
                    if self.reloads is not None:
                        self.reloads.close()
                    self.source.stop()
                    self.sink.close()
        except TidegateError as error:
            if not self.outage.stopped:
                self.meter.failed(error, tries=max(self.outage.errors, 1))
                raise
        return self.meter.ended("finished" if self._reached(until) else "stopped")

    def begin(self, idle_s: float | None) -> bool:
        """Recover the sink's position and start the source; False if a stop or `idle_s` ended the wait for it."""
        position = self.outage.retrying(self.sink.recover)
        checkpoint_ts = None if position.is_new else position.checkpoint.ts
        self.source.look_at(self.sink)
        if checkpoint_ts is not None:
            self.carry(position.state)
        begun = self.wait_for_source(checkpoint_ts, idle_s)
        if begun is None:
            return False
        self.sink.epoch = self.source.epoch()
        self.position = position = self.start_position(position, begun)
        self.outage.retrying(lambda: self.sink.open(position))
        if isinstance(self.sink, WithReload):
            self.reloads = Reloads(self.source, self.sink, self.tasks, self.feed.patience, self.meter.warn)
        parked = self.release(begun)
        self.meter.park(parked)
        self.meter.started(position.checkpoint.ts, resumed=checkpoint_ts is not None)
        self.outage.recovered()
        self.outage.policy = self.feed.patience
        return True

    def start_position(self, position: SinkPosition, begun: int) -> SinkPosition:
        """Return the start position, with the tables that only the source knows: all tables of a new feed or of a
        checkpoint without a schema, and tables that new filter rules add, whose rows of before the target lacks."""
        state = position.state.with_unknown(self.source.definitions(begun), self.source.databases(begun))
        added = [state.tables[key].name for key in state.tables.keys() - position.state.tables.keys()]
        if added and position.state.tables:
            self.meter.warn(begins_above(added))
        return SinkPosition(Checkpoint(begun) if position.is_new else position.checkpoint, state)

    def carry(self, state: SchemaState) -> None:
        """Pass the sink's tables to the source, unless its checkpoint has no schema."""
        if state.tables:
            self.source.carry(state)

    def wait_for_source(self, checkpoint_ts: int | None, idle_s: float | None) -> int | None:
        """Return the start position once the source has reached `checkpoint_ts`; None if the wait ended before."""
        begun_s = time.monotonic()

        def start() -> int | SourceBehind:
            try:
                return self.source.start(self.tasks, checkpoint_ts)
            except SourceBehind as behind:
                return behind

        waits = ""
        while isinstance(started := self.outage.retrying(start), SourceBehind):
            if waits != str(started):
                self.meter.withdraw(waits)
            self.meter.warn(waits := str(started))
            self.meter.send()  # whoever reads the reports hears that it lives
            if idle_s is not None and time.monotonic() - begun_s >= idle_s:
                return None
            if self.halt.wait(POLL_S):
                return None
        self.meter.withdraw(waits)
        return started

    def loop(self, until: int | None, idle_s: float | None, *, stop_when_ended: bool = False) -> None:
        """Do rounds until one of the ends of `run`."""
        if until is not None or idle_s is not None:
            self.sink.flush_policy = replace(self.sink.flush_policy, rests=False)
        moved_s, silent = time.monotonic(), False
        while not self.halt.is_set():
            self.tidy_up()
            self.resume_tables()
            self.reload_tables()
            failure = self.source.failure() or (None if self.sink.fences else self.source.replaced())
            busy = self.reloads is not None and self.reloads.busy
            if isinstance(failure, Fenced) or (failure is not None and busy):
                self.restart_source(failure)
                continue
            if self.round(until):
                moved_s, silent = time.monotonic(), False
                continue
            if self.reloads is not None and self.reloads.busy:
                self.reloads.wait(POLL_S)
                moved_s, silent = time.monotonic(), False
                continue
            if self._reached(until):
                return
            self.waits_for(until)
            if failure is None:
                self.outage.idle(CALM_S)
            else:
                self.restart_source(failure)
                silent = False
            ended = stop_when_ended and self.source.ended()
            if ended or (idle_s is not None and time.monotonic() - moved_s >= idle_s):
                if silent:
                    if ended:
                        shown = shown_ts(self.position.checkpoint.ts)
                        self.meter.warn(
                            f"the writer of the source has ended at {shown}: everything that it wrote is in the sink"
                        )
                    return
                silent = self.outage.retrying(self.source.idle)
                if silent:  # one more round: what made it idle may have come behind the last one
                    continue
            pause_s, rest = self.sink.flush_policy.flush_s, self.due_s - time.monotonic()
            with self.meter.timed("wait"):
                self.halt.wait(rest if 0 < rest < pause_s else pause_s)

    def resume_tables(self) -> None:
        """Resume the parked tables for which a user has requested it."""
        if isinstance(self.sink, WithParking):
            for group, state in self.outage.retrying(self.sink.resuming):
                self.resume_parked(self.sink, group, state)

    def reload_tables(self) -> None:
        """Take the next step of the tables that are loaded beside the rounds."""
        if (reloads := self.reloads) is None:
            return
        what, group = self.outage.retrying(partial(reloads.step, self.position.checkpoint.ts)), reloads.group()
        if what == "park":
            tables, position = reloads.parts(self.position)
            self.outage.retrying(partial(reloads.sink.await_tables, tables, position))
        elif what == "drop" and group is not None:
            reloads.sink.resumed(group, SinkRefused("the reload has failed"))
        elif what == "resume" and group is not None:
            self.resume_parked(reloads.sink, group, self.outage.retrying(partial(reloads.sink.state_of, group)))
            return
        if what:
            self.advance(Round((), self.position.state, self.position.checkpoint, (), ()), ())
            failpoint("reload/parked")

    def round(self, until: int | None) -> bool:
        """Do one round; restart it without a message that cannot be applied, if the source may leave that out."""
        try:
            return self.steps(until)
        except TidegateError as error:
            refused = error
            if not self.outage.retrying(lambda: self.source.refused(refused)):
                raise
            return True

    def steps(self, until: int | None) -> bool:
        """Do steps 1 to 8 once, up to `until` at most; return False when there was nothing to do."""
        if self.reloads is not None:
            until = self.reloads.bound(until, self.position.checkpoint.ts)
        bound = self.outage.retrying(partial(self.source.at, self.position))
        begun_ns = time.time_ns()
        with self.meter.timed("read"):
            self.outage.retrying(self.source.refresh)  # 1 pull; 2 decode and 3 filter happen in tasks
        self.sink.whole_from = self.source.whole_from(self.position.checkpoint.ts)
        frontier = self.source.frontier()  # 4 gate
        self.report_reading(frontier)
        checkpoint = self.position.checkpoint
        if frontier is None or frontier < checkpoint.ts:
            return False
        gate = None
        if (rest := self.source.rests_at(checkpoint.ts)) > checkpoint.ts:
            until = rest  # at once, whoever waits for the checkpoint
        elif isinstance(self.sink, WithGate):
            gate = self.outage.retrying(partial(self.sink.gate, checkpoint.ts))
        until = min((ts for ts in (until, bound, gate) if ts is not None), default=None)
        with self.meter.timed("read"):
            ddls = self.outage.retrying(partial(self.source.ddls, checkpoint.ts, frontier))
            goal = max(frontier, self.floor)
            if self.sink.barrier is Barrier.ALL:
                goal = self.outage.retrying(partial(run_end, checkpoint, ddls, goal, self.source.changes))
            elif self.sink.flush_policy.each_ddl:
                goal = segment_end(checkpoint, ddls, goal)
            whole = self.outage.retrying(partial(self.source.changes, checkpoint.ts, goal))
            waiting = self.outage.retrying(lambda: list(whole.row_ranges()))
        if self.resting(waiting):
            return False
        end = end_of_round(checkpoint.ts, goal, waiting, until=until, floor=self.floor, limit=self.limit(checkpoint.ts))
        if end < min(goal, goal if bound is None else bound):
            end = rest_of(ddls, end)
        with self.meter.timed("read"):
            planned, changes = self.outage.retrying(partial(self.plan, self.position, whole, end))  # 5 cut
        if not planned.is_idle:
            with fields(round=planned.checkpoint.ts), span("round", begun_ns, rows=planned.rows):
                with span("read", begun_ns):
                    LOG.debug("a round of %d rows has been read", planned.rows)
                self.write(planned, changes)
            self.outage.recovered()
            return True
        ends_early = planned.checkpoint.ts < (frontier if until is None else min(frontier, until))
        through = gate is not None and checkpoint.ts < gate <= planned.checkpoint.ts
        self.idle_advance(planned, now=ends_early or through or (until is not None and end >= until))
        return ends_early or through

    def plan(self, position: SinkPosition, whole: Changes, end: int) -> tuple[Round, Changes]:
        """Return the round from `position` to `end`, or to the DDL that later rows lack: RowsLackDdl if it is empty."""
        return plan_from(self.source, position, whole, end, self.feed.planning(self.sink.barrier), floor=self.floor)

    def write(self, planned: Round, changes: Changes) -> None:
        """Do steps 6 to 8 for one round; publish nothing while tables are at different positions."""
        begun_s = time.monotonic()
        if isinstance(self.sink, WithAdmission):
            self.sink.admit(planned)
        self.meter.working(planned)
        failpoint("round/planned")
        with self.meter.timed("write"):
            results = self.outage.retrying(partial(self.apply, planned, changes))  # 6 route, 7 write
        failpoint("round/applied")
        before, self.floor = self.floor, raised(self.floor, (result.ahead for result in results))
        if not is_whole(planned.checkpoint.ts, self.floor):
            if self.floor == before:
                raise Fenced(f"tables are at ts {self.floor}, which no round reaches: another run has written them")
            return
        planned = run_ddls(planned, self.execute, self.halt.is_set)
        self.advance(planned, results)  # 8 advance
        if self.sink.flush_policy.rests:
            rest = rest_s(self.published_s - begun_s, planned.rows, self.sink.flush_policy.flush_s)
            self.due_s = self.published_s + rest

    def execute(self, ddl: PlannedDdl) -> None:
        """Let the sink execute a DDL."""
        with self.meter.timed("ddl"):
            self.outage.retrying(partial(cast("SegmentSink[Any]", self.sink).ddl, ddl))

    def apply(self, planned: Round, changes: Changes) -> Sequence[Result]:
        """Apply a round to the sink; an error about a table that was inferred from messages names these."""
        try:
            return self.sink.run(self.source.limited(self.tasks), planned.segment or planned.units, changes)
        except TidegateError as error:
            blamed(error, planned.row_steps, changes)
            raise

    def release(self, checkpoint_ts: int) -> Sequence[Parked]:
        """Let the source forget what no table needs any more; return the parked tables, which need more."""
        parked = self.sink.parked() if isinstance(self.sink, WithParking) else ()
        needed = min((checkpoint_ts, *(group.checkpoint.ts for group in parked)))
        self.outage.retrying(partial(self.source.release, needed))
        return parked

    def advance(self, planned: Round, results: Sequence[Result]) -> None:
        """Publish the end of a round as the checkpoint."""
        before = self.position.state.tables
        with self.meter.timed("publish"):
            try:
                self.position = self.outage.retrying(lambda: self.sink.advance(planned, results))
            except Overtaken as overtaken:
                self.meter.warn(str(overtaken))
                self.recover_sink()
                return
            parked = self.release(planned.checkpoint.ts)
        self.published_s = time.monotonic()
        self.meter.advanced(planned, results)
        if planned.state.tables is not before:
            incarnations = {table.incarnation for table in before.values()}
            new = [table for key, table in planned.state.tables.items() if key not in before and table.inferred]
            if names := [table.name for table in new if table.incarnation not in incarnations]:
                self.meter.warn(begins_above(names))
        self.meter.park(parked)

    def recover_sink(self) -> None:
        """Continue from the sink's position, which an earlier run has moved since this one began."""
        position = self.outage.retrying(self.sink.recover)
        self.position = position = self.start_position(position, position.checkpoint.ts)
        self.outage.retrying(lambda: self.sink.open(position))
        self.floor, self.published_s = 0, time.monotonic()

    def resume_parked(self, sink: WithParking, group: Parked, state: SchemaState) -> None:
        """Bring parked tables from their position to the checkpoint, once the source shows all up to it, and publish
        them; tables that are refused again stay parked, with the new error. Those of a reload take their names, or
        go."""
        self.outage.retrying(self.source.refresh)
        if (self.source.frontier() or 0) < self.position.checkpoint.ts:
            return
        position, goal, tables = (
            SinkPosition(group.checkpoint, state),
            self.position.checkpoint,
            frozenset(group.incarnations),
        )
        loaded = self.reloads if group.loads else None
        done: list[Result] = []
        refused: TidegateError | None = None
        behind = True
        try:
            while behind:
                if self.halt.is_set():
                    return
                planned, changes = self.outage.retrying(partial(self.next_part, position, goal.ts))
                units, tables = touched(planned.units, tables)
                if loaded is not None:
                    loaded.check(tables)
                done += self.outage.retrying(partial(sink.resume, self.source.limited(self.tasks), units, changes))
                position = SinkPosition(planned.checkpoint, planned.state)
                behind = planned.checkpoint.ts < goal.ts
            self.outage.recovered()
        except TidegateError as error:
            met = error
            if self.outage.retrying(lambda: self.source.refused(met)):
                return
            if not parks(error):
                raise
            done, refused = [], error
        if loaded is not None and refused is not None:
            loaded.end(refused)
        if loaded is None or refused is not None:
            position = SinkPosition(goal, self.position.state)
        failpoint("reload/caught-up")
        sink.resumed(group, refused)
        self.advance(Round((), position.state, position.checkpoint, (), ()), done)
        if loaded is not None and refused is None:
            failpoint("reload/swapped")
            loaded.end(None)

    def next_part(self, position: SinkPosition, goal: int) -> tuple[Round, Changes]:
        """Return the next part, at most one round, of the changes from `position` to `goal`."""
        checkpoint_ts, whole_from = position.checkpoint.ts, self.source.whole_from()
        if checkpoint_ts < whole_from:  # a source brings a load's rows, or those behind it
            goal = min(goal, whole_from)
        whole = self.source.changes(checkpoint_ts, goal)
        end = end_of_round(checkpoint_ts, goal, list(whole.row_ranges()), limit=self.limit(checkpoint_ts))
        return self.plan(position, whole, end)

    def limit(self, checkpoint_ts: int) -> RoundLimit:
        """Return the limit of a round that begins at `checkpoint_ts`."""
        policy = self.sink.flush_policy
        return (policy.load_limit if checkpoint_ts < self.source.whole_from(checkpoint_ts) else None) or policy.limit

    def resting(self, waiting: Sequence[RowRange]) -> bool:
        """Return True while merging rests and the backlog is small."""
        if not self.sink.flush_policy.rests:
            return False
        rows = sum(part.rows for part in waiting)
        return 0 < rows < BUSY_ROWS and time.monotonic() < self.due_s

    def idle_advance(self, planned: Round, *, now: bool) -> None:
        """Publish a checkpoint that moved without rows, at most every `idle_s` unless `now`."""
        moved = planned.checkpoint.ts > self.position.checkpoint.ts
        if moved and (now or time.monotonic() - self.published_s >= self.sink.flush_policy.idle_s):
            self.advance(planned, ())

    def report_reading(self, frontier: int | None) -> None:
        """Report the progress of the source; new messages end its outage."""
        reading = self.source.reading()
        self.meter.read(reading, frontier, reading.reload or (self.reloads.progress() if self.reloads else None))
        unwritten = self.sink.left_out() if isinstance(self.sink, WithOmissions) else ()
        self.meter.leave_out((*reading.left_out, *unwritten))
        for text in reading.warnings:
            self.meter.warn(text)
        if reading.messages > self.messages_seen:
            self.messages_seen = reading.messages
            self.outage.recovered()

    def tidy_up(self) -> None:
        """Let the sink tidy up for a short time; failures are warnings, the next pass retries."""
        if not isinstance(self.sink, WithUpkeep):
            return
        end_s = time.monotonic() + UPKEEP_S
        try:
            with self.meter.timed("upkeep"):
                self.sink.upkeep(
                    self.tasks, self.source.frontier(), lambda: self.halt.is_set() or time.monotonic() >= end_s
                )
        except (TidegateError, *STORE_ERRORS) as failure:
            self.meter.warn(f"maintenance: {first_line(failure)}; retrying later")

    def restart_source(self, failure: TidegateError) -> None:
        """Restart the source after a retryable failure, or take it from a run that the sink fences; raise others."""
        if not (isinstance(failure, Fenced) and self.sink.fences):
            self.outage.survive(failure, beside=True)
        self.carry(self.position.state)
        self.outage.retrying(lambda: self.source.start(self.tasks, self.position.checkpoint.ts))
        self.sink.epoch = self.source.epoch()
        self.messages_seen = 0

    def waits_for(self, until: int | None) -> None:
        """Warn if `until` has passed and the source has stopped below it."""
        frontier, reading, now_s = self.source.frontier(), self.source.reading(), time.monotonic()
        stands = frontier, reading.messages
        if stands != self.stands_since[0] or self.meter.now.waits_for:
            self.stands_since = stands, now_s
        if until is None or physical_ms(until) > time.time() * 1000 or now_s - self.stands_since[1] < WAITS_S:
            return
        if frontier is not None and frontier >= until:  # the sink holds the end back
            return
        parts = reading.partitions
        least = min(parts, key=lambda part: part.resolved_ts or 0) if len(parts) > 1 else None
        who = f", by topic {least.topic} partition {least.partition}" if least else ""
        self.meter.warn(
            f"the run ends at {shown_ts(until)}, but the source is at {shown_ts(frontier)}{who}: no data for "
            f"{WAITS_S:.0f} s. If its writer has ended, --stop-when-idle SECONDS ends such a run"
        )

    def _reached(self, until: int | None) -> bool:
        return until is not None and self.position is not None and self.position.checkpoint.ts >= until
