"""The checks and steps before a request reaches its route: authentication, readiness, limits of its body, forwarding,
and the log.

    headers ──► allowed?  403, 401      is the server ready?  503      body within its limits?  413, 408
                └─ owner?  the application answers : the owner's answer is passed on

Only `/api/v2` is gated, and only those of its requests are forwarded that the owner must answer.  A body is read
completely, at most BODY_BYTES in BODY_S; an answer that nobody reads for SEND_S ends the connection.

`Admission` decides by the headers alone, before the body is read:

    no authentication configured              Host must be a name of this machine, else a page could reach the port
    (loopback only)                           under a name of its own (DNS rebinding)
      writes there                            the server's token, as bearer token or password of any user
    otherwise                                 client certificate, user and password, or bearer token
    writes, in any case                       not from a page of another origin (Origin, Sec-Fetch-Site)

Origins are checked because Content-Type is ignored, so a form of any page would do as a request.  With
`client-user-required` only the users in `client-allowed-user` may write, with their password; anybody else who is
authenticated may read.

    anna:scrypt$16384$8$1$SALT$HASH          a line of the users file, salt and hash in base64

A hash costs time and 16 MiB on purpose, so one is computed at a time while at most WAITING wait.  A correct password is
recognized later by a keyed digest, as long as its line is unchanged; an unknown name takes as long as a wrong password.
The file is read again when it changes.

    client ──► server b ── TiCDC-ForwardFromCapture: b's id ──► server a, the owner ──► its answer, unchanged
                           TiCDC-ForwardTimes: 1

Credentials are forwarded, too; with `mtls` the forwarding server shows its own certificate.  A forwarded request is not
forwarded again: two servers that each take the other for the owner answer with an error.

Source: TiCDC's client authentication; TiCDC's OpenAPI v2, middleware of the owner (headers, ErrRequestForwardErr); RFC
7914 (scrypt); OWASP Password Storage and Cross-Site Request Forgery Prevention Cheat Sheets; Fetch Metadata (W3C).
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.config.uri import mask_uri, read_token
from tidegate.model.errors import ConfigError, EnvironmentFault, Retry, TidegateError
from tidegate.model.host import reaches_others
from tidegate.model.name import all_digits, printable
from tidegate.server.config import ServerConfig
from tidegate.server.routes import (
    CredentialMissing,
    ForwardFailed,
    RequestForbidden,
    RequestTooLarge,
    RequestTooSlow,
    Unauthorized,
    WriteTokenMissing,
    WriteTokenWrong,
    fault,
    not_ready,
)
from tidegate.server.server import Server
from tidegate.server.web_server import HEADER_BYTES
from tidegate.sink.exchange import HttpClient, tls_context

_N, _R, _P = 1 << 14, 8, 1
_MEMORY: Final = 1 << 26
_KNOWN_MAX: Final = 1000
WAITING: Final = 8


def hashed(password: str) -> str:
    """Return the hash of a password as the users file stores it, under a new salt."""
    salt = secrets.token_bytes(16)
    return f"scrypt${_N}${_R}${_P}${_text(salt)}${_text(_scrypt(password, salt, _N, _R, _P))}"


def with_user(lines: str, name: str, password: str) -> str:
    """Return the text of a users file with one user's line added or replaced. Raises ConfigError for a name or password
    that cannot be sent."""
    if not name or ":" in name or not name.isprintable() or name != name.strip() or not password:
        raise ConfigError("a user's name needs printable characters without ':', and a password that is not empty")
    kept = [line for line in lines.splitlines() if line.partition(":")[0] != name]
    return "\n".join([*kept, f"{name}:{hashed(password)}", ""])


def read_users(file: Path) -> dict[str, str]:
    """Return the hashes of a users file by user name. Raises ConfigError if it cannot be read."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"users-file {file}: {error}") from error
    users = dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
    for name, stored in users.items():
        if _parts(stored) is None:
            raise ConfigError(f"users-file {file}: the line of {name!r} is not NAME:scrypt$N$R$P$SALT$HASH")
    return users


class LoginsBusy(EnvironmentFault):
    """Too many passwords are being checked."""

    code = "CDC:ErrServerIsNotReady"
    retry = Retry.LATER


class Users:
    """The users of a file, which is read again when it changes."""

    def __init__(self, file: Path) -> None:
        self._file, self._seen = file, file.stat().st_mtime_ns if file.exists() else 0
        self._users = read_users(file)
        self._key, self._verified = secrets.token_bytes(32), set[bytes]()
        self._nobody = hashed(secrets.token_hex())
        self._busy, self._waiting = threading.Lock(), threading.BoundedSemaphore(WAITING)

    def check(self, name: str, password: str) -> bool:
        """Return True if the user has that password. Raises LoginsBusy if too many checks are waiting."""
        with suppress(OSError, ConfigError):  # while the file is being replaced, its previous users apply
            seen = self._file.stat().st_mtime_ns
            if seen != self._seen:
                self._users, self._seen = read_users(self._file), seen
        stored = self._users.get(name)
        mark = hmac.digest(self._key, f"{name}\0{password}\0{stored}".encode(), "sha256")
        if stored is not None and mark in self._verified:
            return True
        if not self._waiting.acquire(blocking=False):
            raise LoginsBusy("too many passwords are being checked; try again in a second")
        try:
            with self._busy:
                matches = _matches(password, stored or self._nobody) and stored is not None
        finally:
            self._waiting.release()
        if matches:
            if len(self._verified) >= _KNOWN_MAX:
                self._verified.clear()
            self._verified.add(mark)
        return matches


