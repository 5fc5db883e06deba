"""The job that our apply path is compared with: `from_json`, one change per key, MERGE; written by hand, and well.

    raw source, 50,000 messages a batch
      → from_json with the schema of the rows        ALTER TABLE of the batch first, in the order of their commit_ts
      → max_by(row, (commit_ts, offset)) by id       kept in memory, since every table of the batch reads it
      → MERGE INTO each table that has changes       deletion vectors on, tables side by side

What it leaves to its author: the tables exist beforehand, their definitions are known, nothing is consistent across
tables, and a batch that is repeated is merged again.
"""

import json
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from raw_source import RawSource
from rig import Topic, seconds
from traffic import NEW_COLUMN, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Layout", "PeerTables", "TailSource", "digest", "layout_of", "merge_statement", "rows_of"]

BATCH_MESSAGES: Final = 50_000
MERGES_AT_ONCE: Final = 4


@dataclass(frozen=True)
class Layout:
    """The columns of the tables and those that an ALTER TABLE adds, with Spark's types; `id` is the key."""

    columns: Mapping[str, str]
    added: Mapping[str, str] = field(default_factory=dict)

    def struct(self, form: str) -> str:
        """All of them as a struct, each as `form` says it of its type."""
        every = {**self.columns, **self.added}
        return f"struct<{','.join(f'{name}:{form.format(kind)}' for name, kind in every.items())}>"


NARROW: Final = Layout(
    {"id": "bigint", "k": "int", "c": "string", "pad": "string"},
    {NEW_COLUMN: "string"},
)
SPARK_TYPES: Final = {
    "bigint": "bigint",
    "int": "int",
    "int unsigned": "bigint",
    "smallint": "smallint",
    "tinyint": "tinyint",
    "double": "double",
    "float": "float",
    "date": "date",
    "datetime": "timestamp_ntz",
    "timestamp": "timestamp",
}
"""MySQL's type to Spark's; decimal takes its digits along, anything else is a text."""


def layout_of(columns: Mapping[str, str]) -> Layout:
    """The layout of tables whose columns have these types of MySQL."""
    return Layout(
        {
            name: kind if kind.startswith("decimal") else SPARK_TYPES.get(kind.partition("(")[0], "string")
            for name, kind in columns.items()
        }
    )


