"""Lexer of TiDB's SQL: words, names, literals and signs, each with its position in the text.

    ALTER TABLE `t` ADD c BIT(3) DEFAULT b'101' /*T![auto_rand] AUTO_RANDOM(5) */ -- x
    WORD  WORD  NAME WORD ..        WORD BITS                   WORD SIGN NUMBER SIGN

Comments that TiDB executes (`/*T! .. */`, `/*T![feature] .. */`, `/*! .. */`, `/*!40101 .. */`) are code; `/*+ .. */`
after SELECT stays, as HINT; other comments are blanks.  Under ANSI_QUOTES a text in double quotes is a name; under
NO_BACKSLASH_ESCAPES backslashes are plain.

Invariants: tokens lie in order and do not overlap; `text[token.start : token.end]` is the source of a token; only
SqlError leaves this module.

The tables of words are those that the parser needs: reserved words, functions without brackets, and units.  RESERVED
are the words that a TiDB 8.5 refused as names.

Source: TiDB parser/lexer.go and parser/misc.go (special comments, introducers); MySQL manual, "Literal Values",
"Keywords and Reserved Words", "Temporal Intervals"; recorded answers of TiDB's parser.
"""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Final, NamedTuple

from tidegate.model.errors import SqlError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NO_OPERANDS: Final = _words(
    """ADD ALL ALTER ANALYZE AND AS ASC BETWEEN BOTH BY CASCADE CHANGE CHECK COLLATE COLUMN CONSTRAINT CREATE CROSS
    DATABASES DELETE DESC DESCRIBE DISTINCT DISTINCTROW DIV DROP DUAL ELSE ELSEIF ENCLOSED ESCAPED EXCEPT EXPLAIN
    FETCH FOR FORCE FOREIGN FROM FULLTEXT GRANT GROUP HAVING IGNORE IN INDEX INFILE INNER INSERT INTERSECT INTO IS
    JOIN KEYS KILL LEADING LIKE LIMIT LINES LOAD LOCK NATURAL NOT ON OPTIMIZE OR ORDER OUTER OUTFILE PARTITION
    PRIMARY PROCEDURE RANGE READ REFERENCES REGEXP RELEASE RENAME REQUIRE RESTRICT REVOKE RLIKE SELECT SEPARATOR SET
    SHOW STARTING STORED STRAIGHT_JOIN TABLE TERMINATED THEN TO TRAILING TRIGGER UNION UNIQUE UNLOCK UPDATE USAGE
    USE USING VIRTUAL WHEN WHERE WHILE WITH WRITE XOR"""
)
"""Words that never begin an operand, even where they may be names."""
RESERVED: Final = _words(
    """ADD ALL ALTER ANALYZE AND ARRAY AS ASC BETWEEN BIGINT BINARY BLOB BOTH BY CALL CASCADE CASE CHANGE CHAR
    CHARACTER CHECK COLLATE COLUMN CONSTRAINT CONTINUE CONVERT CREATE CROSS CUME_DIST CURRENT_DATE CURRENT_ROLE
    CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER CURSOR DATABASE DATABASES DAY_HOUR DAY_MICROSECOND DAY_MINUTE
    DAY_SECOND DECIMAL DEFAULT DELAYED DELETE DENSE_RANK DESC DESCRIBE DISTINCT DISTINCTROW DIV DOUBLE DROP DUAL
    ELSE ELSEIF ENCLOSED ESCAPED EXCEPT EXISTS EXIT EXPLAIN FALSE FETCH FIRST_VALUE FLOAT FLOAT4 FLOAT8 FOR
    FORCE FOREIGN FROM FULLTEXT GENERATED GRANT GROUP GROUPS HAVING HIGH_PRIORITY HOUR_MICROSECOND HOUR_MINUTE
    HOUR_SECOND IF IGNORE ILIKE IN INDEX INFILE INNER INOUT INSERT INT INT1 INT2 INT3 INT4 INT8 INTEGER
    INTERSECT INTERVAL INTO IS ITERATE JOIN KEY KEYS KILL LAG LAST_VALUE LEAD LEADING LEAVE LEFT LIKE LIMIT
    LINEAR LINES LOAD LOCALTIME LOCALTIMESTAMP LOCK LONG LONGBLOB LONGTEXT LOW_PRIORITY MATCH MAXVALUE
    MEDIUMBLOB MEDIUMINT MEDIUMTEXT MIDDLEINT MINUTE_MICROSECOND MINUTE_SECOND MOD NATURAL NOT
    NO_WRITE_TO_BINLOG NTH_VALUE NTILE NULL NUMERIC OF ON OPTIMIZE OPTION OPTIONALLY OR ORDER OUT OUTER OUTFILE
    OVER PARTITION PERCENT_RANK PRECISION PRIMARY PROCEDURE RANGE RANK READ REAL RECURSIVE REFERENCES REGEXP
    RELEASE RENAME REPEAT REPLACE REQUIRE RESTRICT REVOKE RIGHT RLIKE ROW ROWS ROW_NUMBER SECOND_MICROSECOND
    SELECT SET SHOW SMALLINT SPATIAL SQL SQLEXCEPTION SQLSTATE SQLWARNING SQL_BIG_RESULT SQL_CALC_FOUND_ROWS
    SQL_SMALL_RESULT SSL STARTING STORED STRAIGHT_JOIN TABLE TABLESAMPLE TERMINATED THEN TIDB_CURRENT_TSO
    TINYBLOB TINYINT TINYTEXT TO TRAILING TRIGGER TRUE UNION UNIQUE UNLOCK UNSIGNED UNTIL UPDATE USAGE USE USING
    UTC_DATE UTC_TIME UTC_TIMESTAMP VALUES VARBINARY VARCHAR VARCHARACTER VARYING VIRTUAL WHEN WHERE WHILE
    WINDOW WITH WRITE XOR YEAR_MONTH ZEROFILL"""
)
"""Words that TiDB accepts as names only in backquotes, or beside a dot."""
LEADING: Final = _words(
    """AND AS BETWEEN COLLATE DIV EXCEPT FETCH FOR FROM GROUP HAVING ILIKE IN INTERSECT INTO IS LIKE LIMIT LOCK MOD NOT
    OR ORDER REGEXP RLIKE UNION WHERE XOR"""
)
"""Reserved words that continue an operand or a SELECT: an error is reported at the token after them."""
OF_TABLES: Final = _words("JOIN STRAIGHT_JOIN TABLESAMPLE WINDOW")
"""Reserved words that may follow a table."""
NOW: Final = _words(
    """CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER CURRENT_ROLE LOCALTIME LOCALTIMESTAMP UTC_DATE UTC_TIME
    UTC_TIMESTAMP"""
)
"""Functions that need no brackets."""
UNITS: Final = _words(
    """MICROSECOND SECOND MINUTE HOUR DAY WEEK MONTH QUARTER YEAR SECOND_MICROSECOND MINUTE_MICROSECOND MINUTE_SECOND
    HOUR_MICROSECOND HOUR_SECOND HOUR_MINUTE DAY_MICROSECOND DAY_SECOND DAY_MINUTE DAY_HOUR YEAR_MONTH
    SQL_TSI_SECOND SQL_TSI_MINUTE SQL_TSI_HOUR SQL_TSI_DAY SQL_TSI_WEEK SQL_TSI_MONTH SQL_TSI_QUARTER SQL_TSI_YEAR"""
)
"""Units of INTERVAL."""


