"""Mounting: key, value and old value of a record become a row change.

    key        t | table | _r | handle  ── physical id ──► snapshot at commit_ts - 1 ──► table or partition
    value      row, or nothing                                                              │
    old value  row, or nothing                                 columns of that one definition, in table order

    old value   value    event            a column's value, the first of
    -           row      Insert           1  what the row's value holds
    row         row      Update           2  the handle, if it holds the column completely
    row         -        Delete           3  the origin default (not DEFAULT)
    -           -        nothing          4  NULL, or the zero value of a NOT NULL column

A row whose commit_ts is that of a DDL belongs before it.  Columns that the definition does not name are ignored,
virtual ones are left out.  Rows of ineligible tables (no primary key, no unique key on NOT NULL columns) are dropped
unless `force_replicate`; rows of truncated ids are dropped.  An id that nobody knows is TableNotFound in a history of
jobs (SchemaHistory), and that of a partition's copy in one of schema keys (DefinitionHistory), whose rows are dropped.

Source: TiCDC's mounter (mounter.go) and rowcodec; recorded streams.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

from tidegate.codec.wire_table import WireTable, wire_table
from tidegate.codec.zone import zone_shift
from tidegate.kv.keys import Handle, IntHandle, RecordKey, decode_table_key
from tidegate.kv.rows import Row, decode_row_value, verify_checksum
from tidegate.model.errors import DecodeError, KvDecodeError
from tidegate.model.event import Delete, Field, Insert, RowChange, Update, Value, Values
from tidegate.model.mysql import FLOATS, NUMBERS, STRINGS, MysqlType
from tidegate.model.table import ColumnInfo, ColumnType, TableInfo
from tidegate.mysql.column_value import column_text
from tidegate.mysql.conversion import enum_index, set_mask, zone_of
from tidegate.mysql.layout import TableLayout
from tidegate.schema.literal import stored_value
from tidegate.schema.stored.definition import table_layout
from tidegate.schema.stored.history import DefinitionHistory
from tidegate.schema.stored.snapshot import SchemaHistory, TableVersion, table_info

Convert = Callable[[Any], Value]


class ColumnPlan(NamedTuple):
    """The reading of one column."""

    id: int
    convert: Convert
    missing: Value


@dataclass(frozen=True)
class MountTable:
    """A table, or a partition of it, ready to read rows with."""

    version: TableVersion
    physical_id: int
    info: TableInfo
    wire: WireTable
    layout: TableLayout
    fields: tuple[Field, ...]
    plans: tuple[ColumnPlan, ...]

    @property
    def eligible(self) -> bool:
        """True if rows have a handle key, primary or NOT NULL unique; rows of a sequence have none."""
        return not self.version.stored.is_sequence and (self.version.stored.is_view or bool(self.info.handle_key))

    @property
    def is_partition(self) -> bool:
        return self.version.stored.partition is not None and self.version.stored.partition.enable


class Mounted(NamedTuple):
    """A row change, the table that it was read with, the row's handle, and whether a checksum contradicts a value."""

    row: RowChange
    table: MountTable
    handle: Handle
    corrupt: bool = False


