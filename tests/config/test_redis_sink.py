"""A redis:// address: what it names, what is wrong with it, and what it never shows."""

from pathlib import Path

import pytest

from tidegate.config.entry import Document
from tidegate.config.load import load
from tidegate.config.redis import parse_redis
from tidegate.config.registry import sink_of
from tidegate.model.errors import ConfigError
from tidegate.sink.redis import RedisSink
from tidegate.sink.redis_options import RedisOptions


def address(uri: str) -> RedisOptions:
    """The address in a URI."""
    return parse_redis(uri, Document())


def test_an_address() -> None:
    """Servers, account, database and TLS are read, and a password does not show."""
    found = address(
        "rediss://feed:p%40ss@h1:7000,[::1],h3/2?mode=JSON&tombstone-ttl=1h&key-template={schema}/{table}/{pk}"
    )

    assert (found.hosts, found.database) == ((("h1", 7000), ("::1", 6379), ("h3", 6379)), 2)
    assert (found.user, str(found.password), found.tls, found.mode) == ("feed", "p@ss", True, "json")
    assert (found.tombstone_s, found.template, found.password) == (3600.0, "{schema}/{table}/{pk}", "p@ss")
    assert "p@ss" not in f"{found}"
    assert not address("redis://h").tls
    assert address("redis://h?ssl-ca=/ca.pem").tls


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("redis://", "is not HOST:PORT"),
        ("redis://h:0", "is not HOST:PORT"),
        ("redis://h,,k", "is not HOST:PORT"),
        ("redis://h/shop", "must be a number"),
        ("redis://h?mode=list", "not one of hash, json, invalidate, stream"),
        ("redis://h?mode=invalidate", "needs invalidate-keys"),
        ("redis://h?mode=invalidate&invalidate-keys=user", "names no column"),
        ("redis://h?invalidate-keys=user:{id}", "is for mode=invalidate, and the mode is hash"),
        ("redis://h?mode=stream&key-template={schema}:{table}:{pk}", "is for mode=hash and mode=json"),
        ("redis://h?mode=stream&lookups=true", "is for mode=hash and mode=json"),
        ("redis://h?publish=c:{pk}", "publish"),
        ("redis://h?mode=stream&stream-template={pk}", "nothing else"),
        ("redis://h?mode=stream&stream-template={", "stream-template"),
        ("redis://h?mode=stream&stream-template=_tidegate:x", "reserved"),
        ("redis://h?key-template={pk}", "key-template"),
        ("redis://h?tombstone-ttl=1ms", "is not between"),
        ("redis://h?ssl-cert=/c.pem", "must be set together"),
        ("redis://h?ssl-cert=/c.pem&ssl-key=/k.pem", "needs ssl-ca"),
        ("redis://h?pipeline=1", "unknown parameter"),
    ],
)
def test_what_is_wrong(uri: str, why: str) -> None:
    """An address that cannot be meant is an error that says why."""
    with pytest.raises(ConfigError, match=why):
        address(uri)


def test_addresses_of_modes() -> None:
    """Templates of cached keys and names of streams are read with what parts them, also where '%' writes it."""
    found = address("redis://h?mode=invalidate&invalidate-keys=user:{id},shop.orders%3Dorders:of:{customer_id}")
    assert found.invalidated == "user:{id},shop.orders=orders:of:{customer_id}"
    found = address("redis://h?mode=stream&stream-template=all&stream-max-length=1000000")
    assert (found.stream, found.stream_entries) == ("all", 1_000_000)


def test_announcements_and_look_ups() -> None:
    """They are off unless they are asked for; channels have the names of tables unless a template names them."""
    assert [address(f"redis://h{more}").channel for more in ("", "?publish=false")] == ["", ""]
    found = address("redis://h?publish=True&lookups=true")
    assert (found.channel, found.lookups) == ("{schema}:{table}", True)
    assert address("redis://h?publish=c/{table}").channel == "c/{table}"


def test_old_values_are_needed(tmp_path: Path) -> None:
    """Keys of old values cannot be dropped where a topic does not bring them."""
    file = tmp_path / "feed.toml"
    file.write_text("[sink.open]\noutput-old-value = false\n")
    uris = {"source_uri": "kafka://h/t?protocol=open-protocol", "state_dir": str(tmp_path)}
    for words in ("mode=invalidate&invalidate-keys=user:{id}", "lookups=true"):
        with pytest.raises(ConfigError, match=f"{words.partition('&')[0]} needs old values"):
            load(str(file), sink_uri=f"redis://h?{words}", **uris)


def test_its_sink(tmp_path: Path) -> None:
    """The registry makes the sink with the changefeed's name; nothing is connected."""
    state = str(tmp_path / "state")
    config = load(None, source_uri=f"tidb://{tmp_path}", sink_uri="redis://h", state_dir=state, name="shop")
    sink = sink_of(config)

    assert isinstance(sink, RedisSink)
    assert sink.options.feed == "shop"
