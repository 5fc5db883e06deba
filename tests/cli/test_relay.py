"""Where events go, and in which order, without a broker."""

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from tidegate.cli.relay import Relay, RelayTarget
from tidegate.codec import BatchEncoder, decode, encode_options, from_config
from tidegate.engine.dispatch import dispatch_rules
from tidegate.model.errors import EncodeError
from tidegate.model.event import Ddl, Delete, Field, Insert, Resolved, Update
from tidegate.sink import kafka_topics as known_topics
from tidegate.sink.kafka_topics import KnownTopics

FIELDS = (Field("id", 3, 11, binary=True, handle=True), Field("day", 3, 65, binary=True))
TS = 470606743881121792
CONFIG = {"open-protocol": {}, "canal-json": {"enable-tidb-extension": True}}


class Written:
    """A writer that keeps what it is given, and how often it was flushed before."""

    def __init__(self, partitions: int) -> None:
        self.count, self.flushes = partitions, 0
        self.sent: list[tuple[str, int, Any, int]] = []
        self.protocol = ""
        self.made: list[str] = []
        self.gone: set[str] = set()

    def partitions(self, topic: str) -> int:
        """As many as was said."""
        self.made.append(topic)
        return self.count

    def existing(self, topics: Collection[str]) -> dict[str, int]:
        """Those that nobody has deleted."""
        return {topic: self.count for topic in topics if topic not in self.gone}

    def forget(self, topics: Collection[str]) -> None:
        """There is nobody to be asked."""

    def send(self, topic: str, partition: int, key: bytes | None, value: bytes) -> None:
        """Keeps the events of a message."""
        for event in decode(key, value, from_config({"protocol": self.protocol})):
            self.sent.append((topic, partition, event, self.flushes))

    def flush(self) -> None:
        """Counts."""
        self.flushes += 1


def played(
    protocol: str,
    rules: list[dict[str, Any]],
    *events: Any,
    partitions: int = 4,
    before: Sequence[str] = (),
    gone: Sequence[str] = (),
) -> Written:
    """What a relay writes for these events; topics of `before` were written to by an earlier run, some are `gone`."""
    writer = Written(partitions)
    writer.protocol = protocol
    writer.gone.update(gone)
    target = RelayTarget("all", encode_options({**CONFIG[protocol], "protocol": protocol}), dispatch_rules(rules))
    known = KnownTopics(lambda: writer, BatchEncoder(target.options, now_ms=lambda: 7))  # type: ignore[arg-type,return-value]
    known.note(before)

    def refused(place: str, error: EncodeError) -> None:
        raise AssertionError((place, error))

    relay = Relay(target, writer, known, now_ms=lambda: 7, refused=refused)  # type: ignore[arg-type]
    relay.send(events)
    relay.flush()
    return writer


def insert(ts: int, key: int, day: int = 1, table: str = "t") -> Insert:
    """A row."""
    return Insert(schema="s", table=table, fields=FIELDS, after=(key, day), commit_ts=ts)


def test_an_update_that_moves_its_row_is_split() -> None:
    """With `columns`, each half goes where its key belongs, and both have the update's timestamp."""
    moved = Update(schema="s", table="t", fields=FIELDS, before=(1, 1), after=(1, 2), commit_ts=TS)
    same = Update(schema="s", table="t", fields=FIELDS, before=(1, 2), after=(3, 2), commit_ts=TS + 1)
    rules = [{"matcher": ["*.*"], "partition": "columns", "columns": ["day"]}]
    found = played("canal-json", rules, moved, insert(TS + 2, 9, 1), insert(TS + 2, 9, 2), same, partitions=64)
    kinds = [(type(event), partition) for _, partition, event, _ in found.sent]
    places = {event.after[1]: at for _, at, event, _ in found.sent if isinstance(event, Insert) and event.after[0] == 9}
    assert kinds[:2] == [(Delete, places[1]), (Insert, places[2])]
    assert places[1] != places[2]


def test_ddls_and_watermarks_of_both_protocols() -> None:
    """Open Protocol has a DDL in every partition, canal-json in the first; watermarks are everywhere."""
    events = (insert(TS, 1), Ddl(schema="s", table="t", query="ALTER TABLE t COMMENT 'x'", commit_ts=TS, type=17))
    for protocol, expected in (("open-protocol", [0, 1, 2, 3]), ("canal-json", [0])):
        found = played(protocol, [], *events, Resolved(TS))
        assert [at for _, at, event, _ in found.sent if isinstance(event, Ddl)] == expected
        assert [at for _, at, event, _ in found.sent if isinstance(event, Resolved)] == [0, 1, 2, 3]


