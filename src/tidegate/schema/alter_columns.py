"""The column specs of one ALTER TABLE, all of which name columns as they stood before it.

    ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a, ADD COLUMN c INT AFTER a

    slots   (was a, now a) (was b, now b)
            (was a, now b) (was b, now a)           sources are found by "was", so names can swap
            (was a, now b) (was b, now a) (-, c)    AFTER is found by "now", else by "was"

Ids: a new column gets max_column_id + 1; renamed, moved and modified ones keep theirs.  (TiDB gives a new id to a
column whose stored values are converted; here an id follows the column through its whole life.)
Source: MySQL manual, "ALTER TABLE Statement"; TiDB pkg/ddl/multi_schema_change.go.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from tidegate.expr.syntax.tokens import TokenKind, quote_name
from tidegate.model.name import lowered
from tidegate.model.table import COLUMNS_MAX, ColumnInfo, IndexInfo, PartitionInfo, TableInfo
from tidegate.schema.build import DdlContext, build_column, first_twice
from tidegate.schema.cursor import Cursor
from tidegate.schema.defaults import keep_default
from tidegate.schema.definition import Position
from tidegate.schema.spec import AddColumns, DropColumn, ModifyColumn, RenameColumn, SetDefault, Spec


@dataclass(slots=True, eq=False)
class _Slot:
    """One column on its way: `was` is its folded name before the statement, None for a new one."""

    was: str | None
    now: ColumnInfo


class _Columns:
    """The slots of one table, changed spec by spec."""

    __slots__ = ("context", "max_id", "slots", "table")

    def __init__(self, table: TableInfo, context: DdlContext) -> None:
        self.table, self.context = table, context
        self.slots = [_Slot(lowered(column.name), column) for column in table.columns]
        self.max_id = table.max_column_id

    def find(self, name: str, *, missing_ok: bool = False) -> _Slot | None:
        """Return the slot that was called so, else that is now; None where a missing column may be passed over."""
        folded = lowered(name)
        for slot in self.slots:
            if slot.was == folded:
                return slot
        found = self.now(name)
        if found is None and not missing_ok and not self.table.inferred:
            raise self.context.error(self.table.name, f"column {name!r} does not exist")
        return found

    def now(self, name: str) -> _Slot | None:
        """Return the slot that is called so now."""
        folded = lowered(name)
        return next((slot for slot in self.slots if lowered(slot.now.name) == folded), None)

    def place(self, slot: _Slot, position: Position | None) -> None:
        """Put `slot` (in the list or not) where `position` says; without one a new slot goes last."""
        if position is None:
            if slot not in self.slots:
                self.slots.append(slot)
            return
        if slot in self.slots:
            self.slots.remove(slot)
        if position.after is None:
            self.slots.insert(0, slot)
            return
        after = self.now(position.after) or self.find(position.after)
        self.slots.insert(len(self.slots) if after is None else self.slots.index(after) + 1, slot)

    def apply(self, spec: Spec) -> None:
        """Carry out one column spec; others are not for here."""
        match spec:
            case AddColumns():
                self._add(spec)
            case DropColumn(name, if_exists):
                slot = self.find(name, missing_ok=if_exists)
                if slot is not None:
                    self.slots.remove(slot)
            case ModifyColumn(name, definition, position, if_exists):
                slot = self.find(name, missing_ok=if_exists)
                if slot is not None:
                    slot.now = build_column(definition, slot.now.id, self.table.charset, old=slot.now)
                    self.place(slot, position)
            case RenameColumn(old, new):
                slot = self.find(old)
                if slot is not None:
                    slot.now = msgspec.structs.replace(slot.now, name=new)
            case SetDefault(name, default):
                slot = self.find(name)
                if slot is not None:
                    value, is_expression = keep_default(default, slot.now.type)
                    slot.now = msgspec.structs.replace(slot.now, default=value, default_is_expr=is_expression)
            case _:
                pass

    def _add(self, spec: AddColumns) -> None:
        for definition in spec.columns:
            if self.now(definition.name) is not None and spec.if_not_exists:
                continue
            if len(self.slots) >= COLUMNS_MAX:
                raise self.context.too_many(self.table.name, f"{COLUMNS_MAX} columns")
            self.max_id += 1
            column = build_column(definition, self.max_id, self.table.charset, added=True)
            self.place(_Slot(None, column), spec.position)


def alter_columns(table: TableInfo, specs: Iterable[Spec], context: DdlContext) -> TableInfo:
    """`table` after all column specs; keys and partitions follow renamed and dropped columns.

    Raises SchemaError when a column is missing or there twice, or when none is left."""
    columns = _Columns(table, context)
    for spec in specs:
        columns.apply(spec)
    names = [lowered(slot.now.name) for slot in columns.slots]
    twice = first_twice(names)
    if twice:
        raise context.error(table.name, f"column {twice!r} exists already")
    if not names:
        raise context.error(table.name, "no column is left")
    renamed = {slot.was: slot.now.name for slot in columns.slots if slot.was is not None}
    changed = msgspec.structs.replace(
        table,
        columns=tuple(slot.now for slot in columns.slots),
        indexes=tuple(index for old in table.indexes if (index := _follow(old, renamed)) is not None),
        partition=None if table.partition is None else _follow_partition(table.partition, renamed),
        max_column_id=columns.max_id,
    )
    return _keep_primary_not_null(changed)


def _follow(index: IndexInfo, renamed: dict[str, str]) -> IndexInfo | None:
    """`index` with the new names of its columns, without dropped ones; None if none is left."""
    columns = tuple(renamed.get(lowered(name), "") for name in index.columns)
    kept = tuple(new for old, new in zip(index.columns, columns, strict=True) if new or not old)
    if index.columns and not kept:
        return None
    return msgspec.structs.replace(index, columns=kept)


def _follow_partition(partition: PartitionInfo, renamed: dict[str, str]) -> PartitionInfo:
    """`partition` with the new names of its columns, in its expression too."""
    if all(old == lowered(new) for old, new in renamed.items()):
        return partition
    columns = tuple(renamed.get(lowered(name), name) for name in partition.columns)
    return msgspec.structs.replace(partition, columns=columns, expr=_rename_in(partition.expr, renamed))


def _rename_in(expr: str, renamed: dict[str, str]) -> str:
    """SQL text with column names replaced: names and words that no `(` follows."""
    cursor = Cursor(expr)
    parts, end = [], 0
    while not cursor.done():
        token = cursor.next()
        if token.kind not in (TokenKind.NAME, TokenKind.WORD) or cursor.is_sign("("):
            continue
        new = renamed.get(lowered(token.text), token.text)
        if new != token.text:
            parts += [expr[end : token.start], quote_name(new)]
            end = token.end
    return "".join([*parts, expr[end:]])


def _keep_primary_not_null(table: TableInfo) -> TableInfo:
    """`table` with NOT NULL on its primary key, whatever MODIFY said."""
    primary = {name for index in table.indexes if index.primary for name in index.columns}
    columns = tuple(
        msgspec.structs.replace(column, nullable=False) if column.name in primary and column.nullable else column
        for column in table.columns
    )
    return msgspec.structs.replace(table, columns=columns)
