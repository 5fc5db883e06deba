"""An answer is whole within a time and a size, whatever the server sends and how slowly."""

import http.client
import itertools
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import pytest

from tidegate.sink.exchange import Reply, exchange

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"


@contextmanager
def answering(pieces: Iterable[bytes], pause_s: float = 0.0) -> Iterator[int]:
    """A server that answers its first client with these pieces, a pause before each, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            guest, _ = listener.accept()
            with guest, suppress(OSError):
                guest.recv(1 << 16)
                for piece in pieces:
                    time.sleep(pause_s)
                    guest.sendall(piece)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def asked(port: int, *, within_s: float = 5.0, most_bytes: int = 100, cut: bool = False) -> Reply:
    """The answer of a server."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        return exchange(connection, "GET", "/", None, {}, within_s=within_s, most_bytes=most_bytes, cut=cut)
    finally:
        connection.close()


@pytest.mark.parametrize("size", [0, 1, 99, 100])
def test_a_whole_answer(size: int) -> None:
    """An answer of up to the bound comes whole, and its connection can be used again."""
    with answering([HEAD % size + b"x" * size]) as port:
        reply = asked(port)
    assert (reply.status, reply.body, reply.ends) == (200, b"x" * size, False)


@pytest.mark.parametrize("head", [b"", HEAD % 90, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5a\r\n"])
def test_a_byte_now_and_then(head: bytes) -> None:
    """A server that trickles its head or its body is given up when the time of the whole is over."""
    trickle = itertools.repeat(b"H", 60)
    began_s = time.monotonic()
    with (
        answering(itertools.chain([head] if head else [], trickle), pause_s=0.05) as port,
        pytest.raises(TimeoutError, match=r"no complete response within 0\.3 s"),
    ):
        asked(port, within_s=0.3)
    assert time.monotonic() - began_s < 5


def test_a_long_answer() -> None:
    """An answer above the bound is an error, or cut; its connection is of no more use."""
    for length in (HEAD % 150, b"HTTP/1.1 200 OK\r\n\r\n"):
        with (
            answering([length + b"x" * 101 + b"y" * 49]) as port,
            pytest.raises(OSError, match="longer than 100 bytes"),
        ):
            asked(port)
        with answering([length + b"x" * 101 + b"y" * 49]) as port:
            reply = asked(port, cut=True)
        assert (reply.body, reply.ends) == (b"x" * 100, True)


def test_a_torn_answer() -> None:
    """An answer that ends before its length is none."""
    with answering([HEAD % 50 + b"x" * 20]) as port, pytest.raises(http.client.IncompleteRead):
        asked(port)
