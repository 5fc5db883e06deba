"""`tidegate verify` of a Redis beside a recording, a lake and an embedded TiDB."""

import json
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.lakes.stages import Play
from tests.log_source import log_source
from tests.mariadb import Server
from tests.redis_server import RedisServer, running_redis
from tests.replay.test_database import WORKLOAD, recorded, truths
from tests.verify.conftest import embedded
from tests.verify.shop import TABLES, filled, now_ts
from tidegate.cli.main import main
from tidegate.sink.redis import RedisSink
from tidegate.sink.redis_options import Mode, RedisOptions
from tidegate.testing.script import run_here

pytestmark = pytest.mark.slow
MOMENT = 3
EXAMPLE = Path(__file__).parents[2] / "examples" / "cache_aside.py"


def feed(server: RedisServer, log: Path, until: int, mode: Mode = "hash", **more: Any) -> None:
    """Brings a Redis to a ts."""
    end_s = time.monotonic() + 60
    reached = 0
    while reached < until:  # a log that is being written ends before that
        assert time.monotonic() < end_s
        sink = RedisSink(RedisOptions("feed", (("127.0.0.1", server.port),), mode=mode, **more))
        reached = run_here(log_source(log), sink, until=until).checkpoint_ts or 0


def said(server: RedisServer, source: str, *more: str, query: str = "") -> tuple[int, list[dict[str, Any]], str]:
    """Exit status, lines and complaint of the command."""
    words = ["verify", f"redis://127.0.0.1:{server.port}/{query}", "--upstream", source, "--json", *more]
    done = CliRunner().invoke(main, words)
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def differing(lines: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """What each table that differs shows."""
    return {line["table"]: line["shown"] for line in lines if not line.get("equal", True) and "table" in line}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The change log of the recording."""
    return recorded(tmp_path_factory.mktemp("segments"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis."""
    with running_redis(tmp_path / "redis") as found:
        yield found


def test_beside_a_recording(server: RedisServer, log: Path) -> None:
    """Rows are equal at a recorded moment; keys that are missing, extra and different are told with table and key, and
    those that changed behind the moment are not."""
    ts = truths()[MOMENT - 1]["ts"]
    feed(server, log, ts)
    status, lines, error = said(server, str(WORKLOAD))
    assert (status, differing(lines), error) == (0, {}, "")
    assert lines[-1]["ts"] == ts
    assert lines[-1]["tables"] > 5

    client = server.client
    first, second, third = sorted(client.scan_iter("bank:accounts:*"))[:3]
    client.delete(first)
    client.hset(second, "balance", "-1")
    client.hset("bank:accounts:999999", mapping=client.hgetall(third))
    client.hset("bank:accounts:999999", "id", "999999")
    status, lines, _ = said(server, str(WORKLOAD))
    (shown,) = differing(lines).values()
    assert status == 1
    assert {(one["kind"], one["key"], one.get("found")) for one in shown} == {
        ("missing", first.decode(), None),
        ("different", second.decode(), -1),
        ("extra", "bank:accounts:999999", None),
    }
    words = ["verify", f"redis://127.0.0.1:{server.port}/", "--upstream", str(WORKLOAD)]
    plain = CliRunner().invoke(main, [*words, "--filter", "bank.*"]).stdout
    assert "bank.accounts: 3 keys differ" in plain
    assert f"different  {second.decode()} column balance: expected " in plain

    later = f"{ts + 1:019d}.000000001"
    client.hset(second, "_tidegate_version", later)
    client.hset("bank:accounts:999999", "_tidegate_version", later)
    client.set(f"_tidegate:{{{first.decode()}}}", later)
    assert said(server, str(WORKLOAD))[0] == 0


@pytest.mark.soak
def test_beside_a_lake(server: RedisServer, log: Path, tmp_path: Path) -> None:
    """Rows are equal to those of a lake's snapshot."""
    ts = truths()[MOMENT - 1]["ts"]
    feed(server, log, ts)
    play = Play(tmp_path / "lake")
    play.land(ts)
    play.merge(ts)
    status, lines, error = said(server, f"delta://{tmp_path / 'lake'}")
    assert (status, differing(lines), error) == (0, {}, "")


@pytest.mark.soak
def test_documents(server: RedisServer, log: Path) -> None:
    """Rows as JSON are read back as what they were."""
    feed(server, log, truths()[MOMENT - 1]["ts"], "json")
    status, lines, error = said(server, str(WORKLOAD), query="?mode=json")
    assert (status, differing(lines), error) == (0, {}, "")


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """An embedded TiDB, and its change log."""
    log = tmp_path_factory.mktemp("log")
    with embedded(log) as upstream:
        yield upstream, log


def test_the_example(server: RedisServer, logged: tuple[Server, Path]) -> None:
    """An application that reads through the cache has answers from there until their rows change, whoever changes
    them; what it is told of no order is dropped with the order's INSERT."""
    upstream, log = logged
    keys = "shop.orders=order:{id},shop.orders=orders:of:{customer_id}"
    upstream.run("CREATE DATABASE IF NOT EXISTS shop", "DROP TABLE IF EXISTS shop.orders")
    upstream.run("CREATE TABLE shop.orders (id INT PRIMARY KEY, customer_id INT, status VARCHAR(9))")
    upstream.run("INSERT INTO shop.orders VALUES (1, 7, 'new'), (2, 7, 'new'), (3, 8, 'new')")
    orders = runpy.run_path(str(EXAMPLE))["Orders"](upstream.connection, server.client)

    def followed() -> None:
        feed(server, log, now_ts(upstream), "invalidate", invalidated=keys)

    followed()
    assert orders.order(4) is None
    assert (orders.of(7), orders.of(8)) == ([[1, 7, "new"], [2, 7, "new"]], [[3, 8, "new"]])
    upstream.run("UPDATE shop.orders SET customer_id = 8 WHERE id = 2", "INSERT INTO shop.orders VALUES (4, 9, 'new')")
    followed()
    assert (orders.of(7), orders.of(8)) == ([[1, 7, "new"]], [[2, 8, "new"], [3, 8, "new"]])
    assert orders.order(4) == [4, 9, "new"]
    assert orders.answers == {"cache": 0, "database": 6}
    upstream.run("UPDATE shop.orders SET status = 'paid' WHERE id = 1")
    followed()
    assert (orders.of(8), orders.order(4), orders.of(7)) == (
        [[2, 8, "new"], [3, 8, "new"]],
        [4, 9, "new"],
        [[1, 7, "paid"]],
    )
    assert orders.answers == {"cache": 2, "database": 7}
    upstream.run("TRUNCATE TABLE shop.orders")
    followed()
    words = [sys.executable, str(EXAMPLE), f"127.0.0.1:{upstream.port}", f"127.0.0.1:{server.port}", "7"]
    said = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    assert said == ["[] {'cache': 0, 'database': 1}", "[] {'cache': 1, 'database': 1}"]


def test_beside_a_tidb(server: RedisServer, logged: tuple[Server, Path]) -> None:
    """Values of all kinds are equal to those of an embedded TiDB that goes on."""
    upstream, log = logged
    filled(upstream)
    ts = now_ts(upstream)
    upstream.run("UPDATE shop.customers SET name = 'later' WHERE id = 1")
    feed(server, log, ts)
    source = f"tidb://root@127.0.0.1:{upstream.port}/"
    status, lines, error = said(server, source, "--at", str(ts))
    assert (status, differing(lines), error) == (0, {}, "")
    assert lines[-1]["tables"] == len(TABLES) - 1, "a table without a key is left out"
    server.client.hdel("shop:kinds:1", "utf")
    status, lines, _ = said(server, source, "--at", str(ts))
    assert differing(lines) == {
        "shop.kinds": [{"kind": "different", "key": "shop:kinds:1", "column": "utf", "expected": "é", "found": None}]
    }
    feed(server, log, now_ts(upstream))
    assert said(server, source, "--at", str(ts), "--filter", "shop.customers")[0] == 0
    assert said(server, source, "--at", str(now_ts(upstream)), "--wait", "0")[0] == 1


def test_look_ups(server: RedisServer, logged: tuple[Server, Path]) -> None:
    """With lookups=true those are compared with the rows that they name."""
    upstream, log = logged
    upstream.run("CREATE DATABASE IF NOT EXISTS shop", "DROP TABLE IF EXISTS shop.users")
    upstream.run("CREATE TABLE shop.users (id INT PRIMARY KEY, mail VARCHAR(20), UNIQUE KEY mail (mail))")
    upstream.run("INSERT INTO shop.users VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, NULL)")
    feed(server, log, now_ts(upstream), lookups=True)
    words = f"tidb://root@127.0.0.1:{upstream.port}/", "--filter", "shop.users"
    assert said(server, *words, query="?lookups=true")[0] == 0
    client = server.client
    client.delete("shop:users:by:mail:a")
    client.hset("shop:users:by:mail:b", "key", "shop:users:3")
    client.hset("shop:users:by:mail:x", mapping=client.hgetall("shop:users:by:mail:c"))
    assert said(server, *words)[0] == 0
    status, lines, _ = said(server, *words, query="?lookups=true")
    assert status == 1
    assert sorted((one["kind"], one["key"]) for one in differing(lines)["shop.users"]) == [
        ("different", "shop:users:by:mail:b"),
        ("extra", "shop:users:by:mail:b"),
        ("extra", "shop:users:by:mail:x"),
        ("missing", "shop:users:by:mail:a"),
    ]


@pytest.mark.parametrize(
    ("query", "more", "why"),
    [
        ("?mode=stream", (), "stores no rows"),
        ("", (), "none has"),
        ("", ("--changefeed", "x"), "no changefeed x writes"),
    ],
)
def test_what_cannot_be_compared(server: RedisServer, query: str, more: tuple[str, ...], why: str) -> None:
    """A Redis without rows of a changefeed is an error that says so."""
    status, _, error = said(server, str(WORKLOAD), *more, query=query)
    assert status == 1
    assert why in error
