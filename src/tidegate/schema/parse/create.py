"""Grammar of CREATE: databases, tables, indexes, views; and what several kinds of statements share.

    CREATE [OR REPLACE] [UNIQUE | GLOBAL TEMPORARY ..] DATABASE | TABLE | INDEX | VIEW ..
    CREATE USER ..      anything else that leaves all tables alone is passed over

Grammar of sequences: CREATE, ALTER and DROP SEQUENCE.

    CREATE SEQUENCE s START 1 INCREMENT BY 2 NOCACHE        SequenceDef(start=1, increment=2, cache=0)

Change capture passes sequences over, so a text that this grammar does not know is read no further and no error.

Source: TiDB parser/parser.y (CreateTableStmt, CreateIndexStmt, CreateViewStmt, CreateDatabaseStmt).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tidegate.expr.syntax.tokens import TokenKind
from tidegate.model.name import all_digits
from tidegate.schema.cursor import Cursor
from tidegate.schema.definition import (
    CheckDef,
    ColumnDef,
    DropSequences,
    IndexDef,
    SequenceDef,
    StatementDetail,
    TableDetail,
    ViewDetail,
)
from tidegate.schema.parse.column import read_column
from tidegate.schema.parse.key import is_constraint, read_constraint, read_index_tail
from tidegate.schema.parse.table import read_options, read_partition_by
from tidegate.schema.spec import AddIndex
from tidegate.schema.statement import (
    AlterTable,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    CreateView,
    Ignored,
    Statement,
)

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
        if cursor.peek().kind is not TokenKind.NUMBER or not all_digits(cursor.peek().text):
            return replace(found, restart=found.start) if option == "RESTART" else None
        return replace(found, **{_NUMBERED[option]: sign * cursor.integer()})  # type: ignore[arg-type]
    if cursor.accept("COMMENT"):
        cursor.sign("=")
        return replace(found, comment=cursor.next().text)
    return None


CREATED: Final = frozenset(
    [
        "SEQUENCE",
        "PLACEMENT",
        "RESOURCE",
        "USER",
        "ROLE",
        "BINDING",
        "SESSION",
        "GLOBAL",
        "STATISTICS",
        "EXTERNAL",
        "MASKING",
        "TRIGGER",
        "PROCEDURE",
        "FUNCTION",
    ]
)
"""What CREATE makes besides tables, which change capture passes over."""


def ignore(cursor: Cursor, default_schema: str) -> Statement:
    """Return the statement at the cursor as one that leaves all tables as they are, moving past it."""
    what = " ".join(word for ahead in range(2) if (word := cursor.peek(ahead).word))
    detail = read_sequence(cursor, default_schema) if what.endswith(" SEQUENCE") else None
    cursor.rest()
    return Ignored(what, detail)


def database_charset(cursor: Cursor) -> tuple[str | None, str | None]:
    """Return the (charset, collation) of a database's options, moving past them."""
    options, _ = read_options(cursor, commas=False)
    if cursor.accept("SET"):
        cursor.rest()
    return options.charset, options.detail.collate


def read_create(cursor: Cursor, default_schema: str) -> Statement:
    """Return the CREATE statement at the cursor, moving past it."""
    start = cursor.at
    cursor.expect("CREATE")
    if cursor.accept("DATABASE", "SCHEMA"):
        return _create_database(cursor)
    temporary = cursor.accept("GLOBAL TEMPORARY", "TEMPORARY")
    if cursor.accept("TABLE"):
        return _create_table(cursor, default_schema, temporary)
    unique = cursor.accept("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR")
    if cursor.accept("INDEX"):
        return _create_index(cursor, default_schema, unique)
    or_replace = cursor.accept("OR REPLACE") != ""
    if cursor.accept("ALGORITHM"):
        cursor.sign("=")
        cursor.next()
    if cursor.accept("DEFINER"):
        cursor.sign("=")
        while not (cursor.done() or cursor.looking_at("SQL SECURITY") or cursor.looking_at("VIEW")):
            cursor.next()
    if cursor.accept("SQL SECURITY"):
        cursor.next()
    if cursor.accept("VIEW"):
        return _create_view(cursor, default_schema, or_replace=or_replace)
    cursor.at = start
    if cursor.peek(1).word not in CREATED:
        raise cursor.error("not a CREATE statement that we know")
    return ignore(cursor, default_schema)


