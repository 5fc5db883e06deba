"""Rows are found by the values of unique indexes, whatever moves them, and changed keys are announced once."""

import json
import random
from typing import Any

import pytest

from tests.failpoint import REDIS_FAILPOINTS, armed
from tests.redis_server import RedisServer, running_cluster
from tests.sink.sql.test_exactly_once import times
from tidegate.sink.redis import RedisSink
from tidegate.sink.redis_options import Mode, RedisOptions
from tidegate.sink.redis_server import RedisServers
from tidegate.testing.script import Script, ScriptedSource, put, remove, run_here

pytestmark = pytest.mark.slow

TABLE = (
    "CREATE TABLE shop.u (id INT PRIMARY KEY, mail VARCHAR(20), a INT, b INT, UNIQUE KEY mail (mail), UNIQUE ab (a, b))"
)


def options(*servers: RedisServer, **more: Any) -> RedisOptions:
    """How tests write: few rows a call."""
    hosts = tuple(("127.0.0.1", server.port) for server in servers)
    return RedisOptions("feed", hosts, **{"lookups": True, "batch_rows": 2, **more})


def live(story: Script, *servers: RedisServer, **more: Any) -> None:
    """One life of a feed."""
    run_here(ScriptedSource(story), RedisSink(options(*servers, **more)), until=story.ts)


def found(*servers: RedisServer, mode: Mode = "hash", table: str = "u") -> dict[str, str]:
    """The look-ups, and the row that each of them names."""
    reader = RedisServers(options(*servers, mode=mode))
    keys = [key for keys in reader.scan(f"shop:{table}:by:*".encode()) for key in keys]
    if mode == "json":
        held = [json.loads(text)["key"] for text in reader.read(keys, lambda pipeline, key: pipeline.get(key))]
    else:
        held = [key.decode() for key in reader.read(keys, lambda pipeline, key: pipeline.hget(key, "key"))]
    reader.close()
    return dict(zip((key.decode() for key in keys), held, strict=True))


def wanted(story: Script, table: str = "u", mail: str = "mail") -> dict[str, str]:
    """The look-ups that the rows of a table ask for."""
    told = {}
    for row in story.tables(story.ts).get(f"shop.{table}", []):
        key = f"shop:{table}:{row['id']}"
        if row[mail] is not None:
            told[f"shop:{table}:by:{mail}:{row[mail]}"] = key
        if row["a"] is not None and row["b"] is not None:
            told[f"shop:{table}:by:ab:{row['a']}:{row['b']}"] = key
    return told


def moved(seed: int, ddls: tuple[str, ...] = ()) -> Script:
    """Rows whose unique values go from one to another, rows that get other keys among them; a DDL now and then."""
    story, chance = Script(), random.Random(seed)
    story.ddl("shop.u", TABLE)
    mails: dict[int, str | None] = {}
    for number in range(60):
        free = [f"m{at}" for at in range(12) if f"m{at}" not in mails.values()]
        id_ = chance.randrange(8)
        if id_ in mails and chance.random() < 0.3:
            story.commit(remove("shop.u", id=id_))
            del mails[id_]
        elif len(mails) > 1 and chance.random() < 0.4:
            one, other = chance.sample(sorted(mails), 2)
            mails[one], mails[other] = mails[other], mails[one]
            story.commit(put("shop.u", id=one, mail=mails[one]), put("shop.u", id=other, mail=mails[other]))
        else:
            mails[id_] = chance.choice([*free, None])
            story.commit(put("shop.u", id=id_, mail=mails[id_], a=id_, b=chance.choice([number, None])))
        if chance.random() < 0.2:
            story.resolve()
    for ddl in ddls:
        story.ddl("shop.u", ddl)
    story.resolve()
    return story


@pytest.mark.parametrize(("seed", "mode"), [(1, "hash"), (2, "json"), (3, "hash")])
def test_values_that_move(server: RedisServer, seed: int, mode: Mode) -> None:
    """Each value names the row that has it, and no value names another, after swaps, deletions and NULLs."""
    story = moved(seed)
    live(story, server, mode=mode)
    assert len(wanted(story)) > 5
    assert found(server, mode=mode) == wanted(story)


@pytest.mark.parametrize("place", REDIS_FAILPOINTS)
def test_a_death_at_each_place(server: RedisServer, place: str) -> None:
    """A feed that dies amid rows or a DDL, and an old one that writes again, leave no look-up that is wrong."""
    story = moved(4, ("ALTER TABLE shop.u RENAME COLUMN mail TO post, RENAME INDEX mail TO post",))
    for nth in (1, 3):
        with armed({place: times(_die, nth)}):
            try:
                live(story, server)
            except SystemExit:
                continue
    live(story, server)
    assert found(server) == wanted(story, mail="post")
    server.client.delete("_tidegate:progress:{feed}")  # so that all rows come once more
    live(story, server)
    assert found(server) == wanted(story, mail="post")


