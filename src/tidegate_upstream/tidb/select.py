"""SELECT: joins, filters, grouping and ordering over relations.

    select(parse("SELECT a+1 FROM t")[0].node, relations, context)  ->  ResultSet(columns, rows)

    FROM, WHERE ─► GROUP BY, aggregates ─► HAVING ─► select list ─► ORDER BY ─► DISTINCT ─► LIMIT

A relation is a table, a view or something of information_schema; DUAL is one row without columns.  Relations are joined
one after the other, each adding its slots to the row.  A conjunct of WHERE is tested as soon as all its columns are
there; `col = constant` and `col IN (constants)` become the hint `equal` of a scan.

    t1, t2 JOIN t3 ON ..        scan t1 ─► step t2 ─► step t3 ─► rows: t1's slots, t2's, t3's

Of subqueries only IN (SELECT ..) is supported; its values are computed first.  FOR UPDATE is accepted without effect
here.  A select item is named by its alias, a column's own name, or its text: SELECT a+1 gives `a+1`.  An integer in
ORDER BY or GROUP BY is the position of a select item.

GROUP BY makes one row per group:

    group row  columns of the group's first row | SUM(a) | COUNT(*) | ..

so column references keep working, and a call of an aggregate function reads the slot assigned to it when it was
compiled.  Without GROUP BY all rows are one group, which exists even if there is no row.  NULLs are ignored except by
COUNT(*); without any value the result is NULL (of COUNT 0).

    COUNT(*)  COUNT(a)  COUNT(DISTINCT a, b)      SUM, AVG: exact for integers and decimals, doubles for the rest
    MIN, MAX by collation

Source: MySQL manual, "SELECT Statement", "Aggregate Function Descriptions".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

from sqlglot import exp

from tidegate.expr.comparison import Truth, truth
from tidegate.expr.compiler import compile_scalar, is_aggregate
from tidegate.expr.dialect import Node
from tidegate.expr.form import refuse
from tidegate.expr.result_type import DOUBLE, INT, decimal_type, digits_of, number_family
from tidegate.expr.scope import Compiled, RelationColumn, Relations, ResultColumn, ResultSet, Row, Scope, Slot
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import Family
from tidegate.model.name import all_digits, lowered
from tidegate.model.table import ColumnType
from tidegate.mysql.values import DEFAULT_COLLATION, EXACT, Context, SqlValue, compare, number_of, rounded, sort_key_of

Rows: TypeAlias = Iterator[tuple[SqlValue, ...]]
_NO_DATABASE: Final = 1046
_NOT_SUPPORTED: Final = 1235
_NOT_PARTITIONED: Final = 1747
Equal: TypeAlias = Mapping[str, tuple[SqlValue, ...]]


@dataclass(frozen=True)
class _FromItem:
    alias: str
    schema: str
    columns: tuple[RelationColumn, ...]
    scan: Callable[[Equal, Context], Iterable[tuple[SqlValue, ...]]]

    def slots(self, start: int) -> tuple[Slot, ...]:
        """Return the columns' slots in a row that begin at `start`."""
        return tuple(
            Slot(start + index, column.name, column.type, column.collation, self.alias, self.schema, column.hidden)
            for index, column in enumerate(self.columns)
        )


def _source_of(node: Node, scope: Scope, relations: Relations) -> _FromItem | None:
    """Return the source of one item of FROM; None for DUAL. SqlRefused 1146, 1046, 1235."""
    if type(node).__name__ != "Table":
        kind = type(node).__name__
        raise SqlRefused(_NOT_SUPPORTED, f"This version of Tidegate doesn't yet support {kind} in FROM", "42000")
    name, schema = node.name, node.db
    alias = node.alias or name
    if node.args.get("sample") is not None:
        raise SqlRefused(_NOT_SUPPORTED, "This version of Tidegate doesn't yet support 'TABLESAMPLE'", "42000")
    if not schema and name.upper() == "DUAL":
        return None
    schema = schema or scope.database
    if not schema:
        raise SqlRefused(_NO_DATABASE, "No database selected", "3D000")
    relation = relations.relation(schema, name)
    partition = node.args.get("partition")
    if partition is not None:
        of_partitions = getattr(relation, "of_partitions", None)
        if of_partitions is None:
            raise SqlRefused(_NOT_PARTITIONED, "PARTITION () clause on non partitioned table", "HY000")
        relation = of_partitions([part.name for part in partition.expressions])
    return _FromItem(alias, schema, relation.columns, relation.rows)


