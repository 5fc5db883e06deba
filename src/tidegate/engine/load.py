"""The full load: a feed begins with every row that its tables have at one TSO, and goes on with the stream above it.

Rule.  S is a TSO of the upstream.  The load is the versions with commit_ts <= S, the stream is what is above S.  A
read at S gives the same rows whenever it is done, so nothing has to be matched: no key, no window, no watermark row.

    plan      S, the databases, tables and definitions of S, and the chunks: written once, before the first row
    load      the definitions as DDLs, then the chunks, each a read at S
    stream    the changes above S, of the source that runs beside the load from its begin

What the engine sees is a source like any other.  N chunks take the N timestamps up to S, and M definitions those before
them:

    commit_ts   D + 1 - M  ...  D = S - N    D + 1      D + 2     ...     S        above S
                CREATE ...      CREATE ...   chunk 0    chunk 1           N - 1    the stream

    checkpoint  D - M: nothing yet           D + n: n chunks              S and above: the load is done

so rounds are bounded by chunks, a sink's exactly-once protocol covers each chunk, a kill in the middle goes on at the
chunk where it stood, and a topic of a load can be read back chunk by chunk.  A terabyte is no transaction.  The
timestamps are logical ticks of one millisecond or so: no version that the load does not hold lies between D and S.

The plan is the only state, one file beside the feed's progress.  A restart reads it and never takes S again: peers that
do lose what changed between the two (a row deleted in that time stays, a row changed is lost).  Where garbage
collection has passed S, the load ends with HistoryLost.

A later load replaces tables of a feed that has a checkpoint, C: it takes a new S and drops tables before it makes
them.  Of all tables, the stream goes on above S.  Of some, all follow the stream up to the first drop, B.  S is then
the last tick of a millisecond, where no TSO is handed out; that the stream has nothing in (B, S] is checked.

    C ..stream or nothing.. B    DROP ..    CREATE ..    chunk 0  ..  S    ..stream..

A sink hides what is not whole: `whole_from` tells it S, below which a checkpoint shows tables that lack rows.

Rows are read by a LoadReader, over SQL (source/load_sql.py) or from files; what a chunk's bounds mean is the reader's.

                table 0 `t`                  │ table 1 `p`, by partition
    chunk       0          1        2        │ 3 (p0)     4 (p1)
    bounds      .. 500     500 ..   900 ..   │ all        all          half open; texts of SQL, compared by the server
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tidegate.codec.columnar.encode.encoder import events_of
from tidegate.codec.columnar.rows import Batch
from tidegate.engine.change import Chunk, ChunkPart, EventPosition, Layout, SourceDdl
from tidegate.engine.chunk_size import CHUNK_BYTES, CHUNK_ROWS
from tidegate.engine.event_filter import EventFilter, MessageFilter
from tidegate.engine.load_plan import (
    SILENT_NAMED,
    KeptPlan,
    KeptStruct,
    LoadChunk,
    LoadGuard,
    LoadPlan,
    LoadReader,
    LoadTable,
    SilentTables,
    begin_ts,
    create_statements,
    defined_tables,
    defined_ts,
    is_done,
    is_unfinished,
    names_of,
    schema_of,
    some_of,
    unloaded,
    warnings_of,
    without,
    without_keyless,
)
from tidegate.engine.plan import Rows, Unit
from tidegate.engine.ports import Answer, Changes, Job, Parked, RowRange, Sink, Source, TableSpan, Tasks, WithParking
from tidegate.engine.reading import LoadProgress, Reading
from tidegate.engine.split_columns import codes_of, resized
from tidegate.model.errors import (
    ConfigError,
    HistoryLost,
    LoadCancelled,
    MadeAnew,
    SinkRefused,
    SourceBehind,
    TidegateError,
)
from tidegate.model.left_out import LeftOut
from tidegate.model.mysql import ActionType
from tidegate.model.path_counts import LEFT_OUT, UNDECODABLE, PathCounts
from tidegate.model.table import TableInfo, TableName
from tidegate.model.tso import LOGICAL_BITS, shown_ts
from tidegate.objectstore.failpoint import failpoint
from tidegate.schema.state import Database, SchemaState

_NEEDED_DDLS: Final = frozenset({ActionType.CREATE_TABLE, ActionType.DROP_TABLE})
"""Statements without which a load would have no table, or its rows beside those of before."""
FILLED_MAX: Final = 5
"""Tables that hold rows, as an error names them."""


NO_LOAD: Final = (
    "the feed has a checkpoint and began without a load, so it goes on from there and load-from has no effect: a load "
    "needs a fresh target"
)


NO_ROWS: Final = "the feed has no database to load from beside its changes: start it with load-from, and ask again"


WITHOUT_ROWS: Final = "the feed runs without load-from, which has its rows: start it with load-from, and it goes on"


CANCELLED: Final = "the load of the feed was cancelled: "
UNTOUCHED: Final = "the target has nothing of it, and the feed can go on without"
DROPPED: Final = "its tables are dropped from the target; `tidegate load start --all` loads them anew"


class NoStream(Source):
    """Where nothing follows a load."""

    def start(self, tasks: Tasks, checkpoint_ts: int | None) -> int:  # noqa: ARG002
        """Return the checkpoint."""
        return checkpoint_ts or 0

    def stop(self) -> None:
        """Do nothing."""

    def failure(self) -> TidegateError | None:
        return None

    def frontier(self) -> int | None:
        return None

    def idle(self) -> bool:
        return True

    def ended(self) -> bool:
        return True

    def refresh(self) -> None:
        """Do nothing."""

    def definitions(self, ts: int) -> Sequence[TableInfo]:  # noqa: ARG002
        return ()

    def ddls(self, after: int, upto: int) -> Sequence[SourceDdl]:  # noqa: ARG002
        return ()

    def changes(self, after: int, upto: int) -> Changes:
        return LoadChanges(LoadReader(), upto, after, upto, ())

    def release(self, checkpoint_ts: int) -> None:
        """Do nothing."""

    def reading(self) -> Reading:
        return Reading()


@dataclass(frozen=True, slots=True)
class FewTasks:
    """Tasks of which at most `most` run at the same time."""

    tasks: Tasks
    most: int

    @property
    def slots(self) -> int:
        return min(self.most, self.tasks.slots)

    def run(self, work: Callable[[Job], Answer], jobs: Sequence[Job]) -> list[Answer]:
        """Return the answers of some jobs after those of the others."""
        some = (jobs[first : first + self.most] for first in range(0, len(jobs), self.most))
        return [answer for few in some for answer in self.tasks.run(work, few)]

    def aside(self, name: str) -> Tasks:
        """Return tasks that are not limited."""
        return self.tasks.aside(name)

    def cancel(self) -> None:
        """End the jobs that run now."""
        self.tasks.cancel()


class Part(NamedTuple):
    """A chunk at its commit_ts; rows and bytes are estimates."""

    commit_ts: int
    table: LoadTable
    chunk: LoadChunk
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LoadChanges:
    """The chunks of a load in (after, upto]: a Changes, which pickles and reads the database in tasks."""

    reader: LoadReader
    ts: int
    after: int
    upto: int
    parts: tuple["Part", ...]
    events: EventFilter = field(default_factory=EventFilter)
    over: bool = False
    """The target may hold rows of these keys."""
    lacking: frozenset[tuple[str, str]] | None = None
    """Tables that have rows above `upto`, where the others are shown; None where none is shown."""

    def tables(self) -> dict[TableName, TableSpan]:
        spans: dict[TableName, TableSpan] = {}
        for part in self.parts:
            span = spans.get(part.table.name, TableSpan(0, part.commit_ts, part.commit_ts))
            spans[part.table.name] = span.joined(part.rows, part.commit_ts, part.commit_ts)
        return spans

    def split(self, step: Rows) -> Iterator[Unit]:
        """Return the step's rows in steps of their own, a chunk each, or a few small ones of about CHUNK_ROWS: none
        has a key that another one has."""
        after, rows, begun = step.after, 0, False
        for part in self._inside({step.table.name.key}, step.after, step.upto):
            if begun and rows + part.rows > CHUNK_ROWS:
                yield Unit((Rows(step.table, after, part.commit_ts - 1),), rows)
                after, rows = part.commit_ts - 1, 0
            rows, begun = rows + part.rows, True
        if begun:
            yield Unit((Rows(step.table, after, step.upto),), rows)

    def typed(self) -> "LoadChanges":
        """Return these changes, in which DECIMALs and times may be Arrow's own, unless event filters read rows."""
        return self if self.events.messages() is not None else replace(self, reader=self.reader.typed())

    def row_ranges(self) -> Iterator[RowRange]:
        return (RowRange(part.commit_ts, part.commit_ts, part.rows, part.size_bytes) for part in self.parts)

    def layouts(self, name: TableName, after: int, upto: int) -> list[Layout]:  # noqa: ARG002  the DDLs tell them
        return []

    def batches(self, name: TableName, after: int, upto: int) -> Iterator[Chunk]:
        return self.in_order((name,), after, upto)

    def in_order(self, names: Collection[TableName], after: int, upto: int) -> Iterator[Chunk]:
        """Return the rows of several tables in (after, upto], chunk by chunk. Raises what the reader does."""
        keys, judge = {name.key for name in names}, self.events.messages()
        for part in self._inside(keys, after, upto):
            for batch in self.reader.batches(part.table, part.chunk, self.ts):
                yield _chunk(batch, part.commit_ts, judge)

    def _inside(self, keys: Collection[tuple[str, str]], after: int, upto: int) -> Iterator[Part]:
        return (part for part in self.parts if after < part.commit_ts <= upto and part.table.name.key in keys)