def _matches(password: str, stored: str) -> bool:
    parts = _parts(stored)
    assert parts is not None, "read_users let it in"
    n, r, p, salt, right = parts
    return hmac.compare_digest(_scrypt(password, salt, n, r, p), right)


def _parts(stored: str) -> tuple[int, int, int, bytes, bytes] | None:
    """Return N, R, P, salt and hash; None for other text, and for numbers that would exhaust the memory."""
    words = stored.strip().split("$")
    try:
        kind, n, r, p, salt, right = words
        numbers = int(n), int(r), int(p), base64.b64decode(salt, validate=True), base64.b64decode(right, validate=True)
    except ValueError:
        return None
    fits = 1 < numbers[0] <= 1 << 20 and 0 < 128 * numbers[0] * numbers[1] <= _MEMORY and 0 < numbers[2] <= 16
    return numbers if kind == "scrypt" and fits and numbers[3] and numbers[4] else None


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=2 * _MEMORY)


def _text(part: bytes) -> str:
    return base64.b64encode(part).decode()


ANONYMOUS: Final = "anonymous"
BEARER: Final = "bearer"
READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
WRITES_BY_QUESTION: Final = frozenset({"/api/v2/tso", "/api/v2/verify_table", "/api/v2/get_all_tables"})
"""Paths whose POST changes nothing; naming a source in it requires the right to write."""
OPEN: Final = frozenset({"/healthz", "/livez", "/readyz"})
"""Paths that need no authentication."""


class Ask(NamedTuple):
    """The properties of a request for its admission. `headers`: by lower-case name. `peer_cn`: the name in the client's
    certificate. `body_writes`: the body requests something that requires the right to write."""

    method: str
    path: str
    headers: Mapping[str, str]
    peer_cn: str = ""
    body_writes: bool = False

    @property
    def writes(self) -> bool:
        return self.body_writes or (self.method not in READS and self.path not in WRITES_BY_QUESTION)


class Admission:
    """The access rules of a server. Raises ConfigError for files that cannot be read."""

    def __init__(self, config: ServerConfig, write_token: str = "") -> None:
        self._write_token, self._data_dir = write_token, config.data_dir
        self._security = security = config.security
        self._own = {config.addr, config.advertise_addr}
        self._users = Users(Path(security.users_file)) if security.users_file else None
        self._token = read_token(Path(security.token_file), "token-file") if security.token_file else ""

    def takes_time(self, ask: Ask) -> bool:
        """Return True if admission may hash a password."""
        return self._users is not None and "authorization" in ask.headers

    def admit(self, ask: Ask) -> str:
        """Return the user who sends a request. Raises RequestForbidden, CredentialMissing or Unauthorized."""
        if ask.path in OPEN:
            return ANONYMOUS
        self._check_origin(ask)
        if not self._security.authenticates:
            return self._holder(ask) if self._write_token and ask.writes else ANONYMOUS
        who, by_password = self._who(ask)
        required = self._security.client_user_required and ask.writes
        if required and not (by_password and who in self._security.client_allowed_user):
            raise Unauthorized(f"{who} may only read: not in client-allowed-user, or without a password")
        return who

    def _check_origin(self, ask: Ask) -> None:
        host = ask.headers.get("host", "")
        if not self._security.authenticates and reaches_others(_name(host)):
            raise RequestForbidden(f"a server without users answers only to names of its own machine, not to {host}")
        if not ask.writes and ask.method in READS:
            return
        site, origin = ask.headers.get("sec-fetch-site", "none"), ask.headers.get("origin", "")
        foreign = origin and origin.partition("://")[2] not in {host, *self._own}
        if site not in {"same-origin", "none"} or foreign:
            raise RequestForbidden("a page of another server sent this request")

    def _holder(self, ask: Ask) -> str:
        """Return the user name sent with the server's token; the token does not prove it."""
        kind, _, credentials = ask.headers.get("authorization", "").partition(" ")
        name, token = _login(credentials.strip()) if kind.lower() == "basic" else ("", credentials.strip())
        if kind.lower() not in {"basic", "bearer"} or not token:
            raise WriteTokenMissing(
                f"writes need this server's token, the word in {self._data_dir}/token: as bearer token (tidegate cli "
                "--token-file), as the password of any user (TICDC_USER, TICDC_PASSWORD), or by the page's address as "
                "the server printed it"
            )
        if not hmac.compare_digest(token.encode(), self._write_token.encode()):
            raise WriteTokenWrong(f"this is not the token of this server, which is the word in {self._data_dir}/token")
        return name or ANONYMOUS

    def _who(self, ask: Ask) -> tuple[str, bool]:
        """Return the sender's name, and whether a password proves it."""
        certified, allowed = ask.peer_cn if self._security.mtls else "", self._security.cert_allowed_cn
        if self._security.mtls and (not certified or (allowed and certified not in allowed)):
            raise Unauthorized(f"the name {certified!r} of the client's certificate is not in cert-allowed-cn")
        kind, _, credentials = ask.headers.get("authorization", "").partition(" ")
        match kind.lower():
            case "basic" if self._users is not None:
                return self._user(self._users, credentials.strip()), True
            case "bearer" if self._token:
                if not hmac.compare_digest(credentials.strip().encode(), self._token.encode()):
                    raise Unauthorized("this is not the bearer token of this server")
                return BEARER, False
            case "" if certified:
                return certified, False
            case "":
                raise CredentialMissing("this server requires authentication: a user and a password, or a bearer token")
        raise Unauthorized(f"this server does not accept credentials of the kind {kind[:20]!r}")

    @staticmethod
    def _user(users: Users, credentials: str) -> str:
        name, password = _login(credentials)
        if not users.check(name, password):
            raise Unauthorized("unknown user or wrong password")
        return name


