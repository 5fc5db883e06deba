"""What a task does of a round: read changes, place, encode, and write its own partitions.

    changes ─► chunks of its tables in commit order ─► Dispatcher ─► encoder ─► producer ─► acknowledged ─► Written
               whole transactions                     its partitions only

A job is a plan of some kilobytes: definitions, timestamps, partitions.  Rows are read, written and forgotten in here.
"""

import gc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.codec.columnar.encode.encoder import FEW_ROWS
from tidegate.codec.columnar.values import MISFITS, why_singly
from tidegate.engine.change import Chunk
from tidegate.engine.ports import Changes, Written
from tidegate.model.roads import Reason, RoadCounts, Why, counted
from tidegate.model.table import TableInfo, TableName
from tidegate.objectstore.failpoint import reach
from tidegate.sink.kafka.column_partitions import ColumnPartitions, PlacedTexts
from tidegate.sink.kafka.dispatch import Dispatcher
from tidegate.sink.kafka.groups import Place
from tidegate.sink.kafka.producer import Producer
from tidegate.sink.kafka.target import TopicTarget

_SWITCHED_OFF: Final = Why(Reason.SWITCHED_OFF, "columns are switched off")


@dataclass(frozen=True, slots=True)
class GroupJob:
    """Rows of the tables `names` with after < commit_ts <= upto, of which those for `places` are written; `partitions`
    counts those of each topic."""

    changes: Changes
    after: int
    upto: int
    names: tuple[TableName, ...]
    places: frozenset[Place]
    partitions: Mapping[str, int]
    target: TopicTarget
    tables: Mapping[tuple[str, str], TableInfo] = field(default_factory=dict)
    """Definitions by TableName.key, as the round has them; batches that bring one of their own need none."""
    columns: bool = True
    """Whether rows may go as columns, many at once."""


def write_group(job: GroupJob) -> Written:
    """Write the job's rows; return when they are acknowledged. Raises what reading, placing and writing do."""
    producer = job.target.producer()
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _written(job, producer)
    except BaseException:
        producer.abandon()
        raise
    finally:
        if collecting:
            gc.enable()


def _written(job: GroupJob, producer: Producer) -> Written:
    target, done = job.target, Written()
    dispatcher = Dispatcher(
        target.router(), target.split, job.partitions, job.places, target.selectors, tables=job.tables
    )
    encoder = target.columnar_encoder()
    partitions = ColumnPartitions(dispatcher, encoder, producer)
    for chunk in done.coming(job.changes.in_order(job.names, job.after, job.upto)):
        before = partitions.rows
        found = _by_columns(chunk, partitions) if job.columns else _SWITCHED_OFF
        made = encoder.take_roads()
        if isinstance(found, Why):
            partitions.write(partitions.texts_of_rows(chunk))
            made = RoadCounts()
            made.add("encode/rows", partitions.rows - before, found, _name(chunk))
        else:
            partitions.write(found)
        done.roads.update(made)
    reach("topic/rows-queued")
    partitions.flush()
    done.rows, done.messages, done.size_bytes = partitions.rows, partitions.messages, partitions.size_bytes
    return done


def _by_columns(chunk: Chunk, partitions: ColumnPartitions) -> PlacedTexts | Why:
    """The texts of a chunk; why it has to go row by row, which also says what is wrong with it, if it has."""
    if len(chunk) < FEW_ROWS:
        return Why(Reason.FEW_ROWS, f"{counted(len(chunk))} in a chunk, columns need {FEW_ROWS}")
    try:
        return partitions.texts(chunk)
    except MISFITS as misfit:
        return why_singly(misfit)


def _name(chunk: Chunk) -> tuple[str, str]:
    """The table with which a chunk begins."""
    batch = chunk.parts[0].batch
    return batch.schema, batch.table
