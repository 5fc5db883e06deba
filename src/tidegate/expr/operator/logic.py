"""AND, OR, XOR, NOT and CASE, with the unknown as the third truth value.

    AND   1  0  ?        OR   1  0  ?        XOR   1  0  ?        NOT
     1    1  0  ?         1   1  1  1         1    0  1  ?         1 -> 0
     0    0  0  0         0   1  0  ?         0    1  0  ?         0 -> 1
     ?    ?  0  ?         ?   1  ?  ?         ?    ?  ?  ?         ? -> ?

What is decided is not looked at any further, so its warnings and errors do not come.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from tidegate.expr.compiled import Compiled, Evaluate
from tidegate.expr.form import Build, compile_scalar
from tidegate.expr.relation import Row
from tidegate.expr.result_type import BOOL, agreed, converter, shared
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.model.table import ColumnType
from tidegate.mysql.context import Context
from tidegate.mysql.value.compare import compare
from tidegate.mysql.value.kinds import SqlValue
from tidegate.mysql.value.number import truth_of

Truth: TypeAlias = Callable[[Row, Context], bool | None]


def truth(value: Compiled) -> Truth:
    """Return whether `value` counts as true."""
    run, kind = value.run, value.type
    return lambda row, context: truth_of(run(row, context), kind, context)


def _connected(*, decides: bool) -> Build:
    """AND is decided by a false operand, OR by a true one."""

    def build(node: Node, scope: Scope) -> Compiled:
        tests = [truth(compile_scalar(part, scope)) for part in _chain(node)]

        def run(row: Row, context: Context) -> SqlValue:
            unknown = False
            for test in tests:
                found = test(row, context)
                if found is decides:
                    return int(decides)
                unknown = unknown or found is None
            return None if unknown else int(not decides)

        return Compiled(run, BOOL)

    return build


def _chain(node: Node) -> list[Node]:
    """A AND b AND c as one list, however deep the nodes are."""
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


def _not(node: Node, scope: Scope) -> Compiled:
    test = truth(compile_scalar(node.this, scope))

    def run(row: Row, context: Context) -> SqlValue:
        found = test(row, context)
        return None if found is None else int(not found)

    return Compiled(run, BOOL)


def as_shared(values: Sequence[Compiled], scope: Scope) -> tuple[Compiled, list[Evaluate]]:
    """Return the form that several values share, and each of them made so."""
    kind, collation, rank = shared(values, scope)
    return Compiled(_never, kind, collation, rank), [_converted(value, kind) for value in values]


def _never(_row: Row, _context: Context) -> SqlValue:
    raise AssertionError


def _converted(value: Compiled, kind: ColumnType) -> Evaluate:
    convert = converter(value.type, kind)
    run, source = value.run, value.type
    if convert is None:
        return run

    def converted(row: Row, context: Context) -> SqlValue:
        found = run(row, context)
        return None if found is None else convert(found, source, context)

    return converted


def chosen(tests: Sequence[Truth], values: Sequence[Compiled], scope: Scope) -> Compiled:
    """Return the value of the first test that is true; the last value has no test."""
    form, runs = as_shared(values, scope)
    branches, default = list(zip(tests, runs, strict=False)), runs[-1]

    def run(row: Row, context: Context) -> SqlValue:
        for test, value in branches:
            if test(row, context):
                return value(row, context)
        return default(row, context)

    return Compiled(run, form.type, form.collation, form.rank)


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
    "Not": _not,
    "Case": _case,
}
"""By class of the node."""