@dataclass
class _Step:
    """One source and its join with the sources before it; the first one has none before it."""

    source: _FromItem
    start: int
    kind: str = "INNER"
    on: list[Node] = field(default_factory=list)
    condition: list[Truth] = field(default_factory=list)
    hints: list[tuple[str, list[Compiled]]] = field(default_factory=list)
    after: list[Truth] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.source.columns)


@dataclass(frozen=True)
class Joined:
    """The rows of FROM that pass WHERE."""

    scope: Scope
    steps: tuple[_Step, ...]
    tests: tuple[Truth, ...]
    """Parts of WHERE that are evaluated last: they need all columns, or none."""

    def rows(self, context: Context) -> Rows:
        """Return the rows."""
        rows: Rows = iter(((),))
        for step in self.steps:
            rows = _run(step, rows, context)
        return _filtered(rows, self.tests, context)


def conjuncts(node: Node | None) -> list[Node]:
    """Return the operands of AND."""
    if node is None:
        return []
    if type(node).__name__ == "And":
        return [*conjuncts(node.this), *conjuncts(node.expression)]
    if type(node).__name__ == "Paren" and type(node.this).__name__ == "And":
        return conjuncts(node.this)
    return [node]


def _filtered(rows: Rows, tests: Sequence[Truth], context: Context) -> Rows:
    if not tests:
        return rows
    return (row for row in rows if all(test(row, context) for test in tests))


def _run(step: _Step, lefts: Rows, context: Context) -> Rows:
    equal: dict[str, tuple[SqlValue, ...]] = {}
    for name, values in step.hints:
        results = tuple(value.run((), context) for value in values)
        equal[name] = tuple(value for value in results if value is not None)
    rights = [tuple(row) for row in step.source.scan(equal, context)]
    return _filtered(_joined(step, lefts, rights, context), step.after, context)


def _joined(step: _Step, lefts: Rows, rights: Sequence[tuple[SqlValue, ...]], context: Context) -> Rows:
    nothing = (None,) * len(step.source.columns)
    for left in lefts:
        matched = False
        for right in rights:
            joined = left + right
            if all(test(joined, context) for test in step.condition):
                matched = True
                yield joined
        if not matched and step.kind == "LEFT":
            yield left + nothing


def joined(select: Node, env: Scope, relations: Relations) -> Joined:
    """Compile FROM and WHERE of a SELECT; `env` is the enclosing scope."""
    builder = _Builder(env, relations)
    from_ = select.args.get("from_")
    if from_ is not None:
        builder.add_tree(from_.this, None)
        for join in select.args.get("joins") or ():
            builder.add_join(join)
    where = select.args.get("where")
    return builder.finish(conjuncts(where.this if where is not None else None))


class _Builder:
    def __init__(self, env: Scope, relations: Relations) -> None:
        self.env, self.relations = env, relations
        self.slots: list[Slot] = []
        self.steps: list[_Step] = []

    @property
    def scope(self) -> Scope:
        return replace(self.env, slots=tuple(self.slots), clause="where clause")

    def add_tree(self, node: Node, join: Node | None) -> None:
        """Add a table, or tables joined in brackets."""
        kind = type(node).__name__
        inner = node.this if kind == "Paren" or (kind == "Subquery" and type(node.this).__name__ == "Table") else None
        if inner is not None and not node.alias:
            self.add_tree(inner, join)
        else:
            self.add(node, join)
        for nested in node.args.get("joins") or ():
            self.add_join(nested)

    def add_join(self, join: Node) -> None:
        """Add a JOIN, or the next table after a comma."""
        self.add_tree(join.this, join)

    def add(self, node: Node, join: Node | None) -> None:
        """Add a source."""
        source = _source_of(node, self.env, self.relations)
        if source is None:
            return
        step = _Step(source, len(self.slots), _side(join))
        if join is not None:
            step.on += conjuncts(join.args.get("on"))
        self.slots += source.slots(step.start)
        self.steps.append(step)

    def finish(self, where: Sequence[Node]) -> Joined:
        """Assign the conditions to sources and compile them."""
        scope = self.scope
        tests: list[Truth] = []
        for part in where:
            own = [slot.index for column in part.find_all(exp.Column) for slot in self._own(column, scope)]
            test = truth(compile_scalar(part, scope))
            if not own:
                tests.append(test)
                continue
            step = next(step for step in self.steps if max(own) < step.end)
            step.after.append(test)
            self._hint(part, scope)
        for step in self.steps:
            visible = replace(scope, slots=tuple(s for s in self.slots if s.index < step.end), clause="on clause")
            for part in step.on:
                step.condition.append(truth(compile_scalar(part, visible)))
        return Joined(scope, tuple(self.steps), tuple(tests))

    @staticmethod
    def _own(column: Node, scope: Scope) -> Sequence[Slot]:
        return scope.own(column.name, column.table, column.db)

    def _hint(self, part: Node, scope: Scope) -> None:
        """Use `column = constant` and `column IN (constants)` for the scan of the column's source."""
        equality = equality_of(part)
        if equality is None:
            return
        column, values = equality
        own = self._own(column, scope)
        if len(own) != 1 or any(self._own(name, scope) for value in values for name in value.find_all(exp.Column)):
            return
        step = next(step for step in self.steps if own[0].index < step.end)
        if step.kind != "LEFT":
            step.hints.append((lowered(column.name), [compile_scalar(value, scope) for value in values]))


