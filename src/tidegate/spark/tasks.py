"""Jobs as Spark tasks, one task per job without DataFrames, and the counts of changefeeds in Spark's metrics.

    driver   [job, job, job] ──parallelize──► worker: work(job)      one task per job, in parallel
             [answer, answer, answer]  ◄──────  answer, or the Tidegate error that it raised

Only plans and reports travel this way, some kilobytes per job, and no rows.  A Tidegate error is returned as a value,
since Spark would turn it into text between two stack traces; `run` raises it once every task has ended.

    SparkTasks              jobs of the rounds
      └ aside("shop/land")  jobs of a group of their own (a tag over Spark Connect), which `cancel` ends

With a pool, Spark schedules its slots fairly between pools instead of jobs in order (`spark.scheduler.mode` FAIR).  A
session of Spark Connect has no `parallelize`; session.py runs its jobs.

Counts of a changefeed are accumulators of the JVM, registered once per application, which Spark shows in its UI and
sends to all of its metrics sinks.  Spark Connect has no JVM to register with.

    <application>.driver.AccumulatorSource.tidegate.shop.rows        http://DRIVER:4040/metrics/json, Prometheus, …

Source: Spark's LongAccumulatorSource.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from tidegate.model.errors import (
    EnvironmentFault,
    Redaction,
    SinkError,
    SourceError,
    TidegateError,
    redaction,
    set_redaction,
)
from tidegate.spark.session import (
    FEED_HEAP,
    SPARK_FAILURES,
    check_session,
    is_connect,
    reason,
    run_connected,
    session,
    slots_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION: Final = "spark.job.description"
POOL: Final = "spark.scheduler.pool"


class SparkEnded(EnvironmentFault):
    """Spark has ended: a retry does not help, a new session does."""


class SparkTasks:
    """Runs jobs as tasks of Spark, which starts with the first of them unless a session is given."""

    def __init__(
        self,
        spark: "SparkSession | None" = None,
        open_session: "Callable[[], SparkSession] | None" = None,
        pool: str | None = None,
    ) -> None:
        self._spark, self._open, self._pool = spark, open_session or feed_session, pool
        self._group: str | None = None
        self._slots: int | None = None
        self._lost: type[TidegateError] = SinkError
        self._announced: Callable[[str], None] = lambda _: None

    def on_start(self, listener: Callable[[str], None]) -> None:
        self._announced = listener

    @property
    def slots(self) -> int:
        spark = self._session()
        if not is_connect(spark):
            return _slots(spark)
        if self._slots is None:
            self._slots = _slots(spark)
        return self._slots

    def run(self, work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        """Return the answers of `work` to `jobs`, in their order.

        Raises the first Tidegate error; SinkError, aside SourceError, for a task that ended without an answer;
        SparkEnded when Spark is gone."""
        if not jobs:
            return []
        spark = self._session()
        try:
            if is_connect(spark):
                return _checked(run_connected(spark, partial(_outcome, work, redaction()), jobs, self._group))
            with self._described(spark.sparkContext, work):
                return run_tasks(spark, work, jobs)
        except FileNotFoundError as gone:  # Spark's scratch directory, which it makes once
            raise _ended(gone) from gone
        except (*SPARK_FAILURES, OSError) as died:
            _slots(spark)  # raises when it is Spark itself that ended
            raise self._lost(f"a Spark worker terminated without a result: {reason(died)}") from died

    def aside(self, name: str) -> "SparkTasks":
        tasks = SparkTasks(open_session=self._session, pool=self._pool)
        tasks._group, tasks._lost = f"{name.replace(',', ' ')} {uuid.uuid4().hex[:8]}", SourceError
        return tasks

    def cancel(self) -> None:
        """Cancel the running tasks of this activity; their `run` raises."""
        if self._group is None or (spark := self._spark) is None:
            return
        if is_connect(spark):
            spark.interruptTag(self._group)
        else:
            spark.sparkContext.cancelJobGroup(self._group)

    @contextmanager
    def _described(self, context: "SparkContext", work: Callable[[Any], Any]) -> Iterator[None]:
        """Describe jobs in Spark's UI: `shop/land: land_range`, `round: run_bin`."""
        what = getattr(getattr(work, "func", work), "__name__", type(work).__name__).lstrip("_")
        if self._pool is not None:
            context.setLocalProperty(POOL, self._pool)
        if self._group is not None:
            context.setJobGroup(self._group, f"{self._group.partition(' ')[0]}: {what}")
            yield
            return
        before = context.getLocalProperty(DESCRIPTION)
        context.setLocalProperty(DESCRIPTION, f"round: {what}")
        try:
            yield
        finally:
            context.setLocalProperty(DESCRIPTION, before)

    def _session(self) -> "SparkSession":
        """The session, opened once. Raises SparkEnded when its JVM has ended."""
        if self._spark is None:
            self._announced("the start of Spark")
            try:
                self._spark = self._open()
            except (*SPARK_FAILURES, OSError) as gone:
                raise _ended(gone) from gone
            finally:
                self._announced("")
        return self._spark


def _slots(spark: "SparkSession") -> int:
    try:
        return slots_of(spark) if is_connect(spark) else int(spark.sparkContext.defaultParallelism)
    except (*SPARK_FAILURES, AttributeError, OSError) as gone:
        raise _ended(gone) from gone


def _ended(gone: Exception) -> SparkEnded:
    return SparkEnded(f"Spark has terminated ({reason(gone)}); start the changefeed again")


def feed_session(conf: Mapping[str, str] | None = None, archive: Path | None = None) -> "SparkSession":
    """Return a session that runs feeds, started with these settings unless there is one."""
    spark = session(driver_memory=FEED_HEAP, conf=conf, archive=archive)
    check_session(spark)
    return spark


def run_tasks(spark: "SparkSession", work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
    """Return the answers of `work` to `jobs`, in their order. Raises the first Tidegate error, or one of
    SPARK_FAILURES."""
    if not jobs:
        return []
    return _checked(spark.sparkContext.parallelize(jobs, len(jobs)).map(partial(_outcome, work, redaction())).collect())


def _checked(outcomes: Sequence[Any]) -> list[Any]:
    for outcome in outcomes:
        if isinstance(outcome, TidegateError):
            raise outcome
    return list(outcomes)


def _outcome(work: Callable[[Any], Any], mode: Redaction, job: Any) -> Any:
    set_redaction(mode)
    try:
        return work(job)
    except TidegateError as error:
        return error


# ruff: noqa: SLF001  PySpark has no public way to its JVM


def show(feed: str, counts: Mapping[str, int]) -> None:
    """Set the gauges `tidegate.<feed>.<count>` in the Spark of this process, if there is one."""
    context = SparkContext._active_spark_context
    if getattr(context, "_jsc", None) is None:  # none, one that has ended, or one that another thread is beginning
        return
    with suppress(Py4JError, OSError):  # a Spark that ends now shows nothing
        gauges = _gauges(context, feed, tuple(counts))
        for name, value in counts.items():
            gauges[name].setValue(value)


@lru_cache(maxsize=64)
def _gauges(context: SparkContext, feed: str, names: tuple[str, ...]) -> dict[str, Any]:
    spark, jvm = context._jsc.sc(), context._jvm
    counters = {name: spark.longAccumulator(f"tidegate.{feed}.{name}") for name in names}
    named = {f"tidegate.{feed}.{name}": gauge for name, gauge in counters.items()}
    source = getattr(jvm.org.apache.spark.metrics.source, "LongAccumulatorSource$")
    getattr(source, "MODULE$").register(spark, jvm.PythonUtils.toScalaMap(named))
    return counters
