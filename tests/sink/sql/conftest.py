"""Servers for the tests of the database sink."""

from collections.abc import Iterator

import pytest

from tests.contract.test_sql_sink import emptied
from tests.contract.test_sql_sink import tidb as embedded
from tests.mariadb import Server, running_server

__all__ = ["embedded", "running", "server"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A MariaDB for the tests of a file."""
    with running_server(tmp_path_factory.mktemp("mariadb")) as found:
        yield found


@pytest.fixture
def server(running: Server) -> Server:
    """The server without databases."""
    emptied(running)
    return running
