"""A topic is known by its id: one that was deleted and made again is never read from the offsets of the one before."""

import logging
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.source.kafka.broker import Broker, row
from tests.source.kit import OPEN
from tests.sources import topics_to_read
from tidegate.changelog.changelog import Changelog, _commit_over, changelog_uri, newest
from tidegate.changelog.files import Halt, State
from tidegate.config.kafka import parse_source
from tidegate.engine.change import EventPosition
from tidegate.engine.frontier import Reached
from tidegate.engine.ports import LocalTasks
from tidegate.model.errors import KafkaConfigInvalid, MadeAnew, PoisonMessage, Retry
from tidegate.model.table import TableName
from tidegate.source.kafka_client import Described, described
from tidegate.source.kafka_land import Landing, recognised
from tidegate.source.kafka_messages import TopicMessage, record, recorded
from tidegate.source.kafka_options import KafkaTopics
from tidegate.source.kafka_replay import skip

ORDERS = TableName("shop", "orders")
BEFORE, AFTER = 33, 101
IDS = st.sampled_from(["", "A" * 22, "B" * 22])


@pytest.fixture
def broker(monkeypatch) -> Broker:
    return Broker.instead(monkeypatch)


@pytest.fixture
def lake(tmp_path) -> str:
    return str(tmp_path / "lake")


def source(*made_anew: tuple[str, str, bool], topics: Sequence[str] = ("shop",), bootstrap: str = "b:1") -> KafkaTopics:
    return topics_to_read(bootstrap, tuple(topics), OPEN, made_anew=made_anew)


def begun(topics: KafkaTopics, lake: str) -> Landing:
    """A landing that has claimed; batches are the test's to ask for."""
    landing = Landing(topics, lake, "f")
    landing._tasks = LocalTasks(pickles=False)
    landing._state = landing._claim()
    return landing


def land_all(topics: KafkaTopics, lake: str) -> None:
    begun(topics, lake)._batch()


def stands(lake: str) -> State:
    return newest(changelog_uri(lake))[1]


def landed(lake: str) -> int:
    changelog = Changelog(changelog_uri(lake))
    changelog.refresh()
    return changelog.slice(0, 1 << 62).read(ORDERS).num_rows


def test_a_topic_made_again_stops_the_feed(broker, lake):
    """33 messages are read, the topic is made again with 101: the error names topic, both ids, the offset and the ts
    since which rows are to be sent again, and nothing of the new topic lands."""
    broker.make("shop", BEFORE)
    land_all(source(), lake)
    broker.make("shop", AFTER)

    for _ in range(2):  # a second start says the same
        with pytest.raises(MadeAnew) as stopped:
            land_all(source(), lake)
    words = str(stopped.value)

    assert stopped.value.retry is Retry.NEVER
    assert f"topic shop was deleted and recreated: its id is {2:022} now, and {1:022} was read" in words
    assert "partition 0 up to offset 33" in words
    assert "--overwrite-checkpoint-ts=42" in words
    assert (stopped.value.where.topic, stopped.value.where.offset) == ("shop", BEFORE)
    assert (landed(lake), stands(lake).positions["shop"][0].offset) == (BEFORE, BEFORE)


def test_the_way_out_reads_the_new_topic_whole(broker, lake):
    """made-anew=TOPIC:ID, as the error says it, lands the new topic from its first message; it may stay in the address,
    and does nothing for an id that comes later."""
    broker.make("shop", BEFORE)
    land_all(source(), lake)
    broker.make("shop", AFTER)
    with pytest.raises(MadeAnew) as stopped:
        land_all(source(), lake)
    said = str(stopped.value).split("made-anew=")[1].split(" ")[0]
    way = parse_source(f"kafka://b:1/shop?protocol=open-protocol&start=shop/0:20&made-anew={said}").made_anew

    land_all(source(*way), lake)
    land_all(source(*way), lake)

    assert landed(lake) == BEFORE + AFTER
    assert stands(lake).positions["shop"][0] == Reached(AFTER, 10 + AFTER - 1)
    broker.make("shop", AFTER)
    with pytest.raises(MadeAnew):
        land_all(source(*way), lake)


