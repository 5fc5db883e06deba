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
import pkgutil
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

import tidegate
from tidegate.config.changefeed import OWN
from tidegate.config.tikv_load import cluster_uri
from tidegate.config.uri import mask_uri
from tidegate.model.errors import ConfigError, Redaction, UriInvalid, redaction, set_redaction
from tidegate.model.tso import compose, physical_ms
from tidegate.server import answers
from tidegate.server.answers import address, version_text
from tidegate.server.metrics import TYPE
from tidegate.server.record import (
    NAMESPACE,
    RUNS,
    ApiParamInvalid,
    FeedChange,
    FeedId,
    FeedRecord,
    FeedView,
    NewFeed,
    parse_id,
)
from tidegate.server.replica_config import masked, parse_replica_config, unknown_names, unmasked
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
    RedactAnswer,
    RedactBody,
    ResumeBody,
    RouteRow,
    ServerStatus,
    SyncedStatus,
    TableNotMoved,
    TsoAnswer,
    TsoBody,
    UpdateBody,
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
class ServerIdentity:
    """A server as its answers identify it; `zone` None is the machine's own."""

    server: Server
    addr: str
    zone: tzinfo | None
    version: str


def identity_of(server: Server) -> ServerIdentity:
    """Return the identity of a server."""
    config = server.config
    zone = None if config.tz == "System" else ZoneInfo(config.tz)
    return ServerIdentity(server, config.advertise_addr, zone, version_text(version("tidegate")))


PAUSE_S: Final = 0.5
"""How long a request to pause waits for the end of the run."""
ID_FORM: Final = {"pattern": "^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$", "maxLength": 128}
Name = Annotated[str, Path(json_schema_extra=ID_FORM)]
NamespaceWord = Annotated[str, Query(json_schema_extra=ID_FORM)]


def _any_namespace(namespace: NamespaceWord = "", keyspace: NamespaceWord = "") -> str:
    return namespace or keyspace


AnyNamespace = Annotated[str, Depends(_any_namespace)]
"""The namespace of a request, by TiCDC's classic word or by its newer one; empty where it names none."""


def _namespace(namespace: AnyNamespace) -> str:
    return namespace or NAMESPACE


Namespace = Annotated[str, Depends(_namespace)]
CHANGEFEED: Final = "/changefeeds/{changefeed_id}"
Mode = Annotated[int, Query(ge=0, le=1, description="1: of the redo log, which there is none of")]


MOVES: Final = ("move_table", "move_split_table", "split_table_by_region_count", "merge_table")
"""Requests of TiCDC's that place tables on its nodes."""
READ_BY_ALL_TABLES: Final = frozenset({"case-sensitive", "force-replicate", "filter", "source"})
"""Keys of a changefeed file that say which tables there are, into whatever sink."""


