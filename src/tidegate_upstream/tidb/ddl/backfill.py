"""Work on the rows of a table, batch by batch: filling indexes, columns and copies, and looking at what is there.

    task ── phases ──► columns │ indexes │ copies │ looks          each walks all rows of the table once
    batch              rows [checkpoint ..) of one phase and one physical id, in one transaction with the new checkpoint

    tidb_ddl_reorg     job 304 │ element 1 _idx_ │ physical id 283 │ start_key │ reorg_meta {"phase":0,"rows":512}

Each batch reads at its own start and locks the rows that it used, so a row that somebody writes meanwhile makes it fail
and begin again; a row written later is written by nodes that know the element already.  Rewrites of a changed column
carry a source by which change capture leaves them out.  What is already there is left alone: an entry with the same
handle, a row that has the new value, a copy that a double write made.

Source: TiDB pkg/ddl (backfilling.go, reorg.go, column.go, partition.go).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Final

import msgspec

from tidegate.expr.cast.assign import assign
from tidegate.expr.cast.source import recast
from tidegate.kv.index_entry import decode_index_entry
from tidegate.kv.row.row import ChecksumForm, Row, decode_row
from tidegate.kv.table_key import record_key, table_span
from tidegate.model.errors import SqlRefused
from tidegate.model.kv_change import LOSSY_DDL
from tidegate.mysql.context import Context
from tidegate.schema.job import STRICT, Job, reorg_meta
from tidegate.schema.stored.flags import NOT_NULL
from tidegate.schema.stored.meta import Meta
from tidegate_upstream.change.outcome import Task
from tidegate_upstream.f1 import Work
from tidegate_upstream.tidb.ddl.look import look_at
from tidegate_upstream.tidb.meta.tables import REORG, Values
from tidegate_upstream.tidb.sql.rows.mutation import KeyMutation, RowForm, index_mutation, record_mutation
from tidegate_upstream.tidb.sql.rows.row import RowImage, duplicate, image_of
from tidegate_upstream.tidb.sql.rows.shape import ShapeIndex, TableShape
from tidegate_upstream.tidb.transaction import Transaction

BATCH_ROWS: Final = 256
_STRICT: Final = frozenset({"STRICT_TRANS_TABLES"})


class _Checkpoint(msgspec.Struct, frozen=True):
    """Where the next batch begins: a phase, a place among its physical ids, a key there; `rows` are done before it.

    `end` is behind the last row that was there when the walk over that physical id began: whoever wrote one since then
    knew the element, and without an end a walk could follow a busy table for ever."""

    phase: int = 0
    place: int = 0
    rows: int = 0
    start: bytes = b""
    end: bytes = b""


@dataclass(frozen=True, slots=True)
class _Phase:
    """One walk over the rows under some physical ids; `element` and `kind` as TiDB names what is filled."""

    element: int
    kind: bytes
    physical_ids: tuple[int, ...]
    apply: Callable[[Transaction, Row, RowImage], None]
    source: int = 0


class Backfill:
    """The worker of an owner (owner.py); it keeps nothing between two batches."""

    def __init__(self, now: Callable[[], datetime], batch_rows: int = BATCH_ROWS) -> None:
        self._now, self._batch_rows = now, batch_rows

    def batch(self, transaction: Transaction, job: Job, task: Task) -> int | None:
        """Return one batch; the number of rows of all of them when it was the last, else None. Raises SqlRefused."""
        job_id, settings = job.id, reorg_meta(job)
        table = Meta(transaction).table(task.schema_id, task.table_id)
        if table is None:
            raise SqlRefused(1146, f"Table of DDL job {job_id} (id {task.table_id}) doesn't exist", "42S02")
        mode = _STRICT if settings.sql_mode & STRICT else frozenset[str]()
        context = Context(self._now(), settings.zone, mode, writing=True)
        shape = TableShape(table)
        phases = _phases(transaction, task, shape, context)
        at = _read_checkpoint(transaction, job_id)
        if at.phase < len(phases):
            at = self._walk(transaction, phases[at.phase], shape, context, at)
        if at.phase < len(phases):
            _write_checkpoint(transaction, job_id, phases[at.phase], at)
            return None
        if REORG.get(transaction, job_id) is not None:
            REORG.remove(transaction, job_id)
        return at.rows

    def _walk(
        self, transaction: Transaction, phase: _Phase, shape: TableShape, context: Context, at: _Checkpoint
    ) -> _Checkpoint:
        """One batch of rows; the next checkpoint."""
        if at.place == len(phase.physical_ids):
            return _Checkpoint(at.phase + 1, rows=at.rows)
        transaction.source = phase.source
        physical_id = phase.physical_ids[at.place]
        layout = shape.layout_of(physical_id)
        start, end = (at.start, at.end) if at.start else _whole(transaction, physical_id)
        found = list(islice(transaction.scan(start, end), self._batch_rows)) if end else []
        for key, value in found:
            row = decode_row(layout, key, value)
            transaction.lock(key)
            phase.apply(transaction, row, image_of(shape, row, context))
        rows = at.rows + len(found)
        if len(found) == self._batch_rows:
            return _Checkpoint(at.phase, at.place, rows, found[-1][0] + b"\0", end)
        over = at.place + 1 == len(phase.physical_ids)
        return _Checkpoint(at.phase + 1, 0, rows) if over else _Checkpoint(at.phase, at.place + 1, rows)


def _whole(transaction: Transaction, physical_id: int) -> tuple[bytes, bytes]:
    """The keys from the first possible row to the last one that there is; no end when there is none."""
    start, end = table_span(physical_id)
    last = next(transaction.scan(start, end, reverse=True), None)
    return start, b"" if last is None else last[0] + b"\0"


# --- what is done to a row ---


def _phases(transaction: Transaction, task: Task, shape: TableShape, context: Context) -> list[_Phase]:
    """The walks of a task, in order."""
    ids, found = shape.physical_ids, []
    looks = look_at(transaction, task, shape, context)
    if looks is not None:
        found.append(_Phase(task.table_id, b"_look_", ids, lambda _transaction, _row, image: looks(image)))
    for new, old in task.columns.items():
        found.append(_Phase(new, b"_col_", ids, _rewriter(shape, new, old, context), LOSSY_DDL))
    if task.indexes:
        indexes = [index for index in shape.indexes if index.layout.id in task.indexes]
        found.append(_Phase(task.indexes[0], b"_idx_", ids, _indexer(shape, indexes, context)))
    if task.work is Work.BACKFILL and task.targets:
        found.append(_Phase(task.targets[0], b"_part_", task.partitions, _copier(shape, context)))
    return found


def _rewriter(shape: TableShape, new: int, old: int, context: Context) -> Callable[[Transaction, Row, RowImage], None]:
    """Rows without a value for the new column get the cast of the old one; 1265 for NULL where that is NOT NULL."""
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


def _indexer(
    shape: TableShape, indexes: list[ShapeIndex], context: Context
) -> Callable[[Transaction, Row, RowImage], None]:
    """Every row gets its entries; SqlRefused 1062 where another row has one of a unique index."""

    def fill(transaction: Transaction, _row: Row, image: RowImage) -> None:
        for index in indexes:
            _put_entry(transaction, shape, index, image, context)

    return fill


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
    """Every row is copied to where the other set of partitions has its place, with its index entries."""
    other = shape.placements[1]

    def copy(transaction: Transaction, row: Row, image: RowImage) -> None:
        target = other.locate(image.columns)
        if target is None:
            raise SqlRefused(1526, "Table has no partition for value of a row", "HY000")
        if transaction.get(record_key(target, image.handle)) is not None:
            return
        moved = image._replace(physical_id=target)
        _put(transaction, record_mutation(shape, moved, RowForm(row.version)))
        for index in shape.indexes:
            if not index.layout.global_index:
                _put_entry(transaction, shape, index, moved, context)

    return copy


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


def _write_checkpoint(transaction: Transaction, job_id: int, phase: _Phase, at: _Checkpoint) -> None:
    physical_id = phase.physical_ids[at.place] if at.place < len(phase.physical_ids) else 0
    row: Values = {
        "job_id": job_id,
        "ele_id": phase.element,
        "ele_type": phase.kind,
        "start_key": at.start,
        "end_key": at.end,
        "physical_id": physical_id,
        "reorg_meta": msgspec.json.encode(msgspec.structs.replace(at, start=b"", end=b"")),
    }
    REORG.put(transaction, job_id, row)
