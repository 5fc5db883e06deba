"""What a new row must obey beyond its columns, some of it only while a DDL runs.

    CHECK (a > 0)               3819; NULL is allowed              from write-only on
    MODIFY COLUMN to a type     what an INSERT into the new type   while stored rows are looked at (`changing_type`)
    with the same bytes         would say, strict or not
    EXCHANGE PARTITION          1737: the row does not belong to   while the table stands in for the partition
                                the partition                      (`exchange_partition_info`)

Source: TiDB pkg/table/tables (checkDataForModifyColumn, CheckRowConstraint, CheckForExchangePartition).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tidegate.expr.cast.assign import assign
from tidegate.expr.cast.source import recast
from tidegate.expr.context import Context
from tidegate.kv.column_value import KvValue
from tidegate.model.errors import SqlRefused
from tidegate.tidb.sql.rows.error import violated
from tidegate.tidb.sql.rows.row import values_of
from tidegate.tidb.sql.rows.shape import TableShape

__all__ = ["Fits", "check_row", "fits_partition"]

Fits = Callable[[Mapping[int, KvValue]], bool]
"""Whether a row belongs to the partition that its table is exchanged with."""


def check_row(
    shape: TableShape, columns: Mapping[int, KvValue], context: Context, row_number: int, fits: Fits | None
) -> None:
    """SqlRefused for a row that may not be written."""
    for column in shape.public:
        if column.narrower is not None:
            running = recast(columns[column.id], column.target.type, column.narrower.type, context.zone)
            strict = replace(context, sql_mode=context.sql_mode | {"STRICT_TRANS_TABLES"})
            assign(running, column.narrower, strict, row_number)
    if shape.checks:
        values = values_of(shape, columns, context)
        for name, expression in shape.checks:
            if expression.run(values, context) == 0:
                raise violated(name)
    if fits is not None and not fits(columns):
        raise SqlRefused(1737, "Found a row that does not match the partition")


def fits_partition(table: TableShape, partitioned: TableShape, partition_id: int) -> Fits:
    """Return whether rows of `table` belong to that partition of a table with the same columns."""
    pairs = [(own.id, other.id) for own, other in zip(table.columns, partitioned.columns, strict=True)]
    locate = partitioned.placements[0].locate
    return lambda columns: locate({other: columns[own] for own, other in pairs}) == partition_id
