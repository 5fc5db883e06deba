"""A browser for the tests of a file."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.server.page.browser import WAIT_MS, running

expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real Chromium."""
    with running() as browser:
        yield browser
