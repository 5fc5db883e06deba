"""The statements that write a sync point, over the port of an embedded TiDB and to a real MariaDB."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.mariadb import running_server
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.listener import Upstream

pytestmark = pytest.mark.slow
TABLES = (
    "CREATE DATABASE tidegate",
    "CREATE DATABASE IF NOT EXISTS tidb_cdc",
    "CREATE TABLE tidegate.progress (feed VARCHAR(64) PRIMARY KEY, epoch BIGINT, position BIGINT UNSIGNED)",
    "INSERT INTO tidegate.progress VALUES ('f', 1, 10)",
    """CREATE TABLE IF NOT EXISTS tidb_cdc.syncpoint_v1 (
        ticdc_cluster_id varchar(255), changefeed varchar(255), primary_ts varchar(18), secondary_ts varchar(18),
        created_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, INDEX (created_at),
        PRIMARY KEY (changefeed, primary_ts))""",
)
FENCE = "UPDATE tidegate.progress SET position = %s WHERE feed = 'f' AND epoch = 1"
POINT = (
    "INSERT INTO tidb_cdc.syncpoint_v1 (ticdc_cluster_id, changefeed, primary_ts, secondary_ts) "
    "VALUES ('default', 'f', %s, %s) ON DUPLICATE KEY UPDATE secondary_ts = VALUES(secondary_ts)"
)
OLD = "DELETE FROM tidb_cdc.syncpoint_v1 WHERE changefeed = 'f' AND created_at < %s"
POINTS = "SELECT changefeed, primary_ts, secondary_ts FROM tidb_cdc.syncpoint_v1 ORDER BY primary_ts"


@pytest.fixture(params=["tidb", "mariadb"])
def cursor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A cursor of either server, with the tables."""
    if request.param == "mariadb":
        with running_server(tmp_path) as server:
            yield from connected(server.port)
    else:
        with Upstream(Cluster.open()) as upstream:
            yield from connected(upstream.ports["n1"])


def connected(port: int, tables: tuple[str, ...] = TABLES) -> Iterator[Any]:
    """A cursor at a port, when the tables are made."""
    options = {"host": "127.0.0.1", "port": port, "user": "root", "autocommit": True}
    with pymysql.connect(**options) as connection, connection.cursor() as found:  # type: ignore[call-overload]
        for statement in tables:
            found.execute(statement)
        yield found


def write(cursor: Any, primary_ts: int, secondary_ts: int, before: str = "2001-01-01 00:00:00") -> tuple[int, ...]:
    """One sync point in one transaction; rows affected by each of its statements."""
    cursor.execute("BEGIN")
    counts = [
        cursor.execute(FENCE, (primary_ts,)),
        cursor.execute(POINT, (str(primary_ts), str(secondary_ts))),
        cursor.execute(OLD, (before,)),
    ]
    cursor.execute("COMMIT")
    return tuple(counts)


def points(cursor: Any) -> list[tuple[object, ...]]:
    """What the table of sync points tells."""
    cursor.execute(POINTS)
    return list(cursor.fetchall())


def test_transaction(cursor: Any) -> None:
    """A sync point is one transaction with the fence: repeated it replaces itself, and old ones go when it comes."""
    assert write(cursor, 20, 7) == (1, 1, 0)
    assert write(cursor, 20, 8) == (0, 2, 0)
    assert points(cursor) == [("f", "20", "8")]

    assert write(cursor, 30, 9, "2999-01-01 00:00:00") == (1, 1, 2)
    assert points(cursor) == []


def test_secondary(tmp_path: Path) -> None:
    """What `@@tidb_current_ts` told in the transaction is set as external ts, at which others read; the sync point and
    the rows of its moment outlive the server."""
    with Upstream(Cluster.open(tmp_path)) as upstream:
        for cursor in connected(upstream.ports["n1"]):
            cursor.execute("CREATE TABLE test.t (id INT PRIMARY KEY)")
            cursor.execute("INSERT INTO test.t VALUES (1)")
            cursor.execute("BEGIN")
            cursor.execute(FENCE, (20,))
            cursor.execute("SELECT @@tidb_current_ts")
            ((secondary_ts,),) = cursor.fetchall()
            cursor.execute(POINT, ("20", secondary_ts))
            cursor.execute("COMMIT")
            cursor.execute("SET GLOBAL tidb_external_ts = %s", (secondary_ts,))
            cursor.execute("INSERT INTO test.t VALUES (2)")
            cursor.execute("SET tidb_enable_external_ts_read = ON")
            cursor.execute("SELECT id FROM test.t")

            assert cursor.fetchall() == ((1,),)
    with Upstream(Cluster.open(tmp_path)) as upstream:
        for cursor in connected(upstream.ports["n1"], ()):
            assert points(cursor) == [("f", "20", str(secondary_ts))]
            cursor.execute(f"SET tidb_snapshot = '{secondary_ts}'")
            cursor.execute("SELECT id FROM test.t")
            assert cursor.fetchall() == ((1,),)
