"""The ports: the protocols of sources, sinks, task runners and checkpoint stores that the engine works with.

    Source ── frontier(), ddls(), changes() ──► engine ── units + Changes ──► Sink.run ── in tasks: Changes.batches
       ▲                                          │  └── DDL by DDL (barrier ALL) ──► Sink.ddl      Changes.in_order
       └──────── release(checkpoint_ts) ──────────┘  └── advance(round, results)

N sources and M sinks are N + M adapters.  Nothing here knows a protocol, Spark or a store; the rules between
adapters are pure (plan.py, segment.py).  A sink or source of one's own is a class with these methods that passes the
contract suite of `tidegate.testing` (docs/write-a-sink.md).

- Timestamps are TSOs: physical milliseconds << 18 | logical.  Ranges are (after, upto]: a row whose commit_ts equals a
  DDL's comes before that DDL.
- Whatever a method raises is a TidegateError.  Its `retry` alone decides: with LATER the engine waits and calls again,
  NEVER ends the feed.  Every method may be called again after an error that it raised.
- A round is bounded by the rows that memory holds (`round_end`), and merging rests between rounds while few rows wait
  (`rest_s`).
- A table that a sink refuses for good is parked while the others go on (`Parked`).
- Errors about rows carry the messages that brought those rows, so that a source can set the messages aside:

      refused_rows      some rows of a batch            their positions
      converted         a batch that does not convert   the rows that do not convert alone either
      refused_layout    a layout                        all rows in it: it describes no valid table
      blamed            a table, refused by its sink    the row that the error names; if the table is known from its
                                                        rows alone, the rows of the rarest layout

  When a table that is known from its rows alone is refused, some of these rows are wrong.  The rows of one layout
  after another are set aside, the rarest first, until the rest is taken.
"""

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec

from tidegate.codec.columnar.rows import Batch
from tidegate.engine.change import Chunk, Layout, PlacedDdl
from tidegate.engine.plan import Barrier, Checkpoint, PlannedDdl, Round, Rows, Segment, Unit
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
from tidegate.schema.state import SchemaState


class RowRange(NamedTuple):
    """Rows that are read together: their range of commit_ts, their number, and their bytes when read."""

    first_ts: int
    last_ts: int
    rows: int
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RoundLimit:
    """What a round takes at most."""

    rows: int
    size_bytes: int


ROUND: Final = RoundLimit(rows=2_000_000, size_bytes=256 << 20)
"""Of all tables together; the workers hold it some four times over while they merge (as read, sorted, typed, written),
about 1 GiB among them, whether rows have 100 bytes or 10 KiB."""

BUSY_ROWS: Final = 50_000
"""Where so much waits, rounds follow each other: a catch-up is quicker than any rest."""
REST: Final = 3.0
"""Merging takes a quarter of the time of a quiet feed, so that landing and readers have the rest."""
REST_MAX_S: Final = 4.0
"""Merged tables stay some seconds behind, not more."""


def round_end(ranges: Iterable[RowRange], upto: int, limit: RoundLimit = ROUND) -> int:
    """Return the largest end at or below `upto` up to which the ranges stay within `limit`, except that the first
    always fits.

    Any timestamp at or below the frontier is one at which all tables agree, so a backlog may be cut anywhere.  A
    range that overlaps the round counts whole, because a row group is read whole; at least one range is finished, as
    a transaction is never cut."""
    ordered = sorted(ranges)
    rows = size_bytes = 0
    for at, part in enumerate(ordered):
        rows += part.rows
        size_bytes += part.size_bytes
        if at and (rows > limit.rows or size_bytes > limit.size_bytes):
            nearest = min(one.last_ts for one in ordered)
            return min(max(part.first_ts - 1, nearest), upto)
    return upto


