"""Addresses of search servers: what they name, what is wrong with them, and what they never show."""

from pathlib import Path

import pytest

from tidegate.config.load import load
from tidegate.config.registry import sink_of
from tidegate.config.search import parse_search, parse_servers, store_of
from tidegate.model.errors import ConfigError
from tidegate.sink.search import SearchSink
from tidegate.sink.search_server import ServerStore


def test_an_address() -> None:
    """Servers, account, TLS and parameters are read, and a password does not show."""
    found = parse_servers(
        "opensearch+ssl://feed:p%40ss@h1:9201,[::1]/?index-prefix=cdc-&bulk-rows=10&bulk-size=2000&tombstone-ttl=2h"
    )
    assert (found.hosts, found.tls) == ((("h1", 9201), ("::1", 9200)), True)
    options = store_of(found, "f").options
    assert (options.user, options.password, options.tombstone_s) == ("feed", "p@ss", 7200.0)
    assert (options.bulk_rows, options.bulk_bytes, store_of(found, "f").prefix) == (10, 2000, "cdc-")
    assert "p@ss" not in f"{found}{options}"
    assert not found.warnings()
    assert parse_servers("elasticsearch://u:p@h").warnings()
    assert parse_servers("elasticsearch://h?ssl-ca=/ca.pem").tls


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("opensearch://", "is not HOST:PORT"),
        ("opensearch://h/shop", "has no path"),
        ("opensearch+tls://h", "use search"),
        ("opensearch://h?bulk-rows=0", "is not between"),
        ("opensearch://h?ssl-cert=/c.pem", "must be set together"),
        ("opensearch://h?ssl-cert=/c.pem&ssl-key=/k.pem", "needs ssl-ca"),
        ("opensearch://h?pipeline=1", "unknown parameter"),
        ("solr://h", "unknown scheme"),
    ],
)
def test_what_is_wrong(uri: str, why: str) -> None:
    """An address that cannot be meant is an error that says why."""
    with pytest.raises(ConfigError, match=why):
        parse_search(uri)


def test_a_key_in_a_file(tmp_path: Path) -> None:
    """An API key comes from a file; one that is not there is told."""
    key = tmp_path / "key"
    key.write_text("abc==\n")
    assert store_of(parse_servers(f"opensearch://h?api-key-file={key}"), "f").options.api_key == "abc=="
    with pytest.raises(ConfigError, match="api-key-file"):
        store_of(parse_servers(f"opensearch://h?api-key-file={tmp_path}/none"), "f")


@pytest.mark.parametrize("scheme", ["opensearch", "opensearch+ssl", "elasticsearch", "elasticsearch+ssl"])
def test_its_sink(tmp_path: Path, scheme: str) -> None:
    """The registry makes the sink with the changefeed's name; nothing is connected."""
    state = str(tmp_path / "state")
    uri = f"{scheme}://u:secret@h"
    config = load(None, source_uri=f"tidb://{tmp_path}", sink_uri=uri, state_dir=state, name="shop")
    sink = sink_of(config)
    assert isinstance(sink, SearchSink)
    assert isinstance(sink.store, ServerStore)
    assert sink.store.feed == "shop"
    assert "secret" not in f"{config}"
