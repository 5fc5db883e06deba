"""Under dead-letter=skip no message ends a feed, whatever was changed in it: good rows arrive, and what does not is
listed."""

from pathlib import Path

import pytest

from tests.counts import some
from tests.replay.hostile import TABLES, Topic, differences
from tests.replay.hostile_kinds import Message, pieces
from tests.replay.mutated import GOOD, mutated_topic, tell_good
from tests.replay.stage import Stage
from tests.replay.test_hostile_topic import Landed
from tests.sink.kafka.topics import Feed
from tidegate.changelog.source import LandedSource
from tidegate.codec import decode
from tidegate.codec.options import DecodeOptions
from tidegate.engine.change import DeadLetter
from tidegate.engine.ports import LocalTasks
from tidegate.lakes.lake import Lake
from tidegate.model.errors import SchemaError
from tidegate.model.event import Ddl, Field, Insert, Resolved, Update
from tidegate.model.mysql import MysqlType
from tidegate.model.name import qualified
from tidegate.model.table import TableName
from tidegate.sink.search import SearchSink
from tidegate.sink.search_embedded import EmbeddedStore
from tidegate.testing.script import run_here

pytestmark = pytest.mark.slow

PROTOCOLS = ["open-protocol", "canal-json"]
MODES = ["replica", "changelog", "history"]
DDLS = {0, 1}
"""A changed row of an earlier time may stand before the DDLs of its table, which then do not fit."""


def played(root: Path, given: Topic, **mode: str) -> dict[int, DeadLetter]:
    """Play a topic to its end into a lake; the dead letters."""
    stage = Stage(root, given.protocol, {0: given.messages}, skips_dead=True, **mode)
    while stage.land(1_000):
        pass
    assert stage.landing.exception() is None
    assert stage.round() >= given.ts
    stage.log.refresh()
    return {letter.position.offset: letter for letter in stage.log.dead_letters()}


def lacking(lake: Lake, given: Topic) -> dict[str, set[int]]:
    """The keys of good rows that a lake lacks."""
    keys = {name: {row[0] for row in given.truth[name]} for name in GOOD}
    have = {name: set(map(int, lake.arrow(qualified(*name)).column("id").to_pylist())) for name in GOOD}
    return {str(name): keys[name] - have[name] for name in GOOD if keys[name] - have[name]}


def unlisted(lake: Lake, given: Topic, letters: dict[int, DeadLetter]) -> list[str]:
    """Rows of changed messages that neither arrived nor are listed, as far as no changed DDL is in between."""
    options = DecodeOptions(protocol=given.protocol)
    told = [event for at in set(given.bad) - set(letters) for event in decode(*given.messages[at][1:], options)]
    if any(isinstance(event, Ddl) for event in told):
        return []
    tables = {lake.definition(name).name.key: name for name in lake.tables()}
    upto = lake.snapshot.checkpoint.ts
    rows = [event for event in told if isinstance(event, Insert | Update) and (event.commit_ts or 0) <= upto]
    return [str(event) for event in rows if not is_there(lake, tables, event)]


def is_there(lake: Lake, tables: dict[tuple[str, str], str], row: Insert | Update) -> bool:
    """Whether a table has the row, by the column that all tables here have for their key."""
    name = tables.get(TableName(row.schema, row.table).key)
    if name is None:
        return False
    key, stored = dict(zip([field.name for field in row.fields], row.after, strict=True)).get("id"), lake.arrow(name)
    if key is None or "id" not in stored.column_names:
        return stored.num_rows > 0
    return _text(key) in set(map(_text, stored.column("id").to_pylist()))


