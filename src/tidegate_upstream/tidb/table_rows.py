"""Rows of a stored table in memory, and the keys that a changed row touches, in every schema state.

    StoredTable ──► TableShape            compiled once per definition, independent of sessions
      columns      all states, by offset: type, what its state allows, what a row without it holds, and the column that
                   it is a cast of while its type changes
      indexes      all states, without those that have no entries (clustered primary key, columnar)
      generated    columns in the order in which they can be computed
      placements   the partitions in use, and those to or from which a DDL moves rows
      layouts      how rows are encoded, by physical id

    stored row ──image_of──► RowImage ──complete(values)──► RowImage ──row_mutations──► keys and values

A RowImage has a value for every column of the definition, so that index entries of any state can be made of it.

    column                  INSERT                          UPDATE
    public                  assigned, or its default        assigned, or as it was
    generated               computed                        computed
    write-only, reorg       origin default                  as it was, or origin default
    type being changed      cast of the other column        cast again when the other column changed
    delete-only             not written                     no longer written (kv/rows.py leaves it out)

Defaults: a constant (a TIMESTAMP literal is kept in UTC), CURRENT_TIMESTAMP (the statement's time, cut to the column's
decimals), an expression evaluated per row, or NULL.  A NOT NULL column without one is error 1364 in strict mode, else
zero with a warning (of an ENUM its first member).

A row lies under the table's id, or under that of its partition; without a partition for it: error 1526.  REORGANIZE,
PARTITION BY and REMOVE PARTITIONING keep a second set of partitions while they run, with its own expression:

    ddl_state   definitions   the other set       rows of the other set
    1           old           adding              are deleted, not written      (delete-only)
    2, 3        old           adding              are deleted and written       (write-only, write-reorg)
    4           new           dropping            are deleted and written
    5           new           dropping            are deleted, not written

Partitions that DROP or TRUNCATE PARTITION is removing are in no set: nothing is read or written there.  `row_mutations`
compares old and new index entries and writes only differences; `distinct` marks keys that must be unique: the caller
checks them before it applies the mutations, and raises 1062.

Source: TiDB pkg/table/column.go (GetColDefaultValue, GetColOriginDefaultValue, GetZeroValue), pkg/table/tables
(tables.go, index.go, partition.go); recorded definitions; f1.py for the schema states.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from tidegate.expr.cast import Target, assign, convert, fitted, not_null, plain_text, recast, zero_of
from tidegate.expr.change import event_value
from tidegate.expr.compiler import compile_text
from tidegate.expr.scope import Compiled, RelationColumn, Scope
from tidegate.kv.index_entry import IndexEntry, encode_index_entry, is_distinct
from tidegate.kv.keys import Handle, record_key
from tidegate.kv.rows import ChecksumForm, Row, cut_part, encode_row, select_stored
from tidegate.model.errors import SqlRefused, UnsupportedError
from tidegate.model.event import Value
from tidegate.model.mysql import MysqlType
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType, IndexInfo
from tidegate.mysql.column_value import KvValue, write_value
from tidegate.mysql.datum import DecimalDatum, JsonDatum, Unsigned
from tidegate.mysql.layout import IndexLayout, IndexPart, TableLayout
from tidegate.mysql.packed_time import Time
from tidegate.mysql.values import Context, SqlValue, from_column
from tidegate.schema.partition import Locate, partition_of
from tidegate.schema.stored.definition import (
    AUTO_INCREMENT,
    NOT_NULL,
    ON_UPDATE_NOW,
    ElementState,
    Name,
    StoredColumn,
    StoredIndex,
    StoredPartition,
    StoredPartitionDef,
    StoredTable,
    column_type,
    table_layout,
    target_of,
)
from tidegate.schema.stored.snapshot import table_info
from tidegate_upstream.f1 import Access, ElementKind, Touch, access

_MOMENTS: Final = frozenset({T.DATE, T.DATETIME, T.TIMESTAMP})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def is_now(column: StoredColumn, target: Target) -> bool:
    """Return whether the default is the statement's time."""
    return target.type.code in _MOMENTS and str(column.default or "").upper().startswith("CURRENT_")


