"""Lakes of changes and of versions: what row changes and DDLs leave in them, on real Delta tables without Spark."""

import msgspec
import pytest

from tests.sink.delta.lake import INT, TEXT, Rows, column, options, run, stored, table
from tidegate.config.delta import delta_options
from tidegate.config.load import load
from tidegate.engine.plan import Alter, Create, Exchange, Trim
from tidegate.engine.plan import Rows as Apply
from tidegate.model.errors import SinkRefused
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType, PartitionDef, PartitionInfo
from tidegate.model.tso import compose
from tidegate.objectstore import deltalog
from tidegate.sink.delta import merge as history_files
from tidegate.sink.delta.apply import inherited
from tidegate.sink.delta.columns import stored_columns
from tidegate.sink.delta.files import read
from tidegate.sink.delta.merge import open_files
from tidegate.sink.delta.sink import DeltaSink
from tidegate.sink.delta.snapshots import Snapshot, publish

pytestmark = pytest.mark.slow

T = table(column(1, "id"), column(2, "v", TEXT))
RANGES = PartitionInfo(
    "RANGE", expr="`id`", definitions=(PartitionDef("p0", ("10",)), PartitionDef("p1", ("MAXVALUE",)))
)


def changes(lake, incarnation: str = "t-1") -> list[tuple]:
    """(ts, number of the DDL, type, id, v) of every image, in order of time."""
    rows = stored(lake, incarnation)
    images = ((r["_commit_ts"], r["_commit_seq"], r["_change_type"], r.get("id"), r.get("v")) for r in rows)
    return sorted(
        images, key=lambda image: (image[0], image[1], image[3] or 0, image[2] in ("insert", "update_postimage"))
    )


def versions(lake, incarnation: str = "t-1") -> list[tuple]:
    """(id, v, from, to) of every version."""
    rows = stored(lake, incarnation)
    return sorted((r.get("id"), r.get("v"), r["_valid_from"], r["_valid_to"]) for r in rows)


def played(tmp_path, mode: str, **more: object):
    """A row that is inserted, updated and deleted, another that gets another key."""
    lake, rows = options(tmp_path, mode=mode, **more), Rows()
    rows.insert(20, id=1, v="a")
    rows.insert(20, id=2, v="x")
    rows.update(30, {"v": "a"}, id=1, v="b")
    rows.update(31, {"id": 2}, id=3, v="x")
    rows.delete(40, id=1, v="b")
    return lake, rows


def test_a_changelog_holds_every_image(tmp_path):
    """Each change is there with both images, its ts, and the time that the ts stands for."""
    lake, rows = played(tmp_path, "changelog")
    run(lake, rows, Create(T, 10, 1), Apply(T, 10, 50))

    assert changes(lake) == [
        (20, 0, "insert", 1, "a"),
        (20, 0, "insert", 2, "x"),
        (30, 0, "update_preimage", 1, "a"),
        (30, 0, "update_postimage", 1, "b"),
        (31, 0, "update_preimage", 2, "x"),
        (31, 0, "update_postimage", 3, "x"),
        (40, 0, "delete", 1, "b"),
    ]


def test_the_time_of_a_change_is_that_of_its_ts(tmp_path):
    """`_commit_time` is the physical part of `_commit_ts`, in UTC."""
    lake, rows = options(tmp_path, mode="changelog"), Rows()
    rows.insert(compose(1_700_000_000_123, 7), id=1, v="a")
    run(lake, rows, Create(T, 10, 1), Apply(T, 10, 1 << 62))

    assert stored(lake, "t-1")[0]["_commit_time"].isoformat() == "2023-11-14T22:13:20.123000+00:00"


def test_repeats_are_told_once(tmp_path):
    """A change that the topic brings twice is one change, also when the repeat splits an UPDATE in two."""
    lake, rows = options(tmp_path, mode="changelog"), Rows()
    for _ in range(2):
        rows.insert(20, id=1, v="a")
        rows.delete(30, id=1, v="a")
        rows.insert(30, id=1, v="b")
        rows.update(30, {"v": "a"}, id=1, v="b")
    run(lake, rows, Create(T, 10, 1), Apply(T, 10, 50))

    assert [image[2] for image in changes(lake)] == ["insert", "update_preimage", "update_postimage"]


