"""Counting a run: what the engine tells, turned into Progress reports."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tidegate.app.progress import PartitionProgress, Progress, TableProgress
from tidegate.changelog.changelog import Changelog
from tidegate.changelog.landing import LandingProgress
from tidegate.feed.plan import Round
from tidegate.model.tso import physical_ms, to_datetime
from tidegate.sink.delta.apply import TableResult

__all__ = ["Meter"]

WINDOW_S: Final = 10.0
"""Rates are means over this long."""
SILENT_AFTER_S: Final = 60.0
"""A changefeed resolves every second or so; a partition without for this long holds all tables back."""


class Meter:
    """Keeps the last report and sends each new one."""

    def __init__(self, report: Callable[[Progress], None], *, silent_after_s: float = SILENT_AFTER_S) -> None:
        self.report = report
        self.silent_after_s = silent_after_s
        self.moved: dict[tuple[str, int], tuple[int | None, float]] = {}
        """Partition -> its resolved ts, and when it was first seen."""
        self.begun_s = time.monotonic()
        self.now = Progress("starting")
        self.tables: dict[str, TableProgress] = {}
        self.history: deque[tuple[float, int]] = deque()

    def send(self, **changes: object) -> Progress:
        """Report what changed."""
        self.now = replace(self.now, elapsed_s=time.monotonic() - self.begun_s, **changes)  # type: ignore[arg-type]
        self.report(self.now)
        return self.now

    def phase(self, phase: str) -> Progress:
        """A new phase of the run."""
        return self.send(phase=phase, ddl=None)

    def warn(self, text: str) -> None:
        """Something that a person should read; each text once."""
        if text not in self.now.warnings:
            self.send(warnings=(*self.now.warnings, text))

    def failing(self, error: str, *, since_s: float, next_s: float | None) -> None:
        """An error that is waited out, `since_s` after the first of its kind; the next try comes after `next_s`."""
        self.send(error=error, error_s=since_s, next_try_s=next_s)
        if next_s is not None:
            self.warn(f"{error}; trying again")

    def recovered(self) -> None:
        """An outage is over."""
        self.send(error=None, error_s=0.0, next_try_s=None)

    def checkpoint(self, ts: int | None) -> None:
        """Where the lake stands at the start."""
        self.send(checkpoint=ts, phase="running")

    def landed(self, landing: LandingProgress, changelog: Changelog) -> None:
        """How far the landing is."""
        now_ms = int(time.time() * 1000)
        partitions = tuple(
            PartitionProgress(
                topic,
                partition,
                reached.offset,
                landing.highs.get((topic, partition)),
                reached.resolved,
                None if reached.resolved is None else now_ms - physical_ms(reached.resolved),
            )
            for topic, reached_by in sorted(changelog.positions().items())
            for partition, reached in sorted(reached_by.items())
        )
        self.send(
            rows_landed=landing.rows,
            messages=landing.messages,
            dead_letters=landing.dead_letters,
            frontier=changelog.frontier(),
            partitions=partitions,
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
        """A round with DDLs or rows is about to run."""
        if planned.ddls:
            self.send(ddl=planned.ddls[0].query)

    def applied(self, planned: Round, results: Sequence[TableResult]) -> None:
        """A round is published."""
        now_ms = int(time.time() * 1000)
        ts = planned.checkpoint.ts
        for result in results:
            before = self.tables.get(result.incarnation)
            rows = result.rows + (before.rows_applied if before else 0)
            self.tables[result.incarnation] = TableProgress(str(result.name), rows, ts, now_ms - physical_ms(ts))
        alive = {table.incarnation for table in planned.state.tables.values()}
        self.tables = {incarnation: table for incarnation, table in self.tables.items() if incarnation in alive}
        applied = self.now.rows_applied + sum(result.rows for result in results)
        self.send(
            rows_applied=applied,
            rows_per_s=self.rate(applied),
            checkpoint=ts,
            tables=tuple(sorted(self.tables.values(), key=lambda table: table.name)),
            ddl=None,
            ddls_done=self.now.ddls_done + len(planned.ddls),
        )
        for warning in planned.warnings:
            self.warn(warning)

    def rate(self, applied: int) -> float:
        """Row changes per second over the last window."""
        now_s = time.monotonic()
        self.history.append((now_s, applied))
        while self.history[0][0] < now_s - WINDOW_S and len(self.history) > 1:
            self.history.popleft()
        begun_s, begun = self.history[0]
        return (applied - begun) / (now_s - begun_s) if now_s > begun_s else 0.0
