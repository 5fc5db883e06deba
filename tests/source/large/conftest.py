"""One MariaDB for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.mariadb import Server, running_server


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real server."""
    with running_server(tmp_path_factory.mktemp("mariadb")) as one:
        yield one
