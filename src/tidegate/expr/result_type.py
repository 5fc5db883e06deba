"""Result types: the type that several values share, conversion into it, and JSON documents and paths among values.

    family     int < decimal < real        text        date, datetime, time        json        null
    shared     the higher number; text as soon as a text or two families meet; DATE and DATETIME give DATETIME

    COALESCE(1, 1.5)  DECIMAL(2,1)      IF(a, 1, 'x')  VARCHAR      IFNULL(d, now())  DATETIME

    document_of     JSON -> its document; text -> the document that it spells (error 3140 when it spells none)
    as_member       any value -> what it is inside JSON_OBJECT and JSON_ARRAY: text stays text
    parse_path      '$.a[0]."b c".*' -> steps        '$[last-1]', '$[1 to 3]', '$**.x'

    Step = str (member) | int (element; negative from the end) | (from, to) | ANY_MEMBER | ANY_ELEMENT | DEEP

Source: MySQL manual, "Flow Control Functions", "The JSON Data Type", "JSON Path Syntax"; TiDB's aggFieldType and
types/json_path_expr.go.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Final, TypeAlias

from tidegate.expr.scope import Compiled, Scope
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import NAMED, STRINGS, TYPES, Family
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import all_digits
from tidegate.model.table import ColumnType
from tidegate.mysql.column_value import parse_document as read_document
from tidegate.mysql.json_value import JsonDuration, JsonTime, JsonValue, Opaque
from tidegate.mysql.values import (
    Bits,
    Context,
    Duration,
    JsonDatum,
    SqlValue,
    Time,
    Unsigned,
    Vector,
    decimal_of,
    float_of,
    moment_of,
    rounded,
    text_of,
)

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


_JOINED: Final = {
    Family.YEAR: Family.INT,
    **dict.fromkeys((Family.BIT, Family.ENUM, Family.SET), Family.TEXT),
}
"""Families that count as another family when a common type is determined."""
_NUMERIC: Final = (Family.INT, Family.DECIMAL, Family.FLOAT)


def family_of(kind: ColumnType) -> Family:
    """Return the family that determines the common type of several values: BIT, ENUM and SET are texts."""
    family = TYPES[kind.code].family
    return _JOINED.get(family, family)


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


def number_family(kind: ColumnType) -> Family:
    """Return the family of a type in arithmetic."""
    if kind.code in {T.BIT, T.ENUM, T.SET, T.NULL}:
        return Family.INT
    family = family_of(kind)
    if family in {Family.MOMENT, Family.SPAN}:
        return Family.DECIMAL if kind.decimal > 0 else Family.INT
    return family if family in _NUMERIC else Family.FLOAT


def digits_of(kind: ColumnType) -> tuple[int, int]:
    """(digits before the point, digits after it) of a number."""
    scale = max(kind.decimal, 0)
    if number_family(kind) is Family.INT and family_of(kind) is Family.INT:
        return min(kind.flen if kind.flen > 0 else 20, 20), 0
    return max((kind.flen if kind.flen > 0 else 10) - scale, 1), scale


def agreed(args: Iterable[Compiled], scope: Scope) -> tuple[str, int]:
    """(collation, rank) by which texts compare: the least rank wins; of equal ones a binary or _bin one."""
    texts = [arg for arg in args if family_of(arg.type) is Family.TEXT and arg.type.code is not T.BIT]
    if not texts:
        return scope.collation, 4
    least = min(arg.rank for arg in texts)
    names = {arg.collation for arg in texts if arg.rank == least}
    if "binary" in names:
        return "binary", least
    return min(names, key=lambda name: (not name.endswith("_bin"), name)), least


def shared(args: Sequence[Compiled], scope: Scope) -> tuple[ColumnType, str, int]:
    """(type, collation, rank) of a value that is one of `args`."""
    kinds = [arg.type for arg in args if family_of(arg.type) is not Family.NULL]
    if not kinds:
        return NULL, "binary", 6
    families = {family_of(kind) for kind in kinds}
    first = kinds[0]
    if families <= set(_NUMERIC):
        return _shared_number(kinds, families), "binary", 5
    if families == {Family.MOMENT}:
        longest = max(kinds, key=lambda kind: kind.decimal)
        same = len({kind.code for kind in kinds}) == 1 and first.code is not T.DATETIME
        return (longest if same else datetime_type(longest.decimal)), "binary", 5
    if len(families) == 1 and Family.TEXT not in families:
        return (time_type(max(kind.decimal for kind in kinds)) if first.code is T.TIME else first), "binary", 5
    collation, rank = agreed(args, scope)
    flen = max((kind.flen for kind in kinds), default=-1) if all(kind.flen >= 0 for kind in kinds) else -1
    binary = collation == "binary" or any(kind.code in STRINGS and kind.charset == "binary" for kind in kinds)
    return (ColumnType(T.VAR_STRING, flen, charset="binary") if binary else text_type(flen)), collation, rank


def _shared_number(kinds: Sequence[ColumnType], families: set[Family]) -> ColumnType:
    if Family.FLOAT in families:
        return DOUBLE if any(kind.code is not T.FLOAT for kind in kinds) else kinds[0]
    unsigned = {kind.unsigned for kind in kinds}
    if families == {Family.INT} and len(unsigned) == 1:
        return kinds[0] if len({kind.code for kind in kinds}) == 1 else (UINT if True in unsigned else INT)
    whole, scale = (max(part) for part in zip(*(digits_of(kind) for kind in kinds), strict=True))
    return decimal_type(whole + scale, scale)


def converter(source: ColumnType, target: ColumnType) -> Convert | None:
    """Return a function that converts values of `source` to `target`; None where no conversion is needed."""
    if family_of(source) is Family.NULL:
        return None
    match family_of(target):
        case Family.FLOAT:
            return None if family_of(source) is Family.FLOAT else float_of
        case Family.DECIMAL:
            scale = max(target.decimal, 0)
            return lambda value, kind, context: (
                None if (decimal := decimal_of(value, kind, context)) is None else rounded(decimal, scale)
            )
        case Family.TEXT if family_of(source) is not Family.TEXT:
            return lambda value, kind, _context: text_of(value, kind)
        case Family.TEXT if source.code in NAMED and target.code not in NAMED:
            return lambda value, _kind, _context: str(value)
        case Family.TEXT if target.charset == "binary" and source.charset != "binary":
            return lambda value, kind, _context: (
                text.encode("utf-8", "surrogateescape") if isinstance(text := text_of(value, kind), str) else text
            )
        case Family.MOMENT if source.code is not target.code:
            return moment_of
        case Family.INT if target.unsigned:
            return lambda value, _kind, _context: Unsigned(value) if isinstance(value, int) else value
        case _:
            return None


def literal_type(value: SqlValue) -> ColumnType:
    """Return the type of a value without a declared type, such as that of a user variable."""
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


_INVALID_TEXT: Final = 3140
_INVALID_PATH: Final = 3143
_TIME_TYPES: Final = {T.DATE: 0x0E, T.NEWDATE: 0x0E, T.DATETIME: 0x0F, T.TIMESTAMP: 0x10}


class Wild(Enum):
    """Wildcard steps of a JSON path."""

    MEMBERS = ".*"
    ELEMENTS = "[*]"
    DEEP = "**"


Step: TypeAlias = str | int | tuple[int, int] | Wild
Path: TypeAlias = tuple[Step, ...]
_STEP: Final = re.compile(
    r'\s*(?:\.\s*(?:(?P<any>\*)|(?P<name>[A-Za-z_$\x80-\U0010ffff][\w$]*)|(?P<quoted>"(?:[^"\\]|\\.)*"))'
    r"|\[\s*(?:(?P<each>\*)|(?P<first>\d+|last(?:\s*-\s*\d+)?)(?:\s+to\s+(?P<end>\d+|last(?:\s*-\s*\d+)?))?)\s*\]"
    r"|(?P<deep>\*\*))"
)


def parse_document(text: str) -> JsonValue:
    """Return the JSON document in `text`; SqlRefused 3140 if it is invalid."""
    try:
        return read_document(text)
    except (ValueError, RecursionError) as error:
        raise SqlRefused(_INVALID_TEXT, f"Invalid JSON text: {str(error)[:120]}", "22032") from error


def document_of(value: SqlValue, kind: ColumnType, _context: Context) -> JsonDatum | None:
    """Return the JSON document of a value; text is parsed."""
    if value is None or isinstance(value, JsonDatum):
        return value
    if isinstance(value, str):
        return JsonDatum(parse_document(value))
    return JsonDatum(as_member(value, kind))


def as_member(value: SqlValue, kind: ColumnType) -> JsonValue:
    """Return a value as a member of a document; NULL is JSON's null."""
    match value:
        case JsonDatum():
            return value.document
        case Bits() | bytes():
            return Opaque(int(kind.code), bytes(value))
        case Time():
            return JsonTime(_TIME_TYPES.get(kind.code, 0x0F), value)
        case Duration():
            return JsonDuration(int(value), 6)
        case Decimal():
            return float(value)
        case Vector():
            return text_of(value, kind)  # type: ignore[return-value]
        case str():
            return str(value)
        case _:
            return bool(value) if kind is BOOL else value


