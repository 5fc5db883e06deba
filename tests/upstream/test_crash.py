"""A process that is killed leaves a store and segments that the next one goes on with."""

import multiprocessing
import os
import signal
from pathlib import Path
from random import Random

import pytest

from tests.upstream.worlds import TTL_MS, Clock, World, read_segments, seeds
from tidegate.model.tso import physical_ms
from tidegate.source.tidb_segment import segments
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.engine import SqliteEngine
from tidegate_upstream.tidb.log_writer import LogWriter

FORK = multiprocessing.get_context("fork")
KEYS = (b"a", b"b", b"c")
ROUNDS = 4


def write_rounds(directory: Path, told: int, rounds: int, kill_at: int | None) -> None:
    """Round n writes n to every key in one transaction and tells that it did; SIGKILL at the `kill_at`th statement."""
    engine = SqliteEngine(directory / "store")
    statements = 0

    def count(_: str) -> None:
        nonlocal statements
        statements += 1
        if statements == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    engine._sql.set_trace_callback(count)
    world = World(engine, one_phase=False, batch_keys=1)
    writer = LogWriter(ChangeLog(world.store, world.oracle), directory / "log", 0)
    for number in range(1, rounds + 1):
        txn = world.storage.begin()
        for key in KEYS:
            txn.put(key, b"%d" % number + b" " * 300 * (number % 2))
        commit_ts = txn.commit()
        os.write(told, b"%d %d\n" % (number, commit_ts or 0))
        if number % 2 == 0:
            writer.write()


def kill_and_look(directory: Path, rounds: int, *, kill_at: int | None = None, after_lines: int = 0) -> bool:
    """Whether the child lived to its end; after it the store and the segments are looked at."""
    read, told = os.pipe()
    child = FORK.Process(target=write_rounds, args=(directory, told, rounds, kill_at))
    child.start()
    os.close(told)
    with os.fdopen(read, "rb") as pipe:
        lines = [pipe.readline() for _ in range(after_lines)]
        if after_lines:
            child.kill()
        lines = [line for line in (*lines, *pipe.readlines()) if line]
    child.join()
    look(directory, *(int(word) for word in (lines[-1] if lines else b"0 0").split()))
    return child.exitcode == 0


def look(directory: Path, told: int, told_ts: int) -> None:
    """Every round that was told is there, none in part, the oracle is ahead, and the log says each round once."""
    world = World(SqliteEngine(directory / "store"), Clock(Clock().ms))
    assert world.oracle.next() > told_ts
    world.clock.ms = physical_ms(world.oracle.next()) + TTL_MS
    rows = {key: int(value) for key, value in world.storage.snapshot().scan(b"")}
    there = rows.get(b"a", 0)
    assert rows == (dict.fromkeys(KEYS, there) if there else {})
    assert told <= there <= told + 1
    assert not world.store.locks()
    writer = LogWriter(ChangeLog(world.store, world.oracle), directory / "log", 0)
    writer.write()
    logged = list(read_segments(directory / "log", 0, writer.low))
    assert [(row.key, int(row.value or b"0")) for row in logged] == [(k, n + 1) for n in range(there) for k in KEYS]
    assert all(path.suffix == ".seg" for *_, path in segments(directory / "log"))
    world.engine.close()


@pytest.mark.parametrize("kill_at", [9, 25, 40])
def test_killed_within_a_batch(tmp_path: Path, kill_at: int) -> None:
    """SIGKILL between two statements: rounds are whole, and none that was told is missing."""
    assert not kill_and_look(tmp_path, ROUNDS, kill_at=kill_at)


@pytest.mark.more
@pytest.mark.slow
def test_killed_at_every_statement(tmp_path: Path) -> None:
    """The same at each statement of four rounds, one after the other."""
    kill_at = 1
    while not kill_and_look(tmp_path / str(kill_at), ROUNDS, kill_at=kill_at):
        kill_at += 1

    assert kill_at > 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(8))
def test_killed_at_any_time(tmp_path: Path, seed: int) -> None:
    """SIGKILL from outside while the child writes as fast as it can."""
    assert not kill_and_look(tmp_path, 100_000, after_lines=Random(seed).randrange(1, 150))
