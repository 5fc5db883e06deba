"""Percolator's rules, one by one, on every engine."""

import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.upstream.worlds import ENGINES, TTL_MS, World
from tidegate.model.errors import DecodeError, StoreUnavailable
from tidegate_upstream import errors
from tidegate_upstream.errors import HistoryCollected, KeyLocked, SnapshotTooOld, TransactionGone, WriteConflict
from tidegate_upstream.tidb.engine import ColumnFamily, KvEngine, SqliteEngine
from tidegate_upstream.tidb.store_mvcc import (
    Alive,
    Committed,
    Lock,
    Mutation,
    RolledBack,
    Write,
    WriteKind,
    collect_garbage,
    decode_lock,
    decode_write,
    encode_lock,
    encode_write,
)

LONG = b"x" * 256
TS = st.integers(0, (1 << 64) - 1)
SHORT = st.none() | st.binary(max_size=255)


@pytest.fixture(params=ENGINES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(ENGINES[request.param](tmp_path / "store"))


def prewrite(world: World, *keys: bytes, kind: WriteKind = WriteKind.PUT, value: bytes | None = b"new") -> int:
    start_ts = world.oracle.next()
    world.store.prewrite([Mutation(kind, key, value) for key in keys], keys[0], start_ts, TTL_MS)
    return start_ts


@given(st.sampled_from(WriteKind), st.binary(), TS, st.integers(0, 1 << 40), SHORT)
def test_records(kind: WriteKind, primary: bytes, ts: int, ttl_ms: int, short: bytes | None) -> None:
    """A record decodes to what was encoded, and not at all with a byte less."""
    lock, write = Lock(kind, primary, ts, ttl_ms, short), Write(kind, ts, short)

    assert decode_lock(encode_lock(lock)) == lock
    assert decode_write(encode_write(write)) == write
    if short is not None:
        with pytest.raises(DecodeError):
            decode_lock(encode_lock(lock)[:-1])


@pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)
@settings(max_examples=30, deadline=None)
@given(edits=st.lists(st.lists(st.tuples(st.binary(max_size=2), st.none() | st.binary(max_size=3)))), span=st.data())
def test_engine(make, edits, span, tmp_path_factory) -> None:
    """An engine is an ordered dict, whatever is written, removed and scanned."""
    engine: KvEngine = make(tmp_path_factory.mktemp("engine"))
    expected: dict[bytes, bytes] = {}
    for batch in edits:
        engine.write([(ColumnFamily.DATA, key, value) for key, value in batch])
        for key, value in batch:
            expected.pop(key, None)
            if value is not None:
                expected[key] = value
    low, high = span.draw(st.binary(max_size=2)), span.draw(st.binary(max_size=2))
    rows = [(key, value) for key, value in sorted(expected.items()) if low <= key and (not high or key < high)]

    assert list(engine.scan(ColumnFamily.DATA, low, high)) == rows
    assert list(engine.scan(ColumnFamily.DATA, low, high, reverse=True)) == rows[::-1]
    assert not list(engine.scan(ColumnFamily.LOCK, b""))
    assert all(engine.get(ColumnFamily.DATA, key) == value for key, value in expected.items())
    engine.close()


def test_scan_survives_writes(world: World) -> None:
    """A scan that is under way goes on behind its last key when others write meanwhile."""
    world.engine.write([(ColumnFamily.DATA, b"%04d" % at, b"") for at in range(60)])
    seen = []
    for key, _ in world.engine.scan(ColumnFamily.DATA, b""):
        seen.append(key)
        world.engine.write([(ColumnFamily.DATA, key, None)])

    assert seen == [b"%04d" % at for at in range(60)]
    assert not list(world.engine.scan(ColumnFamily.DATA, b""))


def test_versions(world: World) -> None:
    """Each timestamp sees the newest version at or below it, short values and long ones."""
    first, second, third = world.put(a=b"1"), world.put(a=LONG, b=b""), world.put(a=None)
    read = world.store.get

    assert [read(b"a", ts) for ts in (first - 1, first, second - 1, second, third)] == [None, b"1", b"1", LONG, None]
    assert world.store.scan(b"", b"", second) == [(b"a", LONG), (b"b", b"")]
    assert world.store.scan(b"", b"", second, reverse=True) == [(b"b", b""), (b"a", LONG)]
    assert world.store.scan(b"", b"", third) == [(b"b", b"")]


def test_lock_blocks_later_readers(world: World) -> None:
    """A reader at or after a lock's start has to wait, one before it does not, and a LOCK lock holds no reader."""
    before = world.put(a=b"old", b=b"old")
    start_ts = prewrite(world, b"a")
    prewrite(world, b"b", kind=WriteKind.LOCK, value=None)

    assert world.store.get(b"a", before) == b"old"
    assert world.store.get(b"b", world.oracle.next()) == b"old"
    with pytest.raises(KeyLocked) as caught:
        world.store.get(b"a", start_ts)
    assert (caught.value.key, caught.value.primary, caught.value.lock_ts) == (b"a", b"a", start_ts)
    with pytest.raises(KeyLocked):
        world.store.scan(b"", b"", start_ts)
    assert world.store.scan(b"b", b"", start_ts) == [(b"b", b"old")]
    assert world.store.scan(b"", b"", start_ts, limit=1, reverse=True) == [(b"b", b"old")]


def test_conflicts(world: World) -> None:
    """A prewrite fails over a newer commit and over a lock; then nothing is locked."""
    begun = world.oracle.next()
    committed = world.put(a=b"1")
    with pytest.raises(WriteConflict, match=str(committed)) as conflict:
        world.store.prewrite(
            [Mutation(WriteKind.PUT, b"b", b""), Mutation(WriteKind.PUT, b"a", b"")], b"b", begun, TTL_MS
        )
    holder = prewrite(world, b"c")
    with pytest.raises(KeyLocked):
        prewrite(world, b"b", b"c")

    assert conflict.value.mysql_code == 9007
    assert [lock.start_ts for _, lock in world.store.locks()] == [holder]


