"""Landed rows as chunks of batches: whole transactions in commit order, of one table or of several.

    table a   rows by commit_ts   ───┐ cut at the same commit_ts ┌─► Chunk: parts a/layout 1, a/layout 2, b/layout 1
    table b   rows by commit_ts   ───┘                           └─► Chunk: ...

Each table comes as rows of ROWS_SCHEMA, sorted.  A cut never divides a commit_ts, so a transaction above the limit
makes a chunk of its own, in parts of PART_BYTES.  Rows of one commit_ts are one transaction: messages do not tell
start_ts.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar import Batch, text_batch, typed_batch
from tidegate.engine.change import Chunk, ChunkPart, decode_layout
from tidegate.engine.refused_rows import converted
from tidegate.model.event import Field
from tidegate.model.roads import RoadCounts

CHUNK_ROWS: Final = 16_384
"""Enough that the calls of a chunk cost little a row; what follows holds some copies of it."""
PART_BYTES: Final = 32 << 20
"""What the images of a part take, one row may be larger: what is made of them takes several times as much."""

MakeBatch: TypeAlias = Callable[[pa.Table, tuple[Field, ...], tuple[str, ...] | None], Batch]


def chunks_of(tables: Sequence[pa.Table], most: int = CHUNK_ROWS) -> Iterator[Chunk]:
    """Return the rows of `tables` (LANDED_SCHEMA, each sorted by commit_ts, one upstream table each) as chunks of about
    `most` rows, images typed. EncodeError, with their messages, for rows with a text that is no value of its column."""
    return _chunks(tables, most, _typed)


def _typed(rows: pa.Table, fields: tuple[Field, ...], pk_names: tuple[str, ...] | None) -> Batch:
    return converted(text_batch(rows, fields, pk_names), typed_batch)


def text_chunks(rows: pa.Table) -> Iterator[Chunk]:
    """Return the rows of one upstream table (LANDED_SCHEMA, sorted by commit_ts) as chunks of about PART_BYTES, images
    as RowTexts."""
    return _chunks([rows], _rows_within(rows, PART_BYTES), text_batch)


def _rows_within(rows: pa.Table, size_bytes: int) -> int:
    """How many of the rows have images of `size_bytes` on average, at least one."""
    return max(1, int(rows.num_rows * size_bytes // max(1, rows.select(["before", "after"]).nbytes)))


def _chunks(tables: Sequence[pa.Table], most: int, batch: MakeBatch) -> Iterator[Chunk]:
    tables = [table for table in tables if table.num_rows]
    times = [table.column("commit_ts").to_numpy() for table in tables]
    starts = [0] * len(tables)
    for ts in _cuts(times, most):
        ends = [int(np.searchsorted(time, ts, "right")) for time in times]
        pieces = [
            (table.slice(start, end - start), time[start:end])
            for table, time, start, end in zip(tables, times, starts, ends, strict=True)
            if end > start
        ]
        starts = ends
        yield _chunk(pieces, batch)


def _cuts(times: Sequence[Any], most: int) -> Iterator[int]:
    """The last commit_ts of each chunk, ascending."""
    every = np.sort(np.concatenate(times)) if times else np.empty(0, np.int64)
    at = 0
    while at < len(every):
        ts = int(every[min(at + most, len(every)) - 1])
        yield ts
        at = int(np.searchsorted(every, ts, "right"))


def _chunk(pieces: Sequence[tuple[pa.Table, Any]], batch: MakeBatch) -> Chunk:
    every = np.concatenate([time for _, time in pieces])
    order = np.argsort(every, kind="stable")
    numbers = np.empty(len(every), np.int64)
    numbers[order] = np.arange(len(every))
    transaction = np.zeros(len(every), np.int64)
    np.cumsum(every[order][1:] != every[order][:-1], out=transaction[1:])
    parts: list[ChunkPart] = []
    at = 0
    for rows, time in pieces:
        parts += _parts(rows, numbers[at : at + len(time)], batch)
        at += len(time)
    roads = RoadCounts()
    roads.add("changelog/columns", len(every))
    return Chunk(tuple(parts), transaction, roads)


def _parts(rows: pa.Table, numbers: Any, batch: MakeBatch) -> Iterator[ChunkPart]:
    """The batches of one table's rows, layout by layout."""
    layouts = rows.column("layout").combine_chunks()
    codes = pc.unique(layouts.indices).to_pylist()
    for code in codes:
        some, some_numbers = rows, numbers
        if len(codes) > 1:
            mine = pc.equal(layouts.indices, code)
            some, some_numbers = rows.filter(mine), numbers[mine.to_numpy(zero_copy_only=False)]
        layout = decode_layout(layouts.dictionary[code].as_py())
        step = _rows_within(some, PART_BYTES)
        for at in range(0, len(some_numbers), step):
            made = batch(some.slice(at, step), layout.fields, layout.pk_names)
            yield ChunkPart(_placed(made, some_numbers[at : at + step]), some_numbers[at : at + step])


def _placed(batch: Batch, numbers: Any) -> Batch:
    return replace(batch, message=pc.cast(pa.array(numbers), pa.int32()))
