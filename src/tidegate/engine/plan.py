"""Planning a round: everything between two checkpoints as steps on stored tables, with the effects of DDLs. Pure.

    DDLs        ──────D1────────D2──────────D3────►  ts
    customers   rows ─┤ alter ├─ rows ──────────────►
    orders      rows ────────────┤ alter ├─ rows ───►       only the tables that a DDL changes are cut
    visits      rows ───────────────────────┤ ⇄ ├───►
    stage       rows ───────────────────────┤ ⇄ ├───►       an exchange ties two tables into one unit

Input: the schema at the checkpoint, later DDLs, and the landed rows of each table.  Output: a Round of Units, and the
schema and checkpoint after it.  A DDL that leaves stored rows as they are (index, comment, default, charset) cuts
nothing.  RENAME moves a name, not rows; DROP forgets a name; TRUNCATE starts a new incarnation.

    position = (ts, seq)       Rows up to T end at (T, 0);  the n-th DDL at T ends at (T, n)

A row with commit_ts == D belongs before the DDL at D, so positions compare as pairs.  DDLs that share a commit_ts are
numbered in arrival order, those that filters leave out included, and the number is part of every incarnation's id: so
planning again after a crash, with a later end, gives the same steps.  A sink keeps the position of each table in the
very commit that moves it there; a step at or below it is done and is skipped.

DDLs that event filters leave out, and rows behind them:

    TRUNCATE, DROP TABLE, DROP or TRUNCATE PARTITION, EXCHANGE,  can be skipped: old rows stay, new ones are merged
    DROP DATABASE, indexes, comments, defaults, charsets
    columns, types and keys; CREATE TABLE, RENAME, RECOVER       cannot: RowsLackDdl names table, ts and DDL

Stopping there loses nothing: a lake is published up to the DDL, and if the filter accepts the DDL from then on, the
next start applies it first, in order before those rows.  So a mark is stored with the checkpoint until the DDL is
applied, or its table is dropped.  A DDL that can neither be parsed nor applied to the lake is skipped permanently, with
a warning; the next DDL of a table with skipped DDLs is marked as well, so that they are applied in order.

Two kinds of DDL produce a warning.  `zone_warning`: its values depend on the time zone of the session that ran it,
which only a TiDB's change log contains (a DATETIME made a TIMESTAMP, a TIMESTAMP's default as text, CURRENT_TIMESTAMP
for existing rows, a bound of UNIX_TIMESTAMP).  `null_warnings`: TiDB rewrites a column's bytes, and TiCDC sends NULL
for the old ones in rows of the job's last steps, somewhere between the table's previous DDL and this one
(docs/online-schema-change.md).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Final, TypeAlias, TypeVar

import msgspec

from tidegate.engine.change import EventPosition, Layout, SourceDdl
from tidegate.engine.filter import previous_name
from tidegate.expr.change import depends_on_zone
from tidegate.model.errors import InputError, RenameRefused, RowsLackDdl, SchemaError, SinkRefused, TidegateError
from tidegate.model.event import NO_SESSION, Ddl, DdlSession
from tidegate.model.mysql import MysqlType
from tidegate.model.name import lowered, qualified
from tidegate.model.table import ColumnInfo, TableInfo, TableName
from tidegate.schema.ddl_tables import read_statements
from tidegate.schema.effects import (
    Effect,
    NoEffect,
    PartitionExchanged,
    PartitionsDropped,
    PartitionsTruncated,
    TableAltered,
    TableCreated,
    TableDropped,
    TableRecovered,
    TableRenamed,
    TableTruncated,
)
from tidegate.schema.infer import infer_table, merge_inferred
from tidegate.schema.modify_kind import ModifyKind, kind_of_types
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.partition import MOMENT
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.schema.statement import (
    AlterTable,
    CreateTable,
    CreateTableLike,
    DropTables,
    ExchangePartition,
    RecoverTable,
    RenameTables,
    RenameTo,
    Statement,
    TruncateTable,
)

Position: TypeAlias = tuple[int, int]


class Rows(msgspec.Struct, frozen=True):
    """Apply the row changes of `table` (the name at that time) with after < commit_ts <= upto."""

    table: TableInfo
    after: int
    upto: int


class Create(msgspec.Struct, frozen=True):
    """Make the stored table of a new incarnation, empty; `old` is the one that a TRUNCATE emptied."""

    table: TableInfo
    ts: int
    seq: int
    old: TableInfo | None = None


class Alter(msgspec.Struct, frozen=True):
    """Turn stored rows and columns of `old` into those of `new`, as the session of the DDL does."""

    old: TableInfo
    new: TableInfo
    ts: int
    seq: int
    query: str = ""
    session: DdlSession = NO_SESSION


class Trim(msgspec.Struct, frozen=True):
    """Remove the rows of the named partitions of `old`, whose definition assigns rows to partitions."""

    old: TableInfo
    new: TableInfo
    partitions: tuple[str, ...]
    ts: int
    seq: int
    query: str = ""


class Exchange(msgspec.Struct, frozen=True):
    """Swap the rows of one partition of `partitioned` with all rows of `other`."""

    partitioned: TableInfo
    partition: str
    other: TableInfo
    ts: int
    seq: int
    query: str = ""


Step: TypeAlias = Rows | Create | Alter | Trim | Exchange


class Unit(msgspec.Struct, frozen=True):
    """Steps that one worker runs in order; units are independent of each other."""

    steps: tuple[Step, ...]
    rows: int = 0
    """The number of row changes; the largest unit starts first."""

    @property
    def row_steps(self) -> list[Rows]:
        return [step for step in self.steps if isinstance(step, Rows)]

    @property
    def tables(self) -> list[TableInfo]:
        """The tables of its steps, by name."""
        tables: list[TableInfo] = []
        for step in self.steps:
            match step:
                case Rows():
                    tables.append(step.table)
                case Create():
                    tables += [step.table] if step.old is None else [step.table, step.old]
                case Alter() | Trim():
                    tables.append(step.old)
                case Exchange():
                    tables += [step.partitioned, step.other]
        return tables

    @property
    def incarnations(self) -> frozenset[str]:
        return frozenset(table.incarnation for table in self.tables)


def position_of(step: Step) -> Position:
    """Return a table's position after `step`."""
    return (step.upto, 0) if isinstance(step, Rows) else (step.ts, step.seq)


