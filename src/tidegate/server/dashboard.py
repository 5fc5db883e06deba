"""Routes of the web page at `/`: the page's files, and the data for which TiCDC's API has no request.

Timestamps are texts, lists are bounded, secrets are masked.

    GET   overview                                all changefeeds, a line each, and the server that owns them
    GET   changefeeds/ID                          the details of one
    GET   changefeeds/ID/ddls                     DDLs: running upstream, waiting, being applied, done, left out
    GET   changefeeds/ID/schema?table=&ts=        names of tables, or a definition, as of a ts
    GET   changefeeds/ID/changes?table=&after=    the newest row changes
    GET   changefeeds/ID/snapshots                published snapshots of a lake
    GET   changefeeds/ID/dead_letters             messages that could not be read, with their bytes
    POST  changefeeds/ID/dead_letters/skip        and /replay
    POST  changefeeds/ID/tables/unpark            resumes a parked table
    GET   operations                              the log of operations

Pause, resume, remove, create and verify are TiCDC's own, under /api/v2.

    /              index.html            with an ETag, so an unchanged file is sent once
    /page/NAME     scripts and style     CSP: only these files and this server's API, nothing inline

The files (tidegate/server/page) are read once, when the server starts; there are few and they are small.
"""

import base64
import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from tidegate.config.registry import entries_of, home_of
from tidegate.engine.change import DeadLetter, Place
from tidegate.lakes.lake import Lake, moment_ts
from tidegate.model.errors import ConfigError, DecodeError
from tidegate.server.answers import details, overview_line, safe, shown_state
from tidegate.server.api import Name, Namespace, ServerPlace
from tidegate.server.history import (
    FeedHistory,
    ShownDdl,
    history_of,
    letters_of,
    replay_letter,
    skip_letter,
    unpark_table,
)
from tidegate.server.record import NAMESPACE, ApiParamInvalid, FeedView, parse_id
from tidegate.server.routes import (
    JSON,
    EmptyAnswer,
    LetterBody,
    RouteRow,
    TableBody,
    body_of,
    on_unknown_path,
    read_body,
    routed,
    who,
)
from tidegate.source.kafka_replay import Bytes, base64_text

ONE: Final = "/changefeeds/{changefeed_id}"
LETTER_BYTES: Final = 16_384
"""A longer message is shown cut; `tidegate dlq show` shows all of it."""
Most = Annotated[int, Query(ge=1, le=500)]
Ts = Annotated[str, Query(description="a TSO, a time, or latest", max_length=64)]
TableWord = Annotated[str, Query(max_length=1024)]


