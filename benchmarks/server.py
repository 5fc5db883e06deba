"""Many changefeeds in one server: what idle ones cost, and whether busy ones share the machine.

    python benchmarks/server.py [--rows 100000] [--part idle|fair|many] [--json]

    idle    50 changefeeds of a silent change log into lakes, after their first upkeep, for two minutes:
            cores of the server with Spark                                             goal: below 0.1
            memory of both (resident, shared pages counted once)                       goal: below 1.5 GiB
    fair    20 changefeeds of the same N rows into lakes, all at once: each one's rate is N ÷ its time;
            slowest ÷ mean                                                             goal: 0.5 at least
    many    200 changefeeds into files of SQLite: the slowest request that makes, lists, filters, pauses or resumes them
            limit of 2 s ÷ the slowest request                                         goal: 1 at least

The limit for `fair` is 1: all end together. Were they served one after the other, it would be 0.28.
"""

import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
from backlog import write_backlog
from rig import arguments

PARTS: Final = ("idle", "fair", "many")
MANY: Final = 200
LIMIT_S: Final = 2.0
IDLE: Final = 50
BUSY: Final = 20
SETTLE_S: Final = 150.0
WATCH_S: Final = 120.0
PATIENCE_S: Final = 900.0
IDLE_ROWS: Final = 1_000


class Served:
    """A server of its own, and requests to it."""

    def __init__(self, home: Path, log: Path) -> None:
        self.home = home
        self.made_s: dict[str, float] = {}
        arguments = [
            "server",
            "--addr",
            "127.0.0.1:0",
            "--json",
            "--log-level",
            "warn",
            "--data-dir",
            str(home / "data"),
        ]
        arguments += ["--source-uri", f"tidb://{log}", "--allow-path", str(home)]
        self.process = subprocess.Popen([sys.executable, "-m", "tidegate", *arguments], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self._place, _, token = json.loads(self.process.stdout.readline())["page"][len("http://") :].partition(
            "/#token="
        )
        self._login = {"Authorization": f"Bearer {token}"}
        while not self.ask("GET", "/status").get("is_owner"):
            time.sleep(0.1)

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """The answer of a request."""
        connection = http.client.HTTPConnection(self._place, timeout=120)
        connection.request(method, f"/api/v2{path}", None if body is None else json.dumps(body), self._login)
        answer = connection.getresponse()
        told: dict[str, Any] = json.loads(answer.read())
        if answer.status >= 500 and "ErrServerIsNotReady" not in str(told):
            raise SystemExit(f"{method} {path}: {told}")
        return told

    def make(self, name: str, scheme: str = "delta") -> None:
        """Make a changefeed into a lake of its own, or another target."""
        self.made_s[name] = time.monotonic()
        self.ask(
            "POST",
            "/changefeeds",
            {"changefeed_id": name, "sink_uri": f"{scheme}://{self.home / name}", "start_ts": 1},
        )

    def reached(self, ts: int) -> set[str]:
        """The names of changefeeds that have come so far."""
        items = self.ask("GET", "/changefeeds")["items"]
        return {item["id"] for item in items if item["checkpoint_tso"] >= ts}

    def processes(self) -> list[psutil.Process]:
        """The server and all that it started."""
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]


@contextmanager
def served(rows: int) -> Iterator[tuple[Served, int]]:
    """A server over a change log of so many rows, and the ts of the last one."""
    with tempfile.TemporaryDirectory(prefix="tidegate-server-") as home:
        log = Path(home, "log")
        last = write_backlog(log, "sysbench", rows).high
        server = Served(Path(home), log)
        try:
            yield server, last
        finally:
            for process in server.processes():
                process.kill()
            server.process.wait(20)


def wait(server: Served, names: set[str], ts: int) -> dict[str, float]:
    """How long each changefeed takes to a ts from when it was made, in seconds."""
    until_s, took_s = time.monotonic() + PATIENCE_S, dict[str, float]()
    while took_s.keys() < names:
        assert time.monotonic() < until_s
        for name in server.reached(ts) & names - took_s.keys():
            took_s[name] = time.monotonic() - server.made_s[name]
        time.sleep(0.1)
    return took_s


def idle() -> dict[str, float]:
    """What fifty silent ones cost."""
    with served(IDLE_ROWS) as (server, last):
        names = {f"idle-{number}" for number in range(IDLE)}
        for name in sorted(names):
            server.make(name)
        wait(server, names, last)
        time.sleep(SETTLE_S)
        began_s, used_s = time.monotonic(), _cpu_s(server)
        time.sleep(WATCH_S)
        cores = (_cpu_s(server) - used_s) / (time.monotonic() - began_s)
        memory = sum(process.memory_full_info().pss for process in server.processes())
    return {"idle_cores": cores, "idle_gib": memory / (1 << 30)}


def _cpu_s(server: Served) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in server.processes())


def fair(rows: int) -> dict[str, float]:
    """How evenly twenty busy ones get on."""
    with served(rows) as (server, last):
        server.make("first")
        wait(server, {"first"}, last)
        names = {f"busy-{number}" for number in range(BUSY)}
        for name in sorted(names):
            server.make(name)
        took_s = wait(server, names, last)
    rates = [rows / seconds for seconds in took_s.values()]
    return {"rows_per_s": BUSY * rows / max(took_s.values()), "slowest_of_mean": min(rates) / statistics.mean(rates)}


def many() -> dict[str, float]:
    """How long the slowest request of each kind takes, among 200 changefeeds."""
    slowest_s: dict[str, float] = {}

    def timed(kind: str, ask: Callable[[], object]) -> None:
        began_s = time.monotonic()
        ask()
        slowest_s[kind] = max(slowest_s.get(kind, 0.0), time.monotonic() - began_s)

    with served(IDLE_ROWS) as (server, last):
        names = [f"many-{number}" for number in range(MANY)]
        for name in names:
            timed("create", partial(server.make, name, "sqlite"))
        for kind in ("pause", "resume"):
            for name in names:
                timed(kind, partial(server.ask, "POST", f"/changefeeds/{name}/{kind}", {}))
            for query in ("?state=all", "?state=normal", "?state=stopped"):
                timed("list", partial(server.ask, "GET", f"/changefeeds{query}"))
        all_s = max(wait(server, set(names), last).values())
    return {
        **{f"{kind}_s": seconds for kind, seconds in slowest_s.items()},
        "all_written_s": all_s,
        "limit_of_slowest": LIMIT_S / max(slowest_s.values()),
    }


def main() -> None:
    """Measure."""
    parser = arguments(__doc__, 100_000)
    parser.add_argument("--part", choices=PARTS, action="append")
    options = parser.parse_args()
    results: dict[str, float] = {}
    for part in options.part or PARTS:
        parts: dict[str, Callable[[], dict[str, float]]] = {
            "idle": idle,
            "fair": partial(fair, options.rows),
            "many": many,
        }
        results |= parts[part]()
    if options.json:
        print(json.dumps(results))
        return
    for name, value in results.items():
        print(f"{name:>16} {value:12.3f}")


if __name__ == "__main__":
    main()
