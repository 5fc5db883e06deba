"""Spark sessions: the existing one or a new one, its Python, jobs over Spark Connect, and checks of its requirements.

    already running (notebook, cluster, test)      -> that one, as it is
    started by spark-submit                        -> its JVM and master, our SQL settings
    nothing yet, and the settings name a cluster   -> a driver's JVM of ours, executors with our archive
    nothing yet                                    -> local[cores] in a JVM of ours: Java found, Delta's jars, loopback

`SQL` holds the settings of every session started here; `DRIVER` those of a JVM of ours, for memory and directories;
`LOCAL` those where all of Spark is this machine.  Local workers run the current interpreter; executors of a cluster run
that of an archive (archive.py), unless `spark.pyspark.python` names one.  Executors get the object-store credentials of
this process's environment from the driver, never on a command line.  The JVM ends with its driver, and what it writes
(shuffle, artifacts, warehouse) lies in one temporary directory that is removed at exit.

Spark puts its own sources first on the path of its Python processes, as archives from which nothing loads compiled:

    java ──► <cache>/python/<digest>/bin/python -m …     PYTHONPATH=pyspark.zip:py4j-….zip:spark-core_….jar:/srv/job
                 └─ exec ── python -m …                  PYTHONPATH=/srv/job

Importing PySpark from them takes most of a second instead of a third in each process, and each task reads their
directories anew, a tenth of a second.  The same sources are installed as a package, so a launcher drops the archives;
where the package is missing they stay.

Managed and serverless Spark offers Spark Connect alone, without a JVM here and without `sparkContext`:

    driver   work and jobs, pickled ──► range(n) in n partitions ──mapInArrow──► worker: work(jobs[i])
             [(i, answer), ..]     ◄────────────────────────────────────────── answer or error, pickled

A round trip takes some 0.4 s instead of 0.03 s, so rounds are larger and fewer.

    used by                     what the session must have
    feeds, formats, decode      workers with the driver's Python version and with this release of Tidegate
    lake.table, lake.sql        for tables of many rows: Delta's jar, extension and catalog; dates as they were written

Spark reports a missing requirement in the middle of a job, as text between two stack traces; `lack_of` finds it there
and names the setting to add.  Every other error of Spark is treated as transient.

Source: Spark configuration; Delta's configuration (`DeltaSQLConf`); Spark's PythonUtils.sparkPythonPath; Python's
zipimport.
"""

import atexit
import hashlib
import importlib.util
import os
import pickle
import re
import shlex
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from tidegate.model.errors import EnvironmentFault, TidegateError
from tidegate.objectstore.threads import begin_thread
from tidegate.spark import daemon
from tidegate.spark.archive import EXECUTORS_PYTHON, UNPACKED, cached_archive
from tidegate.spark.cache import cache_dir, keep_program
from tidegate.spark.daemon import WARM
from tidegate.spark.java import ensure_jars, find_java
from tidegate.spark.versions import running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSTALLED: Final = ("pyspark", "py4j")
LAUNCHER: Final = """\
#!/bin/sh
# Starts the Python that runs Tidegate, without the archives that Spark puts on its path.
set -f
IFS=:
path=
for entry in $PYTHONPATH; do
  case "$entry" in
    */pyspark.zip | */py4j-*.zip | */spark-core_*.jar) ;;
    *) path=$path${{path:+:}}$entry ;;
  esac
done
PYTHONPATH=$path exec {python} "$@"
"""


def find_python() -> Path:
    """Return the program to name in PYSPARK_PYTHON."""
    for name in INSTALLED:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None or not Path(spec.origin).is_file():  # missing, or in an archive
            return Path(sys.executable)
    text = LAUNCHER.format(python=shlex.quote(sys.executable))
    home = cache_dir("python", hashlib.sha256(text.encode()).hexdigest()[:16], "bin")
    return keep_program(home / "python", text)


