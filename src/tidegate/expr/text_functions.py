"""Functions of text and of JSON documents.

Text stays text and binary strings stay binary: each text function works on str and on bytes alike, counting characters
of the one and bytes of the other.  LENGTH and HEX count and show the bytes of the text's character set.  A negative
position counts from the end; position 0 finds nothing.  LOCATE and INSTR count from 1, return 0 for no match, and
ignore case where the collation does.

    JSON_EXTRACT(d, path, ..)   one path to one value returns that value, everything else an array of the matches
    JSON_SET  INSERT  REPLACE   put a value at a path: always, only where nothing is, only where something is;
                                a member is added to an object, an element at the end of an array;
                                a scalar counts as an array of one: JSON_SET(1, "$[1]", 2) is [1, 2]
    JSON_REMOVE                 a missing path is ignored; "$" itself cannot be removed (3153)
    JSON_ARRAY  OBJECT  CONTAINS  KEYS  LENGTH  TYPE  VALID  QUOTE  UNQUOTE

A text is parsed where a document is expected, and stays a text where a value is.  A path with a wildcard or range
cannot be changed (3149).

Source: MySQL manual, "String Functions and Operators", "JSON Functions"; TiDB's types/json_binary_functions.go.
"""

import binascii
import json
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, TypeVar

from tidegate.expr.comparison import regexp
from tidegate.expr.dialect import Node
from tidegate.expr.functions import Function, arguments, define, text_result, wrong_count
from tidegate.expr.result_type import (
    BINARY,
    BOOL,
    INT,
    JSON,
    TEXT,
    Path,
    agreed,
    as_member,
    document_of,
    family_of,
    find,
    parse_document,
    parse_path,
    single,
)
from tidegate.expr.scope import Compiled, Row, Scope
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import Family
from tidegate.mysql.conversion import CODECS
from tidegate.mysql.encoding import MAX_UINT
from tidegate.mysql.json_value import JsonDuration, JsonTime, JsonValue, Opaque, Unsigned, quote_json, render_json
from tidegate.mysql.values import (
    Context,
    JsonDatum,
    SqlValue,
    Text,
    compare,
    integer_of,
    json_order,
    string_of,
    wrapped,
)

T = TypeVar("T", str, bytes)
MAX_BYTES: Final = 64 * 1024 * 1024
"""max_allowed_packet."""


def _substring(text: T, start: int, length: int | None = None) -> T:
    begin = start - 1 if start > 0 else len(text) + start
    if start == 0 or begin < 0 or begin >= len(text) or (length is not None and length <= 0):
        return text[:0]
    return text[begin:] if length is None else text[begin : begin + length]


def _blank(text: T) -> T:
    return b" " if isinstance(text, bytes) else " "


def _trim(text: T, what: T | None = None, side: str = "BOTH") -> T:
    cut = _blank(text) if what is None else what
    if not cut:
        return text
    while side != "TRAILING" and text.startswith(cut):
        text = text[len(cut) :]
    while side != "LEADING" and text.endswith(cut):
        text = text[: -len(cut)]
    return text


def _with_arguments(node: Node, expressions: list[Node]) -> Node:
    node = node.copy()
    node.set("expressions", expressions)
    return node


def _trim_call(node: Node, scope: Scope) -> Compiled:
    side = node.expressions[2].name if len(node.expressions) == 3 else "BOTH"
    trim = define("tt", text_result, lambda text, what=None: _trim(text, what, side), least=1)
    return trim(_with_arguments(node, node.expressions[:2]), scope)


def _repeat(text: T, count: int) -> T | None:
    return None if len(text) * count > MAX_BYTES else text * max(count, 0)


