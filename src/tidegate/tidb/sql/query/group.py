"""GROUP BY and aggregate functions: many rows become one row for each group.

    row        outer slots | columns of FROM
    group row  outer slots | columns of the group's first row | SUM(a) | COUNT(*) | ..

So what names a column keeps working, and a call of an aggregate function reads the slot that it was given when it was
compiled.  Without GROUP BY all rows are one group, and it is there even when no row is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from tidegate.expr.compiled import Compiled
from tidegate.expr.context import Context
from tidegate.expr.form import compile_scalar
from tidegate.expr.function.calls import is_aggregate
from tidegate.expr.relation import Row
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.value.compare import sort_key_of
from tidegate.expr.value.kinds import SqlValue
from tidegate.model.errors import SqlRefused
from tidegate.tidb.sql.query.aggregate import Aggregate, Machine, type_of_aggregate

__all__ = ["Collector", "Grouping", "aggregate_count", "grouped_rows", "sort_terms", "with_slots"]

Rows: TypeAlias = Iterator[tuple[SqlValue, ...]]
_WRONG_COUNT: Final = 1582
_SUBQUERIES: Final = frozenset({"Select", "Union", "Subquery", "Exists"})


def aggregate_count(node: Node) -> int:
    """Return how many calls of aggregate functions a node has, subqueries left out."""
    if type(node).__name__ in _SUBQUERIES:
        return 0
    return is_aggregate(node) + sum(aggregate_count(child) for child in node.iter_expressions())


def sort_terms(order: Node | None, scope: Scope) -> tuple[tuple[Compiled, bool], ...]:
    """(expression, descending) of each term."""
    terms = order.expressions if order is not None else ()
    return tuple((compile_scalar(term.this, scope), bool(term.args.get("desc"))) for term in terms)


@dataclass
class Collector:
    """Gives each aggregate call its slot behind the columns of `scope`."""

    scope: Scope
    calls: list[Aggregate] = field(default_factory=list)
    known: dict[Node, Compiled] = field(default_factory=dict)

    def __call__(self, node: Node) -> Compiled:
        """The reader of a call's slot; equal calls share one."""
        if node not in self.known:
            call = self._call(node)
            kind, collation = type_of_aggregate(call, self.scope)
            index = self.scope.width + len(self.calls)
            self.calls.append(call)
            self.known[node] = Compiled(lambda row, _context: row[index], kind, collation, 2)
        return self.known[node]

    def _call(self, node: Node) -> Aggregate:
        name, parts = node.name, list(node.expressions)
        if not parts:
            raise SqlRefused(
                _WRONG_COUNT, f"Incorrect parameter count in the call to native function '{name}'", "42000"
            )
        if type(parts[0]).__name__ == "Star":
            return Aggregate(name, (), star=True)
        distinct = type(parts[0]).__name__ == "Distinct" or name == "APPROX_COUNT_DISTINCT"
        if name == "GROUP_CONCAT":
            separator = parts[2].this if len(parts) > 2 else ","
            args = self._compiled(parts[0].expressions)
            return Aggregate(name, args, distinct, sort_terms(parts[1], self.scope), separator)
        return Aggregate(name, self._compiled(parts[0].expressions or parts if distinct else parts), distinct)

    def _compiled(self, nodes: Sequence[Node]) -> tuple[Compiled, ...]:
        return tuple(compile_scalar(node, self.scope) for node in nodes)


@dataclass(frozen=True)
class Grouping:
    """What GROUP BY asks for."""

    keys: tuple[Compiled, ...]
    calls: Sequence[Aggregate]
    width: int
    """Slots of a row before the aggregates'."""
    spare: int
    implicit: bool
    """True without GROUP BY: there is one group always."""


def grouped_rows(rows: Iterator[tuple[SqlValue, ...]], grouping: Grouping, outer: Row, context: Context) -> Rows:
    """Return one row for each group, in the order in which the groups begin."""
    groups: dict[Any, tuple[tuple[SqlValue, ...], list[Machine]]] = {}
    for row in rows:
        key = tuple(sort_key_of(part.run(row, context), part.collation) for part in grouping.keys)
        if key not in groups:
            groups[key] = (row, [Machine(call, context) for call in grouping.calls])
        for machine in groups[key][1]:
            machine.feed(row)
    if grouping.implicit and not groups:
        nothing = (*outer, *[None] * (grouping.width - len(outer)))
        groups[()] = (nothing, [Machine(call, context) for call in grouping.calls])
    for row, machines in groups.values():
        results = [machine.result() for machine in machines]
        yield (*row, *results, *[None] * (grouping.spare - len(results)))


def with_slots(scope: Scope, collector: Collector, spare: int) -> Scope:
    """Return the scope in which calls of aggregate functions may stand."""
    return replace(scope, aggregate=collector, spare=spare)
