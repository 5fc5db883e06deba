"""SET a = .., b = ..: what INSERT, ON DUPLICATE KEY UPDATE and UPDATE assign.

a = a + 1, b = a      from left to right: b gets the new a, converted as the column converts it
a = DEFAULT           the column's default          a = DEFAULT(b)    another's
g = 5                 3105 for a generated column, which takes DEFAULT alone
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from tidegate.expr.cast.assign import convert
from tidegate.expr.cast.source import fitted
from tidegate.expr.compiled import Compiled
from tidegate.expr.compiler import compile_scalar
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.mysql.context import Context
from tidegate.mysql.value.kinds import SqlValue, from_column
from tidegate_upstream.tidb.sql.rows.access import DEFAULT, Given, TableAccess
from tidegate_upstream.tidb.sql.rows.row import unknown_column
from tidegate_upstream.tidb.sql.rows.shape import ShapeColumn

_CLAUSE: Final = "field list"


@dataclass(frozen=True, slots=True)
class Assignment:
    """A column and what it gets; None is DEFAULT."""

    column: ShapeColumn
    value: Compiled | None
    default_of: ShapeColumn | None = None
    """The column of DEFAULT(column)."""


def named_column(access: TableAccess, name: str) -> ShapeColumn:
    """Return the public column of that name; SqlRefused 1054."""
    found = access.shape.by_name.get(lowered(name))
    if found is None or found.stored.hidden:
        raise unknown_column(name, _CLAUSE)
    return found


def assignment(access: TableAccess, column: ShapeColumn, node: Node, scope: Scope) -> Assignment:
    """Return what a column gets of an expression; SqlRefused 3105 for a generated column."""
    if isinstance(node, exp.Var) and node.name.upper() == "DEFAULT":
        return Assignment(column, None)
    if column.generated:
        raise SqlRefused(
            3105,
            f"The value specified for generated column '{column.target.name}' in table '{access.name}' is not allowed.",
        )
    if isinstance(node, exp.Anonymous) and node.this == "DEFAULT" and len(node.expressions) == 1:
        return Assignment(column, None, named_column(access, node.expressions[0].name))
    return Assignment(column, compile_scalar(node, scope))


def assignments_of(nodes: Iterable[Node], access: TableAccess, scope: Scope) -> list[Assignment]:
    """Return the assignments of SET."""
    return [
        assignment(access, named_column(access, node.this.name), node.expression, scope.at(_CLAUSE)) for node in nodes
    ]


def assign_all(
    assignments: Iterable[Assignment], access: TableAccess, row: list[SqlValue], context: Context, base: int = 0
) -> dict[str, Given]:
    """Return the values by column; `row` shows those already assigned to the later ones, from slot `base` on."""
    slots = {column.id: base + at for at, column in enumerate(access.shape.public)}
    values: dict[str, Given] = {}
    for item in assignments:
        target, name = item.column.target, item.column.stored.name.lower
        if item.value is None:
            kept = None if item.column.generated else access.default_of(item.default_of or item.column)
            shown = from_column((item.default_of or item.column).target.type, kept, context.zone)
            values[name] = DEFAULT if item.default_of is None else shown
        else:
            value = fitted(item.value.run(row, context), item.value.type, target.type)
            values[name] = value
            shown = from_column(target.type, convert(value, target, context).value, context.zone)
        row[slots[item.column.id]] = shown
    return values
