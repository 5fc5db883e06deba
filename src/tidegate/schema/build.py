"""Definitions to tables: columns get ids, types, nullability and defaults, keys get names and ids.

    column ids   1, 2, .. in order; an expression in an index takes one too (TiDB hides a column behind it)
    index ids    1, 2, ..: table constraints first, then keys written at columns; 0 for a clustered integer primary
                 key, which has no index of its own because the row key is it
    key names    as written, else the first column's name, else expression_index; "_2", "_3" .. when taken

Source: TiDB pkg/ddl/create_table.go (buildColumnsAndConstraints, checkConstraintNames, BuildTableInfo).
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import msgspec

from tidegate.model.errors import SchemaError, UnsupportedError
from tidegate.model.mysql import INTEGERS
from tidegate.model.name import lowered
from tidegate.model.table import COLUMNS_MAX, KEYS_MAX, ColumnInfo, IndexInfo, PartitionInfo, TableInfo, TableName
from tidegate.schema.columns import complete_type, keep_default, origin_default, own_collation
from tidegate.schema.snapshot import Database
from tidegate.schema.statement import ColumnDef, CreateTable, IndexDef


@dataclass(frozen=True, slots=True)
class DdlContext:
    """A DDL event: `seq` is its index among all DDLs with this `commit_ts`."""

    commit_ts: int
    seq: int
    query: str

    def incarnation(self, number: int) -> str:
        """Return the incarnation of table number `number` (from 0) that this DDL creates or truncates."""
        name = f"{self.commit_ts:x}-{self.seq}"
        return f"{name}-{number}" if number else name

    def error(self, table: TableName | str, what: str) -> SchemaError:
        """Return the error of a DDL that does not fit the tables; names table, timestamp and DDL."""
        return SchemaError(
            f"table {table}: {what} at commit_ts {self.commit_ts} by DDL {self.query[:500]!r}; "
            "the schema history and the topic disagree: start the changefeed again from a point before the table's "
            "creation"
        )

    def too_many(self, table: TableName, most: str) -> UnsupportedError:
        """Return the error of a DDL that gives a table more columns or keys than any TiDB has."""
        return UnsupportedError(
            f"table {table}: more than {most} by DDL {self.query[:500]!r} at commit_ts {self.commit_ts} are not "
            f"supported; exclude the table by a filter rule"
        )


def build_column(
    definition: ColumnDef,
    column_id: int,
    parent: TableInfo | Database,
    *,
    added: bool = False,
    old: ColumnInfo | None = None,
) -> ColumnInfo:
    """Return the column of a definition, with charset and collation of its `parent` where none are written; one that
    is `added` has an origin default, another that of the `old` column."""
    column_type = complete_type(definition.type, parent.charset)
    collation = definition.detail.collate
    if collation is None and definition.type.binary:
        collation = f"{column_type.charset}_bin"
    elif collation is None and definition.type.charset is None:
        collation = parent.collation
    default, is_expression = keep_default(definition.default, column_type)
    origin = None
    if old is not None:
        origin = old.origin_default
    elif added and definition.generated is None:
        origin = origin_default(definition.default, column_type)
    never_null = definition.primary or definition.auto_increment
    return ColumnInfo(
        id=column_id,
        name=definition.name,
        type=column_type,
        nullable=False if never_null else definition.nullable is not False,
        default=default,
        default_is_expr=is_expression,
        origin_default=origin,
        generated=definition.generated,
        stored=definition.stored,
        comment=definition.comment,
        auto_increment=definition.auto_increment,
        collation=own_collation(collation, column_type.charset),
    )


def inline_indexes(columns: tuple[ColumnDef, ...]) -> list[IndexDef]:
    """Return the keys written at columns: PRIMARY KEY and UNIQUE."""
    indexes = []
    for column in columns:
        if column.primary:
            indexes.append(IndexDef("PRIMARY", (column.name,), unique=True, primary=True, clustered=column.clustered))
        if column.unique:
            indexes.append(IndexDef(None, (column.name,), unique=True))
    return indexes


def build_table(statement: CreateTable, database: Database, context: DdlContext, number: int) -> TableInfo:
    """Return the table of CREATE TABLE, number `number` of this DDL, in that database."""
    if len(statement.columns) > COLUMNS_MAX:
        raise context.too_many(statement.table, f"{COLUMNS_MAX} columns")
    charset, collation = statement.options.charset, statement.options.detail.collate
    parent = database if charset is None else Database("", charset, own_collation(collation, charset))
    columns = tuple(
        build_column(column, position, parent) for position, column in enumerate(statement.columns, start=1)
    )
    table = TableInfo(
        name=statement.table,
        incarnation=context.incarnation(number),
        version=context.commit_ts,
        columns=columns,
        charset=parent.charset,
        comment=statement.options.comment or "",
        max_column_id=len(columns),
        collation=parent.collation,
    )
    twice = first_twice([lowered(column.name) for column in columns])
    if twice:
        raise context.error(statement.table, f"column {twice!r} is defined twice")
    indexes = [*statement.indexes, *inline_indexes(statement.columns)]
    indexes.sort(key=lambda index: index.foreign)
    names = {lowered(index.name) for index in indexes if index.name is not None and not index.foreign}
    for index in indexes:
        table = add_index(table, index, context, created=True, index_names=names)
    partition = statement.partition
    if partition is not None:
        table = msgspec.structs.replace(table, partition=complete_partition(partition, table))
    return table


def first_twice(names: list[str]) -> str:
    """Return the first name that occurs twice; "" if none does."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def complete_partition(partition: PartitionInfo, table: TableInfo) -> PartitionInfo:
    """`partition` with the primary key's columns for KEY ()."""
    if partition.method != "KEY" or partition.columns:
        return partition
    return msgspec.structs.replace(partition, columns=table.handle_key)


