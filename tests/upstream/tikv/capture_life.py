"""A life of a capture that a seed draws: statements, DDLs, open transactions, regions that split, merge and move,
streams that end, garbage collection, a changefeed that reads and lets the log be trimmed, and deaths of the capture.

    draw ─► step ─► step ─► …        in between: rows that the changefeed has read so far, as they are in the log
                            └─► all rows above the begin, once, as the upstream writes them itself; PD held what was
                                not written, and no less

`noted` appends what a seed did to the ledger, build/capture_seeds.jsonl (TIDEGATE_CAPTURE_LEDGER: another file).
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.failpoint import CAPTURE_FAILPOINTS, armed
from tests.upstream.tikv.test_capture import BEFORE, RULES, Served, physical_ids, shop, table_of
from tidegate.config.load import load
from tidegate.config.registry import feed_of
from tidegate.engine.loop import Engine, Meter
from tidegate.engine.ports import LocalTasks
from tidegate.engine.stop_signals import NoPauseEvent
from tidegate.kv.keys import table_span
from tidegate.model.errors import SinkError, TidegateError
from tidegate.model.kv_change import KvChange
from tidegate.model.tso import compose
from tidegate.schema.job import JOB_TABLE
from tidegate.source import tikv_capture
from tidegate.source.tidb_ddl import Timeline
from tidegate.source.tidb_segment import ROWS, SegmentLog, put_safe_point, read_spans
from tidegate.source.tikv_capture import Capture
from tidegate.tikv import registrations
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.session import Session
from tidegate_upstream.tikv.pd_service import PdService
from tidegate_upstream.tikv.peer import TikvPeer

LEDGER: Final = "TIDEGATE_CAPTURE_LEDGER"
STEPS: Final = 30
LIMIT_S: Final = 30.0
TABLES: Final = ("a", "b", "p")
JOBS: Final = table_span(JOB_TABLE.id)
PLACES: Final = sorted(CAPTURE_FAILPOINTS.keys() - {"capture/origin", "capture/held", "capture/base"})
CREATE: Final = {
    "a": "CREATE TABLE test.a (id INT PRIMARY KEY, v INT, KEY (v))",
    "b": "CREATE TABLE test.b (id INT PRIMARY KEY, v INT)",
    "p": "CREATE TABLE test.p (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 3",
}


class Life:
    """One seed."""

    def __init__(self, seed: int, served: Served, home: Path) -> None:
        self.random, self.served, self.home = Random(seed), served, home
        self.did = Counter[str]()
        self.open: Session | None = None
        self.open_ts = 0
        self.read: list[KvChange] = []
        self.low = self.mark = served.execute()
        self.capture = self.begun()
        self.wait(lambda: bool(served.high()))
        self.works = {
            self.rows: 8,
            self.definitions: 3,
            self.transaction: 4,
            self.regions: 5,
            self.streams: 2,
            self.garbage: 2,
            self.feed: 2,
            self.death: 1,
        }

    def begun(self) -> Capture:
        """A capture that runs."""
        capture = self.served.capture(self.low)
        capture.start()
        return capture

    def sql(self, session: Session, *texts: str) -> None:
        """Statements; those that the upstream refuses, such as of a table that is gone, do nothing."""
        for text in texts:
            try:
                session.execute(text)
            except TidegateError as error:
                self.did[type(error).__name__] += 1

    def statement(self) -> str:
        """A change of some rows."""
        table, key = self.random.choice(TABLES), self.random.randrange(40)
        return self.random.choice(
            (
                f"INSERT IGNORE INTO test.{table} (id, v) VALUES ({key}, {key}), ({key + 100}, 1)",
                f"REPLACE INTO test.{table} (id, v) VALUES ({key}, {self.random.randrange(9)})",
                f"UPDATE test.{table} SET v = v + 1 WHERE id < {key}",
                f"DELETE FROM test.{table} WHERE id BETWEEN {key} AND {key + 3}",
                f"INSERT INTO test.hidden VALUES ({self.random.randrange(1 << 30)})",
            )
        )

    def rows(self) -> None:
        """Change rows."""
        self.sql(self.served.session, *(self.statement() for _ in range(self.random.randint(1, 4))))

    def definitions(self) -> None:
        """Change tables; a DDL would wait for an open transaction."""
        if self.open is not None:
            return
        table = self.random.choice(TABLES)
        self.sql(
            self.served.session,
            self.random.choice(
                (
                    CREATE[table],
                    f"DROP TABLE test.{table}",
                    f"TRUNCATE TABLE test.{table}",
                    f"ALTER TABLE test.{table} ADD COLUMN c{self.random.randrange(99)} INT DEFAULT 7",
                    f"ALTER TABLE test.{table} ADD INDEX i{self.random.randrange(99)} (v)",
                )
            ),
        )

    def transaction(self) -> None:
        """Begin a transaction, or go on with the open one, or end it."""
        if self.open is None:
            self.open_ts = self.served.execute()
            self.open = Session(self.served.cluster.nodes["n1"])
            self.sql(self.open, "BEGIN OPTIMISTIC", self.statement())
            return
        ends = self.random.choice(("", "COMMIT", "COMMIT", "ROLLBACK"))
        self.sql(self.open, ends or self.statement())
        if ends:
            self.open = None

    def regions(self) -> None:
        """Split a region amid a table, merge one with its neighbour, or move a leader."""
        log = self.served.peer.log
        ids = [region.id for region in log.regions]
        what = self.random.choice(("split", "split", "merge", "move"))
        if what == "split":
            number = self.random.choice(self.tables() or [50])
            key = table_span(number)[0] + (1 << 63 | self.random.randrange(150)).to_bytes(8, "big")
            log.split(key)
        elif what == "merge":
            log.merge(self.random.choice(ids))
        else:
            log.move_leader(self.random.choice(ids))
        self.did[what] += 1

    def tables(self) -> list[int]:
        """The physical tables that the capture reads."""
        working = self.capture._working
        return [number for number in list(working[0].registrations.spans) if number < JOB_TABLE.id] if working else []

    def streams(self) -> None:
        """End all streams."""
        self.served.peer.cut_streams()

    def garbage(self) -> None:
        """Collect what nobody holds."""
        self.served.writer.write(empty=True)
        self.served.peer.collect_garbage(self.open_ts if self.open else self.served.execute())

    def feed(self) -> None:
        """Let the changefeed read what is there, and the log be trimmed behind it."""
        high = self.served.high()
        if high > self.mark:
            self.read += read_spans(self.served.log, self.mark, high, (ROWS,))
            self.follow(high)
            self.mark = high
            put_safe_point(self.served.log, "shop.1", high, time.time_ns() // 1_000_000)

    def follow(self, high: int) -> None:
        """Read the log into SQLite."""
        config = load(
            source_uri=f"{self.served.uri}?ddl-ts=commit",
            sink_uri=f"sqlite://{self.home}/shop.db",
            state_dir=self.home / "state",
            start_ts=self.low,
            rules=("test.*", "!test.hidden"),
        )
        engine = Engine(feed_of(config), LocalTasks(pickles=False), Meter(lambda _: None), NoPauseEvent())
        assert engine.run(until=high).checkpoint_ts == high

    def death(self) -> None:
        """Let the capture die at a place, or where it is, and begin again."""
        place = self.random.choice(PLACES)

        def die() -> None:
            raise SinkError("it dies")

        with armed({place: die}):
            self.rows()
            self.wait(lambda: self.capture.failure() is not None)
        self.capture.stop()
        assert str(self.capture.failure()) == "it dies"
        self.did[place] += 1
        self.capture = self.begun()

    def wait(self, met: Callable[[], bool]) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + LIMIT_S
        while not met():
            assert time.monotonic() < deadline, f"not within {LIMIT_S:.0f} s"
            time.sleep(0.005)

    def live(self) -> None:
        """Take all steps, and compare."""
        try:
            for _ in range(STEPS):
                (work,) = self.random.choices([*self.works], [*self.works.values()])
                self.did[work.__name__] += 1
                work()
                time.sleep(self.random.choice((0, 0, 0.01, 0.05)))
                if (failure := self.capture.failure()) is not None:
                    raise failure
            if self.open is not None:
                self.sql(self.open, "COMMIT")
            ts = self.served.execute()
            self.wait(lambda: self.served.high() >= ts or self.capture.failure() is not None)
            if (failure := self.capture.failure()) is not None:
                raise failure
            self.feed()
        finally:
            self.capture.stop()
        captured = [row for row in self.read if not JOBS[0] <= row.key < JOBS[1] and row.commit_ts <= ts]
        assert captured == self.own(ts)
        made = shop(self.home / "shop.db")  # a table of before is made with its first row
        assert {name: rows for name, rows in made.items() if rows} == self.upstream()

    def upstream(self) -> dict[str, list[tuple[object, ...]]]:
        """The tables of the filter with rows, as SQL shows them."""
        (names,) = self.served.session.execute("SHOW TABLES FROM test")
        found = {}
        for (name,) in names.rows:
            if name != "hidden":
                (rows,) = self.served.session.execute(f"SELECT * FROM test.{name}")
                found[f"test.{name}"] = sorted(map(tuple, rows.rows))
        return {name: rows for name, rows in found.items() if rows}

    def own(self, ts: int) -> list[KvChange]:
        """The rows of the tables of the filter up to `ts`, as the upstream writes them."""
        self.served.writer.write(empty=True)
        timeline = Timeline(SegmentLog(self.served.own), RULES)
        timeline.start(self.low)
        ids = physical_ids(timeline)
        timeline.read(ts)
        while (stop := timeline.stop()) is not None:
            timeline.walk(stop)
            ids |= physical_ids(timeline)
        return [row for row in read_spans(self.served.own, self.low, ts, (ROWS,)) if table_of(row.key) in ids]


def newest_ts() -> int:
    """A ts of now, as far as clocks are set."""
    return compose(time.time_ns() // 1_000_000)


def lived(seed: int, home: Path, log: str = "") -> Counter[str]:
    """Live a seed, with its log in `home` or at an address; what it did."""
    home.mkdir(parents=True, exist_ok=True)
    cluster = Cluster.open()
    with watched() as holds, TikvPeer(cluster.storage, stores=2, turn_s=0.004).in_thread() as peer:
        served = Served(peer, cluster, home, log)
        served.execute(*BEFORE, "DELETE FROM test.a", CREATE["b"], CREATE["p"])
        life = Life(seed, served, home)
        holds.needed = partial(served.high, fresh=True)
        life.live()
        return life.did


class Holds:
    """Where PD was asked to hold garbage collection, above what it was needed."""

    def __init__(self) -> None:
        self.needed: Callable[[], int] = lambda: 0
        self.above: list[int] = []


@contextmanager
def watched() -> Iterator[Holds]:
    """Observe the holds, which move often; regions are registered again at once."""
    holds, answer = Holds(), PdService.set_barrier
    before = tikv_capture.KEEP_S, registrations.RECONNECT_S

    def set_barrier(self: PdService, request: Any) -> Any:
        if (high := holds.needed()) and request.barrier_ts >= high:
            holds.above.append(request.barrier_ts)
        return answer(self, request)

    PdService.set_barrier = set_barrier  # type: ignore[method-assign]
    tikv_capture.KEEP_S, registrations.RECONNECT_S = 0.2, 0.01  # type: ignore[misc]
    try:
        yield holds
        assert not holds.above
    finally:
        PdService.set_barrier = answer  # type: ignore[method-assign]
        tikv_capture.KEEP_S, registrations.RECONNECT_S = before  # type: ignore[misc]


def noted(seed: int, home: Path) -> str:
    """Live a seed and append its outcome to the ledger; return its error, "" for none."""
    began_s, did, error = time.monotonic(), Counter[str](), ""
    try:
        did = lived(seed, home)
    except Exception as caught:  # noqa: BLE001  the ledger tells it, whatever it is
        error = f"{type(caught).__name__}: {caught}"[:2000]
    line = {"seed": seed, "outcome": error or "equal", "did": did, "seconds": round(time.monotonic() - began_s, 1)}
    ledger = Path(os.environ.get(LEDGER) or Path(__file__).parents[3] / "build" / "capture_seeds.jsonl")
    ledger.parent.mkdir(parents=True, exist_ok=True)
    with ledger.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return error and f"seed {seed}: {error}"
