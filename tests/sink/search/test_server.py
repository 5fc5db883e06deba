"""Indexes of a real search server: right whatever breaks, without a gap for readers, no faster than it can take."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tests.contract.test_search_sink import rows_of
from tests.failpoint import SEARCH_FAILPOINTS, armed
from tests.search_server import ELASTICSEARCH, PRODUCTS, SearchServer, running_search
from tests.sink.search.test_embedded import swap
from tests.sink.sql.test_exactly_once import away, times
from tidegate.changelog import files
from tidegate.cli.main import main
from tidegate.engine.plan import Checkpoint
from tidegate.engine.progress import Progress
from tidegate.model.errors import Fenced, InputError, SinkError, SinkRefused
from tidegate.sink.search import RowDocument, SearchOptions, SearchSink
from tidegate.sink.search_mapping import IndexRule, write_alias
from tidegate.sink.search_server import PROGRESS, BulkWriter, ServerStore
from tidegate.testing import validators
from tidegate.testing.contract import stories
from tidegate.testing.script import Script, ScriptedSource, put, remove, run_here

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[3] / "examples" / "search_shop.py"
PRESSURE_BYTES = 40_000
"""As much of bulks is in the server's memory at a time; a larger one is refused with 429."""
QUICK = "search/amid-fill"
FAILPOINTS = [pytest.param(place, marks=[] if place == QUICK else pytest.mark.soak) for place in SEARCH_FAILPOINTS]


@pytest.fixture(scope="module", params=PRODUCTS)
def server(request: pytest.FixtureRequest) -> Iterator[SearchServer]:
    """A search server for the cases of this file, that takes little at a time."""
    with running_search(f"indexing_pressure.memory.limit: {PRESSURE_BYTES}b", product=request.param) as found:
        yield found


@pytest.fixture
def store(server: SearchServer) -> ServerStore:
    """Names for one case."""
    feed = os.urandom(4).hex()
    return ServerStore(server.options, feed, f"{feed}-")


def live(store: ServerStore, story: Script, *rules: IndexRule) -> None:
    """One life of a feed."""
    run_here(ScriptedSource(story), SearchSink(store, SearchOptions(rules, store.prefix)), until=story.ts)


def unlike(store: ServerStore, story: Script) -> list[str]:
    """What is wrong with the rows of tables with a key."""
    wanted = {name: rows for name, rows in story.tables(story.ts).items() if name != "shop.visits"}
    return list(validators.unlike(wanted, rows_of(store)))


def small() -> Script:
    """A table of two rows."""
    story = Script()
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(90), n BIGINT)")
    story.commit(put("shop.t", id=1, v="red shoes", n=5), put("shop.t", id=2, v="blue shoes", n=7))
    story.resolve()
    return story


@pytest.mark.parametrize("place", FAILPOINTS)
def test_a_lost_answer(store: ServerStore, place: str) -> None:
    """An error before, amid and behind a write or a DDL is waited out, and all rows are right."""
    story = stories.shop()
    with armed({place: times(away, 2)}):
        live(store, story)
    assert not unlike(store, story)


@pytest.mark.parametrize("puts_first", [False, True])
def test_keys_that_are_swapped(store: ServerStore, monkeypatch: pytest.MonkeyPatch, *, puts_first: bool) -> None:
    """Of one transaction the row that comes under a key wins over the one that goes, though each is sent alone."""
    monkeypatch.setattr(files, "PART_BYTES", 1)
    story = swap(puts_first=puts_first)
    live(store, story)
    assert not unlike(store, story)


@pytest.mark.parametrize("place", FAILPOINTS)
def test_an_outage(server: SearchServer, store: ServerStore, place: str) -> None:
    """A server that is killed and stays away is waited for: the feed warns, and goes on when it is back."""
    story = stories.shop()
    states: list[str] = []

    def report(progress: Progress) -> None:
        states.append(progress.state)
        if progress.state == "warning" and not server.is_up():
            server.start()

    with armed({place: times(server.kill, 1)}):
        sink = SearchSink(store, SearchOptions(prefix=store.prefix))
        run_here(ScriptedSource(story), sink, until=story.ts, report=report)
    assert "warning" in states
    assert states[-1] == "finished"
    assert not unlike(store, story)


@pytest.mark.soak
@pytest.mark.parametrize("place", SEARCH_FAILPOINTS)
def test_a_server_that_restarts(server: SearchServer, store: ServerStore, place: str) -> None:
    """A server that is killed and comes back interrupts nothing."""
    story = stories.shop()
    with armed({place: times(server.restart, 1)}):
        live(store, story)
    assert not unlike(store, story)


@pytest.mark.parametrize("kind", ["swap names", "exchange partition", "rename column"])
def test_a_ddl_that_stops_half_way(store: ServerStore, kind: str) -> None:
    """A feed that dies while a new index is filled, or before its aliases move, makes it good in its next life."""
    story = stories.around_ddl(kind)

    def die() -> None:
        raise SystemExit

    for place in ("search/amid-fill", "search/published"):
        with armed({place: times(die, 1)}):
            try:
                live(store, story)
            except SystemExit:
                continue
    live(store, story)
    assert not unlike(store, story)
    answer = store._calls.ask("GET", f"/tidegate-{store.feed}/_alias").json()
    assert len(answer) == len(store.take().indexes), "an index is left that nobody names"


