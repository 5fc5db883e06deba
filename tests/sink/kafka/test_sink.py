"""Topics as a sink: what is acknowledged before what, and what a crash or a broker that is away leaves behind."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.failpoint import TOPIC_FAILPOINTS, armed
from tests.promises import keep_promises, resolved, without_repeats
from tests.sink.kafka.test_columns import VERSIONS
from tests.sink.kafka.test_columns import made as made_log
from tests.sink.kafka.topics import FIELDS, TS, Feed, InProcess, Made, placed
from tests.source.tidb.kit import Broker, failing
from tests.source.tidb.test_transactions import Log
from tidegate.engine.filter import ColumnSelectors, SelectorRule
from tidegate.engine.plan import Checkpoint, Round, Segment, plan_ddl
from tidegate.engine.ports import SinkPosition, TableSpan
from tidegate.model.errors import ColumnSelectorFailed, DispatcherFailed, EncodeError, SinkError
from tidegate.model.event import Delete, Insert, Resolved, RowChange, Update
from tidegate.model.path_counts import PathCounts
from tidegate.model.table import TableName
from tidegate.schema.infer import infer_table
from tidegate.schema.state import SchemaState
from tidegate.schema.stored.snapshot import table_info
from tidegate.sink import kafka_topics as known_topics
from tidegate.source.tidb_changes import LogChanges
from tidegate.source.tidb_log import name_of
from tidegate.testing.validators import ddls, event_text, rows

PROTOCOLS = ("open-protocol", "canal-json")
BY_TABLE = ({"matcher": ["s.*"], "topic": "of_{table}"},)
ALTER = "ALTER TABLE `s`.`t` COMMENT = 'x'"


def insert(ts: int, key: int, day: int = 1, table: str = "t", schema: str = "s") -> Insert:
    """A row that comes."""
    return Insert(schema=schema, table=table, fields=FIELDS, after=(key, day), commit_ts=ts)


def delete(ts: int, key: int, day: int = 1, table: str = "t") -> Delete:
    """A row that goes."""
    return Delete(schema="s", table=table, fields=FIELDS, before=(key, day), commit_ts=ts)


def update(ts: int, key: int, old: int, new: int, table: str = "t") -> Update:
    """A row whose day changes."""
    return Update(schema="s", table=table, fields=FIELDS, before=(key, old), after=(key, new), commit_ts=ts)


def story() -> Made:
    """Rows of two tables before, at and behind a DDL of each."""
    every: list[RowChange] = []
    for number in range(40):
        table = "tu"[number % 2]
        every += [insert(TS + number, number, table=table), update(TS + 50 + number, number, 1, 2, table)]
    ddl = placed(TS + 30, ALTER), placed(TS + 60, "ALTER TABLE `s`.`u` COMMENT = 'y'", "u")
    return Made(every, ddl, upto=TS + 200)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rows_ddls_and_resolved_timestamps(protocol: str) -> None:
    """Every row is there in commit order, DDLs behind the rows of their ts, and each end of a round in every
    partition; the checkpoint is what was told last."""
    feed = Feed(protocol, BY_TABLE)
    position = feed.carry(story())
    events = feed.events()

    keep_promises(events, protocol)
    assert sum(len(rows(held)) for held in events.values()) == 80
    assert set(events) == {(topic, at) for topic in ("feed", "of_t", "of_u") for at in range(3)}
    marks = [resolved(held) for held in events.values()]
    assert marks == [marks[0]] * 9
    assert marks[0] == [TS + 30, TS + 60, TS + 200]
    assert position.checkpoint == Checkpoint(TS + 200)
    assert feed.kept.saved is not None
    assert feed.kept.saved.notes == {"topics": ["feed", "of_t", "of_u"]}
    assert feed.kept.holders == 0


def test_ddls_go_where_ticdc_sends_them() -> None:
    """Open Protocol has a DDL in every partition of its topic, canal-json in the first; a RENAME goes by the old
    name, and canal's word becomes TiDB's action."""
    rename = placed(TS + 9, "RENAME TABLE `s`.`t` TO `s`.`v`", "v", kind=None)
    word = replace_ddl(placed(TS + 5, "CREATE TABLE `s`.`t` (id INT PRIMARY KEY)", kind=None), canal_type="CREATE")
    for protocol, partitions in (("open-protocol", [0, 1, 2]), ("canal-json", [0])):
        feed = Feed(protocol, BY_TABLE)
        feed.carry(Made([], [word, replace_ddl(rename, canal_type="RENAME")], upto=TS + 20))
        found = {place: [ddl.query for ddl in ddls(held)] for place, held in feed.events().items() if ddls(held)}
        assert sorted(found) == [("of_t", at) for at in partitions]
        assert all(texts == [word.ddl.query, rename.ddl.query] for texts in found.values())
        if protocol == "open-protocol":
            assert [ddl.type for ddl in ddls(feed.events()["of_t", 0])] == [3, 14]


def replace_ddl(one: Any, **given: Any) -> Any:
    """A DDL with other words."""
    return msgspec.structs.replace(one, ddl=msgspec.structs.replace(one.ddl, **given))


def test_a_ddl_that_the_protocol_cannot_say() -> None:
    """The error names its ts and its text, and rows before it are there."""
    feed = Feed("open-protocol")
    source = Made([insert(TS, 1)], [placed(TS + 1, "ALTER TABLE t FROBNICATE", kind=None)], upto=TS + 9)

    with pytest.raises(EncodeError, match=rf"DDL at ts {TS + 1}: .*action code.*ALTER TABLE t FROBNICATE"):
        feed.carry(source)

    assert sum(len(rows(held)) for held in feed.events().values()) == 1
    assert feed.kept.saved is None


def test_a_late_ddl() -> None:
    """One that comes when its ts is resolved already is sent, and nothing is resolved again."""
    feed = Feed()
    sink = feed.sink()
    sink.open(sink.recover())
    position = sink.advance(Round((), SchemaState(), Checkpoint(TS), (), ()), [])
    sink.ddl(plan_ddl(SchemaState(), placed(TS, ALTER)))
    sink.advance(Round((), SchemaState(), Checkpoint(TS, ("done",)), (), ()), [])

    assert position == SinkPosition(Checkpoint(TS), SchemaState())
    for held in feed.events().values():
        assert [type(event).__name__ for event in held] == ["Resolved", "Ddl"]
    assert feed.kept.saved is not None
    assert feed.kept.saved.position.checkpoint.done == ("done",)


class Killed(BaseException):
    """Ends a feed as SIGKILL would."""


def dying(nth: int) -> Callable[[], None]:
    """Dies at the nth call."""
    left = [None] * nth

    def die() -> None:
        left.pop()
        if not left:
            raise Killed

    return die


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("place", TOPIC_FAILPOINTS)
def test_a_kill_loses_nothing(place: str, protocol: str) -> None:
    """Whoever starts again sends what follows the checkpoint in the same order: without repetitions each partition is
    that of a feed that nobody killed."""
    calm, feed = Feed(protocol, BY_TABLE), Feed(protocol, BY_TABLE)
    calm.carry(story())
    for nth in (1, 2):
        try:
            with armed({place: dying(nth)}):
                feed.carry(story())
        except Killed:
            continue
    feed.carry(story())

    found = {at: without_repeats(held) for at, held in feed.events().items()}
    assert found == {at: without_repeats(held) for at, held in calm.events().items()}
    assert feed.kept.saved == calm.kept.saved


@pytest.mark.slow
@pytest.mark.parametrize("nth", range(0, 200, 9))
def test_a_broker_that_is_away(nth: int) -> None:
    """A call that raised SinkError may be made again: its producer is dropped, with what waited in it."""
    feed, calm = Feed(dispatchers=BY_TABLE), Feed(dispatchers=BY_TABLE)
    calm.carry(story())
    feed.broker.refuse = failing([nth])
    try:
        feed.carry(story())
    except SinkError:
        feed.carry(story())

    found = {at: without_repeats(held) for at, held in feed.events().items()}
    assert found == {at: without_repeats(held) for at, held in calm.events().items()}


def test_the_next_call_has_a_new_producer() -> None:
    """What waits in the queue of a failed producer never comes behind what is sent again."""
    feed, made = Feed(), []
    feed.target = msgspec.structs.replace(feed.target)
    writer = type(feed.target).writer
    counted = type("Counted", (type(feed.target),), {"writer": lambda self: made.append(writer(self)) or made[-1]})
    feed.target = counted(**{name: getattr(feed.target, name) for name in feed.target.__struct_fields__})
    sink = feed.sink()
    sink.open(sink.recover())
    feed.broker.refuse = failing([0])

    with pytest.raises(SinkError):
        sink.ddl(plan_ddl(SchemaState(), placed(TS, ALTER)))
    sink.ddl(plan_ddl(SchemaState(), placed(TS, ALTER)))

    assert len(made) == 2
    assert not made[0].queue
    assert [len(ddls(held)) for held in feed.events().values()] == [1, 1, 1]


@pytest.mark.parametrize("gone", ["DROP TABLE `s`.`u`", "RENAME TABLE `s`.`u` TO `away`.`u`", "DROP DATABASE `s`"])
def test_a_topic_without_a_table(gone: str) -> None:
    """It is resolved all the same, by later feeds, too, until an operator deletes it: then nobody makes it."""
    feed = Feed(dispatchers=BY_TABLE, rules=("s.*",))
    kind, schema, table = {"D": (4, "s", "u"), "R": (14, "away", "u")}[gone[0]]
    table = "" if "DATABASE" in gone else table
    feed.carry(Made([insert(TS, 1, table="u")], [placed(TS + 5, gone, table, schema, kind)], upto=TS + 9))
    assert {resolved(held)[-1] for (topic, _), held in feed.events().items() if topic == "of_u"} == {TS + 9}
    before = {at: without_repeats(held) for at, held in feed.events().items() if at[0] == "of_u"}

    feed.carry(Made(upto=TS + 20))
    assert {(topic, resolved(held)[-1]) for (topic, _), held in feed.events().items()} == {
        ("feed", TS + 20),
        ("of_u", TS + 20),
    }
    feed.broker.deleted.add("of_u")
    feed.carry(Made(upto=TS + 30))
    assert feed.broker.deleted == {"of_u"}
    assert {at: without_repeats(held) for at, held in feed.events().items() if at[0] == "of_u"} == before


def test_a_deleted_topic_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that stays missing is no note of the checkpoint any more."""
    monkeypatch.setattr(known_topics, "FORGET_S", 0)
    feed = Feed(dispatchers=BY_TABLE)
    source = Made([insert(TS, 1)], [placed(TS + 5, "DROP TABLE `s`.`t`", kind=4)], upto=TS + 9)
    feed.carry(source)
    feed.broker.deleted.add("of_t")
    feed.carry(Made(upto=TS + 20))

    assert feed.kept.saved is not None
    assert feed.kept.saved.notes == {"topics": ["feed"]}


