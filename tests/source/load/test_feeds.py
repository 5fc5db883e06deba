"""Feeds that begin with a load, of an embedded TiDB that works all along: equal to it at S, and at the end.

    tables, rows ──► a topic begins in the middle of their life ──► work ──► load, work and DDLs amid it ──► at S?
                                                              └──► work and DDLs, topic or log followed ──► equal?

The seed draws the work, the source (the log, or a topic of either protocol, which a changefeed of ours writes) and the
sink.  Without Spark: the engine, landing and sinks run in this process.

TIDEGATE_SEED=17 pytest -m "" tests/source/load/test_feeds.py       one seed again
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.contract.test_sql_sink import asked, emptied
from tests.mariadb import Server, running_server
from tests.source.load.kit import Loaded
from tests.upstream.worlds import seeds
from tidegate.config.entry import FeedConfig
from tidegate.config.load import load
from tidegate.config.registry import sink_of, source_of
from tidegate.engine.progress import Progress
from tidegate.testing.script import run_here
from tidegate_upstream.background import UpstreamOptions, start_upstream, stop_upstream

pytestmark = pytest.mark.slow

RANGES = "PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (100), PARTITION q VALUES LESS THAN (1000))"
TABLES = (
    "CREATE DATABASE w",
    "CREATE TABLE w.t (id INT PRIMARY KEY, v VARCHAR(20))",
    "CREATE TABLE w.pairs (a VARCHAR(9) COLLATE utf8mb4_general_ci, b BIGINT UNSIGNED, v INT, PRIMARY KEY (a, b))",
    f"CREATE TABLE w.parts (id INT PRIMARY KEY, v INT) {RANGES}",
    "CREATE TABLE w.other (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE w.gone (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE w.apart (id VARCHAR(9) PRIMARY KEY NONCLUSTERED, v INT)",
    "CREATE TABLE w.empty (id INT PRIMARY KEY)",
    "CREATE TABLE w.keyless (v INT)",
)
SOURCES = ("log", "open-protocol", "canal-json")
SINKS = ("mariadb", "sqlite")


class Work:
    """Draws statements of a seed."""

    def __init__(self, seed: int) -> None:
        self._random, self._added, self._columns = Random(f"work {seed}"), 0, list[str]()

    def rows(self, count: int) -> Iterator[str]:
        """DML of all tables that stay."""
        r = self._random
        for _ in range(count):
            at, part = r.randrange(150), r.randrange(2, 9)
            yield r.choice(
                [
                    f"REPLACE INTO w.t (id, v) VALUES ({at}, 'v{part}'), ({at + 1}, NULL)",
                    f"UPDATE w.t SET v = 'u{at}' WHERE id % {part} = 1",
                    f"DELETE FROM w.t WHERE id % 9 = {part} AND id < {at}",
                    f"REPLACE INTO w.pairs (a, b, v) VALUES ('{r.choice('aBcÄ')}', {(1 << 63) + at}, {part})",
                    f"DELETE FROM w.pairs WHERE a = '{r.choice('AbC')}' AND v = {part}",
                    f"REPLACE INTO w.parts VALUES ({at}, {part}), ({at + 60}, {part})",
                    f"REPLACE INTO w.other VALUES ({at % 90}, {part})",
                    f"REPLACE INTO w.apart VALUES ('k{at}', {part})",
                    f"INSERT INTO w.keyless VALUES ({part}), ({part}), (NULL)",
                ]
            )

    def storm(self) -> Iterator[str]:
        """DDLs of each kind, in a drawn order, with rows between."""
        self._added += 1
        name, every = f"c{self._added}", list[tuple[str, ...]]()
        every.append((f"ALTER TABLE w.t ADD COLUMN {name} INT DEFAULT {self._added}",))
        every += [(f"ALTER TABLE w.t DROP COLUMN {one}",) for one in self._columns]
        every.append(("TRUNCATE TABLE w.pairs", "INSERT INTO w.pairs VALUES ('t', 1, 1)"))
        every.append(
            ("RENAME TABLE w.other TO w.moved", "UPDATE w.moved SET v = 77", "RENAME TABLE w.moved TO w.other")
        )
        every.append(("ALTER TABLE w.parts EXCHANGE PARTITION p WITH TABLE w.other",))
        every.append(("DROP TABLE w.gone", f"CREATE TABLE w.gone (id INT PRIMARY KEY, {name} INT)"))
        self._columns = [name]
        for statements in self._random.sample(every, len(every)):
            yield from statements
            yield from self.rows(2)


def finished(config: FeedConfig, upto: int, report: Callable[[Progress], None] = lambda _: None) -> Progress:
    """Run a feed to a TSO, again where it ends since the log or the topic has not come so far."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        done = run_here(source_of(config), sink_of(config), until=upto, report=report, rules=config.rules)
        if done.state == "finished":
            return done
        time.sleep(0.2)
    raise AssertionError(f"{config.source_uri} has not come to {upto}: {done}")