def _chunk(batch: Batch, commit_ts: int, judge: MessageFilter | None) -> Chunk:
    """Return the rows, all INSERTs or all DELETEs, that the event filters keep as one transaction: its start_ts says
    that none is a repeat."""
    every, counts = batch.rows, PathCounts()
    if judge is not None and judge.judges(batch.schema, batch.table):
        kept = pa.array([number for number, row in enumerate(events_of(batch)) if not judge.drops(row)], pa.int64())
        images = [rows.take(kept) if rows.num_rows else rows for rows in (batch.before, batch.after)]
        batch = resized(batch, kept, codes_of(batch)[kept.to_numpy()], *images)
    times = pa.repeat(pa.scalar(commit_ts, pa.int64()), batch.rows)
    part = ChunkPart(replace(batch, commit_ts=times, start_ts=times), np.arange(batch.rows))
    counts.add("load/columns", batch.rows)
    counts.add(LEFT_OUT, every - batch.rows)
    for column, texts in undecodable(batch):
        counts.add(f"{UNDECODABLE}{batch.schema}.{batch.table}.{column}", texts)
    return Chunk((part,), np.zeros(batch.rows, np.int64), counts)


def undecodable(batch: Batch) -> Iterator[tuple[str, int]]:
    """Return each text column with the number of its texts that are no UTF-8: they are kept as they are, though no
    message could carry them."""
    for column, array in zip(batch.fields, batch.after.columns, strict=True):
        if pa.types.is_binary(array.type) and not column.binary:
            texts = (value for value in array.to_pylist() if value is not None)
            yield column.name, sum(text.decode("utf-8", "ignore").encode() != text for text in texts)


