"""The rim of the client of EventFeedV2 over gRPC: stores that are old, silent or away, large messages, locks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from tidegate.kv.change_columns import changes_of
from tidegate.model.errors import ClusterUnavailable, PdRefused, VersionIncompatible
from tidegate.model.tso import compose
from tidegate.mysql.encoding import encode_bytes
from tidegate.tikv import feed as feed_module
from tidegate.tikv import registrations, rpc
from tidegate.tikv.feed import EventFeed
from tidegate.tikv.registrations import SpanResolved, SpanRows, Stream
from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb
from tidegate.tikv.stubs import errorpb_pb2 as errorpb
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate.tikv.stubs import metapb_pb2 as metapb
from tidegate.tikv.stubs import pdpb_pb2 as pdpb

REGION, REQUEST = 2, 1
BEGIN = compose(1_000_000)
Row = cdcpb.Event.Row
Play = Callable[[Any], AsyncIterator[cdcpb.ChangeDataEvent]]


def rows(*rows: Any) -> cdcpb.ChangeDataEvent:
    entries = cdcpb.Event.Entries(entries=[*rows, Row(type=cdcpb.Event.INITIALIZED)])
    return cdcpb.ChangeDataEvent(events=[cdcpb.Event(region_id=REGION, request_id=REQUEST, entries=entries)])


def resolved(ts: int) -> cdcpb.ChangeDataEvent:
    return cdcpb.ChangeDataEvent(resolved_ts=cdcpb.ResolvedTs(regions=[REGION], ts=ts, request_id=REQUEST))


def error(**kind: Any) -> cdcpb.ChangeDataEvent:
    return cdcpb.ChangeDataEvent(events=[cdcpb.Event(region_id=REGION, request_id=REQUEST, error=cdcpb.Error(**kind))])


def committed(value: bytes, key: bytes = b"k") -> Any:
    fields = {"start_ts": BEGIN + 1, "commit_ts": BEGIN + 2, "key": key, "value": value}
    return Row(type=cdcpb.Event.COMMITTED, op_type=Row.PUT, **fields)


class Store:
    """A cluster of one store, which plays a stream and answers calls."""

    def __init__(self, play: Play | None = None, **answers: Any) -> None:
        self.cluster_id, self.play, self.answers = 7, play, answers
        self.calls: list[tuple[str, Any]] = []
        self.requests: list[Any] = []
        self.channel: Any = None
        self.target, self.now = "", BEGIN

    @property
    def channels(self) -> "Store":
        return self

    def to(self, _advertised: str) -> grpc.aio.Channel:
        return self.channel

    async def regions(self, _start: bytes, _end: bytes) -> list[pdpb.Region]:
        return [pdpb.Region(region=metapb.Region(id=REGION), leader=metapb.Peer(id=1, store_id=1))]

    async def store(self, store_id: int) -> metapb.Store:
        return metapb.Store(id=store_id, address=self.target)

    async def tso(self) -> int:
        return self.now

    async def _feed(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        self.metadata = dict(context.invocation_metadata())
        self.requests.append(await anext(requests))
        async for message in self.play(self):
            yield message

    def _unary(self, name: str, method: rpc.Method[Any, Any]) -> Any:
        async def answer(request: Any, _context: Any) -> Any:
            self.calls.append((name, request))
            return self.answers[name].pop(0)

        return grpc.unary_unary_rpc_method_handler(answer, method.request.FromString, method.answer.SerializeToString)

    def run(self, use: Callable[[EventFeed], Coroutine[Any, Any, Any]]) -> Any:
        """What a use of a feed of this store returns."""

        async def serve() -> Any:
            feeding = grpc.stream_stream_rpc_method_handler(
                self._feed,
                request_deserializer=cdcpb.ChangeDataRequest.FromString,
                response_serializer=lambda sent: sent if isinstance(sent, bytes) else sent.SerializeToString(),
            )
            methods = {
                method.path.rpartition("/")[2]: method
                for method in (rpc.KV_SCAN_LOCK, rpc.KV_CHECK_TXN_STATUS, rpc.KV_RESOLVE_LOCK)
            }
            calls = {name: self._unary(name, method) for name, method in methods.items()}
            server = grpc.aio.server(options=rpc.SERVER_OPTIONS)
            streams = {"EventFeedV2": feeding} if self.play else {}
            handlers = (("cdcpb.ChangeData", streams), ("tikvpb.Tikv", calls))
            server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(*handler) for handler in handlers])
            self.target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            await server.start()
            self.channel = grpc.aio.insecure_channel(self.target, rpc.CHANNEL_OPTIONS)
            try:
                async with asyncio.timeout(60), self.channel, EventFeed(self) as feed:
                    feed.add(1, b"a", b"z", BEGIN)
                    return await use(feed)
            finally:
                await server.stop(0)

        return asyncio.run(serve())


async def first(feed: EventFeed) -> list[Any]:
    """What comes up to the first resolved ts."""
    found = []
    async for event in feed.events():
        found.append(event)
        if isinstance(event, SpanResolved):
            return found
    return found


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits are short."""
    monkeypatch.setattr(registrations, "RECONNECT_S", 0.01)
    for name in ("STUCK_S", "LOOK_S", "LOOK_AGAIN_S", "SLOW_S"):
        monkeypatch.setattr(feed_module, name, 0.05)