def equality_of(part: Node) -> tuple[Node, list[Node]] | None:
    """Return (column, values) of `column = value`, `value = column` and `column IN (values)`."""
    kind = type(part).__name__
    if kind == "In" and type(part.this).__name__ == "Column" and part.expressions:
        return part.this, part.expressions
    if kind == "EQ" and type(part.this).__name__ == "Column":
        return part.this, [part.expression]
    if kind == "EQ" and type(part.expression).__name__ == "Column":
        return part.expression, [part.this]
    return None


def _side(join: Node | None) -> str:
    if join is None:
        return "INNER"
    words = [str(join.args.get(part) or "").upper() for part in ("method", "side")]
    if join.args.get("using") or {"NATURAL", "RIGHT", "FULL"} & {*words}:
        shown = " ".join(word for word in words if word) or "USING"
        raise SqlRefused(1235, f"This version of Tidegate doesn't yet support '{shown} JOIN'", "42000")
    return words[1] or "INNER"


_WRONG_COUNT: Final = 1582
_DIV_INCREMENT: Final = 4


def has_aggregate(node: Node) -> bool:
    """Return whether a node calls an aggregate function."""
    return is_aggregate(node) or any(map(has_aggregate, node.iter_expressions()))


# --- the functions ---


@dataclass(frozen=True)
class _Aggregate:
    name: str
    args: tuple[Compiled, ...]
    distinct: bool = False

    @property
    def kind(self) -> ColumnType:
        return self.args[0].type


@dataclass
class _Machine:
    call: _Aggregate
    context: Context
    values: list[SqlValue] = field(default_factory=list)
    """Values of the first argument, for all functions but COUNT."""
    seen: set[Any] = field(default_factory=set)
    count: int = 0

    def feed(self, row: Row) -> None:
        """Add a row of the group."""
        values = tuple(arg.run(row, self.context) for arg in self.call.args)
        if None in values:
            return
        if self.call.distinct:
            key = tuple(sort_key_of(value, arg.collation) for value, arg in zip(values, self.call.args, strict=True))
            if key in self.seen:
                return
            self.seen.add(key)
        self.count += 1
        if self.call.name != "COUNT":
            self.values.append(values[0])

    def result(self) -> SqlValue:
        """Return the function's value for the group."""
        return _RESULTS[self.call.name](self)


def _sum(machine: _Machine) -> SqlValue:
    parts = [number_of(value, machine.call.kind, machine.context) for value in machine.values]
    numbers = [number for number in parts if number is not None]
    if not numbers:
        return None
    if any(isinstance(number, float) for number in numbers):
        total = 0.0
        for number in numbers:
            total += float(number)
        return total
    exact = Decimal(0)
    for number in numbers:
        exact = EXACT.add(exact, Decimal(number))
    return exact


def _average(machine: _Machine) -> SqlValue:
    total = _sum(machine)
    if total is None:
        return None
    if isinstance(total, float):
        return total / machine.count
    assert isinstance(total, Decimal), total
    return rounded(
        EXACT.divide(total, Decimal(machine.count)), min(digits_of(machine.call.kind)[1] + _DIV_INCREMENT, 30)
    )


