"""The contract of every sink, for Redis: hashes, documents, streams and keys that are dropped; one server and a
cluster."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.contract.adapters import by_name
from tests.redis_server import running_cluster, running_redis
from tests.sink.redis.test_invalidate import KEYS, all_cached
from tidegate.codec.neutral_read import EventReader
from tidegate.engine.ports import Sink
from tidegate.model.event import Ddl, Event
from tidegate.model.table import TableInfo
from tidegate.sink.redis import RedisSink
from tidegate.sink.redis_cache import rows_of
from tidegate.sink.redis_options import Mode, RedisOptions, parse_template
from tidegate.sink.redis_server import RedisServers
from tidegate.testing.contract import ReadBack, SinkContract
from tidegate.testing.script import Row, Script, ScriptedSource, run_here

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tuple[str, int], ...]]:
    """A Redis for the cases of this file."""
    with running_redis(tmp_path_factory.mktemp("redis")) as found:
        yield (("127.0.0.1", found.port),)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tuple[str, int], ...]]:
    """Two of the three servers of a cluster, for the cases of this file."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield tuple(("127.0.0.1", one.port) for one in found[:2])


class TestHash(SinkContract):
    """A hash for each row."""

    run = staticmethod(run_here)
    guarantee = "exactly once"
    refuses = ("unreadable", "recover table")
    shown = staticmethod(by_name)
    leaves_out = ("shop.visits",)
    mode: Mode = "hash"

    @pytest.fixture(autouse=True)
    def _hosts(self, server: tuple[tuple[str, int], ...]) -> None:
        self.hosts = server

    def options(self, home: Path) -> RedisOptions:
        """Keys of a case begin with a digest of its home, so that it needs no empty server."""
        feed = hashlib.md5(str(home).encode()).hexdigest()
        return RedisOptions(feed, self.hosts, mode=self.mode, template=f"{feed}:{{schema}}:{{table}}:{{pk}}")

    def fill(self, home: Path, story: Script) -> bool:
        """Keys of another changefeed."""
        other = replace(self.options(home), feed=f"{self.options(home).feed}-other")
        run_here(ScriptedSource(story), RedisSink(other), until=story.ts)
        return True

    def sink(self, home: Path) -> Sink[Any]:
        """A sink whose progress lies in Redis."""
        return RedisSink(self.options(home))

    def read(self, home: Path) -> ReadBack:
        """The rows under the keys of each table, as a reader of Redis has them; there are no others."""
        options = self.options(home)
        servers = RedisServers(options)
        tables = [table for table in RedisSink(options).recover().state.tables.values() if table.handle_key]
        template = parse_template(options.template)
        every = found_by(servers, options.feed.encode() + b":*")
        assert every == {key for table in tables for key in found_by(servers, template.pattern(table.name))}
        found = {str(table.name): rows_here(servers, table) for table in tables}
        servers.close()
        return ReadBack(found)


def found_by(servers: RedisServers, pattern: bytes) -> set[bytes]:
    """The keys that fit a pattern."""
    return {key for keys in servers.scan(pattern) for key in keys}


def rows_here(servers: RedisServers, table: TableInfo) -> list[Row]:
    """The rows of a table, each once."""
    return list({row.key: dict(row.values) for rows in rows_of(servers, table) for row in rows}.values())


@pytest.mark.soak
class TestJson(TestHash):
    """A document for each row."""

    mode = "json"


