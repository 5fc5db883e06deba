"""The engine: the one loop that brings a sink from its checkpoint to the frontier, whatever source and sink are.

    1 pull      the source takes notice of what has come (one that lands does so in a thread of its own)
    2 decode    or mount: in tasks, whenever rows are read
    3 filter    tables and rows outside the rules, in those tasks; DDLs where they are planned
    4 gate      the frontier: nothing at or below it is still to come; earlier where the sink wants to be read
    5 cut       (checkpoint, frontier] at the DDLs, as the sink's barrier says (engine/plan.py, engine/segment.py)
    6 route     and encode, or merge: in tasks of the sink
    7 write     and flush; then, with barrier ALL, the DDLs at the round's end
    8 advance   the checkpoint, and the source's safe point behind it

Before a round, tables that stand still since a step of theirs was refused go on, if a user asks for it (`bring_back`).

A crash anywhere leaves the old checkpoint or the new one.  Starting again is the same loop: nothing is repaired, all is
planned anew from where the sink says that it stands.

How much a round takes and how long merging rests is decided in engine/pace.py, where a round ends and whether its end
may be published in engine/segment.py, how long an outage is waited out in engine/retry_policy.py.

Waiting out what may pass: a broker that is away, a full disk, a store that does not answer.

    error ──► NEVER?  raise       LATER? ──► told as `error` in every report until it is over
                                        └──► pause (engine/retry_policy.py), ended early by a stop ──► the next try
                                             patience is over: raise

The feed says what is over: it got on (`over`), not merely that one step succeeded.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from tidegate.engine.meter import Meter
from tidegate.engine.pace import BUSY_ROWS, Stretch, rest_s
from tidegate.engine.parked import Parked, parks, touched
from tidegate.engine.plan import Barrier, Checkpoint, Drops, Round, refusal
from tidegate.engine.ports import Changes, Result, Sink, Source, Standing, Tasks
from tidegate.engine.progress import Progress
from tidegate.engine.refused_rows import blamed
from tidegate.engine.retry_policy import FailureRun, RetryPolicy
from tidegate.engine.segment import Planning, end_of_round, is_whole, plan_from, raised, segment_end
from tidegate.engine.step import Unit
from tidegate.engine.trace import span
from tidegate.model.errors import EncodeError, Fenced, Retry, TidegateError
from tidegate.model.feed_errors import Overtaken, SourceBehind
from tidegate.objectstore.failpoint import reach
from tidegate.objectstore.storing import STORE_ERRORS, first_line, store_error
from tidegate.schema.state import SchemaState

T = TypeVar("T")


class Retrier:
    """The trouble that a feed is in, if any."""

    def __init__(self, patience: RetryPolicy, meter: Meter, stop: threading.Event) -> None:
        self.patience = patience
        self._meter, self._stop = meter, stop
        self._begun_s = time.monotonic()
        self._trouble: FailureRun | None = None
        self._failed_s = 0.0
        self._beside = False
        self.stopped = False
        """True once a stop has ended the waiting."""

    @property
    def tries(self) -> int:
        """How many errors there were in a row."""
        return 0 if self._trouble is None else self._trouble.errors

    def retrying(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, which is tried again as long as its errors may pass and patience lasts."""
        told = False
        while True:
            try:
                return work()
            except TidegateError as error:
                self.survive(error, told=told)
            except STORE_ERRORS as away:
                self.survive(store_error(away), told=told)
            told = True

    def survive(self, error: TidegateError, *, beside: bool = False, told: bool = False) -> None:
        """Return when it is time for the next try; raises `error` when it will not pass, or a stop is asked for.

        `beside` says that it came from an activity beside the rounds, of which they hear only now and then, `told` that
        the same work has failed before: people hear of it once."""
        if error.retry is Retry.NEVER:
            raise error
        now_s = time.monotonic()
        self._trouble, self._failed_s = self.patience.met(self._trouble, now_s), now_s
        self._beside = self._beside or beside
        pause_s = self.patience.pause_s(self._trouble, now_s, begun_s=self._begun_s)
        if pause_s is None:
            raise error
        told = told or (beside and self._trouble.errors > 1)
        self._meter.failing(error, tries=self._trouble.errors, next_s=pause_s, told=told)
        self.stopped = self._stop.wait(pause_s)
        if self.stopped:
            raise error

    def over(self, *, after_s: float = 0.0) -> None:
        """The feed has got on, or nothing has failed for as long as is given."""
        if self._trouble is not None and time.monotonic() - self._failed_s >= after_s:
            self._trouble, self._beside = None, False
            self._meter.recovered()

    def calm(self, after_s: float) -> None:
        """A round has found nothing to do and nothing in its way; what runs beside it is believed after a while."""
        self.over(after_s=after_s if self._beside else 0.0)


