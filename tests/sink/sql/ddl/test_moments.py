"""Values that a DDL takes from the clock and the time zone of its session are in a replica what TiDB made of them."""

from pathlib import Path

import pytest

from tests.sink.sql.ddl.world import World
from tests.sink.sql.upstream import Upstream
from tidegate.model.errors import SinkRefused
from tidegate.sink.sql.connection import SqlOptions
from tidegate.sink.sql.sink import SqlSink
from tidegate.testing.script import run_here

pytestmark = pytest.mark.slow

ADDED = {
    "timestamp": ("ADD COLUMN c TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP",),
    "fraction": ("ADD COLUMN c TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6) FIRST",),
    "datetime": ("ADD COLUMN c DATETIME(3) DEFAULT NOW(3)",),
    "several": ("ADD COLUMN c DATETIME DEFAULT CURRENT_TIMESTAMP, ADD COLUMN d DATETIME(3) DEFAULT NOW(3)",),
    "both": ("ADD COLUMN c TIMESTAMP DEFAULT NOW(), ADD COLUMN d DATETIME DEFAULT NOW()",),
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
    moments = ["CONCAT(c)", *(["CONCAT(d)"] if kind in ("several", "both") else [])]
    rows = f"SELECT id, {', '.join(moments)} FROM shop.t ORDER BY id"
    assert world.ask(rows) == upstream.rows(rows)


def zoned(directory: Path, zone: str, *changes: str) -> Upstream:
    """A table that a session of that zone has changed."""
    upstream = Upstream(directory)
    upstream.run(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.t (id INT PRIMARY KEY, ts TIMESTAMP(3) NULL, at DATETIME, v VARCHAR(30))",
        "INSERT INTO shop.t VALUES (1, '2024-02-03 04:05:06.5', '2024-07-03 04:05:06', '2024-01-02 03:04:05')",
        f"SET time_zone = '{zone}'",
        *(f"ALTER TABLE shop.t {text}" for text in changes),
        "SET time_zone = '+00:00'",
        "INSERT INTO shop.t (id) VALUES (2)",
    )
    return upstream


def test_the_zone_of_the_session(world: World, tmp_path: Path) -> None:
    """Moments become clocks, clocks moments, and texts of moments are read, all in the zone that the log tells; rows
    that come later and other DDLs are as ever."""
    upstream = zoned(
        tmp_path,
        "+08:00",
        "MODIFY ts DATETIME(3), MODIFY at TIMESTAMP NULL",
        "MODIFY v TIMESTAMP NULL",
        "ADD COLUMN c TIMESTAMP DEFAULT '2024-01-01 12:00:00'",
        "MODIFY ts VARCHAR(40)",
    )

    world.ask("DROP DATABASE tidegate")
    run_here(upstream.source(), SqlSink(SqlOptions("feed", "127.0.0.1", world.port)))

    world.ask("SET time_zone = '+00:00'")
    rows = "SELECT id, CONCAT(ts), CONCAT(at), CONCAT(v), CONCAT(c) FROM shop.t ORDER BY id"
    assert world.ask(rows) == upstream.rows(rows)


def test_a_zone_that_the_server_lacks(maria: World, tmp_path: Path) -> None:
    """A MariaDB without zone tables refuses a statement whose values need the zone, by its name and with the way out,
    and takes any other; with the tables loaded the feed goes on."""
    free = zoned(tmp_path / "free", "America/New_York", "ADD COLUMN c INT DEFAULT 3")
    maria.ask("DROP DATABASE tidegate")
    run_here(free.source(), SqlSink(SqlOptions("feed", "127.0.0.1", maria.port)))
    assert maria.ask("SELECT id, c FROM shop.t ORDER BY id") == [(1, 3), (2, 3)]

    upstream = zoned(tmp_path / "zoned", "America/New_York", "MODIFY ts DATETIME(3)")
    maria.ask("DROP DATABASE shop")
    maria.ask("DROP DATABASE tidegate")
    with pytest.raises(SinkRefused, match=r"time zone America/New_York.*mysql_tzinfo_to_sql"):
        run_here(upstream.source(), SqlSink(SqlOptions("feed", "127.0.0.1", maria.port)))
