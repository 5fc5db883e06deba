"""Column selectors of a lake: what is stored of rows, what DDLs do, and what is refused; on real Delta tables."""

from pathlib import Path

import msgspec
import pytest

from tests.sink.delta.lake import INT, TEXT, Rows, column, options, run, stored, table
from tidegate.config.delta import delta_options
from tidegate.config.load import load
from tidegate.engine.filter import SelectorRule
from tidegate.engine.plan import Alter, Checkpoint, Create, Exchange, Round, Step, Trim, Unit
from tidegate.engine.plan import Rows as Apply
from tidegate.model.errors import ColumnSelectorFailed, SchemaError, SinkRefused
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType, IndexInfo, PartitionDef, PartitionInfo, TableInfo, TableName
from tidegate.objectstore import deltalog
from tidegate.schema.snapshot import SchemaState
from tidegate.sink.delta.apply import TableResult
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.sink.delta.snapshots import latest

RULES = (SelectorRule(("s.t",), ("*", "!secret*")),)
T = table(column(1, "id"), column(2, "v", TEXT), column(3, "secret", TEXT))


def lake_of(root: Path, *rules: SelectorRule, **more: object) -> DeltaOptions:
    """A lake with these selectors, or those of this file."""
    return options(root, selectors=rules or RULES, **more)


def version(lake: DeltaOptions) -> tuple[int, list[str]]:
    """The version of the stored table, and its files."""
    found = deltalog.load(lake.table_uri("t-1"))
    assert found is not None
    return found.version, [file.path for file in found.files()]


def names(lake: DeltaOptions, incarnation: str = "t-1") -> list[str]:
    """The stored columns."""
    found = deltalog.load(lake.table_uri(incarnation))
    assert found is not None
    return [each["name"] for each in found.fields]


def filled(lake: DeltaOptions, info: TableInfo = T) -> Rows:
    """The table with two rows."""
    rows = Rows()
    rows.insert(20, id=1, v="a", secret="x")
    rows.insert(20, id=2, v="b", secret="y")
    run(lake, rows, Create(info, 10, 1), Apply(info, 10, 25))
    return rows


@pytest.mark.parametrize(
    ("mode", "own"),
    [
        ("replica", []),
        ("changelog", ["_change_type", "_commit_ts", "_commit_seq", "_commit_time"]),
        ("history", ["_valid_from", "_valid_to"]),
    ],
)
def test_columns_are_left_out_in_each_mode(tmp_path: Path, mode: str, own: list[str]) -> None:
    """The chosen columns are stored with their values; rows are changed by them as ever."""
    lake = lake_of(tmp_path, mode=mode)
    rows = filled(lake)
    rows.update(30, {"v": "a"}, id=1, v="c", secret="z")
    rows.delete(31, id=2, v="b", secret="y")
    run(lake, rows, Apply(T, 25, 40))

    assert names(lake) == ["id", "v", *own]
    if mode == "replica":
        assert stored(lake, "t-1") == [{"id": 1, "v": "c"}]
    assert {"a", "c"} >= {row["v"] for row in stored(lake, "t-1") if row["id"] == 1} >= {"c"}


def test_a_log_leaves_them_out_of_old_images(tmp_path: Path) -> None:
    """Of a table without a key, too."""
    lake, rows = lake_of(tmp_path), Rows()
    keyless = msgspec.structs.replace(T, indexes=())
    rows.update(20, {"v": "a", "secret": "x"}, id=1, v="b", secret="y")
    run(lake, rows, Create(keyless, 10, 1), Apply(keyless, 10, 25))

    assert [row["_tidegate_before"] for row in stored(lake, "t-1")] == ['{"id":"1","v":"a"}']
    assert names(lake)[:2] == ["id", "v"]


def test_a_column_that_nobody_knows_still_stops_the_feed(tmp_path: Path) -> None:
    """One that is excluded is known; one that no definition has is not, whatever the selectors would say of it."""
    lake = lake_of(tmp_path)
    rows = filled(lake)
    rows.insert(30, id=3, v="c", secret="x", secret_stranger=3)

    with pytest.raises(SchemaError, match=r"secret_stranger.*offset 2"):
        run(lake, rows, Apply(T, 25, 40))


def test_ddls_of_columns_that_are_left_out(tmp_path: Path) -> None:
    """ADD, MODIFY, RENAME and DROP of them change neither columns nor files."""
    lake = lake_of(tmp_path, schema_change="exception")
    rows = filled(lake)
    _, files = version(lake)
    number = column(4, "secret_no", INT, nullable=False, origin_default="7")
    added = table(*T.columns, number, version=30)
    changed = table(*T.columns[:2], column(3, "secret", ColumnType(MysqlType.JSON)), number, version=31)
    renamed = table(*T.columns[:2], column(3, "secret2", ColumnType(MysqlType.JSON)), number, version=32)
    dropped = table(*T.columns[:2], version=33)
    steps: list[Step] = [
        Alter(old, new, new.version, 1)
        for old, new in ((T, added), (added, changed), (changed, renamed), (renamed, dropped))
    ]
    rows.insert(40, id=3, v="c")
    run(lake, rows, *steps)
    assert (names(lake), version(lake)[1]) == (["id", "v"], files)

    run(lake, rows, Apply(dropped, 33, 50))
    assert [row["id"] for row in stored(lake, "t-1")] == [1, 2, 3]
    with pytest.raises(SinkRefused, match="schema-change"):
        run(lake, rows, Alter(dropped, table(*T.columns[:2], column(5, "w"), version=60), 60, 1))


