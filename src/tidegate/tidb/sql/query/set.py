"""UNION, EXCEPT and INTERSECT: two queries as one, each column in the type that both share.

SELECT 1 UNION SELECT 'a'      text: '1', 'a'      the names are the first query's; without ALL each row comes once
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidegate.expr.context import Context
from tidegate.expr.operator.logic import as_shared
from tidegate.expr.relation import ResultColumn, Row
from tidegate.expr.scope import Scope, Slot
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused
from tidegate.tidb.sql.query.order import Bracketed, Rows, limits_of, order_of_columns, row_key, slot_reader, unlike
from tidegate.tidb.sql.query.source import Compile, Query

__all__ = ["SETS", "set_query"]

_UNEQUAL: Final = 1222
SETS: Final = frozenset({"Union", "Except", "Intersect"})
"""Classes of nodes."""


@dataclass(frozen=True)
class _Set:
    """Two queries as one."""

    columns: tuple[ResultColumn, ...]
    left: Query
    right: Query
    kind: str
    distinct: bool
    convert: tuple[Sequence[Any], Sequence[Any]]

    def rows(self, outer: Row, context: Context) -> Rows:
        """Return the rows for one outer row."""
        left = _converted(self.left.rows(outer, context), self.convert[0], context)
        right = _converted(self.right.rows(outer, context), self.convert[1], context)
        if self.kind == "Union":
            both = (row for rows in (left, right) for row in rows)
            return unlike(both, self.columns) if self.distinct else both
        keys = {row_key(row, self.columns) for row in right}
        wanted = self.kind == "Intersect"
        kept = (row for row in left if (row_key(row, self.columns) in keys) is wanted)
        return unlike(kept, self.columns) if self.distinct else kept


def _converted(rows: Rows, runs: Sequence[Any], context: Context) -> Rows:
    return (tuple(run(row, context) for run in runs) for row in rows)


def set_query(node: Node, env: Scope, compile_query: Compile) -> Query:
    """Return the query that a set operation stands for; SqlRefused 1222 when its sides do not fit."""
    left, right = compile_query(node.this, env), compile_query(node.expression, env)
    if len(left.columns) != len(right.columns):
        raise SqlRefused(_UNEQUAL, "The used SELECT statements have a different number of columns", "21000")
    columns: list[ResultColumn] = []
    converts: tuple[list[Any], list[Any]] = ([], [])
    for at, (first, second) in enumerate(zip(left.columns, right.columns, strict=True)):
        sides = [slot_reader(Slot(at, side.name, side.type, side.collation)) for side in (first, second)]
        form, runs = as_shared(sides, env)
        columns.append(ResultColumn(first.name, form.type, form.collation))
        for convert, run in zip(converts, runs, strict=True):
            convert.append(run)
    made = _Set(tuple(columns), left, right, type(node).__name__, bool(node.args.get("distinct")), converts)
    return Bracketed(made.columns, made, *limits_of(node, env), order_of_columns(node, made.columns, env))