def test_the_way_out_of_a_topic_that_moved_goes_on_at_its_offsets(broker, lake):
    """With :same-offsets, as the error says it, the messages behind those that were read land, each once."""
    broker.make("shop", BEFORE)
    land_all(source(), lake)
    broker.make("shop", AFTER)
    with pytest.raises(MadeAnew) as stopped:
        land_all(source(), lake)
    said = str(stopped.value).split("made-anew=")[2].split(";")[0]

    land_all(source(*parse_source(f"kafka://b:1/shop?protocol=open-protocol&made-anew={said}").made_anew), lake)

    assert landed(lake) == AFTER


def test_the_way_out_into_a_fresh_target(broker, lake, tmp_path):
    """A fresh feed into a fresh lake reads the new topic from its first message."""
    broker.make("shop", BEFORE)
    land_all(source(), lake)
    broker.make("shop", AFTER)

    land_all(source(), str(tmp_path / "fresh"))

    assert landed(str(tmp_path / "fresh")) == AFTER


@pytest.mark.parametrize("messages", [5, BEFORE, AFTER])
def test_a_topic_made_again_while_its_feed_runs(broker, lake, messages):
    """Between two batches: shorter, as long, or longer than what was read."""
    broker.make("shop", BEFORE)
    landing = begun(source(), lake)
    landing._batch()
    broker.make("shop", messages)

    with pytest.raises(MadeAnew):
        landing._batch()
    assert landed(lake) == BEFORE


@pytest.mark.parametrize("messages", [5, AFTER])
def test_a_topic_made_again_amid_a_batch(broker, lake, messages):
    """Between the plan of a batch and its reading: what was read of the new topic is not committed."""
    broker.make("shop", BEFORE)
    landing = begun(source(), lake)
    landing._batch()
    broker.topics["shop"][1].append(row(BEFORE))
    broker.amid = lambda: broker.make("shop", messages)

    with pytest.raises(MadeAnew):
        landing._batch()
    assert (landed(lake), stands(lake).positions["shop"][0].offset) == (BEFORE, BEFORE)


def test_state_of_an_earlier_release_adopts_the_id_and_says_so_once(broker, lake, caplog):
    """Positions without an id go on; the id is kept from then on, which is said at that start alone."""
    broker.make("shop", BEFORE)
    land_all(source(), lake)
    before = stands(lake)
    _commit_over(changelog_uri(lake), lambda state: msgspec.structs.replace(state, identities={}), (), "OLD RELEASE")
    assert before.identities == {"shop": f"{1:022}"}
    with caplog.at_level(logging.WARNING):
        land_all(source(), lake)
        land_all(source(), lake)

    (told,) = [one.getMessage() for one in caplog.records]
    assert told.startswith(f"topic shop was read without its id until now; its id {1:022} is recorded from here on")
    broker.make("shop", AFTER)
    with pytest.raises(MadeAnew):
        land_all(source(), lake)


def test_a_broker_without_ids_is_told_of_once(broker, lake, caplog):
    """Where the broker gives no id (an old one, an id of zeros) the feed runs, and one warning says what that means;
    an id that it gives later is adopted."""
    broker.make("shop", BEFORE, known=False)
    with caplog.at_level(logging.WARNING):
        land_all(source(), lake)
        land_all(source(), lake)
    assert [one.getMessage() for one in caplog.records] == [
        "topic shop: the broker reports no topic id, so a deleted and recreated topic cannot be detected"
    ]

    broker.topics["shop"] = f"{7:022}", broker.topics["shop"][1]
    land_all(source(), lake)
    assert stands(lake).identities == {"shop": f"{7:022}"}


