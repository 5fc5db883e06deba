"""A later load of a feed whose changes come from a topic, one that shows each table once it is whole, and one of tables
that are parked.

    rows ──► a topic begins ──► a feed ──► work ──► load of all, killed amid it ──► load of some ──► equal?
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.failpoint import armed
from tests.source.load.feeds import TABLES, Database, Tables, Work, ordered
from tidegate.codec.columnar.rows import Batch
from tidegate.config.entry import FeedConfig
from tidegate.config.load import document_of, load
from tidegate.config.registry import sink_of, source_of
from tidegate.engine.load_plan import LoadChunk, LoadTable
from tidegate.engine.ports import RoundLimit
from tidegate.engine.progress import Progress
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ConfigError, SchemaError
from tidegate.sink.delta import snapshots
from tidegate.source.load_sql import SqlReader
from tidegate.testing.script import run_here

pytestmark = pytest.mark.slow

RULES = ("w.*", "!w.keyless")


class Killed(BaseException):
    """The end of a process."""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Tables with rows, and a log that begins above them."""
    made = Database(tmp_path / "log", chunk_rows=9)
    try:
        made.play((*TABLES, *Work(3).rows(60)))
        made.trim()
        yield made
    finally:
        made.close()


class Later:
    """A feed of a source into a lake or a SQLite, and the loads of it."""

    def __init__(self, database: Database, home: Path, source: str = "", sink: str = "lake", more: str = "") -> None:
        self.database, self.home, self.sink = database, home, sink
        self.source = source or f"tidb://{database.log}"
        self.more, self.begun = more, database.now()

    def config(self, number: int = 0, tables: tuple[str, ...] = (), options: str = "") -> FeedConfig:
        """The feed with the load of that number; 0: without a load."""
        uris = {"sqlite": f"sqlite://{self.home / 'w.db'}", "lake": f"delta://{self.home / 'lake'}?{self.more}"}
        source = {"load-from": self.database.address + options, "load-number": number, "load-tables": list(tables)}
        return load(
            document_of({"source": source} if number else {}),
            source_uri=self.source,
            sink_uri=uris[self.sink],
            rules=RULES,
            name="later",
            state_dir=None if self.sink == "lake" else self.home / "state",
            start_ts=self.begun if not number and self.source[:4] == "tidb" else None,
        )

    def write(self) -> int:
        """Write the log and the topic; return the TSO that they go up to."""
        end = self.database.now()
        if self.source[:4] == "tidb":
            return end
        config = load(
            source_uri=f"tidb://{self.database.log}", sink_uri=f"{self.source}&partition-num=2", rules=RULES,
            state_dir=self.home / "writer", start_ts=None if (self.home / "writer").exists() else self.begun,
        )  # fmt: skip
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            if run_here(source_of(config), sink_of(config), until=end, rules=RULES).state == "finished":
                return end
            self.database.now()
        raise AssertionError(f"the topic has not come to {end}")

    def follow(self, config: FeedConfig, report: Callable[[Progress], None] = lambda _: None) -> Progress:
        """Run the feed up to now."""
        upto, until_s = self.write(), time.monotonic() + 60

        def comes_to_s() -> None:  # a later load waits for that
            self.write()

        while time.monotonic() < until_s:
            sink: Any = sink_of(config)
            sink.flush_policy = replace(sink.flush_policy, load_limit=RoundLimit(1, 1 << 30))
            with armed({"load/plan-kept": comes_to_s}):
                done = run_here(source_of(config), sink, until=upto, report=report, rules=RULES)
            if done.state == "finished":
                return done
            self.write()
        raise AssertionError(f"the feed has not come to {upto}: {done}")

    def killed(self, config: FeedConfig) -> None:
        """Run the feed until some chunks of its load are done, with work after that."""

        def die(progress: Progress) -> None:
            if progress.load and 2 < progress.load.chunks_done < progress.load.chunks:
                raise Killed

        with pytest.raises(Killed):
            self.follow(config, die)

    def unlike(self) -> list[str]:
        """The tables that are not as the upstream has them now."""
        truth, found = self.database.tables(self.database.now()), self.tables()
        truth.pop("w.keyless")
        return sorted(name for name in {*truth, *found} if truth.get(name) != found.get(name))

    def tables(self) -> Tables:
        """The rows of the target."""
        if self.sink == "lake":
            lake = Lake(str(self.home / "lake"))
            parked = {name for group in lake.snapshot.parked for name in group.names}
            return {name: ordered(lake.arrow(name).to_pylist()) for name in lake.tables() if name not in parked}
        with closing(sqlite3.connect(self.home / "w.db")) as file:
            file.row_factory = sqlite3.Row
            names = [str(row[0]) for row in file.execute("SELECT name FROM sqlite_master WHERE name LIKE 'w.%'")]
            return {name: ordered(map(dict, file.execute(f'SELECT * FROM "{name}"'))) for name in names}


@pytest.mark.more
@pytest.mark.parametrize(("protocol", "sink"), [("open-protocol", "lake"), ("canal-json", "sqlite")])
def test_from_a_topic(database: Database, bootstrap: str, tmp_path: Path, protocol: str, sink: str) -> None:
    """A topic that begins above rows, then a load of all and one of some, each killed amid it, with DDLs all along."""
    more = "&enable-tidb-extension=true" if protocol == "canal-json" else ""
    feed = Later(database, tmp_path, f"kafka://{bootstrap}/later-{sink}?protocol={protocol}{more}", sink)
    work = Work(5)
    database.play(work.rows(20))
    feed.follow(feed.config())
    assert "w.single" in feed.unlike()
    for number, tables in ((1, ()), (2, ("w.t", "w.pa*"))):
        database.play(work.storm())
        again = feed.config(number, tables)
        feed.killed(again)
        database.play((*work.storm(), *work.rows(9)))
        done = feed.follow(again)
        assert done.load is not None
        assert done.load.is_done
        assert not feed.unlike()
        assert feed.follow(again).rows_loaded == 0


