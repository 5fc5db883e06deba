"""EventFeedV2 of one store of TiKV over the change log of the embedded store.

    stream   requests ─► registrations by (request_id, region_id)          `serve`
             every turn: events of all of them in one message, then resolved ts by request_id

As TiKV does it:

- Regions of one request_id are sorted by their resolved ts into groups of 8, 32, 128, ...; a message has the least ts
  of its group, so the resolved ts of a region may fall.
- A duplicate request is refused, and the first one continues.
- A checkpoint below the safe point is accepted, and collected versions are missing.
- Without ticdc_version in the first request no resolved ts is sent.
- The stream ends when the client closes its side.
- Rows of one event have at most 32 KiB, and a message has at most 64 events.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import grpc

from tidegate.model.kv_change import FaultKind, KvChange, RegionFault, ResolvedSpan
from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb
from tidegate.tikv.stubs import errorpb_pb2 as errorpb
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate_upstream.tidb.change_log import ChangeLog, Registration
from tidegate_upstream.tikv.placement import leader_of, meta_of, raw

EVENT_BYTES: Final = 32 << 10
MESSAGE_EVENTS: Final = 64
GROUP: Final = 8
FEATURE: Final = "stream-multiplexing"
Key: TypeAlias = tuple[int, int]
"""request_id and region_id."""


@dataclass(slots=True)
class _Entry:
    reader: Registration
    old_values: bool
    ts: int = 0


@dataclass(slots=True)
class FeedService:
    """The feed of store `number` of `stores`. Tests set `busy`, the number of requests to refuse as such, `silent`,
    while which nothing is sent, and raise `cuts`, which ends all streams."""

    log: ChangeLog
    number: int
    stores: int
    cluster_id: int
    turn_s: float
    busy: int = 0
    silent: bool = False
    cuts: int = 0

    async def serve(
        self, requests: AsyncIterator[cdcpb.ChangeDataRequest], call: Any
    ) -> AsyncIterator[cdcpb.ChangeDataEvent]:
        """Serve one stream."""
        features = dict(call.invocation_metadata() or ()).get("features", FEATURE)
        if features != FEATURE:
            await call.abort(grpc.StatusCode.UNIMPLEMENTED, f"feature {features!r} is not supported")
        stream = _Stream(self)
        reading = asyncio.ensure_future(self._read(requests, stream))
        cuts = self.cuts
        try:
            while not reading.done() and cuts == self.cuts:
                await asyncio.wait([reading], timeout=self.turn_s)
                for message in stream.messages() if not self.silent else ():
                    yield message
            if not reading.done():
                await call.abort(grpc.StatusCode.UNAVAILABLE, "the stream is cut")
            if fault := reading.exception():
                await call.abort(grpc.StatusCode.INVALID_ARGUMENT, str(fault))
        finally:
            reading.cancel()
            for entry in stream.entries.values():
                self.log.deregister(entry.reader)

    @staticmethod
    async def _read(requests: AsyncIterator[cdcpb.ChangeDataRequest], stream: "_Stream") -> None:
        async for request in requests:
            stream.take(request)


class _Stream:
    """Registrations of one stream, and the errors that wait to be sent."""

    def __init__(self, service: FeedService) -> None:
        self._service, self._log = service, service.log
        self.entries: dict[Key, _Entry] = {}
        self._errors: list[cdcpb.Event] = []
        self._resolves: bool | None = None

    def take(self, request: cdcpb.ChangeDataRequest) -> None:
        """Register or deregister; a refusal is an event. A range from behind its end would kill a TiKV: it is an
        error of the stream."""
        key = (request.request_id, request.region_id)
        if self._resolves is None:
            self._resolves = bool(request.header.ticdc_version)
        if request.HasField("deregister"):
            for other in [each for each in self.entries if each == key or (each[0], 0) == key]:
                self._log.deregister(self.entries.pop(other).reader)
                self._errors.append(_failed(other, self._error(FaultKind.REGION_NOT_FOUND, other[1], b"", b"")))
            return
        if error := self._refusal(request, key):
            self._errors.append(_failed(key, error))
            return
        region = self._log.regions.find(request.region_id)
        assert region is not None
        start, end = raw(request.start_key), raw(request.end_key)
        if end and start > end:
            raise ValueError(f"range from {start.hex()} to {end.hex()}")
        span = region.overlap(start, end) or (region.start or b"\0",) * 2
        expected = replace(region, version=request.region_epoch.version)
        checkpoint_ts = max(request.checkpoint_ts, self._log.store.safe_point)
        reader = self._log.register(expected, *span, checkpoint_ts)
        self.entries[key] = _Entry(reader, request.extra_op == kvrpcpb.ReadOldValue)

    def _refusal(self, request: cdcpb.ChangeDataRequest, key: Key) -> cdcpb.Error | None:
        service = self._service
        other = request.header.cluster_id
        if other and other != service.cluster_id:
            mismatch = cdcpb.ClusterIDMismatch(current=service.cluster_id, request=other)
            return cdcpb.Error(cluster_id_mismatch=mismatch)
        if key in self.entries:
            return cdcpb.Error(duplicate_request=cdcpb.DuplicateRequest(region_id=key[1]))
        if service.busy > 0:
            service.busy -= 1
            busy = errorpb.ServerIsBusy(reason="too many pending incremental scans", backoff_ms=1)
            return cdcpb.Error(server_is_busy=busy)
        region = self._log.regions.find(key[1])
        if region is None:
            return self._error(FaultKind.REGION_NOT_FOUND, key[1], b"", b"")
        if leader_of(region, service.stores).store_id != service.number:
            return self._error(FaultKind.NOT_LEADER, key[1], b"", b"")
        return None

    def messages(self) -> Iterator[cdcpb.ChangeDataEvent]:
        """Return what there is to send: events of all registrations, then resolved timestamps."""
        events, self._errors = self._errors, []
        resolved: dict[int, list[tuple[int, int]]] = {}
        for key, entry in list(self.entries.items()):
            rows: list[KvChange] = []
            for event in self._log.poll(entry.reader):
                match event:
                    case KvChange():
                        rows.append(event)
                    case ResolvedSpan(ts=ts):
                        entry.ts = ts
                    case RegionFault(kind, region_id):
                        del self.entries[key]
                        error = self._error(kind, region_id, entry.reader.start, entry.reader.end)
                        events += [*_rows(key, rows, entry), _failed(key, error)]
                        rows = []
            events += _rows(key, rows, entry)
            if entry.ts and key in self.entries:
                resolved.setdefault(key[0], []).append((entry.ts, key[1]))
        for first in range(0, len(events), MESSAGE_EVENTS):
            yield cdcpb.ChangeDataEvent(events=events[first : first + MESSAGE_EVENTS])
        for request_id, pairs in resolved.items() if self._resolves else ():
            for group in _groups(sorted(pairs)):
                ts, regions = group[0][0], [region_id for _, region_id in group]
                yield cdcpb.ChangeDataEvent(resolved_ts=cdcpb.ResolvedTs(regions=regions, ts=ts, request_id=request_id))

    def _error(self, kind: FaultKind, region_id: int, start: bytes, end: bytes) -> cdcpb.Error:
        stores = self._service.stores
        region = self._log.regions.find(region_id)
        match kind:
            case FaultKind.NOT_LEADER if region:
                leader = leader_of(region, stores)
                return cdcpb.Error(not_leader=errorpb.NotLeader(region_id=region_id, leader=leader))
            case FaultKind.EPOCH_NOT_MATCH:
                current = [meta_of(each, stores) for each in self._log.regions if each.overlap(start, end)]
                return cdcpb.Error(epoch_not_match=errorpb.EpochNotMatch(current_regions=current))
            case FaultKind.CONGESTED:
                return cdcpb.Error(congested=cdcpb.Congested(region_id=region_id))
        return cdcpb.Error(region_not_found=errorpb.RegionNotFound(region_id=region_id))


def _failed(key: Key, error: cdcpb.Error) -> cdcpb.Event:
    return cdcpb.Event(request_id=key[0], region_id=key[1], error=error)


def _groups(pairs: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    size = GROUP
    while pairs:
        yield pairs[:size]
        pairs, size = pairs[size:], 4 * size


def _rows(key: Key, changes: Iterable[KvChange], entry: _Entry) -> Iterator[cdcpb.Event]:
    """Return rows as events of limited size; a larger row is an event of its own."""
    rows: list[cdcpb.Event.Row] = []
    size = 0
    for change in changes:
        row = cdcpb.Event.Row(
            start_ts=change.start_ts,
            commit_ts=change.commit_ts,
            type=int(change.type),  # type: ignore[arg-type]
            op_type=int(change.op),  # type: ignore[arg-type]
            key=change.key,
            value=change.value or b"",
            old_value=(entry.old_values and change.old_value) or b"",
            txn_source=change.txn_source,
        )
        if rows and size + row.ByteSize() > EVENT_BYTES:
            yield _event(key, rows)
            rows, size = [], 0
        rows.append(row)
        size += row.ByteSize()
    if rows:
        yield _event(key, rows)


def _event(key: Key, rows: list[cdcpb.Event.Row]) -> cdcpb.Event:
    return cdcpb.Event(request_id=key[0], region_id=key[1], entries=cdcpb.Event.Entries(entries=rows))
