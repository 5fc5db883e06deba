"""The simulation finds what it is there for: each bug that is put into the code ends in an assertion."""

from collections.abc import Callable

import pytest

from tests.upstream.log_simulation import LogSimulation
from tidegate_upstream.errors import WriteConflict
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.engine import MetaBound
from tidegate_upstream.tidb.log_writer import SpanFeed
from tidegate_upstream.tidb.store_mvcc import RolledBack, Store, value_at

SEEDS = 100


def conflicts_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prewrite does not look for newer commits."""
    check = Store._check

    def blind(store, mutation, start_ts):
        try:
            return check(store, mutation, start_ts)
        except WriteConflict:
            return value_at(store.engine, mutation.key, 1 << 62), True

    monkeypatch.setattr(Store, "_check", blind)


def readers_pass_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read does not look for locks."""
    monkeypatch.setattr(Store, "get", lambda store, key, ts: value_at(store.engine, key, ts))


def resolved_passes_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolved ts does not wait for locks."""
    advance = ChangeLog.advance

    def blind(log: ChangeLog) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(log.store, "locks", list)
            advance(log)

    monkeypatch.setattr(ChangeLog, "advance", blind)


def secondaries_roll_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who finds a lock rolls it back, whatever its primary says."""
    finish = Store.finish
    monkeypatch.setattr(Store, "finish", lambda store, key, start_ts, _: finish(store, key, start_ts, RolledBack()))


def regions_start_from_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new registration begins at the present and not where the old one stood."""
    subscribe = SpanFeed._subscribe

    def forgetful(feed, start, end, from_ts):
        return subscribe(feed, start, end, feed._log.oracle.next() if hasattr(feed, "_parts") else from_ts)

    monkeypatch.setattr(SpanFeed, "_subscribe", forgetful)


def no_old_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prewrite does not read what it replaces."""
    check = Store._check
    monkeypatch.setattr(Store, "_check", lambda store, mutation, ts: (None, check(store, mutation, ts)[1]))


def bound_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle trusts the clock after a restart."""
    monkeypatch.setattr(MetaBound, "load", lambda _: 0)


PLANTS = (
    conflicts_pass,
    readers_pass_locks,
    resolved_passes_locks,
    secondaries_roll_back,
    regions_start_from_now,
    no_old_values,
    bound_is_forgotten,
)


def simulate(seeds: int) -> None:
    for seed in range(seeds):
        LogSimulation(seed).run(800)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a hundred seeds."""
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        simulate(SEEDS)
