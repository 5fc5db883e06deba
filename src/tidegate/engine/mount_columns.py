"""Mounting many records of one table at once: keys and values to the columns that the columnar encoder takes.

    keys         t45_r1    t45_r2    t45_r3           handles ────────────────────────────┐
    old values   -         row       row     ┐                                            ▼
    values       row       row       -       ┴─► offsets of all columns ─► an array each, old images first
    op           I         U         D                                       before: 2, 3   after: 1, 2

What a column holds follows the rules of mount.py, which stays the reference: what the value says, else the handle, else
the origin default.  Single rows that numpy cannot read are read by the mounter and put in their rows; where these
are many, or a key is not of the table's kind, a Mismatch sends all of them to it, and `batch_of_rows` makes the same
Batch of them.  Errors are raised by the mounter alone, with table, timestamp and key.

A text column that holds a byte which is no UTF-8 is one of bytes.  Where a value does not fit its column's type, both
images are texts (RowTexts): a row of an old form may hold what its column cannot.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.codec.columnar import Batch
from tidegate.codec.columnar.encode.arrays import replaced
from tidegate.codec.columnar.rows import RowTexts
from tidegate.codec.columnar.values import Mismatch
from tidegate.engine.change import OPS, encode_value
from tidegate.engine.mount import ColumnPlan, Mounted, Mounter, MountTable, values_of
from tidegate.kv.keys import CommonHandle, RecordKey, decode_table_key
from tidegate.kv.row_columns import (
    MISSING,
    ReadColumn,
    RowCells,
    arrow_type,
    column_reader,
    locate,
)
from tidegate.kv.rows import decode_row_value, handle_columns
from tidegate.kv.slices import Slices, slices, words
from tidegate.model.compiled import windows
from tidegate.model.errors import DecodeError
from tidegate.model.event import Field, Values, images
from tidegate.model.path_counts import Reason
from tidegate.model.table import ColumnType
from tidegate.mysql.column_value import read_value

_RECORD_AT, _HANDLE_AT, _INT_KEY_BYTES = 9, 11, 19
_RECORD: Final = b"_r"
_SIGN: Final = np.uint64(1 << 63)
_OPS: Final = pa.array(["I", "U", "D"])
_INSERT, _UPDATE, _DELETE = range(3)
_UNREAD_SHARE: Final = 4
"""If more than one row in this many needs the mounter, it reads all of them."""


class Records(NamedTuple):
    """Records of one physical table, in commit order: binary arrays, null without a value, and numpy's 64-bit numbers.
    `start_ts` is None where it is not known."""

    physical_id: int
    keys: Any
    values: Any
    old_values: Any
    commit_ts: Any
    start_ts: Any = None


class MountedColumns(NamedTuple):
    """The changes of some records; `rows` has the record number of each."""

    table: MountTable
    rows: Any
    batch: Batch

    @property
    def row_ids(self) -> Any:
        """Handles, None if handles are not numbers."""
        return self.batch.row_ids


class _Column(NamedTuple):
    plan: ColumnPlan
    type: ColumnType
    read: ReadColumn


class _Ready(NamedTuple):
    """A prepared table; `foreign` are columns that stored rows may have and changes do not."""

    table: MountTable
    columns: tuple[_Column, ...]
    foreign: frozenset[int]


class _Images(NamedTuple):
    """Stored rows, the old ones of some records before the new ones, with their record numbers."""

    values: Slices
    records: Any
    keys: Slices


class ColumnMounter:
    """Mounts records with the schema of their commit_ts; `mounter` mounts rows one by one. If `typed`, DECIMALs and
    times are Arrow's own where all values of a column can be, and texts elsewhere."""

    def __init__(self, mounter: Mounter, *, typed: bool = False) -> None:
        self._mounter, self._typed = mounter, typed
        self._ready: dict[int, _Ready] = {}

    def mount(self, records: Records) -> MountedColumns | None:
        """Return the changes of records, at least one; None when there are none. Raises Mismatch, and what
        `Mounter.mount` does.

        A chunk whose rows are of two versions of a table is a Mismatch."""
        first, last = int(records.commit_ts.min()), int(records.commit_ts.max())
        table = self._mounter.table(records.physical_id, first)
        if table is not self._mounter.table(records.physical_id, last):
            raise Mismatch("rows of two versions of a table", Reason.TWO_VERSIONS)
        present = [pc.binary_length(values).fill_null(0).to_numpy() > 0 for values in records[2:4]]
        rows = np.flatnonzero(present[0] | present[1])
        if table is None or not len(rows):
            return None
        has_after, has_before = present[0][rows], present[1][rows]
        codes = np.where(has_after, np.where(has_before, _UPDATE, _INSERT), _DELETE)
        keys = slices(records.keys if len(rows) == len(records.keys) else records.keys.take(pa.array(rows)))
        after, before = (values.filter(pa.array(mask)) for values, mask in zip(records[2:4], present, strict=True))
        indexes = np.concatenate([np.flatnonzero(has_before), np.flatnonzero(has_after)])
        row_ids, arrays = self._arrays(table, _Images(slices(before, after), indexes, keys))
        start_ts = None if records.start_ts is None else pa.array(records.start_ts[rows], pa.int64())
        batch = _batch(table, codes, records.commit_ts[rows], arrays, len(before))
        return MountedColumns(table, rows, replace(batch, start_ts=start_ts, row_ids=row_ids))

    def inserts(self, physical_id: int, keys: Slices, values: Slices, ts: int) -> Batch:
        """Return stored rows, at least one, as INSERTs at `ts`. Raises Mismatch, and what `Mounter.mount` does."""
        table = self._mounter.table(physical_id, ts)
        assert table is not None, "a load has no rows of other tables"
        if not values.size.all():
            raise Mismatch("a row without a value")
        row_ids, arrays = self._arrays(table, _Images(values, None, keys))
        codes, times = np.full(len(keys), _INSERT), np.full(len(keys), ts, np.int64)
        return replace(_batch(table, codes, times, arrays, 0), row_ids=row_ids)

    def _arrays(self, table: MountTable, images: _Images) -> tuple[Any, list[Any]]:
        """Row ids, None if handles are no numbers, and the values of each column."""
        if (ready := self._ready.get(id(table))) is None:
            ready = self._ready[id(table)] = _ready(table, utc=self._mounter.utc, typed=self._typed)
        row_ids, of_handles = _handles(table, images.keys)
        if images.records is not None:
            of_handles = {column: array.take(pa.array(images.records)) for column, array in of_handles.items()}
        cells = locate(images.values, [column.plan.id for column in ready.columns], ready.foreign)
        unread = ~cells.fits
        arrays: list[Any] = []
        for column in ready.columns:
            array, odd = _column(column, cells, of_handles.get(column.plan.id))
            arrays.append(array)
            unread |= odd
        left = np.flatnonzero(unread)
        if not len(left):
            return row_ids, arrays
        if len(left) * _UNREAD_SHARE > len(unread):
            raise Mismatch(f"{len(left)} of {len(unread)} rows in another form")
        keys = images.keys.to_pylist(left if images.records is None else images.records[left])
        values = images.values.to_pylist(left)
        read = [_plainly(table, key, value) for key, value in zip(keys, values, strict=True)]
        return row_ids, [
            replaced(array, left, array_of([row[index] for row in read], array.type))
            for index, array in enumerate(arrays)
        ]


