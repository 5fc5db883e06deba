"""One table inside a transaction: reading and changing its rows, and automatic row numbers.

    new_row(values)      assigned, defaults, automatic numbers, generated ──► RowImage       nothing written yet
    conflicts(image)     the rows that hold its unique keys                                  REPLACE, ON DUPLICATE KEY
    insert(image)        1062 when there are any
    update(old, values)  the new row; None, and no write, when nothing changed
    delete(old)

`values` are by column name in lower case; DEFAULT stands for a column's default.  `lenient` is IGNORE: what strict mode
refuses becomes a warning.  As a Relation the table has its public columns and, without a clustered key, _tidb_rowid.

Rows are read by the best match for the conditions on its columns:

    every part of the handle             the row's key                       id = 7;  (a, b) = (1, 'x')
    the first parts of an index          entries with that prefix, then      k = 5;   u IN ('a', 'b')
                                         the rows that they refer to
    anything else                        all rows of every partition

A condition is a hint: it is used only if its value becomes a key of the column without loss, and the caller filters the
rows again.  Text compared with a number, or bytes with text, is left to the caller.

    value          AUTO_INCREMENT                            AUTO_RANDOM
    none, NULL     the next number                           the next number under the transaction's shard
    0              the same, unless NO_AUTO_VALUE_ON_ZERO    the same
    7              7, and later numbers are larger           8216 unless allow_auto_random_explicit_insert

LAST_INSERT_ID() is the first number generated for the statement.  Counters by meta key, each the last number taken:

    DB:<schema>  TID:<table>          hidden row ids, and AUTO_INCREMENT with them
                 IID:<table>          AUTO_INCREMENT alone, of tables with AUTO_ID_CACHE 1
                 TARID:<table>        AUTO_RANDOM, without its shard

A node takes a batch of STEP numbers in a small transaction of its own and hands them out from memory; those that a dead
node did not use are lost.  The counter is deleted with its table: an old transaction gets no number for a dropped
table, since the counter would begin anew, below numbers that RECOVER TABLE brings back.

    AUTO_RANDOM(5) BIGINT             sign | 5 bits of shard | 58 bits of counter           shard: by the transaction
    SHARD_ROW_ID_BITS = 2             sign | 2 bits of shard | 61 bits of counter

Source: TiDB pkg/meta/autoid (autoid.go: alloc4Signed, rebase4Signed, ShardIDFormat), pkg/executor (insert_common.go,
write.go), pkg/table/tables; MySQL's error list.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from itertools import product
from math import prod
from threading import Lock
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from tidegate.expr.cast import assign, convert, fitted, not_null, recast, zero_of
from tidegate.expr.scope import RelationColumn
from tidegate.kv.index_entry import decode_index_entry
from tidegate.kv.keys import Handle, IntHandle, RecordKey, hash_key, index_prefix, record_key, table_span
from tidegate.kv.rows import ChecksumForm, decode_row, decode_row_value, handle_of, part_datum
from tidegate.model.errors import EncodeError, SqlRefused
from tidegate.model.mysql import INTEGERS, STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.mysql.column_value import KvValue
from tidegate.mysql.datum import DecimalDatum, encode_key
from tidegate.mysql.encoding import MAX_INT, MAX_UINT
from tidegate.mysql.layout import WHOLE, IndexPart
from tidegate.mysql.values import Context, Named, SqlValue, Time, from_column
from tidegate.schema.stored.definition import PRIMARY
from tidegate.schema.stored.meta import Reader, table_key
from tidegate.schema.stored.snapshot import TableVersion
from tidegate_upstream.errors import EntryTooLarge, TransactionTooLarge, WriteConflict, missing_table
from tidegate_upstream.f1 import Touch
from tidegate_upstream.tidb.table_rows import (
    ROW_ID,
    KeyMutation,
    RowForm,
    RowImage,
    ShapeColumn,
    ShapeIndex,
    TableShape,
    complete,
    duplicate,
    image_of,
    no_partition,
    now_of,
    row_mutations,
    same,
    values_of,
    violated,
    without_default,
)
from tidegate_upstream.tidb.transaction import Storage, Transaction

STEP: Final = 30_000
"""Default batch of numbers that a node takes at once (AUTO_ID_CACHE)."""
_EXHAUSTED: Final = 1467
_T = TypeVar("_T")


class CounterKind(Enum):
    """The counters of a table, by the prefix of their meta field."""

    ROW = "TID"
    INCREMENT = "IID"
    RANDOM = "TARID"


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter: `limit` is the largest number it may give, `step` the size of a batch.

    `schema_id` is the database of the counter's key, `table_schema_id` that of the table, which must exist
    for new numbers; 0 skips that check."""

    schema_id: int
    table_id: int
    kind: CounterKind = CounterKind.ROW
    step: int = STEP
    limit: int = MAX_INT
    table_schema_id: int = 0

    @property
    def key(self) -> bytes:
        return hash_key(f"DB:{self.schema_id}", f"{self.kind.value}:{self.table_id}")


