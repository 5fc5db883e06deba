"""One HTTP request and its answer, which is whole within a time and within a size.

    connect ──► request ──► head and body of the answer      all within `within_s`, else TimeoutError

Python's own library bounds the wait for each piece of an answer.  A server that sends a byte now and then would hold a
feed as long as it likes, so the connection is shut down when the time of the whole is over.
"""

import errno
import http.client
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple


class Reply(NamedTuple):
    """An answer; `ends` says that its connection takes no further request."""

    status: int
    body: bytes
    headers: http.client.HTTPMessage
    ends: bool


@contextmanager
def shut_down_after(within_s: float, held: socket.socket) -> Iterator[threading.Event]:
    """Shut a connection down if the block takes longer; the event then says so."""
    over = threading.Event()

    def end() -> None:
        over.set()
        with suppress(OSError):
            socket.socket.shutdown(held, socket.SHUT_RDWR)  # of an SSLSocket too: its reader meets the end

    timer = threading.Timer(within_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield over
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
    with shut_down_after(within_s, connection.sock) as over:
        try:
            connection.request(method, target, body, dict(headers))
            answer = connection.getresponse()
            found = answer.read(most_bytes + 1)
            if len(found) <= most_bytes and answer.length:
                raise http.client.IncompleteRead(found, answer.length)
        except (OSError, http.client.HTTPException) as error:
            if over.is_set():
                raise TimeoutError(f"no whole answer within {within_s:g} s") from error
            raise
    if over.is_set():
        raise TimeoutError(f"no whole answer within {within_s:g} s")
    if len(found) > most_bytes and not cut:
        raise OSError(errno.EMSGSIZE, f"the answer is longer than {most_bytes} bytes")
    return Reply(answer.status, found[:most_bytes], answer.headers, answer.will_close or not answer.isclosed())
