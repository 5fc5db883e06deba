"""Keys that an application caches: none outlives what it was made of, and what is not of the change stays."""

from pathlib import Path
from typing import Any

import pytest
from redis.cluster import RedisCluster

from tests.failpoint import REDIS_FAILPOINTS, armed
from tests.redis_server import RedisServer, running_cluster
from tests.sink.sql.test_exactly_once import away, times
from tidegate.model.errors import ConfigError, SinkRefused, UriInvalid
from tidegate.model.table import TableName
from tidegate.schema.state import SchemaState
from tidegate.sink.redis import RedisSink
from tidegate.sink.redis_options import RedisOptions, parse_cache_keys, stream_of
from tidegate.testing.contract import stories
from tidegate.testing.script import Row, Script, ScriptedSource, put, remove, run_here

pytestmark = pytest.mark.slow

KEYS = "row:{table}:{id},shop.t*=by:v:{v}:{n},all:{schema}:{table}:{pk}"


def options(server: RedisServer, keys: str = KEYS, **more: Any) -> RedisOptions:
    """How tests drop keys."""
    return RedisOptions("feed", (("127.0.0.1", server.port),), mode="invalidate", invalidated=keys, **more)


def live(server: RedisServer, story: Script, keys: str = KEYS, until: int | None = None) -> None:
    """One life of a feed."""
    run_here(ScriptedSource(story), RedisSink(options(server, keys)), until=until or story.ts)


def cached(name: str, rows: list[Row]) -> dict[str, str]:
    """What an application caches of a table: each row by three keys, and lists under one."""
    found: dict[str, list[Row]] = {}
    schema, _, table = name.partition(".")
    for row in rows:
        keys = [f"row:{table}:{row['id']}", f"all:{schema}:{table}:{row['id']}"] if "id" in row else []
        if name == "shop.t" and row.get("v") is not None and row.get("n") is not None:
            keys.append(f"by:v:{row['v']}:{row['n']}")
        for key in keys:
            found.setdefault(key, []).append(row)
    return {key: repr(values) for key, values in found.items()}


def all_cached(story: Script, ts: int) -> dict[str, str]:
    """What an application that has asked for everything has cached at a ts."""
    return {key: text for name, rows in story.tables(ts).items() for key, text in cached(name, rows).items()}


def wrong(server: RedisServer, story: Script, ts: int) -> list[str]:
    """The keys that hold what the database does not hold at a ts."""
    client, truth = server.client, all_cached(story, ts)
    keys = [key.decode() for key in client.scan_iter() if not key.startswith((b"_tidegate:", b"other:"))]
    return [key for key in keys if (text := client.get(key)) is None or text.decode() != truth.get(key)]


@pytest.mark.parametrize("kind", [kind for kind in stories.DDLS if kind != "unreadable"])
def test_nothing_stale(server: RedisServer, kind: str) -> None:
    """What was cached before rows and DDLs came is behind them gone, or still true."""
    story = stories.around_ddl(kind)
    live(server, story, until=story.marks[0])
    before = all_cached(story, story.marks[0])
    server.client.mset({**before, "other:1": "x"})
    live(server, story)

    assert wrong(server, story, story.ts) == []
    assert server.client.get("other:1") == b"x"
    if kind != "swap names":
        assert server.client.exists("row:other:1"), "a row that nobody changed stays cached"


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["truncate table", "rename table", "modify column"])
def test_a_cluster(tmp_path: Path, kind: str) -> None:
    """Keys are dropped on the servers that have them."""
    story = stories.around_ddl(kind)
    with running_cluster(tmp_path) as servers:
        cluster = RedisCluster(host="127.0.0.1", port=servers[0].port)
        for until in (story.marks[0], story.ts):
            run_here(ScriptedSource(story), RedisSink(options(servers[1])), until=until)
            if until != story.ts:
                for key, text in all_cached(story, until).items():
                    cluster.set(key, text)
        truth = all_cached(story, story.ts)
        keys = [key.decode() for key in cluster.scan_iter() if not key.startswith(b"_tidegate:")]
        assert keys
        assert [key for key in keys if (cluster.get(key) or b"").decode() != truth.get(key)] == []
        cluster.close()


@pytest.mark.parametrize("place", ["redis/before-write", "redis/after-write", "redis/amid-ddl", "redis/ddl-done"])
def test_a_death_at_each_place(server: RedisServer, place: str) -> None:
    """A feed that dies amid its work leaves nothing stale in its next life; what is cached again since the
    checkpoint goes once more."""
    story = stories.around_ddl("truncate table")
    live(server, story, until=story.marks[0])
    server.client.mset(all_cached(story, story.marks[0]))
    with armed({place: _die}), pytest.raises(SystemExit):
        live(server, story)
    server.client.mset(all_cached(story, RedisSink(options(server)).recover().checkpoint.ts))
    live(server, story)

    assert wrong(server, story, story.ts) == []


def _die() -> None:
    raise SystemExit


