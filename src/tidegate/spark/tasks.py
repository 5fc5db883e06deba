"""Jobs as tasks of Spark: one task a job, plain Python in, plain Python out, no DataFrame.

    driver   [job, job, job] ──parallelize──► worker: work(job)      a task each, at the same time
             [answer, answer, answer]  ◄──────  answer, or the error of ours that it raised

Rows do not travel this way, only plans and reports: some kilobytes a job.  An error of ours comes back as a value,
since Spark would turn it into a text amid two stack traces; `run_tasks` raises it once every task has ended.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from tidegate.model.errors import TidegateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SPARK_FAILURES", "reason", "run_tasks"]

SPARK_FAILURES: Final = (Py4JError, PySparkException)
"""What Spark raises when a task ended without an answer, or when the JVM is gone."""
TRACEBACK: Final = "Traceback (most recent call last):"


def run_tasks(spark: "SparkSession", work: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
    """The answers of `work` to `jobs`, in their order. Raises the first error of ours, or one of SPARK_FAILURES."""
    if not jobs:
        return []
    outcomes = spark.sparkContext.parallelize(jobs, len(jobs)).map(partial(_outcome, work)).collect()
    for outcome in outcomes:
        if isinstance(outcome, TidegateError):
            raise outcome
    return list(outcomes)


def reason(failure: BaseException) -> str:
    """One line of what a Spark failure says: what Python raised in a worker, else the first line."""
    text = str(getattr(failure, "java_exception", failure))
    lines = text.partition(TRACEBACK)[2].splitlines() or text.splitlines()
    raised = [line for line in lines if line.strip() and not line[0].isspace()] if TRACEBACK in text else lines
    return raised[0].strip() if raised else type(failure).__name__


def _outcome(work: Callable[[Any], Any], job: Any) -> Any:
    try:
        return work(job)
    except TidegateError as error:
        return error
