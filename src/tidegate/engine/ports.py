"""The ports: the protocols of sources, sinks, task runners and checkpoint stores that the engine works with.

    Source ── frontier(), ddls(), changes() ──► engine ── units + Changes ──► Sink.run ── in tasks: Changes.batches
       ▲                                          │  └── DDL by DDL (barrier ALL) ──► Sink.ddl      Changes.in_order
       └──────── release(checkpoint_ts) ──────────┘  └── advance(round, results)

N sources and M sinks are N + M adapters.  Nothing here knows a protocol, Spark or a store; the rules between
adapters are pure (plan.py, segment.py).  A user's sink or source is a class with these methods that passes the
contract suite of `tidegate.testing` (docs/write-a-sink.md).

The module has four parts, in this order: the limits of a round (`RowRange` to `rest_s`); parked tables, which sinks
keep and the engine resumes (`Parked` to `known_to`); the protocols (`Tasks`, `Changes`, `Source`, `Sink` and
`Checkpoints`); and errors about rows (`refused_rows` to `blamed`).  A source or a sink needs the third alone.

- Timestamps are TSOs: physical milliseconds << 18 | logical.  Ranges are (after, upto]: a row whose commit_ts equals a
  DDL's comes before that DDL.
- Whatever a method raises is a TidegateError.  Its `retry` alone decides: with LATER the engine waits and calls again,
  NEVER ends the feed.  Every method may be called again after an error that it raised.
- A round is bounded by the rows that fit into memory (`round_end`), and merging pauses between rounds while few rows
  wait (`rest_s`).
- A table that a sink refuses permanently is parked while the others continue (`Parked`).
- Errors about rows name the messages of those rows, so that a source can set the messages aside:

      refused_rows      some rows of a batch            their positions
      converted         a batch that does not convert   the rows that fail to convert on their own
      refused_layout    a layout                        all rows in it: it describes no valid table
      blamed            a table, refused by its sink    the row that the error names; if the table is known from its
                                                        rows alone, the rows of the rarest layout

  When a table that is known from its rows alone is refused, some of these rows are wrong.  Rows are set aside layout
  by layout, the rarest first, until the rest is accepted.
"""

import pickle
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec

from tidegate.codec.columnar.rows import Batch
from tidegate.engine.change import Chunk, Layout, SourceDdl
from tidegate.engine.plan import Barrier, Checkpoint, PlannedDdl, Round, Rows, Segment, Unit
from tidegate.engine.reading import Reading
from tidegate.model.errors import (
    EncodeError,
    EnvironmentFault,
    Fenced,
    HistoryLost,
    Retry,
    SchemaError,
    SinkRefused,
    TidegateError,
)
from tidegate.model.left_out import LeftOut
from tidegate.model.path_counts import PathCounts
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.state import Database, SchemaState


class RowRange(NamedTuple):
    """Rows that are read together: their range of commit_ts, their number, and their size in memory."""

    first_ts: int
    last_ts: int
    rows: int
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RoundLimit:
    """The limits of one round."""

    rows: int
    size_bytes: int


ROUND: Final = RoundLimit(rows=2_000_000, size_bytes=256 << 20)
"""The default limit of a round, over all tables. Workers hold the rows about four times while they merge (as read,
sorted, typed, written): about 1 GiB together, for rows of 100 bytes and of 10 KiB alike."""

BUSY_ROWS: Final = 50_000
"""With a backlog of this many rows, rounds follow each other without a rest."""
REST: Final = 3.0
"""The rest after a merge, as a multiple of its time: landing and readers have three quarters of a quiet feed's time."""
REST_MAX_S: Final = 4.0
"""The longest rest, so that merged tables stay only some seconds behind."""


