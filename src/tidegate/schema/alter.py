"""All specs of one ALTER TABLE on one table, in the order in which MySQL carries them out.

    1 charset and comment   2 columns   3 keys: drop, rename, show or hide, add   4 partitions

RENAME TO and EXCHANGE PARTITION concern other tables too and are done by state.py.

The partition specs of ALTER TABLE: next definitions, and which partitions lose their rows.

    ADD          definitions added at the end; HASH and KEY: p{count}, p{count + 1}, ..
    DROP         named ones away, with their rows
    TRUNCATE     the same definitions, rows of the named ones away
    REORGANIZE   new definitions where the first of the named ones stood; rows stay
    COALESCE     HASH and KEY: the last ones away; rows stay
    PARTITION BY, REMOVE PARTITIONING   rows stay

Source: MySQL sql_table.cc (mysql_prepare_alter_table); TiDB pkg/ddl/executor.go (AlterTable).
"""

from collections.abc import Sequence

import msgspec

from tidegate.model.errors import UnsupportedError
from tidegate.model.name import lowered
from tidegate.model.table import IndexInfo, PartitionDef, PartitionInfo, TableInfo
from tidegate.schema.alter_columns import alter_columns
from tidegate.schema.build import DdlContext, add_index, complete_partition, inline_indexes
from tidegate.schema.definition import IndexDef, TableOptions
from tidegate.schema.parse.table import MOST_PARTITIONS
from tidegate.schema.spec import (
    AddColumns,
    AddForeignKey,
    AddIndex,
    AddPartitions,
    CoalescePartitions,
    ConvertCharset,
    DropIndex,
    DropPartitions,
    DropPrimaryKey,
    ModifyColumn,
    NotSupported,
    PartitionBy,
    RemovePartitioning,
    RenameIndex,
    ReorganizePartitions,
    SetVisibility,
    Spec,
    TruncatePartitions,
)


def named_partitions(table: TableInfo, names: tuple[str, ...], context: DdlContext) -> tuple[str, ...]:
    """Return the names as the table defines them; none means all.  Raises SchemaError for one that does not exist."""
    defined = {} if table.partition is None else {lowered(item.name): item.name for item in table.partition.definitions}
    if not defined:
        raise context.error(table.name, "the table is not partitioned")
    missing = [name for name in names if lowered(name) not in defined]
    if missing:
        raise context.error(table.name, f"partition {missing[0]!r} does not exist")
    return tuple(defined[lowered(name)] for name in names) if names else tuple(defined.values())


def repartition(table: TableInfo, spec: Spec, context: DdlContext) -> TableInfo:
    """`table` after one partition spec; the same table for any other spec."""
    partition = table.partition
    match spec:
        case PartitionBy(new):
            return msgspec.structs.replace(table, partition=complete_partition(new, table))
        case RemovePartitioning():
            return msgspec.structs.replace(table, partition=None)
        case AddPartitions() | ReorganizePartitions() | CoalescePartitions() if partition is None and table.inferred:
            return table
        case AddPartitions() | DropPartitions() | ReorganizePartitions() | CoalescePartitions() if partition is None:
            raise context.error(table.name, "the table is not partitioned")
        case AddPartitions():
            assert partition is not None
            return _with_partitions(table, partition, _added(table, partition, spec, context))
        case DropPartitions(names, if_exists):
            assert partition is not None
            known = {lowered(item.name) for item in partition.definitions}
            wanted = tuple(name for name in names if lowered(name) in known or not if_exists)
            gone = set(named_partitions(table, wanted, context)) if wanted else set()
            return _with_partitions(
                table, partition, tuple(item for item in partition.definitions if item.name not in gone)
            )
        case TruncatePartitions(names):
            named_partitions(table, names, context)
            return table
        case ReorganizePartitions(names, definitions):
            assert partition is not None
            return _with_partitions(table, partition, _reorganized(table, partition, names, definitions, context))
        case CoalescePartitions(count):
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
    spec: AddPartitions,
    context: DdlContext,
) -> tuple[PartitionDef, ...]:
    start = len(partition.definitions)
    if start + spec.count > MOST_PARTITIONS:
        raise context.error(table.name, f"more than {MOST_PARTITIONS} partitions")
    definitions = spec.definitions or tuple(PartitionDef(f"p{start + number}") for number in range(spec.count))
    known = {lowered(item.name) for item in partition.definitions}
    twice = [item.name for item in definitions if lowered(item.name) in known]
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
    first = next(place for place, item in enumerate(partition.definitions) if item.name in gone)
    before = partition.definitions[:first]
    after = tuple(item for item in partition.definitions[first:] if item.name not in gone)
    return (*before, *definitions, *after)


