"""What commands and views ask of the session that runs them."""

from collections.abc import Sequence
from typing import Protocol

from tidegate.expr.context import Context
from tidegate.expr.relation import ResultSet
from tidegate.expr.value.kinds import SqlValue
from tidegate.tidb.node import Node
from tidegate.tidb.sql.outcome import Outcome
from tidegate.tidb.sql.session.prepared import Prepared
from tidegate.tidb.sql.session.state import SessionState
from tidegate.tidb.sql.session.transaction import SessionTransaction
from tidegate.tidb.sql.session.view import NodeTools
from tidegate.tidb.sql.show.statement import View

__all__ = ["Peers", "SessionClient"]


class Peers(Protocol):
    """The other clients of a server."""

    def kill(self, connection_id: int, *, query_only: bool) -> None:
        """End a client, or only its statement. Raises SqlRefused 1094."""
        ...

    def sessions(self) -> Sequence[object]:
        """Return the sessions of all clients."""
        ...


class SessionClient(Protocol):
    """A session, as its commands and views see it."""

    node: Node
    state: SessionState
    transaction: SessionTransaction
    tools: NodeTools
    peers: Peers | None
    prepared: dict[str, Prepared]
    running: str
    snapshot_ts: int | None

    @property
    def connection_id(self) -> int:
        """The number of the client."""
        ...

    def use(self, database: str) -> None:
        """USE. Raises SqlRefused 1049."""
        ...

    def execute(self, sql: str) -> list[ResultSet | Outcome]:
        """Return the answers to all statements of a text."""
        ...

    def evaluate(self, text: str) -> SqlValue:
        """Return the value of an expression in SQL."""
        ...

    def moment(self, value: SqlValue) -> int:
        """Return the timestamp that a value means."""
        ...

    def view(self, context: Context | None = None) -> View:
        """Return what SHOW sees."""
        ...
