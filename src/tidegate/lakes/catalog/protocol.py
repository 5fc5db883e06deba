"""The words of the Iceberg REST protocol: requests by their paths, answers, and errors with the specification's types.

    GET /v1/at-17/namespaces/shop/tables/orders      Call("table", {prefix: at-17, namespace: shop, table: orders})
    POST, PUT, PATCH, DELETE of anything             403 ForbiddenException, but for reports of metrics: 204
    any other path                                   404 NoSuchPathException

    {"error": {"message": "there is no table shop.x", "type": "NoSuchTableException", "code": 404}}

Parts of a path are decoded one by one, so that a name may hold a slash; the parts of a namespace are divided by the
unit separator, 1F.

Source: Iceberg REST catalog specification (rest-catalog-open-api.yaml): paths, ErrorModel, OAuthError.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

import msgspec

from tidegate.model.errors import InputError

SEPARATOR: Final = "\x1f"
_TABLES: Final = "/v1/{prefix}/namespaces/{namespace}/tables"
_VIEWS: Final = "/v1/{prefix}/namespaces/{namespace}/views"
ENDPOINTS: Final[Mapping[str, str]] = {
    "/v1/{prefix}/namespaces": "namespaces",
    "/v1/{prefix}/namespaces/{namespace}": "namespace",
    _TABLES: "tables",
    f"{_TABLES}/{{table}}": "table",
}
"""What clients are told of, by GET and (one namespace or table) HEAD; views are not among it, so that none is asked."""
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
"""What is answered without a token."""


class CatalogRefused(InputError):
    """A request that is not answered with what it asked for: (HTTP status, the specification's type, why)."""

    def __init__(self, status: int, kind: str, why: str, /) -> None:
        super().__init__(status, kind, why)
        self.status, self.kind, self.why = status, kind, why

    def __str__(self) -> str:
        return self.why


class Call(NamedTuple):
    """A request: what it asks for, the parts of its path by name, its query, and the ETag that the client has."""

    name: str
    parts: Mapping[str, str]
    query: Mapping[str, str]
    etag: str = ""


class Answer(NamedTuple):
    """What goes back: JSON, or nothing."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


def parse_call(method: str, raw_path: str, query: Mapping[str, str], etag: str = "") -> Call:
    """Return what a request asks for. Raises CatalogRefused for a path that is not served, and for what would write."""
    told = tuple(unquote(part) for part in raw_path.split("/")[1:])
    for path, name in _PATHS.items():
        if (parts := _match(path, told)) is not None and method in METHODS.get(name, READS):
            return Call(name, parts, query, etag)
    if method in READS:
        raise CatalogRefused(404, "NoSuchPathException", f"{raw_path} is no path of this catalog")
    raise CatalogRefused(403, "ForbiddenException", "this catalog is read only: a changefeed alone writes its lake")


def _match(path: tuple[str, ...], told: tuple[str, ...]) -> dict[str, str] | None:
    """The parts of a path by their names; None for another path."""
    if len(path) != len(told):
        return None
    pairs = [(part, word) for part, word in zip(path, told, strict=True) if part != word]
    return {part[1:-1]: word for part, word in pairs} if all(part[0] == "{" for part, _ in pairs) else None


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return a value as an answer."""
    return Answer(status, msgspec.json.encode(value), headers or {})


def refusal(error: CatalogRefused) -> Answer:
    """Return the answer that tells an error in the specification's form."""
    told = {"message": error.why, "type": error.kind, "code": error.status}
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    return json_answer({"error": told}, error.status, headers)
