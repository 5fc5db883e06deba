"""What every request passes before the application sees it, in this order, and its line in the log.

    headers ──► may it ask?  403, 401      is the server ready?  503      body within bounds?  413, 408
                └─ owner?  the application answers : the owner's answer is passed on

Only `/api/v2` is gated and forwarded, and of it only what the owner knows better.  The body is read whole, at most
BODY_BYTES in BODY_S; an answer that nobody takes for SEND_S ends the connection.
"""

import asyncio
import logging
import time
from contextlib import nullcontext
from functools import partial
from typing import Final

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.config.uri import mask_uri
from tidegate.model.errors import TidegateError
from tidegate.model.name import all_digits, printable
from tidegate.server.http.admission import ANONYMOUS, READS, Admission, Ask
from tidegate.server.http.faults import RequestTooLarge, RequestTooSlow, fault, not_ready
from tidegate.server.http.forward import Forwarder
from tidegate.server.server import Server
from tidegate.server.web_server import HEADER_BYTES

LOG: Final = logging.getLogger("tidegate.http")
BODY_BYTES: Final = 1 << 20
BODY_S: Final = 30.0
SEND_S: Final = 60.0
WRITES: Final = 16
"""Writes at a time; one may wait for a sink that does not answer, and reads are to find threads all the same."""
ASIDE: Final = 32
"""Passwords and forwarded requests at a time."""
GUARDS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Headers of every answer: no page frames it, no browser guesses its type or keeps it."""
WORD: Final = 300
"""What the log shows at most of a word that anybody may choose."""
API: Final = "/api/"
OWN_ANSWERS: Final = frozenset(
    {"/api/v2/status", "/api/v2/health", "/api/v2/captures", "/api/v2/log", "/api/v2/log/redact", "/api/v2/tso"}
)
"""Paths of the API that each server answers for itself."""


class Entrance:
    """The application with its guards, as ASGI."""

    def __init__(self, app: ASGIApp, server: Server) -> None:
        self._app, self._server = app, server
        self._admission = Admission(server.config, server.token)
        self._forwarder = Forwarder(server.config, server.id)
        self._writes, self._aside = asyncio.Semaphore(WRITES), CapacityLimiter(ASIDE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s, request, status = time.monotonic(), Request(scope, receive), 0

        async def sent(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *GUARDS]}
            await asyncio.wait_for(send(message), SEND_S)

        scope["state"] = state = {**scope.get("state", {}), "who": ANONYMOUS}
        try:
            await self._answer(request, scope, sent)
        finally:
            _log(request, status, state["who"], time.monotonic() - began_s)

    async def _answer(self, request: Request, scope: Scope, send: Send) -> None:
        try:
            _check_head(scope)
            ask = Ask(request.method, scope["path"], request.headers, scope["state"].get("peer_cn", ""))
            scope["state"]["who"] = await self._admitted(ask)
            scope["state"]["may_write"] = partial(self._admission.admit, ask._replace(body_writes=True))
            response = await self._early(request, scope)
            receive = None if response else _again(request, await _body(request))
        except TidegateError as error:
            response = fault(error)
        if response is not None:
            await response(scope, request.receive, send)
        else:
            assert receive is not None
            async with nullcontext() if ask.method in READS else self._writes:
                await self._app(scope, receive, send)

    async def _admitted(self, ask: Ask) -> str:
        """Who asks; a password is hashed in a thread."""
        if not self._admission.takes_time(ask):
            return self._admission.admit(ask)
        return await to_thread.run_sync(self._admission.admit, ask, limiter=self._aside)

    async def _early(self, request: Request, scope: Scope) -> Response | None:
        """The answer that needs no application of this server."""
        path, server = scope["path"], self._server
        if not path.startswith(API):
            return None
        if server.stopping or not server.joined.is_set():
            return not_ready(stopping=server.stopping)
        if path in OWN_ANSWERS or server.changefeeds.is_owner:
            return None
        owner = server.owner()
        if owner is None or owner.id == server.id:
            return not_ready(stopping=False)
        query = scope["query_string"].decode("latin-1")
        target = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        body = await _body(request)
        ask = partial(self._forwarder.ask, owner.address, request.method, target, request.headers, body)
        return await to_thread.run_sync(ask, limiter=self._aside)


def _check_head(scope: Scope) -> None:
    """RequestTooLarge for headers that came whole, and are too long all the same."""
    lines = sum(len(name) + len(value) for name, value in scope["headers"])
    if lines + len(scope["raw_path"]) + len(scope["query_string"]) > HEADER_BYTES:
        raise RequestTooLarge(f"the request's headers are longer than {HEADER_BYTES} bytes")


async def _body(request: Request) -> bytes:
    """The whole body. RequestTooLarge, RequestTooSlow."""
    try:
        return await asyncio.wait_for(_bounded(request), BODY_S)
    except TimeoutError as error:
        raise RequestTooSlow(f"the body did not come within {BODY_S:.0f} s") from error


async def _bounded(request: Request) -> bytes:
    length = request.headers.get("content-length", "0")
    body = bytearray()
    while not (all_digits(length) and int(length) > BODY_BYTES) and len(body) <= BODY_BYTES:
        message = await request.receive()
        body += message.get("body", b"")
        if not message.get("more_body", False) and len(body) <= BODY_BYTES:
            return bytes(body)
    raise RequestTooLarge(f"the body is longer than {BODY_BYTES} bytes")


def _again(request: Request, body: bytes) -> Receive:
    """Receives a body that has been read, and then what follows it."""
    request.scope["state"]["body"] = body
    told = False

    async def receive() -> Message:
        nonlocal told
        if told:
            return await request.receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _word(request: Request, header: str) -> str:
    return request.headers.get(header, "")[:WORD]


def _log(request: Request, status: int, who: str, took_s: float) -> None:
    scope, client = request.scope, request.client
    query = mask_uri("?" + scope["query_string"].decode("latin-1")) if scope["query_string"] else ""
    words = (
        f"{status} {request.method} {(scope['path'] + query)[:WORD]} ip={client.host if client else ''} user={who} "
        f"agent={_word(request, 'user-agent')!r} client={_word(request, 'x-client-version')!r} "
        f"{took_s * 1000:.1f} ms"
    )
    LOG.info("%s", printable(words))
