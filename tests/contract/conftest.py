"""A second run of a feed is refused at once: nobody here is about to stop. A real S3 server or Azurite for
who asks for it."""

import os
from collections.abc import Iterator

import pytest

from tests import azure, s3
from tidegate.engine import checkpoints
from tidegate.objectstore.stores import store


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the sinks that run behind `make test` each gets a third of the DDLs, and the next one another third; in the
    soak all."""
    ddls = [item for item in items if item.get_closest_marker("more") and "::test_a_ddl[" in item.nodeid]
    kinds = list(dict.fromkeys(item.parent for item in ddls))
    for at, item in enumerate(ddls):
        if (at + kinds.index(item.parent)) % 3:
            item.add_marker("soak")


@pytest.fixture(autouse=True)
def _refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LOCK_WAIT_S", 0.1)


@pytest.fixture(scope="module")
def s3_server() -> Iterator[None]:
    """A real S3 server, named by the environment."""
    before = dict(os.environ)
    with s3.serving(s3.BUCKET) as port:
        os.environ.update(s3.environment(port))
        store.cache_clear()
        yield
    os.environ.clear()
    os.environ.update(before)
    store.cache_clear()


@pytest.fixture(scope="module")
def azurite() -> Iterator[None]:
    """The emulator of Azure Blob Storage, named by the environment."""
    with azure.found_by_clients():
        yield
