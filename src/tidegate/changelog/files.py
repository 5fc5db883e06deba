"""Landed columns to Parquet files of the changelog, from within a task.

    rows-<uuid>.parquet      | table a | table b | table b | table c | ...     one row group, one table
    control-<uuid>.parquet   DDLs and dead letters

A row group holds one table in commit_ts order, so a footer says what lies where and a reader touches nothing else; it
is small, since two rounds that meet inside one both read it.
Rows gather in memory up to a number of bytes, then become row groups; a file that has grown large enough is closed
and another begun.  What is written here belongs to nobody until the driver commits it.
"""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import UNSET

from tidegate.changelog.columns import LANDED_SCHEMA
from tidegate.changelog.report import LandedFile, TableRows
from tidegate.engine.change import CONTROL_SCHEMA, DeadLetter, Place, PlacedDdl
from tidegate.engine.event_filter import acting
from tidegate.engine.frontier import larger
from tidegate.model.table import TableName
from tidegate.objectstore.failpoint import reach
from tidegate.objectstore.stores import store
from tidegate.objectstore.storing import storing

DDL: Final = "ddl"
LEFT_OUT: Final = "left-out"
"""A DDL of a transaction that the feed leaves out: not to be applied, but tables may lack it."""
DEAD: Final = "dead"
HALT: Final = "halt"
"""A message that the feed stands at: kept to be looked at, no dead letter yet."""
REFUSED: Final = "refused"
"""A message that has landed and that a sink refuses: kept to be looked at, no dead letter yet."""
REPLAYED: Final = "replayed"
"""The dead letter of this place was decoded after all; its rows are in the same commit."""

FILE_BYTES: Final = 64 << 20
ROWS_MAX: Final = 500_000
"""A flush comes at the latest with this many rows, so that a row group stays a piece that one task can read."""
GROUP_ROWS: Final = 32_768
BACKLOG: Final = 50_000
"""Messages of one task that show that the landing is behind: then time counts for more than bytes."""
PLAIN: Final = {"compression": "zstd", "compression_level": 1}
HASTY: Final = {"compression": "zstd", "compression_level": -7}
"""As large as snappy makes it, in 0.55 us a row of 300 bytes instead of 0.95."""
ROWS_OPTIONS: Final = {
    "use_dictionary": ["topic", "op", "schema", "table", "layout"],
    "write_statistics": ["schema", "table", "commit_ts"],
}


class RowFiles:
    """Takes tables of LANDED_SCHEMA and writes them out in pieces; `messages` is how many the rows come from."""

    def __init__(self, uri: str, *, flush_bytes: int, messages: int = 0) -> None:
        self._uri = uri
        self._compression = HASTY if messages >= BACKLOG else PLAIN
        self._flush_bytes = flush_bytes
        self._held: dict[TableName, list[pa.Table]] = {}
        self._held_bytes = self._held_rows = 0
        self._open: _OpenFile | None = None
        self._files: list[LandedFile] = []
        self._counts: dict[TableName, TableRows] = {}

    def add(self, tables: Iterable[tuple[TableName, pa.Table]]) -> None:
        """Hold some rows, and write all that are held if they have become many."""
        for name, table in tables:
            self._held.setdefault(name, []).append(table)
            self._held_bytes += table.nbytes
            self._held_rows += table.num_rows
        if self._held_bytes >= self._flush_bytes or self._held_rows >= ROWS_MAX:
            self._flush()

    def close(self) -> tuple[LandedFile, ...]:
        """Write what is held; return every file."""
        self._flush()
        self._roll()
        return tuple(self._files)

    def counts(self) -> tuple[TableRows, ...]:
        """Return what was written of each table."""
        return tuple(self._counts[name] for name in sorted(self._counts))

    def _flush(self) -> None:
        for name in sorted(self._held):
            table = by_time(pa.concat_tables(self._held[name]).unify_dictionaries())
            if self._open is None:
                self._open = _OpenFile(self._compression)
            low, high = self._open.write(table)
            known = self._counts.get(name, TableRows(*name, 0, low, high))
            self._counts[name] = TableRows(
                *name, known.rows + table.num_rows, min(known.min_ts, low), max(known.max_ts, high)
            )
        self._held, self._held_bytes, self._held_rows = {}, 0, 0
        if self._open is not None and self._open.size_bytes >= FILE_BYTES:
            self._roll()

    def _roll(self) -> None:
        if self._open is not None:
            self._files.append(self._open.put(self._uri))
            self._open = None


