"""ORDER BY, LIMIT and DISTINCT, which queries and unions share.

    in_order   by several keys, NULL first, texts by their collation
    cut        LIMIT n OFFSET m, without reading further than that
    unlike     each row once: the first of those that compare equal

A plain number in ORDER BY or GROUP BY is the place of a select item.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeAlias

from tidegate.expr.compiled import Compiled
from tidegate.expr.context import Context
from tidegate.expr.form import compile_scalar
from tidegate.expr.relation import ResultColumn, Row
from tidegate.expr.scope import Scope, Slot
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.value.compare import sort_key_of
from tidegate.expr.value.kinds import SqlValue
from tidegate.model.errors import SqlRefused
from tidegate.tidb.sql.query.source import Query

__all__ = [
    "Bracketed",
    "Limit",
    "Order",
    "Rows",
    "cut",
    "in_order",
    "limits_of",
    "order_of_columns",
    "placed",
    "row_key",
    "slot_reader",
    "unlike",
]

Rows: TypeAlias = Iterator[tuple[SqlValue, ...]]
Order: TypeAlias = Sequence[tuple[Compiled, bool]]
"""(key, descending)"""
Limit: TypeAlias = Compiled | None
_UNKNOWN_PLACE: Final = 1054
_WRONG_ARGUMENTS: Final = 1210


def limits_of(node: Node, env: Scope) -> tuple[Limit, Limit]:
    """LIMIT and OFFSET."""
    limit, offset = node.args.get("limit"), node.args.get("offset")
    counts = (limit.expression if limit is not None else None, offset.expression if offset is not None else None)
    first, second = (None if count is None else compile_scalar(count, replace(env, slots=())) for count in counts)
    return first, second


def cut(rows: Rows, limit: Limit, offset: Limit, context: Context) -> Rows:
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
        key = row_key(row, columns)
        if key not in seen:
            seen.add(key)
            yield row


def row_key(row: Row, columns: Sequence[ResultColumn]) -> tuple[Any, ...]:
    """Return what rows that compare equal share."""
    return tuple(sort_key_of(value, column.collation) for value, column in zip(row, columns, strict=False))


@dataclass(frozen=True)
class Bracketed:
    """A query with ORDER BY and LIMIT around it."""

    columns: tuple[ResultColumn, ...]
    inner: Query
    limit: Limit
    offset: Limit
    order: Order

    def rows(self, outer: Row, context: Context) -> Rows:
        """Return the rows for one outer row."""
        rows = self.inner.rows(outer, context)
        if self.order:
            keys = [key for key, _ in self.order]
            rows = iter(in_order(rows, lambda row: [key.run(row, context) for key in keys], self.order))
        return cut(rows, self.limit, self.offset, context)


def order_of_columns(node: Node, columns: Sequence[ResultColumn], env: Scope) -> Order:
    """ORDER BY of a union: it names the answer's columns."""
    order = node.args.get("order")
    if order is None:
        return ()
    slots = tuple(Slot(at, column.name, column.type, column.collation) for at, column in enumerate(columns))
    scope = replace(env, outer=None, slots=slots, clause="order clause")
    found: list[tuple[Compiled, bool]] = []
    for term in order.expressions:
        place = placed(term.this, len(columns))
        key = compile_scalar(term.this, scope) if place is None else slot_reader(slots[place])
        found.append((key, bool(term.args.get("desc"))))
    return tuple(found)


def slot_reader(slot: Slot) -> Compiled:
    """Return a column of a row as an expression."""
    index = slot.index
    return Compiled(lambda row, _context: row[index], slot.type, slot.collation, 2)


def placed(node: Node, count: int, clause: str = "order clause") -> int | None:
    """Return the select item that a plain number in ORDER BY or GROUP BY means, from 0."""
    if type(node).__name__ != "Literal" or node.is_string or not node.this.isdigit():
        return None
    if not 1 <= int(node.this) <= count:
        raise SqlRefused(_UNKNOWN_PLACE, f"Unknown column '{node.this}' in '{clause}'", "42S22")
    return int(node.this) - 1
