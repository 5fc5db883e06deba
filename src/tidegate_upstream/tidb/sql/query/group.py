"""GROUP BY and aggregate functions: many rows become one row for each group.

    row        columns of FROM
    group row  columns of the group's first row | SUM(a) | COUNT(*) | ..

So what names a column keeps working, and a call of an aggregate function reads the slot that it was given when it was
compiled.  Without GROUP BY all rows are one group, and it is there even when no row is.

    COUNT(*)  COUNT(a)  COUNT(DISTINCT a, b)      SUM, AVG: exact of integers and decimals, doubles of the rest
    MIN, MAX by collation

NULLs do not count, but for COUNT(*); no value at all gives NULL (COUNT 0).
Source: MySQL manual, "Aggregate Function Descriptions".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, TypeAlias

from tidegate.expr.compiled import Compiled
from tidegate.expr.compiler import is_aggregate
from tidegate.expr.form import compile_scalar
from tidegate.expr.relation import Row
from tidegate.expr.result_type import DOUBLE, INT, ValueFamily, decimal_type, digits_of, number_family
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused
from tidegate.model.table import ColumnType
from tidegate.mysql.context import Context
from tidegate.mysql.value.compare import compare, sort_key_of
from tidegate.mysql.value.kinds import SqlValue
from tidegate.mysql.value.number import EXACT, number_of, rounded

Rows: TypeAlias = Iterator[tuple[SqlValue, ...]]
_WRONG_COUNT: Final = 1582
_DIV_INCREMENT: Final = 4


def has_aggregate(node: Node) -> bool:
    """Return whether a node calls an aggregate function."""
    return is_aggregate(node) or any(map(has_aggregate, node.iter_expressions()))


# --- the functions ---


@dataclass(frozen=True)
class _Aggregate:
    """One call: its name and arguments; none for COUNT(*)."""

    name: str
    args: tuple[Compiled, ...]
    distinct: bool = False

    @property
    def kind(self) -> ColumnType:
        """The type of the first argument."""
        return self.args[0].type


@dataclass
class _Machine:
    """What a group has fed so far."""

    call: _Aggregate
    context: Context
    values: list[SqlValue] = field(default_factory=list)
    """The first arguments, for all functions but COUNT."""
    seen: set[Any] = field(default_factory=set)
    count: int = 0

    def feed(self, row: Row) -> None:
        """Take one row of the group."""
        values = tuple(arg.run(row, self.context) for arg in self.call.args)
        if None in values:
            return
        if self.call.distinct:
            key = tuple(sort_key_of(value, arg.collation) for value, arg in zip(values, self.call.args, strict=True))
            if key in self.seen:
                return
            self.seen.add(key)
        self.count += 1
        if self.call.name != "COUNT":
            self.values.append(values[0])

    def result(self) -> SqlValue:
        """Return the function's value for the group."""
        return _RESULTS[self.call.name](self)


def _sum(machine: _Machine) -> SqlValue:
    found = [number_of(value, machine.call.kind, machine.context) for value in machine.values]
    numbers = [number for number in found if number is not None]
    if not numbers:
        return None
    if any(isinstance(number, float) for number in numbers):
        total = 0.0
        for number in numbers:
            total += float(number)
        return total
    exact = Decimal(0)
    for number in numbers:
        exact = EXACT.add(exact, Decimal(number))
    return exact


def _average(machine: _Machine) -> SqlValue:
    total = _sum(machine)
    if total is None:
        return None
    if isinstance(total, float):
        return total / machine.count
    assert isinstance(total, Decimal), total
    return rounded(
        EXACT.divide(total, Decimal(machine.count)), min(digits_of(machine.call.kind)[1] + _DIV_INCREMENT, 30)
    )


def _extreme(wanted: int) -> Callable[[_Machine], SqlValue]:
    def result(machine: _Machine) -> SqlValue:
        best: SqlValue = None
        arg = machine.call.args[0]
        for value in machine.values:
            if best is None or compare(value, best, (arg.type, arg.type), arg.collation, machine.context) == wanted:
                best = value
        return best

    return result


_RESULTS: Final[Mapping[str, Callable[[_Machine], SqlValue]]] = {
    "AVG": _average,
    "COUNT": lambda machine: machine.count,
    "MAX": _extreme(1),
    "MIN": _extreme(-1),
    "SUM": _sum,
}


def _type_of(call: _Aggregate) -> tuple[ColumnType, str]:
    """(type, collation) of what a call gives."""
    if call.name == "COUNT":
        return INT, "binary"
    if call.name in {"MIN", "MAX"}:
        return call.kind, call.args[0].collation
    if number_family(call.kind) is ValueFamily.REAL:
        return DOUBLE, "binary"
    whole, scale = digits_of(call.kind)
    if call.name == "SUM":
        return decimal_type(whole + scale + 22, scale), "binary"
    return decimal_type(whole + scale + _DIV_INCREMENT, scale + _DIV_INCREMENT), "binary"


# --- the groups ---


@dataclass
class Collector:
    """Gives each aggregate call its slot behind the columns of `scope`."""

    scope: Scope
    calls: list[_Aggregate] = field(default_factory=list)
    known: dict[Node, Compiled] = field(default_factory=dict)

    def __call__(self, node: Node) -> Compiled:
        """The reader of a call's slot; equal calls share one."""
        if node not in self.known:
            call = self._call(node)
            kind, collation = _type_of(call)
            index = self.scope.width + len(self.calls)
            self.calls.append(call)
            self.known[node] = Compiled(lambda row, _context: row[index], kind, collation, 2)
        return self.known[node]

    def _call(self, node: Node) -> _Aggregate:
        name, parts = node.name, list(node.expressions)
        if not parts:
            raise SqlRefused(
                _WRONG_COUNT, f"Incorrect parameter count in the call to native function '{name}'", "42000"
            )
        if type(parts[0]).__name__ == "Star":
            return _Aggregate(name, ())
        distinct = type(parts[0]).__name__ == "Distinct"
        args = tuple(compile_scalar(part, self.scope) for part in (parts[0].expressions if distinct else parts))
        return _Aggregate(name, args, distinct)


@dataclass(frozen=True)
class Grouping:
    """What GROUP BY asks for."""

    keys: tuple[Compiled, ...]
    calls: Sequence[_Aggregate]
    width: int
    """Slots of a row before the aggregates'."""
    implicit: bool
    """True without GROUP BY: there is one group always."""


def grouped_rows(rows: Iterator[tuple[SqlValue, ...]], grouping: Grouping, context: Context) -> Rows:
    """Return one row for each group, in the order in which the groups begin."""
    groups: dict[Any, tuple[tuple[SqlValue, ...], list[_Machine]]] = {}
    for row in rows:
        key = tuple(sort_key_of(part.run(row, context), part.collation) for part in grouping.keys)
        if key not in groups:
            groups[key] = (row, [_Machine(call, context) for call in grouping.calls])
        for machine in groups[key][1]:
            machine.feed(row)
    if grouping.implicit and not groups:
        groups[()] = ((None,) * grouping.width, [_Machine(call, context) for call in grouping.calls])
    for row, machines in groups.values():
        yield (*row, *[machine.result() for machine in machines])
