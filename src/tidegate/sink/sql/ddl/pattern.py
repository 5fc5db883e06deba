"""Patterns of tokens, written as the text that they match.

    "CHECK group [ NOT ] ENFORCED"        CHECK(`a`>0) NOT ENFORCED

    WORD A|B      that word, or one of these, not quoted          name   one name             path    a.b.c
    [ .. ]        optional                                        group  (..) with its ends   value   a group or a token
    = and other signs stand for themselves; = is optional

The texts are those of schema/restore: every name is quoted there, so a bare word is never a name.
"""

from collections.abc import Iterator
from typing import TypeAlias

from tidegate.expr.syntax.tokens import TokenKind
from tidegate.schema.cursor import Cursor

Step: TypeAlias = "str | list[Step]"


class TokenPattern:
    """One pattern; `first` are the words that it may begin with."""

    def __init__(self, text: str) -> None:
        self.steps = _steps(iter(text.split()))
        self.first = _first(self.steps)

    def move(self, cursor: Cursor) -> bool:
        """Return whether the pattern matches here, moving past what it matches; else the cursor stays."""
        if cursor.peek().word not in self.first:
            return False
        at = cursor.at
        if _move(cursor, self.steps) and cursor.at > at:
            return True
        cursor.at = at
        return False


def _steps(words: Iterator[str]) -> list[Step]:
    found: list[Step] = []
    for word in words:
        if word == "]":
            break
        found.append(_steps(words) if word == "[" else word)
    return found


def _first(steps: list[Step]) -> frozenset[str]:
    found: set[str] = set()
    for step in steps:
        if isinstance(step, str):
            return frozenset(found | set(step.split("|")))
        found |= _first(step)
    return frozenset(found)


def _move(cursor: Cursor, steps: list[Step]) -> bool:
    for step in steps:
        at = cursor.at
        if isinstance(step, list):
            if not _move(cursor, step):
                cursor.at = at
        elif not _one(cursor, step):
            return False
    return True


def _one(cursor: Cursor, step: str) -> bool:
    match step:
        case "name":
            return cursor.peek().kind is TokenKind.NAME and cursor.next() is not None
        case "path":
            if not _one(cursor, "name"):
                return False
            while cursor.sign("."):
                cursor.next()
            return True
        case "group":
            return cursor.is_sign("(") and cursor.skip_group() is not None
        case "value":
            return _value(cursor)
        case "=":
            return cursor.sign("=") or True
        case _ if step[0].isalpha() or step[0] == "_":
            return cursor.accept(*step.split("|")) != ""
        case _:
            return cursor.sign(step)


def _value(cursor: Cursor) -> bool:
    if cursor.is_sign("("):
        return cursor.skip_group() is not None
    cursor.sign("-")
    return cursor.next().kind not in (TokenKind.END, TokenKind.SIGN)


def split(text: str) -> list[str]:
    """Return the parts of a list, cut at its outer commas, without blanks around them."""
    cursor, parts, start = Cursor(text), [], 0
    while cursor.peek().kind is not TokenKind.END:
        cursor.skip_balanced(",")
        token = cursor.peek()
        parts.append(text[start : token.start].strip())
        start = token.end
        cursor.next()
    return parts
