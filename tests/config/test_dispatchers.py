"""`[sink] dispatchers` of a changefeed file."""

from pathlib import Path

import pytest

from tidegate.codec import encode_options
from tidegate.config.entry import Document
from tidegate.config.kafka import encoder_keys
from tidegate.config.load import check_dispatchers, load, read_document
from tidegate.engine.dispatch import DispatchRule, Router
from tidegate.model.errors import ConfigError, FilterRuleInvalid, SinkConfigInvalid, TopicExpressionInvalid
from tidegate.model.event import Field, Insert
from tidegate.model.table import TableName

URIS = 'sink-uri = "delta:///lake"\n[source]\nuri = "kafka://h/t?protocol=open-protocol"\n'
INLINE = """
case-sensitive = true
force-replicate = false
[sink]
protocol = "canal-json"
dispatchers = [
  {matcher = ["shop.*", "!shop.tmp"], topic = "shop_{table}", partition = "index-value", index = "by_email"},
  {matcher = ["log.*"], dispatcher = "columns", columns = ["day", "Hour"]},
]
[sink.kafka-config.codec-config]
enable-tidb-extension = true
"""
TABLES = """
[[sink.dispatchers]]
matcher = ["*.*"]
dispatcher = "TS"
"""


def written(tmp_path: Path, text: str) -> Path:
    """A file with this text."""
    file = tmp_path / "feed.toml"
    file.write_text(text)
    return file


def sink_file(path: Path) -> Document:
    """A file whose dispatchers act."""
    found = read_document(path)
    check_dispatchers(found.dispatchers)
    return found


def test_the_rules_of_a_file(tmp_path: Path) -> None:
    """Both ways to write a list of tables give the rules, under both names of `partition`; the options go with them."""
    found = sink_file(written(tmp_path, INLINE))
    assert found.dispatchers == (
        DispatchRule(("shop.*", "!shop.tmp"), "index-value", "shop_{table}", "by_email"),
        DispatchRule(("log.*",), "columns", columns=("day", "Hour")),
    )
    assert found.case_sensitive
    options = encode_options(encoder_keys(found))
    assert (options.protocol, options.enable_tidb_extension) == ("canal-json", True)
    assert sink_file(written(tmp_path, TABLES)).dispatchers == (DispatchRule(("*.*",), "TS"),)
    assert sink_file(written(tmp_path, "")).dispatchers == ()


def test_the_rules_route_rows(tmp_path: Path) -> None:
    """What the file says decides topic and partition, and a table that no rule takes goes by its name."""
    file = sink_file(written(tmp_path, INLINE))
    router = Router.of(file.dispatchers, "all", encode_options(encoder_keys(file)), case_sensitive=file.case_sensitive)
    row = Insert(schema="log", table="hits", fields=(Field("DAY", 3), Field("hour", 3)), after=(1, 2))
    assert router.plan(TableName("log", "hits"), row.fields).route(row, 16).topic == "all"
    assert router.topic("shop", "orders") == "shop_orders"
    assert {router.topic("shop", "tmp"), router.topic("SHOP", "orders"), router.topic("other", "x")} == {"all"}


def test_a_feed_into_a_lake_keeps_them(tmp_path: Path) -> None:
    """A changefeed file of TiCDC is accepted as it stands; the rules are read and have no effect on a lake."""
    config = load(written(tmp_path, URIS + TABLES))
    assert config.dispatchers == (DispatchRule(("*.*",), "TS"),)
    assert any("sink.dispatchers[].dispatcher" in warning for warning in config.warnings)
    odd = written(tmp_path, URIS + TABLES.replace("TS", "index_value"))
    assert load(odd).dispatchers[0].partition == "index_value"


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ('matchr = ["a.*"]', ConfigError, 'key sink.dispatchers[].matchr; did you mean "sink.dispatchers[].matcher"'),
        ('matcher = "a.*"', ConfigError, "sink.dispatchers[].matcher: expected a list of strings"),
        ('partition = "index_value"', ConfigError, "sink.dispatchers[0]: partition = 'index_value' is not one of"),
        ('partition = "index_value"', ConfigError, 'did you mean "index-value"?'),
        ('partition = "ts"\ndispatcher = "ts"', SinkConfigInvalid, "sink.dispatchers[0] has both"),
        ('topic = "a b"', TopicExpressionInvalid, "'a b'"),
        ('matcher = ["["]', FilterRuleInvalid, "["),
    ],
)  # fmt: skip
def test_wrong_rules(tmp_path: Path, text: str, kind: type[ConfigError], words: str) -> None:
    """Each is an error of its kind that names the place and, where one is near, the right word."""
    with pytest.raises(kind) as caught:
        sink_file(written(tmp_path, f"[[sink.dispatchers]]\n{text}\n"))
    assert words in str(caught.value)
