"""INSERT, REPLACE, UPDATE, DELETE: rows, counts, errors, and what happens to keys."""

import msgspec
import pytest

from tests.upstream.sql.table_kit import ID, NOT_NULL, PRIMARY, STRICT, World, column, index, integer, table, varchar
from tidegate.model.errors import SqlRefused, UnsupportedError
from tidegate.model.mysql import MysqlType as T
from tidegate.schema.stored.definition import Name, StoredCheck, StoredPartition, StoredPartitionDef, StoredType

A, S = column(2, "a", integer()), column(3, "s", varchar(collate="utf8mb4_general_ci"))
UNIQUE = index(1, "u", {"a": 1}, is_unique=True)
ON_S = index(2, "k", {"s": 2})
BINARY, TIMESTAMP = 128, StoredType(T.TIMESTAMP, 8192 | 128, 19, 0, "binary", "binary")


@pytest.fixture
def world():
    """Table t (id INT PRIMARY KEY, a INT UNIQUE, s VARCHAR(20), KEY (s)) with three rows."""
    found = World(table([ID, A, S], [UNIQUE, ON_S]))
    found.run("insert into t values (1, 10, 'x'), (2, 20, 'y'), (3, null, 'X')")
    yield found
    assert found.faults() == []


def refused(world, sql, **more):
    """The error of a statement."""
    with pytest.raises(SqlRefused) as caught:
        world.run(sql, **more)
    return caught.value.mysql_code, caught.value.message


def test_insert_counts_rows(world):
    """Affected is the number of rows; several have an info text."""
    outcome, _ = world.run("insert into t (id, a) values (4, 40), (5, 50)")

    assert (outcome.affected, outcome.info) == (2, "Records: 2  Duplicates: 0  Warnings: 0")
    assert world.rows()[3:] == [(4, 40, None), (5, 50, None)]


def test_insert_set_and_later_values_see_earlier_ones(world):
    """SET a = .. is a row, and an expression may name a column to its left."""
    world.run("insert into t set id = 4, a = id * 10, s = concat('n', a)")

    assert world.rows()[3] == (4, 40, "n40")


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("insert into t values (1, 5, 'z')", (1062, "Duplicate entry '1' for key 't.PRIMARY'")),
        ("insert into t values (9, 20, 'z')", (1062, "Duplicate entry '20' for key 't.u'")),
        ("insert into t values (null, 5, 'z')", (1048, "Column 'id' cannot be null")),
        ("insert into t (a) values (5)", (1364, "Field 'id' doesn't have a default value")),
        ("insert into t (id, nope) values (5, 5)", (1054, "Unknown column 'nope' in 'field list'")),
        ("insert into t values (5)", (1136, "Column count doesn't match value count at row 1")),
        ("insert into t values (5, 5, 'z'), (6, 6)", (1136, "Column count doesn't match value count at row 2")),
        ("insert into t (id, id) values (5, 5)", (1110, "Column 'id' specified twice")),
        ("insert into t values (7, 7, 'z'), (8, 'q', 'z')", (1366, "Incorrect int value: 'q' for column 'a' at row 2")),
        ("insert into nope values (1)", (1146, "Table 'd.nope' doesn't exist")),
        ("update t set a = 20 where id = 1", (1062, "Duplicate entry '20' for key 't.u'")),
        ("update t set id = 2 where id = 1", (1062, "Duplicate entry '2' for key 't.PRIMARY'")),
        ("update t set id = null where id = 1", (1048, "Column 'id' cannot be null")),
        ("update t set nope = 1", (1054, "Unknown column 'nope' in 'field list'")),
        ("delete from t where nope = 1", (1054, "Unknown column 'nope' in 'where clause'")),
    ],
)
def test_refused_statements_change_nothing(world, sql, error):
    """A refused statement says why in MySQL's words, and what it had written is undone."""
    before = world.storage.snapshot().scan(b"")
    rows = dict(before)

    assert refused(world, sql) == error
    assert dict(world.storage.snapshot().scan(b"")) == rows


def test_insert_ignore_leaves_duplicates_out(world):
    """IGNORE bends values and skips rows, each with a warning."""
    outcome, found = world.run("insert ignore into t values (1, 5, 'z'), (4, 'q', 'z'), (null, 7, 'z')")

    assert outcome.affected == 2
    assert [warning.code for warning in found.warnings] == [1062, 1366, 1048]
    assert world.rows()[0] == (0, 7, "z")
    assert world.rows()[-1] == (4, 0, "z")