def test_first_request() -> None:
    """A stream asks for multiplexing, and its first request tells the client's version: TiKV sends no resolved ts, or
    one for all registrations of a region, where either is missing."""

    async def play(_store: Store) -> AsyncIterator[Any]:
        yield rows()
        yield resolved(BEGIN + 9)

    store = Store(play)
    store.run(first)
    assert store.metadata["features"] == "stream-multiplexing"
    (request,) = store.requests
    assert (request.header.cluster_id, request.header.ticdc_version) == (7, "8.5.4")
    assert request.WhichOneof("request") is None


def test_large_message() -> None:
    """A message may be larger than gRPC's usual limit of 4 MiB: TiKV does not split the rows of one command."""

    async def play(_store: Store) -> AsyncIterator[Any]:
        yield rows(committed(b"x" * (20 << 20)))
        yield resolved(BEGIN + 9)

    got = Store(play).run(first)
    assert [len(row.value) for row in changes_of(got[0].rows)] == [20 << 20]
    assert got[1] == SpanResolved(1, BEGIN + 9)


def test_old_tikv() -> None:
    """A TiKV without EventFeedV2 is refused by name."""
    with pytest.raises(VersionIncompatible, match=r"store 1: UNIMPLEMENTED.*TiKV 7.5 or later is needed"):
        Store().run(first)


def test_store_leaves() -> None:
    """A store that has left the cluster, or that PD does not know, is no end: PD is asked for the regions again."""

    async def play(_store: Store) -> AsyncIterator[Any]:
        yield rows()
        yield resolved(BEGIN + 9)
        await asyncio.sleep(60)

    store = Store(play)
    left = [metapb.Store(id=1, state=metapb.Tombstone, address="gone:1"), metapb.Store(id=1), None]

    async def ask(store_id: int) -> metapb.Store:
        answer = left.pop(0) if left else metapb.Store(id=store_id, address=store.target)
        if answer is None:
            raise PdRefused("invalid store ID 1, not found")
        return answer

    store.store = ask
    assert store.run(first) == [SpanResolved(1, BEGIN + 9)]
    assert left == []


def test_pd_is_away() -> None:
    """What PD does not answer ends the feed, with PD's error."""
    store = Store()

    async def regions(_start: bytes, _end: bytes) -> list[pdpb.Region]:
        raise ClusterUnavailable("PD gave no regions within 30 s")

    store.regions = regions
    with pytest.raises(ClusterUnavailable, match="PD gave no regions"):
        store.run(first)


