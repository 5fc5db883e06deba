"""Addresses of search indexes: search+tantivy:// for one in this process, opensearch:// and elasticsearch:// for
servers.

search+tantivy:///srv/search?index-prefix=cdc-&mapping=/etc/tidegate/mapping.toml
└ in this process ┘└ directory ┘              └ rules of sink/search_mapping.py ┘
"""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.config.entry import Document, FeedConfig, SinkEntry, SourceEntry, checkpoints_of
from tidegate.config.option import options_of, read_all
from tidegate.config.uri import (
    account_of,
    hosts_of,
    lake_path,
    parameters,
    read_token,
    scheme_of,
    split,
    tls_of,
    wrong_scheme,
)
from tidegate.engine.filter import TableFilter
from tidegate.model.errors import ConfigError, SinkConfigInvalid, UriInvalid
from tidegate.sink.search_mapping import IndexPrefix, IndexRule, MappingFile, RuleFile, ServerOptions

if TYPE_CHECKING:
    from tidegate.engine.ports import Sink
    from tidegate.sink.search_embedded import EmbeddedStore
    from tidegate.sink.search_server import ServerStore

SEARCH: Final = "search"
TANTIVY: Final = "search+tantivy"
_SERVERS: Final = ("opensearch", "opensearch+ssl", "elasticsearch", "elasticsearch+ssl")
PORT: Final = 9200


class EmbeddedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A directory of indexes."""

    path: str
    prefix: IndexPrefix = ""
    mapping: MappingFile = ""
    ignored: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        return self.path

    @property
    def addresses(self) -> frozenset[str]:
        return frozenset({f"{SEARCH}:{self.path}"})


EMBEDDED_SEARCH_SINK: Final = options_of(EmbeddedTarget)


def parse_embedded(uri: str, _document: Document | None = None) -> EmbeddedTarget:
    """Return the directory at `uri`. Raises UriInvalid, SinkConfigInvalid."""
    parts = split(uri, "sink-uri", (TANTIVY,))
    read, ignored = read_all(EMBEDDED_SEARCH_SINK, parameters(parts, EMBEDDED_SEARCH_SINK), SinkConfigInvalid)
    fields: dict[str, Any] = {**read, "ignored": ignored}
    return EmbeddedTarget(path=lake_path(parts), **fields)


SERVER_SINK: Final = options_of(ServerOptions)


def parse_servers(uri: str, _document: Document | None = None) -> ServerOptions:
    """Return the servers at `uri`. Raises UriInvalid, SinkConfigInvalid."""
    parts = split(uri, "sink-uri", _SERVERS)
    read, ignored = read_all(SERVER_SINK, parameters(parts, SERVER_SINK), SinkConfigInvalid)
    if parts.path.strip("/"):
        raise UriInvalid(
            f"sink-uri: an address of servers has no path; set a prefix of index names by index-prefix: {parts.shown}"
        )
    tls = tls_of(parts, read, SinkConfigInvalid, "+ssl")
    account, hosts = account_of(parts)
    fields: dict[str, Any] = {**read, **account, "tls": tls, "ignored": ignored}
    return ServerOptions(hosts_of(parts, hosts, PORT), **fields)


def parse_search(uri: str) -> EmbeddedTarget | ServerOptions:
    """Return the indexes at the address of any search sink. Raises UriInvalid, SinkConfigInvalid."""
    scheme = scheme_of(uri)
    if scheme not in {TANTIVY, *_SERVERS}:
        raise wrong_scheme(uri, "sink-uri", (TANTIVY, *_SERVERS))
    return parse_embedded(uri) if scheme == TANTIVY else parse_servers(uri)


def store_of(target: EmbeddedTarget | ServerOptions, feed: str) -> "EmbeddedStore | ServerStore":
    """Return the directory or the servers as a feed writes them. ConfigError for a file that cannot be read."""
    if isinstance(target, EmbeddedTarget):
        from tidegate.sink.search_embedded import EmbeddedStore

        return EmbeddedStore(target.path, feed, target.prefix)
    from tidegate.sink.search_server import ServerStore

    options = replace(target, api_key=read_token(target.api_key_file, "api-key-file"))
    return ServerStore(options, feed, target.prefix)


def read_rules(path: str) -> tuple[IndexRule, ...]:
    """Return the rules of a file; () for "". Raises ConfigError."""
    if not path:
        return ()
    try:
        rules = msgspec.convert(tomllib.loads(Path(path).read_text("utf-8")), RuleFile).index
    except (OSError, ValueError) as error:
        raise ConfigError(f"sink-uri: mapping {path}: {error}") from error
    for rule in rules:
        TableFilter.parse(rule.matcher)
    return rules


def _open(config: FeedConfig, _: SourceEntry) -> "Sink[Any]":
    from tidegate.sink.search import SearchOptions, SearchSink

    target = config.sink
    assert isinstance(target, EmbeddedTarget | ServerOptions)
    options = SearchOptions(read_rules(target.mapping), target.prefix, config.time_zone)
    return SearchSink(store_of(target, config.name), options, run_lock=checkpoints_of(config).run_lock)


EMBEDDED: Final = SinkEntry(
    scheme=SEARCH,
    about="search indexes in a directory, without a server",
    example="search+tantivy:///srv/search",
    params=EMBEDDED_SEARCH_SINK,
    parse=parse_embedded,
    address=EmbeddedTarget,
    open=_open,
    keeps_position=True,
)
SERVERS: Final = SinkEntry(
    scheme="opensearch",
    aliases=("elasticsearch",),
    about="search indexes of an OpenSearch or Elasticsearch",
    example="opensearch://127.0.0.1:9200/",
    params=SERVER_SINK,
    parse=parse_servers,
    address=ServerOptions,
    open=_open,
    keeps_position=True,
    tokens_go_to=lambda sink: frozenset(f"{host}:{port}" for host, port in sink.hosts if sink.api_key_file),
    warnings=ServerOptions.warnings,
)
