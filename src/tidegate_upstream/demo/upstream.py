# ruff: noqa: S608  the statements are its own
"""The demo's upstream: three nodes in this process, a workload on them, and an observer of every DDL step.

    WatchedCluster    each tick is one move: the owner takes a step or a node loads a version; then a short pause
    job 118           delete only 86/85/85   write only 87/86/86   write reorg 88/87/87   public 89/88/88
                      └ the job's state, and the versions of n1/n2/n3 when the first node had loaded it
    NotedTs           a timestamp taken while two versions were in use: the lake must be correct there, too

The owner pauses between moves, since a DDL on small tables takes some 30 ms and few transactions would run meanwhile.

A DDL event has the timestamp of the step with which its job is done, mostly the last one.  DROP of a column or a table
is visible to SQL from its first step on, so upstream and topic differ in between; no timestamp is taken there.
Partitions are added and dropped with the step at which their jobs are done.

    stream      node   transactions on
    orders      n1     shop.orders (partitioned), shop.order_items
    stock       n2     shop.products, shop.customers, and columns that are added and dropped
    bank-1, -2  n3 n1  bank.accounts, bank.transfers: the sum of all balances never changes
    carts       n2     tables that are created, truncated, renamed, swapped, dropped and recovered

    DDLS        two administrators, each with a script: one changes the shop's tables, one creates and drops tables

The workload is pure: a seed and a stream give the same statements, however fast they run and whether or not they
succeed.  A statement may name a column that was dropped or a table that was renamed meanwhile; the upstream then
refuses it, as it would for a client that does not know of the change.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, TypeAlias

from tidegate.engine.stop_signals import wait_until
from tidegate.model.errors import Retry, SqlRefused, TidegateError
from tidegate.schema.job import Job, JobState
from tidegate_upstream.cluster_panel import DdlStates, ddl_name
from tidegate_upstream.errors import KeyLocked
from tidegate_upstream.serve import UpstreamLog
from tidegate_upstream.tidb.cluster import Cluster, Move
from tidegate_upstream.tidb.ddl_jobs import read_entry
from tidegate_upstream.tidb.engine import MemoryEngine
from tidegate_upstream.tidb.information_schema import job_row
from tidegate_upstream.tidb.listener import HOST, Upstream
from tidegate_upstream.tidb.session import Session

Transaction: TypeAlias = tuple[str, ...]
"""Statements that are committed together."""

DATABASES: Final = ("shop", "bank", "lab")
ACCOUNTS: Final = 40
TOTAL: Final = ACCOUNTS * 1000
"""The sum of all balances, always."""
_CUSTOMERS: Final = 40
_PRODUCTS: Final = 30
_TRANSFERS: Final = 900
"""Those of the past."""
_KINDS: Final = ("tool", "toy", "food", "book")
_STATES: Final = ("new", "paid", "sent", "done")
_FLAGS: Final = ("", "new", "sale", "new,hot", "new,sale,hot")


def _script(text: str) -> tuple[str, ...]:
    return tuple(" ".join(statement.split()) for statement in text.split(";") if statement.strip())


_ORDERS: Final = (
    "id BIGINT NOT NULL, month INT NOT NULL, customer INT NOT NULL, total DECIMAL(12,2) NOT NULL DEFAULT 0, "
    "status ENUM('new','paid','sent','done') NOT NULL DEFAULT 'new', weight DOUBLE NULL, "
    "placed TIMESTAMP(3) NOT NULL DEFAULT '2026-01-01 00:00:00.000', PRIMARY KEY (id, month)"
)
_TABLES: Final = _script(f"""
CREATE DATABASE shop;
CREATE DATABASE bank;
CREATE TABLE shop.customers (id INT NOT NULL PRIMARY KEY, name VARCHAR(40) NOT NULL, email VARCHAR(80) NULL, vip
    TINYINT(1) NOT NULL DEFAULT 0, note TEXT NULL, since DATE NOT NULL, UNIQUE KEY uk_email (email));
