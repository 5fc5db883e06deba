"""What a column gets that nobody named: its default, its origin default, its implicit value.

    DEFAULT 7, 'x', b'101'        a constant, converted once; a TIMESTAMP literal is kept in UTC
    DEFAULT CURRENT_TIMESTAMP(3)  the statement's moment, cut to the column's decimals
    DEFAULT (expression)          evaluated for each row
    none, NULL allowed            NULL
    none, NOT NULL                error 1364 in strict mode, else zero and a warning; of an ENUM its first name
    AUTO_INCREMENT, AUTO_RANDOM   the allocator's (auto_id.py)

    origin default                what rows hold that were written before the column came: constant, or NULL, or zero

Source: TiDB pkg/table/column.go (GetColDefaultValue, GetColOriginDefaultValue, GetZeroValue).
"""

from datetime import UTC, datetime
from typing import Final

from tidegate.expr.cast.assign import Target, convert, zero_of
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.mysql.column_value import KvValue
from tidegate.mysql.context import Context
from tidegate.mysql.datum import Unsigned
from tidegate.mysql.packed_time import Time
from tidegate.schema.stored.definition import StoredColumn
from tidegate.schema.stored.flags import NOT_NULL
from tidegate.schema.stored.layout import target_of

_MOMENTS: Final = frozenset({T.DATE, T.DATETIME, T.TIMESTAMP})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def is_now(column: StoredColumn, target: Target) -> bool:
    """Return whether the default is the moment of the statement."""
    return target.type.code in _MOMENTS and str(column.default or "").upper().startswith("CURRENT_")


def now_of(target: Target, context: Context) -> KvValue:
    """Return the statement's moment as the column keeps it: a TIMESTAMP in UTC, others on the session's clocks."""
    zone = UTC if target.type.code is T.TIMESTAMP else context.zone
    now = context.now.astimezone(zone)
    if target.type.code is T.DATE:
        return Time(now.year, now.month, now.day)
    step = 10 ** (6 - max(target.type.decimal, 0))
    clock = (now.hour, now.minute, now.second, now.microsecond - now.microsecond % step)
    return Time(now.year, now.month, now.day, *clock)


def constant_of(column: StoredColumn) -> KvValue:
    """Return the value of a literal default; None for NULL, none and what is no literal."""
    if column.default_is_expr or is_now(column, target_of(column)):
        return None
    return _literal(column, column.default, column.default_bit)


def origin_of(column: StoredColumn) -> KvValue:
    """Return what a row without the column holds."""
    kept = _literal(column, column.origin_default, column.origin_default_bit)
    target = target_of(column)
    return zero_of(target.type) if kept is None and column.type.flag & NOT_NULL else kept


def _literal(column: StoredColumn, text: str | float | None, bits: bytes | None) -> KvValue:
    target = target_of(column)
    if target.type.code is T.BIT and bits is not None:
        return Unsigned(int.from_bytes(bits, "big"))
    if text is None:
        return None
    return convert(str(text), target, Context(_EPOCH)).value


def without_default(target: Target, context: Context, *, lenient: bool) -> KvValue:
    """Return what a NOT NULL column without default gets; SqlRefused 1364 in strict mode."""
    if target.type.code is T.ENUM:
        return zero_of(target.type)
    message = f"Field '{target.name}' doesn't have a default value"
    if context.strict and not lenient:
        raise SqlRefused(1364, message)
    context.warn(1364, message)
    return zero_of(target.type)
