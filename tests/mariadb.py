"""A real MariaDB on a temporary directory and a free port, stopped by its own process.

TiDB is told a snapshot by `SET SESSION tidb_snapshot = TSO`.  MariaDB has system-versioned tables instead, which are
read as of a time: AS_OF takes the same parameter, so that rows have a past here too.  `at` makes that past.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pymysql
import pytest

from tidegate.model.errors import EnvironmentFault
from tidegate_upstream.demo.replica import programs, running_mariadb

AS_OF = "SET SESSION system_versioning_asof = FROM_UNIXTIME((%s >> 18) / 1000)"
ROOT: Any = {"host": "127.0.0.1", "user": "root", "ssl_disabled": True}
"""The superuser in clear: what a client gets ready for TLS takes longer than most statements."""
PASSWORD = "p@ss:w/rd'#"
QUOTED = "p%40ss%3Aw%2Frd%27%23"


class Server(NamedTuple):
    """A running server."""

    port: int
    connection: Any

    @property
    def uri(self) -> str:
        """The address with the account that tests use."""
        return f"mysql://reader:{QUOTED}@127.0.0.1:{self.port}/?enable-tls=false"

    def run(self, *statements: str) -> None:
        """Executes statements, in their order."""
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def at(self, ts: int, *statements: str) -> None:
        """Executes statements as if the time were that of the TSO `ts`."""
        self.run(f"SET SESSION timestamp = {(ts >> 18) / 1000}", *statements, "SET SESSION timestamp = DEFAULT")


def needed() -> None:
    """Skip the test where no MariaDB is installed; in CI it fails."""
    try:
        programs()
    except EnvironmentFault as missing:
        (pytest.fail if os.environ.get("TIDEGATE_CI") else pytest.skip)(str(missing))


@contextmanager
def running_server(home: Path, *more: str) -> Iterator[Server]:
    """A server, with `more` options, that is gone with its data when the block ends; where none is installed the
    test is skipped, in CI it fails."""
    needed()
    try:
        with running_mariadb(home, more) as port, connected(port) as connection:
            server = Server(port, connection)
            server.run(
                f"CREATE USER reader@'127.0.0.1' IDENTIFIED BY '{PASSWORD.replace(chr(39), chr(39) * 2)}'",
                "GRANT SELECT ON *.* TO reader@'127.0.0.1'",
            )
            yield server
    finally:
        shutil.rmtree(home / "data", ignore_errors=True)


def connected(port: int) -> Any:
    """A connection of the superuser."""
    return pymysql.connect(**ROOT, port=port, charset="utf8mb4", autocommit=True)
