"""The client of EventFeedV2 reads the embedded store over gRPC: at each resolved ts it has what the store held."""

import asyncio
import random
from contextlib import suppress

import pytest

from tests.upstream.tikv.test_peer import disturb, until, with_peer, without_locks, write
from tests.upstream.worlds import World, seeds
from tidegate.kv.change_columns import changes_of
from tidegate.model.kv_change import KvChange, KvOp
from tidegate.tikv import registrations
from tidegate.tikv.feed import EventFeed
from tidegate.tikv.pd import PdClient
from tidegate.tikv.registrations import SpanRows
from tidegate_upstream.errors import KeyLocked, TransactionGone, WriteConflict
from tidegate_upstream.tidb.store_mvcc import values_in
from tidegate_upstream.tikv.peer import TikvPeer

MIDDLE = b"d"


class Follower:
    """The rows of two spans, and the resolved ts of each."""

    def __init__(self, feed: EventFeed) -> None:
        self.feed = feed
        self.rows: dict[tuple[int, int, bytes], KvChange] = {}
        self.resolved = {1: 0, 2: 0}
        feed.add(1, b"", MIDDLE, 0)
        feed.add(2, MIDDLE, b"", 0)

    async def run(self) -> None:
        async for event in self.feed.events():
            if not isinstance(event, SpanRows):
                assert event.ts > self.resolved[event.span]
                self.resolved[event.span] = event.ts
                continue
            for row in changes_of(event.rows):
                mark = (row.commit_ts, row.start_ts, row.key)
                assert row.commit_ts > self.resolved[event.span] or self.rows[mark] == row
                assert self.rows.setdefault(mark, row) == row
                assert (row.key < MIDDLE) == (event.span == 1)

    def contents(self, ts: int) -> dict[bytes, bytes]:
        """What the rows up to a ts come to."""
        last = {row.key: row for mark, row in sorted(self.rows.items()) if mark[0] <= ts}
        return {key: row.value or b"" for key, row in last.items() if row.op is KvOp.PUT}


@pytest.mark.parametrize("seed", seeds(3))
def test_a_feed_is_the_store(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever regions, streams and stores do, no row is missing at a resolved ts and none is wrong."""
    monkeypatch.setattr(registrations, "RECONNECT_S", 0.01)
    chance = random.Random(seed)
    world = World(one_phase=bool(seed % 2), batch_keys=2)

    async def use(_: World, peer: TikvPeer, client: PdClient) -> None:
        await client.connect()
        async with EventFeed(client, random=random.Random(seed)) as feed:
            follower = Follower(feed)
            following = asyncio.create_task(follower.run())
            checked = 0
            for turn in range(150):
                world.clock.ms += 10
                with suppress(KeyLocked, WriteConflict, TransactionGone):
                    write(chance, world)
                if turn % 6 == 0:
                    await disturb(chance, peer)
                await asyncio.sleep(0.002)
                ts = min(follower.resolved.values())
                if ts > checked:
                    checked = ts
                    assert follower.contents(ts) == dict(values_in(world.engine, b"", b"", ts))
            now = without_locks(world)
            await until(lambda: min(follower.resolved.values()) > now or following.done())
            assert not following.done(), following
            assert follower.contents(now) == dict(values_in(world.engine, b"", b"", now))
            assert len(follower.rows) > 100
            following.cancel()

    with_peer(use, stores=2, world=world)
