"""The process behind `tidegate upstream start`: a cluster with its ports, and the writer of its change log.

    python -m tidegate_upstream.serve DIRECTORY < OPTIONS        OPTIONS: the JSON of UpstreamOptions

It opens the store, the nodes and their ports, writes ready.json, waits for SIGTERM or SIGINT, and closes ports, nodes
and store in that order.

With a log directory, `UpstreamLog` writes the change log as segments, which a changefeed reads with
`--source-uri tidb:///DIRECTORY`:

    store ──► ChangeLog ──► LogWriter ──► DIRECTORY/00..0-00..9.seg      changes every 0.5 s;
                                                                             without changes, progress every 5 s

Locks of transactions whose client died would hold the log back; they are resolved before each write.  The log begins
at ts 0, so that a changefeed sees every DDL; on a store whose history was garbage-collected it begins with all rows
(source/tidb_segment.py).  A failed write is reported and retried: the store keeps everything above the last segment.  A
log that an earlier in-memory process wrote is of another database, and is refused.

With `keep`, segments are trimmed every 30 s: those that are older than `keep` and below the safe point of every
changefeed that was active within gc-ttl.
"""

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Final, NamedTuple, Self

from tidegate.cli.options import configure
from tidegate.engine.stop_signals import stop_on_signals, wait_until
from tidegate.model.errors import EnvironmentFault, Retry, TidegateError
from tidegate.model.tso import compose
from tidegate.objectstore.local_files import PRIVATE_DIRECTORY, write_whole
from tidegate.server.web_server import guest_listener
from tidegate.source.tidb_segment import GC_TTL_MS, safe_point, segments, trim
from tidegate_upstream.background import READY, UpstreamOptions
from tidegate_upstream.tidb.change_log import ChangeLog
from tidegate_upstream.tidb.cluster import Cluster, ClusterOptions
from tidegate_upstream.tidb.listener import Upstream
from tidegate_upstream.tidb.log_writer import LogWriter, begin_log
from tidegate_upstream.tidb.node import NodeOptions
from tidegate_upstream.tidb.transaction import settle_dead
from tidegate_upstream.tidb.wire import Account

LOG: Final = logging.getLogger(__name__)
WRITE_S: Final = 0.5
IDLE_S: Final = 5.0
TRIM_S: Final = 30.0


class LogKeep(NamedTuple):
    """Retention of a change log: `keep_ms`, and more for changefeeds seen within `ttl_ms`."""

    keep_ms: int
    ttl_ms: int = GC_TTL_MS


def trim_log(directory: Path, keep: LogKeep, now_ms: int) -> int | None:
    """Delete segments past their retention; return the new begin of the log, None if nothing was deleted. Raises as
    `trim`."""
    bound, safe_ts = compose(max(now_ms - keep.keep_ms, 0)), safe_point(directory, now_ms, keep.ttl_ms)
    return trim(directory, bound if safe_ts is None else min(bound, safe_ts), lazily=True)


class UpstreamLog:
    """Writes the change log of `cluster` to `directory` between `start` and `stop`. Raises EnvironmentFault as
    above."""

    def __init__(self, cluster: Cluster, directory: Path, *, in_memory: bool, keep: LogKeep | None = None) -> None:
        if in_memory and segments(directory):
            raise EnvironmentFault(
                f"{directory} holds the change log of another upstream, and this one keeps its rows in memory; "
                "use an empty directory, or --data to continue with the same rows"
            )
        storage = self._storage = cluster.storage
        if storage.store.safe_point and not segments(directory):
            begin_log(storage, directory)
        self._writer = LogWriter(ChangeLog(storage.store, storage.oracle), directory, 0)
        with suppress(OSError):  # a feed may come at once; if it cannot be made, the first write tells
            directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        self._directory, self._keep, self._trimmed_s = directory, keep, time.monotonic()
        self._ended = Event()
        self._thread = Thread(target=self._run, name="upstream-log", daemon=True)
        self._told_s = time.monotonic()

    def start(self, *, trimmed: bool = False) -> Self:
        """Start writing; with `trimmed` the log begins after the existing rows."""
        if trimmed:
            for _ in range(2):  # the last segment always stays
                self._write(empty=True)
            trim(self._directory, self._writer.low)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Write the rest and stop."""
        self._ended.set()
        wait_until(lambda: not self._thread.is_alive())
        self._write(empty=True)
        self._writer.close()

    def _run(self) -> None:
        while not self._ended.wait(WRITE_S):
            self._write(empty=time.monotonic() - self._told_s > IDLE_S)
            if self._keep is not None and time.monotonic() - self._trimmed_s > min(TRIM_S, self._keep.keep_ms / 1000):
                self._trim(self._keep)

    def _trim(self, keep: LogKeep) -> None:
        self._trimmed_s = time.monotonic()
        try:
            trim_log(self._directory, keep, time.time_ns() // 1_000_000)
        except (TidegateError, OSError) as error:
            LOG.warning("cannot trim the change log: %s; retrying", error)

    def _write(self, *, empty: bool) -> None:
        try:
            settle_dead(self._storage.store, self._storage.oracle)
            if self._writer.write(empty=empty) is not None:
                self._told_s = time.monotonic()
        except TidegateError as error:
            if error.retry is Retry.NEVER:
                raise
            LOG.warning("cannot write the change log above %d: %s; retrying", self._writer.low, error)


def open_upstream(home: Path, options: UpstreamOptions) -> Upstream:
    """Return the upstream of a directory, or in memory, not started yet. Raises StoreUnavailable."""
    nodes = NodeOptions(
        metadata_lock=options.metadata_lock,
        lease_ms=options.lease_ms,
        session_ms=options.lease_ms + options.lease_ms // 3,
    )
    names = [f"n{number}" for number in range(1, options.nodes + 1)]
    data = None if options.in_memory else home / "store"
    if data is not None:
        data.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    cluster = Cluster.open(data, options=ClusterOptions(nodes), nodes=names)
    account = Account(options.user, options.password_hash) if options.user else None
    return Upstream(cluster, options.host, options.port, account, guest_listener)


@contextmanager
def written_log(upstream: Upstream, options: UpstreamOptions) -> Iterator[None]:
    """Write the change log for the time of a `with` block, if it is enabled. Raises EnvironmentFault."""
    if not options.log:
        yield
        return
    keep = LogKeep(options.log_keep_ms, options.gc_ttl_ms) if options.log_keep_ms else None
    log = UpstreamLog(upstream.cluster, Path(options.log), in_memory=options.in_memory, keep=keep).start()
    try:
        yield
    finally:
        log.stop()


def serve(home: Path, options: UpstreamOptions) -> None:
    """Serve until a signal. Raises EnvironmentFault, StoreUnavailable."""
    with stop_on_signals(interrupts=False) as stop:
        with open_upstream(home, options) as upstream, written_log(upstream, options):
            write_whole(home / READY, json.dumps(dict(upstream.ports)))
            wait_until(stop.is_set)
        (home / READY).unlink(missing_ok=True)


if __name__ == "__main__":
    configure()
    serve(Path(sys.argv[1]), UpstreamOptions(**json.load(sys.stdin)))