FEED_HEAP: Final = "1g"
"""The heap of a JVM that only plans and schedules; a feed's rows do not pass through it."""
OFF_HEAP: Final = ("-XX:MaxMetaspaceSize=384m", "-XX:ReservedCodeCacheSize=192m", "-XX:MaxDirectMemorySize=256m")
"""Limits of a JVM's memory outside its heap, which has none by default."""

DELTA: Final[Mapping[str, str]] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
SQL: Final[Mapping[str, str]] = {
    **DELTA,
    # One meaning of a time everywhere; MySQL's zoneless values travel as such.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # A Delta snapshot is replayed in one task: our tables have few files a commit, and fifty tasks cost a second.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stalenessLimit": "0",
    # Listing a directory as a Spark job pays off for thousands of paths, not for ours.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.sql.streaming.stopTimeout": "30s",
}

LOCAL: Final[Mapping[str, str]] = {
    # The name of a laptop or container often leads nowhere; loopback always works and nobody else can reach it.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

DRIVER: Final[Mapping[str, str]] = {
    # Forks workers that start quickly and need no memory between tasks.
    "spark.python.daemon.module": daemon.MODULE,
    # No file of the working directory takes the place of a module of Python; the daemon adds the directory as the last.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    # Parquet would read a column of a row group into one direct buffer, and these are bounded; the heap takes pieces.
    "spark.hadoop.parquet.hadoop.vectored.io.enabled": "false",
    # What the UI would show, kept short: a feed runs for weeks.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.ui.retainedDeadExecutors": "2",
}

WORKERS_PYTHON: Final = "spark.sql.execution.pyspark.python"
"""The setting for the workers' Python of one session; data sources are planned by the Python that registered them."""
CREDENTIALS: Final = ("AWS_", "AZURE_", "GOOGLE_")
"""Prefixes of the environment variables of object store clients."""
REDACTION: Final = "(?i)secret|password|token|credential|key|signature"


def session(
    *,
    app_name: str = "tidegate",
    cores: int | None = None,
    driver_memory: str = "2g",
    conf: Mapping[str, str] | None = None,
    archive: str | Path | None = None,
) -> "SparkSession":
    """Return the session to work with; the arguments count only when it has to be started. The first
    call on a machine fetches jars.

    Parameters:
        app_name: the name in Spark's UI
        cores: of this machine; by default all
        driver_memory: heap of the JVM, if it is ours
        conf: wins over our settings, `spark.master` and `spark.driver.extraJavaOptions` included
        archive: made by `tidegate pack`, for the executors of a cluster or the workers of a Connect server

    Raises EnvironmentFault: Java, PySpark or jars are missing

    >>> from tidegate.spark.session import session
    >>> session(app_name="shop", driver_memory="4g").range(3).count()
    3"""
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
        from pyspark.sql.utils import is_remote
    except ImportError as fault:
        raise EnvironmentFault(f"Spark is not installed ({fault}): pip install 'tidegate[spark]'") from fault
    if (active := SparkSession.getActiveSession()) is not None:
        return active
    if is_remote():  # that of Spark Connect may be another thread's
        with suppress(PySparkException):
            return SparkSession.active()
    builder = SparkSession.builder
    if SparkContext._active_spark_context is not None:  # noqa: SLF001  its context lives in another thread
        return builder.getOrCreate()
    conf = dict(conf or {})
    master = conf.get("spark.master", "local")
    if master.startswith("sc://"):
        spark = builder.remote(conf.pop("spark.master")).config(map=conf).getOrCreate()
        if archive is not None:
            spark.addArtifacts(f"{Path(archive).resolve()}#{UNPACKED}", archive=True)
            spark.conf.set(WORKERS_PYTHON, EXECUTORS_PYTHON)
        return spark
    settings, secret = {"spark.app.name": app_name, **SQL}, {}
    submitted, kind = "PYSPARK_GATEWAY_PORT" in os.environ, master.partition("[")[0]
    if not submitted:
        is_local = kind in {"local", "local-cluster"}
        settings |= _driver(driver_memory) | (_local(cores or _cores()) if is_local else _cluster(conf, archive))
    settings |= conf
    if submitted or kind != "local":
        credentials = {name: value for name, value in os.environ.items() if name.startswith(CREDENTIALS)}
        secret = {f"spark.executorEnv.{name}": value for name, value in credentials.items()}
        secret["spark.redaction.regex"] = REDACTION
    else:
        # Other users of the machine can reach the ports of loopback: they need the secret that Spark makes for itself.
        # It does not for a cluster, whose processes know one or have none.
        settings.setdefault("spark.authenticate", "true")

    def start() -> "SparkSession":
        # Starts the JVM with what stands on its command line; what is secret follows over its own socket.
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(settings.items()))  # noqa: SLF001
        return builder.config(map=secret | settings).getOrCreate()

    started = _uninterrupted(start if submitted else partial(_or_forgotten, start))
    if not submitted:
        started.sparkContext.setLogLevel("ERROR")
    return started


