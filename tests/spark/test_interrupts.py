"""What ends the start of Spark: Ctrl-C, a JVM that dies, and any other error."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.source.tidb.kit import recorded_log
from tidegate.spark.session import _uninterrupted

pytestmark = pytest.mark.slow

RUN = """
import os, signal, sys, threading, time
from pyspark import SparkContext
from tidegate.cli.main import main

begin = SparkContext._initialize_context

def interrupts():
    for _ in range(2):  # the first one asks for a stop
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

def interrupted(context, conf):
    threading.Thread(target=interrupts, daemon=True).start()
    return begin(context, conf)

SparkContext._initialize_context = interrupted
main(sys.argv[1:])
"""


def test_an_interrupt_amid_the_start(tmp_path: Path) -> None:
    """The second Ctrl-C ends the command at once with status 130, amid the start of Spark, too: neither an error of
    Spark nor a trace is printed."""
    log = recorded_log(tmp_path / "log", "partition", 3)
    sink = f"file://{tmp_path}/files?protocol=canal-json"
    words = ["run", "--source-uri", f"tidb://{log}", "--sink-uri", sink, "--state-dir", str(tmp_path / "state")]
    done = subprocess.run([sys.executable, "-c", RUN, *words], capture_output=True, text=True, timeout=120, check=False)
    printed = done.stdout + done.stderr
    assert "the start of Spark" in printed
    assert [word for word in ("Traceback", "error CDC", "spark ERROR", "Py4J") if word in printed] == [], printed
    assert done.returncode == 130


DIES = """
from pyspark import SparkContext
from tidegate.spark.session import SPARK_FAILURES, session

begin = SparkContext._initialize_context

def dies(context, conf):
    SparkContext._initialize_context = begin
    SparkContext._gateway.proc.kill()
    return begin(context, conf)

SparkContext._initialize_context = dies
try:
    session(cores=1)
except (*SPARK_FAILURES, OSError) as died:
    print(type(died).__name__)
print(session(cores=1).range(3).count())
"""


def test_a_jvm_that_dies_amid_its_start() -> None:
    """The next call starts another one, instead of asking the dead one for ever."""
    done = subprocess.run([sys.executable, "-c", DIES], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines()[-1:] == ["3"], done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_of_any_kind_amid_the_start() -> None:
    """The caller hears it, not that there is no session; this is what PySpark raises for jars of another release."""

    def start() -> SparkSession:
        raise TypeError("'JavaPackage' object is not callable")

    with pytest.raises(TypeError, match="JavaPackage"):
        _uninterrupted(start)