def test_rows_are_with_the_broker_before_a_ddl_is_sent() -> None:
    """A DDL goes out behind a flush, and what follows it behind another one."""
    alter = Ddl(schema="s", table="t", query="ALTER TABLE t COMMENT 'x'", commit_ts=TS, type=17)
    found = played("open-protocol", [], insert(TS, 1), alter, insert(TS + 1, 2), partitions=1)
    assert [(type(event), flushes) for _, _, event, flushes in found.sent] == [(Insert, 0), (Ddl, 1), (Insert, 2)]


def test_topics_of_tables() -> None:
    """A table's rows and DDLs go to its topic, a RENAME by the old name, watermarks to all topics in use."""
    rules = [{"matcher": ["s.*"], "topic": "of_{table}"}]
    rename = Ddl(schema="s", table="u", query="RENAME TABLE `s`.`t` TO `s`.`u`", commit_ts=TS, type=14)
    made = Ddl(schema="s", table="", query="CREATE DATABASE s", commit_ts=TS - 5, type=1)
    found = played("canal-json", rules, made, insert(TS - 1, 1), rename, insert(TS + 1, 1, table="u"), Resolved(TS + 1))
    topics = [topic for topic, _, event, _ in found.sent if not isinstance(event, Resolved)]
    assert topics == ["all", "of_t", "of_t", "of_u"]
    marks = {(topic, at) for topic, at, event, _ in found.sent if isinstance(event, Resolved)}
    assert marks == {(topic, at) for topic in ("all", "of_t", "of_u") for at in range(4)}


def marks(written: Written, ts: int) -> set[str]:
    """The topics, all partitions of which have the watermark."""
    found = {(topic, at) for topic, at, event, _ in written.sent if isinstance(event, Resolved) and event.ts == ts}
    topics = {topic for topic, _ in found}
    assert found == {(topic, at) for topic in topics for at in range(written.count)}
    return topics


@pytest.mark.parametrize(
    ("query", "table"),
    [
        ("DROP TABLE `s`.`t`", "t"),
        ("drop table S.T", "t"),
        ("DROP DATABASE s", ""),
        ("ALTER TABLE s.t RENAME TO x.t", "t"),
    ],
)
def test_a_topic_whose_last_table_is_gone(query: str, table: str) -> None:
    """Its watermarks go on; once somebody has deleted it, nobody makes it."""
    rules = [{"matcher": ["s.*"], "topic": "of_{table}"}]
    schema = "x" if "x.t" in query else "s"
    gone = Ddl(schema=schema, table=table, query=query, commit_ts=TS + 2, type=4)
    events = insert(TS, 1), insert(TS, 1, table="u"), Resolved(TS + 1), gone, Resolved(TS + 3)
    there, not_there = played("canal-json", rules, *events), played("canal-json", rules, *events, gone=["of_t"])

    assert marks(there, TS + 1) == marks(not_there, TS + 1) == {"all", "of_t", "of_u"}
    assert marks(there, TS + 3) == {"all", "of_t", "of_u"}
    assert marks(not_there, TS + 3) == {"all", "of_u"}


def test_topics_of_an_earlier_run(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are resolved before their first row comes; one that is gone is told once, and made when a row comes."""
    monkeypatch.setattr(known_topics, "FORGET_S", 0)
    rules = [{"matcher": ["s.*"], "topic": "of_{table}"}]
    events = Resolved(TS), Resolved(TS + 1), insert(TS + 2, 1), Resolved(TS + 2)
    found = played("open-protocol", rules, *events, before=["all", "of_t", "of_u"], gone=["of_t"])

    assert marks(found, TS) == marks(found, TS + 1) == {"all", "of_u"}
    assert marks(found, TS + 2) == {"all", "of_t", "of_u"}
    assert caplog.text.count("of_t has no tables any more") == 1
    assert "of_u" not in found.made


def test_an_index_is_known_by_the_ddls_before() -> None:
    """`index` needs the definition of a table, which the topic itself brings."""
    create = Ddl(
        schema="s",
        table="t",
        query="CREATE TABLE t (id INT PRIMARY KEY, day INT NOT NULL, UNIQUE KEY by_day (day))",
        commit_ts=TS,
        type=3,
    )
    rules = [{"matcher": ["*.*"], "partition": "index-value", "index": "by_day"}]
    found = played(
        "canal-json", rules, create, insert(TS + 1, 1, 7), insert(TS + 2, 2, 7), insert(TS + 3, 1, 8), partitions=64
    )
    places = [at for _, at, event, _ in found.sent if isinstance(event, Insert)]
    assert places[0] == places[1] != places[2]


def test_a_cut_row_stays_in_its_place() -> None:
    """Rows with fewer columns than others of their table are not sent before or after them."""
    cut = Delete(schema="s", table="t", fields=FIELDS[:1], before=(2,), commit_ts=TS, handle_only=True)
    found = played("open-protocol", [], insert(TS, 1), cut, insert(TS, 2))
    assert [type(event) for _, _, event, _ in found.sent] == [Insert, Delete, Insert]
