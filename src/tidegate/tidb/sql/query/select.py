"""SELECT: a node of the parser and relations in, an answer out.

    select(parse("SELECT a+1 FROM t")[0].node, relations, context)  ->  ResultSet(columns, rows)

The work is done in clauses.py, source.py and join.py (FROM, WHERE), group.py and aggregate.py (GROUP BY), subquery.py
(queries inside expressions).  FOR UPDATE is accepted and does nothing.
"""

import tidegate.expr.compiler  # noqa: F401 - fills the table of those who compile
from tidegate.expr.context import DEFAULT_COLLATION, Context
from tidegate.expr.form import builder
from tidegate.expr.relation import Relations, ResultSet
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.tidb.sql.query.clauses import compile_query
from tidegate.tidb.sql.query.subquery import SUBQUERIES

__all__ = ["scope_of", "select"]

builder(SUBQUERIES)


def scope_of(relations: Relations, context: Context) -> Scope:
    """Return the scope in which a statement's queries are compiled: no columns yet."""
    collation = context.variables.get("collation_connection", DEFAULT_COLLATION)
    return Scope(relations=relations, database=context.database, context=context, collation=str(collation))


def select(node: Node, relations: Relations, context: Context) -> ResultSet:
    """Return the answer to a query; SqlRefused for what TiDB refuses."""
    query = compile_query(node, scope_of(relations, context))
    rows = list(query.rows((), context))
    return ResultSet(query.columns, rows)