class StoredAutoIds:
    """Counters in the meta keys of a storage; one per node, thread-safe."""

    def __init__(self, storage: Storage) -> None:
        self._storage, self._lock = storage, Lock()
        self._ranges: dict[bytes, tuple[int, int]] = {}

    def next(self, counter: Counter, count: int) -> int:
        """Return the first of `count` consecutive numbers; SqlRefused 1467 if they are exhausted, 1146 without its
        table."""
        with self._lock:
            last, end = self._ranges.get(counter.key, (0, 0))
            if last + count > end:
                last, end = self._changed(lambda t: _next_batch(t, counter, count))
            if last + count > counter.limit:
                raise SqlRefused(_EXHAUSTED, "Failed to read auto-increment value from storage engine")
            self._ranges[counter.key] = (last + count, end)
            return last + 1

    def rebase(self, counter: Counter, number: int) -> None:
        """Make later numbers larger than `number`; SqlRefused 1146 without its table."""
        with self._lock:
            last, end = self._ranges.get(counter.key, (0, 0))
            if number <= last:
                return
            if number > end:
                last, end = self._changed(lambda t: _rebased(t, counter, number))
            self._ranges[counter.key] = (max(last, number), end)

    def forget(self) -> None:
        """Drop the cached batches, as after a restart or when the counters were set."""
        with self._lock:
            self._ranges.clear()

    def _changed(self, change: Callable[[Transaction], _T]) -> _T:
        """Run `change` in a small transaction, retried on conflicts. Raises KeyLocked while a lock is alive."""
        while True:
            transaction = self._storage.begin()
            try:
                result = change(transaction)
                transaction.commit()
            except WriteConflict:
                continue
            return result


def _stored(transaction: Transaction, counter: Counter) -> int:
    home = counter.table_schema_id
    if home and transaction.get(table_key(home, counter.table_id)) is None:
        raise missing_table(str(counter.table_id))
    return int(transaction.get(counter.key) or b"0")


def _next_batch(transaction: Transaction, counter: Counter, count: int) -> tuple[int, int]:
    last = _stored(transaction, counter)
    end = min(last + max(counter.step, count), MAX_UINT if counter.limit > MAX_INT else MAX_INT)
    transaction.put(counter.key, b"%d" % end)
    return last, end


def _rebased(transaction: Transaction, counter: Counter, number: int) -> tuple[int, int]:
    last = max(_stored(transaction, counter), number)
    limit = MAX_UINT if counter.limit > MAX_INT else MAX_INT
    end = min(limit - counter.step, last) + counter.step
    transaction.put(counter.key, b"%d" % end)
    return last, end


def sharded(number: int, shard_bits: int, start_ts: int, *, signed: bool = True, range_bits: int = 64) -> int:
    """Return `number` with the transaction's shard in the high bits; SqlRefused 1467 if they overlap."""
    if shard_bits == 0:
        return number
    low = range_bits - shard_bits - (1 if signed else 0)
    if number >> low:
        raise SqlRefused(_EXHAUSTED, "Failed to read auto-increment value from storage engine")
    shard = zlib.crc32(start_ts.to_bytes(8, "big")) & ((1 << shard_bits) - 1)
    return shard << low | number