def test_on_duplicate_key_update(world):
    """The row that holds the key changes: 2; nothing to change: 0; VALUES() is the row that was refused."""
    changed, _ = world.run("insert into t values (1, 11, 'q') on duplicate key update a = values(a), s = concat(s, a)")
    again, _ = world.run("insert into t values (1, 11, 'q') on duplicate key update a = 11")
    fresh, _ = world.run("insert into t values (7, 70, 'q') on duplicate key update a = values(a)")

    assert [changed.affected, again.affected, fresh.affected] == [2, 0, 1]
    assert refused(world, "insert into t values (7, 7, 'q') as n on duplicate key update a = n.a")[0] == 1235
    assert world.rows()[0] == (1, 11, "x11")
    assert world.rows()[-1] == (7, 70, "q")


def test_replace_removes_every_row_in_the_way(world):
    """REPLACE counts the rows that went; the same row again counts one."""
    two, _ = world.run("replace into t values (1, 20, 'new')")
    same, _ = world.run("replace into t values (1, 20, 'new')")

    assert (two.affected, same.affected) == (3, 1)
    assert world.rows() == [(1, 20, "new"), (3, None, "X")]


def test_update_counts_changed_rows(world):
    """Matched and changed differ where a row stays as it is."""
    outcome, _ = world.run("update t set s = 'x' where id in (1, 2)")

    assert (outcome.affected, outcome.matched) == (1, 2)
    assert outcome.info == "Rows matched: 2  Changed: 1  Warnings: 0"


def test_update_goes_from_left_to_right(world):
    """B = a sees the new a."""
    world.run("update t set a = a + 1, s = a where id = 1")

    assert world.rows()[0] == (1, 11, "11")


def test_update_in_order_and_limited(world):
    """ORDER BY and LIMIT choose the rows; keys that move out of each other's way need the order."""
    world.run("update t set id = id + 1 order by id desc")
    world.run("update t set s = 'last' order by id desc limit 1")

    assert world.rows() == [(2, 10, "x"), (3, 20, "y"), (4, None, "last")]


def test_update_default(world):
    """DEFAULT is the column's default, DEFAULT(a) another's."""
    world.run("update t set a = default, s = default(s) where id = 1")

    assert world.rows()[0] == (1, None, None)


def test_delete(world):
    """DELETE counts rows, and takes ORDER BY and LIMIT."""
    one, _ = world.run("delete from t order by id desc limit 1")
    rest, _ = world.run("delete from t where s = 'X'")

    assert (one.affected, rest.affected) == (1, 1)
    assert world.rows() == [(2, 20, "y")]


def test_unique_keys_take_many_nulls(world):
    """NULL is never a duplicate; what is equal by the collation is."""
    world.run("insert into t values (4, null, 'z')")
    world.define(table([ID, A, S], [UNIQUE, ON_S, index(3, "us", {"s": 2}, is_unique=True)]))
    world.run("insert into t values (5, 50, 'new')")

    assert refused(world, "insert into t values (6, 60, 'NEW')") == (1062, "Duplicate entry 'NEW' for key 't.us'")
    world.define(table([ID, A, S], [UNIQUE, ON_S]))


def test_not_strict_inserts_zeros():
    """Without strict mode a missing value is the zero value, with a warning."""
    world = World(table([ID, column(2, "a", integer(NOT_NULL)), column(3, "s", varchar(3, NOT_NULL))]))
    _, found = world.run("insert into t (id) values (1), ('2x')", ())

    assert world.rows() == [(1, 0, ""), (2, 0, "")]
    assert sorted(warning.code for warning in found.warnings) == [1364, 1364, 1364, 1364, 1366]


def test_defaults():
    """Literals, moments and expressions; ON UPDATE only for rows that change."""
    moment = column(3, "c", TIMESTAMP, default="CURRENT_TIMESTAMP")
    drawn = column(4, "e", varchar(), default="upper('q')", default_is_expr=True)
    world = World(table([ID, column(2, "a", integer(), default="7"), moment, drawn]))
    world.run("insert into t (id) values (1), (2)")
    world.run("update t set c = '2000-01-01 00:00:00' where id = 1")
    world.run("update t set a = 7 where id = 1")

    assert [(row[1], row[2].year, row[3]) for row in world.rows()] == [(7, 2000, "Q"), (7, 2024, "Q")]
    world.run("update t set a = 8 where id = 1")
    assert world.rows()[0][2].year == 2024


