"""Configurations of a feed from tidb:// that cannot be meant, and the codes that TiCDC gives them."""

from pathlib import Path

import msgspec
import pytest

from tests.source.tidb.kit import Broker, changes, feed, recorded_log, target
from tidegate.config.load import load
from tidegate.config.registry import feed_of
from tidegate.engine.event_expression import SqlExpressions
from tidegate.engine.event_filter import EventFilter
from tidegate.model.errors import PartitionNumInvalid, Retry, TidegateError

URI = "kafka://h:9092/shop?protocol=open-protocol"
CANAL = "kafka://h:9092/shop?protocol=canal-json"
RULE = '[[filter.event-filters]]\nmatcher = ["a.b"]\n'
LARGE = "[sink.kafka-config.large-message-handle]\n"

CASES = [
    # The address.
    ("lake:///srv", "", "ErrSinkURIInvalid"),
    ("pulsar://h:3306/", "", "ErrUnsupported"),
    ("mysql://h:3306/?worker-count=0", "", "ErrMySQLInvalidConfig"),
    ("kafka://h:9092/?protocol=open-protocol", "", "ErrKafkaInvalidConfig"),
    ("kafka://h:99999/shop?protocol=open-protocol", "", "ErrSinkURIInvalid"),
    (f"{URI}&partition-numb=3", "", "ErrSinkURIInvalid"),
    (f"{URI}&partition-num=2&partition-num=3", "", "ErrSinkURIInvalid"),
    ("kafka://h:9092/shop", "", "ErrSinkUnknownProtocol"),
    ("kafka://h:9092/shop?protocol=xml", "", "ErrSinkUnknownProtocol"),
    ("kafka://h:9092/shop?protocol=avro", "", "ErrUnsupported"),
    (f"{URI}&partition-num=0", "", "ErrKafkaInvalidPartitionNum"),
    (URI, "[sink.kafka-config]\npartition-num = -1", "ErrKafkaInvalidPartitionNum"),
    (f"{URI}&partition-num=many", "", "ErrKafkaInvalidConfig"),
    (f"{URI}&compression=rar", "", "ErrKafkaInvalidConfig"),
    (f"{URI}&sasl-mechanism=PLAIN", "", "ErrKafkaInvalidConfig"),
    (f"{URI}&sasl-user=u&sasl-mechanism=GSSAPI", "", "ErrUnsupported"),
    (f"{URI}&cert=c", "", "ErrKafkaInvalidConfig"),
    (f"{URI}&max-batch-size=0", "", "ErrCodecInvalidConfig"),
    (f"{URI}&max-message-bytes=-1", "", "ErrKafkaInvalidConfig"),
    # Filters.
    (URI, '[filter]\nrules = ["shop"]', "ErrFilterRuleInvalid"),
    (URI, '[filter]\nrules = ["/(/.*"]', "ErrFilterRuleInvalid"),
    (URI, f'{RULE}ignore-event = ["delete table"]', "ErrInvalidIgnoreEventType"),
    (URI, f'{RULE}ignore-sql = ["("]', "ErrFilterRuleInvalid"),
    (URI, f'{RULE}ignore-insert-value-expr = "a >"', "ErrExpressionParseFailed"),
    (URI, '[[filter.event-filters]]\nmatcher = ["a"]', "ErrFilterRuleInvalid"),
    (URI, "[filter]\nignore-txn-start-ts = ['1']", "ErrInvalidReplicaConfig"),
    # Dispatchers and column selectors.
    (URI, '[sink]\ndispatchers = [{matcher = ["a"]}]', "ErrFilterRuleInvalid"),
    (URI, '[sink]\ndispatchers = [{matcher = ["a.b"], partition = "ts", dispatcher = "ts"}]', "ErrSinkInvalidConfig"),
    (URI, '[sink]\ndispatchers = [{matcher = ["a.b"], topic = "{table}{schema}"}]', "ErrKafkaInvalidTopicExpression"),
    (URI, '[sink]\ndispatchers = [{matcher = ["a.b"], topic = "shop!"}]', "ErrKafkaInvalidTopicExpression"),
    (URI, '[sink]\ndispatchers = [{matcher = ["a.b"], partition = "colums"}]', "ErrInvalidReplicaConfig"),
    (URI, '[sink]\ndispatchers = [{matcher = ["a.b"], target-schema = "c"}]', "ErrUnsupported"),
    (URI, '[sink]\ncolumn-selectors = [{matcher = ["a.b"], columns = ["c.d"]}]', "ErrFilterRuleInvalid"),
    (URI, '[sink]\ncolumn-selectors = [{matcher = ["a"], columns = ["c"]}]', "ErrFilterRuleInvalid"),
    (
        URI,
        '[integrity]\nintegrity-check-level = "correctness"\n[sink]\ncolumn-selectors = [{matcher = ["a.b"]}]',
        "ErrInvalidReplicaConfig",
    ),
    # Large rows, and encoders.
    (URI, f'{LARGE}large-message-handle-option = "split"', "ErrInvalidReplicaConfig"),
    (URI, f'{LARGE}large-message-handle-option = "claim-check"', "ErrInvalidReplicaConfig"),
    (CANAL, f'{LARGE}large-message-handle-option = "handle-key-only"', "ErrInvalidReplicaConfig"),
    (URI, "force-replicate = true\n[sink]\ndelete-only-output-handle-key-columns = true", "ErrCodecInvalidConfig"),
    # The changefeed.
    (URI, 'changefeed-id = "a b"', "ErrInvalidChangefeedID"),
    (URI, "case-sensitive = 1", "ErrInvalidReplicaConfig"),
    (URI, "case-sensitiv = true", "ErrInvalidReplicaConfig"),
    (URI, 'changefeed-error-stuck-duration = "soon"', "ErrInvalidReplicaConfig"),
    (URI, "enable-sync-point = true", "ErrInvalidReplicaConfig"),
    (URI, "bdr-mode = true", "ErrInvalidReplicaConfig"),
    (URI, '[consistent]\nlevel = "eventual"', "ErrUnsupported"),
    (URI, '[sink]\ntransaction-atomicity = "table"', "ErrSinkURIInvalid"),
    (URI, '[sink.kafka-config]\nsasl-gssapi-user = "u"', "ErrUnsupported"),
    (URI, '[integrity]\nintegrity-check-level = "full"', "ErrInvalidReplicaConfig"),
    (URI, '[sink]\nddl-text = "pretty"', "ErrInvalidReplicaConfig"),
    (URI, f'force-replicate = true\n{LARGE}large-message-handle-option = "claim-check"', "ErrCodecInvalidConfig"),
]


