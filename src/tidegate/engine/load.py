"""A full load: what is read, written down whole before the first row, and the readers' interface.

    LoadReader.plan ──► LoadPlan ──► for each chunk, in any task, in any order: LoadReader.batches ──► Batch ..

                table 0 `t`                  │ table 1 `p`, by partition
    chunk       0          1        2        │ 3 (p0)     4 (p1)
    bounds      .. 500     500 ..   900 ..   │ all        all          half open; texts of SQL, compared by the server

The rows of a plan are the versions with commit_ts <= its `ts`, S; the stream has those above S.  Rows come as INSERTs
at S, in the columns that the stream's rows have, and equal them.  A plan is never taken again: a chunk that failed is
read again from its beginning, and has the same rows as long as the upstream keeps S.

Readers of files or of a storage read the same plan: what a chunk's bounds mean is theirs.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from tidegate.codec.columnar.rows import Batch
from tidegate.model.table import TableName

ROW_ID = "_tidb_rowid"
"""The hidden number of a row whose table has no clustered key."""


class LoadTable(msgspec.Struct, frozen=True):
    """A table at S: its CREATE TABLE, the columns whose order cuts it into chunks (ROW_ID for the hidden number, () if
    there is nothing), and its partitions in their order. Rows and bytes are estimates, 0 where none is known."""

    name: TableName
    create: str
    key: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    estimated_rows: int = 0
    estimated_bytes: int = 0


class LoadChunk(msgspec.Struct, frozen=True):
    """A part of a table, of one partition where it has some: the rows from `lower` up to, without, `upper`, both
    literals of the key's columns; None for no bound."""

    number: int
    table: int
    partition: str = ""
    lower: tuple[str, ...] | None = None
    upper: tuple[str, ...] | None = None


class LoadPlan(msgspec.Struct, frozen=True):
    """All of a load: S, where it is read ("" for a cluster that does not tell its id), and each definition at S.

    Databases come with their CREATE DATABASE, views and sequences with theirs; `temporary` tables have no rows."""

    ts: int
    cluster: str
    version: str
    time_zone: str
    databases: tuple[tuple[str, str], ...]
    tables: tuple[LoadTable, ...]
    views: tuple[tuple[TableName, str], ...]
    sequences: tuple[tuple[TableName, str], ...]
    temporary: tuple[TableName, ...]
    chunks: tuple[LoadChunk, ...]

    def table_of(self, chunk: LoadChunk) -> LoadTable:
        """Return the table of a chunk."""
        return self.tables[chunk.table]


class LoadReader(Protocol):
    """Where a load is read. It can be pickled, and each process that reads chunks has its own.

    Whatever a method raises is a TidegateError: HistoryLost where the upstream has collected S."""

    def plan(self, selects: Callable[[TableName], bool], ts: int | None = None) -> LoadPlan:
        """Return the plan of the tables that are selected, at `ts`, or at a timestamp of now."""

    def batches(self, table: LoadTable, chunk: LoadChunk, ts: int) -> Iterator[Batch]:
        """Return the rows of a chunk as INSERTs at `ts`. After an error all of the chunk is read again."""

    def close(self) -> None:
        """Close what is open; the next method opens it again."""
