"""Transactions: what they see, what they refuse, and what is left of them."""

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.counts import some
from tests.upstream.simulation import Simulation
from tests.upstream.worlds import TTL_MS, World, seeds
from tidegate.model.errors import StoreUnavailable, UnsupportedError
from tidegate_upstream.errors import (
    EntryTooLarge,
    KeyLocked,
    SchemaChanged,
    TransactionGone,
    TransactionTooLarge,
    WriteConflict,
)
from tidegate_upstream.tidb.engine import ColumnFamily, Edit, MemoryEngine, SqliteEngine
from tidegate_upstream.tidb.transaction import Options, Stage

STAGES = list(Stage)
TWO = {"one_phase": False, "batch_keys": 1}
TURNS = 400


@pytest.mark.parametrize("seed", seeds(12))
def test_interleavings(seed: int) -> None:
    """Whoever takes turns with whom and dies where: every read is the model's, and no update is lost."""
    Simulation(seed).run(TURNS)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_more_interleavings(engine: str, tmp_path: Path) -> None:
    """More of them, on both engines; each thing that can happen did."""
    counts: Counter[str] = Counter()
    for seed in seeds(some(200, 600) if engine == "memory" else 4):
        directory = SqliteEngine(tmp_path / str(seed)) if engine == "sqlite" else None
        counts += Simulation(1000 + seed, directory).run(TURNS).counts

    stages = [str(stage) for stage in STAGES]
    faults = [
        "restart",
        "died",
        "collected",
        "KeyLocked",
        "WriteConflict",
        "TransactionGone",
        "SchemaChanged",
    ]
    assert engine == "sqlite" or not [what for what in (*stages, *faults) if not counts[what]], counts


@pytest.mark.soak
@pytest.mark.parametrize("part", range(20))
def test_all_interleavings(part: int) -> None:
    """Two thousand seeds."""
    for seed in range(100 * part, 100 * part + 100):
        Simulation(100_000 + seed).run(TURNS)


def test_same_seed_same_trace() -> None:
    """A seed gives one trace, and another seed another one."""
    assert Simulation(7).run(TURNS).trace == Simulation(7).run(TURNS).trace
    assert Simulation(7).run(TURNS).trace != Simulation(8).run(TURNS).trace


@pytest.mark.parametrize("stages", range(5))
def test_death_between_phases(stages: int) -> None:
    """A transaction that dies after any stage is there whole or not at all, as its primary says."""
    world = World(**TWO)
    world.put(a=b"old", b=b"old")
    txn = world.storage.begin()
    txn.put(b"a", b"new")
    txn.put(b"b", b"new")
    done = list(islice(txn.steps(), stages))
    if stages and Stage.DECIDED not in done:
        with pytest.raises(KeyLocked):
            world.storage.snapshot().get(b"a")
    world.clock.ms += TTL_MS
    now = world.reopened()
    expected = b"new" if Stage.DECIDED in done else b"old"

    assert dict(now.storage.snapshot().scan(b"")) == {b"a": expected, b"b": expected}
    assert not now.store.locks()


def test_readers_roll_back_the_slow() -> None:
    """A transaction that comes back after its time to live finds itself rolled back, and commits nowhere."""
    world = World(**TWO)
    txn = world.storage.begin()
    txn.put(b"a", b"1")
    txn.put(b"b", b"1")
    commit = txn.steps()
    next(commit)
    next(commit)
    world.clock.ms += TTL_MS
    assert world.storage.snapshot().get(b"b") is None
    with pytest.raises(TransactionGone):
        list(commit)

    assert not dict(world.storage.snapshot().scan(b""))


def test_locks_are_young() -> None:
    """Locks live from the moment when they are written, and the primary's as long as batches follow."""
    world = World(**TWO)
    txn = world.storage.begin()
    for key in (b"a", b"b", b"c"):
        txn.put(key, b"1")
    world.clock.ms += 10 * TTL_MS
    commit = txn.steps()
    for _ in range(3):
        assert next(commit) is Stage.PREWRITTEN
        world.clock.ms += TTL_MS - 1
        with pytest.raises(KeyLocked):
            world.storage.snapshot().get(b"a")
    assert list(commit)[-1] is Stage.DONE


