"""Calls to a search server, OpenSearch or Elasticsearch: the parts of its API that both have had for years.

    answer                      what follows
    none, 5xx, 429, 408         SinkError: later; another server of the list is asked next
    401, 403                    LoginRefused: check the account
    others                      the caller's

Plain HTTP by Python's own library: a handful of calls needs no client, and the servers' own clients refuse each other's
servers.  A password goes into a header, and into no message.
"""

import base64
import http.client
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from tidegate.model.errors import ConfigError, LoginRefused, SinkError, SinkRefused
from tidegate.sink.exchange import exchange

LATER: Final = frozenset({408, 429, 500, 502, 503, 504})
_SHOWN: Final = 500
ANSWER_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Servers of one cluster, and how they are reached; times in seconds. Printing it shows no password."""

    hosts: tuple[tuple[str, int], ...]
    user: str = ""
    password: str = field(default="", repr=False)
    api_key: str = field(default="", repr=False)
    tls: bool = False
    ssl_ca: str = ""
    ssl_cert: str = ""
    ssl_key: str = ""
    timeout_s: float = 60.0
    bulk_rows: int = 2_000
    bulk_bytes: int = 8 << 20
    refresh: str = "1s"
    tombstone_s: float = 3_600.0

    @property
    def place(self) -> str:
        """The servers, for messages."""
        return ",".join(f"{host}:{port}" for host, port in self.hosts)


class ServerAnswer(NamedTuple):
    """What a server answered."""

    status: int
    body: bytes

    @property
    def is_ok(self) -> bool:
        """Whether it did what it was asked."""
        return 200 <= self.status < 300

    def json(self) -> Any:
        """Return the answer's JSON."""
        return msgspec.json.decode(self.body)

    @property
    def reason(self) -> str:
        """What the server says of an error."""
        try:
            error = self.json()["error"]
            error = (error.get("root_cause") or [error])[0]
            return f"{self.status} {error['type']}: {error['reason']}"[:_SHOWN]
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
            return f"{self.status} {self.body.decode('utf-8', 'replace')}"[:_SHOWN]


class SearchCalls:
    """A connection that is made when it is needed, and again, to the next server, when it broke."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self._next = 0
        self._connection: http.client.HTTPConnection | None = None

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | object = None,
        query: Mapping[str, object] | None = None,
        *,
        many: bool = False,
    ) -> ServerAnswer:
        """Return the answer to a call; `many` says that the body is a line for each of several. SinkError for none."""
        sent = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        headers = {"content-type": "application/x-ndjson" if many else "application/json", **self._account()}
        target = f"{path}?{urlencode(query)}" if query else path
        failed: Exception | None = None
        for _ in range(1 + len(self.options.hosts)):
            fresh = self._connection is None
            try:
                self._connection = self._connection or self._connected()
                found = exchange(
                    self._connection,
                    method,
                    target,
                    sent,
                    headers,
                    within_s=self.options.timeout_s,
                    most_bytes=ANSWER_BYTES,
                )
            except (OSError, http.client.HTTPException) as error:
                self.close()
                failed = error
                self._next += fresh  # an old connection may have ended by itself
                continue
            if found.ends:
                self.close()
            return self._checked(ServerAnswer(found.status, found.body))
        raise SinkError(f"{self.options.place}: {failed or type(failed).__name__}") from failed

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def done(self, answer: ServerAnswer, what: str) -> ServerAnswer:
        """Return an answer that says yes. SinkError for a server that cannot now, SinkRefused for one that does not."""
        if answer.is_ok:
            return answer
        raise (SinkError if answer.status in LATER else SinkRefused)(f"{self.options.place}: {what}: {answer.reason}")

    def _checked(self, answer: ServerAnswer) -> ServerAnswer:
        if answer.status in {401, 403}:
            raise LoginRefused(
                f"{self.options.place}: {answer.reason}; check user and password of the address; '@', ':' and '/' of a "
                "password are written %40, %3A and %2F"
            )
        if answer.status >= 500:
            raise SinkError(f"{self.options.place}: {answer.reason}")
        return answer

    def _account(self) -> Mapping[str, str]:
        options = self.options
        if options.api_key:
            return {"authorization": f"ApiKey {options.api_key}"}
        if options.user:
            word = base64.b64encode(f"{options.user}:{options.password}".encode()).decode()
            return {"authorization": f"Basic {word}"}
        return {}

    def _connected(self) -> http.client.HTTPConnection:
        options = self.options
        host, port = options.hosts[self._next % len(options.hosts)]
        if not options.tls:
            return http.client.HTTPConnection(host, port, timeout=options.timeout_s)
        try:
            context = ssl.create_default_context(cafile=options.ssl_ca or None)
            if options.ssl_cert:
                context.load_cert_chain(options.ssl_cert, options.ssl_key)
        except OSError as error:
            raise ConfigError(f"sink-uri: ssl-ca, ssl-cert or ssl-key cannot be used: {error}") from error
        return http.client.HTTPSConnection(host, port, timeout=options.timeout_s, context=context)


def path_of(*parts: str) -> str:
    """Return the path of names."""
    return "/" + "/".join(quote(part, safe="_") if not part.startswith("_") else part for part in parts)
