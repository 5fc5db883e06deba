"""What holds for every test: a time limit, and no process that outlives the run."""

import pytest

from tests.leftovers import Leftovers
from tests.limits import Limits


def pytest_configure(config: pytest.Config) -> None:
    """Add both."""
    config.pluginmanager.register(Limits(), "tidegate-limits")
    config.pluginmanager.register(Leftovers(), "tidegate-leftovers")
