"""At which moment a replica is compared, and what is said where there is none."""

import threading
import time
from collections.abc import Callable

import pytest

from tests.mariadb import QUOTED, Server
from tests.verify.shop import filled, note_point, now_ts, stand, verified

pytestmark = pytest.mark.slow
LEDGER = """CREATE TABLE tidegate.ddl_history (feed VARCHAR(255) NOT NULL, ddl_ts BIGINT UNSIGNED NOT NULL,
    state VARCHAR(16) NOT NULL)"""


@pytest.fixture(autouse=True)
def ts(upstream: Server, replica: Server) -> int:
    """A ts at which both servers hold the shop."""
    filled(upstream)
    filled(replica)
    return now_ts(upstream)


def address(server: Server) -> str:
    """The address of a server."""
    return f"tidb://root@127.0.0.1:{server.port}/"


def after(wait_s: float, act: Callable[[], None]) -> threading.Thread:
    """Does something in a while."""
    thread = threading.Timer(wait_s, act)
    thread.start()
    return thread


def test_no_changefeed(upstream: Server, replica: Server) -> None:
    """A server that no changefeed writes is no replica."""
    said = verified(replica, address(upstream))

    assert said.status == 1
    assert "several changefeeds, or none, write to 127.0.0.1" in said.error


def test_which_changefeed(upstream: Server, replica: Server, ts: int) -> None:
    """Of several changefeeds one is chosen by its name, and an unknown name is told the known ones."""
    stand(replica, ts)
    stand(replica, 7, feed="other")

    assert "give --changefeed" in verified(replica, address(upstream)).error
    assert "it has other, shop" in verified(replica, address(upstream), "-c", "shpo").error
    assert verified(replica, address(upstream), "-c", "shop").last == {
        "ts": ts,
        "upstream": f"127.0.0.1:{upstream.port} at that ts",
        "target": f"127.0.0.1:{replica.port} where its changefeed stood",
        "tables": 5,
        "different": 0,
        "equal": True,
    }


def test_past(upstream: Server, replica: Server, ts: int) -> None:
    """A moment that the changefeed has passed cannot be had, and the error says where it is."""
    stand(replica, ts)
    said = verified(replica, address(upstream), "--at", str(ts - 1))

    assert said.status == 1
    assert f"is at {ts}" in said.error
    assert "--at latest" in said.error


def test_not_yet(upstream: Server, replica: Server, ts: int) -> None:
    """A moment that the changefeed does not reach in time is an error that says where it is."""
    stand(replica, ts)
    said = verified(replica, address(upstream), "--at", str(ts + 1), "--wait", "0.2")

    assert f"is at {ts}" in said.error
    assert f"--until {ts + 1}" in said.error


@pytest.mark.parametrize("busy", ["shards", "ddl"])
def test_in_the_middle(upstream: Server, replica: Server, ts: int, busy: str) -> None:
    """While a shard or a DDL is ahead of the checkpoint the replica is at no moment, and it is waited for."""
    later = ts + (100_000 << 18)
    stand(replica, ts, *([later] if busy == "shards" else [ts]))
    if busy == "ddl":
        replica.run(LEDGER, f"INSERT INTO tidegate.ddl_history VALUES ('shop', {later}, 'running')")
    early = verified(replica, address(upstream), "--wait", "0.2")
    own = now_ts(upstream)

    def rest() -> None:
        stand(replica, own, own)
        if busy == "ddl":
            replica.run("DELETE FROM tidegate.ddl_history")

    began, thread = time.monotonic(), after(1.0, rest)
    said = verified(replica, address(upstream), "--wait", "30")
    thread.join()

    assert f"between {ts} and where it stands next" in early.error
    assert (said.status, said.last["ts"]) == (0, own)
    assert said.last["target"] == f"127.0.0.1:{replica.port} where its changefeed was held"
    assert time.monotonic() - began > 0.9


def test_account_that_reads(upstream: Server, mariadb: Server, ts: int) -> None:
    """An account that may only read verifies a changefeed that stands, and hears what else needs more."""
    filled(mariadb)
    stand(mariadb, ts)
    user = f"reader:{QUOTED}"
    later = verified(mariadb, address(upstream), "--at", str(ts + 1), user=user)

    assert verified(mariadb, address(upstream), user=user).status == 0
    assert later.status == 1
    assert "INSERT, UPDATE and DELETE in `tidegate`.`holds`" in later.error


def test_sync_points(upstream: Server, tidb: Server) -> None:
    """Of a TiDB a sync point of the past is compared, and the newest one without a ts."""
    filled(tidb)
    points = []
    for name in ("one", "two"):
        for server in (upstream, tidb):
            server.run(f"UPDATE shop.customers SET name = '{name}' WHERE id = 1")
        points.append(now_ts(upstream))
        note_point(tidb, points[-1], now_ts(tidb))
    tidb.run("UPDATE shop.customers SET name = 'three' WHERE id = 1")
    stand(tidb, now_ts(upstream))

    for at, ts in (("latest", points[1]), (str(points[0]), points[0]), (str(points[1]), points[1])):
        said = verified(tidb, address(upstream), "--at", at)
        assert (said.status, said.last.get("ts")) == (0, ts), said.error
    note_point(tidb, points[1] + 1, now_ts(tidb))
    assert verified(tidb, address(upstream)).wrong == {"shop.customers": ["value [1] name: 'two' is 'three'"]}


def test_no_such_moment(upstream: Server, replica: Server, ts: int) -> None:
    """A moment that the upstream cannot show is an error with the way out."""
    future = ts + (3_600_000 << 18)
    stand(replica, future)
    said = verified(replica, address(upstream))

    assert said.status == 1
    assert f"cannot be read at {future}" in said.error
    assert "tidb_gc_life_time" in said.error


@pytest.mark.parametrize("rules", [(), ("--filter", "shop.customers", "--filter", "shop.k*")])
def test_filter(upstream: Server, replica: Server, ts: int, rules: tuple[str, ...]) -> None:
    """Only the chosen tables are compared; a filter that no table passes is an error."""
    stand(replica, ts)
    replica.run("DROP TABLE shop.names")
    said = verified(replica, address(upstream), *rules)

    assert said.status == (0 if rules else 1)
    assert len(said.tables) == (2 if rules else 5)
    assert "nothing was compared" in verified(replica, address(upstream), "--filter", "shoop.*").error


def test_addresses(replica: Server) -> None:
    """What is wrong with an address is said before anything is asked."""
    for upstream, part in (
        ("mysql://root@/", "--upstream:"),
        ("tidb:///log", "--upstream: the server is missing"),
        ("/nowhere", "is not a lake"),
        ("kafka://127.0.0.1/x", "--upstream"),
        ("env:NOT_THERE", "is not set"),
    ):
        said = verified(replica, upstream)
        assert said.status == 1
        assert part in said.error
