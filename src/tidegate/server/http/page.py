"""The page at `/`: files of tidegate/app/server/page/, as they are.

    /              index.html            an answer says what it is (ETag), so an unchanged file is sent once
    /page/NAME     scripts and style     CSP: nothing but these files and this server's API, nothing inline

The files are read once, when the server begins; there are few and they are small.
"""

import hashlib
from pathlib import Path
from typing import Final, NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tidegate.server.http.faults import on_unknown_path

HOME: Final = Path(__file__).parents[1] / "page"
KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class Asset(NamedTuple):
    """A file of the page."""

    body: bytes
    kind: str
    etag: str


def assets() -> dict[str, Asset]:
    """Return the files of the page by their names."""
    found = {}
    for path in sorted(HOME.iterdir()):
        if path.suffix in KINDS:
            body = path.read_bytes()
            found[path.name] = Asset(body, KINDS[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return found


class PageRoutes:
    """Routes of the page."""

    def __init__(self) -> None:
        self._assets = assets()

    def router(self) -> APIRouter:
        """Return the routes, which are no part of the API."""
        router = APIRouter(redirect_slashes=False, include_in_schema=False)
        router.add_api_route("/", self.index, methods=["GET", "HEAD"], response_model=None)
        router.add_api_route("/page/{name}", self.file, methods=["GET", "HEAD"], response_model=None)
        return router

    async def index(self, request: Request) -> Response:
        """Return the page."""
        return await self.file(request, "index.html")

    async def file(self, request: Request, name: str) -> Response:
        """Return one of its files, or nothing but that it has not changed."""
        asset = self._assets.get(name)
        if asset is None:
            return await on_unknown_path()
        headers = {**HEADERS, "ETag": asset.etag}
        if request.headers.get("if-none-match") == asset.etag:
            return Response(status_code=304, headers=headers)
        return Response(asset.body, headers=headers, media_type=asset.kind)
