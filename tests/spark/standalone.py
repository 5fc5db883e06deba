"""A standalone cluster of Spark: a master and workers, each a process with a directory of its own, and no Tidegate.

    Master ◄── Worker, Worker ──► executors, in directories below their worker's; Python: the machine's, no packages
               127.0.0.1, .2      to Spark two hosts: a copy of a slow task runs on another one

They know nothing of this process but how its JVMs start soon (jvms.py): no PYTHONPATH, no credentials.
"""

import os
import re
import socket
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
from tidegate.spark.archive import PYTHON
from tidegate.spark.java import ensure_jars, find_java
from tidegate.spark.session import SQL
from tidegate.spark.versions import installed

START_S = 60.0
BACKEND = "CoarseGrainedExecutorBackend"


@dataclass
class Process:
    """A master, a worker or a Connect server."""

    home: Path
    process: "subprocess.Popen[bytes]"

    @classmethod
    def start(cls, home: Path, role: str, *words: str, host: int = 1) -> "Process":
        """Start a master or a worker in a directory and under an address of its own."""
        address = f"127.0.0.{host}"
        main = [f"org.apache.spark.deploy.{role}", "--host", address, "--webui-port", "0", *words]
        return cls.java(home, *main, SPARK_LOCAL_IP=address)

    @classmethod
    def java(cls, home: Path, *main: str, **variables: str) -> "Process":
        """Start a program of Spark."""
        home.mkdir(parents=True)
        spark = Path(pyspark.__file__).parent
        environment = {
            "PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin",
            "HOME": str(home),
            "SPARK_HOME": str(spark),
            "SPARK_SCALA_VERSION": "2.13",
            "JAVA_HOME": str(find_java().home),
            "SPARK_LOCAL_DIRS": str(home / "local"),
            MARK: os.environ.get(MARK, ""),
            **variables,
        }
        opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.nio", "sun.nio.ch", "java.lang")]
        java = [str(find_java().java), *opened, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"]
        with (home / "log").open("wb") as log:
            command = [*java, f"{spark}/jars/*", *main]
            begun = subprocess.Popen(command, cwd=home, env=environment, stdout=log, stderr=log)
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

    def machine_of(self, pid: int) -> Process:
        """The worker below which a process runs."""
        above = {one.pid for one in psutil.Process(pid).parents()}
        return next(worker for worker in self.workers if worker.process.pid in above)

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
            started.append(Process.start(home / f"worker{number}", "worker.Worker", *words, url, host=number + 1))
        for worker in started[1:]:
            worker.said("Successfully registered with master")
        yield Standalone(url, started[1:])
    finally:
        for one in reversed(started):
            one.kill()


@contextmanager
def connect_server(home: Path, python: str | Path = PYTHON) -> Iterator[str]:
    """A Connect server with two slots and Delta, whose Python has PySpark alone unless one is named: its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    kinds = ("spark", "connect") if installed().connect else ("spark",)
    settings = {
        **SQL,
        "spark.jars": ",".join(str(jar) for kind in kinds for jar in ensure_jars(kind).glob("*.jar")),
        "spark.connect.grpc.binding.port": str(port),
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
    }
    words = [word for one in settings.items() for word in ("--conf", "=".join(one))]
    main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    variables = {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    server = Process.java(home, "org.apache.spark.deploy.SparkSubmit", *words, *main, **variables)
    try:
        server.said("Spark Connect server started at")
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.kill()
