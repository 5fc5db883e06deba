"""Functions of text.

Text stays text and binary strings stay binary: each function works on str and on bytes alike, counting characters of
the one and bytes of the other.  LENGTH and HEX count and show the bytes of the text's character set.
A negative position counts from the end; position 0 finds nothing.
LOCATE and INSTR count from 1, and give 0 for what is not there; they look without case where the collation has none.
Source: MySQL manual, "String Functions and Operators".
"""

import binascii
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from tidegate.expr.compiled import Compiled
from tidegate.expr.function.form import Function, arguments, define, text_result
from tidegate.expr.operator.pattern import regexp
from tidegate.expr.relation import Row
from tidegate.expr.result_type import BINARY, BOOL, INT, TEXT, ValueFamily, agreed, family_of
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.mysql.context import Context
from tidegate.mysql.convert.text import CODECS
from tidegate.mysql.value.compare import compare
from tidegate.mysql.value.kinds import SqlValue
from tidegate.mysql.value.number import MAX_UINT, integer_of, wrapped
from tidegate.mysql.value.text import Text

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


def _trim_call(node: Node, scope: Scope) -> Compiled:
    side = "BOTH"
    if len(node.expressions) == 3:
        side = node.expressions[2].name
        node = node.copy()
        node.set("expressions", node.expressions[:2])
    return define("tt", text_result, lambda text, what=None: _trim(text, what, side), least=1)(node, scope)


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
    if family_of(value.type) is ValueFamily.TEXT or family_of(value.type) is ValueFamily.NULL:
        return define("o", TEXT, lambda data: data.hex().upper())(node, scope)
    if family_of(value.type) in {ValueFamily.INT, ValueFamily.DECIMAL, ValueFamily.REAL}:
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
        node = node.copy()
        node.set("expressions", node.expressions[:-1])
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


def _concat_ws(separator: T | None, *parts: T | None) -> T | None:
    return None if separator is None else separator.join(part for part in parts if part is not None)


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
    return _in_base(value, abs(target))


_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def _in_base(value: int, base: int) -> str:
    digits, rest = "", abs(value)
    while rest:
        rest, digit = divmod(rest, base)
        digits = _DIGITS[digit] + digits
    return f"{'-' if value < 0 else ''}{digits or '0'}".upper()


def _one_upper(char: str) -> str:
    """The capital of a character, where that is one character, too: ß has none."""
    found = char.upper()
    return found if len(found) == 1 else char


def _one_lower(char: str) -> str:
    found = char.lower()
    return found if len(found) == 1 else char


def _upper(text: Text) -> Text:
    return text if isinstance(text, bytes) else "".join(map(_one_upper, text))


def _lower(text: Text) -> Text:
    return text if isinstance(text, bytes) else "".join(map(_one_lower, text))


def _empty_join(*parts: Text) -> Text:
    return (b"" if isinstance(parts[0], bytes) else "").join(parts)  # type: ignore[arg-type]


def _found(apply: Callable[[str, str, int], int]) -> Function:
    """Searches that go by the collation of their texts: (needle, text, from)."""

    def build(node: Node, scope: Scope) -> Compiled:
        values = arguments(node, scope, 2, 3)
        collation, _ = agreed(values[:2], scope)
        lowers = collation.endswith("_ci")

        def search(needle: str, text: str, start: int = 1) -> int:
            return apply(*((needle.lower(), text.lower()) if lowers else (needle, text)), start)

        return define("ssi", INT, search, least=2)(node, scope)

    return build


def _locate(needle: str, text: str, start: int) -> int:
    return text.find(needle, start - 1) + 1 if 0 < start <= len(text) + 1 else 0


def _field_call(node: Node, scope: Scope) -> Compiled:
    wanted, *others = arguments(node, scope, 2)
    collation, _ = agreed((wanted, *others), scope)

    def run(row: Row, context: Context) -> SqlValue:
        value = wanted.run(row, context)
        for place, other in enumerate(others, 1):
            if compare(value, other.run(row, context), (wanted.type, other.type), collation, context) == 0:
                return place
        return 0

    return Compiled(run, INT)


def _matches(text: str, pattern: str, flags: str = "") -> int:
    return int(regexp(pattern, flags).is_in(text))


def _find_in_set(wanted: str, names: str) -> int:
    parts = names.split(",") if names else []
    return parts.index(wanted) + 1 if wanted in parts else 0


def _swapped(node: Node) -> Node:
    node = node.copy()
    node.set("expressions", node.expressions[::-1])
    return node


_LOCATE: Final = _found(_locate)
_SUBSTRING: Final = define("tii", text_result, _substring, least=2)
_CHARS: Final = define("t", INT, len)
_OCTETS: Final = define("o", INT, len)
_UPPER: Final = define("t", text_result, _upper)
_LOWER: Final = define("t", text_result, _lower)

STRING_FUNCTIONS: Final[Mapping[str, Function]] = {
    "ASCII": define("o", INT, lambda data: data[0] if data else 0),
    "CHAR": _char_call,
    "CHARACTER_LENGTH": _CHARS,
    "CHAR_LENGTH": _CHARS,
    "CONCAT": define("t", text_result, _empty_join, rest="t"),
    "CONCAT_WS": define("t", text_result, _concat_ws, rest="t", nulls=True),
    "CONV": define("sii", TEXT, _conv),
    "FIELD": _field_call,
    "FIND_IN_SET": define("ss", INT, _find_in_set),
    "HEX": _hex_call,
    "INSTR": lambda node, scope: _LOCATE(_swapped(node), scope),
    "LCASE": _LOWER,
    "LEFT": define("ti", text_result, lambda text, length: text[: max(length, 0)]),
    "LENGTH": _OCTETS,
    "LOCATE": _LOCATE,
    "LOWER": _LOWER,
    "LPAD": define("tit", text_result, lambda text, length, fill: _pad(text, length, fill, left=True)),
    "LTRIM": define("t", text_result, lambda text: text.lstrip(_blank(text))),
    "MID": _SUBSTRING,
    "OCTET_LENGTH": _OCTETS,
    "POSITION": _LOCATE,
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
