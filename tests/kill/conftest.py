"""A real broker that holds the first moments of the recording, for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.e2e.rig import Topic, recorded
from tidegate.app.broker import running_broker

MOMENT = 6
"""Enough of the recording for every kind of DDL but the last few."""


@pytest.fixture(scope="package")
def bootstrap() -> Iterator[str]:
    """The address of a real broker."""
    with running_broker() as broker:
        yield broker.bootstrap


@pytest.fixture(scope="package")
def topics(bootstrap: str) -> dict[str, Topic]:
    """The topic of each protocol, up to MOMENT."""
    return {kind: Topic.fed(bootstrap, f"kill-{kind}", kind, recorded(kind, MOMENT)) for kind in ("open", "canal")}
