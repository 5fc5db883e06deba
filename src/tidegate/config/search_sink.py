"""Addresses of search indexes: a directory, and what readers find there.

search+tantivy:///srv/search?index-prefix=cdc-&mapping=/etc/tidegate/mapping.toml
└ in this process ┘└ directory ┘              └ rules of sink/search/mapping.py ┘
"""

import tomllib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec

from tidegate.config.delta_sink import lake_path
from tidegate.config.document import Document
from tidegate.config.entry import SinkEntry
from tidegate.config.feed import FeedConfig
from tidegate.config.local_name import Local
from tidegate.config.param import TIME_MAX_MS, Param, read_all
from tidegate.config.refused import NO_DATABASE, RefusedKey
from tidegate.config.token_file import read_token
from tidegate.config.uri import Secret, hosts_of, parameters, scheme_of, split, wrong_scheme
from tidegate.engine.filter import TableFilter
from tidegate.model.errors import ConfigError, SinkConfigInvalid, UnsupportedError, UriInvalid
from tidegate.sink.search.mapping import IndexRule, RuleFile

if TYPE_CHECKING:
    from tidegate.engine.ports import Sink
    from tidegate.sink.search.embedded import EmbeddedStore
    from tidegate.sink.search.server import ServerStore

Lock = Callable[[FeedConfig], Callable[[], AbstractContextManager[None]]]
SEARCH: Final = "search"
TANTIVY: Final = "search+tantivy"
_SERVERS: Final = ("opensearch", "opensearch+ssl", "elasticsearch", "elasticsearch+ssl")
EMBEDDED_SINK: Final[Mapping[str, Param]] = {
    "index-prefix": Param("text", "prefix", "", "what the names that readers search begin with"),
    "mapping": Param("text", "mapping", "", "file of rules: which columns are searched, and how", local=Local.FILE),
}
PORT: Final = 9200
SERVER_SINK: Final[Mapping[str, Param]] = {
    **EMBEDDED_SINK,
    "refresh-interval": Param("text", "refresh", "1s", "how soon readers find what is written; `-1`: never by itself"),
    "bulk-rows": Param("int", "bulk_rows", "2000", "most rows of a bulk", low=1, high=100_000),
    "bulk-size": Param("int", "bulk_bytes", "8388608", "most bytes of a bulk, but for a single row", low=1),
    "tombstone-ttl": Param(
        "duration", "tombstone_ms", "1h", "how long the version of a row that is gone is kept", high=TIME_MAX_MS
    ),
    "timeout": Param("duration", "timeout_ms", "60s", "time for an answer", low=1, high=TIME_MAX_MS),
    "api-key-file": Param(
        "text", "api_key_file", "", "file with an API key, in place of user and password", local=Local.TOKEN
    ),
    "ssl-ca": Param("text", "ssl_ca", "", "path of the CA certificate; asks for TLS", local=Local.FILE),
    "ssl-cert": Param("text", "ssl_cert", "", "path of the client certificate", local=Local.FILE),
    "ssl-key": Param("text", "ssl_key", "", "path of the client key", local=Local.FILE),
}
SEARCH_REFUSED: Final[Mapping[str, RefusedKey]] = {
    "bdr-mode": NO_DATABASE,
    "enable-sync-point": RefusedKey((False,), ConfigError, "sync points are for databases"),
    "sink.column-selectors[].": RefusedKey(
        (), UnsupportedError, "a document has its whole row; the mapping says what is searched"
    ),
    "sink.dispatchers[].": RefusedKey((), UnsupportedError, "an index has no topics and no partitions"),
}
"""Keys that an index has no place for."""


class EmbeddedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A directory of indexes."""

    path: str
    prefix: str = ""
    mapping: str = ""
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
        from tidegate.sink.search.embedded import EmbeddedStore

        return EmbeddedStore(self.path, feed, self.prefix)


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
    prefix: str = ""
    mapping: str = ""
    refresh: str = "1s"
    bulk_rows: int = 2_000
    bulk_bytes: int = 8 << 20
    tombstone_ms: int = 3_600_000
    timeout_ms: int = 60_000
    api_key_file: str = ""
    ssl_ca: str = ""
    ssl_cert: str = ""
    ssl_key: str = ""
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
        from tidegate.sink.search.server import ServerOptions, ServerStore

        options = ServerOptions(
            hosts=self.hosts,
            user=self.user,
            password=str(self.password),
            api_key=read_token(Path(self.api_key_file), "api-key-file") if self.api_key_file else "",
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


def parse_servers(uri: str, _document: Document | None = None) -> SearchAddress:
    """Return the servers behind `uri`. Raises UriInvalid, SinkConfigInvalid."""
    parts = split(uri, "sink-uri", _SERVERS)
    read, ignored = read_all(SERVER_SINK, parameters(parts, SERVER_SINK), SinkConfigInvalid)
    if parts.path.strip("/"):
        raise UriInvalid(f"sink-uri: servers have no path; index-prefix begins the names of indexes: {parts.shown}")
    if bool(read.get("ssl_cert")) != bool(read.get("ssl_key")):
        raise SinkConfigInvalid("sink-uri: ssl-cert and ssl-key go together")
    tls = parts.scheme.endswith("+ssl") or bool(read.get("ssl_ca"))
    if read.get("ssl_cert") and not tls:
        raise SinkConfigInvalid("sink-uri: ssl-cert needs ssl-ca, or +ssl")
    account, _, places = parts.netloc.rpartition("@")
    user, _, password = account.partition(":")
    fields: dict[str, Any] = {**read, "tls": tls, "ignored": ignored, "user": unquote(user)}
    return SearchAddress(hosts=hosts_of(parts, places, PORT), password=Secret(unquote(password)), **fields)


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


def search_entries(lock: Lock) -> tuple[SinkEntry, ...]:
    """Return the entries of the registry; `lock` keeps another run of a changefeed out."""
    return (
        SinkEntry(
            scheme=SEARCH,
            about="search indexes in a directory, without a server",
            example="search+tantivy:///srv/search",
            params=EMBEDDED_SINK,
            parse=parse_embedded,
            address=EmbeddedTarget,
            open=partial(_open, lock),
            refused=SEARCH_REFUSED,
            keeps_progress=False,
            reads_changelog=False,
        ),
        SinkEntry(
            scheme="opensearch",
            aliases=("elasticsearch",),
            about="search indexes of an OpenSearch or Elasticsearch",
            example="opensearch://127.0.0.1:9200/",
            params=SERVER_SINK,
            parse=parse_servers,
            address=SearchAddress,
            open=partial(_open, lock),
            refused=SEARCH_REFUSED,
            tokens_go_to=lambda sink: sink.tokens_go_to,
            warnings=SearchAddress.warnings,
            keeps_progress=False,
            reads_changelog=False,
        ),
    )


def _open(lock: Lock, config: FeedConfig) -> "Sink[Any]":
    from tidegate.sink.search.sink import SearchOptions, SearchSink

    target = config.sink
    assert isinstance(target, EmbeddedTarget | SearchAddress)
    options = SearchOptions(read_rules(target.mapping), target.prefix, config.time_zone)
    return SearchSink(target.store(config.name), options, held=lock(config))
