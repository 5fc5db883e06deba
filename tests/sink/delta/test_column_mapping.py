"""Which tables of a lake have Delta's column mapping, and that each of its readers finds the rows that it should."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaProtocolError

from tests.sink.delta.lake import INT, TEXT, Rows, column, options, run, stored, table
from tests.sink.delta.small import Small
from tidegate.engine.plan import Alter, Create, Exchange
from tidegate.engine.plan import Rows as Apply
from tidegate.engine.retention import Limits
from tidegate.lakes.lake import Lake
from tidegate.lakes.live import clone
from tidegate.model.errors import SinkRefused
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType, PartitionDef, PartitionInfo, TableInfo
from tidegate.objectstore import deltalog
from tidegate.sink.delta.columns import stored_schema
from tidegate.sink.delta.options import DeltaOptions

T = table(column(1, "id"), column(2, "v", TEXT))
ROWS = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]


def made(root: Path, info: TableInfo = T, **more: object) -> tuple[DeltaOptions, Rows]:
    """A table with two rows in two files."""
    lake, rows = options(root, **more), Rows()
    name = info.columns[1].name
    rows.insert(20, **{"id": 1, name: "a"})
    rows.insert(25, **{"id": 2, name: "b"})
    run(lake, rows, Create(info, 10, 1), Apply(info, 10, 20), Apply(info, 20, 30))
    return lake, rows


def plain(lake: DeltaOptions, version: int | None = None) -> list[dict[str, object]]:
    """The rows as delta-rs gives them to Arrow, which refuses a table with column mapping."""
    return by_first(DeltaTable(lake.table_uri("t-1"), version=version).to_pyarrow_table())


def queried(lake: DeltaOptions, version: int | None = None) -> list[dict[str, object]]:
    """The rows as DataFusion gives them, which knows column mapping."""
    found = QueryBuilder().register("t", DeltaTable(lake.table_uri("t-1"), version=version))
    return by_first(pa.table(found.execute("select * from t").read_all()))


def by_first(rows: pa.Table) -> list[dict[str, object]]:
    return sorted(rows.to_pylist(), key=lambda row: str(next(iter(row.values()))))


def features(snapshot: deltalog.TableSnapshot) -> set[str]:
    return set(snapshot.table.protocol().reader_features or ())


def is_mapped(lake: DeltaOptions, version: int | None = None, incarnation: str = "t-1") -> bool:
    """Whether a version has column mapping: protocol, properties and schema say the same."""
    snapshot = deltalog.load(lake.table_uri(incarnation), version)
    assert snapshot is not None
    named = {"columnMapping" in features(snapshot), stored_schema(snapshot).mapped}
    keys = {key.rpartition(".")[0] == "delta.columnMapping" for field in snapshot.fields for key in field["metadata"]}
    assert len(named) == 1
    assert named <= keys
    return named.pop()


def test_a_new_table_opens_everywhere(tmp_path: Path) -> None:
    """Without column mapping, also after columns came and moved, with a default or without."""
    lake, rows = made(tmp_path)
    assert plain(lake) == queried(lake) == ROWS

    wider = table(column(1, "id"), column(3, "n"), column(2, "v", TEXT), version=30)
    more = column(4, "k", INT, nullable=False, origin_default="7")
    widest = table(more, column(2, "v", TEXT), column(3, "n"), column(1, "id"), version=40)
    rows.insert(50, k=8, v="c", n=5, id=3)
    run(lake, rows, Alter(T, wider, 30, 1), Alter(wider, widest, 40, 1), Apply(widest, 40, 50))

    assert plain(lake) == stored(lake, "t-1")
    assert plain(lake)[-1] == {"k": 8, "v": "c", "n": 5, "id": 3}
    assert {"k": 7, "v": "a", "n": None, "id": 1} in queried(lake)
    assert features(deltalog.load(lake.table_uri("t-1"))) == {"timestampNtz"}


@pytest.mark.parametrize("last", ["v", "V", "w", ""])
def test_the_first_rename_or_drop_begins_column_mapping(tmp_path: Path, last: str) -> None:
    """In its own commit, which leaves the files; versions from before open as they did, and a name may come again."""
    lake, rows = made(tmp_path)
    columns = [column(2, last, TEXT)] if last else []
    fresh = [column(3, "v", INT)] if last in ("w", "") else []
    new = table(column(1, "id"), *columns, *fresh, version=30)
    files = [file.path for file in deltalog.load(lake.table_uri("t-1")).files()]
    run(lake, rows, Alter(T, new, 30, 1))

    assert is_mapped(lake) == (last != "v")
    assert [file.path for file in deltalog.load(lake.table_uri("t-1")).files()] == files
    rows.insert(40, **{"id": 3} | {one.name: "c" if one.type is TEXT else 5 for one in (*columns, *fresh)})
    run(lake, rows, Apply(new, 30, 40))
    assert queried(lake) == stored(lake, "t-1")
    assert stored(lake, "t-1")[0] == {"id": 1} | ({last: "a"} if last else {}) | {one.name: None for one in fresh}
    assert plain(lake, 2) == queried(lake, 2) == ROWS
    if last != "v":
        with pytest.raises(DeltaProtocolError, match="columnMapping"):
            plain(lake)


def test_a_commit_that_writes_all_files_leaves_a_table_plain(tmp_path: Path) -> None:
    """A change of type, with a rename in the same statement, and any change of a table without rows."""
    lake, rows = made(tmp_path)
    new = table(column(1, "nr", ColumnType(MysqlType.LONGLONG)), column(2, "w", TEXT), key=("nr",), version=30)
    run(lake, rows, Alter(T, new, 30, 1))
    assert plain(lake) == stored(lake, "t-1") == [{"nr": 1, "w": "a"}, {"nr": 2, "w": "b"}]
    assert not is_mapped(lake)

    empty, none = options(tmp_path / "empty"), Rows()
    run(empty, none, Create(T, 10, 1), Alter(T, new, 30, 1))
    none.insert(40, nr=1, w="a")
    run(empty, none, Apply(new, 30, 40))
    assert plain(empty) == [{"nr": 1, "w": "a"}]


def test_never_writes_files_anew(tmp_path: Path) -> None:
    """A rename and a drop leave a plain table, whose ids stay those of its columns."""
    lake, rows = made(tmp_path, column_mapping="never")
    new = table(column(1, "id"), column(2, "w", TEXT), version=30)
    last = table(column(1, "id"), column(3, "w", TEXT), version=40)
    run(lake, rows, Alter(T, new, 30, 1))
    assert plain(lake) == stored(lake, "t-1") == [{"id": 1, "w": "a"}, {"id": 2, "w": "b"}]
    assert [one.mapping_id for one in stored_schema(deltalog.load(lake.table_uri("t-1"))).columns] == [1, 2]

    run(lake, rows, Alter(new, last, 40, 1))
    assert plain(lake) == stored(lake, "t-1") == [{"id": 1, "w": None}, {"id": 2, "w": None}]
    assert not is_mapped(lake)


@pytest.mark.parametrize("name", ["a b", "a,b", "a;b", "{a}", "(a)", "a\nb", "a\tb", "a=b"])
def test_a_name_that_plain_tables_cannot_have(tmp_path: Path, name: str) -> None:
    """The table is mapped when it is made, or from the DDL on that brings the name; never refuses, and says why."""
    odd = table(column(1, "id"), column(2, name, TEXT))
    lake, _ = made(tmp_path / "made", odd)
    assert is_mapped(lake)
    assert queried(lake) == stored(lake, "t-1") == [{"id": 1, name: "a"}, {"id": 2, name: "b"}]

    lake, rows = made(tmp_path / "altered")
    run(lake, rows, Alter(T, table(*T.columns, column(3, name), version=30), 30, 1))
    assert is_mapped(lake)
    assert queried(lake) == stored(lake, "t-1") == [row | {name: None} for row in ROWS]

    with pytest.raises(SinkRefused, match=r"column-mapping=never.*rename it"):
        made(tmp_path / "refused", odd, column_mapping="never")
    lake, rows = made(tmp_path / "stopped", column_mapping="never")
    with pytest.raises(SinkRefused, match=r"table s\.t at ts 30.*column-mapping=never"):
        run(lake, rows, Alter(T, table(*T.columns, column(3, name), version=30), 30, 1))


def test_a_mapped_table_stays_mapped(tmp_path: Path) -> None:
    """Also with never, which takes over a lake as it is: its renames leave files alone."""
    lake, rows = made(tmp_path, column_mapping="always")
    files = [file.path for file in deltalog.load(lake.table_uri("t-1")).files()]
    renamed = table(column(1, "id"), column(2, "w w", TEXT), version=30)
    run(options(tmp_path, column_mapping="never"), rows, Alter(T, renamed, 30, 1))
    wider = table(column(1, "id"), column(3, "v", TEXT), version=40)
    run(options(tmp_path), rows, Alter(renamed, wider, 40, 1))

    assert [file.path for file in deltalog.load(lake.table_uri("t-1")).files()] == files
    assert is_mapped(lake)
    columns = stored_schema(deltalog.load(lake.table_uri("t-1"))).columns
    assert [(one.name, one.physical) for one in columns] == [("id", "c1"), ("v", "c3")]
    assert stored(lake, "t-1") == [{"id": 1, "v": None}, {"id": 2, "v": None}]


@pytest.mark.parametrize("name", ["c3", "C4", "c1000", "c99999999999999999999", "c03"])
def test_columns_called_as_ours_are_told_apart(tmp_path: Path, name: str) -> None:
    """A name `c<number>` in files from before column mapping is never that of a later column."""
    info = table(column(1, "id"), column(2, name, TEXT))
    lake, rows = made(tmp_path, info)
    version, at = info, 30
    for number in range(3):
        new = table(column(1, "id"), *(column(3 + one, f"n{one}", TEXT) for one in range(number + 1)), version=at)
        run(lake, rows, Alter(version, new, at, 1))
        version, at = new, at + 10

    nothing = {f"n{one}": None for one in range(3)}
    assert stored(lake, "t-1") == queried(lake) == [{"id": 1} | nothing, {"id": 2} | nothing]
    assert max(one.mapping_id for one in stored_schema(deltalog.load(lake.table_uri("t-1"))).columns) < 1 << 30


def renamed(tmp_path: Path, **more: object) -> tuple[DeltaOptions, Rows, TableInfo]:
    """A table whose column was renamed while it had files."""
    lake, rows = made(tmp_path, **more)
    new = table(column(1, "id"), column(2, "w", TEXT), version=30)
    run(lake, rows, Alter(T, new, 30, 1))
    return lake, rows, new


@pytest.mark.parametrize("chosen", ["auto", "always", "never"])
def test_the_past_goes_on_under_its_names(tmp_path: Path, chosen: str) -> None:
    """What a TRUNCATE leaves to the next incarnation has the names that the old files have, and mapping if it must."""
    lake, rows, old = renamed(tmp_path, mode="history", column_mapping=chosen)
    new = table(column(1, "id"), column(2, "w", TEXT), version=40, incarnation="t-2")
    run(lake, rows, Create(new, 40, 1, old))
    after = table(column(1, "id"), column(2, "w", TEXT), column(3, "v"), version=50, incarnation="t-2")
    rows.insert(60, id=3, w="c", v=5)
    run(lake, rows, Alter(new, after, 50, 1), Apply(after, 50, 60))

    found = [(row["id"], row["w"], row["v"], row["_valid_to"]) for row in stored(lake, "t-2")]
    assert found == [(1, "a", None, 40), (2, "b", None, 40), (3, "c", 5, None)]
    assert is_mapped(lake, incarnation="t-2") == (chosen != "never")


def test_a_clone_is_read_as_its_origin(tmp_path: Path) -> None:
    """The live view's clones of a plain table are plain, those of a mapped one mapped, with the rows of their files."""
    for at, lake in enumerate((made(tmp_path / "plain")[0], renamed(tmp_path / "mapped")[0])):
        origin = deltalog.load(lake.table_uri("t-1"))
        other = options(tmp_path / f"clone {at}")
        clone(origin, other.table_uri("t-1"), "f")

        assert is_mapped(other) == is_mapped(lake) == bool(at)
        assert stored(other, "t-1") == stored(lake, "t-1") != []


