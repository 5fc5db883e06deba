"""Routes of the API, the bodies of their requests and answers, and errors as answers.

A route is a row: its method and path, its handler, and what /openapi.json says of its bodies.  Every route may also
answer with a fault (FAULTS).  As in TiCDC, Content-Type is ignored, unknown fields are dropped, and null means absent.
A value of another type is an error, and so is an empty body where one is required.

    {
        "error_msg": "[CDC:ErrChangeFeedNotExists]changefeed not exists, test-1",
        "error_code": "CDC:ErrChangeFeedNotExists"
    }

TiCDC has few statuses: 400 for the codes of a list, also if a message contains one of them, 401, 503 for a server that
is not ready, 500 for everything else; a missing changefeed is 400.  Its codes are those of the classic architecture.
Tidegate's own codes are 400 for unusable input.

Source: TiCDC's OpenAPI v2 (classic): api/middleware and api/util.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeVar

import msgspec
from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from tidegate.config.uri import mask_text
from tidegate.model.errors import EnvironmentFault, InputError, TidegateError
from tidegate.server.record import ApiParamInvalid, ServerNotReady

BAD_REQUEST: Final = frozenset(
    {
        "CDC:ErrAPIInvalidParam",
        "CDC:ErrSinkURIInvalid",
        "CDC:ErrStartTsBeforeGC",
        "CDC:ErrChangeFeedNotExists",
        "CDC:ErrTargetTsBeforeStartTs",
        "CDC:ErrTableIneligible",
        "CDC:ErrFilterRuleInvalid",
        "CDC:ErrChangefeedUpdateRefused",
        "CDC:ErrMySQLConnectionError",
        "CDC:ErrMySQLInvalidConfig",
        "CDC:ErrCaptureNotExist",
        "CDC:ErrSchedulerRequestFailed",
    }
)
"""Codes answered with 400."""
SERVER_FAULT: Final = frozenset(
    {
        "CDC:ErrChangeFeedAlreadyExists",
        "CDC:ErrInvalidReplicaConfig",
        "CDC:ErrSinkInvalidConfig",
        "CDC:ErrSinkUnknownProtocol",
        "CDC:ErrIncompatibleSinkConfig",
        "CDC:ErrDispatcherFailed",
        "CDC:ErrColumnSelectorFailed",
        "CDC:ErrInvalidFilterExpression",
        "CDC:ErrInvalidIgnoreEventType",
        "CDC:ErrExpressionColumnNotFound",
        "CDC:ErrKafkaInvalidConfig",
        "CDC:ErrKafkaNewProducer",
        "CDC:ErrStorageSinkInvalidConfig",
        "CDC:ErrSameUpstreamDownstream",
        "CDC:ErrUpstreamHasRunningImport",
        "CDC:ErrUpstreamMissMatch",
        "CDC:ErrChangeFeedDeletionUnfinished",
        "CDC:ErrClusterIsUnhealthy",
        "CDC:ErrPDEtcdAPIError",
        "CDC:ErrAPIGetPDClientFailed",
        "CDC:ErrNewStore",
        "CDC:ErrOwnerNotFound",
        "CDC:ErrNotOwner",
        "CDC:ErrUpstreamNotFound",
        "CDC:ErrTableNotSupportMove",
        "CDC:ErrInternalServerError",
    }
)
"""TiCDC's codes answered with 500, even if the caller is wrong."""
_OTHERS: Final = {
    "CDC:ErrCredentialNotFound": 401,
    "CDC:ErrUnauthorized": 401,
    "CDC:ErrServerIsNotReady": 503,
    "CDC:ErrRequestForbidden": 403,
    "CDC:ErrRequestTimeout": 408,
    "CDC:ErrRequestTooLarge": 413,
}
JSON: Final = "application/json; charset=utf-8"


class CredentialMissing(InputError):
    """The request has no credentials."""

    code = "CDC:ErrCredentialNotFound"
    remedy = "Give user and password, or the token of the data directory (docs/server.md)."


class Unauthorized(InputError):
    """The user is unknown, the password or token wrong, or the user may only read."""

    code = "CDC:ErrUnauthorized"
    remedy = "Correct user, password or token; `client-allowed-user` lists who may write."


class WriteTokenMissing(CredentialMissing):
    """A write to a server without users lacks the server's token."""


class WriteTokenWrong(Unauthorized):
    """A write to a server without users has another token than the server's."""


class RequestForbidden(InputError):
    """The request comes from another server's page, or for a host name that is not this server's."""

    code = "CDC:ErrRequestForbidden"
    remedy = "Ask by a name of the server's own, and open its page by the address that it prints."


