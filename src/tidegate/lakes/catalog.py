"""The Iceberg REST catalog of a lake: read-only, its published snapshots as namespaces and tables.

    request ──► check Host, if there is no token ──► check token ──► LakeCatalog.answer, in a thread ──► response

    GET /v1/at-17/namespaces/shop/tables/orders      Call("table", {prefix: at-17, namespace: shop, table: orders})
    POST, PUT, PATCH, DELETE of anything             403 ForbiddenException, but for reports of metrics: 204
    any other path                                   404 NoSuchPathException

    {"error": {"message": "there is no table shop.x", "type": "NoSuchTableException", "code": 404}}

Parts of a path are decoded one by one, so a name may contain a slash; the parts of a namespace are separated by the
unit separator, 1F.  Names match in any case, as in TiDB.  A parked table is reported with the reason, since its rows
are of another ts.  Lists are sorted, so that the last name of a page is the token of the next one.

A client chooses the snapshot by its warehouse, and the prefix in the answer pins its session to it:

    GET /v1/config?warehouse=       snapshot                                prefix of all that follows
    lake                            the newest, at each request             lake
    lake@now                        the newest, at this request             at-<its number>
    lake@17                         snapshot 17                             at-17
    lake@470607233675427842         the newest at or below that TSO         at-<its number>
    lake@2026-01-02T03:04:05Z       the newest at or below that time        at-<its number>

So any reader of Iceberg sees all tables at one timestamp.  The word before @, and a path before it, are ignored.

There is no database, and only immutable data is cached:

    newest()      lists _tidegate/snapshots from the newest known number on       one listing per request
    numbered(n)   a snapshot is written once, so its names are cached, and        KEPT of them
                  its schema by its digest                                        KEPT_SCHEMAS
    metadata      tables/<incarnation>/metadata/v<Delta version + 1>.metadata.json, read at each request, sent as it is

The catalog vends no credentials: a client has its own for the store that the metadata names.  A port without a token
listens on the loopback interface only, and answers only to the machine's own names, since a page in a local browser
could send requests to it under a name of the page's server (DNS rebinding).

Source: Iceberg REST catalog specification (rest-catalog-open-api.yaml): paths, /v1/config, ErrorModel, OAuthError.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

import msgspec
import obstore

from tidegate.lakes.lake import moment_ts
from tidegate.model.errors import ConfigError, InputError, SinkError, TableParked
from tidegate.model.host import reaches_others
from tidegate.model.name import lowered
from tidegate.model.table import TableName
from tidegate.objectstore.stores import STORE_ERRORS, first_line, store
from tidegate.sink.delta.iceberg_projection import metadata_path, metadata_uri
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import Snapshot, kept_schema, number_at, numbered, numbers


class CatalogTable(NamedTuple):
    """The rows of a table: an incarnation, at a Delta version."""

    name: TableName
    incarnation: str
    version: int


@dataclass(frozen=True, slots=True)
class CatalogNames:
    """The names of all tables of snapshot `number`; keys are folded."""

    number: int
    checkpoint_ts: int
    databases: Mapping[str, str]
    tables: Mapping[tuple[str, str], CatalogTable]
    parked: Mapping[tuple[str, str], TableParked]

    @staticmethod
    def of(snapshot: Snapshot, root: str) -> "CatalogNames":
        """Return the names of a snapshot; none if it was never published."""
        tables = {
            table.name.key: CatalogTable(table.name, incarnation, table.version)
            for incarnation, table in snapshot.tables.items()
        }
        databases = {lowered(database.name): database.name for database in snapshot.state.databases.values()}
        databases |= {key[0]: databases.get(key[0], table.name.schema) for key, table in tables.items()}
        parked = {}
        for table in snapshot.state.tables.values():
            try:
                snapshot.check_not_parked(table, root)
            except TableParked as error:
                parked[table.name.key] = error
        return CatalogNames(snapshot.number, snapshot.checkpoint.ts, databases, tables, parked)

    def database(self, name: str) -> str | None:
        """Return a database's name in its own spelling; None if there is none."""
        return self.databases.get(lowered(name))

    def table(self, database: str, name: str) -> CatalogTable | None:
        """Return the rows of a table; None if there is none. Raises TableParked for a parked one."""
        key = TableName(database, name).key
        if key in self.parked:
            raise self.parked[key]
        return self.tables.get(key)

    def tables_of(self, database: str) -> list[str]:
        """Return the names of a database's tables, sorted."""
        folded = lowered(database)
        return sorted(table.name.table for key, table in self.tables.items() if key[0] == folded)


