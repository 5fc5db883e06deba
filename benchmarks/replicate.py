"""Rows per second into a MariaDB with its default durability, beside writing them one by one and beside LOAD DATA.

    python benchmarks/replicate.py [--rows 100000] [--atomicity global none] [--loads inserts updates ..]

    inserts   a row a transaction      updates   of 10,000 rows      mixed   half inserts, a third updates, deletes
    wide      inserts of 32 columns    bank      two accounts and a row of another table a transaction

(a) has the same driver and one connection, a statement a row and a transaction for each of the upstream.  (b) has the
inserts in a file.  Both sides have the same server, made anew for each load; two processes write where `none` splits.

    python benchmarks/replicate.py --lag [--seconds 60]

Lag has an embedded TiDB that commits 1,000 rows a second, its change log, the engine, and a reader of the MariaDB: from
the answer to COMMIT until the rows are seen there.  Memory is the most that a process held that wrote a backlog, beside
one that wrote twice as much.
"""

import argparse
import io
import multiprocessing
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pymysql

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.mariadb import Server, running_server

from tidegate.codec.columnar.rows import Batch
from tidegate.config.changefeed import Changefeed
from tidegate.engine.change import Chunk, ChunkPart
from tidegate.engine.plan import Checkpoint, Segment
from tidegate.engine.ports import LocalTasks, SinkPosition
from tidegate.model.event import Ddl, Field
from tidegate.model.mysql import MysqlType
from tidegate.model.table import TableName
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.sink.sql.connection import SqlOptions
from tidegate.sink.sql.sink import SqlSink
from tidegate_upstream.background import UpstreamOptions, start_upstream, stop_upstream

CHUNK_ROWS = 16_384
BASE_TS = 1 << 40
KEYS = 10_000
PER_SECOND = 10
LAG_ROWS = 100
"""Transactions a second, and rows of each, where lag is measured."""
SINGLES = 5_000
"""Rows that are written one by one; more only take longer."""


class Load(NamedTuple):
    """What happens: tables by their definition, rows that are there before, and changes of `rows` rows."""

    tables: Sequence[str]
    before: int
    make: "Callable[[int, int], Chunk]"
    per_transaction: int = 1


def fields(columns: int) -> tuple[Field, ...]:
    """id, then counters and texts in turn."""
    more = [Field(f"c{number}", MysqlType.LONG if number % 2 else MysqlType.VARCHAR) for number in range(columns - 1)]
    return (Field("id", MysqlType.LONGLONG), *more)


def create(name: str, columns: int) -> str:
    """The table of such rows."""
    more = ", ".join(f"c{number} {'INT' if number % 2 else 'VARCHAR(64)'}" for number in range(columns - 1))
    return f"CREATE TABLE bench.{name} (id BIGINT PRIMARY KEY, {more})"


def image(ids: Any, columns: int, seed: int) -> Any:
    """Rows of these ids."""
    digits = pa.array(ids).cast(pa.string())
    text = pa.compute.binary_join_element_wise(f"text {seed} of a row, say ", digits, "")
    arrays = [
        pa.array(ids),
        *(pa.array(ids % 1000 + number + seed) if number % 2 else text for number in range(columns - 1)),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields(columns)])


def batch(name: str, ops: Any, images: tuple[Any, Any], ts: Any, columns: int) -> Batch:
    """Row changes of one table."""
    count = len(ops)
    zeros = pa.array(np.zeros(count, np.int32))
    op = pa.array(ops)
    return Batch("bench", name, fields(columns), ("id",), zeros, zeros, pa.array(ts), op, None, *images)


def one_table(ops: Any, ids: Any, start: int, columns: int) -> Chunk:
    """A chunk of one-row transactions on table t."""
    ts = BASE_TS + start + np.arange(len(ops))
    before, after = image(ids[ops != "I"], columns, 1), image(ids[ops != "D"], columns, 2)
    every = np.arange(len(ops))
    return Chunk((ChunkPart(batch("t", ops, (before, after), ts, columns), every),), every)


def inserts(start: int, count: int, columns: int = 5) -> Chunk:
    """New rows."""
    return one_table(np.full(count, "I"), KEYS + start + np.arange(count), start, columns)


def updates(start: int, count: int) -> Chunk:
    """Changes of rows that are there."""
    return one_table(np.full(count, "U"), (start + np.arange(count)) * 7919 % KEYS, start, 5)


