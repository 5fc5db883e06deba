"""The change log says everything that happens, once it is complete nothing more, and survives its regions."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.counts import some
from tests.upstream.log_simulation import LogSimulation
from tests.upstream.worlds import TTL_MS, World, seeds
from tidegate.model.errors import HistoryLost
from tidegate.model.kv_change import FaultKind, KvChange, KvOp, LogType, RegionFault, ResolvedSpan
from tidegate_upstream.tidb import change_log
from tidegate_upstream.tidb.change_log import ChangeLog, RegionMap, Registration
from tidegate_upstream.tidb.engine import SqliteEngine
from tidegate_upstream.tidb.store_mvcc import collect_garbage
from tidegate_upstream.tidb.transaction import Stage, settle_dead

PUT, DELETE = KvOp.PUT, KvOp.DELETE
TURNS = 800


@pytest.mark.parametrize("seed", seeds(12))
def test_replayed(seed: int) -> None:
    """Replayed, the log gives the store's contents at every resolved ts, and each old value is the one before."""
    LogSimulation(seed).run(TURNS)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_more_replayed(engine: str, tmp_path: Path) -> None:
    """More of them, on both engines; rows came, and regions changed under them."""
    counts: Counter[str] = Counter()
    for seed in seeds(some(100, 400) if engine == "memory" else 4):
        counts += (
            LogSimulation(seed, SqliteEngine(tmp_path / str(seed)) if engine == "sqlite" else None).run(TURNS).counts
        )

    assert min(counts["rows"], counts["region"], counts["restart"], counts["died"]) > 0


@pytest.mark.soak
@pytest.mark.parametrize("part", range(20))
def test_all_replayed(part: int) -> None:
    """Two thousand seeds."""
    for seed in range(100 * part, 100 * part + 100):
        LogSimulation(100_000 + seed).run(TURNS)


def test_same_seed_same_rows() -> None:
    """Events, rows and resolved timestamps follow from the seed."""
    assert LogSimulation(5).run(TURNS).trace == LogSimulation(5).run(TURNS).trace


@given(
    st.lists(st.tuples(st.sampled_from(("split", "merge", "leader")), st.binary(max_size=2), st.integers(1, 9))),
    st.binary(max_size=2),
    st.binary(max_size=2),
)
def test_regions_tile(changes, start: bytes, end: bytes) -> None:
    """Whatever was split and merged, the regions cover every key once, and so do their parts of a span."""
    regions, epochs = RegionMap(), set()
    for change, key, region_id in changes:
        match change:
            case "split":
                regions.split(key)
            case "merge":
                regions.merge(region_id)
            case "leader":
                regions.move_leader(region_id)
        epochs |= {(region.id, region.version, region.term, region.start, region.end) for region in regions}
    every = list(regions)
    parts = [part for region in every if (part := region.overlap(start, end))]

    assert (every[0].start, every[-1].end) == (b"", b"")
    assert all(one.end == other.start != b"" for one, other in pairwise(every))
    assert len({epoch[:3] for epoch in epochs}) == len(epochs), "an epoch came back with another range"
    if not end or start < end:
        assert (parts[0][0], parts[-1][1]) == (start, end)
        assert all(one[1] == other[0] for one, other in pairwise(parts))
    else:
        assert parts == []


def reader_of(log: ChangeLog, from_ts: int = 0) -> Registration:
    return log.register(next(iter(log.regions)), b"", b"", from_ts)


def test_two_phases() -> None:
    """Two phases are a prewrite with value and old value, and a commit without; one phase is one event."""
    world = World(one_phase=False, batch_keys=1)
    log = ChangeLog(world.store, world.oracle)
    first = world.put(a=b"1")
    reader = reader_of(log, first)
    assert [event.type for event in log.poll(reader)] == [LogType.INITIALIZED]
    txn = world.storage.begin()
    txn.put(b"a", b"2")
    commit_ts = txn.commit()
    single = world.oracle.next()
    at = world.store.one_phase([], single, world.oracle.next)

    assert commit_ts is not None
    assert at > single
    assert log.poll(reader) == [
        KvChange(LogType.PREWRITE, b"a", txn.start_ts, 0, PUT, b"2", b"1"),
        KvChange(LogType.COMMIT, b"a", txn.start_ts, commit_ts, PUT),
    ]