def page(names: Sequence[str], token: str | None, size: int) -> tuple[Sequence[str], str | None]:
    """Return the page of sorted names that a token selects, and the token of the next page; without a token, all."""
    if token is None:
        return names, None
    left = [name for name in names if name > token]
    return left[:size], left[size - 1] if len(left) > size else None


SEPARATOR: Final = "\x1f"
_TABLES: Final = "/v1/{prefix}/namespaces/{namespace}/tables"
_VIEWS: Final = "/v1/{prefix}/namespaces/{namespace}/views"
ENDPOINTS: Final[Mapping[str, str]] = {
    "/v1/{prefix}/namespaces": "namespaces",
    "/v1/{prefix}/namespaces/{namespace}": "namespace",
    _TABLES: "tables",
    f"{_TABLES}/{{table}}": "table",
}
"""Endpoints listed for clients, by GET and (one namespace or table) HEAD. Without those of views, clients send no
requests for them."""
_PATHS: Final = {
    tuple(path.split("/")[1:]): name
    for path, name in {
        "/v1/config": "config",
        **ENDPOINTS,
        _VIEWS: "views",
        f"{_VIEWS}/{{view}}": "view",
        f"{_TABLES}/{{table}}/metrics": "metrics",
        "/v1/oauth/tokens": "tokens",
        "/healthz": "health",
    }.items()
}
READS: Final = frozenset({"GET", "HEAD"})
METHODS: Final = {"metrics": frozenset({"POST"}), "tokens": frozenset({"POST"})}
OPEN: Final = frozenset({"/v1/oauth/tokens", "/healthz"})
"""Requests that need no token."""


class CatalogRefused(InputError):
    """A request that is answered with an error: (HTTP status, the specification's type, reason)."""

    def __init__(self, status: int, kind: str, reason: str, /) -> None:
        super().__init__(status, kind, reason)
        self.status, self.kind, self.why = status, kind, reason

    def __str__(self) -> str:
        return self.why


class Call(NamedTuple):
    """A request: its name, the parts of its path by name, its query, and the ETag that the client has."""

    name: str
    parts: Mapping[str, str]
    query: Mapping[str, str]
    etag: str = ""


class Answer(NamedTuple):
    """An answer: JSON, or nothing."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


def parse_call(method: str, raw_path: str, query: Mapping[str, str], etag: str = "") -> Call:
    """Return the call of a request. Raises CatalogRefused for a path that is not served, and for writes."""
    words = tuple(unquote(part) for part in raw_path.split("/")[1:])
    for path, name in _PATHS.items():
        if (parts := _match(path, words)) is not None and method in METHODS.get(name, READS):
            return Call(name, parts, query, etag)
    if method in READS:
        raise CatalogRefused(404, "NoSuchPathException", f"{raw_path} is not a path of this catalog")
    raise CatalogRefused(403, "ForbiddenException", "this catalog is read-only: only a changefeed writes its lake")


def _match(path: tuple[str, ...], words: tuple[str, ...]) -> dict[str, str] | None:
    if len(path) != len(words):
        return None
    pairs = [(part, word) for part, word in zip(path, words, strict=True) if part != word]
    return {part[1:-1]: word for part, word in pairs} if all(part[0] == "{" for part, _ in pairs) else None


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return a value as a JSON answer."""
    return Answer(status, msgspec.json.encode(value), headers or {})


