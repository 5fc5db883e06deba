"""The client of EventFeedV2: streams to stores, PD for regions, and locks that hold the resolved ts back.

    control   ranges that are due ─► PD ─► Registrations ─► a stream per (store, worker) that has requests
    stream    requests ─► TiKV ─► messages, several at once ─► Registrations ─► events()
    looks     ranges that do not move ─► locks.py ─► TiKV; who is alive, or what else holds them ─► `slow`

The rules are in registrations.py and locks.py.  Everything runs in one event loop.  While `events` has more than
FULL_BYTES to deliver, no further first scan begins.  A stream is always read, unless that exceeds BACKLOG_BYTES; TiKV
then ends regions with `congested`, and they begin anew.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol, Self

import grpc
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.model.errors import ClusterUnavailable, PdRefused, VersionIncompatible
from tidegate.model.tso import compose, physical_ms
from tidegate.mysql.encoding import decode_bytes, encode_bytes
from tidegate.tikv import rpc
from tidegate.tikv.locks import Call, LiveTransaction, answered, resolve
from tidegate.tikv.regions import INFINITE, Range
from tidegate.tikv.registrations import WINDOW, Output, Registrations, Span, SpanRows, StreamKey, reason_of
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate.tikv.stubs import metapb_pb2 as metapb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb

LOG: Final = logging.getLogger(__name__)

FULL_BYTES, BACKLOG_BYTES = 64 << 20, 256 << 20
JOIN_BYTES: Final = 1 << 20
JOIN_S: Final = 0.005
"""How many bytes of messages are matched at once, and how long the first of them waits for others."""
STUCK_S: Final = 4.0
"""How long a resolved ts may stand still, and lag, before locks are looked for."""
LOOK_S, LOOK_AGAIN_S = 2.0, 10.0
SLOW_S: Final = 30.0
"""How long a resolved ts may stand still, and lag, before its range is in `slow`."""
_CONTROL_S: Final = 0.05
_CALL_S: Final = 20.0
_CALL_ATTEMPTS: Final = 5


class StoreChannels(Protocol):
    """Channels by the address that a store advertises."""

    def to(self, advertised: str) -> grpc.aio.Channel:
        """Return the channel to a store."""
        ...


class Cluster(Protocol):
    """The answers of PD that a feed asks for; PdClient gives them."""

    cluster_id: int

    @property
    def channels(self) -> StoreChannels: ...

    async def regions(self, start: bytes, end: bytes) -> list[pdpb.Region]:
        """Return the regions that cover [start, end) of region keys, with their leaders."""
        ...

    async def store(self, store_id: int) -> metapb.Store:
        """Return a store."""
        ...

    async def tso(self) -> int:
        """Return a new timestamp."""
        ...


class _Signal:
    """What one task waits for and others give; a signal that nobody awaits is kept."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def give(self) -> None:
        """Wake the task, or keep the signal."""
        if not self._future.done():
            self._future.set_result(None)

    async def next(self) -> None:
        """Wait for the next signal."""
        await self._future
        self._future = asyncio.get_running_loop().create_future()


