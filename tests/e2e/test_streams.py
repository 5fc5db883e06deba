"""A topic of a real broker as a stream of Spark, without a lake: the format `tidegate`."""

import ast
import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from pyspark.errors import StreamingQueryException

import tidegate
from tests.counts import some
from tests.e2e.rig import LAST, PROTOCOLS, Topic, moment_ts, moved, recorded, running
from tests.kill.seeds import chance
from tests.sources import topics_to_read
from tidegate.codec import decode, from_config
from tidegate.model.event import Delete, Insert, Update, images
from tidegate.sink.delta.rows import folded
from tidegate.source.kafka_fetch import messages
from tidegate.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamReader, DataStreamWriter, StreamingQuery

pytestmark = pytest.mark.slow

NAME = "bank.accounts"
EARLY = 3
"""A moment of the recording behind which the topic gets a partition more."""
KILLS, LIFE_S = 8, 6.0
SIDES = {"Insert": ("", "insert"), "Delete": ("delete", ""), "Update": ("update_preimage", "update_postimage")}


def decoded(topic: Topic) -> set[tuple[int, str, int]]:
    """(commit_ts, what the image is, id) of all images of the table, as `tidegate decode` has them."""
    options, found = from_config({"protocol": PROTOCOLS[topic.kind]}), set()
    for key, value, _ in messages(topics_to_read(topic.bootstrap, (topic.name,), options)):
        for event in decode(key, value, options):
            if not isinstance(event, Insert | Update | Delete) or f"{event.schema}.{event.table}" != NAME:
                continue
            assert event.commit_ts is not None
            at = [field.name for field in event.fields].index("id")
            for kind, image in zip(SIDES[type(event).__name__], images(event), strict=True):
                if image is not None:
                    found.add((event.commit_ts, kind, image[at]))
    return found


def reached(query: "StreamingQuery") -> int:
    """The ts up to which a query has written."""
    assert query.exception() is None
    done = query.lastProgress
    return 0 if done is None else int(ast.literal_eval(done.sources[0].endOffset)["ts"])


def stopped(query: "StreamingQuery") -> None:
    """End a query in good order."""
    query.stop()


def killed(query: "StreamingQuery") -> None:
    """SIGKILL the process beside Spark's driver that plans and lands; the query ends with an error."""
    processes = [one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]
    (planning,) = [one for one in processes if "python_streaming_source_runner" in " ".join(one.cmdline())]
    planning.kill()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(60)


def streamed(reader: "DataStreamReader", uri: str, home: Path) -> "DataStreamWriter":
    """A query of small micro-batches that writes Parquet files, to be started again and again."""
    reader = reader.format("tidegate").option("table", NAME).option("state", str(home / "state"))
    writer = reader.option("maxRowsPerBatch", "2000").load(uri).writeStream.format("parquet")
    return writer.option("path", str(home / "out")).option("checkpointLocation", str(home / "checkpoint"))


def told(rows: Any) -> list[tuple[int, str, int]]:
    """(commit_ts, what the image is, id) of the images that a query has brought."""
    columns = (rows.column(name).to_pylist() for name in ("_commit_ts", "_change_type", "id"))
    return sorted(zip(*columns, strict=True))


@pytest.mark.parametrize("kind", ["open", pytest.param("canal", marks=pytest.mark.soak)])
def test_a_topic_as_a_stream(spark: "SparkSession", bootstrap: str, finished: Path, tmp_path: Path, kind: str) -> None:
    """Stopped, killed and started while the topic gets a partition more: each change of it once, and they make the
    lake's table."""
    topic = Topic.fed(bootstrap, f"streamed-{kind}", kind, recorded(kind, EARLY))
    tidegate.register(spark)
    start = streamed(spark.readStream, topic.uri(), tmp_path)
    stay, move = moved(kind, EARLY, LAST)

    ends = ((1, killed), (2, stopped), (moment_ts(EARLY), killed), (moment_ts(LAST), stopped))
    for goal, end_of in ends[some(1, 0) :]:
        query = start.start()
        while (end := reached(query)) < goal:
            time.sleep(0.05)
        if goal == moment_ts(EARLY):
            topic.grow(len(move))
            topic.send(stay)
            topic.send(move)
        end_of(query)

    changes = spark.read.parquet(str(tmp_path / "out")).toArrow()
    assert told(changes) == sorted(one for one in decoded(topic) if one[0] <= end)
    lake = tidegate.lake(str(finished))
    now = folded(changes, list(lake.definition(NAME).handle_key), lake.checkpoint_ts)
    rows = lake.arrow(NAME)
    assert sorted(map(repr, now.select(rows.column_names).to_pylist())) == sorted(map(repr, rows.to_pylist()))


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["open", "canal"])
def test_kills_at_random(bootstrap: str, tmp_path: Path, kind: str) -> None:
    """Python, JVM and all killed at any time, again and again, then run to the end: each change of the topic once."""
    topic, random = Topic.fed(bootstrap, f"streams-killed-{kind}", kind, recorded(kind)), chance("stream", kind)
    words, program = (topic.uri(), str(tmp_path), str(moment_ts(LAST))), (sys.executable, "-m", __name__)
    for number in range(KILLS):
        with running(words, tmp_path / f"life-{number}", program) as life:
            life.reach(lambda report: "started" in report)
            time.sleep(random.uniform(0, LIFE_S))
            life.signal_group(signal.SIGKILL)
    with running(words, tmp_path / "last", program) as life:
        last = life.reach(lambda report: "told" in report)

    end = last["end"]
    assert [tuple(one) for one in last["told"]] == sorted(one for one in decoded(topic) if one[0] <= end)


def main(uri: str, home: str, goal: str) -> None:
    """Run the query until it has brought all up to a ts, in a process that somebody may kill."""
    spark = session()
    tidegate.register(spark)
    query = streamed(spark.readStream, uri, Path(home)).start()
    print(json.dumps({"started": True}), flush=True)  # noqa: T201
    while (end := reached(query)) < int(goal):
        time.sleep(0.05)
    query.stop()
    rows = spark.read.parquet(f"{home}/out").toArrow()
    print(json.dumps({"end": end, "told": told(rows)}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:4])
