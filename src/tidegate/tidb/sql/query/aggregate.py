"""Aggregate functions: each one a small machine that is fed the values of a group.

    make() -> feed(values), result()          values: the arguments for one row

    COUNT(*)  COUNT(a)  COUNT(DISTINCT a, b)      SUM, AVG: exact of integers and decimals, doubles of the rest
    MIN, MAX by collation      GROUP_CONCAT(a ORDER BY b SEPARATOR '-')      BIT_AND BIT_OR BIT_XOR
    JSON_ARRAYAGG JSON_OBJECTAGG      STD VARIANCE and their like

NULLs do not count, but for COUNT(*) and the two of JSON; no value at all gives NULL (COUNT 0, BIT_AND all ones).
Source: MySQL manual, "Aggregate Function Descriptions".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from tidegate.expr.compiled import Compiled
from tidegate.expr.context import Context
from tidegate.expr.relation import Row
from tidegate.expr.result_type import (
    BINARY,
    DOUBLE,
    INT,
    JSON,
    TEXT,
    UINT,
    ValueFamily,
    agreed,
    decimal_type,
    digits_of,
    number_family,
)
from tidegate.expr.scope import Scope
from tidegate.expr.value.compare import compare, sort_key_of
from tidegate.expr.value.json import as_member
from tidegate.expr.value.kinds import JsonDatum, SqlValue, Unsigned
from tidegate.expr.value.number import EXACT, MAX_UINT, Number, float_of, integer_of, number_of, rounded, wrapped
from tidegate.expr.value.text import string_of
from tidegate.kv.json.value import JsonValue
from tidegate.model.table import ColumnType

__all__ = ["Aggregate", "Machine", "type_of_aggregate"]

_CUT: Final = 1260
DIV_INCREMENT: Final = 4
DEFAULT_CONCAT_BYTES: Final = 1_048_576
"""group_concat_max_len."""


@dataclass(frozen=True)
class Aggregate:
    """One call: its name, arguments, and what GROUP_CONCAT adds to them."""

    name: str
    args: tuple[Compiled, ...]
    distinct: bool = False
    order: tuple[tuple[Compiled, bool], ...] = ()
    """(expression, descending)"""
    separator: str = ","
    star: bool = False


@dataclass
class Machine:
    """What a group has fed so far."""

    call: Aggregate
    context: Context
    rows: list[tuple[Row, tuple[SqlValue, ...]]] = field(default_factory=list)
    seen: set[Any] = field(default_factory=set)
    count: int = 0

    def feed(self, row: Row) -> None:
        """Take one row of the group."""
        if self.call.star:
            self.count += 1
            return
        values = tuple(arg.run(row, self.context) for arg in self.call.args)
        if self.call.name not in _TAKES_NULL and None in values:
            return
        if self.call.distinct:
            key = tuple(sort_key_of(value, arg.collation) for value, arg in zip(values, self.call.args, strict=True))
            if key in self.seen:
                return
            self.seen.add(key)
        self.count += 1
        if self.call.name != "COUNT":
            self.rows.append((row if self.call.order else (), values))

    def result(self) -> SqlValue:
        """Return the function's value for the group."""
        return _RESULTS[self.call.name](self)

    @property
    def kind(self) -> ColumnType:
        """The type of the first argument."""
        return self.call.args[0].type

    def numbers(self) -> list[Number]:
        """Return the first arguments as numbers."""
        found = (number_of(values[0], self.kind, self.context) for _, values in self.rows)
        return [number for number in found if number is not None]

    def integers(self) -> list[int]:
        """Return the first arguments as 64 bits."""
        found = (integer_of(values[0], self.kind, self.context) for _, values in self.rows)
        return [wrapped(number) for number in found if number is not None]

    def floats(self) -> list[float]:
        """Return the first arguments as doubles."""
        found = (float_of(values[0], self.kind, self.context) for _, values in self.rows)
        return [number for number in found if number is not None]


_TAKES_NULL: Final = frozenset({"JSON_ARRAYAGG", "JSON_OBJECTAGG"})


def _sum(machine: Machine) -> SqlValue:
    numbers = machine.numbers()
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


def _average(machine: Machine) -> SqlValue:
    total = _sum(machine)
    if total is None:
        return None
    if isinstance(total, float):
        return total / machine.count
    assert isinstance(total, Decimal), total
    return rounded(EXACT.divide(total, Decimal(machine.count)), min(digits_of(machine.kind)[1] + DIV_INCREMENT, 30))


def _extreme(wanted: int) -> Callable[[Machine], SqlValue]:
    def result(machine: Machine) -> SqlValue:
        best: SqlValue = None
        arg, kinds = machine.call.args[0], (machine.kind, machine.kind)
        for _, (value, *_rest) in machine.rows:
            if best is None or compare(value, best, kinds, arg.collation, machine.context) == wanted:
                best = value
        return best

    return result


