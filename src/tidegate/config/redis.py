"""A redis:// address: servers, an account, a database, and how rows become values.

    redis://feed:p%40ss@10.0.0.7:6379/0?mode=json
    rediss://h1:6379,h2:6379/?ssl-ca=/etc/ca.pem
    └ TLS  ┘└ one server, or some of a cluster ┘└ database

`rediss` and `ssl-ca` ask for TLS, with the server's certificate and name checked.  Whether the servers are a cluster,
they say themselves.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from tidegate.config.entry import Document, FeedConfig, SinkEntry, SourceEntry, checkpoints_of
from tidegate.config.option import options_of, read_all
from tidegate.config.uri import Parts, account_of, hosts_of, parameters, split, tls_of
from tidegate.model.errors import SinkConfigInvalid, UriInvalid
from tidegate.model.option import TIME_MAX_MS, Option, Secret, SslCa, SslCert, SslKey
from tidegate.sink.redis_options import (
    CHANNEL,
    STREAM,
    TEMPLATE,
    Mode,
    RedisOptions,
    check_names,
    parse_cache_keys,
    parse_template,
)

if TYPE_CHECKING:
    from tidegate.engine.ports import Sink

PORT: Final = 6379


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Servers to write, and how; times in ms."""

    hosts: tuple[tuple[str, int], ...]
    database: int = 0
    user: str = ""
    password: Secret = Secret("")
    tls: bool = False
    ssl_ca: SslCa = ""
    ssl_cert: SslCert = ""
    ssl_key: SslKey = ""
    mode: Annotated[
        Mode,
        Option(
            "mode",
            "`hash`: a row a key, a field a column; `json`: a row a key, a document; `invalidate`: keys that "
            "applications cache are dropped; `stream`: an entry a change",
        ),
    ] = "hash"
    template: Annotated[str, Option("key-template", "what a row's key is made of, in this order")] = TEMPLATE
    lookups: Annotated[bool, Option("lookups", "`hash`, `json`: keys by which unique indexes find rows, too")] = False
    channel: Annotated[
        str,
        Option(
            "publish",
            f"`hash`, `json`: announce changed keys, with `true` on channels `{CHANNEL}`, or on those that it names",
            default="false",
        ),
    ] = ""
    invalidated: Annotated[
        str,
        Option(
            "invalidate-keys",
            "`invalidate`: what cached keys are made of, joined by `,`, such as "
            "`user:{id},shop.orders=orders:of:{customer_id}`",
        ),
    ] = ""
    stream: Annotated[str, Option("stream-template", "`stream`: names of streams; without `{table}` one for many")] = (
        STREAM
    )
    stream_entries: Annotated[
        int, Option("stream-max-length", "`stream`: about how many entries a stream keeps; 0: all", high=10**15)
    ] = 0
    tombstone_ms: Annotated[
        int,
        Option(
            "tombstone-ttl",
            "how long the version of a row that is gone is kept",
            "duration",
            low=1000,
            high=TIME_MAX_MS,
        ),
    ] = 86_400_000
    batch_rows: Annotated[int, Option("batch-rows", "most rows of one call of a script", low=1, high=4096)] = 256
    timeout_ms: Annotated[int, Option("timeout", "time for an answer", "duration", low=1)] = 10_000
    ignored: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """What tells this sink from others in the names of changefeeds."""
        servers = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{servers}/{self.database}"

    @property
    def places(self) -> frozenset[str]:
        """What is written."""
        return frozenset({self.identity})

    def options(self, feed: str, time_zone: str) -> RedisOptions:
        """Return how the servers are reached and written by a feed whose TIMESTAMPs come as texts of a zone."""
        return RedisOptions(
            feed=feed,
            hosts=self.hosts,
            database=self.database,
            user=self.user,
            password=str(self.password),
            tls=self.tls,
            ssl_ca=self.ssl_ca,
            ssl_cert=self.ssl_cert,
            ssl_key=self.ssl_key,
            timeout_s=self.timeout_ms / 1000,
            mode=self.mode,
            template=self.template,
            lookups=self.lookups,
            channel=self.channel,
            invalidated=self.invalidated,
            stream=self.stream,
            stream_entries=self.stream_entries,
            tombstone_s=self.tombstone_ms / 1000,
            batch_rows=self.batch_rows,
            time_zone=time_zone,
        )


OPTIONS: Final = options_of(RedisAddress)


def parse_redis(uri: str, _document: Document) -> RedisAddress:
    """Return the servers behind `uri`. Raises UriInvalid, SinkConfigInvalid."""
    parts = split(uri, "sink-uri", ("redis", "rediss"))
    read, ignored = read_all(OPTIONS, parameters(parts, OPTIONS), SinkConfigInvalid)
    tls = tls_of(parts, read, SinkConfigInvalid, "rediss://")
    _check_mode(read)
    account, places = account_of(parts)
    fields: dict[str, Any] = {**read, **account, "tls": tls, "ignored": ignored}
    return RedisAddress(hosts=hosts_of(parts, places, PORT), database=_database(parts), **fields)


_OF_MODES: Final[Mapping[str, tuple[str, ...]]] = {
    "template": ("hash", "json"),
    "tombstone_ms": ("hash", "json"),
    "channel": ("hash", "json"),
    "lookups": ("hash", "json"),
    "invalidated": ("invalidate",),
    "stream": ("stream",),
    "stream_entries": ("stream",),
}
"""Parameters that mean something in some modes."""
_SWITCH: Final = {"true": CHANNEL, "false": ""}


def _check_mode(read: dict[str, object]) -> None:
    """Raise for parameters of another mode, and for templates that cannot be meant."""
    mode = str(read.get("mode", "hash"))
    for name, param in OPTIONS.items():
        modes = _OF_MODES.get(param.field or "", ())
        if param.field in read and modes and mode not in modes:
            raise SinkConfigInvalid(f"sink-uri: {name} is for mode={' and mode='.join(modes)}, and the mode is {mode}")
    parse_template(str(read.get("template", TEMPLATE)))
    check_names("stream-template", str(read.get("stream", STREAM)))
    channel = str(read.get("channel", ""))
    if channel.lower() in _SWITCH:
        read["channel"] = _SWITCH[channel.lower()]
    elif channel:
        check_names("publish", channel)
    if mode == "invalidate":
        parse_cache_keys(str(read.get("invalidated", "")))


def _database(parts: Parts) -> int:
    text = parts.path.strip("/")
    if text and not re.fullmatch("[0-9]{1,5}", text):
        raise UriInvalid(f"{parts.where}: the database must be a number, found {parts.path} in {parts.shown}")
    return int(text or 0)


def _open(config: FeedConfig, _: SourceEntry) -> "Sink[Any]":
    from tidegate.sink.redis import RedisSink

    assert isinstance(config.sink, RedisAddress)
    return RedisSink(config.sink.options(config.name, config.time_zone), held=checkpoints_of(config).held)


SINK: Final = SinkEntry(
    scheme="redis",
    aliases=("rediss",),
    about="a Redis, or a cluster",
    example="redis://127.0.0.1:6379/?mode=json",
    params=OPTIONS,
    parse=parse_redis,
    address=RedisAddress,
    open=_open,
    no_selectors="a key holds the whole row",
    no_topics="Redis has no topics and no partitions",
    needs_old_values=lambda address: (
        "mode=invalidate" if address.mode == "invalidate" else "lookups=true" if address.lookups else ""
    ),
)
