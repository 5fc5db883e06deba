"""Grammar of CREATE statements: columns and defaults, table options, partitions, indexes, views, databases, sequences.

    CREATE [OR REPLACE] [UNIQUE | GLOBAL TEMPORARY ..] DATABASE | TABLE | INDEX | VIEW ..

    `h` BIT(4) NOT NULL DEFAULT b'101' COMMENT 'x' /*T![clustered_index] CLUSTERED */
    name type  ^ options in any order, as MySQL takes them

    ) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COMMENT 'x' /*T![ttl] TTL = `t` + INTERVAL 1 DAY */
    PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (10), PARTITION `p1` VALUES LESS THAN (MAXVALUE))

    CREATE SEQUENCE s START 1 INCREMENT BY 2 NOCACHE        SequenceDef(start=1, increment=2, cache=0)

Expressions (generated columns, defaults, checks) are skipped by balanced parentheses and kept as the user's text.
Bounds of partitions stay SQL text, charset introducers removed.  Table options are `word [=] value`; charset, collation
and comment matter to change capture, and an unknown option is passed over if it has its `=`.

CREATE USER and other statements that change no table are skipped.  So is a CREATE, ALTER or DROP SEQUENCE that this
grammar does not know, since change capture ignores sequences.

Source: TiDB parser/parser.y (ColumnDef, ColumnOption, TableOption, PartitionOpt, PartitionDefinition, CreateTableStmt,
CreateIndexStmt, CreateViewStmt, CreateDatabaseStmt).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from tidegate.expr.tokens import TokenKind
from tidegate.model.mysql import MysqlType
from tidegate.model.name import all_digits
from tidegate.model.table import PartitionDef, PartitionInfo
from tidegate.schema import statement as sql
from tidegate.schema.columns import charset_of_collation, normal_charset, read_charset_name, read_type
from tidegate.schema.cursor import Cursor, is_constraint, read_check, read_constraint, read_index_tail, read_references
from tidegate.schema.restore_table import TABLE_OPTIONS

_NOW: Final = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP", "LOCALTIME", "CURRENT_DATE", "CURDATE", "CURRENT_TIME")
_TYPED_LITERALS: Final = frozenset({"DATE", "TIME", "TIMESTAMP"})


def read_column(cursor: Cursor) -> sql.ColumnDef:
    """Return the column definition at the cursor, moving past it."""
    name = cursor.name("a column name")
    if cursor.sign("."):
        name = cursor.name("a column name")
        if cursor.sign("."):
            name = cursor.name("a column name")
    if cursor.accept("SERIAL"):
        serial = sql.TypeDef(MysqlType.LONGLONG, unsigned=True, charset="binary")
        column = sql.ColumnDef(name, serial, nullable=False, auto_increment=True, unique=True)
    else:
        column = sql.ColumnDef(name, read_type(cursor))
    while (extended := _read_option(cursor, column)) is not None:
        column = extended
    return column


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


_VALUED_OPTIONS: Final = ("DEFAULT", "COMMENT", "COLLATE", "GENERATED ALWAYS AS", "AS", "ON UPDATE", "AUTO_RANDOM")
_PASSED_OPTIONS: Final = ("VISIBLE", "INVISIBLE", "GLOBAL", "LOCAL", "ENFORCED", "NOT ENFORCED")
_PASSED_VALUES: Final = ("ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE")


def _read_option(cursor: Cursor, column: sql.ColumnDef) -> sql.ColumnDef | None:
    """Apply the option at the cursor to `column`; None if there is no option."""
    if setting := cursor.accept(*_SETTINGS):
        return replace(column, **_SETTINGS[setting])  # type: ignore[arg-type]
    detail = column.detail
    match cursor.accept(*_VALUED_OPTIONS):
        case "DEFAULT":
            return replace(column, default=read_default(cursor))
        case "COMMENT":
            return replace(column, comment=cursor.string())
        case "COLLATE":
            collation = read_charset_name(cursor)
            if column.type.charset is None:
                column = replace(column, type=replace(column.type, charset=charset_of_collation(collation)))
            return replace(column, detail=replace(detail, collate=collation.lower()))
        case "GENERATED ALWAYS AS" | "AS":
            expression = cursor.skip_group()
            stored = cursor.accept("VIRTUAL", "STORED", "PERSISTENT") in ("STORED", "PERSISTENT")
            return replace(column, generated=expression, stored=stored)
        case "ON UPDATE":
            cursor.word("a function")
            return replace(column, detail=replace(detail, on_update=_read_digits(cursor)))
        case "AUTO_RANDOM":
            bits = cursor.group(lambda inner: inner.integer("a number of bits")) if cursor.is_sign("(") else (5,)
            return replace(column, detail=replace(detail, auto_random=(bits[0], bits[1] if len(bits) > 1 else 64)))
    return _read_check(cursor, column)


def _read_check(cursor: Cursor, column: sql.ColumnDef) -> sql.ColumnDef | None:
    """Add the check at the cursor to `column`, or skip an option without effect; None if there is neither."""
    named = cursor.accept("CONSTRAINT") != ""
    name = cursor.name() if named and not cursor.looking_at("CHECK") else None
    if cursor.accept("CHECK"):
        check = read_check(cursor, name, in_column=True)
        return replace(column, detail=replace(column.detail, checks=(*column.detail.checks, check)))
    if cursor.accept("REFERENCES"):
        read_references(cursor)
    elif cursor.accept("COLUMN_FORMAT", "STORAGE"):
        cursor.word("a word")
    elif cursor.accept(*_PASSED_VALUES):
        cursor.string()
    elif not named and not cursor.accept(*_PASSED_OPTIONS):
        return None
    return column


def _read_digits(cursor: Cursor) -> int:
    """Read the fractional digits after CURRENT_TIMESTAMP; 0 if there are none."""
    if not cursor.sign("("):
        return 0
    digits = 0 if cursor.is_sign(")") else cursor.integer("fractional digits")
    cursor.expect_sign(")")
    return digits


def read_default(cursor: Cursor) -> sql.Default:
    """Return the value after DEFAULT at the cursor, moving past it."""
    if cursor.is_sign("("):
        return _read_default_group(cursor)
    literal = _read_literal(cursor)
    if literal is not None:
        return literal
    start = cursor.position
    if cursor.accept(*_NOW):
        return sql.Now(_read_digits(cursor))
    if cursor.accept("NEXT VALUE FOR"):
        cursor.qualified()
        return sql.Expression(cursor.slice(start))
    cursor.word("an expression")
    if cursor.sign("."):
        cursor.word("a function")
    cursor.skip_group()
    return sql.Expression(cursor.slice(start))


def _read_default_group(cursor: Cursor) -> sql.Default:
    """Read DEFAULT (x): a literal if x is one, else an expression."""
    start = cursor.position
    inside = cursor.skip_group()
    after, cursor.position = cursor.position, start + 1
    literal = _read_literal(cursor)
    whole = cursor.position == after - 1
    cursor.position = after
    return literal if literal is not None and whole else sql.Expression(inside)


def _read_literal(cursor: Cursor) -> sql.Default | None:
    """Read a literal; None, without moving, if there is none."""
    token, following = cursor.peek(), cursor.peek(1)
    if token.word == "NULL":
        cursor.next()
        return sql.Null()
    if token.word in ("TRUE", "FALSE"):
        cursor.next()
        return sql.DefaultNumber("1" if token.word == "TRUE" else "0")
    if token.kind is TokenKind.SIGN and token.text in ("-", "+") and following.kind is TokenKind.NUMBER:
        cursor.position += 2
        return sql.DefaultNumber(("-" if token.text == "-" else "") + _whole(following.text))
    literal_word = token.word.startswith("_") or token.word in _TYPED_LITERALS
    if literal_word and following.kind in (TokenKind.STRING, TokenKind.HEX, TokenKind.BITS):
        cursor.next()
        token = following
    match token.kind:
        case TokenKind.NUMBER:
            cursor.next()
            return sql.DefaultNumber(_whole(token.text))
        case TokenKind.STRING:
            parts = []
            while cursor.peek().kind is TokenKind.STRING:
                parts.append(cursor.next().text)
            return sql.DefaultText("".join(parts))
        case TokenKind.HEX:
            cursor.next()
            return sql.Blob(bytes.fromhex("0" * (len(token.text) % 2) + token.text))
        case TokenKind.BITS:
            cursor.next()
            return sql.Blob(int(token.text or "0", 2).to_bytes((len(token.text) + 7) // 8, "big"))
    return None


def _whole(number: str) -> str:
    return f"0{number}" if number.startswith(".") else number


_VALUED: Final = (*TABLE_OPTIONS, "ENGINE_ATTRIBUTE", "STATS_OPTIONS", "TYPE", "READ ONLY")
_PASSED: Final = ("ON COMMIT DELETE ROWS", "ON COMMIT PRESERVE ROWS", "REMOVE TTL")


def read_options(cursor: Cursor, *, commas: bool) -> tuple[sql.TableOptions, int]:
    """Return the (options, their number) at the cursor, moving past them; `commas` may separate them in CREATE
    TABLE."""
    charset: str | None = None
    collation: str | None = None
    comment: str | None = None
    detail = sql.OptionsDetail()
    count = 0
    while True:
        start = cursor.position
        if commas and count:
            cursor.sign(",")
        cursor.accept("DEFAULT")
        match cursor.accept("CHARACTER SET", "CHAR SET", "CHARSET", "COLLATE", "COMMENT", "TTL"):
            case "CHARACTER SET" | "CHAR SET" | "CHARSET":
                charset = normal_charset(read_charset_name(cursor))
            case "COLLATE":
                collation = read_charset_name(cursor)
            case "COMMENT":
                comment = cursor.string()
            case "TTL":
                detail = replace(detail, ttl=_read_ttl(cursor))
            case _:
                read = _read_valued(cursor, detail)
                if read is None:
                    cursor.position = start
                    break
                detail = read
        count += 1
    if charset is None and collation is not None:
        charset = charset_of_collation(collation)
    detail = replace(detail, collate=None if collation is None else collation.lower())
    return sql.TableOptions(charset, comment, detail), count


def _read_ttl(cursor: Cursor) -> tuple[str, str, str]:
    """Read `= col + INTERVAL 1 DAY` as (column, count, unit)."""
    cursor.sign("=")
    column = cursor.name("a column name")
    cursor.expect_sign("+")
    cursor.expect("INTERVAL")
    count = cursor.next().text
    return column, count, cursor.word("a unit of time").upper()


_NUMBERS: Final = {
    "AUTO_INCREMENT": "auto_increment",
    "FORCE AUTO_INCREMENT": "auto_increment",
    "AUTO_ID_CACHE": "auto_id_cache",
    "AUTO_RANDOM_BASE": "auto_random_base",
    "SHARD_ROW_ID_BITS": "shard_row_id_bits",
    "PRE_SPLIT_REGIONS": "pre_split_regions",
}
_TEXTS: Final = {"COMPRESSION": "compression", "TTL_JOB_INTERVAL": "ttl_job_interval"}
"""Options with a value that TiDB's definition has -> the field of OptionsDetail."""


