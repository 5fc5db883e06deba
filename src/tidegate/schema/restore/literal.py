"""Literals: strings with the charset of their connection, numbers in one form, hexadecimal and bit strings.

Source: TiDB types/parser_driver/value_expr.go; recorded answers.
"""

from typing import Final

from tidegate.expr.syntax.tokens import TokenKind, quote
from tidegate.schema.restore.reader import SqlReader, charset_name, number

_NOW: Final = frozenset(["CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"])
_LITERALS: Final = (TokenKind.STRING, TokenKind.NUMBER, TokenKind.HEX, TokenKind.BITS)
_INTRODUCED: Final = (TokenKind.STRING, TokenKind.HEX, TokenKind.BITS)


def is_literal(r: SqlReader) -> bool:
    """Return True if a literal stands here, with or without an introducer."""
    token = r.peek()
    return token.kind in _LITERALS or (token.word.startswith("_") and r.peek(1).kind in _INTRODUCED)


def escaped(text: str) -> str:
    """Return `text` with its backslashes doubled."""
    return text.replace("\\", "\\\\")


def string_value(r: SqlReader) -> str:
    """Return a string as a value, with the charset of the connection; strings side by side are one."""
    text = r.string()
    while r.is_string():
        text += r.string()
    return value(r, text)


def value(r: SqlReader, text: str) -> str:
    """Return a string as a value, with the charset of the connection."""
    return f"_{r.charset.upper()}{quote(escaped(text))}"


def literal(r: SqlReader) -> str:
    """Return a string, number, hexadecimal or bit literal with its introducer."""
    token = r.peek()
    if token.kind is TokenKind.WORD:
        r.next()
        if not r.is_string():
            return literal(r)
        return f"_{charset_name(token.word[1:])}{quote(escaped(r.string()))}"
    if token.kind is TokenKind.STRING:
        return string_value(r)
    r.next()
    if token.kind is TokenKind.HEX:
        return f"x'{token.text.lower().zfill((len(token.text) + 1) // 2 * 2)}'"
    if token.kind is TokenKind.BITS:
        return f"b'{token.text.lstrip('0') or ('0' if token.text else '')}'"
    try:
        return number(token.text)
    except ValueError as error:
        raise r.error("a number out of range before this") from error


def now(r: SqlReader) -> str | None:
    """Return CURRENT_TIMESTAMP with its brackets if one of its names stands here, else None, at the same place."""
    if r.peek().word not in _NOW or (r.looking_at("NOW") and not r.is_sign("(", 1)):
        return None
    r.next()
    digits = ""
    if r.sign("("):
        digits = "" if r.is_sign(")") else str(r.integer())
        r.expect_sign(")")
    return f"CURRENT_TIMESTAMP({digits})"
