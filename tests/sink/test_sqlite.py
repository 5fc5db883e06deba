"""The SQLite sink: files that are not its own, and an upstream's whole way into one."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.source.tidb.kit import recorded_log
from tidegate.config.load import load
from tidegate.config.registry import feed_of
from tidegate.engine.loop import Engine, Feed, Meter
from tidegate.engine.plan import Checkpoint, PlannedDdl, Round
from tidegate.engine.ports import LocalTasks
from tidegate.engine.stop_signals import NoPauseEvent
from tidegate.model.errors import Fenced, SinkError, SinkRefused
from tidegate.model.event import Ddl
from tidegate.schema.state import SchemaState
from tidegate.sink.sqlite import SqliteSink, change_tables
from tidegate.spark.tasks import SparkEnded
from tidegate.testing.contract import stories
from tidegate.testing.script import Script, ScriptedSource, run_here


def test_a_file_that_is_not_its_own(tmp_path: Path) -> None:
    """Another feed's file is left as it is, one that was emptied or taken over ends the run, and each error says what
    to do. A new changefeed begins anew in an emptied one."""
    path, story = tmp_path / "shop.db", stories.shop()
    run_here(ScriptedSource(story), SqliteSink(str(path), "one"), until=story.ts)
    with pytest.raises(SinkRefused, match="written by changefeed one; use another file for two"):
        SqliteSink(str(path), "two").recover()
    first, second = SqliteSink(str(path), "one"), SqliteSink(str(path), "one")
    assert first.recover() == second.recover()
    planned = Round((), SchemaState(), Checkpoint(story.ts), (), ())
    with pytest.raises(Fenced, match="another run of changefeed one"):
        first.advance(planned, [])
    path.unlink()
    with pytest.raises(SinkRefused, match="was emptied; start the changefeed again"):
        second.advance(planned, [])
    assert SqliteSink(str(path), "one").recover().is_new


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    """It is refused; a directory that is not there yet may come."""
    (tmp_path / "text").write_text("no database, but as long as a page of one has to be " * 100)
    with pytest.raises(SinkRefused, match="not a database"):
        SqliteSink(str(tmp_path / "text"), "one").recover()
    with pytest.raises(SinkError, match="unable to open"):
        SqliteSink(str(tmp_path / "none" / "shop.db"), "one").recover()


def test_what_sqlite_never_takes(tmp_path: Path) -> None:
    """A name that SQLite reserves ends the feed and is not tried again."""
    story = Script()
    story.ddl("sqlite_shop", "CREATE DATABASE sqlite_shop")
    story.ddl("sqlite_shop.t", "CREATE TABLE sqlite_shop.t (id INT PRIMARY KEY)")
    story.resolve()
    with pytest.raises(SinkRefused, match="reserved for internal use"):
        run_here(ScriptedSource(story), SqliteSink(str(tmp_path / "shop.db"), "one"), until=story.ts)


class EndingTasks(LocalTasks):
    """Tasks of a Spark that ends amid a DDL."""

    def run(self, work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        if getattr(work, "func", None) is change_tables:
            raise SparkEnded("Spark has terminated; start the changefeed again")
        return super().run(work, jobs)


def test_an_end_of_spark_is_no_refusal(tmp_path: Path) -> None:
    """Amid a DDL it stays what it is, so that a server starts another one and goes on."""
    story = stories.shop()
    with pytest.raises(SparkEnded):
        run_here(
            ScriptedSource(story), SqliteSink(str(tmp_path / "shop.db"), "one"), until=story.ts, tasks=EndingTasks()
        )


def test_a_stop_in_a_run_of_ddls(tmp_path: Path) -> None:
    """A run that is stopped amid DDLs that share a round ends behind the one in progress, and the next one goes on."""
    story, checkpoints = stories.tenants(), [0]
    while checkpoints[-1] < story.ts:
        sink, stop = SqliteSink(str(tmp_path / "shop.db"), "one"), NoPauseEvent()
        execute = sink.ddl

        def stopping(planned: PlannedDdl, execute: Callable[[PlannedDdl], None] = execute, stop: Event = stop) -> None:
            execute(planned)
            stop.set()

        sink.ddl = stopping  # type: ignore[method-assign]
        feed = Feed("one", ScriptedSource(story), sink, accept=lambda *_: True)
        Engine(feed, LocalTasks(), Meter(lambda _: None), stop).run(until=story.ts, idle_s=0)
        checkpoints.append(SqliteSink(str(tmp_path / "shop.db"), "one").recover().checkpoint.ts)
        assert checkpoints[-1] > checkpoints[-2]
    assert len(checkpoints) >= sum(1 for event in story.events if isinstance(event, Ddl))
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        rows = {
            name: connection.execute(f'SELECT * FROM "shop.{name}"').fetchall() for name in ("t0", "t1", "t2", "t3")
        }
    assert rows == {"t0": [(1, 0, 7), (2, 1, 1)], "t1": [(5,)], "t2": [(1,), (2,)], "t3": [(1, 2, 9)]}


def test_a_table_that_comes_back(tmp_path: Path) -> None:
    """Its rows are gone, so the feed ends at the DDL; where an event filter leaves it out, the feed goes on."""
    story, path = stories.around_ddl("recover table"), str(tmp_path / "shop.db")
    with pytest.raises(SinkRefused, match=r"RECOVER TABLE shop.t.*create a new changefeed.*or exclude the DDL"):
        run_here(ScriptedSource(story), SqliteSink(path, "one"), until=story.ts)
    drops = lambda ddl, _: ddl.query.startswith("RECOVER")  # noqa: E731
    done = run_here(
        ScriptedSource(story), SqliteSink(path, "one"), until=story.ts, drops=drops, rules=["*.*", "!shop.t"]
    )
    assert done.checkpoint_ts == story.ts


@pytest.mark.slow
def test_an_address(tmp_path: Path) -> None:
    """A changefeed from a recorded log into sqlite:// holds its rows, and has nothing to do the second time."""
    recorded_log(tmp_path / "log", "partition")
    target = tmp_path / "shop.db"
    config = load(source_uri=f"tidb://{tmp_path}/log", sink_uri=f"sqlite://{target}", state_dir=tmp_path / "state")
    done = [
        Engine(feed_of(config), LocalTasks(), Meter(lambda _: None), NoPauseEvent()).run(idle_s=0) for _ in range(2)
    ]

    assert done[0].rows > 0
    assert done[1].rows == 0
    with closing(sqlite3.connect(target)) as connection:
        names = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name LIKE '%.%'").fetchone()
    assert names[0] > 0
