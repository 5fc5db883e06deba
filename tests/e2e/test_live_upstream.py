"""A lake behind an upstream that runs, is stopped, is killed, and comes back, while people work and tables change.

    `tidegate upstream start --data --log`  ──► segments ──► `tidegate run tidb://.. delta://..`, one process all along
       ▲ 4000: transfers, notes     ▲ DDL          │
       │ 4001: the same             │              └─ nothing comes while it is down: the feed waits, without an error
       stopped, then killed; started again over the same directory

It is killed in the middle of a DDL that writes all rows of a table anew, which is done when it is back. Timestamps are
taken where no DDL is in flight that changes what SELECT shows, and while an index is filled; in the end each table at
each of them is read on both sides.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest

import tidegate
from tests.e2e.rig import Report, Running, cli, running
from tidegate.source.tidb_segment import segments
from tidegate_upstream import background as upstreams

pytestmark = pytest.mark.slow

ACCOUNTS, START, MANY, DOWN_S, WAIT_S = 20, 100, 5_000, 2.0, 120.0
TABLES = (
    "CREATE DATABASE live",
    "CREATE TABLE live.accounts (id INT PRIMARY KEY, balance BIGINT NOT NULL, owner VARCHAR(20) DEFAULT 'nobody')",
    "CREATE TABLE live.notes (id BIGINT AUTO_INCREMENT PRIMARY KEY, text VARCHAR(40), n INT)",
    "CREATE TABLE live.many (id INT PRIMARY KEY, v INT)",
    *(
        f"INSERT INTO live.many VALUES {', '.join(f'({one}, {one % 97})' for one in range(first, first + MANY // 10))}"
        for first in range(0, MANY, MANY // 10)
    ),
    f"INSERT INTO live.accounts (id, balance) VALUES {', '.join(f'({one}, {START})' for one in range(ACCOUNTS))}",
)
DDL = (
    (
        "ALTER TABLE live.accounts ADD COLUMN grade INT NOT NULL DEFAULT 7",
        "ALTER TABLE live.many ADD INDEX by_v (v)",
        "ALTER TABLE live.notes MODIFY COLUMN n BIGINT",
        "RENAME TABLE live.notes TO live.remarks",
    ),
    (
        "ALTER TABLE live.accounts ADD UNIQUE INDEX by_grade (grade, id)",
        "ALTER TABLE live.accounts CHANGE COLUMN owner holder VARCHAR(30) DEFAULT 'nobody'",
        "TRUNCATE TABLE live.remarks",
    ),
    (
        "ALTER TABLE live.accounts DROP INDEX by_grade",
        "ALTER TABLE live.accounts DROP COLUMN grade",
        "RENAME TABLE live.remarks TO live.notes",
        "CREATE TABLE live.late (id INT PRIMARY KEY, v INT)",
    ),
)
"""What an administrator does before the upstream is stopped, between stop and kill, and afterwards."""
INTERRUPTED = "ALTER TABLE live.many MODIFY COLUMN v VARCHAR(20)"
BEHIND_IT = "ALTER TABLE live.many COMMENT = 'done'"
"""What waits for the DDL before it on the same table."""


class Upstream:
    """The process, whichever it is at the moment."""

    def __init__(self, home: Path) -> None:
        self.data, self.log = home / "data", home / "log"
        self.pid, self.ports = 0, list[int]()

    def start(self) -> None:
        """Start it over its directory, at any ports."""
        words = ("--data", str(self.data), "--port", "0", "--nodes", "2", "--lease", "0.5", "--log", str(self.log))
        told = json.loads(_said("upstream", "start", *words, "--json"))
        self.pid, self.ports = told["pid"], list(told["ports"].values())

    def stop(self) -> None:
        """In good order."""
        _said("upstream", "stop", "--data", str(self.data))

    def kill(self) -> None:
        """SIGKILL, while a DDL rewrites a table."""
        with ThreadPoolExecutor(1) as pool:
            cut_off = pool.submit(self.run, INTERRUPTED)
            until(lambda: self.is_under_way(INTERRUPTED), "the DDL is under way")
            os.kill(self.pid, signal.SIGKILL)
            until(lambda: not upstreams.status(self.data), "the upstream is gone")
            assert isinstance(cut_off.exception(WAIT_S), pymysql.MySQLError), "the DDL was over before"

    def run(self, statement: str) -> None:
        """A statement at the first node."""
        with self.session() as cursor:
            cursor.execute(statement)

    def is_under_way(self, ddl: str) -> bool:
        """Whether it has begun and is not over."""
        with self.session(1) as cursor:
            cursor.execute("SELECT state FROM information_schema.ddl_jobs WHERE query = %s", (ddl,))
            return any(state == "running" for (state,) in cursor.fetchall())

    @contextmanager
    def session(self, node: int = 0) -> Iterator[Any]:
        """A cursor at one of the nodes."""
        with (
            pymysql.connect(host="127.0.0.1", port=self.ports[node], user="root", autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            yield cursor


def _said(*words: str) -> str:
    done = cli(*words)
    assert done.exit_code == 0, done.output
    return done.stdout


def until(wanted: Callable[[], bool], what: str) -> None:
    """Wait for it."""
    end_s = time.monotonic() + WAIT_S
    while not wanted():
        assert time.monotonic() < end_s, f"not in {WAIT_S:.0f} s: {what}"
        time.sleep(0.05)


class People:
    """Two who work at a node each, whatever becomes of the upstream; `commits` counts what they were told is done."""

    def __init__(self, upstream: Upstream, seed: int) -> None:
        self.upstream, self.commits = upstream, 0
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self._work, args=(node, Random(seed + node))) for node in (0, 1)]
        for one in self.threads:
            one.start()

    def rest(self) -> None:
        """No more work."""
        self.ended.set()
        for one in self.threads:
            one.join()

    def _work(self, node: int, random: Random) -> None:
        while not self.ended.is_set():
            try:
                with self.upstream.session(node) as cursor:
                    while not self.ended.wait(0.01):
                        self._transact(cursor, random)
            except (pymysql.MySQLError, OSError):  # refused by the schema of now, a conflict, or nobody is there
                self.ended.wait(0.05)

    def _transact(self, cursor: Any, random: Random) -> None:
        giver, taker = random.sample(range(ACCOUNTS), 2)
        name = random.choice(("notes", "remarks"))
        cursor.execute("BEGIN")
        cursor.execute(f"UPDATE live.accounts SET balance = balance - 1 WHERE id = {giver}")
        cursor.execute(f"UPDATE live.accounts SET balance = balance + 1 WHERE id = {taker}")
        cursor.execute("COMMIT")
        cursor.execute(f"UPDATE live.many SET v = v + 1 WHERE id = {random.randrange(MANY)}")
        cursor.execute(f"INSERT INTO live.{name} (text, n) VALUES ('{giver} to {taker}', {random.randint(0, 99)})")
        self.commits += 3


class Feed:
    """The reports of the feed's process, as they come."""

    def __init__(self, run: Running) -> None:
        self.run, self.last = run, Report()
        self.errors: list[str] = []
        threading.Thread(target=self._hear, daemon=True).start()

    @property
    def checkpoint(self) -> int:
        """How far the lake is."""
        return int(self.last.get("checkpoint_ts") or 0)

    def passes(self, ts: int) -> None:
        """Wait until the lake is at `ts`."""
        until(lambda: self.checkpoint >= ts or self.run.process.poll() is not None, f"the lake passes {ts}")
        assert self.run.process.poll() is None, self.run.stderr.read_text()[-2000:]

    def _hear(self) -> None:
        for report in self.run.reports():
            self.last = report
            self.errors += [report["error"]] if report.get("error") else []