def test_lock_only_conflicts(world: World) -> None:
    """A committed LOCK makes an older writer of the key fail, and changes no value."""
    begun, before = world.oracle.next(), world.put(b=b"1")
    start_ts = prewrite(world, b"b", kind=WriteKind.LOCK, value=None)
    world.store.commit([b"b"], start_ts, world.oracle.next())
    with pytest.raises(WriteConflict):
        world.store.prewrite([Mutation(WriteKind.PUT, b"b", b"")], b"b", begun, TTL_MS)

    assert world.store.get(b"b", world.oracle.next()) == world.store.get(b"b", before) == b"1"


def test_repeated(world: World) -> None:
    """Each call may come twice, as requests over a network do."""
    mutations, start_ts = [Mutation(WriteKind.PUT, b"a", LONG)], world.oracle.next()
    for _ in range(2):
        world.store.prewrite(mutations, b"a", start_ts, TTL_MS)
    commit_ts = world.oracle.next()
    for _ in range(2):
        world.store.commit([b"a"], start_ts, commit_ts)
    world.store.prewrite(mutations, b"a", start_ts, TTL_MS)
    assert not world.store.locks()
    other = prewrite(world, b"a", value=LONG)
    for _ in range(2):
        world.store.rollback([b"a"], other)

    assert world.store.get(b"a", world.oracle.next()) == LONG
    assert len(list(world.engine.scan(ColumnFamily.DATA, b""))) == 1


def test_rollback_is_final(world: World) -> None:
    """After a rollback neither prewrite nor commit of that transaction can come; of others they can."""
    start_ts = world.oracle.next()
    world.store.rollback([b"a"], start_ts)
    with pytest.raises(TransactionGone):
        world.store.prewrite([Mutation(WriteKind.PUT, b"a", b"")], b"a", start_ts, TTL_MS)
    with pytest.raises(TransactionGone):
        world.store.commit([b"a"], start_ts, world.oracle.next())

    assert world.put(a=b"1")


def test_status(world: World) -> None:
    """A primary tells alive, committed or rolled back; a lock over its time or never there is rolled back."""
    check, now = world.store.check_status, world.oracle.next
    alive, committed = prewrite(world, b"a"), prewrite(world, b"b")
    commit_ts = now()
    world.store.commit([b"b"], committed, commit_ts)
    missing = now()

    assert check(b"a", alive, now()) == Alive(world.clock.ms + TTL_MS)
    assert check(b"b", committed, now()) == Committed(commit_ts)
    assert check(b"c", missing, now()) == RolledBack()
    with pytest.raises(TransactionGone):
        world.store.prewrite([Mutation(WriteKind.PUT, b"c", b"")], b"c", missing, TTL_MS)
    world.store.heartbeat(b"a", alive, 2 * TTL_MS)
    world.clock.ms += TTL_MS
    assert isinstance(check(b"a", alive, now()), Alive)
    world.clock.ms += TTL_MS
    assert check(b"a", alive, now()) == RolledBack()
    with pytest.raises(TransactionGone):
        world.store.heartbeat(b"a", alive, TTL_MS)


def test_garbage(world: World) -> None:
    """What a read at or above the safe point gives stays, all else goes, and nobody gets below."""
    first, second = world.put(a=LONG, b=b"1"), world.put(a=b"2", b=None)
    prewrite(world, b"c")
    third = world.put(a=b"3")
    with pytest.raises(KeyLocked):
        collect_garbage(world.store, second + 2, world.oracle.next())
    world.clock.ms += TTL_MS
    removed = collect_garbage(world.store, third - 1, world.oracle.next())
    old = world.reopened()

    assert removed == 4, "a twice, b twice and the rollback of c, less what a read at the safe point gives"
    assert old.store.safe_point == third - 1
    assert old.store.scan(b"", b"", third - 1) == [(b"a", b"2")]
    assert old.store.scan(b"", b"", third) == [(b"a", b"3")]
    assert not list(world.engine.scan(ColumnFamily.DATA, b""))
    with pytest.raises(HistoryCollected, match="GC life time is shorter than transaction duration"):
        old.store.get(b"a", first)
    with pytest.raises(HistoryCollected):
        old.store.prewrite([Mutation(WriteKind.PUT, b"d", b"")], b"d", first, TTL_MS)
    with pytest.raises(SnapshotTooOld, match="older than the GC safe point"):
        old.storage.snapshot(first)


def test_one_process(tmp_path: Path) -> None:
    """A directory has one store at a time, and what cannot be a store is said in one line."""
    engine = SqliteEngine(tmp_path)
    with pytest.raises(StoreUnavailable, match="locked"):
        SqliteEngine(tmp_path)
    engine.close()
    SqliteEngine(tmp_path).close()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="cannot create the store"):
        SqliteEngine(tmp_path / "file")


def test_errors_travel() -> None:
    """Errors of the upstream pickle, say their timestamps, and carry TiDB's numbers."""
    cases = {
        errors.WriteConflict(5, 6, 7, b"k"): 9007,
        errors.KeyLocked(b"k", b"p", 5, 50): 9004,
        errors.TransactionGone(5, b"k"): 8022,
        errors.HistoryCollected(5, 9): 9006,
        errors.SnapshotTooOld(5, 9): 8055,
        errors.SchemaOutdated("x"): 8027,
        errors.SchemaChanged("x"): 8028,
    }
    for error, number in cases.items():
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.mysql_code) == (type(error), str(error), number)
