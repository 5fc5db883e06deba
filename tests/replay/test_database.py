"""The recorded shop in a database: at each recorded moment it has the rows that TiDB had."""

import base64
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pymysql
import pytest

from tests.contract.test_sql_sink import databases
from tests.log_source import log_source
from tests.mariadb import Server, running_server
from tests.recorded import WORKLOAD, recorded_changes
from tests.source.tidb.kit import write_log
from tidegate.expr.tokens import quote_name
from tidegate.model.table import TableName
from tidegate.sink.sql.connection import Atomicity, SqlOptions
from tidegate.sink.sql.sink import SqlSink
from tidegate.source.tidb_segment import encode_segment
from tidegate.testing.script import run_here
from tidegate_upstream.background import UpstreamOptions, start_upstream, stop_upstream

pytestmark = pytest.mark.slow


def truths() -> list[dict[str, Any]]:
    """What TiDB had, by time."""
    paths = (WORKLOAD / "truth").glob("*.json.gz")
    return sorted((json.loads(gzip.decompress(path.read_bytes())) for path in paths), key=lambda one: one["ts"])


def recorded(directory: Path) -> Path:
    """The change log of the recording, with the moments as ends of segments."""
    rows = recorded_changes()
    moments = [truth["ts"] for truth in truths()]
    low, last = rows[-1].commit_ts + 1, moments[-1]
    log = write_log(directory, rows, [ts for ts in moments if ts < low])
    if last > low:
        (log / f"{low:020d}-{last:020d}.seg").write_bytes(encode_segment(low, last, []))
    return log


def known(kind: str, value: dict[str, Any] | None) -> Any:
    """A value of a truth as the server's text is read: numbers, texts, bytes; of ENUM and SET the names."""
    if value is None:
        return None
    if kind.startswith(("float", "double")):
        return read(kind, str(value["s"] if "s" in value else value["f64"]).encode())
    if "s" in value:
        return value["s"].encode()
    if "b" in value:
        return base64.b64decode(value["b"])
    return next(iter(value.values()))


def shown(kind: str) -> str:
    """How a column of that type is asked for."""
    if kind.startswith(("float", "double")):
        return "CAST({} AS DOUBLE)"
    return "{} + 0" if kind.startswith("bit") else "{}"


def read(kind: str, value: bytes | None) -> Any:
    """A value of the server, by the type that the upstream has."""
    if value is None:
        return None
    if kind.startswith(("float", "double")):
        return float(np.float32(value)) if kind.startswith("float") else float(value)
    whole = ("int", "tinyint", "smallint", "mediumint", "bigint", "year", "bit")
    return int(value) if kind.startswith(whole) else value


def unlike(server: Server, truth: dict[str, Any], *, snapshot: int | None = None) -> Iterator[str]:
    """What is wrong with the tables of a server, of a TiDB as of the ts `snapshot`."""
    past = [] if snapshot is None else [f"SET SESSION tidb_snapshot = '{snapshot}'"]
    connection = pymysql.connect(
        host="127.0.0.1",
        port=server.port,
        user="root",
        charset="utf8mb4",
        use_unicode=False,
        conv=dict(pymysql.converters.encoders),
        autocommit=True,
    )
    with connection, connection.cursor() as cursor:
        for statement in ("SET SESSION time_zone = '+00:00'", *past):
            cursor.execute(statement)
        for name, table in truth["tables"].items():
            schema, _, own = name.replace("`", "").partition(".")  # none has one
            columns = table["columns"]
            asked = ", ".join(shown(one["type"]).format(quote_name(one["name"])) for one in columns)
            try:
                cursor.execute(f"SELECT {asked} FROM `{schema}`.`{own}`")
            except pymysql.MySQLError as error:
                yield f"{name}: {error}"
                continue
            kinds = [one["type"] for one in columns]
            found = Counter(tuple(map(read, kinds, row)) for row in cursor.fetchall())
            wanted = Counter(tuple(map(known, kinds, row)) for row in table["rows"])
            yield from (f"{name} has {row}" for row in list(found - wanted)[:1])
            yield from (f"{name} lacks {row}" for row in list(wanted - found)[:1])
    server.run(*past)
    there = {str(TableName(schema, table)) for schema in databases(server) for table in tables_in(server, schema)}
    if past:
        server.run("SET SESSION tidb_snapshot = ''")
    yield from (f"{name} is not upstream" for name in there - truth["tables"].keys())


def tables_in(server: Server, schema: str) -> list[str]:
    """The tables of a database, views left out."""
    with server.connection.cursor() as cursor:
        cursor.execute(f"SHOW FULL TABLES IN `{schema}`")
        return [name for name, kind in cursor.fetchall() if kind == "BASE TABLE"]


def replayed(server: Server, log: Path, atomicity: Atomicity) -> None:
    """The recording, stopped and compared at each moment."""
    for truth in truths():
        source = log_source(log)
        sink = SqlSink(SqlOptions("replay", "127.0.0.1", server.port, atomicity=atomicity))
        run_here(source, sink, until=truth["ts"])
        wrong = list(unlike(server, truth))
        assert not wrong, "\n".join([str(truth["n"]), *wrong])


@pytest.mark.parametrize("atomicity", ["global", pytest.param("none", marks=pytest.mark.more)])
def test_mariadb(tmp_path: Path, atomicity: Atomicity) -> None:
    """MariaDB follows all rows and DDLs of the recording."""
    log = recorded(tmp_path / "segments")
    with running_server(tmp_path) as server:
        replayed(server, log, atomicity)


@pytest.mark.more
def test_tidb(tmp_path: Path) -> None:
    """An embedded TiDB follows all rows and DDLs of the recording."""
    log = recorded(tmp_path / "segments")
    upstream = start_upstream(UpstreamOptions())
    try:
        port = upstream.port_of(1)
        connection = pymysql.connect(host="127.0.0.1", port=port, user="root", charset="utf8mb4", autocommit=True)
        replayed(Server(port, connection), log, "global")
        connection.close()
    finally:
        stop_upstream(upstream)
