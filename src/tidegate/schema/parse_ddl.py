"""Parser of DDL text: `parse` returns every statement of a query, or raises an error with the position where it cannot.

    query --tokens.py--> tokens --one rule per leading words--> Statement, Statement, ...

A rule is found by the statement's leading words; it must use up the text to the next `;`.  Statements that leave all
tables alone (sequences, users, placement, SET, ..) are `Ignored`.  Nesting depth is not limited: expressions are
skipped by counting parentheses, without recursion.

The specs of ALTER TABLE are found by their leading words too.

    ALTER TABLE t  ADD ..., DROP COLUMN ..., MODIFY ..., COMMENT = 'x'  PARTITION BY ...
                   ^ rule of the leading words          ^ no rule: a table option

Some TiDB versions restore strings into DDL texts without doubling their backslashes.  A text that cannot be read with
backslash escapes is therefore read once more with backslashes as plain characters.

Source: TiDB parser/parser.y (AlterTableSpec, AlterTablePartitionOpt); TiCDC cdc/entry/schema (restored queries of DDL
events).
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache, partial
from typing import Any, Final

from tidegate.expr.tokens import TokenKind, fail
from tidegate.model.errors import SqlError
from tidegate.model.table import COLUMNS_MAX, TableName
from tidegate.schema import statement as sql
from tidegate.schema.columns import charset_of_collation, normal_charset, read_charset_name
from tidegate.schema.cursor import Cursor, is_constraint, read_constraint
from tidegate.schema.parse_table import (
    CREATED,
    CREATES,
    database_charset,
    ignore,
    read_body,
    read_column,
    read_default,
    read_options,
    read_partition_by,
    read_partition_definitions,
    read_view,
)


def _if_exists(cursor: Cursor) -> bool:
    return cursor.accept("IF EXISTS") != ""


def _to(cursor: Cursor, what: str) -> str:
    cursor.expect("TO")
    return cursor.name(what)


def _position(cursor: Cursor) -> sql.Position | None:
    match cursor.accept("FIRST", "AFTER"):
        case "FIRST":
            return sql.Position(None)
        case "AFTER":
            return sql.Position(cursor.name("a column name"))
    return None


def _add(cursor: Cursor) -> sql.Spec:
    if is_constraint(cursor):
        index, if_not_exists = read_constraint(cursor)
        if isinstance(index, sql.CheckDef):
            return sql.NoChange("ADD CHECK", sql.AddCheck(index))
        return sql.AddForeignKey(index) if index.foreign else sql.AddIndex(index, if_not_exists)
    cursor.accept("COLUMN")
    if_not_exists = cursor.accept("IF NOT EXISTS") != ""
    if not cursor.is_sign("("):
        return sql.AddColumns((read_column(cursor),), (), _position(cursor), if_not_exists)
    columns, indexes, _ = read_body(cursor)
    return sql.AddColumns(tuple(columns), tuple(indexes), None, if_not_exists)


def _add_partition(cursor: Cursor) -> sql.Spec:
    following = cursor.peek()
    if following.kind is TokenKind.WORD and following.word not in ("IF", "PARTITIONS", "NO_WRITE_TO_BINLOG", "LOCAL"):
        cursor.position -= 1  # a column whose name is the word PARTITION
        return _add(cursor)
    if_not_exists = cursor.accept("IF NOT EXISTS") != ""
    cursor.accept(*_BINLOG)
    if cursor.accept("PARTITIONS"):
        return sql.AddPartitions((), cursor.integer("the number of partitions"), if_not_exists)
    return sql.AddPartitions(read_partition_definitions(cursor), 0, if_not_exists)


def _drop_column(cursor: Cursor) -> sql.Spec:
    spec = sql.DropColumn(if_exists=_if_exists(cursor), name=cursor.name("a column name"))
    cursor.accept("RESTRICT", "CASCADE")
    return spec


def _modify(cursor: Cursor, *, renames: bool = False) -> sql.Spec:
    if_exists = _if_exists(cursor)
    old = cursor.name("a column name") if renames else ""
    column = read_column(cursor)
    return sql.ModifyColumn(old or column.name, column, _position(cursor), if_exists)


def _rename_to(cursor: Cursor) -> sql.Spec:
    if not cursor.accept("TO", "AS"):
        cursor.sign("=")
    new = cursor.qualified()
    return sql.RenameTo(new.within(cursor.schema), new.schema is not None)


def _alter_column(cursor: Cursor) -> sql.Spec:
    _if_exists(cursor)
    name = cursor.name("a column name")
    match cursor.expect("SET DEFAULT", "DROP DEFAULT", "SET VISIBLE", "SET INVISIBLE"):
        case "SET DEFAULT":
            return sql.SetDefault(name, read_default(cursor))
        case "DROP DEFAULT":
            return sql.SetDefault(name, None)
    return sql.NoChange("column visibility")


def _convert(cursor: Cursor) -> sql.Spec:
    cursor.sign("=")
    charset = None if cursor.accept("DEFAULT") else normal_charset(read_charset_name(cursor))
    collation = read_charset_name(cursor).lower() if cursor.accept("COLLATE") else None
    if charset is None and collation is not None:
        charset = charset_of_collation(collation)
    return sql.ConvertCharset(charset, collation)


def _reorganize(cursor: Cursor) -> sql.Spec:
    cursor.accept(*_BINLOG)
    if cursor.done():
        return sql.NoChange("REORGANIZE PARTITION")
    names = cursor.names()
    cursor.expect("INTO")
    return sql.ReorganizePartitions(names, read_partition_definitions(cursor))


def _coalesce(cursor: Cursor) -> sql.Spec:
    cursor.accept(*_BINLOG)
    return sql.CoalescePartitions(cursor.integer("the number of partitions"))


def _exchange(cursor: Cursor) -> sql.Spec:
    name = cursor.name("a partition name")
    cursor.expect("WITH TABLE")
    table = cursor.table_name()
    validated = cursor.accept("WITH VALIDATION", "WITHOUT VALIDATION") != "WITHOUT VALIDATION"
    return sql.ExchangePartition(name, table, validated)


def _partition_by(cursor: Cursor) -> sql.Spec:
    partition, not_supported = read_partition_by(cursor)
    return sql.NotSupported(not_supported) if not_supported else sql.PartitionBy(partition)


def _pass(cursor: Cursor, what: sql.Spec) -> sql.Spec:
    cursor.skip_balanced(",")
    return what


def _partition_options(cursor: Cursor) -> sql.Spec:
    cursor.name("a partition name")
    return _pass(cursor, sql.NoChange("attributes of a partition"))


def _other(cursor: Cursor, word: str) -> sql.Spec:
    _pass(cursor, sql.NoChange(word))
    # Lists of columns (ORDER BY a, b) and of labels ('a', 'b') go on after a comma; a new spec starts with its word.
    while cursor.is_sign(",") and (
        (following := cursor.peek(1)).kind is TokenKind.STRING
        or (word == "ORDER" and (following.kind is TokenKind.NAME or following.word not in {"", *_STARTS}))
    ):
        cursor.next()
        cursor.skip_balanced(",")
    return sql.NoChange(word)


def _by_words(rules: Mapping[str, Callable[[Cursor], Any]]) -> dict[str, Any]:
    """Split keys such as `DROP INDEX|DROP KEY` into one key per alternative."""
    return {words: rule for keys, rule in rules.items() for words in keys.split("|")}


_BINLOG: Final = ("NO_WRITE_TO_BINLOG", "LOCAL")
_PASSED: Final = frozenset(
    """ORDER ENABLE DISABLE FORCE LOCK ALGORITHM WITH WITHOUT ATTRIBUTES CACHE NOCACHE SET DISCARD IMPORT OPTIMIZE
    REBUILD REPAIR ANALYZE CHECK SECONDARY_LOAD SECONDARY_UNLOAD COMPACT READ""".split()  # noqa: SIM905
)
_STARTS: Final = _PASSED | frozenset(
    """ADD DROP MODIFY CHANGE ALTER CONVERT RENAME COMMENT ENGINE DEFAULT CHARACTER CHARSET AUTO_INCREMENT""".split()  # noqa: SIM905
)
"""Words that begin a spec rather than a column of ORDER BY."""
_INTERVALS: Final = ("FIRST PARTITION", "LAST PARTITION", "MERGE FIRST PARTITION", "SPLIT MAXVALUE PARTITION", "SPLIT")
_SPECS: Final[Mapping[str, Callable[[Cursor], sql.Spec]]] = _by_words(
    {
        "ADD PARTITION": _add_partition,
        "ADD STATS_EXTENDED": lambda c: _pass(c, sql.NoChange("ADD STATS_EXTENDED")),
        "ADD": _add,
        "DROP PRIMARY KEY": lambda _: sql.DropPrimaryKey(),
        "DROP FOREIGN KEY": lambda c: sql.NoChange(
            "DROP FOREIGN KEY", sql.DropForeignKey(if_exists=_if_exists(c), name=c.name())
        ),
        "DROP CONSTRAINT": lambda c: sql.NoChange(
            "DROP CONSTRAINT", sql.DropConstraint(if_exists=_if_exists(c), name=c.name())
        ),
        "DROP CHECK": lambda c: sql.NoChange("DROP CHECK", sql.DropConstraint(if_exists=_if_exists(c), name=c.name())),
        "DROP INDEX|DROP KEY": lambda c: sql.DropIndex(if_exists=_if_exists(c), name=c.name("an index name")),
        "DROP PARTITION": lambda c: sql.DropPartitions(if_exists=_if_exists(c), names=c.names()),
        "DROP STATS_EXTENDED": lambda c: _pass(c, sql.NoChange("DROP STATS_EXTENDED")),
        "DROP COLUMN|DROP": _drop_column,
        "MODIFY COLUMN|MODIFY": _modify,
        "CHANGE COLUMN|CHANGE": partial(_modify, renames=True),
        "ALTER INDEX IF EXISTS|ALTER INDEX|ALTER KEY IF EXISTS|ALTER KEY": lambda c: sql.SetVisibility(
            c.name("an index name"), c.expect("VISIBLE", "INVISIBLE", "NOT INVISIBLE") != "INVISIBLE"
        ),
        "ALTER CHECK|ALTER CONSTRAINT": lambda c: sql.NoChange(
            "ALTER CHECK", sql.AlterCheck(c.name(), c.expect("ENFORCED", "NOT ENFORCED") == "ENFORCED")
        ),
        "ALTER COLUMN|ALTER": _alter_column,
        "CONVERT TO CHARACTER SET|CONVERT TO CHAR SET|CONVERT TO CHARSET": _convert,
        "RENAME COLUMN": lambda c: sql.RenameColumn(c.name("a column name"), _to(c, "a column name")),
        "RENAME INDEX|RENAME KEY": lambda c: sql.RenameIndex(c.name("an index name"), _to(c, "an index name")),
        "RENAME": _rename_to,
        "TRUNCATE PARTITION": lambda c: sql.TruncatePartitions(() if c.accept("ALL") else c.names()),
        "REORGANIZE PARTITION": _reorganize,
        "COALESCE PARTITION": _coalesce,
        "EXCHANGE PARTITION": _exchange,
        "REMOVE PARTITIONING": lambda _: sql.RemovePartitioning(),
        "REMOVE TTL": lambda _: sql.NoChange("TTL", sql.RemoveTtl()),
        "PARTITION BY": _partition_by,
        "PARTITION": _partition_options,
        **{words: partial(_pass, what=sql.NotSupported(words)) for words in _INTERVALS},
        **{word: partial(_other, word=word) for word in _PASSED},
    }
)


def _read_spec(cursor: Cursor) -> sql.Spec:
    if (spec := cursor.first_of(_SPECS)) is not None:
        return spec
    options, count = read_options(cursor, commas=False)
    if not count:
        raise cursor.error("unknown ALTER TABLE specification")
    return options


QUERY_CHARACTERS_MAX: Final = 6 << 20
"""A DDL job with its text is one entry of TiDB's store; its default limit of one, txn-entry-size-limit, is this."""
TABLES_MAX: Final = 10_000
"""Maximal number of tables in the statements of a text: each one copies the map of all tables."""


