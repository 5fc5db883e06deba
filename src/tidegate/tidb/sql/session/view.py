"""What the tables of a statement are made of, for each way to read: in a transaction, in the past, of the system.

    relation(d, t) ──► stored table     OpenTables of a transaction, PastTables at a ts
                   └─► system           information_schema, the views of databases

    node's tools    automatic numbers and shapes of definitions, shared by all sessions of a node

A view is its SELECT, run in the database that it was made in.

Source: TiDB pkg/planner (view expansion), pkg/executor/infoschema_reader.go.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from tidegate.expr.context import Context
from tidegate.expr.relation import FixedRelation, Relation, RelationColumn, Relations, ResultColumn, ResultSet
from tidegate.expr.syntax.dialect import Node as Syntax
from tidegate.expr.syntax.parse import Dml, parse
from tidegate.model.errors import SqlRefused
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate.tidb.information.relations import InformationSchema, is_information
from tidegate.tidb.node import Node
from tidegate.tidb.sql.query.select import select
from tidegate.tidb.sql.rows.auto_id import StoredAutoIds
from tidegate.tidb.sql.rows.open import Shapes, find_table

__all__ = ["NodeTools", "OneRelation", "SystemRelations", "choose", "tools_of"]

_DEPTH: Final = 32
"""Views within views; more is a circle."""


@dataclass(frozen=True, slots=True)
class NodeTools:
    """What the sessions of a node share."""

    auto_ids: StoredAutoIds
    shapes: Shapes = field(default_factory=Shapes)


_tools: WeakKeyDictionary[Node, NodeTools] = WeakKeyDictionary()
_guard: Final = Lock()


def tools_of(node: Node) -> NodeTools:
    """Return the tools of a node, made when first asked for."""
    with _guard:
        if node not in _tools:
            _tools[node] = NodeTools(StoredAutoIds(node.storage))
        return _tools[node]


@dataclass(frozen=True, slots=True)
class OneRelation:
    """A relation under any name."""

    held: Relation

    def relation(self, _schema: str, _name: str) -> Relation:
        """It."""
        return self.held


def choose(relation: FixedRelation, condition: str, context: Context) -> ResultSet:
    """Return the rows of a relation that a condition is true of, by the rules of SELECT. Raises SqlRefused."""
    if condition == "TRUE":
        columns = tuple(ResultColumn(one.name, one.type, one.collation) for one in relation.columns)
        return ResultSet(columns, list(relation.held))
    text = f"SELECT * FROM `shown` WHERE {condition}"  # noqa: S608  the condition is the user's own SQL
    [statement] = parse(text, context.sql_mode - {"ANSI_QUOTES"})
    assert isinstance(statement, Dml), condition
    return select(statement.node, OneRelation(relation), context)


@dataclass(frozen=True, slots=True)
class SystemRelations:
    """What is no stored table. `within` makes the relations that a view's SELECT reads, in the view's database."""

    information: Callable[[], InformationSchema]
    snapshot: StoredSnapshot
    context: Context
    within: Callable[[Context, int], Relations]
    depth: int = 0

    def relation(self, schema: str, name: str) -> Relation:
        """Return a table of information_schema, or a view; SqlRefused 1146, 1046."""
        if is_information(schema):
            return self.information().relation(schema, name)
        found = find_table(self.snapshot, schema, name)
        if found is None or not found.stored.is_view:
            if not schema:
                raise SqlRefused(1046, "No database selected", "3D000")
            raise SqlRefused(1146, f"Table '{schema}.{name}' doesn't exist", "42S02")
        if self.depth > _DEPTH:
            raise SqlRefused(1462, f"`{schema}`.`{name}` contains view recursion", "HY000")
        return self._view(found)

    def _view(self, view: TableVersion) -> Relation:
        told = msgspec.json.decode(view.stored.view)
        context = self.context
        outside, context.database = context.database, view.schema
        try:
            node = _select(told["view_select"])
            answer = select(node, self.within(context, self.depth + 1), context)
        finally:
            context.database = outside
        names = [column.name.original for column in view.stored.cols or []]
        if len(names) != len(answer.columns):
            place = f"{view.schema}.{view.stored.name.original}"
            raise SqlRefused(1356, f"View '{place}' references invalid table(s) or column(s)", "HY000")
        columns = tuple(
            RelationColumn(name, column.type, collation=column.collation)
            for name, column in zip(names, answer.columns, strict=True)
        )
        return FixedRelation(view.stored.name.original, columns, answer.rows)


def _select(text: str) -> Syntax:
    [statement] = parse(text)
    assert isinstance(statement, Dml), text
    return statement.node
