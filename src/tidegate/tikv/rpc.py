"""Methods of PD and TiKV, and the channels on which they are called.

A method is a row: its path, the class of its request and that of its answer. A message may have any size: TiKV puts the
rows of one raft command into one event.
"""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb
from tidegate.tikv.stubs import health_pb2 as health
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

CHANNEL_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 3_000),
)
SERVER_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    *CHANNEL_OPTIONS[:2],
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
)
"""What a server grants to the pings of `CHANNEL_OPTIONS`; otherwise gRPC ends their connection."""


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, A]):
    """A method of one service."""

    path: str
    request: type[Q]
    answer: type[A]

    def raw(self, channel: grpc.aio.Channel) -> "grpc.aio.UnaryUnaryMultiCallable[Q, bytes]":
        """Return what calls it once, and gives the bytes of the answer."""
        return channel.unary_unary(self.path, request_serializer=self.request.SerializeToString)

    def unary(self, channel: grpc.aio.Channel) -> "grpc.aio.UnaryUnaryMultiCallable[Q, A]":
        """Return what calls it once."""
        return channel.unary_unary(
            self.path, request_serializer=self.request.SerializeToString, response_deserializer=self.answer.FromString
        )

    def stream(self, channel: grpc.aio.Channel) -> "grpc.aio.StreamStreamMultiCallable[Q, A]":
        """Return what opens a stream of both directions."""
        return channel.stream_stream(
            self.path, request_serializer=self.request.SerializeToString, response_deserializer=self.answer.FromString
        )


_PD = "/pdpb.PD/"
GET_MEMBERS: Final = Method(_PD + "GetMembers", pdpb.GetMembersRequest, pdpb.GetMembersResponse)
TSO: Final = Method(_PD + "Tso", pdpb.TsoRequest, pdpb.TsoResponse)
GET_STORE: Final = Method(_PD + "GetStore", pdpb.GetStoreRequest, pdpb.GetStoreResponse)
GET_ALL_STORES: Final = Method(_PD + "GetAllStores", pdpb.GetAllStoresRequest, pdpb.GetAllStoresResponse)
GET_REGION: Final = Method(_PD + "GetRegion", pdpb.GetRegionRequest, pdpb.GetRegionResponse)
SCAN_REGIONS: Final = Method(_PD + "ScanRegions", pdpb.ScanRegionsRequest, pdpb.ScanRegionsResponse)
BATCH_SCAN_REGIONS: Final = Method(
    _PD + "BatchScanRegions", pdpb.BatchScanRegionsRequest, pdpb.BatchScanRegionsResponse
)
UPDATE_SERVICE_GC_SAFE_POINT: Final = Method(
    _PD + "UpdateServiceGCSafePoint", pdpb.UpdateServiceGCSafePointRequest, pdpb.UpdateServiceGCSafePointResponse
)
GET_GC_STATE: Final = Method(_PD + "GetGCState", pdpb.GetGCStateRequest, pdpb.GetGCStateResponse)
SET_GC_BARRIER: Final = Method(_PD + "SetGCBarrier", pdpb.SetGCBarrierRequest, pdpb.SetGCBarrierResponse)
DELETE_GC_BARRIER: Final = Method(_PD + "DeleteGCBarrier", pdpb.DeleteGCBarrierRequest, pdpb.DeleteGCBarrierResponse)

_KV = "/tikvpb.Tikv/"
KV_GET: Final = Method(_KV + "KvGet", kvrpcpb.GetRequest, kvrpcpb.GetResponse)
KV_SCAN: Final = Method(_KV + "KvScan", kvrpcpb.ScanRequest, kvrpcpb.ScanResponse)
KV_SCAN_LOCK: Final = Method(_KV + "KvScanLock", kvrpcpb.ScanLockRequest, kvrpcpb.ScanLockResponse)
KV_CHECK_TXN_STATUS: Final = Method(
    _KV + "KvCheckTxnStatus", kvrpcpb.CheckTxnStatusRequest, kvrpcpb.CheckTxnStatusResponse
)
KV_CHECK_SECONDARY_LOCKS: Final = Method(
    _KV + "KvCheckSecondaryLocks", kvrpcpb.CheckSecondaryLocksRequest, kvrpcpb.CheckSecondaryLocksResponse
)
KV_RESOLVE_LOCK: Final = Method(_KV + "KvResolveLock", kvrpcpb.ResolveLockRequest, kvrpcpb.ResolveLockResponse)

EVENT_FEED_V2: Final = Method("/cdcpb.ChangeData/EventFeedV2", cdcpb.ChangeDataRequest, cdcpb.ChangeDataEvent)
CHECK_HEALTH: Final = Method("/grpc.health.v1.Health/Check", health.HealthCheckRequest, health.HealthCheckResponse)
