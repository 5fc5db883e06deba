"""ORDER BY, LIMIT and DISTINCT.

    in_order   by several keys, NULL first, texts by their collation
    cut        LIMIT n OFFSET m, without reading further than that
    unlike     each row once: the first of those that compare equal

A plain number in ORDER BY or GROUP BY is the place of a select item.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

from tidegate.expr.compiled import Compiled
from tidegate.expr.context import Context
from tidegate.expr.form import compile_scalar
from tidegate.expr.relation import ResultColumn, Row
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.value.compare import sort_key_of
from tidegate.expr.value.kinds import SqlValue
from tidegate.model.errors import SqlRefused

__all__ = [
    "Limit",
    "Order",
    "Rows",
    "cut",
    "in_order",
    "limits_of",
    "placed",
    "unlike",
]

Rows: TypeAlias = Iterator[tuple[SqlValue, ...]]
Order: TypeAlias = Sequence[tuple[Compiled, bool]]
"""(key, descending)"""
Limit: TypeAlias = Compiled | None
_Row = TypeVar("_Row")
_UNKNOWN_PLACE: Final = 1054
_WRONG_ARGUMENTS: Final = 1210


def limits_of(node: Node, env: Scope) -> tuple[Limit, Limit]:
    """LIMIT and OFFSET."""
    limit, offset = node.args.get("limit"), node.args.get("offset")
    counts = (limit.expression if limit is not None else None, offset.expression if offset is not None else None)
    first, second = (None if count is None else compile_scalar(count, replace(env, slots=())) for count in counts)
    return first, second


def cut(rows: Iterator[_Row], limit: Limit, offset: Limit, context: Context) -> Iterator[_Row]:
    """`rows` from `offset` on, `limit` of them; SqlRefused 1210 for what is no count."""
    start = 0 if offset is None else _count(offset, context)
    return rows if limit is None and not start else islice(rows, start, _stop(limit, start, context))


def _stop(limit: Limit, start: int, context: Context) -> int | None:
    return None if limit is None else start + _count(limit, context)


def _count(value: Compiled, context: Context) -> int:
    found = value.run((), context)
    if not isinstance(found, int) or found < 0:
        raise SqlRefused(_WRONG_ARGUMENTS, "Incorrect arguments to LIMIT", "HY000")
    return int(found)


def in_order(rows: Iterable[Any], keys: Callable[[Any], Row], order: Order) -> list[Any]:
    """`rows` by several keys: sorted by the last one first, which keeps what later sorts do not tell apart."""
    found = list(rows)
    for at in reversed(range(len(order))):
        found.sort(key=_key_at(keys, at, order[at][0].collation), reverse=order[at][1])
    return found


def _key_at(keys: Callable[[Any], Row], at: int, collation: str) -> Callable[[Any], Any]:
    return lambda row: sort_key_of(keys(row)[at], collation)


def unlike(rows: Rows, columns: Sequence[ResultColumn]) -> Rows:
    """Return the rows, each once."""
    seen: set[Any] = set()
    for row in rows:
        key = tuple(sort_key_of(value, column.collation) for value, column in zip(row, columns, strict=True))
        if key not in seen:
            seen.add(key)
            yield row


def placed(node: Node, count: int, clause: str = "order clause") -> int | None:
    """Return the select item that a plain number in ORDER BY or GROUP BY means, from 0."""
    if type(node).__name__ != "Literal" or node.is_string or not node.this.isdigit():
        return None
    if not 1 <= int(node.this) <= count:
        raise SqlRefused(_UNKNOWN_PLACE, f"Unknown column '{node.this}' in '{clause}'", "42S22")
    return int(node.this) - 1