def now_of(target: Target, context: Context) -> KvValue:
    """Return the statement's time in the column's form: TIMESTAMP in UTC, others in the session's time zone."""
    zone = UTC if target.type.code is T.TIMESTAMP else context.zone
    moment = context.now.astimezone(zone)
    if target.type.code is T.DATE:
        return Time(moment.year, moment.month, moment.day)
    step = 10 ** (6 - max(target.type.decimal, 0))
    clock = (moment.hour, moment.minute, moment.second, moment.microsecond - moment.microsecond % step)
    return Time(moment.year, moment.month, moment.day, *clock)


def _literal(column: StoredColumn, text: str | float | None, bits: bytes | None) -> KvValue:
    target = target_of(column)
    if target.type.code is T.BIT and bits is not None:
        return Unsigned(int.from_bytes(bits, "big"))
    if text is None:
        return None
    return convert(str(text), target, Context(_EPOCH)).value


def without_default(target: Target, context: Context, *, lenient: bool) -> KvValue:
    """Return the value of a NOT NULL column without default; SqlRefused 1364 in strict mode."""
    if target.type.code is T.ENUM:
        return zero_of(target.type)
    message = f"Field '{target.name}' doesn't have a default value"
    if context.strict and not lenient:
        raise SqlRefused(1364, message)
    context.warn(1364, message)
    return zero_of(target.type)


_REORGANIZE: Final = 64
_REPARTITION: Final = frozenset({_REORGANIZE, 71, 72})
_NEW_IN_USE: Final = 4
_COPY_STATES: Final[Mapping[int, ElementState]] = {
    1: ElementState.DELETE_ONLY,
    2: ElementState.WRITE_ONLY,
    3: ElementState.WRITE_REORG,
    4: ElementState.WRITE_ONLY,
    5: ElementState.WRITE_ONLY,
}


@dataclass(frozen=True)
class Placement:
    """One division of rows among physical ids; `access` is the access to the rows there."""

    access: Access
    ids: tuple[int, ...]
    locate: Callable[[Mapping[int, KvValue]], int | None]
    """Values by column id -> the physical id; None if no partition fits the row."""
    takes: Callable[[Mapping[int, KvValue]], bool] = lambda _columns: True
    """Values by column id -> whether a partition of this division fits the row."""


def placements_of(table: StoredTable) -> tuple[Placement, ...]:
    """Return the divisions of a table's rows, the current one first."""
    public = access(ElementKind.COPY, ElementState.PUBLIC)
    partition = table.partition
    if partition is None or not partition.enable:
        return (Placement(public, (table.id,), lambda _columns: table.id),)
    used = list(partition.definitions or ())
    way = _Way(partition.type, partition.expr, tuple(name.original for name in partition.columns or ()))
    main = Placement(public, tuple(definition.id for definition in used), _locator(table, way, used))
    other = _other_set(table, partition, way)
    return (main,) if other is None else (main, other)


@dataclass(frozen=True, slots=True)
class _Way:
    type: int
    expr: str
    columns: tuple[str, ...]


def _other_set(table: StoredTable, partition: StoredPartition, way: _Way) -> Placement | None:
    state = _COPY_STATES.get(partition.ddl_state)
    if partition.ddl_action not in _REPARTITION or state is None:
        return None
    old_in_use = partition.ddl_state < _NEW_IN_USE
    come, go = partition.adding_definitions or [], partition.dropping_definitions or []
    others, replaced = (come, go) if old_in_use else (go, come)
    ids = tuple(definition.id for definition in others)
    if partition.ddl_action != _REORGANIZE:
        columns = (
            () if partition.ddl_columns is msgspec.UNSET else tuple(name.original for name in partition.ddl_columns)
        )
        kind = partition.ddl_type if isinstance(partition.ddl_type, int) else 0
        way = _Way(kind, partition.ddl_expr if isinstance(partition.ddl_expr, str) else "", columns)
        found_in = _locator(table, way, others)
        return Placement(access(ElementKind.COPY, state), ids, found_in, lambda columns: found_in(columns) is not None)
    whole = _exchanged(partition.definitions or [], replaced, others)
    locate = _locator(table, way, whole)

    def locate_other(columns: Mapping[int, KvValue]) -> int | None:
        physical_id = locate(columns)
        return physical_id if physical_id in ids else None

    return Placement(access(ElementKind.COPY, state), ids, locate_other, lambda columns: locate(columns) is not None)


def _exchanged(
    definitions: list[StoredPartitionDef], replaced: list[StoredPartitionDef], others: list[StoredPartitionDef]
) -> list[StoredPartitionDef]:
    gone = {definition.id for definition in replaced}
    index = next((index for index, definition in enumerate(definitions) if definition.id in gone), len(definitions))
    kept = [definition for definition in definitions if definition.id not in gone]
    return [*kept[:index], *others, *kept[index:]]


