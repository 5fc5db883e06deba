"""A full load into a lake beside Spark's own JDBC reader that writes a Delta table: rows a second.

    python benchmarks/full_load_lake.py [--rows 4000000] [--only narrow] [--json]

    MariaDB, one table ──  a feed of a load alone: plan, chunks, files, commits, snapshot     ──►  lake     ours
                       ──  spark.read.jdbc, a partition of the key a core, streaming fetch    ──►  Delta    peer

Tables are those of full_load.py.  Both read the same one in one run with one Spark, in turns, warm, the best of three,
and write the same types: BIGINT, text, DECIMAL, TIMESTAMP without a zone.  The peer is told the bounds of the key; ours
finds borders in the table, which is timed apart: `whole` is the ratio with it.  `by CPU` is the ratio of the seconds of
CPU of all processes, the server among them: it holds on a machine that is busy with other things too.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from full_load import CASES, TIMES, loading, options_of, table
from peers.flink import jar
from rig import arguments, cpu_s

from tidegate.engine.load_plan import KeptPlan, LoadPlan
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.source.load_sql import SqlReader
from tidegate.spark.session import session
from tidegate.spark.tasks import SparkTasks
from tidegate.testing.script import run_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
FETCH = 10_000
DRIVER = "org.mariadb.jdbc.Driver"


def run_tidegate(spark: "SparkSession", port: int, plan: LoadPlan, home: Path) -> None:
    """A feed that ends with the load."""
    plan_store = KeptPlan(str(home))
    plan_store.write(plan)
    source = loading(port, plan_store)
    run_here(source, DeltaSink(DeltaOptions(root=str(home), feed="load")), tasks=SparkTasks(spark))


def peer(spark: "SparkSession", port: int, rows: int, home: Path) -> None:
    """Spark's reader, a partition of the key a core."""
    url = f"jdbc:mysql://127.0.0.1:{port}/load?permitMysqlScheme&useMysqlMetadata=true"
    options = {"url": url, "dbtable": "t", "user": "root", "driver": DRIVER, "fetchsize": FETCH}
    bounds = {"partitionColumn": "id", "lowerBound": 1, "upperBound": rows, "numPartitions": CORES}
    read = spark.read.format("jdbc").options(**options, **bounds, preferTimestampNTZ=True)
    read.load().write.format("delta").save(str(home / "t"))


def seconds(work: Callable[[Path], None], rows: int) -> tuple[float, float]:
    """How long it takes to write all rows once, and its CPU."""
    with TemporaryDirectory(dir="/dev/shm") as home:
        begun, begun_cpu = time.perf_counter(), cpu_s()
        work(Path(home))
        took_s, spent_s = time.perf_counter() - begun, cpu_s() - begun_cpu
        files = [path for path in Path(home).rglob("*.parquet") if "_delta_log" not in path.parts]
        assert sum(pq.read_metadata(path).num_rows for path in files) == rows
        return took_s, spent_s


def measured(spark: "SparkSession", case: str, rows: int) -> dict[str, Any]:
    """Rates of one case, in rows a second, and their ratio."""
    with table(case, rows) as port:
        begun = time.perf_counter()
        plan = SqlReader(options_of(port)).plan(lambda name: name.schema == "load")
        plan_s = time.perf_counter() - begun
        both: list[Callable[[Path], None]] = [
            partial(run_tidegate, spark, port, plan),
            lambda home: peer(spark, port, rows, home),
        ]
        _, *turns = [[seconds(work, rows) for work in both] for _ in range(TIMES + 1)]
        (ours_s, ours_cpu_s), (peer_s, peer_cpu_s) = (
            map(min, zip(*work, strict=True)) for work in zip(*turns, strict=True)
        )
    return {
        "plan_s": round(plan_s, 2),
        "ours": round(rows / ours_s),
        "peer": round(rows / peer_s),
        "ratio": round(peer_s / ours_s, 2),
        "by_cpu": round(peer_cpu_s / ours_cpu_s, 2),
        "cpu_us": [round(1e6 * cpu / rows, 3) for cpu in (ours_cpu_s, peer_cpu_s)],
        "whole": round(peer_s / (ours_s + plan_s), 2),
    }


def main() -> None:
    """Measure the cases."""
    parser = arguments(__doc__, 4_000_000)
    parser.add_argument("--only", choices=CASES, help="one case")
    options = parser.parse_args()
    driver = jar("jdbc")
    assert isinstance(driver, Path), driver
    spark = session(cores=CORES, conf={"spark.driver.extraClassPath": str(driver)})
    chosen = {case: times for case, times in CASES.items() if options.only in {None, case}}
    results = {case: measured(spark, case, options.rows // times) for case, times in chosen.items()}
    spark.stop()
    if options.json:
        print(json.dumps(results))
        return
    for case, rates in results.items():
        print(
            f"{case:8} {rates['ours']:>10,} rows/s  {rates['peer']:>10,} Spark's JDBC   ratio {rates['ratio']:.2f}, "
            f"by CPU {rates['by_cpu']:.2f}   plan {rates['plan_s']:.2f} s, with it {rates['whole']:.2f}"
        )


if __name__ == "__main__":
    main()
