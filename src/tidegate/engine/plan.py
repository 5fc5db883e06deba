"""One round: the steps that bring a lake from one checkpoint to the next. Pure.

    DDLs        ──────D1────────D2──────────D3────►  ts
    customers   rows ─┤ alter ├─ rows ──────────────►
    orders      rows ────────────┤ alter ├─ rows ───►       only the tables that a DDL changes are cut
    visits      rows ───────────────────────┤ ⇄ ├───►
    stage       rows ───────────────────────┤ ⇄ ├───►       an exchange ties two tables into one unit

A DDL that leaves stored rows as they are (index, comment, default, charset) cuts nothing.  RENAME moves a name, not
rows; DROP forgets a name; TRUNCATE starts a new incarnation.  DDLs that share a commit_ts are numbered 1, 2, … in
arrival order, and that number is part of every position and of every incarnation's id, so that planning again after a
crash, with a later end, gives the same steps.  DDLs that event filters leave out count, too (skipped_ddl.py).

Which tables a DDL speaks of, by label and text: those that it makes, changes, moves or takes away. Pure.

    ALTER TABLE a .. EXCHANGE PARTITION p WITH TABLE b      a, b
    RENAME TABLE a TO b, c TO d                             a, b, c, d
    CREATE TABLE a LIKE b                                   a: b stays what it is
    text that cannot be read                                the label's alone, unless it may name two tables
    a statement about a database                            none

A name that stands without its database may be any table of that name that is known.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias, TypeVar

import msgspec

from tidegate.engine.change import Layout, Place, PlacedDdl
from tidegate.engine.rewritten_columns import null_warnings
from tidegate.engine.session_zone import zone_warning
from tidegate.engine.skipped_ddl import SkippedDdl, SkippedDdls, changes_rows, foreseen, renamed_away
from tidegate.engine.step import Alter, Create, Exchange, Rows, Step, Trim, Unit, position_of
from tidegate.model.errors import InputError, RenameRefused, SchemaError, TidegateError
from tidegate.model.event import Ddl
from tidegate.model.table import TableInfo, TableName
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
from tidegate.schema.meant import read
from tidegate.schema.spec import ExchangePartition, RenameTo
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.schema.statement import (
    AlterTable,
    CreateTable,
    CreateTableLike,
    DropTables,
    RecoverTable,
    RenameTables,
    Statement,
    TruncateTable,
)

_SEVERAL: Final = re.compile("rename|exchange", re.IGNORECASE)


def names_of(ddl: Ddl, state: SchemaState) -> tuple[TableName, ...]:
    """Return the tables that a DDL speaks of; () where that cannot be told, or where it is about a database."""
    if not ddl.table:
        return ()
    told, statements = TableName(ddl.schema, ddl.table), read(ddl)
    if not statements and _SEVERAL.search(ddl.query):
        return ()
    names = [told, *(name for each in statements for name, _ in _named(each))]
    doubtful = {name.key[1] for each in statements for name, sure in _named(each) if not sure}
    names += (table.name for key, table in state.tables.items() if key[1] in doubtful)
    return tuple({name.key: name for name in names}.values())


def _named(statement: Statement) -> Iterator[tuple[TableName, bool]]:
    """The names of a statement, and whether each is sure to be that table's."""
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
"""The place of a column change that only rows showed: after every DDL of the same ts."""

Key = tuple[str, str]


class Barrier(Enum):
    """What a DDL cuts: TABLE the tables whose rows it changes (this module), ALL everything (segment.py)."""

    TABLE = "table"
    ALL = "all"


class Checkpoint(msgspec.Struct, frozen=True):
    """How far a sink is: everything up to `ts`, and of the DDLs at exactly `ts` those in `done`; without those in
    `left_out`."""

    ts: int = 0
    done: tuple[str, ...] = ()
    left_out: tuple[SkippedDdl, ...] = ()


