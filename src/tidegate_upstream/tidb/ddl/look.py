"""Looking whether stored rows obey what a DDL wants of them.

    NOT NULL                1138   Invalid use of NULL value           a narrower type     what an INSERT would say
    CHECK                   3819   Check constraint .. is violated     foreign key         1452   a parent is missing
    EXCHANGE PARTITION      1737   a row does not match the partition

Nodes enforce the same for new rows by then, so a row that was looked at stays good.

Source: TiDB pkg/ddl (checkForNullValue, verifyRemainRecordsForCheckConstraint, checkForeignKeyConstrain,
checkExchangePartitionRecordValidation).
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import UNSET

from tidegate.expr.cast.assign import Target, assign
from tidegate.expr.cast.source import recast
from tidegate.expr.compiler import compile_text
from tidegate.expr.relation import RelationColumn
from tidegate.expr.scope import Scope
from tidegate.model.errors import SqlRefused
from tidegate.mysql.context import Context
from tidegate.schema.stored.layout import column_type
from tidegate.schema.stored.meta import Meta
from tidegate_upstream.change.outcome import Task
from tidegate_upstream.f1 import Work
from tidegate_upstream.tidb.sql.rows.foreign import key_columns, key_values, matching
from tidegate_upstream.tidb.sql.rows.read import TableReader
from tidegate_upstream.tidb.sql.rows.row import RowImage, values_of
from tidegate_upstream.tidb.sql.rows.shape import TableShape
from tidegate_upstream.tidb.transaction import Transaction

Look: TypeAlias = Callable[[RowImage], None]
"""Raises SqlRefused for a row that is in the way."""


def look_at(transaction: Transaction, task: Task, shape: TableShape, context: Context) -> Look | None:
    """Return what every row is asked; None when nothing is."""
    looks = [_not_null(shape, column_id) for column_id in task.not_null]
    looks += [_fits(shape, column_id, context) for column_id in task.fit]
    looks += [_checked(shape, number, context) for number in task.checks]
    looks += [_has_parent(transaction, task.schema_id, shape, number, context) for number in task.foreign_keys]
    if task.work is Work.VALIDATE and task.targets:
        looks.append(_in_partition(transaction, task))
    if not looks:
        return None

    def look(image: RowImage) -> None:
        for one in looks:
            one(image)

    return look


def _not_null(shape: TableShape, column_id: int) -> Look:
    name = shape.by_id[column_id].target.name

    def look(image: RowImage) -> None:
        if image.columns[column_id] is None:
            raise SqlRefused(1138, f"Invalid use of NULL value: column '{name}' of table '{shape.name}'", "22004")

    return look


def _fits(shape: TableShape, column_id: int, context: Context) -> Look:
    """The value fits the type that the column is to have."""
    column = shape.by_id[column_id]
    changing = column.stored.changing_type
    assert changing is not UNSET, column.target.name
    target = Target(column.target.name, column_type(changing), changing.collate)

    def look(image: RowImage) -> None:
        assign(recast(image.columns[column_id], column.target.type, target.type, context.zone), target, context)

    return look


def _checked(shape: TableShape, number: int, context: Context) -> Look:
    check = next(one for one in shape.stored.constraint_info or () if one.id == number)
    named = [RelationColumn(one.target.name, one.target.type, collation=one.target.collation) for one in shape.columns]
    compiled = compile_text(check.expr_string, Scope.of_columns(named, shape.name))

    def look(image: RowImage) -> None:
        if compiled.run(values_of(shape, image.columns, context), context) == 0:
            raise SqlRefused(3819, f"Check constraint '{check.constraint_name.original}' is violated.", "HY000")

    return look


def _has_parent(transaction: Transaction, schema_id: int, shape: TableShape, number: int, context: Context) -> Look:
    """The row's values are those of a row of the table that the foreign key names, unless one of them is NULL."""
    key = next(one for one in shape.stored.fk_info or () if one.id == number)
    meta = Meta(transaction)
    schemas = [one.id for one in meta.schemas() if one.name.lower == key.ref_schema.lower] or [schema_id]
    parent = next((one for one in meta.tables(schemas[0]) if one.name.lower == key.ref_table.lower), None)
    reader = None if parent is None else TableReader(transaction, TableShape(parent), context)
    child = TableReader(transaction, shape, context)
    columns = key_columns(child, key.cols)

    def look(image: RowImage) -> None:
        values = key_values(child, columns, image)
        if None in values:
            return
        if reader is None or next(matching(reader, key.ref_cols, values), None) is None:
            raise SqlRefused(
                1452,
                "Cannot add or update a child row: a foreign key constraint fails "
                f"(`{shape.name}`, CONSTRAINT `{key.fk_name.original}`)",
                "23000",
            )

    return look


def _in_partition(transaction: Transaction, task: Task) -> Look:
    """The row's place in the partitioned table is the partition that the table is exchanged with."""
    meta = Meta(transaction)
    tables = (meta.table(schema.id, task.targets[0]) for schema in meta.schemas())
    partitioned = next((one for one in tables if one is not None), None)
    assert partitioned is not None, task
    locate = TableShape(partitioned).placements[0].locate

    def look(image: RowImage) -> None:
        if locate(image.columns) != task.partitions[0]:
            raise SqlRefused(1737, "Found a row that does not match the partition", "HY000")

    return look
