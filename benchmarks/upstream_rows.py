"""SQL on the embedded TiDB at a steady pace, in a process of its own, with its change log beside it.

every 10 ms   one transaction: INSERTs, half as many UPDATEs  ──►  store  ──►  segments, twice a second
"""

import time
from pathlib import Path
from typing import Any, Final

from backlog import CREATE, SCHEMA, TABLES

from tidegate_upstream.serve import UpstreamLog
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.session import Session

__all__ = ["run_upstream"]

TICK_S: Final = 0.01


def run_upstream(directory: Path, rate: int, seconds: float, ended: Any) -> None:
    """`rate` rows a second for so many seconds; `ended` is set when the last is in the log."""
    cluster = Cluster.open()
    session = Session(cluster.node)
    for statement in (f"CREATE DATABASE {SCHEMA}", f"USE {SCHEMA}"):
        session.execute(statement)
    for name in TABLES:
        session.execute(CREATE["sysbench"].format(name))
    log = UpstreamLog(cluster, directory, in_memory=True).start()
    rows, begun_s = 0, time.monotonic()
    while (passed_s := time.monotonic() - begun_s) < seconds:
        missing = int(passed_s * rate) - rows
        if missing < rate * TICK_S:
            time.sleep(TICK_S / 4)
            continue
        table = TABLES[rows // 10 % len(TABLES)]
        values = ", ".join(f"({rows + number}, {number}, '{'c' * 119}', '{'p' * 59}')" for number in range(missing))
        session.execute(f"INSERT INTO {table} VALUES {values}")
        rows += missing
    log.stop()
    cluster.close()
    ended.set()
