"""What a session can tell: definitions, jobs, variables, clients, for SHOW and information_schema.

    definitions    of the past that it reads at, of the transaction that is open, else of now
    next numbers   from the counters of the store: what nodes hold in memory is past them already

Source: TiDB pkg/executor (show.go, infoschema_reader.go).
"""

from collections.abc import Iterator
from typing import Final

from tidegate.expr.context import Context
from tidegate.expr.value.kinds import SqlValue
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate.tidb.information.relations import Facts, InformationSchema
from tidegate.tidb.meta.keys import Meta
from tidegate.tidb.sql.session.client import SessionClient
from tidegate.tidb.sql.session.view import choose
from tidegate.tidb.sql.show.create import AUTO_INCREMENT, NextIds
from tidegate.tidb.sql.show.statement import View

__all__ = ["information_of", "view_of"]

_SEPARATE_IDS: Final = 1
"""AUTO_ID_CACHE 1: AUTO_INCREMENT has a counter of its own."""


def view_of(session: SessionClient, context: Context) -> View:
    """Return what SHOW sees."""
    schema = _definitions(session)
    return View(
        session.state,
        schema,
        information_of(session, schema),
        lambda relation, condition: choose(relation, condition, context),
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
    if session.snapshot_ts is not None:
        return session.node.schema_at(session.snapshot_ts)
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
