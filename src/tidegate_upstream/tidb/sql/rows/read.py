"""Reading rows: by primary key, by an index, or all of them.

    WHERE demands              read by
    every part of the handle   the row's key                  id = 7;  (a, b) = (1, 'x')
    the first parts of an      entries that begin so, then    k = 5;   u IN ('a', 'b')
    index                      the rows that they name
    anything else              all rows of every partition

A demand is a hint: it is used only where a value becomes a key of the column without loss, and the caller looks at the
rows again.  Text compared with a number, or bytes with text, is left to the caller.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import product
from math import prod
from typing import Final, NamedTuple

from tidegate.expr.cast.assign import convert
from tidegate.expr.relation import RelationColumn
from tidegate.kv.handle import Handle, IntHandle
from tidegate.kv.index_entry import decode_index_entry
from tidegate.kv.row.row import decode_row, decode_row_value, handle_of, part_datum
from tidegate.kv.table_key import RecordKey, index_prefix, record_key, table_span
from tidegate.model.errors import EncodeError
from tidegate.model.mysql import INTEGERS, STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.mysql.column_value import KvValue
from tidegate.mysql.context import Context
from tidegate.mysql.datum import encode_key
from tidegate.mysql.layout import WHOLE, IndexPart
from tidegate.mysql.number import MAX_INT
from tidegate.mysql.value.kinds import Named, SqlValue, Time, from_column
from tidegate.schema.stored.meta import Reader
from tidegate_upstream.tidb.sql.rows.row import RowImage, image_of
from tidegate_upstream.tidb.sql.rows.shape import ROW_ID, ShapeColumn, ShapeIndex, TableShape

Equal = Mapping[str, tuple[SqlValue, ...]]
_MANY: Final = 1_000
"""Keys that are looked up one by one; more are not worth it."""


class _Way(NamedTuple):
    """An index (None: the handle), and the values of its first parts to look up."""

    through: ShapeIndex | None
    parts: Sequence[IndexPart]
    keys: list[tuple[KvValue, ...]]


class TableReader:
    """Rows of one table as a transaction or a snapshot sees them; a relation of the public columns and, without a
    clustered key, _tidb_rowid."""

    def __init__(self, source: Reader, shape: TableShape, context: Context) -> None:
        self.source, self.shape, self.context = source, shape, context

    # --- as a relation ---

    @property
    def name(self) -> str:
        """The table's name in its own case."""
        return self.shape.name

    @property
    def columns(self) -> tuple[RelationColumn, ...]:
        """The columns that statements may name."""
        return self.shape.relation_columns

    def rows(self, equal: Equal, _context: Context) -> Iterator[tuple[SqlValue, ...]]:
        """Return the rows, at least those that fit `equal`."""
        return map(self.shown, self.find(equal))

    def shown(self, image: RowImage) -> tuple[SqlValue, ...]:
        """Return a row as statements see it: the public columns, and the hidden number where there is one."""
        zone = self.context.zone
        values = [from_column(column.target.type, image.columns[column.id], zone) for column in self.shape.public]
        if self.shape.hidden_handle and isinstance(image.handle, IntHandle):
            values.append(image.handle.value)
        return tuple(values)

    # --- reading ---

    def get(self, physical_id: int, handle: Handle) -> RowImage | None:
        """Return the row with that handle."""
        value = self.source.get(record_key(physical_id, handle))
        if value is None:
            return None
        row = decode_row_value(self.shape.layout_of(physical_id), RecordKey(physical_id, handle), value)
        return image_of(self.shape, row, self.context)

    def all(self) -> Iterator[RowImage]:
        """Return every row, partition by partition in order of their handles."""
        for physical_id in self.shape.physical_ids:
            yield from self.rows_of(physical_id)

    def rows_of(self, physical_id: int) -> Iterator[RowImage]:
        """Return the rows under one physical id."""
        layout = self.shape.layout_of(physical_id)
        for key, value in self.source.scan(*table_span(physical_id)):
            yield image_of(self.shape, decode_row(layout, key, value), self.context)

    def find(self, equal: Equal) -> Iterator[RowImage]:
        """At least the rows that fit `equal`."""
        way = self._way(equal) if equal else None
        if way is None:
            yield from self.all()
        elif way.through is None:
            yield from self._by_handle(way.keys)
        else:
            yield from self._by_index(way.through, way)

    def handles(self, index: ShapeIndex, prefix: bytes = b"") -> Iterator[tuple[int, Handle]]:
        """(physical id, handle) of the entries of an index whose columns begin with `prefix`."""
        physical_ids = (self.shape.stored.id,) if index.layout.global_index else self.shape.physical_ids
        for physical_id in physical_ids:
            start = index_prefix(physical_id, index.layout.id) + prefix
            layout = self.shape.index_layout(index, physical_id)
            for key, value in self.source.scan(start, key_after(start)):
                entry = decode_index_entry(layout, key, value)
                yield entry.partition_id or physical_id, entry.handle

    # --- which way ---

    def _way(self, equal: Equal) -> _Way | None:
        handle = self._handle_way(equal)
        if handle is not None:
            return handle
        ways = [way for index in self.shape.indexes if (way := self._index_way(index, equal))]
        return max(ways, key=lambda way: (len(way.parts), way.through is not None), default=None)

    def _handle_way(self, equal: Equal) -> _Way | None:
        layout = self.shape.layout
        if layout.int_handle is not None:
            parts: Sequence[IndexPart] = (IndexPart(layout.int_handle),)
        elif layout.common_handle is not None:
            parts = layout.common_handle.parts
        else:
            numbers = equal.get(ROW_ID, ())
            whole = [n for n in numbers if isinstance(n, int) and -MAX_INT <= n <= MAX_INT]
            return _Way(None, (), [(n,) for n in whole]) if numbers and len(whole) == len(numbers) else None
        found = self._values(parts, equal)
        return None if found is None or len(found) < len(parts) else _Way(None, parts, _keys(found))

    def _index_way(self, index: ShapeIndex, equal: Equal) -> _Way | None:
        if not index.access.read or index.stored.mv_index:
            return None
        found = self._values(index.layout.parts, equal)
        return _Way(index, index.layout.parts[: len(found)], _keys(found)) if found else None

    def _values(self, parts: Sequence[IndexPart], equal: Equal) -> list[list[KvValue]] | None:
        """The values of the first parts that `equal` names and that become keys; None for too many."""
        found: list[list[KvValue]] = []
        for part in parts:
            column = self.shape.by_id[part.column_id]
            demanded = equal.get(column.stored.name.lower) if part.length == WHOLE else None
            if not column.public or demanded is None:
                break
            values = [_exact(column, value, self.context) for value in demanded if value is not None]
            if None in values:
                break
            found.append(values)
        return found if prod(len(values) for values in found) <= _MANY else None

    # --- the ways ---

    def _by_handle(self, keys: list[tuple[KvValue, ...]]) -> Iterator[RowImage]:
        handles = [handle for values in keys if (handle := self._handle(values)) is not None]
        for handle in sorted(set(handles), key=lambda handle: handle.encoded):
            for physical_id in self.shape.physical_ids:
                image = self.get(physical_id, handle)
                if image is not None:
                    yield image

    def _handle(self, values: tuple[KvValue, ...]) -> Handle | None:
        layout = self.shape.layout
        if layout.int_handle is not None:
            return handle_of(layout, {layout.int_handle: values[0]})
        if layout.common_handle is None:
            number = values[0]
            return handle_of(layout, {}, number) if isinstance(number, int) else None
        ids = (part.column_id for part in layout.common_handle.parts)
        try:
            return handle_of(layout, dict(zip(ids, values, strict=True)))
        except EncodeError:
            return None

    def _by_index(self, index: ShapeIndex, way: _Way) -> Iterator[RowImage]:
        seen: set[tuple[int, Handle]] = set()
        for values in way.keys:
            layout = self.shape.layout
            try:
                prefix = encode_key(
                    part_datum(layout, part, value) for part, value in zip(way.parts, values, strict=True)
                )
            except EncodeError:
                continue
            for place in self.handles(index, prefix):
                image = None if place in seen else self.get(*place)
                seen.add(place)
                if image is not None:
                    yield image


def _keys(values: list[list[KvValue]]) -> list[tuple[KvValue, ...]]:
    return list(product(*values))


def key_after(prefix: bytes) -> bytes:
    """Return the first key behind all that begin with `prefix`, which is not all ones."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


def _exact(column: ShapeColumn, value: SqlValue, context: Context) -> KvValue:
    """The value as the column would store it; None where the column compares it in another way."""
    kind = column.target.type
    if isinstance(value, Named):
        value = str(value)
    if kind.code in INTEGERS:
        fits = isinstance(value, int) and not isinstance(value, bool)
    elif kind.code in STRINGS:
        fits = isinstance(value, str) if kind.charset != "binary" else isinstance(value, bytes)
    elif kind.code is T.DECIMAL:
        fits = isinstance(value, int | Decimal)
    elif kind.code in {T.DATE, T.DATETIME, T.TIMESTAMP}:
        fits = isinstance(value, str | Time)
    else:
        fits = kind.code is T.ENUM and isinstance(value, str)
    if not fits:
        return None
    found = convert(value, column.target, context)
    return found.value if found.problem is None else None
