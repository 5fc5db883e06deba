"""DDL text to statements: `parse` reads every statement of a query, or says where it cannot.

    query --reveal, tokenize--> tokens --one rule per leading words--> Statement, Statement, ...

A rule is found by the statement's first word; after it the text must be used up to `;`.  What leaves all tables alone
(sequences, users, placement, SET, ..) is `Ignored`.  Depth of nesting costs nothing: expressions are counted
parentheses, never recursion.

Some TiDB versions restore strings into DDL texts without doubling their backslashes.  A text that cannot be read with
backslash escapes is therefore read once more with backslashes as plain characters.
Source: TiDB parser/parser.y; TiCDC cdc/entry/schema (restored queries of DDL events).
"""

from collections.abc import Callable
from typing import Final

from tidegate.model.errors import SqlError
from tidegate.model.table import TableName
from tidegate.schema.columns import charset_of_collation, normal_charset, read_charset_name
from tidegate.schema.cursor import Cursor
from tidegate.schema.definition import ColumnDef, IndexDef
from tidegate.schema.dialect import reveal, tokenize
from tidegate.schema.parse_alter import read_specs
from tidegate.schema.parse_column import is_constraint, read_column, read_constraint, read_index_tail
from tidegate.schema.parse_table import read_options, read_partition_by
from tidegate.schema.spec import AddIndex, DropIndex, RenameTo
from tidegate.schema.statement import (
    AlterDatabase,
    AlterTable,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    CreateView,
    DropDatabase,
    DropTables,
    DropViews,
    Ignored,
    RecoverDatabase,
    RecoverTable,
    RenamePair,
    RenameTables,
    Statement,
    TruncateTable,
)

__all__ = ["parse"]


def parse(query: str, default_schema: str) -> tuple[Statement, ...]:
    """The statements of `query`, names completed with `default_schema`; () for blank text.

    Raises SqlError, which tells the offset, for every text that is not DDL as TiDB knows it."""
    try:
        return _parse(query, default_schema, escapes=True)
    except SqlError:
        if "\\" not in query:
            raise
    return _parse(query, default_schema, escapes=False)


def _parse(query: str, default_schema: str, *, escapes: bool) -> tuple[Statement, ...]:
    text = reveal(query, escapes=escapes)
    cursor = Cursor(text, tokenize(text, escapes=escapes))
    statements: list[Statement] = []
    while True:
        while cursor.sign(";"):
            pass
        if cursor.done():
            return tuple(statements)
        statements.append(_read_statement(cursor, default_schema))
        if not cursor.done():
            raise cursor.error("unexpected text")


def _read_statement(cursor: Cursor, default_schema: str) -> Statement:
    rule = _RULES.get(cursor.peek().word)
    if rule is None:
        raise cursor.error("not a DDL statement that we know")
    return rule(cursor, default_schema)


def _ignore(cursor: Cursor, _default_schema: str) -> Statement:
    what = " ".join(word for ahead in range(2) if (word := cursor.peek(ahead).word))
    while not cursor.done():
        cursor.next()
    return Ignored(what)


def _create(cursor: Cursor, default_schema: str) -> Statement:
    start = cursor.at
    cursor.expect("CREATE")
    if cursor.accept("DATABASE", "SCHEMA"):
        return _create_database(cursor)
    temporary = cursor.accept("GLOBAL TEMPORARY", "TEMPORARY") == "TEMPORARY"
    if cursor.accept("TABLE"):
        return _create_table(cursor, default_schema, temporary=temporary)
    unique = cursor.accept("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR")
    if cursor.accept("INDEX"):
        return _create_index(cursor, default_schema, unique)
    cursor.accept("OR REPLACE")
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
        cursor.accept("IF NOT EXISTS")
        view = cursor.qualified().within(default_schema)
        while not cursor.done():
            cursor.next()
        return CreateView(view)
    cursor.at = start
    if cursor.peek(1).word not in _CREATED:
        raise cursor.error("not a CREATE statement that we know")
    return _ignore(cursor, default_schema)


