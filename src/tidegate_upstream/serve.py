"""The process behind `tidegate upstream start`: a cluster and its ports, until a signal says that it is enough.

python -m tidegate_upstream.serve DIRECTORY < OPTIONS        OPTIONS: the JSON of UpstreamOptions

open the store ──► nodes ──► ports ──► ready.json ──► SIGTERM or SIGINT ──► ports, nodes, store are closed in order
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.cli import logging
from tidegate.engine.stop_signals import stop_on_signals, wait_until
from tidegate.server.listening import guest_listener
from tidegate.spark.cache import PRIVATE_DIRECTORY, write_whole
from tidegate_upstream.background import READY, UpstreamOptions
from tidegate_upstream.log import LogKeep, UpstreamLog
from tidegate_upstream.tidb.cluster import Cluster, ClusterOptions
from tidegate_upstream.tidb.node import NodeOptions
from tidegate_upstream.tidb.server.incoming import Account
from tidegate_upstream.tidb.server.upstream import Upstream


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
    """The change log is written meanwhile, if that is asked for. Raises EnvironmentFault."""
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
    with stop_on_signals(interrupts=False) as told:
        with open_upstream(home, options) as upstream, written_log(upstream, options):
            write_whole(home / READY, json.dumps(dict(upstream.ports)))
            wait_until(told.is_set)
        (home / READY).unlink(missing_ok=True)


if __name__ == "__main__":
    logging.configure()
    serve(Path(sys.argv[1]), UpstreamOptions(**json.load(sys.stdin)))
