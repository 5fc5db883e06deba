"""A topic of a real broker as a stream of Spark, without a lake: the format `tidegate`."""

import ast
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidegate
from tests.e2e.rig import LAST, PROTOCOLS, Topic, moment_ts
from tidegate.codec import decode, from_config
from tidegate.model.event import Delete, Insert, Update, images
from tidegate.sink.delta.changelog_rows import folded
from tidegate.source.kafka.client import KafkaTopics
from tidegate.source.kafka.fetch import messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.slow

NAME = "bank.accounts"
SIDES = {"Insert": ("", "insert"), "Delete": ("delete", ""), "Update": ("update_preimage", "update_postimage")}


def decoded(topic: Topic) -> set[tuple[int, str, int]]:
    """(commit_ts, what the image is, id) of all images of the table, as `tidegate decode` has them."""
    options, found = from_config({"protocol": PROTOCOLS[topic.kind]}), set()
    for key, value, _ in messages(KafkaTopics(topic.bootstrap, (topic.name,), options)):
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


@pytest.mark.parametrize("kind", ["open_topic", pytest.param("canal_topic", marks=pytest.mark.soak)])
def test_a_topic_as_a_stream(
    spark: "SparkSession", finished: Path, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """Stopped and started, in small micro-batches: each change of the topic once, and they make the lake's table."""
    topic: Topic = request.getfixturevalue(kind)
    tidegate.register(spark)
    reader = spark.readStream.format("tidegate").option("table", NAME).option("state", str(tmp_path / "state"))
    stream = reader.option("maxRowsPerBatch", "2000").load(topic.uri())
    start = stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    start = start.option("checkpointLocation", str(tmp_path / "checkpoint"))

    for goal in (1, 2, moment_ts(LAST)):
        query = start.start()
        while (end := reached(query)) < goal:
            time.sleep(0.05)
        query.stop()

    changes = spark.read.parquet(str(tmp_path / "out")).toArrow()
    told = list(zip(*(changes.column(name).to_pylist() for name in ("_commit_ts", "_change_type", "id")), strict=True))
    assert sorted(told) == sorted(one for one in decoded(topic) if one[0] <= end)
    lake = tidegate.lake(str(finished))
    now = folded(changes, list(lake.definition(NAME).handle_key), lake.checkpoint_ts)
    rows = lake.arrow(NAME)
    assert sorted(map(repr, now.select(rows.column_names).to_pylist())) == sorted(map(repr, rows.to_pylist()))