def _pad(text: T, length: int, fill: T, *, left: bool) -> T | None:
    missing = length - len(text)
    if length < 0 or length > MAX_BYTES or (missing > 0 and not fill):
        return None
    if missing <= 0:
        return text[:length]
    padding = (fill * (missing // len(fill) + 1))[:missing]
    return padding + text if left else text + padding


def _hex_call(node: Node, scope: Scope) -> Compiled:
    [value] = arguments(node, scope, 1, 1)
    if family_of(value.type) is Family.TEXT or family_of(value.type) is Family.NULL:
        return define("o", TEXT, lambda data: data.hex().upper())(node, scope)
    if family_of(value.type) in {Family.INT, Family.DECIMAL, Family.FLOAT}:
        return define("i", TEXT, lambda number: f"{wrapped(number):X}")(node, scope)
    return define("o", TEXT, lambda data: data.hex().upper())(node, scope)


def _unhex(text: str) -> bytes | None:
    try:
        return binascii.unhexlify(text if len(text) % 2 == 0 else f"0{text}")
    except (binascii.Error, ValueError):
        return None


def _char_call(node: Node, scope: Scope) -> Compiled:
    """CHAR(77, 0x6d USING utf8mb4): the bytes of each number, most significant first."""
    charset = ""
    if node.expressions and type(node.expressions[-1]).__name__ == "Var":
        charset = node.expressions[-1].name
        node = _with_arguments(node, node.expressions[:-1])
    values = arguments(node, scope, 1)

    def run(row: Row, context: Context) -> SqlValue:
        out = bytearray()
        for value in values:
            number = integer_of(value.run(row, context), value.type, context)
            if number is not None:
                code = wrapped(number) & 0xFFFFFFFF
                out += code.to_bytes(max((code.bit_length() + 7) // 8, 1), "big")
        return bytes(out) if charset in {"", "binary"} else out.decode(CODECS.get(charset, "utf-8"), "replace")

    if charset in {"", "binary"}:
        return Compiled(run, BINARY, "binary", 4)
    return Compiled(run, TEXT, scope.collation, 4)


def _substring_index(text: T, separator: T, count: int) -> T:
    if not separator or count == 0:
        return text[:0]
    parts = text.split(separator)
    return separator.join(parts[:count] if count > 0 else parts[count:])


def _conv(text: str, source: int, target: int) -> str | None:
    if not (2 <= abs(source) <= 36 and 2 <= abs(target) <= 36):
        return None
    body = text.strip().lower()
    negative = body.startswith("-")
    value = 0
    for char in body.lstrip("+-"):
        digit = _DIGITS.find(char)
        if not 0 <= digit < abs(source):
            break
        value = value * abs(source) + digit
    value = min(value, MAX_UINT)
    value = -value if negative else value
    if target > 0:
        value &= MAX_UINT
    digits, rest = "", abs(value)
    while rest:
        rest, digit = divmod(rest, abs(target))
        digits = _DIGITS[digit] + digits
    return f"{'-' if value < 0 else ''}{digits or '0'}".upper()


_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def _cased(change: Callable[[str], str]) -> Function:
    """UPPER and LOWER of each character, where that is one character, too: ß has no capital."""

    def apply(text: Text) -> Text:
        if isinstance(text, bytes):
            return text
        return "".join(changed if len(changed := change(char)) == 1 else char for char in text)

    return define("t", text_result, apply)


def _locate(node: Node, scope: Scope) -> Compiled:
    """LOCATE: a search by the collation of its texts."""
    values = arguments(node, scope, 2, 3)
    collation, _ = agreed(values[:2], scope)
    lowers = collation.endswith("_ci")

    def search(needle: str, text: str, start: int = 1) -> int:
        if lowers:
            needle, text = needle.lower(), text.lower()
        return text.find(needle, start - 1) + 1 if 0 < start <= len(text) + 1 else 0

    return define("ssi", INT, search, least=2)(node, scope)


def _field_call(node: Node, scope: Scope) -> Compiled:
    first, *others = arguments(node, scope, 2)
    collation, _ = agreed((first, *others), scope)

    def run(row: Row, context: Context) -> SqlValue:
        value = first.run(row, context)
        for number, other in enumerate(others, 1):
            if compare(value, other.run(row, context), (first.type, other.type), collation, context) == 0:
                return number
        return 0

    return Compiled(run, INT)


def _matches(text: str, pattern: str, flags: str = "") -> int:
    return int(regexp(pattern, flags).is_in(text))


_SUBSTRING: Final = define("tii", text_result, _substring, least=2)
_CHARS: Final = define("t", INT, len)
_OCTETS: Final = define("o", INT, len)
_UPPER: Final = _cased(str.upper)
_LOWER: Final = _cased(str.lower)

STRING_FUNCTIONS: Final[Mapping[str, Function]] = {
    "ASCII": define("o", INT, lambda data: data[0] if data else 0),
    "CHAR": _char_call,
    "CHARACTER_LENGTH": _CHARS,
    "CHAR_LENGTH": _CHARS,
    "CONCAT": define("t", text_result, lambda *parts: parts[0][:0].join(parts), rest="t"),
    "CONCAT_WS": define(
        "t",
        text_result,
        lambda by, *parts: None if by is None else by.join(part for part in parts if part is not None),
        rest="t",
        nulls=True,
    ),
    "CONV": define("sii", TEXT, _conv),
    "FIELD": _field_call,
    "FIND_IN_SET": define(
        "ss",
        INT,
        lambda name, names: names.split(",").index(name) + 1 if names and name in names.split(",") else 0,
    ),
    "HEX": _hex_call,
    "INSTR": lambda node, scope: _locate(_with_arguments(node, node.expressions[::-1]), scope),
    "LCASE": _LOWER,
    "LEFT": define("ti", text_result, lambda text, length: text[: max(length, 0)]),
    "LENGTH": _OCTETS,
    "LOCATE": _locate,
    "LOWER": _LOWER,
    "LPAD": define("tit", text_result, lambda text, length, fill: _pad(text, length, fill, left=True)),
    "LTRIM": define("t", text_result, lambda text: text.lstrip(_blank(text))),
    "MID": _SUBSTRING,
    "OCTET_LENGTH": _OCTETS,
    "POSITION": _locate,
    "REGEXP_LIKE": define("sss", BOOL, _matches, least=2),
    "REPEAT": define("ti", text_result, _repeat),
    "REPLACE": define("ttt", text_result, lambda text, old, new: text.replace(old, new) if old else text),
    "REVERSE": define("t", text_result, lambda text: text[::-1]),
    "RIGHT": define("ti", text_result, lambda text, length: text[-length:] if length > 0 else text[:0]),
    "RPAD": define("tit", text_result, lambda text, length, fill: _pad(text, length, fill, left=False)),
    "RTRIM": define("t", text_result, lambda text: text.rstrip(_blank(text))),
    "SPACE": define("i", TEXT, lambda count: _repeat(" ", count)),
    "SUBSTR": _SUBSTRING,
    "SUBSTRING": _SUBSTRING,
    "SUBSTRING_INDEX": define("tti", text_result, _substring_index),
    "TRIM": _trim_call,
    "UCASE": _UPPER,
    "UNHEX": define("s", BINARY, _unhex),
    "UPPER": _UPPER,
}
"""By name."""


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


def _extract(target: JsonDatum, *paths: str) -> JsonDatum | None:
    steps = [parse_path(path) for path in paths]
    finds = [value for path in steps for value in find(target.document, path)]
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


def _type_name(value: JsonDatum) -> str:
    document = value.document
    if document is None:
        return "NULL"
    if isinstance(document, JsonTime):
        return _TIMES[document.type]
    return next(name for kind, name in _TYPES if isinstance(document, kind))


def _contains(target: JsonValue, candidate: JsonValue) -> bool:
    if isinstance(target, list):
        if isinstance(candidate, list):
            return all(any(_contains(item, part) for item in target) for part in candidate)
        return any(_contains(item, candidate) for item in target)
    if isinstance(target, dict):
        return isinstance(candidate, dict) and all(
            key in target and _contains(target[key], part) for key, part in candidate.items()
        )
    return json_order(target, candidate) == 0


def _at_path(read: Callable[..., SqlValue]) -> Callable[..., SqlValue]:
    """Apply `read` to the value at the path, the last argument, "$" by default; NULL if there is no such value."""

    def apply(target: JsonDatum, *args: JsonDatum | str) -> SqlValue:
        documents = [part.document for part in args if isinstance(part, JsonDatum)]
        path = next((part for part in args if isinstance(part, str)), "$")
        return next((read(value, *documents) for value in find(target.document, parse_path(path))), None)

    return apply


def _keys(document: JsonValue) -> JsonDatum | None:
    if not isinstance(document, dict):
        return None
    return JsonDatum([*sorted(document, key=lambda key: key.encode("utf-8", "surrogatepass"))])


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
    """Return `document` with `change` applied to the parent of the path's last step, as it is without a parent."""
    step = steps[0]
    assert isinstance(step, str | int), step
    if len(steps) == 1:
        return change(document, step)
    if isinstance(document, dict) and isinstance(step, str) and step in document:
        return {**document, step: _changed_at(document[step], steps[1:], change)}
    if isinstance(document, list) and isinstance(step, int) and -len(document) <= step < len(document):
        index = step % len(document)
        return [*document[:index], _changed_at(document[index], steps[1:], change), *document[index + 1 :]]
    if step in {0, -1} and not isinstance(document, list):
        return _changed_at(document, steps[1:], change)
    return document


def _put(document: JsonValue, path: str, value: JsonValue, *, old: bool, new: bool) -> JsonValue:
    """Return `document` with `value` at a path: `old` replaces an existing value, `new` adds a missing one."""
    steps = _steps(path)
    if not steps:
        return value if old else document

    def change(holder: JsonValue, step: str | int) -> JsonValue:
        if isinstance(step, str):
            changes = isinstance(holder, dict) and (old if step in holder else new)
            return {**holder, step: value} if changes and isinstance(holder, dict) else holder
        items = holder if isinstance(holder, list) else [holder]
        index = step if step >= 0 else max(len(items) + step, -1)
        if 0 <= index < len(items):
            if not old:
                return holder
            replaced: list[JsonValue] = [*items[:index], value, *items[index + 1 :]]
            return replaced if isinstance(holder, list) else value
        return [*items, value] if new and index >= len(items) else [value, *items] if new else holder

    return _changed_at(document, steps, change)


def _removed(target: JsonDatum, *paths: str) -> JsonDatum:
    document = target.document
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
        index = step % len(holder)
        return [*holder[:index], *holder[index + 1 :]]
    return holder


def _changed(change: Callable[[JsonValue, str, JsonValue], JsonValue]) -> Function:
    """JSON_SET, JSON_INSERT, JSON_REPLACE: a document, then pairs of a path and a value."""

    def compiled(node: Node, scope: Scope) -> Compiled:
        target, *pairs = arguments(node, scope, 3)
        if len(pairs) % 2:
            raise wrong_count(node.name)

        def run(row: Row, context: Context) -> SqlValue:
            json = document_of(target.run(row, context), target.type, context)
            if json is None:
                return None
            document = json.document
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
    if family_of(value.type) not in {Family.TEXT, Family.NULL}:
        raise SqlRefused(3064, "Incorrect type for argument 1 in function json_quote.", "HY000")
    return define("s", TEXT, quote_json)(node, scope)


JSON_FUNCTIONS: Final[Mapping[str, Function]] = {
    "JSON_ARRAY": _members(0, list),
    "JSON_CONTAINS": define("jjs", BOOL, _at_path(lambda document, part: int(_contains(document, part))), least=2),
    "JSON_EXTRACT": define("js", JSON, _extract, rest="s"),
    "JSON_INSERT": _changed(lambda document, path, value: _put(document, path, value, old=False, new=True)),
    "JSON_KEYS": define("js", JSON, _at_path(_keys), least=1),
    "JSON_LENGTH": define(
        "js", INT, _at_path(lambda document: len(document) if isinstance(document, list | dict) else 1), least=1
    ),
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
