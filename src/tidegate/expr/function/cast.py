"""CAST and CONVERT.

    SIGNED, UNSIGNED     text by its leading digits, 64 bits that turn round: CAST(-1 AS UNSIGNED) is 2**64 - 1
    DECIMAL(m, d)        rounded; too large becomes 99..9 with warning 1264 (1690 where TiDB says so)
    CHAR(n), BINARY(n)   cut; BINARY(n) is filled with NUL bytes
    DATE DATETIME TIME   rounded to the decimals; what is none is NULL with warning 1292
    JSON                 text is parsed, everything else becomes what it is inside a document
    DOUBLE
    CONVERT(x USING cs)  text of that character set

Source: MySQL manual, "Cast Functions and Operators"; TiDB's builtin_cast.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final, TypeAlias

from tidegate.expr.compiled import Compiled
from tidegate.expr.form import compile_scalar
from tidegate.expr.function.form import Function
from tidegate.expr.json_value import as_member, parse_document
from tidegate.expr.relation import Row
from tidegate.expr.result_type import DATE, DOUBLE, INT, JSON, UINT, ValueFamily, datetime_type, decimal_type, family_of
from tidegate.expr.result_type import time_type as span_type
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import all_digits
from tidegate.model.table import ColumnType
from tidegate.mysql.context import Context
from tidegate.mysql.convert.number import decimal_writer
from tidegate.mysql.packed_time import Time
from tidegate.mysql.value.kinds import Bits, JsonDatum, Named, SqlValue, Unsigned
from tidegate.mysql.value.number import EXACT, MAX_INT, MAX_UINT, decimal_of, float_of, integer_of
from tidegate.mysql.value.text import octets, string_of, text_of
from tidegate.mysql.value.time import moment_of, round_span_ns, round_time, span_of

Cast: TypeAlias = Callable[[SqlValue, ColumnType, Context], SqlValue]
_OUT_OF_RANGE: Final = 1264
_LEADING: Final = re.compile(r"\s*+([+-]?)0*+(\d*)(?<=\d)", re.ASCII)
LARGEST_DIGITS: Final = 100
"""As many make a number larger than all; Python reads no more than some thousands."""
_UNKNOWN_CHARSET: Final = 1115
_CHARSETS: Final = frozenset({"utf8mb4", "utf8", "utf8mb3", "ascii", "latin1", "gbk", "gb18030", "binary"})


def _whole(value: SqlValue, kind: ColumnType, context: Context) -> int | None:
    """The integer that CAST starts from: of text its leading digits alone."""
    if isinstance(value, str) and not isinstance(value, Named):
        found = _LEADING.match(value)
        if found is None or found.end() < len(value.rstrip()):
            context.warn(1292, f"Truncated incorrect INTEGER value: '{value:.64}'")
        return int(f"{found[1]}{found[2][:LARGEST_DIGITS] or 0}") if found else 0
    if isinstance(value, Bits):
        return int.from_bytes(value[-8:], "big")
    if isinstance(value, bytes):
        return _whole(value.decode("latin-1"), kind, context)
    return integer_of(value, kind, context)


def _signed(value: SqlValue, kind: ColumnType, context: Context) -> SqlValue:
    found = _whole(value, kind, context)
    if found is None:
        return None
    if isinstance(value, Decimal | float):
        return int(min(max(found, -MAX_INT - 1), MAX_INT))
    found = int(min(max(found, -MAX_INT - 1), MAX_UINT))
    return found if found <= MAX_INT else found - (1 << 64)


def _unsigned(value: SqlValue, kind: ColumnType, context: Context) -> SqlValue:
    found = _whole(value, kind, context)
    if found is None:
        return None
    if isinstance(value, Decimal) and found < 0:
        context.warn(1292, f"Truncated incorrect DECIMAL value: '{value}'")
        return Unsigned(0)
    return Unsigned(max(found, -MAX_INT - 1) & MAX_UINT if found < 0 else min(found, MAX_UINT))


def _decimal(precision: int, scale: int) -> Cast:
    write = decimal_writer(ColumnType(T.DECIMAL, precision, scale))

    def cast(value: SqlValue, kind: ColumnType, context: Context) -> SqlValue:
        found = decimal_of(value, kind, context)
        if found is None:
            return None
        made = Decimal(write(found))
        if EXACT.subtract(made, found).copy_abs() > Decimal(1).scaleb(-scale):
            context.warn(_OUT_OF_RANGE, "Out of range value for column 'CAST' at row 1")
        return made

    return cast


def _text(length: int) -> Cast:
    def cast(value: SqlValue, kind: ColumnType, _context: Context) -> SqlValue:
        text = string_of(value, kind)
        return text if text is None or length < 0 else text[:length]

    return cast


def _binary(length: int) -> Cast:
    def cast(value: SqlValue, kind: ColumnType, _context: Context) -> SqlValue:
        data = octets(value, kind)
        return data if data is None or length < 0 else data[:length].ljust(length, b"\0")

    return cast


def _date(value: SqlValue, kind: ColumnType, context: Context) -> SqlValue:
    found = moment_of(value, kind, context)
    return None if found is None else Time(*found[:3])


def _datetime(fsp: int) -> Cast:
    def cast(value: SqlValue, kind: ColumnType, context: Context) -> SqlValue:
        found = moment_of(value, kind, context)
        return None if found is None else round_time(found, fsp)

    return cast


def _span(fsp: int) -> Cast:
    def cast(value: SqlValue, kind: ColumnType, context: Context) -> SqlValue:
        found = span_of(value, kind, context)
        return None if found is None else round_span_ns(int(found), fsp)

    return cast


def _json(value: SqlValue, kind: ColumnType, _context: Context) -> SqlValue:
    if value is None or isinstance(value, JsonDatum):
        return value
    if isinstance(value, str):
        return JsonDatum(parse_document(value))
    return JsonDatum(as_member(value, kind))


_Target: TypeAlias = tuple[ColumnType, Cast]


def _decimal_target(sizes: list[int], _charset: str) -> _Target:
    precision, scale = (sizes[0] or 10 if sizes else 10), (sizes[1] if len(sizes) > 1 else 0)
    return decimal_type(precision, scale), _decimal(precision, scale)


def _text_target(sizes: list[int], charset: str) -> _Target:
    if charset == "binary":
        return _binary_target(sizes, charset)
    length = sizes[0] if sizes else -1
    return ColumnType(T.VAR_STRING, length), _text(length)


def _binary_target(sizes: list[int], _charset: str) -> _Target:
    length = sizes[0] if sizes else -1
    return ColumnType(T.VAR_STRING, length, charset="binary"), _binary(length)


def _moment_target(sizes: list[int], _charset: str) -> _Target:
    fsp = sizes[0] if sizes else 0
    return datetime_type(fsp), _datetime(fsp)


def _span_target(sizes: list[int], _charset: str) -> _Target:
    fsp = sizes[0] if sizes else 0
    return span_type(fsp), _span(fsp)


def _always(kind: ColumnType, cast: Cast) -> Callable[[list[int], str], _Target]:
    return lambda _sizes, _charset: (kind, cast)


_TARGETS: Final[Mapping[str, Callable[[list[int], str], _Target]]] = {
    "SIGNED": _always(INT, _signed),
    "UNSIGNED": _always(UINT, _unsigned),
    **dict.fromkeys(("DECIMAL", "NUMERIC", "DEC"), _decimal_target),
    **dict.fromkeys(("CHAR", "NCHAR", "VARCHAR", "CHARACTER"), _text_target),
    "BINARY": _binary_target,
    "DATE": _always(DATE, _date),
    **dict.fromkeys(("DATETIME", "TIMESTAMP"), _moment_target),
    "TIME": _span_target,
    "JSON": _always(JSON, _json),
    **dict.fromkeys(("DOUBLE", "REAL"), _always(DOUBLE, float_of)),
}
"""(sizes, character set) to the type and its rule, by the word after AS."""


def _target(words: list[str]) -> _Target:
    """The type that stands after AS, and the rule."""
    make = _TARGETS.get(words[0])
    if make is None:
        raise SqlRefused(1064, f"CAST does not know the type {words[0]}", "42000")
    sizes = [int(word) for word in words[1:] if all_digits(word)]
    return make(sizes, next((word for word in words[1:] if not all_digits(word)), ""))


def _cast_call(node: Node, scope: Scope) -> Compiled:
    value = compile_scalar(node.expressions[0], scope)
    words = [part.name.lower() if at else part.name for at, part in enumerate(node.expressions[1:])]
    if words[0] == "USING":
        return _using(value, words[1], scope)
    kind, cast = _target(words)
    run_value, source = (value.exact or value.run if kind.code is T.DECIMAL else value.run), value.type

    def run(row: Row, context: Context) -> SqlValue:
        found = run_value(row, context)
        return None if found is None else cast(found, source, context)

    if family_of(kind) is not ValueFamily.TEXT:
        return Compiled(run, kind)
    return Compiled(run, kind, "binary" if kind.charset == "binary" else scope.collation, 2)


def _using(value: Compiled, charset: str, scope: Scope) -> Compiled:
    if charset not in _CHARSETS:
        raise SqlRefused(_UNKNOWN_CHARSET, f"Unknown character set: '{charset}'", "42000")

    def run(row: Row, context: Context) -> SqlValue:
        text = text_of(value.run(row, context), value.type)
        if text is None or charset == "binary":
            return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        if isinstance(text, bytes):
            return text.decode({"gbk": "gbk", "gb18030": "gb18030"}.get(charset, "utf-8"), "replace")
        return _fitting(text, charset)

    if charset == "binary":
        return Compiled(run, ColumnType(T.VAR_STRING, charset="binary"), "binary", 2)
    collation = value.collation if value.collation.startswith(charset) else f"{charset}_bin"
    return Compiled(run, ColumnType(T.VAR_STRING, charset=charset), collation or scope.collation, 2)


def _fitting(text: str, charset: str) -> str:
    """`text` with ? for what the character set does not have."""
    codec = _LIMITED.get(charset)
    return text if codec is None else text.encode(codec, "replace").decode(codec)


_LIMITED: Final[Mapping[str, str]] = {"ascii": "ascii", "latin1": "latin-1", "gbk": "gbk", "gb18030": "gb18030"}

CAST_FUNCTIONS: Final[Mapping[str, Function]] = {"CAST": _cast_call, "CONVERT": _cast_call}
"""By name."""