_CREATED: Final = frozenset(
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
_DROPPED: Final = _CREATED | {"STATS", "PREPARE"}
_ALTERED: Final = _CREATED | {"INSTANCE", "RANGE"}


def _database_charset(cursor: Cursor) -> str | None:
    charset: str | None = None
    collation: str | None = None
    while not cursor.done():
        cursor.accept("DEFAULT")
        match cursor.expect(
            "CHARACTER SET", "CHAR SET", "CHARSET", "COLLATE", "ENCRYPTION", "PLACEMENT POLICY", "SET", "READ ONLY"
        ):
            case "CHARACTER SET" | "CHAR SET" | "CHARSET":
                charset = normal_charset(read_charset_name(cursor))
            case "COLLATE":
                collation = read_charset_name(cursor)
            case "SET":
                while not cursor.done():
                    cursor.next()
            case _:
                cursor.sign("=")
                cursor.next()
    return charset_of_collation(collation) if charset is None and collation is not None else charset


def _create_database(cursor: Cursor) -> Statement:
    if_not_exists = cursor.accept("IF NOT EXISTS") != ""
    name = cursor.name("a database name")
    return CreateDatabase(name, _database_charset(cursor), if_not_exists)


def _create_index(cursor: Cursor, default_schema: str, kind: str) -> Statement:
    if_not_exists = cursor.accept("IF NOT EXISTS") != ""
    name = cursor.name("an index name")
    if cursor.accept("USING", "TYPE"):
        cursor.name("an index type")
    cursor.expect("ON")
    table = cursor.qualified()
    index = read_index_tail(cursor, IndexDef(name, (), unique=kind == "UNIQUE"))
    if kind in ("VECTOR", "COLUMNAR"):
        index = IndexDef(name, ())
    return AlterTable(table.within(default_schema), doubtful=False, specs=(AddIndex(index, if_not_exists),))


def _create_table(cursor: Cursor, default_schema: str, *, temporary: bool) -> Statement:
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
        if temporary:
            return Ignored("CREATE TEMPORARY TABLE")
        return CreateTableLike(table, source.within(default_schema), doubtful, if_not_exists)
    columns: list[ColumnDef] = []
    indexes: list[IndexDef] = []
    if cursor.is_sign("(") and not cursor.looking_at("SELECT", ahead=1):
        columns, indexes = _table_body(cursor)
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
        while not cursor.done():
            cursor.next()
    elif not columns:
        raise cursor.error("expected the columns of a table")
    if temporary:
        return Ignored("CREATE TEMPORARY TABLE")
    return CreateTable(table, tuple(columns), tuple(indexes), options, partition, if_not_exists, not_supported)


def _table_body(cursor: Cursor) -> tuple[list[ColumnDef], list[IndexDef]]:
    columns: list[ColumnDef] = []
    indexes: list[IndexDef] = []
    cursor.expect_sign("(")
    while True:
        if is_constraint(cursor):
            index, _ = read_constraint(cursor)
            indexes += [] if index is None else [index]
        else:
            columns.append(read_column(cursor))
        if not cursor.sign(","):
            break
    cursor.expect_sign(")")
    return columns, indexes


def _alter(cursor: Cursor, default_schema: str) -> Statement:
    cursor.expect("ALTER")
    if cursor.accept("DATABASE", "SCHEMA"):
        options = ("CHARACTER", "CHAR", "CHARSET", "COLLATE", "DEFAULT", "ENCRYPTION", "PLACEMENT", "SET", "READ")
        named = cursor.is_name() and not (cursor.peek().word in options and not cursor.is_name(ahead=2))
        name = cursor.name("a database name") if named else default_schema
        return AlterDatabase(name, _database_charset(cursor))
    cursor.accept("IGNORE")
    if cursor.accept("TABLE"):
        if_exists = cursor.accept("IF EXISTS") != ""
        table = cursor.qualified()
        specs = read_specs(cursor, default_schema)
        renamed = any(isinstance(spec, RenameTo) and spec.given for spec in specs)
        return AlterTable(table.within(default_schema), renamed and table.schema is None, specs, if_exists)
    if cursor.peek().word not in _ALTERED:
        raise cursor.error("not an ALTER statement that we know")
    cursor.at -= 1
    return _ignore(cursor, default_schema)


def _drop(cursor: Cursor, default_schema: str) -> Statement:
    cursor.expect("DROP")
    if cursor.accept("DATABASE", "SCHEMA"):
        if_exists = cursor.accept("IF EXISTS") != ""
        return DropDatabase(cursor.name("a database name"), if_exists)
    if cursor.accept("INDEX"):
        if_exists = cursor.accept("IF EXISTS") != ""
        name = cursor.name("an index name")
        cursor.expect("ON")
        table = cursor.qualified()
        while cursor.accept("ALGORITHM", "LOCK"):
            cursor.sign("=")
            cursor.next()
        return AlterTable(table.within(default_schema), doubtful=False, specs=(DropIndex(name, if_exists),))
    temporary = cursor.accept("GLOBAL TEMPORARY", "TEMPORARY") == "TEMPORARY"
    what = cursor.accept("TABLES", "TABLE", "VIEW")
    if not what:
        if cursor.peek().word not in _DROPPED:
            raise cursor.error("not a DROP statement that we know")
        cursor.at -= 1
        return _ignore(cursor, default_schema)
    if_exists = cursor.accept("IF EXISTS") != ""
    tables = [cursor.qualified().within(default_schema)]
    while cursor.sign(","):
        tables.append(cursor.qualified().within(default_schema))
    cursor.accept("RESTRICT", "CASCADE")
    if temporary:
        return Ignored("DROP TEMPORARY TABLE")
    return DropViews(tuple(tables)) if what == "VIEW" else DropTables(tuple(tables), if_exists)


def _rename(cursor: Cursor, default_schema: str) -> Statement:
    cursor.expect("RENAME")
    if cursor.looking_at("USER"):
        return _ignore(cursor, default_schema)
    cursor.expect("TABLE", "TABLES")
    pairs = []
    while True:
        old = cursor.qualified()
        cursor.expect("TO")
        new = cursor.qualified()
        full: tuple[TableName, TableName] = old.within(default_schema), new.within(default_schema)
        pairs.append(RenamePair(*full, doubtful=old.schema is None and new.schema is not None))
        if not cursor.sign(","):
            return RenameTables(tuple(pairs))


def _truncate(cursor: Cursor, default_schema: str) -> Statement:
    cursor.expect("TRUNCATE")
    cursor.accept("TABLE")
    return TruncateTable(cursor.qualified().within(default_schema))


def _recover(cursor: Cursor, default_schema: str) -> Statement:
    verb = cursor.expect("RECOVER", "FLASHBACK")
    if cursor.accept("DATABASE", "SCHEMA"):
        name = cursor.name("a database name")
        return RecoverDatabase(name, cursor.name("a database name") if cursor.accept("TO") else None)
    if cursor.accept("CLUSTER"):
        raise cursor.error("FLASHBACK CLUSTER rewrites all tables, which no change feed tells of")
    cursor.expect("TABLE")
    if cursor.accept("BY JOB"):
        cursor.integer("the number of a job")
        return RecoverTable(TableName(default_schema, ""))
    table = cursor.qualified().within(default_schema)
    if cursor.looking_at("TO TIMESTAMP") or cursor.looking_at("TO TSO"):
        raise cursor.error("FLASHBACK TABLE to a point in time rewrites rows, which no change feed tells of")
    to = cursor.name("a table name") if verb == "FLASHBACK" and cursor.accept("TO") else None
    if verb == "RECOVER" and not cursor.done():
        cursor.integer("the number of a job")
    return RecoverTable(table, to)


_RULES: Final[dict[str, Callable[[Cursor, str], Statement]]] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
    "RECOVER": _recover,
    "FLASHBACK": _recover,
} | dict.fromkeys(
    [
        "SET",
        "USE",
        "LOCK",
        "UNLOCK",
        "GRANT",
        "REVOKE",
        "ANALYZE",
        "FLUSH",
        "ADMIN",
        "OPTIMIZE",
        "REPAIR",
        "SPLIT",
        "REFRESH",
        "BATCH",
    ],
    _ignore,
)
