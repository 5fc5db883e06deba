"""DDL text to statements: `parse` reads every statement of a query, or says where it cannot.

    query --tokens.py--> tokens --one rule per leading words--> Statement, Statement, ...

A rule is found by the statement's first word; after it the text must be used up to `;`.  What leaves all tables alone
(sequences, users, placement, SET, ..) is `Ignored`.  Depth of nesting costs nothing: expressions are counted
parentheses, never recursion.

Some TiDB versions restore strings into DDL texts without doubling their backslashes.  A text that cannot be read with
backslash escapes is therefore read once more with backslashes as plain characters.
Source: TiDB parser/parser.y; TiCDC cdc/entry/schema (restored queries of DDL events).
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from tidegate.expr.syntax.tokens import fail
from tidegate.model.errors import SqlError
from tidegate.model.table import TableName
from tidegate.schema.cursor import Cursor
from tidegate.schema.parse.alter import read_specs
from tidegate.schema.parse.create import CREATED, database_charset, ignore, read_create
from tidegate.schema.spec import DropIndex, RenameTo
from tidegate.schema.statement import (
    AlterDatabase,
    AlterTable,
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

QUERY_CHARACTERS_MAX: Final = 6 << 20
"""A DDL job with its text is one entry of TiDB's store; its default limit of one, txn-entry-size-limit, is this."""
TABLES_MAX: Final = 10_000
"""How many tables the statements of a text may name between them: each is a change of all tables."""


def parse(query: str, default_schema: str, reserved: AbstractSet[str] = frozenset()) -> tuple[Statement, ...]:
    """Return the statements of `query`, names completed with `default_schema`; () for blank text. Words of `reserved`
    are no names: those of a TiDB are none for whoever runs a text, and may be some in what an older one has run.

    Raises SqlError, which tells the offset, for every text that is not DDL as TiDB knows it."""
    if len(query) > QUERY_CHARACTERS_MAX:
        raise fail(f"a DDL text of more than {QUERY_CHARACTERS_MAX} characters", query, 0)
    try:
        return _parse(query, default_schema, frozenset(), reserved)
    except SqlError:
        if "\\" not in query:
            raise
    return _parse(query, default_schema, frozenset({"NO_BACKSLASH_ESCAPES"}), reserved)


def _parse(query: str, default_schema: str, modes: frozenset[str], reserved: AbstractSet[str]) -> tuple[Statement, ...]:
    cursor = Cursor(query, modes, reserved=reserved)
    statements: list[Statement] = []
    tables = 0
    while True:
        while cursor.sign(";"):
            pass
        if cursor.done():
            return tuple(statements)
        statements.append(_read_statement(cursor, default_schema))
        tables += _tables_named(statements[-1])
        if tables > TABLES_MAX:
            raise cursor.error(f"a DDL text that names more than {TABLES_MAX} tables")
        if not cursor.done():
            raise cursor.error("unexpected text")


def _tables_named(statement: Statement) -> int:
    match statement:
        case RenameTables(pairs):
            return len(pairs)
        case DropTables(tables) | DropViews(tables):
            return len(tables)
        case _:
            return 1


def _read_statement(cursor: Cursor, default_schema: str) -> Statement:
    rule = _RULES.get(cursor.peek().word)
    if rule is None:
        raise cursor.error("not a DDL statement that we know")
    return rule(cursor, default_schema)


_DROPPED: Final = CREATED | {"STATS", "PREPARE"}
_ALTERED: Final = CREATED | {"INSTANCE", "RANGE"}


def _alter(cursor: Cursor, default_schema: str) -> Statement:
    cursor.expect("ALTER")
    if cursor.accept("DATABASE", "SCHEMA"):
        options = ("CHARACTER", "CHAR", "CHARSET", "COLLATE", "DEFAULT", "ENCRYPTION", "PLACEMENT", "SET", "READ")
        named = cursor.is_name() and not (cursor.peek().word in options and not cursor.is_name(ahead=2))
        name = cursor.name("a database name") if named else default_schema
        return AlterDatabase(name, *database_charset(cursor))
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
    return ignore(cursor, default_schema)


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
        return ignore(cursor, default_schema)
    if_exists = cursor.accept("IF EXISTS") != ""
    tables = cursor.several(lambda here: here.qualified().within(default_schema))
    cursor.accept("RESTRICT", "CASCADE")
    if temporary:
        return Ignored("DROP TEMPORARY TABLE")
    return DropViews(tables, if_exists) if what == "VIEW" else DropTables(tables, if_exists)


def _rename(cursor: Cursor, default_schema: str) -> Statement:
    cursor.expect("RENAME")
    if cursor.looking_at("USER"):
        return ignore(cursor, default_schema)
    cursor.expect("TABLE", "TABLES")
    return RenameTables(cursor.several(lambda here: _renamed(here, default_schema)))


def _renamed(cursor: Cursor, default_schema: str) -> RenamePair:
    old = cursor.qualified()
    cursor.expect("TO")
    new = cursor.qualified()
    doubtful = old.schema is None and new.schema is not None
    return RenamePair(old.within(default_schema), new.within(default_schema), doubtful=doubtful)


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


_RULES: Final[Mapping[str, Callable[[Cursor, str], Statement]]] = {
    "CREATE": read_create,
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
    ignore,
)