def parse_ddl(query: str, default_schema: str, reserved: AbstractSet[str] = frozenset()) -> tuple[sql.Statement, ...]:
    """Return the statements of `query`, names completed with `default_schema`; () for blank text. Words of `reserved`
    cannot be names: TiDB's reserved words, but a text of an older TiDB may use some as names.

    The last few texts are cached, since engine and sinks parse the same DDL one after the other.

    Raises SqlError with the offset for a text that is not TiDB's DDL."""
    if len(query) > QUERY_CHARACTERS_MAX:
        raise fail(f"a DDL text of more than {QUERY_CHARACTERS_MAX} characters", query, 0)
    try:
        return _parse(query, default_schema, frozenset(reserved), frozenset())
    except SqlError:
        if "\\" not in query:
            raise
    return _parse(query, default_schema, frozenset(reserved), frozenset({"NO_BACKSLASH_ESCAPES"}))


@lru_cache(maxsize=8)
def _parse(query: str, schema: str, reserved: frozenset[str], modes: frozenset[str]) -> tuple[sql.Statement, ...]:
    cursor = Cursor(query, modes, reserved=reserved, schema=schema)
    statements: list[sql.Statement] = []
    tables = 0
    while True:
        while cursor.sign(";"):
            pass
        if cursor.done():
            return tuple(statements)
        statements.append(_read_statement(cursor))
        match statements[-1]:
            case sql.RenameTables(named) | sql.DropTables(named) | sql.DropViews(named):
                tables += len(named)
            case _:
                tables += 1
        if tables > TABLES_MAX:
            raise cursor.error(f"a DDL text that names more than {TABLES_MAX} tables")
        if not cursor.done():
            raise cursor.error("unexpected text")


