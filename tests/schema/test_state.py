"""Tables over time: scripts of DDL and what they leave behind."""

import pytest

from tests.upstream.change_world import World
from tidegate.model.errors import SchemaError, UnsupportedError
from tidegate.model.event import Ddl
from tidegate.model.table import TableInfo, TableName
from tidegate.model.tso import compose
from tidegate.schema import effects as e
from tidegate.schema import snapshot
from tidegate.schema.columns import render_type
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.schema.stored.snapshot import table_info


def run(*queries: str, state: SchemaState | None = None, start: int = 1) -> tuple[SchemaState, tuple[e.Effect, ...]]:
    """The state after the queries at commit_ts start, start + 1, .., and the last one's effects."""
    found: tuple[e.Effect, ...] = ()
    state = SchemaState() if state is None else state
    for ts, query in enumerate(queries, start=start):
        state, found = apply_ddl(state, Ddl(schema="db", table="t", query=query, commit_ts=ts), 0)
    return state, found


def table(state: SchemaState, name: str = "t", schema: str = "db") -> TableInfo:
    found = state.table(TableName(schema, name))
    assert found is not None
    return found


def shape(info: TableInfo) -> list[str]:
    """Columns as "name id type"."""
    return [f"{column.name} {column.id} {render_type(column.type)}" for column in info.columns]


ABC = "create table t (a int primary key, b varchar(9), c datetime)"


@pytest.mark.parametrize(
    ("specs", "names"),
    [
        ("add d int", "abcd"),
        ("add d int first", "dabc"),
        ("add d int first, add e int after a", "daebc"),
        ("add d int first, add e int first", "edabc"),
        ("add (d int, e int)", "abcde"),
        ("modify c datetime first", "cab"),
        ("modify a int after c", "bca"),
        ("change b d int after c", "acd"),
        ("change b d int, add e int after d", "adec"),
        ("drop b, add b int first", "bac"),
        ("drop column if exists x, add column if not exists b int", "abc"),
        ("rename column b to c, rename column c to b", "acb"),
        ("change b c int, change c b int", "acb"),
        ("drop b, rename column c to b", "ab"),
        ("modify c int after a, add d int after c", "acdb"),
    ],
)
def test_places(specs: str, names: str) -> None:
    """Columns stand where MySQL puts them, whatever the specs of one statement do to each other's names."""
    state, _ = run(ABC, f"alter table t {specs}")
    assert "".join(column.name for column in table(state).columns) == names


def test_ids_follow_columns() -> None:
    """Ids stay with a column through swaps and moves, and are never used again."""
    state, _ = run(
        ABC,
        "alter table t rename column b to c, rename column c to b",
        "alter table t drop column b",
        "alter table t add column d int first, modify column c bigint unsigned after d",
    )
    assert shape(table(state)) == ["d 4 int(11)", "c 2 bigint(20) unsigned", "a 1 int(11)"]


def test_keys_follow_columns() -> None:
    """Keys follow renames, lose dropped columns, and go with their last one."""
    state, _ = run(
        "create table t (a int not null, b int, c int, unique (a, b), key (b), key (b), key k (c, b))",
        "alter table t change a x int not null, drop column b",
    )
    assert [(index.name, index.columns) for index in table(state).indexes] == [("a", ("x",)), ("k", ("c",))]
    assert table(state).handle_key == ("x",)


def test_key_names_and_ids() -> None:
    """Unnamed keys are called after their first column, then _2, _3; expressions take a column id."""
    state, _ = run(
        "create table t (a int unique, b int, key (b), key ((a + 1)), key b_2 (b), key (b))",
        "alter table t add key (b), add column c int",
    )
    info = table(state)
    assert [(index.name, index.id) for index in info.indexes] == [
        ("b", 1),
        ("expression_index", 2),
        ("b_2", 3),
        ("b_3", 4),
        ("a", 5),
        ("b_4", 6),
    ]
    assert (info.max_column_id, info.columns[-1].id) == (4, 4)


FOREIGN = (
    "create table p (a int primary key)",
    """create table t (a int primary key, b int unique, c int, d int, foreign key (a) references p (a), constraint x
    foreign key (d) references p (a), foreign key (B) references p (a), foreign key (c) references p (a))""",
    "alter table t add foreign key (a) references p (a)",
    "alter table t drop foreign key fk_5",
    "alter table t add foreign key (b) references p (a), add foreign key (c) references p (a)",
)


