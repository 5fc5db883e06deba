"""What `tidegate run --source-uri tidb://…` makes of its words, before anything is read or written."""

import pickle
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.cli.main import main
from tidegate.config.entry import FeedConfig
from tidegate.config.load import load
from tidegate.config.registry import feed_of
from tidegate.model.errors import (
    ChangefeedIdInvalid,
    ConfigError,
    ExpressionParseFailed,
    KafkaConfigInvalid,
    TidegateError,
    UriInvalid,
)
from tidegate.model.table import TableName
from tidegate.sink.kafka import KafkaSink
from tidegate.sink.kafka_target import TopicTarget
from tidegate.source.tidb_land import LogSource

SINK = "kafka://h:9092/shop?protocol=open-protocol"
FILE = """
changefeed-id = "one"
force-replicate = true
case-sensitive = true
[filter]
rules = ["shop.*"]
[integrity]
integrity-check-level = "correctness"
corruption-handle-level = "error"
[sink]
dispatchers = [{matcher = ["shop.a"], partition = "ts"}]
[sink.kafka-config]
output-raw-change-event = true
"""


def meant(log: Path, **given: object) -> FeedConfig:
    """What a command line for a log means, with some words in place of others."""
    return load(**{"source_uri": f"tidb://{log}", "sink_uri": SINK, "state_dir": log / "state"} | given)  # type: ignore[arg-type]


def target_of(config: FeedConfig) -> TopicTarget:
    """What it writes, and to whom."""
    sink = feed_of(config).sink
    assert isinstance(sink, KafkaSink)
    return sink._configured


def source_of(config: FeedConfig) -> LogSource:
    """What it reads."""
    source = feed_of(config).source
    assert isinstance(source, LogSource)
    return source


def test_words_and_file(tmp_path: Path) -> None:
    """The file's tables, keys and switches count, the command line's win."""
    file = tmp_path / "feed.toml"
    file.write_text(FILE)
    config = meant(tmp_path, path=file, start_ts=5, target_ts=9)
    other = meant(tmp_path, path=file, rules=("x.y",), name="two")
    one, two = (each.table_filter() for each in (config, other))

    assert (config.name, config.start_ts, config.target_ts, other.name) == ("one", 5, 9, "two")
    assert source_of(config)._mount == (True, True, True, False, False)
    assert (one.matches("shop", "a"), one.matches("x", "y")) == (True, False)
    assert (two.matches("shop", "a"), two.matches("x", "y")) == (False, True)
    assert not target_of(config).split.unique_keys
    assert [rule.partition for rule in target_of(config).rules] == ["ts"]


@pytest.mark.parametrize(("text", "printed"), [("", True), ('ddl-text = "ticdc"', True), ('ddl-text = "raw"', False)])
def test_texts_of_ddls(tmp_path: Path, text: str, printed: bool) -> None:  # noqa: FBT001
    """DDLs are printed as TiCDC does unless the file says raw."""
    file = tmp_path / "feed.toml"
    file.write_text(f"[sink]\n{text}")
    assert source_of(meant(tmp_path, path=file))._timeline._ticdc_texts == printed


def test_without_a_file(tmp_path: Path) -> None:
    """Everything has a default; the name is the same for the same log and topic."""
    config = meant(tmp_path, sink_uri=f"{SINK}&partition-num=2&compression=lz4&sasl-user=u&sasl-password=hidden")
    made = target_of(config)

    assert config.name == meant(tmp_path).name
    assert config.name.startswith("shop-")
    assert made.partition_num == 2
    assert made.producer_config()["compression.type"] == "lz4"
    assert source_of(config)._mount == (False, False, False, False, False)
    assert "hidden" not in repr(config) + repr(made)
    assert "sasl" not in repr(made)


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"sink_uri": "kafka:///shop?protocol=open-protocol"}, UriInvalid, "HOST:PORT"),
        ({"sink_uri": None}, UriInvalid, "--sink-uri"),
        ({"sink_uri": "kafka://h/a,b?protocol=open-protocol"}, UriInvalid, "one topic"),
        ({"sink_uri": f"{SINK}&compression=rar"}, KafkaConfigInvalid, "none, gzip"),
        ({"sink_uri": "kafka://h/a"}, TidegateError, "protocol"),
        ({"state_dir": None}, ConfigError, "--state-dir"),
        ({"source_uri": "tidb://host/log"}, UriInvalid, "tidb:///path"),
        ({"source_uri": "tidb:///no/such/log"}, UriInvalid, "not a directory"),
        ({"name": "a b"}, ChangefeedIdInvalid, "single hyphens"),
    ],
)
def test_what_cannot_be_meant(tmp_path: Path, given: dict[str, object], kind: type[TidegateError], text: str) -> None:
    """The error says what is wrong and what to write."""
    with pytest.raises(kind, match=text):
        meant(tmp_path, **given)


def test_event_filters_come_from_the_file(tmp_path: Path) -> None:
    """Rules and transactions that the file leaves out; an expression that is none is told before anything starts."""
    file = tmp_path / "feed.toml"
    rule = '[[filter.event-filters]]\nmatcher = ["shop.*"]\nignore-event = ["delete"]\n'
    file.write_text(f"[filter]\nignore-txn-start-ts = [7]\n{rule}")
    events = meant(tmp_path, path=file).events

    assert events.start_ts == {7}
    assert events.rows([TableName("shop", "a")]) is not None
    file.write_text(f'{rule}ignore-insert-value-expr = "id ="\n')
    with pytest.raises(ExpressionParseFailed, match="'id ='"):
        meant(tmp_path, path=file)


def test_levels_that_nobody_knows(tmp_path: Path) -> None:
    """The error lists those that there are."""
    file = tmp_path / "feed.toml"
    file.write_text('[integrity]\nintegrity-check-level = "full"\n')
    with pytest.raises(ConfigError, match="none, correctness"):
        meant(tmp_path, path=file)


def test_the_command_says_it_in_one_line(tmp_path: Path) -> None:
    """An error of the command line has a code, and nothing was started."""
    result = CliRunner().invoke(main, ["run", "--source-uri", f"tidb://{tmp_path}", "--sink-uri", SINK])

    assert result.exit_code == 1
    assert "CDC:ErrInvalidReplicaConfig" in result.stderr
    assert "--state-dir" in result.stderr


def test_a_configuration_travels(tmp_path: Path) -> None:
    """Filters, selectors and dispatchers go into tasks by pickle, and judge there as here."""
    file = tmp_path / "feed.toml"
    file.write_text(
        '[[filter.event-filters]]\nmatcher = ["/^shop$/.*"]\nignore-sql = ["drop"]\n'
        'ignore-delete-value-expr = "id = 1"\n'
        '[sink]\ncolumn-selectors = [{matcher = ["shop.a"], columns = ["*", "!/secret/"]}]\n'
        'dispatchers = [{matcher = ["shop.a"], topic = "{schema}"}]\n'
    )
    config = meant(tmp_path, path=file)
    events, target = pickle.loads(pickle.dumps((config.events, target_of(config))))

    assert events.rows([TableName("shop", "a")]) is not None
    assert target.selectors.narrows(TableName("shop", "a"))
    assert target.router().topic("shop", "a") == "shop"
