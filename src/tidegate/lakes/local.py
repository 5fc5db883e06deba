"""Stored rows as Spark frames that are quick to plan: fresh rows are asked for often, each time of another version.

    few rows     Arrow ──► LocalRelation ──filter, project──► LocalTableScan     answered by the planner, without a job
    many rows    the version's own data files as Parquet ──► scan               without Spark reading the Delta log
    the rest     Delta, `versionAsOf`                                           stores that Spark names otherwise, and
                                                                                files of which some rows are deleted

What a version consists of is known here already; Spark's Delta reader would replay the log as a job of its own.

Source: Spark, `ConvertToLocalRelation`; `spark.sql.execution.arrow.localRelationThreshold` (48 MB) is the limit of it.
"""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from tidegate.lakes.read import NOTHING, Tail, spark_frame, spark_rows
from tidegate.objectstore.deltalog import TableSnapshot, schema_field
from tidegate.sink.delta.columns import LakeColumn, stored_columns
from tidegate.sink.delta.rows import NetChanges

LOCAL_ROWS: Final = 100_000
"""Above it a frame costs more to hand over (1.5 µs a row) than its files cost to plan."""
LOCAL_BYTES: Final = 8 << 20
"""Of stored files; the driver holds the rows some three times while it hands them over."""
FILES_MAX: Final = 200
"""Spark asks for the status of each file by itself; above that a log replayed in one job is quicker."""
GLOB: Final = frozenset("*?[]{}\\")
"""Characters in a path that Spark would take for a pattern."""


def is_local(stored: TableSnapshot, tail: Tail = NOTHING) -> bool:
    """Return True if a table's rows are few enough to be handed to Spark as they are."""
    files = stored.files()
    rows = sum(file.rows for file in files)
    rows += sum((part.rows if isinstance(part, NetChanges) else part).num_rows for part in tail.parts)
    return rows <= LOCAL_ROWS and sum(file.size_bytes for file in files) <= LOCAL_BYTES


def spark_local(spark: Any, rows: pa.Table, columns: Sequence[LakeColumn]) -> Any:
    """Return rows as a DataFrame with the types that the stored table has in Spark."""
    return spark_frame(spark, rows, spark_schema(columns))


def spark_schema(columns: Sequence[LakeColumn]) -> Any:
    """Return columns of a lake as Spark's StructType."""
    from pyspark.sql.types import StructType

    fields = [schema_field(column.name, column.delta) for column in columns]
    return StructType.fromJson({"type": "struct", "fields": fields})


def spark_stored(spark: Any, stored: TableSnapshot) -> Any:
    """Return a stored version as a DataFrame."""
    paths = [file.path if file.path.startswith("/") else f"{stored.uri}/{file.path}" for file in stored.files()]
    if not _is_plain(stored, paths):
        return spark_rows(spark, stored.uri, stored.version)
    from pyspark.sql import functions
    from pyspark.sql.types import StructType

    from tidegate.spark.fitness import check_dates

    check_dates(spark)

    columns = stored_columns(stored)
    fields = [schema_field(column.physical, column.delta) for column in columns]
    files = spark.read.schema(StructType.fromJson({"type": "struct", "fields": fields})).parquet(*paths)
    quoted = {column.name: f"`{column.physical.replace('`', '``')}`" for column in columns}
    return files.select([functions.col(physical).alias(name) for name, physical in quoted.items()])


def _is_plain(stored: TableSnapshot, paths: Sequence[str]) -> bool:
    """True if the rows of a version are those of its files, and Spark finds them under their paths."""
    whole = stored.configuration.get("delta.enableDeletionVectors") != "true" and not stored.partition_columns
    named = all("://" not in path and not GLOB.intersection(path) for path in (stored.uri, *paths))
    return whole and named and 0 < len(paths) <= FILES_MAX