def _locator(
    table: StoredTable, way: _Way, definitions: list[StoredPartitionDef]
) -> Callable[[Mapping[int, KvValue]], int | None]:
    if way.type == 0 and len(definitions) == 1:
        only = definitions[0].id
        return lambda _columns: only
    columns = [Name.of(name) for name in way.columns]
    parted = msgspec.structs.replace(
        table, partition=StoredPartition(way.type, way.expr, columns, definitions=definitions)
    )
    info = table_info(parted, "", 0)
    if info.partition is None:
        raise UnsupportedError(f"table {table.name.original}: partitions of type {way.type} are not supported")
    locate = partition_of(info.partition, info.columns, primary_key=_primary(info.indexes))
    return _by_id(table, locate, {definition.name.original: definition.id for definition in definitions})


def _primary(indexes: tuple[IndexInfo, ...]) -> tuple[str, ...]:
    return next((index.columns for index in indexes if index.primary), ())


def _by_id(table: StoredTable, locate: Locate, ids: Mapping[str, int]) -> Callable[[Mapping[int, KvValue]], int | None]:
    kinds = {column.name.original: (column.id, column_type(column.type)) for column in table.cols or []}

    def located(columns: Mapping[int, KvValue]) -> int | None:
        name = locate(_EventRow(kinds, columns))
        return None if name is None else ids[name]

    return located


class _EventRow(Mapping[str, Value]):
    def __init__(self, kinds: Mapping[str, tuple[int, ColumnType]], columns: Mapping[int, KvValue]) -> None:
        self._kinds, self._columns = kinds, columns

    def __getitem__(self, name: str) -> Value:
        column_id, kind = self._kinds[name]
        return event_value(kind, self._columns[column_id])

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


ROW_ID: Final = "_tidb_rowid"


@dataclass(frozen=True)
class ShapeColumn:
    """A column, of any state."""

    stored: StoredColumn
    target: Target
    access: Access
    cast_of: int | None
    """The id of the column that this one replaces, while the type changes."""
    missing: KvValue
    constant: KvValue
    narrower: Target | None = None
    """The second type that new values must fit, while a change of type checks the stored ones."""

    @property
    def id(self) -> int:
        return self.stored.id

    @property
    def public(self) -> bool:
        return self.access.read

    @property
    def generated(self) -> bool:
        return bool(self.stored.generated_expr_string)

    @property
    def virtual(self) -> bool:
        return self.generated and not self.stored.generated_stored

    @cached_property
    def is_now(self) -> bool:
        return is_now(self.stored, self.target)

    @cached_property
    def default_expression(self) -> Compiled:
        return compile_text(str(self.stored.default), Scope())

    @property
    def on_update_now(self) -> bool:
        return bool(self.stored.type.flag & ON_UPDATE_NOW)

    @property
    def auto_increment(self) -> bool:
        return bool(self.stored.type.flag & AUTO_INCREMENT)


@dataclass(frozen=True)
class ShapeIndex:
    """An index with entries, of any state."""

    stored: StoredIndex
    layout: IndexLayout
    access: Access

    @property
    def name(self) -> str:
        return self.stored.idx_name.original


