"""Errors as answers: the HTTP status of a code, and the body of two keys.

    {
        "error_msg": "[CDC:ErrChangeFeedNotExists]changefeed not exists, test-1",
        "error_code": "CDC:ErrChangeFeedNotExists"
    }

TiCDC has few statuses: 400 for the codes of a list, also where a message contains one of them, 401, 503 for a server
that is not ready, 500 for everything else; a changefeed that is missing is 400.  Its codes stand here as the classic
architecture has them.  Codes of our own are 400 where the caller gave what cannot be used.

Source: TiCDC's OpenAPI v2 (classic): api/middleware and api/util.
"""

import json
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from tidegate.config.uri import mask_text
from tidegate.model.errors import EnvironmentFault, InputError, TidegateError
from tidegate.server.errors import ApiParamInvalid, ServerNotReady

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
"""Codes of 400."""
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
        "CDC:ErrInternalServerError",
    }
)
"""Codes of TiCDC that are 500, also where the caller is wrong."""
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
    """The request does not say who sends it."""

    code = "CDC:ErrCredentialNotFound"


class Unauthorized(InputError):
    """The user is unknown, the password or token wrong, or the user may only read."""

    code = "CDC:ErrUnauthorized"


class WriteTokenMissing(CredentialMissing):
    """A write does not bring the token of a server without users."""


class WriteTokenWrong(Unauthorized):
    """A write brings another word than the token of a server without users."""


class RequestForbidden(InputError):
    """The request comes from a page of another server, or for a name that is not this one's."""

    code = "CDC:ErrRequestForbidden"


class RequestTooSlow(InputError):
    """The body of a request did not come in time."""

    code = "CDC:ErrRequestTimeout"


class RequestTooLarge(InputError):
    """The body of a request is beyond the limit."""

    code = "CDC:ErrRequestTooLarge"


class ClusterUnhealthy(EnvironmentFault):
    """No server owns the changefeeds, or one that should run does not."""

    code = "CDC:ErrClusterIsUnhealthy"


class CaptureMissing(InputError):
    """There is no server of that id."""

    code = "CDC:ErrCaptureNotExist"


class DrainRefused(InputError):
    """Changefeeds are not moved from server to server: one owns all."""

    code = "CDC:ErrSchedulerRequestFailed"


class ForwardFailed(EnvironmentFault):
    """The owner does not answer, or the request has been forwarded in a circle."""

    code = "ErrRequestForwardErr"


def status_of(error: TidegateError) -> int:
    """Return the HTTP status of an error."""
    code = error.code
    if code in _OTHERS:
        return _OTHERS[code]
    if code in BAD_REQUEST or any(known in str(error) for known in BAD_REQUEST):
        return 400
    theirs = isinstance(error, InputError) and not isinstance(error, EnvironmentFault) and code not in SERVER_FAULT
    return 400 if theirs else 500


def fault(error: TidegateError) -> Response:
    """Return an error as an answer."""
    status = status_of(error)
    by_token = isinstance(error, WriteTokenMissing | WriteTokenWrong)  # then a browser asks for no user and password
    challenge = 'Bearer realm="tidegate"' if by_token else 'Basic realm="tidegate", charset="UTF-8"'
    headers = {"WWW-Authenticate": challenge} if status == 401 else None
    return _answer(error.code, str(error), status, headers)


def _answer(code: str, text: str, status: int, headers: dict[str, str] | None = None) -> Response:
    body = {"error_msg": f"[{code}]{mask_text(text)}", "error_code": code}
    shown = json.dumps(body, indent=4, ensure_ascii=False).encode("utf-8", "replace")
    return Response(shown, status, headers, JSON)


# How FastAPI tells errors.


async def on_error(_: Request, error: Exception) -> Response:
    """Answer an error of ours."""
    assert isinstance(error, TidegateError)
    return fault(error)


async def on_wrong_parameter(_: Request, error: Exception) -> Response:
    """Answer a parameter of another type."""
    return fault(ApiParamInvalid(" ".join(str(error).split())))


async def on_unknown_path(*_: object) -> Response:
    """Answer an unknown path or method."""
    return PlainTextResponse("404 page not found", 404)


async def on_defect(_: Request, error: Exception) -> Response:
    """Answer a defect of ours; the log has its trace."""
    return _answer("CDC:ErrInternalServerError", f"{type(error).__name__}: a defect of Tidegate; see the log", 500)


def not_ready(*, stopping: bool) -> Response:
    """Answer before the server has joined, and while it stops."""
    return fault(ServerNotReady("the server is stopping" if stopping else "the server has not joined yet"))
