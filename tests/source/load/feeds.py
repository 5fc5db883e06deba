"""Feeds that begin with a load, of an embedded TiDB that works all along: what a seed draws, and how each sink is read.

    tables, rows ──► the stream begins in the middle of their life ──► work ──► load ──► S?
                                    killed where the seed says, storms amid it ┘
                     └──► work and DDLs, sent again across S ──► followed, killed once more ──► ten moments, the end?

Without Spark: the upstream, the engine, landing and sinks run in this process; broker, MariaDB and Redis are their own.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import confluent_kafka
import obstore

from tests import failpoint
from tests.contract import adapters, storage_reader, test_redis_sink, test_search_sink, test_sql_sink, test_sqlite_sink
from tests.mariadb import Server
from tidegate.codec import decode, from_config
from tidegate.config.entry import FeedConfig
from tidegate.config.load import load, read_document
from tidegate.config.registry import sink_of, source_of
from tidegate.config.search import EmbeddedTarget, store_of
from tidegate.engine.ports import RoundLimit
from tidegate.engine.progress import Progress
from tidegate.expr.scope import ResultSet
from tidegate.lakes.lake import Lake
from tidegate.lakes.live import Live
from tidegate.model.event import Event
from tidegate.objectstore.stores import store
from tidegate.sink.redis import RedisSink
from tidegate.sink.redis_options import RedisOptions
from tidegate.sink.redis_server import RedisServers
from tidegate.sink.storage_bucket import Bucket
from tidegate.source.tidb_segment import trim
from tidegate.testing.contract.sinks import Died
from tidegate.testing.script import run_here
from tidegate.testing.validators import rebuilt
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.listener import Upstream
from tidegate_upstream.tidb.log_writer import LogWriter, begin_log
from tidegate_upstream.tidb.session import Session

Tables = dict[str, list[tuple[tuple[str, str], ...]]]
"""Rows by table, each by column names, in the order of their texts."""
RANGES: Final = "PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (100), PARTITION q VALUES LESS THAN (1000))"
FOLDED: Final = "VARCHAR(9) COLLATE utf8mb4_general_ci"
TABLES: Final = (
    "CREATE DATABASE w",
    "CREATE TABLE w.t (id INT PRIMARY KEY, v VARCHAR(20))",
    f"CREATE TABLE w.pairs (a {FOLDED}, b BIGINT UNSIGNED, v INT, PRIMARY KEY (a, b))",
    f"CREATE TABLE w.names (a {FOLDED}, b {FOLDED}, v INT, PRIMARY KEY (a, b))",
    "CREATE TABLE w.large (id BIGINT UNSIGNED PRIMARY KEY, v INT)",
    f"CREATE TABLE w.parts (id INT PRIMARY KEY, v INT) {RANGES}",
    "CREATE TABLE w.other (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE w.gone (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE w.apart (id VARCHAR(9) PRIMARY KEY NONCLUSTERED, v INT)",
    "CREATE TABLE w.empty (id INT PRIMARY KEY)",
    "CREATE TABLE w.single (id INT PRIMARY KEY)",
    "INSERT INTO w.single VALUES (7)",
    "CREATE TABLE w.keyless (v INT)",
    "INSERT INTO w.keyless VALUES (1), (1), (NULL), (NULL)",
    *(f"CREATE TABLE w.{name} (id INT PRIMARY KEY, v INT)" for name in ("dropped", "cut", "renamed", "swapped")),
    *(f"INSERT INTO w.{name} VALUES (1, 1), (2, 2)" for name in ("dropped", "cut", "renamed", "swapped")),
)
ENDS: Final = (
    ("DROP TABLE w.dropped",),
    ("TRUNCATE TABLE w.cut", "INSERT INTO w.cut VALUES (3, 3)"),
    ("RENAME TABLE w.renamed TO w.new", "INSERT INTO w.new VALUES (3, 3)"),
    ("ALTER TABLE w.parts EXCHANGE PARTITION p WITH TABLE w.swapped", "REPLACE INTO w.swapped VALUES (4, 4)"),
)
"""What happens to tables once, behind S."""
SOURCES: Final = ("log", "open-protocol", "canal-json")
LAKES: Final = ("replica", "changelog", "history")
SINKS: Final = (*LAKES, "mariadb", "sqlite", "redis", "search", "files", "open-protocol", "canal-json")
PAIRS: Final = tuple(combinations(SINKS, 2))
LOADING: Final = ("load/planned", "load/plan-kept", "round/planned", "round/applied")
ONCE: Final = (*LOADING[:2], "start/recovered", "publish/before-schema", "publish/before-snapshot")
POINTS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        LAKES,
        (
            *("load/rows-read", "load/files-written", "start/recovered", "publish/before-schema"),
            *("publish/before-snapshot", "publish/after-snapshot", "apply/before-create", "apply/after-create"),
        ),
    ),
    "mariadb": (*failpoint.SQL_FAILPOINTS, *failpoint.DDL_FAILPOINTS),
    "redis": tuple(failpoint.REDIS_FAILPOINTS),
    "search": tuple(failpoint.SEARCH_FAILPOINTS),
    "files": tuple(failpoint.STORAGE_FAILPOINTS),
    **dict.fromkeys(("open-protocol", "canal-json"), tuple(failpoint.TOPIC_FAILPOINTS)),
}
"""Where a load into a sink may die, beside LOADING."""
MOMENTS: Final = 10
LEDGER: Final = "TIDEGATE_LOAD_LEDGER"


class Draw(NamedTuple):
    """What a seed decides; `deaths` are failpoints and how often each is passed, for the load into each sink. The log
    is `trimmed` before the load, keyless tables are told by `force`, what happens once happens `early`, amid the load,
    and `limit` bounds rounds (a chunk counts as 300,000 rows)."""

    seed: int
    source: str
    sinks: tuple[str, str]
    deaths: tuple[tuple[tuple[str, int], ...], ...]
    trimmed: bool
    force: bool
    early: bool
    limit: int = 1

    @classmethod
    def of(cls, seed: int) -> "Draw":
        """Return the draw of a seed: sources and pairs of sinks take turns, and so do the failpoints of each."""
        turns, sinks, random = seed // len(PAIRS), _pair(seed), Random(f"draw {seed}")
        deaths = []
        for sink in sinks:
            points = (*LOADING, *POINTS.get(sink, ()))
            before = sum(sink in _pair(earlier) for earlier in range(seed))
            drawn = [points[(2 * before + more) % len(points)] for more in range(2)]
            deaths.append(tuple((name, 1 if name in ONCE else random.randint(1, 2)) for name in drawn))
        source = SOURCES[(seed + turns) % len(SOURCES)]
        return cls(
            seed,
            source,
            sinks,
            tuple(deaths),
            seed % 2 == 1,
            seed % 4 > 1,
            (seed + turns) % 5 < 2,
            (1, 10**6)[seed % 7 % 2],
        )


def _pair(seed: int) -> tuple[str, str]:
    return PAIRS[seed * 7 % len(PAIRS)]


class Work:
    """Draws statements of a seed."""

    def __init__(self, seed: int) -> None:
        self._random, self._added, self._columns = Random(f"work {seed}"), 0, list[str]()

    def rows(self, count: int) -> Iterator[str]:
        """DML of all tables that stay."""
        r = self._random
        for _ in range(count):
            at, part = r.randrange(150), r.randrange(2, 9)
            large = (1 << 63) + at
            yield r.choice(
                [
                    f"REPLACE INTO w.t (id, v) VALUES ({at}, 'v{part}'), ({at + 1}, NULL)",
                    f"UPDATE w.t SET v = 'u{at}' WHERE id % {part} = 1",
                    f"DELETE FROM w.t WHERE id % 9 = {part} AND id < {at}",
                    f"REPLACE INTO w.pairs (a, b, v) VALUES ('{r.choice('aBcÄ')}', {large}, {part})",
                    f"DELETE FROM w.pairs WHERE a = '{r.choice('AbC')}' AND v = {part}",
                    f"REPLACE INTO w.names (a, b, v) VALUES ('{r.choice('aAbB')}', '{r.choice('xXäÄ')}', {part})",
                    f"REPLACE INTO w.large VALUES ({large}, {part}), ({at}, {part})",
                    f"DELETE FROM w.large WHERE id = {large + 1}; UPDATE w.large SET id = id + 1 WHERE id = {large}",
                    f"REPLACE INTO w.parts VALUES ({at}, {part}), ({at + 60}, {part})",
                    f"REPLACE INTO w.other VALUES ({at % 90}, {part})",
                    f"REPLACE INTO w.apart VALUES ('k{at}', {part})",
                    f"INSERT INTO w.keyless VALUES ({part}), (NULL)",
                    f"DELETE FROM w.keyless WHERE v = {part} LIMIT 1",
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

    def ends(self) -> Iterator[str]:
        """What happens once, in a drawn order."""
        for statements in self._random.sample(ENDS, len(ENDS)):
            yield from statements
            yield from self.rows(1)


@dataclass
class Database:
    """An embedded TiDB in this process: its port, a session, and its change log, which is written when it is asked."""

    log: Path
    chunk_rows: int = 25

    def __post_init__(self) -> None:
        self.truth: dict[int, Tables] = {}
        self.cluster = Cluster.open(None, nodes=("n1",))
        self.ports = Upstream(self.cluster).start()
        self.session, self.reader = Session(self.cluster.node), Session(self.cluster.node)
        storage = self.cluster.storage
        self.writer = LogWriter(ChangeLog(storage.store, storage.oracle), self.log, 0)
        self.address = f"mysql://root@127.0.0.1:{self.ports.ports['n1']}/?enable-tls=false&chunk-rows={self.chunk_rows}"

    def close(self) -> None:
        """End clients, port and store."""
        self.writer.close()
        self.ports.stop()

    def play(self, statements: Iterable[str]) -> None:
        """Run statements, each a transaction."""
        for statement in statements:
            self.session.execute(statement)

    def now(self) -> int:
        """Write the log, and return the TSO that it goes up to."""
        self.cluster.storage.oracle.next()
        self.writer.write(empty=True)
        return self.writer.low

    def begin_again(self, log: Path) -> None:
        """Write another log, which begins with the rows that are there."""
        self.writer.close()
        storage, self.log = self.cluster.storage, log
        self.cluster.collect_garbage(0)
        begin_log(storage, log)
        self.writer = LogWriter(ChangeLog(storage.store, storage.oracle), log, 0)

    def trim(self) -> None:
        """Let the log forget what was before."""
        self.now()
        assert trim(self.log, self.now()) is not None

    def tables(self, ts: int) -> Tables:
        """The rows of every table at a TSO."""
        if ts not in self.truth:
            self.truth[ts] = self._tables(ts)
        return dict(self.truth[ts])

    def _tables(self, ts: int) -> Tables:
        self.reader.execute(f"SET tidb_snapshot = '{ts}'")
        try:
            names = [str(row[0]) for row in self._asked("SHOW TABLES FROM w").rows]
            found = {name: self._asked(f"SELECT * FROM w.{name}") for name in names}
        finally:
            self.reader.execute("SET tidb_snapshot = ''")
        return {
            f"w.{name}": ordered(
                dict(zip((one.name for one in result.columns), row, strict=True)) for row in result.rows
            )
            for name, result in found.items()
        }

    def _asked(self, query: str) -> ResultSet:
        result = self.reader.execute(query)[-1]
        assert isinstance(result, ResultSet)
        return result


def ordered(rows: Iterable[Mapping[str, Any]]) -> list[tuple[tuple[str, str], ...]]:
    """Return rows as texts by column, in their order."""
    return sorted(tuple(sorted((name, str(value)) for name, value in row.items())) for row in rows)


def lives(config: FeedConfig, upto: int, limit: int = 0) -> Progress:
    """One life of a feed, up to a TSO; `limit` bounds its rounds."""
    sink = sink_of(config)
    if limit:
        sink.flush_policy = replace(sink.flush_policy, limit=RoundLimit(limit, 1 << 30), load_limit=None)
    return run_here(source_of(config), sink, until=upto, rules=config.rules)


def finished(config: FeedConfig, upto: int, database: Database | None = None, limit: int = 0) -> Progress:
    """Run a feed to a TSO, again where it ends since the log or the topic has not come so far. Whoever gives no
    database has its log written."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        done = lives(config, upto, limit)
        if done.state == "finished":
            return done
        if database is None:
            time.sleep(0.2)
        else:
            database.now()
    raise AssertionError(f"{config.source_uri} has not come to {upto}: {done}")


