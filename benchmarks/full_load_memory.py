"""The memory of a full load of a large table into a lake: peaks of driver, workers and JVM, by parts of the load.

    python benchmarks/full_load_memory.py [--rows 100000000] [--json]

    MariaDB, one table of 2 columns, fixed width  ──  a feed of a load alone  ──►  lake

    driver      this process: at most 1,536 MiB
    worker      the largest process of Python below it: at most 1,024
    jvm         Spark's

A peak of each fifth of the load shows whether memory grows with what was read.  Memory is resident, shared pages
included.  The table is MyISAM, which is made in minutes.
"""

import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import pymysql
from full_load import loading
from rig import arguments

from tidegate.engine.load_plan import KeptPlan
from tidegate.engine.progress import Progress
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.spark.tasks import SparkTasks, feed_session
from tidegate.testing.script import run_here
from tidegate_upstream.demo.replica import running_mariadb

GOALS: Final = {"driver": 1536, "worker": 1024}
KINDS: Final = ("driver", "worker", "jvm")
PARTS: Final = 5
EVERY_S: Final = 0.2


@contextmanager
def table(home: Path, rows: int) -> Iterator[int]:
    """The port of a server with the table `load`.t."""
    options = ("--myisam-sort-buffer-size=1G", "--key-buffer-size=256M", "--skip-log-bin")
    with running_mariadb(home, options) as port:
        with pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True) as connection:
            cursor = connection.cursor()
            cursor.execute("CREATE DATABASE `load`")
            cursor.execute("USE `load`")
            cursor.execute("CREATE TABLE `load`.t (id BIGINT NOT NULL PRIMARY KEY, v INT) ENGINE=MyISAM")
            cursor.execute("ALTER TABLE `load`.t DISABLE KEYS")
            cursor.execute(f"INSERT INTO `load`.t SELECT seq, seq % 1000003 FROM seq_1_to_{rows} seq")
        yield port


class Peaks:
    """The largest resident memory of each kind of process, in MiB, by parts of the load."""

    def __init__(self, rows: int) -> None:
        self._rows, self._done = rows, 0
        self.parts: list[dict[str, int]] = [{} for _ in range(PARTS)]

    def report(self, progress: Progress) -> None:
        """Note how far the load is."""
        before, self._done = self._done, progress.rows
        if PARTS * before // self._rows < PARTS * self._done // self._rows:
            print(f"{self._done:,} rows: {self.most()}", file=sys.stderr, flush=True)

    def look(self) -> None:
        """Measure all processes."""
        me = psutil.Process()
        part = self.parts[min(PARTS * self._done // self._rows, PARTS - 1)]
        for process in (me, *me.children(recursive=True)):
            try:
                name, mib = process.name(), process.memory_info().rss >> 20
                broker = "kafka.Kafka" in process.cmdline()
            except psutil.Error:
                continue
            kinds = {me.name(): "worker", "python": "worker", "python3": "worker", "java": "jvm"}
            kind = "driver" if process == me else "broker" if broker else kinds.get(name, "")
            part[kind] = max(part.get(kind, 0), mib)

    def most(self) -> dict[str, int]:
        """Return the largest of all parts, by kind."""
        return {f"{kind}_mib": max(part.get(kind, 0) for part in self.parts) for kind in KINDS}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Measure again and again until the block ends."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(EVERY_S):
                self.look()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def measured(rows: int) -> dict[str, Any]:
    """A load of so many rows: seconds, and peaks."""
    peaks = Peaks(rows)
    with tempfile.TemporaryDirectory() as scratch, table(Path(scratch) / "server", rows) as port:
        spark, lake = feed_session(), Path(scratch) / "lake"
        source = loading(port, KeptPlan(str(lake)))
        sink, begun = DeltaSink(DeltaOptions(root=str(lake), feed="load")), time.perf_counter()
        with peaks.watched():
            done = run_here(source, sink, tasks=SparkTasks(spark), report=peaks.report)
        took_s = time.perf_counter() - begun
        spark.stop()
    assert done.rows == rows, done.rows
    return {
        "rows": rows,
        "ours": round(rows / took_s),
        **{kind: [part.get(kind, 0) for part in peaks.parts] for kind in KINDS},
    }


def main() -> None:
    """Measure."""
    given = arguments(__doc__, 100_000_000).parse_args()
    found = measured(given.rows)
    if given.json:
        print(json.dumps(found))
        return
    print(f"{given.rows:,} rows  {found['ours']:,} rows/s")
    for kind in KINDS:
        peaks, goal = found[kind], GOALS.get(kind)
        print(f"{kind:8} {max(peaks):>6,} MiB{f' (goal {goal:,})' if goal else ''}   by fifths {peaks}")


if __name__ == "__main__":
    main()