def test_partners_of_an_exchange_have_names_of_their_own(tmp_path: Path) -> None:
    """Rows and old images change places between a plain table and a mapped one."""
    parts = PartitionInfo("RANGE", expr="`id`", definitions=(PartitionDef("p0", ("MAXVALUE",)),))
    parted = table(column(1, "id"), column(2, "v", TEXT), partition=parts, key=())
    stage = table(column(7, "old", TEXT), column(8, "id"), name="stage", key=())
    other = table(column(7, "v", TEXT), column(8, "id"), name="stage", version=20, key=())
    lake, rows = options(tmp_path), Rows()
    rows.update(11, {"v": "a"}, id=5, v="b")
    rows.update(12, {"old": "x"}, name="stage", old="y", id=3)
    steps = (Create(parted, 10, 1), Create(stage, 10, 2), Apply(parted, 10, 19), Apply(stage, 10, 19))
    run(lake, rows, *steps, Alter(stage, other, 20, 1), Exchange(parted, "p0", other, 30, 1))

    assert not is_mapped(lake)
    assert stored_schema(deltalog.load(lake.table_uri("stage-1"))).mapped
    (here,), (there,) = stored(lake, "t-1"), stored(lake, "stage-1")
    assert (here["id"], here["v"], json.loads(here["_tidegate_before"])) == (3, "y", {"id": "3", "v": "x"})
    assert (there["id"], there["v"], json.loads(there["_tidegate_before"])) == (5, "b", {"id": "5", "old": "a"})