class Segment(msgspec.Struct, frozen=True):
    """The rows of `tables` with after < commit_ts <= upto: written by a sink with barrier ALL before the next DDL."""

    after: int
    upto: int
    tables: tuple[TableInfo, ...] = ()
    rows: int = 0
    """An upper bound of the number of row changes."""

    @property
    def steps(self) -> list[Rows]:
        return [Rows(table, self.after, self.upto) for table in self.tables]


class SkippedDdl(msgspec.Struct, frozen=True):
    """A DDL that a lake left out although later rows of this table depend on it. `for_good`: its whole transaction is
    left out, so that changed rules do not bring it back."""

    schema: str
    table: str
    ddl: Ddl
    for_good: bool = False

    @property
    def name(self) -> TableName:
        """The table's name after the DDL."""
        return TableName(self.schema, self.table)

    @property
    def ts(self) -> int:
        """The ts above which rows do not fit."""
        return self.ddl.commit_ts or 0


@dataclass(slots=True)
class SkippedDdls:
    """A lake's marks of skipped DDLs, in the order of the DDLs."""

    marks: list[SkippedDdl] = field(default_factory=list)

    def first(self, name: TableName) -> SkippedDdl | None:
        """Return the first skipped DDL of a table."""
        return next((mark for mark in self.marks if mark.name.key == name.key), None)

    def pass_over(self, ddl: Ddl, effects: Sequence[Effect] | None, *, for_good: bool) -> bool:
        """Note a DDL that is left out, with the effects that it would have had (None if it cannot be applied). Return
        False if the tables' later rows are then uncertain."""
        if effects is not None:
            self.marks += [SkippedDdl(*name, ddl, for_good) for effect in effects for name in _strangers(effect)]
            return True
        table = TableName(ddl.schema, ddl.table)
        if self.first(table) is not None:
            self.marks.append(SkippedDdl(*table, ddl, for_good))
        return False

    def follow(self, effects: Sequence[Effect]) -> None:
        """Note applied effects: the marks of a dropped table go, those of a renamed one stay with it."""
        for effect in effects:
            if isinstance(effect, TableDropped | TableCreated):
                gone = effect.table.name.key
                self.marks = [mark for mark in self.marks if mark.name.key != gone]
            elif isinstance(effect, TableRenamed):
                self.marks = [_renamed(mark, effect) for mark in self.marks]

    def check(self, name: TableName, highest_ts: int) -> None:
        """Raise RowsLackDdl when a table with rows up to there lacks a DDL before them."""
        mark = self.first(name)
        if mark is None or highest_ts <= mark.ts:
            return
        way = "" if mark.for_good else "let the filter pass it, and the next start applies it before these rows; or "
        raise RowsLackDdl(
            f"table {name}: rows up to ts {highest_ts} do not fit the lake, since an event filter excluded the DDL of "
            f"ts {mark.ts}: {mark.ddl.query[:500]!r}. To continue: {way}exclude the table by a filter rule; or create "
            f"a new lake, where schema-change=lenient or ignore keeps its columns",
            mark.ts,
        )


