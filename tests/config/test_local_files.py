"""Files that options name: their paths are absolute once they are read, since executors have other directories."""

from pathlib import Path
from urllib.parse import quote

import pytest

from tidegate.config.full_load import parse_load
from tidegate.config.kafka import parse_source
from tidegate.config.load import load
from tidegate.config.option import read_all
from tidegate.config.registry import SINKS, SOURCES, home_of
from tidegate.config.store_params import split_store, store_params
from tidegate.config.uri import RawValue
from tidegate.model.errors import ConfigError
from tidegate.model.option import Local, Option
from tidegate.source.upstream_address import parse_address

OPTIONS = {
    f"{entry.scheme} {option.name}": option
    for entry in (*SOURCES.values(), *SINKS.values())
    for option in entry.params.values()
    if option.local in {Local.FILE, Local.TOKEN} and option.field not in {None, "store"}
}


def test_there_are_some() -> None:
    """Files of certificates, of tokens and of mappings are among them."""
    names = {option.name for option in OPTIONS.values()}
    assert names >= {"ca", "cert", "key", "ssl-ca", "ca-path", "token-file", "mapping", "catalog-token-file"}


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS)
def test_a_path_becomes_absolute(option: Option) -> None:
    """A relative path is one of the directory in which the command starts; an absolute one stays as it is."""
    for text in ("pem/a.pem", "/etc/a.pem", ""):
        fields, _ = read_all({option.name: option}, {option.name: RawValue("x", text)}, ConfigError)
        assert fields == {option.field: text and str(Path.cwd() / text)}


def test_paths_in_other_addresses() -> None:
    """The same in the addresses of a database to load, of the upstream of large rows, and of an object store."""
    query = "?ssl-ca=a.pem&ssl-cert=/etc/b.pem&ssl-key=c.pem"
    expected = (f"{Path.cwd()}/a.pem", "/etc/b.pem", f"{Path.cwd()}/c.pem")
    upstream = f"mysql://u:p@h:4000/{query}"
    topics = parse_source(f"kafka://h/t?protocol=open-protocol&large-message-upstream-uri={quote(upstream)}")
    for address in (parse_load(upstream).address, parse_address(str(topics.upstream_uri))):
        assert (address.ssl_ca, address.ssl_cert, address.ssl_key) == expected
    params = store_params("gs")
    client, _ = split_store({"credentials-file": RawValue("x", "keys.json")}, "gs", params)
    assert client == {"credentials-file": str(Path.cwd() / "keys.json")}


@pytest.mark.parametrize(
    "sink",
    [
        "mysql://root@h/?ssl-ca={}",
        "rediss://h/?ssl-ca={}",
        "kafka://h/t?protocol=open-protocol&enable-tls=true&ca={}",
        "https://h/hook?ssl-ca={}",
        "opensearch+ssl://h/?ssl-ca={}",
    ],
)
def test_state_is_found_as_before(sink: str, tmp_path: Path) -> None:
    """The name of a changefeed, and where its state is, do not depend on how a path is written."""
    sinks = [sink.format(path) for path in ("a.pem", Path.cwd() / "a.pem")]
    relative, absolute = (
        load(source_uri=f"tidb://{tmp_path}", sink_uri=uri, state_dir=tmp_path / "state") for uri in sinks
    )
    assert relative.sink == absolute.sink
    assert (relative.name, relative.sink.identity) == (absolute.name, absolute.sink.identity)
    assert home_of(relative) == home_of(absolute)
