"""Grammar of sequences: CREATE, ALTER and DROP SEQUENCE.

    CREATE SEQUENCE s START 1 INCREMENT BY 2 NOCACHE        SequenceDef(start=1, increment=2, cache=0)

Change capture passes sequences over, so a text that this grammar does not know is read no further and no error.
Source: TiDB parser/parser.y (CreateSequenceStmt, SequenceOption).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tidegate.expr.syntax.tokens import TokenKind
from tidegate.schema.cursor import Cursor
from tidegate.schema.detail import DropSequences, SequenceDef, StatementDetail

__all__ = ["read_sequence"]

_NUMBERED: Final[Mapping[str, str]] = {
    "START WITH": "start",
    "START": "start",
    "INCREMENT BY": "increment",
    "INCREMENT": "increment",
    "MINVALUE": "minimum",
    "MAXVALUE": "maximum",
    "CACHE": "cache",
    "RESTART WITH": "restart",
    "RESTART": "restart",
}
_WORDS: Final[Mapping[str, Mapping[str, object]]] = {
    "NO MINVALUE": {},
    "NOMINVALUE": {},
    "NO MAXVALUE": {},
    "NOMAXVALUE": {},
    "NO CACHE": {"cache": 0},
    "NOCACHE": {"cache": 0},
    "NO CYCLE": {"cycle": False},
    "NOCYCLE": {"cycle": False},
    "CYCLE": {"cycle": True},
}


def read_sequence(cursor: Cursor, default_schema: str) -> StatementDetail | None:
    """Return what the statement at the cursor says, moving into it; None if it is none of ours."""
    verb = cursor.accept("CREATE", "ALTER", "DROP")
    if not (verb and cursor.accept("SEQUENCE")):
        return None
    passed = cursor.accept("IF NOT EXISTS", "IF EXISTS") != ""
    if not cursor.is_name():
        return None
    name = cursor.qualified().within(default_schema)
    if verb == "DROP":
        names = [name]
        while cursor.sign(",") and cursor.is_name():
            names.append(cursor.qualified().within(default_schema))
        return DropSequences(tuple(names), passed)
    found = SequenceDef(name, verb == "ALTER", passed)
    while (more := _read_option(cursor, found)) is not None:
        found = more
    return found


def _read_option(cursor: Cursor, found: SequenceDef) -> SequenceDef | None:
    word = cursor.accept(*_WORDS)
    if word:
        return replace(found, **_WORDS[word])  # type: ignore[arg-type]
    option = cursor.accept(*_NUMBERED)
    if option:
        cursor.sign("=")
        sign = -1 if cursor.sign("-") else 1
        if cursor.peek().kind is not TokenKind.NUMBER or not cursor.peek().text.isdigit():
            return replace(found, restart=found.start) if option == "RESTART" else None
        return replace(found, **{_NUMBERED[option]: sign * cursor.integer()})  # type: ignore[arg-type]
    if cursor.accept("COMMENT"):
        cursor.sign("=")
        return replace(found, comment=cursor.next().text)
    return None
