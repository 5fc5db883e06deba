"""Grammar of what follows a table's columns: options and partitions.

    ) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COMMENT 'x' /*T![ttl] TTL = `t` + INTERVAL 1 DAY */
    PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (10), PARTITION `p1` VALUES LESS THAN (MAXVALUE))

Options are `word [=] value`; only charset, collation and comment matter, the rest is passed over, and so is an unknown
one if it has its `=`.  Bounds of partitions stay SQL text, charset introducers removed.
Source: TiDB parser/parser.y (TableOption, PartitionOpt, PartitionDefinition).
"""

from dataclasses import replace
from typing import Final

from tidegate.expr.syntax.tokens import TokenKind
from tidegate.model.name import all_digits
from tidegate.model.table import PartitionDef, PartitionInfo
from tidegate.schema.columns import charset_of_collation, normal_charset, read_charset_name
from tidegate.schema.cursor import Cursor
from tidegate.schema.definition import OptionsDetail, TableOptions
from tidegate.schema.restore.table import TABLE_OPTIONS

_VALUED: Final = (*TABLE_OPTIONS, "ENGINE_ATTRIBUTE", "STATS_OPTIONS", "TYPE", "READ ONLY")
_PASSED: Final = ("ON COMMIT DELETE ROWS", "ON COMMIT PRESERVE ROWS", "REMOVE TTL")


def read_options(cursor: Cursor, *, commas: bool) -> tuple[TableOptions, int]:
    """Return the (options, their number) at the cursor, moving past them; `commas` may stand between them in CREATE
    TABLE."""
    charset: str | None = None
    collation: str | None = None
    comment: str | None = None
    detail = OptionsDetail()
    count = 0
    while True:
        start = cursor.at
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
                    cursor.at = start
                    break
                detail = read
        count += 1
    if charset is None and collation is not None:
        charset = charset_of_collation(collation)
    detail = replace(detail, collate=None if collation is None else collation.lower())
    return TableOptions(charset, comment, detail), count


def _read_ttl(cursor: Cursor) -> tuple[str, str, str]:
    """(column, count, unit) of `= col + INTERVAL 1 DAY`, moving past it."""
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


def _read_valued(cursor: Cursor, detail: OptionsDetail) -> OptionsDetail | None:
    """`detail` with the option at the cursor, moving past it; None, having moved perhaps, if none stands here."""
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
    """Return the (partitioning, what of it we cannot follow or "") after PARTITION BY, moving past it."""
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
        in_values = cursor.group(_read_tuple)
    elif cursor.accept("DEFAULT"):
        in_values = (("DEFAULT",),)
    read_options(cursor, commas=False)
    if cursor.is_sign("("):
        cursor.skip_group()
    return PartitionDef(name, less_than, in_values)


def _read_tuple(cursor: Cursor) -> tuple[str, ...]:
    """One tuple of `(1, 2)` or `((1, 'a'), (2, 'b'))`."""
    return cursor.group(_read_value) if cursor.is_sign("(") else (_read_value(cursor),)


def _read_value(cursor: Cursor) -> str:
    """The SQL text of one bound; the words MAXVALUE, DEFAULT and NULL in capitals, no introducer before a string."""
    if cursor.peek().word.startswith("_") and cursor.peek(1).kind is TokenKind.STRING:
        cursor.next()
    start = cursor.at
    cursor.skip_balanced(",")
    text = cursor.slice(start)
    if not text:
        raise cursor.error("expected a value")
    return text.upper() if text.upper() in ("MAXVALUE", "DEFAULT", "NULL") else text