class TableShape:
    """A table definition compiled for reading and writing rows."""

    def __init__(self, stored: StoredTable) -> None:
        self.stored = stored
        cols = stored.cols or []
        self.columns = tuple(_column(column, cols) for column in cols)
        self.public = tuple(column for column in self.columns if column.public)
        self.by_id: Mapping[int, ShapeColumn] = {column.id: column for column in self.columns}
        self.by_name: Mapping[str, ShapeColumn] = {column.stored.name.lower: column for column in self.public}
        self.layout = table_layout(stored)
        self.indexes = tuple(
            ShapeIndex(index, self.layout.index_by_id[index.id], access(ElementKind.INDEX, ElementState(index.state)))
            for index in stored.index_info or []
            if not (index.is_primary and stored.is_common_handle) and not index.is_columnar
        )
        self._layouts: dict[int, TableLayout] = {stored.id: self.layout}

    @property
    def name(self) -> str:
        return self.stored.name.original

    @property
    def hidden_handle(self) -> bool:
        return not (self.stored.pk_is_handle or self.stored.is_common_handle)

    def layout_of(self, physical_id: int) -> TableLayout:
        """Return the byte layout of the table, or of one partition."""
        layout = self._layouts.get(physical_id)
        if layout is None:
            layout = self._layouts[physical_id] = table_layout(self.stored, physical_id)
        return layout

    def index_layout(self, index: ShapeIndex, physical_id: int) -> TableLayout:
        """Return the byte layout of an index for rows in `physical_id`."""
        return self.layout if index.layout.global_index else self.layout_of(physical_id)

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        return placements_of(self.stored)

    @cached_property
    def physical_ids(self) -> tuple[int, ...]:
        return self.placements[0].ids

    @cached_property
    def relation_columns(self) -> tuple[RelationColumn, ...]:
        """The public columns, and the hidden row number where there is one."""
        shown = tuple(
            RelationColumn(column.target.name, column.target.type, column.stored.hidden, column.target.collation)
            for column in self.public
        )
        return (*shown, _ROW_ID_COLUMN) if self.hidden_handle else shown

    @cached_property
    def _scope(self) -> Scope:
        named = [
            RelationColumn(column.target.name, column.target.type, collation=column.target.collation)
            for column in self.columns
        ]
        return Scope.of_columns(named, self.name)

    @cached_property
    def checks(self) -> tuple[tuple[str, Compiled], ...]:
        return tuple(
            (check.constraint_name.original, compile_text(check.expr_string, self._scope))
            for check in self.stored.constraint_info or ()
            if check.enforced and access(ElementKind.CONSTRAINT, ElementState(check.state)).insert is Touch.PUT
        )

    @cached_property
    def generated(self) -> tuple[tuple[ShapeColumn, Compiled], ...]:
        return tuple(
            (column, compile_text(column.stored.generated_expr_string, self._scope))
            for column in self.columns
            if column.generated
        )


_ROW_ID_COLUMN: Final = RelationColumn(ROW_ID, ColumnType(MysqlType.LONGLONG, 20, 0, charset="binary"), hidden=True)


def _column(column: StoredColumn, columns: list[StoredColumn]) -> ShapeColumn:
    change, changing = column.change_state_info, column.changing_type
    source = columns[change.relative_col_offset].id if change and column.state != ElementState.PUBLIC else None
    target = target_of(column)
    is_literal = not column.default_is_expr and not is_now(column, target)
    missing = _literal(column, column.origin_default, column.origin_default_bit)
    if missing is None and column.type.flag & NOT_NULL:
        missing = zero_of(target.type)
    return ShapeColumn(
        stored=column,
        target=target,
        access=access(ElementKind.COLUMN, ElementState(column.state)),
        cast_of=source,
        missing=missing,
        constant=_literal(column, column.default, column.default_bit) if is_literal else None,
        narrower=None if changing is msgspec.UNSET else target_of(msgspec.structs.replace(column, type=changing)),
    )


class RowImage(NamedTuple):
    """A row: its physical id and handle, and a value for every column by id."""

    handle: Handle
    physical_id: int
    columns: Mapping[int, KvValue]


def same(kind: ColumnType, first: KvValue, second: KvValue) -> bool:
    """Return whether two stored values are identical, so that an UPDATE between them changes nothing."""
    if first is None or second is None:
        return first is second
    if isinstance(first, JsonDatum):
        return write_value(kind, first) == write_value(kind, second)
    return _plain(first) == _plain(second)


def _plain(value: KvValue) -> object:
    return value.value if isinstance(value, DecimalDatum) else value


def values_of(shape: TableShape, columns: Mapping[int, KvValue], context: Context) -> list[SqlValue]:
    """Return the evaluated values of all columns by offset; NULL for missing ones."""
    return [from_column(column.target.type, columns.get(column.id), context.zone) for column in shape.columns]


def image_of(shape: TableShape, row: Row, context: Context) -> RowImage:
    """Return a stored row, with defaults for the columns it does not have."""
    columns: dict[int, KvValue] = {}
    for column in shape.columns:
        if column.id in row.columns:
            columns[column.id] = row.columns[column.id]
        elif column.cast_of is None and not column.generated:
            columns[column.id] = column.missing
    for column in shape.columns:
        if column.id not in columns and column.cast_of is not None:
            columns[column.id] = _cast(shape, column, columns[column.cast_of], context, None)
    _generate(shape, columns, context, None, lenient=True)
    return RowImage(row.handle, row.table_id, columns)


