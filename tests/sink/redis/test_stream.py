"""Streams have each change once, in commit order, whatever breaks and whoever writes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_redis_sink import events_in
from tests.failpoint import REDIS_FAILPOINTS, armed
from tests.redis_server import RedisServer, running_redis
from tests.sink.redis.test_outages import DURABLE, restarts
from tests.sink.sql.test_exactly_once import away, times
from tidegate.model.errors import SinkRefused
from tidegate.model.event import Ddl, Event, images
from tidegate.sink.redis import RedisSink
from tidegate.sink.redis_options import RedisOptions
from tidegate.testing.contract import stories
from tidegate.testing.script import Script, ScriptedSource, put, run_here

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis that loses nothing when it is killed."""
    with running_redis(tmp_path_factory.mktemp("redis"), *DURABLE) as found:
        yield found


def options(server: RedisServer, **more: Any) -> RedisOptions:
    """How tests write: two entries a call, into one stream."""
    shared: dict[str, Any] = {"mode": "stream", "stream": "changes", "batch_rows": 2, "timeout_s": 5.0, **more}
    return RedisOptions("feed", (("127.0.0.1", server.port),), **shared)


def live(server: RedisServer, story: Script, **more: Any) -> None:
    """One life of a feed."""
    run_here(ScriptedSource(story), RedisSink(options(server, **more)), until=story.ts)


def told(server: RedisServer, stream: str = "changes") -> list[Event]:
    """The events of a stream."""
    return events_in(server.client.xrange(stream))


def as_texts(events: list[Any]) -> list[str]:
    """What an event says, without what a source tells beside it."""

    def text(event: Any) -> str:
        return event.query if isinstance(event, Ddl) else f"{event.schema}.{event.table} {images(event)}"

    return [f"{event.commit_ts} {text(event)}" for event in events]


@pytest.mark.parametrize("place", REDIS_FAILPOINTS)
@pytest.mark.parametrize("act", ["away", "restart", "die"])
def test_whatever_breaks(server: RedisServer, place: str, act: str) -> None:
    """An error, a restart of the server or a death of the feed before, amid and behind writes and DDLs neither leaves
    out an entry nor doubles one."""
    story = stories.shop()
    deed: Callable[[], None] = {"away": away, "restart": restarts(server), "die": _die}[act]
    try:
        with armed({place: times(deed, 2)}):
            live(server, story)
    except SystemExit:
        live(server, story)
    assert sorted(as_texts(told(server))) == sorted(as_texts(story.events))
    ids = [tuple(map(int, one.split(b"-"))) for one, _ in server.client.xrange("changes")]
    assert ids == sorted(set(ids))


def _die() -> None:
    raise SystemExit


def test_an_entry(server: RedisServer) -> None:
    """It has the kind of its change, its table and the event; a DDL stands behind the rows of its ts."""
    story = Script()
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
    ts = story.commit(put("shop.t", id=1), put("shop.t", id=2))
    story.ddl("shop.t", "ALTER TABLE shop.t COMMENT 'x'", again=True)
    story.resolve()
    live(server, story)
    found = server.client.xrange("changes")

    assert [id_.decode() for id_, _ in found[1:]] == [f"{ts}-0", f"{ts}-1", f"{ts}-{10**18}"]
    assert [(fields[b"type"], fields[b"table"]) for _, fields in found] == [
        (b"ddl", b"shop.t"),
        (b"insert", b"shop.t"),
        (b"insert", b"shop.t"),
        (b"ddl", b"shop.t"),
    ]


def test_a_stream_of_some_length(server: RedisServer) -> None:
    """Old entries go, and what went does not come again in a run that begins anew."""
    story = Script()
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
    for number in range(300):
        story.commit(put("shop.t", id=number))
    story.resolve()
    live(server, story, stream_entries=100)
    before = server.client.xrange("changes")
    assert 100 <= len(before) < 250
    server.client.delete("_tidegate:progress:{feed}")
    live(server, story, stream_entries=100)

    assert server.client.xrange("changes") == before


def test_tables_of_streams(server: RedisServer) -> None:
    """A stream a table has its rows and DDLs; a RENAME stands in both, what is of no table in the database's."""
    story = stories.around_ddl("rename table")
    live(server, story, stream="c:{schema}:{table}")
    rename = "RENAME TABLE shop.t TO shop.u"

    assert sorted(server.client.scan_iter("c:*")) == [
        b"c:shop:",
        b"c:shop:other",
        b"c:shop:parts",
        b"c:shop:t",
        b"c:shop:u",
    ]
    assert [getattr(one, "query", "")[:6] for one in told(server, "c:shop:")] == ["CREATE"]
    assert getattr(told(server, "c:shop:t")[-1], "query", "") == rename
    assert getattr(told(server, "c:shop:u")[0], "query", "") == rename


def test_a_server_that_forgets(tmp_path: Path) -> None:
    """A server that lost acknowledged writes gets nothing more in this run, so that no entry is left out; the next
    run begins where it stands."""
    story = stories.shop()
    with running_redis(tmp_path / "redis") as server:
        with (
            armed({"redis/before-write": times(restarts(server), 6)}),
            pytest.raises(SinkRefused, match="lost acknowledged writes"),
        ):
            live(server, story)
        assert told(server) == []
        live(server, story)
        assert sorted(as_texts(told(server))) == sorted(as_texts(story.events))


@pytest.mark.parametrize("nth", [3, 5, 8])
def test_a_server_that_lost_its_last_entries(server: RedisServer, nth: int) -> None:
    """A server that comes back with the progress, and without entries that it had taken since, gets them before what
    follows them."""
    story = stories.shop()

    def act() -> None:
        (last, _), (before, _) = server.client.xrevrange("changes", count=2)
        server.client.xdel("changes", last)
        server.client.execute_command("XSETID", "changes", before)
        restarts(server)()

    with armed({"redis/after-write": times(act, nth)}):
        live(server, story)
    assert sorted(as_texts(told(server))) == sorted(as_texts(story.events))


def test_a_key_of_another_kind(server: RedisServer) -> None:
    """A key that is no stream is not replaced."""
    server.client.set("changes", "mine")
    with pytest.raises(SinkRefused, match="WRONGTYPE"):
        live(server, stories.shop())
    assert server.client.get("changes") == b"mine"
