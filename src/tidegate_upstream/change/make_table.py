"""Stored table definitions, built from CREATE TABLE.

    columns       ids 1, 2 .. in order; the hidden columns of expression indexes after them
    indexes       ids 1, 2 .. in order: keys of the table, keys written at columns, keys that foreign keys require
    row key       PRIMARY KEY on one integer: the handle itself, no index (pk_is_handle); on other columns an index that
                  is the row key (is_common_handle); NONCLUSTERED: an ordinary index

Source: TiDB pkg/ddl/create_table.go (BuildTableInfo, handleTableOptions).
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import INTEGERS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.schema.build import inline_indexes
from tidegate.schema.columns import charset_of_collation, default_collation
from tidegate.schema.statement import CheckDef, ColumnDef, CreateTable, IndexDef, OptionsDetail, TableOptions
from tidegate.schema.stored.definition import (
    AUTO_INCREMENT,
    PRIMARY,
    ElementState,
    Name,
    StoredCheck,
    StoredForeignKey,
    StoredSchema,
    StoredTable,
    StoredTtl,
)
from tidegate_upstream.change.draft import column_of, with_flag, with_index_flags
from tidegate_upstream.change.make_column import (
    chosen_name,
    covers,
    make_column,
    make_foreign_key,
    make_index,
    make_partition,
)
from tidegate_upstream.change.move_column import append_column, append_index
from tidegate_upstream.change.restore import restore
from tidegate_upstream.change.session import DdlSession

_PUBLIC: Final = ElementState.PUBLIC
_UNITS: Final = ["MICROSECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"]
_MOST_COLUMNS: Final = 1017
_LONGEST_NAME: Final = 64


def with_charset(charset: str | None, collate: str | None, of: tuple[str, str]) -> tuple[str, str]:
    """Return (charset, collation) of options, each completed by the other, else `of` of the containing object."""
    if charset is None and collate is None:
        return of
    charset = charset if charset is not None else charset_of_collation(collate or "")
    chosen = collate or default_collation(charset)
    if charset_of_collation(chosen) != charset:
        raise SqlRefused(1253, f"COLLATION '{chosen}' is not valid for CHARACTER SET '{charset}'", "42000")
    default_collation(charset)
    return charset, chosen


def check_name(name: str, what: str = "table") -> None:
    """Raise SqlRefused 1103 or 1059 for an invalid name."""
    if not name or name.endswith(" "):
        raise SqlRefused(1103, f"Incorrect {what} name '{name}'", "42000")
    if len(name) > _LONGEST_NAME:
        raise SqlRefused(1059, f"Identifier name '{name}' is too long", "42000")


def make_table(statement: CreateTable, schema: StoredSchema, session: DdlSession) -> StoredTable:
    """Return the stored table of CREATE TABLE, without ids of the table and its partitions; SqlRefused as TiDB
    refuses."""
    check_name(statement.table.table)
    if statement.not_supported:
        raise SqlRefused(8200, f"Unsupported {statement.not_supported}", "HY000")
    options = statement.options
    charset, collate = with_charset(options.charset, options.detail.collate, (schema.charset, schema.collate))
    table = StoredTable(
        0, Name.of(statement.table.table), charset, collate, comment=options.comment or "", state=ElementState.NONE
    )
    indexes = [*statement.indexes, *inline_indexes(statement.columns)]
    table = _with_columns(table, statement.columns, indexes, session)
    table = _with_indexes(table, indexes, session)
    table = _with_foreign_keys(table, [index for index in indexes if index.foreign], schema)
    checks = [*statement.detail.checks, *(check for column in statement.columns for check in column.detail.checks)]
    for check in checks if session.check_constraints else ():
        constraint = msgspec.structs.replace(make_check(table, check), id=table.max_cst_id + 1, state=int(_PUBLIC))
        table = msgspec.structs.replace(
            table, constraint_info=[*(table.constraint_info or ()), constraint], max_cst_id=constraint.id
        )
    table = _with_options(table, options, statement.columns)
    if statement.detail.global_temporary:
        table = msgspec.structs.replace(table, temp_table_type=1)
    if statement.partition is not None:
        table = msgspec.structs.replace(table, partition=make_partition(statement.partition, table))
    return table


def _with_columns(
    table: StoredTable, columns: Sequence[ColumnDef], indexes: Sequence[IndexDef], session: DdlSession
) -> StoredTable:
    primary = [index for index in indexes if index.primary]
    if len(primary) > 1:
        raise SqlRefused(1068, "Multiple primary key defined", "42000")
    if len(columns) > _MOST_COLUMNS:
        raise SqlRefused(1117, "Too many columns", "HY000")
    keyed = {lowered(name) for index in primary for name in index.columns}
    for definition in columns:
        check_name(definition.name, "column")
        if column_of(table, definition.name) is not None:
            raise SqlRefused(1060, f"Duplicate column name '{definition.name}'", "42S21")
        if lowered(definition.name) in keyed and definition.nullable is True:
            message = "All parts of a PRIMARY KEY must be NOT NULL; if you need NULL in a key, use UNIQUE instead"
            raise SqlRefused(1171, message, "42000")
        column = make_column(
            definition, 0, table.charset, table.collate, session, in_key=lowered(definition.name) in keyed
        )
        table = append_column(table, column, _PUBLIC)
    for column in table.cols or ():
        unknown = [name for name in column.dependences or () if column_of(table, name) is None]
        if unknown:
            raise SqlRefused(1054, f"Unknown column '{unknown[0]}' in 'generated column function'", "42S22")
    return table


def _with_indexes(table: StoredTable, indexes: Sequence[IndexDef], session: DdlSession) -> StoredTable:
    names = {lowered(index.name) for index in indexes if index.name is not None and not index.foreign}
    for index in indexes:
        if index.foreign:
            continue
        column = column_of(table, index.columns[0]) if index.primary and len(index.columns) == 1 else None
        if column is not None and column.type.tp in INTEGERS and _is_clustered(index, session):
            table = msgspec.structs.replace(with_flag(table, [column.offset], add=PRIMARY), pk_is_handle=True)
            continue
        name = chosen_name(index, names)
        table = _with_index(table, index, name)
        names.add(lowered(name))
        if index.primary and _is_clustered(index, session):
            table = msgspec.structs.replace(table, is_common_handle=True, common_handle_version=1)
    auto = [column for column in table.cols or () if column.type.flag & AUTO_INCREMENT]
    if len(auto) > 1 or any(not column.type.flag & 14 for column in auto):
        message = "Incorrect table definition; there can be only one auto column and it must be defined as a key"
        raise SqlRefused(1075, message, "42000")
    return table


def _with_index(table: StoredTable, definition: IndexDef, name: str) -> StoredTable:
    if any(index.idx_name.lower == lowered(name) for index in table.index_info or ()):
        raise SqlRefused(1061, f"Duplicate key name '{name}'", "42000")
    stored, hidden = make_index(table, definition, name)
    for column in hidden:
        table = append_column(table, column, _PUBLIC)
    table = append_index(table, stored, _PUBLIC)
    return with_index_flags(table, (table.index_info or [])[-1])


def _is_clustered(index: IndexDef, session: DdlSession) -> bool:
    return session.clustered_index if index.clustered is None else index.clustered


def _with_foreign_keys(table: StoredTable, keys: Sequence[IndexDef], schema: StoredSchema) -> StoredTable:
    stored: list[StoredForeignKey] = []
    for number, index in enumerate(keys, start=1):
        key, brought = make_foreign_key(schema.name.original, table, index, number)
        if any(other.fk_name.lower == key.fk_name.lower for other in stored):
            raise SqlRefused(1826, f"Duplicate foreign key constraint name '{key.fk_name.original}'", "HY000")
        stored.append(msgspec.structs.replace(key, id=number, state=int(_PUBLIC)))
        if not covers(table, index.columns):
            table = _with_index(table, brought, key.fk_name.original)
    if not stored:
        return table
    return msgspec.structs.replace(table, fk_info=stored, max_fk_id=len(stored))


def make_check(table: StoredTable, check: CheckDef) -> StoredCheck:
    """Return the stored form of a CHECK, without id and state; the default name is <table>_chk_<n>."""
    restored = restore(check.expression)
    columns = [column_of(table, name) for name in restored.columns]
    unknown = next((name for name, column in zip(restored.columns, columns, strict=True) if column is None), None)
    if unknown is not None:
        name = check.name or f"{table.name.original}_chk_{table.max_cst_id + 1}"
        raise SqlRefused(3820, f"Check constraint '{name}' refers to non-existing column '{unknown}'.", "HY000")
    return StoredCheck(
        0,
        Name.of(check.name or f"{table.name.original}_chk_{table.max_cst_id + 1}"),
        table.name,
        [column.name for column in columns if column is not None],
        check.enforced,
        check.in_column,
        restored.text,
    )


def make_ttl(table: StoredTable, detail: OptionsDetail) -> StoredTtl:
    """Return `ttl_info` of options that have one; SqlRefused 8148 if the column is not a date or time."""
    assert detail.ttl is not None
    name, count, unit = detail.ttl
    column = column_of(table, name)
    if column is None:
        raise SqlRefused(1054, f"Unknown column '{name}' in 'TTL config'", "42S22")
    if column.type.tp not in (T.DATE, T.DATETIME, T.TIMESTAMP):
        message = f"Field '{name}' is of a not supported type for TTL config, expect DATETIME, DATE or TIMESTAMP"
        raise SqlRefused(8148, message, "HY000")
    unit_number = _UNITS.index(unit) + 1 if unit in _UNITS else 0
    return StoredTtl(column.name, count, unit_number, detail.ttl_enable is not False, detail.ttl_job_interval or "24h")


def _with_options(table: StoredTable, options: TableOptions, columns: Sequence[ColumnDef]) -> StoredTable:
    detail = options.detail
    bits = detail.shard_row_id_bits or 0
    if bits and (table.pk_is_handle or table.is_common_handle):
        raise SqlRefused(8200, "Unsupported shard_row_id_bits for table with primary key as row id", "HY000")
    own = next((column for column in columns if column.detail.auto_random), None)
    random = None if own is None else own.detail.auto_random
    key = None if own is None else column_of(table, own.name)
    is_key = key is not None and key.type.tp == T.LONGLONG and bool(key.type.flag & PRIMARY)
    if random is not None and not (table.pk_is_handle and is_key):
        message = "Invalid auto random: column must be the BIGINT clustered primary key"
        raise SqlRefused(8216, message, "HY000")
    return msgspec.structs.replace(
        table,
        auto_inc_id=detail.auto_increment or 0,
        auto_id_cache=detail.auto_id_cache or 0,
        auto_rand_id=detail.auto_random_base or 0,
        shard_row_id_bits=bits,
        max_shard_row_id_bits=bits,
        auto_random_bits=random[0] if random else 0,
        auto_random_range_bits=random[1] if random else 0,
        pre_split_regions=min(detail.pre_split_regions or 0, bits),
        compression=detail.compression or "",
        ttl_info=None if detail.ttl is None else make_ttl(table, detail),
    )
