"""TiCDC's OpenAPI v1, which old tools use: the handlers of v2 under the paths, bodies and answers of before.

    a request that changes something    202; DELETE of a changefeed that does not exist: 400
    lists                               the items alone
    a changefeed                        with `checkpoint_tso`; settings are fields of the body beside `sink_uri`

Source: TiCDC's OpenAPI v1 (classic).
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import wraps
from typing import Any, Final

import msgspec
from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from tidegate.model.tso import compose
from tidegate.server import answers
from tidegate.server.api import CHANGEFEED, ChangefeedRoutes, Name, ServerIdentity, ServerRoutes
from tidegate.server.record import FeedId, parse_id
from tidegate.server.replica_config import spelled
from tidegate.server.routes import (
    ChangeFeedInfo,
    CreateBody,
    EmptyAnswer,
    LogBody,
    RouteRow,
    SentBody,
    ServerStatus,
    Tso,
    UpdateBody,
    answer,
    body_of,
    read_body,
    routed,
    who,
)

_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "filter_rules": ("filter", "rules"),
    "ignore_txn_start_ts": ("filter", "ignore_txn_start_ts"),
    "mounter_worker_num": ("mounter", "worker_num"),
    "sink_config": ("sink",),
    "force_replicate": ("force_replicate",),
    "ignore_ineligible_table": ("ignore_ineligible_table",),
}
"""Fields of a body, and where `replica_config` has them."""


class _OldSettings(SentBody):
    filter_rules: list[str] = Field([])
    ignore_txn_start_ts: list[Tso] = Field([])
    mounter_worker_num: int = Field(16, description="No effect.")
    sink_config: dict[str, Any] = Field({})

    def merged(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return a `replica_config` with the settings that the body names in place of its own."""
        changed = dict(settings)
        for name in self.model_fields_set & _SETTINGS.keys():
            *sections, key = _SETTINGS[name]
            section = changed
            for each in sections:
                section[each] = section = dict(section.get(each, {}))
            section[key] = getattr(self, name)
        return changed


class OldUpdateBody(_OldSettings, UpdateBody):
    """Changes to a changefeed; absent fields stay as they are, `sink_config` is replaced whole."""


class OldCreateBody(_OldSettings, CreateBody):
    """A request to create a changefeed."""

    force_replicate: bool = False
    ignore_ineligible_table: bool = False


def _bare(handler: Callable[..., Response]) -> Callable[..., Response]:
    @wraps(handler)
    def items(*args: Any, **words: Any) -> Response:
        return answer(msgspec.json.decode(handler(*args, **words).body)["items"])

    return items


class OldRoutes:
    """Routes of v1, over those of v2."""

    def __init__(self, identity: ServerIdentity) -> None:
        self._identity, self._feeds = identity, identity.server.changefeeds
        self._changefeeds, self._servers = ChangefeedRoutes(identity), ServerRoutes(identity)

    def router(self) -> APIRouter:
        """Return the routes."""
        feeds, servers = self._changefeeds, self._servers

        def changes(
            method: str, path: str, handler: Callable[..., Response], body: type[SentBody] | None = None
        ) -> RouteRow:
            @wraps(handler)
            def accepted(*args: Any, **words: Any) -> Response:
                handler(*args, **words)
                return answer({}, 202)

            return RouteRow(method, path, accepted, EmptyAnswer, body, status=202)

        return routed(
            [
                RouteRow("GET", "/status", servers.status, ServerStatus),
                RouteRow("GET", "/health", servers.health, EmptyAnswer),
                changes("POST", "/log", servers.log, LogBody),
                RouteRow("GET", "/changefeeds", _bare(feeds.list)),
                changes("POST", "/changefeeds", self.create, OldCreateBody),
                RouteRow("GET", CHANGEFEED, self.get, ChangeFeedInfo),
                changes("PUT", CHANGEFEED, self.update, OldUpdateBody),
                changes("DELETE", CHANGEFEED, self.remove),
                changes("POST", f"{CHANGEFEED}/pause", feeds.pause),
                changes("POST", f"{CHANGEFEED}/resume", feeds.resume),
                changes("POST", f"{CHANGEFEED}/tables/rebalance_table", feeds.move),
                changes("POST", f"{CHANGEFEED}/tables/move_table", feeds.move),
                changes("POST", "/owner/resign", servers.resign),
                RouteRow("GET", "/processors", _bare(servers.processors)),
                RouteRow("GET", "/processors/{changefeed_id}/{capture_id}", self.processor),
                RouteRow("GET", "/captures", _bare(servers.captures)),
            ],
            "/api/v1",
        )

    def create(self, request: Request) -> Response:
        """Create a changefeed and start it."""
        body = read_body(body_of(request), OldCreateBody)
        return self._changefeeds.created(body.model_copy(update={"replica_config": body.merged({})}), "", who(request))

    def update(self, request: Request, changefeed_id: Name) -> Response:
        """Change a changefeed that is stopped or failed."""
        body, feed = read_body(body_of(request), OldUpdateBody), parse_id(changefeed_id)
        settings = body.merged(spelled(self._feeds.get(feed).record.config))
        return self._changefeeds.updated(feed, body.model_copy(update={"replica_config": settings}), who(request))

    def get(self, changefeed_id: Name) -> Response:
        """Show a changefeed."""
        info = msgspec.json.decode(self._changefeeds.get(changefeed_id).body)
        created_ms = int(datetime.fromisoformat(info["create_time"]).timestamp() * 1000)
        times = {"create_time": answers.json_time(compose(created_ms), self._identity.zone)}
        always = {"target_ts": 0, "error": None, "error_history": None, "checkpoint_tso": info["checkpoint_ts"]}
        return answer({**always, **info, **times})

    def remove(self, request: Request, changefeed_id: Name) -> Response:
        """Remove a changefeed. Raises ChangefeedMissing."""
        self._feeds.get(parse_id(changefeed_id))
        return self._changefeeds.remove(request, changefeed_id)

    def processor(self, changefeed_id: Name, capture_id: str) -> Response:
        """Show the timestamps and the tables of a running changefeed."""
        tables = msgspec.json.decode(self._servers.processor(changefeed_id, capture_id).body)
        view = self._feeds.get(FeedId("default", changefeed_id))
        error = answers.running_error(view, self._identity.addr)
        return answer({"checkpoint_ts": view.checkpoint_ts, "resolved_ts": view.resolved_ts, **tables, "error": error})