class TailSource(RawSource):
    """A topic's messages from given offsets on: option `start`, JSON of partition to offset."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "tidegate_bench_tail"

    def streamReader(self, schema: Any) -> Any:  # noqa: N802  Spark's name
        """For `spark.readStream`."""
        reader: Any = super().streamReader(schema)
        start = json.loads(self.options["start"])

        def first() -> dict[str, int]:
            reader.planned = dict(start)
            return dict(start)

        reader.initialOffset = first
        return reader


def rows_of(messages: "DataFrame", protocol: str, layout: Layout = NARROW) -> "DataFrame":
    """(commit_ts, offset, op, table, row) of row changes of one event a message; DDLs have op A and `query`."""
    from pyspark.sql.functions import coalesce, col, expr, from_json, get, lit, when

    if protocol == "canal-json":
        schema = (
            f"database string, table string, type string, sql string, data array<{layout.struct('string')}>, "
            "_tidb struct<commitTs:bigint>"
        )
        event = messages.select("offset", from_json(col("value").cast("string"), schema).alias("e"))
        op = expr(
            "case e.type when 'INSERT' then 'U' when 'UPDATE' then 'U' when 'DELETE' then 'D' when 'ALTER' then 'A' end"
        )
        return event.select(
            col("e._tidb.commitTs").alias("commit_ts"),
            "offset",
            op.alias("op"),
            col("e.table").alias("table"),
            get("e.data", lit(0)).cast(layout.struct("{}")).alias("row"),
            col("e.sql").alias("query"),
        ).where(f"e.database = '{SCHEMA}' and op is not null")
    head = from_json(expr("cast(substring(key, 17) as string)"), "ts bigint, scm string, tbl string, t int")
    image_of = layout.struct("struct<v:{}>")
    body = from_json(expr("cast(substring(value, 9) as string)"), f"u {image_of}, d {image_of}, q string, t int")
    event = messages.select("offset", "value", head.alias("h")).where(f"h.t in (1, 2) and h.scm = '{SCHEMA}'")
    rows = event.select("offset", "h", body.alias("e"))
    image = coalesce("e.u", "e.d")
    names = (*layout.columns, *layout.added)
    fields = ", ".join(f"'{name}', image.{name}.v" for name in names)
    op = when(col("h.t") == 1, when(col("e.d").isNotNull(), "D").otherwise("U")).when(col("e.t") == 5, "A")
    return (
        rows.select("offset", "h", "e", image.alias("image"), op.alias("op"))
        .where("op is not null")
        .select(
            col("h.ts").alias("commit_ts"),
            "offset",
            "op",
            col("h.tbl").alias("table"),
            expr(f"named_struct({fields})").alias("row"),
            col("e.q").alias("query"),
        )
    )


class PeerTables:
    """Delta tables of the other job, one directory each."""

    def __init__(self, spark: "SparkSession", home: Any, names: list[str], layout: Layout = NARROW) -> None:
        self.spark, self.home, self.layout = spark, home, layout
        self.columns: dict[str, tuple[str, ...]] = dict.fromkeys(names, tuple(layout.columns))
        columns = ", ".join(f"{column} {kind}" for column, kind in layout.columns.items())
        for name in names:
            spark.sql(
                f"CREATE TABLE {self.sql_name(name)} ({columns}) USING delta "
                "TBLPROPERTIES (delta.enableDeletionVectors = true)"
            )

    def sql_name(self, name: str) -> str:
        """A table as SQL names it."""
        return f"delta.`{self.home}/{name}`"

    def frame(self, name: str) -> "DataFrame":
        """A table's rows."""
        return self.spark.read.format("delta").load(f"{self.home}/{name}")

    def load(self, rows: "DataFrame", name: str) -> None:
        """Append a table's rows of a topic that holds nothing but INSERTs."""
        changes = rows.where(f"op = 'U' and table = '{name}'")
        updates = changes.select(*[f"row.{column}" for column in self.columns[name]])
        updates.write.format("delta").mode("append").save(f"{self.home}/{name}")

    def follow(self, topic: Topic, start: Mapping[int, int]) -> float:
        """Seconds to apply what the topic holds from `start` on."""
        options = {
            "servers": topic.bootstrap,
            "topic": topic.name,
            "max_per_batch": str(BATCH_MESSAGES),
            "start": json.dumps({str(partition): offset for partition, offset in start.items()}),
        }
        self.spark.dataSource.register(TailSource)
        messages = self.spark.readStream.format(TailSource.name()).options(**options).load()
        with tempfile.TemporaryDirectory() as scratch:

            def run() -> None:
                query = (
                    messages.writeStream.option("checkpointLocation", f"file://{scratch}")
                    .foreachBatch(partial(self.apply, protocol=topic.protocol))
                    .start()
                )
                query.processAllAvailable()
                query.stop()

            return seconds(run)

    def apply(self, batch: "DataFrame", _: int, *, protocol: str) -> None:
        """One micro-batch."""
        from pyspark.sql.functions import col, max_by, struct

        rows = rows_of(batch, protocol, self.layout)
        last = rows.groupBy("table", col("row.id").alias("id")).agg(
            max_by(struct("op", "row", "query", "commit_ts"), struct("commit_ts", "offset")).alias("last")
        )
        last = last.select("table", "last.*").persist()
        present = [row.table for row in last.where("op <> 'A'").select("table").distinct().collect()]
        for ddl in last.where("op = 'A'").orderBy("commit_ts").collect():
            self.alter(ddl.table)
        with ThreadPoolExecutor(MERGES_AT_ONCE) as pool:
            list(pool.map(partial(self.merge, last), present))
        last.unpersist()

    def alter(self, name: str) -> None:
        """Add the new columns, once."""
        for column, kind in self.layout.added.items():
            if column not in self.columns[name]:
                self.spark.sql(f"ALTER TABLE {self.sql_name(name)} ADD COLUMN {column} {kind}")
                self.columns[name] = (*self.columns[name], column)

    def merge(self, last: "DataFrame", name: str) -> None:
        """MERGE a batch's changes of one table."""
        columns = self.columns[name]
        view = f"changes_{name}"
        last.where(f"table = '{name}' and op <> 'A'").select("op", "row.*").createOrReplaceTempView(view)
        last.sparkSession.sql(merge_statement(self.sql_name(name), view, columns))  # a stream has a session of its own


def merge_statement(target: str, view: str, columns: tuple[str, ...]) -> str:
    """MERGE of (op, columns…) by id."""
    sets = ", ".join(f"t.{column} = s.{column}" for column in columns)
    values = ", ".join(f"s.{column}" for column in columns)
    return (
        f"MERGE INTO {target} t USING {view} s ON t.id = s.id "
        "WHEN MATCHED AND s.op = 'D' THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND s.op <> 'D' THEN INSERT ({', '.join(columns)}) VALUES ({values})"
    )


def digest(frame: "DataFrame", columns: Iterable[str]) -> tuple[Any, ...]:
    """How many rows, and the sum of their hashes."""
    from pyspark.sql import functions as sql

    hashes = sql.sum(sql.xxhash64(*columns).cast("decimal(38,0)"))
    return tuple(frame.agg(sql.count(sql.lit(1)), hashes).collect()[0])
