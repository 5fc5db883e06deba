"""The operators of bits: & | ^ << >> ~ on unsigned numbers of 64 bits.

    -1 >> 1  9223372036854775807      1 << 64  0      2.5 & 7  3: operands are rounded, and turn round below 0

Source: MySQL manual, "Bit Functions and Operators".
"""

import operator
from collections.abc import Callable, Mapping
from typing import Final

from tidegate.expr.compiled import Compiled
from tidegate.expr.form import Build, compile_scalar
from tidegate.expr.relation import Row
from tidegate.expr.result_type import (
    UINT,
)
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.mysql.context import Context
from tidegate.mysql.value.kinds import SqlValue, Unsigned
from tidegate.mysql.value.number import (
    MAX_UINT,
    integer_of,
    wrapped,
)


def _bitwise(apply: Callable[[int, int], int]) -> Build:
    def build(node: Node, scope: Scope) -> Compiled:
        left, right = compile_scalar(node.this, scope), compile_scalar(node.expression, scope)

        def run(row: Row, context: Context) -> SqlValue:
            first = integer_of(left.run(row, context), left.type, context)
            second = integer_of(right.run(row, context), right.type, context)
            if first is None or second is None:
                return None
            return Unsigned(apply(wrapped(first), wrapped(second)) & MAX_UINT)

        return Compiled(run, UINT)

    return build


def _inverted(node: Node, scope: Scope) -> Compiled:
    value = compile_scalar(node.this, scope)

    def run(row: Row, context: Context) -> SqlValue:
        found = integer_of(value.run(row, context), value.type, context)
        return None if found is None else Unsigned(~wrapped(found) & MAX_UINT)

    return Compiled(run, UINT)


BITS: Final[Mapping[str, Build]] = {
    "BitwiseAnd": _bitwise(operator.and_),
    "BitwiseOr": _bitwise(operator.or_),
    "BitwiseXor": _bitwise(operator.xor),
    "BitwiseLeftShift": _bitwise(lambda left, right: left << right if right < 64 else 0),
    "BitwiseRightShift": _bitwise(lambda left, right: left >> right if right < 64 else 0),
    "BitwiseNot": _inverted,
}
"""By class of the node."""
