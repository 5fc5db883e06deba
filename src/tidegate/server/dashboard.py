"""Routes of the web page at `/`: the page's files, and the data for which TiCDC's API has no request.

Timestamps are texts, lists are bounded, secrets are masked.

    GET   overview                                all changefeeds, a line each, and the server that owns them
    GET   changefeeds/ID                          the details of one
    GET   changefeeds/ID/source                   since when the source has all changes
    GET   changefeeds/ID/ddls                     DDLs: running upstream, waiting, being applied, done, left out
    GET   changefeeds/ID/schema?table=&ts=        names of tables, or a definition, as of a ts
    GET   changefeeds/ID/changes?table=&after=    the newest row changes
    GET   changefeeds/ID/snapshots                published snapshots of a lake
    GET   changefeeds/ID/dead_letters             messages that could not be read, with their bytes
    POST  changefeeds/ID/dead_letters/skip        and /replay
    POST  changefeeds/ID/tables/unpark            resumes a parked table
    POST  changefeeds/ID/tables/add               loads tables beside the others; and /reload
    POST  changefeeds/ID/rows/repair              brings rows again by their keys; GET tells the outcome
    POST  changefeeds/ID/load/start               loads tables again, or for the first time; and /cancel
    GET   operations                              the log of operations
    GET   sinks                                   kinds of sinks with an example each
    GET   debug                                   the process itself: settings, threads, Spark, the end of its log

Pause, resume, remove, create and verify are TiCDC's own, under /api/v2.

    /              index.html            with an ETag, so an unchanged file is sent once
    /page/NAME     scripts and style     CSP: only these files and this server's API, nothing inline
    /runbook       error codes           what each means and what to do

The files (tidegate/server/page) are read once, when the server starts; there are few and they are small.
"""

import base64
import hashlib
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from tidegate.config.entry import is_landed
from tidegate.config.registry import entries_of
from tidegate.config.uri import mask_value
from tidegate.engine.change import DeadLetter, EventPosition
from tidegate.engine.log_fields import log_tail
from tidegate.engine.reload import RepairKeys
from tidegate.lakes.lake import moment_ts, moves
from tidegate.model import runbook
from tidegate.model.errors import ConfigError, DecodeError, SourceError
from tidegate.model.name import parts_of
from tidegate.model.table import TableName
from tidegate.server.answers import address, details, overview_line, safe, shown_state
from tidegate.server.api import Name, Namespace, ServerIdentity
from tidegate.server.history import (
    Histories,
    ShownDdl,
    begin_of,
    replay_letter,
    skip_letter,
    unpark_table,
)
from tidegate.server.parameters import sink_kinds
from tidegate.server.record import NAMESPACE, ApiParamInvalid, FeedView, parse_id, wall_ms
from tidegate.server.routes import (
    JSON,
    EmptyAnswer,
    LetterBody,
    LoadBody,
    ReloadBody,
    RepairBody,
    RouteRow,
    TableBody,
    body_of,
    on_unknown_path,
    read_body,
    routed,
    who,
)
from tidegate.source.kafka_replay import Bytes, base64_text

CHANGEFEED: Final = "/changefeeds/{changefeed_id}"
LETTER_BYTES: Final = 16_384
"""Longer messages are truncated; `tidegate dlq show` prints them whole."""
Limit = Annotated[int, Query(ge=1, le=500)]
Ts = Annotated[str, Query(description="a TSO, a time, or latest", max_length=64)]
TableWord = Annotated[str, Query(max_length=1024)]


