"""Expressions over whole columns, where Arrow says the same as SQL does, exactly.

    old.k - new.k > 1000        k % 10        amount * 2 <= 7.5 AND NOT (state IS NULL)

    values       columns of integers and DECIMAL, numbers, NULL; DOUBLE where it is compared
    + - * %      signed integers of 64 bits; DECIMAL as far as 38 digits go, % by a whole number
    = <> < ..    of numbers; AND OR NOT of what is true, false or unknown

Whatever else an expression says, and whatever leaves these ranges, is a Misfit or an error of Arrow: it goes value by
value (row_text.py), which also words SQL's errors.  Unsigned columns are compared and not reckoned with: below zero
they are an error of SQL's.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidegate.codec.columnar.values import Misfit
from tidegate.model.mysql import MysqlType
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType
from tidegate.sink.metrics.row_text import Named, RowText

_SIGNED: Final = frozenset({MysqlType.TINY, MysqlType.SHORT, MysqlType.INT24, MysqlType.LONG, MysqlType.LONGLONG})
_DIGITS: Final = 38
_SUM_DIGITS: Final = 28
"""A DECIMAL of so many digits can be added up ten thousand million times in 38."""
_INT: Final = pa.decimal128(19, 0)
_SCALE_MAX: Final = 30
_COMPARE: Final[Mapping[type, Callable[..., Any]]] = {
    exp.EQ: pc.equal,
    exp.NEQ: pc.not_equal,
    exp.GT: pc.greater,
    exp.GTE: pc.greater_equal,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
}
_RECKON: Final[Mapping[type, Callable[..., Any]]] = {
    exp.Add: pc.add_checked,
    exp.Sub: pc.subtract_checked,
    exp.Mul: pc.multiply_checked,
}
_JOIN: Final[Mapping[type, Callable[..., Any]]] = {exp.And: pc.and_kleene, exp.Or: pc.or_kleene}


class ColumnValues(NamedTuple):
    """Values of an expression, one a row, or a single one: `kind` is bool, int, unsigned, decimal or double."""

    kind: str
    values: Any


class ColumnScope(NamedTuple):
    """What an expression is evaluated on."""

    column: Callable[[Named], Any]
    types: Mapping[Named, ColumnType]


def vector_of(text: RowText, columns: ColumnScope) -> ColumnValues:
    """Return the values of an expression. Misfit, ArrowException for what has to go value by value."""
    return _value(text.node, columns)


def numbers_of(vector: ColumnValues) -> Any:
    """Return integers and decimals as decimals of 38 digits, for exact sums. Misfit for others."""
    if vector.kind not in {"int", "unsigned", "decimal"}:
        raise Misfit(vector.kind)
    if vector.kind == "decimal" and vector.values.type.precision > _SUM_DIGITS:
        raise Misfit("too many digits to be added up")
    scale = vector.values.type.scale if vector.kind == "decimal" else 0
    return vector.values.cast(pa.decimal128(_DIGITS, scale))


def _value(node: Any, columns: ColumnScope) -> ColumnValues:
    kind = type(node)
    if kind is exp.Paren:
        return _value(node.this, columns)
    if kind is exp.Column:
        return _column(node, columns)
    if kind is exp.Literal and not node.is_string:
        return _number(node.this)
    if kind is exp.Neg and type(node.this) is exp.Literal and not node.this.is_string:
        return _number(f"-{node.this.this}")
    if kind is exp.Not:
        return ColumnValues("bool", pc.invert(_truth(node.this, columns)))
    if kind in _JOIN:
        return ColumnValues("bool", _JOIN[kind](_truth(node.this, columns), _truth(node.expression, columns)))
    if kind is exp.Is and type(node.expression) is exp.Null and type(node.this) is exp.Column:
        return ColumnValues("bool", pc.is_null(columns.column(_named(node.this))))
    if kind in _COMPARE:
        return _compared(_COMPARE[kind], _value(node.this, columns), _value(node.expression, columns))
    if kind in _RECKON:
        return _reckoned(kind, _value(node.this, columns), _value(node.expression, columns))
    if kind is exp.Mod:
        return _rest(_value(node.this, columns), _value(node.expression, columns))
    raise Misfit(kind.__name__)


def _truth(node: Any, columns: ColumnScope) -> Any:
    found = _value(node, columns)
    if found.kind != "bool":
        raise Misfit("a number as a truth")
    return found.values


def _named(node: Any) -> Named:
    image = node.table
    return image, lowered(node.name) if image == "event" else node.name


def _column(node: Any, columns: ColumnScope) -> ColumnValues:
    named = _named(node)
    kind = columns.types[named]
    if kind.code in _SIGNED:
        values = columns.column(named)
        return ColumnValues("unsigned", values) if kind.unsigned else ColumnValues("int", values.cast(pa.int64()))
    if kind.code is MysqlType.DECIMAL and kind.decimal >= 0 and 0 < kind.flen <= _DIGITS:
        return ColumnValues("decimal", columns.column(named).cast(pa.decimal128(kind.flen, kind.decimal)))
    if kind.code is MysqlType.DOUBLE:
        return ColumnValues("double", columns.column(named))
    raise Misfit(kind.code.name)


def _number(text: str) -> ColumnValues:
    if "e" in text.lower():
        return ColumnValues("double", pa.scalar(float(text)))
    if "." in text:
        return ColumnValues("decimal", pa.scalar(Decimal(text)))
    return ColumnValues("int", pa.scalar(int(text), pa.int64()))


def _compared(compare: Callable[..., Any], one: ColumnValues, other: ColumnValues) -> ColumnValues:
    if "bool" in {one.kind, other.kind}:
        raise Misfit("truths are compared")
    if "double" in {one.kind, other.kind}:
        return ColumnValues("bool", compare(_double(one), _double(other)))
    if one.kind == other.kind and one.kind != "decimal":
        return ColumnValues("bool", compare(one.values, other.values))
    return ColumnValues("bool", compare(_decimal(one), _decimal(other)))


def _double(vector: ColumnValues) -> Any:
    """A double for a comparison; decimals of columns are rounded otherwise by Arrow."""
    if vector.kind == "double":
        return vector.values
    if isinstance(vector.values, pa.Scalar):
        return pa.scalar(float(vector.values.as_py()))
    if vector.kind == "decimal":
        raise Misfit("a DECIMAL beside a double")
    return vector.values.cast(pa.float64(), safe=False)


def _decimal(vector: ColumnValues) -> Any:
    if vector.kind == "decimal":
        return vector.values
    return vector.values.cast(pa.decimal128(20, 0) if vector.kind == "unsigned" else _INT)


def _reckoned(kind: type, one: ColumnValues, other: ColumnValues) -> ColumnValues:
    if one.kind == other.kind == "int":
        return ColumnValues("int", _RECKON[kind](one.values, other.values))
    if {one.kind, other.kind} <= {"int", "decimal"}:
        left, right = _decimal(one), _decimal(other)
        if kind is exp.Mul and left.type.scale + right.type.scale > _SCALE_MAX:
            raise Misfit("more decimals than SQL keeps")
        return ColumnValues("decimal", _RECKON[kind](left, right))
    raise Misfit("no numbers to reckon with")


def _rest(one: ColumnValues, other: ColumnValues) -> ColumnValues:
    """What is left of a division by a whole number: it has the sign of the first."""
    divisor = other.values.as_py() if isinstance(other.values, pa.Scalar) else 0
    if one.kind != "int" or other.kind != "int" or not divisor or isinstance(one.values, pa.Scalar):
        raise Misfit("no division of integers by a number")
    whole = one.values.fill_null(0).to_numpy(zero_copy_only=False)
    rest = pa.array(np.fmod(whole, divisor))
    return ColumnValues("int", pc.if_else(pc.is_null(one.values), None, rest) if one.values.null_count else rest)
