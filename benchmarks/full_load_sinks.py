"""A full load into a database and into topics, and back out of a topic: rows a second.

    python benchmarks/full_load_sinks.py [--rows 4000000] [--case mariadb] [--table wide] [--json]

    mariadb      MariaDB, one table ──  a feed of a load alone   ──►  another MariaDB     ours
                                    ──  mariadb-dump | mariadb   ──►  the same            peer      bar 0.7
    topic        MariaDB, one table ──  a feed of a load alone   ──►  topic, 2 partitions  ours
                 change log         ──  the feed of changefeed.py ──►  another             peer      bar 0.5
    topic-back   the topic of a load ── a feed                   ──►  lake: rows/s, driver, largest worker and JVM, in
                                                                      MiB; docs/limits.md: 384, 2048 and 2048

Tables are those of full_load.py.  Both sides take turns in one run, warm, the median of three; ours with its plan.
`topic-back` runs once, behind a topic of a tenth.
"""

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pymysql
from backlog import write_backlog
from changefeed import run_feed, sink_of, uri_of
from full_load import CASES as TABLES
from full_load import TIMES, loading, table
from full_load_memory import Peaks
from rig import PARTITIONS, Rig, arguments, rig, seconds
from traffic import PROTOCOLS

from tidegate.config import registry
from tidegate.config.changefeed import Changefeed
from tidegate.config.load import load
from tidegate.engine.load_plan import KeptPlan
from tidegate.engine.ports import Sink
from tidegate.spark.tasks import SparkTasks
from tidegate.testing.script import run_here
from tidegate_upstream.demo.recorded import create_topic
from tidegate_upstream.demo.replica import running_mariadb

CASES = ("mariadb", "topic", "topic-back")


def loaded(bench: Rig, port: int, sink_uri: str) -> int:
    """Load the table into a sink; return S."""
    home = bench.directory("load")
    config = load(
        load_mode="only", load_from=f"mysql://root@127.0.0.1:{port}/?enable-tls=false", sink_uri=sink_uri,
        rules=["load.*"], name=home.name, state_dir=home / "state",
    )  # fmt: skip
    sink: Sink[Any] = registry.sink_of(config)
    source = loading(port, KeptPlan(str(home)))
    done = run_here(source, sink, tasks=SparkTasks(bench.spark))
    assert done.checkpoint_ts is not None
    return done.checkpoint_ts


@contextmanager
def target() -> Iterator[int]:
    """The port of a server that is written, whose files lie in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as home:
        options = ("--innodb-buffer-pool-size=2G", "--innodb-flush-log-at-trx-commit=0")
        with running_mariadb(Path(home), options) as port:
            yield port


def asked(port: int, *statements: str) -> Any:
    """The first value of the last statement's answer."""
    connection = pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        found = cursor.fetchone()
    connection.close()
    return found and found[0]


def dumped(source: int, port: int) -> None:
    """The table by the server's own programs."""
    words = ["mariadb-dump", "-h127.0.0.1", f"-P{source}", "-uroot", "--single-transaction", "--quick"]
    with subprocess.Popen([*words, "--databases", "load"], stdout=subprocess.PIPE) as dump:
        subprocess.run(["mariadb", "-h127.0.0.1", f"-P{port}", "-uroot"], check=True, stdin=dump.stdout)
    assert dump.returncode == 0


def into_mariadb(bench: Rig, port: int, rows: int) -> dict[str, float]:
    """Load and dump of one table, in turns, each into a server without it."""
    with target() as written:

        def took(work: Callable[[], Any]) -> float:
            asked(written, "DROP DATABASE IF EXISTS `load`", "DROP DATABASE IF EXISTS tidegate")
            took_s = seconds(work)
            assert asked(written, "SELECT COUNT(*) FROM `load`.t") == rows
            return took_s

        ours: Callable[[], Any] = lambda: loaded(bench, port, f"mysql://root@127.0.0.1:{written}/")  # noqa: E731
        _, *turns = [(took(ours), took(lambda: dumped(port, written))) for _ in range(TIMES + 1)]
    return rates(rows, *map(median, zip(*turns, strict=True)))


def into_topic(bench: Rig, port: int, rows: int, protocol: str) -> dict[str, float]:
    """A load into a topic and a change log into another, in turns."""
    log = bench.directory("log")
    backlog = write_backlog(log, "sysbench", rows)

    def ours() -> None:
        topic = bench.directory("load").name
        create_topic(bench.bootstrap, topic, PARTITIONS)
        loaded(bench, port, sink_of(bench, topic, protocol))

    _, *turns = [
        (seconds(ours), run_feed(bench, f"tidb://{log}", backlog, bench.directory("feed").name, protocol)[0])
        for _ in range(TIMES + 1)
    ]
    return rates(rows, *map(median, zip(*turns, strict=True)))


def rates(rows: int, ours_s: float, peer_s: float) -> dict[str, float]:
    """Rows a second of both, and their ratio."""
    return {"ours": round(rows / ours_s), "peer": round(rows / peer_s), "ratio": round(peer_s / ours_s, 2)}


def back(bench: Rig, port: int, rows: int, protocol: str) -> dict[str, float]:
    """A topic of a load into a lake, from its first message to S."""
    topic, lake = bench.directory("back").name, bench.directory("lake")
    create_topic(bench.bootstrap, topic, PARTITIONS)
    ts = loaded(bench, port, sink_of(bench, topic, protocol))
    config = load(source_uri=uri_of(bench, topic, protocol), sink_uri=f"delta://{lake}", rules=["load.*"])
    reports: list[int] = []
    peaks = Peaks(rows)
    with peaks.watched():
        took_s = seconds(
            lambda: reports.append(Changefeed(config).run(bench.spark, until=ts, on_progress=peaks.report).rows)
        )
    assert reports == [rows], (reports, rows)
    return {"ours": round(rows / took_s), **peaks.most()}


def main() -> None:
    """Measure the cases."""
    parser = arguments(__doc__, 4_000_000)
    parser.add_argument("--case", choices=CASES, action="append", help="only this one")
    parser.add_argument("--table", choices=TABLES, action="append", help="only this one")
    parser.add_argument("--protocol", choices=PROTOCOLS, action="append", help="only this one")
    given = parser.parse_args()
    cases, protocols, found = given.case or CASES, given.protocol or PROTOCOLS, {}

    def show(case: str, figures: dict[str, float]) -> None:
        found[case] = figures
        if not given.json:
            print(f"{case:32} " + "   ".join(f"{label} {value:,}" for label, value in figures.items()), flush=True)

    with rig() as bench:
        for name in given.table or TABLES:
            rows = given.rows // TABLES[name]
            with table(name, rows) as port:
                if "mariadb" in cases:
                    show(f"mariadb, {name}", into_mariadb(bench, port, rows))
                for protocol in protocols if "topic" in cases else ():
                    show(f"topic, {protocol}, {name}", into_topic(bench, port, rows, protocol))
            for protocol in protocols if "topic-back" in cases and name == "narrow" else ():
                for count in (rows // 10, rows):
                    with table(name, count) as port:
                        show(f"topic-back, {protocol}", back(bench, port, count, protocol))
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
