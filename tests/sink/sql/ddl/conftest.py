"""Real targets: one MariaDB and one embedded TiDB for all tests of DDL."""

from collections.abc import Iterator

import pytest

from tests.mariadb import Server, running_server
from tests.sink.sql.ddl.world import World
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.listener import Upstream


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A MariaDB."""
    with running_server(tmp_path_factory.mktemp("mariadb-ddl")) as found:
        yield found


@pytest.fixture(scope="session")
def tidb() -> Iterator[Upstream]:
    """An embedded TiDB that clients of MySQL connect to."""
    with Upstream(Cluster.open()) as found:
        yield found


@pytest.fixture(params=["mariadb", pytest.param("tidb", marks=pytest.mark.more)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """An empty target of each kind; `make test-more` has the TiDB."""
    found = request.getfixturevalue(request.param)
    made = World(found.port if isinstance(found, Server) else found.ports["n1"])
    yield made
    made.close()


@pytest.fixture
def maria(mariadb: Server) -> Iterator[World]:
    """An empty MariaDB."""
    made = World(mariadb.port)
    yield made
    made.close()
