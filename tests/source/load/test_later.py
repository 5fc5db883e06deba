"""A load of a feed that has a checkpoint: tables are replaced, the others go on, a kill amid it repeats nothing, and a
load that is cancelled takes its tables away.

    rows ──► a feed begins above them ──► work ──► load of all, or of some ──► killed amid it ──► work ──► equal?
                                                                           └──► cancelled ──► load again ──► equal?
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.contract.test_sql_sink import asked, emptied
from tests.failpoint import armed
from tests.mariadb import Server, running_server
from tests.source.load.feeds import TABLES, Work
from tests.source.load.kit import Loaded
from tidegate.config.entry import FeedConfig
from tidegate.config.load import document_of, load
from tidegate.config.registry import sink_of, source_of
from tidegate.engine.progress import Progress
from tidegate.lakes.lake import Lake
from tidegate.model.errors import ConfigError, LoadCancelled
from tidegate.testing.script import run_here
from tidegate_upstream.background import UpstreamOptions, start_upstream, stop_upstream

pytestmark = pytest.mark.slow

SINKS = ("sqlite", "lake", "mariadb")


class Killed(BaseException):
    """The end of a process."""


class Feed(NamedTuple):
    """A feed of the log into a target."""

    sink: str
    client: Loaded
    home: Path
    mariadb: Server | None = None

    def config(self, mode: str = "initial", tables: tuple[str, ...] = (), number: int = 0) -> FeedConfig:
        """The feed with the load of that number; 0: without a load."""
        loads = number or self.sink == "mariadb"
        uris = {"sqlite": f"sqlite://{self.home / 'w.db'}", "lake": f"delta://{self.home / 'lake'}"}
        uri = uris.get(self.sink) or f"mysql://root@127.0.0.1:{self.mariadb.port if self.mariadb else 0}/"
        address = f"mysql://root@127.0.0.1:{self.client.port}/?enable-tls=false&chunk-rows=9"
        source = {"load": mode, "load-from": address, "load-number": number, "load-tables": list(tables)}
        return load(
            document_of({"source": source} if loads else {}),
            source_uri=f"tidb://{self.home / 'log'}",
            sink_uri=uri,
            rules=["w.*", "!w.keyless"],
            name="later",
            state_dir=self.home / "state",
            start_ts=None if loads else self.begun,
        )

    @property
    def begun(self) -> int:
        """The TSO at which the feed began."""
        return int((self.home / "begun").read_text())

    def now(self) -> int:
        """A TSO of the upstream."""
        return int(self.client.run("SHOW MASTER STATUS")[0][1])

    def play(self, statements: Iterator[str]) -> None:
        """Run statements upstream."""
        for text in statements:
            for statement in text.split("; "):
                self.client.run(statement)

    def unlike(self, ts: int) -> list[str]:
        """The tables that are not as the upstream has them at a TSO."""
        self.client.run(f"SET tidb_snapshot = '{ts}'")
        try:
            names = [str(row[0]) for row in self.client.run("SHOW TABLES FROM w") if row[0] != "keyless"]
            return [name for name in names if self.truth(name) != self.rows(name)]
        finally:
            self.client.run("SET tidb_snapshot = ''")

    def truth(self, name: str) -> list[str]:
        """A table's rows upstream."""
        return sorted(str([*map(str, row)]) for row in self.client.run(f"SELECT * FROM w.{name}"))

    def rows(self, name: str) -> list[str] | None:
        """A table's rows in the target; None where there is none."""
        columns = [str(row[0]) for row in self.client.run(f"SHOW COLUMNS FROM w.{name}")]
        found: list[Any]
        if self.sink == "lake":
            lake = Lake(str(self.home / "lake"))
            if f"w.{name}" not in lake.tables():
                return None
            found = [[row[column] for column in columns] for row in lake.arrow(f"w.{name}").to_pylist()]
        elif self.sink == "sqlite":
            with sqlite3.connect(self.home / "w.db") as file:
                if not file.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (f"w.{name}",)).fetchall():
                    return None
                found = file.execute(f'SELECT {", ".join(columns)} FROM "w.{name}"').fetchall()
        else:
            assert self.mariadb is not None
            if not asked(self.mariadb, f"SHOW TABLES FROM w LIKE '{name}'"):
                return None
            found = asked(self.mariadb, f"SELECT {', '.join(columns)} FROM w.{name}")
        return sorted(str([*map(str, row)]) for row in found)


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One of the targets."""
    with running_server(tmp_path_factory.mktemp("mariadb")) as found:
        yield found


@pytest.fixture
def feed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Feed]:
    """A feed that began above rows that are there, and has followed some work."""
    sink = request.param
    server = request.getfixturevalue("mariadb") if sink == "mariadb" else None
    if server is not None:
        emptied(server)
    upstream = start_upstream(UpstreamOptions(log=str(tmp_path / "log")))
    client = Loaded(upstream.port_of(1))
    made = Feed(sink, client, tmp_path, server)
    try:
        made.play(iter((*TABLES, *Work(3).rows(60))))
        (tmp_path / "begun").write_text(str(made.now()))
        yield made
    finally:
        client.connection.close()
        stop_upstream(upstream)


def finished(config: FeedConfig, upto: int, report: Callable[[Progress], None] = lambda _: None) -> Progress:
    """Run a feed to a TSO, again where it ends since the log has not come so far."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        done = run_here(source_of(config), sink_of(config), until=upto, report=report, rules=config.rules)
        if done.state == "finished":
            return done
        time.sleep(0.2)
    raise AssertionError(f"{config.source_uri} has not come to {upto}: {done}")


