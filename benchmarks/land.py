"""Landing a topic into the changelog, against a Spark job that reads the same topic with `from_json`.

    python benchmarks/land.py [--rows 1000000] [--protocol canal-json] [--json]

    topic (2 partitions)  ──  our landing, as a feed runs it             ──►  changelog        landing
      one event a message ──  raw source → from_json → filter → append  ──►  a Delta table    the other query

Both are timed from their start to the commit that has the topic's last row, after a run
on a tenth of the rows.  The other one has the exact schema of the one table that is in the topic and takes the whole
topic as one batch, which suits it best.  Beside them `decode_chunk` decodes the same messages on one core.  Ratios of
one run:

    landing_over_from_json     rows a second of landing ÷ those of the other query                     goal 4.0
    landing_over_decoding      rows a second of landing ÷ twice what one core decodes                   goal 0.2
    time_of_ten_times_rows     seconds for all rows ÷ seconds for a tenth of them                       goal 11 at most

The first landing counts in these.  Landing's own rate is the median of it and four more, as one varies by a third.

Rows: 60 % UPDATE with the old row, 25 % INSERT, 15 % DELETE, four columns as sysbench has them (traffic.py).
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from rig import Rig, Topic, arguments, raw_stream, rig, seconds
from traffic import PROTOCOLS, SCHEMA, messages, mixture

from tidegate.changelog.changelog import Changelog, changelog_uri
from tidegate.codec.columnar import decode_chunk
from tidegate.codec.options import DecodeOptions
from tidegate.config.kafka import kafka_topics
from tidegate.source.kafka_fetch import CHUNK
from tidegate.source.kafka_land import Landing
from tidegate.spark.tasks import SparkTasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PATIENCE_S: Final = 300.0
LIMIT: Final = 1 << 40
"""Messages a batch of the other query."""
DECODED: Final = 100_000
ROUNDS: Final = 3
AGAIN: Final = 4
IMAGE: Final = "struct<id:bigint,k:int,c:string,pad:string>"
OPEN_IMAGE: Final = (
    "struct<id:struct<v:bigint>,k:struct<v:int>,c:struct<v:string>,pad:struct<v:string>>"  # type and flag are not read
)


def accept(schema: str, _: str) -> bool:
    """The tables that are landed."""
    return schema == SCHEMA


def land(topic: Topic, lake: Path, bench: Rig) -> tuple[float, dict[str, int]]:
    """Seconds from the start of a landing to the commit that holds the topic's last message, and rows by path."""
    landing = Landing(
        kafka_topics(topic.uri(order="ts", max_messages_per_batch=1_000_000)), str(lake), "bench", accept=accept
    )
    begun = time.perf_counter()
    landing.start(SparkTasks(bench.spark))
    try:
        while landing.progress().messages < topic.messages:
            failed = landing.exception()
            if failed is not None:
                raise failed
            assert time.perf_counter() - begun < PATIENCE_S, "nothing more landed"
            time.sleep(0.002)
        return time.perf_counter() - begun, landing.progress().path_counts.by_path()
    finally:
        landing.stop()


def landed_rows(lake: Path) -> int:
    """Rows in a changelog."""
    changelog = Changelog(changelog_uri(str(lake)))
    changelog.refresh()
    return sum(file.rows for file in changelog.files() if file.part == "rows")


def from_canal(messages: "DataFrame") -> "DataFrame":
    """Rows of Canal-JSON messages."""
    from pyspark.sql.functions import col, from_json, get

    texts = "struct<id:string,k:string,c:string,pad:string>"
    schema = (
        f"database string, table string, type string, data array<{texts}>, old array<{texts}>, "
        "_tidb struct<commitTs:bigint>"
    )
    event = messages.select("partition", "offset", from_json(col("value").cast("string"), schema).alias("e"))
    rows = event.where(f"e.type in ('INSERT', 'UPDATE', 'DELETE') and e.database = '{SCHEMA}'")
    return rows.select(
        "partition",
        "offset",
        col("e._tidb.commitTs").alias("commit_ts"),
        col("e.type").alias("op"),
        col("e.database").alias("schema"),
        col("e.table").alias("table"),
        get("e.old", 0).cast(IMAGE).alias("before"),
        get("e.data", 0).cast(IMAGE).alias("after"),
    )