@pytest.mark.parametrize(("uri", "file", "code"), CASES)
def test_codes(tmp_path: Path, uri: str, file: str, code: str) -> None:
    """Each mistake is told before anything is read or written, under the code that TiCDC's users look for, and by a
    message that is more than the code."""
    path = tmp_path / "feed.toml"
    path.write_text(file)
    with pytest.raises(TidegateError) as told:
        load(path, source_uri=f"tidb://{tmp_path}", sink_uri=uri, state_dir=tmp_path / "state")

    assert (told.value.code, told.value.retry) == (f"CDC:{code}", Retry.NEVER)
    assert len(str(told.value)) > 20
    assert not (tmp_path / "state").exists()


LAKE = [
    ("", f'{RULE}ignore-event = ["delete table"]', "ErrInvalidIgnoreEventType"),
    ("", f'{RULE}ignore-sql = ["("]', "ErrFilterRuleInvalid"),
    ("", f'{RULE}ignore-insert-value-expr = "a >"', "ErrExpressionParseFailed"),
    ("", f"{RULE}ignore-insert-value-exp = 1", "ErrInvalidReplicaConfig"),
    ("", '[[filter.event-filters]]\nmatcher = ["a"]', "ErrFilterRuleInvalid"),
    ("", '[filter]\nignore-dml-event-filter = ["insert"]', "ErrUnsupported"),
    ("", "enable-sync-point = true", "ErrInvalidReplicaConfig"),
    ("", "bdr-mode = true", "ErrInvalidReplicaConfig"),
    ("", '[consistent]\nlevel = "eventual"', "ErrUnsupported"),
    ("", '[sink]\ndispatchers = [{matcher = ["a.b"], target-schema = "c"}]', "ErrUnsupported"),
    ("", '[sink]\ndispatchers = [{matcher = ["a.b"], target-table = "c"}]', "ErrUnsupported"),
    ("", '[sink]\ncolumn-selectors = [{matcher = ["a.b"], columns = ["c.d"]}]', "ErrFilterRuleInvalid"),
    ("", '[sink]\ncolumn-selectors = [{matcher = ["a"], columns = ["c"]}]', "ErrFilterRuleInvalid"),
    ("", '[sink]\ncolumn-selectors = [{matcher = ["a.b"], column = ["c"]}]', "ErrInvalidReplicaConfig"),
    ("?output-row-key=true", "", "ErrSinkURIInvalid"),
    ("?time-zone=Asia/Tokyo", "", "ErrInvalidReplicaConfig"),
]