def mixed(start: int, count: int) -> Chunk:
    """Six changes again and again: three inserts, two updates, a delete of an insert."""
    numbers = start + np.arange(count)
    kind = numbers % 6
    ops = np.where(kind < 3, "I", np.where(kind < 5, "U", "D"))
    ids = np.where(kind < 3, KEYS + numbers, np.where(kind < 5, numbers * 7919 % KEYS, KEYS + numbers - 5))
    return one_table(ops, ids, start, 5)


def bank(start: int, count: int) -> Chunk:
    """Two updates and an insert a transaction."""
    number = start // 3 + np.arange(count // 3)
    ts = BASE_TS + number * 3
    pair = np.stack([number * 2 % KEYS, (number * 2 + 1) % KEYS], 1).ravel()
    ops = np.full(len(pair), "U")
    accounts = batch("t", ops, (image(pair, 5, 1), image(pair, 5, 2)), np.repeat(ts, 2), 5)
    moves = batch("moves", np.full(len(ts), "I"), (image(ts[:0], 5, 1), image(number + KEYS, 5, 2)), ts, 5)
    firsts = np.arange(len(ts)) * 3
    places = np.stack([firsts, firsts + 1], 1).ravel()
    return Chunk((ChunkPart(accounts, places), ChunkPart(moves, firsts + 2)), np.repeat(np.arange(len(ts)), 3))


def wide(start: int, count: int) -> Chunk:
    """New rows of 32 columns."""
    return inserts(start, count, 32)


LOADS: Mapping[str, Load] = {
    "inserts": Load([create("t", 5)], 0, inserts),
    "updates": Load([create("t", 5)], KEYS, updates),
    "mixed": Load([create("t", 5)], KEYS, mixed),
    "wide": Load([create("t", 32)], 0, wide),
    "bank": Load([create("t", 5), create("moves", 5)], KEYS, bank, 3),
}


class Made(NamedTuple):
    """How many rows of a table there are at most."""

    rows: int
    min_ts: int
    max_ts: int


@dataclass(frozen=True)
class MadeChanges:
    """Changes that are made where they are read."""

    load: str
    rows: int
    after: int = BASE_TS - 1
    upto: int = BASE_TS + (1 << 32)

    def tables(self) -> dict[TableName, Made]:
        """The tables."""
        names = ["t", "moves"][: len(LOADS[self.load].tables)]
        return {TableName("bench", name): Made(self.rows, self.after + 1, self.upto) for name in names}

    def in_order(self, names: Collection[TableName], _after: int, _upto: int) -> Iterator[Chunk]:
        """All of those tables; of all, where none is named."""
        keys = {name.table for name in names} or {"t", "moves"}
        step = CHUNK_ROWS // 6 * 6
        for start in range(0, self.rows, step):
            chunk = LOADS[self.load].make(start, min(step, self.rows - start))
            yield replace(chunk, parts=tuple(part for part in chunk.parts if part.batch.table in keys))


