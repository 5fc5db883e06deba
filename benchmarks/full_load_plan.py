"""The plan of a full load of many small tables: seconds, statements, memory, beside the round trips that it needs.

    python benchmarks/full_load_plan.py [--rows 2000] [--json]          `--rows` is the number of tables

    MariaDB, N tables ──  SqlReader.plan: lists, definitions, borders; written down and read back     ours
                      ──  SHOW CREATE TABLE of each, by the driver and one connection                 limit

`begin` is the time from the plan to the first row: the source makes the definitions, and hands out one after the other.
The memory is that of a process of its own.  MariaDB has no tidb_snapshot and no TABLESAMPLE: the reader reads rows of
now, by a switch that is there for benchmarks alone, and looks each border up.
"""

import json
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import pymysql
from rig import arguments

sys.path.insert(0, str(Path(__file__).parents[1]))

from tidegate.engine.load import LoadingSource, NoStream
from tidegate.engine.load_plan import KeptPlan
from tidegate.engine.ports import LocalTasks
from tidegate.source.load_sql import SqlReader
from tidegate.source.upstream_address import Address, SqlLoadOptions
from tidegate_upstream.demo.replica import running_mariadb

COLUMNS: Final = "id BIGINT PRIMARY KEY, name VARCHAR(60), price DECIMAL(12, 2), at DATETIME, state ENUM('a', 'b')"
GOAL_S, GOAL_MIB = 60, 1536


def made(port: int, tables: int) -> None:
    """A database of tables of ten rows."""
    with pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE DATABASE many")
        for number in range(tables):
            cursor.execute(f"CREATE TABLE many.t{number:05} ({COLUMNS})")
            cursor.execute(f"INSERT INTO many.t{number:05} (id) SELECT seq FROM `many`.`seq_1_to_10`")


def questions(port: int) -> int:
    """Statements that the server has had."""
    with pymysql.connect(host="127.0.0.1", port=port, user="root") as connection, connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
        return int(cursor.fetchall()[0][1])


def trips(port: int, tables: int) -> float:
    """The seconds of the limit."""
    with pymysql.connect(host="127.0.0.1", port=port, user="root") as connection, connection.cursor() as cursor:
        begun = time.perf_counter()
        for number in range(tables):
            cursor.execute(f"SHOW CREATE TABLE many.t{number:05}")
            cursor.fetchall()
        return time.perf_counter() - begun


def planned(port: int) -> dict[str, Any]:
    """A plan that is made, kept and begun in this process, and what that takes."""
    options = SqlLoadOptions(Address("127.0.0.1", port, user="root", enable_tls=False), snapshot=False)
    with tempfile.TemporaryDirectory() as home:
        kept, begun = KeptPlan(home), time.perf_counter()
        plan = SqlReader(options).plan(lambda name: name.schema == "many")
        seconds = time.perf_counter() - begun
        kept.write(plan)
        source = LoadingSource(SqlReader(options), kept, lambda *_: True, NoStream(), ordered=True, keyless=True)
        begun = time.perf_counter()
        at = source.start(LocalTasks(), None)
        while ddls := source.ddls(at + 1, plan.ts):
            at = ddls[0].ddl.commit_ts or 0
        begin_s = time.perf_counter() - begun
        size = (Path(home) / "_tidegate/load.json").stat().st_size
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return {"plan_s": seconds, "begin_s": begin_s, "chunks": len(plan.chunks), "plan_kib": size >> 10, "mib": mib}


def main() -> None:
    """Measure."""
    given = arguments(__doc__, 2000).parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as home:
        options = ("--innodb-flush-log-at-trx-commit=0", "--table-open-cache=4000", "--table-definition-cache=4000")
        with running_mariadb(Path(home), options) as port:
            made(port, given.rows)
            trips(port, given.rows)
            before = questions(port)
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                found = pool.submit(planned, port).result()
            found["statements"] = questions(port) - before
            found["limit_s"] = trips(port, given.rows)
    found["ratio"] = round(found["plan_s"] / found["limit_s"], 2)
    if given.json:
        print(json.dumps(found))
        return
    print(
        f"{given.rows:,} tables  plan {found['plan_s']:.2f} s (goal {GOAL_S})  begin {found['begin_s']:.2f} s  "
        f"{found['statements']:,} statements  {found['mib']} MiB (goal {GOAL_MIB})  file {found['plan_kib']} KiB   "
        f"round trips {found['limit_s']:.2f} s   ratio {found['ratio']:.2f}"
    )


if __name__ == "__main__":
    main()