def foreseen(state: SchemaState, ddl: Ddl, seq: int) -> Sequence[Effect] | None:
    """Return the effects that a DDL would have; None if it cannot be applied."""
    try:
        return apply_ddl(state, ddl, seq)[1]
    except (InputError, SchemaError):
        return None


def renamed_away(state: SchemaState, ddl: Ddl) -> TableName | None:
    """Return the old name of a RENAME; None for other DDLs."""
    return previous_name(ddl, foreseen(state, ddl, 0)) if "RENAME" in ddl.query.upper() else None


def _strangers(effect: Effect) -> list[TableName]:
    """The tables whose later rows do not fit without this change."""
    match effect:
        case TableCreated(table) | TableRecovered(table):
            return [table.name]
        case TableRenamed(_, new):
            return [new.name]
        case TableAltered(old, new) if changes_rows(old, new):
            return [old.name]
        case _:
            return []


def _renamed(mark: SkippedDdl, effect: TableRenamed) -> SkippedDdl:
    if mark.name.key != effect.old.name.key:
        return mark
    schema, table = effect.new.name
    return SkippedDdl(schema, table, msgspec.structs.replace(mark.ddl, schema=schema, table=table), mark.for_good)


def changes_rows(old: TableInfo, new: TableInfo) -> bool:
    """Return True when a change of definition affects stored rows or their reading."""
    return _shape(old) != _shape(new)


def _shape(table: TableInfo) -> tuple[object, ...]:
    columns = tuple((column.id, column.name, column.type, column.virtual) for column in table.columns)
    return columns, tuple(lowered(name) for name in table.handle_key)


_NOW: Final = re.compile(r"CURRENT_TIMESTAMP|NOW|LOCALTIME|CURRENT_DATE", re.IGNORECASE)


def of_session(effects: Sequence[Effect]) -> list[str]:
    """Return the columns and partitions whose values depend on the DDL session's time zone, once each."""
    names: list[str] = []
    for effect in effects:
        match effect:
            case TableCreated(table):
                names += _bounds(None, table)
            case TableAltered(old, new):
                before = {column.id: column for column in old.columns}
                for column in new.columns:
                    was = before.get(column.id)
                    if _is_filled(column) if was is None else depends_on_zone(was.type, column.type):
                        names.append(column.name)
                names += _bounds(old, new)
    return list(dict.fromkeys(names))


def zone_warning(ddl: Ddl, effects: Sequence[Effect]) -> str:
    """Return the warning about a DDL whose session is not known; "" where nothing depends on it."""
    if ddl.known_session.zone or not (names := of_session(effects)):
        return ""
    return (
        f"DDL of ts {ddl.commit_ts} on {qualified(ddl.schema, ddl.table)}: the values of {', '.join(names)} depend on "
        f"the time zone of the session that ran it, which messages do not contain: `time-zone` is assumed. If it was "
        f"another one, they differ from the upstream: {ddl.query[:500]}"
    )


def _is_filled(column: ColumnInfo) -> bool:
    default = column.origin_default
    if not isinstance(default, str) or column.type.code not in (
        MysqlType.DATE,
        MysqlType.DATETIME,
        MysqlType.TIMESTAMP,
    ):
        return False
    is_text = _NOW.match(default) is None
    return is_text is (column.type.code is MysqlType.TIMESTAMP) and not default.startswith("0000-00-00")


def _bounds(old: TableInfo | None, new: TableInfo) -> Iterator[str]:
    if new.partition is None or (old is not None and old.partition == new.partition):
        return
    for definition in new.partition.definitions:
        if any(
            MOMENT.search(text)
            for text in (*definition.less_than, *(value for row in definition.in_values for value in row))
        ):
            yield f"partition {definition.name}"


def null_warnings(ddl: Ddl, position: EventPosition | None, effects: Iterable[Effect]) -> Iterator[str]:
    """Return the warnings about a DDL of a message or a file."""
    if position is None or not position.topic:
        return
    for effect in effects:
        if not isinstance(effect, TableAltered):
            continue
        for column in rewritten(effect.old, effect.new):
            yield (
                f"table {effect.old.name} column {column.name}: the DDL of ts {ddl.commit_ts} rewrites its values, "
                f"and TiCDC sends NULL for it in rows committed during the last steps of such a DDL: compare rows of "
                f"({effect.old.version}, {ddl.commit_ts}] with NULL in it with the upstream "
                f"(docs/online-schema-change.md). DDL: {ddl.query[:500]}"
            )


