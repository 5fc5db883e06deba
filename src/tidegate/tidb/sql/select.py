"""SELECT: a node of the parser and relations in, an answer out.

    select(parse("SELECT a+1 FROM t")[0].node, relations, context)  ->  ResultSet(columns, rows)

The work is done in select_query (the clauses), select_source and select_join (FROM, WHERE), select_group and
select_aggregate (GROUP BY), select_subquery (queries inside expressions).  FOR UPDATE is accepted and does nothing.
"""

import tidegate.tidb.sql.expr  # noqa: F401 - fills the table of those who compile
from tidegate.tidb.sql.dialect import Node
from tidegate.tidb.sql.relation import Relations, ResultSet
from tidegate.tidb.sql.scope import DEFAULT_COLLATION, Context, Scope
from tidegate.tidb.sql.select_query import compile_query

__all__ = ["scope_of", "select"]


def scope_of(relations: Relations, context: Context) -> Scope:
    """The scope in which a statement's queries are compiled: no columns yet."""
    collation = context.variables.get("collation_connection", DEFAULT_COLLATION)
    return Scope(relations=relations, database=context.database, context=context, collation=str(collation))


def select(node: Node, relations: Relations, context: Context) -> ResultSet:
    """The answer to a query; SqlRefused for what TiDB refuses."""
    query = compile_query(node, scope_of(relations, context))
    rows = list(query.rows((), context))
    return ResultSet(query.columns, rows)
