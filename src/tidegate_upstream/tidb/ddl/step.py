"""One transaction of a job: what it changes, its row, and the version by which nodes hear of it.

    step               begin ── take version 182 ── definitions, Diff:182, job row, tidb_mdl_info ── commit
                                (a transaction of its own: a crash here leaves 182 without Diff)

    queueing ─► running .. ─► done ─► [history: synced]              forward
        │           └─► rollingback .. ─► rollback_done ─► [history]    turn at a step that can be taken back, back
        └─► cancelled ─► [history]                                      turn before the first step

- The row's bytes must be those that the caller saw (JobMoved), and the row is written or locked, so of two owners that
  act at once one gets a write conflict.
- All steps with a version lock one key: their order by version is that of their commits, whoever takes them.

Source: TiDB pkg/ddl (job_worker.go, schema_version.go, rollingback.go).
"""

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

import msgspec
from msgspec import Raw

from tidegate.kv.meta_key import string_key
from tidegate.model.errors import SqlRefused, UpstreamError, WriteConflict
from tidegate.schema.job import Binlog, Job, JobState
from tidegate.schema.stored.arguments import RecoverArgs
from tidegate.schema.stored.meta import Meta
from tidegate_upstream.change.outcome import CounterChange, Definitions, StepOutcome
from tidegate_upstream.change.request import Request, operation_of, raw_arguments
from tidegate_upstream.f1 import next_step, rollback
from tidegate_upstream.tidb.ddl.jobs import (
    ENDED,
    JobEntry,
    JobProgress,
    finish_job,
    joined,
    read_entry,
    table_ids,
    write_entry,
)
from tidegate_upstream.tidb.ddl.ranges import keep_tables
from tidegate_upstream.tidb.meta.tables import LOCK_INFO, Values
from tidegate_upstream.tidb.meta.writer import MetaWriter
from tidegate_upstream.tidb.transaction import Storage, Transaction

_STEP_LOCK: Final = string_key("DDLStep")
_Change: TypeAlias = Callable[[Definitions, int], StepOutcome]
_Settle: TypeAlias = Callable[[StepOutcome, int], tuple[Job, JobProgress]]


class JobMoved(UpstreamError):
    """Somebody else changed the row of a job, or ended the job; the message names it."""

    code = "ddl:8210"


class StepRules(Protocol):
    """What the steps of a request do to the definitions."""

    def step(self, request: Request, at: int, definitions: Definitions, start_ts: int) -> StepOutcome:
        """Return the change from step at-1 to step `at`."""
        ...

    def step_back(self, request: Request, at: int, back: int, definitions: Definitions, start_ts: int) -> StepOutcome:
        """Return the change to step `back` (from 1) of the way back that began at step `at`."""
        ...


def failed(job: Job, refused: SqlRefused) -> Job:
    """Return the job with an error more."""
    code, message = refused.mysql_code, refused.message
    error = {"class": 0, "code": code, "message": message, "rfccode": f"ddl:{code}", "sqlstate": refused.sqlstate}
    return msgspec.structs.replace(job, error=Raw(msgspec.json.encode(error)), error_count=job.error_count + 1)


