"""JSON documents among values, and paths into them.

    document_of     JSON -> its document; text -> the document that it spells (error 3140 when it spells none)
    as_member       any value -> what it is inside JSON_OBJECT and JSON_ARRAY: text stays text
    parse_path      '$.a[0]."b c".*' -> steps        '$[last-1]', '$[1 to 3]', '$**.x'

    Step = str (member) | int (element; negative from the end) | (from, to) | ANY_MEMBER | ANY_ELEMENT | DEEP

Source: MySQL manual, "The JSON Data Type", "JSON Path Syntax"; TiDB's types/json_path_expr.go.
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Final, TypeAlias

from tidegate.expr.result_type import BOOL
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import all_digits
from tidegate.model.table import ColumnType
from tidegate.mysql.context import Context
from tidegate.mysql.json.value import JsonDuration, JsonTime, JsonValue, Opaque
from tidegate.mysql.value.kinds import Bits, Duration, JsonDatum, SqlValue, Time, Unsigned, Vector
from tidegate.mysql.value.text import text_of

_INVALID_TEXT: Final = 3140
_INVALID_PATH: Final = 3143
_TIME_TYPES: Final = {T.DATE: 0x0E, T.NEWDATE: 0x0E, T.DATETIME: 0x0F, T.TIMESTAMP: 0x10}


class Wild(Enum):
    """Steps that lead to several places."""

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


def _exact_or_float(text: str) -> int | float:
    value = int(text)
    if -(1 << 63) <= value < 1 << 63:
        return value
    return Unsigned(value) if 0 <= value < 1 << 64 else float(text)


def parse_document(text: str) -> JsonValue:
    """Return the document that `text` spells; SqlRefused 3140."""
    try:
        found: JsonValue = json.loads(text, parse_int=_exact_or_float, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise SqlRefused(_INVALID_TEXT, f"Invalid JSON text: {str(error)[:120]}", "22032") from error
    return found


def _no_constant(name: str) -> float:
    raise ValueError(name)


def document_of(value: SqlValue, kind: ColumnType, _context: Context) -> JsonDatum | None:
    """Return the document that a JSON function reads; text is parsed."""
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
    """Return the steps of a path; SqlRefused 3143."""
    body = text.strip()
    at = 1
    steps: list[Step] = []
    if not body.startswith("$"):
        raise _bad_path(0)
    while at < len(body):
        found = _STEP.match(body, at)
        if found is None:
            raise _bad_path(at)
        steps.append(_step(found))
        at = found.end()
    if steps and steps[-1] is Wild.DEEP:
        raise _bad_path(len(text))
    return tuple(steps)


def _bad_path(at: int) -> SqlRefused:
    return SqlRefused(
        _INVALID_PATH, f"Invalid JSON path expression. The error is around character position {at}.", "42000"
    )


def _step(found: re.Match[str]) -> Step:
    if found["name"] is not None:
        return found["name"]
    if found["quoted"] is not None:
        return str(json.loads(found["quoted"]))
    if found["first"] is not None:
        first = _index(found["first"])
        return first if found["end"] is None else (first, _index(found["end"]))
    return Wild.MEMBERS if found["any"] else Wild.ELEMENTS if found["each"] else Wild.DEEP


def _index(text: str) -> int:
    """3 -> 3, last -> -1, last-2 -> -3."""
    return int(text) if all_digits(text) else -1 - int(text[4:].strip().removeprefix("-") or 0)


def single(path: Path) -> bool:
    """Return whether the path leads to one place at most."""
    return all(isinstance(step, str | int) for step in path)


def find(document: JsonValue, path: Path) -> Iterator[JsonValue]:
    """Return what stands at the places of a path."""
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
