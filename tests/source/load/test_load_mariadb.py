"""The reader on a real server: rows as its own driver reads them, and errors that come in the middle of rows."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests.mariadb import Server, running_server
from tests.source.load.kit import of
from tidegate.engine.load_plan import LoadChunk, LoadTable
from tidegate.model.errors import SourceError, TidegateError
from tidegate.model.table import TableName
from tidegate.mysql.client import raw_result
from tidegate.mysql.rows import ResultBroken, ResultRows
from tidegate.source.load_sql import SqlReader
from tidegate.source.upstream_address import SqlLoadOptions, parse_address

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a table of rows of all lengths, up to some packets."""
    with running_server(tmp_path_factory.mktemp("mariadb"), "--max-allowed-packet=256M") as one:
        one.run(
            "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a LONGBLOB, b VARCHAR(99), c DOUBLE, d DATE)"
        )
        random = Random(1)
        with one.connection.cursor() as cursor:
            sizes = (0, 1, 250, 251, 65_535, 65_536, (1 << 24) - 30, 1 << 24, 20 << 20)
            for number, size in enumerate(sizes):
                text = None if number % 4 == 3 else "ä'\\" * number
                cursor.execute(
                    "INSERT INTO d.t VALUES (%s, %s, %s, %s, NULL)", (number, random.randbytes(size), text, 0.1)
                )
            cursor.execute("INSERT INTO d.t SELECT seq, NULL, seq, seq / 7, '2020-02-29' FROM `d`.`seq_100_to_60000`")
        yield one


def reader(server: Server) -> SqlReader:
    """A reader of it."""
    return SqlReader(SqlLoadOptions(parse_address(server.uri), snapshot=False, chunk_rows=20_000))


def driven(server: Server, query: str) -> list[tuple[Any, ...]]:
    """The rows as the driver reads them."""
    with server.connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def test_rows_are_those_of_the_driver(server: Server) -> None:
    """Of all lengths, NULLs among them, in chunks that cover the table."""
    loads = reader(server)
    plan = loads.plan(of("d"))
    found = [
        tuple(row.values())
        for chunk in plan.chunks
        for batch in loads.batches(plan.tables[0], chunk, plan.ts)
        for row in batch.after.to_pylist()
    ]
    loads.close()

    expected = driven(server, "SELECT id, a, b, c, CAST(d AS CHAR) FROM d.t ORDER BY id")
    assert len(plan.chunks) > 2
    assert sorted(found, key=lambda row: row[0]) == expected


@pytest.mark.parametrize("query", ["SELECT * FROM d.t", "SELECT id FROM d.t WHERE id < 0", "SELECT NULL, '', 'x'"])
def test_results_end_where_they_end(server: Server, query: str) -> None:
    """Results of any size; the connection serves the next query."""
    for _ in range(2):
        result = raw_result(server.connection, query)
        columns = list(ResultRows(*result).batches())
        assert sum(len(first) for first, *_ in columns) == len(driven(server, query))


def test_an_error_in_the_middle(server: Server) -> None:
    """A statement that fails when half of its rows are sent has an error, not half of the rows."""
    query = "SELECT id, IF(id = 50000, (SELECT 1 UNION SELECT 2), 0) FROM d.t ORDER BY id"
    rows: list[int] = []

    with pytest.raises(ResultBroken) as broken:
        rows.extend(
            len(first) for first, _ in ResultRows(*raw_result(server.connection, query), rows_max=1000).batches()
        )

    assert broken.value.number == 1242
    assert sum(rows) > 20_000
    assert driven(server, "SELECT 1") == [(1,)]


def test_a_killed_query_is_an_error(server: Server) -> None:
    """Somebody else may end the statement, or the connection."""
    loads, table = (
        reader(server),
        LoadTable(TableName("d", "t"), driven(server, "SHOW CREATE TABLE d.t")[0][1], ("id",)),
    )
    batches = loads.batches(table, LoadChunk(0, 0), 7)
    rows = [next(batches).rows]
    for number, user, *_ in driven(server, "SHOW PROCESSLIST"):
        if user == "reader":
            server.run(f"KILL {number}")

    with pytest.raises(TidegateError) as caught:
        rows.extend(batch.rows for batch in batches)

    assert type(caught.value) is SourceError
    assert sum(rows) < 59_000


def test_equal_rows_without_a_key_have_numbers(server: Server) -> None:
    """A server without `_tidb_rowid` numbers no rows, so a chunk's rows are counted: equal ones are no repeats."""
    server.run("CREATE DATABASE IF NOT EXISTS e", "CREATE TABLE e.t (v INT)")
    server.run("INSERT INTO e.t SELECT seq % 3 FROM `d`.`seq_1_to_70000`")
    loads = reader(server)
    plan = loads.plan(of("e"))
    batches = list(loads.batches(plan.tables[0], plan.chunks[0], plan.ts))
    loads.close()

    numbers = [number for batch in batches for number in batch.row_ids.to_pylist()]
    assert len(batches) > 1
    assert numbers == list(range(1, 70_001))


def test_rows_come_in_the_order_of_their_keys(server: Server) -> None:
    """Whatever index the server reads: a chunk that is read again after a crash has them in the same order, which a
    sink needs that counts rows."""
    server.run("CREATE DATABASE o", "CREATE TABLE o.t (a INT, b INT, k INT, PRIMARY KEY (a, b), KEY (k))")
    server.run("INSERT INTO o.t SELECT seq % 7, seq, -seq FROM `d`.`seq_1_to_500`")
    loads = reader(server)
    plan = loads.plan(of("o"))
    (batch,) = loads.batches(plan.tables[0], plan.chunks[0], plan.ts)
    loads.close()

    keys = [(row["a"], row["b"]) for row in batch.after.to_pylist()]
    assert keys == sorted(keys)