def alter_table(table: TableInfo, specs: Sequence[Spec], context: DdlContext, database_charset: str) -> TableInfo:
    """`table` after `specs`, as of the DDL's commit_ts.

    Raises SchemaError where a spec does not fit the table, UnsupportedError for one that we do not follow."""
    changed = table
    for spec in specs:
        if isinstance(spec, NotSupported):
            raise UnsupportedError(
                f"table {table.name}: {spec.what} by DDL {context.query[:500]!r} at commit_ts {context.commit_ts} "
                "is not followed; exclude the table by a filter rule or write the partitions out"
            )
        changed = _options(changed, spec, database_charset)
    changed = alter_columns(changed, specs, context)
    for spec in specs:
        changed = _remove_index(changed, spec, context)
    for spec in specs:
        for index, if_not_exists in _added_indexes(spec, table):
            exists = any(_same(found, index.name or "") for found in changed.indexes)
            if not (if_not_exists and exists):
                changed = add_index(changed, index, context)
    for spec in specs:
        changed = repartition(changed, spec, context)
    return msgspec.structs.replace(changed, version=context.commit_ts)


def _options(table: TableInfo, spec: Spec, database_charset: str) -> TableInfo:
    match spec:
        case TableOptions(charset, comment):
            return msgspec.structs.replace(
                table,
                charset=table.charset if charset is None else charset,
                comment=table.comment if comment is None else comment,
            )
        case ConvertCharset(charset):
            return _converted(table, database_charset if charset is None else charset)
        case _:
            return table


def _converted(table: TableInfo, charset: str) -> TableInfo:
    """`table` and all its text columns in another charset."""
    columns = tuple(
        column
        if column.type.charset == "binary"
        else msgspec.structs.replace(column, type=msgspec.structs.replace(column.type, charset=charset))
        for column in table.columns
    )
    return msgspec.structs.replace(table, charset=charset, columns=columns)


def _same(index: IndexInfo, name: str) -> bool:
    return lowered(index.name) == lowered(name)


def _remove_index(table: TableInfo, spec: Spec, context: DdlContext) -> TableInfo:
    """`table` after a spec that drops, renames, shows or hides a key."""
    match spec:
        case DropPrimaryKey():
            name, if_exists = "PRIMARY", False
        case DropIndex(name, if_exists):
            pass
        case RenameIndex(name):
            if_exists = False
        case SetVisibility(name):
            if_exists = True  # TiDB passes over one that is as it shall be, though the same statement drops the key
        case _:
            return table
    found = next((index for index in table.indexes if _same(index, name)), None)
    if found is None:
        if if_exists or table.inferred:
            return table
        raise context.error(table.name, f"key {name!r} does not exist")
    indexes: tuple[IndexInfo, ...]
    match spec:
        case RenameIndex(_, new):
            indexes = _with(table, found, msgspec.structs.replace(found, name=new))
        case SetVisibility(_, visible):
            indexes = _with(table, found, msgspec.structs.replace(found, visible=visible))
        case _:
            indexes = tuple(index for index in table.indexes if index is not found)
    return msgspec.structs.replace(table, indexes=indexes)


def _with(table: TableInfo, old: IndexInfo, new: IndexInfo) -> tuple[IndexInfo, ...]:
    return tuple(new if index is old else index for index in table.indexes)


def _added_indexes(spec: Spec, before: TableInfo) -> list[tuple[IndexDef, bool]]:
    """The keys that a spec brings, each with its IF NOT EXISTS."""
    match spec:
        case AddIndex(index, if_not_exists):
            return [(index, if_not_exists)]
        case AddForeignKey(index):
            return [(index, True)]
        case AddColumns(columns, indexes, _, if_not_exists):
            new = tuple(column for column in columns if not (if_not_exists and before.column(column.name)))
            return [(index, False) for index in (*indexes, *inline_indexes(new))]
        case ModifyColumn(_, definition):
            return [(index, index.primary) for index in inline_indexes((definition,))]
        case _:
            return []
