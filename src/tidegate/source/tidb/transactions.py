"""Rows of some tables as transactions, mounted, in commit order.

    log.rows ── same row again? dropped ── mount at commit_ts - 1 ──► [row, row, ..] of one (commit_ts, start_ts)

Rows of a transaction come with deletes first, updates before inserts, then by key, across the tables that were asked
for, as TiCDC's sorter has them.  A transaction is held whole.  What cannot be mounted names its table and timestamp.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

from tidegate.feed.mount import Mounted, Mounter
from tidegate.kv.table_key import decode_table_key
from tidegate.model.errors import (
    CorruptedRow,
    DecodeError,
    EncodeError,
    KvDecodeError,
    MessageTooLarge,
    SchemaError,
    TidegateError,
)
from tidegate.model.kv_change import KvChange
from tidegate.schema.stored.history import SchemaHistory
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion
from tidegate.source.tidb.log import KvLog, Span

__all__ = ["MountOptions", "mounted_row", "mounted_transactions", "mounter_of", "placed_error", "transactions"]


class MountOptions(NamedTuple):
    """How rows are mounted; `verify` compares checksums, and `refuse_corrupt` says whether one that fails is an
    error (corruption-handle-level)."""

    force_replicate: bool = False
    verify: bool = False
    refuse_corrupt: bool = False


def mounter_of(tables: Sequence[TableVersion], low: int, options: MountOptions) -> Mounter:
    """Return the mounter of rows above `low`, as long as these definitions hold."""
    by_id = {version.stored.id: version for version in tables}
    logical = {physical: version.stored.id for version in tables for physical in version.stored.physical_ids}
    snapshot = StoredSnapshot(ts=low, tables=by_id, logical=logical)
    return Mounter(SchemaHistory(snapshot), force_replicate=options.force_replicate, verify=options.verify)


def transactions(
    log: KvLog, stretch: tuple[int, int], spans: Sequence[Span], mounter: Mounter, *, refuse_corrupt: bool = False
) -> Iterator[list[Mounted]]:
    """Return the transactions with commit_ts in (low, high], the two of `stretch`, that have rows in `spans`.

    Raises HistoryLost, DecodeError, and SchemaError or KvDecodeError with the row's table and timestamp."""
    return mounted_transactions(log.rows(*stretch, spans), mounter, refuse_corrupt=refuse_corrupt)


def mounted_transactions(
    rows: Iterable[KvChange], mounter: Mounter, *, refuse_corrupt: bool = False
) -> Iterator[list[Mounted]]:
    """Return the transactions of rows that come in commit order."""
    for _, group in groupby(_once(rows), key=lambda row: (row.commit_ts, row.start_ts)):
        found = [mounted for row in group if (mounted := mounted_row(row, mounter, refuse=refuse_corrupt)) is not None]
        if found:
            yield found


def placed_error(error: TidegateError, where: str) -> TidegateError:
    """Return the error with the words that say where it happened."""
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


def _once(rows: Iterable[KvChange]) -> Iterator[KvChange]:
    """Without repetitions: equal rows follow each other."""
    last = (0, 0, b"")
    for row in rows:
        this = row.commit_ts, row.start_ts, row.key
        if this != last:
            yield row
        last = this


def mounted_row(row: KvChange, mounter: Mounter, *, refuse: bool) -> Mounted | None:
    """Return the change that a row of the log makes; None for one that is dropped. Errors name timestamps and key.

    Raises CorruptedRow with `refuse` for a row whose checksum contradicts its values."""
    try:
        found = mounter.mount(row.key, row.value, row.old_value, row.commit_ts)
    except TidegateError as error:
        placed = placed_error(error, f"commit_ts {row.commit_ts}, start_ts {row.start_ts}, key {row.key.hex()}")
        raise placed.at(table=_table_of(row, mounter), commit_ts=row.commit_ts) from error
    if found is not None and found.corrupt and refuse:
        raise CorruptedRow(
            f"{found.row.schema}.{found.row.table} at commit_ts {row.commit_ts}, key {row.key.hex()}: the checksum of "
            "the row does not fit its values; compare the row upstream, or set corruption-handle-level to warn"
        ).at(table=str(found.table.info.name), commit_ts=row.commit_ts)
    return found


def _table_of(row: KvChange, mounter: Mounter) -> str:
    """The name of the table that a key is of, "" where that is not known."""
    with suppress(TidegateError):
        key = decode_table_key(row.key)
        table = mounter.table(key.table_id, row.commit_ts)
        return "" if table is None else str(table.info.name)
    return ""
