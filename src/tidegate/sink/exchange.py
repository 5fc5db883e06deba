"""The HTTP client of sinks and of the server: one connection, whole answers within a time and a size.

    connect ──► request ──► head and body of the answer      all within `within_s`, else TimeoutError

Python's own library limits only the wait for each piece of an answer.  A server that sends single bytes slowly could
block a changefeed indefinitely, so the connection is shut down when the time for the whole answer is over.
"""

import errno
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.model.errors import ConfigError

TEXT_MAX: Final = 500


class Reply(NamedTuple):
    """An answer; `ends` says that its connection takes no further request."""

    status: int
    body: bytes
    headers: http.client.HTTPMessage
    ends: bool

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The beginning of the body, for messages."""
        return self.body.decode("utf-8", "replace")[:TEXT_MAX]

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@contextmanager
def shut_down_after(within_s: float, listener: socket.socket) -> Iterator[threading.Event]:
    """Shut a connection down if the block takes longer; the event then says so."""
    timed_out = threading.Event()

    def end() -> None:
        timed_out.set()
        with suppress(OSError):
            socket.socket.shutdown(listener, socket.SHUT_RDWR)  # of an SSLSocket too: its reader meets the end

    timer = threading.Timer(within_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield timed_out
    finally:
        timer.cancel()


def exchange(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    body: bytes | None,
    headers: Mapping[str, str],
    *,
    within_s: float,
    most_bytes: int,
    cut: bool = False,
) -> Reply:
    """Send a request on a connection and return the answer; one longer than `most_bytes` is an error, or `cut`.

    OSError (TimeoutError among them) and HTTPException where there is none: the connection is of no more use."""
    if connection.sock is None:
        connection.connect()
    with shut_down_after(within_s, connection.sock) as timed_out:
        try:
            connection.request(method, target, body, dict(headers))
            answer = connection.getresponse()
            content = answer.read(most_bytes + 1)
            if len(content) <= most_bytes and answer.length:
                raise http.client.IncompleteRead(content, answer.length)
        except (OSError, http.client.HTTPException) as error:
            if timed_out.is_set():
                raise TimeoutError(f"no complete response within {within_s:g} s") from error
            raise
    if timed_out.is_set():
        raise TimeoutError(f"no complete response within {within_s:g} s")
    if len(content) > most_bytes and not cut:
        raise OSError(errno.EMSGSIZE, f"the response is longer than {most_bytes} bytes")
    return Reply(answer.status, content[:most_bytes], answer.headers, answer.will_close or not answer.isclosed())


class HttpClient:
    """A connection to one server, opened when it is needed, and again after it broke; for one thread.

    `tls` makes the context of a connection; None is plain HTTP. A long answer is an error, or `cut`."""

    def __init__(
        self,
        host: str,
        port: int | None,
        tls: Callable[[], ssl.SSLContext] | None,
        *,
        within_s: float,
        most_bytes: int,
        cut: bool = False,
    ) -> None:
        self._host, self._port, self._tls, self._within_s = host, port, tls, within_s
        self._exchange = partial(exchange, within_s=within_s, most_bytes=most_bytes, cut=cut)
        self._connection: http.client.HTTPConnection | None = None

    @property
    def is_open(self) -> bool:
        """True if an earlier connection can be reused."""
        return self._connection is not None

    def ask(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        """Return the answer to a request. Raises OSError if there is none, TimeoutError if it takes too long."""
        if self._connection is None:
            host, port, within_s = self._host, self._port, self._within_s
            self._connection = (
                http.client.HTTPConnection(host, port, timeout=within_s)
                if self._tls is None
                else http.client.HTTPSConnection(host, port, timeout=within_s, context=self._tls())
            )
        try:
            reply = self._exchange(self._connection, method, target, body, headers)
        except OSError:
            self.close()
            raise
        except http.client.HTTPException as error:
            self.close()
            raise ConnectionError(str(error) or type(error).__name__) from error
        if reply.ends:
            self.close()
        return reply

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def tls_context(authority: str, certificate: str = "", key: str = "") -> ssl.SSLContext:
    """Return a context that checks servers by `authority`, or the system's, and shows a certificate if there is one.

    ConfigError for files that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=authority or None)
        if certificate:
            context.load_cert_chain(certificate, key)
    except OSError as error:
        files = ", ".join(filter(None, (authority, certificate, key)))
        raise ConfigError(f"the certificate files {files} cannot be used: {error}") from error
    return context
