"""Jobs in Spark's workers: answers in order, errors of ours as themselves, Spark's own in one line."""

import os
import subprocess
import sys

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError

from tidegate.model.errors import HistoryLost, Retry, TidegateError
from tidegate.spark.session import session
from tidegate.spark.tasks import SPARK_FAILURES, SparkEnded, SparkTasks, reason, run_tasks

SPARK_GONE = (Py4JNetworkError("Answer from Java side is empty"), PySparkRuntimeError("[JAVA_GATEWAY_EXITED]"))


class FromJava(Exception):
    """As py4j raises it."""

    def __init__(self, text: str) -> None:
        super().__init__("An error occurred while calling o1.collect")
        self.java_exception = text


UNBORN = """\
org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 0.0 (TID 0) (localhost executor driver): org.apache.spark.SparkException:
Error from python worker:
  {}
PYTHONPATH was:
  /srv/job
org.apache.spark.SparkException: No port number in pyspark.daemon's stdout
\tat org.apache.spark.api.python.PythonWorkerFactory.startDaemon(PythonWorkerFactory.scala:1)"""
SHADOWED = """\
Could not import runpy module
  Traceback (most recent call last):
    File "<frozen runpy>", line 15, in <module>
    File "/usr/lib/python3.11/functools.py", line 22, in <module>
      from types import GenericAlias
  ImportError: cannot import name 'GenericAlias' from 'types' (/srv/types.py)
  """
"""What Spark tells of a Python that does not come up, and such a Python's words."""


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        (
            FromJava(
                "org.apache.spark.SparkException: Job aborted: Lost task 0.0: PythonException: "
                'Traceback (most recent call last):\n  File "worker.py", line 1, in main\n    work()\n'
                "ValueError: four\n\n\tat org.apache.spark.api.python.Reader.read(Reader.scala:1)\n"
            ),
            "ValueError: four",
        ),
        (FromJava(UNBORN.format(SHADOWED)),
         "ImportError: cannot import name 'GenericAlias' from 'types' (/srv/types.py)"),
        (FromJava(UNBORN.format("Fatal Python error: no memory\n  Python runtime state: core\n  ")),
         "Fatal Python error: no memory"),
        (FromJava("org.apache.spark.SparkException: Job 3 cancelled\n\tat x.y(Z.java:1)"),
         "org.apache.spark.SparkException: Job 3 cancelled"),
        (ConnectionError(), "ConnectionError"),
    ],
)  # fmt: skip
def test_reason(failure: Exception, line: str) -> None:
    """What Python raised in a worker, or at its start, counts for more than what Java says about it."""
    assert reason(failure) == line


@pytest.mark.parametrize("refused", [ConnectionRefusedError("no JVM"), *SPARK_GONE], ids=lambda one: type(one).__name__)
def test_session_of_a_dead_jvm(refused: Exception) -> None:
    """A JVM that has ended before its session was asked for ends the feed; nobody waits for it."""

    def opened() -> None:
        raise refused

    for ask in (lambda tasks: tasks.run(str, [1]), lambda tasks: tasks.slots):
        with pytest.raises(SparkEnded, match="start the changefeed again") as ended:
            ask(SparkTasks(open_session=opened))
        assert ended.value.retry is Retry.NEVER


@pytest.mark.slow
def test_tasks() -> None:
    """Answers come in the order of the jobs; an error of ours is raised as what it was, others as Spark's."""
    spark = session()

    def double(job: int) -> int:
        """An answer, or one of three ways to have none."""
        if job == 3:
            raise HistoryLost("offset 3 is gone")
        if job == 4:
            raise ValueError("four\n  is too many")
        if job == 5:
            os._exit(1)
        return 2 * job

    assert run_tasks(spark, double, []) == []
    assert run_tasks(spark, double, [2, 0, 1]) == [4, 0, 2]
    with pytest.raises(HistoryLost, match="offset 3 is gone") as caught:
        run_tasks(spark, double, [1, 3])
    assert isinstance(caught.value, TidegateError)
    with pytest.raises(SPARK_FAILURES) as raised:
        run_tasks(spark, double, [4])
    assert reason(raised.value) == "ValueError: four"
    with pytest.raises(SPARK_FAILURES) as died:
        run_tasks(spark, double, [5])
    assert "worker" in reason(died.value)


WITHOUT_JAVA = """
from tidegate.model.errors import EnvironmentFault
from tidegate.spark.session import session
from tidegate.spark.tasks import SparkTasks

spark = session()
for tasks in (SparkTasks(spark), SparkTasks(spark).aside("a feed/land")):
    assert tasks.run(str, [1]) == ["1"]
java = spark.sparkContext._gateway.proc
java.kill()
java.wait()
for tasks in (SparkTasks(spark), SparkTasks(spark).aside("a feed/land")):
    try:
        tasks.run(str, [1])
    except EnvironmentFault as fault:
        print(fault)
"""


@pytest.mark.slow
def test_spark_that_is_gone() -> None:
    """A JVM that has died does not come back: the error says so, and nothing is tried again."""
    ran = subprocess.run([sys.executable, "-c", WITHOUT_JAVA], capture_output=True, text=True, check=True)

    told = ran.stdout.splitlines()
    assert len(told) == 2
    assert all("Spark has terminated" in line and "start the changefeed again" in line for line in told)
