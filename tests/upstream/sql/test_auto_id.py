"""Numbers for rows: batches in meta keys, rebase, shards."""

import random

import pytest

from tests.upstream.sql.dml_recorded import storage
from tests.upstream.sql.table_kit import AUTO, ID, NOT_NULL, PRIMARY, STRICT, World, column, integer, table
from tidegate.kv.keys import hash_key
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.mysql.encoding import MAX_INT
from tidegate_upstream.tidb.table_access import Counter, CounterKind, StoredAutoIds, sharded

NUMBERED = column(1, "id", integer(NOT_NULL | PRIMARY | AUTO))
RANDOM = column(1, "id", integer(NOT_NULL | PRIMARY, T.LONGLONG))
V = column(2, "v", integer())


def test_a_batch_is_one_write():
    """The first number takes a whole batch from the store, the next ones come from memory."""
    store = storage()
    ids, counter = StoredAutoIds(store), Counter(1, 100)

    assert [ids.next(counter, 1), ids.next(counter, 2), ids.next(counter, 1)] == [1, 2, 4]
    assert store.snapshot().get(hash_key("DB:1", "TID:100")) == b"30000"


def test_two_nodes_never_give_one_number():
    """However two nodes take turns, asking, rebasing and starting anew, no number comes twice and each node's grow."""
    for seed in range(50):
        rng, store = random.Random(seed), storage()
        nodes, counter = [StoredAutoIds(store), StoredAutoIds(store)], Counter(1, 100, step=rng.choice([1, 3, 10]))
        seen: set[int] = set()
        floor = [0, 0]
        for _ in range(60):
            at = rng.randrange(2)
            if rng.random() < 0.2:
                floor[at] = max(floor[at], number := rng.randrange(60))
                nodes[at].rebase(counter, number)
            elif rng.random() < 0.1:
                nodes[at].forget()
            else:
                count = rng.choice([1, 1, 4])
                first = nodes[at].next(counter, count)
                taken = set(range(first, first + count))

                assert not taken & seen
                assert first > floor[at]
                seen |= taken
                floor[at] = first


def test_the_end_of_numbers_is_an_error():
    """A counter gives nothing above its limit."""
    ids, counter = StoredAutoIds(storage()), Counter(1, 100, limit=5, step=3)
    ids.rebase(counter, 4)

    assert ids.next(counter, 1) == 5
    with pytest.raises(SqlRefused) as refused:
        ids.next(counter, 1)
    assert refused.value.mysql_code == 1467


@pytest.mark.parametrize(
    ("number", "bits", "signed", "low"), [(1, 5, True, 58), (7, 2, True, 61), (3, 15, False, 49), (9, 0, True, 63)]
)
def test_shards_stand_above_the_counter(number, bits, signed, low):
    """The counter keeps its low bits, the shard lies above them and below the sign."""
    found = sharded(number, bits, 421, signed=signed)

    assert found & ((1 << low) - 1) == number
    assert 0 <= found < 1 << (63 if signed else 64)
    assert sharded(number + 1, bits, 421, signed=signed) == found + 1, "rows of one transaction share their shard"


def test_shards_leave_no_room_for_larger_counters():
    """A counter that would run into its shard is refused."""
    with pytest.raises(SqlRefused):
        sharded(1 << 58, 5, 1)


def test_explicit_numbers_move_the_counter():
    """NULL and 0 ask for a number, an explicit one is kept, and later ones are larger."""
    world = World(table([NUMBERED, V]))
    first, _ = world.run("insert into t (v) values (1), (2)")
    world.run("insert into t values (10, 3), (null, 4), (0, 5)")

    assert [row[0] for row in world.rows()] == [1, 2, 10, 11, 12]
    assert first.last_insert_id == 1


def test_zero_is_a_number_when_the_mode_says_so():
    """NO_AUTO_VALUE_ON_ZERO keeps 0."""
    world = World(table([NUMBERED, V]))
    world.run("insert into t values (0, 1)", STRICT | {"NO_AUTO_VALUE_ON_ZERO"})

    assert [row[0] for row in world.rows()] == [0]


def test_default_of_a_numbered_column_is_zero_in_update():
    """Only INSERT gives numbers."""
    world = World(table([NUMBERED, V]))
    world.run("insert into t values (5, 1)")
    world.run("update t set id = default")

    assert world.rows() == [(0, 1)]


def test_auto_id_cache_one_counts_apart():
    """AUTO_ID_CACHE 1 keeps its counter under IID, one number at a time."""
    world = World(table([NUMBERED, V], auto_id_cache=1))
    world.run("insert into t (v) values (1), (2)")

    assert world.storage.snapshot().get(hash_key("DB:1", "IID:100")) == b"2"
    assert Counter(1, 100, CounterKind.INCREMENT).limit == MAX_INT


def test_auto_random_shards_its_numbers_and_refuses_others():
    """AUTO_RANDOM numbers differ above the counter; an explicit one needs allow_auto_random_explicit_insert."""
    world = World(table([RANDOM, V], auto_random_bits=5, auto_random_range_bits=64))
    world.run("insert into t (v) values (1)")
    world.run("insert into t (v) values (2)")

    assert sorted(row[0] & ((1 << 58) - 1) for row in world.rows()) == [1, 2]
    with pytest.raises(SqlRefused) as refused:
        world.run("insert into t values (7, 7)")
    assert refused.value.mysql_code == 8216
    world.run("insert into t values (7, 7)", variables={"allow_auto_random_explicit_insert": 1})
    assert (7, 7) in world.rows()


def test_hidden_row_numbers_are_shared_with_auto_increment():
    """Without a clustered key rows are numbered by _tidb_rowid."""
    world = World(table([ID, V], clustered=False))
    world.run("insert into t values (5, 1), (6, 2)")

    assert world.rows() == [(5, 1, 1), (6, 2, 2)]