def _ready(table: MountTable, *, utc: bool, typed: bool) -> _Ready:
    kinds = [column.type for column in table.info.columns if not column.virtual]
    columns = []
    for plan, kind in zip(table.plans, kinds, strict=True):
        stored = table.layout.by_id[plan.id].type
        if (stored.code, stored.unsigned, stored.charset) != (kind.code, kind.unsigned, kind.charset):
            raise Mismatch(f"a column stored as {stored} and shown as {kind}")
        columns.append(_Column(plan, kind, column_reader(kind, _single(plan, stored), utc=utc, typed=typed)))
    foreign = frozenset(table.layout.by_id) - {plan.id for plan in table.plans}
    return _Ready(table, tuple(columns), foreign)


def _single(plan: ColumnPlan, stored: ColumnType) -> Callable[[bytes], Any]:
    def read(raw: bytes) -> Any:
        return plan.convert(read_value(stored, raw))

    return read


def _handles(table: MountTable, keys: Slices) -> tuple[Any, dict[int, Any]]:
    """Row ids, None if handles are no numbers, and the columns that the handles hold."""
    if table.layout.common_handle is not None:
        return None, _common_handles(table, keys.to_pylist())
    if (keys.size != _INT_KEY_BYTES).any():
        raise Mismatch("handles that are no numbers")
    if (windows(keys.data, "<u2")[keys.offsets + _RECORD_AT] != int.from_bytes(_RECORD, "little")).any():
        raise Mismatch("index entries")
    bits = words(keys.data, keys.offsets + _HANDLE_AT).byteswap() ^ _SIGN
    row_ids, key = pa.array(bits.view(np.int64)), table.layout.int_handle
    if key is None:
        return row_ids, {}
    return row_ids, {key: pa.array(bits) if table.layout.by_id[key].type.unsigned else row_ids}


