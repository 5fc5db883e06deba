"""PD and TiKV over the embedded store: what they say over gRPC is what the store holds, whatever regions do."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
import pytest

from tests.upstream.tikv.plain_feed import FEATURES, PlainFeed, bound, request_of
from tests.upstream.worlds import TTL_MS, World, seeds
from tidegate.model.errors import ClusterMismatch, StartBeforeGc
from tidegate.tikv import rpc
from tidegate.tikv.address import ClusterAddress
from tidegate.tikv.pd import GcState, PdClient
from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb
from tidegate_upstream.errors import KeyLocked, TransactionGone, WriteConflict
from tidegate_upstream.tidb.store_mvcc import Mutation, WriteKind, values_in
from tidegate_upstream.tidb.transaction import Stage
from tidegate_upstream.tikv.peer import TikvPeer

KEYS = [bytes([letter]) for letter in b"abcdefgh"]
PUT = WriteKind.PUT


def with_peer(
    use: Callable[[World, TikvPeer, PdClient], Awaitable[Any]], *, stores: int = 1, world: World | None = None
) -> Any:
    """What `use` returns with a world that is served, and a client of its PD."""

    async def run() -> Any:
        own = world or World()
        async with TikvPeer(own.storage, stores=stores, turn_s=0.002) as peer:
            client = PdClient(ClusterAddress((peer.pd,)), patience_s=5)
            try:
                return await use(own, peer, client)
            finally:
                await client.close()

    return asyncio.run(asyncio.wait_for(run(), 60))


def without_locks(world: World) -> int:
    """A timestamp above which no transaction is alive."""
    world.clock.ms += 10 * TTL_MS
    for key, lock in world.store.locks():
        status = world.store.check_status(lock.primary, lock.start_ts, world.oracle.next())
        world.store.finish(key, lock.start_ts, status)
    return world.oracle.next()


async def until(met: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(50):
        while not met():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def disturb(chance: random.Random, peer: TikvPeer) -> None:
    """A split, a merge, another leader, cut streams, a store that starts again, or a busy one."""
    region = chance.choice(list(peer.log.regions))
    match chance.choice(("split", "split", "merge", "leader", "leader", "cut", "restart", "busy")):
        case "split":
            peer.log.split(chance.choice(KEYS) + chance.choice((b"", b"\0")))
        case "merge":
            peer.log.merge(region.id)
        case "leader":
            peer.log.move_leader(region.id)
        case "cut":
            peer.cut_streams()
        case "busy":
            chance.choice(peer.feeds).busy = 2
        case "restart":
            number = chance.randint(1, len(peer.kv))
            await peer.stop_store(number)
            await peer.start_store(number)


def write(chance: random.Random, world: World) -> None:
    """A transaction of one phase or two; one in eight dies with its locks, and leaves them to its TTL."""
    txn = world.storage.begin()
    for key in chance.sample(KEYS, chance.randint(1, 4)):
        if chance.random() < 0.3:
            txn.delete(key)
        else:
            txn.put(key, chance.randbytes(chance.choice((1, 20, 300))))
    if chance.random() < 0.125:
        last = chance.choice((Stage.PREWRITTEN, Stage.DECIDED))
        next((None for stage in txn.steps() if stage is last), None)
        return
    txn.commit()


@pytest.mark.parametrize("seed", seeds(4))
def test_a_feed_is_the_store(seed: int) -> None:
    """At each resolved ts, rows of the feed come to what the store held at it; regions that split, merge and move,
    streams that are cut, stores that start again and refuse lose and change nothing."""
    chance = random.Random(seed)
    world = World(one_phase=bool(seed % 2), batch_keys=2)

    async def use(_: World, peer: TikvPeer, client: PdClient) -> None:
        feed = PlainFeed(client)
        following = asyncio.create_task(feed.run())
        checked = 0
        for turn in range(150):
            world.clock.ms += 10
            with suppress(KeyLocked, WriteConflict, TransactionGone):
                write(chance, world)
            if turn % 6 == 0:
                await disturb(chance, peer)
            await asyncio.sleep(0.002)
            ts = feed.resolved_ts
            if ts > checked:
                checked = ts
                assert feed.contents(ts) == dict(values_in(world.engine, b"", b"", ts))
        now = without_locks(world)
        await until(lambda: feed.resolved_ts > now or following.done())
        assert not following.done(), following
        assert feed.contents(now) == dict(values_in(world.engine, b"", b"", now))
        assert len(feed.rows) > 100
        assert checked
        assert {"epoch_not_match", "not_leader"} <= set(feed.faults)
        following.cancel()

    with_peer(use, stores=2, world=world)


def test_pd() -> None:
    """Timestamps grow above those of the store, stores and regions are those of the log, each with a leader that moves,
    and another cluster's client is refused."""

    async def use(world: World, peer: TikvPeer, client: PdClient) -> None:
        first = world.oracle.next()
        assert first < await client.tso() < world.oracle.next()
        many = await asyncio.gather(*(client.tso() for _ in range(100)))
        assert many == sorted(set(many))
        assert [store.address for store in await client.stores()] == list(peer.service.stores)
        for key in (b"c", b"f"):
            peer.log.split(key)
        regions = await client.regions(b"", b"")
        assert [region.region.end_key for region in regions] == [bound(b"c"), bound(b"f"), b""]
        assert len(await client.regions(bound(b"d"), bound(b"e"))) == 1
        (moved,) = await client.regions(bound(b"c"), bound(b"f"))
        peer.log.move_leader(moved.region.id)
        (again,) = await client.regions(bound(b"c"), bound(b"f"))
        assert {moved.leader.store_id, again.leader.store_id} == {1, 2}
        assert set((await client.healthy()).values()) == {"SERVING"}
        other = PdClient(ClusterAddress((peer.pd,)), cluster_id=5)
        with pytest.raises(ClusterMismatch, match="to cluster 7000000000000000001, not to 5"):
            await other.stores()
        await other.close()

    with_peer(use, stores=2)


