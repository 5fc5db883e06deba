"""A client of an Iceberg REST catalog: one session, its prefix, and the endpoints that the catalog has.

    GET  /v1/config?warehouse=…                  prefix, endpoints       once a session
    POST /v1/{prefix}/transactions/commit        what is not among the endpoints is not asked for

The token is read anew with each request, so that a file may be replaced while a feed runs; it goes to the catalog's own
address only and stands in no message.  A catalog that tells no endpoints has those that the specification presumes.

Source: Iceberg REST catalog specification (rest-catalog-open-api.yaml): CatalogConfig, paths, ErrorModel.
"""

import http.client
import json
import os
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from tidegate.model.errors import SinkError
from tidegate.sink.exchange import HttpClient, Reply

TOKEN_VARIABLE: Final = "TIDEGATE_CATALOG_TOKEN"  # noqa: S105  the variable's name
TIMEOUT_S: Final = 10.0
WORK_S: Final = 60.0
"""For what the catalog has to read or write files."""
ANSWER_MAX_BYTES: Final = 64 << 20
TEXT_MAX: Final = 300
_SPACE: Final = "/v1/{prefix}/namespaces/{namespace}"
SPACES: Final = "POST /v1/{prefix}/namespaces"
LOAD: Final = f"GET {_SPACE}/tables/{{table}}"
COMMIT: Final = f"POST {_SPACE}/tables/{{table}}"
DROP: Final = f"DELETE {_SPACE}/tables/{{table}}"
REGISTER: Final = f"POST {_SPACE}/register"
RENAME: Final = "POST /v1/{prefix}/tables/rename"
TRANSACTION: Final = "POST /v1/{prefix}/transactions/commit"
WORK: Final = frozenset({COMMIT, REGISTER, TRANSACTION})


class CatalogAnswer(SinkError):
    """An answer that is no success: `status` and the specification's `kind` of error; 0 where there was no answer."""

    status = 0
    kind = ""

    @property
    def lacking(self) -> bool:
        """True where the catalog has no such endpoint."""
        unknown = self.status == 404 and not self.kind.startswith("NoSuch")
        return unknown or self.status in {405, 501} or self.kind == "UnsupportedOperationException"


@dataclass
class RestClient:
    """Asks the catalog at `uri`; begin() tells what it has."""

    uri: str
    warehouse: str = ""
    token_file: str = ""
    prefix: str = ""
    endpoints: frozenset[str] = frozenset()
    """What the catalog tells of; nothing for what the specification presumes."""
    lacks: set[str] = field(default_factory=set)
    """What it turned out not to have."""

    def begin(self) -> None:
        """Begin a session. CatalogAnswer if the catalog gives none."""
        asked = f"?{urlencode({'warehouse': self.warehouse})}" if self.warehouse else ""
        told = self._send("GET", f"/v1/config{asked}") or {}
        given = {**(told.get("defaults") or {}), **(told.get("overrides") or {})}
        self.prefix = str(given.get("prefix", ""))
        self.endpoints = frozenset(told.get("endpoints") or ())
        self.lacks = set()

    def offers(self, endpoint: str) -> bool:
        """Return True if the catalog should have an endpoint."""
        return endpoint not in self.lacks and (not self.endpoints or endpoint in self.endpoints)

    def ask(self, endpoint: str, body: Any = None, query: str = "", **parts: str) -> Any:
        """Return the answer of an endpoint, None for an empty one. CatalogAnswer for what is no success."""
        method, _, path = endpoint.partition(" ")
        prefix = quote(self.prefix, safe="/%")
        path = path.replace("/{prefix}", f"/{prefix}" if prefix else "")
        for name, part in parts.items():
            path = path.replace(f"{{{name}}}", quote(part, safe=""))
        try:
            return self._send(method, path + query, body, WORK_S if endpoint in WORK else TIMEOUT_S)
        except CatalogAnswer as answer:
            if answer.lacking:
                self.lacks.add(endpoint)
            raise

    def _send(self, method: str, path: str, body: Any = None, within_s: float = TIMEOUT_S) -> Any:
        address = urlsplit(self.uri.rstrip("/") + path)
        headers = {"accept": "application/json", "content-type": "application/json"}
        if token := self._token():
            headers["authorization"] = f"Bearer {token}"
        client = HttpClient(
            address.hostname or "",
            address.port,
            None if address.scheme == "http" else ssl.create_default_context,
            within_s=within_s,
            most_bytes=ANSWER_MAX_BYTES,
        )
        try:
            target = f"{address.path}?{address.query}" if address.query else address.path
            reply = client.ask(method, target, None if body is None else json.dumps(body).encode(), headers)
            if reply.is_ok:
                return reply.json() if reply.body.strip() else None
        except (OSError, ValueError, msgspec.DecodeError) as error:
            raise CatalogAnswer(f"catalog {self.uri} does not answer {method} {path}: {error}") from error
        finally:
            client.close()
        raise self._answer(reply, f"{method} {path}")

    def _token(self) -> str:
        if not self.token_file:
            return os.environ.get(TOKEN_VARIABLE, "")
        try:
            return Path(self.token_file).read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            raise CatalogAnswer(
                f"catalog-token-file {self.token_file} cannot be read: {type(error).__name__}"
            ) from None

    def _answer(self, reply: Reply, asked: str) -> CatalogAnswer:
        kind, why = "", http.client.responses.get(reply.status, "")
        if 300 <= reply.status < 400:
            why = f"it redirects to {reply.headers.get('location', 'nowhere')}; give that address as catalog"
        with suppress(msgspec.DecodeError, AttributeError):
            told: Mapping[str, Any] = reply.json().get("error") or {}
            kind, why = str(told.get("type", "")), str(told.get("message", why))
        found = CatalogAnswer(f"catalog {self.uri} answers {asked} with {reply.status} {kind}: {why[:TEXT_MAX]}")
        found.status, found.kind = reply.status, kind
        return found
