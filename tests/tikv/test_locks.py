"""Locks of transactions that are over are resolved as a client of TiKV must; the others are reported."""

from collections.abc import Iterable
from typing import Any

import pytest

from tidegate.model.tso import compose
from tidegate.tikv import rpc
from tidegate.tikv.locks import PAGE_LOCKS, Call, resolve
from tidegate.tikv.stubs import kvrpcpb_pb2 as pb

START = compose(1_000_000)
NOW = compose(1_010_000)
SCAN, CHECK, SECONDARY, RESOLVE = (
    rpc.KV_SCAN_LOCK,
    rpc.KV_CHECK_TXN_STATUS,
    rpc.KV_CHECK_SECONDARY_LOCKS,
    rpc.KV_RESOLVE_LOCK,
)


def lock(key: bytes = b"k", **more: Any) -> pb.LockInfo:
    return pb.LockInfo(**{"key": key, "primary_lock": b"p", "lock_version": START, "lock_ttl": 3000} | more)


def page(*locks: pb.LockInfo) -> pb.ScanLockResponse:
    return pb.ScanLockResponse(locks=locks)


def status(**more: Any) -> pb.CheckTxnStatusResponse:
    return pb.CheckTxnStatusResponse(**more)


def missing() -> pb.CheckTxnStatusResponse:
    return status(error=pb.KeyError(txn_not_found=pb.TxnNotFound(start_ts=START, primary_key=b"p")))


def secondaries(*locks: pb.LockInfo, commit_ts: int = 0) -> pb.CheckSecondaryLocksResponse:
    return pb.CheckSecondaryLocksResponse(locks=locks, commit_ts=commit_ts)


def run(answers: Iterable[Any], now: int = NOW) -> tuple[list[Call], Any]:
    """The calls of a resolution that is given these answers, and its result."""
    steps, calls, left = resolve(b"a", b"z", NOW, now), [], [None, *answers]
    try:
        while True:
            calls.append(steps.send(left.pop(0) if left else pb.ResolveLockResponse()))
            assert isinstance(left[0] if left else pb.ResolveLockResponse(), calls[-1].method.answer), calls[-1]
    except StopIteration as done:
        assert not left
        return calls, done.value


ASYNC = {"use_async_commit": True, "min_commit_ts": 70, "secondaries": [b"s1", b"s2"]}
HELD = status(lock_ttl=3000, lock_info=lock(b"p", **ASYNC))
SECOND = {"use_async_commit": True}

RESOLVED = {
    "committed": ([status(commit_version=77)], 77),
    "rolled back": ([status()], 0),
    "no primary, TTL over": ([missing(), status(action=pb.LockNotExistRollback)], 0),
    "async, all locked": (
        [HELD, *(secondaries(lock(b"s", min_commit_ts=ts, **SECOND)) for ts in (75, 72))],
        75,
    ),
    "async, one committed": ([HELD, secondaries(commit_ts=74)], 74),
    "async, one never written": ([HELD, secondaries(lock(b"s1", min_commit_ts=75, **SECOND)), secondaries()], 0),
    "async, one is not": ([HELD, secondaries(lock(b"s1")), status(commit_version=80)], 80),
}


@pytest.mark.parametrize("name", RESOLVED)
def test_resolved(name: str) -> None:
    """A transaction that is over is committed or rolled back as its primary, or its secondaries, tell."""
    answers, commit_ts = RESOLVED[name]
    calls, result = run([page(lock()), *answers, pb.ResolveLockResponse()])

    assert [call.method for call in calls][:2] == [SCAN, CHECK]
    assert (calls[0].request.max_version, calls[0].request.start_key, calls[0].request.end_key) == (NOW, b"a", b"z")
    first = calls[1].request
    assert (first.primary_key, first.lock_ts, first.caller_start_ts, first.current_ts) == (b"p", START, 0, NOW)
    assert first.verify_is_primary
    assert not first.rollback_if_not_exist
    last = calls[-1]
    assert (last.method, last.key) == (RESOLVE, b"k")
    assert (last.request.start_version, last.request.commit_version, last.request.keys) == (START, commit_ts, [b"k"])
    assert (result.locks, result.alive) == (1, [])
    checks = [
        (one.request.rollback_if_not_exist, one.request.force_sync_commit) for one in calls if one.method is CHECK
    ]
    again = {"no primary, TTL over": [(True, False)], "async, one is not": [(False, True)]}
    assert checks == [(False, False), *again.get(name, [])]


ALIVE = {
    "alive": (status(lock_ttl=20_000), NOW, ""),
    "async and alive": (HELD, START + 5, ""),
    "its primary is to come": (missing(), START + 5, ", its primary is still to come"),
    "refused": (status(error=pb.KeyError(abort="no")), NOW, ': abort: "no"'),
}


@pytest.mark.parametrize("name", ALIVE)
def test_alive(name: str) -> None:
    """A live transaction is left alone and named by key and start_ts, once, however many locks it has."""
    answer, now, reason = ALIVE[name]
    calls, result = run([page(lock(), lock(b"l"), lock(b"m")), answer], now)

    assert [call.method for call in calls] == [SCAN, CHECK]
    assert result.locks == 0
    assert [str(one) for one in result.alive] == [f"transaction {START} holds key 6b (primary 70){reason}"]


def test_pessimistic_left_behind() -> None:
    """A lock whose primary is another one is a pessimistic one left behind: it holds nothing, and is no report."""
    mismatch = pb.KeyError(primary_mismatch=pb.PrimaryMismatch(lock_info=lock()))
    calls, result = run([page(lock(lock_type=pb.PessimisticLock)), status(error=mismatch)])

    assert calls[1].request.resolving_pessimistic_lock
    assert (len(calls), result.locks, result.alive) == (2, 0, [])


def test_lock_without_ttl() -> None:
    """A lock with TTL 0 is expired at any time."""
    calls, _ = run([page(lock(lock_ttl=0)), status(), pb.ResolveLockResponse()])

    assert calls[1].request.current_ts == (1 << 64) - 1


def test_pages_and_large_transactions() -> None:
    """The next page begins behind the last key; a large or pipelined transaction is resolved by region, once."""
    large = [lock(b"k%04d" % number, txn_size=1 << 20) for number in range(PAGE_LOCKS)]
    answers = [page(*large), status(commit_version=9), pb.ResolveLockResponse(), page(lock(b"y", txn_size=1 << 20))]
    calls, result = run(answers)

    assert [call.method for call in calls] == [SCAN, CHECK, RESOLVE, SCAN]
    assert calls[2].request.keys == []
    assert calls[3].request.start_key == large[-1].key + b"\0"
    assert result.locks == 1
