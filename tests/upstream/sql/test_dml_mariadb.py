"""Random changes on the embedded TiDB and on a real MariaDB: the same refusals, counts and rows."""

from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from tests.expr.kit import shown
from tests.mariadb import running_server
from tests.upstream.sql.dml_generator import Generator
from tidegate.expr.scope import ResultSet
from tidegate.model.errors import SqlRefused
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.session import Session

pytestmark = pytest.mark.slow
STATEMENTS = 150
REFUSED = "refused"
"""With which error: several may be there, and the two look at rows and columns in another order."""


@pytest.fixture(scope="module")
def maria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cursor that gives texts, in strict mode."""
    with running_server(tmp_path_factory.mktemp("mariadb")) as server:
        options = {"charset": "utf8mb4", "autocommit": True, "conv": {}}
        connection = pymysql.connect(host="127.0.0.1", port=server.port, user="root", **options)
        with connection.cursor() as cursor:
            cursor.execute("SET sql_mode = 'STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE'")
            yield cursor
        connection.close()


def theirs(cursor: Any, sql: str) -> Any:
    """Rows, or how many were affected, or that it was refused."""
    try:
        affected = cursor.execute(sql)
    except pymysql.Error:
        return REFUSED
    if cursor.description is None:
        return affected
    return [
        tuple(v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in row) for row in cursor.fetchall()
    ]


def ours(session: Session, sql: str) -> Any:
    """The same."""
    try:
        [found] = session.execute(sql)
    except SqlRefused:
        return REFUSED
    return shown(found) if isinstance(found, ResultSet) else found.affected


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 4))])
def test_random_changes(maria: Any, seed: int) -> None:
    """Each statement is refused by both or changes as many rows, and all tables end with the same rows.

    REPLACE is not counted: a row that is there already is one for TiDB and two for MariaDB."""
    generator = Generator(seed)
    session = Session(Cluster.open().node)
    for sql in (f"create database s{seed}", f"use s{seed}", generator.table("t0"), generator.table("t1")):
        theirs(maria, sql)
        session.execute(sql)
    wrong = []
    for _ in range(STATEMENTS):
        sql = generator.statement()
        found = ours(session, sql), theirs(maria, sql)
        if found[0] != found[1] and not (sql.startswith("replace") and REFUSED not in found):
            wrong.append((sql, *found))
    for table, columns in generator.tables.items():
        sql = f"select * from {table} order by {', '.join(columns)}"
        found = ours(session, sql), theirs(maria, sql)
        if sorted(map(repr, found[0])) != sorted(map(repr, found[1])):
            wrong.append((sql, *found))

    assert wrong == []