def test_future() -> None:
    """Nobody reads at a ts that the oracle has not given out: it might still change."""
    world = World()
    with pytest.raises(UnsupportedError, match="future"):
        world.storage.snapshot(world.oracle.next() + 1)


def test_write_skew() -> None:
    """Two transactions that read what the other writes both commit: snapshot isolation, not serializability."""
    world = World()
    world.put(a=b"on", b=b"on")
    one, other = world.storage.begin(), world.storage.begin()
    for txn, mine, theirs in ((one, b"a", b"b"), (other, b"b", b"a")):
        assert txn.get(theirs) == b"on"
        txn.put(mine, b"off")
    one.commit()
    other.commit()

    assert set(dict(world.storage.snapshot().scan(b"")).values()) == {b"off"}


def test_lock_prevents_write_skew() -> None:
    """With what it read locked, the second of them fails."""
    world = World()
    one, other = world.storage.begin(), world.storage.begin()
    for txn, mine, theirs in ((one, b"a", b"b"), (other, b"b", b"a")):
        txn.lock(theirs)
        txn.put(mine, b"off")
    one.commit()

    with pytest.raises(WriteConflict):
        other.commit()


@pytest.mark.parametrize("one_phase", [True, False])
def test_check(*, one_phase: bool) -> None:
    """The check hears start_ts, a commit_ts newer than any prewrite, and the keys; when it refuses, nothing is left."""
    heard = []

    def check(start_ts: int, commit_ts: int, keys: tuple[bytes, ...]) -> None:
        heard.append((start_ts, keys, world.oracle.newest == commit_ts > start_ts))
        if len(heard) > 1:
            raise SchemaChanged("table a: version 2, the transaction began with 1")

    world = World(one_phase=one_phase, batch_keys=1 if not one_phase else 9, check=check)
    first = world.put(b=b"1", a=b"1")
    txn = world.storage.begin()
    txn.put(b"a", b"2")
    with pytest.raises(SchemaChanged):
        txn.commit()

    assert [keys for _, keys, _ in heard] == [(b"a", b"b"), (b"a",)]
    assert heard[1][0] == txn.start_ts > first
    assert all(newest for *_, newest in heard)
    assert world.storage.snapshot().get(b"a") == b"1"
    assert not world.store.locks()


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.binary(max_size=3)), max_size=12), st.data())
def test_savepoints(writes, data) -> None:
    """Going back to a savepoint forgets just what came after it."""
    world = World()
    world.put(a=b"stored", c=b"stored")
    txn, marks = world.storage.begin(), []
    for key, value in writes:
        marks.append((txn.savepoint(), list(txn.scan(b""))))
        txn.delete(key.encode()) if value is None else txn.put(key.encode(), value)
    for mark, rows in reversed(data.draw(st.lists(st.sampled_from(marks), unique_by=lambda m: m[0])) if marks else []):
        if mark <= txn.savepoint():
            txn.restore(mark)
            assert list(txn.scan(b"")) == rows


def test_limits() -> None:
    """An entry and a transaction beyond the limits are refused before they are buffered."""
    world = World()
    txn = world.storage.begin(Options(entry_bytes_max=10, total_bytes_max=15))
    txn.put(b"a", b"123456789")
    with pytest.raises(EntryTooLarge):
        txn.put(b"b", b"1234567890")
    with pytest.raises(TransactionTooLarge):
        txn.put(b"b", b"123456")
    txn.put(b"a", b"1")
    txn.put(b"b", b"123456")
    txn.commit()

    assert world.storage.snapshot().get(b"b") == b"123456"


def test_nothing_written() -> None:
    """A transaction without writes has no commit_ts and touches nothing."""
    world = World()
    assert world.storage.begin().commit() is None


def test_disk_full_after_the_decision() -> None:
    """Once the primary is committed the transaction is, whether or not the store can take the rest."""

    class Full(MemoryEngine):
        full = False

        def write(self, edits: list[Edit]) -> None:
            if self.full:
                raise StoreUnavailable("no space left")
            super().write(edits)
            self.full = any(column is ColumnFamily.WRITE for column, *_ in edits)

    engine = Full()
    world = World(engine, **TWO)
    world.put(a=b"1", b=b"1")
    engine.full = False

    assert [key for key, _ in world.store.locks()] == [b"b"]
    assert dict(world.storage.snapshot().scan(b"")) == {b"a": b"1", b"b": b"1"}
