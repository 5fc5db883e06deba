"""Flink SQL as a peer: a topic of Canal-JSON read by its Kafka connector, to nowhere or to Parquet, in rows a second.

    build/flink (make build/flink/.ready) ─┐
    jars of ivy.xml, by Ivy ───────────────┼─► flink_job.py, a process of its own ─► seconds of n and of 2 n messages
    topics of n and of 2 n messages ───────┘

    messages a second    n ÷ (seconds of 2 n - seconds of n): net of the start of a job, to Flink's favor
    settings             parallelism as partitions, objects reused, the exact columns; no checkpoints
    start                the same process has read the short topic once before: Java has compiled what it runs

A topic has no watermarks: Flink's format refuses their type.  To Parquet its plain JSON reads the new images and how
they came, since its files refuse updates.  What cannot be had answers {"skipped": why}.

    python benchmarks/peers/flink.py      says what can be had here, as JSON
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyspark

from tidegate.model.errors import TidegateError
from tidegate.spark.cache import cache_dir
from tidegate.spark.java import (
    _ivy_jar,
    _ivy_settings,
    _proxy_options,
    _trust_store,
    find_java,
    trust_options,
)

__all__ = ["FLINK_TYPES", "SINKS", "flink", "flink_type"]

HERE: Final = Path(__file__).parent
PYTHON: Final = HERE.parent.parent / "build" / "flink" / "bin" / "python"
IVY: Final = HERE / "ivy.xml"
DIGESTS: Final = {
    "flink-sql-connector-kafka-5.0.0-2.2.jar": "5605c691d11a501382c383fecba37a7a552467da5ab7ba904ef5d6f3d62c5616",
    "mariadb-java-client-3.5.1.jar": "50a50c4a3c13c30dfbd40587f7ad9a496197d285ede0948641d9eee68fdf2106",
    "flink-sql-parquet-2.3.0.jar": "f30617f4a5a6d437750f155ff72178ab34439aec91df64d96621c260559ba5fd",
}
"""SHA-256 of jars; one without a digest has not been had where this was written, and is not used."""
HADOOP: Final = sorted(Path(next(iter(pyspark.__path__)), "jars").glob("hadoop-client-*.jar"))
"""What Flink's Parquet writes by; Spark brings it."""
SINKS: Final = ("blackhole", "parquet")
IVY_S: Final = 300
JOB_S: Final = 900

FLINK_TYPES: Final = {
    "bigint": "BIGINT",
    "int": "INT",
    "int unsigned": "BIGINT",
    "smallint": "SMALLINT",
    "tinyint": "TINYINT",
    "double": "DOUBLE",
    "float": "FLOAT",
    "date": "DATE",
    "timestamp": "TIMESTAMP(0)",
}
"""MySQL's type to Flink's; decimal and datetime take their digits along, anything else is a text."""


def flink_type(kind: str) -> str:
    """The type of Flink's column for a column of MySQL."""
    name, _, digits = kind.partition("(")
    if name in {"decimal", "datetime"}:
        return f"{'DECIMAL' if name == 'decimal' else 'TIMESTAMP'}({digits}"
    return FLINK_TYPES.get(kind, "STRING")


@cache
def jar(conf: str) -> Path | str:
    """The jar of a configuration of ivy.xml, or why there is none."""
    home = cache_dir("peers", hashlib.sha256(IVY.read_bytes()).hexdigest()[:16])
    try:
        settings, java = ["-settings", str(_ivy_settings())], str(find_java().java)
    except TidegateError as error:
        return str(error)
    store = _trust_store()
    command = [
        *(java, "-Xmx256m", f"-Divy.default.ivy.user.dir={cache_dir('ivy')}", *_proxy_options()),
        *(trust_options(store) if store else ()),
        *("-jar", str(_ivy_jar()), *settings, "-ivy", str(IVY), "-confs", conf),
        *("-types", "jar", "bundle", "-retrieve", f"{home}/{conf}/[artifact]-[revision].[ext]"),
    ]
    found = sorted((home / conf).glob("*.jar"))
    if not found:
        said = subprocess.run(command, capture_output=True, text=True, timeout=IVY_S, check=False).stdout
        found = sorted((home / conf).glob("*.jar"))
        if not found:
            missing = [line.strip(" :\t") for line in said.splitlines() if "not found" in line]
            return f"no jar for {conf}: {(missing or ['Ivy fetched nothing'])[-1]}"
    if hashlib.sha256(found[0].read_bytes()).hexdigest() != DIGESTS.get(found[0].name):
        return f"{found[0].name} has other bytes than those that are known"
    return found[0]


def _changes(types: Mapping[str, str]) -> dict[str, Any]:
    """Rows as Flink's Canal-JSON makes them, to nowhere."""
    return {
        "format": "canal-json",
        "columns": types,
        "gone": types,
        "sink": "'connector' = 'blackhole'",
        "what": "SELECT * FROM {}",
    }


def _events(types: Mapping[str, str], place: str) -> dict[str, Any]:
    """One row for each new or deleted image, with its type and time: Flink's files take no updates, so its plain JSON
    reads the messages."""
    listed = ", ".join(f"`{name}` STRING" for name in types)
    values = ", ".join(f"CAST(`image`.`{name}` AS {kind})" for name, kind in types.items())
    names = ", ".join(f"`{name}`" for name in types)
    return {
        "format": "json",
        "columns": {"type": "STRING", "es": "BIGINT", "data": f"ARRAY<ROW<{listed}>>"},
        "gone": {"row_type": "STRING", "row_es": "BIGINT", **types},
        "sink": f"'connector' = 'filesystem', 'format' = 'parquet', 'path' = '{place}'",
        "what": f"SELECT `type`, `es`, {values} FROM {{}} CROSS JOIN UNNEST(`data`) AS `image` ({names})",
    }


def lacking(sink: str) -> str | None:
    """Why no job into this sink can run here; None where one can."""
    if not PYTHON.exists():
        return "apache-flink is not installed: make build/flink/.ready"
    jars = [jar("kafka"), *([jar("parquet")] if sink == "parquet" else ())]
    return next((one for one in jars if isinstance(one, str)), None)


def flink(
    servers: str, topics: Sequence[str], columns: Mapping[str, str], *, sink: str = "blackhole", rounds: int = 2
) -> dict[str, Any]:
    """`seconds` and `cpu_s` by topic, where `columns` have MySQL's types; or `skipped`, the reason."""
    why = lacking(sink)
    if why is not None:
        return {"skipped": why}
    types = {name: flink_type(kind) for name, kind in columns.items()}
    with tempfile.TemporaryDirectory(prefix="tidegate-flink-") as scratch:
        request = {
            "servers": servers,
            "topics": list(topics),
            "jars": [str(jar("kafka")), *(map(str, [jar(sink), *HADOOP]) if sink == "parquet" else ())],
            "parallelism": 2,
            "rounds": rounds,
            **(_events(types, f"file://{scratch}/rows") if sink == "parquet" else _changes(types)),
        }
        done = subprocess.run(
            [str(PYTHON), str(HERE / "flink_job.py")],
            input=json.dumps(request),
            env={**os.environ, "JAVA_HOME": str(find_java().home), "FLINK_LOG_DIR": scratch},
            cwd=scratch,
            capture_output=True,
            text=True,
            timeout=JOB_S,
            check=False,
        )
    if done.returncode:
        return {"skipped": f"Flink ended with {done.returncode}: {done.stderr.strip()[-300:]}"}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    json.dump({sink: lacking(sink) or "ready" for sink in SINKS}, sys.stdout, indent=2)
    print()
