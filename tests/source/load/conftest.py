"""An embedded TiDB that stays up for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.source.load.kit import Loaded
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.listener import Upstream


@pytest.fixture(scope="package")
def upstream() -> Iterator[Loaded]:
    """A database, and a client of it."""
    with Upstream(Cluster.open(None, nodes=("n1",))) as made:
        client = Loaded(made.ports["n1"])
        yield client
        client.connection.close()