def test_a_feed_and_its_readers(tmp_path: Path) -> None:
    """A table that a feed makes, fills and tends opens without Tidegate; the lake still shows the moments before."""
    feed = Small(tmp_path, Limits())
    feed.ddl(10, "CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    feed.rows.insert(11, id=1, v=1)
    feed.ddl(15, "ALTER TABLE t ADD COLUMN k INT NOT NULL DEFAULT 7")
    feed.round(20)
    feed.tend()
    uri, version = Lake(str(tmp_path)).location("s.t")
    assert DeltaTable(uri, version=version).to_pyarrow_table().to_pylist() == [{"id": 1, "v": 1, "k": 7}]

    feed.ddl(30, "ALTER TABLE t RENAME COLUMN v TO w")
    feed.ddl(31, "ALTER TABLE t ADD COLUMN v INT")
    feed.rows.insert(35, id=2, w=2, k=3, v=9)
    feed.round(40)
    feed.tend()
    now = [{"id": 1, "w": 1, "k": 7, "v": None}, {"id": 2, "w": 2, "k": 3, "v": 9}]
    query = QueryBuilder().register("t", DeltaTable(uri)).execute("select * from t")
    assert by_first(pa.table(query.read_all())) == by_first(Lake(str(tmp_path)).arrow("s.t")) == now
    assert Lake(str(tmp_path), 20).arrow("s.t").to_pylist() == [{"id": 1, "v": 1, "k": 7}]
    assert DeltaTable(uri, version=version).to_pyarrow_table().to_pylist() == [{"id": 1, "v": 1, "k": 7}]
