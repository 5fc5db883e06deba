"""Topics whose last table is gone: they are resolved as before, over every restart, until an operator deletes them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.config.test_feed import Killed
from tests.engine.test_chain import Upstream
from tests.failpoint import TOPIC_FAILPOINTS, armed
from tests.promises import resolved, without_repeats
from tests.source.tidb.kit import Broker, Run, feed, target
from tidegate.sink import kafka_topics as known_topics

pytestmark = pytest.mark.slow

PROTOCOLS = ("open-protocol", "canal-json")
DISPATCHERS = ({"matcher": ["test.b"], "topic": "other"}, {"matcher": ["test.view*"], "topic": "views"})
WAYS = {
    "dropped": "DROP TABLE b",
    "renamed out of the filter": "RENAME TABLE b TO away.b",
    "dispatched elsewhere": "RENAME TABLE b TO d",
    "dropped with its database": "DROP DATABASE test",
}


class Chain:
    """An upstream, and feeds of its log into a broker in memory: table b has a topic of its own."""

    def __init__(self, home: Path, protocol: str = "open-protocol") -> None:
        self.log, self.state, self.protocol = home / "log", home / "state", protocol
        self.upstream, self.broker = Upstream(1, self.log), Broker()
        self.upstream.run("CREATE DATABASE away; INSERT INTO a VALUES (1, 1, 1); INSERT INTO b VALUES (1, 1, 1)")

    def carry(self, *statements: str, rules: Sequence[str] = ("test.*",)) -> Run:
        """A new feed carries what there is and what these statements do."""
        for statement in statements:
            self.upstream.run(statement)
        self.upstream.writer.write(empty=True)
        one = feed(self.log, target(self.broker, self.protocol, DISPATCHERS), self.state, rules=rules)
        one.run(idle_s=0)
        return one

    def last(self) -> dict[str, set[int]]:
        """The last resolved ts of every topic's partitions."""
        found: dict[str, set[int]] = {}
        for (topic, _), events in self.broker.events(self.protocol).items():
            found.setdefault(topic, set()).add(resolved(events)[-1])
        return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("way", WAYS)
def test_a_topic_without_a_table_is_resolved(tmp_path: Path, way: str, protocol: str) -> None:
    """However the last table went, all partitions of its topic are told each resolved ts, by the feed that saw it go
    and by those that come later; nothing else is written there."""
    chain = Chain(tmp_path, protocol)
    chain.carry()
    one = chain.carry(WAYS[way])
    assert chain.last() == {"feed": {one.checkpoint}, "other": {one.checkpoint}}
    held = {at: without_repeats(events) for at, events in chain.broker.events(protocol).items() if at[0] == "other"}

    before = one.checkpoint
    for number in range(2):
        one = chain.carry(f"CREATE TABLE away.n{number} (id INT PRIMARY KEY)")
        assert one.checkpoint > before
        assert chain.last() == {"feed": {one.checkpoint}, "other": {one.checkpoint}}
    after = {at: without_repeats(events) for at, events in chain.broker.events(protocol).items() if at[0] == "other"}
    assert after == held
    assert sum(map(len, held.values())) > 1


def test_a_topic_that_had_but_a_ddl(tmp_path: Path) -> None:
    """A view has no rows, and its topic nothing but the statement that makes it: it is resolved as well."""
    chain = Chain(tmp_path)
    one = chain.carry("CREATE VIEW view1 AS SELECT 1 AS one")
    assert ("views", 0) in chain.broker.messages
    assert chain.last() == {topic: {one.checkpoint} for topic in ("feed", "other", "views")}


def dying(nth: int) -> Callable[[], None]:
    """Dies at the nth call."""
    left = [None] * nth

    def die() -> None:
        left.pop()
        if not left:
            raise Killed

    return die


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("place", TOPIC_FAILPOINTS)
def test_a_kill_forgets_no_topic(tmp_path: Path, place: str, nth: int) -> None:
    """A feed that dies while the table comes and goes leaves what it takes to find the topic again."""
    chain = Chain(tmp_path)
    with armed({place: dying(nth)}):
        for _ in range(2):
            try:
                chain.carry("REPLACE INTO a VALUES (2, 2, 2)", "DROP TABLE IF EXISTS b")
            except Killed:
                break
    one = chain.carry("REPLACE INTO a VALUES (3, 3, 3)")

    assert chain.last() == {"feed": {one.checkpoint}, "other": {one.checkpoint}}


