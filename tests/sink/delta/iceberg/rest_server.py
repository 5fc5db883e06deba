"""An Iceberg REST catalog on a free port, in memory, as strict as the specification: rest_tables.py has its commits.

    with serving() as catalog:          catalog.uri, catalog.tables, catalog.calls
        catalog.without = {TRANSACTION} an endpoint that it neither tells nor has
        catalog.meddle = function       called once before the next commit
        catalog.status = 503            the answer to everything

Like its big brothers it writes each table's metadata beside the table: metadata/00001-<uuid>.metadata.json.
"""

import http.server
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.sink.delta.iceberg.rest_tables import Refused, committed
from tidegate.sink.delta.iceberg_catalogs import COMMIT, DROP, LOAD, REGISTER, RENAME, SPACES, TRANSACTION

Name = tuple[str, str]
LISTS = ("GET /v1/{prefix}/namespaces", "GET /v1/{prefix}/namespaces/{namespace}/tables")
ENDPOINTS = (SPACES, LOAD, COMMIT, DROP, REGISTER, RENAME, TRANSACTION, *LISTS)
PREFIX = "main|lake"
POLL_S = 0.02


class RestTables:
    """What the catalog has."""

    def __init__(self) -> None:
        self.uri = ""
        self.spaces: set[str] = set()
        self.tables: dict[Name, dict[str, Any]] = {}
        self.files: dict[Name, str] = {}
        self.calls: list[str] = []
        self.without: set[str] = set()
        self.tells = True
        self.status = 0
        self.token = ""
        self.meddle: Callable[[], None] | None = None
        self.lock = threading.RLock()

    def answer(self, method: str, path: str, body: Any, token: str) -> Any:
        """The answer to a request."""
        if self.token and token != f"Bearer {self.token}":
            raise Refused(401, "NotAuthorizedException", "no token")
        if self.status:
            raise Refused(self.status, "ServiceUnavailableException", "as asked for")
        if path == "/v1/config":
            told = {"endpoints": [one for one in ENDPOINTS if one not in self.without]} if self.tells else {}
            return {"defaults": {}, "overrides": {"prefix": PREFIX}, **told}
        for endpoint in ENDPOINTS:
            parts = _match(endpoint, f"{method} {path}")
            if parts is not None and parts["prefix"] == PREFIX and endpoint not in self.without:
                self.calls.append(endpoint)
                with self.lock:
                    return self.do(endpoint, parts, body)
        raise Refused(404, "NotFoundException", path)

    def do(self, endpoint: str, parts: dict[str, str], body: Any) -> Any:
        """One endpoint."""
        name = parts.get("namespace", ""), parts.get("table", "")
        if endpoint in {COMMIT, TRANSACTION} and self.meddle is not None:
            meddle, self.meddle = self.meddle, None
            meddle()
        if endpoint == SPACES:
            [space] = body["namespace"]
            if space in self.spaces:
                raise Refused(409, "AlreadyExistsException", space)
            self.spaces.add(space)
            return {"namespace": [space], "properties": {}}
        if endpoint == LISTS[0]:
            return {"namespaces": [[space] for space in sorted(self.spaces)]}
        if name[0] and name[0] not in self.spaces:
            raise Refused(404, "NoSuchNamespaceException", name[0])
        if endpoint == LISTS[1]:
            found = sorted(one for one in self.tables if one[0] == name[0])
            return {"identifiers": [{"namespace": [one[0]], "name": one[1]} for one in found]}
        if endpoint == REGISTER:
            place = body["metadata-location"]
            self.put((name[0], body["name"]), json.loads(Path(unquote(urlsplit(place).path)).read_text()), place)
            return self.shown((name[0], body["name"]))
        if endpoint == RENAME:
            source, home = (_name(body[end]) for end in ("source", "destination"))
            place = self.files.get(source, "")
            self.put(home, self.taken(source), place)
            return None
        if endpoint in {COMMIT, TRANSACTION}:
            self.commit([body] if endpoint == COMMIT else body["table-changes"])
            return self.shown(name) if endpoint == COMMIT else None
        if endpoint == DROP:
            self.taken(name)
            return None
        return self.shown(name)

    def put(self, name: Name, metadata: dict[str, Any], place: str) -> None:
        """Let a new name stand for a table."""
        if name in self.tables:
            raise Refused(409, "AlreadyExistsException", ".".join(name))
        self.tables[name], self.files[name] = metadata, place

    def taken(self, name: Name) -> dict[str, Any]:
        """Take a table away."""
        if name not in self.tables:
            raise Refused(404, "NoSuchTableException", ".".join(name))
        del self.files[name]
        return self.tables.pop(name)

    def commit(self, changes: list[dict[str, Any]]) -> None:
        """All of it, or nothing."""
        after = {}
        for change in changes:
            name = _name(change["identifier"])
            creates = {"type": "assert-create"} in change["requirements"]
            if name not in self.tables and not creates:
                raise Refused(404, "NoSuchTableException", ".".join(name))
            after[name] = committed(self.tables.get(name), change["requirements"], change["updates"])
        for name, metadata in after.items():
            file = f"metadata/{len(metadata['snapshots']):05d}-{uuid.uuid4()}.metadata.json"
            place = Path(unquote(urlsplit(metadata["location"]).path), file)
            place.write_text(json.dumps(metadata))
            self.tables[name], self.files[name] = metadata, f"file://{place}"

    def shown(self, name: Name) -> Any:
        """A table as LoadTableResult has it."""
        if name not in self.tables:
            raise Refused(404, "NoSuchTableException", ".".join(name))
        return {"metadata-location": self.files[name], "metadata": self.tables[name], "config": {}}


def _name(identifier: dict[str, Any]) -> Name:
    [space] = identifier["namespace"]
    return space, identifier["name"]


def _match(endpoint: str, asked: str) -> dict[str, str] | None:
    known, told = endpoint.split("/"), asked.split("/")
    pairs = [(part, unquote(word)) for part, word in zip(known, told, strict=False)]
    fits = len(known) == len(told) and all(part == word or part[0] == "{" for part, word in pairs)
    return {part[1:-1]: word for part, word in pairs if part[0] == "{"} if fits else None


@contextmanager
def serving() -> Iterator[RestTables]:
    """A catalog without tables."""
    catalog = RestTables()

    class Handler(http.server.BaseHTTPRequestHandler):
        """One request."""

        def handle_request(self) -> None:
            """Answer it."""
            asked = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                body, token = json.loads(raw) if raw else None, self.headers.get("Authorization", "")
                found = catalog.answer(self.command, asked.path, body, token)
                self.send(204 if found is None else 200, found)
            except Refused as error:
                told = {"message": error.why, "type": error.kind, "code": error.status}
                self.send(error.status, {"error": told})

        def send(self, status: int, found: Any) -> None:
            """Send what was found."""
            body = b"" if found is None else json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    for method in ("GET", "POST", "DELETE", "HEAD"):
        setattr(Handler, f"do_{method}", Handler.handle_request)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    catalog.uri = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=[POLL_S], daemon=True)
    thread.start()
    try:
        yield catalog
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)