@lru_cache(maxsize=1024)
def parse_path(text: str) -> Path:
    """Return the steps of a JSON path; SqlRefused 3143 for an invalid path."""
    body = text.strip()
    position = 1
    steps: list[Step] = []
    if not body.startswith("$"):
        raise _bad_path(0)
    while position < len(body):
        match = _STEP.match(body, position)
        if match is None:
            raise _bad_path(position)
        steps.append(_step(match))
        position = match.end()
    if steps and steps[-1] is Wild.DEEP:
        raise _bad_path(len(text))
    return tuple(steps)


def _bad_path(position: int) -> SqlRefused:
    return SqlRefused(
        _INVALID_PATH, f"Invalid JSON path expression. The error is around character position {position}.", "42000"
    )


def _step(match: re.Match[str]) -> Step:
    if match["name"] is not None:
        return match["name"]
    if match["quoted"] is not None:
        return str(json.loads(match["quoted"]))
    if match["first"] is not None:
        first = _index(match["first"])
        return first if match["end"] is None else (first, _index(match["end"]))
    return Wild.MEMBERS if match["any"] else Wild.ELEMENTS if match["each"] else Wild.DEEP


def _index(text: str) -> int:
    """3 -> 3, last -> -1, last-2 -> -3."""
    return int(text) if all_digits(text) else -1 - int(text[4:].strip().removeprefix("-") or 0)


