"""Partitionings as TiDB stores them, from what a statement says.

    PARTITION BY RANGE (year(d)) (PARTITION p0 VALUES LESS THAN (2000), ..)
        type 1, expr "YEAR(`d`)", definitions p0 ["2000"], ..         num = the number of definitions

Source: TiDB pkg/ddl/partition.go (buildTablePartitionInfo, checkRangePartitionValue, checkPartitionKeysConstraint).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from tidegate.model.errors import SqlRefused, TidegateError
from tidegate.model.name import all_digits
from tidegate.model.table import PartitionDef, PartitionInfo
from tidegate.schema.expression import compile_expression, integer_of
from tidegate.schema.stored.definition import PARTITION_METHODS, Name, StoredPartition, StoredPartitionDef, StoredTable
from tidegate.schema.stored.flags import PRIMARY
from tidegate_upstream.change.draft import column_of
from tidegate_upstream.change.restore import restore, restore_bound

_TYPES: Final = {method: number for number, method in PARTITION_METHODS.items()}
MOST_PARTITIONS: Final = 8192
"""MySQL's and TiDB's limit."""


def make_partition(info: PartitionInfo, table: StoredTable) -> StoredPartition:
    """Return the partitioning of a table, partitions without ids.

    SqlRefused 1054 for an unknown column, 1492 without partitions, 1503, 1517 and 1493 of the checks below."""
    columns = list(info.columns)
    empty = info.method == "KEY" and not columns
    if empty:
        columns = [column.name.original for column in table.cols or () if column.type.flag & PRIMARY]
    expr = restore(info.expr, upper=True, introducers=False) if info.expr else None
    for name in (*columns, *(expr.columns if expr else ())):
        if column_of(table, name) is None:
            raise SqlRefused(1054, f"Unknown column '{name}' in 'partition function'", "42S22")
    if not info.definitions:
        raise SqlRefused(1492, f"For {info.method} partitions each partition must be defined", "HY000")
    names = [column.name for name in columns if (column := column_of(table, name)) is not None]
    made = StoredPartition(
        _TYPES[info.method],
        "" if expr is None else expr.text,
        names or None,
        is_empty_columns=empty,
        definitions=make_definitions(info.definitions, by_columns=expr is None),
        num=len(info.definitions),
    )
    check_names(made.definitions or [])
    check_order(made, made.definitions or [])
    check_keys(table, made)
    return made


def make_definitions(definitions: Sequence[PartitionDef], *, by_columns: bool) -> list[StoredPartitionDef]:
    """Partitions without ids; bounds of an expression's values are calculated."""
    made = []
    for one in definitions:
        less_than = [_bound(value, by_columns=by_columns) for value in one.less_than]
        in_values = [[_bound(value, by_columns=by_columns) for value in values] for values in one.in_values]
        made.append(StoredPartitionDef(0, Name.of(one.name), less_than or None, in_values or None))
    return made


def _bound(value: str, *, by_columns: bool) -> str:
    if value in ("MAXVALUE", "DEFAULT", "NULL") or by_columns:
        return restore_bound(value) if value not in ("MAXVALUE", "DEFAULT", "NULL") else value
    try:
        number = integer_of(compile_expression(value, ())({}))
    except TidegateError:
        number = None
    return restore_bound(value) if number is None else str(number)


def check_names(definitions: Iterable[StoredPartitionDef]) -> None:
    """SqlRefused 1517 for a name that comes twice, 1499 for too many partitions."""
    names = [one.name for one in definitions]
    if len(names) > MOST_PARTITIONS:
        raise SqlRefused(1499, "Too many partitions (including subpartitions) were defined", "HY000")
    seen: set[str] = set()
    for name in names:
        if name.lower in seen:
            raise SqlRefused(1517, f"Duplicate partition name {name.original}", "HY000")
        seen.add(name.lower)


def check_order(partition: StoredPartition, definitions: Sequence[StoredPartitionDef]) -> None:
    """SqlRefused 1493 where ranges of numbers do not grow, 1481 where MAXVALUE is not last."""
    if partition.type != 1:
        return
    least: int | None = None
    for place, one in enumerate(definitions):
        bound = (one.less_than or [""])[0]
        if bound == "MAXVALUE" and len(one.less_than or ()) == 1 and place + 1 < len(definitions):
            raise SqlRefused(1481, "MAXVALUE can only be used in last partition definition", "HY000")
        if partition.columns or not all_digits(bound.removeprefix("-")):
            continue
        if least is not None and int(bound) <= least:
            message = "VALUES LESS THAN value must be strictly increasing for each partition"
            raise SqlRefused(1493, message, "HY000")
        least = int(bound)


def check_keys(table: StoredTable, partition: StoredPartition) -> None:
    """SqlRefused 1503 for a unique key that lacks a column of the partitioning, which local indexes could not keep."""
    used = {name.lower for name in partition.columns or ()}
    if partition.expr:
        used |= set(restore(partition.expr).columns)
    keys = [
        ({part.name.lower for part in index.idx_cols}, "PRIMARY KEY" if index.is_primary else "UNIQUE INDEX")
        for index in table.index_info or ()
        if index.is_unique and not index.is_global
    ]
    if table.pk_is_handle:
        handle = {column.name.lower for column in table.cols or () if column.type.flag & PRIMARY}
        keys.append((handle, "PRIMARY KEY"))
    for columns, what in keys:
        if not used <= columns:
            message = f"A {what} must include all columns in the table's partitioning function"
            raise SqlRefused(1503, message, "HY000")