def _die() -> None:
    raise SystemExit


@pytest.mark.parametrize(
    ("ddl", "table", "lacks"),
    [
        ("RENAME TABLE shop.u TO shop.v", "v", ""),
        ("TRUNCATE TABLE shop.u", "u", ""),
        ("DROP TABLE shop.u", "u", ""),
        ("ALTER TABLE shop.u DROP INDEX mail", "u", ":by:mail:"),
        ("ALTER TABLE shop.u MODIFY COLUMN a VARCHAR(9), ADD COLUMN c INT FIRST", "u", ""),
    ],
)
def test_ddls(server: RedisServer, ddl: str, table: str, lacks: str) -> None:
    """Look-ups follow their table and their index."""
    story = moved(5, (ddl,))
    live(story, server)
    right = {key: row for key, row in wanted(story, table).items() if not lacks or lacks not in key}
    assert found(server, table=table) == right
    assert [key for key in server.client.scan_iter("shop:*") if not key.startswith(f"shop:{table}:".encode())] == []


def test_an_index_that_is_added(server: RedisServer) -> None:
    """The rows that are there are found by it."""
    story = Script()
    story.ddl("shop.u", "CREATE TABLE shop.u (id INT PRIMARY KEY, mail VARCHAR(20), a INT, b INT, UNIQUE ab (a, b))")
    story.commit(*(put("shop.u", id=number, mail=f"m:{number}") for number in range(5)))
    story.ddl("shop.u", "ALTER TABLE shop.u ADD UNIQUE INDEX mail (mail)")
    story.resolve()
    live(story, server)
    assert found(server) == {f"shop:u:by:mail:m%3A{number}": f"shop:u:{number}" for number in range(5)}


def test_rows_that_are_called_as_look_ups(server: RedisServer) -> None:
    """A row whose key begins as look-ups do has a key of its own, and is no look-up."""
    story = Script()
    story.ddl("shop.u", "CREATE TABLE shop.u (x VARCHAR(9), y VARCHAR(9), z INT, PRIMARY KEY (x, y), UNIQUE y (z))")
    story.commit(put("shop.u", x="by", y="y", z=7), put("shop.u", x="by", y="z", z=8))
    story.resolve()
    live(story, server)
    assert found(server) == {"shop:u:by:y:7": "shop:u:%62y:y", "shop:u:by:y:8": "shop:u:%62y:z"}
    story.ddl("shop.u", "TRUNCATE TABLE shop.u")
    story.resolve()
    live(story, server)
    assert list(server.client.scan_iter("shop:*")) == []


@pytest.mark.soak
def test_a_cluster(tmp_path_factory: pytest.TempPathFactory) -> None:
    """On several servers each look-up is right by itself in the end, and whoever listens at one of them hears all."""
    story = moved(6)
    with running_cluster(tmp_path_factory.mktemp("cluster")) as servers:
        heard = servers[2].client.pubsub(ignore_subscribe_messages=True)
        heard.psubscribe("c:*")
        heard.get_message(timeout=1)
        live(story, *servers[:2], channel="c:{table}")
        assert found(*servers[:2]) == wanted(story)
        told = [json.loads(one["data"]) for one in iter(lambda: heard.get_message(timeout=0.5), None)]
        heard.close()
    rows = {f"shop:u:{row['id']}" for row in story.tables(story.ts)["shop.u"]}
    assert {key for key, gone in {one["key"]: one["gone"] for one in told}.items() if not gone} == rows


def test_announcements(server: RedisServer) -> None:
    """Keys of rows that change are told on their table's channel, each change once, look-ups not; repeats are not."""
    story = moved(7)
    heard = server.client.pubsub(ignore_subscribe_messages=True)
    heard.psubscribe("c:*")
    heard.get_message(timeout=1)
    live(story, server, channel="c:{table}")
    told = list(iter(lambda: heard.get_message(timeout=0.2), None))

    assert {one["channel"] for one in told} == {b"c:u"}
    said = [json.loads(one["data"]) for one in told]
    last = {one["key"]: one["gone"] for one in said}
    rows = {f"shop:u:{row['id']}" for row in story.tables(story.ts)["shop.u"]}
    assert {key for key, gone in last.items() if not gone} == rows
    assert len({(one["key"], one["version"]) for one in said}) == len(said)
    server.client.delete("_tidegate:progress:{feed}")
    live(story, server, channel="c:{table}")
    assert heard.get_message(timeout=0.2) is None
    heard.close()
