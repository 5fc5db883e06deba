"""Sync points: rounds end there, and the target is then as the upstream was."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.test_sql_sink import asked, emptied, tables_of
from tests.failpoint import POINT_FAILPOINTS, armed
from tests.mariadb import Server, running_server
from tests.sink.sql.test_exactly_once import away, times
from tidegate.engine.ports import Tasks
from tidegate.model.errors import SinkError
from tidegate.model.tso import compose, physical_ms
from tidegate.mysql.server_sql import POINTS
from tidegate.sink.sql.connection import Atomicity, SqlOptions, SyncPoints
from tidegate.sink.sql.sink import SqlSink
from tidegate.testing import validators
from tidegate.testing.contract import stories
from tidegate.testing.script import Script, ScriptedSource, put, run_here

pytestmark = pytest.mark.slow

STEP_MS = 1000
LOST = ("sql/before-advance", "sql/after-commit", *POINT_FAILPOINTS)
"""Places at which an answer is lost once."""


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A MariaDB for the tests of this file."""
    with running_server(tmp_path_factory.mktemp("mariadb")) as found:
        yield found


def live(server: Server, story: Script, *, interval_ms: int, atomicity: Atomicity = "global", until: int = 0) -> None:
    """One life of a feed."""
    points = SyncPoints(interval_ms, 3_600_000)
    options = SqlOptions("feed", "127.0.0.1", server.port, atomicity=atomicity, txn_rows=3, sync_points=points)
    run_here(ScriptedSource(story), SqlSink(options), until=until or story.ts)


def points(server: Server) -> dict[int, int]:
    """primary_ts -> secondary_ts."""
    rows = asked(server, f"SELECT primary_ts, secondary_ts FROM {POINTS} WHERE changefeed = 'default/feed'")
    return {int(primary): int(secondary) for primary, secondary in rows}


def emptied_of_points(server: Server) -> None:
    """Leaves a server without the databases of the case before, and without sync points."""
    emptied(server)
    server.run("DROP DATABASE IF EXISTS tidb_cdc")


