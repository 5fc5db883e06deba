"""One Spark for all end-to-end tests, and two topics; a finished lake for those that only look at one."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.rig import LAST, Topic, cli, feed, recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENTS = (4, 8, LAST)
"""Where the runs that made the finished lake stopped."""


@pytest.fixture(scope="package")
def spark() -> Iterator["SparkSession"]:
    """The Spark of this process, as a user of the Python API gets it."""
    from tidegate.spark.session import session

    started = session()
    yield started
    started.stop()


@pytest.fixture(scope="package")
def open_topic(bootstrap: str) -> Topic:
    """The whole Open Protocol recording."""
    return Topic.fed(bootstrap, f"shop-open-{os.getpid()}", "open", recorded("open"))


@pytest.fixture(scope="package")
def canal_topic(bootstrap: str) -> Topic:
    """The whole Canal-JSON recording."""
    return Topic.fed(bootstrap, f"shop-canal-{os.getpid()}", "canal", recorded("canal"))


@pytest.fixture(scope="package")
def finished(spark: "SparkSession", open_topic: Topic, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake made of the Open Protocol recording by runs that stopped at MOMENTS."""
    lake = tmp_path_factory.mktemp("finished") / "lake"
    for moment in MOMENTS:
        result = cli(*feed(open_topic.uri(), lake, moment=moment))
        assert result.exit_code == 0, result.stderr
    return lake
