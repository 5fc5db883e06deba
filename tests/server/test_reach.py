"""What a client may name on the server's machine: every parameter and every address of every scheme."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.server.kit import ServerHome, until
from tidegate.config.entry import FeedConfig
from tidegate.config.load import KEYS, document_of, load
from tidegate.config.registry import SINKS, SOURCES, entries_of
from tidegate.config.uri import ADDED, OVER_SIGNATURES, LocalName, host_of, reporting_names
from tidegate.model.errors import UriInvalid
from tidegate.model.option import Local, Option
from tidegate.server.changefeeds import ClientReach
from tidegate.server.config import server_config
from tidegate.server.record import FeedChange, FeedId, NewFeed

ENTRIES: Final = {f"{kind} {scheme}": entry for kind, all_ in (("source", SOURCES), ("sink", SINKS))
                  for scheme, entry in all_.items()}  # fmt: skip
NO_FILES: Final = {
    *("large-message-upstream-uri", "kafka-client-id", "sasl-user", "sasl-password", "catalog", "catalog-warehouse"),
    *("delimiter", "quote", "null", "terminator", "file-cleanup-cron-spec", "index-prefix", "refresh-interval"),
    *("access-key", "secret-access-key", "session-token", "region", "endpoint", "sse", "sse-kms-key-id"),
    *("account-name", "account-key", "sas-token", "otlp-endpoint", "alert-url"),
    *("key-template", "publish", "invalidate-keys", "stream-template", "replica-read", "resource-group"),
    *("load-hours", "csv-separator", "csv-delimiter", "csv-null-value", "host-mapping"),
}
"""Parameters with a text that names no file; files in the address of large-message-upstream-uri are named by
themselves."""
LOG: Final = "tidb://./log"
KAFKA: Final = "kafka://h:9092/t?protocol=open-protocol"
PAIRS: Final[Mapping[str, tuple[str, str]]] = {
    "source kafka": (KAFKA, "delta://./lake"),
    "source mysql": ("mysql://h/", "delta://./lake"),
    "source tikv": ("tikv://h?ca-path=ca", "sqlite://./data/shop.db"),
    "source file": ("file://./in?protocol=csv", "delta://./lake"),
    "sink delta": (KAFKA, "delta://./lake?mode=replica"),
    "sink kafka": (LOG, KAFKA),
    "sink mysql": (LOG, "mysql://h/?ssl-ca=ca"),
    "sink redis": (LOG, "rediss://h/?mode=hash"),
    "sink search": (LOG, "search+tantivy://./search?index-prefix=x"),
    "sink opensearch": (LOG, "opensearch+ssl://h/?index-prefix=x"),
    "sink http": (LOG, "http://h/?resolved=true"),
    "sink file": (LOG, "s3://b/p?protocol=csv"),
    "sink metrics": (LOG, "metrics://?otlp-endpoint=http://h/x&alert-url=https://a:8/y"),
}
"""A source and a sink, of which one has the parameters of an entry."""
TOGETHER: Final = {
    "cert": "key",
    "key": "cert",
    "ssl-cert": "ssl-key",
    "ssl-key": "ssl-cert",
    "cert-path": "key-path",
    "key-path": "cert-path",
}
LOCAL: Final = [(entry, name) for entry, one in ENTRIES.items() for name, param in one.params.items()
                if param.local is not Local.NOTHING]  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that clients may name, with a log, in which the server was started."""
    monkeypatch.chdir(tmp_path)
    for name in ("TIDEGATE_CATALOG_TOKEN", *ADDED, *OVER_SIGNATURES):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "log").mkdir()
    return tmp_path


def reach(**flags: object) -> ClientReach:
    """A server's rules, whose data are in `data` of this directory."""
    return ClientReach(server_config(None, **({"data_dir": "data"} | flags)))


@dataclass
class Wish:
    """What a client asks for."""

    source: str = LOG
    sink: str = "metrics://"
    config: dict[str, Any] = field(default_factory=dict)

    def __call__(self) -> FeedConfig:
        """Its configuration."""
        document = document_of(self.config)
        return load(document, source_uri=self.source, sink_uri=self.sink, name="x", state_dir="data/state")


