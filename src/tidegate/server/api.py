"""Handlers of TiCDC's OpenAPI v2: changefeeds, and the server itself.

    POST /changefeeds ── CreateBody ──► NewFeed ──► Changefeeds.create ──► FeedView ──► ChangeFeedInfo

An address or a setting that is sent back masked, as it was shown, keeps its value: a client that reads a changefeed,
changes one field and sends the whole (TiCDC's command line does) destroys no password.

    /healthz /livez     the process answers                    /status, /api/v2/status    which server this is
    /readyz             joined, and not stopping               /api/v2/health             there is an owner, and what
                                                                                          should run runs

Also served: the list of captures, the log level, and TiCDC's requests without effect here.

Source: TiCDC's OpenAPI v2, classic architecture.
"""

import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from importlib.metadata import version
from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo

import msgspec
from fastapi import APIRouter, Depends, Path, Query
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from tidegate.config.changefeed import OWN
from tidegate.config.uri import mask_uri
from tidegate.model.errors import UriInvalid
from tidegate.model.tso import compose
from tidegate.server import answers
from tidegate.server.answers import address, version_text
from tidegate.server.metrics import TYPE
from tidegate.server.record import (
    NAMESPACE,
    RUNS,
    ApiParamInvalid,
    FeedChange,
    FeedRecord,
    FeedView,
    NewFeed,
    parse_id,
)
from tidegate.server.replica_config import masked, parse, unmasked
from tidegate.server.routes import (
    CaptureList,
    CaptureMissing,
    ChangeFeedInfo,
    ChangefeedList,
    ChangefeedStatus,
    ClusterUnhealthy,
    CreateBody,
    DrainRefused,
    EmptyAnswer,
    LockBody,
    LogBody,
    ProcessorList,
    ResumeBody,
    RouteRow,
    ServerStatus,
    SyncedStatus,
    TableNotMoved,
    TsoAnswer,
    UpdateBody,
    UpstreamWords,
    VerifiedTables,
    answer,
    body_of,
    indented,
    not_ready,
    read_body,
    routed,
    who,
)
from tidegate.server.server import Server


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """What answers say of the server that gives them. `zone` None is the machine's own."""

    server: Server
    addr: str
    zone: tzinfo | None
    version: str


def place_of(server: Server) -> ServerPlace:
    """Return the place of a server."""
    config = server.config
    zone = None if config.tz == "System" else ZoneInfo(config.tz)
    return ServerPlace(server, config.advertise_addr, zone, version_text(version("tidegate")))


ID_FORM: Final = {"pattern": "^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$", "maxLength": 128}
Name = Annotated[str, Path(json_schema_extra=ID_FORM)]
NamespaceWord = Annotated[str, Query(json_schema_extra=ID_FORM)]


def _any_namespace(namespace: NamespaceWord = "", keyspace: NamespaceWord = "") -> str:
    return namespace or keyspace


AnyNamespace = Annotated[str, Depends(_any_namespace)]
"""The namespace of a request, by TiCDC's classic word or by its newer one; empty where it names none."""


def _namespace(found: AnyNamespace) -> str:
    return found or NAMESPACE


Namespace = Annotated[str, Depends(_namespace)]
ONE: Final = "/changefeeds/{changefeed_id}"


MOVES: Final = ("move_table", "move_split_table", "split_table_by_region_count", "merge_table")
"""Requests of TiCDC's that place tables on its nodes."""
READ_BY_ALL_TABLES: Final = frozenset({"case-sensitive", "force-replicate", "filter", "source"})
"""Keys of a changefeed file that say which tables there are, into whatever sink."""


