"""An http:// or https:// address that is called: parameters of ours, and those that the receiver is to have.

https://hooks.example/orders?shop=7&batch-size=50&secret-file=/etc/hook.secret
└ the address that is called ┘└ its own: stays ┘└ ours: the names of WEBHOOK_SINK ┘
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qsl, urlencode

import msgspec

from tidegate.config.local_name import Local, host_of
from tidegate.config.param import TIME_MAX_MS, Given, Param, read_all
from tidegate.config.refused import NO_DATABASE, RefusedKey
from tidegate.config.token_file import read_token
from tidegate.config.uri import split
from tidegate.model.errors import ConfigError, UnsupportedError, UriInvalid
from tidegate.sink.webhook_options import WebhookOptions

_SCHEMES: Final = ("http", "https")
WEBHOOK_SECTION: Final = "sink.webhook-config."
WEBHOOK_SINK: Final[Mapping[str, Param]] = {
    "batch-size": Param("int", "batch_events", "100", "most events of a call; 1: a call an event, not a list", low=1),
    "batch-bytes": Param("int", "batch_bytes", "1048576", "most bytes of a call, but for a single event", low=1),
    "concurrency": Param("int", "concurrency", "8", "most calls at the same time", low=1, high=1024),
    "timeout": Param("duration", "timeout_ms", "30s", "time for an answer", low=1, high=TIME_MAX_MS),
    "max-retry": Param("int", "retries", "4", "quick tries of a call again; then the changefeed waits"),
    "resolved": Param("bool", "resolved", "false", "post resolved timestamps, too"),
    "dead-letter": Param(
        "choice",
        "dead_letter",
        "halt",
        "an event that is refused (400, 422, ..): `halt`, or `keep` it in the state directory and go on",
        ("halt", "keep"),
    ),
    "secret-file": Param(
        "text", "secret_file", "", "file with the secret that calls are signed with", local=Local.TOKEN
    ),
    "token-file": Param("text", "token_file", "", "file with the bearer token of calls", local=Local.TOKEN),
    "ssl-ca": Param(
        "text", "ssl_ca", "", "path of the CA certificate, where it is not one that the system knows", local=Local.FILE
    ),
}
WEBHOOK_KEYS: Final = frozenset(f"{WEBHOOK_SECTION}{name}" for name in WEBHOOK_SINK)
"""Keys of a changefeed file that act where an address is called."""
WEBHOOK_REFUSED: Final[Mapping[str, RefusedKey]] = {
    "bdr-mode": NO_DATABASE,
    "enable-sync-point": RefusedKey((False,), ConfigError, "sync points are for databases"),
    "sink.column-selectors[].": RefusedKey((), UnsupportedError, "an event has its whole row"),
    "sink.dispatchers[].": RefusedKey((), UnsupportedError, "one address gets all events"),
}
"""Keys that an address has no place for."""


class WebhookTarget(msgspec.Struct, frozen=True, kw_only=True):
    """An address to call, and how; times in ms."""

    url: str
    batch_events: int = 100
    batch_bytes: int = 1 << 20
    concurrency: int = 8
    timeout_ms: int = 30_000
    retries: int = 4
    resolved: bool = False
    dead_letter: Literal["halt", "keep"] = "halt"
    secret_file: str = ""
    token_file: str = ""
    ssl_ca: str = ""
    ignored: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """What tells this sink from others in the names of changefeeds."""
        return self.url.partition("?")[0].partition("://")[2]

    @property
    def places(self) -> frozenset[str]:
        """What is written; only the receiver knows."""
        return frozenset()

    @property
    def tokens_go_to(self) -> frozenset[str]:
        """Who gets the token, or what is signed with the secret."""
        return frozenset({host_of(self.url)} if self.token_file or self.secret_file else ())

    def options(self, feed: str, dead_letters: str) -> WebhookOptions:
        """Return what the sink of a feed is asked to do. ConfigError for a file that cannot be read."""
        return WebhookOptions(
            feed=feed,
            url=self.url,
            batch_events=self.batch_events,
            batch_bytes=self.batch_bytes,
            concurrency=self.concurrency,
            timeout_s=self.timeout_ms / 1000,
            tries=self.retries + 1,
            resolved=self.resolved,
            dead_letter=self.dead_letter,
            dead_letters=dead_letters,
            ssl_ca=self.ssl_ca,
            secret=_word(self.secret_file, "secret-file").encode(),
            token=_word(self.token_file, "token-file"),
        )

    def warnings(self) -> tuple[str, ...]:
        """Return what a user should hear of an address that works, but perhaps not as meant."""
        if self.url.startswith("http://") and (self.secret_file or self.token_file):
            return ("sink-uri: http:// shows rows and token to whoever is on the way; https:// does not",)
        return ()


def parse_webhook(uri: str, options: Mapping[str, Given]) -> WebhookTarget:
    """Return the address behind `uri`; its parameters win over `options`, which come from a file."""
    parts = split(uri, "sink-uri", _SCHEMES)
    if not parts.netloc or "@" in parts.netloc:
        raise UriInvalid(f"sink-uri: write {parts.scheme}://HOST/PATH; a token goes into token-file: {parts.shown}")
    asked = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: Given(f'sink-uri parameter "{name}"', value) for name, value in asked if name in WEBHOOK_SINK}
    theirs = urlencode([(name, value) for name, value in asked if name not in WEBHOOK_SINK])
    fields, ignored = read_all(WEBHOOK_SINK, {**options, **ours}, ConfigError)
    url = f"{parts.scheme}://{parts.netloc}{parts.path or '/'}{'?' if theirs else ''}{theirs}"
    return msgspec.convert({**fields, "url": url, "ignored": ignored}, WebhookTarget)


def _word(path: str, name: str) -> str:
    return read_token(Path(path), name) if path else ""
