"""The server's port: a listening socket with limits per peer, and uvicorn with limits per connection and TLS.

    listening(host, port) ──► serve(web, listener, stop, begun): uvicorn in a thread ── stop ──► running requests end

    accept ──► closed ones are forgotten ──► below the limits, in all and of this peer? ──► the connection
                                                  └ no ──► closed at once, logged once a second

    connect ── HEAD_S ──► headers are complete, at most HEADER_BYTES ──► answer ── KEEP_ALIVE_S ──► next request

A client that trickles headers, or a TLS handshake, holds a connection for HEAD_S at most; more requests than
CONNECTIONS are answered 503.

A connection that sends nothing costs a file descriptor until it times out.  So at most half of the process's file
descriptors are connections, and one peer has at most half of those: state files and the connections to broker and
database work whatever clients do.  If the process has no descriptor left nevertheless, a spare one is given up to
accept a connection and close it; a connection left in the queue would wake the event loop again and again.

asyncio calls `accept` of the listening socket and takes ConnectionAbortedError as "none now", so any asyncio server is
limited by its socket alone.
"""

import asyncio
import errno
import logging
import os
import resource
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidegate.engine.stop_signals import StopEvent, wait_until
from tidegate.model.errors import ConfigError, EnvironmentFault

LOG: Final = logging.getLogger(__name__)
CONNECTIONS: Final = 1000
"""Most connections of a port, if the process may open enough files."""
LOG_EVERY_S: Final = 1.0
NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class GuestLimits(NamedTuple):
    """Most connections of a port at a time, and most of them from one address."""

    connections: int
    per_peer: int


def guest_limits() -> GuestLimits:
    """Return the limits that leave this process half of the files that it may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = CONNECTIONS if files == resource.RLIM_INFINITY else max(2, min(CONNECTIONS, files // 2))
    return GuestLimits(connections, connections // 2)


class GuestListener(socket.socket):
    """A socket listening at `address` whose `accept` enforces `limits` (default: those of `guest_limits`)."""

    def __init__(self, family: int, address: tuple[Any, ...], limits: GuestLimits | None = None) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._limits = limits or guest_limits()
        self._guests: list[tuple[socket.socket, str]] = []
        self._refused: Counter[str] = Counter()
        self._logged_s = float("-inf")
        self._spare = os.open(os.devnull, os.O_RDONLY)
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                self.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            self.bind(address)
            self.listen()
        except OSError:
            self.close()
            raise

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection and its address. Raises ConnectionAbortedError for one beyond the limits."""
        try:
            guest, address = super().accept()
        except OSError as error:
            if error.errno in NO_FILES:
                self._turn_away()
                self._refuse(f"no file is left: {error.strerror}", error)
            raise
        peer = str(address[0])
        self._guests = [guest for guest in self._guests if guest[0].fileno() != -1]
        if len(self._guests) >= self._limits.connections:
            guest.close()
            self._refuse(f"{self._limits.connections} connections are open")
        if sum(of == peer for _, of in self._guests) >= self._limits.per_peer:
            guest.close()
            self._refuse(f"{self._limits.per_peer} connections are open from {peer}")
        self._guests.append((guest, peer))
        return guest, address

    def close(self) -> None:
        """Stop listening."""
        super().close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    def _turn_away(self) -> None:
        """Close the next connection, using the spare file to accept it."""
        spare, self._spare = self._spare, -1  # another thread may take its file, and its number
        if spare >= 0:
            os.close(spare)
        with suppress(OSError):
            super().accept()[0].close()
        with suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def _refuse(self, reason: str, cause: OSError | None = None) -> None:
        self._refused[reason] += 1
        now_s = time.monotonic()
        if now_s - self._logged_s >= LOG_EVERY_S:
            self._logged_s = now_s
            counts = "; ".join(f"{reason} ({count} refused)" for reason, count in self._refused.items())
            LOG.warning("port %s: %s", self.getsockname()[1], counts)
            self._refused.clear()
        raise ConnectionAbortedError(reason) from cause