def test_generated_columns():
    """They follow their columns, cannot be given, and carry indexes."""
    virtual = column(3, "v", integer(), generated_expr_string="`a` + 1")
    stored = column(4, "g", integer(), generated_expr_string="`v` * 2", generated_stored=True)
    world = World(table([ID, A, virtual, stored], [index(1, "kv", {"v": 2})]))
    world.run("insert into t (id, a) values (1, 10), (2, null)")
    world.run("insert into t values (3, 30, default, default)")
    world.run("update t set a = 11 where v = 11")

    assert world.rows() == [(1, 11, 12, 24), (2, None, None, None), (3, 30, 31, 62)]
    assert world.faults() == []
    assert refused(world, "insert into t values (4, 4, 5, 10)")[0] == 3105
    assert refused(world, "update t set v = 1")[0] == 3105


def test_partitions_take_their_rows():
    """A row that changes its partition moves with its entries; one that fits nowhere is 1526."""
    parts = [StoredPartitionDef(200 + at, Name.of(f"p{at}"), [str(at * 10)]) for at in (1, 2)]
    world = World(table([ID, A], [UNIQUE], partition=StoredPartition(1, "`id`", definitions=parts)))
    world.run("insert into t values (1, 1), (15, 15)")
    world.run("update t set id = 16 where id = 1")

    assert world.rows() == [(15, 15), (16, 1)]
    assert world.faults() == []
    assert refused(world, "insert into t values (20, 1)") == (1526, "Table has no partition for value 20")


@pytest.mark.parametrize("collate", ["utf8mb4_general_ci", "utf8mb4_bin"])
def test_partitions_by_a_key_of_text(collate):
    """KEY() of a column whose collation ignores case is refused, with the way out that the other case takes."""
    parts = [StoredPartitionDef(200 + at, Name.of(f"p{at}")) for at in range(2)]
    text, by_key = column(3, "s", varchar(collate=collate)), StoredPartition(4, "", [Name.of("s")], definitions=parts)
    world = World(table([ID, A, text], [UNIQUE], partition=by_key))
    insert = "insert into t values (1, 10, 'x'), (2, 20, 'X')"

    if collate.endswith("_ci"):
        with pytest.raises(UnsupportedError, match=r"case-insensitive collation.*; use a _bin collation"):
            world.run(insert)
        return
    world.run(insert)
    assert world.rows() == [(1, 10, "x"), (2, 20, "X")]


def test_common_handles():
    """A clustered key of several columns is the handle, told apart by its collation."""
    name = column(1, "n", varchar(20, NOT_NULL | PRIMARY, "utf8mb4_general_ci"))
    part = column(2, "b", integer(NOT_NULL | PRIMARY))
    primary = index(1, "PRIMARY", {"n": 0, "b": 1}, is_unique=True, is_primary=True)
    stored = table([name, part, column(3, "v", integer())], [primary, index(2, "k", {"v": 2})], clustered=False)
    world = World(msgspec.structs.replace(stored, is_common_handle=True, common_handle_version=1))
    world.run("insert into t values ('a', 1, 5), ('b', 1, 5)")
    world.run("update t set n = 'A' where n = 'a' and b = 1")

    assert world.rows() == [("A", 1, 5), ("b", 1, 5)]
    assert world.faults() == []
    assert refused(world, "insert into t values ('B', 1, 6)") == (1062, "Duplicate entry 'B-1' for key 't.PRIMARY'")


def test_check_constraints():
    """A row that a CHECK does not allow is 3819; NULL is allowed."""
    check = StoredCheck(1, Name.of("c1"), expr_string="`a` > 0", state=5)
    world = World(table([ID, A], constraint_info=[check]))
    world.run("insert into t values (1, 1), (2, null)")

    assert refused(world, "insert into t values (3, 0)") == (3819, "Check constraint 'c1' is violated.")
    assert refused(world, "update t set a = -1 where id = 1")[0] == 3819


def test_select_feeds_insert(world):
    """INSERT .. SELECT copies what a query gives, of the same table too."""
    world.run("insert into t (id, s) select id + 10, upper(s) from t where id < 3")

    assert world.rows()[3:] == [(11, None, "X"), (12, None, "Y")]


@pytest.mark.parametrize(
    "sql",
    [
        "update t, t as u set t.s = 'x' where t.id = u.id",
        "update t join t as u on t.id = u.id set t.s = 'x'",
        "delete t from t join t as u on t.id < u.id",
        "delete from t using t join t as u on t.id < u.id",
    ],
)
def test_one_table_a_statement(world, sql):
    """Changes over a join are refused with 1235, and change nothing."""
    rows = world.rows()

    assert refused(world, sql)[0] == 1235
    assert world.rows() == rows


def test_strict_is_the_default_of_these_tests():
    """The other tests speak of strict mode."""
    assert "STRICT_TRANS_TABLES" in STRICT
