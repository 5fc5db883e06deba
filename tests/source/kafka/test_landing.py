"""Landing from a real broker through Spark: exactly once, whatever is stopped, broken or added meanwhile."""

import time
from collections import Counter

import pytest
from click.testing import CliRunner

from tests.source.kit import OPEN, insert, manifest, open_message, recording, resolved
from tests.sources import topics_to_read
from tidegate.changelog.changelog import Changelog, changelog_uri
from tidegate.changelog.source import LandedSource
from tidegate.cli.topic import topic as topic_command
from tidegate.codec.options import DecodeOptions
from tidegate.engine.change import EventPosition
from tidegate.engine.progress import Progress
from tidegate.model.errors import ConfigError, HistoryLost, PoisonMessage, SourceError
from tidegate.model.table import TableName
from tidegate.model.tso import compose
from tidegate.source.kafka_client import begin_of, watermarks
from tidegate.source.kafka_land import Landing
from tidegate.source.kafka_messages import TopicMessage
from tidegate.source.kafka_options import KafkaTopics
from tidegate.source.kafka_replay import skip
from tidegate.spark.tasks import SparkTasks

pytestmark = pytest.mark.slow

ORDERS = TableName("shop", "orders")
PATIENCE_S = 120.0


@pytest.fixture
def lake(tmp_path):
    return str(tmp_path / "lake")


def until(condition) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "nothing more happened"
        time.sleep(0.05)


def drain(landing: Landing) -> None:
    """Wait until everything has landed, or the landing has ended."""
    until(lambda: not landing.alive() or landing.idle())


def land_all(spark, source: KafkaTopics, lake: str) -> None:
    landing = Landing(source, lake, "f")
    landing.start(SparkTasks(spark))
    try:
        drain(landing)
        failed = landing.exception()
        if failed is not None:
            raise failed
    finally:
        landing.stop()


def read(lake: str) -> Changelog:
    changelog = Changelog(changelog_uri(lake))
    changelog.refresh()
    return changelog


def positions(lake: str) -> Counter[tuple[str, int, int, int]]:
    found = read(lake).slice(0, (1 << 63) - 1)
    keys = ("topic", "partition", "offset", "seq")
    return Counter(
        place
        for name in found.tables()
        for place in zip(*(found.read(name).column(key).to_pylist() for key in keys), strict=True)
    )


@pytest.mark.parametrize("name", ["open", pytest.param("canal", marks=pytest.mark.soak)])
def test_a_recording_lands_once_through_restarts(spark, topics, lake, name):
    """Stopped twice in the middle of a run, every row is landed and none twice; Spark reads the same rows."""
    topic = topics.new(3)
    for partition in range(3):
        topics.produce(topic, partition, recording(name, partition))
    protocol = "open-protocol" if name == "open" else "canal-json"
    source = topics_to_read(topics.bootstrap, (topic,), DecodeOptions(protocol=protocol), max_messages_per_batch=1500)
    for batches in (1, 2):
        landing = Landing(source, lake, "f", trigger_ms=0)
        landing.start(SparkTasks(spark))
        until(lambda landing=landing, batches=batches: landing.progress().batches >= batches)
        landing.stop()
        assert landing.exception() is None
    land_all(spark, source, lake)

    counts = manifest(name)["counts"]
    found = positions(lake)
    changelog = read(lake)
    assert (found.total(), max(found.values())) == (counts["rows_sent"], 1)
    assert len(changelog.ddls(0, changelog.frontier())) == counts["ddl_unique"]
    assert changelog.frame(spark).count() == counts["rows_sent"]


def test_a_poison_message_halts_and_a_resolution_lets_go_on(spark, topics, lake):
    """Under halt everything before the poison lands, the error names the ways out, a second start says the same
    without a new commit of the message, and after `dlq skip` the feed goes on."""
    topic = topics.new(2)
    topics.produce(
        topic,
        0,
        [open_message(0, insert(5, 1)), TopicMessage(1, b"x", b"y"), open_message(2, insert(6, 2), resolved(7))],
    )
    topics.produce(topic, 1, [open_message(0, insert(5, 3), resolved(7))])
    source = topics_to_read(topics.bootstrap, (topic,), OPEN)

    for _ in range(2):
        with pytest.raises(
            PoisonMessage, match=f"topic {topic} partition 0 offset 1: .*dlq show .*dlq replay .*dlq skip"
        ):
            land_all(spark, source, lake)
        assert read(lake).positions()[topic][0].offset == 1
        assert sorted(positions(lake)) == [(topic, 0, 0, 0), (topic, 1, 0, 0)]
    ((_, letter),) = read(lake).halted()
    assert letter is not None
    assert (letter.raw_key, letter.raw_value) == (b"x", b"y")

    skip(lake, EventPosition(topic, 0, 1))
    land_all(spark, source, lake)

    assert read(lake).frontier() == 7
    assert [one.position for one in read(lake).dead_letters()] == [EventPosition(topic, 0, 1)]
    assert max(positions(lake).values()) == 1


