"""What holds for every test: a time limit, no process that outlives the run, JVMs soon at work, files in memory,
examples without a deadline, short pauses behind errors, and the log as the test found it.

One broker is for all; a Spark is for the modules of folders that have none in common."""

import logging
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.collection import Collection
from tests.counts import some
from tests.in_memory import write_there
from tests.jvms import soon
from tests.leftovers import Leftovers
from tests.limits import Limits
from tests.one_broker import OneBroker, broker_of
from tests.readers import Readers, shared, stop_shared
from tidegate.engine import retry_policy
from tidegate.model.errors import EnvironmentFault, Redaction, set_redaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW_EXAMPLES, EXAMPLES = 30, some(50, settings.default.max_examples)
"""Of a property that says no number of its own, in the fast suite and in `make test`; the soak tries a hundred."""


def pytest_configure(config: pytest.Config) -> None:
    """Add them; what needs a JVM says for itself that there is none."""
    examples = FEW_EXAMPLES if "not slow" in config.option.markexpr else EXAMPLES
    settings.register_profile("untimed", parent=settings.default, deadline=None, max_examples=examples)
    settings.load_profile("untimed")
    write_there()
    config.pluginmanager.register(Collection(), "tidegate-collection")
    config.pluginmanager.register(Limits(), "tidegate-limits")
    config.pluginmanager.register(Leftovers(), "tidegate-leftovers")
    config.pluginmanager.register(OneBroker(), "tidegate-broker")
    with suppress(EnvironmentFault):
        soon()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """A command or a server of this process sets the log, and how rows are redacted, for good."""
    root, loggers = logging.getLogger(), logging.Logger.manager.loggerDict
    handlers, levels = root.handlers[:], {"": root.level}
    levels |= {name: logger.level for name, logger in loggers.items() if isinstance(logger, logging.Logger)}
    try:
        return (yield)
    finally:
        for name in ["", *loggers]:
            logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))
        root.handlers[:] = handlers
        set_redaction(Redaction.OFF)


@pytest.fixture(autouse=True)
def _tried_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that fails in this process is tried again at once, not after a second; slow tries keep their pauses."""
    monkeypatch.setattr(retry_policy, "QUICK_S", 0.05)


@pytest.fixture(scope="session")
def bootstrap(pytestconfig: pytest.Config) -> Iterator[str]:
    """The address of a real broker, which others ask as well: a test makes topics with names of their own."""
    with broker_of(pytestconfig) as found:
        yield found


@pytest.fixture(scope="session", autouse=True)
def _readers_end() -> Iterator[None]:
    yield
    stop_shared()


@pytest.fixture(scope="session")
def readers() -> Readers:
    """PyIceberg, Polars, DuckDB and Spark, in processes that the whole run shares."""
    return shared()


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    """The Spark of this process."""
    from tidegate.spark.session import session

    started = session()
    yield started
    started.stop()