CREATE TABLE shop.products (sku VARCHAR(16) NOT NULL PRIMARY KEY, title VARCHAR(80) NOT NULL, price DECIMAL(10,2)
    NOT NULL, stock INT UNSIGNED NOT NULL DEFAULT 0, kind ENUM('tool','toy','food','book') NOT NULL DEFAULT 'toy',
    flags SET('new','sale','hot') NOT NULL DEFAULT '', attrs JSON NULL, photo VARBINARY(16) NULL, weight DOUBLE NOT
    NULL DEFAULT 0);
CREATE TABLE shop.orders ({_ORDERS}) PARTITION BY RANGE (month) (PARTITION p0 VALUES LESS THAN (1),
    PARTITION p1 VALUES LESS THAN (2), PARTITION p2 VALUES LESS THAN (3), PARTITION p3 VALUES LESS THAN (4),
    PARTITION p4 VALUES LESS THAN (5), PARTITION p5 VALUES LESS THAN (6));
CREATE TABLE shop.order_items (order_id BIGINT NOT NULL, line INT NOT NULL, sku VARCHAR(16) NOT NULL, qty INT NOT
    NULL DEFAULT 1, price DECIMAL(10,2) NOT NULL, PRIMARY KEY (order_id, line));
CREATE TABLE bank.accounts (id INT NOT NULL PRIMARY KEY, owner VARCHAR(40) NOT NULL, balance DECIMAL(18,2) NOT NULL,
    version INT NOT NULL DEFAULT 0);
CREATE TABLE bank.transfers (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, src INT NOT NULL, dst INT NOT NULL,
    amount DECIMAL(18,2) NOT NULL, took TIME(3) NULL);
""")

_SHOP_DDLS: Final = _script(f"""
ALTER TABLE shop.customers ADD COLUMN tier INT NOT NULL DEFAULT 1;
ALTER TABLE shop.orders ADD INDEX i_customer (customer);
ALTER TABLE shop.orders ADD PARTITION (PARTITION p6 VALUES LESS THAN (7));
ALTER TABLE shop.customers MODIFY COLUMN name VARCHAR(160) NOT NULL;
ALTER TABLE shop.order_items MODIFY COLUMN qty VARCHAR(12) NOT NULL DEFAULT '1';
ALTER TABLE shop.orders TRUNCATE PARTITION p0;
ALTER TABLE shop.customers RENAME COLUMN note TO remark;
CREATE TABLE shop.orders_old ({_ORDERS}, INDEX i_customer (customer));
ALTER TABLE shop.products ADD COLUMN score INT NOT NULL DEFAULT 7 AFTER title, DROP COLUMN photo, ADD INDEX i_kind
    (kind);
ALTER TABLE shop.orders EXCHANGE PARTITION p4 WITH TABLE shop.orders_old;
ALTER TABLE shop.products MODIFY COLUMN weight INT NOT NULL DEFAULT 0;
ALTER TABLE shop.orders REORGANIZE PARTITION p2, p3 INTO (PARTITION p23 VALUES LESS THAN (4));
RENAME TABLE shop.order_items TO shop.lines;
ALTER TABLE shop.customers ADD UNIQUE INDEX uk_name (email, name);
RENAME TABLE shop.lines TO shop.order_items;
ALTER TABLE shop.products MODIFY COLUMN price DECIMAL(8,1) NOT NULL;
ALTER TABLE shop.customers CHANGE COLUMN vip grade BIGINT NOT NULL DEFAULT 0;
ALTER TABLE shop.orders DROP INDEX i_customer;
ALTER TABLE shop.orders DROP PARTITION p1;
ALTER TABLE shop.products MODIFY COLUMN kind ENUM('tool','toy','food','book','film') NOT NULL DEFAULT 'toy';
ALTER TABLE shop.customers DROP COLUMN tier;
ALTER TABLE shop.orders ADD COLUMN gift TINYINT(1) NOT NULL DEFAULT 1, ALTER COLUMN total SET DEFAULT 9.75;
ALTER TABLE shop.customers DROP INDEX uk_name;
ALTER TABLE shop.customers MODIFY COLUMN since DATETIME(2) NOT NULL;
ALTER TABLE shop.order_items MODIFY COLUMN price DOUBLE NOT NULL, DROP COLUMN qty;
""")
_SIDE_DDLS: Final = _script("""
CREATE TABLE shop.carts (id INT NOT NULL PRIMARY KEY, what VARCHAR(20) NULL, pieces INT NOT NULL DEFAULT 1, INDEX
    i_what (what));
