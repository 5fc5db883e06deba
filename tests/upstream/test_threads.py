"""Threads over one store: a server's sessions, and a reader of the log beside them."""

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from tests.upstream.worlds import ENGINES, Clock, World
from tidegate_upstream.errors import KeyLocked, WriteConflict
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.log_writer import SpanFeed
from tidegate_upstream.tidb.transaction import WINDOW_MS

THREADS, ADDITIONS = 4, 15


class Leaping(Clock):
    """A clock that is past the oracle's bound at every look, so that each timestamp writes to the engine."""

    def __call__(self) -> int:
        """Now."""
        self.ms += 2 * WINDOW_MS
        return self.ms


def add(world: World, failed: list[BaseException], *, one_phase: bool) -> None:
    """Add to one counter until it is done, beginning anew after each conflict."""
    options = world.options.__class__(ttl_ms=1 << 40, one_phase=one_phase, batch_keys=1 if not one_phase else 9)
    done = 0
    try:
        while done < ADDITIONS:
            with suppress(WriteConflict, KeyLocked):
                txn = world.storage.begin(options)
                txn.put(b"counter", b"%d" % (int(txn.get(b"counter") or b"0") + 1))
                txn.put(b"by %d" % threading.get_ident(), b"%d" % done)
                txn.commit()
                done += 1
    except BaseException as error:
        failed.append(error)
        raise


def listen(log: ChangeLog, feed: SpanFeed, rows: dict[bytes, bytes | None], over: Callable[[], bool]) -> None:
    """Apply what the log says until it is over, and once more; regions change now and then."""
    for turn in count():
        last = over()
        if turn % 8 == 0:
            log.split(b"by")
        elif turn % 8 == 4:
            log.merge(1)
        for _ in range(2):
            feed.poll()
        log.advance()
        feed.poll()
        rows.update({row.key: row.value for row in feed.take()[0]})
        if last:
            return


@pytest.mark.parametrize("engine", ["memory", pytest.param("sqlite", marks=pytest.mark.slow)])
def test_threads(engine: str, tmp_path: Path) -> None:
    """No addition is lost, and the log, read meanwhile, ends with what the store holds."""
    world = World(ENGINES[engine](tmp_path), Leaping())
    log, failed, rows = ChangeLog(world.store, world.oracle), [], {}
    feed = SpanFeed(log, b"", b"", 0)
    kinds = [{"one_phase": bool(at % 2)} for at in range(THREADS)]
    writers = [threading.Thread(target=add, args=(world, failed), kwargs=kind) for kind in kinds]
    for thread in writers:
        thread.start()
    listen(log, feed, rows, lambda: not any(thread.is_alive() for thread in writers))
    for thread in writers:
        thread.join()

    assert not failed
    assert world.storage.snapshot().get(b"counter") == b"%d" % (THREADS * ADDITIONS)
    assert rows == dict(world.storage.snapshot().scan(b""))
