"""Rows whose keys differ upstream are as many rows in a database, found again when they change and when they go."""

from pathlib import Path

import pytest

from tests.mariadb import Server, connected
from tests.sink.sql.upstream import Upstream
from tidegate.sink.sql.connection import SqlOptions
from tidegate.sink.sql.sink import SqlSink
from tidegate.testing.script import run_here

pytestmark = pytest.mark.slow

KEYS = {
    "DATE": ["2024-00-00", "2023-00-00", "0000-00-00", "2024-05-06"],
    "DATETIME(6)": ["2024-00-00 00:00:00", "2024-05-06 01:02:03.000001", "2024-05-06 01:02:03.000002"],
    "TIMESTAMP": ["2024-10-27 00:30:00", "2024-10-27 01:30:00", "2024-03-31 01:30:00"],
    "FLOAT": ["1.1", "0.1", "3.4028235e38", "1e-40", "16777217"],
    "DOUBLE": ["0.1", "0.10000000000000002", "1.7976931348623157e308"],
    "DECIMAL(65,30)": [f"{'9' * 35}.{'9' * 30}", f"{'9' * 35}.{'9' * 29}8", "-0.000000000000000000000000000001"],
    "BIGINT UNSIGNED": ["0", "18446744073709551615", "9007199254740993"],
    "BIT(64)": ["0", "18446744073709551615", "18446744073709551614"],
    "YEAR": ["0", "1901", "2155"],
    "TIME(6)": ["-838:59:59", "00:00:00.000001", "-00:00:00.000001"],
    "SET('a','b')": ["", "a", "a,b"],
    "VARCHAR(20) COLLATE utf8mb4_bin": ["a", "A", "", "ä"],
    "VARCHAR(20) COLLATE utf8mb4_general_ci": ["a", "b", "", "z"],
    "VARBINARY(20)": ["a", "a ", "A", ""],
}

NUMBERS = ("FLOAT", "DOUBLE", "BIT(64)")


def test_keys_of_every_type(server: Server, tmp_path: Path) -> None:
    """INSERT, UPDATE of all rows, DELETE of some, and a key that only changes its case: equal to the upstream."""
    upstream = Upstream(tmp_path)
    upstream.run("SET sql_mode = ''", "DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop")
    for at, (kind, values) in enumerate(KEYS.items()):
        name = f"shop.k{at}"
        rows = ", ".join(
            f"({value}, {place})" if kind == "BIT(64)" else f"('{value}', {place})"
            for place, value in enumerate(values)
        )
        upstream.run(
            f"CREATE TABLE {name} (k {kind} NOT NULL PRIMARY KEY, v INT)",
            f"INSERT INTO {name} VALUES {rows}",
            f"UPDATE {name} SET v = v + 10",
            f"DELETE FROM {name} WHERE v = 11",
        )
        if "VARCHAR" in kind:
            upstream.run(f"UPDATE {name} SET k = 'A ' WHERE v = 10")
    run_here(upstream.source(), SqlSink(SqlOptions("keys", "127.0.0.1", server.port)))

    with connected(server.port) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        for at, kind in enumerate(KEYS):
            shown = "HEX(k)" if "VAR" in kind else "k + 0" if kind in NUMBERS else "CONCAT(k)"
            query = f"SELECT {shown}, v FROM shop.k{at} ORDER BY v"
            cursor.execute(query)
            assert [tuple(map(str, row)) for row in cursor.fetchall()] == [
                tuple(map(str, row)) for row in upstream.rows(query)
            ], kind
