"""A round of rows for a sink of `sinks.py`: one busy table, as typed columns.

work_of(rows)            rows that differ all
work_of(rows, times)     the same again and again, with later timestamps and other keys: made when they are asked
                         for, so that memory is what the sink holds
run(sink, work)          a round of them, published
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow.compute as pc
from traffic import SCHEMA, messages, mixture, table_ddl

from tidegate.codec.columnar import Batch, decode_chunk, typed_batch
from tidegate.codec.options import DecodeOptions
from tidegate.engine.change import Chunk, ChunkPart
from tidegate.engine.plan import Checkpoint, Round, Segment
from tidegate.engine.ports import LocalTasks, Sink
from tidegate.model.event import Ddl
from tidegate.model.table import TableInfo, TableName
from tidegate.schema.state import SchemaState, apply_ddl

__all__ = ["SCHEMA", "TABLE", "Work", "run", "work_of"]

TABLE: Final = TableName(SCHEMA, "t01")
CHUNK_ROWS: Final = 16_000
SPAN: Final = 1 << 40
"""Later than all rows before."""


class Work(NamedTuple):
    """All rows as a source gives them, of one table: `chunks`, `times` times."""

    chunks: list[Chunk]
    table: TableInfo
    state: SchemaState
    last_ts: int
    times: int

    @property
    def rows(self) -> int:
        """How many."""
        return sum(map(len, self.chunks)) * self.times

    @property
    def upto(self) -> int:
        """The last commit_ts."""
        return self.last_ts + (self.times - 1) * SPAN

    @property
    def batches(self) -> list[Batch]:
        """The columns of the first time."""
        return [part.batch for chunk in self.chunks for part in chunk.parts]


class WorkChanges:
    """The work as Changes."""

    def __init__(self, work: Work) -> None:
        self.work, self.after, self.upto = work, 0, work.upto

    def batches(self, *_: object) -> Iterator[Chunk]:
        """All rows."""
        for time in range(self.work.times):
            yield from (moved(chunk, time) if time else chunk for chunk in self.work.chunks)

    in_order = batches


def moved(chunk: Chunk, time: int) -> Chunk:
    """The rows of a chunk at a later time, under keys of their own."""
    return replace(chunk, parts=tuple(part._replace(batch=_moved(part.batch, time)) for part in chunk.parts))


def _moved(batch: Batch, time: int) -> Batch:
    typed = typed_batch(batch)
    later = pc.add(typed.commit_ts, time * SPAN)
    before, after = (_with_ids(image, time * 1_000_000) for image in (typed.before, typed.after))
    return replace(typed, commit_ts=later, start_ts=later, before=before, after=after)


def _with_ids(image: Any, offset: int) -> Any:
    own = image.take(np.arange(len(image)))
    return own.set_column(0, own.schema.field(0), pc.add(own.column(0), offset))


def work_of(rows: int, times: int = 1) -> Work:
    """The changes of a busy table, decoded."""
    ddl = Ddl(schema=SCHEMA, table="t01", query=table_ddl(next(mixture(0))), commit_ts=1)
    state, _ = apply_ddl(SchemaState(), ddl, 1)
    table = state.table(TABLE)
    assert table is not None
    values = [
        value for _, _, value in messages(mixture(rows), "canal-json") if b'"isDdl":false,"type":"TIDB' not in value
    ]
    values, options = values[1:], DecodeOptions(protocol="canal-json")
    chunks = []
    for begin in range(0, len(values), CHUNK_ROWS):
        part = [(None, value) for value in values[begin : begin + CHUNK_ROWS]]
        for batch in decode_chunk(part, options).batches:
            ts = batch.commit_ts.to_numpy()
            transaction = np.cumsum(np.append(0, ts[1:] != ts[:-1]))
            stamped = replace(batch, start_ts=batch.commit_ts)
            chunks.append(Chunk((ChunkPart(stamped, np.arange(batch.rows)),), transaction))
    return Work(chunks, table, state, int(ts[-1]), times)


def run(sink: Sink[Any], work: Work) -> None:
    """A round of all rows, published."""
    standing = sink.recover()
    sink.open(standing._replace(state=work.state))
    segment = Segment(0, work.upto, (work.table,), work.rows)
    done = sink.run(LocalTasks(1, pickles=False), segment, WorkChanges(work))  # type: ignore[arg-type]
    sink.advance(Round((), work.state, Checkpoint(work.upto), (), ()), done)
    sink.close()
    assert sum(result.rows for result in done) == work.rows
