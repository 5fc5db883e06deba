"""`verify` beside a changefeed that runs and writers that write, of more rows than SQL fills an embedded TiDB with."""

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pymysql
import pytest

from tests.mariadb import Server
from tests.verify.shop import filled, now_ts, verified
from tests.verify.test_running import ACCOUNTS, feeding, going, reach, transfers
from tidegate.kv.keys import IntHandle, decode_table_key, mvcc_key, record_key
from tidegate.source.tidb_segment import ROWS
from tidegate_upstream.background import UpstreamOptions
from tidegate_upstream.serve import open_upstream, written_log
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.engine import ColumnFamily
from tidegate_upstream.tidb.session import Session
from tidegate_upstream.tidb.store_mvcc import Write, WriteKind, encode_write

pytestmark = [pytest.mark.slow, pytest.mark.limit(1500)]
SETS = 100
"""Sets of values, which the rows repeat."""
BATCH = 20_000


def fill(cluster: Cluster, rows: int) -> None:
    """Make a table of `rows` rows, most of them written into the store as such, and two small tables."""
    session, storage = Session(cluster.node), cluster.storage
    values = ", ".join(f"({n}, 'customer {n}', {n}.25, '2024-01-{n % 28 + 1:02} 12:00:00')" for n in range(SETS))
    for statement in (
        "CREATE DATABASE shop",
        "CREATE TABLE shop.accounts (id INT PRIMARY KEY, balance DECIMAL(10,2))",
        "CREATE TABLE shop.audit (n INT, what VARCHAR(20))",
        "INSERT INTO shop.accounts VALUES " + ", ".join(f"({n}, 100)" for n in range(ACCOUNTS)),
        "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, name VARCHAR(20), price DECIMAL(10,2), day DATETIME)",
        f"INSERT INTO shop.orders VALUES {values}",
    ):
        session.execute(statement)
    stored = [(key, value) for key, value in storage.snapshot().scan(*ROWS) if b"customer" in value]
    assert len(stored) == SETS
    table, (start_ts, commit_ts) = decode_table_key(stored[0][0]).table_id, storage.oracle.batch(2)
    records = [encode_write(Write(WriteKind.PUT, start_ts, value, 0)) for _, value in stored]
    for first in range(SETS, rows, BATCH):
        keys = ((number, record_key(table, IntHandle(number))) for number in range(first, min(first + BATCH, rows)))
        cluster.engine.write(
            [(ColumnFamily.WRITE, mvcc_key(key, commit_ts), records[number % SETS]) for number, key in keys]
        )


def serve(log: str, rows: int, asked: Connection) -> None:
    """A process that is an embedded TiDB with that table, and writes a change log, until it is told to stop."""
    options = UpstreamOptions(log=log)
    with open_upstream(Path(log), options) as upstream:
        fill(upstream.cluster, rows)
        with written_log(upstream, options):
            asked.send(upstream.ports["n1"])
            asked.recv()


@contextmanager
def serving(log: Path, rows: int) -> Iterator[Server]:
    """That TiDB."""
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=serve, args=(str(log), rows, theirs), daemon=True)
    process.start()
    port = ours.recv()
    connection = pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)
    try:
        yield Server(port, connection)
    finally:
        connection.close()
        ours.send("stop")
        process.join(60)
        process.kill()


@pytest.mark.parametrize(
    "rows", [pytest.param(20_000, marks=pytest.mark.more), pytest.param(1_000_000, marks=pytest.mark.soak)]
)
def test_no_false_difference(tmp_path: Path, mariadb: Server, rows: int) -> None:
    """While a changefeed brings what writers write, also to rows of the large table, no row differs; a value that is
    changed in the target is the only difference."""
    filled(mariadb)
    mariadb.run("DROP DATABASE shop")
    with serving(tmp_path / "log", rows) as upstream, feeding(tmp_path / "log", mariadb):
        address = f"tidb://root@127.0.0.1:{upstream.port}/"
        reach(mariadb, now_ts(upstream), 600)
        statement = f"UPDATE shop.orders SET price = price + 1 WHERE id = {{}} * 7919 % {rows}"
        with going(transfers(upstream, statement)):
            equal = verified(mariadb, address, "--wait", "60")
            after_ts = now_ts(upstream)
        reach(mariadb, after_ts, 600)
        mariadb.run("UPDATE shop.orders SET name = 'x' WHERE id = 17")
        wrong = verified(mariadb, address, "--filter", "shop.orders", "--wait", "60")
    assert (equal.status, equal.wrong) == (0, {}), equal.error
    assert equal.last["ts"] < after_ts
    assert wrong.wrong == {"shop.orders": ["value [17] name: 'customer 17' is 'x'"]}