def _alter_database(cursor: Cursor) -> sql.Statement:
    options = ("CHARACTER", "CHAR", "CHARSET", "COLLATE", "DEFAULT", "ENCRYPTION", "PLACEMENT", "SET", "READ")
    named = cursor.is_name() and not (cursor.peek().word in options and not cursor.is_name(ahead=2))
    name = cursor.name("a database name") if named else cursor.schema
    return sql.AlterDatabase(name, *database_charset(cursor))


def _alter_table(cursor: Cursor) -> sql.Statement:
    if_exists = _if_exists(cursor)
    table = cursor.qualified()
    specs: list[sql.Spec] = []
    while not cursor.done():
        if len(specs) >= COLUMNS_MAX:
            raise cursor.error(f"an ALTER TABLE of more than {COLUMNS_MAX} changes")
        specs.append(_read_spec(cursor))
        if not cursor.sign(",") and not cursor.looking_at("PARTITION BY") and not cursor.looking_at("REMOVE"):
            break
    renamed = any(isinstance(spec, sql.RenameTo) and spec.qualified for spec in specs)
    return sql.AlterTable(table.within(cursor.schema), renamed and table.schema is None, tuple(specs), if_exists)


def _drop_index(cursor: Cursor) -> sql.Statement:
    dropped = sql.DropIndex(if_exists=_if_exists(cursor), name=cursor.name("an index name"))
    cursor.expect("ON")
    table = cursor.table_name()
    while cursor.accept("ALGORITHM", "LOCK"):
        cursor.sign("=")
        cursor.next()
    return sql.AlterTable(table, doubtful=False, specs=(dropped,))


