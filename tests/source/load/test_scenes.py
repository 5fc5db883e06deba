"""Four mistakes by which loads of others have lost rows, each as a scene of a database that changes amid the load; and
logs that begin at 0, on a filled store, and behind rows that are gone from them.

The numbers are those of the projects' public bug reports.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.mariadb import Server
from tests.source.load.feeds import Database, Draw, Feed, Servers, lives
from tidegate.codec.columnar.rows import Batch
from tidegate.config.load import load
from tidegate.config.registry import sink_of
from tidegate.engine.load_plan import KeptPlan, LoadChunk, LoadTable
from tidegate.engine.progress import Progress
from tidegate.lakes.lake import Lake
from tidegate.model.errors import HistoryLost, SqlRefused
from tidegate.source.load_sql import SqlReader
from tidegate.testing.contract.sinks import Died

pytestmark = pytest.mark.slow

TABLES: Final = (
    "CREATE DATABASE w",
    "CREATE TABLE w.a (id INT PRIMARY KEY, v VARCHAR(9))",
    "CREATE TABLE w.b (id INT PRIMARY KEY, v INT, u INT DEFAULT 9)",
    f"INSERT INTO w.a VALUES {', '.join(f'({number}, NULL)' for number in range(40))}",
    f"INSERT INTO w.b (id, v) VALUES {', '.join(f'({number}, {number})' for number in range(40))}",
)
"""Five chunks each."""


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    """Tables with rows, and a feed from their log into a file."""
    home = tmp_path / "feed"
    home.mkdir()
    database = Database(tmp_path / "log", chunk_rows=9)
    database.play(TABLES)
    database.now()
    draw = Draw(0, "log", ("sqlite", "sqlite"), ((), ()), trimmed=False, force=False, early=False)
    yield Feed(draw, "sqlite", database, Servers("", Server(0, None), 0), home)
    database.close()


def planned_ts(feed: Feed) -> int:
    """S, as it is written down."""
    plan = KeptPlan(str(feed.home / "state" / feed.config.name)).read()
    assert plan is not None
    return plan.ts


def killed_amid_rows(feed: Feed, amid: Callable[[], None] = lambda: None) -> int:
    """A load that dies once the rows of some chunks are in the target, and others are not; `amid` is done when half of
    those are read. Return its S."""
    batches, chunks = SqlReader.batches, list[int]()

    def counted(self: SqlReader, table: LoadTable, chunk: LoadChunk, ts: int) -> Iterator[Batch]:
        chunks.append(chunk.number)
        if len(chunks) == 4:
            amid()
        if len(chunks) == 7:
            raise Died
        return batches(self, table, chunk, ts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlReader, "batches", counted)
        with pytest.raises(Died):
            run(feed, 1)
    assert chunks == list(range(7))
    assert len(feed.tables()["w.a"]) == 40
    assert len(feed.tables()["w.b"]) < 40
    return planned_ts(feed)


def run(feed: Feed, upto: int) -> Progress:
    """One life of the feed, a chunk a round."""
    while True:
        done = lives(feed.config, upto, 1)
        if done.state == "finished":
            return done
        feed.database.now()


def equal_behind(feed: Feed, ts: int) -> None:
    """The load is complete as of its S, and the end is what the database has then."""
    done = feed.follow(1)
    assert done.load is not None
    assert done.load.ts == ts == done.checkpoint_ts
    assert not feed.unlike(ts)
    end = feed.database.now()
    assert feed.follow(end).checkpoint_ts == end
    assert not feed.unlike(end)


def test_a_ts_is_never_taken_again(feed: Feed) -> None:
    """A load that is started again reads at the S of before: a row that is deleted between both lives, of a chunk that
    is loaded already, does not stay, and one that is changed is not lost.

    flink-cdc #2034 (an INITIAL scan at a new ts, rows deleted between stop and restore stay); tidb2dw and seatunnel's
    TiDB-CDC take a new TSO at a restart, too."""
    ts = killed_amid_rows(feed)
    feed.database.play(
        ("DELETE FROM w.a WHERE id < 20", "UPDATE w.a SET v = 'x' WHERE id > 30", "UPDATE w.b SET v = -v WHERE id < 30")
    )
    equal_behind(feed, ts)


def test_nothing_is_matched_in_memory(feed: Feed) -> None:
    """What changes while chunks are read, in those that are read and those that are not, is the stream's, and a process
    that dies amid it has nothing to remember: no window of keys, no prewrites that wait for their commits.

    flink-cdc #1206 (changes amid the snapshot are lost at the switch), seatunnel #8815 and #11013 (a commit that came
    before its prewrite was thrown away), #11884 (stop at `latest` drops what changed amid the snapshot), tiflow #5468
    with tikv #12717, ticdc #5658, debezium DBZ-8335 and DBZ-8398 (a record lost around a blocking snapshot)."""

    def amid() -> None:
        feed.database.play(
            (
                "BEGIN; UPDATE w.a SET v = 'both' WHERE id IN (1, 39); UPDATE w.b SET v = 0 WHERE id = 39; COMMIT",
                "INSERT INTO w.a VALUES (-1, 'new'), (100, 'new')",
                "DELETE FROM w.b WHERE id IN (2, 38)",
                "UPDATE w.b SET id = id + 1000 WHERE id IN (3, 37)",
            )
        )

    equal_behind(feed, killed_amid_rows(feed, amid))


