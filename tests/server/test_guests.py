"""Connections that send nothing take neither a port nor the files of its process from others."""

import asyncio
import errno
import logging
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from tests.certificates import make_certificate
from tidegate.server import web_server as module
from tidegate.server.web_server import CONNECTIONS, GuestLimits, GuestListener, Tls, guest_limits, web_server

LIMITS = GuestLimits(connections=12, per_peer=8)
OTHER = "127.0.0.2"
PLAIN = Tls()


async def hello(_scope: object, _receive: object, send) -> None:
    """Answer anything."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@contextmanager
def served(listener: socket.socket, tls: Tls = PLAIN) -> Iterator[tuple[str, int]]:
    """A web server on a socket."""
    web = web_server(hello, tls)
    thread = threading.Thread(target=web.run, args=([listener],), daemon=True)
    thread.start()
    while not web.started:
        time.sleep(0.01)
    yield listener.getsockname()
    web.should_exit = True
    thread.join(10)


def asked(place: tuple[str, int], of: str) -> bytes:
    """The answer to a request from the address `of`; nothing where the connection is closed."""
    with suppress(ConnectionResetError), socket.create_connection(place, timeout=10, source_address=(of, 0)) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return client.makefile("rb").read()
    return b""


def ended(client: socket.socket) -> bool:
    """True if the other side has closed a connection."""
    client.settimeout(0.5)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_answers_are_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No body of an answer waits until the client has confirmed the head, which takes it 40 ms."""
    seen: list[int] = []

    def made(protocol: module.BoundedProtocol, transport: asyncio.Transport) -> None:
        seen.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        connection_made(protocol, transport)

    connection_made = module.BoundedProtocol.connection_made
    monkeypatch.setattr(module.BoundedProtocol, "connection_made", made)
    with GuestListener(socket.AF_INET, ("127.0.0.1", 0)) as listener, served(listener) as place:
        assert b"hello" in asked(place, "127.0.0.1")

    assert len(seen) == 1
    assert seen[0]


@pytest.mark.slow
def test_a_peer_takes_its_share_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Of 50 silent connections of a peer its share stays, another peer is answered, the log has a line a second."""
    caplog.set_level(logging.WARNING, "tidegate")
    with GuestListener(socket.AF_INET, ("127.0.0.1", 0), LIMITS) as listener, served(listener) as place:
        with ExitStack() as stack:
            silent = [stack.enter_context(socket.create_connection(place, timeout=10)) for _ in range(50)]
            assert b"hello" in asked(place, OTHER)
            assert sum(map(ended, silent[: LIMITS.per_peer])) == 0
            assert all(map(ended, silent[LIMITS.per_peer :]))
        deadline = time.monotonic() + 10
        while b"hello" not in asked(place, "127.0.0.1"):
            assert time.monotonic() < deadline

    lines = [record.getMessage() for record in caplog.records]
    assert lines
    assert len(lines) <= 12
    assert all("8 connections are open from 127.0.0.1" in line for line in lines)


@pytest.mark.slow
def test_all_peers_have_their_share() -> None:
    """Peers together have no more connections than the port."""
    with (
        GuestListener(socket.AF_INET, ("127.0.0.1", 0), LIMITS) as listener,
        served(listener) as place,
        ExitStack() as stack,
    ):
        silent = [
            stack.enter_context(socket.create_connection(place, timeout=10, source_address=(f"127.0.0.{peer}", 0)))
            for peer in (3, 4, 5)
            for _ in range(6)
        ]
        assert [ended(client) for client in silent] == [False] * 12 + [True] * 6


def test_a_silent_handshake_ends(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that connects to a port with TLS and says nothing is let go as soon as one that sends no headers."""
    monkeypatch.setattr(module, "HEAD_S", 0.3)
    make_certificate(tmp_path, "server")
    tls = Tls(tmp_path / "server.crt", tmp_path / "server.key")
    with (
        GuestListener(socket.AF_INET, ("127.0.0.1", 0)) as listener,
        served(listener, tls) as place,
        socket.create_connection(place, timeout=10) as client,
    ):
        began_s = time.monotonic()
        assert client.recv(1) == b""
        assert time.monotonic() - began_s < 5


def test_the_spare_file_is_given_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where others take the spare file meanwhile, its number is theirs, and is not closed again."""
    with GuestListener(socket.AF_INET, ("127.0.0.1", 0), LIMITS) as listener:
        listener.setblocking(False)
        number, real, closed = listener._spare, os.close, list[int]()

        def no_file(*_: object) -> int:
            raise OSError(errno.EMFILE, "no file")

        monkeypatch.setattr(os, "open", no_file)
        monkeypatch.setattr(os, "close", closed.append)
        with suppress(OSError):
            listener._turn_away()
        with suppress(OSError):
            listener._turn_away()
        assert closed == [number]
        real(number)


STARVED = """
import asyncio, os, resource, socket, sys, threading
from tidegate.server.web_server import GuestLimits, GuestListener

async def main():
    listener = GuestListener(socket.AF_INET, ("127.0.0.1", 0), GuestLimits(1000, 1000))
    accepted = []
    async def guest(reader, writer):
        accepted.append(writer)
        await asyncio.sleep(60)
    server = await asyncio.start_server(guest, sock=listener)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    print(listener.getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for writer in accepted:
        writer.close()
    before = os.times()
    await asyncio.sleep(0.5)
    print(len(accepted), os.times().user - before.user < 0.4, open(os.devnull).fileno() >= 0, flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
def test_no_file_is_left() -> None:
    """Where all files are taken, further connections are closed, and the port lives on once some are free."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARVED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process, ExitStack() as stack:
        place = "127.0.0.1", int(process.stdout.readline())
        clients = [stack.enter_context(socket.create_connection(place, timeout=10)) for _ in range(150)]
        assert ended(clients[-1])
        process.stdin.write("\n")
        process.stdin.flush()
        count, calm, opens = process.stdout.readline().split()
        process.stdin.close()
        said = process.stderr.read()
    assert 20 < int(count) < 64
    assert (calm, opens) == ("True", "True")
    assert said.count("no file is left") <= 3


def test_half_of_the_files_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are at most half of the files of the process, and one peer's half of them."""
    for files, connections in ((1024, 512), (1 << 20, CONNECTIONS), (resource.RLIM_INFINITY, CONNECTIONS)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert guest_limits() == GuestLimits(connections, connections // 2)
