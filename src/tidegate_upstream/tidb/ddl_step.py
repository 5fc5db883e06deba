"""The transactions of a DDL job: its steps, backfill and validation in batches, and deletion of ranges.

A step is one transaction; its schema version was taken before in another one, so a crash may leave a version without a
Diff.

    step               begin ── take version 182 ── definitions, Diff:182, job row, tidb_mdl_info ── commit

    queueing ─► running .. ─► done ─► [history: synced]
        │           └─► rollingback .. ─► rollback_done ─► [history]    cancelled at a step that can be rolled back
        └─► cancelled ─► [history]                                      cancelled before the first step

- The bytes of the job's row must be those that the caller read (JobMoved), and the row is written or locked, so of two
  owners that act at once one gets a write conflict.
- All steps with a version lock one key, so versions are in the order of commits.

Work between two steps (`Backfill`) has phases: columns, indexes, copies of rows, validation.  Each phase walks all rows
once.  A batch is a range of rows of one phase and one physical id, in one transaction with the new checkpoint:

    tidb_ddl_reorg     job 304 │ element 1 _idx_ │ physical id 283 │ start_key │ reorg_meta {"phase":0,"rows":512}

A batch reads at its own start and locks the rows that it used: a concurrent write of one of them makes it fail and
start again; a row written later is written by nodes that know the element already.  Rewrites of a changed column carry
a source by which change capture leaves them out.  Existing results are kept: an entry with the same handle, a row with
the new value, a copy made by a double write.

Validation checks stored rows, while nodes enforce the same rule for new ones:

    NOT NULL                1138   Invalid use of NULL value           a narrower type     the error of an INSERT
    CHECK                   3819   Check constraint .. is violated     foreign key         1452   a parent is missing
    EXCHANGE PARTITION      1737   a row does not match the partition

Delete ranges wait in gc_delete_range after the job, e.g. [t45 .. t46) of a dropped table.  GC with a safe point >= the
row's ts removes the keys with all versions, without delete events; RECOVER TABLE before that removes the row instead.

Source: TiDB pkg/ddl (job_worker.go, schema_version.go, rollingback.go, backfilling.go, reorg.go, column.go,
partition.go, delete_range.go, checkForNullValue, verifyRemainRecordsForCheckConstraint, checkForeignKeyConstrain,
checkExchangePartitionRecordValidation), gc_worker (deleteRanges).
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Final, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from tidegate.expr.cast import Target, assign, recast
from tidegate.expr.compiler import compile_text
from tidegate.expr.scope import RelationColumn, Scope
from tidegate.kv.index_entry import decode_index_entry
from tidegate.kv.keys import record_key, string_key, table_prefix, table_span
from tidegate.kv.rows import ChecksumForm, Row, decode_row
from tidegate.model.errors import SqlRefused, UpstreamError
from tidegate.model.kv_change import LOSSY_DDL
from tidegate.mysql.encoding import encode_bytes
from tidegate.mysql.values import Context
from tidegate.schema.job import MODE_BITS, Binlog, Job, JobState, reorg_meta
from tidegate.schema.stored.arguments import RecoverArgs
from tidegate.schema.stored.definition import NOT_NULL, column_type
from tidegate.schema.stored.meta import Meta
from tidegate_upstream.change.draft import CounterChange, Definitions, StepOutcome, Task
from tidegate_upstream.change.request import Request, operation_of, raw_arguments
from tidegate_upstream.errors import WriteConflict, missing_table
from tidegate_upstream.f1 import Work, next_step, rollback
from tidegate_upstream.tidb.ddl_jobs import (
    ENDED,
    JobEntry,
    JobProgress,
    finish_job,
    joined,
    read_entry,
    table_ids,
    write_entry,
)
from tidegate_upstream.tidb.dml import key_columns, key_values, matching
from tidegate_upstream.tidb.engine import ColumnFamily, Edit
from tidegate_upstream.tidb.metadata import DELETE_RANGE, LOCK_INFO, REORG, MetaWriter, Values
from tidegate_upstream.tidb.table_access import TableReader
from tidegate_upstream.tidb.table_rows import (
    KeyMutation,
    RowForm,
    RowImage,
    ShapeIndex,
    TableShape,
    duplicate,
    image_of,
    index_mutation,
    record_mutation,
    values_of,
)
from tidegate_upstream.tidb.transaction import Storage, Transaction


def delete_ranges(storage: Storage, safe_point: int) -> int:
    """Remove the delete ranges of jobs finished by `safe_point`; return how many.

    Reads below it must be forbidden already (store_mvcc.collect_garbage).
    """
    assert safe_point <= storage.store.safe_point, (safe_point, storage.store.safe_point)
    transaction = storage.begin()
    due = [(number, row) for number, row in DELETE_RANGE.rows(transaction) if _moment(row) <= safe_point]
    for number, row in due:
        low, high = map(encode_bytes, _bounds(row))
        with storage.store.guard:
            edits: list[Edit] = [
                (column, key, None)
                for column in (ColumnFamily.LOCK, ColumnFamily.WRITE, ColumnFamily.DATA)
                for key, _ in storage.store.engine.scan(column, low, high)
            ]
            storage.store.engine.write(edits)
        DELETE_RANGE.remove(transaction, number)
    transaction.commit()
    return len(due)


def _moment(row: Values) -> int:
    ts = row["ts"]
    assert isinstance(ts, int), row
    return ts


def _bounds(row: Values) -> tuple[bytes, bytes]:
    start, end = row["start_key"], row["end_key"]
    assert isinstance(start, bytes), row
    assert isinstance(end, bytes), row
    return bytes.fromhex(start.decode()), bytes.fromhex(end.decode())


RowCheck: TypeAlias = Callable[[RowImage], None]
"""Checks a stored row; raises SqlRefused for a violation."""


def row_check(transaction: Transaction, task: Task, shape: TableShape, context: Context) -> RowCheck | None:
    """Return the check of every row; None if there is none."""
    checks = [_not_null(shape, column_id) for column_id in task.not_null]
    checks += [_fits(shape, column_id, context) for column_id in task.fit]
    checks += [_checked(shape, number, context) for number in task.checks]
    checks += [_has_parent(transaction, task.schema_id, shape, number, context) for number in task.foreign_keys]
    if task.work is Work.VALIDATE and task.targets:
        checks.append(_in_partition(transaction, task))
    if not checks:
        return None

    def check(image: RowImage) -> None:
        for each in checks:
            each(image)

    return check


def _not_null(shape: TableShape, column_id: int) -> RowCheck:
    name = shape.by_id[column_id].target.name

    def check(image: RowImage) -> None:
        if image.columns[column_id] is None:
            raise SqlRefused(1138, f"Invalid use of NULL value: column '{name}' of table '{shape.name}'", "22004")

    return check


def _fits(shape: TableShape, column_id: int, context: Context) -> RowCheck:
    column = shape.by_id[column_id]
    changing = column.stored.changing_type
    assert changing is not UNSET, column.target.name
    target = Target(column.target.name, column_type(changing), changing.collate)

    def check(image: RowImage) -> None:
        assign(recast(image.columns[column_id], column.target.type, target.type, context.zone), target, context)

    return check


def _checked(shape: TableShape, number: int, context: Context) -> RowCheck:
    constraint = next(item for item in shape.stored.constraint_info or () if item.id == number)
    targets = [column.target for column in shape.columns]
    columns = [RelationColumn(target.name, target.type, collation=target.collation) for target in targets]
    compiled = compile_text(constraint.expr_string, Scope.of_columns(columns, shape.name))

    def check(image: RowImage) -> None:
        if compiled.run(values_of(shape, image.columns, context), context) == 0:
            raise SqlRefused(3819, f"Check constraint '{constraint.constraint_name.original}' is violated.", "HY000")

    return check


def _has_parent(transaction: Transaction, schema_id: int, shape: TableShape, number: int, context: Context) -> RowCheck:
    """Check that the row's values exist in the referenced table, unless one of them is NULL."""
    key = next(item for item in shape.stored.fk_info or () if item.id == number)
    meta = Meta(transaction)
    schemas = [schema.id for schema in meta.schemas() if schema.name.lower == key.ref_schema.lower] or [schema_id]
    parent = next((table for table in meta.tables(schemas[0]) if table.name.lower == key.ref_table.lower), None)
    reader = None if parent is None else TableReader(transaction, TableShape(parent), context)
    child = TableReader(transaction, shape, context)
    columns = key_columns(child, key.cols)

    def check(image: RowImage) -> None:
        values = key_values(child, columns, image)
        if None in values:
            return
        if reader is None or next(matching(reader, key.ref_cols, values), None) is None:
            raise SqlRefused(
                1452,
                "Cannot add or update a child row: a foreign key constraint fails "
                f"(`{shape.name}`, CONSTRAINT `{key.fk_name.original}`)",
                "23000",
            )

    return check


