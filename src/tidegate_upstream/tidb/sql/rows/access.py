"""One table inside one transaction: its rows as statements see them, and changes by the rules of every schema state.

    new_row(values)      assigned, defaults, automatic numbers, generated ──► RowImage       nothing written yet
    conflicts(image)     the rows that hold its unique keys                                  REPLACE, ON DUPLICATE KEY
    insert(image)        1062 when there are any
    update(old, values)  the new row, None when nothing changed: then nothing is written either
    delete(old)

`values` are by column name in lower case; DEFAULT stands for a column's default.  `lenient` is IGNORE: what strict mode
refuses becomes a warning.  As a Relation it shows the public columns and, without a clustered key, _tidb_rowid.

Source: TiDB pkg/executor (insert_common.go, write.go), pkg/table/tables; MySQL's error list.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias

from tidegate.expr.cast.assign import assign, not_null, zero_of
from tidegate.expr.cast.source import fitted, recast
from tidegate.expr.relation import RelationColumn
from tidegate.kv.handle import Handle, IntHandle
from tidegate.kv.index_entry import decode_index_entry
from tidegate.kv.row.row import ChecksumForm, handle_of
from tidegate.kv.table_key import record_key
from tidegate.model.errors import EntryTooLarge, SqlRefused, TransactionTooLarge
from tidegate.mysql.column_value import KvValue
from tidegate.mysql.context import Context
from tidegate.mysql.value.kinds import SqlValue
from tidegate.schema.stored.snapshot import TableVersion
from tidegate_upstream.f1 import Touch
from tidegate_upstream.tidb.sql.rows.auto_id import StoredAutoIds
from tidegate_upstream.tidb.sql.rows.default_value import now_of, without_default
from tidegate_upstream.tidb.sql.rows.mutation import KeyMutation, RowForm, row_mutations
from tidegate_upstream.tidb.sql.rows.number import RowNumbers
from tidegate_upstream.tidb.sql.rows.read import Equal, TableReader
from tidegate_upstream.tidb.sql.rows.row import RowImage, complete, duplicate, no_partition, same, values_of, violated
from tidegate_upstream.tidb.sql.rows.shape import ROW_ID, ShapeColumn, ShapeIndex, TableShape
from tidegate_upstream.tidb.transaction import Transaction


class _Default(Enum):
    DEFAULT = "DEFAULT"


DEFAULT: Final = _Default.DEFAULT
"""The keyword in the place of a value."""
Given: TypeAlias = SqlValue | _Default


class ForeignKeys(Protocol):
    """What foreign keys ask of changed rows (foreign.py)."""

    def added(self, child: "TableAccess", old: RowImage | None, new: RowImage) -> None:
        """SqlRefused 1452 when a row names a parent that is not there."""
        ...

    def removed(self, parent: "TableAccess", old: RowImage, new: RowImage | None) -> None:
        """Follows a row that went or got another key to its children; SqlRefused 1451 when they are in the way."""
        ...


class Conflict(NamedTuple):
    """A row that holds a unique key of another; `within` is the index, None for the clustered key."""

    within: ShapeIndex | None
    row: RowImage


def row_form(context: Context) -> RowForm:
    """Return how the session writes rows."""
    version = int(str(context.variables.get("tidb_row_format_version", 2)))
    checksum = str(context.variables.get("tidb_enable_row_level_checksum", "OFF")).upper() in {"ON", "1"}
    return RowForm(version, ChecksumForm() if checksum else None)


Fits = Callable[[Mapping[int, KvValue]], bool]
"""Whether a row belongs to the partition that its table is exchanged with."""


def check_row(
    shape: TableShape, columns: Mapping[int, KvValue], context: Context, row_number: int, fits: Fits | None
) -> None:
    """SqlRefused for a row that may not be written."""
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
        self._form = row_form(context)

    # --- as a relation ---

    @property
    def name(self) -> str:
        """The table's name in its own case."""
        return self.reader.name

    @property
    def columns(self) -> tuple[RelationColumn, ...]:
        """The columns that statements may name."""
        return self.reader.columns

    def rows(self, equal: Equal, context: Context) -> Iterator[tuple[SqlValue, ...]]:
        """Return the rows, at least those that fit `equal`."""
        return self.reader.rows(equal, context)

    def shown(self, image: RowImage) -> tuple[SqlValue, ...]:
        """Return a row as a relation shows it."""
        return self.reader.shown(image)

    # --- rows to come ---

    def new_row(self, values: Mapping[str, Given], row_number: int = 1, *, lenient: bool = False) -> RowImage:
        """Return the row that INSERT makes of values by column; SqlRefused for what the columns refuse."""
        given: dict[int, KvValue] = {}
        for column in self.shape.public:
            if not column.generated:
                value = values.get(column.stored.name.lower, DEFAULT)
                given[column.id] = self._inserted(column, value, row_number, lenient=lenient)
        row_id = values.get(ROW_ID)
        columns = complete(self.shape, given, None, self.context, row_number, lenient=lenient)
        return self._placed(columns, row_id if isinstance(row_id, int) else None, None, row_number)

    def _inserted(self, column: ShapeColumn, value: Given, row_number: int, *, lenient: bool) -> KvValue:
        if self.numbers.numbered(column):
            plain = None if isinstance(value, _Default) else value
            kept = assign(plain, column.target, self.context, row_number, lenient=lenient)
            return self.numbers.fill(column, kept, row_number)
        if isinstance(value, _Default):
            return self.default_of(column, row_number, lenient=lenient)
        return self._assigned(column, value, row_number, lenient=lenient)

    def _assigned(self, column: ShapeColumn, value: SqlValue, row_number: int, *, lenient: bool) -> KvValue:
        kept = assign(value, column.target, self.context, row_number, lenient=lenient)
        if kept is None and column.target.not_null:
            return not_null(column.target, self.context, lenient=lenient)
        return kept

    def default_of(self, column: ShapeColumn, row_number: int = 1, *, lenient: bool = False) -> KvValue:
        """Return what the column gets by DEFAULT; SqlRefused 1364 where it has none and needs one."""
        if column.is_now:
            return now_of(column.target, self.context)
        if column.stored.default_is_expr:
            drawn = column.default_expression
            value = fitted(drawn.run((), self.context), drawn.type, column.target.type)
            return self._assigned(column, value, row_number, lenient=lenient)
        if column.constant is None and column.target.not_null and not column.auto_increment:
            return without_default(column.target, self.context, lenient=lenient)
        return column.constant

    def _placed(
        self, columns: Mapping[int, KvValue], row_id: int | None, old: RowImage | None, row_number: int
    ) -> RowImage:
        """The row with its partition and handle; a hidden number is new unless one is given or the old one stays."""
        check_row(self.shape, columns, self.context, row_number, self._fits)
        physical_id = self._place(columns, old)
        others = (one for one in self.shape.placements[1:] if one.access.insert is Touch.PUT)
        if physical_id is None or not all(one.takes(columns) for one in others):
            raise no_partition(self.shape, columns, self.context)
        if row_id is not None and self.shape.hidden_handle:
            self.numbers.rebase_row_id(row_id)
        elif self.shape.hidden_handle:
            stays = old is not None and old.physical_id == physical_id and isinstance(old.handle, IntHandle)
            row_id = old.handle.value if stays else self.numbers.row_id()  # type: ignore[union-attr]
        handle: Handle = handle_of(self.shape.layout, columns, row_id)
        return RowImage(handle, physical_id, columns)

    def _place(self, columns: Mapping[int, KvValue], old: RowImage | None) -> int | None:
        """The partition of a row, None where none takes it.  A row that stays in its range stays where it is: a node
        that does not know yet that a partition is dropped finds rows of its range in the next one."""
        locate = self.shape.placements[0].locate
        physical_id = locate(columns)
        if old is not None and physical_id != old.physical_id and physical_id == locate(old.columns):
            return old.physical_id
        return physical_id

    # --- changes ---

    def conflicts(self, image: RowImage) -> list[Conflict]:
        """Return the rows that hold keys which `image` needs, that of the clustered key first."""
        return [
            Conflict(mutation.within, self._holder(mutation, held, image))
            for mutation in row_mutations(self.shape, None, image, self._form)
            if mutation.distinct and (held := self.transaction.get(mutation.key)) is not None
        ]

    def _holder(self, mutation: KeyMutation, held: bytes, image: RowImage) -> RowImage:
        physical_id, handle = image.physical_id, image.handle
        if mutation.within is not None:
            layout = self.shape.index_layout(mutation.within, physical_id)
            entry = decode_index_entry(layout, mutation.key, held)
            physical_id, handle = entry.partition_id or physical_id, entry.handle
        found = self.reader.get(physical_id, handle)
        if found is None:
            raise duplicate(self.shape, mutation.within, image, self.context)
        return found

    def insert(self, image: RowImage) -> None:
        """Write a new row; SqlRefused 1062 when another has one of its keys, and nothing is written then."""
        if self._foreign is not None:
            self._foreign.added(self, None, image)
        self._apply(row_mutations(self.shape, None, image, self._form), image)

    def changed(
        self, old: RowImage, values: Mapping[str, Given], row_number: int = 1, *, lenient: bool = False
    ) -> RowImage | None:
        """Return the row that UPDATE makes of `old`; None when every column stays as it was."""
        given: dict[int, KvValue] = {column.id: old.columns[column.id] for column in self.shape.public}
        for column in self.shape.public:
            value = values.get(column.stored.name.lower)
            if column.stored.name.lower not in values or column.generated:
                continue
            if isinstance(value, _Default):
                kept = self.default_of(column, row_number, lenient=lenient)
                given[column.id] = zero_of(column.target.type) if kept is None and column.target.not_null else kept
            else:
                soft = lenient or not self.context.strict
                given[column.id] = self._assigned(column, value, row_number, lenient=soft)
        touched = [column for column in self.shape.public if not self._same(column, old.columns, given)]
        if not touched:
            return None
        for column in self.shape.public:
            if column.on_update_now and column.stored.name.lower not in values:
                given[column.id] = now_of(column.target, self.context)
        for column in touched:
            number = given[column.id]
            if self.numbers.numbered(column) and isinstance(number, int):
                self.numbers.rebase(column, number)
        columns = complete(self.shape, given, old, self.context, row_number, lenient=lenient)
        return self._placed(columns, None, old, row_number)

    def _same(self, column: ShapeColumn, old: Mapping[int, KvValue], new: Mapping[int, KvValue]) -> bool:
        return same(column.target.type, old[column.id], new[column.id])

    def replace(self, old: RowImage, new: RowImage) -> None:
        """Write `new` where `old` was; SqlRefused 1062 as above."""
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
        """Make the commit fail when another transaction changes the row meanwhile."""
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
