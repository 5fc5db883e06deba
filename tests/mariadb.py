"""A real MariaDB on a temporary directory and a free port, stopped by its own process.

    mariadb-install-db → directory → mariadbd → answers → … → SIGTERM

TiDB is told a snapshot by `SET SESSION tidb_snapshot = TSO`.  MariaDB has system-versioned tables instead, which are
read as of a time: AS_OF takes the same parameter, so that rows have a past here too.  `at` makes that past.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pymysql
import pytest

AS_OF = "SET SESSION system_versioning_asof = FROM_UNIXTIME((%s >> 18) / 1000)"
PASSWORD = "p@ss:w/rd'#"
QUOTED = "p%40ss%3Aw%2Frd%27%23"
START_S = 60


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


def programs() -> tuple[str, str]:
    """The paths of mariadb-install-db and mariadbd; without them the test is skipped, where CI runs it fails."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    found = shutil.which("mariadb-install-db", path=path), shutil.which("mariadbd", path=path)
    if found[0] is None or found[1] is None:
        text = "no MariaDB server on this machine; Debian, Ubuntu: apt-get install mariadb-server"
        (pytest.fail if os.environ.get("TIDEGATE_CI") else pytest.skip)(text)
    return str(found[0]), str(found[1])


@contextmanager
def running_server(home: Path, *more: str) -> Iterator[Server]:
    """A server, with `more` options, that is gone when the block ends."""
    install, daemon = programs()
    data = home / "data"
    user = ["--user=root"] if os.getuid() == 0 else []
    made = [install, "--no-defaults", *user, f"--datadir={data}", "--auth-root-authentication-method=normal"]
    subprocess.run([*made, "--skip-test-db"], check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [f"--datadir={data}", f"--port={port}", "--bind-address=127.0.0.1", f"--socket={home / 's'}"]
    options += [f"--pid-file={home / 'pid'}", "--innodb-buffer-pool-size=16M", "--character-set-server=utf8mb4"]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen([daemon, "--no-defaults", *user, *options, *more], stdout=log, stderr=log)
        try:
            connection = connected(port, process, home / "log")
            server = Server(port, connection)
            server.run(
                f"CREATE USER reader@'127.0.0.1' IDENTIFIED BY '{PASSWORD.replace(chr(39), chr(39) * 2)}'",
                "GRANT SELECT ON *.* TO reader@'127.0.0.1'",
            )
            yield server
            connection.close()
        finally:
            process.terminate()
            process.wait(60)


def connected(port: int, process: subprocess.Popen[bytes], log: Path) -> Any:
    """A connection of the superuser, as soon as the server answers."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            return pymysql.connect(host="127.0.0.1", port=port, user="root", charset="utf8mb4", autocommit=True)
        except pymysql.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"MariaDB did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)