def _login(credentials: str) -> tuple[str, str]:
    try:
        name, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise Unauthorized("the credentials are not base64 of USER:PASSWORD") from error
    return name, password


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host


FROM: Final = "TiCDC-ForwardFromCapture"
TIMES: Final = "TiCDC-ForwardTimes"
TIMES_MAX: Final = 1
ANSWER_S: Final = 60.0
ANSWER_BYTES: Final = 64 * 1024 * 1024
_SENT: Final = ("authorization", "accept", "content-type", "user-agent", "x-client-version")
_RETURNED: Final = ("content-type", "www-authenticate", "cache-control")


class Forwarder:
    """Forwards requests to the owner."""

    def __init__(self, config: ServerConfig, own_id: str) -> None:
        self._config, self._id = config, own_id

    def ask(self, address: str, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Return the answer of the server at `address` (HOST:PORT). Raises ForwardFailed if there is none."""
        times = headers.get(TIMES.lower(), "0")
        if not all_digits(times) or int(times) >= TIMES_MAX:
            raise ForwardFailed(f"the request was forwarded {times[:20]} times: the owner is changing, try again")
        sent = {name: headers[name] for name in _SENT if name in headers}
        sent |= {FROM: self._id, TIMES: str(int(times) + 1)}
        client = HttpClient(address, None, self._tls(), within_s=ANSWER_S, most_bytes=ANSWER_BYTES)
        try:
            answer = client.ask(method, target, body or None, sent)
        except OSError as error:
            raise ForwardFailed(f"the owner at {address} does not answer: {type(error).__name__}: {error}") from error
        finally:
            client.close()
        returned = {name: value for name in _RETURNED if (value := answer.headers.get(name))}
        return Response(answer.body, answer.status, returned)

    def _tls(self) -> Callable[[], ssl.SSLContext] | None:
        security = self._config.security
        if not security.cert_path:
            return None
        shown = (security.cert_path, security.key_path) if security.mtls else ()
        return partial(tls_context, security.ca_path, *shown)


LOG: Final = logging.getLogger("tidegate.http")
BODY_BYTES: Final = 1 << 20
BODY_S: Final = 30.0
SEND_S: Final = 60.0
WRITES: Final = 16
"""Most writes at a time; they may wait for a sink, and must leave threads for reads."""
ASIDE: Final = 32
"""Most passwords and forwarded requests at a time."""
GUARDS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Headers of every answer: no framing, no content sniffing, no caching."""
WORD: Final = 300
"""Most characters logged of a text that any client may choose."""
API: Final = "/api/"
OWN_ANSWERS: Final = frozenset(
    f"/api/{version}/{name}"
    for version in ("v1", "v2")
    for name in ("status", "health", "captures", "log", "log/redact", "tso")
)
"""Paths of the API that each server answers itself."""


class Entrance:
    """The application wrapped in its checks, as ASGI."""

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
            lines = sum(len(name) + len(value) for name, value in scope["headers"])
            if lines + len(scope["raw_path"]) + len(scope["query_string"]) > HEADER_BYTES:
                raise RequestTooLarge(f"the request's headers are longer than {HEADER_BYTES} bytes")
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
        """Return the sender's name; a password is hashed in a thread."""
        if not self._admission.takes_time(ask):
            return self._admission.admit(ask)
        return await to_thread.run_sync(self._admission.admit, ask, limiter=self._aside)

    async def _early(self, request: Request, scope: Scope) -> Response | None:
        """Return the answer if it does not need this server's application."""
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


async def _body(request: Request) -> bytes:
    """Return the whole body. Raises RequestTooLarge, RequestTooSlow."""
    try:
        return await asyncio.wait_for(_bounded(request), BODY_S)
    except TimeoutError as error:
        raise RequestTooSlow(f"the body did not arrive within {BODY_S:.0f} s") from error


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
    """Return a `receive` that yields a body that has been read, then what follows it."""
    request.scope["state"]["body"] = body
    replayed = False

    async def receive() -> Message:
        nonlocal replayed
        if replayed:
            return await request.receive()
        replayed = True
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
