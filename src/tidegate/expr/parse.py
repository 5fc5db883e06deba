"""SQL text as statements, by their kind.

    "USE d; INSERT INTO t VALUES (1); ALTER TABLE t ADD c INT"
        Command("USE", "USE d")   Dml(Insert node, ..)   DdlText("ALTER TABLE t ADD c INT")

Dml is read here, by sqlglot with our dialect.  DdlText goes on to schema/parse_ddl.py; a DDL job keeps its text.
Command is everything else (SET, SHOW, ADMIN, BEGIN, USE ..), recognized by its first words.
Comments that TiDB executes are opened; sql_mode decides what quotes and backslashes mean.
"""

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, TypeAlias

from sqlglot.errors import ParseError

from tidegate.expr.dialect import Node, parse_tokens
from tidegate.expr.tokens import LEADING, OF_TABLES, RESERVED, Token, TokenKind, lex
from tidegate.model.errors import SqlError, SqlRefused

_SYNTAX: Final = 1064
_DML: Final = frozenset({"SELECT", "INSERT", "REPLACE", "UPDATE", "DELETE", "WITH", "(", "VALUES", "TABLE"})
_DDL: Final = frozenset({"CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "RECOVER", "FLASHBACK"})
_ACCOUNTS: Final = frozenset({"USER", "ROLE", "BINDING", "STATISTICS"})
"""Objects whose CREATE, ALTER, DROP and RENAME are no DDL jobs."""
_COMMANDS: Final = frozenset(
    """ADMIN ALTER ANALYZE BACKUP BEGIN BINLOG CALL CANCEL CHECK CHECKSUM COMMIT CREATE DEALLOCATE DESC DESCRIBE DO DROP
    EXECUTE EXPLAIN FLUSH GRANT HELP IMPORT KILL LOAD LOCK OPTIMIZE PREPARE QUERY RELEASE RENAME REPAIR RESTORE REVOKE
    ROLLBACK SAVEPOINT SET SHOW SHUTDOWN SPLIT START TRACE UNLOCK USE WATCH""".split()  # noqa: SIM905
)
_NEAR_BYTES: Final = 2048
"""Maximal length of the text in an error."""
_TABLED: Final = frozenset({"FROM", "UPDATE"})
_OPENING: Final = re.compile(r"/\*(?:T!(?:\[[^\]]*\])?|!(?:[0-9]{5,6})?)\s*")


@dataclass(frozen=True, slots=True)
class Dml:
    """SELECT, INSERT, REPLACE, UPDATE or DELETE."""

    node: Node
    text: str


@dataclass(frozen=True, slots=True)
class DdlText:
    """A statement that becomes a DDL job."""

    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """Any other statement; `kind` is its first word in capitals."""

    kind: str
    text: str


Parsed: TypeAlias = Dml | DdlText | Command


def parse_statements(sql: str, sql_mode: frozenset[str] = frozenset()) -> list[Parsed]:
    """Return the statements of `sql` in their order, empty ones left out; SqlRefused 1064 for a syntax error. Any
    word may be a name."""
    return statements_of(sql, tokens_of(sql, sql_mode))


def tokens_of(sql: str, sql_mode: frozenset[str]) -> tuple[Token, ...]:
    """Return the tokens of `sql`, without the END; SqlRefused 1064 for unreadable text."""
    try:
        return lex(sql, sql_mode)[:-1]
    except SqlError as error:
        raise syntax_error(sql, 0) from error


def statements_of(sql: str, tokens: Iterable[Token], reserved: AbstractSet[str] = frozenset()) -> list[Parsed]:
    """Return the statements in the tokens of `sql`; words of `reserved` cannot be names. SqlRefused 1064."""
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.kind is TokenKind.SIGN and token.text == ";":
            parts.append([])
        else:
            parts[-1].append(token)
    return [_sorted(sql, part, reserved) for part in parts if part]


def parse_expression(text: str, sql_mode: frozenset[str] = frozenset()) -> Node:
    """Return the node of one expression, such as the text of a generated column; SqlRefused 1064."""
    [statement] = parse_statements(f"SELECT {text}", sql_mode)
    if not isinstance(statement, Dml) or len(statement.node.expressions) != 1:
        raise syntax_error(text, 0)
    return statement.node.expressions[0]


def _sorted(sql: str, tokens: Sequence[Token], reserved: AbstractSet[str]) -> Parsed:
    text = sql[_begin(sql, tokens[0].start) : tokens[-1].end]
    first, rest = tokens[0].text.upper(), [token.text.upper() for token in tokens[1:3]]
    if first in _DDL:
        return Command(first, text) if _ACCOUNTS & set(rest) else DdlText(_whole(sql, text, tokens[-1].end))
    if first in _COMMANDS:
        return Command(first, text)
    if first not in _DML:
        raise syntax_error(sql, tokens[0].start)
    last, before = tokens[-1], tokens[-2] if len(tokens) > 1 else tokens[-1]
    if reserved and last.word in LEADING and before.word not in RESERVED:
        raise syntax_error(sql, len(sql))
    if reserved and last.word in OF_TABLES and not any(token.word in _TABLED for token in tokens):
        raise syntax_error(sql, last.start)
    try:
        return Dml(parse_tokens(sql, tokens, reserved), text)
    except ParseError as error:
        offset = error.errors[0]["col"] if error.errors else len(sql)
        raise syntax_error(sql, _blamed(sql, tokens, offset)) from error
    except IndexError as error:  # the text breaks off where sqlglot steps over two tokens at once
        raise syntax_error(sql, len(sql)) from error
    except RecursionError as error:
        raise SqlRefused(_SYNTAX, "the statement is nested too deeply", "42000") from error


def _begin(sql: str, start: int) -> int:
    """Return the offset at which a statement's text begins: before the executed comment that holds its first word, if
    any."""
    opening = sql.rfind("/*", 0, start)
    return opening if opening >= 0 and _OPENING.fullmatch(sql, opening, start) else start


def _whole(sql: str, text: str, end: int) -> str:
    """Return `text`, with the end of the executed comment that its last word is in."""
    close = sql.find("*/", end)
    inside = text.count("/*") > text.count("*/")
    return text + sql[end : close + 2] if inside and close >= 0 and not sql[end:close].strip() else text


def _blamed(sql: str, tokens: Sequence[Token], offset: int) -> int:
    """Return the offset at which a parser with one token of lookahead reports an error at `offset`: behind a word with
    an operand."""
    index = next((number for number, token in enumerate(tokens) if token.start == offset), 0)
    if index and tokens[index].word in LEADING and tokens[index - 1].word not in RESERVED:
        return tokens[index + 1].start if index + 1 < len(tokens) else len(sql)
    return offset


def syntax_error(sql: str, offset: int, reason: str = "") -> SqlRefused:
    """Return a syntax error in TiDB's words; `offset` is that of the token that it names.
    `reason` is appended, except for a reserved word."""
    try:
        tokens = lex(sql)[:-1]
    except SqlError:
        tokens = ()
    blamed = next((token for token in tokens if token.start >= offset), None)
    end = len(sql) if blamed is None else blamed.end
    line, begins = sql.count("\n", 0, end) + 1, sql.rfind("\n", 0, end) + 1
    near = sql[offset:].encode("utf-8", "surrogateescape")
    whole = f"(total length {len(near)})" if len(near) > _NEAR_BYTES else ""
    cause = "" if blamed is not None and blamed.word in RESERVED else reason
    return SqlRefused(
        _SYNTAX,
        "You have an error in your SQL syntax; check the manual that corresponds to your TiDB version for the right "
        f"syntax to use line {line} column {len(sql[begins:end].encode('utf-8', 'surrogateescape'))} "
        f'near "{near[:_NEAR_BYTES].decode("utf-8", "ignore")}"{cause} {whole}',
        "42000",
    )
