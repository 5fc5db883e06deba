"""What a table says when it refuses a row, in MySQL's words.

1062  Duplicate entry '1-a' for key 't.PRIMARY'
1526  Table has no partition for value 50            the partition expression's value, or `from column_list`
3819  Check constraint 'c' is violated.
1054  Unknown column 'x' in 'field list'
"""

from collections.abc import Iterable, Mapping

from tidegate.expr.cast.text import plain_text
from tidegate.expr.context import Context
from tidegate.expr.value.kinds import from_column
from tidegate.kv.column_value import KvValue
from tidegate.kv.layout import IndexPart
from tidegate.kv.row.row import cut_part
from tidegate.model.errors import SqlRefused
from tidegate.tidb.sql.rows.row import RowImage
from tidegate.tidb.sql.rows.shape import ShapeIndex, TableShape

__all__ = ["duplicate", "no_partition", "unknown_column", "violated"]


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
    name = partition.expr.strip("`").lower() if partition else ""
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
