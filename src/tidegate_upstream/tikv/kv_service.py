"""Reads and lock resolution of one store of TiKV over the embedded store.

A request names a region and its epoch; another leader or epoch is answered by a region error.  All transactions of the
embedded store are optimistic, in two phases or one: no lock commits asynchronously.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from tidegate.tikv import rpc
from tidegate.tikv.stubs import errorpb_pb2 as errorpb
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate_upstream.errors import HistoryCollected, KeyLocked, TransactionGone
from tidegate_upstream.tidb.change_log import ChangeLog, Region
from tidegate_upstream.tidb.store_mvcc import Alive, Committed, Lock, Store, WriteKind
from tidegate_upstream.tikv.placement import leader_of, meta_of

_OPS: Final = {WriteKind.PUT: kvrpcpb.Put, WriteKind.DELETE: kvrpcpb.Del, WriteKind.LOCK: kvrpcpb.Lock}
Answer: TypeAlias = Callable[[Any, Region], Any]


@dataclass(frozen=True, slots=True)
class KvService:
    """The store `number` of `stores`."""

    log: ChangeLog
    number: int
    stores: int

    def unary(self) -> dict[rpc.Method[Any, Any], Callable[[Any], Any]]:
        """Return what answers each method of one request."""
        answers: dict[rpc.Method[Any, Any], Answer] = {
            rpc.KV_GET: self.get,
            rpc.KV_SCAN: self.scan,
            rpc.KV_SCAN_LOCK: self.scan_lock,
            rpc.KV_CHECK_TXN_STATUS: self.check_txn_status,
            rpc.KV_CHECK_SECONDARY_LOCKS: self.check_secondary_locks,
            rpc.KV_RESOLVE_LOCK: self.resolve_lock,
        }
        return {method: partial(self._checked, method, answer) for method, answer in answers.items()}

    def _checked(self, method: rpc.Method[Any, Any], answer: Answer, request: Any) -> Any:
        """Return an answer for a region that this store leads, or the error."""
        with self.log.store.guard:
            region = self.log.regions.find(request.context.region_id)
            context = request.context
            if refusal := self.fault(context.region_id, context.region_epoch.version, by_follower=context.replica_read):
                return method.answer(region_error=refusal)
            assert region is not None
            try:
                return answer(request, region)
            except KeyLocked as locked:
                return method.answer(error=_locked(self.log.store, locked.key))
            except (HistoryCollected, TransactionGone) as fault:
                return method.answer(error=kvrpcpb.KeyError(abort=str(fault)))

    def fault(self, region_id: int, version: int, *, by_follower: bool = False) -> errorpb.Error | None:
        """Return why this store does not answer for a region of this version, as its leader or a follower."""
        region = self.log.regions.find(region_id)
        if region is None:
            return errorpb.Error(region_not_found=errorpb.RegionNotFound(region_id=region_id))
        leader = leader_of(region, self.stores)
        if leader.store_id != self.number and not by_follower:
            return errorpb.Error(not_leader=errorpb.NotLeader(region_id=region_id, leader=leader))
        if region.version != version:
            current = meta_of(region, self.stores)
            return errorpb.Error(epoch_not_match=errorpb.EpochNotMatch(current_regions=[current]))
        return None

    # --- reads ---

    def get(self, request: kvrpcpb.GetRequest, _: Region) -> kvrpcpb.GetResponse:
        value = self.log.store.get(request.key, request.version)
        return kvrpcpb.GetResponse(value=value or b"", not_found=value is None)

    def scan(self, request: kvrpcpb.ScanRequest, region: Region) -> kvrpcpb.ScanResponse:
        bounds = (request.start_key, request.end_key)[:: -1 if request.reverse else 1]
        span, most = region.overlap(*bounds), sys.maxsize if request.reverse else request.limit
        pairs = [] if span is None else list(self._pairs(*span, request.version, most))
        if request.reverse:
            pairs = pairs[: -request.limit - 1 : -1]
        if request.key_only:
            pairs = [
                kvrpcpb.KvPair(key=pair.key, error=pair.error if pair.HasField("error") else None) for pair in pairs
            ]
        return kvrpcpb.ScanResponse(pairs=pairs)

    def _pairs(self, start: bytes, end: bytes, ts: int, limit: int) -> Iterator[kvrpcpb.KvPair]:
        """Return pairs in order; a locked key is a pair with an error in its place."""
        store = self.log.store
        while limit > 0:
            stop, locked = end, b""
            try:
                rows = store.scan(start, end, ts, limit=limit)
            except KeyLocked as fault:
                stop = locked = fault.key
                rows = store.scan(start, stop, ts, limit=limit) if start < stop else []
            yield from (kvrpcpb.KvPair(key=key, value=value) for key, value in rows)
            limit -= len(rows) + 1
            if not locked or limit < 0:
                return
            yield kvrpcpb.KvPair(key=locked, error=_locked(store, locked))
            start = locked + b"\0"

    # --- locks ---

    def scan_lock(self, request: kvrpcpb.ScanLockRequest, region: Region) -> kvrpcpb.ScanLockResponse:
        span = region.overlap(request.start_key, request.end_key)
        locks = [] if span is None else self.log.store.locks(*span)
        infos = [info_of(key, lock) for key, lock in locks if lock.start_ts <= request.max_version]
        return kvrpcpb.ScanLockResponse(locks=infos[: request.limit or None])

    def check_txn_status(self, request: kvrpcpb.CheckTxnStatusRequest, _: Region) -> kvrpcpb.CheckTxnStatusResponse:
        store, primary, start_ts = self.log.store, request.primary_key, request.lock_ts
        lock = store.lock_of(primary)
        own = lock if lock and lock.start_ts == start_ts else None
        if own and request.verify_is_primary and own.primary != primary:
            mismatch = kvrpcpb.PrimaryMismatch(lock_info=info_of(primary, own))
            return kvrpcpb.CheckTxnStatusResponse(error=kvrpcpb.KeyError(primary_mismatch=mismatch))
        outcome = None if own else store.outcome_of(primary, start_ts)
        if own is None and outcome is None and not request.rollback_if_not_exist:
            absent = kvrpcpb.TxnNotFound(start_ts=start_ts, primary_key=primary)
            return kvrpcpb.CheckTxnStatusResponse(error=kvrpcpb.KeyError(txn_not_found=absent))
        match store.check_status(primary, start_ts, request.current_ts):
            case Alive():
                assert own is not None
                return kvrpcpb.CheckTxnStatusResponse(lock_ttl=own.ttl_ms, lock_info=info_of(primary, own))
            case Committed(commit_ts):
                return kvrpcpb.CheckTxnStatusResponse(commit_version=commit_ts)
        action = kvrpcpb.TTLExpireRollback if own else kvrpcpb.LockNotExistRollback
        return kvrpcpb.CheckTxnStatusResponse(action=kvrpcpb.NoAction if outcome else action)

    def check_secondary_locks(
        self, request: kvrpcpb.CheckSecondaryLocksRequest, _: Region
    ) -> kvrpcpb.CheckSecondaryLocksResponse:
        store, start_ts = self.log.store, request.start_version
        infos = []
        for key in request.keys:
            lock = store.lock_of(key)
            if lock and lock.start_ts == start_ts:
                infos.append(info_of(key, lock))
                continue
            outcome = store.outcome_of(key, start_ts)
            if isinstance(outcome, Committed):
                return kvrpcpb.CheckSecondaryLocksResponse(commit_ts=outcome.commit_ts)
            store.rollback([key], start_ts)
            return kvrpcpb.CheckSecondaryLocksResponse()
        return kvrpcpb.CheckSecondaryLocksResponse(locks=infos)

    def resolve_lock(self, request: kvrpcpb.ResolveLockRequest, region: Region) -> kvrpcpb.ResolveLockResponse:
        store = self.log.store
        single = kvrpcpb.TxnInfo(txn=request.start_version, status=request.commit_version)
        for txn in request.txn_infos or [single]:
            locked = [key for key, lock in store.locks(region.start, region.end) if lock.start_ts == txn.txn]
            keys = [key for key in locked if key in set(request.keys)] if request.keys else locked
            if txn.status:
                store.commit(keys, txn.txn, txn.status)
            else:
                store.rollback(keys, txn.txn)
        return kvrpcpb.ResolveLockResponse()


def info_of(key: bytes, lock: Lock) -> kvrpcpb.LockInfo:
    """Return a lock as TiKV tells it."""
    return kvrpcpb.LockInfo(
        primary_lock=lock.primary,
        lock_version=lock.start_ts,
        key=key,
        lock_ttl=lock.ttl_ms,
        txn_size=1,
        lock_type=_OPS[lock.kind],
    )


def _locked(store: Store, key: bytes) -> kvrpcpb.KeyError:
    lock = store.lock_of(key)
    assert lock is not None, key
    return kvrpcpb.KeyError(locked=info_of(key, lock))