class Processes:
    """Two processes that run jobs."""

    slots = 2

    def __init__(self) -> None:
        self.pool = ProcessPoolExecutor(2)
        list(self.pool.map(abs, range(8)))

    def run(self, work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        """The answers."""
        return list(self.pool.map(work, jobs))


def defined(load: Load) -> SchemaState:
    """The schema of a load."""
    state = SchemaState()
    for number, text in enumerate(["CREATE DATABASE bench", *load.tables]):
        name = "" if not number else ["t", "moves"][number - 1]
        state, _ = apply_ddl(state, Ddl(schema="bench", table=name, query=text, commit_ts=number + 1), 1)
    return state


def prepared(server: Server, load: Load) -> None:
    """The tables, with the rows that are there before."""
    server.run("DROP DATABASE IF EXISTS bench", "DROP DATABASE IF EXISTS tidegate", "CREATE DATABASE bench")
    server.run(*load.tables)
    if load.before:
        rows = image(np.arange(load.before), 5, 1).to_pylist()
        with server.connection.cursor() as cursor:
            cursor.executemany("INSERT INTO bench.t VALUES (%s, %s, %s, %s, %s)", [tuple(row.values()) for row in rows])


def run_tidegate(server: Server, name: str, rows: int, atomicity: str, tasks: Processes | LocalTasks) -> float:
    """Rows a second of the sink."""
    load = LOADS[name]
    prepared(server, load)
    state = defined(load)
    sink = SqlSink(SqlOptions("bench", "127.0.0.1", server.port, atomicity=atomicity))  # type: ignore[arg-type]
    sink.recover()
    sink.open(SinkPosition(Checkpoint(BASE_TS - 1), state))
    changes = MadeChanges(name, rows)
    segment = Segment(changes.after, changes.upto, tuple(state.tables.values()), rows)
    begun = time.perf_counter()
    sink.run(tasks, segment, changes)  # type: ignore[arg-type]
    took = time.perf_counter() - begun
    sink.close()
    return rows / took


def one_by_one(server: Server, name: str, rows: int) -> float:
    """Rows a second, a statement each, a COMMIT for each transaction of the upstream."""
    load = LOADS[name]
    prepared(server, load)
    changes = [change for chunk in MadeChanges(name, rows).in_order((), 0, 0) for change in singles(chunk)]
    connection = pymysql.connect(host="127.0.0.1", port=server.port, user="root", charset="utf8mb4")
    begun = time.perf_counter()
    with connection.cursor() as cursor:
        last = changes[0][0]
        for transaction, statement, values in changes:
            if transaction != last:
                connection.commit()
                last = transaction
            cursor.execute(statement, values)
    connection.commit()
    took = time.perf_counter() - begun
    connection.close()
    return rows / took


def singles(chunk: Chunk) -> list[tuple[int, str, tuple[Any, ...]]]:
    """(commit_ts, statement, values) of each change, in order."""
    changes = []
    for part, numbers in chunk.parts:
        after, before = iter(part.after.to_pylist()), iter(part.before.to_pylist())
        names = [field.name for field in part.fields]
        insert = f"INSERT INTO bench.{part.table} VALUES ({', '.join(['%s'] * len(names))})"
        update = f"UPDATE bench.{part.table} SET {', '.join(f'{name} = %s' for name in names[1:])} WHERE id = %s"
        for number, op, ts in zip(numbers.tolist(), part.op.to_pylist(), part.commit_ts.to_pylist(), strict=True):
            old = next(before) if op != "I" else {}
            new = next(after) if op != "D" else {}
            if op == "I":
                changes.append((number, ts, insert, tuple(new.values())))
            elif op == "U":
                changes.append((number, ts, update, (*list(new.values())[1:], old["id"])))
            else:
                changes.append((number, ts, f"DELETE FROM bench.{part.table} WHERE id = %s", (old["id"],)))
    return [change[1:] for change in sorted(changes, key=lambda change: change[0])]


def load_data(server: Server, name: str, rows: int) -> float:
    """Rows a second of LOAD DATA, for loads of inserts alone."""
    prepared(server, LOADS[name])
    server.run("SET GLOBAL local_infile = 1")
    with tempfile.NamedTemporaryFile("wb", suffix=".csv") as file:
        for chunk in MadeChanges(name, rows).in_order((), 0, 0):
            text = io.BytesIO()
            pa.csv.write_csv(chunk.parts[0].batch.after, text, pa.csv.WriteOptions(include_header=False))
            file.write(text.getvalue())
        file.flush()
        connection = pymysql.connect(host="127.0.0.1", port=server.port, user="root", local_infile=True)
        begun = time.perf_counter()
        with connection.cursor() as cursor:
            cursor.execute(
                f"LOAD DATA LOCAL INFILE '{file.name}' INTO TABLE bench.t FIELDS TERMINATED BY ',' ENCLOSED BY '\"'"
            )
        connection.commit()
        took = time.perf_counter() - begun
        connection.close()
    return rows / took


def lag(server: Server, home: Path, seconds: int) -> list[float]:
    """Seconds from the answer to each COMMIT until its rows are seen in the replica, in order of size."""
    server.run("DROP DATABASE IF EXISTS bench", "DROP DATABASE IF EXISTS tidegate")
    upstream = start_upstream(UpstreamOptions(log=str(home / "log")))
    stop, committed, seen = threading.Event(), dict[int, float](), dict[int, float]()
    feed = Changefeed(
        f"tidb://{home / 'log'}", f"mysql://root@127.0.0.1:{server.port}/", name="lag", state_dir=home / "state"
    )
    running = threading.Thread(target=feed.run, kwargs={"stop": stop, "tasks": LocalTasks()})
    looking = threading.Thread(target=look, args=(server.port, stop, seen))
    try:
        with connection_to(upstream.port_of(1)) as writer, writer.cursor() as cursor:
            cursor.execute("CREATE DATABASE bench")
            cursor.execute(create("t", 5))
            running.start()
            looking.start()
            begun = time.monotonic()
            for number in range(seconds * PER_SECOND):
                ids = range(number * LAG_ROWS, (number + 1) * LAG_ROWS)
                rows = ", ".join(f"({id_}, 'a text of row {id_}', {id_}, 'more', 1)" for id_ in ids)
                cursor.execute(f"INSERT INTO bench.t VALUES {rows}")
                committed[ids[-1]] = time.monotonic()
                time.sleep(max(0.0, begun + (number + 1) / PER_SECOND - time.monotonic()))
        until = time.monotonic() + 60
        while max(committed) not in seen and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        stop.set()
        running.join()
        looking.join()
        stop_upstream(upstream)
    times = sorted(seen.items())
    return sorted(next(seen_s for id_, seen_s in times if id_ >= last) - when for last, when in committed.items())


def look(port: int, stop: threading.Event, seen: dict[int, float]) -> None:
    """Note when each newest row is seen first."""
    with connection_to(port) as reader, reader.cursor() as cursor:
        while not stop.wait(0.01):
            try:
                cursor.execute("SELECT MAX(id) FROM bench.t")
            except pymysql.MySQLError:
                continue  # the table is not there yet
            ((newest,),) = cursor.fetchall()
            if newest is not None:
                seen.setdefault(int(newest), time.monotonic())


def connection_to(port: int) -> Any:
    """A session that commits each statement."""
    return pymysql.connect(host="127.0.0.1", port=port, user="root", charset="utf8mb4", autocommit=True)


def peak_bytes(port: int, rows: int) -> int:
    """The most memory of this process, which writes a backlog of inserts by itself."""
    with connection_to(port) as connection:
        run_tidegate(Server(port, connection), "inserts", rows, "global", LocalTasks())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def tell_lag(server: Server, home: Path, rows: int, seconds: int) -> None:
    """Print lag and memory."""
    lags = lag(server, home, seconds)
    p50, p95 = (lags[int(len(lags) * part)] for part in (0.5, 0.95))
    print(
        f"lag at {PER_SECOND * LAG_ROWS:,} rows/s for {seconds} s: p50 {p50:.2f} s, p95 {p95:.2f} s, most "
        f"{lags[-1]:.2f} s; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    peaks = []
    for count in (rows, 2 * rows):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            peaks.append(pool.submit(peak_bytes, server.port, count).result())
    peaks_text = ", ".join(
        f"{count:,} rows {peak >> 20} MiB" for count, peak in zip((rows, 2 * rows), peaks, strict=True)
    )
    print(f"most memory of a writer: {peaks_text}: {peaks[1] / peaks[0]:.2f} x")


def main() -> None:
    """Run the loads and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=120_000)
    parser.add_argument("--loads", nargs="*", default=list(LOADS), choices=list(LOADS))
    parser.add_argument("--lag", action="store_true", help="measure lag and memory instead")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--atomicity", nargs="*", default=["none", "table", "global"])
    options = parser.parse_args()
    if options.lag:
        with tempfile.TemporaryDirectory() as home, running_server(Path(home)) as server:
            tell_lag(server, Path(home) / "lag", options.rows // 6 * 6, options.seconds)
        return
    print(f"{'load':10}{'(a) one by one':>16}" + "".join(f"{name:>18}" for name in options.atomicity) + f"{'(b)':>10}")
    with tempfile.TemporaryDirectory() as home, running_server(Path(home), "--innodb-buffer-pool-size=256M") as server:
        tasks = Processes()
        for name in options.loads:
            rows = options.rows // 6 * 6
            alone = one_by_one(server, name, min(rows, SINGLES))
            rates = [run_tidegate(server, name, rows, atomicity, tasks) for atomicity in options.atomicity]
            cells = "".join(f"{each:>10,.0f} {each / alone:>5.1f} x" for each in rates)
            limit = f"{load_data(server, name, rows):>10,.0f}" if name in {"inserts", "wide"} else ""
            print(f"{name:10}{alone:>16,.0f}{cells}{limit}", flush=True)
        tasks.pool.shutdown()


if __name__ == "__main__":
    main()
