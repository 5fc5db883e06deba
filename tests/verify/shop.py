"""A small shop with values of all kinds, the same in an upstream and in its replica, and what `verify` says."""

import json
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from tests.mariadb import Server
from tidegate.cli.main import main
from tidegate.mysql.server_sql import CREATE_HOLDS

FEED = "shop"
TABLES = (
    """CREATE TABLE shop.kinds (id BIGINT UNSIGNED PRIMARY KEY, f FLOAT, g DOUBLE, j JSON, b VARBINARY(10), c BINARY(4),
    bits BIT(9), wide BIT(64), y YEAR, z INT(5) ZEROFILL, d DECIMAL(10,2) ZEROFILL, e ENUM('a','b,c'), s SET('x','y'),
    ts TIMESTAMP(3) NULL, dt DATETIME, tm TIME(2), day DATE, utf VARCHAR(20), latin VARCHAR(20) CHARACTER SET latin1,
    other VARCHAR(20) COLLATE utf8mb4_unicode_ci, short CHAR(5), large LONGBLOB, body MEDIUMTEXT, i TINYINT,
    later INT AS (i + 1) VIRTUAL, kept INT AS (i + 2) STORED)""",
    "CREATE TABLE shop.customers (id INT PRIMARY KEY, name VARCHAR(20), note VARCHAR(20))",
    "CREATE TABLE shop.visits (page VARCHAR(20), n INT)",
    "CREATE TABLE shop.`odd.t``a%sble` (`c,``x%s` INT PRIMARY KEY, `select` VARCHAR(5))",
    "CREATE TABLE shop.names (name VARCHAR(20), day DATE, n INT, PRIMARY KEY (name, day))",
)
ROWS = (
    """INSERT INTO shop.kinds (id,f,g,j,b,c,bits,wide,y,z,d,e,s,ts,dt,tm,day,utf,latin,other,short,large,body,i) VALUES
    (1,0.1,1e20,'{"aa": [1, 2], "b": 1.0}',x'00ff',x'01',3,18446744073709551615,2000,5,1.5,'b,c','x,y',
    '2020-01-01 00:00:00.123','2020-01-01 00:00:00','-12:00:00.5','2020-01-01','é','é','ß','ab ',
    x'FFFE00','t,x😀',-3)""",
    "INSERT INTO shop.kinds (id) VALUES (2)",
    """INSERT INTO shop.kinds (id,f,g,z,dt,day,body,b) VALUES
    (18446744073709551615,-3.4e38,-0.0,0,'9999-12-31 23:59:59','1000-01-01','',x'')""",
    "INSERT INTO shop.kinds (id,f,g,d) VALUES (4,1e-10,1.7976931348623157e308,0)",
    "INSERT INTO shop.customers VALUES (1,'ann','x'),(2,'bob','y'),(3,'cy',NULL),(4,'','a,b')",
    "INSERT INTO shop.visits VALUES ('home',1),('home',1),('cart',2),('cart',2),('pay',NULL)",
    "INSERT INTO shop.`odd.t``a%sble` VALUES (1,'%s'),(2,'`')",
    "INSERT INTO shop.names VALUES ('a','2024-01-01',1),('A','2024-01-01',2),('ä','2024-01-02',3)",
)
PROGRESS = """CREATE TABLE IF NOT EXISTS tidegate.progress (feed VARBINARY(200) NOT NULL, shard INT NOT NULL,
    epoch BIGINT NOT NULL, position BIGINT UNSIGNED NOT NULL, state LONGBLOB, definitions LONGBLOB,
    PRIMARY KEY (feed, shard))"""
POINTS = """CREATE TABLE IF NOT EXISTS tidb_cdc.syncpoint_v1 (ticdc_cluster_id VARCHAR(255), changefeed VARCHAR(255),
    primary_ts VARCHAR(18), secondary_ts VARCHAR(18), created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (changefeed, primary_ts))"""


def filled(server: Server) -> None:
    """Leaves a server with the shop alone."""
    server.run(*(f"DROP DATABASE IF EXISTS {name}" for name in ("shop", "tidegate", "tidb_cdc", "more")))
    server.run("SET SESSION time_zone = '+00:00'", "CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    server.run(*TABLES, *ROWS)


def now_ts(server: Server) -> int:
    """A ts of an embedded TiDB behind all that it has committed."""
    with server.connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT @@tidb_current_ts")
        ((found,),) = cursor.fetchall()
        cursor.execute("COMMIT")
    return int(found)


def stand(server: Server, ts: int, *shards: int, feed: str = FEED) -> None:
    """Lets a feed stand at `ts`, with shards at positions of their own."""
    server.run("CREATE DATABASE IF NOT EXISTS tidegate", PROGRESS, CREATE_HOLDS)
    rows = [f"('{feed}', {shard}, 1, {position}, NULL, NULL)" for shard, position in enumerate((ts, *shards), -1)]
    server.run(f"REPLACE INTO tidegate.progress VALUES {', '.join(rows)}")


def note_point(server: Server, primary_ts: int, secondary_ts: int, *, feed: str = FEED) -> None:
    """Notes a sync point as the sink does."""
    server.run("CREATE DATABASE IF NOT EXISTS tidb_cdc", POINTS)
    row = f"('default', 'default/{feed}', '{primary_ts}', '{secondary_ts}', NOW())"
    server.run(f"INSERT INTO tidb_cdc.syncpoint_v1 VALUES {row}")


@dataclass(frozen=True)
class Said:
    """What the command printed."""

    status: int
    tables: dict[str, list[str]]
    last: dict[str, Any]
    error: str

    @property
    def wrong(self) -> dict[str, list[str]]:
        """The tables that differ, and how."""
        return {name: found for name, found in self.tables.items() if found}


def verified(replica: Server, upstream: str, *more: str, user: str = "root") -> Said:
    """`tidegate verify` with JSON."""
    address = f"mysql://{user}@127.0.0.1:{replica.port}/"
    done = CliRunner().invoke(main, ["verify", address, "--upstream", upstream, "--json", *more])
    *lines, last = [json.loads(line) for line in done.stdout.splitlines()] or [{}]
    tables = {line["table"]: [_line(one) for one in line["shown"]] for line in lines}
    return Said(done.exit_code, tables, last, done.stderr)


def _line(one: dict[str, Any]) -> str:
    """A difference in short."""
    row = f" {one['key']}" if one.get("key") else ""
    values = f": {one['expected']!r} is {one['found']!r}" if one["kind"] == "value" else ""
    return f"{one['kind']}{row}" + (f" {one['column']}" if one.get("column") else "") + values
