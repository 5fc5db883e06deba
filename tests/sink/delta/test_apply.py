"""The steps of a unit on real Delta tables, read back file by file."""

import pytest

from tests.sink.delta.lake import INT, TEXT, Rows, column, options, run, stored, table
from tidegate.engine.plan import Alter, Create, Exchange, Trim
from tidegate.engine.plan import Rows as Apply
from tidegate.model.errors import SchemaError, SinkRefused
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType, PartitionDef, PartitionInfo
from tidegate.objectstore import deltalog

T = table(column(1, "id"), column(2, "v", TEXT))


def test_rows_become_their_last_state(tmp_path):
    """Insert, update, delete and a changed key leave exactly the rows that the upstream holds."""
    lake, rows = options(tmp_path), Rows()
    for at in range(1, 6):
        rows.insert(20 + at, id=at, v=f"v{at}")
    rows.update(30, {"v": "v1"}, id=1, v="one")
    rows.delete(31, id=2, v="v2")
    rows.update(32, {"id": 3}, id=30, v="moved")

    run(lake, rows, Create(T, 10, 1), Apply(T, 10, 40))

    assert stored(lake, "t-1") == [
        {"id": 1, "v": "one"},
        {"id": 30, "v": "moved"},
        {"id": 4, "v": "v4"},
        {"id": 5, "v": "v5"},
    ]


def test_deletes_come_before_inserts_of_one_transaction(tmp_path):
    """A key that one transaction frees and takes again is there afterwards, whatever the order of arrival."""
    lake, rows = options(tmp_path), Rows()
    rows.insert(20, id=1, v="old")
    rows.insert(30, id=1, v="new")
    rows.delete(30, id=1, v="old")

    run(lake, rows, Create(T, 10, 1), Apply(T, 10, 20), Apply(T, 20, 30))

    assert stored(lake, "t-1") == [{"id": 1, "v": "new"}]


def test_running_again_changes_nothing(tmp_path):
    """Steps that are done are skipped: same version, same rows, also with a later end."""
    lake, rows = options(tmp_path), Rows()
    rows.insert(20, id=1, v="a")
    run(lake, rows, Create(T, 10, 1), Apply(T, 10, 20))
    version = deltalog.load(lake.table_uri("t-1")).version

    run(lake, rows, Create(T, 10, 1), Apply(T, 10, 20))
    assert deltalog.load(lake.table_uri("t-1")).version == version

    rows.insert(25, id=2, v="b")
    run(lake, rows, Create(T, 10, 1), Apply(T, 10, 30))
    assert stored(lake, "t-1") == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]


def test_many_small_commits_keep_few_files(tmp_path):
    """Appends of single rows do not pile up files without bound, and no row is lost to their merging."""
    lake, rows = options(tmp_path), Rows()
    run(lake, rows, Create(T, 10, 1))
    for at in range(30):
        rows.insert(20 + at, id=at, v="x")
        run(lake, rows, Apply(T, 19 + at, 20 + at))

    assert len(stored(lake, "t-1")) == 30
    assert len(deltalog.load(lake.table_uri("t-1")).files()) <= 10


def test_alter_renames_adds_and_drops(tmp_path):
    """A rename moves no data, a new column holds its default in old rows, a dropped one is gone."""
    lake, rows = options(tmp_path), Rows()
    rows.insert(20, id=1, v="a")
    new = table(
        column(1, "ID"), column(3, "n", INT, nullable=False, origin_default="7"), column(4, "x", TEXT), version=30
    )
    run(lake, rows, Create(T, 10, 1), Apply(T, 10, 30), Alter(T, new, 30, 1))

    assert stored(lake, "t-1") == [{"ID": 1, "n": 7, "x": None}]

    rows.insert(40, ID=2, n=8, x="y")
    run(lake, rows, Apply(new, 30, 40))
    assert stored(lake, "t-1")[1] == {"ID": 2, "n": 8, "x": "y"}


def test_metadata_changes_write_no_files(tmp_path):
    """RENAME COLUMN, DROP COLUMN and ADD COLUMN without default leave the data files as they are."""
    lake, rows = options(tmp_path), Rows()
    rows.insert(20, id=1, v="a")
    run(lake, rows, Create(T, 10, 1), Apply(T, 10, 30))
    before = [file.path for file in deltalog.load(lake.table_uri("t-1")).files()]

    run(lake, rows, Alter(T, table(column(1, "id"), column(2, "w", TEXT), column(3, "z"), version=30), 30, 1))

    assert [file.path for file in deltalog.load(lake.table_uri("t-1")).files()] == before


def test_alter_converts_stored_values(tmp_path):
    """A change of type turns stored values into what TiDB makes of them, in one commit with the new schema."""
    lake, rows = options(tmp_path), Rows()
    rows.insert(20, id=1, v="12")
    rows.insert(20, id=2, v=None)
    run(lake, rows, Create(T, 10, 1), Apply(T, 10, 30))
    version = deltalog.load(lake.table_uri("t-1")).version

    run(lake, rows, Alter(T, table(column(1, "id"), column(2, "v", INT), version=30), 30, 1))

    assert stored(lake, "t-1") == [{"id": 1, "v": 12}, {"id": 2, "v": None}]
    assert deltalog.load(lake.table_uri("t-1")).version == version + 1


