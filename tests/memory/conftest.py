"""One broker for all heavy topics, and JVMs as users have them."""

from collections.abc import Iterator

import pytest

from tests.jvms import SUBMIT_ARGUMENTS
from tidegate_upstream.broker import running_broker


@pytest.fixture(autouse=True)
def _plain_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive of classes would count as memory."""
    monkeypatch.delenv(SUBMIT_ARGUMENTS, raising=False)


@pytest.fixture(scope="package")
def bootstrap() -> Iterator[str]:
    """The address of a real broker."""
    with running_broker() as broker:
        yield broker.bootstrap
