"""Functions of JSON documents.

    JSON_EXTRACT(d, path, ..)   one path to one place gives what stands there, everything else an array of the finds
    JSON_SET  INSERT  REPLACE   put a value at a path: always, only where nothing is, only where something is
                                a member is added to an object, an element behind the end of an array;
                                a scalar counts as an array of one: JSON_SET(1, "$[1]", 2) is [1, 2]
    JSON_REMOVE                 what is not there is not missed; "$" itself cannot go (3153)
    JSON_ARRAY  OBJECT  CONTAINS  KEYS  LENGTH  TYPE  VALID  QUOTE  UNQUOTE

Text among the documents is parsed; among the values it stays text.  A path that leads to several places cannot be
changed (3149).
Source: MySQL manual, "JSON Functions"; TiDB's types/json_binary_functions.go.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from tidegate.expr.compiled import Compiled
from tidegate.expr.function.form import Function, arguments, define, wrong_count
from tidegate.expr.json_value import Path, as_member, document_of, find, parse_document, parse_path, single
from tidegate.expr.relation import Row
from tidegate.expr.result_type import BOOL, INT, JSON, TEXT, ValueFamily, family_of
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import SqlRefused
from tidegate.mysql.context import Context
from tidegate.mysql.json.text import quote_json, render_json
from tidegate.mysql.json.value import JsonDuration, JsonTime, JsonValue, Opaque, Unsigned
from tidegate.mysql.value.compare import json_order
from tidegate.mysql.value.kinds import JsonDatum, SqlValue
from tidegate.mysql.value.text import string_of

_SEVERAL: Final = 3149
_VACUOUS: Final = 3153
_Change: TypeAlias = Callable[[JsonValue, str | int], JsonValue]
_TYPES: Final[tuple[tuple[type, str], ...]] = (
    (bool, "BOOLEAN"),
    (Unsigned, "UNSIGNED INTEGER"),
    (int, "INTEGER"),
    (float, "DOUBLE"),
    (str, "STRING"),
    (dict, "OBJECT"),
    (list, "ARRAY"),
    (JsonDuration, "TIME"),
    (Opaque, "BLOB"),
)
_TIMES: Final = {0x0E: "DATE", 0x0F: "DATETIME", 0x10: "TIMESTAMP"}


def _members(least: int, build: Callable[[list[JsonValue]], JsonValue]) -> Function:
    """A document of the arguments' values."""

    def compiled(node: Node, scope: Scope) -> Compiled:
        values = arguments(node, scope, least)

        def run(row: Row, context: Context) -> SqlValue:
            return JsonDatum(build([as_member(value.run(row, context), value.type) for value in values]))

        return Compiled(run, JSON)

    return compiled


def _object(parts: list[JsonValue]) -> JsonValue:
    if len(parts) % 2:
        raise wrong_count("json_object")
    if any(key is None for key in parts[::2]):
        raise SqlRefused(3158, "JSON documents may not contain NULL member names.", "22032")
    return {
        key if isinstance(key, str) else _plain(key): value for key, value in zip(parts[::2], parts[1::2], strict=True)
    }


def _plain(document: JsonValue) -> str:
    text = render_json(document)
    return str(json.loads(text)) if text.startswith('"') else text


def _extract(found: JsonDatum, *paths: str) -> JsonDatum | None:
    steps = [parse_path(path) for path in paths]
    finds = [value for path in steps for value in find(found.document, path)]
    if len(steps) == 1 and single(steps[0]):
        return JsonDatum(finds[0]) if finds else None
    return JsonDatum(finds) if finds else None


def _unquote(value: SqlValue) -> str | None:
    if isinstance(value, JsonDatum):
        document = value.document
        if isinstance(document, str):
            return document
        text = render_json(document)
        return text[1:-1] if text.startswith('"') else text
    text = str(value)
    if len(text) < 2 or not (text.startswith('"') and text.endswith('"')):
        return text
    parsed = parse_document(text)
    return parsed if isinstance(parsed, str) else text


def _type_name(found: JsonDatum) -> str:
    document = found.document
    if document is None:
        return "NULL"
    if isinstance(document, JsonTime):
        return _TIMES[document.type]
    return next(name for kind, name in _TYPES if isinstance(document, kind))


def _contains(target: JsonValue, candidate: JsonValue) -> bool:
    if isinstance(target, list):
        if isinstance(candidate, list):
            return all(any(_contains(item, wanted) for item in target) for wanted in candidate)
        return any(_contains(item, candidate) for item in target)
    if isinstance(target, dict):
        return isinstance(candidate, dict) and all(
            key in target and _contains(target[key], wanted) for key, wanted in candidate.items()
        )
    return json_order(target, candidate) == 0


def _contains_call(target: JsonDatum, candidate: JsonDatum, path: str = "$") -> int | None:
    found = list(find(target.document, parse_path(path)))
    return int(_contains(found[0], candidate.document)) if found else None


def _length(target: JsonDatum, path: str = "$") -> int | None:
    found = list(find(target.document, parse_path(path)))
    if not found:
        return None
    return len(found[0]) if isinstance(found[0], list | dict) else 1


def _keys(target: JsonDatum, path: str = "$") -> JsonDatum | None:
    found = list(find(target.document, parse_path(path)))
    if not found or not isinstance(found[0], dict):
        return None
    names = sorted(found[0], key=lambda key: key.encode("utf-8", "surrogatepass"))
    return JsonDatum([*names])


