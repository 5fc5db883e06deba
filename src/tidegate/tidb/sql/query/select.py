"""SELECT: a node of the parser and relations in, an answer out; and the subqueries inside expressions.

    select(parse("SELECT a+1 FROM t")[0].node, relations, context)  ->  ResultSet(columns, rows)

    (SELECT max(a) FROM t)           one value: no row is NULL, several are error 1242
    EXISTS (SELECT ..)               1 or 0
    (a, b) IN (SELECT c, d ..)       NULL when no row is equal but one might be

A subquery that names no outer column runs once for a statement; one that does runs for every row.  The rest is done in
clauses.py, join.py (FROM, WHERE) and group.py (GROUP BY).  FOR UPDATE is accepted and does nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import tidegate.expr.compiler  # noqa: F401 - fills the table of those who compile
from tidegate.expr.compiled import Compiled
from tidegate.expr.context import DEFAULT_COLLATION, Context
from tidegate.expr.form import Build, builder
from tidegate.expr.operator.compare import operands
from tidegate.expr.relation import Relations, ResultSet, Row
from tidegate.expr.result_type import BOOL, agreed
from tidegate.expr.scope import Scope, Slot
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.value.compare import compare
from tidegate.expr.value.kinds import SqlValue
from tidegate.model.errors import SqlRefused
from tidegate.tidb.sql.query.clauses import compile_query
from tidegate.tidb.sql.query.join import Query

_ONE_ROW: Final = 1242
_COLUMNS: Final = 1241


@dataclass
class _Inner:
    """A subquery and the outer columns that it uses."""

    query: Query
    reached: list[Slot]
    width: int
    """Slots that the outer row has for it."""
    held: tuple[Context, list[tuple[SqlValue, ...]]] | None = None

    def rows(self, row: Row, context: Context) -> list[tuple[SqlValue, ...]]:
        """Return the subquery's rows for an outer row."""
        if self.reached:
            return list(self.query.rows((*row, *[None] * (self.width - len(row))), context))
        if self.held is None or self.held[0] is not context:
            self.held = (context, list(self.query.rows((None,) * self.width, context)))
        return self.held[1]

    def readers(self) -> tuple[Compiled, ...]:
        """Return the columns of its rows, as operands."""
        return tuple(
            Compiled(lambda row, _context, at=at: row[at], column.type, column.collation, 2)  # type: ignore[misc]
            for at, column in enumerate(self.query.columns)
        )


def _inner(node: Node, scope: Scope) -> _Inner:
    reached: list[Slot] = []
    env = Scope(
        outer=scope,
        relations=scope.relations,
        database=scope.database,
        collation=scope.collation,
        context=scope.context,
        reached=reached,
    )
    return _Inner(compile_query(node, env), reached, scope.width)


def _scalar(node: Node, scope: Scope) -> Compiled:
    if node.arg_key == "query" and type(node.parent).__name__ == "In":
        return _member(node, scope)
    inner = _inner(node, scope)
    if len(inner.query.columns) != 1:
        raise SqlRefused(_COLUMNS, "Operand should contain 1 column(s)", "21000")
    column = inner.query.columns[0]

    def run(row: Row, context: Context) -> SqlValue:
        rows = inner.rows(row, context)
        if len(rows) > 1:
            raise SqlRefused(_ONE_ROW, "Subquery returns more than 1 row", "21000")
        return rows[0][0] if rows else None

    return Compiled(run, column.type, column.collation, 2)


def _exists(node: Node, scope: Scope) -> Compiled:
    inner = _inner(node.this, scope)
    return Compiled(lambda row, context: int(bool(inner.rows(row, context))), BOOL)


def _member(node: Node, scope: Scope) -> Compiled:
    """(a, b) IN (SELECT ..); the node's parent has the left side."""
    inner, values = _inner(node, scope), operands(node.parent.this, scope)
    columns = inner.readers()
    if len(columns) != len(values):
        raise SqlRefused(_COLUMNS, f"Operand should contain {len(values)} column(s)", "21000")
    pairs = [(value, column, agreed((value, column), scope)[0]) for value, column in zip(values, columns, strict=True)]

    def run(row: Row, context: Context) -> SqlValue:
        unknown = False
        for found in inner.rows(row, context):
            orders = [
                compare(value.run(row, context), column.run(found, context), (value.type, column.type), name, context)
                for value, column, name in pairs
            ]
            if not any(orders) and None not in orders:
                return 1
            unknown = unknown or (None in orders and not any(orders))
        return None if unknown else 0

    return Compiled(run, BOOL)


_SUBQUERIES: Final[Mapping[str, Build]] = {
    "Subquery": _scalar,
    "Select": _scalar,
    "Exists": _exists,
}
"""By class of the node."""
builder(_SUBQUERIES)


def scope_of(relations: Relations, context: Context) -> Scope:
    """Return the scope in which a statement's queries are compiled: no columns yet."""
    collation = context.variables.get("collation_connection", DEFAULT_COLLATION)
    return Scope(relations=relations, database=context.database, context=context, collation=str(collation))


def select(node: Node, relations: Relations, context: Context) -> ResultSet:
    """Return the answer to a query; SqlRefused for what TiDB refuses."""
    query = compile_query(node, scope_of(relations, context))
    rows = list(query.rows((), context))
    return ResultSet(query.columns, rows)