@dataclass(frozen=True, slots=True)
class Landed:
    """What landed between two timestamps: spans of row changes by table, and layouts where no DDL tells."""

    spans: Mapping[TableName, tuple[int, int, int]]
    """(rows, lowest commit_ts, highest commit_ts)"""
    layouts: Callable[[TableName, int], Sequence[Layout]]
    """The layouts that a table's rows up to a ts have."""
    accept: Callable[[str, str], bool]
    drops: "Drops | None" = None
    """What event filters leave out, if there are any."""
    takes: "Drops | None" = None
    """Which DDLs the table filter takes, where they are handed on one by one (None: all)."""


Drops: TypeAlias = Callable[[Ddl, TableName | None], bool]
"""Whether a rule says so of a DDL; the name is the one that its table had before."""


@dataclass(frozen=True, slots=True)
class Round:
    """The outcome: independent units of work, and where schema and checkpoint stand after them."""

    units: tuple[Unit, ...]
    state: SchemaState
    checkpoint: Checkpoint
    ddls: tuple[Ddl, ...]
    warnings: tuple[str, ...]
    handed: tuple[PlacedDdl, ...] = ()
    """Barrier ALL: the DDLs at the round's end that the sink does, one by one, behind all rows."""
    left_out: int = 0
    """DDLs that filters took out."""


def identity(ddl: Ddl) -> str:
    """Return what makes a DDL the same DDL, its commit_ts aside."""
    return f"{ddl.schema}\x1f{ddl.table}\x1f{ddl.query}"


def plan_round(state: SchemaState, at: Checkpoint, ddls: Iterable[PlacedDdl], upto: int, landed: Landed) -> Round:
    """Return everything between the checkpoint and `upto`, as units of steps.

    `ddls` are ordered and without repeats (feed.change.ordered_ddls) and may include those at the checkpoint's ts.
    """
    ddls = [placed for placed in ddls if at.ts <= (placed.ddl.commit_ts or 0) <= upto]
    lacking = SkippedDdls(list(at.left_out))
    plan = _Plan(state, at.ts, landed, first_ddls=_first_by_table(ddls), upto=upto, lacking=lacking)
    plan.catch_up()
    plan.follow_drift()
    done: list[str] = list(at.done)
    done_ts = at.ts
    applied: list[Ddl] = []
    for placed in ddls:
        ddl = placed.ddl
        ts = ddl.commit_ts or 0
        if ts == at.ts and identity(ddl) in at.done:
            continue
        if ts != done_ts:
            done, done_ts = [], ts
        done.append(identity(ddl))
        plan.meet(ts)
        try:
            left_out = plan.leaves_out(placed)
        except InputError as unknown:
            if not plan.is_foreign(ddl):
                raise refusal(unknown, ddl, placed.place) from None
            left_out = False
        if left_out:
            plan.pass_over(placed, len(done))
            continue
        if plan.apply(replace_ts(ddl, ts), len(done), placed.place):
            applied.append(ddl)
    plan.meet(upto)
    units = plan.finish(upto)
    checkpoint = Checkpoint(upto, tuple(done) if done_ts == upto else (), tuple(lacking.marks))
    planned = plan.state if plan.state is state else plan.state.distinct()
    return Round(units, planned, checkpoint, tuple(applied), tuple(plan.warnings), left_out=plan.left_out)


def replace_ts(ddl: Ddl, ts: int) -> Ddl:
    """Return the DDL with its commit_ts surely set."""
    return msgspec.structs.replace(ddl, commit_ts=ts)


Error = TypeVar("Error", bound=TidegateError)


def refusal(error: Error, ddl: Ddl, place: Place | None) -> Error:
    """Return the error of a DDL that cannot be applied or sent, with its message where there is one."""
    if place is not None and place.topic:
        error.messages = ((place.topic, place.partition, place.offset, ddl.commit_ts or 0),)
        error.at(topic=place.topic, partition=place.partition, offset=place.offset)
    return error


