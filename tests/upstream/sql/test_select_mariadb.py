"""Queries against a real MariaDB: those of tests/scripts, and random ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.expr.kit import answer, shown
from tests.mariadb import running_server
from tests.upstream.sql.query_generator import Generator
from tidegate.model.errors import SqlRefused

TABLES = (
    "CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "USE d",
    "CREATE TABLE t (id BIGINT, a BIGINT, s VARCHAR(20) COLLATE utf8mb4_general_ci, d DECIMAL(10,2))",
    "CREATE TABLE u (id BIGINT, b VARCHAR(20))",
    "INSERT INTO t VALUES (1, 10, 'x', 1.5), (2, 20, 'Y', 2.25), (3, NULL, 'y', NULL), (4, 20, NULL, 4)",
    "INSERT INTO u VALUES (1, 'one'), (2, 'two'), (2, 'zwei'), (9, 'nine')",
)
SCRIPT = Path(__file__).parents[2] / "scripts" / "select.txt"
ONLY_TIDB = ("_tidb_rowid", "json_arrayagg", "std(id)", "x (p, q)", "table u")
"""What MariaDB has not, or prints in another way."""


@pytest.fixture(scope="module")
def maria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cursor on a server that has the tables of tests/expr/kit.py and gives texts."""
    with running_server(tmp_path_factory.mktemp("mariadb")) as server:
        port, options = server.port, {"charset": "utf8mb4", "autocommit": True, "conv": {}}
        connection = pymysql.connect(host="127.0.0.1", port=port, user="root", **options)
        with connection.cursor() as cursor:
            for statement in ("SET NAMES utf8mb4 COLLATE utf8mb4_bin", *TABLES):
                cursor.execute(statement)
            yield cursor
        connection.close()


def theirs(cursor: Any, sql: str) -> tuple[list[str], list[tuple[str | None, ...]]] | int:
    """(names, rows) of MariaDB's answer, or the number of its error."""
    try:
        cursor.execute(sql)
    except pymysql.Error as error:
        return int(error.args[0])
    found = [tuple(v.decode() if isinstance(v, bytes) else v for v in row) for row in cursor.fetchall()]
    return [column[0] for column in cursor.description], found


def ours(sql: str) -> tuple[list[str], list[tuple[str | None, ...]]] | int:
    try:
        found = answer(sql)
    except SqlRefused as error:
        return error.mysql_code
    return [column.name for column in found.columns], shown(found)


def unordered(found: Any) -> Any:
    return found if isinstance(found, int) else (found[0], sorted(found[1], key=repr))


@pytest.mark.slow
def test_queries(maria: Any) -> None:
    """MariaDB gives the same names and rows, in the same order where there is one."""
    written = [line[2:] for line in SCRIPT.read_text().splitlines() if line.startswith("> select")]
    queries = [sql for sql in written if not any(part in sql for part in ONLY_TIDB)]
    same = {True: lambda found: found, False: unordered}
    wrong = [
        (sql, ours(sql), theirs(maria, sql))
        for sql in queries
        if same["order by" in sql](ours(sql)) != same["order by" in sql](theirs(maria, sql))
    ]

    assert not wrong
    assert len(queries) > 30


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 4))])
def test_random_queries(maria: Any, seed: int) -> None:
    """Four times 200 random joins, groups and subqueries have MariaDB's names and rows."""
    generator = Generator(seed)
    queries = [generator.query() for _ in range(200)]
    wrong = [
        (sql, ours(sql), theirs(maria, sql)) for sql in queries if unordered(ours(sql)) != unordered(theirs(maria, sql))
    ]

    assert not wrong
    assert any("LEFT JOIN" in sql for sql in queries)
