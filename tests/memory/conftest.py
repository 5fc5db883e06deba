"""One broker for all heavy topics."""

from collections.abc import Iterator

import pytest

from tidegate.app.broker import running_broker


@pytest.fixture(scope="package")
def bootstrap() -> Iterator[str]:
    """The address of a real broker."""
    with running_broker() as broker:
        yield broker.bootstrap