def now_ts(upstream: Upstream) -> int:
    """A timestamp of now, above all that is done."""
    with upstream.session() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT TIDB_CURRENT_TSO()")
        return int(cursor.fetchone()[0])


def administer(upstream: Upstream, script: tuple[str, ...]) -> list[int]:
    """Run DDLs one after the other; timestamps between them, and one in the middle of each that makes an index."""
    found = []
    for statement in script:
        found.append(now_ts(upstream))
        with upstream.session() as cursor:
            middle = threading.Timer(0.05, lambda: found.append(now_ts(upstream)))
            if "ADD INDEX" in statement:
                middle.start()
            cursor.execute(statement)
        found.append(now_ts(upstream))
        if "ADD INDEX" in statement:
            middle.join()
            assert found[-1] > found[-2], "the index was there at once"
        time.sleep(0.3)
    return found


def shown(upstream: Upstream, ts: int) -> dict[str, list[dict[str, object]]]:
    """All tables as SQL shows them at a timestamp, by their first column."""
    with upstream.session() as cursor:
        cursor.execute(f"SET tidb_snapshot = '{ts}'")
        cursor.execute("SHOW TABLES FROM live")
        found = {}
        for (name,) in cursor.fetchall():
            cursor.execute(f"SELECT * FROM live.{name} ORDER BY id")
            names = [column[0] for column in cursor.description]
            found[f"live.{name}"] = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return found


