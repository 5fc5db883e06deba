"""A second run of a feed is refused at once: nobody here is about to stop."""

import pytest

from tidegate.app import checkpoints


@pytest.fixture(autouse=True)
def _refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LOCK_WAIT_S", 0.1)
