"""A redis:// address: servers, an account, a database, and how rows become values.

    redis://feed:p%40ss@10.0.0.7:6379/0?mode=json
    rediss://h1:6379,h2:6379/?ssl-ca=/etc/ca.pem
    └ TLS  ┘└ one server, or some of a cluster ┘└ database

`rediss` and `ssl-ca` ask for TLS, with the server's certificate and name checked.  Whether the servers are a cluster,
they say themselves.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec

from tidegate.config.document import Document
from tidegate.config.entry import SinkEntry
from tidegate.config.feed import FeedConfig
from tidegate.config.local_name import Local
from tidegate.config.param import TIME_MAX_MS, Param, read_all
from tidegate.config.refused import NO_DATABASE, RefusedKey
from tidegate.config.uri import Parts, Secret, hosts_of, parameters, split
from tidegate.model.errors import ConfigError, SinkConfigInvalid, UnsupportedError, UriInvalid
from tidegate.sink.redis.options import (
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
REDIS_SINK: Final[Mapping[str, Param]] = {
    "mode": Param(
        "choice",
        "mode",
        "hash",
        "`hash`: a row a key, a field a column; `json`: a row a key, a document; `invalidate`: keys that applications "
        "cache are dropped; `stream`: an entry a change",
        ("hash", "json", "invalidate", "stream"),
    ),
    "key-template": Param("text", "template", TEMPLATE, "what a row's key is made of, in this order"),
    "lookups": Param("bool", "lookups", "false", "`hash`, `json`: keys by which unique indexes find rows, too"),
    "publish": Param(
        "text",
        "channel",
        "false",
        f"`hash`, `json`: announce changed keys, with `true` on channels `{CHANNEL}`, or on those that it names",
    ),
    "invalidate-keys": Param(
        "text",
        "invalidated",
        "",
        "`invalidate`: what cached keys are made of, joined by `,`, such as "
        "`user:{id},shop.orders=orders:of:{customer_id}`",
    ),
    "stream-template": Param("text", "stream", STREAM, "`stream`: names of streams; without `{table}` one for many"),
    "stream-max-length": Param(
        "int", "stream_entries", "0", "`stream`: about how many entries a stream keeps; 0: all", high=10**15
    ),
    "tombstone-ttl": Param(
        "duration",
        "tombstone_ms",
        "24h",
        "how long the version of a row that is gone is kept",
        low=1000,
        high=TIME_MAX_MS,
    ),
    "batch-rows": Param("int", "batch_rows", "256", "most rows of one call of a script", low=1, high=4096),
    "timeout": Param("duration", "timeout_ms", "10s", "time for an answer", low=1),
    "ssl-ca": Param("text", "ssl_ca", "", "path of the CA certificate; asks for TLS", local=Local.FILE),
    "ssl-cert": Param("text", "ssl_cert", "", "path of the client certificate", local=Local.FILE),
    "ssl-key": Param("text", "ssl_key", "", "path of the client key", local=Local.FILE),
}
REDIS_REFUSED: Final[Mapping[str, RefusedKey]] = {
    "bdr-mode": NO_DATABASE,
    "enable-sync-point": RefusedKey((False,), ConfigError, "sync points are for databases"),
    "sink.column-selectors[].": RefusedKey((), UnsupportedError, "a key holds the whole row"),
    "sink.dispatchers[].": RefusedKey((), UnsupportedError, "Redis has no topics and no partitions"),
}
"""Keys that a Redis has no place for."""


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Servers to write, and how; times in ms."""

    hosts: tuple[tuple[str, int], ...]
    database: int = 0
    user: str = ""
    password: Secret = Secret("")
    tls: bool = False
    ssl_ca: str = ""
    ssl_cert: str = ""
    ssl_key: str = ""
    mode: Mode = "hash"
    template: str = TEMPLATE
    lookups: bool = False
    channel: str = ""
    invalidated: str = ""
    stream: str = STREAM
    stream_entries: int = 0
    tombstone_ms: int = 86_400_000
    batch_rows: int = 256
    timeout_ms: int = 10_000
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


def parse_redis(uri: str, _document: Document) -> RedisAddress:
    """Return the servers behind `uri`. Raises UriInvalid, SinkConfigInvalid."""
    parts = split(uri, "sink-uri", ("redis", "rediss"))
    read, ignored = read_all(REDIS_SINK, parameters(parts, REDIS_SINK), SinkConfigInvalid)
    if bool(read.get("ssl_cert")) != bool(read.get("ssl_key")):
        raise SinkConfigInvalid("sink-uri: ssl-cert and ssl-key go together")
    tls = parts.scheme == "rediss" or bool(read.get("ssl_ca"))
    if read.get("ssl_cert") and not tls:
        raise SinkConfigInvalid("sink-uri: ssl-cert needs ssl-ca, or rediss://")
    _check_mode(read)
    account, _, places = parts.netloc.rpartition("@")
    user, _, password = account.partition(":")
    fields: dict[str, Any] = {
        **read,
        "tls": tls,
        "ignored": ignored,
        "user": unquote(user),
        "password": Secret(unquote(password)),
    }
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
    for name, param in REDIS_SINK.items():
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


def redis_entry(lock: Callable[[FeedConfig], Callable[[], AbstractContextManager[None]]]) -> SinkEntry:
    """Return the entry of the registry; `lock` keeps another run of a changefeed out."""
    return SinkEntry(
        scheme="redis",
        aliases=("rediss",),
        about="a Redis, or a cluster",
        example="redis://127.0.0.1:6379/?mode=json",
        params=REDIS_SINK,
        parse=parse_redis,
        address=RedisAddress,
        open=partial(_open_redis, lock),
        refused=REDIS_REFUSED,
        needs_old_values=lambda address: (
            "mode=invalidate" if address.mode == "invalidate" else "lookups=true" if address.lookups else ""
        ),
        keeps_progress=False,
        reads_changelog=False,
    )


def _open_redis(
    lock: Callable[[FeedConfig], Callable[[], AbstractContextManager[None]]], config: FeedConfig
) -> "Sink[Any]":
    from tidegate.sink.redis.sink import RedisSink

    assert isinstance(config.sink, RedisAddress)
    return RedisSink(config.sink.options(config.name, config.time_zone), held=lock(config))


def _database(parts: Parts) -> int:
    text = parts.path.strip("/")
    if text and not re.fullmatch("[0-9]{1,5}", text):
        raise UriInvalid(f"{parts.where}: the database must be a number, found {parts.path} in {parts.shown}")
    return int(text or 0)
