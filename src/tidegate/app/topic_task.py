"""What a task does of a stretch of a change log: its rows as chunks of batches, written by sink/kafka/task.py.

    log ─► chunks ─┬─ mounted as columns ─────────────┬─► Chunk ─► write_group
                   └─ row by row ─► event filters ────┘

Rows go one by one where somebody has to look at single ones (event filters, checksums), and where columns do not fit.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from tidegate.codec.columnar import Batch
from tidegate.codec.columnar.values import Misfit
from tidegate.feed.change import OPS, Chunk, Part
from tidegate.feed.event_filter import EventFilter, RowFilter
from tidegate.feed.mount import Mounted, Mounter, MountTable
from tidegate.feed.mount_columns import ColumnMounter
from tidegate.feed.ports import Changes
from tidegate.kv.value_columns import arrow_type
from tidegate.model.errors import TidegateError
from tidegate.model.event import Value, Values, images
from tidegate.model.table import TableName
from tidegate.schema.stored_snapshot import TableVersion
from tidegate.sink.kafka import task
from tidegate.sink.kafka.groups import Place
from tidegate.sink.kafka.target import TopicTarget
from tidegate.sink.kafka.task import Written
from tidegate.source.tidb.chunks import Chunk as LogChunk
from tidegate.source.tidb.chunks import chunks
from tidegate.source.tidb.log import KvLog
from tidegate.source.tidb.tables import Tables, name_of
from tidegate.source.tidb.transactions import MountOptions, mounted_transactions, mounter_of

__all__ = ["GroupJob", "StretchOfLog", "write_group"]

FEW_ROWS: Final = 24
"""A chunk of fewer rows is mounted row by row: the calls for columns would cost as much."""


@dataclass(frozen=True, slots=True)
class GroupJob:
    """Rows of `tables` with commit_ts in (low, high], of which those for `places` are written; `partitions` counts
    those of each topic."""

    log: KvLog
    low: int
    high: int
    tables: tuple[TableVersion, ...]
    places: frozenset[Place]
    partitions: dict[str, int]
    target: TopicTarget
    mount: MountOptions
    events: EventFilter = field(default_factory=EventFilter)
    columns: bool = True
    """Whether rows may go as columns, many at once."""


def write_group(job: GroupJob) -> Written:
    """Write the job's rows; return when they are acknowledged. Raises what reading, mounting and writing do."""
    rows = StretchOfLog(job.log, job.tables, job.mount, job.events, job.columns)
    names = tuple(map(name_of, job.tables))
    return task.write_group(
        task.GroupJob(
            cast("Changes", rows), job.low, job.high, names, job.places, job.partitions, job.target, {}, job.columns
        )
    )


@dataclass(frozen=True, slots=True)
class StretchOfLog:
    """The rows of some tables of a log, as long as these definitions hold."""

    log: KvLog
    versions: tuple[TableVersion, ...]
    mount: MountOptions
    events: EventFilter
    columns: bool

    def in_order(self, names: Collection[TableName], after: int, upto: int) -> Iterator[Chunk]:
        """Return the rows of `names` in (after, upto]: whole transactions, in commit order."""
        tables = [version for version in self.versions if name_of(version) in names]
        chosen, mounter = self.events.rows(map(name_of, tables)), mounter_of(tables, after, self.mount)
        by_columns = self.columns and chosen is None and not self.mount.verify
        columns = ColumnMounter(mounter) if by_columns else None
        for found in chunks(self.log, (after, upto), [span for table in tables for span in Tables.spans(table)]):
            made = None if columns is None or len(found) < FEW_ROWS else _by_columns(found, columns)
            if made is None:
                made = _by_rows(found, mounter, chosen, refuse=self.mount.refuse_corrupt)
            if made.parts:
                yield made


def _by_columns(chunk: LogChunk, columns: ColumnMounter) -> Chunk | None:
    """The rows of a chunk mounted at once; None if they have to go one by one."""
    try:
        mounted = [(found, table.numbers) for table in chunk.tables() if (found := columns.mount(table.records))]
    except (Misfit, TidegateError, pa.ArrowException, UnicodeError, OverflowError):
        return None
    parts = [
        Part(replace(found.batch, row_ids=found.row_ids, definition=found.table.info), numbers[found.rows])
        for found, numbers in mounted
    ]
    return Chunk(tuple(parts), chunk.transaction, {"mount/columns": len(chunk)})


def _by_rows(chunk: LogChunk, mounter: Mounter, chosen: RowFilter | None, *, refuse: bool) -> Chunk:
    found = [
        kept
        for rows in mounted_transactions(chunk.rows, mounter, refuse_corrupt=refuse)
        if (kept := rows if chosen is None else chosen.kept(rows))
    ]
    rows = list(chain.from_iterable(found))
    order = sorted(range(len(rows)), key=lambda number: rows[number].table.physical_id)
    parts = [
        Part(_batch([rows[number] for number in numbers]), np.array(numbers, np.int64))
        for _, group in groupby(order, key=lambda number: rows[number].table.physical_id)
        if (numbers := list(group))
    ]
    transaction = np.repeat(np.arange(len(found)), [len(each) for each in found])
    return Chunk(tuple(parts), transaction, {"mount/rows": len(rows)}, sum(row.corrupt for row in rows))


def _batch(mounted: Sequence[Mounted]) -> Batch:
    """Rows of one table as columns."""
    table, rows = mounted[0].table, [each.row for each in mounted]
    zeros = pa.array(np.zeros(len(rows), np.int32))
    before, after = zip(*map(images, rows), strict=True)
    return Batch(
        schema=rows[0].schema,
        table=rows[0].table,
        fields=table.fields,
        pk_names=table.wire.pk_names,
        message=zeros,
        seq=zeros,
        commit_ts=pa.array([row.commit_ts for row in rows], pa.int64()),
        op=pa.array([OPS[type(row).__name__] for row in rows], pa.string()),
        partition_id=pa.array([row.partition_id for row in rows], pa.int64()),
        before=_images(table, before),
        after=_images(table, after),
        row_ids=pa.array([row.row_id for row in rows], pa.int64()),
        definition=table.info,
    )


def _images(table: MountTable, held: Sequence[Values | None]) -> Any:
    kinds = [arrow_type(column.type) for column in table.info.columns if not column.virtual]
    there = [image for image in held if image is not None]
    arrays = [_array([image[at] for image in there], kind) for at, kind in enumerate(kinds)]
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in table.fields])


def _array(values: list[Value], kind: Any) -> Any:
    """Values of events as an array of that type; of bytes where a text is no UTF-8."""
    if kind == pa.string() and not all(isinstance(value, str | None) and _is_utf8(value) for value in values):
        kind = pa.binary()
    if kind == pa.binary():
        values = [value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value for value in values]
    return pa.array(values, kind)


def _is_utf8(text: str | None) -> bool:
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        return False
    return True
