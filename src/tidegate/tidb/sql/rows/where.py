"""Which rows a statement of one table means: WHERE, ORDER BY, LIMIT.

    UPDATE t SET .. WHERE id IN (1, 2) AND v > 3 ORDER BY v LIMIT 1
                          └─ equal: {"id": (1, 2)} ─► TableReader.find ─► WHERE again ─► sorted ─► cut

All rows are found before the first one changes, so that a statement never meets its own work.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from tidegate.expr.compiler import compile_scalar
from tidegate.expr.context import Context
from tidegate.expr.operator.logic import truth
from tidegate.expr.relation import Row
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.value.compare import sort_key_of
from tidegate.expr.value.kinds import SqlValue
from tidegate.model.errors import SqlRefused
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
    """Return the table that a node names, with its alias."""
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
    where = node.args.get("where")
    scope = target.scope.at("where clause")
    equal = equal_of(where.this, scope, context) if where else {}
    access = target.access
    rows: Iterator[tuple[RowImage, Row]] = ((image, access.shown(image)) for image in access.reader.find(equal))
    if where:
        test = truth(compile_scalar(where.this, scope))
        rows = ((image, row) for image, row in rows if test(row, context))
    order = node.args.get("order")
    chosen = _sorted(list(rows), order, target.scope.at("order clause"), context) if order else rows
    count = _limit(node, scope, context)
    return [pair for at, pair in enumerate(chosen) if count is None or at < count]


def _sorted(
    rows: list[tuple[RowImage, Row]], order: Node, scope: Scope, context: Context
) -> Sequence[tuple[RowImage, Row]]:
    for item in reversed(order.expressions):
        key = compile_scalar(item.this, scope)

        def sort_key(pair: tuple[RowImage, Row], key: Any = key) -> tuple[Any, ...]:
            return sort_key_of(key.run(pair[1], context), key.collation)

        rows.sort(key=sort_key, reverse=bool(item.args.get("desc")))
    return rows


def _limit(node: Node, scope: Scope, context: Context) -> int | None:
    limit = node.args.get("limit")
    if limit is None:
        return None
    count = compile_scalar(limit.expression, scope).run((), context)
    if not isinstance(count, int) or count < 0:
        raise SqlRefused(1210, "Incorrect arguments to LIMIT")
    return count


def equal_of(where: Node, scope: Scope, context: Context) -> Mapping[str, tuple[SqlValue, ...]]:
    """Return what a condition demands of columns by = and IN with constants."""
    found: dict[str, tuple[SqlValue, ...]] = {}
    for part in _conjuncts(where):
        if isinstance(part, exp.EQ):
            sides = (part.this, part.expression)
            column, values = sides if isinstance(sides[0], exp.Column) else sides[::-1]
            wanted = [values]
        elif isinstance(part, exp.In) and not part.args.get("query"):
            column, wanted = part.this, part.expressions
        else:
            continue
        if not isinstance(column, exp.Column) or not wanted:
            continue
        constants = [compile_scalar(value, scope) for value in wanted if _is_plain(value)]
        if len(constants) == len(wanted) and scope.has(column.name, column.table):
            found[column.name.lower()] = tuple(value.run((), context) for value in constants)
    return found


def _conjuncts(node: Node) -> Iterator[Node]:
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, exp.Paren):
            pending.append(part.this)
        elif isinstance(part, exp.And):
            pending += [part.expression, part.this]
        else:
            yield part


def _is_plain(node: Node) -> bool:
    """Whether it is a literal, which no row decides."""
    inner = node.this if isinstance(node, exp.Neg | exp.Paren) else node
    return isinstance(inner, exp.Literal | exp.HexString | exp.BitString | exp.Null | exp.Boolean)