@dataclass(frozen=True)
class Servers:
    """What stays up for all feeds; a broker's address, a MariaDB, and the port of a Redis."""

    bootstrap: str
    mariadb: Server
    redis: int


@dataclass
class Feed:
    """A feed that begins with a load."""

    draw: Draw
    sink: str
    database: Database
    servers: Servers
    home: Path
    died: list[str] = field(default_factory=list)
    loads: bool = True

    @property
    def source_uri(self) -> str:
        """The log, or the topic that `Topic` writes."""
        log = f"tidb://{self.database.log}"
        return log if self.draw.source == "log" else topic(self.servers, self.draw, self.database.log.parent.name)

    @property
    def sink_uri(self) -> str:
        """Where it leads."""
        kafka = f"kafka://{self.servers.bootstrap}/{self.home.name}-out?protocol={self.sink}&partition-num=2"
        return {
            **{mode: f"delta://{self.home / 'lake'}?mode={mode}" for mode in LAKES},
            "mariadb": f"mysql://root@127.0.0.1:{self.servers.mariadb.port}/",
            "sqlite": f"sqlite://{self.home / 'shop.db'}",
            "redis": f"redis://127.0.0.1:{self.servers.redis}/?key-template={self.home.name}:{{schema}}:{{table}}:{{pk}}",
            "search": f"search+tantivy://{self.home / 'indexes'}",
            "files": f"file://{self.home / 'out'}?protocol=csv",
            "open-protocol": kafka,
            "canal-json": f"{kafka}&enable-tidb-extension=true",
        }[self.sink]

    @property
    def config(self) -> FeedConfig:
        """As `tidegate run` has it."""
        toml = self.home / "feed.toml"
        toml.write_text(
            f"force-replicate = {str(self.draw.force).lower()}\n"
            "[sink.csv]\ninclude-commit-ts = true\noutput-old-value = true\n"
            if self.sink == "files"
            else f"force-replicate = {str(self.draw.force).lower()}\n"
        )
        return load(
            read_document(toml),
            source_uri=self.source_uri,
            sink_uri=self.sink_uri,
            rules=["w.*"],
            name=self.home.name,
            state_dir=None if self.sink in LAKES else self.home / "state",
            load_from=self.database.address if self.loads else None,
        )

    def follow(
        self,
        upto: int,
        deaths: Sequence[tuple[str, int]] = (),
        deeds: Mapping[str, Callable[[], None]] | None = None,
    ) -> Progress:
        """The load, or what follows it, up to a TSO; killed at each of `deaths` that it comes to, and started again."""
        for name, nth in (*deaths, ("", 0)):
            armed = {**(deeds or {}), **({name: self._dies(name, nth, (deeds or {}).get(name))} if name else {})}
            try:
                with failpoint.armed(armed):
                    return finished(self.config, upto, self.database, self.draw.limit)
            except Died:
                self.died.append(name)
        raise AssertionError("the last life has no death")

    def _dies(self, name: str, nth: int, deed: Callable[[], None] | None) -> Callable[[], None]:
        left = nth

        def at() -> None:
            nonlocal left
            left -= 1
            if deed is not None:
                deed()
            if left == 0:
                raise Died(name)

        return at

    def keeps_keyless(self) -> bool:
        """Whether a table without a key is replicated."""
        if self.sink in {"sqlite", "redis", "search"}:
            return False
        return self.draw.force or (self.draw.source == "log" and self.sink in {*LAKES, "mariadb"})

    def unlike(self, ts: int, found: Tables | None = None) -> list[str]:
        """The tables that are not as the upstream has them at a TSO."""
        truth, found = self.database.tables(ts), self.tables() if found is None else found
        for one in (truth, found):
            if not self.keeps_keyless() or self.sink in {"files", "open-protocol", "canal-json"}:
                one.pop("w.keyless", None)
        return [
            f"{name}: {[row for row in truth.get(name, ()) if row not in found.get(name, ())][:3]} lack, "
            f"{[row for row in found.get(name, ()) if row not in truth.get(name, ())][:3]} too many"
            for name in sorted(truth.keys() | found.keys())
            if truth.get(name) != found.get(name)
        ]

    def tables(self) -> Tables:
        """What the target has now."""
        rows = READERS[self.sink](self)
        return {name: ordered(map(dict, of)) for name, of in rows.items() if name.startswith("w.")}

    def at(self, ts: int) -> Tables:
        """What its lake has at a TSO, landed rows among it."""
        with Lake(str(self.home / "lake")).at(ts).live() as view:
            return shown(view)


