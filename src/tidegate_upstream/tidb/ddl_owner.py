"""The DDL owner, which advances jobs one transaction at a time, and the client with which sessions submit them.

    wait for nodes ─► batch of work ─► next step ─► wait for nodes ─► .. ─► history
                         refused ─► turn back ─► steps back ─► history

A job waits until every living node has loaded the version of its last step, whichever owner made it: a new owner begins
with this wait.  Jobs on the same table or database run in the order of their ids, whether they name it by name or by id
(after a RENAME only the id is the same); a paused job keeps its position.  `Owner` keeps nothing in memory between two
calls, so any node may act next.

`DdlClient` submits a job, waits for it to reach the history, and serves ADMIN SHOW and CANCEL DDL JOBS.  Another
thread ticks the cluster meanwhile, or `wait` does so itself.  RECOVER TABLE uses the newest job that removed the table.

Source: TiDB pkg/ddl (executor.go: DoDDLJob, job_scheduler.go, job_worker.go, sync of schema versions), pkg/executor;
errors 8214, 8224 to 8226.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, tzinfo
from threading import Condition
from typing import Final, Protocol

import msgspec

from tidegate.model.errors import Retry, SqlRefused, TidegateError, UpstreamError
from tidegate.model.name import lowered
from tidegate.model.tso import physical_ms
from tidegate.schema.job import STRICT, Job, JobState
from tidegate.schema.stored.meta import Meta, table_key
from tidegate.schema.stored.snapshot import TableVersion
from tidegate_upstream.change.draft import Task
from tidegate_upstream.change.request import Involved, NewIds, Request, number, operation_of
from tidegate_upstream.change.role import check_role
from tidegate_upstream.errors import KeyLocked, WriteConflict
from tidegate_upstream.f1 import rollback
from tidegate_upstream.tidb.ddl_jobs import (
    ENDED,
    JobEntry,
    Registry,
    new_entry,
    read_entries,
    read_entry,
    table_ids,
    write_entry,
)
from tidegate_upstream.tidb.ddl_step import JobMoved, Steps, failed
from tidegate_upstream.tidb.metadata import JOB, MetaWriter
from tidegate_upstream.tidb.transaction import Storage, Transaction

_POLL_S: Final = 0.01
_IDLE_TICKS: Final = 3
"""Ticks without a move after which a cluster with a stopped clock is considered stuck."""
_REMOVES_TABLE: Final = frozenset({4, 11})


class Ticker(Protocol):
    """The part of a cluster that a waiting session uses."""

    changed: Condition
    storage: Storage
    now_ms: Callable[[], int]

    def tick(self) -> object | None:
        """Make a move; None if there is none."""
        ...

    def has_thread(self) -> bool:
        """Return whether a thread ticks already."""
        ...

    def waits_for(self, entry: JobEntry) -> list[str]:
        """Return the nodes that a job waits for."""
        ...


_UNKNOWN: Final = 1105


class JobError(msgspec.Struct, frozen=True):
    """`Job.err`."""

    code: int = _UNKNOWN
    message: str = "the job was rolled back"
    sqlstate: str = "HY000"


def error_of(job: Job) -> JobError | None:
    """Return the last error of a job; None when it had none."""
    raw = bytes(job.error)
    return None if raw == b"null" else msgspec.json.decode(raw, type=JobError)


class DdlClient:
    """The DDL queue and history, for sessions of any node."""

    def __init__(self, ticker: Ticker) -> None:
        self._ticker, self._storage = ticker, ticker.storage

    def submit(self, request: Request, sql_mode: int = STRICT, zone: tzinfo = UTC, write_source: int = 0) -> int:
        """Put a job into the queue and return its id. Settings decide how stored values are cast, and name the
        submitter.

        Raises SqlRefused 8263 for a job that the cluster's BDR role forbids users."""
        job_id = submit(self._storage, request, sql_mode, zone, write_source)
        with self._ticker.changed:
            self._ticker.changed.notify_all()
        return job_id

    def run(self, request: Request, sql_mode: int = STRICT, zone: tzinfo = UTC) -> Job:
        """Submit a job and wait for its end, as a DDL statement does. Raises as `wait`."""
        return self.wait(self.submit(request, sql_mode, zone))

    def wait(self, job_id: int, timeout_ms: int | None = None) -> Job:
        """Return the job when it has finished. Raises SqlRefused if it failed, UpstreamError after `timeout_ms`, or if
        the cluster is stuck."""
        until_ms = None if timeout_ms is None else self._ticker.now_ms() + timeout_ms
        idle = 0
        while True:
            job = self._ended(job_id)
            if job is not None and job.state in (JobState.SYNCED, JobState.DONE):
                return job
            if job is not None:
                error = error_of(job) or JobError()
                raise SqlRefused(error.code, error.message, error.sqlstate)
            before_ms = self._ticker.now_ms()
            idle = 0 if self._progress() or self._ticker.now_ms() != before_ms else idle + 1
            stands_still = idle > _IDLE_TICKS and not self._ticker.has_thread()
            if stands_still or (until_ms is not None and self._ticker.now_ms() >= until_ms):
                raise self._stuck(job_id)

    def _ended(self, job_id: int) -> Job | None:
        """Return a finished job; None for an unfinished one, and while its last transaction is half committed."""
        with suppress(KeyLocked):
            return Meta(self._storage.snapshot()).job(job_id)
        return None

    def _progress(self) -> bool:
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
            return UpstreamError(f"DDL job {job_id} is neither in the queue nor in the history")
        waiting = ", ".join(self._ticker.waits_for(entry)) or "other jobs, or an owner"
        return UpstreamError(
            f"DDL job {job_id} ({entry.job.query!a:.100}) is at version {entry.progress.version} and waits for: "
            f"{waiting}; end the open transactions there, or wait until the session of a dead node expires"
        )

    def cancel(self, job_id: int) -> None:
        """Cancel a job. Raises SqlRefused 8224, 8225, 8226."""
        cancel(self._storage, job_id)

    def bdr_role(self) -> str:
        """Return the role in bidirectional replication; empty for none."""
        return Meta(self._storage.snapshot()).bdr_role

    def set_bdr_role(self, role: str) -> None:
        """Set that role, or none. Raises WriteConflict."""
        transaction = self._storage.begin()
        MetaWriter(transaction).set_bdr_role(role)
        transaction.commit()

    def jobs(self) -> list[Job]:
        """Return the unfinished jobs, newest first."""
        return [entry.job for entry in read_entries(self._storage.snapshot())][::-1]

    def history(self) -> list[Job]:
        """Return the finished jobs, newest first."""
        return Meta(self._storage.snapshot()).history()[::-1]

    def dropped(self, schema: str, table: str) -> TableVersion | None:
        """Return the newest table of that name that a DROP or TRUNCATE removed, as before; `version` is the
        end.

        Its counters are those at the end: nodes one version behind took numbers while the table was being dropped.

        Raises SnapshotTooOld if its rows may have been removed.
        """
        for job in self.history():
            removes = job.type in _REMOVES_TABLE and job.state == JobState.SYNCED
            if removes and (lowered(job.schema_name), lowered(job.table_name)) == (lowered(schema), lowered(table)):
                began_ts = job.real_start_ts  # what was before it in the queue is over by then
                stored = Meta(self._storage.snapshot(began_ts)).table(job.schema_id, job.table_id)
                if stored is not None:
                    finished_ts = job.binlog.finished_ts if job.binlog else began_ts
                    gone_ts = self._storage.store.deleted(table_key(job.schema_id, job.table_id), finished_ts)
                    return TableVersion(job.schema_id, job.schema_name, stored, gone_ts or began_ts)
        return None