def single(path: Path) -> bool:
    """Return whether a JSON path has at most one match."""
    return all(isinstance(step, str | int) for step in path)


def find(document: JsonValue, path: Path) -> Iterator[JsonValue]:
    """Return the values that a JSON path matches."""
    if not path:
        yield document
        return
    step, rest = path[0], path[1:]
    if step is Wild.DEEP:
        yield from find(document, rest)
        for inner in _inside(document):
            yield from find(inner, path)
        return
    for inner in _next(document, step):
        yield from find(inner, rest)


def _inside(document: JsonValue) -> list[JsonValue]:
    if isinstance(document, dict):
        return list(document.values())
    return document if isinstance(document, list) else []


def _next(document: JsonValue, step: Step) -> list[JsonValue]:
    if isinstance(step, str):
        return [document[step]] if isinstance(document, dict) and step in document else []
    if step is Wild.MEMBERS:
        return list(document.values()) if isinstance(document, dict) else []
    elements: list[JsonValue] = document if isinstance(document, list) else [document]
    if step is Wild.ELEMENTS:
        return elements if isinstance(document, list) else []
    if isinstance(step, tuple):
        first, last = (index if index >= 0 else index + len(elements) for index in step)
        return elements[max(first, 0) : last + 1]
    assert isinstance(step, int), step
    return [elements[step]] if -len(elements) <= step < len(elements) else []