def rewritten(old: TableInfo, new: TableInfo) -> list[ColumnInfo]:
    """Return the columns of `old` whose values TiDB rewrites for their types in `new`."""
    before = {column.id: column for column in old.columns if not column.virtual}
    pairs = ((before[column.id], column) for column in new.columns if column.id in before)
    return [was for was, column in pairs if kind_of_types(was.type, column.type) is ModifyKind.LOSSY]


_SEVERAL: Final = re.compile("rename|exchange", re.IGNORECASE)


def names_of(ddl: Ddl, state: SchemaState) -> tuple[TableName, ...]:
    """Return the tables that a DDL names; () if that is unknown, or for a DDL of a database."""
    if not ddl.table:
        return ()
    own, statements = TableName(ddl.schema, ddl.table), read_statements(ddl)
    if not statements and _SEVERAL.search(ddl.query):
        return ()
    names = [own, *(name for each in statements for name, _ in _named(each))]
    doubtful = {name.key[1] for each in statements for name, sure in _named(each) if not sure}
    names += (table.name for key, table in state.tables.items() if key[1] in doubtful)
    return tuple({name.key: name for name in names}.values())


def _named(statement: Statement) -> Iterator[tuple[TableName, bool]]:
    """The tables of a statement, each with True if the name is certain."""
    match statement:
        case CreateTable() | CreateTableLike() | TruncateTable():
            yield statement.table, True
        case DropTables():
            yield from ((name, True) for name in statement.tables)
        case RenameTables():
            for pair in statement.pairs:
                yield pair.old, not pair.doubtful
                yield pair.new, True
        case AlterTable():
            yield statement.table, not statement.doubtful
            yield from (
                (spec.table, True) for spec in statement.specs if isinstance(spec, RenameTo | ExchangePartition)
            )
        case RecoverTable():
            yield from ((statement.table, True),) if statement.table.table else ()
            if statement.to is not None:
                yield TableName(statement.table.schema, statement.to), True


DRIFT_SEQ: Final = 1 << 20
"""The sequence number of a column change inferred from rows: after every DDL of the same ts."""

Key = tuple[str, str]


class Barrier(Enum):
    """The scope of a DDL: TABLE splits the tables whose rows it changes (this module), ALL the round (segment.py)."""

    TABLE = "table"
    ALL = "all"


class Checkpoint(msgspec.Struct, frozen=True):
    """The progress of a sink: everything up to `ts`, of the DDLs at exactly `ts` those in `done`, and none of those in
    `left_out`."""

    ts: int = 0
    done: tuple[str, ...] = ()
    left_out: tuple[SkippedDdl, ...] = ()


@dataclass(frozen=True, slots=True)
class Landed:
    """The changes that landed between two timestamps: spans of row changes by table, and layouts for tables without a
    DDL."""

    spans: Mapping[TableName, tuple[int, int, int]]
    """(rows, lowest commit_ts, highest commit_ts)"""
    layouts: Callable[[TableName, int], Sequence[Layout]]
    """Returns the layouts of a table's rows up to a ts."""
    accept: Callable[[str, str], bool]
    drops: "Drops | None" = None
    """Decides which DDLs event filters leave out."""
    takes: "Drops | None" = None
    """Tells whether the table filter takes a DDL, with barrier ALL (None: all)."""


Drops: TypeAlias = Callable[[Ddl, TableName | None], bool]
"""Returns True for a DDL to leave out; the name is its table's earlier one."""