def _read_valued(cursor: Cursor, detail: sql.OptionsDetail) -> sql.OptionsDetail | None:
    """Apply a table option to `detail`; None if there is no option, and the cursor may have moved."""
    if cursor.accept(*_PASSED):
        return detail
    option = cursor.accept(*_VALUED)
    if not option:
        option = cursor.peek().word
        if not (option and cursor.is_sign("=", ahead=1)):
            return None
        cursor.next()
    cursor.sign("=")
    if cursor.is_sign("("):
        cursor.skip_group()
        return detail
    if cursor.done() or cursor.peek().kind is TokenKind.SIGN:
        raise cursor.error("expected the value of a table option")
    value = cursor.next()
    if option in _NUMBERS and all_digits(value.text) and len(value.text) <= 20:
        detail = replace(detail, **{_NUMBERS[option]: int(value.text)})  # type: ignore[arg-type]
        return replace(detail, forced=True) if option.startswith("FORCE") else detail
    if option in _TEXTS:
        return replace(detail, **{_TEXTS[option]: value.text})  # type: ignore[arg-type]
    return replace(detail, ttl_enable=value.text.upper() == "ON") if option == "TTL_ENABLE" else detail


def read_partition_by(cursor: Cursor) -> tuple[PartitionInfo, str]:
    """Return the (partitioning, the reason why it is not supported or "") after PARTITION BY, moving past it."""
    cursor.accept("LINEAR")
    method = cursor.expect("RANGE", "LIST", "HASH", "KEY")
    not_supported = ""
    expr = ""
    columns: tuple[str, ...] = ()
    if cursor.accept("ALGORITHM"):
        cursor.expect_sign("=")
        cursor.integer()
    if method == "KEY" or cursor.accept("COLUMNS"):
        cursor.expect_sign("(")
        columns = () if cursor.is_sign(")") else cursor.names()
        cursor.expect_sign(")")
    else:
        expr = cursor.skip_group()
    if cursor.accept("INTERVAL"):
        not_supported = "INTERVAL partitioning"
        cursor.skip_group()
        while cursor.accept("FIRST PARTITION LESS THAN", "LAST PARTITION LESS THAN"):
            cursor.skip_group()
        while cursor.accept("NULL PARTITION", "MAXVALUE PARTITION"):
            pass
    count = cursor.integer("the number of partitions") if cursor.accept("PARTITIONS") else 0
    if cursor.accept("SUBPARTITION BY"):
        not_supported = not_supported or "SUBPARTITION"
        cursor.accept("LINEAR")
        cursor.expect("HASH", "KEY")
        cursor.skip_group()
        if cursor.accept("SUBPARTITIONS"):
            cursor.integer()
    definitions = read_partition_definitions(cursor) if cursor.is_sign("(") else ()
    if cursor.accept("UPDATE INDEXES"):
        cursor.skip_group()
    if method in ("HASH", "KEY"):
        count = len(definitions) or count or 1
        if count > MOST_PARTITIONS:
            raise cursor.error(f"more than {MOST_PARTITIONS} partitions")
        definitions = definitions or tuple(PartitionDef(f"p{number}") for number in range(count))
    else:
        count = 0
    return PartitionInfo(method, expr, columns, definitions, count), not_supported


