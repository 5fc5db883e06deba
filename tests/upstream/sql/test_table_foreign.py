"""Foreign keys: children need their parent, and follow it."""

import msgspec
import pytest

from tests.upstream.sql.table_kit import ID, World, column, index, integer, table
from tidegate.model.errors import SqlRefused
from tidegate.schema.stored.definition import ElementState as S
from tidegate.schema.stored.definition import Name, StoredForeignKey, StoredTable
from tidegate_upstream.errors import WriteConflict

PID = column(2, "pid", integer())
RESTRICT, CASCADE, SET_NULL = 1, 2, 3


def family(action: int, state: S = S.PUBLIC) -> World:
    """Parent p and child c (pid REFERENCES p (id)) with rows 1 and 2, and 10 -> 1."""
    key = StoredForeignKey(
        1,
        Name.of("fk"),
        Name.of("d"),
        Name.of("p"),
        [Name.of("id")],
        [Name.of("pid")],
        on_delete=action,
        on_update=action,
        state=state,
    )
    child = named("c", table([ID, PID], [index(1, "k", {"pid": 1})], fk_info=[key]))
    world = World(child)
    world.define(child, named("p", table([ID, column(2, "v", integer())], id=101)))
    world.run("insert into p values (1, 1), (2, 2)")
    world.run("insert into c values (10, 1)")
    return world


def named(name: str, stored: StoredTable) -> StoredTable:
    """The table under another name."""
    return msgspec.structs.replace(stored, name=Name.of(name))


def code(world: World, sql: str, **variables: object) -> int:
    """The number of a statement's error, 0 for none."""
    try:
        world.run(sql, variables=variables)
    except SqlRefused as refused:
        return refused.mysql_code
    return 0


def test_a_child_needs_its_parent():
    """INSERT and UPDATE of a child name a row that is there, or nothing."""
    world = family(RESTRICT)

    assert code(world, "insert into c values (11, 9)") == 1452
    assert code(world, "update c set pid = 9") == 1452
    assert code(world, "insert into c values (11, null), (12, 2)") == 0
    assert code(world, "insert into c values (13, 9)", foreign_key_checks="OFF") == 0


def test_a_parent_with_children_stays():
    """RESTRICT refuses what would leave a child alone, and lets everything else pass."""
    world = family(RESTRICT)

    assert code(world, "delete from p where id = 1") == 1451
    assert code(world, "update p set id = 5 where id = 1") == 1451
    assert code(world, "update p set v = 5 where id = 1") == 0
    assert code(world, "delete from p where id = 2") == 0


@pytest.mark.parametrize(
    ("action", "sql", "children"),
    [
        (CASCADE, "delete from p where id = 1", []),
        (CASCADE, "update p set id = 5 where id = 1", [(10, 5)]),
        (SET_NULL, "delete from p where id = 1", [(10, None)]),
        (SET_NULL, "update p set id = 5 where id = 1", [(10, None)]),
    ],
)
def test_children_follow(action, sql, children):
    """CASCADE and SET NULL change the children, and their index entries with them."""
    world = family(action)

    assert code(world, sql) == 0
    assert world.rows() == children
    assert world.faults() == []


@pytest.mark.parametrize(("state", "expected"), [(S.NONE, 0), (S.WRITE_ONLY, 1452), (S.WRITE_REORG, 1452)])
def test_a_key_counts_from_write_only_on(state, expected):
    """While a key comes, new rows obey it already."""
    assert code(family(RESTRICT, state), "insert into c values (11, 9)") == expected


def test_a_child_holds_its_parent():
    """A parent that goes while a child comes: one of the two transactions fails."""
    world = family(RESTRICT)
    first = world.storage.begin()
    access = world.tables(first).table("d", "c")
    access.insert(access.new_row({"id": 20, "pid": 2}))
    world.run("delete from p where id = 2")

    with pytest.raises(WriteConflict):
        first.commit()


def test_ignore_leaves_parents_with_children():
    """DELETE IGNORE takes the rows that may go, UPDATE IGNORE changes those that may change."""
    world = family(RESTRICT)
    deleted, warned = world.run("delete ignore from p")
    updated, _ = world.run("update ignore c set pid = 9")

    assert (deleted.affected, [warning.code for warning in warned.warnings]) == (1, [1451])
    assert (updated.affected, world.rows()) == (0, [(10, 1)])
