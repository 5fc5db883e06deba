"""Row changes of a change log between two DDLs: read by key span, mounted, as chunks of batches.

    log ─► LogChunk ─┬─ table with many rows ───────────────── by columns ─┬─► Chunk: a part for each table,
                     ├─ table with few rows ───────────┐                   │   numbers in commit order
                     ├─ table that an event filter names ─── row by row ───┘
                     └─ table unsuitable for columns ──┘

One definition of each table is valid for the whole range, so definitions travel with the value.  Commit order is that
of TiCDC's sorter: transactions by (commit_ts, start_ts), within one deletes first, updates before inserts, then by
key, across the requested tables.  A row that is repeated directly after itself is returned once.

    commit order    t45 r1 | t45 r2, t47 r1 | t45 r3        one chunk: numbers 0 .. 3, transactions 0 1 1 2
                                                            t45: 0 1 3      t47: 2

A chunk ends with a transaction, after some thousand rows or some megabytes; a larger transaction is a chunk alone.

Mounting by columns never raises: what it cannot mount goes row by row, which finds the first error in commit order and
names table, timestamps and key.
"""

import gc
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar.values import MISMATCHES, slow_reason
from tidegate.codec.wire_table import wire_table
from tidegate.engine.change import Chunk, ChunkPart, Layout
from tidegate.engine.event_filter import EventFilter
from tidegate.engine.mount import Mounted, Mounter
from tidegate.engine.mount_columns import ColumnMounter, Records, batch_of_rows
from tidegate.engine.ports import RowRange, TableSpan
from tidegate.kv.change_columns import changes_of, joined, numbers
from tidegate.kv.keys import decode_table_key
from tidegate.model.compiled import AVAILABLE
from tidegate.model.errors import (
    CorruptedRow,
    DecodeError,
    EncodeError,
    KvDecodeError,
    MessageTooLarge,
    SchemaError,
    TidegateError,
    redacted,
)
from tidegate.model.kv_change import KvChange, KvOp
from tidegate.model.path_counts import LEFT_OUT, PathCounts, Reason, SlowReason, counted
from tidegate.model.table import TableName
from tidegate.mysql.encoding import decode_int
from tidegate.schema.stored.snapshot import SchemaHistory, StoredSnapshot, TableVersion
from tidegate.source.tidb_log import KvLog, LogPart, Span, Tables, Window, definition_of, name_of

CHUNK_ROWS: Final = 16_384
"""Rows of a chunk: enough that its calls cost little per row, and few enough for some copies in memory."""
CHUNK_BYTES: Final = 16 << 20
_PREFIX_BYTES: Final = 9


class PhysicalRows(NamedTuple):
    """Rows of one physical table (a record batch, kv/change_columns.py) and their numbers in the chunk."""

    numbers: Any
    rows: Any

    @property
    def records(self) -> Records:
        """The rows in the mounter's form. Raises KvDecodeError for a key that is not a table's."""
        physical_id, _ = decode_int(_prefix(self.rows), 1)
        keys, values, old_values = (self.rows.column(name) for name in ("key", "value", "old_value"))
        times = (numbers(self.rows, name) for name in ("commit_ts", "start_ts"))
        return Records(physical_id, keys, values, old_values, *times)


@dataclass(frozen=True)
class LogChunk:
    """Whole transactions: rows of each physical table in commit order, tables in the order of their keys."""

    parts: Window

    def __len__(self) -> int:
        """The number of rows."""
        return sum(map(len, self.parts))

    @property
    def rows(self) -> list[KvChange]:
        return [row for _, row in numbered(self.tables())]

    @property
    def transaction(self) -> Any:
        """The transaction of each row, counted from 0, by row number."""
        transactions = np.zeros(len(self), np.int64)
        times = [self._numbers(name)[self._order] for name in ("commit_ts", "start_ts")]
        np.cumsum(np.logical_or.reduce([time[1:] != time[:-1] for time in times]), out=transactions[1:])
        return transactions

    def tables(self) -> list[PhysicalRows]:
        """Return the rows of each physical table."""
        order = np.empty(len(self), np.int64)
        order[self._order] = np.arange(len(self))
        tables, start = [], 0
        for part in self.parts:
            tables.append(PhysicalRows(order[start : start + len(part)], part))
            start += len(part)
        return tables

    @cached_property
    def _order(self) -> Any:
        """Indexes of the rows in commit order, as in `in_order`; tables follow each other within one transaction."""
        has_old = np.concatenate([part.column("old_value").is_valid() for part in self.parts])
        ranks = np.where(self._numbers("op") == KvOp.DELETE, 0, np.where(has_old, 1, 2))
        return np.lexsort((ranks, self._numbers("start_ts"), self._numbers("commit_ts")))

    def _numbers(self, name: str) -> Any:
        return np.concatenate([numbers(part, name) for part in self.parts])


