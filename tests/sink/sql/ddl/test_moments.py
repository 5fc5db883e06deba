"""Rows that are there when a column with DEFAULT CURRENT_TIMESTAMP comes get in a replica what TiDB gave them."""

from pathlib import Path

import pytest

from tests.sink.sql.ddl.world import World
from tests.sink.sql.upstream import Upstream
from tidegate.app.trial import run_here
from tidegate.sink.sql.options import SqlOptions
from tidegate.sink.sql.sink import SqlSink

pytestmark = pytest.mark.slow

ADDED = {
    "timestamp": ("ADD COLUMN c TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP",),
    "fraction": ("ADD COLUMN c TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6) FIRST",),
    "datetime": ("ADD COLUMN c DATETIME(3) DEFAULT NOW(3)",),
    "several": ("ADD COLUMN c DATETIME DEFAULT CURRENT_TIMESTAMP, ADD COLUMN d DATETIME(3) DEFAULT NOW(3)",),
    "another type": ("ADD COLUMN c VARCHAR(30) DEFAULT '2001-02-03 04:05:06'", "MODIFY c DATETIME DEFAULT NOW()"),
    "another default": ("ADD COLUMN c DATETIME DEFAULT NOW()", "ALTER COLUMN c SET DEFAULT '2001-02-03 04:05:06'"),
}


@pytest.mark.parametrize("kind", ADDED)
def test_the_moment_of_the_statement(world: World, tmp_path: Path, kind: str) -> None:
    """They get the time of the statement, not that at which its job ended; a DATETIME the user's clocks."""
    upstream = Upstream(tmp_path)
    upstream.run("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)")
    upstream.run("SET time_zone = '+08:00'", "SET timestamp = 1700000000.654321")
    upstream.run(*(f"ALTER TABLE shop.t {text}" for text in ADDED[kind]))
    upstream.run("SET timestamp = 0", "SET time_zone = '+00:00'", "INSERT INTO shop.t (id) VALUES (2)")

    world.ask("DROP DATABASE tidegate")
    run_here(upstream.source(), SqlSink(SqlOptions("feed", "127.0.0.1", world.port)))

    world.ask("SET time_zone = '+00:00'")
    moments = ["CONCAT(c)", *(["CONCAT(d)"] if kind == "several" else [])]
    rows = f"SELECT id, {', '.join(moments)} FROM shop.t ORDER BY id"
    assert world.ask(rows) == upstream.rows(rows)