def test_store_restarts() -> None:
    """Streams that end, however, are opened again at the ts that was reached; no row is missing."""

    async def play(store: Store) -> AsyncIterator[Any]:
        match len(store.requests):
            case 1:
                return
            case 2:
                raise RuntimeError("the store fails")
            case 3:
                yield rows()
                yield resolved(BEGIN + 1)
            case _:
                assert store.requests[-1].checkpoint_ts == BEGIN + 1
                yield rows(committed(b"v"))
                yield resolved(BEGIN + 9)
                await asyncio.sleep(60)

    async def use(feed: EventFeed) -> Any:
        return await first(feed), await first(feed)

    begin, rest = Store(play).run(use)
    assert begin == [SpanResolved(1, BEGIN + 1)]
    assert [type(event) for event in rest] == [SpanRows, SpanResolved]


def test_half_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that falls silent after its regions were initialized is ended by the client, and opened again."""
    monkeypatch.setattr(registrations, "SILENCE_S", 0.2)

    async def play(store: Store) -> AsyncIterator[Any]:
        yield rows(committed(b"v"))
        if len(store.requests) == 1:
            await asyncio.sleep(60)
        yield resolved(BEGIN + 9)
        await asyncio.sleep(60)

    store = Store(play)
    events = store.run(first)

    assert len(store.requests) == 2
    assert len([event for event in events if isinstance(event, SpanRows)]) == 2


def test_a_full_backlog_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is not read, because rows wait to be taken, stays open."""
    monkeypatch.setattr(registrations, "SILENCE_S", 0.0)
    monkeypatch.setattr(feed_module, "BACKLOG_BYTES", 0)

    async def play(_: Store) -> AsyncIterator[Any]:
        yield rows(committed(b"v"))
        await asyncio.sleep(60)

    async def use(feed: EventFeed) -> bool:
        while not feed.scans:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        before = dict(feed.registrations.streams)
        for _ in range(4):
            await asyncio.sleep(feed_module._CONTROL_S)
        return before == feed.registrations.streams

    store = Store(play)
    assert store.run(use)
    assert len(store.requests) == 1