if TYPE_CHECKING:
    from uvicorn import Server

END_S: Final = 10
"""Time for running requests to end."""


def listening(host: str, port: int, option: str) -> socket.socket:
    """Return a listening socket with limits. Raises EnvironmentFault if it cannot listen; `option` names the port's."""
    try:
        return guest_listener((host, port))
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]
        raise EnvironmentFault(f"cannot listen on {host}:{port}: {reason}; another port: {option}") from error


def guest_listener(address: tuple[str, int]) -> GuestListener:
    """Return a listening socket with limits at HOST, PORT. Raises OSError if it cannot listen."""
    [(family, *_, sockaddr), *_] = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return GuestListener(family, sockaddr[:2])


def address_of(listener: socket.socket) -> str:
    """Return HOST:PORT of a listening socket."""
    host, port, *_ = listener.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def serve(
    web: "Server",
    listener: socket.socket,
    stop: StopEvent,
    *,
    begun: Callable[[], None],
    ending: Callable[[], None] = lambda: None,
) -> None:
    """Answer requests until `stop` is set; `begun` is called at the start, `ending` while requests are still answered.

    Raises EnvironmentFault if the server ends by itself."""
    thread = threading.Thread(target=web.run, args=([listener],), name="http", daemon=True)
    thread.start()
    wait_until(lambda: web.started or stop.is_set() or not thread.is_alive())
    if web.started:
        begun()
    wait_until(lambda: stop.is_set() or not thread.is_alive())
    requested = stop.is_set()
    ending()
    web.should_exit = True
    thread.join(END_S)
    if not requested:
        raise EnvironmentFault("the web server ended unexpectedly")


HEADER_BYTES: Final = 32 * 1024
HEAD_S: Final = 10.0
KEEP_ALIVE_S: Final = 30
GRACE_S: Final = 5
BACKLOG: Final = 64
"""Connections accepted at a time, before any of them is read."""


class PortLoop(asyncio.SelectorEventLoop):
    """An event loop whose ports limit a TLS handshake to HEAD_S (asyncio waits a minute), and send answers at once."""

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:
        """Listen."""
        if options.get("ssl"):
            options["ssl_handshake_timeout"] = HEAD_S
        server: asyncio.Server = await super().create_server(*args, **options)
        for port in server.sockets:  # accepted sockets inherit it, which asyncio leaves off
            port.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with a limit on the time for a request's headers. The state of a request has `peer_cn`."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first request."""
        super().connection_made(transport)
        self.access_log = False  # queries hold what no log should; the entrance writes its own line
        certificate = transport.get_extra_info("peercert") or {}
        subject = dict(pair for part in certificate.get("subject", ()) for pair in part)
        self.app_state = {**self.app_state, "peer_cn": str(subject.get("commonName", ""))}
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Receive bytes; complete headers end the time limit."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._in_time()
        elif self._late is None:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._in_time()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._late = self.loop.call_later(HEAD_S, self.transport.abort)

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class Tls(NamedTuple):
    """Files of TLS: certificate and key; with `ca`, clients need a certificate signed by that authority."""

    cert: str | Path = ""
    key: str | Path = ""
    ca: str | Path = ""


def web_server(app: Any, tls: Tls) -> uvicorn.Server:
    """Return the uvicorn server of an application. Raises ConfigError if its certificates cannot be loaded."""
    files: dict[str, Any] = {"ssl_certfile": tls.cert, "ssl_keyfile": tls.key} if tls.cert else {}
    if tls.ca:
        files |= {"ssl_ca_certs": tls.ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    settings = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        loop=f"{__name__}:{PortLoop.__name__}",
        backlog=BACKLOG,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        **files,
    )
    try:
        settings.load()
    except OSError as error:
        raise ConfigError(f"certificate {tls.cert}, key {tls.key}: {error}") from error
    return uvicorn.Server(settings)