def test_readers_see_no_gap(store: ServerStore) -> None:
    """At each step of a DDL a reader finds all rows by the table's alias: as they were, then as they are."""
    story = small()
    story.ddl("shop.t", "ALTER TABLE shop.t CHANGE COLUMN v w VARCHAR(90)")
    story.resolve()
    story.ddl("shop.t", "ALTER TABLE shop.t ADD COLUMN x INT DEFAULT 3")
    story.resolve()
    seen: list[tuple[str, ...]] = []

    def look() -> None:
        if found := names(store):
            seen.append(found)

    with armed(
        dict.fromkeys(("search/amid-fill", "search/ddl-done", "search/before-advance", "search/published"), look)
    ):
        live(store, story)
    seen.append(names(store))
    assert list(dict.fromkeys(seen)) == [("id", "n", "v"), ("id", "n", "w"), ("id", "n", "w", "x")]


def names(store: ServerStore) -> tuple[str, ...]:
    """The fields of the two rows, as a reader finds them; () while there is no alias yet."""
    alias = f"{store.prefix}shop.t"
    try:
        store.settle(alias)
        count, found = store.search(alias, "*", 10)
    except (InputError, SinkRefused):
        return ()
    if not count:
        return ()
    assert count == 2, "a reader misses rows"
    return tuple(sorted(json.loads(found[0].source)))


def test_what_comes_late(server: SearchServer, store: ServerStore) -> None:
    """A late task changes nothing: neither a row that is newer nor one that is gone, also across a refresh; a writer of
    an earlier run is shut out, and publishes nothing."""
    story = small()
    live(store, story)
    old_ts = story.ts - 1
    story.commit(put("shop.t", id=1, v="green hat"), remove("shop.t", id=2))
    story.resolve()
    live(store, story)
    published = store.take()
    (made,) = published.indexes
    store.settle(made.index)
    late = [RowDocument("1", old_ts, b'{"id":1,"v":"old"}'), RowDocument("2", old_ts, b'{"id":2,"v":"old"}')]
    with store.writer(made, published.epoch) as writer:
        writer.write(late)
        writer.write([RowDocument("1", old_ts, None)])
    assert not unlike(ServerStore(store.options, store.feed, store.prefix), story)  # becomes the writer
    with (
        pytest.raises(SinkError, match="another run may have taken over"),
        store.writer(made, published.epoch) as writer,
    ):
        writer.write([RowDocument("9", story.ts + 1, b'{"id":9}')])
    with pytest.raises(Fenced):
        store.check(published.epoch)
    with pytest.raises(Fenced):
        store.keep(published)
    assert not unlike(store, story)


def test_a_server_restored_while_its_feed_runs(store: ServerStore) -> None:
    """Progress that went back under the writer's own epoch is not written over: the run ends, and the next one, as the
    error says it, goes on from what is there."""
    story = small()
    live(store, story)
    before = store.take()
    after = msgspec.structs.replace(before, checkpoint=Checkpoint(story.ts + 1))
    store.keep(after)
    store._calls.ask("PUT", f"/{PROGRESS}/_doc/{store.feed}", before)

    with pytest.raises(SinkRefused, match=r"restored from a snapshot.* start the changefeed again"):
        store.keep(msgspec.structs.replace(after, checkpoint=Checkpoint(story.ts + 2)))

    again = ServerStore(store.options, store.feed, store.prefix)
    assert again.take().checkpoint == before.checkpoint
    story.commit(put("shop.t", id=3, v="green hat"))
    story.resolve()
    live(store, story)
    assert not unlike(store, story)


def test_bulks_are_halved(store: ServerStore) -> None:
    """A server that refuses a bulk with 429 gets smaller ones after a pause, and has all rows in the end."""
    live(store, small())
    published = store.take()
    (made,) = published.indexes
    pauses: list[float] = []
    writer = BulkWriter(store._calls, write_alias(made.index, published.epoch), pause=pauses.append)
    rows = [RowDocument(str(n), 1 << 62, b'{"id":%d,"v":"%s"}' % (n, b"x" * 200)) for n in range(1000)]
    writer.write(rows)
    assert pauses[:3] == [0.1, 0.2, 0.4]
    assert writer.rows < 500
    store.settle(made.index)
    assert store.search(made.index, "*", 1)[0] == 1000


def test_a_server_that_takes_nothing(store: ServerStore) -> None:
    """A row that never finds room is an error that may pass, and tells the server's own words."""
    live(store, small())
    published = store.take()
    (made,) = published.indexes
    writer = BulkWriter(store._calls, write_alias(made.index, published.epoch), pause=lambda _: None)
    with pytest.raises(SinkError, match="rejected_execution") as failed:
        writer.write([RowDocument("1", 1 << 62, b'{"v":"%s"}' % (b"x" * PRESSURE_BYTES))])
    assert not isinstance(failed.value, SinkRefused)