RANGES = PartitionInfo(
    "RANGE",
    expr="`id`",
    definitions=(PartitionDef("p0", ("10",)), PartitionDef("p1", ("20",)), PartitionDef("p2", ("MAXVALUE",))),
)


def test_trim_removes_the_rows_of_partitions(tmp_path):
    """TRUNCATE and DROP PARTITION take the rows that lie there, and only those."""
    parted = table(column(1, "id"), column(2, "v", TEXT), partition=RANGES)
    lake, rows = options(tmp_path), Rows()
    for at in (5, 15, 25):
        rows.insert(20, id=at, v="x")
    run(lake, rows, Create(parted, 10, 1), Apply(parted, 10, 30), Trim(parted, parted, ("p1",), 30, 1))

    assert [row["id"] for row in stored(lake, "t-1")] == [25, 5]


@pytest.mark.parametrize("interrupted", [False, True])
def test_exchange_swaps_rows(tmp_path, interrupted):
    """EXCHANGE PARTITION swaps both sides, also when the worker died between its two halves."""
    parted = table(column(1, "id"), column(2, "v", TEXT), partition=RANGES)
    stage = table(column(1, "id"), column(2, "v", TEXT), name="stage")
    lake, rows = options(tmp_path), Rows()
    for at in (5, 15, 25):
        rows.insert(20, id=at, v="p")
    rows.insert(20, name="stage", id=11, v="s")
    swap = Exchange(parted, "p1", stage, 30, 1)
    steps = (Create(parted, 10, 1), Create(stage, 10, 2), Apply(parted, 10, 30), Apply(stage, 10, 30))
    run(lake, rows, *steps)
    if interrupted:
        from tidegate.sink.delta.apply import _run

        _run(swap, parted, rows, lake)
    run(lake, rows, *steps, swap)

    assert [(row["id"], row["v"]) for row in stored(lake, "t-1")] == [(11, "s"), (25, "p"), (5, "p")]
    assert [(row["id"], row["v"]) for row in stored(lake, "stage-1")] == [(15, "p")]


def test_table_without_key_is_a_log(tmp_path):
    """Without a key every change is kept once, with its operation and commit_ts."""
    keyless = table(column(1, "id"), column(2, "v", TEXT), key=())
    lake, rows = options(tmp_path), Rows()
    rows.insert(20, id=1, v="a")
    rows.insert(20, id=1, v="a")
    rows.delete(21, id=1, v="a")
    run(lake, rows, Create(keyless, 10, 1), Apply(keyless, 10, 30))

    assert stored(lake, "t-1") == [
        {"id": 1, "v": "a", "_tidegate_op": "I", "_tidegate_commit_ts": 20, "_tidegate_before": None},
        {"id": 1, "v": "a", "_tidegate_op": "D", "_tidegate_commit_ts": 21, "_tidegate_before": None},
    ]


def test_big_unsigned_keys_are_told_apart(tmp_path):
    """BIGINT UNSIGNED keys at and above 2**63 update and delete exactly their own rows."""
    wide = ColumnType(MysqlType.LONGLONG, unsigned=True)
    keyed = table(column(1, "id", wide), column(2, "v", TEXT))
    lake, rows = options(tmp_path), Rows()
    for at in (2**63 - 1, 2**63, 2**64 - 1):
        rows.insert(20, id=at, v="a")
    run(lake, rows, Create(keyed, 10, 1), Apply(keyed, 10, 20))
    rows.update(30, {"v": "a"}, id=2**64 - 1, v="b")
    rows.delete(30, id=2**63, v="a")
    run(lake, rows, Apply(keyed, 20, 30))

    assert [(int(row["id"]), row["v"]) for row in stored(lake, "t-1")] == [(2**64 - 1, "b"), (2**63 - 1, "a")]


def test_unknown_column_is_refused(tmp_path):
    """A row with a column that no definition has stops with its place, instead of losing the value."""
    lake, rows = options(tmp_path), Rows()
    rows.insert(20, id=1, v="a", stranger=3)

    with pytest.raises(SchemaError, match=r"stranger.*offset 0"):
        run(lake, rows, Create(T, 10, 1), Apply(T, 10, 30))


def test_policy_exception_stops(tmp_path):
    """schema-change=exception stops at a DDL that changes columns and names the ways out."""
    lake = options(tmp_path, schema_change="exception")
    run(lake, Rows(), Create(T, 10, 1))

    with pytest.raises(SinkRefused, match="schema-change"):
        run(lake, Rows(), Alter(T, table(column(1, "id"), version=30), 30, 1))


def test_a_first_key_turns_the_log_into_rows(tmp_path):
    """A table that gets a key holds, from then on, the rows that its log of changes told of."""
    keyless = table(column(1, "id"), column(2, "v", TEXT), key=())
    keyed = table(column(1, "id"), column(2, "v", TEXT), version=30)
    lake, rows = options(tmp_path), Rows()
    rows.insert(20, id=1, v="a")
    rows.update(21, {"v": "a"}, id=1, v="b")
    rows.insert(20, id=2, v="x")
    rows.delete(22, id=2, v="x")
    rows.insert(40, id=3, v="c")
    run(lake, rows, Create(keyless, 10, 1), Apply(keyless, 10, 30), Alter(keyless, keyed, 30, 1), Apply(keyed, 30, 50))

    assert stored(lake, "t-1") == [{"id": 1, "v": "b"}, {"id": 3, "v": "c"}]
