"""Routes of changefeeds: from words of a request to the service, and back.

    POST /changefeeds ── CreateBody ──► NewFeed ──► Changefeeds.create ──► FeedView ──► ChangeFeedInfo

An address or a setting that comes back masked, as it was shown, means the one that is kept: a client that reads a
changefeed, changes one word and sends the whole (TiCDC's command line does) destroys no password.

Source: TiCDC's OpenAPI v2, classic architecture.
"""

import time
import uuid
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from tidegate.model.errors import UriInvalid
from tidegate.model.tso import compose
from tidegate.server.http import answers
from tidegate.server.http.address import address
from tidegate.server.http.bodies import (
    ChangeFeedInfo,
    ChangefeedList,
    ChangefeedStatus,
    CreateBody,
    EmptyAnswer,
    ResumeBody,
    SyncedStatus,
    UpdateBody,
    VerifiedTables,
    read_body,
)
from tidegate.server.http.place import ServerPlace
from tidegate.server.http.routes import RouteRow, answer, body_of, routed, who
from tidegate.server.record import NAMESPACE, FeedChange, FeedView, NewFeed, TableRef, parse_id
from tidegate.server.replica_config import parse, unmasked

ID_FORM: Final = {"pattern": "^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$", "maxLength": 128}
Name = Annotated[str, Path(json_schema_extra=ID_FORM)]
Namespace = Annotated[str, Query(json_schema_extra=ID_FORM)]
ONE: Final = "/changefeeds/{changefeed_id}"


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
            ],
            "/api/v2",
        )

    def create(self, request: Request) -> Response:
        """Make a changefeed and start it."""
        view = self._feeds.create(self._wish(request), who(request))
        return answer(self._info(view))

    def list(
        self,
        state: Annotated[str, Query(description="normal, stopped, failed, warning, finished, or all")] = "",
        namespace: Namespace = "",
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

    def verify(self, request: Request) -> Response:
        """Tell which tables a changefeed would carry, without making it."""
        return answer(self._verified(request))

    def all_tables(self, request: Request) -> Response:
        """Tell which tables a changefeed would carry, and all that it could."""
        found = self._verified(request)
        tables = [*found.get("eligible_tables", ()), *found.get("ineligible_tables", ())]
        return answer({**found, "all_tables": tables})

    def _verified(self, request: Request) -> dict[str, tuple[TableRef, ...]]:
        wish = self._wish(request)
        if wish.source_uri not in {"", self._place.server.config.source_uri}:
            request.state.may_write()
        found = self._feeds.verify(wish)
        told = {"ineligible_tables": found.ineligible, "eligible_tables": found.eligible}
        return {name: tables for name, tables in told.items() if tables}

    def _wish(self, request: Request) -> NewFeed:
        given = read_body(body_of(request), CreateBody)
        namespace = given.namespace or request.query_params.get("namespace") or NAMESPACE
        if not given.sink_uri:
            raise UriInvalid("sink_uri is empty, a changefeed cannot be created without one")
        tree, source = _config(given.replica_config)
        return NewFeed(
            id=parse_id(given.changefeed_id or str(uuid.uuid4()), namespace),
            sink_uri=address("sink_uri", given.sink_uri, "", self._modules),
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
