"""How old a row is when a reader first sees it: a real broker, a writer with a clock, a feed, and point queries.

    python benchmarks/freshness.py [--json] [--seconds 20] [--rate 2000] [--tables 10] [--protocol open|canal]

        writer ──► broker ──► tidegate run ──► changelog ──► live view    ──► point query      "live"
                                          └──► tables    ──► snapshot     ──► point query      "merged"

Three processes beside the broker: the writer commits `rate` rows a second (half INSERT, 40 % UPDATE, 10 % DELETE) with
commit_ts = the wall clock and resolves every partition once a second; the feed is the command line's; the reader asks
for one row by its key, again and again, a phase of `--seconds` for each way of asking:

    live       lake.live().table(name).filter(id = …).collect()     Spark
    lookup     lake.live().arrow(name, where={"id": …})              no Spark
    merged     a new snapshot's .table(name).filter(id = …).collect()

Every query must return its row with the value that was written.  A row's age is told by the first point query that
returned from a state which holds the row; rows are sampled at a fixed pace, so waiting for the next query counts.

    commit ──resolved──► frontier passes it ──landing──► in the changelog ──query──► the query has returned

`resolved` is the writer's own second and could only be shorter upstream.  Start-up (Spark, JVMs, the first landing) is
left out: a warm-up phase comes first.
"""

import argparse
import json
import multiprocessing
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import tidegate
from tidegate.changelog.changelog import changelog_uri, state_of
from tidegate.model.errors import ConfigError
from tidegate.model.tso import compose, physical_ms
from tidegate_upstream.broker import running_broker

TOPIC: Final = "fresh"
PARTITIONS: Final = 4
TICK_S: Final = 0.05
RESOLVED_S: Final = 1.0
EVENTS_A_MESSAGE: Final = 16
PROBES_A_TICK: Final = 1
START_S: Final = 120.0
WARM_UP_QUERIES: Final = 12
"""The first queries of a Spark take seconds each, most of all on Delta tables."""
PROTOCOLS: Final = {"open": "open-protocol", "canal": "canal-json&enable-tidb-extension=true"}
BARS: Final = {"live": (1.5, 3.0), "lookup": (1.5, 3.0), "merged": (None, 15.0)}
"""(p50, p95) in seconds."""


class Probe(NamedTuple):
    """A row that is never touched again."""

    commit_ts: int
    table: int
    id: int
    value: str


# The writer.


class Change(NamedTuple):
    """One row change of table number `table`; `row` and `old` are (id, k, v)."""

    commit_ts: int
    table: int
    kind: str
    row: tuple[int, int, str]
    old: tuple[int, int, str] | None = None


def ddl(protocol: str, table: int, commit_ts: int) -> tuple[bytes, bytes]:
    """The message of a CREATE TABLE."""
    query = f"CREATE TABLE `t{table}` (`id` BIGINT NOT NULL PRIMARY KEY, `k` INT NOT NULL, `v` VARCHAR(64) NOT NULL)"
    if protocol == "open":
        return _open([({"ts": commit_ts, "scm": TOPIC, "tbl": f"t{table}", "t": 2}, {"q": query, "t": 3})])
    body = {"id": 0, "database": TOPIC, "table": f"t{table}", "pkNames": None, "isDdl": True, "type": "CREATE"}
    return b"", _canal(body, commit_ts, sql=query)


def resolved(protocol: str, ts: int) -> tuple[bytes, bytes]:
    """The message of a resolved timestamp."""
    if protocol == "open":
        return _open([({"ts": ts, "t": 3}, None)])
    body = {"id": 0, "database": "", "table": "", "pkNames": None, "isDdl": False, "type": "TIDB_WATERMARK"}
    return b"", _canal(body, ts, tidb={"watermarkTs": ts})


def rows(protocol: str, changes: Sequence[Change]) -> Iterator[tuple[bytes, bytes]]:
    """The messages of some changes."""
    if protocol == "canal":
        for change in changes:
            body = {"id": 0, "database": TOPIC, "table": f"t{change.table}", "pkNames": ["id"], "isDdl": False}
            body |= {"type": change.kind, "sqlType": {"id": -5, "k": 4, "v": 12}}
            body |= {"mysqlType": {"id": "bigint", "k": "int", "v": "varchar"}}
            body |= {"data": [_texts(change.row)], "old": [_texts(change.old)] if change.old else None}
            yield b"", _canal(body, change.commit_ts)
        return
    for start in range(0, len(changes), EVENTS_A_MESSAGE):
        yield _open([_open_row(change) for change in changes[start : start + EVENTS_A_MESSAGE]])


