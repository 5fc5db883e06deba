"""The changelog: what was landed can be read by timestamp, table by table."""

import pickle
from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.source.kit import OPEN, TOPIC, begin, ddl, insert, land_batch, manifest, open_message, recording, resolved
from tidegate.changelog.changelog import Changelog
from tidegate.changelog.files import LANDED_SCHEMA, groups_of
from tidegate.engine.change import EventPosition
from tidegate.model.errors import ChangelogBroken, Retry
from tidegate.model.event import Field
from tidegate.model.table import TableName
from tidegate.objectstore import deltalog
from tidegate.objectstore.stores import opened, store
from tidegate.source.kafka_messages import TopicMessage

ORDERS = TableName("shop", "orders")
ITEMS = TableName("shop", "items")


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "lake" / "_tidegate" / "changelog")


def read(uri: str) -> Changelog:
    changelog = Changelog(uri)
    changelog.refresh()
    return changelog


def land(uri: str, *messages: TopicMessage, **plan: object):
    return land_batch(uri, begin(uri), {0: messages}, **plan)


def numbers(rows: pa.Table) -> list[int]:
    return [int(image[0]) for image in rows.column("after").to_pylist()]


def test_nothing_there(uri):
    """A changelog that nobody made is empty, has no frontier, and can be asked again later."""
    changelog = Changelog(uri)

    assert not changelog.refresh()
    assert changelog.frontier() is None
    assert changelog.slice(0, 1 << 62).tables() == {}

    begin(uri)

    assert changelog.refresh()
    assert changelog.positions()[TOPIC][0].offset == 0


def test_a_slice_is_open_below_and_closed_above(uri):
    """Rows with after < commit_ts <= upto belong to a slice, in commit_ts order."""
    land(uri, open_message(0, *[insert(ts, ts) for ts in (9, 4, 7, 5, 6)], resolved(9)))

    found = read(uri).slice(4, 7)

    assert numbers(found.read(ORDERS)) == [5, 6, 7]
    assert found.read(ORDERS).schema == LANDED_SCHEMA
    span = found.tables()[ORDERS]
    assert (span.min_ts, span.max_ts) == (5, 7)


def test_a_narrower_read(uri):
    """One slice serves smaller ranges of one table, as the segments between DDLs need."""
    land(uri, open_message(0, *[insert(ts, ts) for ts in range(1, 10)], insert(3, 30, "items")))
    found = read(uri).slice(0, 9)

    assert numbers(found.read(ORDERS, 2, 4)) == [3, 4]
    assert numbers(found.read(ITEMS, 3)) == []
    assert found.read(TableName("shop", "nothing")).schema == LANDED_SCHEMA


def test_footers_say_what_lies_where(uri):
    """A row group holds one table in commit_ts order, and its footer says which and from when to when."""
    land(uri, open_message(0, insert(9, 1), insert(5, 2, "items"), insert(7, 3)))
    changelog = read(uri)
    (path,) = {group.path for group in changelog.slice(0, 99).groups}

    groups = groups_of(uri, path)

    assert [(group.name, group.rows, group.min_ts, group.max_ts) for group in groups] == [
        (ITEMS, 1, 5, 5),
        (ORDERS, 2, 7, 9),
    ]
    assert pq.ParquetFile(f"{uri}/{path}").read_row_group(1).column("commit_ts").to_pylist() == [7, 9]


def test_reading_a_table_touches_only_its_files(uri, monkeypatch):
    """Neither the driver's planning nor another table's rows open a file for nothing."""
    state = land_batch(uri, begin(uri), {0: [open_message(0, insert(5, 1))]})
    land_batch(uri, state, {0: [open_message(1, insert(6, 2, "items"))]})
    found = read(uri).slice(0, 99)
    opened = []
    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", lambda self, *_, **__: opened.append(self) or self.read())

    found.read(ITEMS)

    assert len(opened) == 1


def test_names_match_without_case(uri):
    """TiDB compares names without case, so `Orders` and `orders` are one table."""
    land(uri, open_message(0, insert(5, 1, "Orders"), insert(6, 2, "orders")))
    found = read(uri).slice(0, 99)

    assert list(found.tables()) == [TableName("shop", "Orders")]
    assert numbers(found.read(ORDERS)) == [1, 2]


def test_a_slice_travels(uri):
    """A slice pickles with what it knows, and an executor reads the same rows."""
    land(uri, open_message(0, insert(5, 1), insert(6, 2, "items")))

    found = pickle.loads(pickle.dumps(read(uri).slice(0, 99).narrow(ORDERS)))

    assert numbers(found.read(ORDERS)) == [1]
    assert list(found.tables()) == [ORDERS]


def test_layouts_in_order_of_appearance(uri):
    """A table's layouts come out once each, the oldest first, and only those in the range."""
    wide = insert(8, 2)
    wide[1]["u"]["more"] = {"t": 3, "f": 64, "v": 1}
    land(uri, open_message(0, wide, insert(5, 1), insert(9, 3)))
    found = read(uri).slice(0, 99)

    def names(*layouts):
        return [[field.name for field in layout.fields] for layout in layouts]

    assert names(*found.layouts(ORDERS)) == [["id", "note"], ["id", "note", "more"]]
    assert names(*found.layouts(ORDERS, 5, 8)) == [["id", "note", "more"]]
    assert isinstance(found.layouts(ORDERS)[0].fields[0], Field)