class Steps:
    """Transactions on jobs, for the node `name`; `reach` is told places at which a test may let it die."""

    def __init__(
        self, storage: Storage, name: str, rules: StepRules, *, metadata_lock: bool, reach: Callable[[str], None]
    ) -> None:
        self.storage, self.name, self.rules = storage, name, rules
        self.metadata_lock, self.reach = metadata_lock, reach

    # --- transitions ---

    def forward(self, entry: JobEntry) -> None:
        """Take the next step. Raises SqlRefused where the definitions do not allow it, JobMoved, WriteConflict."""
        at = entry.progress.at + 1

        def settle(outcome: StepOutcome, version: int) -> tuple[Job, JobProgress]:
            done = outcome.done or entry.job.state == JobState.DONE
            job = _updated(entry.job, outcome, version, JobState.DONE if done else JobState.RUNNING)
            if outcome.done:
                binlog = Binlog(
                    version or entry.progress.version, outcome.schema, outcome.table, 0, list(outcome.tables) or None
                )
                job = msgspec.structs.replace(job, binlog=binlog)
            ranges = entry.progress.ranges + outcome.ranges
            return job, JobProgress(at, version or entry.progress.version, tasks=outcome.tasks, ranges=ranges)

        self._move(entry, lambda found, ts: self.rules.step(entry.request, at, found, ts), settle)

    def back(self, entry: JobEntry) -> None:
        """Take the next step of the way back, the last of which ends the job."""
        progress = entry.progress
        turned, at = progress.turned, progress.back + 1
        assert turned is not None, entry
        last = at == len(rollback(operation_of(entry.request), turned) or ())

        def settle(outcome: StepOutcome, version: int) -> tuple[Job, JobProgress]:
            state = JobState.ROLLBACK_DONE if last else JobState.ROLLINGBACK
            job = _updated(entry.job, outcome, version, state)
            ranges = progress.ranges + outcome.ranges
            return job, JobProgress(progress.at, version or progress.version, turned, at, ranges=ranges)

        self._move(entry, lambda found, ts: self.rules.step_back(entry.request, turned, at, found, ts), settle)

    def turn(self, entry: JobEntry, refused: SqlRefused) -> bool:
        """Begin the way back, or end a job that has not changed the schema yet; False where it can only go on."""
        at = entry.progress.at
        way = rollback(operation_of(entry.request), at)
        if entry.progress.version and not way:
            return False
        state = JobState.ROLLINGBACK if at and way else JobState.CANCELLED
        job = msgspec.structs.replace(failed(entry.job, refused), state=state)
        progress = msgspec.structs.replace(entry.progress, turned=at, tasks=())
        self.rewrite(entry, job, progress if at and way else entry.progress)
        return True

    def rewrite(self, entry: JobEntry, job: Job, progress: JobProgress | None = None) -> None:
        """Change a job without a change of the schema."""
        transaction = self.begin(entry)
        write_entry(transaction, JobEntry(job, progress or entry.progress))
        transaction.commit()

    def finish(self, entry: JobEntry, number: int) -> None:
        """Move a job that ended to the history."""
        assert entry.job.state in ENDED, entry
        transaction = self.begin(entry)
        finish_job(transaction, entry, number)
        self.reach("ddl/before-history")
        transaction.commit()

    def is_over(self, entry: JobEntry) -> bool:
        """Return whether no step is left."""
        if entry.job.state == JobState.DONE:
            return next_step(operation_of(entry.request), entry.progress.at) is None
        return entry.job.state in ENDED

    # --- inside ---

    def begin(self, entry: JobEntry) -> Transaction:
        """Return a transaction in which the job is as the caller saw it, and stays so until it commits."""
        transaction = self.storage.begin()
        found = read_entry(transaction, entry.job.id)
        if found is None or found.meta != entry.meta or found.progress != entry.progress:
            transaction.rollback()
            raise JobMoved(f"DDL job {entry.job.id} was changed by another node; read it again")
        return transaction

    def _move(self, entry: JobEntry, change: _Change, settle: _Settle) -> None:
        transaction = self.begin(entry)
        outcome = change(Meta(transaction), transaction.start_ts)
        version = 0
        if outcome.diff is not None:
            transaction.lock(_STEP_LOCK)
            version = self._take_version()
            self.reach("ddl/version-taken")
        job, progress = settle(outcome, version)
        if not job.real_start_ts:
            job = msgspec.structs.replace(job, real_start_ts=transaction.start_ts)
        if version and self.metadata_lock:
            self._ask(transaction, entry, outcome, version)
        if isinstance(outcome.request.arguments, RecoverArgs):
            table = outcome.request.arguments.table_info
            keep_tables(transaction, {table.id, *table.physical_ids})
        _write(transaction, lambda ts: Meta(self.storage.snapshot(ts)), outcome, version)
        write_entry(transaction, JobEntry(job, progress))
        self.reach("ddl/before-step")
        transaction.commit()
        self.reach("ddl/after-step")

    def _take_version(self) -> int:
        while True:
            transaction = self.storage.begin()
            writer = MetaWriter(transaction)
            version = writer.version + 1
            writer.set_version(version)
            try:
                transaction.commit()
            except WriteConflict:
                continue
            return version

    def _ask(self, transaction: Transaction, entry: JobEntry, outcome: StepOutcome, version: int) -> None:
        """Say which tables' transactions the nodes must see out before they report `version` for this job."""
        found = set(table_ids(entry.request))
        found.update(table.id for _, table in outcome.puts)
        found.update(table_id for _, table_id in outcome.removes)
        schemas = {schema.id for schema in outcome.schemas_put} | set(outcome.schemas_removed)
        for schema_id in schemas:
            found.update(table.id for table in Meta(transaction).tables(schema_id))
        numbers = joined(sorted(found - {0}))
        row: Values = {"job_id": entry.job.id, "version": version, "table_ids": numbers, "owner_id": self.name.encode()}
        LOCK_INFO.put(transaction, entry.job.id, row)


def _updated(job: Job, outcome: StepOutcome, version: int, state: JobState) -> Job:
    """The job after a step, its sub-jobs' arguments included."""
    changes = msgspec.structs.replace(
        job,
        state=state,
        schema_state=int(outcome.state),
        schema_id=outcome.request.schema_id,
        table_id=outcome.request.table_id,
        raw_args=raw_arguments(outcome.request),
        last_schema_version=version,
    )
    info = job.multi_schema_info
    if info is None:
        return changes
    subs = [
        msgspec.structs.replace(sub, raw_args=raw_arguments(part), state=state, schema_version=version)
        for sub, part in zip(info.sub_jobs or (), outcome.request.parts, strict=True)
    ]
    return msgspec.structs.replace(changes, multi_schema_info=msgspec.structs.replace(info, sub_jobs=subs))


def _write(transaction: Transaction, past: Callable[[int], Meta], outcome: StepOutcome, version: int) -> None:
    """The definitions, counters and the difference of a step."""
    writer = MetaWriter(transaction)
    counters = [(counter, _counted(writer, past, counter)) for counter in outcome.counters]
    for schema_id, table_id in outcome.removes:
        writer.remove_table(schema_id, table_id)
    for schema_id in outcome.schemas_removed:
        writer.remove_schema(schema_id)
    for schema in outcome.schemas_put:
        writer.put_schema(schema)
    for schema_id, table in outcome.puts:
        writer.put_table(schema_id, table)
    for counter, value in counters:
        writer.set_counter(counter.kind, counter.schema_id, counter.table_id, value)
    if outcome.diff is not None:
        writer.put_diff(msgspec.structs.replace(outcome.diff, version=version))


def _counted(meta: Meta, past: Callable[[int], Meta], counter: CounterChange) -> int | None:
    if counter.value is None:
        return None
    known = [counter.value]
    if counter.raise_only:
        known.append(meta.counter(counter.kind, counter.schema_id, counter.table_id) or 0)
    if counter.like is not None:
        known.append(meta.counter(counter.kind, *counter.like) or 0)
    if counter.at_ts:
        known.append(past(counter.at_ts).counter(counter.kind, counter.schema_id, counter.table_id) or 0)
    return max(known)
