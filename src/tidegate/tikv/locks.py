"""Locks that hold a resolved ts back: whose transaction is over is committed or rolled back, the others are reported.

    ScanLock(max_version) ─► a lock ─► CheckTxnStatus(primary) ─┬─► committed, rolled back ──────────────► ResolveLock
                                                               ├─► alive ───────────────────────────────► report
                                                               └─► async commit, expired
                                                                     └─► CheckSecondaryLocks of each key ─► ResolveLock

    answer of CheckTxnStatus                        outcome
    error primary_mismatch                          none: a pessimistic lock left behind, which holds nothing
    error txn_not_found, TTL not over               alive
    error txn_not_found, TTL over                   asked again with rollback_if_not_exist
    any other error                                 alive, with the error
    commit_version > 0                              committed at it
    lock_ttl = 0                                    rolled back
    lock_ttl > 0, async commit, TTL over            decided by the secondaries
    lock_ttl > 0                                    alive

    answer of CheckSecondaryLocks                   outcome
    a lock with async commit                        the next key; behind the last one: committed at the largest
                                                    min_commit_ts of all locks
    a lock without                                  CheckTxnStatus again with force_sync_commit
    no lock                                         committed at commit_ts, rolled back if it is 0

`resolve` is a generator: it yields requests and is sent their answers.  A primary is asked for once per call, whatever
number of locks points to it; a transaction of 512 keys or more is resolved by region, once.  A pipelined transaction
has no secondaries in its primary, and is alive while its primary is kept alive.
Source: client-go txnkv/txnlock, tiflow pkg/txnutil/lock_resolver.go.
"""

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.model.errors import redacted
from tidegate.model.tso import physical_ms
from tidegate.tikv import rpc
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb

PAGE_LOCKS: Final = 1024
LITE_KEYS: Final = 512
_ANY_TIME: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Call:
    """A request to the leader of the region of a raw key."""

    method: rpc.Method[Any, Any]
    request: Any
    key: bytes


@dataclass(frozen=True, slots=True)
class LiveTransaction:
    """A transaction that is alive, and one of its locks."""

    start_ts: int
    key: bytes
    primary: bytes
    reason: str = ""

    def __str__(self) -> str:
        key, primary = redacted(self.key.hex()), redacted(self.primary.hex())
        return f"transaction {self.start_ts} holds key {key} (primary {primary}){self.reason}"


@dataclass(slots=True)
class Resolved:
    """What became of the locks of a range: how many were resolved, and who is alive."""

    locks: int = 0
    alive: list[LiveTransaction] = field(default_factory=list)


_Answers = Generator[Call, Any, Any]


def resolve(start: bytes, end: bytes, max_ts: int, now: int) -> Generator[Call, Any, Resolved]:
    """Resolve the locks in [start, end) of one region whose start_ts is at most `max_ts`; `now` is a timestamp."""
    outcomes: dict[int, int | str | None] = {}
    whole: set[int] = set()
    result = Resolved()
    while True:
        page = kvrpcpb.ScanLockRequest(max_version=max_ts, start_key=start, end_key=end, limit=PAGE_LOCKS)
        locks = (yield Call(rpc.KV_SCAN_LOCK, page, start)).locks
        for lock in locks:
            if lock.lock_version not in outcomes:
                outcomes[lock.lock_version] = yield from _outcome(lock, now)
                if isinstance(reason := outcomes[lock.lock_version], str):
                    result.alive.append(LiveTransaction(lock.lock_version, lock.key, lock.primary_lock, reason))
            commit_ts = outcomes[lock.lock_version]
            if not isinstance(commit_ts, int) or lock.lock_version in whole:
                continue
            request = kvrpcpb.ResolveLockRequest(start_version=lock.lock_version, commit_version=commit_ts)
            if lock.txn_size < LITE_KEYS:
                request.keys.append(lock.key)
            else:
                whole.add(lock.lock_version)
            yield Call(rpc.KV_RESOLVE_LOCK, request, lock.key)
            result.locks += 1
        if len(locks) < PAGE_LOCKS:
            return result
        start = locks[-1].key + b"\0"


async def answered(steps: Generator[Call, Any, Resolved], ask: Callable[[Call], Awaitable[Any]]) -> Resolved:
    """Return the result of `resolve`, whose requests `ask` answers."""
    answer = None
    try:
        while True:
            answer = await ask(steps.send(answer))
    except StopIteration as done:
        result: Resolved = done.value
        return result


def _expired(start_ts: int, ttl_ms: int, now: int) -> bool:
    return physical_ms(now) >= physical_ms(start_ts) + ttl_ms


def _outcome(lock: kvrpcpb.LockInfo, now: int) -> _Answers:
    """Return the commit_ts of a lock's transaction, 0 if it is rolled back, the reason if it is alive, else None."""
    status = yield from _status(lock, now)
    primary = status.lock_info
    if status.lock_ttl and primary.use_async_commit and _expired(lock.lock_version, status.lock_ttl, now):
        commit_ts = primary.min_commit_ts
        for key in primary.secondaries:
            request = kvrpcpb.CheckSecondaryLocksRequest(keys=[key], start_version=lock.lock_version)
            answer = yield Call(rpc.KV_CHECK_SECONDARY_LOCKS, request, key)
            if answer.HasField("error"):
                return f": {answer.error}".rstrip()
            if not answer.locks:
                return int(answer.commit_ts)
            if not answer.locks[0].use_async_commit:
                status = yield from _status(lock, now, force_sync=True)
                break
            commit_ts = max(commit_ts, answer.locks[0].min_commit_ts)
        else:
            return int(commit_ts)
    if status.error.HasField("primary_mismatch"):
        return None
    if status.error.HasField("txn_not_found"):
        return ", its primary is still to come"
    if status.HasField("error"):
        return f": {status.error}".rstrip()
    return "" if status.lock_ttl and not status.commit_version else int(status.commit_version)


def _status(lock: kvrpcpb.LockInfo, now: int, *, force_sync: bool = False) -> _Answers:
    """Return what the primary of a lock says; without one the transaction is rolled back, once its TTL is over."""
    request = kvrpcpb.CheckTxnStatusRequest(
        primary_key=lock.primary_lock,
        lock_ts=lock.lock_version,
        current_ts=now if lock.lock_ttl else _ANY_TIME,
        force_sync_commit=force_sync,
        resolving_pessimistic_lock=lock.lock_type == kvrpcpb.PessimisticLock,
        verify_is_primary=True,
    )
    status = yield Call(rpc.KV_CHECK_TXN_STATUS, request, lock.primary_lock)
    if status.error.HasField("txn_not_found") and _expired(lock.lock_version, lock.lock_ttl, now):
        again = kvrpcpb.CheckTxnStatusRequest()
        again.CopyFrom(request)
        again.rollback_if_not_exist = True
        status = yield Call(rpc.KV_CHECK_TXN_STATUS, again, lock.primary_lock)
    return status