_APART: Final = 1
"""The AUTO_ID_CACHE that gives AUTO_INCREMENT a counter of its own."""


class RowNumbers:
    """The allocators of a table for one statement; `start_ts` decides the shard."""

    def __init__(
        self, shape: TableShape, schema_id: int, auto_ids: StoredAutoIds, start_ts: int, context: Context
    ) -> None:
        self._shape, self._ids, self._start_ts, self._context = shape, auto_ids, start_ts, context
        old = shape.stored.old_schema_id
        self._home = schema_id
        self._schema_id = old if isinstance(old, int) and old else schema_id
        self.first: int | None = None

    def row_id(self) -> int:
        """Return the next hidden row number."""
        number = self._ids.next(self._counter(CounterKind.ROW), 1)
        return sharded(number, self._shape.stored.shard_row_id_bits, self._start_ts)

    def rebase_row_id(self, number: int) -> None:
        """Make later hidden row numbers larger."""
        self._ids.rebase(self._counter(CounterKind.ROW), number)

    def numbered(self, column: ShapeColumn) -> bool:
        """Return whether the column is AUTO_INCREMENT or AUTO_RANDOM."""
        return column.auto_increment or self._is_random(column)

    def fill(self, column: ShapeColumn, value: KvValue, row_number: int) -> KvValue:
        """Return the value of a numbered column for the statement's value; None if it gave none."""
        number = _whole(value)
        if number is None or (number == 0 and "NO_AUTO_VALUE_ON_ZERO" not in self._context.sql_mode):
            return self._next(column, row_number)
        explicit = str(self._context.variables.get("allow_auto_random_explicit_insert")).upper()
        if self._is_random(column) and explicit not in {"1", "ON", "TRUE"}:
            raise SqlRefused(
                8216,
                "Invalid auto random: Explicit insertion on auto_random column is disabled. Try to set "
                "@@allow_auto_random_explicit_insert = true.",
            )
        self.rebase(column, number)
        return value

    def rebase(self, column: ShapeColumn, number: int) -> None:
        """Make later numbers of the column larger."""
        if self._is_random(column):
            signed = not column.target.type.unsigned
            low = (self._shape.stored.auto_random_range_bits or 64) - self._shape.stored.auto_random_bits - signed
            number &= (1 << low) - 1
        if number > 0:
            self._ids.rebase(self._counter(self._kind(column), column), number)

    def _next(self, column: ShapeColumn, row_number: int) -> KvValue:
        number = self._ids.next(self._counter(self._kind(column), column), 1)
        if self._is_random(column):
            number = sharded(
                number,
                self._shape.stored.auto_random_bits,
                self._start_ts,
                signed=not column.target.type.unsigned,
                range_bits=self._shape.stored.auto_random_range_bits or 64,
            )
        if self.first is None:
            self.first = number
        return assign(number, column.target, self._context, row_number)

    def _is_random(self, column: ShapeColumn) -> bool:
        return bool(self._shape.stored.auto_random_bits and column.stored.type.flag & PRIMARY)

    def _kind(self, column: ShapeColumn) -> CounterKind:
        if self._is_random(column):
            return CounterKind.RANDOM
        return CounterKind.INCREMENT if self._shape.stored.auto_id_cache == _APART else CounterKind.ROW

    def _counter(self, kind: CounterKind, column: ShapeColumn | None = None) -> Counter:
        cache = self._shape.stored.auto_id_cache
        step = 1 if kind is CounterKind.INCREMENT else cache if cache > _APART else STEP
        limit = MAX_UINT if column is not None and column.target.type.unsigned else MAX_INT
        return Counter(self._schema_id, self._shape.stored.id, kind, step, limit, self._home)


def _whole(value: KvValue) -> int | None:
    if isinstance(value, DecimalDatum):
        value = value.value
    return int(value) if isinstance(value, int | float | Decimal) else None


