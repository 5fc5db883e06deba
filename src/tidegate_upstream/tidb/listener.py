"""A cluster with a port for each of its nodes: what `tidegate upstream start` runs.

    port 4000 ── n1 ─┐                     a client chooses its node by the port, as it does with TiDB servers
    port 4001 ── n2 ─┼── one cluster       the background thread is the owner of DDL jobs
    port 4002 ── n3 ─┘                     SHOW PROCESSLIST and KILL know the clients of all ports

    start()    a thread with an event loop, listening on 127.0.0.1       EnvironmentFault if the port is not available
    client     ──► sessions(peers) ──► Client
    stop()     no new clients, the connected ones are cancelled, the loop and its thread end

Port 0 takes free ports.  Without an account there is no password: anybody who reaches the port is root.  So an address
that other machines can reach requires one.  wire.py limits the resources of a client.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from socket import IPPROTO_TCP, TCP_NODELAY, create_server, socket
from threading import Event, Thread
from typing import Any, Final, Self

from mysql_mimic.auth import SimpleIdentityProvider
from mysql_mimic.constants import KillKind
from mysql_mimic.control import Control

from tidegate.model.errors import ConfigError, EnvironmentFault, SqlRefused
from tidegate.model.host import reaches_others
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.commands import Peers
from tidegate_upstream.tidb.connection import CAPABILITIES, Client, ServedSession
from tidegate_upstream.tidb.node import Node
from tidegate_upstream.tidb.session import Session
from tidegate_upstream.tidb.variables import GlobalVariables
from tidegate_upstream.tidb.wire import LIMITS, Account, ClientStream, PortLimits, error_packet

logging.getLogger("mysql_mimic.connection").addFilter(lambda record: record.exc_info is not None)
"""Errors of clients go to the client and not to the log; internal errors are logged with their traceback."""
Listen = Callable[[tuple[str, int]], socket]
HOST: Final = "127.0.0.1"
BACKLOG: Final = 64
_READ_BYTES: Final = 1 << 16
_START_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 10.0
_NO_SUCH_THREAD: Final = 1094


class _Control(Control):  # type: ignore[misc]  # the library has no types
    def __init__(self, numbers: Iterator[int]) -> None:
        self.clients: dict[int, Client] = {}
        self._numbers = numbers

    async def add(self, connection: Client) -> int:
        """The number of a new connection."""
        number = next(self._numbers)
        self.clients[number] = connection
        return number

    async def remove(self, connection_id: int) -> None:
        """Called when a connection ends."""
        self.clients.pop(connection_id, None)

    async def kill(self, connection_id: int, kind: KillKind = KillKind.CONNECTION) -> None:
        """End a connection, or its statement."""
        client = self.clients.get(connection_id)
        if client is not None:
            client.kill(kind)


class Listener:
    """A port. `sessions` creates the session of a client; `port` 0 is any free port; clients are numbered
    by `numbers`; `listen` opens the socket. Raises ConfigError for an address that other machines reach, and
    no `account`."""

    def __init__(
        self,
        sessions: Callable[[Peers], Session],
        host: str = HOST,
        port: int = 0,
        numbers: Iterator[int] | None = None,
        *,
        account: Account | None = None,
        limits: PortLimits = LIMITS,
        listen: Listen = create_server,
    ) -> None:
        if account is None and reaches_others(host):
            raise ConfigError(f"other machines reach {host or 'every address'}: set a user and a password")
        self._account, self._limits, self._listen = account, limits, listen
        self.host, self.port = host, port
        self._make = sessions
        self._control = _Control(numbers or count(1))
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._ready = Event()
        self._fault: OSError | None = None
        self._thread = Thread(target=self._serve, name="tidegate-port", daemon=True)

    def start(self) -> Self:
        """Listen. Raises EnvironmentFault if the port cannot be bound."""
        self._thread.start()
        if not self._ready.wait(_START_TIMEOUT_S):
            raise EnvironmentFault(f"port {self.port} of {self.host} is not open after {_START_TIMEOUT_S} s")
        if self._fault is not None:
            self._thread.join(_STOP_TIMEOUT_S)
            raise EnvironmentFault(
                f"port {self.port} of {self.host} cannot be bound ({self._fault}); use another"
            ) from self._fault
        return self

    def stop(self) -> None:
        """Interrupt statements, end all clients and close the port."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
            self._thread.join(_STOP_TIMEOUT_S)

    def kill(self, connection_id: int, *, query_only: bool) -> None:
        """End a client's connection, or only its statement. Raises SqlRefused 1094."""
        if connection_id not in self._control.clients:
            raise SqlRefused(_NO_SUCH_THREAD, f"Unknown thread id: {connection_id}", "HY000")
        self._control.clients[connection_id].session.session.interrupt()
        if not query_only:
            asyncio.run_coroutine_threadsafe(self._control.kill(connection_id), self._loop)

    def sessions(self) -> list[Session]:
        return [client.session.session for _, client in sorted(self._control.clients.items())]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            door = self._listen((self.host, self.port))
            door.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)  # accepted sockets inherit it, which asyncio leaves off
            self._server = self._loop.run_until_complete(
                self._loop.create_server(self._protocol, sock=door, backlog=BACKLOG)
            )
            self.port = self._server.sockets[0].getsockname()[1]
        except OSError as fault:
            self._fault = fault
            self._ready.set()
            self._loop.close()
            return
        self._ready.set()
        self._loop.run_forever()
        self._loop.close()

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=_READ_BYTES, loop=self._loop)
        return asyncio.StreamReaderProtocol(reader, self._client, loop=self._loop)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client until it disconnects."""
        stream = ClientStream(reader, writer, self._limits)
        if len(self._control.clients) >= self._limits.connections:
            await stream.write(error_packet(1040, "08004", "Too many connections"))
            writer.close()
            return
        session = ServedSession(self._make(self))
        client = Client(
            account=self._account,
            limits=self._limits,
            stream=stream,
            session=session,
            control=self._control,
            identity_provider=SimpleIdentityProvider(),
            server_capabilities=CAPABILITIES,
        )
        client.connection_id = await self._control.add(client)
        try:
            with suppress(asyncio.CancelledError):
                await client.start()
        finally:
            writer.close()
            await self._control.remove(client.connection_id)
            await session.close()

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        for client in list(self._control.clients.values()):
            client.session.session.interrupt()
            client.kill(KillKind.CONNECTION)
        tasks: list[asyncio.Task[Any]] = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_STOP_TIMEOUT_S / 2)
            for task in late:
                task.cancel()
        self._loop.stop()


class Upstream:
    """The ports of a cluster; `stop` closes both."""

    def __init__(
        self,
        cluster: Cluster,
        host: str = HOST,
        port: int = 0,
        account: Account | None = None,
        listen: Listen = create_server,
    ) -> None:
        self.cluster, self.host = cluster, host
        self._shared = GlobalVariables({"port": port, "hostname": host})
        numbers: Iterator[int] = count(1)
        self._listeners = {
            node.name: Listener(
                partial(self._session, node), host, port and port + index, numbers, account=account, listen=listen
            )
            for index, node in enumerate(cluster.nodes.values())
        }

    @property
    def ports(self) -> Mapping[str, int]:
        return {name: listener.port for name, listener in self._listeners.items()}

    def start(self) -> Self:
        """Open the ports and start the DDL owner. Raises EnvironmentFault if a port cannot be bound."""
        try:
            for listener in self._listeners.values():
                listener.start()
        except EnvironmentFault:
            self.stop()
            raise
        self.cluster.start_thread()
        return self

    def stop(self) -> None:
        """Close the clients, the ports and the cluster."""
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

    def sessions(self) -> list[Session]:
        sessions = [session for listener in self._listeners.values() for session in listener.sessions()]
        return sorted(sessions, key=lambda session: session.connection_id)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _session(self, node: Node, _peers: Peers) -> Session:
        return Session(node, self._shared, self)
