"""TiDB's lexer: text to tokens, under an SQL mode.

    create table t (a int /*T![auto_rand] auto_random(5) */ default 'it''s') -- c
    WORD   WORD  WORD SIGN ..             WORD        ..    WORD    STRING  SIGN

Comments that TiDB executes are code when it knows every feature they name, and blanks otherwise.  `/*+ .. */` stays, as
HINT.  Under ANSI_QUOTES a text in double quotes is a name; under NO_BACKSLASH_ESCAPES backslashes are plain.

Source: TiDB parser/lexer.go, parser/misc.go; recorded answers of its parser.
"""

import re
from typing import Final

from tidegate.expr.syntax.tokens import Token, TokenKind, fail, unquote

_FEATURES: Final = frozenset(
    """auto_rand auto_id_cache auto_rand_base clustered_index force_inc placement ttl global_index pre_split
    affinity""".split()  # noqa: SIM905
)
_SIGNS: Final = ["<=>", "->>", "->", "<=", ">=", "<>", "!=", "&&", "||", "<<", ">>", ":=", "@@", "*/"]
_LEXEME: Final = r"""
    (?P<blank>[\s\x00]+|\#[^\n]*|--(?=[\s\x00-\x1f]|\Z)[^\n]*)
  | (?P<open>/\*T!(?:\[(?P<features>[^\]]*)\])?|/\*!(?:[0-9]{5,6})?)
  | (?P<hint>/\*\+.*?\*/)
  | (?P<comment>/\*.*?\*/)
  | (?P<name>`(?:[^`]|``)*`)
  | (?P<string>[nN]?(?:STRING))
  | (?P<hex>[xX]'[0-9a-fA-F]*'|0x[0-9a-fA-F]+(?![\w$]))
  | (?P<bits>[bB]'[01]*'|0b[01]+(?![\w$]))
  | (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]+|[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?![\w$]))
  | (?P<null>\\N)
  | (?P<word>[\w$]+)
  | (?P<sign>SIGNS|.)"""


def _compiled(string: str) -> re.Pattern[str]:
    signs = "|".join(map(re.escape, _SIGNS))
    return re.compile(_LEXEME.replace("STRING", string).replace("SIGNS", signs), re.DOTALL | re.VERBOSE)


_ESCAPED: Final = _compiled(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\"""")
_PLAIN: Final = _compiled(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
_LITERALS: Final = {"number": TokenKind.NUMBER, "word": TokenKind.WORD, "sign": TokenKind.SIGN, "hint": TokenKind.HINT}


def lex(text: str, modes: frozenset[str] = frozenset()) -> tuple[Token, ...]:
    """Return the tokens of `text` under the SQL modes `modes`, ended by END; SqlError at an open quote or comment."""
    escapes = "NO_BACKSLASH_ESCAPES" not in modes
    pattern, tokens, at, opened = _ESCAPED if escapes else _PLAIN, list[Token](), 0, 0
    while at < len(text):
        match = pattern.match(text, at)
        if match is None:  # pragma: no cover  the last alternative takes anything
            break
        kind, start, at = match.lastgroup or "", at, match.end()
        if kind in ("features", "open"):
            features = match["features"]
            if features is None or all(name.strip() in _FEATURES for name in features.split(",")):
                opened += 1
            else:
                at = _end_of_comment(text, start)
        elif kind == "sign" and match[0] == "*/" and opened:
            opened -= 1
        elif (kind == "sign" and match[0] in ("'", '"', "`")) or (text.startswith("/*", start) and kind == "sign"):
            raise fail("a quote or comment that never ends", text, start)
        elif kind == "hint" and not (tokens and tokens[-1].word == "SELECT"):
            continue
        elif kind not in ("blank", "comment"):
            tokens.extend(_tokens(kind, match[0], start, at, escapes=escapes, ansi="ANSI_QUOTES" in modes))
    return (*tokens, Token(TokenKind.END, "", len(text), len(text)))


def _end_of_comment(text: str, start: int) -> int:
    end = text.find("*/", start)
    if end < 0:
        raise fail("a comment that never ends", text, start)
    return end + 2


def _tokens(kind: str, raw: str, start: int, end: int, *, escapes: bool, ansi: bool) -> list[Token]:
    """Return the token of one lexeme; a national string is an introducer and a string."""
    if kind == "name":
        return [Token(TokenKind.NAME, unquote(raw), start, end)]
    if kind == "string":
        national = raw[0] in "nN"
        body = raw[1:] if national else raw
        if ansi and body[0] == '"':
            return [Token(TokenKind.NAME, body[1:-1].replace('""', '"'), start, end)]
        string = Token(TokenKind.STRING, unquote(body, escapes=escapes), start, end)
        return [Token(TokenKind.WORD, "_utf8", start, start), string] if national else [string]
    if kind in ("hex", "bits"):
        digits = raw[2:-1] if "'" in raw else raw[2:]
        return [Token(TokenKind.HEX if kind == "hex" else TokenKind.BITS, digits, start, end)]
    if kind == "null":
        return [Token(TokenKind.WORD, "NULL", start, end)]
    return [Token(_LITERALS[kind], raw, start, end)]
