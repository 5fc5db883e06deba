"""UPDATE of one table.

    UPDATE t SET a = a + 1 WHERE .. ORDER BY .. LIMIT ..     rows in order, each assignment sees those to its left

    affected   rows that changed       matched   rows that WHERE found
    A row that stays as it is is not written, and ON UPDATE CURRENT_TIMESTAMP leaves it alone.

Source: MySQL manual, "UPDATE"; TiDB pkg/executor (update.go, write.go).
"""

from typing import Final

from tidegate.expr.context import Context
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused, TidegateError
from tidegate.tidb.sql.outcome import Outcome
from tidegate.tidb.sql.rows.access import Given, TableAccess
from tidegate.tidb.sql.rows.assign import assign_all, assignments_of
from tidegate.tidb.sql.rows.open import TableOpener
from tidegate.tidb.sql.rows.row import RowImage
from tidegate.tidb.sql.rows.where import found_rows, opened

__all__ = ["run_update"]

_SKIPPED: Final = frozenset({1062, 1451, 1452, 1526, 3819})
"""Errors that make IGNORE leave a row as it is."""


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
        for image, row in found_rows(node, target, context):
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