class RequestTooSlow(InputError):
    """The body of a request did not arrive in time."""

    code = "CDC:ErrRequestTimeout"
    remedy = "Send the request again; check the network between client and server."


class RequestTooLarge(InputError):
    """The body of a request exceeds the limit."""

    code = "CDC:ErrRequestTooLarge"
    remedy = "Send a smaller body."


class ClusterUnhealthy(EnvironmentFault):
    """No server owns the changefeeds, or one that should run does not."""

    code = "CDC:ErrClusterIsUnhealthy"
    remedy = (
        "`tidegate cli capture list` shows the servers; start one, and check that it reaches the store of changefeeds."
    )


class CaptureMissing(InputError):
    """There is no server with that id."""

    code = "CDC:ErrCaptureNotExist"
    remedy = "`tidegate cli capture list` shows the servers."


class DrainRefused(InputError):
    """Changefeeds are not moved between servers: one owns them all."""

    code = "CDC:ErrSchedulerRequestFailed"
    remedy = "Stop the server instead: another server of the same store takes over."


class TableNotMoved(InputError):
    """Tables are not placed individually: one server runs all of a changefeed."""

    code = "CDC:ErrTableNotSupportMove"
    remedy = "Split the changefeed by its filter if one server is not enough."


class ForwardFailed(EnvironmentFault):
    """The owner does not answer, or the request has been forwarded in a circle."""

    code = "ErrRequestForwardErr"
    remedy = "Check that the servers reach each other by their `advertise-addr`."


def status_of(error: TidegateError) -> int:
    """Return the HTTP status of an error."""
    code = error.code
    if code in _OTHERS:
        return _OTHERS[code]
    if code in BAD_REQUEST or any(listed in str(error) for listed in BAD_REQUEST):
        return 400
    of_caller = isinstance(error, InputError) and code not in SERVER_FAULT
    return 400 if of_caller else 500


def fault(error: TidegateError) -> Response:
    """Return the answer for an error."""
    status = status_of(error)
    by_token = isinstance(error, WriteTokenMissing | WriteTokenWrong)  # then a browser asks for no user and password
    challenge = 'Bearer realm="tidegate"' if by_token else 'Basic realm="tidegate", charset="UTF-8"'
    headers = {"WWW-Authenticate": challenge} if status == 401 else None
    return _answer(error.code, str(error), status, headers)


def _answer(code: str, text: str, status: int, headers: dict[str, str] | None = None) -> Response:
    body = {"error_msg": f"[{code}]{mask_text(text)}", "error_code": code}
    shown = json.dumps(body, indent=4, ensure_ascii=False).encode("utf-8", "replace")
    return Response(shown, status, headers, JSON)


# Exception handlers of FastAPI.


async def on_error(_: Request, error: Exception) -> Response:
    """Answer an error of Tidegate."""
    assert isinstance(error, TidegateError)
    return fault(error)


def _wrong(errors: Sequence[Mapping[str, Any]]) -> ApiParamInvalid:
    """Return the error of the first of pydantic's errors."""
    name = ".".join(map(str, errors[0]["loc"])).removeprefix("query.")
    return ApiParamInvalid(f"{name or 'body'}: {errors[0]['msg'].partition(' or instance of ')[0]}")


async def on_wrong_parameter(_: Request, error: Exception) -> Response:
    """Answer a parameter of the wrong type."""
    assert isinstance(error, RequestValidationError)
    return fault(_wrong(error.errors()))


async def on_unknown_path(*_: object) -> Response:
    """Answer an unknown path or method."""
    return PlainTextResponse("404 page not found", 404)


async def on_defect(_: Request, error: Exception) -> Response:
    """Answer an unexpected error; its traceback is in the log."""
    return _answer("CDC:ErrInternalServerError", f"{type(error).__name__}: a defect of Tidegate; see the log", 500)


def not_ready(*, stopping: bool) -> Response:
    """Answer 503: the server has not joined yet, or is stopping."""
    return fault(ServerNotReady("the server is stopping" if stopping else "the server has not joined yet"))


Tso = Annotated[int, Field(ge=0, lt=1 << 64)]
ReplicaConfig = dict[str, Any]
BodyOf = TypeVar("BodyOf", bound="SentBody")


