"""Types of results: which one several values share, and what turns a value into it.

    family     int < decimal < real        text        date, datetime, time        json        null
    shared     the higher number; text as soon as a text or two families meet; DATE and DATETIME give DATETIME

    COALESCE(1, 1.5)  DECIMAL(2,1)      IF(a, 1, 'x')  VARCHAR      IFNULL(d, now())  DATETIME

Source: MySQL manual, "Flow Control Functions"; TiDB's aggFieldType.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from enum import Enum
from typing import Final, TypeAlias

from tidegate.expr.compiled import Compiled
from tidegate.expr.scope import Scope
from tidegate.model.mysql import FLOATS, STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.context import Context
from tidegate.mysql.value.kinds import Bits, JsonDatum, SqlValue, Unsigned
from tidegate.mysql.value.number import decimal_of, float_of, rounded
from tidegate.mysql.value.text import text_of
from tidegate.mysql.value.time import moment_of

_BINARY_CHARSET: Final = "binary"
NULL: Final = ColumnType(T.NULL, charset=_BINARY_CHARSET)
INT: Final = ColumnType(T.LONGLONG, 20, 0, charset=_BINARY_CHARSET)
UINT: Final = ColumnType(T.LONGLONG, 20, 0, unsigned=True, charset=_BINARY_CHARSET)
BOOL: Final = ColumnType(T.LONGLONG, 1, 0, charset=_BINARY_CHARSET)
DOUBLE: Final = ColumnType(T.DOUBLE, charset=_BINARY_CHARSET)
DATE: Final = ColumnType(T.DATE, 10, 0, charset=_BINARY_CHARSET)
JSON: Final = ColumnType(T.JSON, charset="utf8mb4")
TEXT: Final = ColumnType(T.VAR_STRING)
BINARY: Final = ColumnType(T.VAR_STRING, charset=_BINARY_CHARSET)
MAX_SCALE: Final = 30
MAX_PRECISION: Final = 65
Convert: TypeAlias = Callable[[SqlValue, ColumnType, Context], SqlValue]


class ValueFamily(Enum):
    """What decides how values meet."""

    NULL = "null"
    INT = "int"
    DECIMAL = "decimal"
    REAL = "real"
    TEXT = "text"
    MOMENT = "moment"
    SPAN = "span"
    JSON = "json"
    VECTOR = "vector"


_FAMILIES: Final = {
    T.NULL: ValueFamily.NULL,
    **dict.fromkeys((T.TINY, T.SHORT, T.INT24, T.LONG, T.LONGLONG, T.YEAR), ValueFamily.INT),
    T.DECIMAL: ValueFamily.DECIMAL,
    **dict.fromkeys(FLOATS, ValueFamily.REAL),
    **dict.fromkeys((*STRINGS, T.ENUM, T.SET, T.BIT), ValueFamily.TEXT),
    **dict.fromkeys((T.DATE, T.NEWDATE, T.DATETIME, T.TIMESTAMP), ValueFamily.MOMENT),
    T.TIME: ValueFamily.SPAN,
    T.JSON: ValueFamily.JSON,
    T.VECTOR: ValueFamily.VECTOR,
}
_NAMED: Final = frozenset({T.ENUM, T.SET})
_NUMERIC: Final = (ValueFamily.INT, ValueFamily.DECIMAL, ValueFamily.REAL)


def family_of(kind: ColumnType) -> ValueFamily:
    """Return the family of a type."""
    return _FAMILIES[kind.code]


def text_type(flen: int = -1) -> ColumnType:
    """Text of at most `flen` characters."""
    return ColumnType(T.VAR_STRING, flen)


def decimal_type(precision: int, scale: int) -> ColumnType:
    """DECIMAL within MySQL's limits."""
    scale = min(scale, MAX_SCALE)
    return ColumnType(T.DECIMAL, min(max(precision, scale + 1), MAX_PRECISION), scale, charset=_BINARY_CHARSET)


def datetime_type(fsp: int = 0) -> ColumnType:
    """DATETIME(fsp)."""
    return ColumnType(T.DATETIME, 19 + (fsp + 1 if fsp else 0), fsp, charset=_BINARY_CHARSET)


def time_type(fsp: int = 0) -> ColumnType:
    """TIME(fsp)."""
    return ColumnType(T.TIME, 10 + (fsp + 1 if fsp else 0), fsp, charset=_BINARY_CHARSET)


def number_family(kind: ColumnType) -> ValueFamily:
    """Return the family that values of a type have in arithmetic."""
    if kind.code in {T.BIT, T.ENUM, T.SET, T.NULL}:
        return ValueFamily.INT
    family = family_of(kind)
    if family in {ValueFamily.MOMENT, ValueFamily.SPAN}:
        return ValueFamily.DECIMAL if kind.decimal > 0 else ValueFamily.INT
    return family if family in _NUMERIC else ValueFamily.REAL


def digits_of(kind: ColumnType) -> tuple[int, int]:
    """(digits before the point, digits behind it) of a number."""
    scale = max(kind.decimal, 0)
    if number_family(kind) is ValueFamily.INT and family_of(kind) is ValueFamily.INT:
        return min(kind.flen if kind.flen > 0 else 20, 20), 0
    return max((kind.flen if kind.flen > 0 else 10) - scale, 1), scale