def refusal(error: CatalogRefused) -> Answer:
    """Return the answer for an error in the specification's form."""
    body = {"message": error.why, "type": error.kind, "code": error.status}
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    return json_answer({"error": body}, error.status, headers)


KEPT: Final = 16
"""Snapshots whose names are cached."""
KEPT_SCHEMAS: Final = 2
"""Schemas that are cached: one lasts until the next DDL, and takes a third of a second to load for 2,000 tables."""


class CatalogStates:
    """The snapshots of a lake. Thread-safe."""

    def __init__(self, root: str) -> None:
        self.options = DeltaOptions(root=root, feed="")
        self._newest = 0
        schemas = lru_cache(KEPT_SCHEMAS)(kept_schema)
        self.numbered = lru_cache(KEPT)(
            lambda number: CatalogNames.of(numbered(self.options, number, schemas), self.options.root)
        )
        """Returns the names of a snapshot. Raises FileNotFoundError when there is none, or none any more."""

    def newest(self) -> CatalogNames:
        """Return the names of the newest snapshot; none for a new lake."""
        snapshot_numbers = numbers(self.options, self._newest) or numbers(self.options)
        if not snapshot_numbers:
            return CatalogNames.of(Snapshot(), self.options.root)
        self._newest = snapshot_numbers[-1]
        return self.numbered(snapshot_numbers[-1])

    def metadata(self, table: CatalogTable) -> bytes:
        """Return the stored metadata of a table. Raises FileNotFoundError if there is none."""
        root = self.options.root.rstrip("/")
        path = f"{self.options.table_uri(table.incarnation)}/{metadata_path(table.version)}"
        body: bytes = obstore.get(store(root), path.removeprefix(f"{root}/")).bytes().to_bytes()
        return body


MOVING: Final = "lake"
"""Prefix of sessions that see each new snapshot."""
NUMBER_END: Final = 1 << 32
"""Numbers from here on are TSOs: the physical part of a smaller one lies in the first seconds of 1970."""
_NUMBER: Final = re.compile("[0-9]{1,10}")
_PINNED: Final = re.compile(r"at-(0|[1-9][0-9]{0,19})")


@dataclass(frozen=True, slots=True)
class MovingView:
    """Each request sees the newest snapshot."""


@dataclass(frozen=True, slots=True)
class PinnedView:
    """All requests see that snapshot; None for the newest one at the start of the session."""

    number: int | None


@dataclass(frozen=True, slots=True)
class ViewAt:
    """All requests see the newest snapshot not above `ts`."""

    ts: int


View: TypeAlias = MovingView | PinnedView | ViewAt


def parse_warehouse(text: str) -> View:
    """Return the moment that a warehouse names. Raises ConfigError for other text."""
    _, pinned, moment = text.rpartition("/")[2].partition("@")
    if not pinned:
        return MovingView()
    if _NUMBER.fullmatch(moment) and int(moment) < NUMBER_END:
        return PinnedView(int(moment))
    ts = None if moment in {"", "now"} else moment_ts(moment)
    return PinnedView(None) if ts is None else ViewAt(ts)


def parse_prefix(text: str) -> int | None:
    """Return the snapshot of a prefix, None for the moving view. Raises LookupError for other text."""
    if text == MOVING:
        return None
    if match := _PINNED.fullmatch(text):
        return int(match[1])
    raise LookupError(text)


def render_prefix(number: int) -> str:
    """Return the prefix of sessions that stay at a snapshot."""
    return f"at-{number}"


PAGE: Final = 1_000
"""Names per page, for a client that asks for pages without a size."""
PAGE_SIZE: Final = re.compile("[1-9][0-9]{0,8}")
LISTED_ENDPOINTS: Final = [
    f"{method} {path}"
    for path, name in ENDPOINTS.items()
    for method in (("GET", "HEAD") if name in {"namespace", "table"} else ("GET",))
]


