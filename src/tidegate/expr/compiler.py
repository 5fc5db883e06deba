"""Expressions: from a node of the parser, or a text, to a function of the row.

    compile_scalar(node, scope)        a + 1, upper(v), EXISTS (SELECT ..)
    compile_text("`a` + 1", scope)     a generated column, DEFAULT (..), an index on an expression, a partition

    operator/literal     operands            operator/compare     = < <=> IN BETWEEN IS      function/    calls
    operator/arithmetic  + - * / DIV %       operator/pattern     LIKE REGEXP
    operator/bits        & | ^ << >> ~       operator/logic       AND OR XOR NOT CASE

(SELECT ..) is compiled where there are queries: tidb/sql/query/select.py adds it to the same table.

Source: MySQL manual, "Expressions"; TiDB's expression package.
"""

from functools import lru_cache

from tidegate.expr.compiled import Compiled
from tidegate.expr.form import builder, compile_scalar
from tidegate.expr.function.calls import CALLS
from tidegate.expr.operator.arithmetic import ARITHMETIC
from tidegate.expr.operator.bits import BITS
from tidegate.expr.operator.compare import COMPARISONS
from tidegate.expr.operator.literal import LITERALS
from tidegate.expr.operator.logic import LOGIC
from tidegate.expr.operator.pattern import PATTERNS
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.syntax.parse import parse_expression

__all__ = ["compile_scalar", "compile_text"]

for _table in (LITERALS, ARITHMETIC, BITS, COMPARISONS, PATTERNS, LOGIC, CALLS):
    builder(_table)


def compile_text(sql_text: str, scope: Scope, sql_mode: frozenset[str] = frozenset()) -> Compiled:
    """Return the function of a row that an expression's text stands for; SqlRefused 1064 when it is none."""
    return compile_scalar(_parsed(sql_text, sql_mode), scope)


@lru_cache(maxsize=1024)
def _parsed(sql_text: str, sql_mode: frozenset[str]) -> Node:
    return parse_expression(sql_text, sql_mode)
