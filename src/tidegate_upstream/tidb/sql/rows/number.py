"""Numbers for the rows of one table in one statement: AUTO_INCREMENT, AUTO_RANDOM, _tidb_rowid.

    given          AUTO_INCREMENT                            AUTO_RANDOM
    nothing, NULL  the next number                           the next number under the transaction's shard
    0              the same, unless NO_AUTO_VALUE_ON_ZERO    the same
    7              7, and later numbers are larger           refused (8216) unless allow_auto_random_explicit_insert

`first` is the first number that the statement was given: LAST_INSERT_ID().
"""

from decimal import Decimal
from typing import Final

from tidegate.expr.cast.assign import assign
from tidegate.model.errors import SqlRefused
from tidegate.mysql.column_value import KvValue
from tidegate.mysql.context import Context
from tidegate.mysql.datum import DecimalDatum
from tidegate.mysql.number import MAX_INT, MAX_UINT
from tidegate.schema.stored.flags import PRIMARY
from tidegate_upstream.tidb.sql.rows.auto_id import STEP, Counter, CounterKind, StoredAutoIds, sharded
from tidegate_upstream.tidb.sql.rows.shape import ShapeColumn, TableShape

_APART: Final = 1
"""The AUTO_ID_CACHE that keeps AUTO_INCREMENT apart from the row numbers."""


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
        self.last_given: int | None = None

    def row_id(self) -> int:
        """Return the next hidden row number."""
        number = self._ids.next(self._counter(CounterKind.ROW), 1)
        return sharded(number, self._shape.stored.shard_row_id_bits, self._start_ts)

    def rebase_row_id(self, number: int) -> None:
        """Make later hidden row numbers larger."""
        self._ids.rebase(self._counter(CounterKind.ROW), number)

    def numbered(self, column: ShapeColumn) -> bool:
        """Return whether the column gets its numbers here."""
        return column.auto_increment or self._is_random(column)

    def fill(self, column: ShapeColumn, value: KvValue, row_number: int) -> KvValue:
        """Return the value of a numbered column for what the statement gave; None for nothing."""
        given = _whole(value)
        if given is None or (given == 0 and "NO_AUTO_VALUE_ON_ZERO" not in self._context.sql_mode):
            return self._next(column, row_number)
        if self._is_random(column) and not _on(self._context.variables.get("allow_auto_random_explicit_insert")):
            raise SqlRefused(
                8216,
                "Invalid auto random: Explicit insertion on auto_random column is disabled. Try to set "
                "@@allow_auto_random_explicit_insert = true.",
            )
        self.rebase(column, given)
        self.last_given = given
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


def _on(value: object) -> bool:
    return str(value).upper() in {"1", "ON", "TRUE"}
