"""Client connections of MySQL's protocol: every connection to such a server is opened here.

    the server requests                    over TLS            without TLS
    a proof (native, ed25519, sha2 fast)   sent                sent
    the password itself, or encrypted      sent                refused: an unverified server would get it
      with a key that the server sends
    a file of this machine                 refused             refused

A packet holds one statement, unless the caller sets `many`: text injected into one could then be a statement.

Source: MySQL, "Connection Phase", "Protocol::AuthSwitchRequest"; PyMySQL, "Connection Object".
"""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import DEFAULT_BUFFER_SIZE
from typing import Any, Final, NamedTuple

from tidegate.model.errors import ConfigError, EnvironmentFault

_IN_CLEAR: Final = (b"mysql_clear_password", b"dialog", b"sha256_password")
"""Authentication methods that send the password; the last encrypts it with a key that the server sends."""
_OLD: Final = b"mysql_old_password"
"""A method whose proof is easily reversed; the driver no longer supports it."""
_FAST: Final = 3
_SERVER_LOST: Final = 2013
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6, "TCP_USER_TIMEOUT": 120_000}
"""Keepalive detects a dead server within minutes, however long an answer may take (on systems that have the
options; the last one in ms)."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS: files of an authority (none: the system's) and of the client's certificate; without `verify`, with any
    server."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    verify: bool = True


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Address and account of a server, and the timeout of its answers (None: no timeout). `repr` hides the password."""

    host: str
    port: int
    user: str
    password: str | bytes = field(default="", repr=False)
    tls: ServerTls | None = None
    dial_s: float = 10.0
    read_s: float | None = None
    write_s: float | None = None

    @property
    def address(self) -> str:
        """The server, for messages."""
        return f"{self.host}:{self.port}"


def driver() -> Any:
    """Return PyMySQL. Raises EnvironmentFault if it is not installed."""
    try:
        import pymysql
    except ImportError as missing:
        raise EnvironmentFault("databases need PyMySQL: pip install 'tidegate[mysql]'") from missing
    return pymysql


def faults(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the driver's exceptions, RuntimeError (the server requested a file), and `more`."""
    return (driver().MySQLError, RuntimeError, *more)


def connect(options: ConnectionOptions, *, many: bool = False, flags: int = 0, **form: Any) -> Any:
    """Return a connection of PyMySQL, with autocommit; `form` are words of the driver about statements and answers.

    Raises ConfigError, EnvironmentFault, and the driver's errors."""
    pymysql = driver()
    clear = {} if options.tls else {**dict.fromkeys(_IN_CLEAR, _Refused), b"caching_sha2_password": _Proof}
    dial_s = max(1, round(options.dial_s))
    try:
        connection = pymysql.connect(
            host=options.host,
            port=options.port,
            user=options.user,
            password=options.password,
            charset="utf8mb4",
            connect_timeout=dial_s,
            read_timeout=options.read_s or dial_s,
            write_timeout=options.write_s,
            autocommit=True,
            local_infile=False,
            client_flag=flags | (pymysql.constants.CLIENT.MULTI_STATEMENTS if many else 0),
            ssl=_context(options.tls) if options.tls else None,
            ssl_disabled=not options.tls,
            auth_plugin_map={_OLD: _Refused, **clear},
            **form,
        )
    except OSError as error:
        raise ConfigError(f"{options.address}: cannot use a TLS file: {error}") from error
    connection._read_timeout = options.read_s  # noqa: SLF001  until here no server takes longer than to be reached
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connection._sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)  # noqa: SLF001
    return connection


class RawResult(NamedTuple):
    """The rows of a result as bytes: how many columns they have, what fills a buffer with them (0: the connection has
    ended), and the number of their first packet."""

    width: int
    read_into: Callable[[memoryview], int]
    number: int


def raw_result(connection: Any, query: str) -> RawResult:
    """Send a query and return its rows, none of which is read yet. Until their end is read, the connection has no other
    use: `abandon` it. Both raise the driver's errors."""
    pymysql = driver()
    connection._execute_command(pymysql.constants.COMMAND.COM_QUERY, query.encode())  # noqa: SLF001
    result = pymysql.connections.MySQLResult(connection)
    result.init_unbuffered_query()
    result.unbuffered_active = False  # else it waits, when it is collected, for an end that is read elsewhere
    file = connection._rfile  # noqa: SLF001
    buffered: bytes | None = None

    def read_into(buffer: memoryview) -> int:
        nonlocal buffered
        try:
            if buffered is None:
                buffered = file.read1(DEFAULT_BUFFER_SIZE)  # what the driver has read ahead, if there is some
                if not buffered:
                    return 0
            if buffered:
                part, buffered = buffered[: len(buffer)], buffered[len(buffer) :]
                buffer[: len(part)] = part
                return len(part)
            return int(file.raw.readinto(buffer))
        except OSError as error:
            abandon(connection)
            raise pymysql.OperationalError(_SERVER_LOST, f"Lost connection in the middle of rows ({error})") from error

    return RawResult(result.field_count, read_into, connection._next_seq_id)  # noqa: SLF001


@contextmanager
def closed_if_it_fails(connection: Any) -> Iterator[None]:
    """Prepare a connection: whatever is raised closes it at once, not when it is collected."""
    try:
        yield
    except BaseException:
        abandon(connection)
        raise


def abandon(connection: Any) -> None:
    """Close a connection at once, whatever is still to be read: a driver would read all of it first."""
    connection._force_close()  # noqa: SLF001


def _context(tls: ServerTls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca or None)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the certificates that MySQL makes for itself lack extensions
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert:
        context.load_cert_chain(tls.cert, tls.key or None)
    return context


class _Refused:
    """Refuses a method that sends the password in clear, or encrypted with a key that nothing verifies."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def authenticate(self, packet: object) -> Any:
        """Refuse the authentication method."""
        del packet
        raise ConfigError(
            f"{self._connection.host}:{self._connection.port} requests the password in clear, or encrypted with its "
            f"own key, which is unsafe without TLS; use TLS, or an account with mysql_native_password"
        )


class _Proof(_Refused):
    """caching_sha2_password without its full exchange: it works while the server has the account in its cache."""

    def authenticate(self, packet: Any) -> Any:
        """Answer with a proof of the password, and refuse to send the password itself."""
        from pymysql import _auth

        connection = self._connection
        if packet.is_auth_switch_request():
            connection.salt = packet.read_all().removesuffix(b"\0")
            packet = _auth._roundtrip(connection, _auth.scramble_caching_sha2(connection.password, connection.salt))  # noqa: SLF001
        if not packet.is_extra_auth_data():
            return packet
        packet.advance(1)
        if packet.read_uint8() != _FAST:
            return super().authenticate(packet)
        answer = connection._read_packet()  # noqa: SLF001
        answer.check_error()
        return answer