_SIGNS: Final = ["<=>", "->>", "->", "<=", ">=", "<>", "!=", "&&", "||", "<<", ">>", ":=", "@@", "*/"]
# No backtracking: a lexeme does not give back characters, so the time is linear in the text's length.
_LEXEME: Final = r"""
    (?P<blank>[\s\x00]+|\#[^\n]*|--(?=[\s\x00-\x1f]|\Z)[^\n]*)
  | (?P<open>/\*T!(?:\[(?P<features>[\w,\ ]*)\])?|/\*!(?:[0-9]{5,6})?)
  | (?P<hint>/\*\+.*?\*/)
  | (?P<comment>/\*.*?\*/)
  | (?P<name>`(?:[^`]++|``)*+`)
  | (?P<string>[nN]?(?:STRING))
  | (?P<hex>[xX]'[0-9a-fA-F]*'|0x[0-9a-fA-F]+(?![\w$]))
  | (?P<bits>[bB]'[01]*'|0b[01]+(?![\w$]))
  | (?P<number>(?:[0-9]++(?:\.[0-9]*+)?|POINT)[eE][+-]?[0-9]+|[0-9]+\.[0-9]*|POINT|[0-9]+(?![\w$]))
  | (?P<null>\\N)
  | (?P<broken>['"`]|/\*|[xXbB]')
  | (?P<word>[\w$\x80-\U0010ffff]+)
  | (?P<sign>SIGNS|.)"""
_POINT: Final = r"(?<![\w$`])\.[0-9]+"
"""A number that begins with its point, which is not possible after a name."""
_ESCAPES: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def _compiled(string: str) -> re.Pattern[str]:
    signs = "|".join(map(re.escape, _SIGNS))
    lexeme = _LEXEME.replace("STRING", string).replace("SIGNS", signs).replace("POINT", _POINT)
    return re.compile(lexeme, re.DOTALL | re.VERBOSE)


_ESCAPED: Final = _compiled(r"""'(?:[^'\\]++|\\.|'')*+'|"(?:[^"\\]++|\\.|"")*+\"""")
_PLAIN: Final = _compiled(r"""'(?:[^']++|'')*+'|"(?:[^"]++|"")*+\"""")


class TokenKind(Enum):
    """Kinds of tokens."""

    WORD = "word"
    """An unquoted word: keyword or name, as the grammar decides."""
    NAME = "name"
    """A name in backquotes."""
    STRING = "string"
    NUMBER = "number"
    HEX = "hex"
    BITS = "bits"
    SIGN = "sign"
    HINT = "hint"
    """A comment that begins with /*+, after SELECT."""
    END = "end"


