"""= <> < <= > >= <=> BETWEEN IN IS: 1, 0, or NULL for unknown.

    a = NULL   NULL          a <=> NULL   0 or 1          a IN (1, NULL)   1, else NULL
    (a, b) < (c, d)          a < c, or a = c and b < d

What is compared with what is value/compare.py's.
Source: MySQL manual, "Comparison Functions and Operators".
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from tidegate.expr.compiled import Compiled, Evaluate
from tidegate.expr.form import Build, compile_scalar, refuse
from tidegate.expr.relation import Row
from tidegate.expr.result_type import BOOL, ValueFamily, agreed, family_of
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused
from tidegate.mysql.context import NO_CONTEXT, Context
from tidegate.mysql.value.compare import compare
from tidegate.mysql.value.kinds import SqlValue
from tidegate.mysql.value.number import truth_of

Order: TypeAlias = Callable[[Row, Context], int | None]
_COLUMNS: Final = 1241


def operands(node: Node, scope: Scope) -> tuple[Compiled, ...]:
    """Return the parts of a row in brackets; one for everything else."""
    if type(node).__name__ == "Tuple":
        return tuple(compile_scalar(part, scope) for part in node.expressions)
    return (compile_scalar(node, scope),)


def _order_of(left: Compiled, right: Compiled, scope: Scope) -> Order:
    collation, _ = agreed((left, right), scope)
    run_left, run_right, kinds = left.run, right.run, (left.type, right.type)

    def order(row: Row, context: Context) -> int | None:
        return compare(run_left(row, context), run_right(row, context), kinds, collation, context)

    return order


def _orders(node: Node, scope: Scope) -> list[Order]:
    left, right = operands(node.this, scope), operands(node.expression, scope)
    if len(left) != len(right):
        raise SqlRefused(_COLUMNS, f"Operand should contain {len(left)} column(s)", "21000")
    return [_order_of(first, second, scope) for first, second in zip(left, right, strict=True)]


def _comparison(accepts: frozenset[int]) -> Build:
    """< and its like: of rows, the first parts that differ decide."""

    def build(node: Node, scope: Scope) -> Compiled:
        orders = _orders(node, scope)
        if len(orders) == 1:
            return Compiled(_judged(orders[0], accepts), BOOL)

        def run(row: Row, context: Context) -> SqlValue:
            for order in orders:
                found = order(row, context)
                if found != 0:
                    return None if found is None else int(found in accepts)
            return int(0 in accepts)

        return Compiled(run, BOOL)

    return build


def _judged(order: Order, accepts: frozenset[int]) -> Evaluate:
    def run(row: Row, context: Context) -> SqlValue:
        found = order(row, context)
        return None if found is None else int(found in accepts)

    return run


def equality(orders: Sequence[Order]) -> Evaluate:
    """Return whether all are equal; NULL when one is unknown and none differs."""

    def run(row: Row, context: Context) -> SqlValue:
        unknown = False
        for order in orders:
            found = order(row, context)
            if found is None:
                unknown = True
            elif found:
                return 0
        return None if unknown else 1

    return run


def _equal(node: Node, scope: Scope) -> Compiled:
    return Compiled(equality(_orders(node, scope)), BOOL)


def _negated(run: Evaluate) -> Evaluate:
    def turned(row: Row, context: Context) -> SqlValue:
        found = run(row, context)
        return None if found is None else int(not found)

    return turned


def _not_equal(node: Node, scope: Scope) -> Compiled:
    return Compiled(_negated(equality(_orders(node, scope))), BOOL)


def _null_safe(node: Node, scope: Scope) -> Compiled:
    left, right = operands(node.this, scope), operands(node.expression, scope)
    pairs = list(zip(left, right, strict=True))
    orders = [_order_of(first, second, scope) for first, second in pairs]

    def run(row: Row, context: Context) -> SqlValue:
        for (first, second), order in zip(pairs, orders, strict=True):
            nulls = (first.run(row, context) is None) + (second.run(row, context) is None)
            if nulls == 1 or (nulls == 0 and order(row, context) != 0):
                return 0
        return 1

    return Compiled(run, BOOL)


def _between(node: Node, scope: Scope) -> Compiled:
    value, low, high = (compile_scalar(part, scope) for part in (node.this, node.args["low"], node.args["high"]))
    above, below = _order_of(value, low, scope), _order_of(value, high, scope)

    def run(row: Row, context: Context) -> SqlValue:
        first, second = above(row, context), below(row, context)
        if (first is not None and first < 0) or (second is not None and second > 0):
            return 0
        return None if first is None or second is None else 1

    return Compiled(run, BOOL)


def member_test(values: tuple[Compiled, ...], members: Sequence[tuple[Compiled, ...]], scope: Scope) -> Evaluate:
    """Return whether the values are one of the members."""
    if any(len(member) != len(values) for member in members):
        raise SqlRefused(_COLUMNS, f"Operand should contain {len(values)} column(s)", "21000")
    quick = _integers(values, members)
    tests = [
        equality([_order_of(value, part, scope) for value, part in zip(values, member, strict=True)])
        for member in members
    ]

    def run(row: Row, context: Context) -> SqlValue:
        if quick is not None:
            value = values[0].run(row, context)
            if value is None or isinstance(value, int):
                return None if value is None else int(value in quick)
        unknown = False
        for test in tests:
            found = test(row, context)
            if found:
                return 1
            unknown = unknown or found is None
        return None if unknown else 0

    return run


def _integers(values: tuple[Compiled, ...], members: Sequence[tuple[Compiled, ...]]) -> frozenset[Any] | None:
    """The members when all are integer literals and one integer is asked for."""
    if len(values) != 1 or family_of(values[0].type) is not ValueFamily.INT:
        return None
    if not all(member[0].constant and family_of(member[0].type) is ValueFamily.INT for member in members):
        return None
    return frozenset(member[0].run((), NO_CONTEXT) for member in members)


def _in(node: Node, scope: Scope) -> Compiled:
    if node.args.get("query") is not None:
        raise refuse(node)
    members = [operands(member, scope) for member in node.expressions]
    return Compiled(member_test(operands(node.this, scope), members, scope), BOOL)


def _is(node: Node, scope: Scope) -> Compiled:
    value, wanted = compile_scalar(node.this, scope), type(node.expression).__name__
    negate = bool(node.args.get("negate"))
    run_value, kind = value.run, value.type
    truth = bool(node.expression.this) if wanted == "Boolean" else None
    if wanted not in {"Null", "Boolean"}:
        raise SqlRefused(1064, "IS takes NULL, TRUE, FALSE or UNKNOWN", "42000")

    def run(row: Row, context: Context) -> SqlValue:
        found = run_value(row, context)
        known = found is not None if truth is None else truth_of(found, kind, context)
        return int((known is truth if truth is not None else not known) is not negate)

    return Compiled(run, BOOL)


COMPARISONS: Final[Mapping[str, Build]] = {
    "EQ": _equal,
    "NEQ": _not_equal,
    "NullSafeEQ": _null_safe,
    "LT": _comparison(frozenset({-1})),
    "LTE": _comparison(frozenset({-1, 0})),
    "GT": _comparison(frozenset({1})),
    "GTE": _comparison(frozenset({1, 0})),
    "Between": _between,
    "In": _in,
    "Is": _is,
}
"""By class of the node."""