class _Inbox:
    """Messages of a stream that are to be matched."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.size = 0
        self.filled = _Signal()


@dataclass(slots=True)
class _Pause:
    """Since when a range is complete up to `ts` and no further, when its locks were looked for, and who is alive."""

    ts: int
    since_s: float
    looked_s: float = 0.0
    alive: LiveTransaction | None = None


@dataclass(frozen=True, slots=True)
class SlowRange:
    """A range whose resolved ts has before still for `stands_s`: its span, its first key, and what holds it."""

    span: int
    key: bytes
    ts: int
    stands_s: float
    reason: str

    def __str__(self) -> str:
        return f"{self.reason}, for {self.stands_s:.0f} s at ts {self.ts}"


def _lag_s(ts: int, now_ts: int) -> float:
    return (physical_ms(now_ts) - physical_ms(ts)) / 1000


def _within(rows: Any, start: bytes, end: bytes) -> Any:
    """Return the rows of keys in [start, end): a TiKV may send those of whole regions."""
    keys = rows.column("key")
    bounds = pc.min_max(keys).as_py()
    if start <= bounds["min"] and (not end or bounds["max"] < end):
        return rows
    inside = pc.greater_equal(keys, pa.scalar(start, pa.binary()))
    return rows.filter(pc.and_(inside, pc.less(keys, pa.scalar(end, pa.binary()))) if end else inside)


class EventFeed:
    """The changes of spans of keys, each from its checkpoint on. `slow` has the ranges that hold them, the furthest
    behind first. Large transactions that are not committed lie in files of `spill`, the machine's own by default.

    >>> async with EventFeed(pd) as feed:                                        # doctest: +SKIP
    ...     feed.add(1, *table_span(45), checkpoint_ts)
    ...     async for event in feed.events(): ..."""

    def __init__(
        self, cluster: Cluster, *, random: Random | None = None, window: int = WINDOW, spill: Path | None = None
    ) -> None:
        self.cluster = cluster
        self.registrations = Registrations(cluster.cluster_id, random or Random(), window=window, spill=spill)
        self.slow: list[SlowRange] = []
        self._bounds: dict[int, tuple[bytes, bytes]] = {}
        self._tasks: dict[Any, asyncio.Task[None]] = {}
        self._outputs: deque[Output | BaseException] = deque()
        self._filled = _Signal()
        self._backlog = 0
        self._pauses: dict[tuple[int, bytes], _Pause] = {}

    async def __aenter__(self) -> Self:
        self._start("control", self._control())
        self._start("looks", self._look())
        return self

    async def __aexit__(self, *_error: object) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def stored_bytes(self) -> int:
        """Bytes of rows that wait for their COMMIT; from any thread."""
        return sum(stream.matcher.stored for stream in list(self.registrations.streams.values()))

    @property
    def scans(self) -> int:
        """How many first scans of regions are complete."""
        return self.registrations.scans

    def add(self, span: int, start: bytes, end: bytes, checkpoint_ts: int, *, filter_loop: bool = False) -> None:
        """Read [start, end) of raw keys from `checkpoint_ts` on, as span number `span`; an empty `end` is no bound."""
        bounds = (encode_bytes(start), encode_bytes(end) if end else b"")
        self._bounds[span] = start, end
        self.registrations.add(span, *bounds, checkpoint_ts, filter_loop=filter_loop)

    def remove(self, span: int) -> None:
        """Read a span no longer; rows of it that were matched before may still be delivered."""
        self.registrations.remove(span)
        del self._bounds[span]

    async def events(self) -> AsyncIterator[Output]:
        """Yield rows and resolved ts of all spans: rows before the resolved ts that includes them, in any order, some
        of them again after a new registration. Raises what ends the feed."""
        while True:
            if not self._outputs:
                await self._filled.next()
                continue
            output = self._outputs.popleft()
            if isinstance(output, BaseException):
                raise output
            if isinstance(output, SpanRows):
                self._backlog -= output.rows.nbytes
            yield output

    def _put(self, output: Output | BaseException) -> None:
        self._outputs.append(output)
        self._filled.give()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _start(self, name: Any, work: Any) -> None:
        def done(task: asyncio.Task[None]) -> None:
            del self._tasks[name]
            if not task.cancelled() and (error := task.exception()):
                self._put(error)

        self._tasks[name] = asyncio.create_task(work)
        self._tasks[name].add_done_callback(done)

    async def _control(self) -> None:
        """Ask PD for the regions of ranges that are due, and open streams."""
        while True:
            now = self._now()
            self.registrations.has_room = self._backlog <= FULL_BYTES
            self.registrations.is_read = self._backlog <= BACKLOG_BYTES
            self.registrations.fill()
            for ask in list(self.registrations.due(now)):
                self._start(object(), self._ask_pd(*ask))
            for key in self.registrations.silent(now):
                if key in self._tasks:
                    self._tasks[key].cancel()
            for key, stream in self.registrations.streams.items():
                if key not in self._tasks and stream.requests:
                    self._start(key, self._stream(key))
            await asyncio.sleep(_CONTROL_S)

    async def _ask_pd(self, span: int, start: bytes, end: bytes) -> None:
        regions = await self.cluster.regions(start, end)
        self.registrations.register(span, regions, self._now())

    async def _stream(self, key: StreamKey) -> None:
        """Keep a stream open until it ends; what it read is then placed anew."""
        reason, call = "", None
        inbox, tasks = _Inbox(), list[asyncio.Task[None]]()
        try:
            store = await self.cluster.store(key[0])
            reason = f"store {key[0]} has left the cluster"
            if not store.address or store.state == metapb.Tombstone:
                return
            reason = "cancelled by the client, because it was silent"
            channel = self.cluster.channels.to(store.address)
            method: Any = channel.stream_stream(
                rpc.EVENT_FEED_V2.path, request_serializer=rpc.EVENT_FEED_V2.request.SerializeToString
            )
            call = method(metadata=(("features", "stream-multiplexing"),))
            works = (self._read(inbox, call), self._send(key, call), self._match(key, inbox))
            tasks = [asyncio.create_task(work) for work in works]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            self._deliver(key, inbox)
            reason = f"store {key[0]} ended the stream: {await call.code()}: {await call.details()}"
            if await call.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise VersionIncompatible(f"{reason}; TiKV 7.5 or later is needed")
        except PdRefused as fault:
            reason = str(fault)
        except grpc.aio.AioRpcError as fault:
            reason = f"store {key[0]}: {fault.code().name}: {fault.details()}"
            if fault.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise VersionIncompatible(f"{reason}; TiKV 7.5 or later is needed") from fault
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if call is not None:
                call.cancel()
            if key in self.registrations.streams:
                LOG.info("a stream ended: %s", reason)
                self.registrations.ended(key, reason, self._now())

    async def _send(self, key: StreamKey, call: Any) -> None:
        requests = self.registrations.streams[key].requests
        while True:
            while requests:
                try:
                    await call.write(requests.popleft())
                except asyncio.InvalidStateError:  # the stream has ended; its reader says how
                    return
            await asyncio.sleep(_CONTROL_S / 5)

    async def _read(self, inbox: "_Inbox", call: Any) -> None:
        while (message := await call.read()) is not grpc.aio.EOF:
            inbox.messages.append(message)
            inbox.size += len(message)
            inbox.filled.give()
            while self._backlog + inbox.size > BACKLOG_BYTES:  # noqa: ASYNC110  what lowers it runs in the same loop
                await asyncio.sleep(_CONTROL_S)

    async def _match(self, key: StreamKey, inbox: "_Inbox") -> None:
        while True:
            await inbox.filled.next()
            if inbox.size < JOIN_BYTES:
                await asyncio.sleep(JOIN_S)
            self._deliver(key, inbox)

    def _deliver(self, key: StreamKey, inbox: "_Inbox") -> None:
        messages, inbox.messages, inbox.size = inbox.messages, [], 0
        for output in self.registrations.receive(key, messages, self._now()):
            if not isinstance(output, SpanRows):
                self._put(output)
            elif len(rows := _within(output.rows, *self._bounds[output.span])):
                self._backlog += rows.nbytes
                self._put(SpanRows(output.span, rows))

    async def _look(self) -> None:
        """Look for ranges whose resolved ts stands still and lags, and resolve their locks."""
        while True:
            now_ts, now_s = await self.cluster.tso(), self._now()
            self.registrations.clock = (physical_ms(now_ts), now_s)
            self.registrations.renew(now_s)
            due = list(self._stand(now_ts, now_s))
            for span, part, pause in due:
                await self._resolve(span, part, pause, now_ts)
            await asyncio.sleep(LOOK_S)

    def _stand(self, now_ts: int, now_s: float) -> Iterator[tuple[Span, Range, _Pause]]:
        """Note the ranges that stand still; yield those whose locks are to be looked for."""
        before, self._pauses = self._pauses, {}
        slow = list[SlowRange]()
        for span in self.registrations.spans.values():
            if _lag_s(span.ranges.resolved_ts, now_ts) < STUCK_S:
                continue
            for part in span.ranges.ranges:
                which = span.number, part.start
                last = before.get(which)
                pause = self._pauses[which] = last if last and last.ts == part.ts else _Pause(part.ts, now_s)
                stands_s = min(now_s - pause.since_s, _lag_s(part.ts, now_ts))
                if stands_s >= SLOW_S:
                    key, reason = decode_bytes(part.start)[0], reason_of(part, pause.alive)
                    slow.append(SlowRange(span.number, key, part.ts, stands_s, reason))
                is_live = part.holder is not None and part.holder.live
                if is_live and stands_s >= STUCK_S and now_s - pause.looked_s >= LOOK_AGAIN_S:
                    pause.looked_s = now_s
                    yield span, part, pause
        self.slow = sorted(slow, key=lambda each: each.ts)

    async def _resolve(self, span: Span, part: Range, pause: _Pause, now: int) -> None:
        """Resolve the locks of a range, up to STUCK_S above its resolved ts."""
        start, end = decode_bytes(part.start)[0], b"" if part.end == INFINITE else decode_bytes(part.end)[0]
        max_ts = min(now, part.ts + compose(int(STUCK_S * 1000)))
        try:
            alive = (await answered(resolve(start, end, max_ts, now), self._ask)).alive
            pause.alive = alive[0] if alive else None
        except (ClusterUnavailable, PdRefused) as error:
            LOG.warning("locks of span %s cannot be resolved: %s", span.number, error)

    async def _ask(self, call: Call) -> Any:
        """Return the answer of the leader of a key's region. Raises ClusterUnavailable."""
        key = encode_bytes(call.key)
        for attempt in range(_CALL_ATTEMPTS):
            (region,) = await self.cluster.regions(key, key + b"\0")
            try:
                return await ask_leader(self.cluster, region, call.method, call.request)
            except ClusterUnavailable:
                if attempt == _CALL_ATTEMPTS - 1:
                    raise
            await asyncio.sleep(LOOK_S / 4)
        raise AssertionError


async def ask_leader(
    cluster: Cluster, region: pdpb.Region, method: rpc.Method[Any, Any], request: Any, timeout_s: float = _CALL_S
) -> Any:
    """Return the answer of a region's leader. Raises ClusterUnavailable if there is none, or an error of the region."""
    own, store = region.region, await cluster.store(region.leader.store_id)
    context = kvrpcpb.Context(region_id=own.id, region_epoch=own.region_epoch, peer=region.leader)
    request.context.CopyFrom(context)
    try:
        answer = await method.unary(cluster.channels.to(store.address))(request, timeout=timeout_s)
    except grpc.aio.AioRpcError as fault:
        raise ClusterUnavailable(
            f"{method.path} of region {own.id} at store {store.id}: {fault.code().name}: {fault.details()}"
        ) from fault
    if answer.HasField("region_error"):
        error = " ".join(str(answer.region_error).split())
        raise ClusterUnavailable(f"{method.path} of region {own.id} at store {store.id}: {error}")
    return answer