MOST_PARTITIONS: Final = 8192
"""MySQL's and TiDB's limit."""


def read_partition_definitions(cursor: Cursor) -> tuple[PartitionDef, ...]:
    """Return the partitions of `(PARTITION name VALUES .., ..)`, moving past it."""
    return cursor.group(_read_definition)


def _read_definition(cursor: Cursor) -> PartitionDef:
    cursor.expect("PARTITION")
    name = cursor.name("a partition name")
    less_than: tuple[str, ...] = ()
    in_values: tuple[tuple[str, ...], ...] = ()
    if cursor.accept("VALUES LESS THAN"):
        less_than = ("MAXVALUE",) if cursor.accept("MAXVALUE") else cursor.group(_read_value)
    elif cursor.accept("VALUES IN"):
        in_values = cursor.group(lambda c: c.group(_read_value) if c.is_sign("(") else (_read_value(c),))
    elif cursor.accept("DEFAULT"):
        in_values = (("DEFAULT",),)
    read_options(cursor, commas=False)
    if cursor.is_sign("("):
        cursor.skip_group()
    return PartitionDef(name, less_than, in_values)


def _read_value(cursor: Cursor) -> str:
    """Read a bound as SQL text: MAXVALUE, DEFAULT and NULL in capitals, strings without introducer."""
    if cursor.peek().word.startswith("_") and cursor.peek(1).kind is TokenKind.STRING:
        cursor.next()
    start = cursor.position
    cursor.skip_balanced(",")
    text = cursor.slice(start)
    if not text:
        raise cursor.error("expected a value")
    return text.upper() if text.upper() in ("MAXVALUE", "DEFAULT", "NULL") else text


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