def test_an_index_that_somebody_removed(store: ServerStore) -> None:
    """It is told at the next begin, with what to do; with its progress gone as well the feed begins anew."""
    story = small()
    live(store, story)
    (made,) = store.take().indexes
    store._calls.ask("DELETE", f"/{made.index}")
    with pytest.raises(SinkRefused, match="is missing"):
        store.take()
    store._calls.ask("DELETE", f"/{PROGRESS}/_doc/{store.feed}")
    live(store, story)
    assert not unlike(store, story)


def test_a_name_that_is_taken(store: ServerStore) -> None:
    """An index of somebody else's, or another changefeed's alias, ends the feed before it writes there."""
    live(store, small())
    other = ServerStore(store.options, os.urandom(4).hex(), store.prefix)
    with pytest.raises(SinkRefused, match="set another index-prefix"):
        live(other, small())
    own = ServerStore(store.options, os.urandom(4).hex(), f"{store.feed}2-")
    own._calls.ask("PUT", f"/{own.prefix}shop.t", {})
    with pytest.raises(SinkRefused, match="set another index-prefix"):
        live(own, small())
    assert not unlike(store, small())


def test_the_command(server: SearchServer, store: ServerStore) -> None:
    """`tidegate search` asks a server as it asks a directory."""
    live(store, small())
    store.settle(f"{store.prefix}shop.t")
    uri = f"opensearch://127.0.0.1:{server.port}?index-prefix={store.prefix}"
    told = CliRunner().invoke(main, ["search", "shop.t", "v:red AND n:[4 TO 6]", "--sink-uri", uri, "--json"])
    found = json.loads(told.output)
    assert (found["count"], found["rows"][0]["row"]) == (1, {"id": 1, "v": "red shoes", "n": 5})
    gone = CliRunner().invoke(main, ["search", "shop.none", "x", "--sink-uri", uri])
    assert gone.exit_code == 1
    assert "no such index" in gone.output


def test_the_example(server: SearchServer, store: ServerStore) -> None:
    """The reader among the examples finds rows of a server by the table's alias."""
    live(store, small())
    store.settle(f"{store.prefix}shop.t")
    words = [sys.executable, str(EXAMPLE), f"http://127.0.0.1:{server.port}", f"{store.prefix}shop.t", "v:red"]
    (line,) = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    assert line.partition(" ")[2] == str({"id": 1, "v": "red shoes", "n": 5})


def test_every_type(server: SearchServer, store: ServerStore) -> None:
    """What a search finds by value: numbers by range, moments by range, whole words of ENUM; what a server cannot read
    is kept. Elasticsearch has unsigned_long in a module that is not among its jars."""
    story = Script()
    columns = """id INT PRIMARY KEY, big BIGINT UNSIGNED, price DECIMAL(9, 2), kind ENUM('red', 'blue'), at DATETIME(6),
    day DATE, doc JSON, raw VARBINARY(9), `a.b` INT, a INT, _id VARCHAR(9)"""
    story.ddl("shop.t", f"CREATE TABLE shop.t ({columns})")
    row = {"id": 1, "big": (1 << 64) - 1, "price": "12.50", "kind": 1, "at": "2024-02-29 12:00:00.120000"}
    story.commit(
        put("shop.t", **row, day="2024-02-29", doc='{"x": [1, {"y": "z"}]}', raw=b"\x00\xff", a=1, _id="own"),
        put("shop.t", id=2, at="0000-00-00 00:00:00.000000", day="0000-00-00", doc='"text"', **{"a.b": 3}),
    )
    story.resolve()
    is_bare = server.product is ELASTICSEARCH
    live(store, story, *([IndexRule(("shop.t",), fields={"big": {"type": "keyword"}})] if is_bare else []))
    alias = f"{store.prefix}shop.t"
    store.settle(alias)
    queries = {
        "big:18446744073709551615": ["1"],
        "price:[12 TO 13]": ["1"],
        "kind:red": ["1"],
        'at:["2024-02-29 11:59:59" TO "2024-02-29 12:00:01"]': ["1"],
        "a%2eb:3": ["2"],
        "%5fid:own": ["1"],
    }
    assert {words: [one.id for one in store.search(alias, words, 9)[1]] for words in queries} == queries
    held = {one.id: json.loads(one.source) for one in store.search(alias, "*", 9)[1]}
    assert held["1"] == {
        "id": 1,
        "big": (1 << 64) - 1,
        "price": "12.50",
        "kind": "red",
        "at": "2024-02-29 12:00:00.120000",
        "day": "2024-02-29",
        "doc": {"x": [1, {"y": "z"}]},
        "raw": "AP8=",
        "a%2eb": None,
        "a": 1,
        "%5fid": "own",
    }
    assert (held["2"]["day"], held["2"]["doc"]) == ("0000-00-00", "text")
    with pytest.raises(InputError, match="Failed to parse"):
        store.search(alias, "red AND (", 1)
