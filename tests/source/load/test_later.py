"""A load of a feed that has a checkpoint: tables are replaced, the others go on, a kill amid it repeats nothing, and a
load that is cancelled takes its tables away.

    rows ──► a feed begins above them ──► work ──► load of all, or of some ──► killed amid it ──► work ──► equal?
                                                                           └──► cancelled ──► load again ──► equal?
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.test_sql_sink import asked, emptied
from tests.failpoint import armed
from tests.mariadb import Server, running_server
from tests.source.load.feeds import TABLES, Database, Draw, Feed, Servers, Tables, Work, ordered
from tidegate.config.entry import FeedConfig
from tidegate.config.load import document_of, load
from tidegate.config.registry import sink_of, source_of
from tidegate.engine.progress import Progress
from tidegate.model.errors import ConfigError, LoadCancelled
from tidegate.testing.script import run_here

pytestmark = pytest.mark.slow

SINKS = ("sqlite", "replica", "mariadb")


class Killed(BaseException):
    """The end of a process."""


class Later(Feed):
    """A feed of the log into a target, and its later loads."""

    begun: int = 0
    """The TSO at which it begins."""

    def of(self, mode: str = "initial", tables: tuple[str, ...] = (), number: int = 0) -> FeedConfig:
        """The feed with the load of that number; 0: without a load."""
        loads = number or self.sink == "mariadb"
        source = {"load": mode, "load-from": self.database.address, "load-number": number, "load-tables": list(tables)}
        return load(
            document_of({"source": source} if loads else {}),
            source_uri=self.source_uri,
            sink_uri=self.sink_uri,
            rules=["w.*", "!w.keyless"],
            name="later",
            state_dir=self.home / "state",
            start_ts=None if loads else self.begun,
        )

    def finished(self, config: FeedConfig, report: Callable[[Progress], None] = lambda _: None) -> Progress:
        """Run a feed up to now, again where the log has not come to what a load reads; it is written all along."""

        def reported(progress: Progress) -> None:
            self.database.now()
            report(progress)

        upto = self.database.now()
        for _ in range(9):
            done = run_here(source_of(config), sink_of(config), until=upto, report=reported, rules=config.rules)
            if done.state == "finished":
                return done
            self.database.now()
        raise AssertionError(f"it has not come to {upto}: {done}")

    def keeps_keyless(self) -> bool:
        """The filter leaves it out."""
        return False

    def tables(self) -> Tables:
        """What the target has now, its view among it."""
        found = super().tables()
        if self.sink == "mariadb" and asked(self.servers.mariadb, "SHOW TABLES FROM w LIKE 'seen'"):
            names = [row[0] for row in asked(self.servers.mariadb, "SHOW COLUMNS FROM w.seen")]
            rows = asked(self.servers.mariadb, "SELECT * FROM w.seen")
            found["w.seen"] = ordered(dict(zip(names, row, strict=True)) for row in rows)
        return found


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One of the targets."""
    with running_server(tmp_path_factory.mktemp("mariadb")) as found:
        yield found


@pytest.fixture
def feed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Later]:
    """A feed that begins above rows that are there."""
    sink = request.param
    server = Server(0, None)
    if sink == "mariadb":
        server = request.getfixturevalue("mariadb")
        emptied(server)
    database = Database(tmp_path / "log", chunk_rows=9)
    made = Later(Draw.of(0), sink, database, Servers("", server, 0), tmp_path)
    try:
        database.play((*TABLES, *Work(3).rows(60)))
        made.begun = database.now()
        yield made
    finally:
        database.close()


def killed_amid(feed: Later, config: FeedConfig, amid: Callable[[], None] = lambda: None) -> None:
    """Run a feed until some chunks of its load are done, and no further."""

    def die() -> None:
        amid()
        raise Killed

    def report(progress: Progress) -> None:
        if feed.sink != "replica" and progress.load and 2 < progress.load.chunks_done < progress.load.chunks:
            die()

    with pytest.raises(Killed), armed({"load/files-written": die}):
        feed.finished(config, report)


def begun(feed: Later) -> None:
    """The feed begins above rows that are there; a database refuses that, so it begins with a load."""
    feed.database.play(Work(4).rows(9))
    reports: list[Progress] = []
    feed.finished(feed.of(), reports.append)
    texts = {text for report in reports for text in report.warnings if "begins above" in text}
    assert len(texts) == (feed.sink == "sqlite"), reports[-1].warnings


@pytest.mark.parametrize("feed", SINKS, indirect=True)
def test_all_tables(feed: Later) -> None:
    """Killed amid it, with DDLs all the time, the target equals the upstream at the end; a restart loads nothing."""
    begun(feed)
    work = Work(5)
    feed.database.play(work.storm())
    again = feed.of(number=1)
    killed_amid(feed, again, lambda: feed.database.play(work.storm()))
    done = feed.finished(again)
    assert done.load is not None
    assert done.load.is_done
    assert not feed.unlike(done.checkpoint_ts or 0)
    feed.database.play(work.rows(20))
    last = feed.finished(again)
    assert last.rows_loaded == 0
    assert not feed.unlike(last.checkpoint_ts or 0)


@pytest.mark.parametrize("feed", SINKS, indirect=True)
def test_some_tables(feed: Later) -> None:
    """The others follow the stream all the time, and stay as they are: those that lack rows lack them, those that are
    whole are equal."""
    begun(feed)
    feed.finished(feed.of(number=1))
    work = Work(6)
    feed.database.play((*work.storm(), *work.rows(30)))
    again = feed.of(number=2, tables=("w.t", "w.pa*"))
    killed_amid(feed, again, lambda: feed.database.play(work.rows(9)))
    feed.database.play(work.storm())
    done = feed.finished(again)
    assert done.load is not None
    assert done.load.tables == 3
    assert not feed.unlike(done.checkpoint_ts or 0)
    with pytest.raises(ConfigError, match="no table to load"):
        feed.finished(feed.of(number=3, tables=("w.nothing",)))
    assert feed.finished(again).rows_loaded == 0


@pytest.mark.parametrize("feed", SINKS, indirect=True)
def test_a_load_that_is_cancelled(feed: Later) -> None:
    """A lake goes on with the tables that it had; elsewhere those that were not filled are dropped, and the feed rests
    until all are loaded. A load that is done is not cancelled."""
    begun(feed)
    if feed.sink == "mariadb":
        feed.database.play(["CREATE VIEW w.seen AS SELECT * FROM w.t"])
    killed_amid(feed, feed.of(number=1))
    before = feed.tables()["w.t"] if feed.sink == "replica" else []
    for _ in range(2):
        with pytest.raises(LoadCancelled):
            feed.finished(feed.of("cancel", number=1))
    if feed.sink == "replica":
        assert feed.tables()["w.t"] == before
        assert feed.finished(feed.of(number=1)).load is None
    else:
        assert feed.tables().keys().isdisjoint({"w.t", "w.pairs", "w.parts", "w.apart"})
        assert feed.sink != "mariadb" or not asked(feed.servers.mariadb, "SHOW TABLES FROM w LIKE 'seen'")
        with pytest.raises(LoadCancelled, match="load start"):
            feed.finished(feed.of(number=1))
        with pytest.raises(ConfigError, match="load all tables"):
            feed.finished(feed.of(number=2, tables=("w.t",)))
    feed.database.play(Work(7).rows(9))
    assert not feed.unlike(feed.finished(feed.of(number=2)).checkpoint_ts or 0)
    done = feed.finished(feed.of("cancel", number=2))
    assert [text for text in done.warnings if "was done before it could be cancelled" in text]
