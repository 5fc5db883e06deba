"""DDL jobs as rows of the system tables, and the registry in which nodes publish sessions, ownership and versions.

    submit     tidb_ddl_job row (state queueing), NextGlobalID                                  one transaction
    each step  tidb_ddl_job row, DDLProgress, tidb_mdl_info row, definitions, Diff              change/step.py
    the end    no row, tidb_ddl_history row, DDLJobHistory, gc_delete_range rows                one transaction

The row is what TiDB writes.  `JobProgress` holds what `schema_state` lacks (the current step of the operation, and the
work left there), so that any node can continue.

    session    node -> until when it counts as alive         renewed by each reload; that of a dead node expires
    owner      node                                          as long as its session lives; then any node may campaign
    versions   node -> its newest loaded version             without metadata locks: what the owner waits for
    locks      job -> node -> version                        with them: reported once no open transaction is older

The registry is in memory, and safety does not depend on it alone: a step is taken only if the store, the row of its job
and the registry agree, and a node whose session has expired stopped committing before that (its lease is no longer).

Source: TiDB pkg/ddl (job_submitter.go, job_worker.go, delete_range.go); recorded jobs; the keys that TiDB keeps in etcd
(owner election, schema versions, per-job versions).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from msgspec import UNSET, Raw

from tidegate.model.tso import physical_ms
from tidegate.mysql.packed_time import Time
from tidegate.schema.job import (
    STRICT,
    Binlog,
    Job,
    JobState,
    Location,
    MultiSchemaInfo,
    ReorgMeta,
    SubJob,
    parse_job,
)
from tidegate.schema.stored.arguments import ExchangeArgs, NewTableArgs, RenameTablesArgs
from tidegate.schema.stored.definition import render_stored
from tidegate.schema.stored.meta import Meta, Reader
from tidegate_upstream.change.draft import DeleteRange, Task
from tidegate_upstream.change.request import Request, operation_of, raw_arguments, request_of
from tidegate_upstream.f1 import Work
from tidegate_upstream.tidb.metadata import DELETE_RANGE, HISTORY, JOB, LOCK_INFO, REORG, MetaWriter, Values
from tidegate_upstream.tidb.transaction import Transaction


@dataclass(slots=True)
class Registry:
    """Nodes, owner and reports of a cluster, in memory. Times are physical ms of the oracle, which never go back."""

    until_ms: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    locks: dict[int, dict[str, int]] = field(default_factory=dict)
    candidate: str | None = None
    first_job: int = 0
    """Lower bound of the ids of unfinished jobs: a new job has a larger id than all before it.  Without
    it each read of the queue would scan the versions of all earlier jobs."""

    def renew(self, node: str, until_ms: int, version: int) -> None:
        """Renew a node's session until then and record its version."""
        self.until_ms[node] = until_ms
        self.versions[node] = version

    def leave(self, node: str) -> None:
        """Remove a node that ended in order."""
        self.until_ms.pop(node, None)
        self.versions.pop(node, None)
        if self.candidate == node:
            self.candidate = None

    def alive(self, now_ms: int) -> Sequence[str]:
        """Return the nodes whose session has not expired, by name."""
        return sorted(node for node, until_ms in self.until_ms.items() if now_ms <= until_ms)

    def owner(self, now_ms: int) -> str | None:
        """Return the DDL owner; None if there is none, or its session expired."""
        return self.candidate if self.candidate in self.alive(now_ms) else None

    def campaign(self, node: str, now_ms: int) -> bool:
        """Become the owner if there is none."""
        if self.owner(now_ms) is None and node in self.alive(now_ms):
            self.candidate = node
        return self.candidate == node

    def report(self, job_id: int, node: str, version: int) -> None:
        """Record that no transaction of that node uses the tables of a job under an older version."""
        self.locks.setdefault(job_id, {})[node] = version

    def behind(self, job_id: int | None, version: int, now_ms: int) -> Sequence[str]:
        """Return the nodes that must report before a job may leave `version`; by job with metadata locks."""
        reported = self.versions if job_id is None else self.locks.get(job_id, {})
        return [node for node in self.alive(now_ms) if reported.get(node, 0) < version]

    def forget(self, job_id: int) -> None:
        """Forget a finished job."""
        self.locks.pop(job_id, None)


ENDED: Final = frozenset({JobState.DONE, JobState.ROLLBACK_DONE, JobState.CANCELLED})
_KEEPS_ARGUMENTS: Final = frozenset({2, 4, 6, 7, 8, 11, 12, 20, 23, 25, 32, 33, 64, 71, 72})
"""Actions whose arguments stay in the history; it drops those of the others."""
_MODIFY: Final = 12
_RANGES_PER_JOB: Final = 1 << 16


class JobProgress(msgspec.Struct, frozen=True):
    """Progress of a job: its step `at`; in the rollback from step `turned`, the number of rollback steps done.

    `version` is its newest schema version, which all nodes must have before anything else happens; `tasks` are left at
    this step; `ranges` go when it is over."""

    step: int = msgspec.field(default=0, name="at")
    version: int = 0
    turned: int | None = None
    back: int = 0
    tasks: tuple[Task, ...] = ()
    ranges: tuple[DeleteRange, ...] = ()


@dataclass(frozen=True, slots=True)
class JobEntry:
    """An unfinished job. `meta` are the bytes of its row, which a step compares to detect concurrent changes."""

    job: Job
    progress: JobProgress
    meta: bytes = b""

    @property
    def request(self) -> Request:
        return request_of(self.job)


_PROGRESS: Final = msgspec.json.Decoder(JobProgress)


