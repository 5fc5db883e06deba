"""Numbers for rows: batches in meta keys, rebase, shards."""

import random

import pytest

from tests.upstream.sql.dml_recorded import storage
from tests.upstream.sql.table_kit import AUTO, NOT_NULL, PRIMARY, World, column, integer, table
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


def test_auto_id_cache_one_counts_apart():
    """AUTO_ID_CACHE 1 keeps its counter under IID, one number at a time."""
    world = World(table([NUMBERED, V], auto_id_cache=1))
    world.run("insert into t (v) values (1), (2)")

    assert world.storage.snapshot().get(hash_key("DB:1", "IID:100")) == b"2"
    assert Counter(1, 100, CounterKind.INCREMENT).limit == MAX_INT
