"""A real server on a socket, and a client that sends what it is told, byte for byte."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvicorn

from tests.e2e.collected import into
from tests.server.kit import ServerHome, until
from tidegate.server.application import application
from tidegate.server.config import announced
from tidegate.server.server import Server
from tidegate.server.web_server import web_server
from tidegate.sinks import callback


class Answered(NamedTuple):
    """An answer."""

    status: int
    text: str
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        """Its body."""
        return json.loads(self.text)


class Client:
    """Asks a server at HOST:PORT."""

    def __init__(self, address: str, **headers: str) -> None:
        self.address, self.headers = address, headers

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answered:
        """Send a request; a body that is no text is sent as JSON."""
        text = body if isinstance(body, str | bytes | None) else json.dumps(body)
        connection = http.client.HTTPConnection(self.address, timeout=60)
        sent = {name.replace("_", "-"): value for name, value in (self.headers | headers).items()}
        connection.request(method, path, text, sent)
        answer = connection.getresponse()
        found = Answered(answer.status, answer.read().decode(), {k.lower(): v for k, v in answer.getheaders()})
        connection.close()
        return found

    def get(self, path: str, **headers: str) -> Answered:
        """GET below /api/v2."""
        return self.ask("GET", f"/api/v2{path}", **headers)

    def post(self, path: str, body: object = None, **headers: str) -> Answered:
        """POST below /api/v2."""
        return self.ask("POST", f"/api/v2{path}", body, **headers)

    def put(self, path: str, body: object = None) -> Answered:
        """PUT below /api/v2."""
        return self.ask("PUT", f"/api/v2{path}", body)

    def delete(self, path: str) -> Answered:
        """DELETE below /api/v2."""
        return self.ask("DELETE", f"/api/v2{path}")


def token_of(server: Server) -> dict[str, str]:
    """The header by which a server without users takes writes."""
    return {"Authorization": f"Bearer {server.token}"} if server.token else {}


@contextmanager
def port() -> Iterator[tuple[socket.socket, str]]:
    """A socket that listens, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener, f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def listening(server: Server, listener: socket.socket) -> Iterator[uvicorn.Server]:
    """The server's application at a socket."""
    web = web_server(application(server), server.config.tls)
    thread = threading.Thread(target=web.run, args=([listener],), daemon=True)
    thread.start()
    until(lambda: web.started)
    try:
        yield web
    finally:
        web.should_exit = True
        thread.join(20)


@contextmanager
def served(place: ServerHome, **flags: object) -> Iterator[tuple[Server, Client]]:
    """A server of a place that owns, and a client of it."""
    with port() as (listener, address):
        server = place.server(advertise_addr=address, **flags)
        try:
            until(lambda: server.changefeeds.is_owner)
            with listening(server, listener), announced(listener.getsockname()[1], server.token):
                yield server, Client(address, **token_of(server))
        finally:
            server.stop()


def guarded(home: str, password: str) -> callback:
    """A sink with a secret in its address."""
    assert password
    return into(home)