def killed_amid(feed: Feed, config: FeedConfig, amid: Callable[[], None] = lambda: None) -> None:
    """Run a feed until some chunks of its load are done, and no further."""

    def die() -> None:
        amid()
        raise Killed

    def report(progress: Progress) -> None:
        if feed.sink != "lake" and progress.load and 2 < progress.load.chunks_done < progress.load.chunks:
            die()

    with pytest.raises(Killed), armed({"load/files-written": die}):
        finished(config, feed.now(), report)


def begun(feed: Feed) -> None:
    """The feed begins above rows that are there; a database refuses that, so it begins with a load."""
    feed.play(Work(4).rows(9))
    reports: list[Progress] = []
    finished(feed.config(), feed.now(), reports.append)
    texts = {text for report in reports for text in report.warnings if "begins above" in text}
    assert len(texts) == (feed.sink == "sqlite"), reports[-1].warnings


@pytest.mark.parametrize("feed", SINKS, indirect=True)
def test_all_tables(feed: Feed) -> None:
    """Killed amid it, with DDLs all the time, the target equals the upstream at the end; a restart loads nothing."""
    begun(feed)
    work = Work(5)
    feed.play(work.storm())
    again = feed.config(number=1)
    killed_amid(feed, again, lambda: feed.play(work.storm()))
    end = feed.now()
    done = finished(again, end)
    assert done.load is not None
    assert done.load.is_done
    assert not feed.unlike(end)
    feed.play(work.rows(20))
    last = finished(again, feed.now())
    assert last.rows_loaded == 0
    assert not feed.unlike(last.checkpoint_ts or 0)


@pytest.mark.parametrize("feed", SINKS, indirect=True)
def test_some_tables(feed: Feed) -> None:
    """The others follow the stream all the time, and stay as they are: those that lack rows lack them, those that are
    whole are equal."""
    begun(feed)
    finished(feed.config(number=1), feed.now())
    work = Work(6)
    feed.play(iter([*work.storm(), *work.rows(30)]))
    again = feed.config(number=2, tables=("w.t", "w.pa*"))
    killed_amid(feed, again, lambda: feed.play(work.rows(9)))
    feed.play(work.storm())
    end = feed.now()
    done = finished(again, end)
    assert done.load is not None
    assert done.load.tables == 3
    assert not feed.unlike(end)
    with pytest.raises(ConfigError, match="no table to load"):
        finished(feed.config(number=3, tables=("w.nothing",)), feed.now())
    assert finished(again, feed.now()).rows_loaded == 0


@pytest.mark.parametrize("feed", SINKS, indirect=True)
def test_a_load_that_is_cancelled(feed: Feed) -> None:
    """A lake goes on with the tables that it had; elsewhere those that were not filled are dropped, and the feed rests
    until all are loaded. A load that is done is not cancelled."""
    begun(feed)
    if feed.sink == "mariadb":
        feed.client.run("CREATE VIEW w.seen AS SELECT * FROM w.t")
    killed_amid(feed, feed.config(number=1))
    before = feed.rows("t")
    for _ in range(2):
        with pytest.raises(LoadCancelled):
            finished(feed.config("cancel", number=1), feed.now())
    if feed.sink == "lake":
        assert feed.rows("t") == before
        assert finished(feed.config(number=1), feed.now()).load is None
    else:
        seen = ("seen",) if feed.sink == "mariadb" else ()
        assert {feed.rows(name) for name in ("t", "pairs", "parts", "apart", *seen)} == {None}
        with pytest.raises(LoadCancelled, match="load start"):
            finished(feed.config(number=1), feed.now())
        with pytest.raises(ConfigError, match="load all tables"):
            finished(feed.config(number=2, tables=("w.t",)), feed.now())
    feed.play(Work(7).rows(9))
    end = feed.now()
    finished(feed.config(number=2), end)
    assert not feed.unlike(end)
    done = finished(feed.config("cancel", number=2), feed.now())
    assert [text for text in done.warnings if "was done before it could be cancelled" in text]