class SentBody(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(strict=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, body: object) -> object:
        return {name: value for name, value in body.items() if value is not None} if isinstance(body, dict) else body


class UpstreamWords(SentBody):
    """TiCDC's fields for another upstream. They name the source of a changefeed that is created or updated, and the
    upstream that is asked for a timestamp, as `source_uri` does; the paths count beside `pd_addrs` alone, and other
    requests ignore all of them."""

    pd_addrs: list[str] = []
    ca_path: str = ""
    cert_path: str = ""
    key_path: str = ""
    cert_allowed_cn: list[str] = []


class CreateBody(UpstreamWords):
    """A request to create a changefeed."""

    namespace: str = ""
    changefeed_id: str = ""
    start_ts: Tso = 0
    target_ts: Tso = 0
    sink_uri: str = ""
    source_uri: str = Field("", description="The source, instead of the server's own upstream. Not in TiCDC's API.")
    replica_config: ReplicaConfig = {}


class UpdateBody(UpstreamWords):
    """Changes to a changefeed; absent fields stay as they are, `replica_config` is replaced whole."""

    target_ts: Tso = 0
    sink_uri: str = ""
    source_uri: str = Field("", description="The new source. Not in TiCDC's API.")
    replica_config: ReplicaConfig | None = None


class ResumeBody(UpstreamWords):
    """The timestamp from which a changefeed is resumed; 0: its checkpoint."""

    overwrite_checkpoint_ts: Tso = 0


class TsoBody(UpstreamWords):
    """Whose upstream is asked for a timestamp; the server's own without a changefeed and an address."""

    changefeed_id: str = Field("", description="The changefeed whose upstream is asked. Not in TiCDC's API.")
    source_uri: str = Field("", description="The source that is asked. Not in TiCDC's API.")
    namespace: str = ""


class LogBody(SentBody):
    """The log level to set, and other levels of packages: `{"tikv": "debug"}`."""

    log_level: str = "info"
    levels: dict[str, str] = {}


class RedactBody(SentBody):
    """How values and keys of rows are redacted in the log and in errors: off, marker or on."""

    redact_info_log: Literal["off", "marker", "on"]


class LockBody(UpstreamWords):
    """A region whose locks to resolve."""

    region_id: Tso = 0
    ts: Tso = 0


class LetterBody(SentBody):
    """A message, and the bytes to read instead; an absent key or value stays unchanged."""

    topic: str
    partition: int
    offset: int
    key_b64: str | None = None
    value_b64: str | None = None
    options: dict[str, str] = {}


class LoadBody(SentBody):
    """A load: the database, empty for the configured one, and rules of the tables, none for all."""

    load_from: str = ""
    tables: list[str] = []


class ReloadBody(LoadBody):
    """Tables to load again; `resend` also sends them to readers that have had them."""

    resend: bool = False


class KeysBody(SentBody):
    """Rows of a table: the columns of its key, and of each row the texts of their values."""

    table: str
    columns: list[str]
    keys: list[list[str]]


class RepairBody(SentBody):
    """Rows to be read again, by table."""

    rows: list[KeysBody]


class TableBody(SentBody):
    """A table, as database.table."""

    table: str


def read_body(body: bytes, kind: type[BodyOf], *, required: bool = True) -> BodyOf:
    """Return the body of a request. Raises ApiParamInvalid if it is empty, not JSON, or of the wrong types."""
    if not body.strip():
        if required:
            raise ApiParamInvalid("the body is empty")
        return kind()
    try:
        return kind.model_validate(msgspec.json.decode(body))
    except ValidationError as error:
        raise _wrong(error.errors(include_url=False, include_input=False)) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ApiParamInvalid(f"invalid request body: {error}") from error


# Answers, for readers of /openapi.json.


class ShownBody(BaseModel):
    """The body of an answer."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")


class FaultBody(ShownBody):
    """An error."""

    error_msg: str = Field(description="[CODE]text, with the cause behind it")
    error_code: str


class EmptyAnswer(ShownBody):
    """An empty answer, for success."""


class RunningError(ShownBody):
    """The error that is being retried, or that ended a changefeed."""

    time: str
    addr: str
    code: str
    message: str


class ChangeFeedInfo(ShownBody):
    """A changefeed. `tidegate` is not in TiCDC's API."""

    id: str
    namespace: str
    keyspace: str
    sink_uri: str
    create_time: str
    start_ts: Tso | None = None
    target_ts: Tso | None = None
    config: dict[str, Any]
    state: str | None = None
    error: RunningError | None = None
    creator_version: str
    resolved_ts: Tso
    checkpoint_ts: Tso
    checkpoint_time: str
    task_status: list[dict[str, Any]] | None = None
    tidegate: dict[str, Any] | None = Field(None, description="Fields that TiCDC does not have; timestamps are text")


class ChangefeedItem(ShownBody):
    """A changefeed in a list."""

    upstream_id: int
    namespace: str
    keyspace: str
    id: str
    state: str
    checkpoint_tso: Tso
    checkpoint_time: str
    error: RunningError | None


class ChangefeedList(ShownBody):
    """Changefeeds, by namespace and id."""

    total: int
    items: list[ChangefeedItem]


class ChangefeedStatus(ShownBody):
    """The state and timestamps of a changefeed."""

    state: str | None = None
    resolved_ts: Tso
    checkpoint_ts: Tso
    last_error: RunningError | None = None
    last_warning: RunningError | None = None


class SyncedStatus(ShownBody):
    """Tells whether everything written upstream is in the sink."""

    synced: bool
    sink_checkpoint_ts: str
    puller_resolved_ts: str
    last_synced_ts: str
    now_ts: str
    info: str


class VerifiedTable(ShownBody):
    """A table."""

    database_name: str
    table_name: str
    table_id: int
    is_partition: bool


class VerifiedTables(ShownBody):
    """The tables that a changefeed would replicate, those that it cannot, and both."""

    ineligible_tables: list[VerifiedTable] | None = None
    eligible_tables: list[VerifiedTable] | None = None
    all_tables: list[VerifiedTable] | None = None
    sink_met: bool | None = Field(None, description="with sink=true: False if only a run connects to the sink")


class ServerStatus(ShownBody):
    """A server. `liveness`: 0 alive, 1 stopping."""

    version: str
    git_hash: str
    id: str
    cluster_id: str | None = None
    pid: int
    is_owner: bool
    liveness: int | None = None


class CaptureItem(ShownBody):
    """A server in a list."""

    id: str
    is_owner: bool
    address: str
    cluster_id: str


class CaptureList(ShownBody):
    """The servers of the store."""

    total: int
    items: list[CaptureItem]


class ProcessorItem(ShownBody):
    """A running changefeed, and its server."""

    namespace: str
    keyspace: str
    changefeed_id: str
    capture_id: str


class ProcessorList(ShownBody):
    """The running changefeeds."""

    total: int
    items: list[ProcessorItem]


class TsoAnswer(ShownBody):
    """A timestamp: its physical and its logical part."""

    timestamp: int
    logic_time: int


class RedactAnswer(ShownBody):
    """The modes before and now, in capitals."""

    previous_mode: str
    current_mode: str


FAULTS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": FaultBody, "description": "A parameter is invalid, or what it names does not exist"},
    401: {"model": FaultBody, "description": "The sender is not authenticated, or may only read"},
    403: {"model": FaultBody, "description": "Another server's page sent the request, or it names another host"},
    404: {"description": "Unknown path or method", "content": {"text/plain": {"schema": {"type": "string"}}}},
    408: {"model": FaultBody, "description": "The body did not arrive in time"},
    413: {"model": FaultBody, "description": "The body exceeds the limit"},
    500: {"model": FaultBody, "description": "Any other error, such as a changefeed that exists already"},
    503: {"model": FaultBody, "description": "The server has not joined yet, or is stopping"},
}