class Feed(NamedTuple):
    """A feed with a load, and where it leads."""

    source: str
    sink: str
    upstream: Loaded
    bootstrap: str
    mariadb: Server
    home: Path

    @property
    def topic(self) -> str:
        """The address of its topic."""
        more = "&enable-tidb-extension=true" if self.source == "canal-json" else ""
        return f"kafka://{self.bootstrap}/{self.home.name}?protocol={self.source}&partition-num=2{more}"

    def now(self) -> int:
        """A TSO of the upstream."""
        return int(self.upstream.run("SHOW MASTER STATUS")[0][1])

    def write(self, upto: int, since: int | None = None) -> None:
        """The changefeed that writes the topic, up to a TSO; a new one begins above `since`."""
        if self.source != "log":
            log = f"tidb://{self.home / 'log'}"
            state = self.home / "writer"
            config = load(source_uri=log, sink_uri=self.topic, rules=["w.*"], state_dir=state, start_ts=since)
            finished(config, upto)

    def follow(self, upto: int, report: Callable[[Progress], None] = lambda _: None) -> Progress:
        """The load, or what follows it, up to a TSO."""
        log = f"tidb://{self.home / 'log'}"
        topic = self.topic.replace("&partition-num=2", "")
        config = load(
            source_uri=log if self.source == "log" else topic,
            sink_uri=f"mysql://root@127.0.0.1:{self.mariadb.port}/"
            if self.sink == "mariadb"
            else f"sqlite://{self.home / 'w.db'}",
            rules=["w.*"],
            name="loads",
            state_dir=self.home / "state",
            load_from=f"mysql://root@127.0.0.1:{self.upstream.port}/?enable-tls=false&chunk-rows=9",
        )
        return finished(config, upto, report)

    def unlike(self, ts: int) -> list[str]:
        """The tables that are not as the upstream has them at a TSO."""
        self.upstream.run(f"SET tidb_snapshot = '{ts}'")
        try:
            tables = [str(row[0]) for row in self.upstream.run("SHOW TABLES FROM w")]
            if self.sink == "sqlite" or self.source != "log":
                tables.remove("keyless")
            return [name for name in tables if self._rows(name, self.upstream.run) != self._rows(name, self._asked)]
        finally:
            self.upstream.run("SET tidb_snapshot = ''")

    def _rows(self, table: str, ask: Callable[[str], Any]) -> list[str]:
        columns = ", ".join(f"`{row[0]}`" for row in self.upstream.run(f"SHOW COLUMNS FROM w.{table}"))
        return sorted(str([*map(str, row)]) for row in ask(f"SELECT {columns} FROM w.{table}"))

    def _asked(self, query: str) -> list[Any]:
        if self.sink == "mariadb":
            return asked(self.mariadb, query)
        head, _, name = query.rpartition(" w.")
        with sqlite3.connect(self.home / "w.db") as file:
            return file.execute(f'{head} "w.{name}"').fetchall()


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One of both targets."""
    with running_server(tmp_path_factory.mktemp("mariadb")) as found:
        yield found


def lived(seed: int, source: str, sink: str, servers: tuple[str, Server], home: Path) -> None:
    """One feed of a seed, from its begin to its end; `servers` are the broker and the MariaDB."""
    bootstrap, mariadb = servers
    home.mkdir()
    emptied(mariadb)
    work, upstream = Work(seed), start_upstream(UpstreamOptions(log=str(home / "log")))
    client = Loaded(upstream.port_of(1))
    feed = Feed(source, sink, client, bootstrap, mariadb, home)

    def play(statements: Iterator[str]) -> None:
        for statement in statements:
            client.run(statement)

    def amid(progress: Progress) -> None:
        if progress.load and 0 < progress.load.chunks_done < progress.load.chunks and not stormed:
            stormed.append(progress.load.table)
            play(work.storm())

    stormed: list[str] = []
    again = f"seed {seed} {source} {sink} (TIDEGATE_SEED={seed} pytest -m '' tests/source/load/test_feeds.py -k seeds)"
    try:
        play(iter(TABLES))
        play(work.rows(60))
        play(work.storm())
        begun = feed.now()
        play(work.rows(20))
        feed.write(feed.now(), begun)
        done = feed.follow(1, amid)
        assert done.load is not None, again
        assert (done.state, done.checkpoint_ts, bool(stormed)) == ("finished", done.load.ts, True), again
        assert not feed.unlike(done.load.ts), again
        named = [one.table for one in done.left_out if one.table == "w.keyless"]
        assert named == ([] if (source, sink) == ("log", "mariadb") else ["w.keyless"]), again
        play(work.rows(20))
        play(work.storm())
        end = feed.now()
        feed.write(end)
        assert feed.follow(end).checkpoint_ts == end, again
        assert not feed.unlike(end), again
    finally:
        client.connection.close()
        stop_upstream(upstream)


def test_four_seeds(bootstrap: str, mariadb: Server, tmp_path: Path) -> None:
    """The log and topics of both protocols, each into a drawn sink."""
    for seed in seeds(4):
        source, sink = SOURCES[seed % 3], Random(f"sink {seed}").choice(SINKS)
        lived(seed, source, sink, (bootstrap, mariadb), tmp_path / f"w{seed}")


@pytest.mark.parametrize("source", ["log", "canal-json"])
def test_somebody_else_has_loaded(source: str, bootstrap: str, mariadb: Server, tmp_path: Path) -> None:
    """Rows of S that another job has put into a database are followed by what is above S, DDLs among it, and no row or
    DDL of S or before comes again."""
    home = tmp_path / "w"
    home.mkdir()
    emptied(mariadb)
    work, upstream = Work(1), start_upstream(UpstreamOptions(log=str(home / "log")))
    client = Loaded(upstream.port_of(1))
    feed = Feed(source, "mariadb", client, bootstrap, mariadb, home)
    address = f"mysql://root@127.0.0.1:{client.port}/?enable-tls=false"
    target = f"mysql://root@127.0.0.1:{mariadb.port}/"
    try:
        for statement in (*TABLES, *work.rows(60)):
            client.run(statement)
        begun = feed.now()
        for statement in work.rows(10):
            client.run(statement)
        ts = feed.now()
        feed.write(ts, begun)
        rows = load(
            load_mode="only", load_from=address, load_ts=ts, sink_uri=target, rules=["w.*", "!w.keyless"],
            state_dir=home / "dump", name="dump",
        )  # fmt: skip
        assert run_here(source_of(rows), sink_of(rows), rules=rows.rules).checkpoint_ts == ts
        for statement in (*work.rows(20), *work.storm()):
            client.run(statement)
        end = feed.now()
        feed.write(end)
        config = load(
            source_uri=f"tidb://{home / 'log'}" if source == "log" else feed.topic.replace("&partition-num=2", ""),
            sink_uri=target, rules=["w.*", "!w.keyless"], name="follows", state_dir=home / "state",
            load_mode="done", load_from=address, load_ts=ts,
        )  # fmt: skip
        assert finished(config, end).checkpoint_ts == end
        assert not feed._replace(source="canal-json").unlike(end)
    finally:
        client.connection.close()
        stop_upstream(upstream)


@pytest.mark.soak
@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("source", SOURCES)
def test_many_seeds(source: str, sink: str, bootstrap: str, mariadb: Server, tmp_path: Path) -> None:
    """Every pair."""
    for seed in seeds(34):
        lived(seed, source, sink, (bootstrap, mariadb), tmp_path / f"w{seed}{source[0]}{sink[0]}")