def multiples(story: Script, interval_ms: int) -> set[int]:
    """The sync points of a story."""
    step, first, last = interval_ms, physical_ms(story.begin), physical_ms(story.ts)
    return {compose(ms) for ms in range((first // step + 1) * step, last + 1, step)}


@given(st.integers(1, 1 << 40), st.integers(0, (1 << 62) - 1))
def test_the_next_point(interval_ms: int, ts: int) -> None:
    """The next sync point is the lowest multiple of the interval above a ts, at its begin."""
    found = SyncPoints(interval_ms).after(ts)
    assert found > ts
    assert physical_ms(found) % interval_ms == 0
    assert compose(physical_ms(found)) == found
    assert compose(physical_ms(found) - interval_ms) <= ts
    assert SyncPoints(interval_ms).is_one(found)
    assert not SyncPoints(interval_ms).is_one(found + 1)


RARER = [pytest.param(one, marks=pytest.mark.soak) for one in (3 * STEP_MS, 1700)]


@pytest.mark.parametrize("interval_ms", [STEP_MS, *RARER])
@pytest.mark.parametrize("atomicity", ["global", "none"])
def test_each_point_of_a_tidb(embedded: Server, interval_ms: int, atomicity: Atomicity) -> None:
    """At the secondary_ts of each sync point a TiDB holds what the upstream held at its primary_ts, DDLs of that very
    ts included; sessions that read external timestamps see the newest."""
    emptied_of_points(embedded)
    story = stories.shop()
    with armed({place: times(away, nth) for nth, place in enumerate(LOST, 2)}):
        live(embedded, story, interval_ms=interval_ms, atomicity=atomicity)

    found = points(embedded)
    assert set(found) == multiples(story, interval_ms)
    for primary, secondary in found.items():
        embedded.run(f"SET SESSION tidb_snapshot = '{secondary}'")
        assert not list(validators.unlike(story.tables(primary), tables_of(embedded))), primary
    embedded.run("SET SESSION tidb_snapshot = ''")
    ((external,),) = asked(embedded, "SELECT @@GLOBAL.tidb_external_ts")
    assert int(external) == max(found.values())


def test_points_of_a_mariadb(mariadb: Server) -> None:
    """A server without a past has the sync points too, with a secondary_ts of 0, each once though runs repeat them."""
    emptied_of_points(mariadb)
    story = stories.shop()
    live(mariadb, story, interval_ms=STEP_MS, until=story.marks[1])
    live(mariadb, story, interval_ms=STEP_MS)
    assert points(mariadb) == dict.fromkeys(multiples(story, STEP_MS), 0)


def test_from_the_begin_of_time(mariadb: Server) -> None:
    """A feed that begins at 0 has its first sync point behind its first round, not in 1970."""
    emptied_of_points(mariadb)
    story = stories.shop()

    class FromZero(ScriptedSource):
        def start(self, tasks: Tasks, checkpoint_ts: int | None) -> int:
            super().start(tasks, checkpoint_ts)
            return checkpoint_ts or 0

    options = SqlOptions("feed", "127.0.0.1", mariadb.port, sync_points=SyncPoints(STEP_MS, 3_600_000))
    run_here(FromZero(story), SqlSink(options), until=story.ts)
    first = story.events[0].commit_ts or 0
    assert set(points(mariadb)) == {ts for ts in multiples(story, STEP_MS) if ts > first} | {first}


def test_old_points_go(mariadb: Server) -> None:
    """Points that are older than the retention are deleted, those of other changefeeds stay."""
    emptied_of_points(mariadb)
    story = stories.shop()
    live(mariadb, story, interval_ms=STEP_MS, until=story.marks[0])
    mariadb.run(
        f"UPDATE {POINTS} SET created_at = created_at - INTERVAL 2 HOUR",
        f"INSERT INTO {POINTS} VALUES ('default', 'default/other', '1', '0', '2020-01-01')",
    )
    before = points(mariadb)
    live(mariadb, story, interval_ms=STEP_MS)
    assert not points(mariadb).keys() & before.keys()
    assert asked(mariadb, f"SELECT primary_ts FROM {POINTS} WHERE changefeed = 'default/other'") == [("1",)]


def test_no_point_where_a_shard_is_further(mariadb: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Where an earlier run, with longer intervals, has passed it than a sync point before it died, there is none at it,
    and the log says so."""
    emptied_of_points(mariadb)
    story = Script()
    story.ddl("shop", "CREATE DATABASE shop")
    story.ddl("shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
    story.resolve()
    live(mariadb, story, interval_ms=STEP_MS)
    for number in range(9):
        story.commit(put("shop.t", id=number))
    story.resolve()
    with armed({"sql/before-advance": _died}), pytest.raises(SystemExit):
        live(mariadb, story, interval_ms=100 * STEP_MS)

    live(mariadb, story, interval_ms=4 * STEP_MS)

    behind = story.events[1].commit_ts or 0
    assert not [ts for ts in points(mariadb) if behind < ts < story.ts]
    assert "has passed it" in caplog.text
    assert not list(validators.unlike(story.tables(story.ts), tables_of(mariadb)))


def test_a_point_belongs_to_its_writer(mariadb: Server) -> None:
    """A sync point is written with the checkpoint or not at all: an error between the two leaves neither."""
    emptied_of_points(mariadb)
    story = stories.shop()
    live(mariadb, story, interval_ms=STEP_MS, until=story.marks[0])
    mariadb.run("UPDATE tidegate.progress SET epoch = epoch + 5 WHERE shard = -1", f"DELETE FROM {POINTS}")
    mariadb.run(f"CREATE TRIGGER tidb_cdc.t BEFORE INSERT ON {POINTS} FOR EACH ROW SIGNAL SQLSTATE '45000'")
    before = asked(mariadb, "SELECT position FROM tidegate.progress WHERE shard = -1")
    with pytest.raises(SinkError):
        live(mariadb, story, interval_ms=STEP_MS)
    assert asked(mariadb, "SELECT position FROM tidegate.progress WHERE shard = -1") == before
    assert not points(mariadb)


def _died() -> None:
    raise SystemExit