START_S: Final = 5.0
"""How long after the begin a first word that fails is tried again: an address that does not answer may be a wrong one.
With a last try that takes its time limit of 10 s, that is 15 s in all."""
CALM_S: Final = 60.0
"""A source that runs for so long without an error has a broker that answers, though nothing may come."""
POLL_S: Final = 0.2
"""How often a source that has nothing is looked at."""
UPKEEP_S: Final = 2.0
"""How long a pass of upkeep may hold up the rounds."""


@dataclass(frozen=True, slots=True)
class Feed:
    """One changefeed, ready to run: `accept` says which tables it carries, `takes` and `drops` which DDLs."""

    name: str
    source: Source
    sink: Sink[Any]
    accept: Callable[[str, str], bool]
    takes: Drops | None = None
    drops: Drops | None = None
    patience: RetryPolicy = field(default_factory=RetryPolicy)

    def planning(self, barrier: Barrier) -> Planning:
        """Return the rules by which rounds of this feed are planned for a sink with such a barrier."""
        return Planning(self.accept, self.drops, self.takes, barrier)


class Engine:
    """One run of a feed; use it once."""

    def __init__(self, feed: Feed, tasks: Tasks, meter: Meter, stop: threading.Event) -> None:
        self.feed, self.source, self.sink = feed, feed.source, feed.sink
        self.tasks, self.meter, self.halt = tasks, meter, stop
        self.standing = Standing(Checkpoint(), SchemaState(), is_new=True)
        self.outage = Retrier(replace(feed.patience, stuck_s=None, most_s=START_S), meter, stop)
        self.floor = 0
        """How far the tables are of a round that was cut off (engine/segment.py)."""
        self.heard = 0
        """Messages that the source had brought when we looked last."""
        self.published_s = 0.0
        self.due_s = 0.0
        """When merging has rested enough."""

    def run(self, *, until: int | None = None, idle_s: float | None = None) -> Progress:
        """Run until the stop is set, the checkpoint reaches `until`, or nothing has come for `idle_s` seconds.

        Raises the error that ends the feed. Errors that may pass are waited out; one at the start, where it may be a
        wrong address, for some seconds only. What was done until then is published."""
        self.meter.enter("pending")
        try:
            with self.sink.held():
                try:
                    if self.begin(idle_s):
                        self.loop(until, idle_s)
                finally:
                    self.meter.send(phase="stopping")
                    self.source.stop()
                    self.sink.close()
        except TidegateError as error:
            if not self.outage.stopped:
                self.meter.failed(error, tries=max(self.outage.tries, 1))
                raise
        return self.meter.ended("finished" if self._reached(until) else "stopped")

    def begin(self, idle_s: float | None) -> bool:
        """Take up the sink where it stands and begin to read; False if a stop or a silence ended the wait for it."""
        standing = self.outage.retrying(self.sink.recover)
        at = None if standing.is_new else standing.checkpoint.ts
        if at is not None:
            self.carry(standing.state)
        begun = self.wait_for_source(at, idle_s)
        if begun is None:
            return False
        self.sink.epoch = self.source.epoch()
        self.standing = standing = self.known(standing, begun)
        self.outage.retrying(lambda: self.sink.open(standing))
        self.source.release(begun)
        self.meter.park(self.sink.parked())
        self.meter.started(standing.checkpoint.ts, resumed=at is not None)
        self.outage.over()
        self.outage.patience = self.feed.patience
        return True

    def known(self, standing: Standing, begun: int) -> Standing:
        """Return where the feed goes on, with the tables that the source alone knows: all of a new feed, or of a
        checkpoint that was kept without a schema, and those that other filter rules bring in."""
        state = standing.state.with_unknown(self.source.definitions(begun))
        return Standing(Checkpoint(begun) if standing.is_new else standing.checkpoint, state)

    def carry(self, known: SchemaState) -> None:
        """Tell the source which tables the sink has, unless its checkpoint was kept without a schema."""
        if known.tables:
            self.source.carry(known)

    def wait_for_source(self, at: int | None, idle_s: float | None) -> int | None:
        """Return where reading begins, once the source has come as far as `at`; None if the wait for it is over."""
        begun_s = time.monotonic()

        def start() -> int | SourceBehind:
            try:
                return self.source.start(self.tasks, at)
            except SourceBehind as behind:
                return behind

        while isinstance(found := self.outage.retrying(start), SourceBehind):
            self.meter.warn(str(found))
            self.meter.send()  # whoever reads the reports hears that it lives
            if idle_s is not None and time.monotonic() - begun_s >= idle_s:
                return None
            if self.halt.wait(POLL_S):
                return None
        return found

    def loop(self, until: int | None, idle_s: float | None) -> None:
        """Do rounds until one of the ends of `run`."""
        if until is not None or idle_s is not None:
            self.sink.rhythm = replace(self.sink.rhythm, rests=False)
        moved_s, silent = time.monotonic(), False
        while not self.halt.is_set():
            self.keep_up()
            for group, state in self.outage.retrying(self.sink.resuming):
                self.bring_back(group, state)
            failure = self.source.failure() or (None if self.sink.fences else self.source.replaced())
            if isinstance(failure, Fenced):
                self.start_again(failure)
                continue
            if self.round(until):
                moved_s, silent = time.monotonic(), False
                continue
            if self._reached(until):
                return
            if failure is None:
                self.outage.calm(CALM_S)
            else:
                self.start_again(failure)
                silent = False
            if idle_s is not None and time.monotonic() - moved_s >= idle_s:
                if silent:
                    return
                silent = self.outage.retrying(self.source.idle)
                if silent:  # one more round: what made it idle may have come behind the last one
                    continue
            pause_s, rest = self.sink.rhythm.flush_s, self.due_s - time.monotonic()
            with self.meter.timed("wait"):
                self.halt.wait(rest if 0 < rest < pause_s else pause_s)

    def round(self, until: int | None) -> bool:
        """Do one round; one that meets a message that nobody can apply begins anew without it, if the source may leave
        it out."""
        try:
            return self.steps(until)
        except TidegateError as error:
            refused = error
            if not self.outage.retrying(lambda: self.source.refused(refused)):
                raise
            return True

    def steps(self, until: int | None) -> bool:
        """Do steps 1 to 8 once, at most to `until`; False when there was nothing to do."""
        with self.meter.timed("read"):
            self.outage.retrying(self.source.refresh)  # 1 pull; 2 decode and 3 filter happen in tasks
        frontier = self.source.frontier()  # 4 gate
        self.listen(frontier)
        at = self.standing.checkpoint
        if frontier is None or frontier < at.ts:
            return False
        gate = self.outage.retrying(partial(self.sink.gate, at.ts))
        frontier = frontier if gate is None else min(frontier, gate)
        with self.meter.timed("read"):
            ddls = self.outage.retrying(partial(self.source.ddls, at.ts, frontier))
            goal = max(frontier, self.floor)
            if self.sink.barrier is Barrier.ALL:
                goal = segment_end(at, ddls, goal)
            whole = self.outage.retrying(partial(self.source.changes, at.ts, goal))
            waiting = self.outage.retrying(lambda: list(whole.stretches()))
        if self.resting(waiting):
            return False
        most = self.sink.rhythm.most
        end = end_of_round(at.ts, goal, waiting, until=until, floor=self.floor, most=most)
        with self.meter.timed("read"):
            planned, changes = self.outage.retrying(partial(self.plan, self.standing, whole, end))  # 5 cut
        if planned.units or planned.ddls:
            self.work(planned, changes)
            self.outage.over()
            return True
        ends_early = planned.checkpoint.ts < (frontier if until is None else min(frontier, until))
        through = at.ts < planned.checkpoint.ts == gate
        self.idle_advance(planned, now=ends_early or through or end == until)
        return ends_early or through

    def plan(self, standing: Standing, whole: Changes, end: int) -> tuple[Round, Changes]:
        """Return the round from `standing` to `end`, or to the DDL that rows behind it lack; raises when that is
        nothing."""
        return plan_from(self.source, standing, whole, end, self.feed.planning(self.sink.barrier), floor=self.floor)

    def work(self, planned: Round, changes: Changes) -> None:
        """Do steps 6 to 8 for one round; nothing is published while some tables are further than others."""
        rows = sum(unit.rows for unit in planned.units)
        with span("round", changefeed=self.feed.name, rows=rows, upto=planned.checkpoint.ts):
            self.write(planned, changes, rows)

    def write(self, planned: Round, changes: Changes, rows: int) -> None:
        """Do the steps of `work`."""
        begun_s = time.monotonic()
        self.sink.admit(planned)
        self.meter.working(planned)
        reach("round/planned")
        with self.meter.timed("write"):
            results = self.outage.retrying(partial(self.apply, planned.units, changes))  # 6 route, 7 write
        reach("round/applied")
        self.floor = raised(self.floor, (result.ahead for result in results))
        if not is_whole(planned.checkpoint.ts, self.floor):
            return
        for placed in planned.handed:
            try:
                with self.meter.timed("ddl"):
                    self.outage.retrying(partial(self.sink.ddl, placed))
            except EncodeError as unsayable:
                raise refusal(unsayable, placed.ddl, placed.place) from None
        self.advance(planned, results)  # 8 advance
        if self.sink.rhythm.rests:
            rest = rest_s(self.published_s - begun_s, rows, self.sink.rhythm.flush_s)
            self.due_s = self.published_s + rest

    def apply(self, units: Sequence[Unit], changes: Changes) -> Sequence[Result]:
        """Let the sink do units; an error about a table that only messages made names them."""
        try:
            return self.sink.run(self.tasks, units, changes)
        except TidegateError as error:
            blamed(error, units, changes)
            raise

    def advance(self, planned: Round, results: Sequence[Result]) -> None:
        """Publish a round's end."""
        with self.meter.timed("publish"):
            try:
                self.standing = self.outage.retrying(lambda: self.sink.advance(planned, results))
            except Overtaken as overtaken:
                self.meter.warn(str(overtaken))
                self.take_up()
                return
            parked = self.sink.parked()
            self.source.release(min((planned.checkpoint.ts, *(group.at.ts for group in parked))))
        self.published_s = time.monotonic()
        self.meter.advanced(planned, results)
        self.meter.park(parked)

    def take_up(self) -> None:
        """Go on from where an earlier run has left the sink since this one began."""
        standing = self.outage.retrying(self.sink.recover)
        self.standing = standing = self.known(standing, standing.checkpoint.ts)
        self.outage.retrying(lambda: self.sink.open(standing))
        self.floor, self.published_s = 0, time.monotonic()

    def bring_back(self, group: Parked, state: SchemaState) -> None:
        """Bring parked tables from where they stand to the checkpoint, once the source shows all up to it, and publish
        them there; what is refused again stays parked, with the error of now."""
        self.outage.retrying(self.source.refresh)
        if (self.source.frontier() or 0) < self.standing.checkpoint.ts:
            return
        standing, goal, tables = Standing(group.at, state), self.standing.checkpoint, frozenset(group.incarnations)
        done: list[Result] = []
        refused: TidegateError | None = None
        behind = True
        try:
            while behind:
                if self.halt.is_set():
                    return
                planned, changes = self.outage.retrying(partial(self.next_part, standing, goal.ts))
                units, tables = touched(planned.units, tables)
                done += self.outage.retrying(partial(self.sink.resume, self.tasks, units, changes))
                standing = Standing(planned.checkpoint, planned.state)
                behind = planned.checkpoint.ts < goal.ts
            self.outage.over()
        except TidegateError as error:
            met = error
            if self.outage.retrying(lambda: self.source.refused(met)):
                return
            if not parks(error):
                raise
            done, refused = [], error
        self.sink.resumed(group, refused)
        self.advance(Round((), self.standing.state, goal, (), ()), done)

    def next_part(self, standing: Standing, goal: int) -> tuple[Round, Changes]:
        """Return the next part of the way from `standing` to `goal`, as large as a round."""
        whole = self.source.changes(standing.checkpoint.ts, goal)
        end = end_of_round(standing.checkpoint.ts, goal, list(whole.stretches()), most=self.sink.rhythm.most)
        return self.plan(standing, whole, end)

    def resting(self, waiting: Sequence[Stretch]) -> bool:
        """Return True while merging rests and little waits."""
        if not self.sink.rhythm.rests:
            return False
        rows = sum(stretch.rows for stretch in waiting)
        return 0 < rows < BUSY_ROWS and time.monotonic() < self.due_s

    def idle_advance(self, planned: Round, *, now: bool) -> None:
        """Publish a checkpoint that moved without rows, now or now and then; it is no work."""
        moved = planned.checkpoint.ts > self.standing.checkpoint.ts
        if moved and (now or time.monotonic() - self.published_s >= self.sink.rhythm.idle_s):
            self.advance(planned, ())

    def listen(self, frontier: int | None) -> None:
        """Tell how far the source is; messages that come end an outage of it."""
        reading = self.source.reading()
        self.meter.read(reading, frontier)
        self.meter.leave_out((*reading.left_out, *self.sink.left_out()))
        if reading.messages > self.heard:
            self.heard = reading.messages
            self.outage.over()

    def keep_up(self) -> None:
        """Let the sink tidy up for a short while; its failures are warnings, the next pass tries again."""
        end_s = time.monotonic() + UPKEEP_S
        try:
            with self.meter.timed("upkeep"):
                self.sink.upkeep(
                    self.tasks, self.source.frontier(), lambda: self.halt.is_set() or time.monotonic() >= end_s
                )
        except (TidegateError, *STORE_ERRORS) as failure:
            self.meter.warn(f"upkeep: {first_line(failure)}; trying again later")

    def start_again(self, failure: TidegateError) -> None:
        """Begin to read anew after a failure that may pass, or takes the source back from a run that the sink has
        fenced, or will; raises the others."""
        if not (isinstance(failure, Fenced) and self.sink.fences):
            self.outage.survive(failure, beside=True)
        self.carry(self.standing.state)
        self.outage.retrying(lambda: self.source.start(self.tasks, self.standing.checkpoint.ts))
        self.sink.epoch = self.source.epoch()
        self.heard = 0

    def _reached(self, until: int | None) -> bool:
        return until is not None and self.standing is not None and self.standing.checkpoint.ts >= until
