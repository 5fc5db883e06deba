"""The S3 server of this folder's tests."""

from collections.abc import Iterator

import pytest

from tests.s3 import BUCKET, environment, serving


@pytest.fixture(scope="package")
def port() -> Iterator[int]:
    """One server for this folder."""
    with serving(BUCKET) as found:
        yield found


@pytest.fixture(autouse=True)
def _client(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of this process find the server."""
    for name, value in environment(port).items():
        monkeypatch.setenv(name, value)
