"""DDLs that event filters leave out of a lake, and what that means for the rows behind them.

    upstream   t(id, v) ── ADD COLUMN w ──► t(id, v, w)   rows (1, 2, 3)
    lake       t(id, v) ── left out ─────── t(id, v)      they fit no more: the first of them ends the feed

    left out                                                     rows behind it
    TRUNCATE, DROP TABLE, DROP or TRUNCATE PARTITION, EXCHANGE,  fit: old rows stay, new ones are merged into them
    DROP DATABASE, indexes, comments, defaults, charsets
    columns, types and keys; CREATE TABLE, RENAME, RECOVER       do not: RowsLackDdl names table, ts and DDL

Nothing is lost by that end: a lake is published up to the DDL, and where the filter lets it pass from then on, the next
start applies it first, in its place before those rows.  So a mark is kept with the checkpoint until the DDL is applied,
or its table is dropped.  A DDL that can be read neither by us nor applied to the lake is left out for good, with a
warning: the next one of a table that lacks others is marked all the same, so that they are applied in their order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from tidegate.engine.filter import previous_name
from tidegate.model.errors import InputError, SchemaError
from tidegate.model.event import Ddl
from tidegate.model.feed_errors import RowsLackDdl
from tidegate.model.name import lowered
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.effects import Effect, TableAltered, TableCreated, TableDropped, TableRecovered, TableRenamed
from tidegate.schema.state import SchemaState, apply_ddl


class SkippedDdl(msgspec.Struct, frozen=True):
    """A DDL that a lake does not have, though rows of this table are made by it.

    `for_good`: its whole transaction is left out, whatever the rules say later."""

    schema: str
    table: str
    ddl: Ddl
    for_good: bool = False

    @property
    def name(self) -> TableName:
        """The table's name, as rows behind the DDL have it."""
        return TableName(self.schema, self.table)

    @property
    def ts(self) -> int:
        """Rows above it do not fit."""
        return self.ddl.commit_ts or 0


@dataclass(slots=True)
class SkippedDdls:
    """The marks of a lake, in the order of their DDLs."""

    marks: list[SkippedDdl] = field(default_factory=list)

    def first(self, name: TableName) -> SkippedDdl | None:
        """Return the first DDL that a table lacks."""
        return next((mark for mark in self.marks if mark.name.key == name.key), None)

    def pass_over(self, ddl: Ddl, effects: Sequence[Effect] | None, *, for_good: bool) -> bool:
        """Note a DDL that is left out, with what it would have done; None if it cannot be applied.

        False where that leaves the tables' later rows in doubt."""
        if effects is not None:
            self.marks += [SkippedDdl(*name, ddl, for_good) for effect in effects for name in _strangers(effect)]
            return True
        told = TableName(ddl.schema, ddl.table)
        if self.first(told) is not None:
            self.marks.append(SkippedDdl(*told, ddl, for_good))
        return False

    def follow(self, effects: Sequence[Effect]) -> None:
        """Note what was applied: a dropped table lacks nothing any more, a renamed one the same as before."""
        for effect in effects:
            if isinstance(effect, TableDropped | TableCreated):
                gone = effect.table.name.key
                self.marks = [mark for mark in self.marks if mark.name.key != gone]
            elif isinstance(effect, TableRenamed):
                self.marks = [_renamed(mark, effect) for mark in self.marks]

    def check(self, name: TableName, highest_ts: int) -> None:
        """RowsLackDdl when a table with rows up to there lacks a DDL before them."""
        mark = self.first(name)
        if mark is None or highest_ts <= mark.ts:
            return
        way = "" if mark.for_good else "let the filter pass it, and the next start applies it before these rows; or "
        raise RowsLackDdl(
            f"table {name}: rows up to ts {highest_ts} do not fit the lake, which lacks the DDL of ts {mark.ts} that "
            f"an event filter left out: {mark.ddl.query[:500]!r}. Ways out: {way}leave the table out by a filter rule; "
            "or begin a fresh lake, where schema-change=lenient or ignore keeps columns as they are",
            mark.ts,
        )


def foreseen(state: SchemaState, ddl: Ddl, seq: int) -> Sequence[Effect] | None:
    """Return what a DDL would do; None if it cannot be applied."""
    try:
        return apply_ddl(state, ddl, seq)[1]
    except (InputError, SchemaError):
        return None


def renamed_away(state: SchemaState, ddl: Ddl) -> TableName | None:
    """Return the name that a RENAME takes away; None for other DDLs."""
    return previous_name(ddl, foreseen(state, ddl, 0)) if "RENAME" in ddl.query.upper() else None


def _strangers(effect: Effect) -> list[TableName]:
    """The names whose later rows do not fit tables without this change."""
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
    """Return True when a change of definition shows in stored rows or in how rows are read."""
    return _shape(old) != _shape(new)


def _shape(table: TableInfo) -> tuple[object, ...]:
    columns = tuple((column.id, column.name, column.type, column.virtual) for column in table.columns)
    return columns, tuple(lowered(name) for name in table.handle_key)