class TestStream(SinkContract):
    """An entry for each change, in one stream."""

    run = staticmethod(run_here)
    guarantee = "exactly once"
    streams = "changes"

    @pytest.fixture(autouse=True)
    def _hosts(self, server: tuple[tuple[str, int], ...]) -> None:
        self.hosts = server

    def options(self, home: Path) -> RedisOptions:
        """Names of a case begin with a digest of its home."""
        feed = hashlib.md5(str(home).encode()).hexdigest()
        return RedisOptions(feed, self.hosts, mode="stream", stream=f"{feed}:{self.streams}", batch_rows=2)

    def fill(self, home: Path, story: Script) -> bool:
        """Keys of another changefeed."""
        other = replace(self.options(home), feed=f"{self.options(home).feed}-other")
        run_here(ScriptedSource(story), RedisSink(other), until=story.ts)
        return True

    def sink(self, home: Path) -> Sink[Any]:
        """A sink whose progress lies in Redis."""
        return RedisSink(self.options(home))

    def read(self, home: Path) -> ReadBack:
        """The entries of each stream; a DDL that several streams have is told by the first."""
        servers = RedisServers(self.options(home))
        names = sorted(found_by(servers, f"{self.options(home).feed}:*".encode()))
        held = servers.read(names, lambda pipeline, name: pipeline.xrange(name))
        servers.close()
        told = dict(zip((name.decode() for name in names), map(events_in, held), strict=True))
        seen: set[Ddl] = set()
        for name, events in told.items():
            told[name] = [event for event in events if not (isinstance(event, Ddl) and event in seen)]
            seen |= {event for event in events if isinstance(event, Ddl)}
        return ReadBack(log=told)


def events_in(entries: list[tuple[bytes, dict[bytes, bytes]]]) -> list[Event]:
    """The events of a stream."""
    reader = EventReader()
    lines = (reader.read(fields[b"event"]) for _, fields in entries)
    return [line.event for line in lines if line is not None]


@pytest.mark.soak
class TestStreams(TestStream):
    """A stream a table, on three servers."""

    streams = "{schema}:{table}"

    @pytest.fixture(autouse=True)
    def _hosts(self, cluster: tuple[tuple[str, int], ...]) -> None:
        self.hosts = cluster


@pytest.mark.more
class TestCluster(TestHash):
    """Hashes on three servers."""

    @pytest.fixture(autouse=True)
    def _hosts(self, cluster: tuple[tuple[str, int], ...]) -> None:
        self.hosts = cluster


class TestInvalidate(SinkContract):
    """Keys that an application caches, of key columns and others. At the start of each life it has asked for all that
    there ever is, and has what was there at the checkpoint; none of it that is left may differ from what is there in
    the end."""

    run = staticmethod(run_here)
    guarantee = "exactly once"
    refuses = ("unreadable",)
    whole_rows = True

    @pytest.fixture(autouse=True)
    def _hosts(self, server: tuple[tuple[str, int], ...]) -> Iterator[None]:
        self.hosts = server
        with Redis(*server[0], decode_responses=True) as self.client:
            self.client.flushall()
            yield

    def sink(self, home: Path) -> Sink[Any]:
        """A sink whose progress lies in Redis."""
        feed = hashlib.md5(str(home).encode()).hexdigest()
        return RedisSink(RedisOptions(feed, self.hosts, mode="invalidate", invalidated=KEYS))

    def live(self, home: Path, source: ScriptedSource, **how: Any) -> Any:
        """Run a new sink over a full cache."""
        self.client.mset({**cache_of(source.script, self.checkpoint(home)), "other:1": "x"})
        return super().live(home, source, **how)

    def holds(self, home: Path, story: Script, upto: int, **how: bool) -> None:  # noqa: ARG002  a cache of one feed
        """Assert that what is still cached is as of `upto`."""
        truth = cache_of(story, upto)
        held = {key: self.client.get(key) for key in truth if self.client.exists(key)}
        assert held == {key: truth[key] for key in held}
        assert self.client.get("other:1") == "x"


def cache_of(story: Script, ts: int) -> dict[str, str]:
    """What an application has cached at a ts that has asked for every row that there is at any time."""
    times = {event.commit_ts or 0 for event in story.events}
    asked = {key: "nothing" for at in times for key in all_cached(story, at)}
    return {**asked, **all_cached(story, ts)}
