"""A program whose only Spark is a Connect server: jobs, a feed into a lake, its readers. Prints one JSON object.

python -m tests.spark.connected DIRECTORY
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyspark

import tidegate
from tests.engine.test_chain import Upstream
from tidegate.lakes.read import spark_rows
from tidegate.model.errors import EnvironmentFault, HistoryLost, SinkError, SourceError
from tidegate.spark.archive import PYTHON
from tidegate.spark.java import ensure_jars
from tidegate.spark.session import DELTA, SQL, WORKERS_PYTHON, _driver, _local
from tidegate.spark.tasks import SparkTasks
from tidegate.spark.versions import installed, is_3


def bare_python(home: Path) -> Path:
    """A program that starts a Python with PySpark and no other package."""
    library = Path(pyspark.__file__).parent / "python" / "lib"
    path = ":".join(map(str, (library / "pyspark.zip", *library.glob("py4j-*.zip"))))
    program = home / "bare-python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.base_prefix}/bin/{PYTHON} "$@"\n')
    program.chmod(0o755)
    return program


def lacks_of(spark: Any, home: Path) -> dict[str, object]:
    """What is said of a server whose Python has no Tidegate, and that has no Delta."""
    told: dict[str, object] = {}
    spark.conf.set(WORKERS_PYTHON, str(bare_python(home)))
    for name, use in (
        ("no tidegate", lambda: tidegate.Changefeed(f"tidb://{home}", f"delta://{home}/lake").run(spark)),
        ("no delta", lambda: spark_rows(spark, f"{home}/t", 0)),
    ):
        try:
            use()
        except EnvironmentFault as fault:
            told[name] = str(fault)
    spark.conf.unset(WORKERS_PYTHON)
    return told


def work(job: int) -> int:
    """An answer, or one of two ways to have none."""
    if job == 3:
        raise HistoryLost("offset 3 is gone")
    if job == 4:
        raise ValueError("four")
    return 2 * job


def jobs_of(spark: Any) -> dict[str, object]:
    """What tasks answer, and how long one job takes."""
    tasks = SparkTasks(spark)
    told: dict[str, object] = {"slots": tasks.slots, "answers": tasks.run(work, [2, 0, 1])}
    for job, error in ((3, HistoryLost), (4, SinkError)):
        try:
            tasks.run(work, [1, job])
        except error as raised:
            told[str(job)] = str(raised)
    begun_s = time.monotonic()
    tasks.run(work, [0, 1])
    told["round_trip_s"] = time.monotonic() - begun_s
    aside = tasks.aside("a feed/land")
    threading.Timer(3.0, aside.cancel).start()
    begun_s = time.monotonic()
    try:
        aside.run(time.sleep, [60])
    except SourceError:
        told["cancelled"] = time.monotonic() - begun_s < 30
    return told


def feed_of(spark: Any, home: Path) -> dict[str, object]:
    """A log becomes a lake, which every reader of Spark reads."""
    upstream = Upstream(1, home / "log")
    for sql in (
        "INSERT INTO a VALUES (1, 1, 1), (2, 2, 2)",
        "ALTER TABLE a ADD COLUMN more INT; UPDATE a SET more = 7",
    ):
        upstream.run(sql)
    upstream.writer.write(empty=True)
    root = str(home / "lake")
    tidegate.Changefeed(f"tidb://{home / 'log'}", f"delta://{root}").run(spark, idle_s=0.5)
    lake = tidegate.lake(root)
    read = {
        "table": lake.table("test.a", spark),
        "sql": lake.sql("select a.* from test.a where '{x}' <> ''", spark),
        "live": lake.live().table("test.a", spark),
        "format": lake.table("test.a", spark),
    }
    changes = lake.table("test.a", spark)
    if not is_3(spark):
        tidegate.register(spark)
        read["format"] = spark.read.format("tidegate-lake").option("table", "test.a").load(root)
        changes = spark.read.format("tidegate").option("table", "test.a").option("starting", "0").load(root)
    told: dict[str, object] = {name: sorted(map(list, frame.collect())) for name, frame in read.items()}
    return {
        **told,
        "changes": changes.count(),
        "upstream": sorted(list(row.values()) for row in upstream.rows("a").values()),
    }


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    settings = {**SQL, **_driver("1g"), **_local(2)}
    for name in ("spark.master", "spark.jars", *DELTA):
        settings.pop(name)
    if installed().connect:
        settings["spark.jars"] = ",".join(map(str, ensure_jars("connect").glob("*.jar")))
    builder = SparkSession.builder.remote("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    os.environ.pop("SPARK_REMOTE", None)
    connected = builder.getOrCreate()
    told = {**lacks_of(connected, Path(sys.argv[1])), **jobs_of(connected), **feed_of(connected, Path(sys.argv[1]))}
    sys.stdout.write(f"{json.dumps(told, default=int)}\n")  # numbers of Spark 3 over Connect are NumPy's
    connected.stop()
