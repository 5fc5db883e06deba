"""The dialect: TiDB's SQL text as words, names, literals and signs, each with its place in the text.

    ALTER TABLE `t` ADD c BIT(3) DEFAULT b'101' /*T![auto_rand] AUTO_RANDOM(5) */
    WORD  WORD  NAME WORD ..        WORD BITS           WORD SIGN NUMBER SIGN

sqlglot's tokenizer does the cutting, in our dialect (dialect.py), where no word swallows the rest of its statement.
Comments that TiDB executes (`/*T! .. */`, `/*T![feature] .. */`, `/*! .. */`, `/*!40101 .. */`) are
opened first, by blanks of the same length, so that every offset still fits the user's text.  sqlglot's parser is not
used for DDL: it lacks a third of the statements, and what it reads it cannot give back word for word.

Invariants: tokens lie in order and do not overlap; `text[token.start : token.end]` is the source of a token; only
SqlError leaves this module.
Source: TiDB parser/lexer.go and parser/misc.go (special comments, introducers); MySQL manual, "Literal Values".
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from sqlglot.errors import TokenError
from sqlglot.tokens import Token as GlotToken
from sqlglot.tokens import TokenType

from tidegate.expr.syntax.dialect import DIALECTS
from tidegate.model.errors import SqlError

_REST: Final = r"""|`(?:[^`]|``)*`)
      | (?P<line>\#[^\n]*|--(?=[\s\x00-\x1f]|\Z)[^\n]*)
      | (?P<open>/\*(?:T!(?:\[[A-Za-z0-9_,\ ]*\])?|!(?:[0-9]{5,6})?))
      | (?P<plain>/\*.*?\*/)
      | (?P<close>\*/)"""
_LEXEMES: Final = {
    True: re.compile(r"""(?P<quoted>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\"""" + _REST, re.DOTALL | re.VERBOSE),
    False: re.compile(r"""(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*\"""" + _REST, re.DOTALL | re.VERBOSE),
}
"""What may hide or end a comment; the key says whether backslashes escape."""
_ESCAPES: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_WORD_START: Final = re.compile(r"[A-Za-z0-9_$\x80-\U0010ffff]")


class TokenKind(Enum):
    """What a token is."""

    WORD = "word"
    """An unquoted word: keyword or name, which one only the grammar knows."""
    NAME = "name"
    """A name in backquotes."""
    STRING = "string"
    NUMBER = "number"
    HEX = "hex"
    BITS = "bits"
    SIGN = "sign"
    HINT = "hint"
    """A comment that begins with /*+; only the restoring lexer keeps it."""
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `text` is the word as written, the unquoted name or string, the digits of a literal, or the sign."""

    kind: TokenKind
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The word in capitals; "" for everything that is not an unquoted word."""
        return self.text.upper() if self.kind is TokenKind.WORD else ""


_KINDS: Final = {
    TokenType.STRING: TokenKind.STRING,
    TokenType.NATIONAL_STRING: TokenKind.STRING,
    TokenType.NUMBER: TokenKind.NUMBER,
    TokenType.HEX_STRING: TokenKind.HEX,
    TokenType.BIT_STRING: TokenKind.BITS,
}


def fail(what: str, text: str, at: int) -> SqlError:
    """Return the error for `text` at offset `at`: what is wrong, where, and what stands there."""
    line = text.count("\n", 0, at) + 1
    near = " ".join(text[at : at + 40].split()) or "the end"
    return SqlError(f"{what} at offset {at} (line {line}) near {near!r}")


def reveal(text: str, *, escapes: bool = True) -> str:
    """`text` of equal length with the comments that TiDB executes opened: their contents stand as plain SQL."""
    depth = 0

    def blank(match: re.Match[str]) -> str:
        nonlocal depth
        if match["open"] is not None:
            depth += 1
        elif match["close"] is not None and depth:
            depth -= 1
        else:
            return match[0]
        return " " * len(match[0])

    return _LEXEMES[escapes].sub(blank, text)


def unquote(raw: str, *, escapes: bool = True) -> str:
    """Return the value of a quoted string or name: doubled quotes and, in strings, backslash escapes undone."""
    sign, body = raw[0], raw[1:-1]
    if sign == "`" or not escapes:
        return body.replace(sign + sign, sign)
    # A doubled quote counts only outside escapes, so both are undone in one pass.
    pattern = re.compile(rf"\\(.)|{sign}{sign}", re.DOTALL)
    return pattern.sub(lambda match: sign if match[1] is None else _ESCAPES.get(match[1], match[1]), body)


def quote(value: str) -> str:
    """`value` as an SQL string in single quotes that MySQL reads back whatever the SQL mode."""
    return "'" + value.replace("'", "''") + "'"


def tokenize(text: str, *, escapes: bool = True) -> tuple[Token, ...]:
    """Return the tokens of revealed `text`, ended by one END token.

    Raises SqlError at an open quote, an open comment or a malformed literal."""
    try:
        found = DIALECTS[False, not escapes]().tokenize(text)
    except (TokenError, ValueError, IndexError) as error:
        raise fail(
            "unreadable text (an open quote or comment, or a malformed literal)", text, _stop(text, escapes=escapes)
        ) from error
    tokens = [token for raw in found for token in _split(raw, text, escapes=escapes)]
    return (*tokens, Token(TokenKind.END, "", len(text), len(text)))


def _stop(text: str, *, escapes: bool) -> int:
    """Where reading stopped: the first quote or comment that never ends, else the start of the text."""
    rest = _LEXEMES[escapes].sub(lambda match: " " * len(match[0]), text)
    opened = re.search(r"['\"`]|/\*", rest)
    return opened.start() if opened else 0


def _split(raw: GlotToken, text: str, *, escapes: bool) -> Iterator[Token]:
    """One token of sqlglot's as ours; keywords of several words ("PARTITION BY") come apart."""
    start, end = raw.start, raw.end + 1
    source = text[start:end]
    kind = _KINDS.get(raw.token_type)
    if kind is TokenKind.STRING:
        body = source[1:] if source[0] in "nN" else source
        yield Token(kind, unquote(body, escapes=escapes), start, end)
    elif kind is not None:
        yield Token(kind, raw.text, start, end)
    elif source.startswith("`"):
        yield Token(TokenKind.NAME, unquote(source), start, end)
    elif _WORD_START.match(source):
        for word in re.finditer(r"\S+", source):
            yield Token(TokenKind.WORD, word[0], start + word.start(), start + word.end())
    else:
        yield Token(TokenKind.SIGN, source, start, end)
