"""Rows of single keys at one TSO: texts of a table's handle key (`reload.key_text`) to keys of TiKV, and to its rows.

    the key is the handle     7, or 'a', 3 ──────────────────────────────────────► t45_r.. ─► row
    any other                 'a', 3 ─► t45_i2.. of a unique index ─► its handle ─► t45_r.. ─► row
    a partitioned table       partition by partition, until one has it; a global index names the partition

Keys that a collation takes for equal find one row, whose own texts say which of them it has.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from tidegate.kv.index_entry import IndexEntry, decode_index_value, encode_index_entry
from tidegate.kv.keys import IntHandle, record_key
from tidegate.kv.rows import handle_of
from tidegate.model.errors import EncodeError, SchemaError, UnsupportedError, redacted_value
from tidegate.model.event import Value
from tidegate.model.mysql import FLOATS, INTEGERS, STRINGS, MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType
from tidegate.mysql.column_value import KvValue, parse_value
from tidegate.mysql.layout import IndexLayout, TableLayout
from tidegate.schema.stored.definition import StoredTable, column_type, table_layout
from tidegate.tikv.snapshot import Snapshot

Key = tuple[str, ...]
_GETS: Final = 32
"""Reads at the same time."""
_WHOLE_NUMBERS: Final = INTEGERS | {MysqlType.YEAR, MysqlType.BIT}


class KeyedRow(NamedTuple):
    """A row as it is stored."""

    physical_id: int
    key: bytes
    value: bytes


class KeyedTable:
    """Finds rows of a table by the columns `names`, its handle key."""

    def __init__(self, stored: StoredTable, names: Sequence[str]) -> None:
        self.stored, columns = stored, {lowered(column.name.original): column for column in stored.cols or []}
        self._columns = [columns[lowered(name)] for name in names]
        self._ids = tuple(column.id for column in self._columns)

    async def rows(self, snapshot: Snapshot, keys: Sequence[Key]) -> Mapping[Key, KeyedRow]:
        """Return the rows that are there. Raises SchemaError for a text that is no key, UnsupportedError for one whose
        sort key is not known."""
        few = asyncio.Semaphore(_GETS)

        async def one(key: Key) -> KeyedRow | None:
            async with few:
                return await self._row(snapshot, key)

        rows = await asyncio.gather(*map(one, keys))
        return {key: row for key, row in zip(keys, rows, strict=True) if row is not None}

    async def _row(self, snapshot: Snapshot, key: Key) -> KeyedRow | None:
        kinds = [column_type(column.type) for column in self._columns]
        values = dict(zip(self._ids, map(value_of, kinds, key), strict=True))
        for physical_id in self.stored.physical_ids:
            layout = table_layout(self.stored, physical_id)
            try:
                match = await self._record(snapshot, layout, values)
            except EncodeError as error:
                raise UnsupportedError(
                    f"{self.stored.name.original}: {error}: single rows of it come over SQL alone (load-from=mysql://)"
                ) from error
            value = await snapshot.get(match[1]) if match else None
            if match and value is not None:
                return KeyedRow(*match, value)
        return None

    async def _record(
        self, snapshot: Snapshot, layout: TableLayout, values: Mapping[int, KvValue]
    ) -> tuple[int, bytes] | None:
        """The physical table and the key of a row; None if an index has no such entry."""
        if layout.int_handle is not None or layout.common_handle is not None:
            return layout.id, record_key(layout.id, handle_of(layout, values))
        index = next(filter(self._fits, layout.indexes), None)
        if index is None:
            raise SchemaError(f"{self.stored.name.original} has no unique index of its key at ts {snapshot.ts}")
        if index.global_index:
            layout = table_layout(self.stored, self.stored.id)
        key, _ = encode_index_entry(layout, IndexEntry(index.id, dict(values), IntHandle(0)))
        entry = await snapshot.get(key)
        if entry is None:
            return None
        row = decode_index_value(entry)
        assert row.handle is not None, key
        physical_id = layout.id if row.partition_id is None else row.partition_id
        return physical_id, record_key(physical_id, row.handle)

    def _fits(self, index: IndexLayout) -> bool:
        return index.unique and tuple(part.column_id for part in index.parts) == self._ids


def value_of(kind: ColumnType, text: str) -> KvValue:
    """Return a key's value of its text. Raises SchemaError."""
    code, elements = kind.code, kind.elems or ()
    read: Value = text
    try:
        if code in STRINGS and kind.charset == "binary":
            read = bytes.fromhex(text)
        elif code is MysqlType.ENUM:
            read = elements.index(text) + 1 if text else 0
        elif code is MysqlType.SET:
            read = sum(1 << elements.index(name) for name in text.split(",") if name)
        elif code in _WHOLE_NUMBERS:
            read = int(text)
        elif code in FLOATS:  # a FLOAT is the double that it is compared as
            read = float(np.float32(text)) if code is MysqlType.FLOAT else float(text)
        return parse_value(kind, read)
    except (ValueError, EncodeError) as error:
        raise SchemaError(f"the key {redacted_value(text)} is no {code.name}") from error
