"""Stored definitions as the tables that the rest of the product speaks of.

    StoredTable ── table_info(..) ──► model.TableInfo     names, types, keys, partitions, defaults as text or bytes

    incarnation   "t45": the id of the table, which stays through RENAME and ALTER and is new after CREATE and TRUNCATE
    primary key   of an integer handle: an index of id 0, since TiDB keeps none; otherwise the index it is
    hidden        columns behind an expression of an index are left out; the index shows '' in their place
    defaults      text; bytes for BIT and binary strings; a TIMESTAMP literal is in UTC

Only public elements take part unless `every_state` is set: mounting reads rows with all that a definition names.

Source: TiDB pkg/meta/model; recorded definitions.
"""

from typing import Final

from tidegate.model.mysql import STRINGS, MysqlType
from tidegate.model.table import (
    ColumnInfo,
    ColumnType,
    IndexInfo,
    PartitionDef,
    PartitionInfo,
    TableInfo,
    TableName,
)
from tidegate.schema.stored.definition import PARTITION_METHODS, StoredColumn, StoredIndex, StoredPartition, StoredTable
from tidegate.schema.stored.flags import AUTO_INCREMENT, NOT_NULL, PRIMARY
from tidegate.schema.stored.layout import column_type
from tidegate.schema.stored.states import ElementState

_COUNTED: Final = frozenset({"HASH", "KEY"})


def table_info(table: StoredTable, schema: str, version: int, *, every_state: bool = False) -> TableInfo:
    """Return the definition of a table of database `schema` as it stands from `version` on."""
    columns = table.cols or []
    shown = [column for column in columns if not column.hidden and (every_state or column.state == ElementState.PUBLIC)]
    indexes = [
        _index(index, columns, clustered=table.is_common_handle if index.is_primary else None)
        for index in table.index_info or []
        if every_state or index.state == ElementState.PUBLIC
    ]
    handle = [column.name.original for column in columns if table.pk_is_handle and column.type.flag & PRIMARY]
    if handle:
        indexes.append(IndexInfo(0, "PRIMARY", (handle[0],), unique=True, primary=True, clustered=True))
    return TableInfo(
        name=TableName(schema, table.name.original),
        incarnation=f"t{table.id}",
        version=version,
        columns=tuple(map(_column, shown)),
        indexes=tuple(sorted(indexes, key=lambda index: not index.primary)),
        partition=_partition(table.partition),
        charset=table.charset,
        comment=table.comment,
        max_column_id=table.max_col_id,
        max_index_id=table.max_idx_id,
        max_fk_id=table.max_fk_id,
    )


def _column(column: StoredColumn) -> ColumnInfo:
    kind = column_type(column.type)
    return ColumnInfo(
        id=column.id,
        name=column.name.original,
        type=kind,
        nullable=not column.type.flag & NOT_NULL,
        default=_default(column.default, column.default_bit, kind),
        default_is_expr=column.default_is_expr or _is_now(column, kind),
        origin_default=_default(column.origin_default, column.origin_default_bit, kind),
        generated=column.generated_expr_string or None,
        stored=column.generated_stored,
        comment=column.comment,
        auto_increment=bool(column.type.flag & AUTO_INCREMENT),
    )


def _is_now(column: StoredColumn, kind: ColumnType) -> bool:
    moments = (MysqlType.TIMESTAMP, MysqlType.DATETIME, MysqlType.DATE)
    return kind.code in moments and str(column.default or "").upper().startswith("CURRENT_")


def _default(text: str | float | None, bits: bytes | None, kind: ColumnType) -> str | bytes | None:
    if kind.code is MysqlType.BIT and bits is not None:
        return bits
    if text is None:
        return None
    if kind.charset == "binary" and kind.code in STRINGS:
        return str(text).encode()
    return str(text)


def _index(index: StoredIndex, columns: list[StoredColumn], *, clustered: bool | None) -> IndexInfo:
    hidden = {column.name.lower for column in columns if column.hidden}
    names = tuple("" if part.name.lower in hidden else part.name.original for part in index.idx_cols)
    return IndexInfo(
        index.id,
        index.idx_name.original,
        names,
        index.is_unique,
        index.is_primary,
        not index.is_invisible,
        clustered,
    )


def _partition(partition: StoredPartition | None) -> PartitionInfo | None:
    if partition is None or not partition.enable or partition.type not in PARTITION_METHODS:
        return None
    method = PARTITION_METHODS[partition.type]
    definitions = tuple(
        PartitionDef(
            definition.name.original,
            tuple(definition.less_than or ()),
            tuple(tuple(values) for values in definition.in_values or ()),
        )
        for definition in partition.definitions or ()
    )
    return PartitionInfo(
        method,
        partition.expr,
        tuple(name.original for name in partition.columns or ()),
        definitions,
        len(definitions) if method in _COUNTED else 0,
    )