_CANCELLED: Final = 8214
_NOT_FOUND, _FINISHED, _ALMOST_FINISHED = 8224, 8225, 8226
_CANNOT_PAUSE, _CANNOT_RESUME = 8261, 8262


class Worker(Protocol):
    """Does the work of a step in batches."""

    def batch(self, transaction: Transaction, job: Job, task: Task) -> int | None:
        """Do one batch in that transaction, by the settings of the session that submitted the job.

        Returns the total number of rows after the last batch, else None. Raises SqlRefused if stored rows do not
        allow the change.
        """
        ...


@dataclass(slots=True)
class Owner:
    """Runs DDL jobs on the node that is the owner; `number` gives the position of a finished job in the history."""

    storage: Storage
    registry: Registry
    steps: Steps
    worker: Worker
    number: Callable[[], int]
    error_limit: int = 512

    def ready(self) -> list[int]:
        """Return the jobs that can make a step now, by id."""
        now_ts = self.storage.oracle.next()
        ready: list[int] = []
        before: list[Involved] = []
        busy: set[int] = set()
        reader = self.storage.snapshot(now_ts)
        entries = list(read_entries(reader, self.registry.first_job))
        self.registry.first_job = entries[0].job.id if entries else Meta(reader).newest_id + 1
        for entry in entries:
            mine, ids = entry.request.involves, set(table_ids(entry.request)) - {0}
            waits = any(involved.conflicts(other) for involved in before for other in mine) or not ids.isdisjoint(busy)
            if not waits and not self.waits_for(entry, physical_ms(now_ts)):
                ready.append(entry.job.id)
            before += mine
            busy |= ids
        return ready

    def waits_for(self, entry: JobEntry, now_ms: int) -> list[str]:
        """Return the nodes that have not reported the version of the job's last step."""
        version = entry.progress.version
        by_job = entry.job.id if self.steps.metadata_lock else None
        return list(self.registry.behind(by_job, version, now_ms)) if version else []

    def act(self, job_id: int) -> bool:
        """Make the next step of a job; False if another transaction interfered."""
        entry = read_entry(self.storage.snapshot(), job_id)
        if entry is None or self.waits_for(entry, physical_ms(self.storage.oracle.next())):
            return False
        try:
            self._do(entry)
        except SqlRefused as refused:
            return self._refused(entry, refused)
        except (WriteConflict, JobMoved):
            return False
        except TidegateError as error:
            if isinstance(error, UpstreamError) and error.retry is Retry.LATER:
                return False
            code = error.mysql_code if isinstance(error, UpstreamError) else _UNKNOWN
            return self._refused(entry, SqlRefused(code, str(error)))
        return True

    def _do(self, entry: JobEntry) -> None:
        job, progress = entry.job, entry.progress
        if self.steps.is_over(entry):
            self.steps.finish(entry, self.number())
            self.registry.forget(job.id)
        elif job.state == JobState.CANCELLING:
            if not self.steps.turn(entry, SqlRefused(_CANCELLED, "Cancelled DDL job")):
                self.steps.rewrite(entry, msgspec.structs.replace(job, state=JobState.RUNNING))
        elif job.state == JobState.ROLLINGBACK:
            self.steps.back(entry)
        elif progress.tasks:
            self._work(entry)
        else:
            self.steps.forward(entry)

    def _work(self, entry: JobEntry) -> None:
        transaction = self.steps.begin(entry)
        task, *rest = entry.progress.tasks
        rows = self.worker.batch(transaction, entry.job, task)
        self.steps.failpoint("ddl/before-batch")
        if rows is None:
            transaction.lock(JOB.key(entry.job.id))
        else:
            job = msgspec.structs.replace(entry.job, row_count=entry.job.row_count + rows, last_schema_version=0)
            progress = msgspec.structs.replace(entry.progress, tasks=tuple(rest))
            write_entry(transaction, JobEntry(job, progress))
        transaction.commit()

    def _refused(self, entry: JobEntry, refused: SqlRefused) -> bool:
        """Roll back if that is possible, else record the error and retry."""
        try:
            job = entry.job
            turns = job.state in (JobState.QUEUEING, JobState.RUNNING)
            hopeless = refused.mysql_code != _UNKNOWN or job.error_count >= self.error_limit or not entry.progress.step
            if not (turns and hopeless and self.steps.turn(entry, refused)):
                self.steps.rewrite(entry, failed(job, refused))
        except (WriteConflict, JobMoved):
            return False
        return True


