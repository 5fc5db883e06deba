"""Feeds of these tests look for a requested load at once."""

import pytest

from tidegate.engine import reload


@pytest.fixture(autouse=True)
def _soon_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "LOOK_S", 0.1)
    monkeypatch.setattr(reload, "AGAIN_S", 0.1)
