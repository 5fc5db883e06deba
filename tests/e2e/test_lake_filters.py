"""Event filters on the way from a change log to a lake: rows, DDLs, and rows behind a DDL that was left out."""

import time
from pathlib import Path
from typing import Any

import pytest

import tidegate
from tests.engine.test_chain import Upstream
from tidegate.changelog.changelog import Changelog, changelog_uri
from tidegate.config.load import load
from tidegate.config.registry import entries_of, home_of
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.filter import TableFilter
from tidegate.engine.progress import Progress
from tidegate.model.errors import ExpressionColumnNotFound, SchemaError
from tidegate.model.event import Ddl
from tidegate.model.table import TableName
from tidegate.source.tidb_ddl import Timeline
from tidegate.source.tidb_segment import SegmentLog
from tidegate.spark.tasks import SparkTasks

pytestmark = pytest.mark.slow

Rows = dict[object, dict[str, object]]


class Lake:
    """An upstream, its log, and a lake behind filters."""

    def __init__(self, home: Path, filters: str, *, mode: str = "replica") -> None:
        self.upstream, self.home = Upstream(1, home / "log"), home
        self.uris = {"source_uri": f"tidb://{home / 'log'}", "sink_uri": f"delta://{home / 'lake'}?mode={mode}"}
        self.filters(filters)

    def filters(self, text: str) -> None:
        """Other filters, for the next run."""
        (self.home / "feed.toml").write_text(text)

    def run(self, sql: str) -> int:
        """The log's end behind some statements."""
        self.upstream.run(sql)
        self.upstream.writer.write(empty=True)
        return self.upstream.writer.low

    def feed(self, spark: Any, **given: Any) -> Progress:
        """What the changefeed says at its end."""
        return tidegate.Changefeed(load(self.home / "feed.toml", **self.uris, **given)).run(spark, idle_s=0.2)

    def land(self, spark: Any) -> None:
        """What there is lands, and is not merged."""
        config = load(self.home / "feed.toml", **self.uris)
        ahead = entries_of(config)[0].land(config, home_of(config), entries_of(config)[1])
        ahead.start(SparkTasks(spark))
        while not ahead.idle():
            time.sleep(0.05)
        ahead.stop()

    def held(self, name: str, *, live: bool = False) -> Rows:
        """A table of the lake by its key."""
        lake = tidegate.lake(str(self.home / "lake"))
        return {row["id"]: row for row in (lake.live() if live else lake).arrow(f"test.{name}").to_pylist()}


ROWS = """
[[filter.event-filters]]
matcher = ["test.a"]
ignore-event = ["delete"]
ignore-insert-value-expr = "v < 0"
ignore-update-new-value-expr = "v = 13"
"""


def test_rows_are_left_out(spark: Any, tmp_path: Path) -> None:
    """Rows that a rule names never come, in a small chunk as in one of thousands; other tables are whole."""
    lake = Lake(tmp_path, ROWS)
    lake.run("INSERT INTO a VALUES (1, 1, 1), (2, -1, 2), (3, 3, 3); INSERT INTO b VALUES (1, -1, 1), (2, 2, 2)")
    lake.run("DELETE FROM a WHERE id = 1; UPDATE a SET v = 13 WHERE id = 3; DELETE FROM b WHERE id = 2")
    many = ", ".join(f"({number}, {(number % 3) - 1}, {number})" for number in range(100, 300))
    lake.run(f"INSERT INTO a VALUES {many}; INSERT INTO b VALUES {many}; UPDATE a SET v = 7 WHERE id = 2")
    lake.feed(spark)

    some = lake.held("a")
    assert {key: row["v"] for key, row in some.items() if key < 100} == {1: 1, 2: 7, 3: 3}  # type: ignore[operator]
    assert sorted(key for key in some if key >= 100) == [number for number in range(100, 300) if number % 3]  # type: ignore[operator]
    assert lake.held("b") == lake.upstream.rows("b")


