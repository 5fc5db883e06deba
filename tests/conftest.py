"""What holds for every test: a time limit, no process that outlives the run, and JVMs that are soon at work."""

from contextlib import suppress

import pytest

from tests.jvms import soon
from tests.leftovers import Leftovers
from tests.limits import Limits
from tidegate.model.errors import EnvironmentFault


def pytest_configure(config: pytest.Config) -> None:
    """Add them; what needs a JVM says for itself that there is none."""
    config.pluginmanager.register(Limits(), "tidegate-limits")
    config.pluginmanager.register(Leftovers(), "tidegate-leftovers")
    with suppress(EnvironmentFault):
        soon()
