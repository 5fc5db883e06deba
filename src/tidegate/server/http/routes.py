"""One route: its method and path, who answers, and what /openapi.json says of its bodies.

Every route may also answer with a fault (FAULTS); a route's own answers stand in its row.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from tidegate.server.http.bodies import FaultBody, SentBody
from tidegate.server.http.faults import JSON

FAULTS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": FaultBody, "description": "A word of the request is wrong, or what it names is missing"},
    401: {"model": FaultBody, "description": "The sender is not known, or may only read"},
    403: {"model": FaultBody, "description": "A page of another server sent it, or it names another host"},
    404: {"description": "Unknown path or method", "content": {"text/plain": {"schema": {"type": "string"}}}},
    408: {"model": FaultBody, "description": "The body did not come in time"},
    413: {"model": FaultBody, "description": "The body is too long"},
    500: {"model": FaultBody, "description": "Everything else, such as a changefeed of that name that is there"},
    503: {"model": FaultBody, "description": "The server has not joined yet, or stops"},
}

REPLICA_CONFIG: Final = "ReplicaConfig"
"""The name of its schema, which stands once."""


class RouteRow(NamedTuple):
    """A row of a table of routes."""

    method: str
    path: str
    endpoint: Callable[..., Response | Awaitable[Response]]
    answer: type[BaseModel] | None = None
    body: type[SentBody] | None = None
    required: bool = True
    """False: the body may be empty."""
    status: int = 200
    text: bool = False
    """The answer is plain text."""


def routed(rows: list[RouteRow], prefix: str = "") -> APIRouter:
    """Return the routes of a table."""
    router = APIRouter(prefix=prefix, redirect_slashes=False)
    for row in rows:
        content: dict[str, Any] = {"text/plain" if row.text else "application/json": {"schema": {}}}
        done: dict[str, Any] = {"model": row.answer} if row.answer else {"content": content}
        router.add_api_route(
            row.path,
            row.endpoint,
            methods=[row.method],
            response_model=None,
            status_code=row.status,
            responses={row.status: {"description": "Done", **done}, **FAULTS},
            openapi_extra=None if row.body is None else _body(row.body, required=row.required),
        )
    return router


def _body(kind: type[SentBody], *, required: bool) -> dict[str, Any]:
    schema = kind.model_json_schema()
    if "replica_config" in schema["properties"]:
        schema["properties"]["replica_config"] = {"$ref": f"#/components/schemas/{REPLICA_CONFIG}"}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def answer(value: object, status: int = 200) -> Response:
    """Return a value as compact JSON."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)


def indented(value: object, spaces: int) -> Response:
    """Return a value as JSON for people."""
    return Response(msgspec.json.format(msgspec.json.encode(value), indent=spaces), media_type=JSON)


def body_of(request: Request) -> bytes:
    """Return the body that the entrance has read."""
    found: bytes = request.scope["state"].get("body", b"")
    return found


def who(request: Request) -> str:
    """Return who sends a request."""
    return str(request.scope["state"]["who"])
