"""Expressions: from a node of the parser, or a text, to a function of the row.

    compile_scalar(node, scope)        a + 1, upper(v), EXISTS (SELECT ..)
    compile_text("`a` + 1", scope)     a generated column, DEFAULT (..), an index on an expression, a partition

    expr_literal     operands            expr_compare     = < <=> IN BETWEEN IS      function*    calls
    expr_arithmetic  + - * / DIV %       expr_pattern     LIKE REGEXP                select*      (SELECT ..)
    expr_bits        & | ^ << >> ~       expr_logic       AND OR XOR NOT CASE

Source: MySQL manual, "Expressions"; TiDB's expression package.
"""

from functools import lru_cache

from tidegate.tidb.sql.dialect import Node
from tidegate.tidb.sql.expr_arithmetic import ARITHMETIC
from tidegate.tidb.sql.expr_bits import BITS
from tidegate.tidb.sql.expr_compare import COMPARISONS
from tidegate.tidb.sql.expr_form import Compiled, Evaluate, builder, compile_scalar
from tidegate.tidb.sql.expr_literal import LITERALS
from tidegate.tidb.sql.expr_logic import LOGIC
from tidegate.tidb.sql.expr_pattern import PATTERNS
from tidegate.tidb.sql.function import CALLS
from tidegate.tidb.sql.parse import parse_expression
from tidegate.tidb.sql.scope import Scope
from tidegate.tidb.sql.select_subquery import SUBQUERIES

__all__ = ["Compiled", "Evaluate", "compile_scalar", "compile_text"]

for _table in (LITERALS, ARITHMETIC, BITS, COMPARISONS, PATTERNS, LOGIC, CALLS, SUBQUERIES):
    builder(_table)


def compile_text(sql_text: str, scope: Scope, sql_mode: frozenset[str] = frozenset()) -> Compiled:
    """The function of a row that an expression's text stands for; SqlRefused 1064 when it is none."""
    return compile_scalar(_parsed(sql_text, sql_mode), scope)


@lru_cache(maxsize=1024)
def _parsed(sql_text: str, sql_mode: frozenset[str]) -> Node:
    return parse_expression(sql_text, sql_mode)