def _in_partition(transaction: Transaction, task: Task) -> RowCheck:
    """Check that the row belongs to the partition that the table is exchanged with."""
    meta = Meta(transaction)
    tables = (meta.table(schema.id, task.targets[0]) for schema in meta.schemas())
    partitioned = next((table for table in tables if table is not None), None)
    assert partitioned is not None, task
    locate = TableShape(partitioned).placements[0].locate

    def check(image: RowImage) -> None:
        if locate(image.columns) != task.partitions[0]:
            raise SqlRefused(1737, "Found a row that does not match the partition", "HY000")

    return check


BATCH_ROWS: Final = 256
_MODES: Final = ("STRICT_TRANS_TABLES", "STRICT_ALL_TABLES", "ALLOW_INVALID_DATES")


class _Checkpoint(msgspec.Struct, frozen=True):
    """The start of the next batch: a phase, an index into its physical ids, a key; `rows` are done before it.

    `end` is behind the last row present when the scan of that physical id began: later writers already
    maintain the element, and without an end a scan of a busy table might never finish."""

    phase: int = 0
    partition: int = 0
    rows: int = 0
    start: bytes = b""
    end: bytes = b""


@dataclass(frozen=True, slots=True)
class _Phase:
    """A scan of the rows under some physical ids; `element` and `kind` are TiDB's names for what is filled."""

    element: int
    kind: bytes
    physical_ids: tuple[int, ...]
    apply: Callable[[Transaction, Row, RowImage], None]
    source: int = 0


