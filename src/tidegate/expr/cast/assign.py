"""MySQL's conversion on assignment: a running value becomes what its column stores.

    SqlValue ── convert(value, target, context) ──► Converted(KvValue, problem)        pure: reports, never raises
             ── assign(value, target, context, row) ──► KvValue                        strict mode raises, else warns

    target       by                  stores
    numbers      number.py           int, Unsigned, float, Decimal
    strings      text.py             bytes, UTF-8;  ENUM, SET: Unsigned
    moments      time.py             Time, Duration
    JSON, VECTOR here                JsonDatum, Vector

Strict is STRICT_TRANS_TABLES or STRICT_ALL_TABLES in sql_mode; IGNORE (`lenient`) makes warnings of errors anyway.
NULL into NOT NULL is error 1048 in strict mode and in an INSERT of one row; elsewhere the zero value and a warning.

    >>> from datetime import datetime
    >>> from tidegate.model.mysql import MysqlType
    >>> found = convert(300, Target("a", ColumnType(MysqlType.TINY)), Context(datetime(2024, 1, 31, tzinfo=UTC)))
    >>> found.value, found.problem.name
    (127, 'OUT_OF_RANGE')

Source: TiDB pkg/table/column.go, pkg/executor/insert_common.go; MySQL manual, "Server SQL Modes".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal
from typing import Final

from tidegate.expr.cast.number import NUMBERS
from tidegate.expr.cast.problem import Converted, Problem
from tidegate.expr.cast.text import plain_text, to_enum, to_set, to_text
from tidegate.expr.cast.time import to_duration, to_moment
from tidegate.model.errors import EncodeError, SqlRefused
from tidegate.model.mysql import STRINGS
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnType
from tidegate.mysql.column_parse import parse_value
from tidegate.mysql.column_value import KvValue
from tidegate.mysql.context import Context, SqlWarning
from tidegate.mysql.datum import Duration, JsonDatum, Unsigned, Vector
from tidegate.mysql.json.value import JsonDuration, JsonTime, JsonValue
from tidegate.mysql.packed_time import ZERO, Time
from tidegate.mysql.value.kinds import SqlValue

_LONGEST_SHOWN: Final = 128


@dataclass(frozen=True, slots=True)
class Target:
    """A column as an assignment sees it."""

    name: str
    type: ColumnType
    collation: str = "utf8mb4_bin"
    not_null: bool = False


def assign(value: SqlValue, target: Target, context: Context, row_number: int = 1, *, lenient: bool = False) -> KvValue:
    """Return what the column stores of the value; SqlRefused where MySQL refuses, else at worst a warning in `context`.

    NULL stays NULL: whether the column takes it is asked when the row is whole (`not_null`)."""
    if value is None:
        return None
    found = convert(value, target, context)
    if found.problem is not None:
        report(found.problem, value, target, context, row_number, lenient=lenient)
    return found.value


def convert(value: SqlValue, target: Target, context: Context) -> Converted:
    """Return what the column would store, and what was lost."""
    if value is None:
        return Converted(None)
    code = target.type.code
    if code in NUMBERS:
        return NUMBERS[code](value, target.type)
    if code in STRINGS:
        return to_text(value, target.type)
    return _OTHERS[code](value, target, context)


def report(
    problem: Problem, value: SqlValue, target: Target, context: Context, row_number: int, *, lenient: bool = False
) -> None:
    """Raise or warns about what was lost."""
    shown = plain_text(value)
    text = shown if isinstance(shown, str) else "".join(f"\\x{byte:02X}" if byte > 126 else chr(byte) for byte in shown)
    message = problem.text.format(
        column=target.name, row=row_number, value=text[:_LONGEST_SHOWN], type=_type_word(target.type)
    ).rstrip()
    if problem.note:
        context.warnings.append(SqlWarning("Note", problem.code, message))
    elif problem.always or (context.strict and not lenient):
        raise SqlRefused(problem.code, message, problem.sqlstate)
    else:
        context.warn(problem.code, message)


def not_null(target: Target, context: Context, *, lenient: bool) -> KvValue:
    """Return what a column that takes no NULL gets instead of it; SqlRefused 1048 unless that is allowed."""
    message = f"Column '{target.name}' cannot be null"
    if not lenient:
        raise SqlRefused(1048, message, "23000")
    context.warn(1048, message)
    return zero_of(target.type)


_WORDS: Final[Mapping[T, str]] = {
    T.TINY: "tinyint",
    T.SHORT: "smallint",
    T.INT24: "mediumint",
    T.LONG: "int",
    T.LONGLONG: "bigint",
    T.DECIMAL: "decimal",
    T.TIME: "time",
    **dict.fromkeys(STRINGS, "string"),
}


def _type_word(kind: ColumnType) -> str:
    return _WORDS.get(kind.code, kind.code.name.lower())


def zero_of(kind: ColumnType) -> KvValue:
    """Return the value that stands for nothing: 0, '', the zero date, the first name of an ENUM."""
    if kind.code in STRINGS:
        return b"\0" * kind.flen if kind.code is T.STRING and kind.charset == "binary" and kind.flen > 0 else b""
    if kind.code in NUMBERS:
        return NUMBERS[kind.code](0, kind).value
    return _ZEROS[kind.code]


_ZEROS: Final[Mapping[T, KvValue]] = {
    T.DATE: ZERO,
    T.NEWDATE: ZERO,
    T.DATETIME: ZERO,
    T.TIMESTAMP: ZERO,
    T.TIME: Duration(0),
    T.ENUM: Unsigned(1),
    T.SET: Unsigned(0),
    T.JSON: JsonDatum(None),
    T.VECTOR: Vector(()),
}


def _json(value: SqlValue, target: Target, _context: Context) -> Converted:
    match value:
        case JsonDatum():
            return Converted(value)
        case bytes():
            return Converted(None, Problem.BINARY_JSON)
        case str():
            try:
                return Converted(parse_value(target.type, value, UTC))
            except EncodeError:
                return Converted(None, Problem.NO_JSON)
        case Time():
            return Converted(JsonDatum(_json_time(value)))
        case Duration():
            return Converted(JsonDatum(JsonDuration(int(value), 6)))
        case Decimal():
            return Converted(JsonDatum(float(value)))
        case Vector():
            return Converted(JsonDatum(list[JsonValue](value)))
    document: JsonValue = value
    return Converted(JsonDatum(document))


def _json_time(time: Time) -> JsonTime:
    """A date when the clock stands at midnight, else a moment."""
    return JsonTime(0x0F if any(time[3:]) else 0x0E, time)


def _vector(value: SqlValue, target: Target, _context: Context) -> Converted:
    vector = value if isinstance(value, Vector) else None
    if vector is None:
        try:
            parsed = parse_value(target.type, value if isinstance(value, str) else "", UTC)
        except EncodeError:
            return Converted(None, Problem.NO_VECTOR)
        assert isinstance(parsed, Vector), parsed
        vector = parsed
    fits = target.type.flen < 0 or len(vector) == target.type.flen
    return Converted(vector, None if fits else Problem.DIMENSIONS)


_OTHERS: Final[Mapping[T, Callable[[SqlValue, Target, Context], Converted]]] = {
    T.ENUM: lambda value, target, _context: to_enum(value, target.type, target.collation),
    T.SET: lambda value, target, _context: to_set(value, target.type, target.collation),
    **dict.fromkeys(
        (T.DATE, T.NEWDATE, T.DATETIME, T.TIMESTAMP),
        lambda value, target, context: to_moment(value, target.type, context),
    ),
    T.TIME: lambda value, target, context: to_duration(value, target.type, context),
    T.JSON: _json,
    T.VECTOR: _vector,
}
