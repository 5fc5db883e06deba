"""Parser of DDL text: `parse` returns every statement of a query, or raises an error with the position where it cannot.

    query --tokens.py--> tokens --one rule per leading words--> Statement, Statement, ...

A rule is found by the statement's first word; it must use up the text to the next `;`.  Statements that leave all
tables alone (sequences, users, placement, SET, ..) are `Ignored`.  Nesting depth is not limited: expressions are
skipped by counting parentheses, without recursion.

The specs of ALTER TABLE are parsed here too: one function per leading word, chosen by a table.

    ALTER TABLE t  ADD ..., DROP ..., MODIFY ..., COMMENT = 'x'  PARTITION BY ...
                   ^ rule of the first word      ^ no rule: a table option

Some TiDB versions restore strings into DDL texts without doubling their backslashes.  A text that cannot be read with
backslash escapes is therefore read once more with backslashes as plain characters.

Source: TiDB parser/parser.y (AlterTableSpec, AlterTablePartitionOpt); TiCDC cdc/entry/schema (restored queries of DDL
events).
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from tidegate.expr.tokens import TokenKind, fail
from tidegate.model.errors import SqlError
from tidegate.model.table import COLUMNS_MAX, TableName
from tidegate.schema.columns import charset_of_collation, normal_charset, read_charset_name
from tidegate.schema.cursor import Cursor, is_constraint, read_constraint
from tidegate.schema.parse_table import (
    CREATED,
    database_charset,
    ignore,
    read_body,
    read_column,
    read_create,
    read_default,
    read_options,
    read_partition_by,
    read_partition_definitions,
)
from tidegate.schema.statement import (
    AddCheck,
    AddColumns,
    AddForeignKey,
    AddIndex,
    AddPartitions,
    AlterCheck,
    AlterDatabase,
    AlterTable,
    CheckDef,
    CoalescePartitions,
    ConvertCharset,
    DropColumn,
    DropConstraint,
    DropDatabase,
    DropForeignKey,
    DropIndex,
    DropPartitions,
    DropPrimaryKey,
    DropTables,
    DropViews,
    ExchangePartition,
    Ignored,
    ModifyColumn,
    NoChange,
    NotSupported,
    PartitionBy,
    Position,
    RecoverDatabase,
    RecoverTable,
    RemovePartitioning,
    RemoveTtl,
    RenameColumn,
    RenameIndex,
    RenamePair,
    RenameTables,
    RenameTo,
    ReorganizePartitions,
    SetDefault,
    SetVisibility,
    Spec,
    Statement,
    TruncatePartitions,
    TruncateTable,
)


def read_specs(cursor: Cursor, default_schema: str) -> tuple[Spec, ...]:
    """Return the specs up to the end of the statement, moving past them."""
    specs: list[Spec] = []
    while not cursor.done():
        if len(specs) >= COLUMNS_MAX:
            raise cursor.error(f"an ALTER TABLE of more than {COLUMNS_MAX} changes")
        specs.append(_read_spec(cursor, default_schema))
        if not cursor.sign(",") and not cursor.looking_at("PARTITION BY") and not cursor.looking_at("REMOVE"):
            break
    return tuple(specs)


def _read_spec(cursor: Cursor, default_schema: str) -> Spec:
    word = cursor.peek().word
    if word == "RENAME":
        return _rename(cursor, default_schema)
    if word == "EXCHANGE":
        return _exchange(cursor, default_schema)
    rule = _RULES.get(word)
    if rule is not None:
        return rule(cursor)
    options, count = read_options(cursor, commas=False)
    if not count:
        raise cursor.error("unknown ALTER TABLE specification")
    return options


def _position(cursor: Cursor) -> Position | None:
    match cursor.accept("FIRST", "AFTER"):
        case "FIRST":
            return Position(None)
        case "AFTER":
            return Position(cursor.name("a column name"))
    return None


def _if_exists(cursor: Cursor) -> bool:
    return cursor.accept("IF EXISTS") != ""


def _partition_names(cursor: Cursor) -> tuple[str, ...]:
    return () if cursor.accept("ALL") else cursor.names()


def _add(cursor: Cursor) -> Spec:
    cursor.expect("ADD")
    if cursor.looking_at("PARTITION") and not _is_type_after_name(cursor):
        return _add_partition(cursor)
    if cursor.accept("STATS_EXTENDED"):
        return _pass(cursor, "ADD STATS_EXTENDED")
    if is_constraint(cursor):
        index, if_not_exists = read_constraint(cursor)
        if isinstance(index, CheckDef):
            return NoChange("ADD CHECK", AddCheck(index))
        return AddForeignKey(index) if index.foreign else AddIndex(index, if_not_exists)
    cursor.accept("COLUMN")
    if_not_exists = cursor.accept("IF NOT EXISTS") != ""
    if not cursor.is_sign("("):
        column = read_column(cursor)
        return AddColumns((column,), (), _position(cursor), if_not_exists)
    columns, indexes, _ = read_body(cursor)
    return AddColumns(tuple(columns), tuple(indexes), None, if_not_exists)


def _is_type_after_name(cursor: Cursor) -> bool:
    """True for `ADD partition INT`: a column whose name is the word PARTITION."""
    following = cursor.peek(1)
    return following.kind is TokenKind.WORD and following.word not in (
        "IF",
        "PARTITIONS",
        "NO_WRITE_TO_BINLOG",
        "LOCAL",
    )


def _add_partition(cursor: Cursor) -> Spec:
    cursor.expect("PARTITION")
    if_not_exists = cursor.accept("IF NOT EXISTS") != ""
    cursor.accept("NO_WRITE_TO_BINLOG", "LOCAL")
    if cursor.accept("PARTITIONS"):
        return AddPartitions((), cursor.integer("the number of partitions"), if_not_exists)
    return AddPartitions(read_partition_definitions(cursor), 0, if_not_exists)


def _drop(cursor: Cursor) -> Spec:
    cursor.expect("DROP")
    match cursor.accept(
        "PRIMARY KEY", "FOREIGN KEY", "INDEX", "KEY", "CONSTRAINT", "CHECK", "PARTITION", "STATS_EXTENDED"
    ):
        case "PRIMARY KEY":
            return DropPrimaryKey()
        case "FOREIGN KEY" | "CONSTRAINT" | "CHECK" | "STATS_EXTENDED" as what:
            if_exists = _if_exists(cursor)
            kind = {"FOREIGN KEY": DropForeignKey, "STATS_EXTENDED": None}.get(what, DropConstraint)
            name = cursor.name()
            return NoChange(f"DROP {what}", None if kind is None else kind(name, if_exists))
        case "INDEX" | "KEY":
            if_exists = _if_exists(cursor)
            return DropIndex(cursor.name("an index name"), if_exists)
        case "PARTITION":
            if_exists = _if_exists(cursor)
            return DropPartitions(cursor.names(), if_exists)
    cursor.accept("COLUMN")
    if_exists = _if_exists(cursor)
    name = cursor.name("a column name")
    cursor.accept("RESTRICT", "CASCADE")
    return DropColumn(name, if_exists)


def _modify(cursor: Cursor) -> Spec:
    cursor.expect("MODIFY")
    cursor.accept("COLUMN")
    if_exists = _if_exists(cursor)
    column = read_column(cursor)
    return ModifyColumn(column.name, column, _position(cursor), if_exists)


def _change(cursor: Cursor) -> Spec:
    cursor.expect("CHANGE")
    cursor.accept("COLUMN")
    if_exists = _if_exists(cursor)
    old = cursor.name("a column name")
    column = read_column(cursor)
    return ModifyColumn(old, column, _position(cursor), if_exists)


def _rename(cursor: Cursor, default_schema: str) -> Spec:
    cursor.expect("RENAME")
    if cursor.looking_at("COLUMN") and not cursor.done():
        cursor.next()
        old = cursor.name("a column name")
        cursor.expect("TO")
        return RenameColumn(old, cursor.name("a column name"))
    if cursor.accept("INDEX", "KEY"):
        old = cursor.name("an index name")
        cursor.expect("TO")
        return RenameIndex(old, cursor.name("an index name"))
    if not cursor.accept("TO", "AS"):
        cursor.sign("=")
    new = cursor.qualified()
    return RenameTo(new.within(default_schema), new.schema is not None)


def _alter(cursor: Cursor) -> Spec:
    cursor.expect("ALTER")
    if cursor.accept("INDEX", "KEY"):
        _if_exists(cursor)
        name = cursor.name("an index name")
        return SetVisibility(name, cursor.expect("VISIBLE", "INVISIBLE", "NOT INVISIBLE") != "INVISIBLE")
    if cursor.accept("CHECK", "CONSTRAINT"):
        name = cursor.name()
        return NoChange("ALTER CHECK", AlterCheck(name, cursor.expect("ENFORCED", "NOT ENFORCED") == "ENFORCED"))
    cursor.accept("COLUMN")
    _if_exists(cursor)
    name = cursor.name("a column name")
    match cursor.expect("SET DEFAULT", "DROP DEFAULT", "SET VISIBLE", "SET INVISIBLE"):
        case "SET DEFAULT":
            return SetDefault(name, read_default(cursor))
        case "DROP DEFAULT":
            return SetDefault(name, None)
    return NoChange("column visibility")


def _convert(cursor: Cursor) -> Spec:
    cursor.expect("CONVERT TO")
    cursor.expect("CHARACTER SET", "CHAR SET", "CHARSET")
    cursor.sign("=")
    charset = None if cursor.accept("DEFAULT") else normal_charset(read_charset_name(cursor))
    collation = read_charset_name(cursor).lower() if cursor.accept("COLLATE") else None
    if charset is None and collation is not None:
        charset = charset_of_collation(collation)
    return ConvertCharset(charset, collation)


def _truncate(cursor: Cursor) -> Spec:
    cursor.expect("TRUNCATE PARTITION")
    return TruncatePartitions(_partition_names(cursor))


def _reorganize(cursor: Cursor) -> Spec:
    cursor.expect("REORGANIZE PARTITION")
    cursor.accept("NO_WRITE_TO_BINLOG", "LOCAL")
    if cursor.done():
        return NoChange("REORGANIZE PARTITION")
    names = cursor.names()
    cursor.expect("INTO")
    return ReorganizePartitions(names, read_partition_definitions(cursor))


def _coalesce(cursor: Cursor) -> Spec:
    cursor.expect("COALESCE PARTITION")
    cursor.accept("NO_WRITE_TO_BINLOG", "LOCAL")
    return CoalescePartitions(cursor.integer("the number of partitions"))


def _exchange(cursor: Cursor, default_schema: str) -> Spec:
    cursor.expect("EXCHANGE PARTITION")
    name = cursor.name("a partition name")
    cursor.expect("WITH TABLE")
    table = cursor.qualified().within(default_schema)
    validated = cursor.accept("WITH VALIDATION", "WITHOUT VALIDATION") != "WITHOUT VALIDATION"
    return ExchangePartition(name, table, validated)


def _remove(cursor: Cursor) -> Spec:
    return (
        RemovePartitioning()
        if cursor.expect("REMOVE PARTITIONING", "REMOVE TTL") == "REMOVE PARTITIONING"
        else NoChange("TTL", RemoveTtl())
    )


def _partition(cursor: Cursor) -> Spec:
    cursor.expect("PARTITION")
    if not cursor.accept("BY"):
        cursor.name("a partition name")
        return _pass(cursor, "attributes of a partition")
    partition, not_supported = read_partition_by(cursor)
    return NotSupported(not_supported) if not_supported else PartitionBy(partition)


def _interval(cursor: Cursor) -> Spec:
    what = cursor.expect(
        "FIRST PARTITION", "LAST PARTITION", "MERGE FIRST PARTITION", "SPLIT MAXVALUE PARTITION", "SPLIT"
    )
    _pass(cursor, what)
    return NotSupported(what)


def _pass(cursor: Cursor, what: str) -> Spec:
    """Move to the next spec; the one passed over changes nothing that we follow."""
    cursor.skip_balanced(",")
    return NoChange(what)


def _other(cursor: Cursor) -> Spec:
    what = cursor.peek().word
    _pass(cursor, what)
    # Lists of columns (ORDER BY a, b) and of labels ('a', 'b') go on after a comma; a new spec starts with its word.
    while cursor.is_sign(",") and (cursor.peek(1).kind is TokenKind.STRING or (what == "ORDER" and _is_column(cursor))):
        cursor.next()
        _pass(cursor, what)
    return NoChange(what)


def _is_column(cursor: Cursor) -> bool:
    following = cursor.peek(1)
    return following.kind is TokenKind.NAME or (following.word != "" and following.word not in _STARTS)


_PASSED: Final = frozenset(
    [
        "ORDER",
        "ENABLE",
        "DISABLE",
        "FORCE",
        "LOCK",
        "ALGORITHM",
        "WITH",
        "WITHOUT",
        "ATTRIBUTES",
        "CACHE",
        "NOCACHE",
        "SET",
        "DISCARD",
        "IMPORT",
        "OPTIMIZE",
        "REBUILD",
        "REPAIR",
        "ANALYZE",
        "CHECK",
        "SECONDARY_LOAD",
        "SECONDARY_UNLOAD",
        "COMPACT",
        "READ",
    ]
)
_STARTS: Final = _PASSED | {
    "ADD",
    "DROP",
    "MODIFY",
    "CHANGE",
    "ALTER",
    "CONVERT",
    "RENAME",
    "COMMENT",
    "ENGINE",
    "DEFAULT",
    "CHARACTER",
    "CHARSET",
    "AUTO_INCREMENT",
}
_RULES: Final[Mapping[str, Callable[[Cursor], Spec]]] = {
    "ADD": _add,
    "DROP": _drop,
    "MODIFY": _modify,
    "CHANGE": _change,
    "ALTER": _alter,
    "CONVERT": _convert,
    "TRUNCATE": _truncate,
    "REORGANIZE": _reorganize,
    "COALESCE": _coalesce,
    "REMOVE": _remove,
    "PARTITION": _partition,
    "FIRST": _interval,
    "LAST": _interval,
    "MERGE": _interval,
    "SPLIT": _interval,
    **dict.fromkeys(_PASSED, _other),
}


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
    rule = _DDL_RULES.get(cursor.peek().word)
    if rule is None:
        raise cursor.error("not a DDL statement that we know")
    return rule(cursor, default_schema)


_DROPPED: Final = CREATED | {"STATS", "PREPARE"}
_ALTERED: Final = CREATED | {"INSTANCE", "RANGE"}


def _ddl_alter(cursor: Cursor, default_schema: str) -> Statement:
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


def _ddl_drop(cursor: Cursor, default_schema: str) -> Statement:
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


def _ddl_rename(cursor: Cursor, default_schema: str) -> Statement:
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


def _ddl_truncate(cursor: Cursor, default_schema: str) -> Statement:
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


_DDL_RULES: Final[Mapping[str, Callable[[Cursor, str], Statement]]] = {
    "CREATE": read_create,
    "ALTER": _ddl_alter,
    "DROP": _ddl_drop,
    "RENAME": _ddl_rename,
    "TRUNCATE": _ddl_truncate,
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