def test_active_topics() -> None:
    """Those of tables that the rules take and whose rows can be told apart, or are wanted all the same."""
    bare = infer_table(TableName("s", "bare"), tuple(replace_field(field) for field in FIELDS), None, 1)
    keyed = infer_table(TableName("s", "t"), FIELDS, None, 1)
    out = infer_table(TableName("away", "u"), FIELDS, None, 1)
    state = SchemaState().with_table(bare).with_table(keyed).with_table(out)
    found = []
    for force in (False, True):
        feed = Feed(dispatchers=({"matcher": ["*.*"], "topic": "{schema}_{table}"},), rules=("s.*",), force=force)
        sink = feed.sink()
        sink.open(SinkPosition(Checkpoint(), state))
        sink.advance(Round((), state, Checkpoint(TS), (), ()), [])
        found.append({topic for topic, _ in feed.events()})

    assert found == [{"feed", "s_t"}, {"feed", "s_t", "s_bare"}]


def replace_field(field: Any) -> Any:
    """A column that is part of no key."""
    return msgspec.structs.replace(field, flag=64, handle=False)


def test_rules_that_do_not_fit() -> None:
    """Are told before the first round, with the table."""
    state = SchemaState().with_table(infer_table(TableName("s", "t"), FIELDS, None, 1))
    columns = {"matcher": ["*.*"], "partition": "columns", "columns": ["nowhere"]}
    with pytest.raises(DispatcherFailed, match=r"'nowhere' of s\.t"):
        Feed(dispatchers=(columns,)).sink().open(SinkPosition(Checkpoint(), state))

    feed = Feed()
    feed.target = msgspec.structs.replace(feed.target, selectors=ColumnSelectors.of([SelectorRule(("s.t",), ("day",))]))
    with pytest.raises(ColumnSelectorFailed, match=r"s\.t"):
        feed.sink().open(SinkPosition(Checkpoint(), state))


