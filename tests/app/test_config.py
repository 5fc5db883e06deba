"""A changefeed file is read whole: every key known, typed and, where it matters, acted on."""

import pickle
import re
from pathlib import Path

import pytest

from tidegate.app import config
from tidegate.app.keys import KEYS
from tidegate.app.params import DELTA_SINK, KAFKA_SOURCE
from tidegate.model.errors import ChangefeedIdInvalid, ConfigError, FilterRuleInvalid, UriInvalid

SOURCE = "kafka://h:9092/shop?protocol=open-protocol"
SINK = "delta:///srv/lake"
DOC = Path(__file__).parents[2] / "docs" / "configuration.md"


@pytest.fixture
def write(tmp_path):
    """Write a TOML text and return its path."""

    def put(text):
        path = tmp_path / "feed.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return put


FULL = """
changefeed-id = "shop-feed"
case-sensitive = true
memory-quota = 1073741824
sink-uri = "delta:///srv/lake?schema-change=lenient"

[source]
uri = "kafka://h:9092/shop?protocol=canal-json&enable-tidb-extension=true"
dead-letter = "skip"
max-retry = 7
time-zone = "Asia/Tokyo"

[filter]
rules = ["shop.*", "!shop.tmp_*"]
[[filter.event-filters]]
matcher = ["shop.a"]
ignore-event = ["insert"]

[sink]
dispatchers = [{matcher = ["*.*"], partition = "table"}]
[sink.delta-config]
worker-count = 3
schema-change = "ignore"
[sink.kafka-config.codec-config]
enable-tidb-extension = true
"""


def test_file(write):
    """Keys of the file land in the changefeed; a URI's parameter wins over the key of the same name."""
    feed = config.load(write(FULL))
    assert (feed.name, feed.rules, feed.case_sensitive) == ("shop-feed", ("shop.*", "!shop.tmp_*"), True)
    assert (feed.source.dead_letter, feed.source.max_retry, feed.time_zone) == ("skip", 7, "Asia/Tokyo")
    assert (feed.sink.worker_count, feed.sink.schema_change) == (3, "lenient")
    assert feed.table_filter().matches("shop", "a")
    assert not feed.table_filter().matches("shop", "tmp_1")
    assert not feed.table_filter().matches("SHOP", "a")


def test_keys_without_effect_are_told(write):
    """Keys that only a writer of the topic needs are accepted and listed in one warning."""
    (warning,) = config.load(write(FULL)).warnings
    for path in (
        "memory-quota",
        "sink.dispatchers[].partition",
        "sink.kafka-config.codec-config.enable-tidb-extension",
    ):
        assert path in warning
    assert "dead-letter" not in warning


def test_command_line_wins(write):
    """What the command line says replaces what the file says."""
    feed = config.load(write(FULL), name="other", source_uri=SOURCE, sink_uri="delta:///y", rules=["a.*"], workers=2)
    assert (feed.name, feed.source.protocol, feed.sink.path) == ("other", "open-protocol", "/y")
    assert (feed.rules, feed.sink.worker_count, feed.source.dead_letter) == (("a.*",), 2, "skip")


def test_uris_alone():
    """Two URIs make a changefeed of all tables, with a name that the same two always get."""
    feed = config.from_uris(SOURCE, SINK)
    assert feed.rules == ("*.*",)
    assert feed.time_zone == "UTC"
    assert feed.warnings == ()
    assert re.fullmatch(r"shop-[0-9a-f]{8}", feed.name)
    assert feed.name == config.from_uris(SOURCE.replace("h:9092", "elsewhere"), SINK + "?worker-count=2").name
    assert feed.name != config.from_uris(SOURCE, SINK + "2").name