def _drop(cursor: Cursor, make: Callable[[tuple[TableName, ...], bool], sql.Statement]) -> sql.Statement:
    if_exists = _if_exists(cursor)
    tables = cursor.several(Cursor.table_name)
    cursor.accept("RESTRICT", "CASCADE")
    return make(tables, if_exists)


def _renamed(cursor: Cursor) -> sql.RenamePair:
    old = cursor.qualified()
    cursor.expect("TO")
    new = cursor.qualified()
    doubtful = old.schema is None and new.schema is not None
    return sql.RenamePair(old.within(cursor.schema), new.within(cursor.schema), doubtful=doubtful)


def _recover(cursor: Cursor, *, flashback: bool = False) -> sql.Statement:
    if cursor.accept("CLUSTER"):
        raise cursor.error("FLASHBACK CLUSTER rewrites all tables without row changes")
    cursor.expect("TABLE")
    by_job = cursor.accept("BY JOB") != ""
    table = TableName(cursor.schema, "") if by_job else cursor.table_name()
    if cursor.looking_at("TO TIMESTAMP") or cursor.looking_at("TO TSO"):
        raise cursor.error("FLASHBACK TABLE to a point in time rewrites rows without row changes")
    to = cursor.name("a table name") if flashback and cursor.accept("TO") else None
    if by_job or not (flashback or cursor.done()):
        cursor.integer("the number of a job")
    return sql.RecoverTable(table, to)


