"""Claim checks whose reader goes away."""

import threading

import pytest

from tidegate.source.large import ClaimReader


def test_closing_waits_for_no_read(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies that nobody asks for any more are closed while a file is still being read."""
    names = [f"{number:08x}-0000-4000-8000-000000000000.json" for number in range(2)]
    released, first = threading.Event(), object()
    monkeypatch.setattr(ClaimReader, "_read", lambda _, one: first if one.name == names[0] else released.wait(60))
    for name in names:
        (tmp_path / name).write_bytes(b"{}")
    bodies = ClaimReader(tmp_path.as_uri(), 100).bodies([f"{tmp_path.as_uri()}/{name}" for name in names])
    assert next(bodies) is first
    closing = threading.Thread(target=bodies.close)
    closing.start()
    closing.join(20)
    waits = closing.is_alive()
    released.set()
    closing.join()
    assert not waits