def numbered(tables: Sequence[PhysicalRows]) -> list[tuple[int, KvChange]]:
    """Return the rows of some tables of a chunk in commit order, each with its number."""
    every = (zip(table.numbers.tolist(), changes_of(table.rows), strict=True) for table in tables)
    return sorted(chain.from_iterable(every), key=itemgetter(0))


def chunks(
    log: KvLog, span: tuple[int, int], spans: Sequence[Span], *, rows: int = CHUNK_ROWS, size: int = CHUNK_BYTES
) -> Iterator[LogChunk]:
    """Return the rows with commit_ts in `span`, (low, high], and keys in `spans`.

    Raises HistoryLost and DecodeError as `KvLog.windows` does."""
    by_prefix: dict[bytes, list[Any]] = {}
    count = held_bytes = 0
    for window in log.windows(*span, spans):
        for part in window:
            by_prefix.setdefault(_prefix(part), []).append(part)
            count += len(part)
            held_bytes += int(_sizes(part).sum())
        if count >= rows or held_bytes >= size:
            *whole, rest = _cut({prefix: joined(parts) for prefix, parts in by_prefix.items()}, rows, size)
            yield from map(_log_chunk, whole)
            by_prefix = {prefix: [part] for prefix, part in rest.items()}
            count = sum(map(len, rest.values()))
            held_bytes = sum(int(_sizes(part).sum()) for part in rest.values())
    if by_prefix:
        yield _log_chunk({prefix: joined(parts) for prefix, parts in by_prefix.items()})


_Parts: TypeAlias = dict[bytes, Any]
"""Rows of tables, by the prefix of their keys."""


def _cut(by_part: _Parts, rows: int, size: int) -> list[_Parts]:
    """Whole chunks, and the remaining rows, if any."""
    times = {prefix: numbers(part, "commit_ts") for prefix, part in by_part.items()}
    every = np.concatenate(list(times.values()))
    order = np.argsort(every, kind="stable")
    every, sums = every[order], np.cumsum(np.concatenate([_sizes(part) for part in by_part.values()])[order])
    windows, start, begin = [], dict.fromkeys(by_part, 0), 0
    while begin < len(every):
        before = int(sums[begin - 1]) if begin else 0
        last = min(begin + rows - 1, int(np.searchsorted(sums, before + size)))
        if last >= len(every):
            break
        ends = {prefix: int(np.searchsorted(time, every[last], "right")) for prefix, time in times.items()}
        windows.append(
            {prefix: part.slice(start[prefix], ends[prefix] - start[prefix]) for prefix, part in by_part.items()}
        )
        start, begin = ends, int(np.searchsorted(every, every[last], "right"))
    windows.append({prefix: part.slice(start[prefix]) for prefix, part in by_part.items()})
    return [{prefix: part for prefix, part in parts.items() if len(part)} for parts in windows]


def _log_chunk(parts: _Parts) -> LogChunk:
    return LogChunk([_once(part) for _, part in sorted(parts.items())])


def _prefix(part: Any) -> bytes:
    prefix: bytes = part.column("key")[0].as_py()[:_PREFIX_BYTES]
    return prefix


def _sizes(part: Any) -> Any:
    lengths = (pc.binary_length(part.column(name)).fill_null(0) for name in ("value", "old_value"))
    return sum(length.to_numpy().astype(np.int64) for length in lengths)


