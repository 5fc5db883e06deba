"""Servers that the tests of this folder share: an upstream, and replicas of two kinds."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
import pytest

from tests.mariadb import Server, running_server
from tidegate_upstream.background import UpstreamOptions, start_upstream, stop_upstream


@contextmanager
def embedded(log: Path | None = None) -> Iterator[Server]:
    """An embedded TiDB, which writes a change log if it is told where, and is gone when the block ends."""
    process = start_upstream(UpstreamOptions(log="" if log is None else str(log)))
    port = process.port_of(1)
    connection = pymysql.connect(host="127.0.0.1", port=port, user="root", charset="utf8mb4", autocommit=True)
    yield Server(port, connection)
    connection.close()
    stop_upstream(process)


@pytest.fixture(scope="package")
def upstream() -> Iterator[Server]:
    """An embedded TiDB."""
    with embedded() as found:
        yield found


@pytest.fixture(scope="package")
def tidb() -> Iterator[Server]:
    """Another embedded TiDB."""
    with embedded() as found:
        yield found


@pytest.fixture(scope="package")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A MariaDB."""
    with running_server(tmp_path_factory.mktemp("mariadb")) as found:
        yield found


@pytest.fixture(params=["mariadb", pytest.param("tidb", marks=pytest.mark.more)])
def replica(request: pytest.FixtureRequest) -> Server:
    """A server of each kind."""
    found: Server = request.getfixturevalue(request.param)
    return found