def shown(view: Lake | Live) -> Tables:
    """The tables of a lake of mode replica; one without a key is a log of changes."""
    found: Tables = {}
    for name in view.tables():
        rows = view.arrow(name)
        own = rows.select([column for column in rows.column_names if column[0] != "_"]).to_pylist()
        ops = rows.column("_tidegate_op").to_pylist() if "_tidegate_op" in rows.column_names else ["I"] * len(own)
        found[name] = ordered(row for row, op in zip(own, ops, strict=True) if op == "I")
        for gone in ordered(row for row, op in zip(own, ops, strict=True) if op == "D"):
            found[name].remove(gone)
    return found


def topic(servers: Servers, draw: Draw, name: str) -> str:
    """The address of the topic that a seed's feeds read."""
    more = "&enable-tidb-extension=true" if draw.source == "canal-json" else ""
    return f"kafka://{servers.bootstrap}/{name}?protocol={draw.source}{more}"


def write(draw: Draw, servers: Servers, database: Database, upto: int, *, since: int, state: str) -> None:
    """The changefeed that writes the topic, up to a TSO. One without state begins above `since`, as TiCDC's that is
    started anew from an older checkpoint: it sends all of it again."""
    if draw.source != "log":
        home = database.log.parent
        toml = home / "writer.toml"
        toml.write_text(f"force-replicate = {str(draw.force).lower()}\n")
        uri = topic(servers, draw, home.name)
        config = load(
            read_document(toml), source_uri=f"tidb://{database.log}", sink_uri=f"{uri}&partition-num=2", rules=["w.*"],
            state_dir=home / state, start_ts=None if (home / state).exists() else since,
        )  # fmt: skip
        finished(config, upto, database)


