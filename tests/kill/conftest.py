"""Topics that hold the recording, for all tests of this folder; the seed, at the end of every session."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.e2e.rig import Topic, recorded
from tests.kill.seeds import SEED, VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENT = 6
"""Enough of the recording for every kind of DDL but the last few."""
LINES: list[str] = []
"""What tests of this folder want to be told at the end."""


@pytest.fixture(scope="package")
def spark() -> Iterator["SparkSession"]:
    """A Spark of this process, for faults that need no process of their own."""
    from tidegate.spark.session import session

    started = session()
    yield started
    started.stop()


@pytest.fixture(scope="package")
def topics(bootstrap: str) -> dict[str, Topic]:
    """The topic of each protocol, up to MOMENT."""
    return {
        kind: Topic.fed(bootstrap, f"kill-{kind}-{os.getpid()}", kind, recorded(kind, MOMENT))
        for kind in ("open", "canal")
    }


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Whoever reads of a failure reads the seed."""
    print(f"{VARIABLE}={SEED} repeats the choices of this session")  # noqa: T201


@pytest.fixture
def told() -> list[str]:
    """Lines to be printed when the session ends."""
    return LINES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seed, and what was told."""
    for line in LINES:
        terminalreporter.write_line(line)
    terminalreporter.write_line(f"kill: {VARIABLE}={SEED} repeats the choices of this session")