def round_end(ranges: Iterable[RowRange], upto: int, limit: RoundLimit = ROUND) -> int:
    """Return the largest end at or below `upto` up to which the ranges stay within `limit`, except that the first
    always fits.

    Any timestamp at or below the frontier is one at which all tables agree, so a backlog may be cut anywhere.  A
    range that overlaps the round counts whole, because a row group is read whole; at least one range is finished, as
    a transaction is never cut."""
    ordered = sorted(ranges)
    rows = size_bytes = 0
    for index, part in enumerate(ordered):
        rows += part.rows
        size_bytes += part.size_bytes
        if index and (rows > limit.rows or size_bytes > limit.size_bytes):
            nearest = min(table.last_ts for table in ordered)
            return min(max(part.first_ts - 1, nearest), upto)
    return upto


def tasks_at_once(rows: int, slots: int, limit: int | None = None) -> int | None:
    """Return how many tables to merge at the same time, `limit` at most (None: all). With a small backlog these are
    half of the slots, so that landing finds a free one."""
    if rows >= BUSY_ROWS:
        return limit
    half = max(slots // 2, 1)
    return half if limit is None else min(limit, half)


def rest_s(took_s: float, rows: int, shortest_s: float) -> float:
    """Return the rest in seconds after a round of `rows` that took `took_s`; rounds start at least `shortest_s` apart.

    A merge costs nearly the same for one row as for some thousands, and rows that are not merged yet are visible
    live."""
    if rows >= BUSY_ROWS:
        return 0.0
    return max(min(took_s * REST, REST_MAX_S), shortest_s - took_s, 0.0)


class Parked(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tables that are parked together: the sink refused one of their steps permanently; other tables go on.

        round (C, E]     orders   rows ──► ALTER ✗ refused       orders is parked at C
                         visits   rows ───────────────────► E    E is published, with orders as it was at C
        rounds behind E  the units of orders are left out; a table tied to it by a step (EXCHANGE, TRUNCATE) parks, too
        resume           from C, with the schema of C, the units of orders alone, up to the checkpoint of that moment

    A step that was done before the refused one is not done again: a table knows its own position.  The source keeps
    the changes behind C as long as a table stands there.

    `incarnations` identify the tables, `names` are their present names.  `at` is the checkpoint that their rows are
    of, `schema` the digest of the schema there; `code`, `message`, `table` and `commit_ts` are the error's,
    `since_ms` is when it occurred (Unix milliseconds)."""

    incarnations: tuple[str, ...]
    names: tuple[str, ...]
    checkpoint: Checkpoint = msgspec.field(name="at")
    schema: str
    code: str
    message: str
    table: str = ""
    commit_ts: int = 0
    since_ms: int = 0
    loads: bool = False
    """True for tables that a reload makes (engine/reload.py): they take their names when they are resumed."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The units of a round that were refused: the tables of each, and the error; None for one tied to a parked
    table."""

    incarnations: frozenset[str]
    error: TidegateError | None = None


def parks(error: TidegateError) -> bool:
    """Return True if an error parks the unit's tables: it concerns no other unit, and a retry would not help. An error
    that names messages is left to the source (`Source.refused`)."""
    everybody = Fenced, HistoryLost, EnvironmentFault
    return error.retry is Retry.NEVER and not error.messages and not isinstance(error, everybody)


def touched(units: Iterable[Unit], incarnations: Collection[str]) -> tuple[list[Unit], frozenset[str]]:
    """Return the units that use one of `incarnations`, and `incarnations` with all tables of those units."""
    matching, all_of = [], frozenset(incarnations)
    for unit in units:
        if not all_of.isdisjoint(unit.incarnations):
            matching.append(unit)
            all_of |= unit.incarnations
    return matching, all_of


def parked_after(
    before: Sequence[Parked], refused: Iterable[Refused], checkpoint: Checkpoint, schema: str, now_ms: int
) -> tuple[Parked, ...]:
    """Return the parked tables after a round from `checkpoint`, whose schema has that digest. Tables that a unit ties
    together share the position of the first that stopped."""
    groups = list(before)
    for result in refused:
        tied = [group for group in groups if not result.incarnations.isdisjoint(group.incarnations)]
        if result.error is not None:
            tied.append(_parked(result.incarnations, result.error, checkpoint, schema, now_ms))
        if tied:
            first = min(tied, key=lambda group: group.checkpoint.ts)
            everyone = result.incarnations.union(*(group.incarnations for group in tied))
            groups = [group for group in groups if group not in tied]
            groups.append(msgspec.structs.replace(first, incarnations=tuple(sorted(everyone))))
    return tuple(groups)


def _parked(
    incarnations: Iterable[str], error: TidegateError, checkpoint: Checkpoint, schema: str, now_ms: int
) -> Parked:
    where = error.where
    reason = error.code, str(error), where.table, where.commit_ts
    return Parked(tuple(sorted(incarnations)), (), checkpoint, schema, *reason, now_ms)


def refused_again(group: Parked, error: TidegateError, now_ms: int) -> Parked:
    """Return parked tables with the error of the attempt to resume them."""
    new = _parked(group.incarnations, error, group.checkpoint, group.schema, now_ms)
    return msgspec.structs.replace(new, names=group.names)


def known_to(groups: Iterable[Parked], state: SchemaState) -> tuple[Parked, ...]:
    """Return the groups with the names of their tables in `state`: of dropped tables only where no other is left, and
    without tables that `state` no longer knows; of a reload all."""
    kept = []
    for group in groups:
        alive = [str(table.name) for table in state.tables.values() if table.incarnation in group.incarnations]
        dropped = [str(table.name) for table in state.dropped if table.incarnation in group.incarnations]
        named = tuple(sorted(set(alive or dropped)))
        if named or group.loads:
            kept.append(group if named == group.names else msgspec.structs.replace(group, names=named))
    return tuple(kept)


Job = TypeVar("Job")
Answer = TypeVar("Answer")


class Tasks(Protocol):
    """Runs jobs side by side: as tasks of Spark, or in this process for tests and tools.

    Jobs, answers and `work` travel by pickle; rows do not travel this way, only plans and reports of some kilobytes."""

    @property
    def slots(self) -> int:
        """The number of jobs that run at the same time, at least 1."""

    def run(self, work: Callable[[Job], Answer], jobs: Sequence[Job]) -> list[Answer]:
        """Return the answers of `work` in the order of `jobs`, once all have ended.

        Raises the first TidegateError that a job raised, SinkError for a job that ended without an answer."""

    def aside(self, name: str) -> "Tasks":
        """Return tasks for an activity beside the rounds, such as landing; its `cancel` ends that activity alone."""

    def cancel(self) -> None:
        """End the jobs that run now; their `run` raises."""


@runtime_checkable
class WithStart(Protocol):
    """Tasks that start their environment, such as Spark, when it is first needed."""

    def on_start(self, listener: Callable[[str], None]) -> None:
        """Call `told` with the name of the environment when it begins to start, and with "" when it is ready."""


class LocalTasks:
    """Runs jobs in this process; `slots` is the number that it reports, `jobs` counts the jobs it ran. With `pickles`,
    work, jobs and answers are pickled, so that objects that cannot go to a worker fail here, too."""

    def __init__(self, slots: int = 2, *, pickles: bool = True) -> None:
        self.slots = slots
        self.jobs = 0
        self._pickles = pickles

    def run(self, work: Callable[[Job], Answer], jobs: Sequence[Job]) -> list[Answer]:
        """Return the answers in the order of `jobs`; the first error ends it."""
        self.jobs += len(jobs)
        if not self._pickles:
            return [work(job) for job in jobs]
        unpickled: tuple[Callable[[Job], Answer], Sequence[Job]] = pickle.loads(pickle.dumps((work, jobs)))  # noqa: S301  ours
        answers: list[Answer] = pickle.loads(pickle.dumps([unpickled[0](job) for job in unpickled[1]]))  # noqa: S301
        return answers

    def aside(self, name: str) -> "LocalTasks":  # noqa: ARG002
        """Return these tasks: they run one after the other."""
        return self

    def cancel(self) -> None:
        """Do nothing: `run` has returned."""


class TableSpan(NamedTuple):
    """The changes of one table in a range: an upper bound of their number, repeats included, and bounds of their
    commit_ts."""

    rows: int
    min_ts: int
    max_ts: int

    def joined(self, rows: int, min_ts: int, max_ts: int) -> "TableSpan":
        """Return the span with more rows."""
        return TableSpan(self.rows + rows, min(self.min_ts, min_ts), max(self.max_ts, max_ts))


class Changes(Protocol):
    """The row changes of a range of commit_ts, by table: a value that pickles and travels to tasks.

    Repeats of a source (TiCDC sends rows again after a restart) may be among them."""

    @property
    def after(self) -> int:
        """The range's begin, exclusive."""

    @property
    def upto(self) -> int:
        """The range's end, inclusive."""

    def tables(self) -> Mapping[TableName, TableSpan]:
        """Return the tables that may have rows in the range."""

    def row_ranges(self) -> Iterable[RowRange]:
        """Return the ranges of rows that are read together, with their rows and bytes, to measure rounds by."""

    def layouts(self, name: TableName, after: int, upto: int) -> Sequence[Layout]:
        """Return the different layouts of a table's rows in (after, upto], in the order of their first row."""

    def batches(self, name: TableName, after: int, upto: int) -> Iterator[Chunk]:
        """Return the rows of one table in (after, upto], in commit order; images are typed or texts."""

    def in_order(self, names: Collection[TableName], after: int, upto: int) -> Iterator[Chunk]:
        """Return the rows of several tables in (after, upto]: whole transactions, in commit order; a chunk of a full
        load, which has one commit_ts, in parts."""


class Source(Protocol):
    """A source of row changes and DDLs."""

    def prepare(self) -> None:
        """Begin what must run before a ts is taken at which a new feed starts. Raises SourceBehind until it does."""
        return

    def start(self, tasks: Tasks, checkpoint_ts: int | None) -> int:
        """Start reading above `checkpoint_ts`; None for a new feed. Return the ts above which the feed begins.

        Raises the errors of address, positions and history. It is called again after a failure."""

    def stop(self) -> None:
        """End all activity; durable data stays."""

    def limited(self, tasks: Tasks) -> Tasks:
        """Return the tasks in which changes may be read: these, or with less parallelism."""
        return tasks

    def epoch(self) -> int:
        """Return the epoch of this run among the runs with one target: the highest continues. 0: no epochs."""
        return 0

    def look_at(self, sink: "Sink[Any]") -> None:  # noqa: ARG002
        """Accept the sink, for queries to its target; called before `start`."""
        return

    def whole_from(self, checkpoint_ts: int | None = None) -> int:  # noqa: ARG002
        """Return the TSO from which the feed's tables are complete; 0: they are already, or always. A sink
        whose readers see checkpoints shows none below it."""
        return 0

    def ends_at(self) -> int | None:
        """Return the ts at which the source has no further changes; None if more may come."""
        return None

    def failure(self) -> TidegateError | None:
        """Return the error that ended reading, if any; `start` restarts it."""

    def replaced(self) -> TidegateError | None:
        """Return Fenced if a run of a higher epoch has begun, even if nothing has failed yet."""
        return None

    def idle(self) -> bool:
        """Return True if all data of the source is visible below the frontier, and only resolved timestamps are
        left."""

    def ended(self) -> bool:
        """Return True if the writer of the source has ended, so that no data comes until it is restarted; False if the
        source cannot know."""
        return False

    def rests_at(self, ts: int) -> int:
        """Return `ts`, or the next one for a DDL at `ts` whose rows follow it (`SourceDdl.rows_follow`): only with them
        the target equals the source. No frontier is such a `ts`."""
        return ts

    def refused(self, error: TidegateError) -> bool:  # noqa: ARG002
        """Handle the refusal of some messages (`error.messages`) by the plan or the sink; return True if the source has
        put them aside, so that the round must be planned anew."""
        return False

    def refresh(self) -> None:
        """Poll for new data."""

    def frontier(self) -> int | None:
        """Return the ts at or below which no new events appear, except DDLs at exactly that ts; None: none yet."""

    def at(self, position: "SinkPosition") -> int | None:  # noqa: ARG002
        """Note the feed's position before a round; return the ts that the round must not pass, None for any."""
        return None

    def carry(self, state: SchemaState) -> None:  # noqa: ARG002
        """Take the tables of a resuming feed at its checkpoint; called before `start`."""
        return

    def definitions(self, ts: int) -> Sequence[TableInfo]:
        """Return the replicated tables that exist at `ts`; () for a source that learns of tables from messages."""

    def databases(self, ts: int) -> Sequence[Database]:  # noqa: ARG002
        """Return the databases at `ts` that neither the sink nor a DDL tells; () for a source that knows none."""
        return ()

    def ddls(self, after: int, upto: int) -> Sequence[SourceDdl]:
        """Return each DDL with after <= commit_ts <= upto once, by (commit_ts, arrival); or those before the next row.

        Inclusive of `after`: a DDL may arrive when its ts is resolved already. The checkpoint names those done."""

    def changes(self, after: int, upto: int) -> Changes:
        """Return the row changes with after < commit_ts <= upto, of tables that the feed carries."""

    def release(self, checkpoint_ts: int) -> None:
        """Allow the source to trim everything at or below `checkpoint_ts`."""

    def reading(self) -> Reading:
        """Return counts and positions, for reports."""


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """When a sink wants rounds. `limit` bounds one round, `load_limit` one of a full load (None: `limit`); `idle_s` is
    the interval for publishing a checkpoint that moved without rows (seconds), `flush_s` the shortest time between
    starts of rounds with a small backlog. `rests` delays small rounds (`rest_s`), where one row costs nearly as much as
    thousands. `each_ddl` ends a round at each DDL (barrier TABLE)."""

    limit: RoundLimit = ROUND
    load_limit: RoundLimit | None = None
    idle_s: float = 0.0
    flush_s: float = 0.2
    rests: bool = False
    each_ddl: bool = False


class SinkPosition(NamedTuple):
    """A sink's position: its checkpoint and the schema there. `is_new` for one that has never advanced."""

    checkpoint: Checkpoint
    state: SchemaState
    is_new: bool = False


class Result(Protocol):
    """The report of a sink's task."""

    @property
    def by_table(self) -> Mapping[TableName, int]:
        """Rows of each table."""

    @property
    def rows(self) -> int:
        """Row changes that were applied or written."""

    @property
    def size_bytes(self) -> int:
        """Bytes of messages, statements or documents that were written; 0 where they are not counted."""

    @property
    def messages(self) -> int:
        """Messages, statements or documents that were written."""

    @property
    def ahead(self) -> int:
        """The ts that the table had reached before; above the round's end if a longer round was cut off. 0: not
        ahead."""

    @property
    def corrupt(self) -> int:
        """Rows whose checksum contradicts their values."""

    @property
    def path_counts(self) -> PathCounts:
        """Rows by path, such as `encode/columns`."""


@dataclass(slots=True)
class Written:
    """The plain Result: rows and messages written; `size_bytes` of messages or statements. `name` is the only table;
    without one, `tables` has the rows of each."""

    name: TableName | None = None
    rows: int = 0
    messages: int = 0
    size_bytes: int = 0
    ahead: int = 0
    corrupt: int = 0
    path_counts: PathCounts = field(default_factory=PathCounts)
    tables: Counter[TableName] = field(default_factory=Counter)

    @property
    def by_table(self) -> Mapping[TableName, int]:
        return self.tables if self.name is None else {self.name: self.rows}

    def coming(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Return the chunks that have rows, and add each to the counts."""
        for chunk in chunks:
            self.corrupt += chunk.corrupt
            self.path_counts.update(chunk.path_counts)
            if len(chunk):
                yield chunk


R = TypeVar("R", bound=Result)


class Sink(Protocol[R]):
    """A target of changes; `R` is the result of its tasks. The class of a sink documents its guarantee, the place of
    its progress, and the effect of a DDL.

    A sink is a SegmentSink or a UnitSink, and adds optional abilities: WithGate, WithAdmission, WithUpkeep,
    WithOmissions, WithCheck, WithParking. `held`, `open` and `close` do nothing here."""

    barrier: Barrier
    """The scope of a DDL: TABLE cuts the tables that it changes, and DDLs are steps of units; ALL cuts all tables."""
    flush_policy: FlushPolicy = FlushPolicy()
    fences: bool = True
    """True if only the last of several runs can write: that run continues, whichever fences the source. Otherwise the
    source's epoch decides."""
    epoch: int = 0
    """The epoch of the source; the engine sets it."""
    whole_from: int = 0
    """The TSO from which the tables are whole (`Source.whole_from`); the engine sets it."""
    makes_views: bool = True
    """True if CREATE VIEW makes a view, or is brought to readers."""
    brings_again: str = ""
    """What may come again while the feed runs (engine/refresh.py): "keys", rows of some keys; "rows", whole tables,
    too, since the sink is WithKeys; "tables", which are made anew as a whole; "events", which readers get once more
    where that is asked; "" for nothing."""
    truncates: bool = True
    """True if TRUNCATE TABLE empties a table of the target."""

    def filled(self, tables: Sequence[TableInfo]) -> Mapping[TableName, str]:  # noqa: ARG002
        """Return the tables that hold rows in the target, with a description: "table shop.t of .. has rows". None
        if each feed has its own tables. It is called between `recover` and `open`."""
        return {}

    def has_lock(self, name: str) -> bool:  # noqa: ARG002
        """Return True if another session of the target's server has a user-level lock of that name."""
        return False

    def run_lock(self) -> AbstractContextManager[None]:
        """Exclude or fence other writers until the block ends. Raises EnvironmentFault and Fenced."""
        return nullcontext()

    def recover(self) -> SinkPosition:
        """Return the sink's position. Raises SinkRefused when the target belongs to another feed or has another
        form."""

    def open(self, position: SinkPosition) -> None:  # noqa: ARG002
        """Connect to the target before the first round. Raises errors of the address, the account and the rules."""
        return

    def run(self, tasks: Tasks, work: Any, changes: Changes) -> Sequence[R]:
        """Write a round in tasks, a segment or units; return when all is durable. Repeating it changes nothing."""

    def advance(self, planned: Round, results: Sequence[R]) -> SinkPosition:
        """Make the round's end the checkpoint, in one atomic write, and send resolved timestamps. Raises Fenced if
        another run goes on, Overtaken if a run of an earlier epoch has advanced: `recover` returns its position."""

    def close(self) -> None:
        """Close connections."""
        return


class SegmentSink(Sink[R], Protocol[R]):
    """A sink in which a DDL cuts everything: rows of all tables up to it, then the DDL."""

    barrier: Barrier = Barrier.ALL

    def run(self, tasks: Tasks, segment: Segment, changes: Changes) -> Sequence[R]:
        """Write the rows of a segment, if any, in tasks; return when all are durable."""

    def ddl(self, planned: PlannedDdl) -> None:
        """Execute one DDL; everything before it is durable, and it is durable on return."""


class UnitSink(Sink[R], Protocol[R]):
    """A sink in which a DDL cuts the tables that it changes; it is a step of a unit."""

    barrier: Barrier = Barrier.TABLE

    def run(self, tasks: Tasks, units: Sequence[Unit], changes: Changes) -> Sequence[R]:
        """Write the units in tasks; return when all is durable."""


@runtime_checkable
class WithGate(Protocol):
    """A sink that can hold rounds back (barrier ALL)."""

    def gate(self, checkpoint_ts: int) -> int | None:
        """Return the ts, at or above the checkpoint, that rounds must not pass now, so that the target can be read as
        of it; None for no gate. It is called before each round."""


@runtime_checkable
class WithAdmission(Protocol):
    """A sink that checks a round before it runs."""

    def admit(self, planned: Round) -> None:
        """Raise SinkRefused for a round that cannot be written."""


@runtime_checkable
class WithUpkeep(Protocol):
    """A sink that does maintenance between rounds."""

    def upkeep(self, tasks: Tasks, frontier: int | None, enough: Callable[[], bool]) -> None:
        """Do maintenance for a short time if it is due, until `enough()` is true. Errors here are warnings."""


@runtime_checkable
class WithOmissions(Protocol):
    """A sink that cannot write every table."""

    def left_out(self) -> Sequence[LeftOut]:
        """Return the tables that the sink leaves out."""


@runtime_checkable
class WithCheck(Protocol):
    """A sink that `run --check` can try."""

    def check(self) -> bool:
        """Connect to the target without changing it; return False if that is impossible. Raises errors of the address,
        the account, and another changefeed's data."""


@runtime_checkable
class WithParking(Protocol):
    """A sink (barrier TABLE) that parks a table when one of its steps is refused, while the others go on."""

    def parked(self) -> Sequence[Parked]:
        """Return the parked tables."""

    def resuming(self) -> Sequence[tuple[Parked, SchemaState]]:
        """Return the parked tables that a user resumes, each group with the schema at its position."""

    def resume(self, tasks: Tasks, units: Sequence[Unit], changes: Changes) -> Sequence[Result]:
        """Write the units of parked tables. Raises the error of the first that fails."""

    def resumed(self, group: Parked, error: TidegateError | None) -> None:
        """Unpark tables, or record the error for which they stay parked, those of a reload never; the next `advance`
        publishes it."""

    def state_of(self, group: Parked) -> SchemaState:
        """Return the schema at the position of parked tables."""


@runtime_checkable
class WithKeys(Protocol):
    """A sink that tells which rows its target has, so that tables are loaded again over them (engine/refresh.py)."""

    def keys(self, table: TableInfo) -> Iterable[tuple[str, ...]]:
        """Return the handle keys of all rows, as texts (`reload.key_text`); more or fewer while rows are written."""


@runtime_checkable
class WithReload(WithParking, Protocol):
    """A sink that loads tables beside the rounds (engine/reload.py)."""

    awaits: Callable[[str, str], bool] | None = None
    """The tables of the last reload: what it has no rows of waits for them."""

    @property
    def home(self) -> str:
        """The directory with the file of its reload."""

    def load(self, tasks: Tasks, units: Sequence[Unit], changes: Changes) -> None:
        """Write chunks of tables that no round knows yet, those that are there already once. Raises the first
        error."""

    def await_tables(self, tables: Sequence[TableInfo], position: SinkPosition) -> None:
        """Park tables that are being loaded at a position, whose state has them, in place of those of before; no table
        keeps the position until they are planned. The next `advance` publishes it."""


class Saved(NamedTuple):
    """The stored state of one feed: its checkpoint, and notes of its sink, such as topics written to."""

    position: SinkPosition
    notes: Mapping[str, Any]


class Checkpoints(Protocol):
    """Stores a feed's checkpoint for a sink that stores no progress."""

    def run_lock(self) -> AbstractContextManager[None]:
        """Exclude other runs of the feed until the block ends. Raises EnvironmentFault when one runs."""

    def load(self) -> Saved | None:
        """Return the checkpoint that was saved last; None for a new feed. Raises ConfigError for another feed's, or no
        checkpoint."""

    def save(self, saved: Saved) -> None:
        """Replace the checkpoint by `saved`, atomically. Raises StateUnwritable, which may be retried."""


def sink_position(saved: Saved | None) -> SinkPosition:
    """Return the position of a feed whose checkpoint was `saved`; a new feed's for None, and before it began."""
    new = SinkPosition(Checkpoint(), SchemaState(), is_new=True)
    return new if saved is None or not saved.position.checkpoint.ts else saved.position


REFUSED_MAX: Final = 10_000
"""The most messages that one error names; the next error names others."""
OF_TABLES: Final = SchemaError, EncodeError, SinkRefused
"""Errors whose cause may be a table, not the configuration."""

DEFECTS: Final = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, NotImplementedError)
"""Errors of Python and Arrow for rows that a table cannot hold; a retry raises them again."""

T = TypeVar("T")
Message = tuple[str, int, int, int]


def refused_rows(
    batch: Batch, rows: Iterable[int], what: str, rest: str = "", kind: type[TidegateError] = SchemaError
) -> TidegateError:
    """Return the error of some rows, with the position of the first in its text, and the messages of all."""
    some = list(islice(rows, REFUSED_MAX))
    where: dict[str, Any] = {"table": str(TableName(batch.schema, batch.table))}
    where["commit_ts"] = batch.commit_ts[some[0]].as_py()
    if batch.positions is None:
        return kind(f"{what}{rest}").at(**where)
    messages = list(dict.fromkeys(_messages(batch, some)))
    topic, partition, offset, _ = messages[0]
    error = kind(f"{what} (topic {topic} partition {partition} offset {offset}){rest}")
    error.messages = tuple(messages)
    return error.at(**where, topic=topic, partition=partition, offset=offset)


def converted(batch: Batch, convert: Callable[[Batch], T]) -> T:
    """Return `convert(batch)`; an error names the messages of the rows that cannot be converted."""
    name = TableName(batch.schema, batch.table)
    if not batch.fields:
        raise refused_rows(batch, range(batch.rows), f"table {name}: a row without columns")
    try:
        return convert(batch)
    except (*OF_TABLES, *DEFECTS) as error:
        bad = [row for row in range(batch.rows) if not _takes(convert, batch.part(row, row + 1))]
        what = str(error) if isinstance(error, OF_TABLES) else f"table {name}: {type(error).__name__}: {error}"
        kind = type(error) if isinstance(error, OF_TABLES) else SinkRefused
        raise refused_rows(batch, bad or range(batch.rows), what, kind=kind) from error


def _takes(convert: Callable[[Batch], object], batch: Batch) -> bool:
    try:
        convert(batch)
    except (*OF_TABLES, *DEFECTS):
        return False
    return True


def refused_layout(changes: Changes, name: TableName, layout: Layout, what: str) -> TidegateError:
    """Return the error of a table's rows with this layout."""
    batches = (batch for batch, other in _batches(changes, name, changes.after, changes.upto) if other == layout)
    first = next(batches)
    error = refused_rows(first, range(first.rows), f"table {name}: {what}")
    for batch in batches:
        error.messages += tuple(_messages(batch, range(batch.rows)))
    error.messages = tuple(dict.fromkeys(error.messages))[:REFUSED_MAX]
    return error


def blamed(error: TidegateError, steps: Iterable[Rows], changes: Changes) -> TidegateError:
    """Return a sink's error about these rows, with their messages if it names none and its table was inferred from
    rows."""
    if not parks(error) or not isinstance(error, OF_TABLES):
        return error
    for step in steps:
        if step.table.inferred and error.where.table == str(step.table.name):
            where = error.where
            row = (
                (where.topic, where.partition or 0, where.offset, where.commit_ts) if where.offset is not None else None
            )
            error.messages = (row,) if row is not None else _rarest(changes, step)
            if error.messages:
                topic, partition, offset, ts = error.messages[0]
                return error.at(commit_ts=ts, topic=topic, partition=partition, offset=offset)
    return error


def _rarest(changes: Changes, step: Rows) -> tuple[Message, ...]:
    by_layout: dict[Layout, list[Message]] = {}
    for batch, layout in _batches(changes, step.table.name, step.after, step.upto):
        if batch.positions is not None:
            mine = by_layout.setdefault(layout, [])
            mine += _messages(batch, range(min(batch.rows, REFUSED_MAX - len(mine))))
    return tuple(dict.fromkeys(min(by_layout.values(), key=len, default=())))


def _batches(changes: Changes, name: TableName, after: int, upto: int) -> Iterator[tuple[Batch, Layout]]:
    for chunk in changes.batches(name, after, upto):
        for batch, _ in chunk.parts:
            yield batch, Layout(batch.fields, batch.pk_names)


def _messages(batch: Batch, rows: Sequence[int]) -> Iterator[Message]:
    positions = batch.positions.take(list(rows)).to_pylist()
    for row, position in zip(rows, positions, strict=True):
        yield position["topic"], position["partition"], position["offset"], batch.commit_ts[row].as_py()