def from_open(messages: "DataFrame") -> "DataFrame":
    """Rows of Open Protocol messages of one event each: 16 bytes stand before the key's JSON, 8 before the value's."""
    from pyspark.sql.functions import coalesce, col, expr, from_json

    head = from_json(expr("cast(substring(key, 17) as string)"), "ts bigint, scm string, tbl string, t int")
    body = from_json(expr("cast(substring(value, 9) as string)"), f"u {OPEN_IMAGE}, p {OPEN_IMAGE}, d {OPEN_IMAGE}")
    event = messages.select("partition", "offset", "value", head.alias("h")).where(f"h.t = 1 and h.scm = '{SCHEMA}'")
    rows = event.select("partition", "offset", "h", body.alias("e"))

    def image(column: Any) -> Any:
        return column.cast("struct<id:struct<v:bigint>,k:struct<v:int>,c:struct<v:string>,pad:struct<v:string>>")

    return rows.select(
        "partition",
        "offset",
        col("h.ts").alias("commit_ts"),
        expr("case when e.d is not null then 'D' when e.p is not null then 'U' else 'I' end").alias("op"),
        col("h.scm").alias("schema"),
        col("h.tbl").alias("table"),
        image(coalesce("e.p", "e.d")).alias("before"),
        image(col("e.u")).alias("after"),
    )


FROM_JSON: Final = {"open-protocol": from_open, "canal-json": from_canal}


def append(topic: Topic, table: Path, bench: Rig) -> float:
    """Seconds from the start of the other query to its commit."""
    rows = FROM_JSON[topic.protocol](raw_stream(bench.spark, topic, LIMIT))
    begun = time.perf_counter()
    query = (
        rows.writeStream.format("delta")
        .option("checkpointLocation", str(bench.directory("checkpoint")))
        .trigger(processingTime="0 seconds")
        .start(str(table))
    )
    try:
        while sum(progress.numInputRows for progress in query.recentProgress) < topic.messages:
            assert query.exception() is None, query.exception()
            assert time.perf_counter() - begun < PATIENCE_S, "nothing more was appended"
            time.sleep(0.01)
        return time.perf_counter() - begun
    finally:
        query.stop()


def decoding(topic: Topic, rows: int) -> float:
    """Rows a second that one core decodes."""
    pairs = [(key, value) for _, key, value in messages(mixture(min(rows, DECODED)), topic.protocol)]
    chunks = [pairs[start : start + CHUNK] for start in range(0, len(pairs), CHUNK)]
    options = DecodeOptions(protocol=topic.protocol)

    def decoded() -> Iterator[int]:
        for chunk in chunks:
            yield sum(batch.rows for batch in decode_chunk(chunk, options).batches)

    count = sum(decoded())
    return count / min(seconds(lambda: sum(decoded())) for _ in range(ROUNDS))


def warmed(bench: Rig, protocol: str, rows: int) -> Topic:
    """A topic of a tenth of the rows that both have read once, so that Java has compiled what they run."""
    tenth = bench.topic(f"tenth-{protocol}", mixture(rows // 10), protocol)
    land(tenth, bench.directory("lake"), bench)
    append(tenth, bench.directory("table"), bench)
    return tenth


def measure(bench: Rig, protocol: str, tenth: Topic, rows: int) -> dict[str, float]:
    """One protocol."""
    topic = bench.topic(f"whole-{protocol}", mixture(rows), protocol)
    lake, table = bench.directory("lake"), bench.directory("table")
    tenth_s, _ = land(tenth, bench.directory("lake"), bench)
    landing_s, paths = land(topic, lake, bench)
    again_s = [land(topic, bench.directory("lake"), bench)[0] for _ in range(AGAIN)]
    append_s = append(topic, table, bench)
    appended = bench.spark.read.format("delta").load(str(table)).count()
    assert landed_rows(lake) == appended == rows, (landed_rows(lake), appended, rows)
    rate = decoding(topic, rows)
    return {
        "landing_over_from_json": append_s / landing_s,
        "landing_over_decoding": rows / landing_s / (2 * rate),
        "time_of_ten_times_rows": landing_s / tenth_s,
        "landing_rows_per_s": rows / median((landing_s, *again_s)),
        "from_json_rows_per_s": rows / append_s,
        "decoding_rows_per_s_per_core": rate,
        "landed_row_by_row": paths.get("land/rows", 0) / rows,
        "landing_s": landing_s,
        "tenth_landing_s": tenth_s,
        "megabytes": topic.bytes / 1e6,
    }


def main() -> None:
    """Print both protocols."""
    parser = arguments(__doc__, 1_000_000)
    parser.add_argument("--protocol", choices=PROTOCOLS, action="append", help="only this one")
    options = parser.parse_args()
    with rig() as bench:
        tenths = {protocol: warmed(bench, protocol, options.rows) for protocol in options.protocol or PROTOCOLS}
        results = {protocol: measure(bench, protocol, tenth, options.rows) for protocol, tenth in tenths.items()}
    if options.json:
        print(json.dumps(results, indent=2))
        return
    for protocol, rates in results.items():
        print(
            f"{protocol:14} landing {rates['landing_rows_per_s']:,.0f} rows/s: {rates['landing_over_from_json']:.2f} x "
            f"from_json, {rates['landing_over_decoding']:.2f} x twice a core's decoding "
            f"({rates['decoding_rows_per_s_per_core']:,.0f}/s); ten times the rows take "
            f"{rates['time_of_ten_times_rows']:.1f} x the time"
        )


if __name__ == "__main__":
    main()