def with_param(entry: str, name: str, value: str) -> Wish:
    """A changefeed with a parameter of an entry."""
    pair = list(PAIRS[entry])
    at = entry.startswith("sink")
    scheme = pair[at].partition("://")[0]
    if name == "credentials-file":
        pair[at] = pair[at].replace(f"{scheme}://./", "gs://").replace("s3://", "gs://")
    head, _, query = pair[at].partition("?")
    others = [word for word in query.split("&") if not word.startswith(f"{name}=")]
    more = [f"{name}={quote(value, safe='')}", *([f"{TOGETHER[name]}=in/x"] if name in TOGETHER else [])]
    pair[at] = f"{head}?{'&'.join([*filter(None, others), *more])}"
    return Wish(*pair)


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_parameter_says_what_it_names(entry: str) -> None:
    """Of each parameter of each scheme that takes a text it is known whether it names files, and one that does is
    tested below; a parameter that is new is missing here until it says so."""

    def unknown(name: str, param: Option) -> bool:
        takes_text = param.kind in {"text", "secret"} and not param.choices
        return takes_text and param.field not in {None, "refused"} and param.local is Local.NOTHING

    assert {name for name, param in ENTRIES[entry].params.items() if unknown(name, param)} - NO_FILES == set()
    assert not {name for name, param in ENTRIES[entry].params.items() if param.local is not Local.NOTHING} & NO_FILES
    assert entry in PAIRS or not [one for one, _ in LOCAL if one == entry]
    spoken = {name for name, param in ENTRIES[entry].params.items() if name.endswith("-file")}
    assert {name for name in spoken if ENTRIES[entry].params[name].local is not Local.TOKEN} == set()


@pytest.mark.parametrize(("entry", "name"), LOCAL)
def test_files_of_parameters(entry: str, name: str) -> None:
    """A path of a parameter is admitted below the roots alone, and refused with the flag's name before anybody has
    looked whether it is there."""
    open_ = reach(security={"token-hosts": ["h", "a:8", "b"]})
    for path in ("/etc/passwd", "../x", "in/../../x", "data/token", "data/server.db"):
        with pytest.raises(UriInvalid, match=rf"{name}.*--allow-path") as told:
            open_.admitted(with_param(entry, name, path))
        assert told.value.code == "CDC:ErrSinkURIInvalid"
    assert open_.admitted(with_param(entry, name, "in/x"))
    assert reach(allow_path=["/"], security={"token-hosts": ["h", "a:8", "b"]}).admitted(
        with_param(entry, name, "/etc/passwd")
    )


@pytest.mark.parametrize(
    "key",
    [
        *(f"sink.kafka-config.{name}" for name in ("ca", "cert", "key")),
        "sink.kafka-config.large-message-handle.claim-check-storage-uri",
        *(f"sink.mysql-config.ssl-{name}" for name in ("ca", "cert", "key")),
        *(f"source.{name}" for name in ("ca", "cert", "key", "claim-check-storage-uri")),
        *(f"sink.webhook-config.{name}" for name in ("secret-file", "token-file", "ssl-ca")),
        *(f"sink.metrics-config.{name}" for name in ("otlp-token-file", "alert-token-file", "ssl-ca")),
        *("sink.delta-config.catalog-token-file", "source.credentials-file"),
    ],
)
def test_files_of_keys(key: str) -> None:
    """The same in the keys of a changefeed's file, which the API takes as replica_config."""
    assert key in KEYS
    schemes = {"kafka-config": KAFKA, "mysql-config": "mysql+ssl://h/", "webhook-config": "https://h/",
               "metrics-config": "metrics://", "delta-config": "delta://./lake"}  # fmt: skip
    first, section, *_ = key.split(".")
    source = "gs://b/p?protocol=csv" if key.endswith("credentials-file") else KAFKA if first == "source" else LOG
    sink = schemes.get(section, "delta://./lake")
    tree: dict[str, Any] = {}
    place = tree
    *outer, last = key.split(".")
    for word in outer:
        place = place.setdefault(word, {})
    place[last] = "/etc/passwd"
    if last in TOGETHER:
        place[TOGETHER[last]] = "in/x"
    with pytest.raises(UriInvalid, match="--allow-path"):
        reach().admitted(Wish(source, sink, tree))


@pytest.mark.parametrize("ticdc", ["/etc/passwd", "https://cdc/api/v2/changefeeds/f?ca=/etc/passwd"])
def test_files_of_the_changefeed_upstream(ticdc: str) -> None:
    """It is not opened for a client."""
    tree = {"source": {"load-from": "mysql://h/", "ticdc": ticdc}}
    with pytest.raises(UriInvalid, match="--allow-path"):
        reach().admitted(Wish(KAFKA, "delta://./lake", tree))


