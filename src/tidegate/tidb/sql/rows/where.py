"""Which rows a statement of one table means: WHERE, ORDER BY, LIMIT.

    UPDATE t SET .. WHERE id IN (1, 2) AND v > 3 ORDER BY v LIMIT 1
                          └─ equal: {"id": (1, 2)} ─► TableReader.find ─► WHERE again ─► sorted ─► cut

All rows are found before the first one changes, so that a statement never meets its own work.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from tidegate.expr.compiler import compile_scalar
from tidegate.expr.context import Context
from tidegate.expr.operator.logic import truth
from tidegate.expr.relation import Row
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.value.kinds import SqlValue
from tidegate.model.errors import SqlRefused
from tidegate.tidb.sql.query.join import asked, conjuncts
from tidegate.tidb.sql.query.order import cut, in_order, limits_of
from tidegate.tidb.sql.rows.access import TableAccess
from tidegate.tidb.sql.rows.open import TableOpener
from tidegate.tidb.sql.rows.row import RowImage

__all__ = ["ChangedTable", "found_rows", "opened", "refuse_partitions", "table_scope"]


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """A table that a statement changes, and the names that its expressions may use."""

    access: TableAccess
    scope: Scope


def opened(node: Node, tables: TableOpener, context: Context) -> ChangedTable:
    """Return the table that a node names, with its alias; SqlRefused 1235 for a join."""
    parent = node.parent
    others = parent is not None and (parent.args.get("tables") or parent.args.get("using"))
    if not isinstance(node, exp.Table) or node.args.get("joins") or others:
        raise SqlRefused(1235, "This version of Tidegate doesn't yet support changes of more than one table", "42000")
    refuse_partitions(node)
    access = tables.table(node.db, node.name)
    return ChangedTable(access, table_scope(access, node.alias or access.name, tables, context))


def refuse_partitions(node: Node) -> None:
    """Refuses a chosen partition (1235)."""
    if node.args.get("partition"):
        raise SqlRefused(
            1235, "This version of Tidegate doesn't yet support 'PARTITION (..) in a changed table'", "42000"
        )


def table_scope(access: TableAccess, alias: str, tables: TableOpener, context: Context) -> Scope:
    """Return the scope of a table's rows, subqueries included."""
    plain = Scope.of_columns(access.columns, alias, access.version.schema)
    return Scope(plain.slots, relations=tables, database=context.database, context=context)


def found_rows(node: Node, target: ChangedTable, context: Context) -> list[tuple[RowImage, Row]]:
    """Return the rows that an UPDATE or DELETE of one table means, in its order, with what the statement sees of
    them."""
    where, order = node.args.get("where"), node.args.get("order")
    scope = target.scope.at("where clause")
    access = target.access
    equal = equal_of(where.this, scope, context) if where else {}
    rows: Iterator[tuple[RowImage, Row]] = ((image, access.shown(image)) for image in access.reader.find(equal))
    if where:
        test = truth(compile_scalar(where.this, scope))
        rows = ((image, row) for image, row in rows if test(row, context))
    if order:
        ordered = target.scope.at("order clause")
        terms = [(compile_scalar(term.this, ordered), bool(term.args.get("desc"))) for term in order.expressions]
        rows = iter(in_order(rows, lambda pair: [key.run(pair[1], context) for key, _ in terms], terms))
    return list(cut(rows, *limits_of(node, scope), context))


def equal_of(where: Node, scope: Scope, context: Context) -> Mapping[str, tuple[SqlValue, ...]]:
    """Return what a condition demands of columns by = and IN with constants."""
    found: dict[str, tuple[SqlValue, ...]] = {}
    for column, wanted in filter(None, map(asked, conjuncts(where))):
        if all(map(_is_plain, wanted)) and scope.has(column.name, column.table):
            found[column.name.lower()] = tuple(compile_scalar(value, scope).run((), context) for value in wanted)
    return found


def _is_plain(node: Node) -> bool:
    """Whether it is a literal, which no row decides."""
    inner = node.this if isinstance(node, exp.Neg | exp.Paren) else node
    return isinstance(inner, exp.Literal | exp.HexString | exp.BitString | exp.Null | exp.Boolean)
