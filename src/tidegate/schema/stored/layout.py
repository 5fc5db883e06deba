"""Stored definitions as byte layouts: what kv/ needs to read and write the keys and rows of a table.

    StoredTable ── table_layout(table) ──────────────► TableLayout under the table's id
                └─ table_layout(table, partition) ───► the same under a partition's id: its rows and local indexes

All columns and indexes take part, whatever their state: a running DDL writes rows that hold columns nobody sees yet.

Source: TiDB pkg/meta/model, pkg/table/tables.
"""

from typing import Final

from tidegate.expr.cast.assign import Target
from tidegate.model.errors import SchemaError
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType
from tidegate.mysql.layout import ColumnLayout, IndexLayout, IndexPart, TableLayout
from tidegate.schema.stored.definition import StoredColumn, StoredIndex, StoredTable, StoredType
from tidegate.schema.stored.flags import NOT_NULL, PREVENT_NULL, PRIMARY, UNSIGNED, ZEROFILL
from tidegate.schema.stored.states import ElementState

_CODES: Final = {int(code): code for code in MysqlType}
_UNWRITTEN: Final = frozenset({ElementState.NONE, ElementState.DELETE_ONLY, ElementState.DELETE_REORG})


def column_type(stored: StoredType) -> ColumnType:
    """Return the type of a stored column; SchemaError for a code that MySQL does not have."""
    code = _CODES.get(stored.tp)
    if code is None:
        raise SchemaError(f"type code {stored.tp} is none of MySQL")
    return ColumnType(
        code,
        stored.flen,
        stored.decimal,
        unsigned=bool(stored.flag & UNSIGNED),
        zerofill=bool(stored.flag & ZEROFILL),
        charset=stored.charset,
        elems=None if stored.elems is None else tuple(stored.elems),
    )


def target_of(column: StoredColumn) -> Target:
    """Return the target that a stored column is."""
    flags = column.type.flag & (NOT_NULL | PREVENT_NULL)
    return Target(column.name.original, column_type(column.type), column.type.collate, bool(flags))


def table_layout(table: StoredTable, physical_id: int | None = None, *, new_collation: bool = True) -> TableLayout:
    """Return the layout of a table, or of its partition with that id; SchemaError for a definition that contradicts
    itself."""
    columns = table.cols or []
    int_handle, common_handle = None, None
    if table.pk_is_handle:
        int_handle = next((column.id for column in columns if column.type.flag & PRIMARY), None)
    elif table.is_common_handle:
        primary = next((index for index in table.index_info or [] if index.is_primary), None)
        common_handle = None if primary is None else _index(table, primary)
    if (table.pk_is_handle and int_handle is None) or (table.is_common_handle and common_handle is None):
        raise SchemaError(f"table {table.name.original} (id {table.id}) has no column for its handle")
    return TableLayout(
        id=table.id if physical_id is None else physical_id,
        columns=tuple(_column(column) for column in columns),
        indexes=tuple(_index(table, index) for index in table.index_info or []),
        int_handle=int_handle,
        common_handle=common_handle,
        common_handle_version=table.common_handle_version,
        new_collation=new_collation,
    )


def _column(column: StoredColumn) -> ColumnLayout:
    defaults = (column.default, column.default_bit, column.origin_default, column.origin_default_bit)
    return ColumnLayout(
        id=column.id,
        type=column_type(column.type),
        collation=column.type.collate,
        primary=bool(column.type.flag & PRIMARY),
        virtual=bool(column.generated_expr_string) and not column.generated_stored,
        keeps_null=any(default is not None for default in defaults),
        writable=column.state not in _UNWRITTEN,
    )


def _index(table: StoredTable, index: StoredIndex) -> IndexLayout:
    columns = table.cols or []
    if not all(0 <= part.offset < len(columns) for part in index.idx_cols):
        raise SchemaError(f"index {index.idx_name.original} of table {table.name.original} names a missing column")
    parts = tuple(IndexPart(columns[part.offset].id, part.length) for part in index.idx_cols)
    return IndexLayout(index.id, parts, index.is_unique, index.is_global)
