"""Sinks whose rows have names, Redis and search, end a feed with an error that names ways out: each leads on."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_redis_sink import rows_here
from tests.contract.test_search_sink import rows_of
from tests.redis_server import running_redis
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import EventRule
from tidegate.model.errors import SinkRefused
from tidegate.sink.redis import RedisSink
from tidegate.sink.redis_options import RedisOptions
from tidegate.sink.redis_server import RedisServers
from tidegate.sink.search import SearchSink
from tidegate.sink.search_embedded import EmbeddedStore
from tidegate.testing.script import Script, ScriptedSource, put, run_here

pytestmark = pytest.mark.slow

Ids = dict[str, list[Any]]
Live = Callable[..., Ids]


def ids(tables: dict[str, Any]) -> Ids:
    """The keys of the rows of each table that has some."""
    return {name: sorted(row["id"] for row in rows) for name, rows in tables.items() if rows}


@pytest.fixture(params=["search", "redis"])
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """One life of a feed into such a sink, and what its tables have then."""

    def search(story: Script, feed: str = "feed", **more: Any) -> Ids:
        store = EmbeddedStore(str(tmp_path / feed), feed)
        run_here(ScriptedSource(story), SearchSink(store), until=story.ts, **more)
        return ids(rows_of(store))

    if request.param == "search":
        yield search
        return
    with running_redis(tmp_path / "redis") as server:

        def redis(story: Script, feed: str = "feed", **more: Any) -> Ids:
            template = f"{feed}:{{schema}}:{{table}}:{{pk}}"
            options = RedisOptions(feed, (("127.0.0.1", server.port),), template=template)
            sink, servers = RedisSink(options), RedisServers(options)
            run_here(ScriptedSource(story), sink, until=story.ts, **more)
            known = sink.recover().state.tables.values()
            found = {str(table.name): rows_here(servers, table) for table in known}
            servers.close()
            return ids(found)

        yield redis


def begun(*tables: str) -> Script:
    """Tables of one row each."""
    story = Script()
    for table in tables:
        story.ddl(table, f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)")
        story.commit(put(table, id=1, v=1))
    return story


def ended(live: Live, story: Script, rules: Sequence[str] = ("*.*",)) -> str:
    """What the error of a feed says."""
    with pytest.raises(SinkRefused) as met:
        live(story, rules=rules)
    return str(met.value)


def test_a_table_that_comes_back(live: Live) -> None:
    """Its rows are gone. With the DDL left out by an event filter the feed goes on with those that come; a new
    changefeed that begins with the rows has all."""
    story = begun("s.t", "s.u")
    story.ddl("s.t", "DROP TABLE s.t")
    story.resolve()
    story.ddl("s.t", "RECOVER TABLE s.t")
    story.commit(put("s.t", id=3, v=3), put("s.u", id=4, v=4))
    story.resolve()
    told = ended(live, story)
    assert "create a new changefeed that includes them, or exclude the DDL by an event filter" in told

    events = EventFilter.of((EventRule(matcher=("s.t",), ignore_event=("recover table",)),), None)
    assert live(story, drops=events.ddls()) == {"s.t": [3], "s.u": [1, 4]}
    fresh = begun("s.t", "s.u")
    fresh.commit(put("s.t", id=3, v=3), put("s.u", id=4, v=4))
    fresh.resolve()
    assert live(fresh, "fresh") == {"s.t": [1, 3], "s.u": [1, 4]}


def test_a_key_of_which_two_numbers_have_one_name(live: Live) -> None:
    """With its table left out by a filter rule the feed goes on, the other tables whole."""
    story = begun("s.u")
    story.ddl("s.t", "CREATE TABLE s.t (id ENUM('', 'x') PRIMARY KEY)")
    story.commit(put("s.t", id=0), put("s.u", id=2, v=2))
    story.resolve()
    assert "exclude the table by a filter" in ended(live, story)

    assert live(story, rules=("*.*", "!s.t")) == {"s.u": [1, 2]}
