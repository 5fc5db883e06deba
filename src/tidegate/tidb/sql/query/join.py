"""FROM and WHERE together: rows of sources joined one after the other.

    t1, t2 JOIN t3 ON ..        scan t1 ─► step t2 ─► step t3 ─► rows: outer slots, t1's, t2's, t3's

A step holds the right source's rows, looked up by hash where a condition says left column = right column of types
whose equality is that of their keys; the whole condition is evaluated all the same.  A part of WHERE is tested as soon
as all its columns are there, but not before the last RIGHT JOIN, which may add rows without a left side.
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
from tidegate.tidb.sql.query.source import Compile, Equal, FromItem, source_of

__all__ = ["Joined", "conjuncts", "hash_collation", "joined"]

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
    joined = _JOINS[step.kind](step, lefts, _lookup(step, prefix, equal, context), context)
    return _filtered(joined, step.after, context)


_Lookup: TypeAlias = Callable[[tuple[SqlValue, ...]], Sequence[tuple[int, tuple[SqlValue, ...]]]]


@dataclass
class _Right:
    """The right side's rows, and those that a left row may meet."""

    rows: list[tuple[SqlValue, ...]]
    lookup: _Lookup
    width: int
    outer: tuple[SqlValue, ...]
    """The outer row, which each row begins with."""


def _lookup(step: _Step, prefix: tuple[SqlValue, ...], equal: Equal, context: Context) -> _Right:
    rows = list(step.source.scan(prefix, equal, context))
    numbered = list(enumerate(rows))
    width = len(step.source.columns)
    if not step.keys:
        return _Right(rows, lambda _left: numbered, width, prefix)
    table: dict[Any, list[tuple[int, tuple[SqlValue, ...]]]] = {}
    for at, row in numbered:
        key = tuple(sort_key_of(row[column], collation) for _, column, collation in step.keys)
        table.setdefault(key, []).append((at, row))

    def lookup(left: tuple[SqlValue, ...]) -> Sequence[tuple[int, tuple[SqlValue, ...]]]:
        return table.get(tuple(sort_key_of(left[slot], collation) for slot, _, collation in step.keys), ())

    return _Right(rows, lookup, width, prefix)


def _matches(step: _Step, left: tuple[SqlValue, ...], right: _Right, context: Context) -> Iterator[tuple[int, Any]]:
    for at, row in right.lookup(left):
        made = left + tuple(row)
        if all(test(made, context) for test in step.condition):
            yield at, made


def _inner(step: _Step, lefts: Rows, right: _Right, context: Context) -> Rows:
    for left in lefts:
        for _, made in _matches(step, left, right, context):
            yield made


def _left(step: _Step, lefts: Rows, right: _Right, context: Context) -> Rows:
    nothing = (None,) * right.width
    for left in lefts:
        found = False
        for _, made in _matches(step, left, right, context):
            found = True
            yield made
        if not found:
            yield left + nothing


def _right(step: _Step, lefts: Rows, right: _Right, context: Context) -> Rows:
    met: set[int] = set()
    for left in lefts:
        for at, made in _matches(step, left, right, context):
            met.add(at)
            yield made
    nothing = right.outer + (None,) * (step.start - len(right.outer))
    for at, row in enumerate(right.rows):
        if at not in met:
            yield nothing + tuple(row)


_JOINS: Final = {"INNER": _inner, "LEFT": _left, "RIGHT": _right}


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
        new = list(source.slots(step.start))
        names = self._shared_names(join, new)
        for name in names:
            step.on.append(self._pair(name, source.alias))
        hidden = {name.lower() for name in names}
        if step.kind == "RIGHT":
            self.slots = [replace(s, merged=True) if s.name.lower() in hidden else s for s in self.slots]
        else:
            new = [replace(slot, merged=slot.name.lower() in hidden) for slot in new]
        if join is not None:
            step.on += conjuncts(join.args.get("on"))
        self.slots += new
        self.steps.append(step)

    def _shared_names(self, join: Node | None, new: Sequence[Slot]) -> list[str]:
        if join is None:
            return []
        if (join.args.get("method") or "").upper() == "NATURAL":
            known = {slot.name.lower() for slot in self.slots if not slot.hidden}
            return [slot.name for slot in new if slot.name.lower() in known and not slot.hidden]
        return [name.name for name in join.args.get("using") or ()]

    def _pair(self, name: str, alias: str) -> Node:
        left = next(slot for slot in self.scope.own(name))
        return exp.EQ(
            this=exp.Column(this=exp.Identifier(this=name), table=exp.Identifier(this=left.table)),
            expression=exp.Column(this=exp.Identifier(this=name), table=exp.Identifier(this=alias)),
        )

    def finish(self, where: Sequence[Node]) -> Joined:
        """Places the conditions and compiles them."""
        scope = self.scope
        last_right = max((at for at, step in enumerate(self.steps) if step.kind == "RIGHT"), default=0)
        tests: list[Truth] = []
        for part in where:
            at = self._first_step(part, scope)
            test = truth(compile_scalar(part, scope))
            if at is None:
                tests.append(test)
                continue
            at = max(at, last_right)
            step = self.steps[at]
            step.after.append(test)
            if step.kind == "INNER" and at > last_right:
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
        found = _asked(part)
        if found is None:
            return
        column, values = found
        own = self._own(column, scope)
        if len(own) != 1 or any(self._own(name, scope) for value in values for name in value.find_all(exp.Column)):
            return
        step = next(step for step in self.steps if own[0].index < step.end)
        later = self.steps[self.steps.index(step) + 1 :]
        if step.kind != "LEFT" and not any(after.kind == "RIGHT" for after in later):
            step.hints.append((column.name.lower(), [compile_scalar(value, scope) for value in values]))


def _asked(part: Node) -> tuple[Node, list[Node]] | None:
    """(column, values) of `column = value`, `value = column` and `column IN (values)`."""
    kind = type(part).__name__
    if kind == "In" and type(part.this).__name__ == "Column" and part.expressions:
        return part.this, part.expressions
    if kind == "EQ" and type(part.this).__name__ == "Column":
        return part.this, [part.expression]
    if kind == "EQ" and type(part.expression).__name__ == "Column":
        return part.expression, [part.this]
    return None


def _side(join: Node | None) -> str:
    side = (join.args.get("side") or "").upper() if join is not None else ""
    return side if side in {"LEFT", "RIGHT"} else "INNER"