class Backfill:
    """The worker of an owner (ddl_owner.py), without state between two batches."""

    def __init__(self, now: Callable[[], datetime], batch_rows: int = BATCH_ROWS) -> None:
        self._now, self._batch_rows = now, batch_rows

    def batch(self, transaction: Transaction, job: Job, task: Task) -> int | None:
        """Do one batch; return the total number of rows after the last one, else None. Raises SqlRefused."""
        job_id, settings = job.id, reorg_meta(job)
        table = Meta(transaction).table(task.schema_id, task.table_id)
        if table is None:
            raise missing_table(f"of DDL job {job_id} (id {task.table_id})")
        mode = frozenset(name for name in _MODES if settings.sql_mode >> MODE_BITS[name] & 1)
        context = Context(self._now(), settings.zone, mode, writing=True)
        shape = TableShape(table)
        phases = _phases(transaction, task, shape, context)
        checkpoint = _read_checkpoint(transaction, job_id)
        if checkpoint.phase < len(phases):
            checkpoint = self._walk(transaction, phases[checkpoint.phase], shape, context, checkpoint)
        if checkpoint.phase < len(phases):
            phase = phases[checkpoint.phase]
            row: Values = {
                "job_id": job_id,
                "ele_id": phase.element,
                "ele_type": phase.kind,
                "start_key": checkpoint.start,
                "end_key": checkpoint.end,
                "physical_id": phase.physical_ids[checkpoint.partition]
                if checkpoint.partition < len(phase.physical_ids)
                else 0,
                "reorg_meta": msgspec.json.encode(msgspec.structs.replace(checkpoint, start=b"", end=b"")),
            }
            REORG.put(transaction, job_id, row)
            return None
        if REORG.get(transaction, job_id) is not None:
            REORG.remove(transaction, job_id)
        return checkpoint.rows

    def _walk(
        self, transaction: Transaction, phase: _Phase, shape: TableShape, context: Context, checkpoint: _Checkpoint
    ) -> _Checkpoint:
        if checkpoint.partition == len(phase.physical_ids):
            return _Checkpoint(checkpoint.phase + 1, rows=checkpoint.rows)
        transaction.source = phase.source
        physical_id = phase.physical_ids[checkpoint.partition]
        layout = shape.layout_of(physical_id)
        start, end = (checkpoint.start, checkpoint.end) if checkpoint.start else _whole(transaction, physical_id)
        batch = list(islice(transaction.scan(start, end), self._batch_rows)) if end else []
        for key, value in batch:
            row = decode_row(layout, key, value)
            transaction.lock(key)
            phase.apply(transaction, row, image_of(shape, row, context))
        rows = checkpoint.rows + len(batch)
        if len(batch) == self._batch_rows:
            return _Checkpoint(checkpoint.phase, checkpoint.partition, rows, batch[-1][0] + b"\0", end)
        is_last = checkpoint.partition + 1 == len(phase.physical_ids)
        return (
            _Checkpoint(checkpoint.phase + 1, 0, rows)
            if is_last
            else _Checkpoint(checkpoint.phase, checkpoint.partition + 1, rows)
        )


