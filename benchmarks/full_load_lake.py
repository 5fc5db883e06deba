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
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

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

Measure: TypeAlias = "Callable[[SparkSession, str, int], dict[str, Any]]"
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


def compared(ours: Callable[[Path], None], peer: Callable[[Path], None], rows: int) -> dict[str, Any]:
    """Rates of ours and of a peer, in rows a second, and their ratios: in turns, warm, the best of three."""
    _, *turns = [[seconds(work, rows) for work in (ours, peer)] for _ in range(TIMES + 1)]
    (ours_s, ours_cpu_s), (peer_s, peer_cpu_s) = (
        map(min, zip(*work, strict=True)) for work in zip(*turns, strict=True)
    )
    return {
        "ours": round(rows / ours_s),
        "peer": round(rows / peer_s),
        "ratio": round(peer_s / ours_s, 2),
        "by_cpu": round(peer_cpu_s / ours_cpu_s, 2),
        "cpu_us": [round(1e6 * cpu / rows, 3) for cpu in (ours_cpu_s, peer_cpu_s)],
    }


def run(parser: ArgumentParser, measure: Measure, peer: str, conf: Mapping[str, str] | None = None) -> None:
    """Measure the cases that are asked for, and print what is measured."""
    parser.add_argument("--only", choices=CASES, help="one case")
    options = parser.parse_args()
    spark = session(cores=CORES, conf=conf)
    chosen = {case: times for case, times in CASES.items() if options.only in {None, case}}
    results = {case: measure(spark, case, options.rows // times) for case, times in chosen.items()}
    spark.stop()
    if options.json:
        print(json.dumps(results))
        return
    for case, rates in results.items():
        told = ", ".join(f"{name} {value}" for name, value in [*rates.items()][4:])
        print(
            f"{case:8} {rates['ours']:>10,} rows/s  {rates['peer']:>10,} {peer}   ratio {rates['ratio']:.2f}, "
            f"by CPU {rates['by_cpu']:.2f}   {told}"
        )


def measured(spark: "SparkSession", case: str, rows: int) -> dict[str, Any]:
    """Rates of one case, in rows a second, and their ratios."""
    with table(case, rows) as port:
        begun = time.perf_counter()
        plan = SqlReader(options_of(port)).plan(lambda name: name.schema == "load")
        plan_s = time.perf_counter() - begun
        rates = compared(partial(run_tidegate, spark, port, plan), partial(peer, spark, port, rows), rows)
    whole = rows / rates["peer"] / (rows / rates["ours"] + plan_s)
    return {**rates, "plan_s": round(plan_s, 2), "whole": round(whole, 2)}


def main() -> None:
    """Measure the cases."""
    driver = jar("jdbc")
    assert isinstance(driver, Path), driver
    run(arguments(__doc__, 4_000_000), measured, "Spark's JDBC", {"spark.driver.extraClassPath": str(driver)})


if __name__ == "__main__":
    main()