def _valid(value: SqlValue) -> int:
    if isinstance(value, JsonDatum):
        return 1
    try:
        parse_document(str(value))
    except SqlRefused:
        return 0
    return int(isinstance(value, str))


def _steps(path: str) -> Path:
    steps = parse_path(path)
    if not single(steps):
        message = "In this situation, path expressions may not contain the * and ** tokens or an array range."
        raise SqlRefused(_SEVERAL, message, "42000")
    return steps


def _changed_at(document: JsonValue, steps: Path, change: _Change) -> JsonValue:
    """`document` with `change` done to the holder of the last step; as it is where the way does not lead there."""
    step = steps[0]
    assert isinstance(step, str | int), step
    if len(steps) == 1:
        return change(document, step)
    if isinstance(document, dict) and isinstance(step, str) and step in document:
        return {**document, step: _changed_at(document[step], steps[1:], change)}
    if isinstance(document, list) and isinstance(step, int) and -len(document) <= step < len(document):
        at = step % len(document)
        return [*document[:at], _changed_at(document[at], steps[1:], change), *document[at + 1 :]]
    if step in {0, -1} and not isinstance(document, list):
        return _changed_at(document, steps[1:], change)
    return document


def _put(document: JsonValue, path: str, value: JsonValue, *, old: bool, new: bool) -> JsonValue:
    """`document` with `value` at a path; `old` replaces what is there, `new` adds where nothing is."""
    steps = _steps(path)
    if not steps:
        return value if old else document

    def change(holder: JsonValue, step: str | int) -> JsonValue:
        if isinstance(step, str):
            wanted = isinstance(holder, dict) and (old if step in holder else new)
            return {**holder, step: value} if wanted and isinstance(holder, dict) else holder
        items = holder if isinstance(holder, list) else [holder]
        at = step if step >= 0 else max(len(items) + step, -1)
        if 0 <= at < len(items):
            if not old:
                return holder
            made: list[JsonValue] = [*items[:at], value, *items[at + 1 :]]
            return made if isinstance(holder, list) else value
        return [*items, value] if new and at >= len(items) else [value, *items] if new else holder

    return _changed_at(document, steps, change)


def _removed(found: JsonDatum, *paths: str) -> JsonDatum:
    """Return the document without what stands at the paths."""
    document = found.document
    for path in paths:
        steps = _steps(path)
        if not steps:
            raise SqlRefused(_VACUOUS, "The path expression '$' is not allowed in this context.", "42000")
        document = _changed_at(document, steps, _without)
    return JsonDatum(document)


def _without(holder: JsonValue, step: str | int) -> JsonValue:
    if isinstance(holder, dict):
        return {key: value for key, value in holder.items() if key != step}
    if isinstance(holder, list) and isinstance(step, int) and -len(holder) <= step < len(holder):
        at = step % len(holder)
        return [*holder[:at], *holder[at + 1 :]]
    return holder


def _changed(change: Callable[[JsonValue, str, JsonValue], JsonValue]) -> Function:
    """JSON_SET and its like: document, then pairs of a path and a value."""

    def compiled(node: Node, scope: Scope) -> Compiled:
        target, *pairs = arguments(node, scope, 3)
        if len(pairs) % 2:
            raise wrong_count(node.name)

        def run(row: Row, context: Context) -> SqlValue:
            found = document_of(target.run(row, context), target.type, context)
            if found is None:
                return None
            document = found.document
            for path, value in zip(pairs[::2], pairs[1::2], strict=True):
                where = string_of(path.run(row, context), path.type)
                if where is None:
                    return None
                document = change(document, where, as_member(value.run(row, context), value.type))
            return JsonDatum(document)

        return Compiled(run, JSON)

    return compiled


def _quote_call(node: Node, scope: Scope) -> Compiled:
    [value] = arguments(node, scope, 1, 1)
    if family_of(value.type) not in {ValueFamily.TEXT, ValueFamily.NULL}:
        raise SqlRefused(3064, "Incorrect type for argument 1 in function json_quote.", "HY000")
    return define("s", TEXT, quote_json)(node, scope)


JSON_FUNCTIONS: Final[Mapping[str, Function]] = {
    "JSON_ARRAY": _members(0, list),
    "JSON_CONTAINS": define("jjs", BOOL, _contains_call, least=2),
    "JSON_EXTRACT": define("js", JSON, _extract, rest="s"),
    "JSON_INSERT": _changed(lambda document, path, value: _put(document, path, value, old=False, new=True)),
    "JSON_KEYS": define("js", JSON, _keys, least=1),
    "JSON_LENGTH": define("js", INT, _length, least=1),
    "JSON_OBJECT": _members(0, _object),
    "JSON_QUOTE": _quote_call,
    "JSON_REMOVE": define("js", JSON, _removed, rest="s"),
    "JSON_REPLACE": _changed(lambda document, path, value: _put(document, path, value, old=True, new=False)),
    "JSON_SET": _changed(lambda document, path, value: _put(document, path, value, old=True, new=True)),
    "JSON_TYPE": define("j", TEXT, _type_name),
    "JSON_UNQUOTE": define("v", TEXT, _unquote),
    "JSON_VALID": define("v", BOOL, _valid),
}
"""By name."""