class LakeCatalog:
    """The catalog of a lake. Thread-safe."""

    def __init__(self, root: str) -> None:
        self._states = CatalogStates(root)
        self._answers: Mapping[str, Callable[[Call], Answer]] = {
            "config": self._config,
            "namespaces": self._namespaces,
            "namespace": self._namespace,
            "tables": self._tables,
            "table": self._table,
            "views": self._views,
            "view": self._view,
            "metrics": lambda _: Answer(204),
            "tokens": lambda _: NO_TOKENS,
            "health": lambda _: json_answer({"status": "ok"}),
        }

    def answer(self, call: Call) -> Answer:
        """Answer a call. Raises CatalogRefused."""
        try:
            return self._answers[call.name](call)
        except TableParked as error:
            raise CatalogRefused(403, "ForbiddenException", str(error)) from error
        except (SinkError, *STORE_ERRORS) as error:
            raise CatalogRefused(
                503, "ServiceUnavailableException", f"the lake's store: {first_line(error)}"
            ) from error

    def _config(self, call: Call) -> Answer:
        number = self._pinned(call.query.get("warehouse", MOVING))
        overrides = {"prefix": MOVING}
        if number is not None:
            names = self._numbered(number)
            overrides = {
                "prefix": render_prefix(number),
                "tidegate.snapshot": str(number),
                "tidegate.checkpoint-ts": str(names.checkpoint_ts),
            }
        return json_answer({"defaults": {}, "overrides": overrides, "endpoints": LISTED_ENDPOINTS})

    def _pinned(self, warehouse: str) -> int | None:
        try:
            view = parse_warehouse(warehouse)
        except ConfigError as error:
            raise CatalogRefused(400, "BadRequestException", f"warehouse {warehouse}: {error}") from error
        match view:
            case MovingView():
                return None
            case PinnedView(None):
                number = self._states.newest().number
            case PinnedView(number):
                pass
            case ViewAt(ts):
                number = number_at(self._states.options, ts)
        if number < 0:
            raise _no_warehouse(f"warehouse {warehouse}: the lake has no published snapshot at or before that moment")
        return number

    def _numbered(self, number: int) -> CatalogNames:
        try:
            return self._states.numbered(number)
        except FileNotFoundError as error:
            reason = f"snapshot {number} was never published, or the lake's retention has removed it"
            raise _no_warehouse(f"{reason}: `tidegate lake history` lists those that are left") from error

    def _names(self, call: Call) -> CatalogNames:
        try:
            number = parse_prefix(call.parts["prefix"])
        except LookupError as error:
            raise _no_warehouse(f"{error} is not a prefix of this catalog: see GET /v1/config") from error
        return self._states.newest() if number is None else self._numbered(number)

    def _database(self, names: CatalogNames, namespace: str) -> str:
        database = None if SEPARATOR in namespace else names.database(namespace)
        if database is None:
            shown = namespace.replace(SEPARATOR, ".")
            raise CatalogRefused(404, "NoSuchNamespaceException", f"there is no database {shown} at {_moment(names)}")
        return database

    def _namespaces(self, call: Call) -> Answer:
        names = self._names(call)
        if parent := call.query.get("parent"):
            self._database(names, parent)
            return json_answer({"namespaces": [], "next-page-token": None})
        databases, following = _paged(sorted(names.databases.values()), call)
        return json_answer({"namespaces": [[name] for name in databases], "next-page-token": following})

    def _namespace(self, call: Call) -> Answer:
        name = self._database(self._names(call), call.parts["namespace"])
        return json_answer({"namespace": [name], "properties": {"database": name}})

    def _tables(self, call: Call) -> Answer:
        names = self._names(call)
        database = self._database(names, call.parts["namespace"])
        tables, following = _paged(names.tables_of(database), call)
        identifiers = [{"namespace": [database], "name": name} for name in tables]
        return json_answer({"identifiers": identifiers, "next-page-token": following})

    def _table(self, call: Call) -> Answer:
        names = self._names(call)
        database = self._database(names, call.parts["namespace"])
        name = call.parts["table"]
        table = names.table(database, name)
        if table is None:
            raise _no_table(f"there is no table {database}.{name} at {_moment(names)}")
        location = metadata_uri(self._states.options.table_uri(table.incarnation), table.version)
        try:
            metadata = self._states.metadata(table)
        except FileNotFoundError as error:
            root = self._states.options.root
            raise _no_table(
                f"table {table.name} has no Iceberg metadata at {_moment(names)}: {location} is missing. If the "
                f"lake's retention has removed that snapshot, use a newer one; else run `tidegate lake project {root}`"
            ) from error
        etag = f'"{hashlib.sha256(metadata).hexdigest()[:32]}"'
        if etag in call.etag:
            return Answer(304, headers={"ETag": etag})
        parts = (b'{"metadata-location":', json_answer(location).body, b',"metadata":', metadata, b',"config":{}}')
        return Answer(200, b"".join(parts), {"ETag": etag})

    def _views(self, call: Call) -> Answer:
        self._database(self._names(call), call.parts["namespace"])
        return json_answer({"identifiers": [], "next-page-token": None})

    def _view(self, call: Call) -> Answer:
        raise CatalogRefused(404, "NoSuchViewException", f"no view {call.parts['view']}: a lake has only tables")