def _open_row(change: Change) -> tuple[dict[str, object], dict[str, object]]:
    head: dict[str, object] = {"ts": change.commit_ts, "scm": TOPIC, "tbl": f"t{change.table}", "t": 1}
    body: dict[str, object] = {"d" if change.kind == "DELETE" else "u": _columns(change.row)}
    if change.old:
        body["p"] = _columns(change.old)
    return head, body


def _columns(row: tuple[int, int, str]) -> dict[str, object]:
    return {
        "id": {"t": 8, "h": True, "f": 11, "v": row[0]},
        "k": {"t": 3, "f": 1, "v": row[1]},
        "v": {"t": 15, "f": 1, "v": row[2]},
    }


def _texts(row: tuple[int, int, str]) -> dict[str, str]:
    return dict(zip(("id", "k", "v"), map(str, row), strict=True))


def _open(events: Sequence[tuple[object, object]]) -> tuple[bytes, bytes]:
    key, value = struct.pack(">Q", 1), b""
    for head, body in events:
        told = json.dumps(head, separators=(",", ":")).encode()
        text = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        key += struct.pack(">Q", len(told)) + told
        value += struct.pack(">Q", len(text)) + text
    return key, value


def _canal(body: Mapping[str, object], ts: int, *, sql: str = "", tidb: Mapping[str, int] | None = None) -> bytes:
    times = {"es": physical_ms(ts), "ts": time.time_ns() // 1_000_000, "sql": sql}
    message = {"sqlType": None, "mysqlType": None, "data": None, "old": None, **body, **times}
    return json.dumps({**message, "_tidb": tidb or {"commitTs": ts}}, separators=(",", ":")).encode()


class Upstream:
    """What the database holds, and how it changes."""

    def __init__(self, tables: int) -> None:
        self.random = random.Random(1)
        self.alive: list[list[tuple[int, int, str]]] = [[] for _ in range(tables)]
        self.next_id = 0

    def transaction(self, count: int, commit_ts: int, probes: list[Probe]) -> Iterator[Change]:
        """`count` changes of one commit; the first is a row that stays as it is."""
        for nth in range(count):
            self.next_id += 1
            table = self.next_id % len(self.alive)
            row = (self.next_id, self.random.randrange(1 << 30), f"value of {self.next_id} at {commit_ts}")
            alive = self.alive[table]
            chance = self.random.random()
            if nth < PROBES_A_TICK:
                probes.append(Probe(commit_ts, table, row[0], row[2]))
                yield Change(commit_ts, table, "INSERT", row)
            elif chance < 0.5 or not alive:
                alive.append(row)
                yield Change(commit_ts, table, "INSERT", row)
            else:
                index = self.random.randrange(len(alive))
                old = alive[index]
                if chance < 0.9:  # the newest image of a row is what an update and a delete carry as the old one
                    alive[index] = (old[0], row[1], row[2])
                    yield Change(commit_ts, table, "UPDATE", alive[index], old)
                else:
                    alive[index] = alive[-1]
                    alive.pop()
                    yield Change(commit_ts, table, "DELETE", old)


def write(bootstrap: str, protocol: str, tables: int, rate: int, told: "multiprocessing.Queue[list[Probe]]") -> None:
    """Commit rows by the wall clock, for ever; `told` hears of the rows that the reader may ask for."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True})
    upstream = Upstream(tables)

    def now_ts() -> int:
        return compose(time.time_ns() // 1_000_000)

    def send(message: tuple[bytes, bytes], partition: int) -> None:
        producer.produce(TOPIC, message[1], message[0] or None, partition)

    for table in range(tables):
        message = ddl(protocol, table, now_ts() + table)
        for partition in range(PARTITIONS):
            send(message, partition)
    begun_s = next_s = time.monotonic()
    written, resolved_s = 0, begun_s
    while True:
        next_s += TICK_S
        time.sleep(max(0.0, next_s - time.monotonic()))
        due = int((time.monotonic() - begun_s) * rate) - written
        ts, probes = now_ts() + tables, list[Probe]()
        by_partition: dict[int, list[Change]] = {}
        for change in upstream.transaction(due, ts, probes):
            by_partition.setdefault(change.table % PARTITIONS, []).append(change)
        for partition, changes in by_partition.items():
            for message in rows(protocol, changes):
                send(message, partition)
        written += due
        told.put(probes)
        if time.monotonic() - resolved_s >= RESOLVED_S:
            resolved_s += RESOLVED_S
            for partition in range(PARTITIONS):
                send(resolved(protocol, ts), partition)
        producer.poll(0)


# The reader.


@dataclass(slots=True)
class Seen:
    """What one way of asking saw: (ts of the state, when the query had returned), in order."""

    queries: int = 0
    states: list[tuple[int, float]] = field(default_factory=list)
    query_s: list[float] = field(default_factory=list)


class Reader:
    """Asks for rows by key."""

    def __init__(self, root: str, probes: "multiprocessing.Queue[list[Probe]]") -> None:
        self.root, self.told = root, probes
        self.probes: list[Probe] = []
        self.lake = tidegate.lake(root)

    def hear(self) -> None:
        """Take in what the writer told."""
        while True:
            try:
                self.probes += self.told.get_nowait()
            except Empty:
                return

    def newest(self, ts: int) -> Probe | None:
        """The newest row that can be asked for in a state of `ts`."""
        self.hear()
        return next((probe for probe in reversed(self.probes) if probe.commit_ts <= ts), None)

    def live(self, spark: Any) -> tuple[int, Probe | None, Any]:
        """A point query by Spark on the live view."""
        with self.lake.live() as view:
            probe = self.newest(view.ts)
            if probe is None:
                return view.ts, None, None
            frame = view.table(f"{TOPIC}.t{probe.table}", spark)
            return view.ts, probe, [row.v for row in frame.filter(frame.id == probe.id).collect()]

    def lookup(self, _: Any) -> tuple[int, Probe | None, Any]:
        """A point query without Spark on the live view."""
        with self.lake.live() as view:
            probe = self.newest(view.ts)
            if probe is None:
                return view.ts, None, None
            rows = view.arrow(f"{TOPIC}.t{probe.table}", ["v"], where={"id": probe.id})
            return view.ts, probe, rows.column("v").to_pylist()

    def merged(self, spark: Any) -> tuple[int, Probe | None, Any]:
        """A point query by Spark on the newest snapshot."""
        lake = tidegate.lake(self.root)
        probe = self.newest(lake.checkpoint_ts)
        if probe is None:
            return lake.checkpoint_ts, None, None
        frame = lake.table(f"{TOPIC}.t{probe.table}", spark)
        return lake.checkpoint_ts, probe, [row.v for row in frame.filter(frame.id == probe.id).collect()]

    def phase(self, way: str, spark: Any, seconds: float, *, at_least: int = 0) -> Seen:
        """Ask in one way for a time, and so often."""
        ask: Callable[[Any], tuple[int, Probe | None, Any]] = getattr(self, way)
        seen = Seen()
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s or seen.queries < at_least:
            begun_s = time.monotonic()
            ts, probe, values = ask(spark)
            seen.query_s.append(time.monotonic() - begun_s)
            if probe is None:
                continue
            if values != [probe.value]:
                raise SystemExit(f"{way}: table t{probe.table} id {probe.id} at {ts}: {values}, not {probe.value!r}")
            seen.queries += 1
            if not seen.states or ts > seen.states[-1][0]:
                seen.states.append((ts, time.time()))
        self.hear()
        return seen


# The reckoning.


def landed(root: str) -> list[tuple[int, float]]:
    """(frontier, when it was committed) of every commit of the changelog that moved it."""
    uri, commits = changelog_uri(root), list[tuple[int, float]]()
    for path in sorted(Path(uri, "_delta_log").glob("*.json")):
        info = json.loads(path.read_text().partition("\n")[0])["commitInfo"]
        frontier = state_of(uri, json.loads(info["userMetadata"])).frontier
        if frontier is not None and (not commits or frontier > commits[-1][0]):
            commits.append((frontier, info["timestamp"] / 1000))
    return commits


def ages(seen: Seen, probes: Sequence[Probe], commits: Sequence[tuple[int, float]]) -> dict[str, list[float]]:
    """The age of every sampled row at its first sight, whole and in parts."""
    ages_by_part: dict[str, list[float]] = {"whole": [], "resolved": [], "landing": [], "query": []}
    for (before, _), (ts, done_s) in zip(seen.states, seen.states[1:], strict=False):
        for probe in probes:
            if before < probe.commit_ts <= ts:
                commit_s = physical_ms(probe.commit_ts) / 1000
                frontier, landed_s = next(commit for commit in commits if commit[0] >= probe.commit_ts)
                resolved_s = physical_ms(frontier) / 1000
                ages_by_part["whole"].append(done_s - commit_s)
                ages_by_part["resolved"].append(resolved_s - commit_s)
                ages_by_part["landing"].append(landed_s - resolved_s)
                ages_by_part["query"].append(done_s - landed_s)
    return ages_by_part


def spread(values: Sequence[float]) -> dict[str, float]:
    """p50, p95 and max, in seconds."""
    ordered = sorted(values) or [float("nan")]
    quantiles = {"p50": 0.5, "p95": 0.95, "max": 1.0}
    return {
        name: round(ordered[min(int(part * len(ordered)), len(ordered) - 1)], 3) for name, part in quantiles.items()
    }


@contextmanager
def feeding(bootstrap: str, protocol: str, root: str, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`tidegate run` for the time of a block."""
    source = f"kafka://{bootstrap}/{TOPIC}?protocol={PROTOCOLS[protocol]}"
    tool = Path(sys.executable).with_name("tidegate")
    command = [str(tool), "run", "--source-uri", source, "--sink-uri", f"delta://{root}", "--json"]
    with (home / "feed.json").open("wb") as out, (home / "feed.err").open("wb") as err:
        feed = subprocess.Popen(command, stdout=out, stderr=err)
        try:
            yield feed
        finally:
            feed.terminate()
            try:
                feed.wait(60)
            except subprocess.TimeoutExpired:
                feed.kill()


def await_rows(root: str, feed: "subprocess.Popen[bytes]", home: Path) -> None:
    """Return when the first snapshot with tables is there."""
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s and feed.poll() is None:
        time.sleep(0.5)
        try:
            if tidegate.lake(root).tables():
                return
        except ConfigError:
            continue
    raise SystemExit(f"the feed brought nothing:\n{(home / 'feed.err').read_text()[-3000:]}")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run everything once."""
    root = str(home / "lake")
    spawned = multiprocessing.get_context("spawn")
    probes: multiprocessing.Queue[list[Probe]] = spawned.Queue()
    with running_broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
            future.result()
        arguments = (broker.bootstrap, options.protocol, options.tables, options.rate, probes)
        writer = spawned.Process(target=write, args=arguments, daemon=True)
        with feeding(broker.bootstrap, options.protocol, root, home) as feed:
            try:
                from tidegate.spark.session import session

                spark = session() if {"live", "merged"} & set(options.ways) else None
                writer.start()
                await_rows(root, feed, home)
                reader = Reader(root, probes)
                for way in options.ways:
                    reader.phase(way, spark, options.warm_up, at_least=WARM_UP_QUERIES)
                seen = {way: reader.phase(way, spark, options.seconds) for way in options.ways}
            finally:
                writer.kill()
            if spark is not None:
                spark.stop()
    commits = landed(root)
    return {way: told_of(way, seen_of, ages(seen_of, reader.probes, commits)) for way, seen_of in seen.items()}


def told_of(way: str, seen: Seen, parts_found: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """What is printed of one way of asking."""
    p50, p95 = BARS[way]
    parts = {name: spread(values) for name, values in parts_found.items()}
    total = parts.pop("whole")
    bars = {"p50": p50, "p95": p95}
    return {
        **total,
        "rows": len(parts_found["whole"]),
        "queries": seen.queries,
        "one_query": spread(seen.query_s),
        "bar": bars,
        **parts,
    }


def main() -> None:
    """Print the age of rows for each way of asking."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object, by way of asking")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each phase")
    parser.add_argument("--warm-up", type=float, default=8.0, help="length of each phase before it counts")
    parser.add_argument("--rate", type=int, default=2000, help="rows a second")
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--protocol", choices=sorted(PROTOCOLS), default="open")
    parser.add_argument("--ways", nargs="+", choices=sorted(BARS), default=list(BARS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidegate-freshness-") as home:
        results = measure(options, Path(home))
    if options.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{options.rate:,} rows/s, {options.tables} tables, {options.protocol}; seconds from commit_ts to sight")
    for way, result in results.items():
        parts = "  ".join(
            f"{name} {result[name]['p50']:.2f}/{result[name]['p95']:.2f}" for name in ("resolved", "landing", "query")
        )
        bar = " ".join(f"{name} <= {limit}" for name, limit in result["bar"].items() if limit is not None)
        print(
            f"{way:7} p50 {result['p50']:.2f}  p95 {result['p95']:.2f}  max {result['max']:.2f}  (bar: {bar})\n"
            f"        p50/p95 of {parts}; {result['queries']} queries of {result['one_query']['p50']:.3f}"
        )


if __name__ == "__main__":
    main()
