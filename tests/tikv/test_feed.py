"""The client of EventFeedV2 against a cluster that plays recordings: each row arrives, whatever happens to regions."""

import asyncio
from random import Random

import pytest

from tests.counts import some
from tests.tikv.playback import World, cluster_of, history
from tests.tikv.recorded import LATE, LIVE, TS0
from tidegate.kv.change_columns import changes_of
from tidegate.model.kv_change import KvChange
from tidegate.tikv import registrations
from tidegate.tikv.feed import EventFeed
from tidegate.tikv.registrations import SpanRows

MIDDLE = bytes.fromhex("7480000000000000a0")
DEADLINE_S = 60


async def played(world: World) -> set[KvChange]:
    """The rows of a world that a feed delivers, once all is resolved."""
    rows: set[KvChange] = set()
    final = world.bounds[-1] - 1000
    async with asyncio.timeout(DEADLINE_S), cluster_of(world) as cluster, EventFeed(cluster, random=Random(1)) as feed:
        feed.add(1, b"t", MIDDLE, TS0)
        feed.add(2, MIDDLE, b"", TS0)
        resolved = {1: TS0, 2: TS0}

        async def step() -> None:
            while True:
                world.step()
                await asyncio.sleep(0.005)

        stepping = asyncio.create_task(step())
        async for event in feed.events():
            if isinstance(event, SpanRows):
                batch = changes_of(event.rows)
                assert all(row.commit_ts > resolved[event.span] for row in batch if row not in rows)
                assert all((row.key < MIDDLE) == (event.span == 1) for row in batch)
                rows.update(batch)
            else:
                assert event.ts > resolved[event.span]
                resolved[event.span] = event.ts
            if min(resolved.values()) >= final:
                break
            assert not stepping.done() or stepping.result()
        stepping.cancel()
    return rows


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams are opened again at once."""
    monkeypatch.setattr(registrations, "RECONNECT_S", 0.01)


def check(name: str, messages: int, seed: int) -> None:
    """Play a recorded stream to a feed."""
    world = World(history(name, messages), seed, trouble=0.3)
    rows = asyncio.run(played(world))

    assert world.faults == []
    assert rows == world.played.truth


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(some(1, 3)))
def test_recorded(seed: int) -> None:
    """The rows of a recorded stream arrive, all of them and no others, whatever happens to regions and streams."""
    check(LIVE, 700, seed)


@pytest.mark.more
@pytest.mark.parametrize("name", [LIVE, LATE])
@pytest.mark.parametrize("seed", range(10, 14))
def test_recorded_whole(name: str, seed: int) -> None:
    """So do those of whole streams, one live, one of long scans."""
    check(name, 1 << 30, seed)


@pytest.mark.more
def test_streams_agree() -> None:
    """What the live stream and the late scan brought is the same, but for index entries that a DDL has ingested, which
    never come live."""
    live, late = ({(row.key, row.commit_ts): row for row in history(name).truth} for name in (LIVE, LATE))

    assert live.keys() <= late.keys()
    assert all(key[9:11] == b"_i" for key, _ in late.keys() - live.keys())
    assert {mark for mark, row in live.items() if late[mark] != row} == set()
