"""The whole upstream through a real client: SQL, several nodes, DDL while others write, the past, errors, KILL."""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count, pairwise
from pathlib import Path
from shutil import which

import msgspec
import pymysql
import pytest
from pymysql.constants import CLIENT

from tests.source.large import test_upstream as large
from tidegate.model.errors import TidegateError
from tidegate.model.event import Update
from tidegate.source.large import UpstreamRows, defined
from tidegate_upstream.tidb.cluster import Cluster, ClusterOptions
from tidegate_upstream.tidb.listener import Upstream
from tidegate_upstream.tidb.node import NodeOptions

pytestmark = pytest.mark.slow

Rows = tuple[tuple[object, ...], ...]


class Door:
    """An upstream of two nodes, and connections to it."""

    def __init__(self, *, metadata_lock: bool = True, directory: Path | None = None) -> None:
        options = ClusterOptions(NodeOptions(metadata_lock=metadata_lock))
        self.upstream = Upstream(Cluster.open(directory, nodes=("n1", "n2"), options=options))

    def connect(self, node: str = "n1", **options: object) -> "Client":
        """A client of a node."""
        return Client(
            pymysql.connect(
                host="127.0.0.1",
                port=self.upstream.ports[node],
                user="root",
                autocommit=True,
                client_flag=CLIENT.MULTI_STATEMENTS,
                **options,  # type: ignore[arg-type]
            )
        )


