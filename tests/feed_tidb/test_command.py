"""What `tidegate run --source-uri tidb://…` makes of its words, before anything is read or written."""

import pickle
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate.app.cli import main
from tidegate.app.tidb_run import RunWords, feed_config
from tidegate.model.errors import (
    ChangefeedIdInvalid,
    ConfigError,
    KafkaConfigInvalid,
    TidegateError,
    UriInvalid,
)
from tidegate.model.feed_errors import ExpressionParseFailed
from tidegate.model.table import TableName

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


def words(log: Path, **given: object) -> RunWords:
    """A command line for a log, with some words in place of others."""
    return RunWords(**{"source_uri": f"tidb://{log}", "sink_uri": SINK, "state_dir": log / "state"} | given)  # type: ignore[arg-type]


def test_words_and_file(tmp_path: Path) -> None:
    """The file's tables, keys and switches count, the command line's win."""
    file = tmp_path / "feed.toml"
    file.write_text(FILE)
    config = feed_config(words(tmp_path, path=str(file), start_ts=5, target_ts=9))
    other = feed_config(words(tmp_path, path=str(file), rules=("x.y",), name="two"))

    assert (config.name, config.start_ts, config.target_ts, other.name) == ("one", 5, 9, "two")
    assert config.mount == (True, True, True)
    assert (config.rules.matches("shop", "a"), config.rules.matches("x", "y")) == (True, False)
    assert (other.rules.matches("shop", "a"), other.rules.matches("x", "y")) == (False, True)
    assert not config.target.split.unique_keys
    assert [rule.partition for rule in config.target.rules] == ["ts"]


def test_without_a_file(tmp_path: Path) -> None:
    """Everything has a default; the name is the same for the same log and topic."""
    config = feed_config(
        words(tmp_path, sink_uri=f"{SINK}&partition-num=2&compression=lz4&sasl-user=u&sasl-password=p")
    )

    assert config.name == feed_config(words(tmp_path)).name
    assert config.name.startswith("shop-")
    assert config.target.partition_num == 2
    assert config.target.client["compression.type"] == "lz4"
    assert config.mount == (False, False, False)
    assert "sasl" not in repr(config)


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"sink_uri": "delta:///x"}, UriInvalid, "kafka://HOST"),
        ({"sink_uri": None}, UriInvalid, "kafka://HOST"),
        ({"sink_uri": "kafka://h/a,b?protocol=open-protocol"}, UriInvalid, "one topic"),
        ({"sink_uri": f"{SINK}&compression=rar"}, KafkaConfigInvalid, "none, gzip"),
        ({"sink_uri": "kafka://h/a"}, TidegateError, "protocol"),
        ({"state_dir": None}, ConfigError, "--state-dir"),
        ({"source_uri": "tidb://host/log"}, UriInvalid, "tidb:///path"),
        ({"source_uri": "tidb:///no/such/log"}, UriInvalid, "no directory"),
        ({"name": "a b"}, ChangefeedIdInvalid, "single hyphens"),
    ],
)
def test_what_cannot_be_meant(tmp_path: Path, given: dict[str, object], kind: type[TidegateError], text: str) -> None:
    """The error says what is wrong and what to write."""
    with pytest.raises(kind, match=text):
        feed_config(words(tmp_path, **given))


def test_event_filters_come_from_the_file(tmp_path: Path) -> None:
    """Rules and transactions that the file leaves out; an expression that is none is told before anything starts."""
    file = tmp_path / "feed.toml"
    rule = '[[filter.event-filters]]\nmatcher = ["shop.*"]\nignore-event = ["delete"]\n'
    file.write_text(f"[filter]\nignore-txn-start-ts = [7]\n{rule}")
    events = feed_config(words(tmp_path, path=str(file))).events

    assert events.start_ts == {7}
    assert events.rows([TableName("shop", "a")]) is not None
    file.write_text(f'{rule}ignore-insert-value-expr = "id ="\n')
    with pytest.raises(ExpressionParseFailed, match="'id ='"):
        feed_config(words(tmp_path, path=str(file)))


def test_levels_that_nobody_knows(tmp_path: Path) -> None:
    """The error lists those that there are."""
    file = tmp_path / "feed.toml"
    file.write_text('[integrity]\nintegrity-check-level = "full"\n')
    with pytest.raises(ConfigError, match="none, correctness"):
        feed_config(words(tmp_path, path=str(file)))


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
    config = feed_config(words(tmp_path, path=str(file)))
    events, target = pickle.loads(pickle.dumps((config.events, config.target)))

    assert events.rows([TableName("shop", "a")]) is not None
    assert target.selectors.narrows(TableName("shop", "a"))
    assert target.router().topic("shop", "a") == "shop"