def _whole(transaction: Transaction, physical_id: int) -> tuple[bytes, bytes]:
    start, end = table_span(physical_id)
    last = next(transaction.scan(start, end, reverse=True), None)
    return start, b"" if last is None else last[0] + b"\0"


# --- what is done to a row ---


def _phases(transaction: Transaction, task: Task, shape: TableShape, context: Context) -> list[_Phase]:
    ids, phases = shape.physical_ids, []
    check = row_check(transaction, task, shape, context)
    if check is not None:
        phases.append(_Phase(task.table_id, b"_look_", ids, lambda _transaction, _row, image: check(image)))
    for new, old in task.columns.items():
        phases.append(_Phase(new, b"_col_", ids, _rewriter(shape, new, old, context), LOSSY_DDL))
    if task.indexes:
        indexes = [index for index in shape.indexes if index.layout.id in task.indexes]
        fill = partial(_put_entries, shape, indexes, context)
        phases.append(_Phase(task.indexes[0], b"_idx_", ids, fill))
    if task.work is Work.BACKFILL and task.targets:
        phases.append(_Phase(task.targets[0], b"_part_", task.partitions, _copier(shape, context)))
    return phases


def _rewriter(shape: TableShape, new: int, old: int, context: Context) -> Callable[[Transaction, Row, RowImage], None]:
    """Fill rows without a value for the new column with the cast of the old one; 1265 for NULL if it is NOT NULL."""
    source = shape.by_id[old].target
    target = replace(shape.by_id[new].target, name=source.name)
    not_null = shape.by_id[new].stored.type.flag & NOT_NULL

    def rewrite(transaction: Transaction, row: Row, image: RowImage) -> None:
        if not_null and image.columns[old] is None:
            raise SqlRefused(1265, f"Data truncated for column '{source.name}' at row 1", "01000")
        if new in row.columns:
            return
        running = recast(image.columns[old], source.type, target.type, context.zone)
        columns = {**image.columns, new: assign(running, target, context)}
        tail = row.tail and ChecksumForm(row.tail.version, row.tail.extra)
        written = record_mutation(shape, image._replace(columns=columns), RowForm(row.version, tail))
        _put(transaction, written)

    return rewrite


def _put_entry(
    transaction: Transaction, shape: TableShape, index: ShapeIndex, image: RowImage, context: Context
) -> None:
    entry = index_mutation(shape, index, image)
    assert entry.value is not None, index.name
    stored = transaction.get(entry.key)
    if stored is None:
        transaction.put(entry.key, entry.value)
    elif entry.distinct:
        layout = shape.index_layout(index, image.physical_id)
        if decode_index_entry(layout, entry.key, stored).handle != image.handle:
            raise duplicate(shape, index, image, context)


def _copier(shape: TableShape, context: Context) -> Callable[[Transaction, Row, RowImage], None]:
    """Copy every row, with its index entries, to its partition in the other set of partitions."""
    other, local = shape.placements[1], [index for index in shape.indexes if not index.layout.global_index]

    def copy(transaction: Transaction, row: Row, image: RowImage) -> None:
        target = other.locate(image.columns)
        if target is None:
            raise SqlRefused(1526, "Table has no partition for value of a row", "HY000")
        if transaction.get(record_key(target, image.handle)) is not None:
            return
        moved = image._replace(physical_id=target)
        _put(transaction, record_mutation(shape, moved, RowForm(row.version)))
        _put_entries(shape, local, context, transaction, row, moved)

    return copy


def _put_entries(
    shape: TableShape,
    indexes: list[ShapeIndex],
    context: Context,
    transaction: Transaction,
    _row: Row,
    image: RowImage,
) -> None:
    """Write the index entries of a row; SqlRefused 1062 for a duplicate key."""
    for index in indexes:
        _put_entry(transaction, shape, index, image, context)


