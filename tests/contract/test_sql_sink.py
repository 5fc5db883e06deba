"""The sink of a database keeps the contract of tidegate.testing, on a real MariaDB."""

import hashlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pymysql
import pytest

from tests.contract.adapters import by_name
from tests.mariadb import Server, running_server
from tidegate.engine.ports import Sink
from tidegate.model.table import TableName
from tidegate.sink.sql.connection import Atomicity, SqlOptions
from tidegate.sink.sql.sink import SqlSink
from tidegate.testing.contract import ReadBack, SinkContract
from tidegate.testing.script import Script, ScriptedSource, run_here
from tidegate_upstream.background import UpstreamOptions, start_upstream, stop_upstream

pytestmark = pytest.mark.slow

OWN = {"mysql", "information_schema", "performance_schema", "metrics_schema", "sys", "tidegate", "tidb_cdc", "test"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A MariaDB for the cases of this file."""
    with running_server(tmp_path_factory.mktemp("mariadb")) as found:
        yield found


@pytest.fixture(scope="module")
def tidb() -> Iterator[Server]:
    """An embedded TiDB for the cases of this file."""
    upstream = start_upstream(UpstreamOptions())
    port = upstream.port_of(1)
    connection = pymysql.connect(host="127.0.0.1", port=port, user="root", charset="utf8mb4", autocommit=True)
    yield Server(port, connection)
    connection.close()
    stop_upstream(upstream)


def emptied(server: Server) -> None:
    """Leaves a server without the databases of the case before."""
    for name in databases(server):
        server.run(f"DROP DATABASE `{name}`")
    server.run("DROP DATABASE IF EXISTS tidegate")


def databases(server: Server) -> list[str]:
    """The databases that are not the server's own."""
    return sorted(name for (name,) in asked(server, "SHOW DATABASES") if name.lower() not in OWN)


def asked(server: Server, query: str) -> list[Any]:
    """The rows of a query."""
    with server.connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def tables_of(server: Server) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables, views left out."""
    found = {}
    for schema in databases(server):
        for table, kind in asked(server, f"SHOW FULL TABLES IN `{schema}`"):
            if kind == "BASE TABLE":
                names = [row[:2] for row in asked(server, f"SHOW COLUMNS IN `{schema}`.`{table}`")]
                rows = asked(
                    server, f"SELECT {', '.join(map(read_as, *zip(*names, strict=True)))} FROM `{schema}`.`{table}`"
                )
                found[str(TableName(schema, table))] = [
                    {name: plain(value) for (name, _), value in zip(names, row, strict=True)} for row in rows
                ]
    return found


def read_as(name: str, kind: str) -> str:
    """The expression that reads a column: bits as a number, a time as a text."""
    quoted = f"`{name.replace('`', '``')}`"
    if kind.startswith("bit"):
        return f"{quoted} + 0"
    return f"CAST({quoted} AS CHAR)" if kind.startswith("time") and not kind.startswith("timestamp") else quoted


def plain(value: Any) -> Any:
    """A value as scripts have it."""
    return value if value is None or isinstance(value, int | float | str | bytes) else str(value)


class TestGlobal(SinkContract):
    """Whole transactions."""

    run = staticmethod(run_here)
    guarantee = "exactly once"
    refuses: ClassVar[Collection[str]] = ("unreadable", "recover table")
    makes_tables = False
    shown = staticmethod(by_name)
    poison = ("taken", "no time at all")
    atomicity: Atomicity = "global"

    @pytest.fixture(autouse=True)
    def _server(self, server: Server, request: pytest.FixtureRequest) -> None:
        emptied(server)
        if request.node.originalname == "test_a_row_that_cannot_be_taken":
            server.run("CREATE DATABASE shop")  # its script has the table alone
        self.server = server

    def sink(self, home: Path) -> Sink[Any]:
        """A sink whose progress lies in the server."""
        feed = hashlib.md5(str(home).encode()).hexdigest()
        return SqlSink(SqlOptions(feed, "127.0.0.1", self.server.port, atomicity=self.atomicity, txn_rows=2))

    def fill(self, _home: Path, story: Script) -> bool:
        """Tables of another changefeed."""
        run_here(ScriptedSource(story), SqlSink(SqlOptions("other", "127.0.0.1", self.server.port)), until=story.ts)
        return True

    def read(self, _home: Path) -> ReadBack:
        """The tables of the server."""
        return ReadBack(tables_of(self.server))


@pytest.mark.soak
class TestNone(TestGlobal):
    """Rows side by side."""

    atomicity = "none"


@pytest.mark.soak
class TestTable(TestGlobal):
    """Transactions of tables."""

    atomicity = "table"


@pytest.mark.more
class TestTidb(TestGlobal):
    """Whole transactions, into an embedded TiDB, which has RECOVER TABLE."""

    refuses = ("unreadable",)

    @pytest.fixture(autouse=True)
    def _server(self, tidb: Server, request: pytest.FixtureRequest) -> None:
        emptied(tidb)
        if request.node.originalname == "test_a_row_that_cannot_be_taken":
            tidb.run("CREATE DATABASE shop")
        self.server = tidb


@pytest.mark.soak
class TestTidbNone(TestTidb):
    """Rows side by side, into an embedded TiDB."""

    atomicity = "none"


@pytest.mark.soak
class TestTidbTable(TestTidb):
    """Transactions of tables, into an embedded TiDB."""

    atomicity = "table"
