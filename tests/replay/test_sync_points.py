"""The recorded topics in databases, with a sync point at each recorded moment: a replica is there what TiDB was.

recorded topic ──landed──► changelog ──feed──► MariaDB         read while the feed is held at a point   ◄─┐
                                          └──► embedded TiDB   read when all is over, at secondary_ts   ◄─┴── truth
"""

from pathlib import Path

import pytest

from tests.contract.test_sql_sink import tidb
from tests.counts import some
from tests.mariadb import Server
from tests.replay.test_apply import home, running, server
from tests.replay.test_database import truths, unlike
from tests.sink.sql.test_hold import in_a_thread, session, until
from tests.sink.sql.test_sync_point import emptied_of_points, points
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.source import ChangelogSource
from tidegate.sink.sql.connection import SqlOptions, SyncPoints
from tidegate.sink.sql.progress import Lease
from tidegate.sink.sql.sink import SqlSink
from tidegate.testing.script import run_here

__all__ = ["home", "running", "server", "tidb"]

pytestmark = pytest.mark.slow
MOMENTS = [truth["ts"] for truth in truths()]
HELD = truths()[some(2, 1) :: some(4, 1)]
"""The moments at which a feed is held: in `make test` the 3rd, 7th and 11th, in the soak all but the first."""


@pytest.fixture(autouse=True)
def _at_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync points are the recorded moments, instead of the multiples of an interval."""
    monkeypatch.setattr(SyncPoints, "after", lambda _, ts: next((one for one in MOMENTS if one > ts), 1 << 62))


def feed(home: Path, server: Server) -> tuple[ChangelogSource, SqlSink]:
    """All that has landed, and a sink with sync points."""
    options = SqlOptions("feed", "127.0.0.1", server.port, sync_points=SyncPoints(1, 86_400_000))
    return ChangelogSource(changelog_uri(str(home))), SqlSink(options)


@pytest.mark.parametrize("home", ["open", pytest.param("canal", marks=pytest.mark.soak)], indirect=True)
def test_a_mariadb_that_is_held(server: Server, home: Path) -> None:
    """A MariaDB whose feed is held at a sync point has the rows that TiDB had then, from topics of either protocol."""
    emptied_of_points(server)
    run_here(*feed(home, server), until=MOMENTS[0])
    assert not list(unlike(server, truths()[0]))
    holder = session(server)
    leases = [Lease(holder, "feed", truth["ts"]) for truth in HELD]
    leases[0].request()
    with in_a_thread(*feed(home, server)):
        for at, (lease, truth) in enumerate(zip(leases, HELD, strict=True)):
            until(lease.stands)
            for after in leases[at + 1 : at + 2]:
                after.request()
            assert max(points(server)) == truth["ts"]
            assert not list(unlike(server, truth)), truth["n"]
            lease.release()
        until(lambda: points(server) == dict.fromkeys(MOMENTS, 0))
    holder.close()


@pytest.mark.soak
def test_the_past_of_a_tidb(tidb: Server, home: Path) -> None:
    """An embedded TiDB shows at the secondary_ts of each sync point what the upstream had at its primary_ts, from
    topics of either protocol, whatever came behind it."""
    emptied_of_points(tidb)
    source, sink = feed(home, tidb)
    run_here(source, sink, until=MOMENTS[-1])

    found = points(tidb)
    assert sorted(found) == MOMENTS
    for truth in truths():
        assert not list(unlike(tidb, truth, snapshot=found[truth["ts"]])), truth["n"]
