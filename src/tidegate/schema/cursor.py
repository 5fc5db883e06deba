"""Cursor over the tokens of a statement list, and the grammar of keys and checks that several rules share.

Rules compare words, not sqlglot's token types, because any word may be a name: `accept` and `expect` compare unquoted
words without case, `name` takes any token that can be a name.  `slice` returns the user's own text.

Invariant: the position only moves forward, so no rule loops.

    [CONSTRAINT x] PRIMARY KEY | UNIQUE | INDEX .. (part, ..) | FOREIGN KEY | CHECK

    UNIQUE KEY `u` (`a`(10), (lower(`b`)) DESC) USING BTREE COMMENT 'x' /*!80000 INVISIBLE */
                    column   expression         ^ options in any order, as MySQL takes them

Expressions are skipped by balanced parentheses and kept as the user's text.

Source: TiDB parser/parser.y (Constraint, IndexOption, ReferDef).
"""

import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Self, TypeVar

from tidegate.expr.tokens import Token, TokenKind, fail, is_reserved, lex
from tidegate.model.errors import SqlError
from tidegate.model.name import all_digits
from tidegate.model.table import TableName
from tidegate.schema.statement import CheckDef, IndexDef, IndexDetail, References

_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")
_EXECUTED: Final = re.compile(r"/\*T?!|\A[^/]*\*/")
"""Begin and end of an executed comment, in the text between two tokens."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Qualified:
    """A table name as written: `schema` is None where the text leaves it to the session."""

    schema: str | None
    table: str

    def within(self, default_schema: str) -> TableName:
        """Return the full name, with `default_schema` where none was written."""
        return TableName(default_schema if self.schema is None else self.schema, self.table)


class Cursor:
    """Tokens of a text, read under SQL modes, and a position. Words of `reserved` are names only in quotes, `schema` is
    the database of tables without one."""

    __slots__ = ("position", "reserved", "schema", "text", "tokens", "words")

    def __init__(
        self,
        text: str,
        modes: AbstractSet[str] = frozenset(),
        features: AbstractSet[str] | None = None,
        reserved: AbstractSet[str] = frozenset(),
        schema: str = "",
    ) -> None:
        self.text, self.tokens, self.position, self.reserved = text, lex(text, modes, features), 0, reserved
        self.schema = schema
        self.words = tuple(token.word for token in self.tokens)

    def peek(self, ahead: int = 0) -> Token:
        """Return the token `ahead` positions from here; END beyond the last one."""
        return self.tokens[min(self.position + ahead, len(self.tokens) - 1)]

    def next(self) -> Token:
        """Return the token here, moving past it."""
        token = self.peek()
        if token.kind is not TokenKind.END:
            self.position += 1
        return token

    def error(self, what: str) -> SqlError:
        """Return an error that names this position."""
        return fail(what, self.text, self.peek().start)

    def done(self) -> bool:
        """Return True at the end of the statement: `;` or the end of the text."""
        return self.peek().kind is TokenKind.END or self.is_sign(";")

    def is_sign(self, sign: str, ahead: int = 0) -> bool:
        """Return True if the next token is that sign."""
        token = self.peek(ahead)
        return token.kind is TokenKind.SIGN and token.text == sign

    def sign(self, sign: str) -> bool:
        """Move past that sign if it is here; return whether it was."""
        accepted = self.is_sign(sign)
        self.position += accepted
        return accepted

    def expect_sign(self, sign: str) -> None:
        """Move past `sign`; SqlError for any other token."""
        if not self.sign(sign):
            raise self.error(f"expected {sign!r}")

    def looking_at(self, words: str, ahead: int = 0) -> bool:
        """Return True if the next tokens are these words (capitals, separated by blanks)."""
        expected, start = tuple(words.split()), self.position + ahead
        return self.words[start : start + len(expected)] == expected

    def accept(self, *alternatives: str) -> str:
        """Return the first alternative that matches the next tokens, moving past it; "" if none does."""
        first = self.words[self.position]
        for words in alternatives if first else ():
            if words.startswith(first) and self.looking_at(words):
                self.position += len(words.split())
                return words
        return ""

    def expect(self, *alternatives: str) -> str:
        """Return the alternative that matches the next tokens, moving past it; SqlError if none does."""
        word = self.accept(*alternatives)
        if not word:
            raise self.error("expected " + " or ".join(alternatives))
        return word

    def is_name(self, ahead: int = 0) -> bool:
        """Return True if the token there can be a name (a double-quoted one counts: ANSI_QUOTES)."""
        token = self.peek(ahead)
        if token.kind is TokenKind.WORD:
            return not is_reserved(self.tokens, self.position + ahead, self.reserved)
        return token.kind is TokenKind.NAME or (
            token.kind is TokenKind.STRING and self.text[token.start] == '"' and token.text != ""
        )

    def name(self, what: str = "a name") -> str:
        """Return the name here, moving past it."""
        if not self.is_name():
            raise self.error(f"expected {what}")
        return self.next().text

    def word(self, what: str) -> str:
        """Return the word or name here, a reserved word too, moving past it."""
        if not self.is_name() and not self.peek().word:
            raise self.error(f"expected {what}")
        return self.next().text

    def qualified(self) -> Qualified:
        """`table` or `schema.table` here, moving past it."""
        first = self.name("a table name")
        return Qualified(first, self.name("a table name")) if self.sign(".") else Qualified(None, first)

    def table_name(self) -> TableName:
        """Return the full name of the table here, moving past it."""
        return self.qualified().within(self.schema)

    def first_of(self, rules: Mapping[str, Callable[[Self], T]]) -> T | None:
        """Apply the rule whose leading words are here; None if none are."""
        words = self.accept(*rules)
        return rules[words](self) if words else None

    def several(self, read: Callable[["Cursor"], T]) -> tuple[T, ...]:
        """Return the results of `read` for a comma-separated list here, moving past it."""
        items = [read(self)]
        while self.sign(","):
            items.append(read(self))
        return tuple(items)

    def names(self) -> tuple[str, ...]:
        """Return a comma-separated list of names, moving past it."""
        return self.several(Cursor.name)

    def group(self, read: Callable[["Cursor"], T]) -> tuple[T, ...]:
        """Return the results of `read` for each item of `(.., ..)` here, moving past it."""
        self.expect_sign("(")
        items = self.several(read)
        self.expect_sign(")")
        return items

    def string(self) -> str:
        """Return the string here, after an optional `=` and introducer, moving past it."""
        self.sign("=")
        if self.peek().word.startswith("_"):
            self.next()
        if self.peek().kind is not TokenKind.STRING:
            raise self.error("expected a string")
        return self.next().text

    def integer(self, what: str = "a number") -> int:
        """Return the unsigned integer here, moving past it."""
        token = self.peek()
        if (
            token.kind is not TokenKind.NUMBER
            or not token.text.isascii()
            or not all_digits(token.text)
            or len(token.text) > 20
        ):
            raise self.error(f"expected {what}")
        return int(self.next().text)

    def slice(self, start: int) -> str:
        """Return the user's text from token `start` up to here, without surrounding blanks; of comments that TiDB
        executes only the contents."""
        parts = [self.text[token.start : token.end] for token in self.tokens[start : min(start + 1, self.position)]]
        for before, token in pairwise(self.tokens[start : self.position]):
            gap = self.text[before.end : token.start]
            parts += [" " if _EXECUTED.search(gap) else gap, self.text[token.start : token.end]]
        return "".join(parts)

    def rest(self) -> str:
        """Return the user's text up to the end of the statement, moving past it."""
        start = self.position
        while not self.done():
            self.position += 1
        return self.slice(start)

    def skip_group(self) -> str:
        """Move past a parenthesised group; the text between its outer parentheses."""
        self.expect_sign("(")
        start = self.position
        self.skip_balanced()
        inside = self.slice(start)
        self.expect_sign(")")
        return inside

    def skip_balanced(self, *stops: str) -> None:
        """Move to the next of the signs `stops`, closing sign or end of the statement outside any parentheses."""
        depth = 0
        while self.peek().kind is not TokenKind.END:
            token = self.peek()
            sign = token.text if token.kind is TokenKind.SIGN else ""
            if depth == 0 and (sign in _CLOSING or sign == ";" or (sign and sign in stops)):
                return
            depth += (sign in _OPENING and sign != "") - (sign in _CLOSING and sign != "")
            self.position += 1