class Token(NamedTuple):
    """A token; `text` is the word as written, the unquoted name or string, the digits of a literal, or the sign."""

    kind: TokenKind
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The word in capitals; "" for everything that is not an unquoted word."""
        return self.text.upper() if self.kind is TokenKind.WORD else ""


def is_reserved(tokens: Sequence[Token], index: int, reserved: AbstractSet[str]) -> bool:
    """Return whether a token is a word of `reserved`, and not part of a qualified name."""
    token, after = tokens[index], tokens[index + 1] if index + 1 < len(tokens) else None
    if token.word not in reserved:
        return False
    is_before = after is not None and after.text == "." and after.start == token.end
    return not is_before and not (index and tokens[index - 1].text == "." and tokens[index - 1].kind is TokenKind.SIGN)


def lex(
    text: str, modes: AbstractSet[str] = frozenset(), features: AbstractSet[str] | None = None
) -> tuple[Token, ...]:
    """Return the tokens of `text` under the SQL modes `modes`, ended by one END token.

    Comments of features that are not in `features` are blanks; None stands for all features.  Raises SqlError at an
    open quote, an open comment or a malformed literal."""
    escapes, ansi = "NO_BACKSLASH_ESCAPES" not in modes, "ANSI_QUOTES" in modes
    pattern, tokens, offset, opened = _ESCAPED if escapes else _PLAIN, list[Token](), 0, 0
    while offset < len(text):
        match = pattern.match(text, offset)
        assert match is not None  # the last alternative takes anything
        kind, start, offset, raw = match.lastgroup or "", offset, match.end(), match[0]
        if kind in ("features", "open"):
            named = match["features"]
            if features is None or named is None or all(name.strip() in features for name in named.split(",")):
                opened += 1
            elif (offset := text.find("*/", start) + 2) < 2:
                raise fail("a comment that never ends", text, start)
        elif raw == "*/" and opened:
            opened -= 1
        elif kind == "broken":
            raise fail("unreadable text (an open quote or comment, or a malformed literal)", text, start)
        elif kind in _KINDS:
            tokens.append(Token(_KINDS[kind], raw, start, offset))
        elif kind in ("name", "string"):
            tokens.extend(_quoted(raw, start, offset, escapes=escapes, ansi=ansi))
        elif kind in ("hex", "bits"):
            digits = raw[2:-1] if "'" in raw else raw[2:]
            tokens.append(Token(TokenKind.HEX if kind == "hex" else TokenKind.BITS, digits, start, offset))
        elif kind == "null":
            tokens.append(Token(TokenKind.WORD, "NULL", start, offset))
        elif kind == "hint" and tokens and tokens[-1].word == "SELECT":
            tokens.append(Token(TokenKind.HINT, raw, start, offset))
    return (*tokens, Token(TokenKind.END, "", len(text), len(text)))


_KINDS: Final = {"number": TokenKind.NUMBER, "word": TokenKind.WORD, "sign": TokenKind.SIGN}


def _quoted(raw: str, start: int, end: int, *, escapes: bool, ansi: bool) -> list[Token]:
    """Return the token of a name or string; a national string is an introducer and a string."""
    if raw[0] == "`" or (ansi and raw[0] == '"'):
        return [Token(TokenKind.NAME, unquote(raw, escapes=False), start, end)]
    if raw[0] in "nN":
        string = _quoted(raw[1:], start + 1, end, escapes=escapes, ansi=ansi)
        return [Token(TokenKind.WORD, "_utf8", start, start), *string]
    return [Token(TokenKind.STRING, unquote(raw, escapes=escapes), start, end)]


def fail(what: str, text: str, offset: int) -> SqlError:
    """Return the error for `text` at `offset`, with the position and the text found there."""
    line = text.count("\n", 0, offset) + 1
    near = " ".join(text[offset : offset + 40].split()) or "the end"
    error = SqlError(f"{what} at offset {offset} (line {line}) near {near!r}")
    error.offset = offset
    return error


def unquote(raw: str, *, escapes: bool = True) -> str:
    """Return the value of a quoted string or name: doubled quotes and, in strings, backslash escapes undone."""
    sign, body = raw[0], raw[1:-1]
    if sign == "`" or not escapes:
        return body.replace(sign + sign, sign)
    # A doubled quote counts only outside escapes, so both are undone in one pass.
    pattern = re.compile(rf"\\(.)|{sign}{sign}", re.DOTALL)
    return pattern.sub(lambda match: sign if match[1] is None else _ESCAPES.get(match[1], match[1]), body)


def quote_name(name: str) -> str:
    """Return the name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def quote_names(*names: str) -> str:
    """Return the path of an object in backquotes: `` `shop`.`orders` ``."""
    return ".".join(map(quote_name, names))


def quote(value: str) -> str:
    """Return `value` as an SQL string in single quotes that MySQL reads back in any SQL mode."""
    return "'" + value.replace("'", "''") + "'"
