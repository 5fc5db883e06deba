"""Counting a run: what the engine tells, turned into Progress reports, and the one state machine of every feed.

    pending ──started──► normal ◄──got on── warning          (an error is waited out)
                           │  └────error──────► ▲ │
                           └─ end: finished, stopped ─┴─ failed

Source: states of a changefeed in TiCDC.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Final

from tidegate.engine.feed_error import FeedError, now
from tidegate.engine.parked import Parked
from tidegate.engine.plan import Round
from tidegate.engine.ports import Reading, Result
from tidegate.engine.progress import PartitionProgress, Progress, TableProgress
from tidegate.engine.trace import span
from tidegate.model.errors import TidegateError
from tidegate.model.left_out import LeftOut
from tidegate.model.roads import RoadCounts
from tidegate.model.tso import physical_ms, to_datetime

SPANS: Final = frozenset({"write", "ddl", "publish"})
WINDOW_S: Final = 10.0
"""Rates are means over this long."""
SILENT_AFTER_S: Final = 60.0
"""A changefeed resolves every second or so; a partition without for this long holds all tables back."""


class Meter:
    """Keeps the last report and sends each new one to `report`."""

    def __init__(self, report: Callable[[Progress], None], *, silent_after_s: float = SILENT_AFTER_S) -> None:
        self.report = report
        self.silent_after_s = silent_after_s
        self.moved: dict[tuple[str, int], tuple[int | None, float]] = {}
        """Partition -> its resolved ts, and when it was first seen."""
        self.begun_s = time.monotonic()
        self.now = Progress("starting", since=now())
        self.tables: dict[str, TableProgress] = {}
        self.landed, self.written = RoadCounts(), RoadCounts()
        """Roads that the source has told, and those of results."""
        self.corrupt = 0
        self.history: deque[tuple[float, int]] = deque()
        self.spent_s: Counter[str] = Counter()

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Count the time of a block for a phase of the rounds; those that change something are spans, too."""
        begun_s = time.monotonic()
        try:
            with span(phase) if phase in SPANS else nullcontext():
                yield
        finally:
            self.spent_s[phase] += time.monotonic() - begun_s  # type: ignore[assignment]

    def send(self, **changes: object) -> Progress:
        """Report what changed."""
        self.now = replace(self.now, elapsed_s=time.monotonic() - self.begun_s, **changes)  # type: ignore[arg-type]
        self.report(self.now)
        return self.now

    def enter(self, state: str, **changes: object) -> Progress:
        """Report a state, which begins now unless it is the one before."""
        since = self.now.since if state == self.now.state else now()
        return self.send(state=state, since=since, **changes)

    def ended(self, state: str) -> Progress:
        """Report the end of the run: stopped or finished."""
        return self.enter(state, phase="stopped", ddl=None)

    def warn(self, text: str) -> None:
        """Tell something that a person should read; each text once."""
        if text not in self.now.warnings:
            self.send(warnings=(*self.now.warnings, text))

    def failing(self, error: TidegateError, *, tries: int, next_s: float, told: bool) -> None:
        """Report an error that is waited out: the `tries`th of an outage, the next try after `next_s`; a warning too
        where people were not `told`."""
        shown = self._shown(error, tries, next_s)
        self.enter("warning", error=shown)
        if not told:
            self.warn(f"{error.code}: {error}; trying again")

    def failed(self, error: TidegateError, *, tries: int) -> Progress:
        """Report the error that ended the feed."""
        return self.enter("failed", error=self._shown(error, tries, None), phase="stopped", ddl=None)

    def _shown(self, error: TidegateError, tries: int, next_s: float | None) -> FeedError:
        before = self.now.error
        since = before.since if before is not None and tries > 1 else now()
        return FeedError.of(error, since=since, tries=tries, next_try_s=next_s)

    def recovered(self) -> None:
        """Report that an outage is over."""
        self.enter("normal", error=None)

    def started(self, ts: int, *, resumed: bool) -> None:
        """Report where the feed begins."""
        self.enter("normal", checkpoint_ts=ts or None, resumed=resumed, phase="running")

    def read(self, reading: Reading, frontier: int | None) -> None:
        """Report how far the source is."""
        now_ms = int(time.time() * 1000)
        self.landed = reading.roads
        partitions = tuple(
            PartitionProgress(*one, None if one.resolved_ts is None else now_ms - physical_ms(one.resolved_ts))
            for one in reading.partitions
        )
        self.send(
            rows_landed=reading.rows,
            messages=reading.messages,
            dead_letters=reading.dead_letters,
            frontier_ts=frontier,
            partitions=partitions,
            corrupt=self.corrupt + reading.corrupt,
            **self._roads(),
            spent_s=dict(self.spent_s),
        )
        self.listen(partitions)

    def listen(self, partitions: Sequence[PartitionProgress]) -> None:
        """Warn of partitions that are read to their end and have brought no resolved ts for long."""
        now_s = time.monotonic()
        silent = []
        for one in partitions:
            place = one.topic, one.partition
            if place not in self.moved or self.moved[place][0] != one.resolved_ts:
                self.moved[place] = one.resolved_ts, now_s
            read = one.high is not None and one.offset >= one.high
            if read and now_s - self.moved[place][1] >= self.silent_after_s:
                silent.append(one)
        if silent and len(silent) == len(partitions):
            self.warn(f"no partition has brought a resolved ts for {self.silent_after_s:.0f} s: does TiCDC run?")
            return
        for one in silent:
            since = "at all" if one.resolved_ts is None else f"since {to_datetime(one.resolved_ts):%Y-%m-%d %H:%M:%S}"
            self.warn(f"topic {one.topic} partition {one.partition}: no resolved ts {since}; all tables wait for it")

    def working(self, planned: Round) -> None:
        """Report that a round with DDLs or rows is about to run."""
        if planned.ddls:
            self.send(ddl=planned.ddls[0].query)

    def advanced(self, planned: Round, results: Sequence[Result]) -> None:
        """Report a round that is done and published."""
        ts = planned.checkpoint.ts
        self._count_tables(planned, results, ts)
        for result in results:
            self.written.update(result.roads)
            self.corrupt += result.corrupt
        rows = self.now.rows + sum(result.rows for result in results)
        self.send(
            rows=rows,
            rows_per_s=self.rate(rows),
            messages_written=self.now.messages_written + sum(result.messages for result in results),
            checkpoint_ts=ts,
            tables=tuple(sorted(self.tables.values(), key=lambda table: table.name)),
            ddl=None,
            ddls=self.now.ddls + len(planned.ddls),
            ddls_left_out=self.now.ddls_left_out + planned.left_out,
            watermarks=self.now.watermarks + 1,
            **self._roads(),
            corrupt=self.corrupt,
        )
        for warning in planned.warnings:
            self.warn(warning)

    def _roads(self) -> dict[str, object]:
        """Which way rows went, in the source and behind it."""
        every = self.landed + self.written
        return {"roads": every.by_road(), "slow_roads": every.slow(), "rows_left_out": every.left_out}

    def leave_out(self, tables: Iterable[LeftOut]) -> None:
        """Report which tables are left out, and warn of those that were not before."""
        now = tuple(dict.fromkeys(tables))
        if now == self.now.left_out:
            return
        new = [str(one) for one in now if one not in self.now.left_out]
        self.send(left_out=now)
        if new:
            self.warn(f"left out: {'; '.join(new)}")

    def park(self, groups: Sequence[Parked]) -> None:
        """Report which tables are parked, and warn of those that were not before, or that met another error."""
        before = set(self.now.parked)
        parked = tuple(FeedError.of_parked(group, name) for group in groups for name in group.names)
        if before == set(parked):
            return
        self.send(parked=parked)
        for one in parked:
            if one not in before:
                self.warn(f"table {one.table} is parked, the others go on: {one.code}: {one.message}")

    def _count_tables(self, planned: Round, results: Sequence[Result], ts: int) -> None:
        """Rows and lag of each table that results name."""
        lag_ms = int(time.time() * 1000) - physical_ms(ts)
        for result in results:
            if result.name is None:
                continue
            name = str(result.name)
            before = self.tables.get(name)
            self.tables[name] = TableProgress(name, result.rows + (before.rows if before else 0), ts, lag_ms)
        alive = {str(table.name) for table in planned.state.tables.values()}
        self.tables = {name: table for name, table in self.tables.items() if name in alive}

    def rate(self, rows: int) -> float:
        """Return row changes per second over the last window."""
        now_s = time.monotonic()
        self.history.append((now_s, rows))
        while self.history[0][0] < now_s - WINDOW_S and len(self.history) > 1:
            self.history.popleft()
        begun_s, begun = self.history[0]
        return (rows - begun) / (now_s - begun_s) if now_s > begun_s else 0.0
