"""A topic as a stream of typed changes in Spark, against a Spark job that reads the same topic with `from_json`.

    python benchmarks/stream.py [--rows 1000000] [--protocol canal-json] [--json]

    topic (2 partitions)  ──  readStream.format("tidegate"), form=changes  ──►  a Delta table    ours
      one event a message ──  raw source → from_json → filter → append     ──►  a Delta table    the other query

Both are timed from the making of the query to the commit that has the topic's last row, after a run on a tenth of the
rows.  Ours gives each change once and in commit order; the other query gives messages as they come.  One run's ratio:

    stream_over_from_json     rows a second of ours ÷ those of the other query                     goal 3.0

Rows are those of land.py, and so is the other query.
"""

import ast
import json
import time
from typing import Final

from land import PATIENCE_S, append
from rig import Rig, Topic, arguments, rig
from traffic import PROTOCOLS, SCHEMA, mixture

import tidegate

TABLE: Final = f"{SCHEMA}.t01"


def stream(topic: Topic, bench: Rig, rows: int) -> float:
    """Seconds from the making of our query until the commit that has the last of some rows."""
    table, begun = bench.directory("streamed"), time.perf_counter()
    reader = bench.spark.readStream.format("tidegate").option("form", "changes").option("table", TABLE)
    changes = reader.option("state", str(bench.directory("state"))).load(topic.uri(order="ts"))
    query = (
        changes.writeStream.format("delta")
        .option("checkpointLocation", str(bench.directory("checkpoint")))
        .trigger(processingTime="0 seconds")
        .start(str(table))
    )
    try:
        while sum(progress.numInputRows for progress in query.recentProgress) < rows:
            assert query.exception() is None, query.exception()
            assert time.perf_counter() - begun < PATIENCE_S, query.lastProgress and ast.literal_eval(
                query.lastProgress.sources[0].endOffset
            )
            time.sleep(0.01)
        took_s = time.perf_counter() - begun
    finally:
        query.stop()
    assert bench.spark.read.format("delta").load(str(table)).count() == rows
    return took_s


def measure(bench: Rig, protocol: str, rows: int) -> dict[str, float]:
    """One protocol."""
    tenth = bench.topic(f"tenth-{protocol}", mixture(rows // 10), protocol)
    stream(tenth, bench, rows // 10)
    append(tenth, bench.directory("table"), bench)
    topic = bench.topic(f"whole-{protocol}", mixture(rows), protocol)
    ours_s, theirs_s = stream(topic, bench, rows), append(topic, bench.directory("table"), bench)
    return {
        "stream_over_from_json": theirs_s / ours_s,
        "stream_rows_per_s": rows / ours_s,
        "from_json_rows_per_s": rows / theirs_s,
    }


def main() -> None:
    """Print both protocols."""
    parser = arguments(__doc__, 1_000_000)
    parser.add_argument("--protocol", choices=PROTOCOLS, action="append", help="only this one")
    given = parser.parse_args()
    with rig() as bench:
        tidegate.register(bench.spark)
        found = {protocol: measure(bench, protocol, given.rows) for protocol in given.protocol or PROTOCOLS}
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for protocol, rates in found.items():
        print(
            f"{protocol:14} {rates['stream_rows_per_s']:,.0f} rows/s: {rates['stream_over_from_json']:.2f} x from_json "
            f"({rates['from_json_rows_per_s']:,.0f}/s)"
        )


if __name__ == "__main__":
    main()