class Mounter:
    """Reads rows with the schema of their commit_ts; plans are made once per table version.

    `verify` compares the checksums that rows have (integrity-check-level "correctness"). An old value's checksum of
    version 0 is not judged: it may be that of an older schema."""

    def __init__(
        self,
        history: SchemaHistory | DefinitionHistory,
        *,
        force_replicate: bool = False,
        time_zone: str = "UTC",
        verify: bool = False,
        new_collation: bool = True,
    ) -> None:
        self._history, self._force, self._verify, self._new_collation = history, force_replicate, verify, new_collation
        self._zone = UTC if time_zone == "UTC" else zone_of(time_zone)
        self._shift = zone_shift(time_zone)
        self._tables: dict[tuple[int, int, int], MountTable] = {}

    def mount(self, key: bytes, value: bytes | None, old_value: bytes | None, commit_ts: int) -> Mounted | None:
        """Return the row change of a record; None for index entries, rows to skip, and no row at all. Raises
        KvDecodeError for damaged bytes, TableNotFound for an id that the schema does not have."""
        table_key = decode_table_key(key)
        if not isinstance(table_key, RecordKey) or (not value and not old_value):
            return None
        table = self.table(table_key.table_id, commit_ts)
        if table is None:
            return None
        before = decode_row_value(table.layout, table_key, old_value) if old_value else None
        after = decode_row_value(table.layout, table_key, value) if value else None
        try:
            change = _change(table, table_key.handle, commit_ts, values_of(table, before), values_of(table, after))
        except DecodeError as error:
            raise KvDecodeError(error.what, error.codec, error.offset, key) from error
        corrupt = False
        if self._verify:
            judged = None if before is None or before.tail is None or before.tail.version == 0 else before
            corrupt = _contradicts(table, judged, old_value) or _contradicts(table, after, value)
        return Mounted(change, table, table_key.handle, corrupt)

    @property
    def utc(self) -> bool:
        return self._zone is UTC

    def table(self, physical_id: int, commit_ts: int) -> MountTable | None:
        """Return the table that reads rows with that id; None where they are skipped. Raises TableNotFound."""
        version = self._history.table_of(physical_id, commit_ts)
        if version is None:
            return None
        cache_key = (version.stored.id, version.version, physical_id)
        table = self._tables.get(cache_key)
        if table is None or table.version is not version:
            table = self._tables[cache_key] = self._plan(version, physical_id)
        return table if self._force or table.eligible else None

    def _plan(self, version: TableVersion, physical_id: int) -> MountTable:
        info = table_info(version.stored, version.schema, version.version, every_state=True)
        wire = wire_table(info)
        layout = table_layout(version.stored, physical_id, new_collation=self._new_collation)
        plans = tuple(
            ColumnPlan(column.id, converter(column.type, self._zone), _missing(column, self._shift))
            for column in info.columns
            if not column.virtual
        )
        return MountTable(version, physical_id, info, wire, layout, wire.fields, plans)


def _contradicts(table: MountTable, row: Row | None, value: bytes | None) -> bool:
    return row is not None and value is not None and not verify_checksum(table.layout, row, value)


def values_of(table: MountTable, row: Row | None) -> Values | None:
    """Return the values of a row in the order of the table's columns; None for no row. Raises DecodeError for bytes
    that are no value."""
    return None if row is None else tuple([_read(plan, row) for plan in table.plans])


def _read(plan: ColumnPlan, row: Row) -> Value:
    if plan.id not in row.columns:
        return plan.missing
    value = row.columns[plan.id]
    return None if value is None else plan.convert(value)


def _change(
    table: MountTable, handle: Handle, commit_ts: int, before: Values | None, after: Values | None
) -> RowChange:
    shared: dict[str, Any] = {
        "schema": table.version.schema,
        "table": table.version.stored.name.original,
        "fields": table.fields,
        "commit_ts": commit_ts,
        "row_id": handle.value if isinstance(handle, IntHandle) else None,
        "partition_id": table.physical_id if table.is_partition else None,
        "pk_names": table.wire.pk_names,
    }
    if before is None:
        assert after is not None
        return Insert(after=after, **shared)
    return Delete(before=before, **shared) if after is None else Update(before=before, after=after, **shared)


def converter(kind: ColumnType, zone: tzinfo = UTC) -> Convert:
    """Return the function from a stored value to that of an event."""
    if kind.code in NUMBERS:
        return int
    if kind.code in FLOATS:
        return lambda value: value if isfinite(value) else 0.0
    if kind.code in STRINGS:
        return bytes if kind.charset == "binary" else lambda value: value.decode("utf-8", "surrogateescape")
    return partial(column_text, kind, zone=zone)


def _missing(column: ColumnInfo, shift: Callable[[str], str]) -> Value:
    """The value of a row that was written before the column was added."""
    kind = column.type
    if column.origin_default is None and not column.nullable and kind.code in STRINGS:
        return b"" if kind.charset == "binary" else ""
    value = stored_value(column)
    if isinstance(value, str) and kind.code is MysqlType.TIMESTAMP:
        return shift(value)
    if isinstance(value, str) and kind.code is MysqlType.ENUM:
        return enum_index(kind.elems or ())(value)
    if isinstance(value, str) and kind.code is MysqlType.SET:
        return set_mask(kind.elems or ())(value)
    return value