def _once(part: Any) -> Any:
    """Rows without repeats, which follow each other."""
    again = np.zeros(len(part), np.bool_)
    keys = part.column("key")
    again[1:] = pc.equal(keys.slice(1), keys.slice(0, len(part) - 1))
    if not again.any():
        return part
    for name in ("commit_ts", "start_ts"):
        again[1:] &= np.diff(numbers(part, name)) == 0
    return part.filter(pa.array(~again)) if again.any() else part


class MountOptions(NamedTuple):
    """Options for mounting rows. `verify` compares checksums, and `refuse_corrupt` makes a mismatch an error
    (corruption-handle-level). With `bdr` replicated rows are left out, and DDLs depend on the cluster's role."""

    force_replicate: bool = False
    verify: bool = False
    refuse_corrupt: bool = False
    bdr: bool = False
    keeps: bool = False
    """True if the sink takes tables without a key."""


def mounter_of(tables: Sequence[TableVersion], low: int, options: MountOptions) -> Mounter:
    """Return the mounter of rows above `low`, valid up to the next DDL."""
    by_id = {version.stored.id: version for version in tables}
    logical = {physical: version.stored.id for version in tables for physical in version.stored.physical_ids}
    snapshot = StoredSnapshot(ts=low, tables=by_id, logical=logical)
    keyless = options.force_replicate or options.keeps
    return Mounter(SchemaHistory(snapshot), force_replicate=keyless, verify=options.verify)


def located_error(error: TidegateError, where: str) -> TidegateError:
    """Return the error with its position in the text."""
    match error:
        case MessageTooLarge():
            return MessageTooLarge(f"{error.table}, {where},", error.key, error.size, error.limit, error.options)
        case KvDecodeError():
            return KvDecodeError(f"{where}: {error.what}", error.codec, error.offset, error.key)
        case DecodeError():
            return type(error)(f"{where}: {error.what}", error.codec, error.offset)
        case SchemaError() | EncodeError():
            return type(error)(f"{where}: {error}")
        case _:
            return error


def mounted_row(row: KvChange, mounter: Mounter, *, refuse: bool) -> Mounted | None:
    """Return the change of a row of the log; None for one to skip. Errors name timestamps and key.

    Raises CorruptedRow with `refuse` for a row whose checksum contradicts its values."""
    try:
        change = mounter.mount(row.key, row.value, row.old_value, row.commit_ts)
    except TidegateError as error:
        located = located_error(
            error, f"commit_ts {row.commit_ts}, start_ts {row.start_ts}, key {redacted(row.key.hex())}"
        )
        raise located.at(table=_table_of(row, mounter), commit_ts=row.commit_ts) from error
    if change is not None and change.corrupt and refuse:
        raise CorruptedRow(
            f"{change.row.schema}.{change.row.table} at commit_ts {row.commit_ts}, key {redacted(row.key.hex())}: the "
            "checksum of the row does not match its values; compare the row upstream, or set corruption-handle-level "
            "to warn"
        ).at(table=str(change.table.info.name), commit_ts=row.commit_ts)
    return change


def _table_of(row: KvChange, mounter: Mounter) -> str:
    with suppress(TidegateError):
        key = decode_table_key(row.key)
        table = mounter.table(key.table_id, row.commit_ts)
        return "" if table is None else str(table.info.name)
    return ""


FEW_ROWS: Final = 12
"""Fewer rows of a table are mounted one by one: the calls for columns cost as much as 7 rows of 16 columns, or 16 of
4."""


def spans_of(
    tables: Mapping[int, TableVersion], parts: Iterable[LogPart], after: int, upto: int
) -> dict[int, TableSpan]:
    """Return the rows in (after, upto] that `parts` have of each table, by table id, index entries included; `tables`
    are by physical id."""
    spans: dict[int, TableSpan] = {}
    for stored in (stored for part in parts for stored in part.stored):
        version = tables.get(stored.table_id)
        if version is None or stored.last_ts <= after or stored.first_ts > upto:
            continue
        low, high = max(stored.first_ts, after + 1), min(stored.last_ts, upto)
        span = spans.get(version.stored.id, TableSpan(0, low, high))
        spans[version.stored.id] = span.joined(stored.rows, low, high)
    return spans


