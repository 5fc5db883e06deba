"""Calls by name: the scalar functions of this folder, and the aggregates that the scope collects.

UPPER(v)           a scalar function: string.py's entry compiles it
SUM(v), COUNT(*)   an aggregate: scope.aggregate takes the node and answers with the slot of its result
other              SqlRefused 1305
"""

from collections.abc import Mapping
from typing import Final

from tidegate.expr.compiled import Compiled
from tidegate.expr.form import Build
from tidegate.expr.function.cast import CAST_FUNCTIONS
from tidegate.expr.function.flow import FLOW_FUNCTIONS
from tidegate.expr.function.form import Function
from tidegate.expr.function.interval import INTERVAL_FUNCTIONS
from tidegate.expr.function.json import JSON_FUNCTIONS
from tidegate.expr.function.number import NUMBER_FUNCTIONS
from tidegate.expr.function.string import STRING_FUNCTIONS
from tidegate.expr.function.time import TIME_FUNCTIONS
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused

__all__ = ["AGGREGATES", "CALLS", "FUNCTIONS", "is_aggregate"]

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
        shown = f"{scope.database}.{name.lower()}" if scope.database else name.lower()
        raise SqlRefused(_UNKNOWN_FUNCTION, f"FUNCTION {shown} does not exist", "42000")
    return build(node, scope)


CALLS: Final[Mapping[str, Build]] = {"Anonymous": _call}
"""By class of the node."""