def _or_forgotten(start: "Callable[[], SparkSession]") -> "SparkSession":
    """Return the session that `start` makes; PySpark would ask a JVM that has died amid its start for ever."""
    try:
        return start()
    except (*SPARK_FAILURES, OSError):
        forget_session()
        raise


LOOK_S: Final = 0.1


def _uninterrupted(start: "Callable[[], SparkSession]") -> "SparkSession":
    """Return the session that `start` makes; an interrupt ends the wait for it, not a call of PySpark amid a half-made
    context. Beside the main thread PySpark leaves the handler of SIGINT as it is."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if threading.current_thread() is not threading.main_thread():
        return start()
    done = Future["SparkSession"]()

    def work() -> None:
        try:
            done.set_result(start())
        except (*SPARK_FAILURES, TidegateError, OSError, RuntimeError, ValueError) as error:
            done.set_exception(error)
        except BaseException as error:
            done.set_exception(error)
            raise

    thread = begin_thread(work, "spark-start")
    try:
        while thread.is_alive():
            thread.join(LOOK_S)
    except KeyboardInterrupt:
        if (java := getattr(SparkContext._gateway, "proc", None)) is not None:  # noqa: SLF001  spark-submit has its own
            java.kill()  # one that ends by itself prints traces
        raise
    started = done.result(0)
    java_class = getattr(SparkSession, "_get_j_spark_session_class", lambda jvm: jvm.SparkSession)  # Spark 3.5
    java_class(started._jvm).setActiveSession(started._jsparkSession)  # noqa: SLF001  of this thread
    return started


GONE_S: Final = 10.0
"""Time limit for the end of a dying process."""


def forget_session() -> None:
    """Forget a session whose JVM has died or is of no use, so that the next call of `session` starts another one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway, SparkContext._gateway = SparkContext._gateway, None  # noqa: SLF001
    SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001
    SparkSession._activeSession = None  # noqa: SLF001
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.kill()
        gateway.proc.wait(GONE_S)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _driver(memory: str) -> dict[str, str]:
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    jars = sorted(ensure_jars("spark").glob("*.jar"))
    scratch = tempfile.mkdtemp(prefix="tidegate-spark-")
    atexit.register(partial(shutil.rmtree, scratch, ignore_errors=True))
    logging = files("tidegate.spark").joinpath("log4j2.properties")
    java_options = (
        f"-Dlog4j2.configurationFile=file:{logging}",
        f"-Dderby.system.home={scratch}",
        f"-Djava.io.tmpdir={scratch}",
        "-XX:+UseParallelGC",
        *OFF_HEAP,
    )
    return {
        **DRIVER,
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
    }


def _local(cores: int) -> dict[str, str]:
    os.environ["PYSPARK_PYTHON"] = str(find_python())
    return {
        **LOCAL,
        "spark.master": f"local[{cores}]",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
    }


