"""A recording through the whole client into a sink, and what of its truth the sink has.

scripted cluster ─► PD, KvScan, EventFeed ─► capture ─► segments ─► changefeed ─► lake, topic, database
recorded truth   ─► tables at a timestamp  ◄── compared with ──────────────────────┘
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.mariadb import Server
from tests.source.tidb.modify_recording import ddls
from tests.tikv.replayed import RecordedCluster, Recording
from tidegate.config.load import load
from tidegate.config.registry import feed_of
from tidegate.engine.loop import Engine, Meter
from tidegate.engine.ports import LocalTasks
from tidegate.engine.stop_signals import NoPauseEvent
from tidegate.model.name import lowered
from tidegate.sink.sql.connection import SqlOptions, TargetSession, probe
from tidegate.verify.compare import ComparedTable, TableReader, TableReport, compare_sides
from tidegate.verify.database import DatabaseReader
from tidegate.verify.local import RecordingReader, Truth, lake_at
from tidegate.verify.sums import ChunkPlan

UNSEEN = {"shop.labt": {(1081,), (1090,)}}
"""Rows that a client of the raw protocol wrote: one as the backfill of a DDL, which no feed brings, one without a
value, which TiDB does not write."""


class Told(RecordingReader):
    """A recorded moment whose documents and decimals are compared by their meaning: TiDB prints them in other forms
    from 9.0 on."""

    verbatim = False


@dataclass
class Count:
    """What was compared."""

    moments: list[int] = field(default_factory=list)
    tables: int = 0
    rows: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{len(self.moments)} timestamps, {self.tables} tables, {self.rows} rows, {len(self.wrong)} wrong"

    def compare(self, truth: Truth, target: TableReader, *, once: bool) -> None:
        """Compare the tables of a moment; `once`: of equal changes of a table without a key in one transaction the
        target may keep one, so that a row is missing, or stays."""
        told = Told(truth.after, truth)
        self.moments.append(truth.ts)
        for report in compare_sides(told, target):
            if report.name in truth.tables:
                self.tables += 1
                self.rows += len(truth.tables[report.name].rows)
                self.wrong += [
                    f"{truth.after} {truth.ts} {report.name}: {each}" for each in _left(told, report, once=once)
                ]


def _left(told: Told, report: TableReport, *, once: bool) -> Iterator[str]:
    shape = told.shape_of(report.name)
    assert shape is not None
    unseen = UNSEEN.get(report.name, set())
    repeated = _repeated(told, shape) if once and not shape.key else set()
    for each in report.differences:
        is_missing = each.kind == "missing row"
        is_kept_once = once and not shape.key and (each.key in repeated or each.kind == "extra row")
        if not is_kept_once and not (is_missing and each.key in unseen):
            yield str(each)


def _repeated(told: Told, shape: ComparedTable) -> set[Any]:
    plan = ChunkPlan(tuple(column.name for column in shape.columns), (), 1)
    return {row for row, count in Counter(told.all_rows(shape, plan)).items() if count > 1}


@dataclass
class Through:
    """Changefeeds of a recording; `home` keeps their logs and states."""

    cluster: RecordedCluster
    home: Path

    @property
    def recording(self) -> Recording:
        return self.cluster.recording

    @property
    def begin(self) -> int:
        """A timestamp before the first change."""
        return self.cluster.world.bounds[0] - 10_000

    def run(self, sink_uri: str, until: int, name: str = "feed", **more: Any) -> Any:
        """Run a changefeed up to a timestamp, to which the cluster comes meanwhile; before its first row, if there was
        data at the begin: it is loaded then."""
        begins = {"start_ts": self.recording.ts0}
        if any(key[:1] == b"t" for key in self.recording.base):
            begins = {"load_from": f"tikv://{self.cluster.pd}"}
        config = load(
            source_uri=f"tikv://{self.cluster.pd}?log={self.home / name}-log",
            sink_uri=sink_uri,
            state_dir=self.home / name,
            name=name,
            **begins,
            **more,
        )
        for ts in [until] if (self.home / f"{name}-log").exists() else [self.begin, until]:
            self.cluster.play_to(ts)
            engine = Engine(feed_of(config), LocalTasks(pickles=False), Meter(lambda _: None), NoPauseEvent())
            done = engine.run(until=ts)
        assert done.checkpoint_ts - until in (0, 1)  # no changefeed rests at a MODIFY that rewrites rows
        return done


def compare_lake(count: Count, lake: Path, truth: Truth) -> None:
    """Compare a lake as of a moment."""
    names = {lowered(name) for name in truth.tables}
    with lake_at(str(lake), truth.ts, lambda *name: lowered(".".join(name)) in names) as (reader, _):
        count.compare(truth, reader, once=False)


def compare_database(count: Count, server: Server, truth: Truth) -> None:
    """Compare a database as it is."""
    with closing(TargetSession(SqlOptions("verify", "127.0.0.1", server.port))) as session:
        session.prepare(probe(session))
        count.compare(truth, DatabaseReader(session, lambda schema, _: schema != "tidegate", ""), once=False)


def within_ddls(moments: list[int], seed: int, most: int) -> list[int]:
    """Timestamps spread evenly over those given, one inside each kind of DDL among them, drawn by a seed."""
    random = Random(seed)
    chosen = {random.choice(inside) for inside in ddls_at(moments).values() if inside}
    first, last, spread = moments[0], moments[-1], most - len(chosen)
    for at in range(spread):
        wanted = first + (last - first) * at // (spread - 1)
        chosen.add(min((ts for ts in moments if ts not in chosen), key=lambda ts: abs(ts - wanted)))
    return sorted(chosen)


def ddls_at(moments: Iterable[int]) -> dict[str, list[int]]:
    """Each kind of DDL in the longer recording, with the timestamps, of those given, between its first and its last
    schema version."""
    moments, kinds = sorted(moments), dict[str, list[int]]()
    for ddl in ddls():
        versions = [int(ts) for ts, _ in ddl["versions"]]
        kinds.setdefault(ddl["kind"], []).extend(ts for ts in moments if versions and versions[0] <= ts < versions[-1])
    return kinds