class DashboardRoutes:
    """Routes over the changefeeds of a server, for the page."""

    def __init__(self, place: ServerPlace) -> None:
        self._place, self._feeds = place, place.server.changefeeds

    def router(self) -> APIRouter:
        """Return the routes."""
        return routed(
            [
                RouteRow("GET", "/overview", self.overview),
                RouteRow("GET", "/operations", self.operations),
                RouteRow("GET", ONE, self.one),
                RouteRow("GET", f"{ONE}/ddls", self.ddls),
                RouteRow("GET", f"{ONE}/schema", self.schema),
                RouteRow("GET", f"{ONE}/changes", self.changes),
                RouteRow("GET", f"{ONE}/snapshots", self.snapshots),
                RouteRow("GET", f"{ONE}/dead_letters", self.letters),
                RouteRow("POST", f"{ONE}/dead_letters/skip", self.skip, EmptyAnswer, LetterBody),
                RouteRow("POST", f"{ONE}/dead_letters/replay", self.replay, EmptyAnswer, LetterBody),
                RouteRow("POST", f"{ONE}/tables/unpark", self.unpark, EmptyAnswer, TableBody),
            ],
            "/api/tidegate/v1",
        )

    def overview(self, request: Request) -> Response:
        """Show every changefeed in a line, and the server that owns them."""
        now_ms = _now_ms()
        items = [overview_line(view, now_ms) for view in self._feeds.listed()]
        return shown({**self._told(request, now_ms), "items": items})

    def operations(self) -> Response:
        """Show what people did, the newest first."""
        return shown({"items": self._feeds.operations()})

    def one(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Show all that is known of a changefeed now."""
        view, now_ms = self._view(changefeed_id, namespace), _now_ms()
        feed = str(view.id)
        done = [one for one in self._feeds.operations() if str(one.feed) == feed]
        return shown({**self._told(request, now_ms), **details(view, now_ms), "operations": done})

    def ddls(self, changefeed_id: Name, namespace: Namespace = NAMESPACE, limit: Most = 100) -> Response:
        """Show DDLs and how far each is."""
        view = self._view(changefeed_id, namespace)
        found = self._history(view).ddls(limit)
        return shown({"items": [{**msgspec.structs.asdict(ddl), "state": ddl_state(ddl, view)} for ddl in found]})

    def schema(
        self, changefeed_id: Name, namespace: Namespace = NAMESPACE, table: TableWord = "", ts: Ts = "latest"
    ) -> Response:
        """Show the names of the tables at a moment, or the definition of one."""
        history = self._history(self._view(changefeed_id, namespace))
        with _asked():
            moment = moment_ts(ts) or 0
            return shown(history.definition(table, moment) if table else {"tables": history.tables(moment)})

    def changes(
        self,
        changefeed_id: Name,
        namespace: Namespace = NAMESPACE,
        table: TableWord = "",
        after: Ts = "0",
        limit: Most = 50,
    ) -> Response:
        """Show the newest row changes above a ts, oldest first."""
        history = self._history(self._view(changefeed_id, namespace))
        with _asked():
            return shown({"items": history.tail(table, moment_ts(after) or 0, limit)})

    def snapshots(self, changefeed_id: Name, namespace: Namespace = NAMESPACE, limit: Most = 50) -> Response:
        """Show the newest published states of a lake as far as they changed tables, the newest first; none of another
        sink."""
        config = self._feeds.config_of(self._view(changefeed_id, namespace).record)
        if not entries_of(config)[1].keeps_progress:
            return shown({"kept": False, "items": []})
        moved = reversed(Lake(home_of(config)).moves(limit))
        items = [
            {
                "number": one.number,
                "checkpoint_ts": one.checkpoint_ts,
                "published": one.published.isoformat(timespec="milliseconds"),
                "tables": one.tables,
                "changed": one.changed[:20],
                "changed_count": len(one.changed),
                "gone": one.gone[:20],
            }
            for one in moved
        ]
        return shown({"kept": True, "items": items})

    def letters(self, changefeed_id: Name, namespace: Namespace = NAMESPACE, limit: Most = 50) -> Response:
        """Show messages that could not be read or were refused, those that hold the changefeed up first."""
        found = letters_of(self._feeds, parse_id(changefeed_id, namespace), limit)
        return shown({"total": found.total, "items": [_letter(letter, state) for letter, state in found.shown]})

    def skip(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Let a changefeed that stands pass a message, once it is resumed."""
        body = read_body(body_of(request), LetterBody)
        with _asked():
            skip_letter(self._feeds, parse_id(changefeed_id, namespace), _place(body), who(request))
        return shown({})

    def replay(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Land a message after all, with other bytes or options."""
        body = read_body(body_of(request), LetterBody)
        instead = Bytes(_bytes(body.key_b64), _bytes(body.value_b64), body.options)
        feed = parse_id(changefeed_id, namespace)
        with _asked():
            done = replay_letter(self._feeds, feed, _place(body), instead, who(request))
        return shown({"waits_for_resume": done.resolution is not None, "rows": done.rows, "ddls": done.ddls})

    def unpark(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Let a parked table of a lake go on, now or when the changefeed runs next."""
        body = read_body(body_of(request), TableBody)
        with _asked():
            tables = unpark_table(self._feeds, parse_id(changefeed_id, namespace), body.table, who(request))
        return shown({"tables": tables})

    def _told(self, request: Request, now_ms: int) -> dict[str, Any]:
        server = {"id": self._place.server.id, "addr": self._place.addr, "version": self._place.version}
        return {"now_ms": now_ms, "server": server, "who": who(request)}

    def _view(self, name: str, namespace: str) -> FeedView:
        return self._feeds.get(parse_id(name, namespace))

    def _history(self, view: FeedView) -> FeedHistory:
        return history_of(self._feeds.config_of(view.record))


def ddl_state(ddl: ShownDdl, view: FeedView) -> str:
    """Return how far a DDL is on its way from the upstream into the sink."""
    progress = view.progress
    if ddl.error:
        return "refused"
    if not ddl.commit_ts:
        return "upstream"
    if ddl.left_out:
        return "left out"
    if ddl.commit_ts <= view.checkpoint_ts:
        return "done"
    doing = progress is not None and progress.ddl == ddl.query
    return "doing" if doing else "stopped" if shown_state(view) in {"failed", "stopped"} else "waiting"


def shown(value: Any) -> Response:
    """Return an answer that nobody keeps."""
    body = msgspec.json.encode(safe(msgspec.to_builtins(value)))
    return Response(body, headers={"Cache-Control": "no-store"}, media_type=JSON)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _asked() -> Iterator[None]:
    """Take words and bytes that do not fit for a wrong parameter, not for a wrong configuration or message."""
    try:
        yield
    except (ConfigError, DecodeError) as error:
        raise ApiParamInvalid(str(error)) from error


def _place(body: LetterBody) -> Place:
    return Place(body.topic, body.partition, body.offset)


def _bytes(text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ApiParamInvalid(f"the bytes are no base64: {error}") from error


def _letter(letter: DeadLetter, state: str) -> dict[str, Any]:
    """A letter; `..._size` is that of the whole key or value."""
    key, value = letter.raw_key, letter.raw_value
    return {
        "state": state,
        "topic": letter.place.topic,
        "partition": letter.place.partition,
        "offset": letter.place.offset,
        "code": letter.error_code,
        "reason": letter.error,
        "error_offset": letter.error_offset,
        "commit_ts": letter.commit_ts,
        "key_b64": base64_text(key and key[:LETTER_BYTES]),
        "key_size": len(key or b""),
        "value_b64": base64_text(value and value[:LETTER_BYTES]),
        "value_size": len(value or b""),
    }


HOME: Final = Path(__file__).parent / "page"
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
