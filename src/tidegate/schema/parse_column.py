"""Grammar of columns and keys: `name type option*` and `[CONSTRAINT x] PRIMARY KEY | UNIQUE | INDEX .. (part, ..)`.

    `h` BIT(4) NOT NULL DEFAULT b'101' COMMENT 'x' /*T![clustered_index] CLUSTERED */
    name type  ^ options in any order, as MySQL takes them

Expressions (generated columns, defaults, index parts, checks) are skipped by balanced parentheses and kept as the
user's text.
Source: TiDB parser/parser.y (ColumnDef, ColumnOption, Constraint, IndexOption).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tidegate.model.mysql import MysqlType
from tidegate.schema.columns import charset_of_collation, read_charset_name, read_type
from tidegate.schema.cursor import Cursor
from tidegate.schema.definition import Blob, ColumnDef, Default, Expression, IndexDef, Now, Null, Number, Text, TypeDef
from tidegate.schema.dialect import Kind

__all__ = ["is_constraint", "read_column", "read_constraint", "read_default", "read_index_tail", "skip_references"]

_NOW: Final = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP", "LOCALTIME", "CURRENT_DATE", "CURDATE", "CURRENT_TIME")
_TYPED_LITERALS: Final = frozenset({"DATE", "TIME", "TIMESTAMP"})
_CONSTRAINTS: Final = frozenset(
    {"CONSTRAINT", "PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK"}
)
_REFERENCE_ACTIONS: Final = tuple(
    f"ON {event} {action}"
    for event in ("DELETE", "UPDATE")
    for action in ("CASCADE", "RESTRICT", "SET NULL", "SET DEFAULT", "NO ACTION")
)
_VALUED_INDEX_OPTIONS: Final = ("USING", "TYPE", "KEY_BLOCK_SIZE", "WITH PARSER", "ALGORITHM", "LOCK", "COMMENT")
_MORE_VALUED_INDEX_OPTIONS: Final = ("PRE_SPLIT_REGIONS", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE")


def read_column(cursor: Cursor) -> ColumnDef:
    """The column definition at the cursor, moving past it."""
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
            return replace(column, comment=_string(cursor))
        case "COLLATE":
            return _collated(column, read_charset_name(cursor))
        case "GENERATED ALWAYS AS" | "AS":
            expression = cursor.skip_group()
            stored = cursor.accept("VIRTUAL", "STORED", "PERSISTENT") in ("STORED", "PERSISTENT")
            return replace(column, generated=expression, stored=stored)
    return column if _skip_option(cursor) else None


def _skip_option(cursor: Cursor) -> bool:
    """True after moving past a column option that changes nothing that we follow."""
    match cursor.accept("ON UPDATE", "AUTO_RANDOM", "REFERENCES", "CONSTRAINT", "CHECK", "COLUMN_FORMAT", "STORAGE"):
        case "ON UPDATE":
            _skip_call(cursor)
        case "AUTO_RANDOM":
            if cursor.is_sign("("):
                cursor.skip_group()
        case "REFERENCES":
            skip_references(cursor)
        case "CONSTRAINT":
            if not cursor.looking_at("CHECK"):
                cursor.name()
        case "CHECK":
            _skip_check(cursor)
        case "COLUMN_FORMAT" | "STORAGE":
            cursor.name()
        case _:
            if cursor.accept("ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
                cursor.sign("=")
                _string(cursor)
                return True
            return cursor.accept("VISIBLE", "INVISIBLE", "GLOBAL", "LOCAL", "ENFORCED", "NOT ENFORCED") != ""
    return True


def _collated(column: ColumnDef, collation: str) -> ColumnDef:
    """`column` with the charset of `collation` where no charset was written."""
    if column.type.charset is not None:
        return column
    return replace(column, type=replace(column.type, charset=charset_of_collation(collation)))


def _string(cursor: Cursor) -> str:
    """The string at the cursor (after an optional `=` and introducer), moving past it."""
    cursor.sign("=")
    if cursor.peek().word.startswith("_"):
        cursor.next()
    if cursor.peek().kind is not Kind.STRING:
        raise cursor.error("expected a string")
    return cursor.next().text


def _skip_call(cursor: Cursor) -> None:
    cursor.name("a function")
    if cursor.is_sign("("):
        cursor.skip_group()


def _skip_check(cursor: Cursor) -> None:
    cursor.skip_group()
    cursor.accept("NOT ENFORCED", "ENFORCED")


def skip_references(cursor: Cursor) -> None:
    """Move past what follows REFERENCES: the table, its columns, MATCH and the actions."""
    cursor.qualified()
    if cursor.is_sign("("):
        cursor.skip_group()
    if cursor.accept("MATCH"):
        cursor.name()
    while cursor.accept(*_REFERENCE_ACTIONS):
        pass


def read_default(cursor: Cursor) -> Default:
    """The value after DEFAULT at the cursor, moving past it."""
    if cursor.is_sign("("):
        return _read_default_group(cursor)
    literal = _read_literal(cursor)
    if literal is not None:
        return literal
    start = cursor.at
    if cursor.accept(*_NOW):
        fsp = 0
        if cursor.sign("("):
            fsp = 0 if cursor.is_sign(")") else cursor.integer("fractional digits")
            cursor.expect_sign(")")
        return Now(fsp)
    if cursor.accept("NEXT VALUE FOR"):
        cursor.qualified()
        return Expression(cursor.slice(start))
    cursor.qualified()
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
        return Number("1" if token.word == "TRUE" else "0")
    if token.kind is Kind.SIGN and token.text in ("-", "+") and following.kind is Kind.NUMBER:
        cursor.at += 2
        return Number(("-" if token.text == "-" else "") + following.text)
    if token.kind is Kind.SIGN and token.text == "." and following.kind is Kind.NUMBER:
        cursor.at += 2
        return Number("0." + following.text)
    literal_word = token.word.startswith("_") or token.word in _TYPED_LITERALS
    if literal_word and following.kind in (Kind.STRING, Kind.HEX, Kind.BITS):
        cursor.next()
        token = following
    match token.kind:
        case Kind.NUMBER:
            cursor.next()
            return Number(token.text)
        case Kind.STRING:
            parts = []
            while cursor.peek().kind is Kind.STRING:
                parts.append(cursor.next().text)
            return Text("".join(parts))
        case Kind.HEX:
            cursor.next()
            return Blob(bytes.fromhex("0" * (len(token.text) % 2) + token.text))
        case Kind.BITS:
            cursor.next()
            return Blob(int(token.text or "0", 2).to_bytes((len(token.text) + 7) // 8, "big"))
    return None


def is_constraint(cursor: Cursor) -> bool:
    """True if a key, index or check stands here, not a column."""
    return cursor.peek().word in _CONSTRAINTS or any(
        cursor.looking_at(words) for words in ("VECTOR INDEX", "VECTOR KEY", "COLUMNAR INDEX", "COLUMNAR KEY")
    )


def read_constraint(cursor: Cursor) -> tuple[IndexDef | None, bool]:
    """The (index, IF NOT EXISTS) of the constraint at the cursor, moving past it; no index for a CHECK."""
    name = None
    if cursor.accept("CONSTRAINT") and not is_constraint(cursor):
        name = cursor.name("a constraint name")
    match cursor.expect(
        "PRIMARY KEY", "UNIQUE", "FOREIGN KEY", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR", "CHECK", "INDEX", "KEY"
    ):
        case "PRIMARY KEY":
            _skip_using(cursor)
            if not cursor.is_sign("("):
                cursor.name("an index name")
            return read_index_tail(cursor, IndexDef("PRIMARY", (), unique=True, primary=True)), False
        case "FOREIGN KEY":
            if_not_exists = cursor.accept("IF NOT EXISTS") != ""
            own = cursor.name() if cursor.is_name() else None
            columns = _read_parts(cursor)
            cursor.expect("REFERENCES")
            skip_references(cursor)
            return IndexDef(name or own, columns, foreign=True), if_not_exists
        case "CHECK":
            _skip_check(cursor)
            return None, False
        case kind:
            if kind not in ("INDEX", "KEY"):
                cursor.accept("INDEX", "KEY")
            if_not_exists = cursor.accept("IF NOT EXISTS") != ""
            if cursor.is_name() and not cursor.looking_at("USING"):
                name = cursor.name()
            _skip_using(cursor)
            found = read_index_tail(cursor, IndexDef(name, (), unique=kind == "UNIQUE"))
            return (replace(found, columns=()) if kind in ("VECTOR", "COLUMNAR") else found), if_not_exists


def _skip_using(cursor: Cursor) -> None:
    if cursor.accept("USING", "TYPE"):
        cursor.name("an index type")


def read_index_tail(cursor: Cursor, index: IndexDef) -> IndexDef:
    """`index` with the parts and options at the cursor, moving past them.

    A partial index (WHERE ..) holds no row's identity, so it is never unique here."""
    index = replace(index, columns=_read_parts(cursor))
    while True:
        option = cursor.accept(*_VALUED_INDEX_OPTIONS) or cursor.accept(*_MORE_VALUED_INDEX_OPTIONS)
        if option:
            cursor.sign("=")
            if cursor.is_sign("("):
                cursor.skip_group()
            else:
                cursor.next()
            continue
        match cursor.accept("VISIBLE", "INVISIBLE", "CLUSTERED", "NONCLUSTERED", "GLOBAL", "LOCAL", "WHERE"):
            case "VISIBLE":
                index = replace(index, visible=True)
            case "INVISIBLE":
                index = replace(index, visible=False)
            case "CLUSTERED":
                index = replace(index, clustered=True)
            case "NONCLUSTERED":
                index = replace(index, clustered=False)
            case "WHERE":
                cursor.skip_balanced(",")
                index = replace(index, unique=False)
            case "GLOBAL" | "LOCAL":
                pass
            case _:
                if not cursor.accept("ADD_COLUMNAR_REPLICA_ON_DEMAND"):
                    return index


def _read_parts(cursor: Cursor) -> tuple[str, ...]:
    """The column names of `(part, ..)`, '' for an expression, moving past it."""
    cursor.expect_sign("(")
    parts = [_read_part(cursor)]
    while cursor.sign(","):
        parts.append(_read_part(cursor))
    cursor.expect_sign(")")
    return tuple(parts)


def _read_part(cursor: Cursor) -> str:
    if cursor.is_sign("("):
        cursor.skip_group()
        name = ""
    else:
        name = cursor.name("a column name")
        if cursor.is_sign("("):
            cursor.skip_group()
    cursor.accept("ASC", "DESC")
    return name