def _extreme(sign: int) -> Callable[[_Machine], SqlValue]:
    def result(machine: _Machine) -> SqlValue:
        best: SqlValue = None
        arg = machine.call.args[0]
        for value in machine.values:
            if best is None or compare(value, best, (arg.type, arg.type), arg.collation, machine.context) == sign:
                best = value
        return best

    return result


_RESULTS: Final[Mapping[str, Callable[[_Machine], SqlValue]]] = {
    "AVG": _average,
    "COUNT": lambda machine: machine.count,
    "MAX": _extreme(1),
    "MIN": _extreme(-1),
    "SUM": _sum,
}


def _type_of(call: _Aggregate) -> tuple[ColumnType, str]:
    if call.name == "COUNT":
        return INT, "binary"
    if call.name in {"MIN", "MAX"}:
        return call.kind, call.args[0].collation
    if number_family(call.kind) is Family.FLOAT:
        return DOUBLE, "binary"
    whole, scale = digits_of(call.kind)
    if call.name == "SUM":
        return decimal_type(whole + scale + 22, scale), "binary"
    return decimal_type(whole + scale + _DIV_INCREMENT, scale + _DIV_INCREMENT), "binary"


# --- the groups ---


@dataclass
class Collector:
    """Assigns each aggregate call its slot after the columns of `scope`."""

    scope: Scope
    calls: list[_Aggregate] = field(default_factory=list)
    compiled: dict[Node, Compiled] = field(default_factory=dict)

    def __call__(self, node: Node) -> Compiled:
        """Return the reader of a call's slot; equal calls share one."""
        if node not in self.compiled:
            call = self._call(node)
            kind, collation = _type_of(call)
            index = self.scope.width + len(self.calls)
            self.calls.append(call)
            self.compiled[node] = Compiled(lambda row, _context: row[index], kind, collation, 2)
        return self.compiled[node]

    def _call(self, node: Node) -> _Aggregate:
        name, parts = node.name, list(node.expressions)
        if not parts:
            raise SqlRefused(
                _WRONG_COUNT, f"Incorrect parameter count in the call to native function '{name}'", "42000"
            )
        if type(parts[0]).__name__ == "Star":
            return _Aggregate(name, ())
        distinct = type(parts[0]).__name__ == "Distinct"
        args = tuple(compile_scalar(part, self.scope) for part in (parts[0].expressions if distinct else parts))
        return _Aggregate(name, args, distinct)


@dataclass(frozen=True)
class Grouping:
    """The plan of GROUP BY."""

    keys: tuple[Compiled, ...]
    calls: Sequence[_Aggregate]
    width: int
    """Number of slots in a row before those of the aggregates."""
    implicit: bool
    """True without GROUP BY, which always has one group."""


def grouped_rows(rows: Iterator[tuple[SqlValue, ...]], grouping: Grouping, context: Context) -> Rows:
    """Return one row for each group, in the order in which the groups begin."""
    groups: dict[Any, tuple[tuple[SqlValue, ...], list[_Machine]]] = {}
    for row in rows:
        key = tuple(sort_key_of(part.run(row, context), part.collation) for part in grouping.keys)
        if key not in groups:
            groups[key] = (row, [_Machine(call, context) for call in grouping.calls])
        for machine in groups[key][1]:
            machine.feed(row)
    if grouping.implicit and not groups:
        groups[()] = ((None,) * grouping.width, [_Machine(call, context) for call in grouping.calls])
    for row, machines in groups.values():
        yield (*row, *[machine.result() for machine in machines])


_NO_TABLES: Final = 1096
_UNKNOWN_TABLE: Final = 1051


Order: TypeAlias = Sequence[tuple[Compiled, bool]]
"""(key, descending)"""
Limit: TypeAlias = Compiled | None
_Row = TypeVar("_Row")
_UNKNOWN_COLUMN: Final = 1054
_WRONG_ARGUMENTS: Final = 1210


def select(node: Node, relations: Relations, context: Context) -> ResultSet:
    """Return the answer to a query; SqlRefused as TiDB refuses."""
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
        items = [item.run for item in self.items]
        if not self.order:
            computed = (tuple(run(row, context) for run in items) for row in rows)
            return _unlike(computed, self.columns) if self.distinct else computed
        keys = [key.run for key, _ in self.order]
        pairs = ((tuple(run(row, context) for run in items), [run(row, context) for run in keys]) for row in rows)
        ordered = (row for row, _ in in_order(pairs, lambda pair: pair[1], self.order))
        return _unlike(ordered, self.columns) if self.distinct else ordered


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
    """Return `node` with IN (SELECT ..) replaced by its values; SqlRefused 1235 for values but numbers and texts."""
    node = node.copy()
    for member in list(node.find_all(exp.In)):
        query = member.args.get("query")
        if query is None or member.parent_select is not node:
            continue
        values = [value for (value,) in select(query, relations, context).rows]
        if not all(value is None or isinstance(value, int | str) for value in values):
            raise refuse(member)
        member.set("query", None)
        member.set("expressions", [exp.convert(int(item) if isinstance(item, int) else item) for item in values])
        if not values:
            member.replace(exp.false())
    return node