def test_ddls_of_chosen_columns_are_followed(tmp_path: Path) -> None:
    """A default fills rows of before, beside a column that is excluded."""
    lake = lake_of(tmp_path)
    rows = filled(lake)
    more = column(4, "n", INT, nullable=False, origin_default="7")
    run(lake, rows, Alter(T, table(*T.columns, more, version=30), 30, 1))

    assert stored(lake, "t-1") == [{"id": 1, "v": "a", "n": 7}, {"id": 2, "v": "b", "n": 7}]


def test_a_rename_that_leaves_a_column_out_drops_it(tmp_path: Path) -> None:
    """As DROP COLUMN would."""
    lake = lake_of(tmp_path)
    rows = filled(lake)
    run(lake, rows, Alter(T, table(column(1, "id"), column(2, "secret_v", TEXT), T.columns[2], version=30), 30, 1))

    assert stored(lake, "t-1") == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize("policy", ["evolve", "lenient", "exception"])
def test_a_rename_that_brings_a_column_in_is_refused(tmp_path: Path, policy: str) -> None:
    """Its values of before are not in the lake; the message names table, ts, both names and the DDL."""
    lake = lake_of(tmp_path, schema_change=policy)
    rows = filled(lake)
    shown = table(*T.columns[:2], column(3, "shown", TEXT, nullable=False, origin_default="no"), version=30)
    with pytest.raises(ColumnSelectorFailed, match=r"s\.t at ts 30.*column secret.*becomes shown.*DDL: RENAME it"):
        run(lake, rows, Alter(T, shown, 30, 1, "RENAME it"))

    assert names(lake) == ["id", "v"]
    gentle = msgspec.structs.replace(lake, schema_change="try_evolve")
    rows.insert(40, id=3, v="c", shown="s")
    run(gentle, rows, Alter(T, shown, 30, 1), Apply(shown, 30, 50))
    assert [row["shown"] for row in stored(lake, "t-1")] == [None, None, "s"]


UNIQUE = IndexInfo(2, "u", ("v",), unique=True)
RANGES = PartitionInfo(
    "RANGE", expr="`v`", definitions=(PartitionDef("p0", ("10",)), PartitionDef("p1", ("MAXVALUE",)))
)


@pytest.mark.parametrize(
    ("info", "columns", "told"),
    [
        (T, ("v",), r"'id' is excluded, but a lake finds rows by their key \(id\)"),
        (T, ("nothing",), "no column is selected"),
        (msgspec.structs.replace(T, indexes=(*T.indexes, UNIQUE)), ("v",), "'id' is excluded"),
        (table(column(1, "id"), column(2, "v"), key=(), partition=RANGES), ("id",), r"partition are excluded.*`v`"),
    ],
)
def test_what_a_lake_needs_must_stay(tmp_path: Path, info: TableInfo, columns: tuple[str, ...], told: str) -> None:
    """The key, any column at all, and what tells partitions; when a table is made, or a DDL makes it so."""
    lake = lake_of(tmp_path, SelectorRule(("s.t",), columns))
    with pytest.raises(ColumnSelectorFailed, match=rf"s\.t at ts 10: .*{told}"):
        run(lake, Rows(), Create(info, 10, 1))

    assert deltalog.load(lake.table_uri("t-1")) is None


def test_a_key_that_is_left_out_later(tmp_path: Path) -> None:
    """A DDL after which rows are found by a column that is excluded ends the feed before it changes anything."""
    lake = lake_of(tmp_path)
    rows = filled(lake)
    other = msgspec.structs.replace(T, version=30, indexes=(IndexInfo(1, "PRIMARY", ("secret",), True, True),))
    with pytest.raises(ColumnSelectorFailed, match=r"at ts 30.*'secret' is excluded"):
        run(lake, rows, Alter(T, other, 30, 1))

    assert version(lake)[0] == 1


def test_partitions_are_told_by_columns_that_stay(tmp_path: Path) -> None:
    """DROP PARTITION takes the right rows; EXCHANGE with a table of which other columns are chosen is refused."""
    parts = PartitionInfo("RANGE", "`id`", definitions=(PartitionDef("p0", ("2",)), PartitionDef("p1", ("9",))))
    parted = msgspec.structs.replace(T, partition=parts)
    stage = table(*T.columns, name="stage")
    lake = lake_of(tmp_path, SelectorRule(("s.t",), ("*", "!v")), SelectorRule(("s.stage",), ("*", "!secret")))
    rows = filled(lake, parted)
    run(lake, rows, Create(stage, 25, 1))
    with pytest.raises(ColumnSelectorFailed, match=r"select secret of s\.t but not of s\.stage"):
        run(lake, rows, Exchange(parted, "p0", stage, 30, 1))

    run(lake, rows, Trim(parted, parted, ("p0",), 31, 1))
    assert stored(lake, "t-1") == [{"id": 2, "secret": "y"}]