def _group_concat(machine: Machine) -> SqlValue:
    if not machine.rows:
        return None
    rows = machine.rows
    for key, descending in reversed(machine.call.order):
        rows = sorted(
            rows,
            key=lambda fed, key=key: sort_key_of(key.run(fed[0], machine.context), key.collation),  # type: ignore[misc]
            reverse=descending,
        )
    parts = ["".join(string_of(value, arg.type) or "" for value, arg in _paired(machine, fed)) for fed in rows]
    text = machine.call.separator.join(parts)
    limit = machine.context.variables.get("group_concat_max_len", DEFAULT_CONCAT_BYTES)
    data = text.encode("utf-8", "surrogateescape")
    if not isinstance(limit, int) or len(data) <= limit:
        return text
    machine.context.warn(_CUT, "Some rows were cut by GROUP_CONCAT()")
    return data[:limit].decode("utf-8", "ignore")


def _paired(machine: Machine, fed: tuple[Row, tuple[SqlValue, ...]]) -> list[tuple[SqlValue, Compiled]]:
    return list(zip(fed[1], machine.call.args, strict=True))


def _bits(start: int, fold: Callable[[int, int], int]) -> Callable[[Machine], SqlValue]:
    def result(machine: Machine) -> SqlValue:
        found = start
        for number in machine.integers():
            found = fold(found, number)
        return Unsigned(found)

    return result


def _array(machine: Machine) -> SqlValue:
    return JsonDatum([as_member(values[0], machine.kind) for _, values in machine.rows]) if machine.rows else None


def _object(machine: Machine) -> SqlValue:
    made: dict[str, JsonValue] = {}
    for fed in machine.rows:
        (key, key_arg), (value, arg) = _paired(machine, fed)
        made[string_of(key, key_arg.type) or ""] = as_member(value, arg.type)
    return JsonDatum(made) if machine.rows else None


def _variance(*, sample: bool, root: bool) -> Callable[[Machine], SqlValue]:
    def result(machine: Machine) -> SqlValue:
        numbers = machine.floats()
        if len(numbers) < (2 if sample else 1):
            return None
        mean = sum(numbers) / len(numbers)
        found = sum((number - mean) ** 2 for number in numbers) / (len(numbers) - sample)
        return float(found**0.5) if root else found

    return result


def _count(machine: Machine) -> SqlValue:
    return machine.count


_RESULTS: Final[Mapping[str, Callable[[Machine], SqlValue]]] = {
    "APPROX_COUNT_DISTINCT": _count,
    "AVG": _average,
    "BIT_AND": _bits(MAX_UINT, int.__and__),
    "BIT_OR": _bits(0, int.__or__),
    "BIT_XOR": _bits(0, int.__xor__),
    "COUNT": _count,
    "GROUP_CONCAT": _group_concat,
    "JSON_ARRAYAGG": _array,
    "JSON_OBJECTAGG": _object,
    "MAX": _extreme(1),
    "MIN": _extreme(-1),
    "STD": _variance(sample=False, root=True),
    "STDDEV": _variance(sample=False, root=True),
    "STDDEV_POP": _variance(sample=False, root=True),
    "STDDEV_SAMP": _variance(sample=True, root=True),
    "SUM": _sum,
    "VARIANCE": _variance(sample=False, root=False),
    "VAR_POP": _variance(sample=False, root=False),
    "VAR_SAMP": _variance(sample=True, root=False),
}
_UNSIGNED: Final = frozenset({"BIT_AND", "BIT_OR", "BIT_XOR"})


def type_of_aggregate(call: Aggregate, scope: Scope) -> tuple[ColumnType, str]:
    """(type, collation) of what a call gives."""
    name = call.name
    if name in _UNSIGNED:
        return UINT, "binary"
    if name in {"COUNT", "APPROX_COUNT_DISTINCT"}:
        return INT, "binary"
    if name in _TAKES_NULL:
        return JSON, "utf8mb4_bin"
    if name == "GROUP_CONCAT":
        collation, _ = agreed(call.args, scope)
        return (BINARY if collation == "binary" else TEXT), collation
    first = call.args[0]
    if name in {"MIN", "MAX"}:
        return first.type, first.collation
    return _number_type(name, call.args), "binary"


def _number_type(name: str, args: Sequence[Compiled]) -> ColumnType:
    kind = args[0].type
    if name not in {"SUM", "AVG"} or number_family(kind) is ValueFamily.REAL:
        return DOUBLE
    whole, scale = digits_of(kind)
    if name == "SUM":
        return decimal_type(whole + scale + 22, scale)
    return decimal_type(whole + scale + DIV_INCREMENT, scale + DIV_INCREMENT)
