"""Grammar of columns: `name type option*`, and of default values.

    `h` BIT(4) NOT NULL DEFAULT b'101' COMMENT 'x' /*T![clustered_index] CLUSTERED */
    name type  ^ options in any order, as MySQL takes them

Expressions (generated columns, defaults, checks) are skipped by balanced parentheses and kept as the
user's text.
Source: TiDB parser/parser.y (ColumnDef, ColumnOption).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tidegate.expr.syntax.tokens import TokenKind
from tidegate.model.mysql import MysqlType
from tidegate.schema.columns import charset_of_collation, read_charset_name, read_type
from tidegate.schema.cursor import Cursor
from tidegate.schema.definition import (
    Blob,
    ColumnDef,
    Default,
    DefaultNumber,
    DefaultText,
    Expression,
    Now,
    Null,
    TypeDef,
)
from tidegate.schema.parse.key import read_check, read_references

_NOW: Final = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP", "LOCALTIME", "CURRENT_DATE", "CURDATE", "CURRENT_TIME")
_TYPED_LITERALS: Final = frozenset({"DATE", "TIME", "TIMESTAMP"})


def read_column(cursor: Cursor) -> ColumnDef:
    """Return the column definition at the cursor, moving past it."""
    name = cursor.name("a column name")
    if cursor.sign("."):
        name = cursor.name("a column name")
        if cursor.sign("."):
            name = cursor.name("a column name")
    if cursor.accept("SERIAL"):
        serial = TypeDef(MysqlType.LONGLONG, unsigned=True, charset="binary")
        found = ColumnDef(name, serial, nullable=False, auto_increment=True, unique=True)
    else:
        found = ColumnDef(name, read_type(cursor))
    while (more := _read_option(cursor, found)) is not None:
        found = more
    return found


_SETTINGS: Final[Mapping[str, Mapping[str, bool]]] = {
    "NOT NULL": {"nullable": False},
    "NULL": {"nullable": True},
    "SERIAL DEFAULT VALUE": {"nullable": False, "auto_increment": True, "unique": True},
    "AUTO_INCREMENT": {"auto_increment": True},
    "PRIMARY KEY": {"primary": True},
    "PRIMARY": {"primary": True},
    "UNIQUE KEY": {"unique": True},
    "UNIQUE": {"unique": True},
    "KEY": {"primary": True},
    "CLUSTERED": {"clustered": True},
    "NONCLUSTERED": {"clustered": False},
}
"""Options that are words alone, and the fields of ColumnDef that they set."""


def _read_option(cursor: Cursor, column: ColumnDef) -> ColumnDef | None:
    """`column` with the option at the cursor; None if there is no option."""
    setting = cursor.accept(*_SETTINGS)
    if setting:
        return replace(column, **_SETTINGS[setting])  # type: ignore[arg-type]
    match cursor.accept("DEFAULT", "COMMENT", "COLLATE", "GENERATED ALWAYS AS", "AS"):
        case "DEFAULT":
            return replace(column, default=read_default(cursor))
        case "COMMENT":
            return replace(column, comment=cursor.string())
        case "COLLATE":
            return _collated(column, read_charset_name(cursor))
        case "GENERATED ALWAYS AS" | "AS":
            expression = cursor.skip_group()
            stored = cursor.accept("VIRTUAL", "STORED", "PERSISTENT") in ("STORED", "PERSISTENT")
            return replace(column, generated=expression, stored=stored)
    return _read_detail(cursor, column)


def _read_detail(cursor: Cursor, column: ColumnDef) -> ColumnDef | None:
    """`column` with an option that only TiDB's own definition has; None if there is no option."""
    detail = column.detail
    match cursor.accept("ON UPDATE", "AUTO_RANDOM", "CONSTRAINT", "CHECK"):
        case "ON UPDATE":
            cursor.word("a function")
            detail = replace(detail, on_update=_read_digits(cursor))
        case "AUTO_RANDOM":
            detail = replace(detail, auto_random=_read_auto_random(cursor))
        case "CONSTRAINT":
            name = None if cursor.looking_at("CHECK") else cursor.name()
            if cursor.accept("CHECK"):
                detail = replace(detail, checks=(*detail.checks, read_check(cursor, name, in_column=True)))
        case "CHECK":
            detail = replace(detail, checks=(*detail.checks, read_check(cursor, None, in_column=True)))
        case _:
            return column if _skip_option(cursor) else None
    return replace(column, detail=detail)


