"""A full load's reader beside the server's own client: rows a second to nowhere.

    python benchmarks/full_load.py [--rows 4000000] [--processes 2] [--json]

    MariaDB, one table ──  SqlReader.plan, then all chunks by some processes  ──►  Arrow columns, dropped     ours
                       ──  mariadb --quick, one connection                    ──►  /dev/null                  peer

    narrow    4 columns: BIGINT key, VARCHAR, DECIMAL, DATETIME
    wide      16 columns: four of each; a quarter of the rows

Both read the same table in one run, warm, the best of three.  MariaDB has no tidb_snapshot: the reader reads rows of
now, by a switch that is there for benchmarks alone.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import pymysql
from rig import arguments

sys.path.insert(0, str(Path(__file__).parents[1]))

from tidegate.engine.load import LoadingSource, NoStream
from tidegate.engine.load_plan import KeptPlan, LoadChunk, LoadPlan
from tidegate.source.load_sql import SqlReader
from tidegate.source.upstream_address import Address, SqlLoadOptions
from tidegate_upstream.demo.replica import running_mariadb

TIMES: Final = 3
_OF_TYPE: Final = (
    ("BIGINT", "seq * 7919"),
    ("VARCHAR(60)", "CONCAT('customer number ', seq % 100000)"),
    ("DECIMAL(12, 2)", "seq / 100"),
    ("DATETIME", "'2024-01-01' + INTERVAL seq SECOND"),
)
CASES: Final = {"narrow": 1, "wide": 4}
"""How many columns of each type."""


@contextmanager
def table(case: str, rows: int) -> Iterator[int]:
    """The port of a server with the table of a case, `load`.`t`, whose rows lie in memory."""
    columns = [(f"c{number}", *_OF_TYPE[number % len(_OF_TYPE)]) for number in range(len(_OF_TYPE) * CASES[case])]
    columns[0] = ("id", "BIGINT NOT NULL PRIMARY KEY", "seq")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as home:
        options = ("--innodb-buffer-pool-size=3G", "--innodb-flush-log-at-trx-commit=0")
        with running_mariadb(Path(home), options) as port:
            connection = pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)
            with connection.cursor() as cursor:
                cursor.execute("CREATE DATABASE `load`")
                cursor.execute("USE `load`")
                cursor.execute(f"CREATE TABLE `load`.t ({', '.join(f'{name} {kind}' for name, kind, _ in columns)})")
                values = ", ".join(value for *_, value in columns)
                cursor.execute(f"INSERT INTO `load`.t SELECT {values} FROM seq_1_to_{rows} seq")
                cursor.execute("ANALYZE TABLE `load`.t")
                cursor.fetchall()
            connection.close()
            yield port


def options_of(port: int) -> SqlLoadOptions:
    """The reader's options for a server that is no TiDB."""
    address = Address("127.0.0.1", port, user="root", enable_tls=False)
    return SqlLoadOptions(address, snapshot=False)


def loading(port: int, kept: KeptPlan) -> LoadingSource:
    """A load alone of the tables of `load`."""
    return LoadingSource(
        SqlReader(options_of(port)),
        kept,
        lambda schema, _: schema == "load",
        NoStream(),
        ordered=True,
        keyless=True,
    )


def read(work: tuple[SqlReader, LoadPlan, tuple[LoadChunk, ...]]) -> tuple[int, float, int]:
    """The rows of some chunks in a process of its own, the seconds of CPU that they take, and its MiB at most."""
    reader, plan, chunks = work
    begun = time.process_time()
    count = sum(batch.rows for chunk in chunks for batch in reader.batches(plan.table_of(chunk), chunk, plan.ts))
    spent_s = time.process_time() - begun
    reader.close()
    return count, spent_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def quick(port: int) -> None:
    """The server's own client, unbuffered, to nowhere."""
    command = ["mariadb", "--quick", "-h127.0.0.1", f"-P{port}", "-uroot", "-e", "SELECT * FROM `load`.t"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def best(work: Callable[[], Any]) -> float:
    """The shortest of some times."""
    figures = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        work()
        figures.append(time.perf_counter() - begun)
    return min(figures)


def measured(case: str, rows: int, processes: int) -> dict[str, float]:
    """Rates of one case, in rows a second, and the ratio."""
    with table(case, rows) as port, ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        reader = SqlReader(options_of(port))
        begun = time.perf_counter()
        plan = reader.plan(lambda name: name.schema == "load")
        planned_s = time.perf_counter() - begun

        def parts(count: int) -> list[tuple[SqlReader, LoadPlan, tuple[LoadChunk, ...]]]:
            return [(reader, plan, plan.chunks[part::count]) for part in range(count)]

        assert sum(count for count, *_ in pool.map(read, parts(processes))) == rows
        alone_s = best(lambda: list(pool.map(read, parts(1))))
        ours_s = best(lambda: list(pool.map(read, parts(processes))))
        peer_s = best(lambda: quick(port))
        spent = list(pool.map(read, parts(processes)))
    return {
        "cpu_us": round(1e6 * sum(cpu_s for _, cpu_s, _ in spent) / rows, 3),
        "mib": max(mib for *_, mib in spent),
        "plan_s": round(planned_s, 2),
        "one_process": round(rows / alone_s),
        "ours": round(rows / ours_s),
        "peer": round(rows / peer_s),
        "ratio": round(peer_s / ours_s, 2),
    }


def main() -> None:
    """Measure all cases."""
    parser = arguments(__doc__, 4_000_000)
    parser.add_argument("--processes", type=int, default=2, help="processes that read (default 2)")
    options = parser.parse_args()
    results = {case: measured(case, options.rows // times, options.processes) for case, times in CASES.items()}
    if options.json:
        print(json.dumps(results))
        return
    for case, rates in results.items():
        print(
            f"{case:8} {rates['ours']:>10,} rows/s by {options.processes} processes  {rates['one_process']:>10,} by "
            f"one  "
            f"{rates['peer']:>10,} mariadb --quick   ratio {rates['ratio']:.2f}   plan {rates['plan_s']:.2f} s   "
            f"{rates['cpu_us']:.3f} µs of CPU a row, {rates['mib']:,} MiB a process"
        )


if __name__ == "__main__":
    main()