@dataclass(frozen=True)
class PlannedDdl:
    """A DDL for a sink with barrier ALL: the schema before and after it, and its effects on tables; `number` counts the
    DDLs of its ts from 1. If the schema cannot follow it, `error` is set and there are no effects."""

    source_ddl: SourceDdl
    number: int
    before: SchemaState
    after: SchemaState
    effects: tuple[Effect, ...] = ()
    error: InputError | SchemaError | None = None

    @property
    def ddl(self) -> Ddl:
        return self.source_ddl.ddl

    @property
    def commit_ts(self) -> int:
        return self.ddl.commit_ts or 0

    @property
    def tables(self) -> frozenset[tuple[str, str]]:
        """The keys of the tables that it names or changes; none for a DDL of a database, or with an `error`."""
        if self.error is not None or not self.ddl.table:
            return frozenset()
        fields = (value for effect in self.effects for value in msgspec.structs.astuple(effect))
        names = [TableName(self.ddl.schema, self.ddl.table), *(x.name for x in fields if isinstance(x, TableInfo))]
        return frozenset(name.key for name in names)

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """The statements of the text, with names as written; () if the schema cannot follow them."""
        return () if self.error is not None else tuple(parse_ddl(self.ddl.query, self.ddl.schema))

    @property
    def table(self) -> str:
        return qualified(self.ddl.schema, self.ddl.table) if self.ddl.table else self.ddl.schema

    def refused(self, error: TidegateError) -> SinkRefused:
        """Return the error of a sink that must apply the effects of the DDL, and cannot because of `error`."""
        refused = SinkRefused(f"DDL {self.ddl.query[:500]!r} cannot be followed: {error}")
        return refusal(refused.at(table=self.table, commit_ts=self.commit_ts), self.ddl, self.source_ddl.position)


def plan_ddl(state: SchemaState, source_ddl: SourceDdl, number: int = 1) -> PlannedDdl:
    """Return the DDL with its effects on `state`; it is the `number`th of its ts."""
    try:
        after, effects = apply_ddl(state, source_ddl.ddl, number)
    except (InputError, SchemaError) as error:
        return PlannedDdl(source_ddl, number, state, state, error=error)
    return PlannedDdl(source_ddl, number, state, after, effects)


@dataclass(frozen=True, slots=True)
class Round:
    """The outcome: units of work that are independent of each other, or with barrier ALL a segment and the DDLs after
    it, with the schema and checkpoint after them."""

    units: tuple[Unit, ...]
    state: SchemaState
    checkpoint: Checkpoint
    ddls: tuple[Ddl, ...]
    warnings: tuple[str, ...]
    segment: Segment | None = None
    planned_ddls: tuple[PlannedDdl, ...] = ()
    """Barrier ALL: the DDLs at the round's end, which the sink executes one by one after all rows."""
    left_out: int = 0
    """The number of DDLs that filters removed."""
    rests: bool = True
    """False if rows that belong to the last DDL follow it (`SourceDdl.rows_follow`)."""
    stops: Mapping[int, tuple[Checkpoint, SchemaState]] = field(default_factory=dict)
    """The numbers of DDLs behind which it may end as well, with the checkpoint and the schema there."""

    def until(self, number: int) -> "Round":
        """Return the round up to its `number`th DDL, which is one of `stops`."""
        checkpoint, state = self.stops[number]
        ddls, planned_ddls = self.ddls[:number], self.planned_ddls[:number]
        return replace(self, checkpoint=checkpoint, state=state, ddls=ddls, planned_ddls=planned_ddls, rests=True)

    @property
    def resolved_ts(self) -> int:
        """The ts at which consumers may look at the target."""
        return self.checkpoint.ts - (not self.rests)

    @property
    def rows(self) -> int:
        return sum(unit.rows for unit in self.units) + (self.segment.rows if self.segment is not None else 0)

    @property
    def row_steps(self) -> list[Rows]:
        """The steps with rows, table by table."""
        if self.segment is not None:
            return self.segment.steps
        return [step for unit in self.units for step in unit.row_steps]

    @property
    def is_idle(self) -> bool:
        return not (self.units or self.ddls or (self.segment is not None and self.segment.tables))


def identity(ddl: Ddl) -> str:
    """Return the identity of a DDL, without its commit_ts."""
    return f"{ddl.schema}\x1f{ddl.table}\x1f{ddl.query}"


