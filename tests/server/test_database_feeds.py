"""Changefeeds of a server into a database, which itself holds how far they are."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.test_sql_sink import asked, emptied
from tests.mariadb import Server as MariaServer
from tests.mariadb import running_server
from tests.server.kit import ServerHome, until
from tidegate.server.changefeeds import Changefeeds
from tidegate.server.record import FeedId, UpdateRefused
from tidegate_upstream.demo.replica import MariaDb

pytestmark = pytest.mark.slow

ONE = FeedId("default", "one")


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaServer]:
    """A MariaDB for the tests of this file."""
    with running_server(tmp_path_factory.mktemp("mariadb")) as found:
        yield found


@pytest.fixture
def place(tmp_path: Path, mariadb: MariaServer) -> ServerHome:
    """An upstream with some work behind it."""
    cleared(mariadb)
    return ServerHome(tmp_path)


@pytest.fixture
def feeds(place: ServerHome) -> Iterator[Changefeeds]:
    """The changefeeds of a server that owns."""
    server = place.server()
    until(lambda: server.changefeeds.is_owner)
    yield server.changefeeds
    server.stop()


def cleared(mariadb: MariaServer) -> None:
    """Leaves no database but `test`, which a TiDB has from the first."""
    emptied(mariadb)
    mariadb.run("CREATE OR REPLACE DATABASE test")


def noted(mariadb: MariaServer) -> list[int]:
    """How many rows the database holds of changefeeds: of progress, and of DDLs."""
    tables = ("progress", "ddl_history")
    return [asked(mariadb, f"SELECT COUNT(*) FROM tidegate.{table}")[0][0] for table in tables]


def test_a_database_keeps_the_checkpoint(place: ServerHome, feeds: Changefeeds, mariadb: MariaServer) -> None:
    """Its checkpoint is not overwritten; what is noted of it goes with it, and another one of its name begins anew."""
    end = place.work()
    uri = f"mysql://root@127.0.0.1:{mariadb.port}/"
    feeds.create(replace(place.wish("one"), sink_uri=uri), "")
    until(lambda: feeds.get(ONE).checkpoint_ts >= end)
    feeds.pause(ONE, "")
    with pytest.raises(UpdateRefused, match="cannot be overwritten"):
        feeds.resume(ONE, "", end)
    assert all(noted(mariadb))
    feeds.remove(ONE, "")

    assert noted(mariadb) == [0, 0]
    cleared(mariadb)
    feeds.create(replace(place.wish("one"), sink_uri=uri), "")
    until(lambda: feeds.get(ONE).checkpoint_ts >= end)
    assert all(noted(mariadb))


def test_a_database_that_is_gone(
    place: ServerHome, feeds: Changefeeds, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A changefeed whose database does not answer is removed all the same, and the log says what stays there."""
    (tmp_path / "dying").mkdir()
    dying = MariaDb(tmp_path / "dying")
    dying.start()
    feeds.create(replace(place.wish("one"), sink_uri=f"mysql://root@127.0.0.1:{dying.port}/"), "")
    dying.kill()
    assert feeds.remove(ONE, "") is not None
    assert feeds.listed() == []
    assert "stays there" in caplog.text