def complete(
    shape: TableShape,
    assigned: Mapping[int, KvValue],
    old: RowImage | None,
    context: Context,
    row_number: int = 1,
    *,
    lenient: bool = False,
) -> dict[int, KvValue]:
    """Return all columns of a row from its public ones; SqlRefused if a cast or a generated value is
    refused, and for a NULL that the other column of a change of types does not take, even with IGNORE."""
    columns = {column.id: assigned[column.id] for column in shape.public if not column.generated}
    for column in shape.columns:
        if column.public or column.generated:
            continue
        if column.cast_of is None:
            columns[column.id] = column.missing if old is None else old.columns[column.id]
        elif old is not None and _unchanged(shape, column.cast_of, columns, old):
            columns[column.id] = old.columns[column.id]
        else:
            columns[column.id] = _cast(shape, column, columns[column.cast_of], context, None if lenient else row_number)
            if columns[column.id] is None and column.target.not_null:
                not_null(shape.by_id[column.cast_of].target, context, lenient=False)
    _generate(shape, columns, context, row_number, lenient=lenient)
    return columns


def _unchanged(shape: TableShape, column_id: int, columns: Mapping[int, KvValue], old: RowImage) -> bool:
    return same(shape.by_id[column_id].target.type, columns[column_id], old.columns[column_id])


def _cast(shape: TableShape, column: ShapeColumn, value: KvValue, context: Context, row_number: int | None) -> KvValue:
    """Return the value in the other column's type; without a row number a failed cast is adjusted, not refused."""
    assert column.cast_of is not None
    running = recast(value, shape.by_id[column.cast_of].target.type, column.target.type, context.zone)
    if row_number is None:
        return convert(running, column.target, context).value
    return assign(running, column.target, context, row_number)


def _generate(
    shape: TableShape, columns: dict[int, KvValue], context: Context, row_number: int | None, *, lenient: bool
) -> None:
    if not shape.generated:
        return
    values = values_of(shape, columns, context)
    for column, expression in shape.generated:
        if row_number is None and column.id in columns:
            continue
        value = fitted(expression.run(values, context), expression.type, column.target.type)
        columns[column.id] = (
            convert(value, column.target, context).value
            if row_number is None
            else assign(value, column.target, context, row_number, lenient=lenient)
        )
        values[column.stored.offset] = from_column(column.target.type, columns[column.id], context.zone)


# --- what a table says when it refuses a row, in MySQL's words ---


def duplicate(shape: TableShape, within: ShapeIndex | None, image: RowImage, context: Context) -> SqlRefused:
    """Return error 1062: another row has the key. `within` None means the clustered primary key."""
    layout = shape.layout
    if within is not None:
        parts, name = within.layout.parts, within.name
    elif layout.int_handle is not None:
        parts, name = (IndexPart(layout.int_handle),), "PRIMARY"
    else:
        parts, name = layout.common_handle.parts if layout.common_handle else (), "PRIMARY"
    entry = "-".join(_texts(shape, parts, image.columns, context)) or str(getattr(image.handle, "value", ""))
    return SqlRefused(1062, f"Duplicate entry '{entry}' for key '{shape.name}.{name}'", "23000")


def _texts(
    shape: TableShape, parts: Iterable[IndexPart], columns: Mapping[int, KvValue], context: Context
) -> list[str]:
    texts = []
    for part in parts:
        layout, column = shape.layout.by_id[part.column_id], shape.by_id[part.column_id]
        value = from_column(column.target.type, cut_part(layout, part, columns[part.column_id]), context.zone)
        text = plain_text(value)
        texts.append(text if isinstance(text, str) else text.decode("utf-8", "backslashreplace"))
    return texts


def no_partition(shape: TableShape, columns: Mapping[int, KvValue], context: Context) -> SqlRefused:
    """Return error 1526: no partition fits the row."""
    partition = shape.stored.partition
    name = lowered(partition.expr.strip("`")) if partition else ""
    column = shape.by_name.get(name)
    shown = "from column_list"
    if column is not None:
        text = plain_text(from_column(column.target.type, columns[column.id], context.zone))
        shown = "NULL" if columns[column.id] is None else str(text)
    return SqlRefused(1526, f"Table has no partition for value {shown}")


def violated(name: str) -> SqlRefused:
    """Return error 3819: a CHECK constraint is violated."""
    return SqlRefused(3819, f"Check constraint '{name}' is violated.")


