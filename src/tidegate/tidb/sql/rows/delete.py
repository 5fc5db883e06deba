"""DELETE of one table.

    DELETE FROM t WHERE .. ORDER BY .. LIMIT ..

affected: rows that went.  IGNORE leaves rows alone that have children, with a warning.
Source: MySQL manual, "DELETE"; TiDB pkg/executor/delete.go.
"""

from tidegate.expr.context import Context
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused, TidegateError
from tidegate.tidb.sql.outcome import Outcome
from tidegate.tidb.sql.rows.access import TableAccess
from tidegate.tidb.sql.rows.foreign import CHILD_IN_THE_WAY
from tidegate.tidb.sql.rows.open import TableOpener
from tidegate.tidb.sql.rows.row import RowImage
from tidegate.tidb.sql.rows.where import found_rows, opened

__all__ = ["run_delete"]


def run_delete(node: Node, tables: TableOpener, context: Context) -> Outcome:
    """Return what a DELETE does; SqlRefused undoes the statement."""
    target = opened(node.this, tables, context)
    savepoint = target.access.transaction.savepoint()
    context.writing = True
    try:
        gone = sum(
            _delete(target.access, image, ignore=bool(node.meta.get("ignore")))
            for image, _row in found_rows(node, target, context)
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