class Client:
    """A connection that answers with rows."""

    def __init__(self, connection: "pymysql.Connection[pymysql.cursors.Cursor]") -> None:
        self.connection = connection

    def run(self, sql: str, *values: object) -> Rows:
        """The rows of the last statement."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            rows = cursor.fetchall()
            while cursor.nextset():
                rows = cursor.fetchall()
            return tuple(rows)

    def code(self, sql: str) -> int:
        """The number of the error."""
        with pytest.raises(pymysql.MySQLError) as error:
            self.run(sql)
        return int(error.value.args[0])

    def close(self) -> None:
        """Goes."""
        self.connection.close()


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door()
    with made.upstream:
        yield made


def test_a_day_of_a_database(door: Door) -> None:
    """Create, insert, change, select, transact and fail, as a client sees it."""
    with closing(door.connect()) as client:
        client.run(
            "CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20), d DATETIME)"
        )
        with client.connection.cursor() as cursor:
            assert (
                cursor.execute("INSERT INTO t (v, d) VALUES (%s, '2024-01-31 01:02:03'), (%s, NULL)", ("é'\\", "表"))
                == 2
            )
            assert cursor.lastrowid == 1
            assert cursor.execute("UPDATE t SET v = 'x' WHERE id = 2") == 1
        assert str(client.run("SELECT * FROM t WHERE id = 1")[0]) == (
            '(1, "é\'\\\\", datetime.datetime(2024, 1, 31, 1, 2, 3))'
        )
        client.run("BEGIN; DELETE FROM t; ROLLBACK")
        assert client.run("SELECT COUNT(*), MAX(v) FROM t") == ((2, "é'\\"),)
        assert (client.code("SELECT * FROM nope"), client.code("INSERT INTO t VALUES (1, '', NULL)")) == (1146, 1062)
        assert client.run("SHOW WARNINGS") == (("Error", 1062, "Duplicate entry '1' for key 't.PRIMARY'"),)


def test_nodes_share_the_data(door: Door) -> None:
    """What one node commits, rows and definitions, the other one has."""
    with closing(door.connect("n1")) as first, closing(door.connect("n2")) as second:
        first.run("CREATE TABLE test.t (id INT PRIMARY KEY); INSERT INTO test.t VALUES (1)")

        assert second.run("SELECT * FROM test.t") == ((1,),)
        second.run("ALTER TABLE test.t ADD COLUMN v INT DEFAULT 5")
        assert first.run("SELECT * FROM test.t") == ((1, 5),)


CHANGES = (
    "ADD INDEX by_v (v)",
    "ADD COLUMN w INT NOT NULL DEFAULT 3",
    "ADD UNIQUE INDEX by_w (w, id)",
    "MODIFY COLUMN s VARCHAR(40)",
    "MODIFY COLUMN w BIGINT",
    "DROP INDEX by_v",
    "DROP INDEX by_w",
    "DROP COLUMN w",
)


@pytest.mark.more
@pytest.mark.slow
@pytest.mark.parametrize("metadata_lock", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_schema_changes_while_others_write(*, metadata_lock: bool) -> None:
    """Writers of both nodes go on while columns and indexes come, change and go; at the end everything agrees."""
    made = Door(metadata_lock=metadata_lock)
    with made.upstream, closing(made.connect("n1", database="test")) as owner:
        owner.run("CREATE TABLE t (id INT PRIMARY KEY, v INT, s VARCHAR(20))")
        stop, done, faults = threading.Event(), [0, 0], list[str]()

        def write(at: int) -> None:
            with closing(made.connect(f"n{at + 1}", database="test")) as client:
                for number in count(at, 2):
                    if stop.is_set():
                        return
                    try:
                        client.run(f"INSERT INTO t (id, v, s) VALUES ({number}, {number % 7}, '{number}')")
                        done[at] += 1
                        client.run(f"BEGIN; UPDATE t SET v = v + 1 WHERE id = {number // 2}; COMMIT")
                    except pymysql.MySQLError as error:
                        client.run("ROLLBACK")
                        if error.args[0] not in {8027, 8028, 8022, 9004, 9007}:
                            faults.append(str(error))
                            return

        writers = [threading.Thread(target=write, args=(at,), daemon=True) for at in (0, 1)]
        for writer in writers:
            writer.start()
        until = time.monotonic() + 60
        while min(done) < 200 and not faults and time.monotonic() < until:
            for ddl in CHANGES:
                owner.run(f"ALTER TABLE t {ddl}")
        stop.set()
        for writer in writers:
            writer.join(30)

        assert not faults
        assert min(done) >= 200
        owner.run("ADMIN CHECK TABLE t")
        assert owner.run("SELECT COUNT(*) FROM t") == ((sum(done),),)


def position(client: Client) -> int:
    """A timestamp of now."""
    found = client.run("SHOW MASTER STATUS")[0][1]
    assert isinstance(found, int)
    return found


def first_ts(client: Client, low: int, high: int, sql: str) -> int:
    """The first timestamp in (low, high] at which a query has another answer than at `low`: a commit_ts."""
    before = client.run(f"SET tidb_snapshot = {low}; {sql}")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if client.run(f"SET tidb_snapshot = {middle}; {sql}") == before else (low, middle)
    client.run("SET tidb_snapshot = ''")
    return high


def test_the_past_completes_rows(door: Door) -> None:
    """Rows of which only the key came are completed from this port: both images at tidb_snapshot, in all types, also
    after the table has changed and the row is gone."""
    with closing(door.connect(sql_mode="", init_command="SET time_zone = '+00:00'")) as client:
        client.run(f"CREATE DATABASE `d``b`; CREATE TABLE {large.WHERE} ({large.COLUMNS})")
        places = [position(client)]
        for statement in (
            f"INSERT INTO {large.WHERE} VALUES ({large.FIRST})",
            f"UPDATE {large.WHERE} SET {large.SECOND}",
        ):
            client.run(statement)
            places.append(position(client))
        _, updated_ts = (first_ts(client, low, high, f"SELECT n FROM {large.WHERE}") for low, high in pairwise(places))
        client.run(f"DELETE FROM {large.WHERE}; ALTER TABLE {large.WHERE} DROP COLUMN n")
    table = defined(large.NAME, f"CREATE TABLE {large.WHERE} ({large.COLUMNS})", updated_ts).table
    update = next(row for row in large.changes(table) if isinstance(row, Update))
    update = msgspec.structs.replace(update, commit_ts=updated_ts)
    whole = large.sent(update, table, protocol="open-protocol")
    cut = large.sent(
        update,
        table,
        protocol="open-protocol",
        max_message_bytes=1500,
        large_message_handle_option="handle-key-only",
    )
    completion = UpstreamRows(f"mysql://root@127.0.0.1:{door.upstream.ports['n2']}/?enable-tls=false")
    (found,) = completion.whole([cut])
    completion.close()

    assert cut.handle_only
    assert not isinstance(found, TidegateError), found
    assert large.content(found) == large.content(whole)


def test_kill_and_processlist(door: Door) -> None:
    """Clients of all nodes are listed; KILL QUERY ends a waiting DDL with 1317, KILL ends a client."""
    with closing(door.connect("n1")) as first, closing(door.connect("n2")) as second:
        first.run("CREATE TABLE test.t (id INT PRIMARY KEY); BEGIN; INSERT INTO test.t VALUES (1)")
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.append(second.code("ALTER TABLE test.t ADD COLUMN v INT")))
        thread.start()
        waiting: list[tuple[object, ...]] = []
        until = time.monotonic() + 10
        while not waiting and time.monotonic() < until:
            waiting = [row for row in first.run("SHOW PROCESSLIST") if "ADD COLUMN" in str(row[7])]
        first.run(f"KILL QUERY {waiting[0][0]}")
        thread.join(20)

        assert codes == [1317]
        first.run("ROLLBACK")
        assert second.run("SELECT 1") == ((1,),)
        first.run(f"KILL {second.connection.thread_id()}")
        with pytest.raises(pymysql.MySQLError):
            second.run("SELECT 1")
        second.connection._force_close()
        assert first.code("KILL 4711") == 1094


def test_rows_stay_in_a_directory(tmp_path: Path) -> None:
    """An upstream that is stopped and started again over its directory has its tables and rows."""
    first = Door(directory=tmp_path)
    with first.upstream, closing(first.connect(database="test")) as client:
        client.run("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT); INSERT INTO t VALUES (), ()")
    again = Door(directory=tmp_path)
    with again.upstream, closing(again.connect(database="test")) as client:
        client.run("INSERT INTO t VALUES ()")
        rows = client.run("SELECT id FROM t ORDER BY id")

    assert rows[:2] == ((1,), (2,))
    assert len(rows) == 3


@pytest.mark.skipif(which("mariadb") is None, reason="no command-line client here")
def test_the_command_line_client(door: Door) -> None:
    """MariaDB's own client connects, asks what it asks, and prints tables."""
    words = [
        "mariadb",
        "--no-defaults",
        "-h127.0.0.1",
        f"-P{door.upstream.ports['n1']}",
        "-uroot",
        "--skip-ssl",
        "test",
    ]
    sql = (
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9)); INSERT INTO t VALUES (1, 'é'); SELECT * FROM t; SHOW TABLES"
    )
    ran = subprocess.run([*words, "-t", "-e", sql], capture_output=True, text=True, timeout=30, check=False)

    assert ran.stderr == ""
    assert "|    1 | é    |" in ran.stdout
    assert "Tables_in_test" in ran.stdout