def unknown_column(name: str, clause: str) -> SqlRefused:
    """Return error 1054: unknown column."""
    return SqlRefused(1054, f"Unknown column '{name}' in '{clause}'", "42S22")


class RowForm(NamedTuple):
    """The format of rows: tidb_row_format_version, and the checksum of tidb_enable_row_level_checksum."""

    version: int = 2
    checksum: ChecksumForm | None = None


CURRENT: Final = RowForm()


class KeyMutation(NamedTuple):
    """A key to put, or to remove if `value` is None. `within` is the index, None for the row itself."""

    key: bytes
    value: bytes | None
    within: ShapeIndex | None
    distinct: bool = False


def row_mutations(
    shape: TableShape, old: RowImage | None, new: RowImage | None, form: RowForm = CURRENT
) -> list[KeyMutation]:
    """Return the mutations that turn one row into another, at most one a key."""
    mutations: dict[bytes, KeyMutation] = {}
    before, after = _spots(shape, old), _spots(shape, new)
    moves: list[KeyMutation] = []
    for physical_id in {**before, **after}:
        allowed = (before.get(physical_id) or after[physical_id])[0]
        was = before[physical_id][1] if physical_id in before else None
        now = after[physical_id][1] if physical_id in after else None
        stays = old is not None and physical_id == old.physical_id
        moves += _mutations(shape, allowed, (was, now), form, stays=stays)
    for mutation in moves:
        if mutation.value is None:
            mutations[mutation.key] = mutation
    for mutation in moves:
        if mutation.value is not None:
            own = mutation.key in mutations or not mutation.distinct
            mutations[mutation.key] = mutation._replace(distinct=not own)
    return list(mutations.values())


def _spots(shape: TableShape, image: RowImage | None) -> dict[int, tuple[Access, RowImage]]:
    if image is None:
        return {}
    spots = {image.physical_id: (shape.placements[0].access, image)}
    for placement in shape.placements[1:]:
        physical_id = placement.locate(image.columns)
        if physical_id is not None:
            spots.setdefault(physical_id, (placement.access, image._replace(physical_id=physical_id)))
    return spots


def _mutations(
    shape: TableShape,
    allowed: Access,
    images: tuple[RowImage | None, RowImage | None],
    form: RowForm,
    *,
    stays: bool,
) -> Iterator[KeyMutation]:
    """Return the mutations under one physical id; `stays`: the old row certainly lies there with its entries."""
    old, new = images
    writes = allowed.insert is Touch.PUT
    if old is not None and allowed.delete:
        yield KeyMutation(record_key(old.physical_id, old.handle), None, None)
    if new is not None and writes:
        yield record_mutation(shape, new, form)
    for index in shape.indexes:
        was = None if old is None else index_mutation(shape, index, old)
        now = None if new is None else index_mutation(shape, index, new)
        if stays and writes and was is not None and now is not None and was[:2] == now[:2]:
            continue
        if was is not None and allowed.delete and index.access.delete:
            yield was._replace(value=None, distinct=False)
        if now is not None and writes and index.access.insert is Touch.PUT:
            yield now


def record_mutation(shape: TableShape, image: RowImage, form: RowForm = CURRENT) -> KeyMutation:
    """Return the mutation of the row itself."""
    layout = shape.layout_of(image.physical_id)
    stored = select_stored(layout, image.columns)
    row = Row(image.physical_id, image.handle, dict(image.columns), stored, form.version)
    key, value = encode_row(layout, row, checksum=form.checksum if form.version > 1 else None)
    return KeyMutation(key, value, None, distinct=True)


def index_mutation(shape: TableShape, index: ShapeIndex, image: RowImage) -> KeyMutation:
    """Return the mutation of a row's index entry; SqlRefused 1235 for a multi-valued index."""
    if index.stored.mv_index:
        what = f"writing the multi-valued index {index.name} of table {shape.name}"
        raise SqlRefused(1235, f"This version of Tidegate doesn't yet support '{what}'", "42000")
    layout = shape.index_layout(index, image.physical_id)
    partition_id = image.physical_id if index.layout.global_index else None
    entry = IndexEntry(index.layout.id, dict(image.columns), image.handle, partition_id)
    key, value = encode_index_entry(layout, entry)
    return KeyMutation(key, value, index, distinct=is_distinct(index.layout, image.columns))