def _bare(item: Node) -> Node:
    return item.this if type(item).__name__ == "Alias" else item


def _expanded(item: Node, source: Joined) -> Iterator[Node]:
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
    """Return the columns of the select list by bare name, for ORDER BY and HAVING; ambiguous names are left out."""
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
    terms: list[tuple[Compiled, bool]] = []
    ordered = scope.at("order clause")
    for term in order.expressions:
        position = _item_at(term.this, len(items))
        node = term.this if position is None else _bare(items[position])
        terms.append((compile_scalar(node, ordered), bool(term.args.get("desc"))))
    return tuple(terms)


def _group_keys(
    group: Node | None, items: Sequence[Node], scope: Scope, aliases: dict[str, Node]
) -> tuple[Compiled, ...]:
    if group is None:
        return ()
    if group.args.get("rollup"):
        raise SqlRefused(1235, "This version of Tidegate doesn't yet support 'WITH ROLLUP'", "42000")
    keys = []
    for key in group.expressions:
        position = _item_at(key, len(items), "group statement")
        node = key if position is None else _bare(items[position])
        if type(node).__name__ == "Column" and not node.table and not scope.has(node.name):
            node = aliases.get(lowered(node.name), node)
        keys.append(compile_scalar(node, scope.at("group statement")))
    return tuple(keys)


# --- ORDER BY, LIMIT and DISTINCT ---


def limits_of(node: Node, env: Scope) -> tuple[Limit, Limit]:
    """Return LIMIT and OFFSET."""
    limit, offset = node.args.get("limit"), node.args.get("offset")
    counts = (limit.expression if limit is not None else None, offset.expression if offset is not None else None)
    first, second = (None if count is None else compile_scalar(count, replace(env, slots=())) for count in counts)
    return first, second


def cut(rows: Iterator[_Row], limit: Limit, offset: Limit, context: Context) -> Iterator[_Row]:
    """Return at most `limit` of `rows` from `offset` on; SqlRefused 1210 for an invalid count."""
    start = 0 if offset is None else _count(offset, context)
    return rows if limit is None and not start else islice(rows, start, _stop(limit, start, context))


def _stop(limit: Limit, start: int, context: Context) -> int | None:
    return None if limit is None else start + _count(limit, context)


def _count(value: Compiled, context: Context) -> int:
    number = value.run((), context)
    if not isinstance(number, int) or number < 0:
        raise SqlRefused(_WRONG_ARGUMENTS, "Incorrect arguments to LIMIT", "HY000")
    return int(number)


def in_order(rows: Iterable[Any], keys: Callable[[Any], Row], order: Order) -> list[Any]:
    """Return `rows` sorted by several keys: by the last one first, since sorting is stable."""
    ordered = list(rows)
    for position, (key, descending) in reversed(list(enumerate(order))):
        values = [sort_key_of(keys(row)[position], key.collation) for row in ordered]
        order_of_rows = sorted(range(len(ordered)), key=values.__getitem__, reverse=descending)
        ordered = [ordered[index] for index in order_of_rows]
    return ordered


def _unlike(rows: Rows, columns: Sequence[ResultColumn]) -> Rows:
    seen: set[Any] = set()
    for row in rows:
        key = tuple(sort_key_of(value, column.collation) for value, column in zip(row, columns, strict=True))
        if key not in seen:
            seen.add(key)
            yield row


def _item_at(node: Node, count: int, clause: str = "order clause") -> int | None:
    """Return the index of the select item that a plain number in ORDER BY or GROUP BY means."""
    if type(node).__name__ != "Literal" or node.is_string or not all_digits(node.this):
        return None
    if not 1 <= int(node.this) <= count:
        raise SqlRefused(_UNKNOWN_COLUMN, f"Unknown column '{node.this}' in '{clause}'", "42S22")
    return int(node.this) - 1