def _cluster(conf: Mapping[str, str], archive: str | Path | None) -> dict[str, str]:
    """Settings and environment for workers on other machines, where Tidegate is not installed."""
    if (python := conf.get("spark.pyspark.python")) is not None:
        os.environ["PYSPARK_PYTHON"] = python
        return {}
    os.environ["PYSPARK_PYTHON"] = EXECUTORS_PYTHON
    return {"spark.archives": f"{Path(archive or cached_archive()).resolve()}#{UNPACKED}"}


ANSWERS: Final = "number bigint, answer binary"
MANY: Final = 10_000


def is_connect(spark: Any) -> bool:
    """Return True for a session of Spark Connect, and for any other that gives no SparkContext away."""
    try:
        return spark.sparkContext is None
    except (AttributeError, NotImplementedError, OSError, RuntimeError, *SPARK_FAILURES):  # each platform has its own
        return True


def slots_of(spark: Any) -> int:
    """Return how many tasks the server runs at the same time: the number of parts into which it splits a range."""
    from pyspark.sql.functions import spark_partition_id

    return max(1, int(spark.range(MANY).select(spark_partition_id()).distinct().count()))


def run_connected(spark: Any, work: Callable[[Any], Any], jobs: Sequence[Any], tag: str | None = None) -> list[Any]:
    """Return the answers of `work` to `jobs`, in their order; `tag` names the operation for `interruptTag`."""
    from pyspark import cloudpickle

    payload = cloudpickle.dumps((work, list(jobs)))
    if tag is not None:
        spark.addTag(tag)
    try:
        numbers = spark.range(0, len(jobs), 1, len(jobs))
        rows = numbers.mapInArrow(partial(_answers, payload=payload), ANSWERS).collect()
    finally:
        if tag is not None:
            spark.removeTag(tag)
    answers = {row.number: pickle.loads(row.answer) for row in rows}  # noqa: S301  of our own tasks
    return [answers[number] for number in range(len(jobs))]


def _answers(batches: Iterable[pa.RecordBatch], payload: bytes) -> Iterator[pa.RecordBatch]:
    """Run in executors: map job numbers to answers."""
    work, jobs = pickle.loads(payload)  # noqa: S301  from our own driver
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield pa.RecordBatch.from_pydict({"number": [number], "answer": [pickle.dumps(work(jobs[number]))]})


SPARK_FAILURES: Final = (Py4JError, PySparkException)
"""Errors of Spark when a task ended without an answer, or the JVM is gone."""
TRACEBACK: Final = "Traceback (most recent call last):"
UNBORN: Final = "Error from python worker:"
"""The begin of the output of a Python that did not start, which Spark indents; the path follows."""
REBASE: Final = "spark.sql.parquet.datetimeRebaseModeInRead"
"""The setting for dates in Parquet: with another value than CORRECTED, dates before 1582 are read wrongly or not at
all."""
SET_PYTHON: Final = 'os.environ["PYSPARK_PYTHON"] = "{}"'
WITHOUT_DELTA: Final = 'read with spark.read.format("tidegate-lake")'
NO_DELTA: Final = "the session has no Delta; SparkSession.builder{}, or {}".format(
    "".join(f'.config("{name}", "{value}")' for name, value in {"spark.jars.packages": "{delta}", **DELTA}.items()),
    WITHOUT_DELTA,
)

_fit: "WeakSet[Any]" = WeakSet()


def check_session(spark: Any) -> None:
    """Run one job in a worker of a session. Raises EnvironmentFault with the line to add if it cannot run Tidegate, and
    for a version of Spark that is not supported."""
    if spark in _fit:
        return
    running(spark)
    names = [name for name in WARM if find_spec(name.partition(".")[0]) is not None]
    try:
        with explaining_lacks(spark):
            answer = (
                run_connected(spark, _release, [names])
                if is_connect(spark)
                else spark.sparkContext.parallelize([names], 1).map(_release).collect()
            )
    except SPARK_FAILURES:  # whatever it is, the jobs that follow will tell it as well
        return
    if (worker_version := answer[0]) != (own_version := version("tidegate")):
        raise EnvironmentFault(
            f"Spark's workers have Tidegate {worker_version}, this program has {own_version}; {_python_line(spark)}"
        )
    _fit.add(spark)


