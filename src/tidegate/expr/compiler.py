"""Compiler of expressions: from a node of the parser, or a text, to a function of the row.

    compile_scalar(node, scope)        a + 1, upper(v)
    compile_text("`a` + 1", scope)     a generated column, DEFAULT (..), an index on an expression, a partition
    condition_node(text)               a condition of the configuration, "price > 10 AND name LIKE 'x%'", as a node

Importing this module registers all compiling functions by class of node (form.py): operands, arithmetic and bits of
arithmetic.py, comparisons, patterns and logic of comparison.py, and calls.  A call is looked up by name in `FUNCTIONS`.
SUM(v) and other aggregates are compiled by the scope, which knows the slot of their result.  An unknown name is
SqlRefused 1305; a subquery is SqlRefused 1235.

`value_reader` turns the value of an event ("12.50") into one of an expression (Decimal), TIMESTAMPs on the clocks of a
zone.  Where no CREATE TABLE is known, only the type is: `wide_bit` then gives a BIT 64 bits, and `assumed_collation`
compares texts by utf8mb4_bin.

Source: MySQL manual, "Expressions"; TiDB's expression package.
"""

from collections.abc import Callable, Mapping
from datetime import tzinfo
from functools import lru_cache
from typing import Any, Final

import msgspec
from sqlglot import exp

from tidegate.expr.arithmetic import ARITHMETIC, BITS, LITERALS
from tidegate.expr.comparison import COMPARISONS, LOGIC, PATTERNS
from tidegate.expr.dialect import Node
from tidegate.expr.form import Build, builder, compile_scalar
from tidegate.expr.functions import CAST_FUNCTIONS, FLOW_FUNCTIONS, NUMBER_FUNCTIONS, Function
from tidegate.expr.parse import Dml, parse_expression, parse_statements
from tidegate.expr.scope import Compiled, Scope
from tidegate.expr.text_functions import JSON_FUNCTIONS, STRING_FUNCTIONS
from tidegate.expr.time_functions import INTERVAL_FUNCTIONS, TIME_FUNCTIONS
from tidegate.model.errors import ExpressionParseFailed, SqlRefused
from tidegate.model.event import Value
from tidegate.model.mysql import STRINGS, MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType
from tidegate.mysql.column_value import parse_value
from tidegate.mysql.values import DEFAULT_COLLATION, SqlValue, from_column

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
    """Compile the text of an expression to a function of a row; SqlRefused 1064 when it cannot be parsed."""
    return compile_scalar(_parsed(sql_text, sql_mode), scope)


@lru_cache(maxsize=1024)
def _parsed(sql_text: str, sql_mode: frozenset[str]) -> Node:
    return parse_expression(sql_text, sql_mode)


_TEXTS: Final = STRINGS | {MysqlType.ENUM, MysqlType.SET, MysqlType.JSON}
_BITS: Final = 64
_CLAUSES: Final = frozenset({"expressions", "from", "from_", "where", "kind"})


@lru_cache(maxsize=256)
def condition_node(text: str, sql_mode: frozenset[str] = frozenset()) -> Any:
    """Return the node of a condition as in WHERE; ExpressionParseFailed if the text cannot be parsed."""
    try:
        statements = parse_statements(f"SELECT 1 FROM t WHERE {text}", sql_mode)  # noqa: S608  # parsed, never executed
    except SqlRefused as refused:
        raise ExpressionParseFailed(f"{text!r} is not an expression{_near(refused.message)}") from refused
    node = statements[0].node if len(statements) == 1 and isinstance(statements[0], Dml) else None
    clauses = {name for name, value in (node.args.items() if isinstance(node, exp.Select) else ()) if value}
    if node is None or not clauses or not clauses <= _CLAUSES or "where" not in clauses:
        raise ExpressionParseFailed(f"{text!r} is not an expression: expected a condition such as price > 10")
    return node.args["where"].this


def _near(message: str) -> str:
    """Return the text at which the parser stopped, without line and column, which count text added to the user's."""
    _, near, text = message.rpartition(" near ")
    return f":{near}{text}" if near else f": {message}"


def value_reader(kind: ColumnType, clocks: tzinfo, zone: tzinfo) -> Callable[[Value], SqlValue]:
    """Return a function from a value of an event to one of an expression; TIMESTAMPs move from `clocks` to `zone`."""
    return lambda value: from_column(kind, parse_value(kind, value, clocks), zone)


def wide_bit(kind: ColumnType) -> ColumnType:
    """Return the type, with 64 bits for a BIT of unknown width."""
    return msgspec.structs.replace(kind, flen=_BITS) if kind.code is MysqlType.BIT and kind.flen < 1 else kind


def assumed_collation(kind: ColumnType) -> str:
    """Return the collation of a column of which only the type is known."""
    return DEFAULT_COLLATION if kind.code in _TEXTS and kind.charset != "binary" else "binary"