def plan_round(
    state: SchemaState, checkpoint: Checkpoint, ddls: Iterable[SourceDdl], upto: int, landed: Landed
) -> Round:
    """Return everything between the checkpoint and `upto`, as units of steps.

    `ddls` are ordered and without repeats (feed.change.ordered_ddls) and may include those at the checkpoint's ts.
    """
    ddls = [source_ddl for source_ddl in ddls if checkpoint.ts <= (source_ddl.ddl.commit_ts or 0) <= upto]
    lacking = SkippedDdls(list(checkpoint.left_out))
    first_ddls: dict[Key, int] = {}
    for source_ddl in ddls:
        first_ddls.setdefault(TableName(source_ddl.ddl.schema, source_ddl.ddl.table).key, source_ddl.ddl.commit_ts or 0)
    plan = _Plan(state, checkpoint.ts, landed, first_ddls=first_ddls, upto=upto, lacking=lacking)
    plan.catch_up()
    plan.follow_drift()
    done: list[str] = list(checkpoint.done)
    done_ts = checkpoint.ts
    applied: list[Ddl] = []
    for source_ddl in ddls:
        ddl = source_ddl.ddl
        ts = ddl.commit_ts or 0
        if ts == checkpoint.ts and identity(ddl) in checkpoint.done:
            continue
        if ts != done_ts:
            done, done_ts = [], ts
        done.append(identity(ddl))
        plan.infer_up_to(ts)
        try:
            left_out = source_ddl.left_out or (not source_ddl.needed and plan.dropped(ddl))
        except InputError as unknown:
            if not plan.is_foreign(ddl):
                raise refusal(unknown, ddl, source_ddl.position) from None
            left_out = False
        if left_out:
            plan.pass_over(source_ddl, len(done))
            continue
        if plan.apply(replace_ts(ddl, ts), len(done), source_ddl.position):
            applied.append(ddl)
    plan.infer_up_to(upto)
    units = plan.finish(upto)
    reached = Checkpoint(upto, tuple(done) if done_ts == upto else (), tuple(lacking.marks))
    planned = plan.state if plan.state is state else plan.state.distinct()
    return Round(units, planned, reached, tuple(applied), tuple(plan.warnings), left_out=plan.left_out)


def replace_ts(ddl: Ddl, ts: int) -> Ddl:
    """Return the DDL with `ts` as its commit_ts."""
    return msgspec.structs.replace(ddl, commit_ts=ts)


Error = TypeVar("Error", bound=TidegateError)


def refusal(error: Error, ddl: Ddl, position: EventPosition | None) -> Error:
    """Return the error of a DDL that cannot be applied or sent, with its message where there is one."""
    if position is not None and position.topic:
        error.messages = ((position.topic, position.partition, position.offset, ddl.commit_ts or 0),)
        error.at(topic=position.topic, partition=position.partition, offset=position.offset)
    return error


