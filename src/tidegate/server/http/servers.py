"""Routes of the server itself: how it is, who else is there, its log level, and TiCDC's words that have no use here.

    /healthz /livez     the process answers                    /status, /api/v2/status    which server this is
    /readyz             it has joined, and does not stop       /api/v2/health             somebody owns, what should
                                                                                          run runs

Source: TiCDC's OpenAPI v2, classic architecture.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from tidegate.config.uri import mask_uri
from tidegate.server.errors import ApiParamInvalid
from tidegate.server.http.bodies import (
    CaptureList,
    EmptyAnswer,
    LockBody,
    LogBody,
    ProcessorList,
    ServerStatus,
    TsoAnswer,
    UpstreamWords,
    read_body,
)
from tidegate.server.http.changefeeds import Name, Namespace
from tidegate.server.http.faults import CaptureMissing, ClusterUnhealthy, DrainRefused, not_ready
from tidegate.server.http.place import ServerPlace
from tidegate.server.http.routes import RouteRow, answer, body_of, indented, routed
from tidegate.server.metrics import TYPE
from tidegate.server.record import NAMESPACE, RUNS, FeedRecord, parse_id
from tidegate.server.replica_config import masked

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
                RouteRow("POST", "/tso", self.tso, TsoAnswer, UpstreamWords),
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

    def processors(self, namespace: Namespace = "") -> Response:
        """List the changefeeds that run, and where."""
        running = [view.id for view in self._feeds.listed() if view.running and namespace in {"", view.id.namespace}]
        items = [
            {"namespace": feed.namespace, "changefeed_id": feed.name, "capture_id": self._server.id} for feed in running
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
        read_body(body_of(request), UpstreamWords)
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
