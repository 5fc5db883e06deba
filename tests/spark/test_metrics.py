"""What a person sees of feeds and streams in Spark: gauges, names of jobs, and progress of queries."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from pyspark import SparkContext
from pyspark.sql.streaming import StreamingQueryListener

import tidegate
from tests.engine.test_chain import Upstream
from tidegate.spark.session import session
from tidegate.spark.tasks import show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    """A Spark with its UI, and no other that an earlier test has left."""
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    started = session(conf={"spark.ui.enabled": "true", "spark.ui.port": "0"})
    yield started
    started.stop()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A change log with some work in it."""
    upstream = Upstream(3, tmp_path_factory.mktemp("upstream"))
    for _ in range(20):
        upstream.work()
    upstream.writer.write(empty=True)
    return upstream.writer.segments.directory


def asked(spark: "SparkSession", path: str) -> Any:
    """What the UI answers."""
    with urlopen(f"{spark.sparkContext.uiWebUrl}{path}") as answer:
        return json.load(answer)


def test_a_spark_that_another_thread_begins_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark names the session before it has a JVM; a feed that reports meanwhile goes on."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", object.__new__(SparkContext))
    show("shop", {"rows": 1})


def test_a_feed(spark: "SparkSession", log: Path, tmp_path: Path) -> None:
    """Counts of its progress are gauges, also of a second run in the same Spark; its jobs say what they do."""
    for _ in range(2):
        done = tidegate.Changefeed(f"tidb://{log}", f"delta://{tmp_path / 'lake'}", name="shop").run(spark, idle_s=0)
        found = asked(spark, "/metrics/json/")["gauges"]
        told = {name.rpartition("tidegate.shop.")[2]: one["value"] for name, one in found.items() if "tidegate" in name}
        assert told["rows"] == done.rows
        assert told["rows_landed"] == done.rows_landed
        assert told["ddls"] == done.ddls
    jobs = asked(spark, f"/api/v1/applications/{spark.sparkContext.applicationId}/jobs")
    assert {job["description"] for job in jobs if "description" in job} == {"shop/land: land_split", "round: run_bin"}
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


class Heard(StreamingQueryListener):
    """Keeps what a query reports."""

    def __init__(self) -> None:
        self.reports: list[Any] = []

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's name
        """Nothing to keep."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Keep it."""
        self.reports.append(event.progress)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Nothing to keep."""


@pytest.mark.more
def test_a_stream(spark: "SparkSession", log: Path, tmp_path: Path) -> None:
    """A listener hears how many changes came, how fast, and up to which ts."""
    tidegate.register(spark)
    heard = Heard()
    spark.streams.addListener(heard)
    changes = spark.readStream.format("tidegate").option("state", str(tmp_path / "state")).load(f"tidb://{log}")
    start = changes.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = start.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    while not heard.reports:
        assert query.exception() is None
        time.sleep(0.1)
    query.processAllAvailable()
    query.stop()
    spark.streams.removeListener(heard)

    rows = spark.read.parquet(str(tmp_path / "out")).count()
    assert sum(report.numInputRows for report in heard.reports) == rows > 0
    assert max(report.processedRowsPerSecond for report in heard.reports) > 0