@pytest.mark.parametrize(
    "uri",
    [
        *("tidb:///etc", "tidb://../etc", "changelog:///etc", "changelog://../x", "file:///etc?protocol=csv"),
        *("delta:///etc/lake", "iceberg:///etc/lake", "delta+file:///etc/lake", "delta://./in/../../lake"),
        *("search+tantivy:///etc/x", "file:///etc/out?protocol=csv", "delta://./data/server.db", "DELTA:///etc/lake"),
        f"{KAFKA}&claim-check-storage-uri=file:/etc",
        f"{KAFKA}&claim-check-storage-uri=file%3A%2F%2F%2Fetc",
        f"{KAFKA}&claim-check-storage-uri=file:%252Fetc",
        f"{KAFKA}&claim-check-storage-uri=local:///etc",
        f"{KAFKA}&claim-check-storage-uri=..%252F..%252Fetc",
        *(f"{KAFKA}&large-message-upstream-uri=" + quote(f"mysql://h/?{files}", safe="")
          for files in ("ssl-ca=/etc/x", "ssl-cert=/etc/x&ssl-key=in/x", "ssl-cert=in/x&ssl-key=/etc/x")),
    ],
)  # fmt: skip
def test_places(uri: str) -> None:
    """Directories of addresses are admitted below the roots alone, whatever the way in which they are written; whether
    they are there is not told."""
    scheme = uri.partition("://")[0].lower()
    wishes = [Wish(source=uri, sink="delta://./lake")] if scheme in {"tidb", "changelog", "file", "kafka"} else []
    wishes += [Wish(sink=uri)] if scheme not in {"tidb", "changelog", "kafka"} else []
    for wish in wishes:
        with pytest.raises(UriInvalid, match="--allow-path"):
            reach().admitted(wish)


@pytest.mark.parametrize("scheme", ENTRIES)
def test_no_address_of_a_directory_is_forgotten(scheme: str) -> None:
    """An entry whose example has a path of this machine names it, so that a new scheme cannot be forgotten."""
    entry, heard = ENTRIES[scheme], set[LocalName]()
    with reporting_names(heard.add):
        entry.parse(entry.example, document_of({}))
    local = entry.example.partition("://")[2][:1] in {"/", "."}
    assert bool(heard) is local


def test_links_are_followed(home: Path) -> None:
    """A link below a root that leads out of it is no way out, and one that leads in is one in."""
    (home / "out").symlink_to("/etc")
    (home / "roots").mkdir()
    (home / "in").symlink_to(home / "roots")
    (home / "circle").symlink_to(home / "circle")
    for sink in ("delta://./out", "delta://./out/lake", "delta://./circle/x", "http://h/?ssl-ca=out/passwd"):
        with pytest.raises(UriInvalid, match="--allow-path"):
            reach().admitted(Wish(sink=sink))
    assert reach(allow_path=["in"]).admitted(Wish(f"tidb://{home}/roots", "delta://./roots/lake"))


