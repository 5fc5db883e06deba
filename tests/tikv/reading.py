"""A scripted cluster for reads: a PD with regions and a GC safe point, and a store that answers as a test says."""

import asyncio
import base64
import gzip
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.tikv.scripted import DATA, Answer, Scripted, serving
from tidegate.mysql.encoding import encode_bytes
from tidegate.tikv import rpc
from tidegate.tikv.address import ClusterAddress
from tidegate.tikv.pd import PdClient
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate.tikv.stubs import metapb_pb2 as metapb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb

CLUSTER_ID = 7712533096719751607
TS = 470735675198537732
STORE = "tikv.test:20160"
Bounds = tuple[int, bytes, bytes]
"""A region: its id and raw keys."""


class Cluster:
    """`scan` and `get` answer requests; `regions` and `safe_point` may change meanwhile."""

    def __init__(self, regions: Sequence[Bounds]) -> None:
        self.regions = list(regions)
        self.safe_point = 0
        self.scan: Callable[[kvrpcpb.ScanRequest], kvrpcpb.ScanResponse] = lambda _: kvrpcpb.ScanResponse()
        self.get: Callable[[kvrpcpb.GetRequest], kvrpcpb.GetResponse] = lambda _: kvrpcpb.GetResponse(not_found=True)
        self.requests: list[Any] = []
        self.held: list[Any] = []

    def header(self) -> pdpb.ResponseHeader:
        return pdpb.ResponseHeader(cluster_id=CLUSTER_ID)

    def members(self, _: Any) -> Any:
        url = "http://pd.test:2379"
        member = pdpb.Member(client_urls=[url])
        return pdpb.GetMembersResponse(header=self.header(), members=[member], leader=member)

    def scan_regions(self, request: Any) -> Any:
        (wanted,) = request.ranges
        regions = []
        for region_id, start, end in self.regions:
            low, high = encode_bytes(start) if start else b"", encode_bytes(end) if end else b""
            if (not high or high > wanted.start_key) and (not wanted.end_key or low < wanted.end_key):
                peers = [metapb.Peer(id=region_id + 1, store_id=1), metapb.Peer(id=region_id + 2, store_id=2)]
                epoch = metapb.RegionEpoch(conf_ver=1, version=1)
                region = metapb.Region(id=region_id, start_key=low, end_key=high, region_epoch=epoch, peers=peers)
                regions.append(pdpb.Region(region=region, leader=peers[0]))
        return pdpb.BatchScanRegionsResponse(header=self.header(), regions=regions)

    def store(self, request: Any) -> Any:
        return pdpb.GetStoreResponse(header=self.header(), store=metapb.Store(id=request.store_id, address=STORE))

    def gc_state(self, _: Any) -> Any:
        return pdpb.GetGCStateResponse(header=self.header(), gc_state=pdpb.GCState(txn_safe_point=self.safe_point))

    def _scanned(self, request: Any) -> Any:
        return self.scan(request)

    def _got(self, request: Any) -> Any:
        return self.get(request)

    def answers(self) -> dict[str, Answer]:
        """The methods by their paths."""
        return {
            method.path: self._answer(method, answer)
            for method, answer in (
                (rpc.GET_MEMBERS, self.members),
                (rpc.BATCH_SCAN_REGIONS, self.scan_regions),
                (rpc.GET_STORE, self.store),
                (rpc.GET_GC_STATE, self.gc_state),
                (rpc.KV_SCAN, self._scanned),
                (rpc.KV_GET, self._got),
            )
        }

    def _answer(self, method: rpc.Method[Any, Any], answer: Callable[[Any], Any]) -> Answer:
        async def once(raw: bytes, _: Any) -> bytes:
            request = method.request.FromString(raw)
            self.requests.append(request)
            return bytes(answer(request).SerializeToString())

        return once

    @asynccontextmanager
    async def pd(self) -> Any:
        """A client of this cluster."""
        async with serving(Scripted(self.answers())) as target:
            mapping = {"pd.test:2379": target, STORE: target}
            client = PdClient(ClusterAddress((target,), mapping), patience_s=5)
            try:
                yield client
            finally:
                await client.close()


def recorded_scans(name: str) -> Iterator[tuple[kvrpcpb.ScanRequest, kvrpcpb.ScanResponse]]:
    """The recorded pages of a range: requests with their answers."""
    request = b""
    with gzip.open(DATA / f"kvscan-{name}.jsonl.gz", "rt") as file:
        for line in map(json.loads, file):
            content = base64.b64decode(line["b64"])
            if line["dir"] == "return":
                yield kvrpcpb.ScanRequest.FromString(request), kvrpcpb.ScanResponse.FromString(content)
            request = content


def run(use: Callable[[], Awaitable[Any]]) -> Any:
    """What `use` returns, within 60 s."""
    return asyncio.run(asyncio.wait_for(use(), 60))