class _OpenFile:
    """A Parquet file in memory, compressed, not yet at its place."""

    def __init__(self, compression: Mapping[str, Any]) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, LANDED_SCHEMA, **ROWS_OPTIONS, **compression)
        self._rows = 0
        self._low: int | None = None
        self._high: int | None = None

    @property
    def size_bytes(self) -> int:
        return int(self._sink.tell())

    def write(self, table: pa.Table) -> tuple[int, int]:
        """Append rows of one table; return their range of commit_ts."""
        self._writer.write_table(table, row_group_size=GROUP_ROWS)
        low, high = pc.min_max(table.column("commit_ts")).as_py().values()
        self._rows += table.num_rows
        self._low = low if self._low is None else min(low, self._low)
        self._high = larger(high, self._high)
        return int(low), int(high)

    def put(self, uri: str) -> LandedFile:
        self._writer.close()
        path, size_bytes = _put(uri, "rows", self._sink)
        return LandedFile(path, "rows", size_bytes, self._rows, self._low, self._high)


def by_time(table: pa.Table) -> pa.Table:
    """`table` in commit_ts order; rows of one commit_ts keep their order."""
    ts = table.column("commit_ts").combine_chunks()
    if len(ts) < 2 or pc.all(pc.less_equal(ts[:-1], ts[1:])).as_py():
        return table
    return table.take(pc.sort_indices(ts))


class ControlFiles:
    """Takes DDLs and letters, each into files of their own; a file is full when the letters' bytes are many."""

    def __init__(self, uri: str, flush_bytes: int) -> None:
        self._uri = uri
        self._flush_bytes = flush_bytes
        self._rows: list[dict[str, Any]] = []
        self._letters: list[dict[str, Any]] = []
        self._held_bytes = 0
        self._files: list[LandedFile] = []
        self.ddls = self.dead = 0

    def add(self, ddls: Iterable[PlacedDdl], letters: Iterable[tuple[str, DeadLetter]]) -> None:
        """Hold DDLs and (kind, letter)."""
        for placed in ddls:
            self._rows.append(_ddl_row(placed))
            self.ddls += 1
        for kind, letter in letters:
            self._letters.append(_letter_row(kind, letter))
            self.dead += kind == DEAD
            self._held_bytes += len(letter.raw_key or b"") + len(letter.raw_value or b"")
        if self._held_bytes >= self._flush_bytes:
            self._flush()

    def close(self) -> tuple[LandedFile, ...]:
        """Write what is held; return every file."""
        self._flush()
        return tuple(self._files)

    def _flush(self) -> None:
        for kind in (self._rows, self._letters):
            if kind:
                sink = pa.BufferOutputStream()
                pq.write_table(pa.Table.from_pylist(kind, schema=CONTROL_SCHEMA), sink, **PLAIN)
                path, size_bytes = _put(self._uri, "control", sink)
                self._files.append(LandedFile(path, "control", size_bytes, len(kind)))
        self._rows, self._letters, self._held_bytes = [], [], 0


def _place_columns(place: Place) -> dict[str, Any]:
    message = (place.topic, place.partition, place.offset) if place.topic else (None, None, None)
    return dict(zip(("topic", "partition", "offset", "seq"), (*message, place.seq), strict=True))


def _ddl_row(placed: PlacedDdl) -> dict[str, Any]:
    ddl = placed.ddl
    return {
        **_place_columns(placed.place),
        "kind": LEFT_OUT if placed.left_out else DDL,
        "commit_ts": ddl.commit_ts,
        "schema": ddl.schema,
        "table": ddl.table,
        "query": ddl.query,
        "written": None if ddl.written is UNSET else ddl.written,
        "session": None if ddl.session is UNSET else msgspec.json.encode(ddl.session).decode(),
        "ddl_type": acting(ddl).type,
    }


def _letter_row(kind: str, letter: DeadLetter) -> dict[str, Any]:
    return {
        **_place_columns(letter.place),
        "kind": kind,
        "commit_ts": letter.commit_ts,
        "error_code": letter.error_code,
        "error": letter.error.encode("utf-8", "backslashreplace").decode(),
        "error_offset": letter.error_offset,
        "raw_key": letter.raw_key,
        "raw_value": letter.raw_value,
    }


def _put(uri: str, part: str, sink: Any) -> tuple[str, int]:
    body = sink.getvalue()
    path = f"part={part}/{uuid.uuid4().hex}.parquet"
    with storing(uri):
        reach("landing/before-file")
        obstore.put(store(uri), path, memoryview(body).cast("B"))
    reach("landing/after-file")
    return path, body.size