def test_poison_under_skip(spark, topics, lake):
    """Under skip the feed never stops and the message is a dead letter."""
    topic = topics.new()
    topics.produce(topic, 0, [TopicMessage(0, None, None), open_message(1, insert(6, 2), resolved(7))])

    land_all(spark, topics_to_read(topics.bootstrap, (topic,), OPEN, dead_letter="skip"), lake)

    assert read(lake).frontier() == 7
    assert [one.position for one in read(lake).dead_letters()] == [EventPosition(topic, 0, 0)]


def test_a_partition_added_while_running(spark, topics, lake):
    """A partition that appears holds the frontier from its first moment until it resolves."""
    topic = topics.new()
    topics.produce(topic, 0, [open_message(0, insert(5, 1), resolved(6))])
    landing = Landing(topics_to_read(topics.bootstrap, (topic,), OPEN), lake, "f")
    landing.start(SparkTasks(spark))
    try:
        until(lambda: read(lake).frontier() == 6)
        topics.grow(topic, 2)
        until(lambda: 1 in read(lake).positions()[topic])
        topics.produce(topic, 0, [open_message(1, insert(8, 2), resolved(9))])
        until(lambda: read(lake).positions()[topic][0].resolved == 9)
        held = read(lake)
        topics.produce(topic, 1, [open_message(0, insert(7, 3), resolved(8))])
        until(lambda: read(lake).frontier() == 8)
    finally:
        landing.stop()

    assert held.frontier() == 6
    assert str(held.slowest()).startswith(f"topic {topic} partition 1: no resolved ts")
    assert landing.exception() is None


def test_several_topics(spark, topics, lake):
    """Topics with equal partition numbers do not mix, and the slower one decides."""
    one, two = topics.new(), topics.new()
    topics.produce(one, 0, [open_message(0, insert(5, 1), resolved(50))])
    topics.produce(two, 0, [open_message(0, insert(6, 2), resolved(8)), open_message(1, insert(9, 3))])

    land_all(spark, topics_to_read(topics.bootstrap, (one, two), OPEN), lake)

    assert read(lake).frontier() == 8
    assert sorted(positions(lake)) == sorted([(one, 0, 0, 0), (two, 0, 0, 0), (two, 0, 1, 0)])


def test_rows_without_order_are_refused(spark, topics, lake):
    """Canal-JSON without the TiDB extension stops at once with an explanation; order "offset" takes it."""
    topic = topics.new(2)
    bare = (
        b'{"id":0,"database":"shop","table":"orders","pkNames":["id"],"isDdl":false,"type":"INSERT","es":1700000000000,'
    )
    bare += b'"ts":1700000000001,"sql":"","sqlType":{"id":4},"mysqlType":{"id":"int"},"old":null,"data":[{"id":"1"}]}'
    topics.produce(topic, 0, [TopicMessage(0, None, bare), TopicMessage(1, None, bare)])
    options = DecodeOptions(protocol="canal-json")

    with pytest.raises(ConfigError, match=r"enable-tidb-extension=true.*order=offset"):
        land_all(spark, topics_to_read(topics.bootstrap, (topic,), options, dead_letter="skip"), lake)
    land_all(spark, topics_to_read(topics.bootstrap, (topic,), options, order="offset"), lake)
    topics.produce(topic, 1, [TopicMessage(0, None, bare)])
    land_all(spark, topics_to_read(topics.bootstrap, (topic,), options, order="offset"), lake)

    first = 1700000000000 << 18
    rows = read(lake).slice(0, read(lake).frontier() or 0).read(ORDERS)
    assert rows.column("commit_ts").to_pylist() == [first, first + 1, first + 2]