def test_keys_of_foreign_keys() -> None:
    """The key that a foreign key brings along unless another begins with its columns has TiDB's name for it, fk_ and
    how many foreign keys the table ever had; an integer row key is no key to ALTER."""
    state, _ = run(*FOREIGN)
    keys = [(index.name, index.columns) for index in table(state).indexes]
    assert keys == [("PRIMARY", ("a",)), ("b", ("b",)), ("x", ("d",)), ("fk_4", ("c",)), ("fk_5", ("a",))]
    assert table(state).max_fk_id == 7

    made = table_info(World("db").run("create database db", *FOREIGN).table("t"), "db", 1)
    assert [(index.name, index.columns) for index in made.indexes] == keys
    assert made.max_fk_id == 7


def test_primary_key() -> None:
    """A primary key makes its columns NOT NULL, MODIFY cannot undo that, and dropping the key leaves it."""
    state, _ = run(
        "create table t (a int, b int)", "alter table t add primary key (b, a)", "alter table t modify a bigint null"
    )
    assert table(state).handle_key == ("b", "a")
    assert [column.nullable for column in table(state).columns] == [False, False]
    state, _ = run("alter table t drop primary key, add unique u (a)", state=state, start=9)
    assert table(state).handle_key == ("a",)


def test_charsets_come_down() -> None:
    """Charset: database to table to column; CONVERT changes text columns, the option only those to come."""
    state, _ = run(
        "create database db charset latin1",
        "create table t (a varchar(9), b varchar(9) charset gbk, c text collate utf8mb4_bin, d blob, e int)",
        "alter table t charset utf8mb4, add f char(3)",
    )
    assert [column.type.charset for column in table(state).columns] == [
        "latin1",
        "gbk",
        "utf8mb4",
        "binary",
        "binary",
        "utf8mb4",
    ]
    state, _ = run("alter table t convert to charset utf8mb3", state=state, start=9)
    assert [column.type.charset for column in table(state).columns] == [
        "utf8",
        "utf8",
        "utf8",
        "binary",
        "binary",
        "utf8",
    ]


