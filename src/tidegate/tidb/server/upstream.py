"""A cluster with a port for each of its nodes: what `tidegate upstream start` runs.

    port 4000 ── n1 ─┐                     a client chooses its node by the port, as it does with TiDB servers
    port 4001 ── n2 ─┼── one cluster       the background thread is the owner of DDL jobs
    port 4002 ── n3 ─┘                     SHOW PROCESSLIST and KILL know the clients of all ports

Port 0 takes free ports.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Self

from tidegate.model.errors import EnvironmentFault, SqlRefused
from tidegate.tidb.cluster import Cluster
from tidegate.tidb.node import Node
from tidegate.tidb.server.listener import HOST, Listener, ListenerPeers
from tidegate.tidb.server.served import Served
from tidegate.tidb.sql.session.session import Session
from tidegate.tidb.sql.variable.variables import GlobalVariables

__all__ = ["Upstream"]


class Upstream:
    """The ports of a cluster, closed with it by `stop`."""

    def __init__(self, cluster: Cluster, host: str = HOST, port: int = 0) -> None:
        self.cluster, self.host = cluster, host
        self._shared = GlobalVariables({"port": port, "hostname": host})
        numbers: Iterator[int] = count(1)
        self._listeners = {
            node.name: Listener(partial(self._session, node), host, port and port + at, numbers)
            for at, node in enumerate(cluster.nodes.values())
        }

    @property
    def ports(self) -> Mapping[str, int]:
        """The port of each node by its name."""
        return {name: listener.port for name, listener in self._listeners.items()}

    def start(self) -> Self:
        """Open the ports and start to do DDL jobs. Raises EnvironmentFault when a port cannot be had."""
        try:
            for listener in self._listeners.values():
                listener.start()
        except EnvironmentFault:
            self.stop()
            raise
        self.cluster.start_thread()
        return self

    def stop(self) -> None:
        """End the clients, the ports and the cluster."""
        for listener in self._listeners.values():
            listener.stop()
        self.cluster.close()

    def kill(self, connection_id: int, *, query_only: bool) -> None:
        """End a client of any node, or only its statement. Raises SqlRefused 1094."""
        for listener in self._listeners.values():
            with suppress(SqlRefused):
                listener.kill(connection_id, query_only=query_only)
                return
        raise SqlRefused(1094, f"Unknown thread id: {connection_id}", "HY000")

    def sessions(self) -> list[Served]:
        """Return the sessions of all clients."""
        found = [session for listener in self._listeners.values() for session in listener.sessions()]
        return sorted(found, key=lambda session: session.connection_id)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _session(self, node: Node, _peers: ListenerPeers) -> Session:
        return Session(node, self._shared, self)
