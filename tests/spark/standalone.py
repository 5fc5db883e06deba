"""A standalone cluster of Spark: a master and workers, each a process with a directory of its own, and no Tidegate.

    Master ◄── Worker, Worker ──► executors, in directories below their worker's; Python: the machine's, no packages

They know nothing of this process but how its JVMs start soon (jvms.py): no PYTHONPATH, no credentials.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from tests.leftovers import MARK
from tidegate.spark.java import find_java

START_S = 60.0
BACKEND = "CoarseGrainedExecutorBackend"


@dataclass
class Process:
    """A master or a worker."""

    home: Path
    process: "subprocess.Popen[bytes]"

    @classmethod
    def start(cls, home: Path, role: str, *words: str) -> "Process":
        """Start it in a directory of its own."""
        home.mkdir(parents=True)
        spark = Path(pyspark.__file__).parent
        environment = {
            "PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin",
            "HOME": str(home),
            "SPARK_HOME": str(spark),
            "SPARK_SCALA_VERSION": "2.13",
            "JAVA_HOME": str(find_java().home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(home / "local"),
            MARK: os.environ.get(MARK, ""),
        }
        java = [str(find_java().java), "-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"]
        main = [f"{spark}/jars/*", f"org.apache.spark.deploy.{role}", "--host", "127.0.0.1", "--webui-port", "0"]
        with (home / "log").open("wb") as log:
            begun = subprocess.Popen([*java, *main, *words], cwd=home, env=environment, stdout=log, stderr=log)
        return cls(home, begun)

    def said(self, pattern: str) -> str:
        """What the log says where it matches, once it does."""
        until_s = time.monotonic() + START_S
        while (found := re.search(pattern, (self.home / "log").read_text())) is None:
            assert self.process.poll() is None, (self.home / "log").read_text()[-2000:]
            assert time.monotonic() < until_s, pattern
            time.sleep(0.05)
        return found[0]

    def executors(self) -> list[psutil.Process]:
        """The JVMs of its executors."""
        found = []
        with suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    if any(BACKEND in word for word in child.cmdline()) and "java" in child.name():
                        found.append(child)
        return found

    def kill(self) -> None:
        """SIGKILL for it and all that it started: a machine that is switched off."""
        with suppress(psutil.Error):
            for one in [*psutil.Process(self.process.pid).children(recursive=True), psutil.Process(self.process.pid)]:
                with suppress(psutil.Error):
                    one.kill()
        self.process.wait()


@dataclass
class Standalone:
    """What `standalone` has started."""

    url: str
    workers: list[Process]

    def words(self, **settings: str) -> list[str]:
        """The options of `tidegate run` that name it, for small executors."""
        conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", **settings}
        return ["--master", self.url, *(word for one in conf.items() for word in ("--conf", "=".join(one)))]


@contextmanager
def standalone(home: Path, cores: Sequence[int] = (1, 1)) -> Iterator[Standalone]:
    """A cluster with a worker for each of `cores`, all gone when the block ends."""
    started = [Process.start(home / "master", "master.Master", "--port", "0")]
    try:
        url = started[0].said(r"spark://127\.0\.0\.1:\d+")
        for number, count in enumerate(cores):
            words = ("--cores", str(count), "--memory", "1g", "--work-dir", str(home / f"worker{number}" / "work"))
            started.append(Process.start(home / f"worker{number}", "worker.Worker", *words, url))
        for worker in started[1:]:
            worker.said("Successfully registered with master")
        yield Standalone(url, started[1:])
    finally:
        for one in reversed(started):
            one.kill()