class ChangefeedRoutes:
    """Routes for the changefeeds of a server."""

    def __init__(self, identity: ServerIdentity) -> None:
        self._identity, self._feeds = identity, identity.server.changefeeds
        self._modules = identity.server.config.callback_modules

    def router(self) -> APIRouter:
        """Return the routes."""
        return routed(
            [
                RouteRow("POST", "/changefeeds", self.create, ChangeFeedInfo, CreateBody),
                RouteRow("GET", "/changefeeds", self.list, ChangefeedList),
                RouteRow("GET", CHANGEFEED, self.get, ChangeFeedInfo),
                RouteRow("PUT", CHANGEFEED, self.update, ChangeFeedInfo, UpdateBody),
                RouteRow("DELETE", CHANGEFEED, self.remove, EmptyAnswer),
                RouteRow("POST", f"{CHANGEFEED}/pause", self.pause, EmptyAnswer),
                RouteRow("POST", f"{CHANGEFEED}/resume", self.resume, EmptyAnswer, ResumeBody, required=False),
                RouteRow("GET", f"{CHANGEFEED}/status", self.status, ChangefeedStatus),
                RouteRow("GET", f"{CHANGEFEED}/synced", self.synced, SyncedStatus),
                RouteRow("GET", f"{CHANGEFEED}/tables", self.tables),
                RouteRow("GET", f"{CHANGEFEED}/get_dispatcher_count", self.dispatchers),
                RouteRow("POST", "/verify_table", self.verify, VerifiedTables, CreateBody),
                RouteRow("POST", "/get_all_tables", self.all_tables, VerifiedTables, CreateBody),
                *(RouteRow("POST", f"{CHANGEFEED}/{verb}", self.move, EmptyAnswer) for verb in MOVES),
            ],
            "/api/v2",
        )

    def create(self, request: Request, namespace: AnyNamespace) -> Response:
        """Create a changefeed and start it."""
        return self.created(read_body(body_of(request), CreateBody), namespace, who(request))

    def created(self, body: CreateBody, namespace: str, who: str) -> Response:
        """Create the changefeed that a body describes."""
        return answer(self._info(self._feeds.create(self._new_feed(body, namespace), who)))

    def list(
        self,
        state: Annotated[str, Query(description="normal, stopped, failed, warning, finished, or all")] = "",
        namespace: AnyNamespace = "",
    ) -> Response:
        """List changefeeds; without a state, those neither finished nor removed."""
        views = [view for view in self._feeds.listed() if namespace in {"", view.id.namespace}]
        items = [
            answers.item(view, self._identity.addr, self._identity.zone) for view in answers.selected(views, state)
        ]
        return answer({"total": len(items), "items": items})

    def get(self, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Show a changefeed, with Tidegate's own fields under `tidegate`."""
        view = self._feeds.get(parse_id(changefeed_id, namespace))
        return answer({**self._info(view), "tidegate": answers.extension(view)})

    def update(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Change a changefeed that is stopped or failed."""
        feed = parse_id(changefeed_id, namespace)
        return self.updated(feed, read_body(body_of(request), UpdateBody), who(request))

    def updated(self, feed: FeedId, body: UpdateBody, who: str) -> Response:
        """Change a changefeed as a body says."""
        stored = self._feeds.get(feed).record
        tree, source = (None, "") if body.replica_config is None else _config(body.replica_config)
        change = FeedChange(
            sink_uri=address("sink_uri", body.sink_uri, stored.sink_uri, self._modules),
            source_uri=address("source_uri", _source_of(body, source), stored.source_uri),
            target_ts=body.target_ts or None,
            config=None if tree is None else unmasked(tree, stored.config),
            unknown=tuple(unknown_names(body.replica_config)),
        )
        return answer(self._info(self._feeds.update(feed, change, who)))

    def remove(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Remove a changefeed; succeeds if there is none."""
        self._feeds.remove(parse_id(changefeed_id, namespace), who(request))
        return answer({})

    def pause(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Stop a changefeed; its checkpoint is kept."""
        self._feeds.pause(parse_id(changefeed_id, namespace), who(request), PAUSE_S)
        return answer({})

    def resume(self, request: Request, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Resume a changefeed."""
        feed = parse_id(changefeed_id, namespace)
        body = read_body(body_of(request), ResumeBody, required=False)
        self._feeds.resume(feed, who(request), body.overwrite_checkpoint_ts)
        return answer({})

    def status(self, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Show the state, timestamps and error of a changefeed."""
        return answer(answers.status(self._feeds.get(parse_id(changefeed_id, namespace)), self._identity.addr))

    def synced(self, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Show whether everything written upstream is in the sink."""
        view = self._feeds.get(parse_id(changefeed_id, namespace))
        return answer(answers.synced(view, self._feeds.upstream_now(view.id), self._identity.zone))

    def tables(self, changefeed_id: Name, namespace: Namespace = NAMESPACE, mode: Mode = 0) -> Response:
        """Show the ids of a running changefeed's tables by server, as far as its source knows them."""
        view = self._feeds.get(parse_id(changefeed_id, namespace))
        node = {"node_id": self._identity.server.id, "table_ids": view.table_ids}
        return answer([node] if view.running and not mode else [])

    def dispatchers(self, changefeed_id: Name, namespace: Namespace = NAMESPACE, mode: Mode = 0) -> Response:
        """Count the tables of a running changefeed; of a topic, those with rows in this run."""
        view = self._feeds.get(parse_id(changefeed_id, namespace))
        seen = view.progress.tables if view.progress and view.running else ()
        return answer({"count": 0 if mode else len(view.table_ids or seen)})

    def move(self, changefeed_id: Name, namespace: Namespace = NAMESPACE) -> Response:
        """Refuse: one server runs all tables of a changefeed, so none is moved, split or merged."""
        self._feeds.get(parse_id(changefeed_id, namespace))
        raise TableNotMoved(f"one server runs all tables of {changefeed_id}: none is moved, split or merged")

    def verify(
        self,
        request: Request,
        *,
        sink: Annotated[bool, Query(description="connect to the sink, too, as only those do who may write")] = False,
    ) -> Response:
        """List the tables that a changefeed would replicate, without creating it."""
        return self._tables(request, read_body(body_of(request), CreateBody), with_sink=sink)

    def all_tables(self, request: Request) -> Response:
        """List the tables that these settings replicate; without a sink, those that any sink could take."""
        body = read_body(body_of(request), CreateBody)
        if body.sink_uri:
            return self._tables(request, body)
        tree = {
            name: value
            for name, value in parse_replica_config(body.replica_config).items()
            if name in READ_BY_ALL_TABLES
        }
        return self._tables(request, body.model_copy(update={"replica_config": tree}), OWN)

    def _tables(self, request: Request, body: CreateBody, sink_uri: str = "", *, with_sink: bool = False) -> Response:
        new = self._new_feed(body, sink_uri=sink_uri)
        _check_source(request, new.source_uri, self._identity.server)
        if with_sink:
            request.state.may_write()
        verified = self._feeds.verify(new, with_sink=with_sink)
        lists = {
            "ineligible_tables": verified.ineligible,
            "eligible_tables": verified.eligible,
            "all_tables": (*verified.eligible, *verified.ineligible),
        }
        met = {} if verified.sink_met is None else {"sink_met": verified.sink_met}
        return answer({name: tables for name, tables in lists.items() if tables} | met)

    def _new_feed(self, body: CreateBody, namespace: str = "", *, sink_uri: str = "") -> NewFeed:
        """Return the request for a changefeed; `sink_uri` replaces that of the body."""
        if not body.sink_uri and not sink_uri:
            raise UriInvalid("sink_uri is empty, a changefeed cannot be created without one")
        tree, source = _config(body.replica_config)
        return NewFeed(
            id=parse_id(body.changefeed_id or str(uuid.uuid4()), body.namespace or namespace or NAMESPACE),
            sink_uri=sink_uri or address("sink_uri", body.sink_uri, "", self._modules),
            source_uri=address("source_uri", _source_of(body, source), ""),
            start_ts=body.start_ts,
            target_ts=body.target_ts,
            config=tree,
        )

    def _info(self, view: FeedView) -> dict[str, Any]:
        return answers.info(view, self._identity.addr, self._identity.zone, self._identity.server.id)


def _check_source(request: Request, source_uri: str, server: Server) -> None:
    """Raise as the admission does for a client that may not write, and names another source than the server's."""
    if source_uri not in {"", server.config.source_uri}:
        request.state.may_write()


def _source_of(body: CreateBody | UpdateBody | TsoBody, configured: str) -> str:
    """Return the address of the source that a request names, `configured` being that in its settings; "" for none.
    Raises ApiParamInvalid if it names one in two ways."""
    uri = body.source_uri or configured
    if not body.pd_addrs:
        return uri
    if uri:
        raise ApiParamInvalid("pd_addrs and source_uri both name the source: send one of them")
    try:
        return cluster_uri(
            ",".join(body.pd_addrs), ca_path=body.ca_path, cert_path=body.cert_path, key_path=body.key_path
        )
    except ConfigError as error:
        raise ApiParamInvalid(f"pd_addrs: {error}") from error


def _config(replica_config: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the tree of a changefeed file, and the address of its source, which is stored separately."""
    tree = parse_replica_config(replica_config)
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
"""TiCDC's names of log levels."""


class ServerRoutes:
    """Routes for the server itself."""

    def __init__(self, identity: ServerIdentity) -> None:
        self._identity, self._server, self._feeds = identity, identity.server, identity.server.changefeeds

    def router(self) -> APIRouter:
        """Return the routes."""
        return routed(
            [
                RouteRow("GET", "/status", self.status, ServerStatus),
                RouteRow("GET", "/health", self.health, EmptyAnswer),
                RouteRow("POST", "/log", self.log, EmptyAnswer, LogBody),
                RouteRow("POST", "/log/redact", self.redact, RedactAnswer, RedactBody),
                RouteRow("GET", "/captures", self.captures, CaptureList),
                RouteRow("POST", "/captures/{capture_id}/drain", self.drain, None, status=202),
                RouteRow("GET", "/processors", self.processors, ProcessorList),
                RouteRow("GET", "/processors/{changefeed_id}/{capture_id}", self.processor),
                RouteRow("POST", "/owner/resign", self.resign, EmptyAnswer),
                RouteRow("POST", "/tso", self.tso, TsoAnswer, TsoBody, required=False),
                RouteRow("GET", "/unsafe/metadata", self.metadata),
                RouteRow("POST", "/unsafe/resolve_lock", self.resolve_lock, EmptyAnswer, LockBody),
                RouteRow("DELETE", "/unsafe/service_gc_safepoint", self.done, EmptyAnswer),
            ],
            "/api/v2",
        )

    def probes(self) -> APIRouter:
        """Return the routes outside the API."""
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
        """Show which server this is."""
        more = {"liveness": int(self._server.stopping)}
        return indented({**self._status(), "cluster_id": self._server.config.cluster_id, **more}, 4)

    def root_status(self) -> Response:
        """Show which server this is, in the form of TiCDC's oldest path."""
        return indented(self._status(), 1)

    def _status(self) -> dict[str, Any]:
        return {
            "version": self._identity.version,
            "git_hash": "",
            "id": self._server.id,
            "pid": self._server.pid,
            "is_owner": self._feeds.is_owner,
        }

    def health(self) -> Response:
        """Check that an owner is known, and that every changefeed that should run here runs."""
        if self._server.owner() is None:
            raise ClusterUnhealthy("no server owns the changefeeds")
        if self._feeds.is_owner:
            stopped = [str(view.id) for view in self._feeds.listed() if view.state in RUNS and not view.running]
            if stopped:
                raise ClusterUnhealthy(f"these changefeeds should run and do not: {', '.join(stopped[:10])}")
        return answer({})

    async def lives(self) -> Response:
        """Answer "ok"."""
        return PlainTextResponse("ok")

    async def ready(self) -> Response:
        """Answer "ok" if the server takes requests."""
        if self._server.stopping or not self._server.joined.is_set():
            return not_ready(stopping=self._server.stopping)
        return PlainTextResponse("ok")

    def metrics(self) -> Response:
        """Return the metrics of this server and the changefeeds that it owns, for Prometheus."""
        return Response(self._feeds.watch.text(), media_type=TYPE)

    def log(self, request: Request) -> Response:
        """Set the log level, until the server ends."""
        body = read_body(body_of(request), LogBody)
        if unknown := body.levels.keys() - {module.name for module in pkgutil.iter_modules(tidegate.__path__)}:
            raise ApiParamInvalid(f"levels: {min(unknown)!r} is not a package of tidegate")
        levels = {"tidegate": body.log_level} | {f"tidegate.{name}": level for name, level in body.levels.items()}
        for level in levels.values():
            if level.lower() not in LEVELS:
                raise ApiParamInvalid(f"log level {level!r}: expected one of {', '.join(LEVELS)}")
        for name, level in levels.items():
            logging.getLogger(name).setLevel(LEVELS[level.lower()])
        return answer({})

    def redact(self, request: Request) -> Response:
        """Redact values and keys of rows in the log and in errors from now on; less strict than before only by a
        restart."""
        mode, before = Redaction(read_body(body_of(request), RedactBody).redact_info_log), redaction()
        order = list(Redaction)
        if order.index(mode) < order.index(before):
            raise ApiParamInvalid(f"redact_info_log: {mode.value} is less strict than {before.value}")
        set_redaction(mode)
        return answer({"previous_mode": before.name, "current_mode": mode.name})

    def captures(self) -> Response:
        """List the servers of this store."""
        items = self._server.captures()
        return answer({"total": len(items), "items": items})

    def drain(self, capture_id: str) -> Response:
        """Refuse: changefeeds are not moved between servers, one server owns them all."""
        if capture_id not in {capture.id for capture in self._server.captures()}:
            raise CaptureMissing(f"capture not exists, {capture_id}")
        raise DrainRefused("one server owns all changefeeds; to move them, stop it, and the next one takes over")

    def processors(self, namespace: AnyNamespace = "") -> Response:
        """List the running changefeeds and their server."""
        running = [view.id for view in self._feeds.listed() if view.running and namespace in {"", view.id.namespace}]
        items = [
            {**answers.spaces(feed), "changefeed_id": feed.name, "capture_id": self._server.id} for feed in running
        ]
        return answer({"total": len(items), "items": items})

    def processor(self, changefeed_id: Name, capture_id: str, namespace: Namespace = NAMESPACE) -> Response:
        """Show the ids of a running changefeed's tables, as far as its source knows them."""
        view = self._feeds.get(parse_id(changefeed_id, namespace))
        if capture_id not in {capture.id for capture in self._server.captures()}:
            raise CaptureMissing(f"capture not exists, {capture_id}")
        if not view.running:
            raise ApiParamInvalid(f"changefeed {changefeed_id} does not run")
        return answer({"table_ids": view.table_ids})

    def tso(self, request: Request) -> Response:
        """Return a timestamp of now, of PD where the upstream is a cluster."""
        body = read_body(body_of(request), TsoBody, required=False)
        feed = parse_id(body.changefeed_id, body.namespace or NAMESPACE) if body.changefeed_id else None
        source_uri = address("source_uri", _source_of(body, ""), "")
        _check_source(request, source_uri, self._server)
        ts = self._feeds.upstream_now(feed, source_uri)
        return answer({"timestamp": physical_ms(ts), "logic_time": ts - compose(physical_ms(ts))})

    def metadata(self) -> Response:
        """List the stored records of changefeeds, without secrets."""
        return answer(
            [{"key": view.record.id.document, "value": _masked(view.record)} for view in self._feeds.listed()]
        )

    def resolve_lock(self, request: Request) -> Response:
        """Check the parameters and do nothing: the upstream resolves its own locks."""
        body = read_body(body_of(request), LockBody)
        if not body.region_id or not body.ts:
            raise ApiParamInvalid("region_id and ts are both needed")
        return answer({})

    def resign(self) -> Response:
        """Give up ownership if there is another server; all runs end first."""
        self._server.resign()
        return answer({})

    def done(self) -> Response:
        """Do nothing: Tidegate has nothing of the kind."""
        return answer({})


def _masked(record: FeedRecord) -> str:
    fields = msgspec.to_builtins(record)
    safe = {**fields, "sink_uri": mask_uri(record.sink_uri), "source_uri": mask_uri(record.source_uri)}
    return msgspec.json.encode({**safe, "config": masked(record.config)}).decode()
