"""A cluster that plays a recorded stream to any registration, as TiKV may: the same rows, cut to the range that is
registered, in other messages, with splits, merges, leaders that move, streams that end, and stores that refuse.

    recorded rows ─► log of PREWRITE, COMMIT, ROLLBACK, COMMITTED ─► live rows of each registration from its begin on
                     locks and versions up to a position          ─► its scan, mixed with live rows after the snapshot

What a client may not send is in `faults`, since it stops TiKV or the feed: an inverted range, a region twice.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import grpc

from tests.tikv.recorded import CLUSTER_ID, TS0, received
from tidegate.kv.match import Matcher
from tidegate.model.kv_change import KvChange, KvOp, LogType
from tidegate.mysql.encoding import encode_bytes
from tidegate.tikv.rpc import CHANNEL_OPTIONS, SERVER_OPTIONS
from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb
from tidegate.tikv.stubs import errorpb_pb2 as errorpb
from tidegate.tikv.stubs import metapb_pb2 as metapb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb

Row = cdcpb.Event.Row
PREWRITE, COMMIT, ROLLBACK, COMMITTED, INITIALIZED = (int(kind) for kind in LogType)
NOTHING = Row()
Regions = Callable[[int], tuple[tuple[int, int, bytes, bytes], ...]]


def change_of(row: Any) -> KvChange:
    """A row of the wire."""
    value = None if row.op_type == KvOp.DELETE or row.type not in {PREWRITE, COMMITTED} else row.value
    numbers = (row.txn_source, row.generation)
    kinds = (LogType(row.type), row.key, row.start_ts, row.commit_ts, KvOp(row.op_type))
    return KvChange(*kinds, value, row.old_value or None, *numbers)


@dataclass(frozen=True)
class Mark:
    """A registration that was ended with an error while a stream was recorded, and the regions that came in its place:
    id, version and bounds of each."""

    region: int
    error: Any
    regions: tuple[tuple[int, int, bytes, bytes], ...]


@dataclass(frozen=True)
class History:
    """Rows in the order of a log, the keys of regions that they have, what was committed, and what befell regions
    before which row."""

    log: list[Any]
    places: list[bytes]
    truth: frozenset[KvChange]
    marks: dict[int, list[Mark]] = field(default_factory=dict)


@cache
def history(name: str, messages: int = 1 << 30) -> History:
    """The log behind a recorded stream, or its first messages."""
    return history_of(("", message) for message in received(name)[:messages])


def history_of(messages: Iterable[tuple[str, bytes]], ts0: int = TS0, place: Regions = lambda _: ()) -> History:
    """The log behind the messages of some streams; `place` tells what came in the place of a region."""
    matchers: dict[tuple[str, int, int], Matcher] = {}
    log, open_locks, truth = [], set(), {}
    marks: dict[int, list[Mark]] = {}
    for stream, message in messages:
        for event in cdcpb.ChangeDataEvent.FromString(message).events:
            pair = (stream, event.request_id, event.region_id)
            if event.WhichOneof("event") == "error":
                matchers.pop(pair, None)
                marks.setdefault(len(log), []).append(Mark(event.region_id, event.error, place(event.region_id)))
                continue
            matcher = matchers.setdefault(pair, Matcher(ts0))
            for row in event.entries.entries:
                if row.type == 0:
                    continue
                mark = (row.start_ts, row.key)
                if matcher.initialized and row.type in {PREWRITE, ROLLBACK} and mark not in truth:
                    log.append(row)
                    (open_locks.add if row.type == PREWRITE else open_locks.discard)(mark)
                for done in matcher.apply(change_of(row)):
                    mark = (done.start_ts, done.key)
                    if mark in truth:
                        continue
                    truth[mark] = done
                    fields = {"start_ts": done.start_ts, "commit_ts": done.commit_ts, "op_type": int(done.op)}
                    fields |= {"key": done.key, "txn_source": done.txn_source}
                    if mark in open_locks:
                        log.append(Row(type=COMMIT, value=b"short" * (len(log) % 2), **fields))
                        open_locks.discard(mark)
                    else:
                        texts = {"value": done.value or b"", "old_value": done.old_value or b""}
                        log.append(Row(type=COMMITTED, **fields, **texts))
    return History(log, [encode_bytes(row.key) for row in log], frozenset(truth.values()), marks)


@dataclass
class Region:
    """A region as the cluster knows it."""

    id: int
    start: bytes
    end: bytes
    version: int
    leader: int

    def meta(self) -> metapb.Region:
        peers = [metapb.Peer(id=100 * self.id + store, store_id=store) for store in (1, 2)]
        epoch = metapb.RegionEpoch(conf_ver=1, version=self.version)
        return metapb.Region(id=self.id, start_key=self.start, end_key=self.end, region_epoch=epoch, peers=peers)


@dataclass(eq=False)
class Reader:
    """A registration: rows to send, in two queues until its scan is complete."""

    pair: tuple[int, int]
    start: bytes
    end: bytes
    checkpoint_ts: int
    scan: deque[Any] | None = None
    live: deque[Any] = field(default_factory=deque)
    initialized: bool = False

    def covers(self, place: bytes) -> bool:
        return self.start <= place and (not self.end or place < self.end)


@dataclass(eq=False)
class Stream:
    """A stream of a store: registrations by (request_id, region_id)."""

    store: int
    readers: dict[tuple[int, int], Reader] = field(default_factory=dict)
    messages: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    events: list[Any] = field(default_factory=list)


class World:
    """A cluster of two stores that plays a history."""

    def __init__(self, played: History, seed: int, *, trouble: float = 0.02, last_ts: int = 1 << 62) -> None:
        self.played, self.random, self.trouble = played, Random(seed), trouble
        self.position, self.faults, self.requests = 0, [], []
        self.regions = [Region(1, b"", b"", 1, 1)]
        self.layouts = [list(self.regions)]
        self.streams: list[Stream] = []
        self.locks: dict[bytes, Any] = {}
        self.versions: dict[bytes, list[Any]] = {}
        self.keys: list[tuple[bytes, bytes]] = []
        self.last_region = 1
        self.bounds = [last_ts]
        for row in reversed(played.log):
            self.bounds.append(min(self.bounds[-1], (row.commit_ts or 1 << 62) - 1))
        self.bounds.reverse()
        for _ in range(6):
            self.split()

    # --- regions ---

    def region_of(self, place: bytes) -> Region:
        return next(one for one in self.regions if one.start <= place and (not one.end or place < one.end))

    def end_readers(self, region: Region, make: Any) -> None:
        """End the registrations of a region with an error."""
        for stream in self.streams:
            for pair in [pair for pair in stream.readers if pair[1] == region.id]:
                del stream.readers[pair]
                self.fail(stream, pair, make())

    def fail(self, stream: Stream, pair: tuple[int, int], error: Any) -> None:
        stream.events.append(cdcpb.Event(request_id=pair[0], region_id=pair[1], error=error))

    def split(self) -> None:
        place = self.random.choice(self.played.places)
        region = self.region_of(place)
        if place == region.start:
            return
        self.last_region += 1
        version = region.version + 1
        left = Region(region.id, region.start, place, version, region.leader)
        right = Region(self.last_region, place, region.end, version, region.leader)
        self.change([region], [left, right])

    def merge(self) -> None:
        index = self.random.randrange(len(self.regions))
        if index + 1 < len(self.regions):
            left, right = self.regions[index : index + 2]
            version = max(left.version, right.version) + 1
            keep = self.random.choice((left, right))
            self.change([left, right], [Region(keep.id, left.start, right.end, version, left.leader)], merged=True)

    def change(self, old: list[Region], new: list[Region], *, merged: bool = False, mark: Mark | None = None) -> None:
        """Put regions into the place of others; `mark` has the error of one."""
        first = self.regions.index(old[0])
        self.regions[first : first + len(old)] = new
        self.layouts.append(list(self.regions))
        known = [] if merged else [one.meta() for one in new]
        for region in old:
            choices = [
                cdcpb.Error(epoch_not_match=errorpb.EpochNotMatch(current_regions=known)),
                cdcpb.Error(region_not_found=errorpb.RegionNotFound(region_id=region.id)),
            ]
            if mark is not None and region.id == mark.region:
                choices = [mark.error]
            self.end_readers(region, lambda choices=choices: self.random.choice(choices))

    def move(self) -> None:
        index = self.random.randrange(len(self.regions))
        old = self.regions[index]
        moved = Region(old.id, old.start, old.end, old.version, 3 - old.leader)
        self.regions[index] = moved
        self.layouts.append(list(self.regions))
        self.end_readers(old, lambda: cdcpb.Error(not_leader=self.not_leader(moved)))

    def not_leader(self, region: Region) -> errorpb.NotLeader:
        peer = metapb.Peer(id=100 * region.id + region.leader, store_id=region.leader)
        return errorpb.NotLeader(region_id=region.id, leader=self.random.choice((peer, None)))

    def refuse(self) -> None:
        region = self.random.choice(self.regions)
        make = self.random.choice(
            (
                lambda: cdcpb.Error(congested=cdcpb.Congested(region_id=region.id)),
                lambda: cdcpb.Error(server_is_busy=errorpb.ServerIsBusy(reason="scans", backoff_ms=5)),
                cdcpb.Error,
            )
        )
        self.end_readers(region, make)

    def cut(self) -> None:
        if self.streams:
            stream = self.streams.pop(self.random.randrange(len(self.streams)))
            stream.messages.put_nowait(None)

    # --- registrations ---

    def request(self, stream: Stream, request: Any) -> None:
        """Take a request."""
        self.requests.append(request)
        pair = (request.request_id, request.region_id)
        if request.WhichOneof("request") == "deregister":
            for known in [one for one in stream.readers if one == pair or (pair[1] == 0 and one[0] == pair[0])]:
                del stream.readers[known]
                self.fail(stream, known, cdcpb.Error(region_not_found=errorpb.RegionNotFound(region_id=known[1])))
            return
        if request.header.cluster_id != CLUSTER_ID or request.header.ticdc_version != "8.5.4":
            self.faults.append("header")
        if request.end_key and request.start_key >= request.end_key:
            self.faults.append("TiKV panics: inverted range")
        region = next((one for one in self.regions if one.id == pair[1]), None)
        if pair in stream.readers:
            self.faults.append(f"duplicate request {pair}")
        elif region is None:
            self.fail(stream, pair, cdcpb.Error(region_not_found=errorpb.RegionNotFound(region_id=pair[1])))
        elif region.leader != stream.store:
            self.fail(stream, pair, cdcpb.Error(not_leader=self.not_leader(region)))
        elif request.region_epoch.version != region.version:
            known = errorpb.EpochNotMatch(current_regions=[region.meta()])
            self.fail(stream, pair, cdcpb.Error(epoch_not_match=known))
        else:
            low, high = max(request.start_key, region.start), request.end_key or region.end
            high = min(high, region.end) if region.end else high
            stream.readers[pair] = Reader(pair, low, high, request.checkpoint_ts)

    def snapshot(self, reader: Reader) -> None:
        """Scan what a registration has to begin with; the live rows before are sent first."""
        rows: list[Any] = []
        first = bisect_left(self.keys, reader.start, key=lambda item: item[0])
        stop = bisect_left(self.keys, reader.end, key=lambda item: item[0]) if reader.end else len(self.keys)
        for _place, key in self.keys[first:stop]:
            rows += [self.locks[key]] if key in self.locks else []
            rows += [one for one in reversed(self.versions.get(key, ())) if one.commit_ts > reader.checkpoint_ts]
        reader.scan = deque([*reader.live, *rows, Row(type=INITIALIZED)])
        reader.live.clear()

    # --- the play ---

    def advance(self, count: int) -> None:
        """Play rows of the log."""
        stop = min(self.position + count, len(self.played.log))
        readers = [reader for stream in self.streams for reader in stream.readers.values()]
        for index in range(self.position, stop):
            row, place = self.played.log[index], self.played.places[index]
            if row.key not in self.locks and row.key not in self.versions:
                position = bisect_left(self.keys, (place, row.key))
                if self.keys[position : position + 1] != [(place, row.key)]:
                    self.keys.insert(position, (place, row.key))
            if row.type == PREWRITE:
                if row.value or row.key not in self.locks:
                    self.locks[row.key] = row
            elif row.key in self.locks and self.locks[row.key].start_ts == row.start_ts:
                lock = self.locks.pop(row.key)
                if row.type == COMMIT:
                    value = b"" if row.op_type == KvOp.DELETE else lock.value
                    self.keep(row, value, lock.old_value)
            if row.type == COMMITTED:
                self.keep(row, row.value, row.old_value)
            for reader in readers:
                if reader.covers(place):
                    reader.live.append(row)
        self.position = stop

    def keep(self, row: Any, value: bytes, old_value: bytes) -> None:
        kept = Row()
        kept.CopyFrom(row)
        kept.type, kept.value, kept.old_value = COMMITTED, value, old_value
        versions = self.versions.setdefault(row.key, [])
        versions.append(kept)
        versions.sort(key=lambda one: one.commit_ts)

    def flush(self, stream: Stream, *, whole: bool = False) -> None:
        """Send queued rows of a stream, and the resolved ts of what has none left."""
        events = stream.events
        for reader in stream.readers.values():
            if reader.scan is None:
                self.snapshot(reader)
            rows = []
            for _ in range(1 << 30 if whole else self.random.choice((0, 5, 40, 400))):
                queues = [queue for queue in (reader.scan, reader.live) if queue]
                if not queues:
                    break
                rows.append(self.random.choice(queues).popleft())
                reader.initialized |= rows[-1].type == INITIALIZED
            while rows:
                size = self.random.choice((1, 7, 60))
                part = cdcpb.Event.Entries(entries=[*rows[:size], *[NOTHING] * (self.random.random() < 0.1)])
                events.append(cdcpb.Event(request_id=reader.pair[0], region_id=reader.pair[1], entries=part))
                rows = rows[size:]
        while events:
            size = self.random.choice((1, 3, 64))
            stream.messages.put_nowait(cdcpb.ChangeDataEvent(events=events[:size]))
            del events[:size]
        for request_id in {pair[0] for pair in stream.readers}:
            ready = [one for one in stream.readers.values() if one.pair[0] == request_id and one.initialized]
            regions = [one.pair[1] for one in ready if not one.scan and not one.live]
            late = [pair[1] for pair in stream.readers if pair[0] == request_id and pair[1] not in regions][:1]
            ts = self.resolved_ts()
            if regions:
                resolved = cdcpb.ResolvedTs(request_id=request_id, regions=regions, ts=ts)
                stream.messages.put_nowait(cdcpb.ChangeDataEvent(resolved_ts=resolved))
            if late:
                old = cdcpb.ResolvedTs(request_id=request_id, regions=late, ts=self.random.choice((0, TS0)))
                stream.messages.put_nowait(cdcpb.ChangeDataEvent(resolved_ts=old))

    def resolved_ts(self) -> int:
        """A resolved timestamp; they may fall back."""
        return self.bounds[self.position] - self.random.choice((0, 0, 1000))

    def step(self) -> None:
        """Let something happen."""
        self.advance(self.random.choice((0, 20, 200, 1000)))
        if self.position < len(self.played.log) and self.random.random() < self.trouble:
            self.random.choice((self.split, self.merge, self.move, self.refuse, self.cut))()
        for stream in self.streams:
            self.flush(stream)


class FakeCluster:
    """PD and two stores of a world, over gRPC; what PD knows of regions is late at times."""

    def __init__(self, world: World) -> None:
        self.world, self.cluster_id = world, CLUSTER_ID
        self.addresses: dict[int, str] = {}
        self.open: dict[str, grpc.aio.Channel] = {}

    @property
    def channels(self) -> "FakeCluster":
        return self

    def to(self, advertised: str) -> grpc.aio.Channel:
        if advertised not in self.open:
            self.open[advertised] = grpc.aio.insecure_channel(advertised, CHANNEL_OPTIONS)
        return self.open[advertised]

    async def regions(self, start: bytes, end: bytes) -> list[pdpb.Region]:
        await asyncio.sleep(0)
        layout = self.world.layouts[-1 if self.world.random.random() < 0.7 else -2 :][0]
        inside = [one for one in layout if (not end or one.start < end) and (not one.end or one.end > start)]
        peers = [metapb.Peer(id=100 * one.id + one.leader, store_id=one.leader) for one in inside]
        return [pdpb.Region(region=one.meta(), leader=peer) for one, peer in zip(inside, peers, strict=True)]

    async def store(self, store_id: int) -> metapb.Store:
        return metapb.Store(id=store_id, address=self.addresses[store_id])

    async def tso(self) -> int:
        return self.world.bounds[-1]  # the recording goes by faster than time does


@asynccontextmanager
async def cluster_of(world: World) -> AsyncIterator[FakeCluster]:
    """Serve a world."""
    cluster = FakeCluster(world)
    async with stores_of(world, cluster.addresses):
        try:
            yield cluster
        finally:
            for channel in cluster.open.values():
                await channel.close()


@asynccontextmanager
async def stores_of(world: World, addresses: dict[int, str], *more: grpc.GenericRpcHandler) -> AsyncIterator[None]:
    """Serve the streams of two stores, and what `more` answers; their HOST:PORT are in `addresses`."""
    servers = []
    for store in (1, 2):

        async def feed(requests: Any, context: Any, store: int = store) -> AsyncIterator[Any]:
            if ("features", "stream-multiplexing") not in context.invocation_metadata():
                world.faults.append("features")
            stream = Stream(store)
            world.streams.append(stream)

            async def take() -> None:
                async for request in requests:
                    world.request(stream, request)

            taker = asyncio.create_task(take())
            try:
                while (message := await stream.messages.get()) is not None:
                    yield message
            finally:
                taker.cancel()
                if stream in world.streams:
                    world.streams.remove(stream)

        handler = grpc.stream_stream_rpc_method_handler(
            feed,
            request_deserializer=cdcpb.ChangeDataRequest.FromString,
            response_serializer=cdcpb.ChangeDataEvent.SerializeToString,
        )
        server = grpc.aio.server(options=SERVER_OPTIONS)
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("cdcpb.ChangeData", {"EventFeedV2": handler}), *more]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        addresses[store] = f"127.0.0.1:{port}"
        await server.start()
        servers.append(server)
    try:
        yield
    finally:
        for server in servers:
            await server.stop(0)