def read_sequence(cursor: Cursor) -> sql.StatementDetail | None:
    """Return the sequence statement at the cursor, moving into it; None if the grammar does not know it."""
    verb = cursor.accept("CREATE", "ALTER", "DROP")
    if not (verb and cursor.accept("SEQUENCE")):
        return None
    passed = cursor.accept("IF NOT EXISTS", "IF EXISTS") != ""
    if not cursor.is_name():
        return None
    name = cursor.table_name()
    if verb == "DROP":
        names = [name]
        while cursor.sign(",") and cursor.is_name():
            names.append(cursor.table_name())
        return sql.DropSequences(tuple(names), passed)
    sequence = sql.SequenceDef(name, verb == "ALTER", passed)
    while (extended := _create_read_option(cursor, sequence)) is not None:
        sequence = extended
    return sequence


def _create_read_option(cursor: Cursor, sequence: sql.SequenceDef) -> sql.SequenceDef | None:
    word = cursor.accept(*_WORDS)
    if word:
        return replace(sequence, **_WORDS[word])  # type: ignore[arg-type]
    option = cursor.accept(*_NUMBERED)
    if option:
        cursor.sign("=")
        sign = -1 if cursor.sign("-") else 1
        if cursor.peek().kind is not TokenKind.NUMBER or not all_digits(cursor.peek().text):
            return replace(sequence, restart=sequence.start) if option == "RESTART" else None
        return replace(sequence, **{_NUMBERED[option]: sign * cursor.integer()})  # type: ignore[arg-type]
    if cursor.accept("COMMENT"):
        cursor.sign("=")
        return replace(sequence, comment=cursor.next().text)
    return None


CREATED: Final = frozenset(
    """SEQUENCE PLACEMENT RESOURCE USER ROLE BINDING SESSION GLOBAL STATISTICS EXTERNAL MASKING TRIGGER PROCEDURE
    FUNCTION""".split()  # noqa: SIM905
)
"""Objects of CREATE that change capture skips."""


