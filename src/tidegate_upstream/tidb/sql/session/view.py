"""What the tables of a statement are made of, for each way to read: in a transaction, in the past, of the system.

    relation(d, t) ──► stored table     OpenTables of a transaction, PastTables at a ts
                   └─► system           information_schema, the views of databases

    definitions    of the past that the session reads at, of the transaction that is open, else of now
    next numbers   from the counters of the store: what nodes hold in memory is past them already

A view is its SELECT, run in the database that it was made in.

Source: TiDB pkg/planner (view expansion), pkg/executor (show.go, infoschema_reader.go).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tidegate.expr.relation import FixedRelation, Relation, RelationColumn, Relations, ResultColumn, ResultSet
from tidegate.expr.syntax.dialect import Node as Syntax
from tidegate.expr.syntax.parse import Dml, parse
from tidegate.model.errors import SqlRefused
from tidegate.mysql.context import Context
from tidegate.mysql.value.kinds import SqlValue
from tidegate.schema.stored.create import NextIds
from tidegate.schema.stored.flags import AUTO_INCREMENT
from tidegate.schema.stored.meta import Meta
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate_upstream.tidb.information.relations import Facts, InformationSchema, is_information
from tidegate_upstream.tidb.sql.query.select import select
from tidegate_upstream.tidb.sql.rows.open import find_table
from tidegate_upstream.tidb.sql.session.client import SessionClient
from tidegate_upstream.tidb.sql.show.statement import View

_DEPTH: Final = 32
"""Views within views; more is a circle."""


@dataclass(frozen=True, slots=True)
class _OneRelation:
    """A relation under any name."""

    held: Relation

    def relation(self, _schema: str, _name: str) -> Relation:
        """It."""
        return self.held


def _choose(relation: FixedRelation, condition: str, context: Context) -> ResultSet:
    """The rows of a relation that a condition is true of, by the rules of SELECT. Raises SqlRefused."""
    if condition == "TRUE":
        columns = tuple(ResultColumn(one.name, one.type, one.collation) for one in relation.columns)
        return ResultSet(columns, list(relation.held))
    text = f"SELECT * FROM `shown` WHERE {condition}"  # noqa: S608  the condition is the user's own SQL
    [statement] = parse(text, context.sql_mode - {"ANSI_QUOTES"})
    assert isinstance(statement, Dml), condition
    return select(statement.node, _OneRelation(relation), context)


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
        assert view.stored.view is not None
        context = self.context
        outside, context.database = context.database, view.schema
        try:
            node = _select(view.stored.view.view_select)
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


# --- what SHOW and information_schema see ---


_SEPARATE_IDS: Final = 1
"""AUTO_ID_CACHE 1: AUTO_INCREMENT has a counter of its own."""


def view_of(session: SessionClient, context: Context) -> View:
    """Return what SHOW sees."""
    schema = _definitions(session)
    return View(
        session.state,
        schema,
        information_of(session, schema),
        lambda relation, condition: _choose(relation, condition, context),
        lambda table: _ids(session, table),
        session.node.storage.oracle.next,
    )


def information_of(session: SessionClient, schema: StoredSnapshot | None = None) -> InformationSchema:
    """information_schema over definitions, those of now if none are given."""
    ddl_client = session.node.ddl_client
    return InformationSchema(
        Facts(
            schema or _fresh(session),
            jobs=lambda: [*ddl_client.jobs(), *ddl_client.history()],
            processes=lambda: _processes(session),
            zone=session.state.zone,
            next_id=lambda schema_id, table_id: _next(session, schema_id, table_id, "TID"),
        )
    )


def _definitions(session: SessionClient) -> StoredSnapshot:
    if session.past_ts is not None:
        return session.node.schema_at(session.past_ts)
    opened = session.transaction.open
    return opened.schema if opened else _fresh(session)


def _fresh(session: SessionClient) -> StoredSnapshot:
    if not session.node.has_lease(session.state.now_ms()):
        session.node.reload()
    return session.node.schema


def _next(session: SessionClient, schema_id: int, table_id: int, kind: str) -> int:
    return (Meta(session.node.storage.snapshot()).counter(kind, schema_id, table_id) or 0) + 1


def _ids(session: SessionClient, table: TableVersion) -> NextIds:
    stored, schema_id = table.stored, table.schema_id
    kind = "IID" if stored.auto_id_cache == _SEPARATE_IDS else "TID"
    numbered = any(column.type.flag & AUTO_INCREMENT for column in stored.cols or [])
    increment = _next(session, schema_id, stored.id, kind) if numbered else 0
    return NextIds(increment, _next(session, schema_id, stored.id, "TARID") if stored.auto_random_bits else 0)


def _processes(session: SessionClient) -> Iterator[tuple[SqlValue, ...]]:
    """A row for each client of the server, and for a session of none."""
    listed = [one for one in session.peers.sessions() if isinstance(one, type(session))] if session.peers else []
    for one in listed if session in listed else [*listed, session]:
        command = "Query" if one.running else "Sleep"
        state = "autocommit" if one.state.variables["autocommit"] else ""
        head = (one.connection_id, one.state.user.partition("@")[0], "127.0.0.1", one.state.database or None)
        yield (*head, command, 0, state, one.running or None)
