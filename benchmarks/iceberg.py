"""What Iceberg metadata costs a lake, and its peers on the same changes.

    python benchmarks/iceberg.py [--rows 600000] [--case commit|names|feed|merge] [--json]

    commit    one file of a table is replaced: our projection of that version, with 10, 1,000 and 10,000 files;
              PyIceberg's own `overwrite` of the same files beside it          last ÷ first of ours, goal at most 3
    names     a snapshot of 200 tables is published, all of them moved         milliseconds more with metadata's names
    feed      `mixed` of traffic.py from a topic into a lake, with `iceberg=on` and `off` in turns    goal 0.9
    merge     changes all over a table: ours with its projection, Spark's MERGE of an Iceberg table, and on a smaller
              one PyIceberg's `upsert`, each from one file of changes, the rows equal at the end

PyIceberg runs in build/readers (`make build/readers/.ready`), each peer after a run of its own on little.
"""

import json
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.parquet as pq
from bigtable import OPTIONS, SCHEMA, TABLE, columns, make, rows_of
from peer import merge_statement
from rig import Rig, Topic, arguments, rig, seconds
from traffic import many_tables

from tidegate import Changefeed
from tidegate.engine.plan import Checkpoint, Round
from tidegate.model.table import TableInfo, TableName
from tidegate.objectstore import deltalog
from tidegate.schema.state import SchemaState
from tidegate.sink.delta.columns import first_schema
from tidegate.sink.delta.iceberg_catalogs import EmbeddedCatalog
from tidegate.sink.delta.iceberg_projection import metadata_uri, project
from tidegate.sink.delta.merge import merge
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.rows import NetChanges
from tidegate.sink.delta.sink import DeltaSink
from tidegate.sink.delta.snapshots import PublishedTable, Snapshot
from tidegate.spark.java import ensure_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Figures = dict[str, float]
READERS: Final = Path(__file__).parents[1] / "build" / "readers" / "bin" / "python"
FILES: Final = (10, 1_000, 10_000)
COMMITS: Final = 20
TABLES: Final = 200
TURNS: Final = 3


def commit(_: Rig | None, __: int) -> Figures:
    """Median milliseconds of a commit by the number of files."""
    figures: Figures = {}
    for files in FILES:
        with tempfile.TemporaryDirectory() as home:
            figures[f"ours_{files}_ms"] = _replaced(home, files) * 1000
            figures[f"pyiceberg_{files}_ms"] = _peer("overwrite", home, files) * 1000
    figures["last_over_first"] = figures[f"ours_{FILES[-1]}_ms"] / figures[f"ours_{FILES[0]}_ms"]
    figures["pyiceberg_over_ours"] = figures[f"pyiceberg_{FILES[-1]}_ms"] / figures[f"ours_{FILES[-1]}_ms"]
    return figures


def _replaced(home: str, files: int) -> float:
    uri, schema = f"{home}/big", first_schema(TABLE, OPTIONS)
    paths = [f"part-{number}.parquet" for number in range(files)]
    deltalog.create(uri, schema.fields(), metadata={}, configuration=schema.configuration(OPTIONS))
    deltalog.commit(uri, 1, [_added(path, at) for at, path in enumerate(paths)], operation="WRITE", metadata={})
    project(uri, 1, TABLE)
    chance, took_s = random.Random(1), []
    for version in range(2, 2 + COMMITS):
        old = paths.pop(chance.randrange(len(paths)))
        paths.append(f"new-{version}.parquet")
        actions = [{"remove": {"path": old, "dataChange": True}}, _added(paths[-1], version)]
        deltalog.commit(uri, version, actions, operation="MERGE", metadata={})
        took_s.append(seconds(lambda at=version: project(uri, at, TABLE, at - 1)))  # type: ignore[misc]
    return statistics.median(took_s)


def _added(path: str, low: int) -> dict[str, Any]:
    bounds = {"minValues": {"id": low * 1000}, "maxValues": {"id": low * 1000 + 999}, "nullCount": {"id": 0}}
    return deltalog.add(path, 100_000, {"numRecords": 1000, **bounds})


def _peer(verb: str, *arguments: object) -> float:
    """Seconds that PyIceberg takes: iceberg_peer.py."""
    command = [str(READERS), str(Path(__file__).with_name("iceberg_peer.py")), verb, *map(str, arguments)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, timeout=1800).stdout.split()[-1])


def names(_: Rig | None, __: int) -> Figures:
    """Median milliseconds that 200 moved tables are published in, without and with their names."""
    with tempfile.TemporaryDirectory() as home:
        without_ms, with_ms = (_published_ms(f"{home}/{named}", named=named) for named in (False, True))
    return {"without_ms": without_ms, "with_ms": with_ms, "more_ms": with_ms - without_ms}


def _published_ms(root: str, *, named: bool) -> float:
    options = DeltaOptions(root=root, feed="bench", iceberg=True)
    sink = DeltaSink(options, catalogs=[EmbeddedCatalog(options)] if named else [])
    sink._begun = True  # noqa: SLF001  nothing is published yet that lacks metadata
    state, took_s = SchemaState(), []
    for number in range(TABLES):
        name = TableName("bench", f"t{number}")
        state = state.with_table(TableInfo(name, f"{number}-1", 1, TABLE.columns, TABLE.indexes))
    for ts in range(1, COMMITS + 2):
        tables = {f"{number}-1": PublishedTable("bench", f"t{number}", ts) for number in range(TABLES)}
        sink.snapshot = Snapshot(ts - 2, tables=tables)
        planned = Round((), state, Checkpoint(ts), (), ())
        took_s.append(seconds(lambda planned=planned: sink.advance(planned, ())))  # type: ignore[misc]
    return statistics.median(took_s[1:]) * 1000