class ChangefeedRoutes:
    """Routes over the changefeeds of a server."""

    def __init__(self, place: ServerPlace) -> None:
        self._place, self._feeds = place, place.server.changefeeds
        self._modules = place.server.config.callback_modules

    def router(self) -> APIRouter:
        """Return the routes."""
        return routed(
            [
                RouteRow("POST", "/changefeeds", self.create, ChangeFeedInfo, CreateBody),
                RouteRow("GET", "/changefeeds", self.list, ChangefeedList),
                RouteRow("GET", ONE, self.get, ChangeFeedInfo),
                RouteRow("PUT", ONE, self.update, ChangeFeedInfo, UpdateBody),
                RouteRow("DELETE", ONE, self.remove, EmptyAnswer),
                RouteRow("POST", f"{ONE}/pause", self.pause, EmptyAnswer),
                RouteRow("POST", f"{ONE}/resume", self.resume, EmptyAnswer, ResumeBody, required=False),
                RouteRow("GET", f"{ONE}/status", self.status, ChangefeedStatus),
                RouteRow("GET", f"{ONE}/synced", self.synced, SyncedStatus),
                RouteRow("POST", "/verify_table", self.verify, VerifiedTables, CreateBody),
                RouteRow("POST", "/get_all_tables", self.all_tables, VerifiedTables, CreateBody),
                *(RouteRow("POST", f"{ONE}/{verb}", self.move, EmptyAnswer) for verb in MOVES),
            ],
            "/api/v2",
        )

    def create(self, request: Request, namespace: AnyNamespace) -> Response:
        """Make a changefeed and start it."""
        view = self._feeds.create(self._new_feed(read_body(body_of(request), CreateBody), namespace), who(request))
        return answer(self._info(view))

    def list(
        self,
        state: Annotated[str, Query(description="normal, stopped, failed, warning, finished, or all")] = "",
        namespace: AnyNamespace = "",
    ) -> Response:
        """List changefeeds; without a state those that are neither finished nor removed."""
        views = [view for view in self._feeds.listed() if namespace in {"", view.id.namespace}]
        items = [answers.item(view, self._place.addr, self._place.zone) for view in answers.selected(views, state)]
        return answer({"total": len(items), "items": items})

    def get(self, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Show a changefeed, and in `tidegate` what TiCDC does not know of one."""
        view = self._feeds.get(parse_id(changefeed_id, namespace))
        return answer({**self._info(view), "tidegate": answers.extension(view)})

    def update(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Change a changefeed that is stopped or failed."""
        feed = parse_id(changefeed_id, namespace)
        given = read_body(body_of(request), UpdateBody)
        kept = self._feeds.get(feed).record
        tree, source = (None, "") if given.replica_config is None else _config(given.replica_config)
        change = FeedChange(
            sink_uri=address("sink_uri", given.sink_uri, kept.sink_uri, self._modules),
            source_uri=address("source_uri", given.source_uri or source, kept.source_uri),
            target_ts=given.target_ts or None,
            config=None if tree is None else unmasked(tree, kept.config),
        )
        return answer(self._info(self._feeds.update(feed, change, who(request))))

    def remove(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Remove a changefeed; one that is missing is removed already."""
        self._feeds.remove(parse_id(changefeed_id, namespace), who(request))
        return answer({})

    def pause(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Stop a changefeed; its checkpoint stays."""
        self._feeds.pause(parse_id(changefeed_id, namespace), who(request))
        return answer({})

    def resume(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Let a changefeed go on."""
        feed = parse_id(changefeed_id, namespace)
        given = read_body(body_of(request), ResumeBody, required=False)
        self._feeds.resume(feed, who(request), given.overwrite_checkpoint_ts)
        return answer({})

    def status(self, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Tell how far a changefeed is, and what ails it."""
        return answer(answers.status(self._feeds.get(parse_id(changefeed_id, namespace)), self._place.addr))

    def synced(self, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Tell whether everything that was written upstream is in the sink."""
        view = self._feeds.get(parse_id(changefeed_id, namespace))
        return answer(answers.synced(view, compose(time.time_ns() // 1_000_000), self._place.zone))

    def move(self, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Refuse: one server runs all tables of a changefeed, so none is placed elsewhere, split or merged."""
        self._feeds.get(parse_id(changefeed_id, namespace))
        raise TableNotMoved(f"one server runs all tables of {changefeed_id}: none is moved, split or merged")

    def verify(self, request: Request) -> Response:
        """Tell which tables a changefeed would carry, without making it."""
        return self._tables(request, read_body(body_of(request), CreateBody))

    def all_tables(self, request: Request) -> Response:
        """Tell which tables these settings carry; without a sink, which of them could go into any."""
        given = read_body(body_of(request), CreateBody)
        if given.sink_uri:
            return self._tables(request, given)
        tree = {name: value for name, value in parse(given.replica_config).items() if name in READ_BY_ALL_TABLES}
        return self._tables(request, given.model_copy(update={"replica_config": tree}), OWN)

    def _tables(self, request: Request, given: CreateBody, sink_uri: str = "") -> Response:
        new = self._new_feed(given, sink_uri=sink_uri)
        if new.source_uri not in {"", self._place.server.config.source_uri}:
            request.state.may_write()
        found = self._feeds.verify(new)
        told = {
            "ineligible_tables": found.ineligible,
            "eligible_tables": found.eligible,
            "all_tables": (*found.eligible, *found.ineligible),
        }
        return answer({name: tables for name, tables in told.items() if tables})

    def _new_feed(self, given: CreateBody, namespace: str = "", *, sink_uri: str = "") -> NewFeed:
        """`sink_uri` stands for the client's own, which is none of its words."""
        if not given.sink_uri and not sink_uri:
            raise UriInvalid("sink_uri is empty, a changefeed cannot be created without one")
        tree, source = _config(given.replica_config)
        return NewFeed(
            id=parse_id(given.changefeed_id or str(uuid.uuid4()), given.namespace or namespace or NAMESPACE),
            sink_uri=sink_uri or address("sink_uri", given.sink_uri, "", self._modules),
            source_uri=address("source_uri", given.source_uri or source, ""),
            start_ts=given.start_ts,
            target_ts=given.target_ts,
            config=tree,
        )

    def _info(self, view: FeedView) -> dict[str, Any]:
        return answers.info(view, self._place.addr, self._place.zone, self._place.server.id)


def _config(given: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The tree of a changefeed file, and the address of its source, which is kept beside it."""
    tree = parse(given)
    source = tree.get("source", {})
    uri = str(source.pop("uri", ""))
    if not source:
        tree.pop("source", None)
    return tree, uri


LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "dpanic": logging.CRITICAL,
    "panic": logging.CRITICAL,
    "fatal": logging.CRITICAL,
}
"""TiCDC's words for how much is logged."""


class ServerRoutes:
    """Routes over one server."""

    def __init__(self, place: ServerPlace) -> None:
        self._place, self._server, self._feeds = place, place.server, place.server.changefeeds

    def router(self) -> APIRouter:
        """Return the routes."""
        return routed(
            [
                RouteRow("GET", "/status", self.status, ServerStatus),
                RouteRow("GET", "/health", self.health, EmptyAnswer),
                RouteRow("POST", "/log", self.log, EmptyAnswer, LogBody),
                RouteRow("GET", "/captures", self.captures, CaptureList),
                RouteRow("POST", "/captures/{capture_id}/drain", self.drain, None, status=202),
                RouteRow("GET", "/processors", self.processors, ProcessorList),
                RouteRow("GET", "/processors/{changefeed_id}/{capture_id}", self.processor),
                RouteRow("POST", "/owner/resign", self.resign, EmptyAnswer),
                RouteRow("POST", "/tso", self.tso, TsoAnswer, UpstreamWords, required=False),
                RouteRow("GET", "/unsafe/metadata", self.metadata),
                RouteRow("POST", "/unsafe/resolve_lock", self.resolve_lock, EmptyAnswer, LockBody),
                RouteRow("DELETE", "/unsafe/service_gc_safepoint", self.done, EmptyAnswer),
            ],
            "/api/v2",
        )

    def probes(self) -> APIRouter:
        """Return the routes beside the API."""
        return routed(
            [
                RouteRow("GET", "/status", self.root_status, ServerStatus),
                RouteRow("GET", "/healthz", self.lives, text=True),
                RouteRow("GET", "/livez", self.lives, text=True),
                RouteRow("GET", "/readyz", self.ready, text=True),
                RouteRow("GET", "/metrics", self.metrics, text=True),
            ]
        )

    def status(self) -> Response:
        """Tell which server this is."""
        more = {"liveness": int(self._server.stopping)}
        return indented({**self._status(), "cluster_id": self._server.config.cluster_id, **more}, 4)

    def root_status(self) -> Response:
        """Tell which server this is, in the form of TiCDC's oldest path."""
        return indented(self._status(), 1)

    def _status(self) -> dict[str, Any]:
        return {
            "version": self._place.version,
            "git_hash": "",
            "id": self._server.id,
            "pid": self._server.pid,
            "is_owner": self._feeds.is_owner,
        }

    def health(self) -> Response:
        """Tell whether changefeeds are looked after: an owner is known, and what is to run here runs."""
        if self._server.owner() is None:
            raise ClusterUnhealthy("no server owns the changefeeds")
        if self._feeds.is_owner:
            still = [str(view.id) for view in self._feeds.listed() if view.state in RUNS and not view.running]
            if still:
                raise ClusterUnhealthy(f"these changefeeds should run and do not: {', '.join(still[:10])}")
        return answer({})

    async def lives(self) -> Response:
        """Answer."""
        return PlainTextResponse("ok")

    async def ready(self) -> Response:
        """Tell whether the server takes requests."""
        if self._server.stopping or not self._server.joined.is_set():
            return not_ready(stopping=self._server.stopping)
        return PlainTextResponse("ok")

    def metrics(self) -> Response:
        """Tell Prometheus how this server and the changefeeds that it owns are."""
        return Response(self._feeds.watch.text(), media_type=TYPE)

    def log(self, request: Request) -> Response:
        """Change how much is logged, until the server ends."""
        wanted = read_body(body_of(request), LogBody).log_level
        if wanted.lower() not in LEVELS:
            raise ApiParamInvalid(f"log level {wanted!r} is none of {', '.join(LEVELS)}")
        logging.getLogger("tidegate").setLevel(LEVELS[wanted.lower()])
        return answer({})

    def captures(self) -> Response:
        """List the servers of this store."""
        items = self._server.captures()
        return answer({"total": len(items), "items": items})

    def drain(self, capture_id: str) -> Response:
        """Refuse: changefeeds are not moved, one server owns them all."""
        if capture_id not in {capture.id for capture in self._server.captures()}:
            raise CaptureMissing(f"capture not exists, {capture_id}")
        raise DrainRefused("one server owns all changefeeds; to move them, stop it, and the next one takes over")

    def processors(self, namespace: AnyNamespace = "") -> Response:
        """List the changefeeds that run, and where."""
        running = [view.id for view in self._feeds.listed() if view.running and namespace in {"", view.id.namespace}]
        items = [
            {**answers.spaces(feed), "changefeed_id": feed.name, "capture_id": self._server.id} for feed in running
        ]
        return answer({"total": len(items), "items": items})

    def processor(self, changefeed_id: Name, capture_id: str, namespace: Namespace = NAMESPACE) -> Response:
        """Show a changefeed that runs; tables have no numbers of TiDB here."""
        view = self._feeds.get(parse_id(changefeed_id, namespace))
        if capture_id not in {capture.id for capture in self._server.captures()}:
            raise CaptureMissing(f"capture not exists, {capture_id}")
        if not view.running:
            raise ApiParamInvalid(f"changefeed {changefeed_id} does not run")
        return answer({"table_ids": []})

    def tso(self, request: Request) -> Response:
        """Tell the timestamp of this moment."""
        read_body(body_of(request), UpstreamWords, required=False)
        return answer({"timestamp": time.time_ns() // 1_000_000, "logic_time": 0})

    def metadata(self) -> Response:
        """List what is kept of changefeeds, without secrets."""
        return answer([{"key": view.record.id.document, "value": _kept(view.record)} for view in self._feeds.listed()])

    def resolve_lock(self, request: Request) -> Response:
        """Do nothing: locks of an upstream that is read are its own."""
        given = read_body(body_of(request), LockBody)
        if not given.region_id or not given.ts:
            raise ApiParamInvalid("region_id and ts are both needed")
        return answer({})

    def resign(self) -> Response:
        """Let another server own the changefeeds, if there is one; all runs end where they are whole first."""
        self._server.resign()
        return answer({})

    def done(self) -> Response:
        """Do nothing: there is nothing of the kind here."""
        return answer({})


def _kept(record: FeedRecord) -> str:
    shown = msgspec.to_builtins(record)
    safe = {**shown, "sink_uri": mask_uri(record.sink_uri), "source_uri": mask_uri(record.source_uri)}
    return msgspec.json.encode({**safe, "config": masked(record.config)}).decode()