def test_an_update_without_old_value_is_a_new_image(tmp_path):
    """A topic without old values gives post-images alone; the versions of its rows end where the next begins."""
    for mode in ("changelog", "history"):
        lake, rows = options(tmp_path / mode, mode=mode), Rows()
        rows.insert(20, id=1, v="a")
        rows.insert(30, id=1, v="b")
        run(lake, rows, Create(T, 10, 1), Apply(T, 10, 25), Apply(T, 25, 40))

    assert versions(lake) == [(1, "a", 20, 30), (1, "b", 30, None)]


def test_a_history_holds_every_version(tmp_path):
    """UPDATE ends a version and begins one, DELETE ends one, a changed key does both on two keys."""
    lake, rows = played(tmp_path, "history")
    run(lake, rows, Create(T, 10, 1), Apply(T, 10, 50))
    expected = [(1, "a", 20, 30), (1, "b", 30, 40), (2, "x", 20, 31), (3, "x", 31, None)]

    assert expected == versions(lake)


def test_cuts_do_not_matter(tmp_path):
    """The same versions and images stand there whether the changes came in one round or one by one."""
    for mode, told in (("history", versions), ("changelog", changes)):
        whole, rows = played(tmp_path / mode / "whole", mode)
        run(whole, rows, Create(T, 10, 1), Apply(T, 10, 50))
        cut = options(tmp_path / mode / "cut", mode=mode)
        run(cut, rows, Create(T, 10, 1), *(Apply(T, at, at + 1) for at in range(10, 50)))

        assert told(whole) == told(cut)


def test_closed_files_are_left_alone(tmp_path, monkeypatch):
    """What has ended lies in files of its own, which later rounds neither read nor replace."""
    opened_paths = set()
    monkeypatch.setattr(
        history_files, "read", lambda uri, file, columns: opened_paths.add(file.path) or read(uri, file, columns)
    )
    lake, rows = played(tmp_path, "history")
    rows.update(60, {"v": "x"}, id=3, v="y")
    run(lake, rows, Create(T, 10, 1), Apply(T, 10, 50))
    before = deltalog.load(lake.table_uri("t-1"))
    opened = {file.path for file in open_files(before, stored_columns(before))}
    closed = {file.path for file in before.files()} - opened
    opened_paths.clear()
    run(lake, rows, Apply(T, 50, 70))
    after = {file.path for file in deltalog.load(lake.table_uri("t-1")).files()}

    assert len(closed) == len(opened) == 1
    assert opened_paths == opened
    assert closed <= after
    assert not opened & after


def test_many_rounds_keep_few_files(tmp_path):
    """Rounds of one row do not pile up files, and the kinds of files stay apart."""
    lake, rows = options(tmp_path, mode="history"), Rows()
    run(lake, rows, Create(T, 10, 1))
    for at in range(40):
        rows.insert(20 + at, id=at % 7, v=str(at))
        run(lake, rows, Apply(T, 19 + at, 20 + at))
    snapshot = deltalog.load(lake.table_uri("t-1"))
    columns = stored_columns(snapshot)
    opened = {file.path for file in open_files(snapshot, columns)}

    assert len(versions(lake)) == 40
    assert len(snapshot.files()) <= 14
    for file in snapshot.files():
        ends = read(snapshot.uri, file, columns).column("_valid_to")
        assert ends.null_count == (len(ends) if file.path in opened else 0)


def test_running_again_adds_nothing(tmp_path):
    """Steps that are done are skipped in every mode: the log has each change once."""
    for mode in ("changelog", "history"):
        lake, rows = played(tmp_path / mode, mode)
        steps = (Create(T, 10, 1), Apply(T, 10, 50))
        run(lake, rows, *steps)
        before = stored(lake, "t-1")
        run(lake, rows, *steps)

        assert before == stored(lake, "t-1")


