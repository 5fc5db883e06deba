"""SELECT: a node of the parser and relations in, an answer out.

    select(parse("SELECT a+1 FROM t")[0].node, relations, context)  ->  ResultSet(columns, rows)

    FROM, WHERE ─► GROUP BY, aggregates ─► HAVING ─► select list ─► ORDER BY ─► DISTINCT ─► LIMIT
    join.py        group.py                here      here           here

Of subqueries there is IN (SELECT ..) alone, whose values come first.  FOR UPDATE is accepted and does nothing here.

A select item is named by its alias, a column's own name, or its text: SELECT a+1 gives `a+1`.  A plain number in
ORDER BY or GROUP BY is the place of a select item.
Source: MySQL manual, "SELECT Statement".
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

from sqlglot import exp

from tidegate.expr.compiled import Compiled
from tidegate.expr.compiler import compile_scalar
from tidegate.expr.form import refuse
from tidegate.expr.operator.logic import Truth, truth
from tidegate.expr.relation import Relations, ResultColumn, ResultSet, Row
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused
from tidegate.model.name import all_digits, lowered
from tidegate.mysql.context import DEFAULT_COLLATION, Context
from tidegate.mysql.value.compare import sort_key_of
from tidegate.mysql.value.kinds import SqlValue
from tidegate_upstream.tidb.sql.query.group import Collector, Grouping, grouped_rows, has_aggregate
from tidegate_upstream.tidb.sql.query.join import Joined, joined

_NO_TABLES: Final = 1096
_UNKNOWN_TABLE: Final = 1051


Rows: TypeAlias = Iterator[tuple[SqlValue, ...]]
Order: TypeAlias = Sequence[tuple[Compiled, bool]]
"""(key, descending)"""
Limit: TypeAlias = Compiled | None
_Row = TypeVar("_Row")
_UNKNOWN_PLACE: Final = 1054
_WRONG_ARGUMENTS: Final = 1210


def select(node: Node, relations: Relations, context: Context) -> ResultSet:
    """Return the answer to a query; SqlRefused for what TiDB refuses."""
    kind = type(node).__name__
    if kind == "Subquery" and not any(node.args.get(part) for part in ("with_", "order", "limit", "offset")):
        return select(node.this, relations, context)
    if kind != "Select" or node.args.get("with_") is not None:
        shown = kind.upper() if kind != "Select" else "WITH"
        raise SqlRefused(1235, f"This version of Tidegate doesn't yet support '{shown}'", "42000")
    query = _compiled(node, relations, context)
    return ResultSet(query.columns, list(query.rows(context)))


@dataclass(frozen=True)
class _Select:
    """A compiled SELECT."""

    columns: tuple[ResultColumn, ...]
    source: Joined
    grouping: Grouping | None
    having: Truth | None
    items: tuple[Compiled, ...]
    order: Order
    distinct: bool
    limit: Limit
    offset: Limit

    def rows(self, context: Context) -> Rows:
        """Return the rows."""
        rows = self.source.rows(context)
        if self.grouping is not None:
            rows = grouped_rows(rows, self.grouping, context)
        if self.having is not None:
            test = self.having
            rows = (row for row in rows if test(row, context))
        return cut(self._listed(rows, context), self.limit, self.offset, context)

    def _listed(self, rows: Rows, context: Context) -> Rows:
        """The select list of each row, in order."""
        items = [item.run for item in self.items]
        if not self.order:
            made = (tuple(run(row, context) for run in items) for row in rows)
            return _unlike(made, self.columns) if self.distinct else made
        keys = [key.run for key, _ in self.order]
        both = ((tuple(run(row, context) for run in items), [run(row, context) for run in keys]) for row in rows)
        found = (row for row, _ in in_order(both, lambda pair: pair[1], self.order))
        return _unlike(found, self.columns) if self.distinct else found


def _compiled(node: Node, relations: Relations, context: Context) -> _Select:
    collation = str(context.variables.get("collation_connection", DEFAULT_COLLATION))
    env = Scope(database=context.database, context=context, collation=collation)
    node = _answered(node, relations, context)
    source = joined(node, env, relations)
    rows_scope = replace(source.scope, clause="field list")
    items = [part for item in node.expressions for part in _expanded(item, source)]
    aliases = {lowered(item.alias): item.this for item in items if type(item).__name__ == "Alias"}
    listed = {**_listed_columns(items), **aliases}
    having, order, group = (node.args.get(name) for name in ("having", "order", "group"))
    collector = Collector(rows_scope)
    grouped = group is not None or any(has_aggregate(part) for part in (*items, having, order) if part is not None)
    scope = replace(rows_scope, aggregate=collector) if grouped else rows_scope
    compiled = tuple(compile_scalar(_bare(item), scope) for item in items)
    late = replace(scope, aliases=listed)
    test = None if having is None else truth(compile_scalar(having.this, late.at("having clause")))
    terms = _terms(order, items, late)
    columns = tuple(_column(item, value, rows_scope) for item, value in zip(items, compiled, strict=True))
    keys = _group_keys(group, items, rows_scope, aliases)
    grouping = Grouping(keys, collector.calls, rows_scope.width, group is None) if grouped else None
    distinct = node.args.get("distinct") is not None
    return _Select(columns, source, grouping, test, compiled, terms, distinct, *limits_of(node, env))


def _answered(node: Node, relations: Relations, context: Context) -> Node:
    """`node` with values in the place of its IN (SELECT ..); SqlRefused 1235 for values but numbers and texts."""
    node = node.copy()
    for member in list(node.find_all(exp.In)):
        query = member.args.get("query")
        if query is None or member.parent_select is not node:
            continue
        values = [value for (value,) in select(query, relations, context).rows]
        if not all(value is None or isinstance(value, int | str) for value in values):
            raise refuse(member)
        member.set("query", None)
        member.set("expressions", [exp.convert(int(one) if isinstance(one, int) else one) for one in values])
        if not values:
            member.replace(exp.false())
    return node


def _bare(item: Node) -> Node:
    return item.this if type(item).__name__ == "Alias" else item


def _expanded(item: Node, source: Joined) -> Iterator[Node]:
    """A select item; `*` and `t.*` are many."""
    star = type(item).__name__ == "Star" or (type(item).__name__ == "Column" and type(item.this).__name__ == "Star")
    if not star:
        yield item
        return
    table = lowered(item.table) if type(item).__name__ == "Column" else ""
    slots = [s for s in source.scope.slots if not s.hidden and (not table or lowered(s.table) == table)]
    if not source.scope.slots and not table:
        raise SqlRefused(_NO_TABLES, "No tables used", "HY000")
    if table and not any(lowered(slot.table) == table for slot in source.scope.slots):
        raise SqlRefused(_UNKNOWN_TABLE, f"Unknown table '{item.table}'", "42S02")
    for slot in slots:
        identifier, qualifier = exp.Identifier(this=slot.name), exp.Identifier(this=slot.table)
        schema = exp.Identifier(this=slot.schema) if slot.schema else None
        yield exp.Column(this=identifier, table=qualifier if slot.table else None, db=schema)


def _listed_columns(items: Sequence[Node]) -> dict[str, Node]:
    """Columns of the select list by bare name, which ORDER BY and HAVING take for them; doubtful names left out."""
    columns = [item for item in items if type(item).__name__ == "Column"]
    tables: dict[str, set[str]] = {}
    for column in columns:
        tables.setdefault(lowered(column.name), set()).add(lowered(column.table))
    return {lowered(column.name): column for column in columns if len(tables[lowered(column.name)]) == 1}


def _column(item: Node, value: Compiled, scope: Scope) -> ResultColumn:
    bare = _bare(item)
    table = ""
    if type(bare).__name__ == "Column" and scope.has(bare.name, bare.table):
        table = scope.find(bare.name, bare.table, bare.db).table
    return ResultColumn(_name(item), value.type, value.collation, table)


def _name(item: Node) -> str:
    """The name of a select item."""
    kind = type(item).__name__
    if kind == "Alias":
        return str(item.alias)
    if kind == "Introducer":
        return _name(item.expression)
    if kind == "Column" or (kind == "Literal" and item.is_string):
        return str(item.name)
    return str(item.meta.get("source") or item.sql(dialect="mysql"))


def _terms(order: Node | None, items: Sequence[Node], scope: Scope) -> Order:
    if order is None:
        return ()
    found: list[tuple[Compiled, bool]] = []
    ordered = scope.at("order clause")
    for term in order.expressions:
        place = _placed(term.this, len(items))
        node = term.this if place is None else _bare(items[place])
        found.append((compile_scalar(node, ordered), bool(term.args.get("desc"))))
    return tuple(found)


def _group_keys(
    group: Node | None, items: Sequence[Node], scope: Scope, aliases: dict[str, Node]
) -> tuple[Compiled, ...]:
    if group is None:
        return ()
    if group.args.get("rollup"):
        raise SqlRefused(1235, "This version of Tidegate doesn't yet support 'WITH ROLLUP'", "42000")
    found = []
    for key in group.expressions:
        place = _placed(key, len(items), "group statement")
        node = key if place is None else _bare(items[place])
        if type(node).__name__ == "Column" and not node.table and not scope.has(node.name):
            node = aliases.get(lowered(node.name), node)
        found.append(compile_scalar(node, scope.at("group statement")))
    return tuple(found)


# --- ORDER BY, LIMIT and DISTINCT ---


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


def _unlike(rows: Rows, columns: Sequence[ResultColumn]) -> Rows:
    """Return the rows, each once."""
    seen: set[Any] = set()
    for row in rows:
        key = tuple(sort_key_of(value, column.collation) for value, column in zip(row, columns, strict=True))
        if key not in seen:
            seen.add(key)
            yield row


def _placed(node: Node, count: int, clause: str = "order clause") -> int | None:
    """Return the select item that a plain number in ORDER BY or GROUP BY means, from 0."""
    if type(node).__name__ != "Literal" or node.is_string or not all_digits(node.this):
        return None
    if not 1 <= int(node.this) <= count:
        raise SqlRefused(_UNKNOWN_PLACE, f"Unknown column '{node.this}' in '{clause}'", "42S22")
    return int(node.this) - 1
