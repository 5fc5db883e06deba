"""FROM: what rows come from, before anything is joined.

t              a relation: a table, a view, something of information_schema
(SELECT ..) d  a derived table: a query that is run once for each run of the outer one
DUAL           one row without columns

FromItem.scan(row, equal, context)    `row` is the outer row, for derived tables inside correlated subqueries
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from tidegate.expr.context import Context
from tidegate.expr.relation import RelationColumn, ResultColumn, Row
from tidegate.expr.scope import Scope, Slot
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.value.kinds import SqlValue
from tidegate.model.errors import SqlRefused

__all__ = ["Compile", "FromItem", "Query", "source_of"]

_NO_DATABASE: Final = 1046
_NO_TABLE: Final = 1146
_NEEDS_ALIAS: Final = 1248
_NOT_SUPPORTED: Final = 1235
Equal: TypeAlias = Mapping[str, tuple[SqlValue, ...]]


class Query(Protocol):
    """A compiled query."""

    @property
    def columns(self) -> tuple[ResultColumn, ...]:
        """What each row has."""
        ...

    def rows(self, outer: Row, context: Context) -> Iterator[tuple[SqlValue, ...]]:
        """Return the rows for one outer row."""
        ...


Compile: TypeAlias = Callable[[Node, Scope], Query]


@dataclass(frozen=True)
class FromItem:
    """Something with rows, under the name by which its columns are qualified."""

    alias: str
    schema: str
    columns: tuple[RelationColumn, ...]
    scan: Callable[[Row, Equal, Context], Iterable[tuple[SqlValue, ...]]]

    def slots(self, start: int) -> tuple[Slot, ...]:
        """Return the columns' places in a row where they begin at `start`."""
        return tuple(
            Slot(start + at, column.name, column.type, column.collation, self.alias, self.schema, column.hidden)
            for at, column in enumerate(self.columns)
        )


def source_of(node: Node, scope: Scope, compile_query: Compile) -> FromItem | None:
    """Return what one item of FROM stands for; None for DUAL. SqlRefused 1146, 1046, 1248."""
    kind = type(node).__name__
    if kind == "Table":
        return _table(node, scope)
    if kind == "Subquery":
        return _derived(node, scope, compile_query)
    raise SqlRefused(_NOT_SUPPORTED, f"This version of Tidegate doesn't yet support {kind} in FROM", "42000")


def _table(node: Node, scope: Scope) -> FromItem | None:
    name, schema = node.name, node.db
    alias = node.alias or name
    if node.args.get("partition") is not None:
        raise SqlRefused(
            _NOT_SUPPORTED, "This version of Tidegate doesn't yet support 'SELECT .. PARTITION (..)'", "42000"
        )
    if not schema and name.upper() == "DUAL":
        return None
    schema = schema or scope.database
    if not schema:
        raise SqlRefused(_NO_DATABASE, "No database selected", "3D000")
    if scope.relations is None:
        raise SqlRefused(_NO_TABLE, f"Table '{schema}.{name}' doesn't exist", "42S02")
    found = scope.relations.relation(schema, name)
    return FromItem(alias, schema, found.columns, lambda _row, equal, context: found.rows(equal, context))


def _derived(node: Node, scope: Scope, compile_query: Compile) -> FromItem:
    alias = node.args.get("alias")
    if alias is None or not alias.name:
        raise SqlRefused(_NEEDS_ALIAS, "Every derived table must have its own alias", "42000")
    if alias.args.get("columns"):
        raise SqlRefused(
            _NOT_SUPPORTED, "This version of Tidegate doesn't yet support names of a derived table's columns", "42000"
        )
    query = compile_query(node.this, scope)
    columns = tuple(RelationColumn(one.name, one.type, collation=one.collation) for one in query.columns)
    return FromItem(alias.name, "", columns, lambda row, _equal, context: query.rows(row, context))
