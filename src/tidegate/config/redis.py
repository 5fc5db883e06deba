"""redis:// addresses: servers, an account, a database, and the form of the stored rows.

    redis://feed:p%40ss@10.0.0.7:6379/0?mode=json
    rediss://h1:6379,h2:6379/?ssl-ca=/etc/ca.pem
    └ TLS  ┘└ one server, or some of a cluster ┘└ database

`rediss` and `ssl-ca` enable TLS, with the server's certificate and name checked.  The servers report whether they are a
cluster.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tidegate.config.entry import Document, FeedConfig, SinkEntry, SourceEntry, checkpoints_of
from tidegate.config.option import options_of, read_all
from tidegate.config.uri import Parts, account_of, hosts_of, parameters, split, tls_of
from tidegate.model.errors import SinkConfigInvalid, UriInvalid
from tidegate.sink.redis_options import (
    CHANNEL,
    STREAM,
    TEMPLATE,
    RedisOptions,
    check_names,
    parse_cache_keys,
    parse_template,
)

if TYPE_CHECKING:
    from tidegate.engine.ports import Sink

PORT: Final = 6379


OPTIONS: Final = options_of(RedisOptions)


def parse_redis(uri: str, _document: Document) -> RedisOptions:
    """Return the servers at `uri`. Raises UriInvalid, SinkConfigInvalid."""
    parts = split(uri, "sink-uri", ("redis", "rediss"))
    read, ignored = read_all(OPTIONS, parameters(parts, OPTIONS), SinkConfigInvalid)
    tls = tls_of(parts, read, SinkConfigInvalid, "rediss://")
    _check_mode(read)
    account, hosts = account_of(parts)
    fields: dict[str, Any] = {**read, **account, "tls": tls, "ignored": ignored}
    return RedisOptions("", hosts_of(parts, hosts, PORT), _database(parts), **fields)


_OF_MODES: Final[Mapping[str, tuple[str, ...]]] = {
    "template": ("hash", "json"),
    "tombstone_s": ("hash", "json"),
    "channel": ("hash", "json"),
    "lookups": ("hash", "json"),
    "invalidated": ("invalidate",),
    "stream": ("stream",),
    "stream_entries": ("stream",),
}
"""Parameters that mean something in some modes."""
_SWITCH: Final = {"true": CHANNEL, "false": ""}


def _check_mode(read: dict[str, object]) -> None:
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

    assert isinstance(config.sink, RedisOptions)
    options = replace(config.sink, feed=config.name, time_zone=config.time_zone)
    return RedisSink(options, run_lock=checkpoints_of(config).run_lock)


SINK: Final = SinkEntry(
    scheme="redis",
    aliases=("rediss",),
    about="a Redis, or a cluster",
    example="redis://127.0.0.1:6379/?mode=json",
    params=OPTIONS,
    parse=parse_redis,
    address=RedisOptions,
    open=_open,
    keeps_position=True,
    needs_old_values=lambda address: (
        "mode=invalidate" if address.mode == "invalidate" else "lookups=true" if address.lookups else ""
    ),
)