ALTER TABLE bank.accounts ADD COLUMN memo VARCHAR(20) NULL DEFAULT 'none' AFTER owner;
TRUNCATE TABLE shop.carts;
ALTER TABLE bank.accounts MODIFY COLUMN version BIGINT NOT NULL DEFAULT 0;
RENAME TABLE shop.carts TO shop.baskets;
CREATE TABLE shop.carts LIKE shop.baskets;
ALTER TABLE bank.accounts ADD INDEX i_version (version);
RENAME TABLE shop.carts TO shop.swap, shop.baskets TO shop.carts, shop.swap TO shop.baskets;
ALTER TABLE bank.transfers ADD COLUMN booked TIMESTAMP(3) NULL DEFAULT '2026-02-28 23:59:59.999';
ALTER TABLE shop.baskets PARTITION BY HASH (id) PARTITIONS 3;
DROP TABLE shop.carts;
ALTER TABLE bank.accounts MODIFY COLUMN balance DECIMAL(20,4) NOT NULL;
RECOVER TABLE shop.carts;
CREATE DATABASE lab;
CREATE TABLE lab.trial (id INT NOT NULL PRIMARY KEY, v INT NULL);
ALTER TABLE shop.baskets REMOVE PARTITIONING;
ALTER TABLE bank.accounts DROP COLUMN memo;
CREATE VIEW shop.rich AS SELECT id, owner FROM bank.accounts WHERE balance > 1000;
ALTER TABLE shop.baskets RENAME INDEX i_what TO i_thing;
ALTER TABLE shop.baskets ALTER COLUMN pieces SET DEFAULT 2;
TRUNCATE TABLE bank.transfers;
DROP DATABASE lab;
DROP VIEW shop.rich;
ALTER TABLE shop.baskets COMMENT = 'what is left';
DROP TABLE shop.baskets;
""")
Scripts: TypeAlias = tuple[tuple[str, ...], ...]
"""The DDL scripts of the administrators, each in order."""
DDLS: Final[Scripts] = (_SHOP_DDLS, _SIDE_DDLS)


def without_recovery(scripts: Scripts) -> Scripts:
    """Return scripts without RECOVER TABLE, which only a TiDB can run."""
    return tuple(tuple(sql for sql in script if not sql.startswith("RECOVER TABLE")) for script in scripts)


class Stream(NamedTuple):
    """A stream of transactions and its node (from 0)."""

    name: str
    node: int


def setup(seed: int) -> Iterator[str]:
    """Return the tables and their first rows."""
    random = Random(f"{seed} setup")
    yield from _TABLES
    people = (f"({number}, 'owner {number}', {TOTAL // ACCOUNTS})" for number in range(1, ACCOUNTS + 1))
    yield f"INSERT INTO bank.accounts (id, owner, balance) VALUES {', '.join(people)}"
    old = (f"({-number}, {number % 2}, {number}, {number}.5)" for number in range(1, 21))
    yield f"INSERT INTO shop.orders (id, month, customer, total) VALUES {', '.join(old)}"
    past = (f"({number % ACCOUNTS + 1}, {(number + 1) % ACCOUNTS + 1}, 0.{number:03})" for number in range(_TRANSFERS))
    yield f"INSERT INTO bank.transfers (src, dst, amount) VALUES {', '.join(past)}"
    for number in range(1, _CUSTOMERS + 1):
        yield _customer(random, number)
    for number in range(1, _PRODUCTS + 1):
        yield _product(random, number)


def transactions(seed: int, stream: Stream) -> Iterator[Transaction]:
    """Return the endless transactions of a stream."""
    random = Random(f"{seed} {stream.name}")
    make = _MAKERS[stream.name.partition("-")[0]]
    number = 0
    while True:
        number += 1
        yield make(random, number)


def _customer(random: Random, number: int) -> str:
    note = random.choice(("NULL", "'quiet'", "'pays late \\u20ac'", "''"))
    return (
        f"INSERT INTO shop.customers (id, name, email, since) VALUES ({number}, 'name {random.randint(1, 99)}', "
        f"'c{number}@example.org', '20{random.randint(10, 25)}-0{random.randint(1, 9)}-1{random.randint(0, 9)}') "
        f"ON DUPLICATE KEY UPDATE name = {note if note != 'NULL' else repr('nobody')}"
    )


def _product(random: Random, number: int) -> str:
    attrs = random.choice(("NULL", f'\'{{"size": {random.randint(1, 9)}, "tags": ["a", null]}}\''))
    return (
        f"REPLACE INTO shop.products (sku, title, price, stock, kind, flags, attrs, weight) VALUES ('p{number}', "
        f"'product {number}', {random.randint(100, 99_999) / 100}, {random.randint(0, 99)}, '{random.choice(_KINDS)}', "
        f"'{random.choice(_FLAGS)}', {attrs}, {random.randint(0, 4000) / 100})"
    )


def _month(order: int) -> int:
    """Return the month of an order, which follows from its number so that later changes find its partition. Month 0 is
    truncated once, month 1 dropped; its orders then go to the next one."""
    return order % 7


def _orders(random: Random, number: int) -> Transaction:
    old = random.randint(1, number)
    where = f"WHERE id = {old} AND month = {_month(old)}"
    match random.choices(("new", "pay", "move", "forget"), (6, 3, 1, 1))[0]:
        case "pay":
            paid = f"status = '{random.choice(_STATES)}', total = total + {random.randint(-500, 500) / 100}"
            return (f"UPDATE shop.orders SET {paid} {where}",)
        case "move":
            return (f"UPDATE shop.order_items SET line = line + 10 WHERE order_id = {old} AND line < 10",)
        case "forget":
            return (f"DELETE FROM shop.order_items WHERE order_id = {old}", f"DELETE FROM shop.orders {where}")
    weight = random.choice(("NULL", str(random.randint(0, 9000) / 1000)))
    order = (
        f"INSERT INTO shop.orders (id, month, customer, total, weight) VALUES ({number}, {_month(number)}, "
        f"{random.randint(1, _CUSTOMERS)}, {random.randint(1, 99_999) / 100}, {weight})"
    )
    items = (
        f"INSERT INTO shop.order_items (order_id, line, sku, qty, price) VALUES ({number}, {line}, "
        f"'p{random.randint(1, _PRODUCTS)}', {random.randint(1, 9)}, {random.randint(100, 9999) / 100})"
        for line in range(1, random.randint(2, 4))
    )
    return order, *items


def _stock(random: Random, number: int) -> Transaction:
    sku, customer = f"p{random.randint(1, _PRODUCTS)}", random.randint(1, _CUSTOMERS)
    person = f"WHERE id = {customer}"
    choices: tuple[Callable[[], Transaction], ...] = (
        lambda: (f"UPDATE shop.products SET stock = stock + {random.randint(1, 5)} WHERE sku = '{sku}'",),
        lambda: (f"UPDATE shop.products SET price = price * 1.1, weight = weight + 0.4 WHERE sku = '{sku}'",),
        lambda: (_product(random, _PRODUCTS + number), f"UPDATE shop.customers SET since = '2026-02-03' {person}"),
        lambda: (_customer(random, random.randint(1, 2 * _CUSTOMERS)),),
        lambda: (f"UPDATE shop.customers SET email = 'n{number}@example.org' {person}",),
        lambda: (f"UPDATE shop.customers SET {random.choice(('note', 'remark'))} = 'note {number}' {person}",),
        lambda: (f"UPDATE shop.customers SET tier = tier + 1, {random.choice(('vip', 'grade'))} = 1 {person}",),
        lambda: (f"UPDATE shop.products SET score = score * 2, photo = x'00ff{number % 256:02x}' WHERE sku = '{sku}'",),
        lambda: (f"UPDATE shop.products SET photo = x'00ff{number % 256:02x}' WHERE sku = '{sku}'",),
        lambda: (f"UPDATE shop.orders SET gift = 0, weight = {number} WHERE id < 5",),
        lambda: (f"DELETE FROM shop.customers WHERE id > {_CUSTOMERS} AND id < {_CUSTOMERS + customer // 4}",),
    )
    return random.choice(choices)()


def _bank(random: Random, number: int) -> Transaction:
    source, target = random.sample(range(1, ACCOUNTS + 1), 2)
    amount, took = f"{random.randint(1, 5000) / 100:.2f}", f"'{number % 24:02d}:00:0{random.randint(0, 9)}.5'"
    return (
        f"UPDATE bank.accounts SET balance = balance - {amount}, version = version + 1 WHERE id = {source}",
        f"UPDATE bank.accounts SET balance = balance + {amount}, version = version + 1 WHERE id = {target}",
        f"INSERT INTO bank.transfers (src, dst, amount, took) VALUES ({source}, {target}, {amount}, {took})",
    )


def _carts(random: Random, number: int) -> Transaction:
    table = f"shop.{random.choice(('carts', 'baskets'))}"
    key = random.randint(1, 60)
    choices = (
        (f"REPLACE INTO {table} (id, what, pieces) VALUES ({key}, 'thing {number}', {number})",),
        (f"REPLACE INTO {table} (id, what) VALUES ({key}, NULL), ({key + 1}, 'two'), ({key + 2}, 'three')",),
        (f"UPDATE {table} SET pieces = pieces + 1 WHERE id <= {key}",),
        (f"DELETE FROM {table} WHERE id = {key}", f"REPLACE INTO {table} (id, what) VALUES ({key + 60}, 'moved')"),
        (
            f"REPLACE INTO shop.orders_old (id, month, customer, total) VALUES ({9_000 + number}, 4, {key}, {key}.25)",
            f"UPDATE shop.orders SET customer = {key} WHERE id < {key} AND month = 4",
        ),
        (f"REPLACE INTO lab.trial (id, v) VALUES ({key}, {number})",),
    )
    return random.choice(choices)


_MAKERS: Final = {"orders": _orders, "stock": _stock, "bank": _bank, "carts": _carts}
STREAMS: Final = (
    Stream("orders", 0),
    Stream("stock", 1),
    Stream("bank-1", 2),
    Stream("bank-2", 0),
    Stream("carts", 1),
)


NODES: Final = ("n1", "n2", "n3")
_TAKES_AWAY: Final = frozenset(
    {"drop column", "drop table", "drop schema", "drop view", "alter table multi-schema change"}
)
"""DDLs that SQL shows before they are done; other DDLs show once their job is public."""
_TRIES: Final = 20
"""Attempts of a transaction after a write conflict or a schema change."""
_RETRY_S: Final = 0.01


class NotedTs(NamedTuple):
    """A timestamp during the workload; `kind` and `state` are those of the DDL that was running, if any."""

    ts: int
    what: str
    kind: str = ""
    state: str = ""


class DdlStep(NamedTuple):
    """A schema state of a job, and the nodes' versions when the first node had loaded it."""

    state: str
    versions: tuple[int, ...]


