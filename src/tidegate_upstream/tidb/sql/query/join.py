"""FROM and WHERE: what rows come from, joined one after the other.

    t              a relation: a table, a view, something of information_schema
    DUAL           one row without columns

    t1, t2 JOIN t3 ON ..        scan t1 ─► step t2 ─► step t3 ─► rows: t1's slots, t2's, t3's

A part of WHERE is tested as soon as all its columns are there.  `col = constant` and `col IN (constants)` become the
hint `equal` of a scan.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from sqlglot import exp

from tidegate.expr.compiled import Compiled
from tidegate.expr.form import compile_scalar
from tidegate.expr.operator.logic import Truth, truth
from tidegate.expr.relation import RelationColumn, Relations
from tidegate.expr.scope import Scope, Slot
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered
from tidegate.mysql.context import Context
from tidegate.mysql.value.kinds import SqlValue

Rows: TypeAlias = Iterator[tuple[SqlValue, ...]]
_NO_DATABASE: Final = 1046
_NOT_SUPPORTED: Final = 1235
Equal: TypeAlias = Mapping[str, tuple[SqlValue, ...]]


@dataclass(frozen=True)
class _FromItem:
    """Something with rows, under the name by which its columns are qualified."""

    alias: str
    schema: str
    columns: tuple[RelationColumn, ...]
    scan: Callable[[Equal, Context], Iterable[tuple[SqlValue, ...]]]

    def slots(self, start: int) -> tuple[Slot, ...]:
        """Return the columns' places in a row where they begin at `start`."""
        return tuple(
            Slot(start + at, column.name, column.type, column.collation, self.alias, self.schema, column.hidden)
            for at, column in enumerate(self.columns)
        )


def _source_of(node: Node, scope: Scope, relations: Relations) -> _FromItem | None:
    """What one item of FROM stands for; None for DUAL. SqlRefused 1146, 1046, 1235."""
    if type(node).__name__ != "Table":
        kind = type(node).__name__
        raise SqlRefused(_NOT_SUPPORTED, f"This version of Tidegate doesn't yet support {kind} in FROM", "42000")
    name, schema = node.name, node.db
    alias = node.alias or name
    if node.args.get("partition") is not None:
        raise SqlRefused(
            _NOT_SUPPORTED, "This version of Tidegate doesn't yet support 'SELECT .. PARTITION (..)'", "42000"
        )
    if not schema and name.upper() == "DUAL":
        return None
    schema = schema or scope.database
    if not schema:
        raise SqlRefused(_NO_DATABASE, "No database selected", "3D000")
    found = relations.relation(schema, name)
    return _FromItem(alias, schema, found.columns, found.rows)


@dataclass
class _Step:
    """One source and how it joins what stands before it; the first one has nothing before it."""

    source: _FromItem
    start: int
    kind: str = "INNER"
    on: list[Node] = field(default_factory=list)
    condition: list[Truth] = field(default_factory=list)
    hints: list[tuple[str, list[Compiled]]] = field(default_factory=list)
    after: list[Truth] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The slot behind the source's own."""
        return self.start + len(self.source.columns)


@dataclass(frozen=True)
class Joined:
    """The rows of FROM that WHERE lets through."""

    scope: Scope
    steps: tuple[_Step, ...]
    tests: tuple[Truth, ...]
    """Those parts of WHERE that wait until all columns are there, or that need none."""

    def rows(self, context: Context) -> Rows:
        """Return the rows."""
        rows: Rows = iter(((),))
        for step in self.steps:
            rows = _run(step, rows, context)
        return _filtered(rows, self.tests, context)


def conjuncts(node: Node | None) -> list[Node]:
    """Return the parts that AND connects."""
    if node is None:
        return []
    if type(node).__name__ == "And":
        return [*conjuncts(node.this), *conjuncts(node.expression)]
    if type(node).__name__ == "Paren" and type(node.this).__name__ == "And":
        return conjuncts(node.this)
    return [node]


def _filtered(rows: Rows, tests: Sequence[Truth], context: Context) -> Rows:
    if not tests:
        return rows
    return (row for row in rows if all(test(row, context) for test in tests))


def _run(step: _Step, lefts: Rows, context: Context) -> Rows:
    equal: dict[str, tuple[SqlValue, ...]] = {}
    for name, values in step.hints:
        found = tuple(value.run((), context) for value in values)
        equal[name] = tuple(value for value in found if value is not None)
    rights = [tuple(row) for row in step.source.scan(equal, context)]
    return _filtered(_joined(step, lefts, rights, context), step.after, context)