def test_garbage_is_held() -> None:
    """What a client holds is not collected until it lets go or its time is over; below the safe point nothing can be
    held."""

    async def use(world: World, peer: TikvPeer, client: PdClient) -> None:
        now = [0.0]
        peer.service.clock = lambda: now[0]
        stamps = [world.put(a=b"%d" % number) for number in range(4)]
        await client.hold("tidegate-f", 60, stamps[1])
        assert peer.collect_garbage(stamps[3]) == stamps[1]
        assert await client.gc_state() == GcState(stamps[1], {"tidegate-f": stamps[1]})
        with pytest.raises(StartBeforeGc):
            await client.hold("other", 60, stamps[0])
        await client.check_kept(stamps[1])
        now[0] = 61
        assert peer.collect_garbage(stamps[2]) == stamps[2]
        await client.hold("tidegate-f", 60, stamps[2])
        await client.release("tidegate-f")
        assert peer.collect_garbage(stamps[3]) == stamps[3]

    with_peer(use)


def test_reads_and_locks() -> None:
    """Scans stop for no lock but tell it, and locks are resolved as their transactions ended: rolled back once their
    time is over, committed as their primary is."""

    async def use(world: World, peer: TikvPeer, client: PdClient) -> None:
        ts = world.put(a=b"1", b=b"2", c=b"3", d=b"4")
        start_ts = world.oracle.next()
        world.store.prewrite([Mutation(PUT, b"b", b"5"), Mutation(PUT, b"c", b"6")], b"b", start_ts, TTL_MS)
        (region,) = await client.regions(b"", b"")
        channel = client.channels.to((await client.store(region.leader.store_id)).address)
        context = kvrpcpb.Context(
            region_id=region.region.id, region_epoch=region.region.region_epoch, peer=region.leader
        )

        async def call(method: Any, **fields: Any) -> Any:
            return await method.unary(channel)(method.request(context=context, **fields), timeout=5)

        async def scan(version: int, limit: int = 9) -> list[tuple[bytes, bytes]]:
            pairs = (await call(rpc.KV_SCAN, version=version, limit=limit)).pairs
            return [(pair.key, b"locked" if pair.HasField("error") else pair.value) for pair in pairs]

        whole = [(b"a", b"1"), (b"b", b"locked"), (b"c", b"locked"), (b"d", b"4")]
        assert await scan(start_ts) == whole
        assert [await scan(start_ts, limit) for limit in (1, 2, 3)] == [whole[:1], whole[:2], whole[:3]]
        assert await scan(ts) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"d", b"4")]
        assert (await call(rpc.KV_GET, key=b"b", version=start_ts)).error.locked.primary_lock == b"b"
        assert (await call(rpc.KV_GET, key=b"x", version=start_ts)).not_found
        locks = (await call(rpc.KV_SCAN_LOCK, max_version=start_ts, limit=9)).locks
        assert [(lock.key, lock.lock_version) for lock in locks] == [(b"b", start_ts), (b"c", start_ts)]
        status = {"primary_key": b"b", "lock_ts": start_ts, "verify_is_primary": True}
        alive = await call(rpc.KV_CHECK_TXN_STATUS, current_ts=start_ts, **status)
        assert alive.lock_ttl == TTL_MS
        wrong = await call(rpc.KV_CHECK_TXN_STATUS, **{**status, "primary_key": b"c"})
        assert wrong.error.primary_mismatch.lock_info.primary_lock == b"b"
        absent = await call(rpc.KV_CHECK_TXN_STATUS, **{**status, "lock_ts": ts})
        assert absent.error.txn_not_found.start_ts == ts
        world.store.commit([b"b"], start_ts, commit_ts := world.oracle.next())
        ended = await call(rpc.KV_CHECK_TXN_STATUS, **status)
        assert (ended.lock_ttl, ended.commit_version) == (0, commit_ts)
        secondary = await call(rpc.KV_CHECK_SECONDARY_LOCKS, keys=[b"b", b"c"], start_version=start_ts)
        assert secondary.commit_ts == commit_ts
        await call(rpc.KV_RESOLVE_LOCK, start_version=start_ts, commit_version=commit_ts, keys=[b"c"])
        assert (await scan(commit_ts))[1:3] == [(b"b", b"5"), (b"c", b"6")]
        dead = world.oracle.next()
        world.store.prewrite([Mutation(PUT, b"a", b"7")], b"a", dead, TTL_MS)
        world.clock.ms += 2 * TTL_MS
        over = {"primary_key": b"a", "lock_ts": dead, "current_ts": await client.tso()}
        assert (await call(rpc.KV_CHECK_TXN_STATUS, **over)).action == kvrpcpb.TTLExpireRollback
        assert (await scan(dead))[0] == (b"a", b"1")
        peer.log.split(b"c")
        stale = await call(rpc.KV_GET, key=b"a", version=ts)
        assert stale.region_error.HasField("epoch_not_match")

    with_peer(use)


