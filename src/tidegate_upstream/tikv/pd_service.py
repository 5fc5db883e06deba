"""PD over the embedded store: members, timestamps, stores, regions, and safe points of services.

The safe point is the store's.  Barriers and service safe points have one name space, and garbage is collected up to
`least_barrier` at most.  A barrier below the safe point is refused; a service safe point below it is silently not set.
"""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from tidegate.model.tso import LOGICAL_BITS, physical_ms
from tidegate.tikv import rpc
from tidegate.tikv.stubs import metapb_pb2 as metapb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tikv.placement import placed, raw, within

VERSION: Final = "8.5.4"
_LOGICAL: Final = (1 << LOGICAL_BITS) - 1
_EVER_S: Final = (1 << 63) - 1
_BEHIND: Final = (
    "[PD:gc:ErrGCBarrierTSBehindTxnSafePoint]trying to set a GC barrier on ts {} which is already behind the txn safe "
    "point {}"
)


@dataclass(slots=True)
class PdService:
    """PD of a cluster whose stores listen at `stores`; `url` is its own address. Both are as advertised."""

    log: ChangeLog
    cluster_id: int
    url: str
    stores: Sequence[str]
    clock: Callable[[], float] = time.time
    barriers: dict[str, tuple[int, float]] = field(default_factory=dict)
    """The ts and the end, by the clock, of each."""

    def unary(self) -> dict[rpc.Method[Any, Any], Callable[[Any], Any]]:
        """Return what answers each method of one request."""
        return {
            rpc.GET_MEMBERS: self.members,
            rpc.GET_STORE: self.store,
            rpc.GET_ALL_STORES: self.all_stores,
            rpc.GET_REGION: self.region,
            rpc.SCAN_REGIONS: self.scan,
            rpc.BATCH_SCAN_REGIONS: self.batch_scan,
            rpc.UPDATE_SERVICE_GC_SAFE_POINT: self.update_safe_point,
            rpc.GET_GC_STATE: self.gc_state,
            rpc.SET_GC_BARRIER: self.set_barrier,
            rpc.DELETE_GC_BARRIER: self.delete_barrier,
        }

    def header(self, message: str = "") -> pdpb.ResponseHeader:
        """Return the header of an answer, with an error if there is a message."""
        error = pdpb.Error(type=pdpb.UNKNOWN, message=message) if message else None
        return pdpb.ResponseHeader(cluster_id=self.cluster_id, error=error)

    def members(self, _: pdpb.GetMembersRequest) -> pdpb.GetMembersResponse:
        member = pdpb.Member(name="pd", member_id=1, client_urls=[self.url], binary_version=VERSION)
        return pdpb.GetMembersResponse(header=self.header(), members=[member], leader=member, etcd_leader=member)

    async def timestamps(self, requests: AsyncIterator[pdpb.TsoRequest], call: Any) -> AsyncIterator[pdpb.TsoResponse]:
        """Answer each request with a batch, whose last timestamp is named."""
        async for request in requests:
            count = request.count
            if request.header.cluster_id != self.cluster_id:
                await call.abort(grpc.StatusCode.FAILED_PRECONDITION, self.mismatch(request.header.cluster_id))
            if not 0 < count < _LOGICAL:
                await call.abort(grpc.StatusCode.UNKNOWN, "[PD:tso:ErrGenerateTimestamp]tso count out of range")
            last = self.log.oracle.batch(count)[-1]
            while last & _LOGICAL < count:  # a batch lies within one millisecond
                last = self.log.oracle.batch(count)[-1]
            stamp = pdpb.Timestamp(physical=physical_ms(last), logical=last & _LOGICAL)
            yield pdpb.TsoResponse(header=self.header(), count=count, timestamp=stamp)

    def mismatch(self, cluster_id: int) -> str:
        """Return PD's words for a request that is for another cluster."""
        return f"mismatch cluster id, need {self.cluster_id} but got {cluster_id}"

    # --- stores and regions ---

    def store(self, request: pdpb.GetStoreRequest) -> pdpb.GetStoreResponse:
        if not 0 < request.store_id <= len(self.stores):
            return pdpb.GetStoreResponse(header=self.header(f"invalid store ID {request.store_id}, not found"))
        return pdpb.GetStoreResponse(header=self.header(), store=self._store(request.store_id))

    def all_stores(self, _: pdpb.GetAllStoresRequest) -> pdpb.GetAllStoresResponse:
        stores = [self._store(number) for number in range(1, len(self.stores) + 1)]
        return pdpb.GetAllStoresResponse(header=self.header(), stores=stores)

    def _store(self, number: int) -> metapb.Store:
        return metapb.Store(id=number, address=self.stores[number - 1], version=VERSION)

    def region(self, request: pdpb.GetRegionRequest) -> pdpb.GetRegionResponse:
        key = raw(request.region_key)
        region = next(region for region in self.log.regions if not region.end or key < region.end)
        both = placed(region, len(self.stores))
        return pdpb.GetRegionResponse(header=self.header(), region=both.region, leader=both.leader)

    def scan(self, request: pdpb.ScanRegionsRequest) -> pdpb.ScanRegionsResponse:
        regions = self._within(request.start_key, request.end_key, request.limit)
        return pdpb.ScanRegionsResponse(
            header=self.header(),
            region_metas=[region.region for region in regions],
            leaders=[region.leader for region in regions],
            regions=regions,
        )

    def batch_scan(self, request: pdpb.BatchScanRegionsRequest) -> pdpb.BatchScanRegionsResponse:
        regions = [
            region for span in request.ranges for region in self._within(span.start_key, span.end_key, request.limit)
        ]
        distinct = list({region.region.id: region for region in regions}.values())
        return pdpb.BatchScanRegionsResponse(header=self.header(), regions=distinct[: request.limit or None])

    def _within(self, start: bytes, end: bytes, limit: int) -> list[pdpb.Region]:
        return [placed(region, len(self.stores)) for region in within(self.log.regions, start, end, limit)]

    # --- garbage ---

    def least_barrier(self) -> int | None:
        """Return the least ts at which somebody holds GC, None without any."""
        now = self.clock()
        self.barriers = {name: entry for name, entry in self.barriers.items() if entry[1] > now}
        return min((ts for ts, _ in self.barriers.values()), default=None)

    def update_safe_point(self, request: pdpb.UpdateServiceGCSafePointRequest) -> pdpb.UpdateServiceGCSafePointResponse:
        safe_point, name = self.log.store.safe_point, request.service_id.decode()
        if request.TTL <= 0:
            self.barriers.pop(name, None)
        elif request.safe_point >= safe_point:
            self.barriers[name] = (request.safe_point, self.clock() + request.TTL)
        return pdpb.UpdateServiceGCSafePointResponse(
            header=self.header(), service_id=b"gc_worker", TTL=_EVER_S, min_safe_point=safe_point
        )

    def gc_state(self, request: pdpb.GetGCStateRequest) -> pdpb.GetGCStateResponse:
        self.least_barrier()
        safe_point = self.log.store.safe_point
        barriers = [self._barrier(name) for name in self.barriers]
        state = pdpb.GCState(
            keyspace_scope=request.keyspace_scope,
            txn_safe_point=safe_point,
            gc_safe_point=safe_point,
            gc_barriers=barriers,
        )
        return pdpb.GetGCStateResponse(header=self.header(), gc_state=state)

    def set_barrier(self, request: pdpb.SetGCBarrierRequest) -> pdpb.SetGCBarrierResponse:
        safe_point, name = self.log.store.safe_point, request.barrier_id
        if request.barrier_ts < safe_point:
            return pdpb.SetGCBarrierResponse(header=self.header(_BEHIND.format(request.barrier_ts, safe_point)))
        self.barriers[name] = (request.barrier_ts, self.clock() + request.ttl_seconds)
        return pdpb.SetGCBarrierResponse(header=self.header(), new_barrier_info=self._barrier(name))

    def delete_barrier(self, request: pdpb.DeleteGCBarrierRequest) -> pdpb.DeleteGCBarrierResponse:
        deleted = self._barrier(request.barrier_id) if request.barrier_id in self.barriers else None
        self.barriers.pop(request.barrier_id, None)
        return pdpb.DeleteGCBarrierResponse(header=self.header(), deleted_barrier_info=deleted)

    def _barrier(self, name: str) -> pdpb.GCBarrierInfo:
        ts, end = self.barriers[name]
        return pdpb.GCBarrierInfo(barrier_id=name, barrier_ts=ts, ttl_seconds=max(round(end - self.clock()), 0))
