"""Expressions in configuration: a text in the SQL of WHERE, and what its columns are while it runs.

    "price > 10 AND name LIKE 'x%'" ──condition_node──► node ──compile_scalar──► Compiled

    value of an event   "12.50"  ──value_reader──►  Decimal          TIMESTAMPs on the clocks of a zone

A text without a CREATE TABLE behind it tells less: BIT has 64 bits, texts compare by utf8mb4_bin.
"""

from collections.abc import Callable
from datetime import tzinfo
from functools import lru_cache
from typing import Any, Final

import msgspec
from sqlglot import exp

from tidegate.expr.syntax.parse import Dml, parse
from tidegate.model.errors import SqlRefused
from tidegate.model.event import Value
from tidegate.model.feed_errors import ExpressionParseFailed
from tidegate.model.mysql import STRINGS, MysqlType
from tidegate.model.table import ColumnType
from tidegate.mysql.column_parse import parse_value
from tidegate.mysql.context import DEFAULT_COLLATION
from tidegate.mysql.value.kinds import SqlValue, from_column

_TEXTS: Final = STRINGS | {MysqlType.ENUM, MysqlType.SET, MysqlType.JSON}
_BITS: Final = 64
_CLAUSES: Final = frozenset({"expressions", "from", "from_", "where", "kind"})


@lru_cache(maxsize=256)
def condition_node(text: str, sql_mode: frozenset[str] = frozenset()) -> Any:
    """Return the node of an expression that may stand in WHERE. ExpressionParseFailed for a text that is none."""
    try:
        found = parse(f"SELECT 1 FROM t WHERE {text}", sql_mode)  # noqa: S608  # parsed, never executed
    except SqlRefused as refused:
        raise ExpressionParseFailed(f"{text!r} is no expression{_near(refused.message)}") from refused
    node = found[0].node if len(found) == 1 and isinstance(found[0], Dml) else None
    clauses = {name for name, value in (node.args.items() if isinstance(node, exp.Select) else ()) if value}
    if node is None or not clauses or not clauses <= _CLAUSES or "where" not in clauses:
        raise ExpressionParseFailed(f"{text!r} is no expression: write a condition such as price > 10")
    return node.args["where"].this


def _near(message: str) -> str:
    """Where the parser stopped; its line and column count from words that the user did not write."""
    _, near, text = message.rpartition(" near ")
    return f":{near}{text}" if near else f": {message}"


def value_reader(kind: ColumnType, clocks: tzinfo, zone: tzinfo) -> Callable[[Value], SqlValue]:
    """Return what makes a value of an event, whose TIMESTAMPs are on some clocks, one of an expression."""
    return lambda value: from_column(kind, parse_value(kind, value, clocks), zone)


def wide_bit(kind: ColumnType) -> ColumnType:
    """Return the type; a BIT of which only the type is told, as wide as it may be."""
    return msgspec.structs.replace(kind, flen=_BITS) if kind.code is MysqlType.BIT and kind.flen < 1 else kind


def told_collation(kind: ColumnType) -> str:
    """Return the collation of a column of which only the type is told."""
    return DEFAULT_COLLATION if kind.code in _TEXTS and kind.charset != "binary" else "binary"