def _joined(step: _Step, lefts: Rows, rights: Sequence[tuple[SqlValue, ...]], context: Context) -> Rows:
    nothing = (None,) * len(step.source.columns)
    for left in lefts:
        found = False
        for right in rights:
            made = left + right
            if all(test(made, context) for test in step.condition):
                found = True
                yield made
        if not found and step.kind == "LEFT":
            yield left + nothing


def joined(select: Node, env: Scope, relations: Relations) -> Joined:
    """FROM and WHERE of a SELECT; `env` is the scope that its columns are added to."""
    builder = _Builder(env, relations)
    from_ = select.args.get("from_")
    if from_ is not None:
        builder.add_tree(from_.this, None)
        for join in select.args.get("joins") or ():
            builder.add_join(join)
    where = select.args.get("where")
    return builder.finish(conjuncts(where.this if where is not None else None))


class _Builder:
    """Collects steps, then places the conditions."""

    def __init__(self, env: Scope, relations: Relations) -> None:
        self.env, self.relations = env, relations
        self.slots: list[Slot] = []
        self.steps: list[_Step] = []

    @property
    def scope(self) -> Scope:
        """What can be named so far."""
        return replace(self.env, slots=tuple(self.slots), clause="where clause")

    def add_tree(self, node: Node, join: Node | None) -> None:
        """A table, or tables joined in brackets."""
        kind = type(node).__name__
        inner = node.this if kind == "Paren" or (kind == "Subquery" and type(node.this).__name__ == "Table") else None
        if inner is not None and not node.alias:
            self.add_tree(inner, join)
        else:
            self.add(node, join)
        for nested in node.args.get("joins") or ():
            self.add_join(nested)

    def add_join(self, join: Node) -> None:
        """One JOIN or comma."""
        self.add_tree(join.this, join)

    def add(self, node: Node, join: Node | None) -> None:
        """One source."""
        source = _source_of(node, self.env, self.relations)
        if source is None:
            return
        step = _Step(source, len(self.slots), _side(join))
        if join is not None:
            step.on += conjuncts(join.args.get("on"))
        self.slots += source.slots(step.start)
        self.steps.append(step)

    def finish(self, where: Sequence[Node]) -> Joined:
        """Places the conditions and compiles them."""
        scope = self.scope
        tests: list[Truth] = []
        for part in where:
            at = self._first_step(part, scope)
            test = truth(compile_scalar(part, scope))
            if at is None:
                tests.append(test)
                continue
            step = self.steps[at]
            step.after.append(test)
            self._hint(part, scope)
        for step in self.steps:
            visible = replace(scope, slots=tuple(s for s in self.slots if s.index < step.end), clause="on clause")
            for part in step.on:
                step.condition.append(truth(compile_scalar(part, visible)))
        return Joined(scope, tuple(self.steps), tuple(tests))

    def _first_step(self, part: Node, scope: Scope) -> int | None:
        """The first step after which a condition has all its columns; None for conditions without."""
        own = [slot.index for column in part.find_all(exp.Column) for slot in self._own(column, scope)]
        if not own:
            return None
        return next(at for at, step in enumerate(self.steps) if max(own) < step.end)

    @staticmethod
    def _own(column: Node, scope: Scope) -> Sequence[Slot]:
        return scope.own(column.name, column.table, column.db)

    def _hint(self, part: Node, scope: Scope) -> None:
        """Uses `column = constant` and `column IN (constants)` for the scan of the column's source."""
        found = asked(part)
        if found is None:
            return
        column, values = found
        own = self._own(column, scope)
        if len(own) != 1 or any(self._own(name, scope) for value in values for name in value.find_all(exp.Column)):
            return
        step = next(step for step in self.steps if own[0].index < step.end)
        if step.kind != "LEFT":
            step.hints.append((lowered(column.name), [compile_scalar(value, scope) for value in values]))


def asked(part: Node) -> tuple[Node, list[Node]] | None:
    """Return (column, values) of `column = value`, `value = column` and `column IN (values)`."""
    kind = type(part).__name__
    if kind == "In" and type(part.this).__name__ == "Column" and part.expressions:
        return part.this, part.expressions
    if kind == "EQ" and type(part.this).__name__ == "Column":
        return part.this, [part.expression]
    if kind == "EQ" and type(part.expression).__name__ == "Column":
        return part.expression, [part.this]
    return None


def _side(join: Node | None) -> str:
    if join is None:
        return "INNER"
    words = [str(join.args.get(part) or "").upper() for part in ("method", "side")]
    if join.args.get("using") or {"NATURAL", "RIGHT", "FULL"} & {*words}:
        shown = " ".join(word for word in words if word) or "USING"
        raise SqlRefused(1235, f"This version of Tidegate doesn't yet support '{shown} JOIN'", "42000")
    return words[1] or "INNER"