class DdlReport(NamedTuple):
    """A finished DDL; `commits` is the number of commits while it ran."""

    kind: str
    table: str
    query: str
    steps: tuple[DdlStep, ...]
    seconds: float
    commits: int


@dataclass(frozen=True, slots=True)
class WorkPace:
    """The amount and speed of work: transactions a stream, seconds in total, pause between two moves of DDLs."""

    transactions: int = 480
    seconds: float = 40.0
    move_s: float = 0.02

    @classmethod
    def lasting(cls, seconds: float) -> "WorkPace":
        """Return the pace of twelve transactions per second and stream."""
        return cls(round(12 * seconds), seconds)


class WatchedCluster(Cluster):
    """A cluster that reports its moves."""

    moved: Callable[[Move], None] | None = None

    def tick(self, choice: int | None = None) -> Move | None:
        """Return the next move, which is reported before it is made."""
        move = super().tick(choice)
        if move is not None and self.moved is not None:
            self.moved(move)
        return move


@dataclass(slots=True)
class _Watched:
    job: Job
    began_s: float
    commits: int
    steps: list[DdlStep] = field(default_factory=list)
    fresh: str = ""
    """The newest state, which no node has loaded yet."""


class _Watch:
    def __init__(
        self, cluster: WatchedCluster, commits: Callable[[], int], rate: WorkPace, stop: threading.Event
    ) -> None:
        self.cluster, self.commits, self.pace, self.stop = cluster, commits, rate, stop
        self.jobs: dict[int, _Watched] = {}
        self.reports: list[DdlReport] = []
        self.notes: list[NotedTs] = []
        self._ahead: list[tuple[int, int]] = []
        """Intervals of timestamps in which SQL may have shown changes of an unfinished job."""
        self._looked_ts = 0
        self._since_ts: int | None = None

    def moved(self, move: Move) -> None:
        """Record the outcome of a move, and let the workers run."""
        if move.kind == "job":
            with suppress(KeyLocked):
                self._stepped(move.job_id)
        elif move.kind == "reload":
            self._loaded()
        self._look()
        if self.jobs:
            self.stop.wait(self.pace.move_s)

    def _look(self) -> None:
        before_ts, self._looked_ts = self._looked_ts, self.cluster.storage.oracle.next()
        if not any(map(_is_ahead, self.jobs.values())):
            if self._since_ts is not None:
                self._ahead.append((self._since_ts, self._looked_ts))
            self._since_ts = None
        elif self._since_ts is None:
            self._since_ts = before_ts

    def is_settled_at(self, ts: int) -> bool:
        """Return whether SQL at `ts` shows exactly the finished DDLs."""
        begun = self._since_ts is not None and ts > self._since_ts
        return not begun and not any(since < ts <= until for since, until in self._ahead)

    def _stepped(self, job_id: int) -> None:
        entry = read_entry(self.cluster.storage.snapshot(), job_id)
        if entry is None:
            self._forget(job_id)
            return
        watched = self.jobs.setdefault(job_id, _Watched(entry.job, time.monotonic(), self.commits()))
        before, watched.job = watched.job, entry.job
        version = entry.job.last_schema_version
        if not watched.steps or (version and version != before.last_schema_version):
            watched.fresh = str(job_row(entry.job)[4])

    def _loaded(self) -> None:
        versions = tuple(node.version for node in self.cluster.nodes.values())
        for watched in self.jobs.values():
            if watched.fresh:
                watched.steps.append(DdlStep(watched.fresh, versions))
                kind, table = ddl_name(watched.job)
                self.note(f"{kind} {table}: {watched.fresh}", kind, watched.fresh)
                watched.fresh = ""

    def note(self, what: str, kind: str = "", state: str = "") -> NotedTs | None:
        """Take a timestamp; None while SQL shows an unfinished DDL."""
        if any(map(_is_ahead, self.jobs.values())):
            return None
        self.notes.append(NotedTs(self.cluster.storage.oracle.next(), what, kind, state))
        return self.notes[-1]

    def _forget(self, job_id: int) -> None:
        watched = self.jobs.pop(job_id, None)
        if watched is not None:
            kind, table = ddl_name(watched.job)
            seconds, commits = time.monotonic() - watched.began_s, self.commits() - watched.commits
            query = watched.job.query
            self.reports.append(DdlReport(kind, table, query, tuple(watched.steps), seconds, commits))