def _put(transaction: Transaction, mutation: KeyMutation) -> None:
    assert mutation.value is not None, mutation.key.hex()
    transaction.put(mutation.key, mutation.value)


# --- checkpoints ---


def _read_checkpoint(transaction: Transaction, job_id: int) -> _Checkpoint:
    row = REORG.get(transaction, job_id)
    if row is None:
        return _Checkpoint()
    meta, start, end = row["reorg_meta"], row["start_key"], row["end_key"]
    assert isinstance(meta, bytes), row
    assert isinstance(start, bytes), row
    assert isinstance(end, bytes), row
    return msgspec.structs.replace(msgspec.json.decode(meta, type=_Checkpoint), start=start, end=end)


_STEP_LOCK: Final = string_key("DDLStep")
_Change: TypeAlias = Callable[[Definitions, int], StepOutcome]
_Settle: TypeAlias = Callable[[StepOutcome, int], tuple[Job, JobProgress]]


class JobMoved(UpstreamError):
    """Another transaction changed or finished the job; the message names it."""

    code = "ddl:8210"


class StepRules(Protocol):
    """Computes the changes of definitions for the steps of a request."""

    def step(self, request: Request, step_number: int, definitions: Definitions, start_ts: int) -> StepOutcome:
        """Return the change from the step before to step `step_number`."""
        ...

    def step_back(
        self, request: Request, step_number: int, back: int, definitions: Definitions, start_ts: int
    ) -> StepOutcome:
        """Return the change to step `back` (from 1) of the rollback that began at step `step_number`."""
        ...


def failed(job: Job, refused: SqlRefused) -> Job:
    """Return the job with one more error."""
    code, message = refused.mysql_code, refused.message
    error = {"class": 0, "code": code, "message": message, "rfccode": f"ddl:{code}", "sqlstate": refused.sqlstate}
    return msgspec.structs.replace(job, error=Raw(msgspec.json.encode(error)), error_count=job.error_count + 1)