# --- what anybody may ask for ---


def submit(
    storage: Storage, request: Request, sql_mode: int = STRICT, zone: tzinfo = UTC, write_source: int = 0
) -> int:
    """Put a job into the queue and return its id, which is larger than the ids of all that it creates.

    Stored values are cast by `sql_mode` (TiDB's bits) and `zone`; `write_source` names the replication that submits
    the job, 0 for a user. Raises SqlRefused 8263 if the cluster's BDR role forbids users the job."""
    while True:
        transaction = storage.begin()
        meta = MetaWriter(transaction)
        role = meta.bdr_role
        if role and not write_source:
            check_role(role, request, meta.table(request.schema_id, request.table_id))
        new_ids: NewIds = meta.new_ids
        numbered = number(request, new_ids)
        (job_id,) = meta.new_ids(1)
        entry = new_entry(numbered, job_id, transaction.start_ts, sql_mode, zone)
        job = msgspec.structs.replace(entry.job, bdr_role=role, cdc_write_source=write_source)
        write_entry(transaction, JobEntry(job, entry.progress))
        try:
            transaction.commit()
        except WriteConflict:
            continue
        return job_id


def cancel(storage: Storage, job_id: int) -> None:
    """Request the cancellation of a job. Raises SqlRefused: 8224 no such job, 8225 finished, 8226 no longer
    possible."""
    while True:
        transaction = storage.begin()
        entry = read_entry(transaction, job_id)
        if entry is None:
            raise SqlRefused(_NOT_FOUND, f"DDL Job:{job_id} not found")
        if entry.job.state in ENDED:
            raise SqlRefused(_FINISHED, f"This job:{job_id} is finished, so can't be cancelled")
        going = entry.job.state in (JobState.QUEUEING, JobState.RUNNING)
        if not going or rollback(operation_of(entry.request), entry.progress.step) is None:
            raise SqlRefused(_ALMOST_FINISHED, f"This job:{job_id} is almost finished, can't be cancelled now")
        job = msgspec.structs.replace(entry.job, state=JobState.CANCELLING)
        write_entry(transaction, JobEntry(job, entry.progress))
        try:
            transaction.commit()
        except WriteConflict:
            continue
        return