def test_the_default_roots(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients may name files of the data directory and of the one in which the server was started, and of no other; a
    service that is started in the root of all files means its data directory alone."""
    named = reach(data_dir="/srv/tide").admitted
    assert named(Wish(sink="delta:///srv/tide/lakes/x"))
    assert named(Wish(sink=f"delta://{home}/lake"))
    with pytest.raises(UriInvalid, match=rf"below /srv/tide, {home}, but.*--allow-path"):
        named(Wish(sink="delta:///srv/lake"))
    monkeypatch.chdir("/")
    with pytest.raises(UriInvalid, match=r"below /srv/tide, but"):
        reach(data_dir="/srv/tide").admitted(Wish(f"tidb://{home}/log", "delta:///srv/lake"))
    with pytest.raises(UriInvalid, match="below no directory"):
        reach(data_dir="s3://b/p").admitted(Wish(f"tidb://{home}/log", "delta:///srv/lake"))


def test_files_of_the_server_itself(home: Path) -> None:
    """The server's store, token, users and key are named by no client, wherever they lie."""
    security = {"users-file": "users", "token-file": "tok", "cert-path": "crt", "key-path": "key"}
    rules = reach(security=security)
    for name in ("users", "tok", "key", "data/server.db", "data/server.db-wal", "data/token"):
        with pytest.raises(UriInvalid, match="--allow-path"):
            rules.admitted(Wish(sink=f"https://h/?ssl-ca={name}"))
    assert rules.admitted(Wish(sink=f"https://h/?ssl-ca={home}/ca"))


def test_the_servers_own_source(home: Path) -> None:
    """The upstream that the server was started with may be named by clients; nothing else beside it."""
    (home / "far").mkdir()
    rules = reach(allow_path=["in"], source_uri=f"tidb://{home}/far")
    assert rules.admitted(Wish(f"tidb://{home}/far"))
    with pytest.raises(UriInvalid, match="--allow-path"):
        rules.admitted(Wish(f"tidb://{home}/log"))


SENT: Final = {
    "http": ("http://h/x?token-file=in/t", "h:80"),
    "signed": ("https://h/x?secret-file=in/t", "h:443"),
    "port": ("https://h:8443/x?token-file=in/t", "h:8443"),
    "otlp": ("metrics://?otlp-endpoint=http://h:1/v1&otlp-token-file=in/t&alert-url=http://other/", "h:1"),
    "alert": ("metrics://?alert-url=https://h/&alert-token-file=in/t", "h:443"),
    "alert signed": ("metrics://?alert-url=https://h/&alert-secret-file=in/t", "h:443"),
    "catalog": ("delta://./l?catalog=https://h/c&catalog-token-file=in/t", "h:443"),
    "search": ("opensearch://h:9200,other/?api-key-file=in/t", "h:9200"),
    "gs": ("gs://b/p?protocol=csv&endpoint=https://h&credentials-file=in/t", "h:443"),
    "s3": ("s3://b/p?protocol=csv&endpoint=http://h:9000", "h:9000"),
    "azure": ("azblob://b/p?protocol=csv&endpoint=https://h", "h:443"),
    "claims": (f"{KAFKA}&claim-check-storage-uri=" + quote("s3://b?endpoint=http://h:9000", safe=""), "h:9000"),
}


@pytest.mark.parametrize("mode", ["initial", "only"])
def test_files_of_a_load(mode: str) -> None:
    """A directory of Dumpling is admitted below the roots, and a store of which the client names the server gets no
    requests signed with the server's keys."""
    for uri, words in (
        ("file:///etc", "--allow-path"),
        ("file://../x", "--allow-path"),
        ("s3://b/p?endpoint=http://h:9000", "token-hosts"),
    ):
        tree = {"source": {"load": mode, "load-from": uri}}
        with pytest.raises(UriInvalid, match=words):
            reach().admitted(Wish(uri if mode == "only" else LOG, "delta://./lake", tree))
        known = reach(allow_path=["/"], security={"token-hosts": ["h"]})
        assert known.admitted(Wish(uri if mode == "only" else LOG, "delta://./lake", tree))


@pytest.mark.parametrize("what", SENT)
def test_tokens_go_to_known_hosts(what: str) -> None:
    """What a file or the environment of the server holds is sent only where the server's file says: a client names the
    file and the address."""
    uri, host = SENT[what]
    wish = Wish(sink=uri)
    for hosts in ((), ("other",), (host.partition(":")[0] + ":7",)):
        with pytest.raises(UriInvalid, match="token-hosts"):
            reach(security={"token-hosts": hosts}).admitted(wish)
    for known in (host, host.partition(":")[0].upper()):
        assert reach(security={"token-hosts": (known, "other")}).admitted(wish)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://H.example/x", "h.example:443"),
        ("http://[::1]:8080/x", "::1:8080"),
        ("http://[::1]/x", "::1:80"),
        ("h:9000", "h:9000"),
        *(
            (url, url)
            for url in ("http://evil\\@h/", "http://evil\\.h/", "http://u@h/", "http://h:x/", "http://[h/", "http://")
        ),
        *((url, url) for url in ("http://\uff48/", "http://h%2e/", "http://h:99999999/")),
    ],
)
def test_hosts_that_can_be_read_in_two_ways(url: str, host: str) -> None:
    """A host is compared as it is written plainly; one of which another parser could make another host is no host that
    a file allows."""
    assert host_of(url) == host


def test_every_token_has_its_hosts() -> None:
    """Each parameter with a token tells where it goes, so that a new one cannot be forgotten."""
    for entry, name in LOCAL:
        if ENTRIES[entry].params[name].local is Local.TOKEN:
            wish = with_param(entry, name, "in/t")
            target, more = ("source", "&endpoint=http://h") if entry == "source file" else ("sink", "")
            more = "&endpoint=http://h" if name == "credentials-file" else more
            more = "&catalog=http://h/c" if name == "catalog-token-file" else more
            setattr(wish, target, f"{getattr(wish, target)}{more}")
            config = wish()
            source, sink = entries_of(config)
            assert source.tokens_go_to(config.source) | sink.tokens_go_to(config.sink), (entry, name)


@pytest.mark.parametrize(
    "sink",
    [
        "https://h/x",
        "metrics://?otlp-endpoint=http://h/v1",
        "delta://./l?catalog=https://h/c",
        "s3://b/p?protocol=csv&endpoint=http://h:9000&access-key=a&secret-access-key=b",
        "azure://b/p?protocol=csv&endpoint=http://h:9000&account-key=b",
        "s3://b/p?protocol=csv",
        "opensearch://ann:pass@h/",
    ],
)
def test_what_a_client_brings_itself(sink: str) -> None:
    """Without a token of the server, or with keys that the client sends, an address may be any."""
    assert reach().admitted(Wish(sink=sink))