def test_ddls_of_columns_move_the_past_too(tmp_path):
    """Old images and versions have the columns of today: renamed, filled, converted; NULL where there is no value."""
    old = table(column(1, "id"), column(2, "n", TEXT))
    more = column(3, "k", INT, nullable=False, origin_default="7")
    new = table(column(1, "id"), column(2, "m", ColumnType(MysqlType.JSON)), more, version=40)
    for mode in ("changelog", "history"):
        lake, rows = options(tmp_path / mode, mode=mode), Rows()
        rows.insert(20, id=1, n="no document")
        rows.update(30, {"n": "no document"}, id=1, n="[1]")
        run(lake, rows, Create(old, 10, 1), Apply(old, 10, 40), Alter(old, new, 40, 1))
        values = {(row["m"], row["k"]) for row in stored(lake, "t-1")}

        assert values == {(None, 7), ("[1]", 7)}, mode


def test_partitions_that_go_leave_their_past(tmp_path):
    """TRUNCATE PARTITION ends the versions that lay there, and is told as deletes at its own ts."""
    parted = table(column(1, "id"), column(2, "v", TEXT), partition=RANGES)
    for mode, told in (("changelog", changes), ("history", versions)):
        lake, rows = options(tmp_path / mode, mode=mode), Rows()
        for at in (5, 15):
            rows.insert(30, id=at, v="x")
        steps = (Create(parted, 10, 1), Apply(parted, 10, 30), Trim(parted, parted, ("p1",), 30, 2))
        run(lake, rows, *steps)
        expected = {
            "changelog": [(30, 0, "insert", 5, "x"), (30, 0, "insert", 15, "x"), (30, 2, "delete", 15, "x")],
            "history": [(5, "x", 30, None), (15, "x", 30, 30)],
        }

        assert expected[mode] == told(lake)


def test_an_exchange_moves_rows_and_keeps_both_pasts(tmp_path):
    """EXCHANGE PARTITION: what leaves ends here and begins there, at the ts of the DDL."""
    parted = table(column(1, "id"), column(2, "v", TEXT), partition=RANGES)
    other = table(column(1, "id"), column(2, "v", TEXT), name="stage")
    for mode in ("changelog", "history"):
        lake, rows = options(tmp_path / mode, mode=mode), Rows()
        rows.insert(20, id=5, v="p")
        rows.insert(20, id=15, v="p")
        rows.insert(20, name="stage", id=11, v="s")
        made = (Create(parted, 10, 1), Create(other, 10, 2), Apply(parted, 10, 30), Apply(other, 10, 30))
        run(lake, rows, *made, Exchange(parted, "p1", other, 30, 1))
        if mode == "changelog":
            assert changes(lake)[2:] == [(30, 1, "insert", 11, "s"), (30, 1, "delete", 15, "p")]
            assert changes(lake, "stage-1")[1:] == [(30, 1, "delete", 11, "s"), (30, 1, "insert", 15, "p")]
        else:
            assert versions(lake) == [(5, "p", 20, None), (11, "s", 30, None), (15, "p", 20, 30)]
            assert versions(lake, "stage-1") == [(11, "s", 20, 30), (15, "p", 30, None)]


def test_a_truncated_table_leaves_its_past(tmp_path):
    """The incarnation after a TRUNCATE can begin with the past of the one before, all its rows gone at that ts."""
    for mode, count in (("changelog", 8), ("history", 4)):
        lake, rows = played(tmp_path / mode, mode)
        run(lake, rows, Create(T, 10, 1), Apply(T, 10, 50))
        uri = lake.table_uri("t-2")
        schema, actions = inherited(T, uri, (50, 1), lake)
        deltalog.create(uri, schema.fields(), actions, metadata={}, configuration=schema.configuration(lake))

        assert count == len(stored(lake, "t-2")), mode
        if mode == "changelog":
            assert changes(lake, "t-2")[-1] == (50, 1, "delete", 3, "x")
        else:
            assert versions(lake, "t-2")[-1] == (3, "x", 31, 50)
    assert inherited(T, uri, (50, 1), options(tmp_path / "changelog")) is None