def _redis(feed: Feed) -> dict[str, Any]:
    config = feed.config
    assert isinstance(config.sink, RedisOptions)
    sink = sink_of(config)
    assert isinstance(sink, RedisSink)
    servers = RedisServers(config.sink)
    keyed = [table for table in sink.recover().state.tables.values() if table.handle_key]
    found = {str(table.name): test_redis_sink.rows_here(servers, table) for table in keyed}
    servers.close()
    return found


def _search(feed: Feed) -> dict[str, Any]:
    config = feed.config
    assert isinstance(config.sink, EmbeddedTarget)
    return dict(test_search_sink.rows_of(store_of(config.sink, config.name)))


def _files(feed: Feed) -> dict[str, Any]:
    bucket = Bucket(str(feed.home / "out"), "out")
    paths = [one["path"] for page in obstore.list(store(bucket.uri)) for one in page]
    return keyed([storage_reader.events_in(bucket, paths, ".csv")])


def streams_of(feed: Feed) -> list[list[Event]]:
    """The events of each partition of a feed's topic."""
    name, streams = f"{feed.home.name}-out", list[list[Event]]()
    reading = from_config({"protocol": feed.sink})
    consumer = confluent_kafka.Consumer({"bootstrap.servers": feed.servers.bootstrap, "group.id": "reads"})
    for number in range(2):
        partition = confluent_kafka.TopicPartition(name, number, 0)
        _, end = consumer.get_watermark_offsets(partition)
        consumer.assign([partition])
        messages = consumer.consume(end, 30) if end else []
        assert len(messages) == end, (name, number)
        streams.append([event for one in messages for event in decode(one.key() or b"", one.value(), reading)])
    consumer.close()
    return streams