def test_messages_fit_the_topic() -> None:
    """No message is larger than the default topic takes, whatever the address asks for."""
    broker = Broker(1)
    broker.max_bytes = 700
    feed = Feed(broker=broker)
    feed.carry(Made([insert(TS + number, number) for number in range(200)], upto=TS + 300))

    sizes = [len(key or b"") + len(value) for key, value in broker.messages["feed", 0]]
    assert max(sizes) < 700
    assert sum(len(rows(held)) for held in feed.events().values()) == 200


def test_groups_of_tasks() -> None:
    """However many tasks there are, the topic is the same; results say what was written."""
    topics, counts = [], []
    for slots in (1, 2, 5):
        feed = Feed(dispatchers=({"matcher": ["s.t"], "partition": "index-value"},))
        sink, source = feed.sink(), story().slice(0, TS + 20)
        tables = [infer_table(name, FIELDS, None, 1) for name in source.tables()]
        sink.open(sink.recover())
        results = sink.run(InProcess(slots), Segment(0, TS + 20, tuple(tables)), source)
        topics.append(feed.events())
        counts.append(sum(result.rows for result in results))
        assert sum(result.messages for result in results) == sum(map(len, feed.broker.messages.values()))
        assert {(result.name, result.ahead, result.corrupt) for result in results} == {(None, 0, 0)}
        paths = sum((result.path_counts for result in results), PathCounts()).by_path()
        assert sum(count for path, count in paths.items() if "encode" in path) == 21

    assert topics[0] == topics[1] == topics[2]
    assert counts == [21, 21, 21]
    assert not any(isinstance(event, Resolved) for held in topics[0].values() for event in held)