def _is_ahead(watched: _Watched) -> bool:
    _, _, _, kind, state, *_ = job_row(watched.job)
    return watched.job.state != JobState.DONE and (kind in _TAKES_AWAY or state == "public")


@dataclass(slots=True)
class _Worker:
    stream: Stream
    session: Session
    commits: int = 0
    statements: int = 0
    retries: int = 0
    refused: int = 0

    def work(self, todo: Iterator[Transaction], rate: WorkPace, stop: threading.Event) -> None:
        """Run all transactions at even intervals."""
        began_s = time.monotonic()
        for number, transaction in enumerate(todo, 1):
            self._run(transaction)
            if stop.wait(max(0.0, began_s + rate.seconds * number / rate.transactions - time.monotonic())):
                return

    def _run(self, transaction: Transaction) -> None:
        for _ in range(_TRIES):
            try:
                self.session.execute("BEGIN")
                for statement in transaction:
                    self.session.execute(statement)
                self.session.execute("COMMIT")
            except TidegateError as error:
                self.session.execute("ROLLBACK")
                if error.retry is Retry.NEVER:
                    break
                self.retries += 1
                time.sleep(_RETRY_S)
                continue
            self.commits += 1
            self.statements += len(transaction)
            return
        self.refused += 1


class DemoUpstream:
    """The upstream of a demo; its change log is written to `log`, its DDLs are those of `scripts`."""

    def __init__(self, seed: int, rate: WorkPace, log: Path, scripts: Scripts = DDLS) -> None:
        self.seed, self.pace, self._scripts = seed, rate, scripts
        self._stop = threading.Event()
        self.cluster = WatchedCluster(MemoryEngine(), nodes=NODES)
        self.ddls = DdlStates(self.cluster)
        self._watch = _Watch(self.cluster, lambda: self.commits, rate, self._stop)
        self.workers = [_Worker(stream, self.session(stream.node)) for stream in STREAMS]
        self.refused_ddls: list[str] = []
        self._log, self._logs = UpstreamLog(self.cluster, log, in_memory=True), False
        self._ports = Upstream(self.cluster)
        self._threads = ThreadPoolExecutor(len(STREAMS) + len(scripts), thread_name_prefix="demo-session")
        self._at_work: list[Future[None]] = []

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(self.cluster.nodes)

    @property
    def address(self) -> str:
        """The address for reading its rows over SQL, once it is started."""
        return f"mysql://root@{HOST}:{self._ports.ports[NODES[0]]}/?enable-tls=false"

    @property
    def reports(self) -> Sequence[DdlReport]:
        return self._watch.reports

    @property
    def notes(self) -> Sequence[NotedTs]:
        return self._watch.notes

    @property
    def commits(self) -> int:
        return sum(worker.commits for worker in self.workers)

    def session(self, node: int) -> Session:
        """Return a new session at a node, by its number from 0."""
        return Session(self.cluster.nodes[NODES[node]])

    def start(self) -> None:
        """Create the tables and their first rows, open the ports, and begin the change log after these rows."""
        self._ports.start()
        session = self.session(0)
        for statement in setup(self.seed):
            session.execute(statement)
        self._log.start(trimmed=True)
        self._logs = True
        self.cluster.moved = self._watch.moved

    def work(self) -> None:
        """Start all workers."""
        for worker in self.workers:
            todo = islice(transactions(self.seed, worker.stream), self.pace.transactions)
            self._at_work.append(self._threads.submit(worker.work, todo, self.pace, self._stop))
        for number, script in enumerate(self._scripts, 1):
            self._at_work.append(self._threads.submit(self._administer, self.session(number), script))

    def note(self, what: str) -> NotedTs | None:
        """Return the current timestamp; None while SQL shows an unfinished DDL."""
        with self.cluster.guard:
            return self._watch.note(what)

    def is_settled_at(self, ts: int) -> bool:
        """Return whether `ts` can be compared: SQL shows no unfinished DDL there."""
        with self.cluster.guard:
            return self._watch.is_settled_at(ts)

    def settled(self) -> bool:
        """Return whether all work is done. Raises the error of a worker."""
        for future in self._at_work:
            if future.done():
                future.result(0)
        return all(future.done() for future in self._at_work)

    def summary(self) -> str:
        """Return a one-line summary of the work."""
        retries, refused = (sum(getattr(worker, name) for worker in self.workers) for name in ("retries", "refused"))
        done = (
            f"{self.commits:,} transactions committed, {retries:,} retried, {refused:,} refused by the current schema"
        )
        lost = "".join(f"\n  refused: {ddl}" for ddl in self.refused_ddls)
        kinds = {report.kind for report in self.reports}
        return f"upstream: {done}; {len(self.reports)} DDLs of {len(kinds)} kinds{lost}"

    def end_log(self) -> None:
        """Write the last segment, which ends after the last commit; idempotent."""
        if self._logs:
            self._logs = False
            self._log.stop()

    def close(self) -> None:
        """Stop everything that still runs."""
        self._stop.set()
        wait_until(lambda: all(future.done() for future in self._at_work))
        self._threads.shutdown()
        self.end_log()
        self._ports.stop()

    def _administer(self, session: Session, script: tuple[str, ...]) -> None:
        began_s = time.monotonic()
        for number, statement in enumerate(script):
            if self._stop.wait(max(0.0, began_s + self.pace.seconds * (number + 0.5) / len(script) - time.monotonic())):
                return
            try:
                session.execute(statement)
            except SqlRefused as refused:
                self.refused_ddls.append(f"{statement}: {refused}")