def test_a_key_comes_and_goes(tmp_path):
    """In a history a table without a key is a log of changes; what it tells survives getting and losing a key."""
    keyless = table(column(1, "id"), column(2, "v", TEXT), key=())
    lake, rows = options(tmp_path, mode="history"), Rows()
    rows.insert(20, id=1, v="a")
    rows.update(21, {"v": "a"}, id=1, v="b")
    rows.delete(40, id=1, v="b")
    run(lake, rows, Create(keyless, 10, 1), Apply(keyless, 10, 30))
    assert [image[2] for image in changes(lake)] == ["insert", "update_preimage", "update_postimage"]

    run(lake, rows, Alter(keyless, T, 30, 1), Apply(T, 30, 50))
    assert versions(lake) == [(1, "a", 20, 21), (1, "b", 21, 40)]

    run(lake, rows, Alter(T, keyless, 50, 1))
    kinds = [(image[0], image[2], image[4]) for image in changes(lake)]
    assert kinds == [(20, "insert", "a"), (21, "delete", "a"), (21, "insert", "b"), (40, "delete", "b")]


def test_repeated_rows_without_a_key_are_counted(tmp_path):
    """A log without a key folds to as many equal rows as upstream has."""
    keyless = table(column(1, "id"), column(2, "v", TEXT), key=(), partition=RANGES)
    lake, rows = options(tmp_path, mode="changelog"), Rows()
    for at in (20, 21, 22):
        rows.insert(at, id=1, v="a")
    rows.delete(23, id=1, v="a")
    run(lake, rows, Create(keyless, 10, 1), Apply(keyless, 10, 30), Trim(keyless, keyless, ("p0",), 30, 1))

    assert changes(lake)[4:] == [(30, 1, "delete", 1, "a")] * 2


@pytest.mark.parametrize("policy", ["lenient", "ignore", "try_evolve"])
def test_policies_keep_the_columns_of_ours(tmp_path, policy):
    """Whatever a policy does with the upstream's columns, changes keep their type and ts, versions their bounds."""
    new = table(column(1, "id"), column(3, "w", TEXT), version=30)
    for mode in ("changelog", "history"):
        lake, rows = options(tmp_path / mode, mode=mode, schema_change=policy), Rows()
        rows.insert(20, id=1, v="a")
        rows.insert(40, id=2, w="b")
        run(lake, rows, Create(T, 10, 1), Apply(T, 10, 30), Alter(T, new, 30, 1), Apply(new, 30, 50))
        found = stored(lake, "t-1")

        assert [row["_commit_ts" if mode == "changelog" else "_valid_from"] for row in found] == [20, 40]


def test_the_sink_uri_names_the_mode():
    """`mode` of the sink URI is the mode of the sink; a lake is a replica unless it says otherwise."""
    kafka = "kafka://127.0.0.1/shop?protocol=open-protocol"

    for mode in ("replica", "changelog", "history"):
        assert delta_options(load(source_uri=kafka, sink_uri=f"delta:///srv/lake?mode={mode}")).mode == mode
    assert delta_options(load(source_uri=kafka, sink_uri="delta:///srv/lake")).mode == "replica"


def test_another_mode_is_refused(tmp_path):
    """A lake keeps its mode: other ones are refused by table and by published state, with the way out."""
    lake, rows = played(tmp_path, "history")
    run(lake, rows, Create(T, 10, 1), Apply(T, 10, 50))
    publish(lake, Snapshot(0))
    other = msgspec.structs.replace(lake, mode="changelog")

    with pytest.raises(SinkRefused, match=r"mode=history.*mode=changelog.*another sink directory"):
        DeltaSink(other).recover()
    with pytest.raises(SinkRefused, match=r"table s\.t .*mode=history"):
        run(other, rows, Apply(T, 10, 60))


def test_a_column_of_our_name_is_refused(tmp_path):
    """An upstream column that would be one of ours stops with the ways out, not with mixed-up values."""
    strange = table(column(1, "id"), column(2, "_valid_to"))

    with pytest.raises(SinkRefused, match=r"_valid_to.*mode=history.*rules"):
        run(options(tmp_path, mode="history"), Rows(), Create(strange, 10, 1))