def test_a_topic_that_is_missing_for_a_moment(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broker that does not know a topic may have just started: the feed goes on, and the topic is not forgotten."""
    chain = Chain(tmp_path)
    chain.carry("DROP TABLE b")
    chain.broker.deleted.add("other")
    before = chain.last()["other"]
    one = chain.carry("REPLACE INTO a VALUES (2, 2, 2)")
    assert chain.broker.deleted == {"other"}
    assert chain.last() == {"feed": {one.checkpoint}, "other": before}
    assert "other" not in caplog.text

    chain.broker.deleted.clear()
    one = chain.carry("REPLACE INTO a VALUES (3, 3, 3)")
    assert chain.last() == {"feed": {one.checkpoint}, "other": {one.checkpoint}}


def test_a_deleted_topic_is_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told once, by one line; nobody makes it, neither this feed nor the next one, and both go on. A table that
    comes back makes it."""
    monkeypatch.setattr(known_topics, "FORGET_S", 0)
    chain = Chain(tmp_path)
    chain.carry("DROP TABLE b")
    chain.broker.deleted.add("other")
    messages = {at: len(held) for at, held in chain.broker.messages.items() if at[0] == "other"}
    for number in range(2):
        one = chain.carry(f"REPLACE INTO a VALUES ({number}, 2, {number})")
        assert chain.last()["feed"] == {one.checkpoint}
        assert json.loads((chain.state / "feed.json").read_bytes())["notes"] == {"topics": ["feed"]}
    assert chain.broker.deleted == {"other"}
    assert {at: len(held) for at, held in chain.broker.messages.items() if at[0] == "other"} == messages
    assert [text for text in caplog.messages if "other" in text] == [
        "topic other has no tables any more and was deleted at the broker: it no longer gets resolved timestamps"
    ]

    one = chain.carry("CREATE TABLE b (id INT PRIMARY KEY)")
    assert not chain.broker.deleted
    assert chain.last() == {"feed": {one.checkpoint}, "other": {one.checkpoint}}


def test_a_deleted_topic_with_a_table_is_made_anew(tmp_path: Path) -> None:
    """It is no retired one: the next feed makes it, as it makes any topic of a table."""
    chain = Chain(tmp_path)
    chain.carry()
    chain.broker.deleted.add("other")
    one = chain.carry("REPLACE INTO a VALUES (2, 2, 2)")

    assert not chain.broker.deleted
    assert chain.last()["other"] == {one.checkpoint}


def test_a_table_that_other_rules_bring_in(tmp_path: Path) -> None:
    """Its topic is resolved from the next start on, before any row of it comes."""
    chain = Chain(tmp_path)
    chain.carry(rules=("test.a",))
    assert set(chain.last()) == {"feed"}
    one = chain.carry()

    assert chain.last() == {"feed": {one.checkpoint}, "other": {one.checkpoint}}


def test_a_checkpoint_from_before(tmp_path: Path) -> None:
    """One that names no topics is taken up; those of living tables are known then."""
    chain = Chain(tmp_path)
    chain.carry()
    path = chain.state / "feed.json"
    kept = json.loads(path.read_bytes())
    assert kept.pop("notes") == {"topics": ["feed", "other"]}
    path.write_text(json.dumps(kept))
    one = chain.carry("DROP TABLE b")

    assert chain.last()["other"] == {one.checkpoint}


@pytest.mark.parametrize("topics", [(), ("feed", "views")])
def test_a_checkpoint_of_an_earlier_release(tmp_path: Path, topics: tuple[str, ...]) -> None:
    """It has no schema and its topics elsewhere: the log knows the tables, so all topics are resolved as before."""
    chain = Chain(tmp_path)
    one = chain.carry("CREATE VIEW view1 AS SELECT 1 AS one")
    old = {"changefeed": "feed", "checkpoint_ts": one.checkpoint, "source": "log", "topic": "feed", "topics": topics}
    for path in chain.state.glob("feed.*"):
        path.unlink()
    (chain.state / "feed.json").write_text(json.dumps(old | {"protocol": "open-protocol"}))
    before = one.checkpoint
    one = chain.carry("INSERT INTO a VALUES (5, 5, 5)")

    assert one.reports[-1].resumed
    last = chain.last()
    assert (last["feed"], last["other"]) == ({one.checkpoint}, {one.checkpoint})
    assert last["views"] == {one.checkpoint if topics else before}