def feed(bench: Rig | None, rows: int) -> Figures:
    """Rates of the same feed with and without metadata, in turns."""
    assert bench is not None
    topic = bench.topic("mixed", many_tables(rows), "canal-json")
    rates: dict[str, list[float]] = {"on": [], "off": []}
    _fed(bench, bench.topic("warm", many_tables(20_000), "canal-json"), "on")
    for turn in range(2 * TURNS):
        iceberg = ("on", "off")[turn % 2]
        rates[iceberg].append(rows / _fed(bench, topic, iceberg))
    on, off = (statistics.median(rates[iceberg]) for iceberg in ("on", "off"))
    return {"on_over_off": on / off, "on_rows_per_s": on, "off_rows_per_s": off}


def _fed(bench: Rig, topic: Topic, iceberg: str) -> float:
    home = bench.directory("lake")
    begun_s = time.perf_counter()
    Changefeed(topic.uri(), f"delta://{home}?iceberg={iceberg}").run(bench.spark, idle_s=0.1)
    return time.perf_counter() - begun_s


def merges(bench: Rig | None, rows: int) -> Figures:
    """Seconds of three merges of the same changes: a 50th of the rows with Spark, a 500th of a tenth with PyIceberg."""
    assert bench is not None
    figures: Figures = {}
    for peer, of, changes in (("spark", rows, rows // 50), ("pyiceberg", rows // 10, rows // 5000)):
        uri, changed = str(bench.directory("big")), str(bench.directory("changes"))
        make(uri, of)
        project(uri, 1, TABLE)
        touched = np.sort(np.random.default_rng(7).choice(of, changes, replace=False))
        pq.write_table(rows_of(touched, 1), changed)
        metadata = metadata_uri(uri, 1)
        if peer == "spark":
            figures["spark_s"] = _by_spark(bench.spark, metadata, changed)
        else:
            figures["pyiceberg_s"] = _peer("upsert", bench.directory("peer"), metadata, changed)
        figures[f"ours_beside_{peer}_s"] = seconds(lambda uri=uri, changed=changed: _merged(uri, changed))  # type: ignore[misc]
        figures[f"{peer}_over_ours"] = figures[f"{peer}_s"] / figures[f"ours_beside_{peer}_s"]
    return figures


def _merged(uri: str, changed: str) -> None:
    rows = pq.read_table(changed, schema=SCHEMA)
    snapshot = deltalog.load(uri)
    assert snapshot is not None
    actions = merge(uri, snapshot.files(), columns(), NetChanges(rows.select(["id"]), rows, rows.num_rows))
    deltalog.commit(uri, snapshot.version + 1, actions, operation="MERGE", metadata={})
    project(uri, snapshot.version + 1, TABLE, snapshot.version)


def _by_spark(spark: "SparkSession", metadata: str, changed: str) -> float:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS bench_lake.bench")
    spark.sql("DROP TABLE IF EXISTS bench_lake.bench.big")
    columns_of = "id bigint, k int, c string, pad string"
    properties = "TBLPROPERTIES ('format-version' = '2', 'write.merge.mode' = 'merge-on-read')"
    spark.sql(f"CREATE TABLE bench_lake.bench.big ({columns_of}) USING iceberg {properties}")
    spark.read.format("iceberg").load(metadata).writeTo("bench_lake.bench.big").append()
    spark.read.parquet(changed).selectExpr("'U' as op", "*").createOrReplaceTempView("changes_iceberg")
    statement = merge_statement("bench_lake.bench.big", "changes_iceberg", tuple(SCHEMA.names))
    return seconds(lambda: spark.sql(statement))


CASES: Final[dict[str, Callable[[Rig | None, int], Figures]]] = {
    "commit": commit,
    "names": names,
    "feed": feed,
    "merge": merges,
}
WITH_SPARK: Final = {"feed", "merge"}


@contextmanager
def session_of(cases: list[str]) -> Iterator[Rig | None]:
    """A rig whose Spark knows Iceberg, if a case needs one."""
    if not WITH_SPARK & set(cases):
        yield None
        return
    jars = [jar for conf in ("spark", "iceberg") for jar in sorted(ensure_jars(conf).glob("*.jar"))]
    with tempfile.TemporaryDirectory() as warehouse:
        conf = {
            "spark.jars": ",".join(map(str, jars)),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.bench_lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.bench_lake.type": "hadoop",
            "spark.sql.catalog.bench_lake.warehouse": warehouse,
        }
        with rig(conf) as bench:
            yield bench


def main() -> None:
    """Print each case when it is done."""
    parser = arguments(__doc__, 600_000)
    parser.add_argument("--case", choices=CASES, action="append", help="only this one")
    options = parser.parse_args()
    chosen = options.case or list(CASES)
    results: dict[str, Figures] = {}
    with session_of(chosen) as bench:
        for name in chosen:
            results[name] = CASES[name](bench, options.rows)
            if not options.json:
                print(f"{name:8}", "  ".join(f"{key} {value:,.2f}" for key, value in results[name].items()), flush=True)
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
