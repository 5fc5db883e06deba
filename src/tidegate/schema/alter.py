"""ALTER TABLE on a table definition: all specs of one statement, in the order in which MySQL carries them out.

    1 charset and comment   2 columns   3 keys: drop, rename, show or hide, add   4 partitions

RENAME TO and EXCHANGE PARTITION concern other tables too and are done by state.py.

Column specs name columns as they stood before the statement:

    ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a, ADD COLUMN c INT AFTER a

    slots   (was a, now a) (was b, now b)
            (was a, now b) (was b, now a)           sources are found by "was", so names can swap
            (was a, now b) (was b, now a) (-, c)    AFTER is found by "now", else by "was"

Ids: a new column gets max_column_id + 1; renamed, moved and modified columns keep their id.  (TiDB gives a new id to a
column whose stored values are converted; here an id follows the column through its whole life.)

Partition specs give the next definitions, and the partitions that lose their rows:

    ADD          definitions added at the end; HASH and KEY: p{count}, p{count + 1}, ..
    DROP         the named ones are removed, with their rows
    TRUNCATE     the same definitions; the rows of the named ones are removed
    REORGANIZE   new definitions where the first of the named ones stood; rows stay
    COALESCE     HASH and KEY: the last ones are removed; rows stay
    PARTITION BY, REMOVE PARTITIONING   rows stay

Source: MySQL sql_table.cc (mysql_prepare_alter_table); MySQL manual, "ALTER TABLE Statement"; TiDB
pkg/ddl/executor.go (AlterTable), pkg/ddl/multi_schema_change.go.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from tidegate.expr.tokens import TokenKind, quote_name
from tidegate.model.errors import UnsupportedError
from tidegate.model.name import lowered
from tidegate.model.table import COLUMNS_MAX, ColumnInfo, IndexInfo, PartitionDef, PartitionInfo, TableInfo
from tidegate.schema import statement as sql
from tidegate.schema.build import (
    DdlContext,
    add_index,
    build_column,
    complete_partition,
    first_twice,
    inline_indexes,
    not_null,
)
from tidegate.schema.columns import keep_default, own_collation
from tidegate.schema.cursor import Cursor
from tidegate.schema.parse_table import MOST_PARTITIONS
from tidegate.schema.snapshot import Database


@dataclass(slots=True, eq=False)
class _Slot:
    """A column of the table; `was` is its folded name before the statement, None for a new column."""

    was: str | None
    now: ColumnInfo


class _Columns:
    __slots__ = ("context", "max_id", "slots", "table")

    def __init__(self, table: TableInfo, context: DdlContext) -> None:
        self.table, self.context = table, context
        self.slots = [_Slot(lowered(column.name), column) for column in table.columns]
        self.max_id = table.max_column_id

    def find(self, name: str, *, missing_ok: bool = False) -> _Slot | None:
        """Return the slot of a column by its old name, else by its new one; None if missing and `missing_ok`."""
        folded = lowered(name)
        for slot in self.slots:
            if slot.was == folded:
                return slot
        current = self.now(name)
        if current is None and not missing_ok and not self.table.inferred:
            raise self.context.error(self.table.name, f"column {name!r} does not exist")
        return current

    def now(self, name: str) -> _Slot | None:
        """Return the slot of a column by its new name."""
        folded = lowered(name)
        return next((slot for slot in self.slots if lowered(slot.now.name) == folded), None)

    def put(self, slot: _Slot, position: sql.Position | None) -> None:
        """Put `slot` (new or in the list) at `position`; without one a new slot goes last."""
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

    def apply(self, spec: sql.Spec) -> None:
        """Apply one column spec; specs of other kinds are ignored."""
        match spec:
            case sql.AddColumns():
                self._add(spec)
            case sql.DropColumn(name, if_exists):
                slot = self.find(name, missing_ok=if_exists)
                if slot is not None:
                    self.slots.remove(slot)
            case sql.ModifyColumn(name, definition, position, if_exists):
                slot = self.find(name, missing_ok=if_exists)
                if slot is not None:
                    slot.now = build_column(definition, slot.now.id, self.table, old=slot.now)
                    self.put(slot, position)
            case sql.RenameColumn(old, new):
                slot = self.find(old)
                if slot is not None:
                    slot.now = msgspec.structs.replace(slot.now, name=new)
            case sql.SetDefault(name, default):
                slot = self.find(name)
                if slot is not None:
                    value, is_expression = keep_default(default, slot.now.type)
                    slot.now = msgspec.structs.replace(slot.now, default=value, default_is_expr=is_expression)
            case _:
                pass

    def _add(self, spec: sql.AddColumns) -> None:
        for definition in spec.columns:
            if self.now(definition.name) is not None and spec.if_not_exists:
                continue
            if len(self.slots) >= COLUMNS_MAX:
                raise self.context.too_many(self.table.name, f"{COLUMNS_MAX} columns")
            self.max_id += 1
            column = build_column(definition, self.max_id, self.table, added=True)
            self.put(_Slot(None, column), spec.position)


def alter_columns(table: TableInfo, specs: Iterable[sql.Spec], context: DdlContext) -> TableInfo:
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
    partition = table.partition
    if partition is not None and any(old != lowered(new) for old, new in renamed.items()):
        parted = tuple(renamed.get(lowered(name), name) for name in partition.columns)
        partition = msgspec.structs.replace(partition, columns=parted, expr=_rename_in(partition.expr, renamed))
    changed = msgspec.structs.replace(
        table,
        columns=tuple(slot.now for slot in columns.slots),
        indexes=tuple(index for old in table.indexes if (index := _follow(old, renamed)) is not None),
        partition=partition,
        max_column_id=columns.max_id,
    )
    return not_null(changed, {name for index in changed.indexes if index.primary for name in index.columns})


def _follow(index: IndexInfo, renamed: dict[str, str]) -> IndexInfo | None:
    """`index` with renamed columns renamed and dropped columns left out; None if no column is left."""
    columns = tuple(renamed.get(lowered(name), "") for name in index.columns)
    kept = tuple(new for old, new in zip(index.columns, columns, strict=True) if new or not old)
    if index.columns and not kept:
        return None
    return msgspec.structs.replace(index, columns=kept)


def _rename_in(expr: str, renamed: dict[str, str]) -> str:
    """SQL text with column names replaced: names and words that are not followed by `(`."""
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


def named_partitions(table: TableInfo, names: tuple[str, ...], context: DdlContext) -> tuple[str, ...]:
    """Return the names as the table defines them; none means all.  Raises SchemaError for one that does not exist."""
    defined = {} if table.partition is None else {lowered(item.name): item.name for item in table.partition.definitions}
    if not defined:
        raise context.error(table.name, "the table is not partitioned")
    missing = [name for name in names if lowered(name) not in defined]
    if missing:
        raise context.error(table.name, f"partition {missing[0]!r} does not exist")
    return tuple(defined[lowered(name)] for name in names) if names else tuple(defined.values())


def repartition(table: TableInfo, spec: sql.Spec, context: DdlContext) -> TableInfo:
    """`table` after one partition spec; the same table for any other spec."""
    partition = table.partition
    match spec:
        case sql.PartitionBy(new):
            return msgspec.structs.replace(table, partition=complete_partition(new, table))
        case sql.RemovePartitioning():
            return msgspec.structs.replace(table, partition=None)
        case sql.AddPartitions() | sql.ReorganizePartitions() | sql.CoalescePartitions() if (
            partition is None and table.inferred
        ):
            return table
        case sql.AddPartitions() | sql.DropPartitions() | sql.ReorganizePartitions() | sql.CoalescePartitions() if (
            partition is None
        ):
            raise context.error(table.name, "the table is not partitioned")
        case sql.AddPartitions():
            assert partition is not None
            return _with_partitions(table, partition, _added(table, partition, spec, context))
        case sql.DropPartitions(names, if_exists):
            assert partition is not None
            present = {lowered(item.name) for item in partition.definitions}
            chosen = tuple(name for name in names if lowered(name) in present or not if_exists)
            gone = set(named_partitions(table, chosen, context)) if chosen else set()
            return _with_partitions(
                table, partition, tuple(item for item in partition.definitions if item.name not in gone)
            )
        case sql.TruncatePartitions(names):
            named_partitions(table, names, context)
            return table
        case sql.ReorganizePartitions(names, definitions):
            assert partition is not None
            return _with_partitions(table, partition, _reorganized(table, partition, names, definitions, context))
        case sql.CoalescePartitions(count):
            assert partition is not None
            if not 0 < count < len(partition.definitions):
                raise context.error(table.name, f"cannot coalesce {count} of {len(partition.definitions)} partitions")
            return _with_partitions(table, partition, partition.definitions[:-count])
        case _:
            return table


def _with_partitions(table: TableInfo, partition: PartitionInfo, definitions: tuple[PartitionDef, ...]) -> TableInfo:
    count = len(definitions) if partition.count else 0
    changed = msgspec.structs.replace(partition, definitions=definitions, count=count)
    return msgspec.structs.replace(table, partition=changed)


def _added(
    table: TableInfo,
    partition: PartitionInfo,
    spec: sql.AddPartitions,
    context: DdlContext,
) -> tuple[PartitionDef, ...]:
    start = len(partition.definitions)
    if start + spec.count > MOST_PARTITIONS:
        raise context.error(table.name, f"more than {MOST_PARTITIONS} partitions")
    definitions = spec.definitions or tuple(PartitionDef(f"p{start + number}") for number in range(spec.count))
    present = {lowered(item.name) for item in partition.definitions}
    twice = [item.name for item in definitions if lowered(item.name) in present]
    if twice and not spec.if_not_exists:
        raise context.error(table.name, f"partition {twice[0]!r} exists already")
    return (*partition.definitions, *(item for item in definitions if item.name not in twice))


def _reorganized(
    table: TableInfo,
    partition: PartitionInfo,
    names: tuple[str, ...],
    definitions: tuple[PartitionDef, ...],
    context: DdlContext,
) -> tuple[PartitionDef, ...]:
    gone = set(named_partitions(table, names, context))
    first = next(index for index, item in enumerate(partition.definitions) if item.name in gone)
    before = partition.definitions[:first]
    after = tuple(item for item in partition.definitions[first:] if item.name not in gone)
    return (*before, *definitions, *after)


def alter_table(table: TableInfo, specs: Sequence[sql.Spec], context: DdlContext, database: Database) -> TableInfo:
    """`table` after `specs`, as of the DDL's commit_ts.

    Raises SchemaError where a spec does not fit the table, UnsupportedError for one that we do not follow."""
    changed = table
    for spec in specs:
        if isinstance(spec, sql.NotSupported):
            raise UnsupportedError(
                f"table {table.name}: {spec.what} by DDL {context.query[:500]!r} at commit_ts {context.commit_ts} "
                "is not supported; exclude the table by a filter rule or write out the partitions"
            )
        changed = _options(changed, spec, database)
    changed = alter_columns(changed, specs, context)
    for spec in specs:
        changed = _remove_index(changed, spec, context)
    for spec in specs:
        for index, if_not_exists in _added_indexes(spec, table):
            exists = any(_same(other, index.name or "") for other in changed.indexes)
            if not (if_not_exists and exists):
                changed = add_index(changed, index, context)
    for spec in specs:
        changed = repartition(changed, spec, context)
    return msgspec.structs.replace(changed, version=context.commit_ts)


def _options(table: TableInfo, spec: sql.Spec, database: Database) -> TableInfo:
    columns = table.columns
    match spec:
        case sql.TableOptions(None, comment):
            charset, collation = table.charset, table.collation
        case sql.TableOptions(str(charset), comment):
            collation = own_collation(spec.detail.collate, charset)
        case sql.ConvertCharset(new, written):
            charset, collation = (database.charset, database.collation) if new is None else (new, "")
            collation = own_collation(written, charset) if written else collation
            comment = None
            columns = tuple(
                column
                if column.type.charset == "binary"
                else msgspec.structs.replace(
                    column, type=msgspec.structs.replace(column.type, charset=charset), collation=collation
                )
                for column in columns
            )
        case _:
            return table
    comment = table.comment if comment is None else comment
    return msgspec.structs.replace(table, charset=charset, collation=collation, comment=comment, columns=columns)


def _same(index: IndexInfo, name: str) -> bool:
    return lowered(index.name) == lowered(name)


def _remove_index(table: TableInfo, spec: sql.Spec, context: DdlContext) -> TableInfo:
    """`table` after a spec that drops, renames, shows or hides a key."""
    match spec:
        case sql.DropPrimaryKey():
            name, if_exists = "PRIMARY", False
        case sql.DropIndex(name, if_exists):
            pass
        case sql.RenameIndex(name):
            if_exists = False
        case sql.SetVisibility(name):
            if_exists = True  # TiDB passes over one that is as it shall be, though the same statement drops the key
        case _:
            return table
    removed = next((index for index in table.indexes if _same(index, name)), None)
    if removed is None:
        if if_exists or table.inferred:
            return table
        raise context.error(table.name, f"key {name!r} does not exist")
    indexes: tuple[IndexInfo, ...]
    match spec:
        case sql.RenameIndex(_, new):
            indexes = _with(table, removed, msgspec.structs.replace(removed, name=new))
        case sql.SetVisibility(_, visible):
            indexes = _with(table, removed, msgspec.structs.replace(removed, visible=visible))
        case _:
            indexes = tuple(index for index in table.indexes if index is not removed)
    return msgspec.structs.replace(table, indexes=indexes)


def _with(table: TableInfo, old: IndexInfo, new: IndexInfo) -> tuple[IndexInfo, ...]:
    return tuple(new if index is old else index for index in table.indexes)


def _added_indexes(spec: sql.Spec, before: TableInfo) -> list[tuple[sql.IndexDef, bool]]:
    """The keys that a spec adds, each with its IF NOT EXISTS."""
    match spec:
        case sql.AddIndex(index, if_not_exists):
            return [(index, if_not_exists)]
        case sql.AddForeignKey(index):
            return [(index, True)]
        case sql.AddColumns(columns, indexes, _, if_not_exists):
            new = tuple(column for column in columns if not (if_not_exists and before.column(column.name)))
            return [(index, False) for index in (*indexes, *inline_indexes(new))]
        case sql.ModifyColumn(_, definition):
            return [(index, index.primary) for index in inline_indexes((definition,))]
        case _:
            return []
