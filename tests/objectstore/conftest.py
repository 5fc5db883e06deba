"""The S3 server of this folder's tests."""

from collections.abc import Iterator

import pytest

from tests.s3 import BUCKET, environment, serving
from tidegate.objectstore.stores import store


@pytest.fixture(scope="package", params=["moto", pytest.param("minio", marks=pytest.mark.soak)])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """One server for this folder, which takes signed requests alone."""
    with serving(BUCKET, minio=request.param == "minio") as found:
        yield found


@pytest.fixture(scope="package")
def unsigned() -> Iterator[int]:
    """A server that takes any request, for those whose headers are changed on their way."""
    with serving(BUCKET, signed=False) as found:
        yield found


@pytest.fixture
def client(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of this process find the server; those of earlier tests, which found a proxy perhaps, are forgotten."""
    store.cache_clear()
    for name, value in environment(port).items():
        monkeypatch.setenv(name, value)