@dataclass(frozen=True, slots=True)
class LogChanges:
    """The row changes of `versions` with after < commit_ts <= upto; they have no DDL before `upto`.

    `columns` allows mounting by columns. It pickles, and reads lazily."""

    log: KvLog
    after: int
    upto: int
    versions: tuple[TableVersion, ...]
    mount: MountOptions = field(default_factory=MountOptions)
    events: EventFilter = field(default_factory=EventFilter)
    columns: bool = True

    def tables(self) -> dict[TableName, TableSpan]:
        names = {version.stored.id: name_of(version) for version in self.versions}
        spans = spans_of(self._physical(), self._parts(), self.after, self.upto)
        return {names[table_id]: span for table_id, span in spans.items()}

    def row_ranges(self) -> Iterator[RowRange]:
        physical = self._physical()
        for part in self._parts():
            low, high = max(part.low, self.after), min(part.high, self.upto)
            mine = [stored for stored in part.stored if stored.table_id in physical and stored.last_ts > low]
            mine = [part for part in mine if part.first_ts <= high]
            if mine:
                first, last = max(low + 1, min(s.first_ts for s in mine)), min(high, max(s.last_ts for s in mine))
                yield RowRange(first, last, sum(part.rows for part in mine), sum(part.size_bytes for part in mine))

    def layouts(self, name: TableName, after: int, upto: int) -> list[Layout]:  # noqa: ARG002 - a table has one
        wires = (wire_table(definition_of(version)) for version in self._named((name,)))
        return [Layout(wire.fields, wire.pk_names) for wire in wires]

    def batches(self, name: TableName, after: int, upto: int) -> Iterator[Chunk]:
        return self.in_order((name,), after, upto)

    def in_order(self, names: Collection[TableName], after: int, upto: int) -> Iterator[Chunk]:
        """Return the rows of several tables in (after, upto]: whole transactions, in commit order.

        Raises HistoryLost, DecodeError, CorruptedRow, RowFilterFailed, and SchemaError or KvDecodeError with the row's
        table and timestamps. Cyclic garbage is not collected before the last chunk, as rows make none."""
        low, high = max(after, self.after), min(upto, self.upto)
        versions = self._named(names)
        if not versions or low >= high:
            return
        mounter = _ChunkMounter(versions, self)
        spans = [span for version in versions for span in Tables.spans(version)]
        collecting = gc.isenabled()
        gc.disable()
        try:
            for chunk in chunks(self.log, (low, high), spans):
                mounted = mounter.mount(chunk)
                if mounted is not None:
                    yield mounted
            if (counts := mounter.left_out()) is not None:
                yield Chunk((), np.empty(0, np.int64), counts)
        finally:
            if collecting:
                gc.enable()

    def _named(self, names: Collection[TableName]) -> list[TableVersion]:
        keys = {name.key for name in names}
        return [version for version in self.versions if name_of(version).key in keys]

    def _physical(self) -> dict[int, TableVersion]:
        return {physical: version for version in self.versions for physical in version.stored.physical_ids}

    def _parts(self) -> Sequence[LogPart]:
        return self.log.parts(self.after, self.upto)


def _source_reason(changes: LogChanges) -> SlowReason | None:
    if changes.mount.verify:
        return SlowReason(Reason.CHECKSUMS, "the checksum of each row is verified")
    if not changes.columns:
        return SlowReason(Reason.SWITCHED_OFF, "columns are switched off")
    if not AVAILABLE:
        return SlowReason(Reason.SWITCHED_OFF, "there is no numba, which compiles what reads rows as columns")
    return None


