"""A changefeed from a topic into a lake on each supported Spark, in turns, against the newest.

    python benchmarks/spark_versions.py [--rows 400000] [--json]     after make test-spark SPARK=3.5, and SPARK=4.0

    topic (2 partitions)  ──  the feed, as the command line runs it  ──►  lake      one process, one Spark a turn

A turn's rate is the best of three feeds behind a first one that counts for nothing, from its start to the checkpoint of
the last row.  Per version the median of the turns counts.  Ratios of one run:

    3.5_over_4.1, 4.0_over_4.1     rows a second on a version ÷ those on 4.1          goal 0.9 at least
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from tidegate.config.changefeed import Changefeed
from tidegate_upstream.broker import running_broker
from tidegate_upstream.demo.recorded import create_topic

NEWEST: Final = "4.1"
PYTHONS: Final = {
    NEWEST: Path(sys.executable),
    **{name: Path(sys.executable).parents[1] / f"spark-{name}/bin/python" for name in ("3.5", "4.0")},
}
TURNS: Final = 2
FEEDS: Final = 3
PROTOCOL: Final = "open-protocol"
TURN_S: Final = 240
TURN: Final = "turn"


def turn(uri: str, rows: int) -> None:
    """Print the version of Spark and the best rate of this process, as JSON."""
    from tidegate.spark.session import session

    spark = session()
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as home:
        taken = []
        for number in range(FEEDS + 1):
            begun_s = time.perf_counter()
            done = Changefeed(uri, f"delta://{home}/{number}", name=f"bench-{number}").run(spark, idle_s=0)
            taken.append(time.perf_counter() - begun_s)
            assert done.rows == rows, done.rows
    sys.stdout.write(json.dumps([spark.version, rows / min(taken[1:])]) + "\n")
    spark.stop()


def main() -> None:
    """Print a rate for each version, and the ratios."""
    from rig import PARTITIONS, Topic, arguments, send
    from traffic import messages, mixture

    words = arguments(__doc__, 400_000).parse_args()
    rates: dict[str, list[float]] = {}
    with running_broker() as broker:
        create_topic(broker.bootstrap, "versions", PARTITIONS)
        count, size_bytes = send(
            broker.bootstrap, "versions", messages(mixture(words.rows), PROTOCOL, partitions=PARTITIONS)
        )
        uri = Topic(broker.bootstrap, "versions", PROTOCOL, PARTITIONS, count, size_bytes).uri()
        for _ in range(TURNS):
            for name, python in PYTHONS.items():
                if not python.exists():
                    continue
                command = [str(python), __file__, TURN, uri, str(words.rows)]
                told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=TURN_S).stdout
                version, rate = json.loads(told.splitlines()[-1])
                assert version.startswith(name), (version, name)
                rates.setdefault(version, []).append(rate)
    by_version = {version: median(turns) for version, turns in rates.items()}
    newest = next(rate for version, rate in by_version.items() if version.startswith(NEWEST))
    ratios = {
        f"{version[:3]}_over_{NEWEST}": round(rate / newest, 3)
        for version, rate in by_version.items()
        if not version.startswith(NEWEST)
    }
    if words.json:
        print(json.dumps({"rows_per_s": {version: round(rate) for version, rate in by_version.items()}, **ratios}))
        return
    for version, rate in by_version.items():
        print(f"Spark {version:6} {rate:12,.0f} rows/s")
    for name, ratio in ratios.items():
        print(f"{name} {ratio:.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == [TURN]:
        turn(sys.argv[2], int(sys.argv[3]))
    else:
        main()