def test_what_is_wrong_is_said_at_the_start(spark, topics, lake):
    """A topic that is not there, a broker that is away and history that is gone are typed errors of `start`."""
    topic = topics.new()
    topics.produce(topic, 0, [open_message(n, insert(5 + n, n)) for n in range(5)])
    lost = topics_to_read(topics.bootstrap, (topic,), OPEN, start=((topic, 0, 0),))
    topics.forget(topic, 3)

    with pytest.raises(ConfigError, match="topic nothing-here does not exist"):
        Landing(topics_to_read(topics.bootstrap, ("nothing-here",), OPEN), lake, "f").start(SparkTasks(spark))
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1"):
        Landing(topics_to_read("127.0.0.1:1", (topic,), OPEN, read_timeout_ms=2000), lake, "f").start(SparkTasks(spark))
    with pytest.raises(HistoryLost, match="offset 0 is gone: the broker has offsets 3 to 5"):
        Landing(lost, lake, "f").start(SparkTasks(spark))


def test_history_lost_while_running(spark, topics, lake):
    """Messages that retention takes before they are read end the landing with a typed error that names them."""
    topic = topics.new()
    topics.produce(topic, 0, [open_message(n, insert(5 + n, n)) for n in range(3)])
    landing = Landing(topics_to_read(topics.bootstrap, (topic,), OPEN), lake, "f", trigger_ms=5000)
    landing.start(SparkTasks(spark))
    try:
        until(landing.idle)
        topics.produce(topic, 0, [open_message(n, insert(5 + n, n)) for n in range(3, 9)])
        topics.forget(topic, 6)
        until(lambda: not landing.alive())
    finally:
        landing.stop()

    failed = landing.exception()
    assert isinstance(failed, HistoryLost)
    assert f"topic {topic} partition 0 offset 3 is gone: the broker has offsets 6 to 9" in str(failed)


def test_what_retention_leaves(spark, topics, lake):
    """The source reports the time of the oldest message left, of the partition that has lost most; nothing is said of
    partitions that have lost none, or have none."""
    begin_ms, topic = 1_767_323_045_000, topics.new(3)
    for partition, from_ms in ((0, begin_ms), (1, begin_ms + 60_000)):
        messages = [open_message(n, insert(5 + n, n)) for n in range(4)]
        topics.produce(topic, partition, messages, from_ms=from_ms)
    settings = topics_to_read(topics.bootstrap, (topic,), OPEN)
    assert begin_of(settings) == 0
    topics.forget(topic, 2)
    source = LandedSource(lambda: Landing(settings, lake, "f"), changelog_uri(lake))
    source.start(SparkTasks(spark), None)
    try:
        until(source.idle)
    finally:
        source.stop()

    assert source.reading().begin_ts == compose(begin_ms + 2)
    assert Progress("running", begin_ts=compose(begin_ms), frontier_ts=compose(begin_ms + 9)).history_left_ms == 9
    assert Progress("running", frontier_ts=compose(begin_ms)).history_left_ms is None


def test_offsets_have_gaps(spark, topics, lake):
    """Transaction markers and aborted messages take offsets and are no rows; the end is reached all the same."""
    topic = topics.new()
    topics.transact(topic, [open_message(0, insert(5, 1)), open_message(1, insert(6, 2))], commit=True)
    topics.transact(topic, [open_message(3, insert(7, 3))], commit=False)
    source = topics_to_read(topics.bootstrap, (topic,), OPEN, max_messages_per_batch=2)

    land_all(spark, source, lake)

    assert read(lake).positions()[topic][0].offset == watermarks(source)[topic][0][1] == 5
    assert sorted(positions(lake)) == [(topic, 0, 0, 0), (topic, 0, 1, 0)]


def test_inspect(topics):
    """`topic inspect` tells marks, watermarks, rows by table, DDLs and unreadable messages of a real topic."""
    topic = topics.new(3)
    for partition in range(3):
        topics.produce(topic, partition, recording("open", partition))
    topics.produce(topic, 0, [TopicMessage(0, b"x", b"y")])
    uri = f"kafka://{topics.bootstrap}/{topic}?protocol=open-protocol"

    text = CliRunner().invoke(topic_command, ["inspect", uri]).output
    cut = CliRunner().invoke(topic_command, ["inspect", uri, "--limit", "30"]).output

    assert "81 DDLs" in text
    assert "1 messages cannot be read" in text
    assert "bank.accounts" in text
    assert "only the last 30 messages were read" in cut
    assert watermarks(topics_to_read(topics.bootstrap, (topic,), OPEN))[topic][1] == (0, 4015)