def _read_auto_random(cursor: Cursor) -> tuple[int, int]:
    """(shard bits, range bits) after AUTO_RANDOM, moving past them; 5 and 64 unless written."""
    if not cursor.sign("("):
        return 5, 64
    shard = cursor.integer("a number of bits")
    space = cursor.integer("a number of bits") if cursor.sign(",") else 64
    cursor.expect_sign(")")
    return shard, space


def _skip_option(cursor: Cursor) -> bool:
    """True after moving past a column option that changes nothing at all."""
    match cursor.accept("REFERENCES", "COLUMN_FORMAT", "STORAGE"):
        case "REFERENCES":
            read_references(cursor)
        case "COLUMN_FORMAT" | "STORAGE":
            cursor.word("a word")
        case _:
            if cursor.accept("ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
                cursor.sign("=")
                cursor.string()
                return True
            return cursor.accept("VISIBLE", "INVISIBLE", "GLOBAL", "LOCAL", "ENFORCED", "NOT ENFORCED") != ""
    return True


def _collated(column: ColumnDef, collation: str) -> ColumnDef:
    """`column` with the charset of `collation` where no charset was written."""
    column = replace(column, detail=replace(column.detail, collate=collation.lower()))
    if column.type.charset is not None:
        return column
    return replace(column, type=replace(column.type, charset=charset_of_collation(collation)))


def _read_digits(cursor: Cursor) -> int:
    """The fractional digits after CURRENT_TIMESTAMP, 0 unless written, moving past their brackets."""
    if not cursor.sign("("):
        return 0
    digits = 0 if cursor.is_sign(")") else cursor.integer("fractional digits")
    cursor.expect_sign(")")
    return digits


def read_default(cursor: Cursor) -> Default:
    """Return the value after DEFAULT at the cursor, moving past it."""
    if cursor.is_sign("("):
        return _read_default_group(cursor)
    literal = _read_literal(cursor)
    if literal is not None:
        return literal
    start = cursor.at
    if cursor.accept(*_NOW):
        return Now(_read_digits(cursor))
    if cursor.accept("NEXT VALUE FOR"):
        cursor.qualified()
        return Expression(cursor.slice(start))
    cursor.word("an expression")
    if cursor.sign("."):
        cursor.word("a function")
    cursor.skip_group()
    return Expression(cursor.slice(start))


def _read_default_group(cursor: Cursor) -> Default:
    """DEFAULT (x): the literal x if it is one, else an expression."""
    start = cursor.at
    inside = cursor.skip_group()
    after, cursor.at = cursor.at, start + 1
    literal = _read_literal(cursor)
    whole = cursor.at == after - 1
    cursor.at = after
    return literal if literal is not None and whole else Expression(inside)


def _read_literal(cursor: Cursor) -> Default | None:
    """The literal at the cursor, moving past it; None, without moving, if there is none."""
    token, following = cursor.peek(), cursor.peek(1)
    if token.word == "NULL":
        cursor.next()
        return Null()
    if token.word in ("TRUE", "FALSE"):
        cursor.next()
        return DefaultNumber("1" if token.word == "TRUE" else "0")
    if token.kind is TokenKind.SIGN and token.text in ("-", "+") and following.kind is TokenKind.NUMBER:
        cursor.at += 2
        return DefaultNumber(("-" if token.text == "-" else "") + _whole(following.text))
    literal_word = token.word.startswith("_") or token.word in _TYPED_LITERALS
    if literal_word and following.kind in (TokenKind.STRING, TokenKind.HEX, TokenKind.BITS):
        cursor.next()
        token = following
    match token.kind:
        case TokenKind.NUMBER:
            cursor.next()
            return DefaultNumber(_whole(token.text))
        case TokenKind.STRING:
            parts = []
            while cursor.peek().kind is TokenKind.STRING:
                parts.append(cursor.next().text)
            return DefaultText("".join(parts))
        case TokenKind.HEX:
            cursor.next()
            return Blob(bytes.fromhex("0" * (len(token.text) % 2) + token.text))
        case TokenKind.BITS:
            cursor.next()
            return Blob(int(token.text or "0", 2).to_bytes((len(token.text) + 7) // 8, "big"))
    return None


def _whole(number: str) -> str:
    """The number with a digit before its point."""
    return f"0{number}" if number.startswith(".") else number
