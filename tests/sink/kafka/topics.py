"""Topics in memory fed by KafkaSink: the port's calls in their order, landed messages and chunks made by hand."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.source.kit import TOPIC, begin, land_batch
from tests.source.tidb.kit import Broker, MemoryTarget, target
from tidegate.changelog.changelog import Changelog
from tidegate.changelog.files import LANDED_SCHEMA, Encoder, RowColumns, chunks_of
from tidegate.codec import from_config
from tidegate.engine.change import Chunk, EventPosition, Layout, SourceDdl
from tidegate.engine.filter import TableFilter
from tidegate.engine.plan import Barrier, identity
from tidegate.engine.ports import Changes, RowRange, Saved, Sink, SinkPosition, TableSpan, Tasks
from tidegate.engine.segment import Planning, plan_landed, segment_end
from tidegate.model.event import Ddl, Field, RowChange
from tidegate.model.table import TableName
from tidegate.sink.kafka import KafkaSink
from tidegate.source.kafka_messages import TopicMessage

FIELDS = (Field("id", 3, 11, binary=True, handle=True), Field("day", 3, 65, binary=True))
TS = 470606743881121792


class InProcess(Tasks):
    """Jobs one after the other."""

    def __init__(self, slots: int = 2) -> None:
        self._slots = slots

    @property
    def slots(self) -> int:
        """How many groups there are at most."""
        return self._slots

    def run(self, work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        """The answers."""
        return [work(job) for job in jobs]

    def aside(self, _name: str) -> Tasks:
        """These."""
        return self

    def cancel(self) -> None:
        """Nothing runs."""


class Kept:
    """A store of one checkpoint."""

    def __init__(self) -> None:
        self.saved: Saved | None = None
        self.holders = 0

    @contextmanager
    def run_lock(self) -> Iterator[None]:
        """Counts who holds it."""
        self.holders += 1
        yield
        self.holders -= 1

    def load(self) -> Saved | None:
        """The last one."""
        return self.saved

    def save(self, saved: Saved) -> None:
        """Keeps it."""
        self.saved = saved


@dataclass(frozen=True)
class Made:
    """Row changes of a range, made by hand, as they land; also a source of them and of DDLs."""

    rows: Sequence[RowChange] = ()
    placed: Sequence[SourceDdl] = ()
    upto: int = 1 << 62
    after: int = 0
    chunk_rows: int = 16_384
    turned: Callable[[Chunk], Chunk] = field(default=lambda chunk: chunk)

    def frontier(self) -> int:
        """How far it goes."""
        return self.upto

    def ddls(self, after: int, upto: int) -> Sequence[SourceDdl]:
        """Those of the range, its begin included."""
        return [one for one in self.placed if after <= (one.ddl.commit_ts or 0) <= upto]

    def slice(self, after: int, upto: int) -> "Made":
        """A part."""
        rows = [row for row in self.rows if after < (row.commit_ts or 0) <= upto]
        return Made(rows, (), upto, after, self.chunk_rows, self.turned)

    def tables(self) -> Mapping[TableName, TableSpan]:
        """The tables."""
        found: dict[TableName, list[int]] = {}
        for row in self.rows:
            found.setdefault(TableName(row.schema, row.table), []).append(row.commit_ts or 0)
        return {name: TableSpan(len(times), min(times), max(times)) for name, times in found.items()}

    def row_ranges(self) -> list[RowRange]:
        """Nothing that waits."""
        return []

    def layouts(self, name: TableName, after: int, upto: int) -> list[Layout]:
        """Those of a table's rows."""
        parts = [part for chunk in self.in_order([name], after, upto) for part in chunk.parts]
        return list(dict.fromkeys(Layout(part.batch.fields, part.batch.pk_names) for part in parts))

    def batches(self, name: TableName, after: int, upto: int) -> Iterator[Chunk]:
        """The rows of one table."""
        return self.in_order([name], after, upto)

    def in_order(self, names: Collection[TableName], after: int, upto: int) -> Iterator[Chunk]:
        """The rows of several tables."""
        encoder, tables = Encoder(), list[pa.Table]()
        for name in names:
            columns = RowColumns("t", 0, name)
            mine = [
                row for row in self.rows if (row.schema, row.table) == name and after < (row.commit_ts or 0) <= upto
            ]
            for seq, row in enumerate(sorted(mine, key=lambda row: row.commit_ts or 0)):
                columns.add(0, encoder.encode(row, seq))
            tables.append(columns.table() if mine else LANDED_SCHEMA.empty_table())
        return map(self.turned, chunks_of(tables, self.chunk_rows))


def landed(uri: Path, messages: Mapping[int, Sequence[TopicMessage]], protocol: str) -> Changelog:
    """The changelog of a topic."""
    options = from_config({"protocol": protocol, "enable-tidb-extension": True})
    land_batch(str(uri), begin(str(uri), len(messages)), messages, options=options)
    changelog = Changelog(str(uri))
    changelog.refresh()
    return changelog


class Feed:
    """A changefeed into a broker in memory: what survives a crash, and the sink that does not."""

    def __init__(
        self,
        protocol: str = "open-protocol",
        dispatchers: Sequence[object] = (),
        *,
        rules: Sequence[str] = ("*.*",),
        broker: Broker | None = None,
        force: bool = True,
        **words: str,
    ) -> None:
        self.protocol, self.broker, self.kept = protocol, broker or Broker(), Kept()
        self.rules, self.force = TableFilter.parse(rules), force
        self.target: MemoryTarget = target(self.broker, protocol, dispatchers, **words)

    def sink(self) -> KafkaSink:
        """A new one."""
        return KafkaSink(self.target, self.kept, rules=self.rules, force=self.force)

    def carry(self, source: Any, tasks: Tasks | None = None) -> SinkPosition:
        """What an engine does, up to the source's frontier."""
        sink: Sink = self.sink()
        with sink.run_lock():
            position = sink.recover()
            sink.open(position)
            while self._goes_on(source, position):
                position = self._round(source, sink, position, tasks or InProcess())
            sink.close()
        return position

    def _goes_on(self, source: Any, position: SinkPosition) -> bool:
        at, frontier = position.checkpoint, source.frontier()
        if at.ts < frontier:
            return True
        return any(identity(one.ddl) not in at.done for one in source.ddls(at.ts, frontier))

    def _round(self, source: Any, sink: Sink, position: SinkPosition, tasks: Tasks) -> SinkPosition:
        at, frontier = position.checkpoint, source.frontier()
        ddls = source.ddls(at.ts, frontier)
        upto = segment_end(at, ddls, frontier)
        changes: Changes = source.slice(at.ts, upto)
        accept = self.rules.matches
        planned = plan_landed(position.state, at, ddls, upto, changes, rules=Planning(accept, barrier=Barrier.ALL))
        results = sink.run(tasks, planned.segment, changes)
        for ddl in planned.planned_ddls:
            sink.ddl(ddl)
        return sink.advance(planned, results)

    def events(self) -> dict[tuple[str, int], list[Any]]:
        """What the partitions hold."""
        return self.broker.events(self.protocol)


def placed(ts: int, query: str, table: str = "t", schema: str = "s", kind: int | None = 17) -> SourceDdl:
    """A DDL of a topic."""
    return SourceDdl(EventPosition(TOPIC, 0, ts), Ddl(schema=schema, table=table, query=query, commit_ts=ts, type=kind))
