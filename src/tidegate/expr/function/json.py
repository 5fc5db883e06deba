"""Functions of JSON documents.

    JSON_EXTRACT(d, path, ..)   one path to one place gives what stands there, everything else an array of the finds
    JSON_SET  INSERT  REPLACE   put a value at a path: always, only where nothing is, only where something is
    JSON_REMOVE  ARRAY_APPEND  ARRAY_INSERT  MERGE_PATCH  MERGE_PRESERVE
    JSON_CONTAINS  CONTAINS_PATH  OVERLAPS  MEMBER OF  SEARCH  KEYS  LENGTH  DEPTH  TYPE  VALID  QUOTE  UNQUOTE

Text among the documents is parsed; among the values it stays text.
Source: MySQL manual, "JSON Functions"; TiDB's types/json_binary_functions.go.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final

from tidegate.expr.compiled import Compiled
from tidegate.expr.context import Context
from tidegate.expr.function.form import Function, arguments, define, wrong_count
from tidegate.expr.function.json_change import (
    appended,
    inserted,
    merged_patch,
    merged_preserve,
    put,
    removed,
)
from tidegate.expr.operator.pattern import like_pattern
from tidegate.expr.relation import Row
from tidegate.expr.result_type import BOOL, INT, JSON, TEXT, ValueFamily, family_of
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.value.compare import json_key, json_order
from tidegate.expr.value.json import as_member, document_of, find, parse_document, parse_path, single
from tidegate.expr.value.kinds import JsonDatum, SqlValue
from tidegate.expr.value.text import string_of
from tidegate.kv.json.text import quote_json, render_json
from tidegate.kv.json.value import JsonDuration, JsonTime, JsonValue, Opaque, Unsigned
from tidegate.model.errors import SqlRefused

__all__ = ["JSON_FUNCTIONS"]

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


def _contains_path(target: JsonDatum, how: str, *paths: str) -> int:
    found = [any(True for _ in find(target.document, parse_path(path))) for path in paths]
    return int(all(found) if how.lower() == "all" else any(found))


def _overlaps(first: JsonDatum, second: JsonDatum) -> int:
    left, right = first.document, second.document
    if isinstance(left, dict) and isinstance(right, dict):
        return int(any(key in right and json_order(value, right[key]) == 0 for key, value in left.items()))
    lefts = left if isinstance(left, list) else [left]
    rights = {json_key(item) for item in (right if isinstance(right, list) else [right])}
    return int(any(json_key(item) in rights for item in lefts))


def _length(target: JsonDatum, path: str = "$") -> int | None:
    found = list(find(target.document, parse_path(path)))
    if not found:
        return None
    return len(found[0]) if isinstance(found[0], list | dict) else 1


def _depth(document: JsonValue) -> int:
    inner = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def _keys(target: JsonDatum, path: str = "$") -> JsonDatum | None:
    found = list(find(target.document, parse_path(path)))
    if not found or not isinstance(found[0], dict):
        return None
    names = sorted(found[0], key=lambda key: key.encode("utf-8", "surrogatepass"))
    return JsonDatum([*names])


def _places(document: JsonValue, path: str) -> list[tuple[str, str]]:
    """(path, text) of every string inside."""
    if isinstance(document, str):
        return [(path, document)]
    if isinstance(document, dict):
        return [place for key, value in document.items() for place in _places(value, f"{path}.{_member(key)}")]
    items = document if isinstance(document, list) else []
    return [place for at, value in enumerate(items) for place in _places(value, f"{path}[{at}]")]


def _member(key: str) -> str:
    return key if key.isidentifier() else quote_json(key)


def _search(target: JsonDatum, how: str, text: str, escape: str | None = None) -> JsonDatum | None:
    pattern = like_pattern(text, escape or "\\")
    finds: list[JsonValue] = [path for path, value in _places(target.document, "$") if pattern.fullmatch(value)]
    if not finds:
        return None
    return JsonDatum(finds[0] if how.lower() == "one" or len(finds) == 1 else finds)


def _valid(value: SqlValue) -> int:
    if isinstance(value, JsonDatum):
        return 1
    try:
        parse_document(str(value))
    except SqlRefused:
        return 0
    return int(isinstance(value, str))


def _pretty(found: JsonDatum) -> str:
    def shown(document: JsonValue, indent: str) -> str:
        inner = indent + "  "
        if isinstance(document, dict) and document:
            keys = sorted(document, key=lambda key: key.encode("utf-8", "surrogatepass"))
            lines = [f"{inner}{quote_json(key)}: {shown(document[key], inner)}" for key in keys]
            return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
        if isinstance(document, list) and document:
            return "[\n" + ",\n".join(inner + shown(item, inner) for item in document) + f"\n{indent}]"
        return render_json(document)

    return shown(found.document, "")


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


def _member_of(node: Node, scope: Scope) -> Compiled:
    value, target = arguments(node, scope, 2, 2)

    def run(row: Row, context: Context) -> SqlValue:
        found = document_of(target.run(row, context), target.type, context)
        wanted = value.run(row, context)
        if found is None or wanted is None:
            return None
        items = found.document if isinstance(found.document, list) else [found.document]
        return int(any(json_order(item, as_member(wanted, value.type)) == 0 for item in items))

    return Compiled(run, BOOL)


def _quote_call(node: Node, scope: Scope) -> Compiled:
    [value] = arguments(node, scope, 1, 1)
    if family_of(value.type) not in {ValueFamily.TEXT, ValueFamily.NULL}:
        raise SqlRefused(3064, "Incorrect type for argument 1 in function json_quote.", "HY000")
    return define("s", TEXT, quote_json)(node, scope)


JSON_FUNCTIONS: Final[Mapping[str, Function]] = {
    "JSON_ARRAY": _members(0, list),
    "JSON_ARRAY_APPEND": _changed(appended),
    "JSON_ARRAY_INSERT": _changed(inserted),
    "JSON_CONTAINS": define("jjs", BOOL, _contains_call, least=2),
    "JSON_CONTAINS_PATH": define("jss", BOOL, _contains_path, rest="s"),
    "JSON_DEPTH": define("j", INT, lambda found: _depth(found.document)),
    "JSON_EXTRACT": define("js", JSON, _extract, rest="s"),
    "JSON_INSERT": _changed(lambda document, path, value: put(document, path, value, old=False, new=True)),
    "JSON_KEYS": define("js", JSON, _keys, least=1),
    "JSON_LENGTH": define("js", INT, _length, least=1),
    "JSON_MEMBEROF": _member_of,
    "JSON_MERGE": define("jj", JSON, merged_preserve, rest="j"),
    "JSON_MERGE_PATCH": define("jj", JSON, merged_patch, rest="j"),
    "JSON_MERGE_PRESERVE": define("jj", JSON, merged_preserve, rest="j"),
    "JSON_OBJECT": _members(0, _object),
    "JSON_OVERLAPS": define("jj", BOOL, _overlaps),
    "JSON_PRETTY": define("j", TEXT, _pretty),
    "JSON_QUOTE": _quote_call,
    "JSON_REMOVE": define("js", JSON, removed, rest="s"),
    "JSON_REPLACE": _changed(lambda document, path, value: put(document, path, value, old=True, new=False)),
    "JSON_SEARCH": define("jsss", JSON, _search, least=3),
    "JSON_SET": _changed(lambda document, path, value: put(document, path, value, old=True, new=True)),
    "JSON_TYPE": define("j", TEXT, _type_name),
    "JSON_UNQUOTE": define("v", TEXT, _unquote),
    "JSON_VALID": define("v", BOOL, _valid),
}
"""By name."""