@dataclass(slots=True)
class _Plan:
    """Walks the round in time order, collecting the steps of every incarnation."""

    state: SchemaState
    after: int
    landed: Landed
    first_ddls: Mapping[Key, int]
    upto: int
    lacking: SkippedDdls
    steps: dict[str, list[Step]] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    links: list[tuple[str, str]] = field(default_factory=list)
    seen: set[Key] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)
    left_out: int = 0
    spans: dict[Key, tuple[TableName, int, int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        by_low = sorted(self.landed.spans.items(), key=lambda item: item[1][1])
        self.spans = {name.key: (name, *span) for name, span in by_low}
        self.seen = set(self.state.tables)

    def stored(self, table: TableInfo) -> bool:
        return self.landed.accept(table.name.schema, table.name.table)

    def cut(self, table: TableInfo, ts: int) -> None:
        """Close the table's range of rows at `ts`."""
        since = self.since.get(table.incarnation, self.after)
        span = self.spans.get(table.name.key)
        if span is not None and since < ts and span[2] <= ts and span[3] > since and self.stored(table):
            self.lacking.check(table.name, min(span[3], ts))
            self.add(table, Rows(table, since, ts))
        self.since[table.incarnation] = ts

    def add(self, table: TableInfo, step: Step) -> None:
        self.steps.setdefault(table.incarnation, []).append(step)

    def infer_up_to(self, ts: int) -> None:
        """Infer tables that have rows up to `ts` but no DDL that created them."""
        for key, (name, _, low, _) in self.spans.items():
            if low > ts:
                break
            if key in self.seen:
                continue
            if self.landed.accept(*name):
                self.check_known(name)
                self.lacking.check(name, min(self.spans[key][3], ts))
            tables = self.inferred(name, low - 1, min(ts, self.first_ddls.get(key, ts)))
            if not tables:
                continue
            table = merge_inferred(tables)
            self.state = self.state.with_table(table)
            self.seen.add(key)
            self.create(table, low - 1, 0)
            self.warnings.append(f"table {name}: no DDL seen, its definition is inferred from its messages")

    def inferred(self, name: TableName, version: int, upto: int) -> list[TableInfo]:
        """Return the definitions that a table's rows up to a ts show; [] without rows, as spans are bounds."""
        layouts = self.landed.layouts(name, upto)
        return [infer_table(name, layout.fields, layout.pk_names, version) for layout in layouts]

    def follow_drift(self) -> None:
        """Add the columns that rows of inferred tables have beyond their definition."""
        for key, (name, *_) in self.spans.items():
            table = self.state.tables.get(key)
            if table is None or not table.inferred:
                continue
            seen = self.inferred(name, self.after, self.first_ddls.get(key, self.upto))
            wider = merge_inferred([table, *seen])
            if wider.columns != table.columns:
                self.add(table, Alter(table, wider, self.after, DRIFT_SEQ, "columns seen in rows"))
                self.state = self.state.with_table(wider)

    def create(self, table: TableInfo, ts: int, seq: int, old: TableInfo | None = None) -> None:
        if not self.stored(table):
            return
        self.since[table.incarnation] = ts
        self.add(table, Create(table, ts, seq, old))
        if old is not None:
            self.links.append((old.incarnation, table.incarnation))
        if not table.handle_key:
            self.warnings.append(f"table {table.name} has no primary or not-null unique key: kept as a log of changes")

    def dropped(self, ddl: Ddl) -> bool:
        return self.landed.drops is not None and self.landed.drops(ddl, renamed_away(self.state, ddl))

    def pass_over(self, source_ddl: SourceDdl, seq: int) -> None:
        ddl = source_ddl.ddl
        self.left_out += 1
        sure = self.lacking.pass_over(ddl, foreseen(self.state, ddl, seq), for_good=source_ddl.left_out)
        doubt = "" if sure else "; its effect is unknown"
        self.warnings.append(f"DDL of ts {ddl.commit_ts} excluded by an event filter{doubt}: {ddl.query[:500]}")

    def catch_up(self) -> None:
        """Apply DDLs that are no longer left out, at the start of the round."""
        for number, mark in enumerate(tuple(self.lacking.marks), start=1):
            if not mark.for_good and not self.dropped(mark.ddl):
                self.lacking.marks.remove(mark)
                self.apply(replace_ts(mark.ddl, self.after), DRIFT_SEQ + number)

    def is_foreign(self, ddl: Ddl) -> bool:
        """Return whether a DDL names only tables, or a database, outside the table filter."""
        if not ddl.table:
            return self.landed.takes is not None and not self.landed.takes(ddl, None)
        names = names_of(ddl, self.state)
        return bool(names) and not any(self.landed.accept(*name) for name in names)

    def lose(self, ddl: Ddl, error: TidegateError) -> None:
        """Continue without a DDL of tables outside the filter: their definitions are unknown from here on."""
        names = names_of(ddl, self.state)
        reason = f"{', '.join(map(str, names)) or f'database {ddl.schema}'} at ts {ddl.commit_ts}: {error}"
        if not names or not self.state.lost.keys() >= {name.key for name in names}:
            self.warnings.append(f"not followed, as the filter excludes it: {reason}")
        self.state = self.state.losing(names, reason)
        self.left_out += 1

    def check_known(self, name: TableName) -> None:
        """Raise SchemaError for a table of the filter whose definition was lost while it was outside."""
        lost = self.state.lost.get(name.key)
        if lost is not None:
            raise SchemaError(
                f"table {name}, which the filter includes now, was excluded, and could not be followed meanwhile "
                f"({lost.why}); exclude it again by a filter rule, or create a new lake"
            ).at(table=str(name))

    def apply(self, ddl: Ddl, seq: int, position: EventPosition | None = None) -> bool:
        """Apply one DDL, read at `position`, to the schema and cut the tables whose rows it changes; False for a DDL of
        tables outside the filter that could not be followed."""
        lost = self.state.lost
        try:
            self.state, effects = apply_ddl(self.state, ddl, seq)
            for key, lost_table in self.state.lost.items() if self.state.lost is not lost else ():
                if key not in lost and self.landed.accept(*lost_table.name):
                    self.check_known(lost_table.name)
        except (SchemaError, InputError) as error:
            if self.is_foreign(ddl):
                self.lose(ddl, error)
                return False
            refused: SchemaError | InputError = error
            if self.landed.drops is not None and isinstance(error, SchemaError):
                hint = "Event filters may have excluded DDLs that it needs: exclude it as well"
                refused = SchemaError(f"{error}. {hint}").at(**msgspec.structs.asdict(error.where))
            raise refusal(refused, ddl, position) from error
        self.lacking.follow(effects)
        kept = [effect for effect in effects if self.is_kept(effect)]
        if warning := zone_warning(ddl, kept):
            self.warnings.append(warning)
        self.warnings += null_warnings(ddl, position, kept)
        for effect in effects:
            self.effect(effect, ddl, seq)
        self.seen |= set(self.state.tables)
        return True

    def is_kept(self, effect: Effect) -> bool:
        table = getattr(effect, "new", None) or getattr(effect, "table", None)
        return table is not None and self.stored(table)

    def effect(self, effect: Effect, ddl: Ddl, seq: int) -> None:
        ts = ddl.commit_ts or 0
        match effect:
            case TableCreated():
                self.create(effect.table, ts, seq)
            case TableRecovered():
                self.since[effect.table.incarnation] = ts
            case TableDropped():
                self.cut(effect.table, ts)
            case TableTruncated():
                self.cut(effect.old, ts)
                self.create(effect.new, ts, seq, effect.old)
            case TableRenamed():
                self.rename(effect, ddl)
            case TableAltered():
                self.alter(effect, ddl, seq)
            case PartitionsTruncated():
                self.trim(effect.table, effect.new, effect.names, ddl, seq)
            case PartitionsDropped():
                self.trim(effect.old, effect.new, effect.names, ddl, seq)
            case PartitionExchanged():
                self.exchange(effect, ddl, seq)
            case NoEffect():
                pass

    def rename(self, effect: TableRenamed, ddl: Ddl) -> None:
        self.cut(effect.old, ddl.commit_ts or 0)
        if self.stored(effect.new) and not self.stored(effect.old):
            raise RenameRefused(
                f"ts {ddl.commit_ts}: {effect.old.name}, which the filter excludes, becomes {effect.new.name}, which "
                f"it includes ({ddl.query!a:.200}); its earlier rows are not in the lake: exclude the new name by a "
                f"filter rule, and continue without the table, or create a new lake whose filter.rules include both "
                f"names"
            ).at(table=str(effect.new.name), commit_ts=ddl.commit_ts or 0)

    def alter(self, effect: TableAltered, ddl: Ddl, seq: int) -> None:
        if not self.stored(effect.old) or not changes_rows(effect.old, effect.new):
            return
        ts = ddl.commit_ts or 0
        self.cut(effect.old, ts)
        self.add(effect.old, Alter(effect.old, effect.new, ts, seq, ddl.query, ddl.known_session))

    def trim(self, old: TableInfo, new: TableInfo, names: Sequence[str], ddl: Ddl, seq: int) -> None:
        ts = ddl.commit_ts or 0
        self.cut(old, ts)
        if self.stored(old):
            self.add(old, Trim(old, new, tuple(names), ts, seq, ddl.query))

    def exchange(self, effect: PartitionExchanged, ddl: Ddl, seq: int) -> None:
        ts = ddl.commit_ts or 0
        both = (effect.partitioned, effect.other)
        for table in both:
            self.cut(table, ts)
        if not any(map(self.stored, both)):
            return
        if not all(map(self.stored, both)):
            inside, outside = both if self.stored(effect.partitioned) else both[::-1]
            raise SchemaError(
                f"ts {ts}: {outside.name}, which the filter excludes, exchanges rows with {inside.name}, which it "
                f"includes ({ddl.query!a:.200}); the new rows are not in the lake: exclude {inside.name} by a filter "
                f"rule, too, and continue without it, or create a new lake whose filter.rules include both tables"
            ).at(table=str(inside.name), commit_ts=ts)
        self.add(effect.partitioned, Exchange(effect.partitioned, effect.partition, effect.other, ts, seq, ddl.query))
        self.links.append((effect.other.incarnation, effect.partitioned.incarnation))

    def finish(self, upto: int) -> tuple[Unit, ...]:
        """Close every table at the end of the round and tie linked tables together."""
        for table in self.state.tables.values():
            self.cut(table, upto)
        groups: dict[str, list[Step]] = {}
        for incarnation, steps in self.steps.items():
            groups.setdefault(self.root(incarnation), []).extend(steps)
        units = []
        for steps in groups.values():
            keys = {step.table.name.key for step in steps if isinstance(step, Rows)}
            units.append(Unit(tuple(sorted(steps, key=position_of)), sum(self.spans[key][1] for key in keys)))
        return tuple(units)

    def root(self, incarnation: str) -> str:
        """Return the group of an incarnation: exchanges tie tables, truncates incarnations, in chains too."""
        neighbours: dict[str, set[str]] = {}
        for name, other in self.links:
            neighbours.setdefault(name, set()).add(other)
            neighbours.setdefault(other, set()).add(name)
        group, frontier = {incarnation}, [incarnation]
        while frontier:
            adjacent = neighbours.get(frontier.pop(), set()) - group
            group |= adjacent
            frontier += adjacent
        return min(group)