@pytest.mark.slow
@pytest.mark.skipif(which("mariadb-dump") is None, reason="no dump tool here")
def test_a_dump_and_its_return(door: Door) -> None:
    """A database that MariaDB's dump tool wrote out reads back, through its client, as the same tables and rows."""
    place = ["--no-defaults", "-h127.0.0.1", f"-P{door.upstream.ports['n1']}", "-uroot", "--skip-ssl"]
    with closing(door.connect()) as client:
        client.run(
            "CREATE DATABASE d; CREATE DATABASE copy; USE d; CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, "
            "v VARCHAR(20) COMMENT 'it''s', b BLOB, ts TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3), UNIQUE KEY (v)); "
            "INSERT INTO t (v, b) VALUES ('é\\\\', x'00ff'), ('b', NULL); "
            "CREATE TABLE p (a INT) PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (10)); "
            "INSERT INTO p VALUES (5)"
        )
        dump = ["mariadb-dump", *place, "--hex-blob", "--single-transaction", "--routines", "--events", "d"]
        written = subprocess.run(dump, capture_output=True, timeout=60, check=False)
        read = subprocess.run(
            ["mariadb", *place, "copy"], input=written.stdout, capture_output=True, timeout=60, check=False
        )

        assert (written.stderr, read.stderr) == (b"", b"")
        for table in ("t", "p"):
            assert client.run(f"SELECT * FROM copy.{table}") == client.run(f"SELECT * FROM d.{table}") != ()
            assert client.run(f"SHOW FULL COLUMNS FROM copy.{table}") == client.run(f"SHOW FULL COLUMNS FROM d.{table}")
            assert client.run(f"SHOW INDEX FROM copy.{table}") == client.run(f"SHOW INDEX FROM d.{table}")
