"""What commands and views ask of the session that runs them, and what all sessions of a node share.

Named locks are the cluster's: its nodes share a store."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from tidegate.mysql.context import Context
from tidegate.mysql.value.kinds import SqlValue
from tidegate_upstream.tidb.node import Node
from tidegate_upstream.tidb.sql.rows.auto_id import StoredAutoIds
from tidegate_upstream.tidb.sql.rows.open import Shapes
from tidegate_upstream.tidb.sql.session.locks import NamedLocks
from tidegate_upstream.tidb.sql.session.state import SessionState
from tidegate_upstream.tidb.sql.session.transaction import SessionTransaction
from tidegate_upstream.tidb.sql.show.statement import View
from tidegate_upstream.tidb.store.mvcc import Store


class Peers(Protocol):
    """The other clients of a server."""

    def kill(self, connection_id: int, *, query_only: bool) -> None:
        """End a client, or only its statement. Raises SqlRefused 1094."""
        ...

    def sessions(self) -> Sequence[object]:
        """Return the sessions of all clients."""
        ...


@dataclass(frozen=True, slots=True)
class NodeTools:
    """What the sessions of a node share."""

    auto_ids: StoredAutoIds
    locks: NamedLocks
    shapes: Shapes = field(default_factory=Shapes)


_tools: WeakKeyDictionary[Node, NodeTools] = WeakKeyDictionary()
_locks: WeakKeyDictionary[Store, NamedLocks] = WeakKeyDictionary()
_guard: Final = Lock()


def tools_of(node: Node) -> NodeTools:
    """Return the tools of a node, made when first asked for."""
    with _guard:
        if node not in _tools:
            locks = _locks.setdefault(node.storage.store, NamedLocks())
            _tools[node] = NodeTools(StoredAutoIds(node.storage), locks)
        return _tools[node]


class SessionClient(Protocol):
    """A session, as its commands and views see it."""

    node: Node
    state: SessionState
    transaction: SessionTransaction
    tools: NodeTools
    peers: Peers | None
    running: str
    snapshot_ts: int | None

    @property
    def past_ts(self) -> int | None:
        """The moment that is read, None for now."""
        ...

    @property
    def connection_id(self) -> int:
        """The number of the client."""
        ...

    def use(self, database: str) -> None:
        """USE. Raises SqlRefused 1049."""
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