class DashboardRoutes:
    """Routes for the page, over the changefeeds of a server."""

    def __init__(self, identity: ServerIdentity) -> None:
        self._identity, self._feeds = identity, identity.server.changefeeds
        self._histories = Histories(self._feeds)

    def router(self) -> APIRouter:
        """Return the routes."""
        return routed(
            [
                RouteRow("GET", "/overview", self.overview),
                RouteRow("GET", "/operations", self.operations),
                RouteRow("GET", "/debug", self.debug),
                RouteRow("GET", "/sinks", self.sinks),
                RouteRow("GET", CHANGEFEED, self.changefeed),
                RouteRow("GET", f"{CHANGEFEED}/source", self.source),
                RouteRow("GET", f"{CHANGEFEED}/ddls", self.ddls),
                RouteRow("GET", f"{CHANGEFEED}/schema", self.schema),
                RouteRow("GET", f"{CHANGEFEED}/changes", self.changes),
                RouteRow("GET", f"{CHANGEFEED}/snapshots", self.snapshots),
                RouteRow("GET", f"{CHANGEFEED}/dead_letters", self.letters),
                RouteRow("POST", f"{CHANGEFEED}/dead_letters/skip", self.skip, EmptyAnswer, LetterBody),
                RouteRow("POST", f"{CHANGEFEED}/dead_letters/replay", self.replay, EmptyAnswer, LetterBody),
                RouteRow("POST", f"{CHANGEFEED}/tables/unpark", self.unpark, EmptyAnswer, TableBody),
                RouteRow("POST", f"{CHANGEFEED}/tables/add", self.add_tables, EmptyAnswer, LoadBody),
                RouteRow("POST", f"{CHANGEFEED}/tables/reload", self.reload_tables, EmptyAnswer, ReloadBody),
                RouteRow("POST", f"{CHANGEFEED}/rows/repair", self.repair_rows, EmptyAnswer, RepairBody),
                RouteRow("GET", f"{CHANGEFEED}/rows/repair", self.last_repair),
                RouteRow("POST", f"{CHANGEFEED}/load/start", self.start_load, EmptyAnswer, LoadBody, required=False),
                RouteRow("POST", f"{CHANGEFEED}/load/cancel", self.cancel_load, EmptyAnswer),
            ],
            "/api/tidegate/v1",
        )

    def overview(self, request: Request) -> Response:
        """Show a line for every changefeed, and the server that owns them."""
        now_ms = wall_ms()
        items = [overview_line(view, now_ms) for view in self._feeds.listed()]
        return shown({**self._header(request, now_ms), "items": items})

    def operations(self) -> Response:
        """Show the operation log, newest first."""
        return shown({"items": self._feeds.operations()})

    def sinks(self) -> Response:
        """Show the kinds of sinks, each with an example of its address."""
        return shown({"items": sink_kinds()})

    def debug(self) -> Response:
        """Show the process: its settings, what each thread does, Spark, and the end of its log."""
        server, names = self._identity.server, {thread.ident: thread.name for thread in threading.enumerate()}
        frames = sys._current_frames()  # noqa: SLF001  the documented way to the stacks of other threads
        stacks = {f"{names.get(ident, '')} {ident}": traceback.format_stack(frame) for ident, frame in frames.items()}
        settings = {
            name: mask_value(name, value) if isinstance(value, str) else value
            for name, value in msgspec.to_builtins(server.config).items()
        }
        spark = server.spark.facts()
        return shown({"settings": settings, "stacks": stacks, "spark": spark, "log": log_tail()})

    def changefeed(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Show everything known about a changefeed now."""
        view, now_ms = self._view(changefeed_id, namespace), wall_ms()
        feed = str(view.id)
        operations = [operation for operation in self._feeds.operations() if str(operation.feed) == feed]
        return shown({**self._header(request, now_ms), **details(view, now_ms), "operations": operations})

    def source(self, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Show the ts above which the source still has all changes, null if it does not answer, and that above which a
        changefeed needs them."""
        view = self._view(changefeed_id, namespace)
        config = self._feeds.config_of(view.record)
        needed_ts = view.resolved_ts if is_landed(*entries_of(config)) else view.checkpoint_ts
        reported_ts = view.progress.begin_ts if view.progress and view.running else 0
        try:
            begin_ts = reported_ts or begin_of(config)
        except SourceError:
            begin_ts = None
        return shown({"begin_ts": begin_ts, "needed_ts": needed_ts})

    def ddls(self, changefeed_id: Name, namespace: Namespace = NAMESPACE, limit: Limit = 100) -> Response:
        """Show DDLs and the state of each."""
        view = self._view(changefeed_id, namespace)
        with self._histories.opened(view) as history:
            ddls = history.ddls(limit)
        return shown({"items": [{**msgspec.structs.asdict(ddl), "state": ddl_state(ddl, view)} for ddl in ddls]})

    def schema(
        self, changefeed_id: Name, namespace: Namespace = NAMESPACE, table: TableWord = "", ts: Ts = "latest"
    ) -> Response:
        """Show the names of the tables as of a timestamp, or the definition of one."""
        with _parameter_errors(), self._histories.opened(self._view(changefeed_id, namespace)) as history:
            moment = moment_ts(ts) or 0
            return shown(history.definition(table, moment) if table else {"tables": history.tables(moment)})

    def changes(
        self,
        changefeed_id: Name,
        namespace: Namespace = NAMESPACE,
        table: TableWord = "",
        after: Ts = "0",
        limit: Limit = 50,
    ) -> Response:
        """Show the newest row changes above a timestamp, oldest first."""
        with _parameter_errors(), self._histories.opened(self._view(changefeed_id, namespace)) as history:
            return shown({"items": history.tail(table, moment_ts(after) or 0, limit)})

    def snapshots(self, changefeed_id: Name, namespace: Namespace = NAMESPACE, limit: Limit = 50) -> Response:
        """Show the newest snapshots of a lake that changed tables, newest first; none for another sink."""
        with self._histories.opened(self._view(changefeed_id, namespace)) as history:
            if history.lake is None:
                return shown({"kept": False, "items": []})
            snapshots = reversed(moves(history.lake.changes())[-limit:])
        items = [
            {
                "number": snapshot.number,
                "checkpoint_ts": snapshot.checkpoint_ts,
                "published": snapshot.published.isoformat(timespec="milliseconds"),
                "tables": snapshot.tables,
                "changed": snapshot.changed[:20],
                "changed_count": len(snapshot.changed),
                "gone": snapshot.gone[:20],
            }
            for snapshot in snapshots
        ]
        return shown({"kept": True, "items": items})

    def letters(self, changefeed_id: Name, namespace: Namespace = NAMESPACE, limit: Limit = 50) -> Response:
        """Show messages that could not be read or were refused; those that block the changefeed come first."""
        view = self._view(changefeed_id, namespace)
        with self._histories.opened(view) as history:
            letters = history.letters(view.checkpoint_ts, limit)
        return shown({"total": letters.total, "items": [_letter(letter, state) for letter, state in letters.shown]})

    def skip(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Skip a message that blocks a changefeed, once it is resumed."""
        body = read_body(body_of(request), LetterBody)
        with _parameter_errors():
            skip_letter(self._feeds, parse_id(changefeed_id, namespace), _position(body), who(request))
        return shown({})

    def replay(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Replay a message, with other bytes or options."""
        body = read_body(body_of(request), LetterBody)
        instead = Bytes(_bytes(body.key_b64), _bytes(body.value_b64), body.options)
        feed = parse_id(changefeed_id, namespace)
        with _parameter_errors():
            result = replay_letter(self._feeds, feed, _position(body), instead, who(request))
        return shown({"waits_for_resume": result.resolution is not None, "rows": result.rows, "ddls": result.ddls})

    def unpark(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Resume a parked table of a lake, now or when the changefeed runs next."""
        body = read_body(body_of(request), TableBody)
        with _parameter_errors():
            tables = unpark_table(self._feeds, parse_id(changefeed_id, namespace), body.table, who(request))
        return shown({"tables": tables})

    def add_tables(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Let the filter of a changefeed take tables, and load them beside the others."""
        return self._beside(request, changefeed_id, namespace, adds=True)

    def reload_tables(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Load tables of a changefeed again, all or those of some rules, beside the others; where readers have had
        their rows only with `resend`."""
        return self._beside(request, changefeed_id, namespace, adds=False)

    def _beside(self, request: Request, name: str, namespace: str, *, adds: bool) -> Response:
        feed, body = parse_id(name, namespace), read_body(body_of(request), LoadBody if adds else ReloadBody)
        resend = isinstance(body, ReloadBody) and body.resend
        stored = str(self._feeds.get(feed).record.config.get("source", {}).get("load-from", ""))
        with _parameter_errors():
            load_from = address("load_from", body.load_from, stored)
            self._feeds.reload_tables(feed, load_from, body.tables, who(request), adds=adds, resend=resend)
        return shown({})

    def repair_rows(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Let a changefeed read rows again, and write or delete them in its target."""
        rows = []
        for some in read_body(body_of(request), RepairBody).rows:
            name = parts_of(some.table)
            if len(name) != len(TableName._fields) or any(len(key) != len(some.columns) for key in some.keys):
                raise ApiParamInvalid(f"{some.table}: expected database.table, and a value for each column in each key")
            rows.append(RepairKeys(TableName(*name), tuple(some.columns), tuple(map(tuple, some.keys))))
        with _parameter_errors():
            self._feeds.repair_rows(parse_id(changefeed_id, namespace), rows, who(request))
        return shown({})

    def last_repair(self, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Show the last repair or reload of a changefeed, and its outcome, which is empty until it has ended."""
        last = self._feeds.requests_of(parse_id(changefeed_id, namespace)).read()
        return shown({"request": "" if last is None else str(last), "outcome": "" if last is None else last.outcome})

    def start_load(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Load the tables of a changefeed, all or those of some rules; it is stopped for the load, and continues."""
        feed = parse_id(changefeed_id, namespace)
        body = read_body(body_of(request), LoadBody, required=False)
        stored = str(self._feeds.get(feed).record.config.get("source", {}).get("load-from", ""))
        with _parameter_errors():
            self._feeds.start_load(feed, address("load_from", body.load_from, stored), body.tables, who(request))
        return shown({})

    def cancel_load(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """End a load that is not done, and stop the changefeed."""
        self._feeds.cancel_load(parse_id(changefeed_id, namespace), who(request))
        return shown({})

    def _header(self, request: Request, now_ms: int) -> dict[str, Any]:
        server = {"id": self._identity.server.id, "addr": self._identity.addr, "version": self._identity.version}
        return {"now_ms": now_ms, "server": server, "who": who(request)}

    def _view(self, name: str, namespace: str) -> FeedView:
        return self._feeds.get(parse_id(name, namespace))


def ddl_state(ddl: ShownDdl, view: FeedView) -> str:
    """Return the state of a DDL on its way from the upstream to the sink."""
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
    """Return a JSON answer that is not cached."""
    body = msgspec.json.encode(safe(msgspec.to_builtins(value)))
    return Response(body, headers={"Cache-Control": "no-store"}, media_type=JSON)


@contextmanager
def _parameter_errors() -> Iterator[None]:
    """Report errors of configurations and messages as those of a parameter."""
    try:
        yield
    except (ConfigError, DecodeError) as error:
        raise ApiParamInvalid(str(error)) from error


def _position(body: LetterBody) -> EventPosition:
    return EventPosition(body.topic, body.partition, body.offset)


def _bytes(text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ApiParamInvalid(f"the bytes are not base64: {error}") from error


def _letter(letter: DeadLetter, state: str) -> dict[str, Any]:
    """Return a dead letter for JSON; `..._size` is the size of the whole key or value."""
    key, value = letter.raw_key, letter.raw_value
    return {
        "state": state,
        "topic": letter.position.topic,
        "partition": letter.position.partition,
        "offset": letter.position.offset,
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
    assets_by_name = {}
    for path in sorted(HOME.iterdir()):
        if path.suffix in KINDS:
            body = path.read_bytes()
            assets_by_name[path.name] = Asset(body, KINDS[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return assets_by_name


class PageRoutes:
    """Routes of the page."""

    def __init__(self) -> None:
        self._assets = assets()

    def router(self) -> APIRouter:
        """Return the routes; they are not part of the API's schema."""
        router = APIRouter(redirect_slashes=False, include_in_schema=False)
        router.add_api_route("/", self.index, methods=["GET", "HEAD"], response_model=None)
        router.add_api_route("/page/{name}", self.file, methods=["GET", "HEAD"], response_model=None)
        router.add_api_route("/runbook", self.runbook, methods=["GET", "HEAD"], response_model=None)
        return router

    async def index(self, request: Request) -> Response:
        """Return the page."""
        return await self.file(request, "index.html")

    async def runbook(self) -> Response:
        """Return the runbook's sections, one for each error code."""
        return Response(runbook.html(), headers=HEADERS, media_type="text/html")

    async def file(self, request: Request, name: str) -> Response:
        """Return a file of the page, or 304 if the client has it already."""
        asset = self._assets.get(name)
        if asset is None:
            return await on_unknown_path()
        headers = {**HEADERS, "ETag": asset.etag}
        if request.headers.get("if-none-match") == asset.etag:
            return Response(status_code=304, headers=headers)
        return Response(asset.body, headers=headers, media_type=asset.kind)
