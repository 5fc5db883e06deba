"""A server in a process of its own that faults can be done to: its clock stepped, its disk filled.

It is called with HOME ADDR DATA_DIR CONTROL HOST, the last `here` or `spark`:

    CONTROL/clock       seconds by which its clock is wrong
    CONTROL/full        there: nothing can be opened for writing below HOME
    HOME/journal        a line for each call of a sink: changefeed, epoch of the lease, ts
"""

import errno
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tidegate.codec.columnar.rows import Batch
from tidegate.model.event import Ddl
from tidegate.sinks import callback

CONTROL_S = 0.05
_LEASE: list[Any] = []


def step_clock(control: Path) -> None:
    """Let the clock of this process be wrong by what a file says."""
    true_ns, steady = time.time_ns, time.monotonic
    seen = [0.0, 0.0]

    def now_ns() -> int:
        if steady() - seen[0] > CONTROL_S:
            file = control / "clock"
            seen[:] = steady(), float(file.read_text() or 0) if file.exists() else 0.0
        return true_ns() + int(seen[1] * 1e9)

    time.time_ns, time.time = now_ns, lambda: now_ns() / 1e9


def fill_disk(control: Path, home: Path) -> None:
    """Let nothing be opened for writing while a file is there."""
    full, below = str(control / "full"), f"{home}{os.sep}"

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str) and arguments[0].startswith(below):
            writes = arguments[2] & (os.O_WRONLY | os.O_RDWR) if isinstance(arguments[2], int) else 0
            if writes and os.access(full, os.F_OK):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), arguments[0])

    sys.addaudithook(watch)


@dataclass(frozen=True)
class Note:
    """Notes who is called with what."""

    home: str
    feed: str

    def __call__(self, batch: Batch) -> None:
        """Note rows, where the lease is: not in a worker of Spark."""
        if _LEASE:
            self.resolved(batch.commit_ts[-1].as_py())

    def ddl(self, ddl: Ddl) -> None:
        """Note a DDL."""
        self.resolved(ddl.commit_ts or 0)

    def resolved(self, ts: int) -> None:
        """Note a ts."""
        with open(f"{self.home}/journal", "a", encoding="utf-8") as file:  # noqa: PTH123 - a short line is written whole
            file.write(f"{self.feed} {_LEASE[0].epoch} {ts}\n")


def noted(home: str, feed: str) -> callback:
    """The sink that `callback://tests.server.faulty_server/noted` names."""
    note = Note(home, feed)
    return callback(note, ddl=note.ddl, resolved=note.resolved)


def main(home: str, address: str, data_dir: str, control: str, spark_or_here: str) -> None:
    """Serve until SIGTERM."""
    step_clock(Path(control))
    fill_disk(Path(control), Path(home))
    from tests.server.http_kit import listening
    from tests.server.kit import HereHost
    from tidegate.server.config import server_config
    from tidegate.server.running import FAIR, SparkHost
    from tidegate.server.server import Server
    from tidegate.spark.session import session

    host, port = address.split(":")
    file = Path(control, "server.toml")
    file.write_text("[security]\nauth = 'none'\n")
    config = server_config(
        file,
        data_dir=data_dir,
        source_uri=f"tidb://{home}/log",
        addr=address,
        advertise_addr=address,
        allow_path=[home],
        callback_modules=["tests.server.faulty_server"],
        capture_session_ttl=4,
    )
    host_of_tasks = HereHost() if spark_or_here == "here" else SparkHost(partial(session, cores=2, conf=FAIR))
    server = Server(config, host_of_tasks)
    _LEASE.append(server.lease)
    server.start()
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    with socket.create_server((host, int(port)), reuse_port=False) as listener, listening(server, listener):
        ends.wait()
        server.stop()