def test_one_stream() -> None:
    """A duplicate is refused and the first registration continues; deregistered, a region is gone; what a busy store
    refuses is not registered; a closed side ends the stream."""

    async def use(world: World, peer: TikvPeer, client: PdClient) -> None:
        world.put(a=b"1", b=b"2")
        (region,) = await client.regions(b"", b"")
        stream = rpc.EVENT_FEED_V2.stream(client.channels.to(peer.service.stores[0]))(metadata=FEATURES)
        seen: list[Any] = []

        async def read_until(*words: str) -> None:
            async with asyncio.timeout(50):
                while not set(words) <= set(seen):
                    message = await stream.read()
                    if message is grpc.aio.EOF:
                        seen.append("end")
                        continue
                    seen.extend(name for event in message.events for name in told(event))
                    if message.HasField("resolved_ts"):
                        seen.append(f"resolved {message.resolved_ts.request_id}")

        def told(event: cdcpb.Event) -> list[str]:
            rows = [cdcpb.Event.LogType.Name(row.type) for row in event.entries.entries]
            errors = [field.name for field, _ in event.error.ListFields()]
            return [f"{each} {event.request_id}" for each in (*rows, *errors)]

        await stream.write(request_of(client, region, 1))
        await read_until("COMMITTED 1", "INITIALIZED 1", "resolved 1")
        await stream.write(request_of(client, region, 1))
        await read_until("duplicate_request 1")
        seen.clear()
        await read_until("resolved 1")
        peer.feeds[0].busy = 1
        await stream.write(request_of(client, region, 2))
        await read_until("server_is_busy 2")
        mismatch = cdcpb.Header(cluster_id=1, ticdc_version="8.5.4")
        await stream.write(request_of(client, region, 3, header=mismatch))
        await read_until("cluster_id_mismatch 3")
        await stream.write(request_of(client, region, 4, start_key=bound(b"x"), end_key=bound(b"y")))
        await read_until("INITIALIZED 4", "resolved 4")
        assert "COMMITTED 4" not in seen
        await stream.write(request_of(client, region, 1, deregister=cdcpb.ChangeDataRequest.Deregister()))
        await read_until("region_not_found 1")
        await stream.done_writing()
        await read_until("end")
        assert await stream.code() is grpc.StatusCode.OK

    with_peer(use)


