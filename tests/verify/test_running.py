"""A changefeed that runs all the time, from an embedded TiDB, and `verify` of what it writes meanwhile."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
import pytest

from tests.contract.test_sql_sink import asked
from tests.log_source import log_source
from tests.mariadb import Server
from tests.verify.shop import FEED, filled, now_ts, verified
from tidegate.engine.loop import Engine, Feed, Meter
from tidegate.engine.ports import LocalTasks
from tidegate.engine.retry_policy import RetryPolicy
from tidegate.sink.sql.connection import SqlOptions
from tidegate.sink.sql.sink import SqlSink
from tidegate_upstream.background import UpstreamOptions, start_upstream, stop_upstream

pytestmark = pytest.mark.slow
ACCOUNTS = 8
Run = Callable[[threading.Event], object]


@contextmanager
def logged(log: Path) -> Iterator[Server]:
    """An embedded TiDB with a change log."""
    process = start_upstream(UpstreamOptions(log=str(log)))
    port = process.port_of(1)
    connection = pymysql.connect(host="127.0.0.1", port=port, user="root", charset="utf8mb4", autocommit=True)
    try:
        yield Server(port, connection)
    finally:
        connection.close()
        stop_upstream(process)


@contextmanager
def feeding(log: Path, replica: Server) -> Iterator[None]:
    """A changefeed that runs in a thread until the block ends."""
    source = log_source(log, feed=FEED)
    sink = SqlSink(SqlOptions(FEED, "127.0.0.1", replica.port, atomicity="none", workers=4))
    feed = Feed(FEED, source, sink, accept=lambda *_: True, patience=RetryPolicy(quick=3, stuck_s=None))
    with going(lambda stop: Engine(feed, LocalTasks(), Meter(lambda _: None), stop).run()):
        yield


@contextmanager
def going(run: Run) -> Iterator[None]:
    """Something that runs in a thread until the block ends; what it raises is raised there."""
    stop, errors = threading.Event(), list[BaseException]()

    def guarded() -> None:
        try:
            run(stop)
        except BaseException as error:  # noqa: BLE001  it is raised below
            errors.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    assert not errors


def transfers(upstream: Server, *more: str) -> Run:
    """Writes transactions over two tables, and of further statements with a number, until it is told to stop."""

    def run(stop: threading.Event) -> None:
        connection = pymysql.connect(host="127.0.0.1", port=upstream.port, user="root")
        with connection, connection.cursor() as cursor:
            number = 0
            while not stop.wait(0.005):
                number += 1
                one, other = number % ACCOUNTS, (number * 3 + 1) % ACCOUNTS
                cursor.execute(f"UPDATE shop.accounts SET balance = balance - 1 WHERE id = {one}")
                cursor.execute(f"UPDATE shop.accounts SET balance = balance + 1 WHERE id = {other}")
                cursor.execute(f"INSERT INTO shop.audit VALUES ({number % 5}, 'transfer')")
                for statement in more:
                    cursor.execute(statement.format(number))
                connection.commit()

    return run


def position(replica: Server) -> int:
    """The checkpoint of the changefeed; 0 before there is one."""
    if not asked(replica, "SELECT 1 FROM information_schema.tables WHERE table_name = 'holds'"):
        return 0
    rows = asked(replica, "SELECT position FROM tidegate.progress WHERE shard = -1")
    return int(rows[0][0]) if rows else 0


def reach(replica: Server, ts: int, within_s: float = 60) -> None:
    """Waits until the changefeed is beyond `ts`."""
    end_s = time.monotonic() + within_s
    while position(replica) < ts:
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_both_run(tmp_path: Path, replica: Server) -> None:
    """While rows are written upstream and arrive, the replica is equal at each moment at which it is compared, chosen
    or not, and goes on; a row that somebody takes out of it is found."""
    filled(replica)
    replica.run("DROP DATABASE shop")
    with logged(tmp_path / "log") as upstream:
        upstream.run(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.accounts (id INT PRIMARY KEY, balance DECIMAL(10,2))",
            "CREATE TABLE shop.audit (n INT, what VARCHAR(20))",
            "INSERT INTO shop.accounts VALUES " + ", ".join(f"({n}, 100)" for n in range(ACCOUNTS)),
        )
        address = f"tidb://root@127.0.0.1:{upstream.port}/"
        with going(transfers(upstream)), feeding(tmp_path / "log", replica):
            reach(replica, now_ts(upstream))
            said = []
            for _ in range(3):
                said.append(verified(replica, address))
                reach(replica, now_ts(upstream))
            soon = now_ts(upstream) + (2000 << 18)
            said.append(verified(replica, address, "--at", str(soon), "--wait", "60"))
            reach(replica, now_ts(upstream))
            replica.run("DELETE FROM shop.audit LIMIT 1")
            wrong = verified(replica, address)

        moments = [one.last.get("ts") for one in said]
        assert [(one.status, one.wrong, one.error) for one in said] == [(0, {}, "")] * 4
        assert moments == sorted(set(moments))
        assert moments[-1] == soon
        assert wrong.wrong.keys() == {"shop.audit"}
        assert len(wrong.wrong["shop.audit"]) == 1
        assert asked(replica, "SELECT COUNT(*) FROM tidegate.holds") == [(0,)]