def _create_view(cursor: Cursor, default_schema: str, *, or_replace: bool) -> Statement:
    if_not_exists = cursor.accept("IF NOT EXISTS") != ""
    view = cursor.qualified().within(default_schema)
    columns = cursor.group(Cursor.name) if cursor.is_sign("(") else ()
    cursor.accept("AS")
    start = cursor.at
    while not (cursor.done() or cursor.looking_at("WITH CHECK") or cursor.looking_at("WITH CASCADED")):
        cursor.next()
    select = cursor.slice(start)
    cursor.rest()
    return CreateView(view, ViewDetail(select, columns, or_replace, if_not_exists))


def _create_database(cursor: Cursor) -> Statement:
    if_not_exists = cursor.accept("IF NOT EXISTS") != ""
    name = cursor.name("a database name")
    charset, collate = database_charset(cursor)
    return CreateDatabase(name, charset, if_not_exists, collate)


def _create_index(cursor: Cursor, default_schema: str, kind: str) -> Statement:
    if_not_exists = cursor.accept("IF NOT EXISTS") != ""
    name = cursor.name("an index name")
    if cursor.accept("USING", "TYPE"):
        cursor.word("an index type")
    cursor.expect("ON")
    table = cursor.qualified()
    index = read_index_tail(cursor, IndexDef(name, (), unique=kind == "UNIQUE"))
    if kind in ("VECTOR", "COLUMNAR"):
        index = IndexDef(name, ())
    return AlterTable(table.within(default_schema), doubtful=False, specs=(AddIndex(index, if_not_exists),))


def _create_table(cursor: Cursor, default_schema: str, temporary: str) -> Statement:
    if_not_exists = cursor.accept("IF NOT EXISTS") != ""
    named = cursor.qualified()
    table = named.within(default_schema)
    like = "(" if cursor.is_sign("(") and cursor.looking_at("LIKE", ahead=1) else ""
    if like:
        cursor.expect_sign("(")
    if cursor.accept("LIKE"):
        source = cursor.qualified()
        doubtful = source.schema is None and named.schema is not None
        if like:
            cursor.expect_sign(")")
        while not cursor.done() and read_options(cursor, commas=True)[1]:
            pass
        if temporary == "TEMPORARY":
            return Ignored("CREATE TEMPORARY TABLE")
        return CreateTableLike(table, source.within(default_schema), doubtful, if_not_exists)
    columns: list[ColumnDef] = []
    indexes: list[IndexDef] = []
    checks: list[CheckDef] = []
    if cursor.is_sign("("):
        columns, indexes, checks = read_body(cursor)
    options, _ = read_options(cursor, commas=True)
    partition, not_supported = read_partition_by(cursor) if cursor.accept("PARTITION BY") else (None, "")
    while not cursor.done() and read_options(cursor, commas=True)[1]:
        pass
    if (
        cursor.accept("REPLACE", "IGNORE", "AS")
        or any(map(cursor.looking_at, ("SELECT", "WITH", "TABLE", "VALUES")))
        or cursor.is_sign("(")
    ):
        not_supported = "CREATE TABLE .. AS SELECT"
        cursor.rest()
    elif not columns:
        raise cursor.error("expected the columns of a table")
    if temporary == "TEMPORARY":
        return Ignored("CREATE TEMPORARY TABLE")
    detail = TableDetail(tuple(checks), temporary != "")
    return CreateTable(table, tuple(columns), tuple(indexes), options, partition, if_not_exists, not_supported, detail)


def read_body(cursor: Cursor) -> tuple[list[ColumnDef], list[IndexDef], list[CheckDef]]:
    """Return the columns, keys and checks of `(..)`, moving past it."""
    found = cursor.group(lambda here: read_constraint(here)[0] if is_constraint(here) else read_column(here))
    columns = [one for one in found if isinstance(one, ColumnDef)]
    indexes = [one for one in found if isinstance(one, IndexDef)]
    return columns, indexes, [one for one in found if isinstance(one, CheckDef)]