class _ChunkMounter:
    def __init__(self, versions: Sequence[TableVersion], changes: LogChanges) -> None:
        self._mounter = mounter_of(versions, changes.after, changes.mount)
        self._slow = _source_reason(changes)
        self._columns = ColumnMounter(self._mounter) if self._slow is None else None
        self._filter = changes.events.rows(map(name_of, versions))
        self._judged: frozenset[int] = frozenset()
        if self._filter is not None:
            judged = (version for version in versions if changes.events.rows([name_of(version)]) is not None)
            self._judged = frozenset(physical for version in judged for physical in version.stored.physical_ids)
        self._refuse = changes.mount.refuse_corrupt
        self._left_out = 0
        """Rows that event filters removed since the last chunk with rows."""
        named = ((version, name_of(version)) for version in versions)
        self._names = {
            physical: (name.schema, name.table) for version, name in named for physical in version.stored.physical_ids
        }

    def mount(self, chunk: LogChunk) -> Chunk | None:
        """Return the changes of a chunk; None when there are none."""
        parts: list[ChunkPart] = []
        singly: list[PhysicalRows] = []
        reasons: dict[tuple[str, str], SlowReason] = {}
        path_counts = PathCounts()
        for table in chunk.tables():
            reason = self._table_reason(table)
            if reason is None:
                try:
                    assert self._columns is not None
                    mounted = self._columns.mount(table.records)
                    parts += [] if mounted is None else [ChunkPart(mounted.batch, table.numbers[mounted.rows])]
                    continue
                except MISMATCHES as mismatch:
                    reason = slow_reason(mismatch)
            singly.append(table)
            reasons.setdefault(self._names[table.records.physical_id], reason)
        path_counts.add("mount/columns", sum(len(part.numbers) for part in parts))
        row_parts, corrupt = self._by_rows(singly)
        if row_parts or parts:
            path_counts.add(LEFT_OUT, self._left_out)
            self._left_out = 0
        for batch, rows in row_parts:
            name = batch.schema, batch.table
            path_counts.add("mount/rows", len(rows), reasons.get(name), name)
        return _chunk([*parts, *row_parts], chunk, path_counts, corrupt)

    def left_out(self) -> PathCounts | None:
        """Return the count of rows removed after the last chunk; None if there are none."""
        counts = PathCounts()
        counts.add(LEFT_OUT, self._left_out)
        return counts if self._left_out else None

    def _table_reason(self, table: PhysicalRows) -> SlowReason | None:
        if self._slow is not None:
            return self._slow
        if len(table.numbers) < FEW_ROWS:
            return SlowReason(Reason.FEW_ROWS, f"{counted(len(table.numbers))} in a chunk, columns need {FEW_ROWS}")
        if table.records.physical_id in self._judged:
            return SlowReason(Reason.EVENT_FILTER, "an event filter looks at each row")
        return None

    def _by_rows(self, tables: Sequence[PhysicalRows]) -> tuple[list[ChunkPart], int]:
        by_table: dict[int, list[tuple[int, int, Mounted]]] = {}
        corrupt = 0
        for number, row in numbered(tables):
            mounted = mounted_row(row, self._mounter, refuse=self._refuse)
            if mounted is None:
                continue
            if self._filter is not None and not self._filter.kept((mounted,)):
                self._left_out += 1
                continue
            corrupt += mounted.corrupt
            by_table.setdefault(mounted.table.version.stored.id, []).append((number, row.start_ts, mounted))
        parts = []
        for rows in by_table.values():
            numbers, start_ts, changes = zip(*rows, strict=True)
            parts.append(ChunkPart(batch_of_rows(changes, start_ts), np.array(numbers)))
        return parts, corrupt


def _chunk(parts: Sequence[ChunkPart], chunk: LogChunk, path_counts: PathCounts, corrupt: int) -> Chunk | None:
    transaction = chunk.transaction
    kept = sum(len(part.numbers) for part in parts)
    if not kept:
        return None
    if kept < len(transaction):
        numbers = np.sort(np.concatenate([part.numbers for part in parts]))
        parts = [ChunkPart(part.batch, np.searchsorted(numbers, part.numbers)) for part in parts]
        transaction = np.unique(transaction[numbers], return_inverse=True)[1]
    return Chunk(tuple(parts), transaction, path_counts, corrupt)