def _release(names: Sequence[str]) -> str:
    """Run in a worker: import the modules of tasks that the driver has, and return the version of Tidegate."""
    for name in names:
        import_module(name)
    return version("tidegate")


def check_dates(spark: Any) -> None:
    """Raise EnvironmentFault for a session that reads dates of Parquet files as other days."""
    if (mode := str(spark.conf.get(REBASE, "CORRECTED"))) != "CORRECTED":
        raise EnvironmentFault(f'{REBASE} is {mode}, which changes old dates: spark.conf.set("{REBASE}", "CORRECTED")')


@contextmanager
def explaining_lacks(spark: Any) -> Iterator[None]:
    """Turn a failure of Spark into an EnvironmentFault if something that the session lacks explains it."""
    try:
        yield
    except SPARK_FAILURES as failure:
        if (lack := lack_of(spark, failure)) is not None:
            raise EnvironmentFault(lack) from failure
        raise


def lack_of(spark: Any, failure: BaseException) -> str | None:
    """Return the lack of the session that explains a failure, with the line to add; None for other failures."""
    text = str(getattr(failure, "java_exception", failure))
    for pattern, advice in LACKS:
        if match := pattern.search(text):
            return advice.format(*match.groups(), python=_python_line(spark), delta=running(spark).delta[0])
    return None


LACKS: Final = (
    (
        re.compile(r"PYTHON_VERSION_MISMATCH\D*(\d+\.\d+)\D*(\d+\.\d+)"),
        "Spark's workers run Python {0}, this program runs {1}; {python} (`tidegate pack --python` adds a Python)",
    ),
    (re.compile(r"No module named '([\w.]+)(?!.*is not a package)"), "Spark's workers have no module {0}; {python}"),
    (
        re.compile(rf"{UNBORN}(?:\n.*)*?\n  ((?!MemoryError|OSError|BlockingIOError)[\w.]+Error: .*)"),
        "Spark's workers do not start: {0}; is a file of their directory or PYTHONPATH named as a module of Python?",
    ),
    (re.compile(r'Cannot run program "([^"]+)"'), "there is no {0} where Spark's workers run; {python}"),
    (re.compile(r"DATA_SOURCE_NOT_FOUND\] .*\bdelta\b|DELTA_CONFIGURE_SPARK_SESSION"), NO_DELTA),
    (re.compile(r'No FileSystem for scheme "(\w+)"'), "the session has no file system for {0}://; " + WITHOUT_DELTA),
)


def _python_line(spark: Any) -> str:
    """The configuration line that gives workers a Python with Tidegate."""
    archive = f"{UNPACKED}.tar.gz#{UNPACKED}"
    if is_connect(spark):
        add = f'spark.addArtifacts("{archive}", archive=True); spark.conf.set("{WORKERS_PYTHON}", "{EXECUTORS_PYTHON}")'
    elif spark.sparkContext.master.partition("[")[0] == "local":
        return f"before the session is made: {SET_PYTHON.format(sys.executable)}"
    else:
        add = f'{SET_PYTHON.format(EXECUTORS_PYTHON)}; SparkSession.builder.config("spark.archives", "{archive}")'
    return f"after `tidegate pack {UNPACKED}.tar.gz`: {add} (tidegate run: --archive {UNPACKED}.tar.gz)"


def reason(failure: BaseException) -> str:
    """Return the reason of a Spark failure as one line: the error of the worker's Python, also at its start, else the
    first line."""
    text = str(getattr(failure, "java_exception", failure))
    if UNBORN in text:
        text = dedent(text.partition(UNBORN)[2].partition("PYTHONPATH was:")[0]).strip()
    lines = text.partition(TRACEBACK)[2].splitlines() or text.splitlines()
    raised = [line for line in lines if line.strip() and not line[0].isspace()] if TRACEBACK in text else lines
    return raised[0].strip() if raised else type(failure).__name__