def planned(ts: int, steps: tuple[Step, ...], *tables: TableInfo, dropped: tuple[TableInfo, ...] = ()) -> Round:
    """A round of one unit that ends with these tables."""
    state = SchemaState({}, {info.name.key: info for info in tables}, dropped)
    return Round((Unit(steps),) if steps else (), state, Checkpoint(ts), (), ())


def published(lake: DeltaOptions) -> DeltaSink:
    """A lake with the table, published."""
    filled(lake)
    sink = DeltaSink(lake)
    sink.recover()
    sink.advance(planned(25, (Create(T, 10, 1),), T), [TableResult("t-1", T.name, 1)])
    return sink


def named(name: str, info: TableInfo = T) -> TableInfo:
    """The table under another name."""
    return msgspec.structs.replace(info, name=TableName("s", name), version=30)


def test_a_round_is_looked_at_before_it_is_done(tmp_path: Path) -> None:
    """Tables that it makes, changes and renames; a new name under which the same columns are chosen is fine."""
    rules = (SelectorRule(("s.t", "s.u"), ("*", "!secret*")),)
    sink = published(lake_of(tmp_path, *rules))
    keyless = table(column(1, "secret"), column(2, "v"), name="u", key=("secret",))
    for wrong in (
        planned(30, (Create(keyless, 30, 1),), T, keyless),
        planned(30, (Alter(T, msgspec.structs.replace(keyless, name=T.name), 30, 1),), T),
        planned(30, (), named("w")),
        planned(
            30,
            (Create(msgspec.structs.replace(T, incarnation="n"), 30, 1),),
            T,
            named("x", table(*T.columns, incarnation="n")),
        ),
    ):
        with pytest.raises(ColumnSelectorFailed):
            sink.admit(wrong)

    with pytest.raises(ColumnSelectorFailed, match=r"s\.t becomes s\.w at ts 30.*\(secret\)"):
        sink.admit(planned(30, (), named("w")))
    sink.admit(planned(30, (), named("u")))
    filtered = msgspec.structs.replace(sink.options, rules=("s.t", "s.u"))
    sink.options = filtered
    sink.admit(planned(30, (), named("w")))


def test_a_table_that_comes_back(tmp_path: Path) -> None:
    """FLASHBACK TABLE to another name, and after the selectors were changed, finds the columns that were stored."""
    sink = published(lake_of(tmp_path))
    sink.advance(planned(30, (), dropped=(T,)), [])
    sink.admit(planned(40, (), T))
    with pytest.raises(ColumnSelectorFailed, match=r"s\.t becomes s\.w"):
        sink.admit(planned(40, (), named("w")))

    later = DeltaSink(lake_of(tmp_path, SelectorRule(("s.t",), ("*", "!v"))))
    later.recover()
    with pytest.raises(ColumnSelectorFailed, match="v is stored, secret is not stored"):
        later.admit(planned(40, (), T))


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        (RULES, None),
        ((SelectorRule(("s.*",), ("*", "!/secret/")),), None),
        ((*RULES, SelectorRule(("s.other",), ("id",))), None),
        ((), "secret is not stored"),
        ((SelectorRule(("s.t",), ("id",)),), "v is stored"),
        ((SelectorRule(("s.t",), ("v",)),), "'id' is excluded"),
    ],
)
def test_other_selectors_than_before(tmp_path: Path, rules: tuple[SelectorRule, ...], told: str | None) -> None:
    """They are refused at the start when they concern a stored column of a table that the lake has."""
    published(lake_of(tmp_path))
    sink = DeltaSink(options(tmp_path, selectors=rules))
    if told is None:
        sink.recover()
        return
    with pytest.raises(ColumnSelectorFailed, match=told):
        sink.recover()


@pytest.mark.parametrize("source", ["kafka://h/t?protocol=open-protocol", "tidb://{}"])
def test_a_file_chooses_columns(tmp_path: Path, source: str) -> None:
    """On both ways into a lake, without a warning that the keys do nothing."""
    file = tmp_path / "feed.toml"
    file.write_text('[[sink.column-selectors]]\nmatcher = ["s.t"]\ncolumns = ["*", "!secret*"]\n')
    config = load(file, source_uri=source.format(tmp_path), sink_uri="delta:///lake")

    assert delta_options(config).selectors == RULES
    assert not config.warnings


def test_a_snapshot_knows_its_selectors(tmp_path: Path) -> None:
    """Readers of the changelog go on from it as the feed would; a lake of before has none."""
    published(lake_of(tmp_path / "some"))
    published(options(tmp_path / "none"))

    for name, rules in (("some", RULES), ("none", ())):
        found = latest(options(tmp_path / name)).options
        assert found is not None
        assert found.selectors == rules
