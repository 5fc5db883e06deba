"""A small lake, its catalog behind a real port, and a client that asks it."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from tests.sink.delta.small import Small
from tests.sink.delta.tended import NO_MERCY
from tidegate.lakes.catalog import application


class Told(NamedTuple):
    """What a server answered."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def error(self) -> tuple[str, str]:
        """The type and the message of an error."""
        assert self.body["error"]["code"] == self.status
        return self.body["error"]["type"], self.body["error"]["message"]


class Client(NamedTuple):
    """Asks a server; `headers` go with each request."""

    uri: str
    headers: Mapping[str, str] = {}

    def ask(self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None, **more: Any) -> Told:
        """The answer to a request."""
        body = b"{}" if method == "POST" else None
        request = urllib.request.Request(
            self.uri + path, method=method, data=body, headers={**self.headers, **(headers or {})}
        )
        try:
            with urllib.request.urlopen(request, timeout=30, **more) as response:
                return _told(response)
        except urllib.error.HTTPError as error:
            with error:
                return _told(error)

    def prefix(self, warehouse: str) -> str:
        """The prefix of the sessions of a warehouse."""
        return self.ask(f"/v1/config?warehouse={warehouse}").body["overrides"]["prefix"]


def _told(response: Any) -> Told:
    raw = response.read()
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Told(response.status, json.loads(raw) if raw else None, headers)


@contextmanager
def served(root: str | Path, token: str | None = None) -> Iterator[Client]:
    """The catalog of a lake on a free port, and a client of it."""
    config = uvicorn.Config(application(str(root), token), port=0, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Client(f"http://127.0.0.1:{port}", {} if token is None else {"Authorization": f"Bearer {token}"})
    finally:
        server.should_exit = True
        thread.join(30)


def made(root: str | Path, *, iceberg: bool = True) -> Small:
    """A lake with the tables s.T and s.u at snapshot 0 and 1 (ts 20, 40); at 2 (ts 60) s.u is gone and s.w is there.

    The database `Empty` has no table."""
    feed = Small(root, NO_MERCY, iceberg=iceberg)
    feed.ddl(9, "CREATE DATABASE Empty", table="")
    feed.ddl(10, "CREATE TABLE T (id INT PRIMARY KEY, v INT)", table="T")
    feed.ddl(11, "CREATE TABLE u (id INT PRIMARY KEY, v INT)", table="u")
    feed.rows.insert(12, "T", id=1, v=1)
    feed.rows.insert(12, "u", id=1, v=1)
    feed.round(20)
    feed.rows.insert(32, "T", id=2, v=2)
    feed.round(40)
    feed.ddl(50, "DROP TABLE u", table="u")
    feed.ddl(51, "CREATE TABLE w (id INT PRIMARY KEY)", table="w")
    feed.round(60)
    return feed