def test_what_came_before_the_start_is_whole(spark: Any, tmp_path: Path) -> None:
    """A lake that begins with the log is filtered from start-ts on alone, as one that was loaded at start-ts would."""
    lake = Lake(tmp_path, ROWS)
    start_ts = lake.run("INSERT INTO a VALUES (1, 1, 1), (2, -1, 2), (3, 3, 3); DELETE FROM a WHERE id = 1")
    lake.run("DELETE FROM a WHERE id = 3; INSERT INTO a VALUES (4, -4, 4)")
    lake.feed(spark, start_ts=start_ts)

    assert sorted(lake.held("a")) == [2, 3]


class Heard(EventFilter):
    """Leaves out nothing and hears the start_ts of every DDL."""

    def drops_ddl(self, ddl: Ddl, previous: TableName | None, start_ts: int) -> bool:  # noqa: ARG002
        """Never."""
        STARTS[ddl.query] = start_ts
        return False


STARTS: dict[str, int] = {}


def test_transactions_are_left_out(spark: Any, tmp_path: Path) -> None:
    """Their rows and their DDLs; rows of a table that lacks one of these end the feed, and no rule can change that."""
    lake = Lake(tmp_path, "")
    lake.upstream.run("BEGIN; INSERT INTO a VALUES (2, 2, 2)")
    opened = lake.upstream.session.transaction.open
    assert opened is not None
    lake.upstream.run("COMMIT")
    end = lake.run("INSERT INTO a VALUES (3, 3, 3); ALTER TABLE b ADD COLUMN w INT")
    timeline = Timeline(SegmentLog(tmp_path / "log"), TableFilter.parse(), events=Heard())
    timeline.read(end)
    while (stop := timeline.stop()) is not None:
        timeline.walk(stop)
    altered = STARTS["ALTER TABLE b ADD COLUMN w INT"]
    lake.filters(f"[filter]\nignore-txn-start-ts = [{opened.start_ts}, {altered}]\n")
    lake.feed(spark)

    assert sorted(lake.held("a")) == [3]
    assert "w" not in tidegate.lake(str(tmp_path / "lake")).arrow("test.b").column_names
    lake.run("INSERT INTO b VALUES (1, 1, 1, 1)")
    lake.filters("")
    with pytest.raises(SchemaError, match=r"test\.b: .*ADD COLUMN `w` INT.*To continue: exclude the table"):
        lake.feed(spark)


ARCHIVE = """
[[filter.event-filters]]
matcher = ["test.*"]
ignore-event = ["delete", "truncate table", "drop table", "create index"]
"""


def test_an_archive_keeps_what_upstream_takes_away(spark: Any, tmp_path: Path) -> None:
    """DELETE, TRUNCATE and DROP do nothing to the lake, and rows that come later are merged into what it has."""
    lake = Lake(tmp_path, ARCHIVE)
    lake.run("INSERT INTO a VALUES (1, 1, 1), (2, 2, 2); INSERT INTO b VALUES (1, 1, 1); DELETE FROM a WHERE id = 2")
    lake.run("TRUNCATE TABLE a; INSERT INTO a VALUES (1, 10, 1), (5, 5, 5); CREATE INDEX i ON a (v); DROP TABLE b")
    done = lake.feed(spark)

    assert {key: row["v"] for key, row in lake.held("a").items()} == {1: 10, 2: 2, 5: 5}
    assert sorted(lake.held("b")) == [1]
    assert any("excluded by an event filter: TRUNCATE TABLE `a`" in warning for warning in done.warnings)
    lake.run("TRUNCATE TABLE a; INSERT INTO a VALUES (6, 6, 6)")
    lake.land(spark)
    assert sorted(lake.held("a", live=True)) == [1, 2, 5, 6]


LEFT = """
[[filter.event-filters]]
matcher = ["test.a"]
ignore-sql = ["add column w"]
"""


