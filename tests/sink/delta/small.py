"""A feed of hand-made rows and DDLs on a lake: planning, applying and publishing, without topics."""

import time
from pathlib import Path

from tests.sink.delta.lake import Rows
from tidegate.engine.change import EventPosition, SourceDdl
from tidegate.engine.plan import Landed, plan_round
from tidegate.engine.retention import Limits
from tidegate.model.event import Ddl
from tidegate.model.table import TableName
from tidegate.sink.delta.apply import run_unit
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.sink.delta.upkeep import Kept, Upkeep, adopt


class Small:
    """One life of a feed."""

    def __init__(self, root: str | Path, limits: Limits, **more: object) -> None:
        self.options = DeltaOptions(root=str(root), feed="f", **more)
        self.rows = Rows()
        self.ddls: list[SourceDdl] = []
        self.start(limits)

    def start(self, limits: Limits) -> None:
        """Begin a new life."""
        self.sink = DeltaSink(self.options)
        self.sink.recover()
        self.upkeep = Upkeep(self.options, limits)

    def ddl(self, ts: int, query: str, table: str = "t") -> None:
        """Let a DDL happen at `ts`."""
        placed = SourceDdl(
            EventPosition("x", 0, len(self.ddls)), Ddl(schema="s", table=table, query=query, commit_ts=ts)
        )
        self.ddls.append(placed)

    def round(self, upto: int) -> None:
        """Apply everything up to a ts and publish it."""
        at = self.sink.snapshot.checkpoint
        spans: dict[TableName, tuple[int, int, int]] = {}
        for change in self.rows.changes:
            ts = change.commit_ts or 0
            if at.ts < ts <= upto:
                rows, low, high = spans.get(TableName("s", change.table), (0, ts, ts))
                spans[TableName("s", change.table)] = rows + 1, min(low, ts), max(high, ts)
        landed = Landed(spans, lambda *_: (), lambda *_: True)
        ddls = [placed for placed in self.ddls if at.ts <= placed.ddl.commit_ts <= upto]
        planned = plan_round(self.sink.snapshot.state, at, ddls, upto, landed)
        self.sink.admit(planned)
        results = [result for unit in planned.units for result in run_unit(unit, self.rows, self.options)]
        self.sink.advance(planned, results)

    def tend(self, now_ms: int | None = None) -> Kept:
        """One pass of upkeep, a second from now if not told when, so that what the pass itself writes counts as old."""
        now_ms = int((time.time() + 1) * 1000) if now_ms is None else now_ms
        done = self.upkeep.run(
            self.sink.snapshot, lambda work, jobs: [work(job) for job in jobs], lambda: False, now_ms=now_ms
        )
        self.sink.snapshot = adopt(self.sink.snapshot, done)
        return done
