"""UPDATE and DELETE of one table: the rows that they mean, and what becomes of them.

    UPDATE t SET .. WHERE id IN (1, 2) AND v > 3 ORDER BY v LIMIT 1
                          └─ equal: {"id": (1, 2)} ─► TableReader.find ─► WHERE again ─► sorted ─► cut

    UPDATE     each assignment sees those to its left     affected: rows that changed, matched: rows that WHERE found
    DELETE     affected: rows that went                   IGNORE leaves rows alone that have children, with a warning

All rows are found before the first one changes, so that a statement never meets its own work.  A row that stays as it
is is not written, and ON UPDATE CURRENT_TIMESTAMP leaves it alone.

Source: MySQL manual, "UPDATE", "DELETE"; TiDB pkg/executor (update.go, delete.go, write.go).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from tidegate.expr.compiler import compile_scalar
from tidegate.expr.operator.logic import truth
from tidegate.expr.relation import Row
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused, TidegateError
from tidegate.model.name import lowered
from tidegate.mysql.context import Context
from tidegate.mysql.value.kinds import SqlValue
from tidegate_upstream.tidb.sql.outcome import Outcome
from tidegate_upstream.tidb.sql.query.join import asked, conjuncts
from tidegate_upstream.tidb.sql.query.select import cut, in_order, limits_of
from tidegate_upstream.tidb.sql.rows.access import Given, TableAccess
from tidegate_upstream.tidb.sql.rows.assign import assign_all, assignments_of
from tidegate_upstream.tidb.sql.rows.foreign import CHILD_IN_THE_WAY
from tidegate_upstream.tidb.sql.rows.open import TableOpener
from tidegate_upstream.tidb.sql.rows.row import RowImage

_SKIPPED: Final = frozenset({1062, 1451, 1452, 1526, 3819})
"""Errors that make IGNORE leave a row as it is."""


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
    _refuse_partitions(node)
    access = tables.table(node.db, node.name)
    return ChangedTable(access, _table_scope(access, node.alias or access.name, context))


def _refuse_partitions(node: Node) -> None:
    """Refuse a chosen partition (1235)."""
    if node.args.get("partition"):
        raise SqlRefused(
            1235, "This version of Tidegate doesn't yet support 'PARTITION (..) in a changed table'", "42000"
        )


def _table_scope(access: TableAccess, alias: str, context: Context) -> Scope:
    """The scope of a table's rows."""
    plain = Scope.of_columns(access.columns, alias, access.version.schema)
    return Scope(plain.slots, database=context.database, context=context)


def _found_rows(node: Node, target: ChangedTable, context: Context) -> list[tuple[RowImage, Row]]:
    """The rows that a statement means, in its order, with what the statement sees of
    them."""
    where, order = node.args.get("where"), node.args.get("order")
    scope = target.scope.at("where clause")
    access = target.access
    equal = _equal_of(where.this, scope, context) if where else {}
    rows: Iterator[tuple[RowImage, Row]] = ((image, access.shown(image)) for image in access.reader.find(equal))
    if where:
        test = truth(compile_scalar(where.this, scope))
        rows = ((image, row) for image, row in rows if test(row, context))
    if order:
        ordered = target.scope.at("order clause")
        terms = [(compile_scalar(term.this, ordered), bool(term.args.get("desc"))) for term in order.expressions]
        rows = iter(in_order(rows, lambda pair: [key.run(pair[1], context) for key, _ in terms], terms))
    return list(cut(rows, *limits_of(node, scope), context))


def _equal_of(where: Node, scope: Scope, context: Context) -> Mapping[str, tuple[SqlValue, ...]]:
    """What a condition demands of columns by = and IN with constants."""
    found: dict[str, tuple[SqlValue, ...]] = {}
    for column, wanted in filter(None, map(asked, conjuncts(where))):
        if all(map(_is_plain, wanted)) and scope.has(column.name, column.table):
            found[lowered(column.name)] = tuple(compile_scalar(value, scope).run((), context) for value in wanted)
    return found


def _is_plain(node: Node) -> bool:
    """Whether it is a literal, which no row decides."""
    inner = node.this if isinstance(node, exp.Neg | exp.Paren) else node
    return isinstance(inner, exp.Literal | exp.HexString | exp.BitString | exp.Null | exp.Boolean)


def run_update(node: Node, tables: TableOpener, context: Context) -> Outcome:
    """Return what an UPDATE does; SqlRefused undoes the statement."""
    ignore = bool(node.meta.get("ignore"))
    target = opened(node.this, tables, context)
    access = target.access
    savepoint = access.transaction.savepoint()
    context.writing = True
    try:
        assignments = assignments_of(node.expressions, access, target.scope)
        matched = changed = 0
        for image, row in _found_rows(node, target, context):
            matched += 1
            values = assign_all(assignments, access, list(row), context)
            changed += _change(access, image, values, matched, ignore=ignore)
    except TidegateError:
        access.transaction.restore(savepoint)
        raise
    finally:
        context.writing = False
    info = f"Rows matched: {matched}  Changed: {changed}  Warnings: {len(context.warnings)}"
    return Outcome(changed, 0, info, matched)


def _change(access: TableAccess, old: RowImage, values: dict[str, Given], row_number: int, *, ignore: bool) -> bool:
    """Whether the row changed."""
    try:
        new = access.changed(old, values, row_number, lenient=ignore)
        if new is None:
            access.lock(old)
            return False
        access.replace(old, new)
    except SqlRefused as refused:
        if not ignore or refused.mysql_code not in _SKIPPED:
            raise
        access.context.warn(refused.mysql_code, refused.message)
        return False
    return True


def run_delete(node: Node, tables: TableOpener, context: Context) -> Outcome:
    """Return what a DELETE does; SqlRefused undoes the statement."""
    target = opened(node.this, tables, context)
    savepoint = target.access.transaction.savepoint()
    context.writing = True
    try:
        gone = sum(
            _delete(target.access, image, ignore=bool(node.meta.get("ignore")))
            for image, _row in _found_rows(node, target, context)
        )
    except TidegateError:
        target.access.transaction.restore(savepoint)
        raise
    finally:
        context.writing = False
    return Outcome(gone)


def _delete(access: TableAccess, image: RowImage, *, ignore: bool) -> bool:
    """Whether the row went; IGNORE leaves one alone that has children."""
    savepoint = access.transaction.savepoint()
    try:
        access.delete(image)
    except SqlRefused as refused:
        if not ignore or refused.mysql_code != CHILD_IN_THE_WAY:
            raise
        access.transaction.restore(savepoint)
        access.context.warn(refused.mysql_code, refused.message)
        return False
    return True