class Steps:
    """The transactions on DDL jobs of the node `name`; `failpoint` is called at points where a test may let the node
    die."""

    def __init__(
        self, storage: Storage, name: str, rules: StepRules, *, metadata_lock: bool, failpoint: Callable[[str], None]
    ) -> None:
        self.storage, self.name, self.rules = storage, name, rules
        self.metadata_lock, self.failpoint = metadata_lock, failpoint

    # --- transitions ---

    def forward(self, entry: JobEntry) -> None:
        """Take the next step. Raises SqlRefused if the definitions do not allow it, JobMoved, WriteConflict."""
        step_number = entry.progress.step + 1

        def settle(outcome: StepOutcome, version: int) -> tuple[Job, JobProgress]:
            done = outcome.done or entry.job.state == JobState.DONE
            job = _updated(entry.job, outcome, version, JobState.DONE if done else JobState.RUNNING)
            if outcome.done:
                binlog = Binlog(
                    version or entry.progress.version, outcome.schema, outcome.table, 0, list(outcome.tables) or None
                )
                job = msgspec.structs.replace(job, binlog=binlog)
            ranges = entry.progress.ranges + outcome.ranges
            return job, JobProgress(step_number, version or entry.progress.version, tasks=outcome.tasks, ranges=ranges)

        self._move(entry, lambda stored, ts: self.rules.step(entry.request, step_number, stored, ts), settle)

    def back(self, entry: JobEntry) -> None:
        """Take the next step of the rollback, the last of which ends the job."""
        progress = entry.progress
        turned, step_number = progress.turned, progress.back + 1
        assert turned is not None, entry
        last = step_number == len(rollback(operation_of(entry.request), turned) or ())

        def settle(outcome: StepOutcome, version: int) -> tuple[Job, JobProgress]:
            state = JobState.ROLLBACK_DONE if last else JobState.ROLLINGBACK
            job = _updated(entry.job, outcome, version, state)
            ranges = progress.ranges + outcome.ranges
            return job, JobProgress(progress.step, version or progress.version, turned, step_number, ranges=ranges)

        self._move(
            entry,
            lambda definitions, ts: self.rules.step_back(entry.request, turned, step_number, definitions, ts),
            settle,
        )

    def turn(self, entry: JobEntry, refused: SqlRefused) -> bool:
        """Begin the rollback, or end a job that has not changed the schema yet; False if it can only continue."""
        step_number = entry.progress.step
        way = rollback(operation_of(entry.request), step_number)
        if entry.progress.version and not way:
            return False
        state = JobState.ROLLINGBACK if step_number and way else JobState.CANCELLED
        job = msgspec.structs.replace(failed(entry.job, refused), state=state)
        progress = msgspec.structs.replace(entry.progress, turned=step_number, tasks=())
        self.rewrite(entry, job, progress if step_number and way else entry.progress)
        return True

    def rewrite(self, entry: JobEntry, job: Job, progress: JobProgress | None = None) -> None:
        """Change a job without a schema change."""
        transaction = self.begin(entry)
        write_entry(transaction, JobEntry(job, progress or entry.progress))
        transaction.commit()

    def finish(self, entry: JobEntry, number: int) -> None:
        """Move a finished job to the history."""
        assert entry.job.state in ENDED, entry
        transaction = self.begin(entry)
        finish_job(transaction, entry, number)
        self.failpoint("ddl/before-history")
        transaction.commit()

    def is_over(self, entry: JobEntry) -> bool:
        """Return whether no step is left."""
        if entry.job.state == JobState.DONE:
            return next_step(operation_of(entry.request), entry.progress.step) is None
        return entry.job.state in ENDED

    # --- inside ---

    def begin(self, entry: JobEntry) -> Transaction:
        """Return a transaction that fails to commit if the job changes from what the caller saw."""
        transaction = self.storage.begin()
        stored = read_entry(transaction, entry.job.id)
        if stored is None or stored.meta != entry.meta or stored.progress != entry.progress:
            transaction.rollback()
            raise JobMoved(f"DDL job {entry.job.id} was changed by another node; read it again")
        return transaction

    def _move(self, entry: JobEntry, change: _Change, settle: _Settle) -> None:
        transaction = self.begin(entry)
        outcome = change(Meta(transaction), transaction.start_ts)
        version = 0
        if outcome.diff is not None:
            transaction.lock(_STEP_LOCK)
            while not version:
                taking = self.storage.begin()
                writer = MetaWriter(taking)
                newest = writer.version + 1
                writer.set_version(newest)
                with suppress(WriteConflict):
                    taking.commit()
                    version = newest
            self.failpoint("ddl/version-taken")
        job, progress = settle(outcome, version)
        if not job.real_start_ts:
            job = msgspec.structs.replace(job, real_start_ts=transaction.start_ts)
        if version and self.metadata_lock:
            self._ask(transaction, entry, outcome, version)
        if isinstance(outcome.request.arguments, RecoverArgs):
            table = outcome.request.arguments.table_info
            kept = set(map(table_prefix, (table.id, *table.physical_ids)))
            for number, row in list(DELETE_RANGE.rows(transaction)):
                if _bounds(row)[0] in kept:
                    DELETE_RANGE.remove(transaction, number)
        _write(transaction, lambda ts: Meta(self.storage.snapshot(ts)), outcome, version)
        write_entry(transaction, JobEntry(job, progress))
        self.failpoint("ddl/before-step")
        transaction.commit()
        self.failpoint("ddl/after-step")

    def _ask(self, transaction: Transaction, entry: JobEntry, outcome: StepOutcome, version: int) -> None:
        """Record the tables whose transactions must end before nodes report `version` for this job."""
        ids = set(table_ids(entry.request))
        ids.update(table.id for _, table in outcome.puts)
        ids.update(table_id for _, table_id in outcome.removes)
        schemas = {schema.id for schema in outcome.schemas_put} | set(outcome.schemas_removed)
        for schema_id in schemas:
            ids.update(table.id for table in Meta(transaction).tables(schema_id))
        numbers = joined(sorted(ids - {0}))
        row: Values = {"job_id": entry.job.id, "version": version, "table_ids": numbers, "owner_id": self.name.encode()}
        LOCK_INFO.put(transaction, entry.job.id, row)


def _updated(job: Job, outcome: StepOutcome, version: int, state: JobState) -> Job:
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
    candidates = [counter.value]
    if counter.raise_only:
        candidates.append(meta.counter(counter.kind, counter.schema_id, counter.table_id) or 0)
    if counter.like is not None:
        candidates.append(meta.counter(counter.kind, *counter.like) or 0)
    if counter.at_ts:
        candidates.append(past(counter.at_ts).counter(counter.kind, counter.schema_id, counter.table_id) or 0)
    return max(candidates)