NO_TOKENS: Final = json_answer(
    {
        "error": "unsupported_grant_type",
        "error_description": "this catalog issues no tokens: set the property `token`, not `credential`, to the "
        "content of the file that `tidegate catalog serve --token-file` names",
    },
    400,
)


def _paged(names: list[str], call: Call) -> tuple[list[str], str | None]:
    size = call.query.get("pageSize", str(PAGE))
    if not PAGE_SIZE.fullmatch(size):
        raise CatalogRefused(400, "BadRequestException", f"pageSize {size[:20]} is not a positive number")
    names_of_page, following = page(names, call.query.get("pageToken"), int(size))
    return list(names_of_page), following


def _moment(names: CatalogNames) -> str:
    return f"snapshot {names.number}" if names.number >= 0 else "this moment: the lake has no published snapshot"


def _no_table(reason: str) -> CatalogRefused:
    return CatalogRefused(404, "NoSuchTableException", reason)


def _no_warehouse(reason: str) -> CatalogRefused:
    return CatalogRefused(404, "NoSuchWarehouseException", reason)


if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response


def application(root: str, token: str | None) -> "Starlette":
    """Return the web application of a lake's catalog; with a token, requests need it as bearer token."""
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    catalog = LakeCatalog(root)

    def respond(request: "Request") -> "Response":
        try:
            answer = catalog.answer(_admitted(request, token))
        except CatalogRefused as error:
            answer = refusal(error)
        if request.method == "HEAD":
            answer = Answer(204 if answer.status == 200 else answer.status, headers=answer.headers)
        kind = "application/json" if answer.body else None
        return Response(answer.body, answer.status, dict(answer.headers), kind)

    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
    return Starlette(routes=[Route("/{path:path}", respond, methods=methods)])


def _admitted(request: "Request", token: str | None) -> Call:
    path = request.scope["raw_path"].decode("ascii", "replace")
    host = request.url.hostname or ""
    if token is None and reaches_others(host):
        reason = f"this catalog has no token and accepts only host names of its own machine, not {host}"
        raise CatalogRefused(403, "ForbiddenException", reason)
    kind, _, credential = request.headers.get("authorization", "").partition(" ")
    allowed = token is None or (kind.lower() == "bearer" and hmac.compare_digest(credential.encode(), token.encode()))
    if not allowed and path not in OPEN:
        raise CatalogRefused(401, "NotAuthorizedException", "this catalog needs its bearer token: set `token`")
    return parse_call(request.method, path, request.query_params, request.headers.get("if-none-match", ""))
