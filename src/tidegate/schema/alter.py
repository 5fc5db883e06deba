"""All specs of one ALTER TABLE on one table, in the order in which MySQL carries them out.

    1 charset and comment   2 columns   3 keys: drop, rename, show or hide, add   4 partitions

RENAME TO and EXCHANGE PARTITION concern other tables too and are done by state.py.
Source: MySQL sql_table.cc (mysql_prepare_alter_table); TiDB pkg/ddl/executor.go (AlterTable).
"""

from collections.abc import Sequence

import msgspec

from tidegate.model.errors import UnsupportedError
from tidegate.model.table import IndexInfo, TableInfo
from tidegate.schema.alter_columns import alter_columns
from tidegate.schema.build import add_index, inline_indexes
from tidegate.schema.ddl_context import DdlContext
from tidegate.schema.definition import IndexDef, TableOptions
from tidegate.schema.repartition import repartition
from tidegate.schema.spec import (
    AddColumns,
    AddForeignKey,
    AddIndex,
    ConvertCharset,
    DropIndex,
    DropPrimaryKey,
    ModifyColumn,
    NotSupported,
    RenameIndex,
    SetVisibility,
    Spec,
)

__all__ = ["alter_table"]


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
    return index.name.lower() == name.lower()


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