@pytest.mark.parametrize("tables", [pytest.param((), marks=pytest.mark.more), ("w.t", "w.pa*")])
def test_table_by_table(database: Database, tmp_path: Path, tables: tuple[str, ...]) -> None:
    """A snapshot amid the load has the tables that are whole, each as of S, and those that are not loaded."""
    feed, work = Later(database, tmp_path), Work(6)
    feed.follow(feed.config(1))
    database.play(work.storm())
    again = feed.config(2, tables, "&load-publish=table")
    feed.killed(again)
    database.play((*work.storm(), *work.rows(9)))
    done = feed.follow(again)
    assert done.load is not None
    assert not feed.unlike()
    s, root = done.load.ts, str(tmp_path / "lake")
    truth, shown = database.tables(s), list[set[str]]()
    options = Lake(root).options
    for snapshot in (snapshots.published(options, number) for number in snapshots.numbers(options)):
        if s - done.load.chunks <= snapshot.checkpoint_ts <= s:
            view = Lake(root, snapshot.checkpoint_ts)
            shown.append({*view.tables()})
            for name in view.tables():
                assert ordered(view.arrow(name).to_pylist()) == truth[name], (name, snapshot.checkpoint_ts)
    assert len(shown) > 2
    assert {*truth} - {"w.keyless"} == shown[-1]
    loaded = {"w.t", "w.pairs", "w.parts"} if tables else {*truth}
    assert all(names >= {*truth} - loaded - {"w.keyless"} for names in shown), shown


def parking(database: Database, home: Path, policy: str = "exception") -> Later:
    """A feed that parks tables."""
    return Later(database, home, more=f"table-error=park&schema-change={policy}")


@pytest.mark.parametrize(
    "tables", [pytest.param((), marks=pytest.mark.more), pytest.param(("w.t",), marks=pytest.mark.more), ("w.other",)]
)
def test_parked_tables(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: tuple[str, ...]
) -> None:
    """A load replaces a table that is parked, which is not parked any more; another one does not keep S, and is resumed
    behind the load."""
    feed = parking(database, tmp_path)
    feed.follow(feed.config(1))
    database.play(("ALTER TABLE w.t ADD COLUMN c INT", "UPDATE w.t SET c = 1", "REPLACE INTO w.other VALUES (7, 7)"))
    assert [table.table for table in feed.follow(feed.config(1)).parked] == ["w.t"]
    database.play(("UPDATE w.t SET c = 2", "REPLACE INTO w.other VALUES (8, 8)"))
    again = feed.config(2, tables)
    feed.follow(again)
    database.play(("REPLACE INTO w.t (id, c) VALUES (1, 3)", "REPLACE INTO w.other VALUES (9, 9)"))
    done = feed.follow(again)
    stays = ["w.t"] if tables == ("w.other",) else []
    assert [table.table for table in done.parked] == stays
    assert done.load is not None
    assert done.load.guarded_until_ms == 0
    assert feed.unlike() == stays
    if stays:
        monkeypatch.setattr(snapshots, "LOOK_S", 0.0)
        root = Lake(str(tmp_path / "lake"))
        snapshots.ask(root.options, root.snapshot, ())
        resumed = parking(database, tmp_path, "evolve")
        assert not resumed.follow(resumed.config(2, tables)).parked
        assert not resumed.unlike()


@pytest.mark.more
def test_a_table_that_is_parked_amid_a_load(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are those of the load that is written down, so another load of other tables is refused by its name."""
    feed, batches = parking(database, tmp_path), SqlReader.batches

    def refusing(self: SqlReader, table: LoadTable, chunk: LoadChunk, ts: int) -> Iterator[Batch]:
        if table.name.table == "t":
            raise SchemaError("w.t is odd").at(table="w.t")
        return batches(self, table, chunk, ts)

    with monkeypatch.context() as patched:
        patched.setattr(SqlReader, "batches", refusing)
        assert [table.table for table in feed.follow(feed.config(1)).parked] == ["w.t"]
    with pytest.raises(ConfigError, match=r"^w\.t: parked amid the last load"):
        feed.follow(feed.config(2, ("w.other",)))
    assert not feed.follow(feed.config(2, ("w.t",))).parked
    assert not feed.unlike()


@pytest.mark.parametrize("sink", ["sqlite", pytest.param("lake", marks=pytest.mark.more)])
def test_a_filter_that_is_widened(database: Database, tmp_path: Path, sink: str) -> None:
    """A feed without a load that takes more tables than before names them, once."""
    feed = Later(database, tmp_path, sink=sink)

    def told(rules: tuple[str, ...]) -> list[str]:
        database.play(f"REPLACE INTO w.{name} VALUES (1, {database.now() % 10**9})" for name in ("t", "other"))
        config = replace(feed.config(), rules=rules)
        done = run_here(source_of(config), sink_of(config), until=feed.write(), rules=rules)
        return [text.partition(": the feed begins above")[0] for text in done.warnings if "begins above" in text]

    few, more = ("w.t",), ("w.t", "w.other")
    assert [told(few), told(few), told(more), told(more)] == [["w.t"], [], ["w.other"], []]
