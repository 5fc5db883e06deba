"""A changefeed file is read whole: every key known, typed and, where it matters, acted on."""

import pickle
import re

import pytest

from tidegate.config.delta import delta_options
from tidegate.config.load import KEYS, KINDS, load
from tidegate.model.errors import ChangefeedIdInvalid, ConfigError, FilterRuleInvalid, UriInvalid

SOURCE = "kafka://h:9092/shop?protocol=open-protocol"
SINK = "delta:///srv/lake"


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
column-mapping = "never"
[sink.kafka-config.codec-config]
enable-tidb-extension = true
"""


def test_file(write):
    """Keys of the file land in the changefeed; a URI's parameter wins over the key of the same name."""
    feed = load(write(FULL))
    assert (feed.name, feed.rules, feed.case_sensitive) == ("shop-feed", ("shop.*", "!shop.tmp_*"), True)
    assert (feed.source.dead_letter, feed.source.max_retry, feed.time_zone) == ("skip", 7, "Asia/Tokyo")
    assert (feed.sink.worker_count, feed.sink.schema_change) == (3, "lenient")
    assert delta_options(feed).column_mapping == "never"
    assert feed.table_filter().matches("shop", "a")
    assert not feed.table_filter().matches("shop", "tmp_1")
    assert not feed.table_filter().matches("SHOP", "a")


def test_keys_without_effect_are_told(write):
    """Keys that only a writer of the topic needs are accepted and listed in one warning."""
    (warning,) = load(write(FULL)).warnings
    for path in (
        "sink.dispatchers[].partition",
        "sink.kafka-config.codec-config.enable-tidb-extension",
    ):
        assert path in warning
    assert "dead-letter" not in warning


def test_command_line_wins(write):
    """What the command line says replaces what the file says."""
    feed = load(write(FULL), name="other", source_uri=SOURCE, sink_uri="delta:///y", rules=["a.*"], workers=2)
    assert (feed.name, feed.source.protocol, feed.sink.root) == ("other", "open-protocol", "/y")
    assert (feed.rules, feed.sink.worker_count, feed.source.dead_letter) == (("a.*",), 2, "skip")


def test_uris_alone():
    """Two URIs make a changefeed of all tables, with a name that the same two always get."""
    feed = load(source_uri=SOURCE, sink_uri=SINK)
    assert feed.rules == ("*.*",)
    assert feed.time_zone == "UTC"
    assert feed.warnings == ()
    assert re.fullmatch(r"shop-[0-9a-f]{8}", feed.name)
    assert feed.name == load(source_uri=SOURCE.replace("h:9092", "elsewhere"), sink_uri=SINK + "?worker-count=2").name
    assert feed.name != load(source_uri=SOURCE, sink_uri=SINK + "2").name


@pytest.mark.parametrize(
    ("login", "words"),
    [
        ("&sasl-user=u&sasl-password=hush", "h:9092: the password of sasl-user is sent to the broker in clear"),
        ("&sasl-user=u&sasl-password=hush&sasl-mechanism=SCRAM-SHA-512", ""),
        ("&sasl-user=u&sasl-password=hush&enable-tls=true", ""),
        ("&enable-tls=true&insecure-skip-verify=true", "h:9092: insecure-skip-verify accepts any server"),
    ],
)
def test_connections_that_others_may_read(login, words, tmp_path):
    """A password in clear, and TLS with whoever answers, work as with TiCDC, and are told, of either end."""
    source = load(source_uri=SOURCE + login, sink_uri=SINK)
    sink = load(source_uri=f"tidb://{tmp_path}", sink_uri=SOURCE + login, state_dir="state")
    for feed in (source, sink):
        assert [warning.startswith(words) for warning in feed.warnings] == [True] * bool(words)
        assert "hush" not in str(feed.warnings)


BERLIN = "time-zone=Europe/Berlin"


@pytest.mark.parametrize(
    ("source", "sink", "told"),
    [
        (f"{SOURCE}&{BERLIN}", SINK, True),
        (SOURCE, f"{SINK}?{BERLIN}", True),
        (f"{SOURCE}&{BERLIN}", f"{SINK}?{BERLIN}", True),
        ("file:///in?protocol=canal-json&enable-tidb-extension=true&" + BERLIN, SINK, True),
        ("tidb:///log", f"{SOURCE}&{BERLIN}", True),
        ("tidb:///log", f"file:///out?protocol=csv&{BERLIN}", True),
        (f"{SOURCE}&time-zone=Asia/Tokyo", SINK, False),
        (f"{SOURCE}&time-zone=UTC", SINK, False),
    ],
)
def test_a_zone_in_which_an_hour_comes_twice(source, sink, told, tmp_path):
    """Whoever writes TIMESTAMPs as texts of such a zone, or reads them, is told once, with the way out."""
    source = source.replace("tidb:///log", f"tidb://{tmp_path}")
    found = [one for one in load(source_uri=source, sink_uri=sink, state_dir="state").warnings if "time-zone=" in one]

    assert len(found) == told
    assert all("time-zone=Europe/Berlin" in one and "2037-10-25" in one and "--tz=UTC" in one for one in found)


def test_feed_is_a_value_without_passwords():
    """A changefeed pickles, and neither its repr nor its URIs show a password."""
    feed = load(source_uri=SOURCE + "&sasl-user=u&sasl-password=hush", sink_uri=SINK)
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
        ("[source]\ndead-letter = 'drop'", "source.dead-letter: 'drop' is not one of halt, skip"),
        ("[source]\nsasl-password = 12345", "source.sasl-password: expected a text, found a value of another type"),
        ("[sink.delta-config]\nworker-count = 0", "sink.delta-config.worker-count: 0 is not between 1"),
        ("changefeed-id = 'a--b'", "changefeed-id 'a--b'"),
        ("[source]\ntime-zone = 'Asia/Tokyo'\n[sink.delta-config]\ntime-zone = 'UTC'", "set it only once"),
        ("x = ", "is not TOML"),
    ],
)
def test_wrong_files(write, text, words):
    """A wrong key, type or value is named by its full path, with the nearest right key."""
    with pytest.raises(ConfigError) as caught:
        load(write(text), source_uri=SOURCE, sink_uri=SINK)
    assert words in str(caught.value)
    assert "12345" not in str(caught.value)


def test_errors_keep_their_codes(write):
    """Errors of a changefeed have TiCDC's codes."""
    for build, error, code in (
        (lambda: load(source_uri=SOURCE, sink_uri=SINK, rules=["a"]), FilterRuleInvalid, "CDC:ErrFilterRuleInvalid"),
        (lambda: load(source_uri=SOURCE, sink_uri=SINK, name="a_b"), ChangefeedIdInvalid, "CDC:ErrInvalidChangefeedID"),
        (lambda: load(source_uri=SOURCE, sink_uri=""), UriInvalid, "CDC:ErrSinkURIInvalid"),
        (lambda: load(write("")), UriInvalid, "CDC:ErrSinkURIInvalid"),
        (lambda: load(source_uri=SOURCE, sink_uri=SINK, workers=0), ConfigError, "CDC:ErrInvalidReplicaConfig"),
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
            load(path)
        assert words in str(caught.value)
        assert str(path) in str(caught.value)


def test_order_by_offset_warns():
    """The degraded order without watermarks is allowed when asked for, and said aloud."""
    feed = load(source_uri="kafka://h/t?protocol=canal-json&order=offset", sink_uri=SINK)
    assert any("order=offset" in warning for warning in feed.warnings)


def test_kinds_are_known():
    """Every key has a kind that the reader knows."""
    assert {key.kind for key in KEYS.values()} <= set(KINDS)
