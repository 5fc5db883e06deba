"""Sync points: moments at which a replica is as its upstream was, kept for readers in `tidb_cdc.syncpoint_v1`.

    primary_ts     a multiple of the interval since 1970, at which a round ends
    secondary_ts   of a TiDB: the ts at which it then holds just that.  Of others 0: they have no past to read

    upstream  SET tidb_snapshot = primary_ts   ─┐
                                                ├─ the same rows
    replica   SET tidb_snapshot = secondary_ts ─┘     or SET tidb_enable_external_ts_read = ON, the newest point

The pair is written in the transaction that moves the checkpoint to it, which is the writer's alone: what another run
writes in the meantime is no part of it, and a run that lost its epoch writes none.

Source: TiCDC documentation, "Upstream and Downstream Clusters Data Validation and Snapshot Read"; the table and its
columns are TiCDC's.
"""

import logging
from dataclasses import dataclass
from typing import Final

from tidegate.model.errors import SinkError
from tidegate.model.tso import LOGICAL_BITS, physical_ms
from tidegate.mysql import server_sql as sent
from tidegate.sink.sql.connection import TargetSession
from tidegate.sink.sql.target import TargetServer

LOGGER: Final = logging.getLogger(__name__)
CLUSTER: Final = "default"


@dataclass(frozen=True, slots=True)
class SyncPoints:
    """How often there are sync points, and how long they are kept."""

    interval_ms: int = 600_000
    retention_ms: int = 86_400_000

    def after(self, ts: int) -> int:
        """Return the first sync point above `ts`."""
        return (physical_ms(ts) // self.interval_ms + 1) * self.interval_ms << LOGICAL_BITS

    def is_one(self, ts: int) -> bool:
        """Return whether `ts` is a sync point."""
        return self.after(ts - 1) == ts


class SyncPointTable:
    """The sync points of one changefeed in its target."""

    def __init__(self, feed: str, points: SyncPoints) -> None:
        self._name, self._points = changefeed_name(feed), points
        self._forgotten_ms = 0
        self._is_told = False

    def create(self, session: TargetSession) -> None:
        """Make the table where it is not there."""
        session.ask(sent.CREATE_POINTS_DATABASE, sent.CREATE_POINTS)

    def note(self, session: TargetSession, target: TargetServer, primary_ts: int) -> int:
        """Write a sync point within the session's transaction; return the secondary_ts."""
        secondary_ts = 0
        if target.traits.past:
            ((secondary_ts,),) = session.ask(sent.NOW_TS)
        session.changed(sent.NOTE_POINT, CLUSTER, self._name, str(primary_ts), str(secondary_ts))
        now_ms, kept_ms = physical_ms(primary_ts), self._points.retention_ms
        if now_ms - self._forgotten_ms >= kept_ms:
            session.changed(sent.FORGET_POINTS, self._name, kept_ms // 1000)
            self._forgotten_ms = now_ms
        return int(secondary_ts)

    def show(self, session: TargetSession, target: TargetServer, secondary_ts: int) -> None:
        """Let sessions of a TiDB with `tidb_enable_external_ts_read` see the point; say it once where that may not
        be."""
        if not target.has("tidb_external_ts"):
            return
        try:
            session.ask(sent.SHOW_POINT.format(ts=secondary_ts))
        except SinkError as error:
            if not self._is_told:
                LOGGER.warning("tidb_external_ts stays as it is: %s", error)
            self._is_told = True


def changefeed_name(feed: str) -> str:
    """Return what the column `changefeed` says of a feed."""
    return f"{CLUSTER}/{feed}"


def secondary_of(session: TargetSession, feed: str, primary_ts: int | None) -> tuple[int, int] | None:
    """Return (primary_ts, secondary_ts) of the sync point at `primary_ts`, of the newest one for None."""
    name = changefeed_name(feed)
    if primary_ts is None:
        found = session.ask(sent.NEWEST_POINT, values=(name,))
    else:
        found = session.ask(sent.POINT_AT, values=(name, str(primary_ts)))
    return (int(found[0][0]), int(found[0][1])) if found else None
