"""A changefeed file says how a feed begins with the rows that are there; what does not go together is refused."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tidegate.config.full_load import DatabaseRows, parse_load
from tidegate.config.load import load
from tidegate.model.errors import ConfigError, FilterRuleInvalid, TidegateError, UriInvalid
from tidegate.server.replica_config import masked

TOPIC = "kafka://h:9092/t?protocol=open-protocol"
FROM = "mysql://u:zebra@db:4000/"
LAKE = "delta:///srv/lake"
HERE = "mysql://v:zebra@db:4000/"
LOG = Path(__file__).parent


def written(tmp_path: Path, source: Mapping[str, object]) -> Path:
    """A changefeed file with this [source]."""
    path = tmp_path / "feed.toml"
    rows = "\n".join(f"{name} = {json.dumps(value)}" for name, value in source.items())
    path.write_text(f'sink-uri = "{LAKE}"\n[source]\n{rows}\n')
    return path


def test_a_file_says_what_options_say(tmp_path: Path) -> None:
    """load, load-from and load-ts under [source]; options override them."""
    path = written(tmp_path, {"uri": TOPIC, "load-from": f"{FROM}?chunk-rows=5", "load-ts": 7})
    in_file, given = load(path).load, load(path, load_from=f"{FROM}?chunk-rows=6", load_ts=8).load

    assert in_file is not None
    assert given is not None
    assert (in_file.mode, in_file.ts, in_file.options.chunk_rows) == ("initial", 7, 5)
    assert (given.mode, given.ts, given.options.chunk_rows) == ("initial", 8, 6)
    later = load(path, load_mode="never").load
    assert later is not None
    assert (later.mode, later.begins, later.options.chunk_rows) == ("never", False, 5)
    assert load(source_uri=TOPIC, sink_uri=LAKE).load is None


def test_rows_alone_need_no_source(tmp_path: Path) -> None:
    """`only` reads the database, whatever says it."""
    by_file = load(written(tmp_path, {"load": "only", "load-from": FROM}))
    by_options = load(load_mode="only", load_from=FROM, sink_uri=LAKE)
    at = load(load_mode="only", load_from=FROM, load_ts=7, sink_uri=LAKE)

    assert isinstance(at.source, DatabaseRows)
    assert at.source.load.ts == 7
    assert by_file.source == by_options.source
    assert by_file.source_uri == "mysql://u:xxxxx@db:4000/"


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"source_uri": TOPIC, "load_mode": "all"}, ConfigError, "initial, never, only"),
        ({"source_uri": TOPIC, "load_mode": "initial"}, ConfigError, "give load-from"),
        ({"load_mode": "only"}, ConfigError, "give load-from"),
        ({"source_uri": TOPIC, "load_mode": "done", "load_from": FROM}, ConfigError, "give load-ts"),
        ({"source_uri": TOPIC, "load_mode": "done", "load_ts": 7}, ConfigError, "load = initial does"),
        ({"source_uri": TOPIC, "load_mode": "only", "load_from": FROM}, ConfigError, "takes no source"),
        ({"source_uri": f"{TOPIC}&order=offset", "load_from": FROM}, ConfigError, "order=offset changes have no"),
        ({"source_uri": f"tidb://{LOG}", "load_from": FROM, "start_ts": 5}, ConfigError, "start-ts does not go"),
        ({"source_uri": FROM, "load_from": FROM}, ConfigError, "no changes to follow"),
        ({"source_uri": FROM, "load_mode": "done", "load_ts": 7, "sink_uri": HERE}, ConfigError, "no changes"),
        ({"source_uri": TOPIC, "load_from": FROM, "sink_uri": HERE}, ConfigError, "load-from: db:4000 is also"),
        ({"load_mode": "only", "load_from": FROM, "sink_uri": HERE}, UriInvalid, "db:4000 is also the source"),
        ({"source_uri": TOPIC, "load_ts": 7}, ConfigError, "give load-from"),
        ({"source_uri": TOPIC, "load_from": FROM, "load_ts": 0}, ConfigError, "load-ts is 0"),
        ({"source_uri": TOPIC, "load_from": FROM, "load_ts": -4}, ConfigError, "load-ts is -4"),
        ({"source_uri": TOPIC, "load_from": FROM, "load_ts": 2**63}, ConfigError, "load-ts is 9223372036854775808"),
        ({"source_uri": TOPIC, "load_from": "http://u:zebra@db/"}, UriInvalid, "mysql://USER"),
        ({"source_uri": TOPIC, "load_from": "mysql://u:zebra@/"}, UriInvalid, "mysql://USER"),
        ({"source_uri": TOPIC, "load_from": "mysql://u:zeb#ra@db/"}, UriInvalid, "load-from"),
        ({"source_uri": TOPIC, "load_from": f"{FROM}?chunk-row=5"}, UriInvalid, "chunk-row"),
        ({"source_uri": TOPIC, "load_from": f"{FROM}?chunk-rows=many"}, UriInvalid, "chunk-rows"),
        ({"source_uri": TOPIC, "load_from": f"{FROM}?enable-tls=no"}, UriInvalid, "enable-tls"),
        ({"source_uri": TOPIC, "load_from": f"{FROM}?ssl-ca=/x&enable-tls=false"}, UriInvalid, "would do nothing"),
    ],
)  # fmt: skip
def test_what_does_not_go_is_refused(given: dict[str, object], kind: type[TidegateError], words: str) -> None:
    """Each by a word for what to change, and no word of the password."""
    with pytest.raises(kind, match=words) as caught:
        load(**{"sink_uri": LAKE, **given})  # type: ignore[arg-type]
    assert "zeb" not in str(caught.value)


def test_the_password_is_not_shown(tmp_path: Path) -> None:
    """Neither the configuration nor what a server answers has it."""
    path = written(tmp_path, {"uri": TOPIC, "load-from": FROM})
    config = load(path)

    assert config.load is not None
    assert config.load.options.address.password == "zebra"
    assert "zebra" not in repr(config) + str(config.load) + repr(parse_load(FROM))
    assert masked({"source": {"load-from": FROM}}) == {"source": {"load-from": "mysql://u:xxxxx@db:4000/"}}


def test_rules_of_a_later_load(tmp_path: Path) -> None:
    """They tell upper from lower case where the feed's rules do, and a wrong one is refused before anything stops."""
    for sensitive, matched in ((True, [True, False]), (False, [True, True])):
        path = written(tmp_path, {"uri": TOPIC, "load-from": FROM, "load-number": 1, "load-tables": ["shop.Items"]})
        path.write_text(f"case-sensitive = {json.dumps(sensitive)}\n{path.read_text()}")
        begins = load(path).load
        assert begins is not None
        assert begins.tables is not None
        assert [begins.tables.matches("shop", name) for name in ("Items", "items")] == matched
    with pytest.raises(FilterRuleInvalid, match="items"):
        load(written(tmp_path, {"uri": TOPIC, "load-from": FROM, "load-number": 1, "load-tables": ["items"]}))


