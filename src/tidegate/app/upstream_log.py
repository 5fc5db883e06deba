"""The change log of a running upstream, written as segments for changefeeds (`--source-uri tidb:///DIRECTORY`).

    store ──► ChangeLog ──► SegmentWriter ──► DIRECTORY/00..0-00..9.seg      what came, twice a second
                                                                             nothing came: how far it is, each 5 s

Locks of the dead, which would hold the log back, are settled before each write.
It begins at 0, so that a feed finds every DDL in it.  A write that fails is told and tried again: the store keeps what
is above the last segment.  A log that was written in memory's earlier life is of another database, and is refused.
"""

import logging
import time
from pathlib import Path
from threading import Event, Thread
from typing import Final, Self

from tidegate.model.errors import EnvironmentFault, Retry, TidegateError
from tidegate.tidb.change_log import ChangeLog
from tidegate.tidb.cluster import Cluster
from tidegate.tidb.segment import SegmentWriter, segments
from tidegate.tidb.snapshot import settle_dead

__all__ = ["UpstreamLog"]

LOG: Final = logging.getLogger(__name__)
WRITE_S: Final = 0.5
IDLE_S: Final = 5.0


class UpstreamLog:
    """Writes the log of `cluster` to `directory` between `start` and `stop`. Raises EnvironmentFault as said above."""

    def __init__(self, cluster: Cluster, directory: Path, *, in_memory: bool) -> None:
        if in_memory and segments(directory):
            raise EnvironmentFault(
                f"{directory} holds the change log of another upstream, and this one keeps its rows in memory alone; "
                "give an empty directory, or --data to go on with the same rows"
            )
        storage = self._storage = cluster.storage
        self._writer = SegmentWriter(ChangeLog(storage.store, storage.oracle), directory, 0)
        self._ended = Event()
        self._thread = Thread(target=self._run, name="upstream-log", daemon=True)
        self._told_s = time.monotonic()

    def start(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Write what is left and end."""
        self._ended.set()
        self._thread.join()
        self._write(empty=True)
        self._writer.close()

    def _run(self) -> None:
        while not self._ended.wait(WRITE_S):
            self._write(empty=time.monotonic() - self._told_s > IDLE_S)

    def _write(self, *, empty: bool) -> None:
        try:
            settle_dead(self._storage.store, self._storage.oracle)
            if self._writer.write(empty=empty) is not None:
                self._told_s = time.monotonic()
        except TidegateError as error:
            if error.retry is Retry.NEVER:
                raise
            LOG.warning("the change log waits at %d: %s", self._writer.low, error)
