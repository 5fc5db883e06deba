"""Prepared statements as texts: where their parameters stand, and the statement with literals in those places.

    prepare   INSERT INTO t VALUES (?, 'why?', ?)           places 23 and 34; the one in the string is text
    bound     INSERT INTO t VALUES (7, 'why?', 'it''s')

    PREPARE s FROM 'SELECT ?'; EXECUTE s USING @a; DEALLOCATE PREPARE s        by name, within a session
    COM_STMT_PREPARE, COM_STMT_EXECUTE                                         by number: server/prepared.py

Values become literals in the text, so that a statement means the same prepared and plain.

Source: MySQL manual, "Prepared Statements".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from sqlglot.errors import TokenError
from sqlglot.tokens import TokenType

from tidegate.expr.syntax.dialect import DIALECTS
from tidegate.expr.syntax.tokens import reveal
from tidegate.model.errors import SqlRefused

__all__ = ["Bound", "Prepared", "bind"]

Bound: TypeAlias = int | float | str | bytes | None
"""A parameter; `bytes` stand for text, as the client encoded it."""
_WRONG_ARGUMENTS: Final = 1210


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement and the offsets of its parameters."""

    sql: str
    places: tuple[int, ...]

    @classmethod
    def of(cls, sql: str, sql_mode: frozenset[str]) -> "Prepared":
        """Return the statement, its parameters found. Raises SqlRefused 1064 for unreadable text."""
        plain = "NO_BACKSLASH_ESCAPES" in sql_mode
        try:
            tokens = DIALECTS["ANSI_QUOTES" in sql_mode, plain]().tokenize(reveal(sql, escapes=not plain))
        except (TokenError, ValueError, IndexError) as error:
            raise SqlRefused(1064, f"the statement cannot be read: {error}", "42000") from error
        return cls(sql, tuple(token.start for token in tokens if token.token_type is TokenType.PLACEHOLDER))


def bind(statement: Prepared, values: Sequence[Bound], sql_mode: frozenset[str], charset: str = "utf-8") -> str:
    """Return the text of the statement with literals in the places of its parameters. Raises SqlRefused 1210."""
    if len(values) != len(statement.places):
        raise SqlRefused(_WRONG_ARGUMENTS, "Incorrect arguments to EXECUTE")
    parts, last = [], 0
    for place, value in zip(statement.places, values, strict=True):
        parts += [statement.sql[last:place], _literal(value, sql_mode, charset)]
        last = place + 1
    return "".join([*parts, statement.sql[last:]])


def _literal(value: Bound, sql_mode: frozenset[str], charset: str) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        raw = value
        try:
            value = raw.decode(charset)
        except UnicodeDecodeError:
            return f"x'{raw.hex()}'"
    if isinstance(value, str):
        text = value.replace("'", "''")
        return f"'{text if 'NO_BACKSLASH_ESCAPES' in sql_mode else text.replace(chr(92), chr(92) * 2)}'"
    return f"{value!r}e0" if isinstance(value, float) and "e" not in repr(value) else repr(value)