def test_a_small_buffer_changes_nothing_but_the_files(uri, tmp_path):
    """However often a task writes its rows out, the same rows come back in the same order."""
    messages = [open_message(n, insert(100 - n, n), insert(50, 1000 + n, "items")) for n in range(40)]
    other = str(tmp_path / "other")
    land(uri, *messages)
    land(other, *messages, flush_bytes=1)
    one, many = read(uri).slice(0, 999), read(other).slice(0, 999)

    for name in (ORDERS, ITEMS):
        assert one.read(name).drop_columns(["layout"]) == many.read(name).drop_columns(["layout"])


def test_ddls_are_inclusive_on_both_sides(uri):
    """A DDL at the very frontier may come later than the frontier, so the range takes in its lower end."""
    land(uri, *[open_message(n, ddl(ts, f"q{ts}")) for n, ts in enumerate((5, 7, 9))])

    assert [placed.ddl.query for placed in read(uri).ddls(5, 7)] == ["q5", "q7"]


def test_refresh_follows_commit_by_commit(uri):
    """A changelog that is refreshed and one that is loaded afresh tell the same."""
    state = begin(uri)
    follower = read(uri)
    for n in range(25):  # more than one checkpoint of the log
        state = land_batch(uri, state, {0: [open_message(n, insert(n + 1, n), ddl(n + 1, f"q{n}"), resolved(n + 1))]})
        assert follower.refresh()
        assert not follower.refresh()
    fresh = read(uri)

    assert follower.state == fresh.state == state
    assert follower.frontier() == 25
    assert follower.slice(3, 20).tables() == fresh.slice(3, 20).tables()
    assert follower.ddls(0, 99) == fresh.ddls(0, 99)
    assert fresh.version == 26


def test_dead_letters_come_back_whole(uri):
    """A dead letter keeps its bytes, its reason and its place."""
    land(uri, TopicMessage(0, b"k", None), open_message(1, insert(5, 1)), skip_dead=True)

    (letter,) = read(uri).dead_letters()

    assert (letter.position, letter.raw_key, letter.raw_value) == (EventPosition(TOPIC, 0, 0), b"k", None)
    assert letter.error_code == "CDC:ErrDecodeFailed"


def test_a_halt_is_recorded_with_its_message(uri):
    """Where the feed stands, and before which bytes, can be read from the changelog alone."""
    state = land(uri, open_message(0, insert(5, 1)), TopicMessage(1, b"k", b"v"), open_message(2, insert(6, 2)))
    changelog = read(uri)
    ((halt, letter),) = changelog.halted()

    assert state.positions[TOPIC][0].offset == halt.offset == 1
    assert letter is not None
    assert letter.raw_value == b"v"
    assert changelog.dead_letters() == []


def test_a_strange_commit_is_an_error(uri):
    """Somebody else's commit has no positions; going on without them would lose or repeat rows."""
    state = begin(uri)
    deltalog.commit(uri, 2, [], operation="OPTIMIZE", metadata={})

    with pytest.raises(ChangelogBroken, match="has no positions"):
        read(uri)
    with pytest.raises(ChangelogBroken, match="Restore the version before") as told:
        land_batch(uri, state, {0: [open_message(0, insert(5, 1))]})
    assert told.value.retry is Retry.NEVER

    (Path(uri) / "_delta_log" / f"{2:020d}.json").unlink()
    land_batch(uri, state, {0: [open_message(0, insert(5, 1))]})
    assert read(uri).version == 2


@pytest.mark.parametrize(
    "name", ["open", *(pytest.param(name, marks=pytest.mark.slow) for name in ("open_table", "canal", "canal_table"))]
)
def test_recordings(uri, name):
    """All rows and DDLs of a recorded changefeed are there: as many as were sent, each DDL once."""
    options = OPEN if name.startswith("open") else type(OPEN)(protocol="canal-json")
    state = begin(uri, 3)
    topic = {partition: list(recording(name, partition)) for partition in range(3)}
    for at in range(0, max(map(len, topic.values())), 1500):
        batch = {partition: messages[at : at + 1500] for partition, messages in topic.items()}
        state = land_batch(uri, state, {p: some for p, some in batch.items() if some}, options=options)
    changelog = read(uri)
    counts = manifest(name)["counts"]
    found = changelog.slice(0, changelog.frontier())

    assert sum(found.read(table).num_rows for table in found.tables()) == counts["rows_sent"]
    assert len(changelog.ddls(0, changelog.frontier())) == counts["ddl_unique"]
    assert (changelog.dead_letters(), changelog.halted()) == ([], [])


def test_objects_are_read_in_ranges():
    """What lies in an object store is read by ranges, and reads like a file."""
    where = "memory:///somewhere"
    table = pa.table({"a": list(range(1000))})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=100)
    obstore.put(store(where), "x/y.parquet", sink.getvalue().to_pybytes())

    with opened(where, "x/y.parquet") as source:
        found = pq.ParquetFile(source, pre_buffer=True).read_row_groups([3])

    assert found.column("a").to_pylist() == list(range(300, 400))