@dataclass(eq=False, repr=False)
class LoadingSource(Source):
    """A source that begins with the tables of a database as of one TSO, and goes on with `stream`."""

    reader: LoadReader
    kept: KeptPlan
    accept: Callable[[str, str], bool]
    stream: Source
    _: KW_ONLY
    ordered: bool
    """The stream can begin at any TSO behind `prepare`, so it begins at S; another one lands from its first message,
    and S is taken once each of its partitions has brought a watermark."""
    guard: Callable[[LoadPlan], LoadGuard] = lambda _: LoadGuard()
    keyless: bool = False
    """The stream brings tables without a handle key."""
    events: EventFilter = field(default_factory=EventFilter)
    ts: int | None = None
    """S; None for that of now."""
    mode: str = "initial"
    """A word of `[source] load`. done: somebody else has put the rows as of `ts` into the target, and `reader` tells
    the definitions. cancel: a load that is not done is ended, and its tables are dropped. never: the stream alone,
    which does not start amid a load. All others begin with the load."""
    defined: str = ""
    """The load has no rows, S is where the stream begins, and its tables are defined as of S ("start"), or as of now
    ("now") if the stream shows no DDL of theirs until then."""
    target: str = "refuse"
    """What becomes of rows that the target holds: refuse, truncate or keep."""
    upstream: Callable[[], Callable[[LoadPlan], LoadPlan]] | None = None
    """Asks for the changefeed that writes the stream, and returns what that leaves of a plan."""
    by_table: bool = False
    """A lake shows each table once it is whole."""
    connections: int = 0
    """The most tasks that read rows at the same time; 0 is no limit."""
    number: int = 0
    """That of a later load, which replaces tables, and begins once: where none of its number or a higher one has."""
    selects: Callable[[str, str], bool] | None = None
    """The tables of a later load; None for all."""
    requests: KeptStruct[Any] | None = None
    """The requests of rows that come again."""

    _sink: Sink[Any] | None = field(default=None, init=False)
    _target_state: SchemaState = field(default_factory=SchemaState, init=False)
    _plan: LoadPlan | None = field(default=None, init=False)
    _plan_of_now: LoadPlan | None = field(default=None, init=False)
    _guard: LoadGuard | None = field(default=None, init=False)
    _unheld: str = field(default="", init=False)
    _notes: tuple[str, ...] = field(default=(), init=False)
    _landing: bool = field(default=False, init=False)
    _is_clear: bool = field(default=False, init=False)
    _begin: int = field(default=0, init=False)
    _position_ts: int = field(default=0, init=False)
    _parts: tuple[Part, ...] = field(default=(), init=False)
    _sizes: list[int] = field(default_factory=lambda: [0], init=False)
    """The bytes of the first chunks, by their number."""
    _creates: Sequence[SourceDdl] = field(default=(), init=False)
    _silent: SilentTables | None = field(default=None, init=False)
    _heard: set[tuple[str, str]] = field(default_factory=set, init=False)
    """The tables of changes and DDLs above S that were asked for since the last checkpoint."""

    def start(self, tasks: Tasks, checkpoint_ts: int | None) -> int:
        """Begin with the load, or go on with it or with the stream. Return the ts behind which the feed begins.

        Raises SourceBehind while the stream has not proven that it has all changes from now on, and HistoryLost where
        garbage collection has passed S."""
        plan, later, self._notes = self.kept.read(), self.number, ()
        if self.mode == "never":
            if plan is not None and (plan.chunks or plan.cancelled) and not is_done(plan, checkpoint_ts):
                raise ConfigError(
                    f"the load of this feed at {shown_ts(plan.ts)} is not done, and without it its tables would lack "
                    "rows: give load-from again, without load = never, or begin in a fresh target"
                )
            return self.stream.start(tasks, checkpoint_ts)
        if self.mode == "cancel":
            plan, later = self._cancelled(plan, checkpoint_ts), 0
        if later <= (plan.number if plan is not None else 0):
            later = 0
        if plan is not None and plan.cancelled and not later:
            if plan.ts and (checkpoint_ts or 0) >= plan.ts:
                raise LoadCancelled(CANCELLED + DROPPED)
            plan, self.stream = (plan, NoStream()) if plan.ts else (None, self.stream)
        self._plan = plan
        if plan is None and checkpoint_ts is not None and not later:
            if isinstance(self.stream, NoStream):
                raise ConfigError("the feed has begun without a load; a load alone needs a fresh target")
            self._position_ts = checkpoint_ts
            return self.stream.start(tasks, checkpoint_ts)
        if plan is None or later:
            unrestored = plan.gc_life_time if plan is not None else ()
            plan = self._planned(tasks) if checkpoint_ts is None else self._replacing(plan, checkpoint_ts)
            failpoint("load/planned")
            kept = {"number": self.number, "gc_life_time": unrestored or plan.gc_life_time}
            plan = self._plan = self.kept.write(msgspec.structs.replace(plan, **kept))
            failpoint("load/plan-kept")
        self._begin = begin_ts(plan)
        start_ts = self._begin if checkpoint_ts is None else checkpoint_ts
        notes = warnings_of(plan, self.accept, self.ts, lacks_rows=start_ts < plan.ts)
        self._notes = (*self._notes, *notes)
        if start_ts < plan.ts:
            self.stream.carry(self._target_state.with_unknown(defined_tables(plan)))
            self._guard = self._guard or (None if plan.cancelled else self.guard(plan).__enter__())
        silent = self.kept.silent()
        self._silent = silent if silent is not None and silent.since >= plan.ts else None
        if not self._landing:
            self.stream.start(tasks, start_ts if plan.streams else max(start_ts, plan.ts))
        self._landing, self._position_ts, self._parts = False, start_ts, tuple(parts_of(plan))
        self._creates = [
            SourceDdl(EventPosition(), ddl, needed=ddl.type in _NEEDED_DDLS) for ddl in create_statements(plan)
        ]
        self._is_clear = not plan.streams or start_ts > self._begin
        self._sizes = sizes_of(self._parts)
        return start_ts

    def _left_by(self) -> Callable[[LoadPlan], LoadPlan]:
        """Return what leaves of a plan the tables whose changes the stream brings. It is asked for before S is taken,
        so that a changefeed that has come further is another cluster's."""
        if self.upstream is not None:
            return self.upstream()
        return (lambda plan: plan) if self.keyless else without_keyless

    def _planned(self, tasks: Tasks) -> LoadPlan:
        """Return the plan of a feed that begins; of a load that somebody else has done the definitions alone."""
        self._check_target()
        self.ts = self.ts if self.defined else self.reader.moment(self.ts)
        self._cover(tasks)
        left_by = self._left_by()
        plan = self._defined() if self.defined else self.reader.plan(lambda name: self.accept(*name), self.ts)
        covered = None if self.ordered or self.defined else self.stream.frontier()
        if self.ts is None and covered is not None and covered > plan.ts:
            raise ConfigError(
                f"the database is at {shown_ts(plan.ts)}, and the stream has a watermark of {shown_ts(covered)}: "
                "load-from is another cluster than the one whose changes the source brings"
            )
        plan = msgspec.structs.replace(plan, chunks=(), done=True) if self.mode == "done" else plan
        return self._into_target(left_by(plan))

    def _replacing(self, before: LoadPlan | None, checkpoint_ts: int) -> LoadPlan:
        """Return the plan of a later load into a target at its checkpoint."""
        selects, broken_from = self.selects, 0
        before = before or LoadPlan(0)
        if not is_done(before, checkpoint_ts):
            if selects:
                raise ConfigError("the last load has not been done, so its tables lack rows: load all tables again")
            broken_from = before.broken_from or (begin_ts(before) if checkpoint_ts > begin_ts(before) else 0)
        self._check_target()
        left_by = self._left_by()
        ts = self.reader.plan(lambda _: False).ts >> LOGICAL_BITS << LOGICAL_BITS
        plan = left_by(self.reader.plan(lambda name: self.accept(*name) and (not selects or selects(*name)), ts - 1))
        if not plan.tables:
            raise ConfigError(f"no table to load at {shown_ts(plan.ts)}: look at load-tables and the filter")
        names = [table.name for table in plan.tables]
        old = [] if selects else [table.name for table in self._target_state.tables.values()]
        plan = msgspec.structs.replace(
            plan,
            views=tuple((name, text.replace("CREATE ", "CREATE OR REPLACE ", 1)) for name, text in plan.views),
            replaced=tuple(dict.fromkeys([*old, *names])),
            streams=bool(selects) and not isinstance(self.stream, NoStream),
            unselected=tuple(sorted({*before.unselected} - {*names})) if selects else plan.unselected,
            broken_from=broken_from,
        )
        parked: Sequence[Parked] = self._sink.parked() if isinstance(self._sink, WithParking) else ()
        rests = {name for group in parked if group.checkpoint.ts < before.ts for name in group.names}
        if left := sorted(rests - {*map(str, plan.replaced)}):
            raise ConfigError(
                f"{some_of(left)}: parked amid the last load, whose rows nothing would bring once another one has "
                "begun: resume them first (`tidegate table resume`), or load them, too"
            )
        if begin_ts(plan) <= checkpoint_ts:
            raise SourceBehind(
                f"the load waits: the database is at {shown_ts(plan.ts)}, and the feed at {shown_ts(checkpoint_ts)}; "
                "if that is for long, load-from is another cluster"
            )
        return plan

    @property
    def reads_rows(self) -> bool:
        """True where rows can be read beside the stream."""
        return type(self.reader) is not LoadReader and not self.defined and not isinstance(self.stream, NoStream)

    def reload_plan(
        self, selects: Callable[[str, str], bool], checkpoint_ts: int
    ) -> tuple[int, Callable[[], LoadPlan]]:
        """Return a TSO of now, and what plans at it the tables that are loaded beside the stream. Raises ConfigError
        where no rows are read, SourceBehind while the database is behind the checkpoint, or has no such table."""
        if not self.reads_rows:
            raise ConfigError(NO_ROWS)
        left_by, ts = self._left_by(), self.reader.newest_ts()
        if ts < checkpoint_ts:
            if self.reader.moment(None) is not None:
                raise ConfigError(f"load-from is of {shown_ts(ts)}, before the feed: a newer dump, or a database, can")
            raise SourceBehind("the database is behind the feed; if that is for long, load-from is another cluster")

        def plan() -> LoadPlan:
            planned = left_by(self.reader.plan(lambda name: self.accept(*name) and selects(*name), ts))
            if not planned.tables:
                raise SourceBehind("no such table that the filter takes and whose changes follow; see [filter] rules")
            return msgspec.structs.replace(planned, views=(), sequences=(), made_sequences=(), temporary=())

        return ts, plan

    def _cancelled(self, plan: LoadPlan | None, checkpoint_ts: int | None) -> LoadPlan:
        """Return the plan that drops what an unfinished load has made, or that of a load that is done. Raises
        LoadCancelled where there is nothing to drop."""
        if plan is not None and not plan.cancelled and not is_unfinished(plan, self.number, checkpoint_ts):
            self._notes = (f"the load at {shown_ts(plan.ts)} was done before it could be cancelled: the feed goes on",)
            return plan
        left, number = LoadPlan(0, cancelled=True), max(self.number, plan.number if plan is not None else 0)
        if plan is not None and (plan.cancelled or is_done(plan, checkpoint_ts)):
            left = plan
        elif plan is not None:
            self.guard(plan).restore()
            begin, tables = plan.broken_from or begin_ts(plan), self._target_state.tables.values()
            if (checkpoint_ts or 0) > begin:
                loaded = tuple(table.name for table in tables if begin < table.version <= plan.ts)
                views = tuple(name for name, _ in plan.views)
                ts = (checkpoint_ts or 0) + len(loaded) + len(views)
                left = LoadPlan(ts, cancelled=True, replaced=loaded, dropped_views=views, broken_from=begin)
        plan = self.kept.write(msgspec.structs.replace(left, number=number))
        if not plan.ts or not plan.cancelled:
            raise LoadCancelled(CANCELLED + UNTOUCHED)
        return plan

    def _check_target(self) -> None:
        """Raise ConfigError for a target that is the upstream, by another address."""
        with self.reader.lock() as name:
            if name and self._sink is not None and not self.defined and self._sink.has_lock(name):
                raise ConfigError(
                    "load-from is also the sink, by another address; a changefeed must not write what it reads"
                )

    def _into_target(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan with what becomes of rows that the target holds: it is written down with S, so that a restart
        takes rows of this load for nobody else's. Raises SinkRefused, ConfigError."""
        filled = self._sink.filled(defined_tables(plan)) if plan.chunks and self._sink is not None else {}
        if not filled or self.target == "keep":
            return msgspec.structs.replace(plan, over=bool(filled))
        holds = f"{'; '.join(list(filled.values())[:FILLED_MAX])}, and the load at {shown_ts(plan.ts)}"
        if self.target == "refuse":
            raise SinkRefused(
                f"{holds} would be mixed with them. Empty or drop it there (TRUNCATE TABLE, DROP TABLE), leave it out "
                "by the feed's filter, or say so in load-from: load-target=truncate empties it, load-target=keep loads "
                "over it; then run the feed again"
            ).at(table=str(next(iter(filled))))
        plan = msgspec.structs.replace(plan, truncated=tuple(filled))
        drops = self.events.ddls() or (lambda *_: False)
        truncates = [ddl for ddl in create_statements(plan) if ddl.type == ActionType.TRUNCATE_TABLE]
        if (self._sink and not self._sink.truncates) or any(drops(ddl, None) for ddl in truncates):
            raise ConfigError(
                f"{holds} cannot empty it: nothing is emptied there by TRUNCATE TABLE, or an event filter leaves that "
                "out. Use load-target=keep, or another target"
            )
        return plan

    def look_at(self, sink: Sink[Any]) -> None:
        self._sink = sink

    def _defined(self) -> LoadPlan:
        """Return the definitions with which the stream begins, one tick below its first event."""
        covered = self.stream.frontier() or 0
        events = [each.first_ts for each in self.stream.changes(0, covered).row_ranges()]
        events += [source_ddl.ddl.commit_ts or 0 for source_ddl in self.stream.ddls(0, covered)]
        begin = min(events, default=covered + 1) - 1
        if self.defined == "now":
            return msgspec.structs.replace(self._defined_now(covered), ts=begin, chunks=())
        try:
            plan = self.reader.plan(lambda name: self.accept(*name), begin)
        except HistoryLost as error:
            raise HistoryLost(
                f"the stream begins at {shown_ts(begin)}, and the definitions of then are gone ({error}): "
                "definitions-at = now takes those of now, for tables of which the stream shows no DDL until now"
            ) from error
        return msgspec.structs.replace(plan, chunks=())

    def _defined_now(self, covered: int) -> LoadPlan:
        """Return the definitions of now of the tables that have no DDL in the stream until now."""
        self._plan_of_now = plan = self._plan_of_now or self.reader.plan(lambda name: self.accept(*name))
        if covered < plan.ts:
            raise SourceBehind(
                f"definitions-at = now: the stream has come to {shown_ts(covered)}, and the definitions are of "
                f"{shown_ts(plan.ts)}: they hold for tables that have no DDL until then"
            )
        names = tuple(item.name for item in plan.tables)
        ddls = (names_of(item.ddl) for item in self.stream.ddls(0, plan.ts))
        defined = SilentTables(0, names).without(set[tuple[str, str]]().union(*ddls)).tables
        altered = [name for name in names if name not in defined]
        groups = (
            (f"as they are at {shown_ts(plan.ts)}, which holds if the changefeed leaves no DDL of theirs out", defined),
            ("known from their rows alone, since the stream has DDLs of theirs", altered),
        )
        notes = tuple(f"definitions-at = now: tables {how}: {some_of(some)}" for how, some in groups if some)
        left = without(plan, [LeftOut(str(name), "") for name in altered], listed=False)
        return msgspec.structs.replace(left, notes=(*left.notes, *notes))

    def _cover(self, tasks: Tasks) -> None:
        """Begin to land, and wait until the stream covers everything from now on."""
        if self.ordered:
            if self.ts is None:
                self.stream.prepare()
            return
        if not self._landing:
            self.stream.start(tasks, self.ts)
            self._landing = True
        if (failure := self.stream.failure()) is not None:
            self._landing = False
            if isinstance(failure, MadeAnew) and self.ts is not None:
                raise ConfigError(
                    f"load-ts is {shown_ts(self.ts)}, and the source begins later, so changes between would be lost: "
                    f"leave load-ts out, or take one behind its first watermark, as that of another dump ({failure})"
                ) from failure
            raise failure
        self.stream.refresh()
        if self.stream.frontier() is None:
            parts = self.stream.reading().partitions
            lacking = [f"{part.topic} partition {part.partition}" for part in parts if part.resolved_ts is None]
            raise SourceBehind(
                f"the load waits for the first watermark of {', '.join(lacking) or 'the source'}: S is taken once the "
                "stream is known to have all changes behind it"
            )

    def stop(self) -> None:
        self._landing = False
        self._release_guard()
        self.stream.stop()

    def epoch(self) -> int:
        return self.stream.epoch()

    def whole_from(self, checkpoint_ts: int | None = None) -> int:
        return (
            0 if self._plan is None or (checkpoint_ts is not None and self._follows(checkpoint_ts)) else self._plan.ts
        )

    def ends_at(self) -> int | None:
        return self._plan.ts if self._plan is not None and isinstance(self.stream, NoStream) else None

    def failure(self) -> TidegateError | None:
        return self.stream.failure()

    def replaced(self) -> TidegateError | None:
        return self.stream.replaced()

    def idle(self) -> bool:
        return not self._loads() and self.stream.idle()

    def ended(self) -> bool:
        return not self._loads() and self.stream.ended()

    def rests_at(self, ts: int) -> int:
        return self.stream.rests_at(ts)

    def refused(self, error: TidegateError) -> bool:
        return (self._follows(self._position_ts) or not self._loads()) and self.stream.refused(error)

    def refresh(self) -> None:
        """Poll the stream, and while the load runs the guard. Raises HistoryLost, LoadCancelled."""
        plan = self._plan
        if plan is not None and plan.cancelled and self._position_ts >= plan.ts:
            raise LoadCancelled(CANCELLED + DROPPED)
        self.stream.refresh()
        if self._guard is not None and self._loads():
            self._guard.check()
        if plan is not None and not self._is_clear and self._position_ts == self._begin:
            self._is_clear = (self.stream.frontier() or 0) >= plan.ts and self._check_clear(self._position_ts, plan.ts)

    def _check_clear(self, after: int, upto: int) -> bool:
        is_clear = all((source_ddl.ddl.commit_ts or 0) <= after for source_ddl in self.stream.ddls(after, upto))
        if is_clear:
            changes = self.stream.changes(after, upto)
            is_clear = not any(len(chunk) for chunk in changes.in_order([*changes.tables()], after, upto))
        if not is_clear:
            raise ConfigError(
                f"the load takes the timestamps above {shown_ts(after)} up to {upto}, and the source has changes "
                "there: nothing is loaded, begin the load again"
            )
        return True

    def limited(self, tasks: Tasks) -> Tasks:
        return FewTasks(tasks, self.connections) if self.connections and self._guard is not None else tasks

    def frontier(self) -> int | None:
        reached, plan = self.stream.frontier(), self._plan
        if plan is None or not self._loads():
            return reached
        if not self._is_clear:
            return reached and min(reached, self._begin)
        return self._position_ts if self._rests_until() else plan.ts

    def carry(self, state: SchemaState) -> None:
        self._target_state = state
        self.stream.carry(state)

    def definitions(self, ts: int) -> Sequence[TableInfo]:
        if self._loads() and not self._follows(ts):
            return ()
        plan = self._plan
        own = defined_tables(plan) if plan is not None and plan.done and ts == plan.ts else ()
        return self.stream.definitions(ts) or own

    def databases(self, ts: int) -> Sequence[Database]:
        if self._loads() and not self._follows(ts):
            return ()
        plan = self._plan
        own = [*schema_of(plan).databases.values()] if plan is not None and plan.done and ts == plan.ts else ()
        return own or self.stream.databases(ts)

    def ddls(self, after: int, upto: int) -> Sequence[SourceDdl]:
        """Return the definitions of S, or the DDLs of the stream above S."""
        plan = self._plan
        if plan is None or after >= plan.ts:
            ddls = self.stream.ddls(after, upto)
            ddls = [source_ddl for source_ddl in ddls if plan is None or (source_ddl.ddl.commit_ts or 0) > plan.ts]
            if self._silent is not None and self._silent.tables:
                self._heard.update(*(names_of(source_ddl.ddl) for source_ddl in ddls))
            return ddls
        if after > defined_ts(plan):
            return ()
        streamed = self.stream.ddls(after, min(upto, self._begin)) if plan.streams and after <= self._begin else ()
        first = defined_ts(plan) + 1 - len(self._creates)
        return [*streamed, *self._creates[max(after - first, 0) : max(upto + 1 - first, 0)]]

    def changes(self, after: int, upto: int) -> Changes:
        plan, self._position_ts = self._plan, max(self._position_ts, after)
        if plan is None or after >= plan.ts or self._follows(after):
            changes = self.stream.changes(after, upto)
            if self._silent is not None and self._silent.tables:
                self._heard.update(name.key for name in changes.tables())
            return changes
        first = defined_ts(plan) + 1
        low, high = max(after + 1 - first, 0), max(min(upto, plan.ts) + 1 - first, 0)
        lacking = frozenset(part.table.name.key for part in self._parts[high:])
        shown = lacking if self.by_table and len(lacking) < len(plan.tables) else None
        return LoadChanges(self.reader, plan.ts, after, upto, self._parts[low:high], self.events, plan.over, shown)

    def release(self, checkpoint_ts: int) -> None:
        """Note the checkpoint: at S the load is done, and with all tables there its upstream may forget S. S is held
        for a table that is parked below it; where that fails the others go on, and it is said. tidb_gc_life_time is set
        back, by the next run where that fails."""
        self._position_ts, follows = max(self._position_ts, checkpoint_ts), self._follows(checkpoint_ts)
        if follows and self._loads():
            self.stream.release(checkpoint_ts)
            return
        if self._plan is not None and checkpoint_ts < self._plan.ts and not follows:
            if self._guard is None and not self._unheld and not self._plan.cancelled:
                try:
                    self._guard = self.guard(self._plan).__enter__()
                except TidegateError as error:
                    self._unheld = f"a parked table needs {shown_ts(self._plan.ts)}, which nothing holds: {error}"
            return
        if self._plan is not None and (self._plan.gc_life_time or self._guard is not None) and not self._unheld:
            try:
                (self._guard or self.guard(self._plan)).restore()
            except TidegateError as error:
                state = f"garbage collection of the upstream is held at {shown_ts(self._plan.ts)} until gc-ttl is over"
                if self._plan.gc_life_time:
                    was, now = self._plan.gc_life_time
                    state = f"tidb_gc_life_time of the upstream is {now} since the load, and was {was}"
                self._unheld = f"{state}: {error}"
            else:
                if self._plan.gc_life_time:
                    self._plan = self.kept.restored(self._plan)
        self._release_guard()
        self._listen(self._position_ts)
        self.stream.release(checkpoint_ts)

    def _listen(self, checkpoint_ts: int) -> None:
        """Note the loaded tables of which the stream has brought an event."""
        if self._plan is None or isinstance(self.stream, NoStream):
            return
        left = self._silent or SilentTables(checkpoint_ts, tuple(item.name for item in self._plan.tables))
        left = left.without(self._heard)
        if left != self._silent:
            self.kept.write_silent(left)
        self._silent, self._heard = left, set()

    def reading(self) -> Reading:
        reading = self.stream.reading()
        plan = self._plan
        if plan is None:
            began = self._position_ts and self.mode != "never"
            return replace(reading, warnings=(*reading.warnings, NO_LOAD)) if began else reading
        if plan.cancelled:
            return reading
        silent = self._silent.tables if self._silent is not None and self._position_ts > self._silent.since else ()
        progress = load_progress(
            plan,
            min(max(self._position_ts - defined_ts(plan), 0), len(plan.chunks)),
            self._sizes,
            guarded_until_ms=self._guard.deadline_ms if self._guard is not None else 0,
            rests_until=self._rests_until(),
            silent=len(silent),
            silent_tables=tuple(map(str, silent[:SILENT_NAMED])),
            silent_since=self._silent.since if self._silent is not None and silent else 0,
        )
        left_out = unloaded(plan, views=self._sink is None or self._sink.makes_views)
        warnings = (*reading.warnings, *plan.notes, *filter(None, [self._unheld]), *self._notes)
        return replace(reading, load=progress, left_out=(*left_out, *reading.left_out), warnings=warnings)

    def _loads(self) -> bool:
        return self._plan is not None and self._position_ts < self._plan.ts

    def _rests_until(self) -> str:
        return self._guard.rests_until() if self._guard is not None and self._loads() else ""

    def _follows(self, ts: int) -> bool:
        """Return True for a ts at which the stream comes up to a later load."""
        return self._plan is not None and self._plan.streams and ts < self._begin

    def _release_guard(self) -> None:
        if self._guard is not None:
            self._guard.__exit__(None, None, None)
            self._guard = None


def sizes_of(parts: Sequence[Part]) -> list[int]:
    """Return the bytes of the first chunks, by their number."""
    return [*accumulate((part.size_bytes for part in parts), initial=0)]


def load_progress(plan: LoadPlan, done: int, sizes: Sequence[int], **more: Any) -> LoadProgress:
    """Return the progress of a load of which the first chunks are done."""
    table = plan.chunks[done].table if done < len(plan.chunks) else len(plan.tables)
    return LoadProgress(
        ts=plan.ts,
        tables=len(plan.tables),
        tables_done=table,
        chunks=len(plan.chunks),
        chunks_done=done,
        table=str(plan.tables[table].name) if table < len(plan.tables) else "",
        size_bytes=sizes[-1],
        bytes_done=sizes[done],
        **more,
    )


def parts_of(plan: LoadPlan) -> Iterator[Part]:
    """Return the chunks of a plan, each at its commit_ts."""
    count = Counter(chunk.table for chunk in plan.chunks)
    for commit_ts, chunk in enumerate(plan.chunks, defined_ts(plan) + 1):
        table = plan.table_of(chunk)
        rows = table.estimated_rows // count[chunk.table] or CHUNK_ROWS
        yield Part(commit_ts, table, chunk, rows, table.estimated_bytes // count[chunk.table] or CHUNK_BYTES)