@pytest.mark.parametrize(
    ("column", "default", "origin"),
    [
        ("int default true", "1", "1"),
        ("int default 0x1f", "31", "31"),
        ("int not null", None, None),
        ("decimal(5,2) default 3.10", "3.10", "3.10"),
        ("bit(10) default b'1000000001'", b"\x02\x01", b"\x02\x01"),
        ("bit(10) default 5", b"\x00\x05", b"\x00\x05"),
        ("binary(4) default 'ab'", b"ab\0\0", b"ab\0\0"),
        ("varbinary(4) default x'00ff'", b"\x00\xff", b"\x00\xff"),
        ("varchar(4) default x'6162'", "ab", "ab"),
        ("datetime(3) default now(3)", "CURRENT_TIMESTAMP(3)", "CURRENT_TIMESTAMP(3)"),
        ("timestamp default current_timestamp", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP"),
        ("date default (current_date)", "current_date", None),
        ("date default current_date", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP"),
        ("varchar(36) default (uuid())", "uuid()", None),
        ("int as (a + 1) stored", None, None),
    ],
)
def test_origin_defaults(column: str, default: str | bytes | None, origin: str | bytes | None) -> None:
    """A new column keeps what its old rows hold, while its default may change later."""
    state, _ = run("create table t (a int)")
    state, _ = run(f"alter table t add c {column}", state=state, start=compose(1577934245678, 5))
    added = table(state).columns[1]
    assert (added.default, added.origin_default) == (default, origin)
    if added.generated is None:
        state, _ = run(
            "alter table t alter c drop default", "alter table t change c d varchar(99)", state=state, start=9
        )
        assert (table(state).columns[1].default, table(state).columns[1].origin_default) == (None, origin)


def test_incarnations() -> None:
    """CREATE and TRUNCATE make new rows; RENAME, ALTER and repartitioning keep them; FLASHBACK brings old ones back."""
    state, _ = run(
        "create table t (a int primary key)",
        "rename table t to u",
        "alter table u add b int",
        "alter table u partition by hash (a) partitions 2",
    )
    assert (table(state, "u").incarnation, table(state, "u").version) == ("1-0", 4)
    state, found = run("truncate table u", "flashback table u to v", state=state, start=0x1F)
    assert table(state, "u").incarnation == "1f-0"
    assert found == (e.TableRecovered(table(state, "v")),)
    assert (table(state, "v").incarnation, shape(table(state, "v"))) == ("1-0", ["a 1 int(11)", "b 2 int(11)"])
    state, _ = run("drop table u", "create table u (x int)", "drop table u", "recover table u", state=state, start=0x30)
    assert table(state, "u").incarnation == "31-0"
    state, _ = run("rename table u to w", "recover table by job 5", state=state, start=0x40)
    assert state.table(TableName("db", "t")) is None


def test_several_tables() -> None:
    """Swaps by RENAME, DROP of several tables and DROP DATABASE give one effect a table, in order."""
    state, found = run(
        "create table t (a int)",
        "create table u (b int)",
        "rename table t to tmp, u to t, tmp to u",
    )
    assert [shape(table(state, name)) for name in ("t", "u")] == [["b 1 int(11)"], ["a 1 int(11)"]]
    assert [type(effect) for effect in found] == [e.TableRenamed] * 3
    _, found = run("drop table t, u, nothing", state=state, start=9)
    assert [type(effect) for effect in found] == [e.TableDropped, e.TableDropped, e.NoEffect]
    state, found = run("drop database db", "recover table t", state=state, start=9)
    assert state == SchemaState()


def test_names_fold() -> None:
    """Names compare without case and keep the case that they were given."""
    state, _ = run("create table `T` (`Id` int)", "alter table t add primary key (ID)", "rename table T to t")
    assert str(table(state).name) == "db.t"
    assert table(state).handle_key == ("Id",)


def test_doubtful_names() -> None:
    """A rename into another database finds its old table where it is, and refuses to guess between two."""
    state, _ = run("create table gi.r (a int)", "rename table r to db.r2")
    assert state.table(TableName("db", "r2")) is not None
    state, _ = run(
        "create table x.s (a int)", "alter table s rename to db.s2", "create table db.s3 like s2", state=state, start=9
    )
    assert state.table(TableName("db", "s3")) is not None
    with pytest.raises(SchemaError, match=r"x\.q, y\.q"):
        run("create table x.q (a int)", "create table y.q (a int)", "rename table q to db.q2", state=state, start=20)


RANGE = (
    "create table t (a int primary key, b int) partition by range (a) "
    "(partition p0 values less than (10), partition p1 values less than (20), partition p2 values less than maxvalue)"
)


@pytest.mark.parametrize(
    ("spec", "names", "effect"),
    [
        ("drop partition P1, p0", "p2", e.PartitionsDropped),
        ("drop partition if exists p9", "p0 p1 p2", e.NoEffect),
        ("truncate partition p1", "p0 p1 p2", e.PartitionsTruncated),
        ("truncate partition all", "p0 p1 p2", e.PartitionsTruncated),
        ("reorganize partition p1, p2 into (partition x values less than maxvalue)", "p0 x", e.TableAltered),
        ("partition by hash (b) partitions 2", "p0 p1", e.TableAltered),
        ("remove partitioning", "", e.TableAltered),
    ],
)
def test_partition_specs(spec: str, names: str, effect: type[e.Effect]) -> None:
    """Partition specs change the definitions; only DROP and TRUNCATE lose rows, and say which."""
    state, (found,) = run(RANGE, f"alter table t {spec}")
    partition = table(state).partition
    assert " ".join(item.name for item in partition.definitions if partition) == names if partition else names == ""
    assert isinstance(found, effect)
    assert table(state).incarnation == "1-0"
    match found:
        case e.PartitionsDropped(old, gone, _):
            assert (gone, old.partition is not None) == (("p0", "p1"), True)
        case e.PartitionsTruncated(_, gone, _):
            assert gone == (("p0", "p1", "p2") if "all" in spec else ("p1",))
        case _:
            pass


def test_hash_partitions() -> None:
    """HASH partitions are numbered on; renaming a column reaches the expression."""
    state, _ = run(
        "create table t (a int) partition by hash (a + abs(`a`)) partitions 4",
        "alter table t coalesce partition 2",
        "alter table t add partition partitions 1",
        "alter table t rename column a to `b c`",
    )
    partition = table(state).partition
    assert partition is not None
    assert ([item.name for item in partition.definitions], partition.count) == (["p0", "p1", "p2"], 3)
    assert partition.expr == "`b c` + abs(`b c`)"


def test_exchange() -> None:
    """EXCHANGE PARTITION leaves both definitions and names the partition."""
    state, (found,) = run(
        RANGE, "create table u (a int primary key, b int)", "alter table t exchange partition P1 with table u"
    )
    assert isinstance(found, e.PartitionExchanged)
    assert (found.partition, str(found.other.name), table(state, "u").version) == ("p1", "db.u", 3)


@pytest.mark.parametrize(
    "query",
    [
        "alter table t add index i (a)",
        "alter table t add b int",
        "drop table t",
        "drop table if exists t",
        "truncate table t",
        "rename table t to u",
        "create table u like t",
        "recover table t",
        "flashback table t to u",
        "alter table t exchange partition p with table u",
        "create database if not exists db",
        "create view v as select 1",
        "drop view v",
        "create sequence s",
        "alter database db charset utf8",
        "drop database db",
    ],
)
def test_unknown_tables(query: str) -> None:
    """DDL on a table that was never seen has no effect, for a reason, and makes no table."""
    state, found = run(query)
    assert not state.tables
    assert all(isinstance(effect, e.NoEffect) and effect.reason for effect in found)


@pytest.mark.parametrize(
    "query", [ABC.replace("t (", "if not exists t ("), "alter table t add key (b)", "alter table t comment 'x'"]
)
def test_harmless(query: str) -> None:
    """Keys and comments are kept; what exists already stays."""
    state, (found,) = run(ABC, query)
    assert isinstance(found, e.TableAltered | e.NoEffect)
    assert shape(table(state)) == ["a 1 int(11)", "b 2 varchar(9)", "c 3 datetime"]


@pytest.mark.parametrize(
    "query",
    [
        ABC,
        "alter table t add a int",
        "alter table t drop x",
        "alter table t modify x int",
        "alter table t add d int after x",
        "alter table t rename column b to c",
        "alter table t drop index i",
        "alter table t rename index i to j",
        "alter table t add key (x)",
        "alter table t drop primary key, drop primary key",
        "alter table t drop partition p",
        "alter table t drop a, drop b, drop c",
        "create table t like t",
        "rename table t to u",
    ],
)
def test_contradictions(query: str) -> None:
    """A DDL that does not fit a known table is a SchemaError that names table, timestamp and DDL."""
    state, _ = run(ABC, "create table u (a int)")
    with pytest.raises(SchemaError, match=r"db\.[tu].*commit_ts 77") as caught:
        run(query, state=state, start=77)
    assert query[:20] in str(caught.value)


@pytest.mark.parametrize(
    "query",
    [
        "create table u as select 1",
        "create table u (a int) partition by range (a) interval (5) first partition less than (5)",
        "alter table t last partition less than (9)",
        "flashback database db",
    ],
)
def test_not_followed(query: str) -> None:
    """What we can read but not follow is an UnsupportedError."""
    state, _ = run(ABC)
    with pytest.raises(UnsupportedError):
        run(query, state=state, start=5)


def test_a_text_from_before_a_rename() -> None:
    """A DDL that waited while its table was renamed has the old name in its text, the one of now in its event: that is
    the table it changes, even when another one has the old name by then."""
    state, _ = run("create table t (id int primary key, a int)", "rename table t to u")
    state, _ = run("create table t (id int primary key, a int)", state=state, start=10)
    late = Ddl(schema="db", table="u", query="alter table t drop column a", commit_ts=20)
    gone = Ddl(schema="db", table="u", query="truncate table t", commit_ts=30)

    dropped, _ = apply_ddl(state, late, 0)
    emptied, _ = apply_ddl(dropped, gone, 0)

    assert [column.name for column in table(dropped, "u").columns] == ["id"]
    assert [column.name for column in table(dropped).columns] == ["id", "a"]
    assert table(emptied, "u").incarnation != table(dropped, "u").incarnation
    assert table(emptied).incarnation == table(state).incarnation


def test_without_commit_ts() -> None:
    """Canal-JSON without the TiDB extension places a DDL by its milliseconds; without any time it is an error."""
    ddl = Ddl(schema="db", table="t", query=ABC, es_ms=1000)
    state, _ = apply_ddl(SchemaState(), ddl, 3)
    assert table(state).incarnation == f"{1000 << 18:x}-3"
    with pytest.raises(SchemaError):
        apply_ddl(SchemaState(), Ddl(schema="db", table="t", query=ABC), 0)


def test_stored_state() -> None:
    """JSON keeps everything, bytes and odd names too; other JSON is a SchemaError."""
    state, _ = run(
        "create table `a``b`.`\"\n表` (a binary(2) default x'ff00', b bit(9) default b'1', c enum('x') default 'x')",
        "create view v as select 1",
        "create table t (a int)",
        "drop table t",
    )
    assert SchemaState.from_json(state.to_json()) == state
    for junk in (b"", b"{}", b"[1]", state.to_json()[:-5]):
        with pytest.raises(SchemaError):
            SchemaState.from_json(junk)


def test_a_table_is_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JSON of a state packs the tables that the DDLs since the last one changed, and is that of a state anew."""
    packed: list[str] = []
    pack = snapshot._pack_table
    monkeypatch.setattr(snapshot, "_pack_table", lambda table: (packed.append(table.name.table), pack(table))[1])
    state, names = SchemaState(), [f"t{number}" for number in range(20)]
    for at, query in enumerate([*(f"create table {name} (a int)" for name in names), "alter table t3 add b int"]):
        state, _ = run(query, state=state, start=at + 1)
        text = state.to_json()
    assert packed == [*names, "t3"]
    assert SchemaState.from_json(text).to_json() == text
    first, second = [id(table) for table in state.tables.values()][:2]
    state._packed[first] = state._packed[second]  # as in another process, where other tables have these identities
    assert state.to_json() == text
    dropped, _ = run("drop table t3", state=state, start=99)
    assert SchemaState.from_json(dropped.to_json()) == dropped