def new_entry(request: Request, job_id: int, start_ts: int, sql_mode: int = STRICT, zone: tzinfo = UTC) -> JobEntry:
    """Return the entry of a numbered request; `start_ts` is that of its submission."""
    operation = operation_of(request)
    subs = [
        SubJob(part.action, raw_arguments(part), revertible=True, state=JobState.QUEUEING) for part in request.parts
    ]
    involved = Raw(msgspec.json.encode(request.involved)) if request.involved else UNSET
    location = Location("", int((zone.utcoffset(None) or timedelta()).total_seconds()))
    if isinstance(zone, ZoneInfo):
        location = Location(zone.key)
    settings = ReorgMeta(sql_mode, location=location)
    return JobEntry(
        Job(
            job_id,
            request.action,
            request.schema_id,
            request.table_id,
            request.schema_name,
            request.table_name,
            JobState.QUEUEING,
            raw_args=raw_arguments(request),
            schema_state=operation.steps[0].job,
            start_ts=start_ts,
            query=request.query,
            binlog=Binlog(),
            version=2,
            reorg_meta=Raw(msgspec.json.encode(settings) if _is_reorg(request) else b"null"),
            multi_schema_info=MultiSchemaInfo(subs, revertible=True) if subs else None,
            sql_mode=sql_mode,
            involving_schema_info=involved,
            last_schema_version=0,
        ),
        JobProgress(),
    )


def _is_reorg(request: Request) -> bool:
    """Return whether a job may read a table; such jobs are queued as slow ones."""
    work = {step.work for step in operation_of(request).steps}
    return Work.BACKFILL in work or (request.action == _MODIFY and Work.VALIDATE in work)


def table_ids(request: Request) -> list[int]:
    """Return the ids of the tables that a job involves."""
    ids = {request.table_id}
    match request.arguments:
        case NewTableArgs(new_table_id=new):
            ids.add(new)
        case ExchangeArgs(pt_table_id=partitioned):
            ids.add(partitioned)
        case RenameTablesArgs(moves):
            ids.update(move.table_id for move in moves)
    return sorted(ids)


def _schema_ids(request: Request) -> list[int]:
    ids = {request.schema_id}
    match request.arguments:
        case ExchangeArgs(pt_schema_id=partitioned):
            ids.add(partitioned)
        case RenameTablesArgs(moves):
            ids.update(move.old_schema_id for move in moves)
            ids.update(move.new_schema_id for move in moves)
    return sorted(ids)


def joined(numbers: Sequence[int]) -> bytes:
    """Return numbers as a comma-separated list."""
    return ",".join(map(str, numbers)).encode()


def read_entry(reader: Reader, job_id: int) -> JobEntry | None:
    """Return an unfinished job by its id; None for any other."""
    row = JOB.get(reader, job_id)
    if row is None:
        return None
    return _entry(reader, job_id, row["job_meta"])


def read_entries(reader: Reader, first: int = 0) -> Iterator[JobEntry]:
    """Return the unfinished jobs by id; those below `first` are known to be finished."""
    for job_id, row in JOB.rows(reader, first):
        yield _entry(reader, job_id, row["job_meta"])


def _entry(reader: Reader, job_id: int, meta: object) -> JobEntry:
    assert isinstance(meta, bytes), job_id
    return JobEntry(parse_job(meta), _PROGRESS.decode(Meta(reader).progress(job_id) or b"{}"), meta)


def write_entry(transaction: Transaction, entry: JobEntry) -> None:
    """Write the row of a job and its progress."""
    job, request = entry.job, entry.request
    row: Values = {
        "job_id": job.id,
        "reorg": int(_is_reorg(request)),
        "schema_ids": joined(_schema_ids(request)),
        "table_ids": joined(table_ids(request)),
        "job_meta": render_stored(job),
        "type": job.type,
        "processing": 0,
    }
    JOB.put(transaction, job.id, row)
    MetaWriter(transaction).put_progress(job.id, msgspec.json.encode(entry.progress))


def finish_job(transaction: Transaction, entry: JobEntry, number: int) -> None:
    """Move a job to the history; `number` counts the finished jobs."""
    job, request = entry.job, entry.request
    state = JobState.SYNCED if job.state == JobState.DONE else job.state
    binlog = msgspec.structs.replace(job.binlog or Binlog(), finished_ts=transaction.start_ts)
    kept = job.raw_args if job.type in _KEEPS_ARGUMENTS else Raw(b"null")
    ended = msgspec.structs.replace(job, state=state, binlog=binlog, seq_num=number, raw_args=kept)
    meta = render_stored(ended)
    row: Values = {
        "job_id": job.id,
        "job_meta": meta,
        "db_name": job.schema_name.encode(),
        "table_name": job.table_name.encode(),
        "schema_ids": joined(_schema_ids(request)),
        "table_ids": joined(table_ids(request)),
        "create_time": _second(job.start_ts),
    }
    writer = MetaWriter(transaction)
    writer.put_job(job.id, meta)
    writer.put_progress(job.id, None)
    HISTORY.put(transaction, job.id, row)
    JOB.remove(transaction, job.id)
    if LOCK_INFO.get(transaction, job.id):
        LOCK_INFO.remove(transaction, job.id)
    if REORG.get(transaction, job.id):
        REORG.remove(transaction, job.id)
    for element, delete_range in enumerate(entry.progress.ranges, 1):
        start, end = delete_range.bounds
        bounds: Values = {
            "job_id": job.id,
            "element_id": element,
            "start_key": start.hex().encode(),
            "end_key": end.hex().encode(),
            "ts": transaction.start_ts,
        }
        DELETE_RANGE.put(transaction, job.id * _RANGES_PER_JOB + element, bounds)


def _second(ts: int) -> Time:
    moment = datetime.fromtimestamp(physical_ms(ts) // 1000, tz=UTC)
    return Time(moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second)