def _common_handles(table: MountTable, keys: list[bytes]) -> dict[int, Any]:
    """The columns of handles that are primary keys; key by key."""
    plans = {plan.id: plan for plan in table.plans}
    columns: dict[int, list[Any]] = {column: [] for column in table.layout.whole_handle_columns if column in plans}
    try:
        for key in keys:
            of_handle = handle_columns(table.layout, CommonHandle(key[_HANDLE_AT:]))
            for column, values in columns.items():
                values.append(None if of_handle[column] is None else plans[column].convert(of_handle[column]))
    except DecodeError as error:
        raise Mismatch(error.what) from error
    if any(key[_RECORD_AT:_HANDLE_AT] != _RECORD or len(key) < _INT_KEY_BYTES + 1 for key in keys):
        raise Mismatch("keys without such a handle")
    return {column: array_of(values, arrow_type(table.layout.by_id[column].type)) for column, values in columns.items()}


def _column(column: _Column, cells: RowCells, handles: Any) -> tuple[Any, Any]:
    """A column's values, and the rows that the mounter has to read."""
    indexes = cells.cells[column.plan.id]
    if handles is not None:
        return handles, indexes.size != MISSING
    array, unread = column.read(cells.data, indexes)
    missing = indexes.size == MISSING
    if column.plan.missing is None or not missing.any():
        return array, unread
    return pc.if_else(pa.array(missing), array_of([column.plan.missing], array.type)[0], array), unread


def _plainly(table: MountTable, key: bytes, value: bytes) -> Sequence[Any]:
    table_key = decode_table_key(key)
    assert isinstance(table_key, RecordKey)
    values = values_of(table, decode_row_value(table.layout, table_key, value))
    assert values is not None
    return values


def array_of(values: Sequence[Any], kind: Any) -> Any:
    """Return values of events as an array of type `kind`. Raises Mismatch for a value that the type cannot hold."""
    if pa.types.is_binary(kind):
        values = [value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value for value in values]
    try:
        if pa.types.is_decimal(kind) or pa.types.is_temporal(kind):
            return pa.array(values, pa.string()).cast(kind)
        return pa.array(values, kind)
    except (pa.ArrowException, UnicodeError, OverflowError, TypeError) as error:
        raise Mismatch(str(error)) from error


def _batch(table: MountTable, codes: Any, commit_ts: Any, arrays: list[Any], olds: int) -> Batch:
    count, names = len(codes), [field.name for field in table.fields]
    zeros = pa.array(np.zeros(count, np.int32))
    partition = table.physical_id if table.is_partition else None
    return Batch(
        schema=table.version.schema,
        table=table.version.stored.name.original,
        fields=table.fields,
        pk_names=table.wire.pk_names,
        message=zeros,
        seq=zeros,
        commit_ts=pa.array(commit_ts, pa.int64()),
        op=_OPS.take(pa.array(codes)),
        partition_id=pa.repeat(pa.scalar(partition, pa.int64()), count),
        before=pa.RecordBatch.from_arrays([array.slice(0, olds) for array in arrays], names=names),
        after=pa.RecordBatch.from_arrays([array.slice(olds) for array in arrays], names=names),
        definition=table.info,
    )


def batch_of_rows(rows: Sequence[Mounted], start_ts: Sequence[int]) -> Batch:
    """Return row changes (at least one) of one version of a table, partitions of it mixed, in their order; `start_ts`
    is that of each row."""
    table, changes = rows[0].table, [mounted.row for mounted in rows]
    both = [images(row) for row in changes]
    befores = [before for before, _ in both if before is not None]
    afters = [after for _, after in both if after is not None]
    kinds = [arrow_type(column.type) for column in table.info.columns if not column.virtual]
    before: Any
    after: Any
    try:
        before, after = (_typed(values, kinds, table.fields) for values in (befores, afters))
    except Mismatch:
        before, after = (_texts(values, len(kinds)) for values in (befores, afters))
    zeros = pa.array(np.zeros(len(rows), np.int32))
    ids = [row.row_id for row in changes]
    return Batch(
        schema=changes[0].schema,
        table=changes[0].table,
        fields=table.fields,
        pk_names=table.wire.pk_names,
        message=zeros,
        seq=zeros,
        commit_ts=pa.array([row.commit_ts for row in changes], pa.int64()),
        op=pa.array([OPS[type(row).__name__] for row in changes]),
        partition_id=pa.array([row.partition_id for row in changes], pa.int64()),
        before=before,
        after=after,
        start_ts=pa.array(start_ts, pa.int64()),
        row_ids=None if None in ids else pa.array(ids, pa.int64()),
        definition=table.info,
    )


def _typed(rows: Sequence[Values], kinds: Sequence[Any], fields: Sequence[Field]) -> Any:
    columns = zip(*rows, strict=True) if rows else [()] * len(kinds)
    arrays = []
    for values, kind in zip(columns, kinds, strict=True):
        try:
            arrays.append(array_of(values, kind))
        except Mismatch:
            if not pa.types.is_string(kind):
                raise
            arrays.append(array_of(values, pa.binary()))
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])


def _texts(rows: Sequence[Values], width: int) -> RowTexts:
    return RowTexts(pa.array([encode_value(value) for row in rows for value in row], pa.binary()), width)