def tasks_at_once(rows: int, slots: int, asked: int | None = None) -> int | None:
    """Return how many tables are merged at the same time, of what was `asked` (None: all); half of the slots while
    little waits, so that a batch that lands finds one free and does not wait for all tables."""
    if rows >= BUSY_ROWS:
        return asked
    half = max(slots // 2, 1)
    return half if asked is None else min(asked, half)


def rest_s(took_s: float, rows: int, shortest_s: float) -> float:
    """Return how long merging rests after a round of `rows` that took `took_s`; rounds start at least `shortest_s`
    apart.

    A merge costs nearly the same for one row as for some thousands, and rows that are not merged yet are visible
    live."""
    if rows >= BUSY_ROWS:
        return 0.0
    return max(min(took_s * REST, REST_MAX_S), shortest_s - took_s, 0.0)


class Parked(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tables that are parked together: a sink refused a step of theirs for good, and they stand still while others go
    on.

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
    at: Checkpoint
    schema: str
    code: str
    message: str
    table: str = ""
    commit_ts: int = 0
    since_ms: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """What one round's units met: the tables of each, and the error; None for one that is tied to a parked table."""

    incarnations: frozenset[str]
    error: TidegateError | None = None


def parks(error: TidegateError) -> bool:
    """Return True if an error of one unit is its tables' own: no other unit would meet it, and no wait would help.

    One that names messages is the source's to decide about (`Source.refused`)."""
    everybody = Fenced, HistoryLost, EnvironmentFault
    return error.retry is Retry.NEVER and not error.messages and not isinstance(error, everybody)


def touched(units: Iterable[Unit], incarnations: Collection[str]) -> tuple[list[Unit], frozenset[str]]:
    """Return the units that work on one of `incarnations`, and these with all tables of those units."""
    found, all_of = [], frozenset(incarnations)
    for unit in units:
        if not all_of.isdisjoint(unit.incarnations):
            found.append(unit)
            all_of |= unit.incarnations
    return found, all_of


def parked_after(
    before: Sequence[Parked], refused: Iterable[Refused], at: Checkpoint, schema: str, now_ms: int
) -> tuple[Parked, ...]:
    """Return what is parked after a round from `at`, whose schema has that digest.

    Tables that a unit ties together stand together, where the first of them stopped."""
    groups = list(before)
    for one in refused:
        tied = [group for group in groups if not one.incarnations.isdisjoint(group.incarnations)]
        if one.error is not None:
            tied.append(_parked(one.incarnations, one.error, at, schema, now_ms))
        if tied:
            first = min(tied, key=lambda group: group.at.ts)
            everyone = one.incarnations.union(*(group.incarnations for group in tied))
            groups = [group for group in groups if group not in tied]
            groups.append(msgspec.structs.replace(first, incarnations=tuple(sorted(everyone))))
    return tuple(groups)


def _parked(incarnations: Iterable[str], error: TidegateError, at: Checkpoint, schema: str, now_ms: int) -> Parked:
    where = error.where
    told = error.code, str(error), where.table, where.commit_ts
    return Parked(tuple(sorted(incarnations)), (), at, schema, *told, now_ms)


def refused_again(group: Parked, error: TidegateError, now_ms: int) -> Parked:
    """Return parked tables with the error that bringing them back has met."""
    new = _parked(group.incarnations, error, group.at, group.schema, now_ms)
    return msgspec.structs.replace(new, names=group.names)


def known_to(groups: Iterable[Parked], state: SchemaState) -> tuple[Parked, ...]:
    """Return the groups with the names that their tables have in `state`, of dropped ones where no other is left; those
    that it has forgotten go."""
    kept = []
    for group in groups:
        alive = [str(table.name) for table in state.tables.values() if table.incarnation in group.incarnations]
        dropped = [str(table.name) for table in state.dropped if table.incarnation in group.incarnations]
        named = tuple(sorted(set(alive or dropped)))
        if named:
            kept.append(group if named == group.names else msgspec.structs.replace(group, names=named))
    return tuple(kept)


Job = TypeVar("Job")
Answer = TypeVar("Answer")


class Tasks(Protocol):
    """Runs jobs side by side: as tasks of Spark, or in this process for tests and tools.

    Jobs, answers and `work` travel by pickle; rows do not travel this way, only plans and reports of some kilobytes."""

    @property
    def slots(self) -> int:
        """How many jobs run at the same time, at least 1."""

    def run(self, work: Callable[[Job], Answer], jobs: Sequence[Job]) -> list[Answer]:
        """Return the answers of `work` in the order of `jobs`, once all have ended.

        Raises the first TidegateError that a job raised, SinkError for a job that ended without an answer."""

    def aside(self, name: str) -> "Tasks":
        """Return tasks for an activity beside the rounds, such as landing; `cancel` of it ends that activity alone."""

    def cancel(self) -> None:
        """End the jobs that run now; their `run` raises."""


class LocalTasks:
    """Runs jobs in this process; `slots` is what it says of itself, `jobs` counts what it ran.

    With `pickles`, work, jobs and answers travel by pickle, so that what cannot go to a worker fails here too."""

    def __init__(self, slots: int = 2, *, pickles: bool = True) -> None:
        self.slots = slots
        self.jobs = 0
        self._pickles = pickles

    def run(self, work: Callable[[Job], Answer], jobs: Sequence[Job]) -> list[Answer]:
        """Return the answers in the order of `jobs`; the first error ends it."""
        self.jobs += len(jobs)
        if not self._pickles:
            return [work(job) for job in jobs]
        there: tuple[Callable[[Job], Answer], Sequence[Job]] = pickle.loads(pickle.dumps((work, jobs)))  # noqa: S301  ours
        answers: list[Answer] = pickle.loads(pickle.dumps([there[0](job) for job in there[1]]))  # noqa: S301
        return answers

    def aside(self, name: str) -> "LocalTasks":  # noqa: ARG002
        """Return these same tasks: nothing runs beside anything."""
        return self

    def cancel(self) -> None:
        """Nothing runs that could be ended."""


class TableSpan(NamedTuple):
    """What there is of one table in a range: row changes at most, repeats counted, and bounds of their commit_ts."""

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
        """Return what a round is measured by: runs of rows that are read together, with their rows and bytes."""

    def layouts(self, name: TableName, after: int, upto: int) -> Sequence[Layout]:
        """Return the different layouts of a table's rows in (after, upto], in the order of their first row."""

    def batches(self, name: TableName, after: int, upto: int) -> Iterator[Chunk]:
        """Return the rows of one table in (after, upto], in commit order; images are typed or texts."""

    def in_order(self, names: Collection[TableName], after: int, upto: int) -> Iterator[Chunk]:
        """Return the rows of several tables in (after, upto]: whole transactions, in commit order."""


class PartitionReached(NamedTuple):
    """One partition of a source that has partitions: the next offset to read, the offset behind its last message
    (None: not known), the largest resolved_ts that it has brought."""

    topic: str
    partition: int
    offset: int
    high: int | None = None
    resolved_ts: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The state that a source reports; counts are since its start."""

    messages: int = 0
    rows: int = 0
    dead_letters: int = 0
    corrupt: int = 0
    partitions: tuple[PartitionReached, ...] = ()
    path_counts: PathCounts = field(default_factory=PathCounts)
    """Rows by path, such as `land/template`, `land/rows`, and those that filters removed."""
    left_out: tuple[LeftOut, ...] = ()
    """Tables of the filter that it does not bring."""


class Source(Protocol):
    """Where changes come from."""

    def start(self, tasks: Tasks, checkpoint_ts: int | None) -> int:
        """Begin to read behind `checkpoint_ts`; None for a new feed. Return the ts behind which the feed begins.

        Raises what is wrong with address, positions and history. After a failure it is called again."""

    def stop(self) -> None:
        """End all activity; what is durable stays."""

    def epoch(self) -> int:
        """Return the number of this run among those that have read into one place: the highest goes on. 0: no place."""
        return 0

    def failure(self) -> TidegateError | None:
        """Return why reading ended by itself, if it did; `start` begins anew."""

    def replaced(self) -> TidegateError | None:
        """Return Fenced where a run of a higher epoch has begun, even if nothing failed yet."""
        return None

    def idle(self) -> bool:
        """Return True if everything that the source has at this moment is visible below the frontier or is time."""

    def refused(self, error: TidegateError) -> bool:  # noqa: ARG002
        """Learn that a plan or a sink refuses what some messages hold (`error.messages`); True if the source has
        put them aside, so that the round is to be planned anew."""
        return False

    def refresh(self) -> None:
        """Poll for new data."""

    def frontier(self) -> int | None:
        """Return the ts at or below which nothing is still to come, DDLs at that very ts excepted; None: none yet."""

    def carry(self, known: SchemaState) -> None:  # noqa: ARG002
        """Learn which tables a resuming feed has at its checkpoint; called before `start`."""
        return

    def definitions(self, ts: int) -> Sequence[TableInfo]:
        """Return the replicated tables that the source knows to exist at `ts`; () where only messages tell."""

    def ddls(self, after: int, upto: int) -> Sequence[PlacedDdl]:
        """Return each DDL with after <= commit_ts <= upto once, by (commit_ts, arrival).

        Inclusive of `after`: a DDL may arrive when its ts is resolved already. The checkpoint names those done."""

    def changes(self, after: int, upto: int) -> Changes:
        """Return the row changes with after < commit_ts <= upto, of tables that the feed carries."""

    def release(self, checkpoint_ts: int) -> None:
        """Learn that nothing at or below is read again, so that it may be trimmed."""

    def reading(self) -> Reading:
        """Return counts and positions, for reports."""


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """When a sink wants rounds: `limit` bounds one round, `idle_s` is how often a checkpoint that moved without rows is
    published (seconds), `flush_s` the shortest time between the begins of rounds while little waits; `rests` says that
    a round costs nearly the same for one row as for thousands, so that small ones are put off (`rest_s`)."""

    limit: RoundLimit = ROUND
    idle_s: float = 0.0
    flush_s: float = 0.2
    rests: bool = False


class SinkPosition(NamedTuple):
    """Where a sink stands: its checkpoint and the schema there. `is_new` when it has never advanced."""

    checkpoint: Checkpoint
    state: SchemaState
    is_new: bool = False


class Result(Protocol):
    """What a task of a sink did."""

    @property
    def name(self) -> TableName | None:
        """The table, or None where a task writes several."""

    @property
    def rows(self) -> int:
        """Row changes that were applied or written."""

    @property
    def messages(self) -> int:
        """Messages, statements or documents that were written."""

    @property
    def ahead(self) -> int:
        """The ts at which a table stood already; above the round's end if a longer one was cut off. 0: not ahead."""

    @property
    def corrupt(self) -> int:
        """Rows among them whose checksum contradicts their values."""

    @property
    def path_counts(self) -> PathCounts:
        """Rows by path, such as `encode/columns`."""


@dataclass(slots=True)
class Written:
    """A Result with nothing of its own: what a task of a sink wrote; `size_bytes` of messages or statements."""

    name: TableName | None = None
    rows: int = 0
    messages: int = 0
    size_bytes: int = 0
    ahead: int = 0
    corrupt: int = 0
    path_counts: PathCounts = field(default_factory=PathCounts)

    def coming(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Return the chunks that have rows; count what each says of itself when it comes."""
        for chunk in chunks:
            self.corrupt += chunk.corrupt
            self.path_counts.update(chunk.path_counts)
            if len(chunk):
                yield chunk


R = TypeVar("R", bound=Result)


class Sink(Protocol[R]):
    """Where changes go; `R` is what its tasks answer. Its class says what it guarantees, where its progress lives, and
    what a DDL does.

    A sink is a SegmentSink or a UnitSink, and adds the abilities that it has: WithGate, WithAdmission, WithUpkeep,
    WithOmissions, WithCheck, WithParking. `held`, `open` and `close` do nothing here."""

    barrier: Barrier
    """What a DDL cuts: TABLE the tables that it changes, whose DDLs are steps of units; ALL everything."""
    flush_policy: FlushPolicy = FlushPolicy()
    fences: bool = True
    """Whether it lets the last of several runs alone write: then that one goes on, whoever fences its source. Else the
    epoch of the source decides."""
    epoch: int = 0
    """That of the source, as the engine sets it."""

    def held(self) -> AbstractContextManager[None]:
        """Keep a second writer out until the block ends, or fence it otherwise. EnvironmentFault, Fenced."""
        return nullcontext()

    def recover(self) -> SinkPosition:
        """Return where the sink stands. SinkRefused when what is there is another feed's or of another form."""

    def open(self, standing: SinkPosition) -> None:  # noqa: ARG002
        """Connect to the target before the first round: raises what an address, an account or a rule gets wrong."""
        return

    def run(self, tasks: Tasks, work: Any, changes: Changes) -> Sequence[R]:
        """Do the work of a round in tasks: a segment, or units; return when all is durable. Doing it again changes
        nothing that is done."""

    def advance(self, planned: Round, results: Sequence[R]) -> SinkPosition:
        """Make the round's end the checkpoint, in one atomic write, and tell whom resolved timestamps are for.

        Raises Fenced where another run goes on, Overtaken where one of an earlier epoch has advanced: `recover` tells
        where."""

    def close(self) -> None:
        """Let go of connections."""
        return


class SegmentSink(Sink[R], Protocol[R]):
    """A sink in which a DDL cuts everything: rows of all tables up to it, then the DDL."""

    barrier: Barrier = Barrier.ALL

    def run(self, tasks: Tasks, segment: Segment, changes: Changes) -> Sequence[R]:
        """Write the rows of a segment, which may be none, in tasks; return when all are durable."""

    def ddl(self, planned: PlannedDdl) -> None:
        """Do one DDL; everything before it is durable, and it is when this returns."""


class UnitSink(Sink[R], Protocol[R]):
    """A sink in which a DDL cuts the tables that it changes; it is a step of a unit."""

    barrier: Barrier = Barrier.TABLE

    def run(self, tasks: Tasks, units: Sequence[Unit], changes: Changes) -> Sequence[R]:
        """Do the units in tasks; return when all is durable."""


@runtime_checkable
class WithGate(Protocol):
    """A sink that holds rounds back (barrier ALL)."""

    def gate(self, checkpoint_ts: int) -> int | None:
        """Return the ts, at or above the checkpoint, that rounds do not pass now, so that the target can be read as of
        it; None: there is none. Asked before each round."""


@runtime_checkable
class WithAdmission(Protocol):
    """A sink that looks at a round before it is done."""

    def admit(self, planned: Round) -> None:
        """Raise SinkRefused for a round that cannot be done."""


@runtime_checkable
class WithUpkeep(Protocol):
    """A sink that tidies up between rounds."""

    def upkeep(self, tasks: Tasks, frontier: int | None, enough: Callable[[], bool]) -> None:
        """Tidy up for a short while if it is time; `enough()` asks to end soon. Errors here are warnings."""


@runtime_checkable
class WithOmissions(Protocol):
    """A sink that cannot write every table."""

    def left_out(self) -> Sequence[LeftOut]:
        """Return the tables that come and are not written."""


@runtime_checkable
class WithCheck(Protocol):
    """A sink that `run --check` can try."""

    def check(self) -> bool:
        """Connect to the target without leaving a trace; False if that cannot be. Raises what an address, an account
        or another changefeed's data gets wrong."""


@runtime_checkable
class WithParking(Protocol):
    """A sink (barrier TABLE) whose tables stand still when a step of theirs is refused, while the others go on."""

    def parked(self) -> Sequence[Parked]:
        """Return the tables that stand still."""

    def resuming(self) -> Sequence[tuple[Parked, SchemaState]]:
        """Return the parked tables that a user wants to go on, each group with the schema where it stands."""

    def resume(self, tasks: Tasks, units: Sequence[Unit], changes: Changes) -> Sequence[Result]:
        """Do the units of tables that are parked. Raises what one of them meets."""

    def resumed(self, group: Parked, error: TidegateError | None) -> None:
        """Take parked tables back, or note why they stay where they are; the next `advance` publishes it."""


class Saved(NamedTuple):
    """What a checkpoint store keeps of one feed: where it stands, and notes of its sink, such as topics written to."""

    standing: SinkPosition
    notes: Mapping[str, Any]


class Checkpoints(Protocol):
    """Keeps a feed's checkpoint where the sink has no place for progress of its own."""

    def held(self) -> AbstractContextManager[None]:
        """Keep another run of the same feed out until the block ends. EnvironmentFault when one runs."""

    def load(self) -> Saved | None:
        """Return what was saved last; None for a new feed. ConfigError for what is another feed's, or no checkpoint."""

    def save(self, saved: Saved) -> None:
        """Put `saved` in place of what was there: readers see the old or the new. StateUnwritable, which may pass."""


def sink_position(saved: Saved | None) -> SinkPosition:
    """Return where a feed stands whose checkpoint was `saved`; a new feed's for None."""
    return SinkPosition(Checkpoint(), SchemaState(), is_new=True) if saved is None else saved.standing


REFUSED_MAX: Final = 10_000
"""Messages that one error tells; the others come with the next."""
OF_TABLES: Final = SchemaError, EncodeError, SinkRefused
"""Errors that a table may be to blame for, not the configuration."""

DEFECTS: Final = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, NotImplementedError)
"""Errors of Python and Arrow for rows that a table cannot hold; a retry raises them again."""

T = TypeVar("T")
Message = tuple[str, int, int, int]


def refused_rows(
    batch: Batch, rows: Iterable[int], what: str, rest: str = "", kind: type[TidegateError] = SchemaError
) -> TidegateError:
    """Return the error of some rows, with the place of the first in its text, and the messages of all of them."""
    some = list(islice(rows, REFUSED_MAX))
    where: dict[str, Any] = {"table": str(TableName(batch.schema, batch.table))}
    where["commit_ts"] = batch.commit_ts[some[0]].as_py()
    if batch.place is None:
        return kind(f"{what}{rest}").at(**where)
    found = list(dict.fromkeys(_messages(batch, some)))
    topic, partition, offset, _ = found[0]
    error = kind(f"{what} (topic {topic} partition {partition} offset {offset}){rest}")
    error.messages = tuple(found)
    return error.at(**where, topic=topic, partition=partition, offset=offset)


def converted(batch: Batch, convert: Callable[[Batch], T]) -> T:
    """Return what `convert` makes of a batch; its error tells the messages of the rows that it cannot take."""
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
    """Return the error of a table's rows that have a layout."""
    batches = (batch for batch, found in _batches(changes, name, changes.after, changes.upto) if found == layout)
    first = next(batches)
    error = refused_rows(first, range(first.rows), f"table {name}: {what}")
    for batch in batches:
        error.messages += tuple(_messages(batch, range(batch.rows)))
    error.messages = tuple(dict.fromkeys(error.messages))[:REFUSED_MAX]
    return error


def blamed(error: TidegateError, steps: Iterable[Rows], changes: Changes) -> TidegateError:
    """Return a sink's error about these rows, with messages if it names none and is about a table that only rows tell
    of."""
    if not parks(error) or not isinstance(error, OF_TABLES):
        return error
    for step in steps:
        if step.table.inferred and error.where.table == str(step.table.name):
            at = error.where
            row = (at.topic, at.partition or 0, at.offset, at.commit_ts) if at.offset is not None else None
            error.messages = (row,) if row is not None else _rarest(changes, step)
            if error.messages:
                topic, partition, offset, ts = error.messages[0]
                return error.at(commit_ts=ts, topic=topic, partition=partition, offset=offset)
    return error


def _rarest(changes: Changes, step: Rows) -> tuple[Message, ...]:
    found: dict[Layout, list[Message]] = {}
    for batch, layout in _batches(changes, step.table.name, step.after, step.upto):
        if batch.place is not None:
            mine = found.setdefault(layout, [])
            mine += _messages(batch, range(min(batch.rows, REFUSED_MAX - len(mine))))
    return tuple(dict.fromkeys(min(found.values(), key=len, default=())))


def _batches(changes: Changes, name: TableName, after: int, upto: int) -> Iterator[tuple[Batch, Layout]]:
    for chunk in changes.batches(name, after, upto):
        for batch, _ in chunk.parts:
            yield batch, Layout(batch.fields, batch.pk_names)


def _messages(batch: Batch, rows: Sequence[int]) -> Iterator[Message]:
    places = batch.place.take(list(rows)).to_pylist()
    for row, place in zip(rows, places, strict=True):
        yield place["topic"], place["partition"], place["offset"], batch.commit_ts[row].as_py()