def add_index(
    table: TableInfo,
    index: IndexDef,
    context: DdlContext,
    *,
    created: bool = False,
    index_names: set[str] | None = None,
) -> TableInfo:
    """`table` with one more key; `created` with the table, `taken` names are not to be chosen.

    A primary key makes its columns NOT NULL and comes first.  A foreign key brings a key of its name along unless one
    begins with its columns; to ALTER an integer row key is none.  Raises SchemaError when the name is taken or a column
    is missing, except on a table that was inferred from rows."""
    names = {lowered(other.name) for other in table.indexes}
    columns = tuple(_own_name(table, name, context) for name in index.columns)
    if index.foreign:
        table = msgspec.structs.replace(table, max_fk_id=table.max_fk_id + 1)
        able = [other for other in table.indexes if created or other.id]
        if any(other.columns[: len(columns)] == columns for other in able):
            return table
        index = replace(index, name=index.name or f"fk_{table.max_fk_id}")
    if len(names) >= KEYS_MAX:
        raise context.too_many(table.name, f"{KEYS_MAX} keys")
    name = "PRIMARY" if index.primary else index.name or _free_name(columns, names | (index_names or set()))
    if lowered(name) in names:
        if table.inferred:
            return table
        raise context.error(table.name, f"key {name!r} exists already")
    integer = len(columns) == 1 and (column := table.column(columns[0])) is not None and column.type.code in INTEGERS
    row_key = created and index.primary and index.clustered is not False and integer
    index_id = 0 if row_key else table.max_index_id + 1
    clustered = (created and index.clustered is not False) if index.primary else None
    added = IndexInfo(index_id, name, columns, index.unique, index.primary, index.visible, clustered)
    changed = msgspec.structs.replace(
        table,
        indexes=(added, *table.indexes) if index.primary else (*table.indexes, added),
        max_index_id=max(table.max_index_id, index_id),
        max_column_id=table.max_column_id + columns.count(""),
    )
    return not_null(changed, columns) if index.primary else changed


def _own_name(table: TableInfo, name: str, context: DdlContext) -> str:
    if name == "":
        return name
    column = table.column(name)
    if column is None and not table.inferred:
        raise context.error(table.name, f"a key names the missing column {name!r}")
    return name if column is None else column.name


def _free_name(columns: tuple[str, ...], names: set[str]) -> str:
    base = (columns[0] if columns else "") or "expression_index"
    name, number = base, 2
    while lowered(name) in names or lowered(name) == "primary":
        name, number = f"{base}_{number}", number + 1
    return name


def not_null(table: TableInfo, names: Collection[str]) -> TableInfo:
    """`table` with these columns NOT NULL."""
    columns = tuple(
        msgspec.structs.replace(column, nullable=False) if column.nullable and column.name in names else column
        for column in table.columns
    )
    return msgspec.structs.replace(table, columns=columns)