def held(lake: Path, ts: int) -> dict[str, list[dict[str, object]]]:
    """All tables of the lake at it."""
    with tidegate.lake(str(lake)).at(ts).live() as view:
        return {name: sorted(view.arrow(name).to_pylist(), key=lambda row: row["id"]) for name in view.tables()}


@pytest.mark.more
def test_an_upstream_that_comes_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The feed follows while there is something to follow, waits through a stop and a SIGKILL, goes on by itself, and
    the lake is the upstream at every timestamp that was taken; no money comes or goes in any published snapshot."""
    (tmp_path / "notes").mkdir()
    monkeypatch.setattr(upstreams, "cache_dir", lambda *_: tmp_path / "notes")
    upstream, lake, moments = Upstream(tmp_path), tmp_path / "lake", list[int]()
    upstream.start()
    try:
        with upstream.session() as cursor:
            for statement in TABLES:
                cursor.execute(statement)
        line = ["run", "--source-uri", f"tidb://{upstream.log}", "--sink-uri", f"delta://{lake}", "--filter", "live.*"]
        with running(line, tmp_path / "feed") as run:
            feed = Feed(run)
            feed.passes(now_ts(upstream))
            people = People(upstream, seed=1)
            try:
                for script, away in zip(DDL, (upstream.stop, upstream.kill, None), strict=True):
                    moments += administer(upstream, script)
                    feed.passes(moments[-1])
                    if away is not None:
                        away()
                        _stands_still(feed, upstream.log)
                        done = people.commits
                        upstream.start()
                        until(lambda done=done: people.commits > done, "people work again")
                        upstream.run(BEHIND_IT)
                        moments.append(now_ts(upstream))
                        feed.passes(moments[-1])
            finally:
                people.rest()
            moments.append(now_ts(upstream))
            feed.passes(moments[-1])
            run.process.send_signal(signal.SIGTERM)
            assert run.process.wait(60) == 0, run.stderr.read_text()[-2000:]

        assert feed.errors == []
        assert len(moments) > 20
        for ts in moments:
            assert held(lake, ts) == shown(upstream, ts), f"at {ts}, number {moments.index(ts)} of {len(moments)}"
        first, last = (held(lake, ts)["live.many"][0]["v"] for ts in (moments[0], moments[-1]))
        assert (type(first), type(last)) == (int, str)
    finally:
        upstream.stop()
    assert people.commits > 100
    for one in tidegate.lake(str(lake)).history():
        rows = tidegate.lake(str(lake)).at(one.checkpoint_ts).arrow("live.accounts").to_pylist()
        assert sum(row["balance"] for row in rows) == ACCOUNTS * START


def _stands_still(feed: Feed, log: Path) -> None:
    """The checkpoint comes no further than the log, stays there for a while, and the feed lives on."""

    def stays() -> bool:
        before = feed.checkpoint
        time.sleep(DOWN_S / 2)
        return feed.checkpoint == before

    time.sleep(DOWN_S / 2)
    until(stays, "the lake stands still")
    assert feed.checkpoint <= segments(log)[-1][1]
    assert feed.run.process.poll() is None
