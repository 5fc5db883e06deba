"""Compile comparisons, patterns and logic: = <> < <= > >= <=> BETWEEN IN IS, LIKE, REGEXP, AND OR XOR NOT, CASE.

A result is 1, 0, or NULL for unknown ("?" below).

    AND   1  0  ?        OR   1  0  ?        XOR   1  0  ?        NOT
     1    1  0  ?         1   1  1  1         1    0  1  ?         1 -> 0
     0    0  0  0         0   1  0  ?         0    1  0  ?         0 -> 1
     ?    ?  0  ?         ?   1  ?  ?         ?    ?  ?  ?         ? -> ?

Operands after the one that decides are not evaluated, so they raise no warnings and no errors.

    a = NULL             NULL                a <=> NULL       0 or 1
    a IN (1, NULL)       1, else NULL        (a, b) < (c, d)  a < c, or a = c and b < d
    a LIKE 'x%'          by the collation: in a _ci one x equals X, and à equals a; ESCAPE names the escape character
    a REGEXP '^[a-c]'    a search, ignoring case in a _ci collation; Go's syntax, as in TiDB

As what two values of different types are compared is decided in mysql/values.py.

Source: MySQL manual, "Comparison Functions and Operators", "String Comparison Functions and Operators", "Regular
Expressions"; TiDB pkg/expression.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from tidegate.expr.dialect import Node
from tidegate.expr.form import Build, compile_scalar, refuse
from tidegate.expr.result_type import BOOL, agreed, converter, family_of, shared
from tidegate.expr.scope import Compiled, Evaluate, Row, Scope
from tidegate.model.errors import InputError, SqlRefused
from tidegate.model.mysql import Family
from tidegate.model.pattern import RegularExpression, expression, like
from tidegate.model.table import ColumnType
from tidegate.mysql.values import (
    NO_CONTEXT,
    Context,
    SqlValue,
    compare,
    same_kind,
    string_of,
    text_key,
    text_of,
    truth_of,
)

Truth: TypeAlias = Callable[[Row, Context], bool | None]


def truth(value: Compiled) -> Truth:
    """Return whether `value` counts as true."""
    run, kind = value.run, value.type
    return lambda row, context: truth_of(run(row, context), kind, context)


def _connected(*, decides: bool) -> Build:
    """Compile AND and OR: AND is decided by a false operand, OR by a true one."""

    def build(node: Node, scope: Scope) -> Compiled:
        tests = [truth(compile_scalar(part, scope)) for part in _chain(node)]

        def run(row: Row, context: Context) -> SqlValue:
            unknown = False
            for test in tests:
                result = test(row, context)
                if result is decides:
                    return int(decides)
                unknown = unknown or result is None
            return None if unknown else int(not decides)

        return Compiled(run, BOOL)

    return build


def _chain(node: Node) -> list[Node]:
    """Return the operands of a AND b AND c as one list, however deep the nodes are."""
    parts: list[Node] = []
    kind = type(node)
    while type(node) is kind:
        parts.append(node.expression)
        node = node.this
    return [node, *reversed(parts)]


def _xor(node: Node, scope: Scope) -> Compiled:
    left, right = truth(compile_scalar(node.this, scope)), truth(compile_scalar(node.expression, scope))

    def run(row: Row, context: Context) -> SqlValue:
        first, second = left(row, context), right(row, context)
        return None if first is None or second is None else int(first is not second)

    return Compiled(run, BOOL)


def _negated(run: Callable[[Row, Context], object]) -> Compiled:
    def turned(row: Row, context: Context) -> SqlValue:
        truth = run(row, context)
        return None if truth is None else int(not truth)

    return Compiled(turned, BOOL)


def as_shared(values: Sequence[Compiled], scope: Scope) -> tuple[tuple[ColumnType, str, int], list[Evaluate]]:
    """Return the common (type, collation, rank) of several values, and a function for each that converts into it."""
    form = shared(values, scope)
    return form, [_converted(value, form[0]) for value in values]


def _converted(value: Compiled, kind: ColumnType) -> Evaluate:
    convert = converter(value.type, kind)
    run, source = value.run, value.type
    if convert is None:
        return run

    def converted(row: Row, context: Context) -> SqlValue:
        operand = run(row, context)
        return None if operand is None else convert(operand, source, context)

    return converted


def chosen(tests: Sequence[Truth], values: Sequence[Compiled], scope: Scope) -> Compiled:
    """Return the expression of the value whose test is the first to be true; the last value has no test."""
    form, runs = as_shared(values, scope)
    branches, default = list(zip(tests, runs, strict=False)), runs[-1]

    def run(row: Row, context: Context) -> SqlValue:
        for test, value in branches:
            if test(row, context):
                return value(row, context)
        return default(row, context)

    return Compiled(run, *form)


def _case(node: Node, scope: Scope) -> Compiled:
    subject, branches = node.args.get("this"), node.args["ifs"]
    conditions = [compile_scalar(branch.this, scope) for branch in branches]
    values = [compile_scalar(branch.args["true"], scope) for branch in branches]
    default = node.args.get("default")
    values.append(compile_scalar(default, scope) if default is not None else _null(scope))
    if subject is None:
        return chosen([truth(condition) for condition in conditions], values, scope)
    compared = compile_scalar(subject, scope)
    return chosen([_same(compared, condition, scope) for condition in conditions], values, scope)


def _null(scope: Scope) -> Compiled:
    from_null, _, _ = shared((), scope)
    return Compiled(lambda _row, _context: None, from_null, rank=6, constant=True)


def _same(left: Compiled, right: Compiled, scope: Scope) -> Truth:
    collation, _ = agreed((left, right), scope)
    kinds = (left.type, right.type)
    return lambda row, context: compare(left.run(row, context), right.run(row, context), kinds, collation, context) == 0


LOGIC: Final[Mapping[str, Build]] = {
    "And": _connected(decides=False),
    "Or": _connected(decides=True),
    "Xor": _xor,
    "Not": lambda node, scope: _negated(truth(compile_scalar(node.this, scope))),
    "Case": _case,
}
"""By class of the node."""


Order: TypeAlias = Callable[[Row, Context], int | None]
_COLUMNS: Final = 1241


def operands(node: Node, scope: Scope) -> tuple[Compiled, ...]:
    """Return the compiled elements of a row (a, b); a single one for any other expression."""
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
    """<, <=, > and >=; of rows, the first elements that differ decide."""

    def build(node: Node, scope: Scope) -> Compiled:
        orders = _orders(node, scope)
        if len(orders) == 1:
            return Compiled(_judged(orders[0], accepts), BOOL)

        def run(row: Row, context: Context) -> SqlValue:
            for order in orders:
                result = order(row, context)
                if result != 0:
                    return None if result is None else int(result in accepts)
            return int(0 in accepts)

        return Compiled(run, BOOL)

    return build


def _judged(order: Order, accepts: frozenset[int]) -> Evaluate:
    def run(row: Row, context: Context) -> SqlValue:
        result = order(row, context)
        return None if result is None else int(result in accepts)

    return run


def equality(orders: Sequence[Order]) -> Evaluate:
    """Return a function that is true if all pairs are equal; NULL if one is unknown and none differs."""

    def run(row: Row, context: Context) -> SqlValue:
        unknown = False
        for order in orders:
            result = order(row, context)
            if result is None:
                unknown = True
            elif result:
                return 0
        return None if unknown else 1

    return run


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
    """Return the test of IN: whether `values` equal one of `members`."""
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
            truth = test(row, context)
            if truth:
                return 1
            unknown = unknown or truth is None
        return None if unknown else 0

    return run


def _integers(values: tuple[Compiled, ...], members: Sequence[tuple[Compiled, ...]]) -> frozenset[Any] | None:
    """Return the members if they are integer literals and the operand is a single integer, else None."""
    if len(values) != 1 or family_of(values[0].type) is not Family.INT:
        return None
    if not all(member[0].constant and family_of(member[0].type) is Family.INT for member in members):
        return None
    return frozenset(member[0].run((), NO_CONTEXT) for member in members)


def _in(node: Node, scope: Scope) -> Compiled:
    if node.args.get("query") is not None:
        raise refuse(node)
    members = [operands(member, scope) for member in node.expressions]
    return Compiled(member_test(operands(node.this, scope), members, scope), BOOL)


def _is(node: Node, scope: Scope) -> Compiled:
    value, keyword = compile_scalar(node.this, scope), type(node.expression).__name__
    negate = bool(node.args.get("negate"))
    run_value, kind = value.run, value.type
    truth = bool(node.expression.this) if keyword == "Boolean" else None
    if keyword not in {"Null", "Boolean"}:
        raise SqlRefused(1064, "IS takes NULL, TRUE, FALSE or UNKNOWN", "42000")

    def run(row: Row, context: Context) -> SqlValue:
        operand = run_value(row, context)
        judged = operand is not None if truth is None else truth_of(operand, kind, context)
        return int((judged is truth if truth is not None else not judged) is not negate)

    return Compiled(run, BOOL)


COMPARISONS: Final[Mapping[str, Build]] = {
    "EQ": lambda node, scope: Compiled(equality(_orders(node, scope)), BOOL),
    "NEQ": lambda node, scope: _negated(equality(_orders(node, scope))),
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


_BAD_REGEXP: Final = 1139


def folded(collation: str) -> Callable[[str], str]:
    """Return a function that replaces characters that are equal in a collation by one of them, for patterns."""
    if not collation.endswith(("_ci", "_as_cs")):
        return lambda text: text

    @lru_cache(maxsize=4096)
    def canonical(char: str) -> str:
        if char == " ":
            return char
        weight = text_key(collation)(char)
        return seen.setdefault(weight, char) if weight else char

    seen: dict[bytes, str] = {}
    return lambda text: "".join(map(canonical, text))


def _like(node: Node, scope: Scope, escape: str = "\\") -> Compiled:
    value, pattern = compile_scalar(node.this, scope), compile_scalar(node.expression, scope)
    collation, _ = agreed((value, pattern), scope)
    fold = folded(collation)
    negate = bool(node.args.get("negate"))

    def run(row: Row, context: Context) -> SqlValue:
        text, sought = text_of(value.run(row, context), value.type), text_of(pattern.run(row, context), pattern.type)
        if text is None or sought is None:
            return None
        text, sought = same_kind(text, sought)
        if isinstance(text, bytes) or isinstance(sought, bytes):
            text, sought = bytes(text).decode("latin-1"), bytes(sought).decode("latin-1")  # type: ignore[arg-type]
        else:
            text, sought = fold(text), fold(sought)
        return int(like(sought, escape).matches(text) is not negate)

    return Compiled(run, BOOL)


def _escape(node: Node, scope: Scope) -> Compiled:
    return _like(node.this, scope, node.expression.name)


def regexp(pattern: str, flags: str = "") -> RegularExpression:
    """Return a regular expression of TiDB's; flags c, i, m, n, s, the last of c and i counts. SqlRefused 1139 for a
    broken one."""
    if not pattern:
        raise SqlRefused(_BAD_REGEXP, "Got error 'empty pattern is invalid' from regexp", "42000")
    case = flags.rfind("i") > flags.rfind("c")
    try:
        return expression(pattern, "i" * case + "".join(sorted({_FLAGS[flag] for flag in flags if flag in _FLAGS})))
    except InputError as error:
        raise SqlRefused(_BAD_REGEXP, f"Got error 'error parsing regexp: {error}' from regexp", "42000") from error


_FLAGS: Final[Mapping[str, str]] = {"m": "m", "n": "s", "s": "s"}


def _regexp(node: Node, scope: Scope) -> Compiled:
    value, pattern = compile_scalar(node.this, scope), compile_scalar(node.expression, scope)
    flags = "i" if agreed((value, pattern), scope)[0].endswith("_ci") else ""

    def run(row: Row, context: Context) -> SqlValue:
        text, sought = (
            string_of(value.run(row, context), value.type),
            string_of(pattern.run(row, context), pattern.type),
        )
        return None if text is None or sought is None else int(regexp(sought, flags).is_in(text))

    return Compiled(run, BOOL)


PATTERNS: Final[Mapping[str, Build]] = {
    "Like": _like,
    "Escape": _escape,
    "RegexpLike": _regexp,
}
"""By class of the node."""