def _topic(feed: Feed) -> dict[str, Any]:
    return keyed(streams_of(feed))


def keyed(streams: Sequence[Sequence[Event]]) -> dict[str, Any]:
    """The tables that events make, without the one in which equal rows cannot be told apart."""
    return dict(rebuilt([[one for one in of if getattr(one, "table", "") != "keyless"] for of in streams]))


READERS: Final[Mapping[str, Callable[[Feed], dict[str, Any]]]] = {
    "replica": lambda feed: dict(shown(Lake(str(feed.home / "lake")))),
    **dict.fromkeys(LAKES[1:], lambda feed: dict(adapters.lake_tables(feed.home / "lake"))),
    "mariadb": lambda feed: dict(test_sql_sink.tables_of(feed.servers.mariadb)),
    "sqlite": lambda feed: dict(test_sqlite_sink.TestSqlite().read(feed.home).tables or {}),
    "redis": _redis,
    "search": _search,
    "files": _files,
    "open-protocol": _topic,
    "canal-json": _topic,
}


def lived(seed: int, servers: Servers, home: Path) -> list[str]:
    """Both feeds of a seed, from their begin to their end, compared at S, at the moments behind it and at the end.
    Return where they died."""
    draw, work = Draw.of(seed), Work(seed)
    home.mkdir()
    test_sql_sink.emptied(servers.mariadb)
    database = Database(home / "log")
    stormed: list[str] = []

    def storm() -> None:
        if not stormed:
            stormed.append("amid")
            database.play(work.storm())
            if draw.early:
                database.play(work.ends())

    try:
        database.play(TABLES)
        database.play(work.rows(60))
        database.play(work.storm())
        if draw.trimmed:
            database.trim()
        begun = database.now()
        feeds = []
        for sink in draw.sinks:
            (home / sink).mkdir()
            (home / sink).rename(home / f"{home.name}-{sink}")
            feeds.append(Feed(draw, sink, database, servers, home / f"{home.name}-{sink}"))
        database.play(work.rows(20))
        write(draw, servers, database, database.now(), since=begun, state="writer")
        for feed, deaths in zip(feeds, draw.deaths, strict=True):
            done = feed.follow(1, deaths, {"load/plan-kept": storm})
            assert done.load is not None, feed.sink
            assert (done.state, done.checkpoint_ts, done.load.is_done) == ("finished", done.load.ts, True), feed.sink
            assert not (wrong := feed.unlike(done.load.ts)), (feed.sink, "at S", wrong)
            if not feed.died and not feed.keeps_keyless():  # a sink tells what it has met in this life
                assert "w.keyless" in {one.table for one in done.left_out}, (feed.sink, done.left_out)
            database.play(work.rows(3))
            write(draw, servers, database, database.now(), since=begun, state="writer")
        write(draw, servers, database, database.now(), since=begun, state="again")
        later = [*work.rows(12), *work.storm(), *(() if draw.early else work.ends())]
        moments = []
        for at in range(MOMENTS):
            database.play(later[at * len(later) // MOMENTS : (at + 1) * len(later) // MOMENTS])
            moments.append(database.now())
        write(draw, servers, database, moments[-1], since=begun, state="again")
        for feed, deaths in zip(feeds, draw.deaths, strict=True):
            steps = moments if feed.sink in {"changelog", "history"} else moments[-1:]
            for ts in steps:
                assert feed.follow(ts, deaths if ts == steps[-1] else ()).checkpoint_ts == ts, feed.sink
                assert not (wrong := feed.unlike(ts)), (feed.sink, ts, moments, wrong)
            for ts in moments if feed.sink == "replica" else ():
                assert not (wrong := feed.unlike(ts, feed.at(ts))), (feed.sink, ts, moments, wrong)
        return [f"{feed.sink} {name}" for feed in feeds for name in feed.died]
    finally:
        database.close()


def chosen_seeds(count: int) -> range:
    """Return the seeds of a soak: SEEDS=a-b, or `count` of them."""
    first, _, last = os.environ.get("SEEDS", f"0-{count - 1}").partition("-")
    return range(int(first), int(last or first) + 1)


def failures(lived: Callable[[int, Path], None], count: int, place: Path) -> dict[int, str]:
    """What the chosen seeds of `lived` fail with."""
    failed = {}
    for seed in chosen_seeds(count):
        try:
            lived(seed, place / str(seed))
        except (Exception, Died) as error:  # noqa: BLE001  told at the end
            failed[seed] = repr(error)[:2000]
    return failed


def noted(seed: int, run: Callable[[], list[str]]) -> str:
    """Run a seed and append its outcome to the ledger; return its error, "" for none."""
    began_s, died, error = time.monotonic(), list[str](), ""
    try:
        died = run()
    except Exception as caught:  # noqa: BLE001  the ledger tells it, whatever it is
        error = f"{type(caught).__name__}: {caught}"
    draw = Draw.of(seed)
    line = {"seed": seed, "source": draw.source, "sinks": draw.sinks, "outcome": error or "equal", "died": died}
    line["seconds"] = round(time.monotonic() - began_s, 1)
    ledger = Path(os.environ.get(LEDGER) or Path(__file__).parents[3] / "build" / "load_seeds.jsonl")
    ledger.parent.mkdir(parents=True, exist_ok=True)
    with ledger.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return error and f"seed {seed}: {error}"