def test_rows_have_the_schema_of_their_ts(feed: Feed) -> None:
    """Definitions are those of S, whatever DDLs come before a row is read; the DDLs follow in the stream.

    flink-cdc #1962 and #2124 (a schema changed behind the offset that is begun at), FLINK-36081 with #3548 (a stale
    schema, columns missing), debezium DBZ-4878, DBZ-4196 and DBZ-4272 (DDLs amid an incremental snapshot), DBZ-5727."""
    ddls = (
        "ALTER TABLE w.b DROP COLUMN v",
        "ALTER TABLE w.b ADD COLUMN n VARCHAR(9) DEFAULT 'n' FIRST",
        "ALTER TABLE w.a MODIFY COLUMN v VARCHAR(99)",
        "ALTER TABLE w.a RENAME COLUMN v TO w",
        "RENAME TABLE w.a TO w.away, w.b TO w.a",
        "UPDATE w.a SET u = 1 WHERE id < 3",
    )
    ts = killed_amid_rows(feed, lambda: feed.database.play(ddls))
    assert feed.follow(1).checkpoint_ts == ts
    assert set(dict(feed.tables()["w.b"][0])) == {"id", "v", "u"}
    equal_behind(feed, ts)


def test_no_table_is_skipped(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that cannot be read ends the load, whatever the others have; nothing goes on without it. One that is
    dropped behind S is read, too.

    debezium dbz#1533 and dbz#2452 (behind an SQL error the table is skipped, and streaming goes on), tidb #63600 (a
    dump at a snapshot writes nothing of tables that were dropped later), flink-cdc #1027 (nothing of partitions)."""
    batches = SqlReader.batches

    def refused(self: SqlReader, table: LoadTable, chunk: LoadChunk, ts: int) -> Iterator[Batch]:
        if table.name.table == "b":
            raise SqlRefused(8200, "this table cannot be read")
        return batches(self, table, chunk, ts)

    monkeypatch.setattr(SqlReader, "batches", refused)
    with pytest.raises(SqlRefused):
        run(feed, 1)
    monkeypatch.undo()
    ts = planned_ts(feed)
    assert sink_of(feed.config).recover().checkpoint.ts < ts
    assert len(feed.tables()["w.a"]) == 40
    feed.database.play(("DROP TABLE w.b", "UPDATE w.a SET v = 'later'"))
    equal_behind(feed, ts)


@pytest.mark.parametrize("begin", ["from 0", "on a filled store", "trimmed"])
def test_logs_of_each_begin(feed: Feed, begin: str) -> None:
    """A log that begins at 0, or on a filled store, gives everything by itself; a trimmed one is refused by a lake, and
    gives everything with a load. So does each with a load."""
    database = feed.database
    if begin == "on a filled store":
        database.begin_again(feed.home / "begun")
    elif begin == "trimmed":
        database.trim()
    database.play(("INSERT INTO w.a VALUES (50, 'new')", "ALTER TABLE w.b ADD COLUMN n INT DEFAULT 3"))
    end = database.now()
    if begin == "trimmed":
        lake = load(source_uri=feed.source_uri, sink_uri=f"delta://{feed.home / 'lake'}", rules=["w.*"])
        with pytest.raises(HistoryLost, match="load-from"):
            lives(lake, end)
    else:
        alone = replace(feed, home=feed.home / "alone")
        alone.home.mkdir()
        alone.loads = False
        assert alone.follow(end).load is None
        assert not alone.unlike(end)
    assert feed.follow(1).load is not None
    later = database.now()
    feed.follow(later)
    assert not feed.unlike(later)


def test_a_live_view_above_a_loaded_snapshot(feed: Feed) -> None:
    """A lake of a load from a trimmed log shows what landed above S: its log does not tell the tables of S again."""
    draw = feed.draw._replace(limit=10**7)
    lake = replace(feed, draw=draw, sink="replica", home=feed.home / "lake-feed")
    lake.home.mkdir()
    feed.database.trim()
    moments: list[int] = []

    def amid() -> None:
        feed.database.play(("UPDATE w.a SET v = 'x' WHERE id < 9", "ALTER TABLE w.b ADD COLUMN n INT DEFAULT 3"))
        moments.append(feed.database.cluster.storage.oracle.next())
        feed.database.play(("DELETE FROM w.a WHERE id < 3",))
        feed.database.now()

    done = lake.follow(1, deeds={"load/plan-kept": amid})
    lake.follow(feed.database.now())
    (moment,) = moments
    assert [one.checkpoint_ts > moment for one in Lake(str(lake.home / "lake")).history()][:2] == [False, True]
    assert done.checkpoint_ts is not None
    assert done.checkpoint_ts < moment
    assert not lake.unlike(moment, lake.at(moment))
