"""SQL text as statements, and what kind each one is.

    "USE d; INSERT INTO t VALUES (1); ALTER TABLE t ADD c INT"
        Command("USE", "USE d")   Dml(Insert node, ..)   DdlText("ALTER TABLE t ADD c INT")

Dml is read here, by sqlglot with our dialect.  DdlText goes on to schema/parse/ddl.py, and its text is what a DDL
job keeps.  Command is everything else (SET, SHOW, ADMIN, BEGIN, USE ..), told by its first words.
Comments that TiDB executes are opened; sql_mode decides what quotes and backslashes mean.
"""

import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from sqlglot.errors import ParseError, TokenError
from sqlglot.tokens import Token, TokenType

from tidegate.expr.syntax.dialect import DIALECTS, SIGNS, Node
from tidegate.expr.syntax.tokens import reveal
from tidegate.model.errors import SqlRefused

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
_NEAR: Final = 80
_EXPONENT: Final = re.compile(
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`[^`]*`|((?<![\w.])(?:\d+\.?\d*|\.\d+)[eE]\d+)([+-])""", re.DOTALL
)
"""A sign right behind a number with an exponent; quoted parts are stepped over."""


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


class Tokens(NamedTuple):
    """A text with its executed comments opened, its tokens, and the dialect that reads them."""

    opened: str
    tokens: list[Token]
    dialect: Any
    mode: tuple[bool, bool]


def parse(sql: str, sql_mode: frozenset[str] = frozenset()) -> list[Parsed]:
    """Return the statements of `sql` in their order, empty ones left out; SqlRefused 1064 for what is none."""
    return statements_of(sql, tokens_of(sql, sql_mode))


def tokens_of(sql: str, sql_mode: frozenset[str]) -> Tokens:
    """Return the tokens of `sql`; SqlRefused 1064 for what is none."""
    plain = "NO_BACKSLASH_ESCAPES" in sql_mode
    mode = "ANSI_QUOTES" in sql_mode, plain
    dialect = DIALECTS[mode]()
    opened = _EXPONENT.sub(_apart, reveal(sql, escapes=not plain))
    try:
        return Tokens(opened, dialect.tokenize(opened), dialect, mode)
    except (TokenError, ValueError, IndexError) as error:
        raise _refused(sql, 0) from error


def statements_of(sql: str, found: Tokens) -> list[Parsed]:
    """Return the statements that the tokens of `sql` are; SqlRefused 1064."""
    return [_sorted(sql, found.opened, part, found.dialect) for part in _split(found.tokens)]


def _apart(found: re.Match[str]) -> str:
    return found[0] if found[1] is None else f"{found[1]}{SIGNS[found[2]]}"


def parse_expression(text: str, sql_mode: frozenset[str] = frozenset()) -> Node:
    """Return the node of one expression, such as the text of a generated column; SqlRefused 1064."""
    [found] = parse(f"SELECT {text}", sql_mode)
    if not isinstance(found, Dml) or len(found.node.expressions) != 1:
        raise _refused(text, 0)
    return found.node.expressions[0]


def _split(tokens: list[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _sorted(sql: str, opened: str, tokens: list[Token], dialect: object) -> Parsed:
    text = sql[_begin(sql, opened, tokens[0].start) : tokens[-1].end + 1]
    words = [word for token in tokens[:4] for word in token.text.upper().split()]
    first, rest = words[0], words[1:]
    if first in _DDL:
        return Command(first, text) if _ACCOUNTS & set(rest[:2]) else DdlText(_whole(sql, text, tokens))
    if first in _COMMANDS:
        return Command(first, text)
    if first not in _DML:
        raise _refused(sql, tokens[0].start)
    try:
        [node] = dialect.parser().parse(tokens, opened)  # type: ignore[attr-defined]
    except ParseError as error:
        place = error.errors[0] if error.errors else {}
        raise _refused(sql, _offset(sql, place.get("line"), place.get("col"), tokens)) from error
    except RecursionError as error:
        raise SqlRefused(_SYNTAX, "the statement is nested too deeply", "42000") from error
    return Dml(node, text)


def _begin(sql: str, opened: str, start: int) -> int:
    """Where a statement's text begins: at the comment that TiDB opened, where its first word stands in one."""
    at = sql.rfind("/*", 0, start)
    return at if at >= 0 and "*/" not in sql[at:start] and not opened[at:start].strip() else start


def _whole(sql: str, text: str, tokens: list[Token]) -> str:
    """`text` with the executed comment that it may end in closed again."""
    end = tokens[-1].end + 1
    close = sql.find("*/", end)
    inside = text.count("/*") > text.count("*/")
    return text + sql[end : close + 2] if inside and close >= 0 and not sql[end:close].strip() else text


def _offset(sql: str, line: int | None, column: int | None, tokens: list[Token]) -> int:
    """The offset of the token that ends at a line and column of sqlglot's."""
    for token in tokens:
        if token.line == line and token.col == column:
            return int(token.start)
    return len(sql)


def _refused(sql: str, at: int) -> SqlRefused:
    near, line = sql[at : at + _NEAR], sql.count("\n", 0, at) + 1
    return SqlRefused(
        _SYNTAX,
        "You have an error in your SQL syntax; check the manual that corresponds to your TiDB version for the right "
        f'syntax to use line {line} column {at - sql.rfind(chr(10), 0, at)} near "{near}"',
        "42000",
    )