_STATEMENTS: Final[Mapping[str, Callable[[Cursor], sql.Statement]]] = _by_words(
    {
        **CREATES,
        "ALTER DATABASE|ALTER SCHEMA": _alter_database,
        "ALTER TABLE|ALTER IGNORE TABLE": _alter_table,
        "DROP DATABASE|DROP SCHEMA": lambda c: sql.DropDatabase(
            if_exists=_if_exists(c), name=c.name("a database name")
        ),
        "DROP INDEX": _drop_index,
        "DROP TEMPORARY TABLES|DROP TEMPORARY TABLE": partial(
            _drop, make=lambda *_: sql.Ignored("DROP TEMPORARY TABLE")
        ),
        "DROP TABLES|DROP TABLE|DROP GLOBAL TEMPORARY TABLES|DROP GLOBAL TEMPORARY TABLE": partial(
            _drop, make=sql.DropTables
        ),
        "DROP VIEW": partial(_drop, make=sql.DropViews),
        "RENAME TABLES|RENAME TABLE": lambda c: sql.RenameTables(c.several(_renamed)),
        "TRUNCATE TABLE|TRUNCATE": lambda c: sql.TruncateTable(c.table_name()),
        "FLASHBACK DATABASE|FLASHBACK SCHEMA|RECOVER DATABASE|RECOVER SCHEMA": lambda c: sql.RecoverDatabase(
            c.name("a database name"), c.name("a database name") if c.accept("TO") else None
        ),
        "FLASHBACK": partial(_recover, flashback=True),
        "RECOVER": _recover,
    }
)
_BEFORE_VIEW: Final = frozenset({"VIEW", "OR", "ALGORITHM", "DEFINER", "SQL"})
_IGNORED: Final[Mapping[str, AbstractSet[str]]] = {
    "CREATE": CREATED,
    "ALTER": CREATED | {"INSTANCE", "RANGE"},
    "DROP": CREATED | {"STATS", "PREPARE"},
    "RENAME": {"USER"},
    **dict.fromkeys(
        """SET USE LOCK UNLOCK GRANT REVOKE ANALYZE FLUSH ADMIN OPTIMIZE REPAIR SPLIT REFRESH BATCH""".split(),  # noqa: SIM905
        frozenset(),
    ),
}
"""Statements without effect on tables, by their first words, and the second words if not all."""


def _read_statement(cursor: Cursor) -> sql.Statement:
    if (statement := cursor.first_of(_STATEMENTS)) is not None:
        return statement
    if cursor.peek(1).word in _BEFORE_VIEW and cursor.accept("CREATE"):
        return read_view(cursor)
    seconds = _IGNORED.get(cursor.peek().word)
    if seconds is None or (seconds and cursor.peek(1).word not in seconds):
        raise cursor.error("not a known DDL statement")
    return ignore(cursor)
