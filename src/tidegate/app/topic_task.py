"""What a task does of a stretch: read some tables, mount, place, encode, and write its own partitions.

    log ─► transactions of its tables ─► event filters ─► Dispatcher ─► encoders ─► producer ─► acknowledged ─► report
           one at a time, in order                        its partitions only

A job is a plan of some kilobytes: definitions, timestamps, partitions.  Rows are read, written and forgotten in here.
"""

import gc
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from tidegate.app.topic_target import TopicTarget
from tidegate.codec.columnar.values import Misfit
from tidegate.feed.event_filter import EventFilter, RowFilter
from tidegate.feed.mount_columns import ColumnMounter
from tidegate.model.errors import EncodeError, TidegateError
from tidegate.objectstore.failpoint import reach
from tidegate.schema.stored_snapshot import TableVersion
from tidegate.sink.kafka.column_partitions import ColumnPartitions, PlacedTexts
from tidegate.sink.kafka.dispatch import Dispatcher
from tidegate.sink.kafka.groups import Place
from tidegate.sink.kafka.partitions import Partitions, Producer
from tidegate.source.tidb.changes import FEW_ROWS
from tidegate.source.tidb.chunks import LogChunk, chunks
from tidegate.source.tidb.log import KvLog, Span
from tidegate.source.tidb.tables import Tables, name_of
from tidegate.source.tidb.transactions import (
    MountOptions,
    mounted_transactions,
    mounter_of,
    placed_error,
    transactions,
)

__all__ = ["GroupJob", "GroupReport", "write_group"]


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


class GroupReport(NamedTuple):
    """What a task wrote; `corrupt` rows were written though their checksum does not fit."""

    rows: int
    messages: int
    size_bytes: int
    corrupt: int


def write_group(job: GroupJob) -> GroupReport:
    """Writes the job's rows; returns when they are acknowledged. Raises what reading, mounting and writing do."""
    producer = job.target.producer()
    collecting = gc.isenabled()
    gc.disable()
    try:
        chosen = job.events.rows(map(name_of, job.tables))
        if job.columns and chosen is None and not job.mount.verify:
            return _by_columns(job, producer)
        return _by_rows(job, producer, chosen)
    except BaseException:
        producer.abandon()
        raise
    finally:
        if collecting:
            gc.enable()


def _by_rows(job: GroupJob, producer: Producer, chosen: RowFilter | None) -> GroupReport:
    """One row after the other: the reference, and the way of rows that somebody has to look at."""
    partitions = Partitions(_dispatcher(job), job.target.encoder, producer)
    corrupt, mounter, refuse = 0, mounter_of(job.tables, job.low, job.mount), job.mount.refuse_corrupt
    for rows in transactions(job.log, (job.low, job.high), _spans(job), mounter, refuse_corrupt=refuse):
        kept = rows if chosen is None else chosen.kept(rows)
        if kept:
            partitions.write(kept, _located)
        corrupt += sum(row.corrupt for row in kept) if job.mount.verify else 0
    return _acknowledged(partitions, corrupt)


def _by_columns(job: GroupJob, producer: Producer) -> GroupReport:
    """Chunk after chunk; one that does not fit goes row by row, which also says what is wrong with it."""
    mounter = mounter_of(job.tables, job.low, job.mount)
    partitions = ColumnPartitions(_dispatcher(job), job.target.columnar_encoder(), producer)
    columns = ColumnMounter(mounter)
    for chunk in chunks(job.log, (job.low, job.high), _spans(job)):
        found = _texts(chunk, columns, partitions)
        if found is None:
            found = partitions.texts_of_rows(mounted_transactions(chunk.rows, mounter), _located)
        partitions.write(found)
    return _acknowledged(partitions, 0)


def _acknowledged(partitions: Partitions | ColumnPartitions, corrupt: int) -> GroupReport:
    """What was written, once the broker has all of it."""
    reach("topic/rows-queued")
    partitions.flush()
    return GroupReport(partitions.rows, partitions.messages, partitions.size_bytes, corrupt)


def _texts(chunk: LogChunk, columns: ColumnMounter, partitions: ColumnPartitions) -> PlacedTexts | None:
    """The texts of a chunk; None if it has to go row by row."""
    if len(chunk) < FEW_ROWS:
        return None
    try:
        mounted = ((table, columns.mount(table.records)) for table in chunk.tables())
        found = [(rows, table.numbers[rows.rows]) for table, rows in mounted if rows is not None]
        return partitions.texts(found, chunk.transaction)
    except (Misfit, TidegateError, pa.ArrowException, UnicodeError, OverflowError):
        return None


def _dispatcher(job: GroupJob) -> Dispatcher:
    target = job.target
    return Dispatcher(target.router(), target.split, job.partitions, job.places, target.selectors)


def _spans(job: GroupJob) -> list[Span]:
    return [span for table in job.tables for span in Tables.spans(table)]


def _located(error: EncodeError, where: str) -> EncodeError:
    found = placed_error(error, where)
    assert isinstance(found, EncodeError)
    return found