_CONSTRAINTS: Final = frozenset({"CONSTRAINT", "PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "FOREIGN", "CHECK"})
_REFERENCE_ACTIONS: Final = tuple(
    f"ON {event} {action}"
    for event in ("DELETE", "UPDATE")
    for action in ("CASCADE", "RESTRICT", "SET NULL", "SET DEFAULT", "NO ACTION")
)
_VALUED_INDEX_OPTIONS: Final = (
    *("USING", "TYPE", "KEY_BLOCK_SIZE", "WITH PARSER", "ALGORITHM", "LOCK", "COMMENT"),
    *("PRE_SPLIT_REGIONS", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"),
)
_INDEX_SETTINGS: Final[Mapping[str, Mapping[str, bool]]] = {
    "VISIBLE": {"visible": True},
    "INVISIBLE": {"visible": False},
    "CLUSTERED": {"clustered": True},
    "NONCLUSTERED": {"clustered": False},
    "LOCAL": {},
    "ADD_COLUMNAR_REPLICA_ON_DEMAND": {},
}
"""Options that are words alone, and the fields of IndexDef that they set."""


def read_check(cursor: Cursor, name: str | None, *, in_column: bool = False) -> CheckDef:
    """Return the check of that name after CHECK at the cursor, moving past it."""
    expression = cursor.skip_group()
    enforced = cursor.accept("NOT ENFORCED", "ENFORCED") != "NOT ENFORCED"
    return CheckDef(name, expression, enforced, in_column)


def read_references(cursor: Cursor) -> References:
    """Return the rest of REFERENCES: the table, its columns, MATCH and the actions; moving past it."""
    table = cursor.qualified()
    columns = _read_parts(cursor)[0] if cursor.is_sign("(") else ()
    if cursor.accept("MATCH"):
        cursor.word("FULL, PARTIAL or SIMPLE")
    actions = {"DELETE": "", "UPDATE": ""}
    while action := cursor.accept(*_REFERENCE_ACTIONS):
        _, event, what = action.split(" ", 2)
        actions[event] = what
    return References(table.schema, table.table, columns, actions["DELETE"], actions["UPDATE"])


def is_constraint(cursor: Cursor) -> bool:
    """Return True if the next tokens are a key, index or check, not a column."""
    return cursor.peek().word in _CONSTRAINTS or any(
        cursor.looking_at(words) for words in ("VECTOR INDEX", "VECTOR KEY", "COLUMNAR INDEX", "COLUMNAR KEY")
    )


def read_constraint(cursor: Cursor) -> tuple[IndexDef | CheckDef, bool]:
    """Return the (index or check, IF NOT EXISTS) of the constraint at the cursor, moving past it."""
    name = None
    if cursor.accept("CONSTRAINT") and not is_constraint(cursor):
        name = cursor.name("a constraint name")
    match cursor.expect("PRIMARY", "UNIQUE", "FOREIGN", "FULLTEXT", "VECTOR", "COLUMNAR", "CHECK", "INDEX", "KEY"):
        case "PRIMARY":
            cursor.expect("KEY")
            _skip_using(cursor)
            if not cursor.is_sign("("):
                cursor.name("an index name")
            return read_index_tail(cursor, IndexDef("PRIMARY", (), unique=True, primary=True)), False
        case "FOREIGN":
            cursor.expect("KEY")
            if_not_exists = cursor.accept("IF NOT EXISTS") != ""
            own = cursor.name() if cursor.is_name() else None
            columns, detail = _read_parts(cursor)
            cursor.expect("REFERENCES")
            detail = replace(detail, references=read_references(cursor))
            return IndexDef(name or own, columns, foreign=True, detail=detail), if_not_exists
        case "CHECK":
            return read_check(cursor, name), False
        case kind:
            if kind not in ("INDEX", "KEY"):
                cursor.accept("INDEX", "KEY")
            if_not_exists = cursor.accept("IF NOT EXISTS") != ""
            if cursor.is_name() and not cursor.looking_at("USING"):
                name = cursor.name()
            _skip_using(cursor)
            index = read_index_tail(cursor, IndexDef(name, (), unique=kind == "UNIQUE"))
            return (replace(index, columns=()) if kind in ("VECTOR", "COLUMNAR") else index), if_not_exists


def _skip_using(cursor: Cursor) -> None:
    if cursor.accept("USING", "TYPE"):
        cursor.word("an index type")


def read_index_tail(cursor: Cursor, index: IndexDef) -> IndexDef:
    """`index` with the parts and options at the cursor, moving past them.

    A partial index (WHERE ..) holds no row's identity, so it is never unique here."""
    columns, detail = _read_parts(cursor)
    index = replace(index, columns=columns, detail=detail)
    while True:
        if option := cursor.accept(*_VALUED_INDEX_OPTIONS):
            index = replace(index, detail=_read_index_option(cursor, option, index.detail))
        elif setting := cursor.accept(*_INDEX_SETTINGS):
            index = replace(index, **_INDEX_SETTINGS[setting])  # type: ignore[arg-type]
        elif cursor.accept("GLOBAL"):
            index = replace(index, detail=replace(index.detail, is_global=True))
        elif cursor.accept("WHERE"):
            cursor.skip_balanced(",")
            index = replace(index, unique=False)
        else:
            return index


_INDEX_TYPES: Final[Mapping[str, int]] = {"BTREE": 1, "HASH": 2, "RTREE": 3}


def _read_index_option(cursor: Cursor, option: str, detail: IndexDetail) -> IndexDetail:
    cursor.sign("=")
    if cursor.is_sign("("):
        cursor.skip_group()
        return detail
    value = cursor.next()
    if option == "COMMENT":
        return replace(detail, comment=value.text)
    if option in ("USING", "TYPE"):
        return replace(detail, using=_INDEX_TYPES.get(value.word, 1))
    return detail


def _read_parts(cursor: Cursor) -> tuple[tuple[str, ...], IndexDetail]:
    """Read `(part, ..)`: column names ('' for an expression), and lengths and expressions as detail."""
    names, lengths, expressions = zip(*cursor.group(_read_part), strict=True)
    return names, IndexDetail(lengths, expressions)


def _read_part(cursor: Cursor) -> tuple[str, int, str]:
    """Read (column or '', prefix length or -1, expression or '')."""
    name, length, expression = "", -1, ""
    if cursor.is_sign("("):
        expression = cursor.skip_group()
    else:
        name = cursor.name("a column name")
        if cursor.is_sign("("):
            inside = cursor.skip_group()
            length = int(inside) if all_digits(inside) and len(inside) < 10 else -1
    cursor.accept("ASC", "DESC")
    return name, length, expression
