"""What a session must have, and the line that adds what it lacks.

    used by                     what it needs
    feeds, formats, decode      workers with the driver's Python version and with this release of Tidegate
    lake.table, lake.sql        for tables of many rows: Delta's jar, extension and catalog; dates as they were written

Spark tells a lack in the middle of a job, as a text amid two stack traces: `lack_of` finds it there.  Everything else
that Spark raises is a failure that may pass.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final
from weakref import WeakSet

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from tidegate.model.errors import EnvironmentFault
from tidegate.spark.archive import EXECUTORS_PYTHON, UNPACKED
from tidegate.spark.connect import is_connect, run_connected
from tidegate.spark.daemon import WARM
from tidegate.spark.session import DELTA, WORKERS_PYTHON

SPARK_FAILURES: Final = (Py4JError, PySparkException)
"""What Spark raises when a task ended without an answer, or when the JVM is gone."""
TRACEBACK: Final = "Traceback (most recent call last):"
DELTA_JAR: Final = "io.delta:delta-spark_4.1_2.13:4.4.0"
REBASE: Final = "spark.sql.parquet.datetimeRebaseModeInRead"
"""With another value than CORRECTED dates before 1582 are read as other days, or not at all."""
HERE: Final = 'os.environ["PYSPARK_PYTHON"] = "{}"'
WITHOUT_DELTA: Final = 'read with spark.read.format("tidegate-lake")'
NO_DELTA: Final = "the session has no Delta; SparkSession.builder{}, or {}".format(
    "".join(f'.config("{name}", "{value}")' for name, value in {"spark.jars.packages": DELTA_JAR, **DELTA}.items()),
    WITHOUT_DELTA,
)

_fit: "WeakSet[Any]" = WeakSet()


def check_session(spark: Any) -> None:
    """Let a worker of a session answer once. EnvironmentFault with the line to add if it cannot run Tidegate."""
    if spark in _fit:
        return
    names = [name for name in WARM if find_spec(name.partition(".")[0]) is not None]
    try:
        with lacks_told(spark):
            found = (
                run_connected(spark, _release, [names])
                if is_connect(spark)
                else spark.sparkContext.parallelize([names], 1).map(_release).collect()
            )
    except SPARK_FAILURES:  # whatever it is, the jobs that follow will tell it as well
        return
    if (theirs := found[0]) != (ours := version("tidegate")):
        raise EnvironmentFault(
            f"Spark's workers have Tidegate {theirs}, this program has {ours}; {_python_line(spark)}"
        )
    _fit.add(spark)


def _release(names: Sequence[str]) -> str:
    """Run in a worker: import what tasks need as far as the driver has it, and return which Tidegate is there."""
    for name in names:
        import_module(name)
    return version("tidegate")


def check_dates(spark: Any) -> None:
    """Raise EnvironmentFault for a session that reads dates of Parquet files as other days."""
    if (mode := str(spark.conf.get(REBASE, "CORRECTED"))) != "CORRECTED":
        raise EnvironmentFault(f'{REBASE} is {mode}, which changes old dates: spark.conf.set("{REBASE}", "CORRECTED")')


@contextmanager
def lacks_told(spark: Any) -> Iterator[None]:
    """Turn a failure of Spark into an EnvironmentFault if a lack of the session explains it."""
    try:
        yield
    except SPARK_FAILURES as failure:
        if (lack := lack_of(spark, failure)) is not None:
            raise EnvironmentFault(lack) from failure
        raise


def lack_of(spark: Any, failure: BaseException) -> str | None:
    """Return what a session lacks, as one of its failures tells it, and the line to add; None for other failures."""
    text = str(getattr(failure, "java_exception", failure))
    for pattern, told in LACKS:
        if found := pattern.search(text):
            return told.format(*found.groups(), python=_python_line(spark))
    return None


LACKS: Final = (
    (
        re.compile(r"PYTHON_VERSION_MISMATCH\D*(\d+\.\d+)\D*(\d+\.\d+)"),
        "Spark's workers run Python {0}, this program runs {1}; {python} (`tidegate pack --python` adds a Python)",
    ),
    (re.compile(r"No module named '([\w.]+)"), "Spark's workers have no module {0}; {python}"),
    (re.compile(r'Cannot run program "([^"]+)"'), "there is no {0} where Spark's workers run; {python}"),
    (re.compile(r"DATA_SOURCE_NOT_FOUND\] .*\bdelta\b|DELTA_CONFIGURE_SPARK_SESSION"), NO_DELTA),
    (re.compile(r'No FileSystem for scheme "(\w+)"'), "the session has no file system for {0}://; " + WITHOUT_DELTA),
)


def _python_line(spark: Any) -> str:
    """What gives workers a Python with Tidegate."""
    archive = f"{UNPACKED}.tar.gz#{UNPACKED}"
    if is_connect(spark):
        add = f'spark.addArtifacts("{archive}", archive=True); spark.conf.set("{WORKERS_PYTHON}", "{EXECUTORS_PYTHON}")'
    elif spark.sparkContext.master.partition("[")[0] == "local":
        return f"before the session is made: {HERE.format(sys.executable)}"
    else:
        add = f'{HERE.format(EXECUTORS_PYTHON)}; SparkSession.builder.config("spark.archives", "{archive}")'
    return f"after `tidegate pack {UNPACKED}.tar.gz`: {add} (tidegate run: --archive {UNPACKED}.tar.gz)"


def reason(failure: BaseException) -> str:
    """Return one line of what a Spark failure says: what Python raised in a worker, else the first line."""
    text = str(getattr(failure, "java_exception", failure))
    lines = text.partition(TRACEBACK)[2].splitlines() or text.splitlines()
    raised = [line for line in lines if line.strip() and not line[0].isspace()] if TRACEBACK in text else lines
    return raised[0].strip() if raised else type(failure).__name__
