"""Two embedded TiDBs that replicate into each other: nothing comes back, and DDLs go one way."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest

from tidegate.config.load import load
from tidegate.config.registry import feed_of
from tidegate.engine.loop import Engine, Feed, Meter
from tidegate.engine.ports import LocalTasks
from tidegate.engine.stop_signals import NoPauseEvent
from tidegate.kv.keys import RecordKey, decode_table_key, table_span
from tidegate.source.tidb_segment import read_spans
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.listener import Upstream
from tidegate_upstream.tidb.log_writer import LogWriter
from tidegate_upstream.tidb.session import Session

pytestmark = pytest.mark.slow
ROUNDS = 12
MAKE = ("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)")
FORBIDDEN = 8263
BOTH_WAYS = "bdr-mode = true\n"


class Side:
    """A TiDB with a port and a log; `settings` are those of the feed that brings its changes to the other one."""

    def __init__(self, home: Path, settings: str) -> None:
        self.cluster = Cluster.open()
        self.upstream = Upstream(self.cluster)
        self.session = Session(self.cluster.node)
        self.log = home / "log"
        self.writer = LogWriter(ChangeLog(self.cluster.storage.store, self.cluster.storage.oracle), self.log, 0)
        self.file, self.state = home / "feed.toml", home / "state"
        self.log.mkdir(parents=True)
        self.file.write_text(settings)

    def run(self, *statements: str) -> None:
        """Executes statements as a user does."""
        for sql in statements:
            self.session.execute(sql)

    def rows(self, table: str = "shop.t") -> list[tuple[object, ...]]:
        """The rows of a table by their key."""
        [found] = self.session.execute(f"SELECT * FROM {table} ORDER BY id")
        return list(found.rows)  # type: ignore[union-attr]

    def tell(self) -> None:
        """Writes the log up to now."""
        self.writer.write(empty=True)

    def told(self) -> Counter[tuple[int, int]]:
        """How many rows of the shop the log has of each write source, of even and of odd keys."""
        self.tell()
        span = table_span(self.session.view().table("shop", "t").stored.id)
        found = (
            (row.txn_source, decode_table_key(row.key)) for row in read_spans(self.log, 0, self.writer.low, (span,))
        )
        return Counter((source, key.handle.value % 2) for source, key in found if isinstance(key, RecordKey))

    def noted(self) -> int:
        """How often the changefeed from the other side has said where it stands."""
        self.tell()
        span = table_span(self.session.view().table("tidegate", "progress").stored.id)
        return sum(1 for _ in read_spans(self.log, 0, self.writer.low, (span,)))

    def feed(self, other: "Side", parameters: str = "", start_ts: int | None = None) -> Feed:
        """The changefeed to the other side."""
        port = other.upstream.ports["n1"]
        config = load(
            self.file,
            source_uri=f"tidb://{self.log}",
            sink_uri=f"tidb://root@127.0.0.1:{port}/{parameters}",
            start_ts=start_ts,
            state_dir=self.state,
        )
        return feed_of(config)

    def send(self, other: "Side", parameters: str = "", start_ts: int | None = None) -> None:
        """Brings what is new in the log to the other side."""
        feed = self.feed(other, parameters, start_ts)
        feed.sink.flush_policy = replace(feed.sink.flush_policy, idle_s=0)
        Engine(feed, LocalTasks(), Meter(lambda _: None), NoPauseEvent()).run(idle_s=0)

    def bring(self, other: "Side") -> None:
        """Tells what is new and sends it."""
        self.tell()
        self.send(other)


@pytest.fixture
def sides(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Side, Side]]:
    """Two of them, by default with bdr-mode."""
    settings = getattr(request, "param", BOTH_WAYS)
    with ExitStack() as stack:
        found = Side(tmp_path / "a", settings), Side(tmp_path / "b", settings)
        for side in found:
            stack.enter_context(side.upstream)
        yield found


def work(side: Side, random: Random, odd: int) -> None:
    """A few transactions on keys of one parity."""
    for _ in range(3):
        keys = sorted({2 * random.randrange(60) + odd for _ in range(random.randint(1, 6))})
        side.run("BEGIN")
        for key in keys:
            if random.random() < 0.3:
                side.run(f"DELETE FROM shop.t WHERE id = {key}")
            else:
                side.run(f"REPLACE INTO shop.t (id, v) VALUES ({key}, {random.randrange(1_000_000)})")
        side.run("COMMIT")


def test_writers_on_both_sides(sides: tuple[Side, Side]) -> None:
    """Both end with the rows of both; each row is brought over once and never comes back, and so is each DDL."""
    a, b = sides
    a.run("ADMIN SET BDR ROLE PRIMARY", *MAKE)
    b.run("ADMIN SET BDR ROLE SECONDARY")
    a.bring(b)
    random = Random(3)
    for number in range(ROUNDS):
        for side, odd in ((a, 0), (b, 1)):
            work(side, random, odd)
        if number == ROUNDS // 2:
            a.run("ALTER TABLE shop.t ADD COLUMN w INT NOT NULL DEFAULT 7", "CREATE INDEX by_v ON shop.t (v)")
            with pytest.raises(Exception, match="bdr role of this cluster is set to secondary") as refused:
                b.run("ALTER TABLE shop.t ADD COLUMN x INT")
            assert refused.value.mysql_code == FORBIDDEN  # type: ignore[attr-defined]
        a.bring(b)
        b.bring(a)
    a.bring(b)

    assert a.rows() == b.rows() != []
    assert {len(row) for row in a.rows()} == {3}
    assert a.told().keys() == {(0, 0), (1, 1)}
    assert b.told().keys() == {(0, 1), (1, 0)}
    assert a.told()[1, 1] <= b.told()[0, 1]
    assert b.told()[1, 0] <= a.told()[0, 0]
    jobs = [job for job in b.cluster.node.ddl_client.history() if job.schema_name == "shop"]
    assert len(jobs) == len(MAKE) + 2
    assert {(job.bdr_role, job.cdc_write_source) for job in jobs} == {("secondary", 1)}
    jobs = [job for job in a.cluster.node.ddl_client.history() if job.schema_name == "shop"]
    assert len(jobs) == len(MAKE) + 2
    assert {(job.bdr_role, job.cdc_write_source) for job in jobs} == {("primary", 0)}


@pytest.mark.parametrize("sides", [BOTH_WAYS, ""], indirect=True, ids=["bdr-mode", "without"])
def test_loops(sides: tuple[Side, Side], request: pytest.FixtureRequest) -> None:
    """Without bdr-mode two values of a row go round for ever, each on one side; with it the last one stays."""
    a, b = sides
    for side in sides:
        side.run(*MAKE)
        side.tell()
    starts = a.writer.low, b.writer.low
    a.run("INSERT INTO shop.t VALUES (1, 1)")
    a.tell()
    a.send(b, "?safe-mode=true", starts[0])
    a.run("UPDATE shop.t SET v = 2")
    values, counts = [], []
    for _ in range(4):
        a.tell()
        b.tell()
        a.send(b, "?safe-mode=true", starts[0])
        b.send(a, "?safe-mode=true", starts[1])
        values.append((a.rows()[0][1], b.rows()[0][1]))
        counts.append(sum(a.told().values()) + sum(b.told().values()))

    if "without" in request.node.name:
        assert values == [(1, 2), (2, 1)] * 2
        assert counts == [5, 7, 9, 11]
    else:
        assert values == [(2, 2)] * 4
        assert counts == [4] * 4


def test_ddls_without_a_role(sides: tuple[Side, Side]) -> None:
    """Where no cluster is the primary no DDL goes over, and rows go on in the shape that both were given."""
    a, b = sides
    for side in sides:
        side.run(*MAKE)
        side.run("ALTER TABLE shop.t ADD COLUMN w INT")
    a.run("INSERT INTO shop.t VALUES (1, 1, 1)")
    b.run("INSERT INTO shop.t VALUES (2, 2, 2)")
    a.bring(b)
    b.bring(a)

    assert a.rows() == b.rows() == [(1, 1, 1), (2, 2, 2)]


def test_writers_at_the_same_time(sides: tuple[Side, Side]) -> None:
    """Writers that do not wait for the feeds, nor the feeds for each other: both sides are equal when they rest."""
    a, b = sides
    for side in sides:
        side.run(*MAKE)
    faults: list[BaseException] = []

    def writes(side: Side, odd: int) -> None:
        port = side.upstream.ports["n1"]
        connection: Any = pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)
        try:
            with connection, connection.cursor() as cursor:
                for key in range(odd, 400, 2):
                    cursor.execute("INSERT INTO shop.t VALUES (%s, 0)", (key,))
                    cursor.execute("UPDATE shop.t SET v = v + id WHERE id = %s", (key,))
        except BaseException as fault:  # noqa: BLE001  the test tells it
            faults.append(fault)

    threads = [threading.Thread(target=writes, args=(side, odd)) for side, odd in ((a, 0), (b, 1))]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        a.bring(b)
        b.bring(a)
    a.bring(b)
    b.bring(a)

    assert not faults
    assert a.rows() == b.rows() == [(key, key) for key in range(400)]
    assert a.told().keys() == {(0, 0), (1, 1)}
    assert b.told().keys() == {(0, 1), (1, 0)}


@pytest.mark.parametrize("sides", [BOTH_WAYS], indirect=True)
def test_rest(sides: tuple[Side, Side]) -> None:
    """Where nobody writes, what the changefeeds note of themselves is no change for each other."""
    a, b = sides
    for side in sides:
        side.run(*MAKE)
    a.bring(b)
    b.bring(a)
    stop = threading.Event()
    noted = []
    engines = [Engine(one, LocalTasks(), Meter(lambda _: None), stop) for one in (a.feed(b), b.feed(a))]
    threads = [threading.Thread(target=engine.run) for engine in engines]
    for thread in threads:
        thread.start()
    for _ in range(40):
        time.sleep(0.1)
        noted.append([side.noted() for side in sides])
    stop.set()
    for thread in threads:
        thread.join()

    assert all(last - first <= 4 for first, last in zip(noted[20], noted[-1], strict=True)), noted
