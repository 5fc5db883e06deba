"""What a task lands of a change log: rows read by span, mounted, as texts, into files of the changelog.

    piece ─► chunks ─┬─ as columns, many rows at once ─┬─► row groups ─► files that the driver commits
                     └─ row by row, where they misfit ─┘
             tables of which an event filter speaks: row by row, in chunks of their own

A row's place is (log, 0, commit_ts, its number in the chunk), so rows of a table keep their order: transactions one
after the other, and in each of them deletes first, updates before inserts.  Errors are those of the way row by row.
"""

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.changelog.columns import Encoder, RowColumns, landed_batch
from tidegate.changelog.files import RowFiles
from tidegate.changelog.report import LandedFile, TableRows
from tidegate.codec.columnar.values import Misfit
from tidegate.feed.event_filter import EventFilter, RowFilter
from tidegate.feed.mount import Mounter
from tidegate.feed.mount_columns import ColumnMounter
from tidegate.model.errors import TidegateError
from tidegate.model.table import TableName
from tidegate.schema.stored_snapshot import TableVersion
from tidegate.source.tidb.chunks import Chunk, chunks
from tidegate.source.tidb.log import KvLog
from tidegate.source.tidb.pieces import Piece
from tidegate.source.tidb.tables import Tables, name_of
from tidegate.source.tidb.transactions import MountOptions, mounted_transactions, mounter_of

__all__ = ["PARTITION", "TOPIC", "PiecePlan", "PieceReport", "land_piece"]

TOPIC: Final = "tidb"
PARTITION: Final = 0
"""A change log stands in the changelog as a topic of one partition whose offsets are timestamps."""
FEW_ROWS: Final = 24
"""A chunk of fewer rows goes row by row: the calls for columns would cost as much."""
FLUSH_BYTES: Final = 32 << 20

Named = tuple[TableName, pa.Table]


@dataclass(frozen=True, slots=True)
class PiecePlan:
    """What every task of a landing knows; `columns` says whether rows may go as columns."""

    log: KvLog
    changelog: str
    mount: MountOptions
    columns: bool = True
    events: EventFilter = field(default_factory=EventFilter)


class PieceReport(NamedTuple):
    """What a task wrote; `corrupt` rows landed though their checksum does not fit."""

    files: tuple[LandedFile, ...]
    tables: tuple[TableRows, ...]
    corrupt: int


def land_piece(plan: PiecePlan, piece: Piece) -> PieceReport:
    """Writes the rows of a piece. Raises what reading, mounting and writing do."""
    files = RowFiles(plan.changelog, flush_bytes=FLUSH_BYTES, messages=piece.rows)
    mounter, corrupt, collecting = mounter_of(piece.tables, piece.low, plan.mount), 0, gc.isenabled()
    one_by_one = partial(_by_rows, mounter=mounter, encoder=Encoder(), refuse=plan.mount.refuse_corrupt)
    as_columns = ColumnMounter(mounter) if plan.columns and not plan.mount.verify else None
    gc.disable()
    try:
        for tables, judged in _parted(piece.tables, plan.events):
            columns = as_columns if judged is None else None
            spans = [span for table in tables for span in Tables.spans(table)]
            for chunk in chunks(plan.log, (piece.low, piece.high), spans):
                found = None if columns is None or len(chunk) < FEW_ROWS else _by_columns(chunk, columns)
                if found is None:
                    found, wrong = one_by_one(chunk, judged)
                    corrupt += wrong
                files.add(found)
        return PieceReport(files.close(), files.counts(), corrupt)
    finally:
        if collecting:
            gc.enable()


def _parted(
    tables: Sequence[TableVersion], events: EventFilter
) -> Iterator[tuple[list[TableVersion], RowFilter | None]]:
    """The tables of which no event filter speaks, and the others with what is asked of their rows."""
    judged = [table for table in tables if events.rows([name_of(table)]) is not None]
    plain = [table for table in tables if table not in judged] if judged else list(tables)
    if plain:
        yield plain, None
    if judged:
        yield judged, events.rows(map(name_of, judged))


def _by_columns(chunk: Chunk, columns: ColumnMounter) -> list[Named] | None:
    """The rows of each table; None if they have to go one by one."""
    try:
        return list(_landed(chunk, columns))
    except (Misfit, TidegateError, pa.ArrowException, UnicodeError, OverflowError):
        return None


def _landed(chunk: Chunk, columns: ColumnMounter) -> Iterator[Named]:
    for table in chunk.tables():
        mounted = columns.mount(table.records)
        if mounted is None:
            continue
        batch = mounted.batch
        numbers = pa.array(table.numbers[mounted.rows], pa.int32())
        batch = replace(batch, message=pa.array(np.arange(batch.rows, dtype=np.int32)), seq=numbers)
        yield TableName(batch.schema, batch.table), landed_batch(TOPIC, PARTITION, batch.commit_ts, batch)


def _by_rows(
    chunk: Chunk, judged: RowFilter | None, *, mounter: Mounter, encoder: Encoder, refuse: bool
) -> tuple[list[Named], int]:
    """The rows of each table that are not left out, and how many of them a checksum contradicts."""
    columns, corrupt, seq = dict[TableName, RowColumns](), 0, 0
    for transaction in mounted_transactions(chunk.rows, mounter, refuse_corrupt=refuse):
        for mounted in transaction if judged is None else judged.kept(transaction):
            row = encoder.encode(mounted.row, seq)
            into = columns.get(row.name)
            if into is None:
                into = columns[row.name] = RowColumns(TOPIC, PARTITION, row.name)
            into.add(row.commit_ts, row)
            corrupt += mounted.corrupt
            seq += 1
    return [(name, rows.table()) for name, rows in columns.items()], corrupt