def _first_by_table(ddls: Iterable[PlacedDdl]) -> dict[Key, int]:
    first: dict[Key, int] = {}
    for placed in ddls:
        first.setdefault(TableName(placed.ddl.schema, placed.ddl.table).key, placed.ddl.commit_ts or 0)
    return first


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
        self.spans = {name.key: (name, *span) for name, span in self.landed.spans.items()}
        self.seen = set(self.state.tables)

    def stored(self, table: TableInfo) -> bool:
        return self.landed.accept(table.name.schema, table.name.table)

    def cut(self, table: TableInfo, ts: int) -> None:
        """Close the table's stretch of rows at `ts`."""
        since = self.since.get(table.incarnation, self.after)
        span = self.spans.get(table.name.key)
        if span is not None and since < ts and span[2] <= ts and span[3] > since and self.stored(table):
            self.lacking.check(table.name, min(span[3], ts))
            self.add(table, Rows(table, since, ts))
        self.since[table.incarnation] = ts

    def add(self, table: TableInfo, step: Step) -> None:
        self.steps.setdefault(table.incarnation, []).append(step)

    def meet(self, ts: int) -> None:
        """Infer tables whose rows come up to `ts` without a DDL that made them."""
        for key, (name, _, low, _) in self.spans.items():
            if key in self.seen or low > ts:
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
            self.warnings.append(f"table {name}: no DDL seen, its definition is read off its messages")

    def inferred(self, name: TableName, version: int, upto: int) -> list[TableInfo]:
        """Return what the rows up to a ts show of a table; nothing when there are none (spans are bounds, not
        exact)."""
        layouts = self.landed.layouts(name, upto)
        return [infer_table(name, layout.fields, layout.pk_names, version) for layout in layouts]

    def follow_drift(self) -> None:
        """Columns that rows of inferred tables show beyond their definition."""
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

    def leaves_out(self, placed: PlacedDdl) -> bool:
        """Return whether event filters leave the DDL out."""
        return placed.left_out or self.dropped(placed.ddl)

    def dropped(self, ddl: Ddl) -> bool:
        """Return whether their rules leave it out."""
        return self.landed.drops is not None and self.landed.drops(ddl, renamed_away(self.state, ddl))

    def pass_over(self, placed: PlacedDdl, seq: int) -> None:
        """Note a DDL that is left out."""
        ddl = placed.ddl
        self.left_out += 1
        sure = self.lacking.pass_over(ddl, foreseen(self.state, ddl, seq), for_good=placed.left_out)
        doubt = "" if sure else "; what it would have done is not known"
        self.warnings.append(f"DDL of ts {ddl.commit_ts} left out by an event filter{doubt}: {ddl.query[:500]}")

    def catch_up(self) -> None:
        """Apply what was left out and is not any more, where the round begins."""
        for number, mark in enumerate(tuple(self.lacking.marks), start=1):
            if not mark.for_good and not self.dropped(mark.ddl):
                self.lacking.marks.remove(mark)
                self.apply(replace_ts(mark.ddl, self.after), DRIFT_SEQ + number)

    def is_foreign(self, ddl: Ddl) -> bool:
        """Return whether the table filter takes none of the tables, or not the database, that a DDL speaks of."""
        if not ddl.table:
            return self.landed.takes is not None and not self.landed.takes(ddl, None)
        names = names_of(ddl, self.state)
        return bool(names) and not any(self.landed.accept(*name) for name in names)

    def lose(self, ddl: Ddl, error: TidegateError) -> None:
        """Go on without a DDL of tables that the filter leaves out: what they are like is not known any more."""
        names = names_of(ddl, self.state)
        why = f"{', '.join(map(str, names)) or f'database {ddl.schema}'} at ts {ddl.commit_ts}: {error}"
        if not names or not self.state.lost.keys() >= {name.key for name in names}:
            self.warnings.append(f"not followed, as the filter leaves it out: {why}")
        self.state = self.state.losing(names, why)
        self.left_out += 1

    def check_known(self, name: TableName) -> None:
        """SchemaError for a table that the filter takes and whose definition was lost while it did not."""
        lost = self.state.lost.get(name.key)
        if lost is not None:
            raise SchemaError(
                f"table {name}, which the filter takes, is one that it left out, and that could not be followed "
                f"meanwhile ({lost.why}); leave it out again by a filter rule, or begin a fresh lake"
            ).at(table=str(name))

    def apply(self, ddl: Ddl, seq: int, place: Place | None = None) -> bool:
        """Apply one DDL, which stands at `place`, to the schema and cut the tables whose rows it touches; False if it
        is of tables that the filter leaves out and could not be followed."""
        lost = self.state.lost
        try:
            self.state, effects = apply_ddl(self.state, ddl, seq)
            for key, one in self.state.lost.items() if self.state.lost is not lost else ():
                if key not in lost and self.landed.accept(*one.name):
                    self.check_known(one.name)
        except (SchemaError, InputError) as error:
            if self.is_foreign(ddl):
                self.lose(ddl, error)
                return False
            refused: SchemaError | InputError = error
            if self.landed.drops is not None and isinstance(error, SchemaError):
                hint = "Event filters may have left out what it needs: leave it out as well"
                refused = SchemaError(f"{error}. {hint}").at(**msgspec.structs.asdict(error.where))
            raise refusal(refused, ddl, place) from error
        self.lacking.follow(effects)
        kept = [effect for effect in effects if self.is_kept(effect)]
        if warning := zone_warning(ddl, kept):
            self.warnings.append(warning)
        self.warnings += null_warnings(ddl, place, kept)
        for effect in effects:
            self.effect(effect, ddl, seq)
        self.seen |= set(self.state.tables)
        return True

    def is_kept(self, effect: Effect) -> bool:
        """Return whether an effect is on a table that is stored."""
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
                f"ts {ddl.commit_ts}: {effect.old.name}, which the filter leaves out, becomes {effect.new.name}, which "
                f"it takes ({ddl.query!a:.200}); its rows from before are not in the lake: leave the new name out by a "
                "filter rule, and go on without the table, or begin a fresh lake whose filter.rules take both names"
            ).at(table=str(effect.new.name), commit_ts=ddl.commit_ts or 0)

    def alter(self, effect: TableAltered, ddl: Ddl, seq: int) -> None:
        if not self.stored(effect.old) or not changes_rows(effect.old, effect.new):
            return
        ts = ddl.commit_ts or 0
        self.cut(effect.old, ts)
        self.add(effect.old, Alter(effect.old, effect.new, ts, seq, ddl.query, ddl.told))

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
                f"ts {ts}: {outside.name}, which the filter leaves out, changes rows with {inside.name}, which it "
                f"takes ({ddl.query!a:.200}); the rows that come are not in the lake: leave {inside.name} out by a "
                "filter rule, too, and go on without it, or begin a fresh lake whose filter.rules take both tables"
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
        return tuple(self.unit(steps) for steps in groups.values())

    def unit(self, steps: Sequence[Step]) -> Unit:
        keys = {step.table.name.key for step in steps if isinstance(step, Rows)}
        return Unit(tuple(sorted(steps, key=position_of)), sum(self.spans[key][1] for key in keys))

    def root(self, incarnation: str) -> str:
        """Return the group of an incarnation: exchanges tie tables, truncates incarnations, in chains too."""
        neighbours: dict[str, set[str]] = {}
        for one, other in self.links:
            neighbours.setdefault(one, set()).add(other)
            neighbours.setdefault(other, set()).add(one)
        group, frontier = {incarnation}, [incarnation]
        while frontier:
            found = neighbours.get(frontier.pop(), set()) - group
            group |= found
            frontier += found
        return min(group)
