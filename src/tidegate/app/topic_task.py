"""What a task does of a stretch: read some tables, mount, place, encode, and write its own partitions.

    log ─► transactions of its tables ─► Dispatcher ─► encoders ─► producer ─► acknowledged ─► report
           one at a time, in order       its partitions only

A job is a plan of some kilobytes: definitions, timestamps, partitions.  Rows are read, written and forgotten in here.
"""

import gc
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.app.topic_target import TopicTarget
from tidegate.model.errors import EncodeError
from tidegate.schema.stored_snapshot import TableVersion
from tidegate.sink.kafka.dispatch import Dispatcher
from tidegate.sink.kafka.groups import Place
from tidegate.sink.kafka.partitions import Partitions
from tidegate.source.tidb.log import KvLog
from tidegate.source.tidb.tables import Tables
from tidegate.source.tidb.transactions import MountOptions, mounter_of, placed_error, transactions
from tidegate.spark.failpoint import reach

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


class GroupReport(NamedTuple):
    """What a task wrote; `corrupt` rows were written though their checksum does not fit."""

    rows: int
    messages: int
    size_bytes: int
    corrupt: int


def write_group(job: GroupJob) -> GroupReport:
    """Writes the job's rows; returns when they are acknowledged. Raises what reading, mounting and writing do."""
    producer = job.target.producer()
    dispatcher = Dispatcher(job.target.router(), job.target.split, job.partitions, job.places)
    partitions = Partitions(dispatcher, job.target.encoder, producer)
    mounter = mounter_of(job.tables, job.low, job.mount)
    spans = [span for table in job.tables for span in Tables.spans(table)]
    corrupt, collecting = 0, gc.isenabled()
    gc.disable()
    try:
        for rows in transactions(job.log, (job.low, job.high), spans, mounter, refuse_corrupt=job.mount.refuse_corrupt):
            partitions.write(rows, _located)
            corrupt += sum(row.corrupt for row in rows) if job.mount.verify else 0
        reach("topic/rows-queued")
        partitions.flush()
    except BaseException:
        producer.abandon()
        raise
    finally:
        if collecting:
            gc.enable()
    return GroupReport(partitions.rows, partitions.messages, partitions.size_bytes, corrupt)


def _located(error: EncodeError, where: str) -> EncodeError:
    found = placed_error(error, where)
    assert isinstance(found, EncodeError)
    return found
