"""Grammar of keys and checks: `[CONSTRAINT x] PRIMARY KEY | UNIQUE | INDEX .. (part, ..) | FOREIGN KEY | CHECK`.

    UNIQUE KEY `u` (`a`(10), (lower(`b`)) DESC) USING BTREE COMMENT 'x' /*!80000 INVISIBLE */
                    column   expression         ^ options in any order, as MySQL takes them

Expressions are skipped by balanced parentheses and kept as the user's text.
Source: TiDB parser/parser.y (Constraint, IndexOption, ReferDef).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tidegate.model.name import all_digits
from tidegate.schema.cursor import Cursor
from tidegate.schema.definition import CheckDef, IndexDef, IndexDetail, References

_CONSTRAINTS: Final = frozenset({"CONSTRAINT", "PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "FOREIGN", "CHECK"})
_REFERENCE_ACTIONS: Final = tuple(
    f"ON {event} {action}"
    for event in ("DELETE", "UPDATE")
    for action in ("CASCADE", "RESTRICT", "SET NULL", "SET DEFAULT", "NO ACTION")
)
_VALUED_INDEX_OPTIONS: Final = ("USING", "TYPE", "KEY_BLOCK_SIZE", "WITH PARSER", "ALGORITHM", "LOCK", "COMMENT")
_MORE_VALUED_INDEX_OPTIONS: Final = ("PRE_SPLIT_REGIONS", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE")


def read_check(cursor: Cursor, name: str | None, *, in_column: bool = False) -> CheckDef:
    """Return the check of that name after CHECK at the cursor, moving past it."""
    expression = cursor.skip_group()
    enforced = cursor.accept("NOT ENFORCED", "ENFORCED") != "NOT ENFORCED"
    return CheckDef(name, expression, enforced, in_column)


def read_references(cursor: Cursor) -> References:
    """Return what follows REFERENCES: the table, its columns, MATCH and the actions; moving past it."""
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
    """Return True if a key, index or check stands here, not a column."""
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
            found = read_index_tail(cursor, IndexDef(name, (), unique=kind == "UNIQUE"))
            return (replace(found, columns=()) if kind in ("VECTOR", "COLUMNAR") else found), if_not_exists


def _skip_using(cursor: Cursor) -> None:
    if cursor.accept("USING", "TYPE"):
        cursor.word("an index type")


def read_index_tail(cursor: Cursor, index: IndexDef) -> IndexDef:
    """`index` with the parts and options at the cursor, moving past them.

    A partial index (WHERE ..) holds no row's identity, so it is never unique here."""
    columns, detail = _read_parts(cursor)
    index = replace(index, columns=columns, detail=detail)
    while True:
        option = cursor.accept(*_VALUED_INDEX_OPTIONS) or cursor.accept(*_MORE_VALUED_INDEX_OPTIONS)
        if option:
            index = replace(index, detail=_read_index_option(cursor, option, index.detail))
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
            case "GLOBAL":
                index = replace(index, detail=replace(index.detail, is_global=True))
            case "LOCAL":
                pass
            case _:
                if not cursor.accept("ADD_COLUMNAR_REPLICA_ON_DEMAND"):
                    return index


_INDEX_TYPES: Final[Mapping[str, int]] = {"BTREE": 1, "HASH": 2, "RTREE": 3}


def _read_index_option(cursor: Cursor, option: str, detail: IndexDetail) -> IndexDetail:
    """`detail` with the value of `option` at the cursor, moving past it."""
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
    """The column names of `(part, ..)`, '' for an expression, and what else the parts say; moving past it."""
    names, lengths, expressions = zip(*cursor.group(_read_part), strict=True)
    return names, IndexDetail(lengths, expressions)


def _read_part(cursor: Cursor) -> tuple[str, int, str]:
    """(column or '', prefix length or -1, expression or '')."""
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