def test_lost_answers(server: RedisServer) -> None:
    """Errors of the server are waited out."""
    story = stories.shop()
    with armed({place: times(away, 2) for place in REDIS_FAILPOINTS}):
        live(server, story)
    assert wrong(server, story, story.ts) == []


def test_values_as_they_are(server: RedisServer) -> None:
    """Keys have the old and the new values as an application writes them; a NULL makes none."""
    story = Script()
    story.ddl("shop.u", "CREATE TABLE shop.u (id INT PRIMARY KEY, mail VARCHAR(20), raw VARBINARY(9), ok BOOL)")
    story.commit(put("shop.u", id=1, mail="a:b@x/%", raw=b"\xff\x00", ok=1))
    story.resolve()
    story.commit(put("shop.u", id=1, mail=None))
    story.resolve()
    live(server, story, "m:{mail},r:{raw}:{ok}", story.marks[0])
    server.client.mset({"m:a:b@x/%": "1", b"r:\xff\x00:1": "1", "m:None": "1", "m:": "1"})
    live(server, story, "m:{mail},r:{raw}:{ok}")

    assert sorted(key for key in server.client.scan_iter("[mr]:*")) == [b"m:", b"m:None"]


def test_a_row_that_lacks_a_column(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """A template for one table with a column that it does not have ends the feed, and names the nearest one; one
    that fits no table any more is a warning."""
    story = Script()
    story.ddl("shop.o", "CREATE TABLE shop.o (id INT PRIMARY KEY, customer_id INT)")
    story.commit(put("shop.o", id=1, customer_id=7), put("shop.o", id=2))
    story.commit(remove("shop.o", id=1))
    story.resolve()
    with pytest.raises(ConfigError, match=r"'custmer_id'; did you mean customer_id of shop.o"):
        live(server, story, "shop.o=orders:of:{custmer_id}")
    live(server, story, "shop.*=never:{custmer_id},orders:of:{customer_id}")
    assert "keys of this template are not deleted" in caplog.text


def test_templates_that_fit_no_table(server: RedisServer) -> None:
    """Where the tables are known when a feed begins, it does not begin."""
    story = Script()
    story.ddl("shop.o", "CREATE TABLE shop.o (id INT PRIMARY KEY, customer_id INT, n INT AS (id + 1))")
    state = SchemaState().with_table(story._now.of("shop.o"))
    for keys, why in [
        ("o:{custmer_id}", "'custmer_id'; did you mean customer_id of shop.o"),
        ("shop.o=o:{id}:{nn}", "no matching table has a stored column 'nn'"),
        ("o:{n}", "stored column 'n'"),
    ]:
        sink = RedisSink(options(server, keys))
        with pytest.raises(ConfigError, match=why):
            sink.open(sink.recover()._replace(state=state))
    RedisSink(options(server, "other.*=o:{x}")).open(sink.recover()._replace(state=state))


@pytest.mark.parametrize(
    "text",
    ["", ",", "user", "user:{}", "{id}", "_tidegate:{id}", "_{id}", "a:{id!r}", "a:{id:>4}", "a:{id", "shop=a:{id}"],
)
def test_templates_that_are_refused(text: str) -> None:
    """What names no column, fits any key or the feed's own is an error of the address."""
    with pytest.raises(ConfigError):
        parse_cache_keys(text)


def test_patterns() -> None:
    """The pattern of a table has its names, and a star for each value."""
    story = Script()
    story.ddl("shop.a*b", "CREATE TABLE shop.`a*b` (id INT PRIMARY KEY)")
    table = story._now.state.table(TableName("shop", "a*b"))
    assert table is not None
    found = [template.pattern(table) for template in parse_cache_keys("u[1]:{id},{table}:{id}:x,{{{schema}}}:{table}")]
    assert found == [rb"u\[1\]:*", rb"a\*b:*:x", rb"{shop}:a\*b"]


def test_names_of_streams() -> None:
    """Names stand in a stream's with what parts them escaped."""
    assert stream_of("c:{schema}:{table}", TableName("shop", "a:é")) == "c:shop:a%3Aé".encode()
    assert stream_of("all", TableName("shop", "a")) == b"all"


def test_an_unreadable_ddl(server: RedisServer) -> None:
    """What a DDL did has to be known."""
    with pytest.raises(SinkRefused, match="cannot be followed"):
        live(server, stories.around_ddl("unreadable"))


def test_own_keys_stay(server: RedisServer, tmp_path: Path) -> None:
    """A table that is called as the feed's own keys begin has no pattern that takes them."""
    story = Script()
    story.ddl("_tidegate.progress", "CREATE TABLE `_tidegate`.`progress` (id INT PRIMARY KEY)")
    story.commit(put("_tidegate.progress", id=1))
    story.resolve()
    story.ddl("_tidegate.progress", "TRUNCATE TABLE `_tidegate`.`progress`")
    story.resolve()
    live(server, story, "{schema}:{table}:{id}")
    assert server.client.exists("_tidegate:progress:{feed}")


def test_an_empty_key_of_the_address() -> None:
    """The mode says what it needs."""
    with pytest.raises(UriInvalid, match="needs invalidate-keys"):
        parse_cache_keys("")
