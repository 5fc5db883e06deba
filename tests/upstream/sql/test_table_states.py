"""Nodes at neighbouring schema states write one table, and nothing that either of them relies on breaks."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import pytest

from tests.upstream.sql.table_kit import ID, World, column, index, integer, table, varchar
from tidegate.kv.keys import RecordKey, decode_table_key
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.schema.stored.definition import ChangeState, Name, StoredPartition, StoredPartitionDef, StoredTable
from tidegate.schema.stored.definition import ElementState as S
from tidegate_upstream.errors import WriteConflict
from tidegate_upstream.tidb.table_rows import index_mutation, placements_of, record_mutation, row_mutations

pytestmark = pytest.mark.slow

A, B = column(2, "a", integer()), column(3, "b", integer(), default="7", origin_default="7")
NEW_STATES = (S.DELETE_ONLY, S.WRITE_ONLY, S.WRITE_REORG, S.PUBLIC)
OLD_STATES = (S.WRITE_ONLY, S.DELETE_ONLY, S.DELETE_REORG)
SEEDS = [
    *range(2),
    *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 100)),
]


@dataclass
class Change:
    """The definitions that a DDL goes through; `backfill` runs when all nodes are at the step `at`."""

    steps: list[StoredTable]
    at: int | None = None
    backfill: Callable[[World, StoredTable], Iterator[None]] | None = None


def add_index(*, unique: bool = False) -> Change:
    """ADD INDEX on a."""
    steps = [table([ID, A, B])]
    steps += [table([ID, A, B], [index(1, "k", {"a": 1}, state=state, is_unique=unique)]) for state in NEW_STATES]
    return Change(steps, 3, fill_indexes)


def drop_index() -> Change:
    """DROP INDEX on a."""
    return Change(
        [
            *add_index().steps[4:],
            *(table([ID, A, B], [index(1, "k", {"a": 1}, state=state)]) for state in OLD_STATES),
            table([ID, A, B]),
        ]
    )


def with_b(state: S) -> StoredTable:
    """The table with column b in that state."""
    return table([ID, A, msgspec.structs.replace(B, state=state)], [index(1, "k", {"a": 1})])


def add_column() -> Change:
    """ADD COLUMN b DEFAULT 7."""
    return Change([table([ID, A], [index(1, "k", {"a": 1})]), *map(with_b, NEW_STATES)])


def drop_column() -> Change:
    """DROP COLUMN b."""
    return Change([with_b(S.PUBLIC), *map(with_b, OLD_STATES), table([ID, A], [index(1, "k", {"a": 1})])])


def modify_column() -> Change:
    """MODIFY a from INT to VARCHAR, with the index on it; the old column is written until it goes."""

    def step(old: S, new: S, old_index: S, new_index: S) -> StoredTable:
        turned = old is not S.PUBLIC
        first = msgspec.structs.replace(
            A, state=old, name=Name.of("_old" if turned else "a"), change_state_info=ChangeState(3) if turned else None
        )
        second = column(
            4,
            "a" if turned else "_Col$_a",
            varchar(),
            state=new,
            change_state_info=None if turned else ChangeState(1),
        )
        indexes = [
            index(number, name, {"a": at}, state=state)
            for number, name, at, state in ((1, "k", 1, old_index), (2, "_Idx$_k", 3, new_index))
            if state is not S.NONE
        ]
        columns = [ID, first, B, second]
        return table(columns if new is not S.NONE else columns[:3], indexes)

    last = table([ID, B, column(4, "a", varchar())], [index(2, "k", {"a": 2})])
    states = [
        (S.PUBLIC, S.NONE, S.PUBLIC, S.NONE),
        (S.PUBLIC, S.DELETE_ONLY, S.PUBLIC, S.DELETE_ONLY),
        (S.PUBLIC, S.WRITE_ONLY, S.PUBLIC, S.WRITE_ONLY),
        (S.PUBLIC, S.WRITE_REORG, S.PUBLIC, S.WRITE_REORG),
        (S.WRITE_ONLY, S.PUBLIC, S.WRITE_ONLY, S.PUBLIC),
        (S.WRITE_ONLY, S.PUBLIC, S.DELETE_ONLY, S.PUBLIC),
    ]
    return Change([*(step(*each) for each in states), last], 3, fill_rows)


def parts(*bounds: tuple[int, str]) -> list[StoredPartitionDef]:
    """Partitions by range, as (id, upper bound)."""
    return [StoredPartitionDef(number, Name.of(f"p{number}"), [bound]) for number, bound in bounds]


def reorganize() -> Change:
    """REORGANIZE PARTITION: two become one."""
    old, new, rest = parts((201, "10"), (202, "20")), parts((210, "20")), parts((203, "MAXVALUE"))

    def step(used: list[StoredPartitionDef], state: int) -> StoredTable:
        moving = {"adding_definitions": new, "dropping_definitions": old, "ddl_action": 64} if state else {}
        partition = StoredPartition(1, "`id`", definitions=[*used, *rest], ddl_state=state, **moving)
        return table([ID, A, B], [index(1, "k", {"a": 1})], partition=partition)

    return Change(
        [step(old, 0), *(step(old, s) for s in (1, 2, 3)), *(step(new, s) for s in (4, 5, 0))], 3, fill_copies
    )


def fill_indexes(world: World, stored: StoredTable) -> Iterator[None]:
    """The owner writes the entries of one row after the other."""
    for handle in [row[0] for row in world.rows(stored)]:
        transaction = world.storage.begin()
        access = world.open(transaction, stored)
        for image in access.reader.find({"id": (handle,)}):
            access.lock(image)
            for one in access.shape.indexes:
                if not one.access.read:
                    entry = index_mutation(access.shape, one, image)
                    transaction.put(entry.key, entry.value or b"")
        transaction.commit()
        yield


def fill_rows(world: World, stored: StoredTable) -> Iterator[None]:
    """The owner casts the column of one row after the other, then writes the entries."""
    for handle in [row[0] for row in world.rows(stored)]:
        transaction = world.storage.begin()
        access = world.open(transaction, stored)
        for image in access.reader.find({"id": (handle,)}):
            record = record_mutation(access.shape, image)
            transaction.put(record.key, record.value or b"")
        transaction.commit()
        yield
    yield from fill_indexes(world, stored)


def fill_copies(world: World, stored: StoredTable) -> Iterator[None]:
    """The owner copies one row after the other, with its entries."""
    for handle in [row[0] for row in world.rows(stored)]:
        transaction = world.storage.begin()
        access = world.open(transaction, stored)
        other = placements_of(stored)[1]
        for image in access.reader.find({"id": (handle,)}):
            access.lock(image)
            place = other.locate(image.columns)
            if place is not None and access.reader.get(place, image.handle) is None:
                copy = image._replace(physical_id=place)
                for one in (
                    record_mutation(access.shape, copy),
                    *(index_mutation(access.shape, each, copy) for each in access.shape.indexes),
                ):
                    transaction.put(one.key, one.value or b"")
        transaction.commit()
        yield


Model = dict[int, dict[str, int]]
"""The truth: a and b by id; b is 7 where nobody could set it."""


def write(world: World, stored: StoredTable, rng: random.Random, model: Model) -> None:
    """One transaction of a node with that definition; the model follows."""
    transaction = world.storage.begin()
    access = world.open(transaction, stored)
    ident, value = rng.randrange(10) * 3, rng.randrange(5)
    old = next(access.reader.find({"id": (ident,)}), None)
    assert (old is not None) == (ident in model), "a node misses a row, or sees one that went"
    names = [name for name in ("a", "b") if name in access.shape.by_name]
    try:
        if old is None:
            access.insert(access.new_row({"id": ident, "a": value}))
            model[ident] = {"a": value, "b": 7}
        elif rng.random() < 0.3:
            access.delete(old)
            del model[ident]
        else:
            name = rng.choice(names)
            new = access.changed(old, {name: value})
            if new is not None:
                access.replace(old, new)
            model[ident][name] = value
        transaction.commit()
    except SqlRefused as refused:
        transaction.rollback()
        if refused.mysql_code != 1062:
            raise


def settle(world: World, nodes: list[StoredTable], model: Model) -> None:
    """Both nodes find everything in order and read the rows that the model has."""
    for stored in nodes:
        assert [str(fault) for fault in world.faults(stored)] == []
        names = [one.name for one in world.open(world.storage.begin(), stored).columns]
        for name in {"a", "b"} & set(names):
            at = names.index(name)
            assert {row[0]: int(row[at]) for row in world.rows(stored)} == {i: row[name] for i, row in model.items()}


CHANGES = {
    "add index": add_index,
    "drop index": drop_index,
    "add column": add_column,
    "drop column": drop_column,
    "modify column": modify_column,
    "reorganize": reorganize,
}


def play(change: Change, seed: int) -> None:
    """Two nodes go through all steps, one after the other, writing all the time."""
    rng = random.Random(seed)
    world, model = World(change.steps[0]), Model()
    nodes = [change.steps[0], change.steps[0]]
    for at, stored in enumerate(change.steps):
        for node in rng.sample([0, 1], 2):
            nodes[node] = stored
            for _ in range(6):
                write(world, rng.choice(nodes), rng, model)
                settle(world, nodes, model)
        work = change.backfill(world, stored) if at == change.at and change.backfill else iter(())
        for _ in work:
            write(world, stored, rng, model)
        settle(world, nodes, model)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CHANGES)
def test_neighbouring_states_agree(name, seed):
    """Whatever two nodes one step apart write, each finds the indexes it reads complete and the rows it expects."""
    play(CHANGES[name](), seed)


def test_new_rows_fit_the_type_to_come():
    """While MODIFY COLUMN looks at stored values, new ones must fit the narrower type already, strict or not."""
    narrow = msgspec.structs.replace(A, changing_type=msgspec.structs.replace(A.type, tp=T.TINY))
    world = World(table([ID, narrow, B]))
    world.run("insert into t values (1, 127, 1)")

    for mode in ({"STRICT_TRANS_TABLES"}, set[str]()):
        with pytest.raises(SqlRefused) as refused:
            world.run("insert into t values (2, 128, 1)", mode)
        assert refused.value.mysql_code == 1264


def test_new_rows_fit_the_partition_to_be_exchanged():
    """While a table stands in for a partition, it takes only rows of that partition."""
    info = msgspec.Raw(b'{"exchange_partition_id": 300, "exchange_partition_def_id": 201}')
    partitioned = table(
        [ID, A], id=300, partition=StoredPartition(1, "`id`", definitions=parts((201, "10"), (202, "20")))
    )
    world = World(table([ID, A], exchange_partition_info=info))
    world.define(world.stored, msgspec.structs.replace(partitioned, name=Name.of("pt")))
    world.run("insert into t values (9, 1)")

    for sql in ("insert into t values (10, 1)", "update t set id = 15"):
        with pytest.raises(SqlRefused) as refused:
            world.run(sql)
        assert refused.value.mysql_code == 1737


def test_a_skipped_state_is_found():
    """Without its delete-only and write-only states an index misses entries, and the check says so."""
    steps = add_index().steps
    skipped = Change([steps[0], steps[4]])

    with pytest.raises(AssertionError, match=r"without its entry|an entry"):
        play(skipped, seed=1)


def test_conflicts_between_nodes_are_the_stores():
    """Two nodes that change one row at once: the second to commit is told."""
    world = World(table([ID, A, B]))
    world.run("insert into t values (1, 1, 1)")
    first, second = world.storage.begin(), world.storage.begin()
    for transaction, value in ((first, 2), (second, 3)):
        access = world.open(transaction)
        [old] = access.reader.find({"id": (1,)})
        new = access.changed(old, {"a": value})
        assert new is not None
        access.replace(old, new)
    first.commit()

    with pytest.raises(WriteConflict):
        second.commit()


def touched(stored: StoredTable, sql: str) -> set[str]:
    """What an INSERT, an UPDATE of a or a DELETE puts (+) and removes (-): rows (r) and entries (i), by physical id."""
    world = World(stored)
    access = world.open(world.storage.begin())
    row = access.new_row({"id": 5, "a": 1})
    other = access.changed(row, {"a": 2})
    pairs = {"insert": (None, row), "update": (row, other), "delete": (row, None)}
    found = row_mutations(access.shape, *pairs[sql])
    signs = {(decode_table_key(one.key), "-" if one.value is None else "+") for one in found}
    return {f"{sign}{'r' if isinstance(key, RecordKey) else 'i'}{key.table_id}" for key, sign in signs}


COPY_STATES = [
    (1, {"+r201"}, {"+r201", "-r210"}, {"-r201", "-r210"}),
    (2, {"+r201", "+r210"}, {"+r201", "+r210"}, {"-r201", "-r210"}),
    (3, {"+r201", "+r210"}, {"+r201", "+r210"}, {"-r201", "-r210"}),
    (4, {"+r201", "+r210"}, {"+r201", "+r210"}, {"-r201", "-r210"}),
    (5, {"+r201", "+r210"}, {"+r201", "+r210"}, {"-r201", "-r210"}),
]


@pytest.mark.parametrize(("state", "insert", "update", "delete"), COPY_STATES)
def test_copies_by_state(state, insert, update, delete):
    """What each kind of statement does under both sets of partitions, state by state."""
    steps = {step.partition.ddl_state: step for step in reorganize().steps if step.partition}
    bare = msgspec.structs.replace(steps[state], index_info=[])

    assert [touched(bare, sql) for sql in ("insert", "update", "delete")] == [insert, update, delete]


INDEX_STATES = [
    (S.DELETE_ONLY, set(), {"-i100"}, {"-i100"}),
    (S.WRITE_ONLY, {"+i100"}, {"-i100", "+i100"}, {"-i100"}),
    (S.WRITE_REORG, {"+i100"}, {"-i100", "+i100"}, {"-i100"}),
    (S.PUBLIC, {"+i100"}, {"-i100", "+i100"}, {"-i100"}),
    (S.DELETE_REORG, set(), {"-i100"}, {"-i100"}),
]


@pytest.mark.parametrize(("state", "insert", "update", "delete"), INDEX_STATES)
def test_index_entries_by_state(state, insert, update, delete):
    """What each kind of statement does to the entries of an index, state by state."""
    stored = table([ID, A, B], [index(1, "k", {"a": 1}, state=state)])
    records = {"+r100", "-r100"}

    assert [touched(stored, sql) - records for sql in ("insert", "update", "delete")] == [insert, update, delete]