@pytest.mark.parametrize(("parameters", "file", "code"), LAKE)
def test_codes_of_lakes(tmp_path: Path, parameters: str, file: str, code: str) -> None:
    """The same for a feed into a lake."""
    path = tmp_path / "feed.toml"
    path.write_text(file)
    with pytest.raises(TidegateError) as told:
        load(path, source_uri=f"tidb://{tmp_path}", sink_uri=f"delta:///lake{parameters}")

    assert (told.value.code, told.value.retry) == (f"CDC:{code}", Retry.NEVER)
    assert len(str(told.value)) > 20


def test_values_that_ask_for_nothing_are_accepted(tmp_path: Path) -> None:
    """A file that says no to what is not done here is one that a lake can follow."""
    path = tmp_path / "feed.toml"
    path.write_text(
        'bdr-mode = false\nenable-sync-point = false\n[consistent]\nlevel = "none"\n[sink]\ncolumn-selectors = []\n'
        'dispatchers = [{matcher = ["a.b"], partition = "ts", target-schema = ""}]\n'
    )
    assert load(path, source_uri=f"tidb://{tmp_path}", sink_uri="delta:///lake").events == EventFilter(
        _expressions=SqlExpressions()
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"partition": "index-value", "index": "nothing"}, "ErrDispatcherFailed"),
        ({"partition": "columns", "columns": ["nothing"]}, "ErrDispatcherFailed"),
    ],
)
def test_rules_that_do_not_fit_a_table(tmp_path: Path, given: dict[str, object], code: str) -> None:
    """They are told when the feed takes up the schema, though no row of the table is to be sent."""
    made = target(broker := Broker(), "open-protocol", [{"matcher": ["gt.t_int"], **given}])
    one = feed(
        recorded_log(tmp_path / "log", "types"), made, tmp_path / "state", start_ts=changes("types")[-1].commit_ts
    )
    with pytest.raises(TidegateError, match=r"gt\.t_int") as told:
        one.run(idle_s=0)

    assert told.value.code == f"CDC:{code}"
    assert not broker.messages


@pytest.mark.slow
def test_more_partitions_than_there_are(tmp_path: Path) -> None:
    """The topic is asked, and the error names both numbers."""
    made = msgspec.structs.replace(target(Broker(2), "open-protocol"), partition_num=3)
    with pytest.raises(PartitionNumInvalid, match="partition-num is 3, but topic feed has 2") as told:
        feed(recorded_log(tmp_path / "log", "types"), made, tmp_path / "state").run(idle_s=0)

    assert told.value.code == "CDC:ErrKafkaInvalidPartitionNum"


FULL = """
memory-quota = 1073741824
changefeed-error-stuck-duration = "1h"
bdr-mode = false
[sink]
protocol = "canal-json"
encoder-concurrency = 16
transaction-atomicity = "none"
column-selectors = [{matcher = ["a.b"], columns = ["*", "!c"]}]
[sink.kafka-config]
partition-num = 4
replication-factor = 2
sasl-user = "u"
sasl-password = "hidden"
sasl-mechanism = "SCRAM-SHA-256"
required-acks = -1
[sink.kafka-config.codec-config]
enable-tidb-extension = true
[mounter]
worker-num = 16
"""


def test_what_acts_and_what_does_not(tmp_path: Path) -> None:
    """Keys of the client and the encoder act, wherever they stand; the address wins; what does nothing is named."""
    path = tmp_path / "feed.toml"
    path.write_text(FULL)
    uri = "kafka://h:9092/shop?partition-num=3"
    config = load(path, source_uri=f"tidb://{tmp_path}", sink_uri=uri, state_dir=tmp_path / "state")
    made = feed_of(config)
    topics = made.sink._configured

    assert (topics.options.protocol, topics.options.enable_tidb_extension) == ("canal-json", True)
    assert topics.partition_num == 3
    assert topics.new_topics == (3, 2)
    assert topics.producer_config()["sasl.mechanism"] == "SCRAM-SHA-256"
    assert made.patience.stuck_s == 3600
    assert "hidden" not in repr(config) + repr(topics)
    [told] = config.warnings
    assert told.endswith("effect: mounter.worker-num, sink.encoder-concurrency, sink.kafka-config.required-acks")
