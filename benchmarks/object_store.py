"""A feed into a lake on S3 against the same feed into one on the local disk, at 20 ms a request.

    python benchmarks/object_store.py [--rows 1600000] [--delay 20] [--moto] [--json]

    change log, 8 tables ──  the feed, as the command line runs it  ──►  a directory                       local
                                                                    ──►  proxy, which waits ──► server     store

    part     what                                                                                          goal
    ratio    rows a second into the store ÷ those into the directory, both without upkeep                  0.6 at least

The two take turns in one run, behind a first pair that counts for neither.  The server is one in memory
(memory_store.py), as that of the tests takes more CPU than the feed; it shares the cores with it, and its seconds of
CPU are told.  `depth` is how many requests follow each other in a round, those of the landing beside it included: the
time in which any is under way, by the delay of one.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil
from backlog import SCHEMA, Backlog, write_backlog
from rig import arguments

ROOT: Final = Path(__file__).parents[1]
TABLES: Final = tuple(f"t{number}" for number in range(1, 9))
BUCKET: Final = "bench"
TURNS: Final = 2


class Seen(NamedTuple):
    """One request that the proxy passed on."""

    method: str
    path: str
    begun_s: float
    ended_s: float
    body_bytes: int


class Store:
    """A server of S3 behind a proxy that waits, in processes of their own."""

    def __init__(self, proxy: "subprocess.Popen[str]", server: int | None) -> None:
        self._processes = [psutil.Process(pid) for pid in (proxy.pid, server) if pid]
        self._proxy = proxy

    def cpu_s(self) -> float:
        """Seconds of CPU of all of it."""
        return sum(sum(process.cpu_times()[:2]) for process in self._processes)

    def seen(self) -> list[Seen]:
        """The requests since the last call."""
        assert self._proxy.stdin is not None
        assert self._proxy.stdout is not None
        self._proxy.stdin.write("\n")
        self._proxy.stdin.flush()
        lines = [self._proxy.stdout.readline().split() for _ in range(int(self._proxy.stdout.readline()))]
        return [
            Seen(columns[0], columns[1], float(columns[2]), float(columns[3]), int(columns[4])) for columns in lines
        ]


@contextmanager
def running_store(delay_ms: float, *, moto: bool) -> Iterator[Store]:
    """An empty store, found by clients of this process and its children."""
    sys.path.append(str(ROOT))
    from tests.s3 import environment, serving

    with ExitStack() as stack:
        command = [sys.executable, str(Path(__file__).with_name("memory_store.py")), str(delay_ms / 1000)]
        server = None
        if moto:
            command.append(str(stack.enter_context(serving(BUCKET))))
            server = psutil.Process().children()[-1].pid
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, **pipes) as proxy:
            assert proxy.stdin is not None
            assert proxy.stdout is not None
            os.environ.update(environment(int(proxy.stdout.readline())))
            yield Store(proxy, server)
            proxy.stdin.close()


def fed(spark: Any, log: Path, sink: str, backlog: Backlog) -> float:
    """Seconds of a feed from the source's begin to its last row."""
    from tidegate.config.changefeed import Changefeed
    from tidegate.config.load import load

    feed = Changefeed(load(source_uri=f"tidb://{log}", sink_uri=f"{sink}?upkeep=off", rules=(f"{SCHEMA}.*",)))
    begun = time.perf_counter()
    progress = feed.run(spark, until=backlog.high)
    took_s = time.perf_counter() - begun
    assert progress.rows >= backlog.rows, (progress.rows, backlog.rows)
    return took_s


def depth(seen: Sequence[Seen], delay_ms: float) -> float:
    """How many delays long some request was under way."""
    busy_s, end_s = 0.0, 0.0
    for request in sorted(seen, key=lambda request: request.begun_s):
        busy_s += max(0.0, request.ended_s - max(request.begun_s, end_s))
        end_s = max(end_s, request.ended_s)
    return busy_s / (delay_ms / 1000)


def kind(request: Seen) -> str:
    """What a request is for, in a word or two."""
    path, _, query = request.path.partition("?")
    directory = next(
        (word for word in ("_delta_log", "snapshots", "schemas", "changelog", "tables") if word in path), ""
    )
    if "list-type" in query:
        directory = "list"
    return f"{request.method} {directory}".strip()


def measured(spark: Any, scratch: Path, store: Store, rows: int, delay_ms: float) -> dict[str, Any]:
    """Both kinds of lake, in turns."""
    small, log = scratch / "small", scratch / "log"
    tenth, backlog = (
        write_backlog(log_path, "sysbench", n, tables=TABLES) for log_path, n in ((small, rows // 10), (log, rows))
    )
    local_s = store_s = float("inf")
    figures: dict[str, Any] = {}
    fed(spark, small, f"delta://{scratch}/warm", tenth)
    fed(spark, small, f"delta+s3://{BUCKET}/warm", tenth)
    for turn in range(TURNS):
        local_s = min(local_s, fed(spark, log, f"delta://{scratch}/lake-{turn}", backlog))
        store.seen()
        before_s = store.cpu_s()
        took_s = fed(spark, log, f"delta+s3://{BUCKET}/lake-{turn}", backlog)
        seen = store.seen()
        if took_s > store_s:
            continue
        store_s = took_s
        rounds = sum(request.method == "PUT" and "/snapshots/" in request.path for request in seen)
        figures = {
            "rounds": rounds,
            "requests_a_round": len(seen) / rounds,
            "depth_a_round": depth(seen, delay_ms) / rounds,
            "server_and_proxy_cpu_s": store.cpu_s() - before_s,
            "kinds": dict(Counter(map(kind, seen)).most_common()),
        }
    rates = {"store_rows_per_s": backlog.rows / store_s, "local_rows_per_s": backlog.rows / local_s}
    return {"store_over_local": local_s / store_s, **rates, "store_s": store_s, "local_s": local_s, **figures}


def main() -> None:
    """Print the figures."""
    parser = arguments(__doc__, 1_600_000)
    parser.add_argument("--delay", type=float, default=20.0, help="milliseconds a request (default 20)")
    parser.add_argument("--moto", action="store_true", help="with the server of the tests")
    options = parser.parse_args()
    from tidegate.spark.session import session

    with (
        tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch,
        running_store(options.delay, moto=options.moto) as store,
    ):
        result = measured(session(), Path(scratch), store, options.rows, options.delay)
    if options.json:
        print(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        print(f"{name:24}", value if isinstance(value, dict) else f"{value:,.2f}")


if __name__ == "__main__":
    main()
