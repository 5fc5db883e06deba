"""The catalog as a web application: who may ask, then one answer for each request.

    request ──► its Host, where no token guards the port ──► its token ──► LakeCatalog.answer, in a thread ──► response

A port without a token listens on this machine alone.  A page in a browser of the machine can still send requests to it
under a name of the page's own server (DNS rebinding), so such a port answers only to the machine's own names.
"""

import hmac
from typing import TYPE_CHECKING

from tidegate.lakes.catalog.protocol import OPEN, Answer, Call, CatalogRefused, parse_call, refusal
from tidegate.lakes.catalog.service import LakeCatalog
from tidegate.model.host import reaches_others

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response


def application(root: str, token: str | None) -> "Starlette":
    """Return the application of a lake's catalog; with a token only its bearers are answered."""
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    catalog = LakeCatalog(root)

    def respond(request: "Request") -> "Response":
        try:
            found = catalog.answer(_admitted(request, token))
        except CatalogRefused as error:
            found = refusal(error)
        if request.method == "HEAD":
            found = Answer(204 if found.status == 200 else found.status, headers=found.headers)
        kind = "application/json" if found.body else None
        return Response(found.body, found.status, dict(found.headers), kind)

    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
    return Starlette(routes=[Route("/{path:path}", respond, methods=methods)])


def _admitted(request: "Request", token: str | None) -> Call:
    """The call of a request. CatalogRefused for one that may not ask."""
    path = request.scope["raw_path"].decode("ascii", "replace")
    host = request.url.hostname or ""
    if token is None and reaches_others(host):
        why = f"this catalog has no token and answers to names of its own machine only, not to {host}"
        raise CatalogRefused(403, "ForbiddenException", why)
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    known = token is None or (kind.lower() == "bearer" and hmac.compare_digest(given.encode(), token.encode()))
    if not known and path not in OPEN:
        raise CatalogRefused(401, "NotAuthorizedException", "this catalog wants its bearer token: set `token`")
    return parse_call(request.method, path, request.query_params, request.headers.get("if-none-match", ""))