def agreed(args: Iterable[Compiled], scope: Scope) -> tuple[str, int]:
    """(collation, rank) by which texts compare: the least rank wins; of equal ones a binary or _bin one."""
    texts = [arg for arg in args if family_of(arg.type) is ValueFamily.TEXT and arg.type.code is not T.BIT]
    if not texts:
        return scope.collation, 4
    least = min(arg.rank for arg in texts)
    names = {arg.collation for arg in texts if arg.rank == least}
    if "binary" in names:
        return "binary", least
    return min(names, key=lambda name: (not name.endswith("_bin"), name)), least


def shared(args: Sequence[Compiled], scope: Scope) -> tuple[ColumnType, str, int]:
    """(type, collation, rank) of a value that is one of `args`."""
    kinds = [arg.type for arg in args if family_of(arg.type) is not ValueFamily.NULL]
    if not kinds:
        return NULL, "binary", 6
    families = {family_of(kind) for kind in kinds}
    first = kinds[0]
    if families <= set(_NUMERIC):
        return _shared_number(kinds, families), "binary", 5
    if families == {ValueFamily.MOMENT}:
        return _shared_moment(kinds), "binary", 5
    if len(families) == 1 and ValueFamily.TEXT not in families:
        return (time_type(max(kind.decimal for kind in kinds)) if first.code is T.TIME else first), "binary", 5
    collation, rank = agreed(args, scope)
    flen = max((kind.flen for kind in kinds), default=-1) if all(kind.flen >= 0 for kind in kinds) else -1
    binary = collation == "binary" or any(kind.code in STRINGS and kind.charset == "binary" for kind in kinds)
    return (ColumnType(T.VAR_STRING, flen, charset="binary") if binary else text_type(flen)), collation, rank


def _shared_number(kinds: Sequence[ColumnType], families: set[ValueFamily]) -> ColumnType:
    if ValueFamily.REAL in families:
        return DOUBLE if any(kind.code is not T.FLOAT for kind in kinds) else kinds[0]
    unsigned = {kind.unsigned for kind in kinds}
    if families == {ValueFamily.INT} and len(unsigned) == 1:
        return kinds[0] if len({kind.code for kind in kinds}) == 1 else (UINT if True in unsigned else INT)
    whole, scale = (max(part) for part in zip(*(digits_of(kind) for kind in kinds), strict=True))
    return decimal_type(whole + scale, scale)


def _shared_moment(kinds: Sequence[ColumnType]) -> ColumnType:
    if len({kind.code for kind in kinds}) == 1 and kinds[0].code is not T.DATETIME:
        return max(kinds, key=lambda kind: kind.decimal)
    return datetime_type(max(kind.decimal for kind in kinds))


def converter(source: ColumnType, target: ColumnType) -> Convert | None:
    """Return what makes a value of `target` of one of `source`; None where nothing is to be done."""
    if family_of(source) is ValueFamily.NULL:
        return None
    match family_of(target):
        case ValueFamily.REAL:
            return None if family_of(source) is ValueFamily.REAL else float_of
        case ValueFamily.DECIMAL:
            return _to_decimal(max(target.decimal, 0))
        case ValueFamily.TEXT if family_of(source) is not ValueFamily.TEXT:
            return lambda value, kind, _context: text_of(value, kind)
        case ValueFamily.TEXT if source.code in _NAMED and target.code not in _NAMED:
            return lambda value, _kind, _context: str(value)
        case ValueFamily.TEXT if target.charset == "binary" and source.charset != "binary":
            return lambda value, kind, _context: _as_bytes(value, kind)
        case ValueFamily.MOMENT if source.code is not target.code:
            return moment_of
        case ValueFamily.INT if target.unsigned:
            return lambda value, _kind, _context: Unsigned(value) if isinstance(value, int) else value
        case _:
            return None


def _as_bytes(value: SqlValue, kind: ColumnType) -> bytes | None:
    text = text_of(value, kind)
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text


def _to_decimal(scale: int) -> Convert:
    def convert(value: SqlValue, kind: ColumnType, context: Context) -> Decimal | None:
        found = decimal_of(value, kind, context)
        return None if found is None else rounded(found, scale)

    return convert


def literal_type(value: SqlValue) -> ColumnType:
    """Return the type of a value that comes without one, such as a user variable's."""
    match value:
        case None:
            return NULL
        case Bits():
            return ColumnType(T.VAR_STRING, len(value), charset="binary")
        case bytes():
            return BINARY
        case str():
            return text_type(len(value))
        case Unsigned():
            return UINT
        case int():
            return ColumnType(T.LONGLONG, len(str(value)), 0, charset="binary")
        case float():
            return DOUBLE
        case Decimal():
            exponent = value.as_tuple().exponent
            assert isinstance(exponent, int), value
            scale = max(-exponent, 0)
            return decimal_type(max(len(value.as_tuple().digits), scale), scale)
        case JsonDatum():
            return JSON
        case _:
            return TEXT
