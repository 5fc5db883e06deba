"""WITH: queries that have a name.

WITH a AS (SELECT ..), b(x) AS (SELECT .. FROM a)        run once for each statement
WITH RECURSIVE n AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9)
    the second part reads what the round before gave, until a round gives nothing new
"""

from dataclasses import dataclass, replace
from typing import Final

from tidegate.expr.context import Context
from tidegate.expr.relation import RelationColumn
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.value.compare import sort_key_of
from tidegate.expr.value.kinds import SqlValue
from tidegate.model.errors import SqlRefused
from tidegate.tidb.sql.query.order import Rows
from tidegate.tidb.sql.query.source import Compile, Equal, Query, columns_of, named

__all__ = ["with_ctes"]

_MAX_RECURSION: Final = 3636
MAX_ROUNDS: Final = 1000
"""cte_max_recursion_depth."""


@dataclass
class _Cte:
    """A named query: run once for each statement."""

    name: str
    columns: tuple[RelationColumn, ...]
    query: Query
    held: tuple[Context, list[tuple[SqlValue, ...]]] | None = None

    def rows(self, _equal: Equal, context: Context) -> Rows:
        """Return the rows."""
        if self.held is None or self.held[0] is not context:
            self.held = (context, list(self.query.rows((), context)))
        return iter(self.held[1])


@dataclass
class _Round:
    """The rows of the last round."""

    name: str
    columns: tuple[RelationColumn, ...]
    held: list[tuple[SqlValue, ...]]

    def rows(self, _equal: Equal, _context: Context) -> Rows:
        """Return those rows."""
        return iter(self.held)


@dataclass
class _Recursive(_Cte):
    """A query that reads what it gave in the round before."""

    step: Query | None = None
    last: _Round | None = None
    """The relation by which the step reads that."""
    distinct: bool = True

    def rows(self, _equal: Equal, context: Context) -> Rows:
        """Return the rows of all rounds."""
        assert self.step is not None
        assert self.last is not None
        found = list(self.query.rows((), context))
        seen = {tuple(sort_key_of(value, "binary") for value in row) for row in found}
        fresh, rounds = found, 0
        while fresh:
            rounds += 1
            if rounds > MAX_ROUNDS:
                raise SqlRefused(
                    _MAX_RECURSION,
                    f"Recursive query aborted after {rounds} iterations. Try increasing "
                    "@@cte_max_recursion_depth to a larger value",
                    "HY000",
                )
            self.last.held = fresh
            fresh = []
            for row in self.step.rows((), context):
                key = tuple(sort_key_of(value, "binary") for value in row)
                if not self.distinct or key not in seen:
                    seen.add(key)
                    fresh.append(row)
            found = [*found, *fresh]
        return iter(found)


def with_ctes(node: Node, env: Scope, compile_query: Compile) -> Scope:
    """`env` with what the WITH of a query names."""
    clause = node.args.get("with_")
    if clause is None:
        return env
    for cte in clause.expressions:
        name = cte.alias
        inner = replace(env, outer=None, slots=())
        if clause.args.get("recursive") and type(cte.this).__name__ == "Union":
            relation = _recursive(name, cte, inner, compile_query)
        else:
            query = compile_query(cte.this, inner)
            relation = _Cte(name, columns_of(query, named(cte.args["alias"])), query)
        env = replace(env, ctes={**env.ctes, name.lower(): relation})
    return env


def _recursive(name: str, cte: Node, env: Scope, compile_query: Compile) -> _Cte:
    start = compile_query(cte.this.this, env)
    columns = columns_of(start, named(cte.args["alias"]))
    last = _Round(name, columns, [])
    step = compile_query(cte.this.expression, replace(env, ctes={**env.ctes, name.lower(): last}))
    return _Recursive(name, columns, start, None, step, last, bool(cte.this.args.get("distinct")))
