"""Where sessions hand in DDL jobs and ask about them: ADMIN SHOW, CANCEL DDL JOBS, RECOVER TABLE.

    submit ─► job id ─► wait ─► the job of the history            somebody else ticks, or `wait` does so itself

Source: TiDB pkg/ddl (executor.go: DoDDLJob), pkg/executor (recover table: the newest job that took the table away).
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, tzinfo
from threading import Condition
from typing import Final, Protocol

import msgspec

from tidegate.model.errors import KeyLocked, SqlRefused, UpstreamError
from tidegate.model.name import lowered
from tidegate.schema.job import STRICT, Job, JobState
from tidegate.schema.stored.meta import Meta, table_key
from tidegate.schema.stored.snapshot import TableVersion
from tidegate_upstream.change.request import Request
from tidegate_upstream.tidb.ddl import owner
from tidegate_upstream.tidb.ddl.jobs import JobEntry, read_entries, read_entry
from tidegate_upstream.tidb.meta.writer import MetaWriter
from tidegate_upstream.tidb.transaction import Storage

_POLL_S: Final = 0.01
_IDLE_TICKS: Final = 3
"""Ticks without a move after which a cluster whose clock stands still will never move again."""
_TAKES_AWAY: Final = frozenset({4, 11})


class Ticker(Protocol):
    """A cluster, as far as a waiting session sees it."""

    changed: Condition
    storage: Storage
    now_ms: Callable[[], int]

    def tick(self) -> object | None:
        """Make a move; None when nobody can."""
        ...

    def has_thread(self) -> bool:
        """Return whether somebody else ticks."""
        ...

    def waits_for(self, entry: JobEntry) -> list[str]:
        """Return the nodes that a job waits for."""
        ...


_UNKNOWN: Final = 1105


class JobError(msgspec.Struct, frozen=True):
    """`Job.err`."""

    code: int = _UNKNOWN
    message: str = "the job was taken back"
    sqlstate: str = "HY000"


def error_of(job: Job) -> JobError | None:
    """Return the last error of a job; None when it had none."""
    raw = bytes(job.error)
    return None if raw == b"null" else msgspec.json.decode(raw, type=JobError)


def result_of(job: Job) -> Job:
    """Return the job when it reached its end; SqlRefused with its error when it was taken back."""
    if job.state in (JobState.SYNCED, JobState.DONE):
        return job
    error = error_of(job) or JobError()
    raise SqlRefused(error.code, error.message, error.sqlstate)


class DdlClient:
    """The queue and the history, for sessions of any node."""

    def __init__(self, ticker: Ticker) -> None:
        self._ticker, self._storage = ticker, ticker.storage

    def submit(self, request: Request, sql_mode: int = STRICT, zone: tzinfo = UTC, write_source: int = 0) -> int:
        """Put a job into the queue; its id. The settings are those by which stored values are cast, and who asks.

        Raises SqlRefused 8263 for what the cluster's role forbids its users."""
        job_id = owner.submit(self._storage, request, sql_mode, zone, write_source)
        with self._ticker.changed:
            self._ticker.changed.notify_all()
        return job_id

    def run(self, request: Request, sql_mode: int = STRICT, zone: tzinfo = UTC) -> Job:
        """Submit a job and wait for its end, as a DDL statement does. Raises as `wait`."""
        return self.wait(self.submit(request, sql_mode, zone))

    def wait(self, job_id: int, timeout_ms: int | None = None) -> Job:
        """Return the job when it is over. Raises SqlRefused with what stopped it, UpstreamError after `timeout_ms`,
        and when nothing will ever happen any more."""
        until_ms = None if timeout_ms is None else self._ticker.now_ms() + timeout_ms
        idle = 0
        while True:
            found = self._ended(job_id)
            if found is not None:
                return result_of(found)
            before_ms = self._ticker.now_ms()
            idle = 0 if self._progress() or self._ticker.now_ms() != before_ms else idle + 1
            stands_still = idle > _IDLE_TICKS and not self._ticker.has_thread()
            if stands_still or (until_ms is not None and self._ticker.now_ms() >= until_ms):
                raise self._stuck(job_id)

    def _ended(self, job_id: int) -> Job | None:
        """The job if it is over; None while it is not, and while its last transaction is half committed."""
        with suppress(KeyLocked):
            return Meta(self._storage.snapshot()).job(job_id)
        return None

    def _progress(self) -> bool:
        """Whether anything moved, or may have."""
        if not self._ticker.has_thread():
            if self._ticker.tick() is not None:
                return True
            time.sleep(_POLL_S)
            return False
        with self._ticker.changed:
            self._ticker.changed.wait(_POLL_S)
        return True

    def _stuck(self, job_id: int) -> UpstreamError:
        entry = read_entry(self._storage.snapshot(), job_id)
        if entry is None:
            return UpstreamError(f"DDL job {job_id} is not in the queue and not in the history; ask for its id again")
        waiting = ", ".join(self._ticker.waits_for(entry)) or "other jobs, or an owner"
        return UpstreamError(
            f"DDL job {job_id} ({entry.job.query!a:.100}) is at version {entry.progress.version} and waits for: "
            f"{waiting}; end the open transactions there, or wait until the session of a dead node runs out"
        )

    def cancel(self, job_id: int) -> None:
        """Take a job back. Raises SqlRefused 8224, 8225, 8226."""
        owner.cancel(self._storage, job_id)

    def bdr_role(self) -> str:
        """Return the role in replication in both directions; empty for none."""
        return Meta(self._storage.snapshot()).bdr_role

    def set_bdr_role(self, role: str) -> None:
        """Take that role, or none. Raises WriteConflict."""
        transaction = self._storage.begin()
        MetaWriter(transaction).set_bdr_role(role)
        transaction.commit()

    def jobs(self) -> list[Job]:
        """Return the jobs that are not over, newest first."""
        return [entry.job for entry in read_entries(self._storage.snapshot())][::-1]

    def history(self) -> list[Job]:
        """Return the jobs that are over, newest first."""
        return Meta(self._storage.snapshot()).history()[::-1]

    def dropped(self, schema: str, table: str) -> TableVersion | None:
        """Return the newest table of that name that a DROP or TRUNCATE took away, as it was before; `version` is the
        end.

        Its counters are those of the end: nodes that were a version behind took numbers while it was on its way out.

        Raises SnapshotTooOld when its rows may be gone already.
        """
        for job in self._taken(self.history()):
            if (lowered(job.schema_name), lowered(job.table_name)) == (lowered(schema), lowered(table)):
                began_ts = job.real_start_ts  # what was before it in the queue is over by then
                found = Meta(self._storage.snapshot(began_ts)).table(job.schema_id, job.table_id)
                if found is not None:
                    finished_ts = job.binlog.finished_ts if job.binlog else began_ts
                    gone_ts = self._storage.store.deleted(table_key(job.schema_id, job.table_id), finished_ts)
                    return TableVersion(job.schema_id, job.schema_name, found, gone_ts or began_ts)
        return None

    def _taken(self, jobs: Iterable[Job]) -> Iterable[Job]:
        return (job for job in jobs if job.type in _TAKES_AWAY and job.state == JobState.SYNCED)
