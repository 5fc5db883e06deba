"""Rows in memory, whole: what a statement gives and what TiDB adds to it in every schema state.

    column                  INSERT                          UPDATE
    public                  given, or its default           given, or as it was
    generated               computed                        computed
    write-only, reorg       origin default                  as it was, or origin default
    of a type on the move   cast of the other column        cast anew when the other column changed
    delete-only             not written                     not written any more (kv/row/row.py leaves it out)

    stored row ──image_of──► RowImage ──complete(given)──► RowImage ──table_mutation──► keys and values

A RowImage has a value for every column of the definition, so that index entries of any state can be made of it.

Source: TiDB pkg/table/tables/tables.go (AddRecord, UpdateRecord); reference of schema states in f1.py.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidegate.expr.cast.assign import assign, convert, not_null
from tidegate.expr.cast.source import fitted, recast
from tidegate.expr.cast.text import plain_text
from tidegate.kv.handle import Handle
from tidegate.kv.row.row import Row, cut_part
from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType
from tidegate.mysql.column_value import KvValue, write_value
from tidegate.mysql.context import Context
from tidegate.mysql.datum import DecimalDatum, JsonDatum
from tidegate.mysql.layout import IndexPart
from tidegate.mysql.value.kinds import SqlValue, from_column
from tidegate_upstream.tidb.sql.rows.shape import ShapeColumn, ShapeIndex, TableShape


class RowImage(NamedTuple):
    """A row: where it lies, and a value for every column by id."""

    handle: Handle
    physical_id: int
    columns: Mapping[int, KvValue]


def same(kind: ColumnType, one: KvValue, other: KvValue) -> bool:
    """Return whether two stored values are the same, letter for letter: an UPDATE between them changes nothing."""
    if one is None or other is None:
        return one is other
    if isinstance(one, JsonDatum):
        return write_value(kind, one) == write_value(kind, other)
    return _plain(one) == _plain(other)


def _plain(value: KvValue) -> object:
    return value.value if isinstance(value, DecimalDatum) else value


def values_of(shape: TableShape, columns: Mapping[int, KvValue], context: Context) -> list[SqlValue]:
    """Return the running values of all columns by offset; NULL for what is not there yet."""
    return [from_column(column.target.type, columns.get(column.id), context.zone) for column in shape.columns]


def image_of(shape: TableShape, row: Row, context: Context) -> RowImage:
    """Return the row that is stored, with what its columns hold that it does not have."""
    columns: dict[int, KvValue] = {}
    for column in shape.columns:
        if column.id in row.columns:
            columns[column.id] = row.columns[column.id]
        elif column.cast_of is None and not column.generated:
            columns[column.id] = column.missing
    for column in shape.columns:
        if column.id not in columns and column.cast_of is not None:
            columns[column.id] = _cast(shape, column, columns[column.cast_of], context, None)
    _generate(shape, columns, context, None, lenient=True)
    return RowImage(row.handle, row.table_id, columns)


def complete(
    shape: TableShape,
    given: Mapping[int, KvValue],
    old: RowImage | None,
    context: Context,
    row_number: int = 1,
    *,
    lenient: bool = False,
) -> dict[int, KvValue]:
    """Return all columns of a row whose public columns are given; SqlRefused where a cast or a generated value is
    refused, and for a NULL that the other column of a change of types does not take, even with IGNORE."""
    columns = {column.id: given[column.id] for column in shape.public if not column.generated}
    for column in shape.columns:
        if column.public or column.generated:
            continue
        if column.cast_of is None:
            columns[column.id] = column.missing if old is None else old.columns[column.id]
        elif old is not None and _unchanged(shape, column.cast_of, columns, old):
            columns[column.id] = old.columns[column.id]
        else:
            columns[column.id] = _cast(shape, column, columns[column.cast_of], context, None if lenient else row_number)
            if columns[column.id] is None and column.target.not_null:
                not_null(shape.by_id[column.cast_of].target, context, lenient=False)
    _generate(shape, columns, context, row_number, lenient=lenient)
    return columns


def _unchanged(shape: TableShape, column_id: int, columns: Mapping[int, KvValue], old: RowImage) -> bool:
    return same(shape.by_id[column_id].target.type, columns[column_id], old.columns[column_id])


def _cast(shape: TableShape, column: ShapeColumn, value: KvValue, context: Context, row_number: int | None) -> KvValue:
    """The value in the other column's type; without a row number what cannot be cast is bent, not refused."""
    assert column.cast_of is not None
    running = recast(value, shape.by_id[column.cast_of].target.type, column.target.type, context.zone)
    if row_number is None:
        return convert(running, column.target, context).value
    return assign(running, column.target, context, row_number)


def _generate(
    shape: TableShape, columns: dict[int, KvValue], context: Context, row_number: int | None, *, lenient: bool
) -> None:
    """Computes generated columns; those that a stored row holds stay as they are (`row_number` None)."""
    if not shape.generated:
        return
    values = values_of(shape, columns, context)
    for column, expression in shape.generated:
        if row_number is None and column.id in columns:
            continue
        value = fitted(expression.run(values, context), expression.type, column.target.type)
        columns[column.id] = (
            convert(value, column.target, context).value
            if row_number is None
            else assign(value, column.target, context, row_number, lenient=lenient)
        )
        values[column.stored.offset] = from_column(column.target.type, columns[column.id], context.zone)


# --- what a table says when it refuses a row, in MySQL's words ---


def duplicate(shape: TableShape, within: ShapeIndex | None, image: RowImage, context: Context) -> SqlRefused:
    """1062: another row has the key. `within` None means the clustered primary key."""
    layout = shape.layout
    if within is not None:
        parts, name = within.layout.parts, within.name
    elif layout.int_handle is not None:
        parts, name = (IndexPart(layout.int_handle),), "PRIMARY"
    else:
        parts, name = layout.common_handle.parts if layout.common_handle else (), "PRIMARY"
    entry = "-".join(_texts(shape, parts, image.columns, context)) or str(getattr(image.handle, "value", ""))
    return SqlRefused(1062, f"Duplicate entry '{entry}' for key '{shape.name}.{name}'", "23000")


def _texts(
    shape: TableShape, parts: Iterable[IndexPart], columns: Mapping[int, KvValue], context: Context
) -> list[str]:
    found = []
    for part in parts:
        layout, column = shape.layout.by_id[part.column_id], shape.by_id[part.column_id]
        value = from_column(column.target.type, cut_part(layout, part, columns[part.column_id]), context.zone)
        text = plain_text(value)
        found.append(text if isinstance(text, str) else text.decode("utf-8", "backslashreplace"))
    return found


def no_partition(shape: TableShape, columns: Mapping[int, KvValue], context: Context) -> SqlRefused:
    """1526: no partition takes the row."""
    partition = shape.stored.partition
    name = lowered(partition.expr.strip("`")) if partition else ""
    column = shape.by_name.get(name)
    shown = "from column_list"
    if column is not None:
        text = plain_text(from_column(column.target.type, columns[column.id], context.zone))
        shown = "NULL" if columns[column.id] is None else str(text)
    return SqlRefused(1526, f"Table has no partition for value {shown}")


def violated(name: str) -> SqlRefused:
    """3819: a CHECK constraint does not allow the row."""
    return SqlRefused(3819, f"Check constraint '{name}' is violated.")


def unknown_column(name: str, clause: str) -> SqlRefused:
    """1054: the table does not show such a column."""
    return SqlRefused(1054, f"Unknown column '{name}' in '{clause}'", "42S22")
