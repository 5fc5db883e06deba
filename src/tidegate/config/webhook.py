"""An http:// or https:// address that is called: parameters of ours, and those that the receiver is to have.

https://hooks.example/orders?shop=7&batch-size=50&secret-file=/etc/hook.secret
└ the address that is called ┘└ its own: stays ┘└ ours: the names of OPTIONS ┘
"""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import parse_qsl, urlencode

import msgspec

from tidegate.config.entry import Document, FeedConfig, SinkEntry, SourceEntry, checkpoints_of, state_of
from tidegate.config.option import options_of, read_all
from tidegate.config.uri import Given, host_of, read_token, split
from tidegate.model.errors import ConfigError, UriInvalid
from tidegate.model.option import TIME_MAX_MS, Local, Option
from tidegate.sink.webhook_options import WebhookOptions

if TYPE_CHECKING:
    from tidegate.engine.ports import Sink

_SCHEMES: Final = ("http", "https")
SECTION: Final = "sink.webhook-config."


class WebhookTarget(msgspec.Struct, frozen=True, kw_only=True):
    """An address to call, and how; times in ms."""

    url: str
    batch_events: Annotated[
        int, Option("batch-size", "most events of a call; 1: a call an event, not a list", low=1)
    ] = 100
    batch_bytes: Annotated[int, Option("batch-bytes", "most bytes of a call, but for a single event", low=1)] = 1 << 20
    concurrency: Annotated[int, Option("concurrency", "most calls at the same time", low=1, high=1024)] = 8
    timeout_ms: Annotated[int, Option("timeout", "time for an answer", "duration", low=1, high=TIME_MAX_MS)] = 30_000
    retries: Annotated[int, Option("max-retry", "quick tries of a call again; then the changefeed waits")] = 4
    resolved: Annotated[bool, Option("resolved", "post resolved timestamps, too")] = False
    dead_letter: Annotated[
        Literal["halt", "keep"],
        Option(
            "dead-letter",
            "an event that is refused (400, 422, ..): `halt`, or `keep` it in the state directory and go on",
        ),
    ] = "halt"
    secret_file: Annotated[
        str, Option("secret-file", "file with the secret that calls are signed with", local=Local.TOKEN)
    ] = ""
    token_file: Annotated[str, Option("token-file", "file with the bearer token of calls", local=Local.TOKEN)] = ""
    ssl_ca: Annotated[
        str, Option("ssl-ca", "path of the CA certificate, where it is not one that the system knows", local=Local.FILE)
    ] = ""
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
            secret=read_token(self.secret_file, "secret-file").encode(),
            token=read_token(self.token_file, "token-file"),
        )

    def warnings(self) -> tuple[str, ...]:
        """Return what a user should hear of an address that works, but perhaps not as meant."""
        if self.url.startswith("http://") and (self.secret_file or self.token_file):
            return ("sink-uri: http:// shows rows and token to whoever is on the way; https:// does not",)
        return ()


OPTIONS: Final = options_of(WebhookTarget)


def parse_webhook(uri: str, document: Document) -> WebhookTarget:
    """Return the address behind `uri`; its parameters win over those of the file."""
    parts = split(uri, "sink-uri", _SCHEMES)
    if not parts.netloc or "@" in parts.netloc:
        raise UriInvalid(f"sink-uri: write {parts.scheme}://HOST/PATH; a token goes into token-file: {parts.shown}")
    asked = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: Given(f'sink-uri parameter "{name}"', value) for name, value in asked if name in OPTIONS}
    theirs = urlencode([(name, value) for name, value in asked if name not in OPTIONS])
    fields, ignored = read_all(OPTIONS, {**document.section(SECTION, OPTIONS), **ours}, ConfigError)
    url = f"{parts.scheme}://{parts.netloc}{parts.path or '/'}{'?' if theirs else ''}{theirs}"
    return WebhookTarget(url=url, ignored=ignored, **fields)


def _open(config: FeedConfig, _: SourceEntry) -> "Sink[Any]":
    from tidegate.sink.webhook import WebhookSink

    assert isinstance(config.sink, WebhookTarget)
    options = config.sink.options(config.name, f"{state_of(config)}/dead-letters")
    return WebhookSink(options, checkpoints_of(config))


SINK: Final = SinkEntry(
    scheme="http",
    aliases=("https",),
    about="an address that is called with CloudEvents",
    example="https://hooks.example/orders",
    params=OPTIONS,
    section=SECTION,
    parse=parse_webhook,
    address=WebhookTarget,
    open=_open,
    no_selectors="an event has its whole row",
    no_topics="one address gets all events",
    tokens_go_to=lambda sink: sink.tokens_go_to,
    warnings=WebhookTarget.warnings,
)