@pytest.mark.parametrize(
    "option",
    ["load-target=keep", "load-publish=table", "gc-life-time=72h", "rows-per-second=5", "chunk-rows=5",
     "load-hours=22-6", "max-connections=1"],
)  # fmt: skip
def test_definitions_take_no_option_of_rows(option: str) -> None:
    """Options of a load that would do nothing are named; those of the connection are taken."""
    with pytest.raises(UriInvalid, match=f"definitions-from: {option.partition('=')[0]} would do nothing"):
        load(source_uri=TOPIC, sink_uri=LAKE, definitions_from=f"{FROM}?{option}")
    uri = f"{FROM}?replica-read=follower&resource-group=g&connections=2&scan-concurrency=3&timeout=3s"
    assert load(source_uri=TOPIC, sink_uri=LAKE, definitions_from=uri).load is not None
    assert load(source_uri=TOPIC, sink_uri=LAKE, load_from=f"{FROM}?{option}").load is not None


def test_definitions_alone(tmp_path: Path) -> None:
    """definitions-from and definitions-at under [source]; options override them, and a load has its own."""
    path = written(tmp_path, {"uri": TOPIC, "definitions-from": FROM, "definitions-at": "now"})
    in_file, given = load(path).load, load(path, definitions_at="start").load
    assert in_file is not None
    assert given is not None
    assert (in_file.mode, in_file.definitions, given.definitions) == ("definitions", "now", "start")
    for more, words in (
        ({"source_uri": TOPIC, "definitions_from": FROM, "load_from": FROM}, "without a load"),
        ({"source_uri": TOPIC, "definitions_at": "now"}, "goes with definitions-from"),
        ({"source_uri": TOPIC, "definitions_from": FROM, "definitions_at": "then"}, "start or now"),
        ({"source_uri": f"tidb://{LOG}", "definitions_from": FROM}, "brings its definitions"),
        ({"source_uri": f"{TOPIC}&order=offset", "definitions_from": FROM}, "order=offset"),
    ):
        with pytest.raises(ConfigError, match=words):
            load(sink_uri=LAKE, **more)  # type: ignore[arg-type]
