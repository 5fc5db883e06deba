"""The panel of an upstream: its sessions, change log and changefeeds, and its DDLs: those in flight, with the state
that each node has loaded, and the last ones done.

    add index shop.orders  0.4 s  n1 write only  n2 write only  n3 delete only

A node that has not loaded a job's newest version is in the state before it: the F1 paper's two neighbouring states.
States come and go faster than anybody looks, so what is seen is a sample.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidegate.engine.panel import DoneDdl, Panel, RunningDdl, Stage
from tidegate.model.tso import physical_ms
from tidegate.schema.job import Job
from tidegate.schema.stored.meta import Meta
from tidegate.source.tidb_segment import safe_points, segments
from tidegate_upstream.errors import KeyLocked
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.ddl_jobs import read_entries
from tidegate_upstream.tidb.information_schema import job_row
from tidegate_upstream.tidb.listener import Upstream

_DONE: Final = 20


def ddl_name(job: Job) -> tuple[str, str]:
    """Return the kind of a job and its table or database."""
    row = job_row(job)
    return str(row[3]), ".".join(str(word) for word in row[1:3] if word)


class DdlStates:
    """Looks at the DDLs of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._states: dict[int, tuple[str, str]] = {}
        """The newest state of each job, and the one before it."""
        self._running: tuple[RunningDdl, ...] = ()
        self._done: tuple[int, tuple[DoneDdl, ...]] = -1, ()

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(self._cluster.nodes)

    def running(self, now_ms: int) -> tuple[RunningDdl, ...]:
        """Return the DDLs in flight, the oldest first; those of before while a job is being written."""
        with self._cluster.guard, suppress(KeyLocked):
            jobs = [entry.job for entry in read_entries(self._cluster.storage.snapshot())]
            versions = [node.version for node in self._cluster.nodes.values()]
            states = {job.id: str(job_row(job)[4]) for job in jobs}
            before = {job_id: self._states.get(job_id, ("none", "none")) for job_id in states}
            self._states = {
                job_id: pair if pair[0] == states[job_id] else (states[job_id], pair[0])
                for job_id, pair in before.items()
            }
            self._running = tuple(
                RunningDdl(
                    " ".join(ddl_name(job)),
                    max(now_ms - physical_ms(job.start_ts), 0) / 1000,
                    tuple(self._states[job.id][version < (job.last_schema_version or 0)] for version in versions),
                )
                for job in jobs
            )
        return self._running

    def done(self) -> tuple[DoneDdl, ...]:
        """Return the last ones done, the newest first."""
        version = max((node.version for node in self._cluster.nodes.values()), default=0)
        if version != self._done[0]:
            with self._cluster.guard, suppress(KeyLocked):
                jobs = Meta(self._cluster.storage.snapshot()).history()[: -_DONE - 1 : -1]
                ends = [job.binlog.finished_ts if job.binlog else job.start_ts for job in jobs]
                self._done = (
                    version,
                    tuple(
                        DoneDdl(
                            " ".join(ddl_name(job)), (physical_ms(end) - physical_ms(job.start_ts)) / 1000, job.query
                        )
                        for job, end in zip(jobs, ends, strict=True)
                    ),
                )
        return self._done[1]


class ClusterPanel:
    """The panel of an upstream with its change log, if it has one; `notes` are lines below the title."""

    def __init__(self, upstream: Upstream, log: str, notes: Sequence[str]) -> None:
        self._upstream, self._log, self._notes = upstream, log, tuple(notes)
        self._ddls = DdlStates(upstream.cluster)
        self._began_s = time.monotonic()

    def panel(self) -> Panel:
        """Return the panel as of now."""
        now_ms, nodes = time.time_ns() // 1_000_000, self._ddls.nodes
        return Panel(
            f"upstream · {len(nodes)} nodes · {time.monotonic() - self._began_s:.0f} s",
            self._notes,
            stages=(Stage("SQL", len(self._upstream.sessions()), "sessions"), *self._stages(now_ms)),
            nodes=nodes,
            ddls=self._ddls.running(now_ms),
            done=self._ddls.done(),
        )

    def _stages(self, now_ms: int) -> Iterator[Stage]:
        if not self._log:
            return
        parts = segments(Path(self._log))
        end_ms = now_ms - physical_ms(parts[-1][1]) if parts else None
        yield Stage(f"→ {self._log}", len(parts), "segments", lag_ms=end_ms)
        for feed in safe_points(Path(self._log)):
            yield Stage(f"→ {feed.changefeed}", 1, "changefeed", lag_ms=now_ms - physical_ms(feed.checkpoint_ts))
