"""Functions of text.

Text stays text and binary strings stay binary: each function works on str and on bytes alike, counting characters of
the one and bytes of the other.  LENGTH and HEX count and show the bytes of the text's character set.
A negative position counts from the end; position 0 finds nothing.
Source: MySQL manual, "String Functions and Operators".
"""

import binascii
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from tidegate.expr.compiled import Compiled
from tidegate.expr.context import Context
from tidegate.expr.convert.number import exact_number
from tidegate.expr.convert.text import CODECS
from tidegate.expr.function.form import Function, arguments, define, text_result
from tidegate.expr.relation import Row
from tidegate.expr.result_type import BINARY, INT, TEXT, ValueFamily, family_of
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.value.kinds import SqlValue
from tidegate.expr.value.number import MAX_UINT, Number, integer_of, rounded, wrapped
from tidegate.expr.value.text import Text

__all__ = ["STRING_FUNCTIONS"]

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


def _from_base64(text: str) -> bytes | None:
    try:
        return binascii.a2b_base64("".join(text.split()), strict_mode=True)
    except binascii.Error:
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


def _ordinal(text: Text) -> int:
    if not text:
        return 0
    first = text[:1]
    return int.from_bytes(first.encode("utf-8", "surrogateescape") if isinstance(first, str) else first, "big")


def _concat_ws(separator: T | None, *parts: T | None) -> T | None:
    return None if separator is None else separator.join(part for part in parts if part is not None)


def _insert(text: T, start: int, length: int, new: T) -> T:
    if not 1 <= start <= len(text):
        return text
    end = len(text) if length < 0 else start - 1 + length
    return text[: start - 1] + new + text[end:]


def _substring_index(text: T, separator: T, count: int) -> T:
    if not separator or count == 0:
        return text[:0]
    parts = text.split(separator)
    return separator.join(parts[:count] if count > 0 else parts[count:])


def _quote(text: str | None) -> str:
    if text is None:
        return "NULL"
    for char, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\0", "\\0"), ("\x1a", "\\Z")):
        text = text.replace(char, escaped)
    return f"'{text}'"


def _format(number: Number, places: int) -> str:
    exact = rounded(exact_number(number), min(max(places, 0), 30))
    return f"{exact:,f}"


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


def _of_charset(describe: Callable[[Compiled], str]) -> Function:
    def build(node: Node, scope: Scope) -> Compiled:
        [value] = arguments(node, scope, 1, 1)
        found = describe(value)
        return Compiled(lambda _row, _context: found, TEXT, "utf8mb4_bin", 3)

    return build


def _charset(value: Compiled) -> str:
    return value.type.charset if family_of(value.type) is ValueFamily.TEXT else "binary"


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


def _wrapped_base64(data: bytes) -> str:
    """Base64 in lines of 76 characters."""
    text = binascii.b2a_base64(data, newline=False).decode()
    return "\n".join(text[at : at + 76] for at in range(0, len(text), 76))


def _rank_of(node: Node, scope: Scope) -> Compiled:
    [value] = arguments(node, scope, 1, 1)
    return Compiled(lambda _row, _context: value.rank, INT)


_SUBSTRING: Final = define("tii", text_result, _substring, least=2)
_CHARS: Final = define("t", INT, len)
_OCTETS: Final = define("o", INT, len)
_UPPER: Final = define("t", text_result, _upper)
_LOWER: Final = define("t", text_result, _lower)

STRING_FUNCTIONS: Final[Mapping[str, Function]] = {
    "ASCII": define("o", INT, lambda data: data[0] if data else 0),
    "BIN": define("i", TEXT, lambda number: f"{wrapped(number):b}"),
    "BIT_LENGTH": define("o", INT, lambda data: 8 * len(data)),
    "CHAR": _char_call,
    "CHARACTER_LENGTH": _CHARS,
    "CHARSET": _of_charset(_charset),
    "CHAR_LENGTH": _CHARS,
    "COERCIBILITY": _rank_of,
    "COLLATION": _of_charset(lambda value: value.collation),
    "CONCAT": define("t", text_result, _empty_join, rest="t"),
    "CONCAT_WS": define("t", text_result, _concat_ws, rest="t", nulls=True),
    "CONV": define("sii", TEXT, _conv),
    "FORMAT": define("nis", TEXT, lambda number, places, _locale="": _format(number, places), least=2),
    "FROM_BASE64": define("s", BINARY, _from_base64),
    "HEX": _hex_call,
    "INSERT": define("tiit", text_result, _insert),
    "LCASE": _LOWER,
    "LEFT": define("ti", text_result, lambda text, length: text[: max(length, 0)]),
    "LENGTH": _OCTETS,
    "LOWER": _LOWER,
    "LPAD": define("tit", text_result, lambda text, length, fill: _pad(text, length, fill, left=True)),
    "LTRIM": define("t", text_result, lambda text: text.lstrip(_blank(text))),
    "MID": _SUBSTRING,
    "OCT": define("i", TEXT, lambda number: f"{wrapped(number):o}"),
    "OCTET_LENGTH": _OCTETS,
    "ORD": define("t", INT, _ordinal),
    "QUOTE": define("s", TEXT, _quote, nulls=True),
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
    "TO_BASE64": define("o", TEXT, _wrapped_base64),
    "TRIM": _trim_call,
    "UCASE": _UPPER,
    "UNHEX": define("s", BINARY, _unhex),
    "UPPER": _UPPER,
}
"""By name."""
