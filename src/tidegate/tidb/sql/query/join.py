"""FROM and WHERE together: rows of sources joined one after the other.

    t1, t2 JOIN t3 ON ..        scan t1 ─► step t2 ─► step t3 ─► rows: outer slots, t1's, t2's, t3's

A step holds the right source's rows, looked up by hash where a condition says left column = right column of types
whose equality is that of their keys; the whole condition is evaluated all the same.  A part of WHERE is tested as soon
as all its columns are there.
`col = constant` and `col IN (constants)` become the hint `equal` of a scan.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from sqlglot import exp

from tidegate.expr.compiled import Compiled
from tidegate.expr.context import Context
from tidegate.expr.form import compile_scalar
from tidegate.expr.operator.logic import Truth, truth
from tidegate.expr.relation import Row
from tidegate.expr.result_type import ValueFamily, agreed, family_of
from tidegate.expr.scope import Scope, Slot
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.value.compare import sort_key_of
from tidegate.expr.value.kinds import SqlValue
from tidegate.model.errors import SqlRefused
from tidegate.tidb.sql.query.source import Compile, Equal, FromItem, source_of

__all__ = ["Joined", "asked", "conjuncts", "hash_collation", "joined"]

Rows: TypeAlias = Iterator[tuple[SqlValue, ...]]
_NUMBERS: Final = frozenset({ValueFamily.INT, ValueFamily.DECIMAL, ValueFamily.REAL})


@dataclass
class _Step:
    """One source and how it joins what stands before it; the first one has nothing before it."""

    source: FromItem
    start: int
    kind: str = "INNER"
    on: list[Node] = field(default_factory=list)
    condition: list[Truth] = field(default_factory=list)
    keys: list[tuple[int, int, str]] = field(default_factory=list)
    """(left slot, right column, collation) for the hash"""
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

    def rows(self, outer: Row, context: Context) -> Rows:
        """Return the rows, the outer row's values first."""
        prefix = (*outer, *[None] * (self.scope.base - len(outer)))
        rows: Rows = iter((prefix,))
        for step in self.steps:
            rows = _run(step, prefix, rows, context)
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


def _run(step: _Step, prefix: tuple[SqlValue, ...], lefts: Rows, context: Context) -> Rows:
    equal: dict[str, tuple[SqlValue, ...]] = {}
    for name, values in step.hints:
        found = tuple(value.run(prefix, context) for value in values)
        equal[name] = tuple(value for value in found if value is not None)
    return _filtered(_joined(step, lefts, _lookup(step, prefix, equal, context), context), step.after, context)


_Lookup: TypeAlias = Callable[[tuple[SqlValue, ...]], Sequence[tuple[SqlValue, ...]]]
"""Gives the right side's rows that a left row may meet."""


def _lookup(step: _Step, prefix: tuple[SqlValue, ...], equal: Equal, context: Context) -> _Lookup:
    rows = [tuple(row) for row in step.source.scan(prefix, equal, context)]
    if not step.keys:
        return lambda _left: rows
    table: dict[Any, list[tuple[SqlValue, ...]]] = {}
    for row in rows:
        key = tuple(sort_key_of(row[column], collation) for _, column, collation in step.keys)
        table.setdefault(key, []).append(row)

    def lookup(left: tuple[SqlValue, ...]) -> Sequence[tuple[SqlValue, ...]]:
        return table.get(tuple(sort_key_of(left[slot], collation) for slot, _, collation in step.keys), ())

    return lookup


def _joined(step: _Step, lefts: Rows, lookup: _Lookup, context: Context) -> Rows:
    nothing = (None,) * len(step.source.columns)
    for left in lefts:
        found = False
        for right in lookup(left):
            made = left + right
            if all(test(made, context) for test in step.condition):
                found = True
                yield made
        if not found and step.kind == "LEFT":
            yield left + nothing


def hash_collation(left: Compiled, right: Compiled, scope: Scope) -> str | None:
    """Return the collation by whose keys two expressions may be looked up in a hash table; None where keys do not
    tell."""
    families = {family_of(left.type), family_of(right.type)}
    if families <= _NUMBERS or (len(families) == 1 and families <= {ValueFamily.MOMENT, ValueFamily.SPAN}):
        return "binary"
    plain = families == {ValueFamily.TEXT} and not {left.type.code, right.type.code} & _NAMED
    return agreed((left, right), scope)[0] if plain and left.type.charset == right.type.charset else None


_NAMED: Final = frozenset({247, 248, 16})
"""ENUM, SET and BIT, whose keys are not those of texts."""


def joined(select: Node, outer: Scope, compile_query: Compile) -> Joined:
    """FROM and WHERE of a SELECT; `outer` is the scope that its columns are added to."""
    builder = _Builder(outer, compile_query)
    from_ = select.args.get("from_")
    if from_ is not None:
        builder.add_tree(from_.this, None)
        for join in select.args.get("joins") or ():
            builder.add_join(join)
    where = select.args.get("where")
    return builder.finish(conjuncts(where.this if where is not None else None))


class _Builder:
    """Collects steps, then places the conditions."""

    def __init__(self, outer: Scope, compile_query: Compile) -> None:
        self.outer, self.compile_query = outer, compile_query
        self.slots: list[Slot] = []
        self.steps: list[_Step] = []

    @property
    def scope(self) -> Scope:
        """What can be named so far."""
        return replace(self.outer, slots=tuple(self.slots), clause="where clause")

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
        source = source_of(node, self.outer, self.compile_query)
        if source is None:
            return
        step = _Step(source, self.outer.base + len(self.slots), _side(join))
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
            if step.kind == "INNER":
                self._key(step, part, scope)
            self._hint(part, scope)
        for step in self.steps:
            visible = replace(scope, slots=tuple(s for s in self.slots if s.index < step.end), clause="on clause")
            for part in step.on:
                step.condition.append(truth(compile_scalar(part, visible)))
                self._key(step, part, visible)
        return Joined(scope, tuple(self.steps), tuple(tests))

    def _first_step(self, part: Node, scope: Scope) -> int | None:
        """The first step after which a condition has all its columns; None for subqueries and conditions without."""
        if part.find(exp.Select) is not None or not self.steps:
            return None
        own = [slot.index for column in part.find_all(exp.Column) for slot in self._own(column, scope)]
        if not own:
            return None
        return next(at for at, step in enumerate(self.steps) if max(own) < step.end)

    @staticmethod
    def _own(column: Node, scope: Scope) -> Sequence[Slot]:
        return scope.own(column.name, column.table, column.db)

    def _key(self, step: _Step, part: Node, scope: Scope) -> None:
        """Uses `left column = right column` for the hash of a step."""
        if type(part).__name__ != "EQ" or not self.steps or step is self.steps[0]:
            return
        sides = (part.this, part.expression)
        if any(type(side).__name__ != "Column" for side in sides):
            return
        slots = [self._own(side, scope) for side in sides]
        if any(len(found) != 1 for found in slots):
            return
        (first,), (second,) = slots
        left, right = (first, second) if first.index < step.start else (second, first)
        if not left.index < step.start <= right.index < step.end:
            return
        collation = hash_collation(compile_scalar(sides[0], scope), compile_scalar(sides[1], scope), scope)
        if collation is not None:
            step.keys.append((left.index, right.index - step.start, collation))

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
            step.hints.append((column.name.lower(), [compile_scalar(value, scope) for value in values]))


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
