"""Expressions: from a node of the parser, or a text, to a function of the row.

    compile_scalar(node, scope)        a + 1, upper(v), EXISTS (SELECT ..)
    compile_text("`a` + 1", scope)     a generated column, DEFAULT (..), an index on an expression, a partition

    operator/literal     operands            operator/compare     = < <=> IN BETWEEN IS      function/    calls
    operator/arithmetic  + - * / DIV %       operator/pattern     LIKE REGEXP
    operator/bits        & | ^ << >> ~       operator/logic       AND OR XOR NOT CASE

A call is looked up by its name: UPPER(v) is string.py's, SUM(v) an aggregate, for which the scope answers with the
slot of its result; any other is SqlRefused 1305.

(SELECT ..) is in no table: subqueries are SqlRefused 1235.

Source: MySQL manual, "Expressions"; TiDB's expression package.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from tidegate.expr.compiled import Compiled
from tidegate.expr.form import Build, builder, compile_scalar
from tidegate.expr.function.cast import CAST_FUNCTIONS
from tidegate.expr.function.flow import FLOW_FUNCTIONS
from tidegate.expr.function.form import Function
from tidegate.expr.function.interval import INTERVAL_FUNCTIONS
from tidegate.expr.function.json import JSON_FUNCTIONS
from tidegate.expr.function.number import NUMBER_FUNCTIONS
from tidegate.expr.function.string import STRING_FUNCTIONS
from tidegate.expr.function.time import TIME_FUNCTIONS
from tidegate.expr.operator.arithmetic import ARITHMETIC
from tidegate.expr.operator.bits import BITS
from tidegate.expr.operator.compare import COMPARISONS
from tidegate.expr.operator.literal import LITERALS
from tidegate.expr.operator.logic import LOGIC
from tidegate.expr.operator.pattern import PATTERNS
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.syntax.parse import parse_expression
from tidegate.model.errors import SqlRefused
from tidegate.model.name import lowered

__all__ = ["AGGREGATES", "FUNCTIONS", "compile_scalar", "compile_text", "is_aggregate"]

_UNKNOWN_FUNCTION: Final = 1305
_MISPLACED: Final = 1111
AGGREGATES: Final = frozenset({"AVG", "COUNT", "MAX", "MIN", "SUM"})
FUNCTIONS: Final[Mapping[str, Function]] = {
    **CAST_FUNCTIONS,
    **FLOW_FUNCTIONS,
    **INTERVAL_FUNCTIONS,
    **JSON_FUNCTIONS,
    **NUMBER_FUNCTIONS,
    **STRING_FUNCTIONS,
    **TIME_FUNCTIONS,
}


def is_aggregate(node: Node) -> bool:
    """Return whether a node is the call of an aggregate function."""
    return type(node).__name__ == "Anonymous" and node.name in AGGREGATES


def _call(node: Node, scope: Scope) -> Compiled:
    name = node.name
    if name in AGGREGATES:
        if scope.aggregate is None:
            raise SqlRefused(_MISPLACED, "Invalid use of group function", "HY000")
        return scope.aggregate(node)
    build = FUNCTIONS.get(name)
    if build is None:
        shown = f"{scope.database}.{lowered(name)}" if scope.database else lowered(name)
        raise SqlRefused(_UNKNOWN_FUNCTION, f"FUNCTION {shown} does not exist", "42000")
    return build(node, scope)


_CALLS: Final[Mapping[str, Build]] = {"Anonymous": _call}
"""By class of the node."""


for _table in (LITERALS, ARITHMETIC, BITS, COMPARISONS, PATTERNS, LOGIC, _CALLS):
    builder(_table)


def compile_text(sql_text: str, scope: Scope, sql_mode: frozenset[str] = frozenset()) -> Compiled:
    """Return the function of a row that an expression's text stands for; SqlRefused 1064 when it is none."""
    return compile_scalar(_parsed(sql_text, sql_mode), scope)


@lru_cache(maxsize=1024)
def _parsed(sql_text: str, sql_mode: frozenset[str]) -> Node:
    return parse_expression(sql_text, sql_mode)
