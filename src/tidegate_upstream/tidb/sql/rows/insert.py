"""INSERT and REPLACE.

    VALUES (..), (..)   SET a = 1   SELECT ..        a row's earlier values can be named by its later ones
    IGNORE              what a column refuses is bent, a row that a key refuses is left out, each with a warning
    ON DUPLICATE KEY    the row that holds the key is changed; VALUES(a) names its value in the new row
    REPLACE             the rows that hold its keys go first

    affected            INSERT 1   ON DUPLICATE KEY 2, 0 when nothing changed   REPLACE 1 + the rows that went
    last_insert_id      the first number that was generated

Source: MySQL manual, "INSERT", "INSERT ... ON DUPLICATE KEY UPDATE", "REPLACE"; TiDB pkg/executor (insert.go).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from sqlglot import exp

from tidegate.expr.cast.source import fitted
from tidegate.expr.compiled import Compiled
from tidegate.expr.compiler import compile_scalar
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused, TidegateError
from tidegate.model.name import lowered
from tidegate.mysql.context import Context
from tidegate.mysql.value.kinds import SqlValue, from_column
from tidegate_upstream.tidb.sql.outcome import Outcome
from tidegate_upstream.tidb.sql.query.select import select
from tidegate_upstream.tidb.sql.rows.access import Conflict, Given
from tidegate_upstream.tidb.sql.rows.assign import assign_all, assignment, assignments_of, named_column
from tidegate_upstream.tidb.sql.rows.change import ChangedTable, opened
from tidegate_upstream.tidb.sql.rows.open import TableOpener
from tidegate_upstream.tidb.sql.rows.row import RowImage, same, unknown_column
from tidegate_upstream.tidb.sql.rows.shape import ROW_ID, ShapeColumn

_SKIPPED: Final = frozenset({1062, 1451, 1452, 1526, 3819})
"""Errors that make IGNORE leave a row out."""


def run_insert(node: Node, tables: TableOpener, context: Context) -> Outcome:
    """Return what an INSERT or REPLACE does; SqlRefused undoes the statement."""
    into = node.this
    target = opened(into.this if isinstance(into, exp.Schema) else into, tables, context)
    savepoint = target.access.transaction.savepoint()
    context.writing = True
    try:
        return _Insert(node, target, tables, context).run()
    except TidegateError:
        target.access.transaction.restore(savepoint)
        raise
    finally:
        context.writing = False


class _Insert:
    """One INSERT or REPLACE while it runs."""

    def __init__(self, node: Node, target: ChangedTable, tables: TableOpener, context: Context) -> None:
        self.node, self.access, self.scope = node, target.access, target.scope
        self.tables, self.context = tables, context
        self.ignore, self.replaces = bool(node.args.get("ignore")), bool(node.meta.get("replace"))
        into = node.this
        listed = into.expressions if isinstance(into, exp.Schema) else None
        self.columns = self._columns([name.name for name in listed] if listed is not None else None)
        self.bare = not listed
        source = node.expression
        self.many = not isinstance(source, exp.Values) or len(source.expressions) > 1
        self.lenient = self.ignore or (self.many and not context.strict)
        conflict = node.args.get("conflict")
        self.on_duplicate = (
            assignments_of(conflict.expressions, self.access, self._duplicate_scope()) if conflict else None
        )

    def run(self) -> Outcome:
        """Inserts row after row."""
        affected, records, kept = 0, 0, 0
        for row_number, values in enumerate(self._source(), 1):
            records += 1
            count = self._insert(values, row_number)
            affected, kept = affected + count, kept + (count == 1)
        last = self.access.numbers.first or 0
        doubles = records - kept if self.ignore or self.on_duplicate else max(affected - records, 0)
        info = f"Records: {records}  Duplicates: {doubles}  Warnings: {len(self.context.warnings)}"
        return Outcome(affected, last, info if self.many else "")

    # --- what is inserted ---

    def _columns(self, names: list[str] | None) -> list[ShapeColumn | None]:
        """The columns that values are for; None is _tidb_rowid."""
        if names is None:
            return [column for column in self.access.shape.public if not column.stored.hidden]
        found: list[ShapeColumn | None] = []
        for name in names:
            is_row_id = lowered(name) == ROW_ID and self.access.shape.hidden_handle
            column = None if is_row_id else named_column(self.access, name)
            if column in found:
                raise SqlRefused(1110, f"Column '{name}' specified twice", "42000")
            found.append(column)
        return found

    def _source(self) -> Iterator[dict[str, Given]]:
        source = self.node.expression
        if isinstance(source, exp.Values):
            for row_number, item in enumerate(source.expressions, 1):
                nodes = item.expressions if isinstance(item, exp.Tuple) else [item]
                yield self._listed(nodes, row_number)
            return
        answer = select(source, self.tables, self.context)
        self._check_count(len(answer.columns), 1)
        for row in answer.rows:
            given: dict[str, Given] = {}
            for column, value, shown in zip(self.columns, row, answer.columns, strict=True):
                if column is None:
                    given[ROW_ID] = value
                else:
                    given[column.stored.name.lower] = fitted(value, shown.type, column.target.type)
            yield given

    def _check_count(self, count: int, row_number: int) -> None:
        if count != len(self.columns):
            raise SqlRefused(1136, f"Column count doesn't match value count at row {row_number}", "21S01")

    def _listed(self, nodes: list[Node], row_number: int) -> dict[str, Given]:
        """The values of one list; later expressions see the earlier columns."""
        if not nodes and self.bare:
            return {}
        self._check_count(len(nodes), row_number)
        scope, access = self.scope, self.access
        row = self._defaults()
        given: dict[str, Given] = {}
        for column, node in zip(self.columns, nodes, strict=True):
            if column is None:
                given[ROW_ID] = compile_scalar(node, scope).run(row, self.context)
            else:
                given |= assign_all([assignment(access, column, node, scope)], access, row, self.context)
        return given

    def _defaults(self) -> list[SqlValue]:
        shown = [
            from_column(column.target.type, column.constant, self.context.zone) for column in self.access.shape.public
        ]
        return [*shown, *[None] * (len(self.access.columns) - len(shown))]

    # --- one row ---

    def _insert(self, values: dict[str, Given], row_number: int) -> int:
        """How many rows count as affected."""
        try:
            image = self.access.new_row(values, row_number, lenient=self.lenient)
            conflicts = self.access.conflicts(image) if self.replaces or self.on_duplicate is not None else []
            if conflicts and self.on_duplicate is not None:
                return self._change(conflicts[0].row, image, row_number)
            if conflicts:
                return self._replace(conflicts, image)
            self.access.insert(image)
        except SqlRefused as refused:
            if not self.ignore or refused.mysql_code not in _SKIPPED:
                raise
            self.context.warn(refused.mysql_code, refused.message)
            return 0
        return 1

    def _replace(self, conflicts: list[Conflict], image: RowImage) -> int:
        removed = 0
        while conflicts:
            old = conflicts[0].row
            only = all(conflict.row[:2] == old[:2] for conflict in conflicts)
            if only and not removed and self._alike(old, image):
                return 1
            self.access.delete(old)
            removed += 1
            conflicts = self.access.conflicts(image)
        self.access.insert(image)
        return removed + 1

    def _alike(self, old: RowImage, new: RowImage) -> bool:
        public = self.access.shape.public
        return all(same(column.target.type, old.columns[column.id], new.columns[column.id]) for column in public)

    def _change(self, old: RowImage, new: RowImage, row_number: int) -> int:
        """ON DUPLICATE KEY UPDATE of the row that holds the key."""
        row = [*self.access.shown(old), *self.access.shown(new)]
        values = assign_all(self.on_duplicate or (), self.access, row, self.context)
        changed = self.access.changed(old, values, row_number, lenient=self.ignore)
        if changed is None:
            return 0
        self.access.replace(old, changed)
        return 2

    def _duplicate_scope(self) -> Scope:
        """The old row by the table's names, the new one by VALUES()."""
        if self.node.expression.args.get("alias"):
            raise SqlRefused(1235, "This version of Tidegate doesn't yet support an alias of the new row", "42000")
        width = len(self.access.columns)
        by_name = {lowered(column.name): width + at for at, column in enumerate(self.access.columns)}

        def value_of(name: str) -> Compiled:
            at = by_name.get(lowered(name))
            if at is None:
                raise unknown_column(name, "field list")
            column = self.access.columns[at - width]
            return Compiled(lambda row, _context: row[at], column.type, column.collation, 2)

        return replace(self.scope, values=value_of)
