"""Two servers of one store: one owns, the other follows when it resigns, stops, or has been out of it too long."""

from pathlib import Path

import pytest

from tests.server.kit import ServerHome, until
from tidegate.server.record import FeedId, NotOwner

pytestmark = pytest.mark.slow

ONE = FeedId("default", "one")


def test_an_owner_resigns(tmp_path: Path) -> None:
    """An owner that resigns ends its runs, the other goes on at once, and each knows who owns."""
    place = ServerHome(tmp_path)
    one, two = place.server(capture_session_ttl=4), place.server(capture_session_ttl=4)
    until(lambda: one.changefeeds.is_owner or two.changefeeds.is_owner)
    first, second = (one, two) if one.changefeeds.is_owner else (two, one)
    first.changefeeds.create(place.wish("one"), "")
    end = place.work()
    until(lambda: first.changefeeds.get(ONE).checkpoint_ts >= end)
    with pytest.raises(NotOwner):
        second.changefeeds.get(ONE)

    first.resign()
    until(lambda: second.changefeeds.is_owner)
    end = place.work()
    until(lambda: second.changefeeds.get(ONE).checkpoint_ts >= end)
    assert not first.changefeeds.is_owner
    until(lambda: first.owner() is not None and first.owner().id == second.id)
    assert {(capture.id, capture.is_owner) for capture in first.captures()} == {(first.id, False), (second.id, True)}

    second.stop()
    until(lambda: first.changefeeds.is_owner)
    end = place.work()
    until(lambda: first.changefeeds.get(ONE).checkpoint_ts >= end)
    first.stop()


def test_what_another_has_written_is_left_alone(tmp_path: Path) -> None:
    """An owner that meets a record that another server has written gives up, and changes nothing."""
    place = ServerHome(tmp_path)
    server = place.server()
    until(lambda: server.changefeeds.is_owner)
    server.changefeeds.create(place.wish("one"), "")
    found = server._documents.read(ONE.document)
    server._documents.write(ONE.document, found.body.replace(b'"normal"', b'"stopped"'), found.version)

    with pytest.raises(NotOwner):
        server.changefeeds.pause(ONE, "")
    until(lambda: server.changefeeds.is_owner and server.changefeeds.get(ONE).state == "stopped")
    server.stop()
