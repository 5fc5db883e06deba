"""One Spark for all changefeeds: started by the first that needs it, started anew when its JVM has died.

    feed a ── tasks, pool a ──┐
    feed b ── tasks, pool b ──┴─► session (FAIR between pools) ── JVM dies ──► both meet SparkEnded
                                                                     └─ the first to come starts another one

A changefeed that waits for rows needs none, so a server without work has no JVM.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidegate.spark.tasks import SparkTasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAIR: Final = {"spark.scheduler.mode": "FAIR"}


class SparkHost:
    """The session that `open_session` starts."""

    def __init__(self, open_session: "Callable[[], SparkSession]") -> None:
        self._open = open_session
        self._lock = threading.Lock()
        self._spark: SparkSession | None = None
        self.starts = 0
        """How often a session was started."""

    def tasks(self, pool: str) -> SparkTasks:
        """Return tasks of a pool; no session is started before they run."""
        return SparkTasks(open_session=self.session, pool=pool)

    def session(self) -> "SparkSession":
        """Return the session that runs, or start one."""
        with self._lock:
            if self._spark is None:
                self._spark = self._open()
                self.starts += 1
            return self._spark

    def renew(self) -> None:
        """Let go of the session, unless somebody else has started another one since it ended."""
        from tidegate.spark.session import forget_session

        with self._lock:
            if self._spark is not None and not _lives(self._spark):
                forget_session()
                self._spark = None


def _lives(spark: "SparkSession") -> bool:
    from tidegate.spark.fitness import SPARK_FAILURES

    try:
        return not spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001
    except (*SPARK_FAILURES, AttributeError, OSError):
        return False
