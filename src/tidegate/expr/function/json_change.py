"""New JSON documents of old ones; the old ones stay as they are.

    put(d, "$.a[1]", v)       a member is added to an object, an element behind the end of an array;
                              a scalar counts as an array of one: put(1, "$[1]", 2) -> [1, 2]
    removed(d, "$.a")         what is not there is not missed; "$" itself cannot go (3153)
    merged_patch              RFC 7396: null removes            merged_preserve  arrays grow, scalars become arrays

A path that leads to several places is refused (3149).
Source: MySQL manual, "Functions That Modify JSON Values".
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from tidegate.expr.value.json import Path, parse_path, single
from tidegate.expr.value.kinds import JsonDatum
from tidegate.kv.json.value import JsonValue
from tidegate.model.errors import SqlRefused

__all__ = ["appended", "inserted", "merged_patch", "merged_preserve", "put", "removed"]

_SEVERAL: Final = 3149
_VACUOUS: Final = 3153
Change: TypeAlias = Callable[[JsonValue, str | int], JsonValue]


def _steps(path: str) -> Path:
    steps = parse_path(path)
    if not single(steps):
        message = "In this situation, path expressions may not contain the * and ** tokens or an array range."
        raise SqlRefused(_SEVERAL, message, "42000")
    return steps


def _changed_at(document: JsonValue, steps: Path, change: Change) -> JsonValue:
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


def put(document: JsonValue, path: str, value: JsonValue, *, old: bool, new: bool) -> JsonValue:
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


def removed(found: JsonDatum, *paths: str) -> JsonDatum:
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


def appended(document: JsonValue, path: str, value: JsonValue) -> JsonValue:
    """`document` with `value` at the end of the array at a path; what is no array becomes one."""
    steps = _steps(path)

    def grown(target: JsonValue) -> JsonValue:
        return [*target, value] if isinstance(target, list) else [target, value]

    def change(holder: JsonValue, step: str | int) -> JsonValue:
        if isinstance(holder, dict) and isinstance(step, str) and step in holder:
            return {**holder, step: grown(holder[step])}
        if isinstance(holder, list) and isinstance(step, int) and -len(holder) <= step < len(holder):
            at = step % len(holder)
            return [*holder[:at], grown(holder[at]), *holder[at + 1 :]]
        return grown(holder) if step == 0 and not isinstance(holder, list) else holder

    return _changed_at(document, steps, change) if steps else grown(document)


def inserted(document: JsonValue, path: str, value: JsonValue) -> JsonValue:
    """`document` with `value` put into an array before the element at a path."""
    steps = _steps(path)
    if not steps or not isinstance(steps[-1], int):
        raise SqlRefused(3165, "A path expression is not a path to a cell in an array.", "42000")

    def change(holder: JsonValue, step: str | int) -> JsonValue:
        if not isinstance(holder, list) or not isinstance(step, int):
            return holder
        at = step if step >= 0 else max(len(holder) + step + 1, 0)
        return [*holder[:at], value, *holder[at:]]

    return _changed_at(document, steps, change)


def _patched(target: JsonValue, patch: JsonValue) -> JsonValue:
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = _patched(made.get(key), value)
    return made


def merged_patch(*parts: JsonDatum) -> JsonDatum:
    """Return each document patches those before it."""
    document = parts[0].document
    for part in parts[1:]:
        document = _patched(document, part.document)
    return JsonDatum(document)


def _preserved(first: JsonValue, second: JsonValue) -> JsonValue:
    if isinstance(first, dict) and isinstance(second, dict):
        both = {key: _preserved(first[key], second[key]) for key in first.keys() & second.keys()}
        return {**first, **second, **both}
    left = first if isinstance(first, list) else [first]
    return [*left, *(second if isinstance(second, list) else [second])]


def merged_preserve(*parts: JsonDatum) -> JsonDatum:
    """Return all documents in one, nothing lost."""
    document = parts[0].document
    for part in parts[1:]:
        document = _preserved(document, part.document)
    return JsonDatum(document)
