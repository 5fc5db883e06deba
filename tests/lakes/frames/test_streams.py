"""The format `tidegate` over a source, without a lake: a change log, and a topic of a real broker."""

import ast
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

import tidegate
from tests.engine.test_chain import Upstream, in_order
from tests.source.tidb.kit import Broker, feed, target
from tidegate.engine.dispatch import SplitPolicy
from tidegate.lakes.data_source import ChangesSource, ChangesStream
from tidegate.model.errors import ConfigError, HistoryLost
from tidegate.model.event import Ddl, images
from tidegate.source.tidb_segment import SegmentLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

STORY = (
    "INSERT INTO a VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3)",
    "UPDATE a SET v = 20 WHERE id = 2; DELETE FROM a WHERE id = 3; INSERT INTO b VALUES (1, 1, 1)",
    "ALTER TABLE a ADD COLUMN more INT; UPDATE a SET more = 7, id = 9 WHERE id = 1; UPDATE b SET v = 5",
    "TRUNCATE TABLE a; INSERT INTO a VALUES (4, 4, 4, 4)",
)


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    """One Spark for this file, which knows the formats."""
    from tidegate.spark.session import session

    started = session()
    tidegate.register(started)
    yield started
    started.stop()


def played(home: Path, *story: str) -> Upstream:
    """A database that has done some of the story, with its log."""
    upstream = Upstream(1, home / "log")
    tell(upstream, *story)
    return upstream


def tell(upstream: Upstream, *story: str) -> None:
    """Go on with the story."""
    for sql in story:
        upstream.run(sql)
    upstream.writer.write(empty=True)


def test_a_range_of_changes(spark: "SparkSession", tmp_path: Path) -> None:
    """Changes of one table as pairs of images, with the columns of now."""
    played(tmp_path, *STORY)
    read = spark.read.format("tidegate").option("table", "test.a").option("state", str(tmp_path / "state"))

    rows = read.option("form", "changes").load(f"tidb://{tmp_path / 'log'}").collect()

    told = [(row.op, row.before and row.before.asDict(), row.after and row.after.asDict()) for row in rows]
    image = {"id": 1, "v": 1, "u": 1, "more": None}
    old = [image, image | {"id": 2, "v": 2, "u": 2}, image | {"id": 3, "v": 3, "u": 3}]
    assert sorted(map(repr, told)) == sorted(
        map(
            repr,
            [
                *(("INSERT", None, one) for one in old),
                ("UPDATE", old[1], old[1] | {"v": 20}),
                ("DELETE", old[2], None),
                ("DELETE", old[0], None),  # a row whose key changes leaves and comes
                ("INSERT", None, image | {"id": 9, "more": 7}),
                ("INSERT", None, {"id": 4, "v": 4, "u": 4, "more": 4}),
            ],
        )
    )
    assert [row.commit_ts for row in rows] == sorted(row.commit_ts for row in rows)


def test_a_stream_of_all_tables_over_stops(spark: "SparkSession", tmp_path: Path) -> None:
    """Stopped and started, with DDLs in between: what a range brings, each row once."""
    log, stops = f"tidb://{tmp_path / 'log'}", len(STORY)
    upstream = played(tmp_path)
    stream = spark.readStream.format("tidegate").option("state", str(tmp_path / "state")).load(log)
    start = stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    start = start.option("checkpointLocation", str(tmp_path / "checkpoint"))

    for number in range(stops):
        tell(upstream, STORY[number])
        query = start.start()
        until(query, tmp_path / "log")
        query.stop()

    whole = spark.read.format("tidegate").option("state", str(tmp_path / "other")).load(log).collect()
    streamed = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(map(repr, streamed)) == sorted(map(repr, whole))
    assert {(row.schema, row.table) for row in whole} == {("test", "a"), ("test", "b")}
    assert {row.after.get("more") for row in whole if row.op == "INSERT"} == {None, "7", "4"}


