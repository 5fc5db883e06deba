"""What the tests of changefeeds from a change log share: a broker and a Spark for each module."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tidegate.app.broker import running_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """The address of a real broker."""
    with running_broker() as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    """The Spark of this process."""
    from tidegate.spark.session import session

    started = session()
    yield started
    started.stop()