Equal = Mapping[str, tuple[SqlValue, ...]]
_MANY: Final = 1_000
"""Maximal number of keys that are looked up one by one."""


class _Way(NamedTuple):
    through: ShapeIndex | None
    parts: Sequence[IndexPart]
    keys: list[tuple[KvValue, ...]]


class TableReader:
    """Rows of one table as a transaction or a snapshot sees them; a relation of the public columns and, without a
    clustered key, _tidb_rowid."""

    def __init__(
        self, source: Reader, shape: TableShape, context: Context, physical_ids: Sequence[int] | None = None
    ) -> None:
        self.source, self.shape, self.context = source, shape, context
        self._physical_ids = physical_ids

    def of_partitions(self, names: Sequence[str]) -> "TableReader":
        """Return a reader of some partitions' rows; SqlRefused 1735, 1747."""
        partition = self.shape.stored.partition
        if partition is None or not partition.enable:
            raise SqlRefused(1747, "PARTITION () clause on non partitioned table", "HY000")
        ids = {part.name.lower: part.id for part in partition.definitions or ()}
        for name in names:
            if lowered(name) not in ids:
                raise SqlRefused(1735, f"Unknown partition '{name}' in table '{self.name}'", "HY000")
        return TableReader(self.source, self.shape, self.context, [ids[lowered(name)] for name in names])

    # --- as a relation ---

    @property
    def name(self) -> str:
        return self.shape.name

    @property
    def columns(self) -> tuple[RelationColumn, ...]:
        return self.shape.relation_columns

    def rows(self, equal: Equal, _context: Context) -> Iterator[tuple[SqlValue, ...]]:
        """Return the rows, at least those that match `equal`."""
        only = self._physical_ids
        return (self.shown(image) for image in self.find(equal) if only is None or image.physical_id in only)

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
        for physical_id in self._physical_ids or self.shape.physical_ids:
            yield from self.rows_of(physical_id)

    def rows_of(self, physical_id: int) -> Iterator[RowImage]:
        """Return the rows under one physical id."""
        layout = self.shape.layout_of(physical_id)
        for key, value in self.source.scan(*table_span(physical_id)):
            yield image_of(self.shape, decode_row(layout, key, value), self.context)

    def find(self, equal: Equal) -> Iterator[RowImage]:
        """Return the rows that match `equal`, and perhaps more."""
        way = self._way(equal) if equal else None
        if way is None:
            yield from self.all()
            return
        seen: set[tuple[int, Handle]] = set()
        for location in self._locate(way):
            image = None if location in seen else self.get(*location)
            seen.add(location)
            if image is not None:
                yield image

    def handles(self, index: ShapeIndex, prefix: bytes = b"") -> Iterator[tuple[int, Handle]]:
        """Return (physical id, handle) of the entries of an index whose columns begin with `prefix`."""
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
        ways = []
        for index in self.shape.indexes:
            parts = index.layout.parts
            if index.access.read and not index.stored.mv_index and (values := self._values(parts, equal)):
                ways.append(_Way(index, parts[: len(values)], _keys(values)))
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
        values = self._values(parts, equal)
        return None if values is None or len(values) < len(parts) else _Way(None, parts, _keys(values))

    def _values(self, parts: Sequence[IndexPart], equal: Equal) -> list[list[KvValue]] | None:
        choices: list[list[KvValue]] = []
        for part in parts:
            column = self.shape.by_id[part.column_id]
            demanded = equal.get(column.stored.name.lower) if part.length == WHOLE else None
            if not column.public or demanded is None:
                break
            values = [_exact(column, value, self.context) for value in demanded if value is not None]
            if None in values:
                break
            choices.append(values)
        return choices if prod(len(values) for values in choices) <= _MANY else None

    def _locate(self, way: _Way) -> Iterator[tuple[int, Handle]]:
        """Return the locations of rows that may have the keys of `way`, perhaps repeatedly."""
        if way.through is None:
            handles = {handle for values in way.keys if (handle := self._handle(values)) is not None}
            for handle in sorted(handles, key=lambda handle: handle.encoded):
                yield from ((physical_id, handle) for physical_id in self.shape.physical_ids)
            return
        for values in way.keys:
            parts = zip(way.parts, values, strict=True)
            try:
                prefix = encode_key(part_datum(self.shape.layout, part, value) for part, value in parts)
            except EncodeError:
                continue
            yield from self.handles(way.through, prefix)

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


