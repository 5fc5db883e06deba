"""Spark with Iceberg beside Delta, in a process of its own; readers_lines.py tells what it is asked.

    python tests/readers_spark.py DIRECTORY

    READER   its place                                           its catalog
    spark    a directory with `metadata/v1.metadata.json` ..     properties of `spark.sql.catalog.NAME`, its type too

Each request for a catalog is a session that knows nothing of the ones before.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from readers_lines import Request, ran, serve, written
from tidegate.lakes.read import collected
from tidegate.spark.java import ensure_jars
from tidegate.spark.session import DELTA, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSIONS: Final = "spark.sql.extensions"
CATALOG: Final = "spark.sql.catalog.lake"


def started() -> "SparkSession":
    """The Spark of this process, a classic one even if that of the process which asks is not."""
    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
    jars = [jar for conf in ("spark", "iceberg") for jar in sorted(ensure_jars(conf).glob("*.jar"))]
    iceberg = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    conf = {"spark.jars": ",".join(map(str, jars)), EXTENSIONS: f"{DELTA[EXTENSIONS]},{iceberg}"}
    return session(app_name="readers", driver_memory="1g", conf=conf)


def with_catalog(spark: "SparkSession", properties: Mapping[str, str]) -> "SparkSession":
    """A new session in which a catalog has the name `lake`."""
    made = spark.newSession()
    made.conf.set(CATALOG, "org.apache.iceberg.spark.SparkCatalog")
    for name, value in properties.items():
        made.conf.set(f"{CATALOG}.{name}", value)
    return made


def tables(spark: "SparkSession", names: list[str]) -> Iterator[pa.Table]:
    """Tables of the catalog, read one after the other."""
    for name in names:
        yield collected(spark.table(f"lake.{name}"))


def names_of(spark: "SparkSession") -> list[str]:
    """What the catalog has, by `namespace.table`, sorted."""
    spaces = [row.namespace for row in spark.sql("show namespaces in lake").collect()]
    found = [row for space in spaces for row in spark.sql(f"show tables in lake.{space}").collect()]
    return sorted(f"{row.namespace}.{row.tableName}" for row in found)


def answer(request: Request, home: Path) -> dict[str, Any]:
    """What a request asked for."""
    spark = started()
    if "run" in request:
        return ran(request["blocks"], {"spark": spark}, home)
    if "list" in request:
        return {"names": names_of(with_catalog(spark, request["catalog"]))}
    if "catalog" in request:
        found = tables(with_catalog(spark, request["catalog"]), request["tables"])
        return {"arrow": [written(table, home) for table in found]}
    return {"arrow": written(collected(spark.read.format("iceberg").load(request["place"])), home)}


if __name__ == "__main__":
    serve(answer)
