"""A load of Dumpling's files into a lake beside Spark's own CSV reader that writes a Delta table: rows a second.

    python benchmarks/dumpling.py [--rows 4000000] [--json]

    CSV   ──  a feed of a load alone: plan, files of rows, commits, snapshot    ──►  lake     csv
    SQL   ──  the same of INSERTs                                               ──►  lake     sql
    CSV   ──  spark.read.csv with its schema                                    ──►  Delta    peer

All have the same rows, in files of 64 MiB: BIGINT, text, DECIMAL, TIMESTAMP without a zone, and write the same types.
They are read in one run with one Spark, in turns, warm, the best of three.  Ratios are to the peer; `by CPU` is that of
the seconds of CPU of all processes, which holds on a machine that is busy with other things too.
"""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from full_load import TIMES
from full_load_lake import CORES, seconds
from rig import arguments

from tidegate.config.full_load import parse_load
from tidegate.engine.load import LoadingSource, NoStream
from tidegate.engine.load_plan import KeptPlan
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.source.dump_options import DumpOptions
from tidegate.source.load_dump import DumpReader
from tidegate.spark.session import session
from tidegate.spark.tasks import SparkTasks
from tidegate.testing.script import run_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_BYTES: Final = 64 << 20
STATEMENT_ROWS: Final = 1000
CREATE: Final = "CREATE TABLE `t` (`id` BIGINT PRIMARY KEY, `c1` VARCHAR(60), `c2` DECIMAL(12, 2), `c3` DATETIME);\n"
SCHEMA: Final = "id BIGINT, c1 STRING, c2 DECIMAL(12, 2), c3 TIMESTAMP_NTZ"
METADATA: Final = "Log: tidb-binlog\nPos: 450000000000000000\nFinished dump at: 2026-01-01 00:00:00\n"
TOLD: Final = "consistency=snapshot&backslash-escape=true&csv-header=true&csv-null-value=\\N"


def dumped(home: Path, form: str, rows: int) -> Path:
    """A directory with the rows in files of a form."""
    home.mkdir()
    (home / "metadata").write_text(METADATA)
    (home / "load.t-schema.sql").write_text(CREATE)
    begin = datetime(2024, 1, 1)  # noqa: DTZ001 - a DATETIME has no zone
    quote, open_, end = ("'", "(", "),\n") if form == "sql" else ('"', "", "\r\n")
    each = FILE_BYTES // 70
    for number, first in enumerate(range(1, rows + 1, each)):
        lines = [
            f"{open_}{row},{quote}customer \\{quote}number\\{quote} {row % 100000}{quote},{row / 100:.2f},"
            f"{quote}{begin + timedelta(seconds=row)}{quote}{end}"
            for row in range(first, min(first + each, rows + 1))
        ]
        if form == "sql":
            for index in range(STATEMENT_ROWS - 1, len(lines), STATEMENT_ROWS):
                lines[index] = lines[index][:-2] + ";\n"
            lines[-1] = lines[-1][:-2] + ";\n"
            for index in range(0, len(lines), STATEMENT_ROWS):
                lines[index] = "INSERT INTO `t` VALUES\n" + lines[index]
        else:
            lines.insert(0, '"id","c1","c2","c3"\r\n')
        (home / f"load.t.{number:09}.{form}").write_text("".join(lines), newline="")
    return home


def run_tidegate(spark: "SparkSession", files: Path, home: Path) -> None:
    """A feed that ends with the load."""
    told = parse_load(f"file://{files}?{TOLD}")
    assert isinstance(told, DumpOptions)
    reader = DumpReader(told)
    source = LoadingSource(reader, KeptPlan(str(home)), lambda *_: True, NoStream(), ordered=True, keyless=True)
    run_here(source, DeltaSink(DeltaOptions(root=str(home), feed="load")), tasks=SparkTasks(spark))


def peer(spark: "SparkSession", files: Path, home: Path) -> None:
    """Spark's reader, with the schema."""
    read = spark.read.options(header=True, escape="\\", nullValue="\\N").schema(SCHEMA)
    read.csv(f"{files}/*.csv").write.format("delta").save(str(home / "t"))


def measured(spark: "SparkSession", rows: int) -> dict[str, Any]:
    """Rates in rows a second, and ratios."""
    with TemporaryDirectory(dir="/dev/shm") as home:
        csv, sql = (dumped(Path(home) / form, form, rows) for form in ("csv", "sql"))
        works: list[Callable[[Path], None]] = [
            *(partial(run_tidegate, spark, files) for files in (csv, sql)),
            partial(peer, spark, csv),
        ]
        _, *turns = [[seconds(work, rows) for work in works] for _ in range(TIMES + 1)]
    (csv_s, csv_cpu_s), (sql_s, sql_cpu_s), (peer_s, peer_cpu_s) = (
        map(min, zip(*work, strict=True)) for work in zip(*turns, strict=True)
    )
    return {
        "csv": round(rows / csv_s),
        "sql": round(rows / sql_s),
        "peer": round(rows / peer_s),
        "csv_ratio": round(peer_s / csv_s, 2),
        "sql_ratio": round(peer_s / sql_s, 2),
        "csv_by_cpu": round(peer_cpu_s / csv_cpu_s, 2),
        "sql_by_cpu": round(peer_cpu_s / sql_cpu_s, 2),
    }


def main() -> None:
    """Measure both forms."""
    options = arguments(__doc__, 4_000_000).parse_args()
    spark = session(cores=CORES)
    rates = measured(spark, options.rows)
    spark.stop()
    if options.json:
        print(json.dumps(rates))
        return
    for form in ("csv", "sql"):
        print(
            f"{form} {rates[form]:>10,} rows/s  {rates['peer']:>10,} Spark's CSV reader   ratio "
            f"{rates[f'{form}_ratio']:.2f}, by CPU {rates[f'{form}_by_cpu']:.2f}"
        )


if __name__ == "__main__":
    main()