def test_a_scan_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream whose first scans bring nothing is given up after a while, and their regions are read anew."""
    monkeypatch.setattr(registrations, "STALLED_S", 0.2)

    async def play(store: Store) -> AsyncIterator[Any]:
        if len(store.requests) == 1:
            await asyncio.sleep(60)
        yield rows(committed(b"v"))
        yield resolved(BEGIN + 9)
        await asyncio.sleep(60)

    store = Store(play)
    assert [type(event) for event in store.run(first)] == [SpanRows, SpanResolved]
    assert len(store.requests) == 2


HELD: dict[str, tuple[list[Any], str]] = {
    "a scan that does not end": ([cdcpb.ChangeDataEvent()], "its scan has not ended"),
    "no resolved ts": ([rows()], "no resolved ts comes"),
    "busy": (
        [error(server_is_busy=errorpb.ServerIsBusy(reason="too many scans", backoff_ms=60_000))],
        'after 1 tries, last: server_is_busy { reason: "too many scans" backoff_ms: 60000 }',
    ),
}


@pytest.mark.parametrize("name", HELD)
def test_what_holds_a_feed(name: str) -> None:
    """A range that does not move is told with its region, store and reason, until it moves."""
    messages, reason = HELD[name]
    freed = asyncio.Event()

    async def play(_store: Store) -> AsyncIterator[Any]:
        for message in messages:
            yield message
        await freed.wait()
        yield rows()
        yield resolved(compose(1_100_000))
        await asyncio.sleep(60)

    store = Store(play, KvScanLock=[kvrpcpb.ScanLockResponse()] * 1000)
    store.now = compose(1_100_000)

    async def use(feed: EventFeed) -> str:
        while not any(reason in str(slow) for slow in feed.slow):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        text = str(feed.slow[0])
        freed.set()
        if name != "busy":
            while feed.slow:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return text

    assert store.run(use).startswith("no region is registered" if name == "busy" else "region 2 at store 1")


def test_bytes_are_counted_while_streams_come() -> None:
    """Another thread may ask for them at any time."""

    class Matcher:
        @property
        def stored(self) -> int:
            feed.registrations.streams[1, 0] = stream
            return 7

    async def made() -> EventFeed:
        return EventFeed(SimpleNamespace(cluster_id=1))  # type: ignore[arg-type]

    feed, stream = asyncio.run(made()), Stream((0, 0))
    stream.matcher = Matcher()  # type: ignore[assignment]
    feed.registrations.streams[0, 0] = stream
    assert feed.stored_bytes == 7


def test_keys_outside_the_span() -> None:
    """Rows of keys that were not asked for, which a TiKV before 7.1 sends, do not arrive."""
    wide = [committed(b"v", key) for key in (b"", b"Z", b"a", b"yz", b"z", b"zz")]

    async def play(_store: Store) -> AsyncIterator[Any]:
        yield rows(*wide)
        yield rows(committed(b"w", b"zzz"))
        yield resolved(BEGIN + 9)

    got, end = Store(play).run(first)
    assert [row.key for row in changes_of(got.rows)] == [b"a", b"yz"]
    assert end == SpanResolved(1, BEGIN + 9)


def lock(**more: Any) -> kvrpcpb.LockInfo:
    return kvrpcpb.LockInfo(key=b"k", primary_lock=b"p", lock_version=BEGIN + 5, lock_ttl=3000, **more)


async def stand_still(_store: Store) -> AsyncIterator[Any]:
    yield rows()
    yield resolved(BEGIN + 4)
    await asyncio.sleep(60)


def test_live_transaction() -> None:
    """A transaction that is alive and holds the resolved ts is named by key and start_ts, with its region and store."""
    store = Store(
        stand_still,
        KvScanLock=[kvrpcpb.ScanLockResponse(locks=[lock()])] * 1000,
        KvCheckTxnStatus=[kvrpcpb.CheckTxnStatusResponse(lock_ttl=90_000)] * 1000,
    )
    store.now = compose(1_002_000)

    async def use(feed: EventFeed) -> str:
        await first(feed)
        while not feed.slow or "transaction" not in str(feed.slow[0]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return feed.slow[0].reason

    named = f"transaction {BEGIN + 5} holds key 6b (primary 70)"
    assert store.run(use) == f"region {REGION} at store 1: {named}"
    scan = store.calls[0][1]
    assert (scan.start_key, scan.end_key, scan.context.region_id) == (b"a", b"z", REGION)
    assert BEGIN + 4 < scan.max_version <= store.now


def test_dead_transaction() -> None:
    """The lock of a transaction that is over is resolved, also if the region has moved meanwhile."""
    moved = errorpb.Error(message="moved", not_leader=errorpb.NotLeader(region_id=REGION))
    scans = [kvrpcpb.ScanLockResponse(region_error=moved), kvrpcpb.ScanLockResponse(locks=[lock()])]
    store = Store(
        stand_still,
        KvScanLock=[*scans, *[kvrpcpb.ScanLockResponse()] * 1000],
        KvCheckTxnStatus=[kvrpcpb.CheckTxnStatusResponse(commit_version=BEGIN + 8)],
        KvResolveLock=[kvrpcpb.ResolveLockResponse()],
    )
    store.now = compose(1_010_000)

    async def use(feed: EventFeed) -> None:
        await first(feed)
        while not [name for name, _ in store.calls if name == "KvResolveLock"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    store.run(use)
    (request,) = [request for name, request in store.calls if name == "KvResolveLock"]
    assert (request.start_version, request.commit_version, request.keys) == (BEGIN + 5, BEGIN + 8, [b"k"])
    assert encode_bytes(b"a") == store.requests[0].start_key