def test_the_catalogs_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """TIDEGATE_CATALOG_TOKEN goes to no catalog that a client alone names."""
    monkeypatch.setenv("TIDEGATE_CATALOG_TOKEN", "t")
    with pytest.raises(UriInvalid, match="h:443 may not get a token"):
        reach().admitted(Wish(sink="delta://./l?catalog=https://h/c"))


@pytest.mark.parametrize(
    ("variable", "store"),
    [
        ("AWS_SESSION_TOKEN", "s3://b/p?access-key=a&secret-access-key=b"),
        ("AWS_TOKEN", "s3://b/p?access-key=a&secret-access-key=b"),
        ("AZURE_STORAGE_TOKEN", "azure://b/p?account-name=a&account-key=b"),
        *((name, "azure://b/p?account-name=a&sas-token=b") for name in (*OVER_SIGNATURES, "AZURE_STORAGE_TOKEN")),
    ],
)
def test_tokens_that_are_added_to_keys(monkeypatch: pytest.MonkeyPatch, variable: str, store: str) -> None:
    """What a store's client takes from the environment beside keys that are given, or in their place, goes to no server
    that a client alone names."""
    sink = f"{store}&protocol=csv&endpoint=http://h:9000"
    assert reach().admitted(Wish(sink=sink))
    monkeypatch.setenv(variable, "t")
    with pytest.raises(UriInvalid, match="h:9000 may not get a token"):
        reach().admitted(Wish(sink=sink))


def test_a_changefeed_keeps_what_it_named() -> None:
    """A change of a changefeed that is there may leave what it names, and bring nothing new from outside."""
    before = Wish(sink="https://h/?token-file=/etc/x")
    same = Wish(sink="https://h/?token-file=/etc/x&batch-size=5")
    assert reach().admitted(same, before)
    for other in ("https://h/?token-file=/etc/y", "https://g/?token-file=/etc/x", "https://h/?ssl-ca=/etc/z"):
        with pytest.raises(UriInvalid, match=r"--allow-path|token-hosts"):
            reach().admitted(Wish(sink=other), before)
    untold = Wish(sink="https://h/")
    with pytest.raises(UriInvalid, match="token-hosts"):
        reach().admitted(Wish(sink="https://h/?token-file=in/x"), untold)


def test_feeds_that_are_there(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Changefeeds that were made under wider rules go on, are named once in the log at the start, and can be changed,
    while new ones like them are refused."""
    wide = tmp(home, "wide")
    place = ServerHome(home / "place")
    server = place.server(allow_path=["/"])
    until(lambda: server.changefeeds.is_owner)
    server.changefeeds.create(NewFeed(FeedId("default", "old"), f"file://{wide}/out?protocol=csv", start_ts=1), "")
    server.changefeeds.create(place.wish("fine"), "")
    server.stop()
    caplog.set_level(logging.WARNING)
    server = place.server(allow_path=[str(place.home)])
    try:
        until(lambda: server.changefeeds.is_owner)
        told = caplog_of(caplog)
        until(told)
        assert [text.partition("): ")[2] for text in told()] == [f"default/old (sink-uri {wide}/out)"]
        assert server.changefeeds.get(FeedId("default", "old")).state in {"normal", ""}
        with pytest.raises(UriInvalid, match="--allow-path"):
            server.changefeeds.create(NewFeed(FeedId("default", "new"), f"file://{wide}/new?protocol=csv"), "")
        with pytest.raises(UriInvalid, match="--allow-path"):
            server.changefeeds.verify(NewFeed(FeedId("default", "new"), place.sink("x"), source_uri=f"tidb://{wide}"))
        server.changefeeds.pause(FeedId("default", "old"), "")
        changed = FeedChange(sink_uri=f"file://{wide}/out?protocol=csv&file-size=2048")
        assert "file-size" in server.changefeeds.update(FeedId("default", "old"), changed, "").record.sink_uri
        changed = FeedChange(sink_uri=f"file://{wide}/other?protocol=csv")
        with pytest.raises(UriInvalid, match="--allow-path"):
            server.changefeeds.update(FeedId("default", "old"), changed, "")
    finally:
        server.stop()


def tmp(home: Path, name: str) -> Path:
    """A directory beside those that a server's clients may name."""
    made = home / name
    made.mkdir()
    return made


def caplog_of(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was logged of files that clients may not name."""
    return lambda: [one.getMessage() for one in caplog.records if "--allow-path" in one.getMessage()]
