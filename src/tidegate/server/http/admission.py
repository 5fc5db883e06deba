"""Who may ask: one look at the headers of a request, before its body is read.

    nobody has to say who (loopback alone)    Host must be a name of this machine, else a page could reach the port
                                              under a name of its own (rebinding)
      who writes there                        the server's token, as bearer token or password of any user
    others                                    client certificate, user and password, or bearer token
    a write, in any case                      no page of another origin may send it (Origin, Sec-Fetch-Site)

With `client-user-required` only the users in `client-allowed-user` may write, and they send a password for it; whoever
else is known may read.  A body's Content-Type is never looked at, so a form of any page would do as a request: that is
why origins are.

Source: TiCDC's client authentication; Fetch Metadata (W3C); OWASP Cross-Site Request Forgery Prevention.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tidegate.config.token_file import read_token
from tidegate.model.host import reaches_others
from tidegate.server.config import ServerConfig
from tidegate.server.http.faults import (
    CredentialMissing,
    RequestForbidden,
    Unauthorized,
    WriteTokenMissing,
    WriteTokenWrong,
)
from tidegate.server.http.passwords import Users

ANONYMOUS: Final = "anonymous"
BEARER: Final = "bearer"
READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
WRITES_BY_QUESTION: Final = frozenset({"/api/v2/tso", "/api/v2/verify_table", "/api/v2/get_all_tables"})
"""Paths whose POST changes nothing; a source that the client names is opened for those alone who may write."""
OPEN: Final = frozenset({"/healthz", "/livez", "/readyz"})
"""Paths that anybody may ask."""


class Ask(NamedTuple):
    """What admission looks at. `headers` are by lower-case names; `peer_cn` is of the client's certificate; with
    `body_writes` the body asks for what takes the right to write."""

    method: str
    path: str
    headers: Mapping[str, str]
    peer_cn: str = ""
    body_writes: bool = False

    @property
    def writes(self) -> bool:
        """True if the request may change something."""
        return self.body_writes or (self.method not in READS and self.path not in WRITES_BY_QUESTION)


class Admission:
    """The rules of one server. Raises ConfigError for files that cannot be read."""

    def __init__(self, config: ServerConfig, write_token: str = "") -> None:
        self._write_token, self._data_dir = write_token, config.data_dir
        self._security = security = config.security
        self._own = {config.addr, config.advertise_addr}
        self._users = Users(Path(security.users_file)) if security.users_file else None
        self._token = read_token(Path(security.token_file), "token-file") if security.token_file else ""

    def takes_time(self, ask: Ask) -> bool:
        """Return True if a password may have to be hashed."""
        return self._users is not None and "authorization" in ask.headers

    def admit(self, ask: Ask) -> str:
        """Return who sends a request. RequestForbidden, CredentialMissing or Unauthorized for one that may not."""
        if ask.path in OPEN:
            return ANONYMOUS
        self._check_place(ask)
        if not self._security.authenticates:
            return self._holder(ask) if self._write_token and ask.writes else ANONYMOUS
        who, by_password = self._who(ask)
        required = self._security.client_user_required and ask.writes
        if required and not (by_password and who in self._security.client_allowed_user):
            raise Unauthorized(f"{who} may read alone: not in client-allowed-user, or without a password")
        return who

    def _check_place(self, ask: Ask) -> None:
        host = ask.headers.get("host", "")
        if not self._security.authenticates and reaches_others(_name(host)):
            raise RequestForbidden(f"without users this server answers to names of its own machine only, not to {host}")
        if not ask.writes and ask.method in READS:
            return
        site, origin = ask.headers.get("sec-fetch-site", "none"), ask.headers.get("origin", "")
        foreign = origin and origin.partition("://")[2] not in {host, *self._own}
        if site not in {"same-origin", "none"} or foreign:
            raise RequestForbidden("a page of another server sent this request")

    def _holder(self, ask: Ask) -> str:
        """Who sends a write with the server's token: the name given with it, which proves nothing more."""
        kind, _, given = ask.headers.get("authorization", "").partition(" ")
        name, word = _login(given.strip()) if kind.lower() == "basic" else ("", given.strip())
        if kind.lower() not in {"basic", "bearer"} or not word:
            raise WriteTokenMissing(
                f"writes need this server's token, the word in {self._data_dir}/token: as bearer token (tidegate cli "
                "--token-file), as the password of any user (TICDC_USER, TICDC_PASSWORD), or by the page's address as "
                "the server printed it"
            )
        if not hmac.compare_digest(word.encode(), self._write_token.encode()):
            raise WriteTokenWrong(f"this is not the token of this server, which is the word in {self._data_dir}/token")
        return name or ANONYMOUS

    def _who(self, ask: Ask) -> tuple[str, bool]:
        """The sender's name, and whether a password proves it."""
        certified = self._certified(ask.peer_cn) if self._security.mtls else ""
        kind, _, given = ask.headers.get("authorization", "").partition(" ")
        match kind.lower():
            case "basic" if self._users is not None:
                return self._user(self._users, given.strip()), True
            case "bearer" if self._token:
                if not hmac.compare_digest(given.strip().encode(), self._token.encode()):
                    raise Unauthorized("this is not the bearer token of this server")
                return BEARER, False
            case "" if certified:
                return certified, False
            case "":
                raise CredentialMissing("this server wants to know who asks: a user and a password, or a bearer token")
        raise Unauthorized(f"this server does not take credentials of the kind {kind[:20]!r}")

    def _certified(self, name: str) -> str:
        allowed = self._security.cert_allowed_cn
        if not name or (allowed and name not in allowed):
            raise Unauthorized(f"the name {name!r} of the client's certificate is not in cert-allowed-cn")
        return name

    @staticmethod
    def _user(users: Users, given: str) -> str:
        name, password = _login(given)
        if not users.check(name, password):
            raise Unauthorized("unknown user or wrong password")
        return name


def _login(given: str) -> tuple[str, str]:
    """User and password of HTTP's Basic."""
    try:
        name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise Unauthorized("the credentials are not base64 of USER:PASSWORD") from error
    return name, password


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host