def _keys(values: list[list[KvValue]]) -> list[tuple[KvValue, ...]]:
    return list(product(*values))


def key_after(prefix: bytes) -> bytes:
    """Return the first key after all keys with `prefix`, which is not all 0xff."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


def _exact(column: ShapeColumn, value: SqlValue, context: Context) -> KvValue:
    """Return the value as the column would store it; None if the column compares it differently."""
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
    converted = convert(value, column.target, context)
    return converted.value if converted.problem is None else None


class _Default(Enum):
    DEFAULT = "DEFAULT"


DEFAULT: Final = _Default.DEFAULT
"""The keyword DEFAULT instead of a value."""
Assigned: TypeAlias = SqlValue | _Default


class ForeignKeys(Protocol):
    """Enforces foreign keys on changed rows."""

    def added(self, child: "TableAccess", old: RowImage | None, new: RowImage) -> None:
        """Raise SqlRefused 1452 if a row refers to a parent that does not exist."""
        ...

    def removed(self, parent: "TableAccess", old: RowImage, new: RowImage | None) -> None:
        """Apply the referential action for a deleted or changed parent; SqlRefused 1451 if children restrict it."""
        ...


class Conflict(NamedTuple):
    """A row that holds a unique key of another; `within` is the index, None for the clustered key."""

    within: ShapeIndex | None
    row: RowImage


Fits = Callable[[Mapping[int, KvValue]], bool]
"""Returns whether a row belongs to the partition that its table is exchanged with."""


def check_row(
    shape: TableShape, columns: Mapping[int, KvValue], context: Context, row_number: int, fits: Fits | None
) -> None:
    """Raise SqlRefused for a row that may not be written."""
    for column in shape.public:
        if column.narrower is not None:
            running = recast(columns[column.id], column.target.type, column.narrower.type, context.zone)
            strict = replace(context, sql_mode=context.sql_mode | {"STRICT_TRANS_TABLES"})
            assign(running, column.narrower, strict, row_number)
    if shape.checks:
        values = values_of(shape, columns, context)
        for name, expression in shape.checks:
            if expression.run(values, context) == 0:
                raise violated(name)
    if fits is not None and not fits(columns):
        raise SqlRefused(1737, "Found a row that does not match the partition")


def fits_partition(table: TableShape, partitioned: TableShape, partition_id: int) -> Fits:
    """Return whether rows of `table` belong to that partition of a table with the same columns."""
    pairs = [(own.id, other.id) for own, other in zip(table.columns, partitioned.columns, strict=True)]
    locate = partitioned.placements[0].locate
    return lambda columns: locate({other: columns[own] for own, other in pairs}) == partition_id


class TableAccess:
    """A table of a database in a transaction, for one statement."""

    def __init__(
        self,
        transaction: Transaction,
        version: TableVersion,
        context: Context,
        auto_ids: StoredAutoIds,
        shape: TableShape | None = None,
        *,
        fits: Fits | None = None,
        foreign: ForeignKeys | None = None,
    ) -> None:
        self.transaction, self.version, self.context = transaction, version, context
        self._fits, self._foreign = fits, foreign
        self.shape = shape or TableShape(version.stored)
        self.reader = TableReader(transaction, self.shape, context)
        self.numbers = RowNumbers(self.shape, version.schema_id, auto_ids, transaction.start_ts, context)
        checksum = str(context.variables.get("tidb_enable_row_level_checksum", "OFF")).upper() in {"ON", "1"}
        row_version = int(str(context.variables.get("tidb_row_format_version", 2)))
        self._form = RowForm(row_version, ChecksumForm() if checksum else None)

    # --- as a relation ---

    @property
    def name(self) -> str:
        return self.reader.name

    @property
    def columns(self) -> tuple[RelationColumn, ...]:
        return self.reader.columns

    def rows(self, equal: Equal, context: Context) -> Iterator[tuple[SqlValue, ...]]:
        return self.reader.rows(equal, context)

    def of_partitions(self, names: Sequence[str]) -> TableReader:
        """Return a reader of some partitions' rows; SqlRefused 1735, 1747."""
        return self.reader.of_partitions(names)

    def shown(self, image: RowImage) -> tuple[SqlValue, ...]:
        """Return a row as relations show it."""
        return self.reader.shown(image)

    # --- rows to come ---

    def new_row(self, values: Mapping[str, Assigned], row_number: int = 1, *, lenient: bool = False) -> RowImage:
        """Return the new row of INSERT from values by column; SqlRefused for invalid values."""
        assigned: dict[int, KvValue] = {}
        for column in self.shape.public:
            if not column.generated:
                value = values.get(column.stored.name.lower, DEFAULT)
                if self.numbers.numbered(column):
                    plain = None if isinstance(value, _Default) else value
                    kept = assign(plain, column.target, self.context, row_number, lenient=lenient)
                    assigned[column.id] = self.numbers.fill(column, kept, row_number)
                elif isinstance(value, _Default):
                    assigned[column.id] = self.default_of(column, row_number, lenient=lenient)
                else:
                    assigned[column.id] = self._assigned(column, value, row_number, lenient=lenient)
        row_id = values.get(ROW_ID)
        columns = complete(self.shape, assigned, None, self.context, row_number, lenient=lenient)
        return self._located(columns, row_id if isinstance(row_id, int) else None, None, row_number)

    def _assigned(self, column: ShapeColumn, value: SqlValue, row_number: int, *, lenient: bool) -> KvValue:
        kept = assign(value, column.target, self.context, row_number, lenient=lenient)
        if kept is None and column.target.not_null:
            return not_null(column.target, self.context, lenient=lenient)
        return kept

    def default_of(self, column: ShapeColumn, row_number: int = 1, *, lenient: bool = False) -> KvValue:
        """Return the column's DEFAULT; SqlRefused 1364 if it needs one and has none."""
        if column.is_now:
            return now_of(column.target, self.context)
        if column.stored.default_is_expr:
            drawn = column.default_expression
            value = fitted(drawn.run((), self.context), drawn.type, column.target.type)
            return self._assigned(column, value, row_number, lenient=lenient)
        if column.constant is None and column.target.not_null and not column.auto_increment:
            return without_default(column.target, self.context, lenient=lenient)
        return column.constant

    def _located(
        self, columns: Mapping[int, KvValue], row_id: int | None, old: RowImage | None, row_number: int
    ) -> RowImage:
        """Return the row with its partition and handle; a hidden row id is new unless given or kept from the old
        row."""
        check_row(self.shape, columns, self.context, row_number, self._fits)
        physical_id = self._partition(columns, old)
        others = (placement for placement in self.shape.placements[1:] if placement.access.insert is Touch.PUT)
        if physical_id is None or not all(placement.takes(columns) for placement in others):
            raise no_partition(self.shape, columns, self.context)
        if row_id is not None and self.shape.hidden_handle:
            self.numbers.rebase_row_id(row_id)
        elif self.shape.hidden_handle:
            stays = old is not None and old.physical_id == physical_id and isinstance(old.handle, IntHandle)
            row_id = old.handle.value if stays else self.numbers.row_id()  # type: ignore[union-attr]
        handle: Handle = handle_of(self.shape.layout, columns, row_id)
        return RowImage(handle, physical_id, columns)

    def _partition(self, columns: Mapping[int, KvValue], old: RowImage | None) -> int | None:
        """Return the partition of a row, None if there is none.

        A row that stays in its range keeps its partition: a node that does not know yet that a partition is dropped
        finds rows of its range in the next one."""
        locate = self.shape.placements[0].locate
        physical_id = locate(columns)
        if old is not None and physical_id != old.physical_id and physical_id == locate(old.columns):
            return old.physical_id
        return physical_id

    # --- changes ---

    def conflicts(self, image: RowImage) -> list[Conflict]:
        """Return the rows that hold unique keys of `image`, that of the clustered key first."""
        return [
            Conflict(mutation.within, self._holder(mutation, stored, image))
            for mutation in row_mutations(self.shape, None, image, self._form)
            if mutation.distinct and (stored := self.transaction.get(mutation.key)) is not None
        ]

    def _holder(self, mutation: KeyMutation, stored: bytes, image: RowImage) -> RowImage:
        physical_id, handle = image.physical_id, image.handle
        if mutation.within is not None:
            layout = self.shape.index_layout(mutation.within, physical_id)
            entry = decode_index_entry(layout, mutation.key, stored)
            physical_id, handle = entry.partition_id or physical_id, entry.handle
        row = self.reader.get(physical_id, handle)
        if row is None:
            raise duplicate(self.shape, mutation.within, image, self.context)
        return row

    def insert(self, image: RowImage) -> None:
        """Write a new row; SqlRefused 1062 for a duplicate key, before anything is written."""
        if self._foreign is not None:
            self._foreign.added(self, None, image)
        self._apply(row_mutations(self.shape, None, image, self._form), image)

    def changed(
        self, old: RowImage, values: Mapping[str, Assigned], row_number: int = 1, *, lenient: bool = False
    ) -> RowImage | None:
        """Return the new row of UPDATE; None if no column changes."""
        assigned: dict[int, KvValue] = {column.id: old.columns[column.id] for column in self.shape.public}
        for column in self.shape.public:
            value = values.get(column.stored.name.lower)
            if column.stored.name.lower not in values or column.generated:
                continue
            if isinstance(value, _Default):
                kept = self.default_of(column, row_number, lenient=lenient)
                assigned[column.id] = zero_of(column.target.type) if kept is None and column.target.not_null else kept
            else:
                soft = lenient or not self.context.strict
                assigned[column.id] = self._assigned(column, value, row_number, lenient=soft)
        touched = [column for column in self.shape.public if not self._same(column, old.columns, assigned)]
        if not touched:
            return None
        for column in self.shape.public:
            if column.on_update_now and column.stored.name.lower not in values:
                assigned[column.id] = now_of(column.target, self.context)
        for column in touched:
            number = assigned[column.id]
            if self.numbers.numbered(column) and isinstance(number, int):
                self.numbers.rebase(column, number)
        columns = complete(self.shape, assigned, old, self.context, row_number, lenient=lenient)
        return self._located(columns, None, old, row_number)

    def _same(self, column: ShapeColumn, old: Mapping[int, KvValue], new: Mapping[int, KvValue]) -> bool:
        return same(column.target.type, old[column.id], new[column.id])

    def replace(self, old: RowImage, new: RowImage) -> None:
        """Replace `old` by `new`; SqlRefused 1062 for a duplicate key."""
        if self._foreign is not None:
            self._foreign.added(self, old, new)
        self._apply(row_mutations(self.shape, old, new, self._form), new)
        if self._foreign is not None:
            self._foreign.removed(self, old, new)

    def delete(self, old: RowImage) -> None:
        """Remove a row and its entries."""
        self._apply(row_mutations(self.shape, old, None, self._form), old)
        if self._foreign is not None:
            self._foreign.removed(self, old, None)

    def lock(self, image: RowImage) -> None:
        """Make the commit fail if another transaction changes the row meanwhile."""
        self.transaction.lock(record_key(image.physical_id, image.handle))

    def _apply(self, mutations: list[KeyMutation], image: RowImage) -> None:
        for mutation in mutations:
            if mutation.distinct and self.transaction.get(mutation.key) is not None:
                raise duplicate(self.shape, mutation.within, image, self.context)
        before = self.transaction.savepoint()
        try:
            for mutation in mutations:
                if mutation.value is None:
                    self.transaction.delete(mutation.key)
                else:
                    self.transaction.put(mutation.key, mutation.value)
        except (EntryTooLarge, TransactionTooLarge):
            self.transaction.restore(before)
            raise