def test_feed_is_a_value_without_passwords():
    """A changefeed pickles, and neither its repr nor its URIs show a password."""
    feed = config.from_uris(SOURCE + "&sasl-user=u&sasl-password=hush", SINK)
    assert pickle.loads(pickle.dumps(feed)) == feed
    assert "hush" not in repr(feed)
    assert feed.source_uri.endswith("sasl-password=xxxxx")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("memory_quota = 1", 'unknown key memory_quota; did you mean "memory-quota"?'),
        ("rules = ['*.*']", 'unknown key rules; did you mean "filter.rules"?'),
        ("dead-letter = 'skip'", 'did you mean "source.dead-letter"?'),
        ("[filter]\nrule = ['*.*']", 'unknown key filter.rule; did you mean "filter.rules"?'),
        ("[sinks]\nprotocol = 'x'", 'unknown key sinks; did you mean "sink"?'),
        ("[sink.kafka-config]\nmax-mesage-bytes = 1", 'did you mean "sink.kafka-config.max-message-bytes"?'),
        ("[[filter.event-filters]]\nmatchers = ['x.y']", 'did you mean "filter.event-filters[].matcher"?'),
        ("[filter]\nevent-filter = []", 'did you mean "filter.event-filters"?'),
        ("zzz = 1", "unknown key zzz"),
        ("case-sensitive = 'true'", "case-sensitive: expected true or false, found a string"),
        ("[filter]\nrules = '*.*'", "filter.rules: expected a list of strings, found a string"),
        ("[filter]\nrules = [1]", "filter.rules: expected a list of strings, found a list"),
        ("memory-quota = true", "memory-quota: expected a whole number, found true"),
        ("filter = 1", "filter: expected a table [filter], found the number 1"),
        ("[filter]\nevent-filters = [1]", "expected a list of tables [[filter.event-filters]]"),
        ("sink-uri = 2026-01-01", "sink-uri: expected a string, found a date"),
        ("[source]\nmax-retry = 'x'", "source.max-retry: expected a whole number, found 'x'"),
        ("[source]\nmax-retry = 1.5", "source.max-retry: expected a single value, found the number 1.5"),
        ("[source]\ndead-letter = 'drop'", "source.dead-letter: 'drop' is none of halt, skip"),
        ("[source]\nsasl-password = 12345", "source.sasl-password: expected a text, found a value of another type"),
        ("[sink.delta-config]\nworker-count = 0", "sink.delta-config.worker-count: 0 is not between 1"),
        ("changefeed-id = 'a--b'", "changefeed-id 'a--b'"),
        ("[source]\ntime-zone = 'Asia/Tokyo'\n[sink.delta-config]\ntime-zone = 'UTC'", "give it once"),
        ("x = ", "is not TOML"),
    ],
)
def test_wrong_files(write, text, words):
    """A wrong key, type or value is named by its full path, with the nearest right key."""
    with pytest.raises(ConfigError) as caught:
        config.load(write(text), source_uri=SOURCE, sink_uri=SINK)
    assert words in str(caught.value)
    assert "12345" not in str(caught.value)


def test_errors_keep_their_codes(write):
    """Errors of a changefeed have TiCDC's codes."""
    for build, error, code in (
        (lambda: config.from_uris(SOURCE, SINK, rules=["a"]), FilterRuleInvalid, "CDC:ErrFilterRuleInvalid"),
        (lambda: config.from_uris(SOURCE, SINK, name="a_b"), ChangefeedIdInvalid, "CDC:ErrInvalidChangefeedID"),
        (lambda: config.from_uris(SOURCE, ""), UriInvalid, "CDC:ErrSinkURIInvalid"),
        (lambda: config.load(write("")), UriInvalid, "CDC:ErrSinkURIInvalid"),
        (lambda: config.from_uris(SOURCE, SINK, workers=0), ConfigError, "CDC:ErrInvalidReplicaConfig"),
    ):
        with pytest.raises(error) as caught:
            build()
        assert caught.value.code == code


def test_unreadable_files(tmp_path):
    """A file that is not there, not text or a directory is named."""
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"a = '\xff'")
    for path, words in ((tmp_path / "none.toml", "no configuration"), (binary, "UTF-8"), (tmp_path, "cannot read")):
        with pytest.raises(ConfigError) as caught:
            config.load(path)
        assert words in str(caught.value)
        assert str(path) in str(caught.value)


def test_order_by_offset_warns():
    """The degraded order without watermarks is allowed when asked for, and said aloud."""
    feed = config.from_uris("kafka://h/t?protocol=canal-json&order=offset", SINK)
    assert any("order=offset" in warning for warning in feed.warnings)


def test_kinds_are_known():
    """Every key has a kind that the reader knows."""
    assert {key.kind for key in KEYS.values()} <= set(config.KINDS)


def rows(title):
    """The table under a heading of the documentation: {first cell: other cells}."""
    section = DOC.read_text(encoding="utf-8").split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line[:2] == "| "
    ]
    return {row[0].strip("`"): row[1:] for row in cells[1:] if not set(row[0]) <= {"-"}}


@pytest.mark.parametrize(("title", "params"), [("Source parameters", KAFKA_SOURCE), ("Sink parameters", DELTA_SINK)])
def test_documented_parameters(title, params):
    """The documentation lists every parameter that acts, with its default and its words, and no other."""
    documented = rows(title)
    assert list(documented) == [name for name, param in params.items() if param.field]
    for name, (default, about) in documented.items():
        assert default.strip("`") == params[name].default
        assert about == params[name].about


def test_documented_keys():
    """The documentation lists every key, apart by whether it acts."""
    acting = rows("Keys that act")
    idle = rows("Keys accepted without effect")
    plain = {path: key for path, key in KEYS.items() if key.kind != "param"}
    assert list(acting) == [path for path, key in plain.items() if key.acts]
    assert list(idle) == [path for path, key in plain.items() if not key.acts]
    assert all(cells[-1] == plain[path].about for path, cells in {**acting, **idle}.items())
    ignored = rows("Parameters accepted without effect")
    assert list(ignored) == [name for name, param in KAFKA_SOURCE.items() if param.field is None]