def test_a_new_feed_says_nothing(broker, lake, caplog):
    """Ids of topics that were never read are kept without a word."""
    broker.make("shop", BEFORE)
    with caplog.at_level(logging.WARNING):
        land_all(source(), lake)
    assert not caplog.records


@pytest.mark.parametrize("release", ["this", "before"])
def test_decisions_about_messages_are_of_their_topic(broker, lake, release):
    """`dlq skip` of an offset leaves out that message, and not the one that has its offset in the topic made again;
    nor does one that the release before recorded by the topic's name alone."""
    broker.make("shop", BEFORE)
    broker.topics["shop"][1][5] = TopicMessage(5, b"x", b"y")
    with pytest.raises(PoisonMessage, match="dlq skip"):
        land_all(source(), lake)
    skip(lake, EventPosition("shop", 0, 5))
    if release == "before":
        record(lake, msgspec.structs.replace(recorded(lake)[EventPosition("shop", 0, 5)], topic_id=""))
    assert EventPosition("shop", 0, 5) in recorded(lake, stands(lake).identities)
    broker.make("shop", AFTER)

    land_all(source(("shop", f"{2:022}", False)), lake)

    assert EventPosition("shop", 0, 5) not in recorded(lake, stands(lake).identities)
    assert stands(lake).halted == ()
    assert landed(lake) == 5 + AFTER


@given(known=st.dictionaries(st.sampled_from("abc"), IDS), now=st.dictionaries(st.sampled_from("abc"), IDS))
def test_positions_go_on_in_their_own_topic_alone(known, now):
    """Whatever ids are stored and given: positions are kept where nothing contradicts, and another id is never read
    without somebody's word; a known id is never forgotten."""
    state = State(
        identities=known,
        positions={topic: {0: Reached(9)} for topic in "abc"},
        halted=tuple(Halt(topic, 0, 9, "code", "reason") for topic in "abc"),
    )
    found = {topic: Described((0,), topic_id) for topic, topic_id in now.items()}
    others = {topic for topic, topic_id in now.items() if known.get(topic) and topic_id not in {"", known[topic]}}
    if others:
        with pytest.raises(MadeAnew):
            recognised(state, found)
    after, _ = recognised(state, found, [(topic, now[topic], topic == "a") for topic in others])

    assert set(after.positions) == set("abc") - (others - {"a"})
    assert {halt.topic for halt in after.halted} == set(after.positions)
    assert after.identities == {**known, **{topic: now[topic] or known.get(topic, "") for topic in now}}
    assert recognised(after, found) == (after, ()), "said once"


@pytest.mark.parametrize("wrong", ["shop", "shop:short", f"other:{1:022}", f"shop:{1:022}:x"])
def test_what_made_anew_takes(wrong):
    """Only TOPIC:ID of a topic that is read, with the id as Kafka's tools print it."""
    with pytest.raises(KafkaConfigInvalid, match="made-anew"):
        parse_source(f"kafka://b:1/shop?protocol=open-protocol&made-anew={wrong}")


@pytest.mark.slow
def test_a_real_broker_tells_topics_apart(topics, lake):
    """On a real broker: 33 messages are read, the topic is deleted and made again with 101, the feed stops, and takes
    the way out."""
    name = topics.new()
    topics.produce(name, 0, [row(number) for number in range(BEFORE)])
    real = source(topics=[name], bootstrap=topics.bootstrap)
    land_all(real, lake)
    (first,) = described(real).values()
    topics.again(name)
    topics.produce(name, 0, [row(number) for number in range(AFTER)])
    (second,) = described(real).values()

    with pytest.raises(MadeAnew, match=f"its id is {second.topic_id} now, and {first.topic_id} was read"):
        land_all(real, lake)
    land_all(source((name, second.topic_id, False), topics=[name], bootstrap=topics.bootstrap), lake)

    assert len(first.topic_id) == len(second.topic_id) == 22
    assert landed(lake) == BEFORE + AFTER