def ignore(cursor: Cursor) -> sql.Statement:
    """Return the statement at the cursor as one without effect on tables, moving past it."""
    what = " ".join(word for ahead in range(2) if (word := cursor.peek(ahead).word))
    detail = read_sequence(cursor) if what.endswith(" SEQUENCE") else None
    cursor.rest()
    return sql.Ignored(what, detail)


def database_charset(cursor: Cursor) -> tuple[str | None, str | None]:
    """Return the (charset, collation) of a database's options, moving past them."""
    options, _ = read_options(cursor, commas=False)
    if cursor.accept("SET"):
        cursor.rest()
    return options.charset, options.detail.collate


def read_view(cursor: Cursor) -> sql.Statement:
    """Return the view after CREATE, moving past it."""
    or_replace = cursor.accept("OR REPLACE") != ""
    if cursor.accept("ALGORITHM", "DEFINER", "SQL SECURITY"):
        while not (cursor.done() or cursor.looking_at("VIEW")):
            cursor.next()
    cursor.expect("VIEW")
    if_not_exists = cursor.accept("IF NOT EXISTS") != ""
    view = cursor.table_name()
    columns = cursor.group(Cursor.name) if cursor.is_sign("(") else ()
    cursor.accept("AS")
    start = cursor.position
    while not (cursor.done() or cursor.looking_at("WITH CHECK") or cursor.looking_at("WITH CASCADED")):
        cursor.next()
    select = cursor.slice(start)
    cursor.rest()
    return sql.CreateView(view, sql.ViewDetail(select, columns, or_replace, if_not_exists))


def _create_database(cursor: Cursor) -> sql.Statement:
    if_not_exists = cursor.accept("IF NOT EXISTS") != ""
    name = cursor.name("a database name")
    charset, collate = database_charset(cursor)
    return sql.CreateDatabase(name, charset, if_not_exists, collate)


def _create_index(cursor: Cursor, kind: str = "") -> sql.Statement:
    if_not_exists = cursor.accept("IF NOT EXISTS") != ""
    name = cursor.name("an index name")
    if cursor.accept("USING", "TYPE"):
        cursor.word("an index type")
    cursor.expect("ON")
    table = cursor.table_name()
    index = read_index_tail(cursor, sql.IndexDef(name, (), unique=kind == "UNIQUE"))
    if kind in ("VECTOR", "COLUMNAR"):
        index = sql.IndexDef(name, ())
    return sql.AlterTable(table, doubtful=False, specs=(sql.AddIndex(index, if_not_exists),))


def _create_table(cursor: Cursor, temporary: str = "") -> sql.Statement:
    if_not_exists = cursor.accept("IF NOT EXISTS") != ""
    named = cursor.qualified()
    table = named.within(cursor.schema)
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
            return sql.Ignored("CREATE TEMPORARY TABLE")
        return sql.CreateTableLike(table, source.within(cursor.schema), doubtful, if_not_exists)
    columns: list[sql.ColumnDef] = []
    indexes: list[sql.IndexDef] = []
    checks: list[sql.CheckDef] = []
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
        return sql.Ignored("CREATE TEMPORARY TABLE")
    detail = sql.TableDetail(tuple(checks), temporary != "")
    return sql.CreateTable(
        table, tuple(columns), tuple(indexes), options, partition, if_not_exists, not_supported, detail
    )


def read_body(cursor: Cursor) -> tuple[list[sql.ColumnDef], list[sql.IndexDef], list[sql.CheckDef]]:
    """Return the columns, keys and checks of `(..)`, moving past it."""
    elements = cursor.group(lambda inner: read_constraint(inner)[0] if is_constraint(inner) else read_column(inner))
    columns = [element for element in elements if isinstance(element, sql.ColumnDef)]
    indexes = [element for element in elements if isinstance(element, sql.IndexDef)]
    return columns, indexes, [element for element in elements if isinstance(element, sql.CheckDef)]


CREATES: Final[Mapping[str, Callable[[Cursor], sql.Statement]]] = {
    **dict.fromkeys(("CREATE DATABASE", "CREATE SCHEMA"), _create_database),
    "CREATE TABLE": _create_table,
    **{f"CREATE {kind} TABLE": partial(_create_table, temporary=kind) for kind in ("TEMPORARY", "GLOBAL TEMPORARY")},
    "CREATE INDEX": _create_index,
    **{
        f"CREATE {kind} INDEX": partial(_create_index, kind=kind)
        for kind in ("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR")
    },
}
"""Statements that create tables, indexes and databases, by their leading words."""
