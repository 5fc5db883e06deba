"""The contract of every sink, for a SQLite file."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.contract.adapters import in_words
from tidegate.engine.ports import Sink
from tidegate.model.table import TableName
from tidegate.sink.sqlite import SqliteSink
from tidegate.testing.contract import ReadBack, SinkContract
from tidegate.testing.script import Script, ScriptedSource, run_here


class TestSqlite(SinkContract):
    """A file, read by SQLite alone."""

    run = staticmethod(run_here)
    guarantee = "exactly once"
    refuses = ("unreadable", "recover table")
    leaves_out = ("shop.visits",)
    whole_transactions = True
    shown = staticmethod(in_words)

    def sink(self, home: Path) -> Sink:
        """A file that keeps the progress, too."""
        return SqliteSink(str(home / "shop.db"), "feed")

    def fill(self, home: Path, story: Script) -> bool:
        """Tables that somebody has made, and no changefeed."""
        run_here(ScriptedSource(story), SqliteSink(str(home / "shop.db"), "other"), until=story.ts)
        with closing(sqlite3.connect(home / "shop.db")) as connection:
            connection.execute("DROP TABLE tidegate_feed")
        return True

    def read(self, home: Path) -> ReadBack:
        """The rows of each table; none before there is one."""
        with closing(sqlite3.connect(home / "shop.db")) as connection:
            connection.row_factory = sqlite3.Row
            tables = connection.execute("SELECT name FROM sqlite_schema WHERE name LIKE '%.%' AND type = 'table'")
            return ReadBack({named(table): rows_of(connection, table) for (table,) in tables.fetchall()})


def named(table: str) -> str:
    """The name that a table has upstream."""
    return str(TableName(*(part.replace("%2E", ".").replace("%25", "%") for part in table.split("."))))


def rows_of(connection: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
    """All rows of a table."""
    return [dict(row) for row in connection.execute('SELECT * FROM "' + table.replace('"', '""') + '"')]
