"""http:// and https:// addresses of webhooks: Tidegate's parameters, and parameters passed to the receiver.

https://hooks.example/orders?shop=7&batch-size=50&secret-file=/etc/hook.secret
└ the address that is called ┘└ passed on ┘└ Tidegate's: the names of OPTIONS ┘
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode

from tidegate.config.entry import Document, FeedConfig, SinkEntry, SourceEntry, checkpoints_of, state_of
from tidegate.config.option import options_of, read_all
from tidegate.config.uri import RawValue, host_of, read_token, split
from tidegate.model.errors import ConfigError, UriInvalid
from tidegate.sink.webhook_options import WebhookOptions

if TYPE_CHECKING:
    from tidegate.engine.ports import Sink

_SCHEMES: Final = ("http", "https")
SECTION: Final = "sink.webhook-config."


OPTIONS: Final = options_of(WebhookOptions)


def parse_webhook(uri: str, document: Document) -> WebhookOptions:
    """Return the address in `uri`; its parameters win over those of the file."""
    parts = split(uri, "sink-uri", _SCHEMES)
    if not parts.netloc or "@" in parts.netloc:
        raise UriInvalid(f"sink-uri: expected {parts.scheme}://HOST/PATH; put the token into token-file: {parts.shown}")
    query = parse_qsl(parts.query, keep_blank_values=True)
    own_options = {name: RawValue(f'sink-uri parameter "{name}"', value) for name, value in query if name in OPTIONS}
    others = urlencode([(name, value) for name, value in query if name not in OPTIONS])
    fields, ignored = read_all(OPTIONS, {**document.section(SECTION, OPTIONS), **own_options}, ConfigError)
    url = f"{parts.scheme}://{parts.netloc}{parts.path or '/'}{'?' if others else ''}{others}"
    return WebhookOptions("", url, ignored=ignored, **fields)


def _open(config: FeedConfig, _: SourceEntry) -> "Sink[Any]":
    from tidegate.sink.webhook import WebhookSink

    assert isinstance(config.sink, WebhookOptions)
    options = replace(
        config.sink,
        feed=config.name,
        dead_letters=f"{state_of(config)}/dead-letters",
        secret=read_token(config.sink.secret_file, "secret-file").encode(),
        token=read_token(config.sink.token_file, "token-file"),
    )
    return WebhookSink(options, checkpoints_of(config))


SINK: Final = SinkEntry(
    scheme="http",
    aliases=("https",),
    about="an address that is called with CloudEvents",
    example="https://hooks.example/orders",
    params=OPTIONS,
    section=SECTION,
    parse=parse_webhook,
    address=WebhookOptions,
    open=_open,
    sends=True,
    tokens_go_to=lambda sink: frozenset({host_of(sink.url)} if sink.token_file or sink.secret_file else ()),
    warnings=WebhookOptions.warnings,
)