class Spanned(Log):
    """A log that gives the rows of the spans that are asked for."""

    def windows(self, low: int, high: int, spans: Any) -> Any:
        """Those rows."""
        inside = [row for row in self if any(first <= row.key < last for first, last in spans)]
        return Log(inside).windows(low, high, spans)


class LogRows(LogChanges):
    """Rows of a log in memory, which tells nothing without being read."""

    def tables(self) -> dict[TableName, TableSpan]:
        """The tables, each with as many rows as there are."""
        return {name_of(version): TableSpan(len(self.log), 0, 1 << 60) for version in self.versions}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rows_of_a_change_log(protocol: str) -> None:
    """Batches that bring their definition need none of the round; handles stand in Open Protocol's keys, and tasks
    share the partitions."""
    log = Spanned(made_log(7))
    tables = [table_info(one.stored, one.schema, one.version, every_state=True) for one in VERSIONS]
    topics = []
    for slots, columns in ((1, False), (3, True)):
        feed = Feed(protocol, ({"matcher": ["db.a"], "partition": "index-value"},))
        sink = feed.sink()
        sink.open(sink.recover())
        changes = LogRows(log, 1, 1 << 60, VERSIONS, columns=columns)
        results = sink.run(InProcess(slots), Segment(1, 1 << 60, tuple(tables)), changes)
        topics.append(feed.events())
        assert sum(result.rows for result in results) == sum(len(rows(held)) for held in topics[-1].values())

    keep_promises(topics[0], protocol)
    assert [{at: list(map(event_text, held)) for at, held in one.items()} for one in topics[:1]] == [
        {at: list(map(event_text, held)) for at, held in one.items()} for one in topics[1:]
    ]
    if protocol == "open-protocol":
        assert all(row.row_id for held in topics[0].values() for row in rows(held) if key_of(row))


def key_of(row: RowChange) -> object:
    """The id of a row."""
    image = row.before if isinstance(row, Delete) else row.after
    return next(value for field, value in zip(row.fields, image, strict=True) if field.name == "id")