def test_registration_scans() -> None:
    """A registration gets every version above its checkpoint, newest first, the locks before them, then INITIALIZED."""
    world = World()
    log = ChangeLog(world.store, world.oracle)
    first, second, third = world.put(a=b"1"), world.put(a=b"2" * 300), world.put(a=None)
    txn = world.storage.begin(world.options.__class__(one_phase=False))
    txn.put(b"b", b"new")
    next(txn.steps())

    found = log.poll(reader_of(log, first))

    assert [(row.type, row.key, row.commit_ts, row.op, row.value, row.old_value) for row in found] == [
        (LogType.PREWRITE, b"b", 0, PUT, b"new", None),
        (LogType.COMMITTED, b"a", third, DELETE, None, b"2" * 300),
        (LogType.COMMITTED, b"a", second, PUT, b"2" * 300, b"1"),
        (LogType.INITIALIZED, b"", 0, KvOp.UNKNOWN, None, None),
    ]


def test_resolved_waits_for_locks() -> None:
    """A lock holds the resolved ts below its start until its transaction ends, in its own span only."""
    world = World(one_phase=False)
    log = ChangeLog(world.store, world.oracle)
    log.split(b"m")
    left, right = (log.register(region, region.start, region.end, 0) for region in log.regions)
    log.advance()
    assert not log.poll(left)[:-1], "nothing is resolved before INITIALIZED"
    log.poll(right)
    txn = world.storage.begin()
    txn.put(b"a", b"")
    commit = txn.steps()
    next(commit)
    log.advance()
    log.advance()

    assert [event.ts for event in log.poll(left) if isinstance(event, ResolvedSpan)] == [txn.start_ts - 1]
    assert all(event.ts > txn.start_ts for event in log.poll(right) if isinstance(event, ResolvedSpan))
    list(commit)
    log.advance()
    assert txn.commit_ts is not None
    assert [event.ts > txn.commit_ts for event in log.poll(left) if isinstance(event, ResolvedSpan)] == [True]


@pytest.mark.parametrize("died", [Stage.PREWRITTEN, Stage.DECIDED])
def test_the_dead_do_not_hold_the_log_back(died: Stage) -> None:
    """Once the time of a dead transaction is over its locks are settled, as its primary says, though nobody reads."""
    world = World(one_phase=False, batch_keys=1)
    log = ChangeLog(world.store, world.oracle)
    reader = log.register(next(iter(log.regions)), b"", b"", 0)
    log.poll(reader)
    txn = world.storage.begin()
    txn.put(b"a", b"")
    txn.put(b"b", b"")
    for stage in txn.steps():
        if stage is died:
            break
    assert settle_dead(world.store, world.oracle) == (died is Stage.DECIDED)
    world.clock.ms += TTL_MS
    settle_dead(world.store, world.oracle)
    log.advance()

    assert not world.store.locks()
    assert [event.ts > txn.start_ts for event in log.poll(reader) if isinstance(event, ResolvedSpan)] == [True]


def test_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split, a merge, another leader, a stale picture and a full queue end a registration; nothing follows."""
    world = World()
    log = ChangeLog(world.store, world.oracle)
    stale = next(iter(log.regions))
    reader = reader_of(log)
    log.split(b"m")
    world.put(a=b"")
    assert log.poll(reader) == [RegionFault(FaultKind.EPOCH_NOT_MATCH, 1)]
    assert log.poll(reader) == []
    assert log.poll(log.register(stale, b"", b"", 0)) == [RegionFault(FaultKind.EPOCH_NOT_MATCH, 1)]
    left, right = log.regions
    reader = log.register(right, right.start, right.end, 0)
    log.move_leader(right.id)
    assert log.poll(reader) == [RegionFault(FaultKind.NOT_LEADER, 2)]
    assert log.poll(log.register(right, b"m", b"", 0)) == [RegionFault(FaultKind.NOT_LEADER, 2)]
    log.merge(left.id)
    assert log.poll(log.register(right, b"m", b"", 0)) == [RegionFault(FaultKind.REGION_NOT_FOUND, 2)]
    monkeypatch.setattr(change_log, "QUEUE_EVENTS", 3)
    reader = reader_of(log)
    for _ in range(4):
        world.put(a=b"")
    assert log.poll(reader)[-1] == RegionFault(FaultKind.CONGESTED, 1)


def test_history_lost() -> None:
    """Nobody may start below the GC safe point."""
    world = World()
    log = ChangeLog(world.store, world.oracle)
    first, second = world.put(a=b"1"), world.put(a=b"2")
    collect_garbage(world.store, second, world.oracle.next())
    with pytest.raises(HistoryLost, match=str(second)):
        reader_of(log, first)

    assert [row.type for row in log.poll(reader_of(log, second))] == [LogType.INITIALIZED]