def _text(value: object) -> str:
    """A value as text, be its column of bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mode", MODES)
def test_into_a_lake(tmp_path: Path, protocol: str, mode: str) -> None:
    """Good rows arrive, only changed messages are dead letters, and a changed row arrives or is one."""
    for seed in range(some(8, 3_000)):
        given, root = mutated_topic(protocol, 12, seed), tmp_path / str(seed)
        letters = played(root, given, mode=mode)
        lake = Lake(str(root))
        assert set(letters) - set(given.bad) <= DDLS, seed
        assert lacking(lake, given) == {}, seed
        assert unlisted(lake, given, letters) == [], seed


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("target", ["topic", "search"])
def test_into_other_targets(tmp_path: Path, protocol: str, target: str) -> None:
    """A feed into a topic of the other protocol, or into search indexes, ends as it should, too."""
    for seed in range(some(6, 1_500)):
        given, root = mutated_topic(protocol, 12, seed), str(tmp_path / str(seed))
        source = LandedSource(
            lambda root=root, given=given: Landed(  # type: ignore[misc]
                root, "f", DecodeOptions(protocol=protocol), {0: given.messages}, skip_dead=True
            ),
            root,
        )
        (other,) = set(PROTOCOLS) - {protocol}
        sink = Feed(other).sink() if target == "topic" else SearchSink(EmbeddedStore(f"{root}-search", "f"))
        done = run_here(source, sink, tasks=LocalTasks(pickles=False))
        assert done.checkpoint_ts >= given.ts, seed
        source.changelog.refresh()
        assert {letter.position.offset for letter in source.changelog.dead_letters()} - set(given.bad) <= DDLS, seed


def no_columns(message: Message) -> None:
    message.value["u" if message.open else "data"] = {} if message.open else [{}]


def key_of_no_column(message: Message) -> None:
    message.value["pkNames"] = ["nope"]


def column_without_a_name(message: Message) -> None:
    message.column("\0", 1, 3, "int")


def no_time(message: Message) -> None:
    message.at(0)


BAD = [
    *((protocol, change) for protocol in PROTOCOLS for change in (no_columns, column_without_a_name, no_time)),
    ("canal-json", key_of_no_column),
]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(("protocol", "change"), BAD)
def test_a_message_that_makes_no_table(tmp_path: Path, protocol: str, change: object, *, alone: bool) -> None:
    """What cannot be a row of any table is a dead letter that says where it stands, be it the only one of its table or
    between good ones; halted, the error names it and what to type."""
    given, name = Topic(protocol, "none"), TABLES[3]
    if not alone:
        tell_good(given, name)
    event, _ = given.row(name)
    message = pieces(protocol, event, "none")
    change(message)  # type: ignore[operator]
    at = len(given.messages)
    given.put(message.packed())
    if not alone:
        tell_good(given, name)
    tell_good(given, GOOD[0])
    given.tell(Resolved(given.ts))

    letters = played(tmp_path / "skip", given)
    assert set(letters) == {at}
    assert letters[at].raw_value == given.messages[at].value
    assert differences(Lake(str(tmp_path / "skip")), given) == {}

    stage = Stage(tmp_path / "halt", protocol, {0: given.messages})
    stage.land(1_000)
    if change is no_time:
        assert stage.landing.exception() is not None
        return
    with pytest.raises(SchemaError, match=rf"offset {at}\).*dlq skip .* --at shop/0/{at}"):
        stage.round()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_refused_row_showed_takes_nothing_along(tmp_path: Path, protocol: str) -> None:
    """Columns that only rows tell of keep their values when a message that told of another one is put aside."""
    given, name = Topic(protocol, "none"), TableName("s", "told")
    key = Field("id", MysqlType.LONG, 11, binary=True, handle=True, mysql_type="int")
    for number, told in enumerate(({}, {"bad": "yesterday"}, {"good": "2026-01-01 00:00:00"})):
        given.ts += 1
        times = [Field(one, MysqlType.DATETIME, 65, binary=True, mysql_type="datetime") for one in told]
        shared = {"schema": "s", "table": name.table, "pk_names": ("id",), "commit_ts": given.ts}
        given.tell(Insert(**shared, fields=(key, *times), after=(number, *told.values())))
    given.tell(Resolved(given.ts))

    assert set(played(tmp_path, given)) == {1}
    _, row = sorted(Lake(str(tmp_path)).arrow("s.told").to_pylist(), key=lambda row: row["id"])
    assert (row["id"], row.get("bad"), f"{row['good']:%F}") == (2, None, "2026-01-01")