def test_a_stream_of_a_live_upstream(spark: "SparkSession", tmp_path: Path) -> None:
    """People work and tables change while the query runs: it brings the changes that the mounter gives, each once."""
    upstream, log = Upstream(7, tmp_path / "log"), tmp_path / "log"
    upstream.writer.write(empty=True)
    stream = spark.readStream.format("tidegate").option("state", str(tmp_path / "state")).load(f"tidb://{log}")
    start = stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = start.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    for _ in range(60):
        upstream.work()
        upstream.writer.write(empty=True)
        time.sleep(0.05)
    until(query, log)
    query.stop()

    broker = Broker(1)
    whole = replace(target(broker, "open-protocol"), policy=SplitPolicy(unique_keys=False))
    feed(log, whole, tmp_path / "mounted", rules=("test.*",), force=False).run(idle_s=0)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    streamed = [(row.op, row.table, row.commit_ts, image(row.before), image(row.after)) for row in rows]
    mounted = [change(event) for event in in_order(broker.events("open-protocol")) if not isinstance(event, Ddl)]
    assert len(mounted) > 50
    assert sorted(map(repr, streamed)) == sorted(map(repr, mounted))


def change(event: Any) -> tuple[Any, ...]:
    """A row event as a row of all tables."""
    names = [field.name for field in event.fields]
    sides = [image(one and dict(zip(names, one, strict=True))) for one in images(event)]
    return type(event).__name__.upper(), event.table, event.commit_ts, *sides


def image(row: dict[str, Any] | None) -> list[tuple[str, str]] | None:
    """A row to be compared."""
    return row and sorted((name, str(value)) for name, value in row.items())


def until(query: Any, log: Path) -> None:
    """Wait until a query has brought all that the log has."""
    goal = SegmentLog(log).parts(0)[-1].high
    while (done := query.lastProgress) is None or ast.literal_eval(done.sources[0].endOffset)["ts"] < goal:
        assert query.exception() is None
        time.sleep(0.1)


def test_a_stream_of_what_is_there(spark: "SparkSession", tmp_path: Path) -> None:
    """Runs with `availableNow` take all that the source has, each change once over the runs."""
    log, upstream, counts = f"tidb://{tmp_path / 'log'}", played(tmp_path), []
    for sql in STORY[:2]:
        tell(upstream, sql)
        stream = spark.readStream.format("tidegate").option("state", str(tmp_path / "state")).load(log)
        start = stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        start = start.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        start.start().awaitTermination(60)
        counts.append(spark.read.parquet(str(tmp_path / "out")).count())

    assert counts == [3, 6]


def test_what_a_query_has_read_is_gone(tmp_path: Path) -> None:
    """A state goes with one query; a second one from the beginning is told so."""
    played(tmp_path, *STORY[:2])
    asked = {"path": f"tidb://{tmp_path / 'log'}", "state": str(tmp_path / "state"), "table": "test.a"}
    source = ChangesSource(asked)
    stream = source.streamReader(source.schema())
    first = stream.initialOffset()
    while (end := stream.latestOffset()) == first:
        pass
    assert stream.partitions(first, end)
    stream.commit(end)
    stream.stop()

    again = ChangesStream(asked, source._form)
    assert again.initialOffset() == end
    with pytest.raises(HistoryLost, match="Use a separate `state` for each query"):
        again.partitions(first, end)
    again.stop()


def test_a_table_that_nobody_told(tmp_path: Path) -> None:
    """The error names the tables that are there; without a state, and for a wrong form, it says what to give."""
    played(tmp_path, *STORY[:1])
    asked = {"path": f"tidb://{tmp_path / 'log'}", "state": str(tmp_path / "state"), "filter": "*.*"}

    with pytest.raises(ConfigError, match=r"has told no table test.x; it has: test.a, test.b"):
        ChangesSource({**asked, "table": "test.x"})
    with pytest.raises(ConfigError, match="option 'state' is missing"):
        ChangesSource({"path": asked["path"]})
    with pytest.raises(ConfigError, match="option 'form' is images or changes"):
        ChangesSource({**asked, "form": "rows"})
