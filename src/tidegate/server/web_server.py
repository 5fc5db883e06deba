"""The port: uvicorn with the bounds of a connection, TLS, and the name in a client's certificate.

    connect ── HEAD_S ──► headers are whole, at most HEADER_BYTES ──► answer ── KEEP_ALIVE_S ──► next request

A client that trickles headers, or a handshake of TLS, holds a connection for HEAD_S and no longer; more requests than
CONNECTIONS are answered 503, and the socket (guests.py) bounds connections before that.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Any, Final, NamedTuple

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidegate.model.errors import ConfigError
from tidegate.server.guests import CONNECTIONS

HEADER_BYTES: Final = 32 * 1024
HEAD_S: Final = 10.0
KEEP_ALIVE_S: Final = 30
GRACE_S: Final = 5
BACKLOG: Final = 64
"""Connections that are accepted at a time, before any of them is looked at."""


class PortLoop(asyncio.SelectorEventLoop):
    """An event loop on whose ports a handshake of TLS takes HEAD_S at most; asyncio waits a minute."""

    async def create_server(self, *given: Any, **options: Any) -> asyncio.Server:
        """Listen."""
        if options.get("ssl"):
            options["ssl_handshake_timeout"] = HEAD_S
        server: asyncio.Server = await super().create_server(*given, **options)
        return server


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 whose requests begin in time. The state of a request has `peer_cn`."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin: wait for the first request."""
        super().connection_made(transport)
        self.access_log = False  # queries hold what no log should; the entrance writes its own line
        self.app_state = {**self.app_state, "peer_cn": _common_name(transport.get_extra_info("peercert"))}
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Take bytes; a request whose headers are whole has come in time."""
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


def _common_name(certificate: Any) -> str:
    """The CN of a certificate as `ssl` tells it; "" without one."""
    subject = dict(pair for part in (certificate or {}).get("subject", ()) for pair in part)
    return str(subject.get("commonName", ""))


class Tls(NamedTuple):
    """Files of TLS: certificate and key; with `ca` only clients with a certificate of that authority are let in."""

    cert: str | Path = ""
    key: str | Path = ""
    ca: str | Path = ""


def web_server(app: Any, tls: Tls) -> uvicorn.Server:
    """Return uvicorn for an application, its certificates read. ConfigError for those that cannot be."""
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
