"""A topic as a stream of typed changes in Spark, against a query that reads the same topic with `from_json`.

    python benchmarks/stream.py [--rows 2000000] [--protocol canal-json] [--kafka COORDINATES] [--json]

    topic (2 partitions)  ──  readStream.format("tidegate"), form=changes  ──►  noop     ours
      one event a message ──  source → from_json → filter                  ──►  noop     the other query

Rate: from the making of the query to the commit that has the topic's last row, after a run on a tenth of the rows.
Latency: a transaction of one row and its resolved timestamps are sent every PAUSE_S, each takes from the sending until
`foreachBatch` has its row; the median.  Ours gives each change once and in commit order, and keeps what it gives; the
other query gives messages as they come.  Ratios of one run:

    stream_over_from_json     rows a second of ours ÷ those of the other query                     goal 3.0
    latency_over_from_json    median latency of ours ÷ that of the other query

Rows are those of land.py, and so is the other query.  Its source is the raw one of raw_source.py; with `--kafka` it is
Spark's own, from the jars of `org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION`.
"""

import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from land import FROM_JSON, LIMIT, PATIENCE_S
from rig import Rig, Topic, arguments, raw_stream, rig, send
from traffic import LOGICAL_BITS, PROTOCOLS, ROWS_PER_TRANSACTION, SCHEMA, TS_START, Change, messages, mixture

import tidegate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Source: TypeAlias = "Callable[[SparkSession, Topic, int], DataFrame]"
Query: TypeAlias = "Callable[[Topic, Rig], DataFrame]"

TABLE: Final = f"{SCHEMA}.t01"
SENT: Final = 40
WARM: Final = 10
"""Latencies of the first ones do not count."""
PAUSE_S: Final = 0.5


def run_tidegate(topic: Topic, bench: Rig) -> "DataFrame":
    """The changes of the table."""
    reader = bench.spark.readStream.format("tidegate").option("form", "changes").option("table", TABLE)
    return reader.option("state", str(bench.directory("state"))).load(topic.uri(order="ts"))


def run_peer(source: Source, topic: Topic, bench: Rig) -> "DataFrame":
    """The rows of the other query."""
    return FROM_JSON[topic.protocol](source(bench.spark, topic, LIMIT))


def kafka(spark: "SparkSession", topic: Topic, max_per_batch: int) -> "DataFrame":
    """A topic by Spark's own source."""
    options = {"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic.name, "startingOffsets": "earliest"}
    return spark.readStream.format("kafka").options(**options).option("maxOffsetsPerTrigger", max_per_batch).load()


def rate_s(make: Query, topic: Topic, rows: int, bench: Rig) -> float:
    """Seconds from the making of a query until the commit of the last of so many input rows."""
    begun = time.perf_counter()
    start = make(topic, bench).writeStream.format("noop").trigger(processingTime="0 seconds")
    query = start.option("checkpointLocation", str(bench.directory("checkpoint"))).start()
    try:
        while sum(progress.numInputRows for progress in query.recentProgress) < rows:
            assert query.exception() is None, query.exception()
            assert time.perf_counter() - begun < PATIENCE_S, "nothing more was read"
            time.sleep(0.01)
        return time.perf_counter() - begun
    finally:
        query.stop()


def latency_s(name: str, make: Query, protocol: str, bench: Rig) -> float:
    """Median seconds from the sending of a row until the query has it."""
    topic = bench.topic(f"live-{protocol}-{name}", mixture(ROWS_PER_TRANSACTION), protocol)
    seen: dict[int, float] = {}

    def see(batch: "DataFrame", number: int) -> None:  # noqa: ARG001  Spark's form
        for row in batch.select("commit_ts").collect():
            seen.setdefault(row.commit_ts, time.perf_counter())

    start = make(topic, bench).writeStream.foreachBatch(see).trigger(processingTime="0 seconds")
    query = start.option("checkpointLocation", str(bench.directory("checkpoint"))).start()
    sent_s: dict[int, float] = {}
    try:
        for number in range(SENT):
            ts = TS_START + ((number + 10) << LOGICAL_BITS)
            message_list = list(messages([Change("I", "t01", 1_000_000 + number)], protocol, ts_start=ts))
            sent_s[ts] = time.perf_counter()
            send(topic.bootstrap, topic.name, message_list)
            time.sleep(PAUSE_S)
        while not seen.keys() >= sent_s.keys():
            assert query.exception() is None, query.exception()
            assert time.perf_counter() - sent_s[ts] < PATIENCE_S, "a row did not come"
            time.sleep(0.01)
    finally:
        query.stop()
    return statistics.median(seen[ts] - begun for ts, begun in list(sent_s.items())[WARM:])


def measure(bench: Rig, protocol: str, rows: int, source: Source) -> dict[str, float]:
    """One protocol."""
    changes = list(mixture(rows))
    numbered = enumerate(change for change in changes if change.op in "IUD")
    different = len({(change.id, number // ROWS_PER_TRANSACTION) for number, change in numbered})
    topic = bench.topic(f"whole-{protocol}", changes, protocol)
    queries: dict[str, tuple[Query, int]] = {
        "ours": (run_tidegate, different),
        "theirs": (partial(run_peer, source), topic.messages),
    }
    took_s = {}
    for name, (make, count) in queries.items():
        tenth = bench.topic(f"tenth-{protocol}-{name}", mixture(rows // 10), protocol)
        rate_s(make, tenth, rows // 11, bench)
        took_s[name] = rate_s(make, topic, count, bench)
    late_s = {name: latency_s(name, make, protocol, bench) for name, (make, _) in queries.items()}
    return {
        "stream_over_from_json": took_s["theirs"] / took_s["ours"],
        "stream_rows_per_s": rows / took_s["ours"],
        "from_json_rows_per_s": rows / took_s["theirs"],
        "latency_over_from_json": late_s["ours"] / late_s["theirs"],
        "stream_latency_s": late_s["ours"],
        "from_json_latency_s": late_s["theirs"],
    }


def main() -> None:
    """Print both protocols."""
    parser = arguments(__doc__, 2_000_000)
    parser.add_argument("--kafka", metavar="COORDINATES", help="read the other query's topic by Spark's own source")
    parser.add_argument("--protocol", choices=PROTOCOLS, action="append", help="only this one")
    options = parser.parse_args()
    source = kafka if options.kafka else raw_stream
    with rig({"spark.jars.packages": options.kafka} if options.kafka else None) as bench:
        tidegate.register(bench.spark)
        results = {
            protocol: measure(bench, protocol, options.rows, source) for protocol in options.protocol or PROTOCOLS
        }
    if options.json:
        print(json.dumps(results, indent=2))
        return
    for protocol, result in results.items():
        print(
            f"{protocol:14} {result['stream_rows_per_s']:,.0f} rows/s: {result['stream_over_from_json']:.2f} x "
            f"from_json "
            f"({result['from_json_rows_per_s']:,.0f}/s); a row is there after {result['stream_latency_s'] * 1000:.0f} "
            f"ms: "
            f"{result['latency_over_from_json']:.2f} x from_json ({result['from_json_latency_s'] * 1000:.0f} ms)"
        )


if __name__ == "__main__":
    main()