REPLICA_CONFIG: Final = "ReplicaConfig"
"""Name of its schema, which is defined once."""


class RouteRow(NamedTuple):
    """A row of a table of routes."""

    method: str
    path: str
    endpoint: Callable[..., Response | Awaitable[Response]]
    answer: type[BaseModel] | None = None
    body: type[SentBody] | None = None
    required: bool = True
    """False if the body may be empty."""
    status: int = 200
    text: bool = False
    """True if the answer is plain text."""


def routed(rows: list[RouteRow], prefix: str = "") -> APIRouter:
    """Return the routes of a table."""
    router = APIRouter(prefix=prefix, redirect_slashes=False)
    for row in rows:
        content: dict[str, Any] = {"text/plain" if row.text else "application/json": {"schema": {}}}
        success: dict[str, Any] = {"model": row.answer} if row.answer else {"content": content}
        router.add_api_route(
            row.path,
            row.endpoint,
            methods=[row.method],
            response_model=None,
            status_code=row.status,
            responses={row.status: {"description": "Done", **success}, **FAULTS},
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
    """Return a value as indented JSON."""
    return Response(msgspec.json.format(msgspec.json.encode(value), indent=spaces), media_type=JSON)


def body_of(request: Request) -> bytes:
    """Return the body that the entrance has read."""
    body: bytes = request.scope["state"].get("body", b"")
    return body


def who(request: Request) -> str:
    """Return the user who sends a request."""
    return str(request.scope["state"]["who"])
