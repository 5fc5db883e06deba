"""Planning batches: fair shares, new partitions, lost history."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from tests.source.kit import OPEN
from tests.sources import topics_to_read
from tidegate.changelog.files import State
from tidegate.engine.change import EventPosition
from tidegate.engine.filter import TableFilter
from tidegate.engine.frontier import Reached
from tidegate.model.errors import ConfigError, HistoryLost, Retry, SourceError
from tidegate.model.option import Secret
from tidegate.source import kafka_fetch, kafka_land
from tidegate.source.kafka_client import Described
from tidegate.source.kafka_land import OffsetRange, Planner, TopicPlan, share, start_of

SOURCE = topics_to_read("broker:9092", ("a",), OPEN, sasl_password=Secret("secret"), max_messages_per_batch=10)
POSITIONS = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 3)), st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1
)


@pytest.fixture
def broker(monkeypatch):
    """A broker's marks, to be changed by the test: {(topic, partition): (low, high)}."""
    marks: dict[tuple[str, int], tuple[int, int]] = {("a", 0): (0, 7), ("a", 1): (0, 30)}

    def offsets(_source, wanted, *, latest):
        return {place: marks[place][latest] for place in wanted}

    def described(_source):
        return {"a": Described(tuple(sorted(number for _, number in marks)), "")}

    for module in (kafka_land, kafka_fetch):
        monkeypatch.setattr(module, "offsets", offsets)
    monkeypatch.setattr(kafka_land, "described", described)
    return marks


@given(places=POSITIONS, limit=st.integers(1, 100))
def test_shares(places, limit):
    """A batch takes what there is up to its limit, nothing backwards, and leaves no room unused."""
    starts = {place: start for place, (start, _) in places.items()}
    highs = {place: start + more for place, (start, more) in places.items()}
    ends = share(starts, highs, limit)
    taken = sum(ends[place] - starts[place] for place in starts)

    assert all(starts[place] <= ends[place] <= highs[place] for place in starts)
    assert taken == min(limit, sum(highs[place] - starts[place] for place in starts))


def test_a_long_backlog_does_not_starve_a_short_one():
    """Partitions share a batch evenly; what the short one leaves goes to the long one."""
    assert share({("a", 0): 0, ("a", 1): 0}, {("a", 0): 2, ("a", 1): 1000}, 10) == {("a", 0): 2, ("a", 1): 8}


def positions(**offsets: int) -> State:
    """Where a changelog of topic a stands: `positions(p0=7)`."""
    return State(positions={"a": {int(name[1:]): Reached(offset) for name, offset in offsets.items()}})


def test_batches_follow_each_other(broker):
    """Ends grow batch by batch until everything is read, and then there is no batch."""
    planner, at, ends = Planner(SOURCE), positions(p0=0, p1=0), []
    while ranges := planner.batch(at):
        at.positions["a"] |= {one.start.partition: Reached(one.end) for one in ranges}
        ends.append({number: one.offset for number, one in at.positions["a"].items()})

    assert ends[0] == {0: 5, 1: 5}
    assert ends[-1] == {0: 7, 1: 30}
    assert len(ends) == 4


def test_ranges_say_how_much_is_left(broker):
    """A range begins where the changelog stands, and knows the end of its partition."""
    ranges = Planner(SOURCE).batch(positions(p0=5, p1=5))

    assert ranges == [OffsetRange(EventPosition("a", 0, 5), 7, 7), OffsetRange(EventPosition("a", 1, 5), 13, 30)]


def test_a_new_partition_is_planned_even_while_empty(broker):
    """The changelog must hear of a partition before the first resolved ts that counts on it."""
    broker["a", 2] = (0, 0)

    assert Planner(SOURCE).batch(positions(p0=7, p1=30)) == [OffsetRange(EventPosition("a", 2, 0), 0, 0)]


def test_a_new_partition_begins_at_its_first_offset(broker):
    """Retention may have taken the beginning of a partition that we never read; it begins where it begins."""
    broker["a", 2] = (3, 6)

    assert Planner(SOURCE).batch(positions(p0=7, p1=30)) == [OffsetRange(EventPosition("a", 2, 3), 6, 6)]


def test_a_topic_made_anew_is_lost_history(broker):
    """An end below what was read already means another topic of the same name."""
    with pytest.raises(HistoryLost, match="topic a partition 0 offset 9 is gone: the broker has offsets 0 to 7"):
        Planner(SOURCE).batch(positions(p0=9, p1=0))


def test_a_broker_behind_itself_is_asked_later(broker, monkeypatch):
    """An end that was too low once and is not when asked again takes nothing away: the batch is tried again."""
    once = {("a", 0): 5, ("a", 1): 30}
    monkeypatch.setattr(kafka_land, "offsets", lambda *_, **__: once)
    with pytest.raises(SourceError, match="partition 0 offset 7 was out of range, but within 0 to 7") as failed:
        Planner(SOURCE).batch(positions(p0=7, p1=0))

    assert failed.value.retry is Retry.LATER


def test_start_is_heeded_and_checked(broker):
    """A feed begins where the user says, unless retention has taken that place."""
    broker["a", 1] = (10, 30)
    source = topics_to_read("b", ("a",), OPEN, start=(("a", 0, 3),))
    early = topics_to_read("b", ("a",), OPEN, start=(("a", 1, 3),))

    assert start_of(source, [("a", 0), ("a", 1)]) == {("a", 0): 3, ("a", 1): 10}
    with pytest.raises(HistoryLost, match="topic a partition 1 offset 3"):
        start_of(early, [("a", 1)])


def test_secrets_are_not_shown():
    """Neither the source nor the plan that carries it prints a password."""
    assert "secret" not in repr(SOURCE) + repr(TopicPlan(SOURCE, "lake"))


def test_a_plan_travels():
    """The plan reaches the executors with its filter."""
    plan = TopicPlan(SOURCE, "lake", TableFilter.parse(["shop.*"]).matches)
    there = pickle.loads(cloudpickle.dumps(plan))

    assert there.source == plan.source
    assert there.accept("shop", "orders")
    assert not there.accept("bank", "accounts")


@pytest.mark.parametrize("wrong", [{"order": "time"}, {"dead_letter": "drop"}, {"max_messages_per_batch": 0}])
def test_wrong_settings_are_refused(wrong):
    """A setting outside its range is named at once."""
    with pytest.raises(ConfigError):
        topics_to_read("b", ("a",), OPEN, **wrong)