def test_rows_behind_a_ddl_that_was_left_out(spark: Any, tmp_path: Path) -> None:
    """The lake goes on as long as no row needs the DDL, names table, ts and DDL when one does, and goes on from there
    once the filter lets the DDL pass, though the landing was past it long before."""
    lake = Lake(tmp_path, LEFT)
    lake.run("INSERT INTO a VALUES (1, 1, 1); INSERT INTO b VALUES (1, 1, 1)")
    altered = lake.run("ALTER TABLE a ADD COLUMN w INT DEFAULT 7; INSERT INTO b VALUES (2, 2, 2)")
    first = lake.feed(spark)
    assert first.checkpoint_ts == altered
    assert [sorted(lake.held(name)) for name in "ab"] == [[1], [1, 2]]
    assert "w" not in lake.held("a")[1]

    lake.run("INSERT INTO a VALUES (2, 2, 2, 2)")
    with pytest.raises(SchemaError, match=r"table test\.a: rows up to ts \d+ do not fit .*ADD COLUMN `w` INT") as told:
        lake.feed(spark)
    with pytest.raises(SchemaError, match=r"ADD COLUMN `w`"):
        lake.held("a", live=True)
    assert "let the filter pass it" in str(told.value)
    assert tidegate.lake(str(tmp_path / "lake")).checkpoint_ts == altered

    lake.filters("")
    end = lake.run("INSERT INTO b VALUES (3, 3, 3)")
    assert lake.feed(spark).checkpoint_ts == end
    assert lake.held("a") == lake.upstream.rows("a")
    assert lake.held("a")[1]["w"] == 7


def test_what_comes_before_such_rows_is_published(spark: Any, tmp_path: Path) -> None:
    """However much lands at once: the lake stands at the DDL, with everything up to it."""
    lake = Lake(tmp_path, LEFT)
    lake.run(
        "INSERT INTO a VALUES (1, 1, 1); INSERT INTO b VALUES (1, 1, 1); ALTER TABLE a ADD COLUMN w INT; "
        "INSERT INTO b VALUES (2, 2, 2); INSERT INTO a VALUES (2, 2, 2, 2); INSERT INTO b VALUES (3, 3, 3)"
    )
    with pytest.raises(SchemaError, match="ADD COLUMN `w` INT"):
        lake.feed(spark)

    assert [sorted(lake.held(name)) for name in "ab"] == [[1], [1]]
    assert "w" not in lake.held("a")[1]
    lake.filters("")
    lake.feed(spark)
    assert {name: lake.held(name) for name in "ab"} == {name: lake.upstream.rows(name) for name in "ab"}


def test_a_column_that_does_not_exist_is_told_at_the_start(spark: Any, tmp_path: Path) -> None:
    """Before anything lands, when the table is there already."""
    rule = '[[filter.event-filters]]\nmatcher = ["test.a"]\nignore-insert-value-expr = "nothing = 1"\n'
    lake = Lake(tmp_path, rule, mode="changelog")
    start_ts = lake.run("INSERT INTO a VALUES (1, 1, 1)")
    with pytest.raises(ExpressionColumnNotFound, match=r"'nothing = 1' for test\.a"):
        lake.feed(spark, start_ts=start_ts)


WRITTEN = """
[[filter.event-filters]]
matcher = ["test.b"]
ignore-sql = ["^alter table b add column w int"]
"""


def test_rules_ask_the_text_as_it_was_written(spark: Any, tmp_path: Path) -> None:
    """A lake gets DDLs as TiCDC prints them, and rules find them by the users' words, also when they change later."""
    lake = Lake(tmp_path, WRITTEN)
    end = lake.run("alter table b add column w int; alter table a add column w int default 7")
    lake.run("INSERT INTO a (id) VALUES (1)")
    lake.feed(spark)

    landed = Changelog(changelog_uri(str(tmp_path / "lake")))
    landed.refresh()
    assert [(one.ddl.query, one.ddl.written) for one in landed.ddls(0, end)][-1] == (
        "ALTER TABLE `a` ADD COLUMN `w` INT DEFAULT 7",
        "alter table a add column w int default 7",
    )
    assert lake.held("a")[1]["w"] == 7
    assert "w" not in tidegate.lake(str(tmp_path / "lake")).arrow("test.b").column_names

    lake.filters("")
    lake.run("INSERT INTO b (id, w) VALUES (1, 5)")
    lake.feed(spark)
    assert lake.held("b")[1]["w"] == 5
