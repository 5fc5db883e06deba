"""Addresses of search indexes: search+tantivy:// for one in this process, opensearch:// and elasticsearch:// for
servers.

search+tantivy:///srv/search?index-prefix=cdc-&mapping=/etc/tidegate/mapping.toml
└ in this process ┘└ directory ┘              └ rules of sink/search_mapping.py ┘
"""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

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
from tidegate.model.option import TIME_MAX_MS, Local, Option, Secret, SslCa, SslCert, SslKey
from tidegate.sink.search_mapping import IndexRule, RuleFile

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
    prefix: Annotated[str, Option("index-prefix", "what the names that readers search begin with")] = ""
    mapping: Annotated[
        str, Option("mapping", "file of rules: which columns are searched, and how", local=Local.FILE)
    ] = ""
    ignored: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """What tells this sink from others in the names of changefeeds."""
        return self.path

    @property
    def places(self) -> frozenset[str]:
        """What is written."""
        return frozenset({f"{SEARCH}:{self.path}"})

    def store(self, feed: str) -> "EmbeddedStore":
        """Return the directory as a feed writes it."""
        from tidegate.sink.search_embedded import EmbeddedStore

        return EmbeddedStore(self.path, feed, self.prefix)


EMBEDDED_SINK: Final = options_of(EmbeddedTarget)


def parse_embedded(uri: str, _document: Document | None = None) -> EmbeddedTarget:
    """Return the directory behind `uri`. Raises UriInvalid, SinkConfigInvalid."""
    parts = split(uri, "sink-uri", (TANTIVY,))
    read, ignored = read_all(EMBEDDED_SINK, parameters(parts, EMBEDDED_SINK), SinkConfigInvalid)
    fields: dict[str, Any] = {**read, "ignored": ignored}
    return EmbeddedTarget(path=lake_path(parts), **fields)


class SearchAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Servers to write, and how; times in ms."""

    hosts: tuple[tuple[str, int], ...]
    user: str = ""
    password: Secret = Secret("")
    tls: bool = False
    prefix: Annotated[str, Option("index-prefix", "what the names that readers search begin with")] = ""
    mapping: Annotated[
        str, Option("mapping", "file of rules: which columns are searched, and how", local=Local.FILE)
    ] = ""
    refresh: Annotated[
        str, Option("refresh-interval", "how soon readers find what is written; `-1`: never by itself")
    ] = "1s"
    bulk_rows: Annotated[int, Option("bulk-rows", "most rows of a bulk", low=1, high=100000)] = 2_000
    bulk_bytes: Annotated[int, Option("bulk-size", "most bytes of a bulk, but for a single row", low=1)] = 8 << 20
    tombstone_ms: Annotated[
        int, Option("tombstone-ttl", "how long the version of a row that is gone is kept", "duration", high=TIME_MAX_MS)
    ] = 3_600_000
    timeout_ms: Annotated[
        int, Option("timeout", "time for an answer", "duration", default="60s", low=1, high=TIME_MAX_MS)
    ] = 60_000
    api_key_file: Annotated[
        str, Option("api-key-file", "file with an API key, in place of user and password", local=Local.TOKEN)
    ] = ""
    ssl_ca: SslCa = ""
    ssl_cert: SslCert = ""
    ssl_key: SslKey = ""
    ignored: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """What tells this sink from others in the names of changefeeds."""
        return ",".join(f"{host}:{port}" for host, port in self.hosts)

    @property
    def places(self) -> frozenset[str]:
        """What is written."""
        return frozenset({f"{self.identity}/{self.prefix}"})

    @property
    def tokens_go_to(self) -> frozenset[str]:
        """The servers, where a file has the key for them."""
        return frozenset(f"{host}:{port}" for host, port in self.hosts) if self.api_key_file else frozenset()

    def store(self, feed: str) -> "ServerStore":
        """Return the servers as a feed writes them. ConfigError for a file that cannot be read."""
        from tidegate.sink.search_server import ServerOptions, ServerStore

        options = ServerOptions(
            hosts=self.hosts,
            user=self.user,
            password=str(self.password),
            api_key=read_token(self.api_key_file, "api-key-file"),
            tls=self.tls,
            ssl_ca=self.ssl_ca,
            ssl_cert=self.ssl_cert,
            ssl_key=self.ssl_key,
            timeout_s=self.timeout_ms / 1000,
            bulk_rows=self.bulk_rows,
            bulk_bytes=self.bulk_bytes,
            refresh=self.refresh,
            tombstone_s=self.tombstone_ms / 1000,
        )
        return ServerStore(options, feed, self.prefix)

    def warnings(self) -> tuple[str, ...]:
        """Return what a user should hear of an address that works, but perhaps not as meant."""
        if not self.tls and (self.user or self.api_key_file):
            return ("sink-uri: without +ssl rows and password are seen by whoever is on the way",)
        return ()


SERVER_SINK: Final = options_of(SearchAddress)


def parse_servers(uri: str, _document: Document | None = None) -> SearchAddress:
    """Return the servers behind `uri`. Raises UriInvalid, SinkConfigInvalid."""
    parts = split(uri, "sink-uri", _SERVERS)
    read, ignored = read_all(SERVER_SINK, parameters(parts, SERVER_SINK), SinkConfigInvalid)
    if parts.path.strip("/"):
        raise UriInvalid(f"sink-uri: servers have no path; index-prefix begins the names of indexes: {parts.shown}")
    tls = tls_of(parts, read, SinkConfigInvalid, "+ssl")
    account, places = account_of(parts)
    fields: dict[str, Any] = {**read, **account, "tls": tls, "ignored": ignored}
    return SearchAddress(hosts=hosts_of(parts, places, PORT), **fields)


def parse_search(uri: str) -> EmbeddedTarget | SearchAddress:
    """Return the indexes behind the address of any search sink. Raises UriInvalid, SinkConfigInvalid."""
    scheme = scheme_of(uri)
    if scheme not in {TANTIVY, *_SERVERS}:
        raise wrong_scheme(uri, "sink-uri", (TANTIVY, *_SERVERS))
    return parse_embedded(uri) if scheme == TANTIVY else parse_servers(uri)


def read_rules(path: str) -> tuple[IndexRule, ...]:
    """Return the rules of a file; () for "". Raises ConfigError."""
    if not path:
        return ()
    try:
        found = msgspec.convert(tomllib.loads(Path(path).read_text("utf-8")), RuleFile).index
    except (OSError, ValueError) as error:
        raise ConfigError(f"sink-uri: mapping {path}: {error}") from error
    for rule in found:
        TableFilter.parse(rule.matcher)
    return found


def _open(config: FeedConfig, _: SourceEntry) -> "Sink[Any]":
    from tidegate.sink.search import SearchOptions, SearchSink

    target = config.sink
    assert isinstance(target, EmbeddedTarget | SearchAddress)
    options = SearchOptions(read_rules(target.mapping), target.prefix, config.time_zone)
    return SearchSink(target.store(config.name), options, held=checkpoints_of(config).held)


_NO_SELECTORS: Final = "a document has its whole row; the mapping says what is searched"
_NO_TOPICS: Final = "an index has no topics and no partitions"
EMBEDDED: Final = SinkEntry(
    scheme=SEARCH,
    about="search indexes in a directory, without a server",
    example="search+tantivy:///srv/search",
    params=EMBEDDED_SINK,
    parse=parse_embedded,
    address=EmbeddedTarget,
    open=_open,
    no_selectors=_NO_SELECTORS,
    no_topics=_NO_TOPICS,
)
SERVERS: Final = SinkEntry(
    scheme="opensearch",
    aliases=("elasticsearch",),
    about="search indexes of an OpenSearch or Elasticsearch",
    example="opensearch://127.0.0.1:9200/",
    params=SERVER_SINK,
    parse=parse_servers,
    address=SearchAddress,
    open=_open,
    no_selectors=_NO_SELECTORS,
    no_topics=_NO_TOPICS,
    tokens_go_to=lambda sink: sink.tokens_go_to,
    warnings=SearchAddress.warnings,
)
