"""A plain reader of EventFeedV2: one stream to each store, rows joined by the rules of kv/match.py."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import grpc

from tidegate.kv.match import Matcher
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.mysql.encoding import encode_bytes
from tidegate.tikv import rpc
from tidegate.tikv.pd import PdClient
from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb
from tidegate.tikv.versions import TICDC_VERSION

FEATURES = (("features", "stream-multiplexing"),)


def bound(key: bytes) -> bytes:
    """A bound as regions have it."""
    return encode_bytes(key) if key else b""


def request_of(client: PdClient, region: pdpb.Region, request_id: int = 1, **fields: Any) -> cdcpb.ChangeDataRequest:
    """A registration for a whole region, but for `fields`."""
    meta = region.region
    whole = {
        "header": cdcpb.Header(cluster_id=client.cluster_id, ticdc_version=TICDC_VERSION),
        "region_id": meta.id,
        "region_epoch": meta.region_epoch,
        "start_key": meta.start_key,
        "end_key": meta.end_key,
        "request_id": request_id,
        "extra_op": kvrpcpb.ReadOldValue,
    }
    return cdcpb.ChangeDataRequest(**{**whole, **fields})


@dataclass
class Part:
    """A range with one registration, or on its way to one."""

    start: bytes
    end: bytes
    ts: int
    matcher: Matcher
    registered: bool = False
    stream: Any = None


@dataclass
class PlainFeed:
    """Rows of all keys above `ts`, by (commit_ts, start_ts, key), and the resolved ts of each part."""

    client: PdClient
    ts: int = 0
    rows: dict[tuple[int, int, bytes], KvChange] = field(default_factory=dict)
    parts: dict[int, Part] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    falls: int = 0

    @property
    def resolved_ts(self) -> int:
        """Complete up to here."""
        return min((part.ts for part in self.parts.values()), default=self.ts)

    async def run(self) -> None:
        """Follow the changes until cancelled."""
        self._streams: dict[int, Any] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._ids = iter(range(1, 1 << 30))
        self._lost: asyncio.Queue[Part] = asyncio.Queue()
        self._lost.put_nowait(Part(b"", b"", self.ts, Matcher(self.ts)))
        self.parts[0] = Part(b"", b"", self.ts, Matcher(self.ts))
        try:
            while True:
                part = await self._lost.get()
                for region in await self.client.regions(part.start, part.end):
                    await self._register(part, region)
                self.parts.pop(0, None)
        finally:
            for task in self._tasks:
                task.cancel()

    async def _register(self, part: Part, region: pdpb.Region) -> None:
        meta, request_id = region.region, next(self._ids)
        start = max(part.start, meta.start_key)
        end = min(filter(None, (part.end, meta.end_key)), default=b"")
        self.parts[request_id] = Part(start, end, part.ts, Matcher(part.ts))
        self.parts = {number: each for number, each in self.parts.items() if each is not part}
        store_id = region.leader.store_id
        if store_id not in self._streams:
            store = await self.client.store(store_id)
            self._streams[store_id] = rpc.EVENT_FEED_V2.stream(self.client.channels.to(store.address))(
                metadata=FEATURES
            )
            self._tasks.append(asyncio.create_task(self._read(store_id, self._streams[store_id])))
        self.parts[request_id].registered, self.parts[request_id].stream = True, self._streams[store_id]
        request = request_of(self.client, region, request_id, start_key=start, end_key=end, checkpoint_ts=part.ts)
        try:
            await self._streams[store_id].write(request)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            self._lose(request_id)

    def _lose(self, request_id: int) -> None:
        part = self.parts[request_id]
        if part.registered:
            part.registered = False
            self._lost.put_nowait(part)

    async def _read(self, store_id: int, stream: Any) -> None:
        try:
            async for message in stream:
                for event in message.events:
                    self._take(event)
                if message.HasField("resolved_ts"):
                    part = self.parts.get(message.resolved_ts.request_id)
                    self.falls += bool(part and message.resolved_ts.ts < part.ts)
                    if part and part.matcher.initialized:
                        part.ts = max(part.ts, message.resolved_ts.ts)
        except grpc.aio.AioRpcError as fault:
            self.faults.append(fault.code().name)
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():
                raise
            self.faults.append("CANCELLED")
        if self._streams.get(store_id) is stream:
            del self._streams[store_id]
        await asyncio.sleep(0.01)
        for request_id in [number for number, part in self.parts.items() if part.stream is stream]:
            self._lose(request_id)

    def _take(self, event: cdcpb.Event) -> None:
        part = self.parts.get(event.request_id)
        if part is None or not part.registered:
            return
        if event.WhichOneof("event") == "error":
            self.faults.append(next(field.name for field, _ in event.error.ListFields()))
            self._lose(event.request_id)
            return
        for row in event.entries.entries:
            change = KvChange(
                LogType(row.type),
                row.key,
                row.start_ts,
                row.commit_ts,
                KvOp(row.op_type),
                row.value if row.op_type == KvOp.PUT else None,
                row.old_value or None,
                row.txn_source,
            )
            for done in part.matcher.apply(change):
                assert done.commit_ts > part.ts, (done, part.ts)
                self.rows[done.commit_ts, done.start_ts, done.key] = done

    def contents(self, ts: int) -> dict[bytes, bytes]:
        """What the rows come to at a ts."""
        found: dict[bytes, bytes] = {}
        for (commit_ts, _, key), row in sorted(self.rows.items()):
            if commit_ts <= ts:
                assert row.old_value == found.get(key), (row, found.get(key))
                found.pop(key, None)
                if row.value is not None:
                    found[key] = row.value
        return found
