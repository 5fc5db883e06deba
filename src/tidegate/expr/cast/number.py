"""Values as numbers of columns: integers, BIT, YEAR, FLOAT, DOUBLE, DECIMAL.

    int, Decimal         exact: halves away from zero
    float                approximate: halves to even
    text                 its numeric prefix, exact; anything behind it, or no number at all, is INCORRECT
    bytes                as text; x'..', b'..' and BIT as a big-endian number; so everything on its way into BIT
    Time, Duration       20240131235959, 235959; fractions rounded as the target rounds
    JSON                 its scalar

    column (M,D), precision, range    what does not fit is OUT_OF_RANGE, and the nearest bound is kept

Source: TiDB pkg/types (Datum.ConvertTo, getValidFloatPrefix, ParseYear, AdjustYear, ProduceDecWithSpecifiedTp).
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from tidegate.expr.cast.problem import Converted, Problem
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.convert.number import (
    INTEGER_BITS,
    MAX_FLOAT32,
    MAX_FLOAT64,
    Number,
    decimal_writer,
    exact_number,
    float_writer,
    full_year,
    integer_bounds,
    numeric_prefix,
    round_at,
    to_float,
    to_integer,
)
from tidegate.mysql.convert.time import moment_number, round_moment, round_span, span_number
from tidegate.mysql.datum import Duration, JsonDatum, Unsigned
from tidegate.mysql.packed_time import Time
from tidegate.mysql.value.kinds import Bits, Named, SqlValue

_WHOLE: Final = re.compile(r"\s*+[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?\s*+", re.ASCII)
_YEAR_LEAST, _YEAR_GREATEST = 1901, 2155
_FOUR: Final = len("0000")


def number_of(value: SqlValue, kind: ColumnType) -> tuple[Number, Problem | None]:
    """Return the number that a value means to a column of that type; INCORRECT when it is not all of it."""
    match value:
        case Named():
            return value.number, None
        case str():
            return numeric_prefix(value), None if _WHOLE.fullmatch(value) else Problem.INCORRECT
        case Bits():
            return int.from_bytes(value[-8:], "big"), None
        case bytes():
            return number_of(value.decode("latin-1"), kind)
        case bool() | int() if not isinstance(value, Duration):
            return int(value), None
        case Decimal() | float():
            return value, None
        case Time():
            return _moment_number(value, kind), None
        case Duration():
            micros = int(value) // 1000
            return (span_number(round_span(micros, 0), 0) if _rounds_clock(kind) else span_number(micros, 6)), None
        case JsonDatum():
            return _json_number(value, kind)
    return 0, Problem.INCORRECT


def _rounds_clock(kind: ColumnType) -> bool:
    return kind.code in INTEGER_BITS and not kind.unsigned


def _moment_number(moment: Time, kind: ColumnType) -> Decimal:
    if _rounds_clock(kind):
        moment = round_moment(moment, 0)
    return moment_number(moment, ColumnType(T.DATETIME, decimal=0 if _rounds_clock(kind) else 6))


def _json_number(value: JsonDatum, kind: ColumnType) -> tuple[Number, Problem | None]:
    document = value.document
    if isinstance(document, str):
        return number_of(document, kind)
    if isinstance(document, bool | int | float):
        return document, None
    return 0, Problem.INCORRECT


def _integer(value: SqlValue, kind: ColumnType) -> Converted:
    number, problem = number_of(value, kind)
    whole = to_integer(number)
    least, greatest = integer_bounds(kind)
    kept = min(max(whole, least), greatest)
    if kept != whole:
        problem = Problem.OUT_OF_RANGE
    return Converted(Unsigned(kept) if kind.unsigned else kept, problem)


def _bit(value: SqlValue, kind: ColumnType) -> Converted:
    greatest = (1 << max(kind.flen, 1)) - 1
    if isinstance(value, str | bytes) and not isinstance(value, Named):
        whole, problem = int.from_bytes(value.encode() if isinstance(value, str) else value, "big"), None
    else:
        number, problem = number_of(value, kind)
        whole = to_integer(number)
        if whole < 0:
            whole = whole & (1 << 64) - 1 if isinstance(number, int) else 0
            problem = Problem.OUT_OF_RANGE
    if whole > greatest:
        return Converted(Unsigned(greatest), Problem.TOO_LONG)
    return Converted(Unsigned(whole), problem)


def _year(value: SqlValue, kind: ColumnType) -> Converted:
    if isinstance(value, Time):
        return _full_year(value.year, None)
    number, problem = number_of(value, kind)
    year = to_integer(number)
    text = value.strip() if isinstance(value, str) else ""
    if year == 0 and text and len(text) != _FOUR and problem is None:
        return Converted(2000)
    return _full_year(year, problem)


def _full_year(year: int, problem: Problem | None) -> Converted:
    if year == 0:
        return Converted(0, problem)
    full = full_year(year)
    kept = 0 if full < 0 else min(max(full, _YEAR_LEAST), _YEAR_GREATEST)
    return Converted(kept, problem if kept == full else Problem.OUT_OF_RANGE)


def _float(value: SqlValue, kind: ColumnType) -> Converted:
    number, problem = number_of(value, kind)
    kept = float_writer(kind)(number)
    if _beyond(number, kind):
        problem = Problem.OUT_OF_RANGE
    return Converted(kept, problem)


def _beyond(number: Number, kind: ColumnType) -> bool:
    """Whether the column has no number so large, or so negative."""
    value = to_float(number)
    limit = MAX_FLOAT32 if kind.code is T.FLOAT else MAX_FLOAT64
    if kind.flen >= 0 and kind.decimal >= 0:
        limit = min(limit, 10.0 ** (kind.flen - kind.decimal) - 10.0**-kind.decimal)
        value = round_at(value, kind.decimal)
    huge = isinstance(number, Decimal) and abs(number) > Decimal(MAX_FLOAT64)
    return huge or abs(value) > limit or (kind.unsigned and value < 0)


def _decimal(value: SqlValue, kind: ColumnType) -> Converted:
    number, problem = number_of(value, kind)
    kept = Decimal(decimal_writer(kind)(number))
    exact = exact_number(number)
    step = Decimal(1).scaleb(-max(kind.decimal, 0))
    if (kind.unsigned and exact < 0) or abs(exact - kept) >= step:
        problem = Problem.OUT_OF_RANGE
    elif kept != exact and problem is None and not isinstance(number, float):
        problem = Problem.ROUNDED
    return Converted(kept, problem)


NUMBERS: Final[Mapping[T, Callable[[SqlValue, ColumnType], Converted]]] = {
    **dict.fromkeys(INTEGER_BITS, _integer),
    T.BIT: _bit,
    T.YEAR: _year,
    T.FLOAT: _float,
    T.DOUBLE: _float,
    T.DECIMAL: _decimal,
}
"""The types that are numbers, and how a value becomes one."""