@pytest.mark.parametrize(
    ("metadata", "fields", "code"),
    [
        ((("features", "unheard-of"),), {}, "UNIMPLEMENTED"),
        (FEATURES, {"start_key": bound(b"y"), "end_key": bound(b"x")}, "INVALID_ARGUMENT"),
    ],
)
def test_refused_streams(metadata: Any, fields: dict[str, bytes], code: str) -> None:
    """An unknown feature, and a range whose end is before its start, end the stream with a status."""

    async def use(_: World, peer: TikvPeer, client: PdClient) -> None:
        (region,) = await client.regions(b"", b"")
        stream = rpc.EVENT_FEED_V2.stream(client.channels.to(peer.service.stores[0]))(metadata=metadata)
        with pytest.raises(grpc.aio.AioRpcError) as refused:  # noqa: PT012
            await stream.write(request_of(client, region, **fields))
            while await stream.read() is not grpc.aio.EOF:
                pass
            raise grpc.aio.AioRpcError(await stream.code(), grpc.aio.Metadata(), grpc.aio.Metadata())
        assert refused.value.code().name == code

    with_peer(use)


def test_groups_of_resolved_timestamps() -> None:
    """A region that a lock holds back is in the first group with others, whose resolved ts it holds back, too; others
    are ahead."""

    async def use(world: World, peer: TikvPeer, client: PdClient) -> None:
        for number in range(1, 20):
            peer.log.split(b"k%02d" % number)
        start_ts = world.oracle.next()
        world.store.prewrite([Mutation(PUT, b"k05", b"1")], b"k05", start_ts, 1 << 40)
        stream = rpc.EVENT_FEED_V2.stream(client.channels.to(peer.service.stores[0]))(metadata=FEATURES)
        for region in await client.regions(b"", b""):
            await stream.write(request_of(client, region))
        groups: list[tuple[int, int]] = []
        async with asyncio.timeout(50):
            while not {8, 12} <= {size for size, _ in groups[-2:]}:
                message = await stream.read()
                if message.HasField("resolved_ts"):
                    groups.append((len(message.resolved_ts.regions), message.resolved_ts.ts))
        (held,) = {ts for size, ts in groups[-2:] if size == 8}
        (ahead,) = {ts for size, ts in groups[-2:] if size == 12}
        assert held == start_ts - 1 < ahead

    with_peer(use)


def test_in_a_thread() -> None:
    """Served in a thread, it is reached from another loop, and its stores can be stopped and started."""
    world = World()
    with TikvPeer(world.storage).in_thread() as peer:

        async def use() -> int:
            client = PdClient(ClusterAddress((peer.pd,)))
            try:
                return await client.tso()
            finally:
                await client.close()

        assert asyncio.run(use()) < world.oracle.next()
        peer.call(peer.stop_store(1))
        peer.call(peer.start_store(1))
